/* Collectives: what the run asks of a fabric, as a table, so that a transport may bring its own. The first entry does them over
 * channels of any kind.
 *
 * Everything is prepared before the first step: a prepared operation is a dn_task that may be submitted any number of times, also
 * while an earlier run of it is in flight, since nothing in it changes. What a running operation needs (requests, events, staging)
 * belongs to its fsdp_coll, of whose operations one runs at a time: those of one stream, in its order.
 */
#ifndef FSDP_COLLECTIVE_H
#define FSDP_COLLECTIVE_H
#include "comm/channel.h"
#include "comm/window.h"
#include "wire.h"

#define FSDP_PIECE_BYTES (1u << 20) /* largest piece of a reduction */

/* what a queue has sent; written by the thread that runs its tasks, read by others when the queue is idle */
struct fsdp_count {
	uint64_t bytes, calls;
};

struct fsdp_coll_setup {
	struct fsdp_channel *ch; /* of the group; borrowed, as all below */
	struct dn_device *dev;
	struct dn_stream *st; /* where its operations run */
	bool host_access;     /* the transport may touch device memory */
	size_t piece_bytes, gather_piece_bytes;
	int64_t most;			    /* elements of the longest operation */
	void *device, *host;		    /* staging, as memory() has asked for it; NULL where it wanted nothing */
	const struct fsdp_windows *windows; /* of the ranks; NULL = none, and nobody asks for them but fsdp_coll_shm */
	int lane;			    /* in them: the number of this kind of collective, the same on all members */
};

struct fsdp_coll { /* first member of an implementation's own struct */
	const struct fsdp_coll_ops *ops;
	struct fsdp_coll_setup s;
};

/* Device memory. Every complete run adds to @count (may be NULL); @label is for messages. */

struct fsdp_gather { /* rank r's shard arrives at slot + r * n elements on every member */
	const void *shard;
	void *slot;
	int64_t n;
	enum dn_type type; /* of both */
	struct fsdp_count *count;
	const char *label;
};

/* out[0..n), floats, = or += the sum over members q of q's in[rank * n ...), by the fixed tree over q; see in_place for an out
 * within in */
struct fsdp_reduce {
	const void *in;
	void *out;
	int64_t n;
	enum dn_type type; /* of in: f32, bf16 or f16 */
	bool acc;
	struct fsdp_count *count;
	const char *label;
};

struct fsdp_exchange { /* sum[0..n) = the sum of every member's mine[0..n), floats, by the fixed tree; sum may be mine */
	const void *mine;
	void *sum;
	int64_t n;
	int (*then)(void *arg, struct dn_stream *st); /* math on the stream behind the sum, part of the operation; NULL = none */
	void *arg;
	struct fsdp_count *count;
	const char *label;
};

struct fsdp_coll_ops {
	const char *name;
	bool in_place; /* of f32, without acc, out of a reduction may be in + rank * n: the part that nobody else reads */
	/* memory of @s' kind of operation, from what the plan needs; pure */
	int (*memory)(const struct fsdp_coll_needs *n, struct fsdp_coll_memory *out);
	int (*open)(struct fsdp_coll **out, const struct fsdp_coll_setup *s);
	void (*close)(struct fsdp_coll *c); /* with all its operations, of which none may be in flight; NULL is legal */
	/* each: a task for setup's stream, valid until close */
	int (*gather)(struct fsdp_coll *c, const struct fsdp_gather *a, struct dn_task *out);
	int (*reduce)(struct fsdp_coll *c, const struct fsdp_reduce *a, struct dn_task *out);
	int (*exchange)(struct fsdp_coll *c, const struct fsdp_exchange *a, struct dn_task *out);
};

extern const struct fsdp_coll_ops fsdp_coll_channels; /* collective.c */
/* coll_shm.c: shards of gathers and gradients of reductions lie in windows, where members read them; exchanges, which are short,
 * go over channels. For any group whose members are equally far apart in the world: copies of a shard, ranks of a copy, all. */
extern const struct fsdp_coll_ops fsdp_coll_shm;
/** fsdp_coll_find() - by name; NULL with a message */
const struct fsdp_coll_ops *fsdp_coll_find(const char *name);
#endif
