/* Room data: image files whole and damaged, sizes, colours, augmentation, PNG files. Expected values are naive formulas
 * in double. */
#define _GNU_SOURCE
#include "image_help.h"

#include <sys/stat.h>

#include "base/rng.h"
#include "graph/cfg.h"

/* ---- files ---- */

static void check_file(const char *path, int w, int h, int c, const unsigned char *want)
{
	struct dn_image im = { 0 };

	CHECK_OK_FATAL(dn_image_read(&im, path, c));
	CHECK_EQ(im.w, w);
	CHECK_EQ(im.h, h);
	CHECK_EQ(im.c, c);
	for (int k = 0; k < c; k++)
		for (int i = 0; i < w * h; i++)
			if (im.x[k * w * h + i] != (float)want[i * c + k] / 255.0f) {
				CHECK_EQ(lrintf(im.x[k * w * h + i] * 255), want[i * c + k]);
				k = c;
				break;
			}
	dn_image_fini(&im);
}

static void lossless_files_give_every_pixel_by_plane(void)
{
	unsigned char p[3 * 70 * 45], g[70 * 45], rgb[3 * 70 * 45], file[20000];

	paint(p, 70, 45, 3, 1);
	paint(g, 70, 45, 1, 2);
	CU_ASSERT(stbi_write_png(in_folder("a.png"), 70, 45, 3, p, 3 * 70) != 0);
	check_file(in_folder("a.png"), 70, 45, 3, p);
	CU_ASSERT(stbi_write_bmp(in_folder("a.bmp"), 70, 45, 3, p) != 0);
	check_file(in_folder("a.bmp"), 70, 45, 3, p);
	CU_ASSERT(stbi_write_tga(in_folder("a.tga"), 70, 45, 3, p) != 0);
	check_file(in_folder("a.tga"), 70, 45, 3, p);
	memcpy(file, "P6\n# made\n70 45\n255\n", 20);
	memcpy(file + 20, p, sizeof(p));
	check_file(put("a.ppm", file, 20 + sizeof(p)), 70, 45, 3, p);
	memcpy(file, "P5 70 45 255\n", 13);
	memcpy(file + 13, g, sizeof(g));
	put("a.pgm", file, 13 + sizeof(g));
	check_file(in_folder("a.pgm"), 70, 45, 1, g);
	for (size_t i = 0; i < sizeof(rgb); i++)
		rgb[i] = g[i / 3];
	check_file(in_folder("a.pgm"), 70, 45, 3, rgb); /* grey in all three */
	/* 16 bits, high byte first */
	memcpy(file, "P5 70  45# c\n65535\n", 19);
	for (int i = 0; i < 70 * 45; i++) {
		file[19 + 2 * i] = g[i];
		file[20 + 2 * i] = (unsigned char)i;
	}
	put("a16.pgm", file, 19 + 6300);
	check_file(in_folder("a16.pgm"), 70, 45, 1, g);
	check_file(in_folder("a16.pgm"), 70, 45, 3, rgb);
	check_file(put("m.pgm", "P5\n3 1 4\n\0\2\4", 13), 3, 1, 1, (const unsigned char[]){ 0, 128, 255 });
	CU_ASSERT(stbi_write_png(in_folder("g.png"), 70, 45, 1, g, 70) != 0);
	check_file(in_folder("g.png"), 70, 45, 1, g);
}

static void palettes_16_bits_and_alpha_become_colours_of_8_bits(void)
{
	static const unsigned char palette[] = { 10, 20, 30, 40, 50, 60, 70, 80, 90, 255, 0, 128 };
	/* 4 x 2, two bits a pixel: 0 1 2 3, 3 2 1 0 */
	static const unsigned char packed[] = { 0, 0x1b, 0, 0xe4 };
	unsigned char want[24], file[4000], rows[100];
	size_t n;

	for (int i = 0; i < 8; i++)
		memcpy(want + 3 * i, palette + 3 * (i < 4 ? i : 7 - i), 3);
	n = png_bytes(file, 4, 2, 2, 3, palette, 4, packed, sizeof(packed));
	check_file(put("p.png", file, n), 4, 2, 3, want);
	/* 16 bits: the high byte counts */
	for (int y = 0; y < 2; y++) {
		rows[y * 25] = 0;
		for (int i = 0; i < 12; i++) {
			rows[y * 25 + 1 + 2 * i] = want[y * 12 + i];
			rows[y * 25 + 2 + 2 * i] = (unsigned char)(37 * i);
		}
	}
	n = png_bytes(file, 4, 2, 16, 2, NULL, 0, rows, 50);
	check_file(put("s.png", file, n), 4, 2, 3, want);
	/* alpha is dropped, not multiplied */
	for (int y = 0; y < 2; y++) {
		rows[y * 17] = 0;
		for (int x = 0; x < 4; x++) {
			memcpy(rows + y * 17 + 1 + 4 * x, want + (y * 4 + x) * 3, 3);
			rows[y * 17 + 4 + 4 * x] = (unsigned char)(60 * x);
		}
	}
	n = png_bytes(file, 4, 2, 8, 6, NULL, 0, rows, 34);
	check_file(put("al.png", file, n), 4, 2, 3, want);
}

static void a_jpeg_is_near_what_was_packed(void)
{
	static const int sizes[][2] = { { 1, 1 }, { 8, 8 }, { 17, 9 }, { 160, 121 } };

	for (int c = 1; c <= 3; c += 2)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			int w = sizes[s][0], h = sizes[s][1];
			unsigned char p[3 * 160 * 121];
			struct dn_image im = { 0 };
			double worst = 0;

			paint(p, w, h, c, 5);
			CHECK_OK_FATAL(dn_image_read(&im, put_jpeg("a.jpg", w, h, c, 5, 98), c));
			CHECK_EQ(im.w, w);
			CHECK_EQ(im.h, h);
			for (int k = 0; k < c; k++)
				for (int i = 0; i < w * h; i++)
					worst = fmax(worst, fabs(255 * im.x[k * w * h + i] - p[i * c + k]));
			CU_ASSERT(worst <= 12); /* steps of 1 to 4 in both transforms, and halved colour planes */
			dn_image_fini(&im);
		}
}

static void colours_become_grey_by_their_brightness(void)
{
	unsigned char p[3 * 64];
	struct dn_image im = { 0 };

	for (int i = 0; i < 3 * 64; i++)
		p[i] = (unsigned char)(i * 73);
	CU_ASSERT(stbi_write_png(in_folder("a.png"), 8, 8, 3, p, 24) != 0);
	CHECK_OK_FATAL(dn_image_read(&im, in_folder("a.png"), 1));
	CHECK_EQ(im.c, 1);
	for (int i = 0; i < 64; i++) { /* weights of 1/256, rounded down: 1.5 levels */
		double want = .299 * p[3 * i] + .587 * p[3 * i + 1] + .114 * p[3 * i + 2];

		CU_ASSERT(fabs(255 * im.x[i] - want) <= 1.5);
	}
	dn_image_fini(&im);
}

static void files_that_are_no_images_say_what_they_are(void)
{
	static const struct {
		const char *text;
		int err;
		const char *message;
	} t[] = {
		{ "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n", -EINVAL, "x.jpg\": not an image" },
		{ "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n", -EINVAL, "a git-lfs pointer" },
		{ "\n <!DOCTYPE html><html>404", -EINVAL, "an HTML page" },
		{ "hello\n", -EINVAL, "a text file" },
		{ "", -EINVAL, "x.jpg\": is empty" },
		{ "GIF89a\1\2\3\4\5\6", -EINVAL, "a GIF image" },
		{ "\x01\x02\x03", -EINVAL, "PNG, JPEG, BMP, TGA, PPM (P6) or PGM (P5)" },
		{ "P3\n1 1\n255\n1 2 3\n", -ENOTSUP, "in the text format P3" },
		{ "P6\n1 1\n255\n12", -EINVAL, "x.jpg\": says that it has 1 x 1 pixels, for which its 13 bytes are too few" },
		{ "P5 1 1 # a comment\n255\n", -EINVAL, "its 23 bytes are too few" },
		{ "\x89PNG\r\n\x1a\nabc", -EINVAL, "x.jpg\": the image cannot be decoded" },
		{ "\xff\xd8\xff\xe0", -EINVAL, "x.jpg\": the JPEG's part e0 at byte 4 has 0 bytes, which do not fit" },
		{ "\1\2\3", -EINVAL, "starts with the bytes 01 02 03" },
	};
	struct dn_image im = { 0 };

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		CHECK_FAILS(dn_image_read(&im, put_text("x.jpg", t[i].text), 3), t[i].err, t[i].message);
	CHECK_FAILS(dn_image_read(&im, folder, 3), -EISDIR, "is a folder, not an image");
	CHECK_FAILS(dn_image_read(&im, in_folder("none.png"), 3), -ENOENT, "none.png\": cannot read the image: No such file");
	CU_ASSERT_EQUAL(mkfifo(in_folder("pipe"), 0600), 0);
	CHECK_FAILS(dn_image_read(&im, in_folder("pipe"), 3), -EINVAL, "no regular file");
	put_jpeg("ok.jpg", 8, 8, 3, 0, 90);
	CHECK_FAILS(dn_image_read(&im, in_folder("ok.jpg"), 4), -ENOTSUP, "4 channels; images have 1 (grey) or 3");
	CHECK_FAILS(dn_image_read(&im, in_folder("ok.jpg"), 0), -ENOTSUP, "0 channels");
	CU_ASSERT_PTR_NULL(im.x);
}

/* A header can promise any size: what the file cannot hold is refused before memory is taken for it. */
static void sizes_that_the_file_cannot_hold_are_refused(void)
{
	unsigned char file[70000], row[9000] = { 0 };
	struct dn_mem_stats before, after;
	struct dn_image im = { 0 };
	size_t n;

	n = png_bytes(file, 8000, 8000, 8, 2, NULL, 0, row, 100);
	put("big.png", file, n);
	CHECK_OK(dn_image_read(&im, put_jpeg("ok.jpg", 8, 8, 3, 0, 90), 3)); /* the room that every reader takes */
	dn_image_fini(&im);
	dn_mem_stats(DN_MEM_HOST, &before);
	CHECK_FAILS(dn_image_read(&im, in_folder("big.png"), 3), -EINVAL, "says that it has 8000 x 8000 pixels, for which");
	dn_mem_stats(DN_MEM_HOST, &after);
	CHECK_EQ(after.peak_bytes, before.peak_bytes);
	n = png_bytes(file, 60000, 60000, 8, 2, NULL, 0, row, 100);
	CHECK_FAILS(dn_image_read(&im, put("big.png", file, n), 3), -EFBIG, "an image of 60000 x 60000 pixels; read are");
	n = png_bytes(file, 70000, 2, 8, 2, NULL, 0, row, 100);
	CHECK_FAILS(dn_image_read(&im, put("big.png", file, n), 3), -EFBIG, "70000 x 2 pixels");
	n = png_bytes(file, 0, 5, 8, 2, NULL, 0, row, 100);
	CHECK_FAILS(dn_image_read(&im, put("big.png", file, n), 3), -EFBIG, "0 x 5 pixels");
	memcpy(file, "\0\0\12\0\0\0\0\0\0\0\0\0\100\37\100\37\30\0\377abc", 22);
	CHECK_FAILS(dn_image_read(&im, put("big.tga", file, 22), 3), -EINVAL, "says that it has 8000 x 8000 pixels");
	memcpy(file, "P6\n8000 8000\n255\n", 17);
	memset(file + 17, 0, 1000);
	CHECK_FAILS(dn_image_read(&im, put("big.ppm", file, 1017), 3), -EINVAL, "says that it has 8000 x 8000 pixels");
	CU_ASSERT_PTR_NULL(im.x);
}

/* Decoders fill what is missing with something; a file that was cut off is an error instead. */
static void files_that_were_cut_off_are_errors(void)
{
	static const char *const names[] = { "c.png", "c.jpg", "c.bmp", "c.tga", "c.ppm" };
	unsigned char p[3 * 200 * 110 + 15];
	struct dn_image im = { 0 };

	paint(p, 200, 110, 3, 4);
	CU_ASSERT(stbi_write_png(in_folder("c.png"), 200, 110, 3, p, 600) != 0);
	CU_ASSERT(stbi_write_bmp(in_folder("c.bmp"), 200, 110, 3, p) != 0);
	stbi_write_tga_with_rle = 0;
	CU_ASSERT(stbi_write_tga(in_folder("c.tga"), 200, 110, 3, p) != 0);
	stbi_write_tga_with_rle = 1;
	put_jpeg("c.jpg", 200, 110, 3, 1, 80);
	memmove(p + 15, p, 66000);
	memcpy(p, "P6\n200 110\n255\n", 15);
	put("c.ppm", p, sizeof(p));
	for (size_t f = 0; f < sizeof(names) / sizeof(names[0]); f++) {
		char *text = NULL;
		size_t n = 0;

		CHECK_OK_FATAL(dn_file_read(in_folder(names[f]), 1 << 20, &text, &n));
		put("cut", text, n);
		CHECK_OK(dn_image_read(&im, in_folder("cut"), 3));
		dn_image_fini(&im);
		for (int k = 0; k < 4; k++) {
			static const size_t tail[] = { 1000, 300, 50, 20 };

			put("cut", text, n - tail[k] - (f == 3 ? 26 : 0)); /* TGA's footer may be missing */
			CHECK_FAILS(dn_image_read(&im, in_folder("cut"), 3), -EINVAL, "cut\": ");
			CU_ASSERT_PTR_NULL(im.x);
		}
		dn_free(text);
	}
}

/* Every byte changed, and every length cut off, once: an image or an error, whatever the sanitizers see. */
static void damaged_files_never_crash(void)
{
	static const char *const names[] = { "d.png", "d.jpg", "d.bmp", "d.tga", "g.jpg" };
	unsigned char p[3 * 20 * 11];
	int errors = 0;

	paint(p, 20, 11, 3, 4);
	CU_ASSERT(stbi_write_png(in_folder("d.png"), 20, 11, 3, p, 60) != 0);
	CU_ASSERT(stbi_write_bmp(in_folder("d.bmp"), 20, 11, 3, p) != 0);
	CU_ASSERT(stbi_write_tga(in_folder("d.tga"), 20, 11, 3, p) != 0);
	put_jpeg("d.jpg", 20, 11, 3, 1, 80);
	put_jpeg("g.jpg", 20, 11, 1, 1, 80);
	for (size_t f = 0; f < sizeof(names) / sizeof(names[0]); f++) {
		char *text = NULL;
		size_t n = 0;

		CHECK_OK_FATAL(dn_file_read(in_folder(names[f]), 1 << 20, &text, &n));
		for (size_t at = 0; at < 2 * n; at++) {
			struct dn_image im = { 0 };
			char old = text[at % n];

			text[at % n] = (char)(at % 3 ? old ^ (1 << at % 8) : 0xff);
			put("dam", text, at < n ? n : at - n);
			errors += dn_image_read(&im, in_folder("dam"), f % 2 ? 3 : 1) != 0;
			dn_image_fini(&im);
			text[at % n] = old;
		}
		dn_free(text);
	}
	CU_ASSERT(errors > 300);
}

static void running_out_of_memory_is_an_error(void)
{
	struct dn_mem_stats before, after;
	int err = -1;
	uint64_t n;

	put_jpeg("a.jpg", 30, 20, 3, 1, 90);
	dn_mem_stats(DN_MEM_HOST, &before);
	for (n = 1; err && n < 50; n++) {
		struct dn_image im = { 0 };

		dn_mem_fail_at(n);
		err = dn_image_read(&im, in_folder("a.jpg"), 3);
		dn_mem_fail_at(0);
		if (err)
			CHECK_EQ(err, -ENOMEM);
		dn_image_fini(&im);
	}
	dn_mem_stats(DN_MEM_HOST, &after);
	CHECK_EQ(after.now_bytes, before.now_bytes);
	CHECK_EQ(err, 0);
	CHECK_EQ(n, 4); /* the decoder's room, the image */
}

/* ---- sizes ---- */

static double px(const float *x, int w, int h, int i, int j, int k)
{
	return i < 0 || j < 0 || i >= w || j >= h ? 0 : x[(k * h + j) * w + i];
}

static double naive_resize(const float *x, int w, int h, int nw, int nh, int i, int j, int k)
{
	double sx = nw > 1 && w > 1 ? (double)i * (w - 1) / (nw - 1) : w - 1;
	double sy = nh > 1 && h > 1 ? (double)j * (h - 1) / (nh - 1) : h - 1;
	int ix = (int)sx, iy = (int)sy;
	double a = sx - ix, b = sy - iy;

	return (1 - b) * ((1 - a) * px(x, w, h, ix, iy, k) + a * px(x, w, h, ix + 1, iy, k)) +
	       b * ((1 - a) * px(x, w, h, ix, iy + 1, k) + a * px(x, w, h, ix + 1, iy + 1, k));
}

static double naive_point(const float *x, int w, int h, double sx, double sy, int k)
{
	int ix = (int)floor(sx), iy = (int)floor(sy);
	double a = sx - ix, b = sy - iy;

	return (1 - b) * ((1 - a) * px(x, w, h, ix, iy, k) + a * px(x, w, h, ix + 1, iy, k)) +
	       b * ((1 - a) * px(x, w, h, ix, iy + 1, k) + a * px(x, w, h, ix + 1, iy + 1, k));
}

static void fill_random(float *x, int n, int seed)
{
	for (int i = 0; i < n; i++)
		x[i] = (float)dn_rng_uniform(77, (uint64_t)seed, (uint64_t)i);
}

#define MAX 3000

static void resizing_is_bilinear_with_corners_on_corners(void)
{
	static const int t[][4] = { { 7, 5, 13, 11 },	{ 13, 11, 7, 5 }, { 20, 3, 3, 20 },  { 9, 9, 9, 9 },
				    { 28, 28, 27, 29 }, { 7, 5, 1, 1 },	  { 7, 5, 1, 4 },    { 7, 5, 4, 1 },
				    { 1, 1, 4, 3 },	{ 1, 6, 3, 4 },	  { 31, 31, 28, 30 } };

	for (size_t s = 0; s < sizeof(t) / sizeof(t[0]); s++) {
		int w = t[s][0], h = t[s][1], nw = t[s][2], nh = t[s][3];
		float x[MAX], out[MAX], want[MAX];
		struct dn_view v = dn_view_floats(x, w, h, 3);

		fill_random(x, 3 * w * h, (int)s);
		dn_image_resize(&v, out, nw, nh);
		for (int k = 0; k < 3; k++)
			for (int j = 0; j < nh; j++)
				for (int i = 0; i < nw; i++)
					want[(k * nh + j) * nw + i] = (float)naive_resize(x, w, h, nw, nh, i, j, k);
		CHECK_CLOSE(out, want, 3 * nw * nh, 5e-6); /* the place in float: 30 * 2^-24 twice */
		for (int k = 0; k < 3 && nw > 1 && nh > 1 && w > 1 && h > 1; k++) {
			CU_ASSERT_EQUAL(out[k * nw * nh], x[k * w * h]);
			CU_ASSERT_EQUAL(out[(k + 1) * nw * nh - 1], x[(k + 1) * w * h - 1]);
		}
		if (w == nw && h == nh)
			CHECK_BITS(out, x, 3 * w * h * sizeof(*x));
	}
}

static void the_last_row_and_column_are_exact_for_every_size(void)
{
	float x[300], out[300];
	struct dn_view v;

	fill_random(x, 300, 1);
	for (int n = 2; n <= 300; n++)
		for (int to = 2; to <= 40; to++) {
			v = dn_view_floats(x, n, 1, 1);
			dn_image_resize(&v, out, to, 1);
			CU_ASSERT_EQUAL_FATAL(out[to - 1], x[n - 1]);
			v = dn_view_floats(x, 1, n, 1);
			dn_image_resize(&v, out, 1, to);
			CU_ASSERT_EQUAL_FATAL(out[to - 1], x[n - 1]);
		}
}

static void a_letterbox_holds_all_of_the_image_on_grey(void)
{
	static const int t[][6] = { { 20, 10, 16, 16, 16, 8 }, { 10, 20, 16, 16, 8, 16 }, { 7, 5, 14, 9, 12, 9 },
				    { 9, 9, 9, 9, 9, 9 },      { 300, 1, 8, 8, 8, 1 },	  { 1, 300, 8, 8, 1, 8 },
				    { 3, 4, 10, 8, 6, 8 } };

	for (size_t s = 0; s < sizeof(t) / sizeof(t[0]); s++) {
		int w = t[s][0], h = t[s][1], bw = t[s][2], bh = t[s][3], nw = t[s][4], nh = t[s][5];
		float x[MAX], out[MAX], want[MAX];
		struct dn_view v = dn_view_floats(x, w, h, 3);
		int64_t sw = w, sh = h;

		fill_random(x, 3 * w * h, (int)s);
		dn_image_size_letterbox(bw, bh, &sw, &sh);
		CHECK_EQ(sw, nw);
		CHECK_EQ(sh, nh);
		dn_image_letterbox(&v, out, bw, bh);
		for (int k = 0; k < 3; k++)
			for (int j = 0; j < bh; j++)
				for (int i = 0; i < bw; i++) {
					int a = i - (bw - nw) / 2, b = j - (bh - nh) / 2;
					bool in = a >= 0 && b >= 0 && a < nw && b < nh;

					want[(k * bh + j) * bw + i] = in ? (float)naive_resize(x, w, h, nw, nh, a, b, k) : .5f;
				}
		CHECK_CLOSE(out, want, 3 * bw * bh, 4e-5); /* places up to 300 in float */
	}
}

static void crops_repeat_the_border_and_the_central_one_is_a_square(void)
{
	float x[MAX], out[MAX], want[MAX];
	struct dn_view v = dn_view_floats(x, 11, 7, 2);

	fill_random(x, 154, 3);
	dn_image_crop(&v, -3, 4, out, 20, 9);
	for (int k = 0; k < 2; k++)
		for (int j = 0; j < 9; j++)
			for (int i = 0; i < 20; i++) {
				int a = i - 3 < 0 ? 0 : i - 3 > 10 ? 10 : i - 3, b = j + 4 > 6 ? 6 : j + 4;

				want[(k * 9 + j) * 20 + i] = x[(k * 7 + b) * 11 + a];
			}
	CHECK_BITS(out, want, 360 * sizeof(*out));
	for (int k = 0; k < 2; k++)
		for (int j = 0; j < 7; j++)
			for (int i = 0; i < 7; i++)
				want[MAX / 2 + (k * 7 + j) * 7 + i] = x[(k * 7 + j) * 11 + i + 2];
	for (int k = 0; k < 2; k++)
		for (int j = 0; j < 12; j++)
			for (int i = 0; i < 5; i++)
				want[(k * 12 + j) * 5 + i] = (float)naive_resize(want + MAX / 2, 7, 7, 5, 12, i, j, k);
	dn_image_center_crop(&v, out, 5, 12);
	CHECK_CLOSE(out, want, 120, 5e-6);
}

static void turning_samples_zero_outside(void)
{
	float x[MAX], out[MAX], want[MAX];
	struct dn_view v = dn_view_floats(x, 11, 7, 3);
	struct dn_rotate_crop r[] = {
		{ 0, 1, 0, 0, 1 }, { .5, 1.7, 1.25, -2, 1.3 }, { -2, .4, -9, 3, .6 }, { 0, 1, 1e30, 0, 1 }
	};

	fill_random(x, 231, 3);
	for (size_t s = 0; s < sizeof(r) / sizeof(r[0]); s++) {
		for (int k = 0; k < 3; k++)
			for (int j = 0; j < 9; j++)
				for (int i = 0; i < 14; i++) {
					double a = (i - 7. + r[s].dx) / r[s].scale * r[s].aspect;
					double b = (j - 4.5 + r[s].dy) / r[s].scale;
					double sx = cos(r[s].rad) * a - sin(r[s].rad) * b + 5.5;
					double sy = sin(r[s].rad) * a + cos(r[s].rad) * b + 3.5;

					want[(k * 9 + j) * 14 + i] = fabs(sx) > 1e6 ? 0 : (float)naive_point(x, 11, 7, sx, sy, k);
				}
		dn_image_rotate_crop(&v, &r[s], out, 14, 9);
		CHECK_CLOSE(out, want, 378, 4e-6); /* the place in float */
	}
}

static void bytes_and_floats_give_the_same_bits(void)
{
	unsigned char p[3 * 23 * 17];
	struct dn_view b = dn_view_bytes(p, 23, 17, 3), f;
	struct dn_rotate_crop r = { .3, 1.1, 2, -1, .9 };
	float x[3 * 23 * 17], one[MAX], two[MAX];

	paint(p, 23, 17, 3, 8);
	dn_image_crop(&b, 0, 0, x, 23, 17);
	f = dn_view_floats(x, 23, 17, 3);
	for (int i = 0; i < 23 * 17; i++)
		CU_ASSERT_EQUAL(x[2 * 23 * 17 + i], (float)p[3 * i + 2] / 255.0f);
	dn_image_resize(&b, one, 31, 12);
	dn_image_resize(&f, two, 31, 12);
	CHECK_BITS(one, two, 3 * 31 * 12 * sizeof(*one));
	dn_image_center_crop(&b, one, 20, 20);
	dn_image_center_crop(&f, two, 20, 20);
	CHECK_BITS(one, two, 1200 * sizeof(*one));
	dn_image_rotate_crop(&b, &r, one, 20, 20);
	dn_image_rotate_crop(&f, &r, two, 20, 20);
	CHECK_BITS(one, two, 1200 * sizeof(*one));
}

static void flipping_twice_is_nothing_and_once_mirrors(void)
{
	float x[2 * 3 * 5], y[2 * 3 * 5];

	fill_random(x, 30, 1);
	memcpy(y, x, sizeof(x));
	dn_image_flip(y, 5, 3, 2);
	for (int j = 0; j < 6; j++)
		for (int i = 0; i < 5; i++)
			CU_ASSERT_EQUAL(y[5 * j + i], x[5 * j + 4 - i]);
	dn_image_flip(y, 5, 3, 2);
	CHECK_BITS(x, y, sizeof(x));
}

/* ---- colour ---- */

/* The textbook's hexcone in double. */
static void naive_distort(double *c, double hue, double saturation, double exposure)
{
	double v = fmax(c[0], fmax(c[1], c[2])), d = v - fmin(c[0], fmin(c[1], c[2]));
	double s = v > 0 ? d / v : 0, h = 0;

	if (d > 0 && c[0] == v)
		h = fmod((c[1] - c[2]) / d + 6, 6);
	else if (d > 0 && c[1] == v)
		h = (c[2] - c[0]) / d + 2;
	else if (d > 0)
		h = (c[0] - c[1]) / d + 4;
	h = h / 6 + hue;
	h -= floor(h);
	s *= saturation;
	v *= exposure;
	for (int k = 0; k < 3; k++) { /* f(n) = v - v s max(0, min(t, 4 - t, 1)), t = (n + 6 h) mod 6 */
		double t = fmod((k == 0 ? 5 : k == 1 ? 3 : 1) + 6 * h, 6);

		c[k] = fmin(1, fmax(0, v - v * s * fmax(0, fmin(1, fmin(t, 4 - t)))));
	}
}

static void colours_turn_in_hue_and_are_clamped(void)
{
	static const float by[][3] = { { 0, 1, 1 },   { .1f, 1.5f, .5f }, { -.3f, .7f, 1.9f },
				       { .5f, 3, 1 }, { 1, 1, 1 },	  { -1, .1f, .2f } };
	float known[3] = { .8f, .4f, .2f };
	float x[3000], want[3000];

	dn_image_distort(known, 1, 1, 3, .1f, 1.5f, .5f);
	CU_ASSERT(fabs(known[0] - .4) < 1e-6 && fabs(known[1] - .37) < 1e-6 && fabs(known[2]) < 1e-6);
	for (size_t s = 0; s < sizeof(by) / sizeof(by[0]); s++) {
		fill_random(x, 3000, (int)s);
		for (int i = 0; i < 100; i++)
			x[i] = x[1000 + i] = x[2000 + i]; /* greys */
		for (int i = 0; i < 1000; i++) {
			double c[3] = { x[i], x[1000 + i], x[2000 + i] };

			naive_distort(c, by[s][0], by[s][1], by[s][2]);
			for (int k = 0; k < 3; k++)
				want[1000 * k + i] = (float)c[k];
		}
		dn_image_distort(x, 50, 20, 3, by[s][0], by[s][1], by[s][2]);
		CHECK_CLOSE(x, want, 3000, 8e-6); /* a hue in float, times 6 and the saturation's 3 */
	}
}

/* A hue that comes to exactly the full circle is red again. */
static void the_circle_of_hues_closes(void)
{
	float x[3] = { 183 / 255.0f, 163 / 255.0f, 175 / 255.0f }; /* hue .9 */
	double c[3] = { x[0], x[1], x[2] };

	naive_distort(c, .1f, 1, 1);
	dn_image_distort(x, 1, 1, 3, .1f, 1, 1);
	for (int k = 0; k < 3; k++)
		CU_ASSERT(fabs(x[k] - c[k]) < 1e-6);
}

static void grey_has_exposure_only(void)
{
	float x[4] = { 0, .25f, .5f, .75f };

	dn_image_distort(x, 2, 2, 1, .3f, 2, 1.5f);
	CU_ASSERT_EQUAL(x[0], 0);
	CU_ASSERT_EQUAL(x[1], .375f);
	CU_ASSERT_EQUAL(x[2], .75f);
	CU_ASSERT_EQUAL(x[3], 1);
}

/* ---- augmentation ---- */

static struct dn_augment all(void)
{
	return (struct dn_augment){ .min_ratio = .8,
				    .max_ratio = 1.5,
				    .angle = 10,
				    .aspect = 1.25,
				    .hue = .1,
				    .saturation = 1.5,
				    .exposure = 2,
				    .flip = true };
}

static void draws_depend_on_seed_update_and_slot_alone(void)
{
	struct dn_augment a = all();
	struct dn_augment_draw d, e;

	dn_augment_draw(&d, &a, 1, 7, 3, 100, 80, 32, 32);
	dn_augment_draw(&e, &a, 1, 7, 3, 100, 80, 32, 32);
	CU_ASSERT_EQUAL(memcmp(&d.crop, &e.crop, sizeof(d.crop)), 0);
	CU_ASSERT(d.flip == e.flip && d.hue == e.hue && d.saturation == e.saturation && d.exposure == e.exposure);
	for (int k = 0; k < 3; k++) {
		dn_augment_draw(&e, &a, 1 + (k == 0), 7 + (k == 1), 3 + (k == 2), 100, 80, 32, 32);
		CU_ASSERT(d.crop.rad != e.crop.rad && d.crop.dx != e.crop.dx && d.crop.dy != e.crop.dy && d.hue != e.hue &&
			  d.saturation != e.saturation && d.exposure != e.exposure);
	}
}

/* Bounds of 10,000 draws, and means within 5 standard deviations. */
static void draws_fill_their_ranges_evenly(void)
{
	struct dn_augment a = all();
	double rad = 0, hue = 0, dx = 0, aspect_log = 0, exposure_log = 0;
	int flips = 0, n = 10000, sides[50] = { 0 };

	for (int i = 0; i < n; i++) {
		struct dn_augment_draw d;
		double side, mx, my;

		dn_augment_draw(&d, &a, 3, 1 + (uint64_t)i / 64, (uint64_t)i % 64, 100, 80, 32, 32);
		CU_ASSERT_FATAL(fabs(d.crop.rad) <= 10 * M_PI / 180);
		CU_ASSERT_FATAL(fabs(d.hue) <= .1);
		CU_ASSERT_FATAL(d.crop.aspect >= 1 / 1.25 && d.crop.aspect <= 1.25);
		CU_ASSERT_FATAL(d.saturation >= 1 / 1.5 && d.saturation <= 1.5);
		CU_ASSERT_FATAL(d.exposure >= .5 && d.exposure <= 2);
		side = d.crop.scale * fmin(80, 100 * d.crop.aspect); /* Darknet's rule for square nets */
		CU_ASSERT_FATAL(fabs(side - round(side)) < 1e-9 && side > 24.5 && side < 48.5); /* .8 * 32 = 25.6: 25 */
		sides[(int)round(side)]++;
		mx = fabs(100 * d.crop.scale / d.crop.aspect - 32) / 2;
		my = fabs(80 * d.crop.scale - 32) / 2;
		CU_ASSERT_FATAL(fabs(d.crop.dx) <= mx && fabs(d.crop.dy) <= my);
		rad += d.crop.rad / (10 * M_PI / 180);
		hue += d.hue / .1;
		dx += d.crop.dx / mx;
		aspect_log += log(d.crop.aspect);
		exposure_log += log(d.exposure);
		flips += d.flip;
	}
	/* uniform on [-1, 1]: deviation .577; of a log at most log 2 */
	CU_ASSERT(fabs(rad) < 5 * .577 * 100 && fabs(hue) < 5 * .577 * 100 && fabs(dx) < 5 * .577 * 100);
	CU_ASSERT(fabs(aspect_log) < 5 * .23 * 100 && fabs(exposure_log) < 5 * .7 * 100);
	CU_ASSERT(flips > 4750 && flips < 5250);
	for (int s = 25; s <= 48; s++)
		CU_ASSERT(sides[s] > 300 && sides[s] < 540); /* 417 each, deviation 20 */
}

/* Without turning, a crop no smaller than the net lies inside, whatever the shapes. */
static void crops_stay_inside_for_nets_that_are_not_square_too(void)
{
	static const int t[][4] = {
		{ 100, 80, 32, 32 }, { 100, 80, 40, 20 }, { 80, 100, 40, 20 }, { 60, 60, 20, 50 }, { 500, 40, 16, 24 }
	};
	struct dn_augment a = { .min_ratio = 1, .max_ratio = 1.5, .aspect = 1, .saturation = 1, .exposure = 1, .flip = true };

	for (size_t s = 0; s < sizeof(t) / sizeof(t[0]); s++)
		for (int i = 0; i < 500; i++) {
			struct dn_augment_draw d;
			double x[2], y[2];

			dn_augment_draw(&d, &a, 3, 1, (uint64_t)i, t[s][0], t[s][1], t[s][2], t[s][3]);
			for (int k = 0; k < 2; k++) {
				x[k] = (k * t[s][2] - t[s][2] / 2. + d.crop.dx) / d.crop.scale * d.crop.aspect + t[s][0] / 2.;
				y[k] = (k * t[s][3] - t[s][3] / 2. + d.crop.dy) / d.crop.scale + t[s][1] / 2.;
			}
			CU_ASSERT_FATAL(x[0] > -1e-9 && x[1] < t[s][0] + 1e-9 && y[0] > -1e-9 && y[1] < t[s][1] + 1e-9);
		}
}

static void applying_is_crop_then_mirror_then_colour(void)
{
	struct dn_augment a = all();
	unsigned char p[3 * 40 * 30];
	struct dn_view v = dn_view_bytes(p, 40, 30, 3);
	int flipped = 0;

	paint(p, 40, 30, 3, 2);
	for (int n = 0; n < 20; n++) {
		float x[3 * 40 * 30], out[3 * 16 * 12], want[3 * 16 * 12];
		struct dn_augment_draw d;

		a.center = n >= 15;
		dn_augment_draw(&d, &a, 9, 1, (uint64_t)n, 40, 30, 16, 12);
		flipped += d.flip;
		dn_image_crop(&v, 0, 0, x, 40, 30);
		for (int j = 0; j < 12; j++)
			for (int i = 0; i < 16; i++) {
				double b = (j - 6. + d.crop.dy) / d.crop.scale, c[3];
				double e = ((d.flip ? 15 - i : i) - 8. + d.crop.dx) / d.crop.scale * d.crop.aspect;

				for (int k = 0; k < 3; k++)
					c[k] = naive_point(x, 40, 30, cos(d.crop.rad) * e - sin(d.crop.rad) * b + 20,
							   sin(d.crop.rad) * e + cos(d.crop.rad) * b + 15, k);
				if (a.center)
					for (int k = 0; k < 3; k++) {
						float sq[900];

						for (int q = 0; q < 900; q++)
							sq[q] = x[1200 * k + q / 30 * 40 + q % 30 + 5];
						c[k] = naive_resize(sq, 30, 30, 16, 12, d.flip ? 15 - i : i, j, 0);
					}
				naive_distort(c, d.hue, d.saturation, d.exposure);
				for (int k = 0; k < 3; k++)
					want[(k * 12 + j) * 16 + i] = (float)c[k];
			}
		dn_augment_apply(&a, &d, &v, out, 16, 12);
		CHECK_CLOSE(out, want, 576, 2e-4); /* near a grey a hue is a quotient of small differences */
	}
	CU_ASSERT(flipped > 3 && flipped < 17);
}

static int read_augment(struct dn_augment *a, const char *keys, int64_t w)
{
	struct dn_cfg *cfg = NULL;
	char text[500];
	int err;

	snprintf(text, sizeof(text), "[net]\n%s", keys);
	err = dn_cfg_parse(&cfg, text, strlen(text), "n.cfg", true);
	if (!err)
		err = dn_augment_read(a, cfg->net, w);
	dn_cfg_destroy(cfg);
	return err;
}

static void keys_of_net_are_read_with_darknet_s_defaults(void)
{
	struct dn_augment a;

	CHECK_OK_FATAL(read_augment(&a, "", 224));
	CU_ASSERT(a.min_ratio == 1 && a.max_ratio == 2 && a.angle == 0 && a.aspect == 1 && a.hue == 0 && a.saturation == 1 &&
		  a.exposure == 1 && a.flip && !a.center);
	CHECK_OK_FATAL(read_augment(&a,
				    "min_crop=128\nmax_crop=448\nangle=7\nhue=.1\nsaturation=.75\nexposure=1.5\naspect=2\n"
				    "center=1\nflip=0\n",
				    224));
	CU_ASSERT(a.min_ratio == 128. / 224 && a.max_ratio == 2 && a.angle == 7 && a.hue == .1 && a.saturation == .75 &&
		  a.exposure == 1.5 && a.aspect == 2 && a.center && !a.flip);
	CHECK_OK_FATAL(read_augment(&a, "min_ratio=.5\nmax_ratio=1\nmin_crop=3\n", 224));
	CU_ASSERT(a.min_ratio == .5 && a.max_ratio == 1);
	CHECK_FAILS(read_augment(&a, "min_crop=300\nmax_crop=200\n", 100), -EINVAL, "crops from 3 to 2 times");
	CHECK_FAILS(read_augment(&a, "aspect=0\n", 100), -EINVAL, "n.cfg:2: [net] aspect=0");
	CHECK_FAILS(read_augment(&a, "saturation=-1\n", 100), -EINVAL, "saturation=-1");
	CHECK_FAILS(read_augment(&a, "min_ratio=0\n", 100), -EINVAL, "min_ratio=0");
	CHECK_FAILS(read_augment(&a, "hue=2\n", 100), -EINVAL, "hue=2: must be from -1 to 1");
	CHECK_FAILS(read_augment(&a, "center=2\n", 100), -EINVAL, "center=2");
	CHECK_FAILS(read_augment(&a, "", 0), -EINVAL, "a net that has a width");
	CU_ASSERT_EQUAL(a.min_ratio, .5); /* untouched by errors */
}

/* The crop of min_crop pixels is one of min_crop pixels, whatever min_crop / width loses. */
static void crops_of_whole_pixels_keep_their_side(void)
{
	for (int w = 1; w <= 512; w += 7)
		for (int crop = 1; crop <= 2 * w; crop += 5) {
			struct dn_augment a = { .min_ratio = (double)crop / w,
						.max_ratio = (double)crop / w,
						.aspect = 1,
						.saturation = 1,
						.exposure = 1 };
			struct dn_augment_draw d;

			dn_augment_draw(&d, &a, 0, 1, 0, 77, 77, w, w);
			CU_ASSERT_FATAL(fabs(d.crop.scale * 77 - crop) < 1e-6);
		}
}

/* ---- PNG files ---- */

static void a_written_png_reads_back(void)
{
	unsigned char p[3 * 37 * 21];

	for (int c = 1; c <= 3; c += 2) {
		paint(p, 37, 21, c, c);
		CHECK_OK(dn_png_write(in_folder("w.png"), p, 37, 21, c));
		check_file(in_folder("w.png"), 37, 21, c, p);
	}
	CHECK_FAILS(dn_png_write(in_folder("w2.png"), p, 0, 21, 3), -EINVAL, "0 x 21 pixels");
	CHECK_FAILS(dn_png_write(in_folder("w2.png"), p, 3, 3, 4), -ENOTSUP, "4 channels");
	CHECK_FAILS(dn_png_write(in_folder("none/w.png"), p, 3, 3, 3), -ENOENT, "none/w.png");
	CU_ASSERT(access(in_folder("w2.png"), F_OK) != 0);
}

static void a_sheet_shows_every_image_at_its_place(void)
{
	float x[5 * 3 * 4 * 6];
	struct dn_image im = { 0 };

	for (int i = 0; i < 360; i++)
		x[i] = (float)(i / 72 * 50) / 255.0f;
	x[0] = 3;
	x[1] = -1;
	x[2] = NAN;
	CHECK_OK_FATAL(dn_sheet_write(in_folder("s.png"), x, 5, 6, 4, 3, 2));
	CHECK_OK_FATAL(dn_image_read(&im, in_folder("s.png"), 3));
	CHECK_EQ(im.w, 13);
	CHECK_EQ(im.h, 14);
	CU_ASSERT(im.x[0] == 1 && im.x[1] == 0 && im.x[2] == 0);
	for (int n = 1; n < 5; n++)
		CHECK_EQ(lrintf(255 * im.x[(n / 2 * 5 + 1) * 13 + n % 2 * 7 + 2]), 50 * n);
	CHECK_EQ(lrintf(255 * im.x[6]), 128);
	CHECK_EQ(lrintf(255 * im.x[13 * 13 + 12]), 128); /* no sixth image */
	dn_image_fini(&im);
	CHECK_FAILS(dn_sheet_write(in_folder("s.png"), x, 0, 6, 4, 3, 2), -EINVAL, "a sheet of 0 images");
	CHECK_FAILS(dn_sheet_write(in_folder("s.png"), x, 1 << 20, 6, 4, 3, 1), -EINVAL, "too large");
}

static const struct check_case cases[] = {
	CASE(lossless_files_give_every_pixel_by_plane),
	CASE(palettes_16_bits_and_alpha_become_colours_of_8_bits),
	CASE(a_jpeg_is_near_what_was_packed),
	CASE(colours_become_grey_by_their_brightness),
	CASE(files_that_are_no_images_say_what_they_are),
	CASE(sizes_that_the_file_cannot_hold_are_refused),
	CASE(files_that_were_cut_off_are_errors),
	CASE(damaged_files_never_crash),
	CASE(running_out_of_memory_is_an_error),
	CASE(resizing_is_bilinear_with_corners_on_corners),
	CASE(the_last_row_and_column_are_exact_for_every_size),
	CASE(a_letterbox_holds_all_of_the_image_on_grey),
	CASE(crops_repeat_the_border_and_the_central_one_is_a_square),
	CASE(turning_samples_zero_outside),
	CASE(bytes_and_floats_give_the_same_bits),
	CASE(flipping_twice_is_nothing_and_once_mirrors),
	CASE(colours_turn_in_hue_and_are_clamped),
	CASE(the_circle_of_hues_closes),
	CASE(grey_has_exposure_only),
	CASE(draws_depend_on_seed_update_and_slot_alone),
	CASE(draws_fill_their_ranges_evenly),
	CASE(crops_stay_inside_for_nets_that_are_not_square_too),
	CASE(applying_is_crop_then_mirror_then_colour),
	CASE(keys_of_net_are_read_with_darknet_s_defaults),
	CASE(crops_of_whole_pixels_keep_their_side),
	CASE(a_written_png_reads_back),
	CASE(a_sheet_shows_every_image_at_its_place),
	{ NULL, NULL },
};

int main(void)
{
	return run_in_folder("image", cases);
}
