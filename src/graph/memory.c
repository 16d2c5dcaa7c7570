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

/* NOTE(steps): forward of layer i is step i. Behind them stand, blocks in reverse, the backward steps of a block's layers in
 * reverse, and before those, where the block is recomputed, the second forward steps. A tensor of such a block has two lives:
 * while the first forward and what reads it there want it, and from the second forward to the last reader in backward. */
struct steps {
	int *again, *back; /* [n_layers]; again -1: the layer runs forward once */
	int *block;	   /* its number; layers of another size do not know theirs yet */
};

static void steps_fini(struct steps *s)
{
	dn_free(s->again);
	dn_free(s->back);
	dn_free(s->block);
}

static int steps_make(const struct dn_net *net, struct steps *s)
{
	int t = net->n_layers;

	*s = (struct steps){ dn_calloc((size_t)net->n_layers, sizeof(*s->again)),
			     dn_calloc((size_t)net->n_layers, sizeof(*s->back)),
			     dn_calloc((size_t)net->n_layers, sizeof(*s->block)) };
	if (!s->again || !s->back || !s->block)
		return -ENOMEM;
	for (int i = net->n_blocks - 1; i >= 0; i--) {
		const struct dn_block *b = &net->blocks[i];
		const bool again = dn_block_recomputes(b);

		for (int k = b->first; k <= b->last; k++) {
			s->block[k] = i;
			s->again[k] = again && runs_again(&net->layers[k]) ? t++ : -1;
		}
		for (int k = b->last; k >= b->first; k--)
			s->back[k] = t++;
	}
	return 0;
}

static int max_int(int a, int b)
{
	return a > b ? a : b;
}

static int add_item(struct net_memory *m, size_t bytes, int first, int last, void **where, int output_of)
{
	m->items[m->n_items] = (struct dn_arena_item){ .bytes = bytes, .first = first, .last = last };
	m->output_of[m->n_items] = output_of;
	m->where[m->n_items] = where;
	return m->n_items++;
}

/* the second life of item @first_item of @layer */
static void add_second(struct net_memory *m, const struct steps *s, int first_item, int layer, int last)
{
	struct net_second *x = &m->seconds[m->n_seconds++];

	*x = (struct net_second){ .first_item = first_item,
				  .block = s->block[layer],
				  .output_of = m->output_of[first_item],
				  .where = m->where[first_item] };
	x->item = add_item(m, m->items[first_item].bytes, s->again[layer], last, NULL, -1);
}

/* When layer @l has read its inputs and its output for the last time; -1: not behind the first forward. */
static int last_read(const struct dn_layer *l, const struct steps *s)
{
	return runs_backward(l) ? s->back[l->index] : s->again[l->index];
}

/* Until its last reader: consumers' and its own forward, and the backward of each (they read x and y). @second: what readers in
 * its own block read there is the second life of a tensor that has one, 0 else. */
static void extend_outputs(struct dn_net *net, const struct steps *s, int *last, int *second)
{
	for (int i = 0; i < net->n_layers; i++) {
		const struct dn_layer *l = &net->layers[i];
		const int end = last_read(l, s);

		for (int k = -1; k < l->n_inputs; k++) {
			const int from = k < 0 ? i : l->inputs_of[k].layer;

			if (from < 0)
				continue;
			last[from] = max_int(last[from], i);
			if (s->again[from] >= 0 && s->block[from] == s->block[i])
				second[from] = max_int(second[from], max_int(end, s->again[from]));
			else
				last[from] = max_int(last[from], end);
		}
	}
	for (int i = 0; i < net->n_outputs; i++) {
		int at = net->outputs[i];

		while (net->layers[at].ops->passes_input && net->layers[at].inputs_of[0].layer >= 0)
			at = net->layers[at].inputs_of[0].layer;
		last[at] = max_int(last[at], net->n_layers - 1);
	}
}

/* Who writes a delta first: the consumer that comes first in backward, or the layer itself when it seeds it. */
static void delta_writers(struct dn_net *net, const struct steps *s, int *first)
{
	for (int i = 0; i < net->n_layers; i++)
		first[i] = net->layers[i].seeds_delta ? i : -1;
	for (int j = net->n_layers - 1; j >= 0; j--) {
		struct dn_layer *l = &net->layers[j];

		for (int k = 0; k < l->n_inputs; k++) {
			int from = l->inputs_of[k].layer;

			if (from < 0 || !net->layers[from].wants_delta)
				continue;
			l->inputs_of[k].acc = first[from] >= 0;
			if (first[from] < 0)
				first[from] = s->back[j];
		}
	}
}

static void add_buffer(const struct dn_net *net, struct net_memory *m, const struct steps *s, const struct net_buffer *b)
{
	const struct dn_layer *l = &net->layers[b->layer];
	const bool back = runs_backward(l), twice = s->again[b->layer] >= 0;
	int first = b->layer, last = first, item;

	if (back && (b->life == DN_LIFE_KEPT || (b->life == DN_LIFE_SAVED && !twice)))
		last = s->back[b->layer];
	if (back && b->life == DN_LIFE_BACKWARD) {
		last = s->back[b->layer];
		first = last;
	}
	item = add_item(m, b->bytes, first, last, b->where, -1);
	if (twice && b->life == DN_LIFE_SAVED)
		add_second(m, s, item, b->layer, max_int(last_read(l, s), s->again[b->layer]));
	if (twice && b->life == DN_LIFE_FORWARD)
		add_second(m, s, item, b->layer, s->again[b->layer]);
}

/* NOTE(tail): behind the arena of the pass lies what outlives it: the numbers of the pass, the costs of its layers, a counter,
 * what is seen of gradients, and, where the host cannot reach device memory, the input and the truth. @at (may be NULL): the places. */
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
	t->looks = n;
	if (net->opt.train && net->opt.looks)
		n += sizeof(struct dn_exact) + 2 * sizeof(int64_t) * (size_t)net->n_layers;
	t->looks_end = n;
	t->input = t->truth = n = dn_up(n, DN_ALIGN);
	if (f.host_access)
		return n;
	n += dn_up(sizeof(float) * (size_t)(net->local_batch * net->max_inputs), DN_ALIGN);
	t->truth = n;
	return n + dn_up(sizeof(float) * (size_t)(net->local_batch * net->truths), DN_ALIGN);
}

static void add_layer(struct dn_net *net, struct net_memory *m, const struct steps *s, int i, int last, int second, int writer)
{
	struct dn_layer *l = &net->layers[i];

	if (!l->ops->passes_input) {
		const int item = add_item(m, l->out.bytes, i, last, &l->output, i);

		if (s->again[i] >= 0)
			add_second(m, s, item, i, second);
	}
	if (runs_backward(l))
		add_item(m, l->out.bytes, writer < 0 ? s->back[i] : writer, s->back[i], &l->delta, -1);
}

static void forget(struct net_memory *m)
{
	dn_free(m->items);
	dn_free(m->where);
	dn_free(m->output_of);
	dn_free(m->seconds);
	m->items = NULL;
	m->where = NULL;
	m->output_of = NULL;
	m->seconds = NULL;
	m->n_items = m->n_seconds = 0;
}

int memory_plan(struct dn_net *net)
{
	struct net_priv *priv = net->priv;
	struct net_memory *m = &priv->memory;
	size_t most = 3 * (size_t)net->n_layers + 2 * (size_t)m->n_buffers, total = 0;
	int *last = dn_calloc((size_t)net->n_layers, sizeof(*last)), *second = dn_calloc((size_t)net->n_layers, sizeof(*second));
	int *first = dn_calloc((size_t)net->n_layers, sizeof(*first));
	struct steps s = { NULL };
	int err;

	forget(m);
	m->items = dn_calloc(most, sizeof(*m->items));
	m->where = dn_calloc(most, sizeof(*m->where));
	m->output_of = dn_calloc(most, sizeof(*m->output_of));
	m->seconds = dn_calloc((size_t)(net->n_layers + m->n_buffers), sizeof(*m->seconds));
	err = last && second && first && m->items && m->where && m->output_of && m->seconds ? steps_make(net, &s) : -ENOMEM;
	if (err)
		goto out;
	extend_outputs(net, &s, last, second);
	delta_writers(net, &s, first);
	for (int i = 0; i < net->n_layers; i++) {
		struct dn_layer *l = &net->layers[i];
		const bool adds = net->opt.grads_add && net->subdivisions > 1;
		const size_t larger = l->workspace_bytes > l->workspace_add_bytes ? l->workspace_bytes : l->workspace_add_bytes;
		const size_t ws = adds ? larger : dn_layer_adds(l) ? l->workspace_add_bytes : l->workspace_bytes;

		add_layer(net, m, &s, i, last[i], second[i], first[i]);
		if (ws > net->workspace_bytes)
			net->workspace_bytes = ws;
	}
	for (int i = 0; i < m->n_buffers; i++) {
		const struct net_buffer *b = &m->buffers[i];

		if (b->bytes && ((!b->train_only && b->life != DN_LIFE_BACKWARD) || net->opt.train))
			add_buffer(net, m, &s, b);
	}
	err = dn_arena_place(m->items, m->n_items, DN_ALIGN, &total);
	if (!err && total > priv->arena_bytes)
		priv->arena_bytes = total;
	net->activations_bytes = dn_up(priv->arena_bytes, DN_ALIGN) + memory_tail(net, NULL);
out:
	steps_fini(&s);
	dn_free(last);
	dn_free(second);
	dn_free(first);
	return err;
}

void memory_fini(struct net_memory *m)
{
	dn_free(m->buffers);
	forget(m);
}

static void place_buffers(struct net_memory *m, struct dn_layer *layers, int n_layers, void *arena, double *costs)
{
	for (int i = 0; i < m->n_items; i++)
		if (m->where[i])
			*m->where[i] = (char *)arena + m->items[i].offset;
	for (int i = 0; i < n_layers; i++) {
		struct dn_layer *l = &layers[i];

		if (l->ops->passes_input && l->inputs_of[0].layer >= 0)
			l->output = layers[l->inputs_of[0].layer].output;
		l->cost = l->has_cost ? costs++ : NULL;
	}
}

/* Layers of another size than the first have moved since they were planned: their outputs are found by number. */
void memory_second(struct dn_net *net, const struct dn_block *b, bool second)
{
	const struct net_memory *m = &((const struct net_priv *)net->priv)->memory;

	for (int i = 0; i < m->n_seconds; i++) {
		const struct net_second *x = &m->seconds[i];
		char *at = (char *)net->arena + m->items[second ? x->item : x->first_item].offset;

		if (x->block != b->index)
			continue;
		if (x->output_of >= 0)
			net->layers[x->output_of].output = at;
		else
			*x->where = at;
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
	bytes = priv->tail.looks_end - priv->tail.looks;
	if (!err && bytes)
		err = be->alloc_host(net->dev, DN_MEM_HOST, bytes, (void **)&priv->host_looks);
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
	priv->looks = (struct dn_exact *)(void *)(tail + priv->tail.looks);
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
