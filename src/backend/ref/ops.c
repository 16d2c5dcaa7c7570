/* ref: activations, normalisation, pooling, loss and element-wise ops as plain loops. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>
#include "backend/backend_priv.h"
#include "backend/host/softmax.h"
#include "backend/ref/ref_priv.h"
#include "base/rng.h"

#define SELU_SCALE 1.0507
#define SELU_ALPHA 1.6732

static double softplus(double x)
{
	return x > 20 ? x : x < -20 ? exp(x) : log1p(exp(x));
}

/* the inner function of gelu's tanh form */
static double gelu_inner(double x)
{
	return .797885 * x + .035677 * x * x * x;
}

float ref_act(enum dn_act act, float v)
{
	double x = v;

	switch (act) {
	case DN_ACT_LOGISTIC:
		return (float)(1 / (1 + exp(-x)));
	case DN_ACT_LOGGY:
		return (float)(2 / (1 + exp(-x)) - 1);
	case DN_ACT_RELU:
		return x < 0 ? 0 : v;
	case DN_ACT_ELU:
		return (float)(x >= 0 ? x : expm1(x));
	case DN_ACT_SELU:
		return (float)(x >= 0 ? SELU_SCALE * x : SELU_SCALE * SELU_ALPHA * expm1(x));
	case DN_ACT_RELIE:
		return (float)(x > 0 ? x : .01 * x);
	case DN_ACT_RAMP:
		return (float)(x > 0 ? x + .1 * x : .1 * x);
	case DN_ACT_LEAKY:
		return (float)(x > 0 ? x : .1 * x);
	case DN_ACT_TANH:
		return (float)tanh(x);
	case DN_ACT_PLSE:
		return (float)(x < -4 ? .01 * (x + 4) : x > 4 ? .01 * (x - 4) + 1 : .125 * x + .5);
	case DN_ACT_STAIR:
		return (float)(fmod(floor(x), 2) == 0 ? floor(x / 2) : x - floor(x) + floor(x / 2));
	case DN_ACT_HARDTAN:
		return x < -1 ? -1 : x > 1 ? 1 : v;
	case DN_ACT_LHTAN:
		return (float)(x < 0 ? .001 * x : x > 1 ? .001 * (x - 1) + 1 : x);
	case DN_ACT_RELU6:
		return x < 0 ? 0 : x > 6 ? 6 : v;
	case DN_ACT_REVLEAKY:
		return (float)(x > 0 ? x : .1 * x);
	case DN_ACT_SWISH:
		return (float)(x / (1 + exp(-x)));
	case DN_ACT_MISH:
		return (float)(x * tanh(softplus(x)));
	case DN_ACT_HARD_MISH:
		return (float)(x > 0 ? x : x <= -2 ? 0 : x * x / 2 + x);
	case DN_ACT_GELU:
		return (float)(.5 * x * (1 + tanh(gelu_inner(x))));
	default:
		return v;
	}
}

/* of the output y or, for those of dn_act_of_input(), of the input */
static double act_gradient(enum dn_act act, double y)
{
	double q = (y + 1) / 2, x = y, t;

	switch (act) {
	case DN_ACT_LOGISTIC:
		return y * (1 - y);
	case DN_ACT_LOGGY:
		return 2 * q * (1 - q);
	case DN_ACT_RELU:
		return y > 0;
	case DN_ACT_ELU:
		return y >= 0 ? 1 : y + 1;
	case DN_ACT_SELU:
		return y >= 0 ? SELU_SCALE : y + SELU_SCALE * SELU_ALPHA;
	case DN_ACT_RELIE:
		return y > 0 ? 1 : .01;
	case DN_ACT_RAMP:
		return (y > 0) + .1;
	case DN_ACT_LEAKY:
		return y > 0 ? 1 : .1;
	case DN_ACT_TANH:
		return 1 - y * y;
	case DN_ACT_PLSE:
		return y < 0 || y > 1 ? .01 : .125;
	case DN_ACT_STAIR:
		return floor(y) == y ? 0 : 1;
	case DN_ACT_HARDTAN:
		return y > -1 && y < 1;
	case DN_ACT_LHTAN:
		return y > 0 && y < 1 ? 1 : .001;
	case DN_ACT_RELU6:
		return y > 0 && y < 6;
	case DN_ACT_REVLEAKY:
		return y > 0 ? 1 : .1;
	case DN_ACT_SWISH:
		t = 1 / (1 + exp(-x));
		return t + x * t * (1 - t);
	case DN_ACT_MISH:
		t = tanh(softplus(x));
		return t + x * (1 - t * t) * -expm1(-softplus(x));
	case DN_ACT_HARD_MISH:
		return x > 0 ? 1 : x > -2 ? x + 1 : 0;
	case DN_ACT_GELU:
		t = tanh(gelu_inner(x));
		return .5 * (1 + t) + .5 * x * (1 - t * t) * (.797885 + 3 * .035677 * x * x);
	default:
		return 1;
	}
}

/* NOTE(added gradients) */
static void give(float *to, bool acc, float v)
{
	*to = acc ? *to + v : v;
}

int ref_bias_act(struct dn_stream *st, const struct dn_tensor *t, void *px, const float *bias, enum dn_act act)
{
	float *x = px;
	const int64_t n = t->n, c = t->c, hw = dn_tensor_plane(t);
	int err = tensor_check(&ref_limits, "bias_act", t);

	if (err)
		return err;
	for (int64_t i = 0; i < n * c * hw; i++)
		x[i] = ref_act(act, bias ? x[i] + bias[i / hw % c] : x[i]);
	return 0;
}

int ref_bias_backward(struct dn_stream *st, const struct dn_tensor *t, const void *pdy, float *db, bool acc)
{
	const float *dy = pdy;
	const int64_t n = t->n, c = t->c, hw = dn_tensor_plane(t);
	int err = tensor_check(&ref_limits, "bias_backward", t);

	if (err)
		return err;
	for (int64_t k = 0; k < c; k++) {
		double sum = 0;

		for (int64_t i = 0; i < n; i++)
			for (int64_t j = 0; j < hw; j++)
				sum += dy[(i * c + k) * hw + j];
		give(&db[k], acc, (float)sum);
	}
	return 0;
}

int ref_act_backward(struct dn_stream *st, const struct dn_tensor *t, enum dn_act act, const void *py, void *pdy)
{
	const float *y = py;
	float *dy = pdy;
	const int64_t n = dn_tensor_count(t);
	int err = tensor_check(&ref_limits, "act_backward", t);

	if (err)
		return err;
	for (int64_t i = 0; i < n; i++)
		dy[i] = (float)(dy[i] * act_gradient(act, y[i]));
	return 0;
}

static double bn_divisor(const struct dn_bn_desc *d, float var)
{
	return d->legacy ? sqrt(var) + 1e-6 : sqrt(var + 1e-5);
}

int ref_bn_forward(struct dn_stream *st, const struct dn_bn_desc *d, const void *px, const float *scale, const float *bias,
		   const float *mean, const float *var, void *py)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	const float *x = px;
	float *y = py;
	int err = tensor_check(&ref_limits, "bn_forward", &d->x);

	if (err)
		return err;
	for (int64_t i = 0; i < d->x.n * d->x.c * hw; i++) {
		int64_t k = i / hw % d->x.c;

		y[i] = ref_act(d->act, (float)(scale[k] * (((double)x[i] - mean[k]) / bn_divisor(d, var[k])) + bias[k]));
	}
	return 0;
}

static double bn_sum(const struct dn_bn_desc *d, int64_t k, const float *x)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	double sum = 0;

	for (int64_t i = 0; i < d->x.n; i++)
		for (int64_t j = 0; j < hw; j++)
			sum += x[(i * d->x.c + k) * hw + j];
	return sum;
}

/* one value has no variance: 0, not 0 / 0 */
static double bn_variance(const struct dn_bn_desc *d, int64_t k, int64_t count, const float *x, double mean)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	double sum = 0;

	for (int64_t i = 0; i < d->x.n; i++)
		for (int64_t j = 0; j < hw; j++) {
			double e = x[(i * d->x.c + k) * hw + j] - mean;

			sum += e * e;
		}
	return sum / (double)(d->legacy && count > 1 ? count - 1 : count);
}

int ref_bn_forward_train(struct dn_stream *st, const struct dn_bn_desc *d, const void *px, const float *scale, const float *bias,
			 float *mean, float *var, void *py)
{
	const float *x = px;
	float *y = py;
	int err = tensor_check(&ref_limits, "bn_forward_train", &d->x);
	int64_t count = d->x.n * dn_tensor_plane(&d->x);

	if (err)
		return err;
	for (int64_t k = 0; k < d->x.c; k++) {
		double m = bn_sum(d, k, x) / (double)count;

		mean[k] = (float)m;
		var[k] = (float)bn_variance(d, k, count, x, m);
	}
	return ref_bn_forward(st, d, x, scale, bias, mean, var, y);
}

int ref_bn_mean_part(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *x, float *mean)
{
	int err = tensor_check(&ref_limits, "bn_mean_part", &d->x);

	for (int64_t k = 0; k < d->x.c && !err; k++)
		mean[k] = (float)(bn_sum(d, k, x) / (double)count);
	return err;
}

int ref_bn_variance_part(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *x, const float *mean,
			 float *var)
{
	int err = tensor_check(&ref_limits, "bn_variance_part", &d->x);

	for (int64_t k = 0; k < d->x.c && !err; k++)
		var[k] = (float)bn_variance(d, k, count, x, mean[k]);
	return err;
}

/* sums of dy, and of dy (x - mean) */
static void bn_products(const struct dn_bn_desc *d, int64_t k, const float *x, const float *dy, double mean, double *sum,
			double *sum_x)
{
	const int64_t hw = dn_tensor_plane(&d->x);

	*sum = *sum_x = 0;
	for (int64_t i = 0; i < d->x.n; i++)
		for (int64_t j = 0; j < hw; j++) {
			int64_t at = (i * d->x.c + k) * hw + j;

			*sum += dy[at];
			*sum_x += dy[at] * ((double)x[at] - mean);
		}
}

static void bn_data(const struct dn_bn_desc *d, int64_t k, bool frozen, int64_t count, const float *x, double mean, float var,
		    double scale, double sum, double sum_x, const float *dy, float *dx, bool acc)
{
	const int64_t hw = dn_tensor_plane(&d->x);
	double root = sqrt(var + 1e-5), dmean = -sum * scale / root, dvar = -.5 * sum_x * scale / (root * root * root);

	for (int64_t i = 0; i < d->x.n; i++)
		for (int64_t j = 0; j < hw; j++) {
			int64_t at = (i * d->x.c + k) * hw + j;
			double g;

			if (frozen)
				g = (double)dy[at] * scale / bn_divisor(d, var);
			else
				g = (double)dy[at] * scale / root + dmean / (double)count +
				    2 * ((double)x[at] - mean) * dvar / (double)count;
			dx[at] = (float)(acc ? dx[at] + g : g);
		}
}

int ref_bn_backward(struct dn_stream *st, const struct dn_bn_desc *d, bool frozen, const void *px, const float *mean,
		    const float *var, const float *scale, const void *pdy, void *pdx, bool acc, float *dscale, float *dbias,
		    bool acc_params)
{
	const float *x = px, *dy = pdy;
	float *dx = pdx;
	int err = tensor_check(&ref_limits, "bn_backward", &d->x);
	int64_t count = d->x.n * dn_tensor_plane(&d->x);

	if (err)
		return err;
	for (int64_t k = 0; k < d->x.c; k++) {
		double sum = 0, sum_x = 0;

		if (dscale)
			bn_products(d, k, x, dy, mean[k], &sum, &sum_x);
		if (dx)
			bn_data(d, k, frozen, count, x, mean[k], var[k], scale[k], sum, sum_x, dy, dx, acc);
		if (dscale)
			give(&dscale[k], acc_params, (float)(sum_x / bn_divisor(d, var[k])));
		if (dbias)
			give(&dbias[k], acc_params, (float)sum);
	}
	return 0;
}

int ref_bn_backward_part(struct dn_stream *st, const struct dn_bn_desc *d, const void *x, const float *mean, const float *var,
			 const void *dy, float *sums, float *dscale, float *dbias, bool acc_params)
{
	int err = tensor_check(&ref_limits, "bn_backward_part", &d->x);

	for (int64_t k = 0; k < d->x.c && !err; k++) {
		double sum, sum_x;

		bn_products(d, k, x, dy, mean[k], &sum, &sum_x);
		sums[k] = (float)sum;
		sums[d->x.c + k] = (float)sum_x;
		give(&dscale[k], acc_params, (float)(sum_x / bn_divisor(d, var[k])));
		if (dbias)
			give(&dbias[k], acc_params, (float)sum);
	}
	return err;
}

int ref_bn_backward_data(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *x, const float *mean,
			 const float *var, const float *scale, const float *sums, const void *dy, void *dx, bool acc)
{
	int err = tensor_check(&ref_limits, "bn_backward_data", &d->x);

	for (int64_t k = 0; k < d->x.c && !err; k++)
		bn_data(d, k, false, count, x, mean[k], var[k], scale[k], sums[k], sums[d->x.c + k], dy, dx, acc);
	return err;
}

int ref_maxpool_forward(struct dn_stream *st, const struct dn_pool_desc *d, const void *px, void *py, int32_t *index)
{
	const float *x = px;
	float *y = py;
	int err = pool_desc_check(&ref_limits, "maxpool_forward", d);

	if (err)
		return err;
	for (int64_t p = 0; p < d->x.n * d->x.c; p++)
		for (int64_t oy = 0; oy < d->y.h; oy++)
			for (int64_t ox = 0; ox < d->y.w; ox++) {
				int64_t best = -1, out = (p * d->y.h + oy) * d->y.w + ox;

				for (int64_t iy = oy * d->stride - d->pad / 2; iy < oy * d->stride - d->pad / 2 + d->size; iy++)
					for (int64_t ix = ox * d->stride - d->pad / 2; ix < ox * d->stride - d->pad / 2 + d->size;
					     ix++) {
						const float *plane = x + p * d->x.h * d->x.w;

						if (iy < 0 || iy >= d->x.h || ix < 0 || ix >= d->x.w)
							continue;
						if (best < 0 ||
						    (!isnan(plane[best]) && !(plane[iy * d->x.w + ix] <= plane[best])))
							best = iy * d->x.w + ix;
					}
				y[out] = best < 0 ? 0 : x[p * d->x.h * d->x.w + best];
				index[out] = (int32_t)best;
			}
	return 0;
}

int ref_maxpool_backward(struct dn_stream *st, const struct dn_pool_desc *d, const void *pdy, const int32_t *index, void *pdx,
			 bool acc)
{
	const float *dy = pdy;
	float *dx = pdx;
	int err = pool_desc_check(&ref_limits, "maxpool_backward", d);
	int64_t plane = d->x.h * d->x.w;

	if (err)
		return err;
	for (int64_t i = 0; !acc && i < d->x.n * d->x.c * plane; i++)
		dx[i] = 0;
	for (int64_t i = 0; i < d->x.n * d->x.c * d->y.h * d->y.w; i++)
		if (index[i] >= 0)
			dx[i / (d->y.h * d->y.w) * plane + index[i]] += dy[i];
	return 0;
}

int ref_avgpool_forward(struct dn_stream *st, const struct dn_tensor *t, const void *px, void *py)
{
	const float *x = px;
	float *y = py;
	const int64_t rows = t->n * t->c, hw = dn_tensor_plane(t);
	int err = tensor_check(&ref_limits, "avgpool_forward", t);

	if (err)
		return err;
	for (int64_t r = 0; r < rows; r++) {
		double sum = 0;

		for (int64_t i = 0; i < hw; i++)
			sum += x[r * hw + i];
		y[r] = (float)(sum / (double)hw);
	}
	return 0;
}

int ref_avgpool_backward(struct dn_stream *st, const struct dn_tensor *t, const void *pdy, void *pdx, bool acc)
{
	const float *dy = pdy;
	float *dx = pdx;
	const int64_t rows = t->n * t->c, hw = dn_tensor_plane(t);
	int err = tensor_check(&ref_limits, "avgpool_backward", t);

	if (err)
		return err;
	for (int64_t i = 0; i < rows * hw; i++)
		dx[i] = (acc ? dx[i] : 0) + (float)((double)dy[i / hw] / (double)hw);
	return 0;
}

static float dropout_factor(const struct dn_dropout_key *k, const struct dn_numbers *num, int64_t per_image, int64_t i)
{
	uint64_t image = num->first_image + (uint64_t)(i / per_image), j = (uint64_t)(i % per_image);
	uint32_t r[4];

	dn_rng_block(num->seed, k->stream, image * (((uint64_t)per_image + 3) / 4) + j / 4, r);
	return r[j % 4] * 0x1p-32 >= (double)k->probability ? (float)(1 / (1 - (double)k->probability)) : 0;
}

int ref_dropout_forward(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num,
			const struct dn_tensor *t, const void *px, void *py)
{
	const float *x = px;
	float *y = py;
	const int64_t n = t->n, per_image = t->c * t->h * t->w;
	int err = dropout_check(&ref_limits, "dropout_forward", k, t);

	for (int64_t i = 0; !err && i < n * per_image; i++) {
		float f = dropout_factor(k, num, per_image, i);

		y[i] = f != 0 ? x[i] * f : 0;
	}
	return err;
}

int ref_dropout_backward(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num,
			 const struct dn_tensor *t, const void *pdy, void *pdx, bool acc)
{
	const float *dy = pdy;
	float *dx = pdx;
	const int64_t n = t->n, per_image = t->c * t->h * t->w;
	int err = dropout_check(&ref_limits, "dropout_backward", k, t);

	for (int64_t i = 0; !err && i < n * per_image; i++) {
		float f = dropout_factor(k, num, per_image, i), g = f != 0 ? dy[i] * f : 0;

		dx[i] = acc ? dx[i] + g : g;
	}
	return err;
}

int ref_softmax_create(struct dn_device *dev, const struct dn_softmax_desc *d, struct dn_softmax **out)
{
	return softmax_create(&ref_limits, d, out);
}

/* first element of image @i at point @p */
static int64_t softmax_at(const struct dn_softmax *sm, int64_t i, int64_t p)
{
	return i * sm->x.c * dn_tensor_plane(&sm->x) + p;
}

int ref_softmax_forward(struct dn_stream *st, const struct dn_softmax *sm, const void *px, void *py)
{
	const float *x = px;
	float *y = py;
	const int64_t hw = dn_tensor_plane(&sm->x);

	for (int64_t i = 0; i < sm->x.n * hw; i++)
		for (int g = 0; g < sm->n_groups; g++) {
			int64_t from = softmax_group(sm, g), to = softmax_group(sm, g + 1), at = softmax_at(sm, i / hw, i % hw);
			double max = -INFINITY, sum = 0;

			for (int64_t k = from; k < to; k++)
				max = x[at + k * hw] > max ? x[at + k * hw] : max;
			for (int64_t k = from; k < to; k++)
				sum += exp((x[at + k * hw] - max) / sm->temperature);
			for (int64_t k = from; k < to; k++)
				y[at + k * hw] = (float)(exp((x[at + k * hw] - max) / sm->temperature) / sum);
		}
	return 0;
}

/* -log of the softmax of channel @k among [from, to): the distance to the largest and the log of the sum, which no logits in float
 * make too large; of the largest itself log1p, so that nothing is lost near p = 1 */
static double log_loss(const struct dn_softmax *sm, const float *x, int64_t from, int64_t to, int64_t k)
{
	const int64_t hw = dn_tensor_plane(&sm->x);
	const long double of = x[k * hw], t = sm->temperature;
	long double max = of, others = 0;

	for (int64_t i = from; i < to; i++)
		max = x[i * hw] > max ? x[i * hw] : max;
	for (int64_t i = from; i < to; i++)
		if (i != k)
			others += expl((x[i * hw] - max) / t);
	if (of == max)
		return (double)log1pl(others);
	return (double)((max - of) / t + logl(others + expl((of - max) / t)));
}

int ref_softmax_loss(struct dn_stream *st, const struct dn_softmax *sm, const void *px, const struct dn_tensor *t,
		     const void *truth, double *loss)
{
	const float *x = px, *number = truth;
	const int32_t *class = truth;
	const int64_t hw = dn_tensor_plane(&sm->x);
	int err = softmax_truth_check(sm, "softmax_loss", t);

	if (err)
		return err;
	*loss = 0;
	for (int64_t i = 0; i < sm->x.n * hw; i++)
		for (int g = 0; g < sm->n_groups; g++) {
			int64_t from = softmax_group(sm, g), to = softmax_group(sm, g + 1), at = softmax_at(sm, i / hw, i % hw);

			if (t->type == DN_I32) {
				int32_t k = class[(i / hw * sm->n_groups + g) * hw + i % hw];

				if (k < -1 || k >= to - from)
					*loss = NAN;
				else if (k >= 0)
					*loss += log_loss(sm, x + at, from, to, from + k);
				continue;
			}
			for (int64_t k = from; k < to; k++)
				if (number[at + k * hw] != 0 && number[at + k * hw] != DN_IGNORE)
					*loss += log_loss(sm, x + at, from, to, k);
		}
	return 0;
}

int ref_tree_truth(struct dn_stream *st, const struct dn_softmax *sm, const void *truth, void *out)
{
	if (!sm->parent)
		return dn_fail(-EINVAL, "tree_truth: a softmax without a tree");
	for (int64_t i = 0; i < sm->x.n; i++) {
		const float *t = (const float *)truth + i * sm->x.c;
		float *o = (float *)out + i * sm->x.c;

		for (int64_t k = 0; k < sm->x.c; k++)
			o[k] = t[k];
		for (int64_t k = 0; k < sm->x.c; k++)
			for (int32_t p = sm->parent[k]; t[k] > 0 && p >= 0; p = sm->parent[p])
				o[p] = 1;
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

static double log_of(double p)
{
	return log(p < FLT_MIN ? FLT_MIN : p);
}

static double cost_at(enum dn_cost kind, float p, float t, float *delta)
{
	double diff = (double)t - p, sign = t > p ? 1 : -1;

	*delta = t - p;
	switch (kind) {
	case DN_COST_MASKED:
	case DN_COST_SOFTMAX_CE:
		if (t == DN_IGNORE) {
			*delta = 0;
			return 0;
		}
		if (kind == DN_COST_MASKED)
			return diff * diff;
		return t != 0 ? -log_of(p) : 0;
	case DN_COST_L1:
		*delta = isnan(diff) ? (float)diff : (float)sign;
		return fabs(diff);
	case DN_COST_SMOOTH:
		if (fabs(diff) < 1)
			return diff * diff;
		*delta = isnan(diff) ? (float)diff : (float)sign;
		return 2 * fabs(diff) - 1;
	case DN_COST_WGAN:
		*delta = t > 0 ? 1 : -1;
		return t > 0 ? -p : p;
	case DN_COST_LOGISTIC_CE:
		return (t != 0 ? -t * log_of(p) : 0) + (t != 1 ? -(1 - (double)t) * log_of(1 - (double)p) : 0);
	default:
		return diff * diff;
	}
}

/* of element @i; false: its class is none */
static bool target_at(const struct dn_tensor *p, const struct dn_tensor *t, const void *truth, int64_t i, float *out)
{
	int64_t hw = dn_tensor_plane(p), each = p->c / t->c, k = i / hw % p->c;
	int32_t class;

	if (t->type != DN_I32) {
		*out = ((const float *)truth)[i];
		return true;
	}
	class = ((const int32_t *)truth)[(i / (hw * p->c) * t->c + k / each) * hw + i % hw];
	*out = class == k % each;
	return class >= -1 && class < each;
}

int ref_cost(struct dn_stream *st, enum dn_cost kind, const struct dn_tensor *p, const void *px, const struct dn_tensor *t,
	     const void *truth, void *pdelta, double *loss)
{
	const float *x = px;
	float *delta = pdelta;
	int err = truth_check(&ref_limits, "cost", p, t);
	double sum = 0;

	for (int64_t i = 0; !err && i < dn_tensor_count(p); i++) {
		float target;
		bool known = target_at(p, t, truth, i, &target);

		sum += known ? cost_at(kind, x[i], target, &delta[i]) : NAN;
		if (!known)
			delta[i] = NAN;
	}
	if (!err)
		*loss = sum;
	return err;
}

int ref_binarize(struct dn_stream *st, enum dn_type type, int64_t rows, int64_t n, bool mean, const void *px, void *py)
{
	const float *x = px;
	float *y = py;
	int err = type_check(&ref_limits, "binarize", type);

	if (err)
		return err;
	for (int64_t r = 0; r < rows; r++) {
		double sum = 0;

		for (int64_t i = 0; i < n; i++)
			sum += fabs(x[r * n + i]);
		for (int64_t i = 0; i < n; i++)
			y[r * n + i] = (float)((x[r * n + i] > 0 ? 1 : -1) * (mean ? sum / (double)n : 1));
	}
	return 0;
}

int ref_axpby(struct dn_stream *st, enum dn_type type, int64_t n, float alpha, const void *px, float beta, void *py)
{
	const float *x = px;
	float *y = py;
	int err = type_check(&ref_limits, "axpby", type);

	if (err)
		return err;
	for (int64_t i = 0; i < n; i++)
		y[i] = beta == 0 ? alpha * x[i] : alpha * x[i] + beta * y[i];
	return 0;
}

int ref_copy_rows(struct dn_stream *st, enum dn_type type, int64_t rows, int64_t n, const void *psrc, int64_t src_stride,
		  void *pdst, int64_t dst_stride, bool acc)
{
	const float *src = psrc;
	float *dst = pdst;
	int err = type_check(&ref_limits, "copy_rows", type);

	if (err)
		return err;
	for (int64_t r = 0; r < rows; r++)
		for (int64_t i = 0; i < n; i++)
			dst[r * dst_stride + i] = (acc ? dst[r * dst_stride + i] : 0) + src[r * src_stride + i];
	return 0;
}

/* visits the overlap: @out indexes the direct input's shape, @in the source's */
static bool shortcut_at(const struct dn_shortcut_desc *d, int64_t i, int64_t *in)
{
	int64_t stride = d->src.w / d->y.w > 1 ? d->src.w / d->y.w : 1, sample = d->y.w / d->src.w > 1 ? d->y.w / d->src.w : 1;
	int64_t x = i % d->y.w, y = i / d->y.w % d->y.h, c = i / (d->y.w * d->y.h) % d->y.c, n = i / (d->y.w * d->y.h * d->y.c);
	int64_t min_w = d->src.w < d->y.w ? d->src.w : d->y.w, min_h = d->src.h < d->y.h ? d->src.h : d->y.h;

	if (x % sample || y % sample || x / sample >= min_w || y / sample >= min_h || c >= d->src.c)
		return false;
	*in = ((n * d->src.c + c) * d->src.h + y / sample * stride) * d->src.w + x / sample * stride;
	return true;
}

int ref_shortcut_forward(struct dn_stream *st, const struct dn_shortcut_desc *d, const void *pdirect, const void *psrc, void *py)
{
	const float *direct = pdirect, *src = psrc;
	float *y = py;
	int err = shortcut_desc_check(&ref_limits, "shortcut_forward", d);
	int64_t in;

	for (int64_t i = 0; !err && i < d->y.n * d->y.c * d->y.h * d->y.w; i++)
		y[i] = shortcut_at(d, i, &in) ? d->alpha * direct[i] + d->beta * src[in] : direct[i];
	return err;
}

int ref_shortcut_backward_src(struct dn_stream *st, const struct dn_shortcut_desc *d, const void *pdy, void *pdsrc, bool acc)
{
	const float *dy = pdy;
	float *dsrc = pdsrc;
	int err = shortcut_desc_check(&ref_limits, "shortcut_backward_src", d);
	int64_t in;

	for (int64_t i = 0; !err && !acc && i < d->y.n * d->src.c * d->src.h * d->src.w; i++)
		dsrc[i] = 0;
	for (int64_t i = 0; !err && i < d->y.n * d->y.c * d->y.h * d->y.w; i++)
		if (shortcut_at(d, i, &in))
			dsrc[in] += d->beta * dy[i];
	return err;
}

int ref_sgd(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_sgd *o, const struct dn_numbers *num, float *w,
	    float *v, const void *pg)
{
	const float *g = pg;
	int err = type_check(&ref_limits, "sgd", type);
	const struct sgd_factors f = sgd_factors(o, num);

	if (err)
		return err;
	for (int64_t i = 0; i < n; i++) {
		v[i] = f.momentum * v[i] + f.factor * g[i] - f.decay * w[i];
		w[i] += f.rate * v[i];
	}
	return 0;
}

int ref_adam(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_adam *o, const struct dn_numbers *num, float *w,
	     float *m, float *v, const void *pg)
{
	const float *g = pg;
	int err = type_check(&ref_limits, "adam", type);
	const struct adam_factors f = adam_factors(o, num);

	if (err)
		return err;
	for (int64_t i = 0; i < n; i++) {
		float u = f.scale * g[i] - f.decay * w[i];

		m[i] = f.beta1 * m[i] + f.one_minus_beta1 * u;
		v[i] = f.beta2 * v[i] + f.one_minus_beta2 * (u * u);
		w[i] = f.shrink * w[i] + f.rate * (m[i] * f.correct1 / (sqrtf(v[i] * f.correct2) + f.eps));
	}
	return 0;
}

static float part_value(const struct dn_parts *parts, int part, int64_t i)
{
	const void *x = part_of(parts, part, i);
	uint16_t h;

	if (!half_type(parts->type))
		return *(const float *)x;
	memcpy(&h, x, sizeof(h)); /* host memory */
	return ref_half_value(parts->type, h);
}

static float tree(const struct dn_parts *parts, int first, int n, int64_t i)
{
	int left = 1;

	if (n == 1)
		return part_value(parts, first, i);
	while (left * 2 < n)
		left *= 2;
	return tree(parts, first, left, i) + tree(parts, first + left, n - left, i);
}

int ref_sum_tree(struct dn_stream *st, int64_t n, const struct dn_parts *parts, float *out, bool acc)
{
	int err = parts_check(&ref_limits, parts);

	for (int64_t i = 0; i < n && !err; i++) {
		float sum = tree(parts, 0, parts->n, i);

		out[i] = acc ? out[i] + sum : sum;
	}
	return err;
}

int ref_count_nonfinite(struct dn_stream *st, enum dn_type type, int64_t n, const void *px, int64_t *count)
{
	const float *x = px;
	int err = type_check(&ref_limits, "count_nonfinite", type);
	int64_t bad = 0;

	if (err)
		return err;
	for (int64_t i = 0; i < n; i++)
		bad += !isfinite(x[i]);
	*count = bad;
	return 0;
}

int ref_look(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_look_desc *d, void *px, struct dn_exact *sum,
	     int64_t *bad)
{
	float *x = px;
	int err = type_check(&ref_limits, "look", type);

	for (int64_t i = 0; i < n && !err; i++) {
		const struct look_float f = look_float(&x[i], d->limit);

		if (f.e == 255) {
			++*bad;
			continue;
		}
		if (sum && d->p)
			exact_add(sum, d->p == 2 ? (uint64_t)f.m * f.m : f.m, d->p * (int)(f.e - 1));
		if (sum && f.bits > sum->max)
			sum->max = f.bits;
		if (sum)
			exact_carry(sum);
	}
	return err;
}
