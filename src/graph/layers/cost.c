/* [cost]: squared or other differences to the target; scale acts on the gradient only. Its output is its input. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "graph/layers/layers_priv.h"

struct cost {
	enum dn_cost kind;
	double scale;
	float *scratch; /* delta of a pass that does not learn */
};

static const struct {
	const char *name;
	enum dn_cost kind;
} types[] = {
	{ "sse", DN_COST_SSE },	      { "seg", DN_COST_SSE }, { "masked", DN_COST_MASKED },
	{ "smooth", DN_COST_SMOOTH }, { "L1", DN_COST_L1 },   { "wgan", DN_COST_WGAN },
};

static int cost_type(struct dn_section *s, enum dn_cost *out)
{
	const char *type = dn_section_text(s, "type", "sse");

	for (int i = 0; i < DN_N(types); i++)
		if (!strcmp(type, types[i].name)) {
			*out = types[i].kind;
			return 0;
		}
	return dn_section_fail(s, "type", -EINVAL, "type=%s: unknown cost; known are sse, seg, masked, smooth, L1, wgan", type);
}

/* Darknet reads these three on a GPU only, so a net that is trained here must be told that they do nothing. */
static int cost_without_effect(struct dn_layer *l, struct dn_section *s)
{
	static const struct dn_key_fixed keys[] = { { "ratio", 0 }, { "noobj", 1 }, { "thresh", 0 } };

	for (int i = 0; i < DN_N(keys); i++) {
		double v;
		int err = dn_section_float(s, keys[i].key, keys[i].only, &v);

		if (err)
			return err;
		if (l->net->opt.train && (v < keys[i].only || v > keys[i].only))
			dn_warn("%s:%d: [cost] %s=%g has no effect", s->file->path, dn_section_find(s, keys[i].key)->line,
				keys[i].key, v);
	}
	return 0;
}

static int cost_setup(struct dn_layer *l, struct dn_section *s)
{
	struct cost *co = layer_priv(l, sizeof(*co));
	int err = co ? dn_section_float(s, "scale", 1, &co->scale) : -ENOMEM;

	if (!err)
		err = cost_type(s, &co->kind);
	if (!err)
		err = cost_without_effect(l, s);
	if (!err)
		err = layer_same_out(l);
	if (err)
		return err;
	l->truths = l->inputs;
	l->has_cost = true;
	l->seeds_delta = true;
	l->passes_input = true;
	l->no_consumer = true;
	return layer_loss_setup(l, &co->scratch);
}

static int cost_forward(struct dn_layer *l)
{
	struct cost *co = l->priv;

	return layer_loss(l, co->kind, dn_layer_x(l, 0), NULL, co->scratch);
}

static int cost_backward(struct dn_layer *l)
{
	return layer_pass_delta(l, 0, (float)((struct cost *)l->priv)->scale);
}

const struct dn_layer_ops cost_layer = {
	.name = "cost",
	.setup = cost_setup,
	.forward = cost_forward,
	.backward = cost_backward,
	.destroy = layer_free_priv,
	.flat = true,
	.flat_out = true,
};
