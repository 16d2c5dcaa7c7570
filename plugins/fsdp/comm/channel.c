/* What all channels share: members of a group, and who of them is late; see channel.h. */
#include <errno.h>
#include <string.h>
#include "comm/channel.h"

int fsdp_channel_init(struct fsdp_channel *c, int world, int rank, int size, const int *members)
{
	c->world = world;
	c->size = size;
	c->rank = -1;
	c->members = dn_calloc((size_t)size, sizeof(*c->members));
	if (!c->members)
		return -ENOMEM;
	for (int i = 0; i < size; i++) {
		if (members[i] < 0 || members[i] >= world || (i && members[i] <= members[i - 1]))
			return dn_fail(-EINVAL, "channel: member %d is rank %d of %d: ranks must ascend", i, members[i], world);
		c->members[i] = members[i];
		if (members[i] == rank)
			c->rank = i;
	}
	return c->rank < 0 ? dn_fail(-EINVAL, "channel: rank %d is none of its %d members", rank, size) : 0;
}

void fsdp_channel_fini(struct fsdp_channel *c)
{
	dn_free(c->members);
	c->members = NULL;
}

struct late {
	const struct fsdp_channel *c;
	bool (*member)(const void *arg, int member);
	const void *arg;
};

static bool late_rank(const void *arg, int rank)
{
	const struct late *l = arg;

	for (int i = 0; i < l->c->size; i++)
		if (l->c->members[i] == rank)
			return l->member(l->arg, i);
	return false;
}

void fsdp_missing(const struct fsdp_channel *c, bool (*late)(const void *arg, int member), const void *arg, char *out, size_t cap)
{
	const struct late l = { c, late, arg };

	fsdp_host_waiting(c->host, c->members[c->rank], c->world, late_rank, &l, out, cap);
}
