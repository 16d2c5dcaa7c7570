/* "classifier valid": Darknet's line per image, top-1 and top-k as they run; "cifar test": the share of right ones. */
#include <errno.h>

#include "cli/cli.h"
#include "cli/samples.h"

struct validation {
	struct session s;
	const char *data_path, *cfg_path, *weights_path; /* data_path NULL: Darknet's places of CIFAR-10 */
	struct dn_datafile *file;
	struct dn_dataset *data;
	int64_t *best; /* [top] */
	int top;
	int64_t images, hit1, hitk;
};

static int on_image(void *arg, int64_t index, const void *record, size_t bytes)
{
	struct validation *v = arg;
	FILE *f = v->s.c->out;
	const float *p;
	int64_t cls, n;

	dn_class_record(record, bytes, &cls, &p, &n);
	if (v->data->name)
		fprintf(f, "%s, %lld, ", v->data->name(v->data, index), (long long)cls);
	else
		fprintf(f, "%s:%lld, %lld, ", v->data->path, (long long)index, (long long)cls);
	for (int64_t i = 0; i < n && i < 2; i++) /* Darknet's line has the first two; `forward` gives all */
		fprintf(f, "%f, ", (double)p[i]);
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
	struct dn_net *net = v->s.net;
	int err;

	err = samples_open(&v->data, v->file, net, true, 0);
	if (err)
		return err;
	if (!v->data->has_truth || v->data->truths)
		return dn_fail(-EINVAL, "%s: %s wants class numbers for the images (valid_truth in %s)", v->data->path,
			       v->s.c->verb->name, v->file->file->path);
	err = samples_check_top(v->file->top, net, v->file->file->path);
	if (err)
		return err;
	v->top = (int)v->file->top;
	v->best = dn_calloc((size_t)v->top, sizeof(*v->best));
	if (!v->best)
		return -ENOMEM;
	err = samples_item(items, v->data, v->file);
	return err ? err : session_item_weights(&v->s, items, v->weights_path);
}

static int evaluate(struct validation *v, struct dn_command *c, dn_record_fn fn, struct dn_result *r)
{
	struct dn_eval_options o = { .task = dn_net_task_find("classifier"), .fn = fn, .arg = v };
	struct dn_net_options opt = { 0 };
	struct session_items items = { 0 };
	struct dn_weights_info info;
	int err;

	err = session_start(&v->s, c, v->cfg_path, false);
	if (err)
		return err;
	err = v->data_path ? dn_datafile_read(&v->file, v->data_path, dn_options_on(c->flags, "strict"))
			   : samples_cifar(&v->file);
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
		err = session_load(&v->s, v->weights_path, false, &info);
	if (err)
		return err;
	o.top = v->top;
	o.threads = samples_threads(v->file, v->s.run.threads);
	return dn_evaluate(v->s.net, v->data, &o, &v->s.run.group, r);
}

/* Scores that are none have been ranked and counted all the same: nobody is to rely on them. */
static int check_outputs(struct validation *v, const struct dn_result *r)
{
	int err = 0;

	if (r->nonfinite)
		err = dn_fail(-ERANGE, "%s: %lld of %lld images have a NaN or infinite output", v->weights_path,
			      (long long)r->nonfinite, (long long)r->images);
	return session_agree(&v->s, err, "evaluation");
}

static int validation_end(struct validation *v, int err)
{
	dn_dataset_close(v->data);
	dn_free(v->best);
	err = session_end(&v->s, err);
	dn_datafile_destroy(v->file);
	return err;
}

static int run_classifier_valid(struct dn_command *c)
{
	struct validation v = { .data_path = c->args[0], .cfg_path = c->args[1], .weights_path = c->args[2] };
	struct dn_result r;
	int err = evaluate(&v, c, on_image, &r);

	if (!err && v.s.run.group.rank == 0)
		fprintf(c->out, "%lld images: %s, loss: %f\n", (long long)r.images, r.text, r.loss / (double)r.images);
	if (!err)
		err = check_outputs(&v, &r);
	return validation_end(&v, err);
}

static int run_cifar_test(struct dn_command *c)
{
	struct validation v = { .data_path = NULL };
	int at = samples_data_arg(c, &v.data_path);
	struct dn_result r;
	int64_t start;
	int err;

	if (c->n_args - at != 2)
		return samples_usage(c);
	v.cfg_path = c->args[at];
	v.weights_path = c->args[at + 1];
	start = dn_now_ns();
	err = evaluate(&v, c, NULL, &r);
	if (!err && v.s.run.group.rank == 0)
		fprintf(c->out, "top1: %f, %f seconds, %lld images\n", dn_result_field(&r, "top1"),
			(double)(dn_now_ns() - start) * 1e-9, (long long)r.images);
	if (!err)
		err = check_outputs(&v, &r);
	return validation_end(&v, err);
}

static const struct dn_option *const valid_tables[] = { cli_batch_flags, cli_net_flags, NULL };

const struct dn_verb verb_classifier_valid = {
	.name = "classifier valid",
	.args = "DATA CFG WEIGHTS",
	.summary = "evaluate a classifier on the data file's valid part",
	.min_args = 3,
	.max_args = 3,
	.flags = valid_tables,
	.run = run_classifier_valid,
};

const struct dn_verb verb_cifar_test = {
	.name = "cifar test",
	.args = "[X.data] CFG WEIGHTS",
	.summary = "the share of CIFAR-10's test images that are classified right",
	.min_args = 2,
	.max_args = 3,
	.flags = valid_tables,
	.run = run_cifar_test,
};
