/* Transport and collectives. A channel is an ordered, reliable pipe between every pair of ranks; each queue (gather,
 * reduce, control) has its own, so that they never block one another. coll_local.c connects ranks in one process (tests,
 * and a run of one rank), coll_mpi.c processes. collective.c writes every collective once over channels, as tasks for a
 * communication stream.
 */
#ifndef FSDP_COLL_H
#define FSDP_COLL_H
#include "plugin/plugin.h"

struct fsdp_channel;
struct fsdp_watch;
struct fsdp_request {
	uint64_t h[2];
	bool active;
}; /* room for the transport's handle */

struct fsdp_channel_ops {
	/* Non-blocking; messages of one pair on one channel arrive in order; sizes of both sides must be equal (a difference is an
	 * error naming both ranks). bytes <= 64 MiB a message. */
	int (*send)(struct fsdp_channel *c, int peer, const void *p, size_t bytes, struct fsdp_request *q);
	int (*recv)(struct fsdp_channel *c, int peer, void *p, size_t bytes, struct fsdp_request *q);
	int (*test)(struct fsdp_channel *c, struct fsdp_request *q, bool *done); /* done: q->active becomes false */
	void (*destroy)(struct fsdp_channel *c);				 /* never waits for peers */
};

struct fsdp_channel {
	const struct fsdp_channel_ops *ops;
	int rank, world;
	const int *pids;	  /* [world] of ranks on this host, 0 elsewhere; borrowed, may be NULL */
	struct fsdp_watch *watch; /* knows whether this process itself stood still; borrowed, may be NULL */
};

#define FSDP_MESSAGE_MAX (64u << 20) /* bytes */

/** fsdp_missing() - "waiting for rank 1, 3" into @out: the ranks for which late(arg, rank) holds. When processes of
 * this host are stopped or gone, only those are named: the others wait for them too. A process that was stopped itself and goes on finds everybody late: it
 * says so and names nobody. */
void fsdp_missing(const struct fsdp_channel *c, bool (*late)(const void *arg, int peer), const void *arg, char *out, size_t cap);

/* coll_local.c: a hub for @world in-process ranks; each rank opens its channels in the same order */
struct fsdp_hub;
int fsdp_hub_create(struct fsdp_hub **out, int world);
void fsdp_hub_destroy(struct fsdp_hub *h);
int fsdp_local_channel(struct fsdp_hub *h, int rank, int number, struct fsdp_channel **out);

/* coll_mpi.c */
int fsdp_mpi_channel(struct fsdp_channel **out); /* duplicates the world communicator; collective */

/* what a queue has sent; written by the thread that runs its tasks, read by others when the queue is idle */
struct fsdp_count {
	uint64_t bytes, calls;
};

/* --- collective.c: prepared operations. init sets all pointers up once, so that a step allocates nothing; each
 * has the three functions of a dn_task over its struct (start, poll, describe). --- */

/* All-gather in place of a slot: rank r's shard (len elements) arrives at slot + r * len on every rank. */
struct fsdp_gather {
	struct fsdp_channel *ch;
	const float *shard;
	float *slot;
	int64_t len;		  /* elements a rank */
	struct fsdp_request *req; /* private */
	int n_req;
	struct fsdp_count *count; /* grows by every complete run; may be NULL */
	uint64_t sent_bytes;	  /* of the last run */
};
int fsdp_gather_init(struct fsdp_gather *g, struct fsdp_channel *ch, int64_t max_len);
void fsdp_gather_fini(struct fsdp_gather *g);
int fsdp_gather_start(void *arg);
int fsdp_gather_poll(void *arg, bool *done);
void fsdp_gather_describe(void *arg, char *out, size_t cap);

/* Reduce-scatter by exchange of pieces and a local sum by the fixed tree: out[0..len) (= or +=) the sum over ranks q of
 * q's in[rank * len ...). */
struct fsdp_reduce {
	struct fsdp_channel *ch;
	const struct dn_backend *be; /* for sum_tree on @st */
	struct dn_stream *st;
	const float *in; /* world * len */
	float *out;
	int64_t len;
	bool acc;
	float *staging; /* 2 * (world - 1) pieces */
	size_t piece_bytes;
	struct fsdp_count *count; /* grows by every complete run; may be NULL */
	uint64_t sent_bytes;	  /* of the last run */
	/* private */
	struct fsdp_request *req; /* [2 sets][world][send, recv] */
	int64_t next, summed;	  /* pieces posted, pieces summed */
};
int fsdp_reduce_init(struct fsdp_reduce *r, struct fsdp_channel *ch, const struct dn_backend *be, struct dn_stream *st,
		     float *staging, size_t piece_bytes);
void fsdp_reduce_fini(struct fsdp_reduce *r);
int fsdp_reduce_start(void *arg);
int fsdp_reduce_poll(void *arg, bool *done);
void fsdp_reduce_describe(void *arg, char *out, size_t cap);

/* Exchange of small vectors: every rank sends @mine (n elements) to all others; the others' arrive at
 * in + k * n, k counting the other ranks in order. */
struct fsdp_exchange {
	struct fsdp_channel *ch;
	const float *mine;
	float *in; /* (world - 1) * n */
	int64_t n;
	struct fsdp_request *req; /* private */
};
int fsdp_exchange_init(struct fsdp_exchange *x, struct fsdp_channel *ch, const float *mine, float *in, int64_t n);
void fsdp_exchange_fini(struct fsdp_exchange *x);
int fsdp_exchange_start(void *arg);
int fsdp_exchange_poll(void *arg, bool *done);
void fsdp_exchange_describe(void *arg, char *out, size_t cap);
#endif
