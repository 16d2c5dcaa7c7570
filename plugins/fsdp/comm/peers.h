/* The processes of the other ranks of this host: which have ended without a word, which stay stopped. For the watchdog's thread. */
#ifndef FSDP_PEERS_H
#define FSDP_PEERS_H
#include <poll.h>
#include "comm/host.h"

struct fsdp_peer;

struct fsdp_peers {
	const struct fsdp_host *host; /* borrowed; NULL = nothing is watched */
	int n;
	struct fsdp_peer *peer;
	struct pollfd *polls; /* [1 + n]: the caller's own first, then one a peer, which poll() wakes up when it ends */
	uint32_t moves;	      /* of this rank, when it was seen to move last: */
	int64_t moved_ns;
};

/** fsdp_peers_open() - of @h, which stays where it is; @own goes first into polls */
int fsdp_peers_open(struct fsdp_peers *p, const struct fsdp_host *h, const struct pollfd *own);
void fsdp_peers_close(struct fsdp_peers *p);
/** fsdp_peers_ended() - a rank that has ended without saying that it leaves, each once; -1 = none. After poll(). */
int fsdp_peers_ended(struct fsdp_peers *p);
/** fsdp_peers_told() - "PLACE: rank 2 is gone; it was in PLACE" of an ended rank; false: another rank tells of it */
bool fsdp_peers_told(struct fsdp_peers *p, int rank, char *out, size_t cap);
/** fsdp_peers_stopped() - "waiting for rank 1 (stopped); rank 1 is in PLACE", "" when all run */
void fsdp_peers_stopped(const struct fsdp_peers *p, char *out, size_t cap);
/** fsdp_peers_stuck() - this rank has begun nothing for @limit_ms, while another one was stopped: a message of that; else false */
bool fsdp_peers_stuck(struct fsdp_peers *p, int64_t limit_ms, char *out, size_t cap);
/** fsdp_peers_again() - this process itself stood still until now */
void fsdp_peers_again(struct fsdp_peers *p);
#endif
