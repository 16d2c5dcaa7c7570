/* BMP files: what their header promises, and the forms that the decoder misreads turned into one that it reads. */
#include <errno.h>
#include <string.h>

#include "data/array_priv.h"
#include "data/image_priv.h"

#define FILE_HEAD 14
#define CORE_HEAD 12 /* OS/2: 16-bit sides, palette entries of 3 bytes */
#define PLAIN_HEAD 40
#define COLOURS 256

struct bmp {
	int64_t head, pixels_at, w, h, bits, packing; /* packing 0: none, 3: with masks */
	bool core;
};

static int64_t le(const unsigned char *p, int bytes)
{
	int64_t x = 0;

	while (bytes--)
		x = x << 8 | p[bytes];
	return x;
}

static void put_le(unsigned char *p, int64_t x, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (unsigned char)(x >> 8 * i);
}

static int parse(struct bmp *b, const char *path, const unsigned char *p, size_t n)
{
	b->head = n >= FILE_HEAD + 4 ? le(p + FILE_HEAD, 4) : 0;
	b->core = b->head == CORE_HEAD;
	if (n < FILE_HEAD + CORE_HEAD || (int64_t)n < FILE_HEAD + b->head)
		return dn_fail(-EINVAL, DATA_PATH ": the image cannot be decoded: a BMP that ends inside its header", path);
	if (!b->core && b->head != PLAIN_HEAD && b->head != 56 && b->head != 108 && b->head != 124)
		return dn_fail(-EINVAL,
			       DATA_PATH
			       ": the image cannot be decoded: a BMP whose header has %lld bytes; read are those of 12, "
			       "40, 56, 108 and 124",
			       path, (long long)b->head);
	b->pixels_at = le(p + 10, 4);
	b->w = b->core ? le(p + 18, 2) : (int32_t)le(p + 18, 4);
	b->h = b->core ? le(p + 20, 2) : (int32_t)le(p + 22, 4);
	if (b->h < 0) /* the first row is on top */
		b->h = -b->h;
	b->bits = le(p + (b->core ? 24 : 28), 2);
	b->packing = b->core ? 0 : le(p + 30, 4);
	if (b->packing == 1 || b->packing == 2)
		return dn_fail(-EINVAL, DATA_PATH ": the image cannot be decoded: a BMP in run lengths (RLE), which are not read",
			       path);
	return image_check_size(path, b->w, b->h);
}

int image_check_bmp(struct image_arena *a, const char *path, const unsigned char **p, size_t *n)
{
	struct bmp b = { 0 };
	int64_t entry, colours = 0, skip, masks, rows;
	unsigned char *to;
	int err = parse(&b, path, *p, *n);

	if (err)
		return err;
	masks = b.packing == 3 && b.head == PLAIN_HEAD ? 12 : 0; /* behind a plain header, inside a longer one */
	skip = b.pixels_at - FILE_HEAD - b.head - masks;
	rows = (b.bits * b.w + 31) / 32 * 4 * (b.h - 1) + (b.bits * b.w + 7) / 8; /* the last may lack what fills it up */
	if (skip < 0)
		return dn_fail(-EINVAL,
			       DATA_PATH
			       ": the image cannot be decoded: a BMP whose pixels start at byte %lld, inside its header",
			       path, (long long)b.pixels_at);
	if (b.pixels_at + rows > (int64_t)*n)
		return dn_fail(-EINVAL, DATA_PATH ": says that it has %lld x %lld pixels, for which its %zu bytes are too few",
			       path, (long long)b.w, (long long)b.h, *n);
	if (b.bits == 1 || b.bits == 4 || b.bits == 8) {
		entry = b.core ? 3 : 4;
		colours = skip / entry < 1 << b.bits ? skip / entry : 1 << b.bits;
		if (!colours)
			return dn_fail(-EINVAL,
				       DATA_PATH ": the image cannot be decoded: a BMP of %lld bits a pixel without a palette",
				       path, (long long)b.bits);
	} else if ((!skip && b.head != 56) || (b.packing && b.packing != 3) || (b.bits != 16 && b.bits != 24 && b.bits != 32)) {
		return 0;
	}
	/* The decoder counts an OS/2 palette wrongly, leaves entries that are not there to chance, wants no gap before the pixels
	 * and the masks behind a header of 40 bytes. Here they are so. */
	masks = b.packing == 3 ? 12 : 0;
	skip = FILE_HEAD + PLAIN_HEAD + masks + (colours ? 4 * COLOURS : 0);
	rows = (int64_t)*n - b.pixels_at;
	to = image_arena_get(a, (size_t)(skip + rows));
	if (!to)
		return dn_fail(-ENOMEM, DATA_PATH ": no memory for its %zu bytes", path, *n);
	memset(to, 0, (size_t)skip);
	memcpy(to, "BM", 2);
	put_le(to + 10, skip, 4);
	put_le(to + 14, PLAIN_HEAD, 4);
	put_le(to + 18, b.w, 4);
	memcpy(to + 22, *p + (b.core ? 20 : 22), b.core ? 2 : 4);
	memcpy(to + 26, *p + (b.core ? 22 : 26), 4); /* planes, bits */
	put_le(to + 30, b.packing, 4);
	memcpy(to + FILE_HEAD + PLAIN_HEAD, *p + FILE_HEAD + PLAIN_HEAD, (size_t)masks);
	for (int64_t i = 0; i < colours; i++)
		memcpy(to + FILE_HEAD + PLAIN_HEAD + 4 * i, *p + FILE_HEAD + b.head + entry * i, 3);
	memcpy(to + skip, *p + b.pixels_at, (size_t)rows);
	*p = to;
	*n = (size_t)(skip + rows);
	return 0;
}
