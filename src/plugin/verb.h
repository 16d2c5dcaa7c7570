/* Verbs of the command line: one table entry each, the core's and the plugins'. */
#ifndef DN_PLUGIN_VERB_H
#define DN_PLUGIN_VERB_H
#include <stdbool.h>
#include <stdio.h>
#include "base/option.h"
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_command { /* a parsed command line */
	const struct dn_verb *verb;
	int n_args;
	char **args;		  /* positional, without the verb */
	struct dn_options *flags; /* the verb's flags, resolved */
	/* "-NAME.KEY VALUE" pairs, in order, for plugins (and for offline verbs that take a plugin's keys) */
	int n_plugin_flags;
	const char **plugin_flags; /* [2 * n_plugin_flags]: "fsdp.limit", "2" */
	FILE *out;		   /* results go here (stdout) */
	int exit_status;	   /* set by the verb when it returned 0 but the result is a "no" (diff); default 0 */
};

struct dn_verb {
	const char *name; /* "train", or two words "classifier train"; a plugin's verbs without the plugin's name */
	const char *args; /* "DATA CFG [WEIGHTS]" */
	const char *summary;
	int min_args, max_args;
	const struct dn_option *const *flags; /* tables, ends at NULL; NULL = no flags */
	int (*run)(struct dn_command *c);     /* 0 or -errno with a message; -EINVAL from usage is made by the caller */
};

#ifdef __cplusplus
}
#endif
#endif
