/* Learning rate of a batch number by policy and burn-in: a pure function. */
#include <math.h>

#include "base/rng.h"
#include "graph/net.h"

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
			return 0;       /* a negative base has no power */
		return lr * pow(1 - (double)b / (double)h->max_batches, h->power);
	case DN_SIGMOID:
		return lr / (1 + exp(h->gamma * (double)(b - h->step)));
	case DN_RANDOM:
		return lr * pow(dn_rng_uniform(seed, DN_RNG_STREAM(DN_RNG_RATE, 0), (uint64_t)b), h->power);
	}
	return lr;
}
