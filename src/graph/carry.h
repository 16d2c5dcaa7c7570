/* A carry: what a layer remembers of its images beyond the pass, such as the hidden state of a recurrent layer. Named, shaped,
 * zero at the start, cut over ranks and microbatches along its first axis, and part of checkpoints.
 *
 * NOTE(carry): a pass reads what the update before has left and writes what the next one will find, two places. So backward,
 * and a pass that is repeated, still have what the forward pass had; an update that is not made forgets nothing. Passes without
 * training have places of their own: evaluation in the middle of a run changes none of it.
 */
#ifndef DN_GRAPH_CARRY_H
#define DN_GRAPH_CARRY_H
#include "graph/pass.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_layer;
struct dn_net;

struct dn_carry {
	char name[64]; /* "3.h": layer index, dot, part */
	int index;     /* in net->carries */
	int n_dims;
	int64_t shape[4]; /* of an update over all ranks: the first axis has the rows of all */
	int64_t n;	  /* elements of it */
	int64_t rows;	  /* of a microbatch on this rank */
	int64_t row;	  /* elements of one */
	/* device memory: this rank's [subdivisions, rows, row] of training, NULL without; [rows, row] of other passes */
	float *found, *left;
	float *pass_found, *pass_left;
};

/** dn_layer_carry() - declared by setup(); @shape[0] is the rows of one microbatch on this rank */
int dn_layer_carry(struct dn_layer *l, const char *part, int n_dims, const int64_t *shape, struct dn_carry **out);
/* The rows of a pass, [rows, row]: what it finds, also in its backward; what its forward must leave, all of it. */
const float *dn_carry_found(const struct dn_carry *c, const struct dn_pass *pass);
float *dn_carry_left(const struct dn_carry *c, const struct dn_pass *pass);

/** dn_net_forget() - zeros in all carries of training passes, or (DN_INFER) of other passes; between passes */
DN_EXPORT int dn_net_forget(struct dn_net *net, enum dn_phase phase);

/* For checkpoints: what training finds next. This rank has the rows of each of its microbatches. */
/** dn_carry_interval() - where microbatch @m of this rank lies in the whole, elements */
DN_EXPORT void dn_carry_interval(const struct dn_net *net, const struct dn_carry *c, int64_t m, int64_t *at, int64_t *n);
/** dn_carry_get(), dn_carry_set() - that interval from and to host memory of be->alloc_host; they wait */
DN_EXPORT int dn_carry_get(const struct dn_net *net, const struct dn_carry *c, int64_t m, float *out);
DN_EXPORT int dn_carry_set(const struct dn_net *net, const struct dn_carry *c, int64_t m, const float *in);

#ifdef __cplusplus
}
#endif
#endif
