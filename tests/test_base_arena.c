/* base: places of buffers by their lives. */
#include <errno.h>

#include "base/arena.h"
#include "base/rng.h"
#include "base_help.h"

static void check_placement(const struct dn_arena_item *it, int n, size_t align, size_t total)
{
	for (int i = 0; i < n; i++) {
		CHECK_EQ(it[i].offset % align, 0);
		CU_ASSERT(it[i].offset + it[i].bytes <= total);
		for (int j = 0; j < i; j++) {
			bool meet = it[i].first <= it[j].last && it[j].first <= it[i].last;
			bool share = it[i].offset < it[j].offset + it[j].bytes && it[j].offset < it[i].offset + it[i].bytes;

			CU_ASSERT(!(meet && share && it[i].bytes && it[j].bytes));
		}
	}
}

static void arena_reuses_what_is_dead(void)
{
	/* a chain of layers: each buffer lives for two steps, so two places take turns */
	struct dn_arena_item it[6];
	size_t total = 0;

	for (int i = 0; i < 6; i++)
		it[i] = (struct dn_arena_item){ .bytes = 100, .first = i, .last = i + 1 };
	CHECK_OK(dn_arena_place(it, 6, 64, &total));
	CHECK_EQ(total, 256);
	check_placement(it, 6, 64, total);
	CHECK_EQ(it[0].offset, 0); /* equal sizes go by position */
	CHECK_EQ(it[1].offset, 128);
	CHECK_EQ(it[2].offset, 0);
	/* the small one goes into the gap between two that live longer */
	{
		struct dn_arena_item g[4] = {
			{ .bytes = 64, .first = 2, .last = 3 },
			{ .bytes = 300, .first = 0, .last = 5 },
			{ .bytes = 200, .first = 0, .last = 1 },
			{ .bytes = 128, .first = 0, .last = 5 },
		};

		CHECK_OK(dn_arena_place(g, 4, 64, &total));
		CHECK_EQ(g[1].offset, 0);
		CHECK_EQ(g[2].offset, 320);
		CHECK_EQ(g[3].offset, 576);
		CHECK_EQ(g[0].offset, 320);
		CHECK_EQ(total, 704);
	}
}

static void arena_never_shares_live_bytes(void)
{
	struct dn_arena_item a[60], b[60];

	for (uint64_t t = 0; t < 50; t++) {
		size_t total = 0, again = 0, sum = 0, most = 0;

		for (uint64_t i = 0; i < 60; i++) {
			int first = (int)dn_rng_below(t, 1, i, 30);

			a[i] = b[i] = (struct dn_arena_item){ .bytes = dn_rng_below(t, 2, i, 5) ? dn_rng_below(t, 3, i, 5000) : 0,
							      .first = first,
							      .last = first + (int)dn_rng_below(t, 4, i, 8) };
			sum += dn_up(a[i].bytes, 64);
		}
		CHECK_OK(dn_arena_place(a, 60, 64, &total));
		CHECK_OK(dn_arena_place(b, 60, 64, &again));
		CHECK_EQ(total, again);
		for (int i = 0; i < 60; i++)
			CHECK_EQ(a[i].offset, b[i].offset);
		check_placement(a, 60, 64, total);
		for (int s = 0; s < 40; s++) {
			size_t live = 0;

			for (int i = 0; i < 60; i++)
				if (a[i].first <= s && s <= a[i].last)
					live += a[i].bytes;
			most = live > most ? live : most;
		}
		CU_ASSERT(total >= most && total <= sum);
	}
}

static void arena_checks_its_limits(void)
{
	struct dn_arena_item it[2] = { { .bytes = SIZE_MAX / 2 + 1 }, { .bytes = SIZE_MAX / 2 + 1 } };
	struct dn_arena_item one = { .bytes = SIZE_MAX };
	size_t total = 7;

	CHECK_FAILS(dn_arena_place(it, 2, 64, &total), -EOVERFLOW, "arena");
	CHECK_FAILS(dn_arena_place(&one, 1, 64, &total), -EOVERFLOW, "arena");
	CHECK_EQ(total, 7);
	CHECK_OK(dn_arena_place(NULL, 0, 64, &total));
	CHECK_EQ(total, 0);
	for (uint64_t at = 1; at <= 2; at++) {
		one.bytes = 5;
		dn_mem_fail_at(at);
		CHECK_EQ(dn_arena_place(&one, 1, 64, &total), -ENOMEM);
	}
	dn_mem_fail_at(0);
}

static const struct check_case cases[] = {
	{ "an arena reuses what is dead", arena_reuses_what_is_dead },
	{ "an arena never shares live bytes", arena_never_shares_live_bytes },
	{ "an arena checks its limits", arena_checks_its_limits },
	{ NULL, NULL },
};

int main(void)
{
	return base_help_run("base_arena", cases);
}
