/* What a net is for: how its outputs are judged, reported and compared. A task is a row of the table in task.c; the layer type of
 * the net's output names it (dn_layer_ops.task), the truth of the data has the last word.
 *
 * An evaluation is begin, image for each image, sum, then report, score and fields, and end. Every rank sees its own images; sum
 * is collective, and what follows it is the same on all ranks.
 */
#ifndef DN_TRAIN_TASK_H
#define DN_TRAIN_TASK_H
#include <stdbool.h>
#include <stdint.h>
#include "base/group.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "graph/net.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_loop_step;

struct dn_eval_image {	       /* an evaluated image, host memory that is valid during the call */
	int64_t index;	       /* in the list */
	int64_t cls;	       /* its class, -1 = none */
	const float *truth;    /* [net->truths], NULL without a target */
	const float *const *y; /* [net->n_outputs]: outputs of the layers net->outputs, plain [c, h, w] */
};

struct dn_eval { /* one evaluation, as its task sees it */
	struct dn_net *net;
	const struct dn_dataset *data;
	const struct dn_group *group;
	int top;	/* classes that count as best */
	int64_t images; /* this rank's so far; after sum: of all */
	double loss;	/* summed over them; after sum */
	void *own;	/* the task's, [own_bytes], zeroed before begin */
};

#define DN_FIELDS_MAX 16
struct dn_field { /* a number of the log's valid event */
	const char *name;
	double value;
};

struct dn_net_task {
	const char *name; /* what dn_layer_ops.task says */
	/* Is the data set's truth of the kind that the task compares with? */
	bool (*takes)(const struct dn_dataset *data);
	/* Asked before memory is planned: must the output of @l survive the pass? NULL: the net's output layer is enough. */
	bool (*needs)(const struct dn_layer *l);
	const struct dn_resize *sizes; /* of the images, with [net] random=1 */
	size_t own_bytes;
	int (*begin)(struct dn_eval *e); /* NULL: nothing to do */
	int (*image)(struct dn_eval *e, const struct dn_eval_image *im);
	/* Appends what a listener is told of the image that image() was given last; NULL: nobody can listen. */
	int (*record)(struct dn_eval *e, const struct dn_eval_image *im, struct dn_buf *out);
	int (*sum)(struct dn_eval *e);					/* collective; NULL: images and loss are enough */
	void (*report)(const struct dn_eval *e, char *out, size_t cap); /* "top 1: 0.500000, ..." for people, "" for nothing */
	double (*score)(const struct dn_eval *e);			/* the larger the better; NaN is never the best */
	int (*fields)(const struct dn_eval *e, struct dn_field *out);	/* how many, at most DN_FIELDS_MAX */
	void (*end)(struct dn_eval *e);					/* also after a failed begin; NULL: nothing to do */
	/* Darknet's line of an update */
	void (*line)(const struct dn_loop_step *s, char *out, size_t cap);
};

/** dn_net_task_find() - by name, NULL when there is none */
DN_EXPORT const struct dn_net_task *dn_net_task_find(const char *name);
/** dn_net_task_of() - the task that the net's output layer names; of any other net: dense targets */
DN_EXPORT const struct dn_net_task *dn_net_task_of(const struct dn_net *net);
/** dn_net_task_for() - that one if it can judge @data, else the first that can */
DN_EXPORT const struct dn_net_task *dn_net_task_for(const struct dn_net *net, const struct dn_dataset *data);
/** dn_net_task_needs() - for dn_net_options.needs: what the task of the layer's own type says */
DN_EXPORT bool dn_net_task_needs(const struct dn_layer *l);

struct dn_result { /* of an evaluation, the same on all ranks */
	const struct dn_net_task *task;
	int64_t images;
	int64_t nonfinite; /* of them, with a NaN or infinite output */
	double loss;	   /* sum over images */
	double score;	   /* the larger the better; NaN is never the best */
	char text[256];	   /* for people */
	int n_fields;
	struct dn_field fields[DN_FIELDS_MAX];
};
/** dn_result_field() - a field's value, NaN when there is none of that name */
DN_EXPORT double dn_result_field(const struct dn_result *r, const char *name);

/* The record of an image, in list order, on rank 0 only; aligned for any type. */
typedef int (*dn_record_fn)(void *arg, int64_t index, const void *record, size_t bytes);

struct dn_eval_options {
	const struct dn_net_task *task; /* NULL: dn_net_task_for() */
	int top;
	int threads;	 /* that decode ahead of the net; < 1: one */
	dn_record_fn fn; /* NULL: nobody listens; may differ between ranks */
	void *arg;
};

/**
 * dn_evaluate() - collective: every image of @data once, split over the ranks, lists of any length
 * Uses the net's microbatch; a training net's state is untouched (no rolling update, no counters, no carries). Rank r takes the
 * r-th part of each batch; places past the end are run with the last image and not counted.
 */
DN_EXPORT int dn_evaluate(struct dn_net *net, const struct dn_dataset *data, const struct dn_eval_options *o,
			  const struct dn_group *g, struct dn_result *out);

#ifdef __cplusplus
}
#endif
#endif
