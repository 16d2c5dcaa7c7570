/* Shared by backend.c and the tables: the tables themselves, and checks of descriptions. */
#ifndef DN_BACKEND_BACKEND_PRIV_H
#define DN_BACKEND_BACKEND_PRIV_H
#include <math.h>
#include <string.h>
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
/** half_check() - one of the types of 16 bits, which every table takes where it has to */
int half_check(const struct op_limits *by, const char *op, enum dn_type type);
/** truth_check() - targets @t of values @x, see NOTE(targets) */
int truth_check(const struct op_limits *by, const char *op, const struct dn_tensor *x, const struct dn_tensor *t);

static inline bool half_type(enum dn_type type)
{
	return type == DN_BF16 || type == DN_F16;
}

/* part @i from element @at on */
static inline const void *part_of(const struct dn_parts *p, int i, int64_t at)
{
	const int k = i < p->own ? i : i - 1;
	const char *part = i == p->own ? p->mine : (const char *)p->others + (size_t)k * p->stride_bytes;

	return part + (size_t)at * (half_type(p->type) ? sizeof(uint16_t) : sizeof(float));
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

/** exact_add() - @m * 2^@shift, m below 2^63, to a sum that exact_carry() has left less than 2^16 additions ago */
static inline void exact_add(struct dn_exact *sum, uint64_t m, int shift)
{
	uint64_t low = (m & UINT32_MAX) << shift % 32, high = (m >> 32) << shift % 32, *word = sum->word + shift / 32;

	word[0] += low & UINT32_MAX;
	word[1] += (low >> 32) + (high & UINT32_MAX);
	word[2] += high >> 32;
}
void exact_carry(struct dn_exact *sum);

struct look_float {	     /* x = +-m * 2^(e - 150) */
	uint32_t m, e, bits; /* e 1 to 254 of what is finite, else 255; bits of |x| */
};
/** look_float() - the parts of @x, which is bounded before */
static inline struct look_float look_float(float *x, float limit)
{
	struct look_float f;

	memcpy(&f.bits, x, sizeof(f.bits)); /* host memory: a register */
	f.bits &= 0x7fffffff;
	if (limit > 0 && f.bits < 0x7f800000 && fabsf(*x) > limit) {
		*x = copysignf(limit, *x);
		memcpy(&f.bits, &limit, sizeof(f.bits)); /* host memory: a register */
	}
	f.e = f.bits >> 23;
	f.m = (f.bits & 0x7fffff) | (f.e ? 0x800000 : 0);
	f.e += !f.e;
	return f;
}

#endif
