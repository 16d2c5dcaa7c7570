/* cpu: convolution with weights of its own at every output point.
 *
 * The weights are far larger than everything else and are read once for several images: a piece of the windows of
 * those images is laid out like a weight row, so that all loops run along memory. Every sum has a fixed order.
 */
#include <string.h>
#include "backend/backend_priv.h"
#include "backend/cpu/cpu_priv.h"

#define PIECE 512 /* taps of a window that are handled together */
#define IMAGES 8
#define FILTERS 64
#define LANES 16

/* taps [at, at + m) of the window of image n at output point p; outside the input they are 0 */
static void gather(const struct dn_conv_desc *d, const float *x, int64_t n, int64_t p, int64_t at, int64_t m, float *patch)
{
	int64_t top = p / d->y.w * d->stride - d->pad, left = p % d->y.w * d->stride - d->pad;
	int64_t c = at / (d->size * d->size), ky = at / d->size % d->size, kx = at % d->size;

	for (int64_t i = 0; i < m; i++) {
		int64_t iy = top + ky, ix = left + kx;
		bool in = iy >= 0 && iy < d->x.h && ix >= 0 && ix < d->x.w;

		patch[i] = in ? x[((n * d->x.c + c) * d->x.h + iy) * d->x.w + ix] : 0;
		if (++kx == d->size) {
			kx = 0;
			if (++ky == d->size) {
				ky = 0;
				c++;
			}
		}
	}
}

static void scatter(const struct dn_conv_desc *d, float *dx, int64_t n, int64_t p, int64_t at, int64_t m, const float *patch)
{
	int64_t top = p / d->y.w * d->stride - d->pad, left = p % d->y.w * d->stride - d->pad;
	int64_t c = at / (d->size * d->size), ky = at / d->size % d->size, kx = at % d->size;

	for (int64_t i = 0; i < m; i++) {
		int64_t iy = top + ky, ix = left + kx;

		if (iy >= 0 && iy < d->x.h && ix >= 0 && ix < d->x.w)
			dx[((n * d->x.c + c) * d->x.h + iy) * d->x.w + ix] += patch[i];
		if (++kx == d->size) {
			kx = 0;
			if (++ky == d->size) {
				ky = 0;
				c++;
			}
		}
	}
}

static double dot(const float *a, const float *b, int64_t n)
{
	float s[LANES] = { 0 };
	double sum = 0;
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
			s[l] += a[i + l] * b[i + l];
	for (; i < n; i++)
		s[i % LANES] += a[i] * b[i];
	for (int l = 0; l < LANES; l++)
		sum += (double)s[l];
	return sum;
}

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t products(const struct dn_conv_desc *d)
{
	return d->x.n * d->y.h * d->y.w * d->y.c * d->x.c * d->size * d->size;
}

/* filters [k0, k0 + nk) and images [n0, n0 + nn) at point p */
static void forward_point(const struct dn_conv_desc *d, int64_t p, int64_t k0, int64_t nk, int64_t n0, int64_t nn, const float *x,
			  const float *w, float *y)
{
	int64_t points = d->y.h * d->y.w, taps = d->x.c * d->size * d->size;
	float patch[IMAGES][PIECE];
	double sum[FILTERS][IMAGES] = { { 0 } };

	for (int64_t at = 0; at < taps; at += PIECE) {
		int64_t m = smaller(PIECE, taps - at);

		for (int64_t i = 0; i < nn; i++)
			gather(d, x, n0 + i, p, at, m, patch[i]);
		for (int64_t k = 0; k < nk; k++)
			for (int64_t i = 0; i < nn; i++)
				sum[k][i] += dot(w + (p * d->y.c + k0 + k) * taps + at, patch[i], m);
	}
	for (int64_t k = 0; k < nk; k++)
		for (int64_t i = 0; i < nn; i++)
			y[((n0 + i) * d->y.c + k0 + k) * points + p] = (float)sum[k][i];
}

int cpu_local_forward(struct dn_stream *st, const struct dn_conv_desc *d, const void *px, const void *pw, void *py)
{
	const float *x = px, *w = pw;
	float *y = py;
	int nt = stream_threads(st), err = local_desc_check(&cpu_limits, "local_forward", d);
	int64_t points = d->y.h * d->y.w;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (products(d) >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < points; p++)
		for (int64_t n = 0; n < d->x.n; n += IMAGES)
			for (int64_t k = 0; k < d->y.c; k += FILTERS)
				forward_point(d, p, k, smaller(FILTERS, d->y.c - k), n, smaller(IMAGES, d->x.n - n), x, w, y);
	return 0;
}

/* the sum of one weight runs over the images in order; @acc: of filter @k0 alone, and then it is added */
static void weights_point(const struct dn_conv_desc *d, int64_t p, int64_t at, int64_t m, int64_t k0, const float *x,
			  const float *dy, float *dw, bool acc)
{
	int64_t points = d->y.h * d->y.w, taps = d->x.c * d->size * d->size, end = acc ? k0 + 1 : d->y.c;
	float patch[IMAGES][PIECE], own[PIECE] = { 0 };

	for (int64_t n = 0; n < d->x.n; n += IMAGES) {
		int64_t nn = smaller(IMAGES, d->x.n - n);

		for (int64_t i = 0; i < nn; i++)
			gather(d, x, n + i, p, at, m, patch[i]);
		for (int64_t k = k0; k < end; k++) {
			float *row = acc ? own : dw + (p * d->y.c + k) * taps + at;

			if (!n)
				memset(row, 0, (size_t)m * sizeof(*row));
			for (int64_t i = 0; i < nn; i++) {
				float g = dy[((n + i) * d->y.c + k) * points + p];

				for (int64_t e = 0; e < m; e++)
					row[e] += patch[i][e] * g;
			}
		}
	}
	for (int64_t e = 0; e < m && acc; e++)
		dw[(p * d->y.c + k0) * taps + at + e] += own[e];
}

int cpu_local_backward_weights(struct dn_stream *st, const struct dn_conv_desc *d, const void *px, const void *pdy, float *dw,
			       bool acc)
{
	const float *x = px, *dy = pdy;
	int nt = stream_threads(st), err = local_desc_check(&cpu_limits, "local_backward_weights", d);
	int64_t points = d->y.h * d->y.w, taps = d->x.c * d->size * d->size;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (products(d) >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < points; p++)
		for (int64_t at = 0; at < taps; at += PIECE)
			for (int64_t k = 0; k < (acc ? d->y.c : 1); k++)
				weights_point(d, p, at, smaller(PIECE, taps - at), k, x, dy, dw, acc);
	return 0;
}

static void data_point(const struct dn_conv_desc *d, int64_t p, int64_t at, int64_t m, const float *dy, const float *w, float *dx)
{
	int64_t points = d->y.h * d->y.w, taps = d->x.c * d->size * d->size;
	float patch[IMAGES][PIECE];

	for (int64_t n = 0; n < d->x.n; n += IMAGES) {
		int64_t nn = smaller(IMAGES, d->x.n - n);

		memset(patch, 0, sizeof(patch));
		for (int64_t k = 0; k < d->y.c; k++) {
			const float *row = w + (p * d->y.c + k) * taps + at;

			for (int64_t i = 0; i < nn; i++) {
				float g = dy[((n + i) * d->y.c + k) * points + p];

				for (int64_t e = 0; e < m; e++)
					patch[i][e] += row[e] * g;
			}
		}
		for (int64_t i = 0; i < nn; i++)
			scatter(d, dx, n + i, p, at, m, patch[i]);
	}
}

/* Windows overlap, so a thread owns whole channels of dx. */
int cpu_local_backward_data(struct dn_stream *st, const struct dn_conv_desc *d, const void *pdy, const void *pw, void *pdx,
			    bool acc)
{
	const float *dy = pdy, *w = pw;
	float *dx = pdx;
	int nt = stream_threads(st), err = local_desc_check(&cpu_limits, "local_backward_data", d);
	int64_t points = d->y.h * d->y.w, square = d->size * d->size, plane = d->x.h * d->x.w;
	int64_t each = !err && square < PIECE ? PIECE / square : 1, groups = (d->x.c + each - 1) / each;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (products(d) >= CPU_PARALLEL_MIN)
	for (int64_t g = 0; g < groups; g++) {
		int64_t c = g * each, nc = smaller(each, d->x.c - c);

		for (int64_t n = 0; n < d->x.n && !acc; n++)
			memset(dx + (n * d->x.c + c) * plane, 0, (size_t)(nc * plane) * sizeof(*dx));
		for (int64_t p = 0; p < points; p++)
			for (int64_t at = c * square; at < (c + nc) * square; at += PIECE)
				data_point(d, p, at, smaller(PIECE, (c + nc) * square - at), dy, w, dx);
	}
	return 0;
}
