/* PNG files: the walk from part to part that the decoder makes, with sentences for what it refuses. */
#include <errno.h>
#include <string.h>

#include "data/array_priv.h"
#include "data/image_priv.h"

#define SIGNATURE 8
#define PART_HEAD 8 /* length and name */

static int64_t be32(const unsigned char *p)
{
	return (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

/* A part's name as text of four letters */
static const char *name_of(const unsigned char *p, char out[5])
{
	for (int i = 0; i < 4; i++)
		out[i] = p[i] > 32 && p[i] < 127 ? (char)p[i] : '?';
	out[4] = '\0';
	return out;
}

static bool is(const unsigned char *part, const char *name)
{
	return !memcmp(part + 4, name, 4);
}

static int check_first(const char *path, const unsigned char *p, size_t n)
{
	const unsigned char *part = p + SIGNATURE;
	char name[5];

	if (n < SIGNATURE + PART_HEAD)
		return dn_fail(-EINVAL, DATA_PATH ": the image cannot be decoded: a PNG of %zu bytes", path, n);
	if (!is(part, "IHDR"))
		return dn_fail(-EINVAL, DATA_PATH ": the image cannot be decoded: a PNG whose first part is %s, not IHDR%s", path,
			       name_of(part + 4, name),
			       is(part, "CgBI")
				       ? ": made for iPhones by Xcode, with other colours; pngcrush -revert-iphone-optimizations "
					 "makes it a PNG"
				       : "");
	if (be32(part) != 13 || n < SIGNATURE + PART_HEAD + 13)
		return dn_fail(-EINVAL, DATA_PATH ": the image cannot be decoded: a PNG whose IHDR has %lld bytes, not 13", path,
			       (long long)be32(part));
	return image_check_size(path, be32(part + 8), be32(part + 12));
}

/* What deflate can have packed 1032 to 1. */
static int64_t least_bytes(const unsigned char *p)
{
	static const unsigned char channels[7] = { 1, 0, 3, 1, 2, 0, 4 };
	int64_t w = be32(p + 16), h = be32(p + 20), bits = p[25] < 7 ? (int64_t)p[24] * channels[p[25]] : 1;

	return h * (1 + (w * bits + 7) / 8) / 1032;
}

/* Colours that a palette lacks are whatever the decoder finds in its memory: it gets black ones. */
static int fill_palette(struct image_arena *a, const char *path, const unsigned char **p, size_t *n, size_t at)
{
	enum { FULL = 3 * 256 };
	size_t has = (size_t)be32(*p + at);
	unsigned char *to;

	if ((*p)[25] != 3 || (*p)[24] > 8 || has >= FULL || has / 3 >= (size_t)1 << (*p)[24] || has % 3)
		return 0;
	to = image_arena_get(a, *n + FULL - has);
	if (!to)
		return dn_fail(-ENOMEM, DATA_PATH ": no memory for its %zu bytes", path, *n);
	memcpy(to, *p, at + PART_HEAD + has);
	to[at + 2] = FULL >> 8;
	to[at + 3] = FULL & 255;
	memset(to + at + PART_HEAD + has, 0, FULL - has);
	memcpy(to + at + PART_HEAD + FULL, *p + at + PART_HEAD + has, *n - at - PART_HEAD - has);
	*p = to;
	*n += FULL - has;
	return 0;
}

int image_check_png(struct image_arena *a, const char *path, const unsigned char **p, size_t *n)
{
	size_t at = SIGNATURE, palette = 0;
	char name[5];
	int err = check_first(path, *p, *n);

	if (err)
		return err;
	while (at + PART_HEAD <= *n && !is(*p + at, "IEND")) {
		const unsigned char *part = *p + at;
		size_t bytes = (size_t)be32(part);

		/* a capital says that nobody may pass over it */
		if (!(part[4] & 32) && !is(part, "IHDR") && !is(part, "PLTE") && !is(part, "IDAT"))
			return dn_fail(-EINVAL,
				       DATA_PATH ": the image cannot be decoded: the PNG's part %s at byte %zu is not known",
				       path, name_of(part + 4, name), at);
		if (bytes > *n - at - PART_HEAD)
			break;
		if (is(part, "PLTE"))
			palette = at;
		at += PART_HEAD + bytes + 4;
	}
	if (at + PART_HEAD > *n || !is(*p + at, "IEND"))
		return dn_fail(-EINVAL, DATA_PATH ": the PNG has no end: cut off after %zu bytes?", path, *n);
	if (least_bytes(*p) > (int64_t)*n)
		return dn_fail(-EINVAL, DATA_PATH ": says that it has %lld x %lld pixels, for which its %zu bytes are too few",
			       path, (long long)be32(*p + 16), (long long)be32(*p + 20), *n);
	return palette ? fill_palette(a, path, p, n, palette) : 0;
}
