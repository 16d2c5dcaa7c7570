/* When the operations of a plan begin and end on their queues: sums by block and by phase for reports and, on demand, the last
 * steps as a Chrome trace. Also what debugging keys do to collectives: wait before them, or leave them out.
 *
 * The tasks of collectives are wrapped: the thread that serves their queue looks at the clock. Compute runs in the host's hooks,
 * so its operations are timed there; on a back end whose compute is late, that is when they were queued.
 */
#ifndef FSDP_TIMELINE_H
#define FSDP_TIMELINE_H
#include <stdio.h>
#include "plan/plan.h"

struct fsdp_stamp {		  /* an operation, or compute's wait for one */
	int64_t begin_ns, end_ns; /* 0 = not yet */
	int64_t step;
	int32_t block, micro;
	int32_t call; /* of a collective, else -1 */
	uint8_t kind; /* enum fsdp_op_kind */
	bool wait;    /* what was waited for: kind and block are those of the event */
	bool pass;    /* not of a training step */
};

enum fsdp_passes { FSDP_OF_STEPS, FSDP_OF_OTHERS, FSDP_PASSES }; /* kept apart: a long evaluation pushes no step out */

struct fsdp_ring {
	struct fsdp_stamp *stamps; /* [cap]; NULL = nobody wants them */
	int64_t cap, queued, ended;
};

/* The host notes what it queues, the queue's thread when that begins and ends, in the same order. */
struct fsdp_times {
	struct fsdp_ring rings[FSDP_PASSES];
	uint8_t *order; /* [cap] whose ring: of what is in flight */
	int64_t cap, queued, ended;
};

struct fsdp_timeline;

struct fsdp_timed { /* a prepared operation of a queue; its thread's own until the queue is empty */
	struct dn_task inner;
	struct fsdp_timeline *tl;
	const struct fsdp_call *call;
	enum fsdp_queue queue;
	bool running;
	int64_t begin_ns, from_ns; /* not before: see delay */
	int64_t sum_ns;
	uint64_t n;
};

struct fsdp_timeline {
	const struct fsdp_plan *plan;
	int rank;
	struct fsdp_timed *timed; /* [n_calls] */
	struct fsdp_times records[FSDP_QUEUES];
	uint64_t n_delays[FSDP_QUEUES];
	FILE *file; /* of the trace, NULL = none */
	char *path;
	int64_t step;				    /* under way */
	int64_t mark_ns;			    /* when the host's current operation of compute began */
	int64_t now_ns[DN_TIMES], all_ns[DN_TIMES]; /* of this step; of all before it */
	int64_t *waited_ns;			    /* [n_blocks] by compute, for this block */
	int64_t *held_ns, *since_ns;		    /* [n_blocks] in its slot, as the host sees it */
	struct dn_store_block *blocks;		    /* [n_blocks] as reported */
};

/** fsdp_timeline_init() - all memory, and the trace's file; fini is legal after an error */
int fsdp_timeline_init(struct fsdp_timeline *tl, const struct fsdp_plan *plan, int rank);
/** fsdp_timeline_fini() - write the trace; no queue runs any more */
void fsdp_timeline_fini(struct fsdp_timeline *tl);

/** fsdp_timeline_wrap() - @task, which carries out call @i, timed */
void fsdp_timeline_wrap(struct fsdp_timeline *tl, int i, struct dn_task *task);
/** fsdp_timeline_queued() - before @op's call is submitted */
void fsdp_timeline_queued(struct fsdp_timeline *tl, const struct fsdp_op *op, bool pass);

void fsdp_timeline_begin_step(struct fsdp_timeline *tl, int64_t step);
/** fsdp_timeline_waited() - compute has waited for @event before @op */
void fsdp_timeline_waited(struct fsdp_timeline *tl, const struct fsdp_op *op, int event, int64_t from_ns, bool pass);
/** fsdp_timeline_begin(), fsdp_timeline_end() - an operation of compute */
void fsdp_timeline_begin(struct fsdp_timeline *tl);
void fsdp_timeline_end(struct fsdp_timeline *tl, const struct fsdp_op *op, bool pass);
/** fsdp_timeline_hold() - @block has a slot from now on, or no more */
void fsdp_timeline_hold(struct fsdp_timeline *tl, int block, bool holds);

/** fsdp_timeline_report() - into @out; queues of values and gradients are empty */
void fsdp_timeline_report(struct fsdp_timeline *tl, struct dn_store_report *out);
#endif
