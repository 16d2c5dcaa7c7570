/* All memory of ours, tagged by region, counted, and able to fail on purpose.
 *
 * The regions up to DN_MEM_PLANNED are those that a plan predicts to the byte; DN_MEM_HOST is all
 * the rest (structures, texts, tables). Byte counts are the sizes asked for, not the allocator's.
 */
#ifndef DN_BASE_MEM_H
#define DN_BASE_MEM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

enum dn_region {
	DN_MEM_PARAMS,	    /* values of trained params at rest: whole, or this rank's shard */
	DN_MEM_GRADS,	    /* accumulated gradients: whole, or this rank's shard */
	DN_MEM_OPTIMIZER,   /* optimizer state */
	DN_MEM_PARAM_SLOTS, /* gathered blocks */
	DN_MEM_GRAD_SLOTS,  /* one microbatch's full gradients of a block */
	DN_MEM_ACTIVATIONS, /* outputs, deltas, saved tensors, and the ring of input batches */
	DN_MEM_WORKSPACE,   /* scratch of the math library, reordered weights */
	DN_MEM_STAGING,	    /* pieces under exchange */
	DN_MEM_BUFFERS,	    /* rolling statistics, this microbatch's, and what layers remember beyond the pass */
	DN_MEM_EMA,
	DN_MEM_SNAPSHOT,
	DN_MEM_PLANNED, /* number of planned regions */
	DN_MEM_HOST = DN_MEM_PLANNED,
	DN_MEM_REGIONS
};

struct dn_mem_stats {
	size_t now_bytes;
	size_t peak_bytes;
	uint64_t n_allocs; /* since the start */
};

#define DN_ALIGN 64u /* bytes: every tensor and every region starts on this boundary */

DN_EXPORT const char *dn_region_name(enum dn_region r); /* "params", ... as in the outputs */

/* Host structures (DN_MEM_HOST). On failure NULL, and the message names the size. 0 bytes is legal. */
DN_EXPORT void *dn_alloc(size_t bytes);
DN_EXPORT void *dn_zalloc(size_t bytes);
DN_EXPORT void *dn_calloc(size_t n, size_t size); /* checks overflow, zeroed */
DN_EXPORT void *dn_realloc(void *p, size_t bytes);
/**
 * dn_grow() - array @p with room for element @n, which doubles as it fills; NULL leaves @p as it was
 * It keeps no capacity beside the array: for arrays that get all their room here, one element at a time from NULL and 0 on.
 */
DN_EXPORT void *dn_grow(void *p, int64_t n, size_t size);
DN_EXPORT char *dn_strdup(const char *s);
DN_EXPORT char *dn_strndup(const char *s, size_t n);

/** dn_alloc_region() - @bytes of region @r, DN_ALIGN aligned, zeroed and resident (every page touched) */
DN_EXPORT void *dn_alloc_region(enum dn_region r, size_t bytes);

/** dn_free() - release memory of any of the calls above; NULL is legal */
DN_EXPORT void dn_free(void *p);

/** dn_mem_take() - count @bytes of region @r that the caller is about to map itself, as if they were allocated: it fails like that */
DN_EXPORT int dn_mem_take(enum dn_region r, size_t bytes);
/** dn_mem_give() - they are unmapped */
DN_EXPORT void dn_mem_give(enum dn_region r, size_t bytes);

DN_EXPORT void dn_mem_stats(enum dn_region r, struct dn_mem_stats *out);
DN_EXPORT uint64_t dn_mem_n_allocs(void); /* over all regions */

/** dn_mem_fail_at() - for tests: make the @n-th allocation from now fail (1 = next), 0 switches it off */
DN_EXPORT void dn_mem_fail_at(uint64_t n);

/** dn_mul_size() - @a * @b in @out; -EOVERFLOW with a message when it does not fit */
DN_EXPORT int dn_mul_size(size_t a, size_t b, size_t *out);

/** dn_rss_bytes(), dn_peak_rss_bytes() - VmRSS and VmHWM of this process, 0 when unknown; allocate nothing */
DN_EXPORT size_t dn_rss_bytes(void);
DN_EXPORT size_t dn_peak_rss_bytes(void);

static inline size_t dn_up(size_t x, size_t a)
{
	return (x + a - 1) / a * a;
}

#ifdef __cplusplus
}
#endif
#endif
