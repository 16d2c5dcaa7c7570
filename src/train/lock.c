/* One run at a time writes BACKUP/BASE.*: rank 0 holds BACKUP/BASE.lock while it runs.
 *
 * The file is locked with fcntl, so the lock ends with the process, however that ends, and holds across hosts where the file
 * system's locks do (NFS). What it contains only names the holder, for messages. Where a file system has no locks the contents
 * decide: a process of this host is asked for, one of another host cannot be, and whoever knows that it is gone removes the file.
 */
#define _GNU_SOURCE
#include "train/lock_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/thread.h"

#define TRIES 200
#define YOUNG_US 5000 /* between looks at a file whose maker has not written yet */

struct holder {
	long pid;
	char host[256];
	int64_t start;	/* seconds since 1970 */
	uint64_t ticks; /* when the process began: a pid may be used again */
};

/* Field 22 of /proc/PID/stat; 0: no such process, or no /proc */
static uint64_t begin_ticks(long pid)
{
	char path[64], text[1024];
	const char *p;
	FILE *f;
	size_t n;
	unsigned long long ticks;

	snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	(void)fclose(f);
	text[n] = '\0';
	p = strrchr(text, ')'); /* the name before it may hold anything */
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p && sscanf(p, "%llu", &ticks) == 1 ? ticks : 0;
}

static void describe_self(struct holder *h)
{
	memset(h, 0, sizeof(*h));
	h->pid = (long)getpid();
	if (gethostname(h->host, sizeof(h->host) - 1) || !*h->host)
		snprintf(h->host, sizeof(h->host), "unknown");
	h->start = (int64_t)time(NULL);
	h->ticks = begin_ticks(h->pid);
}

static int put_holder(int fd, const char *path)
{
	struct holder h;
	char text[512];
	int n;

	describe_self(&h);
	n = snprintf(text, sizeof(text), "pid=%ld host=%s start=%" PRId64 " ticks=%" PRIu64 "\n", h.pid, h.host, h.start,
		     h.ticks);
	if (ftruncate(fd, 0) || pwrite(fd, text, (size_t)n, 0) != (ssize_t)n)
		return dn_fail(errno ? -errno : -EIO, "%s: cannot write: %s", path, strerror(errno ? errno : EIO));
	return 0;
}

/* False: nothing that we would write stands there. */
static bool get_holder(int fd, struct holder *h)
{
	char text[512];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	memset(h, 0, sizeof(*h));
	if (n <= 0)
		return false;
	text[n] = '\0';
	return sscanf(text, "pid=%ld host=%255s start=%" SCNd64 " ticks=%" SCNu64, &h->pid, h->host, &h->start, &h->ticks) == 4 &&
	       h->pid > 0;
}

/* Whoever finds a file of that name must not overwrite what is not a lock: nothing, or what a holder has written or begun to. */
static int check_ours(int fd, const char *path)
{
	struct stat st;
	char text[4];
	ssize_t n = pread(fd, text, sizeof(text), 0);

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || n < 0 || strncmp(text, "pid=", (size_t)n) != 0)
		return dn_fail(
			-EEXIST,
			"%s: is no lock of a run but something else, which is left alone; move it away, or use another -backup",
			path);
	return 0;
}

static bool other_host(const struct holder *h)
{
	struct holder me;

	describe_self(&me);
	return strcmp(me.host, h->host) != 0;
}

static int busy(const char *path, const struct holder *h, bool known)
{
	char since[64] = "?";
	time_t start = (time_t)h->start;
	struct tm tm;

	if (!known)
		return dn_fail(-EBUSY,
			       "%s: another run has this folder (it has not said which process it is); give this one another "
			       "-backup, or wait for its end",
			       path);
	if (gmtime_r(&start, &tm))
		strftime(since, sizeof(since), "%Y-%m-%d %H:%M:%S UTC", &tm);
	return dn_fail(
		-EBUSY,
		"%s: another run has this folder: its rank 0 is pid %ld on host %s, since %s; give this one another -backup, or wait for "
		"its end%s",
		path, h->pid, h->host, since, other_host(h) ? " (if that host is gone, remove the file)" : "");
}

static bool no_locks_here(int number)
{
	return number == EINVAL || number == ENOLCK || number == ENOSYS || number == EOPNOTSUPP;
}

/* Is @fd's file still the one of that name? A holder removes it at its end. */
static bool still_named(int fd, const char *path)
{
	struct stat a, b;

	return !fstat(fd, &a) && !lstat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* A file system without locks, and a file that is there: 0 = its maker is gone. */
static int judge(int fd, const char *path, int tries)
{
	struct holder h;

	if (!get_holder(fd, &h)) { /* its maker is about to write, or died before it did */
		if (tries < TRIES / 2) {
			dn_sleep_us(YOUNG_US);
			return -EAGAIN;
		}
		return 0;
	}
	if (other_host(&h))
		return busy(path, &h, true);
	if (kill((pid_t)h.pid, 0) && errno == ESRCH)
		return 0;
	return h.ticks && begin_ticks(h.pid) != h.ticks ? 0 : busy(path, &h, true);
}

/* One try: 0 and *fd_out, -EAGAIN to try again, or an error with a message. */
static int try_lock(const char *path, enum lock_way way, int tries, int *fd_out)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct holder h;
	bool made = true, locked = false;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW, 0666);
	int err;

	if (fd < 0 && errno == EEXIST) {
		made = false;
		fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
		if (fd < 0 && errno == ENOENT)
			return -EAGAIN;
	}
	if (fd < 0)
		return dn_fail(-errno, "%s: cannot lock the folder for this run: %s", path,
			       errno == ELOOP ? "it is a link" : strerror(errno));
	err = made ? 0 : check_ours(fd, path);
	if (err)
		goto err_close;
	if (way == LOCK_BY_KERNEL && fcntl(fd, F_OFD_SETLK, &whole)) {
		if (errno == EAGAIN || errno == EACCES) {
			bool known = get_holder(fd, &h);

			err = still_named(fd, path) ? busy(path, &h, known) : -EAGAIN;
			goto err_close;
		}
		if (!no_locks_here(errno)) {
			err = dn_fail(-errno, "%s: cannot lock: %s", path, strerror(errno));
			goto err_close;
		}
	} else {
		locked = way == LOCK_BY_KERNEL;
	}
	if (!locked && !made) {
		err = judge(fd, path, tries);
		if (!err) {
			if (still_named(fd, path))
				(void)unlink(path); /* made anew in the next try, by one of those who want it */
			err = -EAGAIN;
		}
		goto err_close;
	}
	if (!still_named(fd, path)) {
		err = -EAGAIN;
		goto err_close;
	}
	err = put_holder(fd, path);
	if (err)
		goto err_close;
	*fd_out = fd;
	return 0;

err_close:
	close(fd);
	return err;
}

int lock_take(struct run_lock *l, const char *backup, const char *base, enum lock_way way)
{
	struct dn_buf path = { 0 };
	int fd = -1;
	int err = dn_buf_printf(&path, "%s/%s.lock", backup, base);

	for (int i = 0; !err && i < TRIES; i++) {
		err = try_lock(path.s, way, i, &fd);
		if (err != -EAGAIN)
			break;
		err = i + 1 < TRIES ? 0 : dn_fail(-EBUSY, "%s: other runs come and go in this folder", path.s);
	}
	if (err) {
		dn_buf_fini(&path);
		return err;
	}
	l->path = path.s;
	l->fd = fd;
	return 0;
}

void lock_drop(struct run_lock *l)
{
	if (!l->path)
		return;
	if (still_named(l->fd, l->path))
		(void)unlink(l->path); /* one that stays is taken over, as a killed run's is */
	close(l->fd);
	dn_free(l->path);
	l->path = NULL;
}
