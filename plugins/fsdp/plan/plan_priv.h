/* What the files of the plan share. */
#ifndef FSDP_PLAN_PRIV_H
#define FSDP_PLAN_PRIV_H
#include "plan/plan.h"

/* blocks, tensors, gaps, slots, buffers and calls; needs p->grid, p->opt, p->subdivisions */
int plan_layout(struct fsdp_plan *p, const struct dn_net *net);

struct plan_item {	 /* a tensor to lie in a flat buffer */
	int index;	 /* the caller's */
	int64_t n, row;	 /* elements: of all of it, of one row */
	int64_t granule; /* between two places where it may be cut */
	int64_t offset;	 /* the answer */
};

/* Offsets of items in a buffer of @parts parts of *part elements each, a multiple of @unit, so that no row or no tensor is cut.
 * Sorts the items. */
int plan_pack(struct plan_item *items, int n, int64_t parts, int64_t unit, enum fsdp_layout layout, int64_t *part);
/* strategies and groups of the blocks, from options and [block] sections; p->grid and p->opt's release */
int plan_strategies(struct fsdp_plan *p, const struct dn_net *net);
/* p->step, p->eval and p->repeat */
int plan_schedule(struct fsdp_plan *p, bool train);
/* how much of queues and events is in flight at most, from the schedules */
int plan_sizes(struct fsdp_plan *p);

static inline int plan_n_events(const struct fsdp_plan *p)
{
	return FSDP_OP_KINDS * p->n_blocks;
}

/* places of a queue that the operation takes: its waits, itself unless layers make it, its record */
static inline int plan_op_entries(const struct fsdp_op *op)
{
	return op->n_waits + (op->queue != FSDP_COMPUTE) + 1;
}

/* is the block's slot read by backward? */
static inline bool plan_backward_reads(const struct fsdp_block *b)
{
	return b->resident || b->backward_gather;
}

/* is @part cut over replicas as well? */
static inline bool plan_cut(const struct fsdp_block *b, enum dn_part part)
{
	return part == DN_VALUE ? b->master_offset >= 0 : b->cut_states;
}

/* do gradients stay whole in their slots until the last microbatch? */
static inline bool plan_sums_whole(const struct fsdp_plan *p)
{
	return p->subdivisions > 1 && p->opt.accumulate >= FSDP_NO_SYNC;
}

/* do gathered values stay until the last microbatch? */
static inline bool plan_keeps(const struct fsdp_plan *p)
{
	return plan_sums_whole(p) && p->opt.accumulate == FSDP_NO_SYNC_KEEP;
}

/* of two levels of reduction, is the second one carried out once a step, in place? */
static inline bool plan_combines_last(const struct fsdp_plan *p, const struct fsdp_block *b)
{
	return b->shards.size > 1 && b->replicas.size > 1 && (p->opt.accumulate == FSDP_HYBRID_LAST || plan_sums_whole(p));
}

#endif
