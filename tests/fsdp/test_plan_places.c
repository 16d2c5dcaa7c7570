/* Where bytes lie, who shares what in a grid of ranks, and how much is in flight: the plan's words on it against brute force. */
#include <errno.h>

#include "plan_nets.h"

#define NORMED \
	"inputs=5\n" CONNECTED("7") CONNECTED_BN("3") CONNECTED("9") CONNECTED_BN("2") CONNECTED("6") CONNECTED("4") SOFTMAX
static const char sgd[] = NET_HEAD("3") NORMED;
static const char adam[] = NET_HEAD("3") "optimizer=adam\n" NORMED;
static const char frozen[] =
	NET_HEAD("2") "inputs=5\n" CONNECTED_BN("7") "[connected]\noutput=4\nactivation=leaky\nstopbackward=1\n" CONNECTED_BN("6")
		CONNECTED("3") SOFTMAX;

static void make(struct planned *p, const char *text, int world, int shards, bool train)
{
	struct fsdp_options o = plan_defaults();

	if (shards && shards < world) {
		o.strategy = FSDP_HYBRID_FULL;
		o.shards = shards;
	}
	CHECK_OK_FATAL(planned_make(p, text, world, train, &o));
}

/* --- places --- */

struct map { /* how often each byte of a region was named */
	unsigned char *seen;
	size_t bytes;
};

static void map_add(struct map *m, struct fsdp_place x)
{
	CU_ASSERT_FATAL(x.from + x.bytes <= m->bytes);
	for (size_t i = 0; i < x.bytes; i++)
		m->seen[x.from + i]++;
}

static void parts_of_all_blocks_fill_their_regions_once(void)
{
	static const enum dn_region regions[] = { DN_MEM_PARAMS, DN_MEM_GRADS, DN_MEM_OPTIMIZER };
	static const char *const texts[] = { sgd, adam, frozen };

	for (int t = 0; t < 3; t++)
		for (int k = 0; k < 3; k++) {
			struct planned p;
			struct map m;
			int64_t wrong = 0;

			make(&p, texts[t], 3, 0, true);
			m.bytes = p.plan->planned[regions[k]];
			m.seen = calloc(m.bytes, 1);
			CU_ASSERT_FATAL(m.seen && m.bytes);
			for (int i = 0; i < p.plan->n_blocks; i++)
				for (int part = DN_VALUE; part < DN_PARTS; part++) {
					struct fsdp_place x = fsdp_place_part(p.plan, i, (enum dn_part)part);

					if (x.bytes && x.region == regions[k])
						map_add(&m, x);
				}
			for (size_t i = 0; i < m.bytes; i++)
				wrong += m.seen[i] != 1;
			CHECK_EQ(wrong, 0);
			free(m.seen);
			planned_fini(&p);
		}
}

/* a state of one kind lies in one piece over all blocks: an update over a range may rely on it */
static void windows_are_the_regions_that_other_ranks_read(void)
{
	struct fsdp_options o = plan_defaults();
	struct planned p, mpi;

	make(&mpi, frozen, 3, 0, true);
	for (int r = 0; r < DN_MEM_PLANNED; r++)
		CU_ASSERT_FALSE(fsdp_place_shared(mpi.plan, (enum dn_region)r));
	o.transport = FSDP_SHM;
	for (int train = 0; train < 2; train++) {
		CHECK_OK_FATAL(planned_make(&p, frozen, 3, train, &o));
		CU_ASSERT_STRING_EQUAL(p.plan->collectives, "shm");
		for (int r = 0; r < DN_MEM_PLANNED; r++)
			CHECK_EQ(fsdp_place_shared(p.plan, (enum dn_region)r),
				 r == DN_MEM_PARAMS || (train && r == DN_MEM_GRAD_SLOTS));
		CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
		if (train) { /* gradients are not staged, all else is the same */
			size_t less = mpi.plan->planned[DN_MEM_STAGING] - p.plan->planned[DN_MEM_STAGING];

			CU_ASSERT(less > 0 && less <= mpi.plan->planned[DN_MEM_STAGING]);
			CHECK_EQ(mpi.plan->total_bytes - p.plan->total_bytes, less);
			CHECK_EQ(mpi.plan->gather_bytes, p.plan->gather_bytes);
			CHECK_EQ(mpi.plan->reduce_bytes, p.plan->reduce_bytes);
		}
		planned_fini(&p);
	}
	planned_fini(&mpi);
}

static void states_lie_in_planes(void)
{
	struct planned p;

	make(&p, adam, 2, 0, true);
	CHECK_EQ(p.plan->n_states, 2);
	for (int i = 0; i < p.plan->n_blocks; i++) {
		struct fsdp_place g = fsdp_place_part(p.plan, i, DN_GRAD);

		CHECK_EQ(fsdp_place_part(p.plan, i, DN_STATE0).from, g.from);
		CHECK_EQ(fsdp_place_part(p.plan, i, DN_STATE1).from, (size_t)p.plan->n_grads * 4 + g.from);
		CHECK_EQ(fsdp_place_part(p.plan, i, DN_STATE1).bytes, g.bytes);
	}
	planned_fini(&p);
	make(&p, sgd, 2, 0, true);
	CHECK_EQ(fsdp_place_part(p.plan, 0, DN_STATE1).bytes, 0);
	planned_fini(&p);
}

static void buffers_lie_behind_one_another(void)
{
	struct planned p;
	struct map m;
	int64_t more = 0;

	make(&p, frozen, 2, 0, true);
	m.bytes = p.plan->planned[DN_MEM_BUFFERS];
	m.seen = calloc(m.bytes, 1);
	CU_ASSERT_FATAL(m.seen && p.plan->n_buffers == 4);
	for (int k = 0; k < p.plan->n_buffers; k++) {
		bool learns = p.plan->buffers[k].block > 1;

		map_add(&m, fsdp_place_rolling(p.plan, k));
		map_add(&m, fsdp_place_stat(p.plan, k));
		CHECK_EQ(fsdp_place_stat(p.plan, k).bytes, learns ? p.plan->buffers[k].n * 4 : 0);
		CHECK_EQ(fsdp_place_rolling(p.plan, k).from % DN_ALIGN, 0);
		CHECK_EQ(p.plan->tensor_of_param[p.plan->buffers[k].param], ~k);
	}
	for (size_t i = 0; i < m.bytes; i++)
		more += m.seen[i] > 1;
	CHECK_EQ(more, 0);
	CHECK_EQ(fsdp_place_stats(p.plan).from, 2 * 16 * 4 + 2 * 16 * 4);
	CHECK_EQ(fsdp_place_stats(p.plan).from + fsdp_place_stats(p.plan).bytes, m.bytes);
	free(m.seen);
	planned_fini(&p);
}

static void states_that_share_a_byte_are_reported(void)
{
	struct planned p;

	make(&p, adam, 2, 0, true);
	CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
	p.plan->step.ops[p.plan->step.n_ops - 1].queue = FSDP_GATHERQ; /* beside the other updates, which touch other bytes */
	p.plan->n_parts -= 16;					       /* until the second plane begins inside the first */
	CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL, "optimizer bytes");
	planned_fini(&p);
}

/* --- a grid of ranks --- */

static void shards_are_those_of_a_group_not_of_the_world(void)
{
	struct planned a, b;

	make(&a, sgd, 2, 0, false);
	make(&b, sgd, 6, 2, false);
	CHECK_EQ(b.plan->blocks[0].replicas.size, 3);
	CU_ASSERT(a.plan->hash != b.plan->hash);
	for (int i = 0; i < a.plan->n_blocks; i++) /* padded so that the replicas can cut a shard */
		CU_ASSERT(b.plan->blocks[i].shard >= a.plan->blocks[i].shard && b.plan->blocks[i].shard % (3 * FSDP_ALIGN) == 0);
	for (int t = 0; t < b.plan->n_tensors; t++)
		for (int rank = 2; rank < 6; rank++) {
			int64_t at, n, from, want[3];

			fsdp_plan_tensor(b.plan, t, DN_VALUE, rank % 2, &want[0], &want[1], &want[2]);
			fsdp_plan_tensor(b.plan, t, DN_VALUE, rank, &at, &n, &from);
			CU_ASSERT(at == want[0] && n == want[1] && from == want[2]);
		}
	CHECK_OK(fsdp_plan_check(b.plan, NULL, NULL));
	planned_fini(&a);
	planned_fini(&b);
}

static void of_the_ranks_that_own_an_interval_one_writes_it(void)
{
	static const int grids[][2] = { { 1, 1 }, { 4, 4 }, { 4, 2 }, { 4, 1 }, { 6, 3 } };

	for (int g = 0; g < 5; g++) {
		struct planned p;

		make(&p, sgd, grids[g][0], grids[g][1], false);
		for (int i = 0; i < p.net->n_params; i++) {
			const struct dn_param *prm = p.net->params[i];
			unsigned char *writers = calloc((size_t)prm->n, 1);
			int64_t wrong = 0;

			for (int rank = 0; rank < grids[g][0]; rank++) {
				int64_t at = 0, n = prm->n, shard_at;

				if (!fsdp_plan_writes(p.plan, prm, DN_VALUE, rank))
					continue;
				if (prm->role == DN_TRAINED)
					fsdp_plan_tensor(p.plan, p.plan->tensor_of_param[i], DN_VALUE, rank, &at, &n, &shard_at);
				for (int64_t e = at; e < at + n; e++)
					writers[e]++;
			}
			for (int64_t e = 0; e < prm->n; e++)
				wrong += writers[e] != 1;
			CHECK_EQ(wrong, 0);
			free(writers);
		}
		planned_fini(&p);
	}
}

static void grids_that_do_not_fit_are_refused(void)
{
	struct fsdp_options o = plan_defaults();
	struct planned p;

	o.strategy = FSDP_HYBRID_FULL;
	o.shards = 3;
	CHECK_FAILS(planned_make(&p, sgd, 4, false, &o), -EINVAL, "shard=3 does not divide a world of 4 ranks; what does: 1, 2");
	planned_fini(&p);
	o.shards = 4;
	CHECK_FAILS(planned_make(&p, sgd, 4, true, &o), -EINVAL, "what fits: 1, 2");
	planned_fini(&p);
	o.shards = 0;
	o.ranks_on_host = 4;
	CHECK_FAILS(planned_make(&p, sgd, 4, true, &o), -EINVAL, "the ranks of a host");
	planned_fini(&p);
	o.strategy = FSDP_FULL;
	o.shards = 2;
	CHECK_FAILS(planned_make(&p, sgd, 4, true, &o), -EINVAL, "is for hybrid strategies");
	planned_fini(&p);
}

/* --- what operations carry --- */

static void a_reduction_that_adds_too_early_or_too_late_is_reported(void)
{
	for (int micro = 0; micro < 2; micro++) {
		struct planned p;

		make(&p, sgd, 2, 0, true);
		for (int i = 0; i < p.plan->step.n_ops; i++) {
			struct fsdp_op *op = &p.plan->step.ops[i];

			if (op->kind != FSDP_REDUCE)
				continue;
			CHECK_EQ(op->acc, op->micro > 0);
			CHECK_EQ(p.plan->calls[op->call].acc, op->acc);
			if (op->micro == micro && op->block == 2)
				op->acc = !op->acc;
		}
		CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL,
			    micro ? "overwrites the sum of earlier microbatches"
				  : "adds to a sum that no microbatch of this step");
		planned_fini(&p);
	}
}

static void operations_share_calls_that_never_change(void)
{
	struct planned p;
	int reduces = 0;

	make(&p, sgd, 2, 0, true);
	for (int i = 0; i < p.plan->step.n_ops; i++) {
		const struct fsdp_op *op = &p.plan->step.ops[i];
		bool calls = op->kind == FSDP_GATHER || op->kind == FSDP_REDUCE || op->kind == FSDP_STATS;

		CU_ASSERT((op->call >= 0) == calls);
		if (!calls)
			continue;
		CHECK_EQ(p.plan->calls[op->call].kind, op->kind);
		CHECK_EQ(p.plan->lanes[p.plan->calls[op->call].lane].queue, op->queue);
		CHECK_EQ(p.plan->calls[op->call].block, op->block);
		CHECK_EQ(p.plan->lanes[p.plan->calls[op->call].lane].group.size, 2);
		reduces += op->kind == FSDP_REDUCE;
	}
	CHECK_EQ(reduces, 3 * 6);
	CHECK_EQ(p.plan->n_calls, 6 + 2 * 6 + 1); /* gathers, reductions that overwrite and that add, statistics */
	planned_fini(&p);
}

/* --- room --- */

static void room_in_queues_and_events_is_planned_and_proven(void)
{
	struct planned p;

	make(&p, sgd, 2, 0, true);
	for (int q = 0; q < FSDP_QUEUES; q++) {
		int room = p.plan->queue_entries[q];

		CU_ASSERT((room > 0) == (q != FSDP_EXCHANGEQ));
		if (!room)
			continue;
		p.plan->queue_entries[q] = room / 8;
		CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL, "entries in flight");
		p.plan->queue_entries[q] = room;
	}
	for (int i = 0; i < p.plan->step.n_ops; i++) {
		int e = p.plan->step.ops[i].records, room = p.plan->event_records[e];

		CU_ASSERT(room > 0);
		if (p.plan->step.ops[i].kind == FSDP_UPDATE) /* once a step: three windows later the last one is over */
			continue;
		p.plan->event_records[e] = 1;
		CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL, "records in flight");
		p.plan->event_records[e] = room;
	}
	CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
	planned_fini(&p);
}

static void a_host_that_never_waits_is_reported(void)
{
	struct planned p;

	make(&p, sgd, 2, 0, true);
	CHECK_EQ(p.plan->step.ops[0].window, true);
	for (int i = 0; i < p.plan->step.n_ops; i++)
		p.plan->step.ops[i].window = false;
	CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL, "in flight");
	planned_fini(&p);
}

/* more microbatches make a step longer, not what is in flight of it */
static void room_does_not_grow_with_the_microbatches(void)
{
	static const char few[] = NET_HEAD("2") NORMED, many[] = NET_HEAD("60") NORMED;
	struct planned a, b;

	make(&a, few, 2, 0, true);
	make(&b, many, 2, 0, true);
	for (int q = 0; q < FSDP_QUEUES; q++)
		CU_ASSERT(b.plan->queue_entries[q] <= a.plan->queue_entries[q] + FSDP_WINDOWS * 6);
	CHECK_OK(fsdp_plan_check(b.plan, NULL, NULL));
	planned_fini(&a);
	planned_fini(&b);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = { CASE(parts_of_all_blocks_fill_their_regions_once),
					   CASE(windows_are_the_regions_that_other_ranks_read),
					   CASE(states_lie_in_planes),
					   CASE(buffers_lie_behind_one_another),
					   CASE(states_that_share_a_byte_are_reported),
					   CASE(shards_are_those_of_a_group_not_of_the_world),
					   CASE(of_the_ranks_that_own_an_interval_one_writes_it),
					   CASE(grids_that_do_not_fit_are_refused),
					   CASE(a_reduction_that_adds_too_early_or_too_late_is_reported),
					   CASE(operations_share_calls_that_never_change),
					   CASE(room_in_queues_and_events_is_planned_and_proven),
					   CASE(a_host_that_never_waits_is_reported),
					   CASE(room_does_not_grow_with_the_microbatches),
					   { NULL, NULL } };

int main(void)
{
	return check_run("fsdp/plan_places", cases);
}
