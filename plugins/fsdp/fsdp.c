/* The plugin: options, verbs, start and end wired to the rooms; no logic. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "comm/mesh.h"
#include "plan/plan.h"
#include "run/shard_store.h"

struct fsdp {
	struct fsdp_options opt;
	struct fsdp_mesh *mesh;
	struct fsdp_plan *plan;
	char where[512]; /* that says which collectives are wanted */
	bool shm_forced;
};

/* what carries out the collectives, as far as it is known: windows may turn out to be impossible */
static int settle_collectives(struct dn_run *r, const struct fsdp *f)
{
	enum fsdp_transport t = f->opt.transport == FSDP_SHM ? FSDP_SHM : f->mesh->mpi ? FSDP_MPI : FSDP_LOCAL;

	return dn_options_set(r->options, "collectives", fsdp_name_of(&fsdp_transports, (int)t), "resolved");
}

/* Values that depend on others or on the launch: printed, compared and logged as what they are. */
static int settle(struct dn_run *r, const struct fsdp *f)
{
	const char *every;
	char depth[16];
	int err;

	snprintf(depth, sizeof(depth), "%d", f->opt.depth);
	err = dn_options_given(r->options, "depth") ? 0 : dn_options_set(r->options, "depth", depth, "resolved");
	every = dn_options_text(r->options, "save_every");
	if (!err && every && !strcmp(every, "off"))
		err = dn_options_set(r->options, "save_every", "0", "resolved"); /* as the flag says it */
	return err ? err : settle_collectives(r, f);
}

static int fsdp_init(struct dn_run *r, void **self)
{
	struct fsdp *f = dn_zalloc(sizeof(*f));
	int err;

	if (!f)
		return -ENOMEM;
	err = fsdp_options_resolve(r->options, &f->opt);
	snprintf(f->where, sizeof(f->where), "%s",
		 dn_options_given(r->options, "collectives") ? dn_options_where(r->options, "collectives") : "fsdp");
	if (!err && f->opt.debug.fake_comm && !r->train)
		err = dn_fail(-EINVAL, "%.500s: fake_comm=%d is for training: nobody computes the other ranks' images",
			      dn_options_where(r->options, "fake_comm"), f->opt.debug.fake_comm);
	if (!err)
		err = fsdp_mesh_create(&f->mesh, f->opt.transport, f->opt.timeout_ms, f->opt.debug.fake_comm);
	if (!err) {
		/* how many of those that there are not would share a host nobody knows */
		f->opt.ranks_on_host = f->opt.debug.fake_comm ? 0 : f->mesh->ranks_on_host;
		/* where nobody has said what he wants, ranks read each other's memory when all are on one host */
		f->shm_forced = f->opt.transport == FSDP_SHM;
		if (f->opt.transport == FSDP_AUTO && f->mesh->mpi && f->mesh->world > 1 &&
		    f->mesh->ranks_on_host == f->mesh->world)
			f->opt.transport = FSDP_SHM;
		err = settle(r, f);
	}
	if (err) {
		fsdp_mesh_destroy(f->mesh);
		dn_free(f);
		return err;
	}
	fsdp_mesh_group(f->mesh, &r->group);
	r->load_rank0 = f->opt.load_rank0;
	r->grads_add = f->opt.accumulate >= FSDP_NO_SYNC;
	r->sync_bn = f->opt.sync_bn;
	r->unsaved = f->opt.debug.fake_comm > 0;
	*self = f;
	return 0;
}

/* Layout and schedule must be the same everywhere before anybody gathers. */
static int compare_plans(const struct dn_run *r, const struct fsdp_plan *p)
{
	char hash[32], bytes[32], n_blocks[32];
	const struct dn_item items[] = {
		{ "number of blocks", n_blocks },
		{ "plan bytes without workspace", bytes }, /* that depends on the instruction set, too */
		{ "plan hash", hash },
	};

	snprintf(n_blocks, sizeof(n_blocks), "%d", p->n_blocks);
	snprintf(bytes, sizeof(bytes), "%zu", p->total_bytes - p->planned[DN_MEM_WORKSPACE]);
	snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)p->hash);
	return dn_group_compare(&r->group, items, (int)(sizeof(items) / sizeof(items[0])));
}

static int make_plan(struct fsdp *f, struct dn_run *r, int err)
{
	fsdp_plan_destroy(f->plan);
	f->plan = NULL;
	if (!err)
		err = fsdp_plan_build(&f->plan, r->net, &f->opt, r->group.world);
	if (!err)
		err = fsdp_plan_fit(f->plan, r->net, r->group.rank == 0 ? stderr : NULL);
	if (!err && dn_log_on("fsdp", DN_LOG_DEBUG))
		err = fsdp_plan_check(f->plan, NULL, NULL);
	err = dn_group_agree(&r->group, err, "start-up: plan");
	if (!err && !f->plan)
		err = dn_fail(-EPROTO, "plan: none was made, and none has failed");
	return err ? err : compare_plans(r, f->plan);
}

/* Windows are impossible, for a reason that all ranks know: without them it goes as between hosts, unless somebody wants them. */
static int without_windows(struct fsdp *f, struct dn_run *r, const char *reason)
{
	char why[1024];

	snprintf(why, sizeof(why), "%s", reason); /* which may be the message itself */
	if (f->shm_forced)
		return dn_group_agree(&r->group, fsdp_refuse("collectives", "shm", f->where, why), "start-up: windows");
	if (r->group.rank == 0)
		dn_log("fsdp", DN_LOG_WARN, "collectives=auto: mpi, not shm: %s", why);
	f->opt.transport = FSDP_MPI;
	return settle_collectives(r, f);
}

static int make_windows(struct fsdp *f, struct dn_run *r)
{
	struct fsdp_windows_ask ask = { .ranks_on_host = f->mesh->ranks_on_host };
	int err;

	if (!fsdp_plan_windows(f->plan))
		return 0;
	for (int k = 0; k < DN_MEM_PLANNED; k++)
		if (fsdp_place_shared(f->plan, (enum dn_region)k))
			ask.region[k] = fsdp_place_all(f->plan, (enum dn_region)k, false).bytes;
	err = fsdp_windows_open(&f->mesh->windows, &f->mesh->control, &ask);
	if (!err || err != f->mesh->control.agreed)
		return err;
	err = without_windows(f, r, dn_message());
	return err ? err : make_plan(f, r, 0);
}

/* Shards are exchanged in every pass: copies of the model are cut so that this stays on a host, where ranks are placed so. */
static void judge_placement(const struct fsdp *f)
{
	const struct fsdp_plan *p = f->plan;
	char ranks[200];

	for (int i = 0; i < p->n_blocks; i++) {
		const int size = p->blocks[i].shards.size;

		if (size == 1 || size == p->grid.world ||
		    !fsdp_host_split(f->mesh->homes, p->grid.world, size, ranks, sizeof(ranks)))
			continue;
		dn_log("fsdp", DN_LOG_WARN,
		       "block %s: shard=%d: %s share one copy, but are on several hosts: gathers go between them; place neighbours "
		       "together (mpirun --map-by slot) or choose a shard that divides the ranks of every host",
		       p->blocks[i].name, size, ranks);
		return;
	}
}

/* whoever has switched one of these on by mistake would look for another reason for what comes out */
static void tell_debug(const struct fsdp_options *o)
{
	bool delay = false;

	for (int q = 0; q < FSDP_QUEUES; q++)
		delay |= o->debug.delay[q].ms > 0;
	if (delay || o->debug.poison)
		dn_warn("debugging: %s%s%s: slower, the same results", delay ? "delay" : "", delay && o->debug.poison ? ", " : "",
			o->debug.poison ? "poison=1" : "");
	if (o->debug.fake_comm)
		dn_warn("debugging: fake_comm=%d: this is rank 0 of %d and there is no other: memory and time are those of such a rank, "
			"what it computes is worth nothing, and nothing is saved",
			o->debug.fake_comm, o->debug.fake_comm);
	if (o->debug.no_comm)
		dn_warn("debugging: no_comm=1: collectives are not carried out, what this run computes is worth nothing");
	if (o->debug.no_compute)
		dn_warn("debugging: no_compute=1: layers are not computed, what this run computes is worth nothing");
}

/* Who asks for it shall know where values are never sent: under strategies that keep them whole on every rank. */
static void judge_wire(const struct fsdp *f, const struct dn_run *r)
{
	if (f->opt.wire.gather != DN_F32 && fsdp_plan_wire(f->plan) == DN_F32 && r->net->opt.train)
		dn_log("fsdp", DN_LOG_WARN, "wire=%s has no effect: no values travel",
		       fsdp_name_of(&fsdp_wire_types, (int)f->opt.wire.gather));
}

static int fsdp_net_ready(void *self, struct dn_run *r)
{
	struct fsdp *f = self;
	struct dn_facts facts;
	int err;

	r->dev->be->facts(r->dev, &facts);
	err = fsdp_blocks_apply(r->net, &f->opt);
	if (!err && f->opt.transport == FSDP_SHM && !facts.host_access)
		err = without_windows(f, r, "other ranks cannot reach this back end's memory");
	err = make_plan(f, r, err);
	if (!err)
		err = make_windows(f, r);
	if (err)
		return err;
	if (r->group.rank == 0) {
		judge_placement(f);
		judge_wire(f, r);
	}
	if (r->group.rank == 0)
		tell_debug(&f->opt);
	if (r->group.rank == 0)
		dn_log("fsdp", DN_LOG_INFO, "plan %016llx: %d blocks, %d ranks, %zu bytes a rank",
		       (unsigned long long)f->plan->hash, f->plan->n_blocks, r->group.world, f->plan->total_bytes);
	r->dev->be->set_timeout(r->dev, f->opt.timeout_ms);
	return fsdp_store_attach(r->net, f->mesh, f->plan);
}

static void fsdp_exit(void *self, int err)
{
	struct fsdp *f = self;

	/* an error that all ranks have found together ends in order; with any other nobody may be waited for */
	if (err && f->mesh->control.agreed != err)
		fsdp_mesh_abort(f->mesh, dn_exit_status(err));
	f->mesh->late_status = err ? dn_exit_status(err) : 3;
	fsdp_mesh_destroy(f->mesh);
	fsdp_plan_destroy(f->plan);
	dn_free(f);
}

static const struct dn_plugin fsdp_plugin = {
	.abi = DN_PLUGIN_ABI,
	.build = DN_BUILD_TAG,
	.name = "fsdp",
	.summary = "fully sharded data parallel training over MPI ranks",
	.options = fsdp_option_table,
	.verbs = fsdp_verbs,
	.init = fsdp_init,
	.net_ready = fsdp_net_ready,
	.exit = fsdp_exit,
};

DN_PLUGIN(fsdp_plugin);
