/* cpu: ops that move the points of images, or combine those of neighbouring channels, as OpenMP loops.
 *
 * A thread computes whole planes, rows or points, each in one fixed order, so bits do not depend on threads.
 */
#include <math.h>
#include <string.h>
#include "backend/backend_priv.h"
#include "backend/cpu/cpu_priv.h"

#define POINTS 64 /* neighbouring points that go through the channels together */

int cpu_upsample(struct dn_stream *st, int64_t planes, int64_t h, int64_t w, int64_t stride, float scale, const float *x,
		 float *y, bool acc)
{
	int nt = stream_threads(st);
	int64_t ow = w * stride;

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

int cpu_block_sum(struct dn_stream *st, int64_t planes, int64_t h, int64_t w, int64_t stride, float scale, const float *x,
		  float *y, bool acc)
{
	int nt = stream_threads(st);
	int64_t iw = w * stride;

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

int cpu_reorg(struct dn_stream *st, const struct dn_reorg_desc *d, bool narrow, const float *x, float *y, bool acc)
{
	int nt = stream_threads(st), err = reorg_desc_check(d);
	int64_t s = d->stride, c2 = d->c / (s * s), ww = d->w * s;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * d->h * d->w >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->n * d->c; p++) {
		int64_t k = p % d->c, o = k / c2;

		for (int64_t j = 0; j < d->h; j++) {
			int64_t at = (p * d->h + j) * d->w;
			int64_t wide = ((p / d->c * c2 + k % c2) * d->h * s + j * s + o / s) * ww + o % s;

			if (narrow && acc)
				for (int64_t i = 0; i < d->w; i++)
					y[at + i] += x[wide + i * s];
			else if (narrow)
				for (int64_t i = 0; i < d->w; i++)
					y[at + i] = x[wide + i * s];
			else if (acc)
				for (int64_t i = 0; i < d->w; i++)
					y[wide + i * s] += x[at + i];
			else
				for (int64_t i = 0; i < d->w; i++)
					y[wide + i * s] = x[at + i];
		}
	}
	return 0;
}

int cpu_transpose(struct dn_stream *st, int64_t n, int64_t rows, int64_t cols, const float *x, float *y, bool acc)
{
	int nt = stream_threads(st);

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

int cpu_crop_forward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const float *x, float *y)
{
	int nt = stream_threads(st), err = crop_desc_check(d);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * d->oh * d->ow >= CPU_PARALLEL_MIN)
	for (int64_t n = 0; n < d->n; n++) {
		int64_t top, left;
		bool flip;

		crop_place(d, num, n, &top, &left, &flip);
		for (int64_t r = 0; r < d->c * d->oh; r++) {
			const float *from = x + ((n * d->c + r / d->oh) * d->h + top + r % d->oh) * d->w + left;
			float *to = y + (n * d->c * d->oh + r) * d->ow;

			for (int64_t j = 0; j < d->ow; j++)
				to[j] = d->scale * from[flip ? d->ow - 1 - j : j] + d->shift;
		}
	}
	return 0;
}

int cpu_crop_backward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const float *dy,
		      float *dx, bool acc)
{
	int nt = stream_threads(st), err = crop_desc_check(d);
	int64_t image = d->c * d->h * d->w;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * image >= CPU_PARALLEL_MIN)
	for (int64_t n = 0; n < d->n; n++) {
		int64_t top, left;
		bool flip;

		if (!acc)
			memset(dx + n * image, 0, (size_t)image * sizeof(*dx));
		crop_place(d, num, n, &top, &left, &flip);
		for (int64_t r = 0; r < d->c * d->oh; r++) {
			float *to = dx + ((n * d->c + r / d->oh) * d->h + top + r % d->oh) * d->w + left;
			const float *from = dy + (n * d->c * d->oh + r) * d->ow;

			for (int64_t j = 0; j < d->ow; j++)
				to[flip ? d->ow - 1 - j : j] += d->scale * from[j];
		}
	}
	return 0;
}

/* --- normalisation over channels --- */

int cpu_lrn_forward(struct dn_stream *st, const struct dn_lrn_desc *d, const float *x, float *norm, float *y)
{
	int nt = stream_threads(st), err = lrn_desc_check(d);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * d->hw >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->n * d->c; p++) {
		int64_t k = p % d->c, lo = k - (d->size - 1) / 2, hi = k + d->size / 2;
		const float *image = x + (p - k) * d->hw;
		float *to = norm + p * d->hw;

		lo = lo < 0 ? 0 : lo;
		hi = hi >= d->c ? d->c - 1 : hi;
		for (int64_t at = 0; at < d->hw; at += POINTS) {
			int64_t m = d->hw - at < POINTS ? d->hw - at : POINTS;
			double sum[POINTS] = { 0 };

			for (int64_t q = lo; q <= hi; q++)
				for (int64_t j = 0; j < m; j++) {
					double v = (double)image[q * d->hw + at + j];

					sum[j] += v * v;
				}
			for (int64_t j = 0; j < m; j++) {
				float v = (float)((double)d->kappa + (double)d->alpha * sum[j]);

				to[at + j] = v;
				y[p * d->hw + at + j] = x[p * d->hw + at + j] * powf(v, -d->beta);
			}
		}
	}
	return 0;
}

int cpu_lrn_backward(struct dn_stream *st, const struct dn_lrn_desc *d, const float *x, const float *norm, const float *dy,
		     float *dx, bool acc)
{
	int nt = stream_threads(st), err = lrn_desc_check(d);
	double by = 2 * (double)d->alpha * (double)d->beta;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * d->hw >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->n * d->c; p++) {
		int64_t k = p % d->c, lo = k - d->size / 2, hi = k + (d->size - 1) / 2, base = (p - k) * d->hw;

		lo = lo < 0 ? 0 : lo;
		hi = hi >= d->c ? d->c - 1 : hi;
		for (int64_t at = 0; at < d->hw; at += POINTS) {
			int64_t m = d->hw - at < POINTS ? d->hw - at : POINTS;
			double sum[POINTS] = { 0 };

			for (int64_t q = lo; q <= hi; q++)
				for (int64_t j = 0; j < m; j++) {
					int64_t o = base + q * d->hw + at + j;

					sum[j] += (double)dy[o] * (double)x[o] * (double)powf(norm[o], -d->beta - 1);
				}
			for (int64_t j = 0; j < m; j++) {
				int64_t o = p * d->hw + at + j;
				float v = (float)((double)dy[o] * (double)powf(norm[o], -d->beta) - by * (double)x[o] * sum[j]);

				dx[o] = acc ? dx[o] + v : v;
			}
		}
	}
	return 0;
}

int cpu_l2norm_forward(struct dn_stream *st, int64_t n, int64_t c, int64_t hw, const float *x, float *norm, float *y)
{
	int nt = stream_threads(st);
	int64_t spans = (hw + POINTS - 1) / POINTS;

#pragma omp parallel for schedule(static) num_threads(nt) if (n * c * hw >= CPU_PARALLEL_MIN)
	for (int64_t t = 0; t < n * spans; t++) {
		int64_t i = t / spans, at = t % spans * POINTS, m = hw - at < POINTS ? hw - at : POINTS;
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

int cpu_l2norm_backward(struct dn_stream *st, int64_t n, int64_t c, int64_t hw, const float *y, const float *norm,
			const float *dy, float *dx, bool acc)
{
	int nt = stream_threads(st);
	int64_t spans = (hw + POINTS - 1) / POINTS;

#pragma omp parallel for schedule(static) num_threads(nt) if (n * c * hw >= CPU_PARALLEL_MIN)
	for (int64_t t = 0; t < n * spans; t++) {
		int64_t i = t / spans, at = t % spans * POINTS, m = hw - at < POINTS ? hw - at : POINTS;
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

int cpu_scale_forward(struct dn_stream *st, const struct dn_scale_desc *d, const float *a, const float *b, float *y, bool acc)
{
	int nt = stream_threads(st);

#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * d->hw >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->n * d->c; p++) {
		const float *from = b + p * d->hw;
		const float *by = d->by == DN_SCALE_CHANNEL ? a + p : a + (d->by == DN_SCALE_POINT ? p / d->c : p) * d->hw;
		const int64_t step = d->by == DN_SCALE_CHANNEL ? 0 : 1;
		float *to = y + p * d->hw;

		for (int64_t j = 0; j < d->hw; j++)
			to[j] = (acc ? to[j] : 0) + by[j * step] * from[j];
	}
	return 0;
}

static void scale_points(const struct dn_scale_desc *d, int64_t image, const float *b, const float *dy, float *da, bool acc)
{
	for (int64_t at = 0; at < d->hw; at += POINTS) {
		int64_t m = d->hw - at < POINTS ? d->hw - at : POINTS;
		float *to = da + image * d->hw + at;
		double sum[POINTS] = { 0 };

		for (int64_t k = 0; k < d->c; k++)
			for (int64_t j = 0; j < m; j++) {
				int64_t e = (image * d->c + k) * d->hw + at + j;

				sum[j] += (double)b[e] * (double)dy[e];
			}
		for (int64_t j = 0; j < m; j++)
			to[j] = (acc ? to[j] : 0) + (float)sum[j];
	}
}

int cpu_scale_backward(struct dn_stream *st, const struct dn_scale_desc *d, const float *b, const float *dy, float *da, bool acc)
{
	int nt = stream_threads(st);

	if (d->by == DN_SCALE_EACH)
		return cpu_scale_forward(st, d, b, dy, da, acc);
	if (d->by == DN_SCALE_POINT) {
#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * d->hw >= CPU_PARALLEL_MIN)
		for (int64_t i = 0; i < d->n; i++)
			scale_points(d, i, b, dy, da, acc);
		return 0;
	}
#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * d->hw >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->n * d->c; p++) {
		double sum = 0;

		for (int64_t j = 0; j < d->hw; j++)
			sum += (double)b[p * d->hw + j] * (double)dy[p * d->hw + j];
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
		.y1 = top + d->size > d->h ? d->h : top + d->size,
		.x0 = left < 0 ? 0 : left,
		.x1 = left + d->size > d->w ? d->w : left + d->size,
	};

	return s;
}

int cpu_local_avg_forward(struct dn_stream *st, const struct dn_pool_desc *d, const float *x, float *y)
{
	int nt = stream_threads(st);
	int64_t plane = d->h * d->w, points = d->oh * d->ow;

#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * plane >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->n * d->c; p++)
		for (int64_t o = 0; o < points; o++) {
			struct span s = pool_span(d, o / d->ow, o % d->ow);
			double sum = 0;

			for (int64_t i = s.y0; i < s.y1; i++)
				for (int64_t j = s.x0; j < s.x1; j++)
					sum += (double)x[p * plane + i * d->w + j];
			y[p * points + o] =
				s.y0 < s.y1 && s.x0 < s.x1 ? (float)(sum / (double)((s.y1 - s.y0) * (s.x1 - s.x0))) : 0;
		}
	return 0;
}

int cpu_local_avg_backward(struct dn_stream *st, const struct dn_pool_desc *d, const float *dy, float *dx, bool acc)
{
	int nt = stream_threads(st);
	int64_t plane = d->h * d->w, points = d->oh * d->ow;

#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * plane >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->n * d->c; p++) {
		if (!acc)
			memset(dx + p * plane, 0, (size_t)plane * sizeof(*dx));
		for (int64_t o = 0; o < points; o++) { /* windows may overlap: in order */
			struct span s = pool_span(d, o / d->ow, o % d->ow);
			float g = s.y0 < s.y1 && s.x0 < s.x1
					  ? (float)((double)dy[p * points + o] / (double)((s.y1 - s.y0) * (s.x1 - s.x0)))
					  : 0;

			for (int64_t i = s.y0; i < s.y1; i++)
				for (int64_t j = s.x0; j < s.x1; j++)
					dx[p * plane + i * d->w + j] += g;
		}
	}
	return 0;
}
