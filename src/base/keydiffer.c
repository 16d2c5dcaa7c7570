/* The first line in which two files of keys differ, for a message to whoever wrote them. */
#include <stdio.h>
#include <string.h>

#include "base/keyfile.h"

#define TEXT_F "%.120s"
#define PATH_F "%.300s"

struct pair {
	const struct dn_keyfile *a, *b;
	const char *who;	 /* has @b */
	const char *const *keys; /* the only ones that count; NULL: all */
	char *out;
	size_t cap;
};

static const struct dn_key *find(const struct dn_section *s, const char *key)
{
	return dn_section_find((struct dn_section *)s, key);
}

static bool counts(const struct pair *p, const char *key)
{
	if (!p->keys)
		return true;
	for (const char *const *k = p->keys; *k; k++)
		if (!strcmp(*k, key))
			return true;
	return false;
}

/* "[conv] ", and for a file without sections nothing */
static const char *name_of(const struct dn_section *s, char *out, size_t cap)
{
	out[0] = '\0';
	if (s->name[0])
		snprintf(out, cap, "[%.60s] ", s->name);
	return out;
}

static bool differ_keys(const struct pair *p, const struct dn_section *x, const struct dn_section *y)
{
	const char *path = p->a->path, *other = p->b->path;
	char name[80];

	name_of(x, name, sizeof(name));
	for (int i = 0; i < x->n_keys; i++) {
		const struct dn_key *k = &x->keys[i], *o = find(y, k->key);

		if (!counts(p, k->key) || (o && !strcmp(k->value, o->value)))
			continue;
		if (o)
			snprintf(p->out, p->cap, PATH_F ":%d: %s%.80s=" TEXT_F ", %s has " TEXT_F " (" PATH_F ":%d)", path,
				 k->line, name, k->key, k->value, p->who, o->value, other, o->line);
		else
			snprintf(p->out, p->cap, PATH_F ":%d: %s%.80s=" TEXT_F ", %s has no such key (" PATH_F ":%d)", path,
				 k->line, name, k->key, k->value, p->who, other, y->line);
		return true;
	}
	for (int i = 0; i < y->n_keys; i++) {
		const struct dn_key *o = &y->keys[i];

		if (!counts(p, o->key) || find(x, o->key))
			continue;
		snprintf(p->out, p->cap, PATH_F ":%d: %shas no %.80s, %s has %.80s=" TEXT_F " (" PATH_F ":%d)", path, x->line,
			 name, o->key, p->who, o->key, o->value, other, o->line);
		return true;
	}
	return false;
}

bool dn_keyfile_difference(const struct dn_keyfile *a, const struct dn_keyfile *b, const char *who, const char *const *keys,
			   char *out, size_t cap)
{
	const struct pair p = { a, b, who, keys, out, cap };

	for (int i = 0; i < a->n_sections || i < b->n_sections; i++) {
		const struct dn_section *x = i < a->n_sections ? &a->sections[i] : NULL;
		const struct dn_section *y = i < b->n_sections ? &b->sections[i] : NULL;

		if (x && y && !strcmp(x->name, y->name)) {
			if (differ_keys(&p, x, y))
				return true;
			continue;
		}
		if (x && y)
			snprintf(out, cap, PATH_F ":%d: [%.60s], %s has [%.60s] (" PATH_F ":%d)", a->path, x->line, x->name, who,
				 y->name, b->path, y->line);
		else if (x)
			snprintf(out, cap, PATH_F ":%d: [%.60s], %s has no section after its %d (" PATH_F ")", a->path, x->line,
				 x->name, who, b->n_sections, b->path);
		else if (y)
			snprintf(out, cap, PATH_F ": ends after %d sections, %s has [%.60s] (" PATH_F ":%d)", a->path,
				 a->n_sections, who, y->name, b->path, y->line);
		return true;
	}
	return false;
}
