/* Philox4x32-10 and the few distributions that are made from it. */
#include "base/rng.h"

#include <assert.h>
#include <math.h>

/* The key is the seed; the counter is the index, then the stream, low words first. */
void dn_rng_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
	uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
	uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);

	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)0xd2511f53u * c0;
		uint64_t p1 = (uint64_t)0xcd9e8d57u * c2;

		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)p1;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)p0;
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

static uint64_t word64(uint32_t hi, uint32_t lo)
{
	return (uint64_t)hi << 32 | lo;
}

static double unit(uint64_t x)
{
	return (double)(x >> 11) * 0x1p-53;
}

double dn_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
	uint32_t r[4];

	dn_rng_block(seed, stream, index, r);
	return unit(word64(r[0], r[1]));
}

/* Box-Muller; the radius takes (0, 1], so that the logarithm is finite. */
double dn_rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
	uint32_t r[4];
	double u, v;

	dn_rng_block(seed, stream, index, r);
	u = 1.0 - unit(word64(r[0], r[1]));
	v = unit(word64(r[2], r[3]));
	return sqrt(-2.0 * log(u)) * cos(2.0 * M_PI * v);
}

/* The top of a 128-bit fraction times n: uneven by less than n / 2^128, and no loop. */
uint64_t dn_rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
	uint32_t r[4];
	unsigned __int128 hi, lo;

	assert(n > 0);
	dn_rng_block(seed, stream, index, r);
	hi = (unsigned __int128)word64(r[0], r[1]) * n;
	lo = (unsigned __int128)word64(r[2], r[3]) * n;
	return (uint64_t)((hi + (lo >> 64)) >> 64);
}

void dn_rng_permutation(uint64_t seed, uint64_t stream, int64_t n, int64_t *out)
{
	for (int64_t i = 0; i < n; i++)
		out[i] = i;
	for (int64_t i = n - 1; i > 0; i--) {
		int64_t j = (int64_t)dn_rng_below(seed, stream, (uint64_t)i, (uint64_t)i + 1);
		int64_t t = out[i];

		out[i] = out[j];
		out[j] = t;
	}
}
