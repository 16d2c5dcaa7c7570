/* base: key files. */
#include <errno.h>

#include "base/keyfile.h"
#include "base/rng.h"
#include "base/text.h"
#include "base_help.h"

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

static void differs(const char *mine, const char *theirs, bool sections, const char *const *keys, const char *wanted)
{
	struct dn_keyfile *a = NULL, *b = NULL;
	char out[900] = "";

	CHECK_OK_FATAL(dn_keyfile_parse(&a, mine, strlen(mine), "a.cfg", sections, true));
	CHECK_OK_FATAL(dn_keyfile_parse(&b, theirs, strlen(theirs), "b.cfg", sections, true));
	CHECK_EQ(dn_keyfile_difference(a, b, "rank 0", keys, out, sizeof(out)), wanted[0] != 0);
	CHECK_STR(out, wanted);
	dn_keyfile_destroy(a);
	dn_keyfile_destroy(b);
}

static void the_first_difference_has_both_places(void)
{
	static const char *const keys[] = { "train", "tree", NULL };
	static const char net[] = "[net]\nbatch=6\n[conv]\nsize=3\n";

	differs(net, net, true, NULL, "");
	differs(net, "# x\n[ net ]\nbatch = 6\n[conv]\nsize=3 # y\n", true, NULL, "");
	differs("[net]\na=1\nb=2\n", "[net]\nb=2\na=1\n", true, NULL, "");
	differs(net, "[net]\nbatch=6\n\n[conv]\nsize=5\n", true, NULL, "a.cfg:4: [conv] size=3, rank 0 has 5 (b.cfg:5)");
	differs("[net]\nbatch=6\npad=1\n[conv]\nsize=3\n", net, true, NULL,
		"a.cfg:3: [net] pad=1, rank 0 has no such key (b.cfg:1)");
	differs(net, "[net]\nbatch=6\n[conv]\nsize=3\npad=1\n", true, NULL,
		"a.cfg:3: [conv] has no pad, rank 0 has pad=1 (b.cfg:5)");
	differs(net, "[net]\nbatch=6\n[local]\nsize=3\n", true, NULL, "a.cfg:3: [conv], rank 0 has [local] (b.cfg:3)");
	differs(net, "[net]\nbatch=6\n", true, NULL, "a.cfg:3: [conv], rank 0 has no section after its 1 (b.cfg)");
	differs("[net]\nbatch=6\n", net, true, NULL, "a.cfg: ends after 1 sections, rank 0 has [conv] (b.cfg:3)");
	differs("names=a\ntrain=x\n", "names=b\ntrain=y\n", false, keys, "a.cfg:2: train=x, rank 0 has y (b.cfg:2)");
	differs("names=a\ntrain=x\n", "names=b\ntrain=x\n", false, keys, "");
}

static const struct check_case cases[] = {
	{ "the first difference has both places", the_first_difference_has_both_places },
	{ "cfg text is read", cfg_text_is_read },
	{ "tolerated lines warn, or fail when strict", tolerated_lines_warn_or_fail_when_strict },
	{ "broken grammar is refused", broken_grammar_is_refused },
	{ "bad values are refused with their line", bad_values_are_refused_with_their_line },
	{ "data files have no sections", data_files_have_no_sections },
	{ "lines may be long but counts are bounded", lines_may_be_long_but_counts_are_bounded },
	{ "key files survive rubbish and lost memory", keyfile_survives_rubbish_and_lost_memory },
	{ NULL, NULL },
};

int main(void)
{
	return base_help_run("base_keyfile", cases);
}
