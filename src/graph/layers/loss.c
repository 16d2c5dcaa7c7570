/* What layers with a loss share. */
#include "graph/layers/layers_priv.h"

int layer_loss_setup(struct dn_layer *l, void **scratch)
{
	int err = dn_layer_need(l, cost);

	return err ? err : dn_layer_buffer(l, l->out.bytes, DN_LIFE_FORWARD, false, scratch);
}

int layer_loss(struct dn_layer *l, const struct dn_pass *pass, enum dn_cost kind, const void *p, const void *t, void *scratch)
{
	struct dn_net *net = l->net;

	if (layer_has_truth(l, pass))
		return net->dev->be->cost(net->compute, kind, &l->out, p, &l->out, t ? t : pass->truth,
					  l->delta ? l->delta : scratch, l->cost);
	return l->delta ? net->dev->be->zero(net->compute, l->delta, l->out.bytes) : 0;
}
