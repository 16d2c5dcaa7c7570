/* Convolutions whose weights outweigh their data, such as 4 x 4 images under megabytes of weights: one matrix product over
 * the whole batch, on the plain weights. The library's ways read or write the weights once an image, or convert them.
 *
 * With P = n * oh * ow places and R = c * size * size rows: col[R, P] holds the inputs under each weight, dyt[k, P] the
 * output with the batch inside. y = w col; dw = dyt col^T; dcol = w^T dyt.
 */
#include <string.h>

#include "backend/cpu/cpu_priv.h"

static int64_t n_rows(const struct dn_conv_desc *d)
{
	return d->x.c * d->size * d->size;
}

static int64_t n_places(const struct dn_conv_desc *d)
{
	return d->x.n * d->y.h * d->y.w;
}

static size_t up(int64_t floats)
{
	return dn_up((size_t)floats * sizeof(float), DN_ALIGN);
}

size_t gemm_conv_bytes(const struct dn_conv_desc *d)
{
	return up(n_rows(d) * n_places(d)) + up(d->y.c * n_places(d));
}

/* Columns ox whose input ox * stride + shift lies in [0, w): [*from, *to). */
static void inside(const struct dn_conv_desc *d, int64_t shift, int64_t *from, int64_t *to)
{
	*from = shift < 0 ? (-shift + d->stride - 1) / d->stride : 0;
	*to = d->x.w > shift ? (d->x.w - shift + d->stride - 1) / d->stride : 0;
	if (*to > d->y.w)
		*to = d->y.w;
	if (*from > *to)
		*from = *to;
}

/* One row of col: the inputs of channel c under weight (u, v). */
static void col_row(const struct dn_conv_desc *d, const float *x, int64_t row, float *col)
{
	int64_t c = row / (d->size * d->size), u = row / d->size % d->size, v = row % d->size;
	int64_t shift = v * d->dilation - d->pad, from, to;

	inside(d, shift, &from, &to);
	for (int64_t b = 0; b < d->x.n; b++)
		for (int64_t oy = 0; oy < d->y.h; oy++, col += d->y.w) {
			int64_t iy = oy * d->stride + u * d->dilation - d->pad;
			const float *in = x + ((b * d->x.c + c) * d->x.h + iy) * d->x.w + shift;

			if (iy < 0 || iy >= d->x.h) {
				memset(col, 0, (size_t)d->y.w * sizeof(*col));
				continue;
			}
			for (int64_t ox = 0; ox < d->y.w; ox++)
				col[ox] = ox >= from && ox < to ? in[ox * d->stride] : 0;
		}
}

static void to_col(const struct dn_conv_desc *d, int threads, const float *x, float *col)
{
#pragma omp parallel for schedule(static) num_threads(threads) if (n_rows(d) * n_places(d) >= CPU_PARALLEL_MIN)
	for (int64_t row = 0; row < n_rows(d); row++)
		col_row(d, x, row, col + row * n_places(d));
}

/* dx[n, c, h, w] = the sums of dcol over the places that each input was under; a channel's rows in order. */
static void from_col(const struct dn_conv_desc *d, int threads, const float *dcol, float *dx)
{
	int64_t per = d->size * d->size;

#pragma omp parallel for schedule(static) num_threads(threads) if (n_rows(d) * n_places(d) >= CPU_PARALLEL_MIN)
	for (int64_t c = 0; c < d->x.c; c++) {
		for (int64_t b = 0; b < d->x.n; b++)
			memset(dx + (b * d->x.c + c) * d->x.h * d->x.w, 0, (size_t)(d->x.h * d->x.w) * sizeof(*dx));
		for (int64_t row = c * per; row < (c + 1) * per; row++) {
			int64_t u = row / d->size % d->size, shift = row % d->size * d->dilation - d->pad, from, to;
			const float *from_row = dcol + row * n_places(d);

			inside(d, shift, &from, &to);
			for (int64_t b = 0; b < d->x.n; b++)
				for (int64_t oy = 0; oy < d->y.h; oy++, from_row += d->y.w) {
					int64_t iy = oy * d->stride + u * d->dilation - d->pad;
					float *to_row = dx + ((b * d->x.c + c) * d->x.h + iy) * d->x.w + shift;

					for (int64_t ox = from; iy >= 0 && iy < d->x.h && ox < to; ox++)
						to_row[ox * d->stride] += from_row[ox];
				}
		}
	}
}

/* [n, k, hw] to [k, n, hw] with @inwards, else back */
static void swap_batch(const struct dn_conv_desc *d, int threads, bool inwards, const float *from, float *to)
{
	int64_t hw = d->y.h * d->y.w;

#pragma omp parallel for schedule(static) num_threads(threads) if (d->y.c * n_places(d) >= CPU_PARALLEL_MIN)
	for (int64_t k = 0; k < d->y.c; k++)
		for (int64_t b = 0; b < d->x.n; b++) {
			int64_t outer = (b * d->y.c + k) * hw, inner = (k * d->x.n + b) * hw;

			memcpy(to + (inwards ? inner : outer), from + (inwards ? outer : inner), (size_t)hw * sizeof(*to));
		}
}

int gemm_conv_forward(struct dn_stream *st, const struct dn_conv_desc *d, const float *x, const float *w, const float *bias,
		      float *y, void *ws)
{
	int64_t rows = n_rows(d), places = n_places(d);
	int threads = stream_threads(st), err;
	float *col = ws, *yt = (float *)((char *)ws + up(rows * places));

	to_col(d, threads, x, col);
	err = cpu_sgemm(st, false, false, d->y.c, places, rows, 1, w, rows, col, places, 0, yt, places);
	if (err)
		return err;
	swap_batch(d, threads, false, yt, y);
	return d->bias || d->act != DN_ACT_LINEAR ? cpu_bias_act(st, &d->y, y, d->bias ? bias : NULL, d->act) : 0;
}

int gemm_conv_backward_weights(struct dn_stream *st, const struct dn_conv_desc *d, const float *x, const float *dy, float *dw,
			       void *ws)
{
	int64_t rows = n_rows(d), places = n_places(d);
	int threads = stream_threads(st);
	float *col = ws, *dyt = (float *)((char *)ws + up(rows * places));

	to_col(d, threads, x, col);
	swap_batch(d, threads, true, dy, dyt);
	return cpu_sgemm(st, false, true, d->y.c, rows, places, 1, dyt, places, col, places, 0, dw, rows);
}

int gemm_conv_backward_data(struct dn_stream *st, const struct dn_conv_desc *d, const float *dy, const float *w, float *dx,
			    void *ws)
{
	int64_t rows = n_rows(d), places = n_places(d);
	int threads = stream_threads(st), err;
	float *dcol = ws, *dyt = (float *)((char *)ws + up(rows * places));

	swap_batch(d, threads, true, dy, dyt);
	err = cpu_sgemm(st, true, false, rows, places, d->y.c, 1, w, rows, dyt, places, 0, dcol, places);
	if (!err)
		from_col(d, threads, dcol, dx);
	return err;
}
