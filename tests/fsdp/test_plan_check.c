/* The check of happens-before: clean for what the planner makes, and every single wait that is taken out is
 * noticed. */
#include <errno.h>

#include "plan_nets.h"
#include "plan_path.h"

static const char *const texts[] = {
	/* a chain that is longer than any limit below */
	NET_HEAD("1") "inputs=5\n" CONNECTED("7") CONNECTED("3") CONNECTED("9") CONNECTED("2") CONNECTED("6") SOFTMAX,
	/* several microbatches, statistics in blocks 1 and 3, of six */
	NET_HEAD("3") "inputs=5\n" CONNECTED("7") CONNECTED_BN("3") CONNECTED("9") CONNECTED_BN("2") CONNECTED("6") CONNECTED("4")
		SOFTMAX,
	/* one block, which waits for its own past only */
	NET_HEAD("2") "inputs=5\n" CONNECTED_BN("7") SOFTMAX,
	/* two frozen blocks before two that learn: the backward pass stops, and the first two have no update
	 * to wait for */
	NET_HEAD("2") "inputs=5\n" CONNECTED_BN("7") "[connected]\noutput=4\nactivation=leaky\nstopbackward=1\n" CONNECTED_BN("6")
		CONNECTED("3") SOFTMAX,
	/* everything is frozen */
	NET_HEAD("1") "inputs=5\n" CONNECTED("7")
		CONNECTED("4") "[connected]\noutput=3\nactivation=leaky\nstopbackward=1\n" SOFTMAX,
	/* T20: frozen between, with statistics, and at both ends */
	NET_HEAD("2") "inputs=5\n[block]\n" CONNECTED_BN("7") "[block]\nfrozen=1\n" CONNECTED_BN("4") "[block]\n" CONNECTED_BN(
		"6") "[block]\nfrozen=1\n" CONNECTED("5") "[block]\n" CONNECTED("3") SOFTMAX,
	NET_HEAD("1") "inputs=5\n[block]\nfrozen=1\n" CONNECTED_BN("7") "[block]\n" CONNECTED(
		"4") "[block]\nfrozen=1\n" CONNECTED_BN("6") "[block]\nfrozen=1\n" CONNECTED("3") SOFTMAX,
	/* blocks without params, at the start, inside and at the end */
	NET_HEAD(
		"2") "height=6\nwidth=6\nchannels=2\n[block]\n[maxpool]\nsize=2\nstride=2\n[block]\n[convolutional]\nfilters=3\nsize=3\n"
		     "pad=1\nbatch_normalize=1\nactivation=leaky\n[block]\n[dropout]\n[block]\n[convolutional]\nfilters=4\nsize=1\n"
		     "activation=leaky\n[block]\n" CONNECTED("5") "[block]\n" SOFTMAX,
};

#define N_TEXTS ((int)(sizeof(texts) / sizeof(texts[0])))

struct variant {
	int world, limit, grad_slots, depth;
	enum fsdp_prefetch prefetch;
	bool train;
};

static const struct variant variants[] = {
	{ 2, 2, 2, 1, FSDP_PRE, true },	  { 3, 2, 1, 1, FSDP_POST, true }, { 2, 2, 2, 0, FSDP_NONE, true },
	{ 1, 1, 1, 0, FSDP_PRE, true },	  { 4, 3, 2, 2, FSDP_PRE, true },  { 2, 3, 3, 2, FSDP_POST, true },
	{ 2, 3, 2, 1, FSDP_PRE, true },	  { 2, 9, 9, 8, FSDP_PRE, true },  { 2, 2, 2, 1, FSDP_PRE, false },
	{ 2, 4, 1, 3, FSDP_POST, false },
};

#define N_VARIANTS ((int)(sizeof(variants) / sizeof(variants[0])))

static int make(struct planned *p, int text, int variant)
{
	const struct variant *v = &variants[variant];
	const struct fsdp_options o = { .policy = policy_of("each"),
					.wire = { DN_F32, DN_F32 },
					.limit = v->limit,
					.grad_slots = v->grad_slots,
					.prefetch = v->prefetch,
					.depth = v->depth };

	return planned_make_as(p, texts[text], v->world, v->train, variant % 2, &o);
}

static void count_line(void *arg, const char *line)
{
	(void)line;
	++*(int *)arg;
}

static void every_plan_is_clean(void)
{
	for (int t = 0; t < N_TEXTS; t++)
		for (int v = 0; v < N_VARIANTS; v++) {
			struct planned p;

			CHECK_OK_FATAL(make(&p, t, v));
			CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
			planned_fini(&p);
		}
}

static int without_each_wait(const struct fsdp_plan *plan, struct fsdp_schedule *s, int t, int v)
{
	int n = 0;

	for (int i = 0; i < s->n_ops; i++) {
		const struct fsdp_op saved = s->ops[i];

		for (int k = 0; k < saved.n_waits; k++) {
			struct fsdp_op *op = &s->ops[i];
			char name[128], path[2048];

			*op = saved;
			memmove(op->waits + k, op->waits + k + 1, (size_t)(saved.n_waits - k - 1) * sizeof(op->waits[0]));
			op->n_waits--;
			fsdp_plan_event_name(plan, saved.waits[k], name, sizeof(name));
			if (fsdp_plan_check(plan, NULL, NULL) != -EINVAL) {
				if (!path_of(plan, &(const struct path_runs){ s, s }, i, saved.waits[k], path, sizeof(path)))
					snprintf(path, sizeof(path), "nothing, so the check misses it");
				fprintf(stderr,
					"net %d variant %d: %s of block %d, micro %d, works without %s, which is implied by %s\n",
					t, v, fsdp_op_name(saved.kind), saved.block, saved.micro, name, path);
				CU_FAIL("a wait that is not needed, or a check that misses it");
			}
			n++;
		}
		s->ops[i] = saved;
	}
	return n;
}

static void no_single_wait_can_be_left_out(void)
{
	int n = 0;

	for (int t = 0; t < N_TEXTS; t++)
		for (int v = 0; v < N_VARIANTS; v++) {
			struct planned p;

			CHECK_OK_FATAL(make(&p, t, v));
			n += without_each_wait(p.plan, &p.plan->step, t, v);
			n += without_each_wait(p.plan, &p.plan->eval, t, v);
			planned_fini(&p);
		}
	CU_ASSERT(n > 500); /* the loops did run */
}

/* A wait that another one brings: its removal is no fault, and the path that implies it is found. A wait that is
 * needed has none, behind another step or behind an evaluation. */
static void a_wait_that_is_implied_has_a_path(void)
{
	struct planned p;
	struct path_runs twice, after;
	struct fsdp_schedule *s;
	char path[2048];
	int n = 0;

	CHECK_OK_FATAL(make(&p, 0, 0));
	s = &p.plan->step;
	twice.first = twice.second = after.second = s;
	after.first = &p.plan->eval;
	for (int i = 0; i < s->n_ops; i++)
		for (int k = 0; k < s->ops[i].n_waits; k++, n++)
			CU_ASSERT_FALSE(path_of(p.plan, &twice, i, s->ops[i].waits[k], path, sizeof(path)) &&
					path_of(p.plan, &after, i, s->ops[i].waits[k], path, sizeof(path)));
	CU_ASSERT(n > 10);
	for (int i = 0; i < s->n_ops; i++) { /* backward of the last block waits for nothing: forward of it did */
		struct fsdp_op *op = &s->ops[i];
		const struct fsdp_op was = *op;

		if (op->kind != FSDP_BACKWARD || op->block != p.plan->n_blocks - 1)
			continue;
		op->waits[op->n_waits++] = FSDP_GATHER * p.plan->n_blocks + op->block;
		CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
		CU_ASSERT_FATAL(path_of(p.plan, &twice, i, op->waits[op->n_waits - 1], path, sizeof(path)));
		CHECK_STR(
			path,
			"gather of block4 (run 2, micro 0, gather queue) -> forward of block4 (run 2, micro 0, compute queue) -> "
			"backward of block4 (run 2, micro 0, compute queue)");
		*op = was;
	}
	planned_fini(&p);
}

static unsigned draw(unsigned *state, unsigned n)
{
	*state = *state * 1103515245u + 12345u;
	return (*state >> 16) % n;
}

/* MARKED: every layer's block says whether it is frozen, PREFIX: those up to one layer are, or none. TIED: none is, all are of one
 * shape, have a block and perhaps the params of an earlier one. Half of all look at
 * gradients, exchange statistics within their passes, and recompute. */
enum nets { PREFIX, MARKED, TIED };

static void check_random_plans(enum nets nets)
{
	const bool marks = nets == MARKED;
	static const enum dn_type types[] = { DN_F32, DN_BF16, DN_F16, DN_F32 };
	unsigned s = 1, kinds = 0;

	for (int round = 0; round < 150; round++) {
		unsigned n = 1 + draw(&s, 8), frozen = draw(&s, 3) ? n : draw(&s, n), subdivisions = 1 + draw(&s, 3);
		struct fsdp_options o = { .policy = policy_of("each"),
					  .wire = { DN_F32, DN_F32 },
					  .limit = 1 + (int)draw(&s, 4),
					  .grad_slots = 1 + (int)draw(&s, 3),
					  .prefetch = draw(&s, 3) };
		struct dn_buf text = { 0 };
		struct planned p;
		const unsigned normed = draw(&s, 2);
		int world;

		world = 1 + (int)draw(&s, 6);
		o.depth = (int)draw(&s, (unsigned)o.limit);
		o.strategy = draw(&s, 7);
		o.accumulate = draw(&s, 4);
		o.stay = (int)draw(&s, 3);
		o.layout = draw(&s, 3);
		o.persistent = draw(&s, 2) ? draw(&s, 200) : 0;
		o.policy_given = marks && draw(&s, 2); /* frozen and learning layers in one block */
		if (o.policy_given)
			o.policy = policy_of(draw(&s, 2) ? "size:1K" : "whole");
		o.looks = draw(&s, 2);
		o.sync_bn = draw(&s, 2);
		o.recompute = draw(&s, 2) ? "all" : NULL;
		o.recompute_where = "test";
		o.wire.gather = types[draw(&s, 4)];
		o.wire.reduce = types[draw(&s, 4)];
		if (o.accumulate >= FSDP_NO_SYNC)
			o.grad_slots = 0;
		if (fsdp_strategy_hybrid(o.strategy)) {
			o.shards = 1 + (int)draw(&s, 3);
			world = o.shards * (2 + (int)draw(&s, 2));
		}
		if (o.stay == 2 && (o.strategy == FSDP_OPT || o.strategy == FSDP_REPLICATE || (o.shards ? o.shards : world) % 2 ||
				    (o.shards ? o.shards : world) == 2))
			o.stay = 0;
		CHECK_OK_FATAL(dn_buf_printf(&text, "[net]\nbatch=1080\nsubdivisions=%u\ninputs=5\n", subdivisions));
		for (unsigned i = 0; i < n; i++) {
			if (nets != PREFIX)
				CHECK_OK_FATAL(dn_buf_printf(&text, "[block]\nfrozen=%u\n", marks ? draw(&s, 2) : 0));
			CHECK_OK_FATAL(dn_buf_printf(&text, "[connected]\noutput=%u\nactivation=leaky\nbatch_normalize=%u\n%s",
						     nets == TIED ? 5 : 1 + draw(&s, 30), nets == TIED ? normed : draw(&s, 2),
						     i == frozen && nets == PREFIX ? "stopbackward=1\n" : ""));
			if (nets == TIED && i && draw(&s, 2))
				CHECK_OK_FATAL(dn_buf_printf(&text, "share_index=-%u\n", 1 + draw(&s, i)));
			if (!draw(&s, 4) && nets != TIED)
				CHECK_OK_FATAL(dn_buf_printf(&text, "[dropout]\n"));
		}
		CHECK_OK_FATAL(dn_buf_printf(&text, SOFTMAX));
		CHECK_OK_FATAL(planned_make_as(&p, text.s, world, draw(&s, 5) > 0, draw(&s, 2), &o));
		CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
		for (int i = 0; i < p.plan->step.n_ops; i++)
			kinds |= 1u << p.plan->step.ops[i].kind;
		without_each_wait(p.plan, &p.plan->step, -1, round);
		without_each_wait(p.plan, &p.plan->eval, -1, round);
		without_each_wait(p.plan, &p.plan->repeat, -1, round);
		planned_fini(&p);
		dn_buf_fini(&text);
	}
	CHECK_EQ(kinds, (1u << FSDP_OP_KINDS) - 1); /* every kind of operation was drawn */
}

static void random_plans_are_clean_and_have_no_wait_too_many(void)
{
	check_random_plans(PREFIX);
}

static void t20_random_frozen_blocks_are_clean_and_have_no_wait_too_many(void)
{
	check_random_plans(MARKED);
}

static void t21_random_blocks_that_share_are_clean_and_have_no_wait_too_many(void)
{
	check_random_plans(TIED);
}

static void slots_that_share_bytes_are_reported(void)
{
	struct planned p;

	CHECK_OK_FATAL(make(&p, 0, 0));
	CHECK_EQ(p.plan->n_slots, 2);
	p.plan->slots[1].offset = p.plan->slots[0].offset;
	CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL, "param_slots");
	planned_fini(&p);
}

static void slots_that_share_one_element_are_reported(void)
{
	struct planned p;

	CHECK_OK_FATAL(make(&p, 0, 0));
	p.plan->slots[1].offset = p.plan->slots[0].elements - 1;
	CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL, "param_slots");
	planned_fini(&p);
}

static void gradient_slots_that_share_bytes_are_reported(void)
{
	struct planned p;

	CHECK_OK_FATAL(make(&p, 0, 0));
	p.plan->grad_slots[1].offset = p.plan->grad_slots[0].offset;
	CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL, "grad_slots");
	planned_fini(&p);
}

static void shards_that_share_bytes_are_reported(void)
{
	struct planned p;

	CHECK_OK_FATAL(make(&p, 0, 0));
	p.plan->blocks[1].grad_offset = p.plan->blocks[2].grad_offset;
	CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL, "grads");
	planned_fini(&p);
}

static void reductions_on_two_queues_are_reported_for_their_staging(void)
{
	struct planned p;

	CHECK_OK_FATAL(make(&p, 0, 0));
	for (int i = 0; i < p.plan->step.n_ops; i++)
		if (p.plan->step.ops[i].kind == FSDP_REDUCE && p.plan->step.ops[i].block % 2)
			p.plan->step.ops[i].queue = FSDP_GATHERQ;
	CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL, "staging");
	planned_fini(&p);
}

static char last_line[512];

static void keep_line(void *arg, const char *line)
{
	if (!(*(int *)arg)++)
		snprintf(last_line, sizeof(last_line), "%s", line);
}

static void a_report_names_operations_runs_and_bytes(void)
{
	struct planned p;
	int n = 0;

	CHECK_OK_FATAL(make(&p, 0, 0));
	for (int i = 0; i < p.plan->step.n_ops; i++)
		if (p.plan->step.ops[i].kind == FSDP_FORWARD && p.plan->step.ops[i].block == 1)
			p.plan->step.ops[i].n_waits = 0;
	CHECK_EQ(fsdp_plan_check(p.plan, keep_line, &n), -EINVAL);
	CU_ASSERT(n >= 3); /* once in each of the three steps */
	/* block 1 is 7 x 3 + 3 values: biases at 0, weights at 16, end 37, padded to 64 for two ranks; slot
	 * 0 before it holds 64 for block 0 (7 + 35: 16 + 35 = 51) and 64 for block 2 (9 + 27: 16 + 27 = 43),
	 * so bytes 256 to 512 */
	CHECK_STR(last_line, "param_slots bytes 256 to 512: gather of block1 (step, run 1, micro 0, gather queue) writes, "
			     "forward of block1 (step, run 1, micro 0, compute queue) reads, in no order");
	planned_fini(&p);
}

static void the_count_in_the_message_is_that_of_the_reports(void)
{
	struct planned p;
	char want[64];
	int n = 0;

	CHECK_OK_FATAL(make(&p, 1, 1));
	for (int i = 0; i < p.plan->step.n_ops; i++)
		if (p.plan->step.ops[i].kind == FSDP_REDUCE)
			p.plan->step.ops[i].n_waits = 0;
	CHECK_EQ(fsdp_plan_check(p.plan, count_line, &n), -EINVAL);
	snprintf(want, sizeof(want), "plan: %d faults", n);
	CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL, want);
	planned_fini(&p);
}

static void an_early_update_is_reported(void)
{
	struct planned p;
	struct fsdp_schedule *s;

	CHECK_OK_FATAL(make(&p, 1, 0));
	s = &p.plan->step;
	for (int i = s->n_ops - 1; s->ops[i].kind == FSDP_UPDATE; i--)
		s->ops[i].queue = FSDP_GATHERQ;
	CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL, "update");
	planned_fini(&p);
}

static void an_update_before_the_last_sum_is_reported(void)
{
	struct planned p;
	struct fsdp_schedule *s;
	struct fsdp_op update;
	int at;

	CHECK_OK_FATAL(make(&p, 1, 0));
	s = &p.plan->step;
	update = s->ops[s->n_ops - 1]; /* of block 0: behind its first microbatch */
	for (at = 0; s->ops[at].kind != FSDP_REDUCE || s->ops[at].block; at++)
		;
	memmove(&s->ops[at + 2], &s->ops[at + 1], (size_t)(s->n_ops - at - 2) * sizeof(update));
	s->ops[at + 1] = update;
	CHECK_EQ(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), "behind its update"));
	s->ops[at + 1] = s->ops[at + 2]; /* and none at all */
	CHECK_EQ(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL);
	planned_fini(&p);
}

/* T18: clipping wants all reductions over before the first update */
static void looks_come_between_all_reductions_and_all_updates(void)
{
	for (int strategy = FSDP_FULL; strategy <= FSDP_HYBRID_FULL_OPT; strategy++)
		for (int how = FSDP_SHARDED_SUM; how <= FSDP_NO_SYNC_KEEP; how++) {
			struct fsdp_options o = plan_defaults();
			struct planned p, plain;
			int n = 0, n_updates = 0;

			o.strategy = (enum fsdp_strategy)strategy;
			o.accumulate = (enum fsdp_accumulate)how;
			o.shards = fsdp_strategy_hybrid(o.strategy) ? 2 : 0;
			o.grad_slots = how >= FSDP_NO_SYNC ? 0 : 2;
			CHECK_OK_FATAL(planned_make(&plain, NET_HEAD("2") "inputs=3\n" CONNECTED_BN("7") CONNECTED("5") SOFTMAX,
						    4, true, &o));
			o.looks = true;
			CHECK_OK_FATAL(planned_make(&p, NET_HEAD("2") "inputs=3\n" CONNECTED_BN("7") CONNECTED("5") SOFTMAX, 4,
						    true, &o));
			CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
			CU_ASSERT(plain.plan->hash != p.plan->hash);
			for (int i = 0; i < p.plan->step.n_ops; i++) {
				struct fsdp_op *op = &p.plan->step.ops[i];
				const struct fsdp_op was = *op;

				n_updates += op->kind == FSDP_UPDATE;
				if (op->kind != FSDP_LOOK)
					continue;
				n++;
				CHECK_EQ(n_updates, 0);
				for (int k = 0; k < was.n_waits; k++) {
					op->waits[k] = op->waits[--op->n_waits];
					CU_ASSERT(fsdp_plan_check(p.plan, NULL, NULL) == -EINVAL);
					*op = was;
				}
			}
			CHECK_EQ(n, 2);
			CHECK_EQ(n_updates, 2);
			planned_fini(&plain);
			planned_fini(&p);
		}
}

static void a_look_behind_an_update_is_reported(void)
{
	struct fsdp_options o = plan_defaults();
	struct planned p;
	struct fsdp_schedule *s;
	struct fsdp_op look;
	int at = 0;

	o.looks = true;
	CHECK_OK_FATAL(planned_make(&p, NET_HEAD("1") "inputs=3\n" CONNECTED("7") CONNECTED("5") SOFTMAX, 2, true, &o));
	s = &p.plan->step;
	while (s->ops[at].kind != FSDP_UPDATE)
		at++;
	look = s->ops[at - 1];
	s->ops[at - 1] = s->ops[at];
	s->ops[at] = look;
	CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL, "behind an update");
	planned_fini(&p);
}

static const struct check_case cases[] = {
	{ "t18_looks_come_between_all_reductions_and_all_updates", looks_come_between_all_reductions_and_all_updates },
	{ "a_look_behind_an_update_is_reported", a_look_behind_an_update_is_reported },
	{ "every_plan_is_clean", every_plan_is_clean },
	{ "no_single_wait_can_be_left_out", no_single_wait_can_be_left_out },
	{ "a_wait_that_is_implied_has_a_path", a_wait_that_is_implied_has_a_path },
	{ "random_plans_are_clean_and_have_no_wait_too_many", random_plans_are_clean_and_have_no_wait_too_many },
	{ "t20_random_frozen_blocks_are_clean_and_have_no_wait_too_many",
	  t20_random_frozen_blocks_are_clean_and_have_no_wait_too_many },
	{ "t21_random_blocks_that_share_are_clean_and_have_no_wait_too_many",
	  t21_random_blocks_that_share_are_clean_and_have_no_wait_too_many },
	{ "slots_that_share_bytes_are_reported", slots_that_share_bytes_are_reported },
	{ "slots_that_share_one_element_are_reported", slots_that_share_one_element_are_reported },
	{ "gradient_slots_that_share_bytes_are_reported", gradient_slots_that_share_bytes_are_reported },
	{ "shards_that_share_bytes_are_reported", shards_that_share_bytes_are_reported },
	{ "reductions_on_two_queues_are_reported_for_their_staging", reductions_on_two_queues_are_reported_for_their_staging },
	{ "a_report_names_operations_runs_and_bytes", a_report_names_operations_runs_and_bytes },
	{ "the_count_in_the_message_is_that_of_the_reports", the_count_in_the_message_is_that_of_the_reports },
	{ "an_early_update_is_reported", an_early_update_is_reported },
	{ "an_update_before_the_last_sum_is_reported", an_update_before_the_last_sum_is_reported },
	{ NULL, NULL }
};

int main(void)
{
	return check_run("fsdp/plan_check", cases);
}
