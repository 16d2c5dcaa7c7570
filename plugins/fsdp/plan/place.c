/* Where bytes lie in the regions: the one set of functions that answers it, for whoever asks. Values at rest, gradients, states
 * and statistics are fp32 elements; so are slots, whatever type travels.
 */
#include "plan/plan_priv.h"

static struct fsdp_place place(enum dn_region r, int64_t offset, int64_t n)
{
	return (struct fsdp_place){ r, false, (size_t)offset * sizeof(float), (size_t)n * sizeof(float) };
}

static const struct fsdp_place nothing;

struct fsdp_place fsdp_place_all(const struct fsdp_plan *p, enum dn_region r, bool host)
{
	struct fsdp_place x = { r, host, 0, host ? 0 : p->planned[r] };

	if (r == DN_MEM_BUFFERS && !host) /* the net may have more there */
		return place(r, 0, p->n_rolling + p->n_stats);
	for (int i = 0; i < p->n_lanes && r == DN_MEM_STAGING; i++)
		x.bytes = host ? x.bytes + p->lanes[i].memory.host : x.bytes - p->lanes[i].memory.host;
	return x;
}

/* Where a collective begins: shards of values, and parts that stay after forward; what is gathered in 16 bits stands in its slot
 * before; gradients, and sums that are combined in place, but as numbers of 16 bits in their slot; what is shared. */
static bool begins_in(const struct fsdp_call *c, enum dn_region r)
{
	switch (c->kind) {
	case FSDP_GATHER:
		return r == (fsdp_call_narrow(c) || c->kept ? DN_MEM_PARAM_SLOTS : DN_MEM_PARAMS);
	case FSDP_SHARE:
		return r == (c->sums ? DN_MEM_GRADS : DN_MEM_PARAMS);
	case FSDP_COMBINE:
		return r == (c->in_place && !fsdp_call_narrow(c) ? DN_MEM_GRADS : DN_MEM_GRAD_SLOTS);
	case FSDP_REDUCE:
		return r == DN_MEM_GRAD_SLOTS;
	default:
		return false;
	}
}

bool fsdp_place_shared(const struct fsdp_plan *p, enum dn_region r)
{
	bool begins = false;

	for (int i = 0; i < p->n_calls; i++)
		begins |= begins_in(&p->calls[i], r);
	return begins && fsdp_plan_windows(p) && fsdp_place_all(p, r, false).bytes;
}

bool fsdp_plan_windows(const struct fsdp_plan *p)
{
	for (int i = 0; i < p->n_lanes; i++)
		if (p->lanes[i].memory.windows)
			return true;
	return false;
}

struct fsdp_place fsdp_place_shard(const struct fsdp_plan *p, int block)
{
	return place(DN_MEM_PARAMS, p->blocks[block].shard_offset, p->blocks[block].shard);
}

struct fsdp_place fsdp_place_part(const struct fsdp_plan *p, int block, enum dn_part part)
{
	const struct fsdp_block *b = &p->blocks[block];
	int state = (int)part - DN_STATE0;

	if (part == DN_VALUE)
		return b->master_offset < 0 ? fsdp_place_shard(p, block)
					    : place(DN_MEM_PARAMS, p->n_shards + b->master_offset, b->part);
	if (!b->learns)
		return nothing;
	if (part == DN_GRAD)
		return place(DN_MEM_GRADS, b->grad_offset, b->sum);
	if (part == DN_EMA)
		return p->ema ? place(DN_MEM_EMA, b->state_offset, b->part) : nothing;
	if (state >= p->n_states)
		return nothing;
	return place(DN_MEM_OPTIMIZER, state * p->n_parts + b->state_offset, b->part); /* a plane for each state */
}

struct fsdp_place fsdp_place_front(const struct fsdp_plan *p, int block)
{
	return fsdp_place_in_block(fsdp_place_shard(p, block), 0, p->blocks[block].shard_learning);
}

struct fsdp_place fsdp_place_updated(const struct fsdp_plan *p, int block)
{
	return p->blocks[block].master_offset < 0 ? fsdp_place_front(p, block) : fsdp_place_part(p, block, DN_VALUE);
}

struct fsdp_place fsdp_place_call(const struct fsdp_plan *p, int call, bool slot)
{
	const struct fsdp_call *c = &p->calls[call];
	struct fsdp_place x = c->kept ? fsdp_place_kept(p, c->block) : fsdp_place_shard(p, c->block);

	if (!slot)
		return fsdp_place_in_block(x, c->from, c->n);
	return fsdp_place_in_block(fsdp_place_values(p, c->block), c->to, c->n * p->lanes[c->lane].group.size);
}

struct fsdp_place fsdp_place_values(const struct fsdp_plan *p, int block)
{
	const struct fsdp_block *b = &p->blocks[block];

	if (b->whole)
		return fsdp_place_shard(p, block);
	return b->slot < 0 ? nothing : place(DN_MEM_PARAM_SLOTS, p->slots[b->slot].offset, b->padded);
}

struct fsdp_place fsdp_place_grads(const struct fsdp_plan *p, int block)
{
	const struct fsdp_block *b = &p->blocks[block];

	return b->grad_slot < 0 ? nothing : place(DN_MEM_GRAD_SLOTS, p->grad_slots[b->grad_slot].offset, b->learning);
}

struct fsdp_place fsdp_place_reduced(const struct fsdp_plan *p, int block, int rank)
{
	const struct fsdp_block *b = &p->blocks[block];
	int64_t from = p->opt.wire.reduce == DN_F32 ? fsdp_group_rank(&b->shards, rank) * b->shard_learning : b->learning / 2;

	return fsdp_place_in_block(fsdp_place_grads(p, block), from, b->shard_learning);
}

/* They begin where the floats did, except for sums at rest: those stay as they are, and the slot is free. */
struct fsdp_place fsdp_place_packed(const struct fsdp_plan *p, int i, int rank)
{
	const struct fsdp_call *c = &p->calls[i];
	struct fsdp_place x =
		c->kind == FSDP_COMBINE && !c->in_place ? fsdp_place_reduced(p, c->block, rank) : fsdp_place_grads(p, c->block);

	if (!fsdp_call_narrow(c))
		return nothing;
	x.bytes = (size_t)(p->lanes[c->lane].group.size * c->n) * dn_type_bytes(c->type);
	return x;
}

struct fsdp_place fsdp_place_kept(const struct fsdp_plan *p, int block)
{
	const struct fsdp_block *b = &p->blocks[block];

	if (b->kept_offset < 0)
		return nothing;
	return place(DN_MEM_PARAM_SLOTS, p->n_slots_end + b->kept_offset, b->padded / b->keeps);
}

struct fsdp_place fsdp_place_in_block(struct fsdp_place block, int64_t offset, int64_t n)
{
	block.from += (size_t)offset * sizeof(float);
	block.bytes = (size_t)n * sizeof(float);
	return block;
}

struct fsdp_place fsdp_place_rolling(const struct fsdp_plan *p, int b)
{
	return place(DN_MEM_BUFFERS, p->buffers[b].offset, p->buffers[b].n);
}

struct fsdp_place fsdp_place_all_rolling(const struct fsdp_plan *p)
{
	return p->n_rolling ? place(DN_MEM_BUFFERS, 0, p->n_rolling) : nothing;
}

struct fsdp_place fsdp_place_stat(const struct fsdp_plan *p, int b)
{
	if (p->buffers[b].stat < 0)
		return nothing;
	return place(DN_MEM_BUFFERS, p->n_rolling + p->buffers[b].stat, p->buffers[b].n);
}

struct fsdp_place fsdp_place_stats(const struct fsdp_plan *p)
{
	return place(DN_MEM_BUFFERS, p->n_rolling, p->n_stats);
}

struct fsdp_place fsdp_place_staging(const struct fsdp_plan *p, int lane, bool host)
{
	struct fsdp_place x = { DN_MEM_STAGING, host, 0, 0 };

	for (int i = 0; i <= lane; i++) {
		x.from += x.bytes;
		x.bytes = host ? p->lanes[i].memory.host : p->lanes[i].memory.device;
	}
	return x;
}

/* behind what comes from the others */
static struct fsdp_place sum_place(const struct fsdp_plan *p, int lane, int64_t n)
{
	struct fsdp_place x = fsdp_place_staging(p, lane, false);
	size_t bytes = (size_t)n * sizeof(float);

	x.from += (size_t)(p->lanes[lane].group.size - 1) * dn_up(bytes, DN_ALIGN);
	x.bytes = bytes;
	return x;
}

struct fsdp_place fsdp_place_stats_sum(const struct fsdp_plan *p)
{
	return p->grid.world == 1 ? fsdp_place_stats(p) : sum_place(p, p->stats_lane, p->n_stats);
}

struct fsdp_place fsdp_place_sum(const struct fsdp_plan *p, int i)
{
	return sum_place(p, p->sums_lane, p->sums[i].n);
}
