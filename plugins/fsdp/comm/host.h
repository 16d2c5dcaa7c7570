/* What is known of the ranks of this host without MPI: their processes and where they stand. For messages. */
#ifndef FSDP_HOST_H
#define FSDP_HOST_H
#include "comm/board.h"

struct fsdp_watch;

struct fsdp_host {
	int rank, world;
	int *pids;		  /* [world] of other ranks here, 0 elsewhere; NULL = nothing is known */
	struct fsdp_board *board; /* may be NULL */
	struct fsdp_watch *watch; /* knows whether this process itself stood still; may be NULL */
};

struct fsdp_home {     /* of a rank */
	int32_t first; /* the lowest rank on its host */
	char name[60];
};

/** fsdp_host_split() - whether one of the groups of @size neighbours lies on several hosts: "ranks 2 to 3 (HOST, OTHER)" into @out,
 * the first of them. @homes may be NULL: one host. */
bool fsdp_host_split(const struct fsdp_home *homes, int world, int size, char *out, size_t cap);

/** fsdp_host_waiting() - "waiting for rank 1, 3" into @out: the ranks for which late(arg, rank) holds; where the first of them
 * stands comes last. When processes of this host are stopped or gone, only those are named: the others wait for them too.
 * One that has said why it leaves is named last. A process that was stopped itself and goes on finds everybody late: it says so and
 * names nobody. @h may be NULL. */
void fsdp_host_waiting(const struct fsdp_host *h, int rank, int world, bool (*late)(const void *arg, int peer), const void *arg,
		       char *out, size_t cap);
#endif
