/* Launchers name a process's rank and the job's size in variables of their own: this is the list. */
#include "cli/launch.h"

#include <stdlib.h>

#include "base/text.h"

static const struct {
	const char *size, *rank;
} names[] = {
	{ "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK" },
	{ "PMI_SIZE", "PMI_RANK" },
	{ "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK" },
	{ "SLURM_STEP_NUM_TASKS", "SLURM_PROCID" },
};

static int number(const char *name, int def)
{
	const char *s = getenv(name);
	int64_t x;

	if (!s || dn_parse_int(s, &x) != DN_NUM_WHOLE || x < 0 || x > 1 << 30)
		return def;
	return (int)x;
}

void launch_read(struct launch *l)
{
	*l = (struct launch){ 0, 1, NULL };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int size = number(names[i].size, 0);
		int rank = number(names[i].rank, -1);

		if (size > 1 && rank >= 0) {    /* a size alone is what a batch script sees, too */
			*l = (struct launch){ rank, size, names[i].size };
			return;
		}
	}
}
