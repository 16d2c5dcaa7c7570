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

enum { AREAS = DN_MEM_PLANNED + 1, AREA_HOST_STAGING = DN_MEM_PLANNED }; /* the regions, and what of one is the host's */

struct access {
	int area;
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
	const char *what;
	int64_t at; /* position on the operation's queue */
};

struct marks {
	struct mark *m;
	int n;
};

struct ring {
	int64_t *at, n;
	int cap;
};

struct check {
	const struct fsdp_plan *p;
	struct marks area[AREAS];
	struct clock queue[FSDP_QUEUES];
	int64_t n_done[FSDP_QUEUES];
	struct clock *events;  /* [n_events] of the latest record; all 0: never recorded, positions count from 1 */
	struct clock host;     /* what the host knows to be over */
	struct clock fence[2]; /* compute at the end of the last two windows */
	int64_t n_windows;
	struct ring entries[FSDP_QUEUES], *records; /* [n_events]; positions of the operations that made what is in flight */
	bool *summed;				    /* [n_blocks] a microbatch's gradient of this step is in the sum */
	int run;
	const char *what; /* the schedule that runs, */
	bool eval;	  /* an evaluation */
	void (*report)(void *arg, const char *line);
	void *arg;
	bool *updated; /* [n_blocks] in this run, */
	bool some_updated;
	int64_t n_found;
	char first[512];
};

static const char *area_name(int area)
{
	return area == AREA_HOST_STAGING ? "staging of the host" : dn_region_name((enum dn_region)area);
}

/* --- conflicts --- */

static void op_text(const struct check *c, const struct fsdp_op *op, int run, const char *what, bool write, char *out, size_t cap)
{
	snprintf(out, cap, "%s of %s (%s, run %d, micro %d, %s queue) %s", fsdp_op_name(op->kind), c->p->blocks[op->block].name,
		 what, run, op->micro, fsdp_queue_name(op->queue), write ? "writes" : "reads");
}

static void say(struct check *c, const char *line)
{
	if (!c->n_found++)
		snprintf(c->first, sizeof(c->first), "%s", line);
	if (c->report)
		c->report(c->arg, line);
}

static void found(struct check *c, const struct mark *m, const struct fsdp_op *op, const struct access *a)
{
	size_t from = m->a.from > a->from ? m->a.from : a->from;
	size_t to = m->a.to < a->to ? m->a.to : a->to;
	char one[192], two[192], line[512];

	if (c->n_found && !c->report) {
		c->n_found++;
		return;
	}
	op_text(c, m->op, m->run, m->what, m->a.write, one, sizeof(one));
	op_text(c, op, c->run, c->what, a->write, two, sizeof(two));
	snprintf(line, sizeof(line), "%s bytes %zu to %zu: %s, %s, in no order", area_name(a->area), from, to, one, two);
	say(c, line);
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
	struct mark *grown = dn_grow(l->m, l->n, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	l->m = grown;
	l->m[l->n++] = *m;
	return 0;
}

static int touch(struct check *c, const struct fsdp_op *op, const struct clock *now, const struct access *a)
{
	struct marks *l = &c->area[a->area];
	struct mark mine = { *a, op, c->run, c->what, now->at[op->queue] };
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

/* --- accesses --- */

static int use(struct check *c, const struct fsdp_op *op, struct fsdp_place x, bool write)
{
	const struct access a = { x.host ? AREA_HOST_STAGING : (int)x.region, write, x.from, x.from + x.bytes };

	return x.bytes ? touch(c, op, &c->queue[op->queue], &a) : 0;
}

static int use_staging(struct check *c, const struct fsdp_op *op)
{
	int lane = c->p->calls[op->call].lane, err = use(c, op, fsdp_place_staging(c->p, lane, false), true);

	return err ? err : use(c, op, fsdp_place_staging(c->p, lane, true), true);
}

/* In training a layer writes this microbatch's statistics; what has none reads its rolling ones, as all do in an evaluation. */
static int forward_buffers(struct check *c, const struct fsdp_op *op)
{
	int err = 0;

	for (int k = 0; k < c->p->n_buffers && !err; k++) {
		bool stat = !c->eval && c->p->buffers[k].stat >= 0;

		if (op->block < c->p->buffers[k].block || op->block > c->p->buffers[k].last_block)
			continue;

		err = use(c, op, stat ? fsdp_place_stat(c->p, k) : fsdp_place_rolling(c->p, k), stat);
	}
	return err;
}

/* what layers hand over before an exchange and take back behind it */
static int sum_accesses(struct check *c, const struct fsdp_op *op)
{
	int err = op->takes < 0 ? 0 : use(c, op, fsdp_place_sum(c->p, op->takes), false);

	return err || op->gives < 0 ? err : use(c, op, fsdp_place_sum(c->p, op->gives), true);
}

static int stats_accesses(struct check *c, const struct fsdp_op *op)
{
	int err = use(c, op, fsdp_place_stats(c->p), false);

	for (int k = 0; k < c->p->n_buffers && !err; k++)
		if (c->p->buffers[k].stat >= 0)
			err = use(c, op, fsdp_place_rolling(c->p, k), true);
	return err ? err : use_staging(c, op);
}

/* The parts of ranks differ: each is taken for the whole that it is part of. */
static int reduce_accesses(struct check *c, const struct fsdp_op *op)
{
	bool in_place = c->p->calls[op->call].in_place;
	int err = use(c, op, fsdp_place_grads(c->p, op->block), in_place || fsdp_call_narrow(&c->p->calls[op->call]));

	if (!err)
		err = use_staging(c, op);
	return err || in_place ? err : use(c, op, fsdp_place_part(c->p, op->block, DN_GRAD), true);
}

static int combine_accesses(struct check *c, const struct fsdp_op *op)
{
	const struct fsdp_call *call = &c->p->calls[op->call];
	bool narrow = fsdp_call_narrow(call);
	int err = call->in_place && !narrow ? 0 : use(c, op, fsdp_place_grads(c->p, op->block), narrow);

	if (!err)
		err = use_staging(c, op);
	return err ? err : use(c, op, fsdp_place_part(c->p, op->block, DN_GRAD), true);
}

static int share_accesses(struct check *c, const struct fsdp_op *op)
{
	bool sums = c->p->calls[op->call].sums;
	int err = use_staging(c, op);

	if (!err)
		err = use(c, op, sums ? fsdp_place_part(c->p, op->block, DN_GRAD) : fsdp_place_front(c->p, op->block), true);
	if (!err && !sums && c->p->blocks[op->block].master_offset >= 0)
		err = use(c, op, fsdp_place_part(c->p, op->block, DN_VALUE), false);
	return err;
}

static int gather_accesses(struct check *c, const struct fsdp_op *op)
{
	int err = use(c, op, fsdp_place_call(c->p, op->call, false), false);

	if (!err)
		err = use(c, op, fsdp_place_call(c->p, op->call, true), true);
	return err ? err : use_staging(c, op);
}

static int release_accesses(struct check *c, const struct fsdp_op *op)
{
	int err = op->keeps ? use(c, op, fsdp_place_values(c->p, op->block), false) : 0;

	return err || !op->keeps ? err : use(c, op, fsdp_place_kept(c->p, op->block), true);
}

static int update_accesses(struct check *c, const struct fsdp_op *op)
{
	int err = use(c, op, fsdp_place_part(c->p, op->block, DN_GRAD), false);

	if (!err)
		err = use(c, op, fsdp_place_updated(c->p, op->block), true);
	for (int k = 0; k < c->p->n_states && !err; k++)
		err = use(c, op, fsdp_place_part(c->p, op->block, (enum dn_part)(DN_STATE0 + k)), true);
	return err ? err : use(c, op, fsdp_place_part(c->p, op->block, DN_EMA), true);
}

/* the block's, and what it has of those in common */
static int use_values(struct check *c, const struct fsdp_op *op)
{
	const struct fsdp_block *b = &c->p->blocks[op->block];
	int err = op->values ? use(c, op, fsdp_place_values(c->p, op->block), false) : 0;

	for (int k = b->first_common; k < b->first_common + b->n_common && !err; k++) {
		const struct fsdp_tensor *t = &c->p->tensors[c->p->commons[k]];

		err = use(c, op, fsdp_place_in_block(fsdp_place_values(c->p, c->p->common), t->offset, t->n), false);
	}
	return err;
}

static int accesses(struct check *c, const struct fsdp_op *op)
{
	int err = 0;

	switch (op->kind) {
	case FSDP_GATHER:
		return gather_accesses(c, op);
	case FSDP_FORWARD:
		err = use_values(c, op);
		if (!err)
			err = sum_accesses(c, op);
		return err ? err : forward_buffers(c, op);
	case FSDP_BACKWARD:
		err = use_values(c, op);
		if (!err)
			err = sum_accesses(c, op);
		if (!err && op->grads)
			err = use(c, op, fsdp_place_grads(c->p, op->block), true);
		if (!err && op->grads && c->p->blocks[op->block].common_learns)
			err = use(c, op, fsdp_place_grads(c->p, c->p->common), true);
		return err;
	case FSDP_INPUT:
		return use_values(c, op);
	case FSDP_REDUCE:
		return reduce_accesses(c, op);
	case FSDP_COMBINE:
		return combine_accesses(c, op);
	case FSDP_SHARE:
		return share_accesses(c, op);
	case FSDP_UPDATE:
		return update_accesses(c, op);
	case FSDP_LOOK: /* with clip_value it writes */
		return use(c, op, fsdp_place_part(c->p, op->block, DN_GRAD), true);
	case FSDP_STATS:
		return stats_accesses(c, op);
	case FSDP_EXCHANGE:
		return use_staging(c, op);
	case FSDP_RELEASE:
		return release_accesses(c, op);
	case FSDP_OP_KINDS:
		break;
	}
	return err;
}

/* --- sums: the first of a step overwrites, the others add, and an update finds one --- */

/* does @op make the sum of the microbatches: in the gradient at rest, or in the slot where all of them stay? */
static bool makes_sum(const struct check *c, const struct fsdp_op *op)
{
	if (plan_sums_whole(c->p))
		return op->kind == FSDP_BACKWARD && op->grads;
	return (op->kind == FSDP_REDUCE || op->kind == FSDP_COMBINE) && !c->p->calls[op->call].in_place;
}

/* what a step does with a block's values and gradients, all of it before its update */
static bool is_blocks_own(const struct fsdp_op *op)
{
	return op->kind == FSDP_GATHER || op->kind == FSDP_FORWARD || op->kind == FSDP_BACKWARD || op->kind == FSDP_INPUT ||
	       op->kind == FSDP_REDUCE || op->kind == FSDP_COMBINE || op->kind == FSDP_UPDATE;
}

static void sums(struct check *c, const struct fsdp_op *op)
{
	const char *block = c->p->blocks[op->block].name;
	char line[256] = "";
	bool makes = makes_sum(c, op) && (op->part == 0 || op->kind != FSDP_BACKWARD);

	if (makes && op->acc != c->summed[op->block])
		snprintf(line, sizeof(line), "grads: %s of %s (run %d, micro %d) %s", fsdp_op_name(op->kind), block, c->run,
			 op->micro,
			 op->acc ? "adds to a sum that no microbatch of this step has begun"
				 : "overwrites the sum of earlier microbatches");
	if ((op->kind == FSDP_UPDATE || op->kind == FSDP_LOOK) && !c->summed[op->block])
		snprintf(line, sizeof(line), "grads: %s of %s (run %d) before any reduction of this step", fsdp_op_name(op->kind),
			 block, c->run);
	if (is_blocks_own(op) && (c->updated[op->block] ||
				  (c->p->blocks[op->block].common_learns && op->kind != FSDP_UPDATE && c->updated[c->p->common])))
		snprintf(line, sizeof(line), "values: %s of %s (run %d, micro %d) behind its update", fsdp_op_name(op->kind),
			 block, c->run, op->micro);
	if (op->kind == FSDP_LOOK && c->some_updated)
		snprintf(line, sizeof(line), "grads: look at %s (run %d) behind an update of this step", block, c->run);
	if (op->kind == FSDP_UPDATE)
		c->some_updated = c->updated[op->block] = true;
	if (makes)
		c->summed[op->block] = true;
	if (makes && op->kind == FSDP_BACKWARD && c->p->blocks[op->block].common_learns)
		c->summed[c->p->common] = true;
	if (*line)
		say(c, line);
}

/* --- room in queues and events, see NOTE(windows) --- */

/* One more entry, of an operation at position @at of queue @q: what stood in its place must be over. */
static bool push(const struct check *c, struct ring *r, int q, int64_t at)
{
	bool room = r->cap && (r->n < r->cap || r->at[r->n % r->cap] <= c->host.at[q]);

	if (r->cap)
		r->at[r->n++ % r->cap] = at;
	return room;
}

static void push_entries(struct check *c, const struct fsdp_op *op, int n)
{
	char line[256];
	bool room = true;

	for (int i = 0; i < n; i++)
		room &= push(c, &c->entries[op->queue], op->queue, c->n_done[op->queue]);
	if (room)
		return;
	snprintf(line, sizeof(line), "%s queue: more than %d entries in flight at %s of %s (run %d, micro %d)",
		 fsdp_queue_name(op->queue), c->p->queue_entries[op->queue], fsdp_op_name(op->kind), c->p->blocks[op->block].name,
		 c->run, op->micro);
	say(c, line);
}

static void push_record(struct check *c, const struct fsdp_op *op)
{
	char line[256], name[DN_BLOCK_NAME_MAX + 16];

	if (push(c, &c->records[op->records], op->queue, c->n_done[op->queue]))
		return;
	fsdp_plan_event_name(c->p, op->records, name, sizeof(name));
	snprintf(line, sizeof(line), "event %s: more than %d records in flight (run %d, micro %d)", name,
		 c->p->event_records[op->records], c->run, op->micro);
	say(c, line);
}

static void window(struct check *c, const struct fsdp_op *op)
{
	const struct clock *before = &c->fence[c->n_windows % 2]; /* the end of the window before the last */

	for (int q = 0; q < FSDP_QUEUES && c->n_windows > 1; q++)
		if (c->host.at[q] < before->at[q])
			c->host.at[q] = before->at[q];
	c->n_windows++;
	c->fence[c->n_windows % 2] = c->queue[FSDP_COMPUTE];
	(void)push(c, &c->entries[FSDP_COMPUTE], FSDP_COMPUTE, c->n_done[FSDP_COMPUTE]);
}

static int rings_init(struct check *c)
{
	const struct fsdp_plan *p = c->p;

	c->records = dn_calloc((size_t)plan_n_events(p), sizeof(*c->records));
	if (!c->records)
		return -ENOMEM;
	for (int k = 0; k < FSDP_QUEUES + plan_n_events(p); k++) {
		struct ring *r = k < FSDP_QUEUES ? &c->entries[k] : &c->records[k - FSDP_QUEUES];

		r->cap = k < FSDP_QUEUES ? p->queue_entries[k] : p->event_records[k - FSDP_QUEUES];
		r->at = dn_calloc((size_t)r->cap, sizeof(*r->at));
		if (!r->at)
			return -ENOMEM;
	}
	return 0;
}

static void rings_fini(struct check *c)
{
	for (int q = 0; q < FSDP_QUEUES; q++)
		dn_free(c->entries[q].at);
	for (int e = 0; c->records && e < plan_n_events(c->p); e++)
		dn_free(c->records[e].at);
	dn_free(c->records);
}

/* --- the sequence --- */

static int run_op(struct check *c, const struct fsdp_op *op)
{
	struct clock *q = &c->queue[op->queue];

	if (op->window)
		window(c, op);
	for (int i = 0; i < op->n_waits; i++)
		for (int k = 0; k < FSDP_QUEUES; k++)
			if (q->at[k] < c->events[op->waits[i]].at[k])
				q->at[k] = c->events[op->waits[i]].at[k];
	q->at[op->queue] = ++c->n_done[op->queue];
	push_entries(c, op, plan_op_entries(op));
	if (op->records >= 0) {
		push_record(c, op);
		c->events[op->records] = *q;
	}
	sums(c, op);
	return accesses(c, op);
}

/* the host waits for all queues */
static void barrier(struct check *c)
{
	for (int k = 0; k < FSDP_QUEUES; k++) {
		for (int q = 0; q < FSDP_QUEUES; q++)
			c->queue[q].at[k] = c->n_done[k];
		c->host.at[k] = c->n_done[k];
	}
}

static int run_schedule(struct check *c, const struct fsdp_schedule *s)
{
	bool repeat = s == &c->p->repeat;
	int err = 0;

	c->run++;
	c->eval = s == &c->p->eval;
	c->what = c->eval ? "eval" : repeat ? "repeat" : "step";
	c->some_updated = false;
	memset(c->updated, 0, (size_t)c->p->n_blocks * sizeof(*c->updated));
	memset(c->summed, 0, (size_t)c->p->n_blocks * sizeof(*c->summed));
	if (repeat)
		barrier(c);
	for (int i = 0; i < s->n_ops && !err; i++)
		err = run_op(c, &s->ops[i]);
	for (int i = 0; i < c->p->n_blocks && s->n_ops && s == &c->p->step; i++)
		if (c->p->blocks[i].learns && !c->updated[i])
			say(c, "a step without the update of a block that learns");
	for (int q = FSDP_GATHERQ; q <= FSDP_REPLICAQ && s->n_ops; q++)
		if (!push(c, &c->entries[q], q, c->n_done[q]))
			say(c, "more entries in flight than there is room for with the count of what was sent");
	if (repeat)
		barrier(c);
	return err;
}

int fsdp_plan_check(const struct fsdp_plan *p, void (*report)(void *arg, const char *line), void *arg)
{
	const struct fsdp_schedule *const sequence[] = { &p->step, &p->step, &p->eval, &p->eval, &p->step, &p->repeat, &p->step };
	struct check c = { .p = p, .report = report, .arg = arg };
	int err = 0;

	c.events = dn_calloc((size_t)plan_n_events(p), sizeof(*c.events));
	c.summed = dn_calloc((size_t)p->n_blocks, sizeof(*c.summed));
	c.updated = dn_zalloc((size_t)p->n_blocks);
	err = c.events && c.summed && c.updated ? rings_init(&c) : -ENOMEM;
	for (size_t i = 0; i < sizeof(sequence) / sizeof(sequence[0]) && !err; i++)
		err = run_schedule(&c, sequence[i]);
	for (int i = 0; i < AREAS; i++)
		dn_free(c.area[i].m);
	rings_fini(&c);
	dn_free(c.events);
	dn_free(c.summed);
	dn_free(c.updated);
	if (!err && c.n_found)
		err = dn_fail(-EINVAL, "plan: %lld faults in its order; the first: %s", (long long)c.n_found, c.first);
	return err;
}
