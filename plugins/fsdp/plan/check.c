/* Happens-before, derived from the plan alone: every operation's accesses as byte ranges of regions, ordered
 * by the queues and by the events they wait for. Two accesses of which one writes, to bytes that they share,
 * must be ordered.
 *
 * The clocks here are computed from the finished plan and share nothing with those that schedule.c
 * thins waits out with. Per region a list holds the accesses that a later one may still conflict with: what
 * a later, ordered write covers is dropped, so the list stays about as long as the region has owners.
 */
#include <errno.h>
#include <string.h>

#include "plan/plan_priv.h"

enum area { AREA_PARAMS, AREA_GRADS, AREA_OPTIMIZER, AREA_SLOTS, AREA_GRAD_SLOTS, AREA_STAGING, AREA_BUFFERS, AREAS };

static const char *const area_names[] = {
	[AREA_PARAMS] = "params",     [AREA_GRADS] = "grads",		[AREA_OPTIMIZER] = "optimizer",
	[AREA_SLOTS] = "param_slots", [AREA_GRAD_SLOTS] = "grad_slots", [AREA_STAGING] = "staging",
	[AREA_BUFFERS] = "buffers",
};

#define MAX_ACCESSES 8

struct access {
	enum area area;
	bool write;
	size_t from, to; /* bytes */
};

struct clock {
	int64_t at[FSDP_QUEUES];
};

struct mark { /* an access of the past */
	struct access a;
	const struct fsdp_op *op;
	int run; /* which schedule of the sequence */
	bool eval;
	int64_t at; /* position on the operation's queue */
};

struct marks {
	struct mark *m;
	int n, cap;
};

struct check {
	const struct fsdp_plan *p;
	struct marks area[AREAS];
	struct clock queue[FSDP_QUEUES];
	int64_t n_done[FSDP_QUEUES];
	struct clock *events; /* [n_events] of the latest record; all 0: never recorded, positions count from 1 */
	int run;
	bool eval;
	void (*report)(void *arg, const char *line);
	void *arg;
	int64_t n_found;
	char first[512];
};

/* --- accesses --- */

static void add(struct access *a, int *n, enum area area, bool write, int64_t from, int64_t elements)
{
	if (elements > 0)
		a[(*n)++] = (struct access){ area, write, (size_t)from * 4, (size_t)(from + elements) * 4 };
}

static void add_bytes(struct access *a, int *n, enum area area, size_t from, size_t bytes)
{
	if (bytes)
		a[(*n)++] = (struct access){ area, true, from, from + bytes };
}

static void add_slot(const struct fsdp_plan *p, const struct fsdp_block *b, struct access *a, int *n, bool write)
{
	add(a, n, AREA_SLOTS, write, p->slots[b->slot].offset, b->padded);
}

static int forward_accesses(const struct check *c, const struct fsdp_block *b, struct access *a)
{
	int n = 0;

	if (b->gathered)
		add_slot(c->p, b, a, &n, false);
	if (c->eval)
		add(a, &n, AREA_BUFFERS, false, b->rolling_offset, b->n_rolling);
	else /* what is frozen reads its rolling statistics: they come first in a block, and nobody writes them */
		add(a, &n, AREA_BUFFERS, false, b->rolling_offset, b->n_rolling - b->n_stats);
	if (!c->eval)
		add(a, &n, AREA_BUFFERS, true, c->p->n_rolling + b->stats_offset, b->n_stats);
	return n;
}

static int stats_accesses(const struct fsdp_plan *p, struct access *a)
{
	int n = 0;
	int64_t from = p->n_rolling;

	/* frozen buffers are a prefix of the net, so those with statistics are the end of the rolling ones */
	add(a, &n, AREA_BUFFERS, false, from, p->n_stats);
	add(a, &n, AREA_BUFFERS, true, from - p->n_stats, p->n_stats);
	add_bytes(a, &n, AREA_STAGING, p->reduce_staging_bytes, p->stats_staging_bytes);
	return n;
}

static int accesses(const struct check *c, const struct fsdp_op *op, struct access *a)
{
	const struct fsdp_plan *p = c->p;
	const struct fsdp_block *b = &p->blocks[op->block];
	int n = 0;

	switch (op->kind) {
	case FSDP_GATHER:
		add(a, &n, AREA_PARAMS, false, b->shard_offset, b->shard);
		add_slot(p, b, a, &n, true);
		return n;
	case FSDP_FORWARD:
		return forward_accesses(c, b, a);
	case FSDP_BACKWARD:
		if (plan_backward_reads(b))
			add_slot(p, b, a, &n, false);
		if (b->learns)
			add(a, &n, AREA_GRAD_SLOTS, true, p->grad_slots[b->grad_slot].offset, b->padded);
		return n;
	case FSDP_REDUCE:
		add(a, &n, AREA_GRAD_SLOTS, false, p->grad_slots[b->grad_slot].offset, b->padded);
		add_bytes(a, &n, AREA_STAGING, 0, p->reduce_staging_bytes);
		add(a, &n, AREA_GRADS, true, b->grad_offset, b->shard); /* microbatches after the first read it too */
		return n;
	case FSDP_UPDATE:
		add(a, &n, AREA_GRADS, false, b->grad_offset, b->shard);
		add(a, &n, AREA_PARAMS, true, b->shard_offset, b->shard);
		add(a, &n, AREA_OPTIMIZER, true, b->grad_offset * p->n_states, b->shard * p->n_states);
		return n;
	case FSDP_STATS:
		return stats_accesses(p, a);
	case FSDP_RELEASE:
	case FSDP_OP_KINDS:
		break;
	}
	return 0;
}

/* --- conflicts --- */

static void op_text(const struct check *c, const struct fsdp_op *op, int run, bool eval, bool write, char *out, size_t cap)
{
	snprintf(out, cap, "%s of %s (%s, run %d, micro %d, %s queue) %s", fsdp_op_name(op->kind), c->p->blocks[op->block].name,
		 eval ? "eval" : "step", run, op->micro, fsdp_queue_name(op->queue), write ? "writes" : "reads");
}

static void found(struct check *c, const struct mark *m, const struct fsdp_op *op, const struct access *a)
{
	size_t from = m->a.from > a->from ? m->a.from : a->from;
	size_t to = m->a.to < a->to ? m->a.to : a->to;
	char one[192], two[192], line[512];

	c->n_found++;
	if (c->n_found > 1 && !c->report)
		return;
	op_text(c, m->op, m->run, m->eval, m->a.write, one, sizeof(one));
	op_text(c, op, c->run, c->eval, a->write, two, sizeof(two));
	snprintf(line, sizeof(line), "%s bytes %zu to %zu: %s, %s, in no order", area_names[a->area], from, to, one, two);
	if (c->n_found == 1)
		memcpy(c->first, line, sizeof(line));
	if (c->report)
		c->report(c->arg, line);
}

static bool overlap(const struct access *a, const struct access *b)
{
	return a->from < b->to && b->from < a->to;
}

static bool covers(const struct access *a, const struct access *b)
{
	return a->from <= b->from && a->to >= b->to;
}

static int remember(struct marks *l, const struct mark *m)
{
	if (l->n == l->cap) {
		int cap = l->cap ? 2 * l->cap : 32;
		struct mark *grown = dn_realloc(l->m, (size_t)cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		l->m = grown;
		l->cap = cap;
	}
	l->m[l->n++] = *m;
	return 0;
}

static int touch(struct check *c, const struct fsdp_op *op, const struct clock *now, const struct access *a)
{
	struct marks *l = &c->area[a->area];
	struct mark mine = { *a, op, c->run, c->eval, now->at[op->queue] };
	int kept = 0;

	for (int i = 0; i < l->n; i++) {
		const struct mark *m = &l->m[i];
		bool ordered = now->at[m->op->queue] >= m->at;

		if (overlap(&m->a, a) && (m->a.write || a->write) && !ordered)
			found(c, m, op, a);
		/* what conflicts with m later conflicts with this one too, and behind this one it is behind
		 * m; two reads of one queue likewise */
		if (ordered && covers(a, &m->a) && (a->write || (!m->a.write && m->op->queue == op->queue)))
			continue;
		l->m[kept++] = *m;
	}
	l->n = kept;
	return remember(l, &mine);
}

/* --- the sequence --- */

static int run_op(struct check *c, const struct fsdp_op *op)
{
	struct clock *q = &c->queue[op->queue];
	struct access a[MAX_ACCESSES];
	int n;

	for (int i = 0; i < op->n_waits; i++)
		for (int k = 0; k < FSDP_QUEUES; k++)
			if (q->at[k] < c->events[op->waits[i]].at[k])
				q->at[k] = c->events[op->waits[i]].at[k];
	q->at[op->queue] = ++c->n_done[op->queue];
	if (op->records >= 0)
		c->events[op->records] = *q;
	n = accesses(c, op, a);
	for (int i = 0; i < n; i++) {
		int err = touch(c, op, q, &a[i]);

		if (err)
			return err;
	}
	return 0;
}

static int run_schedule(struct check *c, const struct fsdp_schedule *s, bool eval)
{
	int err = 0;

	c->run++;
	c->eval = eval;
	for (int i = 0; i < s->n_ops && !err; i++)
		err = run_op(c, &s->ops[i]);
	return err;
}

int fsdp_plan_check(const struct fsdp_plan *p, void (*report)(void *arg, const char *line), void *arg)
{
	static const bool sequence[] = { false, false, true, true, false }; /* is it an evaluation? */
	struct check c = { .p = p, .report = report, .arg = arg };
	int err = 0;

	c.events = dn_calloc((size_t)(FSDP_OP_KINDS * p->n_blocks), sizeof(*c.events));
	if (!c.events)
		return -ENOMEM;
	for (size_t i = 0; i < sizeof(sequence) / sizeof(sequence[0]) && !err; i++)
		err = run_schedule(&c, sequence[i] ? &p->eval : &p->step, sequence[i]);
	for (int i = 0; i < AREAS; i++)
		dn_free(c.area[i].m);
	dn_free(c.events);
	if (!err && c.n_found)
		err = dn_fail(-EINVAL, "plan: %lld pairs of accesses are in no order; the first: %s", (long long)c.n_found,
			      c.first);
	return err;
}
