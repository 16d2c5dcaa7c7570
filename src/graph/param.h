/* A param: a named float32 tensor of a layer. Each layer lists its params once, in .weights order. */
#ifndef DN_GRAPH_PARAM_H
#define DN_GRAPH_PARAM_H
#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_layer;
struct dn_block;

enum dn_role {
	DN_TRAINED, /* has a gradient and optimizer state; may be sharded */
	DN_BUFFER,  /* rolling statistics; whole on every rank, saved with the weights */
};

enum dn_init_kind { DN_INIT_CONST, DN_INIT_NORMAL, DN_INIT_UNIFORM };

struct dn_init { /* element e = f(seed, param->id, e): the same for every world and layout */
	enum dn_init_kind kind;
	double a; /* CONST: the value; NORMAL: sigma; UNIFORM: the bound of (-a, a) */
};

struct dn_param {
	char name[64];	  /* "3.weights": layer index, dot, part */
	const char *part; /* "weights", "biases", "scales", "rolling_mean", "rolling_variance" */
	uint64_t id;	  /* dn_hash(name) */
	struct dn_layer *layer;
	struct dn_block *block;
	int index; /* in net->params: file order */
	enum dn_role role;
	int n_dims;
	int64_t shape[4];
	int64_t n; /* elements */
	struct dn_init init;
	bool decay;		      /* weight decay applies (weights only) */
	bool frozen;		      /* never updated; has no gradient */
	float lr_scale;		      /* the layer's learning_rate key */
	bool norm;		      /* of a normalisation: dontloadscales leaves it out */
	int64_t file_rows, file_cols; /* [rows, cols] lie transposed, [cols, rows], in .weights files of versions above 1000; */
	bool file_flipped;	      /* in those of any version; rows 0: never */
	float *value;		      /* TRAINED: real only between the block's before and after hooks; BUFFER: always */
	float *grad; /* [n] of this microbatch, the first writer overwrites; real between before_ and after_backward */
	float *stat; /* BUFFER: this microbatch's statistic, written by forward in training; else NULL */
};

#ifdef __cplusplus
}
#endif
#endif
