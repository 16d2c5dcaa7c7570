/* Error numbers and the one message that explains them.
 *
 * A function returns 0 or a negative errno. Whoever first knows the error records a message with
 * dn_fail(); everyone above returns the number and stays silent; cli prints the message.
 */
#ifndef DN_BASE_STATUS_H
#define DN_BASE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define DN_EXPORT __attribute__((visibility("default")))
#define DN_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Two codes with a meaning of their own: the process ends with status 3 (a peer is lost or late). */
enum {
	DN_EPEER_LOST = -103, /* -ECONNABORTED */
	DN_EPEER_LATE = -110, /* -ETIMEDOUT */
};

/**
 * dn_fail() - record this thread's error message and return @err
 * The message is cut at 2000 bytes. A later dn_fail() replaces it.
 */
DN_EXPORT int dn_fail(int err, const char *fmt, ...) DN_PRINTF(2, 3);

/** dn_message() - this thread's last message, "" when there is none; valid until the next dn_fail() */
DN_EXPORT const char *dn_message(void);
DN_EXPORT void dn_message_clear(void);

/** dn_exit_status() - process exit status for a returned error: 0, 1, or 3 for a lost or late peer */
DN_EXPORT int dn_exit_status(int err);

#ifdef __cplusplus
}
#endif
#endif
