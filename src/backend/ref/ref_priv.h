/* The ops of the ref table: one plain loop each, sums in double. The oracle for every other backend. */
#ifndef DN_BACKEND_REF_PRIV_H
#define DN_BACKEND_REF_PRIV_H
#include "backend/backend_priv.h"

extern const struct op_limits ref_limits; /* float32 in plain layout */

int ref_conv_create(struct dn_device *dev, const struct dn_conv_desc *d, struct dn_conv **out);
void ref_conv_destroy(struct dn_conv *cv);
size_t ref_conv_workspace_bytes(const struct dn_conv *cv, bool acc);
size_t ref_conv_packed_bytes(const struct dn_conv *cv);
int ref_conv_pack(struct dn_stream *st, struct dn_conv *cv, const void *w, void *packed, void *ws);
int ref_conv_forward(struct dn_stream *st, struct dn_conv *cv, const void *x, const void *w, const void *packed,
		     const float *bias, void *y, void *ws);
int ref_conv_backward_weights(struct dn_stream *st, struct dn_conv *cv, const void *x, const void *dy, float *dw, bool acc,
			      void *ws);
int ref_conv_backward_data(struct dn_stream *st, struct dn_conv *cv, const void *dy, const void *w, void *dx, bool acc, void *ws);

int ref_gemm(struct dn_stream *st, const struct dn_gemm_desc *d, const void *a, const void *b, void *c);
int ref_bias_act(struct dn_stream *st, const struct dn_tensor *t, void *x, const float *bias, enum dn_act act);
int ref_bias_backward(struct dn_stream *st, const struct dn_tensor *t, const void *dy, float *db, bool acc);
int ref_act_backward(struct dn_stream *st, const struct dn_tensor *t, enum dn_act act, const void *y, void *dy);
float ref_act(enum dn_act act, float x);
int ref_bn_forward_train(struct dn_stream *st, const struct dn_bn_desc *d, const void *x, const float *scale, const float *bias,
			 float *mean, float *var, void *y);
int ref_bn_forward(struct dn_stream *st, const struct dn_bn_desc *d, const void *x, const float *scale, const float *bias,
		   const float *mean, const float *var, void *y);
int ref_bn_backward(struct dn_stream *st, const struct dn_bn_desc *d, bool frozen, const void *x, const float *mean,
		    const float *var, const float *scale, const void *dy, void *dx, bool acc, float *dscale, float *dbias,
		    bool acc_params);
int ref_bn_mean_part(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *x, float *mean);
int ref_bn_variance_part(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *x, const float *mean,
			 float *var);
int ref_bn_backward_part(struct dn_stream *st, const struct dn_bn_desc *d, const void *x, const float *mean, const float *var,
			 const void *dy, float *sums, float *dscale, float *dbias, bool acc_params);
int ref_bn_backward_data(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *x, const float *mean,
			 const float *var, const float *scale, const float *sums, const void *dy, void *dx, bool acc);
int ref_maxpool_forward(struct dn_stream *st, const struct dn_pool_desc *d, const void *x, void *y, int32_t *index);
int ref_maxpool_backward(struct dn_stream *st, const struct dn_pool_desc *d, const void *dy, const int32_t *index, void *dx,
			 bool acc);
int ref_avgpool_forward(struct dn_stream *st, const struct dn_tensor *t, const void *x, void *y);
int ref_avgpool_backward(struct dn_stream *st, const struct dn_tensor *t, const void *dy, void *dx, bool acc);
int ref_dropout_forward(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num,
			const struct dn_tensor *t, const void *x, void *y);
int ref_dropout_backward(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num,
			 const struct dn_tensor *t, const void *dy, void *dx, bool acc);
int ref_softmax_create(struct dn_device *dev, const struct dn_softmax_desc *d, struct dn_softmax **out);
int ref_softmax_forward(struct dn_stream *st, const struct dn_softmax *sm, const void *x, void *y);
int ref_softmax_loss(struct dn_stream *st, const struct dn_softmax *sm, const void *x, const struct dn_tensor *t,
		     const void *truth, double *loss);
int ref_tree_truth(struct dn_stream *st, const struct dn_softmax *sm, const void *truth, void *out);
int ref_cost(struct dn_stream *st, enum dn_cost kind, const struct dn_tensor *p, const void *x, const struct dn_tensor *t,
	     const void *truth, void *delta, double *loss);
int ref_axpby(struct dn_stream *st, enum dn_type type, int64_t n, float alpha, const void *x, float beta, void *y);
int ref_copy_rows(struct dn_stream *st, enum dn_type type, int64_t rows, int64_t n, const void *src, int64_t src_stride,
		  void *dst, int64_t dst_stride, bool acc);
int ref_shortcut_forward(struct dn_stream *st, const struct dn_shortcut_desc *d, const void *direct, const void *src, void *y);
int ref_shortcut_backward_src(struct dn_stream *st, const struct dn_shortcut_desc *d, const void *dy, void *dsrc, bool acc);
int ref_upsample(struct dn_stream *st, const struct dn_tensor *t, int64_t stride, float scale, const void *x, void *y, bool acc);
int ref_block_sum(struct dn_stream *st, const struct dn_tensor *t, int64_t stride, float scale, const void *x, void *y, bool acc);
int ref_reorg(struct dn_stream *st, const struct dn_reorg_desc *d, bool narrow, const void *x, void *y, bool acc);
int ref_transpose(struct dn_stream *st, const struct dn_tensor *t, const void *x, void *y, bool acc);
int ref_crop_forward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const void *x, void *y);
int ref_crop_backward(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const void *dy, void *dx,
		      bool acc);
int ref_lrn_forward(struct dn_stream *st, const struct dn_lrn_desc *d, const void *x, float *norm, void *y);
int ref_lrn_backward(struct dn_stream *st, const struct dn_lrn_desc *d, const void *x, const float *norm, const void *dy,
		     void *dx, bool acc);
int ref_l2norm_forward(struct dn_stream *st, const struct dn_tensor *t, const void *x, float *norm, void *y);
int ref_l2norm_backward(struct dn_stream *st, const struct dn_tensor *t, const void *y, const float *norm, const void *dy,
			void *dx, bool acc);
int ref_local_forward(struct dn_stream *st, const struct dn_conv_desc *d, const void *x, const void *w, void *y);
int ref_local_backward_weights(struct dn_stream *st, const struct dn_conv_desc *d, const void *x, const void *dy, float *dw,
			       bool acc);
int ref_local_backward_data(struct dn_stream *st, const struct dn_conv_desc *d, const void *dy, const void *w, void *dx,
			    bool acc);
int ref_local_avg_forward(struct dn_stream *st, const struct dn_pool_desc *d, const void *x, void *y);
int ref_local_avg_backward(struct dn_stream *st, const struct dn_pool_desc *d, const void *dy, void *dx, bool acc);
int ref_scale_forward(struct dn_stream *st, const struct dn_scale_desc *d, const void *a, const void *b, void *y, bool acc);
int ref_scale_backward(struct dn_stream *st, const struct dn_scale_desc *d, const void *b, const void *dy, void *da, bool acc);
int ref_binarize(struct dn_stream *st, enum dn_type type, int64_t rows, int64_t n, bool mean, const void *x, void *y);
int ref_sgd(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_sgd *o, const struct dn_numbers *num, float *w,
	    float *v, const void *g);
int ref_adam(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_adam *o, const struct dn_numbers *num, float *w,
	     float *m, float *v, const void *g);
int ref_sum_tree(struct dn_stream *st, int64_t n, const struct dn_parts *parts, float *out, bool acc);
int ref_look(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_look_desc *d, void *x, struct dn_exact *sum,
	     int64_t *bad);
/** ref_half_value() - a number of 16 bits */
float ref_half_value(enum dn_type type, uint16_t h);
int ref_narrow(struct dn_stream *st, enum dn_type type, int64_t n, const float *x, void *y);
int ref_widen(struct dn_stream *st, enum dn_type type, int64_t n, const void *x, float *y);
int ref_count_nonfinite(struct dn_stream *st, enum dn_type type, int64_t n, const void *x, int64_t *count);

#endif
