/* Nets from cfg texts for tests: parse, build on a backend, local store, initial values. */
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
#include "train/local.h"

struct net_help {
	struct dn_cfg *cfg;
	struct dn_device *dev;
	struct dn_net *net;
	float *input, *truth;
	char warnings[4096];
};

/* The pass that a test makes over a net: found by the net, so that a test may change it between passes. */
#define NET_HELP_MAX 64
static struct {
	struct dn_net *net;
	struct dn_pass pass;
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
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* nets are built on several threads at once */
	bool found = false;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < NET_HELP_MAX && !found; i++) {
		found = !net_help_passes[i].net;
		if (found) {
			net_help_passes[i].net = t->net;
			net_help_passes[i].pass = pass;
		}
	}
	pthread_mutex_unlock(&lock);
	if (!found)
		CU_FAIL_FATAL("too many nets at once");
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
	const struct dn_backend *be = dn_backend_find(backend);
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

static void net_help_close(struct net_help *t)
{
	dn_log_sink(NULL, NULL);
	if (!t->dev)
		return;
	for (int i = 0; i < NET_HELP_MAX; i++)
		if (net_help_passes[i].net == t->net)
			net_help_passes[i].net = NULL;
	dn_net_destroy(t->net);
	dn_cfg_destroy(t->cfg);
	t->dev->be->close(t->dev);
	dn_free(t->input);
	dn_free(t->truth);
	t->dev = NULL;
}

/* store, memory, initial values, input U(-1, 1), truth one-hot in groups of the output or U(0, 1) */
__attribute__((unused)) static int net_help_ready(struct net_help *t, bool one_hot)
{
	struct dn_net *net = t->net;
	int64_t n = net->local * net->inputs;
	int64_t m = net->local * net->truths;
	int err = dn_local_attach(net);

	if (!err)
		err = dn_net_alloc(net);
	if (!err)
		err = net->store.ops->alloc(net->store.self, net);
	if (!err)
		err = dn_net_init_values(net);
	if (err)
		return err;
	t->input = dn_alloc_region(DN_MEM_HOST, sizeof(float) * (size_t)n);
	t->truth = dn_alloc_region(DN_MEM_HOST, sizeof(float) * (size_t)m);
	if (!t->input || !t->truth)
		return -ENOMEM;
	for (int64_t i = 0; i < n; i++)
		t->input[i] = (float)(2 * dn_rng_uniform(1, 1, (uint64_t)i) - 1);
	for (int64_t i = 0; i < m; i++)
		t->truth[i] = one_hot ? 0 : (float)dn_rng_uniform(1, 2, (uint64_t)i);
	for (int64_t i = 0; i < net->local && one_hot; i++)
		t->truth[i * net->truths + (int64_t)dn_rng_below(1, 3, (uint64_t)i, (uint64_t)net->truths)] = 1;
	/* NaN everywhere: what is read before it is written shows */
	memset(net->arena, 0xff, net->activations_bytes);
	if (net->workspace)
		memset(net->workspace, 0xff, net->workspace_bytes);
	*pass_of(net) = (struct dn_pass){ .phase = net->opt.train ? DN_TRAIN : DN_INFER, .input = t->input, .truth = t->truth };
	return 0;
}

/* floats of a layer, where the host reaches device memory */
__attribute__((unused)) static float *output_of(const struct dn_net *net, int layer)
{
	return net->layers[layer].output;
}

__attribute__((unused)) static float *delta_of(const struct dn_net *net, int layer)
{
	return net->layers[layer].delta;
}
#endif
