/* The device contract: streams and events. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include "backend_help.h"
#include "base/thread.h"

struct probe {			      /* a task under the test's control */
	atomic_int starts, polls, go; /* go: poll says done */
	int err;		      /* of start, when go is not needed */
	struct order *order;
	int id;
};

struct order { /* in which tasks ended; written by the progress thread only */
	int ids[64], n;
};

static int probe_start(void *arg)
{
	struct probe *p = arg;

	p->starts++;
	return p->err ? dn_fail(p->err, "task %d broke", p->id) : 0;
}

static int probe_poll(void *arg, bool *done)
{
	struct probe *p = arg;

	p->polls++;
	*done = p->go;
	if (*done && p->order)
		p->order->ids[p->order->n++] = p->id;
	return 0;
}

static void probe_describe(void *arg, char *out, size_t cap)
{
	snprintf(out, cap, "rank 2 has not sent piece %d", ((struct probe *)arg)->id);
}

static struct dn_task probe_task(struct probe *p)
{
	struct dn_task t = { probe_start, probe_poll, probe_describe, p, "gather of block b" };

	return t;
}

static int submit(struct rig *r, struct dn_stream *st, struct probe *p)
{
	struct dn_task t = probe_task(p);

	return r->be->stream_submit(st, &t);
}

struct comm_rig {
	struct rig r;
	struct dn_stream *a, *b;
	struct dn_event *e, *f;
};

static struct comm_rig comm_open(void)
{
	struct comm_rig c = { .r = rig_open("cpu", 1) };

	CHECK_OK_FATAL(c.r.be->stream_create(c.r.dev, DN_STREAM_COMM, "gather", 4096, &c.a));
	CHECK_OK_FATAL(c.r.be->stream_create(c.r.dev, DN_STREAM_COMM, "reduce", 64, &c.b));
	CHECK_OK_FATAL(c.r.be->event_create(c.r.dev, "e", 64, &c.e));
	CHECK_OK_FATAL(c.r.be->event_create(c.r.dev, "f", 64, &c.f));
	c.r.be->set_timeout(c.r.dev, 60000); /* a fault ends the test, not the patience of whoever runs it */
	return c;
}

static void comm_close(struct comm_rig *c)
{
	c->r.be->stream_destroy(c->a);
	c->r.be->stream_destroy(c->b);
	c->r.be->event_destroy(c->e);
	c->r.be->event_destroy(c->f);
	rig_close(&c->r);
}

static void comm_stream_runs_tasks_in_order_and_starts_each_once(void)
{
	struct comm_rig c = comm_open();
	struct order order = { .n = 0 };
	struct probe p[40] = { 0 };

	for (int i = 0; i < 40; i++) {
		p[i].order = &order;
		p[i].id = i;
		p[i].go = i != 0;
		CHECK_OK(submit(&c.r, c.a, &p[i]));
	}
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	CU_ASSERT(!c.r.be->event_done(c.e));
	while (!p[0].polls)
		sched_yield();
	CHECK_EQ(p[1].starts, 0);
	p[0].go = 1;
	CHECK_OK(c.r.be->event_wait(c.e));
	CU_ASSERT(c.r.be->event_done(c.e));
	CHECK_EQ(order.n, 40);
	for (int i = 0; i < 40; i++) {
		CHECK_EQ(order.ids[i], i);
		CHECK_EQ(p[i].starts, 1);
	}
	CHECK_OK(c.r.be->stream_sync(c.a));
	comm_close(&c);
}

static void streams_do_not_wait_for_each_other_unless_told(void)
{
	struct comm_rig c = comm_open();
	struct order order = { .n = 0 };
	struct probe stuck = { .id = 1, .order = &order }, free_task = { .id = 2, .go = 1, .order = &order },
		     behind = { .id = 3, .go = 1, .order = &order };

	CHECK_OK(submit(&c.r, c.a, &stuck));
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	CHECK_OK(submit(&c.r, c.b, &free_task));
	CHECK_OK(c.r.be->stream_sync(c.b)); /* passes although stream a hangs */
	CHECK_OK(c.r.be->stream_wait(c.b, c.e));
	CHECK_OK(submit(&c.r, c.b, &behind));
	CHECK_OK(c.r.be->event_record(c.f, c.b));
	CU_ASSERT(!c.r.be->event_done(c.f));
	CHECK_EQ(behind.starts, 0);
	stuck.go = 1;
	CHECK_OK(c.r.be->stream_wait(c.r.st, c.f)); /* the compute stream blocks here */
	CHECK_EQ(order.n, 3);
	CHECK_EQ(order.ids[0], 2);
	CHECK_EQ(order.ids[1], 1);
	CHECK_EQ(order.ids[2], 3);
	comm_close(&c);
}

static void event_never_recorded_is_complete_and_compute_records_at_once(void)
{
	struct comm_rig c = comm_open();
	struct probe p = { .go = 1 };

	CU_ASSERT(c.r.be->event_done(c.e));
	CHECK_OK(c.r.be->event_wait(c.e));
	CHECK_OK(c.r.be->stream_wait(c.r.st, c.e));
	CHECK_OK(c.r.be->stream_wait(c.a, c.e));
	CHECK_OK(c.r.be->event_record(c.e, c.r.st));
	CU_ASSERT(c.r.be->event_done(c.e));
	CHECK_OK(c.r.be->stream_wait(c.a, c.e));
	CHECK_OK(submit(&c.r, c.a, &p));
	CHECK_OK(c.r.be->stream_sync(c.a));
	CHECK_EQ(p.starts, 1);
	CHECK_EQ(c.r.be->waited_ns(c.r.dev), 0);
	comm_close(&c);
}

static void wait_means_the_latest_record_before_it(void)
{
	struct comm_rig c = comm_open();
	struct probe first = { .go = 1 }, second = { 0 }, waiter = { .go = 1 };

	CHECK_OK(submit(&c.r, c.a, &first));
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	CHECK_OK(c.r.be->event_wait(c.e));
	CHECK_OK(c.r.be->stream_wait(c.b, c.e)); /* of the first record: passes */
	CHECK_OK(submit(&c.r, c.a, &second));
	CHECK_OK(c.r.be->event_record(c.e, c.a)); /* recorded anew, pending */
	CHECK_OK(submit(&c.r, c.b, &waiter));
	CHECK_OK(c.r.be->stream_sync(c.b));
	CHECK_EQ(waiter.starts, 1);
	CU_ASSERT(!c.r.be->event_done(c.e));
	/* another stream's later record does not complete the pending one */
	CHECK_OK(c.r.be->stream_wait(c.b, c.e));     /* of the second record */
	CHECK_OK(c.r.be->event_record(c.e, c.r.st)); /* third, complete at once */
	CU_ASSERT(c.r.be->event_done(c.e));
	CHECK_OK(c.r.be->event_wait(c.e));
	CHECK_OK(c.r.be->event_record(c.f, c.b));
	CU_ASSERT(!c.r.be->event_done(c.f)); /* still behind the second */
	second.go = 1;
	CHECK_OK(c.r.be->event_wait(c.f));
	for (int step = 0; step < 500; step++) {
		struct probe p = { .go = 1 };

		CHECK_OK(submit(&c.r, c.a, &p));
		CHECK_OK(c.r.be->event_record(c.e, c.a));
		CHECK_OK(c.r.be->stream_wait(c.r.st, c.e));
		CHECK_EQ(p.starts, 1);
	}
	comm_close(&c);
}

static void first_error_sticks_to_its_stream(void)
{
	struct comm_rig c = comm_open();
	struct probe hold = { .id = 0 }, broken = { .err = -EIO, .id = 7 }, skipped = { .go = 1, .id = 8 },
		     other = { .go = 1, .id = 9 }, after = { .go = 1, .id = 10 };

	CHECK_OK(submit(&c.r, c.a, &hold)); /* so that all is queued before the failure */
	CHECK_OK(submit(&c.r, c.a, &broken));
	CHECK_OK(submit(&c.r, c.a, &skipped));
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	CHECK_OK(c.r.be->stream_wait(c.b, c.e));
	CHECK_OK(submit(&c.r, c.b, &after));
	hold.go = 1;
	dn_message_clear();
	CHECK_FAILS(c.r.be->stream_wait(c.r.st, c.e), -EIO, "task 7 broke");
	CHECK_FAILS(c.r.be->event_wait(c.e), -EIO, "task 7 broke");
	CHECK_FAILS(c.r.be->stream_sync(c.a), -EIO, "task 7 broke");
	CHECK_FAILS(submit(&c.r, c.a, &other), -EIO, "task 7 broke");
	CU_ASSERT(c.r.be->event_done(c.e));
	CHECK_EQ(skipped.starts, 0);
	CHECK_EQ(other.starts, 0);
	/* and travels to a stream that waited for it */
	CHECK_FAILS(c.r.be->stream_sync(c.b), -EIO, "task 7 broke");
	CHECK_EQ(after.starts, 0);
	comm_close(&c);
}

static void late_task_fails_and_says_what_it_waits_for(void)
{
	struct comm_rig c = comm_open();
	struct probe p = { .id = 3 };

	c.r.be->set_timeout(c.r.dev, 50);
	CHECK_OK(submit(&c.r, c.a, &p));
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	CHECK_FAILS(c.r.be->event_wait(c.e), DN_EPEER_LATE, "gather of block b: waited 0.1 s: rank 2 has not sent piece 3");
	CHECK_FAILS(c.r.be->stream_sync(c.a), DN_EPEER_LATE, "rank 2");
	CU_ASSERT(c.r.be->waited_ns(c.r.dev) >= 40000000);
	comm_close(&c);
}

static void host_wait_ends_when_nobody_completes_the_event(void)
{
	struct comm_rig c = comm_open();
	struct probe p = { .id = 3 };

	c.r.be->set_timeout(c.r.dev, 0); /* the task may hang for ever */
	CHECK_OK(submit(&c.r, c.a, &p));
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	while (!p.polls)
		sched_yield();
	c.r.be->set_timeout(c.r.dev, 10);
	CHECK_FAILS(c.r.be->event_wait(c.e), DN_EPEER_LATE, "event e: waited 2.0 s");
	comm_close(&c);
}

static void close_and_destroy_do_not_wait_for_a_hanging_task(void)
{
	struct comm_rig c = comm_open();
	struct probe p = { 0 };
	int64_t start;

	CHECK_OK(submit(&c.r, c.a, &p));
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	while (!p.polls)
		sched_yield();
	start = dn_now_ns();
	c.r.be->stream_destroy(c.a);
	CHECK_FAILS(c.r.be->event_wait(c.e), -ECANCELED, "stream gather was destroyed");
	CHECK_OK_FATAL(c.r.be->stream_create(c.r.dev, DN_STREAM_COMM, "gather", 4096, &c.a));
	CHECK_OK(submit(&c.r, c.a, &p));
	comm_close(&c);
	CU_ASSERT(dn_now_ns() - start < 5000000000); /* it would be for ever */
}

static void full_queue_is_an_error_and_allocates_nothing(void)
{
	struct comm_rig c = comm_open();
	struct probe hold = { 0 }, p = { .go = 1 };
	uint64_t allocs;

	CHECK_OK(submit(&c.r, c.a, &hold));
	allocs = dn_mem_n_allocs();
	for (int i = 0; i < 4095; i++)
		CHECK_OK_FATAL(submit(&c.r, c.a, &p));
	CHECK_FAILS(submit(&c.r, c.a, &p), -EAGAIN, "queue is full");
	CHECK_FAILS(c.r.be->event_record(c.e, c.a), -EAGAIN, "4096");
	CHECK_EQ(dn_mem_n_allocs(), allocs);
	hold.go = 1;
	CHECK_OK(c.r.be->stream_sync(c.a));
	CHECK_EQ(p.starts, 4095);
	CHECK_OK(submit(&c.r, c.a, &p));
	CHECK_OK(c.r.be->stream_sync(c.a));
	comm_close(&c);
}

static void tasks_belong_on_communication_streams(void)
{
	struct comm_rig c = comm_open();
	struct probe p = { .go = 1 };
	float x[4] = { 1, 2, 3, 4 }, y[4] = { 0 };

	CHECK_FAILS(submit(&c.r, c.r.st, &p), -EINVAL, "communication");
	CHECK_OK(submit(&c.r, c.a, &p));
	CHECK_OK(c.r.be->copy(c.a, y, x, sizeof(x))); /* in the queue's order */
	CHECK_OK(c.r.be->zero(c.a, y, 4));
	CHECK_OK(c.r.be->stream_sync(c.a));
	CU_ASSERT(y[0] == 0 && y[1] == 2 && y[3] == 4);
	comm_close(&c);
}

struct sum_task {
	struct rig *r;
	struct dn_stream *st;
	const float *own;
	struct dn_parts parts;
	float out[3];
};

static int sum_start(void *arg)
{
	struct sum_task *s = arg;
	int err = s->r->be->copy(s->st, s->out, s->own, sizeof(s->out)); /* inline: we are the stream */

	return err ? err : s->r->be->sum_tree(s->st, 3, &s->parts, s->out, true);
}

static void tasks_may_use_ops_on_their_own_stream(void)
{
	struct comm_rig c = comm_open();
	const float a[] = { 1, 2, 3 }, others[] = { 10, 20, 30, 100, 200, 300 }, want[] = { 112, 224, 336 };
	struct sum_task s = { &c.r, c.a, a, { DN_F32, 3, 0, a, others, 3 * sizeof(float) }, { 0 } };
	struct dn_task t = { sum_start, NULL, NULL, &s, "sum" };

	CHECK_OK(c.r.be->stream_submit(c.a, &t));
	CHECK_OK(c.r.be->stream_sync(c.a));
	CHECK_BITS(s.out, want, sizeof(want));
	comm_close(&c);
}

/* sizes around the one at which copies change their way, at any address, and nothing beside them */
static void copies_of_any_size_and_place_are_whole(void)
{
	static const size_t sizes[] = { 0, 1, 63, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 20) + 79, (3 << 20) + 5 };
	enum { MOST = (3 << 20) + 128 };
	struct comm_rig c = comm_open();
	unsigned char *from = malloc(MOST), *to = malloc(MOST);

	CU_ASSERT_FATAL(from && to);
	for (size_t i = 0; i < MOST; i++)
		from[i] = (unsigned char)(i * 2654435761u >> 13);
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
		for (size_t at = 0; at < 36; at += 5) {
			memset(to, 0xa5, MOST);
			CHECK_OK(c.r.be->copy(c.a, to + at, from + 36 - at, sizes[k]));
			CHECK_OK(c.r.be->stream_sync(c.a));
			CHECK_BITS(to + at, from + 36 - at, sizes[k]);
			CU_ASSERT((!at || to[at - 1] == 0xa5) && to[at + sizes[k]] == 0xa5);
		}
	free(from);
	free(to);
	comm_close(&c);
}

static const struct check_case cases[] = {
	{ "comm_stream_runs_tasks_in_order_and_starts_each_once", comm_stream_runs_tasks_in_order_and_starts_each_once },
	{ "streams_do_not_wait_for_each_other_unless_told", streams_do_not_wait_for_each_other_unless_told },
	{ "event_never_recorded_is_complete_and_compute_records_at_once",
	  event_never_recorded_is_complete_and_compute_records_at_once },
	{ "wait_means_the_latest_record_before_it", wait_means_the_latest_record_before_it },
	{ "first_error_sticks_to_its_stream", first_error_sticks_to_its_stream },
	{ "late_task_fails_and_says_what_it_waits_for", late_task_fails_and_says_what_it_waits_for },
	{ "host_wait_ends_when_nobody_completes_the_event", host_wait_ends_when_nobody_completes_the_event },
	{ "close_and_destroy_do_not_wait_for_a_hanging_task", close_and_destroy_do_not_wait_for_a_hanging_task },
	{ "full_queue_is_an_error_and_allocates_nothing", full_queue_is_an_error_and_allocates_nothing },
	{ "tasks_belong_on_communication_streams", tasks_belong_on_communication_streams },
	{ "tasks_may_use_ops_on_their_own_stream", tasks_may_use_ops_on_their_own_stream },
	{ "copies_of_any_size_and_place_are_whole", copies_of_any_size_and_place_are_whole },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend_stream", cases);
}
