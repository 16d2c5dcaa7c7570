/* Words that plan and transport share: the grid of ranks, element types on the wire, and what collectives are asked for and want.
 * Both rooms include this; neither sees the other.
 */
#ifndef FSDP_WIRE_H
#define FSDP_WIRE_H
#include "plugin/plugin.h"

/* --- ranks: shards is the inner, fast-varying dimension --- */

struct fsdp_grid {
	int world;    /* all ranks */
	int shards;   /* ranks that one copy of the model state is split over; divides world */
	int replicas; /* copies: world / shards */
};

static inline int fsdp_shard_rank(const struct fsdp_grid *g, int rank)
{
	return rank % g->shards;
}

static inline int fsdp_replica_rank(const struct fsdp_grid *g, int rank)
{
	return rank / g->shards;
}

/** fsdp_grid_init() - @shards 0: as many as @world; -EINVAL with both numbers when they do not divide it */
int fsdp_grid_init(struct fsdp_grid *g, int world, int shards);

/* --- names of values: one table a key, for options, plan, printing and hash --- */

struct fsdp_name {
	const char *name; /* NULL ends a table */
	int value;
	bool later; /* known, but not in this version */
};

struct fsdp_names {
	const char *key;
	const struct fsdp_name *table;
};

const char *fsdp_name_of(const struct fsdp_names *n, int value);
/** fsdp_name_find() - @value of @n->key, given at @where ("a.cfg:7" or a flag, which names the key itself); -EINVAL with a
 * message that names the key and the values there are */
int fsdp_name_find(const struct fsdp_names *n, const char *value, const char *where, int *out);
/** fsdp_refuse() - -EINVAL with "a.cfg:7: KEY=VALUE: WHY", or "-fsdp.KEY VALUE: WHY" when @where is a flag */
int fsdp_refuse(const char *key, const char *value, const char *where, const char *why);

enum fsdp_transport { FSDP_AUTO, FSDP_MPI, FSDP_LOCAL };
enum fsdp_type { FSDP_FP32, FSDP_BF16, FSDP_FP16 };

extern const struct fsdp_names fsdp_transports, fsdp_wire_types, fsdp_reduce_types;

/* --- element types --- */

struct fsdp_wire {
	enum fsdp_type gather; /* of gathered values */
	enum fsdp_type reduce; /* of gradients, and of sums over ranks */
};

static inline size_t fsdp_type_bytes(enum fsdp_type t)
{
	return t == FSDP_FP32 ? 4 : 2;
}

#endif
