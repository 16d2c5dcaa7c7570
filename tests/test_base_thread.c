/* base: waits with a deadline, cores. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>

#include "base/thread.h"
#include "base_help.h"

static void waits_end_at_their_deadline(void)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t c;
	int64_t start, took;
	int err = 0;

	CHECK_OK_FATAL(dn_cond_init(&c));
	pthread_mutex_lock(&m);
	start = dn_now_ns();
	while (!err)
		err = dn_cond_wait_until(&c, &m, start + 30000000);
	took = dn_now_ns() - start;
	CHECK_EQ(err, -ETIMEDOUT);
	CU_ASSERT(took >= 30000000);
	CU_ASSERT(took < 5000000000); /* a busy machine may be late, but not by this */
	CHECK_EQ(dn_cond_wait_until(&c, &m, 1), -ETIMEDOUT);
	pthread_mutex_unlock(&m);
	pthread_cond_destroy(&c);
	start = dn_now_ns();
	dn_sleep_us(2000);
	CU_ASSERT(dn_now_ns() - start >= 2000000);
	dn_sleep_us(-5);
}

struct signal_test {
	pthread_mutex_t m;
	pthread_cond_t c;
	bool set; /* m */
};

static void *signal_later(void *arg)
{
	struct signal_test *t = arg;

	dn_sleep_us(5000);
	pthread_mutex_lock(&t->m);
	t->set = true;
	pthread_cond_signal(&t->c);
	pthread_mutex_unlock(&t->m);
	return NULL;
}

static void waits_end_with_a_signal(void)
{
	struct signal_test t = { .m = PTHREAD_MUTEX_INITIALIZER };

	CHECK_OK_FATAL(dn_cond_init(&t.c));
	for (int with = 0; with < 2; with++) {
		pthread_t thread;
		int err = 0;

		t.set = false;
		CHECK_EQ(pthread_create(&thread, NULL, signal_later, &t), 0);
		pthread_mutex_lock(&t.m);
		while (!t.set && !err)
			err = dn_cond_wait_until(&t.c, &t.m, with ? dn_now_ns() + 10000000000 : 0);
		pthread_mutex_unlock(&t.m);
		CHECK_EQ(err, 0);
		pthread_join(thread, NULL);
	}
	pthread_cond_destroy(&t.c);
}

static void there_are_cores(void)
{
	CU_ASSERT(dn_usable_cores() >= 1);
	CU_ASSERT(dn_present_cores() >= 1);
	CU_ASSERT(dn_usable_cores() <= 100000);
}

static const struct check_case cases[] = {
	{ "waits end at their deadline", waits_end_at_their_deadline },
	{ "waits end with a signal", waits_end_with_a_signal },
	{ "there are cores", there_are_cores },
	{ NULL, NULL },
};

int main(void)
{
	return base_help_run("base_thread", cases);
}
