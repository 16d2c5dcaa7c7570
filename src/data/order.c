/* Which sample stands at which position: a pure function of (seed, position). */
#include "data/order.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

/* Stream of DN_SHUFFLE_REPLACE; epochs, which number the other streams of this use, never get that far. */
#define REPLACE_STREAM DN_RNG_STREAM(DN_RNG_SHUFFLE, 0xffffffffffffull)

struct permutation {
	int64_t epoch; /* -1 = none yet */
	uint64_t used; /* tick of the last use */
	int64_t *at;   /* [n] */
};

struct dn_order_cache {
	struct dn_order order;
	pthread_mutex_t lock; /* of all below */
	uint64_t tick;
	struct permutation perm[2]; /* this epoch and the one that the threads run ahead into */
};

int dn_order_cache_create(struct dn_order_cache **out, const struct dn_order *o)
{
	struct dn_order_cache *c;
	int err;

	if (o->n < 1)
		return dn_fail(-EINVAL, "data: an order of %lld samples, must be at least 1", (long long)o->n);
	c = dn_zalloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	err = pthread_mutex_init(&c->lock, NULL);
	if (err) {
		dn_free(c);
		return dn_fail(-err, "data: cannot make a lock: %s", strerror(err));
	}
	c->order = *o;
	for (int i = 0; i < 2; i++) {
		c->perm[i].epoch = -1;
		if (o->shuffle != DN_SHUFFLE_EPOCH)
			continue;
		c->perm[i].at = dn_calloc((size_t)o->n, sizeof(*c->perm[i].at));
		if (!c->perm[i].at) {
			dn_order_cache_destroy(c);
			return -ENOMEM;
		}
	}
	*out = c;
	return 0;
}

void dn_order_cache_destroy(struct dn_order_cache *c)
{
	if (!c)
		return;
	for (int i = 0; i < 2; i++)
		dn_free(c->perm[i].at);
	pthread_mutex_destroy(&c->lock);
	dn_free(c);
}

/* The permutation of @epoch; the caller holds the lock. Replaces the one that was longer unused: with epochs
 * shorter than what the threads have in flight that makes more work, never another answer. */
static const struct permutation *permutation(struct dn_order_cache *c, int64_t epoch)
{
	struct permutation *p = &c->perm[0];

	for (int i = 0; i < 2; i++)
		if (c->perm[i].epoch == epoch) {
			p = &c->perm[i];
			goto out;
		}
	if (c->perm[1].used < p->used)
		p = &c->perm[1];
	dn_rng_permutation(c->order.seed, DN_RNG_STREAM(DN_RNG_SHUFFLE, epoch), c->order.n, p->at);
	p->epoch = epoch;
out:
	p->used = ++c->tick;
	return p;
}

int64_t dn_order_at(struct dn_order_cache *c, int64_t position)
{
	int64_t n = c->order.n;
	int64_t i;

	assert(position >= 0);
	switch (c->order.shuffle) {
	case DN_SHUFFLE_OFF:
		return position % n;
	case DN_SHUFFLE_REPLACE:
		return (int64_t)dn_rng_below(c->order.seed, REPLACE_STREAM, (uint64_t)position, (uint64_t)n);
	case DN_SHUFFLE_EPOCH:
		break;
	}
	pthread_mutex_lock(&c->lock);
	i = permutation(c, position / n)->at[position % n];
	pthread_mutex_unlock(&c->lock);
	return i;
}
