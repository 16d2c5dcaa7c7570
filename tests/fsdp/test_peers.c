/* Ranks of one host, each a process: the board that they share, and what a watch says of one that ends or stops. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../check.h"
#include "comm/watch.h"

#define RANKS 3

struct table { /* shared by this process and its children */
	struct fsdp_board_key key;
	int pids[RANKS];
	_Atomic int filled, ready;
	_Atomic int leaves[RANKS]; /* rank r says that it leaves, and ends */
};

struct job {
	struct table *table;
	struct fsdp_board *board;
	int out; /* what the ranks have said */
	int64_t timeout_ms;
};

/* "forward of block b0" */
static const char *const ops[] = { "forward", "backward", "update" };
static const char *const blocks[] = { "b0", "b1", "b2" };

static void rank_main(struct job *j, int rank)
{
	const struct dn_launch l = { "DN_TEST_NO_SUCH_VARIABLE", rank, RANKS, RANKS, false };
	struct fsdp_host h = { .rank = rank, .world = RANKS };
	struct fsdp_watch *w;
	int pids[RANKS];

	while (!atomic_load(&j->table->filled))
		usleep(1000);
	memcpy(pids, j->table->pids, sizeof(pids));
	pids[rank] = 0;
	h.pids = pids;
	if (fsdp_watch_start(&w, &l, j->timeout_ms) || fsdp_board_join(&h.board, RANKS, rank, &j->table->key))
		_exit(9);
	fsdp_board_at(h.board, ops[rank], blocks[rank]);
	if (rank == 1)
		fsdp_board_at(h.board, "evaluation", NULL);
	if (fsdp_watch_peers(w, &h))
		_exit(9);
	fsdp_watch_arrived(w);
	atomic_fetch_add(&j->table->ready, 1);
	while (!atomic_load(&j->table->leaves[rank]))
		usleep(1000);
	fsdp_board_leave(h.board);
	_exit(1);
}

static void job_start(struct job *j, int64_t timeout_ms)
{
	int fd[2];

	memset(j, 0, sizeof(*j));
	j->timeout_ms = timeout_ms;
	j->table = mmap(NULL, sizeof(*j->table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CU_ASSERT_FATAL(j->table != MAP_FAILED);
	CU_ASSERT_EQUAL_FATAL(pipe(fd), 0);
	CHECK_OK_FATAL(fsdp_board_create(&j->board, RANKS + 1, RANKS, &j->table->key));
	for (int r = 0; r < RANKS; r++) {
		int pid = fork();

		CU_ASSERT_FATAL(pid >= 0);
		if (!pid) {
			if (dup2(fd[1], 2) != 2)
				_exit(9);
			(void)close(fd[0]);
			(void)close(fd[1]);
			rank_main(j, r);
		}
		j->table->pids[r] = pid;
	}
	(void)close(fd[1]);
	j->out = fd[0];
	atomic_store(&j->table->filled, 1);
	while (atomic_load(&j->table->ready) < RANKS)
		usleep(1000);
}

/* until all ranks have ended; status[r] as of waitpid() */
static void job_end(struct job *j, char *said, size_t cap, int status[RANKS])
{
	size_t at = 0;
	ssize_t n;

	while ((n = read(j->out, said + at, cap - 1 - at)) > 0)
		at += (size_t)n;
	said[at] = '\0';
	for (int r = 0; r < RANKS; r++)
		CHECK_EQ(waitpid(j->table->pids[r], &status[r], 0), j->table->pids[r]);
	(void)close(j->out);
	fsdp_board_close(j->board);
	(void)munmap(j->table, sizeof(*j->table));
}

static int lines(const char *s)
{
	int n = 0;

	for (; *s; s++)
		n += *s == '\n';
	return n;
}

static void a_killed_rank_is_told_of_once_with_both_places(void)
{
	static const char *const want[][RANKS] = {
		{ NULL, "darknet: rank 1: evaluation after backward of block b1: rank 0 is gone; it was in forward of block b0\n",
		  "darknet: rank 2: update of block b2: rank 0 is gone; it was in forward of block b0\n" },
		{ "darknet: rank 0: forward of block b0: rank 1 is gone; it was in evaluation after backward of block b1\n", NULL,
		  "darknet: rank 2: update of block b2: rank 1 is gone; it was in evaluation after backward of block b1\n" },
	};

	for (int r = 0; r < 2; r++) {
		char said[4096];
		int status[RANKS];
		struct job j;
		bool one = false;

		job_start(&j, 60000);
		CHECK_EQ(kill(j.table->pids[r], SIGKILL), 0);
		job_end(&j, said, sizeof(said), status);
		for (int q = 0; q < RANKS; q++) {
			if (q == r)
				continue;
			CU_ASSERT(WIFEXITED(status[q]) && WEXITSTATUS(status[q]) == 3); /* no launcher has ended it */
			one = one || !strcmp(said, want[r][q]);
		}
		if (!one)
			fprintf(stderr, "said: %s\n", said);
		CU_ASSERT(one);
	}
}

static void of_two_killed_ranks_the_third_one_tells(void)
{
	char said[4096];
	int status[RANKS];
	struct job j;

	job_start(&j, 60000);
	CHECK_EQ(kill(j.table->pids[0], SIGKILL), 0);
	CHECK_EQ(kill(j.table->pids[1], SIGKILL), 0);
	job_end(&j, said, sizeof(said), status);
	CHECK_EQ(lines(said), 2);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(said, "darknet: rank 2: update of block b2: rank 0 is gone; it was in forward of block b0\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(said, "rank 1 is gone; it was in evaluation after backward of block b1\n"));
	CU_ASSERT(WIFEXITED(status[2]) && WEXITSTATUS(status[2]) == 3);
}

static void a_rank_that_says_that_it_leaves_is_not_told_of(void)
{
	char said[4096];
	int status[RANKS];
	struct job j;

	job_start(&j, 60000);
	for (int r = 0; r < RANKS; r++) {
		atomic_store(&j.table->leaves[r], 1);
		usleep(150000);
	}
	job_end(&j, said, sizeof(said), status);
	CHECK_STR(said, "");
	for (int r = 0; r < RANKS; r++)
		CU_ASSERT(WIFEXITED(status[r]) && WEXITSTATUS(status[r]) == 1);
}

static void a_signal_to_all_ranks_makes_nobody_tell(void)
{
	char said[4096];
	int status[RANKS];
	struct job j;

	job_start(&j, 60000);
	for (int r = 0; r < RANKS; r++)
		CHECK_EQ(kill(j.table->pids[r], SIGTERM), 0);
	job_end(&j, said, sizeof(said), status);
	CHECK_STR(said, "");
}

static void a_rank_that_stays_stopped_ends_those_that_begin_nothing(void)
{
	char said[4096];
	int status[RANKS];
	siginfo_t info;
	struct job j;

	job_start(&j, 300);
	CHECK_EQ(kill(j.table->pids[1], SIGSTOP), 0);
	for (int r = 0; r < RANKS; r += 2) /* they end by themselves; who has ended stays, as one that has left */
		CHECK_EQ(waitid(P_PID, (id_t)j.table->pids[r], &info, WEXITED | WNOWAIT), 0);
	CHECK_EQ(kill(j.table->pids[1], SIGKILL), 0);
	job_end(&j, said, sizeof(said), status);
	for (int r = 0; r < RANKS; r += 2)
		CU_ASSERT(WIFEXITED(status[r]) && WEXITSTATUS(status[r]) == 3);
	CU_ASSERT_PTR_NOT_NULL(strstr(said, "darknet: rank 0: forward of block b0: waited "));
	CU_ASSERT_PTR_NOT_NULL(strstr(said, "darknet: rank 2: update of block b2: waited "));
	CU_ASSERT_PTR_NOT_NULL(
		strstr(said, ": waiting for rank 1 (stopped); rank 1 is in evaluation after backward of block b1\n"));
	CHECK_EQ(lines(said), 2);
}

/* --- the board alone --- */

static void a_place_is_what_was_begun_last(void)
{
	char name[100], place[FSDP_PLACE_MAX];
	struct fsdp_board_key key;
	struct fsdp_board *b = NULL;

	CHECK_OK_FATAL(fsdp_board_create(&b, 2, 1, &key));
	fsdp_board_place(b, 1, place);
	CHECK_STR(place, "");
	CHECK_EQ(fsdp_board_moves(b, 1), 0);
	fsdp_board_at(b, "start", NULL);
	fsdp_board_place(b, 1, place);
	CHECK_STR(place, "start");
	fsdp_board_at(b, "forward", "stem");
	fsdp_board_place(b, 1, place);
	CHECK_STR(place, "forward of block stem");
	for (int i = 0; i < 3; i++)
		fsdp_board_at(b, "saving weights", NULL);
	fsdp_board_place(b, 1, place);
	CHECK_STR(place, "saving weights after forward of block stem");
	CHECK_EQ(fsdp_board_moves(b, 1), 5);
	memset(name, 'x', sizeof(name));
	name[63] = '\0'; /* the longest name of a block */
	fsdp_board_at(b, "backward", name);
	fsdp_board_place(b, 1, place);
	CU_ASSERT(dn_starts(place, "backward of block xxx") && dn_ends(place, name));
	fsdp_board_close(b);
}

static void another_processes_memory_is_no_board(void)
{
	struct fsdp_board_key key;
	struct fsdp_board *b = NULL, *other = NULL;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct fsdp_board_key null = { getpid(), fd, 0 };

	CHECK_OK_FATAL(fsdp_board_create(&b, 2, 0, &key));
	CHECK_FAILS(fsdp_board_join(&other, 2, 1, &null), -EINVAL, "is something else");
	key.nonce++;
	CHECK_FAILS(fsdp_board_join(&other, 2, 1, &key), -EINVAL, "is another process's");
	CU_ASSERT_FALSE(fsdp_board_is_here(b, 1));
	key.nonce--;
	CHECK_OK(fsdp_board_join(&other, 2, 1, &key));
	CU_ASSERT(fsdp_board_is_here(b, 1) && fsdp_board_is_silent(b, 1));
	fsdp_board_leave(other);
	CU_ASSERT(fsdp_board_is_here(b, 1) && !fsdp_board_is_silent(b, 1));
	CU_ASSERT(fsdp_board_first(b, 1) && !fsdp_board_first(other, 1));
	fsdp_board_close(other);
	fsdp_board_close(b);
	(void)close(fd);
}

static bool everybody(const void *arg, int peer)
{
	return true;
}

static void who_has_said_why_it_leaves_is_named_last(void)
{
	struct fsdp_board_key key;
	struct fsdp_board *b[3] = { NULL };
	struct fsdp_host h = { .rank = 0, .world = 4 };
	char out[256];

	CHECK_OK_FATAL(fsdp_board_create(&b[0], 4, 0, &key));
	h.board = b[0];
	CHECK_OK_FATAL(fsdp_board_join(&b[1], 4, 1, &key));
	CHECK_OK_FATAL(fsdp_board_join(&b[2], 4, 2, &key));
	fsdp_board_at(b[2], "forward", "b2");
	fsdp_host_waiting(&h, 0, 3, everybody, NULL, out, sizeof(out));
	CHECK_STR(out, "waiting for rank 1, 2");
	fsdp_board_leave(b[1]);
	fsdp_host_waiting(&h, 0, 4, everybody, NULL, out, sizeof(out)); /* rank 3 is on another host */
	CHECK_STR(out, "waiting for rank 2, 3; rank 2 is in forward of block b2");
	fsdp_board_leave(b[2]);
	fsdp_host_waiting(&h, 0, 3, everybody, NULL, out, sizeof(out));
	CHECK_STR(out, "waiting for rank 1, 2");
	for (int r = 0; r < 3; r++)
		fsdp_board_close(b[r]);
}

static void a_group_that_leaves_its_host_is_named(void)
{
	const struct fsdp_home homes[] = { { 0, "a" }, { 0, "a" }, { 2, "b" }, { 2, "b" }, { 2, "b" }, { 5, "c" } };
	const struct fsdp_home turns[] = { { 0, "a" }, { 1, "b" }, { 0, "a" }, { 1, "b" } };
	char out[200] = "";

	CU_ASSERT_FALSE(fsdp_host_split(NULL, 6, 2, out, sizeof(out)));
	CU_ASSERT_FALSE(fsdp_host_split(homes, 6, 1, out, sizeof(out)));
	CU_ASSERT_FALSE(fsdp_host_split(homes, 4, 2, out, sizeof(out)));
	CHECK_STR(out, "");
	CU_ASSERT_TRUE(fsdp_host_split(homes, 6, 2, out, sizeof(out)));
	CHECK_STR(out, "ranks 4 to 5 (b, c)");
	CU_ASSERT_TRUE(fsdp_host_split(homes, 6, 3, out, sizeof(out)));
	CHECK_STR(out, "ranks 0 to 2 (a, b)");
	CU_ASSERT_TRUE(fsdp_host_split(turns, 4, 2, out, sizeof(out)));
	CHECK_STR(out, "ranks 0 to 1 (a, b)");
}

static const struct check_case cases[] = {
	{ "a_group_that_leaves_its_host_is_named", a_group_that_leaves_its_host_is_named },
	{ "a_killed_rank_is_told_of_once_with_both_places", a_killed_rank_is_told_of_once_with_both_places },
	{ "of_two_killed_ranks_the_third_one_tells", of_two_killed_ranks_the_third_one_tells },
	{ "a_rank_that_says_that_it_leaves_is_not_told_of", a_rank_that_says_that_it_leaves_is_not_told_of },
	{ "a_signal_to_all_ranks_makes_nobody_tell", a_signal_to_all_ranks_makes_nobody_tell },
	{ "a_rank_that_stays_stopped_ends_those_that_begin_nothing", a_rank_that_stays_stopped_ends_those_that_begin_nothing },
	{ "a_place_is_what_was_begun_last", a_place_is_what_was_begun_last },
	{ "who_has_said_why_it_leaves_is_named_last", who_has_said_why_it_leaves_is_named_last },
	{ "another_processes_memory_is_no_board", another_processes_memory_is_no_board },
	{ NULL, NULL }
};

int main(void)
{
	return check_run("fsdp/peers", cases);
}
