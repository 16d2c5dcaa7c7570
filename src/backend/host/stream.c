/* Streams and events of the host: what makes a CPU look like an asynchronous device.
 *
 * A stream without a queue, such as the CPU's compute stream, runs its ops in the caller, so its events are complete when
 * recorded and its waits block. One with a queue is a FIFO of tasks, copies, waits and records. One progress thread per
 * device looks at the head of each queue in turn and never blocks in one of them.
 *
 * NOTE(records): a record takes the event's next number; a wait remembers the latest number at its call,
 * so an event that is recorded anew every step is right. Records on different streams may end out of
 * order: as many as the event was made for may be in flight, one bit each.
 *
 * Math on a COMM stream belongs into the stream's tasks: it runs at once, in the caller, on one thread.
 */
#include "backend/host/stream.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "base/thread.h"

#define MAX_ENTRIES (1 << 24) /* of a queue, or records of an event: more is a fault of who asks */
#define HOST_GRACE_MS 2000    /* a late task fails first and says whom it waits for */
#define IDLE_YIELDS 50	      /* then sleep: 20 us, growing to 200 */
#define IDLE_MIN_NS 20000
#define IDLE_MAX_NS 200000

enum entry_kind { ENTRY_TASK, ENTRY_WAIT, ENTRY_RECORD, ENTRY_COPY };

struct stream_entry {
	enum entry_kind kind;
	bool started;		      /* TASK */
	int64_t start_ns, timeout_ms; /* TASK, once started */
	struct dn_task task;
	struct dn_event *ev; /* WAIT, RECORD: one reference */
	uint64_t seq;
	void *dst; /* COPY; src NULL = zero */
	const void *src;
	size_t bytes;
};

struct dn_event { /* dev->lock guards all but dev and name */
	struct host_device *dev;
	char name[48];
	uint64_t recorded; /* number of the latest record, 0 = never */
	uint64_t base;	   /* records up to this one are complete */
	uint64_t err_seq;  /* latest record that completed with an error, 0 = none */
	int err;
	char msg[STREAM_MSG];
	int refs;	  /* queue entries and waiting hosts */
	bool dead;	  /* destroyed: the last reference frees it */
	int records;	  /* in flight at most */
	int words;	  /* of later */
	uint64_t later[]; /* bit i: record base + 1 + i is complete too */
};

/* --- events, with the lock held --- */

static bool event_passed(const struct dn_event *ev, uint64_t seq)
{
	const uint64_t at = seq - ev->base - 1;

	return seq <= ev->base || (ev->later[at / 64] >> at % 64 & 1);
}

/* of a record that has passed; an error of a later record counts too: the data may be gone already */
static bool event_failed(const struct dn_event *ev, uint64_t seq)
{
	return seq && seq <= ev->err_seq;
}

static void event_unref(struct dn_event *ev)
{
	if (--ev->refs == 0 && ev->dead)
		dn_free(ev);
}

static void event_complete(struct dn_event *ev, uint64_t seq, int err, const char *msg)
{
	if (err && seq > ev->err_seq) {
		ev->err_seq = seq;
		ev->err = err;
		snprintf(ev->msg, sizeof(ev->msg), "%s", msg);
	}
	ev->later[(seq - ev->base - 1) / 64] |= 1ull << (seq - ev->base - 1) % 64;
	for (; ev->later[0] & 1; ev->base++)
		for (int i = 0; i < ev->words; i++)
			ev->later[i] = ev->later[i] >> 1 | (i + 1 < ev->words ? ev->later[i + 1] << 63 : 0);
	pthread_cond_broadcast(&ev->dev->done);
}

static void wait_begin(struct host_device *d, struct host_wait *w)
{
	w->next = d->waits;
	d->waits = w;
	if (d->may_run)
		pthread_cond_signal(&d->work);
}

static void wait_end(struct host_device *d, const struct host_wait *w)
{
	struct host_wait **at = &d->waits;

	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
}

bool stream_awaited(const struct host_device *d)
{
	for (const struct host_wait *w = d->waits; w; w = w->next)
		if (w->ev ? !event_passed(w->ev, w->seq) : w->st->head < w->seq)
			return true;
	return false;
}

/* What stands before the record may be many tasks, and each may take its full time: the deadline starts anew whenever a queue moves.
 * Who then is late is said by the task that waits for it; a host that gave up first could name nobody. */
static int event_wait_locked(struct dn_event *ev)
{
	struct host_device *d = ev->dev;
	uint64_t seq = ev->recorded, moves = d->moves;
	struct host_wait wait = { ev, NULL, seq, NULL };
	int64_t start, deadline = 0, waited;
	int err = 0;

	if (!event_passed(ev, seq)) {
		start = dn_now_ns();
		if (d->timeout_ms)
			deadline = start + (d->timeout_ms + HOST_GRACE_MS) * 1000000;
		ev->refs++;
		wait_begin(d, &wait);
		while (!event_passed(ev, seq) && !err) {
			err = dn_cond_wait_until(&d->done, &d->lock, deadline);
			if (d->moves == moves || !deadline)
				continue;
			moves = d->moves;
			deadline = dn_now_ns() + (d->timeout_ms + HOST_GRACE_MS) * 1000000;
			err = 0;
		}
		wait_end(d, &wait);
		waited = dn_now_ns() - start;
		d->waited_ns += waited;
		if (!event_passed(ev, seq))
			err = dn_fail(DN_EPEER_LATE, "event %s: waited %.1f s", ev->name, (double)waited * 1e-9);
		else
			err = 0;
		if (!err && event_failed(ev, seq))
			err = dn_fail(ev->err, "%s", ev->msg);
		event_unref(ev);
		return err;
	}
	return event_failed(ev, seq) ? dn_fail(ev->err, "%s", ev->msg) : 0;
}

/* --- the progress thread --- */

static void stream_stick(struct dn_stream *st, int err, const char *msg)
{
	if (st->err)
		return;
	st->err = err;
	snprintf(st->msg, sizeof(st->msg), "%s", msg);
}

static void stream_pop(struct dn_stream *st)
{
	st->head++;
	st->dev->moves++;
	pthread_cond_broadcast(&st->dev->done);
}

static int task_late(const struct dn_task *t, int64_t waited_ns)
{
	char what[STREAM_MSG / 2] = "";

	if (t->describe)
		t->describe(t->arg, what, sizeof(what));
	return dn_fail(DN_EPEER_LATE, "%s: waited %.1f s%s%s", t->label ? t->label : "task", (double)waited_ns * 1e-9,
		       *what ? ": " : "", what);
}

/* runs without the lock; the head of a busy stream is ours */
static int task_run(struct stream_entry *e, bool *done)
{
	const struct dn_task *t = &e->task;
	int64_t waited;
	int err = 0;

	*done = false;
	dn_message_clear();
	if (!e->started) {
		e->started = true;
		e->start_ns = dn_now_ns();
		if (t->start)
			err = t->start(t->arg);
	}
	if (!err) {
		if (t->poll)
			err = t->poll(t->arg, done);
		else
			*done = true;
	}
	if (!err && !*done && e->timeout_ms) {
		waited = dn_now_ns() - e->start_ns;
		if (waited > e->timeout_ms * 1000000)
			err = task_late(t, waited);
	}
	if (err && !*dn_message())
		dn_fail(err, "%s: error %d", t->label ? t->label : "task", err);
	return err;
}

/* true: the stream moved. Polling says that its head must be looked at again without a signal. */
static bool serve_outside(struct dn_stream *st, struct stream_entry *e, bool *polling)
{
	struct host_device *d = st->dev;
	bool first = e->kind == ENTRY_TASK && !e->started, done = true;
	int err = 0;

	if (first)
		e->timeout_ms = d->timeout_ms;
	st->busy = true;
	pthread_mutex_unlock(&d->lock);
	if (e->kind == ENTRY_TASK)
		err = task_run(e, &done);
	else if (e->src && e->src != e->dst)
		stream_move(e->dst, e->src, e->bytes);
	else if (!e->src)
		memset(e->dst, 0, e->bytes);
	pthread_mutex_lock(&d->lock);
	st->busy = false;
	if (err)
		stream_stick(st, err, dn_message());
	if (err || done)
		stream_pop(st);
	else
		*polling = true;
	if (st->dying)
		pthread_cond_broadcast(&d->done);
	return err || done || first;
}

static bool serve(struct dn_stream *st, bool *polling)
{
	struct stream_entry *e;

	if (st->head == st->tail || st->dying)
		return false;
	e = &st->ring[st->head % st->entries];
	switch (e->kind) {
	case ENTRY_RECORD:
		event_complete(e->ev, e->seq, st->err, st->msg);
		event_unref(e->ev);
		break;
	case ENTRY_WAIT:
		if (!st->err && !event_passed(e->ev, e->seq))
			return false; /* whoever completes the event signals us, or is us */
		if (!st->err && event_failed(e->ev, e->seq))
			stream_stick(st, e->ev->err, e->ev->msg);
		event_unref(e->ev);
		break;
	default:
		if (!st->err)
			return serve_outside(st, e, polling);
	}
	stream_pop(st);
	return true;
}

static void *progress_main(void *arg)
{
	struct host_device *d = arg;
	int64_t sleep_ns = IDLE_MIN_NS;
	int idle = 0;

	pthread_mutex_lock(&d->lock);
	while (!d->stop) {
		bool moved = false, polling = false, held = false;

		for (struct dn_stream *st = d->streams; st && !d->stop; st = st->next) {
			if (d->may_run && st->head != st->tail && !d->may_run(d, st))
				held = true;
			else
				moved |= serve(st, &polling);
		}
		if (d->stop)
			break;
		if (moved || (held && !polling && stream_awaited(d))) {
			idle = 0;
			sleep_ns = IDLE_MIN_NS;
		} else if (d->may_run && !polling) {
			dn_cond_wait_until(&d->work, &d->lock, dn_now_ns() + IDLE_MAX_NS);
		} else if (!polling) {
			idle = 0;
			pthread_cond_wait(&d->work, &d->lock);
		} else if (idle++ < IDLE_YIELDS) {
			pthread_mutex_unlock(&d->lock);
			sched_yield();
			pthread_mutex_lock(&d->lock);
		} else { /* new work ends the sleep early */
			dn_cond_wait_until(&d->work, &d->lock, dn_now_ns() + sleep_ns);
			sleep_ns = sleep_ns * 3 / 2 < IDLE_MAX_NS ? sleep_ns * 3 / 2 : IDLE_MAX_NS;
		}
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

static int progress_start(struct host_device *d)
{
	sigset_t all, old;
	int err;

	if (d->running)
		return 0;
	sigfillset(&all); /* signals belong to the program's own threads */
	pthread_sigmask(SIG_BLOCK, &all, &old);
	err = pthread_create(&d->thread, NULL, progress_main, d);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return dn_fail(-err, "progress thread: %s", strerror(err));
	d->running = true;
	return 0;
}

/* --- streams --- */

int stream_create(struct dn_device *dev, enum dn_stream_kind kind, const char *name, int entries, struct dn_stream **out)
{
	return stream_create_queue(dev, kind, name, kind == DN_STREAM_COMM ? entries : -1, out);
}

int stream_create_queue(struct dn_device *dev, enum dn_stream_kind kind, const char *name, int entries, struct dn_stream **out)
{
	struct host_device *d = (struct host_device *)dev;
	struct dn_stream *st, **at;
	int err = 0;

	if (!entries || entries > MAX_ENTRIES)
		return dn_fail(-EINVAL, "stream %s: a queue of %d entries, must be 1 to %d", name, entries, MAX_ENTRIES);
	st = dn_zalloc(sizeof(*st));
	if (!st)
		return -ENOMEM;
	st->dev = d;
	st->kind = kind;
	snprintf(st->name, sizeof(st->name), "%s", name ? name : "?");
	if (entries > 0) {
		st->entries = (unsigned)entries;
		st->ring = dn_calloc(st->entries, sizeof(*st->ring));
		if (!st->ring) {
			dn_free(st);
			return -ENOMEM;
		}
		pthread_mutex_lock(&d->lock);
		err = progress_start(d);
		if (!err) {
			for (at = &d->streams; *at; at = &(*at)->next)
				;
			*at = st;
		}
		pthread_mutex_unlock(&d->lock);
	}
	if (err) {
		dn_free(st->ring);
		dn_free(st);
		return err;
	}
	*out = st;
	return 0;
}

/* with the lock */
static void stream_drop(struct dn_stream *st, const char *why)
{
	struct host_device *d = st->dev;
	char msg[128];

	st->dying = true;
	while (st->busy)
		pthread_cond_wait(&d->done, &d->lock);
	st->dying = false;
	snprintf(msg, sizeof(msg), "stream %s was %s", st->name, why);
	stream_stick(st, -ECANCELED, msg);
	for (; st->head != st->tail; st->head++) {
		struct stream_entry *e = &st->ring[st->head % st->entries];

		if (e->kind == ENTRY_RECORD)
			event_complete(e->ev, e->seq, st->err, st->msg);
		if (e->kind == ENTRY_RECORD || e->kind == ENTRY_WAIT)
			event_unref(e->ev);
	}
	pthread_cond_broadcast(&d->done);
	pthread_cond_signal(&d->work); /* others may wait for those events */
}

void stream_abort(struct dn_stream *st)
{
	if (!st || !st->ring)
		return;
	pthread_mutex_lock(&st->dev->lock);
	stream_drop(st, "aborted");
	pthread_mutex_unlock(&st->dev->lock);
}

void stream_destroy(struct dn_stream *st)
{
	struct dn_stream **at;

	if (!st)
		return;
	if (st->ring) {
		pthread_mutex_lock(&st->dev->lock);
		stream_drop(st, "destroyed");
		for (at = &st->dev->streams; *at != st; at = &(*at)->next)
			;
		*at = st->next;
		pthread_mutex_unlock(&st->dev->lock);
		dn_free(st->ring);
	}
	dn_free(st);
}

/* with the lock: the next free entry, zeroed, or NULL with a message; not queued before stream_push() */
static struct stream_entry *stream_slot(struct dn_stream *st, enum entry_kind kind)
{
	struct stream_entry *e;

	if (st->tail - st->head >= st->entries) {
		dn_fail(-EAGAIN, "stream %s: its queue is full (%u entries)", st->name, st->entries);
		return NULL;
	}
	e = &st->ring[st->tail % st->entries];
	memset(e, 0, sizeof(*e));
	e->kind = kind;
	return e;
}

static void stream_push(struct dn_stream *st)
{
	st->tail++;
	if (!st->dev->may_run || st->dev->waits) /* who holds work back looks by the clock */
		pthread_cond_signal(&st->dev->work);
}

/* behind what is queued already; the error of a stream that has failed */
static int stream_queue(struct dn_stream *st, const struct stream_entry *entry)
{
	struct host_device *d = st->dev;
	struct stream_entry *e;
	int err;

	pthread_mutex_lock(&d->lock);
	err = st->err ? dn_fail(st->err, "%s", st->msg) : 0;
	if (!err) {
		e = stream_slot(st, entry->kind);
		if (e) {
			*e = *entry;
			stream_push(st);
		} else {
			err = -EAGAIN;
		}
	}
	pthread_mutex_unlock(&d->lock);
	return err;
}

static int stream_bytes(struct dn_stream *st, void *dst, const void *src, size_t bytes)
{
	const struct stream_entry e = { .kind = ENTRY_COPY, .dst = dst, .src = src, .bytes = bytes };

	return stream_queue(st, &e);
}

/* where there is a queue it queues, unless one of its own tasks asks */
static bool stream_queues(struct dn_stream *st)
{
	return st->ring && (st->from_tasks || !pthread_equal(pthread_self(), st->dev->thread));
}

int stream_copy(struct dn_stream *st, void *dst, const void *src, size_t bytes)
{
	if (!bytes)
		return 0;
	if (stream_queues(st))
		return stream_bytes(st, dst, src, bytes);
	if (dst != src)
		stream_move(dst, src, bytes);
	return 0;
}

int stream_zero(struct dn_stream *st, void *dst, size_t bytes)
{
	if (!bytes)
		return 0;
	if (stream_queues(st))
		return stream_bytes(st, dst, NULL, bytes);
	memset(dst, 0, bytes);
	return 0;
}

int stream_push_task(struct dn_stream *st, const struct dn_task *task)
{
	const struct stream_entry e = { .kind = ENTRY_TASK, .task = *task };

	return stream_queue(st, &e);
}

int stream_submit(struct dn_stream *st, const struct dn_task *task)
{
	if (st->kind != DN_STREAM_COMM)
		return dn_fail(-EINVAL, "stream %s: tasks need a communication stream", st->name);
	return stream_push_task(st, task);
}

/* Every task may take its full time, so the deadline starts anew whenever a queue moves: the head may be a wait for another queue. */
int stream_sync(struct dn_stream *st)
{
	struct host_device *d = st->dev;
	struct host_wait wait = { NULL, st, 0, NULL };
	uint64_t goal, moves;
	int64_t start, deadline = 0;
	int err = 0;

	if (!st->ring)
		return 0;
	pthread_mutex_lock(&d->lock);
	wait.seq = goal = st->tail;
	wait_begin(d, &wait);
	moves = d->moves;
	start = dn_now_ns();
	if (d->timeout_ms)
		deadline = start + (d->timeout_ms + HOST_GRACE_MS) * 1000000;
	while (st->head < goal) {
		err = dn_cond_wait_until(&d->done, &d->lock, deadline);
		if (d->moves != moves) {
			moves = d->moves;
			start = dn_now_ns();
			if (deadline)
				deadline = start + (d->timeout_ms + HOST_GRACE_MS) * 1000000;
		} else if (err) {
			break;
		}
	}
	wait_end(d, &wait);
	if (st->err)
		err = dn_fail(st->err, "%s", st->msg);
	else if (st->head < goal)
		err = dn_fail(DN_EPEER_LATE, "stream %s: waited %.1f s", st->name, (double)(dn_now_ns() - start) * 1e-9);
	else
		err = 0;
	pthread_mutex_unlock(&d->lock);
	return err;
}

/* --- events --- */

int stream_event_create(struct dn_device *dev, const char *name, int records, struct dn_event **out)
{
	struct dn_event *ev;
	int words;

	if (records < 1 || records > MAX_ENTRIES)
		return dn_fail(-EINVAL, "event %s: %d records in flight, must be 1 to %d", name, records, MAX_ENTRIES);
	words = (records + 63) / 64;
	ev = dn_zalloc(sizeof(*ev) + sizeof(ev->later[0]) * (size_t)words);
	if (!ev)
		return -ENOMEM;
	ev->records = records;
	ev->words = words;
	ev->dev = (struct host_device *)dev;
	snprintf(ev->name, sizeof(ev->name), "%s", name ? name : "?");
	*out = ev;
	return 0;
}

void stream_event_destroy(struct dn_event *ev)
{
	struct host_device *d;

	if (!ev)
		return;
	d = ev->dev;
	pthread_mutex_lock(&d->lock);
	ev->dead = true;
	ev->refs++;
	event_unref(ev);
	pthread_mutex_unlock(&d->lock);
}

int stream_event_record(struct dn_event *ev, struct dn_stream *st)
{
	struct host_device *d = ev->dev;
	struct stream_entry *e;
	int err = 0;

	if (st->dev != d)
		return dn_fail(-EINVAL, "event %s: stream %s belongs to another device", ev->name, st->name);
	pthread_mutex_lock(&d->lock);
	if (ev->recorded - ev->base >= (uint64_t)ev->records) {
		err = dn_fail(-EAGAIN, "event %s: %d records are in flight, at most %d may be", ev->name,
			      (int)(ev->recorded - ev->base), ev->records);
	} else if (!stream_queues(st)) {
		ev->recorded++;
		event_complete(ev, ev->recorded, 0, "");
		pthread_cond_signal(&d->work);
	} else {
		e = stream_slot(st, ENTRY_RECORD);
		if (e) {
			e->ev = ev;
			e->seq = ++ev->recorded;
			ev->refs++;
			stream_push(st);
		} else {
			err = -EAGAIN;
		}
	}
	pthread_mutex_unlock(&d->lock);
	return err;
}

int stream_wait(struct dn_stream *st, struct dn_event *ev)
{
	struct host_device *d = ev->dev;
	struct stream_entry *e;
	int err = 0;

	if (st->dev != d)
		return dn_fail(-EINVAL, "event %s: stream %s belongs to another device", ev->name, st->name);
	pthread_mutex_lock(&d->lock);
	if (!st->ring) {
		err = event_wait_locked(ev);
	} else if (st->err) {
		err = dn_fail(st->err, "%s", st->msg);
	} else if (!event_passed(ev, ev->recorded) || event_failed(ev, ev->recorded)) {
		e = stream_slot(st, ENTRY_WAIT);
		if (e) {
			e->ev = ev;
			e->seq = ev->recorded;
			ev->refs++;
			stream_push(st);
		} else {
			err = -EAGAIN;
		}
	}
	pthread_mutex_unlock(&d->lock);
	return err;
}

int stream_event_wait(struct dn_event *ev)
{
	int err;

	pthread_mutex_lock(&ev->dev->lock);
	err = event_wait_locked(ev);
	pthread_mutex_unlock(&ev->dev->lock);
	return err;
}

bool stream_event_done(struct dn_event *ev)
{
	bool done;

	pthread_mutex_lock(&ev->dev->lock);
	done = event_passed(ev, ev->recorded);
	pthread_mutex_unlock(&ev->dev->lock);
	return done;
}
