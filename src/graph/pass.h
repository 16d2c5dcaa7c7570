/* A pass: one microbatch through a net, as a value. Evaluation and training hand theirs in; the net keeps none. */
#ifndef DN_GRAPH_PASS_H
#define DN_GRAPH_PASS_H
#include <stdint.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

enum dn_phase {
	DN_INFER,  /* rolling statistics, no dropout */
	DN_TRAIN,  /* batch statistics, dropout; backward follows, and the store gets statistics */
	DN_REPEAT, /* the numbers of a DN_TRAIN pass once more, to look at; no backward, and nothing learns from it */
};

struct dn_pass {
	enum dn_phase phase;
	const float *input; /* [local_batch, inputs], host memory of be->alloc_host; in use until dn_net_input_wait() */
	const float *truth; /* [local_batch, truths], likewise; NULL: no losses, */
	const int32_t
		*classes; /* unless these are given: [local_batch], likewise: the class of each image, counted from 0, -1: none.
			       * They stand for a truth that is 1 there and 0 elsewhere */
	uint64_t first_image; /* global number of this rank's first image: (update-1)*batch + global slot */
	int64_t micro;	      /* number of the microbatch in its update, 0 .. subdivisions-1; 0 outside training */
};

#ifdef __cplusplus
}
#endif
#endif
