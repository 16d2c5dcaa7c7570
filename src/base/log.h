/* Log lines by room and level, and warnings. DARKNET_LOG=fsdp:debug,net:info chooses the level of a
 * room (default warn). Lines go to stderr unless a sink is set.
 */
#ifndef DN_BASE_LOG_H
#define DN_BASE_LOG_H
#include <stdbool.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

enum dn_level { DN_LOG_ERROR, DN_LOG_WARN, DN_LOG_INFO, DN_LOG_DEBUG };

DN_EXPORT void dn_log(const char *room, enum dn_level level, const char *fmt, ...) DN_PRINTF(3, 4);
DN_EXPORT bool dn_log_on(const char *room, enum dn_level level);

/** dn_warn() - one line "warning: ..." on stderr; silent on ranks where dn_log_quiet(true) was called */
DN_EXPORT void dn_warn(const char *fmt, ...) DN_PRINTF(1, 2);

/** dn_warn_own() - the same of what this rank alone may know: not silent anywhere */
DN_EXPORT void dn_warn_own(const char *fmt, ...) DN_PRINTF(1, 2);

/** dn_log_quiet() - keep warnings to one rank: ranks other than 0 call it with true */
DN_EXPORT void dn_log_quiet(bool quiet);

/** dn_log_sink() - send whole lines (no newline) elsewhere; NULL restores stderr. For tests and cli. */
DN_EXPORT void dn_log_sink(void (*sink)(void *arg, const char *line), void *arg);

#ifdef __cplusplus
}
#endif
#endif
