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

static int64_t le(const unsigned char *p, int bytes)
{
	int64_t x = 0;

	while (bytes--)
		x = x << 8 | p[bytes];
	return x;
}

/* Bytes that a PPM or PGM of these sizes has, with its header: three numbers, blanks and comments between. */
static int64_t pnm_bytes(const unsigned char *p, size_t n, int64_t values)
{
	int64_t number = 0;
	size_t at = 2;

	for (int k = 0; k < 3; k++) {
		while (at < n && strchr(" \t\r\n\v\f#", p[at]) && p[at]) {
			bool comment = p[at++] == '#';

			while (comment && at < n && p[at] != '\n' && p[at] != '\r')
				at++;
		}
		for (number = 0; at < n && p[at] >= '0' && p[at] <= '9' && number < 100000; at++)
			number = 10 * number + p[at] - '0';
	}
	return (int64_t)at + 1 + values * (number > 255 ? 2 : 1);
}

static int64_t tga_bytes(const unsigned char *p, size_t n, int64_t pixels)
{
	int64_t map;

	if (n < 18 || p[2] >= 8)                /* run lengths */
		return 18;
	map = p[1] ? le(p + 5, 2) * ((p[7] + 7) / 8) : 0;
	return 18 + p[0] + map + pixels * ((p[16] + 7) / 8);
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
static int check_jpeg(const char *path, const unsigned char *p, size_t n)
{
	size_t at = 2;
	int m;

	while ((m = next_marker(p, n, &at)) != 0xd9) {
		size_t bytes;

		if (!m)
			return dn_fail(-EINVAL, DATA_PATH ": the JPEG has no end: cut off after %zu bytes?", path, n);
		if (m == 0x01 || m == 0xd8)
			continue;               /* stand alone */
		bytes = at + 2 <= n ? (size_t)p[at] << 8 | p[at + 1] : 0;
		if (bytes < 2 || bytes > n - at)
			return dn_fail(-EINVAL, DATA_PATH ": the JPEG's part %02x at byte %zu has %zu bytes, which do not fit", path,
				       (unsigned)m, at, bytes);
		if (m == 0xc4 && !tables_fit(p + at + 2, bytes - 2))
			return dn_fail(-EINVAL, DATA_PATH ": the JPEG's code tables at byte %zu are damaged", path, at);
		at += bytes;
	}
	return 0;
}

int image_check(const char *path, const unsigned char *p, size_t n, int w, int h)
{
	int64_t pixels = (int64_t)w * h, need = 0;

	if (image_is_png(p, n))                       /* deflate packs 1032 to 1, and a pixel has at least a bit */
		need = pixels / (8 * 1032);
	else if (image_is_jpeg(p, n))   /* a progressive one can have a bit for 512 pixels */
		need = pixels / (8 * 512);
	else if (image_starts(p, n, "P5", 2) || image_starts(p, n, "P6", 2))
		need = pnm_bytes(p, n, pixels * (p[1] == '6' ? 3 : 1));
	else if (image_starts(p, n, "BM", 2))
		need = bmp_bytes(p, n, w, h);
	else
		need = tga_bytes(p, n, pixels);
	if (need > (int64_t)n)
		return dn_fail(-EINVAL, DATA_PATH ": says that it has %d x %d pixels, for which its %zu bytes are too few", path, w, h,
			       n);
	return image_is_jpeg(p, n) ? check_jpeg(path, p, n) : 0;
}
