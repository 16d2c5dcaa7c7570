/* Augmentation of a classifier's images: what is drawn for (seed, update, place), and doing it. */
#include "data/image.h"

#include <errno.h>
#include <math.h>

#include "base/keyrule.h"
#include "base/rng.h"

#define MAX_RATIO 1000.0

/* --- colour --- */

static void rgb_to_hsv(float r, float g, float b, float *h, float *s, float *v)
{
	float most = fmaxf(r, fmaxf(g, b)), least = fminf(r, fminf(g, b));
	float d = most - least;

	*v = most;
	*h = *s = 0;
	if (!(most > 0) || !(d > 0))
		return;
	*s = d / most;
	if (r == most)
		*h = (g - b) / d;
	else if (g == most)
		*h = 2 + (b - r) / d;
	else
		*h = 4 + (r - g) / d;
	if (*h < 0)
		*h += 6;
	*h /= 6;
}

static void hsv_to_rgb(float h, float s, float v, float *r, float *g, float *b)
{
	float six = 6 * h;
	int i = (int)floorf(six);
	float f = six - (float)i;
	float p = v * (1 - s), q = v * (1 - s * f), t = v * (1 - s * (1 - f));

	switch (i) {
	case 1:
		*r = q, *g = v, *b = p;
		return;
	case 2:
		*r = p, *g = v, *b = t;
		return;
	case 3:
		*r = p, *g = q, *b = v;
		return;
	case 4:
		*r = t, *g = p, *b = v;
		return;
	case 5:
		*r = v, *g = p, *b = q;
		return;
	default:
		*r = v, *g = t, *b = p;
		return; /* 0, and 6, where f is 0 */
	}
}

static float clamp_unit(float x)
{
	return x < 0 ? 0 : x > 1 ? 1 : x;
}

void dn_image_distort(float *x, int64_t w, int64_t h, int64_t c, float hue, float saturation, float exposure)
{
	int64_t n = w * h;

	if (c != 3) {
		for (int64_t i = 0; i < n * c; i++)
			x[i] = clamp_unit(x[i] * exposure);
		return;
	}
	for (int64_t i = 0; i < n; i++) {
		float *r = &x[i], *g = &x[n + i], *b = &x[2 * n + i];
		float ph, ps, pv;

		rgb_to_hsv(*r, *g, *b, &ph, &ps, &pv);
		ph += hue;
		ph += ph > 1 ? -1 : ph < 0 ? 1 : 0;
		hsv_to_rgb(ph, ps * saturation, pv * exposure, r, g, b);
		*r = clamp_unit(*r);
		*g = clamp_unit(*g);
		*b = clamp_unit(*b);
	}
}

/* --- keys --- */

static int read_ratio(struct dn_section *s, const char *key, const char *crop, double def, int64_t w, double *out)
{
	int64_t side = 0;
	int err = dn_key_int(s, crop, &side);

	if (!err)
		err = dn_key_float_or(s, key, side ? (double)side / (double)w : def, out);
	if (!err && (*out <= 0 || *out > MAX_RATIO))
		err = dn_section_fail(s, dn_section_find(s, key) ? key : crop, -EINVAL,
				      "%s=%g: a crop must be larger than 0 and at "
				      "most %g times the net's width of %lld",
				      key, *out, MAX_RATIO, (long long)w);
	return err;
}

static int read_factor(struct dn_section *s, const char *key, double *out)
{
	int err = dn_key_float(s, key, out);

	if (!err && (*out <= 0 || *out > MAX_RATIO))
		err = dn_section_fail(s, key, -EINVAL, "%s=%g: must be larger than 0 and at most %g", key, *out, MAX_RATIO);
	return err;
}

int dn_augment_read(struct dn_augment *a, struct dn_section *net, int64_t w)
{
	struct dn_augment r = { 0 };
	int64_t flip = 1, center = 0;
	int err;

	if (w < 1)
		return dn_section_fail(net, "width", -EINVAL, "images are augmented for a net that has a width and a height");
	err = read_ratio(net, "min_ratio", "min_crop", 1, w, &r.min_ratio);
	if (!err)
		err = read_ratio(net, "max_ratio", "max_crop", 2, w, &r.max_ratio);
	if (!err && r.min_ratio > r.max_ratio)
		err = dn_section_fail(net, NULL, -EINVAL,
				      "crops from %g to %g times the net's width (min_crop or min_ratio, max_crop "
				      "or max_ratio): the first must not be the larger",
				      r.min_ratio, r.max_ratio);
	if (!err)
		err = dn_key_float(net, "angle", &r.angle);
	if (!err)
		err = read_factor(net, "aspect", &r.aspect);
	if (!err)
		err = read_factor(net, "saturation", &r.saturation);
	if (!err)
		err = read_factor(net, "exposure", &r.exposure);
	if (!err)
		err = dn_key_float(net, "hue", &r.hue);
	if (!err && fabs(r.hue) > 1)
		err = dn_section_fail(net, "hue", -EINVAL, "hue=%g: must be from -1 to 1, 1 being the whole circle", r.hue);
	if (!err)
		err = dn_key_int(net, "flip", &flip);
	if (!err)
		err = dn_key_int(net, "center", &center);
	if (err)
		return err;
	r.flip = flip;
	r.center = center;
	*a = r;
	return 0;
}

/* --- drawing --- */

/* Places of a sample's numbers; never renumbered, as that would change every run. */
enum draw {
	DRAW_ASPECT,
	DRAW_ASPECT_SIDE,
	DRAW_CROP,
	DRAW_ANGLE,
	DRAW_X,
	DRAW_Y,
	DRAW_FLIP,
	DRAW_HUE,
	DRAW_SATURATION,
	DRAW_SATURATION_SIDE,
	DRAW_EXPOSURE,
	DRAW_EXPOSURE_SIDE,
	DRAWS = 16
};

struct key {
	uint64_t seed, stream, first;
};

static double between(const struct key *k, enum draw d, double lo, double hi)
{
	return lo + (hi - lo) * dn_rng_uniform(k->seed, k->stream, k->first + d);
}

/* A factor from 1 to @s, or its inverse, by turns. */
static double factor(const struct key *k, enum draw d, double s)
{
	double u = between(k, d, 1, s);

	return dn_rng_below(k->seed, k->stream, k->first + d + 1, 2) ? u : 1 / u;
}

void dn_augment_draw(struct dn_augment_draw *d, const struct dn_augment *a, uint64_t seed, uint64_t update, uint64_t place,
		     int64_t iw, int64_t ih, int64_t w, int64_t h)
{
	struct key k = { seed, DN_RNG_STREAM(DN_RNG_AUGMENT, update), place * DRAWS };
	double aspect = factor(&k, DRAW_ASPECT, a->aspect);
	/* min_crop / width * width is min_crop again, whatever the division lost */
	int64_t lo = (int64_t)(a->min_ratio * (double)w + 1e-6), hi = (int64_t)(a->max_ratio * (double)w + 1e-6);
	int64_t side;
	double by_w, by_h, scale, mx, my;

	lo = lo < 1 ? 1 : lo;
	hi = hi < lo ? lo : hi;
	side = lo + (int64_t)dn_rng_below(seed, k.stream, k.first + DRAW_CROP, (uint64_t)(hi - lo) + 1);
	/* Darknet's side / min(ih, iw * aspect) for square nets; for others both sides of the net count. */
	by_w = (double)w / ((double)iw * aspect);
	by_h = (double)h / (double)ih;
	scale = (double)side / (double)w * (by_w > by_h ? by_w : by_h);
	mx = ((double)iw * scale / aspect - (double)w) / 2;
	my = ((double)ih * scale - (double)h) / 2;
	*d = (struct dn_augment_draw){
		.crop = {
			.rad = between(&k, DRAW_ANGLE, -a->angle, a->angle) * M_PI / 180,
			.scale = scale,
			.dx = between(&k, DRAW_X, -mx, mx),
			.dy = between(&k, DRAW_Y, -my, my),
			.aspect = aspect,
		},
		.flip = a->flip && dn_rng_below(seed, k.stream, k.first + DRAW_FLIP, 2),
		.hue = between(&k, DRAW_HUE, -a->hue, a->hue),
		.saturation = factor(&k, DRAW_SATURATION, a->saturation),
		.exposure = factor(&k, DRAW_EXPOSURE, a->exposure),
	};
}

void dn_augment_apply(const struct dn_augment *a, const struct dn_augment_draw *d, const struct dn_view *v, float *out, int64_t w,
		      int64_t h)
{
	if (a->center)
		dn_image_center_crop(v, out, w, h);
	else
		dn_image_rotate_crop(v, &d->crop, out, w, h);
	if (d->flip)
		dn_image_flip(out, w, h, v->c);
	if (d->hue != 0 || d->saturation != 1 || d->exposure != 1)
		dn_image_distort(out, w, h, v->c, (float)d->hue, (float)d->saturation, (float)d->exposure);
}
