/* Sums over ranks that layers ask for within their forward and backward: their place in schedule, check, hash and outputs, and a
 * layer of this test that uses them in training runs of several ranks.
 */
#include <errno.h>
#include "plan_nets.h"
#include "ranks.h"
#include "run/shard_store.h"

/* --- in the plan --- */

static const char plain[] =
	NET_HEAD("2") "inputs=5\n" CONNECTED("7") CONNECTED_BN("3") CONNECTED("9") CONNECTED_BN("2") CONNECTED("6") SOFTMAX;

/* layers 1 and 2 ask for sums, in forward, in backward and several at a time */
static int make(struct planned *p, int world, const struct fsdp_options *o, bool asks)
{
	int err = planned_net(p, plain, world, true, 1);

	for (int k = 0; k < 2 && !err && asks; k++) {
		err = dn_layer_wants_exchange(&p->net->layers[1 + k], false, 5 + k);
		if (!err)
			err = dn_layer_wants_exchange(&p->net->layers[1 + k], true, 7 + k);
	}
	if (!err && asks)
		err = dn_layer_wants_exchange(&p->net->layers[2], false, 40);
	if (!err)
		err = fsdp_blocks_apply(p->net, o);
	return err ? err : fsdp_plan_build(&p->plan, p->net, o, world);
}

static int without_each_wait(const struct fsdp_plan *plan, struct fsdp_schedule *s)
{
	int n = 0;

	for (int i = 0; i < s->n_ops; i++) {
		const struct fsdp_op saved = s->ops[i];

		for (int k = 0; k < saved.n_waits; k++, n++) {
			struct fsdp_op *op = &s->ops[i];

			*op = saved;
			memmove(op->waits + k, op->waits + k + 1, (size_t)(saved.n_waits - k - 1) * sizeof(op->waits[0]));
			op->n_waits--;
			if (fsdp_plan_check(plan, NULL, NULL) != -EINVAL) {
				fprintf(stderr, "%s of block %d, part %d, micro %d: works without wait %d\n",
					fsdp_op_name(saved.kind), saved.block, saved.part, saved.micro, k);
				CU_FAIL("a wait that is not needed, or a check that misses it");
			}
		}
		s->ops[i] = saved;
	}
	return n;
}

static void every_wait_of_an_exchange_is_needed_and_proven(void)
{
	for (int world = 2; world <= 3; world++)
		for (int limit = 1; limit <= 3; limit++)
			for (int whole = 0; whole < 2; whole++) {
				struct fsdp_options o = plan_defaults();
				struct planned p;

				o.policy = policy_of(whole ? "at:0,3" : "each");
				o.limit = limit;
				o.depth = limit - 1;
				CHECK_OK_FATAL(make(&p, world, &o, true));
				CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
				CU_ASSERT(without_each_wait(p.plan, &p.plan->step) > 20);
				without_each_wait(p.plan, &p.plan->eval);
				CU_ASSERT(without_each_wait(p.plan, &p.plan->repeat) > 5);
				planned_fini(&p);
			}
}

/* "F1 X1 F1' ..." of the operations of block 1, one microbatch */
static void parts_text(const struct fsdp_schedule *s, int micro, char *out, size_t cap)
{
	size_t at = 0;

	*out = '\0';
	for (int i = 0; i < s->n_ops; i++) {
		const struct fsdp_op *op = &s->ops[i];
		const char *name = op->kind == FSDP_FORWARD    ? "F"
				   : op->kind == FSDP_BACKWARD ? "B"
				   : op->kind == FSDP_EXCHANGE ? "X"
							       : NULL;

		if (name && op->micro == micro && op->block == 1 && at < cap)
			at += (size_t)snprintf(out + at, cap - at, "%s%s%d", at ? " " : "", name, op->part);
	}
}

static void an_exchange_cuts_the_block_where_it_stands(void)
{
	struct fsdp_options o = plan_defaults();
	struct planned p;
	char text[256];

	o.policy = policy_of("at:0,1,3");
	CHECK_OK_FATAL(make(&p, 2, &o, true));
	CHECK_EQ(p.plan->n_sums, 5);
	parts_text(&p.plan->step, 1, text, sizeof(text));
	CHECK_STR(text, "F0 X0 F1 X1 F2 X2 F3 B0 X0 B1 X1 B2");
	parts_text(&p.plan->repeat, 0, text, sizeof(text));
	CHECK_STR(text, "F0 X0 F1 X1 F2 X2 F3");
	parts_text(&p.plan->eval, 0, text, sizeof(text));
	CHECK_STR(text, "F0");
	/* in backward layer 2 comes first */
	CHECK_EQ(p.plan->sums[p.plan->blocks[1].first_sum[1]].layer, 2);
	CHECK_EQ(p.plan->coll.device[FSDP_STAGE_EXCHANGE], 2 * 192); /* two ranks' 40 floats, to the next 64 bytes */
	planned_fini(&p);
}

static void without_ranks_or_layers_that_ask_there_is_none(void)
{
	struct fsdp_options o = plan_defaults();
	struct planned a, b, c;

	CHECK_OK_FATAL(make(&a, 2, &o, true));
	CHECK_OK_FATAL(make(&b, 2, &o, false));
	CHECK_OK_FATAL(make(&c, 1, &o, true));
	CU_ASSERT(a.plan->hash != b.plan->hash);
	CU_ASSERT(a.plan->n_sums > 0 && a.plan->queue_entries[FSDP_EXCHANGEQ] > b.plan->queue_entries[FSDP_EXCHANGEQ]);
	CHECK_EQ(b.plan->n_sums, 0);
	CHECK_EQ(c.plan->n_sums, 0);
	CHECK_EQ(b.plan->coll.device[FSDP_STAGE_EXCHANGE], 0);
	CHECK_EQ(a.plan->gather_bytes, b.plan->gather_bytes);
	CHECK_EQ(a.plan->reduce_bytes, b.plan->reduce_bytes);
	for (int i = 0; i < DN_LAYER_MAX_EXCHANGES; i++)
		CHECK_OK(dn_layer_wants_exchange(&a.net->layers[0], false, 1));
	CHECK_FAILS(dn_layer_wants_exchange(&a.net->layers[0], false, 1), -EINVAL, "at most 4");
	CHECK_FAILS(dn_layer_wants_exchange(&a.net->layers[0], true, 0), -EINVAL, "a sum of 0 elements");
	planned_fini(&a);
	planned_fini(&b);
	planned_fini(&c);
}

/* --- in a run --- */

#define CLASSES 6
#define INPUTS 10
#define BATCH 24
#define WIDTH 9
#define MOST 4096

/* layers 1 and 3 are the test's own */
static const char cfg[] =
	"[net]\nbatch=24\nsubdivisions=2\ninputs=10\nlearning_rate=0.1\nmomentum=0.9\n"
	"[connected]\noutput=9\nbatch_normalize=1\nactivation=leaky\n[activation]\nactivation=linear\n"
	"[connected]\noutput=9\nactivation=tanh\n[activation]\nactivation=linear\n[connected]\noutput=6\nactivation=linear\n[softmax]\n"
	"[cost]\ntype=sse\n";

struct probe {	  /* what a rank's layers have handed over and got back, in order */
	float *v; /* device memory */
	float *host;
	int64_t n;
	float sent[MOST], got[MOST];
};
static __thread struct probe *probe;

/* x[0..WIDTH) goes out and comes back as a sum, of which a little is added to y */
static int exchange(struct dn_layer *l, bool backward, const float *x, float *y)
{
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	const size_t bytes = WIDTH * sizeof(float);
	int err;

	CU_ASSERT_FATAL(probe->n + WIDTH <= MOST);
	err = be->copy(st, probe->v, x, bytes);
	if (!err)
		err = be->copy(st, probe->host, probe->v, bytes);
	if (!err)
		err = be->stream_sync(st);
	memcpy(probe->sent + probe->n, probe->host, bytes);
	if (!err)
		err = dn_layer_exchange(l, backward, DN_F32, probe->v, WIDTH);
	if (!err)
		err = be->copy(st, probe->host, probe->v, bytes);
	if (!err)
		err = be->stream_sync(st);
	memcpy(probe->got + probe->n, probe->host, bytes);
	probe->n += WIDTH;
	return err ? err : be->axpby(st, DN_F32, WIDTH, 0.01f, probe->v, 1, y);
}

static int forward(struct dn_layer *l, const struct dn_pass *pass)
{
	const float *x = dn_layer_x(l, pass, 0);
	int err = l->net->dev->be->copy(l->net->compute, l->output, x, (size_t)(l->local_batch * l->outputs) * sizeof(float));

	if (!err && pass->phase != DN_INFER)
		err = exchange(l, false, x, l->output);
	/* the second time with what the first has made */
	if (!err && pass->phase != DN_INFER && l->index == 3)
		err = exchange(l, false, l->output, (float *)l->output + WIDTH);
	return err;
}

static int backward(struct dn_layer *l, const struct dn_pass *pass)
{
	bool acc;
	float *dx = dn_layer_dx(l, 0, &acc);
	int err = l->net->dev->be->axpby(l->net->compute, DN_F32, l->local_batch * l->outputs, 1, l->delta, acc, dx);

	return err ? err : exchange(l, true, l->delta, dx);
}

struct job {
	struct fsdp_hub *hub;
	int world, limit;
	const char *policy;
	bool other_passes;
	pthread_barrier_t line;
	struct probe probes[RANKS_MAX];
	double loss[RANKS_MAX];
	float value[RANKS_MAX][CLASSES]; /* of the last biases: the same on all ranks that read them */
	struct dn_layer_ops ops[RANKS_MAX][2];
};

struct rank_run {
	struct dn_cfg *cfg;
	struct dn_device *dev;
	struct dn_net *net;
	struct fsdp_mesh *mesh;
	struct fsdp_plan *plan;
	float *x, *t;
};

static void open_rank(struct job *j, int rank, struct rank_run *r)
{
	const struct dn_net_options opt = { .rank = rank, .world = j->world, .train = true, .seed = 3 };
	const struct fsdp_options o = { .policy = policy_of(j->policy),
					.wire = { DN_F32, DN_F32 },
					.limit = j->limit,
					.grad_slots = 2,
					.depth = j->limit > 1,
					.timeout_ms = 20000 };

	memset(r, 0, sizeof(*r));
	CHECK_OK_FATAL(dn_cfg_parse(&r->cfg, cfg, strlen(cfg), "test.cfg", true));
	CHECK_OK_FATAL(dn_backend_find(check_backend("ref"))->open(DN_CPU(1), &r->dev));
	CHECK_OK_FATAL(dn_net_build(&r->net, r->cfg, r->dev, &opt));
	for (int k = 0; k < 2; k++) {
		struct dn_layer *l = &r->net->layers[1 + 2 * k];

		j->ops[rank][k] = *l->ops;
		j->ops[rank][k].forward = forward;
		j->ops[rank][k].backward = backward;
		l->ops = &j->ops[rank][k];
		CHECK_OK(dn_layer_wants_exchange(l, false, WIDTH));
		CHECK_OK(dn_layer_wants_exchange(l, true, WIDTH));
	}
	CHECK_OK(dn_layer_wants_exchange(&r->net->layers[3], false, WIDTH));
	CHECK_OK_FATAL(fsdp_mesh_create_local(&r->mesh, j->hub, rank, 0, 20000));
	r->dev->be->set_timeout(r->dev, 20000);
	CHECK_OK_FATAL(fsdp_blocks_apply(r->net, &o));
	CHECK_OK_FATAL(fsdp_plan_build(&r->plan, r->net, &o, j->world));
	CHECK_OK(fsdp_plan_check(r->plan, NULL, NULL));
	CHECK_OK_FATAL(fsdp_store_attach(r->net, r->mesh, r->plan));
	CHECK_OK_FATAL(dn_net_alloc(r->net));
	CHECK_OK_FATAL(r->net->store.ops->alloc(r->net->store.self, r->net));
	CHECK_OK_FATAL(dn_net_init_values(r->net));
	probe = &j->probes[rank];
	probe->n = 0;
	CHECK_OK_FATAL(r->dev->be->alloc(r->dev, DN_MEM_HOST, WIDTH * sizeof(float), (void **)&probe->v));
	CHECK_OK_FATAL(r->dev->be->alloc_host(r->dev, DN_MEM_HOST, WIDTH * sizeof(float), (void **)&probe->host));
	CHECK_OK_FATAL(r->dev->be->alloc_host(r->dev, DN_MEM_HOST, (size_t)r->net->local_batch * INPUTS * sizeof(float),
					      (void **)&r->x));
	CHECK_OK_FATAL(r->dev->be->alloc_host(r->dev, DN_MEM_HOST, (size_t)r->net->local_batch * CLASSES * sizeof(float),
					      (void **)&r->t));
}

static void close_rank(struct rank_run *r)
{
	const struct dn_backend *be = r->dev->be;
	struct dn_device *dev = r->dev;

	dn_net_destroy(r->net);
	fsdp_mesh_destroy(r->mesh);
	fsdp_plan_destroy(r->plan);
	be->free(dev, probe->v);
	be->free_host(dev, probe->host);
	be->free_host(dev, r->x);
	be->free_host(dev, r->t);
	be->close(dev);
	dn_cfg_destroy(r->cfg);
}

static int pass(struct rank_run *r, int rank, int64_t step, int64_t m, enum dn_phase phase, double *loss)
{
	struct dn_net *net = r->net;
	struct dn_pass p = { .phase = phase, .input = r->x, .truth = r->t, .micro = phase == DN_INFER ? 0 : m };
	int64_t first = m * net->microbatch + rank * net->local_batch;
	double x = 0;
	int err;

	CHECK_OK(dn_net_input_wait(net));
	memset(r->t, 0, (size_t)net->local_batch * CLASSES * sizeof(float));
	for (int64_t i = 0; i < net->local_batch; i++) {
		uint64_t id = (uint64_t)(step * BATCH + first + i);

		for (int64_t k = 0; k < INPUTS; k++)
			r->x[i * INPUTS + k] = noise(id, (uint64_t)k);
		r->t[i * CLASSES + (int64_t)(id * 7 % CLASSES)] = 1;
	}
	p.first_image = (uint64_t)(step * BATCH + first);
	err = dn_net_forward(net, &p);
	if (!err)
		err = dn_net_loss(net, &p, &x);
	*loss += x;
	if (!err && phase == DN_TRAIN)
		err = net->store.ops->stats(net->store.self, net);
	return err || phase != DN_TRAIN ? err : dn_net_backward(net, &p);
}

static void train(int rank, void *arg)
{
	struct dn_update u = { .optimizer = DN_SGD, .images = BATCH, .rate = .1, .momentum = .9 };
	struct job *j = arg;
	struct rank_run r;
	double dummy = 0;

	open_rank(j, rank, &r);
	j->loss[rank] = 0;
	for (int64_t s = 0; s < 4; s++) {
		u.step = s + 1;
		CHECK_OK(r.net->store.ops->begin(r.net->store.self, r.net, u.step));
		for (int64_t m = 0; m < r.net->subdivisions; m++)
			CHECK_OK(pass(&r, rank, s, m, DN_TRAIN, &j->loss[rank]));
		if (j->other_passes && s == 2) /* within a step */
			CHECK_OK(pass(&r, rank, s, 0, DN_INFER, &dummy));
		if (j->other_passes && s == 1) { /* where a bad loss would be looked into: before the update */
			double again = 0;

			CHECK_OK(pass(&r, rank, s, 1, DN_REPEAT, &again));
			CU_ASSERT(again > 0);
		}
		CHECK_OK(dn_net_update(r.net, &u));
		if (j->other_passes)
			CHECK_OK(pass(&r, rank, s, 0, DN_INFER, &dummy));
	}
	{
		struct dn_param *b = NULL;

		for (int i = 0; i < r.net->n_params; i++)
			if (!strcmp(r.net->params[i]->name, "4.biases"))
				b = r.net->params[i];
		CU_ASSERT_PTR_NOT_NULL_FATAL(b);
		CHECK_OK(r.net->store.ops->read(r.net->store.self, b, DN_VALUE, 0, CLASSES, rank ? NULL : j->value[0]));
	}
	pthread_barrier_wait(&j->line);
	close_rank(&r);
}

static void job_run(struct job *j)
{
	CHECK_OK_FATAL(fsdp_hub_create(&j->hub, j->world));
	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&j->line, NULL, (unsigned)j->world), 0);
	ranks_run(j->world, train, j);
	pthread_barrier_destroy(&j->line);
	fsdp_hub_destroy(j->hub);
}

static float tree(const float *x, int n)
{
	int half = 1;

	if (n == 1)
		return x[0];
	while (half * 2 < n)
		half *= 2;
	return tree(x, half) + tree(x + half, n - half);
}

static struct job jobs[8]; /* large */

static void layers_get_the_sum_over_ranks_bit_for_bit(void)
{
	for (int world = 1; world <= 4; world++) {
		struct job *j = &jobs[0];

		*j = (struct job){ .world = world, .limit = 2, .policy = "each", .other_passes = true };
		job_run(j);
		/* 4 steps of 2 microbatches with 3 sums in forward and 2 in backward, and the 3 of one repeated pass */
		for (int q = 0; q < world; q++) {
			int64_t wrong = 0;

			CHECK_EQ(j->probes[q].n, (4 * 2 * 5 + 3) * WIDTH);
			for (int64_t i = 0; i < j->probes[q].n; i++) {
				float x[RANKS_MAX];

				for (int k = 0; k < world; k++)
					x[k] = j->probes[k].sent[i];
				wrong += j->probes[q].got[i] != tree(x, world);
			}
			CHECK_EQ(wrong, 0);
		}
	}
}

static void blocks_slots_and_other_passes_change_no_bit(void)
{
	static const char *const policies[] = { "each", "whole", "at:0,1,2,3,4", "at:0,2" };

	for (int k = 0; k < 8; k++) {
		jobs[k] = (struct job){ .world = 3, .limit = 1 + k % 3, .policy = policies[k % 4], .other_passes = k & 1 };
		job_run(&jobs[k]);
		CHECK_BITS(jobs[k].value[0], jobs[0].value[0], sizeof(jobs[0].value[0]));
		CHECK_BITS(jobs[k].loss, jobs[0].loss, 3 * sizeof(double));
	}
	CU_ASSERT(jobs[0].value[0][0] != 0);
}

static void undeclared(int rank, void *arg)
{
	struct dn_pass p = { .phase = DN_TRAIN };
	float x[2 * WIDTH] = { 0 };
	struct job *j = arg;
	struct rank_run r;

	for (int k = 0; k < 3; k++) {
		open_rank(j, rank, &r);
		CHECK_OK(r.net->store.ops->begin(r.net->store.self, r.net, 1));
		if (k == 0) {
			CHECK_FAILS(dn_layer_exchange(&r.net->layers[1], true, DN_F32, x, WIDTH), -EPROTO,
				    "layer 1: exchanges 9 elements in backward, which the plan has not foreseen there");
		} else {
			CHECK_OK(r.net->store.hooks->before_forward(r.net->store.self, &r.net->blocks[0], &p));
			CHECK_FAILS(dn_layer_exchange(&r.net->layers[1], false, DN_F64, x, WIDTH), -ENOTSUP, "type f64");
			CHECK_FAILS(
				dn_layer_exchange(&r.net->layers[k == 1 ? 1 : 3], false, DN_F32, x, WIDTH + (k == 1)), -EPROTO,
				k == 1 ? "layer 1: exchanges 10 elements" : "layer 3: exchanges 9 elements in forward, which");
		}
		pthread_barrier_wait(&j->line);
		close_rank(&r);
		pthread_barrier_wait(&j->line);
		if (rank == 0 && k < 2) {
			fsdp_hub_destroy(j->hub);
			CHECK_OK(fsdp_hub_create(&j->hub, 2));
		}
		pthread_barrier_wait(&j->line);
	}
}

static void two(void (*fn)(int rank, void *arg))
{
	struct job *j = &jobs[0];

	*j = (struct job){ .world = 2, .limit = 2, .policy = "whole" };
	CHECK_OK_FATAL(fsdp_hub_create(&j->hub, 2));
	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&j->line, NULL, 2), 0);
	ranks_run(2, fn, j);
	pthread_barrier_destroy(&j->line);
	fsdp_hub_destroy(j->hub);
}

static void an_exchange_that_was_not_declared_is_refused(void)
{
	two(undeclared);
}

static void skip(int rank, void *arg)
{
	struct dn_pass p = { .phase = DN_TRAIN };
	struct job *j = arg;
	struct rank_run r;

	open_rank(j, rank, &r);
	CHECK_OK(r.net->store.ops->begin(r.net->store.self, r.net, 1));
	CHECK_OK(r.net->store.hooks->before_forward(r.net->store.self, &r.net->blocks[0], &p));
	CHECK_FAILS(r.net->store.hooks->after_forward(r.net->store.self, &r.net->blocks[0], &p), -EPROTO,
		    "forward ends, but layer 1 has not exchanged its 9 elements");
	pthread_barrier_wait(&j->line);
	close_rank(&r);
}

static void an_exchange_that_does_not_come_is_missed(void)
{
	two(skip);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(every_wait_of_an_exchange_is_needed_and_proven), CASE(an_exchange_cuts_the_block_where_it_stands),
	CASE(without_ranks_or_layers_that_ask_there_is_none), CASE(layers_get_the_sum_over_ranks_bit_for_bit),
	CASE(blocks_slots_and_other_passes_change_no_bit),    CASE(an_exchange_that_was_not_declared_is_refused),
	CASE(an_exchange_that_does_not_come_is_missed),	      { NULL, NULL }
};

int main(void)
{
	return check_run("fsdp/exchange", cases);
}
