/* Top-k counts and losses of an evaluation. */
#ifndef DN_TRAIN_METRIC_H
#define DN_TRAIN_METRIC_H
#include "base/group.h"
#include "graph/net.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_metric {
	int64_t images, top1, topk;
	int top;
	double loss;	   /* sum over images */
	int64_t nonfinite; /* images with a NaN or infinite output */
};

/** dn_top_k() - indices of the k largest of x[n], ties to the smaller index, NaN last */
DN_EXPORT void dn_top_k(const float *x, int64_t n, int k, int64_t *out);

/** dn_nonfinite() - how many of x[n] are NaN or infinite */
DN_EXPORT int64_t dn_nonfinite(const float *x, int64_t n);

/** dn_class_scores() - the output @y of one image as a probability of each class, into @p; with a tree of classes those of
 * the leaves, multiplied down from the top, and 0 for the others. What is to be ranked by dn_top_k(). */
DN_EXPORT void dn_class_scores(const struct dn_net *net, const float *y, float *p);

/* One evaluated image, in list order, on rank 0 only. @p: its scores [n]. */
typedef int (*dn_valid_fn)(void *arg, int64_t index, int64_t cls, const float *p, int64_t n);

struct dn_dataset;
/**
 * dn_evaluate() - collective: every image of @data once, split over the ranks, lists of any length
 * Uses the net's microbatch; a training net's state is untouched (no rolling update, no counters). Rank r takes the r-th
 * part of each batch; places past the end are run with the last image and not counted. @fn may be NULL.
 */
DN_EXPORT int dn_evaluate(struct dn_net *net, const struct dn_dataset *data, int top, const struct dn_group *g, dn_valid_fn fn,
			  void *arg, struct dn_metric *out);

#ifdef __cplusplus
}
#endif
#endif
