/* Room data: forms of image files that few programs write: each is read as it should be, or refused with a sentence; and a file
 * that was cut off is an error or, where nothing is lost, the whole picture. */
#define _GNU_SOURCE
#include "image_help.h"

/* ---- helpers ---- */

static const char *put_and_name(const char *name, const void *p, size_t n, char quoted[400])
{
	const char *path = put(name, p, n);

	snprintf(quoted, 400, "\"%s\": ", path);
	return path;
}

/* The bytes of a file as pixels of @c channels; 0, or the error, with last_warning and n_warnings. */
static int pixels_of(const void *file, size_t n, int c, unsigned char *out, int *w, int *h)
{
	struct dn_image im = { 0 };
	int err;

	n_warnings = 0;
	dn_log_sink(keep_warning, NULL);
	err = dn_image_read(&im, put("f", file, n), c);
	dn_log_sink(NULL, NULL);
	if (err)
		return err;
	*w = (int)im.w;
	*h = (int)im.h;
	for (int k = 0; k < c; k++)
		for (int i = 0; i < *w * *h; i++)
			out[i * c + k] = (unsigned char)lrintf(255 * im.x[k * *w * *h + i]);
	dn_image_fini(&im);
	return 0;
}

static void check_pixels(const void *file, size_t n, int c, int w, int h, const unsigned char *want)
{
	unsigned char got[60000];
	int gw = 0, gh = 0;

	CHECK_OK_FATAL(pixels_of(file, n, c, got, &gw, &gh));
	CHECK_EQ(n_warnings, 0);
	CHECK_EQ(gw, w);
	CHECK_EQ(gh, h);
	CU_ASSERT(!memcmp(got, want, (size_t)(w * h * c)));
}

static void check_refused(const void *file, size_t n, int err, const char *text)
{
	struct dn_image im = { 0 };
	char quoted[400];

	CHECK_FAILS(dn_image_read(&im, put_and_name("f", file, n, quoted), 3), err, text);
	CU_ASSERT(!strncmp(dn_message(), quoted, strlen(quoted)));
	CU_ASSERT_PTR_NULL(im.x);
}

/* ---- a JPEG of flat blocks, in any form ---- */

struct make {
	int w, h, channels;
	int interval; /* blocks between restart markers */
	bool progressive, separate, no_end, no_restarts, extras;
	int fw, fh; /* sampling of the first channel; 0 = 1 */
};

static unsigned char jpeg[60000];
static size_t jpeg_n;
static unsigned bits, n_bits;

static void byte(int x)
{
	jpeg[jpeg_n++] = (unsigned char)x;
}

static void bytes(const char *p, size_t n)
{
	memcpy(jpeg + jpeg_n, p, n);
	jpeg_n += n;
}

static void put_bits(unsigned x, int n)
{
	while (n--) {
		bits = bits << 1 | (x >> n & 1);
		if (++n_bits == 8) {
			byte((int)(bits & 255));
			if ((bits & 255) == 255)
				byte(0);
			n_bits = 0;
		}
	}
}

static void flush_bits(void)
{
	while (n_bits)
		put_bits(1, 1);
}

/* Level of block (@x, @y) of a channel, -127 to 127: no two neighbours alike. */
static int level(int channel, int x, int y)
{
	return (x * 37 + y * 59 + channel * 83) % 200 - 100;
}

/* Category in 4 bits, then the difference; then the end of the block in 1 bit. */
static void put_block(int *before, int value, bool with_end)
{
	int d = value - *before, a = abs(d), size = 0;

	while (a >> size)
		size++;
	put_bits((unsigned)size, 4);
	if (size)
		put_bits((unsigned)(d > 0 ? d : d + (1 << size) - 1), size);
	if (with_end)
		put_bits(0, 1);
	*before = value;
}

static int up_to(int n, int by)
{
	return (n + by - 1) / by;
}

/* One scan: of @channel, or of all for -1; @ac: ends of blocks alone */
static void put_scan(const struct make *m, int channel, bool ac)
{
	int first = channel < 0 ? 0 : channel, n = channel < 0 ? m->channels : 1, before[4] = { 0 }, count = 0, restarts = 0;
	int fw = m->fw ? m->fw : 1, fh = m->fh ? m->fh : 1, bw, bh;

	bytes("\xff\xda", 2);
	byte(0);
	byte(6 + 2 * n);
	byte(n);
	for (int i = 0; i < n; i++) {
		byte(first + i + 1);
		byte(0);
	}
	byte(m->progressive && ac);
	byte(m->progressive && !ac ? 0 : 63);
	byte(0);
	bw = up_to(m->w, 8 * fw);
	bh = up_to(m->h, 8 * fh);
	if (n == 1) {
		bw = first == 0 ? up_to(m->w, 8) : bw;
		bh = first == 0 ? up_to(m->h, 8) : bh;
	}
	for (int y = 0; y < bh; y++)
		for (int x = 0; x < bw; x++) {
			if (m->interval && count && count % m->interval == 0 && !m->no_restarts) {
				flush_bits();
				byte(0xff);
				byte(0xd0 + restarts++ % 8);
				memset(before, 0, sizeof(before));
			}
			count++;
			for (int k = first; k < first + n; k++)
				for (int j = 0; j < (n > 1 && k == 0 ? fw * fh : 1); j++) {
					int bx = n > 1 && k == 0 ? x * fw + j % fw : x,
					    by = n > 1 && k == 0 ? y * fh + j / fw : y;

					if (ac)
						put_bits(0, 1);
					else
						put_block(&before[k], level(k, bx, by), !m->progressive);
				}
		}
	flush_bits();
}

static void make_jpeg(const struct make *m)
{
	jpeg_n = n_bits = 0;
	bytes("\xff\xd8", 2);
	if (m->extras) { /* parts to be passed over, one with a picture's end in it, and bytes that fill up */
		bytes("\xff\xe1\0\x0c"
		      "Exif\0\0\xff\xd8\xff\xd9",
		      14);
		bytes("\xff\xff\xff\xfe\0\x06"
		      "note",
		      10);
	}
	bytes("\xff\xdb\0\x43\0", 5);
	for (int i = 0; i < 64; i++)
		byte(8);
	if (m->interval) {
		bytes("\xff\xdd\0\4", 4);
		byte(m->interval >> 8);
		byte(m->interval & 255);
	}
	byte(0xff);
	byte(m->progressive ? 0xc2 : 0xc0);
	byte(0);
	byte(8 + 3 * m->channels);
	byte(8);
	byte(m->h >> 8);
	byte(m->h & 255);
	byte(m->w >> 8);
	byte(m->w & 255);
	byte(m->channels);
	for (int i = 0; i < m->channels; i++) {
		byte(i + 1);
		byte(i || !m->fw ? 0x11 : m->fw << 4 | m->fh);
		byte(0);
	}
	bytes("\xff\xc4\0\x1f\0\0\0\0\x0c\0\0\0\0\0\0\0\0\0\0\0\0\0\1\2\3\4\5\6\7\x08\x09\x0a\x0b", 33);
	bytes("\xff\xc4\0\x14\x10\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
	for (int k = 0; k < (m->separate ? m->channels : 1); k++)
		put_scan(m, m->separate ? k : -1, false);
	for (int k = 0; k < m->channels && m->progressive; k++)
		put_scan(m, k, true);
	if (!m->no_end)
		bytes("\xff\xd9", 2);
}

/* The first channel, which is what a grey reading of YCbCr gives. */
static void levels(const struct make *m, unsigned char *out)
{
	for (int y = 0; y < m->h; y++)
		for (int x = 0; x < m->w; x++)
			out[y * m->w + x] = (unsigned char)(128 + level(0, x / 8, y / 8));
}

static const struct make forms[] = {
	{ .w = 40, .h = 24, .channels = 1 },
	{ .w = 37, .h = 21, .channels = 3 },
	{ .w = 40, .h = 24, .channels = 3, .fw = 2, .fh = 2 },
	{ .w = 41, .h = 33, .channels = 3, .fw = 2, .fh = 1, .interval = 2 },
	{ .w = 40, .h = 24, .channels = 3, .interval = 5 },
	{ .w = 40, .h = 24, .channels = 3, .interval = 4, .separate = true },
	{ .w = 40, .h = 24, .channels = 3, .separate = true, .extras = true },
	{ .w = 40, .h = 24, .channels = 4 },
	{ .w = 40, .h = 24, .channels = 1, .progressive = true },
	{ .w = 40, .h = 24, .channels = 3, .progressive = true, .interval = 3 },
	{ .w = 40, .h = 24, .channels = 4, .progressive = true, .separate = true, .extras = true },
	{ .w = 8, .h = 8, .channels = 3, .interval = 1 },
};
#define N_FORMS (sizeof(forms) / sizeof(forms[0]))

static void every_form_of_a_jpeg_is_read(void)
{
	unsigned char want[60 * 60];

	for (size_t i = 0; i < N_FORMS; i++) {
		make_jpeg(&forms[i]);
		levels(&forms[i], want);
		check_pixels(jpeg, jpeg_n, 1, forms[i].w, forms[i].h, want);
	}
}

/* Four channels and nobody says which: the first three are taken for YCbCr, as the decoder has it, and the fourth is left. */
static void four_channels_without_a_word_are_read_as_three(void)
{
	struct make m = { .w = 40, .h = 24, .channels = 3 };
	unsigned char three[3 * 40 * 24];
	int w, h;

	make_jpeg(&m);
	CHECK_OK_FATAL(pixels_of(jpeg, jpeg_n, 3, three, &w, &h));
	m.channels = 4;
	make_jpeg(&m);
	check_pixels(jpeg, jpeg_n, 3, 40, 24, three);
}

static void a_jpeg_without_its_end_is_read_with_a_warning(void)
{
	unsigned char want[60 * 60], got[60 * 60];
	char name[400];

	for (size_t i = 0; i < N_FORMS; i++) {
		struct make m = forms[i];
		int w = 0, h = 0;

		m.no_end = true;
		make_jpeg(&m);
		levels(&m, want);
		CHECK_OK_FATAL(pixels_of(jpeg, jpeg_n, 1, got, &w, &h));
		CU_ASSERT(!memcmp(got, want, (size_t)(w * h)));
		CHECK_EQ(n_warnings, 1);
		snprintf(name, sizeof(name), "warning: \"%s\": the JPEG has no end marker", in_folder("f"));
		CU_ASSERT(!strncmp(last_warning, name, strlen(name)));
	}
}

/* At every byte: never a picture that lacks something. */
static void a_jpeg_that_was_cut_is_an_error_or_whole(void)
{
	unsigned char want[3 * 60 * 60], got[3 * 60 * 60];

	for (size_t i = 0; i < N_FORMS; i++) {
		int w = 0, h = 0, whole = 0;

		make_jpeg(&forms[i]);
		CHECK_OK_FATAL(pixels_of(jpeg, jpeg_n, 3, want, &w, &h));
		for (size_t n = jpeg_n - 1; n > 2; n--) {
			if (pixels_of(jpeg, n, 3, got, &w, &h))
				continue;
			whole++;
			CU_ASSERT(!memcmp(got, want, (size_t)(3 * w * h)));
			CHECK_EQ(n_warnings, 1);
		}
		CU_ASSERT(whole >= 2 && whole <= 3); /* the end's two bytes, and bits that only fill up */
	}
}

static void a_jpeg_that_lacks_parts_is_refused(void)
{
	struct make m = { .w = 40, .h = 24, .channels = 3, .interval = 4, .no_restarts = true };

	make_jpeg(&m); /* the decoder would stop at the first, and say nothing */
	check_refused(jpeg, jpeg_n, -EINVAL, "have 0 restart markers, and 3 are due");
	m = (struct make){ .w = 40, .h = 24, .channels = 3, .separate = true };
	make_jpeg(&m);
	for (size_t at = jpeg_n; at > 0; at--)
		if (jpeg[at - 1] == 0xff && jpeg[at] == 0xda) { /* without its last scan */
			memcpy(jpeg + at - 1, "\xff\xd9", 2);
			check_refused(jpeg, at + 1, -EINVAL, "no data of its channel 3 of 3");
			break;
		}
}

/* ---- PNG ---- */

static void a_png_whose_first_part_is_another_is_refused_by_its_name(void)
{
	static const struct {
		const char *name, *text;
	} t[] = {
		{ "CgBI", "a PNG whose first part is CgBI, not IHDR: made for iPhones by Xcode" },
		{ "tEXt", "a PNG whose first part is tEXt, not IHDR" },
		{ "\1\2\xff ", "a PNG whose first part is ????, not IHDR" },
	};
	unsigned char whole[1000], file[1000], row[25] = { 0 };
	size_t n = png_bytes(whole, 8, 3, 8, 2, NULL, 0, row, 25);

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		size_t at = 8;

		memcpy(file, whole, 8);
		png_part(file, &at, t[i].name, "P\0 \2+\325\263\177", 8);
		memcpy(file + at, whole + 8, n - 8);
		check_refused(file, at + n - 8, -EINVAL, t[i].text);
		CU_ASSERT_PTR_NULL(strstr(dn_message(), "pixels"));
	}
	memcpy(file, whole, n);
	file[11] = 12;
	check_refused(file, n, -EINVAL, "a PNG whose IHDR has 12 bytes, not 13");
	for (size_t k = 8; k < 33; k++)
		check_refused(whole, k, -EINVAL, k < 16 ? "a PNG of " : k < 29 ? "IHDR" : "no end: cut off after");
}

static void a_png_is_read_to_its_end(void)
{
	unsigned char whole[3000], file[3000], rows[3 * 25], want[3 * 24];
	size_t n, at;

	for (int i = 0; i < 75; i++)
		rows[i] = (unsigned char)(i % 25 ? 3 * i : 0);
	for (int i = 0; i < 72; i++)
		want[i] = rows[i / 24 * 25 + 1 + i % 24];
	n = png_bytes(whole, 8, 3, 8, 2, NULL, 0, rows, 75);
	check_pixels(whole, n, 3, 8, 3, want);
	check_pixels(whole, n - 4, 3, 8, 3, want); /* the sum of the end's nothing */
	for (size_t k = n - 5; k > 33; k--)
		check_refused(whole, k, -EINVAL, "the PNG has no end: cut off after");
	/* unknown parts: a small first letter says that they may be passed over */
	memcpy(file, whole, 33);
	at = 33;
	png_part(file, &at, "abCD", "12345", 5);
	memcpy(file + at, whole + 33, n - 33);
	check_pixels(file, at + n - 33, 3, 8, 3, want);
	file[37] = 'A';
	check_refused(file, at + n - 33, -EINVAL, "the PNG's part AbCD at byte 33 is not known");
}

static void interlaced_16_bit_and_short_palettes_are_read(void)
{
	static const unsigned char palette[] = { 10, 20, 30, 40, 50, 60 };
	static const unsigned char passes[] = { 0, 11, 0, 22, 0, 33, 44 }; /* 2 x 2: (0,0); (1,0); (0,1) (1,1) */
	static const unsigned char indices[] = { 0, 0, 1, 2, 255 };
	static const unsigned char wide[] = { 0, 1, 2, 3, 4, 250, 6, 7, 8 };
	unsigned char file[1000];
	size_t n = png_bytes(file, 2, 2, 8, 0, NULL, 0, passes, 7);

	file[28] = 1; /* interlaced */
	check_pixels(file, n, 1, 2, 2, (const unsigned char[]){ 11, 22, 33, 44 });
	n = png_bytes(file, 4, 1, 16, 0, NULL, 0, wide, 9);
	check_pixels(file, n, 1, 4, 1, (const unsigned char[]){ 1, 3, 250, 7 });
	/* colours beyond the palette are black, every time */
	n = png_bytes(file, 4, 1, 8, 3, palette, 2, indices, 5);
	for (int i = 0; i < 3; i++)
		check_pixels(file, n, 3, 4, 1, (const unsigned char[]){ 10, 20, 30, 40, 50, 60, 0, 0, 0, 0, 0, 0 });
}

/* ---- BMP ---- */

static void put_le(unsigned char *p, int64_t x, int n)
{
	for (int i = 0; i < n; i++)
		p[i] = (unsigned char)(x >> 8 * i);
}

/* A header of @head bytes for pixels at @at; its size is @at. */
static size_t bmp_head(unsigned char *p, int head, int64_t w, int64_t h, int depth, int packing, size_t at)
{
	memset(p, 0, at);
	memcpy(p, "BM", 2);
	put_le(p + 10, (int64_t)at, 4);
	put_le(p + 14, head, 4);
	put_le(p + 18, w, head == 12 ? 2 : 4);
	put_le(p + (head == 12 ? 20 : 22), h, head == 12 ? 2 : 4);
	put_le(p + (head == 12 ? 22 : 26), 1, 2);
	put_le(p + (head == 12 ? 24 : 28), depth, 2);
	if (head > 12)
		put_le(p + 30, packing, 4);
	return at;
}

static void masks(unsigned char *p)
{
	put_le(p, 0xff0000, 4);
	put_le(p + 4, 0xff00, 4);
	put_le(p + 8, 0xff, 4);
}

/* 3 x 2: blue, green, red; white, grey, black from the top */
static const unsigned char want_bmp[] = { 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255, 255, 128, 128, 128, 0, 0, 0 };

/* The rows of want_bmp behind @at, of @pixel bytes a pixel; the number of bytes then. */
static size_t bmp_rows(unsigned char *p, size_t at, int pixel, bool top_down)
{
	for (int y = 0; y < 2; y++) {
		const unsigned char *row = want_bmp + 9 * (top_down ? y : 1 - y);
		size_t start = at;

		for (int x = 0; x < 3; x++) {
			for (int k = 0; k < 3; k++)
				p[at++] = row[3 * x + 2 - k];
			if (pixel == 4)
				p[at++] = 255;
		}
		while ((at - start) % 4)
			p[at++] = 0;
	}
	return at;
}

static void a_bmp_may_start_with_its_first_row(void)
{
	static const int heads[] = { 12, 40, 56, 108, 124 };
	unsigned char p[400];

	for (size_t i = 0; i < 5; i++)
		for (int pixel = 3; pixel <= 4; pixel++)
			for (int top = 0; top <= (heads[i] != 12); top++) {
				size_t n = bmp_head(p, heads[i], 3, top ? -2 : 2, 8 * pixel, 0, 14 + (size_t)heads[i]);

				n = bmp_rows(p, n, pixel, top);
				if (heads[i] == 12 && pixel == 4)
					continue; /* OS/2 has none */
				check_pixels(p, n, 3, 3, 2, want_bmp);
			}
	bmp_rows(p, bmp_head(p, 40, 3, INT32_MIN, 24, 0, 54), 3, true);
	check_refused(p, 78, -EFBIG, "an image of 3 x 2147483648 pixels");
	put_le(p + 22, INT32_MIN + 1, 4);
	check_refused(p, 78, -EFBIG, "an image of 3 x 2147483647 pixels");
	put_le(p + 22, -65536, 4);
	check_refused(p, 78, -EFBIG, "an image of 3 x 65536 pixels");
	put_le(p + 22, -65535, 4);
	check_refused(p, 78, -EINVAL, "3 x 65535 pixels, for which its 78 bytes are too few");
	put_le(p + 22, 0, 4);
	check_refused(p, 78, -EFBIG, "3 x 0 pixels");
	put_le(p + 18, -3, 4);
	put_le(p + 22, 2, 4);
	check_refused(p, 78, -EFBIG, "-3 x 2 pixels");
}

/* @depth bits a pixel, 2 rows of 5: colours 0 1 2 3 4, 5 4 3 2 1 modulo 2^bits */
static void a_bmp_s_palette_is_where_its_header_says(void)
{
	static const int heads[] = { 12, 40, 108, 124 };
	unsigned char p[2000], want[30];

	for (size_t i = 0; i < 4; i++)
		for (int depth = 1; depth <= 8; depth = depth == 1 ? 4 : depth == 4 ? 8 : 9)
			for (int gap = 0; gap <= 7; gap += 7)
				for (int few = 0; few <= 1; few++) {
					int entry = heads[i] == 12 ? 3 : 4, colours = few && depth > 1 ? 6 : 1 << depth;
					size_t palette = 14 + (size_t)heads[i];
					size_t n =
						bmp_head(p, heads[i], 5, 2, depth, 0, palette + (size_t)(colours * entry + gap));

					for (int k = 0; k < colours; k++)
						for (int c = 0; c < 3; c++)
							p[palette + (size_t)(k * entry + c)] = (unsigned char)(200 - 20 * k + c);
					for (int y = 1; y >= 0; y--) { /* from below */
						memset(p + n, 0, 8);
						for (int x = 0; x < 5; x++) {
							int k = (y ? 5 - x : x) % (1 << depth);

							p[n + (size_t)(x * depth / 8)] |=
								(unsigned char)(k << (8 - depth - x * depth % 8));
							for (int c = 0; c < 3; c++)
								want[3 * (5 * y + x) + c] = (unsigned char)(200 - 20 * k + 2 - c);
						}
						n += depth == 8 ? 8 : 4;
					}
					check_pixels(p, n, 3, 5, 2, want);
				}
}

static void a_bmp_that_is_not_read_says_why(void)
{
	unsigned char p[2000];
	size_t n;

	n = bmp_rows(p, bmp_head(p, 56, 3, 2, 32, 3, 70), 4, false);
	masks(p + 54);
	check_pixels(p, n, 3, 3, 2, want_bmp); /* masks inside the header */
	n = bmp_rows(p, bmp_head(p, 40, 3, 2, 32, 3, 66), 4, false);
	masks(p + 54);
	check_pixels(p, n, 3, 3, 2, want_bmp); /* behind it */
	n = bmp_rows(p, bmp_head(p, 40, 3, 2, 32, 3, 166), 4, false);
	masks(p + 54);
	check_pixels(p, n, 3, 3, 2, want_bmp); /* and a gap */
	n = bmp_rows(p, bmp_head(p, 40, 3, 2, 24, 0, 100), 3, false);
	check_pixels(p, n, 3, 3, 2, want_bmp);
	check_pixels(p, n - 3, 3, 3, 2, want_bmp); /* bytes that fill up the last row */
	check_refused(p, n - 4, -EINVAL, "says that it has 3 x 2 pixels");
	bmp_rows(p, bmp_head(p, 12, 1, 1, 24, 0, 26), 3, false);
	check_pixels(p, 29, 3, 1, 1, want_bmp + 9); /* the smallest there is */
	for (size_t k = 18; k < 26; k++)
		check_refused(p, k, -EINVAL, "a BMP that ends inside its header");
	n = bmp_rows(p, bmp_head(p, 40, 3, 2, 24, 0, 40), 3, false);
	check_refused(p, n, -EINVAL, "pixels start at byte 40, inside its header");
	n = bmp_rows(p, bmp_head(p, 40, 3, 2, 8, 0, 54), 3, false);
	check_refused(p, n, -EINVAL, "a BMP of 8 bits a pixel without a palette");
	n = bmp_rows(p, bmp_head(p, 40, 3, 2, 8, 1, 54 + 1024), 3, false);
	check_refused(p, n, -EINVAL, "a BMP in run lengths (RLE)");
	n = bmp_rows(p, bmp_head(p, 64, 3, 2, 24, 0, 78), 3, false);
	check_refused(p, n, -EINVAL, "a BMP whose header has 64 bytes; read are those of 12, 40");
	n = bmp_rows(p, bmp_head(p, 40, 3, 2, 24, 4, 54), 3, false);
	check_refused(p, n, -EINVAL, "cannot be decoded");
	n = bmp_rows(p, bmp_head(p, 40, 3, 2, 2, 0, 70), 3, false);
	check_refused(p, n, -EINVAL, "cannot be decoded");
}

/* ---- TGA, PPM ---- */

static void a_tga_in_runs_is_read_to_its_last_one(void)
{
	static const unsigned char head[18] = { [2] = 10, [12] = 5, [14] = 2, [16] = 24, [17] = 32 };
	static const unsigned char runs[] = { 0x83, 1, 2, 3, 127, 4, 5, 6, 7, 8, 9, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4 };
	unsigned char p[100],
		want[30] = { 3, 2, 1, 3, 2, 1, 3, 2, 1, 3, 2, 1, 6, 5, 4, 9, 8, 7, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4 };
	size_t n = 18 + sizeof(runs);

	memcpy(p, head, 18);
	memcpy(p + 18, runs, sizeof(runs)); /* the last says 128 pixels, and the picture ends after six */
	check_pixels(p, n, 3, 5, 2, want);
	for (size_t k = n - 1; k >= 18; k--)
		check_refused(p, k, -EINVAL, "says that it has 5 x 2 pixels, for which");
}

static void a_tga_s_palette_starts_with_colour_0(void)
{
	unsigned char p[100] = { [1] = 1, [2] = 1, [5] = 2, [7] = 24, [12] = 3, [14] = 1, [16] = 8, [17] = 32 };

	memcpy(p + 18, "\1\2\3\4\5\6\0\1\0", 9);
	check_pixels(p, 27, 3, 3, 1, (const unsigned char[]){ 3, 2, 1, 6, 5, 4, 3, 2, 1 });
	check_refused(p, 26, -EINVAL, "says that it has 3 x 1 pixels");
	p[3] = 1;
	check_refused(p, 27, -EINVAL, "a TGA whose palette starts with colour 1");
}

#define TEXT(s) s, sizeof(s) - 1

static void comments_and_largest_values_of_a_ppm(void)
{
	static const struct {
		const char *text;
		size_t n;
		unsigned char want;
	} t[] = {
		{ TEXT("P5#a\n#b\r1 # c\n1\t#\n255#d\n\x2a"), 42 },
		{ TEXT("P5 1 1 255\n\x2a"), 42 },
		{ TEXT("P5 1 1 255 \x23"), 35 },
		{ TEXT("P5 1 1 255\r\x2a"), 42 },
		{ TEXT("P5 1 1 1\n\1"), 255 },
		{ TEXT("P5 1 1 100\n\x32"), 128 },
		{ TEXT("P5 1 1 65535\n\x2a\7"), 42 },
		{ TEXT("P5 1 1 256\n\1\0"), 255 },
		{ TEXT("P5\v1\f1 9\n\xff"), 255 /* above the largest */ },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		check_pixels(t[i].text, t[i].n, 1, 1, 1, &t[i].want);
	check_refused(TEXT("P5 1 1 255X\1\1"), -EINVAL, "no blank follows the largest value, 255");
	check_refused(TEXT("P5 1 1 0\n\1"), -EINVAL, "largest value of 1 to 65535");
	check_refused(TEXT("P5 1 1 65536\n\1\1"), -EINVAL, "largest value of 1 to 65535");
	check_refused(TEXT("P5 1 1 255#d"), -EINVAL, "are too few");
	check_refused(TEXT("P5 -1 1 255 "), -EINVAL, "no width");
}

int main(void)
{
	static const struct check_case cases[] = {
		CASE(every_form_of_a_jpeg_is_read),
		CASE(four_channels_without_a_word_are_read_as_three),
		CASE(a_jpeg_without_its_end_is_read_with_a_warning),
		CASE(a_jpeg_that_was_cut_is_an_error_or_whole),
		CASE(a_jpeg_that_lacks_parts_is_refused),
		CASE(a_png_whose_first_part_is_another_is_refused_by_its_name),
		CASE(a_png_is_read_to_its_end),
		CASE(interlaced_16_bit_and_short_palettes_are_read),
		CASE(a_bmp_may_start_with_its_first_row),
		CASE(a_bmp_s_palette_is_where_its_header_says),
		CASE(a_bmp_that_is_not_read_says_why),
		CASE(a_tga_in_runs_is_read_to_its_last_one),
		CASE(a_tga_s_palette_starts_with_colour_0),
		CASE(comments_and_largest_values_of_a_ppm),
		{ NULL, NULL },
	};

	return run_in_folder("image_forms", cases);
}
