/* Classification: outputs are probabilities of classes; the best one, or the best k, are right or wrong. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/tree.h"
#include "train/loop.h"
#include "train/metric.h"
#include "train/task_priv.h"

struct own {
	int64_t top1, topk;
	int k;
	int64_t n;     /* outputs */
	int64_t *best; /* [k] */
	float *scores; /* [n] of the image that was seen last */
};

static bool before(float a, float b)
{
	return !isnan(a) && (isnan(b) || a > b);
}

void dn_top_k(const float *x, int64_t n, int k, int64_t *out)
{
	int have = 0;

	for (int64_t i = 0; i < n; i++) {
		int at = have;

		while (at > 0 && before(x[i], x[out[at - 1]]))
			at--;
		if (at >= k)
			continue;
		if (have < k)
			have++;
		memmove(out + at + 1, out + at, (size_t)(have - 1 - at) * sizeof(*out)); /* host memory */
		out[at] = i;
	}
	for (; have < k; have++)
		out[have] = -1; /* fewer than k values */
}

void dn_class_scores(const struct dn_net *net, const float *y, float *p)
{
	int64_t n = net->layers[net->output_layer].outputs;
	const struct dn_tree *t = net->tree;

	memcpy(p, y, (size_t)n * sizeof(*p)); /* host memory */
	if (!t || t->n != n)
		return;
	dn_tree_absolute(t, p);
	for (int64_t i = 0; i < n; i++)
		if (!t->leaf[i])
			p[i] = 0;
}

static bool takes(const struct dn_dataset *data)
{
	return !data->truths;
}

static int begin(struct dn_eval *e)
{
	struct own *o = e->own;

	o->n = e->net->layers[e->net->output_layer].outputs;
	o->k = e->top < 1 ? 1 : e->top > o->n ? (int)o->n : e->top;
	o->best = dn_calloc((size_t)o->k, sizeof(*o->best));
	o->scores = dn_calloc((size_t)o->n, sizeof(*o->scores));
	return o->best && o->scores ? 0 : -ENOMEM;
}

static int image(struct dn_eval *e, const struct dn_eval_image *im)
{
	struct own *o = e->own;

	dn_class_scores(e->net, im->y[0], o->scores);
	if (im->cls < 0)
		return 0;
	dn_top_k(o->scores, o->n, o->k, o->best);
	o->top1 += o->best[0] == im->cls;
	for (int j = 0; j < o->k; j++)
		o->topk += o->best[j] == im->cls;
	return 0;
}

static int record(struct dn_eval *e, const struct dn_eval_image *im, struct dn_buf *out)
{
	const struct own *o = e->own;
	int err = dn_buf_add(out, (const char *)&im->cls, sizeof(im->cls));

	return err ? err : dn_buf_add(out, (const char *)o->scores, (size_t)o->n * sizeof(*o->scores));
}

void dn_class_record(const void *record, size_t bytes, int64_t *cls, const float **p, int64_t *n)
{
	*cls = *(const int64_t *)record;
	*p = (const float *)(const void *)((const char *)record + sizeof(*cls));
	*n = (int64_t)((bytes - sizeof(*cls)) / sizeof(**p));
}

static int sum(struct dn_eval *e)
{
	struct own *o = e->own;
	double x[2] = { (double)o->top1, (double)o->topk };
	int err = dn_group_sum(e->group, x, 2);

	o->top1 = (int64_t)x[0];
	o->topk = (int64_t)x[1];
	return err;
}

static double share(const struct dn_eval *e, int64_t n)
{
	return (double)n / (double)e->images;
}

static void report(const struct dn_eval *e, char *out, size_t cap)
{
	const struct own *o = e->own;

	snprintf(out, cap, "top 1: %f, top %d: %f", share(e, o->top1), o->k, share(e, o->topk));
}

static double score(const struct dn_eval *e)
{
	return share(e, ((const struct own *)e->own)->top1);
}

static int fields(const struct dn_eval *e, struct dn_field *out)
{
	const struct own *o = e->own;

	out[0] = (struct dn_field){ "top1", share(e, o->top1) };
	out[1] = (struct dn_field){ "topk", share(e, o->topk) };
	return 2;
}

static void end(struct dn_eval *e)
{
	struct own *o = e->own;

	dn_free(o->best);
	dn_free(o->scores);
}

static void line(const struct dn_loop_step *s, char *out, size_t cap)
{
	snprintf(out, cap, "%lld, %.3f: %f, %f avg, %f rate, %f seconds, %llu images", (long long)s->step, s->epoch, s->loss,
		 s->avg, s->rate, s->seconds, (unsigned long long)s->seen);
}

const struct dn_net_task task_classifier = {
	.name = "classifier",
	.takes = takes,
	.sizes = &task_darknet_sizes,
	.own_bytes = sizeof(struct own),
	.begin = begin,
	.image = image,
	.record = record,
	.sum = sum,
	.report = report,
	.score = score,
	.fields = fields,
	.end = end,
	.line = line,
};
