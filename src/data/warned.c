/* Samples that have been warned of: each one once, whichever thread meets it, and not more than can be read. */
#include "data/dataset_priv.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

int warned_init(struct warned *w)
{
	int err = pthread_mutex_init(&w->lock, NULL);

	w->n = 0;
	return err ? dn_fail(-err, "data: cannot make a lock: %s", strerror(err)) : 0;
}

void warned_fini(struct warned *w)
{
	pthread_mutex_destroy(&w->lock);
}

void warned_tell(struct warned *w, int64_t i, const char *text)
{
	bool told = false, last = false;

	pthread_mutex_lock(&w->lock);
	for (int k = 0; k < w->n && k < MOST_WARNED; k++)
		told = told || w->sample[k] == i;
	if (!told && w->n <= MOST_WARNED) {
		last = w->n == MOST_WARNED;
		if (!last)
			w->sample[w->n] = i;
		w->n++;
	} else {
		told = true;
	}
	pthread_mutex_unlock(&w->lock);
	if (!told)
		dn_warn_own("%s%s", text, last ? "; more such samples are not named" : "");
}
