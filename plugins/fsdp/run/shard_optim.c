/* The update of a shard: the whole store's rule, applied to the interval of each param that the shard holds. */
#include "run/shard_store.h"

int fsdp_optim_block(struct fsdp_store *s, int block)
{
	const struct fsdp_plan *plan = s->plan;
	const struct fsdp_block *b = &plan->blocks[block];
	int err = 0;

	for (int t = b->first_tensor; t < b->first_tensor + b->n_tensors && !err; t++) {
		const struct dn_param *p = s->net->params[plan->tensors[t].param];
		float *state[DN_STATES] = { NULL };
		int64_t at, n, from, value_at, value_n, value_from, grad_at, grad_n, grad_from;

		/* states are the finest: the interval that this rank updates */
		fsdp_plan_tensor(plan, t, DN_STATE0, s->mesh->rank, &at, &n, &from);
		fsdp_plan_tensor(plan, t, DN_GRAD, s->mesh->rank, &grad_at, &grad_n, &grad_from);
		fsdp_plan_tensor(plan, t, DN_VALUE, s->mesh->rank, &value_at, &value_n, &value_from);
		if (p->frozen || !n)
			continue;
		for (int k = 0; k < plan->n_states; k++)
			state[k] = fsdp_store_part(s, t, DN_STATE0 + k) + from;
		err = dn_optim_range(s->net->compute, p, s->update, n,
				     fsdp_store_part(s, t, DN_VALUE) + value_from + (at - value_at),
				     fsdp_store_part(s, t, DN_GRAD) + grad_from + (at - grad_at), state);
		if (!err && plan->ema)
			err = dn_optim_ema(s->net->compute, p, s->update, n,
					   fsdp_store_part(s, t, DN_VALUE) + value_from + (at - value_at),
					   fsdp_store_part(s, t, DN_EMA) + from);
	}
	return err;
}

/* Gradients that replicas have alike are bounded by each and counted by the first. */
int fsdp_look_block(struct fsdp_store *s, int block)
{
	const struct fsdp_plan *plan = s->plan;
	const struct fsdp_block *b = &plan->blocks[block];
	int err = 0;

	for (int t = b->first_tensor; t < b->first_tensor + b->n_tensors && !err; t++) {
		int64_t at, n, from;

		fsdp_plan_tensor(plan, t, DN_GRAD, s->mesh->rank, &at, &n, &from);
		if (!s->net->params[plan->tensors[t].param]->frozen && n) /* named after its own block */
			err = dn_net_look(s->net, s->look, s->net->params[plan->tensors[t].param]->block->index, true,
					  fsdp_plan_first(plan, t, DN_GRAD, s->mesh->rank), n,
					  fsdp_store_part(s, t, DN_GRAD) + from);
	}
	return err;
}
