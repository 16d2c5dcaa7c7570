/* The sharded store: values, gradients and optimizer state of this rank's part of every block. */
#ifndef FSDP_SHARD_STORE_H
#define FSDP_SHARD_STORE_H
#include "comm/mesh.h"
#include "run/runtime.h"

struct fsdp_store {
	struct dn_net *net;
	struct fsdp_mesh *mesh;	      /* borrowed */
	const struct fsdp_plan *plan; /* borrowed */
	struct fsdp_memory mem;
	struct dn_window window; /* the host's view of it */
	struct fsdp_runtime rt;
	int64_t *written;		 /* [n_tensors] values of this rank's part that were written */
	const struct dn_update *update;	 /* during step */
	const struct dn_look_desc *look; /* during look */
	int64_t waited_at;		 /* when the step began */
	double exposed_ms;		 /* of the last step */
	double *checks;			 /* verify.c: sums over ranks, and */
	uint64_t *own;			 /* [n_blocks + 1] this rank's checksums; NULL before the first time */
};

/** fsdp_store_part() - this rank's part at rest of tensor @t's block, NULL when it does not exist
 * A tensor's own elements begin at fsdp_plan_tensor()'s place. */
float *fsdp_store_part(const struct fsdp_store *s, int t, enum dn_part part);
/** fsdp_store_attach() - make @net own a sharded store (allocated by its alloc); control operations go to the device */
int fsdp_store_attach(struct dn_net *net, struct fsdp_mesh *mesh, const struct fsdp_plan *plan);

/* shard_optim.c */
/** fsdp_optim_block() - the update of every param's part in this rank's shard of @block */
int fsdp_optim_block(struct fsdp_store *s, int block);
/** fsdp_look_block() - dn_net_look() of the same */
int fsdp_look_block(struct fsdp_store *s, int block);

/* verify.c */
/** fsdp_verify() - collective, before @step: where the option says so, ranks that hold copies hold the same */
int fsdp_verify(struct fsdp_store *s, int64_t step);

/* report.c */
void fsdp_report_begin(struct fsdp_store *s);
void fsdp_report_end(struct fsdp_store *s);
void fsdp_report(void *self, struct dn_store_report *out);
/** fsdp_report_tell() - where the time of all steps went, as lines of the log, for people; rank 0 */
void fsdp_report_tell(struct fsdp_store *s);
#endif
