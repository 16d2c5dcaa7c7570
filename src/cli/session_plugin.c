/* Which plugin a run takes: the one that flags and cfg ask for; which sections of a cfg belong to plugins. */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/session.h"

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

int session_plugin_open(struct session *s)
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
