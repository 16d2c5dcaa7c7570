/* Copies of the host. Those that are larger than a core's own cache write past it: the lines that are overwritten whole need not be
 * read first, which takes half the time. */
#include <string.h>
#include "backend/host/stream.h"
#ifdef __SSE2__
#include <immintrin.h>
#endif

#define LARGE_BYTES ((size_t)1 << 20)

#ifdef __SSE2__
/* @dst on 32 bytes, @bytes a multiple of 128 */
__attribute__((target("avx"))) static void past_cache_avx(char *dst, const char *src, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 128) {
		const __m256i *from = (const __m256i *)(const void *)(src + i);
		__m256i a = _mm256_loadu_si256(from), b = _mm256_loadu_si256(from + 1);
		__m256i c = _mm256_loadu_si256(from + 2), d = _mm256_loadu_si256(from + 3);
		__m256i *to = (__m256i *)(void *)(dst + i);

		_mm256_stream_si256(to, a);
		_mm256_stream_si256(to + 1, b);
		_mm256_stream_si256(to + 2, c);
		_mm256_stream_si256(to + 3, d);
	}
	_mm_sfence(); /* whoever is told of the copy sees it */
}

static void past_cache(char *dst, const char *src, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 64) {
		const __m128i *from = (const __m128i *)(const void *)(src + i);
		__m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
		__m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
		__m128i *to = (__m128i *)(void *)(dst + i);

		_mm_stream_si128(to, a);
		_mm_stream_si128(to + 1, b);
		_mm_stream_si128(to + 2, c);
		_mm_stream_si128(to + 3, d);
	}
	_mm_sfence();
}
#endif

void stream_move(void *dst, const void *src, size_t bytes)
{
#ifdef __SSE2__
	size_t first = -(uintptr_t)dst & 31, large;

	if (bytes >= LARGE_BYTES) {
		large = (bytes - first) / 128 * 128;
		memcpy(dst, src, first);
		if (__builtin_cpu_supports("avx"))
			past_cache_avx((char *)dst + first, (const char *)src + first, large);
		else
			past_cache((char *)dst + first, (const char *)src + first, large);
		first += large;
		memcpy((char *)dst + first, (const char *)src + first, bytes - first);
		return;
	}
#endif
	memcpy(dst, src, bytes);
}
