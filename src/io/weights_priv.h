/* What weights.c and weights_save.c share. */
#ifndef DN_IO_WEIGHTS_PRIV_H
#define DN_IO_WEIGHTS_PRIV_H
#include "graph/net.h"

#define WEIGHTS_PIECE (1 << 18) /* floats that pass through memory at a time: 1 MiB */

/* floats of @p in a file that is written; 0 when it has none */
static inline int64_t weights_saved(const struct dn_param *p)
{
	return p->layer->dontsave ? 0 : p->n;
}
#endif
