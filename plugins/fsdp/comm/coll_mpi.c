/* Channels over MPI: a communicator each, so that queues never meet. */
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <string.h>
#include "comm/channel.h"

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request handle does not fit");

struct mpi_channel {
	struct fsdp_channel ch; /* first */
	MPI_Comm comm;
};

#define NOT_RECV UINT64_MAX
#define MANY 64 /* requests that one call tests */

/* an error of MPI is a lost peer, but for a message that is longer than we want */
static int mpi_status(int rc, const char *what, const struct fsdp_channel *ch, int peer)
{
	int rank = ch->members[ch->rank];
	char text[MPI_MAX_ERROR_STRING];
	int n = 0, class = MPI_ERR_OTHER;

	if (rc == MPI_SUCCESS)
		return 0;
	peer = ch->members[peer];
	if (MPI_Error_class(rc, &class) == MPI_SUCCESS && class == MPI_ERR_TRUNCATE)
		return dn_fail(-EPROTO, "rank %d sends more bytes than rank %d waits for", peer, rank);
	if (MPI_Error_string(rc, text, &n) != MPI_SUCCESS)
		n = 0;
	text[n] = '\0';
	if (class == MPI_ERR_NO_MEM)
		return dn_fail(-ENOMEM, "%s rank %d: %s", what, peer, text);
	return dn_fail(DN_EPEER_LOST, "%s rank %d: %s", what, peer, text);
}

static int mpi_send(struct fsdp_channel *ch, int peer, const void *p, size_t bytes, struct fsdp_request *q)
{
	struct mpi_channel *c = (struct mpi_channel *)ch;
	MPI_Request r = MPI_REQUEST_NULL;
	int err;

	if (bytes > FSDP_MESSAGE_MAX)
		return dn_fail(-EINVAL, "message of %zu bytes, at most %u", bytes, FSDP_MESSAGE_MAX);
	err = mpi_status(MPI_Isend(p, (int)bytes, MPI_BYTE, peer, 0, c->comm, &r), "send to", ch, peer);
	if (err)
		return err;
	memcpy(&q->h[0], &r, sizeof(r));
	q->h[1] = NOT_RECV - (uint64_t)peer;
	q->active = true;
	return 0;
}

static int mpi_recv(struct fsdp_channel *ch, int peer, void *p, size_t bytes, struct fsdp_request *q)
{
	struct mpi_channel *c = (struct mpi_channel *)ch;
	MPI_Request r = MPI_REQUEST_NULL;
	int err;

	if (bytes > FSDP_MESSAGE_MAX)
		return dn_fail(-EINVAL, "message of %zu bytes, at most %u", bytes, FSDP_MESSAGE_MAX);
	err = mpi_status(MPI_Irecv(p, (int)bytes, MPI_BYTE, peer, 0, c->comm, &r), "receive from", ch, peer);
	if (err)
		return err;
	memcpy(&q->h[0], &r, sizeof(r));
	q->h[1] = (uint64_t)bytes << 32 | (uint32_t)peer;
	q->active = true;
	return 0;
}

static bool is_recv(const struct fsdp_request *q)
{
	return q->h[1] < NOT_RECV - INT_MAX;
}

static int peer_of(const struct fsdp_request *q)
{
	return is_recv(q) ? (int)(uint32_t)q->h[1] : (int)(NOT_RECV - q->h[1]);
}

/* @q is over, as MPI says with @rc and @st */
static int ended(const struct fsdp_channel *ch, struct fsdp_request *q, int rc, MPI_Status *st)
{
	int peer = peer_of(q), got = 0;
	int err = mpi_status(rc, is_recv(q) ? "receive from" : "send to", ch, peer);

	if (!err && is_recv(q)) {
		err = mpi_status(MPI_Get_count(st, MPI_BYTE, &got), "receive from", ch, peer);
		if (!err && (uint64_t)got != q->h[1] >> 32)
			err = dn_fail(-EPROTO, "rank %d sends %d bytes, rank %d waits for %llu", ch->members[peer], got,
				      ch->members[ch->rank], (unsigned long long)(q->h[1] >> 32));
	}
	q->active = false;
	return err;
}

/* at most MANY requests, all active */
static int test_some(struct fsdp_channel *ch, struct fsdp_request *const *q, int n)
{
	int index[MANY], n_done = 0, rc, err = 0;
	MPI_Request r[MANY];
	MPI_Status st[MANY];

	for (int i = 0; i < n; i++)
		memcpy(&r[i], &q[i]->h[0], sizeof(r[i]));
	rc = MPI_Testsome(n, r, &n_done, index, st);
	for (int i = 0; i < n; i++)
		memcpy(&q[i]->h[0], &r[i], sizeof(r[i]));
	if (rc != MPI_SUCCESS && rc != MPI_ERR_IN_STATUS)
		return mpi_status(rc, "messages with", ch, peer_of(q[0]));
	for (int i = 0; i < n_done && n_done != MPI_UNDEFINED; i++) {
		int e = ended(ch, q[index[i]], rc == MPI_SUCCESS ? MPI_SUCCESS : st[i].MPI_ERROR, &st[i]);

		err = err ? err : e;
	}
	return err;
}

static int mpi_test_many(struct fsdp_channel *ch, struct fsdp_request *q, int n, bool *all)
{
	struct fsdp_request *open[MANY];
	int n_open = 0, err = 0;

	*all = true;
	for (int i = 0; i < n && !err; i++) {
		if (q[i].active)
			open[n_open++] = &q[i];
		if (n_open < MANY && i < n - 1)
			continue;
		err = n_open ? test_some(ch, open, n_open) : 0;
		for (int k = 0; k < n_open; k++)
			*all = *all && !open[k]->active;
		n_open = 0;
	}
	return err;
}

static int mpi_test(struct fsdp_channel *ch, struct fsdp_request *q, bool *done)
{
	return mpi_test_many(ch, q, 1, done);
}

static int mpi_any(struct fsdp_channel *ch, int *peer)
{
	struct mpi_channel *c = (struct mpi_channel *)ch;
	MPI_Status st;
	int flag = 0, err;

	err = mpi_status(MPI_Iprobe(MPI_ANY_SOURCE, 0, c->comm, &flag, &st), "message to", ch, ch->rank);
	*peer = !err && flag ? st.MPI_SOURCE : -1;
	return err;
}

/* Freeing a communicator is collective in spirit: with messages under way (a peer is lost) it is left to the end of the
 * process. MPI_Finalize frees what is idle. */
static void mpi_destroy(struct fsdp_channel *ch)
{
	fsdp_channel_fini(ch);
	dn_free(ch);
}

static const struct fsdp_channel_ops mpi_ops = {
	.send = mpi_send,
	.recv = mpi_recv,
	.test = mpi_test,
	.any = mpi_any,
	.test_many = mpi_test_many,
	.destroy = mpi_destroy,
};

/* no member is to blame here, and no channel is there yet */
static int mpi_made(int rc, const char *what)
{
	char text[MPI_MAX_ERROR_STRING];
	int n = 0;

	if (rc == MPI_SUCCESS)
		return 0;
	if (MPI_Error_string(rc, text, &n) != MPI_SUCCESS)
		n = 0;
	text[n] = '\0';
	return dn_fail(DN_EPEER_LOST, "start-up: channel: %s: %s", what, text);
}

int fsdp_mpi_group(int size, const int *members, struct fsdp_channel **out)
{
	struct mpi_channel *c = dn_zalloc(sizeof(*c));
	int rank = 0, world = 0, err;

	if (!c)
		return -ENOMEM;
	err = mpi_made(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
	if (!err)
		err = mpi_made(MPI_Comm_size(MPI_COMM_WORLD, &world), "MPI_Comm_size");
	if (!err)
		err = fsdp_channel_init(&c->ch, world, rank, size, members);
	/* groups do not overlap: the first member tells them apart */
	if (!err)
		err = mpi_made(MPI_Comm_split(MPI_COMM_WORLD, members[0], c->ch.rank, &c->comm), "MPI_Comm_split");
	if (!err)
		err = mpi_made(MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
	if (err) {
		fsdp_channel_fini(&c->ch);
		dn_free(c);
		return err;
	}
	c->ch.ops = &mpi_ops;
	*out = &c->ch;
	return 0;
}

int fsdp_mpi_channel(struct fsdp_channel **out)
{
	int world = 0, *all, err;

	err = mpi_made(MPI_Comm_size(MPI_COMM_WORLD, &world), "MPI_Comm_size");
	if (err)
		return err;
	all = dn_calloc((size_t)world, sizeof(*all));
	if (!all)
		return -ENOMEM;
	for (int q = 0; q < world; q++)
		all[q] = q;
	err = fsdp_mpi_group(world, all, out);
	dn_free(all);
	return err;
}
