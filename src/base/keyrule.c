/* Keys by table: one entry gives the default, the range, the message and the help of a key. */
#include "base/keyrule.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"

enum { MAX_TABLES = sizeof(((struct dn_section *)NULL)->rules) / sizeof(void *) };

static const struct dn_key_rule *find_in(const struct dn_key_rule *table, const char *key)
{
	for (; table && table->key; table++)
		if (!strcmp(table->key, key))
			return table;
	return NULL;
}

const struct dn_key_rule *dn_section_rule(const struct dn_section *s, const char *key)
{
	for (int i = 0; i < MAX_TABLES; i++) {
		const struct dn_key_rule *r = find_in(s->rules[i], key);

		if (r)
			return r;
	}
	return NULL;
}

void dn_section_rules(struct dn_section *s, const struct dn_key_rule *table)
{
	int i = 0;

	while (i < MAX_TABLES && s->rules[i] && s->rules[i] != table)
		i++;
	assert(i < MAX_TABLES);
	s->rules[i] = table;
	for (int k = 0; k < s->n_keys; k++)
		if (find_in(table, s->keys[k].key))
			s->keys[k].used = true;
}

static const struct dn_key_rule *rule(const struct dn_section *s, const char *key, enum dn_key_kind kind)
{
	const struct dn_key_rule *r = dn_section_rule(s, key);

	assert(r && r->kind == kind);
	return r;
}

static int key_int(struct dn_section *s, const struct dn_key_rule *r, int64_t def, int64_t *out)
{
	bool open = !(r->min < 0 || r->min > 0 || r->max < 0 || r->max > 0);

	return dn_section_int(s, r->key, def, open ? INT64_MIN : (int64_t)r->min, open ? INT64_MAX : (int64_t)r->max, out);
}

static int64_t int_default(const struct dn_key_rule *r)
{
	int64_t def = 0;

	assert(r->def);
	(void)dn_parse_int(r->def, &def);
	return def;
}

static double float_default(const struct dn_key_rule *r)
{
	double def = 0;

	assert(r->def);
	(void)dn_parse_float(r->def, &def);
	return def;
}

int64_t dn_key_value(const struct dn_section *s, const char *key)
{
	const struct dn_key_rule *r = rule(s, key, DN_KEY_INT);
	const struct dn_key *k = dn_section_find((struct dn_section *)s, key);
	int64_t x = 0;

	if (k && dn_parse_int(k->value, &x) <= DN_NUM_PREFIX)
		return x;
	return r->from ? dn_key_value(s, r->from) + r->more : r->def ? int_default(r) : 0;
}

int dn_key_int(struct dn_section *s, const char *key, int64_t *out)
{
	const struct dn_key_rule *r = rule(s, key, DN_KEY_INT);
	int64_t def = 0;
	int err = r->from ? dn_key_int(s, r->from, &def) : 0;

	return err ? err : key_int(s, r, r->from ? def + r->more : int_default(r), out);
}

int dn_key_int_or(struct dn_section *s, const char *key, int64_t def, int64_t *out)
{
	const struct dn_key_rule *r = rule(s, key, DN_KEY_INT);

	assert(!r->def);
	return key_int(s, r, def, out);
}

int dn_key_int_in(struct dn_section *s, const char *key, int64_t min, int64_t max, int64_t *out)
{
	const struct dn_key_rule *r = rule(s, key, DN_KEY_INT);

	assert((double)min >= r->min && (double)max <= r->max);
	return dn_section_int(s, key, int_default(r), min, max, out);
}

int dn_key_float(struct dn_section *s, const char *key, double *out)
{
	return dn_section_float(s, key, float_default(rule(s, key, DN_KEY_FLOAT)), out);
}

int dn_key_float_or(struct dn_section *s, const char *key, double def, double *out)
{
	const struct dn_key_rule *r = rule(s, key, DN_KEY_FLOAT);

	assert(!r->def);
	return dn_section_float(s, r->key, def, out);
}

const char *dn_key_text(struct dn_section *s, const char *key)
{
	return dn_section_text(s, key, rule(s, key, DN_KEY_TEXT)->def);
}

int dn_key_ints(struct dn_section *s, const char *key, int64_t **out, int *n)
{
	return dn_section_ints(s, rule(s, key, DN_KEY_INTS)->key, out, n);
}

int dn_key_floats(struct dn_section *s, const char *key, double **out, int *n)
{
	return dn_section_floats(s, rule(s, key, DN_KEY_FLOATS)->key, out, n);
}

static int check_only(struct dn_section *s, const struct dn_key_rule *r)
{
	const char *text = dn_section_text(s, r->key, r->def);
	double only, v;
	int err;

	if (dn_parse_float(r->def, &only) != DN_NUM_WHOLE)
		return strcmp(text, r->def)
			       ? dn_section_fail(s, r->key, -ENOTSUP, "%s=%s is not supported in this version, only %s", r->key,
						 text, r->def)
			       : 0;
	err = dn_section_float(s, r->key, only, &v);
	if (!err && (v < only || v > only))
		err = dn_section_fail(s, r->key, -ENOTSUP, "%s=%g is not supported in this version, only %g", r->key, v, only);
	return err;
}

int dn_keys_only(struct dn_section *s)
{
	for (int i = 0; i < MAX_TABLES; i++)
		for (const struct dn_key_rule *r = s->rules[i]; r && r->key; r++) {
			int err = r->kind == DN_KEY_ONLY ? check_only(s, r) : 0;

			if (err)
				return err;
		}
	return 0;
}

int dn_key_no_effect(struct dn_section *s, const char *key, bool warn)
{
	const double def = float_default(rule(s, key, DN_KEY_FLOAT));
	double v = 0;
	int err = dn_section_float(s, key, def, &v);

	if (!err && warn && (v < def || v > def))
		dn_warn("%s:%d: [%s] %s=%g has no effect", s->file->path, dn_section_find(s, key)->line, s->name, key, v);
	return err;
}
