/* The update of a shard: the whole store's rule, applied to the interval of each param that the shard holds. */
#include "run/shard_store.h"

int fsdp_optim_block(struct fsdp_store *s, int block)
{
	const struct fsdp_plan *plan = s->plan;
	const struct fsdp_block *b = &plan->blocks[block];
	int err = 0;

	for (int t = b->first_tensor; t < b->first_tensor + b->n_tensors && !err; t++) {
		const struct dn_param *p = s->net->params[plan->tensors[t].param];
		float *state[DN_PARTS - DN_STATE0] = { NULL };
		int64_t at, n, shard_at;

		fsdp_plan_tensor(plan, t, s->mesh->rank, &at, &n, &shard_at);
		if (p->frozen || !n)
			continue;
		for (int k = 0; k < plan->n_states; k++)
			state[k] = fsdp_store_part(s, t, DN_STATE0 + k) + shard_at;
		err = dn_optim_range(s->net->compute, p, s->update, n, fsdp_store_part(s, t, DN_VALUE) + shard_at,
				     fsdp_store_part(s, t, DN_GRAD) + shard_at, state);
	}
	return err;
}
