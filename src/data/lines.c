/* Text files with an entry a line: lists of images, labels, names. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/array_priv.h"
#include "data/lines.h"

#define MAX_BYTES ((size_t)1 << 30)

static bool blank(const char *s)
{
	return !s[strspn(s, " \t")];
}

/* One more line, from @s to @end, where a line feed or the text's terminator stands. */
static void add(struct dn_lines *l, char *s, char *end, int32_t number, bool keep_blank)
{
	if (end > s && end[-1] == '\r')
		end--;
	*end = '\0';
	if (!keep_blank && blank(s))
		return;
	l->number[l->n] = number;
	l->line[l->n++] = s;
}

int dn_lines_read(struct dn_lines *out, const char *path, const char *what, bool keep_blank)
{
	struct dn_lines l = { 0 };
	size_t n = 0, lines = 1;
	int32_t number = 0; /* MAX_BYTES lines at most */
	char *s, *end;
	int err = dn_file_read(path, MAX_BYTES, &l.text, &n);

	if (err)
		return err;
	err = data_check_text(path, what, (unsigned char *)l.text, n);
	if (err)
		goto err_fini;
	s = l.text;
	end = s + n;
	if (n >= 3 && !memcmp(s, "\xef\xbb\xbf", 3))
		s += 3;
	for (const char *p = s; p < end; p++)
		lines += *p == '\n';
	l.line = dn_calloc(lines, sizeof(*l.line));
	l.number = dn_calloc(lines, sizeof(*l.number));
	if (!l.line || !l.number) {
		err = -ENOMEM;
		goto err_fini;
	}
	while (s < end) {
		char *feed = memchr(s, '\n', (size_t)(end - s));

		if (!feed)
			feed = end;
		add(&l, s, feed, ++number, keep_blank);
		s = feed + 1;
	}
	while (l.n && blank(l.line[l.n - 1]))
		l.n--; /* empty lines at the end are no entries */
	if (!l.n) {
		err = dn_fail(-EINVAL, DATA_PATH ": %s without a line", path, what);
		goto err_fini;
	}
	*out = l;
	return 0;

err_fini:
	dn_lines_fini(&l);
	return err;
}

/* An editor, or a paste from a table, leaves blanks that nobody sees. */
static void trim(char *s)
{
	size_t n = strlen(s), keep = n;

	while (keep && (s[keep - 1] == ' ' || s[keep - 1] == '\t'))
		keep--;
	if (keep < n && access(s, F_OK))
		s[keep] = '\0';
}

int dn_lines_read_paths(struct dn_lines *out, const char *path, const char *what)
{
	int err = dn_lines_read(out, path, what, false);

	for (int64_t i = 0; i < out->n && !err; i++)
		trim(out->line[i]);
	return err;
}

void dn_lines_fini(struct dn_lines *l)
{
	dn_free(l->number);
	dn_free(l->line);
	dn_free(l->text);
	*l = (struct dn_lines){ 0 };
}
