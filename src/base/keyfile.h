/* The line grammar that .cfg and .data files share: sections of key=value lines, each with its line.
 *
 * Blanks, tabs, CR and a UTF-8 BOM are dropped (every blank of a line, also inside values, as Darknet
 * does); a line that starts with # or ; is a comment, and so is what follows a # or ; inside a line.
 * A section is "[name]" and nothing else. The first of two equal keys wins. Faults of the grammar
 * are errors with file:line (what is only tolerated is a warning, an error with strict).
 */
#ifndef DN_BASE_KEYFILE_H
#define DN_BASE_KEYFILE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_keyfile;
struct dn_key_rule;

struct dn_key {
	char *key;
	char *value;
	int line;
	bool used;  /* known: a getter asked for it, or a table of the section has it */
	bool asked; /* a getter asked for it */
};

struct dn_section {
	const struct dn_keyfile *file;
	char *name; /* without brackets; "" for the keys of a .data file */
	int line;
	int n_keys;
	struct dn_key *keys;
	const struct dn_key_rule *rules[2]; /* base/keyrule.h; NULL: none */
};

struct dn_keyfile {
	char *path;
	char *text; /* as read, terminated */
	size_t text_bytes;
	char *stripped; /* the lines without blanks and comments: what names, keys and values point into */
	bool strict;
	bool quiet; /* what is only tolerated passes without a word */
	int n_sections;
	struct dn_section *sections;
};

/**
 * dn_keyfile_read() - parse @path; @sections false for .data files (a "[" line is then an error)
 * Files over 64 MiB, with NUL bytes, and text that is something else (an HTML page, a git-lfs pointer)
 * are refused with a message that says so.
 */
DN_EXPORT int dn_keyfile_read(struct dn_keyfile **out, const char *path, bool sections, bool strict);
/** dn_keyfile_parse() - same over memory; @path only names it in messages */
DN_EXPORT int dn_keyfile_parse(struct dn_keyfile **out, const char *text, size_t n, const char *path, bool sections, bool strict);
/** dn_keyfile_parse_quiet() - same for a text that was read before: what is only tolerated has been said then */
DN_EXPORT int dn_keyfile_parse_quiet(struct dn_keyfile **out, const char *text, size_t n, const char *path, bool sections);
DN_EXPORT void dn_keyfile_destroy(struct dn_keyfile *f);

/* Getters for sections without tables (base/keyrule.h has the others). They mark the key as used. *out is the default when the key is missing. A value without digits, a
 * number that is not finite or out of [min, max] is -EINVAL with file:line; rubbish after a number is a
 * warning (strict: an error). @s may not be NULL. */
DN_EXPORT int dn_section_int(struct dn_section *s, const char *key, int64_t def, int64_t min, int64_t max, int64_t *out);
DN_EXPORT int dn_section_float(struct dn_section *s, const char *key, double def, double *out);
DN_EXPORT const char *dn_section_text(struct dn_section *s, const char *key, const char *def);
/** dn_section_ints(), dn_section_floats() - comma list into a dn_alloc()ed array; missing key: n = 0, NULL */
DN_EXPORT int dn_section_ints(struct dn_section *s, const char *key, int64_t **out, int *n);
DN_EXPORT int dn_section_floats(struct dn_section *s, const char *key, double **out, int *n);
DN_EXPORT struct dn_key *dn_section_find(struct dn_section *s, const char *key); /* NULL; does not mark */

/** dn_section_fail() - dn_fail() with "path:line: [name] " in front; key NULL = the section's own line */
DN_EXPORT int dn_section_fail(const struct dn_section *s, const char *key, int err, const char *fmt, ...) DN_PRINTF(4, 5);
/** dn_keyfile_unused() - warn of every key that no table has and nobody asked for ("path:line: [name] key=value: unknown key, ignored");
 * strict: -EINVAL */
DN_EXPORT int dn_keyfile_unused(struct dn_keyfile *f);
/**
 * dn_keyfile_difference() - the first section or key of @a that @who's @b has otherwise, with both places and values, to @out
 * @keys: the only keys that count, NULL = all. False: they differ in blanks, comments and the order of keys at most.
 */
DN_EXPORT bool dn_keyfile_difference(const struct dn_keyfile *a, const struct dn_keyfile *b, const char *who,
				     const char *const *keys, char *out, size_t cap);

#ifdef __cplusplus
}
#endif
#endif
