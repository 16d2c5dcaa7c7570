/* The limiter: who holds which slot, in host order, and which event must pass before the next owner may
 * write into it. The planner asks it while it writes the schedule; the runtime may ask again while it
 * executes one. */
#include <errno.h>

#include "plan/plan.h"

int fsdp_limiter_init(struct fsdp_limiter *l, int n)
{
	struct fsdp_limiter_slot *slots;

	if (n < 0)
		return dn_fail(-EINVAL, "limiter: %d slots", n);
	slots = dn_calloc((size_t)n, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (int i = 0; i < n; i++)
		slots[i] = (struct fsdp_limiter_slot){ .owner = -1, .free_event = -1 };
	l->n = n;
	l->slots = slots;
	return 0;
}

void fsdp_limiter_fini(struct fsdp_limiter *l)
{
	dn_free(l->slots);
	l->slots = NULL;
	l->n = 0;
}

int fsdp_limiter_admit(struct fsdp_limiter *l, int slot, int block, int *wait)
{
	struct fsdp_limiter_slot *s;

	if (slot < 0 || slot >= l->n)
		return dn_fail(-EINVAL, "limiter: slot %d of %d for block %d", slot, l->n, block);
	s = &l->slots[slot];
	if (s->held && s->owner == block)
		return dn_fail(-EINVAL, "limiter: block %d holds slot %d already", block, slot);
	if (s->held)
		return -EAGAIN;
	*wait = s->free_event;
	s->owner = block;
	s->held = true;
	return 0;
}

bool fsdp_limiter_holds(const struct fsdp_limiter *l, int slot, int block)
{
	return slot >= 0 && slot < l->n && l->slots[slot].held && l->slots[slot].owner == block;
}

/* The owner stays on record: it is whose free event the next one waits for. */
void fsdp_limiter_release(struct fsdp_limiter *l, int slot, int block, int free_event)
{
	if (!fsdp_limiter_holds(l, slot, block))
		return;
	l->slots[slot].held = false;
	l->slots[slot].free_event = free_event;
}
