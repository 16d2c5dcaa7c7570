/* Launchers name a process's rank and the job's size in variables of their own: this is the list. And where they stand above us. */
#include "base/launch.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/process.h"
#include "base/text.h"

static const struct {
	const char *size, *rank, *local;
	int least; /* size that is a launch */
} launchers[] = {
	{ "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", 1 },
	{ "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", 1 },
	{ "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", 1 },
	/* a batch script itself is a step of one task: alone is no launch */
	{ "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", NULL, 2 },
};

static int env_number(const char *name, int def)
{
	const char *s = name ? getenv(name) : NULL;
	int64_t x;

	return s && dn_parse_int(s, &x) == DN_NUM_WHOLE && x >= 0 && x < 1 << 30 ? (int)x : def;
}

void dn_launch_read(struct dn_launch *l)
{
	*l = (struct dn_launch){ NULL, 0, 1, 0, false };
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
		int size = env_number(launchers[i].size, 0), rank = env_number(launchers[i].rank, -1);

		if (size < launchers[i].least || rank < 0 || rank >= size)
			continue;
		*l = (struct dn_launch){ launchers[i].size, rank, size, env_number(launchers[i].local, 0), false };
		return;
	}
	l->unsized = env_number("PMIX_RANK", -1) >= 0;
}

void dn_launcher_find(struct dn_launcher *c, const struct dn_launch *l)
{
	int pid = (int)getppid();

	c->n = 0;
	c->pid[0] = (int)getpid();
	while (pid > 1 && c->n < DN_LAUNCH_DEPTH) {
		c->pid[++c->n] = pid;
		if (!l->by || !dn_process_has_env(pid, l->by) || !dn_process_state(pid, &pid))
			return;
	}
}

bool dn_launcher_gone(const struct dn_launcher *c)
{
	int ppid = -1;

	if (!c->n)
		return false;
	if ((int)getppid() != c->pid[1])
		return true;
	for (int i = 1; i < c->n; i++) {
		char s = dn_process_state(c->pid[i], &ppid);

		if (!s || (s != '?' && ppid != c->pid[i + 1]))
			return true;
	}
	return false;
}

int dn_launcher_mpirun(const struct dn_launcher *c)
{
	static const char *const names[] = { "mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", NULL };
	int pid = c->n ? c->pid[c->n] : 0;

	return pid > 1 && dn_process_named(pid, names) ? pid : 0;
}
