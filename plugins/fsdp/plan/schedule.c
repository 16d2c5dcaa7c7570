/* The schedule: which operation runs on which queue in which order, and what it waits for.
 *
 * One walk over the step in host order, as the hooks will be called. The limiter says when a slot may be
 * taken. Each queue carries a clock: the latest operation of every queue that is known to be over when its
 * next one starts. A wait that the clock implies is not written down, so every wait in a plan is needed.
 *
 * NOTE(what lies before): a step and an evaluation start after a step, after an evaluation, or first of all, and one plan
 * has to be right in all three cases. What it knows of the past:
 * - Compute knows what it knew at the end: of a step all reductions, because the updates waited for them. Values that are given
 *   back to the replicas behind an update are written later, so whoever reads them first waits for that.
 * - The gather queue knows nothing of compute. The first gather into a slot therefore waits for the release
 *   by which the slot was last used, in a step and in an evaluation (different blocks, perhaps), and the
 *   first gather of a block for its update. Updates come after all releases of a step and in backward order,
 *   so that the first of these waits often covers the rest: `seen` below holds how far a queue
 *   sees, for either past.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "plan/plan_priv.h"

#define MAX_OPS (1 << 24)

enum { PAST_STEP, PAST_EVAL, PASTS };

struct clock {
	int64_t at[FSDP_QUEUES];
}; /* last operation of each queue known to be over, -1 = none of this schedule */

struct record { /* the latest record of an event in this schedule */
	bool made;
	enum fsdp_queue queue;
	struct clock clock;	  /* at[queue] is the recording operation */
	struct clock seen[PASTS]; /* of the past, by that operation */
};

struct past { /* an earlier run of a schedule */
	bool exists;
	struct record *events; /* [n_events] the last of each */
	struct clock compute;  /* what that queue knew at its end */
	int *last_owner;       /* [n_slots] block, -1 = none */
};

enum stage { OPEN, REDUCED, UPDATED };

struct walk {
	const struct fsdp_plan *p;
	struct fsdp_schedule *s;
	struct fsdp_limiter limiter;
	struct clock queue[FSDP_QUEUES];
	int64_t n_done[FSDP_QUEUES];
	struct record *events;
	const struct past *past;	       /* [PASTS], NULL in the first draft */
	struct clock seen[PASTS][FSDP_QUEUES]; /* of the past, by each queue of this schedule */
	int *freed_by; /* [n_grad_slots] event behind which the last gradients have left, -1 = none here */
	int micro;
	bool last;  /* microbatch of the step */
	bool fresh; /* the next operation is the first of its window */
	bool train;
	bool sums;	   /* layers exchange: in training, and in a repeated pass */
	enum stage *stage; /* [n_blocks] of the step's gradients */
};

/* --- one operation --- */

static bool clock_covers(const struct clock *c, const struct record *r)
{
	return c->at[r->queue] >= r->clock.at[r->queue];
}

static void clock_merge(struct clock *c, const struct clock *other)
{
	for (int q = 0; q < FSDP_QUEUES; q++)
		if (c->at[q] < other->at[q])
			c->at[q] = other->at[q];
}

/* what the events let @queue see of the past, once it has waited for them */
static void see(struct walk *w, enum fsdp_queue queue, const int *events, int n)
{
	for (int i = 0; i < n; i++)
		for (int k = 0; k < PASTS && w->events[events[i]].made; k++)
			clock_merge(&w->seen[k][queue], &w->events[events[i]].seen[k]);
}

static int append(struct fsdp_schedule *s, const struct fsdp_op *op)
{
	struct fsdp_op *ops;

	if (s->n_ops == MAX_OPS)
		return dn_fail(-EINVAL,
			       "plan: a step of more than %d operations; fewer subdivisions or larger blocks make it shorter",
			       MAX_OPS);
	ops = dn_grow(s->ops, s->n_ops, sizeof(*ops));
	if (!ops)
		return -ENOMEM;
	s->ops = ops;
	s->ops[s->n_ops++] = *op;
	return 0;
}

/* Is wait @k implied by the queue's clock, by what it comes with, or by an equal one before it? */
static bool implied(const struct walk *w, const struct clock *c, const int *waits, int n, int k)
{
	const struct record *r = &w->events[waits[k]];

	if (clock_covers(c, r))
		return true;
	for (int i = 0; i < n; i++) {
		const struct record *o = &w->events[waits[i]];

		if (i != k && clock_covers(&o->clock, r) && (waits[i] != waits[k] || i < k))
			return true;
	}
	return false;
}

/* @waits: events of this schedule, thinned out here. @past_waits: events of earlier ones, needed as they
 * are. */
static int emit(struct walk *w, struct fsdp_op *op, const int *waits, int n_waits, const int *past_waits, int n_past)
{
	struct clock *c = &w->queue[op->queue];
	struct clock start = *c;
	struct record *r;

	op->micro = w->micro;
	op->window = w->fresh;
	w->fresh = false;
	op->n_waits = 0;
	for (int i = 0; i < n_past; i++)
		op->waits[op->n_waits++] = past_waits[i];
	for (int i = 0; i < n_waits; i++) {
		if (implied(w, &start, waits, n_waits, i))
			continue;
		if (op->n_waits == FSDP_MAX_WAITS)
			return dn_fail(-EINVAL, "plan: an operation with more than %d waits", FSDP_MAX_WAITS);
		op->waits[op->n_waits++] = waits[i];
		clock_merge(c, &w->events[waits[i]].clock);
	}
	see(w, op->queue, waits, n_waits);
	c->at[op->queue] = w->n_done[op->queue]++;
	op->records = fsdp_plan_event(w->p, op->kind, op->block);
	r = &w->events[op->records];
	r->made = true;
	r->queue = op->queue;
	r->clock = *c;
	for (int k = 0; k < PASTS; k++)
		r->seen[k] = w->seen[k][op->queue];
	return append(w->s, op);
}

static int event(const struct walk *w, enum fsdp_op_kind kind, int block)
{
	return fsdp_plan_event(w->p, kind, block);
}

/* A block's layers: one operation, or several with an exchange between each two. */
static int emit_layers(struct walk *w, struct fsdp_op *op, const int *waits, int n_waits, const int *past_waits, int n_past)
{
	const struct fsdp_block *b = &w->p->blocks[op->block];
	bool backward = op->kind == FSDP_BACKWARD;
	int n = w->sums ? b->n_sums[backward] : 0, next;
	int err;

	op->gives = n ? b->first_sum[backward] : -1;
	op->takes = -1;
	err = emit(w, op, waits, n_waits, past_waits, n_past);
	for (int k = 0; k < n && !err; k++) {
		struct fsdp_op x = {
			.kind = FSDP_EXCHANGE,
			.queue = FSDP_EXCHANGEQ,
			.block = op->block,
			.part = op->part,
			.backward = backward,
			.gives = op->gives,
			.takes = -1,
			.call = w->p->sums[op->gives].call,
		};

		next = op->records;
		err = emit(w, &x, &next, 1, NULL, 0);
		if (err)
			break;
		next = x.records;
		op->part++;
		op->takes = op->gives;
		op->gives = k + 1 < n ? op->gives + 1 : -1;
		err = emit(w, op, &next, 1, NULL, 0);
	}
	return err;
}

/* --- gathers --- */

/* @queue must be behind @e of the past: a wait, unless it sees it already */
static void past_wait(struct walk *w, enum fsdp_queue queue, int e, int *waits, int *n)
{
	bool blind = false;

	for (int k = 0; w->past && k < PASTS; k++)
		blind |= w->past[k].exists && w->past[k].events[e].made &&
			 !clock_covers(&w->seen[k][queue], &w->past[k].events[e]);
	if (!blind)
		return;
	waits[(*n)++] = e;
	for (int k = 0; k < PASTS; k++)
		if (w->past[k].exists && w->past[k].events[e].made)
			clock_merge(&w->seen[k][queue], &w->past[k].events[e].clock);
}

/* behind which a step leaves the values of @block that this rank holds */
static int values_event(const struct walk *w, int block)
{
	return event(w, w->p->blocks[block].cut_states ? FSDP_SHARE : FSDP_UPDATE, block);
}

/* NOTE(what lies before), for a slot that this schedule has not used. Most far-reaching wait first: an
 * update is later on compute than every release of its step. */
static int past_waits(struct walk *w, int block, int *waits)
{
	const struct fsdp_block *b = &w->p->blocks[block];
	int n = 0;

	if (b->learns)
		past_wait(w, FSDP_GATHERQ, values_event(w, block), waits, &n); /* the shard is read here and was written there */
	for (int k = PASTS - 1; k >= 0 && w->past; k--)
		if (w->past[k].exists && w->past[k].last_owner[b->slot] >= 0) /* the slot is written here and was read there */
			past_wait(w, FSDP_GATHERQ, event(w, FSDP_RELEASE, w->past[k].last_owner[b->slot]), waits, &n);
	return n;
}

/* -EAGAIN without a message while another block holds the slot. */
static int gather(struct walk *w, int block, bool backward)
{
	const struct fsdp_block *b = &w->p->blocks[block];
	bool kept = backward && b->kept_offset >= 0;
	struct fsdp_op op = { .kind = FSDP_GATHER,
			      .queue = FSDP_GATHERQ,
			      .block = block,
			      .backward = backward,
			      .gives = -1,
			      .takes = -1,
			      .call = kept ? b->regather_call[0] : b->gather_call[0] };
	int waits[2], past[FSDP_MAX_WAITS], n = 0;
	int free_event, n_past;
	int err;

	err = fsdp_limiter_admit(&w->limiter, b->slot, block, &free_event);
	if (err)
		return err;
	if (free_event >= 0)
		see(w, FSDP_GATHERQ, &free_event, 1);
	/* a release in this schedule is later on compute than all that lies before, but no later than what replicas share, unless
	 * compute has waited for that */
	n_past = free_event < 0 ? past_waits(w, block, past) : 0;
	if (free_event >= 0 && b->learns && b->cut_states)
		past_wait(w, FSDP_GATHERQ, values_event(w, block), past, &n_past);
	if (free_event >= 0)
		waits[n++] = free_event; /* the slot's previous block has been read for the last time */
	if (kept)
		waits[n++] = event(w, FSDP_RELEASE, block); /* the part that stayed is there */
	err = emit(w, &op, waits, n, past, n_past);
	op.rest = true;
	op.call = kept ? b->regather_call[1] : b->gather_call[1];
	return err || op.call < 0 ? err : emit(w, &op, NULL, 0, NULL, 0);
}

static bool holds(const struct walk *w, int block)
{
	return fsdp_limiter_holds(&w->limiter, w->p->blocks[block].slot, block);
}

static int need(struct walk *w, int block, bool backward)
{
	int err;

	if (holds(w, block))
		return 0;
	err = gather(w, block, backward);
	if (err == -EAGAIN)
		return dn_fail(-EINVAL, "plan: block %s needs slot %d, which block %s still holds", w->p->blocks[block].name,
			       w->p->blocks[block].slot, w->p->blocks[w->limiter.slots[w->p->blocks[block].slot].owner].name);
	return err;
}

/* The next `depth` blocks after @block that the pass will want, in its order; a refused one ends it, since
 * gathers are served in order and a later block must not take what an earlier one needs. */
static int prefetch(struct walk *w, int block, bool backward)
{
	int step = backward ? -1 : 1;
	int ahead = 0;

	for (int i = block + step; i >= 0 && i < fsdp_plan_net_blocks(w->p) && ahead < w->p->opt.depth; i += step) {
		const struct fsdp_block *b = &w->p->blocks[i];
		int err;

		if (backward ? !plan_backward_reads(b) : !b->gathered)
			continue;
		ahead++;
		if (holds(w, i))
			continue;
		err = gather(w, i, backward);
		if (err == -EAGAIN)
			return 0;
		if (err)
			return err;
	}
	return 0;
}

static int prefetch_at(struct walk *w, enum fsdp_prefetch when, int block, bool backward)
{
	return w->p->opt.prefetch == when ? prefetch(w, block, backward) : 0;
}

static int release(struct walk *w, int block, bool keeps)
{
	struct fsdp_op op = {
		.kind = FSDP_RELEASE, .queue = FSDP_COMPUTE, .block = block, .keeps = keeps, .gives = -1, .takes = -1, .call = -1
	};
	int err = emit(w, &op, NULL, 0, NULL, 0);

	fsdp_limiter_release(&w->limiter, w->p->blocks[block].slot, block, op.records);
	return err;
}

/* --- forward --- */

static int stats(struct walk *w)
{
	struct fsdp_op op = { .kind = FSDP_STATS, .queue = FSDP_REDUCEQ, .block = w->p->stats_block, .call = w->p->stats_call };
	int waits[1];

	waits[0] = event(w, FSDP_FORWARD, w->p->stats_block); /* later than every other block's statistics */
	return emit(w, &op, waits, 1, NULL, 0);
}

static bool nothing_learns(const struct fsdp_plan *p)
{
	for (int i = 0; i < p->n_blocks; i++)
		if (p->blocks[i].learns)
			return false;
	return true;
}

/* The first block with statistics waits until those of the last microbatch are exchanged: in training it
 * overwrites them, in an evaluation it reads the rolling ones. Later blocks come behind it on the same
 * queue. Across schedules the updates have waited already, if there are any. */
static int stats_wait(struct walk *w, int block, int *waits, int *past, int *n_past)
{
	const struct fsdp_plan *p = w->p;

	*n_past = 0;
	if (!p->blocks[block].has_stats)
		return 0;
	for (int i = 0; i < block; i++)
		if (p->blocks[i].has_stats)
			return 0;
	waits[0] = event(w, FSDP_STATS, p->stats_block);
	if (w->events[waits[0]].made)
		return 1;
	if (nothing_learns(p))
		past[(*n_past)++] = waits[0];
	return 0;
}

/* Is the block needed no more when its forward is over? */
static bool ends_with_forward(const struct walk *w, const struct fsdp_block *b)
{
	return b->gathered && !(w->train && (b->resident || (plan_keeps(w->p) && !w->last)));
}

static int forward_block(struct walk *w, int i)
{
	const struct fsdp_block *b = &w->p->blocks[i];
	struct fsdp_op op = { .kind = FSDP_FORWARD,
			      .queue = FSDP_COMPUTE,
			      .block = i,
			      .values = b->n_tensors > 0,
			      .gives = -1,
			      .takes = -1,
			      .call = -1 };
	int waits[2], past[3], n = 0, n_past;
	int err = 0;

	if (b->gathered)
		err = need(w, i, false);
	if (!err)
		err = prefetch_at(w, FSDP_PRE, i, false);
	if (err)
		return err;
	if (b->gathered)
		waits[n++] = event(w, FSDP_GATHER, i); /* the values are there */
	n += stats_wait(w, i, waits + n, past, &n_past);
	see(w, FSDP_COMPUTE, waits, n);
	if (b->whole && b->learns && b->cut_states)
		past_wait(w, FSDP_COMPUTE, values_event(w, i), past,
			  &n_past); /* the other replicas' parts of the values are there */
	if (b->n_common && w->p->blocks[w->p->common].learns && w->p->blocks[w->p->common].cut_states)
		past_wait(w, FSDP_COMPUTE, values_event(w, w->p->common), past, &n_past); /* likewise of what is common */
	err = emit_layers(w, &op, waits, n, past, n_past);
	if (!err && ends_with_forward(w, b))
		err = release(w, i, w->train && b->kept_offset >= 0);
	if (!err)
		err = prefetch_at(w, FSDP_POST, i, false);
	if (!err && w->train && i == w->p->stats_block)
		err = stats(w);
	return err;
}

/* --- backward and update --- */

/* The gradients of a microbatch, or of all of them, are complete in their slot behind backward of block @last_writer: on their way
 * into the sum. */
static int reduce_block(struct walk *w, int i, int last_writer)
{
	const struct fsdp_block *b = &w->p->blocks[i];
	const int call = b->reduce_call[w->micro > 0 && b->reduce_call[1] >= 0];
	bool in_place = w->p->calls[call].in_place, last = plan_combines_last(w->p, b);
	struct fsdp_op op = { .kind = FSDP_REDUCE,
			      .queue = FSDP_REDUCEQ,
			      .block = i,
			      .acc = w->p->calls[call].acc,
			      .gives = -1,
			      .takes = -1,
			      .call = call };
	int wait = event(w, FSDP_BACKWARD, last_writer), err;

	err = emit(w, &op, &wait, 1, NULL, 0);
	w->stage[i] = w->last ? REDUCED : OPEN;
	w->freed_by[b->grad_slot] = op.records;
	if (!err && b->combine_call[0] >= 0 && (w->last || !last)) {
		op.kind = FSDP_COMBINE;
		op.queue = FSDP_REPLICAQ;
		op.acc = w->micro > 0 && !last;
		op.call = b->combine_call[op.acc];
		wait = event(w, FSDP_REDUCE, i); /* the shard's sum is there */
		err = emit(w, &op, &wait, 1, NULL, 0);
		if (in_place || fsdp_call_narrow(&w->p->calls[op.call])) /* it reads or writes the slot */
			w->freed_by[b->grad_slot] = op.records;
	}
	if (!err && w->last && b->share_call >= 0 && !b->cut_states) {
		wait = event(w, b->combine_call[0] >= 0 ? FSDP_COMBINE : FSDP_REDUCE, i); /* this replica's part is summed */
		op.kind = FSDP_SHARE;
		op.queue = FSDP_REPLICAQ;
		op.acc = false;
		op.call = b->share_call;
		err = emit(w, &op, &wait, 1, NULL, 0);
	}
	return err;
}

/* no block before it writes into what is common */
static bool ends_common(const struct fsdp_plan *p, int block)
{
	if (!p->blocks[block].common_learns)
		return false;
	for (int i = 0; i < block; i++)
		if (p->blocks[i].common_learns)
			return false;
	return true;
}

/* what backward of block @i has completed */
static int reduce_learning(struct walk *w, int i)
{
	int err = w->p->blocks[i].learns ? reduce_block(w, i, i) : 0;

	return err || !ends_common(w->p, i) ? err : reduce_block(w, w->p->common, i);
}

static int emit_input(struct walk *w, int i)
{
	struct fsdp_op op = { .kind = FSDP_INPUT,
			      .queue = FSDP_COMPUTE,
			      .block = i,
			      .values = w->p->blocks[i].backward_values,
			      .gives = -1,
			      .takes = -1,
			      .call = -1 };

	return emit(w, &op, NULL, 0, NULL, 0);
}

static int backward_block(struct walk *w, int i)
{
	const struct fsdp_block *b = &w->p->blocks[i];
	bool reads = plan_backward_reads(b), whole = plan_sums_whole(w->p), learns = b->learns || b->common_learns;
	bool reduces = learns && (!whole || w->last);
	struct fsdp_op op = { .kind = FSDP_BACKWARD,
			      .queue = FSDP_COMPUTE,
			      .block = i,
			      .values = b->backward_values,
			      .grads = learns,
			      .stays = learns && whole && !w->last,
			      .acc = learns && whole && w->micro > 0,
			      .call = -1 };
	int waits[3], n = 0;
	int err = 0;

	if (reads)
		err = need(w, i, true);
	if (!err)
		err = prefetch_at(w, FSDP_PRE, i, true);
	if (err)
		return err;
	if (b->backward_gather)
		waits[n++] = event(w, FSDP_GATHER, i); /* the values are there; a resident block's have been all along */
	if (b->learns && w->freed_by[b->grad_slot] >= 0)
		waits[n++] = w->freed_by[b->grad_slot]; /* the gradients before have left the slot */
	if (b->common_learns && w->freed_by[w->p->blocks[w->p->common].grad_slot] >= 0)
		waits[n++] = w->freed_by[w->p->blocks[w->p->common].grad_slot];
	err = emit_layers(w, &op, waits, n, NULL, 0);
	if (!err && reduces && b->goes_on)
		err = reduce_learning(w, i);
	if (!err && b->goes_on)
		err = emit_input(w, i);
	if (!err && reads && (w->last || !plan_keeps(w->p)))
		err = release(w, i, false);
	if (!err)
		err = prefetch_at(w, FSDP_POST, i, true);
	return err || !reduces || b->goes_on ? err : reduce_learning(w, i);
}

/* the last microbatch is in the sum, as far as this rank updates */
static int sum_event(const struct walk *w, int i)
{
	const struct fsdp_block *b = &w->p->blocks[i];

	return event(w,
		     b->share_call >= 0 && !b->cut_states ? FSDP_SHARE
		     : b->combine_call[0] >= 0		  ? FSDP_COMBINE
							  : FSDP_REDUCE,
		     i);
}

static int look_block(struct walk *w, int i)
{
	struct fsdp_op op = { .kind = FSDP_LOOK, .queue = FSDP_COMPUTE, .block = i, .gives = -1, .takes = -1, .call = -1 };
	int wait = sum_event(w, i);

	return emit(w, &op, &wait, 1, NULL, 0);
}

static int update_block(struct walk *w, int i)
{
	const struct fsdp_block *b = &w->p->blocks[i];
	struct fsdp_op op = { .kind = FSDP_UPDATE, .queue = FSDP_COMPUTE, .block = i, .gives = -1, .takes = -1, .call = -1 };
	int wait = sum_event(w, i);
	int err = emit(w, &op, &wait, 1, NULL, 0);

	w->stage[i] = UPDATED;
	if (err || b->share_call < 0 || !b->cut_states)
		return err;
	wait = op.records; /* this replica's part of the values is there */
	op.kind = FSDP_SHARE;
	op.queue = FSDP_REPLICAQ;
	op.call = b->share_call;
	return emit(w, &op, &wait, 1, NULL, 0);
}

/* what learns and is not updated, in the order in which it is reduced */
static int of_all(struct walk *w, int (*fn)(struct walk *w, int block))
{
	const struct fsdp_plan *p = w->p;
	int err = 0;

	for (int i = fsdp_plan_net_blocks(p) - 1; i >= 0 && !err; i--)
		if (p->blocks[i].learns && w->stage[i] != UPDATED)
			err = fn(w, i);
	return err || p->common < 0 || !p->blocks[p->common].learns || w->stage[p->common] == UPDATED ? err : fn(w, p->common);
}

/* Those that compute knows to be reduced, from what it has waited for: none of them holds it up. */
static int update_reduced(struct walk *w)
{
	int err = 0;

	for (int i = w->p->n_blocks - 1; i >= 0 && !err; i--) {
		const struct record *sum = &w->events[sum_event(w, i)];

		if (w->stage[i] == REDUCED && clock_covers(&w->queue[FSDP_COMPUTE], sum))
			err = update_block(w, i);
	}
	return err;
}

static int walk_ops(struct walk *w)
{
	const struct fsdp_plan *p = w->p;
	const int n = fsdp_plan_net_blocks(p);
	int64_t n_micro = w->train ? p->subdivisions : 1;
	int err = 0;

	for (int64_t m = 0; m < n_micro && !err; m++) {
		w->micro = (int)m;
		w->last = m == n_micro - 1;
		w->fresh = true;
		for (int i = 0; i < n && !err; i++)
			err = forward_block(w, i);
		for (int i = n - 1; i >= 0 && w->train && !err; i--)
			if (p->blocks[i].in_backward) {
				err = backward_block(w, i);
				if (!err && w->last && p->early)
					err = update_reduced(w);
			}
	}
	if (w->train && p->looks && !err)
		err = of_all(w, look_block);
	return err || !w->train ? err : of_all(w, update_block);
}

/* --- both schedules --- */

static void past_note(struct past *past, const struct walk *w, int n_events)
{
	past->exists = true;
	past->compute = w->queue[FSDP_COMPUTE];
	memcpy(past->events, w->events, (size_t)n_events * sizeof(*past->events)); /* host memory */
	for (int s = 0; s < w->limiter.n; s++)
		past->last_owner[s] = w->limiter.slots[s].owner;
}

static const struct clock nothing = { { -1, -1, -1, -1, -1 } };

/* Writes @s; then *@note (may be NULL) holds what it leaves behind. */
static int run_walk(const struct fsdp_plan *p, struct fsdp_schedule *s, const struct past *past, struct past *note)
{
	bool train = s == &p->step;
	int n_events = plan_n_events(p);
	struct walk w = { .p = p, .s = s, .past = past, .train = train, .sums = s != &p->eval };
	int err;

	s->n_ops = 0;
	for (int q = 0; q < FSDP_QUEUES; q++)
		w.queue[q] = w.seen[PAST_STEP][q] = w.seen[PAST_EVAL][q] = nothing;
	for (int k = 0; k < PASTS && past; k++)
		w.seen[k][FSDP_COMPUTE] = past[k].compute;
	err = fsdp_limiter_init(&w.limiter, p->n_slots);
	if (err)
		return err;
	err = -ENOMEM;
	w.events = dn_calloc((size_t)n_events, sizeof(*w.events));
	w.freed_by = dn_calloc((size_t)p->n_grad_slots, sizeof(*w.freed_by));
	w.stage = dn_calloc((size_t)p->n_blocks, sizeof(*w.stage));
	if (!w.events || !w.freed_by || !w.stage)
		goto out;
	for (int i = 0; i < p->n_grad_slots; i++)
		w.freed_by[i] = -1;
	err = walk_ops(&w);
	if (!err && note)
		past_note(note, &w, n_events);
out:
	dn_free(w.stage);
	dn_free(w.freed_by);
	dn_free(w.events);
	fsdp_limiter_fini(&w.limiter);
	return err;
}

static int past_init(struct past *past, const struct fsdp_plan *p)
{
	past->compute = nothing;
	past->events = dn_calloc((size_t)plan_n_events(p), sizeof(*past->events));
	past->last_owner = dn_calloc((size_t)p->n_slots, sizeof(*past->last_owner));
	return past->events && past->last_owner ? 0 : -ENOMEM;
}

/* Order and positions do not depend on waits, so a first draft of each tells what the other will find before
 * it. */
int plan_schedule(struct fsdp_plan *p, bool train)
{
	struct past past[PASTS] = { 0 };
	int err = 0;

	for (int k = 0; k < PASTS && !err; k++)
		err = past_init(&past[k], p);
	if (!err && train)
		err = run_walk(p, &p->step, NULL, &past[PAST_STEP]);
	if (!err)
		err = run_walk(p, &p->eval, NULL, &past[PAST_EVAL]);
	if (!err && train)
		err = run_walk(p, &p->step, past, NULL);
	if (!err)
		err = run_walk(p, &p->eval, past, NULL);
	if (!err && train)
		err = run_walk(p, &p->repeat, NULL, NULL); /* nothing lies before it that is not over */
	for (int k = 0; k < PASTS; k++) {
		dn_free(past[k].events);
		dn_free(past[k].last_owner);
	}
	return err;
}

/* --- how much is in flight, see NOTE(windows) --- */

struct sizes { /* of one window */
	int entries[FSDP_QUEUES];
	int *records; /* [n_events] */
};

static void window_end(struct fsdp_plan *p, struct sizes *now)
{
	for (int q = 0; q < FSDP_QUEUES; q++) {
		now->entries[q] += q != FSDP_EXCHANGEQ; /* compute: the mark of its end; the others: a count of what was sent */
		if (p->queue_entries[q] < FSDP_WINDOWS * now->entries[q])
			p->queue_entries[q] = FSDP_WINDOWS * now->entries[q];
		now->entries[q] = 0;
	}
	for (int e = 0; e < plan_n_events(p); e++) {
		if (p->event_records[e] < FSDP_WINDOWS * now->records[e])
			p->event_records[e] = FSDP_WINDOWS * now->records[e];
		now->records[e] = 0;
	}
}

static void sizes_of(struct fsdp_plan *p, const struct fsdp_schedule *s, struct sizes *now)
{
	for (int i = 0; i < s->n_ops; i++) {
		const struct fsdp_op *op = &s->ops[i];

		if (op->window && i)
			window_end(p, now);
		now->entries[op->queue] += plan_op_entries(op);
		now->records[op->records]++;
	}
	if (s->n_ops)
		window_end(p, now);
}

int plan_sizes(struct fsdp_plan *p)
{
	struct sizes now = { { 0 }, NULL };
	int err = 0;

	p->event_records = dn_calloc((size_t)plan_n_events(p), sizeof(*p->event_records));
	now.records = dn_calloc((size_t)plan_n_events(p), sizeof(*now.records));
	if (p->event_records && now.records) {
		sizes_of(p, &p->step, &now);
		sizes_of(p, &p->eval, &now);
		sizes_of(p, &p->repeat, &now);
	} else {
		err = -ENOMEM;
	}
	dn_free(now.records);
	return err;
}
