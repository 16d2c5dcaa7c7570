/* Who of the launched ranks of this host has come: files that every one leaves in ${TMPDIR:-/tmp}/darknet-fsdp-JOB/ during
 * start-up, when MPI cannot be asked yet.
 */
#ifndef FSDP_PRESENCE_H
#define FSDP_PRESENCE_H
#include "plugin/plugin.h"

struct fsdp_presence {
	int rank, size;
	bool one_host;		  /* all ranks are on this host */
	char dir[512], file[600]; /* "" = none */
};

void fsdp_presence_leave(struct fsdp_presence *p, const struct dn_launch *l);
void fsdp_presence_remove(struct fsdp_presence *p);
void fsdp_presence_remove_all(struct fsdp_presence *p); /* of all ranks: the job is over */
bool fsdp_presence_is_here(const struct fsdp_presence *p);
/** fsdp_presence_missing() - "rank 1 (stopped), 3 (not here)", "" when all are here and alive */
void fsdp_presence_missing(const struct fsdp_presence *p, char *out, size_t cap);
#endif
