/* base: messages, memory, numbers, texts, options, key files, files, arenas, time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/group.h"
#include "base/keyfile.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/thread.h"
#include "check.h"

/* Lines that went to the log while a case listened. */
struct heard {
	int n;
	char all[8192];
};

static void hear(void *arg, const char *line)
{
	struct heard *h = arg;
	size_t n = strlen(h->all);

	h->n++;
	snprintf(h->all + n, sizeof(h->all) - n, "%s\n", line);
}

static void listen_start(struct heard *h)
{
	memset(h, 0, sizeof(*h));
	dn_log_sink(hear, h);
}

static void listen_stop(void)
{
	dn_log_sink(NULL, NULL);
}

static char tmp_dir[64];

static const char *tmp_path(const char *name)
{
	static char path[4][256];
	static int i;
	char *p = path[i++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", tmp_dir, name);
	return p;
}

static void put_file(const char *path, const void *bytes, size_t n)
{
	FILE *f = fopen(path, "wb");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(fwrite(bytes, 1, n, f), n);
	CU_ASSERT_EQUAL(fclose(f), 0);
}

static size_t host_now(void)
{
	struct dn_mem_stats st;

	dn_mem_stats(DN_MEM_HOST, &st);
	return st.now_bytes;
}

/* ---- status and log ---- */

static void fail_records_and_returns(void)
{
	dn_message_clear();
	CHECK_STR(dn_message(), "");
	errno = 7;
	CHECK_EQ(dn_fail(-EINVAL, "a %d", 5), -EINVAL);
	CHECK_EQ(errno, 7);
	CHECK_STR(dn_message(), "a 5");
	dn_fail(-EIO, "rank 0: %s", dn_message());
	CHECK_STR(dn_message(), "rank 0: a 5");
}

static void message_is_cut_at_2000(void)
{
	dn_fail(-1, "%05000d", 1);
	CHECK_EQ(strlen(dn_message()), 2000);
}

static void *fail_elsewhere(void *arg)
{
	dn_fail(-EIO, "other thread");
	return NULL;
}

static void message_belongs_to_its_thread(void)
{
	pthread_t t;

	dn_fail(-EIO, "mine");
	CHECK_EQ(pthread_create(&t, NULL, fail_elsewhere, NULL), 0);
	pthread_join(t, NULL);
	CHECK_STR(dn_message(), "mine");
}

static void exit_status_follows_the_error(void)
{
	CHECK_EQ(dn_exit_status(0), 0);
	CHECK_EQ(dn_exit_status(-EINVAL), 1);
	CHECK_EQ(dn_exit_status(-ECONNABORTED), 3);
	CHECK_EQ(dn_exit_status(-ETIMEDOUT), 3);
}

static void log_level_is_chosen_per_room(void)
{
	struct heard h;

	setenv("DARKNET_LOG", "fsdp:debug,net:info", 1);
	CU_ASSERT(dn_log_on("fsdp", DN_LOG_DEBUG));
	CU_ASSERT(dn_log_on("net", DN_LOG_INFO));
	CU_ASSERT(!dn_log_on("net", DN_LOG_DEBUG));
	CU_ASSERT(!dn_log_on("ne", DN_LOG_INFO));
	CU_ASSERT(dn_log_on("data", DN_LOG_WARN));
	CU_ASSERT(!dn_log_on("data", DN_LOG_INFO));
	listen_start(&h);
	dn_log("net", DN_LOG_INFO, "%d layers", 3);
	dn_log("net", DN_LOG_DEBUG, "not this");
	listen_stop();
	CHECK_STR(h.all, "net: info: 3 layers\n");
	setenv("DARKNET_LOG", "*:error,net:debug", 1);
	CU_ASSERT(!dn_log_on("data", DN_LOG_WARN));
	CU_ASSERT(dn_log_on("net", DN_LOG_DEBUG));
	setenv("DARKNET_LOG", "info", 1);
	CU_ASSERT(dn_log_on("data", DN_LOG_INFO));
	setenv("DARKNET_LOG", "net:loud", 1);
	listen_start(&h);
	CU_ASSERT(!dn_log_on("net", DN_LOG_INFO));
	CU_ASSERT(!dn_log_on("net", DN_LOG_INFO));
	listen_stop();
	CHECK_EQ(h.n, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(h.all, "net:loud"));
	unsetenv("DARKNET_LOG");
}

static void warnings_can_be_quiet(void)
{
	struct heard h;

	listen_start(&h);
	dn_warn("one");
	dn_log_quiet(true);
	dn_warn("two");
	dn_log_quiet(false);
	dn_warn("%05000d", 3);
	listen_stop();
	CHECK_EQ(h.n, 2);
	CU_ASSERT(dn_starts(h.all, "warning: one\nwarning: 000"));
}

/* ---- mem ---- */

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

/* ---- rng ---- */

/* Known answers published with the generator for Philox4x32-10. */
static void philox_gives_the_published_words(void)
{
	static const struct {
		uint64_t seed, stream, index;
		uint32_t want[4];
	} known[] = {
		{ 0, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ UINT64_MAX, UINT64_MAX, UINT64_MAX, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ 0x299f31d0a4093822,
		  0x0370734413198a2e,
		  0x85a308d3243f6a88,
		  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};

	for (int i = 0; i < 3; i++) {
		uint32_t got[4];

		dn_rng_block(known[i].seed, known[i].stream, known[i].index, got);
		CHECK_BITS(got, known[i].want, sizeof(got));
	}
}

/* Sample moments of N values lie within 5 standard errors of the true ones. */
static void distributions_have_their_moments(void)
{
	enum { N = 100000 };
	double u1 = 0, u2 = 0, g1 = 0, g2 = 0, g4 = 0;
	int hits[7] = { 0 };

	for (int i = 0; i < N; i++) {
		double u = dn_rng_uniform(1, DN_RNG_STREAM(DN_RNG_INIT, 3), (uint64_t)i);
		double g = dn_rng_normal(1, DN_RNG_STREAM(DN_RNG_DROPOUT, 3), (uint64_t)i);

		CU_ASSERT_FATAL(u >= 0 && u < 1);
		u1 += u;
		u2 += u * u;
		g1 += g;
		g2 += g * g;
		g4 += g * g * g * g;
		hits[dn_rng_below(9, 1, (uint64_t)i, 7)]++;
	}
	CU_ASSERT(fabs(u1 / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
	CU_ASSERT(fabs(u2 / N - 1.0 / 3) < 5 * sqrt(4.0 / 45 / N));
	CU_ASSERT(fabs(g1 / N) < 5 * sqrt(1.0 / N));
	CU_ASSERT(fabs(g2 / N - 1) < 5 * sqrt(2.0 / N));
	CU_ASSERT(fabs(g4 / N - 3) < 5 * sqrt(96.0 / N));
	for (int k = 0; k < 7; k++)
		CU_ASSERT(fabs(hits[k] - N / 7.0) < 5 * sqrt(N / 7.0 * 6 / 7));
	for (int i = 0; i < 100; i++)
		CHECK_EQ(dn_rng_below(9, 1, (uint64_t)i, 1), 0);
	/* with n = 2^64 - 1 the product's top word is the high word, less 1 where the low one is smaller */
	for (uint64_t i = 0; i < 100; i++) {
		uint32_t r[4];
		uint64_t hi, lo;

		dn_rng_block(9, 1, i, r);
		hi = (uint64_t)r[0] << 32 | r[1];
		lo = (uint64_t)r[2] << 32 | r[3];
		CU_ASSERT(dn_rng_below(9, 1, i, UINT64_MAX) == hi - (lo < hi));
	}
}

static void streams_do_not_share_numbers(void)
{
	uint64_t a = DN_RNG_STREAM(DN_RNG_INIT, 5), b = DN_RNG_STREAM(DN_RNG_SHUFFLE, 5);

	CU_ASSERT(a != b);
	CU_ASSERT(dn_rng_uniform(1, a, 0) != dn_rng_uniform(1, b, 0));
	CU_ASSERT(dn_rng_uniform(1, a, 0) != dn_rng_uniform(2, a, 0));
	CU_ASSERT(dn_rng_uniform(1, a, 0) != dn_rng_uniform(1, a, 1));
}

static void permutation_holds_every_number_once(void)
{
	enum { N = 1000 };
	int64_t a[N], b[N];
	int seen[N] = { 0 }, home = 0;
	int64_t counts[6] = { 0 };

	dn_rng_permutation(4, 7, N, a);
	dn_rng_permutation(4, 7, N, b);
	CHECK_BITS(a, b, sizeof(a));
	for (int i = 0; i < N; i++) {
		CU_ASSERT_FATAL(a[i] >= 0 && a[i] < N);
		seen[a[i]]++;
		home += a[i] == i;
	}
	for (int i = 0; i < N; i++)
		CHECK_EQ(seen[i], 1);
	CU_ASSERT(home < 12); /* about 1 expected */
	/* all orders of three are equally likely: 6000 draws, 5 sigma around 1000 */
	for (uint64_t s = 0; s < 6000; s++) {
		dn_rng_permutation(4, s, 3, a);
		counts[a[0] * 2 + (a[1] > a[2])]++;
	}
	for (int i = 0; i < 6; i++)
		CU_ASSERT(fabs((double)counts[i] - 1000) < 5 * sqrt(6000.0 * 5 / 36));
	dn_rng_permutation(1, 1, 0, NULL);
}

/* ---- text ---- */

static void whole_numbers_are_strict(void)
{
	static const struct {
		const char *s;
		enum dn_number kind;
		int64_t want;
	} t[] = {
		{ "0", DN_NUM_WHOLE, 0 },
		{ " -12\t", DN_NUM_WHOLE, -12 },
		{ "+7", DN_NUM_WHOLE, 7 },
		{ "007", DN_NUM_WHOLE, 7 },
		{ "1e3", DN_NUM_PREFIX, 1 },
		{ "0x10", DN_NUM_PREFIX, 0 },
		{ "1.5", DN_NUM_PREFIX, 1 },
		{ "3 4", DN_NUM_PREFIX, 3 },
		{ "", DN_NUM_NONE, -99 },
		{ "abc", DN_NUM_NONE, -99 },
		{ "-", DN_NUM_NONE, -99 },
		{ "- 1", DN_NUM_NONE, -99 },
		{ ".5", DN_NUM_NONE, -99 },
		{ "+-1", DN_NUM_NONE, -99 },
		{ "9223372036854775807", DN_NUM_WHOLE, INT64_MAX },
		{ "9223372036854775808", DN_NUM_RANGE, -99 },
		{ "-9223372036854775808", DN_NUM_WHOLE, INT64_MIN },
		{ "-9223372036854775809", DN_NUM_RANGE, -99 },
		{ "99999999999999999999999999999999", DN_NUM_RANGE, -99 },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		int64_t x = -99;
		enum dn_number kind = dn_parse_int(t[i].s, &x);

		if (kind != t[i].kind || x != t[i].want)
			fprintf(stderr, "\"%s\": kind %d, value %lld\n", t[i].s, (int)kind, (long long)x);
		CU_ASSERT_EQUAL(kind, t[i].kind);
		CU_ASSERT_EQUAL(x, t[i].want);
	}
}

static void floats_are_strict(void)
{
	static const struct {
		const char *s;
		enum dn_number kind;
		double want;
	} t[] = {
		{ "1e3", DN_NUM_WHOLE, 1000 },
		{ ".5", DN_NUM_WHOLE, 0.5 },
		{ "5.", DN_NUM_WHOLE, 5 },
		{ " -1.25e-2 ", DN_NUM_WHOLE, -0.0125 },
		{ "+2E+2", DN_NUM_WHOLE, 200 },
		{ "1e", DN_NUM_PREFIX, 1 },
		{ "1e+", DN_NUM_PREFIX, 1 },
		{ "0x10", DN_NUM_PREFIX, 0 },
		{ "-0x1p4", DN_NUM_PREFIX, 0 },
		{ "1.2.3", DN_NUM_PREFIX, 1.2 },
		{ "3f", DN_NUM_PREFIX, 3 },
		{ "", DN_NUM_NONE, -99 },
		{ ".", DN_NUM_NONE, -99 },
		{ "e5", DN_NUM_NONE, -99 },
		{ "info", DN_NUM_NONE, -99 },
		{ "nano", DN_NUM_NONE, -99 },
		{ "inf", DN_NUM_RANGE, -99 },
		{ "-Infinity", DN_NUM_RANGE, -99 },
		{ "NaN", DN_NUM_RANGE, -99 },
		{ "nan(1)", DN_NUM_RANGE, -99 },
		{ "1e999", DN_NUM_RANGE, -99 },
		{ "1e-999", DN_NUM_WHOLE, 0 },
		{ "1e99999999999999999999", DN_NUM_RANGE, -99 },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		double x = -99;
		enum dn_number kind = dn_parse_float(t[i].s, &x);

		if (kind != t[i].kind || x != t[i].want)
			fprintf(stderr, "\"%s\": kind %d, value %g\n", t[i].s, (int)kind, x);
		CU_ASSERT_EQUAL(kind, t[i].kind);
		CU_ASSERT_EQUAL(x, t[i].want);
	}
}

static void byte_counts_take_units(void)
{
	static const struct {
		const char *s;
		enum dn_number kind;
		int64_t want;
	} t[] = {
		{ "123", DN_NUM_WHOLE, 123 },	    { "64K", DN_NUM_WHOLE, 65536 }, { "16M", DN_NUM_WHOLE, 16777216 },
		{ "2g", DN_NUM_WHOLE, 2147483648 }, { "16MB", DN_NUM_PREFIX, -99 }, { "1.5M", DN_NUM_PREFIX, -99 },
		{ "M", DN_NUM_NONE, -99 },	    { "-1K", DN_NUM_RANGE, -99 },   { "9999999999G", DN_NUM_RANGE, -99 },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		int64_t x = -99;

		CHECK_EQ(dn_parse_bytes(t[i].s, &x), t[i].kind);
		CHECK_EQ(x, t[i].want);
	}
}

static void buffers_grow(void)
{
	struct dn_buf b = { 0 };
	size_t before = host_now();

	CHECK_OK(dn_buf_add(&b, NULL, 0));
	CHECK_STR(b.s, "");
	for (int i = 0; i < 1000; i++)
		CHECK_OK(dn_buf_printf(&b, "%d,", i % 10));
	CHECK_EQ(b.n, 2000);
	CU_ASSERT(dn_starts(b.s, "0,1,2,3,") && dn_ends(b.s, ",8,9,"));
	CHECK_OK(dn_buf_add(&b, "a\0b", 3));
	CHECK_EQ(b.n, 2003);
	CHECK_EQ(b.s[2003], 0);
	dn_mem_fail_at(1);
	CHECK_EQ(dn_buf_printf(&b, "%010000d", 1), -ENOMEM);
	CHECK_EQ(b.n, 2003);
	dn_buf_fini(&b);
	CU_ASSERT(!b.s && !b.n && !b.cap);
	CHECK_EQ(host_now(), before);
}

static void small_text_helpers_work(void)
{
	char out[8], h[32];

	CU_ASSERT(dn_starts("abc", "ab") && dn_starts("abc", "") && !dn_starts("a", "ab"));
	CU_ASSERT(dn_ends("a.cfg", ".cfg") && dn_ends("a", "") && !dn_ends("g", ".cfg"));
	dn_base_name("cfg/yolov3.v2.cfg", out, sizeof(out));
	CHECK_STR(out, "yolov3");
	dn_base_name("plain", out, sizeof(out));
	CHECK_STR(out, "plain");
	dn_base_name("a.b/.cfg", out, sizeof(out));
	CHECK_STR(out, "net");
	dn_base_name("", out, sizeof(out));
	CHECK_STR(out, "net");
	dn_base_name("averylongname.cfg", out, sizeof(out));
	CHECK_STR(out, "averylo");
	/* published value of the empty text, and of "abc", with seed 0 */
	CU_ASSERT(dn_hash("", 0) == 0xef46db3751d8e999ull);
	CU_ASSERT(dn_hash("abc", 3) == 0x44bc2cf5ad770999ull);
	dn_human_bytes(512, h, sizeof(h));
	CHECK_STR(h, "512 B");
	dn_human_bytes(1289748, h, sizeof(h));
	CHECK_STR(h, "1.23 MiB");
	dn_human_bytes(1048575, h, sizeof(h));
	CHECK_STR(h, "1.00 MiB");
}

/* ---- thread ---- */

static void waits_end_at_their_deadline(void)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t c;
	int64_t start, took;
	int err = 0;

	CHECK_OK_FATAL(dn_cond_init(&c));
	pthread_mutex_lock(&m);
	start = dn_now_ns();
	while (!err)
		err = dn_cond_wait_until(&c, &m, start + 30000000);
	took = dn_now_ns() - start;
	CHECK_EQ(err, -ETIMEDOUT);
	CU_ASSERT(took >= 30000000);
	CU_ASSERT(took < 5000000000); /* a busy machine may be late, but not by this */
	CHECK_EQ(dn_cond_wait_until(&c, &m, 1), -ETIMEDOUT);
	pthread_mutex_unlock(&m);
	pthread_cond_destroy(&c);
	start = dn_now_ns();
	dn_sleep_us(2000);
	CU_ASSERT(dn_now_ns() - start >= 2000000);
	dn_sleep_us(-5);
}

struct signal_test {
	pthread_mutex_t m;
	pthread_cond_t c;
	bool set; /* m */
};

static void *signal_later(void *arg)
{
	struct signal_test *t = arg;

	dn_sleep_us(5000);
	pthread_mutex_lock(&t->m);
	t->set = true;
	pthread_cond_signal(&t->c);
	pthread_mutex_unlock(&t->m);
	return NULL;
}

static void waits_end_with_a_signal(void)
{
	struct signal_test t = { .m = PTHREAD_MUTEX_INITIALIZER };

	CHECK_OK_FATAL(dn_cond_init(&t.c));
	for (int with = 0; with < 2; with++) {
		pthread_t thread;
		int err = 0;

		t.set = false;
		CHECK_EQ(pthread_create(&thread, NULL, signal_later, &t), 0);
		pthread_mutex_lock(&t.m);
		while (!t.set && !err)
			err = dn_cond_wait_until(&t.c, &t.m, with ? dn_now_ns() + 10000000000 : 0);
		pthread_mutex_unlock(&t.m);
		CHECK_EQ(err, 0);
		pthread_join(thread, NULL);
	}
	pthread_cond_destroy(&t.c);
}

static void there_are_cores(void)
{
	CU_ASSERT(dn_usable_cores() >= 1);
	CU_ASSERT(dn_present_cores() >= 1);
	CU_ASSERT(dn_usable_cores() <= 100000);
}

/* ---- option ---- */

static int even_only(const char *value, const char *where)
{
	if ((value[strlen(value) - 1] - '0') % 2)
		return dn_fail(-EINVAL, "%s: %s is odd", where, value);
	return 0;
}

static const struct dn_option table_a[] = {
	{ .key = "limit", .type = DN_OPT_INT, .def = "2", .min = 1, .max = 64, .arg = "N", .help = "blocks" },
	{ .key = "clip", .type = DN_OPT_FLOAT, .min = 0, .max = INFINITY, .arg = "X", .help = "norm" },
	{ .key = "memory", .type = DN_OPT_BYTES, .arg = "BYTES", .help = "bound" },
	{ .key = "clear", .type = DN_OPT_SWITCH, .help = "start over" },
	{ 0 }
};
static const struct dn_option table_b[] = {
	{ .key = "prefetch", .type = DN_OPT_CHOICE, .def = "pre", .choices = "pre|post|none", .help = "when" },
	{ .key = "out", .type = DN_OPT_STRING, .arg = "FILE", .help = "where to" },
	{ .key = "even", .type = DN_OPT_INT, .def = "4", .check = even_only, .help = "even" },
	{ 0 }
};

static int join_values(void *arg, const struct dn_option *opt, const char *value)
{
	return dn_buf_printf(arg, "%s=%s;", opt->key, value);
}

static struct dn_options *two_tables(void)
{
	struct dn_options *o = NULL;

	CHECK_OK_FATAL(dn_options_create(&o));
	CHECK_OK_FATAL(dn_options_add(o, table_a));
	CHECK_OK_FATAL(dn_options_add(o, table_b));
	return o;
}

static void options_resolve_defaults_and_given(void)
{
	struct dn_options *o = two_tables();
	struct dn_buf b = { 0 };

	CHECK_EQ(dn_options_int(o, "limit"), 2);
	CHECK_EQ(dn_options_int(o, "memory"), 0);
	CU_ASSERT(dn_options_float(o, "clip") == 0);
	CU_ASSERT(!dn_options_on(o, "clear"));
	CU_ASSERT_PTR_NULL(dn_options_text(o, "out"));
	CHECK_STR(dn_options_text(o, "prefetch"), "pre");
	CU_ASSERT(!dn_options_given(o, "limit"));
	CU_ASSERT_PTR_NULL(dn_options_where(o, "limit"));
	CHECK_OK(dn_options_set(o, "limit", "64", "cfg/a.cfg:12"));
	CHECK_OK(dn_options_set(o, "limit", "1", "cfg/a.cfg:12"));
	CHECK_OK(dn_options_set(o, "limit", "9", "-limit"));
	CHECK_OK(dn_options_set(o, "memory", "16M", "-memory"));
	CHECK_OK(dn_options_set(o, "clip", "1e-1", "-clip"));
	CHECK_OK(dn_options_set(o, "clear", NULL, "-clear"));
	CHECK_OK(dn_options_set(o, "prefetch", "none", "-prefetch"));
	CHECK_EQ(dn_options_int(o, "limit"), 9);
	CHECK_STR(dn_options_where(o, "limit"), "-limit");
	CU_ASSERT(dn_options_given(o, "limit"));
	CHECK_EQ(dn_options_int(o, "memory"), 16777216);
	CU_ASSERT(dn_options_float(o, "clip") == 0.1);
	CU_ASSERT(dn_options_on(o, "clear"));
	CHECK_OK(dn_options_set(o, "clear", "0", "cfg/a.cfg:3"));
	CU_ASSERT(!dn_options_on(o, "clear"));
	CHECK_OK(dn_options_each(o, join_values, &b));
	CHECK_STR(b.s, "limit=9;clip=1e-1;memory=16M;clear=0;prefetch=none;out=;even=4;");
	CU_ASSERT_PTR_EQUAL(dn_options_find(o, "even"), &table_b[2]);
	CU_ASSERT_PTR_NULL(dn_options_find(o, "eve"));
	dn_buf_fini(&b);
	dn_options_destroy(o);
	dn_options_destroy(NULL);
}

static void options_refuse_bad_values(void)
{
	struct dn_options *o = two_tables();

	CHECK_FAILS(dn_options_set(o, "limt", "8", "a.cfg:3"), -ENOENT,
		    "a.cfg:3: unknown key limt; known: limit, clip, memory, clear, prefetch, out, even");
	CHECK_FAILS(dn_options_set(o, "limit", "4x", "a.cfg:3"), -EINVAL, "a.cfg:3: limit=4x: not a whole number");
	CHECK_FAILS(dn_options_set(o, "limit", "65", "-limit"), -EINVAL, "-limit 65: must be from 1 to 64");
	CHECK_FAILS(dn_options_set(o, "limit", "", "-limit"), -EINVAL, "not a whole number");
	CHECK_FAILS(dn_options_set(o, "limit", NULL, "-limit"), -EINVAL, "missing");
	CHECK_FAILS(dn_options_set(o, "clip", "-1", "-clip"), -EINVAL, "at least 0");
	CHECK_FAILS(dn_options_set(o, "clip", "nan", "-clip"), -EINVAL, "finite");
	CHECK_FAILS(dn_options_set(o, "clip", "1,5", "-clip"), -EINVAL, "not a number");
	CHECK_FAILS(dn_options_set(o, "memory", "1T", "-memory"), -EINVAL, "K, M, G");
	CHECK_FAILS(dn_options_set(o, "clear", "yes", "a.cfg:1"), -EINVAL, "0 or 1");
	CHECK_FAILS(dn_options_set(o, "prefetch", "pr", "-prefetch"), -EINVAL, "pre|post|none");
	CHECK_FAILS(dn_options_set(o, "prefetch", "", "-prefetch"), -EINVAL, "pre|post|none");
	CHECK_FAILS(dn_options_set(o, "even", "3", "-even"), -EINVAL, "-even: 3 is odd");
	CHECK_FAILS(dn_options_add(o, table_a), -EEXIST, "limit");
	CHECK_EQ(dn_options_int(o, "limit"), 2);
	CHECK_EQ(dn_options_int(o, "even"), 4);
	dn_options_destroy(o);
}

/* ---- keyfile ---- */

static int parse(struct dn_keyfile **f, const char *text, bool strict)
{
	return dn_keyfile_parse(f, text, strlen(text), "t.cfg", true, strict);
}

static void cfg_text_is_read(void)
{
	static const char text[] = "\xef\xbb\xbf# comment\r\n"
				   "  [ net ] # trailing\r\n"
				   "ba tch = 6\t4 ; a comment\r\n"
				   "\r\n"
				   "momentum=.9\n"
				   ";x=1\n"
				   "a=b=c\n"
				   "[conv]#x\n"
				   "steps = 1, 2,3\n"
				   "scales=.1,1e-1\n"
				   "last=1";
	struct dn_keyfile *f = NULL;
	struct heard h;
	int64_t x = 0, *ints = NULL;
	double d = 0, *floats = NULL;
	int n = 0;
	size_t before = host_now();

	listen_start(&h);
	CHECK_OK_FATAL(dn_keyfile_parse(&f, text, sizeof(text) - 1, "t.cfg", true, true));
	CHECK_EQ(f->n_sections, 2);
	CHECK_STR(f->sections[0].name, "net");
	CHECK_EQ(f->sections[0].line, 2);
	CHECK_STR(f->sections[1].name, "conv");
	CHECK_OK(dn_section_int(&f->sections[0], "batch", 1, 1, 100, &x));
	CHECK_EQ(x, 64);
	CHECK_EQ(dn_section_find(&f->sections[0], "batch")->line, 3);
	CHECK_OK(dn_section_int(&f->sections[0], "absent", -7, 1, 100, &x));
	CHECK_EQ(x, -7);
	CHECK_OK(dn_section_float(&f->sections[0], "momentum", 0, &d));
	CU_ASSERT(d == 0.9);
	CHECK_OK(dn_section_float(&f->sections[0], "decay", 0.25, &d));
	CU_ASSERT(d == 0.25);
	CHECK_STR(dn_section_text(&f->sections[0], "a", ""), "b=c");
	CHECK_STR(dn_section_text(&f->sections[0], "x", "none"), "none");
	CHECK_OK(dn_section_ints(&f->sections[1], "steps", &ints, &n));
	CHECK_EQ(n, 3);
	CU_ASSERT(n == 3 && ints[0] == 1 && ints[1] == 2 && ints[2] == 3);
	dn_free(ints);
	CHECK_OK(dn_section_floats(&f->sections[1], "scales", &floats, &n));
	CU_ASSERT(n == 2 && floats[0] == 0.1 && floats[1] == 0.1);
	dn_free(floats);
	CHECK_OK(dn_section_floats(&f->sections[1], "absent", &floats, &n));
	CU_ASSERT(n == 0 && !floats);
	CHECK_FAILS(dn_keyfile_unused(f), -EINVAL, "t.cfg:11: [conv] last=1: unknown key, ignored");
	f->strict = false;
	CHECK_OK(dn_keyfile_unused(f));
	CHECK_STR(dn_section_text(&f->sections[1], "last", ""), "1");
	CHECK_OK(dn_keyfile_unused(f));
	listen_stop();
	CHECK_STR(h.all, "warning: t.cfg:11: [conv] last=1: unknown key, ignored\n");
	CHECK_FAILS(dn_section_fail(&f->sections[0], "batch", -EINVAL, "batch=%d: odd", 64), -EINVAL,
		    "t.cfg:3: [net] batch=64: odd");
	CHECK_FAILS(dn_section_fail(&f->sections[1], NULL, -ENOENT, "unknown"), -ENOENT, "t.cfg:8: [conv] unknown");
	dn_keyfile_destroy(f);
	CHECK_EQ(host_now(), before);
}

static void tolerated_lines_warn_or_fail_when_strict(void)
{
	static const struct {
		const char *text;
		const char *want;
	} t[] = {
		{ "[net]\nbatch=\n", "t.cfg:2: batch=: a key without a value" },
		{ "[net]\nbatch\n", "t.cfg:2: batch: not a key=value line" },
		{ "[net]\n=3\n", "t.cfg:2: =3: a value without a key" },
		{ "[net]\nbatch=#1\n", "t.cfg:2: batch=: a key without a value" },
		{ "[net]\nbatch=1\n\nbatch=2\n", "t.cfg:4: batch=2: the key is in line 2 already" },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct dn_keyfile *f = NULL;
		struct heard h;
		int64_t x = 0;

		CHECK_FAILS(parse(&f, t[i].text, true), -EINVAL, t[i].want);
		CU_ASSERT_PTR_NULL(f);
		listen_start(&h);
		CHECK_OK_FATAL(parse(&f, t[i].text, false));
		listen_stop();
		CHECK_EQ(h.n, 1);
		CU_ASSERT_PTR_NOT_NULL(strstr(h.all, t[i].want));
		CHECK_OK(dn_section_int(&f->sections[0], "batch", 5, 0, 9, &x));
		CHECK_EQ(x, i == 4 ? 1 : 5); /* the first of two, or the line was dropped */
		dn_keyfile_destroy(f);
	}
}

static void broken_grammar_is_refused(void)
{
	static const struct {
		const char *text;
		const char *want;
	} t[] = {
		{ "a=1\n[net]\n", "t.cfg:1: a=1: before the first section" },
		{ "\n[net\nb=1\n", "t.cfg:2: [net: a section without its closing ]" },
		{ "[net]\n[ ]\n", "t.cfg:2: []: a section without a name" },
		{ "[net]x\n", "t.cfg:1: [net]x: text after the ]" },
		{ "\n\n  <!DOCTYPE html>\n<html>", "t.cfg:3: is an HTML page" },
		{ "<HTML><body>", "t.cfg:1: is an HTML page" },
		{ "<?xml version", "XML" },
		{ "version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git-lfs pointer" },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct dn_keyfile *f = NULL;

		CHECK_FAILS(parse(&f, t[i].text, false), -EINVAL, t[i].want);
		CU_ASSERT_PTR_NULL(f);
	}
	{
		struct dn_keyfile *f = NULL;

		CHECK_FAILS(dn_keyfile_parse(&f, "[net]\na\0b=1\n", 12, "t.cfg", true, false), -EINVAL,
			    "t.cfg:2: has a NUL byte");
		CHECK_FAILS(dn_keyfile_parse(&f, "[net]\na=1\0", 10, "t.cfg", true, false), -EINVAL, "NUL byte");
	}
}

static void bad_values_are_refused_with_their_line(void)
{
	static const char text[] = "[conv]\nfilters=abc\nsize=1e3\nbig=99999999999999999999\nrate=nan\nhuge=1e400\nhex=0x10\n"
				   "list=1,,2\ntail=1,2,\nmixed=1,x\ninfs=1,inf\nsteps=1,2.5\npad=7\n";
	struct dn_keyfile *f = NULL;
	struct dn_section *s;
	int64_t x = -99, *ints = NULL;
	double d = -99, *floats = NULL;
	struct heard h;
	int n = -1;

	CHECK_OK_FATAL(parse(&f, text, false));
	s = &f->sections[0];
	CHECK_FAILS(dn_section_int(s, "filters", 1, 1, 9, &x), -EINVAL, "t.cfg:2: [conv] filters=abc: not a whole number");
	CHECK_FAILS(dn_section_int(s, "big", 1, 1, 9, &x), -EINVAL, "t.cfg:4: [conv] big=99999999999999999999: does not fit");
	CHECK_FAILS(dn_section_int(s, "pad", 1, 0, 1, &x), -EINVAL, "pad=7: must be from 0 to 1");
	CHECK_FAILS(dn_section_int(s, "pad", 1, 8, INT64_MAX, &x), -EINVAL, "pad=7: must be at least 8");
	CHECK_FAILS(dn_section_float(s, "filters", 1, &d), -EINVAL, "not a number");
	CHECK_FAILS(dn_section_float(s, "rate", 1, &d), -EINVAL, "t.cfg:5: [conv] rate=nan: not a finite number");
	CHECK_FAILS(dn_section_float(s, "huge", 1, &d), -EINVAL, "not a finite number");
	CHECK_FAILS(dn_section_ints(s, "list", &ints, &n), -EINVAL, "t.cfg:8: [conv] list=1,,2: the list has an empty element");
	CHECK_FAILS(dn_section_ints(s, "tail", &ints, &n), -EINVAL, "empty element");
	CHECK_FAILS(dn_section_floats(s, "mixed", &floats, &n), -EINVAL, "mixed=1,x: not a number");
	CHECK_FAILS(dn_section_floats(s, "infs", &floats, &n), -EINVAL, "not a finite number");
	CHECK_EQ(x, -99);
	CU_ASSERT(d == -99 && n == -1 && !ints && !floats);
	/* rubbish after a number */
	listen_start(&h);
	CHECK_OK(dn_section_int(s, "size", 1, 1, 9, &x));
	CHECK_OK(dn_section_float(s, "hex", 1, &d));
	CHECK_OK(dn_section_ints(s, "steps", &ints, &n));
	listen_stop();
	CHECK_EQ(x, 1);
	CU_ASSERT(d == 0 && n == 2 && ints && ints[1] == 2);
	dn_free(ints);
	CHECK_EQ(h.n, 3);
	CU_ASSERT(dn_starts(h.all, "warning: t.cfg:3: [conv] size=1e3: more than a whole number"));
	f->strict = true;
	CHECK_FAILS(dn_section_int(s, "size", 1, 1, 9, &x), -EINVAL, "size=1e3");
	dn_keyfile_destroy(f);
}

static void data_files_have_no_sections(void)
{
	const char *path = tmp_path("a.data");
	struct dn_keyfile *f = NULL;
	char want[300];
	int64_t x = 0;

	put_file(path, "classes = 10\ntrain = my data/train list.txt\n", 44);
	CHECK_OK_FATAL(dn_keyfile_read(&f, path, false, true));
	CHECK_EQ(f->n_sections, 1);
	CHECK_STR(f->sections[0].name, "");
	CHECK_STR(f->path, path);
	CHECK_EQ(f->text_bytes, 44);
	CHECK_OK(dn_section_int(&f->sections[0], "classes", 2, 1, 100, &x));
	CHECK_EQ(x, 10);
	CHECK_STR(dn_section_text(&f->sections[0], "train", ""), "mydata/trainlist.txt");
	snprintf(want, sizeof(want), "%s:1: classes=10: too many", path);
	CHECK_FAILS(dn_section_fail(&f->sections[0], "classes", -EINVAL, "classes=10: too many"), -EINVAL, want);
	dn_keyfile_destroy(f);
	f = NULL;
	CHECK_OK_FATAL(dn_keyfile_parse(&f, "", 0, "e.data", false, true));
	CHECK_EQ(f->n_sections, 1);
	dn_keyfile_destroy(f);
	CHECK_OK_FATAL(dn_keyfile_parse(&f, "", 0, "e.cfg", true, true));
	CHECK_EQ(f->n_sections, 0);
	dn_keyfile_destroy(f);
	f = NULL;
	CHECK_FAILS(dn_keyfile_parse(&f, "a=1\n[net]\n", 10, "e.data", false, false), -EINVAL, "e.data:2: [net]: a section");
	CHECK_FAILS(dn_keyfile_read(&f, tmp_path("absent.cfg"), true, false), -ENOENT, "absent.cfg: cannot read: No such file");
	CHECK_FAILS(dn_keyfile_read(&f, tmp_dir, true, false), -EISDIR, "is a folder");
	CU_ASSERT_PTR_NULL(f);
}

static void lines_may_be_long_but_counts_are_bounded(void)
{
	struct dn_buf b = { 0 };
	struct dn_keyfile *f = NULL;
	int64_t *ints = NULL;
	int n = 0;

	CHECK_OK(dn_buf_printf(&b, "[net]\nlist=0"));
	for (int i = 1; i < 65536; i++)
		CHECK_OK_FATAL(dn_buf_add(&b, ", 3", 3));
	CHECK_OK_FATAL(parse(&f, b.s, true));
	CHECK_OK(dn_section_ints(&f->sections[0], "list", &ints, &n));
	CHECK_EQ(n, 65536);
	CU_ASSERT(ints && ints[0] == 0 && ints[65535] == 3);
	dn_free(ints);
	dn_keyfile_destroy(f);
	CHECK_OK(dn_buf_add(&b, ",3", 2));
	CHECK_OK_FATAL(parse(&f, b.s, true));
	CHECK_FAILS(dn_section_ints(&f->sections[0], "list", &ints, &n), -EINVAL, "more than 65536 elements");
	dn_keyfile_destroy(f);
	b.n = 0;
	CHECK_OK(dn_buf_add(&b, "[net]\n", 6));
	for (int i = 0; i < 600; i++)
		CHECK_OK(dn_buf_printf(&b, "k%d=1\n", i));
	CHECK_FAILS(parse(&f, b.s, true), -E2BIG, "t.cfg:514: more than 512 keys");
	b.n = 0;
	for (int i = 0; i < 65537; i++)
		CHECK_OK_FATAL(dn_buf_add(&b, "[a]\n", 4));
	CHECK_FAILS(parse(&f, b.s, true), -E2BIG, "more than 65536 sections");
	dn_buf_fini(&b);
}

/* Any bytes give a result or an error, and every failing allocation an error without a leak. */
static void keyfile_survives_rubbish_and_lost_memory(void)
{
	static const char alphabet[] = "[]=#;ab1,. \t\r\n\n\n";
	static const char text[] = "[net]\na=1,2,3\nb=2\n[conv]\nc=3\nd=4\ne=5\n";
	size_t before = host_now();
	struct heard h;
	char s[64];
	int err = -ENOMEM;

	listen_start(&h);
	for (uint64_t i = 0; i < 20000; i++) {
		struct dn_keyfile *f = NULL;
		size_t n = dn_rng_below(11, 1, i, sizeof(s));

		for (size_t k = 0; k < n; k++)
			s[k] = dn_rng_below(12, k, i, 40) ? alphabet[dn_rng_below(11, k + 2, i, sizeof(alphabet) - 1)]
							  : (char)dn_rng_below(13, k, i, 256);
		if (dn_keyfile_parse(&f, s, n, "r", i % 2, false))
			continue;
		for (int j = 0; j < f->n_sections; j++) {
			double *x = NULL;
			int count;

			for (int k = 0; k < f->sections[j].n_keys; k++)
				CU_ASSERT(f->sections[j].keys[k].key[0] && f->sections[j].keys[k].value[0]);
			dn_section_floats(&f->sections[j], "a", &x, &count);
			dn_free(x);
		}
		dn_keyfile_unused(f);
		dn_keyfile_destroy(f);
	}
	for (uint64_t at = 1; err; at++) {
		struct dn_keyfile *f = NULL;
		int64_t *x = NULL;
		int n;

		CU_ASSERT_FATAL(at < 100);
		dn_mem_fail_at(at);
		err = dn_keyfile_parse(&f, text, sizeof(text) - 1, "t", true, false);
		if (!err)
			err = dn_section_ints(&f->sections[0], "a", &x, &n);
		dn_mem_fail_at(0);
		CU_ASSERT(!err || err == -ENOMEM);
		dn_free(x);
		dn_keyfile_destroy(f);
		CHECK_EQ(host_now(), before);
	}
	listen_stop();
}

/* ---- file ---- */

static void files_are_read_whole(void)
{
	const char *path = tmp_path("r.txt");
	char *text = NULL;
	int64_t size = 0;
	size_t n = 0;

	put_file(path, "ab\0cd", 5);
	CHECK_OK(dn_file_read(path, 5, &text, &n));
	CHECK_EQ(n, 5);
	CHECK_BITS(text, "ab\0cd", 6);
	dn_free(text);
	text = NULL;
	CHECK_FAILS(dn_file_read(path, 4, &text, &n), -EFBIG, "has 5 bytes, at most 4");
	CHECK_OK(dn_file_size(path, &size));
	CHECK_EQ(size, 5);
	put_file(path, "", 0);
	CHECK_OK(dn_file_read(path, 4, &text, &n));
	CHECK_EQ(n, 0);
	CHECK_STR(text, "");
	dn_free(text);
}

static void only_regular_files_are_read(void)
{
	const char *fifo = tmp_path("fifo");
	char *text = NULL;
	int64_t size = 0;
	size_t n = 0;

	CHECK_EQ(mkfifo(fifo, 0600), 0);
	CHECK_FAILS(dn_file_read(fifo, 100, &text, &n), -EINVAL, "fifo: is a pipe, wanted a file");
	CHECK_FAILS(dn_file_read("/dev/zero", 100, &text, &n), -EINVAL, "/dev/zero: is a device");
	CHECK_FAILS(dn_file_read(tmp_dir, 100, &text, &n), -EISDIR, "is a folder");
	CHECK_FAILS(dn_file_size(tmp_dir, &size), -EISDIR, "is a folder");
	CHECK_FAILS(dn_file_size(tmp_path("nope"), &size), -ENOENT, "nope: cannot read: No such file or directory");
	CU_ASSERT_PTR_NULL(text);
}

static int n_entries(const char *name)
{
	char cmd[400];
	int n = -1;
	FILE *f;

	snprintf(cmd, sizeof(cmd), "ls -A '%s' | wc -l", tmp_path(name));
	f = popen(cmd, "r");
	if (f) {
		if (fscanf(f, "%d", &n) != 1)
			n = -1;
		pclose(f);
	}
	return n;
}

static void folders_are_made_and_removed(void)
{
	const char *deep = tmp_path("d/e//f/");
	uint64_t space = 0;

	CHECK_OK(dn_make_dirs(deep));
	CHECK_OK(dn_make_dirs(deep));
	CHECK_EQ(n_entries("d/e/f"), 0); /* the trial file is gone */
	put_file(tmp_path("d/x"), "1", 1);
	CHECK_FAILS(dn_make_dirs(tmp_path("d/x/y")), -ENOTDIR, "d/x: cannot make the folder: Not a directory");
	CHECK_FAILS(dn_make_dirs(tmp_path("d/x")), -ENOTDIR, "Not a directory");
	CHECK_FAILS(dn_make_dirs(""), -EINVAL, "empty");
	CHECK_FAILS(dn_make_dirs("/proc/self/fdinfo"), -ENOENT, "/proc/self/fdinfo: cannot write in the folder");
	CHECK_OK(dn_free_space(tmp_path("d/not/yet"), &space));
	CU_ASSERT(space > 0);
	space = 0;
	CHECK_OK(dn_free_space("not-here/yet", &space));
	CU_ASSERT(space > 0);
	put_file(tmp_path("keep"), "1", 1);
	CHECK_EQ(symlink("../keep", tmp_path("d/link")), 0);
	CHECK_EQ(symlink("..", tmp_path("d/e/up")), 0);
	CHECK_OK(dn_remove_tree(tmp_path("d")));
	CHECK_EQ(access(tmp_path("d"), F_OK), -1);
	CHECK_EQ(access(tmp_path("keep"), F_OK), 0);
	CHECK_OK(dn_remove_tree(tmp_path("d")));
	CHECK_OK(dn_remove_tree(tmp_path("keep")));
	CHECK_EQ(access(tmp_path("keep"), F_OK), -1);
}

static void outputs_appear_whole_or_not_at_all(void)
{
	const char *path = tmp_path("o/out.bin");
	struct dn_out o = { 0 };
	char *text = NULL;
	size_t n = 0;
	size_t before = host_now();

	CHECK_OK(dn_make_dirs(tmp_path("o")));
	dn_out_abort(&o);
	CHECK_OK_FATAL(dn_out_open(&o, path));
	CHECK_OK(dn_out_write(&o, "abc", 3));
	CHECK_OK(dn_out_write(&o, NULL, 0));
	CHECK_EQ(o.bytes, 3);
	CHECK_EQ(access(path, F_OK), -1);
	CHECK_OK(dn_out_commit(&o));
	CHECK_EQ(n_entries("o"), 1);
	CHECK_OK_FATAL(dn_out_open(&o, path));
	CHECK_OK(dn_out_write(&o, "longer text", 11));
	dn_out_abort(&o);
	dn_out_abort(&o);
	CHECK_EQ(n_entries("o"), 1);
	CHECK_OK(dn_file_read(path, 100, &text, &n));
	CHECK_STR(text, "abc");
	dn_free(text);
	CHECK_FAILS(dn_out_open(&o, tmp_path("o")), -EISDIR, "is a folder");
	CHECK_FAILS(dn_out_open(&o, "/dev/null"), -EINVAL, "is a device");
	CHECK_FAILS(dn_out_open(&o, tmp_path("none/x")), -ENOENT, "none/x: cannot write: No such file");
	dn_out_abort(&o);
	/* a rename that cannot be: the place has become a folder */
	CHECK_OK_FATAL(dn_out_open(&o, tmp_path("o/later")));
	CHECK_OK(dn_make_dirs(tmp_path("o/later/full")));
	CHECK_FAILS(dn_out_commit(&o), -EISDIR, "o/later: cannot rename");
	CHECK_EQ(n_entries("o"), 2);
	CHECK_EQ(host_now(), before);
}

/* /dev/full takes no byte; the stream is pointed at it behind the back of the output. */
static void write_errors_are_kept_until_commit(void)
{
	static char big[1 << 16];
	struct dn_out o = { 0 };
	const char *path = tmp_path("full.bin");

	for (int in_write = 0; in_write < 2; in_write++) {
		CHECK_OK_FATAL(dn_out_open(&o, path));
		CU_ASSERT_PTR_NOT_NULL_FATAL(freopen("/dev/full", "wb", o.f));
		if (in_write) {
			CHECK_FAILS(dn_out_write(&o, big, sizeof(big)), -ENOSPC, "full.bin: cannot write: No space left");
			CHECK_EQ(dn_out_write(&o, "x", 1), -ENOSPC);
			dn_fail(-EIO, "something else");
		} else {
			CHECK_OK(dn_out_write(&o, "x", 1)); /* still in the stream's buffer */
		}
		CHECK_FAILS(dn_out_commit(&o), -ENOSPC, "full.bin: cannot write: No space left");
		CHECK_EQ(access(path, F_OK), -1);
		CU_ASSERT_PTR_NULL(o.f);
	}
}

/* ---- arena ---- */

static void check_placement(const struct dn_arena_item *it, int n, size_t align, size_t total)
{
	for (int i = 0; i < n; i++) {
		CHECK_EQ(it[i].offset % align, 0);
		CU_ASSERT(it[i].offset + it[i].bytes <= total);
		for (int j = 0; j < i; j++) {
			bool meet = it[i].first <= it[j].last && it[j].first <= it[i].last;
			bool share = it[i].offset < it[j].offset + it[j].bytes && it[j].offset < it[i].offset + it[i].bytes;

			CU_ASSERT(!(meet && share && it[i].bytes && it[j].bytes));
		}
	}
}

static void arena_reuses_what_is_dead(void)
{
	/* a chain of layers: each buffer lives for two steps, so two places take turns */
	struct dn_arena_item it[6];
	size_t total = 0;

	for (int i = 0; i < 6; i++)
		it[i] = (struct dn_arena_item){ .bytes = 100, .first = i, .last = i + 1 };
	CHECK_OK(dn_arena_place(it, 6, 64, &total));
	CHECK_EQ(total, 256);
	check_placement(it, 6, 64, total);
	CHECK_EQ(it[0].offset, 0); /* equal sizes go by position */
	CHECK_EQ(it[1].offset, 128);
	CHECK_EQ(it[2].offset, 0);
	/* the small one goes into the gap between two that live longer */
	{
		struct dn_arena_item g[4] = {
			{ .bytes = 64, .first = 2, .last = 3 },
			{ .bytes = 300, .first = 0, .last = 5 },
			{ .bytes = 200, .first = 0, .last = 1 },
			{ .bytes = 128, .first = 0, .last = 5 },
		};

		CHECK_OK(dn_arena_place(g, 4, 64, &total));
		CHECK_EQ(g[1].offset, 0);
		CHECK_EQ(g[2].offset, 320);
		CHECK_EQ(g[3].offset, 576);
		CHECK_EQ(g[0].offset, 320);
		CHECK_EQ(total, 704);
	}
}

static void arena_never_shares_live_bytes(void)
{
	struct dn_arena_item a[60], b[60];

	for (uint64_t t = 0; t < 50; t++) {
		size_t total = 0, again = 0, sum = 0, most = 0;

		for (uint64_t i = 0; i < 60; i++) {
			int first = (int)dn_rng_below(t, 1, i, 30);

			a[i] = b[i] = (struct dn_arena_item){ .bytes = dn_rng_below(t, 2, i, 5) ? dn_rng_below(t, 3, i, 5000) : 0,
							      .first = first,
							      .last = first + (int)dn_rng_below(t, 4, i, 8) };
			sum += dn_up(a[i].bytes, 64);
		}
		CHECK_OK(dn_arena_place(a, 60, 64, &total));
		CHECK_OK(dn_arena_place(b, 60, 64, &again));
		CHECK_EQ(total, again);
		for (int i = 0; i < 60; i++)
			CHECK_EQ(a[i].offset, b[i].offset);
		check_placement(a, 60, 64, total);
		for (int s = 0; s < 40; s++) {
			size_t live = 0;

			for (int i = 0; i < 60; i++)
				if (a[i].first <= s && s <= a[i].last)
					live += a[i].bytes;
			most = live > most ? live : most;
		}
		CU_ASSERT(total >= most && total <= sum);
	}
}

static void arena_checks_its_limits(void)
{
	struct dn_arena_item it[2] = { { .bytes = SIZE_MAX / 2 + 1 }, { .bytes = SIZE_MAX / 2 + 1 } };
	struct dn_arena_item one = { .bytes = SIZE_MAX };
	size_t total = 7;

	CHECK_FAILS(dn_arena_place(it, 2, 64, &total), -EOVERFLOW, "arena");
	CHECK_FAILS(dn_arena_place(&one, 1, 64, &total), -EOVERFLOW, "arena");
	CHECK_EQ(total, 7);
	CHECK_OK(dn_arena_place(NULL, 0, 64, &total));
	CHECK_EQ(total, 0);
	for (uint64_t at = 1; at <= 2; at++) {
		one.bytes = 5;
		dn_mem_fail_at(at);
		CHECK_EQ(dn_arena_place(&one, 1, 64, &total), -ENOMEM);
	}
	dn_mem_fail_at(0);
}

/* ---- group ---- */

static int fake_agree(void *self, int err, const char *what)
{
	*(const char **)self = what;
	return err ? err : -EPIPE;
}

static void alone_every_call_is_trivial(void)
{
	struct dn_group g = DN_GROUP_ALONE;
	struct dn_item item = { "seed", "1" };
	double x[2] = { 1, 2 };
	char *all = NULL;
	size_t size = 0;
	const char *said = NULL;
	const struct dn_group_ops ops = { .agree = fake_agree };

	CHECK_EQ(g.rank, 0);
	CHECK_EQ(g.world, 1);
	CHECK_EQ(dn_group_agree(&g, -EIO, "load"), -EIO);
	CHECK_EQ(dn_group_agree(&g, 0, "load"), 0);
	CHECK_OK(dn_group_sum(&g, x, 2));
	CU_ASSERT(x[0] == 1 && x[1] == 2);
	CHECK_OK(dn_group_compare(&g, &item, 1));
	CHECK_OK_FATAL(dn_group_gather(&g, "hello", 5, &all, &size));
	CHECK_EQ(size, 5);
	CHECK_STR(all, "hello");
	dn_free(all);
	g.ops = &ops;
	g.self = &said;
	CHECK_EQ(dn_group_agree(&g, 0, "save"), -EPIPE);
	CHECK_STR(said, "save");
}

static void launchers_say_rank_and_size(void)
{
	static const char *const names[] = {
		"OMPI_COMM_WORLD_SIZE",
		"OMPI_COMM_WORLD_RANK",
		"OMPI_COMM_WORLD_LOCAL_SIZE",
		"PMI_SIZE",
		"PMI_RANK",
		"MPI_LOCALNRANKS",
		"MV2_COMM_WORLD_SIZE",
		"MV2_COMM_WORLD_RANK",
		"SLURM_STEP_NUM_TASKS",
		"SLURM_PROCID",
	};
	static const struct {
		const char *set[6][2];
		const char *by; /* NULL = none */
		int rank, size, local;
	} rows[] = {
		{ { { NULL, NULL } }, NULL, 0, 1, 0 },
		{ { { names[0], "4" }, { names[1], "2" }, { names[2], "3" } }, names[0], 2, 4, 3 },
		{ { { names[0], "1" }, { names[1], "0" } }, names[0], 0, 1, 0 },
		{ { { names[3], "5" }, { names[4], "4" }, { names[5], "5" } }, names[3], 4, 5, 5 },
		{ { { names[6], "2" }, { names[7], "1" } }, names[6], 1, 2, 0 },
		{ { { names[8], "3" }, { names[9], "2" } }, names[8], 2, 3, 0 },
		{ { { names[8], "1" }, { names[9], "0" } }, NULL, 0, 1, 0 }, /* a batch script */
		{ { { names[0], "2" } }, NULL, 0, 1, 0 },
		{ { { names[0], "2" }, { names[1], "2" } }, NULL, 0, 1, 0 },
		{ { { names[0], "2x" }, { names[1], "0" } }, NULL, 0, 1, 0 },
		{ { { names[0], "99999999999" }, { names[1], "0" } }, NULL, 0, 1, 0 },
		{ { { names[0], "2" }, { names[1], "-1" }, { names[3], "2" }, { names[4], "1" } }, names[3], 1, 2, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct dn_launch l;

		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
			unsetenv(names[k]);
		for (int k = 0; k < 6 && rows[i].set[k][0]; k++)
			setenv(rows[i].set[k][0], rows[i].set[k][1], 1);
		dn_launch_read(&l);
		if (rows[i].by)
			CHECK_STR(l.by, rows[i].by);
		else
			CU_ASSERT_PTR_NULL(l.by);
		CHECK_EQ(l.rank, rows[i].rank);
		CHECK_EQ(l.size, rows[i].size);
		CHECK_EQ(l.local_size, rows[i].local);
	}
	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
		unsetenv(names[k]);
}

static const struct check_case cases[] = {
	{ "fail records and returns", fail_records_and_returns },
	{ "a message is cut at 2000 bytes", message_is_cut_at_2000 },
	{ "a message belongs to its thread", message_belongs_to_its_thread },
	{ "the exit status follows the error", exit_status_follows_the_error },
	{ "the log level is chosen per room", log_level_is_chosen_per_room },
	{ "warnings can be quiet", warnings_can_be_quiet },
	{ "memory is counted by region", memory_is_counted_by_region },
	{ "regions are aligned and zero", regions_are_aligned_and_zero },
	{ "realloc keeps the bytes", realloc_keeps_the_bytes },
	{ "failures name region and bytes", failures_name_region_and_bytes },
	{ "the chosen allocation fails", the_chosen_allocation_fails },
	{ "mul_size checks overflow", mul_size_checks_overflow },
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	{ "regions are resident until freed", regions_are_resident_until_freed },
#endif
	{ "counters survive threads", counters_survive_threads },
	{ "philox gives the published words", philox_gives_the_published_words },
	{ "distributions have their moments", distributions_have_their_moments },
	{ "streams do not share numbers", streams_do_not_share_numbers },
	{ "a permutation holds every number once", permutation_holds_every_number_once },
	{ "whole numbers are strict", whole_numbers_are_strict },
	{ "floats are strict", floats_are_strict },
	{ "byte counts take units", byte_counts_take_units },
	{ "buffers grow", buffers_grow },
	{ "small text helpers work", small_text_helpers_work },
	{ "waits end at their deadline", waits_end_at_their_deadline },
	{ "waits end with a signal", waits_end_with_a_signal },
	{ "there are cores", there_are_cores },
	{ "options resolve defaults and given values", options_resolve_defaults_and_given },
	{ "options refuse bad values", options_refuse_bad_values },
	{ "cfg text is read", cfg_text_is_read },
	{ "tolerated lines warn, or fail when strict", tolerated_lines_warn_or_fail_when_strict },
	{ "broken grammar is refused", broken_grammar_is_refused },
	{ "bad values are refused with their line", bad_values_are_refused_with_their_line },
	{ "data files have no sections", data_files_have_no_sections },
	{ "lines may be long but counts are bounded", lines_may_be_long_but_counts_are_bounded },
	{ "key files survive rubbish and lost memory", keyfile_survives_rubbish_and_lost_memory },
	{ "files are read whole", files_are_read_whole },
	{ "only regular files are read", only_regular_files_are_read },
	{ "folders are made and removed", folders_are_made_and_removed },
	{ "outputs appear whole or not at all", outputs_appear_whole_or_not_at_all },
	{ "write errors are kept until commit", write_errors_are_kept_until_commit },
	{ "an arena reuses what is dead", arena_reuses_what_is_dead },
	{ "an arena never shares live bytes", arena_never_shares_live_bytes },
	{ "an arena checks its limits", arena_checks_its_limits },
	{ "launchers say rank and size", launchers_say_rank_and_size },
	{ "alone every call of a group is trivial", alone_every_call_is_trivial },
	{ NULL, NULL }
};

int main(void)
{
	int status;

	unsetenv("DARKNET_LOG");
	strcpy(tmp_dir, "/tmp/test_base.XXXXXX");
	if (!mkdtemp(tmp_dir)) {
		perror(tmp_dir);
		return 2;
	}
	status = check_run("base", cases);
	if (dn_remove_tree(tmp_dir)) {
		fprintf(stderr, "%s\n", dn_message());
		status = 1;
	}
	return status;
}
