/* Monotonic time and waits with a deadline. */
#include "base/thread.h"

#include <errno.h>
#include <string.h>
#include <time.h>

int64_t dn_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail for this clock */
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int dn_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t attr;
	int err = pthread_condattr_init(&attr);

	if (err)
		return dn_fail(-err, "condition variable: %s", strerror(err));
	err = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (!err)
		err = pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
	if (err)
		return dn_fail(-err, "condition variable: %s", strerror(err));
	return 0;
}

int dn_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline_ns)
{
	struct timespec t;

	if (!deadline_ns)
		return -pthread_cond_wait(c, m);
	if (deadline_ns < 0)
		deadline_ns = 0;
	t.tv_sec = deadline_ns / 1000000000;
	t.tv_nsec = deadline_ns % 1000000000;
	return -pthread_cond_timedwait(c, m, &t);
}

void dn_sleep_us(int64_t us)
{
	struct timespec t;

	if (us <= 0)
		return;
	t.tv_sec = us / 1000000;
	t.tv_nsec = us % 1000000 * 1000;
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}
