/* The watchdog's part in the end of a job that has not begun: what a rank does with the launcher's SIGTERM. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../check.h"
#include "comm/watch.h"

#define RANK_ENDS_S 3

static char tmp[] = "/tmp/dn-watch.XXXXXX";

/* A process called @name starts rank 0 of 2, tells its number through @fd, sees it end by SIGTERM, and then does nothing. */
static void launcher(const char *name, int fd)
{
	const struct dn_launch l = { "DN_TEST_NO_SUCH_VARIABLE", 0, 2, 2, false };
	int status = 0, pid;

	(void)prctl(PR_SET_NAME, name);
	pid = fork();
	if (!pid) {
		struct fsdp_watch *w;

		pid = getpid();
		if (fsdp_watch_start(&w, &l, 60000) || write(fd, &pid, sizeof(pid)) != (ssize_t)sizeof(pid))
			_exit(1);
		for (;;)
			pause();
	}
	(void)close(fd);
	if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM)
		_exit(2);
	for (;;)
		pause();
}

/* SIGTERM to the rank of a launcher @name; how that has ended @seconds later, -1 = not; then it is ended */
static int end_of(const char *name, int seconds)
{
	int fd[2], status = -1, pid, rank = 0, end = -1;
	char x;

	CU_ASSERT_EQUAL_FATAL(pipe(fd), 0);
	pid = fork();
	CU_ASSERT_FATAL(pid >= 0);
	if (!pid) {
		(void)close(fd[0]);
		launcher(name, fd[1]);
	}
	(void)close(fd[1]);
	CHECK_EQ(read(fd[0], &rank, sizeof(rank)), sizeof(rank));
	CU_ASSERT_FATAL(rank > 1); /* the one number written, after the watch has begun */
	CHECK_EQ(kill(rank, SIGTERM), 0);
	/* whatever the rank leaves behind does not hold our output */
	CHECK_EQ(read(fd[0], &x, 1), 0);
	for (int i = 0; i < 10 * seconds && end < 0; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			end = status;
		else
			usleep(100000);
	}
	(void)close(fd[0]);
	if (end < 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, &status, 0);
	}
	return end;
}

static int entries_of_tmp(void)
{
	struct stat st;

	return stat(tmp, &st) ? -1 : (int)st.st_nlink - 2;
}

static void a_launcher_that_hangs_after_its_sigterm_is_ended(void)
{
	int end = end_of("mpirun", 9);

	CU_ASSERT(end >= 0 && WIFSIGNALED(end) && WTERMSIG(end) == SIGKILL);
}

static void a_parent_that_is_no_launcher_is_left_alone(void)
{
	CHECK_EQ(end_of("bash", 7), -1);
}

static void sigterm_leaves_no_presence_files(void)
{
	CHECK_EQ(end_of("bash", RANK_ENDS_S), -1);
	CHECK_EQ(entries_of_tmp(), 0);
}

static void after_start_up_sigterm_is_what_it_was(void)
{
	const struct dn_launch l = { "DN_TEST_NO_SUCH_VARIABLE", 0, 1, 1, false };
	struct fsdp_watch *w;
	sigset_t now;

	CHECK_OK_FATAL(fsdp_watch_start(&w, &l, 60000));
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	CU_ASSERT(sigismember(&now, SIGTERM));
	fsdp_watch_arrived(w);
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	CU_ASSERT(!sigismember(&now, SIGTERM));
	fsdp_watch_stop(w);
}

static const struct check_case cases[] = {
	{ "a_launcher_that_hangs_after_its_sigterm_is_ended", a_launcher_that_hangs_after_its_sigterm_is_ended },
	{ "a_parent_that_is_no_launcher_is_left_alone", a_parent_that_is_no_launcher_is_left_alone },
	{ "sigterm_leaves_no_presence_files", sigterm_leaves_no_presence_files },
	{ "after_start_up_sigterm_is_what_it_was", after_start_up_sigterm_is_what_it_was },
	{ NULL, NULL }
};

int main(void)
{
	int status;

	if (!mkdtemp(tmp) || setenv("TMPDIR", tmp, 1))
		return 1;
	status = check_run("fsdp/watch", cases);
	(void)rmdir(tmp);
	return status;
}
