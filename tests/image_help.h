/* Image files made by another encoder than ours, for the suites of images and of lists. */
#ifndef DN_TESTS_IMAGE_HELP_H
#define DN_TESTS_IMAGE_HELP_H
#include "data_help.h"

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wattributes"
/* its JPEG packer shifts bits out at the top */
#define static static __attribute__((no_sanitize("undefined")))
#include <stb/stb_image_write.h>
#undef static

/* Colours that change slowly and differently over x, y and channel; @seed moves them. */
static inline void paint(unsigned char *p, int w, int h, int c, int seed)
{
	for (int y = 0; y < h; y++)
		for (int x = 0; x < w; x++)
			for (int k = 0; k < c; k++)
				p[(y * w + x) * c + k] =
					(unsigned char)(128 + 100 * sin(.07 * x * (k + 1) + .11 * y * (3 - k) + .9 * seed));
}

static inline const char *put_jpeg(const char *name, int w, int h, int c, int seed, int quality)
{
	unsigned char *p = malloc((size_t)(w * h * c));
	const char *path = in_folder(name);

	paint(p, w, h, c, seed);
	CU_ASSERT_FATAL(stbi_write_jpg(path, w, h, c, p, quality) != 0);
	free(p);
	return path;
}

static inline void png_part(unsigned char *out, size_t *at, const char *name, const void *p, size_t n)
{
	uLong crc;

	for (int i = 0; i < 4; i++)
		out[(*at)++] = (unsigned char)(n >> (24 - 8 * i));
	memcpy(out + *at, name, 4);
	if (n)
		memcpy(out + *at + 4, p, n);
	crc = crc32(0, out + *at, (uInt)(n + 4));
	*at += n + 4;
	for (int i = 0; i < 4; i++)
		out[(*at)++] = (unsigned char)(crc >> (24 - 8 * i));
}

/* A PNG with any header: @rows are @n bytes with their filter bytes. At most 60,000 bytes; its size. */
static inline size_t png_bytes(unsigned char *out, uint32_t w, uint32_t h, int bits, int type, const unsigned char *palette,
			       int colours, const unsigned char *rows, size_t n)
{
	unsigned char head[13] = { (unsigned char)(w >> 24), (unsigned char)(w >> 16), (unsigned char)(w >> 8), (unsigned char)w,
				   (unsigned char)(h >> 24), (unsigned char)(h >> 16), (unsigned char)(h >> 8), (unsigned char)h,
				   (unsigned char)bits,	     (unsigned char)type };
	unsigned char packed[60000];
	uLongf packed_bytes = sizeof(packed);
	size_t at = 8;

	memcpy(out, "\x89PNG\r\n\x1a\n", 8);
	png_part(out, &at, "IHDR", head, 13);
	if (colours)
		png_part(out, &at, "PLTE", palette, 3 * (size_t)colours);
	CU_ASSERT_EQUAL_FATAL(compress(packed, &packed_bytes, rows, n), Z_OK);
	png_part(out, &at, "IDAT", packed, packed_bytes);
	png_part(out, &at, "IEND", NULL, 0);
	return at;
}

#endif
