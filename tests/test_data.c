/* Room data: .data files, IDX and NumPy files whole and damaged. */
#define _GNU_SOURCE
#include "data_help.h"

#include <sys/stat.h>

/* ---- .data files ---- */

static void known_keys_are_typed_and_never_warned_of(void)
{
	static const char text[] =
		"classes = 10\n# comment\ntrain=a\nvalid=b\ntrain_truth=c\nvalid_truth=d\ntest=t\nnames=n\nlabels=l\n"
		"backup=back\ntop=2\nresults=r\neval=coco\nmap=m\ntree=t\nleaves=l\ntag=0\ndifficult=x\nsaveweights=1\n"
		"savelast=1\nformat=idx\nshuffle=replace\n";
	struct dn_datafile *d = NULL;

	n_warnings = 0;
	dn_log_sink(keep_warning, NULL);
	CHECK_OK_FATAL(dn_datafile_read(&d, put_text("k.data", text), true));
	dn_log_sink(NULL, NULL);
	CHECK_EQ(n_warnings, 0);
	CHECK_EQ(d->classes, 10);
	CHECK_EQ(d->top, 2);
	CHECK_EQ(d->format, DN_FORMAT_IDX);
	CHECK_EQ(d->shuffle, DN_SHUFFLE_REPLACE);
	CHECK_STR(d->train, "a");
	CHECK_STR(d->valid, "b");
	CHECK_STR(d->train_truth, "c");
	CHECK_STR(d->valid_truth, "d");
	CHECK_STR(d->names, "n");
	CHECK_STR(d->labels, "l");
	CHECK_STR(d->backup, "back");
	dn_datafile_destroy(d);
}

static void missing_keys_have_defaults(void)
{
	struct dn_datafile *d = NULL;

	CHECK_OK_FATAL(dn_datafile_read(&d, put_text("k.data", "format=npy\n"), true));
	CHECK_EQ(d->format, DN_FORMAT_NPY);
	CHECK_EQ(d->classes, -1);
	CHECK_EQ(d->top, 1);
	CHECK_EQ(d->shuffle, DN_SHUFFLE_EPOCH);
	CHECK_STR(d->backup, "/backup/");
	CU_ASSERT_PTR_NULL(d->train);
	CU_ASSERT_PTR_NULL(d->valid_truth);
	CU_ASSERT_PTR_NULL(d->names);
	CU_ASSERT_PTR_NULL(d->tree);
	dn_datafile_destroy(d);
	CHECK_OK_FATAL(dn_datafile_read(&d, put_text("k.data", "train=a\n"), true));
	CHECK_EQ(d->format, DN_FORMAT_LIST);
	dn_datafile_destroy(d);
}

static void an_unknown_key_warns_and_strict_refuses_it(void)
{
	const char *path = put_text("k.data", "format=idx\nclases=3\n");
	struct dn_datafile *d = NULL;

	n_warnings = 0;
	dn_log_sink(keep_warning, NULL);
	CHECK_OK_FATAL(dn_datafile_read(&d, path, false));
	dn_log_sink(NULL, NULL);
	CHECK_EQ(n_warnings, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_warning, "k.data:2: clases=3"));
	dn_datafile_destroy(d);
	d = NULL;
	CHECK_FAILS(dn_datafile_read(&d, path, true), -EINVAL, "k.data:2: clases=3");
	CU_ASSERT_PTR_NULL(d);
}

static void bad_data_files_say_where_and_what_is_allowed(void)
{
	static const struct {
		const char *text;
		int err;
		const char *message;
	} t[] = {
		{ "\nformat=png\n", -EINVAL, "k.data:2: format=png: not a format; formats: list, idx, cifar, npy" },
		{ "format=idx\nclasses=ten\n", -EINVAL, "k.data:2: classes=ten" },
		{ "format=idx\nclasses=0\n", -EINVAL, "k.data:2: classes=0: must be from 1" },
		{ "format=idx\ntop=-1\n", -EINVAL, "k.data:2: top=-1: must be from 1" },
		{ "format=idx\nshuffle=2\n", -EINVAL, "k.data:2: shuffle is 2, must be 1" },
		{ "[net]\nbatch=1\n", -EINVAL, "k.data:1" },
		{ "<html>\n", -EINVAL, "an HTML page" },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct dn_datafile *d = NULL;

		CHECK_FAILS(dn_datafile_read(&d, put_text("k.data", t[i].text), false), t[i].err, t[i].message);
		CU_ASSERT_PTR_NULL(d);
	}
}

static void a_shuffle_is_one_of_three_words(void)
{
	enum dn_shuffle s = DN_SHUFFLE_REPLACE;

	CHECK_OK(dn_shuffle_parse("0", "-shuffle", &s));
	CHECK_EQ(s, DN_SHUFFLE_OFF);
	CHECK_OK(dn_shuffle_parse("1", "-shuffle", &s));
	CHECK_EQ(s, DN_SHUFFLE_EPOCH);
	CHECK_OK(dn_shuffle_parse("replace", "-shuffle", &s));
	CHECK_EQ(s, DN_SHUFFLE_REPLACE);
	CHECK_FAILS(dn_shuffle_parse("yes", "-shuffle", &s), -EINVAL, "-shuffle: shuffle is yes, must be 1");
	CHECK_FAILS(dn_shuffle_parse("", "-shuffle", &s), -EINVAL, "-shuffle: ");
}

/* ---- IDX ---- */

static void idx_bytes_are_divided_by_255_and_labels_become_one_hot(void)
{
	struct dn_dataset *ds = NULL;
	float x[6], t[5], wx[6], wt[5];
	int64_t cls;

	put_small(9);
	CHECK_OK_FATAL(open_set(&ds, "idx", "x", "y", "", 6, 5));
	CHECK_EQ(ds->n, 9);
	CHECK_EQ(ds->c, 1);
	CHECK_EQ(ds->h, 2);
	CHECK_EQ(ds->w, 3);
	CHECK_EQ(ds->inputs, 6);
	CHECK_EQ(ds->classes, 4);
	CHECK_EQ(ds->truths, 0);
	CU_ASSERT(ds->has_truth);
	for (int i = 0; i < 9; i++) {
		for (int j = 0; j < 6; j++)
			wx[j] = (float)((7 * (6 * i + j)) % 256) / 255.0f;
		for (int j = 0; j < 5; j++)
			wt[j] = j == i % 4;
		CHECK_OK(ds->get(ds, i, NULL, x, t, 5, &cls));
		CHECK_BITS(x, wx, sizeof(x));
		CHECK_BITS(t, wt, sizeof(t));
		CHECK_EQ(cls, i % 4);
	}
	CHECK_FAILS(ds->get(ds, 9, NULL, x, t, 5, &cls), -EINVAL, "no sample 9, it has 9");
	CHECK_FAILS(ds->get(ds, -1, NULL, x, t, 5, &cls), -EINVAL, "no sample -1");
	CHECK_FAILS(ds->get(ds, 3, NULL, x, t, 3, &cls), -EINVAL, "sample 3 has class 3, there are 3");
	dn_dataset_close(ds);
}

static void every_idx_type_is_read_big_endian(void)
{
	static const struct {
		int type;
		size_t bytes;
		unsigned char data[16];
		float want[2];
	} t[] = {
		{ 0x08, 1, { 0, 255 }, { 0, 1 } },
		{ 0x09, 1, { 0xff, 51 }, { -1.0f / 255, 0.2f } },
		{ 0x0b, 2, { 0x01, 0x02, 0xff, 0xfe }, { 258, -2 } },
		{ 0x0c, 4, { 0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff }, { 65536, -1 } },
		{ 0x0d, 4, { 0x3f, 0x80, 0, 0, 0xc0, 0x20, 0, 0 }, { 1, -2.5f } },
		{ 0x0e, 8, { 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xc0, 0x04, 0, 0, 0, 0, 0, 0 }, { 1, -2.5f } },
	};
	unsigned char file[64];

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct dn_dataset *ds = NULL;
		float x[2];

		put("x", file, idx_bytes(file, t[i].type, 2, DIMS(1, 2), t[i].data, 2 * t[i].bytes));
		CHECK_OK_FATAL(open_set(&ds, "idx", "x", NULL, "", 2, 0));
		CHECK_OK(ds->get(ds, 0, NULL, x, NULL, 0, NULL));
		CHECK_BITS(x, t[i].want, sizeof(x));
		dn_dataset_close(ds);
	}
}

static void idx_shapes_are_flat_grey_or_with_channels(void)
{
	static const struct {
		int n_dims;
		uint32_t dims[4];
		int64_t c, h, w;
	} t[] = {
		{ 2, { 2, 12 }, 12, 1, 1 },
		{ 3, { 2, 3, 4 }, 1, 3, 4 },
		{ 4, { 2, 3, 1, 4 }, 3, 1, 4 },
	};
	unsigned char zeros[24] = { 0 }, file[64];
	struct dn_dataset *ds = NULL;

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		put("x", file, idx_bytes(file, 8, t[i].n_dims, t[i].dims, zeros, 24));
		CHECK_OK_FATAL(open_set(&ds, "idx", "x", NULL, "", 0, 0));
		CHECK_EQ(ds->n, 2);
		CHECK_EQ(ds->c, t[i].c);
		CHECK_EQ(ds->h, t[i].h);
		CHECK_EQ(ds->w, t[i].w);
		CHECK_EQ(ds->inputs, 12);
		CU_ASSERT_FALSE(ds->has_truth);
		dn_dataset_close(ds);
	}
	put("x", file, idx_bytes(file, 8, 1, DIMS(24), zeros, 24));
	CHECK_FAILS(open_set(&ds, "idx", "x", NULL, "", 0, 0), -EINVAL, "its shape is [24], wanted");
}

/* Every way in which an IDX file may be wrong; each as file bytes. */
static void damaged_idx_files_are_refused_with_the_reason(void)
{
	static const unsigned char ten[10] = { 0 };
	static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n";
	unsigned char f[64];
	struct {
		const char *bytes;
		size_t n;
		int err;
		const char *message;
	} t[] = {
		{ "\0\0\x08", 3, -EINVAL, "truncated: 3 bytes" },
		{ "\0", 1, -EINVAL, "truncated: 1 bytes" },
		{ "\0\0\x08\x02\0\0", 6, -EINVAL, "truncated: 6 bytes, the IDX header of 2 dimensions takes 12" },
		{ "\0\0\x08\x02\0\0\0\x02\0\0\0\x05"
		  "123456789",
		  21, -EINVAL, "truncated: 21 bytes, its header ([2, 5] of uint8) says 22" },
		{ "\0\0\x08\x02\0\0\0\x02\0\0\0\x05"
		  "12345678901",
		  23, -EINVAL, "surplus bytes: 23 bytes" },
		{ "\0\0\x0a\x02\0\0\0\x02\0\0\0\x05"
		  "1234567890",
		  22, -EINVAL, "its type is 0x0a" },
		{ "\0\0\x08\0", 4, -EINVAL, "an IDX file of 0 dimensions" },
		{ "\0\0\x08\x05\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1"
		  "1",
		  25, -EINVAL, "an IDX file of 5 dimensions" },
		{ "\0\0\x08\xff", 4, -EINVAL, "an IDX file of 255 dimensions" },
		{ "\0\0\x08\x02\0\0\0\0\0\0\0\x05", 12, -EINVAL, "[0, 5] has no elements" },
		{ "\0\0\x08\x04\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 20, -EOVERFLOW,
		  "does not fit 64 bits" },
		{ "\0\0\x0e\x02\xff\xff\xff\xff\x7f\xff\xff\xff", 12, -EOVERFLOW, "does not fit 64 bits" },
		{ "\0\0\x08\x03\xff\xff\xff\xff\0\x0f\xff\xff\0\0\0\1", 16, -EINVAL, "truncated: 16 bytes" },
		{ "1,2,3\n4,5,6\n", 12, -EINVAL, "not an IDX file, but a text file" },
		{ pointer, sizeof(pointer) - 1, -EINVAL, "git-lfs pointer" },
		{ "\n <!DOCTYPE html><p>", 20, -EINVAL, "an HTML page" },
		{ "<html>", 6, -EINVAL, "an HTML page" },
		{ "\x93NUMPY\1\0", 8, -EINVAL, "a NumPy array (format=npy)" },
		{ "\x89PNG\r\n\x1a\n", 8, -EINVAL, "a PNG image" },
		{ "PK\3\4abcd", 8, -EINVAL, "a zip file" },
		{ "\xff\xfe\1\2\3", 5, -EINVAL, "it starts with the bytes ff fe 01 02 03" },
		{ "\x1f\x8b", 2, -EINVAL, "truncated: the gzip data end" },
		{ "\x1f\x8b\x08\0\0\0\0\0\0\xff\x07"
		  "rubbish",
		  18, -EINVAL, "the gzip data are damaged" },
		{ "", 0, -EINVAL, "is empty" },
	};
	struct dn_dataset *ds = NULL;

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		put("x", t[i].bytes, t[i].n);
		CHECK_FAILS(open_set(&ds, "idx", "x", NULL, "", 0, 0), t[i].err, t[i].message);
		CU_ASSERT_PTR_NULL(ds);
	}
	put("x", f, idx_bytes(f, 8, 2, DIMS(2, 5), ten, 10));
	CHECK_OK_FATAL(open_set(&ds, "idx", "x", NULL, "", 0, 0)); /* the table's good neighbour */
	dn_dataset_close(ds);
}

static void folders_pipes_and_missing_files_are_refused(void)
{
	static const char *const formats[] = { "idx", "npy" };
	struct dn_dataset *ds = NULL;

	CU_ASSERT_EQUAL(mkdir(in_folder("dir"), 0700), 0);
	CU_ASSERT_EQUAL(mkfifo(in_folder("pipe"), 0600), 0);
	for (int i = 0; i < 2; i++) {
		CHECK_FAILS(open_set(&ds, formats[i], "dir", NULL, "", 0, 0), -EISDIR, "dir: is a folder");
		CHECK_FAILS(open_set(&ds, formats[i], "pipe", NULL, "", 0, 0), -EINVAL, "pipe: is a pipe");
		CHECK_FAILS(open_set(&ds, formats[i], "none", NULL, "", 0, 0), -ENOENT, "none: ");
	}
}

static void gzip_gives_the_same_data_set_as_plain(void)
{
	struct dn_dataset *plain = NULL, *gz = NULL;
	char *x = NULL, *y = NULL;
	size_t nx, ny;
	float a[6], b[6], ta[4], tb[4];

	put_small(50);
	CHECK_OK_FATAL(dn_file_read(in_folder("x"), 1 << 20, &x, &nx));
	CHECK_OK_FATAL(dn_file_read(in_folder("y"), 1 << 20, &y, &ny));
	put_gz("x.gz", x, nx);
	put_gz("y.gz", y, ny);
	CHECK_OK_FATAL(open_set(&plain, "idx", "x", "y", "", 6, 4));
	CHECK_OK_FATAL(open_set(&gz, "idx", "x.gz", "y.gz", "", 6, 4));
	CHECK_EQ(gz->n, 50);
	CU_ASSERT_EQUAL(gz->hash, plain->hash);
	for (int i = 0; i < 50; i++) {
		CHECK_OK(plain->get(plain, i, NULL, a, ta, 4, NULL));
		CHECK_OK(gz->get(gz, i, NULL, b, tb, 4, NULL));
		CHECK_BITS(b, a, sizeof(a));
		CHECK_BITS(tb, ta, sizeof(ta));
	}
	dn_dataset_close(plain);
	dn_dataset_close(gz);
	dn_free(x);
	dn_free(y);
}

static void damaged_gzip_files_are_refused_with_the_reason(void)
{
	unsigned char file[200], data[100];
	struct dn_dataset *ds = NULL;
	char *gz = NULL;
	size_t n, k;

	for (int i = 0; i < 100; i++)
		data[i] = (unsigned char)(i * i);
	n = idx_bytes(file, 8, 2, DIMS(10, 10), data, 100);
	CHECK_OK_FATAL(dn_file_read(put_gz("g", file, n), 1000, &gz, &k));
	for (size_t cut = 2; cut < k; cut++) { /* also inside the sum and the length at the end */
		put("x", gz, cut);
		CHECK_FAILS(open_set(&ds, "idx", "x", NULL, "", 0, 0), -EINVAL, "truncated");
	}
	gz[k - 6] ^= 1;
	put("x", gz, k);
	CHECK_FAILS(open_set(&ds, "idx", "x", NULL, "", 0, 0), -EINVAL, "damaged: incorrect data check");
	gz[k - 6] ^= 1;
	gz = dn_realloc(gz, k + 5);
	CU_ASSERT_PTR_NOT_NULL_FATAL(gz);
	memcpy(gz + k, "extra", 5);
	put("x", gz, k + 5);
	CHECK_FAILS(open_set(&ds, "idx", "x", NULL, "", 0, 0), -EINVAL, "5 after the end of the gzip data");
	memset(gz + k, 0, 5); /* padding, as tapes have it */
	put("x", gz, k + 5);
	CHECK_OK_FATAL(open_set(&ds, "idx", "x", NULL, "", 10, 0));
	dn_dataset_close(ds);
	dn_free(gz);
	ds = NULL;
	put_gz("x", file, n - 1);
	CHECK_FAILS(open_set(&ds, "idx", "x", NULL, "", 0, 0), -EINVAL, "truncated: 111 bytes, its header");
	put_gz("x", file, n + 1);
	CHECK_FAILS(open_set(&ds, "idx", "x", NULL, "", 0, 0), -EINVAL, "surplus bytes: 113 bytes");
	put_gz("x", "hello, this is text", 19);
	CHECK_FAILS(open_set(&ds, "idx", "x", NULL, "", 0, 0), -EINVAL, "not an IDX file, but a text file");
	put_gz("x", "", 0);
	CHECK_FAILS(open_set(&ds, "idx", "x", NULL, "", 0, 0), -EINVAL, "not an IDX file");
}

static void members_of_a_gzip_file_are_read_one_after_the_other(void)
{
	unsigned char file[64], both[300];
	struct dn_dataset *ds = NULL;
	char *a = NULL, *b = NULL;
	size_t n, na, nb;
	float x[10];

	n = idx_bytes(file, 8, 2, DIMS(1, 10), "\0\1\2\3\4\5\6\7\10\11", 10);
	CHECK_OK_FATAL(dn_file_read(put_gz("a", file, 7), 1000, &a, &na));
	CHECK_OK_FATAL(dn_file_read(put_gz("b", file + 7, n - 7), 1000, &b, &nb));
	memcpy(both, a, na);
	memcpy(both + na, b, nb);
	put("x", both, na + nb);
	CHECK_OK_FATAL(open_set(&ds, "idx", "x", NULL, "", 10, 0));
	CHECK_OK(ds->get(ds, 0, NULL, x, NULL, 0, NULL));
	for (int i = 0; i < 10; i++)
		CU_ASSERT_EQUAL(x[i], (float)i / 255.0f);
	dn_dataset_close(ds);
	dn_free(a);
	dn_free(b);
}

static void a_gzip_bomb_is_refused_before_memory_is_taken(void)
{
	unsigned char file[64];
	struct dn_dataset *ds = NULL;
	struct dn_mem_stats before, after;
	static unsigned char zeros[4 << 20];

	dn_mem_stats(DN_MEM_HOST, &before);
	put_gz("x", file, idx_bytes(file, 8, 3, DIMS(1u << 20, 1u << 10, 8), NULL, 0)); /* 8 GiB */
	CHECK_FAILS(open_set(&ds, "idx", "x", NULL, "", 0, 0), -EINVAL, "which");
	put_gz("x", file, idx_bytes(file, 8, 3, DIMS(1u << 20, 1u << 10, 1u << 6), NULL, 0)); /* 64 GiB */
	CHECK_FAILS(open_set(&ds, "idx", "x", NULL, "", 0, 0), -EFBIG, "at most 17179869184 are read");
	/* 4 MiB of zeros behind a header that says 8 bytes: unpacking stops at once */
	idx_bytes(zeros, 8, 2, DIMS(2, 4), NULL, 0);
	put_gz("x", zeros, sizeof(zeros));
	CHECK_FAILS(open_set(&ds, "idx", "x", NULL, "", 0, 0), -EINVAL, "surplus bytes");
	dn_mem_stats(DN_MEM_HOST, &after);
	CHECK_EQ(after.now_bytes, before.now_bytes);
	CU_ASSERT(after.peak_bytes < before.peak_bytes + (1 << 20));
}

/* ---- sizes against the net ---- */

static void sizes_that_do_not_fit_are_errors_with_both_numbers(void)
{
	unsigned char file[64];
	struct dn_dataset *ds = NULL;
	char text[300];

	put_small(9);
	put("y8", file, idx_bytes(file, 8, 1, DIMS(8), "\0\0\0\0\0\0\0\0", 8));
	put("yneg", file, idx_bytes(file, 9, 1, DIMS(9), "\0\0\0\0\xff\0\0\0\0", 9));
	put("y2", file, idx_bytes(file, 8, 2, DIMS(9, 1), "\0\0\0\0\0\0\0\0\0", 9));
	put("yf", file, idx_bytes(file, 0x0d, 1, DIMS(9), "123412341234123412341234123412341234", 36));
	CHECK_FAILS(open_set(&ds, "idx", "x", "y", "", 7, 4), -EINVAL,
		    "a sample has 6 values (shape [9, 2, 3]), the net takes 7");
	CHECK_FAILS(open_set(&ds, "idx", "x", "y", "", 6, 3), -EINVAL,
		    "sample 3 has class 3, the net's 3 outputs are classes 0 to 2");
	CHECK_FAILS(open_set(&ds, "idx", "x", "y", "classes=3\n", 6, 4), -EINVAL, "sample 3 has class 3, classes=3 in");
	CHECK_FAILS(open_set(&ds, "idx", "x", "y", "classes=5\n", 6, 4), -EINVAL,
		    "t.data:4: classes=5, but the net has 4 outputs");
	CHECK_FAILS(open_set(&ds, "idx", "x", "yneg", "", 6, 4), -EINVAL, "sample 4 has class -1, must be at least 0");
	snprintf(text, sizeof(text), "%s/x: 9 samples, but %s/y8 has truth for 8", folder, folder);
	CHECK_FAILS(open_set(&ds, "idx", "x", "y8", "", 6, 4), -EINVAL, text);
	CHECK_FAILS(open_set(&ds, "idx", "x", "y2", "", 6, 4), -EINVAL,
		    "truth of shape [9, 1] and type uint8; wanted class numbers");
	CHECK_FAILS(open_set(&ds, "idx", "x", "yf", "", 6, 4), -EINVAL,
		    "truth of shape [9] and type float32; wanted class numbers");
	CHECK_FAILS(open_set(&ds, "idx", "x", NULL, "", 6, 4), -EINVAL, "there is no train_truth= line");
	CHECK_FAILS(open_set(&ds, "idx", NULL, "y", "", 6, 4), -EINVAL, "there is no train= line");
	CU_ASSERT_PTR_NULL(ds);
	CHECK_OK_FATAL(open_set(&ds, "idx", "x", "y", "classes=4\n", 6, 9));
	CHECK_EQ(ds->classes, 4);
	dn_dataset_close(ds);
}

static void without_truth_targets_are_zero_and_the_class_is_minus_one(void)
{
	struct dn_dataset *ds = NULL;
	float x[6], t[2] = { 5, 5 };
	int64_t cls = 7;

	put_small(3);
	CHECK_OK_FATAL(open_set(&ds, "idx", "x", NULL, "", 6, 0));
	CHECK_OK(ds->get(ds, 1, NULL, x, t, 2, &cls));
	CHECK_EQ(cls, -1);
	CU_ASSERT(t[0] == 0 && t[1] == 0);
	dn_dataset_close(ds);
}

static uint64_t hash_of_small(void)
{
	struct dn_dataset *ds = NULL;
	uint64_t h;

	CHECK_OK_FATAL(open_set(&ds, "idx", "x", "y", "", 0, 0));
	h = ds->hash;
	dn_dataset_close(ds);
	return h;
}

static void flip(const char *name, size_t at)
{
	char *p = NULL;
	size_t n;

	CHECK_OK_FATAL(dn_file_read(in_folder(name), 1 << 20, &p, &n));
	p[at] ^= 1;
	put(name, p, n);
	dn_free(p);
}

static void the_hash_sees_any_change_and_nothing_else(void)
{
	uint64_t h;

	put_small(20);
	h = hash_of_small();
	CU_ASSERT_EQUAL(hash_of_small(), h);
	flip("x", 16 + 77);
	CU_ASSERT_NOT_EQUAL(hash_of_small(), h);
	flip("x", 16 + 77);
	flip("y", 8 + 19);
	CU_ASSERT_NOT_EQUAL(hash_of_small(), h);
	flip("y", 8 + 19);
	CU_ASSERT_EQUAL(hash_of_small(), h);
	put_small(19);
	CU_ASSERT_NOT_EQUAL(hash_of_small(), h);
}

/* ---- NumPy ---- */

/* A .npy file: version, header text as it is, then elements. */
static const char *put_npy(const char *name, int major, const char *head, const void *p, size_t n)
{
	unsigned char f[4000] = "\x93NUMPY";
	size_t k = strlen(head), at = major > 1 ? 12 : 10;

	f[6] = (unsigned char)major;
	f[8] = (unsigned char)(k & 255);
	f[9] = (unsigned char)(k >> 8);
	memcpy(f + at, head, k);
	memcpy(f + at + k, p, n);
	return put(name, f, at + k + n);
}

static void npy_round_trip_keeps_every_bit(void)
{
	static const int64_t shapes[][4] = { { 0 }, { 24 }, { 4, 6 }, { 2, 3, 4 }, { 1, 2, 3, 4 } };
	float x[24];

	for (int i = 0; i < 24; i++)
		x[i] = (float)i / 7 - 1;
	x[3] = -0.0f;
	x[4] = INFINITY;
	x[5] = 1e-42f;
	for (int d = 0; d <= 4; d++) {
		const char *path = in_folder("w.npy");
		struct dn_npy a;
		int64_t n = d ? 24 : 1;

		CHECK_OK_FATAL(dn_npy_write(path, d, shapes[d], x));
		CHECK_OK_FATAL(dn_npy_open(&a, path));
		CHECK_EQ(a.dtype, 'f');
		CHECK_EQ(a.item_bytes, 4);
		CHECK_EQ(a.n_dims, d);
		CHECK_EQ(a.n, n);
		for (int i = 0; i < d; i++)
			CHECK_EQ(a.shape[i], shapes[d][i]);
		CHECK_BITS(a.data, x, (size_t)n * 4);
		CHECK_EQ((size_t)((const char *)a.data - (const char *)a.map) % 64, 0);
		CU_ASSERT_EQUAL(dn_npy_float(&a, n - 1, true), x[n - 1]);
		dn_npy_close(&a);
		dn_npy_close(&a); /* legal on a zeroed one */
	}
	CHECK_FAILS(dn_npy_write(in_folder("w.npy"), 9, shapes[0], x), -EINVAL, "cannot write 9 dimensions");
	CHECK_FAILS(dn_npy_write(in_folder("w.npy"), 1, (const int64_t[]){ -1 }, x), -EINVAL, "cannot write a size of -1");
	CHECK_FAILS(dn_npy_write(in_folder("none/w.npy"), 1, shapes[1], x), -ENOENT, "none/w.npy");
}

static void npy_headers_of_all_versions_types_and_spellings_are_read(void)
{
	static const struct {
		int major;
		const char *head;
		const char *data;
		size_t n;
		char dtype;
		int n_dims;
		float second, second_scaled;
	} t[] = {
		{ 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }   \n", "\0\0\x80?\0\0\0@", 8, 'f', 1, 2, 2 },
		{ 2, "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2), }\n", "\0\xff", 2, 'u', 2, 255, 1 },
		{ 3, "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1), }\n", "\0\0\0\0\xff\xff\xff\xff", 8, 'i', 2, -1,
		  -1 },
		{ 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }\n", "\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0", 16, 'l',
		  1, 256, 256 },
		{ 1, "{\"shape\":(2,),\"descr\":\"|u1\",\"fortran_order\":False}", "\0\5", 2, 'u', 1, 5, 5.0f / 255 },
		{ 1, " { 'shape' : ( 2 , 1 , ) ,\t'fortran_order' : False, 'descr' : '|u1' , } \n", "\0\5", 2, 'u', 2, 5,
		  5.0f / 255 },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct dn_npy a;

		CHECK_OK_FATAL(dn_npy_open(&a, put_npy("n.npy", t[i].major, t[i].head, t[i].data, t[i].n)));
		CHECK_EQ(a.dtype, t[i].dtype);
		CHECK_EQ(a.n_dims, t[i].n_dims);
		CHECK_EQ(a.n, 2);
		CU_ASSERT_EQUAL(dn_npy_float(&a, 1, false), t[i].second);
		CU_ASSERT_EQUAL(dn_npy_float(&a, 1, true), t[i].second_scaled);
		dn_npy_close(&a);
	}
}

#define HEAD(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"

static void damaged_npy_files_are_refused_with_the_reason(void)
{
	static const struct {
		const char *head;
		int err;
		const char *message;
	} t[] = {
		/* each with 8 bytes of elements */
		{ HEAD("'<f8'", "False", "(1,)"), -EINVAL,
		  "type '<f8'; read are '<f4' (float32), '|u1' (uint8), '<i4' (int32) and '<i8'" },
		{ HEAD("'>f4'", "False", "(2,)"), -EINVAL, "type '>f4'" },
		{ HEAD("'|b1'", "False", "(8,)"), -EINVAL, "type '|b1'" },
		{ HEAD("'|O'", "False", "(1,)"), -EINVAL, "type '|O'" },
		{ HEAD("[('a', '<f4')]", "False", "(2,)"), -EINVAL, "a structured array" },
		{ HEAD("'<f4'", "True", "(2, 1)"), -EINVAL, "in Fortran order" },
		{ HEAD("'<f4'", "Maybe", "(2,)"), -EINVAL, "True or False is due" },
		{ HEAD("'<f4'", "False", "(3,)"), -EINVAL,
		  "truncated: 8 bytes of elements, its header ([3] of float32) says 12" },
		{ HEAD("'<f4'", "False", "(1,)"), -EINVAL,
		  "surplus bytes: 8 bytes of elements, its header ([1] of float32) says 4" },
		{ HEAD("'<f4'", "False", "()"), -EINVAL, "surplus bytes" },
		{ HEAD("'<f4'", "False", "(2)"), -EINVAL, "the comma of a one-element shape" },
		{ HEAD("'<f4'", "False", "(-2,)"), -EINVAL, "a size is due" },
		{ HEAD("'<f4'", "False", "(2 1)"), -EINVAL, "a comma is due" },
		{ HEAD("'<f4'", "False", "(2,,)"), -EINVAL, "a size is due" },
		{ HEAD("'<f4'", "False", "2"), -EINVAL, "a shape such as" },
		{ HEAD("'<f4'", "False", "(99999999999999999999,)"), -EINVAL, "does not fit 64 bits" },
		{ HEAD("'<f4'", "False", "(4611686018427387904, 4)"), -EOVERFLOW, "does not fit 64 bits" },
		{ HEAD("'<f4'", "False", "(4611686018427387904, 4, 0)"), -EOVERFLOW, "does not fit 64 bits" },
		{ HEAD("'<f4'", "False", "(1,1,1,1,1,1,1,1,2)"), -EINVAL, "more than 8 dimensions" },
		{ "{'descr': '<f4', 'fortran_order': False}", -EINVAL, "shape is missing" },
		{ "{'descr': '<f4', 'shape': (2,)}", -EINVAL, "fortran_order is missing" },
		{ "{'fortran_order': False, 'shape': (2,)}", -EINVAL, "descr is missing" },
		{ "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", -EINVAL, "was there before" },
		{ "{'descr': '<f4', 'colour': 3}", -EINVAL, "a key that is not" },
		{ "{'descr': '<f4' 'fortran_order': False}", -EINVAL, "a comma is due" },
		{ "{'descr' '<f4'}", -EINVAL, "a colon is due" },
		{ "{'descr': <f4}", -EINVAL, "a text in quotes is due" },
		{ "{'descr", -EINVAL, "a quote is not closed" },
		{ "{", -EINVAL, "a text in quotes is due" },
		{ "", -EINVAL, "a { is due" },
		{ HEAD("'<f4'", "False", "(2,)") "x", -EINVAL, "text after the }" },
	};
	static const struct {
		const char *bytes;
		size_t n;
		const char *message;
	} raw[] = {
		{ "\x93NUMPY\1\0\x10", 9, "truncated: 9 bytes" },
		{ "\x93NUM", 4, "not a NumPy file" },
		{ "\x93NUMPY\4\0\0\0", 10, "NumPy format 4.0" },
		{ "\x93NUMPY\1\1\0\0", 10, "NumPy format 1.1" },
		{ "\x93NUMPY\1\0\xff\xff{}", 12, "truncated: a header of 65535 bytes in a file of 12" },
		{ "\x93NUMPY\2\0\xff\xff", 10, "truncated: 10 bytes" },
		{ "\x93NUMPY\2\0\xff\xff\xff\xff{}", 14, "truncated: a header of 4294967295 bytes" },
		{ "a,b\n1,2\n", 8, "not a NumPy file, but a text file" },
		{ "PK\3\4abcd", 8, "a zip file; an .npz holds .npy files" },
		{ "\x1f\x8b\x08\0", 4, "a gzip file" },
		{ "\0\0\x08\1\0\0\0\1"
		  "1",
		  9, "an IDX file (format=idx)" },
		{ "version https://git-lfs.github.com/spec/v1\n", 43, "git-lfs pointer" },
		{ "", 0, "is empty" },
	};
	struct dn_npy a = { 0 };

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		CHECK_FAILS(dn_npy_open(&a, put_npy("n.npy", 1, t[i].head, "12345678", 8)), t[i].err, t[i].message);
	for (size_t i = 0; i < sizeof(raw) / sizeof(raw[0]); i++)
		CHECK_FAILS(dn_npy_open(&a, put("n.npy", raw[i].bytes, raw[i].n)), -EINVAL, raw[i].message);
	CU_ASSERT_PTR_NULL(a.map);
}

/* Any byte of a good file replaced by any of some nasty ones: an error or an array, never a crash. */
static void npy_and_idx_files_with_a_wrong_byte_never_crash(void)
{
	static const unsigned char nasty[] = { 0, 1, '\'', '(', ')', ',', '9', '{', '}', 0x7f, 0x80, 0xff };
	unsigned char file[200];
	char *p = NULL;
	size_t n, opened = 0;
	float x[6] = { 0 };

	CHECK_OK_FATAL(dn_npy_write(in_folder("n.npy"), 2, (const int64_t[]){ 2, 3 }, x));
	CHECK_OK_FATAL(dn_file_read(in_folder("n.npy"), 1000, &p, &n));
	for (size_t i = 0; i < n; i++) {
		char was = p[i];

		for (size_t k = 0; k < sizeof(nasty); k++) {
			struct dn_npy a;

			p[i] = (char)nasty[k];
			if (!dn_npy_open(&a, put("n.npy", p, n))) {
				opened++;
				CU_ASSERT(isfinite(dn_npy_float(&a, a.n - 1, true)) || i >= n - 4);
				dn_npy_close(&a);
			}
		}
		p[i] = was;
	}
	CU_ASSERT(opened > 0);
	dn_free(p);
	n = idx_bytes(file, 8, 2, DIMS(2, 3), "123456", 6);
	for (size_t i = 0; i < n; i++) {
		unsigned char was = file[i];

		for (size_t k = 0; k < sizeof(nasty); k++) {
			struct dn_dataset *ds = NULL;

			file[i] = nasty[k];
			put("x", file, n);
			if (!open_set(&ds, "idx", "x", NULL, "", 0, 0)) {
				CHECK_EQ(ds->n * ds->inputs, 6);
				dn_dataset_close(ds);
			}
		}
		file[i] = was;
	}
}

static void npy_data_sets_take_classes_or_dense_targets(void)
{
	static const float x[6] = { 1, 2, 3, 4, 5, 6 }, y[4] = { 0.5f, -1, 2, 3 };
	static const int64_t classes[2] = { 1, 0 };
	struct dn_dataset *ds = NULL;
	float gx[3], gt[2];
	int64_t cls = 5;

	CHECK_OK_FATAL(dn_npy_write(in_folder("x"), 2, (const int64_t[]){ 2, 3 }, x));
	CHECK_OK_FATAL(dn_npy_write(in_folder("y"), 2, (const int64_t[]){ 2, 2 }, y));
	CHECK_OK_FATAL(open_set(&ds, "npy", "x", "y", "", 3, 2));
	CHECK_EQ(ds->truths, 2);
	CHECK_EQ(ds->classes, 0);
	CHECK_EQ(ds->c, 3);
	CHECK_OK(ds->get(ds, 1, NULL, gx, gt, 2, &cls));
	CHECK_BITS(gx, x + 3, sizeof(gx));
	CHECK_BITS(gt, y + 2, sizeof(gt));
	CHECK_EQ(cls, -1);
	dn_dataset_close(ds);
	ds = NULL;
	CHECK_FAILS(open_set(&ds, "npy", "x", "y", "", 3, 3), -EINVAL, "a target has 2 values (shape [2, 2]), the net takes 3");
	put_npy("c", 1, HEAD("'<i8'", "False", "(2,)"), classes, 16);
	CHECK_OK_FATAL(open_set(&ds, "npy", "x", "c", "", 3, 2));
	CHECK_EQ(ds->classes, 2);
	CHECK_OK(ds->get(ds, 0, NULL, gx, gt, 2, &cls));
	CHECK_EQ(cls, 1);
	CU_ASSERT(gt[0] == 0 && gt[1] == 1);
	dn_dataset_close(ds);
	ds = NULL;
	put_npy("c", 1, HEAD("'<i8'", "False", "(2,)"), "\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f", 16);
	CHECK_FAILS(open_set(&ds, "npy", "x", "c", "", 3, 0), -EINVAL, "class 9223372036854775807 is too large");
	put_npy("c", 1, HEAD("'<i4'", "False", "(2, 2)"), "0123012301230123", 16);
	CHECK_FAILS(open_set(&ds, "npy", "x", "c", "", 3, 2), -EINVAL,
		    "truth of shape [2, 2] and type int32; wanted class numbers");
	put_npy("c", 1, HEAD("'<f4'", "False", "(2,)"), "01230123", 8);
	CHECK_FAILS(open_set(&ds, "npy", "x", "c", "", 3, 2), -EINVAL, "or targets, [n, k] of float32");
	put_npy("c", 1, HEAD("'<f4'", "False", "(2, 0)"), "", 0);
	CHECK_FAILS(open_set(&ds, "npy", "x", "c", "", 3, 0), -EINVAL, "a target has 0 values");
	put_npy("e", 1, HEAD("'<f4'", "False", "(0, 3)"), "", 0);
	CHECK_FAILS(open_set(&ds, "npy", "e", NULL, "", 3, 0), -EINVAL, "[0, 3] has no elements");
}

/* ---- the digits that ship with the project ---- */

/* 16 MiB of inputs and 4 MiB of targets: opening, hashing and reading all of them leaves less than 3 MiB resident, which is
 * what the kernel may map around the header; and a file that shrinks later is an error, not the end of the process. */
static void memory_does_not_grow_with_the_data_and_a_file_that_shrinks_is_an_error(void)
{
	enum { N = 1024, INPUTS = 4096, TARGETS = 1024 };
	const int64_t shape[2] = { N, INPUTS }, truth_shape[2] = { N, TARGETS };
	float *x = calloc((size_t)N * INPUTS, sizeof(*x));
	float one[INPUTS], t[TARGETS];
	char path[128];
	struct dn_dataset *ds;
	size_t before;
	int64_t cls;

	CU_ASSERT_PTR_NOT_NULL_FATAL(x);
	for (int64_t i = 0; i < (int64_t)N * INPUTS; i++)
		x[i] = (float)i;
	snprintf(path, sizeof(path), "%s", in_folder("large.npy"));
	CHECK_OK_FATAL(dn_npy_write(path, 2, shape, x));
	CHECK_OK_FATAL(dn_npy_write(in_folder("targets.npy"), 2, truth_shape, x));
	free(x);
	before = dn_rss_bytes();
	CHECK_OK_FATAL(open_set(&ds, "npy", "large.npy", "targets.npy", "", INPUTS, TARGETS));
	for (int64_t i = 0; i < N; i++) {
		CHECK_OK(ds->get(ds, i, NULL, one, t, TARGETS, &cls));
		CHECK_EQ(one[0] == (float)(i * INPUTS) && one[INPUTS - 1] == (float)(i * INPUTS + INPUTS - 1), 1);
		CHECK_EQ(t[0] == (float)(i * TARGETS) && t[TARGETS - 1] == (float)(i * TARGETS + TARGETS - 1), 1);
	}
	CU_ASSERT_TRUE(dn_rss_bytes() < before + (3 << 20));
	CU_ASSERT_EQUAL_FATAL(truncate(path, 1 << 20), 0);
	CHECK_OK(ds->get(ds, 0, NULL, one, t, TARGETS, &cls));
	CHECK_FAILS(ds->get(ds, N - 1, NULL, one, t, TARGETS, &cls), -EIO, "large.npy");
	dn_dataset_close(ds);
}

static void the_digits_have_their_classes_and_looks(void)
{
	static const int want[2][10] = { { 142, 145, 142, 146, 145, 146, 145, 143, 139, 144 },
					 { 36, 37, 35, 37, 36, 36, 36, 36, 35, 36 } };
	struct dn_datafile *d = NULL;

	if (access("cfg/digits.data", R_OK)) {
		printf("SKIP data: cfg/digits.data is not below the working directory\n");
		return;
	}
	CHECK_OK_FATAL(dn_datafile_read(&d, "cfg/digits.data", true));
	CHECK_EQ(d->classes, 10);
	for (int part = 0; part < 2; part++) {
		struct dn_dataset *ds = NULL;
		int count[10] = { 0 };
		float x[64], t[10];
		int64_t cls;

		CHECK_OK_FATAL(dn_dataset_open(&ds, d, &(struct dn_dataset_config){ .valid = part, .inputs = 64, .truths = 10 }));
		CHECK_EQ(ds->n, part ? 360 : 1437);
		CHECK_EQ(ds->h, 8);
		CHECK_EQ(ds->w, 8);
		for (int64_t i = 0; i < ds->n; i++) {
			double ink = 0;

			CHECK_OK(ds->get(ds, i, NULL, x, t, 10, &cls));
			count[cls]++;
			for (int j = 0; j < 64; j++)
				ink += x[j];
			CU_ASSERT(ink > 8 && ink < 40); /* of 64: neither empty nor full */
		}
		for (int k = 0; k < 10; k++)
			CHECK_EQ(count[k], want[part][k]);
		dn_dataset_close(ds);
	}
	dn_datafile_destroy(d);
}

static const struct check_case cases[] = {
	CASE(known_keys_are_typed_and_never_warned_of),
	CASE(missing_keys_have_defaults),
	CASE(an_unknown_key_warns_and_strict_refuses_it),
	CASE(bad_data_files_say_where_and_what_is_allowed),
	CASE(a_shuffle_is_one_of_three_words),
	CASE(idx_bytes_are_divided_by_255_and_labels_become_one_hot),
	CASE(every_idx_type_is_read_big_endian),
	CASE(idx_shapes_are_flat_grey_or_with_channels),
	CASE(damaged_idx_files_are_refused_with_the_reason),
	CASE(folders_pipes_and_missing_files_are_refused),
	CASE(gzip_gives_the_same_data_set_as_plain),
	CASE(damaged_gzip_files_are_refused_with_the_reason),
	CASE(members_of_a_gzip_file_are_read_one_after_the_other),
	CASE(a_gzip_bomb_is_refused_before_memory_is_taken),
	CASE(sizes_that_do_not_fit_are_errors_with_both_numbers),
	CASE(without_truth_targets_are_zero_and_the_class_is_minus_one),
	CASE(the_hash_sees_any_change_and_nothing_else),
	CASE(npy_round_trip_keeps_every_bit),
	CASE(npy_headers_of_all_versions_types_and_spellings_are_read),
	CASE(damaged_npy_files_are_refused_with_the_reason),
	CASE(npy_and_idx_files_with_a_wrong_byte_never_crash),
	CASE(npy_data_sets_take_classes_or_dense_targets),
	CASE(memory_does_not_grow_with_the_data_and_a_file_that_shrinks_is_an_error),
	CASE(the_digits_have_their_classes_and_looks),
	{ NULL, NULL },
};

int main(void)
{
	return run_in_folder("data", cases);
}
