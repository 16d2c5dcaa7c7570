/* "classifier valid": Darknet's line per image, top-1 and top-k as they run. */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/session.h"

struct validation {
	struct session s;
	struct dn_datafile *file;
	struct dn_dataset *data;
	int64_t *best;          /* [top] */
	int top;
	int64_t images, hit1, hitk;
};

static int on_image(void *arg, int64_t index, int64_t cls, const float *p, int64_t n)
{
	struct validation *v = arg;
	FILE *f = v->s.c->out;

	if (v->data->name)
		fprintf(f, "%s, %lld, ", v->data->name(v->data, index), (long long)cls);
	else
		fprintf(f, "%s:%lld, %lld, ", v->data->path, (long long)index, (long long)cls);
	for (int64_t i = 0; i < n; i++)
		fprintf(f, "%g, ", (double)p[i]);
	fputc('\n', f);
	dn_top_k(p, n, v->top, v->best);
	v->images++;
	v->hit1 += v->best[0] == cls;
	for (int i = 0; i < v->top; i++)
		v->hitk += v->best[i] == cls;
	fprintf(f, "%lld: top 1: %f, top %d: %f\n", (long long)index, (double)v->hit1 / (double)v->images, v->top,
		(double)v->hitk / (double)v->images);
	return 0;
}

static int open_data(struct validation *v, struct session_items *items)
{
	const struct dn_net *net = v->s.net;
	int64_t outputs = net->layers[net->output_layer].outputs;
	struct dn_dataset_config c = {
		.valid = true, .inputs = net->inputs, .truths = outputs, .w = net->w, .h = net->h, .c = net->c,
		.fit = DN_FIT_CENTER_CROP,
	};
	int64_t size;
	int err;

	err = dn_dataset_open_as(&v->data, v->file, &c);
	if (err)
		return err;
	if (!v->data->has_truth || v->data->truths)
		return dn_fail(-EINVAL, "%s: classifier valid wants class numbers for the images (valid_truth in %s)", v->data->path,
			       v->s.c->args[0]);
	if (v->file->top < 1 || v->file->top > outputs)
		return dn_fail(-EINVAL, "%s: top=%lld: the net has %lld classes", v->s.c->args[0], (long long)v->file->top,
			       (long long)outputs);
	v->top = (int)v->file->top;
	v->best = dn_calloc((size_t)v->top, sizeof(*v->best));
	if (!v->best)
		return -ENOMEM;
	err = session_item(items, "data", "%lld samples, hash %016llx", (long long)v->data->n, (unsigned long long)v->data->hash);
	if (!err)
		err = dn_file_size(v->s.c->args[2], &size);
	if (!err)
		err = session_item(items, "weights file", "%.300s, %lld bytes", v->s.c->args[2], (long long)size);
	return err;
}

static int valid(struct validation *v, struct dn_command *c)
{
	struct dn_net_options opt = { .keep_output = -1 };
	struct session_items items = { 0 };
	struct dn_weights_info info;
	struct dn_metric m;
	int err;

	err = session_start(&v->s, c, c->args[1], false);
	if (err)
		return err;
	err = dn_datafile_read(&v->file, c->args[0], dn_options_on(c->flags, "strict"));
	if (!err)
		err = session_pass_batch(&v->s, &opt);
	err = session_agree(&v->s, err, "data file");
	if (!err)
		err = session_net(&v->s, &opt);
	if (err)
		return err;
	err = session_agree(&v->s, open_data(v, &items), "data");
	if (!err)
		err = session_ready(&v->s, &items);
	session_items_fini(&items);
	if (!err)
		err = session_load(&v->s, c->args[2], false, &info);
	if (!err)
		err = dn_evaluate(v->s.net, v->data, v->top, &v->s.run.group, on_image, v, &m);
	if (err)
		return err;
	if (v->s.run.group.rank == 0)
		fprintf(c->out, "%lld images: top 1: %f, top %d: %f, loss: %f\n", (long long)m.images,
			(double)m.top1 / (double)m.images, v->top, (double)m.topk / (double)m.images, m.loss / (double)m.images);
	return 0;
}

static int run_classifier_valid(struct dn_command *c)
{
	struct validation v = { .data = NULL };
	int err = valid(&v, c);

	dn_dataset_close(v.data);
	dn_free(v.best);
	err = session_end(&v.s, err);
	dn_datafile_destroy(v.file);
	return err;
}

static const struct dn_option *const valid_tables[] = { cli_batch_flags, cli_net_flags, NULL };

const struct dn_verb verb_classifier_valid = {
	.name = "classifier valid", .args = "DATA CFG WEIGHTS", .summary = "evaluate a classifier on the data file's valid part",
	.min_args = 3, .max_args = 3, .flags = valid_tables, .run = run_classifier_valid,
};
