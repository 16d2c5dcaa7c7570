/* ref: activations, normalisation, pooling, loss and element-wise ops as plain loops. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include "backend/backend_priv.h"
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

int ref_bias_act(struct dn_stream *st, int64_t n, int64_t c, int64_t hw, float *x, const float *bias, enum dn_act act)
{
	for (int64_t i = 0; i < n * c * hw; i++)
		x[i] = ref_act(act, bias ? x[i] + bias[i / hw % c] : x[i]);
	return 0;
}

int ref_bias_backward(struct dn_stream *st, int64_t n, int64_t c, int64_t hw, const float *dy, float *db)
{
	for (int64_t k = 0; k < c; k++) {
		double sum = 0;

		for (int64_t i = 0; i < n; i++)
			for (int64_t j = 0; j < hw; j++)
				sum += dy[(i * c + k) * hw + j];
		db[k] = (float)sum;
	}
	return 0;
}

int ref_act_backward(struct dn_stream *st, enum dn_act act, int64_t n, const float *y, float *dy)
{
	for (int64_t i = 0; i < n; i++)
		dy[i] = (float)(dy[i] * act_gradient(act, y[i]));
	return 0;
}

static double bn_divisor(const struct dn_bn_desc *d, float var)
{
	return d->legacy ? sqrt(var) + 1e-6 : sqrt(var + 1e-5);
}

int ref_bn_forward(struct dn_stream *st, const struct dn_bn_desc *d, const float *x, const float *scale, const float *bias,
		   const float *mean, const float *var, float *y)
{
	for (int64_t i = 0; i < d->n * d->c * d->hw; i++) {
		int64_t k = i / d->hw % d->c;

		y[i] = ref_act(d->act, (float)(scale[k] * (((double)x[i] - mean[k]) / bn_divisor(d, var[k])) + bias[k]));
	}
	return 0;
}

int ref_bn_forward_train(struct dn_stream *st, const struct dn_bn_desc *d, const float *x, const float *scale, const float *bias,
			 float *mean, float *var, float *y)
{
	int64_t count = d->n * d->hw;

	for (int64_t k = 0; k < d->c; k++) {
		double m = 0, v = 0;

		for (int64_t i = 0; i < d->n; i++)
			for (int64_t j = 0; j < d->hw; j++)
				m += x[(i * d->c + k) * d->hw + j];
		m /= (double)count;
		for (int64_t i = 0; i < d->n; i++)
			for (int64_t j = 0; j < d->hw; j++) {
				double e = x[(i * d->c + k) * d->hw + j] - m;

				v += e * e;
			}
		mean[k] = (float)m;
		var[k] = (float)(v / (double)(d->legacy && count > 1 ? count - 1 : count));
	}
	return ref_bn_forward(st, d, x, scale, bias, mean, var, y);
}

int ref_bn_backward(struct dn_stream *st, const struct dn_bn_desc *d, bool frozen, const float *x, const float *mean,
		    const float *var, const float *scale, const float *dy, float *dx, bool acc, float *dscale, float *dbias)
{
	int64_t count = d->n * d->hw;

	for (int64_t k = 0; k < d->c; k++) {
		double sum = 0, sum_x = 0, root = sqrt(var[k] + 1e-5), forward = bn_divisor(d, var[k]), dmean, dvar;

		for (int64_t i = 0; i < d->n; i++)
			for (int64_t j = 0; j < d->hw; j++) {
				int64_t at = (i * d->c + k) * d->hw + j;

				sum += dy[at];
				sum_x += dy[at] * ((double)x[at] - mean[k]);
			}
		dmean = -sum * scale[k] / root;
		dvar = -.5 * sum_x * scale[k] / (root * root * root);
		for (int64_t i = 0; dx && i < d->n; i++)
			for (int64_t j = 0; j < d->hw; j++) {
				int64_t at = (i * d->c + k) * d->hw + j;
				double g;

				if (frozen)
					g = (double)dy[at] * scale[k] / forward;
				else
					g = (double)dy[at] * scale[k] / root + dmean / (double)count +
					    2 * ((double)x[at] - mean[k]) * dvar / (double)count;
				dx[at] = (float)(acc ? dx[at] + g : g);
			}
		dscale[k] = (float)(sum_x / forward);
		dbias[k] = (float)sum;
	}
	return 0;
}

int ref_maxpool_forward(struct dn_stream *st, const struct dn_pool_desc *d, const float *x, float *y, int32_t *index)
{
	for (int64_t p = 0; p < d->n * d->c; p++)
		for (int64_t oy = 0; oy < d->oh; oy++)
			for (int64_t ox = 0; ox < d->ow; ox++) {
				int64_t best = -1, out = (p * d->oh + oy) * d->ow + ox;

				for (int64_t iy = oy * d->stride - d->pad / 2; iy < oy * d->stride - d->pad / 2 + d->size; iy++)
					for (int64_t ix = ox * d->stride - d->pad / 2; ix < ox * d->stride - d->pad / 2 + d->size;
					     ix++) {
						const float *plane = x + p * d->h * d->w;

						if (iy < 0 || iy >= d->h || ix < 0 || ix >= d->w)
							continue;
						if (best < 0 || (!isnan(plane[best]) && !(plane[iy * d->w + ix] <= plane[best])))
							best = iy * d->w + ix;
					}
				y[out] = best < 0 ? 0 : x[p * d->h * d->w + best];
				index[out] = (int32_t)best;
			}
	return 0;
}

int ref_maxpool_backward(struct dn_stream *st, const struct dn_pool_desc *d, const float *dy, const int32_t *index, float *dx,
			 bool acc)
{
	int64_t plane = d->h * d->w;

	for (int64_t i = 0; !acc && i < d->n * d->c * plane; i++)
		dx[i] = 0;
	for (int64_t i = 0; i < d->n * d->c * d->oh * d->ow; i++)
		if (index[i] >= 0)
			dx[i / (d->oh * d->ow) * plane + index[i]] += dy[i];
	return 0;
}

int ref_avgpool_forward(struct dn_stream *st, int64_t rows, int64_t hw, const float *x, float *y)
{
	for (int64_t r = 0; r < rows; r++) {
		double sum = 0;

		for (int64_t i = 0; i < hw; i++)
			sum += x[r * hw + i];
		y[r] = (float)(sum / (double)hw);
	}
	return 0;
}

int ref_avgpool_backward(struct dn_stream *st, int64_t rows, int64_t hw, const float *dy, float *dx, bool acc)
{
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

int ref_dropout_forward(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num, int64_t n,
			int64_t per_image, const float *x, float *y)
{
	int err = dropout_key_check(k);

	for (int64_t i = 0; !err && i < n * per_image; i++) {
		float f = dropout_factor(k, num, per_image, i);

		y[i] = f != 0 ? x[i] * f : 0;
	}
	return err;
}

int ref_dropout_backward(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num, int64_t n,
			 int64_t per_image, const float *dy, float *dx, bool acc)
{
	int err = dropout_key_check(k);

	for (int64_t i = 0; !err && i < n * per_image; i++) {
		float f = dropout_factor(k, num, per_image, i), g = f != 0 ? dy[i] * f : 0;

		dx[i] = acc ? dx[i] + g : g;
	}
	return err;
}

int ref_softmax(struct dn_stream *st, int64_t rows, int64_t cols, float temperature, const float *x, float *y)
{
	for (int64_t r = 0; r < rows; r++) {
		double max = -INFINITY, sum = 0;

		for (int64_t i = 0; i < cols; i++)
			max = x[r * cols + i] > max ? x[r * cols + i] : max;
		for (int64_t i = 0; i < cols; i++)
			sum += exp((x[r * cols + i] - max) / temperature);
		for (int64_t i = 0; i < cols; i++)
			y[r * cols + i] = (float)(exp((x[r * cols + i] - max) / temperature) / sum);
	}
	return 0;
}

int ref_softmax_loss(struct dn_stream *st, int64_t rows, int64_t cols, float temperature, const float *x, const float *t,
		     double *loss)
{
	*loss = 0;
	for (int64_t r = 0; r < rows; r++)
		for (int64_t k = 0; k < cols; k++) {
			long double sum = 0;

			if (t[r * cols + k] == 0 || t[r * cols + k] == DN_IGNORE)
				continue;
			for (int64_t i = 0; i < cols; i++)
				if (i != k)
					sum += expl(((long double)x[r * cols + i] - x[r * cols + k]) / temperature);
			*loss += (double)log1pl(sum);
		}
	return 0;
}

int ref_softmax_groups(struct dn_stream *st, const struct dn_softmax_desc *d, const float *x, float *y)
{
	int err = softmax_desc_check(d);

	for (int64_t i = 0; !err && i < d->n * d->hw; i++)
		for (int g = 0; g < d->n_groups; g++) {
			int64_t from = d->group_at ? d->group_at[g] : g * (d->c / d->n_groups);
			int64_t to = d->group_at ? d->group_at[g + 1] : (g + 1) * (d->c / d->n_groups);
			int64_t at = i / d->hw * d->c * d->hw + i % d->hw;
			double max = -INFINITY, sum = 0;

			for (int64_t k = from; k < to; k++)
				max = x[at + k * d->hw] > max ? x[at + k * d->hw] : max;
			for (int64_t k = from; k < to; k++)
				sum += exp((x[at + k * d->hw] - max) / d->temperature);
			for (int64_t k = from; k < to; k++)
				y[at + k * d->hw] = (float)(exp((x[at + k * d->hw] - max) / d->temperature) / sum);
		}
	return err;
}

int ref_tree_truth(struct dn_stream *st, const struct dn_tree_desc *d, int64_t n, const float *t, float *out)
{
	for (int64_t i = 0; i < n; i++) {
		float *o = out + i * d->c;

		for (int64_t k = 0; k < d->c; k++)
			o[k] = t[i * d->c + k];
		for (int64_t k = 0; k < d->c; k++)
			for (int32_t p = d->parent[k]; t[i * d->c + k] > 0 && p >= 0; p = d->parent[p])
				o[p] = 1;
		for (int g = 0; g < d->n_groups; g++) {
			bool any = false;

			for (int32_t k = d->group_at[g]; k < d->group_at[g + 1]; k++)
				any |= o[k] > 0;
			for (int32_t k = d->group_at[g]; !any && k < d->group_at[g + 1]; k++)
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

int ref_cost(struct dn_stream *st, enum dn_cost kind, int64_t n, const float *p, const float *t, float *delta, double *loss)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += cost_at(kind, p[i], t[i], &delta[i]);
	*loss = sum;
	return 0;
}

int ref_binarize(struct dn_stream *st, int64_t rows, int64_t n, bool mean, const float *x, float *y)
{
	for (int64_t r = 0; r < rows; r++) {
		double sum = 0;

		for (int64_t i = 0; i < n; i++)
			sum += fabs(x[r * n + i]);
		for (int64_t i = 0; i < n; i++)
			y[r * n + i] = (float)((x[r * n + i] > 0 ? 1 : -1) * (mean ? sum / (double)n : 1));
	}
	return 0;
}

int ref_axpby(struct dn_stream *st, int64_t n, float alpha, const float *x, float beta, float *y)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = beta == 0 ? alpha * x[i] : alpha * x[i] + beta * y[i];
	return 0;
}

int ref_copy_rows(struct dn_stream *st, int64_t rows, int64_t n, const float *src, int64_t src_stride, float *dst,
		  int64_t dst_stride, bool acc)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t i = 0; i < n; i++)
			dst[r * dst_stride + i] = (acc ? dst[r * dst_stride + i] : 0) + src[r * src_stride + i];
	return 0;
}

/* visits the overlap: @out indexes the direct input's shape, @in the source's */
static bool shortcut_at(const struct dn_shortcut_desc *d, int64_t i, int64_t *in)
{
	int64_t stride = d->w1 / d->w2 > 1 ? d->w1 / d->w2 : 1, sample = d->w2 / d->w1 > 1 ? d->w2 / d->w1 : 1;
	int64_t x = i % d->w2, y = i / d->w2 % d->h2, c = i / (d->w2 * d->h2) % d->c2, n = i / (d->w2 * d->h2 * d->c2);
	int64_t min_w = d->w1 < d->w2 ? d->w1 : d->w2, min_h = d->h1 < d->h2 ? d->h1 : d->h2;

	if (x % sample || y % sample || x / sample >= min_w || y / sample >= min_h || c >= d->c1)
		return false;
	*in = ((n * d->c1 + c) * d->h1 + y / sample * stride) * d->w1 + x / sample * stride;
	return true;
}

int ref_shortcut_forward(struct dn_stream *st, const struct dn_shortcut_desc *d, const float *direct, const float *src, float *y)
{
	int err = shortcut_desc_check(d);
	int64_t in;

	for (int64_t i = 0; !err && i < d->n * d->c2 * d->h2 * d->w2; i++)
		y[i] = shortcut_at(d, i, &in) ? d->alpha * direct[i] + d->beta * src[in] : direct[i];
	return err;
}

int ref_shortcut_backward_src(struct dn_stream *st, const struct dn_shortcut_desc *d, const float *dy, float *dsrc, bool acc)
{
	int err = shortcut_desc_check(d);
	int64_t in;

	for (int64_t i = 0; !err && !acc && i < d->n * d->c1 * d->h1 * d->w1; i++)
		dsrc[i] = 0;
	for (int64_t i = 0; !err && i < d->n * d->c2 * d->h2 * d->w2; i++)
		if (shortcut_at(d, i, &in))
			dsrc[in] += d->beta * dy[i];
	return err;
}

int ref_sgd(struct dn_stream *st, int64_t n, const struct dn_sgd *o, const struct dn_numbers *num, float *w, float *v,
	    const float *g)
{
	const struct sgd_factors f = sgd_factors(o, num);

	for (int64_t i = 0; i < n; i++) {
		v[i] = f.momentum * v[i] + f.factor * g[i] - f.decay * w[i];
		w[i] += f.rate * v[i];
	}
	return 0;
}

int ref_adam(struct dn_stream *st, int64_t n, const struct dn_adam *o, const struct dn_numbers *num, float *w, float *m, float *v,
	     const float *g)
{
	const struct adam_factors f = adam_factors(o, num);

	for (int64_t i = 0; i < n; i++) {
		float u = f.scale * g[i] - f.decay * w[i];

		m[i] = f.beta1 * m[i] + f.one_minus_beta1 * u;
		v[i] = f.beta2 * v[i] + f.one_minus_beta2 * (u * u);
		w[i] = f.shrink * w[i] + f.rate * (m[i] * f.correct1 / (sqrtf(v[i] * f.correct2) + f.eps));
	}
	return 0;
}

static float tree(int n_parts, const float *const *parts, int64_t i)
{
	int left = 1;

	if (n_parts == 1)
		return parts[0][i];
	while (left * 2 < n_parts)
		left *= 2;
	return tree(left, parts, i) + tree(n_parts - left, parts + left, i);
}

int ref_sum_tree(struct dn_stream *st, int64_t n, int n_parts, const float *const *parts, float *out, bool acc)
{
	if (n_parts < 1)
		return dn_fail(-EINVAL, "sum over %d parts, must be at least 1", n_parts);
	for (int64_t i = 0; i < n; i++) {
		float sum = tree(n_parts, parts, i);

		out[i] = acc ? out[i] + sum : sum;
	}
	return 0;
}

int ref_count_nonfinite(struct dn_stream *st, int64_t n, const float *x, int64_t *count)
{
	int64_t bad = 0;

	for (int64_t i = 0; i < n; i++)
		bad += !isfinite(x[i]);
	*count = bad;
	return 0;
}
