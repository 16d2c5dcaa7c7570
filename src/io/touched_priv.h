/* After values have been written through a store. */
#ifndef DN_IO_TOUCHED_PRIV_H
#define DN_IO_TOUCHED_PRIV_H
#include "graph/net.h"

static inline void values_touched(struct dn_net *net)
{
	net->values_version++;
	if (net->store.ops->touched)
		net->store.ops->touched(net->store.self);
}
#endif
