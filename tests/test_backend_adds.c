/* NOTE(added gradients): an op that adds to a param's gradient gives what it would have written, plus what was there. */
#include "backend_help.h"

/* @got was @was before an op added @own to it; float additions of two numbers have one result, whatever their order */
static void added(const char *what, const float *got, const float *was, const float *own, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		volatile float want = was[i] + own[i];

		if (got[i] != want) {
			fprintf(stderr, "%s: element %lld is %.9g, not %.9g + %.9g\n", what, (long long)i, (double)got[i],
				(double)was[i], (double)own[i]);
			CU_FAIL("not the sum");
			return;
		}
	}
	CU_PASS("sum");
}

static const struct conv_case convs[] = {
	{ 3, 4, 6, 6, 8, 3, 1, 1, 1, 1 },   { 2, 16, 7, 9, 32, 3, 1, 1, 1, 1 },	  { 1, 64, 4, 4, 255, 1, 1, 0, 1, 1 },
	{ 2, 12, 8, 8, 18, 3, 1, 1, 1, 3 }, { 1, 32, 9, 9, 32, 3, 1, 2, 2, 32 },  { 1, 1, 5, 5, 1, 3, 1, 1, 1, 1 },
	{ 3, 64, 2, 2, 80, 1, 1, 0, 1, 1 }, { 2, 256, 3, 3, 512, 3, 1, 1, 1, 1 }, /* one product over the batch */
};

static void convolutions_add_weight_gradients(void)
{
	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++)
		for (size_t i = 0; i < sizeof(convs) / sizeof(convs[0]); i++) {
			struct rig r = rig_open((*b)->name, 2);
			const struct dn_conv_desc d = conv_desc(&convs[i], true, true, DN_ACT_LINEAR);
			int64_t nw = d.y.c * d.x.c / d.groups * d.size * d.size;
			float *x = randoms(dn_tensor_count(&d.x), 1), *dy = randoms(dn_tensor_count(&d.y), 2);
			float *own = floats(nw), *was = randoms(nw, 3), *got = copy_of(was, nw);
			struct dn_conv *cv = NULL;
			size_t bytes;
			void *ws;

			CHECK_OK_FATAL(r.be->conv_create(r.dev, &d, &cv));
			bytes = r.be->conv_workspace_bytes(cv, true);
			CU_ASSERT(bytes >= r.be->conv_workspace_bytes(cv, false));
			ws = fenced(bytes);
			CHECK_OK(r.be->conv_backward_weights(r.st, cv, x, dy, own, false, ws));
			CHECK_OK(r.be->conv_backward_weights(r.st, cv, x, dy, got, true, ws));
			added((*b)->name, got, was, own, nw);
			fence_check(ws, bytes);
			r.be->conv_destroy(cv);
			dn_free(ws);
			dn_free(x);
			dn_free(dy);
			dn_free(own);
			dn_free(was);
			dn_free(got);
			rig_close(&r);
		}
}

/* filters, taps and images beyond what is handled together */
static void local_weights_add_their_gradients(void)
{
	const struct dn_conv_desc all[] = {
		{ t4(2, 3, 5, 4), t4(2, 2, 3, 2), DN_F32, .groups = 1, .size = 3, .stride = 1, .dilation = 1 },
		{ t4(19, 70, 4, 5), t4(19, 65, 2, 3), DN_F32, .groups = 1, .size = 3, .stride = 2, .pad = 1, .dilation = 1 },
	};

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++)
		for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
			struct rig r = rig_open((*b)->name, 2);
			const struct dn_conv_desc *d = &all[i];
			int64_t nw = d->y.h * d->y.w * d->y.c * d->x.c * d->size * d->size;
			float *x = randoms(dn_tensor_count(&d->x), 1), *dy = randoms(dn_tensor_count(&d->y), 2);
			float *own = floats(nw), *was = randoms(nw, 3), *got = copy_of(was, nw);

			CHECK_OK(r.be->local_backward_weights(r.st, d, x, dy, own, false));
			CHECK_OK(r.be->local_backward_weights(r.st, d, x, dy, got, true));
			added((*b)->name, got, was, own, nw);
			dn_free(x);
			dn_free(dy);
			dn_free(own);
			dn_free(was);
			dn_free(got);
			rig_close(&r);
		}
}

static void biases_and_norms_add_their_gradients(void)
{
	const struct dn_tensor all[] = { t4(2, 3, 5, 4), t4(7, 70, 1, 1), t4(3, 40, 13, 13) };

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++)
		for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
			struct rig r = rig_open((*b)->name, 2);
			const struct dn_bn_desc d = { .x = all[i] };
			int64_t n = dn_tensor_count(&d.x), c = d.x.c;
			float *x = randoms(n, 1), *dy = randoms(n, 2), *scale = randoms(c, 3), *mean = randoms(c, 4);
			float *var = randoms(c, 5), *own = floats(2 * c), *was = randoms(2 * c, 6), *got = copy_of(was, 2 * c);

			for (int64_t k = 0; k < c; k++)
				var[k] += 2;
			CHECK_OK(r.be->bn_backward(r.st, &d, false, x, mean, var, scale, dy, NULL, false, own, own + c, false));
			CHECK_OK(r.be->bn_backward(r.st, &d, false, x, mean, var, scale, dy, NULL, false, got, got + c, true));
			added("bn_backward", got, was, own, 2 * c);
			memcpy(got, was, (size_t)(2 * c) * sizeof(*got));
			CHECK_OK(r.be->bn_backward(r.st, &d, false, x, mean, var, scale, dy, NULL, false, got, NULL, true));
			added("bn_backward without biases", got, was, own, c);
			CHECK_BITS(got + c, was + c, (size_t)c * sizeof(*got));
			CHECK_OK(r.be->bias_backward(r.st, &d.x, dy, own, false));
			memcpy(got, was, (size_t)c * sizeof(*got));
			CHECK_OK(r.be->bias_backward(r.st, &d.x, dy, got, true));
			added("bias_backward", got, was, own, c);
			float *mine[] = { x, dy, scale, mean, var, own, was, got };
			for (size_t k = 0; k < sizeof(mine) / sizeof(mine[0]); k++)
				dn_free(mine[k]);
			rig_close(&r);
		}
}

static const struct check_case cases[] = {
	{ "convolutions_add_weight_gradients", convolutions_add_weight_gradients },
	{ "local_weights_add_their_gradients", local_weights_add_their_gradients },
	{ "biases_and_norms_add_their_gradients", biases_and_norms_add_their_gradients },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend_adds", cases);
}
