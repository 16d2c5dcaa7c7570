/* Errors of processes that a launcher started; see launch.h. */
#include "cli/launch.h"

#include <stdio.h>

#include "base/launch.h"
#include "base/thread.h"

#define FIRST_SPEAKS_MS 1500 /* Open MPI takes 1 s from the first failure to its SIGTERM */

void launch_let_first_speak(void)
{
	struct dn_launch l;

	dn_launch_read(&l);
	if (l.rank > 0)
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
