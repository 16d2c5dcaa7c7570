/* Images of another size: Darknet's resampling, its crops and its letterbox. */
#include "data/image.h"

#include <math.h>
#include <string.h>

#define U1(i) (float)(i) / 255.0f
#define U4(i) U1(i), U1((i) + 1), U1((i) + 2), U1((i) + 3)
#define U16(i) U4(i), U4((i) + 4), U4((i) + 8), U4((i) + 12)
#define U64(i) U16(i), U16((i) + 16), U16((i) + 32), U16((i) + 48)

static const float unit[256] = { U64(0), U64(64), U64(128), U64(192) };

static inline float at(const struct dn_view *v, int64_t x, int64_t y, int64_t k)
{
	return v->x ? v->x[k * v->plane + y * v->row + x] : unit[v->bytes[(y * v->row + x) * v->c + k]];
}

static inline float at_or_0(const struct dn_view *v, int64_t x, int64_t y, int64_t k)
{
	return x < 0 || y < 0 || x >= v->w || y >= v->h ? 0 : at(v, x, y, k);
}

/* The part of @v from (x, y) on; it lies inside. */
static struct dn_view window(const struct dn_view *v, int64_t x, int64_t y, int64_t w, int64_t h)
{
	struct dn_view o = *v;

	o.w = w;
	o.h = h;
	if (o.x)
		o.x += y * v->row + x;
	else
		o.bytes += (y * v->row + x) * v->c;
	return o;
}

/* Where output @i of @n stands between inputs, of which there are @of: *to of the way from *from to *from + 1. */
static void place_of(int64_t i, int64_t n, int64_t of, int64_t *from, float *to)
{
	float s;

	*from = of - 1;
	*to = 0;
	if (i == n - 1 || of == 1)
		return; /* the last one exactly, whatever is lost in rounding */
	s = (float)i * ((float)(of - 1) / (float)(n - 1));
	if ((int64_t)s >= of - 1)
		return;
	*from = (int64_t)s;
	*to = s - (float)*from;
}

static inline float across(const struct dn_view *v, int64_t x, float dx, int64_t y, int64_t k)
{
	return dx > 0 ? (1 - dx) * at(v, x, y, k) + dx * at(v, x + 1, y, k) : at(v, x, y, k);
}

/* @out is the corner of a window of rows of @row values and planes of @plane. */
static void resize_into(const struct dn_view *v, float *out, int64_t w, int64_t h, int64_t row, int64_t plane)
{
	for (int64_t j = 0; j < h; j++) {
		int64_t y;
		float dy;

		place_of(j, h, v->h, &y, &dy);
		for (int64_t i = 0; i < w; i++) {
			int64_t x;
			float dx;

			place_of(i, w, v->w, &x, &dx);
			for (int64_t k = 0; k < v->c; k++) {
				float a = across(v, x, dx, y, k);

				if (dy > 0)
					a = (1 - dy) * a + dy * across(v, x, dx, y + 1, k);
				out[k * plane + j * row + i] = a;
			}
		}
	}
}

void dn_image_resize(const struct dn_view *v, float *out, int64_t w, int64_t h)
{
	resize_into(v, out, w, h, w, w * h);
}

static int64_t at_least_1(int64_t x)
{
	return x < 1 ? 1 : x;
}

void dn_image_size_letterbox(int64_t bw, int64_t bh, int64_t *w, int64_t *h)
{
	int64_t iw = *w, ih = *h;

	if ((float)bw / (float)iw < (float)bh / (float)ih) {
		*w = bw;
		*h = at_least_1(ih * bw / iw);
	} else {
		*h = bh;
		*w = at_least_1(iw * bh / ih);
	}
	if (*w > bw) /* the quotients were equal when rounded */
		*w = bw;
	if (*h > bh)
		*h = bh;
}

void dn_image_letterbox(const struct dn_view *v, float *out, int64_t w, int64_t h)
{
	int64_t nw = v->w, nh = v->h;

	dn_image_size_letterbox(w, h, &nw, &nh);
	for (int64_t i = 0; i < w * h * v->c; i++)
		out[i] = .5f;
	resize_into(v, out + (h - nh) / 2 * w + (w - nw) / 2, nw, nh, w, w * h);
}

static int64_t clamp(int64_t x, int64_t n)
{
	return x < 0 ? 0 : x < n ? x : n - 1;
}

void dn_image_crop(const struct dn_view *v, int64_t dx, int64_t dy, float *out, int64_t w, int64_t h)
{
	for (int64_t k = 0; k < v->c; k++)
		for (int64_t y = 0; y < h; y++)
			for (int64_t x = 0; x < w; x++)
				out[(k * h + y) * w + x] = at(v, clamp(x + dx, v->w), clamp(y + dy, v->h), k);
}

void dn_image_center_crop(const struct dn_view *v, float *out, int64_t w, int64_t h)
{
	int64_t side = v->w < v->h ? v->w : v->h;
	struct dn_view o = window(v, (v->w - side) / 2, (v->h - side) / 2, side, side);

	dn_image_resize(&o, out, w, h);
}

void dn_image_fit(const struct dn_view *v, enum dn_fit fit, float *out, int64_t w, int64_t h)
{
	switch (fit) {
	case DN_FIT_LETTERBOX:
		dn_image_letterbox(v, out, w, h);
		return;
	case DN_FIT_CENTER_CROP:
		dn_image_center_crop(v, out, w, h);
		return;
	}
}

/* All channels of the point (x, y); o[k * plane]. */
static void point(const struct dn_view *v, float x, float y, float *o, int64_t plane)
{
	float fx = floorf(x), fy = floorf(y);
	int64_t ix, iy;
	float dx = x - fx, dy = y - fy;
	bool inside;

	if (!(fx >= -1 && fy >= -1 && fx < (float)v->w && fy < (float)v->h)) { /* before the numbers leave int64 */
		for (int64_t k = 0; k < v->c; k++)
			o[k * plane] = 0;
		return;
	}
	ix = (int64_t)fx;
	iy = (int64_t)fy;
	inside = ix >= 0 && iy >= 0 && ix + 1 < v->w && iy + 1 < v->h;
	for (int64_t k = 0; k < v->c; k++) {
		float a, b, c, d;

		if (inside) {
			a = at(v, ix, iy, k);
			b = at(v, ix, iy + 1, k);
			c = at(v, ix + 1, iy, k);
			d = at(v, ix + 1, iy + 1, k);
		} else {
			a = at_or_0(v, ix, iy, k);
			b = at_or_0(v, ix, iy + 1, k);
			c = at_or_0(v, ix + 1, iy, k);
			d = at_or_0(v, ix + 1, iy + 1, k);
		}
		o[k * plane] = (1 - dy) * (1 - dx) * a + dy * (1 - dx) * b + (1 - dy) * dx * c + dy * dx * d;
	}
}

void dn_image_rotate_crop(const struct dn_view *v, const struct dn_rotate_crop *r, float *out, int64_t w, int64_t h)
{
	double c = cos(r->rad), s = sin(r->rad);
	double cx = (double)v->w / 2, cy = (double)v->h / 2;

	for (int64_t y = 0; y < h; y++) {
		double b = ((double)y - (double)h / 2 + r->dy) / r->scale;

		for (int64_t x = 0; x < w; x++) {
			double a = ((double)x - (double)w / 2 + r->dx) / r->scale * r->aspect;

			point(v, (float)(c * a - s * b + cx), (float)(s * a + c * b + cy), out + y * w + x, w * h);
		}
	}
}

void dn_image_flip(float *x, int64_t w, int64_t h, int64_t c)
{
	for (int64_t j = 0; j < h * c; j++)
		for (int64_t i = 0; i < w / 2; i++) {
			float t = x[j * w + i];

			x[j * w + i] = x[j * w + w - 1 - i];
			x[j * w + w - 1 - i] = t;
		}
}
