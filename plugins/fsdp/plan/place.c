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
	for (int i = 0; i < FSDP_STAGES && r == DN_MEM_STAGING; i++)
		x.bytes = host ? x.bytes + p->coll.host[i] : x.bytes - p->coll.host[i];
	return x;
}

bool fsdp_place_shared(const struct fsdp_plan *p, enum dn_region r)
{
	return p->coll.windows && (r == DN_MEM_PARAMS || r == DN_MEM_GRAD_SLOTS) && fsdp_place_all(p, r, false).bytes;
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
		return place(DN_MEM_GRADS, b->grad_offset, b->shard);
	if (state >= p->n_states)
		return nothing;
	return place(DN_MEM_OPTIMIZER, state * p->n_grads + b->grad_offset, b->shard); /* a plane for each state */
}

struct fsdp_place fsdp_place_values(const struct fsdp_plan *p, int block)
{
	const struct fsdp_block *b = &p->blocks[block];

	return b->slot < 0 ? nothing : place(DN_MEM_PARAM_SLOTS, p->slots[b->slot].offset, b->padded);
}

struct fsdp_place fsdp_place_grads(const struct fsdp_plan *p, int block)
{
	const struct fsdp_block *b = &p->blocks[block];

	return b->grad_slot < 0 ? nothing : place(DN_MEM_GRAD_SLOTS, p->grad_slots[b->grad_slot].offset, b->padded);
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

struct fsdp_place fsdp_place_staging(const struct fsdp_plan *p, enum fsdp_stage s, bool host)
{
	const size_t *bytes = host ? p->coll.host : p->coll.device;
	struct fsdp_place x = { DN_MEM_STAGING, host, 0, bytes[s] };

	for (int i = 0; i < (int)s; i++)
		x.from += bytes[i];
	return x;
}

/* the last of as many equal parts as there are ranks */
static struct fsdp_place last_part(const struct fsdp_plan *p, enum fsdp_stage s, int64_t n)
{
	struct fsdp_place x = fsdp_place_staging(p, s, false);

	x.from += x.bytes - x.bytes / (size_t)p->grid.world;
	x.bytes = (size_t)n * sizeof(float);
	return x;
}

struct fsdp_place fsdp_place_stats_sum(const struct fsdp_plan *p)
{
	return p->grid.world == 1 ? fsdp_place_stats(p) : last_part(p, FSDP_STAGE_STATS, p->n_stats);
}

struct fsdp_place fsdp_place_sum(const struct fsdp_plan *p, int i)
{
	return last_part(p, FSDP_STAGE_EXCHANGE, p->sums[i].n);
}
