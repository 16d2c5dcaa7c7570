/* In what two cfgs make nets that compute, or learn, something else.
 *
 * Sections of layers are compared in order, key by key, by what their values mean: every key that the section's tables have, with
 * the default that holds without it, but for those that their tables leave free (dn_key_rule.resume). So a key that a type of
 * layer gains is compared without a word here. Formatting, comments, the order of keys, unknown keys, a written default and keys that
 * say the same in other words (dn_key_rule.means) are no difference.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/keyrule.h"
#include "base/text.h"
#include "graph/cfg.h"
#include "graph/layer.h"

/* Sections that are no layers do not take part: [block] markers and those of plugins. */
struct walk {
	const struct dn_cfg *now_cfg, *then_cfg;
	const struct dn_section *now, *then;
	int layer; /* index, -1: [net] */
	int (*fn)(void *arg, const char *text);
	void *arg;
};

static int DN_PRINTF(3, 4) tell(const struct walk *w, int line, const char *fmt, ...)
{
	char text[400], whole[1000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(whole, sizeof(whole), "%.500s:%d: %s", w->now->file->path, line, text);
	return w->fn(w->arg, whole);
}

static const struct dn_key *find(const struct dn_section *s, const char *key)
{
	return dn_section_find((struct dn_section *)s, key);
}

/* The next element of a list that commas separate; false at its end. */
static bool next(const char **at, char *out, size_t cap)
{
	size_t n;

	if (!*at)
		return false;
	n = strcspn(*at, ",");
	snprintf(out, cap, "%.*s", (int)(n < cap ? n : cap - 1), *at);
	*at = (*at)[n] ? *at + n + 1 : NULL;
	return true;
}

static bool same_number(const char *a, const char *b, bool whole)
{
	int64_t i, k;
	double x, y;

	if (whole)
		return dn_parse_int(a, &i) <= DN_NUM_PREFIX && dn_parse_int(b, &k) <= DN_NUM_PREFIX && i == k;
	if (dn_parse_float(a, &x) > DN_NUM_PREFIX || dn_parse_float(b, &y) > DN_NUM_PREFIX)
		return false;
	return !(x < y) && !(x > y);
}

static bool same_list(const char *a, const char *b, bool whole)
{
	char x[64], y[64];

	for (;;) {
		bool more = next(&a, x, sizeof(x));

		if (more != next(&b, y, sizeof(y)))
			return false;
		if (!more)
			return true;
		if (!same_number(x, y, whole))
			return false;
	}
}

static const struct dn_section *next_layer(const struct dn_cfg *c, int *at)
{
	while (++*at < c->file->n_sections)
		if (dn_layer_find(c->file->sections[*at].name))
			return &c->file->sections[*at];
	return NULL;
}

const struct dn_section *dn_cfg_layer(const struct dn_cfg *c, int index)
{
	const struct dn_section *s = NULL;
	int at = 0;

	for (int i = 0; i <= index; i++) {
		s = next_layer(c, &at);
		if (!s)
			return NULL;
	}
	return s;
}

static bool shares(const struct dn_cfg *c, int64_t at, int64_t *owner)
{
	const struct dn_section *s = dn_cfg_layer(c, (int)at);
	const struct dn_key *k = s ? find(s, "share_index") : NULL;

	if (!k || dn_parse_int(k->value, owner) > DN_NUM_PREFIX)
		return false;
	*owner += *owner < 0 ? at : 0;
	return *owner >= 0 && *owner < at;
}

/* The layer that @text stands for in @layer of @c: who owns the params, or, as a source, the last of those that work in its
 * place. */
static bool layer_of(const struct dn_cfg *c, int layer, const char *key, const char *text, int64_t *out)
{
	int64_t at, owner;

	if (dn_parse_int(text, &at) > DN_NUM_PREFIX)
		return false;
	at += at < 0 ? layer : 0;
	if (!strcmp(key, "share_index")) {
		while (at >= 0 && shares(c, at, &owner))
			at = owner;
	} else {
		while (at >= 0 && at + 1 < layer && dn_layer_find(dn_cfg_layer(c, (int)at + 1)->name)->in_place)
			at++;
	}
	*out = at;
	return true;
}

/* "-1,3" of layer 5 is "4,3" */
static bool same_layers(const struct walk *w, const char *key, const char *a, const char *b)
{
	char x[64], y[64];

	for (;;) {
		bool more = next(&a, x, sizeof(x));
		int64_t i, k;

		if (more != next(&b, y, sizeof(y)))
			return false;
		if (!more)
			return true;
		if (!layer_of(w->now_cfg, w->layer, key, x, &i) || !layer_of(w->then_cfg, w->layer, key, y, &k) || i != k)
			return false;
	}
}

/* What holds in @s for the key of @r: its value, or the default as text; NULL when nothing does. */
static const char *holds(const struct dn_section *s, const struct dn_key_rule *r, char *out, size_t cap)
{
	const struct dn_key *k = find(s, r->key);

	const struct dn_key_rule *from = k || r->def || !r->from ? NULL : dn_section_rule(s, r->from);
	const char *text;
	int64_t x;

	if (!from)
		return k ? k->value : r->def;
	text = holds(s, from, out, cap);
	if (text && dn_parse_int(text, &x) <= DN_NUM_PREFIX)
		snprintf(out, cap, "%lld", (long long)x + r->more);
	else if (text)
		snprintf(out, cap, "%s", text); /* the other key's fault */
	return text ? out : NULL;
}

static bool same_value(const struct walk *w, const struct dn_key_rule *r, const char *x, const char *y)
{
	if (!x || !y)
		return x == y;
	if (!strcmp(x, y))
		return true;
	if (r->resume == DN_RESUME_SAME_LAYERS)
		return same_layers(w, r->key, x, y);
	switch (r->kind) {
	case DN_KEY_INT:
		return same_number(x, y, true);
	case DN_KEY_FLOAT:
	case DN_KEY_ONLY:
		return same_number(x, y, false);
	case DN_KEY_INTS:
	case DN_KEY_FLOATS:
		return same_list(x, y, r->kind == DN_KEY_INTS);
	default:
		return false;
	}
}

static int compare_key(const struct walk *w, const struct dn_key_rule *r)
{
	const struct dn_key *x = find(w->now, r->key), *y = find(w->then, r->key);
	const char *here, *there;
	char a[64], b[64];

	/* a default that is another follows from a key that is another */
	if (r->kind == DN_KEY_NOTHING || r->resume == DN_RESUME_ANY || (!x && !y))
		return 0;
	if (r->resume == DN_RESUME_IF_IMAGE && find(w->now, "width") && find(w->then, "width"))
		return 0;
	if (r->resume == DN_RESUME_FILE && x && y) /* of what they hold only a net knows */
		return 0;
	here = holds(w->now, r, a, sizeof(a));
	there = holds(w->then, r, b, sizeof(b));
	if (same_value(w, r, here, there) || (r->means && r->means(w->now) == r->means(w->then)))
		return 0;
	if (!x)
		return tell(w, w->now->line, "[%.80s] has no %.80s%s%.80s; was saved with %.80s=%.80s", w->now->name, r->key,
			    here ? ", so " : "", here ? here : "", r->key, y->value);
	if (!y)
		return tell(w, x->line, "[%.80s] %.80s=%.80s; was saved without it%s%.80s", w->now->name, r->key, x->value,
			    there ? ", so " : "", there ? there : "");
	return tell(w, x->line, "[%.80s] %.80s=%.80s; was saved with %.80s", w->now->name, r->key, x->value, y->value);
}

static int compare_sections(const struct walk *w)
{
	for (size_t i = 0; i < sizeof(w->now->rules) / sizeof(w->now->rules[0]); i++)
		for (const struct dn_key_rule *r = w->now->rules[i]; r && r->key; r++) {
			int err = compare_key(w, r);

			if (err)
				return err;
		}
	return 0;
}

int dn_cfg_differences(const struct dn_cfg *now, const struct dn_cfg *then, int (*fn)(void *arg, const char *text), void *arg)
{
	struct walk w = { now, then, now->net, then->net, -1, fn, arg };
	int i = 0, k = 0;
	int err = compare_sections(&w);

	while (!err) {
		const struct dn_section *a = next_layer(now, &i), *b = next_layer(then, &k);

		w.layer++;
		if (!a && !b)
			break;
		if (!a)
			return tell(&w, w.now->line, "the net ends with layer %d, [%.80s]; it was saved with a [%.80s] after it",
				    w.layer - 1, w.now->name, b->name);
		w.now = a;
		w.then = b;
		if (!b)
			return tell(&w, a->line, "layer %d is [%.80s]; the net was saved with %d layers", w.layer, a->name,
				    w.layer);
		if (dn_layer_find(a->name) != dn_layer_find(b->name)) /* nothing after it can be told apart */
			return tell(&w, a->line, "layer %d is [%.80s]; was saved as [%.80s]", w.layer, a->name, b->name);
		err = compare_sections(&w);
	}
	return err;
}
