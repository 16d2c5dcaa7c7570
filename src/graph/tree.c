/* Tree files: lines "NAME PARENT" to parents, groups and leaves. */
#include "graph/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

#define TREE_MAX_BYTES ((size_t)64 << 20)

void dn_tree_destroy(struct dn_tree *t)
{
	if (!t)
		return;
	dn_free((void *)t->desc.parent);
	dn_free((void *)t->desc.group_at);
	dn_free(t->names);
	dn_free(t->leaf);
	dn_free(t->text);
	dn_free(t);
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* The two words of line @at, both terminated in place. */
static int split(const char *path, int64_t at, char *line, const char **name, const char **parent)
{
	char *word[3] = { NULL };
	int n = 0;

	for (char *c = line; *c && n < 3;) {
		while (blank(*c))
			*c++ = '\0';
		if (*c)
			word[n++] = c;
		while (*c && !blank(*c))
			c++;
	}
	if (n != 2)
		return dn_fail(-EINVAL, "%s:%lld: a line of a tree is NAME PARENT", path, (long long)at + 1);
	*name = word[0];
	*parent = word[1];
	return 0;
}

static int add_line(struct dn_tree *t, const char *path, int64_t at, char *line)
{
	int32_t *parent = (int32_t *)t->desc.parent, *group_at = (int32_t *)t->desc.group_at;
	const char *name = NULL, *text = NULL;
	char *end;
	long v;
	int err = split(path, at, line, &name, &text);

	if (err)
		return err;
	errno = 0;
	v = strtol(text, &end, 10);
	if (end == text || *end || errno || v < -1 || v >= at)
		return dn_fail(-EINVAL, "%s:%lld: %s: parent %s must be -1 or the number of an earlier line, counted from 0",
			       path, (long long)at + 1, name, text);
	t->names[at] = name;
	t->leaf[at] = true;
	parent[at] = (int32_t)v;
	if (v >= 0)
		t->leaf[v] = false;
	if (!at || parent[at - 1] != v)
		group_at[t->desc.n_groups++] = (int32_t)at;
	group_at[t->desc.n_groups] = (int32_t)at + 1;
	return 0;
}

int dn_tree_read(struct dn_tree **out, const char *path)
{
	struct dn_tree *t = dn_zalloc(sizeof(*t));
	size_t n = 0;
	int64_t lines = 0;
	char *next;
	int err = t ? dn_file_read(path, TREE_MAX_BYTES, &t->text, &n) : -ENOMEM;

	if (err)
		goto err_destroy;
	if (strlen(t->text) != n) {
		err = dn_fail(-EINVAL, "%s: holds a NUL byte: not a tree file", path);
		goto err_destroy;
	}
	while (n && (t->text[n - 1] == '\n' || blank(t->text[n - 1])))
		t->text[--n] = '\0';
	for (const char *c = t->text; *c; c++)
		lines += *c == '\n';
	lines++;
	t->desc.c = lines;
	t->desc.parent = dn_calloc((size_t)lines, sizeof(int32_t));
	t->desc.group_at = dn_calloc((size_t)lines + 1, sizeof(int32_t));
	t->names = dn_calloc((size_t)lines, sizeof(*t->names));
	t->leaf = dn_calloc((size_t)lines, sizeof(*t->leaf));
	err = t->desc.parent && t->desc.group_at && t->names && t->leaf ? 0 : -ENOMEM;
	next = t->text;
	for (int64_t at = 0; at < lines && !err; at++) {
		char *line = next, *end = strchr(line, '\n');

		if (end) {
			*end = '\0';
			next = end + 1;
		}
		err = add_line(t, path, at, line);
	}
	if (err)
		goto err_destroy;
	*out = t;
	return 0;

err_destroy:
	dn_tree_destroy(t);
	return err;
}

void dn_tree_absolute(const struct dn_tree *t, float *p)
{
	for (int64_t i = 0; i < t->desc.c; i++) /* parents stand first */
		if (t->desc.parent[i] >= 0)
			p[i] *= p[t->desc.parent[i]];
}
