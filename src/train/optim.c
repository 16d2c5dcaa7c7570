/* Update rules over ranges: the one place where an optimizer is written. */
#include "train/optim.h"

#include <errno.h>

#include "backend/backend.h"
#include "io/state.h"

int dn_optim_n_states(enum dn_optimizer o)
{
	return dn_state_count(o);
}

const char *dn_optim_name(enum dn_optimizer o)
{
	return dn_state_optimizer(o);
}

const char *dn_optim_state_name(enum dn_optimizer o, int state)
{
	return dn_state_name(o, state);
}

/* The three factors are computed in double and rounded to float once, here; the op works in float. So they are the same
 * for every element of a param, whoever owns it. */
int dn_optim_range(struct dn_stream *st, const struct dn_param *p, const struct dn_update *u, int64_t n, float *w,
		   const float *g, float *const *state)
{
	double images = (double)u->images;
	float rate = (float)(u->rate * (double)p->lr_scale / images);
	float decay = p->decay ? (float)(u->decay * images) : 0.0f;

	if (n == 0)
		return 0;
	if (u->optimizer != DN_SGD)
		return dn_fail(-ENOTSUP, "optimizer %d: this version knows sgd only", (int)u->optimizer);
	return p->layer->net->dev->be->sgd(st, n, w, state[0], g, rate, (float)u->momentum, decay);
}
