/* Classes of images by their paths: every label that is part of the path is a class of the image. */
#include "data/truth_priv.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "data/array_priv.h"

#define MAX_LABEL 1024
#define MAX_NODES ((int64_t)1 << 26)

/* Labels by their letters, so that a path is compared with all of them at once. Node 0 is the root. */
struct node {
	int32_t child, sibling; /* 0 = none */
	int32_t label;		/* that ends here, -1 = none */
	unsigned char letter;
};

struct letters {
	struct node *node;
	int64_t n;
	int32_t root[256]; /* children of the root by letter */
	int32_t *same;	   /* [labels]: the next label of the same text, -1 = none */
	int64_t *seen;	   /* [labels]: path + 1 that had it last */
};

static int32_t child_of(const struct letters *t, int32_t at, unsigned char letter)
{
	int32_t k;

	if (!at)
		return t->root[letter];
	for (k = t->node[at].child; k && t->node[k].letter != letter; k = t->node[k].sibling)
		;
	return k;
}

static int32_t add_child(struct letters *t, int32_t at, unsigned char letter)
{
	int32_t k = (int32_t)t->n++;

	t->node[k] = (struct node){ .sibling = at ? t->node[at].child : 0, .label = -1, .letter = letter };
	if (at)
		t->node[at].child = k;
	else
		t->root[letter] = k;
	return k;
}

static void add_label(struct letters *t, const char *s, int32_t label)
{
	int32_t at = 0;

	for (; *s; s++) {
		int32_t k = child_of(t, at, (unsigned char)*s);

		at = k ? k : add_child(t, at, (unsigned char)*s);
	}
	t->same[label] = t->node[at].label;
	t->node[at].label = label;
}

static void letters_fini(struct letters *t)
{
	dn_free(t->node);
	dn_free(t->same);
	dn_free(t->seen);
}

static int letters_init(struct letters *t, const struct dn_lines *labels, int64_t n, const char *path)
{
	int64_t total = 1;

	*t = (struct letters){ 0 };
	for (int64_t i = 0; i < n; i++) {
		size_t len = strlen(labels->line[i]);

		if (!len || len > MAX_LABEL)
			return dn_fail(-EINVAL, DATA_PATH ":%lld: a label of %zu letters; labels have 1 to %d", path,
				       (long long)i + 1, len, MAX_LABEL);
		total += (int64_t)len;
	}
	if (total > MAX_NODES)
		return dn_fail(-EINVAL, DATA_PATH ": labels of %lld letters together, at most %lld are read", path,
			       (long long)total, (long long)MAX_NODES);
	t->node = dn_calloc((size_t)total, sizeof(*t->node));
	t->same = dn_calloc((size_t)n, sizeof(*t->same));
	t->seen = dn_calloc((size_t)n, sizeof(*t->seen));
	if (!t->node || !t->same || !t->seen) {
		letters_fini(t);
		return -ENOMEM;
	}
	t->n = 1;
	t->node[0].label = -1;
	for (int64_t i = 0; i < n; i++)
		add_label(t, labels->line[i], (int32_t)i);
	return 0;
}

static int add_class(struct truth *t, int64_t *n, int32_t k)
{
	int32_t *p = dn_grow(t->cls, *n, sizeof(*p));

	if (!p)
		return -ENOMEM;
	t->cls = p;
	t->cls[(*n)++] = k;
	return 0;
}

static int ascending(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return (x > y) - (x < y);
}

static int match_path(struct truth *t, struct letters *l, const char *path, int64_t i, int64_t *n)
{
	int64_t from = *n;
	int err = 0;

	assert(l->node && l->same && l->seen);
	for (; *path && !err; path++) {
		const char *s = path;
		int32_t at = child_of(l, 0, (unsigned char)*s);

		for (; at && !err; at = *s ? child_of(l, at, (unsigned char)*s) : 0) {
			for (int32_t k = l->node[at].label; k >= 0 && !err; k = l->same[k])
				if (l->seen[k] != i + 1) {
					l->seen[k] = i + 1;
					err = add_class(t, n, k);
				}
			s++;
		}
	}
	if (*n > from + 1)
		qsort(t->cls + from, (size_t)(*n - from), sizeof(*t->cls), ascending);
	return err;
}

static void summary(const struct truth *t, const struct dn_lines *paths, const struct dn_lines *labels, const char *list,
		    const char *labels_path)
{
	int64_t none = 0, several = 0, first_none = -1, first_several = -1;
	struct dn_buf b = { 0 };
	int err;

	for (int64_t i = 0; i < t->n; i++) {
		int64_t k = t->at[i + 1] - t->at[i];

		none += k == 0;
		several += k > 1;
		if (k == 0 && first_none < 0)
			first_none = i;
		if (k > 1 && first_several < 0)
			first_several = i;
	}
	if (!none && !several)
		return;
	err = dn_buf_printf(&b, "%.300s: of %lld images", list, (long long)t->n);
	if (!err && none)
		err = dn_buf_printf(&b, " %lld have no label of %.300s in their path (the first: line %d, \"%.300s\")",
				    (long long)none, labels_path, paths->number[first_none], paths->line[first_none]);
	if (!err && several) {
		const int32_t *k = t->cls + t->at[first_several];

		err = dn_buf_printf(&b, "%s %lld have several (the first: line %d, \"%.300s\": %.80s, %.80s%s)", none ? "," : "",
				    (long long)several, paths->number[first_several], paths->line[first_several],
				    labels->line[k[0]], labels->line[k[1]],
				    t->at[first_several + 1] - t->at[first_several] > 2 ? ", ..." : "");
	}
	if (!err)
		dn_warn("%s", b.s);
	dn_buf_fini(&b);
}

int truth_match(struct truth *t, const struct dn_lines *paths, const struct dn_lines *labels, int64_t classes, const char *list,
		const char *labels_path, bool told)
{
	struct letters l;
	int64_t n = 0;
	int err = letters_init(&l, labels, classes, labels_path);

	if (err)
		return err;
	t->n = paths->n;
	t->classes = classes;
	t->at = dn_calloc((size_t)paths->n + 1, sizeof(*t->at));
	err = t->at ? 0 : -ENOMEM;
	for (int64_t i = 0; i < paths->n && !err; i++) {
		err = match_path(t, &l, paths->line[i], i, &n);
		t->at[i + 1] = n;
	}
	letters_fini(&l);
	if (!err && !told)
		summary(t, paths, labels, list, labels_path);
	return err; /* what there is of it goes with truth_fini() */
}

void truth_fini(struct truth *t)
{
	dn_free(t->at);
	dn_free(t->cls);
	dn_tree_destroy(t->tree);
	*t = (struct truth){ 0 };
}

int64_t truth_first(const struct truth *t, int64_t i)
{
	return t->at[i] < t->at[i + 1] ? t->cls[t->at[i]] : -1;
}

/* Groups without a positive are ignored. */
static void ignore_groups(const struct dn_tree *tree, float *out)
{
	for (int g = 0; g < tree->n_groups; g++) {
		bool any = false;

		for (int32_t k = tree->group_at[g]; k < tree->group_at[g + 1]; k++)
			any = any || out[k] > 0;
		for (int32_t k = tree->group_at[g]; k < tree->group_at[g + 1] && !any; k++)
			out[k] = TRUTH_IGNORE;
	}
}

void truth_write(const struct truth *t, int64_t i, bool first, float *out)
{
	int64_t end = first && t->at[i] < t->at[i + 1] ? t->at[i] + 1 : t->at[i + 1];

	memset(out, 0, (size_t)t->classes * sizeof(*out));
	for (int64_t j = t->at[i]; j < end; j++) {
		int32_t k = t->cls[j];

		out[k] = 1;
		while (t->tree && (k = t->tree->parent[k]) >= 0)
			out[k] = 1;
	}
	if (t->tree)
		ignore_groups(t->tree, out);
}
