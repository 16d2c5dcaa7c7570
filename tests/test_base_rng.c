/* base: random numbers. */
#include "base/rng.h"
#include "base_help.h"

/* Known answers published with the generator for Philox4x32-10. */
static void philox_gives_the_published_words(void)
{
	static const struct {
		uint64_t seed, stream, index;
		uint32_t want[4];
	} known[] = {
		{ 0, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ UINT64_MAX, UINT64_MAX, UINT64_MAX, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ 0x299f31d0a4093822,
		  0x0370734413198a2e,
		  0x85a308d3243f6a88,
		  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};

	for (int i = 0; i < 3; i++) {
		uint32_t got[4];

		dn_rng_block(known[i].seed, known[i].stream, known[i].index, got);
		CHECK_BITS(got, known[i].want, sizeof(got));
	}
}

/* Sample moments of N values lie within 5 standard errors of the true ones. */
static void distributions_have_their_moments(void)
{
	enum { N = 100000 };
	double u1 = 0, u2 = 0, g1 = 0, g2 = 0, g4 = 0;
	int hits[7] = { 0 };

	for (int i = 0; i < N; i++) {
		double u = dn_rng_uniform(1, DN_RNG_STREAM(DN_RNG_INIT, 3), (uint64_t)i);
		double g = dn_rng_normal(1, DN_RNG_STREAM(DN_RNG_DROPOUT, 3), (uint64_t)i);

		CU_ASSERT_FATAL(u >= 0 && u < 1);
		u1 += u;
		u2 += u * u;
		g1 += g;
		g2 += g * g;
		g4 += g * g * g * g;
		hits[dn_rng_below(9, 1, (uint64_t)i, 7)]++;
	}
	CU_ASSERT(fabs(u1 / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
	CU_ASSERT(fabs(u2 / N - 1.0 / 3) < 5 * sqrt(4.0 / 45 / N));
	CU_ASSERT(fabs(g1 / N) < 5 * sqrt(1.0 / N));
	CU_ASSERT(fabs(g2 / N - 1) < 5 * sqrt(2.0 / N));
	CU_ASSERT(fabs(g4 / N - 3) < 5 * sqrt(96.0 / N));
	for (int k = 0; k < 7; k++)
		CU_ASSERT(fabs(hits[k] - N / 7.0) < 5 * sqrt(N / 7.0 * 6 / 7));
	for (int i = 0; i < 100; i++)
		CHECK_EQ(dn_rng_below(9, 1, (uint64_t)i, 1), 0);
	/* with n = 2^64 - 1 the product's top word is the high word, less 1 where the low one is smaller */
	for (uint64_t i = 0; i < 100; i++) {
		uint32_t r[4];
		uint64_t hi, lo;

		dn_rng_block(9, 1, i, r);
		hi = (uint64_t)r[0] << 32 | r[1];
		lo = (uint64_t)r[2] << 32 | r[3];
		CU_ASSERT(dn_rng_below(9, 1, i, UINT64_MAX) == hi - (lo < hi));
	}
}

static void streams_do_not_share_numbers(void)
{
	uint64_t a = DN_RNG_STREAM(DN_RNG_INIT, 5), b = DN_RNG_STREAM(DN_RNG_SHUFFLE, 5);

	CU_ASSERT(a != b);
	CU_ASSERT(dn_rng_uniform(1, a, 0) != dn_rng_uniform(1, b, 0));
	CU_ASSERT(dn_rng_uniform(1, a, 0) != dn_rng_uniform(2, a, 0));
	CU_ASSERT(dn_rng_uniform(1, a, 0) != dn_rng_uniform(1, a, 1));
}

static void permutation_holds_every_number_once(void)
{
	enum { N = 1000 };
	int64_t a[N], b[N];
	int seen[N] = { 0 }, home = 0;
	int64_t counts[6] = { 0 };

	dn_rng_permutation(4, 7, N, a);
	dn_rng_permutation(4, 7, N, b);
	CHECK_BITS(a, b, sizeof(a));
	for (int i = 0; i < N; i++) {
		CU_ASSERT_FATAL(a[i] >= 0 && a[i] < N);
		seen[a[i]]++;
		home += a[i] == i;
	}
	for (int i = 0; i < N; i++)
		CHECK_EQ(seen[i], 1);
	CU_ASSERT(home < 12); /* about 1 expected */
	/* all orders of three are equally likely: 6000 draws, 5 sigma around 1000 */
	for (uint64_t s = 0; s < 6000; s++) {
		dn_rng_permutation(4, s, 3, a);
		counts[a[0] * 2 + (a[1] > a[2])]++;
	}
	for (int i = 0; i < 6; i++)
		CU_ASSERT(fabs((double)counts[i] - 1000) < 5 * sqrt(6000.0 * 5 / 36));
	dn_rng_permutation(1, 1, 0, NULL);
}

static const struct check_case cases[] = {
	{ "philox gives the published words", philox_gives_the_published_words },
	{ "distributions have their moments", distributions_have_their_moments },
	{ "streams do not share numbers", streams_do_not_share_numbers },
	{ "a permutation holds every number once", permutation_holds_every_number_once },
	{ NULL, NULL },
};

int main(void)
{
	return base_help_run("base_rng", cases);
}
