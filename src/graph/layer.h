/* A layer: one cfg section that computes. layer.c holds the table of types; graph/layers/ one file each.
 *
 * setup() reads keys, checks shapes, declares params, buffers and inputs; it allocates no tensor. After
 * dn_net_alloc() output, delta and buffers are real; params between the block's hooks.
 */
#ifndef DN_GRAPH_LAYER_H
#define DN_GRAPH_LAYER_H
#include <stdbool.h>
#include <stdint.h>
#include "backend/backend.h"
#include "base/keyrule.h"
#include "graph/carry.h"
#include "graph/param.h"
#include "graph/pass.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_net;
struct dn_layer;

struct dn_layer_ops {			/* a layer type: all that anybody asks about it */
	const char *name, *alias;	/* section names; alias may be NULL */
	const char *summary;		/* one line for help */
	const struct dn_key_rule *keys; /* its own, beside dn_layer_keys; NULL: none */
	/* what others must know of it */
	const char *task;  /* what a net is for that ends in it (train/task.h); NULL: anything */
	bool in_place;	   /* it changes its source where that lies: who reads the source reads it */
	bool passes_input; /* its output is the buffer of input 0 itself */
	bool no_consumer;  /* nothing may read its output */
	bool filters;	   /* the first axis of all its params is that of the filters, of which numload loads the first */
	/* its line in Darknet's table: the columns before the sizes (NULL: the name), and which sizes are one number */
	void (*describe)(const struct dn_layer *l, char *out, size_t cap);
	bool flat, flat_out;
	/* what it does */
	int (*setup)(struct dn_layer *l, struct dn_section *s);
	int (*forward)(struct dn_layer *l, const struct dn_pass *pass); /* its pointers are device memory here */
	int (*backward)(struct dn_layer *l,
			const struct dn_pass *pass); /* l->delta is complete on entry: dL/doutput, ascent sign */
	/* the deltas of its inputs, where backward() makes the gradients of its params alone; NULL: backward() makes both */
	int (*backward_input)(struct dn_layer *l, const struct dn_pass *pass);
	void (*destroy)(struct dn_layer *l); /* frees l->priv; NULL = nothing */
};

enum dn_life {			 /* when a layer's buffer is in use */
	       DN_LIFE_SAVED,	 /* from its forward to its backward; in a recomputed block from the second forward */
	       DN_LIFE_KEPT,	 /* from its first forward to its backward */
	       DN_LIFE_FORWARD,	 /* within its forward */
	       DN_LIFE_BACKWARD, /* within its backward */
};

#define DN_LAYER_MAX_INPUTS 256
#define DN_LAYER_MAX_EXCHANGES 4

struct dn_layer_input {
	int layer; /* source index, -1 = the net's input */
	bool acc;  /* backward adds to the source's delta (a later consumer wrote first) */
};

struct dn_layer {
	const struct dn_layer_ops *ops;
	struct dn_net *net;
	struct dn_block *block;
	struct dn_section *section;
	int index;
	int64_t local_batch;	 /* images of a microbatch on this rank */
	int64_t w, h, c, inputs; /* of one image; w = h = 0, c = inputs for a flat input */
	int64_t out_w, out_h, out_c, outputs;
	struct dn_tensor in;	    /* input 0, and its delta: w, h, c of all images */
	struct dn_tensor out;	    /* output and delta; set by dn_layer_set_out() */
	int64_t truths;		    /* length of the target it wants, 0 = none */
	int64_t flops;		    /* forward, one image, 2 per multiply-add */
	size_t workspace_bytes;	    /* net->workspace is at least this large, */
	size_t workspace_add_bytes; /* and this where dn_layer_adds() */
	enum dn_act act;
	float lr_scale; /* learning_rate key, default 1 */
	bool frozen;	/* at or before the last stopbackward=1, or in a [block] with frozen=1: its params stay */
	bool stopbackward, dontload, dontloadscales, dontsave;
	int64_t numload;	    /* 0 = all filters */
	bool wants_delta;	    /* something at or before it learns: delta exists */
	bool seeds_delta;	    /* forward writes delta itself (loss layers); consumers add to it */
	bool backward_reads_params; /* set by setup: backward needs values */
	bool adds;		    /* set by a store during backward, with net->opt.grads_add */
	int n_inputs;
	struct dn_layer_input *inputs_of; /* [n_inputs] */
	int first_param, n_params;	  /* in net->params; none when share_index names another owner */
	uint64_t file_hash;		  /* of what it uses of the file that a key names, DN_RESUME_FILE; 0 = no file */
	int owner;			  /* layer whose params it uses: itself, or another by share_index */
	int n_shared;			  /* of the owner's params, bound so far */
	int uses, use;			  /* layers that use the owner's params, and which of them this is, in order */
	void *output, *delta;		  /* see out; delta is NULL unless wants_delta and the net trains */
	int n_exchanges[2];		  /* sums over all ranks that its forward [0] and its backward [1] ask for in training */
	int64_t exchanges[2][DN_LAYER_MAX_EXCHANGES]; /* elements of each, in the order of the calls */
	bool has_cost;
	double *cost; /* device memory: of the last forward, summed over the batch; NULL without has_cost */
	void *priv;
};

extern const struct dn_key_rule dn_layer_keys[];	       /* of every layer */
extern const struct dn_layer_ops *const dn_layer_table[];      /* ends at NULL */
const struct dn_layer_ops *dn_layer_find(const char *section); /* by name or alias */
/** dn_layer_is() - whether a user who writes [@section] means the type of @l */
DN_EXPORT bool dn_layer_is(const struct dn_layer *l, const char *section);

/* --- for setup() --- */
/** dn_layer_need() - 0, or an error that names layer and op when the backend lacks the op */
#define dn_layer_need(l, op) ((l)->net->dev->be->op ? 0 : dn_layer_no_op((l), #op))
int dn_layer_no_op(const struct dn_layer *l, const char *op);
/** dn_layer_resolve() - value @v of @key, absolute or (negative) relative to @l, to the index of an earlier layer */
int dn_layer_resolve(const struct dn_layer *l, const char *key, int64_t v, int *out);

/** dn_layer_no_effect() - keys that Darknet reads on a GPU only: with another value than the default, a net that trains is told, once */
int dn_layer_no_effect(struct dn_layer *l, struct dn_section *s, const char *const *keys, int n);
#define DN_N(a) ((int)(sizeof(a) / sizeof((a)[0])))

/** dn_layer_set_out() - image output; flat outputs are 1 x 1 x n. Refuses sizes < 1 and overflow with file:line */
int dn_layer_set_out(struct dn_layer *l, int64_t w, int64_t h, int64_t c);
/** dn_layer_set_inputs() - other sources than the previous layer (route, shortcut); checks that all are before l */
/* A source that layers follow which work in place stands for the last of these before l. */
int dn_layer_set_inputs(struct dn_layer *l, int n, const int *index);
/** dn_layer_param() - declare the next param in file order; fields after the call may be adjusted (decay, file_rows) */
int dn_layer_param(struct dn_layer *l, const char *part, enum dn_role role, int n_dims, const int64_t *shape, struct dn_init init,
		   struct dn_param **out);
/** dn_layer_buffer() - @bytes in the activations, *where is set by dn_net_alloc(). @train_only: absent in inference */
int dn_layer_buffer(struct dn_layer *l, size_t bytes, enum dn_life life, bool train_only, void **where);
/** dn_layer_packed() - @bytes that keep a copy of constant weights in inference; *where stays NULL when values
 * are not constant. Compare net->values_version with that of the copy. */
int dn_layer_packed(struct dn_layer *l, size_t bytes, void **where);
/** dn_layer_wants_exchange() - declare a sum of @n elements over all ranks, in each forward or backward of training */
DN_EXPORT int dn_layer_wants_exchange(struct dn_layer *l, bool backward, int64_t n);
int dn_layer_activation(struct dn_layer *l, struct dn_section *s);

/**
 * dn_layer_read() - outputs of images [first, first + n) of the last pass to the host, as plain [n, c, h, w] floats
 * @out: host memory of be->alloc_host. Waits. Only of outputs that survive the pass (net->outputs).
 */
DN_EXPORT int dn_layer_read(const struct dn_layer *l, int64_t first, int64_t n, float *out);

/* --- for forward() and backward() --- */
const void *dn_layer_x(const struct dn_layer *l, const struct dn_pass *pass, int k); /* output of input k */
/* In a pass that is pass->again nothing is exchanged: what forward has summed lies in a buffer that is kept. */
/** dn_layer_exchange() - x[0..n), device memory, becomes the sum over all ranks for later work of the compute stream; alone it stays
 * as it is. The calls of a pass are those that were declared, in that order. -ENOTSUP: a type that is not summed, or a store that
 * sums nothing. */
DN_EXPORT int dn_layer_exchange(struct dn_layer *l, bool backward, enum dn_type type, void *x, int64_t n);
/** dn_layer_dx() - delta of input k, NULL when it is not wanted; *acc: add instead of overwrite */
void *dn_layer_dx(const struct dn_layer *l, int k, bool *acc);
/** dn_layer_adds() - a later layer has left its gradients in the params that they share, or an earlier microbatch has: backward
 * adds to those */
static inline bool dn_layer_adds(const struct dn_layer *l)
{
	return l->adds || l->use < l->uses - 1;
}

#ifdef __cplusplus
}
#endif
#endif
