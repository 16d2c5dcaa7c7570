/* How long a host waits for an event: as long as the work before it goes on. */
#include "backend/backend.h"
#include "base/thread.h"
#include "check.h"

#define TIMEOUT_MS 300 /* and two seconds of grace for a host */

struct slow {
	int64_t end_ns;
	int64_t takes_ms; /* 0 = for ever */
};

static int slow_start(void *arg)
{
	struct slow *s = arg;

	s->end_ns = dn_now_ns() + s->takes_ms * 1000000;
	return 0;
}

static int slow_poll(void *arg, bool *done)
{
	struct slow *s = arg;

	*done = s->takes_ms && dn_now_ns() >= s->end_ns;
	return 0;
}

static void slow_describe(void *arg, char *out, size_t cap)
{
	snprintf(out, cap, "waiting for rank 1");
}

/* @n tasks of @ms milliseconds, of which the last one never ends if @hangs, then a record: what a wait for that gives */
static int wait_behind(int n, int64_t ms, bool hangs)
{
	static const char *const names[] = { "ref", "cpu" };
	struct slow tasks[32] = { { 0, 0 } };
	struct dn_device *dev = NULL;
	struct dn_stream *comm = NULL, *compute = NULL;
	struct dn_event *ev = NULL;
	int err;

	CU_ASSERT_FATAL(n <= 32);
	CHECK_OK_FATAL(dn_backend_find(names[hangs])->open(DN_CPU(1), &dev));
	dev->be->set_timeout(dev, TIMEOUT_MS);
	CHECK_OK_FATAL(dev->be->stream_create(dev, DN_STREAM_COMM, "gather", 64, &comm));
	CHECK_OK_FATAL(dev->be->stream_create(dev, DN_STREAM_COMPUTE, "compute", 64, &compute));
	CHECK_OK_FATAL(dev->be->event_create(dev, "gather:b", 8, &ev));
	for (int i = 0; i < n; i++) {
		struct dn_task t = { slow_start, slow_poll, slow_describe, &tasks[i], "gather of block b" };

		tasks[i].takes_ms = hangs && i == n - 1 ? 0 : ms;
		CHECK_OK(dev->be->stream_submit(comm, &t));
	}
	CHECK_OK(dev->be->event_record(ev, comm));
	err = dev->be->stream_wait(compute, ev);
	dev->be->stream_destroy(comm);
	dev->be->stream_destroy(compute);
	dev->be->event_destroy(ev);
	dev->be->close(dev);
	return err;
}

/* the same, but the host waits for a queue that itself waits for the tasks' one */
static int sync_behind(int n, int64_t ms, bool hangs)
{
	struct slow tasks[32] = { { 0, 0 } };
	struct dn_device *dev = NULL;
	struct dn_stream *reduce = NULL, *gather = NULL;
	struct dn_event *ev = NULL;
	int err;

	CU_ASSERT_FATAL(n <= 32);
	CHECK_OK_FATAL(dn_backend_find("ref")->open(DN_CPU(1), &dev));
	dev->be->set_timeout(dev, TIMEOUT_MS);
	CHECK_OK_FATAL(dev->be->stream_create(dev, DN_STREAM_COMM, "reduce", 64, &reduce));
	CHECK_OK_FATAL(dev->be->stream_create(dev, DN_STREAM_COMM, "gather", 64, &gather));
	CHECK_OK_FATAL(dev->be->event_create(dev, "reduce:b", 8, &ev));
	for (int i = 0; i < n; i++) {
		struct dn_task t = { slow_start, slow_poll, slow_describe, &tasks[i], "reduce of block b" };

		tasks[i].takes_ms = hangs && i == n - 1 ? 0 : ms;
		CHECK_OK(dev->be->stream_submit(reduce, &t));
	}
	CHECK_OK(dev->be->event_record(ev, reduce));
	CHECK_OK(dev->be->stream_wait(gather, ev));
	err = dev->be->stream_sync(gather);
	dev->be->stream_destroy(gather);
	dev->be->stream_destroy(reduce);
	dev->be->event_destroy(ev);
	dev->be->close(dev);
	return err;
}

static void many_tasks_in_time_are_waited_for(void)
{
	CHECK_OK(wait_behind(14, 200, false)); /* 2.8 s, more than timeout and grace together */
	CHECK_OK(sync_behind(14, 200, false));
}

static void after_many_tasks_in_time_the_late_one_is_what_is_told(void)
{
	CHECK_FAILS(wait_behind(14, 200, true), DN_EPEER_LATE, "gather of block b: waited 0.3 s: waiting for rank 1");
	CHECK_FAILS(sync_behind(14, 200, true), DN_EPEER_LATE, "reduce of block b: waited 0.3 s: waiting for rank 1");
}

static const struct check_case cases[] = {
	{ "many_tasks_in_time_are_waited_for", many_tasks_in_time_are_waited_for },
	{ "after_many_tasks_in_time_the_late_one_is_what_is_told", after_many_tasks_in_time_the_late_one_is_what_is_told },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend wait", cases);
}
