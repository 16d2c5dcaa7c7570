/* Groups of ranks and their channels: those that the plan asks for, one for each queue that a group works on. */
#include <errno.h>
#include "comm/mesh.h"

#define FIRST_NUMBER 8 /* of in-process channels; those before are control's */

static int open_channel(struct fsdp_mesh *m, int i, const struct fsdp_group *g, int *members)
{
	for (int k = 0; k < g->size; k++)
		members[k] = fsdp_group_member(g, m->rank, k);
	if (m->hub)
		return fsdp_local_group(m->hub, m->rank, FIRST_NUMBER + i, g->size, members, &m->channels[i]);
	return fsdp_mpi_group(g->size, members, &m->channels[i]);
}

int fsdp_groups_open(struct fsdp_mesh *m, int n, const struct fsdp_group *groups)
{
	int *members = dn_calloc((size_t)m->world, sizeof(*members)), err = 0;

	m->channels = dn_calloc((size_t)n, sizeof(struct fsdp_channel *));
	if (!m->channels || !members)
		err = -ENOMEM;
	if (!err)
		m->n_channels = n;
	for (int i = 0; i < n && !err; i++) {
		if (m->world % (groups[i].size * groups[i].stride))
			err = dn_fail(-EINVAL,
				      "start-up: groups of %d ranks, each %d after the one before, do not divide %d ranks",
				      groups[i].size, groups[i].stride, m->world);
		else
			err = open_channel(m, i, &groups[i], members);
		if (!err && !m->hub)
			m->channels[i]->host = &m->host;
	}
	dn_free(members);
	return err;
}

void fsdp_groups_close(struct fsdp_mesh *m)
{
	for (int i = 0; i < m->n_channels; i++)
		if (m->channels[i])
			m->channels[i]->ops->destroy(m->channels[i]);
	dn_free(m->channels);
	m->n_channels = 0;
}
