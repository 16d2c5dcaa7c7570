/* Rolling statistics that nobody has filled. A layer that normalises with them divides by the root of nothing. */
#include <string.h>

#include "graph/graph_priv.h"

static int find_value(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	bool *found = arg;

	for (int64_t i = 0; i < n && !*found; i++)
		*found = x[i] < 0 || x[i] > 0 || x[i] != x[i];
	return 0;
}

/* Whether @l has statistics, and every variance is zero: means alone are no statistics, and no layer that learnt from more than one
 * value has none that varies. */
static int is_empty(const struct dn_layer *l, bool *empty)
{
	struct dn_net *net = l->net;
	const struct dn_layer *owner = &net->layers[l->owner];
	bool any = false, found = false;
	int err = 0;

	for (int i = owner->first_param; i < owner->first_param + owner->n_params && !err; i++) {
		if (strcmp(net->params[i]->part, "rolling_variance"))
			continue;
		any = true;
		err = net->store.ops->each(net->store.self, net->params[i], DN_VALUE, DN_READ, find_value, &found);
	}
	*empty = any && !found;
	return err;
}

int dn_net_empty_stats(struct dn_net *net, bool frozen, const struct dn_layer **first, int *n)
{
	int err = 0;

	*first = NULL;
	*n = 0;
	for (int i = 0; i < net->n_layers && !err; i++) {
		const struct dn_layer *l = &net->layers[i];
		bool empty = false;

		if (frozen && !l->frozen)
			continue;
		err = is_empty(l, &empty);
		if (!err && empty && !(*n)++)
			*first = l;
	}
	return err;
}
