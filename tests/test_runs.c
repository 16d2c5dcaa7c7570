/* train: runs that share a folder or follow one another in it: the lock, ids, the log, and what is refused before step 1. */
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "io/ckpt.h"
#include "net_help.h"
#include "train/lock_priv.h"
#include "train/loop.h"

static char dir[256]; /* of this process, made by main() */
static const struct dn_group alone = DN_GROUP_ALONE;

static const char *path_of(const char *name)
{
	static char path[64][1600];
	static int k;

	k = (k + 1) % 64;
	snprintf(path[k], sizeof(path[k]), "%s/%s", dir, name);
	return path[k];
}

static bool there(const char *name)
{
	return access(path_of(name), F_OK) == 0;
}

static void put_file(const char *name, const char *text)
{
	FILE *f = fopen(path_of(name), "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputs(text, f);
	CHECK_EQ(fclose(f), 0);
}

static char *file_text(const char *name)
{
	char *text;
	size_t n;

	CHECK_OK_FATAL(dn_file_read(path_of(name), 1 << 20, &text, &n));
	return text;
}

/* --- the lock --- */

static const char *folder_of_lock(void)
{
	CHECK_OK_FATAL(dn_remove_tree(path_of("lock")));
	CHECK_OK_FATAL(dn_make_dirs(path_of("lock")));
	return path_of("lock");
}

static void a_second_run_is_refused_and_told_who_has_the_folder(void)
{
	for (int way = LOCK_BY_KERNEL; way <= LOCK_BY_CONTENTS; way++) {
		struct run_lock a = { 0 }, b = { 0 };
		const char *folder = folder_of_lock();
		char want[100];

		CHECK_OK_FATAL(lock_take(&a, folder, "x", way));
		snprintf(want, sizeof(want), "lock/x.lock: another run has this folder: its rank 0 is pid %ld on host ",
			 (long)getpid());
		CHECK_FAILS(lock_take(&b, folder, "x", way), -EBUSY, want);
		CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), ", since 2"));
		CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), " UTC; give this one another -backup"));
		CHECK_OK(lock_take(&b, folder, "y", way)); /* another net's files */
		lock_drop(&b);
		lock_drop(&a);
		CU_ASSERT_FALSE(there("lock/x.lock") || there("lock/y.lock"));
		CHECK_OK(lock_take(&b, folder, "x", way));
		lock_drop(&b);
		lock_drop(&b);
	}
}

/* A process that holds the lock until it is killed; its pid, once it holds it. */
static pid_t hold(const char *folder, enum lock_way way)
{
	int fd[2];
	char c = 0;
	pid_t pid;

	CU_ASSERT_EQUAL_FATAL(pipe(fd), 0);
	pid = fork();
	CU_ASSERT_TRUE_FATAL(pid >= 0);
	if (!pid) {
		struct run_lock l = { 0 };

		c = lock_take(&l, folder, "x", way) ? 'n' : 'y';
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

static void a_killed_runs_lock_is_taken_over(void)
{
	for (int way = LOCK_BY_KERNEL; way <= LOCK_BY_CONTENTS; way++) {
		const char *folder = folder_of_lock();
		struct run_lock l = { 0 };
		pid_t pid = hold(folder, way);
		char want[40];

		snprintf(want, sizeof(want), "pid %ld on host", (long)pid);
		CHECK_FAILS(lock_take(&l, folder, "x", way), -EBUSY, want);
		CHECK_EQ(kill(pid, SIGKILL), 0);
		CHECK_EQ(waitpid(pid, NULL, 0), pid);
		CU_ASSERT_TRUE(there("lock/x.lock"));
		CHECK_OK(lock_take(&l, folder, "x", way));
		lock_drop(&l);
		CU_ASSERT_FALSE(there("lock/x.lock"));
	}
}

static void of_many_that_start_at_once_one_gets_it(void)
{
	for (int round = 0; round < 6; round++) {
		const char *folder = folder_of_lock();
		pid_t pid[8];
		int got = 0, refused = 0, start[2];

		if (round % 2)
			put_file("lock/x.lock", "pid=1 host=gone start=1 ticks=1\n"); /* of a run that was killed */
		CU_ASSERT_EQUAL_FATAL(pipe(start), 0);
		for (int i = 0; i < 8; i++) {
			pid[i] = fork();
			CU_ASSERT_TRUE_FATAL(pid[i] >= 0);
			if (!pid[i]) {
				struct run_lock l = { 0 };
				char c;
				int err;

				close(start[1]);
				if (read(start[0], &c, 1)) /* all are there when it is closed */
					_exit(9);
				err = lock_take(&l, folder, "x", LOCK_BY_KERNEL);
				if (!err)
					usleep(300000);
				_exit(err ? err == -EBUSY ? 2 : 3 : 1);
			}
		}
		close(start[0]);
		close(start[1]);
		for (int i = 0; i < 8; i++) {
			int status = 0;

			CHECK_EQ(waitpid(pid[i], &status, 0), pid[i]);
			got += WIFEXITED(status) && WEXITSTATUS(status) == 1;
			refused += WIFEXITED(status) && WEXITSTATUS(status) == 2;
		}
		CHECK_EQ(got, 1);
		CHECK_EQ(refused, 7);
	}
}

static void a_lock_file_that_was_removed_by_hand_is_the_next_runs(void)
{
	const char *folder = folder_of_lock();
	struct run_lock a = { 0 }, b = { 0 }, c = { 0 };

	CHECK_OK_FATAL(lock_take(&a, folder, "x", LOCK_BY_KERNEL));
	CHECK_EQ(unlink(path_of("lock/x.lock")), 0);
	CHECK_OK(lock_take(&b, folder, "x", LOCK_BY_KERNEL));
	lock_drop(&a); /* not its file any more */
	CU_ASSERT_TRUE(there("lock/x.lock"));
	CHECK_FAILS(lock_take(&c, folder, "x", LOCK_BY_KERNEL), -EBUSY, "another run has this folder");
	lock_drop(&b);
	CU_ASSERT_FALSE(there("lock/x.lock"));
}

static void what_the_file_says_decides_only_where_there_are_no_locks(void)
{
	char text[200];
	struct run_lock l = { 0 };
	const char *folder = folder_of_lock();

	/* another host's: with locks nobody holds it, without them nobody can know */
	put_file("lock/x.lock", "pid=1 host=elsewhere start=1700000000 ticks=1\n");
	CHECK_FAILS(lock_take(&l, folder, "x", LOCK_BY_CONTENTS), -EBUSY,
		    "pid 1 on host elsewhere, since 2023-11-14 22:13:20 UTC; give this one another -backup, or wait for its end "
		    "(if that host is gone, remove the file)");
	CHECK_OK(lock_take(&l, folder, "x", LOCK_BY_KERNEL));
	lock_drop(&l);
	/* a pid that another process has by now */
	snprintf(text, sizeof(text), "pid=%ld host=", (long)getpid());
	gethostname(text + strlen(text), 64);
	strcat(text, " start=1700000000 ticks=1\n");
	put_file("lock/x.lock", text);
	CHECK_OK(lock_take(&l, folder, "x", LOCK_BY_CONTENTS));
	lock_drop(&l);
	/* of one that died before it wrote, or while it did */
	for (int i = 0; i < 2; i++) {
		put_file("lock/x.lock", i ? "pi" : "");
		CHECK_OK(lock_take(&l, folder, "x", i ? LOCK_BY_KERNEL : LOCK_BY_CONTENTS));
		lock_drop(&l);
	}
	/* what is no lock is left alone: a user's file, a link, also to a lock */
	for (int i = 0; i < 3; i++) {
		char linked[512];

		put_file("lock/target", i ? "precious" : "");
		snprintf(linked, sizeof(linked), "%s", path_of("lock/target"));
		if (i == 2)
			put_file("lock/x.lock", "precious");
		else
			CHECK_EQ(symlink(linked, path_of("lock/x.lock")), 0);
		CHECK_FAILS(lock_take(&l, folder, "x", LOCK_BY_KERNEL), i == 2 ? -EEXIST : -ELOOP,
			    i == 2 ? "is no lock of a run" : "it is a link");
		CU_ASSERT_TRUE(there("lock/x.lock") && there("lock/target"));
		CHECK_EQ(unlink(path_of("lock/x.lock")), 0);
	}
	CHECK_FAILS(lock_take(&l, path_of("nowhere"), "x", LOCK_BY_KERNEL), -ENOENT, "nowhere/x.lock");
	CHECK_OK(dn_make_dirs(path_of("lock/x.lock")));
	CU_ASSERT_NOT_EQUAL(lock_take(&l, folder, "x", LOCK_BY_KERNEL), 0);
}

/* --- runs --- */

#define HEAD(max) "[net]\nbatch=8\ninputs=6\nlearning_rate=.05\nmomentum=.9\ndecay=.001\npolicy=constant\nmax_batches=" #max "\n"
#define ENDLESS "[net]\nbatch=8\ninputs=6\nlearning_rate=.05\n"
#define BODY "[connected]\noutput=5\nactivation=leaky\n[connected]\noutput=3\nactivation=linear\n[softmax]\n"
#define TANH "[connected]\noutput=5\nactivation=tanh\n[connected]\noutput=3\nactivation=linear\n[softmax]\n"

struct run {
	struct net_help t;
	struct dn_dataset train;
	struct dn_loop_config c;
	struct dn_loop *l;
	int steps, stop_after;
};

static int get(const struct dn_dataset *ds, int64_t i, const struct dn_sample_key *key, float *x, float *t, int64_t n_truths,
	       int64_t *cls)
{
	for (int64_t k = 0; k < ds->inputs; k++)
		x[k] = (float)dn_rng_uniform(11, (uint64_t)i, (uint64_t)k) + (k == i % 3 ? 1.5f : 0);
	for (int64_t k = 0; t && k < n_truths; k++)
		t[k] = k == i % 3;
	if (cls)
		*cls = i % 3;
	return 0;
}

static int on_step(void *arg, const struct dn_loop_step *s)
{
	struct run *r = arg;

	return ++r->steps == r->stop_after ? dn_fail(-ECANCELED, "stopped") : 0;
}

static void open_run(struct run *r, const char *cfg, const char *folder)
{
	memset(r, 0, sizeof(*r));
	r->train = (struct dn_dataset){
		.n = 40, .c = 6, .h = 1, .w = 1, .inputs = 6, .classes = 3, .has_truth = true, .hash = 42, .get = get
	};
	strcpy(r->train.path, "made");
	CHECK_OK_FATAL(net_help_build(&r->t, "ref", cfg, NULL));
	CHECK_OK_FATAL(net_help_ready(&r->t, true));
	r->c = (struct dn_loop_config){
		.backup = path_of(folder),
		.base = "tiny",
		.data_path = "tiny.data",
		.keep = 3,
		.top = 1,
		.seed = 3,
		.shuffle = DN_SHUFFLE_EPOCH,
		.loader_threads = 1,
		.events = { .step = on_step, .arg = r },
	};
}

static int create(struct run *r)
{
	return dn_loop_create(&r->l, r->t.net, &r->train, r->c.valid_every ? &r->train : NULL, &alone, &r->c);
}

static void close_run(struct run *r)
{
	dn_loop_destroy(r->l);
	net_help_close(&r->t);
}

static uint64_t run_at(const char *path)
{
	struct dn_ckpt *c;
	uint64_t run;

	CHECK_OK_FATAL(dn_ckpt_open(&c, path_of(path)));
	run = dn_ckpt_state_of(c)->run;
	dn_ckpt_close(c);
	return run;
}

/* a whole run, resumed from @resume or new */
static void train_run(const char *cfg, const char *folder, const char *resume, int64_t every, int keep, const char *log,
		      char *warnings)
{
	struct run r;

	open_run(&r, cfg, folder);
	r.c.resume = resume ? path_of(resume) : NULL;
	r.c.save_every = every;
	r.c.keep = keep;
	r.c.log_path = log ? path_of(log) : NULL;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	if (warnings)
		strcpy(warnings, r.t.warnings);
	close_run(&r);
}

static void a_live_runs_folder_is_refused_before_anything_of_it_changes(void)
{
	struct run a, b;
	char *before, *after;

	CHECK_OK_FATAL(dn_remove_tree(path_of("live")));
	open_run(&a, HEAD(4) BODY, "live");
	a.c.log_path = path_of("live.log");
	CHECK_OK_FATAL(create(&a));
	before = file_text("live.log");
	open_run(&b, HEAD(4) BODY, "live");
	b.c.log_path = path_of("live.log");
	CHECK_FAILS(create(&b), -EBUSY, "live/tiny.lock: another run has this folder");
	after = file_text("live.log");
	CHECK_STR(after, before);
	b.c.base = "other";
	b.c.log_path = NULL;
	CHECK_OK(create(&b));
	close_run(&b);
	CHECK_OK(dn_loop_run(a.l));
	close_run(&a);
	CU_ASSERT_FALSE(there("live/tiny.lock") || there("live/other.lock"));
	dn_free(before);
	dn_free(after);
}

static void a_start_that_fails_leaves_no_lock(void)
{
	struct run r;

	CHECK_OK_FATAL(dn_remove_tree(path_of("fails")));
	open_run(&r, HEAD(4) BODY, "fails");
	r.c.log_path = path_of("no/such/log");
	CHECK_FAILS(create(&r), -ENOENT, "no/such/log");
	CU_ASSERT_FALSE(there("fails/tiny.lock"));
	r.c.log_path = NULL;
	CHECK_OK(create(&r));
	close_run(&r);
}

static void a_new_run_beside_finished_checkpoints_says_so_and_leaves_them(void)
{
	char warnings[4096];
	uint64_t first;

	CHECK_OK_FATAL(dn_remove_tree(path_of("beside")));
	train_run(HEAD(9) BODY, "beside", NULL, 3, 0, NULL, warnings);
	CHECK_STR(warnings, "");
	first = run_at("beside/tiny.ckpt/3");
	CU_ASSERT_TRUE(first != 0 && run_at("beside/tiny.ckpt/9") == first);

	train_run(HEAD(6) BODY, "beside", NULL, 2, 1, NULL, warnings);
	CU_ASSERT_PTR_NOT_NULL(strstr(warnings,
				      "beside/tiny.ckpt: holds 3 finished checkpoints of another run (steps 3 to 9); this "
				      "run starts anew beside them, never removes them, and renames one to STEP.RUN when "
				      "it saves the same step; -resume "));
	CU_ASSERT_PTR_NOT_NULL(strstr(warnings, "/beside/tiny.ckpt/9 would go on from the last of the newest run\n"));
	CHECK_EQ(run_at("beside/tiny.ckpt/3"), first);
	CHECK_EQ(run_at("beside/tiny.ckpt/9"), first);
	CU_ASSERT_TRUE(run_at("beside/tiny.ckpt/6") > first);
	CHECK_EQ(dn_ckpt_newest(path_of("beside/tiny.ckpt")), 6);
	CU_ASSERT_FALSE(there("beside/tiny.ckpt/2") || there("beside/tiny.ckpt/4"));
	/* without checkpoints of its own as well */
	train_run(HEAD(2) BODY, "beside", NULL, 0, 1, NULL, warnings);
	CU_ASSERT_PTR_NOT_NULL(strstr(warnings, "holds 3 finished checkpoints of other runs (steps 3 to 9)"));
	CU_ASSERT_PTR_NOT_NULL(strstr(warnings, "/beside/tiny.ckpt/6 would go on"));
}

static void another_net_in_the_folder_is_refused_with_what_helps(void)
{
	struct run r;
	char want[700];

	CHECK_OK_FATAL(dn_remove_tree(path_of("other")));
	train_run(HEAD(2) BODY, "other", NULL, 2, 0, NULL, NULL);
	open_run(&r, HEAD(2) "[connected]\noutput=3\n[softmax]\n", "other");
	CHECK_FAILS(create(&r), -EINVAL, "other/tiny.ckpt/2: another net: tensor 0.biases is 5 there, 3 in this net; ");
	snprintf(want, sizeof(want), "give it another -backup than %s, rename its cfg", path_of("other"));
	CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), want));
	r.c.backup = path_of("other2");
	CHECK_OK(create(&r)); /* which helps */
	close_run(&r);
}

static void what_a_resume_may_change_and_what_changes_results_is_said_in_a_line(void)
{
#define SPLIT(n) "[net]\nbatch=8\nsubdivisions=" #n "\ninputs=6\nmax_batches=4\n"
	static const struct {
		const char *cfg;
		enum dn_shuffle there, here;
		const char *want;
	} rows[] = {
		{ SPLIT(2) BODY, DN_SHUFFLE_EPOCH, DN_SHUFFLE_EPOCH, NULL },
		{ SPLIT(2) BODY, DN_SHUFFLE_OFF, DN_SHUFFLE_OFF, NULL },
		{ SPLIT(4) BODY, DN_SHUFFLE_EPOCH, DN_SHUFFLE_EPOCH, "this run has subdivisions 4 (saved with 2): it will not" },
		{ SPLIT(2) BODY, DN_SHUFFLE_OFF, DN_SHUFFLE_EPOCH, "this run has shuffle 1 (saved with 0): it will not" },
		{ SPLIT(2) BODY, DN_SHUFFLE_EPOCH, DN_SHUFFLE_REPLACE,
		  "this run has shuffle replace (saved with 1, or by a version that did not say): it will not" },
		{ SPLIT(1) BODY, DN_SHUFFLE_REPLACE, DN_SHUFFLE_OFF,
		  "this run has subdivisions 1 (saved with 2) and shuffle 0 (saved with replace): it will not" },
	};

	for (int i = 0; i < DN_N(rows); i++) {
		struct run r;

		CHECK_OK_FATAL(dn_remove_tree(path_of("split")));
		open_run(&r, SPLIT(2) BODY, "split");
		r.c.save_every = 2;
		r.c.shuffle = rows[i].there;
		CHECK_OK_FATAL(create(&r));
		CHECK_OK_FATAL(dn_loop_run(r.l));
		close_run(&r);
		open_run(&r, rows[i].cfg, "split");
		r.c.shuffle = rows[i].here;
		r.c.resume = path_of("split/tiny.ckpt/2");
		CHECK_OK_FATAL(create(&r));
		if (rows[i].want)
			CU_ASSERT_PTR_NOT_NULL(strstr(r.t.warnings, rows[i].want));
		CHECK_EQ(strstr(r.t.warnings, "never stopped") != NULL, rows[i].want != NULL);
		close_run(&r);
	}
}

static void a_resumed_run_keeps_its_id_and_prunes_its_own(void)
{
	char warnings[4096];
	uint64_t first, second;

	CHECK_OK_FATAL(dn_remove_tree(path_of("id")));
	train_run(HEAD(6) BODY, "id", NULL, 2, 0, NULL, NULL);
	first = run_at("id/tiny.ckpt/2");
	train_run(HEAD(9) BODY, "id", NULL, 9, 0, NULL, NULL);
	second = run_at("id/tiny.ckpt/9");
	/* the folder alone stands for the run that began last, and others are named */
	train_run(HEAD(10) BODY, "id", "id/tiny.ckpt", 1, 1, NULL, warnings);
	CU_ASSERT_PTR_NOT_NULL(strstr(warnings, "holds checkpoints of several runs: resumed is step 9"));
	CU_ASSERT_PTR_NOT_NULL(strstr(warnings, "goes on beside them"));
	CHECK_EQ(run_at("id/tiny.ckpt/10"), second);
	CU_ASSERT_FALSE(there("id/tiny.ckpt/9"));
	CU_ASSERT_TRUE(there("id/tiny.ckpt/2") && there("id/tiny.ckpt/4") && there("id/tiny.ckpt/6"));
	/* a step is what it is, and later ones of the same run are named */
	train_run(HEAD(5) BODY, "id", "id/tiny.ckpt/4", 1, 2, NULL, warnings);
	CHECK_EQ(run_at("id/tiny.ckpt/5"), first);
	CU_ASSERT_PTR_NULL(strstr(warnings, "several runs"));
	CU_ASSERT_PTR_NOT_NULL(strstr(warnings, "holds later checkpoints of this run (up to step 6)"));
	CU_ASSERT_TRUE(there("id/tiny.ckpt/10") && there("id/tiny.ckpt/6") && !there("id/tiny.ckpt/2") &&
		       !there("id/tiny.ckpt/4"));
	/* elsewhere it is the same run, too */
	CHECK_OK_FATAL(dn_remove_tree(path_of("id2")));
	train_run(HEAD(12) BODY, "id2", "id/tiny.ckpt", 12, 2, NULL, warnings);
	CHECK_EQ(run_at("id2/tiny.ckpt/12"), second);
}

static void a_checkpoint_without_an_id_resumes_as_a_run_that_gets_one(void)
{
	char warnings[4096], *text, *id;
	const char *meta = "old/tiny.ckpt/4/meta.json";

	CHECK_OK_FATAL(dn_remove_tree(path_of("old")));
	train_run(HEAD(4) BODY, "old", NULL, 4, 0, NULL, NULL);
	text = file_text(meta);
	id = strstr(text, ",\"run\":");
	CU_ASSERT_PTR_NOT_NULL_FATAL(id);
	memmove(id, id + 25, strlen(id + 25) + 1);
	put_file(meta, text);
	dn_free(text);
	CHECK_EQ(run_at("old/tiny.ckpt"), 0);
	train_run(HEAD(8) BODY, "old", "old/tiny.ckpt", 2, 1, NULL, warnings);
	CU_ASSERT_PTR_NOT_NULL(strstr(warnings, "holds 1 finished checkpoint from before runs had ids, maybe its own (step 4); "
						"this run goes on beside them"));
	CHECK_EQ(run_at("old/tiny.ckpt/4"), 0);
	CU_ASSERT_TRUE(run_at("old/tiny.ckpt/8") != 0);
	CU_ASSERT_FALSE(there("old/tiny.ckpt/6"));
}

/* the events of a log, and how many lines are none */
static int read_events(const char *name, char *kinds, size_t cap)
{
	char *text = file_text(name), *line, *end;
	int bad = 0;
	size_t n = 0;

	kinds[0] = '\0';
	for (line = text; (end = strchr(line, '\n')); line = end + 1) {
		cJSON *j, *e;

		*end = '\0';
		j = cJSON_ParseWithOpts(line, NULL, 1);
		e = cJSON_GetObjectItem(j, "event");
		if (cJSON_IsString(e) && n + 2 < cap) {
			const cJSON *step = cJSON_GetObjectItem(j, "step");

			kinds[n++] = strcmp(e->valuestring, "step") ? e->valuestring[0] : (char)('0' + step->valueint);
			if (!strcmp(e->valuestring, "start"))
				kinds[n - 1] = cJSON_GetObjectItem(j, "resume") ? 'R' : 'S';
		}
		bad += !cJSON_IsString(e);
		cJSON_Delete(j);
	}
	kinds[n] = '\0';
	bad += *line != '\0';
	dn_free(text);
	return bad;
}

static void a_resumed_run_goes_on_in_its_log(void)
{
	char kinds[100], want[40], warnings[4096];
	char *text;
	int fd;

	CHECK_OK_FATAL(dn_remove_tree(path_of("log")));
	train_run(HEAD(4) BODY, "log", NULL, 2, 0, "run.log", NULL);
	CHECK_EQ(read_events("run.log", kinds, sizeof(kinds)), 0);
	CHECK_STR(kinds, "S12s34sssse");
	train_run(HEAD(4) BODY, "log", "log/tiny.ckpt/2", 2, 0, "run.log", NULL);
	CHECK_EQ(read_events("run.log", kinds, sizeof(kinds)), 0);
	CHECK_STR(kinds, "S12s34sssseR34sssse");
	text = file_text("run.log");
	snprintf(want, sizeof(want), "\"run\":\"%016" PRIx64 "\"", run_at("log/tiny.ckpt/2"));
	CU_ASSERT_TRUE(strstr(text, want) && strstr(strstr(text, want) + 1, want));
	CU_ASSERT_TRUE(strstr(text, "\"batches_done\":0,") && strstr(text, "\"batches_done\":2,"));
	dn_free(text);
	/* a line that a killed run did not finish */
	fd = open(path_of("run.log"), O_WRONLY | O_APPEND);
	CHECK_EQ(write(fd, "{\"v\":1,\"event\":\"st", 18), 18);
	close(fd);
	train_run(HEAD(4) BODY, "log", "log/tiny.ckpt/4", 0, 0, "run.log", NULL);
	CHECK_EQ(read_events("run.log", kinds, sizeof(kinds)), 0);
	CHECK_STR(kinds, "S12s34sssseR34sssseRssse");
	/* a log that is nothing but such a line, or is not there */
	put_file("run2.log", "{\"v\":1,\"event\":");
	train_run(HEAD(4) BODY, "log", "log/tiny.ckpt/4", 0, 0, "run2.log", NULL);
	CHECK_EQ(read_events("run2.log", kinds, sizeof(kinds)), 0);
	CHECK_STR(kinds, "Rssse");
	train_run(HEAD(4) BODY, "log", "log/tiny.ckpt/4", 0, 0, "run3.log", NULL);
	CHECK_EQ(read_events("run3.log", kinds, sizeof(kinds)), 0);
	CHECK_STR(kinds, "Rssse");
	/* one of before there were ids may be its own; another run's is not */
	put_file("run4.log", "{\"v\":1,\"event\":\"start\",\"cfg\":\"x\"}\n");
	train_run(HEAD(4) BODY, "log", "log/tiny.ckpt/4", 0, 0, "run4.log", warnings);
	CHECK_EQ(read_events("run4.log", kinds, sizeof(kinds)), 0);
	CHECK_STR(kinds, "SRssse");
	CU_ASSERT_PTR_NULL(strstr(warnings, "run4.log"));
	put_file("run5.log", "{\"v\":1,\"event\":\"start\",\"run\":\"00000000000000ab\",\"cfg\":\"x\"}\n");
	train_run(HEAD(4) BODY, "log", "log/tiny.ckpt/4", 0, 0, "run5.log", warnings);
	CHECK_EQ(read_events("run5.log", kinds, sizeof(kinds)), 0);
	CHECK_STR(kinds, "Rssse");
	CU_ASSERT_PTR_NOT_NULL(strstr(warnings, "run5.log: is the log of another run (00000000000000ab): begun anew"));
	/* a new run begins a new one */
	train_run(HEAD(1) BODY, "log", NULL, 0, 0, "run.log", NULL);
	CHECK_EQ(read_events("run.log", kinds, sizeof(kinds)), 0);
	CHECK_STR(kinds, "S1ssse");
}

/* what lies behind the piece that is read at a time */
static void a_long_unfinished_line_is_cut_where_it_begins(void)
{
	char kinds[100], *text = dn_alloc(20001);

	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	memset(text, 'x', 20000);
	memcpy(text, "{\"v\":1,\"event\":\"x\"}\n", 20);
	text[20000] = '\0';
	put_file("long.log", text);
	train_run(HEAD(4) BODY, "log", "log/tiny.ckpt/4", 0, 0, "long.log", NULL);
	CHECK_EQ(read_events("long.log", kinds, sizeof(kinds)), 0);
	CHECK_STR(kinds, "xRssse");
	dn_free(text);
}

static void another_net_of_the_same_tensors_is_refused_unless_forced(void)
{
	struct run r;
	char *before, *after;

	CHECK_OK_FATAL(dn_remove_tree(path_of("net")));
	train_run(HEAD(4) BODY, "net", NULL, 2, 0, "net.log", NULL);
	before = file_text("net.log");
	open_run(&r, HEAD(8) TANH "[cost]\ntype=L1\n", "net");
	r.c.resume = path_of("net/tiny.ckpt");
	r.c.log_path = path_of("net.log");
	CHECK_FAILS(create(&r), -EINVAL,
		    "net/tiny.ckpt/4: another net: t.cfg:11: [connected] activation=tanh; was saved with leaky, "
		    "and 1 more difference (-force resumes all the same)");
	after = file_text("net.log");
	CHECK_STR(after, before); /* refused before the log is touched */
	dn_free(before);
	dn_free(after);
	r.c.force = true;
	CHECK_OK_FATAL(create(&r));
	CU_ASSERT_PTR_NOT_NULL(
		strstr(r.t.warnings, "another net was saved: t.cfg:11: [connected] activation=tanh; was saved with leaky"));
	CU_ASSERT_PTR_NOT_NULL(strstr(r.t.warnings, "t.cfg:16: layer 3 is [cost]; the net was saved with 3 layers"));
	CHECK_EQ(dn_loop_batch_number(r.l), 4);
	close_run(&r);
	/* what a training may change */
	open_run(
		&r,
		"[net]\nbatch=8\ninputs=6\nlearning_rate=.5\npolicy=poly\npower=2\nmomentum=.5\ndecay=0\nmax_batches=9\n[block]\n"
		"frozen=1\n[connected]\noutput=5\nactivation=leaky\nlearning_rate=.1\n[block]\n[connected]\noutput=3\n"
		"activation=linear\nstopbackward=0\n[softmax]\ngroups=1\n",
		"net");
	r.c.resume = path_of("net/tiny.ckpt");
	CHECK_OK(create(&r));
	close_run(&r);
}

/* --- said before step 1 --- */

static void a_name_too_long_for_the_last_file_is_refused_at_once(void)
{
	char base[300], path[1200];
	const size_t ending = strlen("_final.weights.tmp.") + (size_t)snprintf(path, sizeof(path), "%ld", (long)getpid());
	struct run r;

	CHECK_OK_FATAL(dn_remove_tree(path_of("long")));
	for (int over = 1; over >= 0; over--) {
		memset(base, 'n', sizeof(base));
		base[255 - ending + (size_t)over] = '\0';
		open_run(&r, HEAD(3) BODY, "long");
		r.c.base = base;
		r.c.save_every = 1;
		if (over) {
			CHECK_FAILS(create(&r), -ENAMETOOLONG, "its name has 256 bytes, the file system takes 255");
		} else {
			CHECK_OK_FATAL(create(&r));
			CHECK_OK(dn_loop_run(r.l));
			CHECK_EQ(r.steps, 3);
			snprintf(path, sizeof(path), "long/%s_final.weights", base);
			CU_ASSERT_TRUE(there(path));
		}
		close_run(&r);
	}
	/* the number of the last epoch counts */
	open_run(&r, HEAD(9000000000) BODY, "long");
	base[255 - ending - 1] = '\0';
	r.c.base = base;
	CHECK_FAILS(create(&r), -ENAMETOOLONG, "_1800000000.weights: while it is written");
	close_run(&r);
}

static void a_folder_in_the_place_of_a_file_is_refused_at_once(void)
{
	static const char *const rests[] = { ".weights", "_final.weights", "_last.weights", "_best.weights", ".backup" };
	struct run r;

	for (int i = 0; i < DN_N(rests); i++) {
		char name[100];

		CHECK_OK_FATAL(dn_remove_tree(path_of("place")));
		snprintf(name, sizeof(name), "place/tiny%s", rests[i]);
		CHECK_OK_FATAL(dn_make_dirs(path_of(name)));
		open_run(&r, HEAD(3) BODY, "place");
		CHECK_FAILS(create(&r), -EEXIST, name);
		close_run(&r);
	}
	CHECK_OK_FATAL(dn_remove_tree(path_of("place")));
	CHECK_OK_FATAL(dn_make_dirs(path_of("place")));
	put_file("place/tiny.ckpt", "");
	open_run(&r, HEAD(3) BODY, "place");
	r.c.save_every = 1;
	CHECK_FAILS(create(&r), -ENOTDIR, "place/tiny.ckpt");
	r.c.save_every = 0;
	CHECK_OK(create(&r));
	close_run(&r);
}

static void a_run_without_an_end_says_so(void)
{
	struct run r;

	for (int i = 0; i < 2; i++) {
		open_run(&r, i ? HEAD(0) BODY : ENDLESS BODY, "endless");
		r.stop_after = 3;
		CHECK_OK_FATAL(create(&r));
		CHECK_FAILS(dn_loop_run(r.l), -ECANCELED, "stopped");
		CU_ASSERT_PTR_NOT_NULL(strstr(r.t.warnings, i ? "t.cfg:8: [net] max_batches=0: trains until it is stopped"
							      : "t.cfg:1: [net] has no max_batches: trains until it is stopped"));
		close_run(&r);
	}
}

static void an_evaluation_that_never_comes_is_said(void)
{
	struct run r;

	for (int every = 3; every <= 4; every++) {
		open_run(&r, HEAD(3) BODY, "never");
		r.c.valid_every = every;
		CHECK_OK_FATAL(create(&r));
		CHECK_OK(dn_loop_run(r.l));
		CHECK_EQ(!strstr(r.t.warnings, "-valid 4: no evaluation comes before the end"), every == 3);
		close_run(&r);
	}
}

static void more_files_than_the_disk_holds_are_said(void)
{
	struct run r;

	/* 1,8e14 epochs, a file each */
	open_run(&r, HEAD(900000000000000) BODY, "space");
	r.stop_after = 1;
	CHECK_OK_FATAL(create(&r));
	CHECK_FAILS(dn_loop_run(r.l), -ECANCELED, "stopped");
	CU_ASSERT_PTR_NOT_NULL(strstr(r.t.warnings, "this run's 180000000000004 weights files of"));
	CU_ASSERT_PTR_NOT_NULL(strstr(r.t.warnings, "the disk may fill up on the way"));
	close_run(&r);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(a_second_run_is_refused_and_told_who_has_the_folder),
	CASE(a_killed_runs_lock_is_taken_over),
	CASE(of_many_that_start_at_once_one_gets_it),
	CASE(a_lock_file_that_was_removed_by_hand_is_the_next_runs),
	CASE(what_the_file_says_decides_only_where_there_are_no_locks),
	CASE(a_live_runs_folder_is_refused_before_anything_of_it_changes),
	CASE(a_start_that_fails_leaves_no_lock),
	CASE(a_new_run_beside_finished_checkpoints_says_so_and_leaves_them),
	CASE(another_net_in_the_folder_is_refused_with_what_helps),
	CASE(what_a_resume_may_change_and_what_changes_results_is_said_in_a_line),
	CASE(a_resumed_run_keeps_its_id_and_prunes_its_own),
	CASE(a_checkpoint_without_an_id_resumes_as_a_run_that_gets_one),
	CASE(a_resumed_run_goes_on_in_its_log),
	CASE(a_long_unfinished_line_is_cut_where_it_begins),
	CASE(another_net_of_the_same_tensors_is_refused_unless_forced),
	CASE(a_name_too_long_for_the_last_file_is_refused_at_once),
	CASE(a_folder_in_the_place_of_a_file_is_refused_at_once),
	CASE(a_run_without_an_end_says_so),
	CASE(an_evaluation_that_never_comes_is_said),
	CASE(more_files_than_the_disk_holds_are_said),
	{ NULL, NULL },
};

int main(void)
{
	int rc;

	snprintf(dir, sizeof(dir), "/tmp/test_runs.%ld", (long)getpid());
	if (dn_make_dirs(dir))
		return 2;
	rc = check_run("runs", cases);
	dn_remove_tree(dir);
	return rc;
}
