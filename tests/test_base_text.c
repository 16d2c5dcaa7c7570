/* base: numbers from texts, texts that grow. */
#include <errno.h>

#include "base/text.h"
#include "base_help.h"

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

static void words_of_a_list_have_numbers(void)
{
	CHECK_EQ(dn_word_index("sgd, adam, adamw", "sgd"), 0);
	CHECK_EQ(dn_word_index("sgd, adam, adamw", "adam"), 1);
	CHECK_EQ(dn_word_index("sgd, adam, adamw", "adamw"), 2);
	CHECK_EQ(dn_word_index("a,b", "b"), 1);
	CHECK_EQ(dn_word_index("sgd, adam, adamw", "ada"), -1);
	CHECK_EQ(dn_word_index("sgd, adam, adamw", "sgd, adam"), -1);
	CHECK_EQ(dn_word_index("sgd, adam", ""), -1);
	CHECK_EQ(dn_word_index("", "sgd"), -1);
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

static const struct check_case cases[] = {
	{ "whole numbers are strict", whole_numbers_are_strict },
	{ "floats are strict", floats_are_strict },
	{ "byte counts take units", byte_counts_take_units },
	{ "buffers grow", buffers_grow },
	{ "words of a list have numbers", words_of_a_list_have_numbers },
	{ "small text helpers work", small_text_helpers_work },
	{ NULL, NULL },
};

int main(void)
{
	return base_help_run("base_text", cases);
}
