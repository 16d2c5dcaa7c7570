/* Data for training and evaluation: .data files, data sets, and loader threads with a ring of batches.
 *
 * A sample is an input of floats and a target of floats. Which sample stands at which place is a pure
 * function of (seed, position); position = (update-1) * E + global slot, so it depends neither on the
 * number of ranks nor on subdivisions nor on threads.
 */
#ifndef DN_DATA_DATA_H
#define DN_DATA_DATA_H
#include <stdbool.h>
#include <stdint.h>
#include "base/keyrule.h"
#include "base/mem.h"
#include "base/status.h"
#include "data/image.h"
#ifdef __cplusplus
extern "C" {
#endif

enum dn_format { DN_FORMAT_LIST, DN_FORMAT_IDX, DN_FORMAT_CIFAR, DN_FORMAT_NPY };
enum dn_shuffle { DN_SHUFFLE_OFF, DN_SHUFFLE_EPOCH, DN_SHUFFLE_REPLACE }; /* 0, 1, replace */

struct dn_datafile { /* a .data file */
	struct dn_keyfile *file;
	enum dn_format format;
	int64_t classes; /* -1 = not given (Darknet's default of 2 is asked of the data instead) */
	const char *train, *train_truth, *valid, *valid_truth; /* NULL when not given */
	const char *backup;				       /* "/backup/" by default */
	const char *labels, *names, *tree;		       /* NULL when not given */
	int64_t top;
	enum dn_shuffle shuffle;
};

extern const struct dn_key_rule dn_datafile_keys[];
DN_EXPORT int dn_datafile_read(struct dn_datafile **out, const char *path, bool strict);
/** dn_datafile_parse() - the same of a text; @path only names it in messages */
DN_EXPORT int dn_datafile_parse(struct dn_datafile **out, const char *text, const char *path);
DN_EXPORT void dn_datafile_destroy(struct dn_datafile *d);
/** dn_shuffle_name() - as it is written: "1", "replace", "0" */
DN_EXPORT const char *dn_shuffle_name(enum dn_shuffle s);
/** dn_shuffle_parse() - "1", "replace", "0"; @where leads the message */
DN_EXPORT int dn_shuffle_parse(const char *text, const char *where, enum dn_shuffle *out);

struct dn_lines { /* a text file with an entry a line */
	char *text;
	char **line;	 /* [n], in text: without CR, LF, byte order mark */
	int32_t *number; /* [n]: of the line in the file, from 1 */
	int64_t n;
};

/** dn_lines_read() - @what ("a list of names") is for messages; empty lines count with @keep_blank, but at the end */
DN_EXPORT int dn_lines_read(struct dn_lines *out, const char *path, const char *what, bool keep_blank);
/** dn_lines_read_paths() - the same of files: blanks at the end of a line go, unless there is a file of just that name */
DN_EXPORT int dn_lines_read_paths(struct dn_lines *out, const char *path, const char *what);
DN_EXPORT void dn_lines_fini(struct dn_lines *l); /* legal on a zeroed one */

struct dn_sample_key {	       /* where a sample stands in training: what is drawn for it follows from this */
	uint64_t update, slot; /* update from 1; place in the update over all ranks and microbatches, from 0 */
	int64_t w, h;	       /* size wanted; 0 = the data set's, others where any_size is set */
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
	int64_t inputs, truths;		  /* what the net takes; 0 = any (truth optional) */
	int64_t w, h, c;		  /* the net's, 0 for flat inputs; lists of images need them */
	enum dn_fit fit;		  /* of images where nothing is drawn */
	const struct dn_augment *augment; /* lists of images: NULL = as fit says */
	uint64_t seed;			  /* of augmentation */
};

/**
 * dn_dataset_open_as() - the train or valid part of a .data file
 * Data of other sizes, or sizes in another order, than the net takes are an error with both. format=list: images of any size, which become
 * w x h; classes=, labels, names, tree and net must agree on the number of classes (labels and names may have more
 * lines). One warning tells how many images have no label or several in their paths.
 */
DN_EXPORT int dn_dataset_open_as(struct dn_dataset **out, const struct dn_datafile *d, const struct dn_dataset_config *c);
/**
 * dn_samples_fit() - an array [n, ...] of @n_dims >= 1 as the input of a net of @c's inputs, w, h and c
 * A net of images takes [n, c, h, w] of its own sizes, [n, h, w] when it has one channel, and flat [n, values]; equal
 * products of other sizes are another arrangement and refused, with both shapes and the order that would fit. A flat
 * net takes any shape of as many values.
 */
DN_EXPORT int dn_samples_fit(const char *path, int n_dims, const int64_t *shape, const struct dn_dataset_config *c);
/** dn_dataset_open() - the same for data that are no images */
DN_EXPORT int dn_dataset_open(struct dn_dataset **out, const struct dn_datafile *d, bool valid, int64_t inputs, int64_t truths);
DN_EXPORT void dn_dataset_close(struct dn_dataset *ds);

/* NumPy arrays in memory-mapped files: format 1.0 to 3.0, little-endian, C order, float32/uint8/int32/int64. */
struct dn_npy {
	char dtype; /* 'f' float32, 'u' uint8, 'i' int32, 'l' int64 */
	int n_dims;
	int64_t shape[8];
	int64_t n; /* elements */
	size_t item_bytes;
	const void *data; /* inside the mapping; files from elsewhere may leave it at any alignment */
	void *map;
	size_t map_bytes;
};
DN_EXPORT int dn_npy_open(struct dn_npy *a, const char *path);
DN_EXPORT void dn_npy_close(struct dn_npy *a); /* legal on a zeroed one */
/** dn_npy_float() - element i as float; uint8 divided by 255 when @scale */
DN_EXPORT float dn_npy_float(const struct dn_npy *a, int64_t i, bool scale);
/** dn_npy_write() - float32, C order, format 1.0; appears whole or not at all */
DN_EXPORT int dn_npy_write(const char *path, int n_dims, const int64_t *shape, const float *x);

struct dn_order { /* which sample stands at which position */
	int64_t n;
	enum dn_shuffle shuffle;
	uint64_t seed;
};
/** dn_order_at() - sample of global @position. DN_SHUFFLE_EPOCH needs a permutation per epoch: two are cached in *c */
struct dn_order_cache;
DN_EXPORT int dn_order_cache_create(struct dn_order_cache **out, const struct dn_order *o);
DN_EXPORT void dn_order_cache_destroy(struct dn_order_cache *c);
DN_EXPORT int64_t dn_order_at(struct dn_order_cache *c, int64_t position); /* thread-safe, allocates nothing */

/* Inputs of changing size: from update 1 on, every @every updates the images are squares of @step * (@first + r), r drawn
 * from 0 to @n - 1. Darknet's classifier: 40, 32, 4, 11. */
struct dn_resize {
	int64_t every; /* 0 = off */
	int64_t step, first, n;
	uint64_t seed;
};

/** dn_resize_side() - of an update (from 1): pure */
DN_EXPORT int64_t dn_resize_side(const struct dn_resize *r, int64_t update);
DN_EXPORT int64_t dn_resize_max(const struct dn_resize *r); /* the largest side */

/* Where the ring's memory comes from: of a device that copies batches from it, it must be the device's host memory. Both NULL:
 * the program's own. */
struct dn_loader_memory {
	int (*alloc)(void *arg, enum dn_region r, size_t bytes, void **out); /* DN_ALIGN aligned, contents unspecified */
	void (*free)(void *arg, void *p);
	void *arg;
};

struct dn_loader_config {
	struct dn_dataset *data; /* borrowed */
	struct dn_order order;
	int64_t batch, subdivisions; /* E and microbatches of one update */
	int rank, world;
	int64_t inputs, truths;	 /* floats of a sample as the net takes them */
	int threads;		 /* >= 1 */
	int64_t first_update;	 /* update number of the first batch, from 1 */
	struct dn_resize resize; /* the ring is then made for the largest size */
	bool region_activations; /* ring in DN_MEM_ACTIVATIONS (training); else DN_MEM_HOST */
	struct dn_loader_memory memory;
};
#define DN_LOADER_DEPTH 3 /* microbatches in the ring */

/** dn_loader_bytes() - what the ring takes: pure, for the plan */
DN_EXPORT int dn_loader_bytes(int64_t local, int64_t inputs, int64_t truths, size_t *out);

struct dn_loader;
DN_EXPORT int dn_loader_create(struct dn_loader **out, const struct dn_loader_config *c);
/** dn_loader_destroy() - stops and joins the threads; nobody reads what dn_loader_next() gave any more */
DN_EXPORT void dn_loader_destroy(struct dn_loader *l);
/**
 * dn_loader_next() - the next microbatch of this rank; pointers are valid until the next call
 * A sample that cannot be read is the error of its microbatch, with its message (of the lowest slot, if there are
 * several), however many threads there are; every later call gives it again. *waited_ns (may be NULL) grows by the
 * time that the caller waited.
 */
DN_EXPORT int dn_loader_next(struct dn_loader *l, const float **x, const float **t, const int64_t **cls, int64_t *waited_ns);
/** dn_loader_again() - microbatch @m of @update once more, as it was or will be given, into the caller's memory; on this thread */
DN_EXPORT int dn_loader_again(struct dn_loader *l, int64_t update, int64_t m, float *x, float *t);
/** dn_loader_size() - width and height of the images that dn_loader_next() gave last (before: of the first) */
DN_EXPORT void dn_loader_size(const struct dn_loader *l, int64_t *w, int64_t *h);

#ifdef __cplusplus
}
#endif
#endif
