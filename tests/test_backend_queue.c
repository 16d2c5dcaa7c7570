/* The device contract: sizes of queues and events, streams that are aborted, tasks that compute. */
#include <errno.h>
#include <stdatomic.h>
#include "backend_help.h"
#include "base/thread.h"

struct hold { /* a task that ends when it is told to */
	atomic_int starts, polls, go;
};

static int hold_start(void *arg)
{
	((struct hold *)arg)->starts++;
	return 0;
}

static int hold_poll(void *arg, bool *done)
{
	struct hold *h = arg;

	h->polls++;
	*done = h->go;
	return 0;
}

static int submit(const struct rig *r, struct dn_stream *st, struct hold *h)
{
	const struct dn_task t = { hold_start, hold_poll, NULL, h, "hold" };

	return r->be->stream_submit(st, &t);
}

static void a_queue_holds_what_it_was_made_for(void)
{
	static const int sizes[] = { 1, 2, 3, 64, 5000 };
	struct rig r = rig_open("cpu", 1);
	struct dn_stream *st;

	for (int k = 0; k < 5; k++) {
		struct hold h = { 0 };

		CHECK_OK_FATAL(r.be->stream_create(r.dev, DN_STREAM_COMM, "q", sizes[k], &st));
		for (int i = 0; i < sizes[k]; i++)
			CHECK_OK(submit(&r, st, &h));
		CHECK_FAILS(submit(&r, st, &h), -EAGAIN, "stream q: its queue is full");
		h.go = 1;
		CHECK_OK(r.be->stream_sync(st));
		CHECK_EQ(h.starts, sizes[k]);
		CHECK_OK(submit(&r, st, &h)); /* and holds as many again */
		CHECK_OK(r.be->stream_sync(st));
		r.be->stream_destroy(st);
	}
	CHECK_FAILS(r.be->stream_create(r.dev, DN_STREAM_COMM, "q", 0, &st), -EINVAL, "a queue of 0 entries");
	rig_close(&r);
}

/* on two streams, so that records end out of order */
static void an_event_holds_the_records_it_was_made_for(void)
{
	static const int sizes[] = { 1, 63, 64, 65, 200 };
	struct rig r = rig_open("cpu", 1);
	struct dn_stream *a, *b;
	struct dn_event *ev;

	for (int k = 0; k < 5; k++) {
		struct hold h = { 0 };

		CHECK_OK_FATAL(r.be->stream_create(r.dev, DN_STREAM_COMM, "a", 300, &a));
		CHECK_OK_FATAL(r.be->stream_create(r.dev, DN_STREAM_COMM, "b", 300, &b));
		CHECK_OK_FATAL(r.be->event_create(r.dev, "e", sizes[k], &ev));
		CHECK_OK(submit(&r, a, &h));
		CHECK_OK(r.be->event_record(ev, a)); /* stays open, those behind it pass */
		for (int i = 1; i < sizes[k]; i++)
			CHECK_OK(r.be->event_record(ev, b));
		CHECK_OK(r.be->stream_sync(b));
		CHECK_FAILS(r.be->event_record(ev, b), -EAGAIN, "event e:");
		CHECK_EQ(r.be->event_done(ev), sizes[k] > 1); /* the latest record is b's */
		h.go = 1;
		CHECK_OK(r.be->stream_sync(a));
		for (int i = 0; i < 3 * sizes[k]; i++) {
			CHECK_OK(r.be->event_record(ev, i % 2 ? a : b));
			CHECK_OK(r.be->event_wait(ev));
		}
		r.be->stream_destroy(a);
		r.be->stream_destroy(b);
		r.be->event_destroy(ev);
	}
	CHECK_FAILS(r.be->event_create(r.dev, "e", 0, &ev), -EINVAL, "0 records");
	rig_close(&r);
}

static void an_aborted_stream_runs_nothing_more(void)
{
	struct rig r = rig_open("cpu", 1);
	struct dn_stream *st, *other;
	struct dn_event *ev;
	struct hold first = { 0 }, second = { .go = 1 };
	int polls;

	CHECK_OK_FATAL(r.be->stream_create(r.dev, DN_STREAM_COMM, "reduce", 8, &st));
	CHECK_OK_FATAL(r.be->stream_create(r.dev, DN_STREAM_COMM, "other", 8, &other));
	CHECK_OK_FATAL(r.be->event_create(r.dev, "e", 8, &ev));
	CHECK_OK(submit(&r, st, &first));
	CHECK_OK(submit(&r, st, &second));
	CHECK_OK(r.be->event_record(ev, st));
	CHECK_OK(r.be->stream_wait(other, ev));
	while (!first.polls)
		dn_sleep_us(50);
	r.be->stream_abort(st);
	polls = first.polls;
	CHECK_FAILS(r.be->event_wait(ev), -ECANCELED, "stream reduce was aborted");
	CHECK_FAILS(r.be->stream_sync(st), -ECANCELED, "stream reduce was aborted");
	CHECK_FAILS(submit(&r, st, &second), -ECANCELED, "stream reduce was aborted");
	CHECK_FAILS(r.be->stream_sync(other), -ECANCELED, "stream reduce was aborted"); /* who waits for it hears of it */
	dn_sleep_us(2000);
	CHECK_EQ(first.polls, polls);
	CHECK_EQ(second.starts, 0);
	r.be->stream_abort(st); /* once more is legal */
	r.be->stream_destroy(st);
	r.be->stream_destroy(other);
	r.be->event_destroy(ev);
	rig_close(&r);
}

static int break_start(void *arg)
{
	return dn_fail(-EIO, "the cable is out");
}

/* a failed stream keeps its own failure */
static void the_first_failure_outlives_an_abort(void)
{
	const struct dn_task t = { .start = break_start, .label = "broken" };
	struct rig r = rig_open("cpu", 1);
	struct dn_stream *st;

	CHECK_OK_FATAL(r.be->stream_create(r.dev, DN_STREAM_COMM, "gather", 8, &st));
	CHECK_OK(r.be->stream_submit(st, &t));
	CHECK_FAILS(r.be->stream_sync(st), -EIO, "the cable is out");
	r.be->stream_abort(st);
	CHECK_FAILS(r.be->stream_sync(st), -EIO, "the cable is out");
	r.be->stream_destroy(st);
	rig_close(&r);
}

struct summing {
	const struct rig *r;
	struct dn_stream *st;
	struct dn_event *ev;
	float x[3], y[3];
};

static int summing_start(void *arg)
{
	struct summing *s = arg;
	int err = s->r->be->axpby(s->st, DN_F32, 3, 2, s->x, 0, s->y);

	return err ? err : s->r->be->event_record(s->ev, s->st);
}

static int summing_poll(void *arg, bool *done)
{
	struct summing *s = arg;

	*done = s->r->be->event_done(s->ev);
	return *done ? s->r->be->event_wait(s->ev) : 0;
}

static void a_task_waits_for_its_own_work_by_an_event(void)
{
	struct rig r = rig_open("cpu", 1);
	struct summing s = { .r = &r, .x = { 1, 2, 3 } };
	const struct dn_task t = { summing_start, summing_poll, NULL, &s, "sum" };
	const float want[] = { 2, 4, 6 };

	CHECK_OK_FATAL(r.be->stream_create(r.dev, DN_STREAM_COMM, "reduce", 8, &s.st));
	CHECK_OK_FATAL(r.be->event_create(r.dev, "e", 2, &s.ev));
	r.be->set_timeout(r.dev, 60000);
	for (int i = 0; i < 5; i++) {
		CHECK_OK(r.be->stream_submit(s.st, &t));
		CHECK_OK(r.be->stream_sync(s.st));
	}
	CHECK_BITS(s.y, want, sizeof(want));
	r.be->stream_destroy(s.st);
	r.be->event_destroy(s.ev);
	rig_close(&r);
}

/* --- the table --- */

static void backends_are_told_from_one_table(void)
{
	static struct dn_backend more, long_name; /* they stay in the table */
	char first[128], want[160];

	more = long_name = *dn_backend_find("ref");
	snprintf(first, sizeof(first), "%s", dn_backend_choices);
	CHECK_FAILS(dn_backend_add(&more), -EEXIST, "\"ref\" is there already");
	more.name = "more";
	CHECK_OK_FATAL(dn_backend_add(&more));
	CU_ASSERT_PTR_EQUAL(dn_backend_find("more"), &more);
	snprintf(want, sizeof(want), "%s|more", first);
	CHECK_STR(dn_backend_choices, want);
	CU_ASSERT_PTR_NULL(dn_backend_find("less"));
	CU_ASSERT(strstr(dn_message(), "cpu") && strstr(dn_message(), "ref") && strstr(dn_message(), "more"));
	CHECK_STR(dn_backend_default, "cpu");
	CHECK_FAILS(dn_backend_prefer("less"), -EINVAL, "unknown");
	CHECK_OK(dn_backend_prefer("more"));
	CHECK_STR(dn_backend_default, "more");
	long_name.name = "a name that is too long to be one of a back end";
	CHECK_FAILS(dn_backend_add(&long_name), -ENOSPC, "no room");
}

static const struct check_case cases[] = {
	{ "a_queue_holds_what_it_was_made_for", a_queue_holds_what_it_was_made_for },
	{ "an_event_holds_the_records_it_was_made_for", an_event_holds_the_records_it_was_made_for },
	{ "an_aborted_stream_runs_nothing_more", an_aborted_stream_runs_nothing_more },
	{ "the_first_failure_outlives_an_abort", the_first_failure_outlives_an_abort },
	{ "a_task_waits_for_its_own_work_by_an_event", a_task_waits_for_its_own_work_by_an_event },
	{ "backends_are_told_from_one_table", backends_are_told_from_one_table },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend_queue", cases);
}
