/* Ranks in one process: a thread each. */
#ifndef DN_TESTS_FSDP_RANKS_H
#define DN_TESTS_FSDP_RANKS_H
#include <pthread.h>
#include "../check.h"
#include "comm/mesh.h"

#define RANKS_MAX 4

struct ranks_arg {
	int rank;
	void *job;
	void (*fn)(int rank, void *job);
};

static inline void *ranks_main(void *arg)
{
	struct ranks_arg *a = arg;

	a->fn(a->rank, a->job);
	return NULL;
}

/* fn(rank, job) on every rank at once */
static inline void ranks_run(int world, void (*fn)(int rank, void *job), void *job)
{
	struct ranks_arg args[RANKS_MAX];
	pthread_t threads[RANKS_MAX];

	for (int r = 0; r < world; r++) {
		args[r] = (struct ranks_arg){ r, job, fn };
		CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[r], NULL, ranks_main, &args[r]), 0);
	}
	for (int r = 0; r < world; r++)
		pthread_join(threads[r], NULL);
}

/* a number that depends on both and on nothing else, in (-1, 1) */
static inline float noise(uint64_t a, uint64_t b)
{
	uint64_t x = a * 0x9e3779b97f4a7c15ull + b * 0xbf58476d1ce4e5b9ull + 0x94d049bb133111ebull;

	x ^= x >> 31;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 29;
	return (float)((double)(x >> 40) / (double)(1 << 23) - 1.0);
}
#endif
