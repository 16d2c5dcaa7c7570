/* Inference under every strategy: no byte of gradients, states and their slots is planned or taken, the bits are those of the plain
 * program at as many images a pass as a rank has, and what a pass gathers is what the strategy says. T4, T8, T11 for evaluations.
 */
#include <string.h>
#include "plan_nets.h"
#include "ranks.h"
#include "run/shard_store.h"
#include "train/whole_store.h"

#define LOCAL 3
#define INPUTS (2 * 8 * 8)
#define OUTPUTS 6

static const char cfg[] = "[net]\nbatch=120\nsubdivisions=2\nwidth=8\nheight=8\nchannels=2\n"
			  "[block]\nname=stem\n[convolutional]\nbatch_normalize=1\nfilters=5\nsize=3\npad=1\nactivation=leaky\n"
			  "[block]\nname=pool\n[maxpool]\nsize=2\nstride=2\n"
			  "[block]\nname=mid\n[connected]\noutput=13\nbatch_normalize=1\nactivation=tanh\n"
			  "[block]\nname=head\n[connected]\noutput=9\nactivation=leaky\n"
			  "[block]\nname=tail\n[connected]\noutput=6\nactivation=linear\n[softmax]\n";

struct job {
	struct fsdp_options opt;
	const char *backend;
	bool plain;
	int world;
	struct fsdp_hub *hub;
	pthread_barrier_t line;
	size_t before[DN_MEM_PLANNED];
	float out[RANKS_MAX][2][LOCAL * OUTPUTS]; /* of two passes */
};

struct rank_run {
	struct dn_cfg *cfg;
	struct dn_device *dev;
	struct dn_net *net;
	struct fsdp_mesh *mesh;
	struct fsdp_plan *plan;
};

static int build(struct rank_run *r, const struct job *j, int rank)
{
	const struct dn_net_options opt = {
		.rank = rank, .world = j->world, .seed = 3, .local_batch = LOCAL, .sync_bn = j->opt.sync_bn
	};
	int err;

	memset(r, 0, sizeof(*r));
	err = dn_cfg_parse(&r->cfg, cfg, strlen(cfg), "test.cfg", true);
	if (!err)
		err = dn_backend_find(check_backend(j->backend))->open(DN_CPU(1), &r->dev);
	if (!err)
		err = dn_net_build(&r->net, r->cfg, r->dev, &opt);
	if (!err && j->plain)
		err = dn_whole_attach(r->net);
	if (!err && !j->plain) {
		r->dev->be->set_timeout(r->dev, 20000);
		err = fsdp_mesh_create_local(&r->mesh, j->hub, rank, 20000);
		if (!err)
			err = fsdp_blocks_apply(r->net, &j->opt);
		if (!err)
			err = fsdp_plan_build(&r->plan, r->net, &j->opt, j->world);
		if (!err)
			err = fsdp_plan_check(r->plan, NULL, NULL);
		if (!err)
			err = fsdp_store_attach(r->net, r->mesh, r->plan);
	}
	if (!err)
		err = dn_net_alloc(r->net);
	if (!err)
		err = r->net->store.ops->alloc(r->net->store.self, r->net);
	return err ? err : dn_net_init_values(r->net);
}

static void unbuild(struct rank_run *r)
{
	dn_net_drain(r->net);
	dn_net_destroy(r->net);
	fsdp_mesh_destroy(r->mesh);
	fsdp_plan_destroy(r->plan);
	if (r->dev)
		r->dev->be->close(r->dev);
	dn_cfg_destroy(r->cfg);
}

static void pass(struct rank_run *r, int rank, int k, float *out)
{
	const struct dn_backend *be = r->dev->be;
	struct dn_pass p = { .phase = DN_INFER };
	float *x, *y;

	CHECK_OK_FATAL(be->alloc_host(r->dev, DN_MEM_HOST, LOCAL * INPUTS * sizeof(float), (void **)&x));
	CHECK_OK_FATAL(be->alloc_host(r->dev, DN_MEM_HOST, LOCAL * OUTPUTS * sizeof(float), (void **)&y));
	for (int i = 0; i < LOCAL * INPUTS; i++)
		x[i] = noise((uint64_t)(rank + 10 * k), (uint64_t)i);
	p.input = x;
	CHECK_OK(dn_net_forward(r->net, &p));
	CHECK_OK(dn_layer_read(&r->net->layers[r->net->output_layer], 0, LOCAL, y));
	for (int i = 0; i < LOCAL * OUTPUTS; i++)
		out[i] = y[i];
	be->free_host(r->dev, x);
	be->free_host(r->dev, y);
}

/* planned = measured, and nothing of what only training has */
static void look(struct job *j, const struct rank_run *r)
{
	struct dn_store_report report;

	r->net->store.ops->report(r->net->store.self, &report);
	for (int k = 0; k < DN_MEM_PLANNED; k++) {
		struct dn_mem_stats s;

		dn_mem_stats((enum dn_region)k, &s);
		CHECK_EQ(s.now_bytes - j->before[k], report.planned_bytes[k] * (size_t)j->world);
	}
	CHECK_EQ(report.planned_bytes[DN_MEM_GRADS], 0);
	CHECK_EQ(report.planned_bytes[DN_MEM_OPTIMIZER], 0);
	CHECK_EQ(report.planned_bytes[DN_MEM_GRAD_SLOTS], 0);
	CU_ASSERT(report.planned_bytes[DN_MEM_PARAMS] > 0);
}

static void rank_main(int rank, void *arg)
{
	struct job *j = arg;
	struct rank_run r;

	CHECK_OK_FATAL(build(&r, j, rank));
	pthread_barrier_wait(&j->line);
	if (rank == 0 && !j->plain)
		look(j, &r);
	for (int k = 0; k < 2; k++)
		pass(&r, rank, k, j->out[rank][k]);
	pthread_barrier_wait(&j->line);
	unbuild(&r);
}

static void run(struct job *j)
{
	for (int k = 0; k < DN_MEM_PLANNED; k++) {
		struct dn_mem_stats s;

		dn_mem_stats((enum dn_region)k, &s);
		j->before[k] = s.now_bytes;
	}
	CHECK_OK_FATAL(fsdp_hub_create(&j->hub, j->world));
	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&j->line, NULL, (unsigned)j->world), 0);
	ranks_run(j->world, rank_main, j);
	pthread_barrier_destroy(&j->line);
	fsdp_hub_destroy(j->hub);
}

/* Every rank's images through the plain program, a rank's number at a time. */
static void plain_run(const char *backend, float out[RANKS_MAX][2][LOCAL * OUTPUTS])
{
	struct job j = { .backend = backend, .plain = true, .world = 1 };
	struct rank_run r;

	CHECK_OK_FATAL(build(&r, &j, 0));
	for (int rank = 0; rank < RANKS_MAX; rank++)
		for (int k = 0; k < 2; k++)
			pass(&r, rank, k, out[rank][k]);
	unbuild(&r);
}

/* each strategy's own options at @world; false: there are none */
static bool option(struct fsdp_options *o, int strategy, int world, int release, int how)
{
	*o = plan_defaults();
	o->strategy = (enum fsdp_strategy)strategy;
	o->timeout_ms = 20000;
	if (fsdp_strategy_hybrid(o->strategy))
		o->shards = world / 2;
	if (fsdp_strategy_hybrid(o->strategy) && (world < 2 || world % 2))
		return false;
	o->stay = release;
	if (release == 2 && (world != 4 || o->strategy != FSDP_FULL))
		return false;
	o->accumulate = (enum fsdp_accumulate)how;
	if (how == FSDP_HYBRID_LAST && !fsdp_strategy_hybrid(o->strategy))
		return false;
	o->grad_slots = how == FSDP_SHARDED_SUM ? 2 : 0;
	return true;
}

static void inference_has_the_bits_of_the_plain_program(void)
{
	static const char *const backends[] = { "ref", "cpu" };
	static float want[RANKS_MAX][2][LOCAL * OUTPUTS];
	int n = 0;

	for (int b = 0; b < 2; b++) {
		plain_run(backends[b], want);
		for (int world = 1; world <= 4; world++)
			for (int strategy = FSDP_FULL; strategy <= FSDP_HYBRID_FULL_OPT; strategy++)
				for (int release = 0; release < 3; release++)
					for (int how = FSDP_SHARDED_SUM; how <= FSDP_NO_SYNC_KEEP; how++) {
						struct job j = { .backend = backends[b], .world = world };

						if (!option(&j.opt, strategy, world, release, how))
							continue;
						run(&j);
						for (int r = 0; r < world; r++)
							CHECK_BITS(j.out[r], want[r], sizeof(want[r]));
						n++;
					}
	}
	CU_ASSERT(n > 150);
}

/* T11: keys that are about training ask for nothing here */
static void t11_inference_plans_no_memory_of_training(void)
{
	for (int strategy = FSDP_FULL; strategy <= FSDP_HYBRID_FULL_OPT; strategy++)
		for (int world = 1; world <= 6; world++)
			for (int k = 0; k < 3 * 4 * 8; k++) {
				struct fsdp_options o;
				struct planned p;
				int64_t values = 0;

				if (!option(&o, strategy, world, k % 3, k / 3 % 4))
					continue;
				o.looks = k / 12 & 1;
				o.sync_bn = k / 24 & 1;
				o.recompute = k / 48 & 1 ? "all" : NULL;
				o.recompute_where = "test";
				o.limit = 1 + k % 3;
				o.depth = 0;
				CHECK_OK_FATAL(planned_net(&p, cfg, world, false, 1));
				p.net->opt.looks = o.looks;
				CHECK_OK_FATAL(fsdp_blocks_apply(p.net, &o));
				CHECK_OK_FATAL(fsdp_plan_build(&p.plan, p.net, &o, world));
				CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
				CHECK_EQ(p.plan->planned[DN_MEM_GRADS], 0);
				CHECK_EQ(p.plan->planned[DN_MEM_OPTIMIZER], 0);
				CHECK_EQ(p.plan->planned[DN_MEM_GRAD_SLOTS], 0);
				CHECK_EQ(p.plan->planned[DN_MEM_STAGING], 0);
				CHECK_EQ(p.plan->n_kept, 0);
				CHECK_EQ(p.plan->step.n_ops + p.plan->repeat.n_ops, 0);
				CHECK_EQ(p.plan->reduce_calls, 0);
				for (int i = 0; i < p.plan->n_blocks; i++)
					values += p.plan->blocks[i].padded / p.plan->blocks[i].shards.size;
				CHECK_EQ(p.plan->planned[DN_MEM_PARAMS], (size_t)values * sizeof(float));
				for (int i = 0; i < p.plan->eval.n_ops; i++)
					CU_ASSERT(p.plan->eval.ops[i].kind <= FSDP_RELEASE);
				planned_fini(&p);
			}
}

/* T8: a pass gathers each block with values once, where they are cut at all */
static void t8_a_pass_gathers_each_block_that_is_cut_once(void)
{
	for (int strategy = FSDP_FULL; strategy <= FSDP_HYBRID_FULL_OPT; strategy++) {
		struct fsdp_options o;
		struct planned p;

		CU_ASSERT_FATAL(option(&o, strategy, 4, 0, FSDP_SHARDED_SUM));
		CHECK_OK_FATAL(planned_make(&p, cfg, 4, false, &o));
		CHECK_EQ(p.plan->gather_calls, strategy == FSDP_OPT || strategy == FSDP_REPLICATE ? 0 : 4);
		planned_fini(&p);
	}
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(inference_has_the_bits_of_the_plain_program),
	CASE(t11_inference_plans_no_memory_of_training),
	CASE(t8_a_pass_gathers_each_block_that_is_cut_once),
	{ NULL, NULL },
};

int main(void)
{
	return check_run("fsdp/infer", cases);
}
