/* Collectives, each written once over channels, as tasks for a communication stream: prepared operations. init sets all
 * pointers up once, so that a step allocates nothing; each has the three functions of a dn_task over its struct (start, poll,
 * describe).
 */
#ifndef FSDP_COLLECTIVE_H
#define FSDP_COLLECTIVE_H
#include "comm/channel.h"
#include "wire.h"

#define FSDP_PIECE_BYTES (1u << 20) /* largest piece of a reduction */

/* what a queue has sent; written by the thread that runs its tasks, read by others when the queue is idle */
struct fsdp_count {
	uint64_t bytes, calls;
};

/* All-gather in place of a slot: rank r's shard (len elements) arrives at slot + r * len on every rank. */
struct fsdp_gather {
	struct fsdp_channel *ch;
	const float *shard;
	float *slot;
	int64_t len;		  /* elements a rank */
	struct fsdp_request *req; /* private */
	int n_req;
	struct fsdp_count *count; /* grows by every complete run; may be NULL */
	uint64_t sent_bytes;	  /* of the last run */
};
int fsdp_gather_init(struct fsdp_gather *g, struct fsdp_channel *ch, int64_t max_len);
void fsdp_gather_fini(struct fsdp_gather *g);
int fsdp_gather_start(void *arg);
int fsdp_gather_poll(void *arg, bool *done);
void fsdp_gather_describe(void *arg, char *out, size_t cap);

/* Reduce-scatter by exchange of pieces and a local sum by the fixed tree: out[0..len) (= or +=) the sum over ranks q of
 * q's in[rank * len ...). */
struct fsdp_reduce {
	struct fsdp_channel *ch;
	const struct dn_backend *be; /* for sum_tree on @st */
	struct dn_stream *st;
	const float *in; /* world * len */
	float *out;
	int64_t len;
	bool acc;
	float *staging; /* 2 * (world - 1) pieces */
	size_t piece_bytes;
	struct fsdp_count *count; /* grows by every complete run; may be NULL */
	uint64_t sent_bytes;	  /* of the last run */
	/* private */
	struct fsdp_request *req; /* [2 sets][world][send, recv] */
	int64_t next, summed;	  /* pieces posted, pieces summed */
};
int fsdp_reduce_init(struct fsdp_reduce *r, struct fsdp_channel *ch, const struct dn_backend *be, struct dn_stream *st,
		     float *staging, size_t piece_bytes);
void fsdp_reduce_fini(struct fsdp_reduce *r);
int fsdp_reduce_start(void *arg);
int fsdp_reduce_poll(void *arg, bool *done);
void fsdp_reduce_describe(void *arg, char *out, size_t cap);

/* Exchange of small vectors: every rank sends @mine (n elements) to all others; the others' arrive at
 * in + k * n, k counting the other ranks in order. */
struct fsdp_exchange {
	struct fsdp_channel *ch;
	const float *mine;
	float *in; /* (world - 1) * n */
	int64_t n;
	struct fsdp_request *req; /* private */
};
int fsdp_exchange_init(struct fsdp_exchange *x, struct fsdp_channel *ch, const float *mine, float *in, int64_t n);
void fsdp_exchange_fini(struct fsdp_exchange *x);
int fsdp_exchange_start(void *arg);
int fsdp_exchange_poll(void *arg, bool *done);
void fsdp_exchange_describe(void *arg, char *out, size_t cap);
#endif
