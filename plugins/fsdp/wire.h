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

/** fsdp_grid_init() - @shards 0: as many as @world; -EINVAL with both numbers when they do not divide it */
int fsdp_grid_init(struct fsdp_grid *g, int world, int shards);

/* Who takes part: the world falls into groups of @size ranks, each @stride after the one before. A copy's shards are neighbours,
 * stride 1; the owners of one shard in each copy are as many ranks apart as a copy has. */
struct fsdp_group {
	int size, stride;
};

static inline int fsdp_group_rank(const struct fsdp_group *g, int rank) /* within its group */
{
	return rank / g->stride % g->size;
}

static inline int fsdp_group_member(const struct fsdp_group *g, int rank, int i) /* member @i of @rank's group, in the world */
{
	int span = g->size * g->stride;

	return rank / span * span + rank % g->stride + i * g->stride;
}

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

enum fsdp_transport { FSDP_AUTO, FSDP_MPI, FSDP_LOCAL, FSDP_SHM };

extern const struct fsdp_names fsdp_transports, fsdp_wire_types, fsdp_reduce_types;

/* --- element types --- */

/* Values and gradients are floats where they are kept and where they are computed with; this is what they are on their way. Each
 * contribution is rounded once, the sender's own like the others; sums are made of floats, and travel as floats when complete. */
struct fsdp_wire {
	enum dn_type gather; /* of values */
	enum dn_type reduce; /* of gradients that a sum is made of */
};

/* --- collectives: what the plan asks of them, and the memory that they want for it beside the plan's own --- */

struct fsdp_coll_needs {       /* of the operations of one group on one queue, of which one runs at a time */
	int size;	       /* ranks of the group */
	size_t gather_bytes;   /* on its way, of the longest part that is gathered, 0 = none is; likewise below */
	size_t reduce_bytes;   /* of the longest one that gradients are reduced to */
	size_t exchange_bytes; /* of the longest sum that every rank gets */
	bool host_access;      /* transport may read and write device memory; else all passes through memory of the host */
};

struct fsdp_coll_memory {
	size_t piece_bytes;	   /* of a reduction; 0 = none */
	size_t gather_piece_bytes; /* of a gather that passes through memory of the host; 0 = none does */
	size_t device;		   /* staging in bytes, a multiple of DN_ALIGN; a sum may be made behind what comes from others */
	size_t host;		   /* pinned; 0 with host_access */
	bool windows;		   /* other ranks read the regions where operations begin: comm/window.h */
};

/** fsdp_coll_memory() - of the collectives @name ("channels", "shm"); a pure function */
int fsdp_coll_memory(const char *name, const struct fsdp_coll_needs *n, struct fsdp_coll_memory *out);

#endif
