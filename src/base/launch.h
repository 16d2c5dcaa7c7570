/* What a launcher's environment says of this process: one of how many. Read without MPI. */
#ifndef DN_BASE_LAUNCH_H
#define DN_BASE_LAUNCH_H
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_launch {
	const char *by; /* the variable that told the size; NULL = no launcher, then 0 of 1 */
	int rank, size;
	int local_size; /* processes on this host, 0 = not said */
};

DN_EXPORT void dn_launch_read(struct dn_launch *l);

#ifdef __cplusplus
}
#endif
#endif
