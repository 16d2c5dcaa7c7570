/* What the files of the command line share: the verb table, the tables of flags, and parsing. */
#ifndef DN_CLI_CLI_H
#define DN_CLI_CLI_H
#include "plugin/load.h"
#include "plugin/verb.h"

enum { CLI_USAGE = 2 }; /* exit status of wrong usage */

extern const struct dn_verb *const cli_verbs[]; /* ends at NULL */

extern const struct dn_option cli_net_flags[];	 /* every verb that runs a net; such verbs take -PLUGIN.KEY too */
extern const struct dn_option cli_seed_flags[];	 /* -seed */
extern const struct dn_option cli_batch_flags[]; /* -batch */
extern const struct dn_option cli_train_flags[]; /* every training */

/** cli_parse() - argv to a command; *@status is the exit status when the result is not 0
 * 1 = "nothing to run, all is printed" (help, version: status 0; usage errors: status 2); negative = an error with a message.
 * @plugin stays open as long as the command's verb is used. */
int cli_parse(struct dn_command *c, struct dn_loaded *plugin, int argc, char **argv, int *status);
void cli_command_fini(struct dn_command *c);

/** cli_usage() - the list of verbs */
void cli_usage(FILE *f);
/** cli_group() - the verbs that begin with @word, those of @plugin (NULL: none) */
void cli_group(FILE *f, const char *word, const struct dn_plugin *plugin);
/** cli_verb_help() - one verb with its flags; @prefix: the plugin's name, NULL for the core's */
void cli_verb_help(FILE *f, const struct dn_verb *v, const char *prefix);
/** cli_print_options() - a table, one entry a line; @lead stands before each key ("-", "-fsdp.") */
void cli_print_options(FILE *f, const struct dn_option *table, const char *lead);
/** cli_help_words() - help about the verb, plugin and section that @words name; false when there is none */
bool cli_help_words(FILE *f, int n, char *const *words);
/** cli_help_section() - the keys of the cfg section @word ("route", "[net]"), or of .data files; false when there is none
 * @more: other help stands before it */
bool cli_help_section(FILE *f, const char *word, bool more);

struct cli_page { /* where texts go: to a terminal, or into a manual page, whose own signs are then escaped */
	FILE *f;
	bool man;
};
void cli_put(const struct cli_page *p, const char *s);
void cli_put_in(const struct cli_page *p, const char *lead, const char *s, const char *end);
/** cli_print_sections() - the keys of all sections and of .data files */
void cli_print_sections(const struct cli_page *p);
/** cli_man() - the manual page, made from the tables */
void cli_man(FILE *f);
bool cli_takes_plugin_flags(const struct dn_verb *v);

extern const struct dn_verb verb_classifier_train, verb_classifier_valid, verb_train, verb_net, verb_forward, verb_partial,
	verb_classifier_predict, verb_cifar_train, verb_cifar_test, verb_ops, verb_speed, verb_look, verb_imtest,
	verb_weights_info, verb_weights_diff, verb_options, verb_plugins, verb_help;

#endif
