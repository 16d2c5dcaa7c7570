/* A back end for tests that is far away: ref's ops behind the worst device that the contract allows.
 *
 * Device addresses are no memory: whoever touches one but an op faults, and a message tells region and byte. Work is late: it
 * begins when a host waits for it, or long after, in an order among the streams that is drawn from a seed and that only
 * events bind; some ops run beside those of other streams (aside.c). Memory is poisoned until it is written and once it is given
 * back, and so is host memory that a copy under way will write. What breaks the contract in a way that bits would not tell (memory
 * given back under work that has not run, host memory changed under a copy, a host pointer handed to an op) ends the program with
 * a message that begins with "far: ".
 *
 * FAR_SEED chooses the order; FAR_PATIENCE_MS (2) is how late work is that nobody waits for. DARKNET_TEST_BACKEND=far makes it the default of a program that it is linked to.
 */
#ifndef TESTS_FAR_H
#define TESTS_FAR_H
#include "backend/host/stream.h"
#include "base/rng.h"

#define FAR_POISON 0xffffdeadu /* NaN as float, and twice as double */

extern struct dn_backend far_table;
extern const struct dn_backend *far_ref; /* who computes */

struct far_device {
	struct host_device host; /* first */
	struct far_device *next; /* of those that are open */
	uint64_t seed, drawn;	 /* numbers drawn so far */
	int64_t moved_ns;	 /* when work last ran */
	int64_t patience_ns;	 /* without a waiting host, work begins after that */
	int burst;		 /* entries that may run although nobody waits */
};

#define FAR_ARGS 192  /* bytes of an op's arguments */
#define FAR_EXTRA 768 /* bytes of what they point at */
#define FAR_PTRS 16

struct far_copy {   /* the host's side of one */
	void *host; /* NULL: none */
	size_t bytes;
	bool to_host;
	uint64_t hash; /* of what must be there when it runs */
	bool checked;
};

struct far_entry { /* an op that is queued; it lies in the place of its stream's ring */
	struct dn_stream *st;
	const char *name; /* NULL: nothing is here */
	uint64_t seq;	  /* its number on the stream: others may have the place by now */
	char args[FAR_ARGS] __attribute__((aligned(16)));
	char extra[FAR_EXTRA] __attribute__((aligned(16)));
	size_t used; /* of extra */
	int n_ptrs;
	const void *ptrs[FAR_PTRS]; /* memory and objects that it names, as they were given */
	struct far_copy copy;
	struct dn_task task;	 /* a user's, which runs as an entry of its own */
	int (*run)(void *entry); /* what an op does */
	bool aside;		 /* its stream's worker does it */
};

struct far_worker { /* of a stream; does one op at a time */
	pthread_t thread;
	bool made;	      /* with the first op */
	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t changed;
	struct far_entry *entry; /* NULL: idle */
	bool stop;
	int err; /* of the last op, with its message */
	char msg[STREAM_MSG];
};

struct far_stream {
	struct dn_stream *inner;   /* COMM: what tasks queue */
	struct far_entry *entries; /* [ring] */
	struct far_worker worker;
	unsigned eager; /* of 256 chances to run */
	int turns;	/* until another is drawn */
};

/* memory.c */
int far_alloc(struct dn_device *dev, enum dn_region r, size_t bytes, void **out);
void far_free(struct dn_device *dev, void *p);
int far_alloc_host(struct dn_device *dev, enum dn_region r, size_t bytes, void **out);
void far_free_host(struct dn_device *dev, void *p);
/** far_real() - where bytes [p, p + bytes) of the device lie; for @op's argument @arg */
void *far_real(const struct dn_device *dev, const void *p, size_t bytes, const char *op, const char *arg);
/** far_side() - one side of a copy: device or host memory; *host tells */
void *far_side(const struct dn_device *dev, const void *p, size_t bytes, const char *arg, bool *host);
void far_poison(void *p, size_t bytes);
void far_watch(void); /* faults on device addresses get their message */
uint64_t far_random(struct far_device *d, uint64_t below);

/* order.c */
void far_device_add(struct far_device *d);
void far_device_remove(struct far_device *d);
bool far_may_run(struct host_device *d, struct dn_stream *st);
int far_stream_create(struct dn_device *dev, enum dn_stream_kind kind, const char *name, int entries, struct dn_stream **out);
void far_stream_abort(struct dn_stream *st);
void far_stream_destroy(struct dn_stream *st);
int far_event_record(struct dn_event *ev, struct dn_stream *st);
int far_stream_wait(struct dn_stream *st, struct dn_event *ev);
int far_stream_submit(struct dn_stream *st, const struct dn_task *task);
/** far_begin() - an entry for an op on @st; the error of a stream that has failed. far_end() queues it. */
int far_begin(struct dn_stream *st, const char *name, struct far_entry **out);
int far_end(struct far_entry *e, int (*run)(void *entry));
/** far_user() - the entry that has not run and names any of [p, p + bytes); NULL = nobody */
const struct far_entry *far_user(const struct dn_device *dev, const void *p, size_t bytes);
/** far_user_anywhere() - the same for an object, on any device */
const struct far_entry *far_user_anywhere(const void *p);
/** far_pending() - does a copy that has not run have its host's side in here? */
bool far_pending(const struct dn_device *dev, const void *p, size_t bytes);

/* aside.c: start and poll of an op's entry, and the worker that may do it */
int far_op_start(void *entry);
int far_op_poll(void *entry, bool *done);
void far_worker_init(struct far_worker *w);
void far_worker_wait(struct far_worker *w); /* nothing of it touches memory afterwards, if its stream has been aborted */
void far_worker_fini(struct far_worker *w);

/* ops.c */
void far_ops(struct dn_backend *be);

/** far_broken() - the contract was broken: says how, and ends the program */
_Noreturn void far_broken(const char *fmt, ...) DN_PRINTF(1, 2);
#endif
