/* Verbs that describe the program from its tables: help, options, plugins, and the manual page. */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/cli.h"

static const char *flag_arg(const struct dn_option *o)
{
	if (o->type == DN_OPT_SWITCH)
		return "";
	if (o->arg)
		return o->arg;
	return o->choices ? o->choices : "VALUE";
}

/* its help, and in brackets what is allowed and the default */
static void print_text(const struct cli_page *p, const struct dn_option *o)
{
	char text[80] = "";

	cli_put(p, o->help && o->help[0] ? o->help : o->key);
	if (o->choices)
		cli_put_in(p, " [", o->choices, "]");
	if ((o->type == DN_OPT_INT || o->type == DN_OPT_FLOAT || o->type == DN_OPT_BYTES) && (o->min != 0 || o->max != 0)) {
		if (o->max >= 1e15)
			snprintf(text, sizeof(text), " [from %.15g]", o->min);
		else
			snprintf(text, sizeof(text), " [%.15g to %.15g]", o->min, o->max);
	}
	cli_put(p, text);
	if (o->def)
		cli_put_in(p, " (default ", o->def, ")");
	fputc('\n', p->f);
}

static void print_option(FILE *f, const struct dn_option *o, const char *lead)
{
	char head[160];

	snprintf(head, sizeof(head), "%s%s %s", lead, o->key, flag_arg(o));
	fprintf(f, "  %-26s ", head);
	print_text(&(struct cli_page){ f, false }, o);
}

void cli_print_options(FILE *f, const struct dn_option *table, const char *lead)
{
	for (; table && table->key; table++)
		print_option(f, table, lead);
}

void cli_verb_help(FILE *f, const struct dn_verb *v, const char *prefix)
{
	fprintf(f, "usage: darknet %s%s%s %s%s\n%s\n", prefix ? prefix : "", prefix ? " " : "", v->name, v->args ? v->args : "",
		v->flags && v->flags[0] ? " [flags]" : "", v->summary);
	if (v->flags && v->flags[0])
		fprintf(f, "\nFlags, anywhere on the line:\n");
	for (int i = 0; v->flags && v->flags[i]; i++)
		cli_print_options(f, v->flags[i], "-");
	if (!prefix && cli_takes_plugin_flags(v))
		fprintf(f, "  %-26s a plugin's key, as in its cfg section (darknet options lists them)\n", "-PLUGIN.KEY VALUE");
}

static void print_verb_line(FILE *f, const struct dn_verb *v, const char *prefix)
{
	char head[200];

	snprintf(head, sizeof(head), "%s%s%s %s", prefix ? prefix : "", prefix ? " " : "", v->name, v->args ? v->args : "");
	fprintf(f, "  %-44s %s\n", head, v->summary);
}

void cli_group(FILE *f, const char *word, const struct dn_plugin *plugin)
{
	const size_t n = strlen(word);

	for (const struct dn_verb *const *v = cli_verbs; *v; v++)
		if (!strncmp((*v)->name, word, n) && (*v)->name[n] == ' ')
			print_verb_line(f, *v, NULL);
	for (const struct dn_verb *v = plugin ? plugin->verbs : NULL; v && v->name; v++)
		print_verb_line(f, v, plugin->name);
}

static int usage_plugin(void *arg, const char *name, const char *path)
{
	struct dn_loaded l = { 0 };

	(void)path;
	if (dn_plugin_open(&l, name))
		return 0; /* `darknet plugins` says why */
	cli_group(arg, name, l.p);
	dn_plugin_close(&l);
	return 0;
}

void cli_usage(FILE *f)
{
	fprintf(f, "usage: darknet VERB [ARGUMENTS] [flags anywhere]\n\n");
	for (const struct dn_verb *const *v = cli_verbs; *v; v++)
		print_verb_line(f, *v, NULL);
	(void)dn_plugin_each(usage_plugin, f);
	fprintf(f, "\ndarknet help VERB tells a verb's flags, darknet help SECTION the keys of a cfg's section (net, route, …);\n"
		   "darknet options lists all of them; darknet --version tells the version.\n"
		   "Exit status: 0 done, 1 input or environment, 2 usage, 3 another rank was lost or late.\n");
}

/* --- help --- */

static bool verb_named(const char *name, int n, char *const *words)
{
	char text[200];

	if (n == 1)
		snprintf(text, sizeof(text), "%.90s", words[0]);
	else
		snprintf(text, sizeof(text), "%.90s %.90s", words[0], words[1]);
	return !strcmp(name, text) || (n == 1 && dn_starts(name, text) && name[strlen(text)] == ' ');
}

static bool help_plugin(FILE *f, int n, char *const *words)
{
	struct dn_loaded l = { 0 };
	char lead[80];
	bool found = n == 1;

	if (!dn_plugin_exists(words[0]) || dn_plugin_open(&l, words[0]))
		return false;
	if (n == 1) {
		fprintf(f, "%s: %s\n\n", l.p->name, l.p->summary ? l.p->summary : "");
		cli_group(f, words[0], l.p);
		fprintf(f, "\nKeys of [%s], or flags:\n", l.p->name);
		snprintf(lead, sizeof(lead), "-%s.", l.p->name);
		cli_print_options(f, l.p->options, lead);
	}
	for (const struct dn_verb *v = l.p->verbs; n == 2 && v && v->name; v++)
		if (!strcmp(v->name, words[1])) {
			cli_verb_help(f, v, l.p->name);
			found = true;
		}
	dn_plugin_close(&l);
	return found;
}

bool cli_help_words(FILE *f, int n, char *const *words)
{
	int found = 0;

	for (const struct dn_verb *const *v = cli_verbs; *v; v++)
		if (verb_named((*v)->name, n, words)) {
			if (found++)
				fputc('\n', f);
			cli_verb_help(f, *v, NULL);
		}
	if (n == 1 && cli_help_section(f, words[0], found > 0))
		found++;
	return found || help_plugin(f, n, words);
}

static int run_help(struct dn_command *c)
{
	if (dn_options_on(c->flags, "man")) {
		cli_man(c->out);
		return 0;
	}
	if (c->n_args == 0) {
		cli_usage(c->out);
		fprintf(c->out, "Activations of a cfg: %s.\n", dn_act_names());
		return 0;
	}
	if (cli_help_words(c->out, c->n_args, c->args))
		return 0;
	fprintf(stderr, "darknet: no verb or section %s%s%s\n", c->args[0], c->n_args > 1 ? " " : "",
		c->n_args > 1 ? c->args[1] : "");
	c->exit_status = CLI_USAGE;
	return 0;
}

static const struct dn_option help_flags[] = {
	{ .key = "man", .type = DN_OPT_SWITCH, .help = "the whole manual page, as man(1) reads it" }, { .key = NULL }
};
static const struct dn_option *const help_tables[] = { help_flags, NULL };

const struct dn_verb verb_help = {
	.name = "help",
	.args = "[VERB | SECTION]",
	.summary = "list the verbs, or explain one, or the keys of a section of a cfg, or of .data files",
	.max_args = 2,
	.flags = help_tables,
	.run = run_help,
};

/* --- options --- */

static int options_plugin(void *arg, const char *name, const char *path)
{
	struct dn_loaded l = { 0 };
	char lead[80];
	FILE *f = arg;

	(void)path;
	if (dn_plugin_open(&l, name)) {
		fprintf(f, "\nplugin %s cannot be loaded: %s\n", name, dn_message());
		return 0;
	}
	fprintf(f, "\nPlugin %s, keys of [%s] or flags:\n", name, name);
	snprintf(lead, sizeof(lead), "-%s.", name);
	cli_print_options(f, l.p->options, lead);
	for (const struct dn_verb *v = l.p->verbs; v && v->name; v++) {
		if (!v->flags || !v->flags[0])
			continue;
		fprintf(f, "\ndarknet %s %s:\n", name, v->name);
		for (int i = 0; v->flags[i]; i++)
			cli_print_options(f, v->flags[i], "-");
	}
	dn_plugin_close(&l);
	return 0;
}

static bool shared_table(const struct dn_option *t)
{
	return t == cli_net_flags || t == cli_seed_flags || t == cli_batch_flags || t == cli_train_flags;
}

static bool takes(const struct dn_verb *v, const struct dn_option *table)
{
	for (int i = 0; v->flags && v->flags[i]; i++)
		if (v->flags[i] == table)
			return true;
	return false;
}

/* A table once, under the names of all verbs that take it: "darknet net, ops:"; @first is the first of them. */
static void options_of(FILE *f, const struct dn_verb *const *first, const struct dn_option *table)
{
	for (const struct dn_verb *const *v = cli_verbs; v < first; v++)
		if (takes(*v, table))
			return;
	fprintf(f, "\ndarknet %s", (*first)->name);
	for (const struct dn_verb *const *v = first + 1; *v; v++)
		if (takes(*v, table))
			fprintf(f, ", %s", (*v)->name);
	fprintf(f, ":\n");
	cli_print_options(f, table, "-");
}

static int run_options(struct dn_command *c)
{
	FILE *f = c->out;

	fprintf(f, "Verbs that run a net:\n");
	cli_print_options(f, cli_net_flags, "-");
	cli_print_options(f, cli_seed_flags, "-");
	cli_print_options(f, cli_batch_flags, "-");
	fprintf(f, "\nTraining:\n");
	cli_print_options(f, cli_train_flags, "-");
	for (const struct dn_verb *const *v = cli_verbs; *v; v++)
		for (int i = 0; (*v)->flags && (*v)->flags[i]; i++)
			if (!shared_table((*v)->flags[i]))
				options_of(f, v, (*v)->flags[i]);
	cli_print_sections(&(struct cli_page){ f, false });
	return dn_plugin_each(options_plugin, f);
}

const struct dn_verb verb_options = {
	.name = "options",
	.args = "",
	.summary = "every flag, and every key of a cfg, a .data file and a plugin, with its default",
	.run = run_options,
};

/* --- plugins --- */

static int list_plugin(void *arg, const char *name, const char *path)
{
	struct dn_loaded l = { 0 };
	FILE *f = arg;

	if (dn_plugin_open(&l, name)) {
		fprintf(f, "%-12s not usable: %s\n", name, dn_message());
		return 0;
	}
	fprintf(f, "%-12s ok  %s  (%s)\n", name, l.p->summary ? l.p->summary : "", path);
	dn_plugin_close(&l);
	return 0;
}

static int run_plugins(struct dn_command *c)
{
	return dn_plugin_each(list_plugin, c->out);
}

const struct dn_verb verb_plugins = {
	.name = "plugins",
	.args = "",
	.summary = "list the plugins found, and what is wrong with those that do not load",
	.run = run_plugins,
};

/* --- the manual page --- */

static void roff(FILE *f, const char *s)
{
	cli_put(&(struct cli_page){ f, true }, s);
}

static void man_options(FILE *f, const struct dn_option *o, const char *lead)
{
	for (; o && o->key; o++) {
		fputs(".TP\n.B ", f);
		roff(f, lead);
		roff(f, o->key);
		fputs(" \\fI", f);
		roff(f, flag_arg(o));
		fputs("\\fR\n", f);
		print_text(&(struct cli_page){ f, true }, o);
	}
}

static void man_verb(FILE *f, const struct dn_verb *v, const char *prefix)
{
	fputs(".TP\n.B ", f);
	if (prefix) {
		roff(f, prefix);
		fputc(' ', f);
	}
	roff(f, v->name);
	fputs(" \\fI", f);
	roff(f, v->args ? v->args : "");
	fputs("\\fR\n", f);
	roff(f, v->summary);
	fputc('\n', f);
	if (!v->flags || (!prefix && shared_table(v->flags[0])))
		return;
	fputs(".RS\n", f);
	for (int i = 0; v->flags[i]; i++)
		if (!shared_table(v->flags[i]))
			man_options(f, v->flags[i], "-");
	fputs(".RE\n", f);
}

static int man_plugin(void *arg, const char *name, const char *path)
{
	struct dn_loaded l = { 0 };
	char lead[80];
	FILE *f = arg;

	(void)path;
	if (dn_plugin_open(&l, name))
		return 0;
	fputs(".SH PLUGIN ", f);
	roff(f, name);
	fputc('\n', f);
	roff(f, l.p->summary ? l.p->summary : name);
	fputc('\n', f);
	for (const struct dn_verb *v = l.p->verbs; v && v->name; v++)
		man_verb(f, v, name);
	fputs(".PP\nKeys of its cfg section, and flags:\n", f);
	snprintf(lead, sizeof(lead), "-%s.", name);
	man_options(f, l.p->options, lead);
	dn_plugin_close(&l);
	return 0;
}

void cli_man(FILE *f)
{
	fprintf(f, ".TH DARKNET 1 \"\" \"darknet-fsdp %s\" \"User Commands\"\n", DN_VERSION);
	fputs(".SH NAME\ndarknet \\- train and run neural networks described by cfg files, on one process or sharded over many\n"
	      ".SH SYNOPSIS\n.B darknet\n\\fIVERB\\fR [\\fIARGUMENTS\\fR] [\\fIflags anywhere\\fR]\n"
	      ".SH VERBS\n",
	      f);
	for (const struct dn_verb *const *v = cli_verbs; *v; v++)
		man_verb(f, *v, NULL);
	fputs(".SH FLAGS OF VERBS THAT RUN A NET\n", f);
	man_options(f, cli_net_flags, "-");
	man_options(f, cli_seed_flags, "-");
	man_options(f, cli_batch_flags, "-");
	fputs(".SH FLAGS OF TRAINING\n", f);
	man_options(f, cli_train_flags, "-");
	(void)dn_plugin_each(man_plugin, f);
	fputs(".SH SECTIONS OF A CFG, AND DATA FILES\n", f);
	cli_print_sections(&(struct cli_page){ f, true });
	fputs(".SH ENVIRONMENT\n.TP\n.B DARKNET_PLUGIN_PATH\nfolders where plugins are sought first, separated by colons\n"
	      ".TP\n.B DARKNET_LOG\nlevels of log rooms, as in fsdp:debug,net:info\n"
	      ".SH EXIT STATUS\n0 done; 1 the input or the environment is wrong; 2 wrong usage; 3 another rank was lost or late.\n",
	      f);
}
