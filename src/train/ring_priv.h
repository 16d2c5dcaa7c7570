/* Where a loader's ring lies: passes read their inputs from it, so it is host memory of the net's device. */
#ifndef DN_TRAIN_RING_PRIV_H
#define DN_TRAIN_RING_PRIV_H
#include "backend/backend.h"
#include "data/loader.h"

struct dn_loader_memory train_ring_memory(struct dn_device *dev);
#endif
