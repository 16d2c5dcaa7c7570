/* Start and end of the ranks: launcher, MPI, channels, group operations. */
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
#include "comm/mesh.h"

#define OTHERS_SPEAK_MS 200 /* before an abort: messages of other ranks get out, too */
#define FINALIZE_MS 10000

/* --- MPI --- */

static int mpi_check(int rc, const char *what)
{
	char text[MPI_MAX_ERROR_STRING];
	int n = 0;

	if (rc == MPI_SUCCESS)
		return 0;
	if (MPI_Error_string(rc, text, &n) != MPI_SUCCESS)
		n = 0;
	text[n] = '\0';
	return dn_fail(DN_EPEER_LOST, "start-up: %s: %s", what, text);
}

static int mpi_start(void)
{
	int given = 0, err, on = 0;

	err = mpi_check(MPI_Initialized(&on), "MPI_Initialized");
	if (!err && on)
		return dn_fail(-EALREADY, "start-up: MPI was started before the plugin");
	if (!err)
		err = mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given), "MPI_Init_thread");
	if (!err)
		err = mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
	if (!err && given < MPI_THREAD_SERIALIZED)
		return dn_fail(-ENOTSUP, "start-up: MPI gives thread level %d, MPI_THREAD_SERIALIZED (%d) is needed", given,
			       MPI_THREAD_SERIALIZED);
	return err;
}

enum { ON_HOST_RANK, ON_HOST_PID, ON_HOST_FD, ON_HOST_NONCE, ON_HOST_FIELDS };

/* Without a board nothing is lost but words in messages. */
static void host_board(struct fsdp_mesh *m, const int64_t *first, bool mine)
{
	const struct fsdp_board_key key = { first[ON_HOST_PID], first[ON_HOST_FD], first[ON_HOST_NONCE] };

	if (mine || key.fd < 0)
		return;
	if (fsdp_board_join(&m->host.board, m->world, m->rank, &key))
		dn_log("fsdp", DN_LOG_WARN, "rank %d: %s", m->rank, dn_message());
}

/* which ranks share a host, and its name for messages */
static int mpi_homes(struct fsdp_mesh *m, int32_t first)
{
	struct fsdp_home mine = { .first = first };

	if (gethostname(mine.name, sizeof(mine.name) - 1)) /* long names are cut */
		mine.name[sizeof(mine.name) - 1] = '\0';
	m->homes = dn_calloc((size_t)m->world, sizeof(*m->homes));
	if (!m->homes)
		return -ENOMEM;
	return mpi_check(MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, m->homes, sizeof(mine), MPI_BYTE, MPI_COMM_WORLD),
			 "MPI_Allgather");
}

/* every rank of this host: its number in the world and its process, and the board of the first one */
static int mpi_host(struct fsdp_mesh *m)
{
	int64_t mine[ON_HOST_FIELDS] = { m->rank, (int64_t)getpid(), -1, 0 }, *all = NULL;
	struct fsdp_board_key key;
	int on_host = 0, err;
	MPI_Comm host;

	err = mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
			"MPI_Comm_split_type");
	if (err)
		return err;
	err = mpi_check(MPI_Comm_size(host, &m->ranks_on_host), "MPI_Comm_size");
	if (!err)
		err = mpi_check(MPI_Comm_rank(host, &on_host), "MPI_Comm_rank");
	if (!err) {
		all = dn_calloc((size_t)m->ranks_on_host, sizeof(mine));
		err = all ? 0 : -ENOMEM;
	}
	if (!err && on_host == 0) {
		if (fsdp_board_create(&m->host.board, m->world, m->rank, &key)) {
			dn_log("fsdp", DN_LOG_WARN, "rank %d: %s", m->rank, dn_message());
		} else {
			mine[ON_HOST_FD] = key.fd;
			mine[ON_HOST_NONCE] = key.nonce;
		}
	}
	if (!err)
		err = mpi_check(MPI_Allgather(mine, ON_HOST_FIELDS, MPI_INT64_T, all, ON_HOST_FIELDS, MPI_INT64_T, host),
				"MPI_Allgather");
	for (int i = 0; i < m->ranks_on_host && !err; i++)
		if (all[ON_HOST_FIELDS * i] >= 0 && all[ON_HOST_FIELDS * i] < m->world)
			m->host.pids[all[ON_HOST_FIELDS * i]] = (int)all[ON_HOST_FIELDS * i + ON_HOST_PID];
	if (!err)
		host_board(m, all, on_host == 0);
	if (!err)
		err = mpi_homes(m, (int32_t)all[ON_HOST_RANK]);
	dn_free(all);
	if (!err)
		err = mpi_check(MPI_Comm_free(&host), "MPI_Comm_free");
	return err;
}

/* After a barrier. A rank that is not on our board has numbers of processes that are not ours (another namespace). */
static int watch_peers(struct fsdp_mesh *m)
{
	for (int q = 0; q < m->world; q++)
		if (m->host.board && !fsdp_board_is_here(m->host.board, q))
			m->host.pids[q] = 0;
	return m->watch && m->host.board ? fsdp_watch_peers(m->watch, &m->host) : 0;
}

static int mpi_mesh(struct fsdp_mesh *m, const struct dn_launch *l)
{
	struct fsdp_channel *control = NULL, *roll = NULL;
	int err = mpi_start();

	if (err)
		return err;
	m->mpi = true;
	err = mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &m->rank), "MPI_Comm_rank");
	if (!err)
		err = mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &m->world), "MPI_Comm_size");
	if (err)
		return err;
	if (l->by && l->size != m->world)
		return dn_fail(-EINVAL,
			       "start-up: %d processes were launched (%s), but MPI's world has %d: the launcher belongs to "
			       "another MPI than the plugin; use that MPI's mpirun",
			       l->size, l->by, m->world);
	m->host.rank = m->rank;
	m->host.world = m->world;
	m->host.watch = m->watch;
	m->host.pids = dn_calloc((size_t)m->world, sizeof(*m->host.pids));
	if (!m->host.pids)
		return -ENOMEM;
	err = mpi_host(m);
	if (!err)
		err = fsdp_mpi_channel(&control);
	if (!err)
		err = fsdp_mpi_channel(&roll);
	if (!err)
		err = fsdp_control_init(&m->control, control, roll, m->timeout_ms);
	if (!err)
		err = mpi_check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
	if (!err)
		err = watch_peers(m);
	if (err)
		return err;
	control->host = &m->host;
	if (m->watch)
		fsdp_watch_arrived(m->watch);
	return 0;
}

/* --- in this process --- */

static int local_mesh(struct fsdp_mesh *m, struct fsdp_hub *hub)
{
	struct fsdp_channel *control = NULL, *roll = NULL;
	int err;

	m->hub = hub;
	err = fsdp_local_channel(hub, m->rank, 0, &control);
	if (!err)
		err = fsdp_local_channel(hub, m->rank, 1, &roll);
	if (!err)
		err = fsdp_control_init(&m->control, control, roll, m->timeout_ms);
	if (err)
		return err;
	m->world = m->ranks_on_host = control->world;
	return 0;
}

int fsdp_mesh_create_local(struct fsdp_mesh **out, struct fsdp_hub *hub, int rank, int64_t timeout_ms)
{
	struct fsdp_mesh *m = dn_zalloc(sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	m->rank = rank;
	m->timeout_ms = timeout_ms;
	m->late_status = 3;
	err = local_mesh(m, hub);
	if (err) {
		fsdp_mesh_destroy(m);
		return err;
	}
	*out = m;
	return 0;
}

/* --- both --- */

int fsdp_mesh_create(struct fsdp_mesh **out, enum fsdp_transport t, int64_t timeout_ms, int echo)
{
	struct dn_launch l;
	struct fsdp_mesh *m;
	int err;

	dn_launch_read(&l);
	if (t == FSDP_LOCAL && l.size > 1)
		return dn_fail(-EINVAL, "start-up: collectives=local is for one rank, %d processes were launched (%s)", l.size,
			       l.by);
	if (echo && l.size > 1)
		return dn_fail(-EINVAL, "start-up: fake_comm=%d is one process that has no peers, %d were launched (%s)", echo,
			       l.size, l.by);
	m = dn_zalloc(sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->world = m->ranks_on_host = 1;
	m->timeout_ms = timeout_ms;
	m->late_status = 3;
	err = l.by ? fsdp_watch_start(&m->watch, &l, timeout_ms) : 0;
	if (!err && !echo && t != FSDP_LOCAL && (l.by || l.unsized || t == FSDP_MPI)) {
		err = mpi_mesh(m, &l);
	} else if (!err) {
		err = echo ? fsdp_hub_create_echo(&m->hub, echo) : fsdp_hub_create(&m->hub, 1);
		m->owns_hub = !err;
		if (!err)
			err = local_mesh(m, m->hub);
		m->ranks_on_host = 1;
		if (!err && m->watch)
			fsdp_watch_arrived(m->watch);
	}
	if (!err) {
		*out = m;
		return 0;
	}
	/* perhaps only this rank failed: nobody can be waited for, and the launcher sees our status */
	m->mpi = false;
	fsdp_mesh_destroy(m);
	return err;
}

void fsdp_mesh_destroy(struct fsdp_mesh *m)
{
	if (!m)
		return;
	fsdp_groups_close(m);
	fsdp_windows_close(m->windows);
	fsdp_control_fini(&m->control);
	if (m->mpi) {
		fsdp_mesh_at(m, "end: MPI_Finalize", NULL);
		if (m->watch)
			fsdp_watch_limit(m->watch, "end: MPI_Finalize",
					 m->timeout_ms && m->timeout_ms < FINALIZE_MS ? m->timeout_ms : FINALIZE_MS,
					 m->late_status);
		if (MPI_Finalize() != MPI_SUCCESS)
			dn_log("fsdp", DN_LOG_WARN, "MPI_Finalize failed");
	}
	fsdp_board_leave(m->host.board);
	fsdp_watch_stop(m->watch);
	fsdp_board_close(m->host.board);
	if (m->owns_hub)
		fsdp_hub_destroy(m->hub);
	dn_free(m->host.pids);
	dn_free(m->homes);
	dn_free(m);
}

void fsdp_mesh_abort(struct fsdp_mesh *m, int status)
{
	fflush(NULL);
	if (!m->mpi || m->world == 1)
		return;
	fsdp_board_leave(m->host.board);
	if (m->watch)
		fsdp_watch_limit(m->watch, "end: MPI_Abort", 2000, status);
	dn_sleep_us(OTHERS_SPEAK_MS * 1000);
	MPI_Abort(MPI_COMM_WORLD, status);
	_exit(status);
}

/* --- the group --- */

void fsdp_mesh_at(struct fsdp_mesh *m, const char *what, const char *block)
{
	if (block)
		m->last_block = block;
	fsdp_board_at(m->host.board, what, block);
}

/* what leads a message: "evaluation after block tail" */
static const char *group_label(struct fsdp_mesh *m, const char *what, char out[120])
{
	fsdp_mesh_at(m, what, NULL);
	if (m->last_block)
		snprintf(out, 120, "%s after block %s", what, m->last_block);
	return m->last_block ? out : what;
}

static int group_agree(void *self, int err, const char *what)
{
	struct fsdp_mesh *m = self;
	char label[120];

	return fsdp_control_agree(&m->control, err, group_label(m, what, label));
}

static int group_sum(void *self, double *x, int n)
{
	struct fsdp_mesh *m = self;
	char label[120];

	return fsdp_control_sum(&m->control, group_label(m, "sum over ranks", label), x, n);
}

static int group_compare(void *self, const struct dn_item *items, int n)
{
	struct fsdp_mesh *m = self;
	char label[120];

	return fsdp_control_compare(&m->control, group_label(m, "comparing settings", label), items, n);
}

static int group_gather(void *self, const void *mine, size_t bytes, char **all, size_t *sizes)
{
	struct fsdp_mesh *m = self;
	char label[120];

	return fsdp_control_gather(&m->control, group_label(m, "gathering of texts", label), mine, bytes, all, sizes);
}

static const struct dn_group_ops group_ops = {
	.agree = group_agree,
	.sum = group_sum,
	.compare = group_compare,
	.gather = group_gather,
};

void fsdp_mesh_group(struct fsdp_mesh *m, struct dn_group *out)
{
	*out = (struct dn_group)DN_GROUP_ALONE;
	out->rank = m->rank;
	out->world = m->world;
	out->ranks_on_host = m->ranks_on_host;
	if (m->world == 1)
		return;
	out->ops = &group_ops;
	out->self = m;
}
