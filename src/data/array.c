/* Arrays in files, independent of format: mapping, what a wrong file looks like, reading elements. */
#define _GNU_SOURCE
#include "data/array_priv.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"

int data_map(const char *path, void **map, size_t *bytes)
{
	struct stat st;
	int64_t size = 0;
	void *p = NULL;
	int fd;
	int err = dn_file_size(path, &size); /* refuses folders, pipes, devices */

	if (err)
		return err;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return dn_fail(-errno, DATA_PATH ": cannot read: %s", path, strerror(errno));
	if (fstat(fd, &st))
		err = dn_fail(-errno, DATA_PATH ": cannot read: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		err = dn_fail(-EINVAL, DATA_PATH ": is not a regular file any more", path);
	else if (!st.st_size)
		err = dn_fail(-EINVAL, DATA_PATH ": is empty", path);
	if (err)
		goto out;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED) {
		err = dn_fail(-errno, DATA_PATH ": cannot map %lld bytes: %s", path, (long long)st.st_size, strerror(errno));
		goto out;
	}
	*map = p;
	*bytes = (size_t)st.st_size;
out:
	close(fd);
	return err;
}

void data_unmap(void *map, size_t bytes)
{
	if (map)
		munmap(map, bytes);
}

bool data_text_only(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n && i < 256; i++)
		if ((p[i] < 32 && p[i] != '\n' && p[i] != '\r' && p[i] != '\t') || p[i] == 127)
			return false;
	return n > 0;
}

/* What a file seems to be, by its first bytes; NULL when they tell nothing. */
static const char *kind_of(const unsigned char *p, size_t n)
{
	static const struct {
		const char *start;
		size_t bytes;
		const char *what;
	} kinds[] = {
		{ "version https://git-lfs", 23, "a git-lfs pointer: the file itself was not fetched" },
		{ "\x1f\x8b", 2, "a gzip file" },
		{ "\x93NUMPY", 6, "a NumPy array (format=npy)" },
		{ "PK\3\4", 4, "a zip file; an .npz holds .npy files, unzip it" },
		{ "\x89PNG", 4, "a PNG image" },
		{ "\xff\xd8\xff", 3, "a JPEG image" },
		{ "\x89HDF", 4, "an HDF5 file" },
		{ "GIF8", 4, "a GIF image" },
		{ "RIFF", 4, "a RIFF file (WebP image?)" },
		{ "II*\0", 4, "a TIFF image" },
		{ "MM\0*", 4, "a TIFF image" },
		{ "8BPS", 4, "a Photoshop image" },
	};
	size_t skip = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (n >= kinds[i].bytes && !memcmp(p, kinds[i].start, kinds[i].bytes))
			return kinds[i].what;
	if (n >= 4 && !p[0] && !p[1] && p[2] >= 8 && p[2] <= 14 && p[3] >= 1 && p[3] <= 8)
		return "an IDX file (format=idx)";
	while (skip < n && skip < 256 && strchr(" \t\r\n", p[skip]) && p[skip])
		skip++;
	if ((n - skip >= 9 && !strncasecmp((const char *)p + skip, "<!doctype", 9)) ||
	    (n - skip >= 5 && !strncasecmp((const char *)p + skip, "<html", 5)))
		return "an HTML page: a download that went wrong?";
	return data_text_only(p, n) ? "a text file" : NULL;
}

int data_fail_kind(const char *path, const char *wanted, const unsigned char *p, size_t n)
{
	const char *what = kind_of(p, n);
	char hex[32] = "";

	if (what)
		return dn_fail(-EINVAL, DATA_PATH ": not %s, but %s", path, wanted, what);
	for (size_t i = 0; i < n && i < 8; i++)
		snprintf(hex + 3 * i, sizeof(hex) - 3 * i, " %02x", p[i]);
	return dn_fail(-EINVAL, DATA_PATH ": not %s: it starts with the bytes%s", path, wanted, hex);
}

int data_check_text(const char *path, const char *wanted, const unsigned char *p, size_t n)
{
	const unsigned char *nul = n ? memchr(p, 0, n) : NULL;
	const char *what = kind_of(p, n);
	long long line = 1;

	if (!n)
		return dn_fail(-EINVAL, DATA_PATH ": is empty, not %s", path, wanted);
	if (nul && memchr(p, '\n', (size_t)(nul - p)) && data_text_only(p, (size_t)(nul - p))) {
		for (const unsigned char *s = p; s < nul; s++)
			line += *s == '\n';
		return dn_fail(-EINVAL, DATA_PATH ":%lld: not %s: a NUL byte, byte %zu of the file", path, line, wanted,
			       (size_t)(nul - p));
	}
	/* a path may start like another kind of file does, but not like these two */
	if (!data_text_only(p, n) || (what && (strstr(what, "git-lfs") || strstr(what, "HTML"))))
		return data_fail_kind(path, wanted, p, n);
	if (nul) /* in the first line, which is as long as that */
		return dn_fail(-EINVAL, DATA_PATH ":1: not %s: a NUL byte, byte %zu of the file", path, wanted,
			       (size_t)(nul - p));
	return 0;
}

const char *data_shape_text(int n_dims, const int64_t *shape, char *out, size_t cap)
{
	size_t n = 0;

	out[0] = '\0';
	for (int i = 0; i < n_dims && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%lld", i ? ", " : "[", (long long)shape[i]);
	if (n < cap)
		snprintf(out + n, cap - n, "%s", n_dims ? "]" : "[]");
	return out;
}

size_t data_type_bytes(enum data_type t)
{
	static const size_t bytes[] = {
		[DATA_U8] = 1, [DATA_I8] = 1, [DATA_I16] = 2, [DATA_I32] = 4, [DATA_I64] = 8, [DATA_F32] = 4, [DATA_F64] = 8,
	};

	return bytes[t];
}

const char *data_type_name(enum data_type t)
{
	static const char *const names[] = {
		[DATA_U8] = "uint8",  [DATA_I8] = "int8",     [DATA_I16] = "int16",   [DATA_I32] = "int32",
		[DATA_I64] = "int64", [DATA_F32] = "float32", [DATA_F64] = "float64",
	};

	return names[t];
}

bool data_type_whole(enum data_type t)
{
	return t != DATA_F32 && t != DATA_F64;
}

void data_array_close(struct data_array *a)
{
	data_unmap(a->map, a->map_bytes);
	dn_free(a->owned);
	if (a->file)
		close(a->file - 1);
	*a = (struct data_array){ 0 };
}

static uint16_t load16(const unsigned char *p, bool big)
{
	uint16_t x;

	memcpy(&x, p, sizeof(x));
	return big ? __builtin_bswap16(x) : x;
}

static uint32_t load32(const unsigned char *p, bool big)
{
	uint32_t x;

	memcpy(&x, p, sizeof(x));
	return big ? __builtin_bswap32(x) : x;
}

static uint64_t load64(const unsigned char *p, bool big)
{
	uint64_t x;

	memcpy(&x, p, sizeof(x));
	return big ? __builtin_bswap64(x) : x;
}

static float f32(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static double f64(uint64_t bits)
{
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

int64_t data_whole(const struct data_array *a, int64_t i)
{
	const unsigned char *p = a->data + (size_t)i * data_type_bytes(a->type);

	switch (a->type) {
	case DATA_U8:
		return *p;
	case DATA_I8:
		return (int8_t)*p;
	case DATA_I16:
		return (int16_t)load16(p, a->big_endian);
	case DATA_I32:
		return (int32_t)load32(p, a->big_endian);
	case DATA_I64:
		return (int64_t)load64(p, a->big_endian);
	case DATA_F32:
	case DATA_F64:
		break;
	}
	assert(0);
	return -1;
}

void data_floats(const struct data_array *a, int64_t at, int64_t n, bool scale, float *out)
{
	const unsigned char *p = a->data + (size_t)at * data_type_bytes(a->type);
	float by = scale ? 255.0f : 1.0f;

	switch (a->type) {
	case DATA_U8:
		for (int64_t i = 0; i < n; i++)
			out[i] = (float)p[i] / by;
		return;
	case DATA_I8:
		for (int64_t i = 0; i < n; i++)
			out[i] = (float)(int8_t)p[i] / by;
		return;
	case DATA_F32:
		if (!a->big_endian) {
			memcpy(out, p, (size_t)n * sizeof(*out));
			return;
		}
		for (int64_t i = 0; i < n; i++)
			out[i] = f32(load32(p + 4 * i, true));
		return;
	case DATA_F64:
		for (int64_t i = 0; i < n; i++)
			out[i] = (float)f64(load64(p + 8 * i, a->big_endian));
		return;
	case DATA_I16:
	case DATA_I32:
	case DATA_I64:
		for (int64_t i = 0; i < n; i++)
			out[i] = (float)data_whole(a, at + i);
		return;
	}
}
