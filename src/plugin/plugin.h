/* All that a plugin may rely on, together with the headers included here.
 *
 * A plugin is a shared object with one entry (DN_PLUGIN). It owns the cfg section and the flags that bear its
 * name, may bring verbs, hooks and a store, and may be the one who starts several ranks.
 */
#ifndef DN_PLUGIN_PLUGIN_H
#define DN_PLUGIN_PLUGIN_H
#include "backend/backend.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/group.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/process.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/text.h"
#include "base/thread.h"
#include "data/datafile.h"
#include "data/dataset.h"
#include "data/lines.h"
#include "data/loader.h"
#include "data/npy.h"
#include "data/order.h"
#include "graph/net.h"
#include "io/ckpt.h"
#include "io/json.h"
#include "graph/optimizer.h"
#include "io/weights.h"
#include "plugin/headers.h"
#include "plugin/verb.h"
#include "train/whole_store.h"
#include "train/guard.h"
#include "train/loop.h"
#include "train/metric.h"
#include "train/optim.h"
#include "train/task.h"
#ifdef __cplusplus
extern "C" {
#endif

#define DN_PLUGIN_ABI 1u /* +1 when a member changes meaning; new members go at the end only */
/* What host and plugin must agree in: switches that change struct layout or the runtime, and the headers included above, of which
 * DN_HEADERS is a hash. make writes it into plugin/headers.h. */
#ifdef __SANITIZE_ADDRESS__
#define DN_BUILD_TAG "asan " DN_HEADERS
#elif defined(__SANITIZE_THREAD__)
#define DN_BUILD_TAG "tsan " DN_HEADERS
#else
#define DN_BUILD_TAG "plain " DN_HEADERS
#endif

struct dn_run {		  /* a command that runs a net, as the core knows it */
	const char *verb; /* "classifier train" */
	struct dn_cfg *cfg;
	struct dn_options *options; /* the plugin's own keys: cfg section, then command line; its init settles what is open */
	struct dn_group group;	    /* alone, until the plugin's init sets it */
	int threads;		    /* 0 = not chosen: the core divides usable cores by ranks_on_host after init */
	uint64_t seed;
	bool train;
	struct dn_device *dev; /* set between init and net_ready */
	struct dn_net *net;    /* set before net_ready */
	bool grads_add;	       /* of the plugin's init: see struct dn_net_options */
	bool sync_bn;	       /* of the plugin's init: training normalises over the images of all ranks */
	bool unsaved;	       /* of the plugin's init: what is learnt is worth nothing, and no file of it is written */
	bool load_rank0; /* of the plugin's init: rank 0 reads weights files and sends; else every rank reads its own intervals */
};

struct dn_plugin {
	uint32_t abi;			 /* checked first, then build: both must equal the host's */
	const char *build;		 /* DN_BUILD_TAG */
	const char *name, *summary;	 /* "fsdp": prefix of its keys and flags, name of its log room */
	const struct dn_option *options; /* limit=2 in [fsdp], or -fsdp.limit 2; ends at a NULL key */
	const struct dn_verb *verbs;	 /* darknet fsdp plan CFG; ends at a NULL name */
	/* For verbs that run a net, never for the plugin's offline verbs: no net and no device yet. Starts MPI, may refuse, sets
	 * r->group. */
	int (*init)(struct dn_run *r, void **self);
	/* Shapes known, params declared, none allocated. May set blocks; attaches its store (net->store) unless it leaves the
	 * local one. Everything that differs between ranks is refused here. */
	int (*net_ready)(void *self, struct dn_run *r);
	/* After the last net; err != 0 brings all ranks down: it may not return then. */
	void (*exit)(void *self, int err);
};

/** dn_plugin_options() - resolve a plugin's keys from its cfg section (may be NULL) and "-NAME.KEY VALUE" pairs (which win)
 * An unknown key is an error with file:line that lists the known ones. */
DN_EXPORT int dn_plugin_options(struct dn_options **out, const struct dn_plugin *p, struct dn_section *section, int n_flags,
				const char *const *flags);

#define DN_PLUGIN(p) \
	DN_EXPORT extern const struct dn_plugin *const dn_plugin_entry; \
	const struct dn_plugin *const dn_plugin_entry = &(p)

#ifdef __cplusplus
}
#endif
#endif
