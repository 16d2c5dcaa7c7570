/* T22: recomputed blocks under sharding: bits, memory, and one gather in backward for both passes; T34 when they normalise. */
#include "plan_nets.h"
#include "train_ranks.h"

#define NET(sub) \
	"[net]\nbatch=24\nsubdivisions=" sub "\nwidth=8\nheight=8\nchannels=2\n" \
	"[block]\nname=head\n[convolutional]\nfilters=5\nsize=3\npad=1\nactivation=leaky\n" \
	"[block]\nname=pool\n[maxpool]\nsize=2\nstride=2\n[dropout]\nprobability=.2\n" \
	"[block]\nname=mid\n[convolutional]\nbatch_normalize=1\nfilters=5\nsize=3\npad=1\nactivation=swish\n" \
	"[convolutional]\nbatch_normalize=1\nfilters=5\nsize=3\npad=1\nactivation=mish\nshare_index=-1\n[shortcut]\nfrom=-3\n" \
	"[block]\nname=wide\n[batchnorm]\n[connected]\noutput=33\nactivation=tanh\n[connected]\noutput=13\nactivation=mish\n" \
	"[block]\nname=tail\n[connected]\noutput=6\nbatch_normalize=1\nactivation=linear\n[softmax]\n"

static const char *const lists[] = { "all", "mid", "head,tail", "pool,mid,wide", "wide" };
#define N_LISTS ((int)(sizeof(lists) / sizeof(lists[0])))

static void t22_recomputed_blocks_change_no_bit_at_any_number_of_ranks(void)
{
	for (int world = 1; world <= 4; world++)
		for (int sync = 0; sync < 2; sync++) {
			struct train_job none = train_job_of(NET("2"), world);

			none.backend = world & 1 ? "cpu" : "ref";
			none.sync_bn = sync;
			none.opt.recompute = "none";
			train_run(&none);
			CU_ASSERT(isfinite(none.loss[2]));
			for (int k = 0; k < N_LISTS; k++) {
				struct train_job j = none;

				memset(j.loss, 0, sizeof(j.loss));
				j.opt.recompute = lists[k];
				j.opt.stay = k % 3 == 1;
				j.opt.limit = 1 + k % 3;
				j.opt.depth = j.opt.limit - 1;
				j.opt.grad_slots = 1 + k % 2;
				j.opt.prefetch = (enum fsdp_prefetch)(k % 3);
				j.other_passes = k & 1;
				train_run(&j);
				train_same_bits(&j, &none);
				for (int r = 0; r < world; r++)
					CHECK_BITS(j.rolling[r], none.rolling[0], (size_t)none.n_rolling * sizeof(float));
				CHECK_EQ(j.report.gather.counted_bytes, j.report.gather.planned_bytes);
				CHECK_EQ(j.report.gather.counted_calls, j.report.gather.planned_calls);
				if (world == 1)
					CHECK_EQ(j.n_allocs, 0);
				train_fini(&j);
			}
			train_fini(&none);
		}
}

static void t34_sync_of_recomputed_blocks_is_that_of_one_process(void)
{
	struct train_job one = train_job_of(NET("1"), 1);

	one.plain = true;
	one.steps = 0;
	train_run(&one);
	for (int world = 2; world <= 4; world++) {
		struct train_job j = train_job_of(NET("1"), world);
		double d;

		j.steps = 0;
		j.sync_bn = true;
		j.opt.recompute = "all";
		train_run(&j);
		d = train_distance(j.grads, one.grads, one.n_trained);
		if (!(d <= 1e-6 * world))
			fprintf(stderr, "%d ranks: gradients differ by %g\n", world, d);
		CU_ASSERT(d <= 1e-6 * world);
		CHECK_CLOSE(j.rolling[world - 1], one.rolling[0], one.n_rolling, 1e-6);
		train_fini(&j);
	}
	train_fini(&one);
}

/* --- memory --- */

static void look_memory(struct train_job *j, int rank, struct dn_net *net)
{
	struct dn_store_report r;
	struct dn_mem_stats s;
	size_t ring = 0;

	pthread_barrier_wait(&j->line);
	if (rank == 0) {
		net->store.ops->report(net->store.self, &r);
		dn_mem_stats(DN_MEM_ACTIVATIONS, &s);
		CHECK_OK(dn_loop_input_bytes(net, &ring)); /* there is no loader here */
		CHECK_EQ(s.now_bytes, (r.planned_bytes[DN_MEM_ACTIVATIONS] - ring) * (size_t)j->world);
	}
	pthread_barrier_wait(&j->line);
}

static void planned_activations_are_the_measured_ones_and_fewer(void)
{
	size_t bytes[2];

	for (int world = 1; world <= 3; world++) {
		for (int k = 0; k < 2; k++) {
			struct train_job j = train_job_of(NET("1"), world);

			j.opt.recompute = k ? "mid,wide" : "none";
			j.look = look_memory;
			train_run(&j);
			bytes[k] = j.report.planned_bytes[DN_MEM_ACTIVATIONS];
			train_fini(&j);
		}
		CU_ASSERT(bytes[1] < bytes[0]);
	}
}

/* --- gathers --- */

static int n_gathers(const struct fsdp_plan *p, int block, bool backward)
{
	int n = 0;

	for (int i = 0; i < p->step.n_ops; i++) {
		const struct fsdp_op *op = &p->step.ops[i];

		n += op->kind == FSDP_GATHER && op->block == block && op->backward == backward;
	}
	return n;
}

static int with(struct planned *p, const char *recompute, int limit)
{
	struct fsdp_options o = plan_defaults();

	o.recompute = recompute;
	o.limit = limit;
	o.depth = limit - 1;
	return planned_make(p, NET("1"), 2, true, &o);
}

/* Backward of the head reads no values. Recomputed, it gathers them once; every other block as often as before. */
static void t22_a_recomputed_block_is_gathered_once_in_backward(void)
{
	for (int limit = 1; limit <= 4; limit++) {
		struct planned none, all;

		CHECK_OK_FATAL(with(&none, "none", limit));
		CHECK_OK_FATAL(with(&all, "all", limit));
		CHECK_OK(fsdp_plan_check(all.plan, NULL, NULL));
		for (int i = 0; i < all.plan->n_blocks; i++) {
			const struct fsdp_block *b = &all.plan->blocks[i];

			CU_ASSERT(b->recompute && !none.plan->blocks[i].recompute);
			CHECK_EQ(n_gathers(all.plan, i, false), b->gathered);
			CHECK_EQ(n_gathers(all.plan, i, true), b->gathered && !b->resident);
			if (i)
				CHECK_EQ(n_gathers(all.plan, i, true), n_gathers(none.plan, i, true));
		}
		CHECK_EQ(n_gathers(none.plan, 0, true), 0);
		CHECK_EQ(n_gathers(all.plan, 0, true), limit < 4);
		CU_ASSERT(all.plan->hash != none.plan->hash);
		planned_fini(&none);
		planned_fini(&all);
	}
}

/* --- who is asked for --- */

static void the_option_wins_over_the_blocks_own_key(void)
{
	static const char cfg[] = NET_HEAD("1") "inputs=5\n[block]\nname=a\nrecompute=1\n" CONNECTED(
		"7") "[block]\nname=b\n" CONNECTED("9") "[block]\nname=ab\n" CONNECTED("3") SOFTMAX;
	static const struct {
		const char *given;
		int blocks;
	} cases[] = { { NULL, 1 }, { "none", 0 }, { "all", 7 }, { "b", 2 }, { "ab,a", 5 } };

	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		struct fsdp_options o = plan_defaults();
		struct planned p;
		int got = 0;

		o.recompute = cases[k].given;
		CHECK_OK_FATAL(planned_make(&p, cfg, 2, true, &o));
		for (int i = 0; i < p.plan->n_blocks; i++)
			got |= p.plan->blocks[i].recompute << i;
		CHECK_EQ(got, cases[k].blocks);
		planned_fini(&p);
	}
	for (int k = 0; k < 2; k++) {
		struct fsdp_options o = plan_defaults();
		struct planned p;

		o.recompute = k ? "a,abc" : "None";
		o.recompute_where = "x.cfg:7";
		CHECK_FAILS(planned_make(&p, cfg, 2, true, &o), -EINVAL,
			    k ? "x.cfg:7: recompute=a,abc: there is no block abc; the net has a, b, ab"
			      : "x.cfg:7: recompute=None: there is no block None; the net has a, b, ab");
		planned_fini(&p);
	}
	{ /* in inference nothing is */
		struct fsdp_options o = plan_defaults();
		struct planned p;

		o.recompute = "all";
		CHECK_OK_FATAL(planned_make(&p, cfg, 2, false, &o));
		CU_ASSERT(!p.plan->blocks[0].recompute && !p.plan->blocks[0].backward_gather);
		planned_fini(&p);
	}
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(t22_recomputed_blocks_change_no_bit_at_any_number_of_ranks),
	CASE(t34_sync_of_recomputed_blocks_is_that_of_one_process),
	CASE(planned_activations_are_the_measured_ones_and_fewer),
	CASE(t22_a_recomputed_block_is_gathered_once_in_backward),
	CASE(the_option_wins_over_the_blocks_own_key),
	{ NULL, NULL },
};

int main(void)
{
	return check_run("fsdp/recompute", cases);
}
