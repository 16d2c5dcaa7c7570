/* Collectives over windows, each rank a thread: against naive results, who is named when one is late, and what is refused. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include "comm/collective.h"
#include "ranks.h"

#define SPAN (4099 + 16) /* elements of the largest part */

struct job {
	struct fsdp_hub *hub;
	int world, size, stride; /* groups of @size ranks, @stride apart */
	int64_t len;
	bool acc, in_place;
	int silent;   /* rank that does not take part, -1 = none */
	int other;    /* rank that reduces where the others gather, -1 = none */
	size_t asked; /* bytes of shared gradients instead of what is needed, 0 = those */
	const char *dir;
	int on_host; /* ranks of it that are said to be on this host */
	int rounds;
	int64_t timeout_ms;
	int err[RANKS_MAX];
	char msg[RANKS_MAX][512];
	int64_t wrong[RANKS_MAX];
	pthread_barrier_t end;
};

static void job_init(struct job *j, int world, int64_t len)
{
	memset(j, 0, sizeof(*j));
	j->world = j->size = j->on_host = world;
	j->stride = 1;
	j->len = len;
	j->silent = j->other = -1;
	j->rounds = 1;
	j->timeout_ms = 20000;
	CHECK_OK_FATAL(fsdp_hub_create(&j->hub, world));
	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&j->end, NULL, (unsigned)world), 0);
}

static void job_fini(struct job *j)
{
	pthread_barrier_destroy(&j->end);
	fsdp_hub_destroy(j->hub);
}

static void job_ends_well(struct job *j)
{
	for (int r = 0; r < j->world; r++) {
		if (j->err[r])
			fprintf(stderr, "rank %d: %s\n", r, j->msg[r]);
		CHECK_EQ(j->err[r], 0);
		CHECK_EQ(j->wrong[r], 0);
	}
}

struct bench { /* one rank */
	struct job *j;
	int rank;
	struct fsdp_mesh *mesh;
	struct dn_device *dev;
	struct dn_stream *st;
	struct fsdp_channel *ch;
	struct fsdp_coll *coll[2];
	struct fsdp_count count;
	float *shard, *grads, slot[4 * SPAN], out[SPAN];
	struct dn_task gather, reduce;
};

static struct fsdp_coll_setup setup_of(const struct bench *b, int lane)
{
	return (struct fsdp_coll_setup){ .ch = b->ch,
					 .dev = b->dev,
					 .st = b->st,
					 .host_access = true,
					 .most = SPAN,
					 .windows = b->mesh->windows,
					 .lane = lane };
}

static int open_windows(struct bench *b)
{
	struct fsdp_windows_ask ask = { .dir = b->j->dir, .ranks_on_host = b->j->on_host };

	ask.region[DN_MEM_PARAMS] = SPAN * sizeof(float);
	ask.region[DN_MEM_GRAD_SLOTS] = b->j->asked ? b->j->asked : 4 * SPAN * sizeof(float);
	return fsdp_windows_open(&b->mesh->windows, &b->mesh->control, &ask);
}

static int bench_open(struct bench *b, struct job *j, int rank)
{
	int first = j->stride == 1 ? rank / j->size * j->size : rank % j->stride, members[RANKS_MAX], err;

	b->j = j;
	b->rank = rank;
	for (int i = 0; i < j->size; i++)
		members[i] = first + i * j->stride;
	CHECK_OK(fsdp_mesh_create_local(&b->mesh, j->hub, rank, j->timeout_ms));
	err = open_windows(b);
	if (err)
		return err;
	CHECK_OK(dn_backend_find("ref")->open(DN_CPU(1), &b->dev));
	b->dev->be->set_timeout(b->dev, j->timeout_ms);
	CHECK_OK(fsdp_local_group(j->hub, rank, 40, j->size, members, &b->ch));
	CHECK_OK(b->dev->be->stream_create(b->dev, DN_STREAM_COMM, "shm", 16, &b->st));
	for (int k = 0; k < 2; k++) {
		const struct fsdp_coll_setup s = setup_of(b, k);

		CHECK_OK(fsdp_coll_shm.open(&b->coll[k], &s));
	}
	b->shard = fsdp_windows_region(b->mesh->windows, DN_MEM_PARAMS, SPAN * sizeof(float));
	b->grads = fsdp_windows_region(b->mesh->windows, DN_MEM_GRAD_SLOTS, 4 * SPAN * sizeof(float));
	return 0;
}

static void bench_close(struct bench *b)
{
	for (int k = 0; k < 2; k++)
		fsdp_coll_shm.close(b->coll[k]);
	if (b->dev) {
		b->dev->be->stream_destroy(b->st);
		b->dev->be->close(b->dev);
		b->ch->ops->destroy(b->ch);
	}
	fsdp_mesh_destroy(b->mesh);
	free(b);
}

static int run_task(struct bench *b, const struct dn_task *t)
{
	int err = b->dev->be->stream_submit(b->st, t);

	return err ? err : b->dev->be->stream_sync(b->st);
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

static float value(int rank, int round, int64_t i)
{
	return noise((uint64_t)(rank + 10 * round), (uint64_t)i);
}

static void fill(struct bench *b, int round)
{
	for (int64_t i = 0; i < b->j->len; i++)
		b->shard[i] = value(b->rank, round, i);
	for (int64_t i = 0; i < b->j->len * b->j->size; i++)
		b->grads[i] = value(b->rank, round, i + 7);
	for (int64_t i = 0; i < b->j->len; i++)
		b->out[i] = 5;
}

static int64_t wrong(const struct bench *b, int round)
{
	const int *ranks = b->ch->members;
	const float *out = b->j->in_place ? b->grads + b->ch->rank * b->j->len : b->out;
	int64_t n = 0;

	for (int q = 0; q < b->j->size; q++)
		for (int64_t i = 0; i < b->j->len; i++)
			n += b->slot[q * b->j->len + i] != value(ranks[q], round, i);
	for (int64_t i = 0; i < b->j->len; i++) {
		float x[RANKS_MAX], sum;

		for (int q = 0; q < b->j->size; q++)
			x[q] = value(ranks[q], round, b->ch->rank * b->j->len + i + 7);
		sum = b->j->acc ? 5 + tree(x, b->j->size) : tree(x, b->j->size);
		n += out[i] != sum;
	}
	return n;
}

static int prepare(struct bench *b)
{
	struct fsdp_gather g = { .shard = b->shard,
				 .slot = b->slot,
				 .n = b->j->len,
				 .type = DN_F32,
				 .count = &b->count,
				 .label = "gather of block b" };
	struct fsdp_reduce r = { .in = b->grads,
				 .out = b->j->in_place ? b->grads + b->ch->rank * b->j->len : b->out,
				 .n = b->j->len,
				 .type = DN_F32,
				 .acc = b->j->acc,
				 .count = &b->count,
				 .label = "reduce of block b" };
	int err = fsdp_coll_shm.gather(b->coll[0], &g, &b->gather);

	if (b->rank == b->j->other) /* in the lane of gathers */
		return fsdp_coll_shm.reduce(b->coll[0], &r, &b->gather);
	return err ? err : fsdp_coll_shm.reduce(b->coll[1], &r, &b->reduce);
}

static void rank_main(int rank, void *arg)
{
	struct bench *b = calloc(1, sizeof(*b));
	struct job *j = arg;
	int err = bench_open(b, j, rank);

	if (!err)
		err = prepare(b);
	for (int k = 0; k < j->rounds && !err && rank != j->silent; k++) {
		fill(b, k);
		/* no two begin together, and nobody waits for anybody between rounds */
		if (j->rounds > 1)
			dn_sleep_us((int64_t)((noise((uint64_t)rank, (uint64_t)k) + 1) * 150));
		err = run_task(b, &b->gather);
		if (!err)
			err = run_task(b, &b->reduce);
		if (!err)
			j->wrong[rank] += wrong(b, k);
	}
	j->err[rank] = err;
	snprintf(j->msg[rank], sizeof(j->msg[rank]), "%s", err ? dn_message() : "");
	if (!err && rank != j->silent)
		CHECK_EQ(b->count.bytes, 2 * j->rounds * (j->size - 1) * j->len * 4);
	pthread_barrier_wait(&j->end);
	bench_close(b);
}

static void t2_gathers_and_sums_are_what_they_should_be(void)
{
	static const int64_t lens[] = { 0, 1, 16, 1000, 4099 };

	for (int world = 1; world <= 4; world++)
		for (int k = 0; k < 15; k++) {
			struct job j;

			job_init(&j, world, lens[k / 3]);
			j.acc = k % 3 == 1;
			j.in_place = k % 3 == 2;
			ranks_run(world, rank_main, &j);
			job_ends_well(&j);
			job_fini(&j);
		}
}

/* ranks of one copy stand side by side, those with the same part of it a copy apart */
static void groups_of_both_dimensions_keep_apart(void)
{
	for (int stride = 1; stride <= 2; stride++)
		for (int in_place = 0; in_place < 2; in_place++) {
			struct job j;

			job_init(&j, 4, 333);
			j.size = 2;
			j.stride = stride;
			j.in_place = in_place;
			ranks_run(4, rank_main, &j);
			job_ends_well(&j);
			job_fini(&j);
		}
}

/* each fills its memory anew as soon as its own operation is over */
static void t3_nobody_writes_where_another_one_still_reads(void)
{
	for (int world = 2; world <= 4; world++) {
		struct job j;

		job_init(&j, world, 4099);
		j.rounds = 60;
		ranks_run(world, rank_main, &j);
		job_ends_well(&j);
		job_fini(&j);
	}
}

static void t36_a_late_rank_is_named(void)
{
	struct job j;

	job_init(&j, 3, 16);
	j.silent = 1;
	j.timeout_ms = 300;
	ranks_run(3, rank_main, &j);
	for (int r = 0; r < 3; r += 2) {
		CHECK_EQ(j.err[r], DN_EPEER_LATE);
		CU_ASSERT_PTR_NOT_NULL(strstr(j.msg[r], "gather of block b: waited 0.3 s: waiting for rank 1"));
		CU_ASSERT_PTR_NULL(strstr(j.msg[r], "rank 1, "));
	}
	job_fini(&j);
}

static void a_rank_in_another_operation_is_named(void)
{
	struct job j;

	job_init(&j, 2, 16);
	j.other = 1;
	j.timeout_ms = 2000;
	ranks_run(2, rank_main, &j);
	CHECK_EQ(j.err[0], -EPROTO);
	CU_ASSERT_STRING_EQUAL(j.msg[0], "rank 1 is in a reduction of 64 bytes, rank 0 in a gather of 64");
	job_fini(&j);
}

/* --- one member reads, and the others stay where they are --- */

static void poll_of(const struct dn_task *t, bool *done)
{
	*done = false;
	for (int i = 0; i < 50 && !*done; i++) {
		CHECK_OK(t->poll(t->arg, done));
		dn_sleep_us(1000); /* from this thread, copies are queued */
	}
}

struct pair {
	struct job j;
	struct bench *b[2];
};

static void open_one(int rank, void *arg)
{
	struct pair *p = arg;

	p->b[rank] = calloc(1, sizeof(*p->b[rank]));
	CHECK_OK(bench_open(p->b[rank], &p->j, rank));
}

/* Both ranks in this thread: what each step of one is worth to the other. */
static void an_operation_ends_when_all_have_read(void)
{
	struct pair p;
	struct bench **b = p.b;
	char who[256];
	bool done;

	job_init(&p.j, 2, 16);
	ranks_run(2, open_one, &p); /* opening needs both at once */
	for (int r = 0; r < 2; r++) {
		CHECK_OK(prepare(b[r]));
		fill(b[r], 0);
	}
	CHECK_OK(b[0]->gather.start(b[0]->gather.arg));
	poll_of(&b[0]->gather, &done);
	CU_ASSERT_FALSE(done); /* the other one has not begun */
	CHECK_OK(b[1]->gather.start(b[1]->gather.arg));
	poll_of(&b[0]->gather, &done);
	CU_ASSERT_FALSE(done); /* it has begun, but not read */
	b[0]->gather.describe(b[0]->gather.arg, who, sizeof(who));
	CU_ASSERT_STRING_EQUAL(who, "waiting for rank 1");
	poll_of(&b[1]->gather, &done);
	CU_ASSERT_TRUE(done);
	poll_of(&b[0]->gather, &done);
	CU_ASSERT_TRUE(done);
	for (int r = 0; r < 2; r++)
		bench_close(b[r]);
	job_fini(&p.j);
}

/* --- what cannot be --- */

static size_t counted(void)
{
	struct dn_mem_stats a, b;

	dn_mem_stats(DN_MEM_PARAMS, &a);
	dn_mem_stats(DN_MEM_GRAD_SLOTS, &b);
	return a.now_bytes + b.now_bytes;
}

static void all_fail(struct job *j, int err, const char *text)
{
	ranks_run(j->world, rank_main, j);
	for (int r = 0; r < j->world; r++) {
		CHECK_EQ(j->err[r], err);
		if (!strstr(j->msg[r], text))
			fprintf(stderr, "rank %d: %s\n", r, j->msg[r]);
		CU_ASSERT_PTR_NOT_NULL(strstr(j->msg[r], text));
	}
	CHECK_EQ(counted(), 0);
	job_fini(j);
}

static void ranks_of_several_hosts_share_nothing(void)
{
	struct job j;

	job_init(&j, 4, 16);
	j.on_host = 2;
	all_fail(&j, -ENOTSUP, "rank 0: windows: 2 of 4 ranks are on this host");
}

static void without_room_all_fail_alike(void)
{
	struct job j;

	job_init(&j, 3, 16);
	j.asked = (size_t)1 << 50;
	all_fail(&j, -ENOSPC, "rank 0: windows: /dev/shm has ");
	job_init(&j, 2, 16);
	j.dir = "/nowhere";
	all_fail(&j, -ENOENT, "rank 0: windows: /nowhere: ");
	job_init(&j, 2, 16);
	j.dir = "/proc/self/fd"; /* there is room without limit, but no file can be made */
	ranks_run(2, rank_main, &j);
	CU_ASSERT_NOT_EQUAL(j.err[0], 0);
	CHECK_EQ(j.err[0], j.err[1]);
	CU_ASSERT_PTR_NOT_NULL(strstr(j.msg[1], "rank 0: windows: a file in /proc/self/fd: "));
	CHECK_EQ(counted(), 0);
	job_fini(&j);
}

static void a_limit_on_files_is_an_error_not_a_signal(void)
{
	struct rlimit before, small;
	struct job j;

	CHECK_OK_FATAL(getrlimit(RLIMIT_FSIZE, &before));
	small = (struct rlimit){ 16384, before.rlim_max };
	CHECK_OK_FATAL(setrlimit(RLIMIT_FSIZE, &small));
	job_init(&j, 2, 16);
	all_fail(&j, -EFBIG, "files may have 16 KiB (ulimit -f)");
	CHECK_OK_FATAL(setrlimit(RLIMIT_FSIZE, &before));
}

static void windows_are_counted_while_they_are_open(void)
{
	struct bench *b = calloc(1, sizeof(*b));
	struct job j;

	job_init(&j, 1, 16);
	CHECK_EQ(counted(), 0);
	CHECK_OK(bench_open(b, &j, 0));
	CHECK_EQ(counted(), 5 * SPAN * sizeof(float));
	CU_ASSERT_PTR_NULL(fsdp_windows_region(b->mesh->windows, DN_MEM_GRADS, 4));
	CU_ASSERT_PTR_NULL(fsdp_windows_region(b->mesh->windows, DN_MEM_PARAMS, 4));
	CU_ASSERT_PTR_NULL(fsdp_windows_region(NULL, DN_MEM_PARAMS, 4));
	bench_close(b);
	CHECK_EQ(counted(), 0);
	job_fini(&j);
}

static void a_failed_allocation_leaves_nothing(void)
{
	int n_failed = 0, err = 1;

	for (int n = 1; n < 40 && err; n++) {
		struct bench *b = calloc(1, sizeof(*b));
		struct job j;

		job_init(&j, 1, 16);
		b->j = &j;
		CHECK_OK(fsdp_mesh_create_local(&b->mesh, j.hub, 0, 1000));
		dn_mem_fail_at((uint64_t)n);
		err = open_windows(b);
		dn_mem_fail_at(0);
		n_failed += err == -ENOMEM;
		CHECK_EQ(counted(), err ? 0 : 5 * SPAN * sizeof(float));
		fsdp_mesh_destroy(b->mesh);
		CHECK_EQ(counted(), 0);
		free(b);
		job_fini(&j);
	}
	CHECK_EQ(err, 0);
	CU_ASSERT(n_failed >= 3); /* the struct, and both regions */
}

static void what_has_no_window_is_refused(void)
{
	struct bench *b = calloc(1, sizeof(*b));
	struct fsdp_coll_needs needs = { .size = 2, .gather_bytes = 256, .reduce_bytes = 256, .exchange_bytes = 64 };
	struct fsdp_coll_memory m;
	struct fsdp_coll_setup s;
	struct fsdp_coll *c;
	struct job j;

	job_init(&j, 1, SPAN);
	CHECK_OK(bench_open(b, &j, 0));
	b->shard++; /* ends behind the region, but still in the window: its last page is not full */
	CHECK_OK(prepare(b));
	b->shard = b->slot;
	CHECK_FAILS(prepare(b), -EINVAL, "gather of block b: 16460 bytes that do not lie in the window of rank 0");
	j.len = SPAN + 1;
	CHECK_FAILS(prepare(b), -EINVAL, "gather of block b: 4116 elements, at most 4115");
	s = setup_of(b, 0);
	s.windows = NULL;
	CHECK_FAILS(fsdp_coll_shm.open(&c, &s), -EINVAL, "the ranks have no windows");
	s = setup_of(b, FSDP_LANES);
	CHECK_FAILS(fsdp_coll_shm.open(&c, &s), -EINVAL, "lane 64, must be 0 to 63");
	s = setup_of(b, 0);
	s.host_access = false;
	CHECK_FAILS(fsdp_coll_shm.open(&c, &s), -ENOTSUP, "cannot reach");
	CHECK_FAILS(fsdp_coll_shm.memory(&needs, &m), -ENOTSUP, "cannot reach");
	needs.host_access = true;
	CHECK_OK(fsdp_coll_shm.memory(&needs, &m));
	CU_ASSERT_TRUE(m.windows);
	CHECK_EQ(m.device, 2 * 64); /* of the exchange alone */
	CU_ASSERT_PTR_EQUAL(fsdp_coll_find("shm"), &fsdp_coll_shm);
	bench_close(b);
	job_fini(&j);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(t2_gathers_and_sums_are_what_they_should_be),
	CASE(groups_of_both_dimensions_keep_apart),
	CASE(t3_nobody_writes_where_another_one_still_reads),
	CASE(t36_a_late_rank_is_named),
	CASE(a_rank_in_another_operation_is_named),
	CASE(an_operation_ends_when_all_have_read),
	CASE(ranks_of_several_hosts_share_nothing),
	CASE(without_room_all_fail_alike),
	CASE(a_limit_on_files_is_an_error_not_a_signal),
	CASE(windows_are_counted_while_they_are_open),
	CASE(a_failed_allocation_leaves_nothing),
	CASE(what_has_no_window_is_refused),
	{ NULL, NULL },
};

int main(void)
{
	return check_run("fsdp shm", cases);
}
