/* The device contract: pooling and dropout. */
#include "backend_help.h"

static void pools_of_cpu_equal_ref(void)
{
	struct rig ref = rig_open("ref", 1), cpu = rig_open("cpu", 2);
	static const int64_t shape[][7] = {
		/* n c h w size stride pad */
		{ 2, 3, 8, 8, 2, 2, 1 },    { 2, 3, 13, 13, 2, 1, 1 }, { 1, 2, 7, 5, 3, 2, 2 }, { 1, 4, 9, 9, 5, 1, 4 },
		{ 4, 16, 30, 30, 3, 2, 2 }, { 1, 1, 1, 6, 2, 2, 1 },   { 1, 2, 3, 3, 3, 3, 0 }, { 1, 1, 2, 2, 2, 3, 8 },
	};

	for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
		const int64_t *t = shape[i];
		struct dn_pool_desc d = { t4(t[0], t[1], t[2], t[3]),
					  t4(t[0], t[1], (t[2] + t[6] - t[4]) / t[5] + 1, (t[3] + t[6] - t[4]) / t[5] + 1), t[4],
					  t[5], t[6] };
		int64_t nx = dn_tensor_count(&d.x), ny = dn_tensor_count(&d.y);
		float *x = randoms(nx, 1), *y0 = floats(ny), *y1 = floats(ny), *dy = randoms(ny, 2), *dx0 = randoms(nx, 3),
		      *dx1 = randoms(nx, 3);
		int32_t *i0 = dn_zalloc((size_t)ny * 4), *i1 = dn_zalloc((size_t)ny * 4);

		CHECK_OK(ref.be->maxpool_forward(ref.st, &d, x, y0, i0));
		CHECK_OK(cpu.be->maxpool_forward(cpu.st, &d, x, y1, i1));
		CHECK_BITS(y1, y0, (size_t)ny * 4);
		CHECK_BITS(i1, i0, (size_t)ny * 4);
		for (int acc = 1; acc >= 0; acc--) {
			CHECK_OK(ref.be->maxpool_backward(ref.st, &d, dy, i0, dx0, acc));
			CHECK_OK(cpu.be->maxpool_backward(cpu.st, &d, dy, i0, dx1, acc));
			CHECK_BITS(dx1, dx0, (size_t)nx * 4);
		}
		CHECK_OK(ref.be->avgpool_forward(ref.st, &d.x, x, y0));
		CHECK_OK(cpu.be->avgpool_forward(cpu.st, &d.x, x, y1));
		CHECK_CLOSE(y1, y0, d.x.n * d.x.c, 1e-6);
		for (int acc = 1; acc >= 0; acc--) {
			CHECK_OK(ref.be->avgpool_backward(ref.st, &d.x, dy, dx0, acc));
			CHECK_OK(cpu.be->avgpool_backward(cpu.st, &d.x, dy, dx1, acc));
			CHECK_BITS(dx1, dx0, (size_t)nx * 4);
		}
		dn_free(x);
		dn_free(y0);
		dn_free(y1);
		dn_free(dy);
		dn_free(dx0);
		dn_free(dx1);
		dn_free(i0);
		dn_free(i1);
	}
	rig_close(&ref);
	rig_close(&cpu);
}

static void maxpool_lets_nan_win_and_marks_empty_windows(void)
{
	const struct dn_pool_desc d = { t4(1, 1, 2, 2), t4(1, 1, 3, 3), 2, 2, 4 }; /* windows start at -2, 0, 2 */
	const struct dn_pool_desc four = { t4(1, 1, 2, 2), t4(1, 1, 1, 1), 2, 2, 0 };
	static const float nans[2][4] = { { 5, NAN, 7, NAN }, { NAN, 1, 2, 3 } };
	static const int want[2] = { 1, 0 };
	const float x[] = { -1, -3, -2, -4 }, low[] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY };

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 1);
		float y[9];
		int32_t index[9];

		CHECK_OK(r.be->maxpool_forward(r.st, &d, x, y, index));
		for (int i = 0; i < 9; i++) {
			CHECK_EQ(index[i], i == 4 ? 0 : -1);
			CU_ASSERT(y[i] == (i == 4 ? -1.0f : 0.0f));
		}
		for (int i = 0; i < 2; i++) {
			CHECK_OK(r.be->maxpool_forward(r.st, &four, nans[i], y, index));
			CU_ASSERT(isnan(y[0]));
			CHECK_EQ(index[0], want[i]);
		}
		CHECK_OK(r.be->maxpool_forward(r.st, &four, low, y, index));
		CHECK_EQ(index[0], 0);
		rig_close(&r);
	}
}

static void dropout_draws_by_image_and_element(void)
{
	const struct dn_dropout_key key = { DN_RNG_STREAM(DN_RNG_DROPOUT, 5), .3f };
	const struct dn_numbers num = { .seed = 42, .first_image = 10 }, second = { .seed = 42, .first_image = 12 };
	struct dn_dropout_key bad = key;

	bad.probability = 1.5f;
	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 2);
		int64_t per = 4099, n = 4 * per, kept = 0;
		const struct dn_tensor all = t4(4, per, 1, 1), half = t4(2, 1, 1, per);
		float *x = randoms(n, 1), *y = floats(n), *split = floats(n), *dx = copy_of(x, n);

		CHECK_OK(r.be->dropout_forward(r.st, &key, &num, &all, x, y));
		for (int64_t i = 0; i < n; i++) {
			uint32_t lanes[4];
			uint64_t j = (uint64_t)(i % per);

			dn_rng_block(42, DN_RNG_STREAM(DN_RNG_DROPOUT, 5), (10 + (uint64_t)(i / per)) * 1025 + j / 4, lanes);
			if (lanes[j % 4] / 4294967296.0 >= (double).3f) {
				kept++;
				CU_ASSERT_FATAL(y[i] == x[i] * (float)(1 / (1 - (double).3f)));
			} else {
				CU_ASSERT_FATAL(y[i] == 0);
			}
		}
		CU_ASSERT(fabs((double)kept / (double)n - .7) < .02); /* 6 sigma of 16396 draws */
		CHECK_OK(r.be->dropout_forward(r.st, &key, &num, &half, x, split));
		CHECK_OK(r.be->dropout_forward(r.st, &key, &second, &half, x + 2 * per, split + 2 * per));
		CHECK_BITS(split, y, (size_t)n * 4);
		CHECK_OK(r.be->dropout_backward(r.st, &key, &num, &all, x, split, false));
		CHECK_BITS(split, y, (size_t)n * 4);
		CHECK_OK(r.be->dropout_backward(r.st, &key, &num, &all, x, dx, true));
		for (int64_t i = 0; i < n; i++)
			CU_ASSERT_FATAL(dx[i] == x[i] + y[i]);
		CHECK_FAILS(r.be->dropout_forward(r.st, &bad, &num, &all, x, y), -EINVAL, "probability");
		dn_free(x);
		dn_free(y);
		dn_free(split);
		dn_free(dx);
		rig_close(&r);
	}
}

static const struct check_case cases[] = {
	{ "pools_of_cpu_equal_ref", pools_of_cpu_equal_ref },
	{ "maxpool_lets_nan_win_and_marks_empty_windows", maxpool_lets_nan_win_and_marks_empty_windows },
	{ "dropout_draws_by_image_and_element", dropout_draws_by_image_and_element },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend_pool", cases);
}
