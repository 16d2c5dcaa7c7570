/* What the files of the plan share. */
#ifndef FSDP_PLAN_PRIV_H
#define FSDP_PLAN_PRIV_H
#include "plan/plan.h"

/* blocks, tensors, gaps, slots, buffers and calls; needs p->grid, p->opt, p->subdivisions */
int plan_layout(struct fsdp_plan *p, const struct dn_net *net);
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

/* does backward read the block's values? */
static inline bool plan_backward_reads(const struct fsdp_block *b)
{
	return b->resident || b->backward_gather;
}

#endif
