/* Static placement of buffers with lifetimes into one arena: a pure function. */
#ifndef DN_BASE_ARENA_H
#define DN_BASE_ARENA_H
#include <stddef.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_arena_item {
	size_t bytes;
	int first, last; /* steps of a schedule, inclusive, in which the buffer is in use */
	size_t offset;	 /* out */
};

/**
 * dn_arena_place() - offsets such that items whose lifetimes overlap do not share bytes
 * First fit over items by decreasing size; ties by position, so equal input gives equal output.
 * @align: power of two. @total: bytes of the arena. Errors: -ENOMEM, -EOVERFLOW.
 */
DN_EXPORT int dn_arena_place(struct dn_arena_item *items, int n, size_t align, size_t *total);

#ifdef __cplusplus
}
#endif
#endif
