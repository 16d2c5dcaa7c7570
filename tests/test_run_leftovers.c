/* train: what killed runs were writing goes when the next run of their BASE begins, and nothing else does. */
#include "train_help.h"

#include <signal.h>
#include <sys/wait.h>
#include <utime.h>

static void touch(const char *name)
{
	FILE *f = fopen(path_of(name), "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CHECK_EQ(fclose(f), 0);
}

/* A process that is writing BACKUP/@name; its pid, once the temporary file is there. */
static pid_t writer(const char *name)
{
	int fd[2];
	char c = 0;
	pid_t pid;

	CU_ASSERT_EQUAL_FATAL(pipe(fd), 0);
	pid = fork();
	CU_ASSERT_TRUE_FATAL(pid >= 0);
	if (!pid) {
		struct dn_out o;

		c = dn_out_open(&o, path_of(name)) ? 'n' : 'y';
		if (write(fd[1], &c, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(fd[1]);
	CHECK_EQ(read(fd[0], &c, 1), 1);
	CHECK_EQ(c, 'y');
	close(fd[0]);
	return pid;
}

static void end(pid_t pid)
{
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

static const char *named(const char *name, pid_t pid)
{
	static char out[8][300];
	static int k;

	k = (k + 1) % 8;
	snprintf(out[k], sizeof(out[k]), "%s.tmp.%ld", name, (long)pid);
	return out[k];
}

static void begin_run(const char *folder)
{
	struct run r;

	open_run(&r, HEAD(8, 1, 3) BODY, folder, 40);
	CHECK_OK(create(&r));
	CHECK_STR(r.t.warnings, "");
	close_run(&r);
}

static void files_of_a_killed_run_go_and_those_of_a_live_process_stay(void)
{
	static const char *const ours[] = { "files/tiny.weights",      "files/tiny_last.weights",  "files/tiny_7.weights",
					    "files/tiny_best.weights", "files/tiny_final.weights", "files/tiny.backup" };
	static const char *const others[] = { "files/tiny2.weights", "files/tiny_x.weights", "files/tiny.notes",
					      "files/tin.weights", "files/tiny_last.weights.more" };
	pid_t dead, live;

	CHECK_OK_FATAL(dn_make_dirs(path_of("files")));
	dead = writer("files/tiny_last.weights");
	live = writer("files/tiny_best.weights");
	CU_ASSERT_TRUE(there(named("files/tiny_last.weights", dead)));
	begin_run("files"); /* of two that are alive, nothing goes */
	CU_ASSERT_TRUE(there(named("files/tiny_last.weights", dead)));
	end(dead);
	for (int i = 0; i < DN_N(ours); i++)
		touch(named(ours[i], dead));
	for (int i = 0; i < DN_N(others); i++)
		touch(named(others[i], dead));
	touch("files/tiny.weights.tmp.12x");
	touch(named("files/tiny.weights", getpid())); /* of a container that has counted to this number before */
	begin_run("files");
	for (int i = 0; i < DN_N(ours); i++)
		CU_ASSERT_FALSE(there(named(ours[i], dead)));
	for (int i = 0; i < DN_N(others); i++)
		CU_ASSERT_TRUE(there(named(others[i], dead)));
	CU_ASSERT_TRUE(there("files/tiny.weights.tmp.12x"));
	CU_ASSERT_FALSE(there(named("files/tiny.weights", getpid())));
	CU_ASSERT_TRUE(there(named("files/tiny_best.weights", live)));
	end(live);
	begin_run("files");
	CU_ASSERT_FALSE(there(named("files/tiny_best.weights", live)));
}

/* Another host's process is seen by its lock alone: here one that holds a file of a number that nobody has. */
static void a_file_that_somebody_holds_stays_whatever_number_it_has(void)
{
	pid_t pid, gone;
	const char *name;

	CHECK_OK_FATAL(dn_make_dirs(path_of("held")));
	gone = writer("held/x");
	end(gone);
	pid = writer("held/tiny.weights");
	name = named("held/tiny.weights", gone);
	CHECK_EQ(rename(path_of(named("held/tiny.weights", pid)), path_of(name)), 0);
	begin_run("held");
	CU_ASSERT_TRUE(there(name));
	end(pid);
	begin_run("held");
	CU_ASSERT_FALSE(there(name));
}

static void an_unfinished_checkpoint_goes_but_not_the_only_one_of_its_step(void)
{
	struct run r;

	open_run(&r, HEAD(8, 1, 4) BODY, "steps", 40);
	r.c.save_every = 2;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	close_run(&r);
	CHECK_OK_FATAL(dn_make_dirs(path_of("steps/tiny.ckpt/6.tmp")));
	touch("steps/tiny.ckpt/6.tmp/rank-0.bin");
	CHECK_OK_FATAL(dn_make_dirs(path_of("steps/tiny.ckpt/4.tmp"))); /* what 4 has replaced */
	touch("steps/tiny.ckpt/4.tmp/meta.json");
	CHECK_OK_FATAL(dn_make_dirs(path_of("steps/tiny.ckpt/8.tmp"))); /* killed between two renames */
	touch("steps/tiny.ckpt/8.tmp/meta.json");
	CHECK_OK_FATAL(dn_make_dirs(path_of("steps/tiny.ckpt/mine.tmp")));
	open_run(&r, HEAD(8, 1, 4) BODY, "steps", 40);
	CHECK_OK(create(&r));
	close_run(&r);
	CU_ASSERT_FALSE(there("steps/tiny.ckpt/6.tmp") || there("steps/tiny.ckpt/4.tmp"));
	CU_ASSERT_TRUE(there("steps/tiny.ckpt/8.tmp") && there("steps/tiny.ckpt/mine.tmp") && there("steps/tiny.ckpt/4"));
}

static void what_tried_to_write_long_ago_goes(void)
{
	struct utimbuf old = { 1700000000, 1700000000 };

	CHECK_OK_FATAL(dn_make_dirs(path_of("trial")));
	touch("trial/.write-test-abcdef");
	touch("trial/.write-test-ghijkl");
	touch("trial/.write-test-of-mine");
	CHECK_EQ(utime(path_of("trial/.write-test-abcdef"), &old), 0);
	CHECK_EQ(utime(path_of("trial/.write-test-of-mine"), &old), 0);
	begin_run("trial");
	CU_ASSERT_FALSE(there("trial/.write-test-abcdef"));
	CU_ASSERT_TRUE(there("trial/.write-test-ghijkl") && there("trial/.write-test-of-mine"));
}

int main(void)
{
	static const struct check_case cases[] = {
		{ "files_of_a_killed_run_go_and_those_of_a_live_process_stay",
		  files_of_a_killed_run_go_and_those_of_a_live_process_stay },
		{ "a_file_that_somebody_holds_stays_whatever_number_it_has",
		  a_file_that_somebody_holds_stays_whatever_number_it_has },
		{ "an_unfinished_checkpoint_goes_but_not_the_only_one_of_its_step",
		  an_unfinished_checkpoint_goes_but_not_the_only_one_of_its_step },
		{ "what_tried_to_write_long_ago_goes", what_tried_to_write_long_ago_goes },
		{ NULL, NULL },
	};

	return train_help_run("test_run_leftovers", cases);
}
