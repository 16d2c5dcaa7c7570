/* Tree files: lines "NAME PARENT" to parents, groups and leaves. */
#include "base/tree.h"

#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

#define TREE_MAX_BYTES ((size_t)64 << 20)

void dn_tree_destroy(struct dn_tree *t)
{
	if (!t)
		return;
	dn_free(t->parent);
	dn_free(t->group_at);
	dn_free(t->names);
	dn_free(t->leaf);
	dn_free(t->text);
	dn_free(t);
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* The parent is what follows the last blank; both parts are cut out of @line in place. */
static int split(const char *path, int64_t number, char *line, const char **name, const char **parent)
{
	char *end = line + strlen(line), *p;

	while (end > line && blank(end[-1]))
		*--end = '\0';
	while (blank(*line))
		line++;
	for (p = end; p > line && !blank(p[-1]);)
		p--;
	if (p == line)
		return dn_fail(-EINVAL, "%.300s:%lld: a line of a tree is NAME PARENT, found \"%.100s\"", path, (long long)number,
			       line);
	*parent = p;
	while (blank(p[-1]))
		*--p = '\0';
	*name = line;
	return 0;
}

/* Line @number of the file is entry @at: empty lines are skipped. */
static int add_line(struct dn_tree *t, const char *path, int64_t number, int64_t at, char *line)
{
	const char *name = NULL, *text = NULL;
	enum dn_number kind;
	int64_t v = 0;
	int err = split(path, number, line, &name, &text);

	if (err)
		return err;
	kind = dn_parse_int(text, &v);
	if (kind == DN_NUM_NONE)
		return dn_fail(-EINVAL, "%.300s:%lld: a line of a tree is NAME PARENT, found \"%.100s %.100s\"", path,
			       (long long)number, name, text);
	if (kind != DN_NUM_WHOLE || v < -1 || v >= at)
		return dn_fail(-EINVAL,
			       "%.300s:%lld: %.100s: parent %.100s must be -1 or the number of an earlier line, counted from 0",
			       path, (long long)number, name, text);
	t->names[at] = name;
	t->leaf[at] = true;
	t->parent[at] = (int32_t)v;
	if (v >= 0)
		t->leaf[v] = false;
	if (!at || t->parent[at - 1] != v)
		t->group_at[t->n_groups++] = (int32_t)at;
	t->group_at[t->n_groups] = (int32_t)at + 1;
	return 0;
}

/* Takes over @text, also on failure. */
static int build(struct dn_tree **out, char *text, size_t n, const char *path)
{
	struct dn_tree *t = dn_zalloc(sizeof(*t));
	int64_t n_lines;
	int err = -ENOMEM;

	if (!t) {
		dn_free(text);
		return err;
	}
	t->text = text;
	if (strlen(text) != n) {
		int line = 1;

		for (const char *c = text; *c; c++)
			line += *c == '\n';
		err = dn_fail(-EINVAL, "%.300s:%d: holds a NUL byte: not a tree file", path, line);
		goto err_destroy;
	}
	if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		text += 3;
	for (n = strlen(text); n && (text[n - 1] == '\n' || blank(text[n - 1]));)
		text[--n] = '\0';
	t->n = 1;
	for (const char *c = text; *c; c++)
		t->n += *c == '\n';
	t->parent = dn_calloc((size_t)t->n, sizeof(*t->parent));
	t->group_at = dn_calloc((size_t)t->n + 1, sizeof(*t->group_at));
	t->names = dn_calloc((size_t)t->n, sizeof(*t->names));
	t->leaf = dn_calloc((size_t)t->n, sizeof(*t->leaf));
	if (!t->parent || !t->group_at || !t->names || !t->leaf)
		goto err_destroy;
	n_lines = t->n;
	t->n = 0;
	for (int64_t number = 1; number <= n_lines; number++) {
		char *line = text, *feed = strchr(text, '\n');

		if (feed) {
			*feed = '\0';
			text = feed + 1;
		}
		if (!line[strspn(line, " \t\r")])
			continue;
		err = add_line(t, path, number, t->n, line);
		if (err)
			goto err_destroy;
		t->n++;
	}
	if (!t->n) {
		err = dn_fail(-EINVAL, "%.300s: is empty, a tree has lines NAME PARENT", path);
		goto err_destroy;
	}
	*out = t;
	return 0;

err_destroy:
	dn_tree_destroy(t);
	return err;
}

int dn_tree_read(struct dn_tree **out, const char *path)
{
	char *text;
	size_t n;
	int err = dn_file_read(path, TREE_MAX_BYTES, &text, &n);

	return err ? err : build(out, text, n, path);
}

void dn_tree_absolute(const struct dn_tree *t, float *p)
{
	for (int64_t i = 0; i < t->n; i++) /* parents stand first */
		if (t->parent[i] >= 0)
			p[i] *= p[t->parent[i]];
}
