/* Blocks of a net: from [block] markers, one for all, or those that a plugin's policy sets. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "graph/graph_priv.h"

const struct dn_key_rule dn_block_keys[] = {
	{ "name", DN_KEY_TEXT, .otherwise = "blockN, where N is its number",
	  .help = "unique, at most 63 characters, without / . and ," },
	{ "recompute", DN_KEY_INT, "0", 0, 1,
	  .help = "1: training keeps the block's input alone, and backward runs its forward again: less memory, the same results" },
	{ "frozen", DN_KEY_INT, "0", 0, 1,
	  .help = "1: the params of the block stay as they are, rolling statistics too; backward passes through it",
	  .resume = DN_RESUME_ANY },
	{ .key = NULL },
};

/* Fails with the marker's line where there is one. */
static int name_fail(const struct dn_block *b, const char *why)
{
	if (b->section)
		return dn_section_fail(b->section, dn_section_find(b->section, "name") ? "name" : NULL, -EINVAL, "name=%s: %s",
				       b->name, why);
	return dn_fail(-EINVAL, "block %d: name \"%s\": %s", b->index, b->name, why);
}

/* A NULL name takes the default, which counts as used. */
static int block_name(struct dn_block *all, struct dn_block *b, const char *name)
{
	if (!name) {
		snprintf(b->name, sizeof(b->name), "block%d", b->index);
	} else {
		snprintf(b->name, sizeof(b->name), "%s", name);
		if (strlen(name) >= sizeof(b->name))
			return name_fail(b, "longer than 63 characters");
		if (!*name)
			return name_fail(b, "empty");
		if (strpbrk(name, "/.,"))
			return name_fail(b, "must not contain '/', '.' or ','");
	}
	for (struct dn_block *o = all; o < b; o++)
		if (!strcmp(o->name, b->name))
			return name_fail(b, "another block has this name already");
	return 0;
}

bool dn_param_spans_blocks(const struct dn_param *p)
{
	const struct dn_net *net = p->layer->net;

	for (int i = p->layer->index + 1; i < net->n_layers; i++)
		if (net->layers[i].owner == p->layer->index && net->layers[i].block != p->block)
			return true;
	return false;
}

bool dn_net_may_start_block(const struct dn_net *net, int layer)
{
	for (int i = layer; i < net->n_layers; i++)
		if (net->layers[i].owner < layer)
			return false;
	return true;
}

static void blocks_own(struct dn_net *net)
{
	for (int i = 0; i < net->n_blocks; i++) {
		struct dn_block *b = &net->blocks[i];

		b->last = i + 1 < net->n_blocks ? b[1].first - 1 : net->n_layers - 1;
		for (int k = b->first; k <= b->last; k++)
			net->layers[k].block = b;
	}
	for (int i = 0; i < net->n_params; i++)
		net->params[i]->block = net->params[i]->layer->block;
}

int block_build(struct dn_net *net, const int *first_of)
{
	const struct dn_keyfile *f = net->cfg->file;
	struct net_priv *priv = net->priv;
	struct dn_block *all;
	int64_t again;
	int n = 0;
	int err;

	for (int i = 1; i < f->n_sections; i++) {
		if (strcmp(f->sections[i].name, "block"))
			continue;
		n++;
		for (int k = i + 1;; k++) {
			bool end = k == f->n_sections || !strcmp(f->sections[k].name, "block");

			if (!end)
				continue;
			if (first_of[i] == (k == f->n_sections ? net->n_layers : first_of[k]))
				return dn_section_fail(&f->sections[i], NULL, -EINVAL, "no layer follows before the %s",
						       k == f->n_sections ? "end of the cfg" : "next [block]");
			break;
		}
	}
	priv->has_markers = n > 0;
	all = dn_calloc((size_t)n + 1, sizeof(*all));
	if (!all)
		return -ENOMEM;
	n = 0;
	if (!priv->has_markers)
		snprintf(all[n++].name, sizeof(all[0].name), "net");
	for (int i = 1; i < f->n_sections; i++) {
		struct dn_section *s = &f->sections[i];
		struct dn_block *b;

		if (strcmp(s->name, "block"))
			continue;
		if (!n && first_of[i])
			snprintf(all[n++].name, sizeof(all[0].name), "head");
		b = &all[n];
		b->index = n++;
		b->first = first_of[i];
		b->section = s;
		err = block_name(all, b, dn_key_text(s, "name"));
		if (!err)
			err = dn_key_int(s, "recompute", &again);
		b->recompute = !err && again;
		if (err) {
			dn_free(all);
			return err;
		}
	}
	for (int i = 0; i < n; i++)
		all[i].net = net;
	net->blocks = all;
	net->n_blocks = n;
	blocks_own(net);
	return 0;
}

int dn_net_set_blocks(struct dn_net *net, int n, const int *first, const char *const *names)
{
	struct dn_block *all;
	bool again = false;
	int err;

	if (n < 1 || n > net->n_layers)
		return dn_fail(-EINVAL, "%d blocks for a net of %d layers", n, net->n_layers);
	for (int i = 0; i < n; i++)
		if (first[i] >= net->n_layers || (i ? first[i] <= first[i - 1] : first[i] != 0))
			return dn_fail(-EINVAL,
				       "block %d cannot start at layer %d: the first starts at 0, the others ascend, and "
				       "the net has %d layers",
				       i, first[i], net->n_layers);
	all = dn_calloc((size_t)n, sizeof(*all));
	if (!all)
		return -ENOMEM;
	for (int i = 0; i < n; i++) {
		struct dn_block *b = &all[i];

		b->net = net;
		b->index = i;
		b->first = first[i];
		err = block_name(all, b, names ? names[i] : NULL);
		if (err) {
			dn_free(all);
			return err;
		}
	}
	for (int i = 0; i < net->n_blocks; i++)
		again = again || net->blocks[i].recompute;
	dn_free(net->blocks);
	net->blocks = all;
	net->n_blocks = n;
	blocks_own(net);
	return again ? shapes_plan(net) : 0;
}

int dn_net_set_recompute(struct dn_net *net, const bool *recompute)
{
	if (net->arena)
		return dn_fail(-EINVAL, "net: blocks to recompute must be chosen before its memory is allocated");
	for (int i = 0; i < net->n_blocks; i++)
		net->blocks[i].recompute = recompute[i];
	return shapes_plan(net);
}

static bool learns(const struct dn_layer *l)
{
	const struct dn_net *net = l->net;
	const struct dn_layer *o = &net->layers[l->owner];

	for (int i = o->first_param; l->wants_delta && i < o->first_param + o->n_params; i++)
		if (net->params[i]->role == DN_TRAINED && !net->params[i]->frozen)
			return true;
	return false;
}

static bool gives_delta(const struct dn_layer *l)
{
	for (int k = 0; k < l->n_inputs; k++)
		if (l->inputs_of[k].layer >= 0 && l->net->layers[l->inputs_of[k].layer].wants_delta)
			return true;
	return false;
}

int dn_block_gradients_end(const struct dn_block *b)
{
	const struct dn_net *net = b->net;
	bool goes_on = false;

	for (int k = b->first; k <= b->last && net->opt.train; k++) {
		const struct dn_layer *l = &net->layers[k];

		if (learns(l))
			return goes_on || (l->ops->backward_input && gives_delta(l)) ? k : -1;
		goes_on |= l->wants_delta;
	}
	return -1;
}

bool dn_block_recomputes(const struct dn_block *b)
{
	/* where backward begins: everything behind the first layer that learns has one */
	for (int k = 0; k <= b->last && b->recompute && b->net->opt.train; k++)
		if (b->net->layers[k].wants_delta)
			return true;
	return false;
}

bool dn_net_has_markers(const struct dn_net *net)
{
	return ((const struct net_priv *)net->priv)->has_markers;
}

int dn_block_params(const struct dn_block *b, int *first_param)
{
	int n = 0;

	*first_param = 0;
	for (int i = b->first; i <= b->last; i++) {
		const struct dn_layer *l = &b->net->layers[i];

		if (l->n_params && !n)
			*first_param = l->first_param;
		n += l->n_params;
	}
	return n;
}

int dn_net_check_keys(struct dn_net *net)
{
	struct dn_keyfile *f = net->cfg->file;

	for (int i = 1; i < f->n_sections; i++) {
		struct dn_section *s = &f->sections[i];

		if (strcmp(s->name, "block") || !s->rules[1]) /* no plugin has said which are its own */
			continue;
		for (int k = 0; k < s->n_keys; k++) {
			struct dn_key *key = &s->keys[k];

			if (key->used)
				continue;
			if (f->strict)
				return dn_section_fail(s, key->key, -EINVAL, "%s=%s: unknown key", key->key,
						       key->value ? key->value : "");
			dn_warn("%s:%d: [block] %s=%s: unknown key, ignored", f->path, key->line, key->key,
				key->value ? key->value : "");
			key->used = true; /* one warning */
		}
	}
	return 0;
}
