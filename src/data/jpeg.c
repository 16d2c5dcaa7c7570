/* A walk through a JPEG from marker to marker, as every decoder does: what would lead the decoder astray, and what it would fill
 * in silently, is found here. */
#include <errno.h>
#include <string.h>

#include "data/array_priv.h"
#include "data/image_priv.h"

#define MOST_CHANNELS 4
#define UNSEEN 255

struct frame { /* what the header says of the picture, and what the scans have brought of it */
	bool known, progressive;
	int64_t w, h;
	int n;
	int id[MOST_CHANNELS], fw[MOST_CHANNELS], fh[MOST_CHANNELS]; /* sampling */
	int most_fw, most_fh;
	int64_t interval;		      /* blocks between two restart markers, 0 = none */
	unsigned char low[MOST_CHANNELS][64]; /* lowest bit of each coefficient that a scan has brought, UNSEEN = none */
};

/* The next marker from *at on, which then stands behind it; 0 at the end. Packed data has a 0 after each 255, or marks of
 * places to start again (d0 to d7), which belong to it and are counted. */
static int next_marker(const unsigned char *p, size_t n, size_t *at, int64_t *restarts)
{
	while (*at + 1 < n) {
		int m = p[*at + 1];

		(*at)++;
		if (p[*at - 1] != 0xff || !m || m == 0xff)
			continue;
		if (m >= 0xd0 && m <= 0xd7) {
			(*restarts)++;
			continue;
		}
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

static int64_t be16(const unsigned char *p)
{
	return p[0] << 8 | p[1];
}

/* @p: behind the marker; what is not as it should be is left to the decoder, which refuses it */
static void read_frame(struct frame *f, const unsigned char *p, size_t n, bool progressive)
{
	if (f->known || n < 8 || p[7] < 1 || p[7] > MOST_CHANNELS || n < 8 + 3 * (size_t)p[7])
		return;
	f->h = be16(p + 3);
	f->w = be16(p + 5);
	f->n = p[7];
	for (int i = 0; i < f->n; i++) {
		f->id[i] = p[8 + 3 * i];
		f->fw[i] = p[9 + 3 * i] >> 4;
		f->fh[i] = p[9 + 3 * i] & 15;
		if (!f->fw[i] || !f->fh[i])
			return;
		f->most_fw = f->fw[i] > f->most_fw ? f->fw[i] : f->most_fw;
		f->most_fh = f->fh[i] > f->most_fh ? f->fh[i] : f->most_fh;
	}
	memset(f->low, UNSEEN, sizeof(f->low));
	f->progressive = progressive;
	f->known = true;
}

static int64_t up(int64_t n, int64_t by)
{
	return (n + by - 1) / by;
}

/* Notes what the scan at @p brings; *blocks: its units between which restart markers may stand */
static void read_scan(struct frame *f, const unsigned char *p, size_t n, int64_t *blocks)
{
	int channels = n > 2 ? p[2] : 0, first = 0, last = 63, low = 0;

	*blocks = 0;
	if (!f->known || channels < 1 || channels > f->n || n < 6 + 2 * (size_t)channels)
		return;
	if (f->progressive) {
		first = p[3 + 2 * channels] & 63;
		last = p[4 + 2 * channels] & 63;
		low = p[5 + 2 * channels] & 15;
	}
	for (int i = 0; i < channels; i++)
		for (int k = 0; k < f->n; k++) {
			if (f->id[k] != p[3 + 2 * i])
				continue;
			for (int c = first; c <= last; c++)
				f->low[k][c] = (unsigned char)low;
			if (channels == 1)
				*blocks = up(up(f->w * f->fw[k], f->most_fw), 8) * up(up(f->h * f->fh[k], f->most_fh), 8);
		}
	if (channels > 1)
		*blocks = up(f->w, 8 * f->most_fw) * up(f->h, 8 * f->most_fh);
}

/* @whole: every bit of every coefficient; else their means alone, as a progressive file may leave the rest out */
static bool has_pixels(const struct frame *f, bool whole, int *channel)
{
	for (*channel = 0; *channel < f->n; (*channel)++)
		for (int c = 0; c < (whole ? 64 : 1); c++)
			if (whole ? f->low[*channel][c] : f->low[*channel][c] == UNSEEN)
				return false;
	return true;
}

static int check_end(const char *path, const struct frame *f, size_t n, struct jpeg_look *out)
{
	int channel = 0;

	if (f->known && !has_pixels(f, out->no_end, &channel)) {
		if (out->no_end)
			return dn_fail(-EINVAL, DATA_PATH ": the JPEG has no end: cut off after %zu bytes?", path, n);
		return dn_fail(-EINVAL, DATA_PATH ": the JPEG has no data of its channel %d of %d", path, channel + 1, f->n);
	}
	if (!f->known && out->no_end)
		return dn_fail(-EINVAL, DATA_PATH ": the JPEG has no end: cut off after %zu bytes?", path, n);
	out->progressive = f->progressive;
	return 0;
}

int image_check_jpeg(const char *path, const unsigned char *p, size_t n, struct jpeg_look *out)
{
	struct frame f = { 0 };
	int64_t restarts = 0, due = 0;
	size_t at = 2, scan = 0;
	int m;

	*out = (struct jpeg_look){ 0 };
	do {
		size_t bytes;
		int64_t blocks;

		m = next_marker(p, n, &at, &restarts);
		if (scan && restarts < due)
			return dn_fail(-EINVAL,
				       DATA_PATH
				       ": the JPEG's data from byte %zu on have %lld restart markers, and %lld are due: "
				       "cut off?",
				       path, scan, (long long)restarts, (long long)due);
		scan = 0;
		restarts = 0;
		if (!m || m == 0xd9 || m == 0x01 || m == 0xd8)
			continue; /* stand alone */
		bytes = at + 2 <= n ? (size_t)be16(p + at) : 0;
		if (bytes < 2 || bytes > n - at)
			return dn_fail(-EINVAL, DATA_PATH ": the JPEG's part %02x at byte %zu has %zu bytes, which do not fit",
				       path, (unsigned)m, at, bytes);
		if (m == 0xc4 && !tables_fit(p + at + 2, bytes - 2))
			return dn_fail(-EINVAL, DATA_PATH ": the JPEG's code tables at byte %zu are damaged", path, at);
		if (m >= 0xc0 && m <= 0xc2)
			read_frame(&f, p + at, bytes, m == 0xc2);
		else if (m == 0xdd && bytes >= 4)
			f.interval = be16(p + at + 2);
		else if (m == 0xda) {
			read_scan(&f, p + at, bytes, &blocks);
			scan = at + bytes;
			due = f.interval && blocks ? (blocks - 1) / f.interval : 0;
		}
		at += bytes;
	} while (m && m != 0xd9);
	out->no_end = !m;
	return check_end(path, &f, n, out);
}

/* The data may end where the pixels do, or before. What the decoder reads behind the end then counts, so pixels that follow from
 * two different continuations are all there. */
int image_decode_endless(struct image_arena *a, const unsigned char *p, size_t n, const char *path, int c, unsigned char **out,
			 int *w, int *h)
{
	enum { TAIL = 64 };
	unsigned char *copy = image_arena_get(a, n + TAIL), *other = NULL;
	const char *why;

	if (!copy)
		return dn_fail(-ENOMEM, DATA_PATH ": no memory for its %zu bytes", path, n);
	memcpy(copy, p, n);
	while (n && copy[n - 1] == 0xff) /* half a marker */
		n--;
	memcpy(copy + n, "\xff\xd9", 2);
	why = image_stb_decode(a, copy, n + 2, c, out, w, h);
	memset(copy + n, 0xaa, TAIL - 2); /* from the first bit on not the zeros that follow an end */
	memcpy(copy + n + TAIL - 2, "\xff\xd9", 2);
	if (!why)
		why = image_stb_decode(a, copy, n + TAIL, c, &other, w, h);
	if (why || memcmp(*out, other, (size_t)*w * (size_t)*h * (size_t)c))
		return dn_fail(-EINVAL, DATA_PATH ": the JPEG has no end: cut off after %zu bytes?", path, n);
	return 0;
}
