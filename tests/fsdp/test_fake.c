/* fake_comm: one process as rank 0 of several, of which there is no other: the plan, the memory, the operations and the traffic of
 * such a rank, with its own data in place of the others'.
 */
#include "plan_nets.h"
#include "train_ranks.h"

#define NET \
	"[net]\nbatch=24\nsubdivisions=2\nwidth=8\nheight=8\nchannels=2\n" \
	"[block]\nname=stem\n[convolutional]\nbatch_normalize=1\nfilters=5\nsize=3\npad=1\nactivation=leaky\n" \
	"[block]\nname=pool\n[maxpool]\nsize=2\nstride=2\n" \
	"[block]\nname=mid\n[connected]\noutput=13\nbatch_normalize=1\nactivation=tanh\n" \
	"[block]\nname=tail\n[connected]\noutput=6\nactivation=linear\n[softmax]\n"

struct looked {
	struct train_job j;
	uint64_t hash;
};

static void look(struct train_job *j, int rank, struct dn_net *net)
{
	struct dn_store_report r;

	((struct looked *)j)->hash = ((const struct fsdp_store *)net->store.self)->plan->hash;
	net->store.ops->report(net->store.self, &r);
	for (int k = 0; k < DN_MEM_PLANNED; k++) {
		size_t planned = r.planned_bytes[k], ring = 0;
		struct dn_mem_stats s;

		dn_mem_stats((enum dn_region)k, &s);
		if (k == DN_MEM_ACTIVATIONS) /* there is no loader here */
			CHECK_OK(dn_loop_input_bytes(net, &ring));
		CHECK_EQ(s.now_bytes, planned - ring);
	}
}

static void run_fake(struct looked *f)
{
	struct train_job *j = &f->j;

	j->look = look;
	CHECK_OK_FATAL(fsdp_hub_create_echo(&j->hub, j->world));
	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&j->line, NULL, 1), 0);
	train_rank_main(0, j);
	pthread_barrier_destroy(&j->line);
	fsdp_hub_destroy(j->hub);
}

static void check(struct looked *f, const struct fsdp_options *o)
{
	struct train_job *j = &f->j;
	struct planned p;
	const struct dn_net_options opt = {
		.world = j->world, .train = true, .seed = 3, .sync_bn = j->sync_bn, .grads_add = o->accumulate >= FSDP_NO_SYNC
	};

	j->opt = *o;
	j->opt.timeout_ms = 20000;
	run_fake(f);
	CHECK_OK_FATAL(planned_net_of(&p, j->cfg, &opt, 1));
	CHECK_OK_FATAL(fsdp_blocks_apply(p.net, o));
	CHECK_OK_FATAL(fsdp_plan_build(&p.plan, p.net, o, j->world));
	CHECK_EQ(f->hash, p.plan->hash);
	for (int k = 0; k < DN_MEM_PLANNED; k++)
		if (k != DN_MEM_WORKSPACE)
			CHECK_EQ(j->report.planned_bytes[k], p.plan->planned[k]);
	planned_fini(&p);
	CHECK_EQ(j->report.gather.counted_bytes, j->report.gather.planned_bytes);
	CHECK_EQ(j->report.gather.counted_calls, j->report.gather.planned_calls);
	CHECK_EQ(j->report.reduce.counted_bytes, j->report.reduce.planned_bytes);
	CHECK_EQ(j->report.reduce.counted_calls, j->report.reduce.planned_calls);
	CHECK_EQ(j->n_allocs, 0);
	for (int s = 0; s < j->steps; s++)
		CU_ASSERT(isfinite(j->losses[0][s]) && j->losses[0][s] > 0);
	train_fini(j);
}

static void one_process_has_the_memory_and_the_traffic_of_a_rank_of_many(void)
{
	static const int worlds[] = { 1, 2, 3, 4, 6 };

	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		for (int strategy = FSDP_FULL; strategy <= FSDP_HYBRID_FULL_OPT; strategy++)
			for (int how = FSDP_SHARDED_SUM; how <= FSDP_NO_SYNC_KEEP; how++)
				for (int sync = 0; sync < 2; sync++) {
					struct looked f = { .j = train_job_of(NET, worlds[w]) };
					struct fsdp_options o = f.j.opt;

					o.strategy = (enum fsdp_strategy)strategy;
					o.accumulate = (enum fsdp_accumulate)how;
					if (how >= FSDP_NO_SYNC)
						o.grad_slots = 0;
					if (fsdp_strategy_hybrid(o.strategy) && worlds[w] % 2)
						continue;
					if (how == FSDP_HYBRID_LAST && !fsdp_strategy_hybrid(o.strategy))
						continue;
					o.shards = fsdp_strategy_hybrid(o.strategy) ? worlds[w] / 2 : 0;
					f.j.sync_bn = sync;
					check(&f, &o);
				}
}

/* The others are as this one: a gather brings its shard in every place, a sum is N times its own. */
static void others_do_what_this_one_does(void)
{
	struct dn_group g;
	struct fsdp_mesh *m;
	struct fsdp_hub *hub;
	double x[2] = { 1.5, -2 };
	size_t sizes[5];
	static char text[9000];
	char *all;

	CHECK_OK_FATAL(fsdp_hub_create_echo(&hub, 5));
	CHECK_OK_FATAL(fsdp_mesh_create_local(&m, hub, 0, 2000));
	fsdp_mesh_group(m, &g);
	CHECK_EQ(g.world, 5);
	CHECK_OK(dn_group_sum(&g, x, 2));
	CU_ASSERT(x[0] == 7.5 && x[1] == -10);
	CHECK_OK(dn_group_agree(&g, 0, "test"));
	CHECK_FAILS(dn_group_agree(&g, dn_fail(-EIO, "the disk is full"), "test"), -EIO, "rank 0: the disk is full");
	CHECK_OK(dn_group_compare(&g, &(const struct dn_item){ "batch", "8" }, 1));
	for (size_t n = 7; n <= sizeof(text); n += sizeof(text) - 7) { /* short ones ride with the sizes, long ones do not */
		memset(text, 'x', sizeof(text));
		text[n - 1] = 'y';
		CHECK_OK_FATAL(dn_group_gather(&g, text, n, &all, sizes));
		for (int r = 0; r < 5; r++) {
			CHECK_EQ(sizes[r], n);
			CHECK_BITS(all + (size_t)r * n, text, n);
		}
		dn_free(all);
	}
	fsdp_mesh_destroy(m);
	fsdp_hub_destroy(hub);
}

static void keys_that_want_peers_are_refused(void)
{
	static const char *const wrong[] = { "mpi", "shm" };
	struct fsdp_options o;
	struct dn_options *keys;

	for (int i = 0; i < 3; i++) {
		const char *flags[] = { "fake_comm", "8", "collectives", i < 2 ? wrong[i] : "local" };

		keys = NULL;
		CHECK_OK_FATAL(dn_options_create(&keys));
		CHECK_OK_FATAL(dn_options_add(keys, fsdp_option_table));
		for (int k = 0; k < 2; k++)
			CHECK_OK_FATAL(dn_options_set(keys, flags[2 * k], flags[2 * k + 1], "test"));
		if (i < 2)
			CHECK_FAILS(fsdp_options_resolve(keys, &o), -EINVAL, "fake_comm=8 has no peers, but collectives=");
		else
			CHECK_OK(fsdp_options_resolve(keys, &o));
		dn_options_destroy(keys);
	}
	CHECK_EQ(o.debug.fake_comm, 8);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(one_process_has_the_memory_and_the_traffic_of_a_rank_of_many),
	CASE(others_do_what_this_one_does),
	CASE(keys_that_want_peers_are_refused),
	{ NULL, NULL },
};

int main(void)
{
	return check_run("fsdp/fake", cases);
}
