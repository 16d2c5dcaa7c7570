/* [cost]: squared or other differences to the target; scale acts on the gradient only. Its output is its input. */
#include <errno.h>

#include "graph/layers/layers_priv.h"

struct cost {
	enum dn_cost kind;
	double scale;
	void *scratch; /* delta of a pass that does not learn */
};

static int64_t type_of(const struct dn_section *s)
{
	const struct dn_key *k = dn_section_find((struct dn_section *)s, "type");
	enum dn_cost type = DN_COST_SSE;

	return k && dn_cost_find(k->value, &type) ? -1 : (int64_t)type;
}

static const struct dn_key_rule keys[] = {
	{ "type", DN_KEY_TEXT, "sse", .help = "what is summed; seg is sse", .names = dn_cost_names, .means = type_of },
	{ "scale", DN_KEY_FLOAT, "1", .help = "factor on the gradient, not on the loss" },
	{ "ratio", DN_KEY_FLOAT, "0", .help = "no effect here", .resume = DN_RESUME_ANY },
	{ "noobj", DN_KEY_FLOAT, "1", .help = "no effect here", .resume = DN_RESUME_ANY },
	{ "thresh", DN_KEY_FLOAT, "0", .help = "no effect here", .resume = DN_RESUME_ANY },
	{ .key = NULL },
};

static int cost_type(struct dn_section *s, enum dn_cost *out)
{
	const char *type = dn_key_text(s, "type");

	if (dn_cost_find(type, out))
		return dn_section_fail(s, "type", -EINVAL, "type=%s: unknown cost; known are %s", type, dn_cost_names());
	return 0;
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
	.flat = true,
	.flat_out = true,
};
