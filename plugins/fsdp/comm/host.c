/* Who is late, in words; see host.h. */
#include <stdio.h>
#include "comm/host.h"
#include "comm/watch.h"

#define NAMED_RANKS 8

static const char *trouble(const struct fsdp_host *h, int rank)
{
	return h && h->pids && rank != h->rank && h->pids[rank] ? dn_process_trouble(h->pids[rank]) : NULL;
}

int fsdp_host_troubled(const struct fsdp_host *h)
{
	int n = 0;

	for (int q = 0; q < h->world; q++)
		n += trouble(h, q) != NULL;
	return n;
}

/* "rank 1 is in backward of block tail: " */
static size_t say_place(const struct fsdp_host *h, int rank, const char *why, char *out, size_t cap)
{
	char place[FSDP_PLACE_MAX];

	fsdp_board_place(h ? h->board : NULL, rank, place);
	if (!*place)
		return 0;
	return (size_t)snprintf(out, cap, "rank %d %s in %s: ", rank, why && *why == 'g' ? "was" : "is", place);
}

/* the late ones, or with @troubled the stopped and gone ones; how many there are */
static int say_ranks(const struct fsdp_host *h, int rank, int world, bool troubled, bool (*late)(const void *arg, int peer),
		     const void *arg, char *out, size_t cap)
{
	size_t at = 0;
	int n = 0;

	for (int q = 0; q < world; q++) {
		const char *why = trouble(h, q);

		if (troubled ? !why : q == rank || !late(arg, q))
			continue;
		if (n++ >= NAMED_RANKS)
			continue;
		if (n == 1)
			at += say_place(h, q, why, out, cap);
		if (at < cap)
			at += (size_t)snprintf(out + at, cap - at, "%s%d", n == 1 ? "waiting for rank " : ", ", q);
		if (at < cap && why)
			at += (size_t)snprintf(out + at, cap - at, " (%s)", why);
	}
	if (n > NAMED_RANKS && at < cap)
		snprintf(out + at, cap - at, " and %d more", n - NAMED_RANKS);
	return n;
}

void fsdp_host_waiting(const struct fsdp_host *h, int rank, int world, bool (*late)(const void *arg, int peer), const void *arg,
		       char *out, size_t cap)
{
	int64_t paused = h && h->watch ? fsdp_watch_pause_ms(h->watch) : 0;

	*out = '\0';
	if (paused)
		snprintf(out, cap, "this process itself stood still for %.1f s", (double)paused * 1e-3);
	else if (!say_ranks(h, rank, world, true, late, arg, out, cap))
		(void)say_ranks(h, rank, world, false, late, arg, out, cap);
}
