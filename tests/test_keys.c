/* The tables of keys: what they say is what is read, refused and warned of. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "data/datafile.h"
#include "data/image.h"
#include "graph/graph_priv.h"
#include "net_help.h"

/* --- the tables by themselves --- */

static void check_default(const char *name, const struct dn_key_rule *r)
{
	double x = 0;
	int64_t whole = 0;
	bool ok = true;

	if (r->kind == DN_KEY_INT && r->def)
		ok = dn_parse_int(r->def, &whole) == DN_NUM_WHOLE &&
		     (r->max <= r->min || ((double)whole >= r->min && (double)whole <= r->max));
	if (r->kind == DN_KEY_FLOAT && r->def)
		ok = dn_parse_float(r->def, &x) == DN_NUM_WHOLE;
	if (r->kind == DN_KEY_ONLY)
		ok = r->def != NULL;
	if (r->kind != DN_KEY_ONLY && r->kind != DN_KEY_NOTHING)
		ok = ok && r->help && r->help[0] && r->help[strlen(r->help) - 1] != '.';
	if (r->names)
		ok = ok && (r->def ? dn_word_index(r->names(), r->def) >= 0 : r->otherwise != NULL);
	if (!ok)
		fprintf(stderr, "[%s] %s: default or help is wrong\n", name, r->key);
	CU_ASSERT_TRUE(ok);
}

static int times(const struct dn_key_rule *table, const char *key)
{
	int n = 0;

	for (; table && table->key; table++)
		n += !strcmp(table->key, key);
	return n;
}

static void tables_name_a_key_once_and_have_defaults_that_fit(void)
{
	struct dn_section_kind kind;
	int n = 0;

	for (int i = 0; dn_section_kind(i, &kind); i++) {
		CU_ASSERT_TRUE(kind.summary && kind.summary[0]);
		for (const struct dn_key_rule *r = kind.keys; r && r->key; r++, n++) {
			check_default(kind.name, r);
			CHECK_EQ(times(kind.keys, r->key) + times(kind.common, r->key), 1);
		}
	}
	for (const struct dn_key_rule *r = dn_layer_keys; r->key; r++) {
		check_default("layer", r);
		CHECK_EQ(times(dn_layer_keys, r->key), 1);
	}
	for (const struct dn_key_rule *r = dn_datafile_keys; r->key; r++) {
		check_default(".data", r);
		CHECK_EQ(times(dn_datafile_keys, r->key), 1);
	}
	CU_ASSERT_TRUE(n > 150);
}

/* --- whether code reads what the tables list --- */

/* A value for every key that is read, with which whoever reads the section comes to its end. */
static const char *sample(const struct dn_key_rule *r)
{
	static const struct {
		const char *key, *value;
	} others[] = {
		{ "from", "0" },	{ "layers", "0" },	 { "tree", "no.tree" }, { "steps", "1" },
		{ "scales", "1" },	{ "min_ratio", "1" },	 { "max_ratio", "2" },	{ "width", "8" },
		{ "height", "8" },	{ "channels", "4" },	 { "inputs", "256" },	{ "optimizer", "sgd" },
		{ "name", "a" },	{ "share_index", "-1" }, { "labels", "l" },	{ "train_truth", "t" },
		{ "valid_truth", "t" },
	};

	for (int i = 0; i < DN_N(others); i++)
		if (!strcmp(others[i].key, r->key))
			return others[i].value;
	return r->def ? r->def : r->kind == DN_KEY_INT ? "1" : "x";
}

static int put_keys(char *text, size_t cap, int n, const struct dn_key_rule *table)
{
	for (; table && table->key; table++)
		if (table->kind != DN_KEY_NOTHING)
			n += snprintf(text + n, cap - (size_t)n, "%s=%s\n", table->key, sample(table));
	CU_ASSERT_FATAL((size_t)n < cap);
	return n;
}

static void check_asked(const struct dn_section *s)
{
	CU_ASSERT_TRUE(s->n_keys > 0);
	for (int i = 0; i < s->n_keys; i++) {
		if (!s->keys[i].asked)
			fprintf(stderr, "[%s] %s: in the table, but nobody reads it\n", s->name, s->keys[i].key);
		CU_ASSERT_TRUE(s->keys[i].asked);
	}
}

/* Layer 0 is 8 x 8 x 4, layer 1 is 1 x 1 x 4. */
#define BEFORE "[net]\nwidth=8\nheight=8\nchannels=4\n[convolutional]\nfilters=4\nactivation=linear\n"

static void every_key_of_a_layer_s_table_is_read_by_its_setup(void)
{
	for (int i = 0; dn_layer_table[i]; i++) {
		const struct dn_layer_ops *o = dn_layer_table[i];
		char text[8192];
		struct dn_cfg *cfg = NULL;
		struct net_help t;
		struct dn_net *net = NULL;
		const struct dn_net_options opt = { .world = 1, .train = true };
		const struct dn_backend *be = dn_backend_find("ref");
		int n;

		if (!o->keys)
			continue;
		n = snprintf(text, sizeof(text), BEFORE "%s[%s]\n", strcmp(o->name, "scale_channels") ? "" : "[avgpool]\n",
			     o->name);
		put_keys(text, sizeof(text), n, o->keys);
		memset(&t, 0, sizeof(t));
		CHECK_OK_FATAL(be->open(DN_CPU(1), &t.dev));
		dn_log_sink(net_help_sink, &t);
		CHECK_OK_FATAL(dn_cfg_parse(&cfg, text, strlen(text), "t.cfg", true));
		if (dn_net_build(&net, cfg, t.dev, &opt) && strcmp(o->name, "softmax")) /* its tree is not there */
			fprintf(stderr, "[%s]: %s\n", o->name, dn_message());
		check_asked(&cfg->file->sections[cfg->file->n_sections - 1]);
		CHECK_EQ(net || !strcmp(o->name, "softmax"), 1);
		dn_log_sink(NULL, NULL);
		dn_net_destroy(net);
		dn_cfg_destroy(cfg);
		be->close(t.dev);
	}
}

static void every_key_of_all_layers_of_net_and_of_block_is_read(void)
{
	const struct dn_net_options opt = { .world = 1, .train = true, .multi_scale = true };
	struct dn_augment a;
	struct net_help t;
	char text[8192];
	int n = snprintf(text, sizeof(text), "[net]\n");

	n = put_keys(text, sizeof(text), n, dn_net_keys);
	n += snprintf(text + n, sizeof(text) - (size_t)n, "[block]\n");
	n = put_keys(text, sizeof(text), n, dn_block_keys);
	n += snprintf(text + n, sizeof(text) - (size_t)n, "[convolutional]\nfilters=4\n[convolutional]\nfilters=4\n");
	put_keys(text, sizeof(text), n, dn_layer_keys);
	CHECK_OK_FATAL(net_help_build(&t, "ref", text, &opt));
	CHECK_STR(t.warnings, "");
	CHECK_OK(dn_augment_read(&a, t.cfg->net, 8));
	check_asked(t.cfg->net);
	check_asked(&t.cfg->file->sections[1]);
	for (const struct dn_key_rule *r = dn_layer_keys; r->key; r++)
		CU_ASSERT_TRUE(dn_section_find(&t.cfg->file->sections[3], r->key)->asked);
	net_help_close(&t);
}

static void every_key_of_a_data_file_is_read(void)
{
	struct dn_datafile *d = NULL;
	char text[2048];

	put_keys(text, sizeof(text), 0, dn_datafile_keys);
	CHECK_OK_FATAL(dn_datafile_parse(&d, text, "t.data"));
	check_asked(&d->file->sections[0]);
	dn_datafile_destroy(d);
}

/* The other way round: a reader that asks past the tables does not get through a single run. */
static void asking_for_a_key_that_no_table_has_is_a_bug(void)
{
	static const char text[] = "[net]\nwidth=8\n[route]\n";
	struct dn_cfg *cfg = NULL;

	CHECK_OK_FATAL(dn_cfg_parse(&cfg, text, strlen(text), "t.cfg", true));
	for (int what = 0; what < 3; what++) {
		int status = 0;
		pid_t pid;

		fflush(NULL);
		pid = fork();
		if (!pid) {
			struct dn_section *s = &cfg->file->sections[1];
			int64_t x;
			double y;

			if (!freopen("/dev/null", "w", stderr))
				_exit(9);
			signal(SIGABRT, SIG_DFL);
			if (what == 0)
				(void)dn_key_int(s, "gruops", &x);
			else if (what == 1)
				(void)dn_key_float(s, "groups", &y); /* an INT */
			else
				(void)dn_key_int_or(s, "groups", 2, &x); /* has its default in the table */
			_exit(0);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CU_ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
	dn_cfg_destroy(cfg);
}

/* --- what follows from an entry --- */

static void entries_give_ranges_refusals_and_warnings(void)
{
	static const struct {
		const char *keys, *message;
	} bad[] = {
		{ "[route]\nlayers=0\ngroups=0\n", "t.cfg:10: [route] groups=0: must be from 1 to 16777216" },
		{ "[route]\nlayers=0\ngroups=2\ngroup_id=2\n", "t.cfg:11: [route] group_id=2: must be from 0 to 1" },
		{ "[route]\ntruth=1\n", "t.cfg:9: [route] truth=1 is not supported in this version, only 0" },
		{ "[shortcut]\nfrom=0\nweights_type=per_channel\n",
		  "t.cfg:10: [shortcut] weights_type=per_channel is not supported in this version, only none" },
	};
	struct net_help t;

	for (int i = 0; i < DN_N(bad); i++) {
		char text[300];

		snprintf(text, sizeof(text), BEFORE "%s", bad[i].keys);
		CU_ASSERT_TRUE(net_help_build(&t, "ref", text, NULL) < 0);
		CHECK_STR(dn_message(), bad[i].message);
	}
	CHECK_OK_FATAL(net_help_build(&t, "ref", BEFORE "[cost]\nratio=.5\nangle=1\nlearning_rate=2\n", NULL));
	CHECK_STR(t.warnings, "warning: t.cfg:9: [cost] ratio=0.5 has no effect\n"
			      "warning: t.cfg:10: [cost] angle=1: unknown key, ignored\n");
	net_help_close(&t);
}

static const struct check_case cases[] = {
	{ "tables_name_a_key_once_and_have_defaults_that_fit", tables_name_a_key_once_and_have_defaults_that_fit },
	{ "every_key_of_a_layer_s_table_is_read_by_its_setup", every_key_of_a_layer_s_table_is_read_by_its_setup },
	{ "every_key_of_all_layers_of_net_and_of_block_is_read", every_key_of_all_layers_of_net_and_of_block_is_read },
	{ "every_key_of_a_data_file_is_read", every_key_of_a_data_file_is_read },
	{ "asking_for_a_key_that_no_table_has_is_a_bug", asking_for_a_key_that_no_table_has_is_a_bug },
	{ "entries_give_ranges_refusals_and_warnings", entries_give_ranges_refusals_and_warnings },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("keys", cases);
}
