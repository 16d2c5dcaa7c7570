/* Ranks in a grid: several copies of the values, each split over some of the ranks. In this version for passes without gradients:
 * every copy gathers within its own ranks, reads come from the first, writes reach all, and one rank saves each element.
 */
#include <errno.h>
#include <unistd.h>
#include "plan_nets.h"
#include "ranks.h"
#include "run/shard_store.h"

#define INPUTS 10
#define OUTPUTS 6
#define BATCH 4
#define VALUES 1024

static const char cfg[] =
	"[net]\nbatch=4\ninputs=10\n[connected]\noutput=13\nbatch_normalize=1\nactivation=leaky\n[block]\nname=mid\n"
	"[connected]\noutput=7\nactivation=tanh\n[block]\nname=tail\n[connected]\noutput=6\nactivation=linear\n";

struct job {
	struct fsdp_hub *hub;
	int world, shards;
	const char *dir; /* NULL: nothing is saved */
	pthread_barrier_t line;
	float values[VALUES];		       /* of all params, as read on rank 0 */
	float out[RANKS_MAX][BATCH * OUTPUTS]; /* of the same images on every rank */
};

struct rank_run {
	struct dn_cfg *cfg;
	struct dn_device *dev;
	struct dn_net *net;
	struct fsdp_mesh *mesh;
	struct fsdp_plan *plan;
};

/* @shards 0: the whole net in the whole store */
static void open_rank(struct rank_run *r, struct fsdp_hub *hub, int rank, int world, int shards)
{
	const struct dn_net_options opt = { .rank = rank, .world = world, .seed = 9, .local_batch = BATCH };
	struct fsdp_options o = plan_defaults();

	memset(r, 0, sizeof(*r));
	CHECK_OK_FATAL(dn_cfg_parse(&r->cfg, cfg, strlen(cfg), "test.cfg", true));
	CHECK_OK_FATAL(dn_backend_find(check_backend("ref"))->open(DN_CPU(1), &r->dev));
	CHECK_OK_FATAL(dn_net_build(&r->net, r->cfg, r->dev, &opt));
	if (shards) {
		o.shards = shards;
		r->dev->be->set_timeout(r->dev, 20000);
		CHECK_OK_FATAL(fsdp_mesh_create_local(&r->mesh, hub, rank, shards, 20000));
		CHECK_OK_FATAL(fsdp_plan_build(&r->plan, r->net, &o, world));
		CHECK_OK_FATAL(fsdp_store_attach(r->net, r->mesh, r->plan));
	} else {
		CHECK_OK_FATAL(dn_whole_attach(r->net));
	}
	CHECK_OK_FATAL(dn_net_alloc(r->net));
	CHECK_OK_FATAL(r->net->store.ops->alloc(r->net->store.self, r->net));
	CHECK_OK_FATAL(dn_net_init_values(r->net));
}

static void close_rank(struct rank_run *r)
{
	dn_net_destroy(r->net);
	fsdp_mesh_destroy(r->mesh);
	fsdp_plan_destroy(r->plan);
	r->dev->be->close(r->dev);
	dn_cfg_destroy(r->cfg);
}

static void pass(struct rank_run *r, float *out)
{
	const struct dn_backend *be = r->dev->be;
	struct dn_pass p = { .phase = DN_INFER };
	float *x, *y;

	CHECK_OK_FATAL(be->alloc_host(r->dev, DN_MEM_HOST, BATCH * INPUTS * sizeof(float), (void **)&x));
	CHECK_OK_FATAL(be->alloc_host(r->dev, DN_MEM_HOST, BATCH * OUTPUTS * sizeof(float), (void **)&y));
	for (int i = 0; i < BATCH * INPUTS; i++)
		x[i] = noise(77, (uint64_t)i);
	p.input = x;
	CHECK_OK(dn_net_forward(r->net, &p));
	CHECK_OK(dn_layer_read(&r->net->layers[r->net->output_layer], 0, BATCH, y));
	memcpy(out, y, BATCH * OUTPUTS * sizeof(float));
	be->free_host(r->dev, x);
	be->free_host(r->dev, y);
}

static void write_all(struct rank_run *r, int rank)
{
	float x[VALUES];

	for (int i = 0; i < r->net->n_params; i++) {
		struct dn_param *p = r->net->params[i];

		for (int64_t k = 0; k < p->n; k++)
			x[k] = p->role == DN_BUFFER ? 1 + noise((uint64_t)i, (uint64_t)k) / 2 : noise((uint64_t)i, (uint64_t)k);
		CHECK_OK(r->net->store.ops->write(r->net->store.self, p, DN_VALUE, 0, p->n, rank ? NULL : x));
	}
}

static int64_t read_all(struct rank_run *r, int rank, float *out)
{
	int64_t at = 0;

	for (int i = 0; i < r->net->n_params; i++) {
		const struct dn_param *p = r->net->params[i];

		CU_ASSERT_FATAL(at + p->n <= VALUES);
		CHECK_OK(r->net->store.ops->read(r->net->store.self, p, DN_VALUE, 0, p->n, rank ? NULL : out + at));
		at += p->n;
	}
	return at;
}

static void run(int rank, void *arg)
{
	const struct dn_ckpt_state state = { .step = 1, .batch = BATCH, .subdivisions = 1, .data_list = "list" };
	struct job *j = arg;
	struct rank_run r;
	struct dn_group g;

	open_rank(&r, j->hub, rank, j->world, j->shards);
	CHECK_EQ(r.mesh->shard_rank, rank % j->shards);
	CHECK_EQ(r.mesh->replica_rank, rank / j->shards);
	write_all(&r, rank);
	pass(&r, j->out[rank]);
	read_all(&r, rank, j->values);
	if (j->dir) {
		fsdp_mesh_group(r.mesh, &g);
		CHECK_OK(dn_ckpt_save(r.net, j->dir, &state, 3, &g, NULL));
	}
	pthread_barrier_wait(&j->line);
	close_rank(&r);
}

static void job_run(struct job *j)
{
	CHECK_OK_FATAL(fsdp_hub_create(&j->hub, j->world));
	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&j->line, NULL, (unsigned)j->world), 0);
	ranks_run(j->world, run, j);
	pthread_barrier_destroy(&j->line);
	fsdp_hub_destroy(j->hub);
}

static const int grids[][2] = { { 1, 1 }, { 2, 2 }, { 2, 1 }, { 4, 4 }, { 4, 2 }, { 4, 1 } };

static void every_copy_computes_the_outputs_of_one_process(void)
{
	struct rank_run whole;
	float want[BATCH * OUTPUTS], values[VALUES];
	int64_t n;

	open_rank(&whole, NULL, 0, 1, 0);
	write_all(&whole, 0);
	n = read_all(&whole, 0, values);
	pass(&whole, want);
	for (int g = 0; g < 6; g++) {
		static struct job j;

		j = (struct job){ .world = grids[g][0], .shards = grids[g][1] };
		job_run(&j);
		for (int q = 0; q < j.world; q++)
			CHECK_BITS(j.out[q], want, sizeof(want));
		CHECK_BITS(j.values, values, (size_t)n * sizeof(float));
	}
	close_rank(&whole);
}

static char tmp[] = "/tmp/test_grid.XXXXXX";

static bool exists(const char *dir, const char *file)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/1/%s", dir, file);
	return access(path, F_OK) == 0;
}

static void a_checkpoint_holds_every_element_once(void)
{
	for (int g = 0; g < 6; g++) {
		static struct job j;
		struct rank_run whole;
		struct dn_ckpt *c = NULL;
		char dir[128], want[64];
		float values[VALUES];
		char *text = NULL;
		size_t n;

		snprintf(dir, sizeof(dir), "%s/grid%d", tmp, g);
		j = (struct job){ .world = grids[g][0], .shards = grids[g][1], .dir = dir };
		job_run(&j);
		CHECK_OK_FATAL(dn_ckpt_open(&c, dir));
		for (int i = 0; i < dn_ckpt_n_tensors(c); i++)
			CHECK_OK(dn_ckpt_cover(c, dn_ckpt_tensor_at(c, i)));
		open_rank(&whole, NULL, 0, 1, 0);
		CHECK_OK(dn_ckpt_load(c, whole.net));
		n = (size_t)read_all(&whole, 0, values);
		CHECK_BITS(values, j.values, n * sizeof(float));
		close_rank(&whole);
		dn_ckpt_close(c);
		/* of each shard one file; the copies have written none */
		for (int q = 0; q < j.world; q++) {
			char file[32];

			snprintf(file, sizeof(file), "rank-%d.bin", q);
			CU_ASSERT(exists(dir, file) == (q < j.shards));
		}
		snprintf(want, sizeof(want), "\"mesh\":{\"replicas\":%d,\"shards\":%d}", j.world / j.shards, j.shards);
		snprintf(dir + strlen(dir), sizeof(dir) - strlen(dir), "/1/meta.json");
		CHECK_OK_FATAL(dn_file_read(dir, 1 << 20, &text, &n));
		CU_ASSERT_PTR_NOT_NULL(strstr(text, want));
		dn_free(text);
	}
}

static void plan_and_ranks_must_agree(void)
{
	struct fsdp_options o = plan_defaults();
	struct fsdp_hub *hub;
	struct planned p;
	struct fsdp_mesh *m = NULL;

	CHECK_OK_FATAL(fsdp_hub_create(&hub, 4));
	CHECK_FAILS(fsdp_mesh_create_local(&m, hub, 0, 3, 1000), -EINVAL, "3 shards do not divide a world of 4 ranks");
	CHECK_OK_FATAL(fsdp_mesh_create_local(&m, hub, 0, 2, 1000));
	CHECK_OK_FATAL(planned_net(&p, cfg, 4, false, 1));
	o.shards = 4;
	CHECK_OK_FATAL(fsdp_plan_build(&p.plan, p.net, &o, 4));
	CHECK_OK_FATAL(fsdp_store_attach(p.net, m, p.plan));
	CHECK_OK_FATAL(dn_net_alloc(p.net));
	CHECK_FAILS(p.net->store.ops->alloc(p.net->store.self, p.net), -EINVAL,
		    "of 4 ranks and 4 shards, the ranks have come as 4 with 2");
	dn_net_destroy(p.net);
	p.net = NULL;
	fsdp_mesh_destroy(m);
	planned_fini(&p);
	fsdp_hub_destroy(hub);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = { CASE(every_copy_computes_the_outputs_of_one_process),
					   CASE(a_checkpoint_holds_every_element_once),
					   CASE(plan_and_ranks_must_agree),
					   { NULL, NULL } };

int main(void)
{
	int status;

	if (!mkdtemp(tmp))
		return 2;
	status = check_run("fsdp/grid", cases);
	return dn_remove_tree(tmp) ? 1 : status;
}
