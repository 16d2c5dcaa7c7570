/* [deconvolutional]: the transposed convolution. Its forward pass is the data gradient of a convolution from the output to the
 * input, whose weights [c, filters, size, size] are the layer's own, and its data gradient is that one's forward pass. */
#include <errno.h>

#include "graph/graph_priv.h"
#include "graph/layers/layers_priv.h"

struct deconv {
	struct layer_linear linear;
	struct dn_conv_desc desc; /* of the convolution that goes back */
	struct dn_conv *op;
	void *dx; /* [n, inputs] what is added to delta; the op overwrites */
};

static int64_t padding_of(const struct dn_section *s)
{
	return dn_key_value(s, "pad") ? dn_key_value(s, "size") / 2 : dn_key_value(s, "padding");
}

static const struct dn_key_rule keys[] = {
	{ "filters", DN_KEY_INT, "1", 1, 1 << 24, .help = "output channels" },
	{ "size", DN_KEY_INT, "1", 1, 1 << 15, .help = "side of the square kernel" },
	{ "stride", DN_KEY_INT, "1", 1, 1 << 15, .help = "distance of the input's pixels in the output" },
	{ "pad", DN_KEY_INT, "0", 0, 1, .help = "1: padding is size / 2", .means = padding_of },
	{ "padding", DN_KEY_INT, "0", 0, 1 << 24, .help = "pixels cut off on each side, without pad=1", .means = padding_of },
	LINEAR_KEYS,
	{ .key = NULL },
};

static int deconv_keys(struct dn_layer *l, struct dn_section *s)
{
	struct deconv *dc = l->priv;
	struct dn_conv_desc *d = &dc->desc;
	int64_t pad, padding;
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
		err = linear_keys(&dc->linear, l, s);
	if (err)
		return err;
	d->pad = pad ? d->size / 2 : padding;
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
	const struct linear_weights w = {
		.n_dims = 4,
		.shape = { d->y.c, d->x.c, d->size, d->size },
		.init = { DN_INIT_NORMAL, .02 * (double)(l->out_w * l->out_h) / (double)(l->w * l->h) },
	};
	int err = linear_declare(&dc->linear, l, &w);

	if (err)
		return err;
	if (l->w * l->h > INT64_MAX / 4 / dc->linear.weights->n)
		return dn_section_fail(l->section, NULL, -EOVERFLOW, "layer %d: more than 2^62 operations for one image",
				       l->index);
	l->flops = 2 * l->w * l->h * dc->linear.weights->n;
	return 0;
}

static int deconv_setup(struct dn_layer *l, struct dn_section *s)
{
	struct deconv *dc = layer_priv(l, sizeof(*dc));
	int err = dc ? deconv_keys(l, s) : -ENOMEM;

	if (!err)
		err = deconv_shape(l, s);
	if (!err)
		err = deconv_params(l);
	if (!err)
		err = linear_setup(&dc->linear, l);
	if (!err && layer_gives(l, 0))
		err = dn_layer_buffer(l, l->in.bytes, DN_LIFE_BACKWARD, true, (void **)&dc->dx);
	return err ? err : layer_conv(l, &dc->desc, &dc->op);
}

static int deconv_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct deconv *dc = l->priv;
	int err = l->net->dev->be->conv_backward_data(l->net->compute, dc->op, dn_layer_x(l, pass, 0), dc->linear.weights->value,
						      linear_z(&dc->linear, l), false, l->net->workspace);

	return err ? err : linear_forward(&dc->linear, l, pass);
}

static int deconv_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct deconv *dc = l->priv;
	int err = linear_backward(&dc->linear, l);

	if (!err && !l->frozen)
		err = l->net->dev->be->conv_backward_weights(l->net->compute, dc->op, l->delta, dn_layer_x(l, pass, 0),
							     dc->linear.weights->grad, dn_layer_adds(l), l->net->workspace);
	return err;
}

static int deconv_backward_input(struct dn_layer *l, const struct dn_pass *pass)
{
	struct deconv *dc = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);
	int err;

	if (!dx)
		return 0;
	err = be->conv_forward(st, dc->op, l->delta, dc->linear.weights->value, NULL, NULL, acc ? dc->dx : dx, l->net->workspace);
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
	.backward_input = deconv_backward_input,
	.destroy = deconv_destroy,
};
