/* The ops of the cpu table: dnn.c (oneDNN), gemm_conv.c (convolutions as one product), ops.c (element-wise), plane.c (over
 * planes and channels). */
#ifndef DN_BACKEND_CPU_PRIV_H
#define DN_BACKEND_CPU_PRIV_H
#include "backend/backend_priv.h"
#include "backend/host/softmax.h"
#include "backend/host/stream.h"

struct dnn; /* the math library's engine and stream, one per device */

int dnn_open(struct dnn **out);
void dnn_close(struct dnn *dnn);
const char *dnn_version(const struct dnn *dnn);
const char *dnn_isa(void);

struct cpu_math_device {
	struct host_device cpu; /* first */
	struct dnn *dnn;
};

/* below this many elements a team of threads costs more than it saves; results do not depend on it */
#define CPU_PARALLEL_MIN 16384

/* a param's gradient, see NOTE(added gradients) */
static inline void cpu_give(float *to, bool acc, float v)
{
	*to = acc ? *to + v : v;
}

/** act_range() - x[i] = act(x[i] + bias), element by element */
void act_range(float *x, int64_t n, float bias, enum dn_act act);

extern const struct op_limits cpu_limits; /* float32 in plain layout */

int cpu_conv_create(struct dn_device *dev, const struct dn_conv_desc *d, struct dn_conv **out);
void cpu_conv_destroy(struct dn_conv *cv);
size_t cpu_conv_workspace_bytes(const struct dn_conv *cv, bool acc);
size_t cpu_conv_packed_bytes(const struct dn_conv *cv);
int cpu_conv_pack(struct dn_stream *st, struct dn_conv *cv, const void *w, void *packed, void *ws);
int cpu_conv_forward(struct dn_stream *st, struct dn_conv *cv, const void *x, const void *w, const void *packed,
		     const float *bias, void *y, void *ws);
int cpu_conv_backward_weights(struct dn_stream *st, struct dn_conv *cv, const void *x, const void *dy, float *dw, bool acc,
			      void *ws);
int cpu_conv_backward_data(struct dn_stream *st, struct dn_conv *cv, const void *dy, const void *w, void *dx, bool acc, void *ws);

/* gemm_conv.c: backward data and weights overwrite; @ws: gemm_conv_bytes() */
size_t gemm_conv_bytes(const struct dn_conv_desc *d);
int gemm_conv_forward(struct dn_stream *st, const struct dn_conv_desc *d, const float *x, const float *w, const float *bias,
		      float *y, void *ws);
int gemm_conv_backward_weights(struct dn_stream *st, const struct dn_conv_desc *d, const float *x, const float *dy, float *dw,
			       void *ws);
int gemm_conv_backward_data(struct dn_stream *st, const struct dn_conv_desc *d, const float *dy, const float *w, float *dx,
			    void *ws);

int cpu_sgemm(struct dn_stream *st, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
	      const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
int cpu_gemm(struct dn_stream *st, const struct dn_gemm_desc *d, const void *a, const void *b, void *c);
int cpu_bias_act(struct dn_stream *st, const struct dn_tensor *t, void *x, const float *bias, enum dn_act act);
int cpu_bias_backward(struct dn_stream *st, const struct dn_tensor *t, const void *dy, float *db, bool acc);
int cpu_act_backward(struct dn_stream *st, const struct dn_tensor *t, enum dn_act act, const void *y, void *dy);
int cpu_bn_forward_train(struct dn_stream *st, const struct dn_bn_desc *d, const void *x, const float *scale, const float *bias,
			 float *mean, float *var, void *y);
int cpu_bn_forward(struct dn_stream *st, const struct dn_bn_desc *d, const void *x, const float *scale, const float *bias,
		   const float *mean, const float *var, void *y);
int cpu_bn_backward(struct dn_stream *st, const struct dn_bn_desc *d, bool frozen, const void *x, const float *mean,
		    const float *var, const float *scale, const void *dy, void *dx, bool acc, float *dscale, float *dbias,
		    bool acc_params);
int cpu_bn_mean_part(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *x, float *mean);
int cpu_bn_variance_part(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *x, const float *mean,
			 float *var);
int cpu_bn_backward_part(struct dn_stream *st, const struct dn_bn_desc *d, const void *x, const float *mean, const float *var,
			 const void *dy, float *sums, float *dscale, float *dbias, bool acc_params);
int cpu_bn_backward_data(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *x, const float *mean,
			 const float *var, const float *scale, const float *sums, const void *dy, void *dx, bool acc);
int cpu_maxpool_forward(struct dn_stream *st, const struct dn_pool_desc *d, const void *x, void *y, int32_t *index);
int cpu_maxpool_backward(struct dn_stream *st, const struct dn_pool_desc *d, const void *dy, const int32_t *index, void *dx,
			 bool acc);
int cpu_avgpool_forward(struct dn_stream *st, const struct dn_tensor *t, const void *x, void *y);
int cpu_avgpool_backward(struct dn_stream *st, const struct dn_tensor *t, const void *dy, void *dx, bool acc);
int cpu_dropout_forward(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num,
			const struct dn_tensor *t, const void *x, void *y);
int cpu_dropout_backward(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num,
			 const struct dn_tensor *t, const void *dy, void *dx, bool acc);
int cpu_softmax_create(struct dn_device *dev, const struct dn_softmax_desc *d, struct dn_softmax **out);
int cpu_softmax_forward(struct dn_stream *st, const struct dn_softmax *sm, const void *x, void *y);
int cpu_softmax_loss(struct dn_stream *st, const struct dn_softmax *sm, const void *x, const struct dn_tensor *t,
		     const void *truth, double *loss);
int cpu_tree_truth(struct dn_stream *st, const struct dn_softmax *sm, const void *truth, void *out);
int cpu_cost(struct dn_stream *st, enum dn_cost kind, const struct dn_tensor *p, const void *x, const struct dn_tensor *t,
	     const void *truth, void *delta, double *loss);
int cpu_axpby(struct dn_stream *st, enum dn_type type, int64_t n, float alpha, const void *x, float beta, void *y);
int cpu_copy_rows(struct dn_stream *st, enum dn_type type, int64_t rows, int64_t n, const void *src, int64_t src_stride,
		  void *dst, int64_t dst_stride, bool acc);
int cpu_shortcut_forward(struct dn_stream *st, const struct dn_shortcut_desc *d, const void *direct, const void *src, void *y);
int cpu_shortcut_backward_src(struct dn_stream *st, const struct dn_shortcut_desc *d, const void *dy, void *dsrc, bool acc);
int cpu_upsample(struct dn_stream *st, const struct dn_tensor *t, int64_t stride, float scale, const void *x, void *y, bool acc);
int cpu_block_sum(struct dn_stream *st, const struct dn_tensor *t, int64_t stride, float scale, const void *x, void *y, bool acc);
int cpu_reorg(struct dn_stream *st, const struct dn_reorg_desc *d, bool narrow, const void *x, void *y, bool acc);
int cpu_transpose(struct dn_stream *st, const struct dn_tensor *t, const void *x, void *y, bool acc);
int cpu_crop_forward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const void *x, void *y);
int cpu_crop_backward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const void *dy, void *dx,
		      bool acc);
int cpu_lrn_forward(struct dn_stream *st, const struct dn_lrn_desc *d, const void *x, float *norm, void *y);
int cpu_lrn_backward(struct dn_stream *st, const struct dn_lrn_desc *d, const void *x, const float *norm, const void *dy,
		     void *dx, bool acc);
int cpu_l2norm_forward(struct dn_stream *st, const struct dn_tensor *t, const void *x, float *norm, void *y);
int cpu_l2norm_backward(struct dn_stream *st, const struct dn_tensor *t, const void *y, const float *norm, const void *dy,
			void *dx, bool acc);
int cpu_local_forward(struct dn_stream *st, const struct dn_conv_desc *d, const void *x, const void *w, void *y);
int cpu_local_backward_weights(struct dn_stream *st, const struct dn_conv_desc *d, const void *x, const void *dy, float *dw,
			       bool acc);
int cpu_local_backward_data(struct dn_stream *st, const struct dn_conv_desc *d, const void *dy, const void *w, void *dx,
			    bool acc);
int cpu_local_avg_forward(struct dn_stream *st, const struct dn_pool_desc *d, const void *x, void *y);
int cpu_local_avg_backward(struct dn_stream *st, const struct dn_pool_desc *d, const void *dy, void *dx, bool acc);
int cpu_scale_forward(struct dn_stream *st, const struct dn_scale_desc *d, const void *a, const void *b, void *y, bool acc);
int cpu_scale_backward(struct dn_stream *st, const struct dn_scale_desc *d, const void *b, const void *dy, void *da, bool acc);
int cpu_binarize(struct dn_stream *st, enum dn_type type, int64_t rows, int64_t n, bool mean, const void *x, void *y);
int cpu_sgd(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_sgd *o, const struct dn_numbers *num, float *w,
	    float *v, const void *g);
int cpu_adam(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_adam *o, const struct dn_numbers *num, float *w,
	     float *m, float *v, const void *g);
int cpu_sum_tree(struct dn_stream *st, int64_t n, const struct dn_parts *parts, float *out, bool acc);
int cpu_look(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_look_desc *d, void *x, struct dn_exact *sum,
	     int64_t *bad);
/** half_widen() - widen(), for the calling thread alone */
void half_widen(enum dn_type type, int64_t n, const void *x, float *y);
int cpu_narrow(struct dn_stream *st, enum dn_type type, int64_t n, const float *x, void *y);
int cpu_widen(struct dn_stream *st, enum dn_type type, int64_t n, const void *x, float *y);
int cpu_count_nonfinite(struct dn_stream *st, enum dn_type type, int64_t n, const void *x, int64_t *count);

#endif
