/* What must be equal on all ranks of a run: names and texts, which the group compares. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/version.h"
#include "cli/cli.h"
#include "cli/session.h"

int session_item(struct session_items *s, const char *name, const char *fmt, ...)
{
	size_t n = strlen(name) + 1;
	struct dn_item *grown;
	char text[512];
	va_list ap;
	char *both; /* NAME\0VALUE */

	grown = dn_grow(s->item, s->n, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	s->item = grown;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	both = dn_alloc(n + strlen(text) + 1);
	if (!both)
		return -ENOMEM;
	memcpy(both, name, n);
	memcpy(both + n, text, strlen(text) + 1);
	s->item[s->n++] = (struct dn_item){ both, both + n };
	return 0;
}

int session_item_weights(const struct session *s, struct session_items *items, const char *path)
{
	int64_t size = 0;
	int err = s->run.load_rank0 && s->run.group.rank ? 0 : dn_file_size(path, &size);

	if (err)
		return err;
	if (s->run.load_rank0) /* the others need not see it */
		return session_item(items, "weights file", "%.300s", path);
	return session_item(items, "weights file", "%.300s, %lld bytes", path, (long long)size);
}

void session_items_fini(struct session_items *s)
{
	for (int i = 0; i < s->n; i++)
		dn_free((char *)s->item[i].name);
	dn_free(s->item);
	memset(s, 0, sizeof(*s));
}

static int item_flag(void *arg, const struct dn_option *opt, const char *value)
{
	static const char *const own[] = { "i", "gpus", "nogpu", "device", "plugin", "log" }; /* do not change the training */
	char name[160];

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (!strcmp(own[i], opt->key))
			return 0;
	snprintf(name, sizeof(name), "-%s", opt->key);
	return session_item(arg, name, "%s", value);
}

struct plugin_item {
	struct session_items *items;
	const char *plugin;
};

static int item_plugin(void *arg, const struct dn_option *opt, const char *value)
{
	struct plugin_item *p = arg;
	char name[160];

	snprintf(name, sizeof(name), "%s.%s", p->plugin, opt->key);
	return session_item(p->items, name, "%s", value);
}

int session_items_collect(struct session *s, struct session_items *items)
{
	struct plugin_item p = { items, s->plugin.p ? s->plugin.p->name : NULL };
	struct dn_facts facts;
	int err;

	s->run.dev->be->facts(s->run.dev, &facts);
	err = session_item(items, "version", "%s", DN_VERSION);
	if (!err)
		err = session_item(items, "verb", "%s", s->c->verb->name);
	if (!err)
		err = session_item(items, "plugin", "%s", p.plugin ? p.plugin : "none");
	if (!err)
		err = session_item(items, "cfg", "text hash %016llx", (unsigned long long)s->cfg->hash);
	if (!err)
		err = session_item(items, "batch and subdivisions", "%lld / %lld", (long long)s->net->batch,
				   (long long)s->net->subdivisions);
	if (!err)
		err = session_item(items, "threads", "%d", facts.threads);
	if (!err)
		err = session_item(items, "backend", "%s, %s, alignment %zu", facts.backend, facts.library, facts.align_bytes);
	if (!err)
		err = dn_options_each(s->c->flags, item_flag, items);
	if (!err && s->plugin.p)
		err = dn_options_each(s->plugin_options, item_plugin, &p);
	return err;
}

enum { WHO_TEXT = 128 }; /* of a rank: host, instruction set */

/* the first that differs from rank 0 */
static int judge_isa(const struct session *s, const char *all)
{
	const char *mine = all + WHO_TEXT / 2;
	char text[640];

	for (int r = 1; r < s->run.group.world; r++) {
		const char *host = all + (size_t)WHO_TEXT * (size_t)r, *isa = host + WHO_TEXT / 2;

		if (!strcmp(isa, mine))
			continue;
		snprintf(
			text, sizeof(text),
			"ranks differ in the instruction set of the math: rank 0 on %s has %s, rank %d on %s has %s; their bits may "
			"differ (ONEDNN_MAX_CPU_ISA makes them alike)",
			all, mine, r, host, isa);
		if (dn_options_on(s->c->flags, "strict"))
			return dn_fail(-EINVAL, "%s", text);
		dn_warn("%s", text);
		break;
	}
	return 0;
}

int session_compare_isa(struct session *s)
{
	const struct dn_group *g = &s->run.group;
	char who[WHO_TEXT] = "", *all = NULL;
	struct dn_facts facts;
	size_t *sizes;
	int err;

	if (g->world == 1)
		return 0;
	s->run.dev->be->facts(s->run.dev, &facts);
	if (gethostname(who, WHO_TEXT / 2 - 1)) /* long names are cut */
		who[WHO_TEXT / 2 - 1] = '\0';
	snprintf(who + WHO_TEXT / 2, WHO_TEXT / 2, "%s", facts.isa);
	sizes = dn_calloc((size_t)g->world, sizeof(*sizes));
	err = session_agree(s, sizes ? 0 : -ENOMEM, "instruction sets");
	if (!err)
		err = dn_group_gather(g, who, sizeof(who), &all, sizes);
	if (!err)
		err = session_agree(s, all ? judge_isa(s, all) : 0, "instruction sets");
	dn_free(all);
	dn_free(sizes);
	return err;
}
