/* The offline verbs: plan with keys from cfg and flags, and conversion, inspection and checks of checkpoints. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "plan_nets.h"

static char folder[128];

static const char net_text[] = "[net]\nbatch=12\nsubdivisions=2\ninputs=6\n[fsdp]\nlimit=3\nblocks=each\n" CONNECTED_BN("7")
	CONNECTED("300000") CONNECTED("2") SOFTMAX;
static const char small_text[] =
	"[net]\nbatch=12\nsubdivisions=2\ninputs=6\n[fsdp]\nlimit=3\nblocks=each\n" CONNECTED("5") CONNECTED("2") SOFTMAX;

static void path_of(char *out, size_t cap, const char *name)
{
	snprintf(out, cap, "%s/%s", folder, name);
}

/* runs a verb; its output in *@text (free it) */
static int run(const char *name, int n_args, char **args, const char *const *flags, int n_plugin, const char **plugin,
	       char **text)
{
	const struct dn_verb *v = fsdp_verbs;
	struct dn_command c = { .n_args = n_args, .args = args, .n_plugin_flags = n_plugin, .plugin_flags = plugin };
	size_t n;
	int err;

	while (v->name && strcmp(v->name, name))
		v++;
	CU_ASSERT_PTR_NOT_NULL_FATAL(v->name);
	CU_ASSERT_FATAL(n_args >= v->min_args && n_args <= v->max_args);
	c.verb = v;
	c.out = open_memstream(text, &n);
	CU_ASSERT_PTR_NOT_NULL_FATAL(c.out);
	CHECK_OK_FATAL(dn_options_create(&c.flags));
	for (int i = 0; v->flags && v->flags[i]; i++)
		CHECK_OK_FATAL(dn_options_add(c.flags, v->flags[i]));
	for (int i = 0; flags && flags[i]; i += 2)
		CHECK_OK_FATAL(dn_options_set(c.flags, flags[i], flags[i + 1], "-flag"));
	err = v->run(&c);
	fclose(c.out);
	dn_options_destroy(c.flags);
	return err;
}

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_FATAL(fputs(text, f) >= 0);
	CU_ASSERT_FATAL(!fclose(f));
}

static void plan_takes_keys_from_the_cfg_and_from_flags(void)
{
	static const char *const flags[] = { "json", "1", "world", "3", "backend", "ref", NULL };
	const char *plugin[] = { "fsdp.limit", "2", "other.limit", "9" };
	char path[256], *args[] = { path }, *text;
	cJSON *j;

	path_of(path, sizeof(path), "small.cfg");
	write_text(path, small_text);
	CHECK_OK(run("plan", 1, args, flags, 0, NULL, &text));
	j = cJSON_Parse(text);
	CU_ASSERT_PTR_NOT_NULL_FATAL(j);
	CHECK_EQ(cJSON_GetObjectItem(j, "limit")->valuedouble, 3);
	CHECK_EQ(cJSON_GetObjectItem(j, "world")->valuedouble, 3);
	CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItem(j, "blocks")), 2);
	cJSON_Delete(j);
	free(text);
	CHECK_OK(run("plan", 1, args, flags, 2, plugin, &text));
	j = cJSON_Parse(text);
	CU_ASSERT_PTR_NOT_NULL_FATAL(j);
	CHECK_EQ(cJSON_GetObjectItem(j, "limit")->valuedouble, 2);
	cJSON_Delete(j);
	free(text);
}

static void plan_of_more_images_takes_batch_and_subdivisions(void)
{
	static const char *const flags[] = {
		"json", "1", "world", "2", "backend", "ref", "batch", "64", "subdivisions", "8", NULL
	};
	char path[256], *args[] = { path }, *text;
	cJSON *j;

	path_of(path, sizeof(path), "small.cfg");
	write_text(path, small_text);
	CHECK_OK(run("plan", 1, args, flags, 0, NULL, &text));
	j = cJSON_Parse(text);
	CU_ASSERT_PTR_NOT_NULL_FATAL(j);
	CHECK_EQ(cJSON_GetObjectItem(j, "batch")->valuedouble, 64);
	/* 2 blocks of which block 0 is not read in backward and block 1 stays: 2 gathers, 2 reductions a microbatch */
	CHECK_EQ(cJSON_GetObjectItem(cJSON_GetObjectItem(j, "gather"), "planned_calls")->valuedouble, 16);
	CHECK_EQ(cJSON_GetObjectItem(cJSON_GetObjectItem(j, "reduce"), "planned_calls")->valuedouble, 16);
	cJSON_Delete(j);
	free(text);
}

static void plan_refuses_what_does_not_fit(void)
{
	static const char *const five[] = { "world", "5", "backend", "ref", NULL };
	static const char *const two[] = { "world", "2", "backend", "ref", NULL };
	const char *depth[] = { "fsdp.depth", "3" }, *unknown[] = { "fsdp.colour", "red" };
	char path[256], *args[] = { path }, *text;

	path_of(path, sizeof(path), "small.cfg");
	write_text(path, small_text);
	CHECK_FAILS(run("plan", 1, args, five, 0, NULL, &text), -EINVAL, "does not split over 5 ranks");
	free(text);
	CHECK_FAILS(run("plan", 1, args, two, 1, depth, &text), -EINVAL, "-fsdp.depth: depth is 3, but limit is 3");
	free(text);
	CHECK_FAILS(run("plan", 1, args, two, 1, unknown, &text), -ENOENT, "unknown key colour");
	free(text);
	write_text(path, "[net]\nbatch=4\ninputs=3\n[fsdp]\nlimits=2\n" CONNECTED("2") SOFTMAX);
	CHECK_FAILS(run("plan", 1, args, two, 0, NULL, &text), -EINVAL, "small.cfg:5");
	free(text);
	path_of(path, sizeof(path), "none.cfg");
	CHECK_FAILS(run("plan", 1, args, two, 0, NULL, &text), -ENOENT, "none.cfg");
	free(text);
}

/* --- checkpoints --- */

/* a checkpoint of step 4 in @dir and, as the oracle, a weights file of the same values */
static void save_both(const char *text, const char *dir, const char *weights)
{
	const struct dn_ckpt_state state = {
		.step = 4, .seen = 48, .seed = 3, .batch = 12, .subdivisions = 2, .data_list = "list", .data_length = 100
	};
	const struct dn_group alone = DN_GROUP_ALONE;
	struct planned p;

	CHECK_OK_FATAL(planned_net(&p, text, 1, true, 1));
	CHECK_OK_FATAL(dn_whole_attach(p.net));
	CHECK_OK_FATAL(dn_net_alloc(p.net));
	CHECK_OK_FATAL(p.net->store.ops->alloc(p.net->store.self, p.net));
	CHECK_OK_FATAL(dn_net_init_values(p.net));
	CHECK_OK_FATAL(dn_ckpt_save(p.net, dir, &state, 0, &alone, NULL));
	CHECK_OK_FATAL(dn_weights_save(p.net, weights, 48, -1, &alone, NULL));
	planned_fini(&p);
}

static char *slurp(const char *path, size_t *n)
{
	char *s = NULL;

	CHECK_OK_FATAL(dn_file_read(path, 1 << 28, &s, n));
	return s;
}

static void consolidate_writes_the_bytes_of_a_weights_file(void)
{
	char dir[256], want[256], got[256], *args[] = { dir, got }, *text, *a, *b;
	size_t n_a, n_b;

	path_of(dir, sizeof(dir), "big.ckpt");
	path_of(want, sizeof(want), "want.weights");
	path_of(got, sizeof(got), "got.weights");
	save_both(net_text, dir, want); /* a tensor of 2.1 million elements: several pieces */
	CHECK_OK(run("consolidate", 2, args, NULL, 0, NULL, &text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "step 4, seen 48\npeak "));
	CHECK_STR(text + strlen(text) - 7, " bytes\n");
	free(text);
	a = slurp(got, &n_a);
	b = slurp(want, &n_b);
	CHECK_EQ(n_a, n_b);
	CHECK_BITS(a, b, n_a < n_b ? n_a : n_b);
	dn_free(a);
	dn_free(b);
}

static void consolidate_refuses_other_formats_and_folders(void)
{
	char dir[256], out[256], *args[] = { dir, out }, *text;

	path_of(dir, sizeof(dir), "nothing");
	path_of(out, sizeof(out), "x.safetensors");
	CHECK_FAILS(run("consolidate", 2, args, NULL, 0, NULL, &text), -EINVAL, "ends in .weights");
	free(text);
	path_of(out, sizeof(out), "x.weights");
	CU_ASSERT(run("consolidate", 2, args, NULL, 0, NULL, &text) < 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), "nothing"));
	free(text);
	CU_ASSERT(access(out, F_OK) != 0);
}

static void inspect_lists_every_tensor(void)
{
	static const char *const names[] = { "step 4",	  "world 1",
					     "0.biases ", "0.weights:momentum",
					     "5x6",	  "8 tensors, 94 elements" };
	char dir[256], weights[256], *args[] = { dir }, *text;

	path_of(dir, sizeof(dir), "small.ckpt");
	path_of(weights, sizeof(weights), "small.weights");
	save_both(small_text, dir, weights);
	CHECK_OK(run("inspect", 1, args, NULL, 0, NULL, &text));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strstr(text, names[i]))
			fprintf(stderr, "no \"%s\" in:\n%s\n", names[i], text);
		CU_ASSERT_PTR_NOT_NULL(strstr(text, names[i]));
	}
	free(text);
}

static void verify_finds_a_changed_byte_and_leaves_the_rest_alone(void)
{
	char dir[256], weights[256], file[512], out[256], *args[] = { dir, out }, *text;
	const char x = 'x';
	int fd;

	path_of(dir, sizeof(dir), "small.ckpt");
	path_of(weights, sizeof(weights), "small.weights");
	path_of(out, sizeof(out), "broken.weights");
	save_both(small_text, dir, weights);
	CHECK_OK(run("verify", 1, args, NULL, 0, NULL, &text));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "8 tensors, 94 elements: complete, all checksums hold"));
	free(text);
	snprintf(file, sizeof(file), "%s/4/rank-0.bin", dir);
	fd = open(file, O_WRONLY);
	CU_ASSERT_FATAL(fd >= 0);
	CHECK_EQ(pwrite(fd, &x, 1, 1), 1);
	close(fd);
	CHECK_FAILS(run("verify", 1, args, NULL, 0, NULL, &text), -EIO, "1 faults in 8 tensors");
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "checksum"));
	free(text);
	CU_ASSERT(run("consolidate", 2, args, NULL, 0, NULL, &text) < 0);
	free(text);
	CU_ASSERT(access(out, F_OK) != 0);
}

#define CASE(f) \
	{ \
#f, f \
	}

static const struct check_case cases[] = { CASE(plan_takes_keys_from_the_cfg_and_from_flags),
					   CASE(plan_of_more_images_takes_batch_and_subdivisions),
					   CASE(plan_refuses_what_does_not_fit),
					   CASE(consolidate_writes_the_bytes_of_a_weights_file),
					   CASE(consolidate_refuses_other_formats_and_folders),
					   CASE(inspect_lists_every_tensor),
					   CASE(verify_finds_a_changed_byte_and_leaves_the_rest_alone),
					   { NULL, NULL } };

int main(void)
{
	int status;

	snprintf(folder, sizeof(folder), "/tmp/test_verbs.XXXXXX");
	if (!mkdtemp(folder))
		return 2;
	status = check_run("fsdp/verbs", cases);
	if (dn_remove_tree(folder))
		status = 2;
	return status;
}
