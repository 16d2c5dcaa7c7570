/* [crop]: a window of the image, in training at a place and with a flip that follow from seed, layer and global image,
 * else the centre; then x * 2 - 1 unless noadjust=1. */
#include <errno.h>

#include "base/rng.h"
#include "graph/layers/layers_priv.h"

struct crop {
	struct dn_crop_desc desc;
};

static const struct dn_key_rule keys[] = {
	{ "crop_width", DN_KEY_INT, "1", 1, 1 << 24, .help = "width of the window" },
	{ "crop_height", DN_KEY_INT, "1", 1, 1 << 24, .help = "height of the window" },
	{ "flip", DN_KEY_INT, "0", 0, 1, .help = "1: training mirrors one image of two, drawn" },
	{ "noadjust", DN_KEY_INT, "0", 0, 1, .help = "1: values stay; 0: x becomes 2x - 1" },
	{ "shift", DN_KEY_FLOAT, "0", .help = "no effect here", .resume = DN_RESUME_ANY },
	{ "angle", DN_KEY_FLOAT, "0", .help = "no effect here", .resume = DN_RESUME_ANY },
	{ "saturation", DN_KEY_FLOAT, "1", .help = "no effect here", .resume = DN_RESUME_ANY },
	{ "exposure", DN_KEY_FLOAT, "1", .help = "no effect here", .resume = DN_RESUME_ANY },
	{ .key = NULL },
};

/* Darknet's CPU does nothing with these either. */
static const char *const gpu_only[] = { "shift", "angle", "saturation", "exposure" };

static int crop_setup(struct dn_layer *l, struct dn_section *s)
{
	struct crop *cr = layer_priv(l, sizeof(*cr));
	struct dn_crop_desc *d = cr ? &cr->desc : NULL;
	int64_t flip, noadjust;
	int err = cr ? dn_key_int(s, "crop_width", &d->y.w) : -ENOMEM;

	if (!err)
		err = dn_key_int(s, "crop_height", &d->y.h);
	if (!err)
		err = dn_key_int(s, "flip", &flip);
	if (!err)
		err = dn_key_int(s, "noadjust", &noadjust);
	if (!err)
		err = dn_layer_no_effect(l, s, gpu_only, DN_N(gpu_only));
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
	.summary = "a window of each image: drawn while training, else the central one",
	.keys = keys,
	.setup = crop_setup,
	.forward = crop_forward,
	.backward = crop_backward,
	.destroy = layer_free_priv,
};
