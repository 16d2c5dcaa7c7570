/* Writing JSON: texts and numbers in the forms that our outputs use. */
#include "io/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Length of the UTF-8 sequence at @s, 0 when it is none (overlong and surrogate forms included). */
static int utf8_length(const unsigned char *s)
{
	int n = s[0] < 0x80		      ? 1
		: s[0] >= 0xc2 && s[0] < 0xe0 ? 2
		: s[0] >= 0xe0 && s[0] < 0xf0 ? 3
		: s[0] >= 0xf0 && s[0] < 0xf5 ? 4
					      : 0;

	for (int i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
	    (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

static int add_char(struct dn_buf *b, const unsigned char *s, int n)
{
	switch (*s) {
	case '"':
		return dn_buf_add(b, "\\\"", 2);
	case '\\':
		return dn_buf_add(b, "\\\\", 2);
	case '\n':
		return dn_buf_add(b, "\\n", 2);
	case '\t':
		return dn_buf_add(b, "\\t", 2);
	default:
		if (n == 0)
			return dn_buf_add(b, "\xef\xbf\xbd", 3);
		return *s < 0x20 ? dn_buf_printf(b, "\\u%04x", *s) : dn_buf_add(b, (const char *)s, (size_t)n);
	}
}

int dn_json_text(struct dn_buf *b, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	int err;

	err = dn_buf_add(b, "\"", 1);
	while (*s && !err) {
		int n = utf8_length(s);

		err = add_char(b, s, n);
		s += n ? n : 1;
	}
	return err ? err : dn_buf_add(b, "\"", 1);
}

int dn_json_u64(struct dn_buf *b, uint64_t x)
{
	return dn_buf_printf(b, x < (1ull << 53) ? "%" PRIu64 : "\"%" PRIu64 "\"", x);
}

int dn_json_number(struct dn_buf *b, double x)
{
	char text[40];

	if (!isfinite(x))
		return dn_buf_add(b, "null", 4);
	snprintf(text, sizeof(text), "%.9g", x);
	if (strtod(text, NULL) != x)
		snprintf(text, sizeof(text), "%.17g", x);
	return dn_buf_add(b, text, strlen(text));
}
