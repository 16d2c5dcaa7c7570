/* Collectives over a device whose work ends late: every copy, sum and record stands in a queue that the test empties one entry at
 * a time, in an order drawn from a seed, while ranks are polled in another. One thread, so a seed that fails fails again. Whoever
 * takes staging, a slot or a shard too early finds other numbers in it.
 */
#include <errno.h>
#include <math.h>
#include <string.h>
#include "comm/format.h"
#include "plan/plan.h"
#include "ranks.h"

#define QUEUE 256
#define OPS 4	/* operations of a rank, one after the other */
#define LEN 333 /* elements of a part: pieces of 16 floats, the last one short */
#define PIECE 64

/* --- a device that is late --- */

struct late_event {
	uint64_t recorded, passed;
};

enum entry_kind { COPY, SUM, AXPBY, NARROW, WIDEN, RECORD };

struct entry {
	enum entry_kind kind;
	void *to;
	const void *from;
	size_t bytes;
	int64_t n;
	struct dn_parts parts;
	bool acc;
	float alpha, beta;
	enum dn_type type;
	struct late_event *ev;
	uint64_t seq;
};

struct late_device {
	struct dn_device dev; /* first */
	struct entry queue[QUEUE];
	unsigned head, tail;
};

static bool impatient; /* planted: events pass at once */

static struct entry *push(struct dn_stream *st, enum entry_kind kind)
{
	struct late_device *d = (struct late_device *)(void *)st;
	struct entry *e = &d->queue[d->tail++ % QUEUE];

	CU_ASSERT_FATAL(d->tail - d->head <= QUEUE);
	memset(e, 0, sizeof(*e));
	e->kind = kind;
	return e;
}

static int late_copy(struct dn_stream *st, void *to, const void *from, size_t bytes)
{
	struct entry *e = push(st, COPY);

	e->to = to;
	e->from = from;
	e->bytes = bytes;
	return 0;
}

static int late_sum(struct dn_stream *st, int64_t n, const struct dn_parts *parts, float *out, bool acc)
{
	struct entry *e = push(st, SUM);

	e->n = n;
	e->parts = *parts;
	e->to = out;
	e->acc = acc;
	return 0;
}

static int late_axpby(struct dn_stream *st, enum dn_type type, int64_t n, float alpha, const void *x, float beta, void *y)
{
	struct entry *e = push(st, AXPBY);

	e->n = n;
	e->alpha = alpha;
	e->from = x;
	e->beta = beta;
	e->to = y;
	return 0;
}

static int late_convert(struct dn_stream *st, enum entry_kind kind, enum dn_type type, int64_t n, const void *x, void *y)
{
	struct entry *e = push(st, kind);

	e->type = type;
	e->n = n;
	e->from = x;
	e->to = y;
	return 0;
}

static int late_narrow(struct dn_stream *st, enum dn_type type, int64_t n, const float *x, void *y)
{
	return late_convert(st, NARROW, type, n, x, y);
}

static int late_widen(struct dn_stream *st, enum dn_type type, int64_t n, const void *x, float *y)
{
	return late_convert(st, WIDEN, type, n, x, y);
}

static int late_event_create(struct dn_device *dev, const char *name, int records, struct dn_event **out)
{
	*out = calloc(1, sizeof(struct late_event));
	return *out ? 0 : -ENOMEM;
}

static void late_event_destroy(struct dn_event *ev)
{
	free(ev);
}

static int late_event_record(struct dn_event *ev, struct dn_stream *st)
{
	struct entry *e = push(st, RECORD);

	e->ev = (struct late_event *)(void *)ev;
	e->seq = ++e->ev->recorded;
	return 0;
}

static bool late_event_done(struct dn_event *ev)
{
	const struct late_event *e = (const struct late_event *)(void *)ev;

	return impatient || e->passed >= e->recorded;
}

static int late_event_wait(struct dn_event *ev)
{
	return late_event_done(ev) ? 0 : dn_fail(-EDEADLK, "a task waits for its own stream");
}

static const struct dn_backend late_backend = {
	.name = "late",
	.copy = late_copy,
	.sum_tree = late_sum,
	.axpby = late_axpby,
	.narrow = late_narrow,
	.widen = late_widen,
	.event_create = late_event_create,
	.event_destroy = late_event_destroy,
	.event_record = late_event_record,
	.event_done = late_event_done,
	.event_wait = late_event_wait,
};

static bool advance(struct late_device *d)
{
	const struct dn_backend *ref = dn_backend_find("ref");
	struct entry *e = &d->queue[d->head % QUEUE];

	if (d->head == d->tail)
		return false;
	switch (e->kind) {
	case COPY:
		memcpy(e->to, e->from, e->bytes);
		break;
	case SUM:
		CHECK_OK(ref->sum_tree(NULL, e->n, &e->parts, e->to, e->acc));
		break;
	case AXPBY:
		CHECK_OK(ref->axpby(NULL, DN_F32, e->n, e->alpha, e->from, e->beta, e->to));
		break;
	case NARROW:
		CHECK_OK(ref->narrow(NULL, e->type, e->n, e->from, e->to));
		break;
	case WIDEN:
		CHECK_OK(ref->widen(NULL, e->type, e->n, e->from, e->to));
		break;
	case RECORD:
		e->ev->passed = e->seq;
	}
	d->head++;
	return true;
}

/* --- a channel that may touch memory of the host only, when it is told so --- */

static struct {
	const char *from, *to;
} pinned[RANKS_MAX];
static bool guarded;
static const struct fsdp_channel_ops *real_ops;

static void check_pinned(const struct fsdp_channel *c, const void *p, size_t bytes)
{
	const char *x = p;

	CU_ASSERT(!guarded || (x >= pinned[c->rank].from && x + bytes <= pinned[c->rank].to));
}

static int guard_send(struct fsdp_channel *c, int peer, const void *p, size_t bytes, struct fsdp_request *q)
{
	check_pinned(c, p, bytes);
	return real_ops->send(c, peer, p, bytes, q);
}

static int guard_recv(struct fsdp_channel *c, int peer, void *p, size_t bytes, struct fsdp_request *q)
{
	check_pinned(c, p, bytes);
	memset(p, 0xff, bytes); /* what a receive may do until it has ended */
	return real_ops->recv(c, peer, p, bytes, q);
}

static struct fsdp_channel_ops guard_ops;

static void guard(struct fsdp_channel *c)
{
	real_ops = c->ops;
	guard_ops = *real_ops;
	guard_ops.send = guard_send;
	guard_ops.recv = guard_recv;
	c->ops = &guard_ops;
}

/* --- ranks --- */

struct rank {
	struct late_device device;
	struct fsdp_channel *ch;
	struct fsdp_coll *coll;
	struct fsdp_format *format;
	char *staging, *host;
	size_t staging_bytes, host_bytes;
	struct fsdp_count count;
	float *in, *out, *mine; /* device memory: world parts, world parts, one part */
	struct dn_task tasks[2];
	int n_begun, n_done;
};

struct fleet {
	struct fsdp_hub *hub;
	int world;
	bool host_access;
	enum fsdp_op_kind kind;
	enum dn_type type; /* on the way; of gathers and reductions */
	unsigned seed;
	int64_t wrong; /* elements */
	struct rank r[RANKS_MAX];
};

static unsigned draw(struct fleet *f, unsigned n)
{
	f->seed = f->seed * 1103515245u + 12345u;
	return (f->seed >> 16) % n;
}

static void fill(float *x, int64_t n, float value)
{
	for (int64_t i = 0; i < n; i++)
		x[i] = value;
}

/* what rank @q has in part @part for operation @op */
static float value_of(int q, int op, int64_t part, int64_t i)
{
	return noise((uint64_t)(q * 1000 + op * 10) + (uint64_t)part, (uint64_t)i);
}

static int half(void *arg, struct dn_stream *st) /* math behind a sum */
{
	struct rank *r = arg;

	return late_axpby(st, DN_F32, LEN, 0.5f, r->out, 0, r->out);
}

static void fleet_open(struct fleet *f)
{
	struct fsdp_coll_needs needs = { .size = f->world, .host_access = f->host_access };
	struct fsdp_coll_memory m;

	CHECK_OK_FATAL(fsdp_hub_create(&f->hub, f->world));
	guarded = !f->host_access;
	*(f->kind == FSDP_GATHER   ? &needs.gather_bytes
	  : f->kind == FSDP_REDUCE ? &needs.reduce_bytes
				   : &needs.exchange_bytes) = f->kind == FSDP_EXCHANGE ? LEN * sizeof(float) : PIECE;
	CHECK_OK_FATAL(fsdp_coll_memory("channels", &needs, &m));
	for (int q = 0; q < f->world; q++) {
		struct rank *r = &f->r[q];
		struct fsdp_coll_setup s = { .host_access = f->host_access, .piece_bytes = PIECE, .most = LEN };

		memset(r, 0, sizeof(*r));
		r->device.dev.be = &late_backend;
		CHECK_OK_FATAL(fsdp_local_channel(f->hub, q, 0, &r->ch));
		guard(r->ch);
		/* exactly what was asked for: a step beyond is found by the sanitizer, and by what lies there */
		r->staging_bytes = m.device;
		r->host_bytes = m.host;
		r->staging = malloc(r->staging_bytes + 1);
		r->host = malloc(r->host_bytes + 1);
		CU_ASSERT_FATAL(r->staging && r->host);
		memset(r->staging, 0xff, r->staging_bytes);
		memset(r->host, 0xff, r->host_bytes);
		pinned[q].from = r->host;
		pinned[q].to = r->host + r->host_bytes;
		r->in = malloc(LEN * RANKS_MAX * sizeof(float));
		r->out = malloc(LEN * RANKS_MAX * sizeof(float));
		r->mine = malloc(LEN * sizeof(float));
		CU_ASSERT_FATAL(r->in && r->out && r->mine);
		s.ch = r->ch;
		s.dev = &r->device.dev;
		s.st = (struct dn_stream *)(void *)&r->device;
		s.gather_piece_bytes = m.gather_piece_bytes;
		s.device = r->staging;
		s.host = r->host;
		CHECK_OK_FATAL(fsdp_coll_channels.open(&r->coll, &s));
		CHECK_OK_FATAL(fsdp_format_open(&r->format, r->coll));
	}
}

static void fleet_close(struct fleet *f)
{
	for (int q = 0; q < f->world; q++) {
		struct rank *r = &f->r[q];

		fsdp_format_close(r->format);
		r->coll->ops->close(r->coll);
		r->ch->ops->destroy(r->ch);
		free(r->staging);
		free(r->host);
		free(r->in);
		free(r->out);
		free(r->mine);
	}
	fsdp_hub_destroy(f->hub);
}

static void prepare(struct fleet *f, struct rank *r)
{
	for (int k = 0; k < 2; k++) {
		const struct fsdp_gather g = { r->mine, r->out, LEN, DN_F32, &r->count, "gather" };
		const struct fsdp_reduce d = { r->in, r->out, LEN, DN_F32, k, &r->count, "reduce" };
		const struct fsdp_exchange x = { r->mine, r->out, LEN, half, r, &r->count, "exchange" };
		const struct fsdp_coll_ops *ops = r->coll->ops;

		CHECK_OK(f->kind == FSDP_GATHER	  ? fsdp_format_gather(r->format, f->type, &g, &r->tasks[k])
			 : f->kind == FSDP_REDUCE ? fsdp_format_reduce(r->format, f->type, &d, r->in, &r->tasks[k])
						  : ops->exchange(r->coll, &x, &r->tasks[k]));
	}
}

/* the inputs of rank @q's operation @op; the event of what writes them has passed when the operation begins */
static void write_inputs(struct fleet *f, int q, int op)
{
	struct rank *r = &f->r[q];

	for (int64_t i = 0; i < LEN; i++)
		r->mine[i] = value_of(q, op, 0, i);
	for (int part = 0; part < f->world; part++)
		for (int64_t i = 0; i < LEN; i++)
			r->in[part * LEN + i] = value_of(q, op, part, i);
}

static float tree(const float *x, int n)
{
	int half_of = 1;

	if (n == 1)
		return x[0];
	while (half_of * 2 < n)
		half_of *= 2;
	return tree(x, half_of) + tree(x + half_of, n - half_of);
}

/* what becomes of a number on its way */
static float sent(const struct fleet *f, float x)
{
	const struct dn_backend *ref = dn_backend_find("ref");
	uint16_t h;

	if (f->type == DN_F32)
		return x;
	CHECK_OK(ref->narrow(NULL, f->type, 1, &x, &h));
	CHECK_OK(ref->widen(NULL, f->type, 1, &h, &x));
	return x;
}

static float reduced(const struct fleet *f, int q, int op, int64_t i)
{
	float x[RANKS_MAX];

	for (int from = 0; from < f->world; from++)
		x[from] = sent(f, value_of(from, op, q, i));
	return tree(x, f->world);
}

/* what is there when an operation has ended; then its memory belongs to others, who write it */
static void check_outputs(struct fleet *f, int q, int op)
{
	struct rank *r = &f->r[q];
	int parts = f->kind == FSDP_GATHER ? f->world : 1;

	for (int part = 0; part < parts; part++)
		for (int64_t i = 0; i < LEN; i++) {
			float want = 0, x[RANKS_MAX];

			for (int from = 0; from < f->world; from++)
				x[from] = value_of(from, op, 0, i);
			if (f->kind == FSDP_GATHER)
				want = sent(f, value_of(part, op, 0, i));
			else if (f->kind == FSDP_REDUCE) /* every second one adds to the one before */
				want = op % 2 ? reduced(f, q, op - 1, i) + reduced(f, q, op, i) : reduced(f, q, op, i);
			else
				want = 0.5f * tree(x, f->world);
			f->wrong += r->out[part * LEN + i] != want;
		}
	fill(r->in, LEN * RANKS_MAX, NAN);
	fill(r->mine, LEN, NAN);
	if (f->kind != FSDP_REDUCE || op % 2)
		fill(r->out, LEN * RANKS_MAX, NAN);
}

static void poll_rank(struct fleet *f, int q)
{
	struct rank *r = &f->r[q];
	const struct dn_task *t = &r->tasks[r->n_done % 2];
	bool done = false;

	if (r->n_done == OPS)
		return;
	if (r->n_begun == r->n_done) {
		write_inputs(f, q, r->n_begun++);
		CHECK_OK_FATAL(t->start(t->arg));
	}
	CHECK_OK_FATAL(t->poll(t->arg, &done));
	if (done)
		check_outputs(f, q, r->n_done++);
}

static bool all_done(const struct fleet *f)
{
	for (int q = 0; q < f->world; q++)
		if (f->r[q].n_done < OPS)
			return false;
	return true;
}

static int64_t run(enum fsdp_op_kind kind, int world, bool host_access, enum dn_type type, unsigned seed)
{
	struct fleet f = { .kind = kind, .type = type, .world = world, .host_access = host_access, .seed = seed };
	unsigned eager = 1 + draw(&f, 6); /* how much of the time goes to the devices */

	fleet_open(&f);
	for (int q = 0; q < world; q++)
		prepare(&f, &f.r[q]);
	for (int i = 0; i < 2000000 && !all_done(&f); i++) {
		int q = (int)draw(&f, (unsigned)world);

		if (draw(&f, 8) < eager || f.r[q].device.tail - f.r[q].device.head > QUEUE / 2)
			(void)advance(&f.r[q].device);
		else
			poll_rank(&f, q);
	}
	CU_ASSERT(all_done(&f));
	for (int q = 0; q < world; q++) {
		CHECK_EQ(f.r[q].count.calls, OPS);
		CHECK_EQ(f.r[q].count.bytes, OPS * (world - 1) * LEN * (int64_t)dn_type_bytes(type));
		while (advance(&f.r[q].device)) /* of a planted fault */
			;
	}
	fleet_close(&f);
	return f.wrong;
}

static int64_t run_all(enum fsdp_op_kind kind, bool host_access, enum dn_type type)
{
	int64_t wrong = 0;

	for (int world = 1; world <= RANKS_MAX; world++)
		for (unsigned seed = 1; seed <= 20; seed++)
			wrong += run(kind, world, host_access, type, seed);
	return wrong;
}

static void gathers_end_with_their_copies(void)
{
	CHECK_EQ(run_all(FSDP_GATHER, true, DN_F32), 0);
	CHECK_EQ(run_all(FSDP_GATHER, false, DN_F32), 0);
}

static void reductions_end_with_their_sums(void)
{
	CHECK_EQ(run_all(FSDP_REDUCE, true, DN_F32), 0);
	CHECK_EQ(run_all(FSDP_REDUCE, false, DN_F32), 0);
}

static void exchanges_end_with_the_math_behind_them(void)
{
	CHECK_EQ(run_all(FSDP_EXCHANGE, true, DN_F32), 0);
	CHECK_EQ(run_all(FSDP_EXCHANGE, false, DN_F32), 0);
}

static void conversions_end_before_what_comes_behind_them(void)
{
	static const enum dn_type types[] = { DN_BF16, DN_F16 };

	for (int k = 0; k < 4; k++) {
		CHECK_EQ(run_all(FSDP_GATHER, k / 2, types[k % 2]), 0);
		CHECK_EQ(run_all(FSDP_REDUCE, k / 2, types[k % 2]), 0);
	}
}

/* the planted fault of this suite: without the events each kind takes memory that is still in use, and this test sees it */
static void who_does_not_wait_for_the_events_is_found(void)
{
	impatient = true;
	for (int k = 0; k < 2; k++) {
		CU_ASSERT(run_all(FSDP_GATHER, k, DN_F32) > 0);
		CU_ASSERT(run_all(FSDP_REDUCE, k, DN_F32) > 0);
		CU_ASSERT(run_all(FSDP_EXCHANGE, k, DN_F32) > 0);
		CU_ASSERT(run_all(FSDP_GATHER, k, DN_BF16) > 0);
		CU_ASSERT(run_all(FSDP_REDUCE, k, DN_BF16) > 0);
	}
	impatient = false;
}

static void a_late_device_is_said_to_be_late(void)
{
	struct fleet f = { .kind = FSDP_GATHER, .type = DN_F32, .world = 1, .host_access = true };
	char text[128] = "";
	bool done;

	fleet_open(&f);
	prepare(&f, &f.r[0]);
	CHECK_OK(f.r[0].tasks[0].start(f.r[0].tasks[0].arg));
	CHECK_OK(f.r[0].tasks[0].poll(f.r[0].tasks[0].arg, &done));
	CU_ASSERT_FALSE(done);
	f.r[0].tasks[0].describe(f.r[0].tasks[0].arg, text, sizeof(text));
	CHECK_STR(text, "this rank's device has not ended its copies and sums");
	fleet_close(&f);
}

/* --- groups --- */

/* ranks 1 and 3 of 4: messages name them by their numbers in the world */
static void members_of_a_group_are_named_by_their_ranks_in_the_world(void)
{
	static const int members[] = { 1, 3 };
	struct fsdp_hub *hub;
	struct fsdp_channel *a = NULL, *b = NULL;
	struct fsdp_request q[2] = { 0 };
	char x[32] = "";
	bool all;

	CHECK_OK_FATAL(fsdp_hub_create(&hub, 4));
	CHECK_FAILS(fsdp_local_group(hub, 0, 0, 2, members, &a), -EINVAL, "rank 0 is none of its 2 members");
	CHECK_OK_FATAL(fsdp_local_group(hub, 1, 0, 2, members, &a));
	CHECK_OK_FATAL(fsdp_local_group(hub, 3, 0, 2, members, &b));
	CHECK_EQ(a->rank, 0);
	CHECK_EQ(b->rank, 1);
	CHECK_EQ(b->size, 2);
	CHECK_EQ(b->world, 4);
	CHECK_OK(a->ops->send(a, 1, "sixteen bytes...", 16, &q[0]));
	CHECK_OK(b->ops->recv(b, 0, x, 20, &q[1]));
	CHECK_FAILS(b->ops->test_many(b, &q[1], 1, &all), -EPROTO, "rank 1 sends 16 bytes, rank 3 waits for 20");
	CHECK_FAILS(a->ops->test_many(a, &q[0], 1, &all), -EPROTO, "rank 1 sends 16 bytes, rank 3 waits for 20");
	CHECK_OK(a->ops->recv(a, 1, x, 4, &q[0]));
	CHECK_OK(a->ops->test_many(a, q, 2, &all));
	CU_ASSERT_FALSE(all);
	b->ops->destroy(b);
	CHECK_FAILS(a->ops->test_many(a, q, 2, &all), DN_EPEER_LOST, "rank 3 has left");
	a->ops->destroy(a);
	fsdp_hub_destroy(hub);
}

static void collectives_that_nobody_has_are_refused(void)
{
	struct fsdp_coll_needs n = { .size = 2 };
	struct fsdp_coll_memory m;

	CU_ASSERT_PTR_NULL(fsdp_coll_find("smoke signals"));
	CHECK_FAILS(fsdp_coll_memory("smoke signals", &n, &m), -EINVAL, "none that are called smoke signals");
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = { CASE(gathers_end_with_their_copies),
					   CASE(reductions_end_with_their_sums),
					   CASE(exchanges_end_with_the_math_behind_them),
					   CASE(conversions_end_before_what_comes_behind_them),
					   CASE(who_does_not_wait_for_the_events_is_found),
					   CASE(a_late_device_is_said_to_be_late),
					   CASE(members_of_a_group_are_named_by_their_ranks_in_the_world),
					   CASE(collectives_that_nobody_has_are_refused),
					   { NULL, NULL } };

int main(void)
{
	return check_run("fsdp/coll_late", cases);
}
