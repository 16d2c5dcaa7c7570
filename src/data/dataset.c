/* Data sets: opening by format; and those out of two arrays, inputs and truth. */
#include "data/array_priv.h"
#include "data/dataset_priv.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

#define HASH_ALL_BYTES ((size_t)64 << 20) /* larger inputs are hashed by their shape alone */

struct arrays {
	struct data_array x, truth;
	const char *x_path, *truth_path; /* borrowed during open only; truth_path may be NULL */
	char *truth_file;		 /* own copy, of dense targets: read on, so messages name it */
	struct warned x_bad, truth_bad;	 /* samples with values that are not finite */
};

int dataset_get_class(const struct dn_dataset *ds, int64_t i, int64_t k, float *t, int64_t n_truths, int64_t *cls)
{
	if (i < 0 || i >= ds->n)
		return dn_fail(-EINVAL, "%s: there is no sample %lld, it has %lld", ds->path, (long long)i, (long long)ds->n);
	if (n_truths && k >= n_truths)
		return dn_fail(-EINVAL, "%s: sample %lld has class %lld, there are %lld", ds->path, (long long)i, (long long)k,
			       (long long)n_truths);
	if (n_truths) {
		memset(t, 0, (size_t)n_truths * sizeof(*t));
		if (k >= 0)
			t[k] = 1;
	}
	if (cls)
		*cls = k;
	return 0;
}

static int64_t arrays_class(const void *truth, int64_t i)
{
	return data_whole(truth, i);
}

/* A value that is none spoils the whole update, far from here: who has it is known now. */
static void check_finite(struct warned *w, const char *path, int64_t i, const char *of, const float *x, int64_t n)
{
	char text[700];

	for (int64_t k = 0; k < n; k++) {
		if (isfinite(x[k]))
			continue;
		snprintf(text, sizeof(text), DATA_PATH ": sample %lld: value %lld%s is %s", path, (long long)i, (long long)k, of,
			 isnan(x[k]) ? "NaN" : "infinite");
		warned_tell(w, i, text);
		return;
	}
}

static int arrays_get(const struct dn_dataset *ds, int64_t i, const struct dn_sample_key *key, float *x, float *t,
		      int64_t n_truths, int64_t *cls)
{
	struct arrays *a = ds->priv;
	bool classes = ds->has_truth && !ds->truths, here = i >= 0 && i < ds->n;
	int err;

	if (ds->truths && n_truths && n_truths != ds->truths)
		return dn_fail(-EINVAL, "%s: targets have %lld values, asked for are %lld", ds->path, (long long)ds->truths,
			       (long long)n_truths);
	err = dataset_get_class(ds, i, classes && here ? data_whole(&a->truth, i) : -1, t, n_truths, cls);
	if (!err)
		err = data_read_floats(&a->x, ds->path, i * ds->inputs, ds->inputs, true, x);
	if (!err && !data_type_whole(a->x.type))
		check_finite(&a->x_bad, ds->path, i, "", x, ds->inputs);
	if (err || !n_truths || !ds->truths)
		return err;
	err = data_read_floats(&a->truth, a->truth_file, i * ds->truths, ds->truths, false, t);
	if (!err)
		check_finite(&a->truth_bad, a->truth_file, i, " of its target", t, ds->truths);
	return err;
}

static void arrays_close(struct dn_dataset *ds)
{
	struct arrays *a = ds->priv;

	data_array_close(&a->x);
	data_array_close(&a->truth);
	warned_fini(&a->x_bad);
	warned_fini(&a->truth_bad);
	dn_free(a->truth_file);
	dn_free(a);
}

static int set_shape(struct dn_dataset *ds, const struct arrays *a, const struct dn_dataset_config *c)
{
	const int64_t *s = a->x.shape;
	char shape[220];

	data_shape_text(a->x.n_dims, s, shape, sizeof(shape));
	if (a->x.n_dims < 2 || a->x.n_dims > 4)
		return dn_fail(-EINVAL, DATA_PATH ": its shape is %s, wanted [n, values], [n, h, w] or [n, c, h, w]", a->x_path,
			       shape);
	if (!a->x.n)
		return dn_fail(-EINVAL, DATA_PATH ": its shape %s has no elements", a->x_path, shape);
	ds->n = s[0];
	ds->inputs = a->x.n / s[0];
	ds->c = a->x.n_dims == 3 ? 1 : s[1];
	ds->h = a->x.n_dims == 2 ? 1 : s[a->x.n_dims - 2];
	ds->w = a->x.n_dims == 2 ? 1 : s[a->x.n_dims - 1];
	return dn_samples_fit(a->x_path, a->x.n_dims, s, c);
}

int dataset_check_classes(struct dn_dataset *ds, const struct dn_datafile *d, int64_t truths, const char *path,
			  int64_t (*class_of)(const void *arg, int64_t i), const void *arg)
{
	int64_t largest = -1;

	if (d->classes >= 0 && truths && d->classes > truths)
		return dn_section_fail(&d->file->sections[0], "classes", -EINVAL, "classes=%lld, but the net has %lld outputs",
				       (long long)d->classes, (long long)truths);
	for (int64_t i = 0; i < ds->n; i++) {
		int64_t k = class_of(arg, i);

		if (k < 0)
			return dn_fail(-EINVAL, DATA_PATH ": sample %lld has class %lld, must be at least 0", path, (long long)i,
				       (long long)k);
		if (truths && k >= truths)
			return dn_fail(-EINVAL,
				       DATA_PATH ": sample %lld has class %lld, the net's %lld outputs are classes 0 to "
						 "%lld",
				       path, (long long)i, (long long)k, (long long)truths, (long long)truths - 1);
		if (d->classes >= 0 && k >= d->classes)
			return dn_fail(-EINVAL,
				       DATA_PATH ": sample %lld has class %lld, classes=%lld in " DATA_PATH " allows 0 to %lld",
				       path, (long long)i, (long long)k, (long long)d->classes, d->file->path,
				       (long long)d->classes - 1);
		if (k > largest)
			largest = k;
	}
	if (largest == INT64_MAX)
		return dn_fail(-EINVAL, DATA_PATH ": class %lld is too large", path, (long long)largest);
	ds->classes = d->classes >= 0 ? d->classes : largest + 1;
	return 0;
}

static int check_truth(struct dn_dataset *ds, const struct arrays *a, const struct dn_datafile *d, int64_t truths)
{
	const struct data_array *t = &a->truth;
	bool dense = d->format == DN_FORMAT_NPY && t->n_dims == 2 && !data_type_whole(t->type);
	char shape[220];

	data_shape_text(t->n_dims, t->shape, shape, sizeof(shape));
	if (!dense && (t->n_dims != 1 || !data_type_whole(t->type)))
		return dn_fail(-EINVAL,
			       DATA_PATH ": truth of shape %s and type %s; wanted class numbers, [n] of an integer type%s",
			       a->truth_path, shape, data_type_name(t->type),
			       d->format == DN_FORMAT_NPY ? ", or targets, [n, k] of float32" : "");
	if (t->shape[0] != ds->n)
		return dn_fail(-EINVAL, DATA_PATH ": %lld samples, but " DATA_PATH " has truth for %lld%s", a->x_path,
			       (long long)ds->n, a->truth_path, (long long)t->shape[0],
			       dense && t->shape[1] == ds->n ? "; transposed, as [n, k], it would fit" : "");
	ds->has_truth = true;
	if (!dense)
		return dataset_check_classes(ds, d, truths, a->truth_path, arrays_class, t);
	if (!t->shape[1] || (truths && t->shape[1] != truths))
		return dn_fail(-EINVAL, DATA_PATH ": a target has %lld values (shape %s), the net takes %lld", a->truth_path,
			       (long long)t->shape[1], shape, (long long)truths);
	ds->truths = t->shape[1];
	return 0;
}

static int hash_of(const struct arrays *a, uint64_t *out)
{
	uint64_t all[4 + 2 * DATA_MAX_DIMS] = { 0 };
	const struct data_array *both[2] = { &a->x, &a->truth };
	size_t n = 0;
	int err = 0;

	for (int k = 0; k < 2 && !err; k++) {
		bool bytes = both[k]->n > 0 && (k == 1 || both[k]->bytes <= HASH_ALL_BYTES);

		all[n++] = (uint64_t)both[k]->bytes << 8 | (uint64_t)both[k]->type;
		if (bytes)
			err = data_array_hash(both[k], k ? a->truth_path : a->x_path, &all[n]);
		n++;
		for (int i = 0; i < DATA_MAX_DIMS; i++)
			all[n++] = i < both[k]->n_dims ? (uint64_t)both[k]->shape[i] : 0;
	}
	if (!err)
		*out = dn_hash(all, sizeof(all));
	return err;
}

static int open_array(struct data_array *a, const char *path, enum dn_format format)
{
	switch (format) {
	case DN_FORMAT_IDX:
		return idx_open(a, path);
	case DN_FORMAT_NPY:
		return npy_array_open(a, path);
	case DN_FORMAT_LIST:
	case DN_FORMAT_CIFAR:
		break;
	}
	assert(0);
	return -EINVAL;
}

static int check_given(const struct arrays *a, const struct dn_datafile *d, bool valid, int64_t truths)
{
	const char *part = valid ? "valid" : "train";

	if (!a->x_path)
		return dn_fail(-EINVAL, DATA_PATH ": there is no %s= line", d->file->path, part);
	if (!a->truth_path && truths)
		return dn_fail(-EINVAL, DATA_PATH ": there is no %s_truth= line, which names the classes or targets of %s=%.200s",
			       d->file->path, part, part, a->x_path);
	return 0;
}

static int arrays_open(struct dn_dataset *ds, const struct dn_datafile *d, const struct dn_dataset_config *c)
{
	struct arrays *a = dn_zalloc(sizeof(*a));
	int err;

	if (!a)
		return -ENOMEM;
	err = warned_init(&a->x_bad);
	if (err)
		goto err_free;
	err = warned_init(&a->truth_bad);
	if (err)
		goto err_x_bad;
	ds->priv = a;
	ds->get = arrays_get;
	ds->close = arrays_close;
	a->x_path = c->valid ? d->valid : d->train;
	a->truth_path = c->valid ? d->valid_truth : d->train_truth;
	err = check_given(a, d, c->valid, c->truths);
	if (err)
		return err;
	snprintf(ds->path, sizeof(ds->path), "%s", a->x_path);
	err = open_array(&a->x, a->x_path, d->format);
	if (!err)
		err = set_shape(ds, a, c);
	if (!err && a->truth_path) {
		err = open_array(&a->truth, a->truth_path, d->format);
		if (!err)
			err = check_truth(ds, a, d, c->truths);
		err = dn_datafile_fail(d, c->valid ? "valid_truth" : "train_truth", err);
	}
	if (!err)
		err = data_array_unmap(&a->x, a->x_path);
	if (!err && ds->truths) { /* class numbers are few bytes */
		a->truth_file = dn_strdup(a->truth_path);
		err = a->truth_file ? data_array_unmap(&a->truth, a->truth_path) : -ENOMEM;
	}
	if (!err)
		err = hash_of(a, &ds->hash);
	if (err)
		return err;
	a->x_path = a->truth_path = NULL;
	return 0;

err_x_bad:
	warned_fini(&a->x_bad);
err_free:
	dn_free(a);
	return err;
}

static int refuse_tree(const struct dn_datafile *d)
{
	if (!d->tree || d->format == DN_FORMAT_LIST)
		return 0;
	return dn_section_fail(&d->file->sections[0], "tree", -EINVAL,
			       "tree=%.200s: classes of arrays are taken as they stand, without their ancestors; a tree is for "
			       "format=list here, and for the [softmax] of the cfg",
			       d->tree);
}

int dn_dataset_open(struct dn_dataset **out, const struct dn_datafile *d, const struct dn_dataset_config *c)
{
	struct dn_dataset *ds = dn_zalloc(sizeof(*ds));
	int err = -EINVAL;

	if (!ds)
		return -ENOMEM;
	if (refuse_tree(d)) {
		dn_free(ds);
		return -EINVAL;
	}
	switch (d->format) {
	case DN_FORMAT_LIST:
		err = images_open(ds, d, c);
		break;
	case DN_FORMAT_CIFAR:
		err = cifar_open(ds, d, c);
		break;
	case DN_FORMAT_IDX:
	case DN_FORMAT_NPY:
		err = arrays_open(ds, d, c);
		break;
	}
	if (err) {
		dn_dataset_close(ds);
		return dn_datafile_fail(d, c->valid ? "valid" : "train", err);
	}
	*out = ds;
	return 0;
}

void dn_dataset_close(struct dn_dataset *ds)
{
	if (!ds)
		return;
	if (ds->close)
		ds->close(ds);
	dn_free(ds);
}
