/* The default store: values, gradients and optimizer state whole in this process. */
#ifndef DN_TRAIN_WHOLE_STORE_H
#define DN_TRAIN_WHOLE_STORE_H
#include "graph/net.h"
#ifdef __cplusplus
extern "C" {
#endif

/** dn_whole_attach() - make @net own a whole store (not allocated yet: call dn_store_alloc) */
DN_EXPORT int dn_whole_attach(struct dn_net *net);
/** dn_whole_bytes() - per region what the whole store takes for this net, activations and input ring included: the
 * "replicated" side of a comparison. @train as in the net's options. */
DN_EXPORT int dn_whole_bytes(const struct dn_net *net, size_t planned[DN_MEM_PLANNED]);

#ifdef __cplusplus
}
#endif
#endif
