/* What the suites of the device contract share: a device with its stream, arrays, one list of convolutions. */
#ifndef DN_TESTS_BACKEND_HELP_H
#define DN_TESTS_BACKEND_HELP_H
#include "backend/backend.h"
#include "base/rng.h"
#include "check.h"

struct rig {
	const struct dn_backend *be;
	struct dn_device *dev;
	struct dn_stream *st;
};

__attribute__((unused)) static struct rig rig_open(const char *name, int threads)
{
	struct rig r = { 0 };

	r.be = dn_backend_find(name);
	CU_ASSERT_PTR_NOT_NULL_FATAL(r.be);
	CHECK_OK_FATAL(r.be->open(DN_CPU(threads), &r.dev));
	CHECK_OK_FATAL(r.be->stream_create(r.dev, DN_STREAM_COMPUTE, "compute", 0, &r.st));
	return r;
}

__attribute__((unused)) static void rig_close(struct rig *r)
{
	r->be->stream_destroy(r->st);
	r->be->close(r->dev);
}

__attribute__((unused)) static float *floats(int64_t n)
{
	float *p = dn_alloc_region(DN_MEM_HOST, (size_t)n * sizeof(*p));

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	return p;
}

/* even over [-1, 1), or [0, 1) where only that makes sense */
__attribute__((unused)) static float *randoms(int64_t n, uint64_t seed)
{
	float *p = floats(n);

	for (int64_t i = 0; i < n; i++)
		p[i] = (float)(2 * dn_rng_uniform(seed, 1, (uint64_t)i) - 1);
	return p;
}

__attribute__((unused)) static float *copy_of(const float *x, int64_t n)
{
	float *p = floats(n);

	memcpy(p, x, (size_t)n * sizeof(*p));
	return p;
}

/* of floats in plain layout */
__attribute__((unused)) static struct dn_tensor t4(int64_t n, int64_t c, int64_t h, int64_t w)
{
	struct dn_tensor t = { 0 };

	CHECK_OK_FATAL(dn_tensor_init(&t, "test", DN_F32, n, c, h, w));
	return t;
}

/* one softmax, made for this call */
__attribute__((unused)) static int softmax_once(const struct rig *r, const struct dn_softmax_desc *d, const float *x, float *y)
{
	struct dn_softmax *sm = NULL;
	int err = r->be->softmax_create(r->dev, d, &sm);

	if (!err)
		err = r->be->softmax_forward(r->st, sm, x, y);
	r->be->softmax_destroy(sm);
	return err;
}

struct conv_case {
	int64_t n, c, h, w, k, size, stride, pad, dilation, groups;
};

__attribute__((unused)) static struct dn_conv_desc conv_desc(const struct conv_case *t, bool train, bool bias, enum dn_act act)
{
	int64_t span = (t->size - 1) * t->dilation + 1;
	struct dn_conv_desc d = {
		.x = t4(t->n, t->c, t->h, t->w),
		.y = t4(t->n, t->k, (t->h + 2 * t->pad - span) / t->stride + 1, (t->w + 2 * t->pad - span) / t->stride + 1),
		.weights = DN_F32,
		.groups = t->groups,
		.size = t->size,
		.stride = t->stride,
		.pad = t->pad,
		.dilation = t->dilation,
		.bias = bias,
		.act = act,
		.train = train,
	};
	return d;
}

#define FENCE 256

/* @bytes of workspace with a fence behind: generated code is invisible to the address sanitizer */
__attribute__((unused)) static void *fenced(size_t bytes)
{
	char *p = dn_alloc_region(DN_MEM_HOST, bytes + FENCE);

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	memset(p, 0xa5, bytes + FENCE);
	return p;
}

__attribute__((unused)) static void fence_check(const void *p, size_t bytes)
{
	const unsigned char *f = (const unsigned char *)p + bytes;

	for (int i = 0; i < FENCE; i++)
		if (f[i] != 0xa5) {
			fprintf(stderr, "workspace of %zu bytes was overrun at +%d\n", bytes, i);
			CU_FAIL("workspace overrun");
			return;
		}
}
#endif
