/* Finding, checking and keeping plugins. */
#ifndef DN_PLUGIN_LOAD_H
#define DN_PLUGIN_LOAD_H
#include "plugin/plugin.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_loaded { /* an open plugin */
	const struct dn_plugin *p;
	void *handle; /* dlopen's */
	char path[4096];
};

/** dn_plugin_open() - by name (sought in $DARKNET_PLUGIN_PATH, then ../plugins of the program's real path) or path
 * Checks in this order: dlopen(RTLD_NOW | RTLD_LOCAL), entry symbol, abi, build, name. One message with file, found, expected. */
DN_EXPORT int dn_plugin_open(struct dn_loaded *out, const char *name);
DN_EXPORT void dn_plugin_close(struct dn_loaded *l);
/** dn_plugin_exists() - is there a file for @name in the search path? */
DN_EXPORT bool dn_plugin_exists(const char *name);
/** dn_plugin_each() - names found in the search path, sorted, each once: fn(arg, name, path) */
DN_EXPORT int dn_plugin_each(int (*fn)(void *arg, const char *name, const char *path), void *arg);

#ifdef __cplusplus
}
#endif
#endif
