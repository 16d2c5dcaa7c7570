/* A hierarchy of classes: each node has one parent, and siblings that stand side by side are a group. */
#ifndef DN_BASE_TREE_H
#define DN_BASE_TREE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_tree {
	int64_t n;	    /* nodes = classes; a parent stands before its children */
	int32_t *parent;    /* [n] -1 at the top */
	int n_groups;	    /* consecutive nodes with one parent are a group */
	int32_t *group_at;  /* [n_groups + 1] first node of each */
	bool *leaf;	    /* [n] no node names it as its parent */
	const char **names; /* [n] in text */
	char *text;
};

/** dn_tree_read() - a file of lines "NAME PARENT"; PARENT is the number of an earlier line, from 0, or -1 at the top. NAME may
 * hold blanks; an empty line would shift the numbers of all that follow and is an error, but at the end of the file */
DN_EXPORT int dn_tree_read(struct dn_tree **out, const char *path);
DN_EXPORT void dn_tree_destroy(struct dn_tree *t);
/** dn_tree_absolute() - from probabilities within each group to those of each class: times all of its ancestors' */
DN_EXPORT void dn_tree_absolute(const struct dn_tree *t, float *p);

#ifdef __cplusplus
}
#endif
#endif
