/* A cfg as sections: the rules on [net] and on plugin sections, and the text without what only we know. */
#include "graph/cfg.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "graph/graph_priv.h"

static bool is_net(const char *name)
{
	return !strcmp(name, "net") || !strcmp(name, "network");
}

bool dn_section_kind(int i, struct dn_section_kind *out)
{
	static const struct dn_section_kind first[] = {
		{ "net", "network", "the first section: input, batches, rate, optimizer, augmentation", dn_net_keys, NULL },
		{ "block", NULL, "starts a block of layers; other keys of it belong to the plugin", dn_block_keys, NULL },
	};
	const struct dn_layer_ops *o;

	if (i < DN_N(first)) {
		*out = first[i];
		return true;
	}
	o = dn_layer_table[i - DN_N(first)];
	if (o)
		*out = (struct dn_section_kind){ o->name, o->alias, o->summary, o->keys, dn_layer_keys };
	return o != NULL;
}

bool dn_section_kind_find(const char *section, struct dn_section_kind *out)
{
	for (int i = 0; dn_section_kind(i, out); i++)
		if (!strcmp(section, out->name) || (out->alias && !strcmp(section, out->alias)))
			return true;
	return false;
}

static void give_rules(struct dn_keyfile *f)
{
	struct dn_section_kind kind;

	for (int i = 0; i < f->n_sections; i++)
		if (dn_section_kind_find(f->sections[i].name, &kind)) {
			if (kind.keys)
				dn_section_rules(&f->sections[i], kind.keys);
			if (kind.common)
				dn_section_rules(&f->sections[i], kind.common);
		}
}

/* Takes over @f, also on failure. */
static int cfg_wrap(struct dn_cfg **out, struct dn_keyfile *f)
{
	struct dn_cfg *c;
	int err;

	if (!f->n_sections) {
		err = dn_fail(-EINVAL, "%s: no sections; a cfg starts with [net]", f->path);
		goto err_file;
	}
	if (!is_net(f->sections[0].name)) {
		err = dn_section_fail(&f->sections[0], NULL, -EINVAL, "the first section must be [net] or [network]");
		goto err_file;
	}
	for (int i = 1; i < f->n_sections; i++)
		if (is_net(f->sections[i].name)) {
			err = dn_section_fail(&f->sections[i], NULL, -EINVAL, "a second one; the first is in line %d",
					      f->sections[0].line);
			goto err_file;
		}
	c = dn_zalloc(sizeof(*c));
	if (!c) {
		err = -ENOMEM;
		goto err_file;
	}
	c->file = f;
	c->net = &f->sections[0];
	give_rules(f);
	c->hash = dn_hash(f->text, f->text_bytes);
	*out = c;
	return 0;

err_file:
	dn_keyfile_destroy(f);
	return err;
}

int dn_cfg_read(struct dn_cfg **out, const char *path, bool strict)
{
	struct dn_keyfile *f;
	int err = dn_keyfile_read(&f, path, true, strict);

	return err ? err : cfg_wrap(out, f);
}

int dn_cfg_parse(struct dn_cfg **out, const char *text, size_t n, const char *path, bool strict)
{
	struct dn_keyfile *f;
	int err = dn_keyfile_parse(&f, text, n, path, true, strict);

	return err ? err : cfg_wrap(out, f);
}

int dn_cfg_parse_quiet(struct dn_cfg **out, const char *text, size_t n, const char *path)
{
	struct dn_keyfile *f;
	int err = dn_keyfile_parse_quiet(&f, text, n, path, true);

	return err ? err : cfg_wrap(out, f);
}

void dn_cfg_destroy(struct dn_cfg *c)
{
	if (!c)
		return;
	for (int i = 0; i < c->n_claimed; i++)
		dn_free(c->claimed[i]);
	dn_free(c->claimed);
	dn_keyfile_destroy(c->file);
	dn_free(c);
}

struct dn_section *dn_cfg_section(struct dn_cfg *c, const char *name, int *err)
{
	struct dn_section *found = NULL;

	*err = 0;
	for (int i = 0; i < c->file->n_sections; i++) {
		struct dn_section *s = &c->file->sections[i];

		if (strcmp(s->name, name))
			continue;
		if (found) {
			*err = dn_section_fail(s, NULL, -EINVAL, "a second one; the first is in line %d", found->line);
			return NULL;
		}
		found = s;
	}
	return found;
}

bool dn_cfg_is_layer(const char *section)
{
	return dn_layer_find(section) != NULL;
}

bool dn_cfg_is_claimed(const struct dn_cfg *c, const char *name)
{
	for (int i = 0; i < c->n_claimed; i++)
		if (!strcmp(c->claimed[i], name))
			return true;
	return false;
}

int dn_cfg_claim(struct dn_cfg *c, const char *name)
{
	char **all;
	char *copy;

	if (dn_cfg_is_claimed(c, name))
		return 0;
	if (is_net(name) || !strcmp(name, "block") || dn_cfg_is_layer(name))
		return dn_fail(-EEXIST, "section [%s] is the program's own, a plugin cannot have it", name);
	copy = dn_strdup(name);
	if (!copy)
		return -ENOMEM;
	all = dn_grow(c->claimed, c->n_claimed, sizeof(*all));
	if (!all) {
		dn_free(copy);
		return -ENOMEM;
	}
	c->claimed = all;
	all[c->n_claimed++] = copy;
	return 0;
}

/* The next line of @text from @at: its end (after the LF) and whether it holds more than blanks and a comment. */
static size_t next_line(const char *text, size_t n, size_t at, bool *empty)
{
	const char *lf = memchr(text + at, '\n', n - at);
	size_t end = lf ? (size_t)(lf - text) + 1 : n;
	size_t k = at;

	while (k < end && strchr(" \t\r\n", text[k]) && text[k])
		k++;
	*empty = k == end || text[k] == '#' || text[k] == ';';
	return end;
}

int dn_cfg_plain(const struct dn_cfg *c, bool (*is_plugin)(const char *section), char **out, size_t *n)
{
	const struct dn_keyfile *f = c->file;
	struct dn_buf kept = { 0 };
	struct dn_buf tail = { 0 }; /* comments and blanks that may belong to what follows a dropped section */
	size_t at = 0;
	int line = 1;
	int s = -1; /* section of this line */
	bool drop = false;
	int err = 0;

	while (at < f->text_bytes) {
		bool empty;
		size_t end = next_line(f->text, f->text_bytes, at, &empty);

		if (s + 1 < f->n_sections && f->sections[s + 1].line == line) {
			const char *name = f->sections[++s].name;

			drop = !strcmp(name, "block") || (is_plugin && is_plugin(name));
			err = dn_buf_add(&kept, tail.s ? tail.s : "", tail.n);
			tail.n = 0;
		} else if (drop && !empty) {
			tail.n = 0; /* it was inside the section */
		}
		if (!err && (!drop || empty))
			err = dn_buf_add(drop ? &tail : &kept, f->text + at, end - at);
		if (err)
			goto out;
		at = end;
		line++;
	}
	err = dn_buf_add(&kept, tail.s ? tail.s : "", tail.n);
	if (err)
		goto out;
	*out = kept.s;
	*n = kept.n;
	kept.s = NULL;
out:
	dn_buf_fini(&tail);
	dn_buf_fini(&kept);
	return err;
}
