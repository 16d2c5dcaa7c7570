/* train: the loop with its files and its log. */
#include <errno.h>

#include "io/ckpt.h"
#include "io/weights.h"
#include "train_help.h"

static void a_run_learns_and_leaves_its_files(void)
{
	struct dn_weights_info in;
	struct run r;

	CHECK_OK_FATAL(dn_remove_tree(path_of("a")));
	open_run(&r, HEAD(8, 2, 100) NORM, "a", 40);
	r.c.save_every = 40;
	r.c.valid_every = 50;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	CHECK_EQ(r.e.steps, 100);
	CHECK_EQ(r.e.valids, 2);
	CU_ASSERT_TRUE(r.e.last_loss < .5 * r.e.first_loss);
	CU_ASSERT_TRUE(r.e.top1 > .9);
	/* an epoch is 5 updates; the best of two evaluations may be either */
	CU_ASSERT_PTR_NOT_NULL(strstr(r.e.saved, "tiny_1.weights tiny_2.weights"));
	CU_ASSERT_PTR_NOT_NULL(strstr(r.e.saved, "tiny.weights tiny_final.weights tiny_last.weights "));
	CU_ASSERT_TRUE(there("a/tiny_20.weights") && there("a/tiny_best.weights") && there("a/tiny_last.weights"));
	CU_ASSERT_FALSE(there("a/tiny.backup"));
	CU_ASSERT_TRUE(there("a/tiny.ckpt/40/meta.json") && there("a/tiny.ckpt/80/meta.json"));
	CHECK_OK(dn_weights_check(r.t.net, path_of("a/tiny_final.weights"), false, &in));
	CHECK_EQ(in.header.seen, 800);
	CHECK_EQ(dn_loop_batch_number(r.l), 100);
	close_run(&r);
}

static void of_equal_evaluations_the_first_is_the_best(void)
{
	struct dn_weights_info in;
	struct run r;

	CHECK_OK_FATAL(dn_remove_tree(path_of("e")));
	open_run(&r, "[net]\nbatch=8\ninputs=6\nlearning_rate=0\nmomentum=.9\ndecay=0\nmax_batches=3\n" BODY, "e", 40);
	r.c.valid_every = 1;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	CHECK_EQ(r.e.valids, 3);
	CHECK_OK(dn_weights_check(r.t.net, path_of("e/tiny_best.weights"), false, &in));
	CHECK_EQ(in.header.seen, 8);
	close_run(&r);
}

static void the_log_has_its_events_and_fields(void)
{
	static const struct dn_option table[] = {
		{ .key = "flag", .type = DN_OPT_SWITCH },
		{ .key = "n", .type = DN_OPT_INT, .def = "7" },
		{ .key = "x", .type = DN_OPT_FLOAT, .def = ".5" },
		{ .key = "s", .type = DN_OPT_STRING, .def = "a\"b" },
		{ .key = "u", .type = DN_OPT_INT },
		{ .key = NULL },
	};
	struct dn_options *o;
	struct run r;
	cJSON *all, *j, *k;
	int steps = 0, saves = 0, valids = 0, i = 0, n;

	CHECK_OK_FATAL(dn_options_create(&o));
	CHECK_OK_FATAL(dn_options_add(o, table));
	CHECK_OK_FATAL(dn_remove_tree(path_of("b")));
	open_run(&r, HEAD(8, 2, 6) BODY, "b", 40);
	r.c.log_path = path_of("b.log");
	r.c.save_every = 3;
	r.c.valid_every = 4;
	r.c.options = o;
	r.c.plugin = "shard";
	r.c.plugin_options = o;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	all = read_log("b.log");
	n = cJSON_GetArraySize(all);
	cJSON_ArrayForEach(j, all)
	{
		const char *event = text_of(j, "event");

		CHECK_EQ(number_of(j, "v"), 1);
		CHECK_EQ(!strcmp(event, "start"), i == 0);
		CHECK_EQ(!strcmp(event, "end"), i == n - 1);
		i++;
		if (!strcmp(event, "step")) {
			steps++;
			CHECK_EQ(number_of(j, "step"), steps);
			CHECK_EQ(number_of(j, "images"), 8 * steps);
			CU_ASSERT_TRUE(number_of(j, "loss") > 0 && number_of(j, "seconds") >= 0);
			CU_ASSERT_DOUBLE_EQUAL(number_of(j, "rate"), .05, 1e-12);
			CU_ASSERT_TRUE(number_of(j, "rss_bytes") > 0);
			CHECK_EQ(number_of(j, "sent_bytes"), 0);
			(void)number_of(j, "exposed_ms");
		} else if (!strcmp(event, "save")) {
			saves++;
			CU_ASSERT_TRUE(*text_of(j, "path") && number_of(j, "bytes") > 0 && number_of(j, "seconds") >= 0);
		} else if (!strcmp(event, "valid")) {
			valids++;
			CHECK_EQ(number_of(j, "images"), 13);
			CU_ASSERT_TRUE(number_of(j, "topk") >= number_of(j, "top1") && number_of(j, "loss") > 0);
		}
	}
	CHECK_EQ(steps, 6);
	CHECK_EQ(valids, 1);
	CHECK_EQ(saves, 2 + 1 + 3 + 1); /* checkpoints, the epoch, the final files, the best */
	j = cJSON_GetArrayItem(all, 0);
	CHECK_STR(text_of(j, "cfg"), "t.cfg");
	CHECK_STR(text_of(j, "backend"), check_backend("ref"));
	CHECK_EQ(number_of(j, "world"), 1);
	CHECK_EQ(number_of(j, "seed"), 3);
	CHECK_EQ(number_of(j, "threads"), 1);
	CHECK_EQ(number_of(j, "params"), 6 * 5 + 5 + 5 * 3 + 3);
	CU_ASSERT_TRUE(cJSON_HasObjectItem(j, "plan_hash"));
	k = cJSON_GetObjectItem(j, "options");
	CHECK_EQ(number_of(k, "flag"), 0);
	CHECK_EQ(number_of(k, "shard.n"), 7);
	CU_ASSERT_TRUE(cJSON_IsNull(cJSON_GetObjectItem(k, "u")));
	CU_ASSERT_DOUBLE_EQUAL(number_of(k, "x"), .5, 0);
	CHECK_STR(text_of(k, "s"), "a\"b");
	j = cJSON_GetArrayItem(all, n - 1);
	CHECK_EQ(number_of(j, "steps"), 6);
	CHECK_EQ(number_of(j, "allocs_after_first_step"), 0);
	CU_ASSERT_TRUE(number_of(j, "peak_rss_bytes") > 0 && number_of(j, "seconds") > 0);
	k = cJSON_GetArrayItem(cJSON_GetObjectItem(j, "ranks"), 0);
	CHECK_EQ(number_of(k, "rank"), 0);
	CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItem(k, "regions")), 11);
	CHECK_EQ(number_of(cJSON_GetObjectItem(k, "gather"), "planned_bytes"), 0);
	CHECK_EQ(number_of(cJSON_GetObjectItem(k, "reduce"), "counted_calls"), 0);
	CHECK_STR(text_of(cJSON_GetArrayItem(cJSON_GetObjectItem(k, "regions"), 0), "name"), "params");
	cJSON_Delete(all);
	close_run(&r);
	dn_options_destroy(o);
}

/* peak bytes are those of the process: only a process that has done nothing else can compare them */
static void steps_after_the_first_allocate_nothing(void)
{
	struct dn_loop_step s;
	uint64_t before;
	struct run r;

	open_run(&r, HEAD(8, 4, 100) NORM, "s", 40);
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_step(r.l, &s));
	CHECK_EQ(s.step, 1);
	CHECK_EQ(s.seen, 8);
	before = dn_mem_n_allocs();
	for (int i = 2; i < 30; i++) {
		CHECK_OK_FATAL(dn_loop_step(r.l, &s));
		CHECK_EQ(s.step, i);
	}
	CHECK_EQ(dn_mem_n_allocs(), before);
	CU_ASSERT_DOUBLE_EQUAL(s.epoch, 29 * 8 / 40.0, 1e-12);
	close_run(&r);
}

static void resume_equals_uninterrupted(const char *cfg)
{
	float whole[128], resumed[128];
	struct dn_loop_step s;
	double loss;
	struct run r;

	memset(whole, 0, sizeof(whole));
	memset(resumed, 0, sizeof(resumed));
	CHECK_OK_FATAL(dn_remove_tree(path_of("r")));
	open_run(&r, cfg, "r", 30);
	r.c.save_every = 7;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	values_of(r.t.net, whole);
	loss = r.e.last_loss;
	close_run(&r);

	open_run(&r, cfg, "r2", 30);
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_step(r.l, &s));		      /* a loader that has to be thrown away */
	CHECK_EQ(dn_ckpt_newest(path_of("r/tiny.ckpt")), 12); /* the end is kept as well */
	CHECK_OK_FATAL(dn_loop_resume(r.l, path_of("r/tiny.ckpt/7")));
	CHECK_EQ(dn_loop_batch_number(r.l), 7);
	CHECK_OK_FATAL(dn_loop_run(r.l));
	values_of(r.t.net, resumed);
	CHECK_EQ(r.e.steps, 5);
	CHECK_EQ(r.e.last_loss == loss, 1);
	CHECK_BITS(resumed, whole, sizeof(whole));
	close_run(&r);
}

static void a_resumed_run_equals_an_uninterrupted_one(void)
{
	resume_equals_uninterrupted(HEAD(8, 2, 12) NORM);
}

/* both moments are in the checkpoint, and t goes on counting */
static void a_resumed_adam_equals_an_uninterrupted_one(void)
{
	resume_equals_uninterrupted(HEAD(8, 2, 12) "optimizer=adam\nB1=.8\n" NORM);
	resume_equals_uninterrupted(HEAD(8, 2, 12) "optimizer=adamw\neps=1e-4\n" NORM);
}

static void resuming_another_run_is_refused_unless_forced(void)
{
	struct run r;

	CHECK_OK_FATAL(dn_remove_tree(path_of("o")));
	open_run(&r, HEAD(8, 2, 4) BODY, "o", 30);
	r.c.save_every = 4;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	close_run(&r);

	open_run(&r, HEAD(16, 2, 12) BODY, "o2", 30);
	CHECK_OK_FATAL(create(&r));
	CHECK_FAILS(dn_loop_resume(r.l, path_of("o/tiny.ckpt")), -EINVAL, "batch 8, this run has 16");
	close_run(&r);
	open_run(&r, HEAD(8, 2, 12) BODY, "o2", 30);
	r.c.seed = 4;
	CHECK_OK_FATAL(create(&r));
	CHECK_FAILS(dn_loop_resume(r.l, path_of("o/tiny.ckpt")), -EINVAL, "seed 3, this run has 4");
	close_run(&r);
	open_run(&r, HEAD(8, 2, 12) BODY, "o2", 31);
	CHECK_OK_FATAL(create(&r));
	CHECK_FAILS(dn_loop_resume(r.l, path_of("o/tiny.ckpt")), -EINVAL, "made-30, this run has made-31");
	close_run(&r);
	open_run(&r, HEAD(8, 2, 12) BODY, "o2", 30);
	r.train.ds.hash++;
	CHECK_OK_FATAL(create(&r));
	CHECK_FAILS(dn_loop_resume(r.l, path_of("o/tiny.ckpt")), -EINVAL, "hash");
	close_run(&r);
	open_run(&r, HEAD(8, 2, 12) NORM, "o2", 30);
	CHECK_OK_FATAL(create(&r));
	CHECK_FAILS(dn_loop_resume(r.l, path_of("o/tiny.ckpt")), -EINVAL, "another net");
	close_run(&r);
	/* another net in the run's own folder stops it before it starts */
	open_run(&r, HEAD(8, 2, 12) NORM, "o", 30);
	CHECK_FAILS(create(&r), -EINVAL, "another net");
	close_run(&r);
	open_run(&r, HEAD(8, 2, 12) BODY, "o2", 31);
	r.c.force = true;
	r.c.seed = 4;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK(dn_loop_resume(r.l, path_of("o/tiny.ckpt")));
	CU_ASSERT_PTR_NOT_NULL(strstr(r.t.warnings, "seed 3, this run has 4"));
	CU_ASSERT_PTR_NOT_NULL(strstr(r.t.warnings, "made-31"));
	CHECK_EQ(dn_loop_batch_number(r.l), 4);
	close_run(&r);
}

static void a_loss_that_is_not_finite_ends_the_run_without_final_files(void)
{
	struct run r;
	cJSON *all, *j;
	int n;

	CHECK_OK_FATAL(dn_remove_tree(path_of("n")));
	open_run(&r, HEAD(8, 2, 12) BLOCKS, "n", 80);
	r.train.poisoned = true;
	r.c.log_path = path_of("n.log");
	r.c.shuffle = DN_SHUFFLE_OFF;
	CHECK_OK_FATAL(create(&r));
	CHECK_FAILS(dn_loop_run(r.l), -EDOM, "step 1: block a: loss is nan");
	CU_ASSERT_FALSE(there("n/tiny.weights"));
	CU_ASSERT_FALSE(there("n/tiny_final.weights"));
	CHECK_EQ(r.e.steps, 1);
	close_run(&r);
	all = read_log("n.log");
	n = cJSON_GetArraySize(all);
	CHECK_EQ(n, 2);
	j = cJSON_GetArrayItem(all, 1);
	CHECK_STR(text_of(j, "event"), "step");
	CHECK_STR(text_of(j, "nonfinite"), "nan");
	CU_ASSERT_TRUE(cJSON_IsNull(cJSON_GetObjectItem(j, "loss")));
	cJSON_Delete(all);
}

static void weights_past_the_last_batch_warn_and_still_write_files(void)
{
	struct run r;

	CHECK_OK_FATAL(dn_remove_tree(path_of("p")));
	open_run(&r, HEAD(8, 2, 5) BODY, "p", 30);
	CHECK_OK_FATAL(create(&r));
	dn_loop_set_seen(r.l, 8 * 9 + 3);
	CHECK_OK_FATAL(dn_loop_run(r.l));
	CHECK_EQ(r.e.steps, 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(r.t.warnings, "9 batches are done, max_batches=5"));
	CU_ASSERT_TRUE(there("p/tiny.weights"));
	close_run(&r);
}

static void what_cannot_be_written_is_refused_before_step_1(void)
{
	struct run r;
	FILE *f;

	open_run(&r, HEAD(8, 2, 5) BODY, "w", 30);
	f = fopen(path_of("file"), "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fclose(f);
	r.c.backup = path_of("file/below");
	CU_ASSERT_NOT_EQUAL(create(&r), 0);
	r.c.backup = path_of("w");
	r.c.log_path = path_of("absent/x.log");
	CHECK_FAILS(create(&r), -ENOENT, "absent/x.log");
	r.c.log_path = "/dev/full";
	CHECK_FAILS(create(&r), -ENOSPC, "/dev/full");
	r.c.log_path = NULL;
	r.c.valid_every = 1;
	r.valid.ds.has_truth = false;
	CHECK_FAILS(create(&r), -EINVAL, "no truth");
	close_run(&r);
}

static void failing_allocations_end_cleanly(void)
{
	int failed = 0;

	for (uint64_t n = 1; n < 400; n++) {
		struct run r;
		int err;

		open_run(&r, HEAD(8, 2, 2) BODY, "t", 10);
		r.c.save_every = 1;
		r.c.valid_every = 1;
		r.c.log_path = path_of("t.log");
		dn_mem_fail_at(n);
		err = create(&r);
		if (!err)
			err = dn_loop_run(r.l);
		dn_mem_fail_at(0);
		close_run(&r);
		if (!err)
			break;
		failed++;
	}
	CU_ASSERT_TRUE(failed > 20 && failed < 390);
}

/* dense targets in NumPy files: the best evaluation is the one of least loss */
static void a_run_on_arrays_with_dense_targets_keeps_the_lowest_loss(void)
{
	const int64_t shape_x[2] = { 30, 6 }, shape_t[2] = { 30, 3 };
	float x[180], t[90] = { 0 };
	struct dn_datafile *d;
	struct dn_dataset *train, *valid;
	struct dn_result m;
	struct run r;
	FILE *f;

	CHECK_OK_FATAL(dn_remove_tree(path_of("d")));
	open_run(&r, HEAD(8, 2, 40) BODY, "d", 30);
	for (int64_t i = 0; i < 30; i++) {
		CHECK_OK(made_get(&r.train.ds, i, NULL, x + 6 * i, NULL, 0, NULL));
		t[3 * i + i % 3] = 1;
	}
	CHECK_OK_FATAL(dn_npy_write(path_of("x.npy"), 2, shape_x, x));
	CHECK_OK_FATAL(dn_npy_write(path_of("t.npy"), 2, shape_t, t));
	f = fopen(path_of("d.data"), "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fprintf(f, "format=npy\ntrain=%s\ntrain_truth=%s\nvalid=%s\nvalid_truth=%s\n", path_of("x.npy"), path_of("t.npy"),
		path_of("x.npy"), path_of("t.npy"));
	fclose(f);
	CHECK_OK_FATAL(dn_datafile_read(&d, path_of("d.data"), false));
	CHECK_OK_FATAL(dn_dataset_open(&train, d, &(struct dn_dataset_config){ .inputs = 6, .truths = 3 }));
	CHECK_OK_FATAL(dn_dataset_open(&valid, d, &(struct dn_dataset_config){ .valid = true, .inputs = 6, .truths = 3 }));
	r.c.valid_every = 20;
	r.c.save_every_seconds = 1e-9;
	CHECK_OK_FATAL(dn_loop_create(&r.l, r.t.net, train, valid, &alone, &r.c));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	CHECK_EQ(r.e.valids, 2);
	CHECK_EQ(r.e.top1 == 0, 1); /* no classes to count */
	CHECK_EQ(dn_ckpt_newest(path_of("d/tiny.ckpt")), 40);
	CU_ASSERT_FALSE(there("d/tiny.ckpt/37"));
	CU_ASSERT_TRUE(there("d/tiny.ckpt/38/meta.json")); /* one a step, of which three are kept */
	CHECK_OK_FATAL(dn_weights_load(r.t.net, path_of("d/tiny_best.weights"), -1, false, NULL));
	CHECK_OK_FATAL(dn_evaluate(r.t.net, valid, &(struct dn_eval_options){ .top = 1 }, &alone, &m));
	CU_ASSERT_TRUE(m.loss < 30 * .5);
	close_run(&r);
	dn_dataset_close(train);
	dn_dataset_close(valid);
	dn_datafile_destroy(d);
}

static const struct check_case cases[] = {
	{ "a_run_learns_and_leaves_its_files", a_run_learns_and_leaves_its_files },
	{ "of_equal_evaluations_the_first_is_the_best", of_equal_evaluations_the_first_is_the_best },
	{ "the_log_has_its_events_and_fields", the_log_has_its_events_and_fields },
	{ "steps_after_the_first_allocate_nothing", steps_after_the_first_allocate_nothing },
	{ "a_resumed_run_equals_an_uninterrupted_one", a_resumed_run_equals_an_uninterrupted_one },
	{ "a_resumed_adam_equals_an_uninterrupted_one", a_resumed_adam_equals_an_uninterrupted_one },
	{ "resuming_another_run_is_refused_unless_forced", resuming_another_run_is_refused_unless_forced },
	{ "a_loss_that_is_not_finite_ends_the_run_without_final_files",
	  a_loss_that_is_not_finite_ends_the_run_without_final_files },
	{ "weights_past_the_last_batch_warn_and_still_write_files", weights_past_the_last_batch_warn_and_still_write_files },
	{ "what_cannot_be_written_is_refused_before_step_1", what_cannot_be_written_is_refused_before_step_1 },
	{ "a_run_on_arrays_with_dense_targets_keeps_the_lowest_loss", a_run_on_arrays_with_dense_targets_keeps_the_lowest_loss },
	{ "failing_allocations_end_cleanly", failing_allocations_end_cleanly },
	{ NULL, NULL },
};

int main(void)
{
	return train_help_run("train_loop", cases);
}
