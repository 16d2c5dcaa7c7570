/* Everybody's record to everybody, in log4(world) rounds: in round k a rank sends all that it has to the ones 1, 2 and 3 times 4^k
 * before it and receives as much from those behind it. So up to four ranks need one round, as if each told every other, and 64 need
 * three, with 9 messages a rank instead of 63. Small records ride in the first message, others need a second one.
 * The three functions of a dn_task stand over the struct.
 *
 * Nobody has all records before everybody has come, so it is a barrier as well.
 */
#ifndef FSDP_SPREAD_H
#define FSDP_SPREAD_H
#include "comm/roll.h"

#define FSDP_SPREAD_INLINE 112 /* bytes of records that need no message of their own */

struct fsdp_record { /* what one rank has said */
	int32_t note;
	uint32_t bytes;
	const char *body;
};

struct fsdp_spread_head {
	uint32_t kind, number; /* of the operation: equal on all ranks */
	uint64_t bytes;
	char body[FSDP_SPREAD_INLINE];
};

struct fsdp_spread_pass { /* with one partner */
	struct fsdp_spread_head out, in;
	char *out_body, *in_body;
	size_t out_cap, in_cap;
	bool has_head, done;
	struct fsdp_request send_head, send_body, recv_head, recv_body;
};

struct fsdp_spread {
	struct fsdp_channel *ch; /* borrowed */
	struct fsdp_roll *roll;	 /* borrowed */
	const char *label;	 /* for messages, while it runs */
	const char *(*kind_name)(uint32_t kind);
	uint32_t kind;
	uint64_t number;		 /* of operations so far */
	int64_t roll_call_ms;		 /* wait before a roll call, 0 = none */
	int64_t next_call_ns, called_ns; /* called: 0 = not in this operation */
	char *own;			 /* our record, head and body */
	size_t own_bytes, own_cap;
	int n_passes, n_rounds;
	int at; /* the round that is received */
	struct fsdp_spread_pass *passes;
	struct fsdp_record *records; /* [world], afterwards */
};

int fsdp_spread_init(struct fsdp_spread *s, struct fsdp_channel *ch, struct fsdp_roll *roll);
void fsdp_spread_fini(struct fsdp_spread *s);
/** fsdp_spread_say() - the next operation and our record in it; memory for records of @most bytes is there afterwards */
int fsdp_spread_say(struct fsdp_spread *s, uint32_t kind, int32_t note, const void *body, size_t bytes, size_t most);
/** fsdp_spread_echo() - of a channel that is an echo: every rank has said this, and it is over */
int fsdp_spread_echo(struct fsdp_spread *s, int32_t note, const void *body, size_t bytes);
/** fsdp_spread_room() - @bytes at least in *@p, of which there are *@cap */
int fsdp_spread_room(char **p, size_t *cap, size_t bytes);
int fsdp_spread_start(void *arg);
int fsdp_spread_poll(void *arg, bool *done);
void fsdp_spread_describe(void *arg, char *out, size_t cap);
#endif
