/* The layer types, for the table, and the batch normalisation that three of them share. */
#ifndef DN_GRAPH_LAYERS_PRIV_H
#define DN_GRAPH_LAYERS_PRIV_H
#include "graph/layer.h"
#include "graph/net.h"

extern const struct dn_layer_ops conv_layer, connected_layer, maxpool_layer, avgpool_layer, batchnorm_layer, dropout_layer,
	softmax_layer, cost_layer, shortcut_layer, route_layer, activation_layer, logistic_layer, l2norm_layer, lrn_layer,
	upsample_layer, reorg_layer, reorg3d_layer, crop_layer, local_layer, deconv_layer, scale_channels_layer, sam_layer,
	local_avgpool_layer;

struct layer_norm {
	struct dn_bn_desc desc;
	struct dn_param *biases; /* NULL: none, zeros are used */
	struct dn_param *scales, *rolling_mean, *rolling_variance;
	float *mean, *variance; /* [c] of this microbatch */
	float *no_bias;		/* [c] when biases is NULL */
};

/* norm_declare() - scales and the rolling statistics as the next params; biases are the layer's own */
int norm_declare(struct layer_norm *nm, struct dn_layer *l, int64_t c, struct dn_param *biases);
/* norm_setup() - shape and buffers; y = act(norm(x)), x and y [n, c, hw] */
int norm_setup(struct layer_norm *nm, struct dn_layer *l, int64_t c, int64_t hw, enum dn_act act);
/* norm_input() - the buffer for x of conv and connected; left NULL when x may lie in the output itself */
int norm_input(struct dn_layer *l, void **z);
int norm_forward(struct layer_norm *nm, struct dn_layer *l, const struct dn_pass *pass, const void *x, void *y);
/* @dy is already times act'; @dx may be dy itself with acc false, or NULL */
int norm_backward(struct layer_norm *nm, struct dn_layer *l, const void *x, const void *dy, void *dx, bool acc);

/* layer_act_setup() - for layers that end in act(z): *pre becomes a buffer for z when the activation's gradient needs it,
 * and stays NULL when z may lie in the output itself. layer_act_forward() then makes the output of it.
 * layer_act_backward() turns delta into that of z. */
int layer_act_setup(struct dn_layer *l, void **pre);
enum dn_act layer_act_inside(const struct dn_layer *l); /* what the op before may apply itself: linear when *pre exists */
int layer_act_forward(struct dn_layer *l, const void *pre);
int layer_act_backward(struct dn_layer *l, const void *pre);

/** layer_has_truth() - a target for this loss; of another length only where nothing trains, and then it has none */
static inline bool layer_has_truth(const struct dn_layer *l, const struct dn_pass *pass)
{
	return pass->truth && l->truths == l->net->truths;
}

/* Losses: *scratch takes t - p of a pass that does not learn. layer_loss() needs the target, and without one zeroes
 * what delta there is. @t may be NULL: the pass's target. */
int layer_loss_setup(struct dn_layer *l, void **scratch);
int layer_loss(struct dn_layer *l, const struct dn_pass *pass, enum dn_cost kind, const void *p, const void *t, void *scratch);

/* layer_same_out() - the output has the shape of the input, flat or image */
int layer_same_out(struct dn_layer *l);
int layer_bytes(int64_t n, size_t *out); /* n floats */
/* layer_no_numload() - for layers whose weights do not start with the filters */
int layer_no_numload(const struct dn_layer *l);
int layer_biases(struct dn_layer *l, int64_t n, struct dn_param **out);
/* layer_priv() - zeroed l->priv; layer_free_priv() is the destroy() of layers without foreign things */
void *layer_priv(struct dn_layer *l, size_t size);
void layer_free_priv(struct dn_layer *l);
/* layer_needs_image() - fails when the input is flat */
int layer_needs_image(const struct dn_layer *l);
/* layer_pass_delta() - dx of input @k (+)= alpha * delta, for layers whose gradient is that */
int layer_pass_delta(struct dn_layer *l, int k, float alpha);

#endif
