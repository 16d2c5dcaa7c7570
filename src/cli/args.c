/* From argv to a command: finds the verb, takes the flags out from anywhere, counts the arguments. */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/launch.h"

/* "-x", but not "-" and not a number below zero */
static bool is_flag(const char *s)
{
	return s[0] == '-' && s[1] && !isdigit((unsigned char)s[1]) && s[1] != '.';
}

/* "-NAME.KEY" */
static bool is_plugin_flag(const char *s)
{
	return is_flag(s) && islower((unsigned char)s[1]) && strchr(s, '.') && strchr(s, '.')[1];
}

static bool is_help(const char *s)
{
	return !strcmp(s, "--help") || !strcmp(s, "-help") || !strcmp(s, "-h");
}

static const struct dn_option *find_in(const struct dn_option *const *tables, const char *key)
{
	for (; tables && *tables; tables++)
		for (const struct dn_option *o = *tables; o->key; o++)
			if (!strcmp(o->key, key))
				return o;
	return NULL;
}

/* A flag of any of @verbs (before the verb is known, only whether a value follows matters) */
static const struct dn_option *find_any(const struct dn_verb *const *verbs, const struct dn_verb *array, const char *key)
{
	const struct dn_option *o = NULL;

	for (; !o && verbs && *verbs; verbs++)
		o = find_in((*verbs)->flags, key);
	for (; !o && array && array->name; array++)
		o = find_in(array->flags, key);
	return o;
}

/* The first @max words that are neither flags nor flags' values, as indices into argv */
static int first_words(int argc, char **argv, const struct dn_verb *array, int *at, int max)
{
	int n = 0;

	for (int i = 1; i < argc && n < max; i++) {
		const struct dn_option *o;

		if (!is_flag(argv[i])) {
			at[n++] = i;
		} else if (is_plugin_flag(argv[i])) {
			i++;
		} else if (!is_help(argv[i])) {
			o = find_any(cli_verbs, array, argv[i] + 1);
			if (o && o->type != DN_OPT_SWITCH)
				i++;
		}
	}
	return n;
}

/* How many words of the line name @v: 0 = none */
static int matches(const char *name, int n_words, char *const *words)
{
	int i = 0;

	while (*name) {
		size_t n = strcspn(name, " ");

		if (i >= n_words || strlen(words[i]) != n || strncmp(words[i], name, n))
			return 0;
		i++;
		name += n + (name[n] == ' ');
	}
	return i;
}

static int usage_error(int *status, const char *prefix, const struct dn_verb *v, const char *what)
{
	launch_error(what);
	if (v)
		fprintf(stderr, "usage: darknet %s%s%s %s [flags]    (darknet help %s%s%s)\n", prefix ? prefix : "",
			prefix ? " " : "", v->name, v->args ? v->args : "", prefix ? prefix : "", prefix ? " " : "", v->name);
	else
		fprintf(stderr, "usage: darknet VERB [ARGUMENTS] [flags]    (darknet help)\n");
	*status = CLI_USAGE;
	return 1;
}

static int unknown_verb(int *status, int n, char *const *words)
{
	char what[300];
	bool group = false;

	for (const struct dn_verb *const *v = cli_verbs; *v; v++) {
		size_t k = strlen(words[0]);

		group = group || (!strncmp((*v)->name, words[0], k) && (*v)->name[k] == ' ');
	}
	if (group && n < 2)
		snprintf(what, sizeof(what), "%.100s: a second word is missing", words[0]);
	else if (group)
		snprintf(what, sizeof(what), "unknown verb %.100s %.100s", words[0], words[1]);
	else
		snprintf(what, sizeof(what), "unknown verb %.100s", words[0]);
	usage_error(status, NULL, NULL, what);
	if (group)
		cli_group(stderr, words[0], NULL);
	return 1;
}

/* The verb that argv names; at[] gets the indices of its words. 1 = done, with *status. */
static int find_verb(const struct dn_verb **out, struct dn_loaded *plugin, int argc, char **argv, int *at, int *n_at, int *status)
{
	char *words[2];
	int n = first_words(argc, argv, NULL, at, 2);

	for (int i = 0; i < n; i++)
		words[i] = argv[at[i]];
	for (const struct dn_verb *const *v = cli_verbs; n && *v; v++) {
		*n_at = matches((*v)->name, n, words);
		if (*n_at) {
			*out = *v;
			return 0;
		}
	}
	if (n == 0) {
		cli_usage(stderr);
		*status = CLI_USAGE;
		return 1;
	}
	if (!dn_plugin_exists(words[0]))
		return unknown_verb(status, n, words);
	*status = 1;
	if (dn_plugin_open(plugin, words[0]))
		return -ENOEXEC;
	n = first_words(argc, argv, plugin->p->verbs, at, 2);
	for (const struct dn_verb *v = plugin->p->verbs; n == 2 && v && v->name; v++)
		if (!strcmp(v->name, argv[at[1]])) {
			*out = v;
			*n_at = 2;
			return 0;
		}
	for (int i = 1; i < argc; i++)
		if (is_help(argv[i]) && cli_help_words(stdout, 1, words)) {
			*status = 0;
			return 1;
		}
	{
		char what[300];

		snprintf(what, sizeof(what), n == 2 ? "unknown verb %.100s %.100s" : "%.100s: a second word is missing", words[0],
			 n == 2 ? argv[at[1]] : "");
		usage_error(status, NULL, NULL, what);
		cli_group(stderr, words[0], plugin->p);
		return 1;
	}
}

/* Is the flag "-NAME.KEY" one that a plugin knows? The values are checked by those who use them. */
static bool plugin_flag_known(const struct dn_command *c, const struct dn_loaded *verbs_plugin, const char *flag)
{
	const char *dot = strchr(flag, '.');
	const char *by_path = NULL;
	struct dn_loaded l = { 0 };
	bool known = false;
	char name[64];

	if (!dot || (size_t)(dot - flag) >= sizeof(name))
		return false;
	memcpy(name, flag, (size_t)(dot - flag));
	name[dot - flag] = '\0';
	if (verbs_plugin->p && verbs_plugin->p->name) {
		const struct dn_option *const tables[] = { verbs_plugin->p->options, NULL };

		return !strcmp(verbs_plugin->p->name, name) && find_in(tables, dot + 1);
	}
	if (dn_options_find(c->flags, "plugin"))
		by_path = dn_options_text(c->flags, "plugin");
	if (by_path && !strchr(by_path, '/'))
		by_path = NULL;
	if (!by_path && !dn_plugin_exists(name))
		return false;
	if (dn_plugin_open(&l, by_path ? by_path : name))
		return true; /* the verb will say what is wrong with the plugin */
	if (!strcmp(l.p->name, name)) {
		const struct dn_option *const tables[] = { l.p->options, NULL };

		known = find_in(tables, dot + 1) != NULL;
	}
	dn_plugin_close(&l);
	return known;
}

static int take_flag(struct dn_command *c, const char *flag, const char *value, const char *prefix, int *status)
{
	const struct dn_option *o = dn_options_find(c->flags, flag + 1);
	char what[300];
	int err;

	if (!o) {
		snprintf(what, sizeof(what), "unknown flag %.200s", flag);
		return usage_error(status, prefix, c->verb, what);
	}
	if (o->type != DN_OPT_SWITCH && !value) {
		snprintf(what, sizeof(what), "%.200s: a value is missing", flag);
		return usage_error(status, prefix, c->verb, what);
	}
	err = dn_options_set(c->flags, o->key, o->type == DN_OPT_SWITCH ? NULL : value, flag);
	*status = 1;
	return err;
}

static int count_args(const struct dn_command *c, const char *prefix, int *status)
{
	char what[300];

	if (c->n_args >= c->verb->min_args && c->n_args <= c->verb->max_args)
		return 0;
	if (c->n_args < c->verb->min_args)
		snprintf(what, sizeof(what), "%d arguments found, wanted: %.200s", c->n_args, c->verb->args);
	else
		snprintf(what, sizeof(what), "surplus argument %.200s", c->args[c->verb->max_args]);
	return usage_error(status, prefix, c->verb, what);
}

static int parse_words(struct dn_command *c, const struct dn_loaded *plugin, int argc, char **argv, const int *at, int n_at,
		       int *status)
{
	const char *prefix = plugin->p ? plugin->p->name : NULL;
	bool takes = plugin->p || cli_takes_plugin_flags(c->verb);
	char what[300];
	int err;

	for (int i = 1; i < argc; i++) {
		const char *s = argv[i];
		const struct dn_option *o;

		if ((n_at > 0 && i == at[0]) || (n_at > 1 && i == at[1]))
			continue;
		if (!is_flag(s)) {
			c->args[c->n_args++] = argv[i];
			continue;
		}
		if (is_help(s)) {
			cli_verb_help(stdout, c->verb, prefix);
			*status = 0;
			return 1;
		}
		if (is_plugin_flag(s) && takes) {
			if (i + 1 >= argc) {
				snprintf(what, sizeof(what), "%.200s: a value is missing", s);
				return usage_error(status, prefix, c->verb, what);
			}
			c->plugin_flags[2 * c->n_plugin_flags] = s + 1;
			c->plugin_flags[2 * c->n_plugin_flags++ + 1] = argv[++i];
			continue;
		}
		o = dn_options_find(c->flags, s + 1);
		err = take_flag(c, s, i + 1 < argc ? argv[i + 1] : NULL, prefix, status);
		if (err)
			return err;
		if (o->type != DN_OPT_SWITCH)
			i++;
	}
	for (int i = 0; i < c->n_plugin_flags; i++)
		if (!plugin_flag_known(c, plugin, c->plugin_flags[2 * i])) {
			snprintf(what, sizeof(what),
				 "unknown flag -%.150s: no plugin with that key is found (darknet options lists them)",
				 c->plugin_flags[2 * i]);
			return usage_error(status, prefix, c->verb, what);
		}
	return count_args(c, prefix, status);
}

int cli_parse(struct dn_command *c, struct dn_loaded *plugin, int argc, char **argv, int *status)
{
	int at[2] = { 0, 0 };
	int n_at = 0;
	int err;

	*status = 1;
	for (int i = 1; i < argc && i < 2; i++) {
		if (!strcmp(argv[i], "--version") || !strcmp(argv[i], "-version")) {
			printf("darknet-fsdp %s, plugin interface %u, %s build\n", DN_VERSION, DN_PLUGIN_ABI, DN_BUILD_TAG);
			*status = 0;
			return 1;
		}
		if (is_help(argv[i])) {
			cli_usage(stdout);
			*status = 0;
			return 1;
		}
	}
	err = find_verb(&c->verb, plugin, argc, argv, at, &n_at, status);
	if (err)
		return err;
	c->args = dn_calloc((size_t)argc + 1, sizeof(*c->args));
	c->plugin_flags = dn_calloc((size_t)argc + 1, sizeof(*c->plugin_flags));
	if (!c->args || !c->plugin_flags)
		return -ENOMEM;
	err = dn_options_create(&c->flags);
	for (int i = 0; !err && c->verb->flags && c->verb->flags[i]; i++)
		err = dn_options_add(c->flags, c->verb->flags[i]);
	if (err)
		return err;
	return parse_words(c, plugin, argc, argv, at, n_at, status);
}

void cli_command_fini(struct dn_command *c)
{
	dn_options_destroy(c->flags);
	dn_free(c->args);
	dn_free(c->plugin_flags);
	memset(c, 0, sizeof(*c));
}
