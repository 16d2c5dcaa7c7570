/* The prepared softmax of tables whose device memory is the host's: groups and parents, copied. */
#ifndef DN_BACKEND_HOST_SOFTMAX_H
#define DN_BACKEND_HOST_SOFTMAX_H
#include "backend/backend_priv.h"

struct dn_softmax {
	const struct op_limits *by;
	struct dn_tensor x;
	int n_groups;
	int64_t each;	   /* channels of a group; 0: they differ, see group_at */
	int32_t *group_at; /* [n_groups + 1], NULL: equal groups */
	int32_t *parent;   /* [x.c], NULL: no tree */
	float temperature;
};

int softmax_create(const struct op_limits *by, const struct dn_softmax_desc *d, struct dn_softmax **out);
void softmax_destroy(struct dn_softmax *sm);

/** softmax_truth_check() - targets @t of @sm's input, see NOTE(targets) */
int softmax_truth_check(const struct dn_softmax *sm, const char *op, const struct dn_tensor *t);

/* first channel of group @g, which ends where the next one begins */
static inline int64_t softmax_group(const struct dn_softmax *sm, int g)
{
	return sm->group_at ? sm->group_at[g] : g * sm->each;
}

#endif
