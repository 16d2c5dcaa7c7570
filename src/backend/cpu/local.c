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
	int64_t top = p / d->ow * d->stride - d->pad, left = p % d->ow * d->stride - d->pad;
	int64_t c = at / (d->size * d->size), ky = at / d->size % d->size, kx = at % d->size;

	for (int64_t i = 0; i < m; i++) {
		int64_t iy = top + ky, ix = left + kx;
		bool in = iy >= 0 && iy < d->h && ix >= 0 && ix < d->w;

		patch[i] = in ? x[((n * d->c + c) * d->h + iy) * d->w + ix] : 0;
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
	int64_t top = p / d->ow * d->stride - d->pad, left = p % d->ow * d->stride - d->pad;
	int64_t c = at / (d->size * d->size), ky = at / d->size % d->size, kx = at % d->size;

	for (int64_t i = 0; i < m; i++) {
		int64_t iy = top + ky, ix = left + kx;

		if (iy >= 0 && iy < d->h && ix >= 0 && ix < d->w)
			dx[((n * d->c + c) * d->h + iy) * d->w + ix] += patch[i];
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
	return d->n * d->oh * d->ow * d->k * d->c * d->size * d->size;
}

/* filters [k0, k0 + nk) and images [n0, n0 + nn) at point p */
static void forward_point(const struct dn_conv_desc *d, int64_t p, int64_t k0, int64_t nk, int64_t n0, int64_t nn, const float *x,
			  const float *w, float *y)
{
	int64_t points = d->oh * d->ow, taps = d->c * d->size * d->size;
	float patch[IMAGES][PIECE];
	double sum[FILTERS][IMAGES] = { { 0 } };

	for (int64_t at = 0; at < taps; at += PIECE) {
		int64_t m = smaller(PIECE, taps - at);

		for (int64_t i = 0; i < nn; i++)
			gather(d, x, n0 + i, p, at, m, patch[i]);
		for (int64_t k = 0; k < nk; k++)
			for (int64_t i = 0; i < nn; i++)
				sum[k][i] += dot(w + (p * d->k + k0 + k) * taps + at, patch[i], m);
	}
	for (int64_t k = 0; k < nk; k++)
		for (int64_t i = 0; i < nn; i++)
			y[((n0 + i) * d->k + k0 + k) * points + p] = (float)sum[k][i];
}

int cpu_local_forward(struct dn_stream *st, const struct dn_conv_desc *d, const float *x, const float *w, float *y)
{
	int nt = stream_threads(st), err = local_desc_check(d);
	int64_t points = d->oh * d->ow;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (products(d) >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < points; p++)
		for (int64_t n = 0; n < d->n; n += IMAGES)
			for (int64_t k = 0; k < d->k; k += FILTERS)
				forward_point(d, p, k, smaller(FILTERS, d->k - k), n, smaller(IMAGES, d->n - n), x, w, y);
	return 0;
}

/* the sum of one weight runs over the images in order */
static void weights_point(const struct dn_conv_desc *d, int64_t p, int64_t at, int64_t m, const float *x, const float *dy,
			  float *dw)
{
	int64_t points = d->oh * d->ow, taps = d->c * d->size * d->size;
	float patch[IMAGES][PIECE];

	for (int64_t n = 0; n < d->n; n += IMAGES) {
		int64_t nn = smaller(IMAGES, d->n - n);

		for (int64_t i = 0; i < nn; i++)
			gather(d, x, n + i, p, at, m, patch[i]);
		for (int64_t k = 0; k < d->k; k++) {
			float *row = dw + (p * d->k + k) * taps + at;

			if (!n)
				memset(row, 0, (size_t)m * sizeof(*row));
			for (int64_t i = 0; i < nn; i++) {
				float g = dy[((n + i) * d->k + k) * points + p];

				for (int64_t e = 0; e < m; e++)
					row[e] += patch[i][e] * g;
			}
		}
	}
}

int cpu_local_backward_weights(struct dn_stream *st, const struct dn_conv_desc *d, const float *x, const float *dy, float *dw)
{
	int nt = stream_threads(st), err = local_desc_check(d);
	int64_t points = d->oh * d->ow, taps = d->c * d->size * d->size;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (products(d) >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < points; p++)
		for (int64_t at = 0; at < taps; at += PIECE)
			weights_point(d, p, at, smaller(PIECE, taps - at), x, dy, dw);
	return 0;
}

static void data_point(const struct dn_conv_desc *d, int64_t p, int64_t at, int64_t m, const float *dy, const float *w, float *dx)
{
	int64_t points = d->oh * d->ow, taps = d->c * d->size * d->size;
	float patch[IMAGES][PIECE];

	for (int64_t n = 0; n < d->n; n += IMAGES) {
		int64_t nn = smaller(IMAGES, d->n - n);

		memset(patch, 0, sizeof(patch));
		for (int64_t k = 0; k < d->k; k++) {
			const float *row = w + (p * d->k + k) * taps + at;

			for (int64_t i = 0; i < nn; i++) {
				float g = dy[((n + i) * d->k + k) * points + p];

				for (int64_t e = 0; e < m; e++)
					patch[i][e] += row[e] * g;
			}
		}
		for (int64_t i = 0; i < nn; i++)
			scatter(d, dx, n + i, p, at, m, patch[i]);
	}
}

/* Windows overlap, so a thread owns whole channels of dx. */
int cpu_local_backward_data(struct dn_stream *st, const struct dn_conv_desc *d, const float *dy, const float *w, float *dx,
			    bool acc)
{
	int nt = stream_threads(st), err = local_desc_check(d);
	int64_t points = d->oh * d->ow, square = d->size * d->size, plane = d->h * d->w;
	int64_t each = square < PIECE ? PIECE / square : 1, groups = (d->c + each - 1) / each;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (products(d) >= CPU_PARALLEL_MIN)
	for (int64_t g = 0; g < groups; g++) {
		int64_t c = g * each, nc = smaller(each, d->c - c);

		for (int64_t n = 0; n < d->n && !acc; n++)
			memset(dx + (n * d->c + c) * plane, 0, (size_t)(nc * plane) * sizeof(*dx));
		for (int64_t p = 0; p < points; p++)
			for (int64_t at = c * square; at < (c + nc) * square; at += PIECE)
				data_point(d, p, at, smaller(PIECE, (c + nc) * square - at), dy, w, dx);
	}
	return 0;
}
