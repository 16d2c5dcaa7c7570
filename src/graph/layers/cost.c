/* [cost]: sum of squared differences to the target; scale acts on the gradient only. Its output is its input. */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "graph/layers/layers_priv.h"

struct cost {
	double scale;
	float *scratch;                 /* t - p of a pass that does not learn */
};

static const char *const ignored[] = { "ratio", "noobj", "thresh" };    /* never used on a CPU */

static int cost_setup(struct dn_layer *l, struct dn_section *s)
{
	struct cost *co = layer_priv(l, sizeof(*co));
	const char *type = dn_section_text(s, "type", "sse");
	const bool image = l->w > 0;
	size_t bytes;
	int err = co ? dn_section_float(s, "scale", 1, &co->scale) : -ENOMEM;

	if (!err)
		err = dn_layer_need(l, cost);
	if (err)
		return err;
	if (strcmp(type, "sse"))
		return dn_section_fail(s, "type", -ENOTSUP, "type=%s is not supported in this version; known is sse", type);
	dn_keys_ignore(s, ignored, DN_N(ignored));
	l->truths = l->inputs;
	l->has_cost = true;
	l->seeds_delta = true;
	l->passes_input = true;
	l->no_consumer = true;
	err = dn_layer_set_out(l, image ? l->w : 1, image ? l->h : 1, l->c);
	if (!err)
		err = dn_mul_size((size_t)(l->batch * l->outputs), sizeof(float), &bytes);
	return err ? err : dn_layer_buffer(l, bytes, DN_LIFE_FORWARD, false, (void **)&co->scratch);
}

static int cost_forward(struct dn_layer *l)
{
	struct cost *co = l->priv;
	struct dn_net *net = l->net;
	const struct dn_backend *be = net->dev->be;
	const int64_t n = l->batch * l->outputs;

	if (net->truth)
		return be->cost(net->compute, DN_COST_SSE, n, dn_layer_x(l, 0), net->truth, l->delta ? l->delta : co->scratch,
				&l->cost);
	return l->delta ? be->zero(net->compute, l->delta, sizeof(float) * (size_t)n) : 0;
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
};
