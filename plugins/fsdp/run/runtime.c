/* Carrying out a plan, operation by operation, in the order in which it stands.
 *
 * An operation of a communication queue is: stream waits for its waits, the task, a record. One of compute is split by
 * the layers: its waits before them, its record after them. Releases, statistics and updates have no layers.
 *
 * The host runs ahead of all queues. What it switches here, pointers of params and who holds a slot, tells the ops that are
 * queued next; those that are queued already have theirs.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "run/runtime.h"

/* --- the cursor --- */

static bool in_step(const struct fsdp_runtime *rt)
{
	return rt->pass == &rt->plan->step;
}

static int64_t *cursor_of(struct fsdp_runtime *rt)
{
	return in_step(rt) ? &rt->at : &rt->at_pass;
}

/* NULL at the end */
static const struct fsdp_op *next_op(struct fsdp_runtime *rt)
{
	return *cursor_of(rt) < rt->pass->n_ops ? &rt->pass->ops[*cursor_of(rt)] : NULL;
}

static const char *block_name(const struct fsdp_runtime *rt, int block)
{
	return rt->plan->blocks[block].name;
}

static int out_of_order(struct fsdp_runtime *rt, enum fsdp_op_kind kind, int block)
{
	const struct fsdp_op *op = next_op(rt);

	rt->broken = true;
	if (!op)
		return dn_fail(-EPROTO, "block %s: %s is called, but the plan of the %s ends here", block_name(rt, block),
			       fsdp_op_name(kind), in_step(rt) ? "step" : "pass");
	return dn_fail(-EPROTO, "block %s: %s is called, but the plan's next operation is %s of block %s (microbatch %d)",
		       block_name(rt, block), fsdp_op_name(kind), fsdp_op_name(op->kind), block_name(rt, op->block), op->micro);
}

static void note(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	if (rt->log && rt->n_log < rt->log_cap)
		rt->log[rt->n_log++] = *op;
	if (rt->stand && (op->kind == FSDP_FORWARD || op->kind == FSDP_BACKWARD || op->kind == FSDP_UPDATE))
		rt->stand(rt->stand_arg, fsdp_op_name(op->kind), block_name(rt, op->block));
}

static int wait_for(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	int err = 0;

	for (int i = 0; i < op->n_waits && !err; i++) {
		const int64_t from = op->queue == FSDP_COMPUTE ? dn_now_ns() : 0;

		err = rt->be->stream_wait(rt->queues[op->queue], rt->events[op->waits[i]]);
		if (!err && op->queue == FSDP_COMPUTE)
			fsdp_timeline_waited(&rt->timeline, op, op->waits[i], from, !in_step(rt));
	}
	return err;
}

static int record(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	return op->records < 0 ? 0 : rt->be->event_record(rt->events[op->records], rt->queues[op->queue]);
}

/* --- operations --- */

void *fsdp_runtime_at(const struct fsdp_runtime *rt, struct fsdp_place x)
{
	char *base = x.host ? rt->mem.host_staging : rt->mem.region[x.region];

	return x.bytes ? base + x.from : NULL;
}

static float *at(const struct fsdp_runtime *rt, struct fsdp_place x)
{
	return fsdp_runtime_at(rt, x);
}

static int bad_state(struct fsdp_runtime *rt, const struct fsdp_op *op, const char *state)
{
	rt->broken = true;
	return dn_fail(-EPROTO, "block %s: %s (microbatch %d) while it is %s", block_name(rt, op->block), fsdp_op_name(op->kind),
		       op->micro, state);
}

static const char *state_name(enum fsdp_block_state s)
{
	return s == FSDP_SHARDED ? "sharded" : s == FSDP_GATHERING ? "gathering" : "gathered";
}

static void point_values(struct fsdp_runtime *rt, int block, bool real)
{
	const struct fsdp_block *b = &rt->plan->blocks[block];
	float *slot = at(rt, fsdp_place_values(rt->plan, block));

	for (int t = b->first_tensor; t < b->first_tensor + b->n_tensors; t++) {
		const struct fsdp_tensor *ft = &rt->plan->tensors[t];

		rt->net->params[ft->param]->value = real ? slot + ft->offset : NULL;
	}
}

static int zero(struct fsdp_runtime *rt, struct fsdp_place x)
{
	return rt->be->zero(rt->queues[FSDP_COMPUTE], at(rt, x), x.bytes);
}

/* what is read before it is written anew shows, and what is read too late */
static int poison(struct fsdp_runtime *rt, struct fsdp_place x)
{
	if (!rt->plan->opt.debug.poison || !x.bytes)
		return 0;
	return rt->be->axpby(rt->queues[FSDP_COMPUTE], DN_F32, (int64_t)(x.bytes / sizeof(float)), NAN, at(rt, x), 0, at(rt, x));
}

static void point_grad(struct fsdp_runtime *rt, int tensor, bool real)
{
	const struct fsdp_tensor *t = &rt->plan->tensors[tensor];
	struct dn_param *p = rt->net->params[t->param];

	p->grad = real && !p->frozen ? at(rt, fsdp_place_grads(rt->plan, t->block)) + t->offset : NULL;
}

/* what lies in the block */
static void point_own(struct fsdp_runtime *rt, const struct fsdp_block *b, bool real)
{
	for (int t = b->first_tensor; t < b->first_tensor + b->n_tensors; t++)
		point_grad(rt, t, real);
}

static void point_common(struct fsdp_runtime *rt, const struct fsdp_block *b, bool real)
{
	for (int k = b->first_common; k < b->first_common + b->n_common; k++)
		point_grad(rt, rt->plan->commons[k], real);
}

/* Gaps travel in the reduction and stay zero in gradients and states; what is frozen has no place in the slot. */
static int begin_slot(struct fsdp_runtime *rt, int block, bool adds)
{
	const struct fsdp_block *b = &rt->plan->blocks[block];
	const struct fsdp_place slot = fsdp_place_grads(rt->plan, block);
	int err = adds ? 0 : poison(rt, slot);

	for (int g = b->first_gap; g < b->first_gap + b->n_gaps && !err && !adds; g++)
		if (rt->plan->gaps[g].offset < b->learning)
			err = zero(rt, fsdp_place_in_block(slot, rt->plan->gaps[g].offset, rt->plan->gaps[g].n));
	rt->blocks[block].grads_open = true;
	return err;
}

/* @adds: to what earlier microbatches have left there. */
static int open_grads(struct fsdp_runtime *rt, int block, bool adds)
{
	const struct fsdp_block *b = &rt->plan->blocks[block];
	int err = b->learns ? begin_slot(rt, block, adds) : 0;

	/* which stays open until the last block that has some of it */
	if (!err && b->common_learns && !rt->blocks[rt->plan->common].grads_open)
		err = begin_slot(rt, rt->plan->common, adds);
	point_own(rt, b, true);
	point_common(rt, b, true);
	for (int k = b->first; k <= b->last; k++)
		rt->net->layers[k].adds = adds;
	return err;
}

static void close_grads(struct fsdp_runtime *rt, int block)
{
	const struct fsdp_block *b = &rt->plan->blocks[block];

	point_own(rt, b, false);
	for (int k = b->first; k <= b->last; k++)
		rt->net->layers[k].adds = false;
	rt->blocks[block].grads_open = false;
}

/* see NOTE(windows) in plan.h; the mark of one window's end stands before the next one's first operation */
static int fence(struct fsdp_runtime *rt)
{
	int64_t w = rt->n_windows++;
	int err = w > 0 ? rt->be->event_record(rt->fences[(w - 1) % 2], rt->queues[FSDP_COMPUTE]) : 0;

	return err || w < 2 ? err : rt->be->event_wait(rt->fences[w % 2]);
}

/* every operation begins here, on the host */
static int begin(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	int err = 0;

	if (op->window && rt->barrier)
		err = fsdp_runtime_idle(rt);
	if (op->window && !err) {
		rt->barrier = false;
		err = fence(rt);
	}
	note(rt, op);
	return err;
}

/* a prepared operation, between its waits and its record */
static int call(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	int err = wait_for(rt, op);

	fsdp_timeline_queued(&rt->timeline, op, !in_step(rt));
	if (!err)
		err = rt->be->stream_submit(rt->queues[op->queue], &rt->tasks[op->call]);
	return err ? err : record(rt, op);
}

/* are all values of this rank's there, before the block is used for the first time? */
static int ready(struct fsdp_runtime *rt, int block)
{
	struct fsdp_block_run *b = &rt->blocks[block];
	int err = b->ready || !rt->check_ready ? 0 : rt->check_ready(rt->check_arg, block);

	b->ready = !err;
	return err;
}

static int do_gather(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	struct fsdp_block_run *b = &rt->blocks[op->block];
	int free_event, err;

	if (b->state != (op->rest ? FSDP_GATHERING : FSDP_SHARDED))
		return bad_state(rt, op, state_name(b->state));
	if (op->rest)
		return call(rt, op);
	err = ready(rt, op->block);
	if (err)
		return err;
	if (fsdp_limiter_admit(&rt->limiter, rt->plan->blocks[op->block].slot, op->block, &free_event))
		return bad_state(rt, op, "without a slot: another block holds it");
	b->state = FSDP_GATHERING;
	fsdp_timeline_hold(&rt->timeline, op->block, true);
	return call(rt, op);
}

/* this rank's part of a gathered block, out of the slot that goes to another one now: as it will be gathered again */
static int keep_part(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	const struct fsdp_block *b = &rt->plan->blocks[op->block];
	int err = 0;

	for (int k = 0; k < 2 && b->regather_call[k] >= 0 && !err; k++) {
		const struct fsdp_call *c = &rt->plan->calls[b->regather_call[k]];
		struct fsdp_place kept = fsdp_place_call(rt->plan, b->regather_call[k], false);
		struct fsdp_place all = fsdp_place_call(rt->plan, b->regather_call[k], true);

		err = rt->be->copy(rt->queues[FSDP_COMPUTE], at(rt, kept),
				   at(rt, fsdp_place_in_block(all, rt->rank % b->keeps * c->n, c->n)), kept.bytes);
	}
	return err;
}

static int do_release(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	struct fsdp_block_run *b = &rt->blocks[op->block];
	int err;

	if (b->state != FSDP_GATHERED)
		return bad_state(rt, op, state_name(b->state));
	point_values(rt, op->block, false);
	b->state = FSDP_SHARDED;
	fsdp_limiter_release(&rt->limiter, rt->plan->blocks[op->block].slot, op->block, op->records);
	err = wait_for(rt, op);
	fsdp_timeline_begin(&rt->timeline);
	if (!err && op->keeps)
		err = keep_part(rt, op);
	if (!err)
		err = poison(rt, fsdp_place_values(rt->plan, op->block));
	fsdp_timeline_end(&rt->timeline, op, !in_step(rt));
	fsdp_timeline_hold(&rt->timeline, op->block, false);
	return err ? err : record(rt, op);
}

static int do_reduce(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	if (!rt->blocks[op->block].grads_open)
		return bad_state(rt, op, "without gradients");
	close_grads(rt, op->block);
	return call(rt, op);
}

static int do_stats(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	rt->stats_micro = op->micro;
	return call(rt, op);
}

/* an operation without layers */
static int do_op(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	int err = begin(rt, op);

	if (err)
		return err;
	switch (op->kind) {
	case FSDP_GATHER:
		return do_gather(rt, op);
	case FSDP_RELEASE:
		return do_release(rt, op);
	case FSDP_REDUCE:
		return do_reduce(rt, op);
	case FSDP_STATS:
		return do_stats(rt, op);
	case FSDP_COMBINE:
	case FSDP_SHARE:
	case FSDP_EXCHANGE:
		return call(rt, op);
	default:
		return -EPROTO; /* not reached: the caller stops at these */
	}
}

static bool has_layers(const struct fsdp_op *op)
{
	return op->kind == FSDP_FORWARD || op->kind == FSDP_BACKWARD || op->kind == FSDP_INPUT;
}

static int of_store(struct fsdp_runtime *rt, const struct fsdp_op *op, int (*fn)(void *arg, int block), void *arg)
{
	int err = begin(rt, op);

	if (!err)
		err = wait_for(rt, op);
	fsdp_timeline_begin(&rt->timeline);
	if (!err)
		err = fn(arg, op->block);
	fsdp_timeline_end(&rt->timeline, op, false);
	return err ? err : record(rt, op);
}

/* carried out by a function of the store */
static bool is_stores(const struct fsdp_op *op)
{
	return op->kind == FSDP_UPDATE || op->kind == FSDP_LOOK;
}

/* all operations up to the next one that belongs to a call from outside */
static int run_ahead(struct fsdp_runtime *rt)
{
	const struct fsdp_op *op;
	int err = 0;

	while (!err && (op = next_op(rt)) && !has_layers(op) && (!is_stores(op) || (rt->update && op->kind == FSDP_UPDATE))) {
		(*cursor_of(rt))++;
		err = is_stores(op) ? of_store(rt, op, rt->update, rt->update_arg) : do_op(rt, op);
	}
	if (err)
		rt->broken = true;
	return err;
}

/* --- statistics --- */

/* The sum over ranks is there, or this rank's own statistics when it is alone. The mean goes back into the staging where the sum
 * is: backward still reads the layers' own. */
static int stats_then(void *arg, struct dn_stream *st)
{
	struct fsdp_runtime *rt = arg;
	const struct fsdp_plan *p = rt->plan;
	float *mean = at(rt, fsdp_place_stats_sum(p));
	int err = 0;

	if (p->grid.world > 1)
		err = rt->be->axpby(st, DN_F32, p->n_stats, 1.0f / (float)p->grid.world, mean, 0, mean);
	for (int k = 0; k < p->n_buffers && !err; k++)
		if (p->buffers[k].stat >= 0)
			err = rt->be->axpby(st, DN_F32, p->buffers[k].n, DN_ROLLING_NEW, mean + p->buffers[k].stat,
					    DN_ROLLING_KEEP, at(rt, fsdp_place_rolling(p, k)));
	return err;
}

int fsdp_runtime_stats(struct fsdp_runtime *rt)
{
	const struct fsdp_op *op = next_op(rt);
	int last = rt->at > 0 ? rt->plan->step.ops[rt->at - 1].micro : -1;

	if (!in_step(rt))
		return dn_fail(-EPROTO, "statistics are asked for after a pass that was not training");
	if (rt->plan->stats_block < 0 || rt->stats_micro == last)
		return 0;
	return out_of_order(rt, FSDP_STATS, op ? op->block : 0);
}

/* --- what was sent --- */

static int tally_step(void *arg)
{
	struct fsdp_tally *t = arg;

	for (int k = 0; k < FSDP_SENT_KINDS; k++) {
		t->last[k].bytes = t->sent[k].bytes - t->seen[k].bytes;
		t->last[k].calls = t->sent[k].calls - t->seen[k].calls;
		t->seen[k] = t->sent[k];
	}
	return 0;
}

static int tally_pass(void *arg)
{
	struct fsdp_tally *t = arg;

	for (int k = 0; k < FSDP_SENT_KINDS; k++)
		t->seen[k] = t->sent[k];
	return 0;
}

static bool works_on(const struct fsdp_schedule *s, int q)
{
	for (int i = 0; s->ops && i < s->n_ops; i++)
		if ((int)s->ops[i].queue == q)
			return true;
	return false;
}

/* Behind a schedule's last operation, on each queue that counts: the host may be further by then. A pass has nothing to count where it
 * has no operation, and no wait there would hold the host back until the queue is full. */
static int tally(struct fsdp_runtime *rt, bool step, const struct fsdp_schedule *pass)
{
	struct dn_task task = { .start = step ? tally_step : tally_pass, .label = "count of what was sent" };
	int err = 0;

	for (int q = FSDP_GATHERQ; q <= FSDP_REPLICAQ && !err; q++) {
		if (pass && !works_on(pass, q))
			continue;
		task.arg = &rt->tally[q];
		err = rt->queues[q] ? rt->be->stream_submit(rt->queues[q], &task) : 0;
	}
	return err;
}

struct fsdp_count fsdp_runtime_sent(const struct fsdp_runtime *rt, enum fsdp_sent what)
{
	struct fsdp_count sum = { 0, 0 };

	for (int q = 0; q < FSDP_QUEUES; q++) {
		sum.bytes += rt->tally[q].last[what].bytes;
		sum.calls += rt->tally[q].last[what].calls;
	}
	return sum;
}

/* --- hooks --- */

static int enter(struct fsdp_runtime *rt, enum fsdp_op_kind kind, int block)
{
	const struct fsdp_op *op;
	int err;

	if (rt->broken)
		return dn_fail(-EPROTO, "block %s: %s is called after an error in this step", block_name(rt, block),
			       fsdp_op_name(kind));
	err = run_ahead(rt);
	if (err)
		return err;
	op = next_op(rt);
	if (!op || op->kind != kind || op->block != block)
		return out_of_order(rt, kind, block);
	err = begin(rt, op);
	if (!err)
		err = wait_for(rt, op);
	if (err)
		rt->broken = true;
	fsdp_timeline_begin(&rt->timeline);
	return err;
}

/* the layers of the current operation are queued, up to @gives */
static int leave(struct fsdp_runtime *rt, enum fsdp_op_kind kind, int block, int gives)
{
	const struct fsdp_op *op = next_op(rt);
	int err;

	if (!op || op->kind != kind || op->block != block)
		return out_of_order(rt, kind, block);
	if (op->gives != gives) {
		rt->broken = true;
		return dn_fail(-EPROTO, "block %s: %s ends, but layer %d has not exchanged its %lld elements",
			       block_name(rt, block), fsdp_op_name(kind), rt->plan->sums[op->gives].layer,
			       (long long)rt->plan->sums[op->gives].n);
	}
	fsdp_timeline_end(&rt->timeline, op, !in_step(rt));
	err = record(rt, op);
	(*cursor_of(rt))++;
	if (!err)
		err = run_ahead(rt);
	if (err)
		rt->broken = true;
	return err;
}

/* A pass that is not a step's begins: no block of a step may be gathered. A repeated one, and any within a step, stands where no
 * plan foresees it, so it finds all queues empty. */
static int begin_pass(struct fsdp_runtime *rt)
{
	for (int i = 0; i < rt->plan->n_blocks; i++)
		if (rt->blocks[i].state != FSDP_SHARDED)
			return dn_fail(-EPROTO, "block %s: an evaluation begins while it is %s", block_name(rt, i),
				       state_name(rt->blocks[i].state));
	rt->barrier |= rt->pass == &rt->plan->repeat || (rt->at && rt->at < rt->plan->step.n_ops);
	return 0;
}

void fsdp_runtime_written(struct fsdp_runtime *rt)
{
	rt->stale = true;
}

/* What stands behind updates, where no update was: nothing else is under way, and it is not counted. */
static int refresh(struct fsdp_runtime *rt)
{
	const struct fsdp_plan *p = rt->plan;
	int err = p->n_masters ? fsdp_runtime_idle(rt) : 0;

	rt->stale = false;
	for (int i = 0; i < p->n_blocks && !err; i++) {
		const struct fsdp_op op = {
			.kind = FSDP_SHARE, .queue = FSDP_REPLICAQ, .block = i, .call = p->blocks[i].share_call, .records = -1
		};

		if (p->blocks[i].master_offset >= 0)
			err = call(rt, &op);
	}
	if (!err && p->n_masters)
		err = tally(rt, false, NULL);
	return err || !p->n_masters ? err : fsdp_runtime_idle(rt);
}

static int end_pass(struct fsdp_runtime *rt)
{
	rt->at_pass = 0;
	rt->barrier |= rt->pass == &rt->plan->repeat;
	return tally(rt, false, rt->pass);
}

int fsdp_runtime_before_forward(struct fsdp_runtime *rt, int block, enum dn_phase phase)
{
	struct fsdp_block_run *b = &rt->blocks[block];
	int err = 0;

	rt->pass = phase == DN_TRAIN ? &rt->plan->step : phase == DN_REPEAT ? &rt->plan->repeat : &rt->plan->eval;
	if (!in_step(rt) && rt->at_pass == 0)
		err = begin_pass(rt);
	if (!err && rt->stale && *cursor_of(rt) == 0)
		err = refresh(rt);
	if (!err)
		err = enter(rt, FSDP_FORWARD, block);
	if (!err && rt->plan->blocks[block].whole)
		err = ready(rt, block);
	if (!err && rt->plan->blocks[block].n_common)
		err = ready(rt, rt->plan->common);
	if (err || !next_op(rt)->values || rt->plan->blocks[block].whole)
		return err;
	if (b->state == FSDP_SHARDED)
		return bad_state(rt, next_op(rt), state_name(b->state));
	b->state = FSDP_GATHERED;
	point_values(rt, block, true);
	return 0;
}

int fsdp_runtime_after_forward(struct fsdp_runtime *rt, int block)
{
	int err = leave(rt, FSDP_FORWARD, block, -1);

	return err || in_step(rt) || next_op(rt) ? err : end_pass(rt);
}

/* The operation of the layers so far ends here; what stands next goes on, the exchange first; and the layers go on behind its
 * sum. The vector passes through memory whose place is planned: a layer's own may be anywhere. */
int fsdp_runtime_exchange(struct fsdp_runtime *rt, int layer, bool backward, enum dn_type type, void *x, int64_t n)
{
	enum fsdp_op_kind kind = backward ? FSDP_BACKWARD : FSDP_FORWARD;
	int block = rt->net->layers[layer].block->index, sum, err;
	struct dn_stream *compute = rt->queues[FSDP_COMPUTE];
	const struct fsdp_op *op;
	struct fsdp_place place;

	if (type != DN_F32)
		return dn_fail(-ENOTSUP, "layer %d: exchanges elements of type %s, this version sums f32", layer,
			       dn_type_name(type));
	if (rt->plan->grid.world == 1)
		return 0;
	op = next_op(rt);
	sum = op && op->kind == kind && op->block == block ? op->gives : -1;
	if (sum < 0 || rt->plan->sums[sum].layer != layer || rt->plan->sums[sum].n != n) {
		rt->broken = true;
		return dn_fail(-EPROTO, "layer %d: exchanges %lld elements in %s, which the plan has not foreseen there", layer,
			       (long long)n, fsdp_op_name(kind));
	}
	place = fsdp_place_sum(rt->plan, sum);
	err = rt->be->copy(compute, at(rt, place), x, place.bytes);
	if (!err)
		err = leave(rt, kind, block, sum);
	if (!err)
		err = enter(rt, kind, block);
	return err ? err : rt->be->copy(compute, x, at(rt, place), place.bytes);
}

int fsdp_runtime_before_backward(struct fsdp_runtime *rt, int block)
{
	struct fsdp_block_run *b = &rt->blocks[block];
	int err = enter(rt, FSDP_BACKWARD, block);

	if (err)
		return err;
	if (next_op(rt)->values && !rt->plan->blocks[block].whole) {
		if (b->state == FSDP_SHARDED)
			return bad_state(rt, next_op(rt), state_name(b->state));
		b->state = FSDP_GATHERED;
		point_values(rt, block, true);
	}
	return next_op(rt)->grads ? open_grads(rt, block, next_op(rt)->acc) : 0;
}

/* a microbatch's gradients, still in their slots: gaps are zero there */
static int look_at_slots(struct fsdp_runtime *rt, int block)
{
	const struct fsdp_block *b = &rt->plan->blocks[block];
	const struct dn_look_desc d = { 0 };
	int err = 0;

	if (b->learns)
		err = dn_net_look(rt->net, &d, block, false, false, b->learning, at(rt, fsdp_place_grads(rt->plan, block)));
	for (int k = b->first_common; k < b->first_common + b->n_common && !err; k++) {
		const struct dn_param *p = rt->net->params[rt->plan->tensors[rt->plan->commons[k]].param];

		if (p->grad)
			err = dn_net_look(rt->net, &d, block, false, false, p->n, p->grad);
	}
	return err;
}

/* the gradients of a microbatch are complete */
static int end_gradients(struct fsdp_runtime *rt, int block)
{
	const struct fsdp_block *b = &rt->plan->blocks[block];
	const struct fsdp_op *op = next_op(rt);

	if (rt->plan->looks) {
		int err = look_at_slots(rt, block);

		if (err)
			return err;
	}
	/* what has a reduction of its own behind it is closed by that */
	if (op && op->kind == FSDP_BACKWARD && op->block == block && op->grads && (op->stays || !b->learns))
		close_grads(rt, block);
	point_common(rt, b, false);
	return leave(rt, FSDP_BACKWARD, block, -1);
}

int fsdp_runtime_after_gradients(struct fsdp_runtime *rt, int block)
{
	int err;

	if (!rt->plan->blocks[block].goes_on)
		return 0;
	err = end_gradients(rt, block);
	return err ? err : enter(rt, FSDP_INPUT, block);
}

int fsdp_runtime_after_backward(struct fsdp_runtime *rt, int block)
{
	return rt->plan->blocks[block].goes_on ? leave(rt, FSDP_INPUT, block, -1) : end_gradients(rt, block);
}

/* --- a step --- */

int fsdp_runtime_begin(struct fsdp_runtime *rt, int64_t step)
{
	const struct fsdp_schedule *s = &rt->plan->step;

	if (!s->n_ops)
		return dn_fail(-EPROTO, "a step begins, but the plan is one of inference");
	if (rt->broken)
		return dn_fail(-EPROTO, "a step begins after one that ended with an error");
	if (rt->at != 0 && rt->at != s->n_ops)
		return dn_fail(-EPROTO, "a step begins, but the last one stopped before %s of block %s (microbatch %d)",
			       fsdp_op_name(s->ops[rt->at].kind), block_name(rt, s->ops[rt->at].block), s->ops[rt->at].micro);
	rt->pass = s;
	rt->at = 0;
	rt->stats_micro = -1;
	rt->update = NULL;
	fsdp_timeline_begin_step(&rt->timeline, step);
	return 0;
}

/* what is left of the step, up to @end of its operations that are the store's */
static int rest(struct fsdp_runtime *rt, enum fsdp_op_kind mine, enum fsdp_op_kind end, int (*fn)(void *arg, int block),
		void *arg)
{
	const struct fsdp_schedule *s = &rt->plan->step;
	int err = 0;

	while (!err && rt->at < s->n_ops && s->ops[rt->at].kind != end) {
		const struct fsdp_op *op = &s->ops[rt->at];

		if (has_layers(op) || (is_stores(op) && op->kind != mine))
			return dn_fail(-EPROTO,
				       "%s is asked for, but the plan's next operation is %s of block %s (microbatch %d)",
				       fsdp_op_name(mine), fsdp_op_name(op->kind), block_name(rt, op->block), op->micro);
		rt->at++;
		err = is_stores(op) ? of_store(rt, op, fn, arg) : do_op(rt, op);
	}
	return err;
}

int fsdp_runtime_look(struct fsdp_runtime *rt, int (*fn)(void *arg, int block), void *arg)
{
	int err = rt->broken ? dn_fail(-EPROTO, "a look at gradients after an error in this step")
			     : rest(rt, FSDP_LOOK, FSDP_UPDATE, fn, arg);

	if (err)
		rt->broken = true;
	return err;
}

void fsdp_runtime_ready(struct fsdp_runtime *rt, int (*fn)(void *arg, int block), void *arg)
{
	rt->update = fn;
	rt->update_arg = arg;
}

static int nothing_to_update(void *arg, int block)
{
	return 0;
}

/* The operations of the update are carried out without it: what they order, and what replicas tell each other, is as planned. */
int fsdp_runtime_skip(struct fsdp_runtime *rt)
{
	return fsdp_runtime_update(rt, nothing_to_update, NULL);
}

int fsdp_runtime_update(struct fsdp_runtime *rt, int (*fn)(void *arg, int block), void *arg)
{
	int err;

	if (rt->broken)
		return dn_fail(-EPROTO, "an update after an error in this step");
	err = rest(rt, FSDP_UPDATE, FSDP_OP_KINDS, fn, arg);
	rt->update = NULL;
	if (!err)
		err = tally(rt, true, NULL);
	if (err)
		rt->broken = true;
	return err;
}

int fsdp_runtime_idle(struct fsdp_runtime *rt)
{
	int err = 0;

	for (int q = 0; q < FSDP_QUEUES && !err; q++)
		if (rt->queues[q])
			err = rt->be->stream_sync(rt->queues[q]);
	return err;
}

/* --- set-up --- */

static int make_queue(struct fsdp_runtime *rt, enum fsdp_queue q)
{
	return rt->be->stream_create(rt->net->dev, DN_STREAM_COMM, fsdp_queue_name(q), rt->plan->queue_entries[q],
				     &rt->queues[q]);
}

static int make_event(struct fsdp_runtime *rt, int e)
{
	char name[96];

	if (e < 0 || rt->events[e])
		return 0;
	fsdp_plan_event_name(rt->plan, e, name, sizeof(name));
	return rt->be->event_create(rt->net->dev, name, rt->plan->event_records[e], &rt->events[e]);
}

static int make_events(struct fsdp_runtime *rt, const struct fsdp_schedule *s)
{
	int err = 0;

	for (int i = 0; i < s->n_ops && !err; i++) {
		err = make_event(rt, s->ops[i].records);
		for (int k = 0; k < s->ops[i].n_waits && !err; k++)
			err = make_event(rt, s->ops[i].waits[k]);
	}
	return err;
}

/* what carries out the calls of a lane */
static int make_coll(struct fsdp_runtime *rt, const struct fsdp_mesh *mesh, int lane)
{
	const struct fsdp_plan *p = rt->plan;
	const struct fsdp_lane *l = &p->lanes[lane];
	struct fsdp_coll_setup s = {
		.ch = mesh->channels[lane],
		.dev = rt->net->dev,
		.st = rt->queues[l->queue],
		.host_access = p->facts.host_access,
		.piece_bytes = l->memory.piece_bytes,
		.gather_piece_bytes = l->memory.gather_piece_bytes,
		.device = at(rt, fsdp_place_staging(p, lane, false)),
		.host = at(rt, fsdp_place_staging(p, lane, true)),
		.windows = mesh->windows,
		.lane = lane,
	};

	int err;

	for (int i = 0; i < p->n_calls; i++)
		if (p->calls[i].lane == lane && s.most < p->calls[i].n)
			s.most = p->calls[i].n;
	err = rt->coll_ops->open(&rt->colls[lane], &s);
	return err ? err : fsdp_format_open(&rt->formats[lane], rt->colls[lane]);
}

static void name_call(struct fsdp_runtime *rt, int i, const char *what)
{
	snprintf(rt->labels[i], sizeof(rt->labels[i]), "%s of block %s", what, block_name(rt, rt->plan->calls[i].block));
}

static struct fsdp_count *count_of(struct fsdp_runtime *rt, const struct fsdp_call *c)
{
	return &rt->tally[rt->plan->lanes[c->lane].queue].sent[fsdp_call_gathers(c) ? FSDP_SENT_VALUES : FSDP_SENT_GRADS];
}

static int make_gather(struct fsdp_runtime *rt, int i)
{
	const struct fsdp_call *c = &rt->plan->calls[i];
	const struct fsdp_gather a = {
		.shard = at(rt, fsdp_place_call(rt->plan, i, false)),
		.slot = at(rt, fsdp_place_call(rt->plan, i, true)),
		.n = c->n,
		.count = count_of(rt, c),
		.label = rt->labels[i],
	};

	name_call(rt, i, "gather");
	return fsdp_format_gather(rt->formats[c->lane], c->type, &a, &rt->tasks[i]);
}

/* this rank's equal part of the sum at rest, which is one part or all of them */
static struct fsdp_place part_of_sum(const struct fsdp_runtime *rt, int block)
{
	const struct fsdp_block *b = &rt->plan->blocks[block];
	struct fsdp_place sum = fsdp_place_part(rt->plan, block, DN_GRAD);
	int64_t n = b->shard_learning / b->replicas.size;

	return b->sum == n ? sum : fsdp_place_in_block(sum, fsdp_group_rank(&b->replicas, rt->rank) * n, n);
}

static int make_reduce(struct fsdp_runtime *rt, int i)
{
	const struct fsdp_call *c = &rt->plan->calls[i];
	bool two = rt->plan->blocks[c->block].combine_call[0] >= 0;
	const struct fsdp_reduce a = {
		.in = at(rt, fsdp_place_grads(rt->plan, c->block)),
		.out = at(rt, c->in_place ? fsdp_place_reduced(rt->plan, c->block, rt->rank)
			      : two	  ? fsdp_place_part(rt->plan, c->block, DN_GRAD)
					  : part_of_sum(rt, c->block)),
		.n = c->n,
		.acc = c->acc,
		.count = count_of(rt, c),
		.label = rt->labels[i],
	};

	name_call(rt, i, "reduce");
	return fsdp_format_reduce(rt->formats[c->lane], c->type, &a, at(rt, fsdp_place_packed(rt->plan, i, rt->rank)),
				  &rt->tasks[i]);
}

static int make_combine(struct fsdp_runtime *rt, int i)
{
	const struct fsdp_call *c = &rt->plan->calls[i];
	const struct fsdp_reduce a = {
		.in = at(rt, c->in_place ? fsdp_place_part(rt->plan, c->block, DN_GRAD)
					 : fsdp_place_reduced(rt->plan, c->block, rt->rank)),
		.out = at(rt, part_of_sum(rt, c->block)),
		.n = c->n,
		.acc = c->acc,
		.count = count_of(rt, c),
		.label = rt->labels[i],
	};

	name_call(rt, i, "combination over replicas");
	return fsdp_format_reduce(rt->formats[c->lane], c->type, &a, at(rt, fsdp_place_packed(rt->plan, i, rt->rank)),
				  &rt->tasks[i]);
}

static int make_share(struct fsdp_runtime *rt, int i)
{
	const struct fsdp_call *c = &rt->plan->calls[i];
	const struct fsdp_block *b = &rt->plan->blocks[c->block];
	struct fsdp_place all = c->sums ? fsdp_place_part(rt->plan, c->block, DN_GRAD) : fsdp_place_front(rt->plan, c->block);
	struct fsdp_place mine = fsdp_place_in_block(all, fsdp_group_rank(&b->replicas, rt->rank) * c->n, c->n);
	const struct fsdp_gather a = {
		.shard = at(rt, !c->sums && b->master_offset >= 0 ? fsdp_place_part(rt->plan, c->block, DN_VALUE) : mine),
		.slot = at(rt, all),
		.n = c->n,
		.count = count_of(rt, c),
		.label = rt->labels[i],
	};

	name_call(rt, i, c->sums ? "sharing of gradients" : "sharing of values");
	return fsdp_format_gather(rt->formats[c->lane], c->type, &a, &rt->tasks[i]);
}

static int make_stats(struct fsdp_runtime *rt, int i)
{
	const struct fsdp_call *c = &rt->plan->calls[i];
	const struct fsdp_exchange a = {
		.mine = at(rt, fsdp_place_stats(rt->plan)),
		.sum = at(rt, fsdp_place_stats_sum(rt->plan)),
		.n = c->n,
		.then = stats_then,
		.arg = rt,
		.label = rt->labels[i],
	};

	snprintf(rt->labels[i], sizeof(rt->labels[i]), "exchange of batch statistics up to block %s", block_name(rt, c->block));
	return rt->coll_ops->exchange(rt->colls[c->lane], &a, &rt->tasks[i]);
}

static int make_sum(struct fsdp_runtime *rt, int i)
{
	const struct fsdp_sum *x = &rt->plan->sums[i];
	float *place = at(rt, fsdp_place_sum(rt->plan, i));
	const struct fsdp_exchange a = { .mine = place, .sum = place, .n = x->n, .label = rt->labels[x->call] };

	snprintf(rt->labels[x->call], sizeof(rt->labels[0]), "exchange of layer %d in %s of block %s", x->layer,
		 x->backward ? "backward" : "forward", block_name(rt, x->block));
	return rt->coll_ops->exchange(rt->colls[rt->plan->sums_lane], &a, &rt->tasks[x->call]);
}

static int make_call(struct fsdp_runtime *rt, int i)
{
	switch (rt->plan->calls[i].kind) {
	case FSDP_GATHER:
		return make_gather(rt, i);
	case FSDP_REDUCE:
		return make_reduce(rt, i);
	case FSDP_COMBINE:
		return make_combine(rt, i);
	case FSDP_SHARE:
		return make_share(rt, i);
	case FSDP_STATS:
		return make_stats(rt, i);
	default:
		return 0; /* see make_sum() */
	}
}

static int make_calls(struct fsdp_runtime *rt, const struct fsdp_mesh *mesh)
{
	const struct fsdp_plan *p = rt->plan;
	int err = 0;

	rt->coll_ops = fsdp_coll_find(p->collectives);
	if (!rt->coll_ops)
		return -EINVAL;
	if (mesh->n_channels != p->n_lanes)
		return dn_fail(-EINVAL, "plan: of %d lanes, but %d channels are open", p->n_lanes, mesh->n_channels);
	rt->tasks = dn_calloc((size_t)p->n_calls, sizeof(*rt->tasks));
	rt->labels = dn_calloc((size_t)p->n_calls, sizeof(*rt->labels));
	rt->colls = dn_calloc((size_t)p->n_lanes, sizeof(struct fsdp_coll *));
	rt->formats = dn_calloc((size_t)p->n_lanes, sizeof(struct fsdp_format *));
	if (!rt->tasks || !rt->labels || !rt->colls || !rt->formats)
		return -ENOMEM;
	for (int i = 0; i < p->n_lanes && !err; i++)
		err = make_coll(rt, mesh, i);
	for (int i = 0; i < p->n_calls && !err; i++)
		err = make_call(rt, i);
	for (int i = 0; i < p->n_sums && !err; i++)
		err = make_sum(rt, i);
	for (int i = 0; i < p->n_calls && !err; i++)
		if (rt->tasks[i].start || rt->tasks[i].poll)
			fsdp_timeline_wrap(&rt->timeline, i, &rt->tasks[i]);
	return err;
}

/* Before the first use of each slot: without the work that would write it, what lies there has to be numbers all the same. */
static int fill_slots(struct fsdp_runtime *rt)
{
	static const enum dn_region slots[] = { DN_MEM_PARAM_SLOTS, DN_MEM_GRAD_SLOTS };
	const struct fsdp_debug *d = &rt->plan->opt.debug;
	int err = 0;

	for (int k = 0; k < 2 && !err; k++) {
		struct fsdp_place x = fsdp_place_all(rt->plan, slots[k], false);

		if (d->no_comm || d->no_compute)
			err = x.bytes ? zero(rt, x) : 0;
		else
			err = poison(rt, x);
	}
	return err || !(d->poison || d->no_comm || d->no_compute) ? err : rt->be->stream_sync(rt->queues[FSDP_COMPUTE]);
}

/* a queue without a lane has nothing to do, but those that are always asked for exist */
static bool has_queue(const struct fsdp_plan *p, enum fsdp_queue q)
{
	bool any = q == FSDP_GATHERQ || q == FSDP_REDUCEQ;

	for (int i = 0; i < p->n_lanes; i++)
		any |= p->lanes[i].queue == q;
	return any;
}

int fsdp_runtime_init(struct fsdp_runtime *rt, const struct fsdp_plan *plan, struct dn_net *net, const struct fsdp_mesh *mesh,
		      const struct fsdp_memory *mem)
{
	int err;

	memset(rt, 0, sizeof(*rt));
	rt->plan = plan;
	rt->net = net;
	rt->rank = mesh->rank;
	rt->be = net->dev->be;
	rt->mem = *mem;
	rt->stats_micro = -1;
	net->no_compute = plan->opt.debug.no_compute;
	rt->pass = &plan->step;
	rt->queues[FSDP_COMPUTE] = net->compute;
	if (plan->grid.world != mesh->world)
		return dn_fail(-EINVAL, "plan: of %d ranks, %d have come", plan->grid.world, mesh->world);
	rt->blocks = dn_calloc((size_t)plan->n_blocks, sizeof(*rt->blocks));
	rt->events = dn_calloc((size_t)(FSDP_OP_KINDS * plan->n_blocks), sizeof(*rt->events));
	if (!rt->blocks || !rt->events)
		return -ENOMEM;
	err = fsdp_timeline_init(&rt->timeline, plan, rt->rank);
	if (!err)
		err = fill_slots(rt);
	if (!err)
		err = fsdp_limiter_init(&rt->limiter, plan->n_slots);
	for (int q = FSDP_COMPUTE + 1; q < FSDP_QUEUES && !err; q++)
		if (has_queue(plan, (enum fsdp_queue)q))
			err = make_queue(rt, (enum fsdp_queue)q);
	for (int i = 0; i < 2 && !err; i++)
		err = rt->be->event_create(net->dev, "end of a microbatch", 1, &rt->fences[i]);
	if (!err)
		err = make_events(rt, &plan->step);
	if (!err)
		err = make_events(rt, &plan->eval);
	if (!err)
		err = make_events(rt, &plan->repeat);
	for (int i = 0; i < plan->n_blocks && !err; i++)
		if (plan->blocks[i].whole)
			point_values(rt, i, true);
	return err ? err : make_calls(rt, mesh);
}

void fsdp_runtime_stop(struct fsdp_runtime *rt)
{
	for (int q = FSDP_COMPUTE + 1; q < FSDP_QUEUES && rt->plan; q++) {
		rt->be->stream_destroy(rt->queues[q]);
		rt->queues[q] = NULL;
	}
}

void fsdp_runtime_fini(struct fsdp_runtime *rt)
{
	if (!rt->plan)
		return;
	fsdp_runtime_stop(rt);
	for (int e = 0; rt->events && e < FSDP_OP_KINDS * rt->plan->n_blocks; e++)
		rt->be->event_destroy(rt->events[e]);
	for (int i = 0; i < 2; i++)
		rt->be->event_destroy(rt->fences[i]);
	for (int i = 0; rt->formats && i < rt->plan->n_lanes; i++)
		fsdp_format_close(rt->formats[i]);
	for (int i = 0; rt->colls && i < rt->plan->n_lanes; i++)
		if (rt->colls[i])
			rt->coll_ops->close(rt->colls[i]);
	dn_free(rt->formats);
	dn_free(rt->colls);
	fsdp_timeline_fini(&rt->timeline); /* no thread looks at the clock any more */
	fsdp_limiter_fini(&rt->limiter);
	dn_free(rt->labels);
	dn_free(rt->tasks);
	dn_free(rt->events);
	dn_free(rt->blocks);
	memset(rt, 0, sizeof(*rt));
}
