/* Why a wait of a schedule is implied: the operations that lead from what it waits for to the one that waits, each behind the one
 * before it by the order of their queue or by a wait of its own. */
#ifndef FSDP_TESTS_PLAN_PATH_H
#define FSDP_TESTS_PLAN_PATH_H
#include "../check.h"
#include "plan/plan.h"

#define PATH_MOST 8192 /* operations of two runs */

struct path_runs { /* what runs one after the other */
	const struct fsdp_schedule *first, *second;
};

static inline const struct fsdp_op *path_op(const struct path_runs *s, int k)
{
	return k < s->first->n_ops ? &s->first->ops[k] : &s->second->ops[k - s->first->n_ops];
}

/* the last record of @event before @k, -1 = none */
static inline int path_record(const struct path_runs *s, int event, int k)
{
	while (--k >= 0 && path_op(s, k)->records != event)
		;
	return k;
}

static inline int path_before(const struct path_runs *s, int k)
{
	const enum fsdp_queue q = path_op(s, k)->queue;

	while (--k >= 0 && path_op(s, k)->queue != q)
		;
	return k;
}

/**
 * path_of() - into @out: how operation @i of the second of @s is behind the last record of @event, without its waits for it
 * false: it is not.
 */
static inline bool path_of(const struct fsdp_plan *p, const struct path_runs *s, int i, int event, char *out, size_t cap)
{
	static int next[PATH_MOST], list[PATH_MOST]; /* next: towards the one that waits, 0 = not seen */
	const int last = s->first->n_ops + i, from = path_record(s, event, last);
	int n = 0, at = 0;
	size_t len = 0;

	if (s->first->n_ops + s->second->n_ops > PATH_MOST || from < 0)
		return false;
	memset(next, 0, sizeof(next));
	next[last] = last + 1;
	list[n++] = last;
	while (at < n && !next[from]) {
		const struct fsdp_op *op = path_op(s, list[at]);
		const int k = list[at++];

		for (int e = -1; e < op->n_waits; e++) {
			const int b = e < 0 ? path_before(s, k) : path_record(s, op->waits[e], k);

			if (b < 0 || next[b] || (k == last && e >= 0 && op->waits[e] == event))
				continue;
			next[b] = k + 1;
			list[n++] = b;
		}
	}
	if (!next[from])
		return false;
	for (int k = from;; k = next[k] - 1) {
		const struct fsdp_op *op = path_op(s, k);

		if (len < cap)
			len += (size_t)snprintf(out + len, cap - len, "%s%s of %s (run %d, micro %d, %s queue)",
						len ? " -> " : "", fsdp_op_name(op->kind), p->blocks[op->block].name,
						k < s->first->n_ops ? 1 : 2, op->micro, fsdp_queue_name(op->queue));
		if (k == last)
			return true;
	}
}
#endif
