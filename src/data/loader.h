/* Loader threads with a ring of batches. */
#ifndef DN_DATA_LOADER_H
#define DN_DATA_LOADER_H
#include <stdbool.h>
#include <stdint.h>
#include "base/mem.h"
#include "base/status.h"
#include "data/order.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_dataset;

/* Inputs of changing size: from update 1 on, every @every updates the images are squares of @step * (@first + r), r drawn
 * from 0 to @n - 1. Darknet's classifier: 40, 32, 4, 11. */
struct dn_resize {
	int64_t every; /* 0 = off */
	int64_t step, first, n;
	uint64_t seed;
};

/** dn_resize_side() - of an update (from 1): pure */
DN_EXPORT int64_t dn_resize_side(const struct dn_resize *r, int64_t update);
DN_EXPORT int64_t dn_resize_max(const struct dn_resize *r); /* the largest side */

/* Where the ring's memory comes from: of a device that copies batches from it, it must be the device's host memory. Both NULL:
 * the program's own. */
struct dn_loader_memory {
	int (*alloc)(void *arg, enum dn_region r, size_t bytes, void **out); /* DN_ALIGN aligned, contents unspecified */
	void (*free)(void *arg, void *p);
	void *arg;
};

struct dn_loader_config {
	const struct dn_dataset *data; /* borrowed */
	struct dn_order order;
	int64_t batch, subdivisions; /* E and microbatches of one update */
	int rank, world;
	int64_t inputs, truths; /* floats of a sample as the net takes them */
	int threads;		/* >= 1 */
	int64_t first_update;	/* update number of the first batch, from 1 */
	/* 0: training, for ever. Else an evaluation of so many microbatches: the samples in the data set's order, as they are
	 * where nothing is drawn; places past the last sample are filled with that one. Its order must not shuffle. */
	int64_t batches;
	struct dn_resize resize; /* the ring is then made for the largest size */
	bool region_activations; /* ring in DN_MEM_ACTIVATIONS (training); else DN_MEM_HOST */
	struct dn_loader_memory memory;
};
#define DN_LOADER_DEPTH 3 /* microbatches in the ring */

/** dn_loader_bytes() - what the ring takes: pure, for the plan */
DN_EXPORT int dn_loader_bytes(int64_t local_batch, int64_t inputs, int64_t truths, size_t *out);

struct dn_loader;
DN_EXPORT int dn_loader_create(struct dn_loader **out, const struct dn_loader_config *c);
/** dn_loader_destroy() - stops and joins the threads; nobody reads what dn_loader_next() gave any more */
DN_EXPORT void dn_loader_destroy(struct dn_loader *l);
/**
 * dn_loader_next() - the next microbatch of this rank; pointers are valid until the next call
 * A sample that cannot be read is the error of its microbatch, with its message (of the lowest place, if there are
 * several), however many threads there are; every later call gives it again. *waited_ns (may be NULL) grows by the
 * time that the caller waited. Of an evaluation there is none after config.batches.
 */
DN_EXPORT int dn_loader_next(struct dn_loader *l, const float **x, const float **t, const int64_t **cls, int64_t *waited_ns);
/** dn_loader_again() - microbatch @m of @update once more, as it was or will be given, into the caller's memory; on this thread */
DN_EXPORT int dn_loader_again(struct dn_loader *l, int64_t update, int64_t m, float *x, float *t);
/** dn_loader_size() - width and height of the images that dn_loader_next() gave last (before: of the first) */
DN_EXPORT void dn_loader_size(const struct dn_loader *l, int64_t *w, int64_t *h);

#ifdef __cplusplus
}
#endif
#endif
