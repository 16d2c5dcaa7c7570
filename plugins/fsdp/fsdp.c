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
};

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
	return err ? err
		   : dn_options_set(r->options, "collectives",
				    fsdp_name_of(&fsdp_transports, f->mesh->mpi ? FSDP_MPI : FSDP_LOCAL), "resolved");
}

static int fsdp_init(struct dn_run *r, void **self)
{
	struct fsdp *f = dn_zalloc(sizeof(*f));
	int err;

	if (!f)
		return -ENOMEM;
	err = fsdp_options_resolve(r->options, &f->opt);
	if (!err)
		err = fsdp_mesh_create(&f->mesh, f->opt.transport, f->opt.timeout_ms);
	if (!err)
		f->opt.ranks_on_host = f->mesh->ranks_on_host;
	if (!err)
		err = settle(r, f);
	if (err) {
		fsdp_mesh_destroy(f->mesh);
		dn_free(f);
		return err;
	}
	fsdp_mesh_group(f->mesh, &r->group);
	r->load_rank0 = f->opt.load_rank0;
	r->grads_add = f->opt.accumulate >= FSDP_NO_SYNC;
	r->sync_bn = f->opt.sync_bn;
	*self = f;
	return 0;
}

/* Layout and schedule must be the same everywhere before anybody gathers. */
static int compare_plans(const struct dn_run *r, const struct fsdp_plan *p)
{
	char hash[32], bytes[32], n_blocks[32];
	const struct dn_item items[] = {
		{ "number of blocks", n_blocks },
		{ "plan bytes", bytes },
		{ "plan hash", hash },
	};

	snprintf(n_blocks, sizeof(n_blocks), "%d", p->n_blocks);
	snprintf(bytes, sizeof(bytes), "%zu", p->total_bytes);
	snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)p->hash);
	return dn_group_compare(&r->group, items, (int)(sizeof(items) / sizeof(items[0])));
}

static int fsdp_net_ready(void *self, struct dn_run *r)
{
	struct fsdp *f = self;
	int err;

	err = fsdp_blocks_apply(r->net, &f->opt);
	if (!err)
		err = fsdp_plan_build(&f->plan, r->net, &f->opt, r->group.world);
	if (!err && dn_log_on("fsdp", DN_LOG_DEBUG))
		err = fsdp_plan_check(f->plan, NULL, NULL);
	err = dn_group_agree(&r->group, err, "start-up: plan");
	if (!err)
		err = compare_plans(r, f->plan);
	if (err)
		return err;
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
