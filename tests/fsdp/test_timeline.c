/* T3 and what else debugging keys may not change; clocks and the trace. */
#include <unistd.h>
#include "plan_nets.h"
#include "train_ranks.h"

/* statistics, layers that exchange, several blocks, two microbatches: all five queues have work */
#define NET \
	"[net]\nbatch=24\nsubdivisions=2\nwidth=8\nheight=8\nchannels=2\n" \
	"[block]\nname=stem\n[convolutional]\nbatch_normalize=1\nfilters=5\nsize=3\npad=1\nactivation=leaky\n" \
	"[block]\nname=pool\n[maxpool]\nsize=2\nstride=2\n" \
	"[block]\nname=mid\n[connected]\noutput=13\nbatch_normalize=1\nactivation=tanh\n" \
	"[block]\nname=tail\n[connected]\noutput=6\nactivation=linear\n[softmax]\n"

static struct train_job job_of_two(void)
{
	struct train_job j = train_job_of(NET, 2);

	j.sync_bn = true;
	j.other_passes = true;
	j.opt.trace_steps = 2;
	return j;
}

struct way { /* what four ranks run */
	enum fsdp_strategy strategy;
	int shards, stay;
	enum fsdp_accumulate accumulate;
	enum fsdp_transport transport;
	int limit;
	enum fsdp_prefetch prefetch;
	bool recompute;
};

static const struct way ways[] = {
	{ FSDP_FULL, 0, 0, FSDP_SHARDED_SUM, FSDP_AUTO, 2, FSDP_PRE, false },
	{ FSDP_HYBRID_FULL_OPT, 2, 0, FSDP_SHARDED_SUM, FSDP_SHM, 2, FSDP_PRE, false },
	{ FSDP_FULL, 0, 0, FSDP_SHARDED_SUM, FSDP_SHM, 2, FSDP_POST, true },
	{ FSDP_HYBRID_FULL, 2, 0, FSDP_HYBRID_LAST, FSDP_AUTO, 3, FSDP_PRE, false },
	{ FSDP_FULL, 0, 2, FSDP_SHARDED_SUM, FSDP_SHM, 2, FSDP_PRE, false },
	{ FSDP_HYBRID_GRAD_OP, 2, 0, FSDP_SHARDED_SUM, FSDP_SHM, 2, FSDP_PRE, true },
	{ FSDP_GRAD_OP, 0, 0, FSDP_SHARDED_SUM, FSDP_SHM, 2, FSDP_PRE, false },
	{ FSDP_HYBRID_FULL, 2, 0, FSDP_NO_SYNC, FSDP_SHM, 2, FSDP_POST, false },
	{ FSDP_FULL, 0, 0, FSDP_NO_SYNC_KEEP, FSDP_SHM, 2, FSDP_PRE, false },
	{ FSDP_OPT, 0, 0, FSDP_SHARDED_SUM, FSDP_AUTO, 2, FSDP_PRE, false },
	{ FSDP_FULL, 0, 0, FSDP_NO_SYNC, FSDP_AUTO, 1, FSDP_NONE, false },
	{ FSDP_HYBRID_FULL_OPT, 2, 0, FSDP_HYBRID_LAST, FSDP_SHM, 2, FSDP_PRE, true },
	{ FSDP_FULL, 0, 1, FSDP_SHARDED_SUM, FSDP_SHM, 2, FSDP_NONE, false },
	{ FSDP_REPLICATE, 0, 0, FSDP_SHARDED_SUM, FSDP_SHM, 2, FSDP_PRE, false },
};
enum { N_WAYS = sizeof(ways) / sizeof(ways[0]), N_SEEDS = 20 };

static void count_delays(struct train_job *j, int rank, struct dn_net *net)
{
	const struct fsdp_store *s = net->store.self;

	for (int q = 0; q < FSDP_QUEUES && rank == 0; q++)
		CU_ASSERT(!(j->opt.debug.delay[q].ms > 0) || s->rt.timeline.n_delays[q] > 0);
}

static struct train_job job_of_way(const struct way *w)
{
	struct train_job j = train_job_of(NET, 4);

	j.opt.strategy = w->strategy;
	j.opt.shards = w->shards;
	j.opt.stay = w->stay;
	j.opt.accumulate = w->accumulate;
	j.opt.transport = w->transport;
	j.opt.limit = w->limit;
	j.opt.depth = w->limit - 1;
	j.opt.prefetch = w->prefetch;
	j.opt.grad_slots = w->accumulate >= FSDP_NO_SYNC ? 3 : 2;
	j.opt.recompute = w->recompute ? "all" : NULL;
	j.opt.recompute_where = "test";
	j.sync_bn = j.other_passes = true;
	j.steps = 2;
	j.look = count_delays;
	return j;
}

/* every other one updates within its last backward, as training does */
static struct train_job numbered(int k)
{
	struct train_job j = job_of_way(&ways[k]);

	j.early = k & 1;
	return j;
}

static bool has_work(const struct way *w, int q)
{
	if (q == FSDP_GATHERQ) /* whole values are never gathered */
		return w->strategy != FSDP_OPT && w->strategy != FSDP_REPLICATE;
	return q != FSDP_REPLICAQ || w->shards;
}

static struct train_job undelayed[N_WAYS];

static void run_undelayed(void)
{
	for (int k = 0; k < N_WAYS && !undelayed[k].values; k++) {
		undelayed[k] = numbered(k);
		train_run(&undelayed[k]);
	}
}

/* Each seed with the next way that has work for the queue @q; -1: all queues. */
static void check_delays(int q, bool poison)
{
	run_undelayed();
	for (int seed = 1, k = q < 0 ? 0 : q; seed <= N_SEEDS; seed++, k = (k + 1) % N_WAYS) {
		struct train_job j;

		while (q >= 0 && !has_work(&ways[k], q))
			k = (k + 1) % N_WAYS;
		j = numbered(k);
		for (int i = 0; i < FSDP_QUEUES; i++)
			if (q < 0 ? has_work(&ways[k], i) : i == q)
				j.opt.debug.delay[i] = (struct fsdp_delay){ q < 0 ? .5 : 1, (uint64_t)seed };
		j.opt.debug.poison = poison;
		train_run(&j);
		train_same_bits(&j, &undelayed[k]);
		train_fini(&j);
	}
}

static void t3_delays_in_each_queue_change_no_bit(void)
{
	for (int q = 0; q < FSDP_QUEUES; q++)
		check_delays(q, false);
}

static void t3_delays_in_all_queues_with_poison_change_no_bit(void)
{
	check_delays(-1, true);
}

/* T14: the replicas' sums are late, and what may be used again is overwritten at once */
static void t14_slow_sums_of_replicas_change_no_bit(void)
{
	check_delays(FSDP_REPLICAQ, true);
}

/* T15: likewise gathers, and compute, which copies the part that stays of a block out of its slot; T25: and updates it, so that the
 * next step's gather could be there before the values */
static void t15_t25_late_parts_and_late_updates_change_no_bit(void)
{
	struct way w = { FSDP_FULL, 0, 2, FSDP_SHARDED_SUM, FSDP_AUTO, 2, FSDP_PRE, false };

	for (int shm = 0; shm < 2; shm++) {
		struct train_job plain;

		w.transport = shm ? FSDP_SHM : FSDP_AUTO;
		plain = job_of_way(&w);
		plain.steps = 4;
		plain.early = shm;
		train_run(&plain);
		for (int q = FSDP_COMPUTE; q <= FSDP_GATHERQ; q++)
			for (uint64_t seed = 1; seed <= 3; seed++) {
				struct train_job j = job_of_way(&w);

				j.steps = plain.steps;
				j.early = plain.early;
				j.opt.debug.delay[q] = (struct fsdp_delay){ 2, seed };
				j.opt.debug.poison = true;
				train_run(&j);
				train_same_bits(&j, &plain);
				train_fini(&j);
			}
		train_fini(&plain);
	}
}

static void poison_between_uses_changes_no_bit(void)
{
	for (int release = 0; release < 3; release++)
		for (int acc = FSDP_SHARDED_SUM; acc <= FSDP_NO_SYNC_KEEP; acc++) {
			struct train_job plain = train_job_of(NET, 4), j;

			if (acc == FSDP_HYBRID_LAST)
				continue; /* below */
			plain.opt.accumulate = acc;
			plain.opt.stay = release;
			plain.opt.grad_slots = acc >= FSDP_NO_SYNC ? 3 : 2;
			plain.backend = "cpu";
			plain.other_passes = true;
			j = plain;
			j.opt.debug.poison = true;
			train_run(&plain);
			train_run(&j);
			train_same_bits(&j, &plain);
			train_fini(&j);
			train_fini(&plain);
		}
}

static int count_nan(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	(void)p;
	(void)at;
	for (int64_t i = 0; i < n; i++)
		*(int64_t *)arg += isnan(x[i]);
	return 0;
}

/* what poison is for: a slot that is read between uses shows */
static void look_for_poison(struct train_job *j, int rank, struct dn_net *net)
{
	const struct fsdp_store *s = net->store.self;
	const struct fsdp_place all = fsdp_place_all(s->plan, DN_MEM_PARAM_SLOTS, false);
	float *x;
	int64_t in_slots = 0, in_values = 0;

	(void)rank;
	CHECK_OK_FATAL(net->dev->be->alloc_host(net->dev, DN_MEM_HOST, all.bytes, (void **)&x));
	CHECK_OK(net->dev->be->copy(net->compute, x, fsdp_runtime_at(&s->rt, all), all.bytes));
	CHECK_OK(net->dev->be->stream_sync(net->compute));
	for (size_t i = 0; i < all.bytes / sizeof(*x); i++)
		in_slots += isnan(x[i]);
	net->dev->be->free_host(net->dev, x);
	CU_ASSERT(j->opt.debug.poison ? in_slots == (int64_t)(all.bytes / sizeof(*x)) : in_slots == 0);
	for (int i = 0; i < net->n_params; i++)
		CHECK_OK(net->store.ops->each(net->store.self, net->params[i], DN_VALUE, DN_READ, count_nan, &in_values));
	CHECK_EQ(in_values, 0);
}

static void poison_fills_slots_that_nobody_uses(void)
{
	for (int on = 0; on < 2; on++) {
		struct train_job j = train_job_of(NET, 2);

		j.backend = "cpu";
		j.opt.debug.poison = on;
		j.look = look_for_poison;
		train_run(&j);
		train_fini(&j);
	}
}

static void time_goes_to_its_phase(void)
{
	struct train_job j = job_of_two(), twice = job_of_two();
	struct fsdp_delay d = { 8, 5 };

	j.opt.debug.delay[FSDP_GATHERQ] = twice.opt.debug.delay[FSDP_COMPUTE] = d;
	j.other_passes = false;
	j.backend = "cpu";
	train_run(&j);
	CU_ASSERT(j.report.step_ms[DN_TIME_GATHER_WAIT] > 1); /* three gathers at least, of 4 ms each in the mean */
	CU_ASSERT(j.report.total_ms[DN_TIME_GATHER_WAIT] > j.report.step_ms[DN_TIME_GATHER_WAIT]);
	CU_ASSERT(j.report.step_ms[DN_TIME_GATHER_WAIT] > j.report.step_ms[DN_TIME_FORWARD] / 10);
	train_fini(&j);
	train_run(&twice);
	CU_ASSERT(twice.report.step_ms[DN_TIME_FORWARD] > 4);
	CU_ASSERT(twice.report.step_ms[DN_TIME_BACKWARD] > 4);
	CU_ASSERT(twice.report.step_ms[DN_TIME_OPTIMIZER] > 1);
	train_fini(&twice);
}

/* bytes and calls by block are what is counted on the wire; asked before the net goes */
static void look_at_blocks(struct train_job *j, int rank, struct dn_net *net)
{
	struct dn_store_report r;
	uint64_t gather = 0, reduce = 0, calls = 0;

	(void)rank;
	net->store.ops->report(net->store.self, &r);
	CHECK_EQ(r.n_blocks, net->n_blocks);
	for (int i = 0; i < r.n_blocks; i++) {
		gather += r.blocks[i].gather_bytes;
		reduce += r.blocks[i].reduce_bytes;
		calls += r.blocks[i].gather_calls + r.blocks[i].reduce_calls;
		CU_ASSERT((r.blocks[i].slot >= 0) == (r.blocks[i].held_ms > 0));
		CU_ASSERT((r.blocks[i].gather_calls > 0) == (r.blocks[i].gather_ms > 0));
	}
	CHECK_EQ(gather, (uint64_t)j->steps * r.gather.planned_bytes);
	CHECK_EQ(reduce, (uint64_t)j->steps * r.reduce.planned_bytes);
	CHECK_EQ(calls, (uint64_t)j->steps * (r.gather.planned_calls + r.reduce.planned_calls));
}

static void blocks_count_what_is_planned(void)
{
	struct train_job j = job_of_two();

	j.other_passes = false;
	j.look = look_at_blocks;
	train_run(&j);
	train_fini(&j);
}

/* The ring wraps many times: what is left is the last steps, and a step allocates nothing. */
static void trace_keeps_the_last_steps(void)
{
	char path[64], want[64], text[65536];
	struct train_job j = train_job_of(NET, 1);
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/tmp/dn-trace.%ld.%%r", (long)getpid());
	j.steps = 9;
	j.opt.trace = path;
	j.opt.trace_steps = 2;
	train_run(&j);
	CHECK_EQ(j.n_allocs, 0);
	snprintf(want, sizeof(want), "/tmp/dn-trace.%ld.0", (long)getpid());
	f = fopen(want, "r");
	CU_ASSERT_FATAL(f != NULL);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	unlink(want);
	text[n] = '\0';
	CU_ASSERT(n > 1000 && n < sizeof(text) - 1);
	for (int s = 1; s <= 9; s++) {
		snprintf(want, sizeof(want), "\"step\":%d", s);
		CU_ASSERT((strstr(text, want) != NULL) == (s > 7));
	}
	CU_ASSERT(strstr(text, "\"steps_kept\":2") != NULL);
	CU_ASSERT(strstr(text, "\"name\":\"backward mid\"") != NULL);
	CU_ASSERT(strstr(text, "\"name\":\"gather mid\"") != NULL);
	CU_ASSERT(strstr(text, "\"name\":\"reduce tail\"") != NULL);
	CU_ASSERT(strstr(text, "\"micro\":1") != NULL);
	train_fini(&j);
}

static void trace_that_cannot_be_written_is_refused_at_the_start(void)
{
	struct train_job j = train_job_of(NET, 1);
	struct train_rank r;

	j.opt.trace = "/nowhere/trace";
	j.opt.trace_steps = 1;
	CHECK_OK_FATAL(fsdp_hub_create(&j.hub, 1));
	CHECK_FAILS(train_build(&r, &j, 0), -ENOENT, "-fsdp.trace /nowhere/trace: No such file");
	train_unbuild(&r);
	fsdp_hub_destroy(j.hub);
}

static void without_layers_or_collectives_the_rest_runs(void)
{
	for (int k = 0; k < 2; k++) {
		struct train_job j = train_job_of(NET, 2);

		j.opt.debug.no_comm = k == 0;
		j.opt.debug.no_compute = k == 1;
		train_run(&j);
		CHECK_EQ(j.report.gather.counted_calls, k ? j.report.gather.planned_calls : 0);
		CHECK_EQ(j.report.reduce.counted_bytes, k ? j.report.reduce.planned_bytes : 0);
		for (int64_t i = 0; i < j.n_values; i++)
			CU_ASSERT_FATAL(isfinite(j.values[i]));
		train_fini(&j);
	}
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(t3_delays_in_each_queue_change_no_bit),
	CASE(t3_delays_in_all_queues_with_poison_change_no_bit),
	CASE(t14_slow_sums_of_replicas_change_no_bit),
	CASE(t15_t25_late_parts_and_late_updates_change_no_bit),
	CASE(poison_between_uses_changes_no_bit),
	CASE(poison_fills_slots_that_nobody_uses),
	CASE(time_goes_to_its_phase),
	CASE(blocks_count_what_is_planned),
	CASE(trace_keeps_the_last_steps),
	CASE(trace_that_cannot_be_written_is_refused_at_the_start),
	CASE(without_layers_or_collectives_the_rest_runs),
	{ NULL, NULL },
};

int main(void)
{
	int rc = check_run("fsdp/timeline", cases);

	for (int k = 0; k < N_WAYS; k++)
		train_fini(&undelayed[k]);
	return rc;
}
