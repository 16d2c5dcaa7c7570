/* Ops of the other classifier layers: cpu against ref and itself on two threads, Adam bit by bit, bad descriptions. */
#include <errno.h>
#include "backend_help.h"

enum { REF, CPU, CPU2, RIGS };

static struct rig rigs[RIGS];

static void rigs_open(void)
{
	rigs[REF] = rig_open("ref", 1);
	rigs[CPU] = rig_open("cpu", 1);
	rigs[CPU2] = rig_open("cpu", 2);
}

static void rigs_close(void)
{
	for (int k = 0; k < RIGS; k++)
		rig_close(&rigs[k]);
}

/* One call of an op: fills out (which starts as random numbers), reads x and z. */
typedef int (*call_fn)(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc);

/* cpu equals ref within @tol, and two threads give one thread's bits */
static void compare(call_fn fn, const void *arg, int64_t n_x, int64_t n_z, int64_t n_out, double tol)
{
	float *x = randoms(n_x, 1), *z = randoms(n_z > 0 ? n_z : 1, 2), *start = randoms(n_out, 3), *out[RIGS];

	for (int64_t i = 0; i < n_z; i++)
		z[i] += 1.5f; /* where it is a norm it must be positive */
	for (int acc = 0; acc < 2; acc++) {
		for (int k = 0; k < RIGS; k++) {
			out[k] = floats(n_out);
			memcpy(out[k], start, (size_t)n_out * sizeof(float));
			CHECK_OK(fn(&rigs[k], arg, x, z, out[k], acc));
		}
		CHECK_CLOSE(out[CPU], out[REF], n_out, tol);
		CHECK_BITS(out[CPU2], out[CPU], (size_t)n_out * sizeof(float));
		for (int k = 0; k < RIGS; k++)
			dn_free(out[k]);
	}
	dn_free(x);
	dn_free(z);
	dn_free(start);
}

/* --- moving points --- */

static int call_upsample(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	const int64_t *s = arg;
	const struct dn_tensor t = t4(1, s[0], s[1], s[2]);

	return r->be->upsample(r->st, &t, s[3], .7f, x, out, acc);
}

static int call_block_sum(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	const int64_t *s = arg;
	const struct dn_tensor t = t4(1, s[0], s[1], s[2]);

	return r->be->block_sum(r->st, &t, s[3], .7f, x, out, acc);
}

static int call_narrow(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	return r->be->reorg(r->st, arg, true, x, out, acc);
}

static int call_wide(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	return r->be->reorg(r->st, arg, false, x, out, acc);
}

static int call_transpose(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	const int64_t *s = arg;
	const struct dn_tensor t = t4(s[0], s[1], 1, s[2]);

	return r->be->transpose(r->st, &t, x, out, acc);
}

struct crop_case {
	struct dn_crop_desc d;
	struct dn_numbers num;
};

static int call_crop(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	return r->be->crop_forward(r->st, &((const struct crop_case *)arg)->d, &((const struct crop_case *)arg)->num, x, out);
}

static int call_uncrop(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	return r->be->crop_backward(r->st, &((const struct crop_case *)arg)->d, &((const struct crop_case *)arg)->num, x, out,
				    acc);
}

static int call_average(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	return r->be->local_avg_forward(r->st, arg, x, out);
}

static int call_average_back(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	return r->be->local_avg_backward(r->st, arg, x, out, acc);
}

/* copies and sums of at most nine numbers: two last bits */
static void ops_that_move_points_equal_ref(void)
{
	static const int64_t up[][4] = { { 1, 1, 1, 1 }, { 6, 5, 7, 2 }, { 3, 40, 33, 3 }, { 5, 1, 9, 4 } };
	const struct dn_reorg_desc reorg[] = {
		{ t4(1, 1, 1, 1), 1 }, { t4(2, 8, 3, 5), 2 }, { t4(3, 18, 30, 31), 3 }, { t4(2, 4, 1, 7), 2 }
	};
	const struct crop_case crop[] = {
		{ { t4(2, 3, 9, 7), t4(2, 3, 5, 4), 2, -1, true, true, 3 }, { .seed = 7, .first_image = 11 } },
		{ { t4(5, 3, 60, 70), t4(5, 3, 50, 64), 1, 0, true, false, 3 }, { .seed = 7 } },
		{ { t4(1, 1, 3, 3), t4(1, 1, 3, 3), 2, -1, true, true, 1 }, { .seed = 1, .first_image = 1 } },
		{ { t4(2, 2, 9, 8), t4(2, 2, 4, 5), 2, -1, false, true, 3 }, { .seed = 7, .first_image = 11 } },
	};
	const struct dn_pool_desc pool[] = {
		{ t4(2, 3, 5, 4), t4(2, 3, 5, 4), .size = 2, .stride = 1, .pad = 1 },
		{ t4(3, 9, 30, 31), t4(3, 9, 15, 16), .size = 3, .stride = 2, .pad = 2 },
		{ t4(1, 1, 2, 2), t4(1, 1, 3, 3), .size = 2, .stride = 2, .pad = 4 },
	};
	static const int64_t turn[][3] = { { 1, 1, 1 }, { 3, 5, 7 }, { 2, 130, 250 } };

	rigs_open();
	for (int i = 0; i < 4; i++) {
		int64_t n = up[i][0] * up[i][1] * up[i][2], wide = n * up[i][3] * up[i][3];

		compare(call_upsample, up[i], n, 0, wide, 2e-7);
		compare(call_block_sum, up[i], wide, 0, n, 2e-7);
	}
	for (int i = 0; i < 4; i++) {
		int64_t n = dn_tensor_count(&reorg[i].narrow);

		compare(call_narrow, &reorg[i], n, 0, n, 2e-7);
		compare(call_wide, &reorg[i], n, 0, n, 2e-7);
	}
	for (int i = 0; i < 4; i++) {
		const struct dn_crop_desc *d = &crop[i].d;
		int64_t in = dn_tensor_count(&d->x), out = dn_tensor_count(&d->y);

		compare(call_crop, &crop[i], in, 0, out, 2e-7);
		compare(call_uncrop, &crop[i], out, 0, in, 2e-7);
	}
	for (int i = 0; i < 3; i++) {
		int64_t in = dn_tensor_count(&pool[i].x), out = dn_tensor_count(&pool[i].y);

		compare(call_average, &pool[i], in, 0, out, 2e-7);
		compare(call_average_back, &pool[i], out, 0, in, 2e-7);
	}
	for (int i = 0; i < 3; i++)
		compare(call_transpose, turn[i], turn[i][0] * turn[i][1] * turn[i][2], 0, turn[i][0] * turn[i][1] * turn[i][2],
			2e-7);
	rigs_close();
}

/* --- normalisation and loss --- */

static int call_lrn(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	const struct dn_lrn_desc *d = arg;
	int64_t n = dn_tensor_count(&d->x);

	return r->be->lrn_forward(r->st, d, x, out, out + n);
}

static int call_lrn_back(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	const struct dn_lrn_desc *d = arg;

	return r->be->lrn_backward(r->st, d, x, z, x + dn_tensor_count(&d->x), out, acc);
}

static int call_l2norm(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	const int64_t *s = arg;
	const struct dn_tensor t = t4(s[0], s[1], s[2], 1);

	return r->be->l2norm_forward(r->st, &t, x, out + s[0] * s[1] * s[2], out);
}

static int call_l2norm_back(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	const int64_t *s = arg;
	const struct dn_tensor t = t4(s[0], s[1], s[2], 1);

	return r->be->l2norm_backward(r->st, &t, x, z, x + s[0] * s[1] * s[2], out, acc);
}

static int call_softmax(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	return softmax_once(r, arg, x, out);
}

static int call_binarize(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	const int64_t *s = arg;

	return r->be->binarize(r->st, DN_F32, s[0], s[1], acc, x, out);
}

static int call_scale(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	return r->be->scale_forward(r->st, arg, z, x, out, acc);
}

static int call_scale_back(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	return r->be->scale_backward(r->st, arg, x, z, out, acc);
}

/* a few last bits of float powers and exponentials */
static void ops_over_channels_equal_ref(void)
{
	const struct dn_lrn_desc lrn[] = { { t4(2, 7, 1, 5), 5, .3f, .75f, 1 },
					   { t4(1, 1, 1, 1), 5, 1e-4f, .75f, 1 },
					   { t4(3, 40, 13, 13), 4, .1f, 1.2f, 2 },
					   { t4(2, 3, 7, 10), 1, .2f, .5f, .5f } };
	static const int64_t l2[][3] = { { 2, 3, 5 }, { 1, 1, 1 }, { 3, 17, 400 } };
	static const int32_t at[] = { 0, 1, 4, 9, 12 };
	static const int32_t parent[] = { -1, 0, 0, 0, 2, 2, 2, 2, 2, 4, 4, 4 };
	static const struct dn_tree_desc tree = { 12, parent, 4, at };
	const struct dn_softmax_desc soft[] = { { t4(2, 12, 1, 1), 1, &tree, 1 },
						{ t4(3, 12, 5, 7), 3, NULL, 2 },
						{ t4(1500, 12, 1, 1), 1, &tree, .5f },
						{ t4(1, 1, 1, 1), 1, NULL, 1 },
						{ t4(40, 66, 1, 1), 3, NULL, 1 } };
	static const int64_t rows[][2] = { { 1, 1 }, { 7, 45 }, { 33, 700 } };

	rigs_open();
	for (int i = 0; i < 4; i++) {
		int64_t n = dn_tensor_count(&lrn[i].x);

		compare(call_lrn, &lrn[i], n, 0, 2 * n, 5e-7);
		compare(call_lrn_back, &lrn[i], 2 * n, n, n, 1e-6);
	}
	for (int i = 0; i < 3; i++) {
		int64_t n = l2[i][0] * l2[i][1] * l2[i][2];

		compare(call_l2norm, l2[i], n, 0, n + l2[i][0] * l2[i][2], 2e-7);
		compare(call_l2norm_back, l2[i], 2 * n, l2[i][0] * l2[i][2], n, 2e-7);
	}
	for (int i = 0; i < 9; i++) {
		struct dn_scale_desc d = { t4(l2[i / 3][0], l2[i / 3][1], 1, l2[i / 3][2]), (enum dn_scale)(i % 3) };
		int64_t n = dn_tensor_count(&d.y), na = i % 3 == DN_SCALE_CHANNEL ? d.y.n * d.y.c
							: i % 3 == DN_SCALE_POINT ? d.y.n * d.y.w
										  : n;

		compare(call_scale, &d, n, na, n, 2e-7);
		compare(call_scale_back, &d, n, n, na, 2e-7);
	}
	for (int i = 0; i < 5; i++)
		compare(call_softmax, &soft[i], dn_tensor_count(&soft[i].x), 0, dn_tensor_count(&soft[i].x), 5e-7);
	for (int i = 0; i < 3; i++)
		compare(call_binarize, rows[i], rows[i][0] * rows[i][1], 0, rows[i][0] * rows[i][1], 2e-7);
	rigs_close();
}

static void costs_of_cpu_equal_ref_and_do_not_depend_on_threads(void)
{
	const int64_t n = 20000;
	const struct dn_tensor all = t4(4, 50, 10, 10);
	float *p = randoms(n, 1), *t = randoms(n, 2), *delta[RIGS];

	rigs_open();
	for (int64_t i = 0; i < n; i += 7)
		t[i] = i % 3 == 0 ? DN_IGNORE : i % 3 == 1 ? 0 : 1;
	for (int kind = 0; kind < DN_COSTS; kind++) {
		double loss[RIGS];

		for (int64_t i = 0; i < n && kind == DN_COST_SOFTMAX_CE; i++)
			p[i] = (p[i] + 1) / 2; /* probabilities from here on; the logistic comes last */
		for (int k = 0; k < RIGS; k++) {
			delta[k] = floats(n);
			CHECK_OK(rigs[k].be->cost(rigs[k].st, (enum dn_cost)kind, &all, p, &all, t, delta[k], &loss[k]));
		}
		CHECK_BITS(delta[CPU], delta[REF], (size_t)n * sizeof(float));
		CHECK_BITS(delta[CPU2], delta[CPU], (size_t)n * sizeof(float));
		CU_ASSERT(fabs(loss[CPU] - loss[REF]) <= 1e-10 * fabs(loss[REF])); /* order of 20,000 doubles */
		CU_ASSERT(loss[CPU2] == loss[CPU]);
		for (int k = 0; k < RIGS; k++)
			dn_free(delta[k]);
	}
	rigs_close();
	dn_free(p);
	dn_free(t);
}

/* A NaN prediction must stay visible in the loss or in delta, whatever the cost. */
static void costs_do_not_hide_a_nan(void)
{
	rigs_open();
	for (int kind = 0; kind < DN_COSTS; kind++)
		for (int k = 0; k < RIGS; k++) {
			const struct dn_tensor one = t4(1, 1, 1, 1);
			float p = NAN, t = 1, delta;
			double loss;

			CHECK_OK(rigs[k].be->cost(rigs[k].st, (enum dn_cost)kind, &one, &p, &one, &t, &delta, &loss));
			CU_ASSERT(isnan(loss));
		}
	rigs_close();
}

/* --- local weights --- */

static int call_local(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	return r->be->local_forward(r->st, arg, x, z, out);
}

static int call_local_weights(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	return r->be->local_backward_weights(r->st, arg, x, z, out, acc);
}

static int call_local_data(const struct rig *r, const void *arg, const float *x, const float *z, float *out, bool acc)
{
	return r->be->local_backward_data(r->st, arg, x, z, out, acc);
}

/* float sums over images or windows in another order than ref's: a few last bits of at most 630 terms */
static void local_of_cpu_equals_ref(void)
{
	const struct dn_conv_desc all[] = {
		{ t4(2, 3, 5, 4), t4(2, 2, 3, 2), DN_F32, .groups = 1, .size = 3, .stride = 1, .pad = 0, .dilation = 1 },
		{ t4(2, 2, 7, 8), t4(2, 3, 4, 4), DN_F32, .groups = 1, .size = 5, .stride = 2, .pad = 1, .dilation = 1 },
		{ t4(3, 4, 9, 9), t4(3, 5, 9, 9), DN_F32, .groups = 1, .size = 3, .stride = 1, .pad = 1, .dilation = 1 },
		{ t4(1, 1, 1, 1), t4(1, 1, 1, 1), DN_F32, .groups = 1, .size = 4, .stride = 3, .pad = 4, .dilation = 1 },
		/* more images, filters and taps than go together, and a window of more taps than that */
		{ t4(9, 70, 4, 5), t4(9, 65, 2, 3), DN_F32, .groups = 1, .size = 3, .stride = 2, .pad = 1, .dilation = 1 },
		{ t4(2, 2, 25, 26), t4(2, 3, 2, 3), DN_F32, .groups = 1, .size = 24, .stride = 1, .pad = 0, .dilation = 1 },
	};

	rigs_open();
	for (int i = 0; i < 6; i++) {
		const struct dn_conv_desc *d = &all[i];
		int64_t nx = dn_tensor_count(&d->x), ny = dn_tensor_count(&d->y);
		int64_t nw = d->y.h * d->y.w * d->y.c * d->x.c * d->size * d->size;

		compare(call_local, d, nx, nw, ny, 1e-6);
		compare(call_local_weights, d, nx, ny, nw, 1e-6);
		compare(call_local_data, d, ny, nw, nx, 1e-6);
	}
	rigs_close();
}

/* --- Adam --- */

static void adam_case(const struct dn_adam *o, const struct dn_numbers *num, float scale, float decay, float shrink)
{
	static const int64_t offset[] = { 0, 1, 3, 5, 16, 17 };
	int64_t n = 40000;
	float *w, *m, *v, *g, *ww, *mm, *vv;

	rigs_open();
	w = randoms(n, 1);
	m = randoms(n, 2);
	v = randoms(n, 3);
	g = randoms(n, 4);
	ww = floats(n);
	mm = floats(n);
	vv = floats(n);
	for (int64_t i = 0; i < n; i++)
		v[i] = fabsf(v[i]);
	v[5] = m[5] = g[5] = w[5] = 0; /* padding of a shard must stay 0 */
	memcpy(ww, w, (size_t)n * 4);
	memcpy(mm, m, (size_t)n * 4);
	memcpy(vv, v, (size_t)n * 4);
	CHECK_OK(rigs[CPU2].be->adam(rigs[CPU2].st, DN_F32, n, o, num, ww, mm, vv, g));
	for (int64_t i = 0; i < n; i++) { /* rounded at every step */
		volatile float gs = scale * g[i], dw = decay * w[i], u = gs - dw, uu = u * u;
		volatile float m0 = .9f * m[i], m1 = (float)(1 - .9) * u, p = m0 + m1;
		volatile float v0 = .999f * v[i], v1 = (float)(1 - .999) * uu, q = v0 + v1;
		volatile float up = p * (float)num->correct1, down = q * (float)num->correct2, root = sqrtf(down),
			       under = root + 1e-7f, step = up / under;
		volatile float s0 = shrink * w[i], s1 = (float)(num->rate * o->lr_scale) * step, e = s0 + s1;

		CU_ASSERT_FATAL(mm[i] == p && vv[i] == q && ww[i] == e);
	}
	CU_ASSERT(ww[5] == 0 && mm[5] == 0 && vv[5] == 0);
	for (size_t k = 0; k < sizeof(offset) / sizeof(offset[0]); k++)
		for (int64_t at = 0; at < n; at += 13001) {
			int64_t len = n - at < 13001 ? n - at : 13001;
			float *pw = floats(len + 32), *pm = floats(len + 32), *pv = floats(len + 32), *pg = floats(len + 32);
			float *qw = pw + offset[k], *qm = pm + (offset[k] * 3) % 16, *qv = pv + offset[k],
			      *qg = pg + (offset[k] * 7) % 16;
			const struct rig *r = &rigs[k % RIGS];

			memcpy(qw, w + at, (size_t)len * 4);
			memcpy(qm, m + at, (size_t)len * 4);
			memcpy(qv, v + at, (size_t)len * 4);
			memcpy(qg, g + at, (size_t)len * 4);
			CHECK_OK(r->be->adam(r->st, DN_F32, len, o, num, qw, qm, qv, qg));
			CHECK_BITS(qw, ww + at, (size_t)len * 4);
			CHECK_BITS(qm, mm + at, (size_t)len * 4);
			CHECK_BITS(qv, vv + at, (size_t)len * 4);
			dn_free(pw);
			dn_free(pm);
			dn_free(pv);
			dn_free(pg);
		}
	dn_free(w);
	dn_free(m);
	dn_free(v);
	dn_free(g);
	dn_free(ww);
	dn_free(mm);
	dn_free(vv);
	rigs_close();
}

static void adam_bits_are_those_of_the_expression_at_any_position(void)
{
	static const struct dn_adam coupled = { .lr_scale = 2, .beta1 = .9, .beta2 = .999, .eps = 1e-7, .decay = .0005 };
	static const struct dn_adam decoupled = {
		.lr_scale = 2, .beta1 = .9, .beta2 = .999, .eps = 1e-7, .decay = .0005, .decoupled = true
	};
	static const struct dn_numbers num = {
		.rate = .003, .images = 24, .factor = .5, .correct1 = 5.2631579, .correct2 = 500.25
	};

	adam_case(&coupled, &num, (float)(.5 / 24), .0005f, 1);
	adam_case(&decoupled, &num, (float)(.5 / 24), 0, (float)(1 - .003 * 2 * .0005));
}

/* --- bad descriptions --- */

static void bad_descriptions_are_refused(void)
{
	static const int32_t gap[] = { 0, 2, 2, 4 }, late[] = { 1, 4 }, brief[] = { 0, 3 }, whole[] = { 0, 4 };
	static const int32_t parent[] = { -1, -1, -1, -1 }, young[] = { -1, 1, -1, -1 };
	static const struct {
		struct dn_tree_desc tree;
		const char *want;
	} trees[] = {
		{ { 4, parent, 3, gap }, "group 1" },	{ { 4, parent, 1, late }, "group 0" },
		{ { 4, parent, 1, brief }, "group 0" }, { { 3, parent, 1, brief }, "classes" },
		{ { 4, young, 1, whole }, "class 1" },
	};
	const struct dn_tensor four = t4(1, 4, 1, 1);
	float x[16] = { 0 }, y[16];

	rigs_open();
	for (int k = 0; k < RIGS; k++) {
		const struct rig *r = &rigs[k];
		const struct dn_backend *be = r->be;

		CHECK_FAILS(softmax_once(r, &(struct dn_softmax_desc){ four, 3, NULL, 1 }, x, y), -EINVAL, "do not divide");
		CHECK_FAILS(softmax_once(r, &(struct dn_softmax_desc){ four, 2, NULL, 0 }, x, y), -EINVAL, "temperature");
		for (size_t i = 0; i < sizeof(trees) / sizeof(trees[0]); i++)
			CHECK_FAILS(softmax_once(r, &(struct dn_softmax_desc){ four, 1, &trees[i].tree, 1 }, x, y), -EINVAL,
				    trees[i].want);
		CHECK_FAILS(be->reorg(r->st, &(struct dn_reorg_desc){ t4(1, 3, 2, 2), 2 }, true, x, y, false), -EINVAL,
			    "reorg: stride 2");
		CHECK_FAILS(be->reorg(r->st, &(struct dn_reorg_desc){ t4(1, 3, 2, 2), 0 }, true, x, y, false), -EINVAL,
			    "reorg: stride 0");
		CHECK_FAILS(be->crop_forward(r->st, &(struct dn_crop_desc){ t4(1, 1, 2, 2), t4(1, 1, 3, 1), .scale = 1 },
					     &(struct dn_numbers){ 0 }, x, y),
			    -EINVAL, "crop_forward: 1x3 of 2x2");
		CHECK_FAILS(be->lrn_forward(r->st, &(struct dn_lrn_desc){ t4(1, 2, 1, 2), 0, 1, 1, 1 }, x, y, y), -EINVAL, "lrn");
		CHECK_FAILS(be->local_forward(r->st, &(struct dn_conv_desc){ .x = four }, x, x, y), -EINVAL, "local");
		CHECK_FAILS(be->local_backward_data(r->st, &(struct dn_conv_desc){ .x = four }, x, x, y, false), -EINVAL,
			    "local");
		CHECK_FAILS(be->shortcut_forward(r->st, &(struct dn_shortcut_desc){ .src = four }, x, x, y), -EINVAL, "positive");
		CHECK_FAILS(be->maxpool_forward(r->st, &(struct dn_pool_desc){ four, t4(2, 4, 1, 1), 1, 1, 0 }, x, y,
						(int32_t *)(void *)y),
			    -EINVAL, "maxpool_forward: 1 images of 4 channels on one side, 2 of 4");
	}
	rigs_close();
}

static const struct check_case cases[] = {
	{ "ops_that_move_points_equal_ref", ops_that_move_points_equal_ref },
	{ "ops_over_channels_equal_ref", ops_over_channels_equal_ref },
	{ "costs_of_cpu_equal_ref_and_do_not_depend_on_threads", costs_of_cpu_equal_ref_and_do_not_depend_on_threads },
	{ "costs_do_not_hide_a_nan", costs_do_not_hide_a_nan },
	{ "local_of_cpu_equals_ref", local_of_cpu_equals_ref },
	{ "adam_bits_are_those_of_the_expression_at_any_position", adam_bits_are_those_of_the_expression_at_any_position },
	{ "bad_descriptions_are_refused", bad_descriptions_are_refused },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend_ops", cases);
}
