/* Training runs of small nets by ranks in one process, or by one without the plugin, and what they leave behind. */
#ifndef DN_TESTS_FSDP_TRAIN_RANKS_H
#define DN_TESTS_FSDP_TRAIN_RANKS_H
#include <errno.h>
#include <string.h>
#include "plan/plan.h"
#include "ranks.h"
#include "run/shard_store.h"

#define TRAIN_CLASSES 6
#define TRAIN_BATCH 24 /* splits over 1 to 4 ranks at up to 2 subdivisions */
#define TRAIN_STEPS 200

struct train_job {
	const char *cfg, *backend;
	int world, steps; /* steps 0: one backward, and the gradients are read */
	bool plain;	  /* the local store; world 1 */
	bool sync_bn, other_passes;
	bool between; /* an evaluation after each microbatch */
	bool early;   /* updates within the last backward */
	struct fsdp_options opt;
	/* what is left */
	int64_t n_values, n_trained;
	float *values, *grads;	   /* of all params in file order; of the trained ones */
	float *rolling[RANKS_MAX]; /* as each rank has them */
	int64_t n_rolling;
	double loss[TRAIN_STEPS], losses[RANKS_MAX][TRAIN_STEPS];
	size_t activations_bytes;
	struct dn_store_report report;
	uint64_t n_allocs; /* of steps after the first; world 1 */
	/* its own */
	struct fsdp_hub *hub;
	pthread_barrier_t line;
	void (*start)(struct train_job *j, int rank, struct dn_net *net); /* on every rank, before the steps */
	void (*look)(struct train_job *j, int rank, struct dn_net *net);  /* on every rank, after the steps */
	void (*each)(const struct train_job *j, int rank, int64_t step, struct dn_net *net);
};

struct train_rank {
	struct dn_cfg *cfg;
	struct dn_device *dev;
	struct dn_net *net;
	struct fsdp_mesh *mesh;
	struct fsdp_plan *plan;
	float *x, *t;
};

static struct train_job train_job_of(const char *cfg, int world)
{
	return (struct train_job){ .cfg = cfg,
				   .backend = "ref",
				   .world = world,
				   .steps = 3,
				   .opt = { .wire = { DN_F32, DN_F32 },
					    .limit = 2,
					    .depth = 1,
					    .grad_slots = 2,
					    .prefetch = FSDP_PRE,
					    .timeout_ms = 20000 } };
}

static void train_fini(struct train_job *j)
{
	free(j->values);
	free(j->grads);
	for (int r = 0; r < RANKS_MAX; r++)
		free(j->rolling[r]);
}

/* with collectives=shm, of ranks that are threads: what fsdp.c does between processes */
static inline int train_windows(struct train_rank *r, int world)
{
	struct fsdp_windows_ask ask = { .ranks_on_host = world };

	if (!fsdp_plan_windows(r->plan))
		return 0;
	for (int k = 0; k < DN_MEM_PLANNED; k++)
		if (fsdp_place_shared(r->plan, (enum dn_region)k))
			ask.region[k] = fsdp_place_all(r->plan, (enum dn_region)k, false).bytes;
	return fsdp_windows_open(&r->mesh->windows, &r->mesh->control, &ask);
}

static int train_build(struct train_rank *r, const struct train_job *j, int rank)
{
	const struct dn_net_options opt = { .rank = rank,
					    .world = j->world,
					    .train = true,
					    .seed = 3,
					    .sync_bn = j->sync_bn,
					    .update_early = j->early,
					    .grads_add = j->opt.accumulate >= FSDP_NO_SYNC };
	struct fsdp_options keys = j->opt;
	struct dn_facts facts;
	int err;

	memset(r, 0, sizeof(*r));
	err = dn_cfg_parse(&r->cfg, j->cfg, strlen(j->cfg), "test.cfg", true);
	if (!err)
		err = dn_backend_find(check_backend(j->backend))->open(DN_CPU(1), &r->dev);
	if (!err)
		err = dn_net_build(&r->net, r->cfg, r->dev, &opt);
	if (!err && j->plain)
		err = dn_whole_attach(r->net);
	if (!err && !j->plain) {
		r->dev->be->set_timeout(r->dev, 20000);
		r->dev->be->facts(r->dev, &facts);
		if (!facts.host_access) /* no other rank can read its memory */
			keys.transport = FSDP_AUTO;
		err = fsdp_mesh_create_local(&r->mesh, j->hub, rank, 20000);
		if (!err)
			err = fsdp_blocks_apply(r->net, &keys);
		if (!err)
			err = fsdp_plan_build(&r->plan, r->net, &keys, j->world);
		if (!err)
			err = fsdp_plan_check(r->plan, NULL, NULL);
		if (!err)
			err = train_windows(r, j->world);
		if (!err)
			err = fsdp_store_attach(r->net, r->mesh, r->plan);
	}
	if (!err)
		err = dn_net_alloc(r->net);
	if (!err)
		err = r->net->store.ops->alloc(r->net->store.self, r->net);
	if (!err)
		err = dn_net_init_values(r->net);
	if (!err)
		err = r->dev->be->alloc_host(r->dev, DN_MEM_HOST, (size_t)(r->net->local_batch * r->net->inputs) * sizeof(float),
					     (void **)&r->x);
	if (!err)
		err = r->dev->be->alloc_host(r->dev, DN_MEM_HOST, (size_t)r->net->local_batch * TRAIN_CLASSES * sizeof(float),
					     (void **)&r->t);
	return err;
}

static void train_unbuild(struct train_rank *r)
{
	dn_net_drain(r->net);
	if (r->dev) {
		r->dev->be->free_host(r->dev, r->x);
		r->dev->be->free_host(r->dev, r->t);
	}
	dn_net_destroy(r->net);
	fsdp_mesh_destroy(r->mesh);
	fsdp_plan_destroy(r->plan);
	if (r->dev)
		r->dev->be->close(r->dev);
	dn_cfg_destroy(r->cfg);
}

/* microbatch @m of update @step: the same images whatever the ranks and microbatches */
static int train_pass(struct train_rank *r, int rank, int64_t step, int64_t m, enum dn_phase phase, double *loss,
		      const struct dn_update *u)
{
	struct dn_net *net = r->net;
	const uint64_t first = (uint64_t)(step * TRAIN_BATCH + m * net->microbatch + rank * net->local_batch);
	struct dn_pass p = {
		.phase = phase, .input = r->x, .truth = r->t, .first_image = first, .micro = phase == DN_INFER ? 0 : m
	};
	double x = 0;
	int err = dn_net_input_wait(net);

	if (err)
		return err;
	for (int64_t i = 0; i < net->local_batch * TRAIN_CLASSES; i++)
		r->t[i] = 0;
	for (int64_t i = 0; i < net->local_batch; i++) {
		const uint64_t id = first + (uint64_t)i;

		/* far from 0 and not alike: ranks' own statistics differ */
		for (int64_t k = 0; k < net->inputs; k++)
			r->x[i * net->inputs + k] = noise(id, (uint64_t)k) + (float)(id % 5) / 2;
		r->t[i * TRAIN_CLASSES + (int64_t)(id * 7 % TRAIN_CLASSES)] = 1;
	}
	err = dn_net_forward(net, &p);
	if (!err)
		err = dn_net_loss(net, &p, &x);
	*loss += x;
	if (!err && phase == DN_TRAIN)
		err = net->store.ops->stats(net->store.self, net);
	if (!err && u)
		err = dn_net_update_ready(net, u);
	return err || phase != DN_TRAIN ? err : dn_net_backward(net, &p);
}

static int train_step(struct train_rank *r, const struct train_job *j, int rank, int64_t step, double *loss)
{
	struct dn_net *net = r->net;
	const struct dn_hyper *h = &net->hyper;
	struct dn_update u = { .optimizer = h->optimizer,
			       .step = step + 1,
			       .images = TRAIN_BATCH,
			       .rate = h->optimizer == DN_SGD ? .1 : .01,
			       .momentum = .9,
			       .decay = .01,
			       .beta1 = h->beta1,
			       .beta2 = h->beta2,
			       .eps = h->eps };
	double dummy = 0;
	int err = net->store.ops->begin(net->store.self, net, step + 1);

	*loss = 0;
	for (int64_t m = 0; m < net->subdivisions && !err; m++) {
		err = train_pass(r, rank, step, m, DN_TRAIN, loss, j->early && m == net->subdivisions - 1 ? &u : NULL);
		if (!err && j->between)
			err = train_pass(r, rank, step, m, DN_INFER, &dummy, NULL);
	}
	if (!err && j->other_passes && step == 1) /* where a bad loss would be looked into: before the update */
		err = train_pass(r, rank, step, net->subdivisions - 1, DN_REPEAT, &dummy, NULL);
	if (!err && j->steps)
		err = dn_net_update(net, &u);
	if (!err && j->other_passes)
		err = train_pass(r, rank, step, 0, DN_INFER, &dummy, NULL);
	if (!err && j->each)
		j->each(j, rank, step, net);
	return err;
}

static int train_keep(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	float **to = arg;

	(void)p;
	(void)at;
	for (int64_t i = 0; i < n; i++)
		*(*to)++ = x[i];
	return 0;
}

static void train_read(struct dn_net *net, int rank, enum dn_part part, float **out)
{
	float *to = NULL;

	if (rank == 0)
		to = *out = calloc((size_t)(net->n_trained + net->n_buffers), sizeof(float));
	for (int i = 0; i < net->n_params; i++) {
		struct dn_param *p = net->params[i];

		if (p->role == DN_BUFFER && part != DN_VALUE)
			continue;
		if (part == DN_VALUE || !p->frozen)
			CHECK_OK(net->store.ops->read(net->store.self, p, part, 0, p->n, to));
		to = to ? to + p->n : NULL;
	}
}

static void train_rank_main(int rank, void *arg)
{
	struct train_job *j = arg;
	struct train_rank r;
	float *to;

	CHECK_OK_FATAL(train_build(&r, j, rank));
	if (j->start)
		j->start(j, rank, r.net);
	for (int s = 0; s < (j->steps ? j->steps : 1); s++) {
		uint64_t before = dn_mem_n_allocs();

		CHECK_OK(train_step(&r, j, rank, s, &j->losses[rank][s]));
		if (s && rank == 0)
			j->n_allocs += dn_mem_n_allocs() - before;
	}
	if (!j->steps)
		train_read(r.net, rank, DN_GRAD, &j->grads);
	train_read(r.net, rank, DN_VALUE, &j->values);
	to = j->rolling[rank] = calloc((size_t)r.net->n_buffers + 1, sizeof(float));
	for (int i = 0; i < r.net->n_params; i++)
		if (r.net->params[i]->role == DN_BUFFER)
			CHECK_OK(r.net->store.ops->each(r.net->store.self, r.net->params[i], DN_VALUE, DN_READ, train_keep, &to));
	if (rank == 0) {
		j->n_trained = r.net->n_trained;
		j->n_rolling = r.net->n_buffers;
		j->n_values = j->n_trained + j->n_rolling;
		j->activations_bytes = r.net->activations_bytes;
		r.net->store.ops->report(r.net->store.self, &j->report);
	}
	if (j->look)
		j->look(j, rank, r.net);
	pthread_barrier_wait(&j->line);
	train_unbuild(&r);
}

static inline void train_ranks(struct train_job *j, void (*fn)(int rank, void *arg))
{
	CHECK_OK_FATAL(fsdp_hub_create(&j->hub, j->world));
	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&j->line, NULL, (unsigned)j->world), 0);
	ranks_run(j->world, fn, j);
	pthread_barrier_destroy(&j->line);
	fsdp_hub_destroy(j->hub);
}

static inline void train_run(struct train_job *j)
{
	train_ranks(j, train_rank_main);
	for (int s = 0; s < j->steps; s++)
		for (int q = 0; q < j->world; q++)
			j->loss[s] += j->losses[q][s];
}

static inline void train_same_bits(const struct train_job *a, const struct train_job *b)
{
	CHECK_EQ(a->n_values, b->n_values);
	CHECK_BITS(a->values, b->values, (size_t)b->n_values * sizeof(float));
	CHECK_BITS(a->loss, b->loss, (size_t)b->steps * sizeof(double));
}

/* |a - b| / |b| */
static inline double train_distance(const float *a, const float *b, int64_t n)
{
	double d = 0, s = 0;

	for (int64_t i = 0; i < n; i++) {
		d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
		s += (double)b[i] * (double)b[i];
	}
	return s > 0 ? sqrt(d / s) : INFINITY;
}
#endif
