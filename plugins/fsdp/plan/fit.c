/* memory=BYTES: a plan that wants more is refused before anything is allocated, with what each region takes and with plans of the
 * same net that want less. Plans are pure, so those are built, not guessed.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "plan/plan_priv.h"

#define NAMES_MAX 4096

struct fit {
	struct dn_net *net;
	const struct fsdp_plan *plan; /* that does not fit */
	int64_t limit_bytes;
	FILE *out;
	int n_fit, n_tried;
	size_t least_bytes; /* of what does not fit either */
	char least[NAMES_MAX];
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

/* full in as few slots as there can be */
static struct fsdp_options options_tight(const struct fit *f)
{
	struct fsdp_options o = options_of(f, FSDP_FULL, 0);

	o.limit = 1;
	o.depth = 0;
	o.stay = 0;
	o.grad_slots = plan_sums_whole(f->plan) ? 0 : 1;
	return o;
}

/* what such a plan wants; 0: this net or this number of ranks does not allow it */
static size_t bytes_of(const struct fit *f, const struct fsdp_options *o)
{
	struct fsdp_plan *p;
	size_t bytes;

	if (fsdp_plan_build(&p, f->net, o, f->plan->grid.world))
		return 0;
	bytes = p->total_bytes;
	fsdp_plan_destroy(p);
	return bytes;
}

static bool fits(const struct fit *f, size_t bytes)
{
	return bytes && bytes <= (size_t)f->limit_bytes;
}

/* one line, when it fits */
static void DN_PRINTF(3, 4) offer(struct fit *f, size_t bytes, const char *keys, ...)
{
	char text[NAMES_MAX];
	va_list ap;

	if (!bytes)
		return;
	va_start(ap, keys);
	vsnprintf(text, sizeof(text), keys, ap);
	va_end(ap);
	f->n_tried++;
	if (fits(f, bytes)) {
		f->n_fit++;
		fprintf(f->out, "%s: %zu bytes\n", text, bytes);
	} else if (!f->least_bytes || bytes < f->least_bytes) {
		f->least_bytes = bytes;
		memcpy(f->least, text, sizeof(text));
	}
}

static void try_strategies(struct fit *f)
{
	const enum fsdp_strategy now = f->plan->opt.strategy;
	struct fsdp_options o;

	for (const struct fsdp_name *s = fsdp_strategies.table; s->name; s++) {
		if (fsdp_strategy_hybrid((enum fsdp_strategy)s->value) || s->value == (int)now)
			continue;
		o = options_of(f, (enum fsdp_strategy)s->value, 0);
		offer(f, bytes_of(f, &o), "strategy=%s", s->name);
	}
	for (int shards = 2; shards < f->plan->grid.world; shards++) {
		if (f->plan->grid.world % shards)
			continue;
		o = options_of(f, FSDP_HYBRID_FULL_OPT, shards);
		offer(f, bytes_of(f, &o), "strategy=hybrid_full_opt shard=%d", shards);
	}
}

/* the first @n blocks are recomputed: their activations are those that wait longest */
static int recompute_first(struct fit *f, int n)
{
	bool *again = dn_zalloc((size_t)f->net->n_blocks);
	int err;

	if (!again)
		return -ENOMEM;
	for (int i = 0; i < n; i++)
		again[i] = true;
	err = dn_net_set_recompute(f->net, again);
	dn_free(again);
	return err;
}

static const char *first_names(const struct fit *f, int n, char *out, size_t cap)
{
	size_t at = 0;

	if (n == f->net->n_blocks)
		return "all";
	for (int i = 0; i < n && at < cap; i++)
		at += (size_t)snprintf(out + at, cap - at, "%s%s", i ? "," : "", f->net->blocks[i].name);
	return at < cap ? out : "all";
}

/* The shortest list of blocks from the first on that fits, or all of them: every block less is one forward less. */
static int try_recompute(struct fit *f, const struct fsdp_options *o, const char *keys)
{
	char names[NAMES_MAX / 2];
	int low = 1, high = f->net->n_blocks, err = recompute_first(f, 0);
	size_t bytes;

	if (err || fits(f, bytes_of(f, o))) /* it has been offered without */
		return err;
	while (low < high) {
		const int mid = (low + high) / 2;

		err = recompute_first(f, mid);
		if (err)
			return err;
		if (fits(f, bytes_of(f, o)))
			high = mid;
		else
			low = mid + 1;
	}
	err = recompute_first(f, low);
	if (err)
		return err;
	bytes = bytes_of(f, o);
	offer(f, bytes, "%s%srecompute=%s", keys, *keys ? " " : "", first_names(f, low, names, sizeof(names)));
	return recompute_first(f, 0);
}

/* The same in smaller blocks; afterwards the net is cut so. */
static int try_blocks(struct fit *f, struct fsdp_options *o, const char *keys, const char *policy)
{
	int err = fsdp_policy_parse(policy, "fsdp", &o->policy);

	o->policy_given = true;
	if (!err)
		err = fsdp_blocks_cut(f->net, &o->policy);
	if (!err)
		offer(f, bytes_of(f, o), "%s blocks=%s", keys, policy);
	return err;
}

/* From the least change on. The net stays as the last one wants it: it will not run. */
static int try_all(struct fit *f)
{
	static const char tight[] = "strategy=full limit=1 grad_slots=1", few[] = "strategy=full limit=1";
	const bool whole = plan_sums_whole(f->plan);
	const char *keys = whole ? few : tight;
	struct fsdp_options now = f->plan->opt, full = options_of(f, FSDP_FULL, 0), o = options_tight(f);
	char policy[48], both[96];
	int64_t params = 0;
	int err;

	for (int i = 0; i < f->plan->n_blocks; i++)
		params += f->plan->blocks[i].params;
	try_strategies(f);
	offer(f, bytes_of(f, &o), "%s", keys);
	now.recompute = full.recompute = o.recompute = NULL;
	now.grad_slots = whole ? 0 : now.grad_slots;
	err = try_recompute(f, &now, "");
	if (!err && now.strategy != FSDP_FULL)
		err = try_recompute(f, &full, "strategy=full");
	for (int parts = 4; parts <= 64 && !err && params / parts >= 1024; parts *= 4) {
		snprintf(policy, sizeof(policy), "size:%" PRId64 "K", params / parts * (int64_t)sizeof(float) / 1024);
		err = try_blocks(f, &full, "strategy=full", policy);
	}
	if (!err)
		err = try_blocks(f, &full, "strategy=full", "each");
	if (!err)
		err = try_blocks(f, &o, keys, "each");
	snprintf(both, sizeof(both), "%s blocks=each", keys);
	return err ? err : try_recompute(f, &o, both);
}

static int say_what_fits(struct fit *f)
{
	const bool marked = dn_net_has_markers(f->net);
	int err;

	fsdp_plan_print_regions(f->plan, f->out);
	fprintf(f->out, "\nwhat fits, as keys of [fsdp] or flags%s:\n",
		marked ? " (blocks: as -fsdp.blocks, over the markers)" : "");
	err = try_all(f);
	if (!err && !f->n_fit)
		fprintf(f->out,
			"none of %d other plans; the smallest of them is %s: %zu bytes; more ranks or a smaller batch want less\n",
			f->n_tried, f->least, f->least_bytes);
	fflush(f->out);
	return err;
}

int fsdp_plan_fit(const struct fsdp_plan *p, struct dn_net *net, FILE *out)
{
	const struct fsdp_options *o = &p->opt;
	struct fit f = { .net = net, .plan = p, .limit_bytes = o->memory, .out = out };
	char wants[32], may[32];
	int err;

	if (!o->memory || p->total_bytes <= (size_t)o->memory)
		return 0;
	err = out ? say_what_fits(&f) : 0;
	dn_human_bytes((double)p->total_bytes, wants, sizeof(wants));
	dn_human_bytes((double)o->memory, may, sizeof(may));
	if (err)
		return err;
	return dn_fail(-EINVAL,
		       "%.500s: memory is %" PRId64 " bytes (%s), but the plan wants %zu (%s) on every rank: %zu too many",
		       o->memory_where, o->memory, may, p->total_bytes, wants, p->total_bytes - (size_t)o->memory);
}
