/* [softmax]: per group of an image; with a target also the cross-entropy loss, whose delta t - p skips the softmax. */
#include <errno.h>

#include "base/mem.h"
#include "graph/layers/layers_priv.h"

struct softmax {
	int64_t groups;
	float temperature;
	bool loss;
	float *scratch;                 /* t - p of a pass that does not learn */
};

static const struct dn_key_fixed fixed[] = { { "spatial", 0 } };

static int softmax_setup(struct dn_layer *l, struct dn_section *s)
{
	struct softmax *sm = layer_priv(l, sizeof(*sm));
	const bool image = l->w > 0;
	int64_t noloss;
	double t;
	size_t bytes;
	int err = sm ? dn_section_int(s, "groups", 1, 1, l->inputs, &sm->groups) : -ENOMEM;

	if (!err)
		err = dn_section_int(s, "noloss", 0, 0, 1, &noloss);
	if (!err)
		err = dn_section_float(s, "temperature", 1, &t);
	if (!err)
		err = dn_keys_fixed(s, fixed, DN_N(fixed));
	if (!err)
		err = dn_layer_need(l, softmax);
	if (err)
		return err;
	if (dn_section_find(s, "tree"))
		return dn_section_fail(s, "tree", -ENOTSUP, "tree is not supported in this version");
	if ((float)t <= 0)
		return dn_section_fail(s, "temperature", -EINVAL, "temperature=%g: must be positive", t);
	if (l->inputs % sm->groups)
		return dn_section_fail(s, "groups", -EINVAL, "groups=%lld does not divide the %lld inputs", (long long)sm->groups,
				       (long long)l->inputs);
	sm->temperature = (float)t;
	sm->loss = !noloss;
	l->has_cost = true;             /* with noloss too: a cost of 0 that counts in the mean */
	l->seeds_delta = sm->loss;
	l->truths = sm->loss ? l->inputs : 0;
	err = dn_layer_set_out(l, image ? l->w : 1, image ? l->h : 1, l->c);
	if (!err)
		err = dn_mul_size((size_t)(l->batch * l->outputs), sizeof(float), &bytes);
	if (err || !sm->loss)
		return err;
	return dn_layer_buffer(l, bytes, DN_LIFE_FORWARD, false, (void **)&sm->scratch);
}

static int softmax_forward(struct dn_layer *l)
{
	struct softmax *sm = l->priv;
	struct dn_net *net = l->net;
	const struct dn_backend *be = net->dev->be;
	const int64_t n = l->batch * l->outputs;
	int err = be->softmax(net->compute, l->batch * sm->groups, l->inputs / sm->groups, sm->temperature, dn_layer_x(l, 0),
			      l->output);

	if (err || !sm->loss)
		return err;
	if (net->truth)
		return be->cost(net->compute, DN_COST_SOFTMAX_CE, n, l->output, net->truth, l->delta ? l->delta : sm->scratch,
				&l->cost);
	return l->delta ? be->zero(net->compute, l->delta, sizeof(float) * (size_t)n) : 0;
}

static int softmax_backward(struct dn_layer *l)
{
	return layer_pass_delta(l, 0, 1);
}

const struct dn_layer_ops softmax_layer = {
	.name = "softmax",
	.alias = "soft",
	.setup = softmax_setup,
	.forward = softmax_forward,
	.backward = softmax_backward,
	.destroy = layer_free_priv,
};
