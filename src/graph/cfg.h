/* A cfg: a keyfile whose first section is [net] or [network], exactly once. */
#ifndef DN_GRAPH_CFG_H
#define DN_GRAPH_CFG_H
#include "base/keyrule.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_cfg {
	struct dn_keyfile *file;
	struct dn_section *net; /* the first section */
	uint64_t hash;		/* of the text */
	int n_claimed;
	char **claimed; /* sections that belong to plugins, by dn_cfg_claim() */
};

DN_EXPORT int dn_cfg_read(struct dn_cfg **out, const char *path, bool strict);
DN_EXPORT int dn_cfg_parse(struct dn_cfg **out, const char *text, size_t n, const char *path, bool strict);
/** dn_cfg_parse_quiet() - a text that was read before: what is only tolerated has been said then */
DN_EXPORT int dn_cfg_parse_quiet(struct dn_cfg **out, const char *text, size_t n, const char *path);
DN_EXPORT void dn_cfg_destroy(struct dn_cfg *c);
/** dn_cfg_section() - the section @name (a plugin's), NULL when there is none; two are -EINVAL in *err */
DN_EXPORT struct dn_section *dn_cfg_section(struct dn_cfg *c, const char *name, int *err);

struct dn_section_kind {			 /* a section that this version knows: [net], [block], a layer type */
	const char *name, *alias;		 /* alias may be NULL */
	const char *summary;			 /* one line */
	const struct dn_key_rule *keys, *common; /* NULL: none; common: those of every layer */
};
/** dn_section_kind() - kind @i, from 0; false past the last. dn_section_kind_find(): by name or alias */
DN_EXPORT bool dn_section_kind(int i, struct dn_section_kind *out);
DN_EXPORT bool dn_section_kind_find(const char *section, struct dn_section_kind *out);
/** dn_cfg_is_layer() - a layer type of this version, by name or alias */
DN_EXPORT bool dn_cfg_is_layer(const char *section);
/**
 * dn_cfg_claim() - sections called @name belong to a plugin (or to one that -plugin none ignores)
 * dn_net_build() skips them and does not warn of their keys. Claiming a name twice is legal.
 */
DN_EXPORT int dn_cfg_claim(struct dn_cfg *c, const char *name);
DN_EXPORT bool dn_cfg_is_claimed(const struct dn_cfg *c, const char *name);
/** dn_cfg_plain() - the cfg's text without [block] and plugin sections and nothing else changed, dn_alloc()ed;
 * @is_plugin tells which other sections to drop */
DN_EXPORT int dn_cfg_plain(const struct dn_cfg *c, bool (*is_plugin)(const char *section), char **out, size_t *n);
/** dn_cfg_layer() - the section of layer @index, NULL when there are not as many */
DN_EXPORT const struct dn_section *dn_cfg_layer(const struct dn_cfg *c, int index);
/**
 * dn_cfg_differences() - in what the nets of two cfgs compute or learn something else; differ.c lists what may change
 * fn(arg, text) for each, section by section: "t.cfg:12: [connected] activation=tanh; was saved with relu". What fn
 * returns other than 0 ends it and is returned. What files hold that both name (DN_RESUME_FILE) is not compared here.
 */
DN_EXPORT int dn_cfg_differences(const struct dn_cfg *now, const struct dn_cfg *then, int (*fn)(void *arg, const char *text),
				 void *arg);

#ifdef __cplusplus
}
#endif
#endif
