/* cpu: ops that move the points of images, or combine those of neighbouring channels, as OpenMP loops.
 *
 * A thread computes whole planes, rows or points, each in one fixed order, so bits do not depend on threads.
 */
#include <math.h>
#include <string.h>
#include "backend/backend_priv.h"
#include "backend/cpu/cpu_priv.h"

#define POINTS 64 /* neighbouring points that go through the channels together */

int cpu_upsample(struct dn_stream *st, const struct dn_tensor *t, int64_t stride, float scale, const void *px, void *py, bool acc)
{
	const float *x = px;
	float *y = py;
	const int64_t planes = t->n * t->c, h = t->h, w = t->w;
	int err = tensor_check(&cpu_limits, "upsample", t);
	int nt = stream_threads(st);
	int64_t ow = w * stride;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (planes * h * stride * ow >= CPU_PARALLEL_MIN)
	for (int64_t r = 0; r < planes * h; r++) {
		const float *from = x + r * w;
		float *to = y + r * stride * ow;

		for (int64_t a = 0; a < stride; a++)
			for (int64_t j = 0; j < w; j++)
				for (int64_t b = 0; b < stride; b++) {
					float *p = &to[a * ow + j * stride + b];

					*p = (acc ? *p : 0) + scale * from[j];
				}
	}
	return 0;
}

int cpu_block_sum(struct dn_stream *st, const struct dn_tensor *t, int64_t stride, float scale, const void *px, void *py,
		  bool acc)
{
	const float *x = px;
	float *y = py;
	const int64_t planes = t->n * t->c, h = t->h, w = t->w;
	int err = tensor_check(&cpu_limits, "block_sum", t);
	int nt = stream_threads(st);
	int64_t iw = w * stride;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (planes * h * stride * iw >= CPU_PARALLEL_MIN)
	for (int64_t r = 0; r < planes * h; r++) {
		const float *from = x + r * stride * iw;
		float *to = y + r * w;

		for (int64_t j = 0; j < w; j++) {
			double sum = 0;
			float v;

			for (int64_t a = 0; a < stride; a++)
				for (int64_t b = 0; b < stride; b++)
					sum += (double)from[a * iw + j * stride + b];
			v = (float)((double)scale * sum);
			to[j] = acc ? to[j] + v : v;
		}
	}
	return 0;
}

int cpu_reorg(struct dn_stream *st, const struct dn_reorg_desc *d, bool narrow, const void *px, void *py, bool acc)
{
	const float *x = px;
	float *y = py;
	int nt = stream_threads(st), err = reorg_desc_check(&cpu_limits, "reorg", d);
	int64_t s = d->stride, c2 = err ? 0 : d->narrow.c / (s * s), ww = d->narrow.w * s;

	if (err)
		return err;
#pragma omp parallel for schedule(static) \
	num_threads(nt) if (d->narrow.n * d->narrow.c * d->narrow.h * d->narrow.w >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->narrow.n * d->narrow.c; p++) {
		int64_t k = p % d->narrow.c, o = k / c2;

		for (int64_t j = 0; j < d->narrow.h; j++) {
			int64_t at = (p * d->narrow.h + j) * d->narrow.w;
			int64_t wide = ((p / d->narrow.c * c2 + k % c2) * d->narrow.h * s + j * s + o / s) * ww + o % s;

			if (narrow && acc)
				for (int64_t i = 0; i < d->narrow.w; i++)
					y[at + i] += x[wide + i * s];
			else if (narrow)
				for (int64_t i = 0; i < d->narrow.w; i++)
					y[at + i] = x[wide + i * s];
			else if (acc)
				for (int64_t i = 0; i < d->narrow.w; i++)
					y[wide + i * s] += x[at + i];
			else
				for (int64_t i = 0; i < d->narrow.w; i++)
					y[wide + i * s] = x[at + i];
		}
	}
	return 0;
}

int cpu_transpose(struct dn_stream *st, const struct dn_tensor *t, const void *px, void *py, bool acc)
{
	const float *x = px;
	float *y = py;
	const int64_t n = t->n, rows = t->c, cols = dn_tensor_plane(t);
	int err = tensor_check(&cpu_limits, "transpose", t);
	int nt = stream_threads(st);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (n * rows * cols >= CPU_PARALLEL_MIN)
	for (int64_t q = 0; q < n * cols; q++) {
		const float *from = x + q / cols * rows * cols + q % cols;
		float *to = y + q * rows;

		for (int64_t r = 0; r < rows; r++)
			to[r] = acc ? to[r] + from[r * cols] : from[r * cols];
	}
	return 0;
}

/* --- crop --- */

int cpu_crop_forward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const void *px, void *py)
{
	const float *x = px;
	float *y = py;
	int nt = stream_threads(st), err = crop_desc_check(&cpu_limits, "crop_forward", d);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->x.n * d->x.c * d->y.h * d->y.w >= CPU_PARALLEL_MIN)
	for (int64_t n = 0; n < d->x.n; n++) {
		int64_t top, left;
		bool flip;

		crop_place(d, num, n, &top, &left, &flip);
		for (int64_t r = 0; r < d->x.c * d->y.h; r++) {
			const float *from = x + ((n * d->x.c + r / d->y.h) * d->x.h + top + r % d->y.h) * d->x.w + left;
			float *to = y + (n * d->x.c * d->y.h + r) * d->y.w;

			for (int64_t j = 0; j < d->y.w; j++)
				to[j] = d->scale * from[flip ? d->y.w - 1 - j : j] + d->shift;
		}
	}
	return 0;
}

int cpu_crop_backward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const void *pdy,
		      void *pdx, bool acc)
{
	const float *dy = pdy;
	float *dx = pdx;
	int nt = stream_threads(st), err = crop_desc_check(&cpu_limits, "crop_backward", d);
	int64_t image = d->x.c * d->x.h * d->x.w;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->x.n * image >= CPU_PARALLEL_MIN)
	for (int64_t n = 0; n < d->x.n; n++) {
		int64_t top, left;
		bool flip;

		if (!acc)
			memset(dx + n * image, 0, (size_t)image * sizeof(*dx));
		crop_place(d, num, n, &top, &left, &flip);
		for (int64_t r = 0; r < d->x.c * d->y.h; r++) {
			float *to = dx + ((n * d->x.c + r / d->y.h) * d->x.h + top + r % d->y.h) * d->x.w + left;
			const float *from = dy + (n * d->x.c * d->y.h + r) * d->y.w;

			for (int64_t j = 0; j < d->y.w; j++)
				to[flip ? d->y.w - 1 - j : j] += d->scale * from[j];
		}
	}
	return 0;
}

/* --- normalisation over channels --- */

int cpu_lrn_forward(struct dn_stream *st, const struct dn_lrn_desc *d, const void *px, float *norm, void *py)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	const float *x = px;
	float *y = py;
	int nt = stream_threads(st), err = lrn_desc_check(&cpu_limits, "lrn_forward", d);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->x.n * d->x.c * hw >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->x.n * d->x.c; p++) {
		int64_t k = p % d->x.c, lo = k - (d->size - 1) / 2, hi = k + d->size / 2;
		const float *image = x + (p - k) * hw;
		float *to = norm + p * hw;

		lo = lo < 0 ? 0 : lo;
		hi = hi >= d->x.c ? d->x.c - 1 : hi;
		for (int64_t at = 0; at < hw; at += POINTS) {
			int64_t m = hw - at < POINTS ? hw - at : POINTS;
			double sum[POINTS] = { 0 };

			for (int64_t q = lo; q <= hi; q++)
				for (int64_t j = 0; j < m; j++) {
					double v = (double)image[q * hw + at + j];

					sum[j] += v * v;
				}
			for (int64_t j = 0; j < m; j++) {
				float v = (float)((double)d->kappa + (double)d->alpha * sum[j]);

				to[at + j] = v;
				y[p * hw + at + j] = x[p * hw + at + j] * powf(v, -d->beta);
			}
		}
	}
	return 0;
}

int cpu_lrn_backward(struct dn_stream *st, const struct dn_lrn_desc *d, const void *px, const float *norm, const void *pdy,
		     void *pdx, bool acc)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	const float *x = px, *dy = pdy;
	float *dx = pdx;
	int nt = stream_threads(st), err = lrn_desc_check(&cpu_limits, "lrn_backward", d);
	double by = 2 * (double)d->alpha * (double)d->beta;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->x.n * d->x.c * hw >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->x.n * d->x.c; p++) {
		int64_t k = p % d->x.c, lo = k - d->size / 2, hi = k + (d->size - 1) / 2, base = (p - k) * hw;

		lo = lo < 0 ? 0 : lo;
		hi = hi >= d->x.c ? d->x.c - 1 : hi;
		for (int64_t at = 0; at < hw; at += POINTS) {
			int64_t m = hw - at < POINTS ? hw - at : POINTS;
			double sum[POINTS] = { 0 };

			for (int64_t q = lo; q <= hi; q++)
				for (int64_t j = 0; j < m; j++) {
					int64_t o = base + q * hw + at + j;

					sum[j] += (double)dy[o] * (double)x[o] * (double)powf(norm[o], -d->beta - 1);
				}
			for (int64_t j = 0; j < m; j++) {
				int64_t o = p * hw + at + j;
				float v = (float)((double)dy[o] * (double)powf(norm[o], -d->beta) - by * (double)x[o] * sum[j]);

				dx[o] = acc ? dx[o] + v : v;
			}
		}
	}
	return 0;
}

int cpu_l2norm_forward(struct dn_stream *st, const struct dn_tensor *t, const void *px, float *norm, void *py)
{
	const float *x = px;
	float *y = py;
	const int64_t n = t->n, c = t->c, hw = dn_tensor_plane(t);
	int err = tensor_check(&cpu_limits, "l2norm_forward", t);
	int nt = stream_threads(st);
	int64_t spans = (hw + POINTS - 1) / POINTS;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (n * c * hw >= CPU_PARALLEL_MIN)
	for (int64_t s = 0; s < n * spans; s++) {
		int64_t i = s / spans, at = s % spans * POINTS, m = hw - at < POINTS ? hw - at : POINTS;
		double sum[POINTS] = { 0 };

		for (int64_t k = 0; k < c; k++)
			for (int64_t j = 0; j < m; j++) {
				double v = (double)x[(i * c + k) * hw + at + j];

				sum[j] += v * v;
			}
		for (int64_t j = 0; j < m; j++) {
			norm[i * hw + at + j] = (float)sqrt(sum[j]);
			sum[j] = sum[j] == 0 ? 0 : 1 / sqrt(sum[j]);
		}
		for (int64_t k = 0; k < c; k++)
			for (int64_t j = 0; j < m; j++)
				y[(i * c + k) * hw + at + j] = (float)((double)x[(i * c + k) * hw + at + j] * sum[j]);
	}
	return 0;
}

int cpu_l2norm_backward(struct dn_stream *st, const struct dn_tensor *t, const void *py, const float *norm, const void *pdy,
			void *pdx, bool acc)
{
	const float *y = py, *dy = pdy;
	float *dx = pdx;
	const int64_t n = t->n, c = t->c, hw = dn_tensor_plane(t);
	int err = tensor_check(&cpu_limits, "l2norm_backward", t);
	int nt = stream_threads(st);
	int64_t spans = (hw + POINTS - 1) / POINTS;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (n * c * hw >= CPU_PARALLEL_MIN)
	for (int64_t s = 0; s < n * spans; s++) {
		int64_t i = s / spans, at = s % spans * POINTS, m = hw - at < POINTS ? hw - at : POINTS;
		double sum[POINTS] = { 0 };

		for (int64_t k = 0; k < c; k++)
			for (int64_t j = 0; j < m; j++) {
				int64_t o = (i * c + k) * hw + at + j;

				sum[j] += (double)y[o] * (double)dy[o];
			}
		for (int64_t k = 0; k < c; k++)
			for (int64_t j = 0; j < m; j++) {
				int64_t o = (i * c + k) * hw + at + j;
				double of = (double)norm[i * hw + at + j];
				float v = (float)(of == 0 ? 0 : ((double)dy[o] - (double)y[o] * sum[j]) / of);

				dx[o] = acc ? dx[o] + v : v;
			}
	}
	return 0;
}

/* --- scaling by another tensor --- */

int cpu_scale_forward(struct dn_stream *st, const struct dn_scale_desc *d, const void *pa, const void *pb, void *py, bool acc)
{
	const int64_t hw = dn_tensor_plane(&d->y);
	const float *a = pa, *b = pb;
	float *y = py;
	int err = tensor_check(&cpu_limits, "scale_forward", &d->y);
	int nt = stream_threads(st);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->y.n * d->y.c * hw >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->y.n * d->y.c; p++) {
		const float *from = b + p * hw;
		const float *by = d->by == DN_SCALE_CHANNEL ? a + p : a + (d->by == DN_SCALE_POINT ? p / d->y.c : p) * hw;
		const int64_t step = d->by == DN_SCALE_CHANNEL ? 0 : 1;
		float *to = y + p * hw;

		for (int64_t j = 0; j < hw; j++)
			to[j] = (acc ? to[j] : 0) + by[j * step] * from[j];
	}
	return 0;
}

static void scale_points(const struct dn_scale_desc *d, int64_t image, const float *b, const float *dy, float *da, bool acc)
{
	const int64_t hw = dn_tensor_plane(&d->y);
	for (int64_t at = 0; at < hw; at += POINTS) {
		int64_t m = hw - at < POINTS ? hw - at : POINTS;
		float *to = da + image * hw + at;
		double sum[POINTS] = { 0 };

		for (int64_t k = 0; k < d->y.c; k++)
			for (int64_t j = 0; j < m; j++) {
				int64_t e = (image * d->y.c + k) * hw + at + j;

				sum[j] += (double)b[e] * (double)dy[e];
			}
		for (int64_t j = 0; j < m; j++)
			to[j] = (acc ? to[j] : 0) + (float)sum[j];
	}
}

int cpu_scale_backward(struct dn_stream *st, const struct dn_scale_desc *d, const void *pb, const void *pdy, void *pda, bool acc)
{
	const int64_t hw = dn_tensor_plane(&d->y);
	const float *b = pb, *dy = pdy;
	float *da = pda;
	int err = tensor_check(&cpu_limits, "scale_backward", &d->y);
	int nt = stream_threads(st);

	if (err)
		return err;
	if (d->by == DN_SCALE_EACH)
		return cpu_scale_forward(st, d, b, dy, da, acc);
	if (d->by == DN_SCALE_POINT) {
#pragma omp parallel for schedule(static) num_threads(nt) if (d->y.n * d->y.c * hw >= CPU_PARALLEL_MIN)
		for (int64_t i = 0; i < d->y.n; i++)
			scale_points(d, i, b, dy, da, acc);
		return 0;
	}
#pragma omp parallel for schedule(static) num_threads(nt) if (d->y.n * d->y.c * hw >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->y.n * d->y.c; p++) {
		double sum = 0;

		for (int64_t j = 0; j < hw; j++)
			sum += (double)b[p * hw + j] * (double)dy[p * hw + j];
		da[p] = (acc ? da[p] : 0) + (float)sum;
	}
	return 0;
}

/* --- windows --- */

struct span {			/* of a window, what lies inside the input */
	int64_t y0, y1, x0, x1; /* rows and columns, end exclusive */
};

static struct span pool_span(const struct dn_pool_desc *d, int64_t oy, int64_t ox)
{
	int64_t top = oy * d->stride - d->pad / 2, left = ox * d->stride - d->pad / 2;
	struct span s = {
		.y0 = top < 0 ? 0 : top,
		.y1 = top + d->size > d->x.h ? d->x.h : top + d->size,
		.x0 = left < 0 ? 0 : left,
		.x1 = left + d->size > d->x.w ? d->x.w : left + d->size,
	};

	return s;
}

int cpu_local_avg_forward(struct dn_stream *st, const struct dn_pool_desc *d, const void *px, void *py)
{
	const float *x = px;
	float *y = py;
	int err = pool_desc_check(&cpu_limits, "local_avg_forward", d);
	int nt = stream_threads(st);
	int64_t plane = d->x.h * d->x.w, points = d->y.h * d->y.w;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->x.n * d->x.c * plane >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->x.n * d->x.c; p++)
		for (int64_t o = 0; o < points; o++) {
			struct span s = pool_span(d, o / d->y.w, o % d->y.w);
			double sum = 0;

			for (int64_t i = s.y0; i < s.y1; i++)
				for (int64_t j = s.x0; j < s.x1; j++)
					sum += (double)x[p * plane + i * d->x.w + j];
			y[p * points + o] =
				s.y0 < s.y1 && s.x0 < s.x1 ? (float)(sum / (double)((s.y1 - s.y0) * (s.x1 - s.x0))) : 0;
		}
	return 0;
}

int cpu_local_avg_backward(struct dn_stream *st, const struct dn_pool_desc *d, const void *pdy, void *pdx, bool acc)
{
	const float *dy = pdy;
	float *dx = pdx;
	int err = pool_desc_check(&cpu_limits, "local_avg_backward", d);
	int nt = stream_threads(st);
	int64_t plane = d->x.h * d->x.w, points = d->y.h * d->y.w;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->x.n * d->x.c * plane >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->x.n * d->x.c; p++) {
		if (!acc)
			memset(dx + p * plane, 0, (size_t)plane * sizeof(*dx));
		for (int64_t o = 0; o < points; o++) { /* windows may overlap: in order */
			struct span s = pool_span(d, o / d->y.w, o % d->y.w);
			float g = s.y0 < s.y1 && s.x0 < s.x1
					  ? (float)((double)dy[p * points + o] / (double)((s.y1 - s.y0) * (s.x1 - s.x0)))
					  : 0;

			for (int64_t i = s.y0; i < s.y1; i++)
				for (int64_t j = s.x0; j < s.x1; j++)
					dx[p * plane + i * d->x.w + j] += g;
		}
	}
	return 0;
}
