/* What a launcher's environment says of this process: one of how many. Read without MPI. */
#ifndef DN_BASE_LAUNCH_H
#define DN_BASE_LAUNCH_H
#include <stdbool.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_launch {
	const char *by; /* the variable that told the size; NULL = no launcher, then 0 of 1 */
	int rank, size;
	int n_on_host; /* processes on this host, 0 = not said */
	bool unsized;  /* without by: launched all the same (PMIX_RANK), of how many only MPI can tell */
};

DN_EXPORT void dn_launch_read(struct dn_launch *l);

#define DN_LAUNCH_DEPTH 8

/* From this process up to its launcher: pid[i + 1] was the parent of pid[i], those between are ranks themselves (wrapper scripts
 * around us), pid[n] is the launcher. n = 0: there is none above us. */
struct dn_launcher {
	int n;
	int pid[DN_LAUNCH_DEPTH + 1];
};

DN_EXPORT void dn_launcher_find(struct dn_launcher *c, const struct dn_launch *l);
/** dn_launcher_gone() - has it ended, or somebody between it and us? */
DN_EXPORT bool dn_launcher_gone(const struct dn_launcher *c);
/** dn_launcher_mpirun() - its pid when it is an mpirun, which ends all ranks once one has failed; 0 when it is not */
DN_EXPORT int dn_launcher_mpirun(const struct dn_launcher *c);

#ifdef __cplusplus
}
#endif
#endif
