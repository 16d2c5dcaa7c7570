/* Control operations over MPI, at any number of ranks: results, long texts, and roll calls that end well. */
#include <mpi.h>
#include <string.h>

#include "../check.h"
#include "comm/control.h"

#define TIMEOUT_MS 8000 /* a roll call after 2 s */

static int rank, world;
static struct fsdp_control c;

static void sums_are_those_in_the_order_of_ranks(void)
{
	double x[40], want[40];

	for (int n = 0; n <= 40; n += 8) {
		for (int i = 0; i < n; i++) {
			x[i] = i % 3 ? 0.1 / (rank + 1) * (i + 1) : 0;
			want[i] = i % 3 ? 0.1 * (i + 1) : 0;
			for (int q = 1; q < world; q++)
				want[i] += i % 3 ? 0.1 / (q + 1) * (i + 1) : 0;
		}
		CHECK_OK(fsdp_control_sum(&c, "sum", x, n));
		CHECK_BITS(x, want, (size_t)n * sizeof(*x));
	}
}

static void texts_short_and_long_come_to_rank_0(void)
{
	for (size_t bytes = 0; bytes < 200000; bytes = bytes * 7 + 11) {
		size_t mine = bytes * (size_t)(rank + 1), sizes[64] = { 0 }, at = 0, wrong = 0;
		char *text = malloc(mine + 1), *all = NULL;

		CU_ASSERT_FATAL(text && world <= 64);
		memset(text, 'A' + rank, mine);
		CHECK_OK(fsdp_control_gather(&c, "texts", text, mine, &all, sizes));
		CU_ASSERT_EQUAL(all != NULL, rank == 0);
		for (int q = 0; q < world && all; q++) {
			CHECK_EQ(sizes[q], bytes * (size_t)(q + 1));
			for (size_t i = 0; i < sizes[q]; i++)
				wrong += all[at + i] != 'A' + q;
			at += sizes[q];
		}
		CHECK_EQ(wrong, 0);
		dn_free(all);
		free(text);
	}
}

static void an_agreement_gives_one_error_to_all(void)
{
	int last = world - 1, err = rank == last ? dn_fail(-5, "no disk") : 0;
	char want[32];

	snprintf(want, sizeof(want), "rank %d: no disk", last);
	CHECK_FAILS(fsdp_control_agree(&c, err, "save"), -5, want);
	CHECK_OK(fsdp_control_agree(&c, 0, "save"));
}

/* Whoever waits says so to all; those that come in time go on, and what was said to them does not stay under way. */
static void slow_ranks_in_time_are_waited_for(void)
{
	for (int i = 0; i < 2; i++) {
		if (world > 1 && rank == i)
			dn_sleep_us(TIMEOUT_MS * 1000 / 2);
		CHECK_OK(fsdp_control_agree(&c, 0, "slow"));
		if (world > 1 && rank != i)
			CU_ASSERT(c.roll.told[i] == c.spread.number);
	}
	sums_are_those_in_the_order_of_ranks();
}

static const struct check_case cases[] = { { "sums_are_those_in_the_order_of_ranks", sums_are_those_in_the_order_of_ranks },
					   { "texts_short_and_long_come_to_rank_0", texts_short_and_long_come_to_rank_0 },
					   { "an_agreement_gives_one_error_to_all", an_agreement_gives_one_error_to_all },
					   { "slow_ranks_in_time_are_waited_for", slow_ranks_in_time_are_waited_for },
					   { NULL, NULL } };

int main(int argc, char **argv)
{
	struct fsdp_channel *ch = NULL, *roll = NULL;
	int given, status;

	if (MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &given) != MPI_SUCCESS || given < MPI_THREAD_SERIALIZED)
		return 2;
	if (fsdp_mpi_channel(&ch) || fsdp_mpi_channel(&roll) || fsdp_control_init(&c, ch, roll, TIMEOUT_MS)) {
		fprintf(stderr, "%s\n", dn_message());
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	rank = ch->rank;
	world = ch->world;
	status = check_run("control mpi", cases);
	fsdp_control_fini(&c);
	if (MPI_Finalize() != MPI_SUCCESS)
		status = 2;
	return status;
}
