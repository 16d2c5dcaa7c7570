/* PPM and PGM images in bytes, P6 and P5: three numbers with blanks and comments between, then the values. */
#include <errno.h>
#include <string.h>

#include "data/array_priv.h"
#include "data/image_priv.h"

bool image_is_pnm(const unsigned char *p, size_t n)
{
	return n >= 3 && p[0] == 'P' && (p[1] == '5' || p[1] == '6') && p[2] && strchr(" \t\r\n\v\f#", p[2]);
}

/* The next number of the header from *at on, which then stands behind it; -1 = there is none, or it is too large. */
static int64_t next_number(const unsigned char *p, size_t n, size_t *at)
{
	int64_t x = 0;

	while (*at < n && p[*at] && strchr(" \t\r\n\v\f#", p[*at])) {
		bool comment = p[(*at)++] == '#';

		while (comment && *at < n && p[*at] != '\n' && p[*at] != '\r')
			(*at)++;
	}
	if (*at >= n || p[*at] < '0' || p[*at] > '9')
		return -1;
	for (; *at < n && p[*at] >= '0' && p[*at] <= '9'; (*at)++) {
		x = 10 * x + p[*at] - '0';
		if (x > INT32_MAX)
			return -1;
	}
	return x;
}

/* Value @i of 0 to @most as a byte. */
static unsigned value(const unsigned char *p, int64_t i, int64_t most)
{
	unsigned x = most > 255 ? (unsigned)p[2 * i] << 8 | p[2 * i + 1] : p[i];

	if (most == 255)
		return x;
	if (most == 65535)
		return x >> 8; /* as 16 bits of a PNG */
	return x >= most ? 255 : (unsigned)((x * 255 + most / 2) / most);
}

/* As the decoder of the other kinds weighs red, green and blue. */
static unsigned char grey(unsigned r, unsigned g, unsigned b)
{
	return (unsigned char)((r * 77 + g * 150 + b * 29) >> 8);
}

int image_decode_pnm(struct image_arena *a, const unsigned char *p, size_t n, const char *path, int64_t c, struct dn_view *out)
{
	int64_t file_c = p[1] == '6' ? 3 : 1, w, h, most;
	unsigned char *to;
	size_t at = 2;
	int err;

	w = next_number(p, n, &at);
	h = next_number(p, n, &at);
	most = next_number(p, n, &at);
	if (w < 0 || h < 0 || most < 1 || most > 65535)
		return dn_fail(-EINVAL,
			       DATA_PATH ": the image cannot be decoded: its header has no width, height and largest value of 1 "
					 "to 65535",
			       path);
	err = image_check_size(path, w, h);
	if (err)
		return err;
	/* one blank, or a comment, which the end of its line ends */
	if (at < n && p[at] == '#')
		while (at < n && p[at] != '\n' && p[at] != '\r')
			at++;
	if (at < n && (!p[at] || !strchr(" \t\r\n\v\f", p[at])))
		return dn_fail(-EINVAL, DATA_PATH ": the image cannot be decoded: no blank follows the largest value, %lld", path,
			       (long long)most);
	at++;
	if (at > n || (int64_t)(n - at) < w * h * file_c * (most > 255 ? 2 : 1))
		return dn_fail(-EINVAL, DATA_PATH ": says that it has %lld x %lld pixels, for which its %zu bytes are too few",
			       path, (long long)w, (long long)h, n);
	to = image_arena_get(a, (size_t)(w * h * c));
	if (!to)
		return dn_fail(-ENOMEM, DATA_PATH ": no memory for %lld x %lld pixels", path, (long long)w, (long long)h);
	p += at;
	for (int64_t i = 0; i < w * h; i++) {
		unsigned v[3];

		for (int64_t k = 0; k < 3; k++)
			v[k] = value(p, file_c == 3 ? 3 * i + k : i, most);
		if (c == 1) {
			to[i] = file_c == 1 ? (unsigned char)v[0] : grey(v[0], v[1], v[2]);
			continue;
		}
		for (int64_t k = 0; k < 3; k++)
			to[3 * i + k] = (unsigned char)v[k];
	}
	*out = dn_view_bytes(to, w, h, c);
	return 0;
}
