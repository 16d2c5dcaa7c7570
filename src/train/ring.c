/* Where a loader's ring lies. */
#include "train/ring_priv.h"

static int ring_alloc(void *arg, enum dn_region r, size_t bytes, void **out)
{
	struct dn_device *dev = arg;

	return dev->be->alloc_host(dev, r, bytes, out);
}

static void ring_free(void *arg, void *p)
{
	struct dn_device *dev = arg;

	dev->be->free_host(dev, p);
}

struct dn_loader_memory train_ring_memory(struct dn_device *dev)
{
	return (struct dn_loader_memory){ ring_alloc, ring_free, dev };
}
