/* T10: the plan on a simulated clock: every operation takes a given time, queues work side by side, waits are kept. What compute waits
 * for is what no schedule can hide. T8: calls under accumulation. T27: partial release, as it is planned for any number of ranks.
 */
#include <errno.h>
#include "plan_nets.h"

#define BLOCK(n) "[block]\n[connected]\noutput=" #n "\nactivation=leaky\n"
/* blocks as large as one another: five, with the softmax in the last */
static const char chain[] = NET_HEAD("1") "inputs=8\n" BLOCK(8) BLOCK(8) BLOCK(8) BLOCK(8) BLOCK(8) SOFTMAX;
#define N_BLOCKS 5

struct times { /* of an operation of each kind */
	int64_t of[FSDP_OP_KINDS];
};

struct idle { /* of compute before its @i-th operation of a kind */
	int64_t forward[N_BLOCKS], backward[N_BLOCKS], update[N_BLOCKS], total;
};

/* Two steps of @s one after the other; what the second one took, and where its compute was idle. */
static int64_t simulate(const struct fsdp_plan *p, const struct fsdp_schedule *s, const struct times *t, struct idle *out)
{
	int64_t queue[FSDP_QUEUES] = { 0 }, event[512] = { 0 }, begin = 0;

	CU_ASSERT_FATAL(FSDP_OP_KINDS * p->n_blocks <= 512);
	memset(out, 0, sizeof(*out));
	for (int k = 0; k < 2 * s->n_ops; k++) {
		const struct fsdp_op *op = &s->ops[k % s->n_ops];
		int64_t *q = &queue[op->queue], at = *q;

		if (k == s->n_ops)
			begin = queue[FSDP_COMPUTE];
		for (int w = 0; w < op->n_waits; w++)
			at = event[op->waits[w]] > at ? event[op->waits[w]] : at;
		if (k >= s->n_ops && op->queue == FSDP_COMPUTE) {
			int64_t *of = op->kind == FSDP_FORWARD	  ? out->forward
				      : op->kind == FSDP_BACKWARD ? out->backward
				      : op->kind == FSDP_UPDATE	  ? out->update
								  : NULL;

			if (of)
				of[op->block] += at - *q;
			out->total += at - *q;
		}
		*q = at + t->of[op->kind];
		if (op->records >= 0)
			event[op->records] = *q;
	}
	return queue[FSDP_COMPUTE] - begin;
}

/* @early: updates stand within the last backward, as whoever trains wants it */
static int64_t run_as(const struct fsdp_options *o, const char *text, int world, bool early, const struct times *t,
		      struct idle *out)
{
	struct planned p;
	int64_t took;

	CHECK_OK_FATAL(planned_make_as(&p, text, world, true, early, o));
	CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
	CHECK_EQ(p.plan->n_blocks, N_BLOCKS);
	took = simulate(p.plan, &p.plan->step, t, out);
	planned_fini(&p);
	return took;
}

static int64_t run(const struct fsdp_options *o, const char *text, int world, const struct times *t, struct idle *out)
{
	return run_as(o, text, world, false, t, out);
}

static int64_t sum_of(const int64_t *x)
{
	int64_t sum = 0;

	for (int i = 0; i < N_BLOCKS; i++)
		sum += x[i];
	return sum;
}

/* Collectives that are shorter than a block's compute: exposed are the first gather, and the last reduction as far as the other blocks'
 * updates do not cover it. The last blocks stay at the turn, so backward waits for nothing. */
static void t10_short_collectives_are_hidden_but_for_the_first_and_the_last(void)
{
	const struct times t = {
		{ [FSDP_GATHER] = 7, [FSDP_FORWARD] = 10, [FSDP_BACKWARD] = 20, [FSDP_REDUCE] = 9, [FSDP_UPDATE] = 1 }
	};

	for (int limit = 2; limit <= 4; limit++)
		for (int slots = 2; slots <= 3; slots++) {
			struct fsdp_options o = plan_defaults();
			struct idle idle;
			int64_t took;

			o.limit = limit;
			o.depth = 1;
			o.grad_slots = slots;
			took = run(&o, chain, 4, &t, &idle);
			/* block 0 has backward's last reduction, behind the updates of the four others */
			CHECK_EQ(idle.forward[0], 7);
			CHECK_EQ(sum_of(idle.forward), 7);
			CHECK_EQ(sum_of(idle.backward), 0);
			CHECK_EQ(sum_of(idle.update), 9 - 4);
			CHECK_EQ(took, 7 + N_BLOCKS * (10 + 20 + 1) + 5);
			CHECK_EQ(idle.total, 12);
			/* within backward, a block's update comes when its gradient slot is wanted: as many as there are slots are
			 * left to cover the last reduction */
			took = run_as(&o, chain, 4, true, &t, &idle);
			CHECK_EQ(sum_of(idle.forward), 7);
			CHECK_EQ(sum_of(idle.backward), 0);
			CHECK_EQ(sum_of(idle.update), 9 - slots);
			CHECK_EQ(took, 7 + N_BLOCKS * (10 + 20 + 1) + 9 - slots);
		}
}

/* of what is gathered when it is due, everything is exposed: five gathers in forward, and in backward those of the blocks that did not
 * stay and whose values it reads */
static void t10_without_prefetch_every_gather_is_exposed(void)
{
	const struct times t = {
		{ [FSDP_GATHER] = 7, [FSDP_FORWARD] = 10, [FSDP_BACKWARD] = 20, [FSDP_REDUCE] = 9, [FSDP_UPDATE] = 1 }
	};
	struct fsdp_options o = plan_defaults();
	struct idle none, pre, post;

	o.prefetch = FSDP_NONE;
	o.depth = 0;
	o.limit = 1;
	run(&o, chain, 4, &t, &none);
	CHECK_EQ(sum_of(none.forward), 5 * 7);
	CHECK_EQ(none.backward[N_BLOCKS - 1], 0); /* stays */
	CHECK_EQ(sum_of(none.backward), 3 * 7);	  /* block 0 reads none: its input needs no gradient */
	o = plan_defaults();
	run(&o, chain, 4, &t, &pre);
	o.prefetch = FSDP_POST;
	run(&o, chain, 4, &t, &post);
	CU_ASSERT(pre.total <= post.total && post.total < none.total); /* the host runs ahead of the queues */
}

/* Collectives that are longer: the queue of gathers is never idle in forward, so it is the critical path. */
static void t10_long_gathers_are_the_critical_path(void)
{
	const struct times t = {
		{ [FSDP_GATHER] = 25, [FSDP_FORWARD] = 10, [FSDP_BACKWARD] = 20, [FSDP_REDUCE] = 1, [FSDP_UPDATE] = 1 }
	};
	struct fsdp_options o = plan_defaults();
	struct idle idle;

	run(&o, chain, 4, &t, &idle);
	/* forward of block i ends 10 after its gather, the i-th of 25 in a row: the first is waited for, and 15 of each other one */
	CHECK_EQ(idle.forward[0], 25);
	for (int i = 1; i < N_BLOCKS; i++)
		CHECK_EQ(idle.forward[i], 15);
}

/* whole values need no gather: only the last reduction is left; those of a copy's shards come before those of the copies */
static void t10_whole_values_wait_for_the_last_reduction_alone(void)
{
	const struct times t = { { [FSDP_GATHER] = 7,
				   [FSDP_FORWARD] = 10,
				   [FSDP_BACKWARD] = 20,
				   [FSDP_REDUCE] = 9,
				   [FSDP_COMBINE] = 6,
				   [FSDP_SHARE] = 3,
				   [FSDP_UPDATE] = 1 } };
	struct fsdp_options o = plan_defaults();
	struct idle idle;

	o.strategy = FSDP_REPLICATE;
	run(&o, chain, 4, &t, &idle);
	CHECK_EQ(sum_of(idle.forward) + sum_of(idle.backward), 0);
	CU_ASSERT(idle.total > 0 && idle.total <= 9 + 5 * 3);
	o.strategy = FSDP_HYBRID_FULL;
	o.shards = 2;
	run(&o, chain, 4, &t, &idle);
	CHECK_EQ(sum_of(idle.forward), 7);
	CHECK_EQ(sum_of(idle.backward), 0);
	CHECK_EQ(sum_of(idle.update), 9 + 6 + 3 - 4); /* over the shards, over the copies, and to all copies */
}

/* --- T8: gathers and reductions of a step of A microbatches, by the way in which they are summed --- */

static void t8_accumulation_has_the_calls_of_its_kind(void)
{
	static const char *const texts[] = { NET_HEAD("1") "inputs=8\n" BLOCK(8) BLOCK(8) BLOCK(8) BLOCK(8) BLOCK(8) SOFTMAX,
					     NET_HEAD("2") "inputs=8\n" BLOCK(8) BLOCK(8) BLOCK(8) BLOCK(8) BLOCK(8) SOFTMAX,
					     NET_HEAD("4") "inputs=8\n" BLOCK(8) BLOCK(8) BLOCK(8) BLOCK(8) BLOCK(8) SOFTMAX };

	for (int k = 0; k < 3; k++)
		for (int how = FSDP_SHARDED_SUM; how <= FSDP_NO_SYNC_KEEP; how++) {
			const uint64_t a = 1ull << k,
				       micro = N_BLOCKS + 2; /* again: what did not stay and is read, blocks 1 and 2 */
			struct fsdp_options o = plan_defaults();
			struct planned p;
			uint64_t gathers = 0, reduces = 0, combines = 0;

			o.accumulate = (enum fsdp_accumulate)how;
			o.strategy = how == FSDP_HYBRID_LAST ? FSDP_HYBRID_FULL : FSDP_FULL;
			o.shards = how == FSDP_HYBRID_LAST ? 2 : 0;
			o.grad_slots = how >= FSDP_NO_SYNC ? 0 : 2;
			CHECK_OK_FATAL(planned_make(&p, texts[k], 4, true, &o));
			for (int i = 0; i < p.plan->step.n_ops; i++) {
				gathers += p.plan->step.ops[i].kind == FSDP_GATHER;
				reduces += p.plan->step.ops[i].kind == FSDP_REDUCE;
				combines += p.plan->step.ops[i].kind == FSDP_COMBINE;
			}
			CHECK_EQ(gathers, how == FSDP_NO_SYNC_KEEP && a > 1 ? N_BLOCKS : a * micro);
			CHECK_EQ(reduces, how >= FSDP_NO_SYNC ? N_BLOCKS : a * N_BLOCKS);
			CHECK_EQ(combines, how == FSDP_HYBRID_LAST ? N_BLOCKS : 0);
			planned_fini(&p);
		}
}

/* --- T27 --- */

static void t27_each_divisor_keeps_a_part_and_gathers_it_from_fewer_ranks(void)
{
	for (int world = 2; world <= 24; world++)
		for (int keeps = 2; keeps <= world + 1; keeps++) {
			struct fsdp_options o = plan_defaults();
			struct planned p;
			int n = 0, err;

			if (10080 % world) /* the batch does not split */
				continue;
			o.stay = keeps;
			err = planned_make(&p, chain, world, true, &o);
			if (keeps >= world || world % keeps) {
				char want[120];

				CHECK_EQ(err, -EINVAL);
				snprintf(want, sizeof(want), "release=%d is not 0, 1 or another divisor of its %d shards", keeps,
					 world);
				CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), want));
				planned_fini(&p);
				continue;
			}
			CHECK_OK_FATAL(err);
			CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
			for (int i = 0; i < p.plan->step.n_ops; i++) {
				const struct fsdp_op *op = &p.plan->step.ops[i];
				const struct fsdp_call *c = op->call < 0 ? NULL : &p.plan->calls[op->call];

				if (op->kind != FSDP_GATHER)
					continue;
				CHECK_EQ(c->kept, op->backward);
				CHECK_EQ(p.plan->lanes[c->lane].group.size, op->backward ? keeps : world);
				CHECK_EQ(c->sent_bytes, (uint64_t)(c->n * ((op->backward ? keeps : world) - 1)) * sizeof(float));
				CHECK_EQ(c->n * (op->backward ? keeps : world), p.plan->blocks[op->block].padded);
				n += op->backward;
			}
			CHECK_EQ(n, 2); /* the last two stay, block 0's backward reads no values */
			CHECK_EQ(p.plan->n_kept, n * p.plan->blocks[1].padded / keeps);
			planned_fini(&p);
		}
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(t10_short_collectives_are_hidden_but_for_the_first_and_the_last),
	CASE(t10_without_prefetch_every_gather_is_exposed),
	CASE(t10_long_gathers_are_the_critical_path),
	CASE(t10_whole_values_wait_for_the_last_reduction_alone),
	CASE(t8_accumulation_has_the_calls_of_its_kind),
	CASE(t27_each_divisor_keeps_a_part_and_gathers_it_from_fewer_ranks),
	{ NULL, NULL },
};

int main(void)
{
	return check_run("fsdp/overlap", cases);
}
