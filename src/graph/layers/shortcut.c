/* [shortcut]: the previous output plus that of an earlier layer, on the part where the two shapes overlap. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "graph/layers/layers_priv.h"

struct shortcut {
	struct dn_shortcut_desc desc;
	void *pre; /* [n, c2, h2, w2] before the activation, NULL: output */
};

static const struct dn_key_rule keys[] = {
	{ "from", DN_KEY_INTS, NULL, .help = "the other layer, by number; negative counts from this one; needed",
	  .resume = DN_RESUME_SAME_LAYERS },
	{ "alpha", DN_KEY_FLOAT, "1", .help = "factor of the layer before, where both overlap" },
	{ "beta", DN_KEY_FLOAT, "1", .help = "factor of the other layer" },
	{ "activation", DN_KEY_TEXT, "linear", .help = "applied to the output", .names = dn_act_names },
	{ "weights_type", DN_KEY_ONLY, .def = "none" },
	{ "weights_normalization", DN_KEY_ONLY, .def = "none" },
	{ .key = NULL },
};

static int shortcut_shape(struct dn_layer *l, struct dn_section *s, int from)
{
	struct dn_shortcut_desc *d = &((struct shortcut *)l->priv)->desc;
	const struct dn_layer *src = &l->net->layers[from];

	d->src = src->out;
	d->y = l->in;
	if (src->out_w / d->y.w != src->out_h / d->y.h || d->y.w / src->out_w != d->y.h / src->out_h)
		return dn_section_fail(s, "from", -EINVAL,
				       "layer %d: the %lld x %lld x %lld of layer %d and the %lld x %lld x %lld "
				       "before it differ in shape",
				       l->index, (long long)src->out_w, (long long)src->out_h, (long long)src->out_c, from,
				       (long long)l->w, (long long)l->h, (long long)l->c);
	return dn_layer_set_out(l, l->w, l->h, l->c);
}

static int shortcut_setup(struct dn_layer *l, struct dn_section *s)
{
	struct shortcut *sc = layer_priv(l, sizeof(*sc));
	int64_t *from = NULL;
	double alpha, beta;
	int index[2] = { l->index - 1, 0 };
	int n = 0;
	int err = sc ? dn_key_ints(s, "from", &from, &n) : -ENOMEM;

	if (err)
		return err;
	if (n == 1)
		err = dn_layer_resolve(l, "from", from[0], &index[1]);
	else if (!n)
		err = dn_section_fail(s, NULL, -EINVAL, "layer %d needs the key from", l->index);
	else
		err = dn_section_fail(s, "from", -ENOTSUP, "from has %d layers; only one is supported in this version", n);
	dn_free(from);
	if (!err)
		err = dn_key_float(s, "alpha", &alpha);
	if (!err)
		err = dn_key_float(s, "beta", &beta);
	if (!err)
		err = dn_layer_activation(l, s);
	if (!err)
		err = dn_layer_need(l, shortcut_forward);
	if (!err)
		err = dn_layer_set_inputs(l, 2, index);
	if (!err)
		err = shortcut_shape(l, s, l->inputs_of[1].layer);
	if (err)
		return err;
	sc->desc.alpha = (float)alpha;
	sc->desc.beta = (float)beta;
	return layer_act_setup(l, &sc->pre);
}

static int shortcut_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct shortcut *sc = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	int err = be->shortcut_forward(l->net->compute, &sc->desc, dn_layer_x(l, pass, 0), dn_layer_x(l, pass, 1),
				       sc->pre ? sc->pre : l->output);

	if (!err && !sc->pre)
		err = be->bias_act(l->net->compute, &l->out, l->output, NULL, l->act);
	return err ? err : layer_act_forward(l, sc->pre);
}

/* The direct input gets alpha * delta everywhere, as in Darknet, also outside the overlap (where forward does not
 * scale): with alpha other than 1 and a partial overlap that is not the exact gradient. */
static int shortcut_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct shortcut *sc = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	bool acc;
	void *dsrc = dn_layer_dx(l, 1, &acc);
	int err = layer_act_backward(l, sc->pre);

	if (!err)
		err = layer_pass_delta(l, 0, sc->desc.alpha);
	if (!err && dsrc)
		err = be->shortcut_backward_src(l->net->compute, &sc->desc, l->delta, dsrc, acc);
	return err;
}

static void shortcut_describe(const struct dn_layer *l, char *out, size_t cap)
{
	char from[48];

	layer_sources(l, "from", from, sizeof(from));
	snprintf(out, cap, "res  %4s", from);
}

const struct dn_layer_ops shortcut_layer = {
	.name = "shortcut",
	.summary = "act(alpha * x + beta * another layer) where they overlap",
	.keys = keys,
	.setup = shortcut_setup,
	.forward = shortcut_forward,
	.backward = shortcut_backward,
	.destroy = layer_free_priv,
	.describe = shortcut_describe,
};
