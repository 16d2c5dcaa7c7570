/* The folder of a run's checkpoints: which steps are published and whose they are, publishing one, dropping old ones.
 *
 * A step is written as DIR/STEP.tmp and renamed to DIR/STEP when its meta.json is there; a folder without meta.json,
 * or of another name, is no checkpoint.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "io/ckpt_priv.h"

int ckpt_path(char out[CKPT_PATH_MAX], const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(out, CKPT_PATH_MAX, fmt, ap);
	va_end(ap);
	if (n < 0 || n >= CKPT_PATH_MAX)
		return dn_fail(-ENAMETOOLONG, "checkpoint: a path is longer than %d bytes", CKPT_PATH_MAX - 1);
	return 0;
}

static int64_t leading_step(const char *name, const char **end)
{
	int64_t step = 0;
	int n = 0;

	while (isdigit((unsigned char)name[n]) && n < 18)
		step = 10 * step + (name[n++] - '0');
	*end = name + n;
	return n ? step : -1;
}

static int64_t step_of(const char *name)
{
	const char *end;
	int64_t step = leading_step(name, &end);

	return *end ? -1 : step;
}

static bool is_leftover(const char *name)
{
	const char *end;

	return leading_step(name, &end) >= 0 && (!strcmp(end, ".tmp") || !strcmp(end, ".old"));
}

bool ckpt_is_published(const char *dir, const char *name)
{
	char path[CKPT_PATH_MAX];
	struct stat st;
	int n = snprintf(path, sizeof(path), "%s/%s/meta.json", dir, name);

	return n > 0 && n < (int)sizeof(path) && !stat(path, &st) && S_ISREG(st.st_mode);
}

static uint64_t run_of(const char *dir, const char *name)
{
	char path[CKPT_PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s/meta.json", dir, name);

	return n > 0 && n < (int)sizeof(path) ? ckpt_meta_run(path) : 0;
}

/* Calls fn for each published step of @dir; one that is not there has none. */
static void each_step(const char *dir, void (*fn)(void *arg, int64_t step, uint64_t run), void *arg)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	if (!d)
		return;
	while ((e = readdir(d))) {
		int64_t step = step_of(e->d_name);

		if (step >= 0 && ckpt_is_published(dir, e->d_name))
			fn(arg, step, run_of(dir, e->d_name));
	}
	closedir(d);
}

struct newest {
	int64_t step;
	uint64_t run;
};

static void see_newest(void *arg, int64_t step, uint64_t run)
{
	struct newest *n = arg;

	if (n->step < 0 || run > n->run || (run == n->run && step > n->step))
		*n = (struct newest){ step, run };
}

int64_t dn_ckpt_newest(const char *dir)
{
	struct newest n = { -1, 0 };

	each_step(dir, see_newest, &n);
	return n.step;
}

struct look {
	struct dn_ckpt_folder *f;
	uint64_t run, other; /* the first other one that has an id */
};

static void see_folder(void *arg, int64_t step, uint64_t run)
{
	struct look *l = arg;
	struct dn_ckpt_folder *f = l->f;

	if (run > f->newest_run || f->newest < 0 || (run == f->newest_run && step > f->newest))
		f->newest = step;
	if (run > f->newest_run)
		f->newest_run = run;
	if (run == l->run) {
		f->n++;
		f->last = step > f->last ? step : f->last;
		return;
	}
	f->others_first = !f->n_others || step < f->others_first ? step : f->others_first;
	f->others_last = !f->n_others || step > f->others_last ? step : f->others_last;
	f->n_others++;
	f->n_unnamed += !run;
	f->several |= run && l->other && run != l->other;
	if (!l->other)
		l->other = run;
}

void dn_ckpt_look(const char *dir, uint64_t run, struct dn_ckpt_folder *out)
{
	struct look l = { .run = run };

	*out = (struct dn_ckpt_folder){ .last = -1, .others_first = -1, .others_last = -1, .newest = -1 };
	l.f = out;
	each_step(dir, see_folder, &l);
}

/* Milliseconds, then 20 bits of chance: ids of runs follow one another, also through a copy of the folder, and two that begin
 * in one millisecond still differ. */
uint64_t dn_ckpt_new_run(const char *dir)
{
	struct dn_ckpt_folder f;
	struct timespec t;
	uint32_t chance;
	uint64_t id;

	clock_gettime(CLOCK_REALTIME, &t);
	if (getrandom(&chance, sizeof(chance), GRND_NONBLOCK) != (ssize_t)sizeof(chance))
		chance = (uint32_t)t.tv_nsec ^ (uint32_t)getpid() << 4;
	id = ((uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000) << 20 | (chance & 0xfffff);
	dn_ckpt_look(dir, 0, &f);
	return id > f.newest_run ? id : f.newest_run + 1; /* a clock that was set back */
}

static int move(const char *from, const char *to)
{
	return rename(from, to) ? dn_fail(-errno, "%s: renaming to %s: %s", from, to, strerror(errno)) : 0;
}

/* Best effort: the data files are flushed already, and some file systems cannot sync a folder. */
static void sync_dir(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0) {
		(void)fsync(fd);
		close(fd);
	}
}

/* A run may save a step again (resumed from an earlier one): the two folders change places in one call where the file system
 * can, so that there is a published one at every moment. */
static int replace(const char *tmp, const char *to, const char *old)
{
	int err;

	if (!renameat2(AT_FDCWD, tmp, AT_FDCWD, to, RENAME_EXCHANGE))
		return dn_remove_tree(tmp);
	if (errno != EINVAL && errno != ENOSYS)
		return dn_fail(-errno, "%s: exchanging with %s: %s", tmp, to, strerror(errno));
	err = dn_remove_tree(old);
	if (!err)
		err = move(to, old);
	if (!err)
		err = move(tmp, to);
	return err ? err : dn_remove_tree(old);
}

/* Another run's checkpoint of the same step keeps its contents under a name that says whose it is. */
static int set_aside(const char *to, uint64_t run)
{
	char aside[CKPT_PATH_MAX];
	int err = ckpt_path(aside, "%s.%016llx", to, (unsigned long long)run);

	if (!err)
		err = dn_remove_tree(aside); /* an earlier save of that step by that run */
	return err ? err : move(to, aside);
}

int ckpt_publish(const char *dir, int64_t step, uint64_t run)
{
	char tmp[CKPT_PATH_MAX], to[CKPT_PATH_MAX], old[CKPT_PATH_MAX], name[32];
	int err;

	snprintf(name, sizeof(name), "%lld", (long long)step);
	err = ckpt_path(to, "%s/%s", dir, name);
	if (!err)
		err = ckpt_path(tmp, "%s.tmp", to);
	if (!err)
		err = ckpt_path(old, "%s.old", to);
	if (err)
		return err;
	if (ckpt_is_published(dir, name) && run_of(dir, name) == run) {
		err = replace(tmp, to, old);
	} else {
		err = ckpt_is_published(dir, name) ? set_aside(to, run_of(dir, name)) : dn_remove_tree(to);
		if (!err)
			err = move(tmp, to);
	}
	if (!err)
		sync_dir(dir);
	return err;
}

/* A save that was stopped where folders cannot change places leaves STEP.old, STEP.tmp or both, whole, and no STEP: whole ones
 * without a STEP stay. */
static bool is_rest_of_killed(const char *dir, const char *name)
{
	const char *end;
	char step[32];

	if (leading_step(name, &end) < 0 || strcmp(end, ".tmp"))
		return false;
	snprintf(step, sizeof(step), "%.*s", (int)(end - name), name);
	return !ckpt_is_published(dir, name) || ckpt_is_published(dir, step);
}

static int newest_first(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

static int drop(const char *dir, const char *name)
{
	char path[CKPT_PATH_MAX];
	int err = ckpt_path(path, "%s/%s", dir, name);

	return err ? err : dn_remove_tree(path);
}

int dn_ckpt_sweep(const char *dir, int *n)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int err = 0;

	if (!d)
		return errno == ENOENT ? 0 : dn_fail(-errno, "%s: %s", dir, strerror(errno));
	while (!err && (e = readdir(d)))
		if (is_rest_of_killed(dir, e->d_name)) {
			err = drop(dir, e->d_name);
			*n += !err;
		}
	closedir(d);
	return err;
}

/* published steps of @run in the open @d, newest first; everything that is none goes */
static int list_steps(DIR *d, const char *dir, uint64_t run, int64_t **out, int *n_out)
{
	int64_t *steps = NULL, *more;
	struct dirent *e;
	int n = 0, err = 0;

	while (!err && (e = readdir(d))) {
		int64_t step = step_of(e->d_name);

		if (is_leftover(e->d_name) || (step >= 0 && !ckpt_is_published(dir, e->d_name))) {
			err = drop(dir, e->d_name);
			continue;
		}
		if (step < 0 || run_of(dir, e->d_name) != run)
			continue;
		more = dn_grow(steps, n, sizeof(*steps));
		if (!more) {
			err = -ENOMEM;
			break;
		}
		steps = more;
		steps[n++] = step;
	}
	if (err) {
		dn_free(steps);
		return err;
	}
	if (n)
		qsort(steps, (size_t)n, sizeof(*steps), newest_first);
	*out = steps;
	*n_out = n;
	return 0;
}

int ckpt_prune(const char *dir, int64_t step, uint64_t run, int keep)
{
	DIR *d = opendir(dir);
	int64_t *steps = NULL;
	int n = 0, kept = 1, err;

	if (!d)
		return dn_fail(-errno, "%s: %s", dir, strerror(errno));
	err = list_steps(d, dir, run, &steps, &n);
	closedir(d);
	for (int i = 0; i < n && !err && keep > 0; i++) {
		char name[32];

		if (steps[i] == step)
			continue;
		if (kept < keep) {
			kept++;
			continue;
		}
		snprintf(name, sizeof(name), "%lld", (long long)steps[i]);
		err = drop(dir, name);
	}
	dn_free(steps);
	return err;
}
