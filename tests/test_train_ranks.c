/* train: several ranks, one thread each. */
#include <errno.h>

#include "crew.h"
#include "io/ckpt.h"
#include "io/weights.h"
#include "train_help.h"

#define RANKS 3

struct member {
	struct crew_member me;
	struct run r;
	int err;
	char message[512];
	struct seen seen;
	struct dn_result result;
	const char *folder, *cfg;
	bool poisoned;
	const struct dn_store_ops *local;
	void *local_self;
	float values[64];
};

/* the whole store knows no other rank: here all of them take rank 0's values */
static int crew_write(void *self, struct dn_param *p, enum dn_part part, int64_t at, int64_t n, const float *in)
{
	struct member *m = self;
	int err;

	m->me.crew->mine[m->me.rank] = in;
	pthread_barrier_wait(&m->me.crew->all);
	err = m->local->write(m->local_self, p, part, at, n, m->me.crew->mine[0]);
	pthread_barrier_wait(&m->me.crew->all);
	return err;
}

static int load_from_rank0(struct member *m, const struct dn_group *g)
{
	struct dn_net *net = m->r.t.net;
	struct dn_store whole = net->store;
	const struct dn_store_ops ops = { .write = crew_write };
	struct dn_weights_info in;
	int err;

	m->local = whole.ops;
	m->local_self = whole.self;
	net->store.ops = &ops;
	net->store.self = m;
	err = dn_weights_load_rank0(net, m->me.rank ? "nowhere" : path_of("crew/crew.weights"), false, g, &in);
	net->store = whole;
	values_of(net, m->values);
	return err ? err : in.header.seen == 48 && in.n_layers_loaded == 3 ? 0 : -EILSEQ;
}

static void *member_main(void *arg)
{
	struct member *m = arg;
	const struct dn_group g = crew_group(&m->me);
	struct dn_net_options o = { .rank = m->me.rank, .world = RANKS, .train = true, .seed = 7 };
	const struct dn_eval_options o2 = { .top = 2, .fn = m->me.rank ? NULL : see, .arg = &m->seen };
	struct run *r = &m->r;
	struct dn_dataset *valid = &r->valid.ds;

	make_data(&r->train, 30);
	make_data(&r->valid, 13);
	r->train.poisoned = m->poisoned;
	r->c = (struct dn_loop_config){
		.backup = m->folder,
		.base = "crew",
		.keep = 3,
		.top = 2,
		.seed = 3,
		.loader_threads = 1,
		.save_every = 2,
		.valid_every = 2,
		.shuffle = DN_SHUFFLE_OFF,
		.events = { on_step, on_saved, on_valid, &r->e },
		.log_path = path_of("crew.log"),
	};
	m->err = net_help_build(&r->t, "ref", m->cfg, &o);
	if (!m->err)
		m->err = net_help_ready(&r->t, true);
	if (!m->err)
		m->err = dn_evaluate(r->t.net, valid, &o2, &g, &m->result);
	if (!m->err)
		m->err = dn_loop_create(&r->l, r->t.net, &r->train.ds, valid, &g, &r->c);
	if (!m->err)
		m->err = dn_loop_run(r->l);
	if (!m->err)
		m->err = load_from_rank0(m, &g);
	if (!m->err) {
		dn_loop_set_seen(r->l, 0);
		m->err = dn_loop_resume(r->l, path_of("crew/crew.ckpt"));
	}
	snprintf(m->message, sizeof(m->message), "%s", dn_message());
	return NULL;
}

static void run_crew(struct member *m, const char *folder, int poisoned)
{
	memset(m, 0, RANKS * sizeof(*m));
	for (int r = 0; r < RANKS; r++) {
		m[r].folder = folder;
		m[r].cfg = HEAD(12, 2, 4) BLOCKS;
		m[r].poisoned = r == poisoned;
	}
	crew_run(RANKS, member_main, m, sizeof(*m));
}

static void ranks_share_evaluation_files_and_log(void)
{
	static struct member m[RANKS];
	char folder[300];
	struct dn_ckpt *c;
	cJSON *all, *end;

	snprintf(folder, sizeof(folder), "%s/crew", dir);
	CHECK_OK_FATAL(dn_remove_tree(folder));
	run_crew(m, folder, -1);
	for (int r = 0; r < RANKS; r++) {
		if (m[r].err)
			fprintf(stderr, "rank %d: %s\n", r, m[r].message);
		CHECK_EQ(m[r].err, 0);
		CHECK_EQ(m[r].result.images, 13);
		CU_ASSERT(dn_result_field(&m[r].result, "top1") == (double)m[0].seen.top1 / 13);
		CU_ASSERT_DOUBLE_EQUAL(m[r].result.loss, m[0].seen.loss, 1e-5);
		CHECK_EQ(m[r].r.e.steps, 4);
		CHECK_BITS(m[r].values, m[0].values, 53 * sizeof(float));
		CHECK_EQ(m[r].r.e.valids, 2);
		CU_ASSERT_EQUAL(m[r].r.e.last_loss, m[0].r.e.last_loss);
		CHECK_EQ(dn_loop_batch_number(m[r].r.l), 4);
	}
	CHECK_EQ(m[0].seen.n, 13);
	CHECK_EQ(m[0].seen.wrong_order, 0);
	CHECK_EQ(m[1].seen.n, 0);
	/* each of these ranks owns everything: replicas, of which the first writes */
	CHECK_OK_FATAL(dn_ckpt_open(&c, path_of("crew/crew.ckpt")));
	CHECK_EQ(dn_ckpt_world(c), RANKS);
	CU_ASSERT_FALSE(there("crew/crew.ckpt/4/rank-1.bin"));
	dn_ckpt_close(c);
	for (int r = 0; r < RANKS; r++)
		close_run(&m[r].r);
	all = read_log("crew.log");
	end = cJSON_GetArrayItem(all, cJSON_GetArraySize(all) - 1);
	CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItem(end, "ranks")), RANKS);
	CHECK_EQ(number_of(cJSON_GetArrayItem(cJSON_GetObjectItem(end, "ranks"), 2), "rank"), 2);
	cJSON_Delete(all);
}

static void all_ranks_name_the_one_whose_loss_is_bad(void)
{
	static struct member m[RANKS];
	char folder[300];

	snprintf(folder, sizeof(folder), "%s/crew2", dir);
	CHECK_OK_FATAL(dn_remove_tree(folder));
	run_crew(m, folder, 2); /* of 6 images a pass, sample 4 is rank 2's */
	for (int r = 0; r < RANKS; r++) {
		CHECK_EQ(m[r].err, -EDOM);
		CHECK_STR(m[r].message, "rank 2: step 1: block a: loss is nan");
		CU_ASSERT_TRUE(isnan(m[r].r.e.last_loss));
		close_run(&m[r].r);
	}
	CU_ASSERT_FALSE(there("crew2/crew.weights"));
}

static const struct check_case cases[] = {
	{ "ranks_share_evaluation_files_and_log", ranks_share_evaluation_files_and_log },
	{ "all_ranks_name_the_one_whose_loss_is_bad", all_ranks_name_the_one_whose_loss_is_bad },
	{ NULL, NULL },
};

int main(void)
{
	return train_help_run("train_ranks", cases);
}
