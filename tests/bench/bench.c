/* Speed of one net through the library: bench forward|train CFG THREADS [KEY=VALUE...]
 *
 * Keys: batch=, size= (width and height), runs= (5), peer=LIBRARY (a Darknet library to time beside ours), profile=1 (time of every
 * layer and of every backend op instead). A run times the library's own product of two square matrices, ours and the peer one
 * after the other, so that a slow moment of the machine falls on all; the medians of the runs are printed, one line:
 *   bench: forward net=... seconds=... gflops=... sgemm_gflops=... of_sgemm=... peer_seconds=... of_peer=...
 * gflops counts the multiply-adds of convolutions and dense layers alone, twice; a training step counts three times the forward.
 */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/group.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "io/weights.h"
#include "train/whole_store.h"

#define SQUARE 1536 /* side of the matrices */
#define RUNS_MAX 99

struct bench {
	const char *verb, *path;
	int threads;
	int64_t batch, size;
	int runs;
	const char *peer;
	bool profile, train;

	const struct dn_backend *be;
	struct dn_device *dev;
	struct dn_cfg *cfg;
	struct dn_net *net;
	float *x, *t;
	float *a, *b, *c; /* square matrices */
	uint64_t step;
	char dir[64], cfg_copy[96], weights[96];

	void *lib, *peer_net;
	float *(*predict)(void *net, float *input);
};

static double now(void)
{
	return (double)dn_now_ns() * 1e-9;
}

static void die(const char *what)
{
	const char *m = dn_message();

	fprintf(stderr, "bench: %s: %s\n", what, m && *m ? m : strerror(errno));
	exit(1);
}

static void must(int err, const char *what)
{
	if (err)
		die(what);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *x, int n)
{
	qsort(x, (size_t)n, sizeof(*x), by_value);
	return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static float *numbers(int64_t n)
{
	float *x = dn_alloc((size_t)n * sizeof(*x));
	uint32_t s = 1;

	if (!x)
		die("memory");
	for (int64_t i = 0; i < n; i++) {
		s = s * 1664525u + 1013904223u;
		x[i] = (float)(s >> 8) / 16777216.f;
	}
	return x;
}

/* --- our net --- */

static int fill_one(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	for (int64_t i = 0; i < n; i++)
		x[i] = 1;
	return 0;
}

/* The cfg with another size, as both libraries read it */
static void copy_cfg(struct bench *b)
{
	char line[1024], key[16];
	FILE *in = fopen(b->path, "r"), *out;

	snprintf(b->dir, sizeof(b->dir), "/tmp/dn-bench.XXXXXX");
	if (!in || !mkdtemp(b->dir))
		die(b->path);
	snprintf(b->cfg_copy, sizeof(b->cfg_copy), "%s/net.cfg", b->dir);
	snprintf(b->weights, sizeof(b->weights), "%s/net.weights", b->dir);
	out = fopen(b->cfg_copy, "w");
	if (!out)
		die(b->cfg_copy);
	while (fgets(line, sizeof(line), in)) {
		if (sscanf(line, "%15[a-z_]", key) != 1)
			*key = 0;
		if (b->size && (!strcmp(key, "width") || !strcmp(key, "height")))
			snprintf(line, sizeof(line), "%s=%lld\n", key, (long long)b->size);
		else if (!strcmp(key, "batch"))
			snprintf(line, sizeof(line), "batch=%lld\n", (long long)b->batch);
		else if (!strcmp(key, "subdivisions"))
			snprintf(line, sizeof(line), "subdivisions=1\n");
		fputs(line, out);
	}
	fclose(in);
	if (fclose(out))
		die(b->cfg_copy);
}

static void build(struct bench *b)
{
	struct dn_net_options o = { .world = 1, .train = b->train, .seed = 1 };

	b->be = dn_backend_find("cpu");
	must(b->be ? b->be->open(DN_CPU(b->threads), &b->dev) : -EINVAL, "backend");
	copy_cfg(b);
	must(dn_cfg_read(&b->cfg, b->cfg_copy, false), "cfg");
	must(dn_net_build(&b->net, b->cfg, b->dev, &o), "net");
	must(dn_whole_attach(b->net), "store");
	must(dn_net_alloc(b->net), "net");
	must(b->net->store.ops->alloc(b->net->store.self, b->net), "store");
	must(dn_net_init_values(b->net), "values");
	/* a variance of 0 would blow every layer up */
	for (int i = 0; i < b->net->n_params; i++)
		if (strstr(b->net->params[i]->name, "rolling_variance"))
			must(b->net->store.ops->each(b->net->store.self, b->net->params[i], DN_VALUE, DN_WRITE, fill_one, NULL),
			     "values");
	b->x = numbers(b->net->local_batch * b->net->inputs);
	b->t = dn_calloc((size_t)(b->net->local_batch * b->net->truths + 1), sizeof(float));
	if (!b->t)
		die("memory");
	for (int64_t i = 0; i < b->net->local_batch && b->net->truths; i++)
		b->t[i * b->net->truths + i % b->net->truths] = 1;
}

static void ours_once(struct bench *b)
{
	struct dn_net *net = b->net;
	struct dn_update u = { .step = (int64_t)++b->step, .images = net->batch, .rate = 1e-4, .momentum = .9, .decay = 5e-4 };
	const struct dn_pass pass = { .phase = b->train ? DN_TRAIN : DN_INFER, .input = b->x, .truth = b->train ? b->t : NULL };

	if (!b->train) {
		must(dn_net_forward(net, &pass), "forward");
		must(net->dev->be->stream_sync(net->compute), "pass");
		return;
	}
	must(net->store.ops->begin(net->store.self, net, u.step), "begin");
	must(dn_net_forward(net, &pass), "forward");
	must(net->store.ops->stats(net->store.self, net), "stats");
	must(dn_net_backward(net, &pass), "backward");
	must(dn_net_update(net, &u), "step");
}

/* --- the others --- */

static void open_peer(struct bench *b)
{
	struct dn_group g = { .rank = 0, .world = 1 };
	void *(*parse)(char *);
	void (*load)(void *, char *);
	FILE *quiet;

	must(dn_weights_save(b->net, b->weights, 0, -1, &g, NULL), "weights");
	b->lib = dlopen(b->peer, RTLD_NOW | RTLD_LOCAL);
	if (!b->lib) {
		fprintf(stderr, "bench: %s\n", dlerror());
		exit(1);
	}
	*(void **)&parse = dlsym(b->lib, "parse_network_cfg");
	*(void **)&load = dlsym(b->lib, "load_weights");
	*(void **)&b->predict = dlsym(b->lib, "network_predict");
	if (!parse || !load || !b->predict)
		die("the peer lacks parse_network_cfg, load_weights or network_predict");
	quiet = freopen("/dev/null", "w", stderr); /* it lists its layers there */
	b->peer_net = parse(b->cfg_copy);
	load(b->peer_net, b->weights);
	(void)quiet;
}

static double sgemm_once(struct bench *b)
{
	const struct dn_gemm_desc square = dn_gemm_dense(false, false, SQUARE, SQUARE, SQUARE, 0);
	double start = now();

	must(b->be->gemm(b->net->compute, &square, b->a, b->b, b->c), "gemm");
	return now() - start;
}

static double time_ours(struct bench *b)
{
	int n = 0;
	double start = now(), t;

	do { /* as long as a product of the matrices at least */
		ours_once(b);
		n++;
		t = now() - start;
	} while (t < .15);
	return t / n;
}

static void race(struct bench *b)
{
	double sgemm[RUNS_MAX], ours[RUNS_MAX], peer[RUNS_MAX], g, o;
	double flops = (double)b->net->flops * (double)b->net->local_batch * (b->train ? 3 : 1);

	b->a = numbers((int64_t)SQUARE * SQUARE);
	b->b = numbers((int64_t)SQUARE * SQUARE);
	b->c = numbers((int64_t)SQUARE * SQUARE);
	if (b->peer)
		open_peer(b);
	sgemm_once(b);
	ours_once(b);
	ours_once(b);
	for (int r = 0; r < b->runs; r++) {
		double first = sgemm_once(b);

		ours[r] = time_ours(b);
		sgemm[r] = (first + sgemm_once(b)) / 2;
		if (b->peer) {
			double start = now();

			b->predict(b->peer_net, b->x);
			peer[r] = now() - start;
		}
	}
	g = 2. * SQUARE * SQUARE * SQUARE / median(sgemm, b->runs) * 1e-9;
	o = median(ours, b->runs);
	printf("bench: %s net=%s size=%lld batch=%lld threads=%d seconds=%.5f gflops=%.1f sgemm_gflops=%.1f of_sgemm=%.3f",
	       b->verb, strrchr(b->path, '/') ? strrchr(b->path, '/') + 1 : b->path, (long long)b->net->w,
	       (long long)b->net->local_batch, b->threads, o, flops / o * 1e-9, g, flops / o * 1e-9 / g);
	if (b->peer) {
		double p = median(peer, b->runs);

		printf(" peer_seconds=%.5f of_peer=%.2f", p, p / o);
	}
	printf("\n");
}

/* --- where the time goes --- */

/* clang-format off */
#define OPS(X) \
	X(conv_forward) X(conv_backward_weights) X(conv_backward_data) X(bias_act) X(bias_backward) X(act_backward) \
	X(bn_forward_train) X(bn_forward) X(bn_backward) X(maxpool_forward) X(maxpool_backward) X(axpby) X(zero) X(gemm) \
	X(sgd) X(sum_tree) X(copy) X(count_nonfinite) X(shortcut_forward) X(copy_rows)
/* clang-format on */
#define NUMBER(op) OP_##op,
enum { OPS(NUMBER) OP_COUNT };
#define NAME(op) #op,
static const char *const op_names[] = { OPS(NAME) };
static double op_time[OP_COUNT];
static const struct dn_backend *real;

#define TIMED(op, params, args) \
	static int timed_##op params \
	{ \
		double start = now(); \
		int err = real->op args; \
\
		op_time[OP_##op] += now() - start; \
		return err; \
	}
TIMED(conv_forward,
      (struct dn_stream * st, struct dn_conv *cv, const void *x, const void *w, const void *p, const float *b, void *y, void *ws),
      (st, cv, x, w, p, b, y, ws))
TIMED(conv_backward_weights,
      (struct dn_stream * st, struct dn_conv *cv, const void *x, const void *dy, float *dw, bool acc, void *ws),
      (st, cv, x, dy, dw, acc, ws))
TIMED(conv_backward_data,
      (struct dn_stream * st, struct dn_conv *cv, const void *dy, const void *w, void *dx, bool acc, void *ws),
      (st, cv, dy, w, dx, acc, ws))
TIMED(bias_act, (struct dn_stream * st, const struct dn_tensor *t, void *x, const float *b, enum dn_act a), (st, t, x, b, a))
TIMED(bias_backward, (struct dn_stream * st, const struct dn_tensor *t, const void *dy, float *db, bool acc),
      (st, t, dy, db, acc))
TIMED(act_backward, (struct dn_stream * st, const struct dn_tensor *t, enum dn_act a, const void *y, void *dy), (st, t, a, y, dy))
TIMED(bn_forward_train,
      (struct dn_stream * st, const struct dn_bn_desc *d, const void *x, const float *s, const float *b, float *m, float *v,
       void *y),
      (st, d, x, s, b, m, v, y))
TIMED(bn_forward,
      (struct dn_stream * st, const struct dn_bn_desc *d, const void *x, const float *s, const float *b, const float *m,
       const float *v, void *y),
      (st, d, x, s, b, m, v, y))
TIMED(bn_backward,
      (struct dn_stream * st, const struct dn_bn_desc *d, bool f, const void *x, const float *m, const float *v, const float *s,
       const void *dy, void *dx, bool acc, float *ds, float *db, bool acc_params),
      (st, d, f, x, m, v, s, dy, dx, acc, ds, db, acc_params))
TIMED(maxpool_forward, (struct dn_stream * st, const struct dn_pool_desc *d, const void *x, void *y, int32_t *i),
      (st, d, x, y, i))
TIMED(maxpool_backward,
      (struct dn_stream * st, const struct dn_pool_desc *d, const void *dy, const int32_t *i, void *dx, bool acc),
      (st, d, dy, i, dx, acc))
TIMED(axpby, (struct dn_stream * st, enum dn_type type, int64_t n, float a, const void *x, float b, void *y),
      (st, type, n, a, x, b, y))
TIMED(zero, (struct dn_stream * st, void *p, size_t n), (st, p, n))
TIMED(gemm, (struct dn_stream * st, const struct dn_gemm_desc *d, const void *a, const void *b, void *c), (st, d, a, b, c))
TIMED(sgd,
      (struct dn_stream * st, enum dn_type type, int64_t n, const struct dn_sgd *o, const struct dn_numbers *num, float *w,
       float *v, const void *g),
      (st, type, n, o, num, w, v, g))
TIMED(sum_tree, (struct dn_stream * st, int64_t n, const struct dn_parts *p, float *out, bool acc), (st, n, p, out, acc))
TIMED(copy, (struct dn_stream * st, void *d, const void *s, size_t n), (st, d, s, n))
TIMED(count_nonfinite, (struct dn_stream * st, enum dn_type type, int64_t n, const void *x, int64_t *c), (st, type, n, x, c))
TIMED(shortcut_forward, (struct dn_stream * st, const struct dn_shortcut_desc *d, const void *a, const void *s, void *y),
      (st, d, a, s, y))
TIMED(copy_rows,
      (struct dn_stream * st, enum dn_type type, int64_t r, int64_t n, const void *s, int64_t ss, void *d, int64_t ds, bool acc),
      (st, type, r, n, s, ss, d, ds, acc))

/* layers: the time of each through its own table of functions */
static double *layer_time[2];
static const struct dn_layer_ops **layer_real;

static int timed_layer_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	double start = now();
	int err = layer_real[l->index]->forward(l, pass);

	layer_time[0][l->index] += now() - start;
	return err;
}

static int timed_layer_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	double start = now();
	int err = layer_real[l->index]->backward(l, pass);

	layer_time[1][l->index] += now() - start;
	return err;
}

static void profile(struct bench *b)
{
	struct dn_net *net = b->net;
	struct dn_backend table = *b->be;
	struct dn_layer_ops *ops = dn_calloc((size_t)net->n_layers, sizeof(*ops));
	double ops_total = 0, total, start;

	layer_real = dn_calloc((size_t)net->n_layers, sizeof(*layer_real));
	layer_time[0] = dn_calloc((size_t)net->n_layers, sizeof(double));
	layer_time[1] = dn_calloc((size_t)net->n_layers, sizeof(double));
	if (!ops || !layer_real || !layer_time[0] || !layer_time[1])
		die("memory");
	ours_once(b);
	ours_once(b);
	real = b->be;
#define REPLACE(op) table.op = timed_##op;
	OPS(REPLACE)
	b->dev->be = &table;
	for (int i = 0; i < net->n_layers; i++) {
		layer_real[i] = net->layers[i].ops;
		ops[i] = *layer_real[i];
		ops[i].forward = timed_layer_forward;
		ops[i].backward = timed_layer_backward;
		net->layers[i].ops = &ops[i];
	}
	start = now();
	for (int r = 0; r < b->runs; r++)
		ours_once(b);
	total = (now() - start) / b->runs;
	printf("%-3s %-14s %10s %10s %10s %10s\n", "", "layer", "forward ms", "GFLOP/s", "backw. ms", "GFLOP/s");
	for (int i = 0; i < net->n_layers; i++) {
		struct dn_layer *l = &net->layers[i];
		double f = layer_time[0][i] / b->runs, w = layer_time[1][i] / b->runs,
		       flops = (double)l->flops * (double)l->local_batch * 1e-9;

		printf("%3d %-14s %10.3f %10.1f %10.3f %10.1f\n", i, ops[i].name, f * 1e3, f > 0 ? flops / f : 0, w * 1e3,
		       w > 0 ? 2 * flops / w : 0);
	}
	for (int i = 0; i < OP_COUNT; i++) {
		if (op_time[i] > 0)
			printf("op %-22s %10.3f ms %5.1f %%\n", op_names[i], op_time[i] / b->runs * 1e3,
			       op_time[i] / b->runs / total * 100);
		ops_total += op_time[i] / b->runs;
	}
	printf("pass %.3f ms, of which ops %.3f ms\n", total * 1e3, ops_total * 1e3);
	for (int i = 0; i < net->n_layers; i++)
		net->layers[i].ops = layer_real[i];
	b->dev->be = real;
	dn_free(ops);
	dn_free(layer_real);
	dn_free(layer_time[0]);
	dn_free(layer_time[1]);
}

static void tidy_up(struct bench *b)
{
	unlink(b->cfg_copy);
	unlink(b->weights);
	rmdir(b->dir);
	dn_free(b->x);
	dn_free(b->t);
	dn_free(b->a);
	dn_free(b->b);
	dn_free(b->c);
	dn_net_destroy(b->net);
	dn_cfg_destroy(b->cfg);
	b->be->close(b->dev);
}

int main(int argc, char **argv)
{
	struct bench b = { .batch = 1, .runs = 5 };

	if (argc < 4 || (strcmp(argv[1], "forward") && strcmp(argv[1], "train")) || atoi(argv[3]) < 1) {
		fprintf(stderr,
			"bench: usage: bench forward|train CFG THREADS [batch=N] [size=N] [runs=N] [peer=LIBRARY] [profile=1]\n");
		return 2;
	}
	b.verb = argv[1];
	b.train = !strcmp(argv[1], "train");
	b.path = argv[2];
	b.threads = atoi(argv[3]);
	for (int i = 4; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		size_t n = value ? (size_t)(value++ - argv[i]) : 0;

		if (value && n == 5 && !strncmp(argv[i], "batch", n))
			b.batch = atoi(value);
		else if (value && n == 4 && !strncmp(argv[i], "size", n))
			b.size = atoi(value);
		else if (value && n == 4 && !strncmp(argv[i], "runs", n))
			b.runs = atoi(value);
		else if (value && n == 4 && !strncmp(argv[i], "peer", n))
			b.peer = value;
		else if (value && n == 7 && !strncmp(argv[i], "profile", n))
			b.profile = atoi(value);
		else {
			fprintf(stderr, "bench: what is %s?\n", argv[i]);
			return 2;
		}
	}
	if (b.runs < 1 || b.runs > RUNS_MAX || b.batch < 1 || b.size < 0) {
		fprintf(stderr, "bench: batch >= 1, size >= 0, runs 1 to %d\n", RUNS_MAX);
		return 2;
	}
	build(&b);
	if (b.profile)
		profile(&b);
	else
		race(&b);
	tidy_up(&b);
	return fflush(stdout) ? 1 : 0;
}
