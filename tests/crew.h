/* Ranks as threads, with the group that the core asks: no plugin, no process. */
#ifndef DN_TESTS_CREW_H
#define DN_TESTS_CREW_H
#include <pthread.h>
#include "base/group.h"
#include "base/mem.h"
#include "check.h"

#define CREW_MAX 4

struct crew {
	int world;
	pthread_barrier_t all;
	int err[CREW_MAX];
	char text[CREW_MAX][512];
	double *x[CREW_MAX];
	double sum[64];
	const void *mine[CREW_MAX];
	size_t bytes[CREW_MAX];
};

struct crew_member { /* a group's self */
	struct crew *crew;
	int rank;
};

static int crew_agree(void *self, int err, const char *what)
{
	struct crew_member *m = self;
	struct crew *c = m->crew;
	int first = -1;

	c->err[m->rank] = err;
	snprintf(c->text[m->rank], sizeof(c->text[0]), "%s", dn_message());
	pthread_barrier_wait(&c->all);
	for (int r = c->world - 1; r >= 0; r--)
		if (c->err[r])
			first = r;
	err = first < 0 ? 0 : dn_fail(c->err[first], "rank %d: %s", first, c->text[first]);
	pthread_barrier_wait(&c->all);
	return err;
}

static int crew_sum(void *self, double *x, int n)
{
	struct crew_member *m = self;
	struct crew *c = m->crew;

	c->x[m->rank] = x;
	pthread_barrier_wait(&c->all);
	if (m->rank == 0)
		for (int i = 0; i < n && n <= 64; i++) {
			c->sum[i] = 0;
			for (int r = 0; r < c->world; r++)
				c->sum[i] += c->x[r][i];
		}
	pthread_barrier_wait(&c->all);
	memcpy(x, c->sum, (size_t)n * sizeof(*x));
	pthread_barrier_wait(&c->all);
	return 0;
}

static int crew_gather(void *self, const void *mine, size_t bytes, char **all, size_t *sizes)
{
	struct crew_member *m = self;
	struct crew *c = m->crew;
	size_t at = 0, total = 1;

	c->mine[m->rank] = mine;
	c->bytes[m->rank] = bytes;
	pthread_barrier_wait(&c->all);
	*all = NULL;
	if (m->rank == 0) {
		for (int r = 0; r < c->world; r++)
			total += c->bytes[r];
		*all = dn_alloc(total);
		for (int r = 0; r < c->world; r++) {
			if (c->bytes[r])
				memcpy(*all + at, c->mine[r], c->bytes[r]);
			at += sizes[r] = c->bytes[r];
		}
	}
	pthread_barrier_wait(&c->all);
	return 0;
}

static const struct dn_group_ops crew_ops = { .agree = crew_agree, .sum = crew_sum, .gather = crew_gather };

__attribute__((unused)) static struct dn_group crew_group(struct crew_member *m)
{
	return (struct dn_group){ m->rank, m->crew->world, m->crew->world, &crew_ops, m };
}

/* main(job + rank * @size) on a thread each; each job starts with a struct crew_member, which is filled in here */
__attribute__((unused)) static void crew_run(int world, void *(*main)(void *job), void *jobs, size_t size)
{
	struct crew crew = { .world = world };
	pthread_t threads[CREW_MAX];

	CHECK_EQ(pthread_barrier_init(&crew.all, NULL, (unsigned)world), 0);
	for (int r = 0; r < world; r++) {
		void *job = (char *)jobs + (size_t)r * size;

		*(struct crew_member *)job = (struct crew_member){ &crew, r };
		CHECK_EQ(pthread_create(&threads[r], NULL, main, job), 0);
	}
	for (int r = 0; r < world; r++)
		CHECK_EQ(pthread_join(threads[r], NULL), 0);
	pthread_barrier_destroy(&crew.all);
}
#endif
