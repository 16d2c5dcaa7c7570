/* The board of a host: memory that the job's ranks on it share. Each writes there where it stands, so that the others can say it
 * when it does not speak any more. All functions take NULL for the board and then do nothing.
 */
#ifndef FSDP_BOARD_H
#define FSDP_BOARD_H
#include "plugin/plugin.h"

#define FSDP_PLACE_MAX 192 /* bytes of a place's text */

struct fsdp_board;
struct fsdp_board_key { /* how others find it: told by the one that creates it */
	int64_t pid, fd, nonce;
};

/** fsdp_board_create() - for ranks 0 to @world - 1, of which this one is @rank */
int fsdp_board_create(struct fsdp_board **out, int world, int rank, struct fsdp_board_key *key);
/** fsdp_board_join() - the board of another process; it must not have closed it yet */
int fsdp_board_join(struct fsdp_board **out, int world, int rank, const struct fsdp_board_key *key);
void fsdp_board_close(struct fsdp_board *b);

/** fsdp_board_at() - this rank begins @what ("forward", "saving weights"), of @block unless NULL; from one thread only */
void fsdp_board_at(struct fsdp_board *b, const char *what, const char *block);
/** fsdp_board_leave() - this rank will end on purpose: it has said what there was to say */
void fsdp_board_leave(struct fsdp_board *b);

/** fsdp_board_is_here() - @rank has joined */
bool fsdp_board_is_here(const struct fsdp_board *b, int rank);
/** fsdp_board_is_silent() - @rank has joined and not said that it leaves */
bool fsdp_board_is_silent(const struct fsdp_board *b, int rank);
/** fsdp_board_place() - where @rank stands, "" when it is not known */
void fsdp_board_place(const struct fsdp_board *b, int rank, char out[FSDP_PLACE_MAX]);
/** fsdp_board_moves() - how often @rank has begun something */
uint32_t fsdp_board_moves(const struct fsdp_board *b, int rank);
/** fsdp_board_first() - true for the first of all ranks that asks for @rank: one tells of its end, not everybody */
bool fsdp_board_first(struct fsdp_board *b, int rank);
#endif
