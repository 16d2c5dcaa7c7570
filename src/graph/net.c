/* A net from a cfg: sections become layers in order, then blocks and the memory plan. No tensor memory yet. */
#include "graph/net.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "graph/graph_priv.h"

static bool is_block(const struct dn_section *s)
{
	return !strcmp(s->name, "block");
}

/* A section of a plugin: claimed by name, or every key of it has been asked for. */
static bool is_plugin(const struct dn_cfg *cfg, const struct dn_section *s)
{
	if (dn_cfg_is_claimed(cfg, s->name))
		return true;
	for (int i = 0; i < s->n_keys; i++)
		if (!s->keys[i].used)
			return false;
	return s->n_keys > 0;
}

/* Counts layers (first_of[i]: before section i) and finds the last stopbackward=1. */
static int scan(struct dn_net *net, int *first_of)
{
	int *stop = &((struct net_priv *)net->priv)->stop;
	struct dn_keyfile *f = net->cfg->file;
	char names[1024];

	*stop = -1;
	for (int i = 1; i < f->n_sections; i++) {
		struct dn_section *s = &f->sections[i];
		int64_t v;
		int err;

		first_of[i] = net->n_layers;
		if (is_block(s) || (!dn_layer_find(s->name) && is_plugin(net->cfg, s)))
			continue;
		if (!dn_layer_find(s->name))
			return dn_section_fail(s, NULL, -ENOTSUP, "is not supported in this version; layers are %s",
					       layer_names(names, sizeof(names)));
		if (net->n_layers == NET_MAX_LAYERS)
			return dn_section_fail(s, NULL, -EINVAL, "more than %d layers", NET_MAX_LAYERS);
		err = dn_key_int(s, "stopbackward", &v);
		if (err)
			return err;
		if (v)
			*stop = net->n_layers;
		net->n_layers++;
	}
	if (!net->n_layers)
		return dn_section_fail(net->cfg->net, NULL, -EINVAL, "no layers follow");
	return 0;
}

int net_build_layers(struct dn_net *net)
{
	const int stop = ((struct net_priv *)net->priv)->stop;
	struct dn_keyfile *f = net->cfg->file;
	bool frozen = false; /* this block */
	int n = 0;

	net->layers = dn_calloc((size_t)net->n_layers, sizeof(*net->layers));
	if (!net->layers)
		return -ENOMEM;
	for (int i = 1; i < f->n_sections; i++) {
		struct dn_section *s = &f->sections[i];
		const struct dn_layer_ops *ops = is_block(s) ? NULL : dn_layer_find(s->name);
		struct dn_layer *l = &net->layers[n];
		int64_t v;
		int err;

		if (is_block(s)) {
			err = dn_key_int(s, "frozen", &v);
			if (err)
				return err;
			frozen = v;
		}
		if (!ops)
			continue;
		l->ops = ops;
		l->net = net;
		l->section = s;
		l->index = n;
		l->frozen = n <= stop || frozen;
		err = layer_build(net, n, s);
		if (err)
			return err;
		if (l->flops > NET_MAX_FLOPS - net->flops)
			return dn_section_fail(s, NULL, -EOVERFLOW,
					       "layer %d: more than 2^62 operations for one image up to here", n);
		net->flops += l->flops;
		n++;
	}
	return 0;
}

/* The output layer is the last that is not [cost]; every loss wants the same target. Outputs without training need no target:
 * a loss of another length then only computes its output. */
int net_find_output(struct dn_net *net)
{
	const struct dn_layer *last = &net->layers[net->n_layers - 1];

	net->output_layer = net->n_layers - 1;
	while (net->output_layer >= 0 && net->layers[net->output_layer].ops->passes_input)
		net->output_layer--;
	if (net->output_layer < 0)
		return dn_section_fail(last->section, NULL, -EINVAL, "the net has no other layers");
	net->truths = last->truths ? last->truths : last->outputs;
	for (int i = 0; i < net->n_layers; i++) {
		const struct dn_layer *l = &net->layers[i];

		if (net->opt.train && l->truths && l->truths != net->truths)
			return dn_section_fail(l->section, NULL, -EINVAL,
					       "layer %d wants a target of %lld numbers, the last layer's "
					       "has %lld (noloss=1 makes a [softmax] that needs none)",
					       i, (long long)l->truths, (long long)net->truths);
	}
	if (!net->outputs)
		net->outputs = dn_calloc((size_t)(net->n_layers + net->opt.n_keep), sizeof(*net->outputs));
	if (!net->outputs)
		return -ENOMEM;
	net->outputs[0] = net->output_layer;
	net->n_outputs = 1;
	for (int i = 0; i < net->n_layers && net->opt.needs; i++)
		if (i != net->output_layer && net->opt.needs(&net->layers[i]))
			net->outputs[net->n_outputs++] = i;
	for (int i = 0; i < net->opt.n_keep; i++) {
		if (net->opt.keep[i] < 0 || net->opt.keep[i] >= net->n_layers)
			return dn_fail(-EINVAL, "layer %d: the net has layers 0 to %d", net->opt.keep[i], net->n_layers - 1);
		net->outputs[net->n_outputs++] = net->opt.keep[i];
	}
	return 0;
}

/* Warns of keys that nobody asked for. [block]'s wait for the plugin (dn_net_check_keys); claimed sections are not
 * ours to judge. A second net from the same cfg does not warn again. */
static int check_unused(struct dn_net *net)
{
	struct dn_keyfile *f = net->cfg->file;
	int n = 0;
	bool *unused;
	int err;

	for (int i = 1; i < f->n_sections; i++)
		if (is_block(&f->sections[i]))
			n += f->sections[i].n_keys;
	unused = dn_calloc((size_t)n, sizeof(*unused));
	if (!unused)
		return -ENOMEM;
	n = 0;
	for (int i = 1; i < f->n_sections; i++) {
		struct dn_section *s = &f->sections[i];

		for (int k = 0; k < s->n_keys; k++) {
			if (is_block(s))
				unused[n++] = !s->keys[k].used;
			if (is_block(s) || dn_cfg_is_claimed(net->cfg, s->name))
				s->keys[k].used = true;
		}
	}
	err = dn_keyfile_unused(f);
	n = 0;
	for (int i = 1; i < f->n_sections; i++) {
		struct dn_section *s = &f->sections[i];

		for (int k = 0; k < s->n_keys; k++)
			s->keys[k].used = !is_block(s) || !unused[n++];
	}
	for (int k = 0; k < f->sections[0].n_keys; k++)
		f->sections[0].keys[k].used = true;
	dn_free(unused);
	return err;
}

int dn_net_build(struct dn_net **out, struct dn_cfg *cfg, struct dn_device *dev, const struct dn_net_options *opt)
{
	struct dn_net *net = dn_zalloc(sizeof(*net));
	int *first_of = NULL;
	int err = -ENOMEM;

	if (!net)
		return err;
	net->cfg = cfg;
	net->dev = dev;
	net->opt = *opt;
	net->priv = dn_zalloc(sizeof(struct net_priv));
	first_of = dn_calloc((size_t)cfg->file->n_sections, sizeof(*first_of));
	if (!net->priv || !first_of)
		goto err_destroy;
	err = scan(net, first_of);
	if (!err)
		err = net_keys_read(net);
	if (!err)
		err = net_batches(net);
	net->max_inputs = net->inputs;
	if (!err && net->local_batch > NET_MAX_COUNT / net->inputs)
		err = dn_section_fail(cfg->net, NULL, -EOVERFLOW, "%lld images of %lld numbers are more than 2^40 elements",
				      (long long)net->local_batch, (long long)net->inputs);
	if (!err)
		err = dev->be->stream_create(dev, DN_STREAM_COMPUTE, "compute", 0, &net->compute);
	if (!err)
		err = net_build_layers(net);
	if (!err)
		err = net_find_output(net);
	if (!err)
		err = block_build(net, first_of);
	if (!err)
		err = memory_plan(net);
	if (!err)
		err = check_unused(net);
	if (err)
		goto err_destroy;
	dn_free(first_of);
	*out = net;
	return 0;

err_destroy:
	dn_free(first_of);
	dn_net_destroy(net);
	return err;
}

void dn_net_destroy(struct dn_net *net)
{
	struct net_priv *priv;

	if (!net)
		return;
	priv = net->priv;
	if (net->compute) /* queued work names what goes now */
		net->dev->be->stream_abort(net->compute);
	if (net->store.ops && net->store.ops->destroy)
		net->store.ops->destroy(net->store.self);
	for (int i = 0; i < net->n_layers && net->layers; i++)
		layer_fini(&net->layers[i]);
	if (priv)
		shapes_destroy(net);
	dn_free(net->layers);
	for (int i = 0; i < net->n_params; i++)
		dn_free(net->params[i]);
	dn_free(net->params);
	dn_free(net->blocks);
	dn_free(net->outputs);
	dn_free(net->hyper.steps);
	dn_free(net->hyper.scales);
	if (net->arena)
		net->dev->be->free(net->dev, net->arena);
	if (net->workspace)
		net->dev->be->free(net->dev, net->workspace);
	if (priv) {
		net->dev->be->free_host(net->dev, priv->host_looks);
		net->dev->be->free_host(net->dev, priv->host_numbers);
		net->dev->be->free_host(net->dev, priv->host_costs);
		dn_free(priv->sent);
		net->dev->be->event_destroy(priv->numbers_read);
		net->dev->be->event_destroy(priv->input_read);
		net->dev->be->event_destroy(priv->costs_read);
	}
	if (priv)
		carries_destroy(net);
	if (net->compute)
		net->dev->be->stream_destroy(net->compute);
	if (priv) {
		memory_fini(&priv->memory);
		dn_free(priv->packed);
		dn_free(priv);
	}
	dn_free(net);
}

const char *dn_time_name(enum dn_time t)
{
	static const char *const names[DN_TIMES] = {
		[DN_TIME_FORWARD] = "forward",
		[DN_TIME_GATHER_WAIT] = "gather_wait",
		[DN_TIME_BACKWARD] = "backward",
		[DN_TIME_REDUCE_WAIT] = "reduce_wait",
		[DN_TIME_EXCHANGE_WAIT] = "exchange_wait",
		[DN_TIME_OPTIMIZER] = "optimizer",
	};

	return names[t];
}
