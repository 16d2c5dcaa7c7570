/* Formats on the wire around collectives, each rank a thread: T37 of 16 bits. Over channels, over channels that reach memory of the
 * host only, and over windows, against naive results in which every rank's part is rounded once.
 */
#include <errno.h>
#include <string.h>
#include "comm/format.h"
#include "ranks.h"

#define SPAN 4099
#define FENCE 1234.5f

enum by { CHANNELS, HOST, WINDOWS, WAYS };

struct job {
	struct fsdp_hub *hub;
	enum by by;
	int world;
	int64_t len;
	enum dn_type type;
	bool acc, zeros;
	int rounds;
	int other; /* rank that has another type, -1 = none */
	int err[RANKS_MAX];
	char msg[RANKS_MAX][512];
	int64_t wrong[RANKS_MAX];
	pthread_barrier_t end;
};

struct bench { /* one rank */
	struct job *j;
	int rank;
	struct fsdp_mesh *mesh;
	struct dn_device *dev;
	struct dn_stream *st[2];
	struct fsdp_channel *ch[2];
	struct fsdp_coll *coll[2];
	struct fsdp_format *format[2];
	struct fsdp_count count;
	void *staging, *host;
	float *slot, *grads; /* with a fence behind */
	float *shard, *out;
	struct dn_task gather, reduce;
};

static float value(const struct job *j, int rank, int round, int64_t i)
{
	return j->zeros ? 0 : noise((uint64_t)(rank + 10 * round), (uint64_t)i);
}

static float rounded(enum dn_type type, float x)
{
	const struct dn_backend *ref = dn_backend_find("ref");
	uint16_t h;

	if (type == DN_F32)
		return x;
	CHECK_OK(ref->narrow(NULL, type, 1, &x, &h));
	CHECK_OK(ref->widen(NULL, type, 1, &h, &x));
	return x;
}

static enum dn_type type_of(const struct bench *b)
{
	return b->rank != b->j->other ? b->j->type : b->j->type == DN_F32 ? DN_BF16 : DN_F32;
}

/* the parts of a rank's memory that others read are in windows, where there are some */
static void take_memory(struct bench *b)
{
	const size_t all = (size_t)b->j->world * SPAN + 1, bytes = all * sizeof(float);
	struct fsdp_windows_ask ask = { .ranks_on_host = b->j->world };

	b->shard = calloc(SPAN, sizeof(float));
	b->out = calloc(SPAN, sizeof(float));
	if (b->j->by == WINDOWS) {
		ask.region[DN_MEM_PARAMS] = SPAN * sizeof(float);
		ask.region[DN_MEM_PARAM_SLOTS] = ask.region[DN_MEM_GRAD_SLOTS] = bytes;
		CHECK_OK_FATAL(fsdp_windows_open(&b->mesh->windows, &b->mesh->control, &ask));
		b->slot = fsdp_windows_region(b->mesh->windows, DN_MEM_PARAM_SLOTS, bytes);
		b->grads = fsdp_windows_region(b->mesh->windows, DN_MEM_GRAD_SLOTS, bytes);
		free(b->shard);
		b->shard = fsdp_windows_region(b->mesh->windows, DN_MEM_PARAMS, SPAN * sizeof(float));
	} else {
		b->slot = calloc(all, sizeof(float));
		b->grads = calloc(all, sizeof(float));
	}
	CU_ASSERT_FATAL(b->slot && b->grads && b->shard && b->out);
}

static void open_coll(struct bench *b, int k)
{
	const size_t part = (size_t)(b->j->len ? b->j->len : 16) * dn_type_bytes(type_of(b));
	const struct fsdp_coll_needs needs = {
		.size = b->j->world, .gather_bytes = part, .reduce_bytes = part, .host_access = b->j->by != HOST
	};
	struct fsdp_coll_memory m;
	struct fsdp_coll_setup s = { .ch = b->ch[k],
				     .dev = b->dev,
				     .st = b->st[k],
				     .host_access = b->j->by != HOST,
				     .most = SPAN,
				     .windows = b->mesh->windows,
				     .lane = k };
	const struct fsdp_coll_ops *ops = b->j->by == WINDOWS ? &fsdp_coll_shm : &fsdp_coll_channels;

	CHECK_OK_FATAL(ops->memory(&needs, &m));
	s.piece_bytes = m.piece_bytes;
	s.gather_piece_bytes = m.gather_piece_bytes;
	if (!b->staging) { /* one operation at a time runs here */
		b->staging = malloc(m.device + 1);
		b->host = malloc(m.host + 1);
	}
	s.device = b->staging;
	s.host = b->host;
	CHECK_OK_FATAL(ops->open(&b->coll[k], &s));
	CHECK_OK_FATAL(fsdp_format_open(&b->format[k], b->coll[k]));
}

static void prepare(struct bench *b)
{
	const struct fsdp_gather g = {
		.shard = b->shard, .slot = b->slot, .n = b->j->len, .count = &b->count, .label = "gather of block b"
	};
	const struct fsdp_reduce r = {
		.in = b->grads, .out = b->out, .n = b->j->len, .acc = b->j->acc, .count = &b->count, .label = "reduce of block b"
	};

	CHECK_OK_FATAL(fsdp_format_gather(b->format[0], type_of(b), &g, &b->gather));
	CHECK_OK_FATAL(fsdp_format_reduce(b->format[1], type_of(b), &r, b->grads, &b->reduce));
}

static void bench_open(struct bench *b, struct job *j, int rank)
{
	b->j = j;
	b->rank = rank;
	CHECK_OK_FATAL(fsdp_mesh_create_local(&b->mesh, j->hub, rank, 20000));
	CHECK_OK_FATAL(dn_backend_find("cpu")->open(DN_CPU(1), &b->dev));
	b->dev->be->set_timeout(b->dev, j->other >= 0 ? 2000 : 20000);
	take_memory(b);
	for (int k = 0; k < 2; k++) {
		CHECK_OK_FATAL(fsdp_local_channel(j->hub, rank, 40 + k, &b->ch[k]));
		CHECK_OK_FATAL(b->dev->be->stream_create(b->dev, DN_STREAM_COMM, "wire", 16, &b->st[k]));
		open_coll(b, k);
	}
	prepare(b);
}

static void bench_close(struct bench *b)
{
	for (int k = 0; k < 2; k++) {
		b->dev->be->stream_destroy(b->st[k]);
		fsdp_format_close(b->format[k]);
		b->coll[k]->ops->close(b->coll[k]);
		b->ch[k]->ops->destroy(b->ch[k]);
	}
	b->dev->be->close(b->dev);
	if (b->j->by != WINDOWS) {
		free(b->slot);
		free(b->grads);
		free(b->shard);
	}
	fsdp_mesh_destroy(b->mesh);
	free(b->out);
	free(b->staging);
	free(b->host);
	free(b);
}

static int run_task(struct bench *b, int k, const struct dn_task *t)
{
	int err = b->dev->be->stream_submit(b->st[k], t);

	return err ? err : b->dev->be->stream_sync(b->st[k]);
}

static void fill(struct bench *b, int round)
{
	const struct job *j = b->j;
	const int64_t all = j->world * j->len;

	for (int64_t i = 0; i < j->len; i++) {
		b->shard[i] = value(j, b->rank, round, i);
		b->out[i] = 5;
	}
	for (int64_t i = 0; i < all; i++)
		b->grads[i] = value(j, b->rank, round, i + 7);
	b->slot[all] = b->grads[all] = FENCE;
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

static int64_t wrong(const struct bench *b, int round)
{
	const struct job *j = b->j;
	const int64_t all = j->world * j->len;
	int64_t n = (b->slot[all] != FENCE) + (b->grads[all] != FENCE);

	for (int64_t i = 0; i < all; i++)
		n += b->slot[i] != rounded(j->type, value(j, (int)(i / j->len), round, i % j->len));
	for (int64_t i = 0; i < j->len; i++) {
		float x[RANKS_MAX];

		n += b->shard[i] != value(j, b->rank, round, i); /* what is kept is not rounded */
		for (int q = 0; q < j->world; q++)
			x[q] = rounded(j->type, value(j, q, round, b->rank * j->len + i + 7));
		n += b->out[i] != (j->acc ? 5 + tree(x, j->world) : tree(x, j->world));
	}
	return n;
}

static void rank_main(int rank, void *arg)
{
	struct bench *b = calloc(1, sizeof(*b));
	struct job *j = arg;
	int err = 0;

	bench_open(b, j, rank);
	for (int k = 0; k < j->rounds && !err; k++) {
		fill(b, k);
		err = run_task(b, 0, &b->gather);
		if (!err)
			err = run_task(b, 1, &b->reduce);
		if (!err)
			j->wrong[rank] += wrong(b, k);
	}
	j->err[rank] = err;
	snprintf(j->msg[rank], sizeof(j->msg[rank]), "%s", err ? dn_message() : "");
	if (!err)
		CHECK_EQ(b->count.bytes, 2 * j->rounds * (j->world - 1) * j->len * (int64_t)dn_type_bytes(j->type));
	pthread_barrier_wait(&j->end);
	bench_close(b);
}

static void run(struct job *j)
{
	CHECK_OK_FATAL(fsdp_hub_create(&j->hub, j->world));
	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&j->end, NULL, (unsigned)j->world), 0);
	ranks_run(j->world, rank_main, j);
	pthread_barrier_destroy(&j->end);
	fsdp_hub_destroy(j->hub);
}

static void runs_well(struct job *j)
{
	run(j);
	for (int r = 0; r < j->world; r++) {
		if (j->err[r] || j->wrong[r])
			fprintf(stderr, "way %d, %d ranks of %lld %s, rank %d: %lld wrong, %s\n", j->by, j->world,
				(long long)j->len, dn_type_name(j->type), r, (long long)j->wrong[r], j->msg[r]);
		CHECK_EQ(j->err[r], 0);
		CHECK_EQ(j->wrong[r], 0);
	}
}

static const enum dn_type types[] = { DN_F32, DN_BF16, DN_F16 };

static void T37_round_trips_of_16_bits(void)
{
	static const int64_t lens[] = { 1, 16, 1000, SPAN };

	for (int by = 0; by < WAYS; by++)
		for (int world = 1; world <= 4; world++)
			for (int k = 0; k < 12; k++) {
				struct job j = { .by = by,
						 .world = world,
						 .len = lens[k / 3],
						 .type = types[k % 3],
						 .acc = world % 2,
						 .rounds = 3,
						 .other = -1 };

				runs_well(&j);
			}
}

static void T37_empty_shards_and_all_zero_tensors(void)
{
	for (int by = 0; by < WAYS; by++)
		for (int k = 0; k < 4; k++) {
			struct job j = { .by = by,
					 .world = 3,
					 .len = k % 2 ? 48 : 0,
					 .zeros = k % 2,
					 .type = types[1 + k / 2],
					 .rounds = 2,
					 .other = -1 };

			runs_well(&j);
		}
}

/* the plan's hash tells it before; a transport would, too */
static void T37_ranks_of_other_formats_are_refused(void)
{
	for (int by = 0; by < WAYS; by++) {
		struct job j = { .by = by, .world = 2, .len = 64, .type = DN_BF16, .rounds = 1, .other = 1 };

		run(&j);
		CU_ASSERT(j.err[0] == -EPROTO || j.err[1] == -EPROTO);
		CU_ASSERT(strstr(j.err[0] == -EPROTO ? j.msg[0] : j.msg[1], "128") != NULL);
		CU_ASSERT(strstr(j.err[0] == -EPROTO ? j.msg[0] : j.msg[1], "256") != NULL);
	}
}

/* an operation in which others' numbers have come waits for the device's own work at both ends */
static void who_is_late_is_said(void)
{
	struct job j = { .world = 1, .len = 64, .type = DN_BF16, .other = -1 };
	struct bench *b = calloc(1, sizeof(*b));
	char text[128] = "";
	bool done;

	CHECK_OK_FATAL(fsdp_hub_create(&j.hub, 1));
	bench_open(b, &j, 0);
	CHECK_OK(b->gather.start(b->gather.arg));
	b->gather.describe(b->gather.arg, text, sizeof(text));
	CHECK_STR(text, "this rank's device has not ended its conversions");
	do {
		CHECK_OK(b->gather.poll(b->gather.arg, &done));
	} while (!done);
	bench_close(b);
	fsdp_hub_destroy(j.hub);
}

static void what_is_no_format_is_refused(void)
{
	struct job j = { .world = 1, .len = 64, .type = DN_BF16, .other = -1 };
	struct bench *b = calloc(1, sizeof(*b));
	struct fsdp_gather g = { .n = 64, .label = "gather of block b" };
	struct fsdp_reduce r = { .n = 64, .label = "reduce of block b" };
	struct dn_task t;

	CHECK_OK_FATAL(fsdp_hub_create(&j.hub, 1));
	bench_open(b, &j, 0);
	g.shard = b->shard;
	g.slot = b->slot;
	r.in = b->grads;
	r.out = b->out;
	CHECK_FAILS(fsdp_format_gather(b->format[0], (enum dn_type)0, &g, &t), -EINVAL, "gather of block b: no element type");
	CHECK_FAILS(fsdp_format_reduce(b->format[1], (enum dn_type)0, &r, b->grads, &t), -EINVAL,
		    "reduce of block b: no element type");
	CHECK_FAILS(fsdp_coll_channels.gather(b->coll[0], &g, &t), -EINVAL, "gather of block b: no element type");
	bench_close(b);
	fsdp_hub_destroy(j.hub);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(T37_round_trips_of_16_bits),
	CASE(T37_empty_shards_and_all_zero_tensors),
	CASE(T37_ranks_of_other_formats_are_refused),
	CASE(who_is_late_is_said),
	CASE(what_is_no_format_is_refused),
	{ NULL, NULL },
};

int main(void)
{
	return check_run("fsdp format", cases);
}
