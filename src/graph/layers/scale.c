/* [scale_channels] and [sam]: the output of an earlier layer times the one before: per channel, per pixel or per element. */
#include <errno.h>

#include "base/mem.h"
#include "graph/layers/layers_priv.h"

struct scale {
	struct dn_scale_desc desc;
	void *pre; /* [n, outputs] before the activation, NULL: output */
};

static const struct dn_key_rule keys[] = {
	{ "from", DN_KEY_INTS, NULL, .help = "the layer that is scaled, by number; negative counts from this one; needed",
	  .resume = DN_RESUME_SAME_LAYERS },
	{ "scale_wh", DN_KEY_INT, "0", 0, 1, .help = "1: one number a pixel instead of one a channel" },
	{ "activation", DN_KEY_TEXT, "linear", .help = "applied to the output", .names = dn_act_names },
	{ .key = NULL },
};

static const struct dn_key_rule keys_sam[] = {
	{ "from", DN_KEY_INTS, NULL, .help = "the layer that is scaled, by number; negative counts from this one; needed",
	  .resume = DN_RESUME_SAME_LAYERS },
	{ "activation", DN_KEY_TEXT, "linear", .help = "applied to the output", .names = dn_act_names },
	{ .key = NULL },
};

static int scale_setup(struct dn_layer *l, struct dn_section *s, enum dn_scale by)
{
	struct scale *sc = layer_priv(l, sizeof(*sc));
	const struct dn_layer *src;
	int64_t *from = NULL;
	int index[2] = { l->index - 1, 0 };
	bool fits;
	int n = 0;
	int err = sc ? dn_key_ints(s, "from", &from, &n) : -ENOMEM;

	if (err)
		return err;
	if (n == 1)
		err = dn_layer_resolve(l, "from", from[0], &index[1]);
	else
		err = dn_section_fail(s, n ? "from" : NULL, -EINVAL, "layer %d needs the key from with one layer", l->index);
	dn_free(from);
	if (!err)
		err = dn_layer_activation(l, s);
	if (!err)
		err = dn_layer_need(l, scale_forward);
	if (!err)
		err = dn_layer_set_inputs(l, 2, index);
	if (err)
		return err;
	src = &l->net->layers[l->inputs_of[1].layer];
	if (by == DN_SCALE_EACH)
		fits = l->w == src->out_w && l->h == src->out_h && l->c == src->out_c;
	else if (by == DN_SCALE_CHANNEL)
		fits = l->w == 1 && l->h == 1 && l->c == src->out_c;
	else
		fits = l->w == src->out_w && l->h == src->out_h && l->c == 1;
	if (!fits)
		return dn_section_fail(s, "from", -EINVAL,
				       "layer %d: %lld x %lld x %lld cannot scale the %lld x %lld x %lld of layer %d", l->index,
				       (long long)l->w, (long long)l->h, (long long)l->c, (long long)src->out_w,
				       (long long)src->out_h, (long long)src->out_c, src->index);
	err = dn_layer_set_out(l, src->out_w, src->out_h, src->out_c);
	if (err)
		return err;
	sc->desc = (struct dn_scale_desc){ l->out, by };
	return layer_act_setup(l, &sc->pre);
}

static int scale_channels_setup(struct dn_layer *l, struct dn_section *s)
{
	int64_t wh;
	int err = dn_key_int(s, "scale_wh", &wh);

	return err ? err : scale_setup(l, s, wh ? DN_SCALE_POINT : DN_SCALE_CHANNEL);
}

static int sam_setup(struct dn_layer *l, struct dn_section *s)
{
	return scale_setup(l, s, DN_SCALE_EACH);
}

static int scale_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct scale *sc = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	void *z = sc->pre ? sc->pre : l->output;
	int err = be->scale_forward(l->net->compute, &sc->desc, dn_layer_x(l, pass, 0), dn_layer_x(l, pass, 1), z, false);

	if (!err && !sc->pre)
		err = be->bias_act(l->net->compute, &l->out, z, NULL, l->act);
	return err ? err : layer_act_forward(l, sc->pre);
}

static int scale_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct scale *sc = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	bool acc, acc_src;
	void *dx = dn_layer_dx(l, 0, &acc);
	void *dsrc = dn_layer_dx(l, 1, &acc_src);
	int err = layer_act_backward(l, sc->pre);

	if (!err && dx)
		err = be->scale_backward(st, &sc->desc, dn_layer_x(l, pass, 1), l->delta, dx, acc);
	if (!err && dsrc)
		err = be->scale_forward(st, &sc->desc, dn_layer_x(l, pass, 0), l->delta, dsrc, acc_src);
	return err;
}

const struct dn_layer_ops scale_channels_layer = {
	.name = "scale_channels",
	.summary = "another layer's channels times this layer's numbers",
	.keys = keys,
	.setup = scale_channels_setup,
	.forward = scale_forward,
	.backward = scale_backward,
	.destroy = layer_free_priv,
};

const struct dn_layer_ops sam_layer = {
	.name = "sam",
	.summary = "another layer times this one, element by element",
	.keys = keys_sam,
	.setup = sam_setup,
	.forward = scale_forward,
	.backward = scale_backward,
	.destroy = layer_free_priv,
};
