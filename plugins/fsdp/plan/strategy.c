/* Strategies. One scheme serves all: values are cut over the S ranks of a copy, R = world / S copies exist, and what a rank
 * updates of its shard is all of it or, where states are cut over the copies as well, one part in R.
 *
 *                    S      R      values after forward   states cut over
 *   full             world  1      released               S
 *   grad_op          world  1      stay                   S
 *   opt              1      world  (whole)                S and R
 *   replicate        1      world  (whole)                S
 *   hybrid_full      shard  world/shard  released         S
 *   hybrid_grad_op   shard  world/shard  stay             S
 *   hybrid_full_opt  shard  world/shard  released         S and R
 *
 * A gradient goes from its slot to the sum over S (reduce), from there to each replica's part of the sum over R (combine), and
 * is given back to all of them where every replica updates the whole shard (share). Where they update parts, the values are
 * given back instead, behind the update.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan_priv.h"

static const struct {
	bool hybrid, stays, whole, cut_states;
} kinds[] = {
	[FSDP_FULL] = { .hybrid = false },
	[FSDP_GRAD_OP] = { .stays = true },
	[FSDP_OPT] = { .whole = true, .cut_states = true },
	[FSDP_REPLICATE] = { .whole = true },
	[FSDP_HYBRID_FULL] = { .hybrid = true },
	[FSDP_HYBRID_GRAD_OP] = { .hybrid = true, .stays = true },
	[FSDP_HYBRID_FULL_OPT] = { .hybrid = true, .cut_states = true },
};

bool fsdp_strategy_hybrid(enum fsdp_strategy s)
{
	return kinds[s].hybrid;
}

/* "1, 2, 3" */
static void divisors(int world, char *out, size_t cap)
{
	size_t at = 0;

	for (int d = 1; d < world && at < cap; d++)
		if (world % d == 0)
			at += (size_t)snprintf(out + at, cap - at, "%s%d", at ? ", " : "", d);
}

int fsdp_strategy_grid(const struct fsdp_options *o, int world, struct fsdp_grid *out)
{
	int shards = o->shards ? o->shards : o->ranks_on_host ? o->ranks_on_host : world;
	char fit[256] = "";

	if (world == 1)
		return fsdp_grid_init(out, 1, 1);
	divisors(world, fit, sizeof(fit));
	if (o->shards && (o->shards > world || world % o->shards))
		return dn_fail(-EINVAL, "plan: shard=%d does not divide a world of %d ranks; what does: %s", o->shards, world,
			       fit);
	if (shards >= world || world % shards)
		return dn_fail(-EINVAL,
			       "plan: strategy=%s of %d ranks wants fewer of them to share a copy, shard=%d (%s); what fits: %s",
			       fsdp_name_of(&fsdp_strategies, o->strategy), world, shards,
			       o->shards	  ? "as given"
			       : o->ranks_on_host ? "the ranks of a host"
						  : "all, as none is given",
			       fit);
	return fsdp_grid_init(out, world, shards);
}

void fsdp_strategy_cut(const struct fsdp_grid *mesh, struct fsdp_block *b)
{
	int shards = kinds[b->strategy].hybrid ? mesh->shards : kinds[b->strategy].whole ? 1 : mesh->world;

	b->shards = (struct fsdp_group){ shards, 1 };
	b->replicas = (struct fsdp_group){ mesh->world / shards, shards };
	b->whole = shards == 1 && (kinds[b->strategy].whole || kinds[b->strategy].hybrid);
	b->cut_states = kinds[b->strategy].cut_states && b->replicas.size > 1;
	b->stays = b->stays || kinds[b->strategy].stays;
}

/* --- of each block --- */

static const struct dn_key_rule fsdp_block_keys[] = {
	{ .key = "strategy",
	  .kind = DN_KEY_TEXT,
	  .otherwise = "that of [fsdp]",
	  .help = "what is cut over which ranks, see [fsdp]",
	  .resume = DN_RESUME_ANY },
	{ .key = "release",
	  .kind = DN_KEY_TEXT,
	  .otherwise = "that of [fsdp]",
	  .help = "what becomes of the gathered values after forward, see [fsdp]",
	  .resume = DN_RESUME_ANY },
	{ .key = "persistent",
	  .kind = DN_KEY_INT,
	  .min = 0,
	  .max = 1e12,
	  .otherwise = "that of [fsdp]",
	  .help = "its params of fewer elements stay whole on every rank, see [fsdp]",
	  .resume = DN_RESUME_ANY },
	{ .key = "ignored",
	  .kind = DN_KEY_INT,
	  .def = "0",
	  .min = 0,
	  .max = 1,
	  .help = "1: its params stay whole on every rank, and so do their gradients and state; as strategy=replicate",
	  .resume = DN_RESUME_ANY },
	{ .key = "wire",
	  .kind = DN_KEY_TEXT,
	  .otherwise = "that of [fsdp]",
	  .help = "element type of the block's values on their way, see [fsdp]",
	  .resume = DN_RESUME_ANY },
	{ .key = NULL },
};

void fsdp_block_rules(struct dn_net *net)
{
	struct dn_keyfile *f = net->cfg->file;

	for (int i = 0; i < f->n_sections; i++)
		if (!strcmp(f->sections[i].name, "block") && !dn_section_rule(&f->sections[i], fsdp_block_keys[0].key))
			dn_section_rules(&f->sections[i], fsdp_block_keys);
}

/* what a [block] says for itself; NULL: nothing */
static const char *own_key(struct dn_section *s, const char *key, char *where, size_t cap)
{
	const struct dn_key *k = s ? dn_section_find(s, key) : NULL;

	if (!k)
		return NULL;
	snprintf(where, cap, "%s:%d", s->file->path, k->line);
	return dn_key_text(s, key);
}

int fsdp_release_parse(const char *value, const char *where, int *stay)
{
	int64_t x;

	if (dn_parse_int(value, &x) != DN_NUM_WHOLE || x < 0 || x > INT_MAX)
		return fsdp_refuse("release", value, where,
				   "wanted 1 (after forward), 0 (not), or a divisor of the shards, whose part stays");
	*stay = x > 1 ? (int)x : !x;
	return 0;
}

/* What is left alone is a block of plain data parallelism. */
static int ignored_key(struct dn_section *s, int *strategy, bool given)
{
	int64_t v = 0;
	int err = s && dn_section_find(s, "ignored") ? dn_key_int(s, "ignored", &v) : 0;

	if (!err && v && given && *strategy != FSDP_REPLICATE)
		return dn_section_fail(s, "ignored", -EINVAL, "ignored=1: an ignored block is one of strategy replicate, not %s",
				       fsdp_name_of(&fsdp_strategies, *strategy));
	if (!err && v)
		*strategy = FSDP_REPLICATE;
	return err;
}

static int block_keys(struct fsdp_block *b, struct dn_section *s, int *stay, char where[static 600])
{
	const char *value = own_key(s, "strategy", where, 600);
	int strategy = (int)b->strategy, wire = (int)b->wire, err = 0;

	if (value)
		err = fsdp_name_find(&fsdp_strategies, value, where, &strategy);
	if (!err)
		err = ignored_key(s, &strategy, value != NULL);
	if (!err && s && dn_section_find(s, "persistent"))
		err = dn_key_int_or(s, "persistent", 0, &b->persistent);
	b->strategy = (enum fsdp_strategy)strategy;
	value = err ? NULL : own_key(s, "wire", where, 600);
	if (value)
		err = fsdp_name_find(&fsdp_wire_types, value, where, &wire);
	b->wire = (enum dn_type)wire;
	snprintf(where, 600, "release");
	value = err ? NULL : own_key(s, "release", where, 600);
	return value ? fsdp_release_parse(value, where, stay) : err;
}

static int check_stay(const struct fsdp_block *b, int stay, const char *name, const char *where)
{
	if (stay < 2 || (!b->whole && stay < b->shards.size && b->shards.size % stay == 0))
		return 0;
	return dn_fail(-EINVAL, "%s: block %s: release=%d is not 0, 1 or another divisor of its %d shards below that", where,
		       name, stay, b->shards.size);
}

/* The mesh is asked for when somebody wants one. */
static int mesh_of(const struct fsdp_plan *p, struct fsdp_grid *mesh)
{
	for (int i = 0; i < p->n_blocks; i++)
		if (fsdp_strategy_hybrid(p->blocks[i].strategy))
			return fsdp_strategy_grid(&p->opt, p->grid.world, mesh);
	if (p->opt.shards)
		return dn_fail(-EINVAL, "plan: shard=%d is for hybrid strategies, and none is asked for", p->opt.shards);
	return fsdp_grid_init(mesh, p->grid.world, 0);
}

int plan_strategies(struct fsdp_plan *p, const struct dn_net *net)
{
	int *stay = dn_calloc((size_t)p->n_blocks, sizeof(*stay)), err = stay ? 0 : -ENOMEM;
	char where[600];
	struct fsdp_grid mesh;

	for (int i = 0; i < p->n_blocks && !err; i++) {
		p->blocks[i].strategy = p->opt.strategy;
		p->blocks[i].persistent = p->opt.persistent;
		p->blocks[i].wire = p->opt.wire.gather;
		stay[i] = p->opt.stay;
		err = block_keys(&p->blocks[i], net->blocks[i].section, &stay[i], where);
	}
	if (!err)
		err = mesh_of(p, &mesh);
	for (int i = 0; i < p->n_blocks && !err; i++) {
		struct fsdp_block *b = &p->blocks[i];

		b->stays = stay[i] == 1 || plan_keeps(p);
		fsdp_strategy_cut(&mesh, b);
		if (block_keys(b, net->blocks[i].section, &stay[i], where) == 0)
			err = check_stay(b, stay[i], net->blocks[i].name, where);
		b->keeps = stay[i] > 1 && net->opt.train ? stay[i] : 0;
		b->stays = b->stays && net->opt.train;
	}
	if (!err) { /* what the net's own strategy makes of the ranks */
		struct fsdp_block b = { .strategy = p->opt.strategy };

		fsdp_strategy_cut(&mesh, &b);
		p->grid.shards = b.shards.size;
		p->grid.replicas = b.replicas.size;
	}
	dn_free(stay);
	return err;
}
