/* The watchdog of a launched rank: a thread that needs no MPI. It ends the process
 * - when the launcher is gone;
 * - when start-up (MPI_Init and what follows, which block inside the library) lasts too long. Then it names the ranks that have
 *   not arrived (presence.h);
 * - when another rank of this host has ended without a word. One of those that are left says so, with the places of both
 *   (board.h), while the launcher has not ended it;
 * - when another one is stopped for so long that a wait with a deadline should have ended us: a thread that hangs inside a library
 *   has no deadline.
 */
#ifndef FSDP_WATCH_H
#define FSDP_WATCH_H
#include "comm/host.h"

/** fsdp_watch_start() - the thread, and this rank's presence file; start-up may last @timeout_ms (0 = for ever) from now on */
int fsdp_watch_start(struct fsdp_watch **out, const struct dn_launch *l, int64_t timeout_ms);
/** fsdp_watch_arrived() - start-up is over on all ranks: no deadline any more, the presence file goes */
void fsdp_watch_arrived(struct fsdp_watch *w);
/** fsdp_watch_peers() - from now on also the processes of @h, which stays where it is until the watch is stopped */
int fsdp_watch_peers(struct fsdp_watch *w, const struct fsdp_host *h);
/** fsdp_watch_limit() - end the process with @status when @what lasts longer than @ms from now; 0 = no limit */
void fsdp_watch_limit(struct fsdp_watch *w, const char *what, int64_t ms, int status);
/** fsdp_watch_pause_ms() - how long this process stood still until a few seconds ago at most (stopped and continued), 0 = not */
int64_t fsdp_watch_pause_ms(struct fsdp_watch *w);
void fsdp_watch_stop(struct fsdp_watch *w); /* joins the thread; NULL is legal */
#endif
