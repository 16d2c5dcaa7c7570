/* [crop]: a window of the image, in training at a place and with a flip that follow from seed, layer and global image,
 * else the centre; then x * 2 - 1 unless noadjust=1. */
#include <errno.h>

#include "base/log.h"
#include "base/rng.h"
#include "graph/layers/layers_priv.h"

struct crop {
	struct dn_crop_desc desc;
};

static const struct dn_key_fixed fixed[] = { { "angle", 0 }, { "saturation", 1 }, { "exposure", 1 } };

static int crop_setup(struct dn_layer *l, struct dn_section *s)
{
	struct crop *cr = layer_priv(l, sizeof(*cr));
	struct dn_crop_desc *d = cr ? &cr->desc : NULL;
	int64_t flip, noadjust;
	double shift;
	int err = cr ? dn_section_int(s, "crop_width", 1, 1, 1 << 24, &d->y.w) : -ENOMEM;

	if (!err)
		err = dn_section_int(s, "crop_height", 1, 1, 1 << 24, &d->y.h);
	if (!err)
		err = dn_section_int(s, "flip", 0, 0, 1, &flip);
	if (!err)
		err = dn_section_int(s, "noadjust", 0, 0, 1, &noadjust);
	if (!err)
		err = dn_section_float(s, "shift", 0, &shift);
	if (!err)
		err = dn_keys_fixed(s, fixed, DN_N(fixed));
	if (!err)
		err = layer_needs_image(l);
	if (!err)
		err = dn_layer_need(l, crop_forward);
	if (err)
		return err;
	if (d->y.w > l->w || d->y.h > l->h)
		return dn_section_fail(s, d->y.w > l->w ? "crop_width" : "crop_height", -EINVAL,
				       "layer %d: a window of %lld x %lld is "
				       "larger than the input of %lld x %lld",
				       l->index, (long long)d->y.w, (long long)d->y.h, (long long)l->w, (long long)l->h);
	if (l->net->opt.train && (shift < 0 || shift > 0)) /* stock cfgs have it, and on a CPU Darknet does nothing with it */
		dn_warn("%s:%d: [crop] shift=%g has no effect", s->file->path, dn_section_find(s, "shift")->line, shift);
	d->scale = noadjust ? 1 : 2;
	d->shift = noadjust ? 0 : -1;
	d->flip = flip;
	err = dn_layer_set_out(l, d->y.w, d->y.h, l->c);
	d->x = l->in;
	d->y = l->out;
	return err;
}

static const struct dn_crop_desc *crop_desc(struct dn_layer *l, const struct dn_pass *pass)
{
	struct dn_crop_desc *d = &((struct crop *)l->priv)->desc;

	d->random = pass->phase != DN_INFER;
	d->stream = DN_RNG_STREAM(DN_RNG_CROP, l->index);
	return d;
}

static int crop_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	return l->net->dev->be->crop_forward(l->net->compute, crop_desc(l, pass), l->net->numbers, dn_layer_x(l, pass, 0),
					     l->output);
}

static int crop_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);

	return dx ? l->net->dev->be->crop_backward(l->net->compute, crop_desc(l, pass), l->net->numbers, l->delta, dx, acc) : 0;
}

const struct dn_layer_ops crop_layer = {
	.name = "crop",
	.setup = crop_setup,
	.forward = crop_forward,
	.backward = crop_backward,
	.destroy = layer_free_priv,
};
