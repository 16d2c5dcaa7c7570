/* What a tensor in device memory is: element type, layout, dims and bytes. A value; the address travels beside it, and the
 * gradient of a tensor is described as the tensor itself is.
 */
#ifndef DN_BACKEND_TENSOR_H
#define DN_BACKEND_TENSOR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

enum dn_type { /* of an element; 0 is none, so that a descriptor that nobody has filled is refused */
	       DN_F32 = 1,
	       DN_F64,
	       DN_BF16,
	       DN_F16,
	       DN_I32,
	       DN_TYPES
};

enum dn_layout {	  /* of the elements of one tensor in memory */
		 DN_NCHW, /* contiguous, images outermost, columns innermost */
		 DN_LAYOUTS
};

struct dn_tensor {
	enum dn_type type;
	enum dn_layout layout;
	int64_t n, c, h, w; /* images, channels, rows, columns; flat data: h = w = 1 */
	size_t bytes;	    /* that it takes, with the padding of its layout */
};

/* number of elements */
static inline int64_t dn_tensor_count(const struct dn_tensor *t)
{
	return t->n * t->c * t->h * t->w;
}

/* elements of one channel of one image */
static inline int64_t dn_tensor_plane(const struct dn_tensor *t)
{
	return t->h * t->w;
}

DN_EXPORT const char *dn_type_name(enum dn_type type); /* "f32", ...; "none" for 0, "?" for what is no type */
DN_EXPORT const char *dn_layout_name(enum dn_layout layout);
DN_EXPORT size_t dn_type_bytes(enum dn_type type); /* of one element; 0 for what is no type */

/**
 * dn_tensor_init() - describe @n x @c x @h x @w elements in plain layout
 * -EINVAL: a negative dim or no type; -EOVERFLOW: more elements than int64_t or bytes than size_t hold. Messages start with
 * @what ("layer 3: output").
 */
DN_EXPORT int dn_tensor_init(struct dn_tensor *t, const char *what, enum dn_type type, int64_t n, int64_t c, int64_t h,
			     int64_t w);

/** dn_tensor_view() - the elements of each image of @t, in plain layout, seen as @c x @h x @w, which must be as many */
DN_EXPORT struct dn_tensor dn_tensor_view(const struct dn_tensor *t, int64_t c, int64_t h, int64_t w);
/** dn_tensor_flat() - @t as a row of numbers an image */
DN_EXPORT struct dn_tensor dn_tensor_flat(const struct dn_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
