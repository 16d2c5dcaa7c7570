/* "look", also called "imtest": the training samples of a data set as the net gets them, on one sheet. */
#include <errno.h>

#include "cli/bare.h"
#include "cli/cli.h"
#include "cli/samples.h"

struct look {
	struct bare b;
	struct dn_datafile *file;
	struct dn_dataset *data;
	struct dn_order_cache *order;
	int64_t n;
	float *x; /* [n, inputs] */
};

static int check(const struct look *l, const char *data_path)
{
	const struct dn_dataset *ds = l->data;

	if (ds->c != 1 && ds->c != 3)
		return dn_fail(-EINVAL, "%s: samples of %lld x %lld x %lld are no grey or colour images", data_path,
			       (long long)ds->w, (long long)ds->h, (long long)ds->c);
	if (ds->w < 2 && ds->h < 2)
		return dn_fail(-EINVAL, "%s: samples of %lld values are no images", data_path, (long long)ds->inputs);
	if (ds->inputs * l->n > DN_IMAGE_MAX_PIXELS * 3)
		return dn_fail(-EINVAL, "-n %lld: %lld samples of %lld x %lld do not fit a sheet of %lld pixels", (long long)l->n,
			       (long long)l->n, (long long)ds->w, (long long)ds->h, (long long)DN_IMAGE_MAX_PIXELS);
	return 0;
}

/* Samples of the first updates, in order, each as its place in its update draws it. */
static int get_samples(struct look *l, FILE *f)
{
	const struct dn_dataset *ds = l->data;
	int64_t batch = l->b.net->batch;

	for (int64_t i = 0; i < l->n; i++) {
		struct dn_sample_key key = { .update = (uint64_t)(i / batch) + 1, .place = (uint64_t)(i % batch) };
		int64_t at = dn_order_at(l->order, i), cls = -1;
		int err = ds->get(ds, at, &key, l->x + i * ds->inputs, NULL, 0, &cls);

		if (err)
			return err;
		fprintf(f, "%lld: %s:%lld, %lld\n", (long long)i, ds->name ? ds->name(ds, at) : ds->path, (long long)at,
			(long long)cls);
	}
	return 0;
}

static int look(struct look *l, struct dn_command *c, const char *out)
{
	const struct dn_options *f = c->flags;
	struct dn_order order = { .seed = (uint64_t)dn_options_int(f, "seed") };
	int64_t columns = dn_options_int(f, "columns");
	size_t bytes = 0;
	int err;

	l->n = dn_options_int(f, "n");
	err = bare_open(&l->b, c, c->args[1], NULL);
	if (!err)
		err = dn_datafile_read(&l->file, c->args[0], dn_options_on(f, "strict"));
	if (!err)
		err = samples_open(&l->data, l->file, l->b.net, false, order.seed);
	if (!err)
		err = check(l, c->args[0]);
	if (err)
		return err;
	order.n = l->data->n;
	order.shuffle = l->file->shuffle;
	err = dn_order_cache_create(&l->order, &order);
	if (!err)
		err = dn_mul_size((size_t)l->n, (size_t)l->data->inputs * sizeof(float), &bytes);
	if (err)
		return err;
	l->x = dn_alloc(bytes);
	if (!l->x)
		return -ENOMEM;
	err = get_samples(l, c->out);
	if (!err)
		err = dn_sheet_write(out, l->x, l->n, l->data->w, l->data->h, l->data->c, columns < l->n ? columns : l->n);
	if (!err)
		fprintf(stderr, "Saving %lld samples to %s\n", (long long)l->n, out);
	return err;
}

static int run_look(struct dn_command *c)
{
	struct look l = { .n = 0 };
	int err = look(&l, c, c->n_args > 2 ? c->args[2] : "look.png");

	dn_order_cache_destroy(l.order);
	dn_free(l.x);
	dn_dataset_close(l.data);
	dn_datafile_destroy(l.file);
	bare_close(&l.b);
	return err;
}

static const struct dn_option look_flags[] = {
	{ .key = "n", .type = DN_OPT_INT, .def = "32", .min = 1, .max = 1e6, .arg = "N", .help = "samples" },
	{ .key = "columns",
	  .type = DN_OPT_INT,
	  .def = "8",
	  .min = 1,
	  .max = 1e6,
	  .arg = "N",
	  .help = "samples in a row of the sheet" },
	{ .key = NULL }
};
static const struct dn_option *const tables[] = { look_flags, cli_seed_flags, bare_flags, NULL };

const struct dn_verb verb_look = {
	.name = "look",
	.args = "DATA CFG [OUT.png]",
	.summary = "augmented training samples on one sheet, look.png if OUT is not given",
	.min_args = 2,
	.max_args = 3,
	.flags = tables,
	.run = run_look,
};

const struct dn_verb verb_imtest = {
	.name = "imtest",
	.args = "DATA CFG [OUT.png]",
	.summary = "the same as look",
	.min_args = 2,
	.max_args = 3,
	.flags = tables,
	.run = run_look,
};
