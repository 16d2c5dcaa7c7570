/* Strict numbers, a growing buffer, and small operations on texts. */
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

#include "base/mem.h"

/* No <ctype.h>: its answers depend on the locale, and a plain char must not be its argument. */
static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static const char *skip_blanks(const char *s)
{
	while (is_blank(*s))
		s++;
	return s;
}

/* Digits and a sign; the rest of the text in *end. */
static enum dn_number scan_int(const char *s, int64_t *out, const char **end)
{
	bool negative = *s == '-';
	bool fits = true;
	int64_t x = 0;

	if (*s == '-' || *s == '+')
		s++;
	if (!is_digit(*s))
		return DN_NUM_NONE;
	for (; is_digit(*s); s++) {
		int digit = *s - '0';

		if (__builtin_mul_overflow(x, (int64_t)10, &x) ||
		    __builtin_add_overflow(x, (int64_t)(negative ? -digit : digit), &x)) {
			fits = false;
			x = 0;
		}
	}
	*end = s;
	if (!fits)
		return DN_NUM_RANGE;
	*out = x;
	return DN_NUM_WHOLE;
}

enum dn_number dn_parse_int(const char *s, int64_t *out)
{
	const char *end;
	enum dn_number kind;

	kind = scan_int(skip_blanks(s), out, &end);
	if (kind == DN_NUM_WHOLE && *skip_blanks(end))
		return DN_NUM_PREFIX;
	return kind;
}

static bool is_inf_or_nan(const char *s)
{
	static const char *const words[] = { "infinity", "inf", "nan" };

	if (*s == '-' || *s == '+')
		s++;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t n = strlen(words[i]);

		if (!strncasecmp(s, words[i], n) && !is_word(s[n]))
			return true;
	}
	return false;
}

/* The end of a decimal number, NULL when no digits are there. strtod() knows more forms than this. */
static const char *float_end(const char *s)
{
	const char *exponent;
	bool digits = false;

	if (*s == '-' || *s == '+')
		s++;
	for (; is_digit(*s); s++)
		digits = true;
	if (*s == '.')
		for (s++; is_digit(*s); s++)
			digits = true;
	if (!digits)
		return NULL;
	if (*s == 'e' || *s == 'E') {
		exponent = s + 1;
		if (*exponent == '-' || *exponent == '+')
			exponent++;
		if (is_digit(*exponent)) {
			while (is_digit(*exponent))
				exponent++;
			s = exponent;
		}
	}
	return s;
}

enum dn_number dn_parse_float(const char *s, double *out)
{
	const char *end;
	char *stop;
	double x;

	s = skip_blanks(s);
	if (is_inf_or_nan(s))
		return DN_NUM_RANGE;
	end = float_end(s);
	if (!end)
		return DN_NUM_NONE;
	x = strtod(s, &stop);
	if (stop > end)
		x = 0; /* "0x10": ours ends after the 0 */
	if (!isfinite(x))
		return DN_NUM_RANGE;
	*out = x;
	return *skip_blanks(end) ? DN_NUM_PREFIX : DN_NUM_WHOLE;
}

enum dn_number dn_parse_bytes(const char *s, int64_t *out)
{
	const char *end;
	enum dn_number kind;
	int64_t x;
	int64_t unit = 1;

	kind = scan_int(skip_blanks(s), &x, &end);
	if (kind != DN_NUM_WHOLE)
		return kind;
	if (*end == 'k' || *end == 'K')
		unit = (int64_t)1 << 10;
	else if (*end == 'm' || *end == 'M')
		unit = (int64_t)1 << 20;
	else if (*end == 'g' || *end == 'G')
		unit = (int64_t)1 << 30;
	if (unit > 1)
		end++;
	if (*skip_blanks(end))
		return DN_NUM_PREFIX;
	if (x < 0 || __builtin_mul_overflow(x, unit, &x))
		return DN_NUM_RANGE;
	*out = x;
	return DN_NUM_WHOLE;
}

/* Room for @n more bytes and the terminator. */
static int buf_grow(struct dn_buf *b, size_t n)
{
	size_t need, cap;
	char *s;

	if (__builtin_add_overflow(b->n, n, &need) || need > SIZE_MAX / 2 - 1)
		return dn_fail(-EOVERFLOW, "text of %zu bytes cannot grow by %zu", b->n, n);
	need++;
	if (need <= b->cap)
		return 0;
	cap = b->cap ? b->cap : 64;
	while (cap < need)
		cap *= 2;
	s = dn_realloc(b->s, cap);
	if (!s)
		return -ENOMEM;
	b->s = s;
	b->cap = cap;
	return 0;
}

int dn_buf_add(struct dn_buf *b, const char *s, size_t n)
{
	int err = buf_grow(b, n);

	if (err)
		return err;
	if (n)
		memcpy(b->s + b->n, s, n);
	b->n += n;
	b->s[b->n] = '\0';
	return 0;
}

int dn_buf_printf(struct dn_buf *b, const char *fmt, ...)
{
	va_list ap;
	int err, n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return dn_fail(-EINVAL, "cannot format a text: %s", fmt);
	err = buf_grow(b, (size_t)n);
	if (err)
		return err;
	va_start(ap, fmt);
	vsnprintf(b->s + b->n, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->n += (size_t)n;
	return 0;
}

void dn_buf_fini(struct dn_buf *b)
{
	dn_free(b->s);
	*b = (struct dn_buf){ 0 };
}

int dn_word_index(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (int i = 0; n && *list; i++) {
		size_t k = strcspn(list, ",");

		if (k == n && !strncmp(list, word, n))
			return i;
		list += k + strspn(list + k, ", ");
	}
	return -1;
}

bool dn_starts(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

bool dn_ends(const char *s, const char *suffix)
{
	size_t n = strlen(s);
	size_t k = strlen(suffix);

	return n >= k && !memcmp(s + n - k, suffix, k);
}

void dn_base_name(const char *path, char *out, size_t cap)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	size_t n = strcspn(name, ".");

	if (!cap)
		return;
	if (!n) {
		name = "net";
		n = 3;
	}
	if (n > cap - 1)
		n = cap - 1;
	memcpy(out, name, n);
	out[n] = '\0';
}

uint64_t dn_hash(const void *p, size_t n)
{
	return XXH64(p, n, 0);
}

void dn_human_bytes(double bytes, char *out, size_t cap)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	int i = 0;

	/* 1023.995 and up would print as "1024.00" */
	while (i < 5 && fabs(bytes) >= (i ? 1023.995 : 1024)) {
		bytes /= 1024;
		i++;
	}
	if (i)
		snprintf(out, cap, "%.2f %s", bytes, units[i]);
	else
		snprintf(out, cap, "%.0f B", bytes);
}

char *dn_rank_path(const char *path, int rank, bool *mine)
{
	const char *at = strstr(path, "%r");
	struct dn_buf b = { 0 };
	int err = 0;

	*mine = at || rank == 0;
	for (; at && !err; at = strstr(path, "%r")) {
		err = dn_buf_printf(&b, "%.*s%d", (int)(at - path), path, rank);
		path = at + 2;
	}
	if (!err)
		err = dn_buf_add(&b, path, strlen(path));
	if (!err)
		return b.s;
	dn_buf_fini(&b);
	return NULL;
}
