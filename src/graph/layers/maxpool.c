/* [maxpool]: the largest value of each window; outside the image is minus infinity. [local_avgpool]: the mean of what lies
 * inside. */
#include <errno.h>
#include <stdio.h>

#include "base/mem.h"
#include "graph/layers/layers_priv.h"

struct maxpool {
	struct dn_pool_desc desc;
	int32_t *index; /* [n, c, oh, ow] the winner's position in its plane */
};

static const struct dn_key_fixed fixed[] = { { "maxpool_depth", 0 }, { "antialiasing", 0 }, { "maxpool_zero_nonmax", 0 } };
static const char *const ignored[] = { "out_channels" }; /* of maxpool_depth only */

static int maxpool_keys(struct dn_layer *l, struct dn_section *s)
{
	struct dn_pool_desc *d = &((struct maxpool *)l->priv)->desc;
	const int64_t most = 1 << 24;
	int64_t sx, sy;
	int err = dn_section_int(s, "stride", 1, 1, most, &d->stride);

	if (!err)
		err = dn_section_int(s, "stride_x", d->stride, 1, most, &sx);
	if (!err)
		err = dn_section_int(s, "stride_y", d->stride, 1, most, &sy);
	if (!err)
		err = dn_section_int(s, "size", d->stride, 1, most, &d->size);
	if (!err)
		err = dn_section_int(s, "padding", d->size - 1, 0, most, &d->pad);
	if (!err)
		err = dn_keys_fixed(s, fixed, DN_N(fixed));
	if (err)
		return err;
	dn_keys_ignore(s, ignored, DN_N(ignored));
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
	d->n = l->batch;
	d->c = l->c;
	d->h = l->h;
	d->w = l->w;
	d->oh = l->out_h;
	d->ow = l->out_w;
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
		err = dn_mul_size((size_t)(l->batch * l->outputs), sizeof(*mp->index), &bytes);
	mp = l->priv;
	return err ? err : dn_layer_buffer(l, bytes, DN_LIFE_SAVED, false, (void **)&mp->index);
}

static int maxpool_forward(struct dn_layer *l)
{
	struct maxpool *mp = l->priv;

	return l->net->dev->be->maxpool_forward(l->net->compute, &mp->desc, dn_layer_x(l, 0), l->output, mp->index);
}

static int maxpool_backward(struct dn_layer *l)
{
	struct maxpool *mp = l->priv;
	bool acc;
	float *dx = dn_layer_dx(l, 0, &acc);

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

static int local_avg_forward(struct dn_layer *l)
{
	struct maxpool *mp = l->priv;

	return l->net->dev->be->local_avg_forward(l->net->compute, &mp->desc, dn_layer_x(l, 0), l->output);
}

static int local_avg_backward(struct dn_layer *l)
{
	struct maxpool *mp = l->priv;
	bool acc;
	float *dx = dn_layer_dx(l, 0, &acc);

	return dx ? l->net->dev->be->local_avg_backward(l->net->compute, &mp->desc, l->delta, dx, acc) : 0;
}

const struct dn_layer_ops local_avgpool_layer = {
	.name = "local_avgpool",
	.alias = "local_avg",
	.setup = local_avg_setup,
	.forward = local_avg_forward,
	.backward = local_avg_backward,
	.destroy = layer_free_priv,
};
