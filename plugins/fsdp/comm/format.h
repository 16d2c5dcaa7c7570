/* Formats on the wire: what is done around a collective whose elements travel in 16 bits. The one place for it: transports carry
 * elements of any type and know nothing of it.
 *
 * Before: the floats of this rank become numbers of 16 bits where the transport takes them from. Behind: those of all ranks, which
 * have come side by side into the second half of a slot, become floats from the slot's beginning on. Element i ends at byte 4 (i + 1)
 * of the slot; of T elements, the first that is not read yet then stands at byte 2 T + 2 (i + 1), which is not before that as long as
 * i < T: what is written has always been read. So a slot holds both, and no other memory is wanted.
 */
#ifndef FSDP_FORMAT_H
#define FSDP_FORMAT_H
#include "comm/collective.h"

struct fsdp_format; /* of one collective's operations, of which one runs at a time */

int fsdp_format_open(struct fsdp_format **out, struct fsdp_coll *c); /* @c is borrowed */
void fsdp_format_close(struct fsdp_format *f);			     /* with all its operations; NULL is legal; before @c */

/** fsdp_format_gather() - as c->ops->gather(), of floats that travel as @type. Not f32: every rank, the sender too, gets rounded values;
 * its own stand in its place of the slot's second half meanwhile, which others read where the transport lets them. */
int fsdp_format_gather(struct fsdp_format *f, enum dn_type type, const struct fsdp_gather *a, struct dn_task *out);
/** fsdp_format_reduce() - as c->ops->reduce(), of floats that travel as @type. Not f32: they are rounded into @packed, which may be
 * a->in; a->out shares no bytes with it. */
int fsdp_format_reduce(struct fsdp_format *f, enum dn_type type, const struct fsdp_reduce *a, void *packed, struct dn_task *out);
#endif
