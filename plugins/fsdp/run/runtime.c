/* Carrying out a plan, operation by operation, in the order in which it stands.
 *
 * An operation of a communication queue is: stream waits for its waits, the task, a record. One of compute is split by
 * the layers: its waits before them, its record after them. Releases, statistics and updates have no layers.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "run/runtime.h"

/* --- the cursor --- */

static bool in_step(const struct fsdp_runtime *rt)
{
	return rt->training;
}

static const struct fsdp_schedule *schedule_of(const struct fsdp_runtime *rt)
{
	return in_step(rt) ? &rt->plan->step : &rt->plan->eval;
}

static int64_t *cursor_of(struct fsdp_runtime *rt)
{
	return in_step(rt) ? &rt->at : &rt->at_eval;
}

/* NULL at the end */
static const struct fsdp_op *next_op(struct fsdp_runtime *rt)
{
	const struct fsdp_schedule *s = schedule_of(rt);

	return *cursor_of(rt) < s->n_ops ? &s->ops[*cursor_of(rt)] : NULL;
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

	for (int i = 0; i < op->n_waits && !err; i++)
		err = rt->be->stream_wait(rt->queues[op->queue], rt->events[op->waits[i]]);
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

/* Gaps travel in the reduction and stay zero in gradients and states; frozen tensors get no gradient written. */
static int open_grads(struct fsdp_runtime *rt, int block)
{
	const struct fsdp_block *b = &rt->plan->blocks[block];
	const struct fsdp_place slot = fsdp_place_grads(rt->plan, block);
	int err = 0;

	for (int g = b->first_gap; g < b->first_gap + b->n_gaps && !err; g++)
		err = zero(rt, fsdp_place_in_block(slot, rt->plan->gaps[g].offset, rt->plan->gaps[g].n));
	for (int t = b->first_tensor; t < b->first_tensor + b->n_tensors && !err; t++) {
		const struct fsdp_tensor *ft = &rt->plan->tensors[t];
		struct dn_param *p = rt->net->params[ft->param];

		if (p->frozen)
			err = zero(rt, fsdp_place_in_block(slot, ft->offset, ft->n));
		else
			p->grad = at(rt, slot) + ft->offset;
	}
	rt->blocks[block].grads_open = true;
	return err;
}

static void close_grads(struct fsdp_runtime *rt, int block)
{
	const struct fsdp_block *b = &rt->plan->blocks[block];

	for (int t = b->first_tensor; t < b->first_tensor + b->n_tensors; t++)
		rt->net->params[rt->plan->tensors[t].param]->grad = NULL;
	rt->blocks[block].grads_open = false;
}

static int do_gather(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	struct fsdp_block_run *b = &rt->blocks[op->block];
	const struct dn_task task = { fsdp_gather_start, fsdp_gather_poll, fsdp_gather_describe, &b->gather, b->gather_label };
	int free_event, err;

	if (b->state != FSDP_SHARDED)
		return bad_state(rt, op, state_name(b->state));
	if (!b->ready) {
		err = rt->check_ready ? rt->check_ready(rt->check_arg, op->block) : 0;
		if (err)
			return err;
		b->ready = true;
	}
	if (fsdp_limiter_admit(&rt->limiter, rt->plan->blocks[op->block].slot, op->block, &free_event))
		return bad_state(rt, op, "without a slot: another block holds it");
	b->state = FSDP_GATHERING;
	err = wait_for(rt, op);
	if (!err)
		err = rt->be->stream_submit(rt->queues[FSDP_GATHERQ], &task);
	return err ? err : record(rt, op);
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
	return err ? err : record(rt, op);
}

static int do_reduce(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	struct fsdp_block_run *b = &rt->blocks[op->block];
	const struct dn_task task = { fsdp_reduce_start, fsdp_reduce_poll, fsdp_reduce_describe, &b->reduce, b->reduce_label };
	int err;

	if (!b->grads_open)
		return bad_state(rt, op, "without gradients");
	close_grads(rt, op->block);
	if (!rt->be->event_done(rt->events[op->records])) /* its struct is still in use: the plan lacks a wait */
		return bad_state(rt, op, "reducing");
	b->reduce.acc = op->acc;
	err = wait_for(rt, op);
	if (!err)
		err = rt->be->stream_submit(rt->queues[FSDP_REDUCEQ], &task);
	return err ? err : record(rt, op);
}

static int do_stats(struct fsdp_runtime *rt, const struct fsdp_op *op);

/* an operation without layers */
static int do_op(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	note(rt, op);
	switch (op->kind) {
	case FSDP_GATHER:
		return do_gather(rt, op);
	case FSDP_RELEASE:
		return do_release(rt, op);
	case FSDP_REDUCE:
		return do_reduce(rt, op);
	case FSDP_STATS:
		return do_stats(rt, op);
	default:
		return -EPROTO; /* not reached: the caller stops at these */
	}
}

/* all operations up to the next one that belongs to a call from outside */
static int run_ahead(struct fsdp_runtime *rt)
{
	const struct fsdp_op *op;
	int err = 0;

	while (!err && (op = next_op(rt)) && op->kind != FSDP_FORWARD && op->kind != FSDP_BACKWARD && op->kind != FSDP_UPDATE) {
		(*cursor_of(rt))++;
		err = do_op(rt, op);
	}
	if (err)
		rt->broken = true;
	return err;
}

/* --- statistics --- */

static int stats_start(void *arg)
{
	struct fsdp_stats_run *s = arg;

	return fsdp_exchange_start(&s->x);
}

/* The mean over ranks goes into the staging behind the others' statistics: backward still reads the layers' own. */
static int stats_apply(struct fsdp_stats_run *s)
{
	struct fsdp_runtime *rt = s->rt;
	struct dn_stream *st = rt->queues[FSDP_REDUCEQ];
	int world = rt->plan->grid.world, err = 0;
	int64_t n = rt->plan->n_stats;
	const float *stats = at(rt, fsdp_place_stats(rt->plan)), *mean = stats;
	float *sum;

	if (world > 1) {
		const struct dn_parts parts = { DN_F32, world, rt->rank, stats, s->x.in, (size_t)n * sizeof(float) };

		sum = s->x.in + (world - 1) * n;
		err = rt->be->sum_tree(st, n, &parts, sum, false);
		if (!err)
			err = rt->be->axpby(st, DN_F32, n, 1.0f / (float)world, sum, 0, sum);
		mean = sum;
	}
	for (int i = 0; i < rt->net->n_params && !err; i++) {
		struct dn_param *p = rt->net->params[i];

		if (p->stat)
			err = rt->be->axpby(st, DN_F32, p->n, DN_ROLLING_NEW, mean + (p->stat - stats), DN_ROLLING_KEEP, p->value);
	}
	return err;
}

static int stats_poll(void *arg, bool *done)
{
	struct fsdp_stats_run *s = arg;
	int err = fsdp_exchange_poll(&s->x, done);

	return err || !*done ? err : stats_apply(s);
}

static void stats_describe(void *arg, char *out, size_t cap)
{
	fsdp_exchange_describe(&((struct fsdp_stats_run *)arg)->x, out, cap);
}

static int do_stats(struct fsdp_runtime *rt, const struct fsdp_op *op)
{
	const struct dn_task task = { stats_start, stats_poll, stats_describe, &rt->stats, rt->stats.label };
	int err;

	rt->stats_micro = op->micro;
	err = wait_for(rt, op);
	if (!err)
		err = rt->be->stream_submit(rt->queues[FSDP_REDUCEQ], &task);
	return err ? err : record(rt, op);
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
	note(rt, op);
	err = wait_for(rt, op);
	if (err)
		rt->broken = true;
	return err;
}

/* the layers of the current operation are queued */
static int leave(struct fsdp_runtime *rt, enum fsdp_op_kind kind, int block)
{
	const struct fsdp_op *op = next_op(rt);
	int err;

	if (!op || op->kind != kind || op->block != block)
		return out_of_order(rt, kind, block);
	err = record(rt, op);
	(*cursor_of(rt))++;
	if (!err)
		err = run_ahead(rt);
	if (err)
		rt->broken = true;
	return err;
}

int fsdp_runtime_before_forward(struct fsdp_runtime *rt, int block, bool training)
{
	struct fsdp_block_run *b = &rt->blocks[block];
	int err;

	rt->training = training;
	if (!in_step(rt) && rt->at_eval == 0)
		for (int i = 0; i < rt->plan->n_blocks; i++)
			if (rt->blocks[i].state != FSDP_SHARDED)
				return dn_fail(-EPROTO, "block %s: an evaluation begins while it is %s", block_name(rt, i),
					       state_name(rt->blocks[i].state));
	err = enter(rt, FSDP_FORWARD, block);
	if (err || !next_op(rt)->values)
		return err;
	if (b->state == FSDP_SHARDED)
		return bad_state(rt, next_op(rt), state_name(b->state));
	b->state = FSDP_GATHERED;
	point_values(rt, block, true);
	return 0;
}

int fsdp_runtime_after_forward(struct fsdp_runtime *rt, int block)
{
	int err = leave(rt, FSDP_FORWARD, block);

	if (!err && !in_step(rt) && !next_op(rt))
		rt->at_eval = 0; /* the pass is over */
	return err;
}

int fsdp_runtime_before_backward(struct fsdp_runtime *rt, int block)
{
	struct fsdp_block_run *b = &rt->blocks[block];
	int err = enter(rt, FSDP_BACKWARD, block);

	if (err)
		return err;
	if (next_op(rt)->values) {
		if (b->state == FSDP_SHARDED)
			return bad_state(rt, next_op(rt), state_name(b->state));
		b->state = FSDP_GATHERED;
		point_values(rt, block, true);
	}
	return next_op(rt)->grads ? open_grads(rt, block) : 0;
}

int fsdp_runtime_after_backward(struct fsdp_runtime *rt, int block)
{
	return leave(rt, FSDP_BACKWARD, block);
}

/* --- a step --- */

int fsdp_runtime_begin(struct fsdp_runtime *rt)
{
	const struct fsdp_schedule *s = &rt->plan->step;

	if (!s->n_ops)
		return dn_fail(-EPROTO, "a step begins, but the plan is one of inference");
	if (rt->broken)
		return dn_fail(-EPROTO, "a step begins after one that ended with an error");
	if (rt->at != 0 && rt->at != s->n_ops)
		return dn_fail(-EPROTO, "a step begins, but the last one stopped before %s of block %s (microbatch %d)",
			       fsdp_op_name(s->ops[rt->at].kind), block_name(rt, s->ops[rt->at].block), s->ops[rt->at].micro);
	rt->at = 0;
	rt->stats_micro = -1;
	return 0;
}

int fsdp_runtime_update(struct fsdp_runtime *rt, int (*fn)(void *arg, int block), void *arg)
{
	const struct fsdp_schedule *s = &rt->plan->step;
	int err = 0;

	if (rt->broken)
		return dn_fail(-EPROTO, "an update after an error in this step");
	while (!err && rt->at < s->n_ops) {
		const struct fsdp_op *op = &s->ops[rt->at];

		if (op->kind != FSDP_UPDATE)
			return dn_fail(-EPROTO,
				       "an update is asked for, but the plan's next operation is %s of block %s "
				       "(microbatch %d)",
				       fsdp_op_name(op->kind), block_name(rt, op->block), op->micro);
		rt->at++;
		note(rt, op);
		err = wait_for(rt, op);
		if (!err)
			err = fn(arg, op->block);
		if (!err)
			err = record(rt, op);
	}
	if (err)
		rt->broken = true;
	return err;
}

int fsdp_runtime_idle(struct fsdp_runtime *rt)
{
	int err = rt->be->stream_sync(rt->queues[FSDP_GATHERQ]);

	return err ? err : rt->be->stream_sync(rt->queues[FSDP_REDUCEQ]);
}

/* --- set-up --- */

static int make_event(struct fsdp_runtime *rt, int e)
{
	char name[96];

	if (e < 0 || rt->events[e])
		return 0;
	fsdp_plan_event_name(rt->plan, e, name, sizeof(name));
	return rt->be->event_create(rt->net->dev, name, &rt->events[e]);
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

static int make_block(struct fsdp_runtime *rt, int i, struct fsdp_channel *gather, struct fsdp_channel *reduce)
{
	const struct fsdp_block *pb = &rt->plan->blocks[i];
	struct fsdp_block_run *b = &rt->blocks[i];
	int err;

	snprintf(b->gather_label, sizeof(b->gather_label), "gather of block %s", pb->name);
	snprintf(b->reduce_label, sizeof(b->reduce_label), "reduce of block %s", pb->name);
	if (!pb->gathered)
		return 0;
	err = fsdp_gather_init(&b->gather, gather, pb->shard);
	if (err)
		return err;
	b->gather.len = pb->shard;
	b->gather.shard = at(rt, fsdp_place_part(rt->plan, i, DN_VALUE));
	b->gather.slot = at(rt, fsdp_place_values(rt->plan, i));
	b->gather.count = &rt->gathered;
	if (!pb->learns)
		return 0;
	err = fsdp_reduce_init(&b->reduce, reduce, rt->be, rt->queues[FSDP_REDUCEQ],
			       at(rt, fsdp_place_staging(rt->plan, FSDP_STAGE_REDUCE, false)), rt->plan->coll.piece_bytes);
	if (err)
		return err;
	b->reduce.len = pb->shard;
	b->reduce.in = at(rt, fsdp_place_grads(rt->plan, i));
	b->reduce.out = at(rt, fsdp_place_part(rt->plan, i, DN_GRAD));
	b->reduce.count = &rt->reduced;
	return 0;
}

static int make_stats(struct fsdp_runtime *rt, struct fsdp_channel *reduce)
{
	if (!rt->plan->n_stats)
		return 0;
	rt->stats.rt = rt;
	snprintf(rt->stats.label, sizeof(rt->stats.label), "exchange of batch statistics up to block %s",
		 rt->plan->blocks[rt->plan->stats_block].name);
	return fsdp_exchange_init(&rt->stats.x, reduce, at(rt, fsdp_place_stats(rt->plan)),
				  at(rt, fsdp_place_staging(rt->plan, FSDP_STAGE_STATS, false)), rt->plan->n_stats);
}

int fsdp_runtime_init(struct fsdp_runtime *rt, const struct fsdp_plan *plan, struct dn_net *net, struct fsdp_channel *gather,
		      struct fsdp_channel *reduce, const struct fsdp_memory *mem)
{
	int err;

	memset(rt, 0, sizeof(*rt));
	rt->plan = plan;
	rt->net = net;
	rt->rank = gather->rank;
	rt->shard_rank = fsdp_shard_rank(&plan->grid, rt->rank);
	rt->replica_rank = fsdp_replica_rank(&plan->grid, rt->rank);
	rt->be = net->dev->be;
	rt->mem = *mem;
	rt->stats_micro = -1;
	rt->queues[FSDP_COMPUTE] = net->compute;
	rt->blocks = dn_calloc((size_t)plan->n_blocks, sizeof(*rt->blocks));
	rt->events = dn_calloc((size_t)(FSDP_OP_KINDS * plan->n_blocks), sizeof(*rt->events));
	if (!rt->blocks || !rt->events)
		return -ENOMEM;
	err = fsdp_limiter_init(&rt->limiter, plan->n_slots);
	if (!err)
		err = rt->be->stream_create(net->dev, DN_STREAM_COMM, "gather", &rt->queues[FSDP_GATHERQ]);
	if (!err)
		err = rt->be->stream_create(net->dev, DN_STREAM_COMM, "reduce", &rt->queues[FSDP_REDUCEQ]);
	if (!err)
		err = make_events(rt, &plan->step);
	if (!err)
		err = make_events(rt, &plan->eval);
	for (int i = 0; i < plan->n_blocks && !err; i++)
		err = make_block(rt, i, gather, reduce);
	return err ? err : make_stats(rt, reduce);
}

void fsdp_runtime_fini(struct fsdp_runtime *rt)
{
	if (!rt->plan)
		return;
	for (int q = FSDP_GATHERQ; q < FSDP_QUEUES; q++)
		rt->be->stream_destroy(rt->queues[q]);
	for (int e = 0; rt->events && e < FSDP_OP_KINDS * rt->plan->n_blocks; e++)
		rt->be->event_destroy(rt->events[e]);
	for (int i = 0; rt->blocks && i < rt->plan->n_blocks; i++) {
		fsdp_gather_fini(&rt->blocks[i].gather);
		fsdp_reduce_fini(&rt->blocks[i].reduce);
	}
	fsdp_exchange_fini(&rt->stats.x);
	fsdp_limiter_fini(&rt->limiter);
	dn_free(rt->events);
	dn_free(rt->blocks);
	memset(rt, 0, sizeof(*rt));
}
