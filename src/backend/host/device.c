/* The device and host memory that both CPU tables share. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "backend/host/stream.h"
#include "base/thread.h"

int stream_device_init(struct host_device *d, const struct dn_backend *be, const struct dn_device_desc *desc)
{
	const int threads = desc->threads;
	int err;

	if (strcmp(desc->kind, "cpu") || desc->ordinal)
		return dn_fail(-EINVAL, "backend %s: device %s:%d, it has cpu:0 only", be->name, desc->kind, desc->ordinal);
	if (threads < 1 || threads > 4096)
		return dn_fail(-EINVAL, "backend %s: %d threads, must be 1 to 4096", be->name, threads);
	d->dev.be = be;
	d->dev.threads = threads;
	err = pthread_mutex_init(&d->lock, NULL);
	if (err)
		return dn_fail(-err, "backend %s: mutex: %s", be->name, strerror(err));
	err = dn_cond_init(&d->work);
	if (err)
		goto err_lock;
	err = dn_cond_init(&d->done);
	if (err)
		goto err_work;
	return 0;

err_work:
	pthread_cond_destroy(&d->work);
err_lock:
	pthread_mutex_destroy(&d->lock);
	return err;
}

/* Streams and events are destroyed before their device. */
void stream_device_fini(struct host_device *d)
{
	if (d->running) {
		pthread_mutex_lock(&d->lock);
		d->stop = true;
		pthread_cond_broadcast(&d->work);
		pthread_mutex_unlock(&d->lock);
		pthread_join(d->thread, NULL);
	}
	pthread_cond_destroy(&d->done);
	pthread_cond_destroy(&d->work);
	pthread_mutex_destroy(&d->lock);
}

int stream_memory(struct dn_device *dev, size_t *free_bytes, size_t *total_bytes)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE), avail = sysconf(_SC_AVPHYS_PAGES);
	unsigned long long kb;
	size_t n_free;
	char line[128];
	FILE *f;

	if (pages <= 0 || page <= 0 || avail < 0)
		return dn_fail(-EIO, "backend %s: sysconf does not know the memory size", dev->be->name);
	n_free = (size_t)avail * (size_t)page;
	f = fopen("/proc/meminfo", "re"); /* counts reclaimable caches as free, unlike sysconf */
	if (f) {
		while (fgets(line, sizeof(line), f))
			if (sscanf(line, "MemAvailable: %llu kB", &kb) == 1)
				n_free = (size_t)kb * 1024;
		if (fclose(f))
			return dn_fail(-EIO, "/proc/meminfo: close: %s", strerror(errno));
	}
	*free_bytes = n_free;
	*total_bytes = (size_t)pages * (size_t)page;
	return 0;
}

int stream_alloc(struct dn_device *dev, enum dn_region r, size_t bytes, void **out)
{
	void *p = dn_alloc_region(r, bytes);

	if (!p)
		return -ENOMEM;
	*out = p;
	return 0;
}

void stream_free(struct dn_device *dev, void *p)
{
	dn_free(p);
}

void stream_set_timeout(struct dn_device *dev, int64_t timeout_ms)
{
	struct host_device *d = (struct host_device *)dev;

	pthread_mutex_lock(&d->lock);
	d->timeout_ms = timeout_ms > 0 ? timeout_ms : 0;
	pthread_mutex_unlock(&d->lock);
}

int64_t stream_waited_ns(const struct dn_device *dev)
{
	struct host_device *d = (struct host_device *)dev; /* only the lock changes */
	int64_t ns;

	pthread_mutex_lock(&d->lock);
	ns = d->waited_ns;
	pthread_mutex_unlock(&d->lock);
	return ns;
}
