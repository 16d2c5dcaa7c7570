/* Update rules over intervals of params: the one place where an optimizer is written. */
#include "train/optim.h"

#include <errno.h>

#include "backend/backend.h"
#include "graph/optimizer.h"

static int sgd_range(struct dn_stream *st, const struct dn_param *p, const struct dn_update *u, int64_t n, float *w,
		     const float *g, float *const *state)
{
	const struct dn_net *net = p->layer->net;
	const struct dn_sgd o = {
		.lr_scale = (double)p->lr_scale,
		.momentum = u->momentum,
		.decay = p->decay ? u->decay : 0,
	};

	return net->dev->be->sgd(st, DN_F32, n, &o, net->numbers, w, state[0], g);
}

static int adam_range(struct dn_stream *st, const struct dn_param *p, const struct dn_update *u, int64_t n, float *w,
		      const float *g, float *const *state)
{
	const struct dn_net *net = p->layer->net;
	const struct dn_adam o = {
		.lr_scale = (double)p->lr_scale,
		.beta1 = u->beta1,
		.beta2 = u->beta2,
		.eps = u->eps,
		.decay = p->decay ? u->decay : 0,
		.decoupled = u->optimizer == DN_ADAMW,
	};

	if (!net->dev->be->adam)
		return dn_fail(-ENOTSUP, "backend %s has no adam", net->dev->be->name);
	return net->dev->be->adam(st, DN_F32, n, &o, net->numbers, w, state[0], state[1], g);
}

static int (*const rules[DN_OPTIMIZERS])(struct dn_stream *st, const struct dn_param *p, const struct dn_update *u, int64_t n,
					 float *w, const float *g, float *const *state) = {
	[DN_SGD] = sgd_range,
	[DN_ADAM] = adam_range,
	[DN_ADAMW] = adam_range,
};

int dn_optim_ema(struct dn_stream *st, const struct dn_param *p, const struct dn_update *u, int64_t n, const float *w, float *ema)
{
	if (n == 0)
		return 0;
	return p->layer->net->dev->be->axpby(st, DN_F32, n, (float)(1 - u->ema), w, (float)u->ema, ema);
}

int dn_optim_range(struct dn_stream *st, const struct dn_param *p, const struct dn_update *u, int64_t n, float *w, const float *g,
		   float *const *state)
{
	if (n == 0)
		return 0;
	if ((unsigned)u->optimizer >= DN_OPTIMIZERS)
		return dn_fail(-ENOTSUP, "optimizer %d: known are %s", (int)u->optimizer, dn_optimizer_names());
	return rules[u->optimizer](st, p, u, n, w, g, state);
}
