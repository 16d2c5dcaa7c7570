/* Descriptors of tensors, and what a table of ops says of those that it does not take. */
#include "backend/tensor.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "backend/backend_priv.h"

static const struct {
	const char *name;
	size_t bytes;
} types[DN_TYPES] = {
	[0] = { "none", 0 },	   [DN_F32] = { "f32", 4 }, [DN_F64] = { "f64", 8 },
	[DN_BF16] = { "bf16", 2 }, [DN_F16] = { "f16", 2 }, [DN_I32] = { "i32", 4 },
};

static const char *const layouts[DN_LAYOUTS] = { [DN_NCHW] = "NCHW" };

const char *dn_type_name(enum dn_type type)
{
	return (unsigned)type < DN_TYPES ? types[type].name : "?";
}

const char *dn_layout_name(enum dn_layout layout)
{
	return (unsigned)layout < DN_LAYOUTS ? layouts[layout] : "?";
}

size_t dn_type_bytes(enum dn_type type)
{
	return (unsigned)type < DN_TYPES ? types[type].bytes : 0;
}

int dn_tensor_init(struct dn_tensor *t, const char *what, enum dn_type type, int64_t n, int64_t c, int64_t h, int64_t w)
{
	const size_t each = dn_type_bytes(type);
	int64_t count;
	size_t bytes;

	if (n < 0 || c < 0 || h < 0 || w < 0 || !each)
		return dn_fail(-EINVAL, "%s: a tensor of %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64 " %s", what, n, c, h,
			       w, dn_type_name(type));
	if (__builtin_mul_overflow(n, c, &count) || __builtin_mul_overflow(count, h, &count) ||
	    __builtin_mul_overflow(count, w, &count) || __builtin_mul_overflow((size_t)count, each, &bytes))
		return dn_fail(-EOVERFLOW,
			       "%s: a tensor of %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64
			       " %s is larger than memory can be",
			       what, n, c, h, w, dn_type_name(type));
	*t = (struct dn_tensor){ type, DN_NCHW, n, c, h, w, bytes };
	return 0;
}

struct dn_tensor dn_tensor_view(const struct dn_tensor *t, int64_t c, int64_t h, int64_t w)
{
	struct dn_tensor v = *t;

	assert(t->layout == DN_NCHW && c * h * w == t->c * t->h * t->w);
	v.c = c;
	v.h = h;
	v.w = w;
	return v;
}

struct dn_tensor dn_tensor_flat(const struct dn_tensor *t)
{
	return dn_tensor_view(t, t->c * t->h * t->w, 1, 1);
}

/* --- what a table takes --- */

/* the names of the bits of @set */
static const char *set_names(uint32_t set, bool of_types, char *out, size_t cap)
{
	size_t at = 0;

	out[0] = '\0';
	for (int i = 0; i < 32 && at < cap; i++)
		if (set & 1u << i)
			at += (size_t)snprintf(out + at, cap - at, "%s%s", at ? ", " : "",
					       of_types ? dn_type_name((enum dn_type)i) : dn_layout_name((enum dn_layout)i));
	return out;
}

int type_check(const struct op_limits *by, const char *op, enum dn_type type)
{
	char names[64];

	if ((unsigned)type < DN_TYPES && by->types & 1u << type)
		return 0;
	return dn_fail(-ENOTSUP, "%s: backend %s has it for %s, not for %s", op, by->backend,
		       set_names(by->types, true, names, sizeof(names)), dn_type_name(type));
}

int layout_check(const struct op_limits *by, const char *op, enum dn_layout layout)
{
	char names[64];

	if ((unsigned)layout < DN_LAYOUTS && by->layouts & 1u << layout)
		return 0;
	return dn_fail(-ENOTSUP, "%s: backend %s has it for layout %s, not for %s", op, by->backend,
		       set_names(by->layouts, false, names, sizeof(names)), dn_layout_name(layout));
}

int tensor_check(const struct op_limits *by, const char *op, const struct dn_tensor *t)
{
	int err = layout_check(by, op, t->layout);

	return err ? err : type_check(by, op, t->type);
}
