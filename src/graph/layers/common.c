/* Small things that several layers do. */
#include <errno.h>

#include "base/mem.h"
#include "graph/layers/layers_priv.h"

int layer_biases(struct dn_layer *l, int64_t n, struct dn_param **out)
{
	return dn_layer_param(l, "biases", DN_TRAINED, 1, &n, (struct dn_init){ DN_INIT_CONST, 0 }, out);
}

void *layer_priv(struct dn_layer *l, size_t size)
{
	return l->priv = dn_zalloc(size);
}

void layer_free_priv(struct dn_layer *l)
{
	dn_free(l->priv);
	l->priv = NULL;
}

bool layer_gives(const struct dn_layer *l, int k)
{
	const int at = l->inputs_of[k].layer;

	return at >= 0 && l->net->layers[at].wants_delta;
}

bool layer_goes_back(const struct dn_layer *l)
{
	if (!l->net->opt.train || !l->frozen)
		return l->net->opt.train;
	for (int k = 0; k < l->n_inputs; k++)
		if (layer_gives(l, k))
			return true;
	return false;
}

int layer_conv(struct dn_layer *l, const struct dn_conv_desc *d, struct dn_conv **out)
{
	const struct dn_backend *be = l->net->dev->be;
	int err = dn_layer_need(l, conv_create);

	if (!err)
		err = be->conv_create(l->net->dev, d, out);
	if (err)
		return err;
	l->workspace_bytes = be->conv_workspace_bytes(*out, false);
	l->workspace_add_bytes = be->conv_workspace_bytes(*out, true);
	return 0;
}

int64_t layer_strides(const struct dn_section *s)
{
	return dn_key_value(s, "stride_x") << 32 | dn_key_value(s, "stride_y");
}

int layer_needs_image(const struct dn_layer *l)
{
	if (l->w > 0 && l->h > 0)
		return 0;
	return dn_section_fail(l->section, NULL, -EINVAL, "layer %d needs an image as input, but gets %lld flat numbers",
			       l->index, (long long)l->inputs);
}

int layer_pass_delta(struct dn_layer *l, int k, float alpha)
{
	bool acc;
	void *dx = dn_layer_dx(l, k, &acc);

	if (!dx)
		return 0;
	return l->net->dev->be->axpby(l->net->compute, l->out.type, dn_tensor_count(&l->out), alpha, l->delta, acc ? 1 : 0, dx);
}

int layer_same_out(struct dn_layer *l)
{
	const bool image = l->w > 0;

	return dn_layer_set_out(l, image ? l->w : 1, image ? l->h : 1, l->c);
}

int layer_bytes(int64_t n, size_t *out)
{
	return dn_mul_size((size_t)n, sizeof(float), out);
}
