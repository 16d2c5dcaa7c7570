/* Room data: orders of samples, and the loader's ring. */
#define _GNU_SOURCE
#include "data_help.h"

#include <pthread.h>

#include "base/rng.h"
#include "base/thread.h"

/* ---- order ---- */

static void an_epoch_is_a_permutation_and_epochs_differ(void)
{
	struct dn_order o = { .n = 101, .shuffle = DN_SHUFFLE_EPOCH, .seed = 5 };
	struct dn_order_cache *c = NULL;
	int64_t want[101];
	int same = 0;

	CHECK_OK_FATAL(dn_order_cache_create(&c, &o));
	for (int e = 0; e < 4; e++) {
		int seen[101] = { 0 };

		dn_rng_permutation(5, DN_RNG_STREAM(DN_RNG_SHUFFLE, e), 101, want);
		for (int i = 0; i < 101; i++) {
			int64_t at = dn_order_at(c, 101 * e + i);

			CU_ASSERT_FATAL(at >= 0 && at < 101);
			seen[at]++;
			CHECK_EQ(at, want[i]);
			same += e > 0 && dn_order_at(c, 101 * (e - 1) + i) == at;
		}
		for (int i = 0; i < 101; i++)
			CHECK_EQ(seen[i], 1);
	}
	CU_ASSERT(same < 60); /* of 303; about 3 are expected of independent permutations */
	dn_order_cache_destroy(c);
}

static void without_shuffle_the_order_is_the_file_s_and_wraps(void)
{
	struct dn_order o = { .n = 7, .shuffle = DN_SHUFFLE_OFF };
	struct dn_order_cache *c = NULL;

	CHECK_OK_FATAL(dn_order_cache_create(&c, &o));
	for (int i = 0; i < 30; i++)
		CHECK_EQ(dn_order_at(c, i), i % 7);
	dn_order_cache_destroy(c);
	o.n = 0;
	CHECK_FAILS(dn_order_cache_create(&c, &o), -EINVAL, "an order of 0 samples");
}

static void replacement_draws_evenly_and_depends_on_the_seed(void)
{
	struct dn_order o = { .n = 10, .shuffle = DN_SHUFFLE_REPLACE, .seed = 1 };
	struct dn_order_cache *a = NULL, *b = NULL;
	int count[10] = { 0 };
	int same = 0;

	CHECK_OK_FATAL(dn_order_cache_create(&a, &o));
	o.seed = 2;
	CHECK_OK_FATAL(dn_order_cache_create(&b, &o));
	for (int i = 0; i < 10000; i++) {
		int64_t k = dn_order_at(a, i);

		CU_ASSERT_FATAL(k >= 0 && k < 10);
		count[k]++;
		CHECK_EQ(dn_order_at(a, i), k);
		same += dn_order_at(b, i) == k;
	}
	for (int i = 0; i < 10; i++)
		CU_ASSERT(count[i] > 850 && count[i] < 1150); /* 1000 within five standard deviations of 30 */
	CU_ASSERT(same > 850 && same < 1150);
	dn_order_cache_destroy(a);
	dn_order_cache_destroy(b);
}

struct asker {
	struct dn_order_cache *c;
	int64_t from, n;
	int64_t out[3000];
};

static void *ask(void *arg)
{
	struct asker *a = arg;

	for (int64_t i = 0; i < a->n; i++)
		a->out[i] = dn_order_at(a->c, a->from + i);
	return NULL;
}

static void threads_in_several_epochs_get_the_same_answers_as_one(void)
{
	struct dn_order o = { .n = 13, .shuffle = DN_SHUFFLE_EPOCH, .seed = 3 };
	static struct asker a[4];
	pthread_t t[4];
	int64_t want[13];

	CHECK_OK_FATAL(dn_order_cache_create(&a[0].c, &o));
	for (int k = 0; k < 4; k++) {
		a[k].c = a[0].c;
		a[k].from = 13 * k;
		a[k].n = 3000;
		CU_ASSERT_EQUAL_FATAL(pthread_create(&t[k], NULL, ask, &a[k]), 0);
	}
	for (int k = 0; k < 4; k++)
		pthread_join(t[k], NULL);
	for (int k = 0; k < 4; k++)
		for (int64_t i = 0; i < 3000; i++) {
			int64_t p = 13 * k + i;

			if (i % 13 == 0)
				dn_rng_permutation(3, DN_RNG_STREAM(DN_RNG_SHUFFLE, p / 13), 13, want);
			if (a[k].out[i] != want[i % 13]) {
				CHECK_EQ(a[k].out[i], want[i % 13]);
				k = 4;
				break;
			}
		}
	dn_order_cache_destroy(a[0].c);
}

/* ---- loader ---- */

static struct dn_loader_config config(struct dn_dataset *ds, int64_t batch, int64_t subdivisions, int rank, int world,
				      int threads)
{
	return (struct dn_loader_config){
		.data = ds,
		.order = { .n = ds->n, .shuffle = DN_SHUFFLE_EPOCH, .seed = 11 },
		.batch = batch,
		.subdivisions = subdivisions,
		.rank = rank,
		.world = world,
		.inputs = ds->inputs,
		.truths = 4,
		.threads = threads,
		.first_update = 1,
	};
}

/* Every rank's microbatches against the samples that the formula names: the union over ranks is what one rank gets. */
static void check_loader(struct dn_dataset *ds, int64_t batch, int64_t subdivisions, int world, int threads, int64_t first_update,
			 enum dn_shuffle shuffle)
{
	int64_t b = batch / subdivisions, local = b / world;
	struct dn_order o = { .n = ds->n, .shuffle = shuffle, .seed = 11 };
	struct dn_order_cache *order = NULL;

	CHECK_OK_FATAL(dn_order_cache_create(&order, &o));
	for (int rank = 0; rank < world; rank++) {
		struct dn_loader_config c = config(ds, batch, subdivisions, rank, world, threads);
		struct dn_loader *l = NULL;
		int64_t waited = 0;

		c.first_update = first_update;
		c.order = o;
		CHECK_OK_FATAL(dn_loader_create(&l, &c));
		for (int64_t k = 0; k < 5 * subdivisions; k++) {
			int64_t u = first_update + k / subdivisions, m = k % subdivisions;
			const float *x, *t;
			const int64_t *cls;

			CHECK_OK_FATAL(dn_loader_next(l, &x, &t, &cls, &waited));
			for (int64_t i = 0; i < local; i++) {
				float wx[6], wt[4];
				int64_t wc, s = dn_order_at(order, (u - 1) * batch + m * b + rank * local + i);

				CHECK_OK(ds->get(ds, s, NULL, wx, wt, 4, &wc));
				CHECK_BITS(x + 6 * i, wx, sizeof(wx));
				CHECK_BITS(t + 4 * i, wt, sizeof(wt));
				CU_ASSERT_EQUAL(cls[i], wc);
			}
		}
		CU_ASSERT(waited >= 0);
		dn_loader_destroy(l);
	}
	dn_order_cache_destroy(order);
}

static void ranks_subdivisions_and_threads_do_not_change_which_samples_come(void)
{
	struct dn_dataset *ds = NULL;

	put_small(37);
	CHECK_OK_FATAL(open_set(&ds, "idx", "x", "y", "", 6, 4));
	for (int world = 1; world <= 4; world++)
		for (int64_t sub = 1; sub <= 4; sub++)
			for (int threads = 1; threads <= 3; threads++)
				check_loader(ds, 12 * sub, sub, world, threads, 1, DN_SHUFFLE_EPOCH);
	check_loader(ds, 24, 2, 3, 2, 1, DN_SHUFFLE_OFF);
	check_loader(ds, 24, 2, 3, 2, 1, DN_SHUFFLE_REPLACE);
	check_loader(ds, 24, 2, 3, 2, 1000001, DN_SHUFFLE_EPOCH);
	dn_dataset_close(ds);
}

static void epochs_shorter_than_a_batch_are_right_too(void)
{
	struct dn_dataset *ds = NULL;

	put_small(5);
	CHECK_OK_FATAL(open_set(&ds, "idx", "x", "y", "", 6, 4));
	check_loader(ds, 64, 2, 2, 3, 1, DN_SHUFFLE_EPOCH);
	dn_dataset_close(ds);
	ds = NULL;
	put_small(1);
	CHECK_OK_FATAL(open_set(&ds, "idx", "x", "y", "", 6, 4));
	check_loader(ds, 16, 1, 1, 2, 1, DN_SHUFFLE_EPOCH);
	dn_dataset_close(ds);
}

static void the_ring_is_counted_to_the_byte_and_later_batches_allocate_nothing(void)
{
	struct dn_dataset *ds = NULL;
	struct dn_loader *l = NULL;
	struct dn_loader_config c;
	struct dn_mem_stats before, after;
	const float *x, *t;
	const int64_t *cls;
	uint64_t n_allocs;
	size_t bytes = 0;

	put_small(10);
	CHECK_OK_FATAL(open_set(&ds, "idx", "x", "y", "", 6, 4));
	c = config(ds, 6, 2, 0, 1, 2);
	c.region_activations = true;
	CHECK_OK(dn_loader_bytes(3, 6, 4, &bytes));
	CHECK_EQ(bytes, 3 * (128 + 64)); /* 3 * 6 * 4 = 72 and 3 * 4 * 4 = 48 bytes, rounded up to 64 */
	dn_mem_stats(DN_MEM_ACTIVATIONS, &before);
	CHECK_OK_FATAL(dn_loader_create(&l, &c));
	dn_mem_stats(DN_MEM_ACTIVATIONS, &after);
	CHECK_EQ(after.now_bytes - before.now_bytes, bytes);
	n_allocs = dn_mem_n_allocs();
	for (int i = 0; i < 50; i++) {
		CHECK_OK(dn_loader_next(l, &x, &t, &cls, NULL));
		CHECK_EQ((uintptr_t)x % DN_ALIGN, 0);
		CHECK_EQ((uintptr_t)t % DN_ALIGN, 0);
	}
	CHECK_EQ(dn_mem_n_allocs(), n_allocs);
	dn_loader_destroy(l);
	dn_mem_stats(DN_MEM_ACTIVATIONS, &after);
	CHECK_EQ(after.now_bytes, before.now_bytes);
	CHECK_OK(dn_loader_bytes(1, 1, 0, &bytes));
	CHECK_EQ(bytes, 3 * 64);
	CHECK_FAILS(dn_loader_bytes(INT64_MAX, INT64_MAX, 1, &bytes), -EOVERFLOW, "overflows");
	CHECK_FAILS(dn_loader_bytes(0, 1, 1, &bytes), -EINVAL, "batches of 0 samples");
	dn_dataset_close(ds);
}

static int fail_on_17(const struct dn_dataset *ds, int64_t i, const struct dn_sample_key *key, float *x, float *t,
		      int64_t n_truths, int64_t *cls)
{
	if (i >= 17)
		return dn_fail(-EIO, "sample %lld cannot be read", (long long)i);
	*x = (float)i;
	*cls = -1;
	return 0;
}

static void an_unreadable_sample_ends_the_microbatch_that_it_is_in(void)
{
	struct dn_dataset ds = { .n = 100, .inputs = 1, .get = fail_on_17 };

	for (int threads = 1; threads <= 4; threads++) {
		struct dn_loader_config c = config(&ds, 5, 1, 0, 1, threads);
		struct dn_loader *l = NULL;
		const float *x;

		c.truths = 0;
		c.order.shuffle = DN_SHUFFLE_OFF;
		CHECK_OK_FATAL(dn_loader_create(&l, &c));
		for (int k = 0; k < 3; k++) {
			CHECK_OK(dn_loader_next(l, &x, NULL, NULL, NULL));
			CU_ASSERT_EQUAL(x[4], 5 * k + 4);
		}
		CHECK_FAILS(dn_loader_next(l, &x, NULL, NULL, NULL), -EIO, "sample 17 cannot be read");
		dn_message_clear();
		CHECK_FAILS(dn_loader_next(l, &x, NULL, NULL, NULL), -EIO, "sample 17 cannot be read");
		dn_loader_destroy(l);
	}
}

static void a_loader_with_a_full_ring_is_destroyed_at_any_time(void)
{
	struct dn_dataset *ds = NULL;

	put_small(10);
	CHECK_OK_FATAL(open_set(&ds, "idx", "x", "y", "", 6, 4));
	for (int k = 0; k < 40; k++) {
		struct dn_loader_config c = config(ds, 4, 1, 0, 1, 1 + k % 4);
		struct dn_loader *l = NULL;
		const float *x, *t;
		const int64_t *cls;

		CHECK_OK_FATAL(dn_loader_create(&l, &c));
		for (int i = 0; i < k % 5; i++)
			CHECK_OK(dn_loader_next(l, &x, &t, &cls, NULL));
		if (k % 3 == 0)
			dn_sleep_us(1000); /* lets the ring fill; the case passes whether it did or not */
		dn_loader_destroy(l);
	}
	dn_dataset_close(ds);
	dn_loader_destroy(NULL);
}

static void loader_settings_that_do_not_divide_are_errors(void)
{
	struct dn_dataset *ds = NULL;
	struct dn_loader *l = NULL;
	struct dn_loader_config c;

	put_small(10);
	CHECK_OK_FATAL(open_set(&ds, "idx", "x", "y", "", 6, 4));
	c = config(ds, 10, 4, 0, 1, 1);
	CHECK_FAILS(dn_loader_create(&l, &c), -EINVAL, "a batch of 10 is not divisible by 4 subdivisions");
	c = config(ds, 8, 2, 0, 3, 1);
	CHECK_FAILS(dn_loader_create(&l, &c), -EINVAL, "a microbatch of 4 (batch 8, subdivisions 2) is not divisible by 3 ranks");
	c = config(ds, 8, 2, 2, 2, 1);
	CHECK_FAILS(dn_loader_create(&l, &c), -EINVAL, "rank 2 of 2");
	c = config(ds, 8, 2, 0, 1, 0);
	CHECK_FAILS(dn_loader_create(&l, &c), -EINVAL, "0 loader threads");
	c = config(ds, 8, 2, 0, 1, 1);
	c.first_update = 0;
	CHECK_FAILS(dn_loader_create(&l, &c), -EINVAL, "update 0");
	c.first_update = INT64_MAX;
	CHECK_FAILS(dn_loader_create(&l, &c), -EINVAL, "out of range");
	c = config(ds, 8, 2, 0, 1, 1);
	c.inputs = 7;
	CHECK_FAILS(dn_loader_create(&l, &c), -EINVAL, "a sample has 6 values, the net takes 7");
	CU_ASSERT_PTR_NULL(l);
	dn_dataset_close(ds);
}

/* An evaluation: the list once and in order over the ranks, the rest of the last batch copies of the last sample, then nothing. */
static void check_once(struct dn_dataset *ds, int64_t batch, int world, int threads)
{
	const int64_t batches = (ds->n + batch - 1) / batch + 1, local = batch / world;

	for (int rank = 0; rank < world; rank++) {
		struct dn_loader_config c = config(ds, batch, 1, rank, world, threads);
		struct dn_loader *l = NULL;
		const float *x, *t;
		const int64_t *cls;
		uint64_t n_allocs;

		c.order.shuffle = DN_SHUFFLE_OFF;
		c.batches = batches;
		CHECK_OK_FATAL(dn_loader_create(&l, &c));
		n_allocs = dn_mem_n_allocs();
		for (int64_t k = 0; k < batches; k++) {
			CHECK_OK_FATAL(dn_loader_next(l, &x, &t, &cls, NULL));
			for (int64_t i = 0; i < local; i++) {
				int64_t at = k * batch + rank * local + i, wc;
				float wx[6], wt[4];

				CHECK_OK(ds->get(ds, at < ds->n ? at : ds->n - 1, NULL, wx, wt, 4, &wc));
				CHECK_BITS(x + 6 * i, wx, sizeof(wx));
				CHECK_BITS(t + 4 * i, wt, sizeof(wt));
				CHECK_EQ(cls[i], wc);
			}
		}
		CHECK_EQ(dn_mem_n_allocs(), n_allocs);
		CHECK_FAILS(dn_loader_next(l, &x, &t, &cls, NULL), -EINVAL, "batches have been given");
		dn_loader_destroy(l);
	}
}

static void an_evaluation_gives_each_sample_once_in_order(void)
{
	for (int64_t n = 1; n <= 37; n += 12) {
		struct dn_dataset *ds = NULL;

		put_small((int)n);
		CHECK_OK_FATAL(open_set(&ds, "idx", "x", "y", "", 6, 4));
		for (int world = 1; world <= 4; world++)
			for (int threads = 1; threads <= 3; threads++)
				check_once(ds, 12, world, threads);
		check_once(ds, 1, 1, 4);
		check_once(ds, 120, 2, 2);
		dn_dataset_close(ds);
	}
}

static int seen_key; /* by anybody */

static int count_gets(const struct dn_dataset *ds, int64_t i, const struct dn_sample_key *key, float *x, float *t,
		      int64_t n_truths, int64_t *cls)
{
	__atomic_add_fetch((int *)ds->priv, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&seen_key, key != NULL, __ATOMIC_RELAXED);
	*x = (float)i;
	*cls = i;
	return 0;
}

static void an_evaluation_draws_nothing_and_decodes_copies_once_a_thread(void)
{
	int gets = 0;
	struct dn_dataset ds = { .n = 3, .inputs = 1, .get = count_gets, .priv = &gets };
	struct dn_loader_config c = config(&ds, 64, 1, 0, 1, 1);
	struct dn_loader *l = NULL;
	const int64_t *cls;
	const float *x;

	c.truths = 0;
	c.order.shuffle = DN_SHUFFLE_OFF;
	c.batches = 2;
	CHECK_OK_FATAL(dn_loader_create(&l, &c));
	for (int k = 0; k < 2; k++) {
		CHECK_OK_FATAL(dn_loader_next(l, &x, NULL, &cls, NULL));
		for (int i = 0; i < 64; i++) {
			CU_ASSERT(x[i] == (k ? 2 : i < 2 ? (float)i : 2));
			CHECK_EQ(cls[i], k ? 2 : i < 2 ? i : 2);
		}
	}
	dn_loader_destroy(l);
	CHECK_EQ(gets, 3 + 1 + 2); /* each batch is two shares of the thread's */
	CHECK_EQ(seen_key, 0);
	c.order.shuffle = DN_SHUFFLE_EPOCH;
	CHECK_FAILS(dn_loader_create(&l, &c), -EINVAL, "an evaluation of 2 batches");
}

static void running_out_of_memory_anywhere_leaves_nothing_behind(void)
{
	struct dn_mem_stats before, after;
	char *p = NULL;
	size_t size;
	int err = -1;
	uint64_t n;

	put_small(10);
	CHECK_OK_FATAL(dn_file_read(in_folder("x"), 1 << 20, &p, &size));
	put_gz("x.gz", p, size);
	dn_free(p);
	dn_mem_stats(DN_MEM_HOST, &before);
	for (n = 1; err && n < 200; n++) {
		struct dn_dataset *ds = NULL;
		struct dn_loader *l = NULL;

		dn_mem_fail_at(n);
		err = open_set(&ds, "idx", "x.gz", "y", "", 6, 4);
		if (!err) {
			struct dn_loader_config c = config(ds, 4, 2, 0, 1, 2);

			err = dn_loader_create(&l, &c);
		}
		dn_mem_fail_at(0);
		if (err)
			CHECK_EQ(err, -ENOMEM);
		dn_loader_destroy(l);
		dn_dataset_close(ds);
		dn_mem_stats(DN_MEM_HOST, &after);
		CHECK_EQ(after.now_bytes, before.now_bytes);
	}
	CHECK_EQ(err, 0);
	CU_ASSERT(n > 10);
}

static const struct check_case cases[] = {
	CASE(an_epoch_is_a_permutation_and_epochs_differ),
	CASE(without_shuffle_the_order_is_the_file_s_and_wraps),
	CASE(replacement_draws_evenly_and_depends_on_the_seed),
	CASE(threads_in_several_epochs_get_the_same_answers_as_one),
	CASE(ranks_subdivisions_and_threads_do_not_change_which_samples_come),
	CASE(epochs_shorter_than_a_batch_are_right_too),
	CASE(the_ring_is_counted_to_the_byte_and_later_batches_allocate_nothing),
	CASE(an_unreadable_sample_ends_the_microbatch_that_it_is_in),
	CASE(a_loader_with_a_full_ring_is_destroyed_at_any_time),
	CASE(loader_settings_that_do_not_divide_are_errors),
	CASE(an_evaluation_gives_each_sample_once_in_order),
	CASE(an_evaluation_draws_nothing_and_decodes_copies_once_a_thread),
	CASE(running_out_of_memory_anywhere_leaves_nothing_behind),
	{ NULL, NULL },
};

int main(void)
{
	return run_in_folder("loader", cases);
}
