/* Images: reading files, Darknet's ways to change their size and colour, augmentation, writing PNG.
 *
 * Pixels are RGB or grey, floats byte/255. Everything that reads pixels takes a view, which is floats by plane
 * [c, h, w] or bytes by pixel [h, w, c], so a decoded file need not be turned into floats as a whole.
 */
#ifndef DN_DATA_IMAGE_H
#define DN_DATA_IMAGE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/keyfile.h"
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

#define DN_IMAGE_MAX_SIDE 65535
#define DN_IMAGE_MAX_PIXELS ((int64_t)1 << 26) /* of a file that is read: 8192 x 8192 */

struct dn_image {
	int64_t w, h, c;
	float *x; /* [c, h, w] */
};

struct dn_view {
	int64_t w, h, c;
	const float *x;		    /* the value of (x, y, k) is x[k * plane + y * row + x] */
	const unsigned char *bytes; /* or, where x is NULL, bytes[(y * row + x) * c + k] / 255 */
	int64_t row, plane;
};

/** dn_view_floats() - of a whole image [c, h, w] */
static inline struct dn_view dn_view_floats(const float *x, int64_t w, int64_t h, int64_t c)
{
	return (struct dn_view){ w, h, c, x, NULL, w, w * h };
}

/** dn_view_bytes() - of a whole image [h, w, c] */
static inline struct dn_view dn_view_bytes(const unsigned char *p, int64_t w, int64_t h, int64_t c)
{
	return (struct dn_view){ w, h, c, NULL, p, w, 0 };
}

/* How an image becomes a net's input where nothing is drawn. */
enum dn_fit {
	DN_FIT_LETTERBOX,   /* classifier predict: all of it, on a background of .5 */
	DN_FIT_CENTER_CROP, /* classifier valid: the central square */
};

/**
 * dn_image_read() - PNG, JPEG, BMP, TGA, PPM or PGM (binary) as @c = 1 or 3 channels
 * Alpha is dropped, 16 bits become 8. Sizes are checked against the file's before memory is taken. out->x is the
 * caller's, to be released by dn_image_fini(). For who looks at files; nets take dn_image_read_fit() and data sets.
 */
DN_EXPORT int dn_image_read(struct dn_image *out, const char *path, int64_t c);
DN_EXPORT void dn_image_fini(struct dn_image *im); /* legal on a zeroed one */
/** dn_image_read_fit() - a file as a net's input: @out [c, h, w] */
DN_EXPORT int dn_image_read_fit(const char *path, enum dn_fit fit, float *out, int64_t w, int64_t h, int64_t c);

/* --- size: all sizes of an output are at least 1 --- */

/** dn_image_resize() - bilinear, corners onto corners; a side of 1 takes the last row or column */
DN_EXPORT void dn_image_resize(const struct dn_view *v, float *out, int64_t w, int64_t h);
DN_EXPORT void dn_image_letterbox(const struct dn_view *v, float *out, int64_t w, int64_t h);
/** dn_image_crop() - from (dx, dy) on, which may lie outside: the border is repeated */
DN_EXPORT void dn_image_crop(const struct dn_view *v, int64_t dx, int64_t dy, float *out, int64_t w, int64_t h);
DN_EXPORT void dn_image_center_crop(const struct dn_view *v, float *out, int64_t w, int64_t h);

struct dn_rotate_crop {
	double rad, scale, dx, dy, aspect;
};

/** dn_image_rotate_crop() - @w x @h pixels around the image's centre, turned, scaled, moved; 0 outside of the image */
DN_EXPORT void dn_image_rotate_crop(const struct dn_view *v, const struct dn_rotate_crop *r, float *out, int64_t w, int64_t h);

/** dn_image_size_letterbox() - what an image of *w x *h takes of a letterbox of @bw x @bh */
DN_EXPORT void dn_image_size_letterbox(int64_t bw, int64_t bh, int64_t *w, int64_t *h);
DN_EXPORT void dn_image_fit(const struct dn_view *v, enum dn_fit fit, float *out, int64_t w, int64_t h);
DN_EXPORT void dn_image_flip(float *x, int64_t w, int64_t h, int64_t c); /* left and right, in place */

/* --- colour --- */

/** dn_image_distort() - hue + @hue (1 = the whole circle), saturation * @saturation, value * @exposure; in place.
 * One channel has no hue: its value is multiplied. */
DN_EXPORT void dn_image_distort(float *x, int64_t w, int64_t h, int64_t c, float hue, float saturation, float exposure);

/* --- augmentation of a classifier's training image --- */

struct dn_augment {
	double min_ratio, max_ratio;	  /* side of the crop before scaling, by the net's: 1, 2 */
	double angle;			  /* degrees: 0 */
	double aspect;			  /* 1 */
	double hue, saturation, exposure; /* 0, 1, 1 */
	bool flip;			  /* true */
	bool center;			  /* false; true: the central square, no crop, turn or scale is drawn */
};

struct dn_augment_draw { /* what was drawn for one image */
	struct dn_rotate_crop crop;
	bool flip;
	double hue, saturation, exposure;
};

/** dn_augment_read() - from the keys of [net]; @w: the net's width, which min_crop and max_crop are measured by */
DN_EXPORT int dn_augment_read(struct dn_augment *a, struct dn_section *net, int64_t w);
/** dn_augment_draw() - for an image of @iw x @ih and a net of @w x @h: pure in all arguments */
DN_EXPORT void dn_augment_draw(struct dn_augment_draw *d, const struct dn_augment *a, uint64_t seed, uint64_t update,
			       uint64_t place, int64_t iw, int64_t ih, int64_t w, int64_t h);
DN_EXPORT void dn_augment_apply(const struct dn_augment *a, const struct dn_augment_draw *d, const struct dn_view *v, float *out,
				int64_t w, int64_t h);

/* --- files --- */

/** dn_png_write() - bytes [h, w, c], c = 1 or 3; appears whole or not at all */
DN_EXPORT int dn_png_write(const char *path, const unsigned char *p, int64_t w, int64_t h, int64_t c);
/** dn_sheet_write() - @n images [n, c, h, w] of 0..1 as one PNG, @columns in a row, 1 pixel of grey between */
DN_EXPORT int dn_sheet_write(const char *path, const float *x, int64_t n, int64_t w, int64_t h, int64_t c, int64_t columns);

#ifdef __cplusplus
}
#endif
#endif
