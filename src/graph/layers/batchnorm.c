/* [batchnorm]: batch normalisation on its own. Files hold scales and rolling statistics and no bias, so there is none
 * unless biases=1 asks for it (then they stand first in the file, as the other family of files has them). */
#include <errno.h>

#include "graph/layers/layers_priv.h"

static const struct dn_key_rule keys[] = {
	{ "biases", DN_KEY_INT, "0", 0, 1, .help = "1: has biases, as newer forks of Darknet do" },
	{ .key = NULL },
};

static int batchnorm_setup(struct dn_layer *l, struct dn_section *s)
{
	struct layer_norm *nm = layer_priv(l, sizeof(*nm));
	const bool image = l->w > 0;
	struct dn_param *biases = NULL;
	int64_t with;
	int err = nm ? dn_key_int(s, "biases", &with) : -ENOMEM;

	if (!err)
		err = dn_layer_set_out(l, image ? l->w : 1, image ? l->h : 1, l->c);
	if (!err && with)
		err = layer_biases(l, l->c, &biases);
	if (!err)
		err = norm_declare(nm, l, l->c, biases);
	if (err)
		return err;
	l->backward_reads_params = true;
	return norm_setup(nm, l, DN_ACT_LINEAR);
}

static int batchnorm_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	return norm_forward(l->priv, l, pass, dn_layer_x(l, pass, 0), l->output);
}

static int batchnorm_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);

	return norm_backward(l->priv, l, dn_layer_x(l, pass, 0), l->delta, dx, acc);
}

const struct dn_layer_ops batchnorm_layer = {
	.name = "batchnorm",
	.summary = "batch normalisation of each channel",
	.keys = keys,
	.setup = batchnorm_setup,
	.forward = batchnorm_forward,
	.backward = batchnorm_backward,
	.destroy = layer_free_priv,
};
