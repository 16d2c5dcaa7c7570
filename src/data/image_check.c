/* What an image file must hold for the size that its header promises. The decoder fills in what is missing, silently, and
 * takes memory for any promise: so this comes first.
 */
#include <errno.h>
#include <string.h>

#include "data/array_priv.h"
#include "data/image_priv.h"

bool image_starts(const unsigned char *p, size_t n, const char *with, size_t k)
{
	return n >= k && !memcmp(p, with, k);
}

bool image_is_png(const unsigned char *p, size_t n)
{
	return image_starts(p, n, "\x89PNG\r\n\x1a\n", 8);
}

bool image_is_jpeg(const unsigned char *p, size_t n)
{
	return image_starts(p, n, "\xff\xd8", 2);
}

int image_check_size(const char *path, int64_t w, int64_t h)
{
	if (w < 1 || h < 1 || w > DN_IMAGE_MAX_SIDE || h > DN_IMAGE_MAX_SIDE || w * h > DN_IMAGE_MAX_PIXELS)
		return dn_fail(-EFBIG,
			       DATA_PATH ": an image of %lld x %lld pixels; read are sides of 1 to %d, at most %lld pixels", path,
			       (long long)w, (long long)h, DN_IMAGE_MAX_SIDE, (long long)DN_IMAGE_MAX_PIXELS);
	return 0;
}

static int64_t le(const unsigned char *p, int bytes)
{
	int64_t x = 0;

	while (bytes--)
		x = x << 8 | p[bytes];
	return x;
}

static int64_t tga_bytes(const unsigned char *p, size_t n, int64_t pixels)
{
	int64_t pixel, head;

	if (n < 18)
		return 18;
	pixel = (p[16] + 7) / 8;
	head = 18 + p[0] + (p[1] ? le(p + 5, 2) * ((p[7] + 7) / 8) : 0);
	/* run lengths: a pixel and a byte for 128 of them at most */
	return head + (p[2] < 8 ? pixels * pixel : (pixels + 127) / 128 * (1 + pixel));
}

static int64_t bmp_bytes(const unsigned char *p, size_t n, int w, int h)
{
	int64_t bits;

	if (n < 30)
		return 30;
	bits = le(p + (le(p + 14, 4) == 12 ? 24 : 28), 2);
	return le(p + 10, 4) + ((bits * w + 31) / 32 * 4 * (h - 1)) + (bits * w + 7) / 8;
}

/* --- JPEG: a walk from marker to marker, as every decoder does --- */

/* The next marker from *at on, which then stands behind it; 0 at the end. Packed data has a 0 after each 255, or marks of
 * places to start again (d0 to d7), which belong to it. */
static int next_marker(const unsigned char *p, size_t n, size_t *at)
{
	while (*at + 1 < n) {
		int m = p[*at + 1];

		(*at)++;
		if (p[*at - 1] != 0xff || !m || m == 0xff || (m >= 0xd0 && m <= 0xd7))
			continue;
		(*at)++;
		return m;
	}
	return 0;
}

/* Code tables: a kind and number, 16 counts of codes, and a value for each, of which there are 256. */
static bool tables_fit(const unsigned char *p, size_t n)
{
	while (n) {
		size_t codes = 0;

		if (n < 17)
			return false;
		for (int i = 1; i <= 16; i++)
			codes += p[i];
		if (codes > 256 || codes + 17 > n)
			return false;
		p += 17 + codes;
		n -= 17 + codes;
	}
	return true;
}

/* The decoder trusts the counts of codes, and says little about a file that ends too soon. */
int image_check_jpeg(const char *path, const unsigned char *p, size_t n)
{
	size_t at = 2;
	int m;

	while ((m = next_marker(p, n, &at)) != 0xd9) {
		size_t bytes;

		if (!m)
			return dn_fail(-EINVAL, DATA_PATH ": the JPEG has no end: cut off after %zu bytes?", path, n);
		if (m == 0x01 || m == 0xd8)
			continue; /* stand alone */
		bytes = at + 2 <= n ? (size_t)p[at] << 8 | p[at + 1] : 0;
		if (bytes < 2 || bytes > n - at)
			return dn_fail(-EINVAL, DATA_PATH ": the JPEG's part %02x at byte %zu has %zu bytes, which do not fit",
				       path, (unsigned)m, at, bytes);
		if (m == 0xc4 && !tables_fit(p + at + 2, bytes - 2))
			return dn_fail(-EINVAL, DATA_PATH ": the JPEG's code tables at byte %zu are damaged", path, at);
		at += bytes;
	}
	return 0;
}

static bool is_progressive(const unsigned char *p, size_t n)
{
	size_t at = 2;
	int m;

	while ((m = next_marker(p, n, &at)) && m != 0xd9 && at + 2 <= n) {
		if (m == 0xc2)
			return true;
		if (m != 0x01 && m != 0xd8)
			at += (size_t)p[at] << 8 | p[at + 1];
	}
	return false;
}

/* What deflate can have packed 1032 to 1. */
static int64_t png_bytes(const unsigned char *p, size_t n, int64_t w, int64_t h)
{
	static const unsigned char channels[7] = { 1, 0, 3, 1, 2, 0, 4 };
	int64_t bits = n > 25 && p[25] < 7 ? (int64_t)p[24] * channels[p[25]] : 1;

	return h * (1 + (w * bits + 7) / 8) / 1032;
}

int image_check(const char *path, const unsigned char *p, size_t n, int w, int h)
{
	int64_t pixels = (int64_t)w * h, need = 0;

	if (image_is_png(p, n))
		need = png_bytes(p, n, w, h);
	else if (image_is_jpeg(p, n)) /* a block of 64 pixels has two bits, a progressive one can do with one */
		need = pixels / (is_progressive(p, n) ? 512 : 256);
	else if (image_starts(p, n, "BM", 2))
		need = bmp_bytes(p, n, w, h);
	else
		need = tga_bytes(p, n, pixels);
	if (need > (int64_t)n)
		return dn_fail(-EINVAL, DATA_PATH ": says that it has %d x %d pixels, for which its %zu bytes are too few", path,
			       w, h, n);
	return 0;
}
