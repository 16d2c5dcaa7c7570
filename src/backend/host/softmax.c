/* The prepared softmax of tables whose device memory is the host's. */
#include "backend/host/softmax.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static int tree_check(const struct dn_softmax_desc *d)
{
	const struct dn_tree_desc *t = d->tree;

	if (t->c != d->x.c || dn_tensor_plane(&d->x) != 1)
		return dn_fail(-EINVAL, "softmax: a tree of %" PRId64 " classes for %" PRId64 " channels at %" PRId64 " points",
			       t->c, d->x.c, dn_tensor_plane(&d->x));
	for (int g = 0; g < t->n_groups; g++)
		if (t->group_at[0] != 0 || t->group_at[g] >= t->group_at[g + 1] || t->group_at[t->n_groups] != t->c)
			return dn_fail(-EINVAL, "softmax: group %d does not continue the one before", g);
	for (int64_t k = 0; k < t->c; k++)
		if (t->parent[k] < -1 || t->parent[k] >= k)
			return dn_fail(-EINVAL, "softmax: the parent of class %" PRId64 " is %d, must be an earlier class or -1",
				       k, t->parent[k]);
	return 0;
}

static int desc_check(const struct op_limits *by, const struct dn_softmax_desc *d)
{
	const int n = d->tree ? d->tree->n_groups : d->n_groups;

	if (d->x.n < 0 || d->x.c < 1 || d->x.h < 1 || d->x.w < 1 || n < 1 || n > d->x.c)
		return dn_fail(-EINVAL, "softmax: %d groups of %" PRId64 " channels at %" PRId64 " points", n, d->x.c,
			       dn_tensor_plane(&d->x));
	if (!(d->temperature > 0))
		return dn_fail(-EINVAL, "softmax: temperature %g, must be positive", (double)d->temperature);
	if (!d->tree && d->x.c % n)
		return dn_fail(-EINVAL, "softmax: %d groups do not divide %" PRId64 " channels", n, d->x.c);
	return d->tree && tree_check(d) ? -EINVAL : tensor_check(by, "softmax", &d->x);
}

int softmax_create(const struct op_limits *by, const struct dn_softmax_desc *d, struct dn_softmax **out)
{
	const struct dn_tree_desc *t = d->tree;
	struct dn_softmax *sm;
	int err = desc_check(by, d);

	if (err)
		return err;
	sm = dn_zalloc(sizeof(*sm));
	if (!sm)
		return -ENOMEM;
	sm->by = by;
	sm->x = d->x;
	sm->n_groups = t ? t->n_groups : d->n_groups;
	sm->each = t ? 0 : d->x.c / d->n_groups;
	sm->temperature = d->temperature;
	if (t) {
		sm->group_at = dn_calloc((size_t)t->n_groups + 1, sizeof(*sm->group_at));
		sm->parent = dn_calloc((size_t)t->c, sizeof(*sm->parent));
		if (!sm->group_at || !sm->parent) {
			softmax_destroy(sm);
			return -ENOMEM;
		}
		memcpy(sm->group_at, t->group_at, ((size_t)t->n_groups + 1) * sizeof(*sm->group_at));
		memcpy(sm->parent, t->parent, (size_t)t->c * sizeof(*sm->parent));
	}
	*out = sm;
	return 0;
}

void softmax_destroy(struct dn_softmax *sm)
{
	if (!sm)
		return;
	dn_free(sm->group_at);
	dn_free(sm->parent);
	dn_free(sm);
}

int softmax_truth_check(const struct dn_softmax *sm, const char *op, const struct dn_tensor *t)
{
	if (t->type == DN_I32 && (sm->group_at || t->c != sm->n_groups))
		return dn_fail(sm->group_at ? -ENOTSUP : -EINVAL, "%s: classes of %" PRId64 " groups for %d %s", op, t->c,
			       sm->n_groups, sm->group_at ? "groups of a tree, which takes numbers" : "groups");
	return truth_check(sm->by, op, &sm->x, t);
}
