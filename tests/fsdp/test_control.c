/* Control operations among up to 64 ranks in one process: results, the messages that they take, and who is named when one is late. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "../check.h"
#include "comm/control.h"

#define MANY 64

/* --- a channel that counts what is sent --- */

struct counted {
	struct fsdp_channel ch; /* first */
	struct fsdp_channel *inner;
	int64_t sends;
};

static int counted_send(struct fsdp_channel *c, int peer, const void *p, size_t bytes, struct fsdp_request *q)
{
	struct counted *x = (struct counted *)c;

	x->sends++;
	return x->inner->ops->send(x->inner, peer, p, bytes, q);
}

static int counted_recv(struct fsdp_channel *c, int peer, void *p, size_t bytes, struct fsdp_request *q)
{
	struct counted *x = (struct counted *)c;

	return x->inner->ops->recv(x->inner, peer, p, bytes, q);
}

static int counted_test(struct fsdp_channel *c, struct fsdp_request *q, bool *done)
{
	struct counted *x = (struct counted *)c;

	return x->inner->ops->test(x->inner, q, done);
}

static int counted_any(struct fsdp_channel *c, int *peer)
{
	struct counted *x = (struct counted *)c;

	return x->inner->ops->any(x->inner, peer);
}

static void counted_destroy(struct fsdp_channel *c)
{
	struct counted *x = (struct counted *)c;

	x->inner->ops->destroy(x->inner);
}

static const struct fsdp_channel_ops counted_ops = {
	.send = counted_send,
	.recv = counted_recv,
	.test = counted_test,
	.any = counted_any,
	.destroy = counted_destroy,
	.forgets = true,
};

/* --- ranks --- */

struct job {
	struct fsdp_hub *hub;
	int world, rank; /* rank: the odd one of a case */
	int64_t timeout_ms;
	void (*fn)(struct job *j, struct fsdp_control *c, int rank);
	pthread_barrier_t barrier;
	struct counted channels[MANY], rolls[MANY];
	_Atomic int wrong;
	int64_t most_sends; /* of a rank, in the latest operation that was counted */
	pthread_mutex_t lock;
	char said[MANY][256];
	int err[MANY];
};

struct arg {
	struct job *j;
	int rank;
};

/* not CU_ASSERT: that is for one thread */
static void expect(struct job *j, bool ok, const char *what, int rank)
{
	if (ok)
		return;
	if (atomic_fetch_add(&j->wrong, 1) < 5)
		fprintf(stderr, "%d ranks, rank %d: %s; message: %s\n", j->world, rank, what, dn_message());
}

static void *rank_main(void *arg)
{
	struct job *j = ((struct arg *)arg)->j;
	int rank = ((struct arg *)arg)->rank;
	struct counted *ch = &j->channels[rank], *roll = &j->rolls[rank];
	struct fsdp_control c;

	if (fsdp_local_channel(j->hub, rank, 0, &ch->inner) || fsdp_local_channel(j->hub, rank, 1, &roll->inner))
		return NULL;
	ch->ch = *ch->inner; /* its members are the inner one's */
	ch->ch.ops = &counted_ops;
	roll->ch = *roll->inner;
	roll->ch.ops = &counted_ops;
	expect(j, !fsdp_control_init(&c, &ch->ch, &roll->ch, j->timeout_ms), "init", rank);
	pthread_barrier_wait(&j->barrier);
	j->fn(j, &c, rank);
	pthread_barrier_wait(&j->barrier);
	fsdp_control_fini(&c);
	return NULL;
}

static void run_ranks(struct job *j, int world, void (*fn)(struct job *, struct fsdp_control *, int))
{
	pthread_t threads[MANY];
	struct arg args[MANY];

	memset(j->channels, 0, sizeof(j->channels));
	memset(j->rolls, 0, sizeof(j->rolls));
	j->world = world;
	j->fn = fn;
	atomic_store(&j->wrong, 0);
	CHECK_OK_FATAL(fsdp_hub_create(&j->hub, world));
	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&j->barrier, NULL, (unsigned)world), 0);
	CU_ASSERT_EQUAL_FATAL(pthread_mutex_init(&j->lock, NULL), 0);
	for (int r = 0; r < world; r++) {
		args[r] = (struct arg){ j, r };
		CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[r], NULL, rank_main, &args[r]), 0);
	}
	for (int r = 0; r < world; r++)
		pthread_join(threads[r], NULL);
	pthread_mutex_destroy(&j->lock);
	pthread_barrier_destroy(&j->barrier);
	fsdp_hub_destroy(j->hub);
	CHECK_EQ(atomic_load(&j->wrong), 0);
}

static const int worlds[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33, 63, 64 };

static void run_worlds(void (*fn)(struct job *, struct fsdp_control *, int))
{
	static struct job j;

	j.timeout_ms = 60000;
	for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++)
		run_ranks(&j, worlds[i], fn);
}

/* --- agreement --- */

static void agree_rank(struct job *j, struct fsdp_control *c, int rank)
{
	for (int odd = -1; odd<j->world; odd += j->world> 9 ? 7 : 1) {
		int err = odd >= 0 && rank >= odd ? dn_fail(-EIO, "disk of %d is full", rank) : 0;
		char want[64];

		snprintf(want, sizeof(want), "rank %d: disk of %d is full", odd, odd);
		err = fsdp_control_agree(c, err, "save");
		expect(j, err == (odd >= 0 ? -EIO : 0) && c->agreed == err, "the error of the lowest rank", rank);
		expect(j, odd < 0 || !strcmp(dn_message(), want), want, rank);
	}
}

static void an_agreement_gives_the_error_of_the_lowest_rank_to_all(void)
{
	run_worlds(agree_rank);
}

/* --- sums --- */

static double part(int rank, int i, int kind)
{
	uint64_t x = ((uint64_t)rank + 1) * 0x9e3779b97f4a7c15ull ^ ((uint64_t)i + 7) * 0xbf58476d1ce4e5b9ull;
	double v;

	x ^= x >> 29;
	x *= 0x94d049bb133111ebull;
	v = ldexp((double)(x >> 11), (int)(x % 60) - 80) * (x & 1 ? 1 : -1); /* of many magnitudes: order is seen */
	switch (kind) {
	case 0:
		return v;
	case 1: /* as in a step: a loss and two flags, the rest zero */
		return i == 0 ? v : i == 2 + rank ? (double)(rank % 3) : 0;
	case 2: /* signed zeros */
		return x % 3 == 0 ? -0.0 : x % 3 == 1 ? 0.0 : v;
	case 3:
		return -0.0;
	default:
		return i == 3 && rank == 1 ? NAN : i == 4 && rank == 0 ? INFINITY : v;
	}
}

static void sum_rank(struct job *j, struct fsdp_control *c, int rank)
{
	double x[2 + MANY], want[2 + MANY];

	for (int kind = 0; kind < 5; kind++)
		for (int n = 0; n <= 2 + j->world; n += n < 3 ? 1 : j->world - 1 > 0 ? j->world - 1 : 1) {
			for (int i = 0; i < n; i++) {
				x[i] = part(rank, i, kind);
				want[i] = part(0, i, kind);
				for (int q = 1; q < j->world; q++)
					want[i] += part(q, i, kind);
			}
			expect(j, !fsdp_control_sum(c, "sum", x, n), "sum", rank);
			expect(j, !n || !memcmp(x, want, (size_t)n * sizeof(*x)), "the bits of a sum in the order of ranks",
			       rank);
		}
}

static void a_sum_has_the_bits_of_one_in_the_order_of_ranks(void)
{
	run_worlds(sum_rank);
}

static void uneven_rank(struct job *j, struct fsdp_control *c, int rank)
{
	double x[3] = { 1, 2, 3 };
	int err = fsdp_control_sum(c, "sum", x, rank == 1 ? 2 : 3);

	expect(j, err == -EPROTO && strstr(dn_message(), rank == 1 ? "rank 1 sums 2 numbers, rank 0 3" : "numbers, rank 1 2"),
	       "an error", rank);
}

static void a_sum_of_another_length_is_an_error(void)
{
	static struct job j = { .timeout_ms = 60000 };

	run_ranks(&j, 3, uneven_rank);
}

/* --- comparison --- */

static char long_value[3000]; /* more than goes inline */

static void compare_rank(struct job *j, struct fsdp_control *c, int rank)
{
	struct dn_item items[] = { { "cfg", "a" }, { "seed", "0" }, { "text", long_value }, { "none", NULL } };
	int last = j->world - 1, n = 4;

	expect(j, !fsdp_control_compare(c, "settings", items, n), "equal items", rank);
	if (j->world < 2)
		return;
	if (rank == last)
		items[1].value = "7";
	expect(j, fsdp_control_compare(c, "settings", items, n) == -EINVAL && c->agreed == -EINVAL, "another value", rank);
	pthread_mutex_lock(&j->lock);
	snprintf(j->said[rank], sizeof(j->said[rank]), "rank %d: seed is 7, rank 0 has 0", last);
	expect(j, !strcmp(dn_message(), j->said[rank]), "the rank that differs", rank);
	pthread_mutex_unlock(&j->lock);
	items[1].value = "0";
	expect(j, fsdp_control_compare(c, "settings", items, rank == last ? 2 : 3) == -EINVAL, "an item less", rank);
	expect(j, strstr(dn_message(), "has no text, rank 0 has xxx") != NULL, "has no text", rank);
	expect(j, fsdp_control_compare(c, "settings", items, rank == last ? 2 : 1) == -EINVAL, "an item more", rank);
	expect(j, strstr(dn_message(), "seed is 0, rank 0 has none") != NULL, "rank 0 has none", rank);
	if (rank == last)
		items[0] = (struct dn_item){ "seed", "0" };
	expect(j, fsdp_control_compare(c, "settings", items, 2) == -EINVAL, "another order", rank);
	expect(j, strstr(dn_message(), "has no cfg, rank 0 has a") != NULL, "has no cfg", rank);
}

static void a_comparison_names_the_rank_that_differs_and_both_values(void)
{
	memset(long_value, 'x', sizeof(long_value) - 1);
	run_worlds(compare_rank);
}

/* --- texts --- */

static size_t text_bytes(int rank, int kind)
{
	return kind == 0 ? 0 : kind == 1 ? (size_t)rank : rank % 3 == 1 ? 100000 + (size_t)rank : (size_t)rank % 5;
}

static void gather_rank(struct job *j, struct fsdp_control *c, int rank)
{
	for (int kind = 0; kind < 3; kind++) {
		size_t n = text_bytes(rank, kind), sizes[MANY], at = 0;
		char *mine = malloc(n + 1), *all = NULL;
		bool ok = true;

		memset(mine, 'A' + rank % 26, n);
		expect(j, !fsdp_control_gather(c, "texts", mine, n, &all, sizes), "gather", rank);
		expect(j, (all != NULL) == (rank == 0), "rank 0 has the text", rank);
		for (int q = 0; q < j->world && rank == 0 && all; at += text_bytes(q++, kind)) {
			ok = ok && sizes[q] == text_bytes(q, kind);
			for (size_t i = 0; i < text_bytes(q, kind) && ok; i++)
				ok = all[at + i] == 'A' + q % 26;
		}
		expect(j, ok && (!all || !all[at]), "texts in the order of ranks", rank);
		dn_free(all);
		free(mine);
	}
}

static void texts_short_and_long_come_to_rank_0_in_order(void)
{
	run_worlds(gather_rank);
}

/* --- traffic --- */

static void count_since(struct job *j, int rank, int64_t before)
{
	int64_t n = j->channels[rank].sends - before;

	pthread_mutex_lock(&j->lock);
	if (n > j->most_sends)
		j->most_sends = n;
	pthread_mutex_unlock(&j->lock);
	pthread_barrier_wait(&j->barrier);
}

/* at most a head and a body a round */
static void counted_end(struct job *j, const char *what, int rank, int rounds)
{
	expect(j, j->most_sends <= 2 * rounds, what, rank);
	pthread_barrier_wait(&j->barrier);
	if (rank == 0)
		j->most_sends = 0;
	pthread_barrier_wait(&j->barrier);
}

static void traffic_rank(struct job *j, struct fsdp_control *c, int rank)
{
	const struct dn_item items[] = { { "cfg", "a text of some length" }, { "seed", "0" } };
	int64_t before = j->channels[rank].sends;
	double x[2 + MANY] = { 1.5 };
	size_t sizes[MANY];
	char *all = NULL;
	int rounds = 0;

	while (1 << rounds < j->world)
		rounds++;
	if (rank == 0)
		j->most_sends = 0;
	pthread_barrier_wait(&j->barrier);
	expect(j, !fsdp_control_agree(c, 0, "agree"), "agree", rank);
	count_since(j, rank, before);
	counted_end(j, "messages of an agreement", rank, rounds);
	before = j->channels[rank].sends;
	expect(j, !fsdp_control_sum(c, "sum", x, 2 + j->world), "sum", rank);
	count_since(j, rank, before);
	counted_end(j, "messages of a sum", rank, rounds);
	before = j->channels[rank].sends;
	expect(j, !fsdp_control_compare(c, "compare", items, 2), "compare", rank);
	count_since(j, rank, before);
	counted_end(j, "messages of a comparison", rank, 2 * rounds);
	before = j->channels[rank].sends;
	expect(j, !fsdp_control_gather(c, "gather", "some text", 9, &all, sizes), "gather", rank);
	count_since(j, rank, before);
	counted_end(j, "messages of a gathering", rank, rounds);
	dn_free(all);
	expect(j, !j->rolls[rank].sends, "no roll call when nobody is late", rank);
}

static void messages_of_a_rank_grow_with_the_logarithm_of_ranks(void)
{
	run_worlds(traffic_rank);
}

static void steps_rank(struct job *j, struct fsdp_control *c, int rank)
{
	double x[2 + MANY];
	static _Atomic uint64_t allocs;

	for (int step = 0; step < 20; step++) {
		for (int i = 0; i < 2 + j->world; i++)
			x[i] = 0;
		x[0] = 1.0 / (rank + step + 1);
		x[1] = step % 5 == 0 && rank == 0; /* a save is due */
		expect(j, !fsdp_control_sum(c, "sum", x, 2 + j->world), "sum", rank);
		pthread_barrier_wait(&j->barrier);
		if (step == 0 && rank == 0)
			allocs = dn_mem_n_allocs();
		pthread_barrier_wait(&j->barrier);
	}
	expect(j, dn_mem_n_allocs() == allocs, "no memory is taken after the first step", rank);
}

static void sums_of_later_steps_take_no_memory(void)
{
	static struct job j = { .timeout_ms = 60000 };

	run_ranks(&j, 2, steps_rank);
	run_ranks(&j, 7, steps_rank);
	run_ranks(&j, MANY, steps_rank);
}

/* --- late ranks --- */

static void late_rank(struct job *j, struct fsdp_control *c, int rank)
{
	char want[64];

	expect(j, !fsdp_control_agree(c, 0, "before"), "before", rank);
	if (rank != j->rank) {
		snprintf(want, sizeof(want), ": waiting for rank %d", j->rank);
		expect(j, fsdp_control_agree(c, 0, "save") == DN_EPEER_LATE, "late", rank);
		expect(j, dn_starts(dn_message(), "save: waited ") && dn_ends(dn_message(), want), want, rank);
	}
}

static void t36_a_late_rank_is_named_by_all_others_and_nobody_else_is(void)
{
	static struct job j;

	j.timeout_ms = 800;
	for (int world = 2; world <= 9; world += world < 4 ? 1 : 5)
		for (int odd = world % 2; odd < world; odd += 2 + world / 2) {
			j.rank = odd;
			run_ranks(&j, world, late_rank);
		}
	j.timeout_ms = 3000; /* 64 threads on few cores */
	for (int odd = 0; odd < MANY; odd += 37) {
		j.rank = odd;
		run_ranks(&j, MANY, late_rank);
	}
}

/* A rank that is slow, but in time, sets off a roll call; what it leaves behind does not disturb those that follow. */
static void slow_rank(struct job *j, struct fsdp_control *c, int rank)
{
	for (int i = 0; i < 2; i++) {
		if (rank == (j->rank + i) % j->world)
			usleep((useconds_t)j->timeout_ms * 1000 * 2 / 5);
		expect(j, !fsdp_control_agree(c, 0, "slow"), "slow, but in time", rank);
	}
	expect(j, j->rolls[rank].sends > 0, "a roll call was made", rank);
	late_rank(j, c, rank);
}

static void after_roll_calls_in_vain_a_late_rank_is_still_named(void)
{
	static struct job j = { .timeout_ms = 2000 };

	for (int world = 2; world <= 5; world += 3) {
		j.rank = world - 1;
		run_ranks(&j, world, slow_rank);
	}
}

static void other_rank(struct job *j, struct fsdp_control *c, int rank)
{
	double x = 1;
	int err;

	if (rank == j->rank)
		err = fsdp_control_sum(c, "sum", &x, 1);
	else
		err = fsdp_control_agree(c, 0, "agree");
	pthread_mutex_lock(&j->lock);
	j->err[rank] = err;
	snprintf(j->said[rank], sizeof(j->said[rank]), "%s", dn_message());
	pthread_mutex_unlock(&j->lock);
}

static void a_rank_at_another_operation_is_an_error_that_names_both(void)
{
	static struct job j = { .timeout_ms = 500 };

	j.rank = 3;
	run_ranks(&j, 5, other_rank);
	CHECK_EQ(j.err[2], -EPROTO); /* receive from rank 3 and 4 in the first round */
	CHECK_STR(j.said[2], "agree: rank 2 is at an agreement, rank 3 at a sum");
	CHECK_EQ(j.err[3], -EPROTO);
	CU_ASSERT(dn_starts(j.said[3], "sum: rank 3 is at a sum, rank ") && dn_ends(j.said[3], " at an agreement"));
	for (int r = 0; r < 5; r++)
		CU_ASSERT(j.err[r] != 0);
}

static const struct check_case cases[] = {
	{ "an_agreement_gives_the_error_of_the_lowest_rank_to_all", an_agreement_gives_the_error_of_the_lowest_rank_to_all },
	{ "a_sum_has_the_bits_of_one_in_the_order_of_ranks", a_sum_has_the_bits_of_one_in_the_order_of_ranks },
	{ "a_sum_of_another_length_is_an_error", a_sum_of_another_length_is_an_error },
	{ "a_comparison_names_the_rank_that_differs_and_both_values", a_comparison_names_the_rank_that_differs_and_both_values },
	{ "texts_short_and_long_come_to_rank_0_in_order", texts_short_and_long_come_to_rank_0_in_order },
	{ "messages_of_a_rank_grow_with_the_logarithm_of_ranks", messages_of_a_rank_grow_with_the_logarithm_of_ranks },
	{ "sums_of_later_steps_take_no_memory", sums_of_later_steps_take_no_memory },
	{ "t36_a_late_rank_is_named_by_all_others_and_nobody_else_is",
	  t36_a_late_rank_is_named_by_all_others_and_nobody_else_is },
	{ "after_roll_calls_in_vain_a_late_rank_is_still_named", after_roll_calls_in_vain_a_late_rank_is_still_named },
	{ "a_rank_at_another_operation_is_an_error_that_names_both", a_rank_at_another_operation_is_an_error_that_names_both },
	{ NULL, NULL }
};

int main(void)
{
	return check_run("fsdp/control", cases);
}
