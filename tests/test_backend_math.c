/* The device contract: softmax, costs, products, copies, updates and sums. */
#include <float.h>
#include "backend_help.h"

static void softmax_survives_large_inputs_and_uses_temperature(void)
{
	const float x[] = { 1000, 1001, 1002, -1000, 0, 1000 };

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 1);
		float y[6], want[6] = { 0, 0, 0, 0, 0, 1 };
		double e = exp(-.5), e2 = exp(-1), sum = 1 + e + e2;

		want[0] = (float)(e2 / sum);
		want[1] = (float)(e / sum);
		want[2] = (float)(1 / sum);
		CHECK_OK(softmax_once(&r, &(struct dn_softmax_desc){ t4(2, 3, 1, 1), 1, NULL, 2 }, x, y));
		CHECK_CLOSE(y, want, 6, 2e-7);
		rig_close(&r);
	}
}

static void cost_sums_and_deltas_are_exact(void)
{
	const float p[] = { .5f, .25f, 0, 1 }, t[] = { 1, 0, 1, 0 };

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 1);
		const struct dn_tensor four = t4(1, 4, 1, 1);
		float delta[4];
		const float want[] = { .5f, -.25f, 1, -1 };
		double loss;

		CHECK_OK(r.be->cost(r.st, DN_COST_SSE, &four, p, &four, t, delta, &loss));
		CU_ASSERT(loss == .25 + .0625 + 1 + 1);
		CHECK_BITS(delta, want, sizeof(want));
		CHECK_OK(r.be->cost(r.st, DN_COST_SOFTMAX_CE, &four, p, &four, t, delta, &loss));
		CU_ASSERT(fabs(loss - (-log(.5) - log((double)FLT_MIN))) < 1e-12);
		CHECK_BITS(delta, want, sizeof(want));
		rig_close(&r);
	}
}

static void softmax_losses_keep_their_digits_near_one_and_far_from_it(void)
{
	static const struct {
		float x[4], t[4], temperature;
		double want;
	} c[] = {
		{ { 20, 0, 0, 0 }, { 1, 0, 0, 0 }, 1, 6.183460848198079e-9 },	  /* log1p(3 e^-20) */
		{ { 200, 0, -200, 1 }, { 0, 0, 1, 0 }, 1, 400 },		  /* 400 + log1p(e^-199 + e^-200) */
		{ { 1, 1, 1, 1 }, { 0, 1, 0, 1 }, 2, 2.772588722239781 },	  /* 2 log 4 */
		{ { 2, 0, 0, 0 }, { 1, 0, 0, DN_IGNORE }, 2, .7436683806286791 }, /* log(1 + 3 / e) */
		{ { 20000, 0, 0, 0 }, { 0, 1, 0, 0 }, 1, 20000 },		  /* whose exp no number holds */
		{ { 20000, 0, 0, 0 }, { 1, 0, 0, 0 }, 1, 0 },
		{ { 0x1p127f, -0x1p127f, 0, 0 }, { 0, 1, 1, 0 }, .5f, 3 * 0x1p128 },
		{ { -INFINITY, 0, 0, 0 }, { 0, 1, 0, 0 }, 1, 1.0986122886681098 }, /* log 3 */
	};

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 2);
		double loss;

		for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
			const struct dn_softmax_desc d = { t4(1, 4, 1, 1), 1, NULL, c[i].temperature };
			struct dn_softmax *sm = NULL;

			CHECK_OK_FATAL(r.be->softmax_create(r.dev, &d, &sm));
			CHECK_OK(r.be->softmax_loss(r.st, sm, c[i].x, &d.x, c[i].t, &loss));
			r.be->softmax_destroy(sm);
			if (fabs(loss - c[i].want) > 1e-12 * c[i].want)
				fprintf(stderr, "%s, case %zu: %.15g\n", (*b)->name, i, loss);
			CU_ASSERT(fabs(loss - c[i].want) <= 1e-12 * c[i].want);
		}
		rig_close(&r);
	}
}

/* What is not finite shows, and as the same thing, whoever computes. */
static void softmax_losses_of_broken_logits_are_not_finite(void)
{
	static const struct {
		float x[3], t[3], want;
	} c[] = {
		{ { NAN, 0, 0 }, { 1, 0, 0 }, NAN },
		{ { 0, NAN, 0 }, { 1, 0, 0 }, NAN },
		{ { INFINITY, 0, 0 }, { 0, 1, 0 }, NAN },
		{ { -INFINITY, 0, 0 }, { 1, 0, 0 }, INFINITY },
		{ { INFINITY, INFINITY, 0 }, { 1, 0, 0 }, NAN },
		{ { -INFINITY, -INFINITY, -INFINITY }, { 0, 0, 1 }, NAN },
	};

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 1);

		for (int groups = 1; groups <= 3; groups += 2) /* three of one number each: each is the largest */
			for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
				const struct dn_softmax_desc d = { t4(1, 3, 1, 1), groups, NULL, 1 };
				struct dn_softmax *sm = NULL;
				double loss;

				if (groups == 3 && i)
					break;
				CHECK_OK_FATAL(r.be->softmax_create(r.dev, &d, &sm));
				CHECK_OK(r.be->softmax_loss(r.st, sm, c[i].x, &d.x, c[i].t, &loss));
				r.be->softmax_destroy(sm);
				if (isnan(c[i].want) ? !isnan(loss) : loss != (double)c[i].want)
					fprintf(stderr, "%s, case %zu: %g\n", (*b)->name, i, loss);
				CU_ASSERT(isnan(c[i].want) ? isnan(loss) : loss == (double)c[i].want);
			}
		rig_close(&r);
	}
}

static void gemm_of_cpu_equals_ref_in_every_orientation(void)
{
	struct rig ref = rig_open("ref", 1), cpu = rig_open("cpu", 2);
	static const int64_t size[][3] = {
		{ 1, 1, 1 }, { 5, 7, 3 }, { 33, 17, 65 }, { 1, 300, 100 }, { 64, 10, 1 }, { 3, 4, 0 }
	};
	static const float beta[] = { 0, 1, .5f };

	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++)
		for (int v = 0; v < 12; v++) {
			int64_t m = size[i][0], n = size[i][1], k = size[i][2];
			bool ta = v & 1, tb = v & 2;
			int64_t lda = (ta ? m : k) + 2, ldb = (tb ? k : n) + 1, ldc = n + 3;
			const struct dn_gemm_desc d = {
				ta, tb, m, n, k, .75f, beta[v / 4], lda, ldb, ldc, DN_F32, DN_F32, DN_F32
			};
			float *a = randoms((m + k) * (lda + 1), 1), *b = randoms((n + k + 1) * (ldb + 1), 2);
			float *c0 = randoms(m * ldc, 3), *c1 = randoms(m * ldc, 3);

			if (beta[v / 4] == 0)
				for (int64_t j = 0; j < m * ldc; j++) /* must not be read */
					c0[j] = c1[j] = j % ldc < n ? NAN : 7;
			CHECK_OK(ref.be->gemm(ref.st, &d, a, b, c0));
			CHECK_OK(cpu.be->gemm(cpu.st, &d, a, b, c1));
			CHECK_CLOSE(c1, c0, m * ldc, 2e-6); /* float sums of 100 products */
			dn_free(a);
			dn_free(b);
			dn_free(c0);
			dn_free(c1);
		}
	rig_close(&ref);
	rig_close(&cpu);
}

static void shortcut_overlaps_as_darknet_does(void)
{
	struct rig ref = rig_open("ref", 1), cpu = rig_open("cpu", 2);
	static const int64_t shape[][7] = {
		/* n; source w h c; direct w h c */
		{ 2, 4, 4, 3, 4, 4, 3 }, { 2, 8, 8, 2, 4, 4, 5 }, { 1, 4, 2, 5, 8, 4, 2 },	 { 1, 5, 5, 3, 3, 3, 3 },
		{ 1, 9, 9, 1, 3, 3, 2 }, { 2, 3, 3, 4, 7, 7, 4 }, { 4, 30, 30, 16, 30, 30, 16 },
	};
	/* source 4x4 onto 2x2: stride 2 */
	const struct dn_shortcut_desc d = { t4(1, 1, 4, 4), t4(1, 2, 2, 2), 3, 10 };
	const float direct[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	const float want[] = { 3, 26, 89, 112, 5, 6, 7, 8 };
	float src[16], out[8];
	struct dn_shortcut_desc bad = d;

	for (int i = 0; i < 16; i++)
		src[i] = (float)i;
	CHECK_OK(ref.be->shortcut_forward(ref.st, &d, direct, src, out));
	CHECK_BITS(out, want, sizeof(want));
	bad.src.h = 2;
	CHECK_FAILS(cpu.be->shortcut_forward(cpu.st, &bad, direct, src, out), -EINVAL, "ratio");
	for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
		const int64_t *t = shape[i];
		struct dn_shortcut_desc s = { t4(t[0], t[3], t[2], t[1]), t4(t[0], t[6], t[5], t[4]), .5f, 2 };
		int64_t n1 = t[0] * t[1] * t[2] * t[3], n2 = t[0] * t[4] * t[5] * t[6];
		float *a = randoms(n2, 1), *b = randoms(n1, 2), *y0 = floats(n2), *y1 = floats(n2), *g0 = randoms(n1, 3),
		      *g1 = randoms(n1, 3);

		CHECK_OK(ref.be->shortcut_forward(ref.st, &s, a, b, y0));
		CHECK_OK(cpu.be->shortcut_forward(cpu.st, &s, a, b, y1));
		CHECK_BITS(y1, y0, (size_t)n2 * 4);
		for (int acc = 1; acc >= 0; acc--) {
			CHECK_OK(ref.be->shortcut_backward_src(ref.st, &s, y0, g0, acc));
			CHECK_OK(cpu.be->shortcut_backward_src(cpu.st, &s, y0, g1, acc));
			CHECK_BITS(g1, g0, (size_t)n1 * 4);
		}
		CHECK_OK(cpu.be->shortcut_forward(cpu.st, &s, a, b, a)); /* in place */
		CHECK_BITS(a, y0, (size_t)n2 * 4);
		dn_free(a);
		dn_free(b);
		dn_free(y0);
		dn_free(y1);
		dn_free(g0);
		dn_free(g1);
	}
	rig_close(&ref);
	rig_close(&cpu);
}

static void rows_copies_and_counts_agree(void)
{
	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 2);
		const float src[] = { 1, 2, 3, 4, 5, 6 };
		const float odd[] = { 1, NAN, INFINITY, -INFINITY, 0, FLT_MAX, -NAN };
		float dst[8] = { 9, 9, 9, 9, 9, 9, 9, 9 }, y[3] = { NAN, 1, 2 };
		const float rows[] = { 1, 2, 9, 9, 4, 5, 9, 9 }, twice[] = { 2, 4, 9, 9, 8, 10, 9, 9 }, half[] = { .5f, 1, 1.5f },
			    sum[] = { 2, 4, 6 };
		int64_t count = -1;

		CHECK_OK(r.be->copy_rows(r.st, DN_F32, 2, 2, src, 3, dst, 4, false));
		CHECK_BITS(dst, rows, sizeof(rows));
		CHECK_OK(r.be->copy_rows(r.st, DN_F32, 2, 2, src, 3, dst, 4, true));
		CHECK_BITS(dst, twice, sizeof(twice));
		CHECK_OK(r.be->axpby(r.st, DN_F32, 3, .5f, src, 0, y));
		CHECK_BITS(y, half, sizeof(half));
		CHECK_OK(r.be->axpby(r.st, DN_F32, 3, 1, src, 2, y));
		CHECK_BITS(y, sum, sizeof(sum));
		CHECK_OK(r.be->count_nonfinite(r.st, DN_F32, 7, odd, &count));
		CHECK_EQ(count, 4);
		CHECK_OK(r.be->copy(r.st, y, src + 1, sizeof(y)));
		CHECK_BITS(y, src + 1, sizeof(y));
		CHECK_OK(r.be->zero(r.st, y, sizeof(y)));
		CU_ASSERT(y[0] == 0 && y[1] == 0 && y[2] == 0);
		rig_close(&r);
	}
}

static void sgd_bits_do_not_depend_on_position(void)
{
	struct rig one = rig_open("cpu", 1), two = rig_open("cpu", 2), ref = rig_open("ref", 1);
	int64_t n = 40000;
	float *w = randoms(n, 1), *v = randoms(n, 2), *g = randoms(n, 3), *ww = copy_of(w, n), *vv = copy_of(v, n);
	static const int64_t offset[] = { 0, 1, 3, 5, 16, 17 };
	const struct dn_sgd desc = { .lr_scale = 2, .momentum = .9, .decay = .0005 / 8 };
	const struct dn_numbers num = { .rate = .04, .images = 8, .factor = 2 };

	CHECK_OK(two.be->sgd(two.st, DN_F32, n, &desc, &num, ww, vv, g));
	for (int64_t i = 0; i < n; i++) { /* the formula itself, rounded at every step */
		volatile float a = .9f * v[i], b = .0005f * w[i], f = 2 * g[i], c = a + f, u = c - b, d = .01f * u, e = w[i] + d;

		CU_ASSERT_FATAL(vv[i] == u && ww[i] == e);
	}
	for (size_t o = 0; o < sizeof(offset) / sizeof(offset[0]); o++)
		for (int64_t at = 0; at < n; at += 13001) { /* uneven pieces at odd addresses, as shards cut them */
			int64_t len = n - at < 13001 ? n - at : 13001;
			float *pw = floats(len + 32), *pv = floats(len + 32), *pg = floats(len + 32);
			float *qw = pw + offset[o], *qv = pv + offset[o], *qg = pg + (offset[o] * 7) % 16;
			const struct rig *r = o % 3 == 0 ? &one : o % 3 == 1 ? &two : &ref;

			memcpy(qw, w + at, (size_t)len * 4);
			memcpy(qv, v + at, (size_t)len * 4);
			memcpy(qg, g + at, (size_t)len * 4);
			CHECK_OK(r->be->sgd(r->st, DN_F32, len, &desc, &num, qw, qv, qg));
			CHECK_BITS(qw, ww + at, (size_t)len * 4);
			CHECK_BITS(qv, vv + at, (size_t)len * 4);
			dn_free(pw);
			dn_free(pv);
			dn_free(pg);
		}
	dn_free(w);
	dn_free(v);
	dn_free(g);
	dn_free(ww);
	dn_free(vv);
	rig_close(&one);
	rig_close(&two);
	rig_close(&ref);
}

/* the tree written out for 1 to 9 parts */
static float explicit_tree(int n, const float *p)
{
	switch (n) {
	case 1:
		return p[0];
	case 2:
		return p[0] + p[1];
	case 3:
		return (p[0] + p[1]) + p[2];
	case 4:
		return (p[0] + p[1]) + (p[2] + p[3]);
	case 5:
		return ((p[0] + p[1]) + (p[2] + p[3])) + p[4];
	case 6:
		return ((p[0] + p[1]) + (p[2] + p[3])) + (p[4] + p[5]);
	case 7:
		return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + p[6]);
	case 8:
		return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
	default:
		return (((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]))) + p[8];
	}
}

/* parts in one piece of memory, and one of them (@own) elsewhere; out may be any of them */
static void sum_tree_case(const struct rig *r, struct dn_stream *st, int64_t n, int parts, int own)
{
	const int64_t stride = n + 5;
	float *others = randoms(stride * parts, 1), *mine = randoms(n, 2), *out = randoms(n, 77), *was = copy_of(out, n);
	float *sum = floats(n), *added = floats(n);
	const struct dn_parts p = { DN_F32, parts, own, mine, others, (size_t)stride * sizeof(float) };
	float *last = own == parts - 1 ? mine : others + (own == parts ? parts - 1 : parts - 2) * stride;

	for (int64_t j = 0; j < n; j++) {
		float e[9];

		for (int i = 0; i < parts; i++)
			e[i] = i == own ? mine[j] : others[(i < own ? i : i - 1) * stride + j];
		sum[j] = explicit_tree(parts, e);
		added[j] = was[j] + sum[j];
	}
	CHECK_OK(r->be->sum_tree(st, n, &p, out, true));
	CHECK_BITS(out, added, (size_t)n * 4);
	CHECK_OK(r->be->sum_tree(st, n, &p, out, false));
	CHECK_BITS(out, sum, (size_t)n * 4);
	CHECK_OK(r->be->sum_tree(st, n, &p, last, false));
	CHECK_BITS(last, sum, (size_t)n * 4);
	dn_free(others);
	dn_free(mine);
	dn_free(out);
	dn_free(was);
	dn_free(sum);
	dn_free(added);
}

static void sum_tree_adds_in_the_fixed_order(void)
{
	static const int64_t lengths[] = { 1, 511, 512, 513, 20001 };

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++)
		for (int kind = 0; kind < 2; kind++) {
			struct rig r = rig_open((*b)->name, 2);
			struct dn_stream *comm = NULL, *st;

			CHECK_OK_FATAL(r.be->stream_create(r.dev, DN_STREAM_COMM, "reduce", 64, &comm));
			st = kind ? comm : r.st;
			for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++)
				for (int parts = 1; parts <= 9; parts++)
					for (int own = 0; own <= parts; own += parts > 2 ? (parts + 1) / 2 : 1)
						sum_tree_case(&r, st, lengths[l], parts, own);
			CHECK_FAILS(r.be->sum_tree(st, 1, &(struct dn_parts){ .type = DN_F32 }, NULL, false), -EINVAL, "parts");
			CHECK_FAILS(r.be->sum_tree(st, 1, &(struct dn_parts){ .type = DN_F32, .n = 2, .own = 3 }, NULL, false),
				    -EINVAL, "own part 3");
			r.be->stream_destroy(comm);
			rig_close(&r);
		}
}

static const struct check_case cases[] = {
	{ "softmax_survives_large_inputs_and_uses_temperature", softmax_survives_large_inputs_and_uses_temperature },
	{ "cost_sums_and_deltas_are_exact", cost_sums_and_deltas_are_exact },
	{ "softmax_losses_keep_their_digits_near_one_and_far_from_it",
	  softmax_losses_keep_their_digits_near_one_and_far_from_it },
	{ "softmax_losses_of_broken_logits_are_not_finite", softmax_losses_of_broken_logits_are_not_finite },
	{ "gemm_of_cpu_equals_ref_in_every_orientation", gemm_of_cpu_equals_ref_in_every_orientation },
	{ "shortcut_overlaps_as_darknet_does", shortcut_overlaps_as_darknet_does },
	{ "rows_copies_and_counts_agree", rows_copies_and_counts_agree },
	{ "sgd_bits_do_not_depend_on_position", sgd_bits_do_not_depend_on_position },
	{ "sum_tree_adds_in_the_fixed_order", sum_tree_adds_in_the_fixed_order },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend_math", cases);
}
