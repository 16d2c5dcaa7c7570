/* T20: frozen blocks: nothing of them moves or travels, what is around them learns as in a plain run. */
#include "plan_nets.h"
#include "train_ranks.h"

#define N_BLOCKS 5

/* learning blocks have no statistics: the ranks' own would differ */
static void net_text(char *out, size_t cap, const char *sub, unsigned frozen)
{
	static const char *const body[N_BLOCKS] = {
		"[convolutional]\nfilters=5\nsize=3\npad=1\nactivation=leaky\n",
		"[convolutional]\nbatch_normalize=1\nfilters=5\nsize=3\npad=1\nactivation=swish\n[shortcut]\nfrom=-2\nactivation=mish\n",
		"[maxpool]\nsize=2\nstride=2\n[connected]\noutput=33\nactivation=tanh\n",
		"[batchnorm]\n[connected]\noutput=13\nactivation=mish\nbatch_normalize=1\n[connected]\noutput=9\nactivation=linear\n",
		"[connected]\noutput=6\nactivation=linear\n[softmax]\n",
	};
	size_t at = (size_t)snprintf(out, cap, "[net]\nbatch=24\nsubdivisions=%s\nwidth=8\nheight=8\nchannels=2\n", sub);

	for (int i = 0; i < N_BLOCKS; i++)
		at += (size_t)snprintf(out + at, cap - at, "[block]\nname=b%d\nfrozen=%u\n%s", i, frozen >> i & 1, body[i]);
}

/* blocks that normalise are frozen in all: bit i is block i */
static const unsigned frozen_sets[] = { 1u << 1 | 1u << 3, 1u << 0 | 1u << 1 | 1u << 3, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4 };
#define N_SETS ((int)(sizeof(frozen_sets) / sizeof(frozen_sets[0])))

static int fill(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	(void)arg;
	for (int64_t i = 0; i < n; i++)
		x[i] = .5f + (float)((p->index + at + i) % 7) / 8;
	return 0;
}

/* statistics that a layer can normalise with */
static void start_stats(struct train_job *j, int rank, struct dn_net *net)
{
	(void)j;
	(void)rank;
	for (int i = 0; i < net->n_params; i++)
		if (net->params[i]->role == DN_BUFFER)
			CHECK_OK(net->store.ops->each(net->store.self, net->params[i], DN_VALUE, DN_WRITE, fill, NULL));
}

static void look_plain(struct train_job *j, int rank, struct dn_net *net)
{
	(void)j;
	(void)rank;
	for (int i = 0; i < net->n_params; i++)
		if (net->params[i]->frozen)
			CU_ASSERT(!net->params[i]->grad && !net->params[i]->stat);
}

static struct train_job job_of(const char *cfg, int world)
{
	struct train_job j = train_job_of(cfg, world);

	j.start = start_stats;
	return j;
}

/* params of frozen layers are bitwise those before the first step, every other one has moved */
static void check_moved(const struct train_job *after, const struct train_job *before)
{
	struct planned p;
	int64_t at = 0;

	CHECK_OK_FATAL(planned_net(&p, after->cfg, 1, true, 1));
	for (int i = 0; i < p.net->n_params; i++) {
		const struct dn_param *x = p.net->params[i];
		const bool same = !memcmp(after->values + at, before->values + at, (size_t)x->n * sizeof(float));

		if (same != x->frozen)
			fprintf(stderr, "%s: %s\n", x->name, same ? "has not moved" : "is frozen and has moved");
		CU_ASSERT(same == x->frozen);
		at += x->n;
	}
	CHECK_EQ(at, after->n_values);
	planned_fini(&p);
}

static void t20_frozen_blocks_stay_and_the_others_learn_as_in_a_plain_run(void)
{
	for (int k = 0; k < N_SETS; k++) {
		char cfg[2048];
		struct train_job plain, before;

		net_text(cfg, sizeof(cfg), "2", frozen_sets[k]);
		before = plain = job_of(cfg, 1);
		before.plain = plain.plain = true;
		before.steps = 0;
		plain.look = look_plain;
		train_run(&before);
		train_run(&plain);
		CU_ASSERT(isfinite(plain.loss[2]));
		check_moved(&plain, &before);
		for (int world = 1; world <= 4; world++) {
			static const enum fsdp_strategy all[] = { FSDP_FULL, FSDP_GRAD_OP, FSDP_OPT, FSDP_REPLICATE };
			struct train_job first = job_of(cfg, world);

			train_run(&first);
			check_moved(&first, &before);
			if (world == 1)
				train_same_bits(&first, &plain);
			CU_ASSERT(train_distance(first.values, plain.values, plain.n_values) <= 1e-5);
			for (int s = 1; s < 4; s++) {
				struct train_job j = job_of(cfg, world);

				j.opt.strategy = all[s];
				train_run(&j);
				train_same_bits(&j, &first);
				CHECK_EQ(j.report.reduce.counted_bytes, j.report.reduce.planned_bytes);
				train_fini(&j);
			}
			train_fini(&first);
		}
		train_fini(&plain);
		train_fini(&before);
	}
}

/* what is trained does not depend on where the plugin cuts: frozen and learning tensors in one block */
static void t20_frozen_and_learning_tensors_in_one_block_have_the_same_bits(void)
{
	for (int world = 1; world <= 3; world++) {
		char cfg[2048];
		struct train_job blocks, whole;

		net_text(cfg, sizeof(cfg), "2", frozen_sets[0]);
		blocks = whole = job_of(cfg, world);
		whole.opt.policy = policy_of("whole");
		whole.opt.policy_given = true;
		train_run(&blocks);
		train_run(&whole);
		train_same_bits(&whole, &blocks);
		train_fini(&whole);
		train_fini(&blocks);
	}
}

/* under every strategy, layout and way of accumulating, with parts that stay, and by which cuts the plan is made at all */
static void t20_a_block_of_both_has_the_bits_of_blocks_of_one_kind(void)
{
	static const struct {
		int world;
		enum fsdp_strategy strategy;
		int shards, stay;
		enum fsdp_accumulate accumulate;
		bool narrow; /* on the wire */
	} ways[] = {
		{ 1, FSDP_FULL, 0, 0, FSDP_SHARDED_SUM, false },
		{ 2, FSDP_GRAD_OP, 0, 0, FSDP_SHARDED_SUM, false },
		{ 3, FSDP_OPT, 0, 0, FSDP_SHARDED_SUM, false },
		{ 3, FSDP_REPLICATE, 0, 0, FSDP_NO_SYNC, false },
		{ 4, FSDP_FULL, 0, 2, FSDP_SHARDED_SUM, false },
		{ 4, FSDP_FULL, 0, 0, FSDP_NO_SYNC_KEEP, false },
		{ 4, FSDP_HYBRID_FULL, 2, 0, FSDP_HYBRID_LAST, false },
		{ 4, FSDP_HYBRID_FULL_OPT, 2, 0, FSDP_SHARDED_SUM, false },
		{ 4, FSDP_HYBRID_FULL_OPT, 2, 0, FSDP_NO_SYNC, false },
		{ 4, FSDP_HYBRID_FULL_OPT, 1, 0, FSDP_HYBRID_LAST, false },
		{ 3, FSDP_OPT, 0, 0, FSDP_SHARDED_SUM, true },
		{ 4, FSDP_FULL, 0, 2, FSDP_SHARDED_SUM, true },
		{ 4, FSDP_HYBRID_FULL_OPT, 2, 0, FSDP_SHARDED_SUM, true },
	};

	for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++) {
		char cfg[2048];
		struct train_job blocks;

		net_text(cfg, sizeof(cfg), "2", frozen_sets[0]);
		blocks = job_of(cfg, ways[k].world);
		blocks.opt.strategy = ways[k].strategy;
		blocks.opt.shards = ways[k].shards;
		blocks.opt.stay = ways[k].stay;
		blocks.opt.accumulate = ways[k].accumulate;
		blocks.opt.grad_slots = 0;
		if (ways[k].narrow)
			blocks.opt.wire = (struct fsdp_wire){ DN_BF16, DN_BF16 };
		train_run(&blocks);
		for (int cut = 0; cut < 2; cut++)
			for (int layout = FSDP_FLAT; layout <= FSDP_PLANNED_TENSOR; layout++) {
				struct train_job j = job_of(cfg, ways[k].world);

				j.opt = blocks.opt;
				j.opt.policy = policy_of(cut ? "at:0,4,7" : "whole"); /* of frozen and learning layers each */
				j.opt.policy_given = true;
				j.opt.layout = (enum fsdp_layout)layout;
				j.opt.limit = cut ? 1 : 2;
				j.opt.depth = cut ? 0 : 1;
				j.early = layout % 2;
				train_run(&j);
				train_same_bits(&j, &blocks);
				CHECK_EQ(j.report.reduce.counted_bytes, j.report.reduce.planned_bytes);
				CHECK_EQ(j.report.gather.counted_bytes, j.report.gather.planned_bytes);
				CHECK_EQ(j.report.gather.counted_calls, j.report.gather.planned_calls);
				train_fini(&j);
			}
		train_fini(&blocks);
	}
}

static void t20_recomputed_frozen_blocks_change_no_bit(void)
{
	for (int k = 0; k < N_SETS; k++) {
		char cfg[2048];
		struct train_job none, all;

		net_text(cfg, sizeof(cfg), "2", frozen_sets[k]);
		none = all = job_of(cfg, 2);
		none.opt.recompute = "none";
		all.opt.recompute = "all";
		all.opt.limit = 1;
		all.opt.depth = 0;
		train_run(&none);
		train_run(&all);
		train_same_bits(&all, &none);
		train_fini(&all);
		train_fini(&none);
	}
}

static void look_memory(struct train_job *j, int rank, struct dn_net *net)
{
	static const enum dn_region regions[] = { DN_MEM_GRADS, DN_MEM_OPTIMIZER, DN_MEM_GRAD_SLOTS };
	struct dn_store_report r;
	struct dn_mem_stats s;

	pthread_barrier_wait(&j->line);
	if (rank == 0) {
		net->store.ops->report(net->store.self, &r);
		for (int k = 0; k < 3; k++) {
			dn_mem_stats(regions[k], &s);
			CHECK_EQ(s.now_bytes, r.planned_bytes[regions[k]] * (size_t)j->world);
		}
	}
	pthread_barrier_wait(&j->line);
}

static void t20_frozen_blocks_have_no_gradient_no_state_and_no_reduction(void)
{
	for (int world = 1; world <= 4; world++)
		for (int k = 0; k < N_SETS; k++) {
			struct fsdp_options o = plan_defaults();
			int64_t learning = 0;
			uint64_t reduced = 0;
			int n_learn = 0;
			char cfg[2048];
			struct planned p;
			struct train_job j;

			net_text(cfg, sizeof(cfg), "1", frozen_sets[k]);
			CHECK_OK_FATAL(planned_make(&p, cfg, world, true, &o));
			CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
			CHECK_EQ(p.plan->n_blocks, N_BLOCKS);
			for (int i = 0; i < N_BLOCKS; i++) {
				const struct fsdp_block *b = &p.plan->blocks[i];
				const bool frozen = frozen_sets[k] >> i & 1;

				CU_ASSERT(b->learns == !frozen && !b->has_stats);
				CU_ASSERT((b->grad_offset < 0) == frozen && (b->grad_slot < 0) == frozen);
				CU_ASSERT((b->reduce_call[0] < 0) == frozen);
				learning += frozen ? 0 : b->shard;
				reduced += frozen ? 0 : (uint64_t)(world - 1) * (uint64_t)b->shard * sizeof(float);
				n_learn += !frozen;
			}
			CHECK_EQ(p.plan->planned[DN_MEM_GRADS], 4 * learning);
			CHECK_EQ(p.plan->planned[DN_MEM_OPTIMIZER], 4 * learning);
			CHECK_EQ(p.plan->reduce_bytes, reduced);
			CHECK_EQ(p.plan->reduce_calls, n_learn);
			/* in front of somebody who learns backward reads the values of a frozen block; in a frozen prefix it stops */
			CHECK_EQ(p.plan->blocks[3].backward_values, true);
			CHECK_EQ(p.plan->blocks[1].in_backward, k != 1);
			planned_fini(&p);
			j = job_of(cfg, world);
			j.look = look_memory;
			train_run(&j);
			CHECK_EQ(j.report.reduce.counted_bytes, reduced);
			CHECK_EQ(j.report.reduce.counted_calls, n_learn);
			CHECK_EQ(j.report.gather.counted_bytes, j.report.gather.planned_bytes);
			train_fini(&j);
		}
}

/* the tensors of @p that learn, each rounded up to @align */
static int64_t learning_elements(const struct planned *p, int64_t align)
{
	int64_t n = 0;

	for (int t = 0; t < p->plan->n_tensors; t++) {
		const struct dn_param *x = p->net->params[p->plan->tensors[t].param];

		n += x->frozen ? 0 : (x->n + align - 1) / align * align;
	}
	return n;
}

/* one block of all: what is frozen in it costs neither bytes on their way nor memory for gradients and states */
static void t20_frozen_tensors_have_no_gradient_no_state_and_no_reduction(void)
{
	for (int world = 1; world <= 4; world++)
		for (int k = 0; k < N_SETS; k++) {
			struct fsdp_options o = plan_defaults();
			const struct fsdp_block *b;
			char cfg[2048];
			struct planned p;
			struct train_job j;

			o.policy = policy_of("whole");
			o.policy_given = true;
			net_text(cfg, sizeof(cfg), "1", frozen_sets[k]);
			CHECK_OK_FATAL(planned_make(&p, cfg, world, true, &o));
			CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
			b = &p.plan->blocks[0];
			CU_ASSERT(b->learning >= learning_elements(&p, 1));
			CU_ASSERT(b->learning < learning_elements(&p, FSDP_ALIGN) + world * FSDP_ALIGN);
			CU_ASSERT(b->learning < b->padded && b->learning % (world * FSDP_ALIGN) == 0);
			CHECK_EQ(p.plan->planned[DN_MEM_GRADS], 4 * b->learning / world);
			CHECK_EQ(p.plan->planned[DN_MEM_OPTIMIZER], 4 * b->learning / world);
			CHECK_EQ(p.plan->planned[DN_MEM_GRAD_SLOTS], 4 * b->learning);
			CHECK_EQ(p.plan->planned[DN_MEM_PARAMS], 4 * b->padded / world);
			CHECK_EQ(p.plan->reduce_bytes, (uint64_t)(4 * b->learning / world * (world - 1)));
			CHECK_EQ(p.plan->gather_bytes, (uint64_t)(4 * b->padded / world * (world - 1)));
			CHECK_EQ(p.plan->gather_calls, 2);
			CHECK_EQ(p.plan->reduce_calls, 1);
			for (int t = 0; t < p.plan->n_tensors; t++)
				CHECK_EQ(p.net->params[p.plan->tensors[t].param]->frozen,
					 p.plan->tensors[t].offset >= b->learning);
			j = job_of(cfg, world);
			j.opt.policy = o.policy;
			j.opt.policy_given = true;
			j.look = look_memory;
			train_run(&j);
			CHECK_EQ(j.report.reduce.counted_bytes, j.report.reduce.planned_bytes);
			CHECK_EQ(j.report.gather.counted_bytes, j.report.gather.planned_bytes);
			CHECK_EQ(j.report.reduce.planned_bytes, p.plan->reduce_bytes);
			train_fini(&j);
			planned_fini(&p);
		}
}

static void t20_frozen_is_0_or_1(void)
{
	struct planned p;

	CHECK_FAILS(planned_net(&p, "[net]\nbatch=2\ninputs=3\n[block]\nfrozen=2\n[connected]\n[softmax]\n", 1, true, 1), -EINVAL,
		    "test.cfg:5: [block] frozen=2: must be from 0 to 1");
	planned_fini(&p);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(t20_frozen_blocks_stay_and_the_others_learn_as_in_a_plain_run),
	CASE(t20_frozen_and_learning_tensors_in_one_block_have_the_same_bits),
	CASE(t20_a_block_of_both_has_the_bits_of_blocks_of_one_kind),
	CASE(t20_recomputed_frozen_blocks_change_no_bit),
	CASE(t20_frozen_blocks_have_no_gradient_no_state_and_no_reduction),
	CASE(t20_frozen_tensors_have_no_gradient_no_state_and_no_reduction),
	CASE(t20_frozen_is_0_or_1),
	{ NULL, NULL },
};

int main(void)
{
	return check_run("fsdp/frozen", cases);
}
