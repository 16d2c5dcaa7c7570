/* ref: convolution and matrix product as nested loops. */
#include <errno.h>
#include "backend/backend_priv.h"
#include "backend/ref/ref_priv.h"

struct dn_conv {
	struct dn_conv_desc d;
};

int ref_conv_create(struct dn_device *dev, const struct dn_conv_desc *d, struct dn_conv **out)
{
	struct dn_conv *cv;
	int err = conv_desc_check(d);

	if (err)
		return err;
	cv = dn_zalloc(sizeof(*cv));
	if (!cv)
		return -ENOMEM;
	cv->d = *d;
	*out = cv;
	return 0;
}

void ref_conv_destroy(struct dn_conv *cv)
{
	dn_free(cv);
}

size_t ref_conv_workspace_bytes(const struct dn_conv *cv)
{
	return 0;
}

size_t ref_conv_packed_bytes(const struct dn_conv *cv)
{
	return 0;
}

int ref_conv_pack(struct dn_stream *st, struct dn_conv *cv, const float *w, void *packed, void *ws)
{
	return dn_fail(-EINVAL, "convolution: this backend has no packed weights");
}

/* one (image, output channel, input channel of its group, output point, tap) at a time; false = padding */
struct tap {
	int64_t x, w, y; /* offsets into the three tensors */
};

static bool tap_at(const struct dn_conv_desc *d, int64_t n, int64_t k, int64_t c, int64_t oy, int64_t ox, int64_t ky, int64_t kx,
		   struct tap *t)
{
	int64_t cg = d->c / d->groups, g = k / (d->k / d->groups);
	int64_t iy = oy * d->stride - d->pad + ky * d->dilation;
	int64_t ix = ox * d->stride - d->pad + kx * d->dilation;

	t->x = ((n * d->c + g * cg + c) * d->h + iy) * d->w + ix;
	t->w = ((k * cg + c) * d->size + ky) * d->size + kx;
	t->y = ((n * d->k + k) * d->oh + oy) * d->ow + ox;
	return iy >= 0 && iy < d->h && ix >= 0 && ix < d->w;
}

int ref_conv_forward(struct dn_stream *st, struct dn_conv *cv, const float *x, const float *w, const void *packed,
		     const float *bias, float *y, void *ws)
{
	const struct dn_conv_desc *d = &cv->d;
	struct tap t;

	for (int64_t n = 0; n < d->n; n++)
		for (int64_t k = 0; k < d->k; k++)
			for (int64_t oy = 0; oy < d->oh; oy++)
				for (int64_t ox = 0; ox < d->ow; ox++) {
					double sum = 0;

					for (int64_t c = 0; c < d->c / d->groups; c++)
						for (int64_t ky = 0; ky < d->size; ky++)
							for (int64_t kx = 0; kx < d->size; kx++)
								if (tap_at(d, n, k, c, oy, ox, ky, kx, &t))
									sum += (double)x[t.x] * w[t.w];
					if (d->bias)
						sum += bias[k];
					y[((n * d->k + k) * d->oh + oy) * d->ow + ox] = ref_act(d->act, (float)sum);
				}
	return 0;
}

int ref_conv_backward_weights(struct dn_stream *st, struct dn_conv *cv, const float *x, const float *dy, float *dw, void *ws)
{
	const struct dn_conv_desc *d = &cv->d;
	int64_t cg = d->c / d->groups;
	struct tap t;

	for (int64_t k = 0; k < d->k; k++)
		for (int64_t c = 0; c < cg; c++)
			for (int64_t ky = 0; ky < d->size; ky++)
				for (int64_t kx = 0; kx < d->size; kx++) {
					double sum = 0;

					for (int64_t n = 0; n < d->n; n++)
						for (int64_t oy = 0; oy < d->oh; oy++)
							for (int64_t ox = 0; ox < d->ow; ox++)
								if (tap_at(d, n, k, c, oy, ox, ky, kx, &t))
									sum += (double)x[t.x] * dy[t.y];
					dw[((k * cg + c) * d->size + ky) * d->size + kx] = (float)sum;
				}
	return 0;
}

int ref_conv_backward_data(struct dn_stream *st, struct dn_conv *cv, const float *dy, const float *w, float *dx, bool acc,
			   void *ws)
{
	const struct dn_conv_desc *d = &cv->d;
	int64_t kg = d->k / d->groups, cg = d->c / d->groups;

	for (int64_t n = 0; n < d->n; n++)
		for (int64_t c = 0; c < d->c; c++)
			for (int64_t iy = 0; iy < d->h; iy++)
				for (int64_t ix = 0; ix < d->w; ix++) {
					float *to = &dx[((n * d->c + c) * d->h + iy) * d->w + ix];
					double sum = 0;

					for (int64_t k = c / cg * kg; k < (c / cg + 1) * kg; k++)
						for (int64_t ky = 0; ky < d->size; ky++)
							for (int64_t kx = 0; kx < d->size; kx++) {
								int64_t py = iy + d->pad - ky * d->dilation;
								int64_t px = ix + d->pad - kx * d->dilation;
								int64_t oy = py / d->stride, ox = px / d->stride;

								if (py < 0 || px < 0 || py % d->stride || px % d->stride ||
								    oy >= d->oh || ox >= d->ow)
									continue;
								sum += (double)dy[((n * d->k + k) * d->oh + oy) * d->ow + ox] *
								       w[((k * cg + c % cg) * d->size + ky) * d->size + kx];
							}
					*to = acc ? *to + (float)sum : (float)sum;
				}
	return 0;
}

int ref_gemm(struct dn_stream *st, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
	     const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < n; j++) {
			double sum = 0;

			for (int64_t p = 0; p < k; p++)
				sum += (double)(ta ? a[p * lda + i] : a[i * lda + p]) * (tb ? b[j * ldb + p] : b[p * ldb + j]);
			sum *= alpha;
			if (beta != 0)
				sum += (double)beta * c[i * ldc + j];
			c[i * ldc + j] = (float)sum;
		}
	return 0;
}
