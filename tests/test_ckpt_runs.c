/* io: folders that hold checkpoints of several runs, and checkpoints of nets that differ without a tensor showing it. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "io/ckpt.h"
#include "net_help.h"

static char dir[256]; /* of this process, made by main() */
static const struct dn_group alone = DN_GROUP_ALONE;

static const char *path_of(const char *name)
{
	static char path[64][640];
	static int k;

	k = (k + 1) % 64;
	snprintf(path[k], sizeof(path[k]), "%s/%s", dir, name);
	return path[k];
}

static bool there(const char *name)
{
	return access(path_of(name), F_OK) == 0;
}

#define HEAD "[net]\nbatch=2\nwidth=4\nheight=4\nchannels=2\nlearning_rate=.1\n"
#define NORMED "[conv]\nfilters=3\nbatch_normalize=1\nactivation=relu\n"
#define BODY "[connected]\noutput=4\nactivation=linear\n[softmax]\n"

static void open_net(struct net_help *t, const char *cfg, bool legacy)
{
	struct dn_net_options o = { .world = 1, .train = true, .seed = 7, .legacy_bn = legacy };

	CHECK_OK_FATAL(net_help_build(t, "ref", cfg, &o));
	CHECK_OK_FATAL(net_help_ready(t, true));
}

static void save(struct net_help *t, const char *folder, int64_t step, uint64_t run, int keep)
{
	struct dn_ckpt_state s = { .step = step, .seen = 2 * (uint64_t)step, .run = run, .batch = 2, .subdivisions = 1 };

	CHECK_OK_FATAL(dn_ckpt_save(t->net, path_of(folder), &s, keep, &alone, NULL));
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

static char *meta_of(const char *path)
{
	char *text, name[300];
	size_t n;

	snprintf(name, sizeof(name), "%s/meta.json", path);
	CHECK_OK_FATAL(dn_file_read(path_of(name), 1 << 20, &text, &n));
	return text;
}

static void put_meta(const char *path, const char *text)
{
	char name[300];
	FILE *f;

	snprintf(name, sizeof(name), "%s/meta.json", path);
	f = fopen(path_of(name), "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputs(text, f);
	fclose(f);
}

/* meta.json gains the id and nothing else */
static void the_id_is_all_that_meta_json_gains(void)
{
	const char *with = "{\"v\":1,\"run\":\"00000000000000ab\",", *without = "{\"v\":1,";
	struct net_help t;
	char *a, *b;

	open_net(&t, HEAD BODY, false);
	save(&t, "gains", 1, 0, 0);
	a = meta_of("gains/1");
	save(&t, "gains2", 1, 0xab, 0);
	b = meta_of("gains2/1");
	CU_ASSERT_TRUE_FATAL(dn_starts(a, without) && dn_starts(b, with));
	CHECK_STR(b + strlen(with), a + strlen(without));
	CHECK_EQ(run_at("gains/1"), 0);
	CHECK_EQ(run_at("gains2/1"), 0xab);
	dn_free(a);
	dn_free(b);
	net_help_close(&t);
}

static void a_faulty_id_is_refused(void)
{
	static const char *const ids[] = { "\"0123456789abcde\"", "\"0123456789abcdefg\"", "17", "null", "\"\"" };
	struct net_help t;
	struct dn_ckpt *c;
	char *text, *all;

	open_net(&t, HEAD BODY, false);
	save(&t, "faulty", 1, 0, 0);
	text = meta_of("faulty/1");
	all = dn_alloc(strlen(text) + 64);
	CU_ASSERT_PTR_NOT_NULL_FATAL(all);
	for (int i = 0; i < DN_N(ids); i++) {
		sprintf(all, "{\"run\":%s,%s", ids[i], text + 1);
		put_meta("faulty/1", all);
		CHECK_FAILS(dn_ckpt_open(&c, path_of("faulty")), -EINVAL, "\"run\" is missing or is not 16 hex");
	}
	/* another writer's order of keys */
	sprintf(all, "{ \"run\" : \"00000000000000AB\" , %s", text + 1);
	put_meta("faulty/1", all);
	CHECK_EQ(run_at("faulty"), 0xab);
	save(&t, "faulty", 9, 0xaa, 0);
	CHECK_EQ(run_at("faulty"), 0xab);
	dn_free(text);
	dn_free(all);
	net_help_close(&t);
}

static void pruning_sees_its_own_run_only(void)
{
	struct net_help t;

	open_net(&t, HEAD BODY, false);
	save(&t, "prune", 10, 0, 1); /* of an older version */
	save(&t, "prune", 4, 5, 1);
	save(&t, "prune", 20, 5, 1);
	CU_ASSERT_TRUE(there("prune/10/meta.json") && !there("prune/4") && there("prune/20/meta.json"));
	for (int64_t step = 1; step < 7; step++)
		save(&t, "prune", step, 8, 2);
	CU_ASSERT_TRUE(there("prune/10/meta.json") && there("prune/20/meta.json"));
	CU_ASSERT_TRUE(there("prune/5") && there("prune/6") && !there("prune/4") && !there("prune/1"));
	save(&t, "prune", 30, 5, 1);
	CU_ASSERT_TRUE(there("prune/30") && !there("prune/20") && there("prune/5") && there("prune/10"));
	save(&t, "prune", 11, 0, 1);
	CU_ASSERT_TRUE(there("prune/11") && !there("prune/10") && there("prune/30") && there("prune/6"));
	net_help_close(&t);
}

static void newest_is_of_the_run_that_began_last(void)
{
	struct net_help t;
	struct dn_ckpt_folder f;

	open_net(&t, HEAD BODY, false);
	CHECK_EQ(dn_ckpt_newest(path_of("new")), -1);
	dn_ckpt_look(path_of("new"), 3, &f);
	CHECK_EQ(f.n + f.n_others, 0);
	CHECK_EQ(f.last, -1);
	save(&t, "new", 100, 0, 0);
	save(&t, "new", 90, 0, 0);
	CHECK_EQ(dn_ckpt_newest(path_of("new")), 100);
	save(&t, "new", 50, 3, 0);
	CHECK_EQ(dn_ckpt_newest(path_of("new")), 50);
	save(&t, "new", 60, 3, 0);
	save(&t, "new", 7, 0xffffffffffffffff, 0);
	CHECK_EQ(dn_ckpt_newest(path_of("new")), 7);
	CHECK_EQ(run_at("new"), UINT64_MAX);
	dn_ckpt_look(path_of("new"), 3, &f);
	CHECK_EQ(f.n, 2);
	CHECK_EQ(f.last, 60);
	CHECK_EQ(f.n_others, 3);
	CHECK_EQ(f.others_first, 7);
	CHECK_EQ(f.others_last, 100);
	net_help_close(&t);
}

static void another_runs_checkpoint_of_the_same_step_is_kept_aside(void)
{
	struct net_help t;
	char *old, *aside;

	open_net(&t, HEAD BODY, false);
	save(&t, "aside", 5, 0, 0);
	save(&t, "aside", 5, 0x11, 1);
	CHECK_EQ(run_at("aside/5"), 0x11);
	CHECK_EQ(run_at("aside/5.0000000000000000"), 0);
	old = meta_of("aside/5");
	save(&t, "aside", 5, 0x22, 1);
	aside = meta_of("aside/5.0000000000000011");
	CHECK_STR(aside, old);
	CHECK_EQ(run_at("aside"), 0x22);
	/* once more the same step of the same run: in place, nothing beside it */
	save(&t, "aside", 5, 0x22, 1);
	CU_ASSERT_FALSE(there("aside/5.0000000000000022"));
	/* what is aside is no step, is not pruned and can be loaded */
	CU_ASSERT_TRUE(there("aside/5.0000000000000000/meta.json") && there("aside/5.0000000000000011/rank-0.bin"));
	CHECK_EQ(dn_ckpt_newest(path_of("aside")), 5);
	/* two that change places */
	save(&t, "aside", 5, 0x11, 1);
	CHECK_EQ(run_at("aside/5.0000000000000022"), 0x22);
	CHECK_EQ(run_at("aside/5"), 0x11);
	dn_free(old);
	dn_free(aside);
	net_help_close(&t);
}

static void ids_follow_one_another_and_those_of_the_folder(void)
{
	struct net_help t;
	uint64_t a, b;

	a = dn_ckpt_new_run(path_of("ids"));
	usleep(3000);
	b = dn_ckpt_new_run(path_of("ids"));
	CU_ASSERT_TRUE(a > UINT64_C(1) << 56 && b > a);
	open_net(&t, HEAD BODY, false);
	save(&t, "ids", 1, b + (UINT64_C(1) << 50), 0); /* by a clock that was ahead */
	CHECK_EQ(dn_ckpt_new_run(path_of("ids")), b + (UINT64_C(1) << 50) + 1);
	net_help_close(&t);
}

struct seen {
	int n;
	char text[1000];
};

static int see(void *arg, const char *text)
{
	struct seen *s = arg;

	if (!s->n++)
		snprintf(s->text, sizeof(s->text), "%s", text);
	return 0;
}

/* a net saved from @then, flag and all: its differences from the net of @now */
static void differ(const char *then, bool flag_then, const char *now, bool flag_now, int n, const char *text)
{
	struct seen s = { 0 };
	struct net_help t;
	struct dn_ckpt *c;

	CHECK_OK_FATAL(dn_remove_tree(path_of("differ")));
	open_net(&t, then, flag_then);
	save(&t, "differ", 1, 1, 0);
	net_help_close(&t);
	open_net(&t, now, flag_now);
	CHECK_OK_FATAL(dn_ckpt_open(&c, path_of("differ")));
	CHECK_OK(dn_ckpt_differences(c, t.net, see, &s));
	CHECK_EQ(s.n, n);
	if (!strstr(s.text, text))
		fprintf(stderr, "got \"%s\", wanted \"%s\"\n", s.text, text);
	CU_ASSERT_PTR_NOT_NULL(strstr(s.text, text));
	CHECK_OK(dn_ckpt_load(c, t.net)); /* the tensors do not tell */
	dn_ckpt_close(c);
	net_help_close(&t);
}

static void a_net_of_the_same_tensors_is_told_apart_by_its_cfg(void)
{
	const char *relu = HEAD NORMED BODY;

	differ(relu, false, relu, false, 0, "");
	differ(relu, false, HEAD "momentum=.5\nmax_batches=9\n" NORMED BODY, false, 0, "");
	differ(relu, false, HEAD "[conv]\nfilters=3\nbatch_normalize=1\nactivation=tanh\n" BODY, false, 1,
	       "t.cfg:10: [conv] activation=tanh; was saved with relu");
	differ(relu, false, HEAD NORMED BODY "groups=2\n", false, 1, "[softmax] groups=2; was saved without it, so 1");
	differ(HEAD NORMED "[dropout]\nprobability=.2\n" BODY, false, HEAD NORMED "[dropout]\nprobability=.3\n" BODY, false, 1,
	       "[dropout] probability=.3; was saved with .2");
	differ(HEAD NORMED BODY "[cost]\n", false, HEAD NORMED BODY "[cost]\ntype=L1\n", false, 1,
	       "[cost] type=L1; was saved without it, so sse");
}

static void put_tree(const char *name, const char *text)
{
	FILE *f = fopen(path_of(name), "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputs(text, f);
	CHECK_EQ(fclose(f), 0);
}

static const char *with_tree(const char *name)
{
	static char cfg[2][1200];
	static int k;

	k = !k;
	snprintf(cfg[k], sizeof(cfg[k]), HEAD NORMED BODY "tree=%s\n", path_of(name));
	return cfg[k];
}

static void compare_trees(const char *now, int n, const char *text)
{
	struct seen s = { 0 };
	struct net_help t;
	struct dn_ckpt *c;

	open_net(&t, with_tree(now), false);
	CHECK_OK_FATAL(dn_ckpt_open(&c, path_of("trees")));
	CHECK_OK(dn_ckpt_differences(c, t.net, see, &s));
	CHECK_EQ(s.n, n);
	if (!strstr(s.text, text))
		fprintf(stderr, "got \"%s\", wanted \"%s\"\n", s.text, text);
	CU_ASSERT_PTR_NOT_NULL(strstr(s.text, text));
	dn_ckpt_close(c);
	net_help_close(&t);
}

static void a_file_that_the_cfg_names_counts_by_what_it_holds(void)
{
	const char *first = "a -1\nb -1\nc 0\nd 0\n", *other = "a -1\nb -1\nc 1\nd 1\n";
	char *meta, *files;
	struct net_help t;

	put_tree("t1", first);
	put_tree("t2", first);
	put_tree("t3", "A B  -1\r\nb -1\r\nx 0\r\ny 0\r\n"); /* names compute nothing */
	put_tree("t4", other);
	open_net(&t, with_tree("t1"), false);
	save(&t, "trees", 1, 1, 0);
	net_help_close(&t);
	compare_trees("t1", 0, "");
	compare_trees("t2", 0, "");
	compare_trees("t3", 0, "");
	compare_trees("t4", 1, "/t4: the file holds something else than that of the net that was saved, tree=");
	put_tree("t1", other);
	compare_trees("t1", 1, ": [softmax] tree=");
	/* of an older version, which has not noted it, the name is all there is */
	meta = meta_of("trees/1");
	files = strstr(meta, ",\"files\":[{\"layer\":2,\"xxh64\":\"");
	CU_ASSERT_PTR_NOT_NULL_FATAL(files);
	memmove(files, strchr(files, ']') + 1, strlen(strchr(files, ']')));
	put_meta("trees/1", meta);
	dn_free(meta);
	compare_trees("t1", 0, "");
	compare_trees("t2", 1, "; was saved with ");
	/* a net without one says nothing of files, as ever */
	open_net(&t, HEAD BODY, false);
	save(&t, "plain", 1, 1, 0);
	net_help_close(&t);
	meta = meta_of("plain/1");
	CU_ASSERT_PTR_NULL(strstr(meta, "files"));
	dn_free(meta);
}

static void a_faulty_list_of_files_is_refused(void)
{
	static const char *const bad[] = { "{}", "[3]", "[{}]", "[{\"layer\":-1,\"xxh64\":\"0123456789abcdef\"}]",
					   "[{\"layer\":1,\"xxh64\":\"xyz\"}]" };
	char *meta, *run, text[20000];
	struct net_help t;
	struct dn_ckpt *c;

	open_net(&t, HEAD BODY, false);
	save(&t, "badlist", 1, 1, 0);
	net_help_close(&t);
	meta = meta_of("badlist/1");
	run = strstr(meta, ",\"world\"");
	CU_ASSERT_PTR_NOT_NULL_FATAL(run);
	for (int i = 0; i < DN_N(bad); i++) {
		snprintf(text, sizeof(text), "%.*s,\"files\":%s%s", (int)(run - meta), meta, bad[i], run);
		put_meta("badlist/1", text);
		CHECK_FAILS(dn_ckpt_open(&c, path_of("badlist")), -EINVAL, "badlist/1/meta.json: ");
	}
	snprintf(text, sizeof(text), "%.*s,\"shuffle\":\"far too long for one\"%s", (int)(run - meta), meta, run);
	put_meta("badlist/1", text);
	CHECK_FAILS(dn_ckpt_open(&c, path_of("badlist")), -EINVAL, "\"shuffle\" is too long");
	dn_free(meta);
}

/* the rule of batch normalisation by key or flag, on either side */
static void the_rule_of_batch_normalisation_counts_wherever_it_was_chosen(void)
{
#define RULE(x) HEAD "legacy_bn=" #x "\n" NORMED BODY
	const char *none = HEAD NORMED BODY;
	struct net_help t;
	char *meta;

	differ(none, false, RULE(0), false, 0, "");
	differ(RULE(1), false, RULE(1), false, 0, "");
	differ(RULE(1), false, none, true, 0, "");
	differ(none, true, RULE(1), false, 0, "");
	differ(none, true, none, true, 0, "");
	differ(none, false, RULE(1), false, 1, "t.cfg:7: [net] legacy_bn=1; was saved with 0");
	differ(none, false, none, true, 1, "t.cfg:1: [net] legacy_bn=1 by -legacy-bn; was saved with 0");
	differ(none, true, none, false, 1, "t.cfg:1: [net] legacy_bn=0; was saved with 1 by -legacy-bn");
	differ(RULE(1), false, none, false, 1, "legacy_bn=0; was saved with 1");
	differ(RULE(1), true, RULE(0), false, 1, "t.cfg:7: [net] legacy_bn=0; was saved with 1");
	/* a cfg that says it needs no word more */
	open_net(&t, RULE(1), true);
	save(&t, "rule", 1, 0, 0);
	meta = meta_of("rule/1");
	CU_ASSERT_PTR_NULL(strstr(meta, "\"legacy_bn\""));
	dn_free(meta);
	net_help_close(&t);
}

static void a_cfg_that_cannot_be_compared_is_a_difference(void)
{
	struct seen s = { 0 };
	struct net_help t;
	struct dn_ckpt *c;
	struct dn_ckpt_head h = { .cfg_text = "no sections", .optimizer = "sgd", .world = 1, .replicas = 1, .shards = 1 };
	struct dn_buf b = { 0 };

	h.state = (struct dn_ckpt_state){ .step = 1, .batch = 2, .subdivisions = 1 };
	CHECK_OK_FATAL(dn_ckpt_meta(&b, &h, 0, NULL));
	CHECK_OK_FATAL(dn_make_dirs(path_of("bare/1")));
	put_meta("bare/1", b.s);
	dn_buf_fini(&b);
	open_net(&t, HEAD BODY, false);
	CHECK_OK_FATAL(dn_ckpt_open(&c, path_of("bare")));
	CHECK_OK(dn_ckpt_differences(c, t.net, see, &s));
	CHECK_EQ(s.n, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(s.text, "bare/1/meta.json: cfg"));
	dn_ckpt_close(c);
	net_help_close(&t);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(the_id_is_all_that_meta_json_gains),
	CASE(a_faulty_id_is_refused),
	CASE(pruning_sees_its_own_run_only),
	CASE(newest_is_of_the_run_that_began_last),
	CASE(another_runs_checkpoint_of_the_same_step_is_kept_aside),
	CASE(ids_follow_one_another_and_those_of_the_folder),
	CASE(a_net_of_the_same_tensors_is_told_apart_by_its_cfg),
	CASE(a_file_that_the_cfg_names_counts_by_what_it_holds),
	CASE(a_faulty_list_of_files_is_refused),
	CASE(the_rule_of_batch_normalisation_counts_wherever_it_was_chosen),
	CASE(a_cfg_that_cannot_be_compared_is_a_difference),
	{ NULL, NULL },
};

int main(void)
{
	int rc;

	snprintf(dir, sizeof(dir), "/tmp/test_ckpt_runs.%ld", (long)getpid());
	if (dn_make_dirs(dir))
		return 2;
	rc = check_run("ckpt_runs", cases);
	dn_remove_tree(dir);
	return rc;
}
