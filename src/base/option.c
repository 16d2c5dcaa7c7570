/* Values of tables of options: checked texts, and where each came from. */
#include "base/option.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

struct entry {
	const struct dn_option *opt;
	char *value; /* NULL = not given */
	char *where;
};

struct dn_options {
	int n_entries;
	struct entry *entries;
};

static struct entry *entry_find(const struct dn_options *o, const char *key)
{
	for (int i = 0; i < o->n_entries; i++)
		if (!strcmp(o->entries[i].opt->key, key))
			return &o->entries[i];
	return NULL;
}

/* For our own calls: a key that no table has is a bug. */
static struct entry *entry_get(const struct dn_options *o, const char *key)
{
	struct entry *e = entry_find(o, key);

	assert(e);
	return e;
}

int dn_options_create(struct dn_options **out)
{
	struct dn_options *o = dn_zalloc(sizeof(*o));

	if (!o)
		return -ENOMEM;
	*out = o;
	return 0;
}

void dn_options_destroy(struct dn_options *o)
{
	if (!o)
		return;
	for (int i = 0; i < o->n_entries; i++) {
		dn_free(o->entries[i].value);
		dn_free(o->entries[i].where);
	}
	dn_free(o->entries);
	dn_free(o);
}

int dn_options_add(struct dn_options *o, const struct dn_option *table)
{
	struct entry *entries;
	int n = 0;

	for (const struct dn_option *t = table; t->key; t++, n++) {
		bool twice = entry_find(o, t->key) != NULL;

		for (const struct dn_option *u = table; u < t; u++)
			twice = twice || !strcmp(u->key, t->key);
		if (twice)
			return dn_fail(-EEXIST, "option %s is there twice", t->key);
	}
	entries = dn_realloc(o->entries, (size_t)(o->n_entries + n) * sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	o->entries = entries;
	for (int i = 0; i < n; i++)
		entries[o->n_entries++] = (struct entry){ .opt = &table[i] };
	return 0;
}

const struct dn_option *dn_options_find(const struct dn_options *o, const char *key)
{
	struct entry *e = entry_find(o, key);

	return e ? e->opt : NULL;
}

static bool is_choice(const char *choices, const char *value)
{
	size_t n = strlen(value);

	for (const char *c = choices;;) {
		size_t k = strcspn(c, "|");

		if (k == n && !memcmp(c, value, n))
			return true;
		if (!c[k])
			return false;
		c += k + 1;
	}
}

/* "cfg/a.cfg:12: limit=x: WHY", or "-limit x: WHY" when the place is a flag */
static int bad_value(const struct dn_option *opt, const char *value, const char *where, const char *why)
{
	if (where[0] == '-')
		return dn_fail(-EINVAL, "%.200s %.200s: %s", where, value, why);
	return dn_fail(-EINVAL, "%.1000s: %s=%.200s: %s", where, opt->key, value, why);
}

static int check_bounds(const struct dn_option *opt, double x, const char *value, const char *where)
{
	struct dn_buf why = { 0 };
	int err;

	if (opt->min == 0 && opt->max == 0)
		return 0;
	if (x >= opt->min && x <= opt->max)
		return 0;
	if (opt->max >= 0x1p62)
		err = dn_buf_printf(&why, "must be at least %.15g", opt->min);
	else if (opt->min <= -0x1p62)
		err = dn_buf_printf(&why, "must be at most %.15g", opt->max);
	else
		err = dn_buf_printf(&why, "must be from %.15g to %.15g", opt->min, opt->max);
	if (!err)
		err = bad_value(opt, value, where, why.s);
	dn_buf_fini(&why);
	return err;
}

static int check_choice(const struct dn_option *opt, const char *value, const char *where)
{
	struct dn_buf why = { 0 };
	int err;

	if (is_choice(opt->choices, value))
		return 0;
	err = dn_buf_printf(&why, "must be one of %s", opt->choices);
	if (!err)
		err = bad_value(opt, value, where, why.s);
	dn_buf_fini(&why);
	return err;
}

static int check_value(const struct dn_option *opt, const char *value, const char *where)
{
	enum dn_number kind;
	int64_t i = 0;
	double x = 0;

	switch (opt->type) {
	case DN_OPT_SWITCH:
		if (strcmp(value, "0") && strcmp(value, "1"))
			return bad_value(opt, value, where, "must be 0 or 1");
		return 0;
	case DN_OPT_INT:
		kind = dn_parse_int(value, &i);
		if (kind == DN_NUM_RANGE)
			return bad_value(opt, value, where, "does not fit 64 bits");
		if (kind != DN_NUM_WHOLE)
			return bad_value(opt, value, where, "not a whole number");
		return check_bounds(opt, (double)i, value, where);
	case DN_OPT_FLOAT:
		kind = dn_parse_float(value, &x);
		if (kind == DN_NUM_RANGE)
			return bad_value(opt, value, where, "not a finite number");
		if (kind != DN_NUM_WHOLE)
			return bad_value(opt, value, where, "not a number");
		return check_bounds(opt, x, value, where);
	case DN_OPT_BYTES:
		kind = dn_parse_bytes(value, &i);
		if (kind == DN_NUM_RANGE)
			return bad_value(opt, value, where, "must be from 0 to 2^63 - 1 bytes");
		if (kind != DN_NUM_WHOLE)
			return bad_value(opt, value, where, "not a number of bytes: wanted digits, then K, M, G or nothing");
		return check_bounds(opt, (double)i, value, where);
	case DN_OPT_CHOICE:
		return check_choice(opt, value, where);
	case DN_OPT_STRING:
		return 0;
	}
	assert(0);
	return -EINVAL;
}

static int unknown_key(const struct dn_options *o, const char *key, const char *where)
{
	struct dn_buf known = { 0 };
	int err = dn_buf_add(&known, "", 0);

	for (int i = 0; i < o->n_entries && !err; i++)
		err = dn_buf_printf(&known, "%s%s", i ? ", " : "", o->entries[i].opt->key);
	if (!err)
		err = dn_fail(-ENOENT, "%.500s: unknown key %.200s; known: %s", where, key, known.n ? known.s : "none");
	dn_buf_fini(&known);
	return err;
}

int dn_options_set(struct dn_options *o, const char *key, const char *value, const char *where)
{
	struct entry *e = entry_find(o, key);
	char *value_copy, *where_copy;
	int err;

	if (!e)
		return unknown_key(o, key, where);
	if (!value && e->opt->type == DN_OPT_SWITCH)
		value = "1";
	if (!value)
		return bad_value(e->opt, "", where, "a value is missing");
	err = check_value(e->opt, value, where);
	if (!err && e->opt->check)
		err = e->opt->check(value, where);
	if (err)
		return err;
	value_copy = dn_strdup(value);
	where_copy = dn_strdup(where);
	if (!value_copy || !where_copy) {
		dn_free(value_copy);
		dn_free(where_copy);
		return -ENOMEM;
	}
	dn_free(e->value);
	dn_free(e->where);
	e->value = value_copy;
	e->where = where_copy;
	return 0;
}

bool dn_options_given(const struct dn_options *o, const char *key)
{
	return entry_get(o, key)->value != NULL;
}

const char *dn_options_where(const struct dn_options *o, const char *key)
{
	return entry_get(o, key)->where;
}

static const char *entry_text(const struct entry *e)
{
	if (e->value)
		return e->value;
	if (!e->opt->def && e->opt->type == DN_OPT_SWITCH)
		return "0";
	return e->opt->def;
}

const char *dn_options_text(const struct dn_options *o, const char *key)
{
	return entry_text(entry_get(o, key));
}

int64_t dn_options_int(const struct dn_options *o, const char *key)
{
	struct entry *e = entry_get(o, key);
	const char *text = entry_text(e);
	enum dn_number kind;
	int64_t x = 0;

	assert(e->opt->type == DN_OPT_INT || e->opt->type == DN_OPT_BYTES);
	if (!text)
		return 0;
	kind = e->opt->type == DN_OPT_INT ? dn_parse_int(text, &x) : dn_parse_bytes(text, &x);
	assert(kind == DN_NUM_WHOLE); /* given values are checked, so this is about our default */
	(void)kind;
	return x;
}

double dn_options_float(const struct dn_options *o, const char *key)
{
	struct entry *e = entry_get(o, key);
	const char *text = entry_text(e);
	enum dn_number kind;
	double x = 0;

	assert(e->opt->type == DN_OPT_FLOAT);
	if (!text)
		return 0;
	kind = dn_parse_float(text, &x);
	assert(kind == DN_NUM_WHOLE);
	(void)kind;
	return x;
}

bool dn_options_on(const struct dn_options *o, const char *key)
{
	struct entry *e = entry_get(o, key);

	assert(e->opt->type == DN_OPT_SWITCH);
	return !strcmp(entry_text(e), "1");
}

int dn_options_each(const struct dn_options *o, int (*fn)(void *arg, const struct dn_option *opt, const char *value), void *arg)
{
	for (int i = 0; i < o->n_entries; i++) {
		const char *text = entry_text(&o->entries[i]);
		int err = fn(arg, o->entries[i].opt, text ? text : "");

		if (err)
			return err;
	}
	return 0;
}
