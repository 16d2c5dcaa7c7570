/* Monotonic time and waits with a deadline over pthreads. */
#ifndef DN_BASE_THREAD_H
#define DN_BASE_THREAD_H
#include <pthread.h>
#include <stdint.h>
#include "base/cores.h"
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

DN_EXPORT int64_t dn_now_ns(void);	       /* CLOCK_MONOTONIC */
DN_EXPORT int dn_cond_init(pthread_cond_t *c); /* on CLOCK_MONOTONIC */
/** dn_cond_wait_until() - as pthread_cond_timedwait; 0 or -ETIMEDOUT without a message; deadline 0 = none */
DN_EXPORT int dn_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline_ns);
DN_EXPORT void dn_sleep_us(int64_t us);

#ifdef __cplusplus
}
#endif
#endif
