/* What an image file must hold for the size that its header promises. The decoder fills in what is missing, silently, and
 * takes memory for any promise: so this comes first. It reads a header as the decoder does, neither more narrowly nor more widely.
 */
#include <errno.h>
#include <string.h>

#include "data/array_priv.h"
#include "data/image_priv.h"

static bool starts(const unsigned char *p, size_t n, const char *with, size_t k)
{
	return n >= k && !memcmp(p, with, k);
}

bool image_is_png(const unsigned char *p, size_t n)
{
	return starts(p, n, "\x89PNG\r\n\x1a\n", 8);
}

bool image_is_jpeg(const unsigned char *p, size_t n)
{
	return starts(p, n, "\xff\xd8", 2);
}

bool image_is_bmp(const unsigned char *p, size_t n)
{
	return starts(p, n, "BM", 2);
}

int image_check_size(const char *path, int64_t w, int64_t h)
{
	if (w < 1 || h < 1 || w > DN_IMAGE_MAX_SIDE || h > DN_IMAGE_MAX_SIDE || w * h > DN_IMAGE_MAX_PIXELS)
		return dn_fail(-EFBIG,
			       DATA_PATH ": an image of %lld x %lld pixels; read are sides of 1 to %d, at most %lld pixels", path,
			       (long long)w, (long long)h, DN_IMAGE_MAX_SIDE, (long long)DN_IMAGE_MAX_PIXELS);
	return 0;
}

static int64_t le16(const unsigned char *p)
{
	return p[1] << 8 | p[0];
}

/* Run lengths from *at on: a count, and one pixel that is repeated or as many as it says. */
static bool runs_fit(const unsigned char *p, size_t n, size_t at, int64_t pixels, size_t pixel)
{
	while (pixels > 0 && at < n) {
		int64_t count = 1 + (p[at] & 127);
		size_t bytes;

		count = count < pixels ? count : pixels; /* the last one may say more */
		bytes = p[at] & 128 ? pixel : (size_t)count * pixel;
		if (bytes > n - at - 1)
			return false;
		at += 1 + bytes;
		pixels -= count;
	}
	return pixels <= 0;
}

static int check_tga(const char *path, const unsigned char *p, size_t n, int64_t pixels)
{
	size_t pixel, head;
	bool packed, fits;

	if (n < 18)
		return dn_fail(-EINVAL, DATA_PATH ": the image cannot be decoded: a TGA that ends inside its header", path);
	if (p[1] && le16(p + 3))
		return dn_fail(-EINVAL,
			       DATA_PATH ": the image cannot be decoded: a TGA whose palette starts with colour %lld; read are "
					 "those that start with 0",
			       path, (long long)le16(p + 3));
	pixel = (p[16] + 7u) / 8;
	head = 18u + p[0] + (p[1] ? (size_t)le16(p + 5) * ((p[7] + 7u) / 8) : 0);
	packed = p[2] >= 8;
	fits = packed ? runs_fit(p, n, head, pixels, pixel) : head + (size_t)pixels * pixel <= n;
	if (fits)
		return 0;
	return dn_fail(-EINVAL, DATA_PATH ": says that it has %lld x %lld pixels, for which its %zu bytes are too few", path,
		       (long long)le16(p + 12), (long long)le16(p + 14), n);
}

int image_check(const char *path, const unsigned char *p, size_t n, int w, int h, const struct jpeg_look *jpeg)
{
	int64_t pixels = (int64_t)w * h;

	if (image_is_png(p, n) || image_is_bmp(p, n))
		return 0;
	if (!image_is_jpeg(p, n))
		return check_tga(path, p, n, pixels);
	/* a block of 64 pixels has two bits, a progressive one can do with one */
	if (pixels / (jpeg->progressive ? 512 : 256) > (int64_t)n)
		return dn_fail(-EINVAL, DATA_PATH ": says that it has %d x %d pixels, for which its %zu bytes are too few", path,
			       w, h, n);
	return 0;
}
