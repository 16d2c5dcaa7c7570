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

/* where collectives begin: shards of values, gradients; sums that are combined in place or shared; parts that stay after forward */
bool fsdp_place_shared(const struct fsdp_plan *p, enum dn_region r)
{
	bool begins = r == DN_MEM_PARAMS || r == DN_MEM_GRAD_SLOTS || (r == DN_MEM_PARAM_SLOTS && p->n_kept);

	for (int i = 0; i < p->n_calls && r == DN_MEM_GRADS; i++)
		begins |= p->calls[i].sums || (p->calls[i].kind == FSDP_COMBINE && p->calls[i].in_place);
	return begins && fsdp_plan_windows(p) && fsdp_place_all(p, r, false).bytes;
}

bool fsdp_plan_windows(const struct fsdp_plan *p)
{
	for (int i = 0; i < p->n_lanes; i++)
		if (p->lanes[i].memory.windows)
			return true;
	return false;
}

struct fsdp_place fsdp_place_part(const struct fsdp_plan *p, int block, enum dn_part part)
{
	const struct fsdp_block *b = &p->blocks[block];
	int state = (int)part - DN_STATE0;

	if (part == DN_VALUE)
		return place(DN_MEM_PARAMS, b->shard_offset, b->shard);
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

struct fsdp_place fsdp_place_learning(const struct fsdp_plan *p, int block)
{
	return fsdp_place_in_block(fsdp_place_part(p, block, DN_VALUE), 0, p->blocks[block].shard_learning);
}

struct fsdp_place fsdp_place_call(const struct fsdp_plan *p, int call, bool slot)
{
	const struct fsdp_call *c = &p->calls[call];
	struct fsdp_place x = c->kept ? fsdp_place_kept(p, c->block) : fsdp_place_part(p, c->block, DN_VALUE);

	if (!slot)
		return fsdp_place_in_block(x, c->from, c->n);
	return fsdp_place_in_block(fsdp_place_values(p, c->block), c->to, c->n * p->lanes[c->lane].group.size);
}

struct fsdp_place fsdp_place_values(const struct fsdp_plan *p, int block)
{
	const struct fsdp_block *b = &p->blocks[block];

	if (b->whole)
		return fsdp_place_part(p, block, DN_VALUE);
	return b->slot < 0 ? nothing : place(DN_MEM_PARAM_SLOTS, p->slots[b->slot].offset, b->padded);
}

struct fsdp_place fsdp_place_grads(const struct fsdp_plan *p, int block)
{
	const struct fsdp_block *b = &p->blocks[block];

	return b->grad_slot < 0 ? nothing : place(DN_MEM_GRAD_SLOTS, p->grad_slots[b->grad_slot].offset, b->learning);
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
