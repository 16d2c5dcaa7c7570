/* Where each tensor of a pass lies: lifetimes over the steps of forward and backward, placed in one arena. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "graph/graph_priv.h"

static bool runs_backward(const struct dn_layer *l)
{
	return l->net->opt.train && l->wants_delta;
}

static int backward_step(const struct dn_layer *l)
{
	return 2 * l->net->n_layers - 1 - l->index;
}

static int max_int(int a, int b)
{
	return a > b ? a : b;
}

static void add_item(struct net_memory *m, size_t bytes, int first, int last, void **where, int output_of)
{
	m->items[m->n_items] = (struct dn_arena_item){ .bytes = bytes, .first = first, .last = last };
	m->output_of[m->n_items] = output_of;
	m->where[m->n_items++] = where;
}

/* Until its last reader: consumers' and its own forward, and the backward of each (they read x and y). */
static void extend_outputs(struct dn_net *net, int *last)
{
	for (int i = 0; i < net->n_layers; i++) {
		const struct dn_layer *l = &net->layers[i];
		int end = runs_backward(l) ? backward_step(l) : i;

		last[i] = max_int(last[i], end);
		for (int k = 0; k < l->n_inputs; k++)
			if (l->inputs_of[k].layer >= 0)
				last[l->inputs_of[k].layer] = max_int(last[l->inputs_of[k].layer], end);
	}
	for (int i = 0; i < net->n_outputs; i++) {
		int at = net->outputs[i];

		while (net->layers[at].ops->passes_input && net->layers[at].inputs_of[0].layer >= 0)
			at = net->layers[at].inputs_of[0].layer;
		last[at] = max_int(last[at], net->n_layers - 1);
	}
}

/* Who writes a delta first: the consumer that comes first in backward, or the layer itself when it seeds it. */
static void delta_writers(struct dn_net *net, int *first)
{
	for (int i = 0; i < net->n_layers; i++)
		first[i] = net->layers[i].seeds_delta ? i : -1;
	for (int j = net->n_layers - 1; j >= 0; j--) {
		struct dn_layer *l = &net->layers[j];

		for (int k = 0; k < l->n_inputs; k++) {
			int s = l->inputs_of[k].layer;

			if (s < 0 || !net->layers[s].wants_delta)
				continue;
			l->inputs_of[k].acc = first[s] >= 0;
			if (first[s] < 0)
				first[s] = backward_step(l);
		}
	}
}

static void buffer_life(const struct dn_net *net, const struct net_buffer *b, int *first, int *last)
{
	const struct dn_layer *l = &net->layers[b->layer];

	*first = b->layer;
	*last = b->layer;
	if (!runs_backward(l))
		return;
	if (b->life != DN_LIFE_FORWARD)
		*last = backward_step(l);
	if (b->life == DN_LIFE_BACKWARD)
		*first = *last;
}

/* NOTE(tail): behind the arena of the pass lies what outlives it: the numbers of the pass, the costs of its layers, a counter,
 * and, where the host cannot reach device memory, the input and the truth. @at (may be NULL): the places. */
size_t memory_tail(const struct dn_net *net, struct net_tail *at)
{
	struct net_tail none = { 0 }, *t = at ? at : &none;
	struct dn_facts f;
	size_t n = 0;

	net->dev->be->facts(net->dev, &f);
	t->numbers = n;
	n += dn_up(sizeof(struct dn_numbers), DN_ALIGN);
	t->n_costs = 0;
	for (int i = 0; i < net->n_layers; i++)
		t->n_costs += net->layers[i].has_cost;
	t->costs = n;
	n += dn_up(sizeof(double) * (size_t)t->n_costs, DN_ALIGN);
	t->count = n;
	n += dn_up(sizeof(int64_t), DN_ALIGN);
	t->input = t->truth = n;
	if (f.host_access)
		return n;
	n += dn_up(sizeof(float) * (size_t)(net->local_batch * net->max_inputs), DN_ALIGN);
	t->truth = n;
	return n + dn_up(sizeof(float) * (size_t)(net->local_batch * net->truths), DN_ALIGN);
}

int memory_plan(struct dn_net *net)
{
	struct net_priv *priv = net->priv;
	struct net_memory *m = &priv->memory;
	size_t most = 2 * (size_t)net->n_layers + (size_t)m->n_buffers, total = 0;
	int *last = dn_calloc((size_t)net->n_layers, sizeof(*last));
	int *first = dn_calloc((size_t)net->n_layers, sizeof(*first));
	int err = -ENOMEM;

	m->items = dn_calloc(most, sizeof(*m->items));
	m->where = dn_calloc(most, sizeof(*m->where));
	m->output_of = dn_calloc(most, sizeof(*m->output_of));
	if (!last || !first || !m->items || !m->where || !m->output_of)
		goto out;
	extend_outputs(net, last);
	delta_writers(net, first);
	for (int i = 0; i < net->n_layers; i++) {
		struct dn_layer *l = &net->layers[i];
		const size_t ws = dn_layer_adds(l) ? l->workspace_add_bytes : l->workspace_bytes;

		if (!l->ops->passes_input)
			add_item(m, l->out.bytes, i, last[i], &l->output, i);
		if (runs_backward(l))
			add_item(m, l->out.bytes, first[i] < 0 ? backward_step(l) : first[i], backward_step(l), &l->delta, -1);
		if (ws > net->workspace_bytes)
			net->workspace_bytes = ws;
	}
	for (int i = 0; i < m->n_buffers; i++) {
		const struct net_buffer *b = &m->buffers[i];
		int from, to;

		if (!b->bytes || ((b->train_only || b->life == DN_LIFE_BACKWARD) && !net->opt.train))
			continue;
		buffer_life(net, b, &from, &to);
		add_item(m, b->bytes, from, to, b->where, -1);
	}
	err = dn_arena_place(m->items, m->n_items, DN_ALIGN, &total);
	if (!err && total > priv->arena_bytes)
		priv->arena_bytes = total;
	net->activations_bytes = dn_up(priv->arena_bytes, DN_ALIGN) + memory_tail(net, NULL);
out:
	dn_free(last);
	dn_free(first);
	return err;
}

void memory_fini(struct net_memory *m)
{
	dn_free(m->buffers);
	dn_free(m->items);
	dn_free(m->where);
	dn_free(m->output_of);
}

static void place_buffers(struct net_memory *m, struct dn_layer *layers, int n_layers, void *arena, double *costs)
{
	for (int i = 0; i < m->n_items; i++)
		*m->where[i] = (char *)arena + m->items[i].offset;
	for (int i = 0; i < n_layers; i++) {
		struct dn_layer *l = &layers[i];

		if (l->ops->passes_input && l->inputs_of[0].layer >= 0)
			l->output = layers[l->inputs_of[0].layer].output;
		l->cost = l->has_cost ? costs++ : NULL;
	}
}

/* The host's side: one struct of numbers for each pass of an update and for its step, the costs of each pass. */
static int alloc_host(struct dn_net *net)
{
	struct net_priv *priv = net->priv;
	const struct dn_backend *be = net->dev->be;
	const size_t n_micro = net->opt.train ? (size_t)net->subdivisions : 1;
	size_t bytes;
	int err = dn_mul_size(n_micro + 1, sizeof(struct dn_numbers), &bytes);

	if (!err)
		err = be->alloc_host(net->dev, DN_MEM_HOST, bytes, (void **)&priv->host_numbers);
	if (!err)
		err = dn_mul_size(n_micro, sizeof(double) * (size_t)(priv->tail.n_costs + 1), &bytes);
	if (!err)
		err = be->alloc_host(net->dev, DN_MEM_HOST, bytes, (void **)&priv->host_costs);
	if (err)
		return err;
	priv->sent = dn_calloc(n_micro + 1, sizeof(*priv->sent));
	if (!priv->sent)
		return -ENOMEM;
	/* A pass records input_read up to three times and the others once. Before send_numbers() lets a microbatch begin anew, the
	 * numbers of its last pass have been read: at most two of its passes are under way. */
	if (n_micro >= INT_MAX / 8)
		return dn_fail(-EOVERFLOW, "net: %zu microbatches an update", n_micro);
	err = be->event_create(net->dev, "numbers read", 2 * (int)n_micro + 2, &priv->numbers_read);
	if (!err)
		err = be->event_create(net->dev, "input read", 6 * (int)n_micro + 6, &priv->input_read);
	return err ? err : be->event_create(net->dev, "costs", 2 * (int)n_micro + 2, &priv->costs_read);
}

int dn_net_alloc(struct dn_net *net)
{
	struct net_priv *priv = net->priv;
	const struct dn_backend *be = net->dev->be;
	bool pack = !net->opt.train && net->store.ops && net->store.constant && priv->n_packed;
	size_t ws = dn_up(net->workspace_bytes, DN_ALIGN);
	size_t at = ws;
	int err = net->arena ? dn_fail(-EINVAL, "net: allocated twice") : dn_net_check_keys(net);
	char *tail;

	if (!err)
		err = be->alloc(net->dev, DN_MEM_ACTIVATIONS, net->activations_bytes, &net->arena);
	if (err)
		return err;
	if (pack)
		net->workspace_bytes = ws + priv->packed_bytes;
	(void)memory_tail(net, &priv->tail);
	if (net->workspace_bytes)
		err = be->alloc(net->dev, DN_MEM_WORKSPACE, net->workspace_bytes, &net->workspace);
	if (!err)
		err = alloc_host(net);
	if (!err)
		err = carries_alloc(net);
	if (err) {
		be->free(net->dev, net->arena);
		net->arena = NULL;
		return err;
	}
	tail = (char *)net->arena + dn_up(priv->arena_bytes, DN_ALIGN);
	net->numbers = (const struct dn_numbers *)(const void *)(tail + priv->tail.numbers);
	priv->costs = (double *)(void *)(tail + priv->tail.costs);
	priv->count = (int64_t *)(void *)(tail + priv->tail.count);
	priv->input = (float *)(void *)(tail + priv->tail.input);
	priv->truth = (float *)(void *)(tail + priv->tail.truth);
	place_buffers(&priv->memory, net->layers, net->n_layers, net->arena, priv->costs);
	for (int i = 1; i < priv->n_shapes; i++)
		place_buffers(&priv->shapes[i].memory, priv->shapes[i].layers, net->n_layers, net->arena, priv->costs);
	for (int i = 0; i < priv->n_packed && pack; i++) {
		*priv->packed[i].where = (char *)net->workspace + at;
		at += dn_up(priv->packed[i].bytes, DN_ALIGN);
	}
	return 0;
}
