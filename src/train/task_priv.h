/* The rows of the table of tasks. */
#ifndef DN_TRAIN_TASK_PRIV_H
#define DN_TRAIN_TASK_PRIV_H
#include "train/task.h"

extern const struct dn_net_task task_classifier, task_dense;
extern const struct dn_resize task_darknet_sizes; /* 32 * (4 + 0 to 10), drawn anew every 40 updates */
#endif
