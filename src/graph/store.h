/* The store contract: who owns values, gradients and optimizer state. Default: train/whole_store.c.
 * A plugin may bring its own (plugins/fsdp: shards). One store per run.
 *
 * All of it is device memory: only ops touch it. The host sees it through each(), read() and write(). */
#ifndef DN_GRAPH_STORE_H
#define DN_GRAPH_STORE_H
#include <stdbool.h>
#include <stdint.h>
#include "backend/window.h"
#include "base/mem.h"
#include "graph/hook.h"
#include "graph/param.h"
#ifdef __cplusplus
extern "C" {
#endif

enum dn_part { DN_VALUE, DN_GRAD, DN_STATE0, DN_STATE1, DN_EMA, DN_PARTS };
#define DN_STATES (DN_EMA - DN_STATE0) /* at most */

/* Elements [at, at+n) of the part of @p are at x: host memory, which is theirs until the call returns, for what was asked of
 * each(). Whoever wants them later copies them. */
typedef int (*dn_interval_fn)(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x);

/* Darknet's weights of a rolling statistic's old value and of the microbatch's */
#define DN_ROLLING_KEEP .99f
#define DN_ROLLING_NEW .01f

enum dn_optimizer { DN_SGD, DN_ADAM, DN_ADAMW, DN_OPTIMIZERS }; /* see graph/optimizer.h */

struct dn_update { /* one optimizer step */
	enum dn_optimizer optimizer;
	int64_t step;	/* this update's number, from 1 */
	int64_t images; /* E: images of the update over all ranks */
	double rate;	/* of the policy; a param's own rate is rate * lr_scale */
	double momentum, decay;
	double beta1, beta2, eps; /* of adam and adamw */
	double factor;		  /* on the gradient; 0 = none, as 1 */
	double ema;		  /* options.ema: what the mean of values keeps of itself; 0: it becomes the values */
};

struct dn_traffic { /* per rank and step */
	uint64_t planned_bytes, counted_bytes;
	uint64_t planned_calls, counted_calls;
};

/* Where the time of a step goes, as the host of compute sees it. What is not in here: loading, losses, the log. */
enum dn_time {
	DN_TIME_FORWARD,
	DN_TIME_GATHER_WAIT, /* compute waits for values, */
	DN_TIME_BACKWARD,
	DN_TIME_REDUCE_WAIT,   /* for sums of gradients, or for room for the next ones, */
	DN_TIME_EXCHANGE_WAIT, /* for sums that layers ask for, and statistics */
	DN_TIME_OPTIMIZER,
	DN_TIMES
};
/** dn_time_name() - "forward", "gather_wait", ... */
DN_EXPORT const char *dn_time_name(enum dn_time t);

struct dn_store_block {		     /* what a block's collectives took so far, evaluations and all */
	double gather_ms, reduce_ms; /* between begin and end on their queues */
	double exposed_ms;	     /* of training steps: compute waited for them */
	double held_ms;		     /* gathered, in its slot */
	uint64_t gather_bytes, reduce_bytes, gather_calls, reduce_calls;
	int64_t slot; /* -1 = none */
};

struct dn_store_report { /* this rank's */
	size_t planned_bytes[DN_MEM_PLANNED];
	int replicas;				      /* copies of values and states: as many ranks own each element */
	struct dn_traffic gather, reduce;	      /* counted: of the last complete step */
	double exposed_ms;			      /* time that compute waited in the last step */
	uint64_t plan_hash;			      /* 0 without a plan */
	double step_ms[DN_TIMES], total_ms[DN_TIMES]; /* of the last step, of all */
	int n_blocks;				      /* 0: nobody looks at the clock, as above */
	const struct dn_store_block *blocks;	      /* the store's; as they are now */
};

struct dn_store_ops {
	/* Allocates values, gradients (when the net trains) and state, and gives BUFFER params their memory.
	 * Called once, after dn_net_alloc(). Everything is zero. */
	int (*alloc)(void *self, struct dn_net *net);
	/* Local, no communication: fn for every interval of @p that this rank owns, in order (a whole store: one), each in one
	 * piece or in several, in order too. @access: DN_READ, DN_WRITE (every element of a piece) or both; 0: the intervals as
	 * wholes, without memory. Init, loading, checkpoints, checksums and norms are host code written once over it. A part
	 * that does not exist (state of a BUFFER, gradients in inference) calls nothing. Only between steps. */
	int (*each)(void *self, struct dn_param *p, enum dn_part part, unsigned access, dn_interval_fn fn, void *arg);
	/* Does this rank write its elements of @part of @p where every element is written once (checkpoints)? Of the ranks that own
	 * the same, one does. A function of the layout: it asks nobody. */
	bool (*writes)(void *self, const struct dn_param *p, enum dn_part part);
	/* Collective, same calls in the same order on all ranks: elements [at, at+n); out, any host memory, is filled on
	 * rank 0, NULL elsewhere. */
	int (*read)(void *self, const struct dn_param *p, enum dn_part part, int64_t at, int64_t n, float *out);
	/* Collective, the other way: rank 0 gives elements [at, at+n), every rank keeps what it owns. */
	int (*write)(void *self, struct dn_param *p, enum dn_part part, int64_t at, int64_t n, const float *in);
	/* Once per microbatch in training, after the forward pass: rolling = KEEP rolling + NEW stat (mean over ranks) */
	int (*stats)(void *self, struct dn_net *net);
	/* Start of an update: gradients of earlier steps are forgotten. */
	int (*begin)(void *self, struct dn_net *net, int64_t step);
	/* With net->opt.update_early, before the backward pass of the last microbatch: what step() is going to be told, so that each
	 * block can be updated once its gradients are there. @u stays until then; NULL: nothing is updated, no step() follows.
	 * NULL = step() does all. */
	int (*ready)(void *self, struct dn_net *net, const struct dn_update *u);
	/* Waits for the gradients, applies the update to all that this rank owns. */
	int (*step)(void *self, struct dn_net *net, const struct dn_update *u);
	/* Values were written through each() or write(): caches of values are dropped. */
	void (*touched)(void *self);
	void (*report)(void *self, struct dn_store_report *out);
	/* With net->opt.looks, before the step: waits for the gradients, dn_net_look() of all that this rank updates. */
	int (*look)(void *self, struct dn_net *net, const struct dn_look_desc *d);
	/* In place of the step: nothing is updated. */
	int (*skip)(void *self, struct dn_net *net);
	/* Also after a failed alloc. The net has aborted its compute stream; the store ends its own before it frees. */
	void (*destroy)(void *self);
};

struct dn_store {
	const struct dn_store_ops *ops;
	const struct dn_hooks *hooks;
	void *self;
	bool constant; /* values stay at one address and change only by step/write: packed copies may be kept */
};

#ifdef __cplusplus
}
#endif
#endif
