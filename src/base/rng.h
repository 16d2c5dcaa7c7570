/* Counter-based random numbers: a value is a pure function of (seed, stream, index), so it depends
 * neither on ranks nor on threads nor on order. Philox4x32-10 (Salmon et al., SC 2011).
 */
#ifndef DN_BASE_RNG_H
#define DN_BASE_RNG_H
#include <stdint.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

/* High 16 bits of a stream say what it is for, so that two uses never share numbers. */
enum dn_rng_use { DN_RNG_INIT = 1, DN_RNG_SHUFFLE = 2, DN_RNG_DROPOUT = 3, DN_RNG_AUGMENT = 4, DN_RNG_RATE = 5, DN_RNG_CROP = 6 };
#define DN_RNG_STREAM(use, id) (((uint64_t)(use) << 48) | ((uint64_t)(id)&0xffffffffffffull))

DN_EXPORT void dn_rng_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]);
DN_EXPORT double dn_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);	     /* [0, 1), 53 bits */
DN_EXPORT double dn_rng_normal(uint64_t seed, uint64_t stream, uint64_t index);		     /* mean 0, sigma 1 */
DN_EXPORT uint64_t dn_rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n); /* [0, n) */

/** dn_rng_permutation() - Fisher-Yates over 0..n-1 into @out, a pure function of (seed, stream, n) */
DN_EXPORT void dn_rng_permutation(uint64_t seed, uint64_t stream, int64_t n, int64_t *out);

#ifdef __cplusplus
}
#endif
#endif
