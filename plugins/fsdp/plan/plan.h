/* The plan: layout, slots, schedule, collectives, bytes, for every rank at once. A pure function of (net without
 * memory, options, world, backend facts): no MPI, no tensor memory. The runtime (run/runtime.c) only executes it.
 *
 * Units: elements are float32 unless "bytes" is said.
 */
#ifndef FSDP_PLAN_H
#define FSDP_PLAN_H
#include "wire.h"

#define FSDP_ALIGN 16 /* elements: every tensor in a block and every shard start on DN_ALIGN bytes */
#define FSDP_MAX_WAITS 8
#define FSDP_GRAD_SLOTS 2 /* when nothing else is said */

/* What is cut over whom. Values at rest are cut over a copy's shards, and whole where that is one rank; gradients are cut as
 * states are. See strategy.c. */
enum fsdp_strategy {
	FSDP_FULL,
	FSDP_GRAD_OP,
	FSDP_OPT,
	FSDP_REPLICATE,
	FSDP_HYBRID_FULL,
	FSDP_HYBRID_GRAD_OP,
	FSDP_HYBRID_FULL_OPT,
};
enum fsdp_layout {
	FSDP_FLAT,	     /* tensors in file order, cut wherever a shard ends */
	FSDP_PLANNED_ROW,    /* in another order, with gaps, so that no row is cut, */
	FSDP_PLANNED_TENSOR, /* or no tensor */
};
enum fsdp_prefetch { FSDP_PRE, FSDP_POST, FSDP_NONE };
enum fsdp_accumulate {
	FSDP_SHARDED_SUM,  /* every microbatch's gradient is reduced over all ranks, */
	FSDP_HYBRID_LAST,  /* over a copy's shards, and the step's sum over the copies; */
	FSDP_NO_SYNC,	   /* the step's sum is, whole until then */
	FSDP_NO_SYNC_KEEP, /* the same, and values stay gathered until then */
};
enum fsdp_reduction { FSDP_TREE };

extern const struct fsdp_names fsdp_strategies, fsdp_layouts, fsdp_prefetches, fsdp_accumulates, fsdp_reductions;

/* clang-format off */
/* X(enum, name or how it begins, what follows) of blocks= */
#define FSDP_BLOCKS_TABLE(X) \
	X(FSDP_BLOCKS_AUTO, "auto", "") \
	X(FSDP_BLOCKS_EACH, "each", "") \
	X(FSDP_BLOCKS_WHOLE, "whole", "") \
	X(FSDP_BLOCKS_SIZE, "size:", "BYTES") \
	X(FSDP_BLOCKS_TYPE, "type:", "SECTION") \
	X(FSDP_BLOCKS_AT, "at:", "I,J,...")
/* clang-format on */
#define FSDP_BLOCKS_ENUM_(row, name, what) row,
#define FSDP_BLOCKS_NAME_(row, name, what) name what ", "
/* "auto, each, ..., " */
#define FSDP_BLOCKS_NAMES FSDP_BLOCKS_TABLE(FSDP_BLOCKS_NAME_)
enum fsdp_policy_kind { FSDP_BLOCKS_TABLE(FSDP_BLOCKS_ENUM_) FSDP_BLOCKS_KINDS };

struct fsdp_policy { /* where blocks start; texts are borrowed from the option */
	enum fsdp_policy_kind kind;
	int64_t bytes;	  /* SIZE */
	const char *list; /* TYPE: a section; AT: "0,3,7" */
	const char *text; /* as it was given */
};

enum fsdp_queue { FSDP_COMPUTE, FSDP_GATHERQ, FSDP_REDUCEQ, FSDP_REPLICAQ, FSDP_EXCHANGEQ, FSDP_QUEUES };

struct fsdp_delay {
	double ms; /* at most, before each operation of a queue; 0 = none */
	uint64_t seed;
};

struct fsdp_debug { /* for finding faults; no plan depends on it */
	struct fsdp_delay delay[FSDP_QUEUES];
	bool poison;	 /* slots hold NaN between their uses */
	bool no_comm;	 /* collectives are not carried out */
	bool no_compute; /* layers are not */
	int fake_comm;	 /* rank 0 of so many, of which there is no other; 0 = off */
};

struct fsdp_options { /* [fsdp], resolved */
	struct fsdp_policy policy;
	bool policy_given;	     /* on the command line: wins over markers */
	enum fsdp_strategy strategy; /* likewise release: a [block] may say its own */
	enum fsdp_layout layout;
	int shards;	    /* ranks that share one copy under hybrid strategies; 0 = not given */
	int ranks_on_host;  /* what hybrid strategies take then; 0 = unknown */
	int64_t persistent; /* params of fewer elements stay whole; likewise */
	int limit;	    /* parameter slots K */
	int grad_slots;	    /* M; 0: as many as accumulate wants */
	int stay;	    /* after forward: 0 nothing (release=1), 1 all (release=0), s' > 1: one part in s' */
	enum fsdp_accumulate accumulate;
	enum fsdp_prefetch prefetch;
	int depth; /* blocks ahead, <= limit - 1 */
	struct fsdp_wire wire;
	enum fsdp_reduction reduction;
	enum fsdp_transport transport;
	/* as given, and where; NULL: as [block] says */
	const char *recompute, *recompute_where;
	bool looks;	    /* at gradients before they update: likewise; */
	bool ema;	    /* keeps a mean of the values */
	bool sync_bn;	    /* whoever builds the net tells it so: its layers ask for sums then */
	bool load_rank0;    /* who reads weights files: rank 0 for all, or each rank its own */
	int64_t timeout_ms; /* 0 = none */
	int64_t verify;	    /* copies: before every so many steps, 0 = before the first one only, -1 = never */
	int64_t memory;	    /* bytes that a rank may use, 0 = as many as the plan wants */
	char memory_where[600];
	const char *trace; /* the option's, NULL = none */
	int trace_steps;   /* the last ones, which it keeps */
	struct fsdp_debug debug;
};

struct fsdp_tensor { /* a trained param in its block's flat buffer */
	int param;   /* in net->params */
	int block;
	int64_t n;
	int64_t offset; /* in the block's flat buffer, multiple of FSDP_ALIGN */
};

struct fsdp_gap { /* elements between tensors and at the end that must be zero */
	int64_t offset, n;
};

struct fsdp_buffer {	       /* a BUFFER param: whole on every rank */
	int param;	       /* in net->params */
	int block, last_block; /* whose layers use it: its own, and the last that shares it */
	int64_t n;
	int64_t offset; /* of its rolling values among all blocks', multiple of FSDP_ALIGN */
	int64_t stat;	/* of this microbatch's statistic among all that are exchanged; -1 = none: frozen, or inference */
};

struct fsdp_block {
	char name[DN_BLOCK_NAME_MAX];
	int first, last;	     /* layers */
	int first_tensor, n_tensors; /* in plan->tensors */
	int first_buffer, n_buffers; /* in plan->buffers */
	int first_gap, n_gaps;	     /* in plan->gaps */
	enum fsdp_strategy strategy;
	int64_t persistent;	     /* of its params those of fewer elements stay whole; they lie in the common block */
	int first_common, n_common;  /* in plan->commons: those, and others' that its layers share */
	bool common_learns;	     /* one of them does */
	struct fsdp_group shards;    /* S ranks that values are cut over, neighbours, */
	struct fsdp_group replicas;  /* R = world / S ranks that have the same */
	int64_t params;		     /* trained elements, without padding */
	int64_t padded;		     /* T: all elements, a multiple of world * FSDP_ALIGN; 0 without trained params */
	int64_t learning;	     /* of them, at the front: those that have gradients; likewise a multiple */
	int64_t shard;		     /* L = T / S: of values at rest, */
	int64_t shard_learning;	     /* at the front of which is this rank's part of those that learn */
	int64_t part;		     /* what a rank updates, of that: all of it, or one in R, cut_states */
	int64_t sum;		     /* elements of the gradient at rest: part, or what holds it */
	int64_t shard_offset;	     /* of this block's shard among all (elements; the same on all ranks) */
	int64_t grad_offset;	     /* of its sum among those of blocks that learn; -1 when nothing in it learns */
	int64_t state_offset;	     /* of its part among them, in each plane of states */
	int64_t master_offset;	     /* of its part of the values, where that stands by itself behind all shards; else -1 */
	int64_t kept_offset;	     /* of the part that stays after forward, -1 = none does; in its region behind the slots */
	int keeps;		     /* s' > 1: one in s' stays then */
	bool whole;		     /* values are not cut: they lie at rest as they are used, and are never gathered */
	bool cut_states;	     /* over replicas, too */
	enum dn_type wire;	     /* of its values on their way */
	bool gathered;		     /* has trained params, cut: gathered before forward */
	bool learns;		     /* has a gradient: reduced and updated */
	bool stays;		     /* not released after forward for its own sake: the slot is its alone */
	bool backward_values;	     /* backward reads its values */
	bool backward_gather;	     /* gathered again for backward (not resident at the turn, values are read) */
	bool resident;		     /* stays gathered at the turn */
	bool has_stats;		     /* has BUFFER params with a statistic */
	bool in_backward;	     /* its backward runs at all */
	bool recompute;		     /* and runs the forward again, with the same values */
	bool goes_on;		     /* and makes deltas of its inputs when all its gradients are there */
	int slot, grad_slot;	     /* -1 = none */
	int first_sum[2], n_sums[2]; /* in plan->sums: of its layers' forward [0] and backward [1] */
	int gather_call[2]; /* in plan->calls, -1 = none: of what learns, or of all; and of what is frozen beside it. Likewise: */
	int regather_call[2]; /* before backward, of the parts that stayed */
	int reduce_call[2];   /* of the first microbatch, which overwrites the sum, and of the others, which add to it */
	int combine_call[2];  /* over the replicas, likewise */
	int share_call;	      /* among the replicas: sums before the update, or values behind it */
};

struct fsdp_sum { /* over all ranks, asked for by a layer within its forward or backward */
	int layer, block;
	bool backward;
	int64_t n;
	int call; /* in plan->calls */
};

enum fsdp_op_kind {
	FSDP_GATHER,
	FSDP_FORWARD,
	FSDP_RELEASE,
	FSDP_BACKWARD,
	FSDP_REDUCE,  /* over the shards of a copy; over all ranks where every rank has whole values */
	FSDP_COMBINE, /* what that left, over the replicas */
	FSDP_SHARE,   /* each replica's part, to all replicas */
	FSDP_UPDATE,
	FSDP_STATS,
	FSDP_EXCHANGE,
	FSDP_INPUT, /* what backward does when the block's gradients are there: the deltas of its inputs */
	FSDP_LOOK,  /* at the step's gradients that this rank updates, before any update: all reductions are over */
	FSDP_OP_KINDS
};

struct fsdp_lane { /* what a group does on a queue: a channel and staging of its own, one operation at a time */
	enum fsdp_queue queue;
	struct fsdp_group group;
	struct fsdp_coll_needs needs;
	struct fsdp_coll_memory memory;
};

/* A collective as it is prepared before the first step. Nothing in it changes afterwards: operations in flight share it. */
struct fsdp_call {
	enum fsdp_op_kind kind; /* gather, reduce, combine, share, stats, exchange */
	int lane;		/* in plan->lanes */
	int block;
	bool acc;	     /* reduce, combine: adds to the sum */
	bool in_place;	     /* the sum lies where this rank's part was: reduce: in the gradient slot; combine: at rest */
	bool kept;	     /* gather: of the parts that stayed */
	bool sums;	     /* share: of gradients, not of values */
	int64_t from, to;    /* gather: elements before it in the shard, and in the slot */
	enum dn_type type;   /* of elements on their way */
	int64_t n;	     /* elements: of a rank's part, or of the vector that is summed */
	uint64_t sent_bytes; /* by each rank */
};

/* values on their way; gradients */
static inline bool fsdp_call_gathers(const struct fsdp_call *c)
{
	return c->kind == FSDP_GATHER || (c->kind == FSDP_SHARE && !c->sums);
}
static inline bool fsdp_call_narrow(const struct fsdp_call *c) /* numbers of 16 bits */
{
	return c->type != DN_F32;
}
static inline bool fsdp_call_reduces(const struct fsdp_call *c)
{
	return c->kind == FSDP_REDUCE || c->kind == FSDP_COMBINE || (c->kind == FSDP_SHARE && c->sums);
}

/* Events are named op:block; number = kind * n_blocks + block (stats: block 0's number, named after
 * stats_block). A wait means the latest record in host order, which is the order of the ops array; never recorded = complete.
 * Waits that other waits and the order of a queue imply are left out. An operation carries all that its execution depends on. */
struct fsdp_op {
	enum fsdp_op_kind kind;
	enum fsdp_queue queue;
	int block;     /* stats: the last block with statistics */
	int micro;     /* microbatch of the step; update: the last */
	bool window;   /* the first of a microbatch or pass; see fsdp_window */
	bool backward; /* gather: for the backward pass */
	bool rest;     /* gather: of what is frozen, right behind that of what learns */
	int part;      /* forward, backward: an exchange cuts them; exchange: the part before it */
	int gives; /* forward, backward: in plan->sums, what its layers hand over at the end; exchange: what is summed; -1 = none */
	int takes;   /* forward, backward: the sum that they go on with; -1 = none */
	bool values; /* forward, backward: the block's params point into its slot meanwhile */
	bool grads;  /* backward: its gradients point into its gradient slot from here to the reduction, */
	bool stays;  /* which does not follow: they stay there for the next microbatch to add to */
	bool acc;    /* backward, reduce, combine: adds to the sum of earlier microbatches, else overwrites it */
	bool keeps;  /* release: a part stays */
	int call;    /* of a collective, in plan->calls; else -1 */
	int n_waits;
	int waits[FSDP_MAX_WAITS]; /* event numbers */
	int records;		   /* event number, -1 = none */
};

struct fsdp_schedule {
	int n_ops;
	struct fsdp_op *ops; /* in host order */
};

/* NOTE(windows): a microbatch with what follows it up to the next one, or a pass, is a window. Before the host queues the first
 * operation of one, it waits until compute has ended the window before the last, so that at most three are in flight on any queue:
 * what compute did not wait for in one, it waits for in the next. That bounds the entries of queues and the records of events. */
#define FSDP_WINDOWS 3

struct fsdp_slot {
	int64_t elements; /* the largest block assigned to it */
	int64_t offset;	  /* in its region (elements) */
};

struct fsdp_plan {
	struct fsdp_grid grid;
	int n_blocks; /* those of the net, and the common one behind them */
	/* Params that stay whole on every rank, of all blocks of the net, and those that layers of several blocks share: without layers
	 * of its own, resident always, reduced once backward of all blocks that use some of them is over. -1 = there are none. */
	int common;
	int *commons; /* in tensors: by each block in turn */
	struct fsdp_block *blocks;
	int n_tensors;
	struct fsdp_tensor *tensors;
	int n_buffers;
	struct fsdp_buffer *buffers;
	int n_gaps;
	struct fsdp_gap *gaps;
	int *tensor_of_param; /* [n_params] index in tensors, or ~ the index in buffers */
	int n_params;
	int n_slots, n_grad_slots;
	struct fsdp_slot *slots, *grad_slots;
	int64_t subdivisions;
	bool looks; /* at gradients */
	bool early; /* updates: a block's as soon as compute knows that its gradients are there */
	int n_states;
	bool ema;	  /* beside the states */
	int64_t n_shards; /* elements of all shards of values; masters lie behind */
	int64_t n_masters;
	int64_t n_grads;     /* elements of the sums of all blocks that learn, */
	int64_t n_parts;     /* of what a rank updates of them */
	int64_t n_slots_end; /* elements of all slots; parts that stay lie behind */
	int64_t n_kept;
	int n_lanes;
	struct fsdp_lane *lanes;
	int stats_lane, sums_lane; /* -1 = none */
	int n_sums;
	struct fsdp_sum *sums; /* none of a single rank */
	int n_calls;
	struct fsdp_call *calls;
	int stats_call;		   /* -1 = none */
	struct fsdp_schedule step; /* one training step: all microbatches and the update; empty in inference */
	struct fsdp_schedule eval; /* one forward pass without gradients */
	/* one forward pass that computes what a training pass does and teaches nobody (DN_REPEAT); the host waits for all queues
	 * before and after it. Empty in inference. */
	struct fsdp_schedule repeat;
	int64_t n_rolling;	 /* elements of all rolling statistics, padding included */
	int64_t n_stats;	 /* elements of all statistics, padding included, summed over ranks as one vector */
	int stats_block;	 /* last block with statistics, -1 = none */
	const char *collectives; /* name of the table that carries them out */
	int queue_entries
		[FSDP_QUEUES]; /* waits, operations and records in flight on each queue at most; compute: without layers' ops */
	int *event_records;    /* [FSDP_OP_KINDS * n_blocks] records of each event in flight at most */
	size_t planned[DN_MEM_PLANNED];
	size_t total_bytes;
	size_t replicated[DN_MEM_PLANNED];
	size_t replicated_bytes;
	uint64_t gather_bytes, gather_calls; /* sent per rank and step */
	uint64_t reduce_bytes, reduce_calls;
	uint64_t hash; /* grid, layout, schedules, calls; not workspace */
	struct fsdp_options opt;
	struct dn_facts facts;
};

/** fsdp_options_resolve() - typed options from the plugin's table; checks that limit, depth, grad_slots agree */
int fsdp_options_resolve(const struct dn_options *o, struct fsdp_options *out);
extern const struct dn_option fsdp_option_table[];

/** fsdp_policy_parse() - a value of blocks=; what depends on the net is checked by fsdp_blocks_apply() */
int fsdp_policy_parse(const char *value, const char *where, struct fsdp_policy *out);

/** fsdp_blocks_cut() - dn_net_set_blocks() by policy */
int fsdp_blocks_cut(struct dn_net *net, const struct fsdp_policy *policy);
/** fsdp_blocks_apply() - dn_net_set_blocks() by policy, unless the cfg's markers stand (a notice when they are overruled), and
 * dn_net_set_recompute() where the option is given */
int fsdp_blocks_apply(struct dn_net *net, const struct fsdp_options *o);

/**
 * fsdp_plan_build() - the plan of @net (built for @world, blocks final, nothing allocated)
 * net->opt.train decides whether gradients, state and a step schedule exist. Errors: -EINVAL with numbers.
 */
int fsdp_plan_build(struct fsdp_plan **out, const struct dn_net *net, const struct fsdp_options *o, int world);
void fsdp_plan_destroy(struct fsdp_plan *p);

/** fsdp_plan_net_blocks() - without the common one */
static inline int fsdp_plan_net_blocks(const struct fsdp_plan *p)
{
	return p->common < 0 ? p->n_blocks : p->common;
}
/** fsdp_plan_block() - where @param lies: its block, or the common one; of a BUFFER: its block */
int fsdp_plan_block(const struct fsdp_plan *p, const struct dn_param *param);

/** fsdp_plan_tensor() - what @rank (of the world) owns of @part of tensor @t: elements [*at, *at + *n) of the tensor, which lie
 * *from elements behind the beginning of fsdp_place_part(); *n 0 = nothing */
void fsdp_plan_tensor(const struct fsdp_plan *p, int t, enum dn_part part, int rank, int64_t *at, int64_t *n, int64_t *from);
/** fsdp_plan_first() - is @rank the first of the ranks that own the same of tensor @t's @part? */
bool fsdp_plan_first(const struct fsdp_plan *p, int t, enum dn_part part, int rank);
/** fsdp_plan_writes() - does @rank write its elements of @p's @part into a checkpoint? Of the ranks that own the same, one does;
 * which one changes from block to block. */
bool fsdp_plan_writes(const struct fsdp_plan *p, const struct dn_param *param, enum dn_part part, int rank);

/** fsdp_plan_wire() - the type of 16 bits that values travel as, of the first block whose do; f32 when none do */
enum dn_type fsdp_plan_wire(const struct fsdp_plan *p);

/* strategy.c */
/** fsdp_block_rules() - give the [block] sections of @net's cfg the keys that they have for this plugin */
void fsdp_block_rules(struct dn_net *net);
/** fsdp_release_parse() - a value of release= as what stays; which divisors fit depends on the block's strategy */
int fsdp_release_parse(const char *value, const char *where, int *stay);
/** fsdp_strategy_grid() - the mesh of hybrid strategies among the options; 1 x world without any */
int fsdp_strategy_grid(const struct fsdp_options *o, int world, struct fsdp_grid *out);
bool fsdp_strategy_hybrid(enum fsdp_strategy s);
/** fsdp_strategy_cut() - groups of @b by @b->strategy, and what they cut */
void fsdp_strategy_cut(const struct fsdp_grid *mesh, struct fsdp_block *b);

/* place.c: where bytes lie. The only word on it: the run takes memory by it, the check proves it, the outputs print it. */
struct fsdp_place {
	enum dn_region region;
	bool host;	    /* of the region's pinned memory of the host; else of its device memory */
	size_t from, bytes; /* bytes 0: nothing */
};
/** fsdp_place_all() - the region as the store takes it: of the device, or pinned memory of the host */
struct fsdp_place fsdp_place_all(const struct fsdp_plan *p, enum dn_region r, bool host);
/** fsdp_plan_windows() - do ranks read each other's memory? */
bool fsdp_plan_windows(const struct fsdp_plan *p);
/** fsdp_place_shared() - other ranks read it: it lies in this rank's window */
bool fsdp_place_shared(const struct fsdp_plan *p, enum dn_region r);
/** fsdp_place_part() - of @block at rest: this rank's part of values, gradient sums, states; nothing when the block has no such
 * part. Of values it is the shard, or the master: what a rank updates of a shard whose other elements came rounded from others. */
struct fsdp_place fsdp_place_part(const struct fsdp_plan *p, int block, enum dn_part part);
/** fsdp_place_shard() - of @block's values: where gathers begin, or the whole block where that is not cut; _front(): what of it
 * learns; _updated(): what an update writes of that, here or in the master */
struct fsdp_place fsdp_place_shard(const struct fsdp_plan *p, int block);
struct fsdp_place fsdp_place_front(const struct fsdp_plan *p, int block);
struct fsdp_place fsdp_place_updated(const struct fsdp_plan *p, int block);
/** fsdp_place_call() - what plan->calls[@call], a gather of values, takes from this rank's memory; @slot: what it fills */
struct fsdp_place fsdp_place_call(const struct fsdp_plan *p, int call, bool slot);
/** fsdp_place_values(), fsdp_place_grads() - all of @block: in its slot, or at rest where values are whole; the microbatch's
 * gradients in their slot */
struct fsdp_place fsdp_place_values(const struct fsdp_plan *p, int block);
struct fsdp_place fsdp_place_grads(const struct fsdp_plan *p, int block);
/** fsdp_place_reduced() - what the reduction over a copy's shards leaves in @block's gradient slot for the combination over the
 * copies: this rank's shard in its place, or in the slot's second half, when the first holds what travels */
struct fsdp_place fsdp_place_reduced(const struct fsdp_plan *p, int block, int rank);
/** fsdp_place_packed() - the gradients of call @i on their way, as numbers of 16 bits; nothing when they travel as floats */
struct fsdp_place fsdp_place_packed(const struct fsdp_plan *p, int i, int rank);
/** fsdp_place_kept() - the part of @block's values that stays after forward */
struct fsdp_place fsdp_place_kept(const struct fsdp_plan *p, int block);
/** fsdp_place_in_block() - elements [offset, offset + n) of a block's buffer at @block */
struct fsdp_place fsdp_place_in_block(struct fsdp_place block, int64_t offset, int64_t n);
/** fsdp_place_rolling(), fsdp_place_stat() - of buffer @b; nothing when it has no statistic */
struct fsdp_place fsdp_place_rolling(const struct fsdp_plan *p, int b);
struct fsdp_place fsdp_place_stat(const struct fsdp_plan *p, int b);
/** fsdp_place_stats() - all statistics of a microbatch */
struct fsdp_place fsdp_place_stats(const struct fsdp_plan *p);
struct fsdp_place fsdp_place_all_rolling(const struct fsdp_plan *p); /* statistics, of all buffers */
/** fsdp_place_stats_sum() - where their sum over ranks is made: behind what comes from others, or in its place */
struct fsdp_place fsdp_place_stats_sum(const struct fsdp_plan *p);
/** fsdp_place_sum() - of plan->sums[@i]: what a layer hands over, and takes back */
struct fsdp_place fsdp_place_sum(const struct fsdp_plan *p, int i);
/** fsdp_place_staging() - what the collectives want for @lane */
struct fsdp_place fsdp_place_staging(const struct fsdp_plan *p, int lane, bool host);

int fsdp_plan_event(const struct fsdp_plan *p, enum fsdp_op_kind kind, int block);
/** fsdp_plan_event_name() - "gather:stage1" into @out */
void fsdp_plan_event_name(const struct fsdp_plan *p, int event, char *out, size_t cap);
const char *fsdp_op_name(enum fsdp_op_kind k);
const char *fsdp_queue_name(enum fsdp_queue q);

/** fsdp_plan_check() - derive happens-before from operations, byte ranges, waits and records, over step, step, eval, eval, step,
 * repeat, step (in inference eval, eval), and give every unordered pair of conflicting accesses to @report (NULL: only count). Returns 0 when
 * there is none and queues and events are large enough, -EINVAL with the number and the first pair in the message. */
int fsdp_plan_check(const struct fsdp_plan *p, void (*report)(void *arg, const char *line), void *arg);

/** fsdp_plan_json(), fsdp_plan_print() - the outputs of `darknet fsdp plan` */
int fsdp_plan_json(const struct fsdp_plan *p, const struct dn_net *net, const char *cfg_path, FILE *out);
int fsdp_plan_print(const struct fsdp_plan *p, const struct dn_net *net, FILE *out);
void fsdp_plan_print_regions(const struct fsdp_plan *p, FILE *out);

/** fsdp_plan_fit() - -EINVAL when @p wants more memory than its options allow; then @out (NULL: nobody is told) gets the regions
 * and what other plans of @net would want, and @net, which is tried with them, will not do for a run */
int fsdp_plan_fit(const struct fsdp_plan *p, struct dn_net *net, FILE *out);

/* limiter.c: slots as the plan hands them out. A ring over n slots; each remembers its owner and the event that frees it. */
struct fsdp_limiter_slot {
	int owner;
	bool held;
	int free_event;
};
struct fsdp_limiter {
	int n;
	struct fsdp_limiter_slot *slots;
};
int fsdp_limiter_init(struct fsdp_limiter *l, int n);
void fsdp_limiter_fini(struct fsdp_limiter *l);
/** fsdp_limiter_admit() - @block wants @slot: 0 and *wait = the event that must pass (-1 = none), or -EAGAIN (no message) while
 * the slot is held by another block */
int fsdp_limiter_admit(struct fsdp_limiter *l, int slot, int block, int *wait);
bool fsdp_limiter_holds(const struct fsdp_limiter *l, int slot, int block);
void fsdp_limiter_release(struct fsdp_limiter *l, int slot, int block, int free_event);

/* verbs.c */
extern const struct dn_verb fsdp_verbs[];
#endif
