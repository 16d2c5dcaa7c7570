/* What the kinds of data sets share. Private to the room. */
#ifndef DN_DATA_DATASET_PRIV_H
#define DN_DATA_DATASET_PRIV_H
#include <pthread.h>

#include "data/datafile.h"
#include "data/dataset.h"

/* Fill @ds; on an error ds->close, if it is set, undoes what was done. */
int images_open(struct dn_dataset *ds, const struct dn_datafile *d, const struct dn_dataset_config *c);
int cifar_open(struct dn_dataset *ds, const struct dn_datafile *d, const struct dn_dataset_config *c);

/* dataset_check_classes() - every class number @class_of(@arg, i) is in range of the .data file's classes and of the net's
 * outputs; sets ds->classes. @path: of the truth */
int dataset_check_classes(struct dn_dataset *ds, const struct dn_datafile *d, int64_t truths, const char *path,
			  int64_t (*class_of)(const void *arg, int64_t i), const void *arg);
/* dataset_get_class() - the checks of get() and a one-hot target of class @k, -1 = none */
int dataset_get_class(const struct dn_dataset *ds, int64_t i, int64_t k, float *t, int64_t n_truths, int64_t *cls);

#define MOST_WARNED 20 /* samples that are named */
struct warned {
	pthread_mutex_t lock; /* of what follows */
	int64_t sample[MOST_WARNED];
	int n;
};
int warned_init(struct warned *w);
void warned_fini(struct warned *w);
/* warned_tell() - warn of sample @i with @text, once; this rank alone may know of it. Thread-safe */
void warned_tell(struct warned *w, int64_t i, const char *text);

#endif
