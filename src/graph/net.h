/* A net: an ordered list of blocks of layers, built from a cfg.
 *
 * Life: dn_net_build (shapes, params, planned bytes; no tensor memory) -> a plugin may dn_net_set_blocks
 * -> dn_net_alloc (activations, workspace) -> store->alloc -> init or load -> forward, backward, ...
 */
#ifndef DN_GRAPH_NET_H
#define DN_GRAPH_NET_H
#include <stdbool.h>
#include <stdint.h>
#include "backend/backend.h"
#include "graph/cfg.h"
#include "graph/hook.h"
#include "graph/layer.h"
#include "graph/param.h"
#include "graph/pass.h"
#include "graph/store.h"
#ifdef __cplusplus
extern "C" {
#endif

#define DN_BLOCK_NAME_MAX 64

struct dn_tree;

struct dn_block { /* consecutive layers, gathered, freed and reduced together */
	struct dn_net *net;
	int index;
	char name[DN_BLOCK_NAME_MAX];
	int first, last;	    /* layers, inclusive */
	bool recompute;		    /* asked for; see dn_block_recomputes() */
	struct dn_section *section; /* its [block] marker, NULL for head, net, and blocks of a policy */
	void *data;		    /* the plugin's */
};

enum dn_policy { DN_CONSTANT, DN_STEP, DN_STEPS, DN_EXP, DN_POLY, DN_SIGMOID, DN_RANDOM, DN_SGDR, DN_POLICIES };

DN_EXPORT const char *dn_policy_names(void); /* "constant, step, ..." */
/** dn_policy_find() - by cfg name; -EINVAL without a message when unknown (the caller knows the line) */
DN_EXPORT int dn_policy_find(const char *name, enum dn_policy *out);

struct dn_hyper { /* [net]'s training keys */
	double learning_rate, momentum, decay;
	enum dn_policy policy;
	int64_t burn_in, max_batches, step;
	double power, scale, gamma;
	int n_steps;
	int64_t *steps;
	double *scales;
	enum dn_optimizer optimizer;
	double beta1, beta2, eps; /* B1, B2 and eps, of adam and adamw */
	bool random;		  /* [net] random=1, for a caller that said multi_scale */
	double rate_min;	  /* of sgdr, whose first cycle lasts cycle batches, each next one cycle_mult times more */
	int64_t cycle, cycle_mult;
};

struct dn_net_options {
	int64_t batch, subdivisions; /* of training: 0 = the cfg's */
	int64_t local_batch; /* of inference: images of a pass on this rank, whatever the two and the cfg say; 0: as they say */
	int rank, world;     /* this rank's images are the rank-th part of each microbatch */
	bool train;	     /* deltas, saved buffers and gradients will be needed */
	bool grads_add;	     /* gradients of several microbatches may be added up where backward writes them */
	bool legacy_bn;	     /* or [net] legacy_bn=1 */
	bool sync_bn;	     /* training normalises with the statistics of all ranks' images, which the store's hook exchanges */
	bool looks;	     /* training looks at gradients before it updates: see dn_net_look() */
	bool ema;	     /* training keeps an exponential mean of the values that it updates, DN_EMA */
	bool update_early;   /* training tells the update before the last backward, see dn_net_update_ready(); not with looks */
	uint64_t seed;
	int n_keep; /* inference: other layers whose outputs must survive the pass */
	const int *keep;
	bool (*needs)(const struct dn_layer *l); /* other layers whose outputs must survive, asked of each; NULL: none */
	bool multi_scale; /* the caller changes the size in training when hyper.random; else random=1 is an error */
	bool describe;	  /* nothing will run: warn of all that a training would be warned of */
};

struct dn_net {
	struct dn_cfg *cfg;	   /* borrowed */
	struct dn_device *dev;	   /* borrowed */
	struct dn_stream *compute; /* owned */
	struct dn_net_options opt;
	struct dn_hyper hyper;
	int64_t batch;		 /* images of one update over all ranks, E = microbatch * subdivisions */
	int64_t subdivisions;	 /* microbatches of one update */
	int64_t microbatch;	 /* images of one microbatch over all ranks */
	int64_t local_batch;	 /* images of one microbatch on this rank = microbatch / world */
	int64_t w, h, c, inputs; /* of one image */
	int64_t max_inputs;	 /* largest inputs over all planned sizes */
	int64_t truths;		 /* target length of one image */
	int n_layers;
	struct dn_layer *layers;
	int n_outputs; /* layers whose outputs survive the pass: output_layer, those of options.needs, of options.keep */
	int *outputs;
	int output_layer;	    /* last layer that is not [cost] */
	const struct dn_tree *tree; /* hierarchy of the classes, of the first [softmax] that has one; else NULL */
	int n_blocks;
	struct dn_block *blocks;
	int n_params;
	struct dn_param **params;     /* file order */
	int64_t n_trained, n_buffers; /* elements */
	int n_carries;
	struct dn_carry **carries;		   /* what layers remember beyond the pass */
	int64_t flops;				   /* forward, one image */
	size_t activations_bytes, workspace_bytes; /* what dn_net_alloc() takes, */
	size_t carries_bytes;			   /* and this, in the region buffers */

	const struct dn_numbers *numbers; /* device memory: those of the pass or step that was queued last */
	struct dn_store store;		  /* ops NULL until one is attached */
	float loss_scale;		  /* what the gradients of the loss are multiplied by; 0 = 1 */
	uint64_t values_version;	  /* +1 on every write of values; packed copies compare it */
	bool no_compute;		  /* debugging: passes call the hooks and leave the layers out */
	void *workspace;		  /* [workspace_bytes] */
	void *arena;			  /* private */
	void *priv;			  /* private */
};

/**
 * dn_net_build() - shapes, params and planned bytes from a cfg; no tensor memory
 * @cfg and @dev are borrowed until dn_net_destroy(). Faults are errors with file:line. Warns of unused keys
 * through dn_keyfile_unused() (keys of plugin sections must have been read before).
 * A microbatch that does not split over opt->world is -EINVAL with the numbers and the nearest that fit.
 */
DN_EXPORT int dn_net_build(struct dn_net **out, struct dn_cfg *cfg, struct dn_device *dev, const struct dn_net_options *opt);
DN_EXPORT void dn_net_destroy(struct dn_net *net); /* also destroys the store; NULL is legal */

/**
 * dn_net_set_blocks() - replace the blocks: block i starts at layer first[i]; first[0] = 0, ascending
 * Before store->alloc only. Names follow the rules of [block] (unique, no '/', '.', ','). NULL names: block0, ...
 */
DN_EXPORT int dn_net_set_blocks(struct dn_net *net, int n, const int *first, const char *const *names);
/** dn_param_spans_blocks() - layers of several blocks use @p. It must be real in all of these, and its gradient stay where it is from
 * backward of the last one, which begins it, to that of the first, @p's own */
DN_EXPORT bool dn_param_spans_blocks(const struct dn_param *p);
/** dn_net_may_start_block() - false when a layer before @layer shares params with @layer or a later one */
DN_EXPORT bool dn_net_may_start_block(const struct dn_net *net, int layer);
/** dn_net_set_recompute() - of which blocks, [n_blocks], backward runs the forward again instead of keeping what it made
 * In place of what [block] recompute=1 says. Before dn_net_alloc(); activations_bytes follows. No result changes. */
DN_EXPORT int dn_net_set_recompute(struct dn_net *net, const bool *recompute);
/** dn_block_recomputes() - whether that happens: in a net that trains, where the block has a backward */
DN_EXPORT bool dn_block_recomputes(const struct dn_block *b);
/** dn_block_gradients_end() - in a net that trains: the layer with which all gradients of the block's params are complete, while its
 * backward goes on with deltas of inputs; -1: nothing goes on, or nothing learns */
DN_EXPORT int dn_block_gradients_end(const struct dn_block *b);
DN_EXPORT bool dn_net_has_markers(const struct dn_net *net);
DN_EXPORT int dn_block_params(const struct dn_block *b, int *first_param); /* count; params are consecutive */

/** dn_net_check_keys() - warn (strict: fail) of keys of [block] that no table has, where a plugin has given its own;
 * dn_net_alloc() calls it, and verbs that never allocate may. After it the plugin can claim no more. */
DN_EXPORT int dn_net_check_keys(struct dn_net *net);
/** dn_net_alloc() - activations and workspace. With a constant store attached before, an inference net also
 * keeps packed weights: workspace_bytes then grows by them here. */
DN_EXPORT int dn_net_alloc(struct dn_net *net);
/**
 * dn_net_add_shapes() - plan the net for input sizes [w, h] beside the cfg's
 * Between dn_net_build() and dn_net_alloc(); activations_bytes and workspace_bytes become those of the hungriest size.
 * Layers and convolutions of every size are made here, so dn_net_resize() allocates nothing. A layer whose params depend on
 * the size is an error with its line.
 */
DN_EXPORT int dn_net_add_shapes(struct dn_net *net, int n, const int64_t (*sizes)[2]);
/**
 * dn_net_resize() - run at another planned size from now on; between passes, after dn_net_alloc()
 * net->w, h, inputs, truths, flops and the layers' shapes and buffers change, params and blocks stay.
 * Passes take images of this size, of which there are at most max_inputs numbers each.
 */
DN_EXPORT int dn_net_resize(struct dn_net *net, int64_t w, int64_t h);
/** dn_net_init_values() - fill every param through store->each from (seed, id, element) */
DN_EXPORT int dn_net_init_values(struct dn_net *net);
/**
 * dn_net_empty_stats() - layers whose rolling variances are all zero: *n of them, and the first
 * @frozen: of the frozen layers alone, which normalise with them in training too. Local: statistics are whole on every rank.
 */
DN_EXPORT int dn_net_empty_stats(struct dn_net *net, bool frozen, const struct dn_layer **first, int *n);
/** dn_net_touched() - values were written through the store: packed copies of them, and the store's, are out of date */
DN_EXPORT void dn_net_touched(struct dn_net *net);

/** dn_net_forward() - queue a pass, block by block with hooks; it may go on when this returns */
DN_EXPORT int dn_net_forward(struct dn_net *net, const struct dn_pass *pass);
/**
 * dn_net_loss() - of the forward pass that was last made as microbatch pass->micro
 * Mean over layers that own a cost, summed over images; 0 without truth. Waits for that pass only.
 */
DN_EXPORT int dn_net_loss(struct dn_net *net, const struct dn_pass *pass, double *out);
/** dn_net_input_wait() - until input and truth of the passes so far are free to be overwritten */
DN_EXPORT int dn_net_input_wait(struct dn_net *net);
/** dn_net_drain() - before memory that passes name is given back, on any path: all queued work has ended, or is dropped when
 * that fails. Whose failure it is was told, or the next pass tells: dn_message() stays as it was. NULL is legal. */
DN_EXPORT void dn_net_drain(struct dn_net *net);
/** dn_net_numbers() - queue the numbers of @u for the ops of its step */
DN_EXPORT int dn_net_numbers(struct dn_net *net, const struct dn_update *u);
struct dn_looked {		     /* at the gradients of a step, by this rank */
	double word[DN_EXACT_WORDS]; /* of the sum of powers */
	double max;		     /* largest |g| that is finite */
	int before,
		after; /* the first block of backward with a gradient that is not finite: of a microbatch, in the sum; -1 = none */
};

/** dn_net_look_begin() - options.looks: a step begins, nothing was seen */
DN_EXPORT int dn_net_look_begin(struct dn_net *net);
/** dn_net_look() - what a store says of @block's gradients @x: @sum: they are the step's, else a microbatch's; @counted: this
 * rank counts them in the sum of powers */
DN_EXPORT int dn_net_look(struct dn_net *net, const struct dn_look_desc *d, int block, bool sum, bool counted, int64_t n,
			  float *x);
/** dn_net_skip() - a step without update, in place of dn_net_update() */
DN_EXPORT int dn_net_skip(struct dn_net *net);
/** dn_net_looked() - what was seen since; waits for compute */
DN_EXPORT int dn_net_looked(struct dn_net *net, struct dn_looked *out);

/** dn_net_update_ready() - options.update_early, before the last backward pass of a step: the update that dn_net_update() will
 * complete, with its numbers to the device; @u stays until then. NULL: the step updates nothing and ends with its backward. */
DN_EXPORT int dn_net_update_ready(struct dn_net *net, const struct dn_update *u);
/** dn_net_update() - one optimizer step: the numbers of @u to the device, then store->step; what the passes have left is then
 * what the next ones find */
DN_EXPORT int dn_net_update(struct dn_net *net, const struct dn_update *u);
/**
 * dn_net_backward() - blocks in reverse with hooks, after the forward pass of a DN_TRAIN pass
 * It stops at the first layer that wants a delta: earlier layers are frozen or have nothing that learns. Blocks before
 * dn_net_backward_first_block() are not visited and get no hooks; each later block is, also if none of its
 * layers has work. A visited block's unfrozen params all get their gradient.
 */
DN_EXPORT int dn_net_backward(struct dn_net *net, const struct dn_pass *pass);
/** dn_net_backward_first_block() - lowest block that backward visits, n_blocks when nothing learns */
DN_EXPORT int dn_net_backward_first_block(const struct dn_net *net);
/** dn_net_nonfinite_block() - first block whose outputs of the last forward are not finite, NULL when all are */
DN_EXPORT struct dn_block *dn_net_nonfinite_block(struct dn_net *net);

/** dn_net_rate() - learning rate of batch number @b by policy and burn-in (docs/layers.md); @seed for random */
DN_EXPORT double dn_net_rate(const struct dn_hyper *h, int64_t b, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
