/* Copies that do not agree end the run before a step, with block, ranks and step; copies that do cost nothing but time. */
#include "../check.h"
#include "train_ranks.h"

#define NET \
	"[net]\nbatch=24\nsubdivisions=1\nwidth=4\nheight=4\nchannels=2\n[block]\nname=stem\n[convolutional]\nfilters=5\nsize=3\npad=1\n" \
	"batch_normalize=1\nactivation=leaky\n[block]\nname=tail\n[connected]\noutput=6\nactivation=linear\n[softmax]\n"

struct fault {
	struct train_job job; /* first */
	int rank;	      /* whose values are changed, */
	int64_t before;	      /* before this step */
	int param;	      /* of which param */
	int64_t steps;	      /* that were made by rank 0 */
	int err[RANKS_MAX];
	char said[RANKS_MAX][600];
};

static int change(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	x[n - 1] += 1e-6f + fabsf(x[n - 1]) * 1e-6f; /* the last of them, by a little */
	return 0;
}

static void rank_main(int rank, void *arg)
{
	struct fault *f = arg;
	struct train_rank r;
	double loss;

	CHECK_OK_FATAL(train_build(&r, &f->job, rank));
	for (int64_t s = 0; s < 5 && !f->err[rank]; s++) {
		if (rank == f->rank && s + 1 == f->before)
			CHECK_OK(r.net->store.ops->each(r.net->store.self, r.net->params[f->param], DN_VALUE, DN_READ | DN_WRITE,
							change, NULL));
		pthread_barrier_wait(&f->job.line);
		f->err[rank] = train_step(&r, &f->job, rank, s, &loss);
		snprintf(f->said[rank], sizeof(f->said[rank]), "%s", f->err[rank] ? dn_message() : "");
		f->steps += !f->err[rank] && !rank;
	}
	pthread_barrier_wait(&f->job.line);
	train_unbuild(&r);
}

static struct fault fault_of(int world, enum fsdp_strategy strategy, int shards, int64_t verify)
{
	struct fault f = { .job = train_job_of(NET, world), .rank = -1 };

	f.job.opt.strategy = strategy;
	f.job.opt.shards = shards;
	f.job.opt.verify = verify;
	return f;
}

static int param_of(const char *name)
{
	return !strcmp(name, "scales") ? 1 : !strcmp(name, "rolling_mean") ? 2 : 6; /* the last weights */
}

static void fails(struct fault f, int64_t steps, const char *said)
{
	train_ranks(&f.job, rank_main); /* the job comes first in a fault */
	CHECK_EQ(f.steps, steps);
	for (int r = 0; r < f.job.world; r++) {
		CHECK_EQ(f.err[r], said ? -EIO : 0);
		if (said && !strstr(f.said[r], said)) {
			fprintf(stderr, "rank %d says: %s\nwanted: %s\n", r, f.said[r], said);
			CU_FAIL("another message");
		}
	}
	train_fini(&f.job);
}

static struct fault changed(struct fault f, int rank, int64_t before, const char *param)
{
	f.rank = rank;
	f.before = before;
	f.param = param_of(param);
	return f;
}

static void copies_that_differ_at_the_start_are_found(void)
{
	fails(changed(fault_of(2, FSDP_REPLICATE, 0, 0), 1, 1, "weights"), 0,
	      "before step 1: block tail: ranks 0, 1 hold copies of the same values, but not the same values");
	fails(changed(fault_of(3, FSDP_OPT, 0, 0), 2, 1, "scales"), 0, "before step 1: block stem: ranks 0, 1, 2 hold copies");
	/* ranks 0, 1 are one copy, 2, 3 the other; the last weights belong to the second rank of each */
	fails(changed(fault_of(4, FSDP_HYBRID_FULL, 2, 0), 3, 1, "weights"), 0, "block tail: ranks 1, 3 hold copies");
	fails(changed(fault_of(2, FSDP_FULL, 0, 0), 1, 1, "rolling_mean"), 0, "before step 1: the rolling statistics");
}

static void copies_that_part_later_are_found_where_that_is_asked_for(void)
{
	fails(changed(fault_of(2, FSDP_REPLICATE, 0, 0), 1, 2, "weights"), 5, NULL);
	fails(changed(fault_of(2, FSDP_REPLICATE, 0, 2), 1, 2, "weights"), 2, "before step 3: block tail: ranks 0, 1");
	fails(changed(fault_of(3, FSDP_OPT, 0, 1), 0, 4, "scales"), 3, "before step 4: block stem");
	fails(changed(fault_of(2, FSDP_FULL, 0, 3), 0, 3, "rolling_mean"), 3, "before step 4: the rolling statistics");
}

static void what_agrees_or_is_not_looked_at_goes_on(void)
{
	fails(fault_of(4, FSDP_HYBRID_FULL_OPT, 2, 1), 5, NULL);
	fails(fault_of(3, FSDP_FULL, 0, 1), 5, NULL);
	fails(fault_of(1, FSDP_FULL, 0, 1), 5, NULL);
	fails(changed(fault_of(2, FSDP_REPLICATE, 0, -1), 1, 1, "weights"), 5, NULL);
	/* nobody else has these */
	fails(changed(fault_of(2, FSDP_FULL, 0, 1), 1, 2, "weights"), 5, NULL);
}

static void looking_changes_no_bit(void)
{
	struct fault a = fault_of(3, FSDP_OPT, 0, -1), b = fault_of(3, FSDP_OPT, 0, 1);

	train_run(&a.job);
	train_run(&b.job);
	CHECK_BITS(b.job.values, a.job.values, (size_t)a.job.n_values * sizeof(float));
	CHECK_EQ(a.job.report.planned_bytes[DN_MEM_STAGING], b.job.report.planned_bytes[DN_MEM_STAGING]);
	train_fini(&a.job);
	train_fini(&b.job);
}

static const struct check_case cases[] = {
	{ "copies_that_differ_at_the_start_are_found", copies_that_differ_at_the_start_are_found },
	{ "copies_that_part_later_are_found_where_that_is_asked_for", copies_that_part_later_are_found_where_that_is_asked_for },
	{ "what_agrees_or_is_not_looked_at_goes_on", what_agrees_or_is_not_looked_at_goes_on },
	{ "looking_changes_no_bit", looking_changes_no_bit },
	{ NULL, NULL }
};

int main(void)
{
	return check_run("fsdp verify", cases);
}
