/* io: .weights files written by hand against nets, and checkpoints that are whole, damaged or of another net. */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "io/ckpt.h"
#include "io/json.h"
#include "io/weights.h"
#include "net_help.h"

static char dir[256]; /* of this process, made by main() */
static const struct dn_group alone = DN_GROUP_ALONE;

static const char *path_of(const char *name)
{
	static char path[64][512];
	static int k;

	k = (k + 1) % 64;
	snprintf(path[k], sizeof(path[k]), "%s/%s", dir, name);
	return path[k];
}

/* conv 2 -> 3 filters of 1x1 with batch-norm, then a dense layer of 4: 3 + 9 + 6 and 4 + 4*12 floats */
#define NET "[net]\nbatch=2\nwidth=2\nheight=2\nchannels=2\nlearning_rate=.1\nmomentum=.9\ndecay=.01\n"
#define CONV "[convolutional]\nfilters=3\nsize=1\nbatch_normalize=1\nactivation=linear\n"
#define DENSE "[connected]\noutput=4\nactivation=linear\n"
#define COST "[cost]\ntype=sse\n"
static const char small[] = NET CONV DENSE COST;
#define CONV_FLOATS 18
#define DENSE_FLOATS 52
#define ALL_FLOATS (CONV_FLOATS + DENSE_FLOATS)

static void open_net(struct net_help *t, const char *cfg, bool train)
{
	struct dn_net_options o = { .world = 1, .train = train, .seed = 7 };

	CHECK_OK_FATAL(net_help_build(t, "ref", cfg, &o));
	CHECK_OK_FATAL(net_help_ready(t, false));
}

/* header, seen of @seen_bytes, then floats 1, 2, 3, ... and @tail loose bytes */
static const char *write_file(const char *name, int major, int minor, int seen_bytes, uint64_t seen, int n_floats, int tail)
{
	const char *path = path_of(name);
	FILE *f = fopen(path, "wb");
	int32_t v[3] = { major, minor, 0 };

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fwrite(v, sizeof(v), 1, f);
	fwrite(&seen, (size_t)seen_bytes, 1, f);
	for (int i = 1; i <= n_floats; i++) {
		float x = (float)i;

		fwrite(&x, sizeof(x), 1, f);
	}
	fwrite("tail", (size_t)tail, 1, f);
	CU_ASSERT_EQUAL_FATAL(fclose(f), 0);
	return path;
}

static const float *values(struct dn_net *net, const char *name)
{
	for (int i = 0; i < net->n_params; i++)
		if (!strcmp(net->params[i]->name, name))
			return peek(net, net->params[i]->value, net->params[i]->n);
	CU_FAIL_FATAL("no such param");
	return NULL;
}

static void check_run_of(const float *x, int n, int first)
{
	for (int i = 0; i < n; i++)
		if (x[i] != (float)(first + i)) {
			fprintf(stderr, "element %d: got %g, wanted %d\n", i, (double)x[i], first + i);
			CU_FAIL("wrong value");
			return;
		}
}

static void floats_go_to_params_in_file_order(void)
{
	struct net_help t;
	struct dn_weights_info in;

	open_net(&t, small, false);
	CHECK_OK_FATAL(dn_weights_load(t.net, write_file("a", 0, 2, 8, 1234567890123, ALL_FLOATS, 0), -1, false, &in));
	check_run_of(values(t.net, "0.biases"), 3, 1);
	check_run_of(values(t.net, "0.scales"), 3, 4);
	check_run_of(values(t.net, "0.rolling_mean"), 3, 7);
	check_run_of(values(t.net, "0.rolling_variance"), 3, 10);
	check_run_of(values(t.net, "0.weights"), 6, 13);
	check_run_of(values(t.net, "1.biases"), 4, 19);
	check_run_of(values(t.net, "1.weights"), 48, 23);
	CHECK_EQ(in.header.seen, 1234567890123);
	CHECK_EQ(in.header.header_bytes, 20);
	CHECK_EQ(in.floats, ALL_FLOATS);
	CHECK_EQ(in.wanted_floats, ALL_FLOATS);
	CHECK_EQ(in.n_layers_loaded, 3);
	CU_ASSERT_FALSE(in.partial);
	CHECK_EQ(in.n_nonfinite, 0);
	net_help_close(&t);
}

static void width_of_seen_follows_version_and_size(void)
{
	static const struct {
		int major, minor, written, header;
	} rows[] = {
		{ 0, 1, 4, 16 }, { 0, 2, 8, 20 },    { 0, 2, 4, 16 },	 { 0, 1, 8, 20 },    { 0, 5, 8, 20 },
		{ 1, 0, 8, 20 }, { 1000, 0, 4, 16 }, { 0, 1000, 4, 16 }, { 1001, 0, 4, 16 }, { 0, 0, 4, 16 },
	};
	struct net_help t;
	struct dn_weights_info in;

	open_net(&t, small, false);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *path = write_file("w", rows[i].major, rows[i].minor, rows[i].written, 77, ALL_FLOATS, 0);

		CHECK_OK(dn_weights_check(t.net, path, false, &in));
		CHECK_EQ(in.header.header_bytes, rows[i].header);
		CHECK_EQ(in.header.seen, 77);
		CHECK_EQ(in.header.transpose, rows[i].major > 1000);
	}
	net_help_close(&t);
}

static void versions_above_1000_hold_dense_weights_transposed(void)
{
	struct net_help t;
	struct dn_weights_info in;
	const float *w;

	open_net(&t, small, false);
	CHECK_OK_FATAL(dn_weights_load(t.net, write_file("a", 1001, 0, 4, 5, ALL_FLOATS, 0), -1, false, &in));
	check_run_of(values(t.net, "0.weights"), 6, 13); /* convolutions are not */
	w = values(t.net, "1.weights");
	for (int r = 0; r < 4; r++)
		for (int c = 0; c < 12; c++)
			CHECK_EQ(w[r * 12 + c], 23 + c * 4 + r);
	net_help_close(&t);
}

static void flipped_convolutions_are_transposed_in_any_version(void)
{
	static const char cfg[] = NET "[convolutional]\nfilters=3\nsize=1\nflipped=1\nactivation=linear\n" COST;
	struct net_help t;
	struct dn_weights_info in;
	char *text;
	size_t n;

	open_net(&t, cfg, false);
	CHECK_OK_FATAL(dn_weights_load(t.net, write_file("a", 0, 2, 8, 0, 9, 0), -1, false, NULL));
	for (int r = 0; r < 3; r++)
		for (int c = 0; c < 2; c++)
			CHECK_EQ(values(t.net, "0.weights")[r * 2 + c], 4 + c * 3 + r);
	/* and written as they lie in memory */
	CHECK_OK_FATAL(dn_weights_save(t.net, path_of("b"), 0, -1, &alone, NULL));
	CHECK_OK_FATAL(dn_file_read(path_of("b"), 1 << 20, &text, &n));
	CHECK_EQ(n, 20 + 9 * 4);
	CHECK_BITS(text + 20 + 12, values(t.net, "0.weights"), 24);
	dn_free(text);
	CHECK_OK_FATAL(dn_weights_load(t.net, write_file("a", 1001, 0, 4, 0, 9, 0), -1, false, &in));
	CHECK_EQ(values(t.net, "0.weights")[1], 7);
	net_help_close(&t);
}

static void dontload_dontloadscales_and_numload_change_what_a_file_holds(void)
{
	static const char skip[] =
		NET "[convolutional]\nfilters=3\nsize=1\nbatch_normalize=1\ndontload=1\nactivation=linear\n" DENSE COST;
	static const char scales[] =
		NET "[convolutional]\nfilters=3\nsize=1\nbatch_normalize=1\ndontloadscales=1\nactivation=linear\n" DENSE COST;
	static const char num[] =
		NET "[convolutional]\nfilters=3\nsize=1\nbatch_normalize=1\nnumload=2\nactivation=linear\n" DENSE COST;
	struct net_help t;
	float before;

	open_net(&t, skip, false);
	before = values(t.net, "0.weights")[0];
	CHECK_OK_FATAL(dn_weights_load(t.net, write_file("a", 0, 2, 8, 0, DENSE_FLOATS, 0), -1, false, NULL));
	CHECK_EQ(values(t.net, "0.weights")[0] == before, 1);
	check_run_of(values(t.net, "1.biases"), 4, 1);
	CHECK_FAILS(dn_weights_load(t.net, write_file("a", 0, 2, 8, 0, ALL_FLOATS, 0), -1, true, NULL), -EINVAL, "too many");
	net_help_close(&t);

	open_net(&t, scales, false);
	CHECK_OK_FATAL(dn_weights_load(t.net, write_file("a", 0, 2, 8, 0, ALL_FLOATS - 9, 0), -1, false, NULL));
	check_run_of(values(t.net, "0.biases"), 3, 1);
	check_run_of(values(t.net, "0.weights"), 6, 4);
	CHECK_EQ(values(t.net, "0.scales")[0], 1); /* the initial one */
	check_run_of(values(t.net, "1.biases"), 4, 10);
	net_help_close(&t);

	open_net(&t, num, false);
	before = values(t.net, "0.weights")[4];
	CHECK_OK_FATAL(dn_weights_load(t.net, write_file("a", 0, 2, 8, 0, 12 + DENSE_FLOATS, 0), -1, false, NULL));
	check_run_of(values(t.net, "0.biases"), 2, 1);
	CHECK_EQ(values(t.net, "0.biases")[2], 0);
	check_run_of(values(t.net, "0.scales"), 2, 3);
	check_run_of(values(t.net, "0.weights"), 4, 9);
	CHECK_EQ(values(t.net, "0.weights")[4] == before, 1);
	check_run_of(values(t.net, "1.biases"), 4, 13);
	net_help_close(&t);
}

static void partial_files_are_loaded_only_when_allowed(void)
{
	struct net_help t;
	struct dn_weights_info in;
	float before;

	open_net(&t, small, false);
	before = values(t.net, "1.weights")[0];
	CHECK_FAILS(dn_weights_load(t.net, write_file("p", 0, 2, 8, 3, CONV_FLOATS, 0), -1, false, NULL), -EINVAL,
		    "first 1 of 3");
	CHECK_OK_FATAL(dn_weights_load(t.net, path_of("p"), -1, true, &in));
	CU_ASSERT_TRUE(in.partial);
	CHECK_EQ(in.n_layers_loaded, 1);
	check_run_of(values(t.net, "0.weights"), 6, 13);
	CHECK_EQ(values(t.net, "1.weights")[0] == before, 1);
	net_help_close(&t);
}

static void cutoff_takes_the_first_layers_of_a_whole_file(void)
{
	struct net_help t;
	struct dn_weights_info in;
	float before;

	open_net(&t, small, false);
	before = values(t.net, "1.weights")[0];
	CHECK_OK_FATAL(dn_weights_load(t.net, write_file("p", 0, 2, 8, 3, ALL_FLOATS, 0), 1, false, &in));
	CHECK_EQ(in.n_layers_loaded, 1);
	check_run_of(values(t.net, "0.biases"), 3, 1);
	CHECK_EQ(values(t.net, "1.weights")[0] == before, 1);
	CHECK_OK_FATAL(dn_weights_save(t.net, path_of("q"), 0, 1, &alone, NULL));
	CHECK_OK_FATAL(dn_weights_check(t.net, path_of("q"), true, &in));
	CHECK_EQ(in.file_bytes, 20 + 4 * CONV_FLOATS);
	CHECK_EQ(dn_weights_bytes(t.net, 1), 20 + 4 * CONV_FLOATS);
	net_help_close(&t);
}

static void malformed_files_are_refused_with_what_is_wrong(void)
{
	static const struct {
		int major, minor, seen_bytes;
		uint64_t seen;
		int floats, tail;
		const char *text;
	} rows[] = {
		{ 0, 2, 8, 0, ALL_FLOATS + 2, 0, "8 too many" },
		{ 0, 2, 8, 0, ALL_FLOATS, 3, "3 too many" },
		{ 0, 2, 8, 0, ALL_FLOATS - 3, 0, "ends inside layer 1 (connected)" },
		{ 0, 2, 8, 0, ALL_FLOATS - 1, 2, "ends inside layer 1" },
		{ 0, 2, 8, 0, 4, 0, "ends inside layer 0 (convolutional)" },
		{ -1, 2, 8, 0, ALL_FLOATS, 0, "version" },
		{ 0, 100001, 8, 0, ALL_FLOATS, 0, "version" },
		{ 0, 2, 8, 1ull << 62, ALL_FLOATS, 0, "images seen" },
		{ 0, 2, 2, 0, 0, 0, "at least 16" },
	};
	static const struct {
		const char *content, *text;
	} texts[] = {
		{ "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n", "git-lfs pointer" },
		{ "\n <!DOCTYPE html><html><head><title>404</title></head></html>", "HTML page" },
		{ "just some words that somebody wrote", "is text" },
	};
	struct net_help t;

	open_net(&t, small, false);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *path = write_file("m", rows[i].major, rows[i].minor, rows[i].seen_bytes, rows[i].seen, rows[i].floats,
					      rows[i].tail);

		CHECK_FAILS(dn_weights_load(t.net, path, -1, true, NULL), -EINVAL, rows[i].text);
	}
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		FILE *f = fopen(path_of("m"), "w");

		CU_ASSERT_PTR_NOT_NULL_FATAL(f);
		fputs(texts[i].content, f);
		fclose(f);
		CHECK_FAILS(dn_weights_load(t.net, path_of("m"), -1, true, NULL), -EINVAL, texts[i].text);
	}
	CHECK_FAILS(dn_weights_load(t.net, path_of("absent"), -1, true, NULL), -ENOENT, "absent");
	CU_ASSERT_NOT_EQUAL(dn_weights_load(t.net, dir, -1, true, NULL), 0);
	net_help_close(&t);
}

static void values_that_are_not_finite_are_counted(void)
{
	struct net_help t;
	struct dn_weights_info in;
	float bad[2] = { NAN, -INFINITY };
	FILE *f;

	open_net(&t, small, false);
	f = fopen(write_file("n", 0, 2, 8, 0, ALL_FLOATS, 0), "r+b");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fseek(f, 20 + 4 * 20, SEEK_SET);
	fwrite(bad, sizeof(bad), 1, f);
	fclose(f);
	CHECK_OK_FATAL(dn_weights_load(t.net, path_of("n"), -1, false, &in));
	CHECK_EQ(in.n_nonfinite, 2);
	dn_weights_tell("n", &in);
	CU_ASSERT_PTR_NOT_NULL(strstr(t.warnings, "2 values are not finite"));
	net_help_close(&t);
}

static void saving_gives_the_bytes_that_were_loaded(void)
{
	struct net_help t;
	char *a, *b;
	size_t na, nb;
	int64_t bytes;

	open_net(&t, small, true);
	CHECK_OK_FATAL(dn_weights_load(t.net, write_file("a", 0, 2, 8, 99, ALL_FLOATS, 0), -1, false, NULL));
	CHECK_OK_FATAL(dn_weights_save(t.net, path_of("b"), 99, -1, &alone, &bytes));
	CHECK_OK_FATAL(dn_file_read(path_of("a"), 1 << 20, &a, &na));
	CHECK_OK_FATAL(dn_file_read(path_of("b"), 1 << 20, &b, &nb));
	CHECK_EQ(na, nb);
	CHECK_EQ(bytes, nb);
	CHECK_EQ(dn_weights_bytes(t.net, -1), nb);
	CHECK_BITS(b, a, na);
	dn_free(a);
	dn_free(b);
	net_help_close(&t);
}

/* larger than a piece of 1 MiB, both orientations */
static void large_dense_weights_are_read_in_pieces(void)
{
	static const char cfg[] = "[net]\nbatch=1\ninputs=700\n[connected]\noutput=600\nactivation=linear\n" COST;
	struct net_help t;
	const float *w;
	int wrong = 0;

	open_net(&t, cfg, false);
	CHECK_OK_FATAL(dn_weights_load(t.net, write_file("l", 0, 2, 8, 0, 600 + 420000, 0), -1, false, NULL));
	check_run_of(values(t.net, "0.weights"), 420000, 601);
	CHECK_OK_FATAL(dn_weights_load(t.net, write_file("l", 0, 2000, 4, 0, 600 + 420000, 0), -1, false, NULL));
	w = values(t.net, "0.weights");
	for (int r = 0; r < 600; r++)
		for (int c = 0; c < 700; c++)
			wrong += w[r * 700 + c] != (float)(601 + c * 600 + r);
	CHECK_EQ(wrong, 0);
	CHECK_OK_FATAL(dn_weights_load_rank0(t.net, path_of("l"), false, &alone, NULL));
	CHECK_EQ(values(t.net, "0.weights")[1], 601 + 600);
	net_help_close(&t);
}

static void a_failed_save_leaves_the_old_file(void)
{
	struct net_help t;
	char *a;
	size_t n;

	open_net(&t, small, false);
	CHECK_OK_FATAL(dn_weights_save(t.net, path_of("k"), 1, -1, &alone, NULL));
	CU_ASSERT_NOT_EQUAL(dn_weights_save(t.net, path_of("absent/k"), 2, -1, &alone, NULL), 0);
	dn_mem_fail_at(1);
	CU_ASSERT_NOT_EQUAL(dn_weights_save(t.net, path_of("k"), 2, -1, &alone, NULL), 0);
	dn_mem_fail_at(0);
	CHECK_OK_FATAL(dn_file_read(path_of("k"), 1 << 20, &a, &n));
	CHECK_EQ(a[12], 1);
	dn_free(a);
	net_help_close(&t);
}

static void json_texts_are_escaped_and_numbers_exact(void)
{
	struct dn_buf b = { 0 };
	cJSON *j;

	CHECK_OK_FATAL(dn_buf_printf(&b, "["));
	CHECK_OK_FATAL(dn_json_text(&b, "a\"b\\c\n\r\t\x01 \xc3\xa4 \xff."));
	CHECK_OK_FATAL(dn_buf_printf(&b, ","));
	CHECK_OK_FATAL(dn_json_number(&b, 0.1));
	CHECK_OK_FATAL(dn_buf_printf(&b, ","));
	CHECK_OK_FATAL(dn_json_u64(&b, UINT64_MAX));
	CHECK_OK_FATAL(dn_buf_printf(&b, "]"));
	j = cJSON_Parse(b.s);
	CU_ASSERT_PTR_NOT_NULL_FATAL(j);
	CHECK_STR(cJSON_GetArrayItem(j, 0)->valuestring, "a\"b\\c\n\r\t\x01 \xc3\xa4 \xef\xbf\xbd.");
	CU_ASSERT_EQUAL(cJSON_GetArrayItem(j, 1)->valuedouble, 0.1);
	CHECK_STR(cJSON_GetArrayItem(j, 2)->valuestring, "18446744073709551615");
	cJSON_Delete(j);
	dn_buf_fini(&b);
}

/* --- checkpoints --- */

static const struct dn_ckpt_state state = {
	.step = 5,
	.seen = 10,
	.seed = UINT64_MAX - 1,
	.batch = 2,
	.subdivisions = 1,
	.data_list = "data/x.npy",
	.data_length = 100,
	.data_hash = 0x0123456789abcdefull,
};

static int number_all(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	float *next = arg;

	for (int64_t i = 0; i < n; i++)
		x[i] = (*next)++;
	return 0;
}

static int zero_all(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	memset(x, 0, (size_t)n * sizeof(*x));
	return 0;
}

static int check_all(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	float *next = arg;
	int bad = 0;

	for (int64_t i = 0; i < n; i++)
		bad += x[i] != (*next)++;
	return bad ? -EILSEQ : 0;
}

static int each_part(struct dn_net *net, unsigned access, dn_interval_fn fn)
{
	float next = 1;
	int err = 0;

	for (int i = 0; i < net->n_params && !err; i++) {
		err = net->store.ops->each(net->store.self, net->params[i], DN_VALUE, access, fn, &next);
		if (!err)
			err = net->store.ops->each(net->store.self, net->params[i], DN_STATE0, access, fn, &next);
	}
	return err;
}

static int load_path(struct dn_net *net, const char *path)
{
	struct dn_ckpt *c;
	int err = dn_ckpt_open(&c, path);

	if (err)
		return err;
	err = dn_ckpt_load(c, net);
	dn_ckpt_close(c);
	return err;
}

static void save_numbered(struct net_help *t, const char *name)
{
	CHECK_OK_FATAL(dn_remove_tree(path_of(name)));
	open_net(t, small, true);
	CHECK_OK_FATAL(each_part(t->net, DN_WRITE, number_all));
	CHECK_OK_FATAL(dn_ckpt_save(t->net, path_of(name), &state, 3, &alone, NULL));
}

static int spoil(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	const bool value = arg != NULL;

	if (at == 0)
		x[0] = value ? NAN : -INFINITY;
	return 0;
}

/* of a value, of a statistic and of an optimizer's state */
static void what_is_not_finite_is_counted_wherever_it_stands(void)
{
	struct net_help t;
	struct dn_ckpt *c;
	float x[2];
	int n = 0;

	save_numbered(&t, "f");
	for (int i = 0; i < t.net->n_params; i++) {
		struct dn_param *p = t.net->params[i];
		bool value = p->role == DN_BUFFER || !strcmp(p->name, "1.weights");

		if (!value && strcmp(p->name, "0.biases"))
			continue;
		CHECK_OK(t.net->store.ops->each(t.net->store.self, p, value ? DN_VALUE : DN_STATE0, DN_READ | DN_WRITE, spoil,
						value ? &t : NULL));
		n++;
	}
	CHECK_OK_FATAL(dn_ckpt_save(t.net, path_of("f"), &state, 3, &alone, NULL));
	CHECK_OK_FATAL(dn_ckpt_open(&c, path_of("f")));
	CHECK_EQ(dn_ckpt_nonfinite(c), 0);
	CHECK_OK_FATAL(dn_ckpt_load(c, t.net));
	CHECK_EQ(dn_ckpt_nonfinite(c), n);
	CHECK_EQ(n, 4); /* two of them statistics */
	CHECK_OK(dn_ckpt_read(c, "1.weights", 0, 2, x));
	CHECK_OK(dn_ckpt_read(c, "1.weights", 1, 2, x));
	CHECK_EQ(dn_ckpt_nonfinite(c), n + 1);
	dn_ckpt_close(c);
	net_help_close(&t);
}

static void a_checkpoint_gives_back_all_that_was_saved(void)
{
	struct net_help t;
	struct dn_ckpt *c;
	int64_t mine, all;
	struct stat st;
	float x[3];

	save_numbered(&t, "c");
	CHECK_OK_FATAL(each_part(t.net, DN_WRITE, zero_all));
	CHECK_OK_FATAL(dn_ckpt_open(&c, path_of("c")));
	CHECK_OK_FATAL(dn_ckpt_load(c, t.net));
	CHECK_OK(each_part(t.net, DN_READ, check_all));
	CU_ASSERT_EQUAL(memcmp(dn_ckpt_state_of(c), &state, sizeof(state)), 0);
	CHECK_STR(dn_ckpt_cfg_text(c), small);
	CHECK_STR(dn_ckpt_optimizer(c), "sgd");
	CHECK_STR(dn_ckpt_dir(c), path_of("c/5"));
	CHECK_EQ(dn_ckpt_world(c), 1);
	CHECK_EQ(dn_ckpt_n_tensors(c), 7 + 5); /* 7 tensors, of which 2 are buffers */
	CHECK_OK(dn_ckpt_read(c, "0.biases:momentum", 1, 2, x));
	CHECK_EQ(x[0], 5);
	CHECK_OK(dn_ckpt_read(c, "0.biases", 2, 1, x));
	CHECK_EQ(x[0], 3);
	CHECK_FAILS(dn_ckpt_read(c, "0.biases", 2, 2, x), -EINVAL, "0.biases");
	CHECK_FAILS(dn_ckpt_read(c, "9.biases", 0, 1, x), -ENOENT, "9.biases");
	dn_ckpt_close(c);
	CHECK_OK(dn_ckpt_bytes(t.net, &alone, &mine, &all));
	CHECK_EQ(stat(path_of("c/5/rank-0.bin"), &st), 0);
	CHECK_EQ(mine, st.st_size);
	CHECK_EQ(all, mine);
	/* STEP's own folder as well, and an inference net takes the values alone */
	net_help_close(&t);
	open_net(&t, small, false);
	CHECK_OK(load_path(t.net, path_of("c/5")));
	CHECK_EQ(values(t.net, "0.scales")[0], 7);
	net_help_close(&t);
}

static int count_entries(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static void keep_drops_old_steps_and_leftovers(void)
{
	struct net_help t;
	struct dn_ckpt_state s = state;

	save_numbered(&t, "keep");
	CHECK_OK(dn_make_dirs(path_of("keep/7.tmp")));
	CHECK_OK(dn_make_dirs(path_of("keep/99"))); /* no meta.json: not published */
	CHECK_EQ(dn_ckpt_newest(path_of("keep")), 5);
	for (s.step = 6; s.step <= 9; s.step++)
		CHECK_OK(dn_ckpt_save(t.net, path_of("keep"), &s, 2, &alone, NULL));
	CHECK_EQ(count_entries(path_of("keep")), 2);
	CHECK_EQ(dn_ckpt_newest(path_of("keep")), 9);
	CHECK_EQ(access(path_of("keep/8/meta.json"), F_OK), 0);
	/* an earlier step saved later stays, and the same step may be saved again */
	s.step = 3;
	CHECK_OK(dn_ckpt_save(t.net, path_of("keep"), &s, 2, &alone, NULL));
	CHECK_OK(dn_ckpt_save(t.net, path_of("keep"), &s, 2, &alone, NULL));
	CHECK_EQ(access(path_of("keep/3/meta.json"), F_OK), 0);
	CHECK_EQ(access(path_of("keep/9/meta.json"), F_OK), 0);
	CHECK_EQ(count_entries(path_of("keep")), 2);
	net_help_close(&t);
}

static void a_failed_save_leaves_earlier_checkpoints(void)
{
	struct net_help t;
	struct dn_ckpt_state s = state;
	int failed = 0;

	save_numbered(&t, "f");
	s.step = 6;
	for (int n = 1; n < 200; n++) {
		int err;

		dn_mem_fail_at((uint64_t)n);
		err = dn_ckpt_save(t.net, path_of("f"), &s, 3, &alone, NULL);
		dn_mem_fail_at(0);
		if (!err)
			break;
		failed++;
		CHECK_EQ(dn_ckpt_newest(path_of("f")), 5);
	}
	CU_ASSERT_TRUE(failed > 3);
	CHECK_EQ(dn_ckpt_newest(path_of("f")), 6);
	CHECK_OK(each_part(t.net, DN_WRITE, zero_all));
	CHECK_OK(load_path(t.net, path_of("f/5")));
	CHECK_OK(each_part(t.net, DN_READ, check_all));
	net_help_close(&t);
}

static void another_net_is_refused_by_tensor(void)
{
	struct net_help t;

	save_numbered(&t, "other");
	CHECK_OK(dn_ckpt_refuse(path_of("other"), t.net));
	CHECK_OK(dn_ckpt_refuse(path_of("absent"), t.net));
	net_help_close(&t);
	open_net(&t, NET CONV "[connected]\noutput=5\nactivation=linear\n" COST, true);
	CHECK_FAILS(dn_ckpt_refuse(path_of("other"), t.net), -EINVAL, "1.biases is 4 there, 5 in this net");
	CHECK_FAILS(load_path(t.net, path_of("other")), -EINVAL, "1.biases");
	net_help_close(&t);
	open_net(&t, NET CONV COST, true);
	CHECK_FAILS(dn_ckpt_refuse(path_of("other"), t.net), -EINVAL, "it has a tensor 1.biases, this net has none of that name");
	net_help_close(&t);
	open_net(&t, NET CONV DENSE DENSE COST, true);
	CHECK_FAILS(dn_ckpt_refuse(path_of("other"), t.net), -EINVAL, "no tensor 2.biases");
	net_help_close(&t);
}

static void put_text(const char *path, const char *s, size_t n)
{
	FILE *f = fopen(path, "wb");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CHECK_EQ(fwrite(s, 1, n, f), n);
	CHECK_EQ(fclose(f), 0);
}

/* A flipped byte is an error, or everything that is loaded and resumed from is as it was. */
static void every_flipped_byte_is_found_or_harmless(void)
{
	static const char *const files[] = { "flip/5/meta.json", "flip/5/rank-0.bin" };
	struct net_help t;
	int found = 0;

	save_numbered(&t, "flip");
	for (int k = 0; k < 2; k++) {
		char *text;
		size_t n;

		CHECK_OK_FATAL(dn_file_read(path_of(files[k]), 1 << 20, &text, &n));
		for (size_t i = 0; i < n; i++) {
			struct dn_ckpt *c;
			int err;

			text[i] ^= (char)(1 << (i % 7));
			put_text(path_of(files[k]), text, n);
			text[i] ^= (char)(1 << (i % 7));
			err = dn_ckpt_open(&c, path_of("flip"));
			if (!err) {
				err = each_part(t.net, DN_WRITE, zero_all);
				if (!err)
					err = dn_ckpt_load(c, t.net);
				if (!err &&
				    (each_part(t.net, DN_READ, check_all) || memcmp(dn_ckpt_state_of(c), &state, sizeof(state)) ||
				     strcmp(dn_ckpt_cfg_text(c), small))) {
					fprintf(stderr, "%s: byte %zu: damage was not found\n", files[k], i);
					CU_FAIL("damage was not found");
				}
				dn_ckpt_close(c);
			}
			found += err != 0;
		}
		put_text(path_of(files[k]), text, n);
		dn_free(text);
	}
	CU_ASSERT_TRUE(found > 1000);
	CHECK_OK(load_path(t.net, path_of("flip")));
	net_help_close(&t);
}

static void truncated_and_missing_files_are_refused(void)
{
	struct net_help t;
	char *text;
	size_t n;

	save_numbered(&t, "cut");
	CHECK_OK_FATAL(dn_file_read(path_of("cut/5/meta.json"), 1 << 20, &text, &n));
	for (size_t i = 0; i < n - 1; i += 7) { /* the last byte is the line's end */
		put_text(path_of("cut/5/meta.json"), text, i);
		CU_ASSERT_NOT_EQUAL(load_path(t.net, path_of("cut")), 0);
	}
	put_text(path_of("cut/5/meta.json"), text, n);
	dn_free(text);
	CHECK_OK_FATAL(dn_file_read(path_of("cut/5/rank-0.bin"), 1 << 20, &text, &n));
	put_text(path_of("cut/5/rank-0.bin"), text, n - 1);
	CHECK_FAILS(load_path(t.net, path_of("cut")), -EINVAL, "rank-0.bin: has");
	dn_free(text);
	CHECK_EQ(unlink(path_of("cut/5/rank-0.bin")), 0);
	CHECK_FAILS(load_path(t.net, path_of("cut")), -ENOENT, "rank-0.bin");
	CHECK_EQ(unlink(path_of("cut/5/meta.json")), 0);
	CHECK_FAILS(load_path(t.net, path_of("cut")), -ENOENT, "no checkpoint");
	CHECK_FAILS(load_path(t.net, path_of("absent")), -ENOENT, "absent");
	net_help_close(&t);
}

/* meta.json edited as a tree: one change a row */
static void edit(cJSON *root, int what)
{
	cJSON *t = NULL, *v;

	cJSON_ArrayForEach(t, cJSON_GetObjectItem(root, "tensors")) if (!strcmp(cJSON_GetObjectItem(t, "name")->valuestring,
										"1.weights")) break;
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	v = cJSON_GetArrayItem(cJSON_GetObjectItem(t, "intervals"), 0);
	switch (what) {
	case 0: /* a hole at the end */
		cJSON_SetNumberValue(cJSON_GetObjectItem(v, "length"), 40);
		break;
	case 1: /* the same elements twice */
		cJSON_AddItemToArray(cJSON_GetObjectItem(t, "intervals"), cJSON_Duplicate(v, 1));
		break;
	case 2:
		cJSON_DeleteItemFromArray(cJSON_GetObjectItem(t, "intervals"), 0);
		break;
	case 3:
		cJSON_SetNumberValue(cJSON_GetObjectItem(v, "length"), 49);
		break;
	case 4:
		cJSON_SetNumberValue(cJSON_GetObjectItem(v, "offset"), 4);
		break;
	case 5:
		cJSON_SetNumberValue(cJSON_GetObjectItem(v, "offset"), 64e12);
		break;
	case 6:
		cJSON_ReplaceItemInObject(v, "file", cJSON_CreateString("../5/rank-0.bin"));
		break;
	case 7:
		cJSON_ReplaceItemInObject(v, "file", cJSON_CreateString("rank-00.bin"));
		break;
	case 8:
		cJSON_ReplaceItemInObject(t, "name", cJSON_CreateString("1.biases"));
		break;
	case 9:
		cJSON_SetNumberValue(cJSON_GetArrayItem(cJSON_GetObjectItem(t, "shape"), 0), 1e15);
		break;
	case 10:
		cJSON_ReplaceItemInObject(t, "dtype", cJSON_CreateString("float16"));
		break;
	case 11:
		cJSON_SetNumberValue(cJSON_GetObjectItem(root, "v"), 2);
		break;
	case 12:
		cJSON_SetNumberValue(cJSON_GetObjectItem(root, "step"), 6);
		break;
	case 13:
		cJSON_ReplaceItemInObject(t, "kind", cJSON_CreateString("buffer"));
		break;
	case 14:
		cJSON_SetNumberValue(cJSON_GetObjectItem(v, "start"), -1);
		break;
	case 15:
		cJSON_SetNumberValue(cJSON_GetObjectItem(v, "length"), 0.5);
		break;
	case 16:
		cJSON_DeleteItemFromObject(t, "intervals");
		break;
	default: /* no state of this tensor */
		cJSON_ArrayForEach(t,
				   cJSON_GetObjectItem(root, "tensors")) if (!strcmp(cJSON_GetObjectItem(t, "name")->valuestring,
										     "1.weights:momentum")) break;
		cJSON_Delete(cJSON_DetachItemViaPointer(cJSON_GetObjectItem(root, "tensors"), t));
	}
}

static void false_intervals_are_refused_with_tensor_and_range(void)
{
	static const char *const texts[] = {
		"tensor 1.weights: elements 40 to 48 are missing",
		"tensor 1.weights: elements 0 to 48 are stored twice",
		"tensor 1.weights: elements 0 to 48 are missing",
		"tensor 1.weights: elements 0 to 49 are stored, it has 48",
		"tensor 1.weights: offset 4",
		"tensor 1.weights, elements 0 to 48",
		"1.weights: \"file\"",
		"1.weights: \"file\"",
		"1.biases",
		"1.weights",
		"float16",
		"version 2",
		"checksum",
		"is a buffer",
		"\"start\"",
		"\"length\"",
		"\"intervals\"",
		"no optimizer state 1.weights:momentum",
	};
	struct net_help t;
	char *text, *changed;
	size_t n;

	save_numbered(&t, "edit");
	CHECK_OK_FATAL(dn_file_read(path_of("edit/5/meta.json"), 1 << 20, &text, &n));
	for (int i = 0; i < (int)(sizeof(texts) / sizeof(texts[0])); i++) {
		cJSON *root = cJSON_Parse(text);

		CU_ASSERT_PTR_NOT_NULL_FATAL(root);
		edit(root, i);
		changed = cJSON_Print(root);
		put_text(path_of("edit/5/meta.json"), changed, strlen(changed));
		CHECK_FAILS(load_path(t.net, path_of("edit")), -EINVAL, texts[i]);
		free(changed);
		cJSON_Delete(root);
	}
	dn_free(text);
	net_help_close(&t);
}

/* A net of another number of ranks wrote this: each tensor in three intervals, in two files. */
static void intervals_of_several_files_come_together(void)
{
	struct net_help t;
	struct dn_ckpt *c;
	float x[12], y[12];
	struct dn_ckpt_interval iv[3] = { { 0, 5, 1, 64, 0, false }, { 5, 4, 0, 0, 0, false }, { 9, 3, 1, 128, 0, false } };
	struct dn_ckpt_tensor w = {
		.name = "w", .kind = DN_CKPT_PARAM, .n_dims = 2, .shape = { 3, 4 }, .n = 12, .n_intervals = 3, .intervals = iv
	};
	struct dn_ckpt_head h = {
		.state = state, .cfg_text = "[net]\n", .optimizer = "sgd", .world = 2, .replicas = 1, .shards = 2
	};
	struct dn_buf meta = { 0 };
	char bin[2][192] = { { 0 } };

	memset(&t, 0, sizeof(t));
	for (int i = 0; i < 12; i++)
		x[i] = (float)(i + 1);
	for (int i = 0; i < 3; i++) {
		memcpy(bin[iv[i].file] + iv[i].offset, x + iv[i].start, (size_t)iv[i].length * 4);
		iv[i].xxh64 = dn_hash(x + iv[i].start, (size_t)iv[i].length * 4);
	}
	CHECK_OK_FATAL(dn_make_dirs(path_of("two")));
	CHECK_OK_FATAL(dn_ckpt_meta(&meta, &h, 1, &w));
	put_text(path_of("two/meta.json"), meta.s, meta.n);
	put_text(path_of("two/rank-0.bin"), bin[0], 192);
	put_text(path_of("two/rank-1.bin"), bin[1], 192);
	CHECK_OK_FATAL(dn_ckpt_open(&c, path_of("two")));
	CHECK_EQ(dn_ckpt_world(c), 2);
	CHECK_OK(dn_ckpt_cover(c, dn_ckpt_find(c, "w")));
	for (int at = 0; at < 12; at++)
		for (int n = 0; at + n <= 12; n++) {
			memset(y, 0, sizeof(y));
			CHECK_OK(dn_ckpt_read(c, "w", at, n, y));
			CHECK_BITS(y, x + at, (size_t)n * 4);
		}
	dn_ckpt_close(c);
	dn_buf_fini(&meta);
}

static void a_param_frozen_when_saved_resumes_with_zero_state(void)
{
	static const char frozen[] = NET CONV "stopbackward=1\n" DENSE COST;
	struct net_help t;

	CHECK_OK_FATAL(dn_remove_tree(path_of("z")));
	open_net(&t, frozen, true);
	CHECK_OK_FATAL(dn_ckpt_save(t.net, path_of("z"), &state, 3, &alone, NULL));
	net_help_close(&t);
	open_net(&t, small, true);
	CHECK_OK_FATAL(each_part(t.net, DN_WRITE, number_all));
	CHECK_OK(load_path(t.net, path_of("z")));
	net_help_close(&t);
}

/* a file system that takes no more: the limit of a file's size stands in for a full disk */
static void a_full_disk_fails_and_leaves_what_was_there(void)
{
	static const char cfg[] = "[net]\nbatch=1\ninputs=300\n[connected]\noutput=400\nactivation=linear\n" COST;
	struct rlimit was, low;
	struct net_help t;
	struct dn_weights_info in;
	struct dn_ckpt_state s = state;
	int err_weights, err_ckpt;

	CHECK_OK_FATAL(dn_remove_tree(path_of("full")));
	open_net(&t, cfg, true);
	CHECK_OK_FATAL(dn_weights_save(t.net, path_of("full.weights"), 1, -1, &alone, NULL));
	CHECK_OK_FATAL(dn_ckpt_save(t.net, path_of("full"), &s, 3, &alone, NULL));
	s.step = 6;
	signal(SIGXFSZ, SIG_IGN);
	CHECK_EQ(getrlimit(RLIMIT_FSIZE, &was), 0);
	low = was;
	low.rlim_cur = 100000;
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
	err_weights = dn_weights_save(t.net, path_of("full.weights"), 2, -1, &alone, NULL);
	err_ckpt = dn_ckpt_save(t.net, path_of("full"), &s, 3, &alone, NULL);
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &was), 0);
	CHECK_EQ(err_weights, -EFBIG);
	CHECK_EQ(err_ckpt, -EFBIG);
	CHECK_OK(dn_weights_check(t.net, path_of("full.weights"), false, &in));
	CHECK_EQ(in.header.seen, 1);
	CHECK_EQ(dn_ckpt_newest(path_of("full")), 5);
	CHECK_EQ(count_entries(path_of("full")), 1);
	CHECK_OK(load_path(t.net, path_of("full")));
	net_help_close(&t);
}

static void failing_allocations_end_loads_cleanly(void)
{
	struct net_help t;
	int failed = 0;

	save_numbered(&t, "mem");
	for (uint64_t n = 1; n < 300; n++) {
		int err;

		dn_mem_fail_at(n);
		err = load_path(t.net, path_of("mem"));
		if (!err)
			err = dn_ckpt_refuse(path_of("mem"), t.net);
		dn_mem_fail_at(0);
		if (!err)
			break;
		failed++;
	}
	CU_ASSERT_TRUE(failed > 20 && failed < 290);
	write_file("memw", 0, 2, 8, 0, ALL_FLOATS, 0);
	dn_mem_fail_at(1);
	CU_ASSERT_NOT_EQUAL(dn_weights_load(t.net, path_of("memw"), -1, false, NULL), 0);
	dn_mem_fail_at(0);
	CHECK_OK(dn_weights_load(t.net, path_of("memw"), -1, false, NULL));
	net_help_close(&t);
}

static const struct check_case cases[] = {
	{ "floats_go_to_params_in_file_order", floats_go_to_params_in_file_order },
	{ "width_of_seen_follows_version_and_size", width_of_seen_follows_version_and_size },
	{ "versions_above_1000_hold_dense_weights_transposed", versions_above_1000_hold_dense_weights_transposed },
	{ "flipped_convolutions_are_transposed_in_any_version", flipped_convolutions_are_transposed_in_any_version },
	{ "dontload_dontloadscales_and_numload_change_what_a_file_holds",
	  dontload_dontloadscales_and_numload_change_what_a_file_holds },
	{ "partial_files_are_loaded_only_when_allowed", partial_files_are_loaded_only_when_allowed },
	{ "cutoff_takes_the_first_layers_of_a_whole_file", cutoff_takes_the_first_layers_of_a_whole_file },
	{ "malformed_files_are_refused_with_what_is_wrong", malformed_files_are_refused_with_what_is_wrong },
	{ "values_that_are_not_finite_are_counted", values_that_are_not_finite_are_counted },
	{ "saving_gives_the_bytes_that_were_loaded", saving_gives_the_bytes_that_were_loaded },
	{ "large_dense_weights_are_read_in_pieces", large_dense_weights_are_read_in_pieces },
	{ "a_failed_save_leaves_the_old_file", a_failed_save_leaves_the_old_file },
	{ "json_texts_are_escaped_and_numbers_exact", json_texts_are_escaped_and_numbers_exact },
	{ "what_is_not_finite_is_counted_wherever_it_stands", what_is_not_finite_is_counted_wherever_it_stands },
	{ "a_checkpoint_gives_back_all_that_was_saved", a_checkpoint_gives_back_all_that_was_saved },
	{ "keep_drops_old_steps_and_leftovers", keep_drops_old_steps_and_leftovers },
	{ "a_failed_save_leaves_earlier_checkpoints", a_failed_save_leaves_earlier_checkpoints },
	{ "another_net_is_refused_by_tensor", another_net_is_refused_by_tensor },
	{ "every_flipped_byte_is_found_or_harmless", every_flipped_byte_is_found_or_harmless },
	{ "truncated_and_missing_files_are_refused", truncated_and_missing_files_are_refused },
	{ "false_intervals_are_refused_with_tensor_and_range", false_intervals_are_refused_with_tensor_and_range },
	{ "intervals_of_several_files_come_together", intervals_of_several_files_come_together },
	{ "a_param_frozen_when_saved_resumes_with_zero_state", a_param_frozen_when_saved_resumes_with_zero_state },
	{ "a_full_disk_fails_and_leaves_what_was_there", a_full_disk_fails_and_leaves_what_was_there },
	{ "failing_allocations_end_loads_cleanly", failing_allocations_end_loads_cleanly },
	{ NULL, NULL },
};

int main(void)
{
	int rc;

	snprintf(dir, sizeof(dir), "/tmp/test_io.%ld", (long)getpid());
	if (dn_make_dirs(dir))
		return 2;
	rc = check_run("io", cases);
	dn_remove_tree(dir);
	return rc;
}
