/* ref: ops that move the points of images, or combine those of neighbouring channels, as plain loops. */
#include <math.h>
#include <string.h>
#include "backend/backend_priv.h"
#include "backend/ref/ref_priv.h"

static void put(float *y, bool acc, double v)
{
	*y = (float)(acc ? (double)*y + v : v);
}

int ref_upsample(struct dn_stream *st, const struct dn_tensor *t, int64_t stride, float scale, const void *px, void *py, bool acc)
{
	const float *x = px;
	float *y = py;
	const int64_t planes = t->n * t->c, h = t->h, w = t->w;
	int err = tensor_check(&ref_limits, "upsample", t);

	if (err)
		return err;
	for (int64_t p = 0; p < planes; p++)
		for (int64_t i = 0; i < h * stride; i++)
			for (int64_t j = 0; j < w * stride; j++)
				put(&y[(p * h * stride + i) * w * stride + j], acc,
				    (double)scale * x[(p * h + i / stride) * w + j / stride]);
	return 0;
}

int ref_block_sum(struct dn_stream *st, const struct dn_tensor *t, int64_t stride, float scale, const void *px, void *py,
		  bool acc)
{
	const float *x = px;
	float *y = py;
	const int64_t planes = t->n * t->c, h = t->h, w = t->w;
	int err = tensor_check(&ref_limits, "block_sum", t);

	if (err)
		return err;
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

int ref_reorg(struct dn_stream *st, const struct dn_reorg_desc *d, bool narrow, const void *px, void *py, bool acc)
{
	const float *x = px;
	float *y = py;
	int err = reorg_desc_check(&ref_limits, "reorg", d);
	int64_t s = d->stride, c2 = err ? 0 : d->narrow.c / (s * s);

	for (int64_t e = 0; !err && e < d->narrow.n * d->narrow.c * d->narrow.h * d->narrow.w; e++) {
		int64_t i = e % d->narrow.w, j = e / d->narrow.w % d->narrow.h, k = e / (d->narrow.w * d->narrow.h) % d->narrow.c,
			n = e / (d->narrow.w * d->narrow.h * d->narrow.c);
		int64_t o = k / c2;
		int64_t wide = ((n * c2 + k % c2) * d->narrow.h * s + j * s + o / s) * d->narrow.w * s + i * s + o % s;

		put(narrow ? &y[e] : &y[wide], acc, narrow ? x[wide] : x[e]);
	}
	return err;
}

int ref_transpose(struct dn_stream *st, const struct dn_tensor *t, const void *px, void *py, bool acc)
{
	const float *x = px;
	float *y = py;
	const int64_t n = t->n, rows = t->c, cols = dn_tensor_plane(t);
	int err = tensor_check(&ref_limits, "transpose", t);

	if (err)
		return err;
	for (int64_t i = 0; i < n; i++)
		for (int64_t r = 0; r < rows; r++)
			for (int64_t c = 0; c < cols; c++)
				put(&y[(i * cols + c) * rows + r], acc, x[(i * rows + r) * cols + c]);
	return 0;
}

int ref_crop_forward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const void *px, void *py)
{
	const float *x = px;
	float *y = py;
	int err = crop_desc_check(&ref_limits, "crop_forward", d);

	for (int64_t n = 0; !err && n < d->x.n; n++) {
		int64_t top, left;
		bool flip;

		crop_place(d, num, n, &top, &left, &flip);
		for (int64_t k = 0; k < d->x.c; k++)
			for (int64_t i = 0; i < d->y.h; i++)
				for (int64_t j = 0; j < d->y.w; j++) {
					int64_t from = left + (flip ? d->y.w - 1 - j : j);

					y[((n * d->x.c + k) * d->y.h + i) * d->y.w + j] =
						d->scale * x[((n * d->x.c + k) * d->x.h + top + i) * d->x.w + from] + d->shift;
				}
	}
	return err;
}

int ref_crop_backward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const void *pdy,
		      void *pdx, bool acc)
{
	const float *dy = pdy;
	float *dx = pdx;
	int err = crop_desc_check(&ref_limits, "crop_backward", d);

	if (!err && !acc)
		memset(dx, 0, sizeof(*dx) * (size_t)(d->x.n * d->x.c * d->x.h * d->x.w));
	for (int64_t n = 0; !err && n < d->x.n; n++) {
		int64_t top, left;
		bool flip;

		crop_place(d, num, n, &top, &left, &flip);
		for (int64_t k = 0; k < d->x.c; k++)
			for (int64_t i = 0; i < d->y.h; i++)
				for (int64_t j = 0; j < d->y.w; j++) {
					int64_t from = left + (flip ? d->y.w - 1 - j : j);

					dx[((n * d->x.c + k) * d->x.h + top + i) * d->x.w + from] +=
						d->scale * dy[((n * d->x.c + k) * d->y.h + i) * d->y.w + j];
				}
	}
	return err;
}

int ref_lrn_forward(struct dn_stream *st, const struct dn_lrn_desc *d, const void *px, float *norm, void *py)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	const float *x = px;
	float *y = py;
	int err = lrn_desc_check(&ref_limits, "lrn_forward", d);

	for (int64_t e = 0; !err && e < d->x.n * d->x.c * hw; e++) {
		int64_t k = e / hw % d->x.c;
		double sum = 0;

		for (int64_t q = k - (d->size - 1) / 2; q <= k + d->size / 2; q++)
			if (q >= 0 && q < d->x.c)
				sum += (double)x[e + (q - k) * hw] * x[e + (q - k) * hw];
		norm[e] = (float)((double)d->kappa + (double)d->alpha * sum);
		y[e] = (float)(x[e] * pow(norm[e], -(double)d->beta));
	}
	return err;
}

/* x of channel k stands in the norms of channels k - size/2 .. k + (size-1)/2 */
int ref_lrn_backward(struct dn_stream *st, const struct dn_lrn_desc *d, const void *px, const float *norm, const void *pdy,
		     void *pdx, bool acc)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	const float *x = px, *dy = pdy;
	float *dx = pdx;
	int err = lrn_desc_check(&ref_limits, "lrn_backward", d);
	const double beta = d->beta;

	for (int64_t e = 0; !err && e < d->x.n * d->x.c * hw; e++) {
		int64_t k = e / hw % d->x.c;
		double sum = 0;

		for (int64_t q = k - d->size / 2; q <= k + (d->size - 1) / 2; q++) {
			int64_t o = e + (q - k) * hw;

			if (q >= 0 && q < d->x.c)
				sum += (double)dy[o] * x[o] * pow(norm[o], -beta - 1);
		}
		put(&dx[e], acc, dy[e] * pow(norm[e], -beta) - 2 * (double)d->alpha * beta * x[e] * sum);
	}
	return err;
}

int ref_l2norm_forward(struct dn_stream *st, const struct dn_tensor *t, const void *px, float *norm, void *py)
{
	const float *x = px;
	float *y = py;
	const int64_t n = t->n, c = t->c, hw = dn_tensor_plane(t);
	int err = tensor_check(&ref_limits, "l2norm_forward", t);

	if (err)
		return err;
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
int ref_l2norm_backward(struct dn_stream *st, const struct dn_tensor *t, const void *py, const float *norm, const void *pdy,
			void *pdx, bool acc)
{
	const float *y = py, *dy = pdy;
	float *dx = pdx;
	const int64_t n = t->n, c = t->c, hw = dn_tensor_plane(t);
	int err = tensor_check(&ref_limits, "l2norm_backward", t);

	if (err)
		return err;
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
	const int64_t hw = dn_tensor_plane(&d->y);

	switch (d->by) {
	case DN_SCALE_CHANNEL:
		return e / hw;
	case DN_SCALE_POINT:
		return e / (hw * d->y.c) * hw + e % hw;
	default:
		return e;
	}
}

int ref_scale_forward(struct dn_stream *st, const struct dn_scale_desc *d, const void *pa, const void *pb, void *py, bool acc)
{
	const int64_t hw = dn_tensor_plane(&d->y);
	const float *a = pa, *b = pb;
	float *y = py;
	int err = tensor_check(&ref_limits, "scale_forward", &d->y);

	if (err)
		return err;
	for (int64_t e = 0; e < d->y.n * d->y.c * hw; e++)
		put(&y[e], acc, (double)a[scale_at(d, e)] * b[e]);
	return 0;
}

int ref_scale_backward(struct dn_stream *st, const struct dn_scale_desc *d, const void *pb, const void *pdy, void *pda, bool acc)
{
	const int64_t hw = dn_tensor_plane(&d->y);
	const float *b = pb, *dy = pdy;
	float *da = pda;
	int err = tensor_check(&ref_limits, "scale_backward", &d->y);
	int64_t n = d->by == DN_SCALE_CHANNEL ? d->y.n * d->y.c : d->by == DN_SCALE_POINT ? d->y.n * hw : d->y.n * d->y.c * hw;

	if (err)
		return err;
	for (int64_t i = 0; i < n; i++) {
		int64_t count = d->by == DN_SCALE_CHANNEL ? hw : d->by == DN_SCALE_POINT ? d->y.c : 1;
		double sum = 0;

		for (int64_t k = 0; k < count; k++) {
			int64_t e = d->by == DN_SCALE_POINT ? (i / hw * d->y.c + k) * hw + i % hw : i * count + k;

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

int ref_local_avg_forward(struct dn_stream *st, const struct dn_pool_desc *d, const void *px, void *py)
{
	const float *x = px;
	float *y = py;
	int err = pool_desc_check(&ref_limits, "local_avg_forward", d);

	if (err)
		return err;
	for (int64_t e = 0; e < d->x.n * d->x.c * d->y.h * d->y.w; e++) {
		const float *plane = x + e / (d->y.h * d->y.w) * d->x.h * d->x.w;
		int64_t y0, y1, x0, x1;
		double sum = 0;

		window(e / d->y.w % d->y.h, d->stride, d->size, d->pad, d->x.h, &y0, &y1);
		window(e % d->y.w, d->stride, d->size, d->pad, d->x.w, &x0, &x1);
		for (int64_t i = y0; i < y1; i++)
			for (int64_t j = x0; j < x1; j++)
				sum += plane[i * d->x.w + j];
		y[e] = (float)(y0 < y1 && x0 < x1 ? sum / (double)((y1 - y0) * (x1 - x0)) : 0);
	}
	return 0;
}

int ref_local_avg_backward(struct dn_stream *st, const struct dn_pool_desc *d, const void *pdy, void *pdx, bool acc)
{
	const float *dy = pdy;
	float *dx = pdx;
	int err = pool_desc_check(&ref_limits, "local_avg_backward", d);

	if (err)
		return err;
	if (!acc)
		memset(dx, 0, sizeof(*dx) * (size_t)(d->x.n * d->x.c * d->x.h * d->x.w));
	for (int64_t e = 0; e < d->x.n * d->x.c * d->y.h * d->y.w; e++) {
		float *plane = dx + e / (d->y.h * d->y.w) * d->x.h * d->x.w;
		int64_t y0, y1, x0, x1;

		window(e / d->y.w % d->y.h, d->stride, d->size, d->pad, d->x.h, &y0, &y1);
		window(e % d->y.w, d->stride, d->size, d->pad, d->x.w, &x0, &x1);
		for (int64_t i = y0; i < y1; i++)
			for (int64_t j = x0; j < x1; j++)
				plane[i * d->x.w + j] += (float)(dy[e] / (double)((y1 - y0) * (x1 - x0)));
	}
	return 0;
}

/* --- local --- */

/* offset of a tap in x, -1 outside */
static int64_t local_x(const struct dn_conv_desc *d, int64_t n, int64_t c, int64_t oy, int64_t ox, int64_t ky, int64_t kx)
{
	int64_t y = oy * d->stride - d->pad + ky, x = ox * d->stride - d->pad + kx;

	return y < 0 || y >= d->x.h || x < 0 || x >= d->x.w ? -1 : ((n * d->x.c + c) * d->x.h + y) * d->x.w + x;
}

static int64_t local_w(const struct dn_conv_desc *d, int64_t oy, int64_t ox, int64_t k, int64_t c, int64_t ky, int64_t kx)
{
	return ((((oy * d->y.w + ox) * d->y.c + k) * d->x.c + c) * d->size + ky) * d->size + kx;
}

#define LOCAL_POINTS(body) \
	for (int64_t n = 0; n < d->x.n; n++) \
		for (int64_t k = 0; k < d->y.c; k++) \
			for (int64_t oy = 0; oy < d->y.h; oy++) \
				for (int64_t ox = 0; ox < d->y.w; ox++) { \
					int64_t out = ((n * d->y.c + k) * d->y.h + oy) * d->y.w + ox; \
					body \
				}
#define LOCAL_TAPS(body) \
	for (int64_t c = 0; c < d->x.c; c++) \
		for (int64_t ky = 0; ky < d->size; ky++) \
			for (int64_t kx = 0; kx < d->size; kx++) { \
				int64_t in = local_x(d, n, c, oy, ox, ky, kx), at = local_w(d, oy, ox, k, c, ky, kx); \
				if (in >= 0) { \
					body \
				} \
			}

int ref_local_forward(struct dn_stream *st, const struct dn_conv_desc *d, const void *px, const void *pw, void *py)
{
	const float *x = px, *w = pw;
	float *y = py;
	int err = local_desc_check(&ref_limits, "local_forward", d);

	if (err)
		return err;
	LOCAL_POINTS(double sum = 0; LOCAL_TAPS(sum += (double)x[in] * w[at];) y[out] = (float)sum;)
	return 0;
}

/* a weight has one point an image: the sum runs over images only */
static void local_weight(const struct dn_conv_desc *d, int64_t oy, int64_t ox, int64_t k, int64_t tap, const float *x,
			 const float *dy, float *dw, bool acc)
{
	int64_t c = tap / (d->size * d->size), ky = tap / d->size % d->size, kx = tap % d->size;
	float *to = &dw[local_w(d, oy, ox, k, c, ky, kx)], sum = 0;

	for (int64_t n = 0; n < d->x.n; n++) {
		int64_t in = local_x(d, n, c, oy, ox, ky, kx);

		if (in >= 0)
			sum += x[in] * dy[((n * d->y.c + k) * d->y.h + oy) * d->y.w + ox];
	}
	*to = acc ? *to + sum : sum;
}

int ref_local_backward_weights(struct dn_stream *st, const struct dn_conv_desc *d, const void *px, const void *pdy, float *dw,
			       bool acc)
{
	const float *x = px, *dy = pdy;
	int err = local_desc_check(&ref_limits, "local_backward_weights", d);

	if (err)
		return err;
	for (int64_t oy = 0; oy < d->y.h; oy++)
		for (int64_t ox = 0; ox < d->y.w; ox++)
			for (int64_t k = 0; k < d->y.c; k++)
				for (int64_t tap = 0; tap < d->x.c * d->size * d->size; tap++)
					local_weight(d, oy, ox, k, tap, x, dy, dw, acc);
	return 0;
}

int ref_local_backward_data(struct dn_stream *st, const struct dn_conv_desc *d, const void *pdy, const void *pw, void *pdx,
			    bool acc)
{
	const float *dy = pdy, *w = pw;
	float *dx = pdx;
	int err = local_desc_check(&ref_limits, "local_backward_data", d);

	if (err)
		return err;
	if (!acc)
		memset(dx, 0, sizeof(*dx) * (size_t)(d->x.n * d->x.c * d->x.h * d->x.w));
	LOCAL_POINTS(LOCAL_TAPS(dx[in] += w[at] * dy[out];))
	return 0;
}
