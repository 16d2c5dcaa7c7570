/* The ranks that run one job together, as the core sees them. Alone (ops NULL) every call is trivial;
 * a plugin that starts several ranks provides the operations. All are collective: every rank calls the
 * same ones in the same order.
 */
#ifndef DN_BASE_GROUP_H
#define DN_BASE_GROUP_H
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_item {	  /* something that must be the same on all ranks */
	const char *name; /* "seed", "cfg", "data list" */
	const char *value;
};

struct dn_group_ops {
	/* 0 on all ranks when all gave 0; else, on all ranks, the error of the lowest failing rank, with the
	 * message "rank R: TEXT" of that rank. @what names the phase for the message of a deadline. */
	int (*agree)(void *self, int err, const char *what);
	/* sum over ranks in place, fixed order, same bits everywhere */
	int (*sum)(void *self, double *x, int n);
	/* all items equal rank 0's, or an error on all ranks naming item, rank and both values */
	int (*compare)(void *self, const struct dn_item *items, int n);
	/* rank 0 gets every rank's bytes, one after the other, in a dn_alloc()ed text, and each length in
	 * sizes[world] (caller's array, rank 0 only); elsewhere *all is NULL */
	int (*gather)(void *self, const void *mine, size_t bytes, char **all, size_t *sizes);
};

struct dn_group {
	int rank, world;   /* 0, 1 when alone */
	int ranks_on_host; /* of this job, this one included */
	const struct dn_group_ops *ops;
	void *self;
};

#define DN_GROUP_ALONE \
	{ \
		0, 1, 1, NULL, NULL \
	}

DN_EXPORT int dn_group_agree(const struct dn_group *g, int err, const char *what);
DN_EXPORT int dn_group_sum(const struct dn_group *g, double *x, int n);
DN_EXPORT int dn_group_compare(const struct dn_group *g, const struct dn_item *items, int n);
DN_EXPORT int dn_group_gather(const struct dn_group *g, const void *mine, size_t bytes, char **all, size_t *sizes);

#ifdef __cplusplus
}
#endif
#endif
