/* memory=BYTES: a plan that wants more is refused before anything is allocated, with what each region takes and with plans of the
 * same net that want less. Plans are pure, so those are built, not guessed.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "plan/plan_priv.h"

struct fit {
	struct dn_net *net;
	const struct fsdp_plan *plan; /* that does not fit */
	int64_t limit_bytes;
	FILE *out;
	int n_fit;
};

static struct fsdp_options options_of(const struct fit *f, enum fsdp_strategy strategy, int shards)
{
	struct fsdp_options o = f->plan->opt;

	o.grad_slots = plan_sums_whole(f->plan) ? 0 : o.grad_slots;
	o.strategy = strategy;
	o.shards = shards;
	o.stay = fsdp_strategy_hybrid(strategy) || o.stay > 1 ? 0 : o.stay;
	return o;
}

/* one line; a way that this net or number of ranks does not allow is none */
static void try_plan(struct fit *f, const char *what, const struct fsdp_options *o)
{
	struct fsdp_plan *p;
	char human[32];
	bool fits;

	if (fsdp_plan_build(&p, f->net, o, f->plan->grid.world))
		return;
	fits = p->total_bytes <= (size_t)f->limit_bytes;
	dn_human_bytes((double)p->total_bytes, human, sizeof(human));
	fprintf(f->out, "%-44s  %16zu  %12s  %s\n", what, p->total_bytes, human, fits ? "fits" : "");
	f->n_fit += fits;
	fsdp_plan_destroy(p);
}

static void try_strategies(struct fit *f)
{
	const enum fsdp_strategy now = f->plan->opt.strategy;
	struct fsdp_options o;
	char what[64];

	for (const struct fsdp_name *s = fsdp_strategies.table; s->name; s++) {
		if (fsdp_strategy_hybrid((enum fsdp_strategy)s->value) || s->value == (int)now)
			continue;
		o = options_of(f, (enum fsdp_strategy)s->value, 0);
		snprintf(what, sizeof(what), "strategy=%s", s->name);
		try_plan(f, what, &o);
	}
	for (int shards = 2; shards < f->plan->grid.world; shards++) {
		if (f->plan->grid.world % shards)
			continue;
		o = options_of(f, FSDP_HYBRID_FULL_OPT, shards);
		snprintf(what, sizeof(what), "strategy=hybrid_full_opt shard=%d", shards);
		try_plan(f, what, &o);
	}
}

/* From the least change on; each keeps those before it. The net stays as the last one wants it: it will not run. */
static int try_full(struct fit *f)
{
	struct fsdp_options o = options_of(f, FSDP_FULL, 0);
	bool *again;
	int err;

	o.limit = 1;
	o.depth = 0;
	o.grad_slots = plan_sums_whole(f->plan) ? 0 : 1;
	try_plan(f, "strategy=full limit=1 grad_slots=1", &o);
	err = fsdp_policy_parse("each", "fsdp", &o.policy);
	o.policy_given = true;
	o.recompute = NULL;
	if (!err)
		err = fsdp_blocks_cut(f->net, &o.policy);
	if (err)
		return err;
	try_plan(f, "... and blocks=each", &o);
	again = dn_zalloc((size_t)f->net->n_blocks);
	if (!again)
		return -ENOMEM;
	for (int i = 0; i < f->net->n_blocks; i++)
		again[i] = true;
	err = dn_net_set_recompute(f->net, again);
	dn_free(again);
	if (!err)
		try_plan(f, "... and recompute=all", &o);
	return err;
}

int fsdp_plan_fit(const struct fsdp_plan *p, struct dn_net *net, FILE *out)
{
	const struct fsdp_options *o = &p->opt;
	struct fit f = { .net = net, .plan = p, .limit_bytes = o->memory, .out = out };
	char wants[32], may[32];
	int err = 0;

	if (!o->memory || p->total_bytes <= (size_t)o->memory)
		return 0;
	if (out) {
		fsdp_plan_print_regions(p, out);
		fprintf(out, "\n%-44s  %16s  %12s\n", "instead", "bytes a rank", "");
		try_strategies(&f);
		err = try_full(&f);
		if (!err && !f.n_fit)
			fprintf(out, "none of these fits: more ranks, or a smaller batch a rank\n");
		fflush(out);
	}
	dn_human_bytes((double)p->total_bytes, wants, sizeof(wants));
	dn_human_bytes((double)o->memory, may, sizeof(may));
	if (err)
		return err;
	return dn_fail(-EINVAL,
		       "%.500s: memory is %" PRId64 " bytes (%s), but the plan wants %zu (%s) on every rank: %zu too many",
		       o->memory_where, o->memory, may, p->total_bytes, wants, p->total_bytes - (size_t)o->memory);
}
