/* The far device's order: streams whose work is late, in turns that are drawn. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "base/thread.h"
#include "far.h"

#define RING 1024 /* entries of a compute stream, and of what tasks queue */

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static struct far_device *devices;

void far_device_add(struct far_device *d)
{
	pthread_mutex_lock(&devices_lock);
	d->next = devices;
	devices = d;
	pthread_mutex_unlock(&devices_lock);
}

void far_device_remove(struct far_device *d)
{
	struct far_device **at = &devices;

	pthread_mutex_lock(&devices_lock);
	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	pthread_mutex_unlock(&devices_lock);
}

/* --- in which order --- */

uint64_t far_random(struct far_device *d, uint64_t below)
{
	return dn_rng_below(d->seed, 77, d->drawn++, below);
}

/* With the lock held. Nobody waits: nothing runs, but after a long while a few entries. Else each stream gets its chances by
 * its eagerness, which changes now and then: one stream may be far ahead of another, either way round. */
bool far_may_run(struct host_device *h, struct dn_stream *st)
{
	static const unsigned eagerness[] = { 3, 60, 250 };
	struct far_device *d = (struct far_device *)h;
	struct far_stream *f = st->priv;
	int64_t now;

	if (!stream_awaited(h) && !d->burst) {
		now = dn_now_ns();
		if (now - d->moved_ns < d->patience_ns)
			return false;
		d->burst = 1 + (int)far_random(d, 12);
	}
	if (f->turns-- <= 0) {
		f->turns = 1 + (int)far_random(d, 24);
		f->eager = eagerness[far_random(d, 3)];
	}
	if (far_random(d, 256) >= f->eager)
		return false;
	if (!stream_awaited(h)) {
		d->burst--;
		d->moved_ns = dn_now_ns();
	}
	return true;
}

/* --- streams --- */

static void free_stream(struct dn_stream *st)
{
	struct far_stream *f = st ? st->priv : NULL;

	if (!st)
		return;
	stream_abort(st);
	far_worker_fini(&f->worker); /* its op names the stream */
	stream_destroy(st);
	free(f->entries);
	free(f);
}

static int make_stream(struct dn_device *dev, enum dn_stream_kind kind, const char *name, int entries, struct dn_stream **out)
{
	struct far_stream *f = calloc(1, sizeof(*f));
	int err;

	if (f)
		f->entries = calloc((size_t)(entries > 0 ? entries : 1), sizeof(*f->entries));
	if (!f || !f->entries)
		far_broken("no memory for a stream");
	err = stream_create_queue(dev, kind, name, entries, out);
	if (err) {
		free(f->entries);
		free(f);
		return err;
	}
	far_worker_init(&f->worker);
	(*out)->priv = f; /* before anything is queued, so before the gate asks */
	return 0;
}

int far_stream_create(struct dn_device *dev, enum dn_stream_kind kind, const char *name, int entries, struct dn_stream **out)
{
	int err = make_stream(dev, kind, name, kind == DN_STREAM_COMM ? entries : RING, out);

	if (err || kind != DN_STREAM_COMM)
		return err;
	err = make_stream(dev, kind, name, RING, &((struct far_stream *)(*out)->priv)->inner);
	if (err)
		free_stream(*out);
	else
		((struct far_stream *)(*out)->priv)->inner->from_tasks = true;
	return err;
}

void far_stream_abort(struct dn_stream *st)
{
	struct far_stream *f = st ? st->priv : NULL;

	if (!st)
		return;
	stream_abort(st);
	far_worker_wait(&f->worker);
	if (f->inner)
		far_stream_abort(f->inner);
}

void far_stream_destroy(struct dn_stream *st)
{
	struct dn_stream *inner;

	if (!st)
		return;
	inner = ((struct far_stream *)st->priv)->inner;
	far_stream_abort(st);
	free_stream(inner);
	free_stream(st);
}

/* where work on @st goes: that of a task of its own comes before all that is queued */
static struct dn_stream *target(struct dn_stream *st)
{
	struct far_stream *f = st->priv;

	return f->inner && pthread_equal(pthread_self(), st->dev->thread) ? f->inner : st;
}

/* A compute stream's queue that is nearly full holds the caller. */
static int make_room(struct dn_stream *st)
{
	uint64_t used;

	pthread_mutex_lock(&st->dev->lock);
	used = st->tail - st->head;
	pthread_mutex_unlock(&st->dev->lock);
	return st->kind == DN_STREAM_COMPUTE && used + 2 > st->entries ? stream_sync(st) : 0;
}

int far_event_record(struct dn_event *ev, struct dn_stream *st)
{
	(void)make_room(st); /* a failed stream's records complete with its failure */
	return stream_event_record(ev, target(st));
}

int far_stream_wait(struct dn_stream *st, struct dn_event *ev)
{
	int err = make_room(st);

	return err ? err : stream_wait(target(st), ev);
}

/* --- entries --- */

/* One thread queues on a stream at a time, so the place of the next entry is known before it is queued. */
int far_begin(struct dn_stream *st, const char *name, struct far_entry **out)
{
	struct far_stream *f;
	struct far_entry *e;
	int err;

	st = target(st);
	f = st->priv;
	err = make_room(st);
	if (err)
		return err;
	pthread_mutex_lock(&st->dev->lock);
	if (st->err)
		err = dn_fail(st->err, "%s", st->msg);
	else if (st->tail - st->head >= st->entries)
		err = dn_fail(-EAGAIN, "stream %s: its queue is full (%u entries)", st->name, st->entries);
	e = &f->entries[st->tail % st->entries];
	pthread_mutex_unlock(&st->dev->lock);
	if (err)
		return err;
	e->st = st;
	e->name = name;
	e->seq = st->tail; /* this thread's alone */
	e->used = 0;
	e->n_ptrs = 0;
	e->copy.host = NULL;
	*out = e;
	return 0;
}

int far_end(struct far_entry *e, int (*run)(void *entry))
{
	const struct dn_task t = { .start = far_op_start, .poll = far_op_poll, .arg = e, .label = e->name };
	int err;

	e->run = run;
	err = stream_push_task(e->st, &t);
	if (err)
		e->name = NULL; /* nobody's place */
	return err;
}

/* --- tasks of others --- */

static void check_ended(const struct far_entry *e)
{
	struct dn_stream *inner = ((struct far_stream *)e->st->priv)->inner;
	const char *left = NULL;

	pthread_mutex_lock(&inner->dev->lock);
	if (inner->head != inner->tail && !inner->err)
		left = ((struct far_stream *)inner->priv)->entries[inner->head % inner->entries].name;
	pthread_mutex_unlock(&inner->dev->lock);
	if (left)
		far_broken("stream %s: task \"%s\" is done before work that it queued has run: %s", e->st->name,
			   e->task.label ? e->task.label : "?", left);
}

static int task_start(void *arg)
{
	struct far_entry *e = arg;
	int err = e->task.start ? e->task.start(e->task.arg) : 0;

	if (!err && !e->task.poll)
		check_ended(e);
	return err;
}

static int task_poll(void *arg, bool *done)
{
	struct far_entry *e = arg;
	int err = e->task.poll(e->task.arg, done);

	if (!err && *done)
		check_ended(e);
	return err;
}

static void task_describe(void *arg, char *out, size_t cap)
{
	struct far_entry *e = arg;

	e->task.describe(e->task.arg, out, cap);
}

int far_stream_submit(struct dn_stream *st, const struct dn_task *task)
{
	struct far_entry *e;
	struct dn_task t;
	int err;

	if (st->kind != DN_STREAM_COMM)
		return stream_submit(st, task); /* says what is wrong */
	err = far_begin(st, task->label ? task->label : "task", &e);
	if (err)
		return err;
	e->task = *task;
	t = (struct dn_task){ task_start, task->poll ? task_poll : NULL, task->describe ? task_describe : NULL, e, task->label };
	err = stream_push_task(e->st, &t);
	if (err)
		e->name = NULL;
	return err;
}

/* --- who has not run --- */

static const struct far_entry *search(const struct dn_device *dev, bool (*hit)(const struct far_entry *, const char *, size_t),
				      const void *p, size_t bytes)
{
	struct host_device *d = (struct host_device *)(uintptr_t)dev;
	const struct far_entry *found = NULL;

	pthread_mutex_lock(&d->lock);
	for (const struct dn_stream *st = d->streams; st && !found; st = st->next) {
		const struct far_stream *f = st->priv;

		for (uint64_t k = st->head; k < st->tail && !found; k++) {
			const struct far_entry *e = &f->entries[k % st->entries];

			if (e->name && e->seq == k && hit(e, p, bytes))
				found = e;
		}
	}
	pthread_mutex_unlock(&d->lock);
	return found;
}

static bool names(const struct far_entry *e, const char *p, size_t bytes)
{
	for (int i = 0; i < e->n_ptrs; i++)
		if ((const char *)e->ptrs[i] >= p && (const char *)e->ptrs[i] < p + bytes)
			return true;
	return false;
}

static bool copies(const struct far_entry *e, const char *p, size_t bytes)
{
	return e->copy.host && (const char *)e->copy.host < p + bytes && p < (const char *)e->copy.host + e->copy.bytes;
}

const struct far_entry *far_user(const struct dn_device *dev, const void *p, size_t bytes)
{
	return search(dev, names, p, bytes);
}

const struct far_entry *far_user_anywhere(const void *p)
{
	const struct far_entry *e = NULL;

	pthread_mutex_lock(&devices_lock);
	for (const struct far_device *d = devices; d && !e; d = d->next)
		e = far_user(&d->host.dev, p, 1);
	pthread_mutex_unlock(&devices_lock);
	return e;
}

bool far_pending(const struct dn_device *dev, const void *p, size_t bytes)
{
	return search(dev, copies, p, bytes) != NULL;
}
