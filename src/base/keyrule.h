/* What the keys of a section are: tables from which they are read, checked and explained, and that say which are unknown.
 *
 * A section gets its tables once, when its file has been read (dn_section_rules). From then on its keys are asked for by
 * name alone, with dn_key_*(): default and range stand in the table and nowhere else. Asking for a key that no table has,
 * or as another kind, is a bug of ours (assert). A key that no table has and nobody asks for is unknown (dn_keyfile_unused).
 */
#ifndef DN_BASE_KEYRULE_H
#define DN_BASE_KEYRULE_H
#include "base/keyfile.h"
#ifdef __cplusplus
extern "C" {
#endif

enum dn_key_kind {
	DN_KEY_INT,
	DN_KEY_FLOAT,
	DN_KEY_TEXT,
	DN_KEY_INTS, /* lists, separated by commas */
	DN_KEY_FLOATS,
	DN_KEY_ONLY,	/* any other value than the default would compute something else, and is refused */
	DN_KEY_NOTHING, /* known, without effect here */
};

enum dn_key_resume {			    /* what a run that is resumed may have, beside what was saved */
		     DN_RESUME_SAME,	    /* nothing else: the key says what the net computes or learns */
		     DN_RESUME_ANY,	    /* anything */
		     DN_RESUME_SAME_LAYERS, /* other numbers of the same layers: negative ones count from this one */
		     DN_RESUME_IF_IMAGE,    /* anything, where width says the size of an image */
		     DN_RESUME_FILE,	    /* another name of a file that holds the same: its reader says what (file_hash) */
};

struct dn_key_rule {
	const char *key; /* NULL ends a table */
	enum dn_key_kind kind;
	const char *def;	    /* as text; NULL: none, or as from or otherwise say */
	double min, max;	    /* INT: inclusive; both 0: none */
	const char *help;	    /* one line; ONLY and NOTHING need none */
	const char *(*names)(void); /* TEXT: the values it may have, "a, b, c"; NULL: any */
	const char *from;	    /* INT: the default is the value of this key of the section, */
	int64_t more;		    /* and so much more */
	const char *otherwise;	    /* the default in words, where the reader works it out */
	enum dn_key_resume resume;
	/* what the reader makes of the key and those that it goes with: where two sections mean the same here, their values of
	 * this key are no difference. NULL: the value is what it means */
	int64_t (*means)(const struct dn_section *s);
};

/** dn_section_rules() - one more table for @s, two at most; borrowed, must outlive it */
DN_EXPORT void dn_section_rules(struct dn_section *s, const struct dn_key_rule *table);
/** dn_section_rule() - the entry of @key in the tables of @s, NULL when none has it */
DN_EXPORT const struct dn_key_rule *dn_section_rule(const struct dn_section *s, const char *key);

/** dn_key_value() - an INT of a section that has been read: the value or the default that holds; takes no notice of the use */
DN_EXPORT int64_t dn_key_value(const struct dn_section *s, const char *key);

/* As the getters of keyfile.h. _or: for keys whose default the table
 * only describes; _in: a range within the table's. */
DN_EXPORT int dn_key_int(struct dn_section *s, const char *key, int64_t *out);
DN_EXPORT int dn_key_int_or(struct dn_section *s, const char *key, int64_t def, int64_t *out);
DN_EXPORT int dn_key_int_in(struct dn_section *s, const char *key, int64_t min, int64_t max, int64_t *out);
DN_EXPORT int dn_key_float(struct dn_section *s, const char *key, double *out);
DN_EXPORT int dn_key_float_or(struct dn_section *s, const char *key, double def, double *out);
DN_EXPORT const char *dn_key_text(struct dn_section *s, const char *key);
DN_EXPORT int dn_key_ints(struct dn_section *s, const char *key, int64_t **out, int *n);
DN_EXPORT int dn_key_floats(struct dn_section *s, const char *key, double **out, int *n);

/** dn_keys_only() - -ENOTSUP with file:line when an ONLY key of @s has another value */
DN_EXPORT int dn_keys_only(struct dn_section *s);
/** dn_key_no_effect() - a FLOAT that does nothing here: with @warn a warning of every value but the default */
DN_EXPORT int dn_key_no_effect(struct dn_section *s, const char *key, bool warn);

#ifdef __cplusplus
}
#endif
#endif
