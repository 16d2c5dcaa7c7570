/* [dropout]: in training each element is 0 with the given probability, survivors grow to keep the mean. The mask is a
 * function of seed, layer and global image, so backward draws it again and ranks do not matter. */
#include <errno.h>
#include <stdio.h>

#include "base/rng.h"
#include "graph/layers/layers_priv.h"

struct dropout {
	double probability;
};

static const struct dn_key_rule keys[] = {
	{ "probability", DN_KEY_FLOAT, ".5",
	  .help = "share of the elements that training sets to 0, from 0 to less than 1; the others grow to match" },
	{ "dropblock", DN_KEY_ONLY, .def = "0" },
	{ "dropblock_size_rel", DN_KEY_ONLY, .def = "0" },
	{ "dropblock_size_abs", DN_KEY_ONLY, .def = "0" },
	{ .key = NULL },
};

static int dropout_setup(struct dn_layer *l, struct dn_section *s)
{
	struct dropout *dr = layer_priv(l, sizeof(*dr));
	const bool image = l->w > 0;
	int err = dr ? dn_key_float(s, "probability", &dr->probability) : -ENOMEM;

	if (!err)
		err = dn_layer_need(l, dropout_forward);
	if (err)
		return err;
	if (dr->probability < 0 || (float)dr->probability >= 1)
		return dn_section_fail(s, "probability", -EINVAL, "probability=%g: must be at least 0 and less than 1",
				       dr->probability);
	return dn_layer_set_out(l, image ? l->w : 1, image ? l->h : 1, l->c);
}

static struct dn_dropout_key dropout_key(const struct dn_layer *l)
{
	const struct dropout *dr = l->priv;

	return (struct dn_dropout_key){
		.stream = DN_RNG_STREAM(DN_RNG_DROPOUT, l->index),
		.probability = (float)dr->probability,
	};
}

static int dropout_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	const struct dn_dropout_key key = dropout_key(l);
	const struct dn_backend *be = l->net->dev->be;

	if (pass->phase == DN_INFER)
		return be->copy(l->net->compute, l->output, dn_layer_x(l, pass, 0), l->out.bytes);
	return be->dropout_forward(l->net->compute, &key, l->net->numbers, &l->out, dn_layer_x(l, pass, 0), l->output);
}

static int dropout_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	const struct dn_dropout_key key = dropout_key(l);
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);

	return dx ? l->net->dev->be->dropout_backward(l->net->compute, &key, l->net->numbers, &l->out, l->delta, dx, acc) : 0;
}

static void dropout_describe(const struct dn_layer *l, char *out, size_t cap)
{
	const struct dropout *dr = l->priv;

	snprintf(out, cap, "dropout       p = %.2f", dr->probability);
}

const struct dn_layer_ops dropout_layer = {
	.name = "dropout",
	.summary = "sets random elements to 0 while training",
	.keys = keys,
	.in_place = true,
	.setup = dropout_setup,
	.forward = dropout_forward,
	.backward = dropout_backward,
	.destroy = layer_free_priv,
	.describe = dropout_describe,
	.flat = true,
	.flat_out = true,
};
