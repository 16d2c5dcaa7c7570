/* The path that all verbs that run a net share: cfg, plugin, ranks, device, net, memory, values; and its end.
 *
 * session_start -> [session_agree(read the data file)] -> session_net -> [open data] -> session_ready -> session_load -> work
 * -> session_end, which is always called and prints the error. All but session_end return 0 or -errno; the result of each
 * is the same on all ranks once session_start has returned 0.
 */
#ifndef DN_CLI_SESSION_H
#define DN_CLI_SESSION_H
#include "plugin/load.h"

struct session {
	struct dn_command *c;
	struct dn_cfg *cfg;
	struct dn_loaded plugin; /* p NULL: none */
	struct dn_options *plugin_options;
	void *self;	  /* the plugin's */
	bool started;	  /* its init has succeeded: exit is due */
	bool env_threads; /* their number is OMP_NUM_THREADS's */
	bool own_threads; /* nobody has said a number */
	bool agreed;	  /* the error in hand is known to all ranks */
	struct dn_run run;
	struct dn_net *net;
	int64_t start_ns;
};

/* What must be the same on all ranks; texts are copied. Zero-initialise. */
struct session_items {
	int n;
	struct dn_item *item;
	const struct dn_keyfile *data; /* borrowed: the .data file that some of them come from; NULL: none */
};
int session_item(struct session_items *s, const char *name, const char *fmt, ...) DN_PRINTF(3, 4);
/** session_item_weights() - a weights file by its path, and by its size where every rank reads it */
int session_item_weights(const struct session *s, struct session_items *items, const char *path);
void session_items_fini(struct session_items *s);
/** session_items_collect() - what every verb compares: version, cfg, batch, back end, flags, the plugin's keys */
int session_items_collect(struct session *s, struct session_items *items);
/** session_items_compare() - the same on all ranks, or an error that names rank and item; of cfg and .data file the line and both
 * values */
int session_items_compare(struct session *s, const struct session_items *items);

/** session_compare_isa() - bits depend on the instruction set of the math: ranks that differ are a warning, with -strict an error */
int session_compare_isa(struct session *s);

int session_start(struct session *s, struct dn_command *c, const char *cfg_path, bool train);
int session_agree(struct session *s, int err, const char *what);
/** session_net() - build; @opt's rank, world, seed, legacy_bn, needs and train are filled in here */
int session_net(struct session *s, struct dn_net_options *opt);
/** session_ready() - compare the ranks, let the plugin see the net, allocate, fill with initial values */
int session_ready(struct session *s, struct session_items *items);
/** session_load() - a weights file, with Darknet's lines on stderr */
int session_load(struct session *s, const char *path, bool allow_partial, struct dn_weights_info *info);
/**
 * session_check_stats() - before step 1 of training, when all values are there: frozen layers without rolling statistics are
 * an error, with @force a warning
 */
int session_check_stats(struct session *s, bool force);
/** session_pass_batch() - for verbs without training: -batch, or the cfg's microbatch, split over the ranks, rounded up */
int session_pass_batch(struct session *s, struct dn_net_options *opt);
/** session_end() - print the error, end net, plugin and device; sets the exit status and returns 0 */
int session_end(struct session *s, int err);

/** session_plugin_open() - open the plugin that flags or cfg ask for, none may be, and resolve its keys */
int session_plugin_open(struct session *s);
/** session_claim() - which of a cfg's sections belong to plugins: told to @cfg; other unknown ones stay errors of dn_net_build() */
int session_claim(struct dn_cfg *cfg, bool read_keys);
/** session_print_layers() - Darknet's table of layers */
void session_print_layers(FILE *f, const struct dn_net *net);

#endif
