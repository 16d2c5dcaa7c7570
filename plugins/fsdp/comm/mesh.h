/* The mesh: which ranks there are, their channels, and how they agree, start and end together.
 *
 * Without a launcher's variables there is one rank and no MPI. After start-up every MPI call is made by the device's progress
 * thread (tasks on the communication streams); before the device exists, control operations poll in the caller.
 */
#ifndef FSDP_MESH_H
#define FSDP_MESH_H
#include "comm/control.h"
#include "comm/watch.h"
#include "comm/window.h"
#include "wire.h"

struct fsdp_mesh {
	int rank, world, ranks_on_host;
	bool mpi;	      /* started by us: to be ended by us */
	struct fsdp_hub *hub; /* of ranks in one process; owned by a rank without a launcher, else borrowed; NULL with MPI */
	bool owns_hub;
	int n_channels;
	struct fsdp_channel **channels; /* of the groups that the plan has asked for */
	struct fsdp_control control;
	struct fsdp_watch *watch;     /* NULL without a launcher */
	struct fsdp_host host;	      /* pids and board are owned */
	struct fsdp_home *homes;      /* [world], owned; NULL = all in one process */
	struct fsdp_windows *windows; /* owned; NULL = none */
	const char *last_block;	      /* computed or updated last, for messages; borrowed from the plan, NULL = none */
	int64_t timeout_ms;
	int late_status; /* exit status when the end itself hangs */
};

/** fsdp_mesh_create() - one rank alone, or all that the launcher started (collective); @echo > 0: rank 0 of so many, of which
 * there is no other: each does what it does */
int fsdp_mesh_create(struct fsdp_mesh **out, enum fsdp_transport t, int64_t timeout_ms, int echo);
/** fsdp_mesh_create_local() - rank @rank of @hub's ranks in this process, for tests */
int fsdp_mesh_create_local(struct fsdp_mesh **out, struct fsdp_hub *hub, int rank, int64_t timeout_ms);

/* groups.c */
/** fsdp_groups_open() - a channel for each of @groups; collective: every rank makes all of them, in this order, before the device
 * carries out control operations. Once. */
int fsdp_groups_open(struct fsdp_mesh *m, int n, const struct fsdp_group *groups);
void fsdp_groups_close(struct fsdp_mesh *m);
/** fsdp_mesh_destroy() - all streams that use the channels have ended; collective with MPI */
void fsdp_mesh_destroy(struct fsdp_mesh *m);
/** fsdp_mesh_abort() - end this process and with it the job, without waiting for anybody; does not return with MPI */
void fsdp_mesh_abort(struct fsdp_mesh *m, int status);
/** fsdp_mesh_at() - this rank begins @what, of @block unless NULL (borrowed, see last_block): what others say of it */
void fsdp_mesh_at(struct fsdp_mesh *m, const char *what, const char *block);
/** fsdp_mesh_group() - the ranks as the core sees them; @m is borrowed */
void fsdp_mesh_group(struct fsdp_mesh *m, struct dn_group *out);
#endif
