/* [route]: the outputs of earlier layers, or one group of channels of each, one after the other. */
#include <errno.h>
#include <stdio.h>

#include "base/mem.h"
#include "graph/layers/layers_priv.h"

struct route {
	int64_t groups, group_id;
};

static const struct dn_key_rule keys[] = {
	{ "layers", DN_KEY_INTS, NULL, .help = "numbers of the layers; negative counts from this one; needed",
	  .resume = DN_RESUME_SAME_LAYERS },
	{ "groups", DN_KEY_INT, "1", 1, 1 << 24, .help = "parts of each layer's channels, of which one is taken" },
	{ "group_id", DN_KEY_INT, "0", 0, 1 << 24, .help = "which part, less than groups" },
	{ .key = NULL },
};

static int route_inputs(struct dn_layer *l, struct dn_section *s)
{
	int64_t *v = NULL;
	int index[DN_LAYER_MAX_INPUTS];
	int n = 0;
	int err = dn_key_ints(s, "layers", &v, &n);

	if (err)
		return err;
	if (!n)
		err = dn_section_fail(s, NULL, -EINVAL, "layer %d needs the key layers", l->index);
	else if (n > DN_LAYER_MAX_INPUTS)
		err = dn_section_fail(s, "layers", -EINVAL, "%d layers, at most %d", n, DN_LAYER_MAX_INPUTS);
	for (int i = 0; i < n && !err; i++)
		err = dn_layer_resolve(l, "layers", v[i], &index[i]);
	dn_free(v);
	return err ? err : dn_layer_set_inputs(l, n, index);
}

static int route_setup(struct dn_layer *l, struct dn_section *s)
{
	struct route *rt = layer_priv(l, sizeof(*rt));
	const struct dn_layer *first;
	int64_t c = 0;
	int err = rt ? route_inputs(l, s) : -ENOMEM;

	if (!err)
		err = dn_key_int(s, "groups", &rt->groups);
	if (!err)
		err = dn_key_int_in(s, "group_id", 0, rt->groups - 1, &rt->group_id);
	if (!err)
		err = dn_layer_need(l, copy_rows);
	if (err)
		return err;
	first = &l->net->layers[l->inputs_of[0].layer];
	for (int i = 0; i < l->n_inputs; i++) {
		const struct dn_layer *in = &l->net->layers[l->inputs_of[i].layer];

		if (in->out_w != first->out_w || in->out_h != first->out_h)
			return dn_section_fail(s, "layers", -EINVAL,
					       "layer %d: layer %d is %lld x %lld, but layer %d is %lld x %lld", l->index,
					       in->index, (long long)in->out_w, (long long)in->out_h, first->index,
					       (long long)first->out_w, (long long)first->out_h);
		if (in->out_c % rt->groups)
			return dn_section_fail(s, "groups", -EINVAL, "groups=%lld does not divide the %lld channels of layer %d",
					       (long long)rt->groups, (long long)in->out_c, in->index);
		c += in->out_c / rt->groups;
	}
	l->w = first->out_w;
	l->h = first->out_h;
	l->c = c;
	err = dn_layer_set_out(l, l->w, l->h, c);
	l->inputs = l->outputs;
	l->in = l->out;
	return err;
}

static int route_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	const struct route *rt = l->priv;
	char *y = l->output;

	for (int k = 0; k < l->n_inputs; k++) {
		const struct dn_layer *in = &l->net->layers[l->inputs_of[k].layer];
		const int64_t part = in->outputs / rt->groups;
		const size_t part_bytes = (size_t)part * dn_type_bytes(l->out.type);
		const char *x = dn_layer_x(l, pass, k);
		int err = l->net->dev->be->copy_rows(l->net->compute, l->out.type, l->local_batch, part,
						     x + (size_t)rt->group_id * part_bytes, in->outputs, y, l->outputs, false);

		if (err)
			return err;
		y += part_bytes;
	}
	return 0;
}

static int route_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	const struct route *rt = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	const char *dy = l->delta;

	for (int k = 0; k < l->n_inputs; k++) {
		const struct dn_layer *in = &l->net->layers[l->inputs_of[k].layer];
		const int64_t part = in->outputs / rt->groups;
		const size_t part_bytes = (size_t)part * dn_type_bytes(l->out.type);
		bool acc;
		char *dx = dn_layer_dx(l, k, &acc);
		int err = 0;

		if (dx && !acc && rt->groups > 1) { /* the other groups get nothing from here */
			err = be->zero(l->net->compute, dx, in->out.bytes);
			acc = true;
		}
		if (dx && !err)
			err = be->copy_rows(l->net->compute, l->out.type, l->local_batch, part, dy, l->outputs,
					    dx + (size_t)rt->group_id * part_bytes, in->outputs, acc);
		if (err)
			return err;
		dy += part_bytes;
	}
	return 0;
}

static void route_describe(const struct dn_layer *l, char *out, size_t cap)
{
	char from[48];

	layer_sources(l, "layers", from, sizeof(from));
	snprintf(out, cap, "route  %s", from);
}

const struct dn_layer_ops route_layer = {
	.name = "route",
	.summary = "channels of several layers, one after the other",
	.keys = keys,
	.setup = route_setup,
	.forward = route_forward,
	.backward = route_backward,
	.destroy = layer_free_priv,
	.describe = route_describe,
};
