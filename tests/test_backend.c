/* The device contract: ref against finite differences and formulas, cpu against ref, streams and events. */
#include <errno.h>
#include <float.h>
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include "backend/backend.h"
#include "base/rng.h"
#include "base/thread.h"
#include "check.h"

struct rig {
	const struct dn_backend *be;
	struct dn_device *dev;
	struct dn_stream *st;
};

static struct rig rig_open(const char *name, int threads)
{
	struct rig r = { 0 };

	r.be = dn_backend_find(name);
	CU_ASSERT_PTR_NOT_NULL_FATAL(r.be);
	CHECK_OK_FATAL(r.be->open(threads, &r.dev));
	CHECK_OK_FATAL(r.be->stream_create(r.dev, DN_STREAM_COMPUTE, "compute", &r.st));
	return r;
}

static void rig_close(struct rig *r)
{
	r->be->stream_destroy(r->st);
	r->be->close(r->dev);
}

static float *floats(int64_t n)
{
	float *p = dn_alloc_region(DN_MEM_HOST, (size_t)n * sizeof(*p));

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	return p;
}

/* even over [-1, 1), or [0, 1) where only that makes sense */
static float *randoms(int64_t n, uint64_t seed)
{
	float *p = floats(n);

	for (int64_t i = 0; i < n; i++)
		p[i] = (float)(2 * dn_rng_uniform(seed, 1, (uint64_t)i) - 1);
	return p;
}

static float *copy_of(const float *x, int64_t n)
{
	float *p = floats(n);

	memcpy(p, x, (size_t)n * sizeof(*p));
	return p;
}

/* --- names --- */

static void names_are_found_and_unknown_ones_list_the_choices(void)
{
	enum dn_act act = DN_ACTS;

	for (int a = 0; a < DN_ACTS; a++) {
		CHECK_OK(dn_act_find(dn_act_name((enum dn_act)a), &act));
		CHECK_EQ(act, a);
		CU_ASSERT_PTR_NOT_NULL(strstr(dn_act_names(), dn_act_name((enum dn_act)a)));
	}
	CHECK_EQ(dn_act_find("mush", &act), -EINVAL);
	CHECK_EQ(dn_act_find("", &act), -EINVAL);
	CU_ASSERT_PTR_NULL(dn_backend_find("gpu9"));
	CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), "cpu, ref"));
}

static void device_tells_facts_and_memory(void)
{
	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 2);
		struct dn_facts f;
		size_t n_free = 0, total = 0;
		struct dn_device *none = NULL;
		void *p = NULL;

		r.be->facts(r.dev, &f);
		CHECK_STR(f.backend, (*b)->name);
		CHECK_EQ(f.align_bytes, DN_ALIGN);
		CHECK_OK(r.be->memory(r.dev, &n_free, &total));
		CU_ASSERT(n_free > 0 && n_free <= total);
		CHECK_OK(r.be->alloc(r.dev, DN_MEM_WORKSPACE, 1000, &p));
		CHECK_EQ((uintptr_t)p % DN_ALIGN, 0);
		CHECK_EQ(((char *)p)[999], 0);
		r.be->free(r.dev, p);
		p = NULL;
		CHECK_FAILS(r.be->alloc(r.dev, DN_MEM_ACTIVATIONS, total + (1 << 20), &p), -ENOMEM, "activations: ");
		CU_ASSERT_PTR_NULL(p);
		rig_close(&r);
		CHECK_FAILS((*b)->open(0, &none), -EINVAL, "threads");
		CU_ASSERT_PTR_NULL(none);
	}
}

/* --- convolution --- */

struct conv_case {
	int64_t n, c, h, w, k, size, stride, pad, dilation, groups;
};

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

static struct dn_conv_desc conv_desc(const struct conv_case *t, bool train, bool bias, enum dn_act act)
{
	int64_t span = (t->size - 1) * t->dilation + 1;
	struct dn_conv_desc d = {
		.n = t->n,
		.c = t->c,
		.h = t->h,
		.w = t->w,
		.k = t->k,
		.groups = t->groups,
		.size = t->size,
		.stride = t->stride,
		.pad = t->pad,
		.dilation = t->dilation,
		.bias = bias,
		.act = act,
		.train = train,
		.oh = (t->h + 2 * t->pad - span) / t->stride + 1,
		.ow = (t->w + 2 * t->pad - span) / t->stride + 1,
	};
	return d;
}

#define FENCE 256

/* @bytes of workspace with a fence behind: generated code is invisible to the address sanitizer */
static void *fenced(size_t bytes)
{
	char *p = dn_alloc_region(DN_MEM_HOST, bytes + FENCE);

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	memset(p, 0xa5, bytes + FENCE);
	return p;
}

static void fence_check(const void *p, size_t bytes)
{
	const unsigned char *f = (const unsigned char *)p + bytes;

	for (int i = 0; i < FENCE; i++)
		if (f[i] != 0xa5) {
			fprintf(stderr, "workspace of %zu bytes was overrun at +%d\n", bytes, i);
			CU_FAIL("workspace overrun");
			return;
		}
}

/* float sums of up to 4608 products against sums in double: 1e-5 of the largest result leaves a factor of 5 */
#define CONV_TOL 1e-5

static void conv_compare(const struct rig *cpu, const struct rig *ref, const struct conv_case *t, bool bias, enum dn_act act)
{
	struct dn_conv_desc d = conv_desc(t, true, bias, act), di = conv_desc(t, false, bias, act);
	int64_t nx = d.n * d.c * d.h * d.w, ny = d.n * d.k * d.oh * d.ow, nw = d.k * d.c / d.groups * d.size * d.size;
	float *x = randoms(nx, 1), *w = randoms(nw, 2), *b = randoms(d.k, 3), *dy = randoms(ny, 4);
	float *y0 = floats(ny), *y1 = randoms(ny, 9), *dw0 = floats(nw), *dw1 = randoms(nw, 9);
	float *dx0 = randoms(nx, 5), *dx1 = randoms(nx, 5);
	struct dn_conv *c0 = NULL, *c1 = NULL, *ci = NULL;
	size_t ws_bytes, packed_bytes;
	void *ws, *packed = NULL;

	CHECK_OK_FATAL(ref->be->conv_create(ref->dev, &d, &c0));
	CHECK_OK_FATAL(cpu->be->conv_create(cpu->dev, &d, &c1));
	CHECK_OK_FATAL(cpu->be->conv_create(cpu->dev, &di, &ci));
	ws_bytes = cpu->be->conv_workspace_bytes(c1);
	ws = fenced(ws_bytes);
	CHECK_OK(ref->be->conv_forward(ref->st, c0, x, w, NULL, b, y0, NULL));
	CHECK_OK(cpu->be->conv_forward(cpu->st, c1, x, w, NULL, b, y1, ws));
	CHECK_CLOSE(y1, y0, ny, CONV_TOL);
	CHECK_OK(ref->be->conv_backward_weights(ref->st, c0, x, dy, dw0, NULL));
	CHECK_OK(cpu->be->conv_backward_weights(cpu->st, c1, x, dy, dw1, ws));
	CHECK_CLOSE(dw1, dw0, nw, CONV_TOL);
	for (int acc = 1; acc >= 0; acc--) {
		CHECK_OK(ref->be->conv_backward_data(ref->st, c0, dy, w, dx0, acc, NULL));
		CHECK_OK(cpu->be->conv_backward_data(cpu->st, c1, dy, w, dx1, acc, ws));
		CHECK_CLOSE(dx1, dx0, nx, CONV_TOL);
	}
	fence_check(ws, ws_bytes);
	dn_free(ws);

	ws_bytes = cpu->be->conv_workspace_bytes(ci);
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
	CHECK_FAILS(cpu->be->conv_backward_weights(cpu->st, ci, x, dy, dw1, ws), -EINVAL, "inference");
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
			int64_t nx = d.n * d.c * d.h * d.w, ny = d.n * d.k * d.oh * d.ow;
			float *x = randoms(nx, 1), *w = randoms(d.k * d.c * d.size * d.size, 2), *y = floats(ny);
			float *b = randoms(d.k, 3);
			struct dn_conv *cv = NULL;
			void *ws;

			CHECK_OK_FATAL(cpu.be->conv_create(cpu.dev, &d, &cv));
			ws = fenced(cpu.be->conv_workspace_bytes(cv));
			w[(d.size * d.size) / 2] = NAN;
			CHECK_OK(cpu.be->conv_forward(cpu.st, cv, x, w, NULL, b, y, ws));
			if (!isnan(y[4]))
				fprintf(stderr, "activation %s, shape %d: %g\n", dn_act_name((enum dn_act)a), s, (double)y[4]);
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
			int64_t nx = d.n * d.c * d.h * d.w, ny = d.n * d.k * d.oh * d.ow, nw = d.k * d.c * d.size * d.size;
			float *x = randoms(nx, 1), *w = randoms(nw, 2), *b = randoms(d.k, 3), *dy = randoms(ny, 4);
			float *y[2], *dw[2], *dx[2];

			for (int i = 0; i < 2; i++) { /* a new object and a new workspace each time */
				struct dn_conv *cv = NULL;
				void *ws;

				y[i] = floats(ny);
				dw[i] = floats(nw);
				dx[i] = floats(nx);
				CHECK_OK_FATAL(cpu.be->conv_create(cpu.dev, &d, &cv));
				ws = fenced(cpu.be->conv_workspace_bytes(cv));
				for (int rep = 0; rep < 5; rep++) {
					CHECK_OK(cpu.be->conv_forward(cpu.st, cv, x, w, NULL, b, y[i], ws));
					CHECK_OK(cpu.be->conv_backward_weights(cpu.st, cv, x, dy, dw[i], ws));
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
		bad.ow = 7;
		CHECK_FAILS(r.be->conv_create(r.dev, &bad, &cv), -EINVAL, "must be 8x8");
		bad = d;
		bad.n = 0;
		CHECK_FAILS(r.be->conv_create(r.dev, &bad, &cv), -EINVAL, "positive");
		bad = d;
		bad.n = INT64_MAX / 2;
		CHECK_EQ(r.be->conv_create(r.dev, &bad, &cv), -EOVERFLOW);
		CU_ASSERT_PTR_NULL(cv);
		rig_close(&r);
	}
}

static void cpu_leaves_the_callers_thread_count_alone(void)
{
	struct rig cpu = rig_open("cpu", 3);
	int before = omp_get_max_threads();
	float a[4] = { 1, 2, 3, 4 }, c[4];

	CHECK_OK(cpu.be->gemm(cpu.st, false, false, 2, 2, 2, 1, a, 2, a, 2, 0, c, 2));
	CHECK_EQ(omp_get_max_threads(), before);
	CU_ASSERT(c[0] == 7 && c[1] == 10 && c[2] == 15 && c[3] == 22);
	rig_close(&cpu);
}

/* --- finite differences: L = sum g * y in double; delta = -dL/dy = -g, and backward ops give -dL/d(input) --- */

static double dot(const float *g, const float *y, int64_t n)
{
	double s = 0;

	for (int64_t i = 0; i < n; i++)
		s += (double)g[i] * (double)y[i];
	return s;
}

#define FD_STEP 1e-2f
/* outputs are rounded to float, 6e-8 over a step of 1e-2; second differences of bn and softmax are of 1e-4 */
#define FD_TOL 1e-3

/* -dL/dp for every p[i], by central differences; @loss recomputes L */
static void differences(float *p, int64_t n, double (*loss)(void *arg), void *arg, float *out)
{
	for (int64_t i = 0; i < n; i++) {
		float keep = p[i];
		double up, down;
		volatile float hi = keep + FD_STEP, lo = keep - FD_STEP;

		p[i] = hi;
		up = loss(arg);
		p[i] = lo;
		down = loss(arg);
		p[i] = keep;
		out[i] = (float)(-(up - down) / ((double)hi - (double)lo));
	}
}

struct conv_fd {
	struct rig *r;
	struct dn_conv *cv;
	float *x, *w, *b, *y, *g;
	int64_t ny;
};

static double conv_loss(void *arg)
{
	struct conv_fd *f = arg;

	CHECK_OK(f->r->be->conv_forward(f->r->st, f->cv, f->x, f->w, NULL, f->b, f->y, NULL));
	return dot(f->g, f->y, f->ny);
}

static void conv_gradients_of_ref_are_finite_differences(void)
{
	struct rig r = rig_open("ref", 1);
	static const struct conv_case shapes[] = { { 2, 3, 5, 4, 4, 3, 2, 1, 1, 1 }, { 1, 4, 6, 6, 6, 3, 1, 2, 2, 2 } };

	for (int s = 0; s < 2; s++) {
		struct dn_conv_desc d = conv_desc(&shapes[s], true, true, DN_ACT_LINEAR);
		int64_t nx = d.n * d.c * d.h * d.w, ny = d.n * d.k * d.oh * d.ow;
		int64_t nw = d.k * d.c / d.groups * d.size * d.size;
		struct conv_fd f = { &r, NULL, randoms(nx, 1), randoms(nw, 2), randoms(d.k, 3), floats(ny), randoms(ny, 4), ny };
		float *dy = floats(ny), *got = floats(nx + nw), *want = floats(nx + nw);

		CHECK_OK_FATAL(r.be->conv_create(r.dev, &d, &f.cv));
		for (int64_t i = 0; i < ny; i++)
			dy[i] = -f.g[i];
		CHECK_OK(r.be->conv_backward_data(r.st, f.cv, dy, f.w, got, false, NULL));
		differences(f.x, nx, conv_loss, &f, want);
		CHECK_CLOSE(got, want, nx, FD_TOL);
		CHECK_OK(r.be->conv_backward_weights(r.st, f.cv, f.x, dy, got, NULL));
		differences(f.w, nw, conv_loss, &f, want);
		CHECK_CLOSE(got, want, nw, FD_TOL);
		CHECK_OK(r.be->bias_backward(r.st, d.n, d.k, d.oh * d.ow, dy, got));
		differences(f.b, d.k, conv_loss, &f, want);
		CHECK_CLOSE(got, want, d.k, FD_TOL);
		r.be->conv_destroy(f.cv);
		dn_free(f.x);
		dn_free(f.w);
		dn_free(f.b);
		dn_free(f.y);
		dn_free(f.g);
		dn_free(dy);
		dn_free(got);
		dn_free(want);
	}
	rig_close(&r);
}

struct bn_fd {
	struct rig *r;
	struct dn_bn_desc d;
	bool frozen;
	float *x, *scale, *bias, *mean, *var, *y, *g;
	int64_t n;
};

static double bn_loss(void *arg)
{
	struct bn_fd *f = arg;

	if (f->frozen)
		CHECK_OK(f->r->be->bn_forward(f->r->st, &f->d, f->x, f->scale, f->bias, f->mean, f->var, f->y));
	else
		CHECK_OK(f->r->be->bn_forward_train(f->r->st, &f->d, f->x, f->scale, f->bias, f->mean, f->var, f->y));
	return dot(f->g, f->y, f->n);
}

static void bn_gradients_of_ref_are_finite_differences(void)
{
	struct rig r = rig_open("ref", 1);

	for (int frozen = 0; frozen < 3; frozen++) { /* 2: legacy, which is exact with constant statistics only */
		int64_t c = 3, n = 4 * c * 6;
		struct bn_fd f = { &r,
				   { 4, c, 6, frozen == 2, DN_ACT_LINEAR },
				   frozen > 0,
				   randoms(n, 1),
				   randoms(c, 2),
				   randoms(c, 3),
				   floats(c),
				   floats(c),
				   floats(n),
				   randoms(n, 4),
				   n };
		float *dy = floats(n), *dx = floats(n), *ds = floats(c), *db = floats(c), *want = floats(n);

		for (int64_t i = 0; i < n; i++)
			dy[i] = -f.g[i];
		for (int64_t i = 0; i < c; i++) {
			f.mean[i] = .1f * (float)i;
			f.var[i] = .3f + (float)i;
		}
		bn_loss(&f);
		CHECK_OK(r.be->bn_backward(r.st, &f.d, f.frozen, f.x, f.mean, f.var, f.scale, dy, dx, false, ds, db));
		differences(f.x, n, bn_loss, &f, want);
		CHECK_CLOSE(dx, want, n, FD_TOL);
		differences(f.scale, c, bn_loss, &f, want);
		CHECK_CLOSE(ds, want, c, FD_TOL);
		differences(f.bias, c, bn_loss, &f, want);
		CHECK_CLOSE(db, want, c, FD_TOL);
		float *all[] = { f.x, f.scale, f.bias, f.mean, f.var, f.y, f.g, dy, dx, ds, db, want };
		for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			dn_free(all[i]);
	}
	rig_close(&r);
}

struct pool_fd {
	struct rig *r;
	struct dn_pool_desc d;
	float *x, *y, *g;
	int32_t *index;
};

static double pool_loss(void *arg)
{
	struct pool_fd *f = arg;

	CHECK_OK(f->r->be->maxpool_forward(f->r->st, &f->d, f->x, f->y, f->index));
	return dot(f->g, f->y, f->d.n * f->d.c * f->d.oh * f->d.ow);
}

static void pool_gradients_of_ref_are_finite_differences(void)
{
	struct rig r = rig_open("ref", 1);
	struct pool_fd f = { &r, { 1, 2, 6, 7, 3, 4, 3, 2, 2 }, floats(84), floats(24), randoms(24, 2), NULL };
	float dy[24], dx[84], want[84];

	f.index = dn_alloc(24 * sizeof(int32_t));
	for (int i = 0; i < 84; i++) /* all apart by more than a step, so no winner changes */
		f.x[i] = (float)(i * 37 % 84) * .05f;
	for (int i = 0; i < 24; i++)
		dy[i] = -f.g[i];
	pool_loss(&f);
	CHECK_OK(r.be->maxpool_backward(r.st, &f.d, dy, f.index, dx, false));
	differences(f.x, 84, pool_loss, &f, want);
	CHECK_CLOSE(dx, want, 84, FD_TOL);
	dn_free(f.x);
	dn_free(f.y);
	dn_free(f.g);
	dn_free(f.index);
	rig_close(&r);
}

struct ce_fd {
	struct rig *r;
	float x[15], y[15], t[15], delta[15];
};

static double ce_loss(void *arg)
{
	struct ce_fd *f = arg;
	double loss = -1;

	CHECK_OK(f->r->be->softmax(f->r->st, 3, 5, 1, f->x, f->y));
	CHECK_OK(f->r->be->cost(f->r->st, DN_COST_SOFTMAX_CE, 15, f->y, f->t, f->delta, &loss));
	return loss;
}

static void softmax_ce_delta_is_minus_the_gradient(void)
{
	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 1);
		struct ce_fd f = { .r = &r };
		float want[15], got[15];

		for (int i = 0; i < 15; i++)
			f.x[i] = (float)sin(i * 1.7) * 2;
		f.t[2] = f.t[5] = f.t[14] = 1;
		differences(f.x, 15, ce_loss, &f, want);
		ce_loss(&f);
		memcpy(got, f.delta, sizeof(got));
		CHECK_CLOSE(got, want, 15, FD_TOL);
		rig_close(&r);
	}
}

/* --- activations --- */

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
			float y = t[i].x, of, dy = 2, want = 2 * t[i].slope, bias = .5f, with = t[i].x - .5f, nan = NAN;

			CHECK_OK(r.be->bias_act(r.st, 1, 1, 1, &y, NULL, t[i].act));
			if (fabsf(y - t[i].y) > 2e-6f || isnan(y)) /* constants of .1 and the like are rounded once more */
				fprintf(stderr, "%s %s(%g)\n", (*b)->name, dn_act_name(t[i].act), (double)t[i].x);
			CHECK_CLOSE(&y, &t[i].y, 1, 2e-6);
			CHECK_OK(r.be->bias_act(r.st, 1, 1, 1, &with, &bias, t[i].act));
			CHECK_CLOSE(&with, &t[i].y, 1, 2e-6);
			of = dn_act_of_input(t[i].act) ? t[i].x : y;
			CHECK_OK(r.be->act_backward(r.st, t[i].act, 1, &of, &dy));
			CHECK_CLOSE(&dy, &want, 1, 2e-6);
			CHECK_OK(r.be->bias_act(r.st, 1, 1, 1, &nan, NULL, t[i].act));
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
			int64_t n = shape[s][0], c = shape[s][1], hw = shape[s][2], all = n * c * hw;
			float *x0 = randoms(all, 1), *b = randoms(c, 2), *g0 = randoms(all, 3), *db0 = floats(c),
			      *db1 = floats(c);
			float *x1, *g1;

			for (int64_t i = 0; i < all; i++)
				x0[i] *= 6;
			x1 = copy_of(x0, all);
			g1 = copy_of(g0, all);
			CHECK_OK(ref.be->bias_act(ref.st, n, c, hw, x0, a % 3 ? b : NULL, (enum dn_act)a));
			CHECK_OK(cpu.be->bias_act(cpu.st, n, c, hw, x1, a % 3 ? b : NULL, (enum dn_act)a));
			CHECK_CLOSE(x1, x0, all, 1e-6); /* a few last bits of expf and its kin */
			CHECK_OK(ref.be->act_backward(ref.st, (enum dn_act)a, all, x0, g0));
			CHECK_OK(cpu.be->act_backward(cpu.st, (enum dn_act)a, all, x0, g1));
			CHECK_CLOSE(g1, g0, all, 1e-6);
			CHECK_OK(ref.be->bias_backward(ref.st, n, c, hw, g0, db0));
			CHECK_OK(cpu.be->bias_backward(cpu.st, n, c, hw, g0, db1));
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

/* --- batch normalisation --- */

static void bn_of_cpu_equals_ref_by_both_rules(void)
{
	struct rig ref = rig_open("ref", 1), cpu = rig_open("cpu", 2);
	static const int64_t shape[][3] = { { 2, 3, 7 }, { 4, 5, 49 }, { 16, 33, 1 }, { 3, 8, 1000 }, { 1, 2, 1 } };

	for (int v = 0; v < 4 * 5; v++) {
		struct dn_bn_desc d = { shape[v / 4][0], shape[v / 4][1], shape[v / 4][2], v & 1,
					v & 2 ? DN_ACT_LEAKY : DN_ACT_LINEAR };
		int64_t c = d.c, n = d.n * c * d.hw;
		/* one value a channel has variance 0: gradients are differences of equal numbers over 3e-3 */
		bool single = d.n * d.hw == 1;
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
				CHECK_OK(ref.be->bn_backward(ref.st, &d, frozen, x, m0, v0, s, dy, dx0, acc, ds0, db0));
				CHECK_OK(cpu.be->bn_backward(cpu.st, &d, frozen, x, m0, v0, s, dy, dx1, acc, ds1, db1));
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
		CHECK_OK(cpu.be->bn_backward(cpu.st, &d, false, x, m0, v0, s, in_place, in_place, false, ds1, db1));
		CHECK_OK(cpu.be->bn_backward(cpu.st, &d, false, x, m0, v0, s, dy, dx1, false, ds1, db1));
		CHECK_BITS(in_place, dx1, (size_t)n * 4);
		CHECK_OK(cpu.be->bn_backward(cpu.st, &d, false, x, m0, v0, s, dy, NULL, false, ds1, db1));
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
	const struct dn_bn_desc d = { 2, 1, 2, true, DN_ACT_LINEAR };
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
		CHECK_OK(r.be->bn_backward(r.st, &d, false, x, &mean, &var, &scale, dy, dx, false, &ds, &db));
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
	const struct dn_bn_desc d = { 5, 7, 1003, false, DN_ACT_LINEAR };
	int64_t n = d.n * d.c * d.hw;
	float *x = randoms(n, 1), s[7] = { 1, 2, 3, 4, 5, 6, 7 }, b[7] = { 0 }, m[2][7], v[2][7], db[2][7], *y[2], *delta[2];
	double loss[2];

	for (int i = 0; i < 2; i++) {
		y[i] = floats(n);
		delta[i] = floats(n);
		CHECK_OK(r[i]->be->bn_forward_train(r[i]->st, &d, x, s, b, m[i], v[i], y[i]));
		CHECK_OK(r[i]->be->bias_backward(r[i]->st, d.n, d.c, d.hw, x, db[i]));
		CHECK_OK(r[i]->be->cost(r[i]->st, DN_COST_SSE, n, x, y[i], delta[i], &loss[i]));
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

/* --- pooling --- */

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
		struct dn_pool_desc d = {
			t[0], t[1], t[2], t[3], (t[2] + t[6] - t[4]) / t[5] + 1, (t[3] + t[6] - t[4]) / t[5] + 1, t[4], t[5], t[6]
		};
		int64_t nx = d.n * d.c * d.h * d.w, ny = d.n * d.c * d.oh * d.ow;
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
		CHECK_OK(ref.be->avgpool_forward(ref.st, d.n * d.c, d.h * d.w, x, y0));
		CHECK_OK(cpu.be->avgpool_forward(cpu.st, d.n * d.c, d.h * d.w, x, y1));
		CHECK_CLOSE(y1, y0, d.n * d.c, 1e-6);
		for (int acc = 1; acc >= 0; acc--) {
			CHECK_OK(ref.be->avgpool_backward(ref.st, d.n * d.c, d.h * d.w, dy, dx0, acc));
			CHECK_OK(cpu.be->avgpool_backward(cpu.st, d.n * d.c, d.h * d.w, dy, dx1, acc));
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
	const struct dn_pool_desc d = { 1, 1, 2, 2, 3, 3, 2, 2, 4 }; /* windows start at -2, 0, 2 */
	const struct dn_pool_desc four = { 1, 1, 2, 2, 1, 1, 2, 2, 0 };
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

/* --- dropout --- */

static void dropout_draws_by_image_and_element(void)
{
	const struct dn_dropout_key key = { 42, DN_RNG_STREAM(DN_RNG_DROPOUT, 5), 10, .3f };
	struct dn_dropout_key second = key, bad = key;

	second.first_image = 12;
	bad.probability = 1.5f;
	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 2);
		int64_t per = 4099, n = 4 * per, kept = 0;
		float *x = randoms(n, 1), *y = floats(n), *split = floats(n), *dx = copy_of(x, n);

		CHECK_OK(r.be->dropout_forward(r.st, &key, 4, per, x, y));
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
		CHECK_OK(r.be->dropout_forward(r.st, &key, 2, per, x, split));
		CHECK_OK(r.be->dropout_forward(r.st, &second, 2, per, x + 2 * per, split + 2 * per));
		CHECK_BITS(split, y, (size_t)n * 4);
		CHECK_OK(r.be->dropout_backward(r.st, &key, 4, per, x, split, false));
		CHECK_BITS(split, y, (size_t)n * 4);
		CHECK_OK(r.be->dropout_backward(r.st, &key, 4, per, x, dx, true));
		for (int64_t i = 0; i < n; i++)
			CU_ASSERT_FATAL(dx[i] == x[i] + y[i]);
		CHECK_FAILS(r.be->dropout_forward(r.st, &bad, 4, per, x, y), -EINVAL, "probability");
		dn_free(x);
		dn_free(y);
		dn_free(split);
		dn_free(dx);
		rig_close(&r);
	}
}

/* --- softmax, cost, products, copies --- */

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
		CHECK_OK(r.be->softmax(r.st, 2, 3, 2, x, y));
		CHECK_CLOSE(y, want, 6, 2e-7);
		rig_close(&r);
	}
}

static void cost_sums_and_deltas_are_exact(void)
{
	const float p[] = { .5f, .25f, 0, 1 }, t[] = { 1, 0, 1, 0 };

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 1);
		float delta[4];
		const float want[] = { .5f, -.25f, 1, -1 };
		double loss;

		CHECK_OK(r.be->cost(r.st, DN_COST_SSE, 4, p, t, delta, &loss));
		CU_ASSERT(loss == .25 + .0625 + 1 + 1);
		CHECK_BITS(delta, want, sizeof(want));
		CHECK_OK(r.be->cost(r.st, DN_COST_SOFTMAX_CE, 4, p, t, delta, &loss));
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
	};

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 2);
		double loss;

		for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
			CHECK_OK(r.be->softmax_loss(r.st, 1, 4, c[i].temperature, c[i].x, c[i].t, &loss));
			if (fabs(loss - c[i].want) > 1e-12 * c[i].want)
				fprintf(stderr, "%s, case %zu: %.15g\n", (*b)->name, i, loss);
			CU_ASSERT(fabs(loss - c[i].want) <= 1e-12 * c[i].want);
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
			float *a = randoms((m + k) * (lda + 1), 1), *b = randoms((n + k + 1) * (ldb + 1), 2);
			float *c0 = randoms(m * ldc, 3), *c1 = randoms(m * ldc, 3);

			if (beta[v / 4] == 0)
				for (int64_t j = 0; j < m * ldc; j++) /* must not be read */
					c0[j] = c1[j] = j % ldc < n ? NAN : 7;
			CHECK_OK(ref.be->gemm(ref.st, ta, tb, m, n, k, .75f, a, lda, b, ldb, beta[v / 4], c0, ldc));
			CHECK_OK(cpu.be->gemm(cpu.st, ta, tb, m, n, k, .75f, a, lda, b, ldb, beta[v / 4], c1, ldc));
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
	const struct dn_shortcut_desc d = { 1, 4, 4, 1, 2, 2, 2, 3, 10 };
	const float direct[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	const float want[] = { 3, 26, 89, 112, 5, 6, 7, 8 };
	float src[16], out[8];
	struct dn_shortcut_desc bad = d;

	for (int i = 0; i < 16; i++)
		src[i] = (float)i;
	CHECK_OK(ref.be->shortcut_forward(ref.st, &d, direct, src, out));
	CHECK_BITS(out, want, sizeof(want));
	bad.h1 = 2;
	CHECK_FAILS(cpu.be->shortcut_forward(cpu.st, &bad, direct, src, out), -EINVAL, "ratio");
	for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
		const int64_t *t = shape[i];
		struct dn_shortcut_desc s = { t[0], t[1], t[2], t[3], t[4], t[5], t[6], .5f, 2 };
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

		CHECK_OK(r.be->copy_rows(r.st, 2, 2, src, 3, dst, 4, false));
		CHECK_BITS(dst, rows, sizeof(rows));
		CHECK_OK(r.be->copy_rows(r.st, 2, 2, src, 3, dst, 4, true));
		CHECK_BITS(dst, twice, sizeof(twice));
		CHECK_OK(r.be->axpby(r.st, 3, .5f, src, 0, y));
		CHECK_BITS(y, half, sizeof(half));
		CHECK_OK(r.be->axpby(r.st, 3, 1, src, 2, y));
		CHECK_BITS(y, sum, sizeof(sum));
		CHECK_OK(r.be->count_nonfinite(r.st, 7, odd, &count));
		CHECK_EQ(count, 4);
		CHECK_OK(r.be->copy(r.st, y, src + 1, sizeof(y)));
		CHECK_BITS(y, src + 1, sizeof(y));
		CHECK_OK(r.be->zero(r.st, y, sizeof(y)));
		CU_ASSERT(y[0] == 0 && y[1] == 0 && y[2] == 0);
		rig_close(&r);
	}
}

/* --- updates and sums --- */

static void sgd_bits_do_not_depend_on_position(void)
{
	struct rig one = rig_open("cpu", 1), two = rig_open("cpu", 2), ref = rig_open("ref", 1);
	int64_t n = 40000;
	float *w = randoms(n, 1), *v = randoms(n, 2), *g = randoms(n, 3), *ww = copy_of(w, n), *vv = copy_of(v, n);
	static const int64_t offset[] = { 0, 1, 3, 5, 16, 17 };

	CHECK_OK(two.be->sgd(two.st, n, ww, vv, g, .01f, .9f, .0005f));
	for (int64_t i = 0; i < n; i++) { /* the formula itself, rounded at every step */
		volatile float a = .9f * v[i], b = .0005f * w[i], c = a + g[i], u = c - b, d = .01f * u, e = w[i] + d;

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
			CHECK_OK(r->be->sgd(r->st, len, qw, qv, qg, .01f, .9f, .0005f));
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

static void sum_tree_adds_in_the_fixed_order(void)
{
	static const int64_t lengths[] = { 1, 511, 512, 513, 20001 };

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++)
		for (int kind = 0; kind < 2; kind++) {
			struct rig r = rig_open((*b)->name, 2);
			struct dn_stream *comm = NULL, *st;

			CHECK_OK_FATAL(r.be->stream_create(r.dev, DN_STREAM_COMM, "reduce", &comm));
			st = kind ? comm : r.st;
			for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++)
				for (int parts = 1; parts <= 9; parts++) {
					int64_t n = lengths[l];
					float *p[9], *out = randoms(n, 77), *was = copy_of(out, n), *sum = floats(n),
						     *added = floats(n);

					for (int i = 0; i < parts; i++)
						p[i] = randoms(n, (uint64_t)i);
					for (int64_t j = 0; j < n; j++) {
						float e[9];

						for (int i = 0; i < parts; i++)
							e[i] = p[i][j];
						sum[j] = explicit_tree(parts, e);
						added[j] = was[j] + sum[j];
					}
					CHECK_OK(r.be->sum_tree(st, n, parts, (const float *const *)p, out, true));
					CHECK_BITS(out, added, (size_t)n * 4);
					CHECK_OK(r.be->sum_tree(st, n, parts, (const float *const *)p, out, false));
					CHECK_BITS(out, sum, (size_t)n * 4);
					CHECK_OK(r.be->sum_tree(st, n, parts, (const float *const *)p, p[parts / 2], false));
					CHECK_BITS(p[parts / 2], sum, (size_t)n * 4);
					for (int i = 0; i < parts; i++)
						dn_free(p[i]);
					dn_free(out);
					dn_free(was);
					dn_free(sum);
					dn_free(added);
				}
			CHECK_FAILS(r.be->sum_tree(st, 1, 0, NULL, NULL, false), -EINVAL, "parts");
			r.be->stream_destroy(comm);
			rig_close(&r);
		}
}

/* --- streams and events --- */

struct probe {			      /* a task under the test's control */
	atomic_int starts, polls, go; /* go: poll says done */
	int err;		      /* of start, when go is not needed */
	struct order *order;
	int id;
};

struct order { /* in which tasks ended; written by the progress thread only */
	int ids[64], n;
};

static int probe_start(void *arg)
{
	struct probe *p = arg;

	p->starts++;
	return p->err ? dn_fail(p->err, "task %d broke", p->id) : 0;
}

static int probe_poll(void *arg, bool *done)
{
	struct probe *p = arg;

	p->polls++;
	*done = p->go;
	if (*done && p->order)
		p->order->ids[p->order->n++] = p->id;
	return 0;
}

static void probe_describe(void *arg, char *out, size_t cap)
{
	snprintf(out, cap, "rank 2 has not sent piece %d", ((struct probe *)arg)->id);
}

static struct dn_task probe_task(struct probe *p)
{
	struct dn_task t = { probe_start, probe_poll, probe_describe, p, "gather of block b" };

	return t;
}

static int submit(struct rig *r, struct dn_stream *st, struct probe *p)
{
	struct dn_task t = probe_task(p);

	return r->be->stream_submit(st, &t);
}

struct comm_rig {
	struct rig r;
	struct dn_stream *a, *b;
	struct dn_event *e, *f;
};

static struct comm_rig comm_open(void)
{
	struct comm_rig c = { .r = rig_open("cpu", 1) };

	CHECK_OK_FATAL(c.r.be->stream_create(c.r.dev, DN_STREAM_COMM, "gather", &c.a));
	CHECK_OK_FATAL(c.r.be->stream_create(c.r.dev, DN_STREAM_COMM, "reduce", &c.b));
	CHECK_OK_FATAL(c.r.be->event_create(c.r.dev, "e", &c.e));
	CHECK_OK_FATAL(c.r.be->event_create(c.r.dev, "f", &c.f));
	c.r.be->set_timeout(c.r.dev, 60000); /* a fault ends the test, not the patience of whoever runs it */
	return c;
}

static void comm_close(struct comm_rig *c)
{
	c->r.be->stream_destroy(c->a);
	c->r.be->stream_destroy(c->b);
	c->r.be->event_destroy(c->e);
	c->r.be->event_destroy(c->f);
	rig_close(&c->r);
}

static void comm_stream_runs_tasks_in_order_and_starts_each_once(void)
{
	struct comm_rig c = comm_open();
	struct order order = { .n = 0 };
	struct probe p[40] = { 0 };

	for (int i = 0; i < 40; i++) {
		p[i].order = &order;
		p[i].id = i;
		p[i].go = i != 0;
		CHECK_OK(submit(&c.r, c.a, &p[i]));
	}
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	CU_ASSERT(!c.r.be->event_done(c.e));
	while (!p[0].polls)
		sched_yield();
	CHECK_EQ(p[1].starts, 0);
	p[0].go = 1;
	CHECK_OK(c.r.be->event_wait(c.e));
	CU_ASSERT(c.r.be->event_done(c.e));
	CHECK_EQ(order.n, 40);
	for (int i = 0; i < 40; i++) {
		CHECK_EQ(order.ids[i], i);
		CHECK_EQ(p[i].starts, 1);
	}
	CHECK_OK(c.r.be->stream_sync(c.a));
	comm_close(&c);
}

static void streams_do_not_wait_for_each_other_unless_told(void)
{
	struct comm_rig c = comm_open();
	struct order order = { .n = 0 };
	struct probe stuck = { .id = 1, .order = &order }, free_task = { .id = 2, .go = 1, .order = &order },
		     behind = { .id = 3, .go = 1, .order = &order };

	CHECK_OK(submit(&c.r, c.a, &stuck));
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	CHECK_OK(submit(&c.r, c.b, &free_task));
	CHECK_OK(c.r.be->stream_sync(c.b)); /* passes although stream a hangs */
	CHECK_OK(c.r.be->stream_wait(c.b, c.e));
	CHECK_OK(submit(&c.r, c.b, &behind));
	CHECK_OK(c.r.be->event_record(c.f, c.b));
	CU_ASSERT(!c.r.be->event_done(c.f));
	CHECK_EQ(behind.starts, 0);
	stuck.go = 1;
	CHECK_OK(c.r.be->stream_wait(c.r.st, c.f)); /* the compute stream blocks here */
	CHECK_EQ(order.n, 3);
	CHECK_EQ(order.ids[0], 2);
	CHECK_EQ(order.ids[1], 1);
	CHECK_EQ(order.ids[2], 3);
	comm_close(&c);
}

static void event_never_recorded_is_complete_and_compute_records_at_once(void)
{
	struct comm_rig c = comm_open();
	struct probe p = { .go = 1 };

	CU_ASSERT(c.r.be->event_done(c.e));
	CHECK_OK(c.r.be->event_wait(c.e));
	CHECK_OK(c.r.be->stream_wait(c.r.st, c.e));
	CHECK_OK(c.r.be->stream_wait(c.a, c.e));
	CHECK_OK(c.r.be->event_record(c.e, c.r.st));
	CU_ASSERT(c.r.be->event_done(c.e));
	CHECK_OK(c.r.be->stream_wait(c.a, c.e));
	CHECK_OK(submit(&c.r, c.a, &p));
	CHECK_OK(c.r.be->stream_sync(c.a));
	CHECK_EQ(p.starts, 1);
	CHECK_EQ(c.r.be->waited_ns(c.r.dev), 0);
	comm_close(&c);
}

static void wait_means_the_latest_record_before_it(void)
{
	struct comm_rig c = comm_open();
	struct probe first = { .go = 1 }, second = { 0 }, waiter = { .go = 1 };

	CHECK_OK(submit(&c.r, c.a, &first));
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	CHECK_OK(c.r.be->event_wait(c.e));
	CHECK_OK(c.r.be->stream_wait(c.b, c.e)); /* of the first record: passes */
	CHECK_OK(submit(&c.r, c.a, &second));
	CHECK_OK(c.r.be->event_record(c.e, c.a)); /* recorded anew, pending */
	CHECK_OK(submit(&c.r, c.b, &waiter));
	CHECK_OK(c.r.be->stream_sync(c.b));
	CHECK_EQ(waiter.starts, 1);
	CU_ASSERT(!c.r.be->event_done(c.e));
	/* another stream's later record does not complete the pending one */
	CHECK_OK(c.r.be->stream_wait(c.b, c.e));     /* of the second record */
	CHECK_OK(c.r.be->event_record(c.e, c.r.st)); /* third, complete at once */
	CU_ASSERT(c.r.be->event_done(c.e));
	CHECK_OK(c.r.be->event_wait(c.e));
	CHECK_OK(c.r.be->event_record(c.f, c.b));
	CU_ASSERT(!c.r.be->event_done(c.f)); /* still behind the second */
	second.go = 1;
	CHECK_OK(c.r.be->event_wait(c.f));
	for (int step = 0; step < 500; step++) {
		struct probe p = { .go = 1 };

		CHECK_OK(submit(&c.r, c.a, &p));
		CHECK_OK(c.r.be->event_record(c.e, c.a));
		CHECK_OK(c.r.be->stream_wait(c.r.st, c.e));
		CHECK_EQ(p.starts, 1);
	}
	comm_close(&c);
}

static void first_error_sticks_to_its_stream(void)
{
	struct comm_rig c = comm_open();
	struct probe hold = { .id = 0 }, broken = { .err = -EIO, .id = 7 }, skipped = { .go = 1, .id = 8 },
		     other = { .go = 1, .id = 9 }, after = { .go = 1, .id = 10 };

	CHECK_OK(submit(&c.r, c.a, &hold)); /* so that all is queued before the failure */
	CHECK_OK(submit(&c.r, c.a, &broken));
	CHECK_OK(submit(&c.r, c.a, &skipped));
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	CHECK_OK(c.r.be->stream_wait(c.b, c.e));
	CHECK_OK(submit(&c.r, c.b, &after));
	hold.go = 1;
	dn_message_clear();
	CHECK_FAILS(c.r.be->stream_wait(c.r.st, c.e), -EIO, "task 7 broke");
	CHECK_FAILS(c.r.be->event_wait(c.e), -EIO, "task 7 broke");
	CHECK_FAILS(c.r.be->stream_sync(c.a), -EIO, "task 7 broke");
	CHECK_FAILS(submit(&c.r, c.a, &other), -EIO, "task 7 broke");
	CU_ASSERT(c.r.be->event_done(c.e));
	CHECK_EQ(skipped.starts, 0);
	CHECK_EQ(other.starts, 0);
	/* and travels to a stream that waited for it */
	CHECK_FAILS(c.r.be->stream_sync(c.b), -EIO, "task 7 broke");
	CHECK_EQ(after.starts, 0);
	comm_close(&c);
}

static void late_task_fails_and_says_what_it_waits_for(void)
{
	struct comm_rig c = comm_open();
	struct probe p = { .id = 3 };

	c.r.be->set_timeout(c.r.dev, 50);
	CHECK_OK(submit(&c.r, c.a, &p));
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	CHECK_FAILS(c.r.be->event_wait(c.e), DN_EPEER_LATE, "gather of block b: waited 0.1 s: rank 2 has not sent piece 3");
	CHECK_FAILS(c.r.be->stream_sync(c.a), DN_EPEER_LATE, "rank 2");
	CU_ASSERT(c.r.be->waited_ns(c.r.dev) >= 40000000);
	comm_close(&c);
}

static void host_wait_ends_when_nobody_completes_the_event(void)
{
	struct comm_rig c = comm_open();
	struct probe p = { .id = 3 };

	c.r.be->set_timeout(c.r.dev, 0); /* the task may hang for ever */
	CHECK_OK(submit(&c.r, c.a, &p));
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	while (!p.polls)
		sched_yield();
	c.r.be->set_timeout(c.r.dev, 10);
	CHECK_FAILS(c.r.be->event_wait(c.e), DN_EPEER_LATE, "event e: waited 2.0 s");
	comm_close(&c);
}

static void close_and_destroy_do_not_wait_for_a_hanging_task(void)
{
	struct comm_rig c = comm_open();
	struct probe p = { 0 };
	int64_t start;

	CHECK_OK(submit(&c.r, c.a, &p));
	CHECK_OK(c.r.be->event_record(c.e, c.a));
	while (!p.polls)
		sched_yield();
	start = dn_now_ns();
	c.r.be->stream_destroy(c.a);
	CHECK_FAILS(c.r.be->event_wait(c.e), -ECANCELED, "stream gather was destroyed");
	CHECK_OK_FATAL(c.r.be->stream_create(c.r.dev, DN_STREAM_COMM, "gather", &c.a));
	CHECK_OK(submit(&c.r, c.a, &p));
	comm_close(&c);
	CU_ASSERT(dn_now_ns() - start < 5000000000); /* it would be for ever */
}

static void full_queue_is_an_error_and_allocates_nothing(void)
{
	struct comm_rig c = comm_open();
	struct probe hold = { 0 }, p = { .go = 1 };
	uint64_t allocs;

	CHECK_OK(submit(&c.r, c.a, &hold));
	allocs = dn_mem_n_allocs();
	for (int i = 0; i < 4095; i++)
		CHECK_OK_FATAL(submit(&c.r, c.a, &p));
	CHECK_FAILS(submit(&c.r, c.a, &p), -EAGAIN, "queue is full");
	CHECK_FAILS(c.r.be->event_record(c.e, c.a), -EAGAIN, "4096");
	CHECK_EQ(dn_mem_n_allocs(), allocs);
	hold.go = 1;
	CHECK_OK(c.r.be->stream_sync(c.a));
	CHECK_EQ(p.starts, 4095);
	CHECK_OK(submit(&c.r, c.a, &p));
	CHECK_OK(c.r.be->stream_sync(c.a));
	comm_close(&c);
}

static void tasks_belong_on_communication_streams(void)
{
	struct comm_rig c = comm_open();
	struct probe p = { .go = 1 };
	float x[4] = { 1, 2, 3, 4 }, y[4] = { 0 };

	CHECK_FAILS(submit(&c.r, c.r.st, &p), -EINVAL, "communication");
	CHECK_OK(submit(&c.r, c.a, &p));
	CHECK_OK(c.r.be->copy(c.a, y, x, sizeof(x))); /* in the queue's order */
	CHECK_OK(c.r.be->zero(c.a, y, 4));
	CHECK_OK(c.r.be->stream_sync(c.a));
	CU_ASSERT(y[0] == 0 && y[1] == 2 && y[3] == 4);
	comm_close(&c);
}

struct sum_task {
	struct rig *r;
	struct dn_stream *st;
	const float *parts[3];
	float out[3];
};

static int sum_start(void *arg)
{
	struct sum_task *s = arg;
	int err = s->r->be->copy(s->st, s->out, s->parts[0], sizeof(s->out)); /* inline: we are the stream */

	return err ? err : s->r->be->sum_tree(s->st, 3, 3, s->parts, s->out, true);
}

static void tasks_may_use_ops_on_their_own_stream(void)
{
	struct comm_rig c = comm_open();
	const float a[] = { 1, 2, 3 }, b[] = { 10, 20, 30 }, d[] = { 100, 200, 300 }, want[] = { 112, 224, 336 };
	struct sum_task s = { &c.r, c.a, { a, b, d }, { 0 } };
	struct dn_task t = { sum_start, NULL, NULL, &s, "sum" };

	CHECK_OK(c.r.be->stream_submit(c.a, &t));
	CHECK_OK(c.r.be->stream_sync(c.a));
	CHECK_BITS(s.out, want, sizeof(want));
	comm_close(&c);
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
	ws = fenced(cpu.be->conv_workspace_bytes(cv));
	allocs = dn_mem_n_allocs();
	CHECK_OK(cpu.be->conv_forward(cpu.st, cv, x, w, NULL, b, y, ws));
	CHECK_OK(cpu.be->conv_backward_weights(cpu.st, cv, x, y, dw, ws));
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

static void failed_allocations_leak_nothing(void)
{
	const struct conv_case t = { 1, 4, 5, 5, 4, 3, 1, 1, 1, 1 };
	struct dn_conv_desc d = conv_desc(&t, true, true, DN_ACT_LEAKY);
	const struct dn_backend *be = dn_backend_find("cpu");
	struct dn_mem_stats before, after;
	bool passed = false;

	dn_mem_stats(DN_MEM_HOST, &before);
	for (uint64_t n = 1; n < 50 && !passed; n++) {
		struct dn_device *dev = NULL;
		struct dn_stream *st = NULL;
		struct dn_event *ev = NULL;
		struct dn_conv *cv = NULL;

		dn_mem_fail_at(n);
		passed = !be->open(1, &dev) && !be->stream_create(dev, DN_STREAM_COMM, "s", &st) &&
			 !be->event_create(dev, "e", &ev) && !be->conv_create(dev, &d, &cv);
		dn_mem_fail_at(0);
		be->conv_destroy(cv);
		be->event_destroy(ev);
		be->stream_destroy(st);
		be->close(dev);
	}
	CU_ASSERT(passed);
	dn_mem_stats(DN_MEM_HOST, &after);
	CHECK_EQ(after.now_bytes, before.now_bytes);
}

static const struct check_case cases[] = {
	{ "names_are_found_and_unknown_ones_list_the_choices", names_are_found_and_unknown_ones_list_the_choices },
	{ "device_tells_facts_and_memory", device_tells_facts_and_memory },
	{ "conv_of_cpu_equals_ref_on_every_shape", conv_of_cpu_equals_ref_on_every_shape },
	{ "conv_with_stride_is_right_on_1_to_17_channels", conv_with_stride_is_right_on_1_to_17_channels },
	{ "conv_applies_every_activation", conv_applies_every_activation },
	{ "conv_does_not_hide_a_nan_behind_an_activation", conv_does_not_hide_a_nan_behind_an_activation },
	{ "conv_repeats_its_bits", conv_repeats_its_bits },
	{ "conv_refuses_bad_shapes_with_a_reason", conv_refuses_bad_shapes_with_a_reason },
	{ "conv_passes_allocate_nothing_of_ours", conv_passes_allocate_nothing_of_ours },
	{ "cpu_leaves_the_callers_thread_count_alone", cpu_leaves_the_callers_thread_count_alone },
	{ "conv_gradients_of_ref_are_finite_differences", conv_gradients_of_ref_are_finite_differences },
	{ "bn_gradients_of_ref_are_finite_differences", bn_gradients_of_ref_are_finite_differences },
	{ "pool_gradients_of_ref_are_finite_differences", pool_gradients_of_ref_are_finite_differences },
	{ "softmax_ce_delta_is_minus_the_gradient", softmax_ce_delta_is_minus_the_gradient },
	{ "activations_have_their_tabled_values", activations_have_their_tabled_values },
	{ "bias_and_activation_of_cpu_equal_ref", bias_and_activation_of_cpu_equal_ref },
	{ "bn_of_cpu_equals_ref_by_both_rules", bn_of_cpu_equals_ref_by_both_rules },
	{ "bn_legacy_follows_the_darknet_formulas", bn_legacy_follows_the_darknet_formulas },
	{ "channel_sums_do_not_depend_on_threads", channel_sums_do_not_depend_on_threads },
	{ "pools_of_cpu_equal_ref", pools_of_cpu_equal_ref },
	{ "maxpool_lets_nan_win_and_marks_empty_windows", maxpool_lets_nan_win_and_marks_empty_windows },
	{ "dropout_draws_by_image_and_element", dropout_draws_by_image_and_element },
	{ "softmax_survives_large_inputs_and_uses_temperature", softmax_survives_large_inputs_and_uses_temperature },
	{ "cost_sums_and_deltas_are_exact", cost_sums_and_deltas_are_exact },
	{ "softmax_losses_keep_their_digits_near_one_and_far_from_it",
	  softmax_losses_keep_their_digits_near_one_and_far_from_it },
	{ "gemm_of_cpu_equals_ref_in_every_orientation", gemm_of_cpu_equals_ref_in_every_orientation },
	{ "shortcut_overlaps_as_darknet_does", shortcut_overlaps_as_darknet_does },
	{ "rows_copies_and_counts_agree", rows_copies_and_counts_agree },
	{ "sgd_bits_do_not_depend_on_position", sgd_bits_do_not_depend_on_position },
	{ "sum_tree_adds_in_the_fixed_order", sum_tree_adds_in_the_fixed_order },
	{ "comm_stream_runs_tasks_in_order_and_starts_each_once", comm_stream_runs_tasks_in_order_and_starts_each_once },
	{ "streams_do_not_wait_for_each_other_unless_told", streams_do_not_wait_for_each_other_unless_told },
	{ "event_never_recorded_is_complete_and_compute_records_at_once",
	  event_never_recorded_is_complete_and_compute_records_at_once },
	{ "wait_means_the_latest_record_before_it", wait_means_the_latest_record_before_it },
	{ "first_error_sticks_to_its_stream", first_error_sticks_to_its_stream },
	{ "late_task_fails_and_says_what_it_waits_for", late_task_fails_and_says_what_it_waits_for },
	{ "host_wait_ends_when_nobody_completes_the_event", host_wait_ends_when_nobody_completes_the_event },
	{ "close_and_destroy_do_not_wait_for_a_hanging_task", close_and_destroy_do_not_wait_for_a_hanging_task },
	{ "full_queue_is_an_error_and_allocates_nothing", full_queue_is_an_error_and_allocates_nothing },
	{ "tasks_belong_on_communication_streams", tasks_belong_on_communication_streams },
	{ "tasks_may_use_ops_on_their_own_stream", tasks_may_use_ops_on_their_own_stream },
	{ "failed_allocations_leak_nothing", failed_allocations_leak_nothing },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend", cases);
}
