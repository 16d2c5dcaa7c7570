/* The grid of ranks and its channels: one for each kind of collective, within the ranks of one copy or among all. */
#include <errno.h>
#include "comm/mesh.h"

#define FIRST_NUMBER 8 /* of in-process channels; those before are control's */

static int open_channel(struct fsdp_mesh *m, struct fsdp_hub *hub, enum fsdp_stage s, int size, const int *members)
{
	if (hub)
		return fsdp_local_group(hub, m->rank, FIRST_NUMBER + (int)s, size, members, &m->channels[s]);
	return fsdp_mpi_group(size, members, &m->channels[s]);
}

int fsdp_groups_open(struct fsdp_mesh *m, struct fsdp_hub *hub, int shards)
{
	int err = fsdp_grid_init(&m->grid, m->world, shards), *members;

	if (err)
		return err;
	m->shard_rank = fsdp_shard_rank(&m->grid, m->rank);
	m->replica_rank = fsdp_replica_rank(&m->grid, m->rank);
	members = dn_calloc((size_t)m->world, sizeof(*members));
	if (!members)
		return -ENOMEM;
	/* every rank makes all of them, in this order */
	for (int s = 0; s < FSDP_STAGES && !err; s++) {
		bool copy = s == FSDP_STAGE_GATHER || s == FSDP_STAGE_REDUCE;
		int size = copy ? m->grid.shards : m->world, first = copy ? m->replica_rank * m->grid.shards : 0;

		for (int i = 0; i < size; i++)
			members[i] = first + i;
		err = open_channel(m, hub, (enum fsdp_stage)s, size, members);
	}
	dn_free(members);
	return err;
}

void fsdp_groups_close(struct fsdp_mesh *m)
{
	for (int s = 0; s < FSDP_STAGES; s++)
		if (m->channels[s])
			m->channels[s]->ops->destroy(m->channels[s]);
}
