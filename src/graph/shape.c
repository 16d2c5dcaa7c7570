/* Input sizes beside the cfg's: one set of layers a size over the same params, in one arena for all.
 *
 * NOTE(sizes): net->layers stays at its address and holds the layers of the current size; resizing copies them out
 * and those of the other size in. What a layer points at (its private part, tensors, params) does not move, and
 * param->layer and the addresses that others keep stay true.
 */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "graph/graph_priv.h"

#define MAX_SHAPES 64

static int find_shape(const struct net_priv *priv, int64_t w, int64_t h)
{
	for (int i = 0; i < priv->n_shapes; i++)
		if (priv->shapes[i].w == w && priv->shapes[i].h == h)
			return i;
	return -1;
}

static void keep(const struct dn_net *net, struct net_shape *s)
{
	s->w = net->w;
	s->h = net->h;
	s->inputs = net->inputs;
	s->truths = net->truths;
	s->flops = net->flops;
	s->memory = ((const struct net_priv *)net->priv)->memory;
}

static void bring(struct dn_net *net, const struct net_shape *s)
{
	net->w = s->w;
	net->h = s->h;
	net->inputs = s->inputs;
	net->truths = s->truths;
	net->flops = s->flops;
	((struct net_priv *)net->priv)->memory = s->memory;
}

/* Sets the layers up once more, into @s. The net is as before afterwards. */
static int build_shape(struct dn_net *net, struct net_shape *s, int64_t w, int64_t h)
{
	struct net_priv *priv = net->priv;
	struct dn_layer *layers = net->layers;
	struct net_shape own = { 0 };
	int err = 0;

	if (w * h > NET_MAX_COUNT / net->c || w * h * net->c > NET_MAX_COUNT / net->local_batch)
		return dn_fail(-EOVERFLOW, "net: an input of %lld x %lld x %lld for %lld images is larger than 2^40 elements",
			       (long long)w, (long long)h, (long long)net->c, (long long)net->local_batch);
	keep(net, &own);
	memset(&priv->memory, 0, sizeof(priv->memory));
	priv->again = true;
	priv->next_param = 0;
	priv->next_carry = 0;
	net->layers = NULL;
	net->w = w;
	net->h = h;
	net->inputs = w * h * net->c;
	net->flops = 0;
	err = net_build_layers(net);
	if (!err)
		err = net_find_output(net);
	if (!err)
		err = memory_plan(net);
	keep(net, s);
	s->layers = net->layers;
	bring(net, &own);
	net->layers = layers;
	priv->again = false;
	if (!err && s->inputs > net->max_inputs) {
		net->max_inputs = s->inputs;
		net->activations_bytes = dn_up(priv->arena_bytes, DN_ALIGN) + memory_tail(net, NULL);
	}
	return err;
}

static int first_shape(struct dn_net *net, int n)
{
	struct net_priv *priv = net->priv;
	struct net_shape *all = dn_realloc(priv->shapes, sizeof(*all) * (size_t)(priv->n_shapes + n + 1));

	if (!all)
		return -ENOMEM;
	priv->shapes = all;
	if (priv->n_shapes)
		return 0;
	memset(all, 0, sizeof(*all));
	keep(net, &all[0]);
	all[0].layers = dn_calloc((size_t)net->n_layers, sizeof(*all->layers));
	if (!all[0].layers)
		return -ENOMEM;
	priv->n_shapes = 1;
	return 0;
}

int dn_net_add_shapes(struct dn_net *net, int n, const int64_t (*sizes)[2])
{
	struct net_priv *priv = net->priv;
	const int64_t side = 1 << 24;
	int err;

	if (net->arena)
		return dn_fail(-EINVAL, "net: sizes must be added before its memory is allocated");
	if (!net->w)
		return dn_fail(-EINVAL, "net: its input is flat and has no width and height to change");
	if (n < 0 || priv->n_shapes + n > MAX_SHAPES)
		return dn_fail(-EINVAL, "net: %d input sizes, at most %d", priv->n_shapes + n, MAX_SHAPES);
	err = first_shape(net, n);
	for (int i = 0; i < n && !err; i++) {
		struct net_shape *s = &priv->shapes[priv->n_shapes];

		if (sizes[i][0] < 1 || sizes[i][1] < 1 || sizes[i][0] > side || sizes[i][1] > side)
			return dn_fail(-EINVAL, "net: an input size of %lld x %lld", (long long)sizes[i][0],
				       (long long)sizes[i][1]);
		if (find_shape(priv, sizes[i][0], sizes[i][1]) >= 0)
			continue;
		memset(s, 0, sizeof(*s));
		err = build_shape(net, s, sizes[i][0], sizes[i][1]);
		priv->n_shapes++; /* a half-built one is destroyed with the net */
	}
	return err;
}

int dn_net_resize(struct dn_net *net, int64_t w, int64_t h)
{
	struct net_priv *priv = net->priv;
	int to = find_shape(priv, w, h);
	struct net_shape *from;

	if (!net->arena)
		return dn_fail(-EINVAL, "net: resized before dn_net_alloc()");
	if (w == net->w && h == net->h)
		return 0;
	if (to < 0)
		return dn_fail(-EINVAL, "net: an input of %lld x %lld was not planned", (long long)w, (long long)h);
	from = &priv->shapes[priv->shape];
	for (int i = 0; i < net->n_layers; i++)
		priv->shapes[to].layers[i].block = net->layers[i].block;
	keep(net, from);
	memcpy(from->layers, net->layers, sizeof(*net->layers) * (size_t)net->n_layers);
	bring(net, &priv->shapes[to]);
	memcpy(net->layers, priv->shapes[to].layers, sizeof(*net->layers) * (size_t)net->n_layers);
	priv->shape = to;
	return 0;
}

void shapes_destroy(struct dn_net *net)
{
	struct net_priv *priv = net->priv;

	for (int k = 0; k < priv->n_shapes; k++) {
		struct net_shape *s = &priv->shapes[k];

		if (k != priv->shape) { /* the current one's contents are the net's */
			for (int i = 0; i < net->n_layers && s->layers; i++)
				layer_fini(&s->layers[i]);
			memory_fini(&s->memory);
		}
		dn_free(s->layers);
	}
	dn_free(priv->shapes);
}
