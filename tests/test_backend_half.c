/* Numbers of 16 bits: every one of them widened, floats narrowed, in place and from the back of memory, sums of them. Against the
 * compiler's own _Float16 and, for bf16, against a search among all numbers of the type by long arithmetic. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include "backend_help.h"

static float float_of(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static uint32_t bits_of(float x)
{
	uint32_t b;

	memcpy(&b, &x, sizeof(b));
	return b;
}

/* --- by other means --- */

static float widened(enum dn_type type, uint16_t h)
{
	_Float16 x;

	if (type == DN_BF16)
		return float_of((uint32_t)h << 16);
	memcpy(&x, &h, sizeof(x));
	return (float)x;
}

/* @x is a number. Positive numbers of both types are ordered as their bits are: the two neighbours are found by halving */
static uint16_t nearest(enum dn_type type, float x)
{
	const uint16_t inf = type == DN_BF16 ? 0x7f80 : 0x7c00, sign = signbit(x) ? 0x8000 : 0;
	const long double a = fabsl((long double)x);
	uint16_t low = 0, high = inf;
	long double down, up;

	if (isinf(x))
		return (uint16_t)(inf | sign);
	while (high - low > 1) {
		const uint16_t mid = (uint16_t)((low + high) / 2);

		if ((long double)widened(type, mid) <= a)
			low = mid;
		else
			high = mid;
	}
	down = (long double)widened(type, low);
	/* infinity stands where the next number would be */
	up = high == inf ? down + (down - (long double)widened(type, (uint16_t)(low - 1))) : (long double)widened(type, high);
	if (a - down > up - a || (a - down >= up - a && low % 2))
		low = high;
	return (uint16_t)(low | sign);
}

/* --- cases --- */

static const enum dn_type types[] = { DN_BF16, DN_F16 };

static bool is_nan16(enum dn_type type, uint16_t h)
{
	return (h & 0x7fff) > (type == DN_BF16 ? 0x7f80 : 0x7c00);
}

static void every_number_is_widened(void)
{
	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++)
		for (int t = 0; t < 2; t++) {
			struct rig r = rig_open((*b)->name, 2);
			uint16_t *h = dn_alloc_region(DN_MEM_HOST, 65536 * sizeof(*h)), *back;
			float *x = floats(65536);
			int wrong = 0, again = 0;

			back = dn_alloc_region(DN_MEM_HOST, 65536 * sizeof(*back));
			CU_ASSERT_FATAL(h && back);
			for (int i = 0; i < 65536; i++)
				h[i] = (uint16_t)i;
			CHECK_OK(r.be->widen(r.st, types[t], 65536, h, x));
			CHECK_OK(r.be->narrow(r.st, types[t], 65536, x, back));
			for (int i = 0; i < 65536; i++) {
				if (!is_nan16(types[t], h[i])) {
					wrong += bits_of(x[i]) != bits_of(widened(types[t], h[i]));
					again += back[i] != h[i];
					continue;
				}
				/* sign and fraction stay; on the way back at the latest its first bit is set */
				wrong += !isnan(x[i]) || !signbit(x[i]) != !(h[i] >> 15);
				again += back[i] != (h[i] | (types[t] == DN_BF16 ? 0x40 : 0x200));
			}
			CHECK_EQ(wrong, 0);
			CHECK_EQ(again, 0);
			dn_free(h);
			dn_free(back);
			dn_free(x);
			rig_close(&r);
		}
}

/* numbers of the type, the middle between neighbours and what is next to it, all exponents, infinity, what is no number */
static int64_t draw_floats(enum dn_type type, float *x, int64_t cap)
{
	const uint16_t inf = type == DN_BF16 ? 0x7f80 : 0x7c00;
	int64_t n = 0;

	for (int h = 0; h < inf; h += type == DN_BF16 ? 7 : 5) {
		const uint32_t a = bits_of(widened(type, (uint16_t)h)), c = bits_of(widened(type, (uint16_t)(h + 1)));
		const float middle = h + 1 == inf ? float_of(type == DN_BF16 ? 0x7f7f8000 : 0x477ff000)
						  : (float)(((double)float_of(a) + (double)float_of(c)) / 2);

		for (int k = -1; k <= 1; k++) {
			x[n++] = float_of(bits_of(middle) + (uint32_t)k);
			x[n++] = -float_of(bits_of(middle) + (uint32_t)k);
		}
	}
	/* the last step before infinity, in any case */
	for (int k = -2; k <= 2; k++)
		x[n++] = float_of((type == DN_BF16 ? 0x7f7f8000 : 0x477ff000) + (uint32_t)k);
	for (int k = -2; k <= 2; k++)
		x[n++] = float_of((type == DN_BF16 ? 0x00008000 : 0x33000000) + (uint32_t)k);
	x[n++] = INFINITY;
	x[n++] = -INFINITY;
	x[n++] = 0;
	x[n++] = -0.0f;
	x[n++] = float_of(1);
	x[n++] = FLT_MAX;
	x[n++] = -FLT_MAX;
	while (n < cap)
		x[n] = float_of((uint32_t)(dn_rng_uniform(5, 1, (uint64_t)n) * 4294967296.0)), n++;
	CU_ASSERT_FATAL(n == cap);
	return n;
}

static void floats_become_the_nearest_numbers(void)
{
	enum { N = 150001 };

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++)
		for (int t = 0; t < 2; t++) {
			struct rig r = rig_open((*b)->name, 2);
			float *x = floats(N);
			uint16_t *h = dn_alloc_region(DN_MEM_HOST, N * sizeof(*h));
			int wrong = 0, nans = 0, library = 0;

			CU_ASSERT_FATAL(h != NULL);
			draw_floats(types[t], x, N);
			CHECK_OK(r.be->narrow(r.st, types[t], N, x, h));
			for (int64_t i = 0; i < N; i++) {
				const _Float16 own = (_Float16)x[i];

				if (isnan(x[i])) {
					const int shift = types[t] == DN_BF16 ? 16 : 13;
					const uint16_t fraction = (uint16_t)((bits_of(x[i]) & 0x7fffff) >> shift);
					const uint16_t want = types[t] == DN_BF16 ? (uint16_t)(0x7fc0 | fraction)
										  : (uint16_t)(0x7e00 | fraction);

					wrong += h[i] != (want | bits_of(x[i]) >> 31 << 15);
					nans++;
					continue;
				}
				if (h[i] != nearest(types[t], x[i]) && wrong++ < 3)
					fprintf(stderr, "%s %s: %a becomes %04x, not %04x\n", (*b)->name, dn_type_name(types[t]),
						(double)x[i], h[i], nearest(types[t], x[i]));
				library += types[t] == DN_F16 && memcmp(&own, &h[i], sizeof(own)) != 0;
			}
			CHECK_EQ(wrong, 0);
			CHECK_EQ(library, 0);
			CU_ASSERT(nans > 100);
			dn_free(x);
			dn_free(h);
			rig_close(&r);
		}
}

/* Narrowed where the floats were, moved to the end of that memory, widened from the front: what is not read yet is never written,
 * whatever the length and the cuts between calls. */
static void memory_of_floats_holds_both(void)
{
	static const int64_t lengths[] = { 1, 2, 3, 16, 1023, 1024, 1025, 5000, 40001 };

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++)
		for (int t = 0; t < 2; t++)
			for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++)
				for (int cuts = 1; cuts <= 3; cuts++) {
					const int64_t n = lengths[l];
					struct rig r = rig_open((*b)->name, 2);
					float *x = randoms(n, 9), *was = copy_of(x, n), *want = floats(n);
					uint16_t *h = dn_alloc_region(DN_MEM_HOST, (size_t)n * sizeof(*h));
					int64_t from, to;

					CU_ASSERT_FATAL(h != NULL);
					CHECK_OK(r.be->narrow(r.st, types[t], n, was, h));
					CHECK_OK(r.be->widen(r.st, types[t], n, h, want));
					for (int k = 0; k < cuts; k++) {
						from = n * k / cuts;
						to = n * (k + 1) / cuts;
						CHECK_OK(r.be->narrow(r.st, types[t], to - from, x + from,
								      (uint16_t *)(void *)x + from));
					}
					CHECK_BITS(x, h, (size_t)n * sizeof(*h));
					memmove((uint16_t *)(void *)x + n, x, (size_t)n * sizeof(*h));
					for (int k = 0; k < cuts; k++) {
						from = n * k / cuts;
						to = n * (k + 1) / cuts;
						CHECK_OK(r.be->widen(r.st, types[t], to - from, (uint16_t *)(void *)x + n + from,
								     x + from));
					}
					CHECK_BITS(x, want, (size_t)n * sizeof(*x));
					dn_free(x);
					dn_free(was);
					dn_free(want);
					dn_free(h);
					rig_close(&r);
				}
}

/* a sum of narrow parts is the sum of the same parts widened before */
static void sums_take_narrow_parts(void)
{
	static const int64_t lengths[] = { 1, 511, 512, 1300 };

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++)
		for (int t = 0; t < 2; t++)
			for (int n_parts = 1; n_parts <= 7; n_parts++)
				for (size_t l = 0; l < 4; l++) {
					const int64_t n = lengths[l];
					struct rig r = rig_open((*b)->name, 2);
					float *x = randoms(n * n_parts, 4), *wide = floats(n * n_parts), *sum = floats(n),
					      *want = floats(n);
					uint16_t *h = dn_alloc_region(DN_MEM_HOST, (size_t)(n * n_parts) * sizeof(*h));
					const struct dn_parts halves = { types[t], n_parts, n_parts, NULL, h, (size_t)n * 2 };
					const struct dn_parts full = { DN_F32, n_parts, n_parts, NULL, wide, (size_t)n * 4 };
					/* part 0 by itself */
					const struct dn_parts own = { types[t], n_parts, 0, h, h + n, (size_t)n * 2 };

					CU_ASSERT_FATAL(h != NULL);
					CHECK_OK(r.be->narrow(r.st, types[t], n * n_parts, x, h));
					CHECK_OK(r.be->widen(r.st, types[t], n * n_parts, h, wide));
					CHECK_OK(r.be->sum_tree(r.st, n, &full, want, false));
					CHECK_OK(r.be->sum_tree(r.st, n, &halves, sum, false));
					CHECK_BITS(sum, want, (size_t)n * 4);
					CHECK_OK(r.be->sum_tree(r.st, n, &own, sum, true));
					for (int64_t i = 0; i < n; i++)
						want[i] = want[i] + want[i];
					CHECK_BITS(sum, want, (size_t)n * 4);
					dn_free(x);
					dn_free(wide);
					dn_free(sum);
					dn_free(want);
					dn_free(h);
					rig_close(&r);
				}
}

static void other_types_are_refused(void)
{
	static const enum dn_type others[] = { (enum dn_type)0, DN_F32, DN_F64, DN_I32, DN_TYPES };

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 1);
		float x[2] = { 1, 2 }, y[2] = { 3, 4 };
		char want[64];

		for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
			snprintf(want, sizeof(want), "narrow: backend %s has it for bf16, f16, not for %s", (*b)->name,
				 dn_type_name(others[i]));
			CHECK_FAILS(r.be->narrow(r.st, others[i], 2, x, y), -ENOTSUP, want);
			CHECK_FAILS(r.be->widen(r.st, others[i], 1, x, y), -ENOTSUP, "widen: backend ");
		}
		CU_ASSERT(y[0] == 3 && y[1] == 4);
		rig_close(&r);
	}
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(every_number_is_widened), CASE(floats_become_the_nearest_numbers), CASE(memory_of_floats_holds_both),
	CASE(sums_take_narrow_parts),  CASE(other_types_are_refused),		{ NULL, NULL },
};

int main(void)
{
	return check_run("backend_half", cases);
}
