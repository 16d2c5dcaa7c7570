/* The best of many, and what a net's output says about classes. */
#ifndef DN_TRAIN_METRIC_H
#define DN_TRAIN_METRIC_H
#include "train/task.h"
#ifdef __cplusplus
extern "C" {
#endif

/** dn_top_k() - indices of the k largest of x[n], ties to the smaller index, NaN last */
DN_EXPORT void dn_top_k(const float *x, int64_t n, int k, int64_t *out);

/** dn_nonfinite() - how many of x[n] are NaN or infinite */
DN_EXPORT int64_t dn_nonfinite(const float *x, int64_t n);

/** dn_class_scores() - the output @y of one image as a probability of each class, into @p; with a tree of classes those of
 * the leaves, multiplied down from the top, and 0 for the others. What is to be ranked by dn_top_k(). */
DN_EXPORT void dn_class_scores(const struct dn_net *net, const float *y, float *p);

/** dn_class_record() - what the classifier's record of an image holds: its class, and its scores p[n] */
DN_EXPORT void dn_class_record(const void *record, size_t bytes, int64_t *cls, const float **p, int64_t *n);

#ifdef __cplusplus
}
#endif
#endif
