/* Speed of the collectives of the ranks of one host, by every table that there is, against MPI's own: mpirun -n N collectives
 *
 * Keys: bytes= (67108864, of a block; a shard is an N-th of it), runs= (15). A run does each in turn, after a barrier, so that a slow
 * moment of the machine falls on all; its time is that of the slowest rank, and medians are printed, one line a collective:
 *   bench: shm gather ranks=2 bytes=67108864 gbps=... mpi_gbps=... ratio=... best_ratio=...
 * gbps counts the bytes of the block. ratio: how many times as fast as MPI_Allgather in place, MPI_Reduce_scatter_block; best_ratio:
 * the same of the fastest runs, which other programs on the machine disturb least.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective.h"
#include "comm/mesh.h"

#define RUNS_MAX 99

enum { GATHER, REDUCE, N_WHAT };
enum { SHM, CHANNELS, LIBRARY, N_BY };

static const char *const what_names[N_WHAT] = { "gather", "reduce" };
static const char *const by_names[N_BY] = { "shm", "channels", "mpi" };

struct bench {
	struct fsdp_mesh *mesh;
	struct dn_device *dev;
	struct dn_stream *st[N_BY];
	struct fsdp_coll *coll[N_BY][N_WHAT];
	struct dn_task task[N_BY][N_WHAT];
	void *staging;
	int64_t n; /* elements of a shard */
	float *shard, *grads, *slot, *sum;
	int runs;
	double seconds[N_BY][N_WHAT][RUNS_MAX];
};

static void die(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, dn_message());
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static void must(int err, const char *what)
{
	if (err)
		die(what);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *x, int n)
{
	qsort(x, (size_t)n, sizeof(*x), by_value);
	return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static void open_memory(struct bench *b, size_t bytes)
{
	struct fsdp_windows_ask ask = { .ranks_on_host = b->mesh->ranks_on_host };
	int world = b->mesh->world;

	b->n = (int64_t)(bytes / sizeof(float)) / world;
	bytes = (size_t)b->n * sizeof(float);
	ask.region[DN_MEM_PARAMS] = bytes;
	ask.region[DN_MEM_GRAD_SLOTS] = bytes * (size_t)world;
	must(fsdp_windows_open(&b->mesh->windows, &b->mesh->control, &ask), "windows");
	b->shard = fsdp_windows_region(b->mesh->windows, DN_MEM_PARAMS, ask.region[DN_MEM_PARAMS]);
	b->grads = fsdp_windows_region(b->mesh->windows, DN_MEM_GRAD_SLOTS, ask.region[DN_MEM_GRAD_SLOTS]);
	b->slot = dn_alloc_region(DN_MEM_PARAM_SLOTS, bytes * (size_t)world);
	b->sum = dn_alloc_region(DN_MEM_GRADS, bytes);
	b->staging = dn_alloc_region(DN_MEM_STAGING, 2 * (size_t)world * FSDP_PIECE_BYTES);
	if (!b->shard || !b->grads || !b->slot || !b->sum || !b->staging)
		die("memory");
	for (int64_t i = 0; i < b->n; i++)
		b->shard[i] = (float)(i % 1000) + (float)b->mesh->rank;
	for (int64_t i = 0; i < b->n * world; i++)
		b->grads[i] = (float)(i % 1000) - (float)b->mesh->rank;
}

static void open_ours(struct bench *b)
{
	const struct fsdp_coll_ops *const tables[] = { [SHM] = &fsdp_coll_shm, [CHANNELS] = &fsdp_coll_channels };

	for (int by = SHM; by <= CHANNELS; by++) {
		const struct fsdp_gather g = { .shard = b->shard, .slot = b->slot, .n = b->n, .type = DN_F32, .label = "gather" };
		const struct fsdp_reduce r = { .in = b->grads, .out = b->sum, .n = b->n, .type = DN_F32, .label = "reduce" };
		struct fsdp_coll_setup s = { .dev = b->dev,
					     .host_access = true,
					     .piece_bytes = FSDP_PIECE_BYTES,
					     .most = b->n,
					     .device = b->staging,
					     .windows = b->mesh->windows };

		must(b->dev->be->stream_create(b->dev, DN_STREAM_COMM, by_names[by], 8, &b->st[by]), "stream");
		s.st = b->st[by];
		for (int what = 0; what < N_WHAT; what++) {
			s.ch = b->mesh->channels[what];
			s.lane = what;
			must(tables[by]->open(&b->coll[by][what], &s), "collectives");
		}
		must(tables[by]->gather(b->coll[by][GATHER], &g, &b->task[by][GATHER]), "gather");
		must(tables[by]->reduce(b->coll[by][REDUCE], &r, &b->task[by][REDUCE]), "reduce");
	}
}

static void once(struct bench *b, int by, int what)
{
	int rc = MPI_SUCCESS;

	if (by != LIBRARY) {
		must(b->dev->be->stream_submit(b->st[by], &b->task[by][what]), "submit");
		must(b->dev->be->stream_sync(b->st[by]), "collective");
	} else if (what == GATHER) {
		rc = MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b->slot, (int)b->n, MPI_FLOAT, MPI_COMM_WORLD);
	} else {
		rc = MPI_Reduce_scatter_block(b->grads, b->sum, (int)b->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	}
	must(rc == MPI_SUCCESS ? 0 : -1, "MPI");
}

/* the sums of whole numbers are exact, so every way must give the same */
static void check(const struct bench *b, int by, int what)
{
	int world = b->mesh->world, at = b->mesh->rank;
	int64_t wrong = 0;

	for (int64_t i = 0; what == REDUCE && i < b->n; i++)
		wrong += b->sum[i] != (float)((at * b->n + i) % 1000 * world - world * (world - 1) / 2);
	for (int64_t i = 0; what == GATHER && i < b->n * world; i++)
		wrong += b->slot[i] != (float)(i % b->n % 1000 + i / b->n);
	if (!wrong)
		return;
	fprintf(stderr, "bench: %s %s: %lld elements are wrong\n", by_names[by], what_names[what], (long long)wrong);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void run(struct bench *b)
{
	for (int k = -1; k < b->runs; k++) /* the first one touches memory and is not counted */
		for (int what = 0; what < N_WHAT; what++)
			for (int by = 0; by < N_BY; by++) {
				double from, took, slowest = 0;

				MPI_Barrier(MPI_COMM_WORLD);
				from = MPI_Wtime();
				once(b, by, what);
				took = MPI_Wtime() - from;
				MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
				if (k < 0)
					check(b, by, what);
				else
					b->seconds[by][what][k] = slowest;
			}
}

static void print(struct bench *b)
{
	double bytes = (double)b->n * sizeof(float) * b->mesh->world;

	for (int by = 0; by < LIBRARY; by++)
		for (int what = 0; what < N_WHAT; what++) {
			double ours = median(b->seconds[by][what], b->runs), theirs = median(b->seconds[LIBRARY][what], b->runs);

			printf("bench: %s %s ranks=%d bytes=%.0f gbps=%.2f mpi_gbps=%.2f ratio=%.2f best_ratio=%.2f\n",
			       by_names[by], what_names[what], b->mesh->world, bytes, bytes / ours * 1e-9, bytes / theirs * 1e-9,
			       theirs / ours, b->seconds[LIBRARY][what][0] / b->seconds[by][what][0]);
		}
}

int main(int argc, char **argv)
{
	struct bench b = { .runs = 15 };
	struct fsdp_group all[N_WHAT];
	long long bytes = 64 << 20;

	for (int i = 1; i < argc; i++)
		if (sscanf(argv[i], "bytes=%lld", &bytes) != 1 && sscanf(argv[i], "runs=%d", &b.runs) != 1)
			bytes = 0;
	if (bytes < 4096 || bytes > 1 << 30 || b.runs < 1 || b.runs > RUNS_MAX) {
		fprintf(stderr, "usage: mpirun -n N %s [bytes=N] [runs=N]\n", argv[0]);
		return 2;
	}
	must(fsdp_mesh_create(&b.mesh, FSDP_MPI, 60000, 0), "start");
	for (int what = 0; what < N_WHAT; what++)
		all[what] = (struct fsdp_group){ b.mesh->world, 1 };
	must(fsdp_groups_open(b.mesh, N_WHAT, all), "channels");
	must(dn_backend_find("cpu")->open(DN_CPU(1), &b.dev), "backend");
	open_memory(&b, (size_t)bytes);
	open_ours(&b);
	run(&b);
	if (b.mesh->rank == 0)
		print(&b);
	for (int by = SHM; by <= CHANNELS; by++) {
		b.dev->be->stream_destroy(b.st[by]);
		for (int what = 0; what < N_WHAT; what++)
			b.coll[by][what]->ops->close(b.coll[by][what]);
	}
	b.dev->be->close(b.dev);
	fsdp_mesh_destroy(b.mesh);
	dn_free(b.slot);
	dn_free(b.sum);
	dn_free(b.staging);
	return 0;
}
