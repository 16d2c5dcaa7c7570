/* Channels over MPI: one duplicate of the world communicator each, so that queues never meet. */
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

/* an error of MPI is a lost peer, but for a message that is longer than we want */
static int mpi_status(int rc, const char *what, int rank, int peer)
{
	char text[MPI_MAX_ERROR_STRING];
	int n = 0, class = MPI_ERR_OTHER;

	if (rc == MPI_SUCCESS)
		return 0;
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
	err = mpi_status(MPI_Isend(p, (int)bytes, MPI_BYTE, peer, 0, c->comm, &r), "send to", ch->rank, peer);
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
	err = mpi_status(MPI_Irecv(p, (int)bytes, MPI_BYTE, peer, 0, c->comm, &r), "receive from", ch->rank, peer);
	if (err)
		return err;
	memcpy(&q->h[0], &r, sizeof(r));
	q->h[1] = (uint64_t)bytes << 32 | (uint32_t)peer;
	q->active = true;
	return 0;
}

static int mpi_test(struct fsdp_channel *ch, struct fsdp_request *q, bool *done)
{
	bool recv = q->h[1] < NOT_RECV - INT_MAX;
	int peer = recv ? (int)(uint32_t)q->h[1] : (int)(NOT_RECV - q->h[1]), flag = 0, got = 0, err;
	MPI_Status st;
	MPI_Request r;

	memcpy(&r, &q->h[0], sizeof(r));
	err = mpi_status(MPI_Test(&r, &flag, &st), recv ? "receive from" : "send to", ch->rank, peer);
	memcpy(&q->h[0], &r, sizeof(r));
	if (err)
		return err;
	if (flag && recv) {
		err = mpi_status(MPI_Get_count(&st, MPI_BYTE, &got), "receive from", ch->rank, peer);
		if (!err && (uint64_t)got != q->h[1] >> 32)
			err = dn_fail(-EPROTO, "rank %d sends %d bytes, rank %d waits for %llu", peer, got, ch->rank,
				      (unsigned long long)(q->h[1] >> 32));
	}
	if (flag)
		q->active = false;
	*done = flag;
	return err;
}

static int mpi_any(struct fsdp_channel *ch, int *peer)
{
	struct mpi_channel *c = (struct mpi_channel *)ch;
	MPI_Status st;
	int flag = 0, err;

	err = mpi_status(MPI_Iprobe(MPI_ANY_SOURCE, 0, c->comm, &flag, &st), "message to", ch->rank, ch->rank);
	*peer = !err && flag ? st.MPI_SOURCE : -1;
	return err;
}

/* Freeing a communicator is collective in spirit: with messages under way (a peer is lost) it is left to the end of the
 * process. MPI_Finalize frees what is idle. */
static void mpi_destroy(struct fsdp_channel *ch)
{
	dn_free(ch);
}

static const struct fsdp_channel_ops mpi_ops = {
	.send = mpi_send,
	.recv = mpi_recv,
	.test = mpi_test,
	.any = mpi_any,
	.destroy = mpi_destroy,
};

int fsdp_mpi_channel(struct fsdp_channel **out)
{
	struct mpi_channel *c = dn_zalloc(sizeof(*c));
	int err;

	if (!c)
		return -ENOMEM;
	err = mpi_status(MPI_Comm_dup(MPI_COMM_WORLD, &c->comm), "duplicating the communicator of", -1, 0);
	if (!err)
		err = mpi_status(MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN), "error handler of", -1, 0);
	if (!err)
		err = mpi_status(MPI_Comm_rank(c->comm, &c->ch.rank), "rank number of", -1, 0);
	if (!err)
		err = mpi_status(MPI_Comm_size(c->comm, &c->ch.world), "world size of", -1, 0);
	if (err) {
		dn_free(c);
		return err;
	}
	c->ch.ops = &mpi_ops;
	*out = &c->ch;
	return 0;
}
