/* What /proc tells of other processes of this host. */
#ifndef DN_BASE_PROCESS_H
#define DN_BASE_PROCESS_H
#include <stdbool.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

/** dn_process_state() - letter of /proc/PID/stat, 0 = gone, '?' = unknown; *ppid (may be NULL) the parent */
DN_EXPORT char dn_process_state(int pid, int *ppid);
/** dn_process_trouble() - "gone" or "stopped", NULL when it runs or nothing is known of it */
DN_EXPORT const char *dn_process_trouble(int pid);
/** dn_process_has_env() - was @pid started with @variable in its environment? */
DN_EXPORT bool dn_process_has_env(int pid, const char *variable);
/** dn_process_named() - does @pid's name begin with one of @names, which ends with NULL? */
DN_EXPORT bool dn_process_named(int pid, const char *const *names);

#ifdef __cplusplus
}
#endif
#endif
