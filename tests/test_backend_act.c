/* The device contract: activations, biases, batch normalisation. */
#include "backend_help.h"

static void activations_have_their_tabled_values(void)
{
	static const struct {
		enum dn_act act;
		float x, y, slope; /* slope as Darknet takes it from y */
	} t[] = {
		{ DN_ACT_LINEAR, -3, -3, 1 },
		{ DN_ACT_RELU, -3, 0, 0 },
		{ DN_ACT_RELU, 2, 2, 1 },
		{ DN_ACT_LEAKY, -3, -.3f, .1f },
		{ DN_ACT_LEAKY, 2, 2, 1 },
		{ DN_ACT_LOGISTIC, 0, .5f, .25f },
		{ DN_ACT_LOGISTIC, 2, .880797078f, .104993585f },
		{ DN_ACT_TANH, .5f, .462117157f, .786447733f },
		{ DN_ACT_LOGGY, 1, .462117157f, .393223866f },
		{ DN_ACT_ELU, -1, -.632120559f, .367879441f },
		{ DN_ACT_ELU, 2, 2, 1 },
		{ DN_ACT_SELU, 1, 1.0507f, 1.0507f },
		{ DN_ACT_SELU, -1, -1.11128771f, .646743539f },
		{ DN_ACT_RELIE, -2, -.02f, .01f },
		{ DN_ACT_RELIE, 3, 3, 1 },
		{ DN_ACT_RAMP, 2, 2.2f, 1.1f },
		{ DN_ACT_RAMP, -2, -.2f, .1f },
		{ DN_ACT_PLSE, -5, -.01f, .01f },
		{ DN_ACT_PLSE, 5, 1.01f, .01f },
		{ DN_ACT_PLSE, 2, .75f, .125f },
		{ DN_ACT_STAIR, 2.5f, 1, 0 },
		{ DN_ACT_STAIR, 3.25f, 1.25f, 1 },
		{ DN_ACT_STAIR, -.5f, -.5f, 1 },
		{ DN_ACT_STAIR, -1.5f, -1, 0 },
		{ DN_ACT_HARDTAN, -2, -1, 0 },
		{ DN_ACT_HARDTAN, .25f, .25f, 1 },
		{ DN_ACT_HARDTAN, 3, 1, 0 },
		{ DN_ACT_LHTAN, -2, -.002f, .001f },
		{ DN_ACT_LHTAN, .5f, .5f, 1 },
		{ DN_ACT_LHTAN, 3, 1.002f, .001f },
		{ DN_ACT_RELU6, -1, 0, 0 },
		{ DN_ACT_RELU6, 3, 3, 1 },
		{ DN_ACT_RELU6, 7, 6, 0 },
		{ DN_ACT_REVLEAKY, -3, -.3f, .1f },
		{ DN_ACT_REVLEAKY, 2, 2, 1 },
		{ DN_ACT_SWISH, 1, .731058579f, .927670512f },
		{ DN_ACT_SWISH, -2, -.238405844f, -.0907842488f },
		{ DN_ACT_MISH, 1, .865098388f, 1.04903622f },
		{ DN_ACT_MISH, -2, -.252501483f, -.108355093f },
		{ DN_ACT_MISH, 25, 25, 1 },
		{ DN_ACT_HARD_MISH, 3, 3, 1 },
		{ DN_ACT_HARD_MISH, -1, -.5f, 0 },
		{ DN_ACT_HARD_MISH, -1.5f, -.375f, -.5f },
		{ DN_ACT_HARD_MISH, -4, 0, 0 },
		{ DN_ACT_GELU, 1, .841191999f, 1.08296387f },
		{ DN_ACT_GELU, -.5f, -.154285954f, .132630019f },
	};

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 1);

		for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
			const struct dn_tensor one = t4(1, 1, 1, 1);
			float y = t[i].x, of, dy = 2, want = 2 * t[i].slope, bias = .5f, with = t[i].x - .5f, nan = NAN;

			CHECK_OK(r.be->bias_act(r.st, &one, &y, NULL, t[i].act));
			if (fabsf(y - t[i].y) > 2e-6f || isnan(y)) /* constants of .1 and the like are rounded once more */
				fprintf(stderr, "%s: activation %d of %g\n", (*b)->name, (int)t[i].act, (double)t[i].x);
			CHECK_CLOSE(&y, &t[i].y, 1, 2e-6);
			CHECK_OK(r.be->bias_act(r.st, &one, &with, &bias, t[i].act));
			CHECK_CLOSE(&with, &t[i].y, 1, 2e-6);
			of = dn_act_of_input(t[i].act) ? t[i].x : y;
			CHECK_OK(r.be->act_backward(r.st, &one, t[i].act, &of, &dy));
			CHECK_CLOSE(&dy, &want, 1, 2e-6);
			CHECK_OK(r.be->bias_act(r.st, &one, &nan, NULL, t[i].act));
			CU_ASSERT(isnan(nan));
		}
		rig_close(&r);
	}
}

static void bias_and_activation_of_cpu_equal_ref(void)
{
	struct rig ref = rig_open("ref", 1), cpu = rig_open("cpu", 2);
	static const int64_t shape[][3] = { { 2, 3, 7 }, { 5, 17, 1 }, { 3, 8, 1000 }, { 64, 300, 1 }, { 1, 1, 1 } };

	for (size_t s = 0; s < sizeof(shape) / sizeof(shape[0]); s++)
		for (int a = 0; a < DN_ACTS; a++) {
			int64_t c = shape[s][1], all = shape[s][0] * c * shape[s][2];
			const struct dn_tensor t = t4(shape[s][0], c, 1, shape[s][2]);
			float *x0 = randoms(all, 1), *b = randoms(c, 2), *g0 = randoms(all, 3), *db0 = floats(c),
			      *db1 = floats(c);
			float *x1, *g1;

			for (int64_t i = 0; i < all; i++)
				x0[i] *= 6;
			x1 = copy_of(x0, all);
			g1 = copy_of(g0, all);
			CHECK_OK(ref.be->bias_act(ref.st, &t, x0, a % 3 ? b : NULL, (enum dn_act)a));
			CHECK_OK(cpu.be->bias_act(cpu.st, &t, x1, a % 3 ? b : NULL, (enum dn_act)a));
			CHECK_CLOSE(x1, x0, all, 1e-6); /* a few last bits of expf and its kin */
			CHECK_OK(ref.be->act_backward(ref.st, &t, (enum dn_act)a, x0, g0));
			CHECK_OK(cpu.be->act_backward(cpu.st, &t, (enum dn_act)a, x0, g1));
			CHECK_CLOSE(g1, g0, all, 1e-6);
			CHECK_OK(ref.be->bias_backward(ref.st, &t, g0, db0, false));
			CHECK_OK(cpu.be->bias_backward(cpu.st, &t, g0, db1, false));
			CHECK_CLOSE(db1, db0, c, 1e-6);
			dn_free(x0);
			dn_free(x1);
			dn_free(b);
			dn_free(g0);
			dn_free(g1);
			dn_free(db0);
			dn_free(db1);
		}
	rig_close(&ref);
	rig_close(&cpu);
}

/* An exploding net is the same net over both: what is finite stays so until its own number does not fit. */
static void activations_of_large_numbers_are_the_same(void)
{
	static const float x[] = { 88, 89, 1e4f, 1e9f, 1e13f, 1e18f, 1e20f, 1e30f, 1e38f };
	struct rig ref = rig_open("ref", 1), cpu = rig_open("cpu", 1);
	const struct dn_tensor one = t4(1, 1, 1, 1);

	for (int i = 0; i < 2 * (int)(sizeof(x) / sizeof(x[0])); i++)
		for (int a = 0; a < DN_ACTS; a++) {
			const float in = i % 2 ? -x[i / 2] : x[i / 2];
			float y[2] = { in, in }, g[2] = { 2, 2 }, of;

			CHECK_OK(ref.be->bias_act(ref.st, &one, &y[0], NULL, (enum dn_act)a));
			CHECK_OK(cpu.be->bias_act(cpu.st, &one, &y[1], NULL, (enum dn_act)a));
			of = dn_act_of_input((enum dn_act)a) ? in : y[0];
			CHECK_OK(ref.be->act_backward(ref.st, &one, (enum dn_act)a, &of, &g[0]));
			CHECK_OK(cpu.be->act_backward(cpu.st, &one, (enum dn_act)a, &of, &g[1]));
			for (int k = 0; k < 2; k++) {
				const float want = k ? g[0] : y[0], got = k ? g[1] : y[1];
				const bool same = fabsf(got - want) <= 1e-6f * fabsf(want) + 1e-36f; /* expf underflows sooner */

				if (!same)
					fprintf(stderr, "%sactivation %d(%g): %g, wanted %g\n", k ? "twice the slope of " : "", a,
						(double)in, (double)got, (double)want);
				CU_ASSERT(same);
			}
		}
	rig_close(&ref);
	rig_close(&cpu);
}

static void bn_of_cpu_equals_ref_by_both_rules(void)
{
	struct rig ref = rig_open("ref", 1), cpu = rig_open("cpu", 2);
	static const int64_t shape[][3] = { { 2, 3, 7 }, { 4, 5, 49 }, { 16, 33, 1 }, { 3, 8, 1000 }, { 1, 2, 1 } };

	for (int v = 0; v < 4 * 5; v++) {
		struct dn_bn_desc d = { t4(shape[v / 4][0], shape[v / 4][1], 1, shape[v / 4][2]), v & 1,
					v & 2 ? DN_ACT_LEAKY : DN_ACT_LINEAR };
		int64_t c = d.x.c, n = dn_tensor_count(&d.x);
		/* one value a channel has variance 0: gradients are differences of equal numbers over 3e-3 */
		bool single = d.x.n * dn_tensor_plane(&d.x) == 1;
		float *x = randoms(n, 1), *s = randoms(c, 2), *b = randoms(c, 3), *dy = randoms(n, 4);
		float *y0 = floats(n), *y1 = floats(n), *m0 = floats(c), *m1 = floats(c), *v0 = floats(c), *v1 = floats(c);
		float *dx0 = randoms(n, 5), *dx1 = randoms(n, 5), *ds0 = floats(c), *ds1 = floats(c), *db0 = floats(c),
		      *db1 = floats(c);
		float *in_place;

		for (int64_t i = 0; i < n; i++)
			x[i] = x[i] * 3 + 10; /* far from 0: a sum of squares would lose the variance */
		CHECK_OK(ref.be->bn_forward_train(ref.st, &d, x, s, b, m0, v0, y0));
		CHECK_OK(cpu.be->bn_forward_train(cpu.st, &d, x, s, b, m1, v1, y1));
		CHECK_CLOSE(m1, m0, c, 1e-7);
		CHECK_CLOSE(v1, v0, c, 1e-6);
		CHECK_CLOSE(y1, y0, n, 2e-6);
		CHECK_OK(cpu.be->bn_forward(cpu.st, &d, x, s, b, m0, v0, y1));
		CHECK_CLOSE(y1, y0, n, 2e-6);
		for (int frozen = 0; frozen < 2; frozen++)
			for (int acc = 0; acc < 2; acc++) {
				CHECK_OK(ref.be->bn_backward(ref.st, &d, frozen, x, m0, v0, s, dy, dx0, acc, ds0, db0, false));
				CHECK_OK(cpu.be->bn_backward(cpu.st, &d, frozen, x, m0, v0, s, dy, dx1, acc, ds1, db1, false));
				if (!single) {
					CHECK_CLOSE(dx1, dx0, n, 5e-6);
					CHECK_CLOSE(ds1, ds0, c, 2e-6);
				}
				CHECK_CLOSE(db1, db0, c, 1e-6);
				for (int64_t i = 0; i < n; i++)
					CU_ASSERT_FATAL(isfinite(dx1[i]));
			}
		/* dx may be dy itself, or not wanted */
		in_place = copy_of(dy, n);
		CHECK_OK(cpu.be->bn_backward(cpu.st, &d, false, x, m0, v0, s, in_place, in_place, false, ds1, db1, false));
		CHECK_OK(cpu.be->bn_backward(cpu.st, &d, false, x, m0, v0, s, dy, dx1, false, ds1, db1, false));
		CHECK_BITS(in_place, dx1, (size_t)n * 4);
		CHECK_OK(cpu.be->bn_backward(cpu.st, &d, false, x, m0, v0, s, dy, NULL, false, ds1, db1, false));
		float *all[] = { x, s, b, dy, y0, y1, m0, m1, v0, v1, dx0, dx1, ds0, ds1, db0, db1, in_place };
		for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			dn_free(all[i]);
	}
	rig_close(&ref);
	rig_close(&cpu);
}

static void bn_legacy_follows_the_darknet_formulas(void)
{
	/* x = 1, 2, 4, 9: mean 4, squares 38; variance 38/3; divisor sqrt(38/3) + 1e-6 */
	const float x[] = { 1, 2, 4, 9 }, dy[] = { .5f, -1, 2, .25f };
	const float scale = 2, bias = .5f;
	const struct dn_bn_desc d = { t4(2, 1, 1, 2), true, DN_ACT_LINEAR };
	double v = 38. / 3, root = sqrt(v + 1e-5), sum = 0, sum_x = 0;

	for (int i = 0; i < 4; i++) {
		sum += (double)dy[i];
		sum_x += (double)dy[i] * ((double)x[i] - 4);
	}
	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 1);
		float mean, var, y[4], dx[4], ds, db, want[4], w;

		CHECK_OK(r.be->bn_forward_train(r.st, &d, x, &scale, &bias, &mean, &var, y));
		w = (float)v;
		CHECK_CLOSE(&var, &w, 1, 1e-7);
		for (int i = 0; i < 4; i++)
			want[i] = (float)(2 * ((double)x[i] - 4) / (sqrt(v) + 1e-6) + .5);
		CHECK_CLOSE(y, want, 4, 1e-6);
		CHECK_OK(r.be->bn_backward(r.st, &d, false, x, &mean, &var, &scale, dy, dx, false, &ds, &db, false));
		for (int i = 0; i < 4; i++) {
			double dmean = -2 * sum / root, dvar = -.5 * pow(v + 1e-5, -1.5) * 2 * sum_x;

			want[i] = (float)(2 * (double)dy[i] / root + 2 * ((double)x[i] - 4) * dvar / 4 + dmean / 4);
		}
		CHECK_CLOSE(dx, want, 4, 1e-6);
		w = (float)(sum_x / (sqrt(v) + 1e-6));
		CHECK_CLOSE(&ds, &w, 1, 1e-6);
		rig_close(&r);
	}
}

static void channel_sums_do_not_depend_on_threads(void)
{
	struct rig one = rig_open("cpu", 1), three = rig_open("cpu", 3);
	struct rig *r[] = { &one, &three };
	const struct dn_bn_desc d = { t4(5, 7, 17, 59), false, DN_ACT_LINEAR };
	int64_t n = dn_tensor_count(&d.x);
	float *x = randoms(n, 1), s[7] = { 1, 2, 3, 4, 5, 6, 7 }, b[7] = { 0 }, m[2][7], v[2][7], db[2][7], *y[2], *delta[2];
	double loss[2];

	for (int i = 0; i < 2; i++) {
		y[i] = floats(n);
		delta[i] = floats(n);
		CHECK_OK(r[i]->be->bn_forward_train(r[i]->st, &d, x, s, b, m[i], v[i], y[i]));
		CHECK_OK(r[i]->be->bias_backward(r[i]->st, &d.x, x, db[i], false));
		CHECK_OK(r[i]->be->cost(r[i]->st, DN_COST_SSE, &d.x, x, &d.x, y[i], delta[i], &loss[i]));
	}
	CHECK_BITS(m[0], m[1], sizeof(m[0]));
	CHECK_BITS(v[0], v[1], sizeof(v[0]));
	CHECK_BITS(db[0], db[1], sizeof(db[0]));
	CHECK_BITS(y[0], y[1], (size_t)n * 4);
	CHECK_BITS(&loss[0], &loss[1], sizeof(loss[0]));
	for (int i = 0; i < 2; i++) {
		dn_free(y[i]);
		dn_free(delta[i]);
		rig_close(r[i]);
	}
	dn_free(x);
}

static const struct check_case cases[] = {
	{ "activations_have_their_tabled_values", activations_have_their_tabled_values },
	{ "bias_and_activation_of_cpu_equal_ref", bias_and_activation_of_cpu_equal_ref },
	{ "activations_of_large_numbers_are_the_same", activations_of_large_numbers_are_the_same },
	{ "bn_of_cpu_equals_ref_by_both_rules", bn_of_cpu_equals_ref_by_both_rules },
	{ "bn_legacy_follows_the_darknet_formulas", bn_legacy_follows_the_darknet_formulas },
	{ "channel_sums_do_not_depend_on_threads", channel_sums_do_not_depend_on_threads },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend_act", cases);
}
