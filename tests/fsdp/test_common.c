/* Params that stay whole on every rank, persistent= and ignored=: the bits of a run do not depend on it, what is planned is counted,
 * and each has one writer. T8, T11, T18 (persistent parameters are counted once). And params that layers of several blocks
 * share, T21. */
#include "plan_nets.h"
#include "train_ranks.h"

static const char cfg[] = "[net]\nbatch=24\nsubdivisions=2\nwidth=8\nheight=8\nchannels=2\n"
			  "[block]\nname=a\n[convolutional]\nfilters=5\nsize=3\npad=1\nactivation=leaky\n"
			  "[block]\nname=b\n[convolutional]\nfilters=5\nsize=3\npad=1\nactivation=swish\n[shortcut]\nfrom=-2\n"
			  "activation=mish\n"
			  "[block]\nname=c\n[maxpool]\nsize=2\nstride=2\n[connected]\noutput=33\nactivation=tanh\n"
			  "[block]\nname=d\n[connected]\noutput=6\nactivation=linear\n[softmax]\n";
/* of its params: 5 and 90, 5 and 225, 33 and 2640, 6 and 198 */

static struct train_job job_of(int world, int64_t persistent)
{
	struct train_job j = train_job_of(cfg, world);

	j.opt.persistent = persistent;
	return j;
}

static void counted(const struct train_job *j)
{
	CHECK_EQ(j->report.reduce.counted_bytes, j->report.reduce.planned_bytes);
	CHECK_EQ(j->report.reduce.counted_calls, j->report.reduce.planned_calls);
	CHECK_EQ(j->report.gather.counted_bytes, j->report.gather.planned_bytes);
	CHECK_EQ(j->report.gather.counted_calls, j->report.gather.planned_calls);
}

/* small ones, whole blocks (a, all but the largest tensor), and all there are */
static const int64_t thresholds[] = { 6, 100, 2640, 100000 };

static void what_stays_whole_changes_no_bit(void)
{
	static const struct {
		int world;
		enum fsdp_strategy strategy;
		int shards, stay;
		enum fsdp_accumulate accumulate;
	} ways[] = {
		{ 1, FSDP_FULL, 0, 0, FSDP_SHARDED_SUM },	 { 2, FSDP_FULL, 0, 0, FSDP_SHARDED_SUM },
		{ 3, FSDP_GRAD_OP, 0, 0, FSDP_SHARDED_SUM },	 { 3, FSDP_OPT, 0, 0, FSDP_SHARDED_SUM },
		{ 4, FSDP_FULL, 0, 2, FSDP_SHARDED_SUM },	 { 3, FSDP_FULL, 0, 0, FSDP_NO_SYNC },
		{ 4, FSDP_FULL, 0, 0, FSDP_NO_SYNC_KEEP },	 { 4, FSDP_HYBRID_FULL, 2, 0, FSDP_SHARDED_SUM },
		{ 4, FSDP_HYBRID_FULL_OPT, 2, 0, FSDP_NO_SYNC },
	};

	for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++)
		for (size_t n = 0; n <= sizeof(thresholds) / sizeof(thresholds[0]); n++) {
			static struct train_job first;
			struct train_job j = job_of(ways[k].world, n ? thresholds[n - 1] : 0);

			j.opt.strategy = ways[k].strategy;
			j.opt.shards = ways[k].shards;
			j.opt.stay = ways[k].stay;
			j.opt.accumulate = ways[k].accumulate;
			j.opt.layout = (enum fsdp_layout)(n % 3);
			j.opt.grad_slots = 0;
			j.early = n % 2;
			train_run(&j);
			counted(&j);
			if (n)
				train_same_bits(&j, &first);
			else
				first = j;
			if (n)
				train_fini(&j);
			if (n == sizeof(thresholds) / sizeof(thresholds[0]))
				train_fini(&first);
		}
}

/* one reduction and one sharing for all of them, however many blocks they are of, a microbatch and a step; no gather */
static void what_stays_whole_is_reduced_at_once(void)
{
	struct fsdp_options o = plan_defaults();
	struct planned none, some;
	const struct fsdp_block *b;

	CHECK_OK_FATAL(planned_make(&none, cfg, 4, true, &o));
	o.persistent = 100;
	CHECK_OK_FATAL(planned_make(&some, cfg, 4, true, &o));
	CHECK_OK(fsdp_plan_check(some.plan, NULL, NULL));
	CHECK_EQ(none.plan->common, -1);
	CHECK_EQ(some.plan->common, 4);
	CHECK_EQ(some.plan->n_blocks, 5);
	b = &some.plan->blocks[4];
	CHECK_STR(b->name, "/common");
	CHECK_EQ(b->n_tensors, 5); /* four times biases, and the weights of a */
	CHECK_EQ(b->params, 5 + 90 + 5 + 33 + 6);
	CHECK_EQ(fsdp_place_part(some.plan, 4, DN_VALUE).bytes, 4u * (size_t)b->padded);
	CHECK_EQ(fsdp_place_part(some.plan, 4, DN_STATE0).bytes, (size_t)b->padded);
	/* block a is left without a tensor */
	CHECK_EQ(some.plan->blocks[0].n_tensors, 0);
	CHECK_EQ(some.plan->blocks[0].slot, -1);
	CHECK_EQ(some.plan->gather_calls, none.plan->gather_calls - 2 + 1); /* a's, in two microbatches, and the sharing */
	CHECK_EQ(some.plan->reduce_calls, none.plan->reduce_calls);	    /* a's are those of all */
	planned_fini(&none);
	planned_fini(&some);
}

static void look_memory(struct train_job *j, int rank, struct dn_net *net)
{
	struct dn_store_report r;
	struct dn_mem_stats s;

	pthread_barrier_wait(&j->line);
	if (rank == 0) {
		net->store.ops->report(net->store.self, &r);
		for (int k = DN_MEM_PARAMS; k <= DN_MEM_GRAD_SLOTS; k++) {
			dn_mem_stats((enum dn_region)k, &s);
			CHECK_EQ(s.now_bytes, r.planned_bytes[k] * (size_t)j->world);
		}
	}
	pthread_barrier_wait(&j->line);
}

static void memory_is_as_planned(void)
{
	for (int world = 1; world <= 4; world++)
		for (size_t n = 0; n < sizeof(thresholds) / sizeof(thresholds[0]); n++) {
			struct train_job j = job_of(world, thresholds[n]);

			j.look = look_memory;
			train_run(&j);
			train_fini(&j);
		}
}

/* values are whole: one rank writes them; states are cut: every one does */
static void of_those_that_own_it_one_writes_it(void)
{
	for (int world = 1; world <= 4; world++) {
		struct fsdp_options o = plan_defaults();
		struct planned p;

		o.persistent = 100;
		CHECK_OK_FATAL(planned_make(&p, cfg, world, true, &o));
		for (int i = 0; i < p.net->n_params; i++)
			for (int part = DN_VALUE; part <= DN_STATE0; part++) {
				const struct dn_param *prm = p.net->params[i];
				int64_t sum = 0, at, n, from;

				for (int rank = 0; rank < world; rank++) {
					if (!fsdp_plan_writes(p.plan, prm, (enum dn_part)part, rank))
						continue;
					fsdp_plan_tensor(p.plan, p.plan->tensor_of_param[i], (enum dn_part)part, rank, &at, &n,
							 &from);
					sum += n;
				}
				CHECK_EQ(sum, prm->n);
			}
		planned_fini(&p);
	}
}

static void an_ignored_block_is_one_of_plain_data_parallelism(void)
{
	static const char text[] = "[net]\nbatch=24\ninputs=9\n[block]\nname=a\nignored=1\n" CONNECTED(
		"7") "[block]\nname=b\n"
		     "persistent=8\n" CONNECTED("5") "[block]\nname=c\n" CONNECTED("3") SOFTMAX;
	static const char both[] = "[net]\nbatch=24\ninputs=9\n[block]\nignored=1\nstrategy=opt\n" CONNECTED("7") SOFTMAX;
	struct fsdp_options o = plan_defaults();
	struct planned p;

	CHECK_OK_FATAL(planned_make(&p, text, 4, true, &o));
	CHECK_EQ(p.plan->blocks[0].strategy, FSDP_REPLICATE);
	CU_ASSERT(p.plan->blocks[0].whole && !p.plan->blocks[0].cut_states && p.plan->blocks[0].learns);
	CHECK_EQ(p.plan->blocks[0].n_common, 0);
	CHECK_EQ(p.plan->blocks[1].n_common, 1);
	CHECK_EQ(p.plan->blocks[2].n_common, 0);
	CHECK_EQ(p.plan->blocks[1].n_tensors, 1);
	planned_fini(&p);
	CHECK_FAILS(planned_make(&p, both, 4, true, &o), -EINVAL,
		    "test.cfg:5: [block] ignored=1: an ignored block is one of strategy replicate, not opt");
	planned_fini(&p);
	CHECK_FAILS(planned_make(&p, "[net]\nbatch=24\ninputs=9\n[block]\npersistent=-1\n" CONNECTED("7") SOFTMAX, 4, true, &o),
		    -EINVAL, "test.cfg:5: [block] persistent=-1: must be from 0");
	planned_fini(&p);
}

/* --- params that layers of several blocks share --- */

#define TIED_CONV "[convolutional]\nfilters=4\nsize=3\npad=1\nbatch_normalize=1\nactivation=leaky\n"
/* layers 1 and 2 share with layer 3; 4 to 6 and 8 share among themselves. @mark stands where a block may begin */
#define TIED(mark) \
	"[net]\nbatch=24\nsubdivisions=2\nwidth=8\nheight=8\nchannels=2\n[convolutional]\nfilters=4\nsize=1\nactivation=leaky\n" mark \
		TIED_CONV mark TIED_CONV "share_index=1\n" mark TIED_CONV \
	"share_index=1\n[connected]\noutput=13\nactivation=tanh\n" mark "[connected]\noutput=13\nactivation=tanh\n" mark \
	"[connected]\noutput=13\nactivation=tanh\nshare_index=5\n" mark "[connected]\noutput=5\nactivation=tanh\n" mark \
	"[connected]\noutput=13\nactivation=tanh\n[connected]\noutput=13\nactivation=tanh\nshare_index=5\n" mark \
	"[connected]\noutput=6\nactivation=linear\n[softmax]\n"

static void t21_blocks_of_a_plain_run_may_begin_between_layers_that_share(void)
{
	struct train_job one = train_job_of(TIED(""), 1), several = train_job_of(TIED("[block]\n"), 1);

	one.plain = several.plain = true;
	train_run(&one);
	train_run(&several);
	train_same_bits(&several, &one);
	train_fini(&one);
	train_fini(&several);
}

static void t21_what_several_blocks_share_has_the_bits_of_one_block(void)
{
	static const struct {
		int world;
		enum fsdp_strategy strategy;
		int shards;
		enum fsdp_accumulate accumulate;
	} ways[] = {
		{ 1, FSDP_FULL, 0, FSDP_SHARDED_SUM },
		{ 2, FSDP_FULL, 0, FSDP_SHARDED_SUM },
		{ 3, FSDP_GRAD_OP, 0, FSDP_SHARDED_SUM },
		{ 3, FSDP_OPT, 0, FSDP_NO_SYNC },
		{ 4, FSDP_FULL, 0, FSDP_NO_SYNC_KEEP },
		{ 4, FSDP_REPLICATE, 0, FSDP_SHARDED_SUM },
		{ 4, FSDP_HYBRID_FULL_OPT, 2, FSDP_SHARDED_SUM },
	};

	for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++) {
		struct train_job one = train_job_of(TIED(""), ways[k].world), j;

		one.opt.policy = policy_of("whole");
		one.opt.strategy = ways[k].strategy;
		one.opt.shards = ways[k].shards;
		one.opt.accumulate = ways[k].accumulate;
		one.opt.grad_slots = 0;
		train_run(&one);
		for (int n = 0; n < 4; n++) {
			j = train_job_of(TIED("[block]\n"), ways[k].world);
			j.opt = one.opt;
			j.opt.policy_given = false;
			j.opt.limit = 1 + n % 2;
			j.opt.depth = n % 2;
			j.opt.persistent = n > 1 ? 20 : 0;
			j.opt.recompute = n == 3 ? "all" : NULL;
			j.early = n / 2;
			train_run(&j);
			train_same_bits(&j, &one);
			counted(&j);
			train_fini(&j);
		}
		train_fini(&one);
	}
}

/* one reduction, behind backward of the first block that uses them; statistics behind forward of the last */
static void t21_what_is_shared_is_reduced_once(void)
{
	struct fsdp_options o = plan_defaults();
	struct planned p;
	const struct fsdp_schedule *s;
	int reduces = 0, stats = 0;

	CHECK_OK_FATAL(planned_make(&p, TIED("[block]\n"), 4, true, &o));
	CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
	CHECK_EQ(p.plan->common, 9);
	CHECK_EQ(p.plan->blocks[9].n_tensors, 3 + 2); /* biases, scales, weights; biases, weights */
	CHECK_EQ(p.plan->blocks[0].n_common, 0);
	CHECK_EQ(p.plan->blocks[2].n_common, 3);
	CHECK_EQ(p.plan->blocks[3].n_common, 3);
	CHECK_EQ(p.plan->blocks[7].n_common, 2);
	CHECK_EQ(p.plan->blocks[8].n_common, 0);
	CHECK_EQ(p.plan->stats_block, 3);
	s = &p.plan->step;
	for (int i = 1; i < s->n_ops; i++) {
		if (s->ops[i].kind == FSDP_REDUCE && s->ops[i].block == 9) {
			reduces++;
			CHECK_EQ(s->ops[i].n_waits, 1);
			CHECK_EQ(s->ops[i].waits[0], fsdp_plan_event(p.plan, FSDP_BACKWARD, 1));
		}
		stats += s->ops[i].kind == FSDP_STATS && s->ops[i].waits[0] == fsdp_plan_event(p.plan, FSDP_FORWARD, 3);
	}
	CHECK_EQ(reduces, 2); /* of two microbatches */
	CHECK_EQ(stats, 2);
	planned_fini(&p);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(what_stays_whole_changes_no_bit),
	CASE(what_stays_whole_is_reduced_at_once),
	CASE(memory_is_as_planned),
	CASE(of_those_that_own_it_one_writes_it),
	CASE(an_ignored_block_is_one_of_plain_data_parallelism),
	CASE(t21_blocks_of_a_plain_run_may_begin_between_layers_that_share),
	CASE(t21_what_several_blocks_share_has_the_bits_of_one_block),
	CASE(t21_what_is_shared_is_reduced_once),
	{ NULL, NULL },
};

int main(void)
{
	return check_run("fsdp/common", cases);
}
