/* The ops of the cpu table: dnn.c (oneDNN), gemm_conv.c (convolutions as one product), ops.c (element-wise), plane.c (over
 * planes and channels). */
#ifndef DN_BACKEND_CPU_PRIV_H
#define DN_BACKEND_CPU_PRIV_H
#include "backend/host/stream.h"

struct dnn; /* the math library's engine and stream, one per device */

int dnn_open(struct dnn **out);
void dnn_close(struct dnn *dnn);
const char *dnn_version(const struct dnn *dnn);

struct cpu_math_device {
	struct host_device cpu; /* first */
	struct dnn *dnn;
};

/* below this many elements a team of threads costs more than it saves; results do not depend on it */
#define CPU_PARALLEL_MIN 16384

/** act_range() - x[i] = act(x[i] + bias), element by element */
void act_range(float *x, int64_t n, float bias, enum dn_act act);

int cpu_conv_create(struct dn_device *dev, const struct dn_conv_desc *d, struct dn_conv **out);
void cpu_conv_destroy(struct dn_conv *cv);
size_t cpu_conv_workspace_bytes(const struct dn_conv *cv);
size_t cpu_conv_packed_bytes(const struct dn_conv *cv);
int cpu_conv_pack(struct dn_stream *st, struct dn_conv *cv, const float *w, void *packed, void *ws);
int cpu_conv_forward(struct dn_stream *st, struct dn_conv *cv, const float *x, const float *w, const void *packed,
		     const float *bias, float *y, void *ws);
int cpu_conv_backward_weights(struct dn_stream *st, struct dn_conv *cv, const float *x, const float *dy, float *dw, void *ws);
int cpu_conv_backward_data(struct dn_stream *st, struct dn_conv *cv, const float *dy, const float *w, float *dx, bool acc,
			   void *ws);

/* gemm_conv.c: backward data and weights overwrite; @ws: gemm_conv_bytes() */
size_t gemm_conv_bytes(const struct dn_conv_desc *d);
int gemm_conv_forward(struct dn_stream *st, const struct dn_conv_desc *d, const float *x, const float *w, const float *bias,
		      float *y, void *ws);
int gemm_conv_backward_weights(struct dn_stream *st, const struct dn_conv_desc *d, const float *x, const float *dy, float *dw,
			       void *ws);
int gemm_conv_backward_data(struct dn_stream *st, const struct dn_conv_desc *d, const float *dy, const float *w, float *dx,
			    void *ws);

int cpu_gemm(struct dn_stream *st, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
	     const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
int cpu_bias_act(struct dn_stream *st, int64_t n, int64_t c, int64_t hw, float *x, const float *bias, enum dn_act act);
int cpu_bias_backward(struct dn_stream *st, int64_t n, int64_t c, int64_t hw, const float *dy, float *db);
int cpu_act_backward(struct dn_stream *st, enum dn_act act, int64_t n, const float *y, float *dy);
int cpu_bn_forward_train(struct dn_stream *st, const struct dn_bn_desc *d, const float *x, const float *scale, const float *bias,
			 float *mean, float *var, float *y);
int cpu_bn_forward(struct dn_stream *st, const struct dn_bn_desc *d, const float *x, const float *scale, const float *bias,
		   const float *mean, const float *var, float *y);
int cpu_bn_backward(struct dn_stream *st, const struct dn_bn_desc *d, bool frozen, const float *x, const float *mean,
		    const float *var, const float *scale, const float *dy, float *dx, bool acc, float *dscale, float *dbias);
int cpu_maxpool_forward(struct dn_stream *st, const struct dn_pool_desc *d, const float *x, float *y, int32_t *index);
int cpu_maxpool_backward(struct dn_stream *st, const struct dn_pool_desc *d, const float *dy, const int32_t *index, float *dx,
			 bool acc);
int cpu_avgpool_forward(struct dn_stream *st, int64_t rows, int64_t hw, const float *x, float *y);
int cpu_avgpool_backward(struct dn_stream *st, int64_t rows, int64_t hw, const float *dy, float *dx, bool acc);
int cpu_dropout_forward(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num, int64_t n,
			int64_t per_image, const float *x, float *y);
int cpu_dropout_backward(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num, int64_t n,
			 int64_t per_image, const float *dy, float *dx, bool acc);
int cpu_softmax_loss(struct dn_stream *st, int64_t rows, int64_t cols, float temperature, const float *x, const float *t,
		     double *loss);
int cpu_softmax(struct dn_stream *st, int64_t rows, int64_t cols, float temperature, const float *x, float *y);
int cpu_softmax_groups(struct dn_stream *st, const struct dn_softmax_desc *d, const float *x, float *y);
int cpu_tree_truth(struct dn_stream *st, const struct dn_tree_desc *d, int64_t n, const float *t, float *out);
int cpu_cost(struct dn_stream *st, enum dn_cost kind, int64_t n, const float *p, const float *t, float *delta, double *loss);
int cpu_axpby(struct dn_stream *st, int64_t n, float alpha, const float *x, float beta, float *y);
int cpu_copy_rows(struct dn_stream *st, int64_t rows, int64_t n, const float *src, int64_t src_stride, float *dst,
		  int64_t dst_stride, bool acc);
int cpu_shortcut_forward(struct dn_stream *st, const struct dn_shortcut_desc *d, const float *direct, const float *src, float *y);
int cpu_shortcut_backward_src(struct dn_stream *st, const struct dn_shortcut_desc *d, const float *dy, float *dsrc, bool acc);
int cpu_upsample(struct dn_stream *st, int64_t planes, int64_t h, int64_t w, int64_t stride, float scale, const float *x,
		 float *y, bool acc);
int cpu_block_sum(struct dn_stream *st, int64_t planes, int64_t h, int64_t w, int64_t stride, float scale, const float *x,
		  float *y, bool acc);
int cpu_reorg(struct dn_stream *st, const struct dn_reorg_desc *d, bool narrow, const float *x, float *y, bool acc);
int cpu_transpose(struct dn_stream *st, int64_t n, int64_t rows, int64_t cols, const float *x, float *y, bool acc);
int cpu_crop_forward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const float *x, float *y);
int cpu_crop_backward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const float *dy,
		      float *dx, bool acc);
int cpu_lrn_forward(struct dn_stream *st, const struct dn_lrn_desc *d, const float *x, float *norm, float *y);
int cpu_lrn_backward(struct dn_stream *st, const struct dn_lrn_desc *d, const float *x, const float *norm, const float *dy,
		     float *dx, bool acc);
int cpu_l2norm_forward(struct dn_stream *st, int64_t n, int64_t c, int64_t hw, const float *x, float *norm, float *y);
int cpu_l2norm_backward(struct dn_stream *st, int64_t n, int64_t c, int64_t hw, const float *y, const float *norm,
			const float *dy, float *dx, bool acc);
int cpu_local_forward(struct dn_stream *st, const struct dn_conv_desc *d, const float *x, const float *w, float *y);
int cpu_local_backward_weights(struct dn_stream *st, const struct dn_conv_desc *d, const float *x, const float *dy, float *dw);
int cpu_local_backward_data(struct dn_stream *st, const struct dn_conv_desc *d, const float *dy, const float *w, float *dx,
			    bool acc);
int cpu_local_avg_forward(struct dn_stream *st, const struct dn_pool_desc *d, const float *x, float *y);
int cpu_local_avg_backward(struct dn_stream *st, const struct dn_pool_desc *d, const float *dy, float *dx, bool acc);
int cpu_scale_forward(struct dn_stream *st, const struct dn_scale_desc *d, const float *a, const float *b, float *y, bool acc);
int cpu_scale_backward(struct dn_stream *st, const struct dn_scale_desc *d, const float *b, const float *dy, float *da, bool acc);
int cpu_binarize(struct dn_stream *st, int64_t rows, int64_t n, bool mean, const float *x, float *y);
int cpu_sgd(struct dn_stream *st, int64_t n, const struct dn_sgd *o, const struct dn_numbers *num, float *w, float *v,
	    const float *g);
int cpu_adam(struct dn_stream *st, int64_t n, const struct dn_adam *o, const struct dn_numbers *num, float *w, float *m, float *v,
	     const float *g);
int cpu_sum_tree(struct dn_stream *st, int64_t n, int n_parts, const float *const *parts, float *out, bool acc);
int cpu_count_nonfinite(struct dn_stream *st, int64_t n, const float *x, int64_t *count);

#endif
