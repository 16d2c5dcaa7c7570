/* Ends by pidfd, stops by /proc; see peers.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>
#include "comm/peers.h"

struct fsdp_peer {
	int rank, fd;	    /* its pidfd; -1 = over and looked at, -2 = over before we could look */
	int64_t stopped_ns; /* since when it is seen stopped, 0 = it is not */
};

int fsdp_peers_open(struct fsdp_peers *p, const struct fsdp_host *h, const struct pollfd *own)
{
	memset(p, 0, sizeof(*p));
	p->polls = dn_calloc(1 + (size_t)h->world, sizeof(*p->polls));
	p->peer = dn_calloc((size_t)h->world, sizeof(*p->peer));
	if (!p->polls || !p->peer) {
		fsdp_peers_close(p);
		return -ENOMEM;
	}
	p->host = h;
	p->polls[0] = *own;
	for (int q = 0; q < h->world; q++) {
		int fd;

		if (q == h->rank || !h->pids[q])
			continue;
		fd = pidfd_open(h->pids[q], 0);
		if (fd < 0 && errno != ESRCH) {
			dn_warn("rank %d: its end will not be seen: pidfd_open: %s", q, strerror(errno));
			continue;
		}
		p->peer[p->n] = (struct fsdp_peer){ .rank = q, .fd = fd < 0 ? -2 : fd };
		p->polls[++p->n] = (struct pollfd){ .fd = fd, .events = POLLIN };
	}
	return 0;
}

void fsdp_peers_close(struct fsdp_peers *p)
{
	for (int i = 0; p->peer && i < p->n; i++)
		if (p->peer[i].fd >= 0)
			(void)close(p->peer[i].fd);
	dn_free(p->peer);
	dn_free(p->polls);
	memset(p, 0, sizeof(*p));
}

/* --- ends --- */

int fsdp_peers_ended(struct fsdp_peers *p)
{
	for (int i = 0; i < p->n; i++) {
		struct fsdp_peer *x = &p->peer[i];

		if (x->fd != -2 && (x->fd < 0 || !p->polls[1 + i].revents))
			continue;
		if (x->fd >= 0)
			(void)close(x->fd);
		x->fd = p->polls[1 + i].fd = -1; /* poll() passes over it from now on */
		/* who has said why it leaves, or leaves in order, needs no words of ours */
		if (fsdp_board_is_silent(p->host->board, x->rank))
			return x->rank;
	}
	return -1;
}

bool fsdp_peers_told(struct fsdp_peers *p, int rank, char *out, size_t cap)
{
	char here[FSDP_PLACE_MAX], there[FSDP_PLACE_MAX];

	if (!fsdp_board_first(p->host->board, rank))
		return false;
	fsdp_board_place(p->host->board, p->host->rank, here);
	fsdp_board_place(p->host->board, rank, there);
	snprintf(out, cap, "%s: rank %d is gone; it was in %s", *here ? here : "start-up", rank, *there ? there : "start-up");
	return true;
}

/* --- stops --- */

static bool nobody(const void *arg, int peer)
{
	return false;
}

void fsdp_peers_stopped(const struct fsdp_peers *p, char *out, size_t cap)
{
	struct fsdp_host h;

	*out = '\0';
	if (!p->host)
		return;
	h = *p->host;
	h.watch = NULL; /* it calls us, and holds its lock */
	fsdp_host_waiting(&h, h.rank, h.world, nobody, NULL, out, cap);
}

bool fsdp_peers_stuck(struct fsdp_peers *p, int64_t limit_ms, char *out, size_t cap)
{
	int64_t now = dn_now_ns(), limit = limit_ms * 1000000;
	char here[FSDP_PLACE_MAX], who[512];
	uint32_t moves;

	if (!p->host || !p->host->board)
		return false;
	moves = fsdp_board_moves(p->host->board, p->host->rank);
	if (moves != p->moves || !p->moved_ns) {
		p->moves = moves;
		p->moved_ns = now;
	}
	if (now - p->moved_ns < limit / 2) /* before that, reading /proc costs more than it brings */
		return false;
	for (int i = 0; i < p->n; i++) {
		struct fsdp_peer *x = &p->peer[i];
		const char *why = x->fd >= 0 ? dn_process_trouble(p->host->pids[x->rank]) : NULL;

		if (!why || *why != 's')
			x->stopped_ns = 0;
		else if (!x->stopped_ns)
			x->stopped_ns = now;
		if (!x->stopped_ns || now - x->stopped_ns < limit / 2 || now - p->moved_ns < limit)
			continue;
		fsdp_board_place(p->host->board, p->host->rank, here);
		fsdp_peers_stopped(p, who, sizeof(who));
		snprintf(out, cap, "%s: waited %.1f s: %s", here, (double)(now - p->moved_ns) * 1e-9, who);
		return true;
	}
	return false;
}

void fsdp_peers_again(struct fsdp_peers *p)
{
	p->moved_ns = dn_now_ns();
}
