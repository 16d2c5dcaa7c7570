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

#ifndef __clang__ /* lets the compiler compute both sides of a condition, four times as fast; same results */
#pragma GCC optimize("no-trapping-math")
#endif

#define SUM_CHUNKS 64 /* partial sums of a reduction, on the stack */
#define COST_SPAN 256 /* targets that are written out at a time */
#define TREE_SPAN 512 /* elements of a part that are added at a time */

#define ACT_LOOP(expr) \
	_Pragma("omp simd") for (int64_t i = 0; i < n; i++) \
	{ \
		float v = x[i] + bias; \
		x[i] = (expr); \
	} \
	break

static inline float stair(float v)
{
	float f = floorf(v), half = floorf(v / 2);

	return f == 2 * half ? half : v - f + half;
}

static inline float mish(float v)
{
	return v * tanhf(v > 20 ? v : v < -20 ? expf(v) : log1pf(expf(v)));
}

static inline float mish_gradient(float v)
{
	float sp = v > 20 ? v : v < -20 ? expf(v) : log1pf(expf(v)), t = tanhf(sp);

	return t + v * ((1 + t) * (1 - t)) * -expm1f(-sp);
}

/* gelu's (1 + tanh(u)) / 2 is the logistic of 2u, which loses no digits where tanh nears -1 */
static inline float gelu_twice(float v)
{
	return 2 * (.797885f * v + .035677f * v * v * v);
}

static inline float gelu_gradient(float v)
{
	float u = gelu_twice(v), s = 1 / (1 + expf(-u));
	float in = v > 100 ? 100 : v < -100 ? -100 : v; /* beyond it is times 0, which its square must not make NaN */

	return s + v * s * (1 / (1 + expf(u))) * (2 * (.797885f + 3 * .035677f * in * in));
}

static inline float swish_gradient(float v)
{
	float s = 1 / (1 + expf(-v));

	return s + v * s * (1 - s);
}

/* The comparisons let a NaN through: a broken weight must show, not turn into 0. */
void act_range(float *x, int64_t n, float bias, enum dn_act act)
{
	switch (act) {
	case DN_ACT_LOGISTIC:
		ACT_LOOP(1 / (1 + expf(-v)));
	case DN_ACT_LOGGY:
		ACT_LOOP(2 / (1 + expf(-v)) - 1);
	case DN_ACT_RELU:
		ACT_LOOP(v < 0 ? 0 : v);
	case DN_ACT_ELU:
		ACT_LOOP(v >= 0 ? v : expm1f(v));
	case DN_ACT_SELU:
		ACT_LOOP(v >= 0 ? 1.0507f * v : 1.0507f * 1.6732f * expm1f(v));
	case DN_ACT_RELIE:
		ACT_LOOP(v > 0 ? v : .01f * v);
	case DN_ACT_RAMP:
		ACT_LOOP(v > 0 ? v + .1f * v : .1f * v);
	case DN_ACT_LEAKY:
		ACT_LOOP(v > 0 ? v : .1f * v);
	case DN_ACT_TANH:
		ACT_LOOP(tanhf(v));
	case DN_ACT_PLSE:
		ACT_LOOP(v < -4 ? .01f * (v + 4) : v > 4 ? .01f * (v - 4) + 1 : .125f * v + .5f);
	case DN_ACT_STAIR:
		ACT_LOOP(stair(v));
	case DN_ACT_HARDTAN:
		ACT_LOOP(v < -1 ? -1 : v > 1 ? 1 : v);
	case DN_ACT_LHTAN:
		ACT_LOOP(v < 0 ? .001f * v : v > 1 ? .001f * (v - 1) + 1 : v);
	case DN_ACT_RELU6:
		ACT_LOOP(v < 0 ? 0 : v > 6 ? 6 : v);
	case DN_ACT_REVLEAKY:
		ACT_LOOP(v > 0 ? v : .1f * v);
	case DN_ACT_SWISH:
		ACT_LOOP(v / (1 + expf(-v)));
	case DN_ACT_MISH:
		ACT_LOOP(mish(v));
	case DN_ACT_HARD_MISH:
		ACT_LOOP(v > 0 ? v : v <= -2 ? 0 : v * v / 2 + v);
	case DN_ACT_GELU:
		ACT_LOOP(v / (1 + expf(-gelu_twice(v))));
	default:
		ACT_LOOP(v);
	}
}

/* x + -0 is x, bit by bit: the bias of "no bias" */
static inline float bias_of(const float *bias, int64_t k)
{
	return bias ? bias[k] : -0.0f;
}

int cpu_bias_act(struct dn_stream *st, const struct dn_tensor *t, void *px, const float *bias, enum dn_act act)
{
	float *x = px;
	const int64_t n = t->n, c = t->c, hw = dn_tensor_plane(t);
	int err = tensor_check(&cpu_limits, "bias_act", t);
	int nt = stream_threads(st);
	int64_t total = n * c * hw;

	if (err)
		return err;
	if (!bias) { /* spans of any length: only work for the threads */
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
	_Pragma("omp simd") for (int64_t i = 0; i < n; i++) \
	{ \
		float v = y[i]; \
		dy[i] *= (expr); \
	} \
	break

/* v is the output, or the input where dn_act_of_input(). (1 + v)(1 - v) instead of 1 - v * v: no cancellation where the function saturates */
static void grad_range(enum dn_act act, int64_t n, const float *y, float *dy)
{
	switch (act) {
	case DN_ACT_LOGISTIC:
		GRAD_LOOP(v * (1 - v));
	case DN_ACT_LOGGY:
		GRAD_LOOP(.5f * ((1 + v) * (1 - v)));
	case DN_ACT_RELU:
		GRAD_LOOP(v > 0 ? 1.0f : 0.0f);
	case DN_ACT_ELU:
		GRAD_LOOP(v >= 0 ? 1 : v + 1);
	case DN_ACT_SELU:
		GRAD_LOOP(v >= 0 ? 1.0507f : (float)((double)v + 1.0507 * 1.6732));
	case DN_ACT_RELIE:
		GRAD_LOOP(v > 0 ? 1 : .01f);
	case DN_ACT_RAMP:
		GRAD_LOOP(v > 0 ? 1.1f : .1f);
	case DN_ACT_LEAKY:
		GRAD_LOOP(v > 0 ? 1 : .1f);
	case DN_ACT_TANH:
		GRAD_LOOP((1 + v) * (1 - v));
	case DN_ACT_PLSE:
		GRAD_LOOP(v < 0 || v > 1 ? .01f : .125f);
	case DN_ACT_STAIR:
		GRAD_LOOP(floorf(v) == v ? 0.0f : 1.0f);
	case DN_ACT_HARDTAN:
		GRAD_LOOP(v > -1 && v < 1 ? 1.0f : 0.0f);
	case DN_ACT_LHTAN:
		GRAD_LOOP(v > 0 && v < 1 ? 1 : .001f);
	case DN_ACT_RELU6:
		GRAD_LOOP(v > 0 && v < 6 ? 1.0f : 0.0f);
	case DN_ACT_REVLEAKY:
		GRAD_LOOP(v > 0 ? 1 : .1f);
	case DN_ACT_SWISH:
		GRAD_LOOP(swish_gradient(v));
	case DN_ACT_MISH:
		GRAD_LOOP(mish_gradient(v));
	case DN_ACT_HARD_MISH:
		GRAD_LOOP(v > 0 ? 1 : v > -2 ? v + 1 : 0);
	case DN_ACT_GELU:
		GRAD_LOOP(gelu_gradient(v));
	default:
		break;
	}
}

int cpu_act_backward(struct dn_stream *st, const struct dn_tensor *t, enum dn_act act, const void *py, void *pdy)
{
	const float *y = py;
	float *dy = pdy;
	const int64_t n = dn_tensor_count(t);
	int err = tensor_check(&cpu_limits, "act_backward", t);
	int nt = stream_threads(st);

	if (err)
		return err;
	if (act == DN_ACT_LINEAR)
		return 0;
#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
	for (int64_t at = 0; at < n; at += 4096)
		grad_range(act, n - at < 4096 ? n - at : 4096, y + at, dy + at);
	return 0;
}

/* --- dropout --- */

/* calls use(i, factor) for the elements of one image: factor 0 = dropped */
#define DROPOUT_IMAGE(use) \
	do { \
		for (int64_t j = 0; j < per_image; j += 4) { \
			uint32_t r[4]; \
			int64_t lanes = per_image - j < 4 ? per_image - j : 4; \
			dn_rng_block(num->seed, k->stream, (num->first_image + (uint64_t)i) * blocks + (uint64_t)j / 4, r); \
			for (int64_t l = 0; l < lanes; l++) { \
				int64_t at = i * per_image + j + l; \
				bool keep = r[l] * 0x1p-32 >= p; \
				use; \
			} \
		} \
	} while (0)

int cpu_dropout_forward(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num,
			const struct dn_tensor *t, const void *px, void *py)
{
	const float *x = px;
	float *y = py;
	const int64_t n = t->n, per_image = t->c * t->h * t->w;
	int nt = stream_threads(st), err = dropout_check(&cpu_limits, "dropout_forward", k, t);
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

int cpu_dropout_backward(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num,
			 const struct dn_tensor *t, const void *pdy, void *pdx, bool acc)
{
	const float *dy = pdy;
	float *dx = pdx;
	const int64_t n = t->n, per_image = t->c * t->h * t->w;
	int nt = stream_threads(st), err = dropout_check(&cpu_limits, "dropout_backward", k, t);
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

int cpu_softmax_create(struct dn_device *dev, const struct dn_softmax_desc *d, struct dn_softmax **out)
{
	return softmax_create(&cpu_limits, d, out);
}

/* groups of equal size that lie one after the other */
static void softmax_rows(int nt, int64_t rows, int64_t cols, float temperature, const float *x, float *y)
{
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
}

int cpu_softmax_forward(struct dn_stream *st, const struct dn_softmax *sm, const void *px, void *py)
{
	const float *x = px;
	float *y = py;
	const int64_t c = sm->x.c, hw = dn_tensor_plane(&sm->x);
	int nt = stream_threads(st);

	if (sm->each && hw == 1) {
		softmax_rows(nt, sm->x.n * sm->n_groups, sm->each, sm->temperature, x, y);
		return 0;
	}
#pragma omp parallel for schedule(static) num_threads(nt) if (sm->x.n * c * hw >= CPU_PARALLEL_MIN)
	for (int64_t i = 0; i < sm->x.n * hw; i++) {
		int64_t base = i / hw * c * hw + i % hw;

		for (int g = 0; g < sm->n_groups; g++) {
			int64_t first = softmax_group(sm, g), at = base + first * hw, n = softmax_group(sm, g + 1) - first;
			float max = -INFINITY;
			double sum = 0;

			for (int64_t k = 0; k < n; k++)
				max = x[at + k * hw] > max ? x[at + k * hw] : max;
			for (int64_t k = 0; k < n; k++) {
				float e = expf((x[at + k * hw] - max) / sm->temperature);

				sum += (double)e;
				y[at + k * hw] = e;
			}
			for (int64_t k = 0; k < n; k++)
				y[at + k * hw] = (float)((double)y[at + k * hw] / sum);
		}
	}
	return 0;
}

int cpu_tree_truth(struct dn_stream *st, const struct dn_softmax *sm, const void *truth, void *out)
{
	const int64_t c = sm->x.c;
	int nt = stream_threads(st);

	if (!sm->parent)
		return dn_fail(-EINVAL, "tree_truth: a softmax without a tree");
#pragma omp parallel for schedule(static) num_threads(nt) if (sm->x.n * c >= CPU_PARALLEL_MIN)
	for (int64_t i = 0; i < sm->x.n; i++) {
		float *o = (float *)out + i * c;

		memcpy(o, (const float *)truth + i * c, (size_t)c * sizeof(*o));
		for (int64_t k = c - 1; k >= 0; k--) /* children stand behind their parents */
			if (o[k] > 0 && sm->parent[k] >= 0)
				o[sm->parent[k]] = 1;
		for (int g = 0; g < sm->n_groups; g++) {
			bool any = false;

			for (int32_t k = sm->group_at[g]; k < sm->group_at[g + 1]; k++)
				any |= o[k] > 0;
			for (int32_t k = sm->group_at[g]; !any && k < sm->group_at[g + 1]; k++)
				o[k] = DN_IGNORE;
		}
	}
	return 0;
}

#define COST_LOOP(body) \
	for (int64_t i = 0; i < n; i++) { \
		const double diff __attribute__((unused)) = (double)t[i] - (double)p[i]; \
		float d = t[i] - p[i]; \
		body; \
		delta[i] = d; \
	} \
	break

static inline double log_of(double p)
{
	return log(p < (double)FLT_MIN ? (double)FLT_MIN : p);
}

/* a NaN stays one */
static inline float sign_of(float d)
{
	return d > 0 ? 1.0f : d <= 0 ? -1.0f : d;
}

/* @s plus the losses of n elements, in order */
static double cost_range(enum dn_cost kind, int64_t n, const float *p, const float *t, float *delta, double s)
{
	switch (kind) {
	case DN_COST_MASKED:
		COST_LOOP(if (t[i] == DN_IGNORE) d = 0; else s += diff * diff);
	case DN_COST_SOFTMAX_CE:
		COST_LOOP(if (t[i] == DN_IGNORE) d = 0; else if (t[i] != 0) s -= log_of((double)p[i]));
	case DN_COST_L1:
		COST_LOOP(s += fabs(diff); d = sign_of(d));
	case DN_COST_SMOOTH:
		COST_LOOP(s += fabs(diff) < 1 ? diff * diff : 2 * fabs(diff) - 1; d = fabs(diff) < 1 ? d : sign_of(d));
	case DN_COST_WGAN:
		COST_LOOP(s += t[i] > 0 ? -(double)p[i] : (double)p[i]; d = t[i] > 0 ? 1.0f : -1.0f);
	case DN_COST_LOGISTIC_CE:
		COST_LOOP(if (t[i] != 0) s -= (double)t[i] * log_of((double)p[i]);
			  if (t[i] != 1) s -= (1 - (double)t[i]) * log_of(1 - (double)p[i]));
	default:
		COST_LOOP(s += diff * diff);
	}
	return s;
}

/* elements [at, at + n) of the targets that @class stands for; false: one is no class */
static bool one_hot(const struct dn_tensor *p, const struct dn_tensor *t, const int32_t *class, int64_t at, int64_t n, float *out)
{
	int64_t hw = dn_tensor_plane(p), each = p->c / t->c;
	bool known = true;

	for (int64_t i = 0; i < n; i++) {
		int64_t row = (at + i) / hw, k = row % p->c; /* groups lie one after the other, over all images */
		int32_t is = class[row / each * hw + (at + i) % hw];

		out[i] = is == k % each;
		known &= is >= -1 && is < each;
	}
	return known;
}

static double cost_classes(enum dn_cost kind, const struct dn_tensor *p, const struct dn_tensor *t, const int32_t *class,
			   int64_t at, int64_t end, const float *x, float *delta)
{
	float target[COST_SPAN];
	double s = 0;

	for (int64_t n; at < end; at += n) {
		n = end - at < COST_SPAN ? end - at : COST_SPAN;
		if (!one_hot(p, t, class, at, n, target))
			s = (double)NAN;
		s = cost_range(kind, n, x + at, target, delta + at, s);
	}
	return s;
}

int cpu_cost(struct dn_stream *st, enum dn_cost kind, const struct dn_tensor *p, const void *px, const struct dn_tensor *t,
	     const void *truth, void *pdelta, double *loss)
{
	const float *x = px;
	float *delta = pdelta;
	int nt = stream_threads(st), err = truth_check(&cpu_limits, "cost", p, t);
	int64_t n = dn_tensor_count(p), step = (n + SUM_CHUNKS - 1) / SUM_CHUNKS;
	double part[SUM_CHUNKS], sum = 0;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
	for (int c = 0; c < SUM_CHUNKS; c++) {
		int64_t at = c * step, end = at + step < n ? at + step : n;

		if (at >= end)
			part[c] = 0;
		else if (t->type == DN_I32)
			part[c] = cost_classes(kind, p, t, truth, at, end, x, delta);
		else
			part[c] = cost_range(kind, end - at, x + at, (const float *)truth + at, delta + at, 0);
	}
	for (int c = 0; c < SUM_CHUNKS; c++)
		sum += part[c];
	*loss = sum;
	return 0;
}

/* -log of the softmax at k of n numbers that are hw apart: log1p of the others where k is the largest, so that nothing is lost
 * near p = 1 */
static double row_loss(int64_t n, int64_t hw, double temperature, const float *x, int64_t k)
{
	double of = (double)x[k * hw], max = of, sum = 0;

	for (int64_t i = 0; i < n; i++)
		max = (double)x[i * hw] > max ? (double)x[i * hw] : max;
	for (int64_t i = 0; i < n; i++)
		if (i != k)
			sum += exp(((double)x[i * hw] - max) / temperature);
	if (of == max)
		return log1p(sum);
	return (max - of) / temperature + log(sum + exp((of - max) / temperature));
}

/* of group @g at point @i, counted over all images */
static double group_loss(const struct dn_softmax *sm, int64_t i, int g, const float *x, const struct dn_tensor *t,
			 const void *truth, double s)
{
	const int64_t hw = dn_tensor_plane(&sm->x), first = softmax_group(sm, g), n = softmax_group(sm, g + 1) - first;
	const int64_t at = (i / hw * sm->x.c + first) * hw + i % hw;
	const float *number = (const float *)truth + at;

	if (t->type == DN_I32) {
		int32_t k = ((const int32_t *)truth)[(i / hw * sm->n_groups + g) * hw + i % hw];

		if (k < -1 || k >= n)
			return (double)NAN;
		return k < 0 ? s : s + row_loss(n, hw, (double)sm->temperature, x + at, k);
	}
	for (int64_t k = 0; k < n; k++)
		if (number[k * hw] != 0 && number[k * hw] != DN_IGNORE)
			s += row_loss(n, hw, (double)sm->temperature, x + at, k);
	return s;
}

int cpu_softmax_loss(struct dn_stream *st, const struct dn_softmax *sm, const void *px, const struct dn_tensor *t,
		     const void *truth, double *loss)
{
	const float *x = px;
	int nt = stream_threads(st), err = softmax_truth_check(sm, "softmax_loss", t);
	int64_t n = sm->n_groups, rows = sm->x.n * dn_tensor_plane(&sm->x) * n;
	int64_t step = (rows + SUM_CHUNKS - 1) / SUM_CHUNKS;
	double part[SUM_CHUNKS], sum = 0;

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (dn_tensor_count(&sm->x) >= CPU_PARALLEL_MIN)
	for (int c = 0; c < SUM_CHUNKS; c++) {
		part[c] = 0;
		for (int64_t r = c * step; r < (c + 1) * step && r < rows; r++)
			part[c] = group_loss(sm, r / n, (int)(r % n), x, t, truth, part[c]);
	}
	for (int c = 0; c < SUM_CHUNKS; c++)
		sum += part[c];
	*loss = sum;
	return 0;
}

/* --- element-wise --- */

int cpu_axpby(struct dn_stream *st, enum dn_type type, int64_t n, float alpha, const void *px, float beta, void *py)
{
	const float *x = px;
	float *y = py;
	int err = type_check(&cpu_limits, "axpby", type);
	int nt = stream_threads(st);

	if (err)
		return err;
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

int cpu_copy_rows(struct dn_stream *st, enum dn_type type, int64_t rows, int64_t n, const void *psrc, int64_t src_stride,
		  void *pdst, int64_t dst_stride, bool acc)
{
	const float *src = psrc;
	float *dst = pdst;
	int err = type_check(&cpu_limits, "copy_rows", type);
	int nt = stream_threads(st);

	if (err)
		return err;
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

struct overlap { /* of a shortcut: point (x, y) is in * stride there, out * sample here */
	int64_t w, h, c, stride, sample;
};

static struct overlap shortcut_overlap(const struct dn_shortcut_desc *d)
{
	struct overlap o = {
		.w = d->src.w < d->y.w ? d->src.w : d->y.w,
		.h = d->src.h < d->y.h ? d->src.h : d->y.h,
		.c = d->src.c < d->y.c ? d->src.c : d->y.c,
		.stride = d->src.w > d->y.w ? d->src.w / d->y.w : 1,
		.sample = d->y.w > d->src.w ? d->y.w / d->src.w : 1,
	};
	return o;
}

int cpu_shortcut_forward(struct dn_stream *st, const struct dn_shortcut_desc *d, const void *pdirect, const void *psrc, void *py)
{
	const float *direct = pdirect, *src = psrc;
	float *y = py;
	int nt = stream_threads(st), err = shortcut_desc_check(&cpu_limits, "shortcut_forward", d);
	struct overlap o = { 0 };
	int64_t plane = d->y.w * d->y.h;

	if (err)
		return err;
	o = shortcut_overlap(d);
#pragma omp parallel for schedule(static) num_threads(nt) if (d->y.n * d->y.c * plane >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->y.n * d->y.c; p++) {
		int64_t c = p % d->y.c;
		const float *a = direct + p * plane, *b = src + (p / d->y.c * d->src.c + c) * d->src.w * d->src.h;
		float *to = y + p * plane;

		if (to != a && !(c < o.c && o.w == d->y.w && o.h == d->y.h))
			memcpy(to, a, (size_t)plane * sizeof(*to));
		for (int64_t i = 0; c < o.c && i < o.h; i++) {
			const float *row_a = a + i * o.sample * d->y.w, *row_b = b + i * o.stride * d->src.w;
			float *row = to + i * o.sample * d->y.w;

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

int cpu_shortcut_backward_src(struct dn_stream *st, const struct dn_shortcut_desc *d, const void *pdy, void *pdsrc, bool acc)
{
	const float *dy = pdy;
	float *dsrc = pdsrc;
	int nt = stream_threads(st), err = shortcut_desc_check(&cpu_limits, "shortcut_backward_src", d);
	struct overlap o = { 0 };
	int64_t plane = d->src.w * d->src.h;

	if (err)
		return err;
	o = shortcut_overlap(d);
#pragma omp parallel for schedule(static) num_threads(nt) if (d->y.n * d->src.c * plane >= CPU_PARALLEL_MIN)
	for (int64_t p = 0; p < d->y.n * d->src.c; p++) {
		int64_t c = p % d->src.c;
		float *to = dsrc + p * plane;

		if (!acc)
			memset(to, 0, (size_t)plane * sizeof(*to));
		for (int64_t i = 0; c < o.c && i < o.h; i++) {
			const float *row = dy + ((p / d->src.c * d->y.c + c) * d->y.h + i * o.sample) * d->y.w;

			for (int64_t j = 0; j < o.w; j++)
				to[i * o.stride * d->src.w + j * o.stride] += d->beta * row[j * o.sample];
		}
	}
	return 0;
}

int cpu_binarize(struct dn_stream *st, enum dn_type type, int64_t rows, int64_t n, bool mean, const void *px, void *py)
{
	const float *x = px;
	float *y = py;
	int err = type_check(&cpu_limits, "binarize", type);
	int nt = stream_threads(st);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (rows * n >= CPU_PARALLEL_MIN)
	for (int64_t r = 0; r < rows; r++) {
		const float *from = x + r * n;
		float *to = y + r * n, size = 1;
		double sum = 0;

		for (int64_t i = 0; i < n && mean; i++)
			sum += fabs((double)from[i]);
		if (mean)
			size = (float)(sum / (double)n);
		for (int64_t i = 0; i < n; i++)
			to[i] = from[i] > 0 ? size : -size;
	}
	return 0;
}

/* --- updates and sums --- */

int cpu_sgd(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_sgd *o, const struct dn_numbers *num, float *w,
	    float *v, const void *pg)
{
	const float *g = pg;
	int err = type_check(&cpu_limits, "sgd", type);
	const struct sgd_factors f = sgd_factors(o, num);
	int nt = stream_threads(st);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
	for (int64_t i = 0; i < n; i++) {
		float u = f.momentum * v[i] + f.factor * g[i] - f.decay * w[i];

		v[i] = u;
		w[i] = w[i] + f.rate * u;
	}
	return 0;
}

/* divisions and roots are rounded correctly, in vectors too, so the bits are those of the plain expression */
int cpu_adam(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_adam *o, const struct dn_numbers *num, float *w,
	     float *m, float *v, const void *pg)
{
	const float *g = pg;
	int err = type_check(&cpu_limits, "adam", type);
	int nt = stream_threads(st);
	const struct adam_factors f = adam_factors(o, num);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
	for (int64_t i = 0; i < n; i++) {
		float u = f.scale * g[i] - f.decay * w[i];
		float p = f.beta1 * m[i] + f.one_minus_beta1 * u;
		float q = f.beta2 * v[i] + f.one_minus_beta2 * (u * u);

		m[i] = p;
		v[i] = q;
		w[i] = f.shrink * w[i] + f.rate * (p * f.correct1 / (sqrtf(q * f.correct2) + f.eps));
	}
	return 0;
}

/* at most 32 levels deep: each halves the count */
static void tree_span(const struct dn_parts *parts, int first, int n_parts, int64_t at, int64_t n, float *out)
{
	float right[TREE_SPAN];
	int left = 1;

	if (n_parts == 1 && half_type(parts->type)) {
		half_widen(parts->type, n, part_of(parts, first, at), out);
		return;
	}
	if (n_parts == 1) {
		memcpy(out, part_of(parts, first, at), (size_t)n * sizeof(*out));
		return;
	}
	if (n_parts == 2 && !half_type(parts->type)) {
		const float *a = part_of(parts, first, at), *b = part_of(parts, first + 1, at);

		for (int64_t i = 0; i < n; i++)
			out[i] = a[i] + b[i];
		return;
	}
	while (left * 2 < n_parts)
		left *= 2;
	tree_span(parts, first, left, at, n, out);
	tree_span(parts, first + left, n_parts - left, at, n, right);
	for (int64_t i = 0; i < n; i++)
		out[i] += right[i];
}

int cpu_sum_tree(struct dn_stream *st, int64_t n, const struct dn_parts *parts, float *out, bool acc)
{
	int nt = stream_threads(st), err = parts_check(&cpu_limits, parts);

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) if (n >= CPU_PARALLEL_MIN)
	for (int64_t at = 0; at < n; at += TREE_SPAN) {
		int64_t len = n - at < TREE_SPAN ? n - at : TREE_SPAN;
		float sum[TREE_SPAN]; /* not out itself: it may be one of the parts */

		tree_span(parts, 0, parts->n, at, len, sum);
		if (!acc)
			memcpy(out + at, sum, (size_t)len * sizeof(*out));
		else
			for (int64_t i = 0; i < len; i++)
				out[at + i] += sum[i];
	}
	return 0;
}

int cpu_count_nonfinite(struct dn_stream *st, enum dn_type type, int64_t n, const void *px, int64_t *count)
{
	const float *x = px;
	int err = type_check(&cpu_limits, "count_nonfinite", type);
	int nt = stream_threads(st);
	int64_t bad = 0; /* whole numbers: any order gives the same sum */

	if (err)
		return err;
#pragma omp parallel for schedule(static) num_threads(nt) reduction(+ : bad) if (n >= CPU_PARALLEL_MIN)
	for (int64_t i = 0; i < n; i++)
		bad += !(fabsf(x[i]) <= FLT_MAX);
	*count = bad;
	return 0;
}

#define LOOK_CHUNK 16384 /* squares of 48 bits: as many stay below 2^63 */

/* at most LOOK_CHUNK elements: one whole number for each exponent */
static void look_chunk(int64_t n, const struct dn_look_desc *d, float *x, bool sums, struct dn_exact *sum, int64_t *bad)
{
	uint64_t bins[256] = { 0 };
	uint32_t max = 0;

	for (int64_t i = 0; i < n; i++) {
		float was = x[i], is = was;
		const struct look_float f = look_float(&is, d->limit);

		if (is < was || is > was)
			x[i] = is;
		bins[f.e] += d->p == 2 ? (uint64_t)f.m * f.m : f.m;
		if (f.e == 255)
			++*bad;
		else if (f.bits > max)
			max = f.bits;
	}
	for (int e = 1; e < 255 && sums && d->p; e++)
		if (bins[e])
			exact_add(sum, bins[e], d->p * (e - 1));
	sum->max = max > sum->max ? max : sum->max;
	exact_carry(sum);
}

static void look_merge(struct dn_exact *to, const struct dn_exact *from)
{
	for (int k = 0; k < DN_EXACT_WORDS; k++)
		to->word[k] += from->word[k];
	to->max = from->max > to->max ? from->max : to->max;
	exact_carry(to);
}

int cpu_look(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_look_desc *d, void *px, struct dn_exact *sum,
	     int64_t *bad)
{
	float *x = px;
	int err = type_check(&cpu_limits, "look", type);
	int nt = stream_threads(st);
	struct dn_exact all = { .max = 0 };
	int64_t n_bad = 0;

	if (err)
		return err;
#pragma omp parallel num_threads(nt) reduction(+ : n_bad) if (n >= CPU_PARALLEL_MIN)
	{
		struct dn_exact mine = { .max = 0 };

#pragma omp for schedule(static)
		for (int64_t at = 0; at < n; at += LOOK_CHUNK)
			look_chunk(n - at < LOOK_CHUNK ? n - at : LOOK_CHUNK, d, x + at, sum != NULL, &mine, &n_bad);
#pragma omp critical
		look_merge(&all, &mine); /* whole numbers: any order gives the same sum */
	}
	if (sum)
		look_merge(sum, &all);
	*bad += n_bad;
	return 0;
}
