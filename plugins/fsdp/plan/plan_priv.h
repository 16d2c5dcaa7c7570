/* What the files of the plan share. */
#ifndef FSDP_PLAN_PRIV_H
#define FSDP_PLAN_PRIV_H
#include "plan/plan.h"

/* blocks, tensors, gaps, slots and buffers of p->world ranks; needs p->opt, p->subdivisions */
int plan_layout(struct fsdp_plan *p, const struct dn_net *net);
/* p->step and p->eval */
int plan_schedule(struct fsdp_plan *p, bool train);

/* does backward read the block's values? */
static inline bool plan_backward_reads(const struct fsdp_block *b)
{
	return b->resident || b->backward_gather;
}

#endif
