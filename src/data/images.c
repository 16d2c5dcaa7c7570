/* A data set out of a list of image files, decoded where they are asked for: in the loader's threads. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "data/array_priv.h"
#include "data/dataset_priv.h"
#include "data/image_priv.h"
#include "data/lines.h"
#include "data/truth_priv.h"

struct scratch { /* of one thread that decodes */
	struct image_arena arena;
	struct scratch *next;
};

struct images {
	struct dn_lines list;
	struct truth truth;
	bool valid;
	enum dn_fit fit;
	bool augmented;
	struct dn_augment augment;
	uint64_t seed;
	pthread_mutex_t lock; /* of what follows */
	struct scratch *idle;
	int n_scratches;      /* idle or in use */
	struct warned mended; /* images that lack their end */
};

/* --- one sample --- */

static struct scratch *make_scratch(void)
{
	struct scratch *s = dn_zalloc(sizeof(*s));

	if (s && image_arena_init(&s->arena, IMAGE_ARENA_MANY)) {
		dn_free(s);
		return NULL;
	}
	return s;
}

static struct scratch *take_scratch(struct images *m)
{
	struct scratch *s;

	pthread_mutex_lock(&m->lock);
	s = m->idle;
	if (s)
		m->idle = s->next;
	pthread_mutex_unlock(&m->lock);
	if (s)
		return s;
	s = make_scratch();
	if (s) {
		pthread_mutex_lock(&m->lock);
		m->n_scratches++;
		pthread_mutex_unlock(&m->lock);
	}
	return s;
}

static void give_scratch(struct images *m, struct scratch *s)
{
	pthread_mutex_lock(&m->lock);
	s->next = m->idle;
	m->idle = s;
	pthread_mutex_unlock(&m->lock);
}

static int images_prepare(const struct dn_dataset *ds, int threads)
{
	struct images *m = ds->priv;

	for (;;) {
		struct scratch *s;
		bool enough;

		pthread_mutex_lock(&m->lock);
		enough = m->n_scratches >= threads;
		m->n_scratches += !enough;
		pthread_mutex_unlock(&m->lock);
		if (enough)
			return 0;
		s = make_scratch();
		if (!s) {
			pthread_mutex_lock(&m->lock);
			m->n_scratches--;
			pthread_mutex_unlock(&m->lock);
			return -ENOMEM;
		}
		give_scratch(m, s);
	}
}

static void make_input(const struct images *m, const struct dn_view *v, const struct dn_sample_key *key, float *x, int64_t w,
		       int64_t h)
{
	struct dn_augment_draw d;

	if (!m->augmented || !key) {
		dn_image_fit(v, m->fit, x, w, h);
		return;
	}
	dn_augment_draw(&d, &m->augment, m->seed, key->update, key->place, v->w, v->h, w, h);
	dn_augment_apply(&m->augment, &d, v, x, w, h);
}

static void warn_mended(struct images *m, int64_t i, const char *name)
{
	char text[IMAGE_NAME_BYTES + 100];

	snprintf(text, sizeof(text), "%s: " IMAGE_NO_END, name);
	warned_tell(&m->mended, i, text);
}

static int images_get(const struct dn_dataset *ds, int64_t i, const struct dn_sample_key *key, float *x, float *t,
		      int64_t n_truths, int64_t *cls)
{
	struct images *m = ds->priv;
	struct dn_view v = { 0 };
	char name[IMAGE_NAME_BYTES];
	struct scratch *s;
	int err;

	if (i < 0 || i >= ds->n)
		return dn_fail(-EINVAL, "%s: there is no sample %lld, it has %lld", ds->path, (long long)i, (long long)ds->n);
	if (n_truths && ds->has_truth && n_truths != ds->classes)
		return dn_fail(-EINVAL, "%s: targets have %lld values, asked for are %lld", ds->path, (long long)ds->classes,
			       (long long)n_truths);
	s = take_scratch(m);
	if (!s)
		return -ENOMEM;
	image_name(name, m->list.line[i], ds->path, m->list.number[i]);
	err = image_decode(&s->arena, m->list.line[i], name, ds->c, &v);
	if (!err && s->arena.no_end)
		warn_mended(m, i, name);
	if (!err)
		make_input(m, &v, key, x, key && key->w ? key->w : ds->w, key && key->h ? key->h : ds->h);
	give_scratch(m, s);
	if (err)
		return err;
	if (n_truths && ds->has_truth)
		truth_write(&m->truth, i, m->valid, t);
	else if (n_truths)
		memset(t, 0, (size_t)n_truths * sizeof(*t));
	if (cls)
		*cls = ds->has_truth ? truth_first(&m->truth, i) : -1;
	return 0;
}

static const char *images_name(const struct dn_dataset *ds, int64_t i)
{
	const struct images *m = ds->priv;

	return m->list.line[i];
}

/* --- opening --- */

static void images_close(struct dn_dataset *ds)
{
	struct images *m = ds->priv;

	while (m->idle) {
		struct scratch *next = m->idle->next;

		image_arena_fini(&m->idle->arena);
		dn_free(m->idle);
		m->idle = next;
	}
	truth_fini(&m->truth);
	dn_lines_fini(&m->list);
	pthread_mutex_destroy(&m->lock);
	warned_fini(&m->mended);
	dn_free(m);
}

static int check_net(const struct dn_datafile *d, const struct dn_dataset_config *c)
{
	if (c->w < 1 || c->h < 1 || c->c < 1)
		return dn_fail(-EINVAL,
			       DATA_PATH ": a list of images is for a net with width, height and channels, this one takes "
					 "%lld inputs",
			       d->file->path, (long long)c->inputs);
	if (c->c != 1 && c->c != 3)
		return dn_fail(-ENOTSUP,
			       DATA_PATH ": the net takes %lld channels; images are read as 1 (grey) or 3 (red, green, blue)",
			       d->file->path, (long long)c->c);
	if (c->w > DN_IMAGE_MAX_SIDE || c->h > DN_IMAGE_MAX_SIDE)
		return dn_fail(-EINVAL, DATA_PATH ": the net takes images of %lld x %lld, at most %d x %d are made",
			       d->file->path, (long long)c->w, (long long)c->h, DN_IMAGE_MAX_SIDE, DN_IMAGE_MAX_SIDE);
	return 0;
}

/* What the .data file, the labels, the names, the tree and the net say of the number of classes. */
static int check_numbers(const struct dn_datafile *d, const char *labels_path, int64_t labels, int64_t truths, int64_t *classes)
{
	struct dn_section *s = &d->file->sections[0];
	int64_t k = d->classes >= 0 ? d->classes : labels;

	if (k > labels)
		return dn_section_fail(s, "classes", -EINVAL, "classes=%lld, but " DATA_PATH " has %lld labels", (long long)k,
				       labels_path, (long long)labels);
	if (truths && d->classes >= 0 && k != truths)
		return dn_section_fail(s, "classes", -EINVAL, "classes=%lld, but the net has %lld outputs", (long long)k,
				       (long long)truths);
	if (truths && k != truths)
		return dn_fail(-EINVAL,
			       DATA_PATH ": %lld labels, but the net has %lld outputs (there is no classes= in " DATA_PATH ")",
			       labels_path, (long long)k, (long long)truths, d->file->path);
	if (k > INT32_MAX - 1)
		return dn_fail(-EINVAL, DATA_PATH ": %lld classes are too many", labels_path, (long long)k);
	*classes = k;
	return 0;
}

static int check_names(const struct dn_datafile *d, int64_t classes)
{
	struct dn_lines names = { 0 };
	int err = 0;

	if (!d->names || access(d->names, R_OK))
		return 0; /* only predictions print names */
	err = dn_lines_read(&names, d->names, "a list of names", true);
	if (!err && names.n < classes)
		err = dn_fail(-EINVAL, DATA_PATH ": %lld names, but there are %lld classes", d->names, (long long)names.n,
			      (long long)classes);
	dn_lines_fini(&names);
	return dn_datafile_fail(d, "names", err);
}

static int open_tree(struct images *m, const struct dn_datafile *d, int64_t classes)
{
	int err;

	if (!d->tree)
		return 0;
	err = dn_tree_read(&m->truth.tree, d->tree);
	if (!err && m->truth.tree->n != classes)
		err = dn_fail(-EINVAL, DATA_PATH ": %lld nodes, but there are %lld classes", d->tree, (long long)m->truth.tree->n,
			      (long long)classes);
	return dn_datafile_fail(d, "tree", err);
}

static int open_truth(struct dn_dataset *ds, const struct dn_datafile *d, const struct dn_dataset_config *c)
{
	struct images *m = ds->priv;
	const char *path = d->labels ? d->labels : "data/labels.list";
	struct dn_lines labels = { 0 };
	int64_t classes = 0;
	int err;

	if (!d->labels && !c->truths && access(path, R_OK))
		return 0; /* nobody asks for truth, and there is none */
	err = dn_lines_read(&labels, path, "a list of labels", true);
	if (err && !d->labels)
		err = dn_fail(err, DATA_PATH ": there is no labels= line, and the labels are not in %s either", d->file->path,
			      path);
	if (!err)
		err = check_numbers(d, path, labels.n, c->truths, &classes);
	if (!err)
		err = check_names(d, classes);
	if (!err)
		err = open_tree(m, d, classes);
	if (!err)
		err = truth_match(&m->truth, &m->list, &labels, classes, ds->path, path, c->told);
	err = dn_datafile_fail(d, "labels", err);
	dn_lines_fini(&labels);
	if (err)
		return err;
	ds->has_truth = true;
	ds->classes = classes;
	return 0;
}

static uint64_t hash_of(const struct dn_dataset *ds, const struct images *m)
{
	uint64_t h[4] = { (uint64_t)ds->n, (uint64_t)ds->c, 0, 0 };

	for (int64_t i = 0; i < m->list.n; i++) {
		h[2] = dn_hash(m->list.line[i], strlen(m->list.line[i]));
		h[3] = dn_hash(h, sizeof(h));
	}
	if (ds->has_truth) {
		h[1] = dn_hash(m->truth.at, (size_t)(ds->n + 1) * sizeof(*m->truth.at));
		h[2] = dn_hash(m->truth.cls, (size_t)m->truth.at[ds->n] * sizeof(*m->truth.cls));
	}
	return dn_hash(h, sizeof(h));
}

int images_open(struct dn_dataset *ds, const struct dn_datafile *d, const struct dn_dataset_config *c)
{
	const char *path = c->valid ? d->valid : d->train;
	struct images *m;
	int err = check_net(d, c);

	if (err)
		return err;
	m = dn_zalloc(sizeof(*m));
	if (!m)
		return -ENOMEM;
	err = pthread_mutex_init(&m->lock, NULL);
	if (err) {
		dn_free(m);
		return dn_fail(-err, "data: cannot make a lock: %s", strerror(err));
	}
	err = warned_init(&m->mended);
	if (err) {
		pthread_mutex_destroy(&m->lock);
		dn_free(m);
		return err;
	}
	ds->priv = m;
	ds->close = images_close;
	ds->get = images_get;
	ds->prepare = images_prepare;
	ds->name = images_name;
	ds->any_size = true;
	m->valid = c->valid;
	m->fit = c->fit;
	m->seed = c->seed;
	m->augmented = c->augment != NULL;
	if (c->augment)
		m->augment = *c->augment;
	snprintf(ds->path, sizeof(ds->path), "%s", path ? path : "data/train.list");
	err = dn_lines_read_paths(&m->list, path ? path : "data/train.list", "a list of images");
	if (err && !path)
		err = dn_fail(err, DATA_PATH ": there is no %s= line, and there is no data/train.list either", d->file->path,
			      c->valid ? "valid" : "train");
	if (err)
		return err;
	ds->n = m->list.n;
	ds->w = c->w;
	ds->h = c->h;
	ds->c = c->c;
	ds->inputs = c->w * c->h * c->c;
	err = open_truth(ds, d, c);
	if (!err)
		ds->hash = hash_of(ds, m);
	return err;
}
