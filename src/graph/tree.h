/* A hierarchy of classes: one softmax per group of siblings, probabilities multiplied on the way down. */
#ifndef DN_GRAPH_TREE_H
#define DN_GRAPH_TREE_H
#include <stdbool.h>
#include <stdint.h>
#include "backend/backend.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_tree {
	struct dn_tree_desc desc; /* parents and groups: consecutive lines with one parent are a group */
	char *text;		  /* what the names point into */
	const char **names;	  /* [desc.c] */
	bool *leaf;		  /* [desc.c] no line names it as its parent */
};

/** dn_tree_read() - a file of lines "NAME PARENT"; PARENT is the number of an earlier line, or -1 at the top */
DN_EXPORT int dn_tree_read(struct dn_tree **out, const char *path);
DN_EXPORT void dn_tree_destroy(struct dn_tree *t);
/** dn_tree_absolute() - from probabilities within each group to those of each class: times all of its ancestors' */
DN_EXPORT void dn_tree_absolute(const struct dn_tree *t, float *p);

#ifdef __cplusplus
}
#endif
#endif
