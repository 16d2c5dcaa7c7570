/* Update rules over intervals of params: the one place where an optimizer is written. */
#ifndef DN_TRAIN_OPTIM_H
#define DN_TRAIN_OPTIM_H
#include "graph/net.h"
#ifdef __cplusplus
extern "C" {
#endif

/**
 * dn_optim_range() - update @n consecutive elements of one param
 * The numbers of @u have been queued (dn_net_numbers()). @w values, @g gradients (sums over the E images), @state [n_states]
 * pointers. Rate is u->rate * p->lr_scale; decay only where p->decay. Elementwise: an element gets the same bits wherever it
 * lies. docs/layers.md, Updates: v = m v + g - decay E w; w += (rate / E) v; v is stored before it is multiplied by m.
 * Adam: of the mean gradient g / E, with bias corrections by u->step; decay is part of the gradient (adam) or shrinks w by
 * 1 - rate * decay before the step (adamw).
 */
DN_EXPORT int dn_optim_range(struct dn_stream *st, const struct dn_param *p, const struct dn_update *u, int64_t n, float *w,
			     const float *g, float *const *state);

/** dn_optim_ema() - behind it: @ema, the mean of the values so far, becomes u->ema * ema + (1 - u->ema) * w */
DN_EXPORT int dn_optim_ema(struct dn_stream *st, const struct dn_param *p, const struct dn_update *u, int64_t n, const float *w,
			   float *ema);

#ifdef __cplusplus
}
#endif
#endif
