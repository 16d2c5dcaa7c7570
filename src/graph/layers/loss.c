/* What layers with a loss share. */
#include "graph/layers/layers_priv.h"

int layer_loss_setup(struct dn_layer *l, void **scratch)
{
	int err = dn_layer_need(l, cost);

	return err ? err : dn_layer_buffer(l, l->out.bytes, DN_LIFE_FORWARD, false, scratch);
}

const void *layer_truth(const struct dn_layer *l, const struct dn_pass *pass, struct dn_tensor *t)
{
	*t = dn_tensor_flat(&l->out);
	if (!pass->classes)
		return pass->truth;
	t->type = DN_I32;
	t->c = 1;
	t->bytes = (size_t)t->n * sizeof(*pass->classes);
	return pass->classes;
}

int layer_loss(struct dn_layer *l, const struct dn_pass *pass, enum dn_cost kind, const void *p, const void *t, void *scratch)
{
	const struct dn_tensor out = dn_tensor_flat(&l->out);
	struct dn_net *net = l->net;
	struct dn_tensor of = out;

	if (layer_has_truth(l, pass)) {
		const void *truth = t ? t : layer_truth(l, pass, &of);

		return net->dev->be->cost(net->compute, kind, &out, p, &of, truth, l->delta ? l->delta : scratch, l->cost);
	}
	return l->delta ? net->dev->be->zero(net->compute, l->delta, l->out.bytes) : 0;
}
