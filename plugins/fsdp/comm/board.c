/* A page or more of anonymous memory, handed from process to process by its descriptor; see board.h. */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "comm/board.h"

enum { ABSENT, HERE, LEAVING };

/* NOTE(places): a rank writes into the text that is not the current one and then makes it so. Who reads looks whether two more were
 * begun meanwhile; of a rank that has ended in the middle of writing, the text before is read. */
struct entry {
	_Atomic int32_t state;
	_Atomic int32_t told;	/* somebody tells of its end */
	_Atomic uint32_t moves; /* texts written so far; the current one is moves % 2 */
	_Atomic char place[2][FSDP_PLACE_MAX];
};

struct shared {
	int64_t nonce;
	struct entry ranks[];
};

struct fsdp_board {
	struct shared *shared;
	size_t bytes;
	int rank, world, fd; /* fd: of the creator, else -1 */
	char last[120];	     /* the latest operation on a block; "" = none */
};

static int board_map(struct fsdp_board **out, int world, int rank, int fd)
{
	struct fsdp_board *b = dn_zalloc(sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->rank = rank;
	b->world = world;
	b->fd = -1;
	b->bytes = sizeof(*b->shared) + (size_t)world * sizeof(b->shared->ranks[0]);
	b->shared = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (b->shared == MAP_FAILED) {
		dn_fail(-ENOMEM, "memory shared by the ranks of this host: mmap: %s", strerror(errno));
		dn_free(b);
		return -ENOMEM;
	}
	*out = b;
	return 0;
}

int fsdp_board_create(struct fsdp_board **out, int world, int rank, struct fsdp_board_key *key)
{
	int fd = memfd_create("darknet-fsdp", MFD_CLOEXEC), err;

	if (fd < 0)
		return dn_fail(-errno, "memory shared by the ranks of this host: memfd_create: %s", strerror(errno));
	/* taken now: a page that is missing later would end us with SIGBUS */
	err = -posix_fallocate(fd, 0, (off_t)(sizeof(struct shared) + (size_t)world * sizeof(struct entry)));
	if (err)
		dn_fail(err, "memory shared by the ranks of this host: %s", strerror(-err));
	if (!err)
		err = board_map(out, world, rank, fd);
	if (err) {
		(void)close(fd);
		return err;
	}
	(*out)->fd = fd;
	(*out)->shared->nonce = dn_now_ns() ^ (int64_t)getpid() << 40;
	*key = (struct fsdp_board_key){ (int64_t)getpid(), fd, (*out)->shared->nonce };
	atomic_store(&(*out)->shared->ranks[rank].state, HERE);
	return 0;
}

int fsdp_board_join(struct fsdp_board **out, int world, int rank, const struct fsdp_board_key *key)
{
	struct fsdp_board *b = NULL;
	struct stat st;
	char path[64];
	int fd, err = 0;

	snprintf(path, sizeof(path), "/proc/%lld/fd/%lld", (long long)key->pid, (long long)key->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return dn_fail(-errno, "memory shared by the ranks of this host: %s: %s", path, strerror(errno));
	if (fstat(fd, &st) || (size_t)st.st_size < sizeof(struct shared) + (size_t)world * sizeof(struct entry))
		err = dn_fail(-EINVAL, "memory shared by the ranks of this host: %s: is something else", path);
	if (!err)
		err = board_map(&b, world, rank, fd);
	(void)close(fd);
	if (err)
		return err;
	/* in another namespace of processes the same numbers mean other ones */
	if (b->shared->nonce != key->nonce) {
		fsdp_board_close(b);
		return dn_fail(-EINVAL, "memory shared by the ranks of this host: %s: is another process's", path);
	}
	atomic_store(&b->shared->ranks[rank].state, HERE);
	*out = b;
	return 0;
}

void fsdp_board_close(struct fsdp_board *b)
{
	if (!b)
		return;
	(void)munmap(b->shared, b->bytes);
	if (b->fd >= 0)
		(void)close(b->fd);
	dn_free(b);
}

/* --- what a rank writes --- */

void fsdp_board_at(struct fsdp_board *b, const char *what, const char *block)
{
	char text[FSDP_PLACE_MAX] = "";
	struct entry *e;
	uint32_t n;

	if (!b)
		return;
	if (block) {
		snprintf(b->last, sizeof(b->last), "%.40s of block %.63s", what, block);
		memcpy(text, b->last, sizeof(b->last));
	} else {
		snprintf(text, sizeof(text), *b->last ? "%.60s after %s" : "%.60s", what, b->last);
	}
	e = &b->shared->ranks[b->rank];
	n = atomic_load_explicit(&e->moves, memory_order_relaxed) + 1;
	for (size_t i = 0; i < sizeof(text); i++)
		atomic_store_explicit(&e->place[n % 2][i], text[i], memory_order_relaxed);
	atomic_store_explicit(&e->moves, n, memory_order_release);
}

void fsdp_board_leave(struct fsdp_board *b)
{
	if (b)
		atomic_store(&b->shared->ranks[b->rank].state, LEAVING);
}

/* --- what the others read --- */

bool fsdp_board_is_here(const struct fsdp_board *b, int rank)
{
	return b && atomic_load(&b->shared->ranks[rank].state) != ABSENT;
}

bool fsdp_board_is_silent(const struct fsdp_board *b, int rank)
{
	return b && atomic_load(&b->shared->ranks[rank].state) == HERE;
}

void fsdp_board_place(const struct fsdp_board *b, int rank, char out[FSDP_PLACE_MAX])
{
	struct entry *e;
	uint32_t n;

	*out = '\0';
	if (!b)
		return;
	e = &b->shared->ranks[rank];
	do {
		n = atomic_load(&e->moves);
		for (size_t i = 0; n && i < FSDP_PLACE_MAX; i++)
			out[i] = atomic_load_explicit(&e->place[n % 2][i], memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load(&e->moves) != n);
	out[FSDP_PLACE_MAX - 1] = '\0';
}

uint32_t fsdp_board_moves(const struct fsdp_board *b, int rank)
{
	return b ? atomic_load(&b->shared->ranks[rank].moves) : 0;
}

bool fsdp_board_first(struct fsdp_board *b, int rank)
{
	int32_t no = 0;

	return !b || atomic_compare_exchange_strong(&b->shared->ranks[rank].told, &no, 1);
}
