/* Data sets: samples by their number.
 *
 * A sample is an input of floats and a target of floats.
 */
#ifndef DN_DATA_DATASET_H
#define DN_DATA_DATASET_H
#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"
#include "data/image.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_datafile;

struct dn_sample_key {		/* where a sample stands in training: what is drawn for it follows from this */
	uint64_t update, place; /* update from 1; place in the update over all ranks and microbatches, from 0 */
	int64_t w, h;		/* size wanted; 0 = the data set's, others where any_size is set */
};

struct dn_dataset {
	int64_t n;	 /* samples */
	int64_t c, h, w; /* of one sample; h = w = 1 for flat data */
	int64_t inputs;	 /* c * h * w */
	int64_t classes; /* classes of class truth (largest + 1, or the .data file's), 0 = dense targets */
	int64_t truths;	 /* length of a dense target, 0 for class truth */
	bool has_truth;
	bool any_size;	/* samples come in any w and h that a key asks for */
	char path[512]; /* for messages */
	/* xxh64 of shapes, types, all truth, and the inputs too while they are at most 64 MiB unpacked: the same
	 * data set gives the same number, packed or not. Larger inputs count by shape and type alone, images by
	 * their paths. */
	uint64_t hash;
	/* sample @i: x[inputs]; t[truths wanted]: dense, or 1 for its class (for all its classes in training); *cls = its
	 * (first) class or -1. @key: augmented by it, NULL: nothing is drawn. Thread-safe; allocates nothing after prepare()
	 * but for images larger than any before. */
	int (*get)(const struct dn_dataset *ds, int64_t i, const struct dn_sample_key *key, float *x, float *t, int64_t n_truths,
		   int64_t *cls);
	int (*prepare)(const struct dn_dataset *ds, int threads);    /* for that many get() at a time; may be NULL */
	const char *(*name)(const struct dn_dataset *ds, int64_t i); /* path of sample i; NULL where samples have none */
	void (*close)(struct dn_dataset *ds);
	void *priv;
};

struct dn_dataset_config {
	bool valid;			  /* the valid part: targets are of the first class alone */
	bool told;			  /* how many images have no label or several has been told of the same list */
	int64_t inputs, truths;		  /* what the net takes; 0 = any (truth optional) */
	int64_t w, h, c;		  /* the net's, 0 for flat inputs; lists of images need them */
	enum dn_fit fit;		  /* of images where nothing is drawn */
	const struct dn_augment *augment; /* lists of images: NULL = as fit says */
	uint64_t seed;			  /* of augmentation */
};

/**
 * dn_dataset_open() - the train or valid part of a .data file
 * Data of other sizes, or sizes in another order, than the net takes are an error with both. format=list: images of any size, which become
 * w x h; classes=, labels, names, tree and net must agree on the number of classes (labels and names may have more
 * lines). One warning tells how many images have no label or several in their paths.
 */
DN_EXPORT int dn_dataset_open(struct dn_dataset **out, const struct dn_datafile *d, const struct dn_dataset_config *c);
/**
 * dn_samples_fit() - an array [n, ...] of @n_dims >= 1 as the input of a net of @c's inputs, w, h and c
 * A net of images takes [n, c, h, w] of its own sizes, [n, h, w] when it has one channel, and flat [n, values]; equal
 * products of other sizes are another arrangement and refused, with both shapes and the order that would fit. A flat
 * net takes any shape of as many values.
 */
DN_EXPORT int dn_samples_fit(const char *path, int n_dims, const int64_t *shape, const struct dn_dataset_config *c);
DN_EXPORT void dn_dataset_close(struct dn_dataset *ds);

#ifdef __cplusplus
}
#endif
#endif
