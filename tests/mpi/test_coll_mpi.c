/* Channels and collectives over MPI, at any number of ranks: against naive results, and messages of unequal size. */
#include <errno.h>
#include <mpi.h>
#include <string.h>
#include "../check.h"
#include "comm/collective.h"

static int rank, world;
static struct dn_device *dev;
static struct dn_stream *st;
static struct fsdp_channel *ch;

/* a number that depends on both and on nothing else */
static float value(int r, int64_t i)
{
	return (float)((r + 1) * 1000003 % 97) / 7 + (float)(i * 7919 % 10007) / 13;
}

static int run_task(const struct dn_task *t)
{
	int err = dev->be->stream_submit(st, t);

	return err ? err : dev->be->stream_sync(st);
}

static struct fsdp_coll *open_coll(int64_t most, size_t piece, void *staging)
{
	const struct fsdp_coll_setup s = {
		.ch = ch, .dev = dev, .st = st, .host_access = true, .piece_bytes = piece, .most = most, .device = staging
	};
	struct fsdp_coll *c = NULL;

	CHECK_OK_FATAL(fsdp_coll_channels.open(&c, &s));
	return c;
}

static void gather_of(int64_t len)
{
	struct fsdp_coll *c = open_coll(len, 0, NULL);
	float *shard = malloc((size_t)len * 4 + 4), *slot = malloc((size_t)(len * world) * 4 + 4);
	struct fsdp_count count = { 0 };
	const struct fsdp_gather a = {
		.shard = shard, .slot = slot, .n = len, .type = DN_F32, .count = &count, .label = "gather of block b"
	};
	struct dn_task t;
	int64_t wrong = 0;

	CU_ASSERT_FATAL(shard && slot);
	for (int64_t i = 0; i < len; i++)
		shard[i] = value(rank, i);
	CHECK_OK(c->ops->gather(c, &a, &t));
	CHECK_OK(run_task(&t));
	for (int q = 0; q < world; q++)
		for (int64_t i = 0; i < len; i++)
			wrong += slot[q * len + i] != value(q, i);
	CHECK_EQ(wrong, 0);
	CHECK_EQ(count.bytes, (world - 1) * len * 4);
	CHECK_EQ(count.calls, 1);
	c->ops->close(c);
	free(shard);
	free(slot);
}

static void gather_brings_every_shard(void)
{
	gather_of(1);
	gather_of(16);
	gather_of(100003);
}

static void gather_of_more_than_one_message_is_whole(void)
{
	if (world <= 2)
		gather_of((int64_t)FSDP_MESSAGE_MAX / 4 + 1000);
}

static float tree(const float *x, int n)
{
	int half = 1;

	if (n == 1)
		return x[0];
	while (half * 2 < n)
		half *= 2;
	return tree(x, half) + tree(x + half, n - half);
}

static void reduce_is_the_tree_sum(void)
{
	static const int64_t lens[] = { 1, 4096, 300001 }; /* pieces of 64 KiB: one, one, many and a short one */
	const size_t piece = 65536;

	for (int k = 0; k < 3; k++) {
		struct fsdp_coll *c;
		struct fsdp_reduce a = { .n = lens[k], .type = DN_F32, .label = "reduce of block b" };
		struct dn_task t;
		int64_t len = lens[k], wrong = 0;
		float *in = malloc((size_t)(len * world) * 4), *out = malloc((size_t)len * 4), x[64];
		float *staging = malloc(2 * (size_t)world * piece);

		CU_ASSERT_FATAL(in && out && staging && world <= 64);
		for (int64_t i = 0; i < len * world; i++)
			in[i] = value(rank, i);
		c = open_coll(len, piece, staging);
		a.in = in;
		a.out = out;
		CHECK_OK(c->ops->reduce(c, &a, &t));
		CHECK_OK(run_task(&t));
		for (int64_t i = 0; i < len; i++) {
			for (int q = 0; q < world; q++)
				x[q] = value(q, rank * len + i);
			wrong += out[i] != tree(x, world);
		}
		CHECK_EQ(wrong, 0);
		c->ops->close(c);
		free(in);
		free(out);
		free(staging);
	}
}

/* rank 0 sends @sent bytes to rank 1, which waits for 400 */
static void unequal(size_t sent)
{
	char x[800] = { 0 };
	struct fsdp_request q = { { 0, 0 }, false };
	bool done = false;
	int err = 0;

	if (rank == 0)
		err = ch->ops->send(ch, 1, x, sent, &q);
	else if (rank == 1)
		err = ch->ops->recv(ch, 0, x, 400, &q);
	while (rank < 2 && !err && !done)
		err = ch->ops->test(ch, &q, &done);
	if (rank == 1) {
		CHECK_EQ(err, -EPROTO);
		CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), sent < 400 ? "rank 0 sends 200 bytes, rank 1 waits for 400"
								       : "rank 0 sends more bytes than rank 1 waits for"));
	}
}

static void message_of_another_size_is_an_error(void)
{
	if (world < 2)
		return;
	unequal(200);
	unequal(800);
}

static const struct check_case cases[] = { { "gather_brings_every_shard", gather_brings_every_shard },
					   { "gather_of_more_than_one_message_is_whole",
					     gather_of_more_than_one_message_is_whole },
					   { "reduce_is_the_tree_sum", reduce_is_the_tree_sum },
					   { "message_of_another_size_is_an_error", message_of_another_size_is_an_error },
					   { NULL, NULL } };

int main(int argc, char **argv)
{
	int given, status;

	if (MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &given) != MPI_SUCCESS || given < MPI_THREAD_SERIALIZED)
		return 2;
	if (fsdp_mpi_channel(&ch) || dn_backend_find("ref")->open(DN_CPU(1), &dev) ||
	    dev->be->stream_create(dev, DN_STREAM_COMM, "test", 64, &st)) {
		fprintf(stderr, "%s\n", dn_message());
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	dev->be->set_timeout(dev, 60000);
	rank = ch->rank;
	world = ch->world;
	status = check_run("coll mpi", cases);
	dev->be->stream_destroy(st);
	dev->be->close(dev);
	ch->ops->destroy(ch);
	if (MPI_Finalize() != MPI_SUCCESS)
		status = 2;
	return status;
}
