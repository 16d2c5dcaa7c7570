/* Roll call: who has come to an operation, asked only when somebody has waited for long.
 *
 * An operation that takes log(world) rounds has few partners, so a rank that waits knows of those alone. Whoever has waited
 * for some time says "I am at number N" to all others, once, and hears who else says so. Over a channel of its own, on which a
 * receive is posted only for a message that is there: nothing stays under way when all is well.
 */
#ifndef FSDP_ROLL_H
#define FSDP_ROLL_H
#include "comm/channel.h"

struct fsdp_roll {
	struct fsdp_channel *ch; /* owned */
	uint64_t *seen;		 /* [world] highest number that was heard */
	uint64_t *told;		 /* [world] latest number that was said */
	uint64_t *out;		 /* [world] messages under way */
	struct fsdp_request *send;
	struct fsdp_request recv;
	uint64_t in;
	int from;
};

/** fsdp_roll_init() - takes @ch, also when it fails */
int fsdp_roll_init(struct fsdp_roll *r, struct fsdp_channel *ch);
void fsdp_roll_fini(struct fsdp_roll *r);
/** fsdp_roll_hear() - what the others have said since; cheap, and called by everybody now and then, so that nothing piles up */
int fsdp_roll_hear(struct fsdp_roll *r);
/** fsdp_roll_say() - this rank waits in operation @number, 1 or more; to be called again until the operation has ended */
int fsdp_roll_say(struct fsdp_roll *r, uint64_t number);
/** fsdp_roll_here() - @rank has said that it waits in operation @number or a later one */
static inline bool fsdp_roll_here(const struct fsdp_roll *r, int rank, uint64_t number)
{
	return r->seen[rank] >= number;
}
#endif
