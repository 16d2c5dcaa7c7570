/* What a launcher's environment says of this process: one of how many. Read without MPI. */
#ifndef DN_CLI_LAUNCH_H
#define DN_CLI_LAUNCH_H

struct launch {
	int rank, size;         /* 0, 1 without a launcher */
	const char *by;         /* the variable that told the size, NULL */
};

void launch_read(struct launch *l);

#endif
