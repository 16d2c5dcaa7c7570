/* The device contract: convolutions, cpu against ref. */
#include <errno.h>
#include "backend_help.h"

static const struct conv_case conv_cases[] = {
	{ 2, 3, 8, 8, 4, 3, 1, 1, 1, 1 },
	{ 1, 1, 5, 5, 1, 3, 1, 1, 1, 1 },
	{ 2, 16, 7, 9, 32, 3, 1, 1, 1, 1 },
	{ 2, 17, 6, 6, 33, 3, 1, 1, 1, 1 },
	{ 1, 32, 13, 13, 16, 3, 2, 1, 1, 1 },
	{ 2, 3, 17, 15, 8, 7, 2, 3, 1, 1 },
	{ 1, 3, 20, 20, 6, 11, 4, 2, 1, 1 },
	{ 3, 8, 6, 6, 8, 1, 1, 0, 1, 1 },
	{ 1, 64, 4, 4, 255, 1, 1, 0, 1, 1 },
	{ 2, 24, 8, 8, 24, 1, 1, 1, 1, 1 }, /* 1x1 with padding */
	{ 2, 5, 9, 1, 7, 3, 1, 1, 1, 1 },
	{ 2, 16, 33, 1, 16, 3, 1, 1, 1, 1 },
	{ 1, 16, 9, 2, 32, 3, 2, 1, 1, 1 },
	{ 1, 4, 1, 30, 4, 5, 1, 2, 1, 1 }, /* narrow */
	{ 2, 8, 3, 3, 8, 5, 1, 2, 1, 1 },
	{ 1, 16, 2, 2, 16, 7, 1, 3, 1, 1 },
	{ 1, 4, 1, 1, 4, 3, 1, 1, 1, 1 },
	{ 1, 16, 3, 3, 8, 5, 1, 1, 1, 1 }, /* kernel larger than the image */
	{ 2, 6, 9, 9, 6, 3, 1, 1, 1, 6 },
	{ 1, 32, 10, 10, 32, 3, 2, 1, 1, 32 },
	{ 1, 17, 7, 7, 17, 5, 1, 2, 1, 17 },
	{ 2, 8, 6, 6, 16, 3, 1, 1, 1, 8 }, /* depthwise, and with two filters a channel */
	{ 2, 12, 8, 8, 18, 3, 1, 1, 1, 3 },
	{ 1, 64, 6, 6, 64, 3, 1, 1, 1, 4 },
	{ 1, 8, 6, 6, 8, 1, 2, 0, 1, 2 },
	{ 1, 4, 12, 12, 8, 3, 1, 2, 2, 1 },
	{ 2, 16, 11, 11, 16, 3, 2, 3, 3, 1 },
	{ 1, 32, 9, 9, 32, 3, 1, 2, 2, 32 },
	{ 1, 5, 10, 10, 3, 4, 3, 1, 1, 1 },
	{ 2, 16, 10, 10, 16, 2, 2, 0, 1, 1 },
	{ 1, 3, 8, 8, 16, 3, 1, 5, 1, 1 },
	{ 1, 16, 10, 11, 16, 3, 4, 0, 1, 1 },
	{ 1, 1, 28, 28, 8, 5, 1, 2, 1, 1 },
	{ 1, 512, 3, 3, 64, 3, 1, 1, 1, 1 },
	/* weights that outweigh the data: one product over the batch, all passes above 2^20 weights */
	{ 3, 64, 2, 2, 80, 1, 1, 0, 1, 1 },
	{ 2, 96, 3, 2, 64, 1, 2, 1, 1, 1 },
	{ 2, 256, 3, 3, 512, 3, 1, 1, 1, 1 },
	{ 3, 260, 5, 4, 452, 3, 2, 1, 1, 1 },
	{ 2, 256, 1, 4, 512, 3, 1, 3, 2, 1 },
	{ 1, 512, 4, 4, 256, 3, 1, 0, 1, 1 },
};

/* float sums of up to 4608 products against sums in double: 1e-5 of the largest result leaves a factor of 5 */
#define CONV_TOL 1e-5

static void conv_compare(const struct rig *cpu, const struct rig *ref, const struct conv_case *t, bool bias, enum dn_act act)
{
	struct dn_conv_desc d = conv_desc(t, true, bias, act), di = conv_desc(t, false, bias, act);
	int64_t nx = dn_tensor_count(&d.x), ny = dn_tensor_count(&d.y), nw = d.y.c * d.x.c / d.groups * d.size * d.size;
	float *x = randoms(nx, 1), *w = randoms(nw, 2), *b = randoms(d.y.c, 3), *dy = randoms(ny, 4);
	float *y0 = floats(ny), *y1 = randoms(ny, 9), *dw0 = floats(nw), *dw1 = randoms(nw, 9);
	float *dx0 = randoms(nx, 5), *dx1 = randoms(nx, 5);
	struct dn_conv *c0 = NULL, *c1 = NULL, *ci = NULL;
	size_t ws_bytes, packed_bytes;
	void *ws, *packed = NULL;

	CHECK_OK_FATAL(ref->be->conv_create(ref->dev, &d, &c0));
	CHECK_OK_FATAL(cpu->be->conv_create(cpu->dev, &d, &c1));
	CHECK_OK_FATAL(cpu->be->conv_create(cpu->dev, &di, &ci));
	ws_bytes = cpu->be->conv_workspace_bytes(c1, false);
	ws = fenced(ws_bytes);
	CHECK_OK(ref->be->conv_forward(ref->st, c0, x, w, NULL, b, y0, NULL));
	CHECK_OK(cpu->be->conv_forward(cpu->st, c1, x, w, NULL, b, y1, ws));
	CHECK_CLOSE(y1, y0, ny, CONV_TOL);
	CHECK_OK(ref->be->conv_backward_weights(ref->st, c0, x, dy, dw0, false, NULL));
	CHECK_OK(cpu->be->conv_backward_weights(cpu->st, c1, x, dy, dw1, false, ws));
	CHECK_CLOSE(dw1, dw0, nw, CONV_TOL);
	for (int acc = 1; acc >= 0; acc--) {
		CHECK_OK(ref->be->conv_backward_data(ref->st, c0, dy, w, dx0, acc, NULL));
		CHECK_OK(cpu->be->conv_backward_data(cpu->st, c1, dy, w, dx1, acc, ws));
		CHECK_CLOSE(dx1, dx0, nx, CONV_TOL);
	}
	fence_check(ws, ws_bytes);
	dn_free(ws);

	ws_bytes = cpu->be->conv_workspace_bytes(ci, false);
	ws = fenced(ws_bytes);
	CHECK_OK(cpu->be->conv_forward(cpu->st, ci, x, w, NULL, b, y1, ws));
	CHECK_CLOSE(y1, y0, ny, CONV_TOL);
	packed_bytes = cpu->be->conv_packed_bytes(ci);
	if (packed_bytes) {
		packed = fenced(packed_bytes);
		CHECK_OK(cpu->be->conv_pack(cpu->st, ci, w, packed, ws));
		memset(y1, 0, (size_t)ny * sizeof(*y1));
		CHECK_OK(cpu->be->conv_forward(cpu->st, ci, x, NULL, packed, b, y1, ws));
		CHECK_CLOSE(y1, y0, ny, CONV_TOL);
		fence_check(packed, packed_bytes);
	}
	CHECK_FAILS(cpu->be->conv_backward_weights(cpu->st, ci, x, dy, dw1, false, ws), -EINVAL, "inference");
	fence_check(ws, ws_bytes);
	dn_free(ws);
	dn_free(packed);
	ref->be->conv_destroy(c0);
	cpu->be->conv_destroy(c1);
	cpu->be->conv_destroy(ci);
	float *all[] = { x, w, b, dy, y0, y1, dw0, dw1, dx0, dx1 };
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		dn_free(all[i]);
}

static void conv_of_cpu_equals_ref_on_every_shape(void)
{
	struct rig ref = rig_open("ref", 1);

	for (int threads = 1; threads <= 2; threads++) {
		struct rig cpu = rig_open("cpu", threads);

		for (size_t i = 0; i < sizeof(conv_cases) / sizeof(conv_cases[0]); i++) {
			unsigned failed = CU_get_number_of_failures();

			conv_compare(&cpu, &ref, &conv_cases[i], i % 2, DN_ACT_LINEAR);
			if (CU_get_number_of_failures() != failed)
				fprintf(stderr, "  in shape %zu with %d threads\n", i, threads);
		}
		rig_close(&cpu);
	}
	rig_close(&ref);
}

static void conv_with_stride_is_right_on_1_to_17_channels(void)
{
	struct rig ref = rig_open("ref", 1), cpu = rig_open("cpu", 2);

	for (int64_t c = 1; c <= 17; c++) {
		struct conv_case t = { 2, c, 7, 6, 18 - c, 1, 2, 0, 1, 1 };

		conv_compare(&cpu, &ref, &t, true, DN_ACT_LINEAR);
		t.size = 3;
		t.pad = 1;
		conv_compare(&cpu, &ref, &t, false, DN_ACT_LINEAR);
	}
	rig_close(&ref);
	rig_close(&cpu);
}

static void conv_applies_every_activation(void)
{
	struct rig ref = rig_open("ref", 1), cpu = rig_open("cpu", 2);
	const struct conv_case t = { 2, 8, 6, 6, 16, 3, 1, 1, 1, 1 };

	for (int a = 0; a < DN_ACTS; a++)
		if (a != DN_ACT_STAIR) /* jumps: a last bit before it decides */
			conv_compare(&cpu, &ref, &t, true, (enum dn_act)a);
	rig_close(&ref);
	rig_close(&cpu);
}

static void conv_does_not_hide_a_nan_behind_an_activation(void)
{
	struct rig cpu = rig_open("cpu", 1);
	static const struct conv_case shapes[] = { { 1, 16, 5, 5, 16, 3, 1, 1, 1, 1 }, { 1, 64, 3, 3, 64, 1, 1, 0, 1, 1 } };

	for (int a = 0; a < DN_ACTS; a++)
		for (int s = 0; s < 2; s++) {
			struct dn_conv_desc d = conv_desc(&shapes[s], true, true, (enum dn_act)a);
			int64_t nx = dn_tensor_count(&d.x), ny = dn_tensor_count(&d.y);
			float *x = randoms(nx, 1), *w = randoms(d.y.c * d.x.c * d.size * d.size, 2), *y = floats(ny);
			float *b = randoms(d.y.c, 3);
			struct dn_conv *cv = NULL;
			void *ws;

			CHECK_OK_FATAL(cpu.be->conv_create(cpu.dev, &d, &cv));
			ws = fenced(cpu.be->conv_workspace_bytes(cv, false));
			w[(d.size * d.size) / 2] = NAN;
			CHECK_OK(cpu.be->conv_forward(cpu.st, cv, x, w, NULL, b, y, ws));
			if (!isnan(y[4]))
				fprintf(stderr, "activation %d, shape %d: %g\n", a, s, (double)y[4]);
			CU_ASSERT(isnan(y[4]));
			cpu.be->conv_destroy(cv);
			dn_free(ws);
			dn_free(x);
			dn_free(w);
			dn_free(y);
			dn_free(b);
		}
	rig_close(&cpu);
}

static void conv_repeats_its_bits(void)
{
	for (int threads = 1; threads <= 3; threads++) {
		struct rig cpu = rig_open("cpu", threads);
		const struct conv_case shapes[] = { { 4, 32, 16, 16, 32, 3, 1, 1, 1, 1 },
						    { 8, 3, 16, 16, 8, 3, 1, 1, 1, 1 },
						    { 1, 256, 3, 3, 512, 1, 1, 0, 1, 1 } };

		for (int s = 0; s < 3; s++) {
			struct dn_conv_desc d = conv_desc(&shapes[s], true, true, DN_ACT_LEAKY);
			int64_t nx = dn_tensor_count(&d.x), ny = dn_tensor_count(&d.y), nw = d.y.c * d.x.c * d.size * d.size;
			float *x = randoms(nx, 1), *w = randoms(nw, 2), *b = randoms(d.y.c, 3), *dy = randoms(ny, 4);
			float *y[2], *dw[2], *dx[2];

			for (int i = 0; i < 2; i++) { /* a new object and a new workspace each time */
				struct dn_conv *cv = NULL;
				void *ws;

				y[i] = floats(ny);
				dw[i] = floats(nw);
				dx[i] = floats(nx);
				CHECK_OK_FATAL(cpu.be->conv_create(cpu.dev, &d, &cv));
				ws = fenced(cpu.be->conv_workspace_bytes(cv, false));
				for (int rep = 0; rep < 5; rep++) {
					CHECK_OK(cpu.be->conv_forward(cpu.st, cv, x, w, NULL, b, y[i], ws));
					CHECK_OK(cpu.be->conv_backward_weights(cpu.st, cv, x, dy, dw[i], false, ws));
					CHECK_OK(cpu.be->conv_backward_data(cpu.st, cv, dy, w, dx[i], false, ws));
					if (i) {
						CHECK_BITS(y[1], y[0], (size_t)ny * 4);
						CHECK_BITS(dw[1], dw[0], (size_t)nw * 4);
						CHECK_BITS(dx[1], dx[0], (size_t)nx * 4);
					}
				}
				dn_free(ws);
				cpu.be->conv_destroy(cv);
			}
			for (int i = 0; i < 2; i++) {
				dn_free(y[i]);
				dn_free(dw[i]);
				dn_free(dx[i]);
			}
			dn_free(x);
			dn_free(w);
			dn_free(b);
			dn_free(dy);
		}
		rig_close(&cpu);
	}
}

static void conv_refuses_bad_shapes_with_a_reason(void)
{
	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 1);
		struct conv_case good = { 1, 4, 8, 8, 4, 3, 1, 1, 1, 1 };
		struct dn_conv_desc d = conv_desc(&good, true, true, DN_ACT_LINEAR), bad = d;
		struct dn_conv *cv = NULL;

		bad.groups = 3;
		CHECK_FAILS(r.be->conv_create(r.dev, &bad, &cv), -EINVAL, "groups");
		bad = d;
		bad.size = 11;
		CHECK_FAILS(r.be->conv_create(r.dev, &bad, &cv), -EINVAL, "does not fit");
		bad = d;
		bad.y.w = 7;
		CHECK_FAILS(r.be->conv_create(r.dev, &bad, &cv), -EINVAL, "must be 8x8");
		bad = d;
		bad.x.n = 0;
		CHECK_FAILS(r.be->conv_create(r.dev, &bad, &cv), -EINVAL, "positive");
		bad = d;
		bad.x.n = bad.y.n = INT64_MAX / 2;
		CHECK_EQ(r.be->conv_create(r.dev, &bad, &cv), -EOVERFLOW);
		CU_ASSERT_PTR_NULL(cv);
		rig_close(&r);
	}
}

static void conv_passes_allocate_nothing_of_ours(void)
{
	struct rig cpu = rig_open("cpu", 2);
	const struct conv_case t = { 2, 16, 8, 8, 16, 3, 1, 1, 1, 1 };
	struct dn_conv_desc d = conv_desc(&t, true, true, DN_ACT_RELU);
	float *x = randoms(2048, 1), *w = randoms(2304, 2), *b = randoms(16, 3), *y = floats(2048), *dw = floats(2304);
	struct dn_conv *cv = NULL;
	uint64_t allocs;
	void *ws;

	CHECK_OK_FATAL(cpu.be->conv_create(cpu.dev, &d, &cv));
	ws = fenced(cpu.be->conv_workspace_bytes(cv, false));
	allocs = dn_mem_n_allocs();
	CHECK_OK(cpu.be->conv_forward(cpu.st, cv, x, w, NULL, b, y, ws));
	CHECK_OK(cpu.be->conv_backward_weights(cpu.st, cv, x, y, dw, false, ws));
	CHECK_OK(cpu.be->conv_backward_data(cpu.st, cv, y, w, x, true, ws));
	CHECK_EQ(dn_mem_n_allocs(), allocs);
	cpu.be->conv_destroy(cv);
	dn_free(ws);
	dn_free(x);
	dn_free(w);
	dn_free(b);
	dn_free(y);
	dn_free(dw);
	rig_close(&cpu);
}

static const struct check_case cases[] = {
	{ "conv_of_cpu_equals_ref_on_every_shape", conv_of_cpu_equals_ref_on_every_shape },
	{ "conv_with_stride_is_right_on_1_to_17_channels", conv_with_stride_is_right_on_1_to_17_channels },
	{ "conv_applies_every_activation", conv_applies_every_activation },
	{ "conv_does_not_hide_a_nan_behind_an_activation", conv_does_not_hide_a_nan_behind_an_activation },
	{ "conv_repeats_its_bits", conv_repeats_its_bits },
	{ "conv_refuses_bad_shapes_with_a_reason", conv_refuses_bad_shapes_with_a_reason },
	{ "conv_passes_allocate_nothing_of_ours", conv_passes_allocate_nothing_of_ours },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend_conv", cases);
}
