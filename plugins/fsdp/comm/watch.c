/* The watchdog thread; see watch.h. */
#define _GNU_SOURCE /* close_range */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <unistd.h>
#include "comm/peers.h"
#include "comm/presence.h"
#include "comm/watch.h"

#define TICK_MS 200
#define OTHERS_LOOK_MS 400
#define PAUSE_MS 1500 /* without a tick: the process was stopped */
#define PAUSE_RECENT_MS 5000
#define LAUNCHER_ENDS_MS 5000  /* after its SIGTERM to the ranks */
#define OTHERS_END_MS 80       /* from the first to the last rank that one signal ends */
#define LAUNCHER_KILLS_MS 4000 /* after the end of a rank; Open MPI: SIGTERM after 1 s, SIGKILL after 2 s */
#define STUCK_GRACE_MS 3500    /* after the deadlines of tasks and of those who wait for them */

struct fsdp_watch {
	struct dn_launch launch;
	struct dn_launcher launcher;
	struct fsdp_presence presence;
	pthread_t thread;
	int wake;	      /* eventfd */
	pthread_mutex_t lock; /* guards all below */
	bool stop;
	bool starting; /* the limit is that of start-up; SIGTERM is blocked and ours */
	sigset_t mask; /* the main thread's before that */
	const char *what;
	int64_t since_ns, limit_ms; /* 0 = none */
	int status;
	int64_t tick_ns;		/* last time the thread ran */
	int64_t pause_end_ns, pause_ms; /* it did not run for so long, although it should have */
	int64_t timeout_ms;		/* of waits; 0 = none */
	struct fsdp_peers peers;
	struct pollfd only_wake;
	int64_t lost_ns; /* when a rank was seen to have ended without a word, 0 = never */
};

/* --- the thread --- */

/* The main thread hangs in a library call and may hold the lock of stderr: straight to the file. */
static void say(const struct fsdp_watch *w, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)dprintf(2, "darknet: rank %d: %s\n", w->launch.rank, text);
}

/* straight out, for the same reason */
static void leave(struct fsdp_watch *w, int status)
{
	if (w->peers.host)
		fsdp_board_leave(w->peers.host->board);
	fsdp_presence_remove(&w->presence);
	_exit(status);
}

/* Others find it at this very moment, too; the first to leave makes the launcher wake the stopped ones and kill the rest. */
static void leave_late(struct fsdp_watch *w, int status)
{
	dn_sleep_us(OTHERS_LOOK_MS * 1000);
	if (w->starting) /* the job is over */
		fsdp_presence_remove_all(&w->presence);
	leave(w, status);
}

static void late(struct fsdp_watch *w, int64_t waited_ms)
{
	char who[512] = "";

	if (w->starting)
		fsdp_presence_missing(&w->presence, who, sizeof(who));
	if (w->starting && !*who)
		say(w, "%s: waited %.1f s; all ranks of this host are here", w->what, (double)waited_ms / 1e3);
	else if (w->starting)
		say(w, "%s: waited %.1f s: waiting for %s", w->what, (double)waited_ms / 1e3, who);
	if (w->starting)
		leave_late(w, w->status);
	fsdp_peers_stopped(&w->peers, who, sizeof(who));
	say(w, "%s: waited %.1f s%s%s", w->what, (double)waited_ms / 1e3, *who ? ": " : "", who);
	leave_late(w, w->status);
}

/* SIGTERM during start-up: mpirun ends the job. When a rank died in the middle of its first words to it (in MPI_Init),
 * Open MPI's mpirun kills the others and then waits for itself for ever; so we leave a process behind that waits for
 * mpirun, and ends it when it does not end. In the child of a process with threads: async-signal-safe calls only.
 */
static void terminated(struct fsdp_watch *w)
{
	int launcher = dn_launcher_mpirun(&w->launcher);
	int fd = launcher ? pidfd_open(launcher, 0) : -1;
	char who[512] = "";
	sigset_t term;

	/* the first of us to get here says who is missing; the files go, so that the others say nothing */
	if (!w->lost_ns && fsdp_presence_is_here(&w->presence))
		fsdp_presence_missing(&w->presence, who, sizeof(who));
	fsdp_presence_remove_all(&w->presence);
	fsdp_presence_remove(&w->presence);
	if (*who)
		(void)dprintf(2, "darknet: rank %d: start-up: the launcher ends the job: waiting for %s\n", w->launch.rank, who);
	if (fd >= 0 && !dn_launcher_gone(&w->launcher) && fork() == 0) {
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

/* --- the other ranks of this host --- */

static void peers_look(struct fsdp_watch *w)
{
	char text[800];
	int rank;

	while (!w->stop && (rank = fsdp_peers_ended(&w->peers)) >= 0) {
		/* one signal to all ranks (the end of a job) ends us, too, before we speak of the first one */
		pthread_mutex_unlock(&w->lock);
		dn_sleep_us(OTHERS_END_MS * 1000);
		pthread_mutex_lock(&w->lock);
		if (w->stop)
			return;
		if (!w->lost_ns)
			w->lost_ns = dn_now_ns();
		if (fsdp_peers_told(&w->peers, rank, text, sizeof(text)))
			say(w, "%s", text);
	}
	/* it is the launcher that ends the job, with the status of the rank that ended first; not every one does */
	if (w->lost_ns && !w->stop && dn_now_ns() - w->lost_ns > LAUNCHER_KILLS_MS * 1000000ll)
		leave(w, 3);
	if (w->timeout_ms && fsdp_peers_stuck(&w->peers, w->timeout_ms + STUCK_GRACE_MS, text, sizeof(text))) {
		say(w, "%s", text);
		leave_late(w, 3);
	}
}

/* --- time --- */

/* with the lock */
static void tick(struct fsdp_watch *w)
{
	int64_t now = dn_now_ns(), gap = (now - w->tick_ns) / 1000000;

	if (gap > PAUSE_MS) {
		w->pause_end_ns = now;
		w->pause_ms = gap;
	}
	if (gap > 2 * TICK_MS) { /* the others were not late, we were */
		w->since_ns += (gap - TICK_MS) * 1000000;
		fsdp_peers_again(&w->peers);
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

/* --- the thread --- */

static void watch_sleep(struct fsdp_watch *w)
{
	struct pollfd *polls = w->peers.host ? w->peers.polls : &w->only_wake;
	int n = 1 + w->peers.n;
	uint64_t woken;

	pthread_mutex_unlock(&w->lock);
	if (poll(polls, (nfds_t)n, TICK_MS) > 0 && polls[0].revents)
		(void)!read(w->wake, &woken, sizeof(woken));
	pthread_mutex_lock(&w->lock);
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
		if (dn_launcher_gone(&w->launcher)) {
			say(w, "the launcher is gone");
			leave(w, 3);
		}
		waited = (dn_now_ns() - w->since_ns) / 1000000;
		if (w->limit_ms && waited > w->limit_ms)
			late(w, waited);
		watch_sleep(w);
		if (w->peers.host)
			peers_look(w);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void watch_wake(struct fsdp_watch *w)
{
	const uint64_t one = 1;

	(void)!write(w->wake, &one, sizeof(one)); /* a full counter wakes as well */
}

int fsdp_watch_start(struct fsdp_watch **out, const struct dn_launch *l, int64_t timeout_ms)
{
	struct fsdp_watch *w = dn_zalloc(sizeof(*w));
	sigset_t all, term;
	int err;

	if (!w)
		return -ENOMEM;
	w->launch = *l;
	w->what = "start-up";
	w->starting = true;
	w->since_ns = w->tick_ns = dn_now_ns();
	w->limit_ms = w->timeout_ms = timeout_ms;
	w->status = 3;
	dn_launcher_find(&w->launcher, l);
	fsdp_presence_leave(&w->presence, l);
	err = -pthread_mutex_init(&w->lock, NULL);
	if (err) {
		dn_fail(err, "watchdog: mutex: %s", strerror(-err));
		goto err_free;
	}
	w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->wake < 0) {
		err = dn_fail(-errno, "watchdog: eventfd: %s", strerror(errno));
		goto err_lock;
	}
	w->only_wake = (struct pollfd){ .fd = w->wake, .events = POLLIN };
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
		goto err_wake;
	}
	*out = w;
	return 0;

err_wake:
	(void)close(w->wake);
err_lock:
	pthread_mutex_destroy(&w->lock);
err_free:
	fsdp_presence_remove(&w->presence);
	dn_free(w);
	return err;
}

int fsdp_watch_peers(struct fsdp_watch *w, const struct fsdp_host *h)
{
	const struct pollfd wake = { .fd = w->wake, .events = POLLIN };
	struct fsdp_peers peers;
	int err = fsdp_peers_open(&peers, h, &wake);

	if (err)
		return err;
	pthread_mutex_lock(&w->lock);
	w->peers = peers;
	pthread_mutex_unlock(&w->lock);
	watch_wake(w);
	return 0;
}

void fsdp_watch_arrived(struct fsdp_watch *w)
{
	pthread_mutex_lock(&w->lock);
	sigterm_back(w);
	w->limit_ms = 0;
	fsdp_presence_remove(&w->presence);
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
	pthread_mutex_unlock(&w->lock);
	watch_wake(w);
	pthread_join(w->thread, NULL);
	fsdp_presence_remove(&w->presence);
	fsdp_peers_close(&w->peers);
	(void)close(w->wake);
	pthread_mutex_destroy(&w->lock);
	dn_free(w);
}
