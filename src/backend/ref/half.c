/* Numbers of 16 bits, see NOTE(16 bits): by arithmetic, as the oracle. */
#include <math.h>
#include <string.h>

#include "backend/ref/ref_priv.h"

struct format {
	int fraction; /* bits of it, below the 1 that is not written */
	int bias;
	int top; /* the exponent of infinity and of what is not a number */
};

static struct format format_of(enum dn_type type)
{
	return type == DN_BF16 ? (struct format){ 7, 127, 255 } : (struct format){ 10, 15, 31 };
}

float ref_half_value(enum dn_type type, uint16_t h)
{
	const struct format f = format_of(type);
	const int e = h >> f.fraction & f.top, m = h & ((1 << f.fraction) - 1), s = h >> 15;
	double x;

	if (e == f.top && m) {
		uint32_t bits = (uint32_t)s << 31 | 0x7f800000 | (uint32_t)m << (23 - f.fraction);
		float nan;

		if (type == DN_F16)
			bits |= 0x400000;
		memcpy(&nan, &bits, sizeof(nan)); /* host memory: a register */
		return nan;
	}
	if (e == f.top)
		x = INFINITY;
	else if (e)
		x = ldexp((double)(m + (1 << f.fraction)), e - f.bias - f.fraction);
	else
		x = ldexp((double)m, 1 - f.bias - f.fraction);
	return (float)(s ? -x : x);
}

static uint16_t of_value(enum dn_type type, float value)
{
	const struct format f = format_of(type);
	double x = fabs((double)value), step;
	unsigned bits;
	uint32_t was;
	int e;

	memcpy(&was, &value, sizeof(was)); /* host memory: a register */
	if (isnan(value)) {
		bits = (unsigned)f.top << f.fraction | 1u << (f.fraction - 1) | (was & 0x7fffff) >> (23 - f.fraction);
	} else {
		(void)frexp(x, &e); /* x in [2^(e-1), 2^e) */
		e = e - 1 < 1 - f.bias || x == 0 ? 1 - f.bias : e - 1;
		step = ldexp(1, e - f.fraction);
		x = isinf(x) ? x : rint(x / step) * step; /* to even, as the process rounds */
		/* a carry ends in the next exponent, and beyond the largest one in infinity */
		if (x >= ldexp(1, f.top - f.bias))
			bits = (unsigned)f.top << f.fraction;
		else
			bits = (unsigned)(x / step) + (unsigned)((e + f.bias - 1) << f.fraction);
	}
	return (uint16_t)(bits | was >> 31 << 15);
}

int ref_narrow(struct dn_stream *st, enum dn_type type, int64_t n, const float *x, void *y)
{
	int err = half_check(&ref_limits, "narrow", type);

	for (int64_t i = 0; i < n && !err; i++) {
		const uint16_t h = of_value(type, x[i]);

		memcpy((char *)y + 2 * i, &h, sizeof(h)); /* host memory */
	}
	return err;
}

int ref_widen(struct dn_stream *st, enum dn_type type, int64_t n, const void *x, float *y)
{
	int err = half_check(&ref_limits, "widen", type);

	for (int64_t i = 0; i < n && !err; i++) {
		uint16_t h;

		memcpy(&h, (const char *)x + 2 * i, sizeof(h)); /* host memory */
		y[i] = ref_half_value(type, h);
	}
	return err;
}
