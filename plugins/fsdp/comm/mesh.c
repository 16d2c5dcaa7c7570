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

/* every rank of this host: its number in the world and its process */
static int mpi_host(struct fsdp_mesh *m)
{
	int mine[2] = { m->rank, (int)getpid() }, *all = NULL, err;
	MPI_Comm host;

	err = mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
			"MPI_Comm_split_type");
	if (err)
		return err;
	err = mpi_check(MPI_Comm_size(host, &m->ranks_on_host), "MPI_Comm_size");
	if (!err) {
		all = dn_calloc((size_t)m->ranks_on_host, sizeof(mine));
		err = all ? 0 : -ENOMEM;
	}
	if (!err)
		err = mpi_check(MPI_Allgather(mine, 2, MPI_INT, all, 2, MPI_INT, host), "MPI_Allgather");
	for (int i = 0; i < m->ranks_on_host && !err; i++)
		if (all[2 * i] >= 0 && all[2 * i] < m->world)
			m->pids[all[2 * i]] = all[2 * i + 1];
	dn_free(all);
	if (!err)
		err = mpi_check(MPI_Comm_free(&host), "MPI_Comm_free");
	return err;
}

static int mpi_mesh(struct fsdp_mesh *m, const struct dn_launch *l)
{
	struct fsdp_channel *control = NULL;
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
	m->pids = dn_calloc((size_t)m->world, sizeof(*m->pids));
	if (!m->pids)
		return -ENOMEM;
	err = mpi_host(m);
	if (!err)
		err = fsdp_mpi_channel(&m->gather);
	if (!err)
		err = fsdp_mpi_channel(&m->reduce);
	if (!err)
		err = fsdp_mpi_channel(&control);
	if (!err)
		err = fsdp_control_init(&m->control, control, m->timeout_ms);
	if (!err)
		err = mpi_check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
	if (err)
		return err;
	m->gather->pids = m->reduce->pids = control->pids = m->pids;
	m->gather->watch = m->reduce->watch = control->watch = m->watch;
	if (m->watch)
		fsdp_watch_arrived(m->watch);
	return 0;
}

/* --- in this process --- */

static int local_mesh(struct fsdp_mesh *m, struct fsdp_hub *hub)
{
	struct fsdp_channel *control = NULL;
	int err;

	err = fsdp_local_channel(hub, m->rank, 0, &m->gather);
	if (!err)
		err = fsdp_local_channel(hub, m->rank, 1, &m->reduce);
	if (!err)
		err = fsdp_local_channel(hub, m->rank, 2, &control);
	return err ? err : fsdp_control_init(&m->control, control, m->timeout_ms);
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
	m->world = m->ranks_on_host = m->gather->world;
	*out = m;
	return 0;
}

/* --- both --- */

int fsdp_mesh_create(struct fsdp_mesh **out, enum fsdp_transport t, int64_t timeout_ms)
{
	struct dn_launch l;
	struct fsdp_mesh *m;
	int err;

	dn_launch_read(&l);
	if (t == FSDP_LOCAL && l.size > 1)
		return dn_fail(-EINVAL, "start-up: collectives=local is for one rank, %d processes were launched (%s)", l.size,
			       l.by);
	m = dn_zalloc(sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->world = m->ranks_on_host = 1;
	m->timeout_ms = timeout_ms;
	m->late_status = 3;
	err = l.by ? fsdp_watch_start(&m->watch, &l, timeout_ms) : 0;
	if (!err && t != FSDP_LOCAL && (l.by || t == FSDP_MPI)) {
		err = mpi_mesh(m, &l);
	} else if (!err) {
		err = fsdp_hub_create(&m->hub, 1);
		if (!err)
			err = local_mesh(m, m->hub);
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
	if (m->gather)
		m->gather->ops->destroy(m->gather);
	if (m->reduce)
		m->reduce->ops->destroy(m->reduce);
	fsdp_control_fini(&m->control);
	if (m->mpi) {
		if (m->watch)
			fsdp_watch_limit(m->watch, "end: MPI_Finalize",
					 m->timeout_ms && m->timeout_ms < FINALIZE_MS ? m->timeout_ms : FINALIZE_MS,
					 m->late_status);
		if (MPI_Finalize() != MPI_SUCCESS)
			dn_log("fsdp", DN_LOG_WARN, "MPI_Finalize failed");
	}
	fsdp_watch_stop(m->watch);
	fsdp_hub_destroy(m->hub);
	dn_free(m->pids);
	dn_free(m);
}

void fsdp_mesh_abort(struct fsdp_mesh *m, int status)
{
	fflush(NULL);
	if (!m->mpi || m->world == 1)
		return;
	if (m->watch)
		fsdp_watch_limit(m->watch, "end: MPI_Abort", 2000, status);
	dn_sleep_us(OTHERS_SPEAK_MS * 1000);
	MPI_Abort(MPI_COMM_WORLD, status);
	_exit(status);
}

/* --- the group --- */

static int group_agree(void *self, int err, const char *what)
{
	struct fsdp_mesh *m = self;

	return fsdp_control_agree(&m->control, err, what);
}

static int group_sum(void *self, double *x, int n)
{
	struct fsdp_mesh *m = self;
	char what[120] = "sum over ranks";

	if (m->last_block)
		snprintf(what, sizeof(what), "sum over ranks after block %s", m->last_block);
	return fsdp_control_sum(&m->control, what, x, n);
}

static int group_compare(void *self, const struct dn_item *items, int n)
{
	struct fsdp_mesh *m = self;

	return fsdp_control_compare(&m->control, "comparing settings", items, n);
}

static int group_gather(void *self, const void *mine, size_t bytes, char **all, size_t *sizes)
{
	struct fsdp_mesh *m = self;

	return fsdp_control_gather(&m->control, "gathering of texts", mine, bytes, all, sizes);
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
