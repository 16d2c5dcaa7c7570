/* graph: in what two cfgs make other nets, key by key of every type of layer. */
#include "base/keyrule.h"
#include "net_help.h"

#define NET "[net]\nbatch=2\nwidth=8\nheight=8\nchannels=4\n"

struct found {
	int n, stop_at;
	char first[1200];
};

static int see(void *arg, const char *text)
{
	struct found *f = arg;

	if (!f->n++)
		snprintf(f->first, sizeof(f->first), "%s", text);
	return f->n == f->stop_at ? -EINTR : 0;
}

/* differences of the net of @now from the text @then */
static int against(const struct net_help *t, const char *then, struct found *f)
{
	struct dn_cfg *c;
	int err;

	memset(f, 0, sizeof(*f));
	CHECK_OK_FATAL(dn_cfg_parse_quiet(&c, then, strlen(then), "saved"));
	err = dn_cfg_differences(t->cfg, c, see, f);
	dn_cfg_destroy(c);
	CHECK_EQ(err, 0);
	return f->n;
}

/* @n differences of the net of @now, the first with @text in it */
static void compare(const char *now, const char *then, int n, const char *text)
{
	struct net_help t;
	struct found f;

	CHECK_OK_FATAL(net_help_build(&t, "ref", now, NULL));
	CHECK_EQ(against(&t, then, &f), n);
	if (!strstr(f.first, text) || f.n != n)
		fprintf(stderr, "got \"%s\", wanted \"%s\" for\n%s against\n%s", f.first, text, now, then);
	CU_ASSERT_PTR_NOT_NULL(strstr(f.first, text));
	net_help_close(&t);
}

/* One buildable net a type; the section under test is the last of its name. Types that are not named here stand behind a
 * convolution, without keys. */
static const struct row {
	const char *type, *before, *section, *after;
} rows[] = {
	{ "convolutional", "", "filters=8\nsize=3\nstride=1\nactivation=leaky\n", "" },
	{ "connected", "", "output=4\nactivation=leaky\n", "" },
	{ "maxpool", "[conv]\n", "size=2\nstride=2\n", "" },
	{ "avgpool", "[conv]\n", "", "" },
	{ "batchnorm", "[conv]\n", "", "" },
	{ "dropout", "[conv]\n", "probability=.25\n", "" },
	{ "softmax", "[connected]\noutput=4\n", "", "" },
	{ "cost", "[connected]\noutput=4\n", "type=L1\n", "" },
	{ "shortcut", "[conv]\nfilters=4\n[conv]\nfilters=4\n", "from=-2\nactivation=linear\n", "" },
	{ "route", "[conv]\nfilters=4\n[conv]\nfilters=4\n", "layers=-1,0\n", "" },
	{ "activation", "[conv]\n", "activation=tanh\n", "" },
	{ "logistic", "[connected]\noutput=4\n", "", "" },
	{ "l2norm", "[conv]\n", "", "" },
	{ "normalization", "[conv]\n", "alpha=.001\n", "" },
	{ "upsample", "[conv]\n", "stride=2\n", "" },
	{ "reorg", "[conv]\nfilters=4\n", "stride=2\n", "" },
	{ "reorg3d", "[conv]\nfilters=4\n", "stride=2\n", "" },
	{ "crop", "", "crop_width=4\ncrop_height=4\n", "[conv]\n" },
	{ "local", "", "filters=2\nsize=3\nactivation=leaky\n", "" },
	{ "deconvolutional", "", "filters=2\nsize=2\nstride=2\nactivation=leaky\n", "" },
	{ "scale_channels", "[conv]\nfilters=4\n[avgpool]\n", "from=-2\nactivation=linear\n", "" },
	{ "sam", "[conv]\nfilters=4\n[conv]\nfilters=4\n", "from=-2\nactivation=linear\n", "" },
	{ "local_avgpool", "[conv]\n", "size=2\nstride=2\n", "" },
};

static struct row row_of(const char *type)
{
	for (int i = 0; i < DN_N(rows); i++)
		if (!strcmp(rows[i].type, type))
			return rows[i];
	return (struct row){ type, "[conv]\n", "", "" };
}

static bool free_key(const char *type, const char *key)
{
	static const char *const all[] = { "learning_rate", "stopbackward", "dontload", "dontloadscales",
					   "dontsave",	    "numload",	    "flipped" };

	for (int i = 0; i < DN_N(all); i++)
		if (!strcmp(key, all[i]))
			return true;
	if (!strcmp(type, "cost"))
		return !strcmp(key, "ratio") || !strcmp(key, "noobj") || !strcmp(key, "thresh");
	return !strcmp(type, "crop") &&
	       (!strcmp(key, "shift") || !strcmp(key, "angle") || !strcmp(key, "saturation") || !strcmp(key, "exposure"));
}

static bool is_default(const struct dn_key_rule *r, const char *value)
{
	return r->def && (r->kind == DN_KEY_TEXT ? !strcmp(r->def, value)
						 : !(strtod(value, NULL) > strtod(r->def, NULL)) &&
							   !(strtod(value, NULL) < strtod(r->def, NULL)));
}

/* @out: the net of @row with KEY=VALUE in the section, in place of what is there */
static void with_key(const struct row *row, const char *key, const char *value, char *out, size_t cap)
{
	size_t n = (size_t)snprintf(out, cap, NET "%s[%s]\n", row->before, row->type);

	for (const char *p = row->section; *p; p = strchr(p, '\n') + 1)
		if (strncmp(p, key, strlen(key)) || p[strlen(key)] != '=')
			n += (size_t)snprintf(out + n, cap - n, "%.*s\n", (int)strcspn(p, "\n"), p);
	if (value)
		n += (size_t)snprintf(out + n, cap - n, "%s=%s\n", key, value);
	snprintf(out + n, cap - n, "%s", row->after);
}

/* Another value of a key than rows have: the default's, and something more */
static void other_value(const struct dn_key_rule *r, char *out, size_t cap)
{
	if (!strcmp(r->key, "share_index") || r->kind == DN_KEY_INTS)
		snprintf(out, cap, "-7");
	else if (r->kind == DN_KEY_INT)
		snprintf(out, cap, "%lld", (r->def ? atoll(r->def) : 0) + 77);
	else if (r->kind == DN_KEY_TEXT)
		snprintf(out, cap, "another");
	else
		snprintf(out, cap, "%.9g", (r->def ? strtod(r->def, NULL) : 0) + .375);
}

/* What a type reads is what its net computes, unless it is free: any key of its tables is compared, without being named. */
static void every_key_that_a_type_reads_is_compared_or_free(void)
{
	int compared = 0, left = 0;

	for (int i = 0; dn_layer_table[i]; i++) {
		const struct row row = row_of(dn_layer_table[i]->name);
		struct dn_section *s = NULL;
		struct net_help t;
		char text[1200];

		with_key(&row, "-", NULL, text, sizeof(text));
		CHECK_OK_FATAL(net_help_build(&t, "ref", text, NULL));
		for (int k = 0; k < t.cfg->file->n_sections; k++)
			if (!strcmp(t.cfg->file->sections[k].name, row.type))
				s = &t.cfg->file->sections[k];
		CU_ASSERT_TRUE_FATAL(s && s->rules[0]);
		for (int table = 0; table < 2; table++) {
			for (const struct dn_key_rule *r = s->rules[table]; r && r->key; r++) {
				const struct dn_key *have = dn_section_find(s, r->key);
				bool is_free = free_key(row.type, r->key) || r->kind == DN_KEY_NOTHING;
				char value[64], where[200];
				struct found f;

				other_value(r, value, sizeof(value));
				with_key(&row, r->key, value, text, sizeof(text));
				if (against(&t, text, &f) != !is_free)
					fprintf(stderr, "[%s] %s=%s: %d differences: %s\n", row.type, r->key, value, f.n,
						f.first);
				CHECK_EQ(f.n, !is_free);
				snprintf(where, sizeof(where), "t.cfg:%d: [%s] ", have ? have->line : s->line, row.type);
				CU_ASSERT_TRUE(is_free || dn_starts(f.first, where));
				CU_ASSERT_TRUE(is_free || strstr(f.first, value));
				compared += !is_free;
				left += is_free;
				/* and a key that only one of the two has, where the default does not say the same */
				if (!have || is_free || (!r->def && r->kind == DN_KEY_INT))
					continue;
				with_key(&row, r->key, NULL, text, sizeof(text));
				CHECK_EQ(against(&t, text, &f), !is_default(r, have->value));
			}
		}
		net_help_close(&t);
	}
	CU_ASSERT_TRUE(compared > 220 && left > 6 * DN_N(rows));
}

/* Without a default in its table a key of one number has one that follows, or none: all that follow are known. */
static void defaults_that_follow_from_other_keys_are_worked_out(void)
{
	static const char *const follow[] = { "stride_x", "stride_y", "size", "padding" };

	for (int i = 0; dn_layer_table[i]; i++)
		for (const struct dn_key_rule *r = dn_layer_table[i]->keys; r && r->key; r++) {
			bool known = r->def || !r->otherwise;

			for (int k = 0; k < DN_N(follow); k++)
				known = known || !strcmp(follow[k], r->key);
			if (!known)
				fprintf(stderr, "[%s] %s: the default of \"%s\" is not worked out\n", dn_layer_table[i]->name,
					r->key, r->otherwise);
			CU_ASSERT_TRUE(known);
		}
#define POOL(keys) NET "[maxpool]\n" keys "[conv]\n"
	compare(POOL("stride=2\n"), POOL("stride=2\nsize=2\npadding=1\nstride_x=2\nstride_y=2\n"), 0, "");
	compare(POOL("stride=2\nsize=2\npadding=1\nstride_x=2\nstride_y=2\n"), POOL("stride=2\n"), 0, "");
	compare(POOL("stride=2\n"), POOL("stride=2\nsize=3\n"), 1, "t.cfg:6: [maxpool] has no size, so 2; was saved with size=3");
	compare(POOL("stride=2\nsize=3\n"), POOL("stride=2\n"), 1, "t.cfg:8: [maxpool] size=3; was saved without it, so 2");
	compare(POOL("stride=2\nsize=3\n"), POOL("stride=2\nsize=3\npadding=1\n"), 1,
		"[maxpool] has no padding, so 2; was saved with padding=1");
	compare(POOL("size=3\nstride=2\npadding=1\n"), POOL("stride=2\n"), 1, "size=3; was saved without it, so 2");
	compare(POOL("size=1\n"), POOL("size=x\n"), 1, "size=1; was saved with x");
	compare(NET "[conv]\nstride=2\n", NET "[conv]\nstride=2\nstride_x=2\nstride_y=02\n", 0, "");
	compare(NET "[conv]\nstride=2\n", NET "[conv]\nstride_x=2\nstride_y=2\n", 0, "");
	compare(NET "[conv]\nstride=2\n", NET "[conv]\nstride_x=3\nstride_y=3\n", 3, "stride=2; was saved without it, so 1");
	compare(POOL("stride=2\nsize=2\n"), POOL("stride_x=2\nstride_y=2\nsize=2\n"), 0, "");
	compare(POOL("stride=2\n"), POOL("stride_x=2\nstride_y=2\n"), 1, "stride=2; was saved without it, so 1"); /* and size 1 */
}

static void keys_that_say_the_same_in_other_words_are_no_difference(void)
{
#define KERNEL(keys) NET "[conv]\nfilters=4\n" keys
	compare(KERNEL("size=3\npad=1\n"), KERNEL("size=3\npadding=1\n"), 0, "");
	compare(KERNEL("size=3\npadding=1\n"), KERNEL("size=3\npad=1\n"), 0, "");
	compare(KERNEL("size=3\npad=1\npadding=5\n"), KERNEL("size=3\npad=1\n"), 0, "");
	compare(KERNEL("size=3\ndilation=2\npad=1\n"), KERNEL("size=3\ndilation=2\npadding=2\n"), 0, "");
	compare(KERNEL("pad=1\n"), KERNEL(""), 0, "");
	compare(KERNEL("size=3\npad=1\n"), KERNEL("size=3\npadding=2\n"), 2, "pad=1; was saved without it, so 0");
	compare(KERNEL("size=3\npad=1\n"), KERNEL("size=3\n"), 1, "pad=1; was saved without it, so 0");
	compare(KERNEL("size=3\npad=1\n"), KERNEL("size=5\npad=1\n"), 1, "size=3; was saved with 5");
	compare(NET "[deconv]\nsize=3\npad=1\n", NET "[deconv]\nsize=3\npadding=1\n", 0, "");
	compare(NET "[deconv]\nsize=3\npad=1\n", NET "[deconv]\nsize=3\n", 1, "pad=1");
	compare(KERNEL("xnor=1\n"), KERNEL("xnor=1\nbinary=1\n"), 0, "");
	compare(KERNEL("xnor=1\n"), KERNEL("binary=1\n"), 1, "xnor=1");
	compare(NET "[connected]\noutput=4\n[cost]\ntype=seg\n", NET "[connected]\noutput=4\n[cost]\n", 0, "");
	compare(NET "[connected]\noutput=4\n[cost]\ntype=L1\n", NET "[connected]\noutput=4\n[cost]\ntype=seg\n", 1, "type=L1");
	/* whose params are used, and what works in the place of its source */
#define THREE "[conv]\nfilters=4\n[conv]\nfilters=4\nshare_index=0\n[conv]\nfilters=4\nshare_index="
	compare(NET THREE "0\n", NET THREE "1\n", 0, "");
	compare(NET THREE "-1\n", NET THREE "0\n", 0, "");
#define DROP NET "[conv]\nfilters=4\n[dropout]\n[dropout]\n[conv]\nfilters=4\n[route]\nlayers="
	compare(DROP "0,3\n", DROP "2,-1\n", 0, "");
	compare(DROP "1\n", DROP "0\n", 0, "");
	compare(DROP "1\n", DROP "3\n", 1, "layers=1; was saved with 3");
}

static void the_keys_of_net_are_compared_but_for_those_of_training(void)
{
	static const char *const may[] = {
		"learning_rate=.5",
		"policy=exp",
		"burn_in=7",
		"step=4",
		"steps=1,2",
		"scale=.5",
		"scales=.1,.1",
		"gamma=.7",
		"power=2",
		"sgdr_cycle=9",
		"sgdr_mult=3",
		"learning_rate_min=.1",
		"momentum=.5",
		"decay=.5",
		"B1=.5",
		"B2=.5",
		"eps=.5",
		"max_batches=77",
		"batch=16",
		"subdivisions=2",
		"min_crop=7",
		"max_crop=9",
		"min_ratio=.5",
		"max_ratio=3",
		"center=1",
		"angle=7",
		"aspect=.5",
		"hue=.5",
		"saturation=.5",
		"exposure=2",
		"flip=0",
		"random=1",
		"legacy_bn=1",
		"optimizer=adam",
		"adam=1",
		"letter_box=1",
		"inputs=256",
		"nobody=1",
		"show_receptive_field=1",
	};
	static const char *const must[] = { "time_steps=2", "clip=1", "label_smooth_eps=.1", "ema_alpha=.1", "notruth=1" };
	struct net_help t;
	struct found f;
	char text[400];

	CHECK_OK_FATAL(net_help_build(&t, "ref", NET "[conv]\n", NULL));
	for (int i = 0; i < DN_N(may); i++) {
		snprintf(text, sizeof(text), "[net]\n%s\n%s[conv]\n", may[i], NET + 6);
		if (against(&t, text, &f))
			fprintf(stderr, "%s: %s\n", may[i], f.first);
		CHECK_EQ(f.n, 0);
	}
	for (int i = 0; i < DN_N(must); i++) {
		snprintf(text, sizeof(text), NET "%s\n[conv]\n", must[i]);
		CHECK_EQ(against(&t, text, &f), 1);
	}
	CHECK_EQ(against(&t, "[net]\nbatch=2\nwidth=16\nheight=8\nchannels=4\n[conv]\n", &f), 1);
	CHECK_STR(f.first, "t.cfg:3: [net] width=8; was saved with 16");
	CHECK_EQ(against(&t, "[net]\nbatch=2\nwidth=8\nheight=16\nchannels=2\n[conv]\n", &f), 2);
	CHECK_EQ(against(&t, "[net]\nbatch=2\ninputs=256\n[conv]\n", &f), 4);
	net_help_close(&t);
}

static void other_writing_of_the_same_net_is_no_difference(void)
{
	const char *now = NET
		"[conv]\nfilters=4\nsize=3\npad=1\nactivation=leaky\n[maxpool]\nsize=2\nstride=2\n[conv]\nfilters=4\n"
		"[route]\nlayers=-1,-2\n[shortcut]\nfrom=-2\nactivation=linear\n[conv]\nfilters=4\n[conv]\nfilters=4\nsize=1\nshare_index=-4\n";

	compare(now, now, 0, "");
	/* comments, blanks, order, an alias, CRLF, a BOM, other spellings of numbers, written defaults, a default that follows */
	compare(now,
		"\xef\xbb\xbf# old\r\n[network]\r\nchannels = 4 ; rgb+a\r\nheight=8\r\nwidth=08\r\nbatch=2\r\n"
		"[convolutional]\r\nactivation=leaky\r\npad=1\r\n# more\r\nsize=3\r\nfilters= 4\r\nstride=1\r\ngroups=1\r\n"
		"[max]\nstride=2\npadding=1\nstride_x=2\n[conv]\nfilters=4\nactivation=logistic\nbatch_normalize=0\nxnor=0\n"
		"[route]\nlayers=2, 1\ngroups=1\n[shortcut]\nfrom=2\nalpha=1.0\n[conv]\nfilters=4\n[conv]\nfilters=4\nshare_index=2\n",
		0, "");
	compare(NET "[dropout]\nprobability=.5\n[conv]\n", NET "[dropout]\nprobability=0.50\n[conv]\n", 0, "");
	compare(NET "[dropout]\n[conv]\n", NET "[dropout]\nprobability=5e-1\n[conv]\n", 0, "");
	compare(NET "[normalization]\n[conv]\n", NET "[normalization]\nalpha=0.0001\nbeta=.75\nsize=5\n[conv]\n", 0, "");
	compare(NET "[normalization]\nalpha=.0001\n[conv]\n", NET "[normalization]\n[conv]\n", 0, "");
	/* keys that no layer reads */
	compare(NET "[conv]\nstream=1\n", NET "[conv]\nnobody=3\n", 0, "");
	/* an input without sides */
	compare("[net]\ninputs=6\n[connected]\n", "[net]\ninputs=6\n[connected]\n", 0, "");
	compare("[net]\ninputs=6\n[connected]\n", "[net]\ninputs=7\n[connected]\n", 1,
		"t.cfg:2: [net] inputs=6; was saved with 7");
}

static void markers_and_plugin_sections_do_not_count(void)
{
	const struct dn_net_options o = { .world = 1, .train = true, .seed = 7 };
	const char *text = NET "[shard]\nlimit=2\n[block]\nname=a\n[conv]\n[block]\n[conv]\n";
	struct net_help t = { 0 };
	struct found f;

	CHECK_OK_FATAL(dn_backend_find("ref")->open(DN_CPU(1), &t.dev));
	CHECK_OK_FATAL(dn_cfg_parse(&t.cfg, text, strlen(text), "t.cfg", false));
	CHECK_OK_FATAL(dn_cfg_claim(t.cfg, "shard"));
	CHECK_OK_FATAL(dn_net_build(&t.net, t.cfg, t.dev, &o));
	CHECK_EQ(against(&t, NET "[conv]\n[conv]\n", &f), 0);
	CHECK_EQ(against(&t, NET "[conv]\n[shard]\nlimit=3\n[block]\nfrozen=1\n[conv]\n", &f), 0);
	CHECK_EQ(against(&t, NET "[conv]\n[shard]\nlimit=3\n[block]\n[conv]\nsize=3\n", &f), 1);
	CHECK_STR(f.first, "t.cfg:12: [conv] has no size, so 1; was saved with size=3");
	net_help_close(&t);
}

static void other_layers_are_named_and_end_the_comparison(void)
{
	compare(NET "[conv]\n[maxpool]\n[conv]\nsize=3\n", NET "[conv]\n[local_avgpool]\n[conv]\n", 1,
		"t.cfg:7: layer 1 is [maxpool]; was saved as [local_avgpool]");
	compare(NET "[conv]\n[maxpool]\n", NET "[conv]\n", 1, "t.cfg:7: layer 1 is [maxpool]; the net was saved with 1 layers");
	compare(NET "[conv]\n", NET "[conv]\n[dropout]\n", 1,
		"t.cfg:6: the net ends with layer 0, [conv]; it was saved with a [dropout] after it");
	compare(NET "[conv]\nactivation=relu\n[conv]\nactivation=tanh\n",
		NET "[conv]\n[conv]\nactivation=tanh\nsize=1\ndilation=2\n", 2,
		"t.cfg:7: [conv] activation=relu; was saved without it, so logistic");
}

static void lists_of_layers_are_compared_by_the_layers_they_name(void)
{
#define TWO NET "[conv]\nfilters=4\n[conv]\nfilters=4\n[route]\nlayers="
	compare(TWO "-1,-2\n", TWO "1,0\n", 0, "");
	compare(TWO "-1,-2\n", TWO "0,1\n", 1, "t.cfg:11: [route] layers=-1,-2; was saved with 0,1");
	compare(TWO "-1,-2\n", TWO "1\n", 1, "layers=-1,-2; was saved with 1");
	compare(TWO "-1\n", TWO "1,0\n", 1, "layers=-1; was saved with 1,0");
	compare(TWO "-1\n", TWO "x\n", 1, "was saved with x");
	compare(NET "[conv]\nfilters=4\n[conv]\nfilters=4\n", NET "[conv]\nfilters=4\n[conv]\nfilters=4\nshare_index=0\n", 1,
		"t.cfg:8: [conv] has no share_index; was saved with share_index=0");
	compare(NET "[conv]\nfilters=4\n[conv]\nfilters=4\nshare_index=0\n", NET "[conv]\nfilters=4\n[conv]\nfilters=4\n", 1,
		"t.cfg:10: [conv] share_index=0; was saved without it");
}

static void the_listener_may_end_it(void)
{
	struct found f = { .stop_at = 2 };
	struct net_help t;
	struct dn_cfg *c;
	const char *then = NET "[conv]\nsize=3\ngroups=2\npadding=7\n";

	CHECK_OK_FATAL(net_help_build(&t, "ref", NET "[conv]\n", NULL));
	CHECK_OK_FATAL(dn_cfg_parse_quiet(&c, then, strlen(then), "saved"));
	CHECK_EQ(dn_cfg_differences(t.cfg, c, see, &f), -EINTR);
	CHECK_EQ(f.n, 2);
	dn_cfg_destroy(c);
	net_help_close(&t);
}

static void a_quiet_parse_warns_of_nothing(void)
{
	const char *text = "[net]\ninputs=2\nnonsense\n=3\nempty=\ninputs=4\n";
	struct net_help t = { 0 };
	struct dn_cfg *c;

	dn_log_sink(net_help_sink, &t);
	CHECK_OK_FATAL(dn_cfg_parse_quiet(&c, text, strlen(text), "saved"));
	CHECK_STR(t.warnings, "");
	dn_cfg_destroy(c);
	CHECK_OK_FATAL(dn_cfg_parse(&c, text, strlen(text), "loud", false));
	CU_ASSERT_PTR_NOT_NULL(strstr(t.warnings, "loud:3"));
	dn_cfg_destroy(c);
	dn_log_sink(NULL, NULL);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(every_key_that_a_type_reads_is_compared_or_free),
	CASE(defaults_that_follow_from_other_keys_are_worked_out),
	CASE(keys_that_say_the_same_in_other_words_are_no_difference),
	CASE(the_keys_of_net_are_compared_but_for_those_of_training),
	CASE(other_writing_of_the_same_net_is_no_difference),
	CASE(markers_and_plugin_sections_do_not_count),
	CASE(other_layers_are_named_and_end_the_comparison),
	CASE(lists_of_layers_are_compared_by_the_layers_they_name),
	CASE(the_listener_may_end_it),
	CASE(a_quiet_parse_warns_of_nothing),
	{ NULL, NULL },
};

int main(void)
{
	return check_run("differ", cases);
}
