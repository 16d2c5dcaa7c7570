/* CIFAR-10's binary batches: records of a class byte and three planes of 32 x 32 bytes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "data/array_priv.h"
#include "data/dataset_priv.h"
#include "data/lines.h"

#define SIDE 32
#define PIXELS (3 * SIDE * SIDE)
#define RECORD (1 + PIXELS)
#define CLASSES 10
#define HASH_ALL_BYTES ((size_t)64 << 20) /* of larger files only the classes count */

struct batch {
	void *map;
	size_t bytes;
	int64_t first; /* sample */
};

struct cifar {
	struct batch *batch;
	int64_t n_batches;
};

static const unsigned char *record(const struct cifar *f, int64_t i)
{
	int64_t lo = 0, hi = f->n_batches - 1;

	while (lo < hi) { /* the last batch that starts at or before i */
		int64_t mid = (lo + hi + 1) / 2;

		if (f->batch[mid].first <= i)
			lo = mid;
		else
			hi = mid - 1;
	}
	return (const unsigned char *)f->batch[lo].map + (i - f->batch[lo].first) * RECORD;
}

static int64_t class_of(const void *arg, int64_t i)
{
	return record(arg, i)[0];
}

static int cifar_get(const struct dn_dataset *ds, int64_t i, const struct dn_sample_key *key, float *x, float *t,
		     int64_t n_truths, int64_t *cls)
{
	const struct cifar *f = ds->priv;
	const unsigned char *p;
	int err;

	err = dataset_get_class(ds, i, i < 0 || i >= ds->n ? -1 : class_of(f, i), t, n_truths, cls);
	if (err)
		return err;
	p = record(f, i) + 1;
	for (int64_t k = 0; k < PIXELS; k++)
		x[k] = (float)p[k] / 255.0f;
	return 0;
}

static void cifar_close(struct dn_dataset *ds)
{
	struct cifar *f = ds->priv;

	for (int64_t i = 0; i < f->n_batches; i++)
		data_unmap(f->batch[i].map, f->batch[i].bytes);
	dn_free(f->batch);
	dn_free(f);
}

static int open_batch(struct dn_dataset *ds, struct cifar *f, const char *path)
{
	struct batch *b = &f->batch[f->n_batches];
	int err = data_map(path, &b->map, &b->bytes);

	if (err)
		return err;
	b->first = ds->n;
	f->n_batches++;
	if (((const unsigned char *)b->map)[0] >= CLASSES)
		return data_fail_kind(path, "a batch of CIFAR-10", b->map, b->bytes);
	if (b->bytes % RECORD)
		return dn_fail(-EINVAL, DATA_PATH ": %zu bytes are no whole number of CIFAR-10's records of %d%s", path, b->bytes,
			       RECORD, b->bytes % (RECORD + 1) ? "" : ", but of CIFAR-100's, which is not read");
	ds->n += (int64_t)(b->bytes / RECORD);
	for (int64_t i = b->first; i < ds->n; i++)
		if (class_of(f, i) >= CLASSES)
			return dn_fail(-EINVAL, DATA_PATH ": record %lld has class %lld, CIFAR-10 has 0 to %d", path,
				       (long long)(i - b->first), (long long)class_of(f, i), CLASSES - 1);
	return 0;
}

static int open_batches(struct dn_dataset *ds, struct cifar *f, const char *const *path, int64_t n)
{
	int err = 0;

	f->batch = dn_calloc((size_t)n, sizeof(*f->batch));
	if (!f->batch)
		return -ENOMEM;
	for (int64_t i = 0; i < n && !err; i++)
		err = open_batch(ds, f, path[i]);
	return err;
}

/* "a,b,c": the entries, in @text, which is cut. */
static int open_commas(struct dn_dataset *ds, struct cifar *f, const char *given)
{
	char *text = dn_strdup(given);
	const char **path = dn_calloc(strlen(given) + 1, sizeof(*path));
	int64_t n = 0;
	int err = text && path ? 0 : -ENOMEM;

	for (char *s = text, *comma; !err && s; s = comma ? comma + 1 : NULL) {
		comma = strchr(s, ',');
		if (comma)
			*comma = '\0';
		if (*s)
			path[n++] = s;
	}
	if (!err && !n)
		err = dn_fail(-EINVAL, DATA_PATH ": a list without files", given);
	if (!err)
		err = open_batches(ds, f, path, n);
	dn_free(path);
	dn_free(text);
	return err;
}

/* A batch itself, or a text file with a batch's path a line: a batch starts with a class. */
static int open_file(struct dn_dataset *ds, struct cifar *f, const char *path)
{
	struct dn_lines l = { 0 };
	size_t bytes = 0;
	void *map = NULL;
	bool batch;
	int err = data_map(path, &map, &bytes);

	if (err)
		return err;
	batch = !data_text_only(map, bytes);
	data_unmap(map, bytes);
	if (batch)
		return open_batches(ds, f, &path, 1);
	err = dn_lines_read_paths(&l, path, "a list of CIFAR-10's batches");
	if (!err)
		err = open_batches(ds, f, (const char *const *)l.line, l.n);
	dn_lines_fini(&l);
	return err;
}

static int hash(const struct dn_dataset *ds, const struct cifar *f, uint64_t *out)
{
	uint64_t h[3] = { (uint64_t)ds->n };
	size_t bytes = (size_t)ds->n * RECORD;
	unsigned char *cls;

	if (bytes <= HASH_ALL_BYTES) {
		for (int64_t i = 0; i < ds->n; i++) {
			h[1] = dn_hash(record(f, i), RECORD);
			h[2] = dn_hash(h, sizeof(h));
		}
		*out = dn_hash(h, sizeof(h));
		return 0;
	}
	cls = dn_alloc((size_t)ds->n);
	if (!cls)
		return -ENOMEM;
	for (int64_t i = 0; i < ds->n; i++)
		cls[i] = record(f, i)[0];
	h[1] = dn_hash(cls, (size_t)ds->n);
	dn_free(cls);
	*out = dn_hash(h, sizeof(h));
	return 0;
}

int cifar_open(struct dn_dataset *ds, const struct dn_datafile *d, const struct dn_dataset_config *c)
{
	const char *path = c->valid ? d->valid : d->train;
	struct cifar *f;
	int err;

	if (!path)
		return dn_fail(-EINVAL, DATA_PATH ": there is no %s= line", d->file->path, c->valid ? "valid" : "train");
	if (c->inputs && c->inputs != PIXELS)
		return dn_fail(-EINVAL, DATA_PATH ": a sample of CIFAR-10 has %d values (3 x 32 x 32), the net takes %lld", path,
			       PIXELS, (long long)c->inputs);
	err = dn_samples_fit(path, 4, (const int64_t[]){ 1, 3, SIDE, SIDE }, c);
	if (err)
		return err;
	f = dn_zalloc(sizeof(*f));
	if (!f)
		return -ENOMEM;
	ds->priv = f;
	ds->close = cifar_close;
	ds->get = cifar_get;
	ds->c = 3;
	ds->h = ds->w = SIDE;
	ds->inputs = PIXELS;
	ds->has_truth = true;
	snprintf(ds->path, sizeof(ds->path), "%s", path);
	err = strchr(path, ',') ? open_commas(ds, f, path) : open_file(ds, f, path);
	if (!err)
		err = dataset_check_classes(ds, d, c->truths, path, class_of, f);
	return err ? err : hash(ds, f, &ds->hash);
}
