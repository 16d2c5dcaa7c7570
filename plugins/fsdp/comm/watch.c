/* The watchdog thread and presence files. */
#define _GNU_SOURCE /* close_range */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include "comm/watch.h"

#define TICK_MS 200
#define NAMED_RANKS 8
#define OTHERS_LOOK_MS 400
#define PAUSE_MS 1500 /* without a tick: the process was stopped */
#define PAUSE_RECENT_MS 5000
#define LAUNCHER_ENDS_MS 5000 /* after its SIGTERM to the ranks */

struct fsdp_watch {
	struct dn_launch launch;
	int pid;
	int n_chain; /* chain[i + 1] was chain[i]'s parent; the last one is the launcher */
	int chain[FSDP_WATCH_DEPTH + 1];
	char dir[512], file[600]; /* "" = no presence file */
	pthread_t thread;
	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t wake;
	bool stop;
	bool starting; /* the limit is that of start-up; SIGTERM is blocked and ours */
	sigset_t mask; /* the main thread's before that */
	const char *what;
	int64_t since_ns, limit_ms; /* 0 = none */
	int status;
	int64_t tick_ns;		/* last time the thread ran */
	int64_t pause_end_ns, pause_ms; /* it did not run for so long, although it should have */
};

/* --- processes --- */

char fsdp_process_state(int pid, int *ppid)
{
	char path[64], text[512], *at;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return errno == ENOENT ? 0 : '?';
	n = fread(text, 1, sizeof(text) - 1, f);
	if (ferror(f))
		n = 0;
	text[n] = '\0';
	if (fclose(f))
		return '?';
	at = strrchr(text, ')'); /* the name before it may contain anything */
	if (!at || at[1] != ' ' || !at[2])
		return '?';
	if (ppid)
		*ppid = at[3] ? atoi(at + 4) : 0;
	return at[2];
}

/* Was process @pid started as a rank, too (a wrapper script around us)? Its first environment tells. */
static bool is_rank(int pid, const char *variable)
{
	char path[64], text[4096];
	size_t n, keep = 0, len = strlen(variable);
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/environ", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (!found && (n = fread(text + keep, 1, sizeof(text) - keep, f)) > 0) {
		n += keep;
		for (size_t i = 0; !found && i + len + 1 < n; i++)
			found = (i == 0 || !text[i - 1]) && !memcmp(text + i, variable, len) && text[i + len] == '=';
		keep = n < 128 ? n : 128;
		memmove(text, text + n - keep, keep);
	}
	if (fclose(f))
		return found;
	return found;
}

static void chain_find(struct fsdp_watch *w)
{
	int pid = (int)getppid();

	w->chain[0] = w->pid;
	while (pid > 1 && w->n_chain < FSDP_WATCH_DEPTH) {
		w->chain[++w->n_chain] = pid;
		if (!is_rank(pid, w->launch.by) || !fsdp_process_state(pid, &pid))
			return;
	}
}

static bool launcher_gone(const struct fsdp_watch *w)
{
	int ppid = -1;

	if (!w->n_chain)
		return false;
	if ((int)getppid() != w->chain[1])
		return true;
	for (int i = 1; i < w->n_chain; i++) {
		char s = fsdp_process_state(w->chain[i], &ppid);

		if (!s || (s != '?' && ppid != w->chain[i + 1]))
			return true;
	}
	return false;
}

/* --- presence --- */

static void clean(char *s)
{
	for (; *s; s++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", *s))
			*s = '_';
}

static void job_name(char *out, size_t cap)
{
	const char *ns = getenv("PMIX_NAMESPACE"), *id = getenv("OMPI_MCA_ess_base_jobid");
	const char *slurm = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");

	if (!ns)
		ns = id;
	if (ns)
		snprintf(out, cap, "%d-%s", (int)getuid(), ns);
	else if (slurm)
		snprintf(out, cap, "%d-slurm-%s-%s", (int)getuid(), slurm, step ? step : "0");
	else
		snprintf(out, cap, "%d-%d", (int)getuid(), (int)getppid());
	clean(out);
}

/* Only a help for messages: a rank without a presence file (a full /tmp) is no reason to refuse the run. */
static void presence_leave(struct fsdp_watch *w)
{
	const char *tmp = getenv("TMPDIR");
	struct stat st;
	char job[200];
	int fd;

	job_name(job, sizeof(job));
	snprintf(w->dir, sizeof(w->dir), "%.280s/darknet-fsdp-%s", tmp && *tmp ? tmp : "/tmp", job);
	if ((mkdir(w->dir, 0700) && errno != EEXIST) || lstat(w->dir, &st) || !S_ISDIR(st.st_mode) || st.st_uid != getuid()) {
		*w->dir = '\0';
		return;
	}
	snprintf(w->file, sizeof(w->file), "%s/rank-%d", w->dir, w->launch.rank);
	(void)unlink(w->file);
	fd = open(w->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || dprintf(fd, "%d\n", w->pid) < 0)
		*w->file = '\0';
	if (fd >= 0 && close(fd))
		*w->file = '\0';
}

static void presence_remove(struct fsdp_watch *w)
{
	if (*w->file)
		(void)unlink(w->file);
	if (*w->dir)
		(void)rmdir(w->dir); /* the last one succeeds */
	*w->file = *w->dir = '\0';
}

static void presence_remove_all(struct fsdp_watch *w)
{
	char path[600];

	for (int q = 0; q < w->launch.size && *w->dir; q++) {
		snprintf(path, sizeof(path), "%s/rank-%d", w->dir, q);
		(void)unlink(path);
	}
}

/* "rank 1 (stopped), 3 (not here)", "" when all are here and alive */
static void presence_missing(const struct fsdp_watch *w, char *out, size_t cap)
{
	bool one_host = w->launch.local_size == w->launch.size;
	size_t at = 0;
	int n = 0;

	*out = '\0';
	for (int q = 0; q < w->launch.size && *w->dir && at < cap; q++) {
		char path[600], text[32] = "", s = 'R';
		const char *why;
		FILE *f;

		if (q == w->launch.rank)
			continue;
		snprintf(path, sizeof(path), "%s/rank-%d", w->dir, q);
		f = fopen(path, "re");
		if (f) {
			if (fgets(text, sizeof(text), f) && atoi(text) > 0)
				s = fsdp_process_state(atoi(text), NULL);
			(void)fclose(f);
		} else if (!one_host) {
			continue; /* may be on another host */
		}
		why = !f ? "not here" : !s || s == 'Z' || s == 'X' ? "gone" : s == 'T' || s == 't' ? "stopped" : NULL;
		if (!why)
			continue;
		if (n++ == NAMED_RANKS) {
			snprintf(out + at, cap - at, " and others");
			return;
		}
		at += (size_t)snprintf(out + at, cap - at, "%s%d (%s)", n == 1 ? "rank " : ", ", q, why);
	}
}

/* --- the thread --- */

/* The main thread hangs in a library call and may hold the lock of stderr: straight to the file, straight out. */
static void die(struct fsdp_watch *w, int status, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)dprintf(2, "darknet: rank %d: %s\n", w->launch.rank, text);
	if (w->starting) { /* others look at the files at this very moment; then the job is over */
		dn_sleep_us(OTHERS_LOOK_MS * 1000);
		presence_remove_all(w);
	}
	presence_remove(w);
	_exit(status);
}

static void late(struct fsdp_watch *w, int64_t waited_ms)
{
	char who[512] = "";

	if (w->starting)
		presence_missing(w, who, sizeof(who));
	/* all find it at once, and the first to leave makes the launcher kill the others */
	if (w->starting && !*who)
		die(w, w->status, "%s: waited %.1f s; all ranks of this host are here", w->what, (double)waited_ms / 1e3);
	if (w->starting)
		die(w, w->status, "%s: waited %.1f s: waiting for %s", w->what, (double)waited_ms / 1e3, who);
	die(w, w->status, "%s: waited %.1f s", w->what, (double)waited_ms / 1e3);
}

static bool is_mpirun(int pid)
{
	static const char *const names[] = { "mpirun", "mpiexec", "orterun", "orted", "prterun", "prted" };
	char path[64], text[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(text, sizeof(text), f))
		*text = '\0';
	(void)fclose(f);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(text, names[i], strlen(names[i])))
			return true;
	return false;
}

/* SIGTERM during start-up: mpirun ends the job. When a rank died in the middle of its first words to it (in MPI_Init),
 * Open MPI's mpirun kills the others and then waits for itself for ever; so we leave a process behind that waits for
 * mpirun, and ends it when it does not end. In the child of a process with threads: async-signal-safe calls only.
 */
static void terminated(struct fsdp_watch *w)
{
	int launcher = w->n_chain ? w->chain[w->n_chain] : 0;
	int fd = launcher > 1 && is_mpirun(launcher) ? pidfd_open(launcher, 0) : -1;
	char who[512] = "";
	sigset_t term;

	/* the first of us to get here says who is missing; the files go, so that the others say nothing */
	if (*w->file && !access(w->file, F_OK))
		presence_missing(w, who, sizeof(who));
	presence_remove_all(w);
	presence_remove(w);
	if (*who)
		(void)dprintf(2, "darknet: rank %d: start-up: the launcher ends the job: waiting for %s\n", w->launch.rank, who);
	if (fd >= 0 && !launcher_gone(w) && fork() == 0) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		(void)setsid(); /* mpirun kills whole process groups */
		if (fd > 0)
			(void)close_range(0, (unsigned)fd - 1, 0); /* it reads our output to its end, too */
		(void)close_range((unsigned)fd + 1, ~0u, 0);
		if (poll(&p, 1, LAUNCHER_ENDS_MS) == 0)
			(void)pidfd_send_signal(fd, SIGKILL, NULL, 0);
		_exit(0);
	}
	signal(SIGTERM, SIG_DFL);
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	pthread_sigmask(SIG_UNBLOCK, &term, NULL);
	raise(SIGTERM);
}

/* Only in the thread that started the watch; others that were made meanwhile (by MPI) keep SIGTERM blocked. */
static void sigterm_back(struct fsdp_watch *w)
{
	if (w->starting)
		pthread_sigmask(SIG_SETMASK, &w->mask, NULL);
	w->starting = false;
}

/* with the lock */
static void tick(struct fsdp_watch *w)
{
	int64_t now = dn_now_ns(), gap = (now - w->tick_ns) / 1000000;

	if (gap > PAUSE_MS) {
		w->pause_end_ns = now;
		w->pause_ms = gap;
		w->since_ns += gap * 1000000; /* the others were not late, we were */
	}
	w->tick_ns = now;
}

int64_t fsdp_watch_pause_ms(struct fsdp_watch *w)
{
	int64_t ms;

	pthread_mutex_lock(&w->lock);
	tick(w);
	ms = w->pause_ms && (w->tick_ns - w->pause_end_ns) / 1000000 < PAUSE_RECENT_MS ? w->pause_ms : 0;
	pthread_mutex_unlock(&w->lock);
	return ms;
}

static void *watch_main(void *arg)
{
	const struct timespec now = { 0, 0 };
	struct fsdp_watch *w = arg;
	int64_t waited;
	sigset_t term;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		tick(w);
		if (w->starting && sigtimedwait(&term, NULL, &now) == SIGTERM)
			terminated(w);
		if (launcher_gone(w))
			die(w, 3, "the launcher is gone");
		waited = (dn_now_ns() - w->since_ns) / 1000000;
		if (w->limit_ms && waited > w->limit_ms)
			late(w, waited);
		(void)dn_cond_wait_until(&w->wake, &w->lock, dn_now_ns() + TICK_MS * 1000000ll);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int fsdp_watch_start(struct fsdp_watch **out, const struct dn_launch *l, int64_t timeout_ms)
{
	struct fsdp_watch *w = dn_zalloc(sizeof(*w));
	sigset_t all, term;
	int err;

	if (!w)
		return -ENOMEM;
	w->launch = *l;
	w->pid = (int)getpid();
	w->what = "start-up";
	w->starting = true;
	w->since_ns = w->tick_ns = dn_now_ns();
	w->limit_ms = timeout_ms;
	w->status = 3;
	chain_find(w);
	presence_leave(w);
	err = -pthread_mutex_init(&w->lock, NULL);
	if (err) {
		dn_fail(err, "watchdog: mutex: %s", strerror(-err));
		goto err_free;
	}
	err = dn_cond_init(&w->wake);
	if (err)
		goto err_lock;
	sigfillset(&all); /* signals belong to the program's own threads */
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &all, &w->mask);
	err = -pthread_create(&w->thread, NULL, watch_main, w);
	pthread_sigmask(SIG_SETMASK, &w->mask, NULL);
	if (!err)
		pthread_sigmask(SIG_BLOCK, &term, NULL);
	if (err) {
		dn_fail(err, "watchdog: thread: %s", strerror(-err));
		goto err_cond;
	}
	*out = w;
	return 0;

err_cond:
	pthread_cond_destroy(&w->wake);
err_lock:
	pthread_mutex_destroy(&w->lock);
err_free:
	presence_remove(w);
	dn_free(w);
	return err;
}

void fsdp_watch_arrived(struct fsdp_watch *w)
{
	pthread_mutex_lock(&w->lock);
	sigterm_back(w);
	w->limit_ms = 0;
	presence_remove(w);
	pthread_mutex_unlock(&w->lock);
}

void fsdp_watch_limit(struct fsdp_watch *w, const char *what, int64_t ms, int status)
{
	pthread_mutex_lock(&w->lock);
	sigterm_back(w);
	w->what = what;
	w->since_ns = dn_now_ns();
	w->limit_ms = ms;
	w->status = status;
	pthread_mutex_unlock(&w->lock);
}

void fsdp_watch_stop(struct fsdp_watch *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	sigterm_back(w);
	w->stop = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	presence_remove(w);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	dn_free(w);
}
