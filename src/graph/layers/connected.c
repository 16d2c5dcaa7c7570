/* [connected]: y = act(norm(W x)) or act(W x + b). */
#include <errno.h>
#include <math.h>

#include "base/mem.h"
#include "graph/layers/layers_priv.h"

struct connected {
	struct dn_param *biases, *weights;
	bool batch_norm;
	struct layer_norm norm;
	void *z;   /* [n, outputs] before the normalisation, NULL: output (backward not needed) */
	void *pre; /* [n, outputs] before the activation, NULL: output */
};

static const struct dn_key_rule keys[] = {
	{ "output", DN_KEY_INT, "1", 1, (int64_t)1 << 32, .help = "number of outputs" },
	{ "batch_normalize", DN_KEY_INT, "0", 0, 1, .help = "1: normalise before the activation" },
	{ "activation", DN_KEY_TEXT, "logistic", .help = "applied to the output", .names = dn_act_names },
	{ .key = NULL },
};

static int connected_params(struct dn_layer *l)
{
	struct connected *cn = l->priv;
	const int64_t shape[2] = { l->outputs, l->inputs };
	const struct dn_init init = { DN_INIT_UNIFORM, sqrt(2. / (double)l->inputs) };
	int err = layer_biases(l, l->outputs, &cn->biases);

	if (!err)
		err = dn_layer_param(l, "weights", DN_TRAINED, 2, shape, init, &cn->weights);
	if (!err && cn->batch_norm)
		err = norm_declare(&cn->norm, l, l->outputs, cn->biases);
	if (err)
		return err;
	cn->weights->decay = true;
	cn->weights->file_rows = l->outputs;
	cn->weights->file_cols = l->inputs;
	l->flops = 2 * l->inputs * l->outputs;
	return 0;
}

static int connected_setup(struct dn_layer *l, struct dn_section *s)
{
	struct connected *cn = layer_priv(l, sizeof(*cn));
	const int source = l->inputs_of[0].layer;
	int64_t outputs, norm;
	int err = cn ? dn_key_int(s, "output", &outputs) : -ENOMEM;

	if (!err)
		err = dn_key_int(s, "batch_normalize", &norm);
	if (!err)
		err = dn_layer_activation(l, s);
	if (!err)
		err = dn_layer_set_out(l, 1, 1, outputs);
	if (!err)
		err = dn_layer_need(l, gemm);
	if (err)
		return err;
	cn->batch_norm = norm;
	err = connected_params(l);
	if (err)
		return err;
	l->backward_reads_params = norm || (source >= 0 && l->net->layers[source].wants_delta);
	err = layer_act_setup(l, &cn->pre);
	if (err || !norm)
		return err;
	err = norm_setup(&cn->norm, l, l->outputs, 1, layer_act_inside(l));
	return err ? err : norm_input(l, &cn->z);
}

static int connected_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct connected *cn = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	void *y = cn->pre ? cn->pre : l->output;
	void *z = cn->z ? cn->z : y;
	const struct dn_gemm_desc d = dn_gemm_dense(false, true, l->batch, l->outputs, l->inputs, 0);
	int err = be->gemm(st, &d, dn_layer_x(l, pass, 0), cn->weights->value, z);

	if (!err && cn->batch_norm)
		err = norm_forward(&cn->norm, l, pass, z, y);
	else if (!err)
		err = be->bias_act(st, &l->out, z, cn->biases->value, layer_act_inside(l));
	return err ? err : layer_act_forward(l, cn->pre);
}

static int connected_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct connected *cn = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);
	const struct dn_gemm_desc dw = dn_gemm_dense(true, false, l->outputs, l->inputs, l->batch, dn_layer_adds(l) ? 1 : 0);
	const struct dn_gemm_desc back = dn_gemm_dense(false, false, l->batch, l->inputs, l->outputs, acc ? 1 : 0);
	int err = layer_act_backward(l, cn->pre);

	if (!err && cn->batch_norm)
		err = norm_backward(&cn->norm, l, cn->z, l->delta, l->delta, false);
	else if (!err)
		err = be->bias_backward(st, &l->out, l->delta, cn->biases->grad, dn_layer_adds(l));
	if (!err)
		err = be->gemm(st, &dw, l->delta, dn_layer_x(l, pass, 0), cn->weights->grad);
	if (!err && dx)
		err = be->gemm(st, &back, l->delta, cn->weights->value, dx);
	return err;
}

const struct dn_layer_ops connected_layer = {
	.name = "connected",
	.alias = "conn",
	.summary = "act(norm(W x)) or act(W x + b) over the whole input",
	.keys = keys,
	.setup = connected_setup,
	.forward = connected_forward,
	.backward = connected_backward,
	.destroy = layer_free_priv,
};
