/* A net without plugin, ranks or a store, for verbs about the net alone. */
#ifndef DN_CLI_BARE_H
#define DN_CLI_BARE_H
#include "cli/session.h"

struct bare {
	struct dn_cfg *cfg;
	struct dn_device *dev;
	struct dn_net *net;
};

extern const struct dn_option bare_flags[]; /* -threads, -backend, -legacy-bn, -strict */

/** bare_open() - @opt may be NULL: inference with the cfg's batch; bare_close() is due in any case */
int bare_open(struct bare *b, struct dn_command *c, const char *cfg_path, const struct dn_net_options *opt);
/** bare_values() - memory, and initial values */
int bare_values(struct bare *b);
void bare_close(struct bare *b);

#endif
