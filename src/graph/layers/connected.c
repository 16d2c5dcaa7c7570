/* [connected]: y = act(norm(W x)) or act(W x + b). */
#include <errno.h>
#include <math.h>

#include "graph/layers/layers_priv.h"

static const struct dn_key_rule keys[] = {
	{ "output", DN_KEY_INT, "1", 1, (int64_t)1 << 32, .help = "number of outputs" },
	LINEAR_KEYS,
	{ .key = NULL },
};

static int connected_setup(struct dn_layer *l, struct dn_section *s)
{
	struct layer_linear *li = layer_priv(l, sizeof(*li));
	struct linear_weights w = { .n_dims = 2, .norm_last = true };
	int64_t outputs;
	int err = li ? dn_key_int(s, "output", &outputs) : -ENOMEM;

	if (!err)
		err = linear_keys(li, l, s);
	if (!err)
		err = dn_layer_set_out(l, 1, 1, outputs);
	if (!err)
		err = dn_layer_need(l, gemm);
	if (err)
		return err;
	w.init = (struct dn_init){ DN_INIT_UNIFORM, sqrt(2. / (double)l->inputs) };
	w.shape[0] = w.file_rows = l->outputs;
	w.shape[1] = w.file_cols = l->inputs;
	err = linear_declare(li, l, &w);
	if (err)
		return err;
	l->flops = 2 * li->weights->n;
	return linear_setup(li, l);
}

static int connected_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct layer_linear *li = l->priv;
	const struct dn_gemm_desc d = dn_gemm_dense(false, true, l->local_batch, l->outputs, l->inputs, 0);
	int err = l->net->dev->be->gemm(l->net->compute, &d, dn_layer_x(l, pass, 0), li->weights->value, linear_z(li, l));

	return err ? err : linear_forward(li, l, pass);
}

static int connected_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct layer_linear *li = l->priv;
	const struct dn_gemm_desc dw =
		dn_gemm_dense(true, false, l->outputs, l->inputs, l->local_batch, dn_layer_adds(l) ? 1 : 0);
	int err = linear_backward(li, l);

	if (!err && !l->frozen)
		err = l->net->dev->be->gemm(l->net->compute, &dw, l->delta, dn_layer_x(l, pass, 0), li->weights->grad);
	return err;
}

static int connected_backward_input(struct dn_layer *l, const struct dn_pass *pass)
{
	struct layer_linear *li = l->priv;
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);
	const struct dn_gemm_desc back = dn_gemm_dense(false, false, l->local_batch, l->inputs, l->outputs, acc ? 1 : 0);

	return dx ? l->net->dev->be->gemm(l->net->compute, &back, l->delta, li->weights->value, dx) : 0;
}

const struct dn_layer_ops connected_layer = {
	.name = "connected",
	.alias = "conn",
	.summary = "act(norm(W x)) or act(W x + b) over the whole input",
	.keys = keys,
	.setup = connected_setup,
	.forward = connected_forward,
	.backward = connected_backward,
	.backward_input = connected_backward_input,
	.destroy = layer_free_priv,
	.flat = true,
	.flat_out = true,
	.filters = true,
};
