/* Batch normalisation inside conv, deconv and connected, and as a layer; small helpers of several layers. */
#include <errno.h>

#include "base/log.h"
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

int layer_no_numload(const struct dn_layer *l)
{
	return l->numload
		       ? dn_section_fail(l->section, "numload", -ENOTSUP, "numload is for [convolutional] and [connected] only")
		       : 0;
}

int layer_act_setup(struct dn_layer *l, void **pre)
{
	*pre = NULL;
	return layer_act_inside(l) == l->act ? 0 : dn_layer_buffer(l, l->out.bytes, DN_LIFE_SAVED, true, pre);
}

enum dn_act layer_act_inside(const struct dn_layer *l)
{
	return dn_act_of_input(l->act) && l->net->opt.train && !l->frozen ? DN_ACT_LINEAR : l->act;
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

int norm_declare(struct layer_norm *nm, struct dn_layer *l, int64_t c, struct dn_param *biases)
{
	const struct dn_init zero = { DN_INIT_CONST, 0 };
	int err = dn_layer_param(l, "scales", DN_TRAINED, 1, &c, (struct dn_init){ DN_INIT_CONST, 1 }, &nm->scales);

	if (!err)
		err = dn_layer_param(l, "rolling_mean", DN_BUFFER, 1, &c, zero, &nm->rolling_mean);
	if (!err)
		err = dn_layer_param(l, "rolling_variance", DN_BUFFER, 1, &c, zero, &nm->rolling_variance);
	if (!err)
		nm->scales->norm = nm->rolling_mean->norm = nm->rolling_variance->norm = true;
	nm->biases = biases;
	return err;
}

int norm_setup(struct layer_norm *nm, struct dn_layer *l, int64_t c, int64_t hw, enum dn_act act)
{
	const struct dn_net_options *o = &l->net->opt;
	size_t bytes = sizeof(float) * (size_t)c;
	int err = dn_layer_need(l, bn_forward_train);

	if (!err)
		err = dn_layer_need(l, bn_forward);
	if (!err)
		err = dn_layer_need(l, bn_backward);
	if (err)
		return err;
	if (o->train && !l->frozen && l->batch * hw == 1)
		dn_warn("%s:%d: layer %d: batch normalisation over one value a channel (one image on this rank) is always 0",
			l->section->file->path, l->section->line, l->index);
	nm->desc = (struct dn_bn_desc){ .x = l->out, .legacy = o->legacy_bn, .act = act };
	err = dn_layer_buffer(l, bytes, DN_LIFE_SAVED, true, (void **)&nm->mean);
	if (!err)
		err = dn_layer_buffer(l, bytes, DN_LIFE_SAVED, true, (void **)&nm->variance);
	if (!err && !nm->biases)
		err = dn_layer_buffer(l, bytes, DN_LIFE_FORWARD, false, (void **)&nm->no_bias);
	return err;
}

int norm_input(struct dn_layer *l, void **z)
{
	return !l->net->opt.train || l->frozen ? 0 : dn_layer_buffer(l, l->out.bytes, DN_LIFE_SAVED, true, z);
}

/* The statistics for the store's rolling update: the mean and the unbiased variance (legacy has it already), averaged over
 * the layers that share them. */
static int give_stats(struct layer_norm *nm, struct dn_layer *l)
{
	const struct dn_backend *be = l->net->dev->be;
	const struct dn_bn_desc *d = &nm->desc;
	const int64_t c = d->x.c, n = d->x.n * dn_tensor_plane(&d->x);
	const float part = 1 / (float)l->uses, add = l->use ? 1 : 0;
	const float unbias = d->legacy || n < 2 ? 1 : (float)((double)n / (double)(n - 1));
	int err = 0;

	if (nm->rolling_mean->stat)
		err = be->axpby(l->net->compute, DN_F32, c, part, nm->mean, add, nm->rolling_mean->stat);
	if (!err && nm->rolling_variance->stat)
		err = be->axpby(l->net->compute, DN_F32, c, part * unbias, nm->variance, add, nm->rolling_variance->stat);
	return err;
}

int norm_forward(struct layer_norm *nm, struct dn_layer *l, const struct dn_pass *pass, const void *x, void *y)
{
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	const float *bias = nm->no_bias;
	int err = 0;

	if (nm->biases)
		bias = nm->biases->value;
	else
		err = be->zero(st, nm->no_bias, sizeof(float) * (size_t)nm->desc.x.c);
	if (err)
		return err;
	/* frozen: the rolling statistics are part of the frozen function, and they stay */
	if (pass->phase == DN_INFER || l->frozen)
		return be->bn_forward(st, &nm->desc, x, nm->scales->value, bias, nm->rolling_mean->value,
				      nm->rolling_variance->value, y);
	err = be->bn_forward_train(st, &nm->desc, x, nm->scales->value, bias, nm->mean, nm->variance, y);
	return err ? err : give_stats(nm, l);
}

int norm_backward(struct layer_norm *nm, struct dn_layer *l, const void *x, const void *dy, void *dx, bool acc)
{
	return l->net->dev->be->bn_backward(l->net->compute, &nm->desc, false, x, nm->mean, nm->variance, nm->scales->value, dy,
					    dx, acc, nm->scales->grad, nm->biases ? nm->biases->grad : NULL, dn_layer_adds(l));
}
