/* The optimizers: names, and how many states each has with which names, as checkpoints bear them. The rules are train/optim.c's. */
#ifndef DN_GRAPH_OPTIMIZER_H
#define DN_GRAPH_OPTIMIZER_H
#include "graph/store.h"
#ifdef __cplusplus
extern "C" {
#endif

DN_EXPORT const char *dn_optimizer_name(enum dn_optimizer o); /* "sgd", "adam", "adamw"; "?" for what is none */
DN_EXPORT const char *dn_optimizer_names(void);		      /* "sgd, adam, adamw" */
/** dn_optimizer_find() - by cfg name; -EINVAL without a message when unknown (the caller knows the line) */
DN_EXPORT int dn_optimizer_find(const char *name, enum dn_optimizer *out);
DN_EXPORT int dn_state_count(enum dn_optimizer o); /* SGD: 1; Adam and AdamW: 2 */
/** dn_state_name() - "momentum" for state 0 of SGD, "m" and "v" of Adam: the tensor is PARAM:momentum */
DN_EXPORT const char *dn_state_name(enum dn_optimizer o, int state);

#ifdef __cplusplus
}
#endif
#endif
