/* Tables of keys with type, default, bounds and help; one resolved value per key and where it came
 * from. Flags of verbs, keys of [fsdp] and `darknet options` all print and check from such tables.
 */
#ifndef DN_BASE_OPTION_H
#define DN_BASE_OPTION_H
#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

enum dn_option_type {
	DN_OPT_SWITCH, /* command line: no value, present or not; in a cfg 0 or 1 */
	DN_OPT_INT,
	DN_OPT_FLOAT,
	DN_OPT_STRING,
	DN_OPT_CHOICE, /* one of @choices, separated by '|' */
	DN_OPT_BYTES,  /* number with K, M, G */
};

struct dn_option {
	const char *key; /* without the dash; NULL ends a table */
	enum dn_option_type type;
	const char *def;     /* default as text; NULL = unset */
	const char *choices; /* CHOICE only: "pre|post|none" */
	double min, max;     /* INT, FLOAT, BYTES: inclusive bounds, both 0 = none */
	const char *arg;     /* name of the value in help: "N", "FILE" */
	const char *help;    /* one line */
	/* extra check of a value, NULL = none; 0 or dn_fail() with @where leading the message */
	int (*check)(const char *value, const char *where);
};

struct dn_options; /* the values of one or more tables */

DN_EXPORT int dn_options_create(struct dn_options **out);
DN_EXPORT void dn_options_destroy(struct dn_options *o);
/** dn_options_add() - join @table (borrowed, must outlive @o); a key that is there already is -EEXIST */
DN_EXPORT int dn_options_add(struct dn_options *o, const struct dn_option *table);
DN_EXPORT const struct dn_option *dn_options_find(const struct dn_options *o, const char *key);

/**
 * dn_options_set() - give @key the text @value; @where ("cfg/a.cfg:12" or "-limit") leads messages
 * Errors: -ENOENT unknown key, -EINVAL bad value; both with a message that says what is allowed.
 */
DN_EXPORT int dn_options_set(struct dn_options *o, const char *key, const char *value, const char *where);
DN_EXPORT bool dn_options_given(const struct dn_options *o, const char *key);	     /* set, not defaulted */
DN_EXPORT const char *dn_options_where(const struct dn_options *o, const char *key); /* NULL if defaulted */

/* Asking for a key that no table has, or with the wrong type, is a bug of ours (assert). */
DN_EXPORT const char *dn_options_text(const struct dn_options *o, const char *key); /* NULL when unset, a switch "0" */
DN_EXPORT int64_t dn_options_int(const struct dn_options *o, const char *key);	    /* INT, BYTES; unset = 0 */
DN_EXPORT double dn_options_float(const struct dn_options *o, const char *key);
DN_EXPORT bool dn_options_on(const struct dn_options *o, const char *key); /* SWITCH */

/** dn_options_each() - every key with its resolved text ("" when unset, a switch "0"), in table order */
DN_EXPORT int dn_options_each(const struct dn_options *o, int (*fn)(void *arg, const struct dn_option *opt, const char *value),
			      void *arg);

#ifdef __cplusplus
}
#endif
#endif
