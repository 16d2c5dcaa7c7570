/* [upsample]: every pixel becomes a block, times scale; with a negative stride every block becomes its sum. */
#include <errno.h>

#include "graph/layers/layers_priv.h"

struct upsample {
	int64_t stride;
	bool down;
	float scale;
};

static const struct dn_key_rule keys[] = {
	{ "stride", DN_KEY_INT, "2", -(1 << 15), 1 << 15,
	  .help = "factor of width and height; negative: sums blocks of that side" },
	{ "scale", DN_KEY_FLOAT, "1", .help = "factor on the values" },
	{ .key = NULL },
};

static int upsample_setup(struct dn_layer *l, struct dn_section *s)
{
	struct upsample *up = layer_priv(l, sizeof(*up));
	double scale;
	int err = up ? dn_key_int(s, "stride", &up->stride) : -ENOMEM;

	if (!err)
		err = dn_key_float(s, "scale", &scale);
	if (!err)
		err = layer_needs_image(l);
	if (!err)
		err = dn_layer_need(l, upsample);
	if (!err)
		err = dn_layer_need(l, block_sum);
	if (err)
		return err;
	if (!up->stride)
		return dn_section_fail(s, "stride", -EINVAL, "stride=0: must be positive, or negative to sum blocks");
	up->scale = (float)scale;
	up->down = up->stride < 0;
	if (!up->down)
		return dn_layer_set_out(l, l->w * up->stride, l->h * up->stride, l->c);
	up->stride = -up->stride;
	if (l->w % up->stride || l->h % up->stride)
		return dn_section_fail(s, "stride", -EINVAL, "layer %d: blocks of %lld do not divide the input of %lld x %lld",
				       l->index, (long long)up->stride, (long long)l->w, (long long)l->h);
	return dn_layer_set_out(l, l->w / up->stride, l->h / up->stride, l->c);
}

static int upsample_run(struct dn_layer *l, bool down, const void *x, void *y, bool acc)
{
	struct upsample *up = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	const struct dn_tensor *narrow = up->down ? &l->out : &l->in;

	return (down ? be->block_sum : be->upsample)(l->net->compute, narrow, up->stride, up->scale, x, y, acc);
}

static int upsample_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	return upsample_run(l, ((struct upsample *)l->priv)->down, dn_layer_x(l, pass, 0), l->output, false);
}

static int upsample_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);

	return dx ? upsample_run(l, !((struct upsample *)l->priv)->down, l->delta, dx, acc) : 0;
}

const struct dn_layer_ops upsample_layer = {
	.name = "upsample",
	.summary = "repeats pixels, or sums blocks of them",
	.keys = keys,
	.setup = upsample_setup,
	.forward = upsample_forward,
	.backward = upsample_backward,
	.destroy = layer_free_priv,
};
