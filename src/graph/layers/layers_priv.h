/* The layer types, for the table, and what they share. */
#ifndef DN_GRAPH_LAYERS_PRIV_H
#define DN_GRAPH_LAYERS_PRIV_H
#include "graph/layer.h"
#include "graph/net.h"

/* The table of layer types, a line each: row(foo) stands for foo_layer, in the order in which they are listed. */
/* clang-format off */
#define LAYER_TYPES(row) \
	row(conv) \
	row(connected) \
	row(maxpool) \
	row(avgpool) \
	row(batchnorm) \
	row(dropout) \
	row(softmax) \
	row(cost) \
	row(shortcut) \
	row(route) \
	row(activation) \
	row(logistic) \
	row(l2norm) \
	row(lrn) \
	row(upsample) \
	row(reorg) \
	row(reorg3d) \
	row(crop) \
	row(local) \
	row(deconv) \
	row(scale_channels) \
	row(sam) \
	row(local_avgpool)
/* clang-format on */

#define LAYER_DECLARE(type) extern const struct dn_layer_ops type##_layer;
LAYER_TYPES(LAYER_DECLARE)
#undef LAYER_DECLARE

struct layer_norm {
	struct dn_bn_desc desc;
	struct dn_param *biases; /* NULL: none, zeros are used */
	struct dn_param *scales, *rolling_mean, *rolling_variance;
	float *mean, *variance; /* [c] of this microbatch */
	int64_t sync;		/* values of a channel over all ranks, whose statistics they then are; 0: those of this rank */
	float *sums;		/* [2c] of backward when sync */
	float *no_bias;		/* [c] when biases is NULL */
};

/* norm_declare() - scales and the rolling statistics as the next params; biases are the layer's own */
int norm_declare(struct layer_norm *nm, struct dn_layer *l, int64_t c, struct dn_param *biases);
/* norm_setup() - buffers; y = act(norm(x)), x and y as the output */
int norm_setup(struct layer_norm *nm, struct dn_layer *l, enum dn_act act);
/* norm_input() - a buffer for x where the layer makes it; left NULL when x may lie in the output itself */
int norm_input(struct dn_layer *l, void **z);
int norm_forward(const struct layer_norm *nm, struct dn_layer *l, const struct dn_pass *pass, const void *x, void *y);
/* @dy is already times act'; @dx may be dy itself with acc false, or NULL */
int norm_backward(const struct layer_norm *nm, struct dn_layer *l, const void *x, const void *dy, void *dx, bool acc);

/* layer_act_setup() - for layers that end in act(z): *pre becomes a buffer for z when the activation's gradient needs it,
 * and stays NULL when z may lie in the output itself. layer_act_forward() then makes the output of it.
 * layer_act_backward() turns delta into that of z. */
int layer_act_setup(struct dn_layer *l, void **pre);
enum dn_act layer_act_inside(const struct dn_layer *l); /* what the op before may apply itself: linear when *pre exists */
int layer_act_forward(struct dn_layer *l, const void *pre);
int layer_act_backward(struct dn_layer *l, const void *pre);

/* Layers that end in act(norm(z)) or act(z + b), where z is their own product of input and weights (linear.c).
 * setup(): linear_keys(), dn_layer_set_out(), linear_declare(), linear_setup(). forward(): the layer's op puts z at linear_z(),
 * then linear_forward(). backward(): linear_backward(), after which l->delta is that of z and the gradients of biases and scales
 * are written; then the layer's own ops for li->weights->grad and for what goes back.
 */
struct layer_linear {
	bool batch_norm;
	struct dn_param *biases, *weights;
	struct layer_norm norm;
	struct dn_tensor bias_of; /* the output as biases see it: one a channel */
	bool op_ends;		  /* the op that makes z adds the biases and activates */
	void *z;		  /* before the normalisation, NULL: the place of what is normalised (backward not needed) */
	void *pre;		  /* before the activation, NULL: output */
};

struct linear_weights {
	int n_dims;
	int64_t shape[4];
	struct dn_init init;
	bool norm_last;		      /* files have biases, weights, norm; else biases, norm, weights */
	bool bias_a_point;	      /* of the output; else one a channel */
	int64_t file_rows, file_cols; /* see struct dn_param */
	bool file_flipped;
};

/* rows of a table of keys, for linear_keys() */
#define LINEAR_KEYS \
	{ "batch_normalize", DN_KEY_INT, "0", 0, 1, .help = "1: normalise before the activation" }, \
		LAYER_KEY_ACTIVATION("logistic")
#define LAYER_KEY_ACTIVATION(def_) \
	{ \
		"activation", DN_KEY_TEXT, (def_), .help = "applied to the output", .names = dn_act_names \
	}
int linear_keys(struct layer_linear *li, struct dn_layer *l, struct dn_section *s);
int linear_declare(struct layer_linear *li, struct dn_layer *l, const struct linear_weights *w);
int linear_setup(struct layer_linear *li, struct dn_layer *l);
/* linear_in_conv() - the convolution @d that makes z is to add the biases and to activate, unless z is normalised; sets bias, act
 * and train. Its bias is then li->biases. */
void linear_in_conv(struct layer_linear *li, const struct dn_layer *l, struct dn_conv_desc *d);
void *linear_z(const struct layer_linear *li, const struct dn_layer *l);
int linear_forward(const struct layer_linear *li, struct dn_layer *l, const struct dn_pass *pass);
int linear_backward(const struct layer_linear *li, struct dn_layer *l);

/** layer_has_truth() - a target for this loss; of another length only where nothing trains, and then it has none */
static inline bool layer_has_truth(const struct dn_layer *l, const struct dn_pass *pass)
{
	return (pass->truth || pass->classes) && l->truths == l->net->truths;
}

/** layer_truth() - the pass's target and, in *t, its descriptor: as the flat output, or one class an image */
const void *layer_truth(const struct dn_layer *l, const struct dn_pass *pass, struct dn_tensor *t);

/* Losses: *scratch takes t - p of a pass that does not learn. layer_loss() needs the target, and without one zeroes
 * what delta there is. @t may be NULL: the pass's target. */
int layer_loss_setup(struct dn_layer *l, void **scratch);
int layer_loss(struct dn_layer *l, const struct dn_pass *pass, enum dn_cost kind, const void *p, const void *t, void *scratch);

/* layer_same_out() - the output has the shape of the input, flat or image */
int layer_same_out(struct dn_layer *l);
int layer_bytes(int64_t n, size_t *out); /* n floats */
int layer_biases(struct dn_layer *l, int64_t n, struct dn_param **out);
/* layer_priv() - zeroed l->priv; layer_free_priv() is the destroy() of layers without foreign things */
void *layer_priv(struct dn_layer *l, size_t size);
void layer_free_priv(struct dn_layer *l);
/* layer_gives() - somebody wants the delta of input @k */
bool layer_gives(const struct dn_layer *l, int k);
/* layer_goes_back() - training runs its backward; a frozen layer's where somebody before it learns. Known once the inputs are. */
bool layer_goes_back(const struct dn_layer *l);
/* layer_key() - for describe(): the text of a key, or @def */
const char *layer_key(const struct dn_layer *l, const char *key, const char *def);
/* layer_sources() - for describe(): the layers that @key names, counted from the first: "9 7" for -1,-3 in layer 10 */
void layer_sources(const struct dn_layer *l, const char *key, char *out, size_t cap);
/* layer_conv() - a convolution of the back end, with the workspace that it needs */
int layer_conv(struct dn_layer *l, const struct dn_conv_desc *d, struct dn_conv **out);
/* layer_strides() - what stride, stride_x and stride_y mean together, for dn_key_rule.means */
int64_t layer_strides(const struct dn_section *s);
/* layer_needs_image() - fails when the input is flat */
int layer_needs_image(const struct dn_layer *l);
/* layer_pass_delta() - dx of input @k (+)= alpha * delta, for layers whose gradient is that */
int layer_pass_delta(struct dn_layer *l, int k, float alpha);

#endif
