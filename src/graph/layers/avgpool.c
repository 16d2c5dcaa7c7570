/* [avgpool]: the mean of each channel. */
#include <stdio.h>

#include "graph/layers/layers_priv.h"

static int avgpool_setup(struct dn_layer *l, struct dn_section *s)
{
	int err = layer_needs_image(l);

	if (!err)
		err = dn_layer_need(l, avgpool_forward);
	return err ? err : dn_layer_set_out(l, 1, 1, l->c);
}

static int avgpool_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	return l->net->dev->be->avgpool_forward(l->net->compute, &l->in, dn_layer_x(l, pass, 0), l->output);
}

static int avgpool_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);

	return dx ? l->net->dev->be->avgpool_backward(l->net->compute, &l->in, l->delta, dx, acc) : 0;
}

static void avgpool_describe(const struct dn_layer *l, char *out, size_t cap)
{
	snprintf(out, cap, "avg");
}

const struct dn_layer_ops avgpool_layer = {
	.name = "avgpool",
	.alias = "avg",
	.summary = "the mean of each channel",
	.setup = avgpool_setup,
	.forward = avgpool_forward,
	.backward = avgpool_backward,
	.describe = avgpool_describe,
	.flat_out = true,
};
