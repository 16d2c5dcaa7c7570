/* Learning rate of a batch number by policy and burn-in: a pure function. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/names.h"
#include "base/rng.h"
#include "graph/net.h"

/* Cosine from the full rate to the least within each cycle. Batch numbers are below 2^53, so the sums cannot overflow. */
static double sgdr_rate(const struct dn_hyper *h, int64_t b, uint64_t seed)
{
	int64_t start = 0, cycle = h->cycle;

	while (start + cycle < b) {
		start += cycle;
		if (h->cycle_mult == 1)
			start = (b - 1) / cycle * cycle; /* the same end without the walk */
		else
			cycle *= h->cycle_mult;
	}
	return h->rate_min +
	       .5 * (h->learning_rate - h->rate_min) * (1 + cos(3.14159265358979323846 * (double)(b - start) / (double)cycle));
}

static double constant_rate(const struct dn_hyper *h, int64_t b, uint64_t seed)
{
	return h->learning_rate;
}

static double step_rate(const struct dn_hyper *h, int64_t b, uint64_t seed)
{
	return h->learning_rate * pow(h->scale, (double)(b / h->step));
}

/* signed: steps=-1,... takes effect from the start, as the published cfgs mean it */
static double steps_rate(const struct dn_hyper *h, int64_t b, uint64_t seed)
{
	double lr = h->learning_rate;

	for (int i = 0; i < h->n_steps && h->steps[i] <= b; i++)
		lr *= h->scales[i];
	return lr;
}

static double exp_rate(const struct dn_hyper *h, int64_t b, uint64_t seed)
{
	return h->learning_rate * pow(h->gamma, (double)b);
}

static double poly_rate(const struct dn_hyper *h, int64_t b, uint64_t seed)
{
	if (b >= h->max_batches)
		return 0; /* a negative base has no power */
	return h->learning_rate * pow(1 - (double)b / (double)h->max_batches, h->power);
}

static double sigmoid_rate(const struct dn_hyper *h, int64_t b, uint64_t seed)
{
	return h->learning_rate / (1 + exp(h->gamma * (double)(b - h->step)));
}

static double random_rate(const struct dn_hyper *h, int64_t b, uint64_t seed)
{
	return h->learning_rate * pow(dn_rng_uniform(seed, DN_RNG_STREAM(DN_RNG_RATE, 0), (uint64_t)b), h->power);
}

/* clang-format off */
/* X(enum, name, rate of batch b behind burn_in) */
#define POLICIES(X) \
	X(DN_CONSTANT, "constant", constant_rate) \
	X(DN_STEP, "step", step_rate) \
	X(DN_STEPS, "steps", steps_rate) \
	X(DN_EXP, "exp", exp_rate) \
	X(DN_POLY, "poly", poly_rate) \
	X(DN_SIGMOID, "sigmoid", sigmoid_rate) \
	X(DN_RANDOM, "random", random_rate) \
	X(DN_SGDR, "sgdr", sgdr_rate)
/* clang-format on */
#define ROW(row, name, rate) [row] = { name, rate },

static const struct {
	const char *name;
	double (*rate)(const struct dn_hyper *h, int64_t b, uint64_t seed);
} policies[DN_POLICIES] = { POLICIES(ROW) };

const char *dn_policy_names(void)
{
	return DN_NAMES(POLICIES);
}

int dn_policy_find(const char *name, enum dn_policy *out)
{
	for (int i = 0; i < DN_POLICIES; i++)
		if (!strcmp(name, policies[i].name)) {
			*out = (enum dn_policy)i;
			return 0;
		}
	return -EINVAL;
}

double dn_net_rate(const struct dn_hyper *h, int64_t b, uint64_t seed)
{
	if (b < h->burn_in)
		return h->learning_rate * pow((double)b / (double)h->burn_in, h->power);
	return policies[h->policy].rate(h, b, seed);
}
