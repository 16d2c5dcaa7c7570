/* The activation at the end of a layer, whose gradient may need what it was applied to. */
#include "graph/layers/layers_priv.h"

int layer_act_setup(struct dn_layer *l, void **pre)
{
	*pre = NULL;
	return layer_act_inside(l) == l->act ? 0 : dn_layer_buffer(l, l->out.bytes, DN_LIFE_SAVED, true, pre);
}

enum dn_act layer_act_inside(const struct dn_layer *l)
{
	return dn_act_of_input(l->act) && layer_goes_back(l) ? DN_ACT_LINEAR : l->act;
}

int layer_act_forward(struct dn_layer *l, const void *pre)
{
	const struct dn_backend *be = l->net->dev->be;
	int err;

	if (!pre)
		return 0;
	err = be->copy(l->net->compute, l->output, pre, l->out.bytes);
	return err ? err : be->bias_act(l->net->compute, &l->out, l->output, NULL, l->act);
}

int layer_act_backward(struct dn_layer *l, const void *pre)
{
	if (l->act == DN_ACT_LINEAR)
		return 0;
	return l->net->dev->be->act_backward(l->net->compute, &l->out, l->act, pre ? pre : l->output, l->delta);
}
