/* Names of optimizers and of their states, as checkpoints bear them. The rules themselves are train/optim.c's. */
#ifndef DN_IO_STATE_H
#define DN_IO_STATE_H
#include "graph/store.h"
#ifdef __cplusplus
extern "C" {
#endif

const char *dn_state_optimizer(enum dn_optimizer o);    /* "sgd" */
int dn_state_count(enum dn_optimizer o);
const char *dn_state_name(enum dn_optimizer o, int state);      /* "momentum" */

#ifdef __cplusplus
}
#endif
#endif
