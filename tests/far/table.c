/* The far table, and how a program gets it: whoever links tests/far and says DARKNET_TEST_BACKEND=far runs over it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/thread.h"
#include "far.h"

static int far_open(const struct dn_device_desc *desc, struct dn_device **out)
{
	static uint64_t n_opened;
	const char *seed = getenv("FAR_SEED"), *patience = getenv("FAR_PATIENCE_MS");
	struct far_device *d = dn_zalloc(sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	err = stream_device_init(&d->host, &far_table, desc);
	if (err) {
		dn_free(d);
		return err;
	}
	far_watch();
	d->seed = (seed ? strtoull(seed, NULL, 10) : 1) * 1000003 + __atomic_fetch_add(&n_opened, 1, __ATOMIC_RELAXED);
	d->moved_ns = dn_now_ns();
	d->patience_ns = (patience ? strtoll(patience, NULL, 10) : 2) * 1000000;
	d->host.may_run = far_may_run;
	far_device_add(d);
	*out = &d->host.dev;
	return 0;
}

static void far_close(struct dn_device *dev)
{
	if (!dev)
		return;
	far_device_remove((struct far_device *)dev);
	stream_device_fini((struct host_device *)dev);
	dn_free(dev);
}

static void far_facts(const struct dn_device *dev, struct dn_facts *out)
{
	far_ref->facts(dev, out);
	out->backend = "far";
	out->host_access = false;
}

struct dn_backend far_table; /* filled before main */

__attribute__((constructor)) static void far_register(void)
{
	const char *name = getenv("DARKNET_TEST_BACKEND");

	far_ref = dn_backend_find("ref");
	far_table = *far_ref; /* what needs no care: sizes, times */
	far_table.name = "far";
	far_table.summary = "plain loops on a device that is far away, for tests";
	far_table.open = far_open;
	far_table.close = far_close;
	far_table.facts = far_facts;
	far_table.alloc = far_alloc;
	far_table.free = far_free;
	far_table.alloc_host = far_alloc_host;
	far_table.free_host = far_free_host;
	far_table.stream_create = far_stream_create;
	far_table.stream_abort = far_stream_abort;
	far_table.stream_destroy = far_stream_destroy;
	far_table.event_record = far_event_record;
	far_table.stream_wait = far_stream_wait;
	far_table.stream_submit = far_stream_submit;
	far_ops(&far_table);
	if (!name || strcmp(name, "far"))
		return;
	if (dn_backend_add(&far_table) || dn_backend_prefer("far"))
		far_broken("%s", dn_message());
}
