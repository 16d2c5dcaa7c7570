/* Evaluation: every image of a data set once, split over the ranks; loader threads decode ahead of the net, and what is made of
 * the outputs is the task's. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "train/metric.h"
#include "train/ring_priv.h"
#include "train/task.h"

#define RECORD_ALIGN 8u

struct eval {
	struct dn_eval e;
	const struct dn_net_task *task;
	dn_record_fn fn;
	void *arg;
	bool gather; /* somebody listens */
	bool judged; /* the net has a loss of these images */
	int threads; /* that decode */
	struct dn_loader *loader;
	const float *x, *t; /* of the last pass: [local_batch, inputs], [local_batch, truths], the loader's */
	const int64_t *cls; /* [local_batch] */
	float **y;	    /* [n_outputs][local_batch, outputs] of the last pass */
	const float **y_of; /* [n_outputs] of one image */
	double loss;	    /* of the last pass */
	int64_t nonfinite;  /* images with a NaN or infinite output */
	int err;	    /* of this rank's images; all ranks hear of it at the next agreement */
	struct dn_buf send; /* the records of this rank's images of a batch: each its length, then itself */
	size_t *sizes;	    /* [world] */
};

static const struct dn_layer *output(const struct dn_net *net, int k)
{
	return &net->layers[net->outputs[k]];
}

static int64_t real_images(const struct eval *v, int64_t first)
{
	int64_t n = v->e.data->n - first;

	return n < 0 ? 0 : n < v->e.net->local_batch ? n : v->e.net->local_batch;
}

/* The next batch of the list, and the pass over it. */
static int run_batch(struct eval *v)
{
	struct dn_net *net = v->e.net;
	struct dn_pass pass = { 0 };
	int err = v->err ? v->err : dn_net_input_wait(net);

	if (!err)
		err = dn_loader_next(v->loader, &v->x, &v->t, &v->cls, NULL);
	err = dn_group_agree(v->e.group, err, "evaluation");
	pass.input = v->x;
	pass.truth = v->judged ? v->t : NULL;
	if (!err)
		err = dn_net_forward(net, &pass);
	if (!err)
		err = dn_net_loss(net, &pass, &v->loss);
	for (int k = 0; k < net->n_outputs && !err; k++)
		err = dn_layer_read(output(net, k), 0, net->local_batch, v->y[k]);
	return err;
}

/* Room for its length comes first, and is filled in when it is known. */
static int add_record(struct eval *v, const struct dn_eval_image *im)
{
	static const char zeros[2 * RECORD_ALIGN];
	struct dn_buf *b = &v->send;
	size_t at = b->n, bytes;
	int err = dn_buf_add(b, zeros, RECORD_ALIGN);

	if (!err)
		err = v->task->record(&v->e, im, b);
	if (err)
		return err;
	bytes = b->n - at - RECORD_ALIGN;
	memcpy(b->s + at, &bytes, sizeof(bytes)); /* host memory */
	return dn_buf_add(b, zeros, dn_up(bytes, RECORD_ALIGN) - bytes);
}

int64_t dn_nonfinite(const float *x, int64_t n)
{
	int64_t bad = 0;

	for (int64_t i = 0; i < n; i++)
		bad += !isfinite(x[i]);
	return bad;
}

static void see_images(struct eval *v, int64_t first, int64_t n)
{
	const struct dn_net *net = v->e.net;

	v->send.n = 0;
	for (int64_t i = 0; i < n && !v->err; i++) {
		const struct dn_eval_image im = { first + i, v->cls[i], v->judged ? v->t + i * net->truths : NULL, v->y_of };

		int64_t bad = 0;

		for (int k = 0; k < net->n_outputs; k++) {
			v->y_of[k] = v->y[k] + i * output(net, k)->outputs;
			bad += dn_nonfinite(v->y_of[k], output(net, k)->outputs);
		}
		v->nonfinite += bad > 0;
		v->err = v->task->image(&v->e, &im);
		if (!v->err && v->gather)
			v->err = add_record(v, &im);
		v->e.images++;
	}
}

static int tell(struct eval *v, const char *records, size_t total, int64_t *index)
{
	int err = 0;

	for (size_t at = 0; at < total && !err; (*index)++) {
		size_t bytes;

		memcpy(&bytes, records + at, sizeof(bytes)); /* host memory */
		at += RECORD_ALIGN;
		err = v->fn ? v->fn(v->arg, *index, records + at, bytes) : 0;
		at += dn_up(bytes, RECORD_ALIGN);
	}
	return err;
}

/* Rank r's images of a batch follow those of rank r-1 in the list, so the gathered records are in list order. */
static int tell_gathered(struct eval *v, int64_t index)
{
	const struct dn_group *g = v->e.group;
	char *all = NULL;
	size_t total = 0;
	int err = dn_group_gather(g, v->send.s, v->send.n, &all, v->sizes);

	if (err)
		return err;
	for (int r = 0; r < g->world && all; r++)
		total += v->sizes[r];
	err = v->err ? v->err : tell(v, all, all ? total : 0, &index);
	dn_free(all);
	return dn_group_agree(g, err, "evaluation");
}

/* The loss of a batch is a sum over its images, the copies that fill it up included: one pass over copies alone tells
 * what each of them added. Collective, so made by all when any batch is not full. */
static int uncount_copies(struct eval *v, int64_t copies)
{
	int err = run_batch(v);

	if (!err && copies)
		v->e.loss -= v->loss * ((double)copies / (double)v->e.net->local_batch);
	return err;
}

static int run_all(struct eval *v)
{
	const struct dn_group *g = v->e.group;
	struct dn_net *net = v->e.net;
	int64_t copies = 0;
	int err = dn_net_forget(net, DN_INFER);

	for (int64_t at = 0; at < v->e.data->n && !err; at += net->microbatch) {
		int64_t first = at + g->rank * net->local_batch, n = real_images(v, first);

		err = run_batch(v);
		if (err)
			break;
		if (v->judged)
			v->e.loss += v->loss;
		copies += net->local_batch - n;
		see_images(v, first, n);
		if (v->gather && g->world > 1)
			err = tell_gathered(v, at);
		else if (v->gather && !v->err)
			err = tell(v, v->send.s, v->send.n, &first);
	}
	if (!err)
		err = dn_group_agree(g, v->err, "evaluation");
	if (!err && v->judged && v->e.data->n % net->microbatch)
		err = uncount_copies(v, copies);
	return err;
}

static int alloc_outputs(struct eval *v)
{
	struct dn_net *net = v->e.net;
	int err = 0;

	v->y = dn_calloc((size_t)net->n_outputs, sizeof(*v->y));
	v->y_of = dn_calloc((size_t)net->n_outputs, sizeof(*v->y_of));
	if (!v->y || !v->y_of)
		return -ENOMEM;
	for (int k = 0; k < net->n_outputs && !err; k++)
		err = net->dev->be->alloc_host(net->dev, DN_MEM_HOST,
					       sizeof(float) * (size_t)(net->local_batch * output(net, k)->outputs),
					       (void **)&v->y[k]);
	return err;
}

/* A batch that is not full is followed by one of copies alone (uncount_copies()). */
static int start_loader(struct eval *v)
{
	const struct dn_net *net = v->e.net;
	const int64_t n = v->e.data->n, part = n % net->microbatch > 0;
	const struct dn_loader_config c = {
		.data = v->e.data,
		.order = { n, DN_SHUFFLE_OFF, 0 },
		.batch = net->microbatch,
		.subdivisions = 1,
		.rank = v->e.group->rank,
		.world = v->e.group->world,
		.inputs = net->inputs,
		.truths = v->judged ? net->truths : 0,
		.threads = v->threads > 0 ? v->threads : 1,
		.first_update = 1,
		.batches = n / net->microbatch + part + (v->judged && part),
		.memory = train_ring_memory(net->dev),
	};

	return dn_loader_create(&v->loader, &c);
}

static int eval_alloc(struct eval *v)
{
	int err;

	v->judged = v->e.data->has_truth && v->e.net->truths > 0;
	err = start_loader(v);
	if (!err)
		err = alloc_outputs(v);
	if (err)
		return err;
	v->sizes = dn_calloc((size_t)v->e.group->world, sizeof(*v->sizes));
	v->e.own = v->task->own_bytes ? dn_zalloc(v->task->own_bytes) : NULL;
	if (!v->sizes || (v->task->own_bytes && !v->e.own))
		return -ENOMEM;
	return v->task->begin ? v->task->begin(&v->e) : 0;
}

static void eval_fini(struct eval *v)
{
	struct dn_net *net = v->e.net;
	const struct dn_backend *be = net->dev->be;

	if (v->task->end && v->e.own)
		v->task->end(&v->e);
	dn_net_drain(net);
	dn_loader_destroy(v->loader);
	for (int k = 0; k < net->n_outputs && v->y; k++)
		be->free_host(net->dev, v->y[k]);
	dn_free(v->y);
	dn_free(v->y_of);
	dn_free(v->sizes);
	dn_free(v->e.own);
	dn_buf_fini(&v->send);
}

static int eval_init(struct eval *v)
{
	double wanted = v->fn != NULL;
	int err = dn_group_sum(v->e.group, &wanted, 1);

	if (err)
		return err;
	v->gather = wanted > 0;
	if (v->gather && !v->task->record)
		err = dn_fail(-EINVAL, "%s: the task %s tells nothing of single images", v->e.data->path, v->task->name);
	return dn_group_agree(v->e.group, err ? err : eval_alloc(v), "evaluation");
}

static int sum_ranks(struct eval *v)
{
	double x[3] = { (double)v->e.images, v->e.loss, (double)v->nonfinite };
	int err = dn_group_sum(v->e.group, x, 3);

	v->e.images = (int64_t)x[0];
	v->e.loss = x[1];
	v->nonfinite = (int64_t)x[2];
	return err || !v->task->sum ? err : v->task->sum(&v->e);
}

static void result_of(const struct eval *v, struct dn_result *out)
{
	*out = (struct dn_result){ .task = v->task, .images = v->e.images, .nonfinite = v->nonfinite, .loss = v->e.loss };
	out->score = v->task->score(&v->e);
	out->n_fields = v->task->fields(&v->e, out->fields);
	v->task->report(&v->e, out->text, sizeof(out->text));
}

int dn_evaluate(struct dn_net *net, const struct dn_dataset *data, const struct dn_eval_options *o, const struct dn_group *g,
		struct dn_result *out)
{
	struct eval v = {
		.e = { .net = net, .data = data, .group = g, .top = o->top },
		.task = o->task,
		.threads = o->threads,
		.fn = o->fn,
		.arg = o->arg,
	};
	int err;

	if (data->n < 1)
		return dn_fail(-EINVAL, "%s: has no samples to evaluate", data->path);
	if (!v.task)
		v.task = dn_net_task_for(net, data);
	err = eval_init(&v);
	if (!err)
		err = run_all(&v);
	if (!err)
		err = sum_ranks(&v);
	if (!err)
		result_of(&v, out);
	eval_fini(&v);
	return err;
}
