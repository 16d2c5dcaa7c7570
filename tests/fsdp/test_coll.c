/* Collectives over channels, each rank a thread: against naive results, and how they fail. */
#include <errno.h>
#include <string.h>
#include "comm/collective.h"
#include "ranks.h"
#include "comm/collective.h"

struct job {
	struct fsdp_hub *hub;
	int world;
	int64_t len;
	bool acc;
	size_t piece;
	int silent; /* rank that does not take part, -1 = none */
	int64_t timeout_ms;
	int err[RANKS_MAX];
	char msg[RANKS_MAX][512];
	float *out[RANKS_MAX];
	pthread_barrier_t end; /* nobody frees what others may still read */
};

static struct dn_device *open_device(int64_t timeout_ms)
{
	struct dn_device *dev = NULL;

	CHECK_OK(dn_backend_find("ref")->open(DN_CPU(1), &dev));
	if (dev && timeout_ms)
		dev->be->set_timeout(dev, timeout_ms);
	return dev;
}

static void job_init(struct job *j, int world, int64_t len)
{
	memset(j, 0, sizeof(*j));
	j->world = world;
	j->len = len;
	j->silent = -1;
	j->timeout_ms = 20000;
	j->piece = 64;
	CHECK_OK_FATAL(fsdp_hub_create(&j->hub, world));
	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&j->end, NULL, (unsigned)world), 0);
}

static void job_fini(struct job *j)
{
	pthread_barrier_destroy(&j->end);
	fsdp_hub_destroy(j->hub);
	for (int r = 0; r < j->world; r++)
		free(j->out[r]);
}

static void keep(struct job *j, int rank, int err)
{
	j->err[rank] = err;
	snprintf(j->msg[rank], sizeof(j->msg[rank]), "%s", err ? dn_message() : "");
}

static int run_task(struct dn_device *dev, struct dn_stream *st, const struct dn_task *t)
{
	int err = dev->be->stream_submit(st, t);

	return err ? err : dev->be->stream_sync(st);
}

struct bench { /* one rank's collective of one kind */
	struct dn_device *dev;
	struct dn_stream *st;
	struct fsdp_channel *ch;
	struct fsdp_coll *coll;
	struct fsdp_count count;
};

static void bench_open(struct bench *b, struct job *j, int rank, const char *queue, void *staging)
{
	struct fsdp_coll_setup s = { .host_access = true, .piece_bytes = j->piece, .most = j->len, .device = staging };

	memset(b, 0, sizeof(*b));
	b->dev = open_device(j->timeout_ms);
	CHECK_OK(fsdp_local_channel(j->hub, rank, 0, &b->ch));
	CHECK_OK(b->dev->be->stream_create(b->dev, DN_STREAM_COMM, queue, 16, &b->st));
	s.ch = b->ch;
	s.dev = b->dev;
	s.st = b->st;
	CHECK_OK(fsdp_coll_channels.open(&b->coll, &s));
}

static void bench_close(struct bench *b)
{
	b->dev->be->stream_destroy(b->st);
	b->coll->ops->close(b->coll);
	b->ch->ops->destroy(b->ch);
	b->dev->be->close(b->dev);
}

static void gather_rank(int rank, void *arg)
{
	struct job *j = arg;
	float *shard = malloc((size_t)j->len * sizeof(float) + 4);
	struct fsdp_gather a = { .n = j->len, .type = DN_F32, .label = "gather of block b" };
	struct dn_task t;
	struct bench b;

	j->out[rank] = malloc((size_t)j->len * (size_t)j->world * sizeof(float) + 4);
	for (int64_t i = 0; i < j->len; i++)
		shard[i] = noise((uint64_t)rank, (uint64_t)i);
	bench_open(&b, j, rank, "gather", NULL);
	a.shard = shard;
	a.slot = j->out[rank];
	a.count = &b.count;
	CHECK_OK(b.coll->ops->gather(b.coll, &a, &t));
	if (rank != j->silent)
		keep(j, rank, run_task(b.dev, b.st, &t));
	if (rank != j->silent && !j->err[rank])
		CHECK_EQ(b.count.bytes, (j->world - 1) * j->len * 4);
	pthread_barrier_wait(&j->end);
	bench_close(&b);
	free(shard);
}

static void t2_gather_brings_every_shard_to_every_rank(void)
{
	static const int64_t lens[] = { 0, 1, 16, 1000, 4099 };

	for (int world = 1; world <= 4; world++)
		for (int k = 0; k < 5; k++) {
			struct job j;

			job_init(&j, world, lens[k]);
			ranks_run(world, gather_rank, &j);
			for (int r = 0; r < world; r++) {
				CHECK_EQ(j.err[r], 0);
				for (int q = 0; q < world; q++)
					for (int64_t i = 0; i < lens[k]; i++)
						if (j.out[r][q * lens[k] + i] != noise((uint64_t)q, (uint64_t)i)) {
							CU_FAIL("a gathered element differs");
							i = lens[k];
						}
			}
			job_fini(&j);
		}
}

static float in_of(int rank, int64_t i)
{
	return noise((uint64_t)rank + 10, (uint64_t)i);
}

/* the fixed tree of the rule: split at the largest power of two below the count */
static float tree(const float *x, int n)
{
	int half = 1;

	if (n == 1)
		return x[0];
	while (half * 2 < n)
		half *= 2;
	return tree(x, half) + tree(x + half, n - half);
}

static void reduce_rank(int rank, void *arg)
{
	struct job *j = arg;
	int64_t all = j->len * j->world;
	float *in = malloc((size_t)all * sizeof(float) + 4);
	float *staging = malloc(2 * (size_t)j->world * j->piece);
	struct fsdp_reduce a = { .n = j->len, .type = DN_F32, .acc = j->acc, .label = "reduce of block b" };
	struct dn_task t;
	struct bench b;

	j->out[rank] = malloc((size_t)j->len * sizeof(float) + 4);
	for (int64_t i = 0; i < all; i++)
		in[i] = in_of(rank, i);
	for (int64_t i = 0; i < j->len; i++)
		j->out[rank][i] = 5;
	bench_open(&b, j, rank, "reduce", staging);
	a.in = in;
	a.out = j->out[rank];
	a.count = &b.count;
	CHECK_OK(b.coll->ops->reduce(b.coll, &a, &t));
	if (rank != j->silent)
		keep(j, rank, run_task(b.dev, b.st, &t));
	if (rank != j->silent && !j->err[rank])
		CHECK_EQ(b.count.bytes, (j->world - 1) * j->len * 4);
	pthread_barrier_wait(&j->end);
	bench_close(&b);
	free(in);
	free(staging);
}

static void t2_reduce_is_the_tree_sum_over_ranks_bit_for_bit(void)
{
	static const int64_t lens[] = { 1, 16, 17, 333 }; /* pieces of 16 floats: one, two, many, a short last one */

	for (int world = 1; world <= 4; world++)
		for (int k = 0; k < 8; k++) {
			struct job j;
			int64_t len = lens[k / 2];

			job_init(&j, world, len);
			j.acc = k % 2;
			ranks_run(world, reduce_rank, &j);
			for (int r = 0; r < world; r++) {
				float want[333], x[RANKS_MAX];

				CHECK_EQ(j.err[r], 0);
				for (int64_t i = 0; i < len; i++) {
					for (int q = 0; q < world; q++)
						x[q] = in_of(q, r * len + i);
					want[i] = tree(x, world);
					if (j.acc)
						want[i] = 5 + want[i];
				}
				CHECK_BITS(j.out[r], want, (size_t)len * sizeof(float));
			}
			job_fini(&j);
		}
}

static void t36_late_rank_is_named_by_all_others(void)
{
	for (int world = 2; world <= 4; world++)
		for (int k = 0; k < 2; k++) {
			struct job j;
			char want[64];

			job_init(&j, world, 100);
			j.silent = world - 1 - k;
			j.timeout_ms = 100;
			ranks_run(world, k ? gather_rank : reduce_rank, &j);
			snprintf(want, sizeof(want), ": waiting for rank %d", j.silent);
			for (int r = 0; r < world; r++) {
				if (r == j.silent)
					continue;
				CHECK_EQ(j.err[r], DN_EPEER_LATE);
				CU_ASSERT(dn_starts(j.msg[r], k ? "gather of block b: waited " : "reduce of block b: waited "));
				CU_ASSERT(dn_ends(j.msg[r], want));
			}
			job_fini(&j);
		}
}

static void sizes_rank(int rank, void *arg)
{
	struct job *j = arg;
	struct fsdp_channel *ch = NULL;
	struct fsdp_request q = { { 0, 0 }, false };
	float x[8] = { 0 };
	bool done = false;
	int err;

	CHECK_OK(fsdp_local_channel(j->hub, rank, 0, &ch));
	err = rank ? ch->ops->recv(ch, 0, x, 20, &q) : ch->ops->send(ch, 1, x, 16, &q);
	while (!err && !done)
		err = ch->ops->test(ch, &q, &done);
	keep(j, rank, err);
	pthread_barrier_wait(&j->end);
	ch->ops->destroy(ch);
}

static void message_of_another_size_is_an_error_naming_both_ranks(void)
{
	struct job j;

	job_init(&j, 2, 0);
	ranks_run(2, sizes_rank, &j);
	for (int r = 0; r < 2; r++) {
		CHECK_EQ(j.err[r], -EPROTO);
		CHECK_STR(j.msg[r], "rank 0 sends 16 bytes, rank 1 waits for 20");
	}
	job_fini(&j);
}

/* --- control --- */

static void control_rank(int rank, void *arg)
{
	struct job *j = arg;
	struct fsdp_mesh *m = NULL;
	struct dn_group g;
	struct dn_item same[2] = { { "cfg", "a" }, { "seed", rank == 1 ? "7" : "0" } };
	double x[3] = { 0.1 * (rank + 1), rank, 1e300 };
	size_t sizes[RANKS_MAX];
	char text[16], *all = NULL;
	int err;

	CHECK_OK(fsdp_mesh_create_local(&m, j->hub, rank, 5000));
	fsdp_mesh_group(m, &g);
	CHECK_EQ(g.rank, rank);
	CHECK_EQ(g.world, j->world);

	CHECK_OK(dn_group_agree(&g, 0, "one"));
	err = rank >= 1 ? dn_fail(-ENOSPC, "disk of %d is full", rank) : 0;
	err = dn_group_agree(&g, err, "two");
	CHECK_EQ(err, -ENOSPC);
	CHECK_STR(dn_message(), "rank 1: disk of 1 is full");
	CHECK_EQ(m->control.agreed, -ENOSPC);
	err = dn_group_agree(&g, err, "again");
	CHECK_STR(dn_message(), "rank 1: disk of 1 is full");

	CHECK_OK(dn_group_sum(&g, x, 3));
	{
		double a = 0.1, b = 0;

		for (int q = 1; q < j->world; q++) {
			a += 0.1 * (q + 1);
			b += q;
		}
		CU_ASSERT(x[0] == a && x[1] == b);
	}
	CHECK_FAILS(dn_group_compare(&g, same, 2), -EINVAL, "rank 1: seed is 7, rank 0 has 0");
	CHECK_OK(dn_group_compare(&g, same, 1));

	snprintf(text, sizeof(text), "%.*s", rank, "abcdef");
	CHECK_OK(dn_group_gather(&g, text, strlen(text), &all, sizes));
	if (rank == 0) {
		const char *want[] = { "", "", "a", "aab", "aababc" };

		CHECK_STR(all, want[j->world]);
		for (int q = 0; q < j->world; q++)
			CHECK_EQ(sizes[q], q);
	} else {
		CU_ASSERT_PTR_NULL(all);
	}
	dn_free(all);
	pthread_barrier_wait(&j->end);
	fsdp_mesh_destroy(m);
}

static void control_operations_give_the_same_on_all_ranks(void)
{
	for (int world = 2; world <= 4; world++) {
		struct job j;

		job_init(&j, world, 0);
		ranks_run(world, control_rank, &j);
		job_fini(&j);
	}
}

static void control_late_rank(int rank, void *arg)
{
	struct job *j = arg;
	struct fsdp_mesh *m = NULL;
	struct dn_device *dev = open_device(j->timeout_ms);
	struct dn_group g;
	char want[128];

	CHECK_OK(fsdp_mesh_create_local(&m, j->hub, rank, j->timeout_ms));
	fsdp_mesh_group(m, &g);
	if (j->acc) /* on the device's progress thread */
		CHECK_OK(fsdp_control_attach(&m->control, dev));
	if (rank != j->silent) {
		int err = dn_fail(-EIO, "own trouble");

		snprintf(want, sizeof(want), ": waiting for rank %d", j->silent);
		CHECK_EQ(dn_group_agree(&g, 0, "save: agreement"), DN_EPEER_LATE);
		CU_ASSERT(dn_starts(dn_message(), "save: agreement: waited ") && dn_ends(dn_message(), want));
		CHECK_EQ(m->control.agreed, 0);
		if (j->acc) {
			err = dn_fail(err, "own trouble");
			CHECK_FAILS(dn_group_agree(&g, err, "again"), -EIO, "own trouble");
		}
	}
	pthread_barrier_wait(&j->end);
	fsdp_mesh_destroy(m);
	dev->be->close(dev);
}

static void agreement_names_the_late_rank(void)
{
	for (int k = 0; k < 6; k++) {
		struct job j;

		job_init(&j, 3, 0);
		j.silent = k % 3;
		j.acc = k >= 3;
		j.timeout_ms = 100;
		ranks_run(3, control_late_rank, &j);
		job_fini(&j);
	}
}

static void t36_left_rank_ends_the_others_at_once(void)
{
	struct job j;
	struct bench b;
	struct fsdp_channel *other = NULL;
	float shard[4] = { 0 }, slot[8];
	const struct fsdp_gather a = { .shard = shard, .slot = slot, .n = 4, .type = DN_F32, .label = "gather of block b" };
	struct dn_task t;
	bool done;

	job_init(&j, 2, 4);
	bench_open(&b, &j, 0, "gather", NULL);
	CHECK_OK(fsdp_local_channel(j.hub, 1, 0, &other));
	CHECK_OK(b.coll->ops->gather(b.coll, &a, &t));
	CHECK_OK(t.start(t.arg));
	CHECK_OK(t.poll(t.arg, &done));
	CU_ASSERT_FALSE(done);
	other->ops->destroy(other);
	CHECK_FAILS(t.poll(t.arg, &done), DN_EPEER_LOST, "rank 1 has left");
	bench_close(&b);
	job_fini(&j);
}

static const struct check_case cases[] = {
	{ "t2_gather_brings_every_shard_to_every_rank", t2_gather_brings_every_shard_to_every_rank },
	{ "t2_reduce_is_the_tree_sum_over_ranks_bit_for_bit", t2_reduce_is_the_tree_sum_over_ranks_bit_for_bit },
	{ "t36_late_rank_is_named_by_all_others", t36_late_rank_is_named_by_all_others },
	{ "message_of_another_size_is_an_error_naming_both_ranks", message_of_another_size_is_an_error_naming_both_ranks },
	{ "control_operations_give_the_same_on_all_ranks", control_operations_give_the_same_on_all_ranks },
	{ "agreement_names_the_late_rank", agreement_names_the_late_rank },
	{ "t36_left_rank_ends_the_others_at_once", t36_left_rank_ends_the_others_at_once },
	{ NULL, NULL }
};

int main(void)
{
	return check_run("fsdp coll", cases);
}
