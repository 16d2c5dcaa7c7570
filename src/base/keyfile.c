/* The line grammar of .cfg and .data files, and typed reading of their values. */
#include "base/keyfile.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

/* Bounds that no real file meets; they keep the time and memory for a hostile one small. */
enum {
	MAX_BYTES = 64 << 20,
	MAX_LINES = 1000000, /* that are not blank or comment */
	MAX_SECTIONS = 65536,
	MAX_KEYS = 512,	  /* in a section */
	MAX_LIST = 65536, /* elements of a list */
};

/* Cuts of what messages quote, so that the reason at the end of a message is not lost. */
#define PATH_F "%.500s"
#define WORD_F "%.80s"

/* What Darknet accepts in silence: a warning, or an error when @f is strict. */
static int DN_PRINTF(2, 3) tolerate(const struct dn_keyfile *f, const char *fmt, ...)
{
	char text[1200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (f->strict)
		return dn_fail(-EINVAL, "%s", text);
	if (!f->quiet)
		dn_warn("%s", text);
	return 0;
}

static int add_section(struct dn_keyfile *f, char *name, int line)
{
	struct dn_section *sections;

	if (f->n_sections == MAX_SECTIONS)
		return dn_fail(-E2BIG, PATH_F ":%d: more than %d sections", f->path, line, MAX_SECTIONS);
	sections = dn_grow(f->sections, f->n_sections, sizeof(*sections));
	if (!sections)
		return -ENOMEM;
	f->sections = sections;
	f->sections[f->n_sections++] = (struct dn_section){ .file = f, .name = name, .line = line };
	return 0;
}

/* @text: "[name]", stripped */
static int parse_section(struct dn_keyfile *f, char *text, int line)
{
	char *close = strchr(text, ']');

	if (!close)
		return dn_fail(-EINVAL, PATH_F ":%d: " WORD_F ": a section without its closing ]", f->path, line, text);
	if (close[1])
		return dn_fail(-EINVAL, PATH_F ":%d: " WORD_F ": text after the ] of a section", f->path, line, text);
	if (close == text + 1)
		return dn_fail(-EINVAL, PATH_F ":%d: []: a section without a name", f->path, line);
	*close = '\0';
	return add_section(f, text + 1, line);
}

/* @text: "key=value", stripped */
static int parse_key(struct dn_keyfile *f, struct dn_section *s, char *text, int line)
{
	char *equals = strchr(text, '=');
	struct dn_key *first, *keys;

	if (!equals)
		return tolerate(f, PATH_F ":%d: " WORD_F ": not a key=value line, ignored", f->path, line, text);
	*equals = '\0';
	if (equals == text)
		return tolerate(f, PATH_F ":%d: =" WORD_F ": a value without a key, ignored", f->path, line, equals + 1);
	if (!equals[1])
		return tolerate(f, PATH_F ":%d: " WORD_F "=: a key without a value, ignored", f->path, line, text);
	first = dn_section_find(s, text);
	if (first)
		return tolerate(f, PATH_F ":%d: " WORD_F "=" WORD_F ": the key is in line %d already, ignored", f->path, line,
				text, equals + 1, first->line);
	if (s->n_keys == MAX_KEYS)
		return dn_fail(-E2BIG, PATH_F ":%d: more than %d keys in a section", f->path, line, MAX_KEYS);
	keys = dn_grow(s->keys, s->n_keys, sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	s->keys = keys;
	s->keys[s->n_keys++] = (struct dn_key){ .key = text, .value = equals + 1, .line = line };
	return 0;
}

/* Copies a line of @n bytes to @to without blanks and comment, terminated; its new length. */
static size_t strip(const char *line, size_t n, char *to)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		char c = line[i];

		if (c == '#' || c == ';')
			break;
		if (c != ' ' && c != '\t' && c != '\r')
			to[k++] = c;
	}
	to[k] = '\0';
	return k;
}

static int refuse_other_kinds(const char *text, size_t n, const char *path)
{
	static const struct {
		const char *start;
		const char *what;
	} kinds[] = {
		{ "<!doctype", "an HTML page: a download that went wrong?" },
		{ "<html", "an HTML page: a download that went wrong?" },
		{ "<?xml", "an XML document" },
		{ "version https://git-lfs", "a git-lfs pointer: the file itself was not fetched" },
	};
	const char *nul = memchr(text, '\0', n);
	int line = 1;

	while (n && (*text == ' ' || *text == '\t' || *text == '\r' || *text == '\n')) {
		line += *text == '\n';
		text++;
		n--;
	}
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t k = strlen(kinds[i].start);

		if (n >= k && !strncasecmp(text, kinds[i].start, k))
			return dn_fail(-EINVAL, PATH_F ":%d: is %s", path, line, kinds[i].what);
	}
	if (nul) {
		for (; text < nul; text++)
			line += *text == '\n';
		return dn_fail(-EINVAL, PATH_F ":%d: has a NUL byte, so it is not a text file", path, line);
	}
	return 0;
}

static int parse_line(struct dn_keyfile *f, char *text, bool sections, int line)
{
	if (*text == '[') {
		if (!sections)
			return dn_fail(-EINVAL, PATH_F ":%d: " WORD_F ": a section, in a file that has none; is it a cfg?",
				       f->path, line, text);
		return parse_section(f, text, line);
	}
	if (!f->n_sections)
		return dn_fail(-EINVAL, PATH_F ":%d: " WORD_F ": before the first section", f->path, line, text);
	return parse_key(f, &f->sections[f->n_sections - 1], text, line);
}

static int parse_text(struct dn_keyfile *f, bool sections)
{
	const char *at = f->text;
	const char *end = f->text + f->text_bytes;
	char *to = f->stripped;
	int n_lines = 0;
	int err;

	if (f->text_bytes >= 3 && !memcmp(at, "\xef\xbb\xbf", 3))
		at += 3;
	err = refuse_other_kinds(at, (size_t)(end - at), f->path);
	if (!err && !sections)
		err = add_section(f, to + f->text_bytes, 1); /* the name is the terminator: "" */
	for (int line = 1; !err && at < end; line++) {
		const char *lf = memchr(at, '\n', (size_t)(end - at));
		size_t n = (size_t)((lf ? lf : end) - at);
		size_t k = strip(at, n, to);

		if (k) {
			if (n_lines++ == MAX_LINES)
				return dn_fail(-E2BIG, PATH_F ":%d: more than %d lines", f->path, line, MAX_LINES);
			err = parse_line(f, to, sections, line);
			to += k + 1; /* no longer than line and LF, or the file's terminator */
		}
		at = lf ? lf + 1 : end;
	}
	return err;
}

/* Takes @text, also on failure. */
static int keyfile_build(struct dn_keyfile **out, char *text, size_t n, const char *path, bool sections, bool strict, bool quiet)
{
	struct dn_keyfile *f = dn_zalloc(sizeof(*f));
	int err = -ENOMEM;

	if (!f) {
		dn_free(text);
		return err;
	}
	f->text = text;
	f->text_bytes = n;
	f->strict = strict;
	f->quiet = quiet;
	f->path = dn_strdup(path);
	f->stripped = dn_zalloc(n + 1);
	if (!f->path || !f->stripped)
		goto err_destroy;
	err = parse_text(f, sections);
	if (err)
		goto err_destroy;
	*out = f;
	return 0;

err_destroy:
	dn_keyfile_destroy(f);
	return err;
}

int dn_keyfile_read(struct dn_keyfile **out, const char *path, bool sections, bool strict)
{
	char *text = NULL;
	size_t n = 0;
	int err = dn_file_read(path, MAX_BYTES, &text, &n);

	if (err)
		return err;
	return keyfile_build(out, text, n, path, sections, strict, false);
}

static int parse_copy(struct dn_keyfile **out, const char *text, size_t n, const char *path, bool sections, bool strict,
		      bool quiet)
{
	char *copy;

	if (n > MAX_BYTES)
		return dn_fail(-EFBIG, PATH_F ": has %zu bytes, at most %d are read", path, n, MAX_BYTES);
	copy = dn_alloc(n + 1);
	if (!copy)
		return -ENOMEM;
	if (n)
		memcpy(copy, text, n);
	copy[n] = '\0';
	return keyfile_build(out, copy, n, path, sections, strict, quiet);
}

int dn_keyfile_parse(struct dn_keyfile **out, const char *text, size_t n, const char *path, bool sections, bool strict)
{
	return parse_copy(out, text, n, path, sections, strict, false);
}

int dn_keyfile_parse_quiet(struct dn_keyfile **out, const char *text, size_t n, const char *path, bool sections)
{
	return parse_copy(out, text, n, path, sections, false, true);
}

void dn_keyfile_destroy(struct dn_keyfile *f)
{
	if (!f)
		return;
	for (int i = 0; i < f->n_sections; i++)
		dn_free(f->sections[i].keys);
	dn_free(f->sections);
	dn_free(f->stripped);
	dn_free(f->text);
	dn_free(f->path);
	dn_free(f);
}

struct dn_key *dn_section_find(struct dn_section *s, const char *key)
{
	for (int i = 0; i < s->n_keys; i++)
		if (!strcmp(s->keys[i].key, key))
			return &s->keys[i];
	return NULL;
}

static struct dn_key *use(struct dn_section *s, const char *key)
{
	struct dn_key *k = dn_section_find(s, key);

	if (k)
		k->used = k->asked = true;
	return k;
}

/* "path:12: [name] ", without the brackets for a file that has no sections */
static void place(const struct dn_section *s, int line, char *out, size_t cap)
{
	bool named = s->name[0] != '\0';

	snprintf(out, cap, PATH_F ":%d: %s" WORD_F "%s", s->file->path, line, named ? "[" : "", s->name, named ? "] " : "");
}

static int key_fail(const struct dn_section *s, const struct dn_key *k, const char *why)
{
	char at[700];

	place(s, k->line, at, sizeof(at));
	return dn_fail(-EINVAL, "%s" WORD_F "=" WORD_F ": %s", at, k->key, k->value, why);
}

static int key_tolerate(const struct dn_section *s, const struct dn_key *k, const char *why)
{
	char at[700];

	place(s, k->line, at, sizeof(at));
	return tolerate(s->file, "%s" WORD_F "=" WORD_F ": %s", at, k->key, k->value, why);
}

/* What a kind of number means for a key that needs one; 0 lets the value through. */
static int key_number(const struct dn_section *s, const struct dn_key *k, enum dn_number kind, bool whole)
{
	switch (kind) {
	case DN_NUM_WHOLE:
		return 0;
	case DN_NUM_PREFIX:
		return key_tolerate(s, k,
				    whole ? "more than a whole number; the rest is ignored"
					  : "more than a number; the rest is ignored");
	case DN_NUM_NONE:
		return key_fail(s, k, whole ? "not a whole number" : "not a number");
	case DN_NUM_RANGE:
		return key_fail(s, k, whole ? "does not fit 64 bits" : "not a finite number");
	}
	assert(0);
	return -EINVAL;
}

int dn_section_int(struct dn_section *s, const char *key, int64_t def, int64_t min, int64_t max, int64_t *out)
{
	struct dn_key *k = use(s, key);
	int64_t x = 0;
	int err;

	if (!k) {
		*out = def;
		return 0;
	}
	err = key_number(s, k, dn_parse_int(k->value, &x), true);
	if (err)
		return err;
	if (x < min || x > max) {
		char why[100];

		if (max == INT64_MAX)
			snprintf(why, sizeof(why), "must be at least %lld", (long long)min);
		else if (min == INT64_MIN)
			snprintf(why, sizeof(why), "must be at most %lld", (long long)max);
		else
			snprintf(why, sizeof(why), "must be from %lld to %lld", (long long)min, (long long)max);
		return key_fail(s, k, why);
	}
	*out = x;
	return 0;
}

int dn_section_float(struct dn_section *s, const char *key, double def, double *out)
{
	struct dn_key *k = use(s, key);
	double x = 0;
	int err;

	if (!k) {
		*out = def;
		return 0;
	}
	err = key_number(s, k, dn_parse_float(k->value, &x), false);
	if (!err)
		*out = x;
	return err;
}

const char *dn_section_text(struct dn_section *s, const char *key, const char *def)
{
	struct dn_key *k = use(s, key);

	return k ? k->value : def;
}

/* Ends the elements of a copy of the value of @k, so that each can be parsed on its own. */
static int split_list(const struct dn_section *s, const struct dn_key *k, char **out, int *n)
{
	char *copy;
	int count = 1;

	for (const char *c = k->value; *c; c++)
		if (*c == ',' && ++count > MAX_LIST) {
			char why[60];

			snprintf(why, sizeof(why), "more than %d elements", MAX_LIST);
			return key_fail(s, k, why);
		}
	copy = dn_strdup(k->value);
	if (!copy)
		return -ENOMEM;
	for (char *c = copy; *c; c++)
		if (*c == ',')
			*c = '\0';
	*out = copy;
	*n = count;
	return 0;
}

/* Lists of both types: @parse puts element i. */
static int read_list(struct dn_section *s, const char *key, size_t size, bool whole,
		     enum dn_number (*parse)(const char *text, void *array, int i), void **out, int *n)
{
	struct dn_key *k = use(s, key);
	void *array = NULL;
	char *texts = NULL;
	char *at;
	int count = 0;
	int err;

	if (!k) {
		*out = NULL;
		*n = 0;
		return 0;
	}
	err = split_list(s, k, &texts, &count);
	if (err)
		return err;
	array = dn_calloc((size_t)count, size);
	if (!array) {
		err = -ENOMEM;
		goto out;
	}
	at = texts;
	for (int i = 0; i < count; i++) {
		err = *at ? key_number(s, k, parse(at, array, i), whole) : key_fail(s, k, "the list has an empty element");
		if (err)
			goto out;
		at += strlen(at) + 1;
	}
	*out = array;
	*n = count;
	array = NULL;
out:
	dn_free(array);
	dn_free(texts);
	return err;
}

static enum dn_number put_int(const char *text, void *array, int i)
{
	return dn_parse_int(text, (int64_t *)array + i);
}

static enum dn_number put_float(const char *text, void *array, int i)
{
	return dn_parse_float(text, (double *)array + i);
}

int dn_section_ints(struct dn_section *s, const char *key, int64_t **out, int *n)
{
	void *array = NULL;
	int err = read_list(s, key, sizeof(**out), true, put_int, &array, n);

	if (!err)
		*out = array;
	return err;
}

int dn_section_floats(struct dn_section *s, const char *key, double **out, int *n)
{
	void *array = NULL;
	int err = read_list(s, key, sizeof(**out), false, put_float, &array, n);

	if (!err)
		*out = array;
	return err;
}

int dn_section_fail(const struct dn_section *s, const char *key, int err, const char *fmt, ...)
{
	char at[700];
	char text[1300];
	int line = s->line;
	va_list ap;

	for (int i = 0; key && i < s->n_keys; i++)
		if (!strcmp(s->keys[i].key, key))
			line = s->keys[i].line;
	place(s, line, at, sizeof(at));
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return dn_fail(err, "%s%s", at, text);
}

int dn_keyfile_unused(struct dn_keyfile *f)
{
	for (int i = 0; i < f->n_sections; i++) {
		const struct dn_section *s = &f->sections[i];

		for (int j = 0; j < s->n_keys; j++) {
			int err;

			if (s->keys[j].used)
				continue;
			err = key_tolerate(s, &s->keys[j], "unknown key, ignored");
			if (err)
				return err;
		}
	}
	return 0;
}
