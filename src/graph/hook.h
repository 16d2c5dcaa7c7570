/* Hooks: calls around a block. Each returns 0 or -errno; NULL = not interested. They are called in the
 * same order on every rank. */
#ifndef DN_GRAPH_HOOK_H
#define DN_GRAPH_HOOK_H
#include <stdbool.h>
#include <stdint.h>
#include "backend/tensor.h"
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_block;
struct dn_layer;
struct dn_net;
struct dn_pass;

struct dn_hooks {
	int (*before_forward)(void *self, struct dn_block *b,
			      const struct dn_pass *pass); /* pass.c: before b's first layer; values become real */
	int (*after_forward)(void *self, struct dn_block *b,
			     const struct dn_pass *pass); /* pass.c: b's work is queued, not done */
	int (*before_backward)(void *self, struct dn_block *b,
			       const struct dn_pass *pass); /* pass.c: blocks in reverse; grads become real */
	/* pass.c: b's gradients are queued, and the deltas of its inputs are not: dn_block_gradients_end(); else it is not called */
	int (*after_gradients)(void *self, struct dn_block *b, const struct dn_pass *pass);
	int (*after_backward)(void *self, struct dn_block *b,
			      const struct dn_pass *pass); /* pass.c: all of b's backward is queued */
	/* layer.c: within l's forward or backward of a training pass (DN_REPEAT too), in the order in which it has declared them;
	 * x[0..n), device memory, becomes the sum over all ranks for what is queued on the compute stream from here on. */
	int (*exchange)(void *self, struct dn_layer *l, bool backward, enum dn_type type, void *x, int64_t n);
};

#ifdef __cplusplus
}
#endif
#endif
