/* What weights.c and weights_save.c share. */
#ifndef DN_IO_WEIGHTS_PRIV_H
#define DN_IO_WEIGHTS_PRIV_H
#include <math.h>

#include "graph/net.h"

#define WEIGHTS_PIECE (1 << 18) /* floats that pass through memory at a time: 1 MiB */

/* floats of @p in a file that is written; 0 when it has none */
static inline int64_t weights_saved(const struct dn_param *p)
{
	return p->layer->dontsave ? 0 : p->n;
}

/* how many of x[n] are NaN or infinite */
static inline int64_t weights_nonfinite(const float *x, int64_t n)
{
	int64_t bad = 0;

	for (int64_t i = 0; i < n; i++)
		bad += !isfinite(x[i]);
	return bad;
}

/* Every rank reads the buffers, and each its own part of what is trained: who counts what is in them. */
static inline bool weights_counts(const struct dn_param *p)
{
	return p->role == DN_TRAINED || p->layer->net->opt.rank == 0;
}
#endif
