/* base: memory by region. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>

#include "base/thread.h"
#include "base_help.h"

static void memory_is_counted_by_region(void)
{
	struct dn_mem_stats a, b;
	size_t host = host_now();
	uint64_t n = dn_mem_n_allocs();
	float *p;
	char *q;

	dn_mem_stats(DN_MEM_GRADS, &a);
	p = dn_alloc_region(DN_MEM_GRADS, 1000);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	dn_mem_stats(DN_MEM_GRADS, &b);
	CHECK_EQ(b.now_bytes - a.now_bytes, 1000);
	CHECK_EQ(b.n_allocs - a.n_allocs, 1);
	CU_ASSERT(b.peak_bytes >= b.now_bytes);
	CHECK_EQ(host_now(), host);
	q = dn_alloc(10);
	CHECK_EQ(host_now() - host, 10);
	q = dn_realloc(q, 3000);
	CHECK_EQ(host_now() - host, 3000);
	q = dn_realloc(q, 5);
	CHECK_EQ(host_now() - host, 5);
	CHECK_EQ(dn_mem_n_allocs() - n, 4);
	dn_free(q);
	dn_free(p);
	dn_free(NULL);
	dn_mem_stats(DN_MEM_GRADS, &b);
	CHECK_EQ(b.now_bytes, a.now_bytes);
	CHECK_EQ(host_now(), host);
	CHECK_STR(dn_region_name(DN_MEM_PARAM_SLOTS), "param_slots");
	for (int r = 0; r < DN_MEM_REGIONS; r++)
		CU_ASSERT(strlen(dn_region_name(r)) > 2);
}

static void regions_are_aligned_and_zero(void)
{
	static const size_t sizes[] = { 0, 1, 63, 64, 1000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5000000 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		unsigned char *p = dn_alloc_region(DN_MEM_PARAMS, sizes[i]);
		size_t bad = 0;

		CU_ASSERT_PTR_NOT_NULL_FATAL(p);
		CHECK_EQ((uintptr_t)p % (sizes[i] >= 1 << 20 ? 4096 : DN_ALIGN), 0);
		for (size_t k = 0; k < sizes[i]; k++)
			bad += p[k] != 0;
		CHECK_EQ(bad, 0);
		memset(p, 0xff, sizes[i]); /* a later block over the same bytes must be zero again */
		dn_free(p);
	}
}

/* growing and shrinking across the size where blocks become mappings */
static void realloc_keeps_the_bytes(void)
{
	static const size_t sizes[] = { 100, 4000, 1 << 20, 3 << 20, 9 << 20, 2 << 20, 700, 40 };
	size_t before = host_now(), kept = 0;
	unsigned char *p = NULL;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t bad = 0;

		p = dn_realloc(p, sizes[i]);
		CU_ASSERT_PTR_NOT_NULL_FATAL(p);
		CHECK_EQ((uintptr_t)p % 16, 0);
		CHECK_EQ(host_now() - before, sizes[i]);
		for (size_t k = 0; k < kept && k < sizes[i]; k++)
			bad += p[k] != (unsigned char)(k * 7 + k / 256);
		CHECK_EQ(bad, 0);
		for (size_t k = 0; k < sizes[i]; k++)
			p[k] = (unsigned char)(k * 7 + k / 256);
		kept = sizes[i];
	}
	dn_free(p);
	CHECK_EQ(host_now(), before);
}

static void failures_name_region_and_bytes(void)
{
	size_t before = host_now();
	void *p;

	dn_message_clear();
	p = dn_alloc_region(DN_MEM_ACTIVATIONS, (size_t)PTRDIFF_MAX - 5);
	CU_ASSERT_PTR_NULL(p);
	CHECK_STR(dn_message(), "out of memory: activations: 9223372036854775802 bytes");
	CU_ASSERT_PTR_NULL(dn_alloc((size_t)1 << 46)); /* more than any host has: said before the system is asked */
	CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), "out of memory: host: 67108864 MiB are needed, "));
	dn_free(p);
	CU_ASSERT_PTR_NULL(dn_alloc(SIZE_MAX));
	CU_ASSERT_PTR_NULL(dn_calloc(SIZE_MAX / 2, 3));
	CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), "overflow"));
	CHECK_EQ(host_now(), before);
}

static void the_chosen_allocation_fails(void)
{
	void *a, *b, *c;

	dn_mem_fail_at(2);
	a = dn_alloc(1);
	b = dn_alloc(2);
	c = dn_alloc(3);
	CU_ASSERT_PTR_NOT_NULL(a);
	CU_ASSERT_PTR_NULL(b);
	CU_ASSERT_PTR_NOT_NULL(c);
	CHECK_STR(dn_message(), "out of memory: host: 2 bytes");
	dn_mem_fail_at(1);
	CU_ASSERT_PTR_NULL(dn_realloc(c, 100));
	dn_mem_fail_at(1);
	dn_mem_fail_at(0);
	b = dn_zalloc(0);
	CU_ASSERT_PTR_NOT_NULL(b);
	dn_free(a);
	dn_free(b);
	dn_free(c);
}

static void mul_size_checks_overflow(void)
{
	size_t x = 5;

	CHECK_OK(dn_mul_size((size_t)1 << 32, ((size_t)1 << 32) - 1, &x));
	CU_ASSERT(x == SIZE_MAX - ((size_t)1 << 32) + 1);
	CHECK_FAILS(dn_mul_size((size_t)1 << 32, (size_t)1 << 32, &x), -EOVERFLOW, "4294967296");
	CU_ASSERT(x == SIZE_MAX - ((size_t)1 << 32) + 1);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* 64 MiB become resident at once and leave again; 8 MiB of slack for what else the process does. */
static void regions_are_resident_until_freed(void)
{
	size_t n = (size_t)64 << 20;
	size_t before = dn_rss_bytes();
	uint64_t allocs = dn_mem_n_allocs();
	void *p;
	size_t with, after;

	CU_ASSERT(before > 0);
	CHECK_EQ(dn_mem_n_allocs(), allocs);
	p = dn_alloc_region(DN_MEM_PARAMS, n);
	with = dn_rss_bytes();
	dn_free(p);
	after = dn_rss_bytes();
	CU_ASSERT(with >= before + n - (1 << 20));
	CU_ASSERT(after < before + (8u << 20));
	CU_ASSERT(dn_peak_rss_bytes() >= with - (1 << 20));
}
#endif

static void *churn(void *arg)
{
	for (int i = 0; i < 2000; i++)
		dn_free(dn_alloc_region(DN_MEM_STAGING, 100 + (size_t)i % 7));
	return NULL;
}

static void counters_survive_threads(void)
{
	struct dn_mem_stats a, b;
	pthread_t t[3];

	dn_mem_stats(DN_MEM_STAGING, &a);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, churn, NULL), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	dn_mem_stats(DN_MEM_STAGING, &b);
	CHECK_EQ(b.now_bytes, a.now_bytes);
	CHECK_EQ(b.n_allocs - a.n_allocs, 6000);
	CU_ASSERT(b.peak_bytes >= 106 && b.peak_bytes <= 318);
}

/* every element keeps its value, a full array doubles, one that failed is as it was */
static void grow_makes_room_for_one_more(void)
{
	size_t before = host_now(), n_bad = 0, n_moves = 0, bytes = 0;
	int64_t *a = NULL, *more;

	for (int64_t n = 0; n < 1000; n++) {
		more = dn_grow(a, n, sizeof(*a));
		CU_ASSERT_PTR_NOT_NULL_FATAL(more);
		a = more;
		CU_ASSERT_FATAL(host_now() - before >= (size_t)(n + 1) * sizeof(*a));
		n_moves += host_now() - before != bytes;
		bytes = host_now() - before;
		a[n] = n * n;
	}
	CHECK_EQ(bytes, 1024 * sizeof(*a));
	CHECK_EQ(n_moves, 8); /* 8, 16, ... 1024 */
	dn_mem_fail_at(1);
	CU_ASSERT_PTR_NULL(dn_grow(a, 1024, sizeof(*a)));
	dn_mem_fail_at(0);
	CU_ASSERT_PTR_NULL(dn_grow(a, 1024, SIZE_MAX / 1024));
	for (int64_t n = 0; n < 1000; n++)
		n_bad += a[n] != n * n;
	CHECK_EQ(n_bad, 0);
	dn_free(a);
	CHECK_EQ(host_now(), before);
}

static const struct check_case cases[] = {
	{ "memory is counted by region", memory_is_counted_by_region },
	{ "regions are aligned and zero", regions_are_aligned_and_zero },
	{ "realloc keeps the bytes", realloc_keeps_the_bytes },
	{ "grow makes room for one more", grow_makes_room_for_one_more },
	{ "failures name region and bytes", failures_name_region_and_bytes },
	{ "the chosen allocation fails", the_chosen_allocation_fails },
	{ "mul_size checks overflow", mul_size_checks_overflow },
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	{ "regions are resident until freed", regions_are_resident_until_freed },
#endif
	{ "counters survive threads", counters_survive_threads },
	{ NULL, NULL },
};

int main(void)
{
	return base_help_run("base_mem", cases);
}
