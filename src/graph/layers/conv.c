/* [convolutional]: y = act(norm(x * w)) or act(x * w + b), zero padding, groups, dilation. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "graph/graph_priv.h"
#include "graph/layers/layers_priv.h"

struct conv {
	struct layer_linear linear;
	struct dn_conv_desc desc;
	struct dn_conv *op;
	bool binary, xnor; /* weights, weights and input are binarised in forward; backward uses the real ones */
	void *binary_w, *binary_x;
	void *packed; /* constant weights in the library's layout */
	uint64_t packed_version;
	bool packed_valid;
};

static int64_t padding_of(const struct dn_section *s)
{
	return dn_key_value(s, "pad") ? dn_key_value(s, "dilation") * (dn_key_value(s, "size") / 2) : dn_key_value(s, "padding");
}

static int64_t is_binary(const struct dn_section *s)
{
	return dn_key_value(s, "binary") || dn_key_value(s, "xnor");
}

static const struct dn_key_rule keys[] = {
	{ "filters", DN_KEY_INT, "1", 1, 1 << 24, .help = "output channels" },
	{ "size", DN_KEY_INT, "1", 1, 1 << 15, .help = "side of the square kernel" },
	{ "stride", DN_KEY_INT, "1", 1, 1 << 24, .help = "step of the kernel", .means = layer_strides },
	{ "stride_x", DN_KEY_INT, NULL, 1, 1 << 24, .help = "the same as stride_y: one stride for both sides", .from = "stride",
	  .means = layer_strides },
	{ "stride_y", DN_KEY_INT, NULL, 1, 1 << 24, .help = "the same as stride_x", .from = "stride", .means = layer_strides },
	{ "pad", DN_KEY_INT, "0", 0, 1, .help = "1: padding is dilation * (size / 2)", .means = padding_of },
	{ "padding", DN_KEY_INT, "0", 0, 1 << 24, .help = "zeros on each side, without pad=1", .means = padding_of },
	{ "groups", DN_KEY_INT, "1", 1, 1 << 24, .help = "cuts input and output channels into parts of their own" },
	{ "dilation", DN_KEY_INT, "1", 1, 1 << 24, .help = "distance of the kernel's taps" },
	LINEAR_KEYS,
	{ "flipped", DN_KEY_INT, "0", 0, 1, .help = "1: the matrix lies transposed in .weights files", .resume = DN_RESUME_ANY },
	{ "binary", DN_KEY_INT, "0", 0, 1, .help = "1: weights are binarised in forward", .means = is_binary },
	{ "xnor", DN_KEY_INT, "0", 0, 1, .help = "1: weights and input are binarised in forward" },
	{ "bin_output", DN_KEY_ONLY, .def = "0" },
	{ "antialiasing", DN_KEY_ONLY, .def = "0" },
	{ "cbn", DN_KEY_ONLY, .def = "0" },
	{ "assisted_excitation", DN_KEY_ONLY, .def = "0" },
	{ "coordconv", DN_KEY_ONLY, .def = "0" },
	{ "sway", DN_KEY_ONLY, .def = "0" },
	{ "rotate", DN_KEY_ONLY, .def = "0" },
	{ "stretch", DN_KEY_ONLY, .def = "0" },
	{ "stretch_sway", DN_KEY_ONLY, .def = "0" },
	{ "grad_centr", DN_KEY_ONLY, .def = "0" },
	{ "reverse", DN_KEY_ONLY, .def = "0" },
	{ "dot", .kind = DN_KEY_NOTHING },
	{ "angle", .kind = DN_KEY_NOTHING },
	{ "stream", .kind = DN_KEY_NOTHING },
	{ "wait_stream", .kind = DN_KEY_NOTHING },
	{ .key = NULL },
};

static int conv_keys(struct dn_layer *l, struct dn_section *s, bool *flipped)
{
	struct conv *cv = l->priv;
	struct dn_conv_desc *d = &cv->desc;
	int64_t pad, padding, sx, sy, flip, binary, xnor;
	int err = dn_key_int(s, "filters", &d->y.c);

	if (!err)
		err = dn_key_int(s, "size", &d->size);
	if (!err)
		err = dn_key_int(s, "stride", &d->stride);
	if (!err)
		err = dn_key_int(s, "stride_x", &sx);
	if (!err)
		err = dn_key_int(s, "stride_y", &sy);
	if (!err)
		err = dn_key_int(s, "pad", &pad);
	if (!err)
		err = dn_key_int(s, "padding", &padding);
	if (!err)
		err = dn_key_int(s, "groups", &d->groups);
	if (!err)
		err = dn_key_int(s, "dilation", &d->dilation);
	if (!err)
		err = linear_keys(&cv->linear, l, s);
	if (!err)
		err = dn_key_int(s, "flipped", &flip);
	if (!err)
		err = dn_key_int(s, "binary", &binary);
	if (!err)
		err = dn_key_int(s, "xnor", &xnor);
	if (err)
		return err;
	if (sx != sy)
		return dn_section_fail(s, "stride_x", -ENOTSUP,
				       "stride_x=%lld stride_y=%lld: different strides are not supported in "
				       "this version",
				       (long long)sx, (long long)sy);
	if (l->numload > d->y.c)
		return dn_section_fail(s, "numload", -EINVAL, "numload=%lld is more than filters=%lld", (long long)l->numload,
				       (long long)d->y.c);
	d->stride = sx;
	d->pad = pad ? d->dilation * (d->size / 2) : padding;
	cv->binary = binary || xnor;
	cv->xnor = xnor;
	*flipped = flip;
	return 0;
}

static int conv_shape(struct dn_layer *l, struct dn_section *s)
{
	struct dn_conv_desc *d = &((struct conv *)l->priv)->desc;
	const int64_t reach = d->dilation * (d->size - 1) + 1;
	int err;

	if (l->c > NET_MAX_COUNT / (d->size * d->size))
		return dn_section_fail(s, "size", -EOVERFLOW,
				       "layer %d: filters of %lld x %lld x %lld are more than 2^40 elements", l->index,
				       (long long)d->size, (long long)d->size, (long long)l->c);
	if (l->c % d->groups || d->y.c % d->groups)
		return dn_section_fail(s, "groups", -EINVAL,
				       "groups=%lld does not divide both the %lld input channels and "
				       "filters=%lld",
				       (long long)d->groups, (long long)l->c, (long long)d->y.c);
	if (l->w + 2 * d->pad < reach || l->h + 2 * d->pad < reach)
		return dn_section_fail(s, "size", -EINVAL,
				       "layer %d: a kernel of %lld (size %lld, dilation %lld) is larger than the "
				       "padded input of %lld x %lld",
				       l->index, (long long)reach, (long long)d->size, (long long)d->dilation,
				       (long long)(l->w + 2 * d->pad), (long long)(l->h + 2 * d->pad));
	err = dn_layer_set_out(l, (l->w + 2 * d->pad - reach) / d->stride + 1, (l->h + 2 * d->pad - reach) / d->stride + 1,
			       d->y.c);
	if (err)
		return err;
	d->x = l->in;
	d->y = l->out;
	d->weights = DN_F32;
	return 0;
}

static int conv_params(struct dn_layer *l, bool flipped)
{
	struct conv *cv = l->priv;
	const struct dn_conv_desc *d = &cv->desc;
	const int64_t fan_in = d->size * d->size * (d->x.c / d->groups);
	const struct linear_weights w = {
		.n_dims = 4,
		.shape = { d->y.c, d->x.c / d->groups, d->size, d->size },
		.init = { DN_INIT_NORMAL, sqrt(2. / (double)fan_in) },
		.file_rows = flipped ? d->y.c : 0,
		.file_cols = flipped ? fan_in : 0,
		.file_flipped = flipped,
	};
	int err = linear_declare(&cv->linear, l, &w);

	if (err)
		return err;
	if (l->outputs > INT64_MAX / 4 / fan_in)
		return dn_section_fail(l->section, NULL, -EOVERFLOW, "layer %d: more than 2^62 operations for one image",
				       l->index);
	l->flops = 2 * fan_in * l->outputs;
	return 0;
}

/* Weights are binarised per filter: the sign times the mean size. The input becomes +1 and -1, padding stays 0. */
static int conv_binary_setup(struct dn_layer *l)
{
	struct conv *cv = l->priv;
	size_t bytes;
	int err = cv->binary ? dn_layer_need(l, binarize) : 0;

	if (err || !cv->binary)
		return err;
	err = layer_bytes(cv->linear.weights->n, &bytes);
	if (!err)
		err = dn_layer_buffer(l, bytes, DN_LIFE_FORWARD, false, (void **)&cv->binary_w);
	if (!err && cv->xnor)
		err = dn_layer_buffer(l, l->in.bytes, DN_LIFE_FORWARD, false, (void **)&cv->binary_x);
	return err;
}

static int conv_setup(struct dn_layer *l, struct dn_section *s)
{
	struct conv *cv = layer_priv(l, sizeof(*cv));
	bool flipped = false;
	int err = cv ? conv_keys(l, s, &flipped) : -ENOMEM;

	if (!err)
		err = layer_needs_image(l);
	if (!err)
		err = conv_shape(l, s);
	if (!err)
		err = conv_params(l, flipped);
	if (!err)
		err = linear_setup(&cv->linear, l);
	if (!err)
		err = conv_binary_setup(l);
	if (err)
		return err;
	linear_in_conv(&cv->linear, l, &cv->desc);
	err = layer_conv(l, &cv->desc, &cv->op);
	return err || cv->binary ? err : dn_layer_packed(l, l->net->dev->be->conv_packed_bytes(cv->op), &cv->packed);
}

static int conv_repack(struct dn_layer *l)
{
	struct conv *cv = l->priv;
	int err;

	if (!cv->packed || (cv->packed_valid && cv->packed_version == l->net->values_version))
		return 0;
	err = l->net->dev->be->conv_pack(l->net->compute, cv->op, cv->linear.weights->value, cv->packed, l->net->workspace);
	cv->packed_valid = !err;
	cv->packed_version = l->net->values_version;
	return err;
}

static int conv_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct conv *cv = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	const void *x = dn_layer_x(l, pass, 0), *w = cv->linear.weights->value;
	int err = conv_repack(l);

	if (!err && cv->binary) {
		err = be->binarize(st, DN_F32, cv->desc.y.c, cv->linear.weights->n / cv->desc.y.c, true, w, cv->binary_w);
		w = cv->binary_w;
	}
	if (!err && cv->xnor) {
		err = be->binarize(st, l->in.type, 1, dn_tensor_count(&l->in), false, x, cv->binary_x);
		x = cv->binary_x;
	}
	if (!err)
		err = be->conv_forward(st, cv->op, x, w, cv->packed, cv->desc.bias ? cv->linear.biases->value : NULL,
				       linear_z(&cv->linear, l), l->net->workspace);
	return err ? err : linear_forward(&cv->linear, l, pass);
}

static int conv_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct conv *cv = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	int err = linear_backward(&cv->linear, l);

	if (!err && !l->frozen)
		err = be->conv_backward_weights(l->net->compute, cv->op, dn_layer_x(l, pass, 0), l->delta,
						cv->linear.weights->grad, dn_layer_adds(l), l->net->workspace);
	return err;
}

static int conv_backward_input(struct dn_layer *l, const struct dn_pass *pass)
{
	struct conv *cv = l->priv;
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);

	return dx ? l->net->dev->be->conv_backward_data(l->net->compute, cv->op, l->delta, cv->linear.weights->value, dx, acc,
							l->net->workspace)
		  : 0;
}

static void conv_destroy(struct dn_layer *l)
{
	struct conv *cv = l->priv;

	if (cv->op)
		l->net->dev->be->conv_destroy(cv->op);
	layer_free_priv(l);
}

static void conv_describe(const struct dn_layer *l, char *out, size_t cap)
{
	const char *size = layer_key(l, "size", "1");

	snprintf(out, cap, "conv  %5lld %2s x%2s /%2s", (long long)l->out_c, size, size, layer_key(l, "stride", "1"));
}

const struct dn_layer_ops conv_layer = {
	.name = "convolutional",
	.alias = "conv",
	.summary = "act(norm(x * w)) or act(x * w + b), zero padding",
	.keys = keys,
	.setup = conv_setup,
	.forward = conv_forward,
	.backward = conv_backward,
	.backward_input = conv_backward_input,
	.destroy = conv_destroy,
	.describe = conv_describe,
	.filters = true,
};
