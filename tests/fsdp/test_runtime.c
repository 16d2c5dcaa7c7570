/* The runtime with in-process ranks: whole training steps of small nets, against the whole store. */
#include <errno.h>
#include <string.h>
#include "plan/plan.h"
#include "ranks.h"
#include "run/shard_store.h"

#define CLASSES 6
#define SIDE 8
#define INPUTS (2 * SIDE * SIDE)
#define BATCH 24 /* E: splits over 1 to 4 ranks at up to 2 subdivisions */

/* blocks of uneven sizes, none a multiple of anything; the pool's block has no params */
#define NET(bn, sub) \
	"[net]\nbatch=24\nsubdivisions=" sub "\nwidth=8\nheight=8\nchannels=2\nlearning_rate=0.1\nmomentum=0.9\ndecay=0.01\n" \
	"[convolutional]\n" bn "filters=5\nsize=3\nstride=1\npad=1\nactivation=leaky\n" \
	"[block]\nname=pool\n[maxpool]\nsize=2\nstride=2\n" \
	"[block]\nname=mid\n[convolutional]\n" bn "filters=7\nsize=3\nstride=1\npad=1\nactivation=relu\n" \
	"[block]\nname=wide\n[connected]\noutput=13\nactivation=tanh\n" \
	"[block]\nname=tail\n[connected]\noutput=6\nactivation=linear\n[softmax]\n[cost]\ntype=sse\n"
#define BN "batch_normalize=1\n"

struct job {
	int world, limit, depth, grad_slots;
	int steps; /* 0: one backward without update, -1: only initial values */
	enum fsdp_prefetch prefetch;
	enum fsdp_strategy strategy;
	enum fsdp_accumulate accumulate;
	int shards, stay;
	const char *cfg;
	bool plain;    /* the whole store */
	bool evaluate; /* a pass between the steps */
	bool early;    /* updates within the last backward */
	const char *backend;
	struct fsdp_hub *hub;
	pthread_barrier_t line;
	void (*look)(struct job *j, int rank, struct dn_net *net); /* after the steps, on every rank */
	int64_t n_values, n_trained;				   /* of all params, in file order */
	float *values, *states, *grads;				   /* of rank 0 */
	double loss[32];					   /* summed over ranks, per step */
	double losses[RANKS_MAX][32];
	uint64_t n_allocs; /* of steps after the first, world 1 only */
};

struct rank_run {
	struct dn_cfg *cfg;
	struct dn_device *dev;
	struct dn_net *net;
	struct fsdp_mesh *mesh;
	struct fsdp_plan *plan;
	float *x, *t;
	struct dn_pass pass;
};

static struct job job_of(int world, const char *cfg)
{
	return (struct job){ .world = world,
			     .steps = 3,
			     .limit = 2,
			     .depth = 1,
			     .grad_slots = 2,
			     .prefetch = FSDP_PRE,
			     .cfg = cfg,
			     .backend = "ref" };
}

static void job_fini(struct job *j)
{
	free(j->values);
	free(j->states);
	free(j->grads);
	j->values = j->states = j->grads = NULL;
}

static int build(struct rank_run *r, struct job *j, int rank)
{
	const struct dn_net_options opt = {
		.rank = rank, .world = j->world, .train = true, .seed = 3, .grads_add = true, .update_early = j->early
	};
	const struct fsdp_options o = { .wire = { DN_F32, DN_F32 },
					.limit = j->limit,
					.grad_slots = j->grad_slots,
					.prefetch = j->prefetch,
					.depth = j->depth,
					.strategy = j->strategy,
					.accumulate = j->accumulate,
					.shards = j->shards,
					.stay = j->stay,
					.timeout_ms = 20000 };
	int err;

	memset(r, 0, sizeof(*r));
	err = dn_cfg_parse(&r->cfg, j->cfg, strlen(j->cfg), "test.cfg", true);
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
			err = fsdp_blocks_apply(r->net, &o);
		if (!err)
			err = fsdp_plan_build(&r->plan, r->net, &o, j->world);
		if (!err)
			err = fsdp_plan_check(r->plan, NULL, NULL);
		if (!err)
			err = fsdp_store_attach(r->net, r->mesh, r->plan);
	}
	if (!err)
		err = dn_net_alloc(r->net);
	if (!err)
		err = r->net->store.ops->alloc(r->net->store.self, r->net);
	if (!err)
		err = dn_net_init_values(r->net);
	if (!err)
		err = r->dev->be->alloc_host(r->dev, DN_MEM_HOST, (size_t)r->net->local_batch * INPUTS * sizeof(float),
					     (void **)&r->x);
	if (!err)
		err = r->dev->be->alloc_host(r->dev, DN_MEM_HOST, (size_t)r->net->local_batch * CLASSES * sizeof(float),
					     (void **)&r->t);
	return err;
}

static void unbuild(struct rank_run *r)
{
	dn_net_drain(r->net);
	if (r->dev) {
		r->dev->be->free_host(r->dev, r->x);
		r->dev->be->free_host(r->dev, r->t);
	}
	dn_net_destroy(r->net);
	fsdp_mesh_destroy(r->mesh);
	fsdp_plan_destroy(r->plan);
	if (r->dev)
		r->dev->be->close(r->dev);
	dn_cfg_destroy(r->cfg);
}

/* global slots first..first+local of update @step: the same images whatever the ranks and microbatches */
static void images(struct rank_run *r, int64_t step, int64_t first)
{
	CHECK_OK(dn_net_input_wait(r->net));
	memset(r->t, 0, (size_t)r->net->local_batch * CLASSES * sizeof(float));
	for (int64_t i = 0; i < r->net->local_batch; i++) {
		uint64_t id = (uint64_t)(step * BATCH + first + i);

		for (int64_t k = 0; k < INPUTS; k++)
			r->x[i * INPUTS + k] = noise(id, (uint64_t)k);
		r->t[i * CLASSES + (int64_t)(id * 7 % CLASSES)] = 1;
	}
	r->pass = (struct dn_pass){ .input = r->x, .truth = r->t, .first_image = (uint64_t)(step * BATCH + first) };
}

static int microbatch(struct rank_run *r, int rank, int64_t step, int64_t m, double *loss, const struct dn_update *u)
{
	struct dn_net *net = r->net;
	double x = 0;
	int err;

	images(r, step, m * net->microbatch + rank * net->local_batch);
	r->pass.phase = DN_TRAIN;
	r->pass.micro = m;
	err = dn_net_forward(net, &r->pass);
	if (!err)
		err = dn_net_loss(net, &r->pass, &x);
	*loss += x;
	if (!err)
		err = net->store.ops->stats(net->store.self, net);
	if (!err && net->opt.update_early && m == net->subdivisions - 1)
		err = dn_net_update_ready(net, u);
	return err ? err : dn_net_backward(net, &r->pass);
}

static int one_step(struct rank_run *r, int rank, int64_t step, double *loss)
{
	struct dn_net *net = r->net;
	struct dn_update u = { .optimizer = DN_SGD, .step = step + 1, .images = BATCH, .rate = .1, .momentum = .9, .decay = .01 };
	int err = net->store.ops->begin(net->store.self, net, step + 1);

	*loss = 0;
	for (int64_t m = 0; m < net->subdivisions && !err; m++)
		err = microbatch(r, rank, step, m, loss, &u);
	return err ? err : dn_net_update(net, &u);
}

static void read_all(struct job *j, struct rank_run *r, int rank, enum dn_part part, float **out)
{
	int64_t at = 0;

	if (rank == 0) {
		j->n_values = r->net->n_trained + (part == DN_VALUE ? r->net->n_buffers : 0);
		*out = calloc((size_t)j->n_values, sizeof(float));
	}
	for (int i = 0; i < r->net->n_params; i++) {
		struct dn_param *p = r->net->params[i];

		if (p->role == DN_BUFFER && part != DN_VALUE)
			continue;
		/* in two pieces, as a stream that does not know the shards would */
		for (int64_t k = 0; k < 2; k++) {
			int64_t from = k ? p->n / 3 : 0, n = k ? p->n - p->n / 3 : p->n / 3;

			CHECK_OK(r->net->store.ops->read(r->net->store.self, p, part, from, n, rank ? NULL : *out + at + from));
		}
		at += p->n;
	}
}

static void run_rank(int rank, void *arg)
{
	struct job *j = arg;
	struct rank_run r;
	double dummy;

	CHECK_OK_FATAL(build(&r, j, rank));
	for (int s = 0; s < j->steps; s++) {
		uint64_t before = dn_mem_n_allocs();

		CHECK_OK(one_step(&r, rank, s, &j->losses[rank][s]));
		if (s && rank == 0)
			j->n_allocs += dn_mem_n_allocs() - before;
		if (j->evaluate) {
			images(&r, 100 + s, rank * r.net->local_batch);
			CHECK_OK(dn_net_forward(r.net, &r.pass));
			CHECK_OK(dn_net_forward(r.net, &r.pass));
		}
	}
	if (j->steps == 0) { /* one backward, no update */
		CHECK_OK(r.net->store.ops->begin(r.net->store.self, r.net, 1));
		for (int64_t m = 0; m < r.net->subdivisions; m++)
			CHECK_OK(microbatch(&r, rank, 0, m, &dummy, NULL));
		read_all(j, &r, rank, DN_GRAD, &j->grads);
	} else if (j->steps > 0) {
		read_all(j, &r, rank, DN_STATE0, &j->states);
	}
	if (rank == 0)
		j->n_trained = r.net->n_trained;
	read_all(j, &r, rank, DN_VALUE, &j->values);
	if (j->look)
		j->look(j, rank, r.net);
	pthread_barrier_wait(&j->line);
	unbuild(&r);
}

static void job_run(struct job *j)
{
	CHECK_OK_FATAL(fsdp_hub_create(&j->hub, j->world));
	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&j->line, NULL, (unsigned)j->world), 0);
	ranks_run(j->world, run_rank, j);
	pthread_barrier_destroy(&j->line);
	fsdp_hub_destroy(j->hub);
	for (int s = 0; s < j->steps; s++) {
		j->loss[s] = 0;
		for (int q = 0; q < j->world; q++)
			j->loss[s] += j->losses[q][s];
	}
}

static void check_same_bits(const struct job *a, const struct job *b)
{
	CHECK_EQ(a->n_values, b->n_values);
	CHECK_BITS(a->values, b->values, (size_t)b->n_values * sizeof(float));
	if (b->steps > 0)
		CHECK_BITS(a->loss, b->loss, (size_t)b->steps * sizeof(double));
}

/* --- cases --- */

static void one_rank_is_bit_equal_to_the_local_store(void)
{
	static const char *const cfgs[] = { NET("", "1"), NET("", "2"), NET("", "4"), NET(BN, "1"), NET(BN, "3") };

	for (int c = 0; c < 5; c++)
		for (int be = 0; be < 2; be++) {
			struct job a = job_of(1, cfgs[c]), b = job_of(1, cfgs[c]);

			a.backend = b.backend = be ? "cpu" : "ref";
			a.plain = true;
			a.evaluate = b.evaluate = c & 1;
			job_run(&a);
			job_run(&b);
			check_same_bits(&b, &a);
			CHECK_BITS(b.states, a.states, (size_t)a.n_trained * sizeof(float));
			job_fini(&a);
			job_fini(&b);
		}
}

static void two_ranks_are_bit_equal_to_two_subdivisions(void)
{
	struct job a = job_of(1, NET("", "2")), b = job_of(2, NET("", "1"));

	a.plain = true;
	job_run(&a);
	job_run(&b);
	check_same_bits(&b, &a);
	job_fini(&a);
	job_fini(&b);
}

/* Sums over ranks come in another order: 10 steps. */
static void t4_every_world_trains_as_one_process(void)
{
	struct job a = job_of(1, NET("", "1"));

	a.plain = true;
	a.steps = 10;
	job_run(&a);
	for (int world = 1; world <= 4; world++)
		for (int sub = 1; sub <= 2; sub++) {
			struct job b = job_of(world, sub == 1 ? NET("", "1") : NET("", "2"));

			b.steps = 10;
			job_run(&b);
			CHECK_EQ(b.n_values, a.n_values);
			CHECK_CLOSE(b.values, a.values, a.n_values, 1e-5);
			for (int s = 0; s < 10; s++)
				CU_ASSERT(fabs(b.loss[s] - a.loss[s]) <= 1e-5 * fabs(a.loss[s]));
			job_fini(&b);
		}
	job_fini(&a);
}

/* --- strategies --- */

static const struct way {
	enum fsdp_strategy strategy;
	int shards, stay; /* of 4 ranks; 0: of any number */
	enum fsdp_accumulate accumulate;
} ways[] = {
	{ FSDP_GRAD_OP, 0, 0, FSDP_SHARDED_SUM },
	{ FSDP_OPT, 0, 0, FSDP_SHARDED_SUM },
	{ FSDP_REPLICATE, 0, 0, FSDP_SHARDED_SUM },
	{ FSDP_FULL, 0, 1, FSDP_SHARDED_SUM },
	{ FSDP_FULL, 4, 2, FSDP_SHARDED_SUM },
	{ FSDP_HYBRID_FULL, 2, 0, FSDP_SHARDED_SUM },
	{ FSDP_HYBRID_FULL, 2, 1, FSDP_SHARDED_SUM },
	{ FSDP_HYBRID_GRAD_OP, 2, 0, FSDP_SHARDED_SUM },
	{ FSDP_HYBRID_FULL_OPT, 2, 0, FSDP_SHARDED_SUM },
	{ FSDP_HYBRID_FULL, 1, 0, FSDP_SHARDED_SUM },
	{ FSDP_HYBRID_FULL_OPT, 1, 0, FSDP_SHARDED_SUM },
	{ FSDP_FULL, 0, 0, FSDP_NO_SYNC },
	{ FSDP_FULL, 0, 0, FSDP_NO_SYNC_KEEP },
	{ FSDP_OPT, 0, 0, FSDP_NO_SYNC },
	{ FSDP_REPLICATE, 0, 0, FSDP_NO_SYNC_KEEP },
	{ FSDP_HYBRID_FULL, 2, 0, FSDP_HYBRID_LAST },
	{ FSDP_HYBRID_GRAD_OP, 2, 0, FSDP_HYBRID_LAST },
	{ FSDP_HYBRID_FULL_OPT, 2, 0, FSDP_HYBRID_LAST },
	{ FSDP_HYBRID_FULL_OPT, 2, 0, FSDP_NO_SYNC },
	{ FSDP_HYBRID_FULL, 2, 0, FSDP_NO_SYNC_KEEP },
};

static struct job job_of_way(const struct way *w, int world, const char *cfg)
{
	struct job j = job_of(world, cfg);

	j.strategy = w->strategy;
	j.shards = w->strategy >= FSDP_HYBRID_FULL ? w->shards : 0;
	j.stay = w->stay;
	j.accumulate = w->accumulate;
	if (w->accumulate >= FSDP_NO_SYNC)
		j.grad_slots = 0;
	return j;
}

/* T5, T6, T27: B4, and of copies of 2^k ranks: sums over shards, then over copies, are those of the tree over all. States and
 * gradients as well, wherever they lie. An evaluation between the steps changes nothing. */
static void t5_t6_t27_strategies_have_the_bits_of_full(void)
{
	for (int world = 1; world <= 4; world++)
		for (int sub = 1; sub <= 2; sub++) {
			const char *cfg = sub == 1 ? NET(BN, "1") : NET(BN, "2");
			struct job a = job_of(world, cfg);

			job_run(&a);
			for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++) {
				struct job b = job_of_way(&ways[k], world, cfg);

				if ((ways[k].shards && world != 4) || (sub > 1 && b.accumulate != FSDP_SHARDED_SUM))
					continue;
				b.evaluate = k & 1;
				b.early = k & 2;
				job_run(&b);
				check_same_bits(&b, &a);
				CHECK_BITS(b.states, a.states, (size_t)a.n_trained * sizeof(float));
				job_fini(&b);
			}
			job_fini(&a);
		}
}

/* T12, T13: sums of microbatches before those of ranks come in another order; all that begin alike are alike. */
static void t12_t13_accumulation_is_that_of_one_large_batch(void)
{
	for (int world = 2; world <= 4; world++) {
		struct job a = job_of(world, NET("", "2")), first[2] = { 0 };

		job_run(&a);
		for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++) {
			struct job b = job_of_way(&ways[k], world, NET("", "2")), *f = &first[b.accumulate >= FSDP_NO_SYNC];

			if ((ways[k].shards && world != 4) || b.accumulate == FSDP_SHARDED_SUM)
				continue;
			job_run(&b);
			CHECK_CLOSE(b.values, a.values, a.n_values, 1e-5);
			if (f->values) {
				check_same_bits(&b, f);
				job_fini(&b);
			} else {
				*f = b;
			}
		}
		job_fini(&first[0]);
		job_fini(&first[1]);
		job_fini(&a);
	}
}

/* B3: how far ahead is gathered changes no bit */
static void slots_prefetch_and_depth_change_no_bit(void)
{
	static const struct {
		int limit, depth, grad_slots;
		enum fsdp_prefetch p;
	} modes[] = {
		{ 1, 0, 1, FSDP_PRE }, { 2, 1, 1, FSDP_POST }, { 2, 1, 2, FSDP_NONE },
		{ 3, 2, 2, FSDP_PRE }, { 4, 3, 4, FSDP_POST },
	};
	struct job a = job_of(3, NET(BN, "2"));

	job_run(&a);
	for (int k = 0; k < 5; k++) {
		struct job b = job_of(3, NET(BN, "2"));

		b.limit = modes[k].limit;
		b.depth = modes[k].depth;
		b.grad_slots = modes[k].grad_slots;
		b.prefetch = modes[k].p;
		b.early = k & 1;
		b.evaluate = k & 1;
		job_run(&b);
		check_same_bits(&b, &a);
		job_fini(&b);
	}
	job_fini(&a);
}

static void t7_assembled_gradient_is_that_of_one_process(void)
{
	struct job a = job_of(1, NET("", "1"));

	a.plain = true;
	a.steps = 0;
	job_run(&a);
	for (int world = 1; world <= 4; world++) {
		struct job b = job_of(world, NET("", "2"));
		double d = 0, s = 0;

		b.steps = 0;
		job_run(&b);
		for (int64_t i = 0; i < a.n_values; i++) {
			d += ((double)b.grads[i] - a.grads[i]) * ((double)b.grads[i] - a.grads[i]);
			s += (double)a.grads[i] * a.grads[i];
		}
		if (!(sqrt(d) <= 1e-6 * sqrt(world * 2.0) * sqrt(s)))
			fprintf(stderr, "world %d: gradient differs by %g of %g\n", world, sqrt(d), sqrt(s));
		CU_ASSERT(s > 0 && sqrt(d) <= 1e-6 * sqrt(world * 2.0) * sqrt(s));
		job_fini(&b);
	}
	job_fini(&a);
}

static void initial_values_do_not_depend_on_the_world(void)
{
	struct job a = job_of(1, NET(BN, "1"));

	a.plain = true;
	a.steps = -1;
	job_run(&a);
	for (int world = 1; world <= 4; world++) {
		struct job b = job_of(world, NET(BN, "1"));

		b.steps = -1;
		job_run(&b);
		CHECK_EQ(b.n_values, a.n_values);
		CHECK_BITS(b.values, a.values, (size_t)a.n_values * sizeof(float));
		job_fini(&b);
	}
	job_fini(&a);
}

static void look_traffic(struct job *j, int rank, struct dn_net *net)
{
	struct dn_store_report r;

	net->store.ops->report(net->store.self, &r);
	CHECK_EQ(r.gather.counted_bytes, r.gather.planned_bytes);
	CHECK_EQ(r.gather.counted_calls, r.gather.planned_calls);
	CHECK_EQ(r.reduce.counted_bytes, r.reduce.planned_bytes);
	CHECK_EQ(r.reduce.counted_calls, r.reduce.planned_calls);
	CU_ASSERT(r.plan_hash != 0);
	if (j->strategy != FSDP_FULL || j->stay || j->accumulate != FSDP_SHARDED_SUM)
		return;
	/* 4 blocks have params: forward each; backward those that are not the last two and whose values are read */
	CU_ASSERT(r.gather.counted_calls >= 2 * 4 && r.gather.counted_calls <= 2 * 6);
	CHECK_EQ(r.reduce.counted_calls, 2 * 4);
}

static void t8_counted_traffic_is_the_planned(void)
{
	for (int world = 1; world <= 4; world++) {
		struct job j = job_of(world, NET(BN, "2"));

		j.look = look_traffic;
		j.evaluate = true; /* does not count */
		job_run(&j);
		job_fini(&j);
	}
	for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++) {
		struct job j = job_of_way(&ways[k], 4, NET(BN, "2"));

		j.look = look_traffic;
		job_run(&j);
		job_fini(&j);
	}
}

static void look_memory(struct job *j, int rank, struct dn_net *net)
{
	struct dn_store_report r;

	pthread_barrier_wait(&j->line);
	if (rank == 0) {
		net->store.ops->report(net->store.self, &r);
		for (int k = 0; k < DN_MEM_PLANNED; k++) {
			size_t planned = r.planned_bytes[k], ring = 0;
			struct dn_mem_stats s;

			dn_mem_stats((enum dn_region)k, &s);
			if (k == DN_MEM_ACTIVATIONS) { /* there is no loader here */
				CHECK_OK(dn_loop_input_bytes(net, &ring));
				planned -= ring;
			}
			if (s.now_bytes != planned * (size_t)j->world)
				fprintf(stderr, "%s:\n", dn_region_name((enum dn_region)k));
			CHECK_EQ(s.now_bytes, planned * (size_t)j->world);
		}
	}
	pthread_barrier_wait(&j->line);
}

static void t11_measured_memory_is_the_planned_in_every_region(void)
{
	for (int world = 1; world <= 4; world++) {
		struct job j = job_of(world, NET(BN, "2"));

		j.look = look_memory;
		job_run(&j);
		job_fini(&j);
	}
	for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++) {
		struct job j = job_of_way(&ways[k], 4, NET(BN, "2"));

		j.look = look_memory;
		job_run(&j);
		job_fini(&j);
	}
}

static void t11_steps_after_the_first_allocate_nothing(void)
{
	struct job j = job_of(1, NET(BN, "2"));

	j.steps = 32;
	job_run(&j);
	CHECK_EQ(j.n_allocs, 0);
	job_fini(&j);
}

/* docs/sharding.md: rolling statistics come from the mean over ranks: equal on all ranks, bit for bit */
static pthread_mutex_t rolling_lock = PTHREAD_MUTEX_INITIALIZER;
static float rolling[RANKS_MAX][64];

static int keep_rolling(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	float **to = arg;

	memcpy(*to, x, (size_t)n * sizeof(float));
	*to += n;
	return 0;
}

static void look_rolling(struct job *j, int rank, struct dn_net *net)
{
	float *to = rolling[rank];

	pthread_mutex_lock(&rolling_lock);
	for (int i = 0; i < net->n_params; i++)
		if (net->params[i]->role == DN_BUFFER)
			CHECK_OK(net->store.ops->each(net->store.self, net->params[i], DN_VALUE, DN_READ, keep_rolling, &to));
	CHECK_EQ(to - rolling[rank], 24);
	pthread_mutex_unlock(&rolling_lock);
}

static void t34_rolling_statistics_are_equal_on_all_ranks(void)
{
	for (int world = 2; world <= 4; world++) {
		struct job j = job_of(world, NET(BN, "2"));

		j.look = look_rolling;
		memset(rolling, 0, sizeof(rolling));
		job_run(&j);
		CU_ASSERT(rolling[0][0] != 0);
		for (int r = 1; r < world; r++)
			CHECK_BITS(rolling[r], rolling[0], 24 * sizeof(float));
		job_fini(&j);
	}
}

/* --- the log of operations --- */

static void log_text(const struct fsdp_runtime *rt, char *out, size_t cap)
{
	size_t at = 0;

	*out = '\0';
	for (int64_t i = 0; i < rt->n_log && at < cap; i++) {
		static const char letters[] =
			"GFRBSCHUTXIK"; /* gather forward release backward reduce(S) combine share(H) update stats(T) exchange input look */

		at += (size_t)snprintf(out + at, cap - at, "%s%c%d", i ? " " : "", letters[rt->log[i].kind], rt->log[i].block);
	}
}

static void log_case(enum fsdp_prefetch prefetch, int limit, int depth, const char *want)
{
	struct job j = job_of(1, NET("", "1"));
	struct fsdp_op log[64];
	struct fsdp_store *s;
	struct rank_run r;
	char text[512];
	double loss;

	j.prefetch = prefetch;
	j.limit = limit;
	j.depth = depth;
	CHECK_OK_FATAL(fsdp_hub_create(&j.hub, 1));
	CHECK_OK_FATAL(build(&r, &j, 0));
	CHECK_OK(one_step(&r, 0, 0, &loss));
	s = r.net->store.self;
	s->rt.log = log;
	s->rt.log_cap = 64;
	CHECK_OK(one_step(&r, 0, 1, &loss));
	log_text(&s->rt, text, sizeof(text));
	CHECK_STR(text, want);
	unbuild(&r);
	fsdp_hub_destroy(j.hub);
}

/* Blocks 0 conv, 1 pool (no params), 2 conv, 3 wide, 4 tail. With two slots 4 and 3 stay at the turn; block 0's backward reads
 * no values (its input needs no gradient), so it is not gathered again. */
static void t9_operations_run_in_the_planned_order(void)
{
	log_case(FSDP_PRE, 2, 1, "G0 G2 F0 R0 F1 G3 F2 R2 G4 F3 F4 B4 S4 I4 R4 G2 B3 S3 I3 R3 B2 S2 I2 R2 B1 B0 S0 U4 U3 U2 U0");
}

static void t9_operations_follow_every_prefetch_mode(void)
{
	log_case(FSDP_NONE, 2, 0, "G0 F0 R0 F1 G2 F2 R2 G3 F3 G4 F4 B4 S4 I4 R4 B3 S3 I3 R3 G2 B2 S2 I2 R2 B1 B0 S0 U4 U3 U2 U0");
	log_case(FSDP_POST, 2, 1, "G0 F0 R0 G2 F1 F2 R2 G3 F3 G4 F4 B4 R4 S4 B3 R3 G2 S3 B2 R2 S2 B1 B0 S0 U4 U3 U2 U0");
	log_case(FSDP_PRE, 3, 2, "G0 G2 G3 F0 R0 F1 G4 F2 F3 F4 B4 S4 I4 R4 B3 S3 I3 R3 B2 S2 I2 R2 B1 B0 S0 U4 U3 U2 U0");
}

/* --- refusals --- */

static void call_out_of_order_is_refused_with_both_operations(void)
{
	struct job j = job_of(1, NET("", "1"));
	struct rank_run r;
	const struct dn_pass train = { .phase = DN_TRAIN };
	struct dn_net *net;

	CHECK_OK_FATAL(fsdp_hub_create(&j.hub, 1));
	CHECK_OK_FATAL(build(&r, &j, 0));
	net = r.net;
	CHECK_OK(net->store.ops->begin(net->store.self, net, 1));
	CHECK_FAILS(net->store.hooks->before_forward(net->store.self, &net->blocks[2], &train), -EPROTO,
		    "block mid: forward is called, but the plan's next operation is forward of block head");
	CHECK_FAILS(net->store.hooks->before_forward(net->store.self, &net->blocks[0], &train), -EPROTO, "after an error");
	CHECK_FAILS(net->store.ops->begin(net->store.self, net, 2), -EPROTO, "ended with an error");
	unbuild(&r);

	CHECK_OK_FATAL(build(&r, &j, 0));
	net = r.net;
	CHECK_OK(net->store.ops->begin(net->store.self, net, 1));
	images(&r, 0, 0);
	r.pass.phase = DN_TRAIN;
	CHECK_OK(dn_net_forward(net, &r.pass));
	CHECK_FAILS(net->store.ops->begin(net->store.self, net, 2), -EPROTO, "stopped before backward of block tail");
	unbuild(&r);
	fsdp_hub_destroy(j.hub);
}

static void values_that_were_never_written_are_refused(void)
{
	struct job j = job_of(1, NET("", "1"));
	struct rank_run r;
	struct fsdp_store *s;

	CHECK_OK_FATAL(fsdp_hub_create(&j.hub, 1));
	CHECK_OK_FATAL(build(&r, &j, 0));
	s = r.net->store.self;
	s->written[s->plan->tensor_of_param[2]] = 0; /* as if nobody had filled it */
	images(&r, 0, 0);
	CHECK_FAILS(dn_net_forward(r.net, &r.pass), -EINVAL, "elements 0 to 7 of 2.biases were never written");
	unbuild(&r);
	fsdp_hub_destroy(j.hub);
}

/* --- writing --- */

static int same_bits(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	CHECK_BITS(x, (const float *)arg + at, (size_t)n * sizeof(float));
	return 0;
}

static void write_rank(int rank, void *arg)
{
	struct job *j = arg;
	struct rank_run r;
	float *whole = malloc(4096 * sizeof(float)), *back = malloc(4096 * sizeof(float));

	CHECK_OK_FATAL(build(&r, j, rank));
	for (int i = 0; i < r.net->n_params; i++) {
		struct dn_param *p = r.net->params[i];
		const struct dn_store_ops *ops = r.net->store.ops;

		CU_ASSERT_FATAL(p->n <= 4096);
		for (int part = DN_VALUE; part <= DN_STATE0; part++) {
			if (p->role == DN_BUFFER && part != DN_VALUE)
				continue;
			for (int64_t k = 0; k < p->n; k++)
				whole[k] = noise((uint64_t)(i * 8 + part), (uint64_t)k);
			CHECK_OK(ops->write(r.net->store.self, p, (enum dn_part)part, 0, p->n / 2, rank ? NULL : whole));
			CHECK_OK(ops->write(r.net->store.self, p, (enum dn_part)part, p->n / 2, p->n - p->n / 2,
					    rank ? NULL : whole + p->n / 2));
			memset(back, 0, 4096 * sizeof(float));
			CHECK_OK(ops->read(r.net->store.self, p, (enum dn_part)part, 0, p->n, rank ? NULL : back));
			if (rank == 0)
				CHECK_BITS(back, whole, (size_t)p->n * sizeof(float));
			if (p->role == DN_BUFFER) /* on every rank */
				CHECK_OK(ops->each(r.net->store.self, p, DN_VALUE, DN_READ, same_bits, whole));
		}
	}
	pthread_barrier_wait(&j->line);
	unbuild(&r);
	free(whole);
	free(back);
}

static void t1_written_tensors_come_back_bit_for_bit(void)
{
	for (int world = 1; world <= 4; world++) {
		struct job j = job_of(world, NET(BN, "1"));

		CHECK_OK_FATAL(fsdp_hub_create(&j.hub, world));
		CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&j.line, NULL, (unsigned)world), 0);
		ranks_run(world, write_rank, &j);
		pthread_barrier_destroy(&j.line);
		fsdp_hub_destroy(j.hub);
	}
}

/* --- a rank that does not come --- */

static void stall_rank(int rank, void *arg)
{
	struct job *j = arg;
	struct rank_run r;
	double loss;

	CHECK_OK_FATAL(build(&r, j, rank));
	r.dev->be->set_timeout(r.dev, 200);
	if (rank != 1) {
		CHECK_FAILS(one_step(&r, rank, 0, &loss), DN_EPEER_LATE, "gather of block head: waited");
		CU_ASSERT(dn_ends(dn_message(), "waiting for rank 1"));
	}
	pthread_barrier_wait(&j->line);
	unbuild(&r);
}

static void t36_late_rank_is_named_with_block_and_operation(void)
{
	struct job j = job_of(3, NET("", "1"));

	CHECK_OK_FATAL(fsdp_hub_create(&j.hub, 3));
	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&j.line, NULL, 3), 0);
	ranks_run(3, stall_rank, &j);
	pthread_barrier_destroy(&j.line);
	fsdp_hub_destroy(j.hub);
}

static const struct check_case cases[] = {
	{ "one_rank_is_bit_equal_to_the_local_store", one_rank_is_bit_equal_to_the_local_store },
	{ "two_ranks_are_bit_equal_to_two_subdivisions", two_ranks_are_bit_equal_to_two_subdivisions },
	{ "t4_every_world_trains_as_one_process", t4_every_world_trains_as_one_process },
	{ "t5_t6_t27_strategies_have_the_bits_of_full", t5_t6_t27_strategies_have_the_bits_of_full },
	{ "t12_t13_accumulation_is_that_of_one_large_batch", t12_t13_accumulation_is_that_of_one_large_batch },
	{ "slots_prefetch_and_depth_change_no_bit", slots_prefetch_and_depth_change_no_bit },
	{ "t7_assembled_gradient_is_that_of_one_process", t7_assembled_gradient_is_that_of_one_process },
	{ "initial_values_do_not_depend_on_the_world", initial_values_do_not_depend_on_the_world },
	{ "t8_counted_traffic_is_the_planned", t8_counted_traffic_is_the_planned },
	{ "t11_measured_memory_is_the_planned_in_every_region", t11_measured_memory_is_the_planned_in_every_region },
	{ "t11_steps_after_the_first_allocate_nothing", t11_steps_after_the_first_allocate_nothing },
	{ "t34_rolling_statistics_are_equal_on_all_ranks", t34_rolling_statistics_are_equal_on_all_ranks },
	{ "t9_operations_run_in_the_planned_order", t9_operations_run_in_the_planned_order },
	{ "t9_operations_follow_every_prefetch_mode", t9_operations_follow_every_prefetch_mode },
	{ "call_out_of_order_is_refused_with_both_operations", call_out_of_order_is_refused_with_both_operations },
	{ "values_that_were_never_written_are_refused", values_that_were_never_written_are_refused },
	{ "t1_written_tensors_come_back_bit_for_bit", t1_written_tensors_come_back_bit_for_bit },
	{ "t36_late_rank_is_named_with_block_and_operation", t36_late_rank_is_named_with_block_and_operation },
	{ NULL, NULL }
};

int main(void)
{
	return check_run("fsdp runtime", cases);
}
