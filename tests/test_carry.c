/* What a layer remembers beyond the pass: who finds what, checkpoints at any number of ranks, memory. */
#include <unistd.h>
#include "base/file.h"
#include "crew.h"
#include "graph/graph_priv.h"
#include "io/ckpt.h"
#include "net_help.h"

static char dir[] = "/tmp/carryXXXXXX";
static const struct dn_group alone = DN_GROUP_ALONE;

/* Layer 1 remembers: y = x + h, h' = y / 2, where h is a row of 3 for each image. */
static const char cfg[] = "[net]\nbatch=8\nsubdivisions=2\ninputs=3\nlearning_rate=.01\nmax_batches=9\n"
			  "[connected]\noutput=3\nactivation=linear\n[activation]\nactivation=linear\n[softmax]\n";
#define ROW 3
#define LAYER 1

static struct dn_carry *carry_of(const struct dn_layer *l)
{
	return l->net->carries[0];
}

static int remember(struct dn_layer *l, const struct dn_pass *pass)
{
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	const int64_t n = l->local_batch * l->outputs;
	int err = be->copy(st, l->output, dn_layer_x(l, pass, 0), sizeof(float) * (size_t)n);

	if (!err)
		err = be->axpby(st, DN_F32, n, 1, dn_carry_found(carry_of(l), pass), 1, l->output);
	return err ? err : be->axpby(st, DN_F32, n, .5f, l->output, 0, dn_carry_left(carry_of(l), pass));
}

static int remember_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);

	return l->net->dev->be->axpby(l->net->compute, DN_F32, l->local_batch * l->outputs, 1, l->delta, acc ? 1 : 0, dx);
}

static const struct dn_layer_ops remembering = { .name = "remembering", .forward = remember, .backward = remember_backward };

static int open_net(struct net_help *t, const char *text, int rank, int world, bool train)
{
	static const int keep[] = { 0, LAYER };
	const struct dn_net_options o = {
		.rank = rank, .world = world, .train = train, .seed = 7, .n_keep = train ? 0 : 2, .keep = keep
	};
	struct dn_carry *c;
	int err = net_help_build(t, "ref", text, &o);

	if (err)
		return err;
	t->net->layers[LAYER].ops = &remembering;
	err = dn_layer_carry(&t->net->layers[LAYER], "h", 2, (int64_t[]){ t->net->local_batch, ROW }, &c);
	return err ? err : net_help_ready(t, true);
}

/* the input of image @slot of update @step */
static void fill(struct net_help *t, int64_t step, int64_t m)
{
	struct dn_net *net = t->net;

	CHECK_OK(dn_net_input_wait(net));
	for (int64_t i = 0; i < net->local_batch; i++)
		for (int64_t k = 0; k < net->inputs; k++) {
			uint64_t slot = (uint64_t)(m * net->microbatch + net->opt.rank * net->local_batch + i);

			t->input[i * net->inputs + k] = (float)dn_rng_uniform(3, (uint64_t)step * 64 + slot, (uint64_t)k);
		}
	pass_of(net)->micro = m;
}

static int forward(struct net_help *t, int64_t step, int64_t m, enum dn_phase phase)
{
	fill(t, step, m);
	pass_of(t->net)->phase = phase;
	return dn_net_forward(t->net, pass_of(t->net));
}

static int update(struct net_help *t, int64_t step, double rate)
{
	const struct dn_update u = { .optimizer = DN_SGD, .step = step, .images = 8, .rate = rate, .beta1 = .9, .beta2 = .999 };
	int err = t->net->store.ops->begin(t->net->store.self, t->net, step);

	for (int64_t m = 0; m < t->net->subdivisions && !err; m++) {
		err = forward(t, step, m, DN_TRAIN);
		if (!err)
			err = dn_net_backward(t->net, pass_of(t->net));
	}
	return err ? err : dn_net_update(t->net, &u);
}

static void outputs_of(const struct net_help *t, int layer, float *out)
{
	const struct dn_layer *l = &t->net->layers[layer];
	float *x = pinned(t, t->net->local_batch * l->outputs);

	CHECK_OK(dn_layer_read(l, 0, t->net->local_batch, x));
	memcpy(out, x, sizeof(*x) * (size_t)(t->net->local_batch * l->outputs));
}

/* all rows of the update that this rank has, at their places in the whole */
static void rows_of(const struct net_help *t, float *whole)
{
	const struct dn_carry *c = t->net->carries[0];
	float *x = pinned(t, c->rows * c->row);

	for (int64_t m = 0; m < t->net->subdivisions; m++) {
		int64_t at, n;

		dn_carry_interval(t->net, c, m, &at, &n);
		CHECK_OK(dn_carry_get(t->net, c, m, x));
		memcpy(whole + at, x, sizeof(*x) * (size_t)n);
	}
}

static void updates_find_what_the_one_before_left(void)
{
	float first[12], x[12], y[12], h[24], want;
	struct net_help t;

	CHECK_OK_FATAL(open_net(&t, cfg, 0, 1, true));
	CHECK_EQ(t.net->carries[0]->n, 24);
	CHECK_EQ(t.net->carries[0]->shape[0], 8);
	CHECK_STR(t.net->carries[0]->name, "1.h");
	rows_of(&t, h);
	for (int i = 0; i < 24; i++)
		CU_ASSERT(h[i] == 0);
	CHECK_OK(forward(&t, 1, 0, DN_TRAIN));
	outputs_of(&t, 2, first);
	/* repeated, before and after another microbatch, after passes without training: the same bits */
	CHECK_OK(forward(&t, 1, 1, DN_TRAIN));
	CHECK_OK(forward(&t, 1, 0, DN_REPEAT));
	outputs_of(&t, 2, y);
	CHECK_BITS(y, first, sizeof(y));
	for (int i = 0; i < 3; i++)
		CHECK_OK(forward(&t, 1, 0, DN_INFER));
	CHECK_OK(forward(&t, 1, 0, DN_TRAIN));
	outputs_of(&t, 2, y);
	CHECK_BITS(y, first, sizeof(y));
	/* the update makes it what the next one finds */
	CHECK_OK(forward(&t, 1, 1, DN_TRAIN));
	outputs_of(&t, LAYER, x);
	CHECK_OK(update(&t, 1, 0));
	rows_of(&t, h);
	for (int i = 0; i < 12; i++)
		CU_ASSERT(h[12 + i] == x[i] / 2);
	want = h[12];
	CHECK_OK(forward(&t, 1, 1, DN_TRAIN));
	outputs_of(&t, 0, x);
	outputs_of(&t, LAYER, y);
	CU_ASSERT(y[0] == x[0] + want);
	CHECK_OK(dn_net_forget(t.net, DN_TRAIN));
	CHECK_OK(forward(&t, 1, 0, DN_TRAIN));
	outputs_of(&t, 2, y);
	CHECK_BITS(y, first, sizeof(y));
	net_help_close(&t);
}

static void passes_without_training_follow_one_another(void)
{
	for (int train = 0; train < 2; train++) {
		struct net_help t;
		float x[12], y[12], last = 0;

		CHECK_OK_FATAL(open_net(&t, cfg, 0, 1, train));
		for (int k = 0; k < 4; k++) {
			if (k == 3)
				CHECK_OK(dn_net_forget(t.net, DN_INFER));
			CHECK_OK(forward(&t, 1, 0, DN_INFER));
			outputs_of(&t, 0, x);
			outputs_of(&t, LAYER, y);
			CU_ASSERT(y[0] == x[0] + (k == 3 ? 0 : last / 2));
			last = y[0];
		}
		if (!train)
			CHECK_FAILS(dn_carry_get(t.net, t.net->carries[0], 0, &last), -EINVAL, "1.h: microbatch 0 of 0");
		net_help_close(&t);
	}
}

/* --- checkpoints --- */

struct job { /* a rank: @steps updates from a checkpoint or from the start, then a checkpoint */
	struct crew_member me;
	const char *text, *from, *to;
	int first, steps;
	float whole[24]; /* its rows */
	int err;
	char message[512], warnings[512];
};

static void *job_main(void *arg)
{
	struct job *j = arg;
	const struct dn_group g = crew_group(&j->me);
	struct dn_ckpt_state s = { .step = j->first + j->steps, .seed = 7, .batch = 8, .subdivisions = 2, .data_length = 1 };
	struct dn_ckpt *c = NULL;
	struct net_help t;

	j->err = open_net(&t, j->text, j->me.rank, j->me.crew->world, true);
	if (!j->err && j->from) {
		j->err = dn_ckpt_open(&c, j->from);
		if (!j->err)
			j->err = dn_ckpt_load(c, t.net);
		dn_ckpt_close(c);
	}
	j->err = dn_group_agree(&g, j->err, "loading");
	/* the whole store does not sum over ranks: with a rate of 0 values stay equal on all */
	for (int k = 1; k <= j->steps && !j->err; k++)
		j->err = update(&t, j->first + k, 0);
	if (!j->err && j->to)
		j->err = dn_ckpt_save(t.net, j->to, &s, 3, &g, NULL);
	snprintf(j->message, sizeof(j->message), "%s", dn_message());
	if (!j->err)
		rows_of(&t, j->whole);
	snprintf(j->warnings, sizeof(j->warnings), "%.500s", t.warnings);
	net_help_close(&t);
	return NULL;
}

static const char *in_dir(const char *name)
{
	static char path[8][128];
	static int at;
	char *out = path[at++ % 8];

	snprintf(out, sizeof(path[0]), "%s/%s", dir, name);
	return out;
}

static int run(int world, const char *text, const char *from, int first, int steps, const char *to, float *whole)
{
	struct job jobs[CREW_MAX];
	int err = 0;

	memset(jobs, 0, sizeof(jobs));
	for (int r = 0; r < world; r++) {
		jobs[r].text = text;
		jobs[r].from = from ? in_dir(from) : NULL;
		jobs[r].to = to ? in_dir(to) : NULL;
		jobs[r].first = first;
		jobs[r].steps = steps;
	}
	crew_run(world, job_main, jobs, sizeof(jobs[0]));
	for (int i = 0; i < 24; i++)
		for (int r = 0; r < world; r++)
			whole[i] = r ? whole[i] + jobs[r].whole[i] : jobs[r].whole[i]; /* the others have zeros there */
	for (int r = 0; r < world; r++)
		if (jobs[r].err && !err)
			err = dn_fail(jobs[r].err, "%s", jobs[r].message);
	return err;
}

static void checkpoints_hold_it_for_any_number_of_ranks(void)
{
	static const int worlds[] = { 1, 2, 4 };
	float straight[24], mid[24], got[24];
	struct dn_ckpt *c;

	CHECK_OK(run(1, cfg, NULL, 0, 5, NULL, straight));
	for (int a = 0; a < 3; a++) {
		char name[16];

		snprintf(name, sizeof(name), "from%d", worlds[a]);
		CHECK_OK(run(worlds[a], cfg, NULL, 0, 3, name, mid));
		CHECK_OK_FATAL(dn_ckpt_open(&c, in_dir(name)));
		CU_ASSERT_PTR_NOT_NULL_FATAL(dn_ckpt_find(c, "1.h"));
		CHECK_EQ(dn_ckpt_find(c, "1.h")->kind, DN_CKPT_CARRY);
		CHECK_STR(dn_ckpt_kind_name(DN_CKPT_CARRY), "carry");
		CHECK_EQ(dn_ckpt_find(c, "1.h")->shape[0], 8);
		CHECK_EQ(dn_ckpt_find(c, "1.h")->n_intervals, 2 * worlds[a]);
		CHECK_OK(dn_ckpt_read(c, "1.h", 0, 24, got));
		CHECK_BITS(got, mid, sizeof(got));
		dn_ckpt_close(c);
		for (int b = 0; b < 3; b++) {
			CHECK_OK(run(worlds[b], cfg, name, 3, 0, NULL, got));
			CHECK_BITS(got, mid, sizeof(got));
			CHECK_OK(run(worlds[b], cfg, name, 3, 2, NULL, got));
			CHECK_BITS(got, straight, sizeof(got));
		}
	}
}

static void other_subdivisions_are_cut_anew(void)
{
	static const char four[] = "[net]\nbatch=8\nsubdivisions=4\ninputs=3\nlearning_rate=.01\nmax_batches=9\n"
				   "[connected]\noutput=3\nactivation=linear\n[activation]\nactivation=linear\n[softmax]\n";
	float mid[24], got[24];

	CHECK_OK(run(1, cfg, NULL, 0, 3, "two", mid));
	CHECK_OK(run(2, four, "two", 3, 0, NULL, got));
	CHECK_BITS(got, mid, sizeof(got));
}

static void what_is_not_the_nets_is_refused(void)
{
	static const char wide[] = "[net]\nbatch=8\nsubdivisions=2\ninputs=3\nlearning_rate=.01\nmax_batches=9\n"
				   "[connected]\noutput=3\nactivation=linear\n[activation]\nactivation=linear\n[softmax]\n";
	struct net_help t;
	struct dn_carry *c;
	struct dn_ckpt *ckpt;
	struct dn_ckpt_state s = { .step = 1, .batch = 8, .subdivisions = 2, .data_length = 1 };
	float mid[24];

	CHECK_OK(run(1, cfg, NULL, 0, 1, "one", mid));
	CHECK_OK_FATAL(dn_ckpt_open(&ckpt, in_dir("one")));
	/* a net that remembers nothing, and one that remembers more */
	CHECK_OK_FATAL(net_help_build(&t, "ref", wide, NULL));
	CHECK_OK_FATAL(net_help_ready(&t, true));
	CHECK_FAILS(dn_ckpt_load(ckpt, t.net), -EINVAL, "another net: it has a tensor 1.h");
	CHECK_OK(dn_ckpt_save(t.net, in_dir("none"), &s, 3, &alone, NULL));
	net_help_close(&t);
	CHECK_OK_FATAL(net_help_build(&t, "ref", wide, NULL));
	CHECK_OK(dn_layer_carry(&t.net->layers[LAYER], "h", 2, (int64_t[]){ t.net->local_batch, 4 }, &c));
	CHECK_OK_FATAL(net_help_ready(&t, true));
	CHECK_FAILS(dn_ckpt_load(ckpt, t.net), -EINVAL, "carry 1.h is 8x3 there, 8x4 in this net");
	net_help_close(&t);
	dn_ckpt_close(ckpt);
	CHECK_OK_FATAL(dn_ckpt_open(&ckpt, in_dir("none")));
	CHECK_OK_FATAL(open_net(&t, cfg, 0, 1, true));
	CHECK_FAILS(dn_ckpt_load(ckpt, t.net), -EINVAL, "it has no carry 1.h");
	net_help_close(&t);
	dn_ckpt_close(ckpt);
	/* another batch, which only a forced run has: zeros, and a word */
	CHECK_OK_FATAL(dn_ckpt_open(&ckpt, in_dir("one")));
	CHECK_OK_FATAL(open_net(&t,
				"[net]\nbatch=4\ninputs=3\n[connected]\noutput=3\nactivation=linear\n"
				"[activation]\nactivation=linear\n[softmax]\n",
				0, 1, true));
	CHECK_OK(dn_ckpt_load(ckpt, t.net));
	CU_ASSERT_PTR_NOT_NULL(strstr(t.warnings, "carry 1.h is of 8 rows, this run has 4: all start at zero"));
	rows_of(&t, mid);
	for (int i = 0; i < 12; i++)
		CU_ASSERT(mid[i] == 0);
	net_help_close(&t);
	dn_ckpt_close(ckpt);
}

static void memory_is_planned(void)
{
	size_t planned[DN_MEM_PLANNED], before[DN_MEM_PLANNED];
	struct dn_mem_stats m, n;
	struct net_help t;

	CHECK_OK_FATAL(net_help_build(&t, "ref", cfg, NULL));
	CHECK_OK(dn_whole_bytes(t.net, before));
	net_help_close(&t);
	dn_mem_stats(DN_MEM_BUFFERS, &m);
	CHECK_OK_FATAL(open_net(&t, cfg, 0, 1, true));
	dn_mem_stats(DN_MEM_BUFFERS, &n);
	CHECK_OK(dn_whole_bytes(t.net, planned));
	/* twice two microbatches of 4 rows, twice 4 rows for other passes, each rounded up to 64 bytes */
	CHECK_EQ(t.net->carries_bytes, 2 * (128 + 64));
	CHECK_EQ(planned[DN_MEM_BUFFERS], before[DN_MEM_BUFFERS] + t.net->carries_bytes);
	CHECK_EQ(n.now_bytes - m.now_bytes, planned[DN_MEM_BUFFERS]);
	net_help_close(&t);
}

static void bad_shapes_are_refused(void)
{
	struct net_help t;
	struct dn_carry *c;

	CHECK_OK_FATAL(net_help_build(&t, "ref", cfg, NULL));
	CHECK_FAILS(dn_layer_carry(&t.net->layers[LAYER], "h", 2, (int64_t[]){ t.net->local_batch, 0 }, &c), -EOVERFLOW,
		    "layer 1: h");
	CHECK_FAILS(dn_layer_carry(&t.net->layers[LAYER], "h", 2, (int64_t[]){ (int64_t)1 << 30, (int64_t)1 << 30 }, &c),
		    -EOVERFLOW, "layer 1: h are more than 2^40");
	CHECK_FAILS(dn_layer_carry(&t.net->layers[LAYER], "h", 5, (int64_t[]){ 1, 1, 1, 1, 1 }, &c), -EINVAL, "5 dimensions");
	CHECK_EQ(t.net->n_carries, 0);
	net_help_close(&t);
}

/* a layer that is set up once more, at another size, remembers the same, or the size is refused */
static void other_sizes_remember_the_same(void)
{
	struct net_help t;
	struct net_priv *priv;
	struct dn_carry *c, *again = NULL;
	struct dn_layer *l;

	CHECK_OK_FATAL(net_help_build(&t, "ref", cfg, NULL));
	priv = t.net->priv;
	l = &t.net->layers[LAYER];
	CHECK_OK(dn_layer_carry(l, "h", 2, (int64_t[]){ t.net->local_batch, ROW }, &c));
	priv->again = true;
	CHECK_OK(dn_layer_carry(l, "h", 2, (int64_t[]){ t.net->local_batch, ROW }, &again));
	CU_ASSERT_PTR_EQUAL(again, c);
	priv->next_carry = 0;
	CHECK_FAILS(dn_layer_carry(l, "h", 2, (int64_t[]){ t.net->local_batch, 2 * ROW }, &again), -EINVAL,
		    "layer 1: what it remembers as h depends on the size of the input");
	priv->again = false;
	CHECK_EQ(t.net->n_carries, 1);
	net_help_close(&t);
}

static const struct check_case cases[] = {
	{ "updates_find_what_the_one_before_left", updates_find_what_the_one_before_left },
	{ "passes_without_training_follow_one_another", passes_without_training_follow_one_another },
	{ "checkpoints_hold_it_for_any_number_of_ranks", checkpoints_hold_it_for_any_number_of_ranks },
	{ "other_subdivisions_are_cut_anew", other_subdivisions_are_cut_anew },
	{ "what_is_not_the_nets_is_refused", what_is_not_the_nets_is_refused },
	{ "memory_is_planned", memory_is_planned },
	{ "bad_shapes_are_refused", bad_shapes_are_refused },
	{ "other_sizes_remember_the_same", other_sizes_remember_the_same },
	{ NULL, NULL },
};

int main(void)
{
	int status;

	if (!mkdtemp(dir))
		return 1;
	status = check_run("carry", cases);
	(void)dn_remove_tree(dir);
	return status;
}
