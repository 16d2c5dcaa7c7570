/* Shared by backend.c and the tables: the tables themselves, and checks of descriptions. */
#ifndef DN_BACKEND_BACKEND_PRIV_H
#define DN_BACKEND_BACKEND_PRIV_H
#include "backend/backend.h"

extern const struct dn_backend dn_backend_cpu, dn_backend_ref;

/* What a table of ops takes. Every op asks one of the checks below first: -ENOTSUP for a type or a layout that is not among
 * these, -EINVAL for sizes that make no sense, with a message that starts with the op. */
struct op_limits {
	const char *backend;
	uint32_t types, layouts; /* bits 1 << enum */
};
int type_check(const struct op_limits *by, const char *op, enum dn_type type);
int layout_check(const struct op_limits *by, const char *op, enum dn_layout layout);
int tensor_check(const struct op_limits *by, const char *op, const struct dn_tensor *t);
int gemm_desc_check(const struct op_limits *by, const struct dn_gemm_desc *d);
int conv_desc_check(const struct op_limits *by, const struct dn_conv_desc *d);
int pool_desc_check(const struct op_limits *by, const char *op, const struct dn_pool_desc *d);
int shortcut_desc_check(const struct op_limits *by, const char *op, const struct dn_shortcut_desc *d);
int dropout_check(const struct op_limits *by, const char *op, const struct dn_dropout_key *k, const struct dn_tensor *t);
int reorg_desc_check(const struct op_limits *by, const char *op, const struct dn_reorg_desc *d);
int crop_desc_check(const struct op_limits *by, const char *op, const struct dn_crop_desc *d);
/** crop_place() - where the window of image @i of the batch stands, and whether it is mirrored */
void crop_place(const struct dn_crop_desc *d, const struct dn_numbers *num, int64_t i, int64_t *top, int64_t *left, bool *flip);
int lrn_desc_check(const struct op_limits *by, const char *op, const struct dn_lrn_desc *d);
int local_desc_check(const struct op_limits *by, const char *op, const struct dn_conv_desc *d);
int parts_check(const struct op_limits *by, const struct dn_parts *p);
/** truth_check() - targets @t of values @x, see NOTE(targets) */
int truth_check(const struct op_limits *by, const char *op, const struct dn_tensor *x, const struct dn_tensor *t);

/* part @i, of floats */
static inline const float *part_of(const struct dn_parts *p, int i)
{
	int k = i < p->own ? i : i - 1;

	return i == p->own ? p->mine : (const float *)(const void *)((const char *)p->others + (size_t)k * p->stride_bytes);
}

/* The factors of an update, computed in double and rounded to float once: the same for every element of a param, whoever owns
 * it, and for every table. */
struct sgd_factors {
	float rate, momentum, decay, factor;
};
struct sgd_factors sgd_factors(const struct dn_sgd *o, const struct dn_numbers *num);
struct adam_factors {
	float scale, rate, beta1, one_minus_beta1, beta2, one_minus_beta2, correct1, correct2, eps, decay, shrink;
};
struct adam_factors adam_factors(const struct dn_adam *o, const struct dn_numbers *num);

#endif
