/* [maxpool]: the largest value of each window; outside the image is minus infinity. [local_avgpool]: the mean of what lies
 * inside. */
#include <errno.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/text.h"
#include "graph/layers/layers_priv.h"

struct maxpool {
	struct dn_pool_desc desc;
	int32_t *index; /* [n, c, oh, ow] the winner's position in its plane */
};

/* The stride is also what size follows from, and padding from that. */
static int64_t window_of(const struct dn_section *s)
{
	const int64_t all[] = { layer_strides(s), dn_key_value(s, "size"), dn_key_value(s, "padding") };

	return (int64_t)dn_hash(all, sizeof(all));
}

static const struct dn_key_rule keys[] = {
	{ "stride", DN_KEY_INT, "1", 1, 1 << 24, .help = "step of the window", .means = window_of },
	{ "stride_x", DN_KEY_INT, NULL, 1, 1 << 24, .help = "the same as stride_y: one stride for both sides", .from = "stride",
	  .means = layer_strides },
	{ "stride_y", DN_KEY_INT, NULL, 1, 1 << 24, .help = "the same as stride_x", .from = "stride", .means = layer_strides },
	{ "size", DN_KEY_INT, NULL, 1, 1 << 24, .help = "side of the window", .from = "stride" },
	{ "padding", DN_KEY_INT, NULL, 0, 1 << 24, .help = "of both sides together; the half, rounded down, lies left and above",
	  .from = "size", .more = -1 },
	{ "maxpool_depth", DN_KEY_ONLY, .def = "0" },
	{ "antialiasing", DN_KEY_ONLY, .def = "0" },
	{ "maxpool_zero_nonmax", DN_KEY_ONLY, .def = "0" },
	{ "out_channels", .kind = DN_KEY_NOTHING }, /* of maxpool_depth only */
	{ .key = NULL },
};

static int maxpool_keys(struct dn_layer *l, struct dn_section *s)
{
	struct dn_pool_desc *d = &((struct maxpool *)l->priv)->desc;
	int64_t sx, sy;
	int err = dn_key_int(s, "stride", &d->stride);

	if (!err)
		err = dn_key_int(s, "stride_x", &sx);
	if (!err)
		err = dn_key_int(s, "stride_y", &sy);
	if (!err)
		err = dn_key_int(s, "size", &d->size);
	if (!err)
		err = dn_key_int(s, "padding", &d->pad);
	if (err)
		return err;
	if (sx != sy)
		return dn_section_fail(s, "stride_x", -ENOTSUP,
				       "stride_x=%lld stride_y=%lld: different strides are not supported in "
				       "this version",
				       (long long)sx, (long long)sy);
	d->stride = sx;
	return 0;
}

static int pool_setup(struct dn_layer *l, struct dn_section *s)
{
	struct maxpool *mp = layer_priv(l, sizeof(*mp));
	struct dn_pool_desc *d = mp ? &mp->desc : NULL;
	int err = mp ? maxpool_keys(l, s) : -ENOMEM;

	if (!err)
		err = layer_needs_image(l);
	if (err)
		return err;
	if (l->w + d->pad < d->size || l->h + d->pad < d->size)
		return dn_section_fail(s, "size", -EINVAL,
				       "layer %d: a window of %lld is larger than the padded input of %lld x %lld", l->index,
				       (long long)d->size, (long long)(l->w + d->pad), (long long)(l->h + d->pad));
	if (l->w * l->h > INT32_MAX)
		return dn_section_fail(s, NULL, -EOVERFLOW, "layer %d: a plane of %lld x %lld is larger than 2^31 elements",
				       l->index, (long long)l->w, (long long)l->h);
	err = dn_layer_set_out(l, (l->w + d->pad - d->size) / d->stride + 1, (l->h + d->pad - d->size) / d->stride + 1, l->c);
	if (err)
		return err;
	d->x = l->in;
	d->y = l->out;
	return 0;
}

static int maxpool_setup(struct dn_layer *l, struct dn_section *s)
{
	struct maxpool *mp;
	size_t bytes;
	int err = dn_layer_need(l, maxpool_forward);

	if (!err)
		err = pool_setup(l, s);
	if (!err)
		err = dn_mul_size((size_t)dn_tensor_count(&l->out), sizeof(*mp->index), &bytes);
	mp = l->priv;
	return err ? err : dn_layer_buffer(l, bytes, DN_LIFE_SAVED, false, (void **)&mp->index);
}

static int maxpool_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct maxpool *mp = l->priv;

	return l->net->dev->be->maxpool_forward(l->net->compute, &mp->desc, dn_layer_x(l, pass, 0), l->output, mp->index);
}

static int maxpool_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct maxpool *mp = l->priv;
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);

	return dx ? l->net->dev->be->maxpool_backward(l->net->compute, &mp->desc, l->delta, mp->index, dx, acc) : 0;
}

static void maxpool_describe(const struct dn_layer *l, char *out, size_t cap)
{
	const char *stride = layer_key(l, "stride", "1");
	const char *size = layer_key(l, "size", stride);

	snprintf(out, cap, "max         %2s x%2s /%2s", size, size, stride);
}

const struct dn_layer_ops maxpool_layer = {
	.name = "maxpool",
	.alias = "max",
	.summary = "maxima of windows",
	.keys = keys,
	.setup = maxpool_setup,
	.forward = maxpool_forward,
	.backward = maxpool_backward,
	.destroy = layer_free_priv,
	.describe = maxpool_describe,
};

static int local_avg_setup(struct dn_layer *l, struct dn_section *s)
{
	int err = dn_layer_need(l, local_avg_forward);

	return err ? err : pool_setup(l, s);
}

static int local_avg_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct maxpool *mp = l->priv;

	return l->net->dev->be->local_avg_forward(l->net->compute, &mp->desc, dn_layer_x(l, pass, 0), l->output);
}

static int local_avg_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct maxpool *mp = l->priv;
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);

	return dx ? l->net->dev->be->local_avg_backward(l->net->compute, &mp->desc, l->delta, dx, acc) : 0;
}

const struct dn_layer_ops local_avgpool_layer = {
	.name = "local_avgpool",
	.alias = "local_avg",
	.summary = "means of windows, of the elements that lie within the image",
	.keys = keys,
	.setup = local_avg_setup,
	.forward = local_avg_forward,
	.backward = local_avg_backward,
	.destroy = layer_free_priv,
};
