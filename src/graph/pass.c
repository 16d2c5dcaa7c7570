/* Running a net: first values, forward, backward, and the search for what is not finite. */
#include <errno.h>

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
		err = net->store.ops->each(net->store.self, net->params[i], DN_VALUE, init_interval, &arg);
	dn_net_touched(net);
	return err;
}

/* --- passes --- */

static int call(int (*hook)(void *self, struct dn_block *b), struct dn_net *net, struct dn_block *b)
{
	return hook ? hook(net->store.self, b) : 0;
}

static const struct dn_hooks no_hooks;

static const struct dn_hooks *hooks_of(const struct dn_net *net)
{
	return net->store.hooks ? net->store.hooks : &no_hooks;
}

static int check_ready(const struct dn_net *net)
{
	if (!net->arena)
		return dn_fail(-EINVAL, "net: a pass before dn_net_alloc()");
	if (net->n_params && !net->store.ops)
		return dn_fail(-EINVAL, "net: a pass without a store");
	if (net->training && !net->opt.train)
		return dn_fail(-EINVAL, "net: a training pass of a net that was built for inference");
	return 0;
}

static void sum_loss(struct dn_net *net)
{
	double sum = 0;
	int n = 0;

	for (int i = 0; i < net->n_layers; i++) {
		const struct dn_layer *l = &net->layers[i];

		if (!l->has_cost || (l->truths && l->truths != net->truths))
			continue;
		sum += l->cost;
		n++;
	}
	net->loss = n ? sum / n : 0;
}

int dn_net_forward(struct dn_net *net)
{
	const struct dn_hooks *h = hooks_of(net);
	int err = check_ready(net);

	for (int i = 0; i < net->n_blocks && !err; i++) {
		struct dn_block *b = &net->blocks[i];

		err = call(h->before_forward, net, b);
		for (int k = b->first; k <= b->last && !err; k++) {
			net->layers[k].cost = 0;
			err = net->layers[k].ops->forward(&net->layers[k]);
		}
		if (!err)
			err = call(h->after_forward, net, b);
	}
	if (!err)
		err = net->dev->be->stream_sync(net->compute); /* costs are host values */
	if (err)
		return err;
	sum_loss(net);
	return 0;
}

static bool has_consumer(const struct dn_net *net, int layer)
{
	for (int j = layer + 1; j < net->n_layers; j++)
		for (int k = 0; k < net->layers[j].n_inputs; k++)
			if (net->layers[j].inputs_of[k].layer == layer)
				return true;
	return false;
}

/* Layers overwrite their params' gradients, so what later uses of the same params have left there is kept aside and
 * added afterwards. */
static int kept_gradients(struct dn_layer *l, bool add)
{
	struct dn_net *net = l->net;
	const struct dn_backend *be = net->dev->be;
	const struct dn_layer *o = &net->layers[l->owner];
	char *at = (char *)l->kept;
	int err = 0;

	for (int i = o->first_param; i < o->first_param + o->n_params && !err && at; i++) {
		struct dn_param *p = net->params[i];
		const size_t bytes = sizeof(float) * (size_t)p->n;

		if (p->role != DN_TRAINED)
			continue;
		if (add)
			err = be->axpby(net->compute, p->n, 1, (const float *)(const void *)at, 1, p->grad);
		else
			err = be->copy(net->compute, at, p->grad, bytes);
		at += dn_up(bytes, DN_ALIGN);
	}
	return err;
}

static int backward_layer(struct dn_layer *l)
{
	struct dn_net *net = l->net;
	int err = kept_gradients(l, false);

	if (!err && !l->seeds_delta && !has_consumer(net, l->index))
		err = net->dev->be->zero(net->compute, l->delta, sizeof(float) * (size_t)(l->batch * l->outputs));
	if (!err)
		err = l->ops->backward(l);
	return err ? err : kept_gradients(l, true);
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

int dn_net_backward(struct dn_net *net)
{
	const struct dn_hooks *h = hooks_of(net);
	int first = dn_net_backward_first_block(net);
	int err = check_ready(net);

	if (!err && !net->training)
		return dn_fail(-EINVAL, "net: backward after a forward pass that was not training");
	for (int i = net->n_blocks - 1; i >= first && !err; i--) {
		struct dn_block *b = &net->blocks[i];

		err = call(h->before_backward, net, b);
		for (int k = b->last; k >= b->first && !err; k--)
			if (net->layers[k].wants_delta)
				err = backward_layer(&net->layers[k]);
		if (!err)
			err = call(h->after_backward, net, b);
	}
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
			if (net->dev->be->count_nonfinite(net->compute, l->batch * l->outputs, l->output, &n) ||
			    net->dev->be->stream_sync(net->compute))
				return l->block;
		}
		if (n)
			return l->block;
	}
	return NULL;
}
