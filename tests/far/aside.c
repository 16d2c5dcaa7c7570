/* Ops that a worker of their stream does while the progress thread goes on: two streams then compute at the same time, so that
 * what they share is touched within an op and not only between two. Which ones is drawn; the others are done where they stand.
 * Tasks stay on the progress thread, as the contract says. */
#include <stdio.h>
#include "far.h"

#define ASIDE 64 /* of 256 ops */

static void *worker_main(void *arg)
{
	struct far_worker *w = arg;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		struct far_entry *e = w->entry;
		int err;

		if (!e) {
			pthread_cond_wait(&w->changed, &w->lock);
			continue;
		}
		pthread_mutex_unlock(&w->lock);
		dn_message_clear();
		err = e->run(e);
		pthread_mutex_lock(&w->lock);
		w->err = err;
		snprintf(w->msg, sizeof(w->msg), "%s", dn_message());
		w->entry = NULL;
		pthread_cond_broadcast(&w->changed);
		pthread_cond_signal(&e->st->dev->work); /* a sleeping progress thread looks sooner */
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

void far_worker_init(struct far_worker *w)
{
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
}

void far_worker_wait(struct far_worker *w)
{
	pthread_mutex_lock(&w->lock);
	while (w->entry)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

void far_worker_fini(struct far_worker *w)
{
	far_worker_wait(w);
	if (w->made) {
		pthread_mutex_lock(&w->lock);
		w->stop = true;
		pthread_cond_broadcast(&w->changed);
		pthread_mutex_unlock(&w->lock);
		pthread_join(w->thread, NULL);
	}
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
}

int far_op_start(void *arg)
{
	struct far_entry *e = arg;
	struct far_worker *w = &((struct far_stream *)e->st->priv)->worker;

	pthread_mutex_lock(&e->st->dev->lock);
	e->aside = far_random((struct far_device *)e->st->dev, 256) < ASIDE;
	pthread_mutex_unlock(&e->st->dev->lock);
	if (!e->aside)
		return e->run(e);
	/* made by the progress thread, which has all signals blocked, and so has what it makes */
	if (!w->made && pthread_create(&w->thread, NULL, worker_main, w))
		far_broken("no thread for a stream");
	w->made = true;
	pthread_mutex_lock(&w->lock);
	w->entry = e;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	return 0;
}

int far_op_poll(void *arg, bool *done)
{
	struct far_entry *e = arg;
	struct far_worker *w = &((struct far_stream *)e->st->priv)->worker;
	int err = 0;

	*done = true;
	if (!e->aside)
		return 0;
	pthread_mutex_lock(&w->lock);
	*done = !w->entry;
	if (*done && w->err)
		err = dn_fail(w->err, "%s", w->msg);
	pthread_mutex_unlock(&w->lock);
	return err;
}
