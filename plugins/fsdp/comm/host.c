/* Who is late, in words; see host.h. */
#include <stdio.h>
#include "comm/host.h"
#include "comm/watch.h"

#define NAMED_RANKS 8

static const char *trouble(const struct fsdp_host *h, int rank)
{
	return h && h->pids && rank != h->rank && h->pids[rank] ? dn_process_trouble(h->pids[rank]) : NULL;
}

/* "; rank 1 is in backward of block tail" */
static void say_place(const struct fsdp_host *h, int rank, char *out, size_t cap)
{
	const char *why = trouble(h, rank);
	char place[FSDP_PLACE_MAX];

	fsdp_board_place(h ? h->board : NULL, rank, place);
	if (*place)
		snprintf(out, cap, "; rank %d %s in %s", rank, why && *why == 'g' ? "was" : "is", place);
}

/* It has said why it leaves: whoever is late after that, it is not the reason. */
static bool has_left(const struct fsdp_host *h, int rank)
{
	return h && fsdp_board_is_here(h->board, rank) && !fsdp_board_is_silent(h->board, rank);
}

enum who { TROUBLED, LATE, LATE_OR_LEFT };

/* names them; how many there are */
static int say_ranks(const struct fsdp_host *h, int rank, int world, enum who who, bool (*late)(const void *arg, int peer),
		     const void *arg, char *out, size_t cap)
{
	size_t at = 0;
	int n = 0, first = -1;

	for (int q = 0; q < world; q++) {
		const char *why = trouble(h, q);

		if (q == rank || (who == TROUBLED ? !why : !late(arg, q)) || (who != LATE_OR_LEFT && has_left(h, q)))
			continue;
		if (n++ >= NAMED_RANKS)
			continue;
		if (n == 1)
			first = q;
		if (at < cap)
			at += (size_t)snprintf(out + at, cap - at, "%s%d", n == 1 ? "waiting for rank " : ", ", q);
		if (at < cap && why)
			at += (size_t)snprintf(out + at, cap - at, " (%s)", why);
	}
	if (n > NAMED_RANKS && at < cap)
		at += (size_t)snprintf(out + at, cap - at, " and %d more", n - NAMED_RANKS);
	if (n && at < cap)
		say_place(h, first, out + at, cap - at);
	return n;
}

void fsdp_host_waiting(const struct fsdp_host *h, int rank, int world, bool (*late)(const void *arg, int peer), const void *arg,
		       char *out, size_t cap)
{
	int64_t paused = h && h->watch ? fsdp_watch_pause_ms(h->watch) : 0;
	int n = 0;

	*out = '\0';
	if (paused) {
		snprintf(out, cap, "this process itself stood still for %.1f s", (double)paused * 1e-3);
		return;
	}
	for (int who = TROUBLED; who <= LATE_OR_LEFT && !n; who++)
		n = say_ranks(h, rank, world, (enum who)who, late, arg, out, cap);
}

bool fsdp_host_split(const struct fsdp_home *homes, int world, int size, char *out, size_t cap)
{
	for (int q = 0; homes && q < world; q++) {
		const int first = q - q % size;

		if (homes[q].first == homes[first].first)
			continue;
		snprintf(out, cap, "ranks %d to %d (%.60s, %.60s)", first, first + size - 1, homes[first].name, homes[q].name);
		return true;
	}
	return false;
}
