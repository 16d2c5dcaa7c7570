/* Running a net: first values, forward, backward, and the search for what is not finite. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "graph/graph_priv.h"

/* --- first values --- */

struct init_arg {
	uint64_t seed;
};

static int init_interval(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	const uint64_t seed = ((const struct init_arg *)arg)->seed;
	const uint64_t stream = DN_RNG_STREAM(DN_RNG_INIT, p->id);

	for (int64_t i = 0; i < n; i++) {
		const uint64_t e = (uint64_t)(at + i);

		switch (p->init.kind) {
		case DN_INIT_CONST:
			x[i] = (float)p->init.a;
			break;
		case DN_INIT_NORMAL:
			x[i] = (float)(p->init.a * dn_rng_normal(seed, stream, e));
			break;
		case DN_INIT_UNIFORM:
			x[i] = (float)(p->init.a * (2 * dn_rng_uniform(seed, stream, e) - 1));
			break;
		}
	}
	return 0;
}

void dn_net_touched(struct dn_net *net)
{
	net->values_version++;
	if (net->store.ops->touched)
		net->store.ops->touched(net->store.self);
}

int dn_net_init_values(struct dn_net *net)
{
	struct init_arg arg = { net->opt.seed };
	int err = 0;

	if (!net->store.ops)
		return dn_fail(-EINVAL, "net: no store to initialise");
	for (int i = 0; i < net->n_params && !err; i++)
		err = net->store.ops->each(net->store.self, net->params[i], DN_VALUE, DN_WRITE, init_interval, &arg);
	dn_net_touched(net);
	return err;
}

/* --- passes --- */

static int call(int (*hook)(void *self, struct dn_block *b, const struct dn_pass *pass), struct dn_net *net, struct dn_block *b,
		const struct dn_pass *pass)
{
	return hook ? hook(net->store.self, b, pass) : 0;
}

static const struct dn_hooks no_hooks;

static const struct dn_hooks *hooks_of(const struct dn_net *net)
{
	return net->store.hooks ? net->store.hooks : &no_hooks;
}

static int check_ready(const struct dn_net *net, const struct dn_pass *pass)
{
	if (!net->arena)
		return dn_fail(-EINVAL, "net: a pass before dn_net_alloc()");
	if (net->n_params && !net->store.ops)
		return dn_fail(-EINVAL, "net: a pass without a store");
	if (pass->classes && pass->truth)
		return dn_fail(-EINVAL, "net: a pass with both classes and numbers as its target");
	if (pass->phase != DN_INFER && !net->opt.train)
		return dn_fail(-EINVAL, "net: a training pass of a net that was built for inference");
	if (pass->micro < 0 || pass->micro >= (net->opt.train ? net->subdivisions : 1))
		return dn_fail(-EINVAL, "net: microbatch %lld of an update of %lld", (long long)pass->micro,
			       (long long)(net->opt.train ? net->subdivisions : 1));
	return 0;
}

/* Each place on the host is written anew when what it held has left it: after an update that was waited for, at once. */
static int send_numbers(struct dn_net *net, int64_t place, const struct dn_numbers *num)
{
	struct net_priv *priv = net->priv;
	const struct dn_backend *be = net->dev->be;
	int err = priv->sent[place] ? be->event_wait(priv->numbers_read) : 0;

	if (err)
		return err;
	if (priv->sent[place])
		memset(priv->sent, 0, sizeof(*priv->sent) * (size_t)((net->opt.train ? net->subdivisions : 1) + 1));
	priv->sent[place] = true;
	priv->host_numbers[place] = *num;
	err = be->copy(net->compute, (void *)(uintptr_t)net->numbers, &priv->host_numbers[place], sizeof(*num));
	return err ? err : be->event_record(priv->numbers_read, net->compute);
}

/* The pass as its layers see it: pointers of the device. Where the host reaches device memory they are the caller's own. */
static int to_device(struct dn_net *net, const struct dn_pass *pass, bool send, struct dn_pass *out)
{
	struct net_priv *priv = net->priv;
	const struct dn_backend *be = net->dev->be;
	const void *truth = pass->classes ? (const void *)pass->classes : pass->truth;
	size_t x = net->layers[0].in.bytes,
	       t = (size_t)net->local_batch * (pass->classes ? sizeof(int32_t) : sizeof(float) * (size_t)net->truths);
	int err = 0;

	*out = *pass;
	if (priv->tail.input == priv->tail.truth)
		return 0;
	if (pass->input)
		out->input = priv->input;
	if (pass->classes)
		out->classes = (const int32_t *)(const void *)priv->truth;
	else if (pass->truth)
		out->truth = priv->truth;
	if (send && pass->input)
		err = be->copy(net->compute, priv->input, pass->input, x);
	if (!err && send && truth)
		err = be->copy(net->compute, priv->truth, truth, t);
	return err ? err : be->event_record(priv->input_read, net->compute);
}

static int begin_forward(struct dn_net *net, const struct dn_pass *pass, struct dn_pass *dev)
{
	const struct net_priv *priv = net->priv;
	const struct dn_numbers num = { .seed = net->opt.seed, .first_image = pass->first_image, .factor = 1, .images = 1 };
	int err = send_numbers(net, pass->micro, &num);

	((struct net_priv *)net->priv)->first_image = pass->first_image;

	if (!err && priv->tail.n_costs)
		err = net->dev->be->zero(net->compute, priv->costs, sizeof(double) * (size_t)priv->tail.n_costs);
	return err ? err : to_device(net, pass, true, dev);
}

/* The costs go to the host behind the pass; who wants them waits for the event. */
static int end_forward(struct dn_net *net, const struct dn_pass *pass)
{
	struct net_priv *priv = net->priv;
	const size_t n = (size_t)priv->tail.n_costs;
	const struct dn_backend *be = net->dev->be;
	int err = pass->phase == DN_INFER ? carries_next(net, DN_INFER) : 0;

	if (!err && n)
		err = be->copy(net->compute, priv->host_costs + (size_t)pass->micro * n, priv->costs, sizeof(double) * n);
	if (!err)
		err = be->event_record(priv->costs_read, net->compute);
	return err || priv->tail.input != priv->tail.truth ? err : be->event_record(priv->input_read, net->compute);
}

int dn_net_forward(struct dn_net *net, const struct dn_pass *pass)
{
	const struct dn_hooks *h = hooks_of(net);
	struct dn_pass dev = { 0 };
	int err = check_ready(net, pass);

	if (!err)
		err = begin_forward(net, pass, &dev);
	for (int i = 0; i < net->n_blocks && !err; i++) {
		struct dn_block *b = &net->blocks[i];

		err = call(h->before_forward, net, b, pass);
		for (int k = b->first; k <= b->last && !err && !net->no_compute; k++)
			err = net->layers[k].ops->forward(&net->layers[k], &dev);
		if (!err)
			err = call(h->after_forward, net, b, pass);
	}
	return err ? err : end_forward(net, pass);
}

void dn_net_drain(struct dn_net *net)
{
	char kept[2048];

	if (!net)
		return;
	snprintf(kept, sizeof(kept), "%s", dn_message());
	if (!net->dev->be->stream_sync(net->compute))
		return;
	net->dev->be->stream_abort(net->compute);
	dn_fail(-ECANCELED, "%s", kept);
}

int dn_net_input_wait(struct dn_net *net)
{
	const struct net_priv *priv = net->priv;

	return priv->input_read ? net->dev->be->event_wait(priv->input_read) : 0;
}

/* Layers that want another target than the net's are computed for their outputs only. */
int dn_net_loss(struct dn_net *net, const struct dn_pass *pass, double *out)
{
	const struct net_priv *priv = net->priv;
	const double *cost = priv->host_costs + (size_t)pass->micro * (size_t)priv->tail.n_costs;
	double sum = 0;
	int n = 0;
	int err = net->dev->be->event_wait(priv->costs_read);

	if (err)
		return err;
	for (int i = 0; i < net->n_layers; i++) {
		const struct dn_layer *l = &net->layers[i];

		if (!l->has_cost)
			continue;
		if (!l->truths || l->truths == net->truths) {
			sum += *cost;
			n++;
		}
		cost++;
	}
	*out = n ? sum / n : 0;
	return 0;
}

int dn_net_numbers(struct dn_net *net, const struct dn_update *u)
{
	const struct dn_numbers num = {
		.seed = net->opt.seed,
		.first_image = ((const struct net_priv *)net->priv)->first_image, /* a backward pass may follow */
		.rate = u->rate,
		.images = (double)u->images,
		.factor = u->factor > 0 ? u->factor : 1,
		.correct1 = 1 / (1 - pow(u->beta1, (double)u->step)),
		.correct2 = 1 / (1 - pow(u->beta2, (double)u->step)),
	};

	return send_numbers(net, net->opt.train ? net->subdivisions : 1, &num);
}

int dn_net_skip(struct dn_net *net)
{
	return net->store.ops->skip(net->store.self, net);
}

/* --- looking at gradients --- */

static size_t looks_bytes(const struct net_priv *priv)
{
	return priv->tail.looks_end - priv->tail.looks;
}

int dn_net_look_begin(struct dn_net *net)
{
	const struct net_priv *priv = net->priv;

	if (!looks_bytes(priv))
		return dn_fail(-EINVAL, "net: built without a place for what is seen of gradients");
	return net->dev->be->zero(net->compute, priv->looks, looks_bytes(priv));
}

int dn_net_look(struct dn_net *net, const struct dn_look_desc *d, int block, bool sum, bool counted, int64_t n, float *x)
{
	const struct net_priv *priv = net->priv;
	int64_t *bad = (int64_t *)(void *)(priv->looks + 1) + (sum ? net->n_layers : 0) + block;

	if (!n)
		return 0;
	if (!net->dev->be->look)
		return dn_fail(-ENOTSUP, "backend %s cannot look at gradients", net->dev->be->name);
	return net->dev->be->look(net->compute, DN_F32, n, d, x, sum && counted ? priv->looks : NULL, bad);
}

int dn_net_looked(struct dn_net *net, struct dn_looked *out)
{
	const struct net_priv *priv = net->priv;
	const struct dn_exact *sum = priv->host_looks;
	const int64_t *bad = (const int64_t *)(const void *)(sum + 1);
	uint32_t bits;
	float max;
	int err = net->dev->be->copy(net->compute, priv->host_looks, priv->looks, looks_bytes(priv));

	if (!err)
		err = net->dev->be->stream_sync(net->compute);
	if (err)
		return err;
	for (int k = 0; k < DN_EXACT_WORDS; k++)
		out->word[k] = (double)sum->word[k];
	bits = (uint32_t)sum->max;
	memcpy(&max, &bits, sizeof(max)); /* host memory */
	out->max = (double)max;
	out->before = out->after = -1;
	for (int i = 0; i < net->n_blocks; i++) {
		out->before = bad[i] ? i : out->before;
		out->after = bad[net->n_layers + i] ? i : out->after;
	}
	return 0;
}

/* The gradients with which backward begins are there since forward. */
static int scale_losses(const struct dn_net *net)
{
	int err = 0;

	if (!(net->loss_scale > 0))
		return 0;
	for (int i = 0; i < net->n_layers && !err; i++) {
		const struct dn_layer *l = &net->layers[i];

		if (l->seeds_delta && l->delta && l->wants_delta)
			err = net->dev->be->axpby(net->compute, l->out.type, dn_tensor_count(&l->out), net->loss_scale, l->delta,
						  0, l->delta);
	}
	return err;
}

int dn_net_update_ready(struct dn_net *net, const struct dn_update *u)
{
	int err = u ? dn_net_numbers(net, u) : 0;

	if (!net->opt.update_early)
		return dn_fail(-EINVAL, "net: built for updates behind the whole step");
	return err || !net->store.ops->ready ? err : net->store.ops->ready(net->store.self, net, u);
}

int dn_net_update(struct dn_net *net, const struct dn_update *u)
{
	int err = net->opt.update_early ? 0 : dn_net_numbers(net, u); /* else they are there */

	if (!err)
		err = net->store.ops->step(net->store.self, net, u);
	return err ? err : carries_next(net, DN_TRAIN);
}

static bool has_consumer(const struct dn_net *net, int layer)
{
	for (int j = layer + 1; j < net->n_layers; j++)
		for (int k = 0; k < net->layers[j].n_inputs; k++)
			if (net->layers[j].inputs_of[k].layer == layer)
				return true;
	return false;
}

static int backward_layer(struct dn_layer *l, const struct dn_pass *pass)
{
	struct dn_net *net = l->net;
	int err = 0;

	if (!l->seeds_delta && !has_consumer(net, l->index))
		err = net->dev->be->zero(net->compute, l->delta, l->out.bytes);
	return err ? err : l->ops->backward(l, pass);
}

/* Weight gradients come before deltas of inputs: whoever waits for them need not wait for the rest. */
static int backward_block(struct dn_net *net, struct dn_block *b, const struct dn_pass *pass, const struct dn_pass *dev)
{
	const int end = dn_block_gradients_end(b);
	int err = 0;

	for (int k = b->last; k >= b->first && !err; k--) {
		struct dn_layer *l = &net->layers[k];
		const bool runs = l->wants_delta && !net->no_compute;

		if (runs)
			err = backward_layer(l, dev);
		if (!err && k == end)
			err = call(hooks_of(net)->after_gradients, net, b, pass);
		if (!err && runs && l->ops->backward_input)
			err = l->ops->backward_input(l, dev);
	}
	return err;
}

static int backward_first_layer(const struct dn_net *net)
{
	int i = 0;

	while (i < net->n_layers && !net->layers[i].wants_delta)
		i++;
	return i;
}

int dn_net_backward_first_block(const struct dn_net *net)
{
	int i = backward_first_layer(net);

	return i == net->n_layers ? net->n_blocks : net->layers[i].block->index;
}

/* What the block has made in forward, made again where backward looks for it. */
static int forward_again(struct dn_net *net, const struct dn_block *b, const struct dn_pass *pass)
{
	struct dn_pass again = *pass;
	int err = 0;

	again.again = true;
	memory_second(net, b, true);
	for (int k = b->first; k <= b->last && !err; k++)
		if (runs_again(&net->layers[k]))
			err = net->layers[k].ops->forward(&net->layers[k], &again);
	return err;
}

int dn_net_backward(struct dn_net *net, const struct dn_pass *pass)
{
	const struct net_priv *priv = net->priv;
	const struct dn_hooks *h = hooks_of(net);
	int first = dn_net_backward_first_block(net);
	struct dn_pass dev = { 0 };
	int err = check_ready(net, pass);

	if (!err && pass->phase != DN_TRAIN)
		return dn_fail(-EINVAL, "net: backward after a forward pass that was not training");
	if (!err)
		err = to_device(net, pass, false, &dev);
	if (!err)
		err = scale_losses(net);
	for (int i = net->n_blocks - 1; i >= first && !err; i--) {
		struct dn_block *b = &net->blocks[i];

		const bool twice = dn_block_recomputes(b) && !net->no_compute;

		err = call(h->before_backward, net, b, pass);
		if (!err && twice)
			err = forward_again(net, b, &dev);
		if (!err)
			err = backward_block(net, b, pass, &dev);
		if (twice)
			memory_second(net, b, false);
		if (!err)
			err = call(h->after_backward, net, b, pass);
	}
	return err || priv->tail.input != priv->tail.truth ? err : net->dev->be->event_record(priv->input_read, net->compute);
}

static int count_nonfinite(struct dn_net *net, const struct dn_layer *l, int64_t *out)
{
	struct net_priv *priv = net->priv;
	const struct dn_backend *be = net->dev->be;
	double *host = priv->host_costs + (size_t)(net->opt.train ? net->subdivisions : 1) * (size_t)priv->tail.n_costs;
	int err = be->count_nonfinite(net->compute, l->out.type, dn_tensor_count(&l->out), l->output, priv->count);

	if (!err)
		err = be->copy(net->compute, host, priv->count, sizeof(*out));
	if (!err)
		err = be->stream_sync(net->compute);
	if (!err)
		memcpy(out, host, sizeof(*out)); /* host memory */
	return err;
}

/* Outputs that have given way to later tensors are not looked at; in training all up to the loss are there. */
struct dn_block *dn_net_nonfinite_block(struct dn_net *net)
{
	const struct net_memory *m = &((const struct net_priv *)net->priv)->memory;

	if (!net->arena)
		return NULL;
	for (int i = 0; i < net->n_layers; i++) {
		struct dn_layer *l = &net->layers[i];
		int64_t n = 0;

		for (int k = 0; k < m->n_items; k++) {
			if (m->output_of[k] != i || m->items[k].last < net->n_layers - 1)
				continue;
			if (count_nonfinite(net, l, &n))
				return l->block;
		}
		if (n)
			return l->block;
	}
	return NULL;
}
