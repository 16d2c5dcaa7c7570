/* Errors of processes that a launcher started; see launch.h. */
#include "cli/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/launch.h"
#include "base/thread.h"

#define SPINS "2000"	     /* some 50 us: more than between two steps of a small net, less than a thread's turn on a core */
#define FIRST_SPEAKS_MS 2500 /* Open MPI takes 1 s from the first failure to its SIGTERM */

static char **kept;

void launch_keep_args(char **argv)
{
	kept = argv;
}

void launch_short_waits(int threads)
{
	struct dn_launch l;

	dn_launch_read(&l);
	if (!kept || getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT"))
		return;
	if ((threads > 0 ? threads : dn_default_threads(l.n_on_host)) < 2 || setenv("GOMP_SPINCOUNT", SPINS, 1))
		return;
	fflush(NULL);
	execv("/proc/self/exe", kept);
	unsetenv("GOMP_SPINCOUNT"); /* no /proc: it works all the same */
}

/* Only an mpirun above us is known to run rank 0 beside us and to end us when that fails. Of the variables alone this is not known:
 * they are inherited by a shell that was left open in a job step, and a sweep may run another program as rank 0. */
void launch_let_first_speak(void)
{
	struct dn_launcher up;
	struct dn_launch l;

	dn_launch_read(&l);
	if (l.rank < 1)
		return;
	dn_launcher_find(&up, &l);
	if (dn_launcher_mpirun(&up))
		dn_sleep_us(FIRST_SPEAKS_MS * 1000);
}

void launch_error(const char *text)
{
	struct dn_launch l;

	launch_let_first_speak();
	dn_launch_read(&l);
	if (l.size > 1)
		fprintf(stderr, "darknet: rank %d: %s\n", l.rank, text);
	else
		fprintf(stderr, "darknet: %s\n", text);
}
