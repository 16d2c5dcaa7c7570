/* The interpreter of a plan: hooks move a cursor over the schedule, operations before the hook's own are carried out in host
 * order. Nothing here decides what is gathered when; it refuses a call that the plan has not foreseen.
 */
#ifndef FSDP_RUNTIME_H
#define FSDP_RUNTIME_H
#include "comm/format.h"
#include "comm/mesh.h"
#include "plan/plan.h"
#include "run/timeline.h"

enum fsdp_block_state { FSDP_SHARDED, FSDP_GATHERING, FSDP_GATHERED };

struct fsdp_memory {		      /* of this rank: the plan says where in it what lies */
	void *region[DN_MEM_PLANNED]; /* of the device; NULL = empty, or not the store's */
	void *host_staging;	      /* pinned; NULL = none */
};

struct fsdp_block_run { /* what a block does at run time */
	enum fsdp_block_state state;
	bool grads_open; /* backward writes its gradient slot */
	bool ready;	 /* every value of this rank's shard was written once */
};

enum fsdp_sent { FSDP_SENT_VALUES, FSDP_SENT_GRADS, FSDP_SENT_KINDS };

struct fsdp_tally { /* what a queue's operations have sent, told apart by schedule where its order tells */
	struct fsdp_count sent[FSDP_SENT_KINDS]; /* so far */
	struct fsdp_count seen[FSDP_SENT_KINDS]; /* when the last schedule had ended on the queue */
	struct fsdp_count last[FSDP_SENT_KINDS]; /* by the last step */
};

struct fsdp_runtime {
	const struct fsdp_plan *plan;
	struct dn_net *net;
	int rank;
	const struct dn_backend *be;
	struct dn_stream *queues[FSDP_QUEUES]; /* compute is the net's */
	struct dn_event **events;	       /* [FSDP_OP_KINDS * n_blocks], NULL where the plan has none */
	struct dn_event *fences[2];	       /* compute at the end of the last two windows */
	int64_t n_windows;
	struct fsdp_memory mem;
	struct fsdp_block_run *blocks; /* [n_blocks] */
	const struct fsdp_coll_ops *coll_ops;
	struct fsdp_coll **colls; /* [n_lanes] */
	struct fsdp_format **formats;
	struct dn_task *tasks; /* [n_calls] prepared operations */
	char (*labels)[DN_BLOCK_NAME_MAX + 64];
	struct fsdp_tally tally[FSDP_QUEUES];
	struct fsdp_timeline timeline;	     /* when they begin and end */
	struct fsdp_limiter limiter;	     /* who holds which slot, checked against the plan */
	const struct fsdp_schedule *pass;    /* the one under way or the last one: the step, an evaluation, a repeated pass */
	int64_t at, at_pass;		     /* cursors: of the step; of another pass, 0 = between passes */
	int stats_micro;		     /* microbatch whose statistics were exchanged, -1 = none of this step */
	bool stale;			     /* values were written that the other replicas have to hear of */
	bool barrier;			     /* the next window begins when all queues are empty */
	bool broken;			     /* a step ended in the middle */
	int (*update)(void *arg, int block); /* of the step under way, NULL: nobody has told yet */
	void *update_arg;
	/* the test's log of executed operations in host order; NULL = off */
	struct fsdp_op *log;
	int64_t n_log, log_cap;
	/* asked before the first gather of a block: is every value there? */
	int (*check_ready)(void *arg, int block);
	void *check_arg;
	/* told what the host begins, before it may have to wait for it; may be NULL */
	void (*stand)(void *arg, const char *op, const char *block);
	void *stand_arg;
};

/** fsdp_runtime_init() - streams, events and prepared operations over @mem; also undone by fini when it fails */
int fsdp_runtime_init(struct fsdp_runtime *rt, const struct fsdp_plan *plan, struct dn_net *net, const struct fsdp_mesh *mesh,
		      const struct fsdp_memory *mem);
/** fsdp_runtime_stop() - end all queues but compute's: what their threads have counted stays as it is, until fini */
void fsdp_runtime_stop(struct fsdp_runtime *rt);
void fsdp_runtime_fini(struct fsdp_runtime *rt);

/** fsdp_runtime_at() - the memory of a place, NULL for nothing */
void *fsdp_runtime_at(const struct fsdp_runtime *rt, struct fsdp_place x);

int fsdp_runtime_before_forward(struct fsdp_runtime *rt, int block, enum dn_phase phase);
int fsdp_runtime_after_forward(struct fsdp_runtime *rt, int block);
int fsdp_runtime_before_backward(struct fsdp_runtime *rt, int block);
/** fsdp_runtime_after_gradients() - they are queued; deltas of inputs follow up to after_backward */
int fsdp_runtime_after_gradients(struct fsdp_runtime *rt, int block);
int fsdp_runtime_after_backward(struct fsdp_runtime *rt, int block);
/** fsdp_runtime_exchange() - within a block's layers: x[0..n) of @layer becomes the sum over all ranks */
int fsdp_runtime_exchange(struct fsdp_runtime *rt, int layer, bool backward, enum dn_type type, void *x, int64_t n);
int fsdp_runtime_begin(struct fsdp_runtime *rt, int64_t step);
/** fsdp_runtime_stats() - the statistics of this microbatch are on their way; an error when the plan has not come there */
int fsdp_runtime_stats(struct fsdp_runtime *rt);
/** fsdp_runtime_ready() - updates that stand within the last backward are made there, through @fn */
void fsdp_runtime_ready(struct fsdp_runtime *rt, int (*fn)(void *arg, int block), void *arg);
/** fsdp_runtime_update() - the rest of the step, every update through @fn after its waits; it may go on when this returns */
int fsdp_runtime_update(struct fsdp_runtime *rt, int (*fn)(void *arg, int block), void *arg);
/** fsdp_runtime_look() - what stands before the updates, every look through @fn after its waits */
int fsdp_runtime_look(struct fsdp_runtime *rt, int (*fn)(void *arg, int block), void *arg);
/** fsdp_runtime_skip() - the rest of the step without its updates */
int fsdp_runtime_skip(struct fsdp_runtime *rt);
/** fsdp_runtime_sent() - by the last step that has ended on all queues */
struct fsdp_count fsdp_runtime_sent(const struct fsdp_runtime *rt, enum fsdp_sent what);
/** fsdp_runtime_written() - values at rest have changed outside a step, on all ranks: before the next pass the replicas tell each
 * other, where they would do so behind an update and what they have are masters */
void fsdp_runtime_written(struct fsdp_runtime *rt);
/** fsdp_runtime_idle() - wait until all queues are empty: device memory is as the steps so far leave it */
int fsdp_runtime_idle(struct fsdp_runtime *rt);
#endif
