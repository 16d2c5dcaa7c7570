/* [crop]: a window of the image, in training at a place and with a flip that follow from seed, layer and global image,
 * else the centre; then x * 2 - 1 unless noadjust=1. */
#include <errno.h>

#include "base/rng.h"
#include "graph/layers/layers_priv.h"

struct crop {
	struct dn_crop_desc desc;
};

/* Darknet's CPU does nothing with these either. */
static const struct dn_key_fixed gpu_only[] = { { "shift", 0 }, { "angle", 0 }, { "saturation", 1 }, { "exposure", 1 } };

static int crop_setup(struct dn_layer *l, struct dn_section *s)
{
	struct crop *cr = layer_priv(l, sizeof(*cr));
	struct dn_crop_desc *d = cr ? &cr->desc : NULL;
	int64_t flip, noadjust;
	int err = cr ? dn_section_int(s, "crop_width", 1, 1, 1 << 24, &d->ow) : -ENOMEM;

	if (!err)
		err = dn_section_int(s, "crop_height", 1, 1, 1 << 24, &d->oh);
	if (!err)
		err = dn_section_int(s, "flip", 0, 0, 1, &flip);
	if (!err)
		err = dn_section_int(s, "noadjust", 0, 0, 1, &noadjust);
	if (!err)
		err = dn_keys_no_effect(l, s, gpu_only, DN_N(gpu_only));
	if (!err)
		err = layer_needs_image(l);
	if (!err)
		err = dn_layer_need(l, crop_forward);
	if (err)
		return err;
	if (d->ow > l->w || d->oh > l->h)
		return dn_section_fail(s, d->ow > l->w ? "crop_width" : "crop_height", -EINVAL,
				       "layer %d: a window of %lld x %lld is "
				       "larger than the input of %lld x %lld",
				       l->index, (long long)d->ow, (long long)d->oh, (long long)l->w, (long long)l->h);
	d->n = l->batch;
	d->c = l->c;
	d->h = l->h;
	d->w = l->w;
	d->scale = noadjust ? 1 : 2;
	d->shift = noadjust ? 0 : -1;
	d->flip = flip;
	return dn_layer_set_out(l, d->ow, d->oh, l->c);
}

static const struct dn_crop_desc *crop_desc(struct dn_layer *l)
{
	struct dn_crop_desc *d = &((struct crop *)l->priv)->desc;

	d->random = l->net->training;
	d->seed = l->net->opt.seed;
	d->stream = DN_RNG_STREAM(DN_RNG_CROP, l->index);
	d->first_image = l->net->first_image;
	return d;
}

static int crop_forward(struct dn_layer *l)
{
	return l->net->dev->be->crop_forward(l->net->compute, crop_desc(l), dn_layer_x(l, 0), l->output);
}

static int crop_backward(struct dn_layer *l)
{
	bool acc;
	float *dx = dn_layer_dx(l, 0, &acc);

	return dx ? l->net->dev->be->crop_backward(l->net->compute, crop_desc(l), l->delta, dx, acc) : 0;
}

const struct dn_layer_ops crop_layer = {
	.name = "crop",
	.setup = crop_setup,
	.forward = crop_forward,
	.backward = crop_backward,
	.destroy = layer_free_priv,
};
