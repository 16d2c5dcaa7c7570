/* ref: ops that move the points of images, or combine those of neighbouring channels, as plain loops. */
#include <math.h>
#include <string.h>
#include "backend/backend_priv.h"
#include "backend/ref/ref_priv.h"

static void put(float *y, bool acc, double v)
{
	*y = (float)(acc ? (double)*y + v : v);
}

int ref_upsample(struct dn_stream *st, int64_t planes, int64_t h, int64_t w, int64_t stride, float scale, const float *x,
		 float *y, bool acc)
{
	for (int64_t p = 0; p < planes; p++)
		for (int64_t i = 0; i < h * stride; i++)
			for (int64_t j = 0; j < w * stride; j++)
				put(&y[(p * h * stride + i) * w * stride + j], acc,
				    (double)scale * x[(p * h + i / stride) * w + j / stride]);
	return 0;
}

int ref_block_sum(struct dn_stream *st, int64_t planes, int64_t h, int64_t w, int64_t stride, float scale, const float *x,
		  float *y, bool acc)
{
	for (int64_t p = 0; p < planes; p++)
		for (int64_t i = 0; i < h; i++)
			for (int64_t j = 0; j < w; j++) {
				double sum = 0;

				for (int64_t a = 0; a < stride; a++)
					for (int64_t b = 0; b < stride; b++)
						sum += x[((p * h + i) * stride + a) * w * stride + j * stride + b];
				put(&y[(p * h + i) * w + j], acc, (double)scale * sum);
			}
	return 0;
}

int ref_reorg(struct dn_stream *st, const struct dn_reorg_desc *d, bool narrow, const float *x, float *y, bool acc)
{
	int64_t s = d->stride, c2 = d->c / (s * s);
	int err = reorg_desc_check(d);

	for (int64_t e = 0; !err && e < d->n * d->c * d->h * d->w; e++) {
		int64_t i = e % d->w, j = e / d->w % d->h, k = e / (d->w * d->h) % d->c, n = e / (d->w * d->h * d->c);
		int64_t o = k / c2;
		int64_t wide = ((n * c2 + k % c2) * d->h * s + j * s + o / s) * d->w * s + i * s + o % s;

		put(narrow ? &y[e] : &y[wide], acc, narrow ? x[wide] : x[e]);
	}
	return err;
}

int ref_transpose(struct dn_stream *st, int64_t n, int64_t rows, int64_t cols, const float *x, float *y, bool acc)
{
	for (int64_t i = 0; i < n; i++)
		for (int64_t r = 0; r < rows; r++)
			for (int64_t c = 0; c < cols; c++)
				put(&y[(i * cols + c) * rows + r], acc, x[(i * rows + r) * cols + c]);
	return 0;
}

int ref_crop_forward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const float *x, float *y)
{
	int err = crop_desc_check(d);

	for (int64_t n = 0; !err && n < d->n; n++) {
		int64_t top, left;
		bool flip;

		crop_place(d, num, n, &top, &left, &flip);
		for (int64_t k = 0; k < d->c; k++)
			for (int64_t i = 0; i < d->oh; i++)
				for (int64_t j = 0; j < d->ow; j++) {
					int64_t from = left + (flip ? d->ow - 1 - j : j);

					y[((n * d->c + k) * d->oh + i) * d->ow + j] =
						d->scale * x[((n * d->c + k) * d->h + top + i) * d->w + from] + d->shift;
				}
	}
	return err;
}

int ref_crop_backward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const float *dy,
		      float *dx, bool acc)
{
	int err = crop_desc_check(d);

	if (!err && !acc)
		memset(dx, 0, sizeof(*dx) * (size_t)(d->n * d->c * d->h * d->w));
	for (int64_t n = 0; !err && n < d->n; n++) {
		int64_t top, left;
		bool flip;

		crop_place(d, num, n, &top, &left, &flip);
		for (int64_t k = 0; k < d->c; k++)
			for (int64_t i = 0; i < d->oh; i++)
				for (int64_t j = 0; j < d->ow; j++) {
					int64_t from = left + (flip ? d->ow - 1 - j : j);

					dx[((n * d->c + k) * d->h + top + i) * d->w + from] +=
						d->scale * dy[((n * d->c + k) * d->oh + i) * d->ow + j];
				}
	}
	return err;
}

int ref_lrn_forward(struct dn_stream *st, const struct dn_lrn_desc *d, const float *x, float *norm, float *y)
{
	int err = lrn_desc_check(d);

	for (int64_t e = 0; !err && e < d->n * d->c * d->hw; e++) {
		int64_t k = e / d->hw % d->c;
		double sum = 0;

		for (int64_t q = k - (d->size - 1) / 2; q <= k + d->size / 2; q++)
			if (q >= 0 && q < d->c)
				sum += (double)x[e + (q - k) * d->hw] * x[e + (q - k) * d->hw];
		norm[e] = (float)((double)d->kappa + (double)d->alpha * sum);
		y[e] = (float)(x[e] * pow(norm[e], -(double)d->beta));
	}
	return err;
}

/* x of channel k stands in the norms of channels k - size/2 .. k + (size-1)/2 */
int ref_lrn_backward(struct dn_stream *st, const struct dn_lrn_desc *d, const float *x, const float *norm, const float *dy,
		     float *dx, bool acc)
{
	int err = lrn_desc_check(d);
	const double beta = d->beta;

	for (int64_t e = 0; !err && e < d->n * d->c * d->hw; e++) {
		int64_t k = e / d->hw % d->c;
		double sum = 0;

		for (int64_t q = k - d->size / 2; q <= k + (d->size - 1) / 2; q++) {
			int64_t o = e + (q - k) * d->hw;

			if (q >= 0 && q < d->c)
				sum += (double)dy[o] * x[o] * pow(norm[o], -beta - 1);
		}
		put(&dx[e], acc, dy[e] * pow(norm[e], -beta) - 2 * (double)d->alpha * beta * x[e] * sum);
	}
	return err;
}

int ref_l2norm_forward(struct dn_stream *st, int64_t n, int64_t c, int64_t hw, const float *x, float *norm, float *y)
{
	for (int64_t i = 0; i < n; i++)
		for (int64_t p = 0; p < hw; p++) {
			double sum = 0;

			for (int64_t k = 0; k < c; k++)
				sum += (double)x[(i * c + k) * hw + p] * x[(i * c + k) * hw + p];
			norm[i * hw + p] = (float)sqrt(sum);
			for (int64_t k = 0; k < c; k++)
				y[(i * c + k) * hw + p] = (float)(sum == 0 ? 0 : x[(i * c + k) * hw + p] / sqrt(sum));
		}
	return 0;
}

/* y = x / |x|: dx = (dy - y (y . dy)) / |x| */
int ref_l2norm_backward(struct dn_stream *st, int64_t n, int64_t c, int64_t hw, const float *y, const float *norm,
			const float *dy, float *dx, bool acc)
{
	for (int64_t i = 0; i < n; i++)
		for (int64_t p = 0; p < hw; p++) {
			double sum = 0, of = norm[i * hw + p];

			for (int64_t k = 0; k < c; k++)
				sum += (double)y[(i * c + k) * hw + p] * dy[(i * c + k) * hw + p];
			for (int64_t k = 0; k < c; k++) {
				int64_t e = (i * c + k) * hw + p;

				put(&dx[e], acc, of == 0 ? 0 : (dy[e] - y[e] * sum) / of);
			}
		}
	return 0;
}

static int64_t scale_at(const struct dn_scale_desc *d, int64_t e)
{
	switch (d->by) {
	case DN_SCALE_CHANNEL:
		return e / d->hw;
	case DN_SCALE_POINT:
		return e / (d->hw * d->c) * d->hw + e % d->hw;
	default:
		return e;
	}
}

int ref_scale_forward(struct dn_stream *st, const struct dn_scale_desc *d, const float *a, const float *b, float *y, bool acc)
{
	for (int64_t e = 0; e < d->n * d->c * d->hw; e++)
		put(&y[e], acc, (double)a[scale_at(d, e)] * b[e]);
	return 0;
}

int ref_scale_backward(struct dn_stream *st, const struct dn_scale_desc *d, const float *b, const float *dy, float *da, bool acc)
{
	int64_t n = d->by == DN_SCALE_CHANNEL ? d->n * d->c : d->by == DN_SCALE_POINT ? d->n * d->hw : d->n * d->c * d->hw;

	for (int64_t i = 0; i < n; i++) {
		int64_t count = d->by == DN_SCALE_CHANNEL ? d->hw : d->by == DN_SCALE_POINT ? d->c : 1;
		double sum = 0;

		for (int64_t k = 0; k < count; k++) {
			int64_t e = d->by == DN_SCALE_POINT ? (i / d->hw * d->c + k) * d->hw + i % d->hw : i * count + k;

			sum += (double)b[e] * dy[e];
		}
		put(&da[i], acc, sum);
	}
	return 0;
}

/* points of the window of output (oy, ox) along one side: [*from, *to) */
static void window(int64_t o, int64_t stride, int64_t size, int64_t pad, int64_t n, int64_t *from, int64_t *to)
{
	int64_t at = o * stride - pad / 2;

	*from = at < 0 ? 0 : at;
	*to = at + size > n ? n : at + size;
}

int ref_local_avg_forward(struct dn_stream *st, const struct dn_pool_desc *d, const float *x, float *y)
{
	for (int64_t e = 0; e < d->n * d->c * d->oh * d->ow; e++) {
		const float *plane = x + e / (d->oh * d->ow) * d->h * d->w;
		int64_t y0, y1, x0, x1;
		double sum = 0;

		window(e / d->ow % d->oh, d->stride, d->size, d->pad, d->h, &y0, &y1);
		window(e % d->ow, d->stride, d->size, d->pad, d->w, &x0, &x1);
		for (int64_t i = y0; i < y1; i++)
			for (int64_t j = x0; j < x1; j++)
				sum += plane[i * d->w + j];
		y[e] = (float)(y0 < y1 && x0 < x1 ? sum / (double)((y1 - y0) * (x1 - x0)) : 0);
	}
	return 0;
}

int ref_local_avg_backward(struct dn_stream *st, const struct dn_pool_desc *d, const float *dy, float *dx, bool acc)
{
	if (!acc)
		memset(dx, 0, sizeof(*dx) * (size_t)(d->n * d->c * d->h * d->w));
	for (int64_t e = 0; e < d->n * d->c * d->oh * d->ow; e++) {
		float *plane = dx + e / (d->oh * d->ow) * d->h * d->w;
		int64_t y0, y1, x0, x1;

		window(e / d->ow % d->oh, d->stride, d->size, d->pad, d->h, &y0, &y1);
		window(e % d->ow, d->stride, d->size, d->pad, d->w, &x0, &x1);
		for (int64_t i = y0; i < y1; i++)
			for (int64_t j = x0; j < x1; j++)
				plane[i * d->w + j] += (float)(dy[e] / (double)((y1 - y0) * (x1 - x0)));
	}
	return 0;
}

/* --- local --- */

/* offset of a tap in x, -1 outside */
static int64_t local_x(const struct dn_conv_desc *d, int64_t n, int64_t c, int64_t oy, int64_t ox, int64_t ky, int64_t kx)
{
	int64_t y = oy * d->stride - d->pad + ky, x = ox * d->stride - d->pad + kx;

	return y < 0 || y >= d->h || x < 0 || x >= d->w ? -1 : ((n * d->c + c) * d->h + y) * d->w + x;
}

static int64_t local_w(const struct dn_conv_desc *d, int64_t oy, int64_t ox, int64_t k, int64_t c, int64_t ky, int64_t kx)
{
	return ((((oy * d->ow + ox) * d->k + k) * d->c + c) * d->size + ky) * d->size + kx;
}

#define LOCAL_POINTS(body) \
	for (int64_t n = 0; n < d->n; n++) \
		for (int64_t k = 0; k < d->k; k++) \
			for (int64_t oy = 0; oy < d->oh; oy++) \
				for (int64_t ox = 0; ox < d->ow; ox++) { \
					int64_t out = ((n * d->k + k) * d->oh + oy) * d->ow + ox; \
					body \
				}
#define LOCAL_TAPS(body) \
	for (int64_t c = 0; c < d->c; c++) \
		for (int64_t ky = 0; ky < d->size; ky++) \
			for (int64_t kx = 0; kx < d->size; kx++) { \
				int64_t in = local_x(d, n, c, oy, ox, ky, kx), at = local_w(d, oy, ox, k, c, ky, kx); \
				if (in >= 0) { \
					body \
				} \
			}

int ref_local_forward(struct dn_stream *st, const struct dn_conv_desc *d, const float *x, const float *w, float *y)
{
	int err = local_desc_check(d);

	if (err)
		return err;
	LOCAL_POINTS(double sum = 0; LOCAL_TAPS(sum += (double)x[in] * w[at];) y[out] = (float)sum;)
	return 0;
}

/* a weight has one point an image: the sum runs over images only */
int ref_local_backward_weights(struct dn_stream *st, const struct dn_conv_desc *d, const float *x, const float *dy, float *dw)
{
	int err = local_desc_check(d);

	if (err)
		return err;
	memset(dw, 0, sizeof(*dw) * (size_t)(d->oh * d->ow * d->k * d->c * d->size * d->size));
	LOCAL_POINTS(LOCAL_TAPS(dw[at] += x[in] * dy[out];))
	return 0;
}

int ref_local_backward_data(struct dn_stream *st, const struct dn_conv_desc *d, const float *dy, const float *w, float *dx,
			    bool acc)
{
	int err = local_desc_check(d);

	if (err)
		return err;
	if (!acc)
		memset(dx, 0, sizeof(*dx) * (size_t)(d->n * d->c * d->h * d->w));
	LOCAL_POINTS(LOCAL_TAPS(dx[in] += w[at] * dy[out];))
	return 0;
}
