/* What the suites of train share: small nets, data made of a rule, a run with its events in a folder of the process. */
#ifndef DN_TESTS_TRAIN_HELP_H
#define DN_TESTS_TRAIN_HELP_H
#include <cjson/cJSON.h>
#include <unistd.h>

#include "base/file.h"
#include "data/datafile.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/npy.h"
#include "net_help.h"
#include "train/loop.h"
#include "train/metric.h"

static char dir[256]; /* of this process, made by train_help_run() */
static const struct dn_group alone = DN_GROUP_ALONE;

__attribute__((unused)) static const char *path_of(const char *name)
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

__attribute__((unused)) static void open_net(struct net_help *t, const char *cfg)
{
	CHECK_OK_FATAL(net_help_build(t, "ref", cfg, NULL));
	CHECK_OK_FATAL(net_help_ready(t, true));
}

/* Data made of a rule: class of sample i is i % 3, and the inputs tell it. */
struct made {
	struct dn_dataset ds;
	int64_t asked; /* by anybody: not locked, for single-threaded tests */
	bool poisoned; /* sample 4 is not finite */
};

__attribute__((unused)) static int made_get(const struct dn_dataset *ds, int64_t i, const struct dn_sample_key *key, float *x,
					    float *t, int64_t n_truths, int64_t *cls)
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

__attribute__((unused)) static void make_data(struct made *m, int64_t n)
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

struct seen {
	int64_t n;
	int wrong_order;
	int64_t top1, top2;
	double loss;
};

__attribute__((unused)) static int see(void *arg, int64_t index, const void *record, size_t bytes)
{
	struct seen *s = arg;
	const float *p;
	int64_t cls, n;
	int better = 0;

	dn_class_record(record, bytes, &cls, &p, &n);
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

struct events {
	int steps, saves, valids;
	double first_loss, last_loss, top1;
	char saved[4096];
};

__attribute__((unused)) static int on_step(void *arg, const struct dn_loop_step *s)
{
	struct events *e = arg;

	if (!e->steps++)
		e->first_loss = s->loss;
	e->last_loss = s->loss;
	return 0;
}

__attribute__((unused)) static int on_saved(void *arg, const char *path, int64_t bytes, double seconds)
{
	struct events *e = arg;
	size_t n = strlen(e->saved);

	e->saves++;
	CU_ASSERT_TRUE(bytes > 20 && seconds >= 0);
	snprintf(e->saved + n, sizeof(e->saved) - n, "%s ", strrchr(path, '/') + 1);
	return 0;
}

__attribute__((unused)) static int on_valid(void *arg, const struct dn_loop_step *s, const struct dn_result *r)
{
	struct events *e = arg;
	double topk = dn_result_field(r, "topk");

	e->valids++;
	e->top1 = dn_result_field(r, "top1");
	CU_ASSERT_TRUE(topk >= e->top1 && topk <= 1 && r->images > 0);
	return 0;
}

struct run {
	struct net_help t;
	struct made train, valid;
	struct events e;
	struct dn_loop_config c;
	struct dn_loop *l;
};

__attribute__((unused)) static void open_run(struct run *r, const char *cfg, const char *folder, int64_t n)
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

__attribute__((unused)) static void close_run(struct run *r)
{
	dn_loop_destroy(r->l);
	net_help_close(&r->t);
}

__attribute__((unused)) static int create(struct run *r)
{
	return dn_loop_create(&r->l, r->t.net, &r->train.ds, r->c.valid_every ? &r->valid.ds : NULL, &alone, &r->c);
}

__attribute__((unused)) static bool there(const char *name)
{
	return access(path_of(name), F_OK) == 0;
}

__attribute__((unused)) static cJSON *read_log(const char *name)
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

__attribute__((unused)) static const char *text_of(const cJSON *j, const char *key)
{
	const cJSON *v = cJSON_GetObjectItem(j, key);

	return cJSON_IsString(v) ? v->valuestring : "";
}

__attribute__((unused)) static double number_of(const cJSON *j, const char *key)
{
	const cJSON *v = cJSON_GetObjectItem(j, key);

	CU_ASSERT_TRUE(cJSON_IsNumber(v));
	return cJSON_IsNumber(v) ? v->valuedouble : NAN;
}

__attribute__((unused)) static void values_of(const struct dn_net *net, float *out)
{
	for (int i = 0; i < net->n_params; i++) {
		peek_into(net, net->params[i]->value, net->params[i]->n, out);
		out += net->params[i]->n;
	}
}

static int train_help_run(const char *suite, const struct check_case *cases)
{
	int rc;

	snprintf(dir, sizeof(dir), "/tmp/%s.%ld", suite, (long)getpid());
	if (dn_make_dirs(dir))
		return 2;
	rc = check_run(suite, cases);
	dn_remove_tree(dir);
	return rc;
}
#endif
