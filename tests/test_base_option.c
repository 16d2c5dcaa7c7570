/* base: options. */
#include <errno.h>

#include "base/option.h"
#include "base/text.h"
#include "base_help.h"

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

static const struct check_case cases[] = {
	{ "options resolve defaults and given values", options_resolve_defaults_and_given },
	{ "options refuse bad values", options_refuse_bad_values },
	{ NULL, NULL },
};

int main(void)
{
	return base_help_run("base_option", cases);
}
