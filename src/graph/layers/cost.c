/* [cost]: squared or other differences to the target; scale acts on the gradient only. Its output is its input. */
#include <errno.h>
#include <string.h>

#include "graph/layers/layers_priv.h"

struct cost {
	enum dn_cost kind;
	double scale;
	void *scratch; /* delta of a pass that does not learn */
};

static const struct {
	const char *name;
	enum dn_cost kind;
} types[] = {
	{ "sse", DN_COST_SSE },	      { "seg", DN_COST_SSE }, { "masked", DN_COST_MASKED },
	{ "smooth", DN_COST_SMOOTH }, { "L1", DN_COST_L1 },   { "wgan", DN_COST_WGAN },
};

static const struct dn_key_rule keys[] = {
	{ "type", DN_KEY_TEXT, "sse", .help = "sse, seg, masked, smooth, L1 or wgan" },
	{ "scale", DN_KEY_FLOAT, "1", .help = "factor on the gradient, not on the loss" },
	{ "ratio", DN_KEY_FLOAT, "0", .help = "no effect here" },
	{ "noobj", DN_KEY_FLOAT, "1", .help = "no effect here" },
	{ "thresh", DN_KEY_FLOAT, "0", .help = "no effect here" },
	{ .key = NULL },
};

static int cost_type(struct dn_section *s, enum dn_cost *out)
{
	const char *type = dn_key_text(s, "type");

	for (int i = 0; i < DN_N(types); i++)
		if (!strcmp(type, types[i].name)) {
			*out = types[i].kind;
			return 0;
		}
	return dn_section_fail(s, "type", -EINVAL, "type=%s: unknown cost; known are sse, seg, masked, smooth, L1, wgan", type);
}

/* Darknet's CPU does nothing with these. */
static const char *const gpu_only[] = { "ratio", "noobj", "thresh" };

static int cost_setup(struct dn_layer *l, struct dn_section *s)
{
	struct cost *co = layer_priv(l, sizeof(*co));
	int err = co ? dn_key_float(s, "scale", &co->scale) : -ENOMEM;

	if (!err)
		err = cost_type(s, &co->kind);
	if (!err)
		err = dn_layer_no_effect(l, s, gpu_only, DN_N(gpu_only));
	if (!err)
		err = layer_same_out(l);
	if (err)
		return err;
	l->truths = l->inputs;
	l->has_cost = true;
	l->seeds_delta = true;
	return layer_loss_setup(l, &co->scratch);
}

static int cost_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct cost *co = l->priv;

	return layer_loss(l, pass, co->kind, dn_layer_x(l, pass, 0), NULL, co->scratch);
}

static int cost_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	return layer_pass_delta(l, 0, (float)((struct cost *)l->priv)->scale);
}

const struct dn_layer_ops cost_layer = {
	.name = "cost",
	.summary = "a loss on the output of the layer before",
	.keys = keys,
	.passes_input = true,
	.no_consumer = true,
	.setup = cost_setup,
	.forward = cost_forward,
	.backward = cost_backward,
	.destroy = layer_free_priv,
};
