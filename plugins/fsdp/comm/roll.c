/* The roll call; see roll.h. At most one message of a pair is under way in each direction, whatever the others do. */
#include <errno.h>
#include <string.h>
#include "comm/roll.h"

int fsdp_roll_init(struct fsdp_roll *r, struct fsdp_channel *ch)
{
	size_t world = (size_t)ch->size;

	memset(r, 0, sizeof(*r));
	r->ch = ch;
	r->seen = dn_calloc(3 * world, sizeof(*r->seen));
	r->send = dn_calloc(world, sizeof(*r->send));
	if (!r->seen || !r->send) {
		fsdp_roll_fini(r);
		return -ENOMEM;
	}
	r->told = r->seen + world;
	r->out = r->told + world;
	return 0;
}

void fsdp_roll_fini(struct fsdp_roll *r)
{
	bool forgets = true, idle = !r->recv.active;

	for (int q = 0; r->send && q < r->ch->size; q++)
		idle = idle && !r->send[q].active;
	if (r->ch) {
		forgets = r->ch->ops->forgets;
		r->ch->ops->destroy(r->ch);
	}
	if (idle ||
	    forgets) /* else a lost peer has left a message of 8 bytes under way: its memory stays until the process ends */
		dn_free(r->seen);
	dn_free(r->send);
	memset(r, 0, sizeof(*r));
}

int fsdp_roll_hear(struct fsdp_roll *r)
{
	bool done = false;
	int err = 0;

	for (;;) {
		if (!r->recv.active) {
			err = r->ch->ops->any(r->ch, &r->from);
			if (err || r->from < 0)
				return err;
			err = r->ch->ops->recv(r->ch, r->from, &r->in, sizeof(r->in), &r->recv);
		}
		if (!err)
			err = r->ch->ops->test(r->ch, &r->recv, &done);
		if (err || !done)
			return err;
		if (r->in > r->seen[r->from])
			r->seen[r->from] = r->in;
	}
}

int fsdp_roll_say(struct fsdp_roll *r, uint64_t number)
{
	int err = 0;

	for (int q = 0; q < r->ch->size && !err; q++) {
		bool done = true;

		if (q == r->ch->rank)
			continue;
		if (r->send[q].active)
			err = r->ch->ops->test(r->ch, &r->send[q], &done);
		if (err || !done || r->told[q] >= number)
			continue;
		r->out[q] = r->told[q] = number;
		err = r->ch->ops->send(r->ch, q, &r->out[q], sizeof(r->out[q]), &r->send[q]);
	}
	return err;
}
