/* [deconvolutional]: the transposed convolution. Its forward pass is the data gradient of a convolution from the output to the
 * input, whose weights [c, filters, size, size] are the layer's own, and its data gradient is that one's forward pass. */
#include <errno.h>

#include "graph/graph_priv.h"
#include "graph/layers/layers_priv.h"

struct deconv {
	struct dn_conv_desc desc; /* of the convolution that goes back */
	struct dn_conv *op;
	struct dn_param *biases, *weights;
	bool batch_norm;
	struct layer_norm norm;
	void *z, *pre; /* as in conv.c */
	void *dx;      /* [n, inputs] what is added to delta; the op overwrites */
};

static const struct dn_key_rule keys[] = {
	{ "filters", DN_KEY_INT, "1", 1, 1 << 24, .help = "output channels" },
	{ "size", DN_KEY_INT, "1", 1, 1 << 15, .help = "side of the square kernel" },
	{ "stride", DN_KEY_INT, "1", 1, 1 << 15, .help = "distance of the input's pixels in the output" },
	{ "pad", DN_KEY_INT, "0", 0, 1, .help = "1: padding is size / 2" },
	{ "padding", DN_KEY_INT, "0", 0, 1 << 24, .help = "pixels cut off on each side, without pad=1" },
	{ "batch_normalize", DN_KEY_INT, "0", 0, 1, .help = "1: normalise before the activation" },
	{ "activation", DN_KEY_TEXT, "logistic", .help = "applied to the output", .names = dn_act_names },
	{ .key = NULL },
};

static int deconv_keys(struct dn_layer *l, struct dn_section *s)
{
	struct deconv *dc = l->priv;
	struct dn_conv_desc *d = &dc->desc;
	int64_t pad, padding, norm;
	int err = dn_key_int(s, "filters", &d->x.c);

	if (!err)
		err = dn_key_int(s, "size", &d->size);
	if (!err)
		err = dn_key_int(s, "stride", &d->stride);
	if (!err)
		err = dn_key_int(s, "pad", &pad);
	if (!err)
		err = dn_key_int(s, "padding", &padding);
	if (!err)
		err = dn_key_int(s, "batch_normalize", &norm);
	if (!err)
		err = dn_layer_activation(l, s);
	if (!err)
		err = layer_no_numload(l);
	if (err)
		return err;
	d->pad = pad ? d->size / 2 : padding;
	dc->batch_norm = norm;
	return 0;
}

static int deconv_shape(struct dn_layer *l, struct dn_section *s)
{
	struct dn_conv_desc *d = &((struct deconv *)l->priv)->desc;
	int err = layer_needs_image(l);

	if (!err)
		err = dn_layer_set_out(l, (l->w - 1) * d->stride + d->size - 2 * d->pad,
				       (l->h - 1) * d->stride + d->size - 2 * d->pad, d->x.c);
	if (err)
		return err;
	if (l->c > NET_MAX_COUNT / (d->size * d->size * d->x.c))
		return dn_section_fail(s, "size", -EOVERFLOW,
				       "layer %d: %lld x %lld filters of %lld x %lld are more than 2^40 "
				       "elements",
				       l->index, (long long)l->c, (long long)d->x.c, (long long)d->size, (long long)d->size);
	d->x = l->out;
	d->y = l->in;
	d->weights = DN_F32;
	d->groups = 1;
	d->dilation = 1;
	d->act = DN_ACT_LINEAR;
	d->train = true; /* the data gradient is needed in inference too */
	return 0;
}

static int deconv_params(struct dn_layer *l)
{
	struct deconv *dc = l->priv;
	const struct dn_conv_desc *d = &dc->desc;
	const int64_t shape[4] = { d->y.c, d->x.c, d->size, d->size };
	const double sigma = .02 * (double)(l->out_w * l->out_h) / (double)(l->w * l->h);
	int err = layer_biases(l, d->x.c, &dc->biases);

	if (!err && dc->batch_norm)
		err = norm_declare(&dc->norm, l, d->x.c, dc->biases);
	if (!err)
		err = dn_layer_param(l, "weights", DN_TRAINED, 4, shape, (struct dn_init){ DN_INIT_NORMAL, sigma }, &dc->weights);
	if (err)
		return err;
	dc->weights->decay = true;
	if (l->w * l->h > INT64_MAX / 4 / dc->weights->n)
		return dn_section_fail(l->section, NULL, -EOVERFLOW, "layer %d: more than 2^62 operations for one image",
				       l->index);
	l->flops = 2 * l->w * l->h * dc->weights->n;
	return 0;
}

static int deconv_setup(struct dn_layer *l, struct dn_section *s)
{
	struct deconv *dc = layer_priv(l, sizeof(*dc));
	const struct dn_backend *be = l->net->dev->be;
	const int source = l->inputs_of[0].layer;
	const bool give = source >= 0 && l->net->layers[source].wants_delta;
	int err = dc ? deconv_keys(l, s) : -ENOMEM;

	if (!err)
		err = deconv_shape(l, s);
	if (!err)
		err = deconv_params(l);
	if (!err)
		err = dn_layer_need(l, conv_create);
	if (!err)
		err = layer_act_setup(l, &dc->pre);
	if (!err && dc->batch_norm)
		err = norm_setup(&dc->norm, l, dc->desc.x.c, l->out_w * l->out_h, layer_act_inside(l));
	if (!err && dc->batch_norm)
		err = norm_input(l, &dc->z);
	if (!err && give)
		err = dn_layer_buffer(l, l->in.bytes, DN_LIFE_BACKWARD, true, (void **)&dc->dx);
	if (!err)
		err = be->conv_create(l->net->dev, &dc->desc, &dc->op);
	if (err)
		return err;
	l->workspace_bytes = be->conv_workspace_bytes(dc->op, false);
	l->workspace_add_bytes = be->conv_workspace_bytes(dc->op, true);
	l->backward_reads_params = dc->batch_norm || give;
	return 0;
}

static int deconv_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct deconv *dc = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	void *y = dc->pre ? dc->pre : l->output;
	void *z = dc->z ? dc->z : y;
	int err = be->conv_backward_data(st, dc->op, dn_layer_x(l, pass, 0), dc->weights->value, z, false, l->net->workspace);

	if (!err && dc->batch_norm)
		err = norm_forward(&dc->norm, l, pass, z, y);
	else if (!err)
		err = be->bias_act(st, &l->out, z, dc->biases->value, layer_act_inside(l));
	return err ? err : layer_act_forward(l, dc->pre);
}

static int deconv_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct deconv *dc = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);
	int err = layer_act_backward(l, dc->pre);

	if (!err && dc->batch_norm)
		err = norm_backward(&dc->norm, l, dc->z, l->delta, l->delta, false);
	else if (!err)
		err = be->bias_backward(st, &l->out, l->delta, dc->biases->grad, dn_layer_adds(l));
	if (!err)
		err = be->conv_backward_weights(st, dc->op, l->delta, dn_layer_x(l, pass, 0), dc->weights->grad, dn_layer_adds(l),
						l->net->workspace);
	if (err || !dx)
		return err;
	err = be->conv_forward(st, dc->op, l->delta, dc->weights->value, NULL, NULL, acc ? dc->dx : dx, l->net->workspace);
	return err || !acc ? err : be->axpby(st, l->in.type, dn_tensor_count(&l->in), 1, dc->dx, 1, dx);
}

static void deconv_destroy(struct dn_layer *l)
{
	struct deconv *dc = l->priv;

	if (dc->op)
		l->net->dev->be->conv_destroy(dc->op);
	layer_free_priv(l);
}

const struct dn_layer_ops deconv_layer = {
	.name = "deconvolutional",
	.alias = "deconv",
	.summary = "the transposed convolution",
	.keys = keys,
	.setup = deconv_setup,
	.forward = deconv_forward,
	.backward = deconv_backward,
	.destroy = deconv_destroy,
};
