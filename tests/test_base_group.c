/* base: groups of ranks, and who launched them. */
#include <errno.h>

#include "base/group.h"
#include "base/launch.h"
#include "base_help.h"

static int fake_agree(void *self, int err, const char *what)
{
	*(const char **)self = what;
	return err ? err : -EPIPE;
}

static void alone_every_call_is_trivial(void)
{
	struct dn_group g = DN_GROUP_ALONE;
	struct dn_item item = { "seed", "1" };
	double x[2] = { 1, 2 };
	char *all = NULL;
	size_t size = 0;
	const char *said = NULL;
	const struct dn_group_ops ops = { .agree = fake_agree };

	CHECK_EQ(g.rank, 0);
	CHECK_EQ(g.world, 1);
	CHECK_EQ(dn_group_agree(&g, -EIO, "load"), -EIO);
	CHECK_EQ(dn_group_agree(&g, 0, "load"), 0);
	CHECK_OK(dn_group_sum(&g, x, 2));
	CU_ASSERT(x[0] == 1 && x[1] == 2);
	CHECK_OK(dn_group_compare(&g, &item, 1));
	CHECK_OK_FATAL(dn_group_gather(&g, "hello", 5, &all, &size));
	CHECK_EQ(size, 5);
	CHECK_STR(all, "hello");
	dn_free(all);
	g.ops = &ops;
	g.self = &said;
	CHECK_EQ(dn_group_agree(&g, 0, "save"), -EPIPE);
	CHECK_STR(said, "save");
}

static void launchers_say_rank_and_size(void)
{
	static const char *const names[] = {
		"OMPI_COMM_WORLD_SIZE",
		"OMPI_COMM_WORLD_RANK",
		"OMPI_COMM_WORLD_LOCAL_SIZE",
		"PMI_SIZE",
		"PMI_RANK",
		"MPI_LOCALNRANKS",
		"MV2_COMM_WORLD_SIZE",
		"MV2_COMM_WORLD_RANK",
		"SLURM_STEP_NUM_TASKS",
		"SLURM_PROCID",
		"PMIX_RANK",
	};
	static const struct {
		const char *set[6][2];
		const char *by; /* NULL = none */
		int rank, size, local;
		bool unsized;
	} rows[] = {
		{ { { NULL, NULL } }, NULL, 0, 1, 0, false },
		{ { { names[0], "4" }, { names[1], "2" }, { names[2], "3" } }, names[0], 2, 4, 3, false },
		{ { { names[0], "1" }, { names[1], "0" } }, names[0], 0, 1, 0, false },
		{ { { names[3], "5" }, { names[4], "4" }, { names[5], "5" } }, names[3], 4, 5, 5, false },
		{ { { names[6], "2" }, { names[7], "1" } }, names[6], 1, 2, 0, false },
		{ { { names[8], "3" }, { names[9], "2" } }, names[8], 2, 3, 0, false },
		{ { { names[8], "1" }, { names[9], "0" } }, NULL, 0, 1, 0, false }, /* a batch script */
		{ { { names[0], "2" } }, NULL, 0, 1, 0, false },
		{ { { names[0], "2" }, { names[1], "2" } }, NULL, 0, 1, 0, false },
		{ { { names[0], "2x" }, { names[1], "0" } }, NULL, 0, 1, 0, false },
		{ { { names[0], "99999999999" }, { names[1], "0" } }, NULL, 0, 1, 0, false },
		{ { { names[0], "2" }, { names[1], "-1" }, { names[3], "2" }, { names[4], "1" } }, names[3], 1, 2, 0, false },
		{ { { names[10], "1" } }, NULL, 0, 1, 0, true }, /* only MPI knows of how many */
		{ { { names[10], "1" }, { names[3], "2" }, { names[4], "1" } }, names[3], 1, 2, 0, false },
		{ { { names[10], "one" } }, NULL, 0, 1, 0, false },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct dn_launch l;

		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
			unsetenv(names[k]);
		for (int k = 0; k < 6 && rows[i].set[k][0]; k++)
			setenv(rows[i].set[k][0], rows[i].set[k][1], 1);
		dn_launch_read(&l);
		if (rows[i].by)
			CHECK_STR(l.by, rows[i].by);
		else
			CU_ASSERT_PTR_NULL(l.by);
		CHECK_EQ(l.rank, rows[i].rank);
		CHECK_EQ(l.size, rows[i].size);
		CHECK_EQ(l.n_on_host, rows[i].local);
		CHECK_EQ(l.unsized, rows[i].unsized);
	}
	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
		unsetenv(names[k]);
}

static const struct check_case cases[] = {
	{ "launchers say rank and size", launchers_say_rank_and_size },
	{ "alone every call of a group is trivial", alone_every_call_is_trivial },
	{ NULL, NULL },
};

int main(void)
{
	return base_help_run("base_group", cases);
}
