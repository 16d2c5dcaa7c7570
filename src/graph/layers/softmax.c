/* [softmax]: per group of an image, of a hierarchy or of each pixel; with a target also the cross-entropy loss, whose
 * delta t - p skips the softmax. */
#include <errno.h>

#include "base/mem.h"
#include "base/tree.h"
#include "graph/layers/layers_priv.h"

struct softmax {
	struct dn_softmax_desc desc;
	struct dn_tree *tree;
	bool loss;
	float *scratch; /* t - p of a pass that does not learn */
	float *truth;	/* [n, outputs] with a tree: the target with ancestors and ignored groups */
};

static const struct dn_key_rule keys[] = {
	{ "groups", DN_KEY_INT, "1", 1, INT32_MAX, .help = "parts of the input, each with a softmax of its own" },
	{ "temperature", DN_KEY_FLOAT, "1", .help = "divides the input; positive" },
	{ "noloss", DN_KEY_INT, "0", 0, 1, .help = "1: no loss, and no target" },
	{ "spatial", DN_KEY_INT, "0", 0, 1, .help = "1: over the channels of each pixel" },
	{ "tree", DN_KEY_TEXT, NULL, .help = "file of a hierarchy: a softmax for every group of siblings" },
	{ .key = NULL },
};

static int softmax_tree(struct dn_layer *l, struct dn_section *s)
{
	struct softmax *sm = l->priv;
	const char *path = dn_key_text(s, "tree");
	size_t bytes;
	int err;

	if (!path)
		return 0;
	if (sm->desc.n_groups > 1)
		return dn_section_fail(s, "groups", -EINVAL, "groups=%d and a tree, which has its own groups", sm->desc.n_groups);
	if (sm->desc.hw > 1)
		return dn_section_fail(s, "spatial", -ENOTSUP, "spatial=1 with a tree is not supported in this version");
	err = dn_layer_need(l, tree_truth);
	if (!err)
		err = dn_tree_read(&sm->tree, path);
	if (err)
		return err;
	if (sm->tree->n != l->inputs)
		return dn_section_fail(s, "tree", -EINVAL, "tree=%s has %lld classes, but layer %d gets %lld numbers", path,
				       (long long)sm->tree->n, l->index, (long long)l->inputs);
	sm->desc.n_groups = sm->tree->n_groups;
	sm->desc.group_at = sm->tree->group_at;
	if (!l->net->tree)
		l->net->tree = sm->tree;
	err = layer_bytes(l->batch * l->inputs, &bytes);
	return err || !sm->loss ? err : dn_layer_buffer(l, bytes, DN_LIFE_FORWARD, false, (void **)&sm->truth);
}

static int softmax_keys(struct dn_layer *l, struct dn_section *s)
{
	struct softmax *sm = l->priv;
	int64_t noloss, groups, spatial = 0;
	double t;
	int err = dn_key_int_in(s, "groups", 1, l->inputs < INT32_MAX ? l->inputs : INT32_MAX, &groups);

	if (!err)
		err = dn_key_int(s, "noloss", &noloss);
	if (!err)
		err = dn_key_int(s, "spatial", &spatial);
	if (!err)
		err = dn_key_float(s, "temperature", &t);
	if (!err && spatial)
		err = layer_needs_image(l);
	if (err)
		return err;
	if ((float)t <= 0)
		return dn_section_fail(s, "temperature", -EINVAL, "temperature=%g: must be positive", t);
	sm->desc = (struct dn_softmax_desc){
		.n = l->batch,
		.c = spatial ? l->c : l->inputs,
		.hw = spatial ? l->w * l->h : 1,
		.n_groups = (int)groups,
		.temperature = (float)t,
	};
	if (sm->desc.c % groups)
		return dn_section_fail(s, "groups", -EINVAL, "groups=%lld does not divide the %lld %s", (long long)groups,
				       (long long)sm->desc.c, spatial ? "channels" : "inputs");
	sm->loss = !noloss;
	return 0;
}

static int softmax_setup(struct dn_layer *l, struct dn_section *s)
{
	struct softmax *sm = layer_priv(l, sizeof(*sm));
	int err = sm ? softmax_keys(l, s) : -ENOMEM;

	if (!err)
		err = dn_layer_need(l, softmax_groups);
	if (!err)
		err = layer_same_out(l);
	if (!err)
		err = softmax_tree(l, s);
	if (err)
		return err;
	l->has_cost = true; /* with noloss too: a cost of 0 that counts in the mean */
	l->seeds_delta = sm->loss;
	l->truths = sm->loss ? l->inputs : 0;
	return sm->loss ? layer_loss_setup(l, &sm->scratch) : 0;
}

static struct dn_tree_desc tree_of(const struct dn_tree *t)
{
	return t ? (struct dn_tree_desc){ t->n, t->parent, t->n_groups, t->group_at } : (struct dn_tree_desc){ 0 };
}

static int softmax_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct softmax *sm = l->priv;
	struct dn_net *net = l->net;
	const struct dn_backend *be = net->dev->be;
	const struct dn_tree_desc tree = tree_of(sm->tree);
	int err;

	if (!sm->desc.group_at && sm->desc.hw == 1)
		err = be->softmax(net->compute, l->batch * sm->desc.n_groups, l->inputs / sm->desc.n_groups, sm->desc.temperature,
				  dn_layer_x(l, pass, 0), l->output);
	else
		err = be->softmax_groups(net->compute, &sm->desc, dn_layer_x(l, pass, 0), l->output);
	if (err || !sm->loss)
		return err;
	if (layer_has_truth(l, pass) && sm->tree)
		err = be->tree_truth(net->compute, &tree, l->batch, pass->truth, sm->truth);
	if (!err)
		err = layer_loss(l, pass, DN_COST_SOFTMAX_CE, l->output, sm->tree ? sm->truth : NULL, sm->scratch);
	if (!err && layer_has_truth(l, pass) && !sm->desc.group_at && sm->desc.hw == 1)
		err = be->softmax_loss(net->compute, l->batch * sm->desc.n_groups, l->inputs / sm->desc.n_groups,
				       sm->desc.temperature, dn_layer_x(l, pass, 0), pass->truth, l->cost);
	return err;
}

static int softmax_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	return layer_pass_delta(l, 0, 1);
}

static void softmax_destroy(struct dn_layer *l)
{
	dn_tree_destroy(((struct softmax *)l->priv)->tree);
	layer_free_priv(l);
}

const struct dn_layer_ops softmax_layer = {
	.name = "softmax",
	.alias = "soft",
	.summary = "softmax with cross entropy as its loss",
	.keys = keys,
	.setup = softmax_setup,
	.forward = softmax_forward,
	.backward = softmax_backward,
	.destroy = softmax_destroy,
};
