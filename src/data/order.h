/* Which sample stands at which place: a pure function of (seed, position).
 *
 * position = (update-1) * E + place in the update, so it depends neither on the number of ranks nor on subdivisions
 * nor on threads.
 */
#ifndef DN_DATA_ORDER_H
#define DN_DATA_ORDER_H
#include <stdint.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

enum dn_shuffle { DN_SHUFFLE_OFF, DN_SHUFFLE_EPOCH, DN_SHUFFLE_REPLACE }; /* 0, 1, replace */

struct dn_order { /* which sample stands at which position */
	int64_t n;
	enum dn_shuffle shuffle;
	uint64_t seed;
};
/** dn_order_at() - sample of global @position. DN_SHUFFLE_EPOCH needs a permutation per epoch: two are cached in *c */
struct dn_order_cache;
DN_EXPORT int dn_order_cache_create(struct dn_order_cache **out, const struct dn_order *o);
DN_EXPORT void dn_order_cache_destroy(struct dn_order_cache *c);
DN_EXPORT int64_t dn_order_at(struct dn_order_cache *c, int64_t position); /* thread-safe, allocates nothing */

#ifdef __cplusplus
}
#endif
#endif
