/* Channels between ranks of one process: for tests, and for a run of one rank (which never sends). An echo has one rank: both ways
 * of a pair are the same one, so that a message is met by the receive from where it went.
 *
 * Message k of a pair meets receive k of that pair, in a ring entry. Whoever comes second copies, under the hub's
 * lock: slow for large data and many ranks, and simple.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include "comm/channel.h"

#define RING 64u /* messages of a pair under way */

struct message {
	const void *from;
	void *to;
	size_t sent_bytes, wanted_bytes;
	bool sent, wanted;
	int ended; /* sides that know that it is complete; at 2 the entry is free again */
};

struct pair { /* from one rank to another on one channel */
	uint64_t n_sent, n_wanted;
	struct message ring[RING];
};

struct fsdp_hub {
	pthread_mutex_t lock; /* guards all below */
	int world;
	bool echo;
	int n_numbers;	     /* channels seen so far */
	struct pair **pairs; /* [n_numbers][world * world]; echo: [world] */
	bool *gone;	     /* [world]: a channel of this rank was destroyed */
};

struct local_channel {
	struct fsdp_channel ch; /* first */
	struct fsdp_hub *hub;
	int number;
};

enum { H_SEND, H_RECV };

static int hub_create(struct fsdp_hub **out, int world, int most, bool echo)
{
	struct fsdp_hub *h;
	int err;

	if (world < 1 || world > most)
		return dn_fail(-EINVAL, "in-process ranks: %d, must be 1 to %d", world, most);
	h = dn_zalloc(sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->world = world;
	h->echo = echo;
	h->gone = dn_calloc((size_t)world, sizeof(*h->gone));
	if (!h->gone) {
		dn_free(h);
		return -ENOMEM;
	}
	err = pthread_mutex_init(&h->lock, NULL);
	if (err) {
		dn_free(h->gone);
		dn_free(h);
		return dn_fail(-err, "in-process ranks: mutex: %s", strerror(err));
	}
	*out = h;
	return 0;
}

int fsdp_hub_create(struct fsdp_hub **out, int world)
{
	return hub_create(out, world, 256, false);
}

int fsdp_hub_create_echo(struct fsdp_hub **out, int world)
{
	return hub_create(out, world, FSDP_ECHO_MAX, true);
}

void fsdp_hub_destroy(struct fsdp_hub *h)
{
	if (!h)
		return;
	for (int i = 0; i < h->n_numbers; i++)
		dn_free(h->pairs[i]);
	dn_free(h->pairs);
	dn_free(h->gone);
	pthread_mutex_destroy(&h->lock);
	dn_free(h);
}

static struct pair *pair_of(const struct local_channel *c, int from, int to)
{
	const int *rank = c->ch.members;

	if (c->hub->echo)
		return &c->hub->pairs[c->number][rank[from == c->ch.rank ? to : from]];
	return &c->hub->pairs[c->number][rank[from] * c->hub->world + rank[to]];
}

/* with the lock, when both sides are there */
static void message_move(struct message *m)
{
	if (m->sent_bytes == m->wanted_bytes && m->sent_bytes)
		memcpy(m->to, m->from, m->sent_bytes);
}

static int local_post(struct fsdp_channel *ch, int peer, bool recv, const void *from, void *to, size_t bytes,
		      struct fsdp_request *q)
{
	struct local_channel *c = (struct local_channel *)ch;
	struct pair *p = recv ? pair_of(c, peer, ch->rank) : pair_of(c, ch->rank, peer);
	uint64_t *n = recv ? &p->n_wanted : &p->n_sent;
	struct message *m;
	int err = 0;

	pthread_mutex_lock(&c->hub->lock);
	m = &p->ring[*n % RING];
	if (recv ? m->wanted : m->sent) {
		err = dn_fail(-EAGAIN, "rank %d and rank %d: more than %u messages under way", ch->members[ch->rank],
			      ch->members[peer], RING);
	} else {
		if (recv) {
			m->wanted = true;
			m->to = to;
			m->wanted_bytes = bytes;
		} else {
			m->sent = true;
			m->from = from;
			m->sent_bytes = bytes;
		}
		if (m->sent && m->wanted)
			message_move(m);
		q->h[0] = *n << 1 | (recv ? H_RECV : H_SEND);
		q->h[1] = (uint64_t)peer;
		q->active = true;
		(*n)++;
	}
	pthread_mutex_unlock(&c->hub->lock);
	return err;
}

static int local_send(struct fsdp_channel *ch, int peer, const void *p, size_t bytes, struct fsdp_request *q)
{
	return local_post(ch, peer, false, p, NULL, bytes, q);
}

static int local_recv(struct fsdp_channel *ch, int peer, void *p, size_t bytes, struct fsdp_request *q)
{
	return local_post(ch, peer, true, NULL, p, bytes, q);
}

/* with the lock */
static int test_one(struct local_channel *c, struct fsdp_request *q)
{
	const int *rank = c->ch.members, me = c->ch.rank;
	bool recv = (q->h[0] & 1) == H_RECV;
	int peer = (int)q->h[1], err = 0;
	struct pair *p = recv ? pair_of(c, peer, me) : pair_of(c, me, peer);
	struct message *m = &p->ring[(q->h[0] >> 1) % RING];

	if (m->sent && m->wanted) {
		if (m->sent_bytes != m->wanted_bytes)
			err = dn_fail(-EPROTO, "rank %d sends %zu bytes, rank %d waits for %zu", rank[recv ? peer : me],
				      m->sent_bytes, rank[recv ? me : peer], m->wanted_bytes);
		if (++m->ended == 2)
			memset(m, 0, sizeof(*m));
		q->active = false;
	} else if (c->hub->gone[rank[peer]]) {
		err = dn_fail(DN_EPEER_LOST, "rank %d has left", rank[peer]);
	}
	return err;
}

static int local_test_many(struct fsdp_channel *ch, struct fsdp_request *q, int n, bool *all)
{
	struct local_channel *c = (struct local_channel *)ch;
	int err = 0;

	*all = true;
	pthread_mutex_lock(&c->hub->lock);
	for (int i = 0; i < n; i++) {
		int e = q[i].active ? test_one(c, &q[i]) : 0;

		err = err ? err : e;
		*all = *all && !q[i].active;
	}
	pthread_mutex_unlock(&c->hub->lock);
	return err;
}

static int local_test(struct fsdp_channel *ch, struct fsdp_request *q, bool *done)
{
	return local_test_many(ch, q, 1, done);
}

static int local_any(struct fsdp_channel *ch, int *peer)
{
	struct local_channel *c = (struct local_channel *)ch;

	*peer = -1;
	pthread_mutex_lock(&c->hub->lock);
	for (int q = 0; q < ch->size && *peer < 0; q++) {
		struct pair *p = pair_of(c, q, ch->rank);

		if (p->n_sent > p->n_wanted)
			*peer = q;
	}
	pthread_mutex_unlock(&c->hub->lock);
	return 0;
}

/* with the lock: memory of messages that nobody has met yet is not ours any more */
static void pair_cancel(struct pair *p, bool recv)
{
	for (unsigned i = 0; i < RING; i++) {
		struct message *m = &p->ring[i];

		if (m->sent && m->wanted)
			continue;
		if (recv)
			m->wanted = false;
		else
			m->sent = false;
	}
}

static void local_destroy(struct fsdp_channel *ch)
{
	struct local_channel *c = (struct local_channel *)ch;

	pthread_mutex_lock(&c->hub->lock);
	c->hub->gone[ch->members[ch->rank]] = true;
	for (int q = 0; q < ch->size; q++) {
		pair_cancel(pair_of(c, ch->rank, q), false);
		pair_cancel(pair_of(c, q, ch->rank), true);
	}
	pthread_mutex_unlock(&c->hub->lock);
	fsdp_channel_fini(ch);
	dn_free(c);
}

static const struct fsdp_channel_ops local_ops = {
	.send = local_send,
	.recv = local_recv,
	.test = local_test,
	.any = local_any,
	.test_many = local_test_many,
	.destroy = local_destroy,
	.forgets = true,
};

/* with the lock */
static int hub_grow(struct fsdp_hub *h, int number)
{
	struct pair **more;

	while (h->n_numbers <= number) {
		more = dn_realloc(h->pairs, ((size_t)h->n_numbers + 1) * sizeof(*more));
		if (!more)
			return -ENOMEM;
		h->pairs = more;
		h->pairs[h->n_numbers] = dn_calloc((size_t)h->world * (size_t)(h->echo ? 1 : h->world), sizeof(**more));
		if (!h->pairs[h->n_numbers])
			return -ENOMEM;
		h->n_numbers++;
	}
	return 0;
}

int fsdp_local_group(struct fsdp_hub *h, int rank, int number, int size, const int *members, struct fsdp_channel **out)
{
	struct local_channel *c;
	int err;

	if (rank < 0 || rank >= h->world || number < 0 || number > 64)
		return dn_fail(-EINVAL, "in-process ranks: rank %d of %d, channel %d", rank, h->world, number);
	c = dn_zalloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->ch.ops = &local_ops;
	c->hub = h;
	c->number = number;
	c->ch.echo = h->echo;
	err = fsdp_channel_init(&c->ch, h->world, rank, size, members);
	if (!err) {
		pthread_mutex_lock(&h->lock);
		err = hub_grow(h, number);
		pthread_mutex_unlock(&h->lock);
	}
	if (err) {
		fsdp_channel_fini(&c->ch);
		dn_free(c);
		return err;
	}
	*out = &c->ch;
	return 0;
}

int fsdp_local_channel(struct fsdp_hub *h, int rank, int number, struct fsdp_channel **out)
{
	int *all = dn_calloc((size_t)h->world, sizeof(*all)), err;

	if (!all)
		return -ENOMEM;
	for (int q = 0; q < h->world; q++)
		all[q] = q;
	err = fsdp_local_group(h, rank, number, h->world, all, out);
	dn_free(all);
	return err;
}
