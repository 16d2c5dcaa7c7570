/* Guards of training: what a look at gradients sums, counts and bounds, and the keys. */
#include <float.h>
#include "backend_help.h"
#include "train/guard.h"

#define N 70001

static double value_of(const struct dn_exact *sum, int p)
{
	double word[DN_EXACT_WORDS];

	for (int k = 0; k < DN_EXACT_WORDS; k++)
		word[k] = (double)sum->word[k];
	return dn_exact_value(word, p);
}

static float *wild(int64_t n)
{
	float *x = randoms(n, 7);

	for (int64_t i = 0; i < n; i++)
		x[i] = ldexpf(x[i], (int)(i * 37 % 250) - 126); /* from subnormal ones to those whose squares no float holds */
	return x;
}

/* T18: the same bits in any pieces, in any order, by any number of threads, on every table */
static void powers_are_summed_without_rounding(void)
{
	static const int64_t piece[] = { N, 16384, 16385, 1000, 3 };
	float *x = wild(N);

	for (int p = 1; p <= 2; p++) {
		struct dn_exact first;
		long double want = 0;

		for (int64_t i = 0; i < N; i++)
			want += p == 2 ? (long double)x[i] * (long double)x[i] : fabsl((long double)x[i]);
		for (const struct dn_backend *const *b = dn_backend_all(); *b; b++)
			for (size_t k = 0; k < sizeof(piece) / sizeof(piece[0]); k++) {
				struct rig r = rig_open((*b)->name, k % 2 ? 2 : 1);
				const struct dn_look_desc d = { .p = p };
				struct dn_exact sum = { .max = 0 };
				int64_t bad = 0;

				for (int64_t at = (N - 1) / piece[k] * piece[k]; at >= 0; at -= piece[k])
					CHECK_OK(r.be->look(r.st, DN_F32, N - at < piece[k] ? N - at : piece[k], &d, x + at, &sum,
							    &bad));
				if (b == dn_backend_all() && !k)
					first = sum;
				CHECK_BITS(&sum, &first, sizeof(sum));
				CHECK_EQ(bad, 0);
				CU_ASSERT(fabsl((long double)value_of(&sum, p) - want) <= 1e-12L * want);
				rig_close(&r);
			}
	}
	dn_free(x);
}

static void what_is_not_finite_is_counted_and_left_out(void)
{
	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 2);
		float x[] = { 3, NAN, INFINITY, -4, -INFINITY, 0, -NAN };
		const float largest = 4;
		const uint32_t *bits = (const uint32_t *)(const void *)&largest;
		struct dn_exact sum = { .max = 0 };
		int64_t bad = 2;

		CHECK_OK(r.be->look(r.st, DN_F32, 7, &(struct dn_look_desc){ .p = 2 }, x, &sum, &bad));
		CHECK_EQ(bad, 6);
		CU_ASSERT(value_of(&sum, 2) == 25);
		CHECK_EQ(sum.max, *bits);
		CHECK_OK(r.be->look(r.st, DN_F32, 7, &(struct dn_look_desc){ 0 }, x, &sum, &bad));
		CHECK_EQ(bad, 10);
		CU_ASSERT(value_of(&sum, 2) == 25);
		rig_close(&r);
	}
}

static void elements_are_bounded_before_they_are_summed(void)
{
	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 1);
		float x[] = { 3, -.5f, -7, .25f, NAN, INFINITY };
		const float want[] = { 2, -.5f, -2, .25f };
		struct dn_exact sum = { .max = 0 };
		int64_t bad = 0;

		CHECK_OK(r.be->look(r.st, DN_F32, 6, &(struct dn_look_desc){ .p = 1, .limit = 2 }, x, &sum, &bad));
		CHECK_BITS(x, want, sizeof(want));
		CU_ASSERT(isnan(x[4]) && isinf(x[5])); /* which must not hide */
		CHECK_EQ(bad, 2);
		CU_ASSERT(value_of(&sum, 1) == 4.75);
		rig_close(&r);
	}
}

static void the_largest_sums_have_room(void)
{
	struct rig r = rig_open("cpu", 2);
	float *x = floats(N);
	struct dn_exact sum = { .max = 0 };
	int64_t bad = 0;

	for (int64_t i = 0; i < N; i++)
		x[i] = i % 2 ? FLT_MAX : -FLT_MAX;
	for (int k = 0; k < 50; k++)
		CHECK_OK(r.be->look(r.st, DN_F32, N, &(struct dn_look_desc){ .p = 2 }, x, &sum, &bad));
	CU_ASSERT(fabs(value_of(&sum, 2) / (50. * N * (double)FLT_MAX * (double)FLT_MAX) - 1) < 1e-15);
	dn_free(x);
	rig_close(&r);
}

static void keys_take_what_they_say(void)
{
	static const struct {
		const char *key, *good[4], *bad[5];
	} c[] = {
		{ "clip_norm", { "off", "1", "1e-3" }, { "0", "-1", "nan", "on", "inf" } },
		{ "clip_value", { "off", "5" }, { "0", "", "1x" } },
		{ "clip_p", { "1", "2", "inf" }, { "3", "0", "off" } },
		{ "nan", { "loss", "stop", "skip", "continue" }, { "off", "" } },
		{ "loss_scale", { "off", "dynamic", "128" }, { "0", "-2", "on" } },
	};

	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		for (int k = 0; k < 4 && c[i].good[k]; k++)
			CU_ASSERT(!dn_guard_wanted(c[i].key, c[i].good[k]));
		for (int k = 0; k < 5 && c[i].bad[k]; k++)
			CU_ASSERT(dn_guard_wanted(c[i].key, c[i].bad[k]) != NULL);
	}
}

static const struct check_case cases[] = {
	{ "t18_powers_are_summed_without_rounding", powers_are_summed_without_rounding },
	{ "what_is_not_finite_is_counted_and_left_out", what_is_not_finite_is_counted_and_left_out },
	{ "elements_are_bounded_before_they_are_summed", elements_are_bounded_before_they_are_summed },
	{ "the_largest_sums_have_room", the_largest_sums_have_room },
	{ "keys_take_what_they_say", keys_take_what_they_say },
	{ NULL, NULL }
};

int main(void)
{
	return check_run("guard", cases);
}
