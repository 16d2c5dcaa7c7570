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
	int err = conv_desc_check(&ref_limits, d);

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

size_t ref_conv_workspace_bytes(const struct dn_conv *cv, bool acc)
{
	return 0;
}

size_t ref_conv_packed_bytes(const struct dn_conv *cv)
{
	return 0;
}

int ref_conv_pack(struct dn_stream *st, struct dn_conv *cv, const void *w, void *packed, void *ws)
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
	int64_t cg = d->x.c / d->groups, g = k / (d->y.c / d->groups);
	int64_t iy = oy * d->stride - d->pad + ky * d->dilation;
	int64_t ix = ox * d->stride - d->pad + kx * d->dilation;

	t->x = ((n * d->x.c + g * cg + c) * d->x.h + iy) * d->x.w + ix;
	t->w = ((k * cg + c) * d->size + ky) * d->size + kx;
	t->y = ((n * d->y.c + k) * d->y.h + oy) * d->y.w + ox;
	return iy >= 0 && iy < d->x.h && ix >= 0 && ix < d->x.w;
}

int ref_conv_forward(struct dn_stream *st, struct dn_conv *cv, const void *px, const void *pw, const void *packed,
		     const float *bias, void *py, void *ws)
{
	const float *x = px, *w = pw;
	float *y = py;
	const struct dn_conv_desc *d = &cv->d;
	struct tap t;

	for (int64_t n = 0; n < d->x.n; n++)
		for (int64_t k = 0; k < d->y.c; k++)
			for (int64_t oy = 0; oy < d->y.h; oy++)
				for (int64_t ox = 0; ox < d->y.w; ox++) {
					double sum = 0;

					for (int64_t c = 0; c < d->x.c / d->groups; c++)
						for (int64_t ky = 0; ky < d->size; ky++)
							for (int64_t kx = 0; kx < d->size; kx++)
								if (tap_at(d, n, k, c, oy, ox, ky, kx, &t))
									sum += (double)x[t.x] * w[t.w];
					if (d->bias)
						sum += bias[k];
					y[((n * d->y.c + k) * d->y.h + oy) * d->y.w + ox] = ref_act(d->act, (float)sum);
				}
	return 0;
}

int ref_conv_backward_weights(struct dn_stream *st, struct dn_conv *cv, const void *px, const void *pdy, float *dw, bool acc,
			      void *ws)
{
	const float *x = px, *dy = pdy;
	const struct dn_conv_desc *d = &cv->d;
	int64_t cg = d->x.c / d->groups;
	struct tap t;

	for (int64_t k = 0; k < d->y.c; k++)
		for (int64_t c = 0; c < cg; c++)
			for (int64_t ky = 0; ky < d->size; ky++)
				for (int64_t kx = 0; kx < d->size; kx++) {
					double sum = 0;
					float *to;

					for (int64_t n = 0; n < d->x.n; n++)
						for (int64_t oy = 0; oy < d->y.h; oy++)
							for (int64_t ox = 0; ox < d->y.w; ox++)
								if (tap_at(d, n, k, c, oy, ox, ky, kx, &t))
									sum += (double)x[t.x] * dy[t.y];
					to = &dw[((k * cg + c) * d->size + ky) * d->size + kx];
					*to = acc ? *to + (float)sum : (float)sum;
				}
	return 0;
}

int ref_conv_backward_data(struct dn_stream *st, struct dn_conv *cv, const void *pdy, const void *pw, void *pdx, bool acc,
			   void *ws)
{
	const float *dy = pdy, *w = pw;
	float *dx = pdx;
	const struct dn_conv_desc *d = &cv->d;
	int64_t kg = d->y.c / d->groups, cg = d->x.c / d->groups;

	for (int64_t n = 0; n < d->x.n; n++)
		for (int64_t c = 0; c < d->x.c; c++)
			for (int64_t iy = 0; iy < d->x.h; iy++)
				for (int64_t ix = 0; ix < d->x.w; ix++) {
					float *to = &dx[((n * d->x.c + c) * d->x.h + iy) * d->x.w + ix];
					double sum = 0;

					for (int64_t k = c / cg * kg; k < (c / cg + 1) * kg; k++)
						for (int64_t ky = 0; ky < d->size; ky++)
							for (int64_t kx = 0; kx < d->size; kx++) {
								int64_t ay = iy + d->pad - ky * d->dilation;
								int64_t ax = ix + d->pad - kx * d->dilation;
								int64_t oy = ay / d->stride, ox = ax / d->stride;

								if (ay < 0 || ax < 0 || ay % d->stride || ax % d->stride ||
								    oy >= d->y.h || ox >= d->y.w)
									continue;
								sum += (double)dy[((n * d->y.c + k) * d->y.h + oy) * d->y.w +
										  ox] *
								       w[((k * cg + c % cg) * d->size + ky) * d->size + kx];
							}
					*to = acc ? *to + (float)sum : (float)sum;
				}
	return 0;
}

int ref_gemm(struct dn_stream *st, const struct dn_gemm_desc *d, const void *pa, const void *pb, void *pc)
{
	const float *a = pa, *b = pb;
	float *c = pc;
	int err = gemm_desc_check(&ref_limits, d);

	for (int64_t i = 0; i < d->m && !err; i++)
		for (int64_t j = 0; j < d->n; j++) {
			double sum = 0;

			for (int64_t p = 0; p < d->k; p++)
				sum += (double)(d->ta ? a[p * d->lda + i] : a[i * d->lda + p]) *
				       (d->tb ? b[j * d->ldb + p] : b[p * d->ldb + j]);
			sum *= d->alpha;
			if (d->beta != 0)
				sum += (double)d->beta * c[i * d->ldc + j];
			c[i * d->ldc + j] = (float)sum;
		}
	return err;
}
