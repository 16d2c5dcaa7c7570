/* Loader threads and the ring of microbatches that they fill ahead of the net.
 *
 * The threads take samples, a few at a time, in order of microbatches; a sample's place in the ring and its
 * number in the data set follow from its microbatch and place alone, so what the net sees depends neither on
 * the number of threads nor on their timing.
 */
#include "data/dataset.h"
#include "data/loader.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"

#define STACK_BYTES ((size_t)512 << 10)
#define MAX_THREADS 1024
#define MAX_CHUNK 64 /* samples that a thread takes at once, at most */

struct slot {
	float *x, *t; /* [local_batch, inputs], [local_batch, truths] */
	int64_t *cls; /* [local_batch] */
	int64_t done; /* samples, under the loader's lock as all below */
	int err;      /* of the lowest failing sample */
	int64_t err_sample;
	char message[2048];
};

struct dn_loader {
	struct dn_loader_config c;
	int64_t local_batch; /* samples of a microbatch on this rank */
	int64_t chunk;
	int64_t ring_inputs; /* floats of a sample at its largest */
	struct dn_order_cache *order;
	void *ring;
	int64_t *cls;
	struct slot slots[DN_LOADER_DEPTH];
	pthread_t *threads;
	int n_threads; /* started */
	bool have_lock, have_room, have_ready;

	pthread_mutex_t lock; /* of all below and the slots' counters */
	pthread_cond_t room;  /* a microbatch was given back, or stop */
	pthread_cond_t ready; /* a microbatch is complete */
	int64_t next_batch;   /* of the next sample to be taken; microbatches count from 0 */
	int64_t next_sample;
	int64_t given; /* microbatches handed out; the last of them is still in the caller's hands */
	int64_t freed; /* microbatches whose slots are free again */
	bool stop;
	bool failed; /* the microbatch that is due has an error, which every call gives again */
};

static size_t block_bytes(size_t bytes)
{
	return dn_up(bytes, DN_ALIGN);
}

static int slot_bytes(int64_t local_batch, int64_t inputs, int64_t truths, size_t *x, size_t *t)
{
	int err;

	if (local_batch < 1 || inputs < 1 || truths < 0)
		return dn_fail(-EINVAL, "data: batches of %lld samples of %lld inputs and %lld truths", (long long)local_batch,
			       (long long)inputs, (long long)truths);
	err = dn_mul_size((size_t)local_batch, sizeof(float), x);
	*t = *x;
	if (!err)
		err = dn_mul_size(*x, (size_t)inputs, x);
	if (!err)
		err = dn_mul_size(*t, (size_t)truths, t);
	if (!err && (*x > PTRDIFF_MAX / 16 || *t > PTRDIFF_MAX / 16))
		err = dn_fail(-EOVERFLOW, "data: batches of %lld samples of %lld inputs and %lld truths do not fit memory",
			      (long long)local_batch, (long long)inputs, (long long)truths);
	return err;
}

int dn_loader_bytes(int64_t local_batch, int64_t inputs, int64_t truths, size_t *out)
{
	size_t x = 0, t = 0;
	int err = slot_bytes(local_batch, inputs, truths, &x, &t);

	if (!err)
		*out = DN_LOADER_DEPTH * (block_bytes(x) + block_bytes(t));
	return err;
}

/* Stream of the sizes; updates, which number the other streams of this use, never get that far. */
#define RESIZE_STREAM DN_RNG_STREAM(DN_RNG_AUGMENT, 0xffffffffffffull)

int64_t dn_resize_side(const struct dn_resize *r, int64_t update)
{
	uint64_t turn = (uint64_t)(update - 1) / (uint64_t)r->every;

	return r->step * (r->first + (int64_t)dn_rng_below(r->seed, RESIZE_STREAM, turn, (uint64_t)r->n));
}

int64_t dn_resize_max(const struct dn_resize *r)
{
	return r->step * (r->first + r->n - 1);
}

static int64_t update_of(const struct dn_loader *l, int64_t k)
{
	return l->c.first_update + k / l->c.subdivisions;
}

/* Floats of a sample of microbatch @k, and the size of its images: 0 = the data set's. */
static int64_t inputs_of(const struct dn_loader *l, int64_t k, int64_t *side)
{
	*side = 0;
	if (!l->c.resize.every)
		return l->c.inputs;
	*side = dn_resize_side(&l->c.resize, update_of(l, k));
	return l->c.data->c * *side * *side;
}

/* Place of sample @i of this rank's microbatch @k in its update, over all ranks. */
static int64_t place_at(const struct dn_loader *l, int64_t k, int64_t i)
{
	return k % l->c.subdivisions * (l->c.batch / l->c.subdivisions) + l->c.rank * l->local_batch + i;
}

/* Sample of the data set that is number @i of this rank's microbatch @k. */
static int64_t sample_at(const struct dn_loader *l, int64_t k, int64_t i)
{
	int64_t at = (update_of(l, k) - 1) * l->c.batch + place_at(l, k, i);

	if (l->c.batches && at >= l->c.data->n)
		return l->c.data->n - 1;
	return dn_order_at(l->order, at);
}

static void note_error(struct slot *s, int64_t i, int err)
{
	if (s->err && s->err_sample < i)
		return;
	s->err = err;
	s->err_sample = i;
	snprintf(s->message, sizeof(s->message), "%s", dn_message());
}

static int fill_one(const struct dn_loader *l, int64_t k, int64_t i, float *x, float *t, int64_t *cls)
{
	const struct dn_loader_config *c = &l->c;
	struct dn_sample_key key = { .update = (uint64_t)update_of(l, k), .place = (uint64_t)place_at(l, k, i) };
	int64_t inputs = inputs_of(l, k, &key.w);

	key.h = key.w;
	return c->data->get(c->data, sample_at(l, k, i), c->batches ? NULL : &key, x + i * inputs,
			    c->truths ? t + i * c->truths : NULL, c->truths, &cls[i]);
}

int dn_loader_again(struct dn_loader *l, int64_t update, int64_t m, float *x, float *t)
{
	const int64_t k = (update - l->c.first_update) * l->c.subdivisions + m;
	int64_t *cls = dn_calloc((size_t)l->local_batch, sizeof(*cls));
	int err = cls ? 0 : -ENOMEM;

	for (int64_t i = 0; i < l->local_batch && !err; i++)
		err = fill_one(l, k, i, x, t, cls);
	dn_free(cls);
	return err;
}

static void copy_before(const struct dn_loader *l, const struct slot *s, int64_t i)
{
	const struct dn_loader_config *c = &l->c;

	memcpy(s->x + i * c->inputs, s->x + (i - 1) * c->inputs, (size_t)c->inputs * sizeof(*s->x));
	if (c->truths)
		memcpy(s->t + i * c->truths, s->t + (i - 1) * c->truths, (size_t)c->truths * sizeof(*s->t));
	s->cls[i] = s->cls[i - 1];
}

/* Samples [from, to) of microbatch @k; the lock is not held. What fills an evaluation's last batch up is decoded once. */
static void fill(struct dn_loader *l, int64_t k, int64_t from, int64_t to)
{
	struct slot *s = &l->slots[k % DN_LOADER_DEPTH];
	bool good = false; /* the one before */

	for (int64_t i = from; i < to; i++) {
		int err = 0;

		if (l->c.batches && good && sample_at(l, k, i) == sample_at(l, k, i - 1))
			copy_before(l, s, i);
		else
			err = fill_one(l, k, i, s->x, s->t, s->cls);
		good = !err;
		if (err) {
			pthread_mutex_lock(&l->lock);
			note_error(s, i, err);
			pthread_mutex_unlock(&l->lock);
		}
	}
}

static void *work(void *arg)
{
	struct dn_loader *l = arg;

	pthread_mutex_lock(&l->lock);
	for (;;) {
		int64_t k, from, to;
		struct slot *s;

		while (!l->stop &&
		       (l->next_batch >= l->freed + DN_LOADER_DEPTH || (l->c.batches && l->next_batch == l->c.batches)))
			pthread_cond_wait(&l->room, &l->lock);
		if (l->stop)
			break;
		k = l->next_batch;
		from = l->next_sample;
		to = from + l->chunk < l->local_batch ? from + l->chunk : l->local_batch;
		l->next_sample = to;
		if (to == l->local_batch) {
			l->next_sample = 0;
			l->next_batch++;
		}
		pthread_mutex_unlock(&l->lock);
		fill(l, k, from, to);
		pthread_mutex_lock(&l->lock);
		s = &l->slots[k % DN_LOADER_DEPTH];
		s->done += to - from;
		if (s->done == l->local_batch)
			pthread_cond_signal(&l->ready);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static int check_resize(const struct dn_loader_config *c)
{
	const struct dn_resize *r = &c->resize;

	if (!r->every)
		return 0;
	if (r->every < 1 || r->step < 1 || r->first < 1 || r->n < 1 || r->step > DN_IMAGE_MAX_SIDE ||
	    r->first > DN_IMAGE_MAX_SIDE || r->n > DN_IMAGE_MAX_SIDE || dn_resize_max(r) > DN_IMAGE_MAX_SIDE)
		return dn_fail(-EINVAL, "data: sizes of %lld * (%lld + 0 to %lld) every %lld updates; sides are from 1 to %d",
			       (long long)r->step, (long long)r->first, (long long)r->n - 1, (long long)r->every,
			       DN_IMAGE_MAX_SIDE);
	if (!c->data->any_size)
		return dn_fail(-EINVAL, "%s: samples of a fixed size, %lld x %lld, cannot come in changing sizes", c->data->path,
			       (long long)c->data->w, (long long)c->data->h);
	return 0;
}

static int check_config(const struct dn_loader_config *c)
{
	int64_t micro;

	if (c->batch < 1 || c->subdivisions < 1 || c->batch % c->subdivisions)
		return dn_fail(-EINVAL, "data: a batch of %lld is not divisible by %lld subdivisions", (long long)c->batch,
			       (long long)c->subdivisions);
	micro = c->batch / c->subdivisions;
	if (c->world < 1 || c->rank < 0 || c->rank >= c->world)
		return dn_fail(-EINVAL, "data: rank %d of %d ranks", c->rank, c->world);
	if (micro % c->world)
		return dn_fail(-EINVAL, "data: a microbatch of %lld (batch %lld, subdivisions %lld) is not divisible by %d ranks",
			       (long long)micro, (long long)c->batch, (long long)c->subdivisions, c->world);
	if (c->threads < 1 || c->threads > MAX_THREADS)
		return dn_fail(-EINVAL, "data: %d loader threads, must be from 1 to %d", c->threads, MAX_THREADS);
	/* the other half is more updates than a run can live to see */
	if (c->first_update < 1 || c->first_update > INT64_MAX / 2 / c->batch)
		return dn_fail(-EINVAL, "data: update %lld of %lld samples is out of range", (long long)c->first_update,
			       (long long)c->batch);
	if (c->inputs != c->data->inputs)
		return dn_fail(-EINVAL, "%s: a sample has %lld values, the net takes %lld", c->data->path,
			       (long long)c->data->inputs, (long long)c->inputs);
	if (c->data->truths && c->truths && c->data->truths != c->truths)
		return dn_fail(-EINVAL, "%s: a target has %lld values, the net takes %lld", c->data->path,
			       (long long)c->data->truths, (long long)c->truths);
	if (c->order.n != c->data->n)
		return dn_fail(-EINVAL, "%s: an order of %lld samples for a data set of %lld", c->data->path,
			       (long long)c->order.n, (long long)c->data->n);
	if (c->batches < 0 || (c->batches && (c->order.shuffle != DN_SHUFFLE_OFF || c->subdivisions != 1 || c->resize.every ||
					      c->first_update != 1)))
		return dn_fail(-EINVAL, "data: an evaluation of %lld batches has no subdivisions, order or sizes of its own",
			       (long long)c->batches);
	return check_resize(c);
}

static int own_alloc(void *arg, enum dn_region r, size_t bytes, void **out)
{
	*out = dn_alloc_region(r, bytes);
	return *out ? 0 : -ENOMEM;
}

static void own_free(void *arg, void *p)
{
	dn_free(p);
}

static int make_ring(struct dn_loader *l)
{
	const struct dn_loader_config *c = &l->c;
	size_t x = 0, t = 0, n_cls = 0;
	char *at;
	int err = slot_bytes(l->local_batch, l->ring_inputs, c->truths, &x, &t);

	if (!err)
		err = dn_mul_size(DN_LOADER_DEPTH, (size_t)l->local_batch, &n_cls);
	if (err)
		return err;
	l->cls = dn_calloc(n_cls, sizeof(*l->cls));
	if (!l->cls)
		return -ENOMEM;
	err = c->memory.alloc(c->memory.arg, c->region_activations ? DN_MEM_ACTIVATIONS : DN_MEM_HOST,
			      DN_LOADER_DEPTH * (block_bytes(x) + block_bytes(t)), &l->ring);
	if (err)
		return err;
	at = l->ring;
	for (int i = 0; i < DN_LOADER_DEPTH; i++) {
		l->slots[i].x = (float *)at;
		at += block_bytes(x);
		l->slots[i].t = (float *)at;
		at += block_bytes(t);
		l->slots[i].cls = l->cls + i * l->local_batch;
	}
	return 0;
}

/* Signals are for the main thread, whose handlers they are. */
static int start_threads(struct dn_loader *l)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int err;

	l->threads = dn_calloc((size_t)l->c.threads, sizeof(*l->threads));
	if (!l->threads)
		return -ENOMEM;
	err = pthread_attr_init(&attr);
	if (err)
		return dn_fail(-err, "data: cannot start a thread: %s", strerror(err));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_attr_setstacksize(&attr, STACK_BYTES);
	while (!err && l->n_threads < l->c.threads) {
		err = pthread_create(&l->threads[l->n_threads], &attr, work, l);
		if (!err)
			l->n_threads++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		return dn_fail(-err, "data: cannot start loader thread %d of %d: %s", l->n_threads + 1, l->c.threads,
			       strerror(err));
	return 0;
}

int dn_loader_create(struct dn_loader **out, const struct dn_loader_config *c)
{
	struct dn_loader *l;
	int err = check_config(c);

	if (err)
		return err;
	l = dn_zalloc(sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->c = *c;
	if (!c->memory.alloc)
		l->c.memory = (struct dn_loader_memory){ own_alloc, own_free, NULL };
	l->local_batch = c->batch / c->subdivisions / c->world;
	l->ring_inputs = c->inputs;
	if (c->resize.every)
		l->ring_inputs = c->data->c * dn_resize_max(&c->resize) * dn_resize_max(&c->resize);
	l->chunk = l->local_batch / (2 * c->threads);
	l->chunk = l->chunk < 1 ? 1 : l->chunk > MAX_CHUNK ? MAX_CHUNK : l->chunk;
	err = pthread_mutex_init(&l->lock, NULL);
	if (err) {
		err = dn_fail(-err, "data: cannot make a lock: %s", strerror(err));
		goto err_destroy;
	}
	l->have_lock = true;
	err = dn_cond_init(&l->room);
	if (err)
		goto err_destroy;
	l->have_room = true;
	err = dn_cond_init(&l->ready);
	if (err)
		goto err_destroy;
	l->have_ready = true;
	err = dn_order_cache_create(&l->order, &c->order);
	if (!err)
		err = make_ring(l);
	if (!err && c->data->prepare)
		err = c->data->prepare(c->data, c->threads);
	if (!err)
		err = start_threads(l);
	if (err)
		goto err_destroy;
	*out = l;
	return 0;

err_destroy:
	dn_loader_destroy(l);
	return err;
}

void dn_loader_destroy(struct dn_loader *l)
{
	if (!l)
		return;
	if (l->n_threads) {
		pthread_mutex_lock(&l->lock);
		l->stop = true;
		pthread_cond_broadcast(&l->room);
		pthread_mutex_unlock(&l->lock);
		for (int i = 0; i < l->n_threads; i++)
			pthread_join(l->threads[i], NULL);
	}
	if (l->have_ready)
		pthread_cond_destroy(&l->ready);
	if (l->have_room)
		pthread_cond_destroy(&l->room);
	if (l->have_lock)
		pthread_mutex_destroy(&l->lock);
	dn_order_cache_destroy(l->order);
	dn_free(l->threads);
	dn_free(l->cls);
	if (l->ring)
		l->c.memory.free(l->c.memory.arg, l->ring);
	dn_free(l);
}

/* The microbatch that the caller had until now can be filled again; the lock is held. */
static void free_given(struct dn_loader *l)
{
	struct slot *s;

	if (l->freed == l->given)
		return;
	s = &l->slots[l->freed % DN_LOADER_DEPTH];
	s->done = 0;
	s->err = 0;
	l->freed++;
	pthread_cond_broadcast(&l->room);
}

int dn_loader_next(struct dn_loader *l, const float **x, const float **t, const int64_t **cls, int64_t *waited_ns)
{
	int64_t start = 0;
	struct slot *s;
	int err;

	pthread_mutex_lock(&l->lock);
	if (l->c.batches && l->given == l->c.batches) {
		pthread_mutex_unlock(&l->lock);
		return dn_fail(-EINVAL, "%s: all %lld batches have been given", l->c.data->path, (long long)l->c.batches);
	}
	if (!l->failed)
		free_given(l);
	s = &l->slots[l->given % DN_LOADER_DEPTH];
	if (s->done < l->local_batch)
		start = dn_now_ns();
	while (s->done < l->local_batch)
		pthread_cond_wait(&l->ready, &l->lock);
	if (start && waited_ns)
		*waited_ns += dn_now_ns() - start;
	err = s->err;
	if (err)
		l->failed = true;
	else
		l->given++;
	pthread_mutex_unlock(&l->lock);
	if (err)
		return dn_fail(err, "%s", s->message); /* its samples are all done, so nobody writes there any more */
	if (x)
		*x = s->x;
	if (t)
		*t = s->t;
	if (cls)
		*cls = s->cls;
	return 0;
}

void dn_loader_size(const struct dn_loader *l, int64_t *w, int64_t *h)
{
	int64_t side;

	inputs_of(l, l->given ? l->given - 1 : 0, &side); /* only the caller's own thread changes given */
	*w = side ? side : l->c.data->w;
	*h = side ? side : l->c.data->h;
}
