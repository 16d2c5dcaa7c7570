/* Transport. A channel is an ordered, reliable pipe between every pair of ranks; each queue (gather, reduce, control) has its
 * own, so that they never block one another. coll_local.c connects ranks in one process (tests, and a run of one rank),
 * coll_mpi.c processes.
 */
#ifndef FSDP_CHANNEL_H
#define FSDP_CHANNEL_H
#include "comm/host.h"

struct fsdp_channel;
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
	int (*any)(struct fsdp_channel *c, int *peer); /* one that has sent what is not yet received, -1 = none */
	void (*destroy)(struct fsdp_channel *c);       /* never waits for peers */
	bool forgets; /* destroy forgets messages under way; else their memory stays as long as the process */
};

struct fsdp_channel {
	const struct fsdp_channel_ops *ops;
	int rank, world;
	const struct fsdp_host *host; /* borrowed, may be NULL */
};

#define FSDP_MESSAGE_MAX (64u << 20) /* bytes */

/** fsdp_missing() - "waiting for rank 1, 3" into @out, as fsdp_host_waiting() does */
static inline void fsdp_missing(const struct fsdp_channel *c, bool (*late)(const void *arg, int peer), const void *arg, char *out,
				size_t cap)
{
	fsdp_host_waiting(c->host, c->rank, c->world, late, arg, out, cap);
}

/* coll_local.c: a hub for @world in-process ranks; each rank opens its channels in the same order */
struct fsdp_hub;
int fsdp_hub_create(struct fsdp_hub **out, int world);
void fsdp_hub_destroy(struct fsdp_hub *h);
int fsdp_local_channel(struct fsdp_hub *h, int rank, int number, struct fsdp_channel **out);

/* coll_mpi.c */
int fsdp_mpi_channel(struct fsdp_channel **out); /* duplicates the world communicator; collective */
#endif
