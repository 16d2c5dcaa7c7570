/* The shared path of verbs that run a net; see session.h. */
#include "cli/session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/keyrule.h"
#include "base/launch.h"
#include "base/version.h"
#include "cli/cli.h"
#include "cli/launch.h"

/* --- what must be equal on all ranks --- */

int session_item(struct session_items *s, const char *name, const char *fmt, ...)
{
	size_t n = strlen(name) + 1;
	char text[512];
	va_list ap;
	char *both; /* NAME\0VALUE */

	if (s->n == s->cap) {
		int cap = s->cap ? 2 * s->cap : 64;
		struct dn_item *grown = dn_realloc(s->item, (size_t)cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		s->item = grown;
		s->cap = cap;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	both = dn_alloc(n + strlen(text) + 1);
	if (!both)
		return -ENOMEM;
	memcpy(both, name, n);
	memcpy(both + n, text, strlen(text) + 1);
	s->item[s->n++] = (struct dn_item){ both, both + n };
	return 0;
}

int session_item_weights(struct session_items *s, const char *path)
{
	int64_t size;
	int err = dn_file_size(path, &size);

	return err ? err : session_item(s, "weights file", "%.300s, %lld bytes", path, (long long)size);
}

void session_items_fini(struct session_items *s)
{
	for (int i = 0; i < s->n; i++)
		dn_free((char *)s->item[i].name);
	dn_free(s->item);
	memset(s, 0, sizeof(*s));
}

/* --- plugins --- */

static bool may_be_plugin(const struct dn_section *sec)
{
	return strcmp(sec->name, "net") && strcmp(sec->name, "network") && strcmp(sec->name, "block") &&
	       !dn_cfg_is_layer(sec->name);
}

int session_claim(struct dn_cfg *cfg, bool read_keys)
{
	for (int i = 0; i < cfg->file->n_sections; i++) {
		struct dn_section *sec = &cfg->file->sections[i];
		int err;

		if (!may_be_plugin(sec) || !dn_plugin_exists(sec->name))
			continue;
		(void)dn_cfg_section(cfg, sec->name, &err); /* two are an error */
		if (!err)
			err = dn_cfg_claim(cfg, sec->name);
		if (err)
			return err;
		for (int k = 0; read_keys && k < sec->n_keys; k++)
			sec->keys[k].used = true;
	}
	return 0;
}

/* The plugin that flags and cfg ask for: a name or path, NULL for none; into @out. */
static int plugin_wanted(struct session *s, const char **out, char *name, size_t cap)
{
	const char *flag = dn_options_text(s->c->flags, "plugin");
	const char *found = NULL;

	*out = NULL;
	if (flag && !strcmp(flag, "none")) {
		if (s->c->n_plugin_flags)
			return dn_fail(-EINVAL, "-%s: a plugin's key, but -plugin none asks for no plugin",
				       s->c->plugin_flags[0]);
		return 0;
	}
	for (int i = 0; i < s->cfg->file->n_sections; i++) {
		struct dn_section *sec = &s->cfg->file->sections[i];

		if (!may_be_plugin(sec) || !dn_plugin_exists(sec->name))
			continue;
		if (found && strcmp(found, sec->name))
			return dn_section_fail(sec, NULL, -EINVAL, "a second plugin: [%s] asks for one already, a run takes one",
					       found);
		found = sec->name;
	}
	if (flag && !strchr(flag, '/') && found && strcmp(flag, found))
		return dn_fail(-EINVAL,
			       "-plugin %s: the cfg asks for the plugin %s with its section [%s]; a run takes one plugin", flag,
			       found, found);
	if (flag) {
		*out = flag;
		return 0;
	}
	for (int i = 0; i < s->c->n_plugin_flags; i++) {
		const char *key = s->c->plugin_flags[2 * i];
		size_t n = strcspn(key, ".");

		if (n >= cap)
			return dn_fail(-EINVAL, "-%s: too long", key);
		if (found && (strlen(found) != n || strncmp(found, key, n)))
			return dn_fail(-EINVAL, "-%s: a run takes one plugin, and %s is asked for as well", key, found);
		if (!found) {
			memcpy(name, key, n);
			name[n] = '\0';
			found = name;
		}
	}
	*out = found;
	return 0;
}

static int plugin_open(struct session *s)
{
	struct dn_section *section;
	const char *wanted;
	char name[64];
	int err;

	err = plugin_wanted(s, &wanted, name, sizeof(name));
	if (err)
		return err;
	if (!wanted)
		return session_claim(s->cfg, true);
	err = dn_plugin_open(&s->plugin, wanted);
	if (err)
		return err;
	for (int i = 0; i < s->c->n_plugin_flags; i++) {
		const char *key = s->c->plugin_flags[2 * i];
		size_t n = strcspn(key, ".");

		if (strlen(s->plugin.p->name) != n || strncmp(s->plugin.p->name, key, n))
			return dn_fail(-EINVAL, "-%s: the plugin of this run is %s", key, s->plugin.p->name);
	}
	for (const struct dn_verb *const *v = cli_verbs; *v; v++) {
		size_t n = strcspn((*v)->name, " ");

		if (strlen(s->plugin.p->name) == n && !strncmp((*v)->name, s->plugin.p->name, n))
			return dn_fail(-EEXIST, "%s: the plugin's name %s is a verb of this program", s->plugin.path,
				       s->plugin.p->name);
	}
	err = session_claim(s->cfg, false);
	if (!err)
		err = dn_cfg_claim(s->cfg, s->plugin.p->name);
	if (err)
		return err;
	section = dn_cfg_section(s->cfg, s->plugin.p->name, &err);
	if (err)
		return err;
	return dn_plugin_options(&s->plugin_options, s->plugin.p, section, s->c->n_plugin_flags, s->c->plugin_flags);
}

/* --- start --- */

static int check_launch(const struct session *s)
{
	struct dn_launch l;

	dn_launch_read(&l);
	if (l.size <= 1 || s->run.group.world > 1)
		return 0;
	return dn_fail(
		-EINVAL,
		"%d processes were launched (%s), but %s: each would be rank 0 of 1, and they would overwrite one another's "
		"files; use [fsdp] in the cfg or -plugin fsdp, or launch one process",
		l.size, l.by, s->plugin.p ? "the plugin joined none of them" : "no plugin joins them");
}

static int open_device(struct session *s)
{
	const struct dn_backend *be = dn_backend_find(dn_options_text(s->c->flags, "backend"));
	char text[24];

	if (!be)
		return -EINVAL;
	s->env_threads = s->run.threads < 1 && dn_env_threads();
	if (s->run.threads < 1)
		s->run.threads = dn_default_threads(s->run.group.ranks_on_host);
	snprintf(text, sizeof(text), "%d", s->run.threads);
	if (!dn_options_given(s->c->flags, "threads")) {
		int err = dn_options_set(s->c->flags, "threads", text, "resolved");

		if (err)
			return err;
	}
	return be->open(DN_CPU(s->run.threads), &s->run.dev);
}

static void print_notices(const struct session *s)
{
	const struct dn_options *f = s->c->flags;
	int usable = dn_usable_cores(), affinity = dn_affinity_cores(), present = dn_present_cores();
	char bound[120] = "";

	if (usable < affinity)
		snprintf(bound, sizeof(bound), " by this rank (a CPU quota of %.4g)", dn_quota_cores(""));
	else if (usable < present)
		snprintf(bound, sizeof(bound), " by this rank (bound by the launcher or an affinity mask)");

	if (dn_options_given(f, "gpus") || dn_options_on(f, "nogpu") || dn_options_given(f, "i") ||
	    strcmp(dn_options_text(f, "device"), "cpu"))
		fprintf(stderr, "notice: this build has no GPU support: the CPU is used\n");
	fprintf(stderr, "threads: %d a rank%s, %d rank%s (%d on this host), %d of %d cores usable%s\n", s->run.threads,
		s->env_threads ? " (OMP_NUM_THREADS)" : "", s->run.group.world, s->run.group.world == 1 ? "" : "s",
		s->run.group.ranks_on_host, usable, present, bound);
}

int session_start(struct session *s, struct dn_command *c, const char *cfg_path, bool train)
{
	int err;

	*s = (struct session){ .c = c, .start_ns = dn_now_ns() };
	launch_short_waits(dn_options_given(c->flags, "threads") ? (int)dn_options_int(c->flags, "threads") : 0);
	s->run.verb = c->verb->name;
	s->run.group = (struct dn_group)DN_GROUP_ALONE;
	s->run.train = train;
	if (dn_options_given(c->flags, "threads"))
		s->run.threads = (int)dn_options_int(c->flags, "threads");
	if (dn_options_find(c->flags, "seed"))
		s->run.seed = (uint64_t)dn_options_int(c->flags, "seed");
	err = dn_cfg_read(&s->cfg, cfg_path, dn_options_on(c->flags, "strict"));
	if (err)
		return err;
	s->run.cfg = s->cfg;
	err = plugin_open(s);
	if (err)
		return err;
	s->run.options = s->plugin_options;
	if (s->plugin.p) {
		err = s->plugin.p->init(&s->run, &s->self);
		if (err)
			return err;
		s->started = true;
		dn_log_quiet(s->run.group.rank != 0);
	}
	err = check_launch(s);
	if (err)
		return err;
	err = open_device(s);
	err = session_agree(s, err, "start");
	if (!err && s->run.group.rank == 0)
		print_notices(s);
	return err;
}

int session_agree(struct session *s, int err, const char *what)
{
	int all = dn_group_agree(&s->run.group, err, what);

	/* an agreement that itself failed (a lost rank) is not one */
	s->agreed = all && s->run.group.world > 1 && dn_exit_status(all) != 3;
	return all;
}

int session_pass_batch(struct session *s, struct dn_net_options *opt)
{
	int64_t batch, subdivisions;
	int world = s->run.group.world;
	int err;

	err = dn_key_int(s->cfg->net, "batch", &batch);
	if (!err)
		err = dn_key_int(s->cfg->net, "subdivisions", &subdivisions);
	if (err)
		return err;
	batch /= subdivisions;
	if (dn_options_given(s->c->flags, "batch"))
		batch = dn_options_int(s->c->flags, "batch");
	if (batch < 1)
		batch = 1;
	opt->batch = (batch + world - 1) / world;
	opt->subdivisions = 1;
	opt->cfg_batch_optional = true;
	return 0;
}

int session_net(struct session *s, struct dn_net_options *opt)
{
	int err;

	opt->rank = s->run.group.rank;
	opt->world = s->run.group.world;
	opt->train = s->run.train;
	opt->seed = s->run.seed;
	opt->legacy_bn = dn_options_on(s->c->flags, "legacy-bn");
	opt->needs = dn_net_task_needs;
	err = dn_net_build(&s->net, s->cfg, s->run.dev, opt);
	err = session_agree(s, err, "build of the net");
	if (err)
		return err;
	s->run.net = s->net;
	return 0;
}

static int item_flag(void *arg, const struct dn_option *opt, const char *value)
{
	static const char *const own[] = { "i", "gpus", "nogpu", "device", "plugin", "log" }; /* do not change the training */
	char name[160];

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (!strcmp(own[i], opt->key))
			return 0;
	snprintf(name, sizeof(name), "-%s", opt->key);
	return session_item(arg, name, "%s", value);
}

struct plugin_item {
	struct session_items *items;
	const char *plugin;
};

static int item_plugin(void *arg, const struct dn_option *opt, const char *value)
{
	struct plugin_item *p = arg;
	char name[160];

	snprintf(name, sizeof(name), "%s.%s", p->plugin, opt->key);
	return session_item(p->items, name, "%s", value);
}

static int collect_items(struct session *s, struct session_items *items)
{
	struct plugin_item p = { items, s->plugin.p ? s->plugin.p->name : NULL };
	struct dn_facts facts;
	int err;

	s->run.dev->be->facts(s->run.dev, &facts);
	err = session_item(items, "version", "%s", DN_VERSION);
	if (!err)
		err = session_item(items, "verb", "%s", s->c->verb->name);
	if (!err)
		err = session_item(items, "plugin", "%s", p.plugin ? p.plugin : "none");
	if (!err)
		err = session_item(items, "cfg", "text hash %016llx", (unsigned long long)s->cfg->hash);
	if (!err)
		err = session_item(items, "batch and subdivisions", "%lld / %lld", (long long)s->net->batch,
				   (long long)s->net->subdivisions);
	if (!err)
		err = session_item(items, "threads", "%d", facts.threads);
	if (!err)
		err = session_item(items, "backend", "%s, %s, alignment %zu", facts.backend, facts.library, facts.align_bytes);
	if (!err)
		err = dn_options_each(s->c->flags, item_flag, items);
	if (!err && s->plugin.p)
		err = dn_options_each(s->plugin_options, item_plugin, &p);
	return err;
}

static int print_flag(void *arg, const struct dn_option *opt, const char *value)
{
	if (value[0])
		fprintf(arg, " %s=%s", opt->key, value);
	return 0;
}

static int print_plugin_key(void *arg, const struct dn_option *opt, const char *value)
{
	struct session *s = arg;

	if (value[0])
		fprintf(stderr, " %s.%s=%s", s->plugin.p->name, opt->key, value);
	return 0;
}

static void print_options(struct session *s)
{
	fprintf(stderr, "options:");
	(void)dn_options_each(s->c->flags, print_flag, stderr);
	if (s->plugin.p)
		(void)dn_options_each(s->plugin_options, print_plugin_key, s);
	fputc('\n', stderr);
}

int session_ready(struct session *s, struct session_items *items)
{
	int err;

	err = collect_items(s, items);
	err = session_agree(s, err, "start");
	if (err)
		return err;
	err = dn_group_compare(&s->run.group, items->item, items->n);
	if (err) {
		s->agreed = s->run.group.world > 1 && dn_exit_status(err) != 3;
		return err;
	}
	if (s->run.group.rank == 0) {
		session_print_layers(stderr, s->net);
		print_options(s);
	}
	if (s->plugin.p)
		err = s->plugin.p->net_ready(s->self, &s->run);
	err = session_agree(s, err, "plan");
	if (err)
		return err;
	if (!s->net->store.ops)
		err = dn_local_attach(s->net);
	if (!err)
		err = dn_net_alloc(s->net);
	if (!err)
		err = s->net->store.ops->alloc(s->net->store.self, s->net);
	err = session_agree(s, err, "allocation of memory");
	if (err)
		return err;
	return session_agree(s, dn_net_init_values(s->net), "initial values");
}

/* "t.cfg:12: [convolutional] layer 3" */
static void layer_place(char *out, size_t cap, const struct dn_layer *l)
{
	snprintf(out, cap, "%.500s:%d: [%.60s] layer %d", l->section->file->path, l->section->line, l->section->name, l->index);
}

static const char *others_text(char *out, size_t cap, int n)
{
	out[0] = '\0';
	if (n > 1)
		snprintf(out, cap, " (and %d more)", n - 1);
	return out;
}

int session_check_stats(struct session *s, bool force)
{
	const struct dn_layer *l;
	char place[620], others[40];
	int n;
	int err = dn_net_empty_stats(s->net, true, &l, &n);

	if (!err && n) {
		layer_place(place, sizeof(place), l);
		others_text(others, sizeof(others), n);
		if (force)
			dn_warn("%s%s: frozen, but its rolling statistics are empty: without weights its output means nothing",
				place, others);
		else
			err = dn_fail(
				-EINVAL,
				"%s%s: frozen, but its rolling statistics are empty: load weights (-force trains all the same)",
				place, others);
	}
	return session_agree(s, err, "rolling statistics");
}

/* No error: weights of nets that have not learnt yet are compared with one another, too. */
static int warn_stats(struct session *s, const char *path)
{
	const struct dn_layer *l;
	char place[620], others[40];
	int n;
	int err = dn_net_empty_stats(s->net, false, &l, &n);

	if (!err && n) {
		layer_place(place, sizeof(place), l);
		dn_warn("%s%s: its rolling statistics are empty, also in %s: the net's outputs mean nothing", place,
			others_text(others, sizeof(others), n), path);
	}
	return err;
}

int session_load(struct session *s, const char *path, bool allow_partial, struct dn_weights_info *info)
{
	bool first = s->run.group.rank == 0;
	double bad;
	int err;

	memset(info, 0, sizeof(*info));
	if (first)
		fprintf(stderr, "Loading weights from %s...", path);
	if (s->run.load_rank0 && s->run.group.world > 1)
		err = dn_weights_load_rank0(s->net, path, allow_partial, &s->run.group, info);
	else
		err = dn_weights_load(s->net, path, -1, allow_partial, info);
	err = session_agree(s, err, "load of weights");
	if (first)
		fprintf(stderr, err ? "\n" : "Done!\n");
	if (err)
		return err;
	bad = (double)info->n_nonfinite;
	err = dn_group_sum(&s->run.group, &bad, 1);
	if (err)
		return err;
	info->n_nonfinite = (int64_t)bad;
	dn_weights_tell(path, info);
	if (first && info->partial)
		fprintf(stderr, "%s is partial: %d of %d layers loaded, the others keep their initial values\n", path,
			info->n_layers_loaded, info->n_layers);
	return s->run.train ? 0 : warn_stats(s, path);
}

/* --- end --- */

/* "rank 3: ..." -> 3, else -1 */
static int rank_in_message(const char *text)
{
	int rank, n = 0;

	if (sscanf(text, "rank %d:%n", &rank, &n) == 1 && n)
		return rank;
	return -1;
}

/* Once for errors that all ranks are known to have, by the rank that they name; else by those that have them. False: left to
 * another rank. */
static bool print_error(const struct session *s, int err)
{
	const char *text = dn_message();
	int named = rank_in_message(text);
	bool joined = s->started && s->run.group.world > 1;
	struct dn_launch l;
	int rank, world;
	char number[64];

	dn_launch_read(&l);
	rank = joined ? s->run.group.rank : l.rank;
	world = joined ? s->run.group.world : l.size;
	if (joined && (s->agreed ? rank != 0 : named >= 0 && named != rank))
		return false;
	if (!joined)
		launch_let_first_speak();
	if (!text[0]) {
		snprintf(number, sizeof(number), "error %d (%s)", -err, strerror(-err));
		text = number;
	}
	if (world > 1 && named < 0)
		fprintf(stderr, "darknet: rank %d: %s\n", rank, text);
	else
		fprintf(stderr, "darknet: %s\n", text);
	return true;
}

int session_end(struct session *s, int err)
{
	/* launchers kill all ranks when the first one fails: the rank that prints must not be killed before it has */
	if (err && !print_error(s, err))
		dn_sleep_us(300000);
	s->c->exit_status = err ? dn_exit_status(err) : s->c->exit_status;
	fflush(s->c->out);
	fflush(stderr);
	dn_net_destroy(s->net);
	if (s->started)
		s->plugin.p->exit(s->self, err);
	if (s->run.dev)
		s->run.dev->be->close(s->run.dev);
	dn_options_destroy(s->plugin_options);
	dn_cfg_destroy(s->cfg);
	if (!s->started)
		dn_plugin_close(&s->plugin); /* one that ran stays: its libraries may still have threads and exit handlers */
	return 0;
}

/* --- Darknet's table of layers --- */

static const char *key_text(const struct dn_section *sec, const char *key, const char *def)
{
	struct dn_key *k = dn_section_find((struct dn_section *)sec, key);

	return k ? k->value : def;
}

/* An image, or as many numbers; @flat as Darknet prints layers that take their input as a vector */
static void dims(char *out, size_t cap, bool flat, int64_t w, int64_t h, int64_t c, int64_t all)
{
	if (flat || w < 1 || h < 1 || c < 1)
		snprintf(out, cap, "%12s%4lld", "", (long long)all);
	else
		snprintf(out, cap, "%4lld x%4lld x%4lld", (long long)w, (long long)h, (long long)c);
}

static bool flat_layer(const struct dn_layer *l)
{
	static const char *const names[] = { "connected", "dropout", "softmax", "cost", "logistic" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(l->ops->name, names[i]))
			return true;
	return false;
}

/* Layers that @key names, counted from the first layer: "9 7" for -1,-3 in layer 10 */
static void sources(char *out, size_t cap, const struct dn_layer *l, const char *key)
{
	const char *p = key_text(l->section, key, "");
	size_t n = 0;

	out[0] = 0;
	while (*p && n + 1 < cap) {
		char *end;
		long v = strtol(p, &end, 10);

		if (end == p)
			break;
		n += (size_t)snprintf(out + n, cap - n, "%s%ld", n ? " " : "", v < 0 ? l->index + v : v);
		p = end + strspn(end, " \t,");
	}
}

/* The columns before the sizes, e.g. "conv     32  3 x 3 / 1" */
static void left_columns(char *out, size_t cap, const struct dn_layer *l)
{
	const char *name = l->ops->name;
	const char *stride = key_text(l->section, "stride", "1");
	char from[48];

	if (!strcmp(name, "convolutional")) {
		const char *size = key_text(l->section, "size", "1");

		snprintf(out, cap, "conv  %5lld %2s x%2s /%2s", (long long)l->out_c, size, size, stride);
	} else if (!strcmp(name, "maxpool")) {
		const char *size = key_text(l->section, "size", stride);

		snprintf(out, cap, "max         %2s x%2s /%2s", size, size, stride);
	} else if (!strcmp(name, "avgpool")) {
		snprintf(out, cap, "avg");
	} else if (!strcmp(name, "route")) {
		sources(from, sizeof(from), l, "layers");
		snprintf(out, cap, "route  %s", from);
	} else if (!strcmp(name, "shortcut")) {
		sources(from, sizeof(from), l, "from");
		snprintf(out, cap, "res  %4s", from);
	} else if (!strcmp(name, "dropout")) {
		snprintf(out, cap, "dropout       p = %.2f", strtod(key_text(l->section, "probability", "0.5"), NULL));
	} else {
		snprintf(out, cap, "%s", name);
	}
}

void session_print_layers(FILE *f, const struct dn_net *net)
{
	fprintf(f, "layer     filters    size              input                output\n");
	for (int i = 0; i < net->n_layers; i++) {
		const struct dn_layer *l = &net->layers[i];
		bool flat = flat_layer(l);
		char left[64], in[80], out[80];

		left_columns(left, sizeof(left), l);
		dims(in, sizeof(in), flat, l->w, l->h, l->c, l->inputs);
		dims(out, sizeof(out), flat || !strcmp(l->ops->name, "avgpool"), l->out_w, l->out_h, l->out_c, l->outputs);
		fprintf(f, "%5d %-22s  %s   ->  %s", i, left, in, out);
		if (l->flops)
			fprintf(f, "  %5.3f BFLOPs", (double)l->flops / 1e9);
		fputc('\n', f);
	}
}
