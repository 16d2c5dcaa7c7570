/* Learning rate of a batch number by policy and burn-in: a pure function. */
#include <math.h>

#include "base/rng.h"
#include "graph/net.h"

/* Cosine from the full rate to the least within each cycle. Batch numbers are below 2^53, so the sums cannot overflow. */
static double sgdr_rate(const struct dn_hyper *h, int64_t b)
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

double dn_net_rate(const struct dn_hyper *h, int64_t b, uint64_t seed)
{
	double lr = h->learning_rate;

	if (b < h->burn_in)
		return lr * pow((double)b / (double)h->burn_in, h->power);
	switch (h->policy) {
	case DN_CONSTANT:
		return lr;
	case DN_STEP:
		return lr * pow(h->scale, (double)(b / h->step));
	case DN_STEPS:
		/* signed: steps=-1,... takes effect from the start, as the published cfgs mean it */
		for (int i = 0; i < h->n_steps && h->steps[i] <= b; i++)
			lr *= h->scales[i];
		return lr;
	case DN_EXP:
		return lr * pow(h->gamma, (double)b);
	case DN_POLY:
		if (b >= h->max_batches)
			return 0; /* a negative base has no power */
		return lr * pow(1 - (double)b / (double)h->max_batches, h->power);
	case DN_SIGMOID:
		return lr / (1 + exp(h->gamma * (double)(b - h->step)));
	case DN_SGDR:
		return sgdr_rate(h, b);
	case DN_RANDOM:
		return lr * pow(dn_rng_uniform(seed, DN_RNG_STREAM(DN_RNG_RATE, 0), (uint64_t)b), h->power);
	}
	return lr;
}
