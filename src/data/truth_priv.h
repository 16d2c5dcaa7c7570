/* The classes of images by what their paths contain, and the tree of classes. Private to the room. */
#ifndef DN_DATA_TRUTH_PRIV_H
#define DN_DATA_TRUTH_PRIV_H
#include "base/tree.h"
#include "data/lines.h"

#define TRUTH_IGNORE (-1234.0f) /* of a group of the tree that says nothing about an image */

struct truth {
	int64_t n, classes;
	int64_t *at; /* [n + 1]: image i has the classes cls[at[i]] up to cls[at[i + 1]], ascending */
	int32_t *cls;
	struct dn_tree *tree; /* NULL: none */
};

/* truth_match() - the labels, of which the first @classes count, that are part of each path; one warning tells how many
 * paths have none or several, unless @told */
int truth_match(struct truth *t, const struct dn_lines *paths, const struct dn_lines *labels, int64_t classes, const char *list,
		const char *labels_path, bool told);
void truth_fini(struct truth *t); /* legal on a zeroed one */

int64_t truth_first(const struct truth *t, int64_t i); /* -1 = none */
/* truth_write() - @i's target [classes]; @first: of its first class alone */
void truth_write(const struct truth *t, int64_t i, bool first, float *out);

#endif
