/* Opening data sets for a net, and the names of classes; see samples.h. */
#include "cli/samples.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static int64_t classes_of(const struct dn_net *net)
{
	return net->layers[net->output_layer].outputs;
}

int samples_cifar(struct dn_datafile **out)
{
	static const char dir[] = "data/cifar/cifar-10-batches-bin/";
	struct dn_buf b = { 0 };
	int err;

	err = dn_buf_printf(&b, "format=cifar\nclasses=10\nlabels=data/cifar/labels.txt\nbackup=backup\n");
	if (!err)
		err = dn_buf_printf(&b, "valid=%stest_batch.bin\ntrain=", dir);
	for (int i = 1; i <= 5 && !err; i++)
		err = dn_buf_printf(&b, "%s%sdata_batch_%d.bin", i > 1 ? "," : "", dir, i);
	if (!err)
		err = dn_datafile_parse(out, b.s, "cifar");
	dn_buf_fini(&b);
	return err;
}

int samples_data_arg(const struct dn_command *c, const char **path)
{
	bool given = c->n_args > 0 && dn_ends(c->args[0], ".data");

	*path = given ? c->args[0] : NULL;
	return given;
}

int samples_usage(struct dn_command *c)
{
	fprintf(stderr, "darknet: %d arguments found, wanted: %s\nusage: darknet %s %s [flags]    (darknet help %s)\n", c->n_args,
		c->verb->args, c->verb->name, c->verb->args, c->verb->name);
	c->exit_status = CLI_USAGE;
	return 0;
}

/* "x.data:4: " of @key, or of the file */
static const char *place_of(char *out, size_t cap, const struct dn_datafile *d, const char *key)
{
	const struct dn_key *k = dn_section_find(&d->file->sections[0], key);

	if (k)
		snprintf(out, cap, "%.500s:%d", d->file->path, k->line);
	else
		snprintf(out, cap, "%.500s", d->file->path);
	return out;
}

static void warn_names(const struct dn_datafile *d, int64_t classes)
{
	const char *key = d->names ? "names" : "labels", *path = d->names ? d->names : d->labels;
	struct dn_lines names = { 0 };
	char at[520];

	if (!path)
		return;
	place_of(at, sizeof(at), d, key);
	if (access(path, R_OK))
		dn_warn("%s: %s=%.300s: cannot read: %s; predict wants the names of the classes", at, key, path, strerror(errno));
	else if (dn_lines_read(&names, path, "a list of names", true))
		dn_warn("%s: %s=%.300s: %.700s; predict wants the names of the classes", at, key, path, dn_message());
	else if (names.n < classes)
		dn_warn("%s: %s=%.300s: %lld names, but the net has %lld outputs", at, key, path, (long long)names.n,
			(long long)classes);
	dn_lines_fini(&names);
}

/* What valid and predict will refuse when the training is over is told before it starts. */
static void warn_later(const struct dn_datafile *d, const struct dn_net *net)
{
	const char *const valid[][2] = { { "valid", d->valid }, { "valid_truth", d->valid_truth } };
	const int64_t classes = classes_of(net);
	char at[520];

	if (d->classes >= 0 && d->classes < classes)
		dn_warn("%s: classes=%lld, but the net has %lld outputs", place_of(at, sizeof(at), d, "classes"),
			(long long)d->classes, (long long)classes);
	if (d->top > classes)
		dn_warn("%s: top=%lld, but the net has %lld outputs: valid and predict refuse that",
			place_of(at, sizeof(at), d, "top"), (long long)d->top, (long long)classes);
	warn_names(d, classes);
	for (int i = 0; i < 2; i++)
		if (valid[i][1] && !strchr(valid[i][1], ',') && access(valid[i][1], R_OK))
			dn_warn("%s: %s=%.300s: cannot read: %s; valid wants it", place_of(at, sizeof(at), d, valid[i][0]),
				valid[i][0], valid[i][1], strerror(errno));
}

static bool is_there(const char *path)
{
	return !path || strchr(path, ',') || !access(path, R_OK);
}

/* @told: the other part of the same list has been opened */
static int open_part(struct dn_dataset **out, const struct dn_datafile *d, struct dn_net *net, bool valid, bool told,
		     uint64_t seed)
{
	struct dn_dataset_config c = {
		.valid = valid,
		.told = told,
		.inputs = net->inputs,
		.truths = net->truths,
		.w = net->w,
		.h = net->h,
		.c = net->w ? net->c : 0,
		.fit = DN_FIT_CENTER_CROP,
		.seed = seed,
	};
	struct dn_augment a;
	int err = 0;

	if (!valid && d->format == DN_FORMAT_LIST && net->w) {
		err = dn_augment_read(&a, net->cfg->net, net->w);
		c.augment = &a;
	}
	if (!err)
		err = dn_dataset_open(out, d, &c);
	if (!err && !valid && (*out)->has_truth && !(*out)->truths)
		warn_later(d, net);
	return err;
}

int samples_open(struct dn_dataset **out, const struct dn_datafile *d, struct dn_net *net, bool valid, uint64_t seed)
{
	return open_part(out, d, net, valid, false, seed);
}

/* Of a list the first image, too. */
static int try_first(const struct dn_dataset *ds)
{
	float *x;
	int err;

	if (ds->n < 1 || !ds->name)
		return 0;
	x = dn_alloc((size_t)ds->inputs * sizeof(*x));
	err = !x ? -ENOMEM : ds->prepare ? ds->prepare(ds, 1) : 0;
	if (!err)
		err = ds->get(ds, 0, NULL, x, NULL, 0, NULL);
	dn_free(x);
	return err;
}

int samples_try_valid(struct dn_dataset **keep, const struct dn_datafile *d, struct dn_net *net, uint64_t seed)
{
	struct dn_dataset *ds = NULL;
	char at[520];
	size_t n;
	int err;

	if (!keep && (!d->valid || !is_there(d->valid) || !is_there(d->valid_truth)))
		return 0;
	err = open_part(&ds, d, net, true, d->train && d->valid && !strcmp(d->train, d->valid), seed);
	if (!err)
		err = try_first(ds);
	if (err && err != -ENOMEM && d->valid) {
		const char *why = dn_message();

		n = strlen(place_of(at, sizeof(at), d, "valid"));
		if (!strncmp(why, at, n) && !strncmp(why + n, ": ", 2)) /* once is enough */
			why += n + 2;
		err = dn_fail(err, "%s: valid=%.300s cannot be evaluated: %s", at, d->valid, why);
	}
	if (err || !keep)
		dn_dataset_close(ds);
	else
		*keep = ds;
	return err;
}

/* Decoding and augmenting images is work for as many threads as compute; reading arrays is not. */
int samples_threads(const struct dn_datafile *d, int threads)
{
	if (d->format == DN_FORMAT_LIST)
		return threads < 1 ? 1 : threads > 16 ? 16 : threads;
	return threads >= 4 ? 2 : 1;
}

int samples_item(struct session_items *items, const struct dn_dataset *ds, const struct dn_datafile *d)
{
	items->data = d->file;
	return session_item(items, "data", "%lld samples, hash %016llx", (long long)ds->n, (unsigned long long)ds->hash);
}

int samples_check_top(int64_t top, const struct dn_net *net, const char *where)
{
	if (top < 1 || top > classes_of(net))
		return dn_fail(-EINVAL, "%s: the best %lld classes are asked for, the net has %lld", where, (long long)top,
			       (long long)classes_of(net));
	return 0;
}

int samples_check_classes(const struct dn_datafile *d, const struct dn_net *net)
{
	if (d->classes >= 0 && d->classes != classes_of(net))
		return dn_section_fail(&d->file->sections[0], "classes", -EINVAL, "classes=%lld, but the net has %lld outputs",
				       (long long)d->classes, (long long)classes_of(net));
	return 0;
}

int samples_names(struct dn_lines *out, const struct dn_datafile *d, const struct dn_net *net)
{
	const char *path = d->names ? d->names : d->labels ? d->labels : "data/names.list";
	int err = dn_lines_read(out, path, "a list of names", true);

	if (err && !d->names && !d->labels)
		return dn_fail(err, "%s: there is no names= or labels= line, and the names are not in %s either", d->file->path,
			       path);
	if (!err && out->n < classes_of(net)) {
		err = dn_fail(-EINVAL, "%s: %lld names, but the net has %lld outputs", path, (long long)out->n,
			      (long long)classes_of(net));
		dn_lines_fini(out);
	}
	return dn_datafile_fail(d, d->names ? "names" : "labels", err);
}
