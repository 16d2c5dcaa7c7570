/* Training under every strategy against one process without the plugin, on small and awkward nets: T1 (padding), T4, T7, T21, T23, T24,
 * and T40 in short.
 */
#include <dirent.h>
#include <errno.h>
#include "train_ranks.h"

#define HEAD(sub, keys) "[net]\nbatch=24\nsubdivisions=" sub "\nwidth=8\nheight=8\nchannels=2\n" keys
#define CONV "[convolutional]\nfilters=5\nsize=3\npad=1\nactivation=leaky\n"
#define POOL "[maxpool]\nsize=2\nstride=2\n"
#define CONNECTED(n, act) "[connected]\noutput=" #n "\nactivation=" #act "\n"
/* the root, which is the last block, with and without params of its own; the first one likewise; tensors of one element */
#define ROOT(sub, keys) \
	HEAD(sub, keys) \
	"[block]\nname=stem\n" CONV "[block]\nname=pool\n" POOL "[block]\nname=mid\n" CONNECTED( \
		13, tanh) "[block]\nname=one\n" CONNECTED(1, linear) "[block]\nname=tail\n" CONNECTED(6, linear) "[softmax]\n"
#define NO_ROOT(sub, keys) \
	HEAD(sub, keys) \
	"[block]\nname=pool\n" POOL "[block]\nname=stem\n" CONV "[block]\nname=mid\n" CONNECTED(7, tanh) \
		CONNECTED(6, linear) "[block]\nname=tail\n[softmax]\n"
#define ADAM "optimizer=adam\neps=1e-4\n"
#define ADAMW "optimizer=adamw\neps=1e-4\n"

/* of @world ranks; false: there is no such strategy */
static bool strategy_of(struct train_job *j, int strategy)
{
	j->opt.strategy = (enum fsdp_strategy)strategy;
	j->opt.shards = fsdp_strategy_hybrid(j->opt.strategy) ? j->world / 2 : 0;
	return !fsdp_strategy_hybrid(j->opt.strategy) || (j->world > 1 && j->world % 2 == 0);
}

static void check_close(const struct train_job *j, const struct train_job *plain, double most)
{
	double d = train_distance(j->values, plain->values, plain->n_values);

	CHECK_EQ(j->n_values, plain->n_values);
	if (!(d <= most))
		fprintf(stderr, "world %d, strategy %d: weights differ by %g\n", j->world, (int)j->opt.strategy, d);
	CU_ASSERT(d <= most);
	for (int s = 0; s < plain->steps; s++)
		CU_ASSERT(fabs(j->loss[s] - plain->loss[s]) <= most * fabs(plain->loss[s]));
}

/* Ten steps of @cfg in one process and under every strategy on 1 to 4 ranks; of one world all have the same bits. */
static void check_parity(const char *cfg, double most)
{
	struct train_job plain = train_job_of(cfg, 1);

	plain.plain = true;
	plain.steps = 10;
	train_run(&plain);
	CU_ASSERT(isfinite(plain.loss[9]) && plain.loss[9] != plain.loss[0]);
	for (int world = 1; world <= 4; world++) {
		struct train_job full = train_job_of(cfg, world);

		for (int s = FSDP_FULL; s <= FSDP_HYBRID_FULL_OPT; s++) {
			struct train_job j = train_job_of(cfg, world);

			j.steps = 10;
			j.early = s & 1; /* updates within the last backward */
			if (!strategy_of(&j, s))
				continue;
			train_run(&j);
			check_close(&j, &plain, most);
			if (s == FSDP_FULL) {
				full = j;
				continue;
			}
			full.steps = 10;
			train_same_bits(&j, &full);
			train_fini(&j);
		}
		train_fini(&full);
	}
	train_fini(&plain);
}

static void t4_each_strategy_and_optimizer_trains_as_one_process(void)
{
	static const char *const cfgs[] = { ROOT("1", ""),    ROOT("2", ADAM),	  ROOT("1", ADAMW),
					    NO_ROOT("2", ""), NO_ROOT("1", ADAM), NO_ROOT("2", ADAMW) };

	for (int k = 0; k < 6; k++)
		check_parity(cfgs[k], 2e-5);
}

/* one backward, no update: the whole gradient from its parts, under every strategy and accumulation */
static void t7_gradients_of_all_strategies_are_those_of_one_process(void)
{
	struct train_job plain = train_job_of(ROOT("1", ""), 1);

	plain.plain = true;
	plain.steps = 0;
	train_run(&plain);
	for (int world = 1; world <= 4; world++)
		for (int s = FSDP_FULL; s <= FSDP_HYBRID_FULL_OPT; s++)
			for (int how = FSDP_SHARDED_SUM; how <= FSDP_NO_SYNC_KEEP; how++) {
				struct train_job j = train_job_of(ROOT("2", ""), world);

				j.opt.accumulate = (enum fsdp_accumulate)how;
				if (how >= FSDP_NO_SYNC)
					j.opt.grad_slots = 0;
				j.steps = 0;
				if (!strategy_of(&j, s) || (how == FSDP_HYBRID_LAST && !fsdp_strategy_hybrid(j.opt.strategy)))
					continue;
				train_run(&j);
				CU_ASSERT(train_distance(j.grads, plain.grads, plain.n_trained) <= 1e-6 * sqrt(2. * world));
				train_fini(&j);
			}
	train_fini(&plain);
}

/* --- T1: what belongs to no tensor --- */

/* elements of @part's region of this rank that are a tensor's own */
static void mark_own(const struct fsdp_plan *p, int block, enum dn_part part, int rank, bool *own)
{
	const struct fsdp_block *b = &p->blocks[block];

	if (part == DN_GRAD && b->sum != b->part) /* of the whole shard, before the copies have shared what each updates */
		part = DN_VALUE;
	for (int t = b->first_tensor; t < b->first_tensor + b->n_tensors; t++) {
		int64_t at, n, from;

		fsdp_plan_tensor(p, t, part, rank, &at, &n, &from);
		for (int64_t i = 0; i < n; i++)
			own[from + i] = true;
	}
}

static int64_t n_padding, n_empty;

static void check_part(const struct fsdp_store *s, struct dn_net *net, int block, enum dn_part part, int rank)
{
	const struct fsdp_place x = fsdp_place_part(s->plan, block, part);
	const int64_t n = (int64_t)(x.bytes / sizeof(float));
	int64_t n_own = 0, n_set = 0;
	float *copy;
	bool *own;

	if (!n)
		return;
	own = calloc((size_t)n, sizeof(*own));
	CHECK_OK_FATAL(net->dev->be->alloc_host(net->dev, DN_MEM_HOST, x.bytes, (void **)&copy));
	CHECK_OK(net->dev->be->copy(net->compute, copy, fsdp_runtime_at(&s->rt, x), x.bytes));
	CHECK_OK(net->dev->be->stream_sync(net->compute));
	mark_own(s->plan, block, part, rank, own);
	for (int64_t i = 0; i < n; i++) {
		n_own += own[i];
		n_set += !own[i] && (copy[i] != 0 || signbit(copy[i]));
	}
	CHECK_EQ(n_set, 0);
	__atomic_add_fetch(&n_padding, n - n_own, __ATOMIC_RELAXED);
	__atomic_add_fetch(&n_empty, n_own == 0, __ATOMIC_RELAXED);
	net->dev->be->free_host(net->dev, copy);
	free(own);
}

static void look_at_padding(struct train_job *j, int rank, struct dn_net *net)
{
	const struct fsdp_store *s = net->store.self;

	(void)j;
	for (int b = 0; b < s->plan->n_blocks; b++)
		for (int part = DN_VALUE; part < DN_STATE0 + s->plan->n_states; part++)
			check_part(s, net, b, (enum dn_part)part, rank);
}

static void t1_padding_stays_zero_in_values_gradients_and_states(void)
{
	for (int world = 1; world <= 4; world++)
		for (int s = FSDP_FULL; s <= FSDP_HYBRID_FULL_OPT; s++)
			for (int how = 0; how < 2; how++) {
				struct train_job j = train_job_of(how ? ROOT("2", ADAM) : ROOT("2", ""), world);

				if (!strategy_of(&j, s))
					continue;
				j.opt.accumulate = how ? FSDP_NO_SYNC : FSDP_SHARDED_SUM;
				j.opt.grad_slots = how ? 0 : 2;
				j.opt.debug.poison = true; /* slots that were not cleared would bring it */
				j.look = look_at_padding;
				train_run(&j);
				train_fini(&j);
			}
	CU_ASSERT(n_padding > 1000);
	CU_ASSERT(n_empty > 10); /* shards without an element of any tensor */
}

/* --- T21, T24 --- */

static void t21_params_shared_in_a_block_train_as_in_one_process(void)
{
	check_parity(HEAD("1", "") "[block]\nname=stem\n" CONV POOL
				   "[block]\nname=mid\n[convolutional]\nfilters=5\nsize=3\npad=1\nactivation=leaky\n"
				   "[convolutional]\nfilters=5\nsize=3\npad=1\nactivation=tanh\nshare_index=-1\n"
				   "[convolutional]\nfilters=5\nsize=3\npad=1\nactivation=leaky\nshare_index=-2\n"
				   "[block]\nname=tail\n" CONNECTED(6, linear) "[softmax]\n",
		     2e-5);
}

/* a block whose output nobody reads has gradients of zero, which are reduced; one that backward does not reach has none */
static void t24_unread_outputs_and_unreached_blocks_end_every_step(void)
{
	check_parity(HEAD("2", "") "[block]\nname=stem\n" CONNECTED(9, leaky) "[block]\nname=unread\n" CONNECTED(
			     7, leaky) "[block]\nname=tail\n[route]\nlayers=0\n" CONNECTED(6, linear) "[softmax]\n",
		     2e-5);
	check_parity(HEAD("1", "") "[block]\nname=stem\n" CONNECTED(9, leaky) "[block]\nname=stop\n[connected]\noutput=7\n"
									      "activation=leaky\nstopbackward=1\n"
									      "[block]\nname=tail\n" CONNECTED(
										      6, linear) "[softmax]\n",
		     2e-5);
}

/* --- T23 --- */

static void two_forwards(int rank, void *arg)
{
	struct train_job *j = arg;
	struct train_rank r;
	struct dn_pass p;

	CHECK_OK_FATAL(train_build(&r, j, rank));
	CHECK_OK(r.net->store.ops->begin(r.net->store.self, r.net, 1));
	p = (struct dn_pass){ .phase = DN_TRAIN, .input = r.x, .truth = r.t };
	for (int64_t i = 0; i < r.net->local_batch * r.net->inputs; i++)
		r.x[i] = noise(1, (uint64_t)i);
	for (int64_t i = 0; i < r.net->local_batch * TRAIN_CLASSES; i++)
		r.t[i] = i % TRAIN_CLASSES == 0;
	CHECK_OK(dn_net_forward(r.net, &p));
	p.micro = 1;
	CHECK_FAILS(dn_net_forward(r.net, &p), -EPROTO,
		    "block stem: forward is called, but the plan's next operation is backward of block tail (microbatch 0)");
	pthread_barrier_wait(&j->line);
	train_unbuild(&r);
}

/* a static plan has each microbatch's backward behind its forward */
static void t23_several_forwards_before_their_backwards_are_refused(void)
{
	for (int world = 1; world <= 4; world++) {
		struct train_job j = train_job_of(ROOT("2", ""), world);

		train_ranks(&j, two_forwards);
	}
}

/* Evaluations before the first step and between steps leave every block idle; between microbatches where whole values are. */
static void forward_first(struct train_job *j, int rank, struct dn_net *net)
{
	float *x;
	struct dn_pass p = { .phase = DN_INFER };

	(void)j;
	CHECK_OK_FATAL(net->dev->be->alloc_host(net->dev, DN_MEM_HOST, (size_t)(net->local_batch * net->inputs) * sizeof(*x),
						(void **)&x));
	for (int64_t i = 0; i < net->local_batch * net->inputs; i++)
		x[i] = noise((uint64_t)rank, (uint64_t)i);
	p.input = x;
	for (int k = 0; k < 3; k++)
		CHECK_OK(dn_net_forward(net, &p));
	CHECK_OK(dn_net_input_wait(net));
	dn_net_drain(net);
	net->dev->be->free_host(net->dev, x);
}

static void t23_evaluations_between_steps_change_no_bit(void)
{
	for (int world = 1; world <= 4; world++)
		for (int s = FSDP_FULL; s <= FSDP_HYBRID_FULL_OPT; s++) {
			struct train_job quiet = train_job_of(ROOT("2", ""), world), j;

			if (!strategy_of(&quiet, s))
				continue;
			j = quiet;
			j.start = forward_first;
			j.other_passes = true;
			j.between = s == FSDP_OPT || s == FSDP_REPLICATE; /* nothing is gathered ahead */
			train_run(&quiet);
			train_run(&j);
			train_same_bits(&j, &quiet);
			train_fini(&j);
			train_fini(&quiet);
		}
}

/* where the next microbatch's first block is gathered ahead, it is in no state for another pass */
static void between_gathers(int rank, void *arg)
{
	struct train_job *j = arg;
	struct train_rank r;
	double loss;

	CHECK_OK_FATAL(train_build(&r, j, rank));
	CHECK_FAILS(train_step(&r, j, rank, 0, &loss), -EPROTO, "block stem: an evaluation begins while it is gathering");
	pthread_barrier_wait(&j->line);
	train_unbuild(&r);
}

static void t23_an_evaluation_while_a_block_is_gathered_ahead_is_refused(void)
{
	for (int world = 1; world <= 4; world++) {
		struct train_job j = train_job_of(ROOT("2", ""), world);

		j.between = true;
		train_ranks(&j, between_gathers);
	}
}

/* two losses, one of them inside */
static void t23_two_losses_train_as_in_one_process(void)
{
	check_parity(HEAD("1", "") "[block]\nname=stem\n" CONNECTED(9, leaky) "[block]\nname=side\n" CONNECTED(
			     6, linear) "[softmax]\n[block]\nname=tail\n[route]\nlayers=0\n" CONNECTED(6, linear) "[softmax]\n",
		     2e-5);
}

/* --- T40 --- */

#define SOAK_STEPS 120

static struct soak {
	uint64_t hash[RANKS_MAX];
	pthread_barrier_t line;
	size_t bytes[DN_MEM_REGIONS];
	int n_files, n_threads;
} soak;

static int entries(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static int add_hash(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	uint64_t pair[2] = { *(uint64_t *)arg, dn_hash(x, (size_t)n * sizeof(*x)) };

	(void)p;
	(void)at;
	*(uint64_t *)arg = dn_hash(pair, sizeof(pair));
	return 0;
}

/* what takes memory, files and threads: after the second step as after the last */
static void count_all(bool first)
{
	for (int k = 0; k < DN_MEM_REGIONS; k++) {
		struct dn_mem_stats m;

		dn_mem_stats((enum dn_region)k, &m);
		if (first)
			soak.bytes[k] = m.now_bytes;
		CHECK_EQ(m.now_bytes, soak.bytes[k]);
	}
	if (first) {
		soak.n_files = entries("/proc/self/fd");
		soak.n_threads = entries("/proc/self/task");
	}
	CHECK_EQ(entries("/proc/self/fd"), soak.n_files);
	CHECK_EQ(entries("/proc/self/task"), soak.n_threads);
}

static void each_step(const struct train_job *j, int rank, int64_t step, struct dn_net *net)
{
	uint64_t h = 0;

	for (int i = 0; i < net->n_params; i++)
		CHECK_OK(net->store.ops->each(net->store.self, net->params[i], DN_VALUE, DN_READ, add_hash, &h));
	soak.hash[rank] = h;
	pthread_barrier_wait(&soak.line);
	if (rank == 0 && j->opt.shards == 2) /* ranks 0 and 2 have the same, so have 1 and 3 */
		CU_ASSERT(soak.hash[0] == soak.hash[2] && soak.hash[1] == soak.hash[3] && soak.hash[0] != soak.hash[1]);
	if (rank == 0 && (step == 1 || step == j->steps - 1))
		count_all(step == 1);
	pthread_barrier_wait(&soak.line);
}

static void t40_many_steps_with_delays_keep_replicas_equal_and_take_nothing(void)
{
	static const enum fsdp_strategy strategies[] = { FSDP_HYBRID_FULL, FSDP_HYBRID_FULL_OPT };

	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&soak.line, NULL, 4), 0);
	for (int k = 0; k < 2; k++) {
		struct train_job j = train_job_of(ROOT("2", ""), 4), plain = j;

		j.opt.strategy = plain.opt.strategy = strategies[k];
		j.opt.shards = plain.opt.shards = 2;
		j.opt.transport = k ? FSDP_SHM : FSDP_AUTO;
		j.steps = plain.steps = SOAK_STEPS;
		j.each = each_step;
		j.early = true;
		for (int q = 0; q < FSDP_QUEUES; q++)
			j.opt.debug.delay[q] = (struct fsdp_delay){ .05, (uint64_t)q };
		train_run(&j);
		train_run(&plain);
		train_same_bits(&j, &plain);
		train_fini(&j);
		train_fini(&plain);
	}
	pthread_barrier_destroy(&soak.line);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(t1_padding_stays_zero_in_values_gradients_and_states),
	CASE(t4_each_strategy_and_optimizer_trains_as_one_process),
	CASE(t7_gradients_of_all_strategies_are_those_of_one_process),
	CASE(t21_params_shared_in_a_block_train_as_in_one_process),
	CASE(t23_several_forwards_before_their_backwards_are_refused),
	CASE(t23_evaluations_between_steps_change_no_bit),
	CASE(t23_an_evaluation_while_a_block_is_gathered_ahead_is_refused),
	CASE(t23_two_losses_train_as_in_one_process),
	CASE(t24_unread_outputs_and_unreached_blocks_end_every_step),
	CASE(t40_many_steps_with_delays_keep_replicas_equal_and_take_nothing),
	{ NULL, NULL },
};

int main(void)
{
	return check_run("fsdp/parity", cases);
}
