/* The host side that every back end uses: streams, events, progress thread, host memory. Stays in the room. */
#ifndef DN_BACKEND_HOST_STREAM_H
#define DN_BACKEND_HOST_STREAM_H
#include <pthread.h>
#include "backend/backend.h"

#define STREAM_MSG 1024 /* bytes of a kept error message */

struct host_device {
	struct dn_device dev;	   /* first: what the contract hands around */
	pthread_mutex_t lock;	   /* guards all below, and every stream and event of the device */
	pthread_cond_t work;	   /* progress thread: something was queued or recorded, or stop */
	pthread_cond_t done;	   /* hosts: an entry ended, an event completed, a stream is not busy */
	pthread_t thread;	   /* the progress thread; started with the first COMM stream */
	bool running;		   /* thread exists */
	bool stop;		   /* thread shall end */
	uint64_t moves;		   /* entries of all streams that have ended */
	int64_t timeout_ms;	   /* of later tasks and waits, 0 = none */
	int64_t waited_ns;	   /* by compute streams and hosts for events */
	struct dn_stream *streams; /* those with queues, in order of creation */
	struct host_wait *waits;   /* hosts that wait for an event or a stream */
	/* may the head of @st be looked at now? Asked with the lock held; NULL = always. A device whose work shall be late or in
	 * an order of its own says no for a while; it must not say no for ever. */
	bool (*may_run)(struct host_device *d, struct dn_stream *st);
};

struct host_wait { /* on the stack of who waits: for a record of an event, or for a stream's entries up to @seq */
	const struct dn_event *ev;
	const struct dn_stream *st;
	uint64_t seq;
	struct host_wait *next;
};

struct stream_entry;

struct dn_stream {
	struct host_device *dev; /* const after create, as kind and name */
	enum dn_stream_kind kind;
	char name[48];
	unsigned entries;	   /* of the ring */
	struct stream_entry *ring; /* NULL: no queue, work runs in the caller */
	struct dn_stream *next;	   /* all below and the ring: dev->lock; the progress thread alone changes a started head */
	uint64_t head, tail;	   /* entries ended and queued so far */
	bool busy;		   /* the progress thread runs its head, without the lock */
	bool dying;		   /* somebody waits for busy to end */
	bool from_tasks;	   /* no task of its own: what tasks queue here is queued */
	void *priv;		   /* the back end's */
	int err;		   /* the first failure, sticks */
	char msg[STREAM_MSG];
};

/* device.c */
int stream_device_init(struct host_device *d, const struct dn_backend *be, const struct dn_device_desc *desc);
void stream_device_fini(struct host_device *d);

int stream_memory(struct dn_device *dev, size_t *free_bytes, size_t *total_bytes);
int stream_alloc(struct dn_device *dev, enum dn_region r, size_t bytes, void **out);
void stream_free(struct dn_device *dev, void *p);
void stream_set_timeout(struct dn_device *dev, int64_t timeout_ms);
int64_t stream_waited_ns(const struct dn_device *dev);

/* copy.c */
void stream_move(void *dst, const void *src, size_t bytes); /* they do not overlap */

/* stream.c */
int stream_copy(struct dn_stream *st, void *dst, const void *src, size_t bytes);
int stream_zero(struct dn_stream *st, void *dst, size_t bytes);
int stream_create(struct dn_device *dev, enum dn_stream_kind kind, const char *name, int entries, struct dn_stream **out);
/** stream_create_queue() - of any kind, with a queue of its own; entries -1: none */
int stream_create_queue(struct dn_device *dev, enum dn_stream_kind kind, const char *name, int entries, struct dn_stream **out);
void stream_abort(struct dn_stream *st);
void stream_destroy(struct dn_stream *st);
int stream_event_create(struct dn_device *dev, const char *name, int records, struct dn_event **out);
void stream_event_destroy(struct dn_event *ev);
int stream_event_record(struct dn_event *ev, struct dn_stream *st);
int stream_wait(struct dn_stream *st, struct dn_event *ev);
int stream_event_wait(struct dn_event *ev);
bool stream_event_done(struct dn_event *ev);
int stream_submit(struct dn_stream *st, const struct dn_task *task);
/** stream_push_task() - the same on any stream that has a queue */
int stream_push_task(struct dn_stream *st, const struct dn_task *task);
/** stream_awaited() - does a host wait for what has not come yet? with the lock held */
bool stream_awaited(const struct host_device *d);
int stream_sync(struct dn_stream *st);

/** stream_threads() - threads for an op on @st: COMM work shares the cores with compute, so it takes one */
static inline int stream_threads(const struct dn_stream *st)
{
	return st->kind == DN_STREAM_COMM ? 1 : st->dev->dev.threads;
}

#endif
