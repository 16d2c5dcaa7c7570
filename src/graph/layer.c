/* The table of layer types, and what every setup() uses: shapes, inputs, params, buffers, common keys. */
#include "graph/layer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "graph/graph_priv.h"
#include "graph/layers/layers_priv.h"

const struct dn_key_rule dn_layer_keys[] = {
	{ "learning_rate", DN_KEY_FLOAT, "1", .help = "factor on the net's rate for this layer", .resume = DN_RESUME_ANY },
	{ "stopbackward", DN_KEY_INT, "0", 0, 1, .help = "1: this layer and all before it are frozen", .resume = DN_RESUME_ANY },
	{ "dontload", DN_KEY_INT, "0", 0, 1, .help = "1: .weights files have nothing of this layer when they are read",
	  .resume = DN_RESUME_ANY },
	{ "dontloadscales", DN_KEY_INT, "0", 0, 1, .help = "1: nor its scales and rolling statistics", .resume = DN_RESUME_ANY },
	{ "dontsave", DN_KEY_INT, "0", 0, 1, .help = "1: nor when they are written", .resume = DN_RESUME_ANY },
	{ "numload", DN_KEY_INT, "0", 0, NET_MAX_COUNT,
	  .help = ".weights files have that many filters only; [convolutional] and [connected], 0: all",
	  .resume = DN_RESUME_ANY },
	{ "share_index", DN_KEY_INT, NULL, -NET_MAX_LAYERS, NET_MAX_LAYERS,
	  .help = "layer whose params this one uses; negative counts from this one", .resume = DN_RESUME_SAME_LAYERS },
	{ "onlyforward", DN_KEY_ONLY, .def = "0" },
	{ "truth", DN_KEY_ONLY, .def = "0" },
	{ "smooth", DN_KEY_ONLY, .def = "0" },
	{ "clip", DN_KEY_ONLY, .def = "0" },
	{ "dont_update", DN_KEY_ONLY, .def = "0" },
	{ "burnin_update", DN_KEY_ONLY, .def = "0" },
	{ "train_only_bn", DN_KEY_ONLY, .def = "0" },
	{ .key = NULL },
};

const struct dn_layer_ops *dn_layer_find(const char *section)
{
	for (int i = 0; dn_layer_table[i]; i++) {
		const struct dn_layer_ops *o = dn_layer_table[i];

		if (!strcmp(o->name, section) || (o->alias && !strcmp(o->alias, section)))
			return o;
	}
	return NULL;
}

bool dn_layer_is(const struct dn_layer *l, const char *section)
{
	return dn_layer_find(section) == l->ops;
}

const char *layer_names(char *out, size_t cap)
{
	size_t n = 0;

	out[0] = '\0';
	for (int i = 0; dn_layer_table[i] && n < cap; i++) {
		const struct dn_layer_ops *o = dn_layer_table[i];

		n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? ", " : "", o->name);
		if (o->alias && n < cap)
			n += (size_t)snprintf(out + n, cap - n, " (%s)", o->alias);
	}
	return out;
}

int dn_layer_no_op(const struct dn_layer *l, const char *op)
{
	return dn_section_fail(l->section, NULL, -ENOTSUP, "layer %d: backend %s has no %s", l->index, l->net->dev->be->name, op);
}

int dn_layer_no_effect(struct dn_layer *l, struct dn_section *s, const char *const *keys, int n)
{
	const bool again = ((const struct net_priv *)l->net->priv)->again;
	int err = 0;

	for (int i = 0; i < n && !err; i++)
		err = dn_key_no_effect(s, keys[i], (l->net->opt.train || l->net->opt.describe) && !again);
	return err;
}

/* --- for setup() --- */

int dn_layer_set_out(struct dn_layer *l, int64_t w, int64_t h, int64_t c)
{
	if (w < 1 || h < 1 || c < 1)
		return dn_section_fail(l->section, NULL, -EINVAL,
				       "layer %d: output of %lld x %lld x %lld from an input of "
				       "%lld x %lld x %lld",
				       l->index, (long long)w, (long long)h, (long long)c, (long long)l->w, (long long)l->h,
				       (long long)l->c);
	if (w > NET_MAX_COUNT / h || w * h > NET_MAX_COUNT / c || w * h * c > NET_MAX_COUNT / l->local_batch)
		return dn_section_fail(l->section, NULL, -EOVERFLOW,
				       "layer %d: output of %lld x %lld x %lld for %lld images is "
				       "larger than 2^40 elements",
				       l->index, (long long)w, (long long)h, (long long)c, (long long)l->local_batch);
	l->out_w = w;
	l->out_h = h;
	l->out_c = c;
	l->outputs = w * h * c;
	return dn_tensor_init(&l->out, l->ops->name, DN_F32, l->local_batch, c, h, w);
}

int dn_layer_resolve(const struct dn_layer *l, const char *key, int64_t v, int *out)
{
	int64_t at = v < 0 ? l->index + v : v;

	if (at < 0 || at >= l->index) {
		if (!l->index)
			return dn_section_fail(l->section, key, -EINVAL, "%s: layer 0 has no earlier layer to read", key);
		return dn_section_fail(l->section, key, -EINVAL,
				       "%s: %lld means layer %lld, but layer %d can read layers 0 to %d "
				       "only",
				       key, (long long)v, (long long)at, l->index, l->index - 1);
	}
	*out = (int)at;
	return 0;
}

static int check_sources(struct dn_layer *l)
{
	for (int i = 0; i < l->n_inputs; i++) {
		int at = l->inputs_of[i].layer;

		if (at >= 0 && l->net->layers[at].ops->no_consumer)
			return dn_section_fail(l->section, NULL, -EINVAL,
					       "layer %d reads layer %d, a [%s]: it has no output to read", l->index, at,
					       l->net->layers[at].ops->name);
	}
	return 0;
}

static int set_sources(struct dn_layer *l, int n, const int *index)
{
	struct dn_layer_input *in;

	if (n < 1 || n > DN_LAYER_MAX_INPUTS)
		return dn_section_fail(l->section, NULL, -EINVAL, "layer %d: %d sources, must be 1 to %d", l->index, n,
				       DN_LAYER_MAX_INPUTS);
	for (int i = 0; i < n; i++)
		if (index[i] < -1 || index[i] >= l->index)
			return dn_section_fail(l->section, NULL, -EINVAL, "layer %d cannot read layer %d", l->index, index[i]);
	in = dn_calloc((size_t)n, sizeof(*in));
	if (!in)
		return -ENOMEM;
	for (int i = 0; i < n; i++) {
		int at = index[i];

		while (at >= 0 && at + 1 < l->index && l->net->layers[at + 1].ops->in_place)
			at++;
		in[i].layer = at;
	}
	dn_free(l->inputs_of);
	l->inputs_of = in;
	l->n_inputs = n;
	return 0;
}

int dn_layer_set_inputs(struct dn_layer *l, int n, const int *index)
{
	int err = set_sources(l, n, index);

	return err ? err : check_sources(l);
}

/* The layer has been set up before, at another size: the param that it declared then. */
static int param_again(struct dn_layer *l, const char *part, int n_dims, const int64_t *shape, struct dn_param **out)
{
	struct dn_net *net = l->net;
	struct net_priv *priv = net->priv;
	struct dn_param *p = net->params[priv->next_param];

	if (p->n_dims != n_dims || memcmp(p->shape, shape, sizeof(*shape) * (size_t)n_dims))
		return dn_section_fail(l->section, NULL, -EINVAL,
				       "layer %d: the number of its %s depends on the size of the input, "
				       "which can therefore not change to %lld x %lld",
				       l->index, part, (long long)net->w, (long long)net->h);
	if (!l->n_params)
		l->first_param = p->index;
	l->n_params++;
	priv->next_param++;
	if (p->role == DN_TRAINED && !p->frozen)
		l->wants_delta = true;
	*out = p;
	return 0;
}

/* share_index: the owner's next param, which must be the one that the layer would declare. */
static int param_shared(struct dn_layer *l, const char *part, enum dn_role role, int n_dims, const int64_t *shape,
			struct dn_param **out)
{
	const struct dn_net *net = l->net;
	const struct dn_layer *o = &net->layers[l->owner];
	struct dn_param *p = l->n_shared < o->n_params ? net->params[o->first_param + l->n_shared] : NULL;

	if (!p || strcmp(p->part, part) || p->role != role || p->n_dims != n_dims ||
	    memcmp(p->shape, shape, sizeof(*shape) * (size_t)n_dims))
		return dn_section_fail(l->section, "share_index", -EINVAL, "layer %d has no %s of the shape that layer %d needs",
				       o->index, part, l->index);
	if (p->frozen && !l->frozen)
		return dn_section_fail(l->section, "share_index", -EINVAL,
				       "the params of layer %d are frozen, so layer %d, which is "
				       "not, cannot share them",
				       o->index, l->index);
	if (!p->frozen && l->frozen)
		return dn_section_fail(l->section, "share_index", -EINVAL,
				       "layer %d is frozen, and layer %d, whose params it would share, is not", l->index,
				       o->index);
	l->n_shared++;
	if (role == DN_TRAINED && !p->frozen)
		l->wants_delta = true;
	*out = p;
	return 0;
}

int dn_layer_param(struct dn_layer *l, const char *part, enum dn_role role, int n_dims, const int64_t *shape, struct dn_init init,
		   struct dn_param **out)
{
	struct dn_net *net = l->net;
	struct net_priv *priv = net->priv;
	struct dn_param **all;
	struct dn_param *p;
	int64_t n = 1;

	for (int i = 0; i < n_dims; i++) {
		if (shape[i] < 1 || n > NET_MAX_COUNT / shape[i])
			return dn_section_fail(l->section, NULL, -EOVERFLOW, "layer %d: %s are more than 2^40 elements", l->index,
					       part);
		n *= shape[i];
	}
	if (l->owner != l->index)
		return param_shared(l, part, role, n_dims, shape, out);
	if (priv->again)
		return param_again(l, part, n_dims, shape, out);
	all = dn_grow(net->params, net->n_params, sizeof(struct dn_param *));
	if (!all)
		return -ENOMEM;
	net->params = all;
	p = dn_zalloc(sizeof(*p));
	if (!p)
		return -ENOMEM;
	snprintf(p->name, sizeof(p->name), "%d.%s", l->index, part);
	p->part = part;
	p->id = dn_hash(p->name, strlen(p->name));
	p->layer = l;
	p->index = net->n_params;
	p->role = role;
	p->n_dims = n_dims;
	memcpy(p->shape, shape, sizeof(*shape) * (size_t)n_dims);
	p->n = n;
	p->init = init;
	p->frozen = l->frozen;
	p->lr_scale = l->lr_scale;
	if (!l->n_params)
		l->first_param = p->index;
	l->n_params++;
	net->params[net->n_params++] = p;
	if (role == DN_TRAINED) {
		net->n_trained += n;
		if (!p->frozen)
			l->wants_delta = true;
	} else {
		net->n_buffers += n;
	}
	*out = p;
	return 0;
}

int dn_layer_buffer(struct dn_layer *l, size_t bytes, enum dn_life life, bool train_only, void **where)
{
	struct net_memory *m = &((struct net_priv *)l->net->priv)->memory;
	struct net_buffer *all = dn_grow(m->buffers, m->n_buffers, sizeof(*all));

	if (!all)
		return -ENOMEM;
	m->buffers = all;
	all[m->n_buffers++] = (struct net_buffer){ bytes, where, l->index, life, train_only };
	return 0;
}

int dn_layer_packed(struct dn_layer *l, size_t bytes, void **where)
{
	struct net_priv *priv = l->net->priv;
	struct net_packed *all;

	if (!bytes || l->net->opt.train || priv->again) /* other sizes use the plain weights */
		return 0;
	all = dn_grow(priv->packed, priv->n_packed, sizeof(*all));
	if (!all)
		return -ENOMEM;
	priv->packed = all;
	all[priv->n_packed++] = (struct net_packed){ bytes, where };
	priv->packed_bytes += dn_up(bytes, DN_ALIGN);
	return 0;
}

int dn_layer_activation(struct dn_layer *l, struct dn_section *s)
{
	const char *name = dn_key_text(s, "activation");

	if (!strncmp(name, "normalize_channels", 18))
		return dn_section_fail(s, "activation", -ENOTSUP,
				       "activation=%s is not supported in this version; supported are %s", name, dn_act_names());
	if (dn_act_find(name, &l->act))
		return dn_section_fail(s, "activation", -EINVAL, "activation=%s: unknown activation; known are %s", name,
				       dn_act_names());
	return 0;
}

int dn_layer_read(const struct dn_layer *l, int64_t first, int64_t n, float *out)
{
	const struct dn_net *net = l->net;
	int err;

	if (first < 0 || n < 0 || n > l->local_batch || first > l->local_batch - n)
		return dn_fail(-EINVAL, "layer %d: images %lld to %lld of a pass of %lld", l->index, (long long)first,
			       (long long)(first + n), (long long)l->local_batch);
	err = net->dev->be->copy(net->compute, out, (const char *)l->output + (size_t)(first * l->outputs) * sizeof(*out),
				 (size_t)(n * l->outputs) * sizeof(*out));
	return err ? err : net->dev->be->stream_sync(net->compute);
}

/* --- for forward() and backward() --- */

int dn_layer_wants_exchange(struct dn_layer *l, bool backward, int64_t n)
{
	int *k = &l->n_exchanges[backward];

	if (n < 1 || *k == DN_LAYER_MAX_EXCHANGES)
		return dn_fail(-EINVAL, "layer %d: a sum of %lld elements over ranks, number %d of at most %d", l->index,
			       (long long)n, *k + 1, DN_LAYER_MAX_EXCHANGES);
	l->exchanges[backward][(*k)++] = n;
	return 0;
}

int dn_layer_exchange(struct dn_layer *l, bool backward, enum dn_type type, void *x, int64_t n)
{
	const struct dn_store *s = &l->net->store;

	if (s->hooks && s->hooks->exchange)
		return s->hooks->exchange(s->self, l, backward, type, x, n);
	if (l->net->opt.world > 1)
		return dn_fail(-ENOTSUP, "layer %d: asks for a sum over %d ranks, which the store does not make", l->index,
			       l->net->opt.world);
	return 0;
}

const void *dn_layer_x(const struct dn_layer *l, const struct dn_pass *pass, int k)
{
	int at = l->inputs_of[k].layer;

	return at < 0 ? pass->input : l->net->layers[at].output;
}

void *dn_layer_dx(const struct dn_layer *l, int k, bool *acc)
{
	int at = l->inputs_of[k].layer;

	*acc = l->inputs_of[k].acc;
	return at < 0 ? NULL : l->net->layers[at].delta;
}

/* --- build --- */

static int common_keys(struct dn_layer *l, struct dn_section *s)
{
	int64_t stop, load, scales, save;
	double rate;
	int err = dn_key_float(s, "learning_rate", &rate);

	if (!err)
		err = dn_key_int(s, "stopbackward", &stop);
	if (!err)
		err = dn_key_int(s, "dontload", &load);
	if (!err)
		err = dn_key_int(s, "dontloadscales", &scales);
	if (!err)
		err = dn_key_int(s, "dontsave", &save);
	if (!err)
		err = dn_key_int(s, "numload", &l->numload);
	if (!err)
		err = dn_keys_only(s);
	if (err)
		return err;
	l->lr_scale = (float)rate;
	l->stopbackward = stop;
	l->dontload = load;
	l->dontloadscales = scales;
	l->dontsave = save;
	return 0;
}

static int share_key(struct dn_layer *l, struct dn_section *s)
{
	int64_t v = 0;
	int at = 0;
	int err;

	l->owner = l->index;
	l->uses = 1;
	if (!dn_section_find(s, "share_index"))
		return 0;
	err = dn_key_int_or(s, "share_index", 0, &v);
	if (!err)
		err = dn_layer_resolve(l, "share_index", v, &at);
	if (err)
		return err;
	if (l->net->layers[at].ops != l->ops)
		return dn_section_fail(s, "share_index", -EINVAL, "layer %d is a [%s], which cannot share params with a [%s]", at,
				       l->net->layers[at].ops->name, l->ops->name);
	l->owner = l->net->layers[at].owner;
	return 0;
}

/* Tells all users of the params how many they are. */
static int share_count(struct dn_layer *l)
{
	struct dn_layer *all = l->net->layers;
	int n = 0;

	if (l->owner == l->index)
		return 0;
	if (!l->n_shared || l->n_shared != all[l->owner].n_params)
		return dn_section_fail(l->section, "share_index", -EINVAL, "layer %d has %d params, layer %d needs %d", l->owner,
				       all[l->owner].n_params, l->index, l->n_shared);
	for (int i = 0; i <= l->index; i++)
		if (all[i].owner == l->owner)
			all[i].use = n++;
	for (int i = 0; i <= l->index; i++)
		if (all[i].owner == l->owner)
			all[i].uses = n;
	return 0;
}

int layer_build(struct dn_net *net, int index, struct dn_section *s)
{
	struct dn_layer *l = &net->layers[index];
	const int before = index - 1;
	int err;

	l->local_batch = net->local_batch;
	l->act = DN_ACT_LINEAR;
	err = common_keys(l, s);
	if (!err)
		err = share_key(l, s);
	if (!err)
		err = set_sources(l, 1, &before); /* setup() may name others: checked behind it */
	if (err)
		return err;
	if (index) {
		const struct dn_layer *p = &net->layers[before];

		l->w = p->out_w;
		l->h = p->out_h;
		l->c = p->out_c;
		l->inputs = p->outputs;
	} else {
		l->w = net->w;
		l->h = net->h;
		l->c = net->c;
		l->inputs = net->inputs;
	}
	err = dn_tensor_init(&l->in, "net: input", DN_F32, l->local_batch, l->c, l->w ? l->h : 1, l->w ? l->w : 1);
	if (!err)
		err = l->ops->setup(l, s);
	if (!err && l->numload && l->n_params && !l->ops->filters)
		err = dn_section_fail(s, "numload", -ENOTSUP, "numload is for [convolutional] and [connected] only");
	if (!err)
		err = check_sources(l);
	if (!err)
		err = share_count(l);
	if (err)
		return err;
	for (int i = 0; i < l->n_inputs; i++)
		if (l->inputs_of[i].layer >= 0 && net->layers[l->inputs_of[i].layer].wants_delta)
			l->wants_delta = true;
	return 0;
}

void layer_fini(struct dn_layer *l)
{
	if (l->ops && l->ops->destroy && l->priv)
		l->ops->destroy(l);
	dn_free(l->inputs_of);
	l->inputs_of = NULL;
}

#define LAYER_ROW(type) &type##_layer,
const struct dn_layer_ops *const dn_layer_table[] = { LAYER_TYPES(LAYER_ROW) NULL };
