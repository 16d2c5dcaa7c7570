/* What the files of graph/ share about a net and nobody else sees: planned buffers and the steps of net_build. */
#ifndef DN_GRAPH_GRAPH_PRIV_H
#define DN_GRAPH_GRAPH_PRIV_H
#include "base/arena.h"
#include "graph/net.h"

#define NET_MAX_LAYERS 8192
#define NET_MAX_COUNT ((int64_t)1 << 40) /* elements of one tensor, or of one image */
#define NET_MAX_FLOPS ((int64_t)1 << 62) /* operations of one image */

struct net_buffer { /* asked for by a layer */
	size_t bytes;
	void **where;
	int layer;
	enum dn_life life;
	bool train_only;
};

struct net_packed {
	size_t bytes;
	void **where;
};

struct net_second { /* where a tensor of a recomputed block lies in its second life, and in its first: in items */
	int item, first_item;
	int block;
	int output_of; /* a layer, or -1: the address goes to where */
	void **where;
};

struct net_memory { /* of one input size: what the layers asked for, and where it lies */
	int n_buffers;
	struct net_buffer *buffers;
	int n_items; /* the placed buffers, where their addresses go, and whose output each is (-1: none's) */
	struct dn_arena_item *items;
	void ***where; /* NULL: it is a second life's */
	int *output_of;
	int n_seconds;
	struct net_second *seconds;
};

struct net_shape { /* an input size that the net can run at; the current one's contents are in the net */
	int64_t w, h, inputs, truths, flops;
	struct dn_layer *layers; /* [n_layers] */
	struct net_memory memory;
};

struct net_tail { /* offsets behind the arena, see memory.c */
	size_t numbers, costs, count, looks, looks_end, input, truth;
	int n_costs;
};

struct net_priv {
	size_t arena_bytes; /* of the hungriest size, without the tail */
	struct net_tail tail;
	double *costs;			 /* device: [n_costs] of the last forward, in layer order */
	int64_t *count;			 /* device: a counter */
	struct dn_exact *looks;		 /* device: with options.looks the sum, and [2][n_layers] counts of each block */
	struct dn_exact *host_looks;	 /* alloc_host: the same */
	float *input, *truth;		 /* device: copies of the pass's, where the host cannot reach device memory */
	struct dn_numbers *host_numbers; /* alloc_host: [microbatches + 1] of each pass of an update, then of its step */
	double *host_costs;		 /* alloc_host: [microbatches][n_costs], and one number more */
	uint64_t first_image;		 /* of the last pass */
	bool *sent;			 /* [microbatches + 1] the copy of these numbers may be on its way */
	struct dn_event *numbers_read;	 /* all numbers that were sent have left the host */
	struct dn_event *input_read;	 /* compute has read input and truth of the last pass */
	struct dn_event *costs_read;	 /* the costs of the last forward have reached the host */
	bool has_markers;
	int stop; /* the last layer with stopbackward=1, or -1 */
	struct net_memory memory;
	int n_packed;
	struct net_packed *packed;
	size_t packed_bytes; /* sum, each rounded up to DN_ALIGN */
	void *carries;	     /* [carries_bytes] */
	bool again;	     /* layers are being set up for another size: params and carries exist, these are the next */
	int next_param, next_carry;
	int n_shapes, shape; /* 0 shapes: only the cfg's size; shape: the current one */
	struct net_shape *shapes;
};

/* layer.c: struct, common keys and setup of the layer of section @s, all earlier layers being set up */
int layer_build(struct dn_net *net, int index, struct dn_section *s);
void layer_fini(struct dn_layer *l);
const char *layer_names(char *out, size_t cap); /* "convolutional (conv), ..." */

/* the keys of [net] and [block]; those of layers: dn_layer_keys and each type's */
extern const struct dn_key_rule dn_net_keys[], dn_block_keys[];

/* net_keys.c: [net]'s keys into @net and @hyper */
int net_keys_read(struct dn_net *net);
int net_batches(struct dn_net *net);

/* net.c: the layers into net->layers, and what follows from the last ones */
int net_build_layers(struct dn_net *net);
int net_find_output(struct dn_net *net);

/* carry.c */
int carries_alloc(struct dn_net *net);
void carries_destroy(struct dn_net *net);
/* carries_next() - what passes of that kind have left is what the next ones find */
int carries_next(struct dn_net *net, enum dn_phase phase);

/* shape.c */
void shapes_destroy(struct dn_net *net);
int shapes_plan(struct dn_net *net); /* memory_plan() of all sizes anew */

/* block.c: blocks from the markers among the sections; first_of[i] = layers before section i */
int block_build(struct dn_net *net, const int *first_of);

/* memory.c */
int memory_plan(struct dn_net *net); /* activations_bytes and workspace_bytes grow to what this size needs */
/* memory_second() - the tensors of recomputed block @b in their second life, or back in their first */
void memory_second(struct dn_net *net, const struct dn_block *b, bool second);
/* runs_again() - of a layer in a recomputed block; losses need not: nobody in backward reads more than their outputs */
static inline bool runs_again(const struct dn_layer *l)
{
	return !l->seeds_delta && !l->has_cost;
}
void memory_fini(struct net_memory *m);
size_t memory_tail(const struct dn_net *net, struct net_tail *at);

#endif
