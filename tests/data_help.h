/* Helpers of the suites of room data: files in a folder of their own, data sets out of them, warnings kept. */
#ifndef DN_TESTS_DATA_HELP_H
#define DN_TESTS_DATA_HELP_H
#include "check.h"

#include <errno.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "data/datafile.h"
#include "data/dataset.h"
#include "data/lines.h"
#include "data/loader.h"
#include "data/npy.h"

static char folder[64];

static inline const char *in_folder(const char *name)
{
	static char paths[8][256];
	static int at;

	at = (at + 1) % 8;
	snprintf(paths[at], sizeof(paths[at]), "%s/%s", folder, name);
	return paths[at];
}

static inline const char *put(const char *name, const void *p, size_t n)
{
	const char *path = in_folder(name);
	FILE *f = fopen(path, "wb");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(fwrite(p, 1, n, f), n);
	CU_ASSERT_EQUAL(fclose(f), 0);
	return path;
}

static inline const char *put_text(const char *name, const char *text)
{
	return put(name, text, strlen(text));
}

static inline const char *put_gz(const char *name, const void *p, size_t n)
{
	const char *path = in_folder(name);
	gzFile f = gzopen(path, "wb9");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(gzwrite(f, p, (unsigned)n), (int)n);
	CU_ASSERT_EQUAL(gzclose(f), Z_OK);
	return path;
}

/* An IDX file in memory: header, then @n bytes of elements. */
static inline size_t idx_bytes(unsigned char *out, int type, int n_dims, const uint32_t *dims, const void *p, size_t n)
{
	size_t k = 4;

	out[0] = out[1] = 0;
	out[2] = (unsigned char)type;
	out[3] = (unsigned char)n_dims;
	for (int i = 0; i < n_dims; i++)
		for (int s = 24; s >= 0; s -= 8)
			out[k++] = (unsigned char)(dims[i] >> s);
	if (n)
		memcpy(out + k, p, n);
	return k + n;
}

#define DIMS(...) ((const uint32_t[]){ __VA_ARGS__ })

/* Puts "x" [n, 2, 3] of uint8 (value = 7 * place mod 256) and "y" [n] (class = number mod 4). */
static inline void put_small(uint32_t n)
{
	unsigned char x[6000], y[1000], file[7000];

	for (uint32_t i = 0; i < 6 * n; i++)
		x[i] = (unsigned char)(7 * i);
	for (uint32_t i = 0; i < n; i++)
		y[i] = (unsigned char)(i % 4);
	put("x", file, idx_bytes(file, 8, 3, DIMS(n, 2, 3), x, 6 * n));
	put("y", file, idx_bytes(file, 8, 1, DIMS(n), y, n));
}

/* A .data file with @lines, and train=x train_truth=y when those are given. */
static inline int open_set(struct dn_dataset **ds, const char *format, const char *x, const char *y, const char *more,
			   int64_t inputs, int64_t truths)
{
	struct dn_datafile *d = NULL;
	char text[1000];
	int n = snprintf(text, sizeof(text), "format=%s\n", format);
	int err;

	if (x)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "train=%s\n", in_folder(x));
	if (y)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "train_truth=%s\n", in_folder(y));
	snprintf(text + n, sizeof(text) - (size_t)n, "%s", more);
	err = dn_datafile_read(&d, put_text("t.data", text), true);
	if (err)
		return err;
	err = dn_dataset_open(ds, d, &(struct dn_dataset_config){ .inputs = inputs, .truths = truths });
	dn_datafile_destroy(d);
	return err;
}

static char last_warning[4000];
static int n_warnings;

static inline void keep_warning(void *arg, const char *line)
{
	n_warnings++;
	snprintf(last_warning, sizeof(last_warning), "%s", line);
}

static inline int run_in_folder(const char *suite, const struct check_case *cases)
{
	int status;

	snprintf(folder, sizeof(folder), "/tmp/test_data.XXXXXX");
	if (!mkdtemp(folder)) {
		perror(folder);
		return 2;
	}
	status = check_run(suite, cases);
	if (dn_remove_tree(folder))
		fprintf(stderr, "%s\n", dn_message());
	return status;
}

#define CASE(f) \
	{ \
#f, f \
	}
#endif
