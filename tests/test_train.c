/* train: the update rule, the local store, evaluation, and the loop with its files and its log. */
#include <cjson/cJSON.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "data/data.h"
#include "io/ckpt.h"
#include "io/state.h"
#include "io/weights.h"
#include "net_help.h"
#include "train/loop.h"
#include "train/metric.h"
#include "train/optim.h"

static char dir[256]; /* of this process, made by main() */
static const struct dn_group alone = DN_GROUP_ALONE;

static const char *path_of(const char *name)
{
	static _Thread_local char path[64][512];
	static _Thread_local int k;

	k = (k + 1) % 64;
	snprintf(path[k], sizeof(path[k]), "%s/%s", dir, name);
	return path[k];
}

#define HEAD(batch, subdivisions, max) \
	"[net]\nbatch=" #batch "\nsubdivisions=" #subdivisions "\ninputs=6\nlearning_rate=.05\n" \
	"momentum=.9\ndecay=.001\npolicy=constant\nmax_batches=" #max "\n"
#define BODY "[connected]\noutput=5\nactivation=leaky\n[connected]\noutput=3\nactivation=linear\n[softmax]\n"
#define NORM "[connected]\noutput=5\nbatch_normalize=1\nactivation=leaky\n[connected]\noutput=3\nactivation=linear\n[softmax]\n"
#define BLOCKS \
	"[block]\nname=a\n[connected]\noutput=5\nactivation=leaky\n[block]\nname=b\n[connected]\noutput=3\nactivation=linear\n[softmax]\n"

static void open_net(struct net_help *t, const char *cfg)
{
	CHECK_OK_FATAL(net_help_build(t, "ref", cfg, NULL));
	CHECK_OK_FATAL(net_help_ready(t, true));
}

/* --- data made of a rule: class of sample i is i % 3, and the inputs tell it --- */

struct made {
	struct dn_dataset ds;
	int64_t asked; /* by anybody: not locked, for single-threaded tests */
	bool poisoned; /* sample 4 is not finite */
};

static int made_get(const struct dn_dataset *ds, int64_t i, const struct dn_sample_key *key, float *x, float *t, int64_t n_truths,
		    int64_t *cls)
{
	const struct made *m = ds->priv;

	for (int64_t k = 0; k < ds->inputs; k++)
		x[k] = (float)(dn_rng_uniform(11, (uint64_t)i, (uint64_t)k) - .5) + (k == i % 3 ? 1.5f : 0);
	if (m->poisoned && i == 4)
		x[2] = NAN;
	if (t && ds->has_truth && !ds->truths)
		for (int64_t k = 0; k < n_truths; k++)
			t[k] = k == i % 3;
	if (cls)
		*cls = ds->has_truth ? i % 3 : -1;
	return 0;
}

static void make_data(struct made *m, int64_t n)
{
	memset(m, 0, sizeof(*m));
	m->ds = (struct dn_dataset){ .n = n,
				     .c = 6,
				     .h = 1,
				     .w = 1,
				     .inputs = 6,
				     .classes = 3,
				     .has_truth = true,
				     .hash = 42 + (uint64_t)n,
				     .get = made_get,
				     .priv = m };
	snprintf(m->ds.path, sizeof(m->ds.path), "made-%lld", (long long)n);
}

/* --- the update rule --- */

static void sgd_follows_its_formula_in_double(void)
{
	struct net_help t;
	struct dn_param *p;
	struct dn_update u = { .optimizer = DN_SGD, .step = 1, .images = 24, .rate = .03, .momentum = .9, .decay = .005 };
	float w[7], v[7], g[7], want_w[7], want_v[7];
	float *state[1] = { v };

	open_net(&t, HEAD(2, 1, 1) BODY);
	for (int round = 0; round < 2; round++) {
		p = t.net->params[round]; /* biases, then weights: only these decay */
		p->lr_scale = 2;
		CHECK_EQ(p->decay, round);
		for (int i = 0; i < 7; i++) {
			double vv;

			w[i] = (float)(dn_rng_uniform(1, 0, (uint64_t)i) - .5);
			v[i] = (float)(10 * dn_rng_uniform(1, 1, (uint64_t)i) - 5);
			g[i] = (float)(10 * dn_rng_uniform(1, 2, (uint64_t)i) - 5);
			vv = .9 * v[i] + g[i] - (round ? .005 * 24 * w[i] : 0);
			want_v[i] = (float)vv;
			want_w[i] = (float)(w[i] + .03 * 2 / 24 * vv);
		}
		CHECK_OK(dn_optim_range(t.net->compute, p, &u, 7, w, g, state));
		CHECK_CLOSE(v, want_v, 7, 4e-7); /* a handful of float roundings of 6e-8 */
		CHECK_CLOSE(w, want_w, 7, 4e-7);
	}
	CHECK_EQ(dn_state_count(DN_SGD), 1);
	CHECK_STR(dn_state_optimizer(DN_SGD), "sgd");
	CHECK_STR(dn_state_name(DN_SGD, 0), "momentum");
	net_help_close(&t);
}

/* Three steps from zero moments, against the textbook in double; gradients point uphill here. */
static void adam_and_adamw_follow_their_formulas_in_double(void)
{
	static const enum dn_optimizer kinds[] = { DN_ADAM, DN_ADAMW };

	for (int k = 0; k < 2; k++) {
		struct net_help t;
		struct dn_update u = {
			.optimizer = kinds[k], .images = 24, .rate = .03, .decay = .05, .beta1 = .8, .beta2 = .99, .eps = 1e-3
		};

		open_net(&t, HEAD(2, 1, 1) BODY);
		for (int part = 0; part < 2; part++) { /* biases, then weights: only these decay */
			struct dn_param *p = t.net->params[part];
			double want[5], wm[5] = { 0 }, wv[5] = { 0 }, decay = part ? .05 : 0;
			float w[5], m[5] = { 0 }, v[5] = { 0 }, g[5];

			p->lr_scale = 2;
			for (int i = 0; i < 5; i++)
				want[i] = w[i] = (float)(dn_rng_uniform(1, 0, (uint64_t)i) - .5);
			for (int step = 1; step <= 3; step++) {
				u.step = step;
				for (int i = 0; i < 5; i++) {
					double grad;

					g[i] = (float)(10 * dn_rng_uniform(1, (uint64_t)step, (uint64_t)i) - 5);
					grad = -(double)g[i] / 24 + (k ? 0 : decay * want[i]);
					if (k)
						want[i] -= .06 * decay * want[i];
					wm[i] = .8 * wm[i] + .2 * grad;
					wv[i] = .99 * wv[i] + .01 * grad * grad;
					want[i] -=
						.06 * (wm[i] / (1 - pow(.8, step))) / (sqrt(wv[i] / (1 - pow(.99, step))) + 1e-3);
				}
				CHECK_OK(dn_optim_range(t.net->compute, p, &u, 5, w, g, (float *[]){ m, v }));
			}
			for (int i = 0; i < 5; i++)
				CU_ASSERT(fabs(w[i] - want[i]) < 1e-6); /* float roundings of three steps of .06 */
		}
		net_help_close(&t);
	}
	CHECK_EQ(dn_state_count(DN_ADAM), 2);
	CHECK_EQ(dn_state_count(DN_ADAMW), 2);
	CHECK_STR(dn_state_optimizer(DN_ADAMW), "adamw");
	CHECK_STR(dn_state_name(DN_ADAM, 0), "m");
	CHECK_STR(dn_state_name(DN_ADAM, 1), "v");
}

static void elements_get_the_same_bits_in_any_cut(void)
{
	struct net_help t;
	struct dn_update u = { .optimizer = DN_SGD, .step = 1, .images = 8, .rate = .1, .momentum = .9, .decay = .01 };
	float w[2][37], v[2][37], g[37];

	open_net(&t, HEAD(2, 1, 1) BODY);
	for (int i = 0; i < 37; i++) {
		w[0][i] = w[1][i] = (float)dn_rng_normal(2, 0, (uint64_t)i);
		v[0][i] = v[1][i] = (float)dn_rng_normal(2, 1, (uint64_t)i);
		g[i] = (float)dn_rng_normal(2, 2, (uint64_t)i);
	}
	CHECK_OK(dn_optim_range(t.net->compute, t.net->params[1], &u, 37, w[0], g, (float *[]){ v[0] }));
	for (int at = 0, n = 1; at<37; at += n, n = at + 2 * n> 37 ? 37 - at : 2 * n)
		CHECK_OK(dn_optim_range(t.net->compute, t.net->params[1], &u, n, w[1] + at, g + at, (float *[]){ v[1] + at }));
	CHECK_BITS(w[1], w[0], sizeof(w[0]));
	CHECK_BITS(v[1], v[0], sizeof(v[0]));
	net_help_close(&t);
}

/* --- the local store --- */

static void planned_bytes_are_what_is_allocated(void)
{
	static const char *const cfgs[] = {
		HEAD(8, 1, 1) BODY,
		HEAD(8, 2, 1) BODY,
		HEAD(8, 4, 1) BLOCKS,
		HEAD(8, 1, 1) NORM,
		HEAD(8, 2, 1) "[connected]\noutput=5\nstopbackward=1\n[connected]\noutput=3\n[softmax]\n",
	};
	for (size_t i = 0; i < sizeof(cfgs) / sizeof(cfgs[0]); i++) {
		size_t before[DN_MEM_PLANNED], planned[DN_MEM_PLANNED], ring;
		struct dn_store_report r;
		struct dn_mem_stats m;
		struct net_help t;

		for (int k = 0; k < DN_MEM_PLANNED; k++) {
			dn_mem_stats(k, &m);
			before[k] = m.now_bytes;
		}
		open_net(&t, cfgs[i]);
		CHECK_OK(dn_local_bytes(t.net, planned));
		CHECK_OK(dn_loop_input_bytes(t.net, &ring));
		t.net->store.ops->report(t.net->store.self, &r);
		for (int k = 0; k < DN_MEM_PLANNED; k++) {
			dn_mem_stats(k, &m);
			CHECK_EQ(r.planned_bytes[k], planned[k]);
			CHECK_EQ(m.now_bytes - before[k], planned[k] - (k == DN_MEM_ACTIVATIONS ? ring : 0));
		}
		net_help_close(&t);
		for (int k = 0; k < DN_MEM_PLANNED; k++) {
			dn_mem_stats(k, &m);
			CHECK_EQ(m.now_bytes, before[k]);
		}
	}
}

static void tensors_lie_on_boundaries_and_frozen_ones_have_no_gradient(void)
{
	struct net_help t;

	open_net(&t, HEAD(8, 2, 1) "[connected]\noutput=5\nstopbackward=1\n[connected]\noutput=3\n[softmax]\n");
	for (int i = 0; i < t.net->n_params; i++) {
		const struct dn_param *p = t.net->params[i];

		CHECK_EQ((uintptr_t)p->value % DN_ALIGN, 0);
		CHECK_EQ((uintptr_t)p->grad % DN_ALIGN, 0);
		CHECK_EQ(p->grad != NULL, !p->frozen);
	}
	CU_ASSERT_TRUE(t.net->params[0]->frozen);
	net_help_close(&t);
}

/* one update over the 8 images of @m, in microbatches; values out */
static void update_once(const char *cfg, float *values)
{
	struct net_help t;
	struct made m;
	struct dn_update u = { .optimizer = DN_SGD, .step = 1, .images = 8, .rate = .05, .momentum = .9, .decay = .001 };
	float *at = values;

	make_data(&m, 8);
	open_net(&t, cfg);
	CHECK_OK(t.net->store.ops->begin(t.net->store.self, t.net, 1));
	for (int64_t k = 0; k < t.net->subdivisions; k++) {
		for (int64_t i = 0; i < t.net->local; i++)
			CHECK_OK(made_get(&m.ds, k * t.net->local + i, NULL, t.input + 6 * i, t.truth + 3 * i, 3, NULL));
		CHECK_OK(dn_net_forward(t.net));
		CHECK_OK(dn_net_backward(t.net));
	}
	CHECK_OK(t.net->store.ops->step(t.net->store.self, t.net, &u));
	for (int i = 0; i < t.net->n_params; i++) {
		memcpy(at, t.net->params[i]->value, (size_t)t.net->params[i]->n * sizeof(float));
		at += t.net->params[i]->n;
	}
	net_help_close(&t);
}

static void subdivisions_give_the_same_update(void)
{
	float one[64], two[64], four[64], blocks[64];

	update_once(HEAD(8, 1, 1) BODY, one);
	update_once(HEAD(8, 2, 1) BODY, two);
	update_once(HEAD(8, 4, 1) BODY, four);
	update_once(HEAD(8, 4, 1) BLOCKS, blocks);
	/* only the order of at most 8 float additions differs: rounding of a gradient times rate / 8 */
	CHECK_CLOSE(two, one, 53, 2e-7);
	CHECK_CLOSE(four, one, 53, 2e-7);
	CHECK_BITS(blocks, four, 53 * sizeof(float)); /* blocks share the slot and change nothing */
}

static void rolling_statistics_move_by_a_hundredth(void)
{
	struct net_help t;
	struct dn_param *p = NULL;
	float want[5];

	open_net(&t, HEAD(8, 1, 1) NORM);
	CHECK_OK(dn_net_forward(t.net));
	for (int i = 0; i < t.net->n_params; i++)
		if (!strcmp(t.net->params[i]->name, "0.rolling_mean"))
			p = t.net->params[i];
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	for (int i = 0; i < 5; i++) {
		p->value[i] = (float)(i + 1);
		want[i] = (float)(.99 * (i + 1) + .01 * p->stat[i]);
	}
	CHECK_OK(t.net->store.ops->stats(t.net->store.self, t.net));
	CHECK_CLOSE(p->value, want, 5, 2e-7); /* .99f and two roundings */
	net_help_close(&t);
}

static void ranges_are_read_and_written_with_bounds(void)
{
	struct net_help t;
	const struct dn_store_ops *s;
	float x[4] = { 1, 2, 3, 4 }, y[4];
	struct dn_param *p;

	open_net(&t, HEAD(8, 1, 1) BODY);
	s = t.net->store.ops;
	p = t.net->params[1];
	CHECK_OK(s->write(t.net->store.self, p, DN_STATE0, 26, 4, x));
	CHECK_OK(s->read(t.net->store.self, p, DN_STATE0, 26, 4, y));
	CHECK_BITS(y, x, sizeof(x));
	CHECK_FAILS(s->read(t.net->store.self, p, DN_VALUE, 27, 4, y), -EINVAL, p->name);
	CHECK_FAILS(s->read(t.net->store.self, p, DN_VALUE, -1, 1, y), -EINVAL, p->name);
	CHECK_FAILS(s->write(t.net->store.self, p, DN_STATE1, 0, 1, x), -EINVAL, "no part");
	CHECK_FAILS(dn_local_attach(t.net), -EEXIST, "store");
	net_help_close(&t);
}

/* --- evaluation --- */

static void top_k_orders_ties_by_index_and_nan_last(void)
{
	const float x[6] = { 1, NAN, 3, 3, -INFINITY, 2 };
	int64_t k[8];

	dn_top_k(x, 6, 8, k);
	CHECK_EQ(k[0], 2);
	CHECK_EQ(k[1], 3);
	CHECK_EQ(k[2], 5);
	CHECK_EQ(k[3], 0);
	CHECK_EQ(k[4], 4);
	CHECK_EQ(k[5], 1);
	CHECK_EQ(k[6], -1);
	dn_top_k(x, 6, 1, k);
	CHECK_EQ(k[0], 2);
}

struct seen {
	int64_t n;
	int wrong_order;
	int64_t top1, top2;
	double loss;
};

static int see(void *arg, int64_t index, int64_t cls, const float *p, int64_t n)
{
	struct seen *s = arg;
	int better = 0;

	s->wrong_order += index != s->n++;
	if (cls < 0)
		return 0;
	for (int64_t i = 0; i < n; i++)
		better += p[i] > p[cls];
	s->top1 += better == 0;
	s->top2 += better <= 1;
	s->loss += -log((double)p[cls]);
	return 0;
}

static void every_image_is_evaluated_once_in_lists_of_any_length(void)
{
	for (int64_t n = 1; n <= 21; n++) {
		struct seen s = { 0 };
		struct dn_metric m;
		struct net_help t;
		struct made d;

		make_data(&d, n);
		open_net(&t, HEAD(16, 2, 1) BODY); /* 8 images a pass */
		CHECK_OK_FATAL(dn_evaluate(t.net, &d.ds, 2, &alone, see, &s, &m));
		CHECK_EQ(m.images, n);
		CHECK_EQ(s.n, n);
		CHECK_EQ(s.wrong_order, 0);
		CHECK_EQ(m.top1, s.top1);
		CHECK_EQ(m.topk, s.top2);
		CHECK_EQ(m.top, 2);
		CU_ASSERT_DOUBLE_EQUAL(m.loss, s.loss, 1e-6 * (double)n); /* float costs, summed in double */
		net_help_close(&t);
	}
}

static void evaluation_works_without_truth_and_leaves_the_net_as_it_was(void)
{
	struct seen s = { 0 };
	struct dn_metric m;
	struct net_help t;
	struct made d;
	const float *input, *truth;
	float before[64];
	int64_t n = 0;

	make_data(&d, 5);
	d.ds.has_truth = false;
	d.ds.classes = 0;
	open_net(&t, HEAD(8, 1, 1) NORM);
	input = t.net->input;
	truth = t.net->truth;
	t.net->first_image = 77;
	t.net->loss = 5;
	for (int i = 0; i < t.net->n_params; i++)
		if (t.net->params[i]->role == DN_BUFFER) {
			memcpy(before + n, t.net->params[i]->value, (size_t)t.net->params[i]->n * sizeof(float));
			n += t.net->params[i]->n;
		}
	CHECK_OK_FATAL(dn_evaluate(t.net, &d.ds, 5, &alone, see, &s, &m));
	CHECK_EQ(s.n, 5);
	CHECK_EQ(m.top1, 0);
	CHECK_EQ(m.loss == 0, 1);
	CHECK_EQ(m.top, 3);
	CU_ASSERT_PTR_EQUAL(t.net->input, input);
	CU_ASSERT_PTR_EQUAL(t.net->truth, truth);
	CU_ASSERT_TRUE(t.net->training);
	CHECK_EQ(t.net->first_image, 77);
	CHECK_EQ(t.net->loss, 5);
	n = 0;
	for (int i = 0; i < t.net->n_params; i++)
		if (t.net->params[i]->role == DN_BUFFER) {
			CHECK_BITS(t.net->params[i]->value, before + n, (size_t)t.net->params[i]->n * sizeof(float));
			n += t.net->params[i]->n;
		}
	net_help_close(&t);
}

/* --- the loop --- */

struct events {
	int steps, saves, valids;
	double first_loss, last_loss, top1;
	char saved[4096];
};

static int on_step(void *arg, const struct dn_loop_step *s)
{
	struct events *e = arg;

	if (!e->steps++)
		e->first_loss = s->loss;
	e->last_loss = s->loss;
	return 0;
}

static int on_saved(void *arg, const char *path, int64_t bytes, double seconds)
{
	struct events *e = arg;
	size_t n = strlen(e->saved);

	e->saves++;
	CU_ASSERT_TRUE(bytes > 20 && seconds >= 0);
	snprintf(e->saved + n, sizeof(e->saved) - n, "%s ", strrchr(path, '/') + 1);
	return 0;
}

static int on_valid(void *arg, const struct dn_loop_step *s, int64_t images, double top1, double topk, double loss)
{
	struct events *e = arg;

	e->valids++;
	e->top1 = top1;
	CU_ASSERT_TRUE(topk >= top1 && topk <= 1 && images > 0);
	return 0;
}

struct run {
	struct net_help t;
	struct made train, valid;
	struct events e;
	struct dn_loop_config c;
	struct dn_loop *l;
};

static void open_run(struct run *r, const char *cfg, const char *folder, int64_t n)
{
	memset(r, 0, sizeof(*r));
	make_data(&r->train, n);
	make_data(&r->valid, 13);
	open_net(&r->t, cfg);
	r->c = (struct dn_loop_config){
		.backup = path_of(folder),
		.base = "tiny",
		.data_path = "tiny.data",
		.keep = 3,
		.top = 2,
		.seed = 3,
		.shuffle = DN_SHUFFLE_EPOCH,
		.loader_threads = 2,
		.events = { on_step, on_saved, on_valid, &r->e },
	};
}

static void close_run(struct run *r)
{
	dn_loop_destroy(r->l);
	net_help_close(&r->t);
}

static int create(struct run *r)
{
	return dn_loop_create(&r->l, r->t.net, &r->train.ds, r->c.valid_every ? &r->valid.ds : NULL, &alone, &r->c);
}

static bool there(const char *name)
{
	return access(path_of(name), F_OK) == 0;
}

static void a_run_learns_and_leaves_its_files(void)
{
	struct dn_weights_info in;
	struct run r;

	CHECK_OK_FATAL(dn_remove_tree(path_of("a")));
	open_run(&r, HEAD(8, 2, 100) NORM, "a", 40);
	r.c.save_every = 40;
	r.c.valid_every = 50;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	CHECK_EQ(r.e.steps, 100);
	CHECK_EQ(r.e.valids, 2);
	CU_ASSERT_TRUE(r.e.last_loss < .5 * r.e.first_loss);
	CU_ASSERT_TRUE(r.e.top1 > .9);
	/* an epoch is 5 updates; the best of two evaluations may be either */
	CU_ASSERT_PTR_NOT_NULL(strstr(r.e.saved, "tiny_1.weights tiny_2.weights"));
	CU_ASSERT_PTR_NOT_NULL(strstr(r.e.saved, "tiny.weights tiny_final.weights tiny_last.weights "));
	CU_ASSERT_TRUE(there("a/tiny_20.weights") && there("a/tiny_best.weights") && there("a/tiny_last.weights"));
	CU_ASSERT_FALSE(there("a/tiny.backup"));
	CU_ASSERT_TRUE(there("a/tiny.ckpt/40/meta.json") && there("a/tiny.ckpt/80/meta.json"));
	CHECK_OK(dn_weights_check(r.t.net, path_of("a/tiny_final.weights"), false, &in));
	CHECK_EQ(in.header.seen, 800);
	CHECK_EQ(dn_loop_batch_number(r.l), 100);
	close_run(&r);
}

static void of_equal_evaluations_the_first_is_the_best(void)
{
	struct dn_weights_info in;
	struct run r;

	CHECK_OK_FATAL(dn_remove_tree(path_of("e")));
	open_run(&r, "[net]\nbatch=8\ninputs=6\nlearning_rate=0\nmomentum=.9\ndecay=0\nmax_batches=3\n" BODY, "e", 40);
	r.c.valid_every = 1;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	CHECK_EQ(r.e.valids, 3);
	CHECK_OK(dn_weights_check(r.t.net, path_of("e/tiny_best.weights"), false, &in));
	CHECK_EQ(in.header.seen, 8);
	close_run(&r);
}

static cJSON *read_log(const char *name)
{
	cJSON *all = cJSON_CreateArray();
	char *text, *line, *end;
	size_t n;

	CHECK_OK_FATAL(dn_file_read(path_of(name), 1 << 20, &text, &n));
	for (line = text; (end = strchr(line, '\n')); line = end + 1) {
		cJSON *j;

		*end = 0;
		j = cJSON_ParseWithOpts(line, NULL, 1);
		CU_ASSERT_PTR_NOT_NULL_FATAL(j);
		cJSON_AddItemToArray(all, j);
	}
	CHECK_EQ(*line, 0);
	dn_free(text);
	return all;
}

static const char *text_of(const cJSON *j, const char *key)
{
	const cJSON *v = cJSON_GetObjectItem(j, key);

	return cJSON_IsString(v) ? v->valuestring : "";
}

static double number_of(const cJSON *j, const char *key)
{
	const cJSON *v = cJSON_GetObjectItem(j, key);

	CU_ASSERT_TRUE(cJSON_IsNumber(v));
	return cJSON_IsNumber(v) ? v->valuedouble : NAN;
}

static void the_log_has_its_events_and_fields(void)
{
	static const struct dn_option table[] = {
		{ .key = "flag", .type = DN_OPT_SWITCH },
		{ .key = "n", .type = DN_OPT_INT, .def = "7" },
		{ .key = "x", .type = DN_OPT_FLOAT, .def = ".5" },
		{ .key = "s", .type = DN_OPT_STRING, .def = "a\"b" },
		{ .key = "u", .type = DN_OPT_INT },
		{ .key = NULL },
	};
	struct dn_options *o;
	struct run r;
	cJSON *all, *j, *k;
	int steps = 0, saves = 0, valids = 0, i = 0, n;

	CHECK_OK_FATAL(dn_options_create(&o));
	CHECK_OK_FATAL(dn_options_add(o, table));
	CHECK_OK_FATAL(dn_remove_tree(path_of("b")));
	open_run(&r, HEAD(8, 2, 6) BODY, "b", 40);
	r.c.log_path = path_of("b.log");
	r.c.save_every = 3;
	r.c.valid_every = 4;
	r.c.options = o;
	r.c.plugin = "shard";
	r.c.plugin_options = o;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	all = read_log("b.log");
	n = cJSON_GetArraySize(all);
	cJSON_ArrayForEach(j, all)
	{
		const char *event = text_of(j, "event");

		CHECK_EQ(number_of(j, "v"), 1);
		CHECK_EQ(!strcmp(event, "start"), i == 0);
		CHECK_EQ(!strcmp(event, "end"), i == n - 1);
		i++;
		if (!strcmp(event, "step")) {
			steps++;
			CHECK_EQ(number_of(j, "step"), steps);
			CHECK_EQ(number_of(j, "images"), 8 * steps);
			CU_ASSERT_TRUE(number_of(j, "loss") > 0 && number_of(j, "seconds") >= 0);
			CU_ASSERT_DOUBLE_EQUAL(number_of(j, "rate"), .05, 1e-12);
			CU_ASSERT_TRUE(number_of(j, "rss_bytes") > 0);
			CHECK_EQ(number_of(j, "sent_bytes"), 0);
			(void)number_of(j, "exposed_ms");
		} else if (!strcmp(event, "save")) {
			saves++;
			CU_ASSERT_TRUE(*text_of(j, "path") && number_of(j, "bytes") > 0 && number_of(j, "seconds") >= 0);
		} else if (!strcmp(event, "valid")) {
			valids++;
			CHECK_EQ(number_of(j, "images"), 13);
			CU_ASSERT_TRUE(number_of(j, "topk") >= number_of(j, "top1") && number_of(j, "loss") > 0);
		}
	}
	CHECK_EQ(steps, 6);
	CHECK_EQ(valids, 1);
	CHECK_EQ(saves, 2 + 1 + 3 + 1); /* checkpoints, the epoch, the final files, the best */
	j = cJSON_GetArrayItem(all, 0);
	CHECK_STR(text_of(j, "cfg"), "t.cfg");
	CHECK_STR(text_of(j, "backend"), "ref");
	CHECK_EQ(number_of(j, "world"), 1);
	CHECK_EQ(number_of(j, "seed"), 3);
	CHECK_EQ(number_of(j, "threads"), 1);
	CHECK_EQ(number_of(j, "params"), 6 * 5 + 5 + 5 * 3 + 3);
	CU_ASSERT_TRUE(cJSON_HasObjectItem(j, "plan_hash"));
	k = cJSON_GetObjectItem(j, "options");
	CHECK_EQ(number_of(k, "flag"), 0);
	CHECK_EQ(number_of(k, "shard.n"), 7);
	CU_ASSERT_TRUE(cJSON_IsNull(cJSON_GetObjectItem(k, "u")));
	CU_ASSERT_DOUBLE_EQUAL(number_of(k, "x"), .5, 0);
	CHECK_STR(text_of(k, "s"), "a\"b");
	j = cJSON_GetArrayItem(all, n - 1);
	CHECK_EQ(number_of(j, "steps"), 6);
	CHECK_EQ(number_of(j, "allocs_after_first_step"), 0);
	CU_ASSERT_TRUE(number_of(j, "peak_rss_bytes") > 0 && number_of(j, "seconds") > 0);
	k = cJSON_GetArrayItem(cJSON_GetObjectItem(j, "ranks"), 0);
	CHECK_EQ(number_of(k, "rank"), 0);
	CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItem(k, "regions")), 11);
	CHECK_EQ(number_of(cJSON_GetObjectItem(k, "gather"), "planned_bytes"), 0);
	CHECK_EQ(number_of(cJSON_GetObjectItem(k, "reduce"), "counted_calls"), 0);
	CHECK_STR(text_of(cJSON_GetArrayItem(cJSON_GetObjectItem(k, "regions"), 0), "name"), "params");
	cJSON_Delete(all);
	close_run(&r);
	dn_options_destroy(o);
}

/* peak bytes are those of the process: only a process that has done nothing else can compare them */
static void steps_after_the_first_allocate_nothing(void)
{
	struct dn_loop_step s;
	uint64_t before;
	struct run r;

	open_run(&r, HEAD(8, 4, 100) NORM, "s", 40);
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_step(r.l, &s));
	CHECK_EQ(s.step, 1);
	CHECK_EQ(s.seen, 8);
	before = dn_mem_n_allocs();
	for (int i = 2; i < 30; i++) {
		CHECK_OK_FATAL(dn_loop_step(r.l, &s));
		CHECK_EQ(s.step, i);
	}
	CHECK_EQ(dn_mem_n_allocs(), before);
	CU_ASSERT_DOUBLE_EQUAL(s.epoch, 29 * 8 / 40.0, 1e-12);
	close_run(&r);
}

static void values_of(const struct dn_net *net, float *out)
{
	for (int i = 0; i < net->n_params; i++) {
		memcpy(out, net->params[i]->value, (size_t)net->params[i]->n * sizeof(float));
		out += net->params[i]->n;
	}
}

static void resume_equals_uninterrupted(const char *cfg)
{
	float whole[128], resumed[128];
	struct dn_loop_step s;
	double loss;
	struct run r;

	memset(whole, 0, sizeof(whole));
	memset(resumed, 0, sizeof(resumed));
	CHECK_OK_FATAL(dn_remove_tree(path_of("r")));
	open_run(&r, cfg, "r", 30);
	r.c.save_every = 7;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	values_of(r.t.net, whole);
	loss = r.e.last_loss;
	close_run(&r);

	open_run(&r, cfg, "r2", 30);
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_step(r.l, &s));		      /* a loader that has to be thrown away */
	CHECK_EQ(dn_ckpt_newest(path_of("r/tiny.ckpt")), 12); /* the end is kept as well */
	CHECK_OK_FATAL(dn_loop_resume(r.l, path_of("r/tiny.ckpt/7")));
	CHECK_EQ(dn_loop_batch_number(r.l), 7);
	CHECK_OK_FATAL(dn_loop_run(r.l));
	values_of(r.t.net, resumed);
	CHECK_EQ(r.e.steps, 5);
	CHECK_EQ(r.e.last_loss == loss, 1);
	CHECK_BITS(resumed, whole, sizeof(whole));
	close_run(&r);
}

static void a_resumed_run_equals_an_uninterrupted_one(void)
{
	resume_equals_uninterrupted(HEAD(8, 2, 12) NORM);
}

/* both moments are in the checkpoint, and t goes on counting */
static void a_resumed_adam_equals_an_uninterrupted_one(void)
{
	resume_equals_uninterrupted(HEAD(8, 2, 12) "optimizer=adam\nB1=.8\n" NORM);
	resume_equals_uninterrupted(HEAD(8, 2, 12) "optimizer=adamw\neps=1e-4\n" NORM);
}

static void resuming_another_run_is_refused_unless_forced(void)
{
	struct run r;

	CHECK_OK_FATAL(dn_remove_tree(path_of("o")));
	open_run(&r, HEAD(8, 2, 4) BODY, "o", 30);
	r.c.save_every = 4;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	close_run(&r);

	open_run(&r, HEAD(16, 2, 12) BODY, "o2", 30);
	CHECK_OK_FATAL(create(&r));
	CHECK_FAILS(dn_loop_resume(r.l, path_of("o/tiny.ckpt")), -EINVAL, "batch 8, this run has 16");
	close_run(&r);
	open_run(&r, HEAD(8, 2, 12) BODY, "o2", 30);
	r.c.seed = 4;
	CHECK_OK_FATAL(create(&r));
	CHECK_FAILS(dn_loop_resume(r.l, path_of("o/tiny.ckpt")), -EINVAL, "seed 3, this run has 4");
	close_run(&r);
	open_run(&r, HEAD(8, 2, 12) BODY, "o2", 31);
	CHECK_OK_FATAL(create(&r));
	CHECK_FAILS(dn_loop_resume(r.l, path_of("o/tiny.ckpt")), -EINVAL, "made-30, this run has made-31");
	close_run(&r);
	open_run(&r, HEAD(8, 2, 12) BODY, "o2", 30);
	r.train.ds.hash++;
	CHECK_OK_FATAL(create(&r));
	CHECK_FAILS(dn_loop_resume(r.l, path_of("o/tiny.ckpt")), -EINVAL, "hash");
	close_run(&r);
	open_run(&r, HEAD(8, 2, 12) NORM, "o2", 30);
	CHECK_OK_FATAL(create(&r));
	CHECK_FAILS(dn_loop_resume(r.l, path_of("o/tiny.ckpt")), -EINVAL, "another net");
	close_run(&r);
	/* another net in the run's own folder stops it before it starts */
	open_run(&r, HEAD(8, 2, 12) NORM, "o", 30);
	CHECK_FAILS(create(&r), -EINVAL, "another net");
	close_run(&r);
	open_run(&r, HEAD(8, 2, 12) BODY, "o2", 31);
	r.c.force = true;
	r.c.seed = 4;
	CHECK_OK_FATAL(create(&r));
	CHECK_OK(dn_loop_resume(r.l, path_of("o/tiny.ckpt")));
	CU_ASSERT_PTR_NOT_NULL(strstr(r.t.warnings, "seed 3, this run has 4"));
	CU_ASSERT_PTR_NOT_NULL(strstr(r.t.warnings, "made-31"));
	CHECK_EQ(dn_loop_batch_number(r.l), 4);
	close_run(&r);
}

static void a_loss_that_is_not_finite_ends_the_run_without_final_files(void)
{
	struct run r;
	cJSON *all, *j;
	int n;

	CHECK_OK_FATAL(dn_remove_tree(path_of("n")));
	open_run(&r, HEAD(8, 2, 12) BLOCKS, "n", 80);
	r.train.poisoned = true;
	r.c.log_path = path_of("n.log");
	r.c.shuffle = DN_SHUFFLE_OFF;
	CHECK_OK_FATAL(create(&r));
	CHECK_FAILS(dn_loop_run(r.l), -EDOM, "step 1: block a: loss is nan");
	CU_ASSERT_FALSE(there("n/tiny.weights"));
	CU_ASSERT_FALSE(there("n/tiny_final.weights"));
	CHECK_EQ(r.e.steps, 1);
	close_run(&r);
	all = read_log("n.log");
	n = cJSON_GetArraySize(all);
	CHECK_EQ(n, 2);
	j = cJSON_GetArrayItem(all, 1);
	CHECK_STR(text_of(j, "event"), "step");
	CHECK_STR(text_of(j, "nonfinite"), "nan");
	CU_ASSERT_TRUE(cJSON_IsNull(cJSON_GetObjectItem(j, "loss")));
	cJSON_Delete(all);
}

static void weights_past_the_last_batch_warn_and_still_write_files(void)
{
	struct run r;

	CHECK_OK_FATAL(dn_remove_tree(path_of("p")));
	open_run(&r, HEAD(8, 2, 5) BODY, "p", 30);
	CHECK_OK_FATAL(create(&r));
	dn_loop_set_seen(r.l, 8 * 9 + 3);
	CHECK_OK_FATAL(dn_loop_run(r.l));
	CHECK_EQ(r.e.steps, 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(r.t.warnings, "9 batches are done, max_batches=5"));
	CU_ASSERT_TRUE(there("p/tiny.weights"));
	close_run(&r);
}

static void what_cannot_be_written_is_refused_before_step_1(void)
{
	struct run r;
	FILE *f;

	open_run(&r, HEAD(8, 2, 5) BODY, "w", 30);
	f = fopen(path_of("file"), "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fclose(f);
	r.c.backup = path_of("file/below");
	CU_ASSERT_NOT_EQUAL(create(&r), 0);
	r.c.backup = path_of("w");
	r.c.log_path = path_of("absent/x.log");
	CHECK_FAILS(create(&r), -ENOENT, "absent/x.log");
	r.c.log_path = "/dev/full";
	CHECK_FAILS(create(&r), -ENOSPC, "/dev/full");
	r.c.log_path = NULL;
	r.c.valid_every = 1;
	r.valid.ds.has_truth = false;
	CHECK_FAILS(create(&r), -EINVAL, "no truth");
	close_run(&r);
}

static void failing_allocations_end_cleanly(void)
{
	int failed = 0;

	for (uint64_t n = 1; n < 400; n++) {
		struct run r;
		int err;

		open_run(&r, HEAD(8, 2, 2) BODY, "t", 10);
		r.c.save_every = 1;
		r.c.valid_every = 1;
		r.c.log_path = path_of("t.log");
		dn_mem_fail_at(n);
		err = create(&r);
		if (!err)
			err = dn_loop_run(r.l);
		dn_mem_fail_at(0);
		close_run(&r);
		if (!err)
			break;
		failed++;
	}
	CU_ASSERT_TRUE(failed > 20 && failed < 390);
}

/* dense targets in NumPy files: the best evaluation is the one of least loss */
static void a_run_on_arrays_with_dense_targets_keeps_the_lowest_loss(void)
{
	const int64_t shape_x[2] = { 30, 6 }, shape_t[2] = { 30, 3 };
	float x[180], t[90] = { 0 };
	struct dn_datafile *d;
	struct dn_dataset *train, *valid;
	struct dn_metric m;
	struct run r;
	FILE *f;

	CHECK_OK_FATAL(dn_remove_tree(path_of("d")));
	open_run(&r, HEAD(8, 2, 40) BODY, "d", 30);
	for (int64_t i = 0; i < 30; i++) {
		CHECK_OK(made_get(&r.train.ds, i, NULL, x + 6 * i, NULL, 0, NULL));
		t[3 * i + i % 3] = 1;
	}
	CHECK_OK_FATAL(dn_npy_write(path_of("x.npy"), 2, shape_x, x));
	CHECK_OK_FATAL(dn_npy_write(path_of("t.npy"), 2, shape_t, t));
	f = fopen(path_of("d.data"), "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fprintf(f, "format=npy\ntrain=%s\ntrain_truth=%s\nvalid=%s\nvalid_truth=%s\n", path_of("x.npy"), path_of("t.npy"),
		path_of("x.npy"), path_of("t.npy"));
	fclose(f);
	CHECK_OK_FATAL(dn_datafile_read(&d, path_of("d.data"), false));
	CHECK_OK_FATAL(dn_dataset_open(&train, d, false, 6, 3));
	CHECK_OK_FATAL(dn_dataset_open(&valid, d, true, 6, 3));
	r.c.valid_every = 20;
	r.c.save_every_seconds = 1e-9;
	CHECK_OK_FATAL(dn_loop_create(&r.l, r.t.net, train, valid, &alone, &r.c));
	CHECK_OK_FATAL(dn_loop_run(r.l));
	CHECK_EQ(r.e.valids, 2);
	CHECK_EQ(r.e.top1 == 0, 1); /* no classes to count */
	CHECK_EQ(dn_ckpt_newest(path_of("d/tiny.ckpt")), 40);
	CU_ASSERT_FALSE(there("d/tiny.ckpt/37"));
	CU_ASSERT_TRUE(there("d/tiny.ckpt/38/meta.json")); /* one a step, of which three are kept */
	CHECK_OK_FATAL(dn_weights_load(r.t.net, path_of("d/tiny_best.weights"), -1, false, NULL));
	CHECK_OK_FATAL(dn_evaluate(r.t.net, valid, 1, &alone, NULL, NULL, &m));
	CU_ASSERT_TRUE(m.loss < 30 * .5);
	close_run(&r);
	dn_dataset_close(train);
	dn_dataset_close(valid);
	dn_datafile_destroy(d);
}

/* --- several ranks, one thread each --- */

#define RANKS 3

struct crew {
	pthread_barrier_t all;
	int err[RANKS];
	char text[RANKS][512];
	double *x[RANKS];
	double sum[64];
	const void *mine[RANKS];
	size_t bytes[RANKS];
};

struct member {
	struct crew *crew;
	int rank;
	struct run r;
	int err;
	char message[512];
	struct seen seen;
	struct dn_metric metric;
	const char *folder, *cfg;
	bool poisoned;
	const struct dn_store_ops *local;
	void *local_self;
	float values[64];
};

static int crew_agree(void *self, int err, const char *what)
{
	struct member *m = self;
	struct crew *c = m->crew;
	int first = -1;

	c->err[m->rank] = err;
	snprintf(c->text[m->rank], sizeof(c->text[0]), "%s", dn_message());
	pthread_barrier_wait(&c->all);
	for (int r = RANKS - 1; r >= 0; r--)
		if (c->err[r])
			first = r;
	err = first < 0 ? 0 : dn_fail(c->err[first], "rank %d: %s", first, c->text[first]);
	pthread_barrier_wait(&c->all);
	return err;
}

static int crew_sum(void *self, double *x, int n)
{
	struct member *m = self;
	struct crew *c = m->crew;

	c->x[m->rank] = x;
	pthread_barrier_wait(&c->all);
	if (m->rank == 0)
		for (int i = 0; i < n && n <= 64; i++) {
			c->sum[i] = 0;
			for (int r = 0; r < RANKS; r++)
				c->sum[i] += c->x[r][i];
		}
	pthread_barrier_wait(&c->all);
	memcpy(x, c->sum, (size_t)n * sizeof(*x));
	pthread_barrier_wait(&c->all);
	return 0;
}

static int crew_gather(void *self, const void *mine, size_t bytes, char **all, size_t *sizes)
{
	struct member *m = self;
	struct crew *c = m->crew;
	size_t at = 0;

	c->mine[m->rank] = mine;
	c->bytes[m->rank] = bytes;
	pthread_barrier_wait(&c->all);
	*all = NULL;
	if (m->rank == 0) {
		*all = dn_alloc(c->bytes[0] + c->bytes[1] + c->bytes[2] + 1);
		for (int r = 0; r < RANKS; r++) {
			if (c->bytes[r])
				memcpy(*all + at, c->mine[r], c->bytes[r]);
			at += sizes[r] = c->bytes[r];
		}
	}
	pthread_barrier_wait(&c->all);
	return 0;
}

static const struct dn_group_ops crew_ops = { .agree = crew_agree, .sum = crew_sum, .gather = crew_gather };

/* the local store knows no other rank: here all of them take rank 0's values */
static int crew_write(void *self, struct dn_param *p, enum dn_part part, int64_t at, int64_t n, const float *in)
{
	struct member *m = self;
	int err;

	m->crew->mine[m->rank] = in;
	pthread_barrier_wait(&m->crew->all);
	err = m->local->write(m->local_self, p, part, at, n, m->crew->mine[0]);
	pthread_barrier_wait(&m->crew->all);
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
	err = dn_weights_load_rank0(net, m->rank ? "nowhere" : path_of("crew/crew.weights"), false, g, &in);
	net->store = whole;
	values_of(net, m->values);
	return err ? err : in.header.seen == 48 && in.n_layers_loaded == 3 ? 0 : -EILSEQ;
}

static void *member_main(void *arg)
{
	struct member *m = arg;
	const struct dn_group g = { m->rank, RANKS, RANKS, &crew_ops, m };
	struct dn_net_options o = { .rank = m->rank, .world = RANKS, .train = true, .seed = 7, .keep_output = -1 };
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
		m->err = dn_evaluate(r->t.net, valid, 2, &g, m->rank ? NULL : see, &m->seen, &m->metric);
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
	static struct crew crew;
	pthread_t threads[RANKS];

	memset(m, 0, RANKS * sizeof(*m));
	CHECK_EQ(pthread_barrier_init(&crew.all, NULL, RANKS), 0);
	for (int r = 0; r < RANKS; r++) {
		m[r].crew = &crew;
		m[r].rank = r;
		m[r].folder = folder;
		m[r].cfg = HEAD(12, 2, 4) BLOCKS;
		m[r].poisoned = r == poisoned;
	}
	for (int r = 0; r < RANKS; r++)
		CHECK_EQ(pthread_create(&threads[r], NULL, member_main, &m[r]), 0);
	for (int r = 0; r < RANKS; r++)
		CHECK_EQ(pthread_join(threads[r], NULL), 0);
	pthread_barrier_destroy(&crew.all);
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
		CHECK_EQ(m[r].metric.images, 13);
		CHECK_EQ(m[r].metric.top1, m[0].seen.top1);
		CU_ASSERT_DOUBLE_EQUAL(m[r].metric.loss, m[0].seen.loss, 1e-5);
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
	{ "sgd_follows_its_formula_in_double", sgd_follows_its_formula_in_double },
	{ "adam_and_adamw_follow_their_formulas_in_double", adam_and_adamw_follow_their_formulas_in_double },
	{ "elements_get_the_same_bits_in_any_cut", elements_get_the_same_bits_in_any_cut },
	{ "planned_bytes_are_what_is_allocated", planned_bytes_are_what_is_allocated },
	{ "tensors_lie_on_boundaries_and_frozen_ones_have_no_gradient",
	  tensors_lie_on_boundaries_and_frozen_ones_have_no_gradient },
	{ "subdivisions_give_the_same_update", subdivisions_give_the_same_update },
	{ "rolling_statistics_move_by_a_hundredth", rolling_statistics_move_by_a_hundredth },
	{ "ranges_are_read_and_written_with_bounds", ranges_are_read_and_written_with_bounds },
	{ "top_k_orders_ties_by_index_and_nan_last", top_k_orders_ties_by_index_and_nan_last },
	{ "every_image_is_evaluated_once_in_lists_of_any_length", every_image_is_evaluated_once_in_lists_of_any_length },
	{ "evaluation_works_without_truth_and_leaves_the_net_as_it_was",
	  evaluation_works_without_truth_and_leaves_the_net_as_it_was },
	{ "a_run_learns_and_leaves_its_files", a_run_learns_and_leaves_its_files },
	{ "of_equal_evaluations_the_first_is_the_best", of_equal_evaluations_the_first_is_the_best },
	{ "the_log_has_its_events_and_fields", the_log_has_its_events_and_fields },
	{ "steps_after_the_first_allocate_nothing", steps_after_the_first_allocate_nothing },
	{ "a_resumed_run_equals_an_uninterrupted_one", a_resumed_run_equals_an_uninterrupted_one },
	{ "a_resumed_adam_equals_an_uninterrupted_one", a_resumed_adam_equals_an_uninterrupted_one },
	{ "resuming_another_run_is_refused_unless_forced", resuming_another_run_is_refused_unless_forced },
	{ "a_loss_that_is_not_finite_ends_the_run_without_final_files",
	  a_loss_that_is_not_finite_ends_the_run_without_final_files },
	{ "weights_past_the_last_batch_warn_and_still_write_files", weights_past_the_last_batch_warn_and_still_write_files },
	{ "what_cannot_be_written_is_refused_before_step_1", what_cannot_be_written_is_refused_before_step_1 },
	{ "a_run_on_arrays_with_dense_targets_keeps_the_lowest_loss", a_run_on_arrays_with_dense_targets_keeps_the_lowest_loss },
	{ "ranks_share_evaluation_files_and_log", ranks_share_evaluation_files_and_log },
	{ "all_ranks_name_the_one_whose_loss_is_bad", all_ranks_name_the_one_whose_loss_is_bad },
	{ "failing_allocations_end_cleanly", failing_allocations_end_cleanly },
	{ NULL, NULL },
};

int main(void)
{
	int rc;

	snprintf(dir, sizeof(dir), "/tmp/test_train.%ld", (long)getpid());
	if (dn_make_dirs(dir))
		return 2;
	rc = check_run("train", cases);
	dn_remove_tree(dir);
	return rc;
}
