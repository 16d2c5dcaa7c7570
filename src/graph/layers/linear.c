/* Layers that end in act(norm(z)) or act(z + b), where z is their own product of input and weights: params in file order, what
 * is saved for backward, all that comes after z in forward and before it in backward. See layers_priv.h. */
#include "graph/layers/layers_priv.h"

int linear_keys(struct layer_linear *li, struct dn_layer *l, struct dn_section *s)
{
	int64_t norm;
	int err = dn_key_int(s, "batch_normalize", &norm);

	if (err)
		return err;
	li->batch_norm = norm;
	return dn_layer_activation(l, s);
}

static int declare_norm(struct layer_linear *li, struct dn_layer *l)
{
	return li->batch_norm ? norm_declare(&li->norm, l, li->bias_of.c, li->biases) : 0;
}

int linear_declare(struct layer_linear *li, struct dn_layer *l, const struct linear_weights *w)
{
	int err;

	li->bias_of = w->bias_a_point ? dn_tensor_flat(&l->out) : l->out;
	err = layer_biases(l, li->bias_of.c, &li->biases);
	if (!err && !w->norm_last)
		err = declare_norm(li, l);
	if (!err)
		err = dn_layer_param(l, "weights", DN_TRAINED, w->n_dims, w->shape, w->init, &li->weights);
	if (!err && w->norm_last)
		err = declare_norm(li, l);
	if (err)
		return err;
	li->weights->decay = true;
	li->weights->file_rows = w->file_rows;
	li->weights->file_cols = w->file_cols;
	li->weights->file_flipped = w->file_flipped;
	return 0;
}

int linear_setup(struct layer_linear *li, struct dn_layer *l)
{
	int err = layer_act_setup(l, &li->pre);

	l->backward_reads_params = li->batch_norm || layer_gives(l, 0);
	if (err || !li->batch_norm)
		return err;
	err = norm_setup(&li->norm, l, layer_act_inside(l));
	return err ? err : norm_input(l, &li->z);
}

void linear_in_conv(struct layer_linear *li, const struct dn_layer *l, struct dn_conv_desc *d)
{
	li->op_ends = !li->batch_norm;
	d->bias = li->op_ends;
	d->act = li->op_ends ? layer_act_inside(l) : DN_ACT_LINEAR;
	d->train = layer_goes_back(l);
}

static void *normed(const struct layer_linear *li, const struct dn_layer *l)
{
	return li->pre ? li->pre : l->output;
}

void *linear_z(const struct layer_linear *li, const struct dn_layer *l)
{
	return li->z ? li->z : normed(li, l);
}

int linear_forward(const struct layer_linear *li, struct dn_layer *l, const struct dn_pass *pass)
{
	void *z = linear_z(li, l);
	int err = 0;

	if (li->batch_norm)
		err = norm_forward(&li->norm, l, pass, z, normed(li, l));
	else if (!li->op_ends)
		err = l->net->dev->be->bias_act(l->net->compute, &li->bias_of, z, li->biases->value, layer_act_inside(l));
	return err ? err : layer_act_forward(l, li->pre);
}

int linear_backward(const struct layer_linear *li, struct dn_layer *l)
{
	int err = layer_act_backward(l, li->pre);

	if (err)
		return err;
	if (li->batch_norm)
		return norm_backward(&li->norm, l, li->z, l->delta, l->delta, false);
	if (l->frozen)
		return 0;
	return l->net->dev->be->bias_backward(l->net->compute, &li->bias_of, l->delta, li->biases->grad, dn_layer_adds(l));
}
