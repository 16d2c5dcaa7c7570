/* cpu: ops over channels and planes: batch normalisation, pooling, bias gradients.
 *
 * A channel or plane is computed by one thread, and its sums go over fixed lanes in double, so results
 * depend neither on the thread count nor on addresses.
 */
#include <math.h>
#include <string.h>
#include "backend/backend_priv.h"
#include "backend/cpu/cpu_priv.h"

#define LANES 8		     /* independent sums: the compiler may use vectors without reordering */
#define CHANNELS_TOGETHER 32 /* of the bias gradient of a flat layer: rows are read along memory */

static double lanes_total(const double s[LANES])
{
	return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

static double row_sum(const float *x, int64_t n)
{
	double s[LANES] = { 0 };
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
			s[l] += (double)x[i + l];
	for (; i < n; i++)
		s[i % LANES] += (double)x[i];
	return lanes_total(s);
}

static double row_square(const float *x, int64_t n, double mean)
{
	double s[LANES] = { 0 };
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++) {
			double e = (double)x[i + l] - mean;

			s[l] += e * e;
		}
	for (; i < n; i++) {
		double e = (double)x[i] - mean;

		s[i % LANES] += e * e;
	}
	return lanes_total(s);
}

static double row_product(const float *x, const float *dy, int64_t n, double mean)
{
	double s[LANES] = { 0 };
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
			s[l] += (double)dy[i + l] * ((double)x[i + l] - mean);
	for (; i < n; i++)
		s[i % LANES] += (double)dy[i] * ((double)x[i] - mean);
	return lanes_total(s);
}

int cpu_bias_backward(struct dn_stream *st, int64_t n, int64_t c, int64_t hw, const float *dy, float *db)
{
	int nt = stream_threads(st);

	if (hw == 1) {
#pragma omp parallel for schedule(static) num_threads(nt) if (n * c >= CPU_PARALLEL_MIN)
		for (int64_t k = 0; k < c; k += CHANNELS_TOGETHER) {
			int64_t m = c - k < CHANNELS_TOGETHER ? c - k : CHANNELS_TOGETHER;
			double sum[CHANNELS_TOGETHER] = { 0 };

			for (int64_t i = 0; i < n; i++)
				for (int64_t j = 0; j < m; j++)
					sum[j] += (double)dy[i * c + k + j];
			for (int64_t j = 0; j < m; j++)
				db[k + j] = (float)sum[j];
		}
		return 0;
	}
#pragma omp parallel for schedule(static) num_threads(nt) if (n * c * hw >= CPU_PARALLEL_MIN)
	for (int64_t k = 0; k < c; k++) {
		double sum = 0;

		for (int64_t i = 0; i < n; i++)
			sum += row_sum(dy + (i * c + k) * hw, hw);
		db[k] = (float)sum;
	}
	return 0;
}

/* --- batch normalisation --- */

/* 1 / what the forward divides by */
static double bn_inverse(const struct dn_bn_desc *d, float var)
{
	return d->legacy ? 1 / (sqrt((double)var) + 1e-6) : 1 / sqrt((double)var + 1e-5);
}

static void bn_channel(const struct dn_bn_desc *d, int64_t k, const float *x, const float *scale, const float *bias, float mean,
		       float var, float *y)
{
	float inv = (float)bn_inverse(d, var), s = scale[k], b = bias[k];

	for (int64_t i = 0; i < d->n; i++) {
		const float *from = x + (i * d->c + k) * d->hw;
		float *to = y + (i * d->c + k) * d->hw;

		for (int64_t j = 0; j < d->hw; j++)
			to[j] = s * ((from[j] - mean) * inv) + b;
		if (d->act != DN_ACT_LINEAR)
			act_range(to, d->hw, -0.0f, d->act);
	}
}

int cpu_bn_forward(struct dn_stream *st, const struct dn_bn_desc *d, const float *x, const float *scale, const float *bias,
		   const float *mean, const float *var, float *y)
{
	int nt = stream_threads(st);

#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * d->hw >= CPU_PARALLEL_MIN)
	for (int64_t k = 0; k < d->c; k++)
		bn_channel(d, k, x, scale, bias, mean[k], var[k], y);
	return 0;
}

int cpu_bn_forward_train(struct dn_stream *st, const struct dn_bn_desc *d, const float *x, const float *scale, const float *bias,
			 float *mean, float *var, float *y)
{
	int nt = stream_threads(st);
	int64_t count = d->n * d->hw;
	/* one value has no variance: 0, not 0 / 0 */
	double divisor = (double)(d->legacy && count > 1 ? count - 1 : count);

#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * d->hw >= CPU_PARALLEL_MIN)
	for (int64_t k = 0; k < d->c; k++) {
		double m = 0, v = 0;

		for (int64_t i = 0; i < d->n; i++)
			m += row_sum(x + (i * d->c + k) * d->hw, d->hw);
		m /= (double)count;
		for (int64_t i = 0; i < d->n; i++)
			v += row_square(x + (i * d->c + k) * d->hw, d->hw, m);
		mean[k] = (float)m;
		var[k] = (float)(v / divisor);
		bn_channel(d, k, x, scale, bias, mean[k], var[k], y);
	}
	return 0;
}

int cpu_bn_backward(struct dn_stream *st, const struct dn_bn_desc *d, bool frozen, const float *x, const float *mean,
		    const float *var, const float *scale, const float *dy, float *dx, bool acc, float *dscale, float *dbias)
{
	int nt = stream_threads(st);
	double count = (double)(d->n * d->hw);

#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * d->hw >= CPU_PARALLEL_MIN)
	for (int64_t k = 0; k < d->c; k++) {
		/* the legacy rule differentiates with 1e-5 inside the root, whatever its forward did */
		double inv = 1 / sqrt((double)var[k] + 1e-5), forward = bn_inverse(d, var[k]);
		double sum = 0, sum_x = 0, s = (double)scale[k];
		float by_dy, by_x, base, m = mean[k];

		for (int64_t i = 0; i < d->n; i++) {
			int64_t at = (i * d->c + k) * d->hw;

			sum += row_sum(dy + at, d->hw);
			sum_x += row_product(x + at, dy + at, d->hw, (double)m);
		}
		dscale[k] = (float)(sum_x * forward);
		dbias[k] = (float)sum;
		if (!dx)
			continue;
		by_dy = (float)(frozen ? s * forward : s * inv);
		by_x = (float)(frozen ? 0 : -s * inv * inv * inv * sum_x / count);
		base = (float)(frozen ? 0 : -s * inv * sum / count);
		for (int64_t i = 0; i < d->n; i++) {
			int64_t at = (i * d->c + k) * d->hw;
			const float *px = x + at, *pdy = dy + at;
			float *to = dx + at;

			if (acc)
				for (int64_t j = 0; j < d->hw; j++)
					to[j] += by_dy * pdy[j] + (by_x * (px[j] - m) + base);
			else
				for (int64_t j = 0; j < d->hw; j++)
					to[j] = by_dy * pdy[j] + (by_x * (px[j] - m) + base);
		}
	}
	return 0;
}

/* --- pooling --- */

/* One output whose window may stick out of the plane. */
static void maxpool_at(const struct dn_pool_desc *d, const float *x, int64_t oy, int64_t ox, float *y, int32_t *index)
{
	int64_t top = oy * d->stride - d->pad / 2, left = ox * d->stride - d->pad / 2;
	int64_t y0 = top < 0 ? 0 : top, y1 = top + d->size < d->h ? top + d->size : d->h;
	int64_t x0 = left < 0 ? 0 : left, x1 = left + d->size < d->w ? left + d->size : d->w;
	int64_t at = -1;
	float best = 0;

	for (int64_t iy = y0; iy < y1; iy++)
		for (int64_t ix = x0; ix < x1; ix++) {
			float v = x[iy * d->w + ix];

			/* a NaN beats numbers, the first one stays */
			if (at < 0 || v > best || (isnan(v) && !isnan(best))) {
				best = v;
				at = iy * d->w + ix;
			}
		}
	y[oy * d->ow + ox] = best;
	index[oy * d->ow + ox] = (int32_t)at;
}

/* n outputs against one more candidate each, x[i * stride] at place at + i * stride. Selects and no branches, so that
 * it vectorises: real data make the branches of maxpool_at() unpredictable. */
static void maxpool_take(int32_t n, int32_t stride, const float *restrict x, int32_t at, float *restrict y,
			 int32_t *restrict index)
{
#pragma omp simd
	for (int32_t i = 0; i < n; i++) {
		float u = x[i * stride], v = y[i];
		int32_t place = at + i * stride, k = index[i];

		k = u > v ? place : k;
		v = u > v ? u : v;
		k = (u != u) & (v == v) ? place : k;
		v = u != u ? u : v;
		y[i] = v;
		index[i] = k;
	}
}

/* Outputs [from, to) of row oy, whose windows are inside in width; in height they are cut. */
static void maxpool_row(const struct dn_pool_desc *d, const float *x, int64_t oy, int64_t from, int64_t to, float *y,
			int32_t *index)
{
	int64_t top = oy * d->stride - d->pad / 2, left = from * d->stride - d->pad / 2;
	int64_t y0 = top < 0 ? 0 : top, y1 = top + d->size < d->h ? top + d->size : d->h;
	int32_t n = (int32_t)(to - from), stride = (int32_t)d->stride;
	const float *first = x + y0 * d->w + left;

	y += oy * d->ow + from;
	index += oy * d->ow + from;
	for (int32_t i = 0; i < n; i++) {
		y[i] = first[i * stride];
		index[i] = (int32_t)(y0 * d->w + left) + i * stride;
	}
	for (int64_t iy = y0; iy < y1; iy++)
		for (int64_t k = iy == y0; k < d->size; k++)
			maxpool_take(n, stride, x + iy * d->w + left + k, (int32_t)(iy * d->w + left + k), y, index);
}

static void maxpool_plane(const struct dn_pool_desc *d, const float *x, float *y, int32_t *index)
{
	/* columns whose windows are inside: from * stride >= pad / 2, (to - 1) * stride - pad / 2 + size <= w */
	int64_t from = (d->pad / 2 + d->stride - 1) / d->stride;
	int64_t to = d->w + d->pad / 2 >= d->size ? (d->w + d->pad / 2 - d->size) / d->stride + 1 : 0;

	from = from < d->ow ? from : d->ow;
	to = to < d->ow ? to : d->ow;
	for (int64_t oy = 0; oy < d->oh; oy++) {
		int64_t top = oy * d->stride - d->pad / 2, ox = 0;

		if (from < to && top < d->h && top + d->size > 0) {
			for (; ox < from; ox++)
				maxpool_at(d, x, oy, ox, y, index);
			maxpool_row(d, x, oy, from, to, y, index);
			ox = to;
		}
		for (; ox < d->ow; ox++)
			maxpool_at(d, x, oy, ox, y, index);
	}
}

int cpu_maxpool_forward(struct dn_stream *st, const struct dn_pool_desc *d, const float *x, float *y, int32_t *index)
{
	int nt = stream_threads(st);
	int64_t in = d->h * d->w, out = d->oh * d->ow;

#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * in >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->n * d->c; p++)
		maxpool_plane(d, x + p * in, y + p * out, index + p * out);
	return 0;
}

int cpu_maxpool_backward(struct dn_stream *st, const struct dn_pool_desc *d, const float *dy, const int32_t *index, float *dx,
			 bool acc)
{
	int nt = stream_threads(st);
	int64_t in = d->h * d->w, out = d->oh * d->ow;

#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c * in >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->n * d->c; p++) {
		if (!acc)
			memset(dx + p * in, 0, (size_t)in * sizeof(*dx));
		for (int64_t i = 0; i < out; i++) /* windows may share a winner: in order */
			if (index[p * out + i] >= 0)
				dx[p * in + index[p * out + i]] += dy[p * out + i];
	}
	return 0;
}

int cpu_avgpool_forward(struct dn_stream *st, int64_t rows, int64_t hw, const float *x, float *y)
{
	int nt = stream_threads(st);

#pragma omp parallel for schedule(static) num_threads(nt) if (rows * hw >= CPU_PARALLEL_MIN)
	for (int64_t r = 0; r < rows; r++)
		y[r] = (float)(row_sum(x + r * hw, hw) / (double)hw);
	return 0;
}

int cpu_avgpool_backward(struct dn_stream *st, int64_t rows, int64_t hw, const float *dy, float *dx, bool acc)
{
	int nt = stream_threads(st);

#pragma omp parallel for schedule(static) num_threads(nt) if (rows * hw >= CPU_PARALLEL_MIN)
	for (int64_t r = 0; r < rows; r++) {
		float g = (float)((double)dy[r] / (double)hw);

		for (int64_t i = 0; i < hw; i++)
			dx[r * hw + i] = acc ? dx[r * hw + i] + g : g;
	}
	return 0;
}
