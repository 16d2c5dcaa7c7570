/* Batch normalisation, inside other layers and as a layer by itself. */
#include "base/log.h"
#include "graph/layers/layers_priv.h"

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

/* Alone there is nobody to ask, and a frozen layer has no statistics of its own. */
static int setup_sync(struct layer_norm *nm, struct dn_layer *l)
{
	const struct dn_net_options *o = &l->net->opt;
	const int64_t c = l->out.c;
	int err;

	if (!o->train || !o->sync_bn || o->world < 2 || l->frozen)
		return 0;
	nm->sync = l->out.n * dn_tensor_plane(&l->out) * o->world;
	err = dn_layer_need(l, bn_mean_part);
	if (!err)
		err = dn_layer_need(l, bn_variance_part);
	if (!err)
		err = dn_layer_need(l, bn_backward_part);
	if (!err)
		err = dn_layer_need(l, bn_backward_data);
	if (!err)
		err = dn_layer_wants_exchange(l, false, c); /* the mean */
	if (!err)
		err = dn_layer_wants_exchange(l, false, c); /* the variance, about that mean: nothing cancels */
	if (!err)
		err = dn_layer_wants_exchange(l, true, 2 * c);
	return err ? err : dn_layer_buffer(l, 2 * sizeof(float) * (size_t)c, DN_LIFE_BACKWARD, true, (void **)&nm->sums);
}

int norm_setup(struct layer_norm *nm, struct dn_layer *l, enum dn_act act)
{
	const struct dn_net_options *o = &l->net->opt;
	const size_t bytes = sizeof(float) * (size_t)l->out.c;
	int err = dn_layer_need(l, bn_forward_train);

	if (!err)
		err = dn_layer_need(l, bn_forward);
	if (!err)
		err = dn_layer_need(l, bn_backward);
	if (!err)
		err = setup_sync(nm, l);
	if (err)
		return err;
	if (o->train && !l->frozen && !nm->sync && l->out.n * dn_tensor_plane(&l->out) == 1)
		dn_warn("%s:%d: layer %d: batch normalisation over one value a channel (one image on this rank) is always 0",
			l->section->file->path, l->section->line, l->index);
	nm->desc = (struct dn_bn_desc){ .x = l->out, .legacy = o->legacy_bn, .act = act };
	err = dn_layer_buffer(l, bytes, DN_LIFE_KEPT, true, (void **)&nm->mean);
	if (!err)
		err = dn_layer_buffer(l, bytes, DN_LIFE_KEPT, true, (void **)&nm->variance);
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
static int give_stats(const struct layer_norm *nm, struct dn_layer *l)
{
	const struct dn_backend *be = l->net->dev->be;
	const struct dn_bn_desc *d = &nm->desc;
	const int64_t c = d->x.c, n = nm->sync ? nm->sync : d->x.n * dn_tensor_plane(&d->x);
	const float part = 1 / (float)l->uses, add = l->use ? 1 : 0;
	const float unbias = d->legacy || n < 2 ? 1 : (float)((double)n / (double)(n - 1));
	int err = 0;

	if (nm->rolling_mean->stat)
		err = be->axpby(l->net->compute, DN_F32, c, part, nm->mean, add, nm->rolling_mean->stat);
	if (!err && nm->rolling_variance->stat)
		err = be->axpby(l->net->compute, DN_F32, c, part * unbias, nm->variance, add, nm->rolling_variance->stat);
	return err;
}

static int forward_sync(const struct layer_norm *nm, struct dn_layer *l, const void *x, const float *bias, void *y)
{
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	const int64_t c = nm->desc.x.c;
	int err = be->bn_mean_part(st, &nm->desc, nm->sync, x, nm->mean);

	if (!err)
		err = dn_layer_exchange(l, false, DN_F32, nm->mean, c);
	if (!err)
		err = be->bn_variance_part(st, &nm->desc, nm->sync, x, nm->mean, nm->variance);
	if (!err)
		err = dn_layer_exchange(l, false, DN_F32, nm->variance, c);
	return err ? err : be->bn_forward(st, &nm->desc, x, nm->scales->value, bias, nm->mean, nm->variance, y);
}

int norm_forward(const struct layer_norm *nm, struct dn_layer *l, const struct dn_pass *pass, const void *x, void *y)
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
	if (pass->again)
		return be->bn_forward(st, &nm->desc, x, nm->scales->value, bias, nm->mean, nm->variance, y);
	err = nm->sync ? forward_sync(nm, l, x, bias, y)
		       : be->bn_forward_train(st, &nm->desc, x, nm->scales->value, bias, nm->mean, nm->variance, y);
	return err ? err : give_stats(nm, l);
}

int norm_backward(const struct layer_norm *nm, struct dn_layer *l, const void *x, const void *dy, void *dx, bool acc)
{
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	float *dbias = nm->biases ? nm->biases->grad : NULL;
	int err;

	if (l->frozen)
		return dx ? be->bn_backward(st, &nm->desc, true, NULL, nm->rolling_mean->value, nm->rolling_variance->value,
					    nm->scales->value, dy, dx, acc, NULL, NULL, false)
			  : 0;
	if (!nm->sync)
		return be->bn_backward(st, &nm->desc, false, x, nm->mean, nm->variance, nm->scales->value, dy, dx, acc,
				       nm->scales->grad, dbias, dn_layer_adds(l));
	err = be->bn_backward_part(st, &nm->desc, x, nm->mean, nm->variance, dy, nm->sums, nm->scales->grad, dbias,
				   dn_layer_adds(l));
	if (!err)
		err = dn_layer_exchange(l, true, DN_F32, nm->sums, 2 * nm->desc.x.c);
	if (err || !dx)
		return err;
	return be->bn_backward_data(st, &nm->desc, nm->sync, x, nm->mean, nm->variance, nm->scales->value, nm->sums, dy, dx, acc);
}
