/* Files and folders: whole reads with a bound, and writes that appear whole or not at all. */
#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"

/* Records what the system said about @path. */
static int fail_errno(const char *path, const char *what, int number)
{
	return dn_fail(-number, "%.1000s: %s: %s", path, what, strerror(number));
}

static const char *kind_name(mode_t mode)
{
	if (S_ISDIR(mode))
		return "a folder";
	if (S_ISFIFO(mode))
		return "a pipe";
	if (S_ISSOCK(mode))
		return "a socket";
	return S_ISREG(mode) ? "a file" : "a device";
}

static int need_regular(const char *path, const struct stat *st)
{
	if (S_ISREG(st->st_mode))
		return 0;
	return dn_fail(S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL, "%.1000s: is %s, wanted a file", path, kind_name(st->st_mode));
}

/* Looks before it opens, because opening a device can have effects; O_NONBLOCK so that no pipe can block us. */
static int open_regular(const char *path, int *fd_out, int64_t *size)
{
	struct stat st;
	int err, fd;

	if (stat(path, &st))
		return fail_errno(path, "cannot read", errno);
	err = need_regular(path, &st);
	if (err)
		return err;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return fail_errno(path, "cannot read", errno);
	if (fstat(fd, &st)) {
		err = fail_errno(path, "cannot read", errno);
		close(fd);
		return err;
	}
	err = need_regular(path, &st);
	if (err) {
		close(fd);
		return err;
	}
	*fd_out = fd;
	*size = (int64_t)st.st_size;
	return 0;
}

int dn_file_read(const char *path, size_t max_bytes, char **out, size_t *n)
{
	int64_t size = 0;
	size_t got = 0;
	char *text = NULL;
	int fd = -1;
	int err = open_regular(path, &fd, &size);

	if (err)
		return err;
	if ((uint64_t)size > max_bytes) {
		err = dn_fail(-EFBIG, "%.1000s: has %lld bytes, at most %zu are read", path, (long long)size, max_bytes);
		goto out;
	}
	text = dn_alloc((size_t)size + 1);
	if (!text) {
		err = -ENOMEM;
		goto out;
	}
	while (got < (size_t)size) {
		ssize_t k = read(fd, text + got, (size_t)size - got);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0) {
			err = fail_errno(path, "cannot read", errno);
			goto out;
		}
		if (!k) {
			err = dn_fail(-EIO, "%.1000s: ends after %zu of %lld bytes: it changed while it was read", path, got,
				      (long long)size);
			goto out;
		}
		got += (size_t)k;
	}
	text[got] = '\0';
	*out = text;
	*n = got;
	text = NULL;
out:
	dn_free(text);
	close(fd);
	return err;
}

int dn_file_size(const char *path, int64_t *out)
{
	int64_t size = 0;
	int fd = -1;
	int err = open_regular(path, &fd, &size);

	if (err)
		return err;
	close(fd);
	*out = size;
	return 0;
}

/* One folder of a path; one that is there already is fine, also when it may not be made by us. */
static int make_dir(const char *path)
{
	struct stat st;
	int number;

	if (!mkdir(path, 0777))
		return 0;
	number = errno;
	if (!stat(path, &st)) {
		if (S_ISDIR(st.st_mode))
			return 0;
		number = ENOTDIR;
	}
	return fail_errno(path, "cannot make the folder", number);
}

static const char write_test[] = ".write-test-", template[] = "XXXXXX"; /* mkstemp's: it writes its own characters there */

bool dn_is_write_test(const char *name)
{
	return dn_starts(name, write_test) && strlen(name) == strlen(write_test) + strlen(template);
}

static int try_to_write(const char *path)
{
	struct dn_buf name = { 0 };
	int err = dn_buf_printf(&name, "%s/%s%s", path, write_test, template);
	int fd;

	if (err)
		goto out;
	fd = mkostemp(name.s, O_CLOEXEC);
	if (fd < 0) {
		err = fail_errno(path, "cannot write in the folder", errno);
		goto out;
	}
	close(fd);
	if (unlink(name.s))
		err = fail_errno(name.s, "cannot remove", errno);
out:
	dn_buf_fini(&name);
	return err;
}

int dn_make_dirs(const char *path)
{
	char *p;
	int err = 0;

	if (!*path)
		return dn_fail(-EINVAL, "the name of a folder is empty");
	p = dn_strdup(path);
	if (!p)
		return -ENOMEM;
	for (char *s = p + 1; *s && !err; s++) {
		if (*s != '/')
			continue;
		*s = '\0';
		err = make_dir(p);
		*s = '/';
	}
	if (!err)
		err = make_dir(p);
	if (!err)
		err = try_to_write(path);
	dn_free(p);
	return err;
}

/* A path that is not there yet is asked for through the nearest folder that is. */
int dn_free_space(const char *path, uint64_t *out)
{
	struct statvfs st;
	char *p = dn_strdup(path);
	int err = 0;

	if (!p)
		return -ENOMEM;
	while (statvfs(*p ? p : ".", &st)) {
		char *slash;

		if (errno == EINTR)
			continue;
		if (errno != ENOENT || !*p || !strcmp(p, "/")) {
			err = fail_errno(path, "cannot tell the free space", errno);
			goto out;
		}
		slash = strrchr(p, '/');
		if (slash == p)
			slash[1] = '\0';
		else
			*(slash ? slash : p) = '\0';
	}
	if (__builtin_mul_overflow((uint64_t)st.f_bavail, (uint64_t)st.f_frsize, out))
		*out = UINT64_MAX;
out:
	dn_free(p);
	return err;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	if (remove(path) && errno != ENOENT)
		return fail_errno(path, "cannot remove", errno);
	return 0;
}

/* Children first, and a link is removed, never followed. */
int dn_remove_tree(const char *path)
{
	struct stat st;
	int err;

	if (lstat(path, &st)) {
		if (errno == ENOENT)
			return 0;
		return fail_errno(path, "cannot remove", errno);
	}
	if (!S_ISDIR(st.st_mode))
		return remove_one(path, NULL, 0, NULL);
	err = nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	if (err == -1)
		return fail_errno(path, "cannot remove", errno);
	return err;
}

/* Of the open file, not of the process: it ends with its last descriptor. */
static int lock_whole(int fd)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(fd, F_OFD_SETLK, &whole) ? -errno : 0;
}

const char *dn_out_tmp_end(const char *name)
{
	const char *end = NULL, *at = name;
	size_t n;

	while ((at = strstr(at, ".tmp.")))
		end = at++;
	n = end ? strspn(end + 5, "0123456789") : 0;
	return n && n < 10 && !end[5 + n] ? end : NULL;
}

int dn_out_sweep(const char *tmp, bool *gone)
{
	const char *end = dn_out_tmp_end(tmp);
	long pid = end ? strtol(end + 5, NULL, 10) : 0;
	struct stat st;
	int fd, held;

	*gone = false;
	/* our own number on a file that nobody holds is an earlier process's: containers count anew */
	if (pid < 1 || (pid != (long)getpid() && (!kill((pid_t)pid, 0) || errno != ESRCH)))
		return 0;
	fd = open(tmp, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ELOOP ? 0 : fail_errno(tmp, "cannot remove", errno);
	held = fstat(fd, &st) || !S_ISREG(st.st_mode) ? -EAGAIN : lock_whole(fd);
	if (held != -EAGAIN && held != -EACCES) {
		*gone = !unlink(tmp);
		held = *gone || errno == ENOENT ? 0 : fail_errno(tmp, "cannot remove", errno);
	} else {
		held = 0;
	}
	close(fd);
	return held;
}

int dn_out_open(struct dn_out *o, const char *path)
{
	struct dn_buf tmp = { 0 };
	struct stat st;
	int err;

	*o = (struct dn_out){ 0 };
	if (!stat(path, &st)) {
		err = need_regular(path, &st); /* the rename at the end would replace a device or fail */
		if (err)
			return err;
	}
	err = dn_buf_printf(&tmp, "%s.tmp.%ld", path, (long)getpid());
	if (err)
		return err;
	o->tmp = tmp.s;
	o->path = dn_strdup(path);
	if (!o->path) {
		err = -ENOMEM;
		goto err_free;
	}
	o->f = fopen(o->tmp, "wbe");
	if (!o->f) {
		err = fail_errno(path, "cannot write", errno);
		goto err_free;
	}
	(void)lock_whole(fileno(o->f)); /* for dn_out_sweep() alone; not every file system has locks */
	return 0;

err_free:
	dn_free(o->path);
	dn_free(o->tmp);
	*o = (struct dn_out){ 0 };
	return err;
}

int dn_out_write(struct dn_out *o, const void *p, size_t n)
{
	if (o->err)
		return o->err;
	if (!n)
		return 0;
	errno = 0;
	if (fwrite(p, 1, n, o->f) != n) {
		o->err = fail_errno(o->path, "cannot write", errno ? errno : EIO);
		return o->err;
	}
	o->bytes += (int64_t)n;
	return 0;
}

/* The entry of a renamed file is in its folder, which has to reach storage as well. */
static int sync_folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir;
	int err = 0;
	int fd;

	if (!slash)
		dir = dn_strdup(".");
	else
		dir = dn_strndup(path, slash == path ? 1 : (size_t)(slash - path));
	if (!dir)
		return -ENOMEM;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* some file systems cannot sync a folder, and a folder may be writable but not readable */
	if (fd < 0) {
		if (errno != EACCES)
			err = fail_errno(dir, "cannot open the folder", errno);
	} else {
		if (fsync(fd) && errno != EINVAL && errno != ENOTSUP && errno != EROFS)
			err = fail_errno(dir, "cannot flush the folder to storage", errno);
		close(fd);
	}
	dn_free(dir);
	return err;
}

static void out_release(struct dn_out *o)
{
	dn_free(o->path);
	dn_free(o->tmp);
	*o = (struct dn_out){ 0 };
}

int dn_out_commit(struct dn_out *o)
{
	int err = o->err;
	FILE *f = o->f;

	if (err) {
		fail_errno(o->path, "cannot write", -err); /* other messages may have come since */
		dn_out_abort(o);
		return err;
	}
	if (fflush(f) || fsync(fileno(f))) {
		err = fail_errno(o->path, "cannot write", errno);
		dn_out_abort(o);
		return err;
	}
	o->f = NULL;
	if (fclose(f))
		err = fail_errno(o->path, "cannot write", errno);
	else if (rename(o->tmp, o->path))
		err = fail_errno(o->path, "cannot rename the finished file", errno);
	if (err)
		unlink(o->tmp);
	else
		err = sync_folder_of(o->path); /* a failure leaves the whole file in place */
	out_release(o);
	return err;
}

void dn_out_abort(struct dn_out *o)
{
	if (o->f) {
		fclose(o->f); /* its bytes are thrown away, so its errors do not matter */
		unlink(o->tmp);
	}
	out_release(o);
}
