/* cpu: element-wise ops, sums over elements, and updates, as OpenMP loops.
 *
 * An element's result is one fixed expression of its own inputs, so it does not depend on where in a
 * range it lies or who computes it; sums go over fixed chunks, added in order, whatever the thread count.
 */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>
#include "backend/backend_priv.h"
#include "backend/cpu/cpu_priv.h"
#include "base/rng.h"

#ifndef __clang__       /* lets the compiler compute both sides of a condition, four times as fast; same results */
#pragma GCC optimize("no-trapping-math")
#endif

#define SUM_CHUNKS 64                   /* partial sums of a reduction, on the stack */
#define TREE_SPAN 512                   /* elements of a part that are added at a time */

#define ACT_LOOP(expr) \
	_Pragma("omp simd") \
	for (int64_t i = 0; i < n; i++) { \
		float v = x[i] + bias; \
		x[i] = (expr); \
	} \
	break

static inline float stair(float v)
{
	float f = floorf(v), half = floorf(v / 2);

	return f == 2 * half ? half : v - f + half;
}

/* The comparisons let a NaN through: a broken weight must show, not turn into 0. */
void act_range(float *x, int64_t n, float bias, enum dn_act act)
{
	switch (act) {
	case DN_ACT_LOGISTIC: ACT_LOOP(1 / (1 + expf(-v)));
	case DN_ACT_LOGGY: ACT_LOOP(2 / (1 + expf(-v)) - 1);
	case DN_ACT_RELU: ACT_LOOP(v < 0 ? 0 : v);
	case DN_ACT_ELU: ACT_LOOP(v >= 0 ? v : expm1f(v));
	case DN_ACT_SELU: ACT_LOOP(v >= 0 ? 1.0507f * v : 1.0507f * 1.6732f * expm1f(v));
	case DN_ACT_RELIE: ACT_LOOP(v > 0 ? v : .01f * v);
	case DN_ACT_RAMP: ACT_LOOP(v > 0 ? v + .1f * v : .1f * v);
	case DN_ACT_LEAKY: ACT_LOOP(v > 0 ? v : .1f * v);
	case DN_ACT_TANH: ACT_LOOP(tanhf(v));
	case DN_ACT_PLSE: ACT_LOOP(v < -4 ? .01f * (v + 4) : v > 4 ? .01f * (v - 4) + 1 : .125f * v + .5f);
	case DN_ACT_STAIR: ACT_LOOP(stair(v));
	case DN_ACT_HARDTAN: ACT_LOOP(v < -1 ? -1 : v > 1 ? 1 : v);
	case DN_ACT_LHTAN: ACT_LOOP(v < 0 ? .001f * v : v > 1 ? .001f * (v - 1) + 1 : v);
	default: ACT_LOOP(v);
	}
}

/* x + -0 is x, bit by bit: the bias of "no bias" */
static inline float bias_of(const float *bias, int64_t k)
{
	return bias ? bias[k] : -0.0f;
}

int cpu_bias_act(struct dn_stream *st, int64_t n, int64_t c, int64_t hw, float *x, const float *bias, enum dn_act act)
{
	int nt = stream_threads(st);
	int64_t total = n * c * hw;

	if (!bias) {                    /* spans of any length: only work for the threads */
		if (act == DN_ACT_LINEAR)
			return 0;
		#pragma omp parallel for schedule(static) num_threads(nt) if (total >= CPU_PARALLEL_MIN)
		for (int64_t at = 0; at < total; at += 4096)
			act_range(x + at, total - at < 4096 ? total - at : 4096, -0.0f, act);
	} else if (hw == 1) {
		#pragma omp parallel for schedule(static) num_threads(nt) if (total >= CPU_PARALLEL_MIN)
		for (int64_t i = 0; i < n; i++) {
			for (int64_t k = 0; k < c; k++)
				x[i * c + k] += bias[k];
			act_range(x + i * c, c, -0.0f, act);
		}
	} else {
		#pragma omp parallel for schedule(static) num_threads(nt) if (total >= CPU_PARALLEL_MIN)
		for (int64_t p = 0; p < n * c; p++)
			act_range(x + p * hw, hw, bias_of(bias, p % c), act);
	}
	return 0;
}

#define GRAD_LOOP(expr) \
	_Pragma("omp simd") \
	for (int64_t i = 0; i < n; i++) { \
		float v = y[i]; \
		dy[i] *= (expr); \
	} \
	break

/* (1 + v)(1 - v) instead of 1 - v * v: no cancellation where the function saturates */
static void grad_range(enum dn_act act, int64_t n, const float *y, float *dy)
{
	switch (act) {
	case DN_ACT_LOGISTIC: GRAD_LOOP(v * (1 - v));
	case DN_ACT_LOGGY: GRAD_LOOP(.5f * ((1 + v) * (1 - v)));
	case DN_ACT_RELU: GRAD_LOOP(v > 0 ? 1.0f : 0.0f);
	case DN_ACT_ELU: GRAD_LOOP(v >= 0 ? 1 : v + 1);
	case DN_ACT_SELU: GRAD_LOOP(v >= 0 ? 1.0507f : (float)((double)v + 1.0507 * 1.6732));
	case DN_ACT_RELIE: GRAD_LOOP(v > 0 ? 1 : .01f);
	case DN_ACT_RAMP: GRAD_LOOP(v > 0 ? 1.1f : .1f);
	case DN_ACT_LEAKY: GRAD_LOOP(v > 0 ? 1 : .1f);
	case DN_ACT_TANH: GRAD_LOOP((1 + v) * (1 - v));
	case DN_ACT_PLSE: GRAD_LOOP(v < 0 || v > 1 ? .01f : .125f);
	case DN_ACT_STAIR: GRAD_LOOP(floorf(v) == v ? 0.0f : 1.0f);
	case DN_ACT_HARDTAN: GRAD_LOOP(v > -1 && v < 1 ? 1.0f : 0.0f);
	case DN_ACT_LHTAN: GRAD_LOOP(v > 0 && v < 1 ? 1 : .001f);
	default: break;
	}
}

int cpu_act_backward(struct dn_stream *st, enum dn_act act, int64_t n, const float *y, float *dy)
{
	int nt = stream_threads(st);

	if (act == DN_ACT_LINEAR)
		return 0;
	#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
	for (int64_t at = 0; at < n; at += 4096)
		grad_range(act, n - at < 4096 ? n - at : 4096, y + at, dy + at);
	return 0;
}

/* --- dropout --- */

/* calls use(i, factor) for the elements of one image: factor 0 = dropped */
#define DROPOUT_IMAGE(use) do { \
	for (int64_t j = 0; j < per_image; j += 4) { \
		uint32_t r[4]; \
		int64_t lanes = per_image - j < 4 ? per_image - j : 4; \
		dn_rng_block(k->seed, k->stream, (k->first_image + (uint64_t)i) * blocks + (uint64_t)j / 4, r); \
		for (int64_t l = 0; l < lanes; l++) { \
			int64_t at = i * per_image + j + l; \
			bool keep = r[l] * 0x1p-32 >= p; \
			use; \
		} \
	} \
} while (0)

int cpu_dropout_forward(struct dn_stream *st, const struct dn_dropout_key *k, int64_t n, int64_t per_image,
			const float *x, float *y)
{
	int nt = stream_threads(st), err = dropout_key_check(k);
	uint64_t blocks = ((uint64_t)per_image + 3) / 4;
	double p = (double)k->probability;
	float scale = (float)(1 / (1 - p));

	if (err)
		return err;
	#pragma omp parallel for schedule(static) num_threads(nt) if (n * per_image >= CPU_PARALLEL_MIN)
	for (int64_t i = 0; i < n; i++)
		DROPOUT_IMAGE(y[at] = keep ? x[at] * scale : 0);
	return 0;
}

int cpu_dropout_backward(struct dn_stream *st, const struct dn_dropout_key *k, int64_t n, int64_t per_image,
			 const float *dy, float *dx, bool acc)
{
	int nt = stream_threads(st), err = dropout_key_check(k);
	uint64_t blocks = ((uint64_t)per_image + 3) / 4;
	double p = (double)k->probability;
	float scale = (float)(1 / (1 - p));

	if (err)
		return err;
	#pragma omp parallel for schedule(static) num_threads(nt) if (n * per_image >= CPU_PARALLEL_MIN)
	for (int64_t i = 0; i < n; i++)
		DROPOUT_IMAGE(dx[at] = (acc ? dx[at] : 0) + (keep ? dy[at] * scale : 0));
	return 0;
}

/* --- loss --- */

int cpu_softmax(struct dn_stream *st, int64_t rows, int64_t cols, float temperature, const float *x, float *y)
{
	int nt = stream_threads(st);

	#pragma omp parallel for schedule(static) num_threads(nt) if (rows * cols >= CPU_PARALLEL_MIN)
	for (int64_t r = 0; r < rows; r++) {
		const float *from = x + r * cols;
		float *to = y + r * cols, max = -INFINITY;
		double sum = 0;

		for (int64_t i = 0; i < cols; i++)
			max = from[i] > max ? from[i] : max;
		for (int64_t i = 0; i < cols; i++) {
			float e = expf((from[i] - max) / temperature);

			sum += (double)e;
			to[i] = e;
		}
		for (int64_t i = 0; i < cols; i++)
			to[i] = (float)((double)to[i] / sum);
	}
	return 0;
}

int cpu_cost(struct dn_stream *st, enum dn_cost kind, int64_t n, const float *p, const float *t, float *delta,
	     double *loss)
{
	int nt = stream_threads(st);
	int64_t step = (n + SUM_CHUNKS - 1) / SUM_CHUNKS;
	double part[SUM_CHUNKS], sum = 0;

	#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
	for (int c = 0; c < SUM_CHUNKS; c++) {
		int64_t end = (c + 1) * step < n ? (c + 1) * step : n;
		double s = 0;

		for (int64_t i = c * step; i < end; i++) {
			if (kind == DN_COST_SSE) {
				double diff = (double)t[i] - (double)p[i];

				s += diff * diff;
			} else if (t[i] != 0) {
				s -= log((double)(p[i] < FLT_MIN ? FLT_MIN : p[i]));
			}
			delta[i] = t[i] - p[i];
		}
		part[c] = s;
	}
	for (int c = 0; c < SUM_CHUNKS; c++)
		sum += part[c];
	*loss = sum;
	return 0;
}

/* --- element-wise --- */

int cpu_axpby(struct dn_stream *st, int64_t n, float alpha, const float *x, float beta, float *y)
{
	int nt = stream_threads(st);

	if (beta == 0) {
		#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
		for (int64_t i = 0; i < n; i++)
			y[i] = alpha * x[i];
	} else {
		#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
		for (int64_t i = 0; i < n; i++)
			y[i] = alpha * x[i] + beta * y[i];
	}
	return 0;
}

int cpu_copy_rows(struct dn_stream *st, int64_t rows, int64_t n, const float *src, int64_t src_stride, float *dst,
		  int64_t dst_stride, bool acc)
{
	int nt = stream_threads(st);

	#pragma omp parallel for schedule(static) num_threads(nt) if (rows * n >= CPU_PARALLEL_MIN)
	for (int64_t r = 0; r < rows; r++) {
		const float *from = src + r * src_stride;
		float *to = dst + r * dst_stride;

		if (!acc)
			memcpy(to, from, (size_t)n * sizeof(*to));
		else
			for (int64_t i = 0; i < n; i++)
				to[i] += from[i];
	}
	return 0;
}

struct overlap {                        /* of a shortcut: point (x, y) is in * stride there, out * sample here */
	int64_t w, h, c, stride, sample;
};

static struct overlap shortcut_overlap(const struct dn_shortcut_desc *d)
{
	struct overlap o = {
		.w = d->w1 < d->w2 ? d->w1 : d->w2,
		.h = d->h1 < d->h2 ? d->h1 : d->h2,
		.c = d->c1 < d->c2 ? d->c1 : d->c2,
		.stride = d->w1 > d->w2 ? d->w1 / d->w2 : 1,
		.sample = d->w2 > d->w1 ? d->w2 / d->w1 : 1,
	};
	return o;
}

int cpu_shortcut_forward(struct dn_stream *st, const struct dn_shortcut_desc *d, const float *direct,
			 const float *src, float *y)
{
	int nt = stream_threads(st), err = shortcut_desc_check(d);
	struct overlap o = shortcut_overlap(d);
	int64_t plane = d->w2 * d->h2;

	if (err)
		return err;
	#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c2 * plane >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->n * d->c2; p++) {
		int64_t c = p % d->c2;
		const float *a = direct + p * plane, *b = src + (p / d->c2 * d->c1 + c) * d->w1 * d->h1;
		float *to = y + p * plane;

		if (to != a && !(c < o.c && o.w == d->w2 && o.h == d->h2))
			memcpy(to, a, (size_t)plane * sizeof(*to));
		for (int64_t i = 0; c < o.c && i < o.h; i++) {
			const float *row_a = a + i * o.sample * d->w2, *row_b = b + i * o.stride * d->w1;
			float *row = to + i * o.sample * d->w2;

			if (o.stride == 1 && o.sample == 1)
				for (int64_t j = 0; j < o.w; j++)
					row[j] = d->alpha * row_a[j] + d->beta * row_b[j];
			else
				for (int64_t j = 0; j < o.w; j++)
					row[j * o.sample] = d->alpha * row_a[j * o.sample] + d->beta * row_b[j * o.stride];
		}
	}
	return 0;
}

int cpu_shortcut_backward_src(struct dn_stream *st, const struct dn_shortcut_desc *d, const float *dy, float *dsrc,
			      bool acc)
{
	int nt = stream_threads(st), err = shortcut_desc_check(d);
	struct overlap o = shortcut_overlap(d);
	int64_t plane = d->w1 * d->h1;

	if (err)
		return err;
	#pragma omp parallel for schedule(static) num_threads(nt) if (d->n * d->c1 * plane >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->n * d->c1; p++) {
		int64_t c = p % d->c1;
		float *to = dsrc + p * plane;

		if (!acc)
			memset(to, 0, (size_t)plane * sizeof(*to));
		for (int64_t i = 0; c < o.c && i < o.h; i++) {
			const float *row = dy + ((p / d->c1 * d->c2 + c) * d->h2 + i * o.sample) * d->w2;

			for (int64_t j = 0; j < o.w; j++)
				to[i * o.stride * d->w1 + j * o.stride] += d->beta * row[j * o.sample];
		}
	}
	return 0;
}

/* --- updates and sums --- */

int cpu_sgd(struct dn_stream *st, int64_t n, float *w, float *v, const float *g, float rate, float momentum,
	    float decay)
{
	int nt = stream_threads(st);

	#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
	for (int64_t i = 0; i < n; i++) {
		float u = momentum * v[i] + g[i] - decay * w[i];

		v[i] = u;
		w[i] = w[i] + rate * u;
	}
	return 0;
}

/* at most 32 levels deep: each halves the count */
static void tree_span(int n_parts, const float *const *parts, int64_t at, int64_t n, float *out)
{
	float right[TREE_SPAN];
	int left = 1;

	if (n_parts == 1) {
		memcpy(out, parts[0] + at, (size_t)n * sizeof(*out));
		return;
	}
	if (n_parts == 2) {
		const float *a = parts[0] + at, *b = parts[1] + at;

		for (int64_t i = 0; i < n; i++)
			out[i] = a[i] + b[i];
		return;
	}
	while (left * 2 < n_parts)
		left *= 2;
	tree_span(left, parts, at, n, out);
	tree_span(n_parts - left, parts + left, at, n, right);
	for (int64_t i = 0; i < n; i++)
		out[i] += right[i];
}

int cpu_sum_tree(struct dn_stream *st, int64_t n, int n_parts, const float *const *parts, float *out, bool acc)
{
	int nt = stream_threads(st);

	if (n_parts < 1 || n_parts > 1 << 20)
		return dn_fail(-EINVAL, "sum over %d parts, must be 1 to %d", n_parts, 1 << 20);
	#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
	for (int64_t at = 0; at < n; at += TREE_SPAN) {
		int64_t len = n - at < TREE_SPAN ? n - at : TREE_SPAN;
		float sum[TREE_SPAN];   /* not out itself: it may be one of the parts */

		tree_span(n_parts, parts, at, len, sum);
		if (!acc)
			memcpy(out + at, sum, (size_t)len * sizeof(*out));
		else
			for (int64_t i = 0; i < len; i++)
				out[at + i] += sum[i];
	}
	return 0;
}

int cpu_count_nonfinite(struct dn_stream *st, int64_t n, const float *x, int64_t *count)
{
	int nt = stream_threads(st);
	int64_t bad = 0;                /* whole numbers: any order gives the same sum */

	#pragma omp parallel for schedule(static) num_threads(nt) reduction(+ : bad) if (n >= CPU_PARALLEL_MIN)
	for (int64_t i = 0; i < n; i++)
		bad += !(fabsf(x[i]) <= FLT_MAX);
	*count = bad;
	return 0;
}
