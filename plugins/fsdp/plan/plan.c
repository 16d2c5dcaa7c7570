/* The plan: built in one go from shapes and options, the same on every rank; bytes per region, traffic,
 * hash. */
#include "plan/plan.h"

#include <errno.h>

#include "plan/plan_priv.h"

/* --- names --- */

const char *fsdp_op_name(enum fsdp_op_kind k)
{
	static const char *const names[] = {
		[FSDP_GATHER] = "gather", [FSDP_FORWARD] = "forward",	[FSDP_RELEASE] = "release", [FSDP_BACKWARD] = "backward",
		[FSDP_REDUCE] = "reduce", [FSDP_COMBINE] = "combine",	[FSDP_SHARE] = "share",	    [FSDP_UPDATE] = "update",
		[FSDP_STATS] = "stats",	  [FSDP_EXCHANGE] = "exchange", [FSDP_LOOK] = "look",	    [FSDP_INPUT] = "input",
	};

	return names[k];
}

const char *fsdp_queue_name(enum fsdp_queue q)
{
	static const char *const names[] = {
		[FSDP_COMPUTE] = "compute",  [FSDP_GATHERQ] = "gather",	    [FSDP_REDUCEQ] = "reduce",
		[FSDP_REPLICAQ] = "replica", [FSDP_EXCHANGEQ] = "exchange",
	};

	return names[q];
}

int fsdp_plan_event(const struct fsdp_plan *p, enum fsdp_op_kind kind, int block)
{
	return (int)kind * p->n_blocks + (kind == FSDP_STATS ? 0 : block);
}

void fsdp_plan_event_name(const struct fsdp_plan *p, int event, char *out, size_t cap)
{
	enum fsdp_op_kind kind = event / p->n_blocks;
	int block = kind == FSDP_STATS ? p->stats_block : event % p->n_blocks;

	snprintf(out, cap, "%s:%s", fsdp_op_name(kind), block < 0 ? "none" : p->blocks[block].name);
}

int fsdp_plan_block(const struct fsdp_plan *p, const struct dn_param *param)
{
	const int t = p->tensor_of_param[param->index];

	return t < 0 ? p->buffers[~t].block : p->tensors[t].block;
}

/* what is frozen beside what learns has no part of its own */
static bool tensor_cut(const struct fsdp_plan *p, int t, enum dn_part part)
{
	const struct fsdp_tensor *x = &p->tensors[t];
	const struct fsdp_block *b = &p->blocks[x->block];

	return plan_cut(b, part) && x->offset < b->learning;
}

void fsdp_plan_tensor(const struct fsdp_plan *p, int t, enum dn_part part, int rank, int64_t *at, int64_t *n, int64_t *from)
{
	const struct fsdp_tensor *x = &p->tensors[t];
	const struct fsdp_block *b = &p->blocks[x->block];
	bool still = x->offset >= b->learning, cut = tensor_cut(p, t, part);
	int64_t shard = still ? b->shard - b->shard_learning : b->shard_learning;
	/* what the rank owns, in the block's flat buffer */
	int64_t place = (still ? b->learning : 0) + fsdp_group_rank(&b->shards, rank) * shard;
	int64_t begin, end;

	if (cut)
		place += fsdp_group_rank(&b->replicas, rank) * b->part;
	begin = x->offset > place ? x->offset : place;
	end = place + (cut ? b->part : shard);
	if (end > x->offset + x->n)
		end = x->offset + x->n;
	if (begin >= end || (still && part != DN_VALUE)) {
		*at = *n = *from = 0;
		return;
	}
	*at = begin - x->offset;
	*n = end - begin;
	*from = begin - place + (still ? b->shard_learning : 0);
	if (part == DN_GRAD && cut && b->sum == b->shard_learning) /* its part lies where the shard's lies */
		*from += fsdp_group_rank(&b->replicas, rank) * b->part;
}

bool fsdp_plan_first(const struct fsdp_plan *p, int t, enum dn_part part, int rank)
{
	const struct fsdp_block *b = &p->blocks[p->tensors[t].block];

	return tensor_cut(p, t, part) || fsdp_group_rank(&b->replicas, rank) == 0;
}

bool fsdp_plan_writes(const struct fsdp_plan *p, const struct dn_param *param, enum dn_part part, int rank)
{
	int block = fsdp_plan_block(p, param);
	const struct fsdp_block *b = &p->blocks[block];

	if (param->role == DN_BUFFER)
		return rank == 0;
	return tensor_cut(p, p->tensor_of_param[param->index], part) ||
	       fsdp_group_rank(&b->replicas, rank) == block % b->replicas.size;
}

enum dn_type fsdp_plan_wire(const struct fsdp_plan *p)
{
	for (int i = 0; i < p->n_calls; i++)
		if (fsdp_call_gathers(&p->calls[i]) && fsdp_call_narrow(&p->calls[i]))
			return p->calls[i].type;
	return DN_F32;
}

/* --- bytes --- */

static int add_bytes(size_t *to, int64_t n, size_t size)
{
	size_t bytes;
	int err = dn_mul_size((size_t)n, size, &bytes);

	if (err)
		return err;
	if (bytes > SIZE_MAX - *to)
		return dn_fail(-EOVERFLOW, "plan: a region is larger than the address space");
	*to += bytes;
	return 0;
}

static int staging(struct fsdp_plan *p)
{
	int err = 0;

	for (int i = 0; i < p->n_lanes && !err; i++)
		err = fsdp_coll_memory(p->collectives, &p->lanes[i].needs, &p->lanes[i].memory);
	return err;
}

static int slot_bytes(size_t *to, const struct fsdp_slot *s, int n)
{
	int err = 0;

	for (int i = 0; i < n && !err; i++)
		err = add_bytes(to, s[i].elements, sizeof(float));
	return err;
}

static int sum_regions(const size_t *bytes, size_t *out)
{
	size_t sum = 0;

	for (int r = 0; r < DN_MEM_PLANNED; r++) {
		int err = add_bytes(&sum, 1, bytes[r]);

		if (err)
			return err;
	}
	*out = sum;
	return 0;
}

static int place_bytes(struct fsdp_plan *p, struct fsdp_place x)
{
	return x.bytes ? add_bytes(&p->planned[x.region], 1, x.bytes) : 0;
}

/* README.md of this plugin states this formula. Every rank needs the same: shards are equally long. */
static int regions(struct fsdp_plan *p, const struct dn_net *net)
{
	size_t *bytes = p->planned;
	size_t ring = 0;
	int err = staging(p);

	for (int i = 0; i < p->n_blocks && !err; i++)
		for (int part = DN_VALUE; part < DN_PARTS && !err; part++)
			err = place_bytes(p, fsdp_place_part(p, i, (enum dn_part)part));
	for (int i = 0; i < p->n_blocks && !err; i++)
		if (p->blocks[i].master_offset >= 0) /* beside what the copies have told each other */
			err = place_bytes(p, fsdp_place_shard(p, i));
	if (!err)
		err = slot_bytes(&bytes[DN_MEM_PARAM_SLOTS], p->slots, p->n_slots);
	if (!err)
		err = add_bytes(&bytes[DN_MEM_PARAM_SLOTS], p->n_kept, sizeof(float));
	if (!err)
		err = slot_bytes(&bytes[DN_MEM_GRAD_SLOTS], p->grad_slots, p->n_grad_slots);
	if (!err && net->opt.train)
		err = dn_loop_input_bytes(net, &ring);
	if (!err)
		err = add_bytes(&bytes[DN_MEM_ACTIVATIONS], 1, net->activations_bytes);
	if (!err)
		err = add_bytes(&bytes[DN_MEM_ACTIVATIONS], 1, ring);
	bytes[DN_MEM_WORKSPACE] = net->workspace_bytes;
	for (int k = 0; k < p->n_lanes && !err; k++) {
		err = place_bytes(p, fsdp_place_staging(p, k, false));
		if (!err)
			err = place_bytes(p, fsdp_place_staging(p, k, true));
	}
	if (!err)
		err = add_bytes(&bytes[DN_MEM_BUFFERS], p->n_rolling, sizeof(float));
	if (!err)
		err = add_bytes(&bytes[DN_MEM_BUFFERS], p->n_stats, sizeof(float));
	if (!err)
		err = add_bytes(&bytes[DN_MEM_BUFFERS], 1, net->carries_bytes);
	if (!err)
		err = sum_regions(p->planned, &p->total_bytes);
	if (!err)
		err = dn_whole_bytes(net, p->replicated);
	if (!err)
		err = sum_regions(p->replicated, &p->replicated_bytes);
	return err;
}

/* Sent per rank and step (inference: and pass): values on their way, and gradients. */
static void traffic(struct fsdp_plan *p)
{
	const struct fsdp_schedule *s = p->step.n_ops ? &p->step : &p->eval;

	for (int i = 0; i < s->n_ops; i++) {
		const struct fsdp_op *op = &s->ops[i];
		const struct fsdp_call *c = op->call < 0 ? NULL : &p->calls[op->call];

		if (c && fsdp_call_gathers(c)) {
			p->gather_bytes += c->sent_bytes;
			p->gather_calls++;
		} else if (c && fsdp_call_reduces(c)) {
			p->reduce_bytes += c->sent_bytes;
			p->reduce_calls++;
		}
	}
}

/* --- hash --- */

static int hash_layout(struct dn_buf *t, const struct fsdp_plan *p, const struct dn_net *net)
{
	int err = dn_buf_printf(
		t,
		"fsdp 3 strategy %s layout %s align %d world %d shards %d replicas %d subdivisions %lld states %d%s accumulate %s\n",
		fsdp_name_of(&fsdp_strategies, p->opt.strategy), fsdp_name_of(&fsdp_layouts, p->opt.layout), FSDP_ALIGN,
		p->grid.world, p->grid.shards, p->grid.replicas, (long long)p->subdivisions, p->n_states, p->ema ? " ema" : "",
		fsdp_name_of(&fsdp_accumulates, p->opt.accumulate));

	for (int i = 0; i < p->n_blocks && !err; i++) {
		const struct fsdp_block *b = &p->blocks[i];

		err = dn_buf_printf(
			t,
			"block %s %d-%d %s of %d %d padded %lld learning %lld shard %lld at %lld sum %lld at %lld part %lld at %lld slot "
			"%d %d kept %lld of %d master %lld\n",
			b->name, b->first, b->last, fsdp_name_of(&fsdp_strategies, (int)b->strategy), b->shards.size,
			b->replicas.size, (long long)b->padded, (long long)b->learning, (long long)b->shard,
			(long long)b->shard_offset, (long long)b->sum, (long long)b->grad_offset, (long long)b->part,
			(long long)b->state_offset, b->slot, b->grad_slot, (long long)b->kept_offset, b->keeps,
			(long long)b->master_offset);
		if (!err && b->recompute)
			err = dn_buf_printf(t, "recomputed in backward\n");
		if (!err && b->n_common)
			err = dn_buf_printf(t, "common");
		for (int k = b->first_common; k < b->first_common + b->n_common && !err; k++)
			err = dn_buf_printf(t, " %d%s", p->commons[k], k + 1 < b->first_common + b->n_common ? "" : "\n");
		for (int k = b->first_tensor; k < b->first_tensor + b->n_tensors && !err; k++)
			err = dn_buf_printf(t, "tensor %s %lld at %lld\n", net->params[p->tensors[k].param]->name,
					    (long long)p->tensors[k].n, (long long)p->tensors[k].offset);
		for (int k = b->first_buffer; k < b->first_buffer + b->n_buffers && !err; k++)
			err = dn_buf_printf(t, "buffer %s %lld at %lld stat %lld\n", net->params[p->buffers[k].param]->name,
					    (long long)p->buffers[k].n, (long long)p->buffers[k].offset,
					    (long long)p->buffers[k].stat);
	}
	for (int i = 0; i < p->n_slots && !err; i++)
		err = dn_buf_printf(t, "slot %lld+%lld\n", (long long)p->slots[i].offset, (long long)p->slots[i].elements);
	for (int i = 0; i < p->n_grad_slots && !err; i++)
		err = dn_buf_printf(t, "grad slot %lld+%lld\n", (long long)p->grad_slots[i].offset,
				    (long long)p->grad_slots[i].elements);
	return err;
}

static int hash_calls(struct dn_buf *t, const struct fsdp_plan *p)
{
	int err = dn_buf_printf(
		t, "collectives %s gather %s reduce %s %s\n", p->collectives, fsdp_name_of(&fsdp_wire_types, p->opt.wire.gather),
		fsdp_name_of(&fsdp_reduce_types, p->opt.wire.reduce), fsdp_name_of(&fsdp_reductions, p->opt.reduction));

	for (int i = 0; i < p->n_lanes && !err; i++)
		err = dn_buf_printf(t, "lane %d of %d by %d piece %zu\n", p->lanes[i].queue, p->lanes[i].group.size,
				    p->lanes[i].group.stride, p->lanes[i].memory.piece_bytes);

	for (int i = 0; i < p->n_sums && !err; i++)
		err = dn_buf_printf(t, "sum %d %d %lld\n", p->sums[i].layer, p->sums[i].backward, (long long)p->sums[i].n);
	for (int i = 0; i < p->n_calls && !err; i++) {
		const struct fsdp_call *c = &p->calls[i];

		err = dn_buf_printf(t, "call %d %d %d %d%d%d%d %s %lld %lld %lld %llu\n", c->kind, c->lane, c->block, c->acc,
				    c->in_place, c->kept, c->sums, dn_type_name(c->type), (long long)c->from, (long long)c->to,
				    (long long)c->n, (unsigned long long)c->sent_bytes);
	}
	return err;
}

static int hash_schedule(struct dn_buf *t, const struct fsdp_schedule *s, const char *name)
{
	int err = dn_buf_printf(t, "schedule %s\n", name);

	for (int i = 0; i < s->n_ops && !err; i++) {
		const struct fsdp_op *op = &s->ops[i];

		err = dn_buf_printf(t, "%d %d %d %d %d%d%d%d%d%d%d %d %d %d %d %d", op->kind, op->queue, op->block, op->micro,
				    op->window, op->backward, op->values, op->grads, op->stays, op->acc, op->keeps, op->part,
				    op->gives, op->takes, op->call, op->records);
		for (int k = 0; k < op->n_waits && !err; k++)
			err = dn_buf_printf(t, " %d", op->waits[k]);
		if (!err)
			err = dn_buf_add(t, "\n", 1);
	}
	return err;
}

/* Over a text without pointers and without what may differ between hosts (threads, workspace). */
static int hash(struct fsdp_plan *p, const struct dn_net *net)
{
	struct dn_buf t = { 0 };
	int err = hash_layout(&t, p, net);

	if (!err)
		err = hash_schedule(&t, &p->step, "step");
	if (!err)
		err = hash_schedule(&t, &p->eval, "eval");
	if (!err)
		err = hash_schedule(&t, &p->repeat, "repeat");
	if (!err)
		err = hash_calls(&t, p);
	if (!err)
		p->hash = dn_hash(t.s, t.n);
	dn_buf_fini(&t);
	return err;
}

/* --- build --- */

static bool wire_type(enum dn_type t)
{
	return t == DN_F32 || t == DN_BF16 || t == DN_F16;
}

static int check_arguments(const struct dn_net *net, const struct fsdp_options *o, int world, struct fsdp_grid *g)
{
	int err = fsdp_grid_init(g, world, 0);

	if (err)
		return err;
	if (net->opt.world != world)
		return dn_fail(-EINVAL, "plan: for %d ranks, but the net was built for %d", world, net->opt.world);
	if (!wire_type(o->wire.gather) || !wire_type(o->wire.reduce))
		return dn_fail(-EINVAL, "plan: no element type for gathers or reductions");
	if (o->limit < 1 || o->grad_slots < 0)
		return dn_fail(-EINVAL, "plan: limit is %d and grad_slots %d, both must be at least 1", o->limit, o->grad_slots);
	if (o->stay < 0)
		return dn_fail(-EINVAL, "plan: release=%d: of one part in so many nothing can stay", o->stay);
	if (o->depth < 0 || o->depth > o->limit - 1)
		return dn_fail(-EINVAL, "plan: depth is %d, must be from 0 to limit - 1 = %d", o->depth, o->limit - 1);
	return 0;
}

int fsdp_plan_build(struct fsdp_plan **out, const struct dn_net *net, const struct fsdp_options *o, int world)
{
	struct fsdp_plan *p;
	struct fsdp_grid grid;
	int err = check_arguments(net, o, world, &grid);

	if (err)
		return err;
	p = dn_zalloc(sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->grid = grid;
	p->opt = *o;
	p->opt.policy.list = p->opt.policy.text = NULL; /* borrowed, and done with */
	p->collectives = o->transport == FSDP_SHM ? "shm" : "channels";
	p->subdivisions = net->subdivisions;
	p->looks = net->opt.train && net->opt.looks;
	p->early = net->opt.train && net->opt.update_early;
	p->ema = net->opt.train && net->opt.ema;
	p->n_states = net->opt.train ? dn_state_count(net->hyper.optimizer) : 0;
	net->dev->be->facts(net->dev, &p->facts);
	err = plan_layout(p, net);
	if (!err)
		err = plan_schedule(p, net->opt.train);
	if (!err)
		err = plan_sizes(p);
	if (!err)
		err = regions(p, net);
	if (!err) {
		traffic(p);
		err = hash(p, net);
	}
	if (err) {
		fsdp_plan_destroy(p);
		return err;
	}
	*out = p;
	return 0;
}

void fsdp_plan_destroy(struct fsdp_plan *p)
{
	if (!p)
		return;
	dn_free(p->blocks);
	dn_free(p->tensors);
	dn_free(p->buffers);
	dn_free(p->calls);
	dn_free(p->lanes);
	dn_free(p->sums);
	dn_free(p->event_records);
	dn_free(p->gaps);
	dn_free(p->commons);
	dn_free(p->tensor_of_param);
	dn_free(p->slots);
	dn_free(p->grad_slots);
	dn_free(p->step.ops);
	dn_free(p->eval.ops);
	dn_free(p->repeat.ops);
	dn_free(p);
}
