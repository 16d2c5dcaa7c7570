/* Nets from cfg texts for tests: parse, build on a backend, whole store, initial values.
 * Tensors are device memory: tests look at them with peek() and change them with poke(). */
#ifndef DN_TESTS_NET_HELP_H
#define DN_TESTS_NET_HELP_H
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "check.h"
#include "graph/net.h"
#include "train/whole_store.h"

struct net_help {
	struct dn_cfg *cfg;
	struct dn_device *dev;
	struct dn_net *net;
	float *input, *truth;
	char warnings[4096];
};

/* The pass that a test makes over a net: found by the net, so that a test may change it between passes. */
#define NET_HELP_MAX 64
#define NET_HELP_PEEKS 4096
#define NET_HELP_PINNED 256
static struct {
	struct dn_net *net;
	struct dn_pass pass;
	struct dn_window window;
	int n_copies;
	float *copies[NET_HELP_PEEKS]; /* what peek() gave, until the net is closed */
	int n_pinned;
	float *pinned[NET_HELP_PINNED];
} net_help_passes[NET_HELP_MAX];

__attribute__((unused)) static struct dn_pass *pass_of(const struct dn_net *net)
{
	for (int i = 0; i < NET_HELP_MAX; i++)
		if (net_help_passes[i].net == net)
			return &net_help_passes[i].pass;
	return NULL;
}

static void net_help_pass(struct net_help *t, struct dn_pass pass)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* ranks are threads */
	int i = 0;

	pthread_mutex_lock(&lock);
	while (i < NET_HELP_MAX && net_help_passes[i].net)
		i++;
	if (i < NET_HELP_MAX)
		net_help_passes[i].net = t->net;
	pthread_mutex_unlock(&lock);
	CU_ASSERT_FATAL(i < NET_HELP_MAX);
	net_help_passes[i].pass = pass;
	net_help_passes[i].n_copies = net_help_passes[i].n_pinned = 0;
	net_help_passes[i].window = (struct dn_window){ NULL };
}

static void net_help_forget(const struct dn_net *net)
{
	for (int i = 0; i < NET_HELP_MAX; i++) {
		if (net_help_passes[i].net != net)
			continue;
		for (int k = 0; k < net_help_passes[i].n_copies; k++)
			dn_free(net_help_passes[i].copies[k]);
		for (int k = 0; k < net_help_passes[i].n_pinned; k++)
			net->dev->be->free_host(net->dev, net_help_passes[i].pinned[k]);
		dn_window_fini(&net_help_passes[i].window);
		net_help_passes[i].net = NULL;
	}
}

static int net_help_window_open(const struct dn_net *net, struct dn_window **out)
{
	for (int i = 0; i < NET_HELP_MAX; i++) {
		struct dn_window *w = &net_help_passes[i].window;

		if (net_help_passes[i].net != net)
			continue;
		*out = w;
		return w->dev ? 0 : dn_window_init(w, net->dev, 1 << 14);
	}
	return dn_fail(-ENOENT, "no such net");
}

static struct dn_window *net_help_window(const struct dn_net *net)
{
	struct dn_window *w;

	CHECK_OK_FATAL(net_help_window_open(net, &w));
	return w;
}

/* elements [0, n) of a tensor of @net after all that is queued */
__attribute__((unused)) static void peek_into(const struct dn_net *net, const float *x, int64_t n, float *out)
{
	CHECK_OK_FATAL(dn_window_read(net_help_window(net), net->compute, x, n, out));
}

/* the same, valid until the net is closed; where the host may touch tensors the tensor itself */
__attribute__((unused)) static const float *peek(const struct dn_net *net, const float *x, int64_t n)
{
	for (int i = 0; i < NET_HELP_MAX; i++) {
		float *copy;

		if (net_help_passes[i].net != net)
			continue;
		if (!net_help_window(net)->host)
			return x;
		CU_ASSERT_FATAL(net_help_passes[i].n_copies < NET_HELP_PEEKS);
		copy = dn_alloc(sizeof(float) * (size_t)n);
		CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
		net_help_passes[i].copies[net_help_passes[i].n_copies++] = copy;
		peek_into(net, x, n, copy);
		return copy;
	}
	CU_FAIL_FATAL("no such net");
	return NULL;
}

/* floats of a layer */
__attribute__((unused)) static const float *peek_output(const struct dn_net *net, int layer)
{
	const struct dn_layer *l = &net->layers[layer];

	return peek(net, l->output, l->local_batch * l->outputs);
}

__attribute__((unused)) static const float *peek_delta(const struct dn_net *net, int layer)
{
	const struct dn_layer *l = &net->layers[layer];

	return peek(net, l->delta, l->local_batch * l->outputs);
}

__attribute__((unused)) static void poke(const struct dn_net *net, float *x, int64_t n, const float *in)
{
	CHECK_OK_FATAL(dn_window_write(net_help_window(net), net->compute, x, n, in));
}

__attribute__((unused)) static void poke_one(const struct dn_net *net, float *x, float v)
{
	poke(net, x, 1, &v);
}

/* @n floats that may be the input or the truth of a pass, until the net is closed */
__attribute__((unused)) static float *pinned(const struct net_help *t, int64_t n)
{
	float *x;

	for (int i = 0; i < NET_HELP_MAX; i++) {
		if (net_help_passes[i].net != t->net)
			continue;
		CU_ASSERT_FATAL(net_help_passes[i].n_pinned < NET_HELP_PINNED);
		CHECK_OK_FATAL(t->dev->be->alloc_host(t->dev, DN_MEM_HOST, sizeof(*x) * (size_t)n, (void **)&x));
		net_help_passes[i].pinned[net_help_passes[i].n_pinned++] = x;
		return x;
	}
	CU_FAIL_FATAL("no such net");
	return NULL;
}

/* every byte 0xff, which is NaN: what is read before it is written shows */
static void poison(const struct dn_net *net, void *x, size_t bytes)
{
	const int64_t n = (int64_t)(bytes / sizeof(float)), most = 1 << 12;
	float nan[1 << 12];

	memset(nan, 0xff, sizeof(nan));
	for (int64_t at = 0; at < n; at += most)
		poke(net, (float *)x + at, n - at < most ? n - at : most, nan);
}

/* of the last pass */
__attribute__((unused)) static double net_loss(struct dn_net *net)
{
	double loss = NAN;

	CHECK_OK(dn_net_loss(net, pass_of(net), &loss));
	return loss;
}

static void net_help_sink(void *arg, const char *line)
{
	struct net_help *t = arg;
	size_t n = strlen(t->warnings);

	snprintf(t->warnings + n, sizeof(t->warnings) - n, "%s\n", line);
}

/* dn_net_build only. On an error the message stays and everything is closed. */
static int net_help_build(struct net_help *t, const char *backend, const char *text, const struct dn_net_options *opt)
{
	const struct dn_net_options def = { .world = 1, .train = true, .seed = 7 };
	const struct dn_backend *be = dn_backend_find(check_backend(backend));
	int err;

	memset(t, 0, sizeof(*t));
	CU_ASSERT_PTR_NOT_NULL_FATAL(be);
	err = be->open(DN_CPU(1), &t->dev);
	if (err)
		return err;
	dn_log_sink(net_help_sink, t);
	err = dn_cfg_parse(&t->cfg, text, strlen(text), "t.cfg", false);
	if (!err)
		err = dn_net_build(&t->net, t->cfg, t->dev, opt ? opt : &def);
	if (err) {
		dn_log_sink(NULL, NULL);
		dn_cfg_destroy(t->cfg);
		be->close(t->dev);
		t->cfg = NULL;
		t->dev = NULL;
	} else {
		net_help_pass(t, (struct dn_pass){ 0 });
	}
	return err;
}

__attribute__((unused)) static void net_help_close(struct net_help *t)
{
	dn_log_sink(NULL, NULL);
	if (!t->dev)
		return;
	dn_net_drain(t->net);
	net_help_forget(t->net);
	t->dev->be->free_host(t->dev, t->input);
	t->dev->be->free_host(t->dev, t->truth);
	dn_net_destroy(t->net);
	dn_cfg_destroy(t->cfg);
	t->dev->be->close(t->dev);
	t->dev = NULL;
}

/* store, memory, initial values, input U(-1, 1), truth one-hot in groups of the output or U(0, 1) */
__attribute__((unused)) static int net_help_ready(struct net_help *t, bool one_hot)
{
	struct dn_net *net = t->net;
	int64_t n = net->local_batch * net->inputs;
	int64_t m = net->local_batch * net->truths;
	struct dn_window *w;
	int err = dn_whole_attach(net);

	if (!err)
		err = dn_net_alloc(net);
	if (!err)
		err = net->store.ops->alloc(net->store.self, net);
	if (!err)
		err = dn_net_init_values(net);
	if (err)
		return err;
	err = t->dev->be->alloc_host(t->dev, DN_MEM_HOST, sizeof(float) * (size_t)n, (void **)&t->input);
	if (!err)
		err = t->dev->be->alloc_host(t->dev, DN_MEM_HOST, sizeof(float) * (size_t)m, (void **)&t->truth);
	if (!err)
		err = net_help_window_open(net, &w);
	if (err)
		return err;
	for (int64_t i = 0; i < n; i++)
		t->input[i] = (float)(2 * dn_rng_uniform(1, 1, (uint64_t)i) - 1);
	for (int64_t i = 0; i < m; i++)
		t->truth[i] = one_hot ? 0 : (float)dn_rng_uniform(1, 2, (uint64_t)i);
	for (int64_t i = 0; i < net->local_batch && one_hot; i++)
		t->truth[i * net->truths + (int64_t)dn_rng_below(1, 3, (uint64_t)i, (uint64_t)net->truths)] = 1;
	poison(net, net->arena, net->activations_bytes);
	poison(net, net->workspace, net->workspace ? net->workspace_bytes : 0);
	*pass_of(net) = (struct dn_pass){ .phase = net->opt.train ? DN_TRAIN : DN_INFER, .input = t->input, .truth = t->truth };
	return 0;
}

#endif
