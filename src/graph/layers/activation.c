/* [activation]: act(x); [logistic]: the logistic of x and, with a target, its cross-entropy, whose delta is t - p. */
#include <errno.h>

#include "graph/layers/layers_priv.h"

struct logistic {
	void *scratch; /* t - p of a pass that does not learn */
};

static int act_of_x(struct dn_layer *l, const struct dn_pass *pass)
{
	const struct dn_backend *be = l->net->dev->be;
	int err = be->copy(l->net->compute, l->output, dn_layer_x(l, pass, 0), l->out.bytes);

	return err ? err : be->bias_act(l->net->compute, &l->out, l->output, NULL, l->act);
}

static const struct dn_key_rule keys[] = {
	{ "activation", DN_KEY_TEXT, "linear", .help = "applied to the output", .names = dn_act_names },
	{ .key = NULL },
};

static int activation_setup(struct dn_layer *l, struct dn_section *s)
{
	int err = dn_layer_activation(l, s);

	return err ? err : layer_same_out(l);
}

static int activation_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	int err = layer_act_backward(l, dn_act_of_input(l->act) ? dn_layer_x(l, pass, 0) : NULL);

	return err ? err : layer_pass_delta(l, 0, 1);
}

static int logistic_setup(struct dn_layer *l, struct dn_section *s)
{
	struct logistic *lo = layer_priv(l, sizeof(*lo));
	int err = lo ? layer_same_out(l) : -ENOMEM;

	if (err)
		return err;
	l->act = DN_ACT_LOGISTIC;
	l->has_cost = true;
	l->seeds_delta = true;
	l->truths = l->inputs;
	return layer_loss_setup(l, &lo->scratch);
}

static int logistic_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	int err = act_of_x(l, pass);

	return err ? err : layer_loss(l, pass, DN_COST_LOGISTIC_CE, l->output, NULL, ((struct logistic *)l->priv)->scratch);
}

static int logistic_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	return layer_pass_delta(l, 0, 1);
}

const struct dn_layer_ops activation_layer = {
	.name = "activation",
	.summary = "an activation by itself",
	.keys = keys,
	.setup = activation_setup,
	.forward = act_of_x,
	.backward = activation_backward,
};

const struct dn_layer_ops logistic_layer = {
	.name = "logistic",
	.summary = "the logistic function with its cross entropy as loss",
	.setup = logistic_setup,
	.forward = logistic_forward,
	.backward = logistic_backward,
	.destroy = layer_free_priv,
	.flat = true,
	.flat_out = true,
};
