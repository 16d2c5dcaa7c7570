/* How many cores this process may use: of its affinity mask, and of the CPU quotas of its cgroups. */
#ifndef DN_BASE_CORES_H
#define DN_BASE_CORES_H
#include <stddef.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

DN_EXPORT int dn_present_cores(void);
/** dn_affinity_cores() - of the affinity mask, at least 1 */
DN_EXPORT int dn_affinity_cores(void);
/**
 * dn_quota_cores() - what CPU quotas allow (1.5: a core and a half), the least along the hierarchy; 0 = no quota
 * cgroups v2 (cpu.max) and v1 (cpu.cfs_quota_us), also inside a container that sees its own cgroup as the root. @root: "",
 * or a folder to read proc and sys of.
 */
DN_EXPORT double dn_quota_cores(const char *root);
/** dn_quota_text() - @quota for a notice, never rounded up, and what whole cores come of it; returns @out */
DN_EXPORT const char *dn_quota_text(double quota, char *out, size_t cap);
/** dn_usable_cores() - of both, at least 1; of a core that a quota allows a part of only, none: threads would wait for one
 * another while one of them is held back */
DN_EXPORT int dn_usable_cores(void);
/** dn_env_threads() - OMP_NUM_THREADS as far as one number can follow it, 0 = not set */
DN_EXPORT int dn_env_threads(void);
/** dn_default_threads() - for one of @ranks_on_host processes that nobody told a number: OMP_NUM_THREADS, or its part of the
 * usable cores */
DN_EXPORT int dn_default_threads(int ranks_on_host);

#ifdef __cplusplus
}
#endif
#endif
