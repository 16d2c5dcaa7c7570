/* [normalization]: x over a power of the squares of neighbouring channels; [l2norm]: x over its length at each pixel.
 * The first one's window is centred on its channel and cut off at the ends, and both gradients are exact. */
#include <errno.h>

#include "graph/layers/layers_priv.h"

struct lrn {
	struct dn_lrn_desc desc;
	float *norm; /* [n, c, hw] */
};

struct l2norm {
	float *norm; /* [n, hw] */
};

static const struct dn_key_rule keys[] = {
	{ "alpha", DN_KEY_FLOAT, "1e-4", .help = "factor of the sum" },
	{ "beta", DN_KEY_FLOAT, ".75", .help = "exponent" },
	{ "kappa", DN_KEY_FLOAT, "1", .help = "added to the sum" },
	{ "size", DN_KEY_INT, "5", 1, 1 << 24, .help = "channels in the window, which is centred" },
	{ .key = NULL },
};

static int lrn_setup(struct dn_layer *l, struct dn_section *s)
{
	struct lrn *n = layer_priv(l, sizeof(*n));
	double alpha, beta, kappa;
	int64_t size;
	int err = n ? dn_key_float(s, "alpha", &alpha) : -ENOMEM;

	if (!err)
		err = dn_key_float(s, "beta", &beta);
	if (!err)
		err = dn_key_float(s, "kappa", &kappa);
	if (!err)
		err = dn_key_int(s, "size", &size);
	if (!err)
		err = dn_layer_need(l, lrn_forward);
	if (!err)
		err = layer_same_out(l);
	if (err)
		return err;
	n->desc = (struct dn_lrn_desc){
		.x = l->out,
		.size = size,
		.alpha = (float)alpha,
		.beta = (float)beta,
		.kappa = (float)kappa,
	};
	return dn_layer_buffer(l, l->out.bytes, DN_LIFE_SAVED, false, (void **)&n->norm);
}

static int lrn_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct lrn *n = l->priv;

	return l->net->dev->be->lrn_forward(l->net->compute, &n->desc, dn_layer_x(l, pass, 0), n->norm, l->output);
}

static int lrn_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct lrn *n = l->priv;
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);

	return dx ? l->net->dev->be->lrn_backward(l->net->compute, &n->desc, dn_layer_x(l, pass, 0), n->norm, l->delta, dx, acc)
		  : 0;
}

static int l2norm_setup(struct dn_layer *l, struct dn_section *s)
{
	struct l2norm *n = layer_priv(l, sizeof(*n));
	size_t bytes;
	int err = n ? dn_layer_need(l, l2norm_forward) : -ENOMEM;

	if (!err)
		err = layer_same_out(l);
	if (!err)
		err = layer_bytes(l->local_batch * dn_tensor_plane(&l->out), &bytes);
	return err ? err : dn_layer_buffer(l, bytes, DN_LIFE_SAVED, false, (void **)&n->norm);
}

static int l2norm_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct l2norm *n = l->priv;

	return l->net->dev->be->l2norm_forward(l->net->compute, &l->out, dn_layer_x(l, pass, 0), n->norm, l->output);
}

static int l2norm_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct l2norm *n = l->priv;
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);

	if (!dx)
		return 0;
	return l->net->dev->be->l2norm_backward(l->net->compute, &l->out, l->output, n->norm, l->delta, dx, acc);
}

const struct dn_layer_ops lrn_layer = {
	.name = "normalization",
	.alias = "lrn",
	.summary = "x / (kappa + alpha * sum of squares over size channels)^beta",
	.keys = keys,
	.setup = lrn_setup,
	.forward = lrn_forward,
	.backward = lrn_backward,
	.destroy = layer_free_priv,
};

const struct dn_layer_ops l2norm_layer = {
	.name = "l2norm",
	.summary = "each pixel divided by its norm over the channels",
	.setup = l2norm_setup,
	.forward = l2norm_forward,
	.backward = l2norm_backward,
	.destroy = layer_free_priv,
};
