/* Transport. A channel is an ordered, reliable pipe between every pair of a group of ranks; each kind of collective and control
 * have their own, so that they never block one another. coll_local.c connects ranks in one process (tests, and a run of one rank),
 * coll_mpi.c processes. Members are numbered within their group; messages name them by their ranks in the world.
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
	/* as test for all that are active in q[0..n), at once; *all: none is any more */
	int (*test_many)(struct fsdp_channel *c, struct fsdp_request *q, int n, bool *all);
	int (*any)(struct fsdp_channel *c, int *peer); /* one that has sent what is not yet received, -1 = none */
	void (*destroy)(struct fsdp_channel *c);       /* never waits for peers */
	bool forgets; /* destroy forgets messages under way; else their memory stays as long as the process */
};

struct fsdp_channel {
	const struct fsdp_channel_ops *ops;
	int rank, size;		      /* this member's number and how many there are */
	int *members;		      /* [size] ranks in the world, ascending; owned */
	int world;		      /* ranks of all groups */
	bool echo;		      /* there is nobody else: what is sent to a member comes back as what that one sends */
	const struct fsdp_host *host; /* borrowed, may be NULL */
};

#define FSDP_MESSAGE_MAX (64u << 20) /* bytes */

/** fsdp_missing() - "waiting for rank 1, 3" into @out, as fsdp_host_waiting() does: the members for which late(arg, member) holds */
void fsdp_missing(const struct fsdp_channel *c, bool (*late)(const void *arg, int member), const void *arg, char *out,
		  size_t cap);

/* for transports: who this one is among @members, ranks in the world */
int fsdp_channel_init(struct fsdp_channel *c, int world, int rank, int size, const int *members);
void fsdp_channel_fini(struct fsdp_channel *c);

/* coll_local.c: a hub for @world in-process ranks; each rank opens its channels in the same order */
struct fsdp_hub;
#define FSDP_ECHO_MAX 4096 /* ranks */
int fsdp_hub_create(struct fsdp_hub **out, int world);
/** fsdp_hub_create_echo() - for one rank, whose channels are an echo: all others do what it does */
int fsdp_hub_create_echo(struct fsdp_hub **out, int world);
void fsdp_hub_destroy(struct fsdp_hub *h);
int fsdp_local_channel(struct fsdp_hub *h, int rank, int number, struct fsdp_channel **out); /* among all of them */
int fsdp_local_group(struct fsdp_hub *h, int rank, int number, int size, const int *members, struct fsdp_channel **out);

/* coll_mpi.c */
int fsdp_mpi_channel(struct fsdp_channel **out); /* among all; collective, as is: */
/** fsdp_mpi_group() - every rank names the group that it belongs to; groups do not overlap */
int fsdp_mpi_group(int size, const int *members, struct fsdp_channel **out);
#endif
