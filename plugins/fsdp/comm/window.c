/* Files in memory, handed from process to process by their descriptors; see window.h. */
#define _GNU_SOURCE /* O_TMPFILE */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "comm/control.h"
#include "comm/window.h"

#define PAGE ((size_t)4096)

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "processes cannot share these counters");

struct head {
	double nonce; /* a whole number, so that sums over ranks can carry it */
	struct fsdp_window_lane lanes[FSDP_LANES];
};

enum { KEY_PID, KEY_FD, KEY_NONCE, KEY_BYTES, KEYS };

static struct head *head_of(const struct fsdp_windows *w, int rank)
{
	return (struct head *)(void *)(w->base + (size_t)rank * w->bytes);
}

/* --- room --- */

static int lay_out(struct fsdp_windows *w, const struct fsdp_windows_ask *ask)
{
	size_t all;

	w->bytes = dn_up(sizeof(struct head), PAGE);
	for (int r = 0; r < DN_MEM_PLANNED; r++) {
		w->at[r] = w->bytes;
		w->region[r] = ask->region[r];
		if (ask->region[r] > SIZE_MAX / 2 - w->bytes)
			return dn_fail(-EOVERFLOW, "windows: a region of %zu bytes", ask->region[r]);
		w->bytes += dn_up(ask->region[r], PAGE);
	}
	return dn_mul_size(w->bytes, (size_t)w->world, &all);
}

/* Before anybody takes any: all find the same. */
static int look(const struct fsdp_windows *w, const struct fsdp_windows_ask *ask, const char *dir)
{
	size_t all = w->bytes * (size_t)w->world, n_free;
	struct rlimit limit;
	struct statvfs fs;

	if (ask->ranks_on_host != w->world)
		return dn_fail(-ENOTSUP, "windows: %d of %d ranks are on this host", ask->ranks_on_host, w->world);
	if (statvfs(dir, &fs))
		return dn_fail(-errno, "windows: %s: %s", dir, strerror(errno));
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY && w->bytes > limit.rlim_cur)
		return dn_fail(-EFBIG, "windows: %zu KiB in %s, files may have %llu KiB (ulimit -f)", w->bytes >> 10, dir,
			       (unsigned long long)limit.rlim_cur >> 10); /* else a signal ends us */
	n_free = (size_t)fs.f_bavail * fs.f_frsize;
	if (fs.f_blocks && n_free < all) /* none: it has no limit of its own */
		return dn_fail(-ENOSPC, "windows: %s has %zu KiB free, the windows of %d ranks take %zu KiB", dir, n_free >> 10,
			       w->world, all >> 10);
	return 0;
}

static int count(const struct fsdp_windows *w)
{
	int err = 0;

	for (int r = 0; r < DN_MEM_PLANNED && !err; r++) {
		err = w->region[r] ? dn_mem_take((enum dn_region)r, w->region[r]) : 0;
		for (int k = 0; k < r && err; k++)
			dn_mem_give((enum dn_region)k, w->region[k]);
	}
	return err;
}

static void uncount(const struct fsdp_windows *w)
{
	for (int r = 0; r < DN_MEM_PLANNED; r++)
		dn_mem_give((enum dn_region)r, w->region[r]);
}

/* --- one's own, and those of the others --- */

static int map(const struct fsdp_windows *w, int rank, int fd, int access)
{
	if (mmap(head_of(w, rank), w->bytes, access, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return dn_fail(-errno, "windows: mmap of %zu bytes: %s", w->bytes, strerror(errno));
	return 0;
}

static int create(const struct fsdp_windows *w, const char *dir, int *out)
{
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), err;

	if (fd < 0)
		return dn_fail(-errno, "windows: a file in %s: %s", dir, strerror(errno));
	do
		err = -posix_fallocate(fd, 0, (off_t)w->bytes);
	while (err == -EINTR);
	if (err)
		dn_fail(err, "windows: %zu KiB in %s: %s", w->bytes >> 10, dir, strerror(-err));
	if (!err)
		err = map(w, w->rank, fd, PROT_READ | PROT_WRITE);
	if (err) {
		(void)close(fd);
		return err;
	}
	head_of(w, w->rank)->nonce = (double)((dn_now_ns() ^ (int64_t)getpid() << 24 ^ (int64_t)fd << 8) & ((1ll << 52) - 1));
	*out = fd;
	return 0;
}

static int join(const struct fsdp_windows *w, int rank, const double *key)
{
	struct stat st;
	char path[64];
	int fd, err = 0;

	snprintf(path, sizeof(path), "/proc/%.0f/fd/%.0f", key[KEY_PID], key[KEY_FD]);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return dn_fail(-errno, "windows: %s of rank %d: %s", path, rank, strerror(errno));
	if (fstat(fd, &st) || (size_t)st.st_size != w->bytes || key[KEY_BYTES] != (double)w->bytes)
		err = dn_fail(-EINVAL, "windows: rank %d has %.0f bytes, rank %d %zu", rank, key[KEY_BYTES], w->rank, w->bytes);
	if (!err)
		err = map(w, rank, fd, PROT_READ);
	(void)close(fd);
	/* in another namespace of processes the same numbers mean other ones */
	if (!err && head_of(w, rank)->nonce != key[KEY_NONCE])
		err = dn_fail(-EINVAL, "windows: %s is another process's, not rank %d's", path, rank);
	return err;
}

static int share(struct fsdp_windows *w, struct fsdp_control *c, const char *dir)
{
	double *keys = dn_calloc((size_t)w->world, KEYS * sizeof(*keys)), *mine;
	int fd = -1, err = keys ? create(w, dir, &fd) : -ENOMEM;

	if (!err) {
		mine = keys + w->rank * KEYS;
		mine[KEY_PID] = getpid();
		mine[KEY_FD] = fd;
		mine[KEY_NONCE] = head_of(w, w->rank)->nonce;
		mine[KEY_BYTES] = (double)w->bytes;
	}
	/* whoever has failed says so before anybody looks for its file */
	err = fsdp_control_agree(c, err, "start-up: windows");
	if (!err && keys)
		err = fsdp_control_sum(c, "start-up: windows", keys, w->world * KEYS);
	if (!err && keys) {
		for (int q = 0; q < w->world && !err; q++)
			err = q == w->rank ? 0 : join(w, q, keys + q * KEYS);
		err = fsdp_control_agree(c, err, "start-up: windows");
	}
	if (fd >= 0)
		(void)close(fd);
	dn_free(keys);
	return err;
}

/* --- all together --- */

static int reserve(struct fsdp_windows *w)
{
	void *p = mmap(NULL, w->bytes * (size_t)w->world, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return dn_fail(-ENOMEM, "windows: %zu MiB of addresses: %s", w->bytes * (size_t)w->world >> 20, strerror(errno));
	w->base = p;
	return 0;
}

int fsdp_windows_open(struct fsdp_windows **out, struct fsdp_control *c, const struct fsdp_windows_ask *ask)
{
	const char *dir = ask->dir ? ask->dir : FSDP_WINDOW_DIR;
	struct fsdp_windows *w = dn_zalloc(sizeof(*w));
	bool counted = false;
	int err = w ? 0 : -ENOMEM;

	if (!err) {
		w->world = c->ch->size;
		w->rank = c->ch->rank;
		err = lay_out(w, ask);
	}
	if (!err)
		err = look(w, ask, dir);
	if (!err)
		err = reserve(w);
	if (!err) {
		err = count(w);
		counted = !err;
	}
	err = fsdp_control_agree(c, err, "start-up: windows");
	if (!err && w)
		err = share(w, c, dir);
	if (!err) {
		*out = w;
		return 0;
	}
	if (w && !counted)
		memset(w->region, 0, sizeof(w->region));
	fsdp_windows_close(w);
	return err;
}

void fsdp_windows_close(struct fsdp_windows *w)
{
	if (!w)
		return;
	if (w->base)
		(void)munmap(w->base, w->bytes * (size_t)w->world);
	uncount(w);
	dn_free(w);
}

/* --- what lies where --- */

void *fsdp_windows_region(const struct fsdp_windows *w, enum dn_region r, size_t bytes)
{
	if (!w || w->region[r] != bytes) {
		dn_fail(-EINVAL, "windows: %zu bytes of %s are shared, %zu are wanted", w ? w->region[r] : 0, dn_region_name(r),
			bytes);
		return NULL;
	}
	return w->base + (size_t)w->rank * w->bytes + w->at[r];
}

struct fsdp_window_lane *fsdp_windows_lane(const struct fsdp_windows *w, int rank, int lane)
{
	return &head_of(w, rank)->lanes[lane];
}

bool fsdp_windows_holds(const struct fsdp_windows *w, const void *p, size_t bytes)
{
	uintptr_t from = (uintptr_t)w->base + (uintptr_t)w->rank * w->bytes, x = (uintptr_t)p;

	return x >= from && x - from <= w->bytes && bytes <= w->bytes - (x - from);
}
