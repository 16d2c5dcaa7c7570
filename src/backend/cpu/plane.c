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

int cpu_bias_backward(struct dn_stream *st, const struct dn_tensor *t, const void *pdy, float *db, bool acc)
{
	const float *dy = pdy;
	const int64_t n = t->n, c = t->c, hw = dn_tensor_plane(t);
	int err = tensor_check(&cpu_limits, "bias_backward", t);
	int nt = stream_threads(st);

	if (err)
		return err;
	if (hw == 1) {
#pragma omp parallel for schedule(static) num_threads(nt) if (n * c >= CPU_PARALLEL_MIN)
		for (int64_t k = 0; k < c; k += CHANNELS_TOGETHER) {
			int64_t m = c - k < CHANNELS_TOGETHER ? c - k : CHANNELS_TOGETHER;
			double sum[CHANNELS_TOGETHER] = { 0 };

			for (int64_t i = 0; i < n; i++)
				for (int64_t j = 0; j < m; j++)
					sum[j] += (double)dy[i * c + k + j];
			for (int64_t j = 0; j < m; j++)
				cpu_give(&db[k + j], acc, (float)sum[j]);
		}
		return 0;
	}
#pragma omp parallel for schedule(static) num_threads(nt) if (n * c * hw >= CPU_PARALLEL_MIN)
	for (int64_t k = 0; k < c; k++) {
		double sum = 0;

		for (int64_t i = 0; i < n; i++)
			sum += row_sum(dy + (i * c + k) * hw, hw);
		cpu_give(&db[k], acc, (float)sum);
	}
	return 0;
}

/* --- batch normalisation --- */

/* One value has no variance: 0, not 0 / 0. */
static double bn_variance_divisor(const struct dn_bn_desc *d, int64_t count)
{
	return (double)(d->legacy && count > 1 ? count - 1 : count);
}

/* 1 / what the forward divides by */
static double bn_inverse(const struct dn_bn_desc *d, float var)
{
	return d->legacy ? 1 / (sqrt((double)var) + 1e-6) : 1 / sqrt((double)var + 1e-5);
}

static void bn_channel(const struct dn_bn_desc *d, int64_t k, const float *x, const float *scale, const float *bias, float mean,
		       float var, float *y)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	float inv = (float)bn_inverse(d, var), s = scale[k], b = bias[k];

	for (int64_t i = 0; i < d->x.n; i++) {
		const float *from = x + (i * d->x.c + k) * hw;
		float *to = y + (i * d->x.c + k) * hw;

		for (int64_t j = 0; j < hw; j++)
			to[j] = s * ((from[j] - mean) * inv) + b;
		if (d->act != DN_ACT_LINEAR)
			act_range(to, hw, -0.0f, d->act);
	}
}

static double bn_channel_sum(const struct dn_bn_desc *d, int64_t k, const float *x)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	double sum = 0;

	for (int64_t i = 0; i < d->x.n; i++)
		sum += row_sum(x + (i * d->x.c + k) * hw, hw);
	return sum;
}

static double bn_channel_square(const struct dn_bn_desc *d, int64_t k, const float *x, double mean)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	double sum = 0;

	for (int64_t i = 0; i < d->x.n; i++)
		sum += row_square(x + (i * d->x.c + k) * hw, hw, mean);
	return sum;
}

int cpu_bn_forward(struct dn_stream *st, const struct dn_bn_desc *d, const void *px, const float *scale, const float *bias,
		   const float *mean, const float *var, void *py)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	const float *x = px;
	float *y = py;
	int err = tensor_check(&cpu_limits, "bn_forward", &d->x);
	int nt = stream_threads(st);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->x.n * d->x.c * hw >= CPU_PARALLEL_MIN)
	for (int64_t k = 0; k < d->x.c; k++)
		bn_channel(d, k, x, scale, bias, mean[k], var[k], y);
	return 0;
}

int cpu_bn_forward_train(struct dn_stream *st, const struct dn_bn_desc *d, const void *px, const float *scale, const float *bias,
			 float *mean, float *var, void *py)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	const float *x = px;
	float *y = py;
	int err = tensor_check(&cpu_limits, "bn_forward_train", &d->x);
	int nt = stream_threads(st);
	int64_t count = d->x.n * hw;
	double divisor = bn_variance_divisor(d, count);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->x.n * d->x.c * hw >= CPU_PARALLEL_MIN)
	for (int64_t k = 0; k < d->x.c; k++) {
		double m, v;

		m = bn_channel_sum(d, k, x) / (double)count;
		v = bn_channel_square(d, k, x, m);
		mean[k] = (float)m;
		var[k] = (float)(v / divisor);
		bn_channel(d, k, x, scale, bias, mean[k], var[k], y);
	}
	return 0;
}

/* sums of dy, and of dy (x - mean) */
static void bn_channel_products(const struct dn_bn_desc *d, int64_t k, const float *x, const float *dy, double mean, double *sum,
				double *sum_x)
{
	const int64_t hw = dn_tensor_plane(&d->x);

	*sum = *sum_x = 0;
	for (int64_t i = 0; i < d->x.n; i++) {
		int64_t at = (i * d->x.c + k) * hw;

		*sum += row_sum(dy + at, hw);
		*sum_x += row_product(x + at, dy + at, hw, mean);
	}
}

/* dx (+)= by_dy dy + by_x (x - mean) + base */
static void bn_channel_data(const struct dn_bn_desc *d, int64_t k, const float *x, const float *dy, float mean, float by_dy,
			    float by_x, float base, float *dx, bool acc)
{
	const int64_t hw = dn_tensor_plane(&d->x);

	for (int64_t i = 0; i < d->x.n; i++) {
		int64_t at = (i * d->x.c + k) * hw;
		const float *from = x + at, *by = dy + at;
		float *to = dx + at;

		if (acc)
			for (int64_t j = 0; j < hw; j++)
				to[j] += by_dy * by[j] + (by_x * (from[j] - mean) + base);
		else
			for (int64_t j = 0; j < hw; j++)
				to[j] = by_dy * by[j] + (by_x * (from[j] - mean) + base);
	}
}

/* dx (+)= by_dy dy */
static void bn_channel_frozen(const struct dn_bn_desc *d, int64_t k, const float *dy, float by_dy, float *dx, bool acc)
{
	const int64_t hw = dn_tensor_plane(&d->x);

	for (int64_t i = 0; i < d->x.n; i++) {
		const float *by = dy + (i * d->x.c + k) * hw;
		float *to = dx + (i * d->x.c + k) * hw;

		for (int64_t j = 0; j < hw; j++)
			to[j] = acc ? to[j] + by_dy * by[j] : by_dy * by[j];
	}
}

/* The legacy rule differentiates with 1e-5 inside the root, whatever its forward did. */
static double bn_backward_inverse(float var)
{
	return 1 / sqrt((double)var + 1e-5);
}

int cpu_bn_backward(struct dn_stream *st, const struct dn_bn_desc *d, bool frozen, const void *px, const float *mean,
		    const float *var, const float *scale, const void *pdy, void *pdx, bool acc, float *dscale, float *dbias,
		    bool acc_params)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	const float *x = px, *dy = pdy;
	float *dx = pdx;
	int err = tensor_check(&cpu_limits, "bn_backward", &d->x);
	int nt = stream_threads(st);
	double count = (double)(d->x.n * hw);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->x.n * d->x.c * hw >= CPU_PARALLEL_MIN)
	for (int64_t k = 0; k < d->x.c; k++) {
		double inv = bn_backward_inverse(var[k]), forward = bn_inverse(d, var[k]);
		double sum = 0, sum_x = 0, s = (double)scale[k];
		float by_dy, by_x, base;

		if (dscale) {
			bn_channel_products(d, k, x, dy, (double)mean[k], &sum, &sum_x);
			cpu_give(&dscale[k], acc_params, (float)(sum_x * forward));
		}
		if (dbias)
			cpu_give(&dbias[k], acc_params, (float)sum);
		if (!dx)
			continue;
		if (frozen) {
			bn_channel_frozen(d, k, dy, (float)(s * forward), dx, acc);
			continue;
		}
		by_dy = (float)(s * inv);
		by_x = (float)(-s * inv * inv * inv * sum_x / count);
		base = (float)(-s * inv * sum / count);
		bn_channel_data(d, k, x, dy, mean[k], by_dy, by_x, base, dx, acc);
	}
	return 0;
}

int cpu_bn_mean_part(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *px, float *mean)
{
	const int64_t n = dn_tensor_count(&d->x);
	const float *x = px;
	int err = tensor_check(&cpu_limits, "bn_mean_part", &d->x);
	int nt = stream_threads(st);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
	for (int64_t k = 0; k < d->x.c; k++)
		mean[k] = (float)(bn_channel_sum(d, k, x) / (double)count);
	return 0;
}

int cpu_bn_variance_part(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *px, const float *mean,
			 float *var)
{
	const int64_t n = dn_tensor_count(&d->x);
	const float *x = px;
	int err = tensor_check(&cpu_limits, "bn_variance_part", &d->x);
	int nt = stream_threads(st);
	double divisor = bn_variance_divisor(d, count);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
	for (int64_t k = 0; k < d->x.c; k++)
		var[k] = (float)(bn_channel_square(d, k, x, (double)mean[k]) / divisor);
	return 0;
}

int cpu_bn_backward_part(struct dn_stream *st, const struct dn_bn_desc *d, const void *px, const float *mean, const float *var,
			 const void *pdy, float *sums, float *dscale, float *dbias, bool acc_params)
{
	const int64_t n = dn_tensor_count(&d->x), c = d->x.c;
	const float *x = px, *dy = pdy;
	int err = tensor_check(&cpu_limits, "bn_backward_part", &d->x);
	int nt = stream_threads(st);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
	for (int64_t k = 0; k < c; k++) {
		double sum, sum_x;

		bn_channel_products(d, k, x, dy, (double)mean[k], &sum, &sum_x);
		sums[k] = (float)sum;
		sums[c + k] = (float)sum_x;
		cpu_give(&dscale[k], acc_params, (float)(sum_x * bn_inverse(d, var[k])));
		if (dbias)
			cpu_give(&dbias[k], acc_params, (float)sum);
	}
	return 0;
}

int cpu_bn_backward_data(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *px, const float *mean,
			 const float *var, const float *scale, const float *sums, const void *pdy, void *pdx, bool acc)
{
	const int64_t n = dn_tensor_count(&d->x);
	const float *x = px, *dy = pdy;
	float *dx = pdx;
	int err = tensor_check(&cpu_limits, "bn_backward_data", &d->x);
	int nt = stream_threads(st);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
	for (int64_t k = 0; k < d->x.c; k++) {
		double inv = bn_backward_inverse(var[k]), s = (double)scale[k];
		double sum = (double)sums[k], sum_x = (double)sums[d->x.c + k];

		bn_channel_data(d, k, x, dy, mean[k], (float)(s * inv), (float)(-s * inv * inv * inv * sum_x / (double)count),
				(float)(-s * inv * sum / (double)count), dx, acc);
	}
	return 0;
}

/* --- pooling --- */

/* One output whose window may stick out of the plane. */
static void maxpool_at(const struct dn_pool_desc *d, const float *x, int64_t oy, int64_t ox, float *y, int32_t *index)
{
	int64_t top = oy * d->stride - d->pad / 2, left = ox * d->stride - d->pad / 2;
	int64_t y0 = top < 0 ? 0 : top, y1 = top + d->size < d->x.h ? top + d->size : d->x.h;
	int64_t x0 = left < 0 ? 0 : left, x1 = left + d->size < d->x.w ? left + d->size : d->x.w;
	int64_t at = -1;
	float best = 0;

	for (int64_t iy = y0; iy < y1; iy++)
		for (int64_t ix = x0; ix < x1; ix++) {
			float v = x[iy * d->x.w + ix];

			/* a NaN beats numbers, the first one stays */
			if (at < 0 || v > best || (isnan(v) && !isnan(best))) {
				best = v;
				at = iy * d->x.w + ix;
			}
		}
	y[oy * d->y.w + ox] = best;
	index[oy * d->y.w + ox] = (int32_t)at;
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
	int64_t y0 = top < 0 ? 0 : top, y1 = top + d->size < d->x.h ? top + d->size : d->x.h;
	int32_t n = (int32_t)(to - from), stride = (int32_t)d->stride;
	const float *first = x + y0 * d->x.w + left;

	y += oy * d->y.w + from;
	index += oy * d->y.w + from;
	for (int32_t i = 0; i < n; i++) {
		y[i] = first[i * stride];
		index[i] = (int32_t)(y0 * d->x.w + left) + i * stride;
	}
	for (int64_t iy = y0; iy < y1; iy++)
		for (int64_t k = iy == y0; k < d->size; k++)
			maxpool_take(n, stride, x + iy * d->x.w + left + k, (int32_t)(iy * d->x.w + left + k), y, index);
}

static void maxpool_plane(const struct dn_pool_desc *d, const float *x, float *y, int32_t *index)
{
	/* columns whose windows are inside: from * stride >= pad / 2, (to - 1) * stride - pad / 2 + size <= w */
	int64_t from = (d->pad / 2 + d->stride - 1) / d->stride;
	int64_t to = d->x.w + d->pad / 2 >= d->size ? (d->x.w + d->pad / 2 - d->size) / d->stride + 1 : 0;

	from = from < d->y.w ? from : d->y.w;
	to = to < d->y.w ? to : d->y.w;
	for (int64_t oy = 0; oy < d->y.h; oy++) {
		int64_t top = oy * d->stride - d->pad / 2, ox = 0;

		if (from < to && top < d->x.h && top + d->size > 0) {
			for (; ox < from; ox++)
				maxpool_at(d, x, oy, ox, y, index);
			maxpool_row(d, x, oy, from, to, y, index);
			ox = to;
		}
		for (; ox < d->y.w; ox++)
			maxpool_at(d, x, oy, ox, y, index);
	}
}

int cpu_maxpool_forward(struct dn_stream *st, const struct dn_pool_desc *d, const void *px, void *py, int32_t *index)
{
	const float *x = px;
	float *y = py;
	int err = pool_desc_check(&cpu_limits, "maxpool_forward", d);
	int nt = stream_threads(st);
	int64_t in = d->x.h * d->x.w, out = d->y.h * d->y.w;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->x.n * d->x.c * in >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->x.n * d->x.c; p++)
		maxpool_plane(d, x + p * in, y + p * out, index + p * out);
	return 0;
}

int cpu_maxpool_backward(struct dn_stream *st, const struct dn_pool_desc *d, const void *pdy, const int32_t *index, void *pdx,
			 bool acc)
{
	const float *dy = pdy;
	float *dx = pdx;
	int err = pool_desc_check(&cpu_limits, "maxpool_backward", d);
	int nt = stream_threads(st);
	int64_t in = d->x.h * d->x.w, out = d->y.h * d->y.w;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (d->x.n * d->x.c * in >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->x.n * d->x.c; p++) {
		if (!acc)
			memset(dx + p * in, 0, (size_t)in * sizeof(*dx));
		for (int64_t i = 0; i < out; i++) /* windows may share a winner: in order */
			if (index[p * out + i] >= 0)
				dx[p * in + index[p * out + i]] += dy[p * out + i];
	}
	return 0;
}

int cpu_avgpool_forward(struct dn_stream *st, const struct dn_tensor *t, const void *px, void *py)
{
	const float *x = px;
	float *y = py;
	const int64_t rows = t->n * t->c, hw = dn_tensor_plane(t);
	int err = tensor_check(&cpu_limits, "avgpool_forward", t);
	int nt = stream_threads(st);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (rows * hw >= CPU_PARALLEL_MIN)
	for (int64_t r = 0; r < rows; r++)
		y[r] = (float)(row_sum(x + r * hw, hw) / (double)hw);
	return 0;
}

int cpu_avgpool_backward(struct dn_stream *st, const struct dn_tensor *t, const void *pdy, void *pdx, bool acc)
{
	const float *dy = pdy;
	float *dx = pdx;
	const int64_t rows = t->n * t->c, hw = dn_tensor_plane(t);
	int err = tensor_check(&cpu_limits, "avgpool_backward", t);
	int nt = stream_threads(st);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (rows * hw >= CPU_PARALLEL_MIN)
	for (int64_t r = 0; r < rows; r++) {
		float g = (float)((double)dy[r] / (double)hw);

		for (int64_t i = 0; i < hw; i++)
			dx[r * hw + i] = acc ? dx[r * hw + i] + g : g;
	}
	return 0;
}
