/* T34: batch normalisation over the images of all ranks, against one process with the whole microbatch. */
#include "plan_nets.h"
#include "train_ranks.h"

/* every layer that normalises: on its own, with and without biases, in conv and connected, twice with the same params */
#define NET(sub, more) \
	"[net]\nbatch=24\nsubdivisions=" sub "\nwidth=8\nheight=8\nchannels=2\n" more \
	"[batchnorm]\n[convolutional]\nbatch_normalize=1\nfilters=5\nsize=3\npad=1\nactivation=leaky\n" \
	"[block]\nname=pool\n[maxpool]\nsize=2\nstride=2\n" \
	"[block]\nname=mid\n[convolutional]\nbatch_normalize=1\nfilters=5\nsize=3\npad=1\nactivation=swish\n" \
	"[convolutional]\nbatch_normalize=1\nfilters=5\nsize=3\npad=1\nactivation=swish\nshare_index=-1\n" \
	"[batchnorm]\nbiases=1\n" \
	"[block]\nname=wide\n[connected]\noutput=13\nbatch_normalize=1\nactivation=tanh\n" \
	"[block]\nname=tail\n[connected]\noutput=6\nactivation=linear\n[softmax]\n"

static const char *const cfgs[] = { NET("1", ""), NET("2", ""), NET("1", "legacy_bn=1\n"), NET("2", "legacy_bn=1\n") };

/* One step: means, variances and sums of gradients are rounded to floats once more for each rank, 2^-24 each, in each of six
 * normalisations behind one another; local statistics are 1e-1 away. */
static void t34_gradients_of_sync_are_those_of_one_process_with_all_images(void)
{
	for (int c = 0; c < 4; c++)
		for (int be = 0; be < 2; be++) {
			struct train_job one = train_job_of(cfgs[c], 1);

			one.plain = true;
			one.steps = 0;
			one.backend = be ? "cpu" : "ref";
			train_run(&one);
			for (int world = 1; world <= 4; world++) {
				struct train_job j = train_job_of(cfgs[c], world), local;
				double d;

				j.steps = 0;
				j.backend = one.backend;
				local = j;
				j.sync_bn = true;
				train_run(&j);
				d = train_distance(j.grads, one.grads, one.n_trained);
				if (!(d <= 1e-6 * world))
					fprintf(stderr, "%s, net %d, %d ranks: gradients differ by %g\n", one.backend, c, world,
						d);
				CU_ASSERT(d <= 1e-6 * world);
				CHECK_CLOSE(j.rolling[0], one.rolling[0], one.n_rolling, 1e-6);
				train_run(&local);
				d = train_distance(local.grads, one.grads, one.n_trained);
				CU_ASSERT(world == 1 ? d == 0 : d > 1e-2);
				train_fini(&local);
				train_fini(&j);
			}
			train_fini(&one);
		}
}

static void t34_sync_trains_as_one_process_with_all_images(void)
{
	for (int c = 0; c < 2; c++) {
		struct train_job one = train_job_of(cfgs[c], 1);

		one.plain = true;
		one.steps = 10;
		train_run(&one);
		for (int world = 1; world <= 4; world++) {
			struct train_job j = train_job_of(cfgs[c], world);

			j.steps = 10;
			j.sync_bn = true;
			j.other_passes = world & 1;
			train_run(&j);
			CHECK_EQ(j.n_values, one.n_values);
			/* 10 steps multiply the roundings of one by what the net itself multiplies */
			CHECK_CLOSE(j.values, one.values, one.n_values, 1e-5);
			for (int s = 0; s < 10; s++)
				CU_ASSERT(fabs(j.loss[s] - one.loss[s]) <= 1e-5 * fabs(one.loss[s]));
			for (int r = 1; r < world; r++)
				CHECK_BITS(j.rolling[r], j.rolling[0], (size_t)j.n_rolling * sizeof(float));
			CU_ASSERT(j.n_rolling > 0 && j.rolling[0][0] != 0);
			CHECK_EQ(j.report.gather.counted_bytes, j.report.gather.planned_bytes);
			CHECK_EQ(j.report.reduce.counted_bytes, j.report.reduce.planned_bytes);
			train_fini(&j);
		}
		train_fini(&one);
	}
}

static void t34_alone_sync_has_the_bits_of_local(void)
{
	struct train_job plain = train_job_of(cfgs[1], 1), alone = plain, sync = plain;

	plain.plain = true;
	alone.sync_bn = true;
	sync.plain = sync.sync_bn = true;
	train_run(&plain);
	train_run(&alone);
	train_run(&sync);
	train_same_bits(&alone, &plain);
	train_same_bits(&sync, &plain);
	CHECK_EQ(alone.n_allocs, 0);
	CHECK_EQ(sync.activations_bytes, plain.activations_bytes);
	train_fini(&plain);
	train_fini(&alone);
	train_fini(&sync);
}

static void t34_blocks_slots_and_other_passes_change_no_bit_of_sync(void)
{
	static const char *const policies[] = { NULL, "each", "whole", "at:0,3,5" };
	struct train_job a = train_job_of(cfgs[1], 3);

	a.sync_bn = true;
	train_run(&a);
	for (int k = 0; k < 4; k++) {
		struct train_job b = train_job_of(cfgs[1], 3);

		b.sync_bn = true;
		b.other_passes = k & 1;
		b.opt.limit = 1 + k % 3;
		b.opt.depth = b.opt.limit - 1;
		b.opt.prefetch = k % 2 ? FSDP_POST : FSDP_PRE;
		b.opt.policy_given = policies[k];
		if (policies[k])
			b.opt.policy = policy_of(policies[k]);
		train_run(&b);
		train_same_bits(&b, &a);
		train_fini(&b);
	}
	train_fini(&a);
}

/* --- gradients against differences of the loss of all ranks --- */

/* without kinks: differences cross none */
static const char smooth[] =
	"[net]\nbatch=24\nsubdivisions=1\nwidth=8\nheight=8\nchannels=2\n"
	"[batchnorm]\n[convolutional]\nbatch_normalize=1\nfilters=5\nsize=3\npad=1\nstride=2\nactivation=swish\n"
	"[block]\nname=mid\n[convolutional]\nbatch_normalize=1\nfilters=5\nsize=3\npad=1\nactivation=tanh\n"
	"[convolutional]\nbatch_normalize=1\nfilters=5\nsize=3\npad=1\nactivation=swish\nshare_index=-1\n"
	"[block]\nname=tail\n[connected]\noutput=13\nbatch_normalize=1\nactivation=tanh\n"
	"[connected]\noutput=6\nactivation=linear\n[softmax]\n";

struct differ {
	struct train_job job; /* first */
	double grad[6], want[6];
};

static const struct {
	const char *param;
	int64_t at;
} places[6] = { { "1.weights", 3 }, { "1.scales", 2 },	 { "0.scales", 1 },
		{ "1.biases", 0 },  { "2.weights", 40 }, { "4.scales", 5 } };

static double loss_of_all(struct differ *f, struct train_rank *r, int rank)
{
	double sum = 0;

	f->job.losses[rank][0] = 0;
	CHECK_OK(train_pass(r, rank, 0, 0, DN_REPEAT, &f->job.losses[rank][0], NULL));
	pthread_barrier_wait(&f->job.line);
	for (int q = 0; q < f->job.world; q++)
		sum += f->job.losses[q][0];
	pthread_barrier_wait(&f->job.line);
	return sum;
}

static void differ_rank(int rank, void *arg)
{
	struct differ *f = arg;
	struct train_rank r;
	const double e = 1.0 / 128;
	double dummy;

	CHECK_OK_FATAL(train_build(&r, &f->job, rank));
	for (int k = 0; k < 6; k++) {
		const struct dn_store_ops *ops = r.net->store.ops;
		struct dn_param *p = NULL;
		float was = 0, now;
		double loss[2];

		for (int i = 0; i < r.net->n_params; i++)
			if (!strcmp(r.net->params[i]->name, places[k].param))
				p = r.net->params[i];
		CU_ASSERT_PTR_NOT_NULL_FATAL(p);
		CHECK_OK(ops->read(r.net->store.self, p, DN_VALUE, places[k].at, 1, rank ? NULL : &was));
		for (int up = 0; up < 2; up++) {
			now = was + (float)(up ? e : -e);
			CHECK_OK(ops->write(r.net->store.self, p, DN_VALUE, places[k].at, 1, rank ? NULL : &now));
			ops->touched(r.net->store.self);
			loss[up] = loss_of_all(f, &r, rank);
		}
		CHECK_OK(ops->write(r.net->store.self, p, DN_VALUE, places[k].at, 1, rank ? NULL : &was));
		ops->touched(r.net->store.self);
		f->want[k] = (loss[0] - loss[1]) / (2 * e);
	}
	CHECK_OK(train_step(&r, &f->job, rank, 0, &dummy));
	for (int k = 0; k < 6; k++) {
		float g = 0;

		for (int i = 0; i < r.net->n_params; i++)
			if (!strcmp(r.net->params[i]->name, places[k].param))
				CHECK_OK(r.net->store.ops->read(r.net->store.self, r.net->params[i], DN_GRAD, places[k].at, 1,
								rank ? NULL : &g));
		if (rank == 0)
			f->grad[k] = (double)g;
	}
	pthread_barrier_wait(&f->job.line);
	train_unbuild(&r);
}

static void t34_gradients_of_sync_are_differences_of_the_loss_of_all_ranks(void)
{
	for (int world = 2; world <= 3; world++) {
		struct differ f = { .job = train_job_of(smooth, world) };

		f.job.sync_bn = true;
		f.job.steps = 0;
		train_ranks(&f.job, differ_rank);
		for (int k = 0; k < 6; k++) {
			const double scale = fabs(f.want[k]) + .05;

			if (!(fabs(f.grad[k] - f.want[k]) <= 1e-2 * scale))
				fprintf(stderr, "%s[%d]: gradient %g, difference %g\n", places[k].param, (int)places[k].at,
					f.grad[k], f.want[k]);
			CU_ASSERT(fabs(f.grad[k] - f.want[k]) <= 1e-2 * scale);
		}
	}
}

/* --- the plan --- */

static int plan_of(struct planned *p, int world, bool sync, bool train)
{
	const struct dn_net_options opt = { .world = world, .train = train, .sync_bn = sync };
	struct fsdp_options o = plan_defaults();
	int err;

	memset(p, 0, sizeof(*p));
	err = dn_cfg_parse(&p->cfg, cfgs[1], strlen(cfgs[1]), "test.cfg", false);
	if (!err)
		err = dn_backend_find("ref")->open(DN_CPU(1), &p->dev);
	if (!err)
		err = dn_net_build(&p->net, p->cfg, p->dev, &opt);
	if (!err)
		err = fsdp_blocks_apply(p->net, &o);
	return err ? err : fsdp_plan_build(&p->plan, p->net, &o, world);
}

static void sync_is_in_schedule_check_and_hash(void)
{
	struct planned local, sync, alone, infer;
	int n = 0;

	CHECK_OK_FATAL(plan_of(&local, 2, false, true));
	CHECK_OK_FATAL(plan_of(&sync, 2, true, true));
	CHECK_OK_FATAL(plan_of(&alone, 1, true, true));
	CHECK_OK_FATAL(plan_of(&infer, 2, true, false));
	CHECK_OK(fsdp_plan_check(sync.plan, NULL, NULL));
	CU_ASSERT(local.plan->hash != sync.plan->hash);
	CHECK_EQ(local.plan->n_sums, 0);
	CHECK_EQ(sync.plan->n_sums, 6 * 3); /* six normalisations: mean and variance, and the sums of backward */
	CHECK_EQ(alone.plan->n_sums, 0);
	CHECK_EQ(infer.plan->n_sums, 0);
	for (int i = 0; i < sync.plan->step.n_ops; i++)
		n += sync.plan->step.ops[i].kind == FSDP_EXCHANGE && sync.plan->step.ops[i].queue == FSDP_EXCHANGEQ;
	CHECK_EQ(n, 2 * 6 * 3);
	CHECK_EQ(sync.plan->reduce_bytes, local.plan->reduce_bytes);
	planned_fini(&local);
	planned_fini(&sync);
	planned_fini(&alone);
	planned_fini(&infer);
}

/* A store that sums nothing must not pass for one that does. */
static void ranks_without_a_store_that_sums_are_refused(void)
{
	struct train_job j = train_job_of(cfgs[0], 2);
	struct train_rank r;
	double loss = 0;

	j.plain = j.sync_bn = true;
	CHECK_OK_FATAL(train_build(&r, &j, 0));
	CHECK_FAILS(train_pass(&r, 0, 0, 0, DN_TRAIN, &loss, NULL), -ENOTSUP,
		    "layer 0: asks for a sum over 2 ranks, which the store does not make");
	train_unbuild(&r);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(t34_gradients_of_sync_are_those_of_one_process_with_all_images),
	CASE(t34_sync_trains_as_one_process_with_all_images),
	CASE(t34_alone_sync_has_the_bits_of_local),
	CASE(t34_blocks_slots_and_other_passes_change_no_bit_of_sync),
	CASE(t34_gradients_of_sync_are_differences_of_the_loss_of_all_ranks),
	CASE(sync_is_in_schedule_check_and_hash),
	CASE(ranks_without_a_store_that_sums_are_refused),
	{ NULL, NULL },
};

int main(void)
{
	return check_run("fsdp/sync_bn", cases);
}
