/* Image files: reading them with every size checked first, and writing PNG. */
#define _GNU_SOURCE
#include "data/image.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/array_priv.h"
#include "data/image_priv.h"

#define KINDS "PNG, JPEG, BMP, TGA, PPM (P6) or PGM (P5)"
#define MAX_FILE_BYTES ((int64_t)256 << 20)

/* --- reading --- */

void image_name(char out[IMAGE_NAME_BYTES], const char *path, const char *list, int64_t line)
{
	if (list)
		snprintf(out, IMAGE_NAME_BYTES, "%.180s:%lld: \"%.280s\"", list, (long long)line, path);
	else
		snprintf(out, IMAGE_NAME_BYTES, "\"%.480s\"", path);
}

static int cannot_read(const char *name)
{
	return dn_fail(-errno, DATA_PATH ": cannot read the image: %s", name, strerror(errno));
}

static int need_file(const char *name, const struct stat *st)
{
	if (S_ISDIR(st->st_mode))
		return dn_fail(-EISDIR, DATA_PATH ": is a folder, not an image", name);
	if (!S_ISREG(st->st_mode))
		return dn_fail(-EINVAL, DATA_PATH ": is no regular file, so no image", name);
	if (st->st_size > MAX_FILE_BYTES)
		return dn_fail(-EFBIG, DATA_PATH ": has %lld bytes; images of at most %lld are read", name,
			       (long long)st->st_size, (long long)MAX_FILE_BYTES);
	return 0;
}

/* The whole file, into the arena. Looks before it opens, as opening a device can have effects. */
static int read_file(struct image_arena *a, const char *path, const char *name, unsigned char **out, size_t *n)
{
	struct stat st;
	unsigned char *p;
	size_t have = 0;
	int fd, err;

	if (stat(path, &st))
		return cannot_read(name);
	err = need_file(name, &st);
	if (err)
		return err;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return cannot_read(name);
	err = fstat(fd, &st) ? cannot_read(name) : need_file(name, &st);
	if (err)
		goto out;
	p = image_arena_get(a, (size_t)st.st_size + 1);
	if (!p) {
		err = dn_fail(-ENOMEM, DATA_PATH ": no memory for its %lld bytes", name, (long long)st.st_size);
		goto out;
	}
	while (have < (size_t)st.st_size) {
		ssize_t k = read(fd, p + have, (size_t)st.st_size - have);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			err = cannot_read(name);
		if (k <= 0)
			break;
		have += (size_t)k;
	}
	if (!err && !have)
		err = dn_fail(-EINVAL, DATA_PATH ": is empty, not an image", name);
	*out = p;
	*n = have;
out:
	close(fd);
	return err;
}

/* One of the kinds that are read, by its first bytes; a TGA has none. */
static bool known_start(const unsigned char *p, size_t n)
{
	return image_is_png(p, n) || image_is_jpeg(p, n) || image_is_pnm(p, n) || image_is_bmp(p, n);
}

static int cannot_decode(const char *path, const unsigned char *p, size_t n, const char *why)
{
	if (n >= 3 && p[0] == 'P' && p[1] >= '1' && p[1] <= '3' && strchr(" \t\r\n#", p[2]))
		return dn_fail(-ENOTSUP, DATA_PATH ": an image in the text format P%c; images are " KINDS, path, p[1]);
	if (!known_start(p, n))
		return data_fail_kind(path, "an image (" KINDS ")", p, n);
	return dn_fail(-EINVAL, DATA_PATH ": the image cannot be decoded: %s", path, why);
}

/* What no decoder but ours needs to know first. */
static int check_kind(struct image_arena *a, const char *name, const unsigned char **p, size_t *n, struct jpeg_look *jpeg)
{
	if (image_is_png(*p, *n))
		return image_check_png(a, name, p, n);
	if (image_is_jpeg(*p, *n))
		return image_check_jpeg(name, *p, *n, jpeg);
	if (image_is_bmp(*p, *n))
		return image_check_bmp(a, name, p, n);
	return 0;
}

int image_decode_bytes(struct image_arena *a, const unsigned char *p, size_t n, const char *name, int64_t c, struct dn_view *out)
{
	struct jpeg_look jpeg = { 0 };
	unsigned char *pixels = NULL;
	int w = 0, h = 0, file_c = 0, err;
	const char *why;

	a->no_end = false;
	if (c != 1 && c != 3)
		return dn_fail(-ENOTSUP,
			       DATA_PATH ": cannot be read as %lld channels; images have 1 (grey) or 3 (red, green, blue)", name,
			       (long long)c);
	if (data_text_only(p, n) && !known_start(p, n))
		return cannot_decode(name, p, n, ""); /* the test for TGA takes much for one */
	if (image_is_pnm(p, n))
		return image_decode_pnm(a, p, n, name, c, out);
	err = check_kind(a, name, &p, &n, &jpeg);
	if (err)
		return err;
	why = image_stb_info(a, p, n, &w, &h, &file_c);
	if (why)
		return cannot_decode(name, p, n, why);
	if (h < 0 && image_is_bmp(p, n))
		h = -h; /* not below -DN_IMAGE_MAX_SIDE: checked */
	err = image_check_size(name, w, h);
	if (!err)
		err = image_check(name, p, n, w, h, &jpeg);
	if (err)
		return err;
	if (jpeg.no_end) {
		err = image_decode_endless(a, p, n, name, (int)c, &pixels, &w, &h);
		if (err)
			return err;
		a->no_end = true;
	} else {
		why = image_stb_decode(a, p, n, (int)c, &pixels, &w, &h);
		if (why)
			return cannot_decode(name, p, n, why);
	}
	*out = dn_view_bytes(pixels, w, h, c);
	return 0;
}

int image_decode(struct image_arena *a, const char *path, const char *name, int64_t c, struct dn_view *out)
{
	unsigned char *p = NULL;
	size_t n = 0;
	int err = image_arena_reset(a);

	if (!err)
		err = read_file(a, path, name, &p, &n);
	if (!err)
		err = image_decode_bytes(a, p, n, name, c, out);
	return err;
}

/* A file that nobody's list names */
static int decode_one(struct image_arena *a, const char *path, int64_t c, struct dn_view *out)
{
	char name[IMAGE_NAME_BYTES];
	int err = image_arena_init(a, IMAGE_ARENA_ONCE);

	image_name(name, path, NULL, 0);
	if (!err)
		err = image_decode(a, path, name, c, out);
	if (!err && a->no_end)
		dn_warn("%s: " IMAGE_NO_END, name);
	return err;
}

int dn_image_read(struct dn_image *out, const char *path, int64_t c)
{
	struct image_arena a = { 0 };
	struct dn_view v = { 0 };
	float *x = NULL;
	size_t bytes = 0;
	int err = decode_one(&a, path, c, &v);

	if (!err)
		err = dn_mul_size((size_t)(v.w * v.h), (size_t)c * sizeof(*x), &bytes);
	if (!err) {
		x = dn_alloc(bytes);
		err = x ? 0 : -ENOMEM;
	}
	if (!err) {
		dn_image_crop(&v, 0, 0, x, v.w, v.h);
		*out = (struct dn_image){ v.w, v.h, c, x };
	}
	image_arena_fini(&a);
	return err;
}

void dn_image_fini(struct dn_image *im)
{
	dn_free(im->x);
	*im = (struct dn_image){ 0 };
}

int dn_image_read_fit(const char *path, enum dn_fit fit, float *out, int64_t w, int64_t h, int64_t c)
{
	struct image_arena a = { 0 };
	struct dn_view v = { 0 };
	int err = decode_one(&a, path, c, &v);

	if (!err)
		dn_image_fit(&v, fit, out, w, h);
	image_arena_fini(&a);
	return err;
}

/* --- writing --- */

static void put32(unsigned char *p, uint32_t x)
{
	p[0] = (unsigned char)(x >> 24);
	p[1] = (unsigned char)(x >> 16);
	p[2] = (unsigned char)(x >> 8);
	p[3] = (unsigned char)x;
}

static int put_part(struct dn_out *o, const char *name, const unsigned char *p, size_t n)
{
	unsigned char head[8], tail[4];
	uLong crc = crc32(0, (const unsigned char *)name, 4);
	int err;

	put32(head, (uint32_t)n);
	memcpy(head + 4, name, 4);
	if (n)
		crc = crc32(crc, p, (uInt)n);
	put32(tail, (uint32_t)crc);
	err = dn_out_write(o, head, sizeof(head));
	if (!err && n)
		err = dn_out_write(o, p, n);
	return err ? err : dn_out_write(o, tail, sizeof(tail));
}

/* Rows with their filter byte in front, 0 = none, packed. */
static int pack_rows(const unsigned char *p, int64_t w, int64_t h, int64_t c, unsigned char **out, size_t *n)
{
	size_t row = (size_t)(w * c), raw_bytes = (row + 1) * (size_t)h;
	uLongf packed = compressBound(raw_bytes);
	unsigned char *raw = dn_alloc(raw_bytes), *to = dn_alloc(packed);
	int err = raw && to ? 0 : -ENOMEM;

	for (int64_t y = 0; y < h && !err; y++) {
		raw[(size_t)y * (row + 1)] = 0;
		memcpy(raw + (size_t)y * (row + 1) + 1, p + (size_t)y * row, row);
	}
	if (!err && compress2(to, &packed, raw, raw_bytes, 6) != Z_OK)
		err = dn_fail(-ENOMEM, "data: zlib found no memory to pack an image");
	dn_free(raw);
	if (err) {
		dn_free(to);
		return err;
	}
	*out = to;
	*n = packed;
	return 0;
}

int dn_png_write(const char *path, const unsigned char *p, int64_t w, int64_t h, int64_t c)
{
	unsigned char head[13], *packed = NULL;
	struct dn_out o = { 0 };
	size_t n = 0;
	int err;

	if (w < 1 || h < 1 || w > DN_IMAGE_MAX_SIDE || h > DN_IMAGE_MAX_SIDE || w * h > 4 * DN_IMAGE_MAX_PIXELS)
		return dn_fail(-EINVAL, DATA_PATH ": an image of %lld x %lld pixels is not written", path, (long long)w,
			       (long long)h);
	if (c != 1 && c != 3)
		return dn_fail(-ENOTSUP, DATA_PATH ": an image of %lld channels is not written, 1 and 3 are", path, (long long)c);
	err = pack_rows(p, w, h, c, &packed, &n);
	if (err)
		return err;
	put32(head, (uint32_t)w);
	put32(head + 4, (uint32_t)h);
	head[8] = 8;			    /* bits */
	head[9] = c == 3 ? 2 : 0;	    /* colour or grey */
	head[10] = head[11] = head[12] = 0; /* deflate, the five filters, not interlaced */
	err = dn_out_open(&o, path);
	if (!err)
		err = dn_out_write(&o, "\x89PNG\r\n\x1a\n", 8);
	if (!err)
		err = put_part(&o, "IHDR", head, sizeof(head));
	if (!err)
		err = put_part(&o, "IDAT", packed, n);
	if (!err)
		err = put_part(&o, "IEND", NULL, 0);
	if (!err)
		err = dn_out_commit(&o);
	else
		dn_out_abort(&o);
	dn_free(packed);
	return err;
}

static unsigned char byte_of(float x)
{
	return x > 0 ? x < 1 ? (unsigned char)lrintf(255 * x) : 255 : 0; /* NaN is 0 */
}

int dn_sheet_write(const char *path, const float *x, int64_t n, int64_t w, int64_t h, int64_t c, int64_t columns)
{
	int64_t rows, sw, sh;
	unsigned char *p;
	int err;

	if (n < 1 || columns < 1 || w < 1 || h < 1 || (c != 1 && c != 3) || w > DN_IMAGE_MAX_SIDE || h > DN_IMAGE_MAX_SIDE ||
	    n > DN_IMAGE_MAX_PIXELS)
		return dn_fail(-EINVAL, DATA_PATH ": a sheet of %lld images of %lld x %lld x %lld, %lld in a row", path,
			       (long long)n, (long long)w, (long long)h, (long long)c, (long long)columns);
	columns = columns < n ? columns : n;
	rows = (n + columns - 1) / columns;
	sw = columns * (w + 1) - 1;
	sh = rows * (h + 1) - 1;
	if (sw > DN_IMAGE_MAX_SIDE || sh > DN_IMAGE_MAX_SIDE || sw * sh > DN_IMAGE_MAX_PIXELS)
		return dn_fail(-EINVAL, DATA_PATH ": a sheet of %lld x %lld pixels is too large", path, (long long)sw,
			       (long long)sh);
	p = dn_alloc((size_t)(sw * sh * c));
	if (!p)
		return -ENOMEM;
	memset(p, 128, (size_t)(sw * sh * c));
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; k < c; k++)
			for (int64_t y = 0; y < h; y++)
				for (int64_t at = 0; at < w; at++)
					p[((i / columns * (h + 1) + y) * sw + i % columns * (w + 1) + at) * c + k] =
						byte_of(x[((i * c + k) * h + y) * w + at]);
	err = dn_png_write(path, p, sw, sh, c);
	dn_free(p);
	return err;
}
