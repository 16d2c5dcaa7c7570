/* Evaluation: every image of a data set once, split over the ranks; top-k counts and losses. */
#include "train/metric.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/tree.h"
#include "data/data.h"

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
		memmove(out + at + 1, out + at, (size_t)(have - 1 - at) * sizeof(*out));
		out[at] = i;
	}
	for (; have < k; have++)
		out[have] = -1; /* fewer than k values */
}

void dn_class_scores(const struct dn_net *net, const float *y, float *p)
{
	int64_t n = net->layers[net->output_layer].outputs;
	const struct dn_tree *t = net->tree;

	memcpy(p, y, (size_t)n * sizeof(*p));
	if (!t || t->n != n)
		return;
	dn_tree_absolute(t, p);
	for (int64_t i = 0; i < n; i++)
		if (!t->leaf[i])
			p[i] = 0;
}

struct eval {
	struct dn_net *net;
	const struct dn_dataset *data;
	const struct dn_group *g;
	dn_valid_fn fn;
	void *arg;
	bool gather; /* somebody wants the outputs */
	int64_t outputs;
	int k;
	float *y; /* [local, outputs] of the last pass */
	double loss;
	float *x, *t;  /* [local, inputs], [local, truths] */
	int64_t *cls;  /* [local] */
	int64_t *best; /* [k] */
	float *scores; /* [outputs], of one image */
	char *send;    /* cls and outputs of this rank's images, when they travel */
	size_t *sizes; /* [world] */
	struct dn_metric sum;
};

/* Of image @i of the last pass; valid until the next call. */
static const float *scores_of(const struct eval *e, int64_t i)
{
	dn_class_scores(e->net, e->y + i * e->outputs, e->scores);
	return e->scores;
}

static int64_t real_images(const struct eval *e, int64_t first)
{
	int64_t n = e->data->n - first;

	return n < 0 ? 0 : n < e->net->local ? n : e->net->local;
}

/* Samples [first, first + local) of the list, places past its end filled with the last one; the pass over it. */
static int run_batch(struct eval *e, int64_t first)
{
	struct dn_net *net = e->net;
	const struct dn_pass pass = { .input = e->x, .truth = e->t };
	int err = 0;

	for (int64_t i = 0; i < net->local && !err; i++) {
		int64_t at = first + i < e->data->n ? first + i : e->data->n - 1;

		err = e->data->get(e->data, at, NULL, e->x + i * net->inputs, e->t ? e->t + i * net->truths : NULL,
				   e->t ? net->truths : 0, &e->cls[i]);
	}
	err = dn_group_agree(e->g, err, "evaluation");
	if (!err)
		err = dn_net_forward(net, &pass);
	if (!err)
		err = dn_net_loss(net, &pass, &e->loss);
	return err ? err : dn_layer_read(&net->layers[net->output_layer], 0, net->local, e->y);
}

static void count_batch(struct eval *e, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		if (e->cls[i] < 0)
			continue;
		dn_top_k(scores_of(e, i), e->outputs, e->k, e->best);
		e->sum.top1 += e->best[0] == e->cls[i];
		for (int j = 0; j < e->k; j++)
			e->sum.topk += e->best[j] == e->cls[i];
	}
	e->sum.images += n;
}

static int tell(struct eval *e, int64_t index, int64_t cls, const float *p)
{
	return e->fn ? e->fn(e->arg, index, cls, p, e->outputs) : 0;
}

static int tell_alone(struct eval *e, int64_t first, int64_t n)
{
	int err = 0;

	for (int64_t i = 0; i < n && !err; i++)
		err = tell(e, first + i, e->cls[i], scores_of(e, i));
	return err;
}

/* Rank r's images of a batch follow those of rank r-1 in the list, so the gathered bytes are in list order. */
static int tell_gathered(struct eval *e, int64_t first, int64_t n)
{
	size_t floats = (size_t)e->outputs * sizeof(float), one = sizeof(int64_t) + floats;
	char *all = NULL;
	size_t total = 0;
	int err;

	for (int64_t i = 0; i < n; i++) {
		memcpy(e->send + (size_t)i * one, &e->cls[i], sizeof(int64_t));
		memcpy(e->send + (size_t)i * one + sizeof(int64_t), scores_of(e, i), floats);
	}
	err = dn_group_gather(e->g, e->send, (size_t)n * one, &all, e->sizes);
	if (err)
		return err;
	for (int r = 0; r < e->g->world && all; r++)
		total += e->sizes[r];
	for (size_t at = 0; at < total && !err; at += one) {
		float *p = (float *)(void *)e->send; /* sent already: aligned room for one output */
		int64_t cls;

		memcpy(&cls, all + at, sizeof(cls));
		memcpy(p, all + at + sizeof(cls), floats);
		err = tell(e, first + (int64_t)(at / one), cls, p);
	}
	dn_free(all);
	return dn_group_agree(e->g, err, "evaluation");
}

/* The loss of a batch is a sum over its images, the copies that fill it up included: one pass over copies alone tells
 * what each of them added. Collective, so made by all when any batch is not full. */
static int uncount_copies(struct eval *e, int64_t copies)
{
	int err = run_batch(e, e->data->n - 1);

	if (!err && copies)
		e->sum.loss -= e->loss * ((double)copies / (double)e->net->local);
	return err;
}

static int run_all(struct eval *e)
{
	struct dn_net *net = e->net;
	int64_t copies = 0;
	int err = 0;

	for (int64_t at = 0; at < e->data->n && !err; at += net->microbatch) {
		int64_t first = at + e->g->rank * net->local, n = real_images(e, first);

		err = run_batch(e, first);
		if (err)
			break;
		if (e->t)
			e->sum.loss += e->loss;
		copies += net->local - n;
		count_batch(e, n);
		if (e->gather)
			err = e->g->world == 1 ? tell_alone(e, first, n) : tell_gathered(e, at, n);
	}
	if (!err && e->t && e->data->n % net->microbatch)
		err = uncount_copies(e, copies);
	return err;
}

static int eval_alloc(struct eval *e)
{
	struct dn_net *net = e->net;
	const struct dn_backend *be = net->dev->be;
	size_t x, t, y, send = 0;
	int err;

	err = dn_mul_size((size_t)net->local, (size_t)net->inputs * sizeof(float), &x);
	if (!err)
		err = dn_mul_size((size_t)net->local, (size_t)net->truths * sizeof(float), &t);
	if (!err)
		err = dn_mul_size((size_t)net->local, sizeof(int64_t) + (size_t)e->outputs * sizeof(float), &send);
	if (err)
		return err;
	y = sizeof(float) * (size_t)(net->local * e->outputs);
	err = be->alloc_host(net->dev, DN_MEM_HOST, x, (void **)&e->x);
	if (!err && e->data->has_truth && net->truths > 0)
		err = be->alloc_host(net->dev, DN_MEM_HOST, t, (void **)&e->t);
	if (!err)
		err = be->alloc_host(net->dev, DN_MEM_HOST, y, (void **)&e->y);
	if (err)
		return err;
	e->cls = dn_calloc((size_t)net->local, sizeof(*e->cls));
	e->best = dn_calloc((size_t)e->k, sizeof(*e->best));
	e->scores = dn_calloc((size_t)e->outputs, sizeof(*e->scores));
	if (!e->cls || !e->best || !e->scores)
		return -ENOMEM;
	if (!e->gather || e->g->world == 1)
		return 0;
	e->send = dn_alloc(send);
	e->sizes = dn_calloc((size_t)e->g->world, sizeof(*e->sizes));
	return e->send && e->sizes ? 0 : -ENOMEM;
}

static void eval_fini(struct eval *e)
{
	const struct dn_device *dev = e->net ? e->net->dev : NULL;

	if (dev) {
		dev->be->free_host(e->net->dev, e->x);
		dev->be->free_host(e->net->dev, e->t);
		dev->be->free_host(e->net->dev, e->y);
	}
	dn_free(e->cls);
	dn_free(e->best);
	dn_free(e->scores);
	dn_free(e->send);
	dn_free(e->sizes);
}

static int eval_init(struct eval *e, struct dn_net *net, const struct dn_dataset *data, int top, const struct dn_group *g)
{
	double wanted = e->fn != NULL;
	int err;

	e->net = net;
	e->data = data;
	e->g = g;
	e->outputs = net->layers[net->output_layer].outputs;
	e->k = top < 1 ? 1 : top > e->outputs ? (int)e->outputs : top;
	err = dn_group_sum(g, &wanted, 1);
	if (err)
		return err;
	e->gather = wanted > 0;
	return dn_group_agree(g, eval_alloc(e), "evaluation");
}

static int sum_ranks(struct eval *e)
{
	double x[4] = { (double)e->sum.images, (double)e->sum.top1, (double)e->sum.topk, e->sum.loss };
	int err = dn_group_sum(e->g, x, 4);

	if (err)
		return err;
	e->sum.images = (int64_t)x[0];
	e->sum.top1 = (int64_t)x[1];
	e->sum.topk = (int64_t)x[2];
	e->sum.loss = x[3];
	return 0;
}

int dn_evaluate(struct dn_net *net, const struct dn_dataset *data, int top, const struct dn_group *g, dn_valid_fn fn, void *arg,
		struct dn_metric *out)
{
	struct eval e = { .fn = fn, .arg = arg };
	int err;

	if (data->n < 1)
		return dn_fail(-EINVAL, "%s: has no samples to evaluate", data->path);
	err = eval_init(&e, net, data, top, g);
	if (!err)
		err = run_all(&e);
	if (!err)
		err = sum_ranks(&e);
	if (!err) {
		*out = e.sum;
		out->top = e.k;
	}
	eval_fini(&e);
	return err;
}
