/* Update rules over ranges: the one place where an optimizer is written. */
#include "train/optim.h"

#include <errno.h>
#include <math.h>

#include "backend/backend.h"

static int sgd_range(struct dn_stream *st, const struct dn_param *p, const struct dn_update *u, int64_t n, float *w,
		     const float *g, float *const *state)
{
	double images = (double)u->images;
	float rate = (float)(u->rate * (double)p->lr_scale / images);
	float decay = p->decay ? (float)(u->decay * images) : 0.0f;

	return p->layer->net->dev->be->sgd(st, n, w, state[0], g, rate, (float)u->momentum, decay);
}

static int adam_range(struct dn_stream *st, const struct dn_param *p, const struct dn_update *u, int64_t n, float *w,
		      const float *g, float *const *state)
{
	const struct dn_backend *be = p->layer->net->dev->be;
	double rate = u->rate * (double)p->lr_scale, decay = p->decay ? u->decay : 0;
	struct dn_adam a = {
		.scale = (float)(1 / (double)u->images),
		.rate = (float)rate,
		.beta1 = (float)u->beta1,
		.one_minus_beta1 = (float)(1 - u->beta1),
		.beta2 = (float)u->beta2,
		.one_minus_beta2 = (float)(1 - u->beta2),
		.correct1 = (float)(1 / (1 - pow(u->beta1, (double)u->step))),
		.correct2 = (float)(1 / (1 - pow(u->beta2, (double)u->step))),
		.eps = (float)u->eps,
		.decay = u->optimizer == DN_ADAM ? (float)decay : 0.0f,
		.shrink = u->optimizer == DN_ADAMW ? (float)(1 - rate * decay) : 1.0f,
	};

	if (!be->adam)
		return dn_fail(-ENOTSUP, "backend %s has no adam", be->name);
	return be->adam(st, n, w, state[0], state[1], g, &a);
}

/* The factors are computed in double and rounded to float once, here; the op works in float. So they are the same for
 * every element of a param, whoever owns it. */
int dn_optim_range(struct dn_stream *st, const struct dn_param *p, const struct dn_update *u, int64_t n, float *w, const float *g,
		   float *const *state)
{
	if (n == 0)
		return 0;
	switch (u->optimizer) {
	case DN_SGD:
		return sgd_range(st, p, u, n, w, g, state);
	case DN_ADAM:
	case DN_ADAMW:
		return adam_range(st, p, u, n, w, g, state);
	}
	return dn_fail(-ENOTSUP, "optimizer %d: this version knows sgd, adam and adamw", (int)u->optimizer);
}
