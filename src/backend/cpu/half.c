/* Numbers of 16 bits, see NOTE(16 bits): with the processor's own conversion where it has one, else with whole numbers, to the
 * same bits. */
#include <immintrin.h>
#include <string.h>

#include "backend/cpu/cpu_priv.h"

#define SPAN 1024 /* elements that are converted at a time: all are read before the first is written */

/* --- one number --- */

static inline uint32_t bf16_of(uint32_t b)
{
	const uint32_t near = (b + 0x7fff + (b >> 16 & 1)) >> 16, nan = b >> 16 | 0x40;

	return (b & 0x7fffffff) > 0x7f800000 ? nan : near;
}

static inline uint32_t f16_of(uint32_t b)
{
	const uint32_t sign = b >> 16 & 0x8000, a = b & 0x7fffffff, m = (a & 0x7fffff) | 0x800000;
	uint32_t shift;

	if (a > 0x7f800000)
		return sign | 0x7e00 | (a >> 13 & 0x3ff);
	if (a >= 0x477ff000) /* 65520, half a step beyond the largest */
		return sign | 0x7c00;
	if (a >= 0x38800000) /* 2^-14, the smallest with a whole fraction */
		return sign | (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13;
	if (a <= 0x33000000) /* 2^-25, half of the smallest */
		return sign;
	shift = 126 - (a >> 23);
	return sign | (m + (1u << (shift - 1)) - 1 + (m >> shift & 1)) >> shift;
}

static inline uint32_t of_f16(uint32_t h)
{
	const uint32_t sign = (h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
	const float small = (float)m * 0x1p-24f;
	uint32_t bits;

	memcpy(&bits, &small, sizeof(bits)); /* host memory: a register */
	if (e == 31)
		bits = 0x7f800000 | m << 13 | (m ? 0x400000 : 0);
	else if (e)
		bits = (e + 112) << 23 | m << 13;
	return sign | bits;
}

/* --- up to SPAN of them, from and to memory that is shared with nobody --- */

static bool has_f16c(void)
{
	return __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
}

/* returns how many are done */
__attribute__((target("avx,f16c"))) static int64_t f16_narrow(int64_t n, const uint32_t *x, uint16_t *y)
{
	int64_t i = 0;

	for (; i + 8 <= n; i += 8)
		_mm_storeu_si128((__m128i *)(void *)(y + i),
				 _mm256_cvtps_ph(_mm256_loadu_ps((const float *)(const void *)(x + i)),
						 _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
	return i;
}

__attribute__((target("avx,f16c"))) static int64_t f16_widen(int64_t n, const uint16_t *x, uint32_t *y)
{
	int64_t i = 0;

	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps((float *)(void *)(y + i),
				 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(x + i))));
	return i;
}

static void span_narrow(enum dn_type type, int64_t n, const uint32_t *restrict x, uint16_t *restrict y)
{
	if (type == DN_BF16)
		for (int64_t i = 0; i < n; i++)
			y[i] = (uint16_t)bf16_of(x[i]);
	else
		for (int64_t i = has_f16c() ? f16_narrow(n, x, y) : 0; i < n; i++)
			y[i] = (uint16_t)f16_of(x[i]);
}

static void span_widen(enum dn_type type, int64_t n, const uint16_t *restrict x, uint32_t *restrict y)
{
	if (type == DN_BF16)
		for (int64_t i = 0; i < n; i++)
			y[i] = (uint32_t)x[i] << 16;
	else
		for (int64_t i = has_f16c() ? f16_widen(n, x, y) : 0; i < n; i++)
			y[i] = of_f16(x[i]);
}

static void half_narrow(enum dn_type type, int64_t n, const float *x, void *y)
{
	uint16_t to[SPAN];
	uint32_t from[SPAN];

	for (int64_t at = 0, len; at < n; at += len) {
		len = n - at < SPAN ? n - at : SPAN;
		memcpy(from, x + at, (size_t)len * sizeof(*from)); /* host memory */
		span_narrow(type, len, from, to);
		memcpy((char *)y + at * 2, to, (size_t)len * sizeof(*to)); /* host memory */
	}
}

void half_widen(enum dn_type type, int64_t n, const void *x, float *y)
{
	uint16_t from[SPAN];
	uint32_t to[SPAN];

	for (int64_t at = 0, len; at < n; at += len) {
		len = n - at < SPAN ? n - at : SPAN;
		memcpy(from, (const char *)x + at * 2, (size_t)len * sizeof(*from)); /* host memory */
		span_widen(type, len, from, to);
		memcpy(y + at, to, (size_t)len * sizeof(*to)); /* host memory */
	}
}

/* --- ops --- */

static bool apart(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
	return (uintptr_t)a + a_bytes <= (uintptr_t)b || (uintptr_t)b + b_bytes <= (uintptr_t)a;
}

int cpu_narrow(struct dn_stream *st, enum dn_type type, int64_t n, const float *x, void *y)
{
	int nt = stream_threads(st), err = half_check(&cpu_limits, "narrow", type);

	if (err)
		return err;
	if (nt == 1 || n < CPU_PARALLEL_MIN || !apart(x, (size_t)n * 4, y, (size_t)n * 2)) {
		half_narrow(type, n, x, y);
		return 0;
	}
#pragma omp parallel for schedule(static) num_threads(nt)
	for (int64_t at = 0; at < n; at += SPAN)
		half_narrow(type, n - at < SPAN ? n - at : SPAN, x + at, (char *)y + at * 2);
	return 0;
}

int cpu_widen(struct dn_stream *st, enum dn_type type, int64_t n, const void *x, float *y)
{
	int nt = stream_threads(st), err = half_check(&cpu_limits, "widen", type);

	if (err)
		return err;
	if (nt == 1 || n < CPU_PARALLEL_MIN || !apart(x, (size_t)n * 2, y, (size_t)n * 4)) {
		half_widen(type, n, x, y);
		return 0;
	}
#pragma omp parallel for schedule(static) num_threads(nt)
	for (int64_t at = 0; at < n; at += SPAN)
		half_widen(type, n - at < SPAN ? n - at : SPAN, (const char *)x + at * 2, y + at);
	return 0;
}
