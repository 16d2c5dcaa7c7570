/* [softmax]: per group of an image, of a hierarchy or of each pixel; with a target also the cross-entropy loss, whose
 * delta t - p skips the softmax. */
#include <errno.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/tree.h"
#include "graph/layers/layers_priv.h"

struct softmax {
	struct dn_softmax_desc desc;
	struct dn_tree *tree;
	struct dn_tree_desc groups; /* of the tree */
	bool loss;
	struct dn_softmax *op;
	void *scratch; /* t - p of a pass that does not learn */
	void *truth;   /* [n, outputs] with a tree: the target with ancestors and ignored groups */
};

static const struct dn_key_rule keys[] = {
	{ "groups", DN_KEY_INT, "1", 1, INT32_MAX, .help = "parts of the input, each with a softmax of its own" },
	{ "temperature", DN_KEY_FLOAT, "1", .help = "divides the input; positive" },
	{ "noloss", DN_KEY_INT, "0", 0, 1, .help = "1: no loss, and no target" },
	{ "spatial", DN_KEY_INT, "0", 0, 1, .help = "1: over the channels of each pixel" },
	{ "tree", DN_KEY_TEXT, NULL, .help = "file of a hierarchy: a softmax for every group of siblings",
	  .resume = DN_RESUME_FILE },
	{ .key = NULL },
};

static int softmax_tree(struct dn_layer *l, struct dn_section *s)
{
	struct softmax *sm = l->priv;
	const char *path = dn_key_text(s, "tree");
	int err;

	if (!path)
		return 0;
	if (sm->desc.n_groups > 1)
		return dn_section_fail(s, "groups", -EINVAL, "groups=%d and a tree, which has its own groups", sm->desc.n_groups);
	if (dn_tensor_plane(&sm->desc.x) > 1)
		return dn_section_fail(s, "spatial", -ENOTSUP, "spatial=1 with a tree is not supported in this version");
	err = dn_layer_need(l, tree_truth);
	if (!err)
		err = dn_tree_read(&sm->tree, path);
	if (err)
		return err;
	if (sm->tree->n != l->inputs)
		return dn_section_fail(s, "tree", -EINVAL, "tree=%s has %lld classes, but layer %d gets %lld numbers", path,
				       (long long)sm->tree->n, l->index, (long long)l->inputs);
	sm->groups = (struct dn_tree_desc){ sm->tree->n, sm->tree->parent, sm->tree->n_groups, sm->tree->group_at };
	sm->desc.tree = &sm->groups;
	l->file_hash = dn_hash(sm->tree->parent, (size_t)sm->tree->n * sizeof(*sm->tree->parent)); /* names compute nothing */
	if (!l->net->tree)
		l->net->tree = sm->tree;
	return sm->loss ? dn_layer_buffer(l, l->in.bytes, DN_LIFE_FORWARD, false, &sm->truth) : 0;
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
		.x = spatial ? l->in : dn_tensor_flat(&l->in),
		.n_groups = (int)groups,
		.temperature = (float)t,
	};
	if (sm->desc.x.c % groups)
		return dn_section_fail(s, "groups", -EINVAL, "groups=%lld does not divide the %lld %s", (long long)groups,
				       (long long)sm->desc.x.c, spatial ? "channels" : "inputs");
	sm->loss = !noloss;
	return 0;
}

static int softmax_setup(struct dn_layer *l, struct dn_section *s)
{
	struct softmax *sm = layer_priv(l, sizeof(*sm));
	int err = sm ? softmax_keys(l, s) : -ENOMEM;

	if (!err)
		err = dn_layer_need(l, softmax_create);
	if (!err)
		err = layer_same_out(l);
	if (!err)
		err = softmax_tree(l, s);
	if (!err)
		err = l->net->dev->be->softmax_create(l->net->dev, &sm->desc, &sm->op);
	if (err)
		return err;
	l->has_cost = true; /* with noloss too: a cost of 0 that counts in the mean */
	l->seeds_delta = sm->loss;
	l->truths = sm->loss ? l->inputs : 0;
	return sm->loss ? layer_loss_setup(l, &sm->scratch) : 0;
}

static int softmax_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct softmax *sm = l->priv;
	struct dn_net *net = l->net;
	const struct dn_backend *be = net->dev->be;
	struct dn_tensor t;
	const void *truth = layer_truth(l, pass, &t);
	int err = be->softmax_forward(net->compute, sm->op, dn_layer_x(l, pass, 0), l->output);

	if (err || !sm->loss)
		return err;
	if (layer_has_truth(l, pass) && pass->classes && (sm->tree || sm->desc.n_groups > 1 || dn_tensor_plane(&sm->desc.x) > 1))
		return dn_fail(-ENOTSUP, "layer %d: one class an image is no target of a softmax over a tree, groups or pixels",
			       l->index);
	if (layer_has_truth(l, pass) && sm->tree)
		err = be->tree_truth(net->compute, sm->op, pass->truth, sm->truth);
	if (!err)
		err = layer_loss(l, pass, DN_COST_SOFTMAX_CE, l->output, sm->tree ? sm->truth : NULL, sm->scratch);
	if (!err && layer_has_truth(l, pass) && !sm->tree && dn_tensor_plane(&sm->desc.x) == 1)
		err = be->softmax_loss(net->compute, sm->op, dn_layer_x(l, pass, 0), &t, truth, l->cost);
	return err;
}

static int softmax_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	return layer_pass_delta(l, 0, 1);
}

static void softmax_destroy(struct dn_layer *l)
{
	struct softmax *sm = l->priv;

	l->net->dev->be->softmax_destroy(sm->op);
	dn_tree_destroy(sm->tree);
	layer_free_priv(l);
}

const struct dn_layer_ops softmax_layer = {
	.name = "softmax",
	.alias = "soft",
	.summary = "softmax with cross entropy as its loss",
	.keys = keys,
	.task = "classifier",
	.setup = softmax_setup,
	.forward = softmax_forward,
	.backward = softmax_backward,
	.destroy = softmax_destroy,
	.flat = true,
	.flat_out = true,
};
