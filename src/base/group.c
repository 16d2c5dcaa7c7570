/* Calls of a group: to its operations, or what they come to for one process alone. */
#include "base/group.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"

int dn_group_agree(const struct dn_group *g, int err, const char *what)
{
	return g->ops ? g->ops->agree(g->self, err, what) : err;
}

int dn_group_sum(const struct dn_group *g, double *x, int n)
{
	return g->ops ? g->ops->sum(g->self, x, n) : 0;
}

int dn_group_compare(const struct dn_group *g, const struct dn_item *items, int n)
{
	return g->ops ? g->ops->compare(g->self, items, n) : 0;
}

int dn_group_gather(const struct dn_group *g, const void *mine, size_t bytes, char **all, size_t *sizes)
{
	char *text;

	if (g->ops)
		return g->ops->gather(g->self, mine, bytes, all, sizes);
	if (bytes == SIZE_MAX)
		return dn_fail(-EOVERFLOW, "gather: %zu bytes", bytes);
	text = dn_alloc(bytes + 1);
	if (!text)
		return -ENOMEM;
	if (bytes)
		memcpy(text, mine, bytes);
	text[bytes] = '\0';
	*all = text;
	sizes[0] = bytes;
	return 0;
}
