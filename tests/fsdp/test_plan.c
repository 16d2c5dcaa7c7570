/* The plan: layout, slots, order, counts, bytes and outputs, against lists written by hand and formulas over
 * the cfg's numbers. */
#include <cjson/cJSON.h>
#include <errno.h>

#include "plan_nets.h"

static int64_t up(int64_t x, int64_t a)
{
	return (x + a - 1) / a * a;
}

/* a chain of connected layers: dims[0] inputs, then outputs */
struct chain {
	int n;
	int64_t dims[12];
	bool norm;
	int subdivisions;
};

static void chain_text(struct dn_buf *t, const struct chain *c)
{
	CHECK_OK_FATAL(
		dn_buf_printf(t, "[net]\nbatch=10080\nsubdivisions=%d\ninputs=%lld\n", c->subdivisions, (long long)c->dims[0]));
	for (int i = 1; i <= c->n; i++)
		CHECK_OK_FATAL(dn_buf_printf(t, "[connected]\noutput=%lld\nactivation=leaky\nbatch_normalize=%d\n",
					     (long long)c->dims[i], c->norm));
	CHECK_OK_FATAL(dn_buf_printf(t, "[softmax]\n"));
}

static void chain_make(struct planned *p, const struct chain *c, int world, const struct fsdp_options *o)
{
	struct dn_buf t = { 0 };

	chain_text(&t, c);
	CHECK_OK_FATAL(planned_make(p, t.s, world, true, o));
	dn_buf_fini(&t);
}

/* T of block i: biases, scales and weights, each at a multiple of 16, the whole at one of 16 * world */
static int64_t chain_padded(const struct chain *c, int i, int world)
{
	int64_t out = c->dims[i + 1];

	return up(up(out, 16) * (c->norm ? 2 : 1) + out * c->dims[i], 16 * world);
}

static const struct chain chains[] = {
	{ 1, { 1, 1 }, false, 1 },
	{ 3, { 10, 3, 1, 2 }, false, 1 },
	{ 4, { 17, 31, 33, 5, 7 }, true, 2 },
	{ 6, { 5, 64, 16, 3, 1, 100, 10 }, false, 3 },
};

#define N_CHAINS ((int)(sizeof(chains) / sizeof(chains[0])))

/* --- layout --- */

static void layout_follows_the_worked_example(void)
{
	/* 10 inputs, 3 outputs: biases 3, weights 30. offsets 0 and 16, end 46; two ranks: T = 64, L = 32 */
	const struct chain c = { 1, { 10, 3 }, false, 1 };
	const struct fsdp_options o = plan_defaults();
	static const int64_t want[2][2][3] = {
		/* [rank][tensor]: at, n, shard_at */
		{ { 0, 3, 0 }, { 0, 16, 16 } },
		{ { 0, 0, 0 }, { 16, 14, 0 } },
	};
	struct planned p;

	chain_make(&p, &c, 2, &o);
	CHECK_EQ(p.plan->n_tensors, 2);
	CHECK_EQ(p.plan->tensors[0].offset, 0);
	CHECK_EQ(p.plan->tensors[1].offset, 16);
	CHECK_EQ(p.plan->blocks[0].padded, 64);
	CHECK_EQ(p.plan->blocks[0].shard, 32);
	CHECK_EQ(p.plan->blocks[0].params, 33);
	CHECK_EQ(p.plan->n_gaps, 2);
	CHECK_EQ(p.plan->gaps[0].offset, 3);
	CHECK_EQ(p.plan->gaps[0].n, 13);
	CHECK_EQ(p.plan->gaps[1].offset, 46);
	CHECK_EQ(p.plan->gaps[1].n, 18);
	for (int r = 0; r < 2; r++)
		for (int t = 0; t < 2; t++) {
			int64_t at, n, shard_at;

			fsdp_plan_tensor(p.plan, t, DN_VALUE, r, &at, &n, &shard_at);
			CHECK_EQ(at, want[r][t][0]);
			CHECK_EQ(n, want[r][t][1]);
			CHECK_EQ(shard_at, want[r][t][2]);
		}
	planned_fini(&p);
}

static void shards_hold_every_element_once(const struct fsdp_plan *p)
{
	for (int t = 0; t < p->n_tensors; t++) {
		const struct fsdp_tensor *x = &p->tensors[t];
		const struct fsdp_block *b = &p->blocks[x->block];
		int64_t next = 0;

		for (int r = 0; r < p->grid.world; r++) {
			int64_t at, n, shard_at;

			fsdp_plan_tensor(p, t, DN_VALUE, r, &at, &n, &shard_at);
			if (!n)
				continue;
			CHECK_EQ(at, next);
			/* the same element, counted in the block from both sides */
			CHECK_EQ(r * b->shard + shard_at, x->offset + at);
			CU_ASSERT(shard_at >= 0 && shard_at + n <= b->shard);
			next = at + n;
		}
		CHECK_EQ(next, x->n);
	}
}

/* every element of a block is in one tensor or in one gap */
static void tensors_and_gaps_fill(const struct fsdp_plan *p, int i)
{
	const struct fsdp_block *b = &p->blocks[i];
	unsigned char *seen = calloc((size_t)b->padded + 1, 1);

	CU_ASSERT_PTR_NOT_NULL_FATAL(seen);
	for (int t = b->first_tensor; t < b->first_tensor + b->n_tensors; t++) {
		CHECK_EQ(p->tensors[t].offset % FSDP_ALIGN, 0);
		for (int64_t e = 0; e < p->tensors[t].n; e++)
			seen[p->tensors[t].offset + e]++;
	}
	for (int g = b->first_gap; g < b->first_gap + b->n_gaps; g++)
		for (int64_t e = 0; e < p->gaps[g].n; e++)
			seen[p->gaps[g].offset + e]++;
	for (int64_t e = 0; e < b->padded; e++)
		if (seen[e] != 1) {
			fprintf(stderr, "block %d element %lld: %d times\n", i, (long long)e, seen[e]);
			CU_FAIL("an element that nobody or more than one has");
			break;
		}
	free(seen);
}

static void t1_every_world_cuts_every_tensor_completely(void)
{
	const struct fsdp_options o = plan_defaults();

	for (int c = 0; c < N_CHAINS; c++)
		for (int world = 1; world <= 8; world++) {
			struct planned p;

			chain_make(&p, &chains[c], world, &o);
			CHECK_EQ(p.plan->n_blocks, chains[c].n);
			shards_hold_every_element_once(p.plan);
			for (int i = 0; i < p.plan->n_blocks; i++) {
				const struct fsdp_block *b = &p.plan->blocks[i];

				CHECK_EQ(b->padded, chain_padded(&chains[c], i, world));
				CHECK_EQ(b->shard * world, b->padded);
				CHECK_EQ(b->shard % FSDP_ALIGN, 0);
				CHECK_EQ(b->shard_offset, i ? b[-1].shard_offset + b[-1].shard : 0);
				tensors_and_gaps_fill(p.plan, i);
			}
			planned_fini(&p);
		}
}

static void padding_is_below_one_alignment_a_tensor_and_rank(void)
{
	const struct fsdp_options o = plan_defaults();

	for (int world = 1; world <= 8; world++) {
		struct planned p;

		chain_make(&p, &chains[2], world, &o);
		for (int i = 0; i < p.plan->n_blocks; i++) {
			const struct fsdp_block *b = &p.plan->blocks[i];

			CU_ASSERT(b->padded - b->params < (b->n_tensors + world) * FSDP_ALIGN);
		}
		planned_fini(&p);
	}
}

static void buffers_are_outside_the_layout(void)
{
	const struct fsdp_options o = plan_defaults();
	struct planned p;

	chain_make(&p, &chains[2], 3, &o); /* outputs 31, 33, 5, 7 with two statistics each */
	CHECK_EQ(p.plan->n_rolling, 2 * (32 + 48 + 16 + 16));
	CHECK_EQ(p.plan->n_stats, p.plan->n_rolling);
	CHECK_EQ(p.plan->stats_block, 3);
	CHECK_EQ(p.plan->blocks[1].first_buffer, 2);
	CHECK_EQ(p.plan->blocks[1].n_buffers, 2);
	CHECK_EQ(p.plan->buffers[2].stat, 64);
	CHECK_EQ(p.plan->buffers[3].stat, 64 + 48);
	for (int i = 0; i < p.net->n_params; i++)
		CU_ASSERT((p.net->params[i]->role == DN_BUFFER) == (p.plan->tensor_of_param[i] < 0));
	planned_fini(&p);
}

static void a_plan_beyond_2_31_elements_allocates_none_of_them(void)
{
	static const char text[] = "[net]\nbatch=12\ninputs=50000\n" CONNECTED("50000") CONNECTED("60000") SOFTMAX;
	const struct fsdp_options o = plan_defaults();
	struct dn_mem_stats host;
	struct planned p;
	int64_t at, n, shard_at;
	int64_t t1 = 60000 + 3000000000ll; /* 50000 and 60000 biases are multiples of 16 */

	CHECK_OK_FATAL(planned_make(&p, text, 3, true, &o));
	CHECK_EQ(p.plan->blocks[0].padded, up(50000 + 2500000000ll, 48));
	CHECK_EQ(p.plan->blocks[1].padded, up(t1, 48));
	CHECK_EQ(p.plan->blocks[1].shard_offset, up(50000 + 2500000000ll, 48) / 3);
	fsdp_plan_tensor(p.plan, 3, DN_VALUE, 2, &at, &n, &shard_at); /* the last third of the last weights */
	CHECK_EQ(at, 2 * (up(t1, 48) / 3) - 60000);
	CHECK_EQ(at + n, 3000000000ll);
	CHECK_EQ(shard_at, 0);
	CHECK_EQ((int64_t)p.plan->planned[DN_MEM_PARAM_SLOTS], 4 * (up(50000 + 2500000000ll, 48) + up(t1, 48)));
	CHECK_EQ(p.plan->lanes[p.plan->calls[p.plan->blocks[0].reduce_call[0]].lane].memory.piece_bytes, 1 << 20);
	dn_mem_stats(DN_MEM_HOST, &host);
	CU_ASSERT(host.now_bytes < 1 << 20);
	for (int r = 0; r < DN_MEM_PLANNED; r++) {
		struct dn_mem_stats s;

		dn_mem_stats(r, &s);
		CHECK_EQ(s.peak_bytes, 0);
	}
	CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
	planned_fini(&p);
}

/* --- slots --- */

static void slots_alternate_and_are_as_large_as_their_largest_block(void)
{
	const struct chain *c = &chains[3];
	struct fsdp_options o = plan_defaults();

	for (int k = 1; k <= 8; k++) {
		int64_t want[8] = { 0 }, want_grad[8] = { 0 };
		int slots = k < c->n ? k : c->n;
		struct planned p;

		o.limit = o.grad_slots = k;
		o.depth = 0;
		chain_make(&p, c, 2, &o);
		for (int i = 0; i < c->n; i++) {
			int64_t size = chain_padded(c, i, 2);
			int s = i % slots, g = (c->n - 1 - i) % slots;

			CHECK_EQ(p.plan->blocks[i].slot, s);
			CHECK_EQ(p.plan->blocks[i].grad_slot, g);
			want[s] = want[s] > size ? want[s] : size;
			want_grad[g] = want_grad[g] > size ? want_grad[g] : size;
		}
		CHECK_EQ(p.plan->n_slots, slots);
		CHECK_EQ(p.plan->n_grad_slots, slots);
		for (int s = 0; s < slots; s++) {
			CHECK_EQ(p.plan->slots[s].elements, want[s]);
			CHECK_EQ(p.plan->grad_slots[s].elements, want_grad[s]);
			CHECK_EQ(p.plan->slots[s].offset, s ? p.plan->slots[s - 1].offset + want[s - 1] : 0);
			CHECK_EQ(p.plan->grad_slots[s].offset, s ? p.plan->grad_slots[s - 1].offset + want_grad[s - 1] : 0);
		}
		planned_fini(&p);
	}
}

/* --- order --- */

static char letter(const struct fsdp_op *op)
{
	static const char letters[] = {
		[FSDP_GATHER] = 'G', [FSDP_FORWARD] = 'F', [FSDP_RELEASE] = 'L', [FSDP_BACKWARD] = 'B',
		[FSDP_REDUCE] = 'R', [FSDP_UPDATE] = 'U',  [FSDP_STATS] = 'S',	 [FSDP_INPUT] = 'I',
	};

	return letters[op->kind];
}

/* "G0 G1 F0 ..."; with waits "G2(L0) ..." */
static void schedule_text(const struct fsdp_plan *p, const struct fsdp_schedule *s, bool waits, struct dn_buf *out)
{
	for (int i = 0; i < s->n_ops; i++) {
		const struct fsdp_op *op = &s->ops[i];

		CHECK_OK_FATAL(dn_buf_printf(out, "%s%c%d", i ? " " : "", letter(op), op->block));
		for (int k = 0; k < op->n_waits && waits; k++) {
			const struct fsdp_op of = { .kind = op->waits[k] / p->n_blocks };

			CHECK_OK_FATAL(dn_buf_printf(out, "%c%c%d%s", k ? ',' : '(', letter(&of), op->waits[k] % p->n_blocks,
						     k == op->n_waits - 1 ? ")" : ""));
		}
	}
}

static const char chain4[] = NET_HEAD("1") "inputs=5\n" CONNECTED("4") CONNECTED("6") CONNECTED("3") CONNECTED("2") SOFTMAX;
static const char chain5[] =
	NET_HEAD("1") "inputs=5\n" CONNECTED("4") CONNECTED("6") CONNECTED("3") CONNECTED("2") CONNECTED("7") SOFTMAX;

static void check_order(const char *text, bool train, struct fsdp_options o, bool waits, const char *want)
{
	struct dn_buf got = { 0 };
	struct planned p;

	CHECK_OK_FATAL(planned_make(&p, text, 2, train, &o));
	schedule_text(p.plan, train ? &p.plan->step : &p.plan->eval, waits, &got);
	CHECK_STR(got.s, want);
	dn_buf_fini(&got);
	planned_fini(&p);
}

static void t9_pre_gathers_the_next_block_before_a_block_computes(void)
{
	check_order(chain4, true, plan_defaults(), false,
		    "G0 G1 F0 L0 G2 F1 L1 G3 F2 F3 "
		    "B3 R3 I3 L3 G1 B2 R2 I2 L2 B1 R1 I1 L1 B0 R0 U3 U2 U1 U0");
}

static void t9_post_gathers_the_next_block_after_a_block_and_before_its_reduction(void)
{
	struct fsdp_options o = plan_defaults();

	o.prefetch = FSDP_POST;
	check_order(chain4, true, o, false,
		    "G0 F0 L0 G1 F1 L1 G2 F2 G3 F3 "
		    "B3 L3 R3 B2 L2 G1 R2 B1 L1 R1 B0 R0 U3 U2 U1 U0");
}

static void t9_none_gathers_a_block_when_it_is_due(void)
{
	struct fsdp_options o = plan_defaults();

	o.prefetch = FSDP_NONE;
	check_order(chain4, true, o, false,
		    "G0 F0 L0 G1 F1 L1 G2 F2 G3 F3 "
		    "B3 R3 I3 L3 B2 R2 I2 L2 G1 B1 R1 I1 L1 B0 R0 U3 U2 U1 U0");
}

static void t9_depth_two_gathers_two_blocks_ahead(void)
{
	struct fsdp_options o = plan_defaults();

	o.limit = 3;
	o.depth = 2;
	check_order(chain5, true, o, false,
		    "G0 G1 G2 F0 L0 G3 F1 L1 G4 F2 F3 F4 "
		    "B4 R4 I4 L4 G1 B3 R3 I3 L3 B2 R2 I2 L2 B1 R1 I1 L1 B0 R0 U4 U3 U2 U1 U0");
}

static void limit_one_gathers_one_block_at_a_time(void)
{
	struct fsdp_options o = plan_defaults();

	o.limit = 1;
	o.depth = 0;
	check_order(chain4, true, o, false,
		    "G0 F0 L0 G1 F1 L1 G2 F2 L2 G3 F3 "
		    "B3 R3 I3 L3 G2 B2 R2 I2 L2 G1 B1 R1 I1 L1 B0 R0 U3 U2 U1 U0");
}

static void waits_are_those_that_the_slots_and_queues_need(void)
{
	/* G0: its own update, and slot 0's last block of an evaluation; that update is the step's last
	 * operation of compute, so it stands for all the others. U3 and U2: their reductions were waited for
	 * when B1 and B0 took the gradient slots. */
	check_order(chain4, true, plan_defaults(), true,
		    "G0(U0,L2) G1(L3) F0(G0) L0 G2(L0) F1(G1) L1 G3(L1) F2(G2) F3(G3) "
		    "B3 R3(B3) I3 L3 G1(L3) B2 R2(B2) I2 L2 B1(G1,R3) R1(B1) I1 L1 B0(R2) R0(B0) U3 U2 U1(R1) U0(R0)");
}

/* B2 and B1 have waited for R4 and R3 to get their gradient slots; nothing in backward waits for the others */
static void an_update_stands_where_compute_knows_of_its_reduction(void)
{
	struct fsdp_options o = plan_defaults();
	struct dn_buf got = { 0 };
	struct planned p;

	CHECK_OK_FATAL(planned_make_as(&p, chain5, 2, true, true, &o));
	schedule_text(p.plan, &p.plan->step, true, &got);
	CHECK_STR(got.s, "G0(U0,L4) G1 F0(G0) L0 G2(L0) F1(G1) L1 G3(L1) F2(G2) L2 G4(L2) F3(G3) F4(G4) "
			 "B4 R4(B4) I4 L4 G2(L4) B3 R3(B3) I3 L3 G1(L3) B2(G2,R4) R2(B2) I2 L2 U4 B1(G1,R3) R1(B1) I1 L1 U3 "
			 "B0(R2) R0(B0) U2 U1(R1) U0(R0)");
	dn_buf_fini(&got);
	planned_fini(&p);
	CHECK_OK_FATAL(planned_make_as(&p, chain5, 2, true, false, &o));
	CU_ASSERT(!p.plan->early);
	planned_fini(&p);
}

static void a_pass_without_gradients_releases_every_block(void)
{
	check_order(chain4, false, plan_defaults(), true, "G0(L2) G1(L3) F0(G0) L0 G2(L0) F1(G1) L1 G3(L1) F2(G2) L2 F3(G3) L3");
}

static void microbatches_repeat_all_but_the_update(void)
{
	static const char text[] = NET_HEAD("2") "inputs=5\n" CONNECTED("4") CONNECTED("6") SOFTMAX;

	check_order(text, true, plan_defaults(), true,
		    "G0(U0,L0) G1(L1) F0(G0) L0 F1(G1) B1 R1(B1) I1 L1 B0 R0(B0) "
		    "G0(L0) G1(L1) F0(G0) L0 F1(G1) B1(R1) R1(B1) I1 L1 B0(R0) R0(B0) U1(R1) U0(R0)");
}

static void statistics_are_exchanged_after_the_last_block_that_has_some(void)
{
	static const char text[] = NET_HEAD("2") "inputs=5\n" CONNECTED_BN("4") CONNECTED_BN("6") CONNECTED("2") SOFTMAX;

	/* G1: the evaluation's L1 lies before its L2, which G0 has waited for. F0 of the second microbatch
	 * overwrites statistics that are over by then: B0 has waited for R2, which lies behind S1. Its B1
	 * likewise: B2 has waited for R0. */
	check_order(
		text, true, plan_defaults(), true,
		"G0(U0,L2) G1 F0(G0) L0 G2(L0) F1(G1) S1(F1) F2(G2) B2 R2(B2) I2 L2 G0(L2) B1 R1(B1) I1 L1 B0(G0,R2) L0 R0(B0) "
		"G0(L0) G1 F0(G0) L0 G2(L0) F1(G1) S1(F1) F2(G2) B2(R0) R2(B2) I2 L2 G0(L2) B1 R1(B1) I1 L1 B0(G0,R2) L0 R0(B0) "
		"U2 U1(R1) U0(R0)");
}

static void statistics_of_a_single_block_are_waited_for(void)
{
	static const char text[] = NET_HEAD("2") "inputs=5\n" CONNECTED_BN("4") SOFTMAX;

	check_order(text, true, plan_defaults(), true,
		    "G0(U0,L0) F0(G0) S0(F0) B0 L0 R0(B0) G0(L0) F0(G0,S0) S0(F0) B0(R0) L0 R0(B0) U0(R0)");
}

static void blocks_without_params_have_operations_but_no_collectives(void)
{
	static const char text[] =
		NET_HEAD("1") "height=4\nwidth=4\nchannels=2\n[block]\n[maxpool]\nsize=2\nstride=2\n[block]\n"
			      "[convolutional]\nfilters=3\nsize=1\nactivation=leaky\n[block]\n[dropout]\n[block]\n" CONNECTED("3")
				      SOFTMAX;
	struct fsdp_options o = plan_defaults();
	struct planned p;

	check_order(text, true, o, false, "G1 F0 G3 F1 L1 F2 F3 B3 R3 I3 L3 B2 B1 R1 U3 U1");
	CHECK_OK_FATAL(planned_make(&p, text, 2, true, &o));
	CHECK_EQ(p.plan->blocks[0].slot, -1);
	CHECK_EQ(p.plan->blocks[2].grad_slot, -1);
	CHECK_EQ(p.plan->blocks[2].padded, 0);
	planned_fini(&p);
}

static void a_frozen_prefix_is_gathered_in_forward_only(void)
{
	static const char text[] =
		NET_HEAD("1") "inputs=5\n" CONNECTED_BN("4") "[connected]\noutput=4\nactivation=leaky\n"
							     "stopbackward=1\n" CONNECTED("6") CONNECTED("3") SOFTMAX;
	struct fsdp_options o = plan_defaults();
	struct planned p;

	/* block 2 is the first that learns: its backward wants no gradient of its input and reads no values */
	check_order(text, true, o, false, "G0 G1 F0 L0 G2 F1 L1 G3 F2 L2 F3 B3 R3 I3 L3 B2 R2 U3 U2");
	CHECK_OK_FATAL(planned_make(&p, text, 2, true, &o));
	CHECK_EQ(p.plan->blocks[0].grad_offset, -1);
	CU_ASSERT(!p.plan->blocks[0].has_stats);
	CHECK_EQ(p.plan->buffers[0].stat, -1);
	CHECK_EQ(p.plan->n_rolling, 32);
	CHECK_EQ(p.plan->planned[DN_MEM_GRADS], 4 * (p.plan->blocks[2].shard + p.plan->blocks[3].shard));
	CHECK_EQ(p.plan->planned[DN_MEM_OPTIMIZER], p.plan->planned[DN_MEM_GRADS]);
	planned_fini(&p);
}

/* --- counts and bytes --- */

static void t8_collectives_are_counted_as_the_formula_says(void)
{
	for (int c = 0; c < N_CHAINS; c++)
		for (int world = 1; world <= 4; world++)
			for (int k = 1; k <= 4; k++) {
				const struct chain *ch = &chains[c];
				struct fsdp_options o = plan_defaults();
				/* in backward the first block reads values for its normalisation only */
				int reading = ch->n - !ch->norm, kept = k < reading ? k : reading;
				uint64_t gathers = 0, reduces = 0, again;
				struct planned p;

				o.limit = k;
				o.depth = k > 1;
				chain_make(&p, ch, world, &o);
				for (int i = 0; i < ch->n; i++) {
					uint64_t sent = (uint64_t)chain_padded(ch, i, world) / world * (world - 1) * 4;

					again = i >= ch->n - reading && i < ch->n - kept;
					gathers += sent * (1 + again);
					reduces += sent;
				}
				CHECK_EQ(p.plan->gather_calls, ch->subdivisions * (ch->n + reading - kept));
				CHECK_EQ(p.plan->reduce_calls, ch->subdivisions * ch->n);
				CHECK_EQ(p.plan->gather_bytes, ch->subdivisions * gathers);
				CHECK_EQ(p.plan->reduce_bytes, ch->subdivisions * reduces);
				planned_fini(&p);
			}
}

static void t11_region_bytes_are_those_of_the_formula(void)
{
	for (int c = 0; c < N_CHAINS; c++)
		for (int world = 1; world <= 8; world++) {
			const struct chain *ch = &chains[c];
			const struct fsdp_options o = plan_defaults();
			int64_t shards = 0, slots = 0, stats = 0, largest = 0, sum = 0;
			struct planned p;
			size_t ring;

			chain_make(&p, ch, world, &o);
			for (int i = 0; i < ch->n; i++) {
				shards += 4 * chain_padded(ch, i, world) / world;
				if (largest < 4 * chain_padded(ch, i, world) / world)
					largest = 4 * chain_padded(ch, i, world) / world;
				stats += ch->norm ? 2 * 4 * up(ch->dims[i + 1], 16) : 0;
			}
			for (int s = 0; s < 2; s++) { /* two slots: even and odd blocks */
				int64_t most = 0;

				for (int i = s; i < ch->n; i += 2)
					if (most < 4 * chain_padded(ch, i, world))
						most = 4 * chain_padded(ch, i, world);
				slots += most;
			}
			CHECK_OK(dn_loop_input_bytes(p.net, &ring));
			CHECK_EQ(p.plan->planned[DN_MEM_PARAMS], shards);
			CHECK_EQ(p.plan->planned[DN_MEM_GRADS], shards);
			CHECK_EQ(p.plan->planned[DN_MEM_OPTIMIZER], shards);
			CHECK_EQ(p.plan->planned[DN_MEM_PARAM_SLOTS], slots);
			CHECK_EQ(p.plan->planned[DN_MEM_GRAD_SLOTS], slots); /* the same two groups, counted from the end */
			CHECK_EQ(p.plan->planned[DN_MEM_ACTIVATIONS], p.net->activations_bytes + ring);
			CHECK_EQ(p.plan->planned[DN_MEM_WORKSPACE], p.net->workspace_bytes);
			largest *= 2 * (world - 1); /* pieces from every other rank, or statistics and their sum */
			if (world > 1 && largest < world * stats)
				largest = world * stats;
			CHECK_EQ(p.plan->planned[DN_MEM_STAGING], largest);
			CHECK_EQ(p.plan->planned[DN_MEM_BUFFERS], 2 * stats);
			CHECK_EQ(p.plan->planned[DN_MEM_EMA], 0);
			CHECK_EQ(p.plan->planned[DN_MEM_SNAPSHOT], 0);
			for (int r = 0; r < DN_MEM_PLANNED; r++)
				sum += (int64_t)p.plan->planned[r];
			CHECK_EQ(p.plan->total_bytes, sum);
			planned_fini(&p);
		}
}

static void replicated_bytes_are_those_of_the_local_store(void)
{
	const struct fsdp_options o = plan_defaults();
	size_t want[DN_MEM_PLANNED], sum = 0;
	struct planned p;

	chain_make(&p, &chains[2], 4, &o);
	CHECK_OK(dn_whole_bytes(p.net, want));
	for (int r = 0; r < DN_MEM_PLANNED; r++) {
		CHECK_EQ(p.plan->replicated[r], want[r]);
		sum += want[r];
	}
	CHECK_EQ(p.plan->replicated_bytes, sum);
	planned_fini(&p);
}

static void inference_has_values_and_no_more(void)
{
	const struct fsdp_options o = plan_defaults();
	struct planned p;

	CHECK_OK_FATAL(planned_make(&p, chain4, 3, false, &o));
	CHECK_EQ(p.plan->step.n_ops, 0);
	CHECK_EQ(p.plan->planned[DN_MEM_GRADS], 0);
	CHECK_EQ(p.plan->planned[DN_MEM_OPTIMIZER], 0);
	CHECK_EQ(p.plan->planned[DN_MEM_GRAD_SLOTS], 0);
	CHECK_EQ(p.plan->planned[DN_MEM_STAGING], 0);
	CHECK_EQ(p.plan->planned[DN_MEM_ACTIVATIONS], p.net->activations_bytes);
	CHECK_EQ(p.plan->gather_calls, 4); /* of a pass */
	CHECK_EQ(p.plan->reduce_calls, 0);
	planned_fini(&p);
}

/* --- hash --- */

static uint64_t hash_of(const char *text, int world, const struct fsdp_options *o, int threads)
{
	struct planned p;
	uint64_t hash;

	CHECK_OK_FATAL(planned_net(&p, text, world, true, threads));
	CHECK_OK_FATAL(fsdp_blocks_apply(p.net, o));
	CHECK_OK_FATAL(fsdp_plan_build(&p.plan, p.net, o, world));
	hash = p.plan->hash;
	planned_fini(&p);
	return hash;
}

static void the_hash_depends_on_plan_and_nothing_else(void)
{
	static const char other[] =
		NET_HEAD("1") "inputs=5\n" CONNECTED("4") CONNECTED("6") CONNECTED("3") CONNECTED("3") SOFTMAX;
	const struct fsdp_options o = plan_defaults();
	struct fsdp_options v = o;
	uint64_t h = hash_of(chain4, 2, &o, 1);

	CU_ASSERT(h == hash_of(chain4, 2, &o, 1));
	CU_ASSERT(h == hash_of(chain4, 2, &o, 3)); /* threads are a fact of the host */
	v.timeout_ms = 5;
	CU_ASSERT(h == hash_of(chain4, 2, &v, 1));
	v = o;
	v.prefetch = FSDP_POST;
	CU_ASSERT(h != hash_of(chain4, 2, &v, 1));
	v = o;
	v.limit = 3;
	CU_ASSERT(h != hash_of(chain4, 2, &v, 1));
	v = o;
	v.grad_slots = 1;
	CU_ASSERT(h != hash_of(chain4, 2, &v, 1));
	v = o;
	v.policy = policy_of("at:0,2");
	CU_ASSERT(h != hash_of(chain4, 2, &v, 1));
	CU_ASSERT(h != hash_of(chain4, 4, &o, 1));
	CU_ASSERT(h != hash_of(other, 2, &o, 1));
}

/* --- refusals --- */

static void arguments_that_do_not_agree_are_refused(void)
{
	struct fsdp_options o = plan_defaults();
	struct fsdp_plan *plan = NULL;
	struct planned p;

	CHECK_OK_FATAL(planned_net(&p, chain4, 2, true, 1));
	CHECK_FAILS(fsdp_plan_build(&plan, p.net, &o, 0), -EINVAL, "world is 0");
	CHECK_FAILS(fsdp_plan_build(&plan, p.net, &o, 3), -EINVAL, "for 3 ranks, but the net was built for 2");
	o.depth = 2;
	CHECK_FAILS(fsdp_plan_build(&plan, p.net, &o, 2), -EINVAL, "depth is 2");
	o.depth = 1;
	o.grad_slots = -1;
	CHECK_FAILS(fsdp_plan_build(&plan, p.net, &o, 2), -EINVAL, "grad_slots -1");
	CU_ASSERT_PTR_NULL(plan);
	planned_fini(&p);
}

static int resolve(const char *key, const char *value, const char *key2, const char *value2, struct fsdp_options *out)
{
	struct dn_options *o;
	int err;

	CHECK_OK_FATAL(dn_options_create(&o));
	CHECK_OK_FATAL(dn_options_add(o, fsdp_option_table));
	err = key ? dn_options_set(o, key, value, "a.cfg:7") : 0;
	if (!err && key2)
		err = dn_options_set(o, key2, value2, "-fsdp.second");
	if (!err)
		err = fsdp_options_resolve(o, out);
	if (!err)
		out->policy.text = out->policy.list = NULL; /* belong to o */
	dn_options_destroy(o);
	return err;
}

static void options_have_their_defaults(void)
{
	struct fsdp_options o;

	CHECK_OK(resolve(NULL, NULL, NULL, NULL, &o));
	CHECK_EQ(o.limit, 2);
	CHECK_EQ(o.grad_slots, 0); /* as many as accumulate wants */
	CHECK_EQ(o.prefetch, FSDP_PRE);
	CHECK_EQ(o.depth, 1);
	CHECK_EQ(o.policy.kind, FSDP_BLOCKS_AUTO);
	CHECK_EQ(o.strategy, FSDP_FULL);
	CHECK_EQ(o.layout, FSDP_FLAT);
	CHECK_EQ(o.transport, FSDP_AUTO);
	CHECK_EQ(o.wire.gather, DN_F32);
	CU_ASSERT(!o.load_rank0);
	CHECK_EQ(o.timeout_ms, 300000);
	CU_ASSERT(!o.policy_given);
	CHECK_OK(resolve("limit", "1", NULL, NULL, &o));
	CHECK_EQ(o.depth, 0);
	CHECK_OK(resolve("limit", "7", "depth", "6", &o));
	CHECK_EQ(o.depth, 6);
	CHECK_OK(resolve("load", "rank0", "collectives", "local", &o));
	CU_ASSERT(o.load_rank0);
	CHECK_EQ(o.transport, FSDP_LOCAL);
	CHECK_OK(resolve("blocks", "size:3K", "prefetch", "none", &o));
	CHECK_EQ(o.policy.kind, FSDP_BLOCKS_SIZE);
	CHECK_EQ(o.policy.bytes, 3072);
	CHECK_EQ(o.prefetch, FSDP_NONE);
	CHECK_OK(resolve("timeout", "0.5", NULL, NULL, &o));
	CHECK_EQ(o.timeout_ms, 500);
	CHECK_OK(resolve("timeout", "0", "blocks", "each", &o));
	CHECK_EQ(o.timeout_ms, 0);
	CU_ASSERT(o.policy_given);
	CHECK_OK(resolve("blocks", "each", NULL, NULL, &o));
	CU_ASSERT(!o.policy_given);
}

static void bad_options_name_key_place_and_what_is_supported(void)
{
	struct fsdp_options o;

	CHECK_FAILS(resolve("limit", "0", NULL, NULL, &o), -EINVAL, "a.cfg:7: limit=0");
	CHECK_FAILS(resolve("grad_slots", "0", NULL, NULL, &o), -EINVAL, "grad_slots=0");
	CHECK_FAILS(resolve("depth", "2", NULL, NULL, &o), -EINVAL, "at most limit - 1 = 1");
	CHECK_FAILS(resolve("limit", "1", "depth", "1", &o), -EINVAL, "-fsdp.second: depth is 1, but limit is 1");
	CHECK_FAILS(resolve("strategy", "ful", NULL, NULL, &o), -EINVAL,
		    "a.cfg:7: strategy=ful: unknown; this version supports full, grad_op, opt, replicate, hybrid_full, "
		    "hybrid_grad_op, hybrid_full_opt");
	CHECK_FAILS(resolve("release", "-1", NULL, NULL, &o), -EINVAL, "a.cfg:7: release=-1: wanted 1");
	CHECK_FAILS(resolve("shard", "0", NULL, NULL, &o), -EINVAL, "a.cfg:7: shard=0");
	CHECK_FAILS(resolve("layout", "dim0", NULL, NULL, &o), -EINVAL,
		    "not in this version, which supports flat, planned:row, planned:tensor");
	CHECK_FAILS(resolve("accumulate", "sync", NULL, NULL, &o), -EINVAL,
		    "supports sharded, no_sync, no_sync_keep, hybrid_last");
	CHECK_FAILS(resolve("reduction", "library", NULL, NULL, &o), -EINVAL, "supports tree");
	CHECK_FAILS(resolve("nan", "off", NULL, NULL, &o), -EINVAL, "a.cfg:7: nan=off: wanted loss, stop, skip");
	CHECK_FAILS(resolve("batch_norm", "global", NULL, NULL, &o), -EINVAL, "supports local, sync");
	CHECK_FAILS(resolve("recompute", "a,,b", NULL, NULL, &o), -EINVAL, "a.cfg:7: recompute=a,,b: wanted none, all, or names");
	CHECK_FAILS(resolve("recompute", "", NULL, NULL, &o), -EINVAL, "wanted none, all, or names");
	CHECK_OK(resolve("recompute", "a,b", NULL, NULL, &o));
	CHECK_FAILS(resolve("collectives", "nccl", NULL, NULL, &o), -EINVAL,
		    "a.cfg:7: collectives=nccl: not in this version, which supports auto, mpi, local, shm");
	CHECK_FAILS(resolve("prefetch", "early", NULL, NULL, &o), -EINVAL,
		    "a.cfg:7: prefetch=early: unknown; this version supports pre, post, none");
	CHECK_FAILS(resolve("timeout", "-1", NULL, NULL, &o), -EINVAL, "timeout=-1");
	CHECK_OK(resolve("wire", "bf16", "reduce", "fp16", &o));
	CHECK_EQ(o.wire.gather, DN_BF16);
	CHECK_EQ(o.wire.reduce, DN_F16);
	CHECK_FAILS(resolve("wire", "int8", NULL, NULL, &o), -EINVAL,
		    "a.cfg:7: wire=int8: not in this version, which supports fp32, bf16, fp16");
	CHECK_FAILS(resolve("reduce", "fp64", NULL, NULL, &o), -EINVAL,
		    "a.cfg:7: reduce=fp64: unknown; this version supports fp32");
	CHECK_OK(resolve("nan", "loss", "clip_p", "inf", &o));
	CU_ASSERT(!o.looks);
	CHECK_OK(resolve("clip_norm", "1", NULL, NULL, &o));
	CU_ASSERT(o.looks);
	CHECK_FAILS(resolve("clip", "1", NULL, NULL, &o), -ENOENT, "unknown key clip;");
	CHECK_FAILS(resolve("save_every", "10x", NULL, NULL, &o), -EINVAL, "minutes");
	CHECK_OK(resolve("save_every", "10m", "keep", "0", &o));
	CHECK_FAILS(resolve("blocks", "size:0", NULL, NULL, &o), -EINVAL, "above 0");
	CHECK_FAILS(resolve("blocks", "size:many", NULL, NULL, &o), -EINVAL, "number of bytes");
	CHECK_FAILS(resolve("blocks", "type:nothing", NULL, NULL, &o), -EINVAL, "section name");
	CHECK_FAILS(resolve("blocks", "at:", NULL, NULL, &o), -EINVAL, "layer numbers");
	CHECK_FAILS(resolve("blocks", "at:1,,2", NULL, NULL, &o), -EINVAL, "layer numbers");
	CHECK_FAILS(resolve("blocks", "at:1,", NULL, NULL, &o), -EINVAL, "layer numbers");
	CHECK_FAILS(resolve("blocks", "some", NULL, NULL, &o), -EINVAL,
		    "wanted auto, each, whole, size:BYTES, type:SECTION, at:I,J,...");
}

/* --- blocks --- */

/* layers: 0 maxpool, 1 conv 4 * (3 + 54) = 228 bytes, 2 maxpool, 3 conv 4 * (4 + 12) = 64, 4 conv 4 * (8 +
 * 32) = 160, 5 dropout, 6 connected, 7 softmax */
static const char mixed[] = NET_HEAD(
	"1") "height=8\nwidth=8\nchannels=2\n[maxpool]\nsize=2\nstride=2\n"
	     "[convolutional]\nfilters=3\nsize=3\npad=1\nactivation=leaky\n[maxpool]\nsize=2\nstride=2\n"
	     "[convolutional]\nfilters=4\nsize=1\nactivation=leaky\n[convolutional]\nfilters=8\nsize=1\nactivation=leaky\n[dropout]\n" CONNECTED(
		     "3") SOFTMAX;

static void quiet(void *arg, const char *line)
{
	snprintf(arg, 256, "%s", line);
}

static void check_blocks(const char *text, const char *policy, bool given, int n, const int *first)
{
	struct fsdp_options o = plan_defaults();
	struct planned p;
	char line[256] = "";

	o.policy = policy_of(policy);
	o.policy_given = given;
	CHECK_OK_FATAL(planned_net(&p, text, 1, true, 1));
	dn_log_sink(quiet, line);
	CHECK_OK(fsdp_blocks_apply(p.net, &o));
	dn_log_sink(NULL, NULL);
	CHECK_EQ(p.net->n_blocks, n);
	for (int i = 0; i < n && i < p.net->n_blocks; i++)
		CHECK_EQ(p.net->blocks[i].first, first[i]);
	planned_fini(&p);
}

static void policies_cut_where_they_say(void)
{
	check_blocks(mixed, "auto", false, 1, (const int[]){ 0 });
	check_blocks(mixed, "each", false, 4, (const int[]){ 0, 3, 4, 6 });
	check_blocks(mixed, "whole", false, 1, (const int[]){ 0 });
	check_blocks(mixed, "size:1", false, 4, (const int[]){ 0, 3, 4, 6 });
	check_blocks(mixed, "size:224", false, 3, (const int[]){ 0, 3, 6 });
	check_blocks(mixed, "size:225", false, 2, (const int[]){ 0, 3 });
	check_blocks(mixed, "size:229", false, 2, (const int[]){ 0, 4 });
	check_blocks(mixed, "type:convolutional", false, 4, (const int[]){ 0, 1, 3, 4 });
	check_blocks(mixed, "type:conv", false, 4, (const int[]){ 0, 1, 3, 4 });
	check_blocks(mixed, "type:maxpool", false, 2, (const int[]){ 0, 2 });
	check_blocks(mixed, "at:0,3,6", false, 3, (const int[]){ 0, 3, 6 });
	check_blocks(mixed, "at:4", false, 2, (const int[]){ 0, 4 });
}

static void markers_win_over_the_cfg_and_lose_to_the_command_line(void)
{
	static const char text[] =
		NET_HEAD("1") "inputs=4\n" CONNECTED("4") "[block]\nname=tail\n" CONNECTED("3") CONNECTED("2") SOFTMAX;
	struct fsdp_options o = plan_defaults();
	struct planned p;
	char line[256] = "";

	check_blocks(text, "each", false, 2, (const int[]){ 0, 1 });
	check_blocks(text, "each", true, 3, (const int[]){ 0, 1, 2 });
	o.policy_given = true;
	CHECK_OK_FATAL(planned_net(&p, text, 1, true, 1));
	dn_log_sink(quiet, line);
	CHECK_OK(fsdp_blocks_apply(p.net, &o));
	dn_log_sink(NULL, NULL);
	CU_ASSERT_PTR_NOT_NULL(strstr(line, "-fsdp.blocks each overrules the [block] markers of test.cfg"));
	planned_fini(&p);
}

static void one_block_for_all_is_warned_of(void)
{
	struct fsdp_options o = plan_defaults();
	struct planned p;
	char line[256] = "";

	o.policy = policy_of("whole");
	CHECK_OK_FATAL(planned_net(&p, chain4, 1, true, 1));
	dn_log_sink(quiet, line);
	CHECK_OK(fsdp_blocks_apply(p.net, &o));
	dn_log_sink(NULL, NULL);
	CU_ASSERT_PTR_NOT_NULL(strstr(line, "gathers all params at once"));
	planned_fini(&p);
}

static void policies_that_miss_the_net_are_refused(void)
{
	struct fsdp_options o = plan_defaults();
	struct planned p;

	CHECK_OK_FATAL(planned_net(&p, chain4, 1, true, 1));
	o.policy = policy_of("type:convolutional");
	CHECK_FAILS(fsdp_blocks_apply(p.net, &o), -EINVAL, "the net has no [convolutional] layer");
	o.policy = policy_of("at:5");
	CHECK_FAILS(fsdp_blocks_apply(p.net, &o), -EINVAL, "layers 0 to 4");
	o.policy = policy_of("at:3,1");
	CHECK_FAILS(fsdp_blocks_apply(p.net, &o), -EINVAL, "starts must ascend");
	o.policy = policy_of("at:2,2");
	CHECK_FAILS(fsdp_blocks_apply(p.net, &o), -EINVAL, "starts must ascend");
	CHECK_EQ(p.net->n_blocks, 1);
	planned_fini(&p);
}

/* --- outputs --- */

static double number(const cJSON *j, const char *key)
{
	const cJSON *x = cJSON_GetObjectItemCaseSensitive(j, key);

	CU_ASSERT_FATAL(cJSON_IsNumber(x));
	return x->valuedouble;
}

static const char *text_of(const cJSON *j, const char *key)
{
	const cJSON *x = cJSON_GetObjectItemCaseSensitive(j, key);

	CU_ASSERT_FATAL(cJSON_IsString(x));
	return x->valuestring;
}

static cJSON *json_of(const struct planned *p)
{
	char *s = NULL;
	size_t n;
	FILE *f = open_memstream(&s, &n);
	cJSON *j;

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CHECK_OK(fsdp_plan_json(p->plan, p->net, "a \"b\".cfg", f));
	fclose(f);
	j = cJSON_Parse(s);
	CU_ASSERT_PTR_NOT_NULL_FATAL(j);
	free(s);
	return j;
}

static void json_has_what_the_readme_promises(void)
{
	const struct fsdp_options o = plan_defaults();
	const cJSON *x, *ops;
	struct planned p;
	double sum = 0;
	char hash[17];
	cJSON *j;

	chain_make(&p, &chains[2], 2, &o);
	j = json_of(&p);
	CHECK_EQ(number(j, "v"), 1);
	CHECK_STR(text_of(j, "cfg"), "a \"b\".cfg");
	snprintf(hash, sizeof(hash), "%016" PRIx64, p.plan->hash);
	CHECK_STR(text_of(j, "hash"), hash);
	CHECK_STR(text_of(j, "strategy"), "full");
	CHECK_STR(text_of(j, "layout"), "flat");
	CHECK_EQ(number(j, "world"), 2);
	x = cJSON_GetObjectItem(j, "mesh");
	CHECK_EQ(number(x, "replicas"), 1);
	CHECK_EQ(number(x, "shards"), 2);
	x = cJSON_GetObjectItem(j, "backend");
	CHECK_EQ(number(x, "threads"), 1);
	CHECK_EQ(number(x, "alignment"), 64);
	CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItem(x, "workspace_bytes")), p.net->n_layers);
	CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItem(j, "blocks")), 4);
	x = cJSON_GetArrayItem(cJSON_GetObjectItem(j, "blocks"), 1);
	CHECK_STR(text_of(x, "name"), "block1");
	CHECK_EQ(number(x, "first"), 1);
	CHECK_EQ(number(x, "last"), 1);
	CHECK_EQ(number(x, "params"), 33 + 33 + 31 * 33);
	CHECK_EQ(number(x, "gathered_bytes"), 4 * chain_padded(&chains[2], 1, 2));
	CHECK_EQ(number(x, "shard_bytes"), 2 * chain_padded(&chains[2], 1, 2));
	CHECK_EQ(number(x, "padding_bytes"), 4 * (chain_padded(&chains[2], 1, 2) - (33 + 33 + 31 * 33)));
	CHECK_EQ(number(x, "slot"), 1);
	cJSON_ArrayForEach(x, cJSON_GetObjectItem(j, "regions")) sum += number(x, "planned_bytes");
	CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItem(j, "regions")), DN_MEM_PLANNED);
	CHECK_EQ(number(j, "total_bytes"), sum);
	CHECK_EQ(number(j, "replicated_bytes"), p.plan->replicated_bytes);
	CHECK_EQ(number(cJSON_GetObjectItem(j, "gather"), "planned_calls"), p.plan->gather_calls);
	CHECK_EQ(number(cJSON_GetObjectItem(j, "reduce"), "planned_bytes"), p.plan->reduce_bytes);
	ops = cJSON_GetObjectItem(j, "schedule");
	CHECK_EQ(cJSON_GetArraySize(ops), p.plan->step.n_ops);
	x = cJSON_GetArrayItem(ops, 0);
	CHECK_STR(text_of(x, "op"), "gather");
	CHECK_STR(text_of(x, "block"), "block0");
	CHECK_STR(text_of(x, "queue"), "gather");
	CHECK_STR(text_of(x, "records"), "gather:block0");
	CHECK_EQ(number(x, "micro"), 0);
	CHECK_STR(cJSON_GetArrayItem(cJSON_GetObjectItem(x, "waits"), 0)->valuestring, "update:block0");
	x = cJSON_GetArrayItem(ops, p.plan->step.n_ops - 1);
	CHECK_STR(text_of(x, "op"), "update");
	CHECK_STR(text_of(x, "queue"), "compute");
	cJSON_Delete(j);
	planned_fini(&p);
}

/* each wait in the printed schedule names an event that some operation records */
static void every_wait_in_the_json_is_recorded_somewhere(void)
{
	const struct fsdp_options o = plan_defaults();
	const cJSON *op, *w, *other;
	struct planned p;
	cJSON *j;

	chain_make(&p, &chains[2], 2, &o);
	j = json_of(&p);
	cJSON_ArrayForEach(op, cJSON_GetObjectItem(j, "schedule")) cJSON_ArrayForEach(w, cJSON_GetObjectItem(op, "waits"))
	{
		bool found = false;

		cJSON_ArrayForEach(other, cJSON_GetObjectItem(j, "schedule")) found =
			found || !strcmp(text_of(other, "records"), w->valuestring);
		if (!found)
			fprintf(stderr, "%s is waited for and never recorded\n", w->valuestring);
		CU_ASSERT(found);
	}
	cJSON_Delete(j);
	planned_fini(&p);
}

static void the_text_form_shows_blocks_regions_traffic_and_order(void)
{
	const struct fsdp_options o = plan_defaults();
	static const char *const wanted[] = { "4 ranks",	"block0",	  "param_slots", "replicated",
					      "traffic",	"gather",	  "waits for",	 "update:block0",
					      "stays gathered", "gathered again", "not read" };
	struct planned p;
	char *s = NULL;
	size_t n;
	FILE *f = open_memstream(&s, &n);

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CHECK_OK_FATAL(planned_make(&p, chain4, 4, true, &o));
	CHECK_OK(fsdp_plan_print(p.plan, p.net, f));
	fclose(f);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		if (!strstr(s, wanted[i]))
			fprintf(stderr, "no \"%s\" in:\n%s\n", wanted[i], s);
		CU_ASSERT_PTR_NOT_NULL(strstr(s, wanted[i]));
	}
	free(s);
	planned_fini(&p);
}

static void a_failed_allocation_fails_the_plan_and_leaks_nothing(void)
{
	const struct fsdp_options o = plan_defaults();
	struct dn_mem_stats before, after;
	struct planned p;
	int err = -ENOMEM;

	CHECK_OK_FATAL(planned_net(&p, chain4, 2, true, 1));
	CHECK_OK_FATAL(fsdp_blocks_apply(p.net, &o));
	dn_mem_stats(DN_MEM_HOST, &before);
	for (uint64_t n = 1; err == -ENOMEM && n < 1000; n++) {
		dn_mem_fail_at(n);
		err = fsdp_plan_build(&p.plan, p.net, &o, 2);
		dn_mem_fail_at(0);
		dn_mem_stats(DN_MEM_HOST, &after);
		if (err)
			CHECK_EQ(after.now_bytes, before.now_bytes);
	}
	CHECK_OK(err);
	planned_fini(&p);
}

#define CASE(f) \
	{ \
#f, f \
	}

static const struct check_case cases[] = { CASE(layout_follows_the_worked_example),
					   CASE(t1_every_world_cuts_every_tensor_completely),
					   CASE(padding_is_below_one_alignment_a_tensor_and_rank),
					   CASE(buffers_are_outside_the_layout),
					   CASE(a_plan_beyond_2_31_elements_allocates_none_of_them),
					   CASE(slots_alternate_and_are_as_large_as_their_largest_block),
					   CASE(t9_pre_gathers_the_next_block_before_a_block_computes),
					   CASE(t9_post_gathers_the_next_block_after_a_block_and_before_its_reduction),
					   CASE(t9_none_gathers_a_block_when_it_is_due),
					   CASE(t9_depth_two_gathers_two_blocks_ahead),
					   CASE(limit_one_gathers_one_block_at_a_time),
					   CASE(waits_are_those_that_the_slots_and_queues_need),
					   CASE(an_update_stands_where_compute_knows_of_its_reduction),
					   CASE(a_pass_without_gradients_releases_every_block),
					   CASE(microbatches_repeat_all_but_the_update),
					   CASE(statistics_are_exchanged_after_the_last_block_that_has_some),
					   CASE(statistics_of_a_single_block_are_waited_for),
					   CASE(blocks_without_params_have_operations_but_no_collectives),
					   CASE(a_frozen_prefix_is_gathered_in_forward_only),
					   CASE(t8_collectives_are_counted_as_the_formula_says),
					   CASE(t11_region_bytes_are_those_of_the_formula),
					   CASE(replicated_bytes_are_those_of_the_local_store),
					   CASE(inference_has_values_and_no_more),
					   CASE(the_hash_depends_on_plan_and_nothing_else),
					   CASE(arguments_that_do_not_agree_are_refused),
					   CASE(options_have_their_defaults),
					   CASE(bad_options_name_key_place_and_what_is_supported),
					   CASE(policies_cut_where_they_say),
					   CASE(markers_win_over_the_cfg_and_lose_to_the_command_line),
					   CASE(one_block_for_all_is_warned_of),
					   CASE(policies_that_miss_the_net_are_refused),
					   CASE(json_has_what_the_readme_promises),
					   CASE(every_wait_in_the_json_is_recorded_somewhere),
					   CASE(the_text_form_shows_blocks_regions_traffic_and_order),
					   CASE(a_failed_allocation_fails_the_plan_and_leaks_nothing),
					   { NULL, NULL } };

int main(void)
{
	return check_run("fsdp/plan", cases);
}
