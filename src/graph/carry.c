/* What layers remember beyond the pass: declaring it, its memory, the step from one pass to the next; see carry.h. */
#include "graph/carry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "graph/graph_priv.h"

static int64_t slots(const struct dn_net *net)
{
	return net->opt.train ? net->subdivisions : 0;
}

/* The layer has been set up before, at another size: it remembers the same. */
static int carry_again(struct dn_layer *l, const char *part, int n_dims, const int64_t *shape, struct dn_carry **out)
{
	struct net_priv *priv = l->net->priv;
	struct dn_carry *c = l->net->carries[priv->next_carry++];

	if (c->n_dims != n_dims || c->rows != shape[0] || memcmp(c->shape + 1, shape + 1, sizeof(*shape) * (size_t)(n_dims - 1)))
		return dn_section_fail(l->section, NULL, -EINVAL,
				       "layer %d: what it remembers as %s depends on the size of the input, which can therefore "
				       "not change to %lld x %lld",
				       l->index, part, (long long)l->net->w, (long long)l->net->h);
	*out = c;
	return 0;
}

static int count(const struct dn_layer *l, const char *part, int n_dims, const int64_t *shape, struct dn_carry *c)
{
	const struct dn_net *net = l->net;
	const int64_t times = net->opt.world * net->subdivisions;

	c->n_dims = n_dims;
	c->row = 1;
	for (int i = 0; i < n_dims; i++) {
		c->shape[i] = shape[i];
		if (shape[i] < 1 || (i && c->row > NET_MAX_COUNT / shape[i]))
			goto too_large;
		if (i)
			c->row *= shape[i];
	}
	if (c->shape[0] > NET_MAX_COUNT / times || c->row > NET_MAX_COUNT / (c->shape[0] * times))
		goto too_large;
	c->rows = shape[0];
	c->shape[0] *= times;
	c->n = c->shape[0] * c->row;
	return 0;

too_large:
	return dn_section_fail(l->section, NULL, -EOVERFLOW, "layer %d: %s are more than 2^40 elements", l->index, part);
}

static size_t bytes_of(const struct dn_carry *c, int64_t n_slots)
{
	return dn_up(sizeof(float) * (size_t)(n_slots * c->rows * c->row), DN_ALIGN);
}

int dn_layer_carry(struct dn_layer *l, const char *part, int n_dims, const int64_t *shape, struct dn_carry **out)
{
	struct dn_net *net = l->net;
	struct net_priv *priv = net->priv;
	struct dn_carry **all;
	struct dn_carry *c;
	int err;

	if (n_dims < 1 || n_dims > (int)DN_N(c->shape))
		return dn_fail(-EINVAL, "layer %d: %s of %d dimensions", l->index, part, n_dims);
	if (priv->again)
		return carry_again(l, part, n_dims, shape, out);
	all = dn_grow(net->carries, net->n_carries, sizeof(struct dn_carry *));
	if (!all)
		return -ENOMEM;
	net->carries = all;
	c = dn_zalloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	err = count(l, part, n_dims, shape, c);
	if (err) {
		dn_free(c);
		return err;
	}
	snprintf(c->name, sizeof(c->name), "%d.%s", l->index, part);
	c->index = net->n_carries;
	net->carries[net->n_carries++] = c;
	net->carries_bytes += 2 * (bytes_of(c, slots(net)) + bytes_of(c, 1));
	*out = c;
	return 0;
}

static const float *of_pass(const struct dn_carry *c, const struct dn_pass *pass, const float *training, const float *other)
{
	return pass->phase == DN_INFER ? other : training + pass->micro * c->rows * c->row;
}

const float *dn_carry_found(const struct dn_carry *c, const struct dn_pass *pass)
{
	return of_pass(c, pass, c->found, c->pass_found);
}

float *dn_carry_left(const struct dn_carry *c, const struct dn_pass *pass)
{
	return (float *)(uintptr_t)of_pass(c, pass, c->left, c->pass_left);
}

/* --- for the net: four planes, each of all carries: found and left of training, found and left of other passes --- */

static size_t plane_bytes(const struct dn_net *net, int64_t n_slots)
{
	size_t bytes = 0;

	for (int i = 0; i < net->n_carries; i++)
		bytes += bytes_of(net->carries[i], n_slots);
	return bytes;
}

static float *take(char **at, size_t bytes)
{
	float *x = bytes ? (float *)(void *)*at : NULL;

	*at += bytes;
	return x;
}

int carries_alloc(struct dn_net *net)
{
	struct net_priv *priv = net->priv;
	const struct dn_backend *be = net->dev->be;
	char *at;
	int err;

	if (!net->n_carries)
		return 0;
	err = be->alloc(net->dev, DN_MEM_BUFFERS, net->carries_bytes, &priv->carries);
	if (err)
		return err;
	at = priv->carries;
	for (int i = 0; i < net->n_carries; i++)
		net->carries[i]->found = take(&at, bytes_of(net->carries[i], slots(net)));
	for (int i = 0; i < net->n_carries; i++)
		net->carries[i]->left = take(&at, bytes_of(net->carries[i], slots(net)));
	for (int i = 0; i < net->n_carries; i++)
		net->carries[i]->pass_found = take(&at, bytes_of(net->carries[i], 1));
	for (int i = 0; i < net->n_carries; i++)
		net->carries[i]->pass_left = take(&at, bytes_of(net->carries[i], 1));
	return be->zero(net->compute, priv->carries, net->carries_bytes);
}

void carries_destroy(struct dn_net *net)
{
	struct net_priv *priv = net->priv;

	if (priv->carries)
		net->dev->be->free(net->dev, priv->carries);
	for (int i = 0; i < net->n_carries; i++)
		dn_free(net->carries[i]);
	dn_free(net->carries);
}

int carries_next(struct dn_net *net, enum dn_phase phase)
{
	const bool train = phase != DN_INFER;
	const struct dn_carry *first = net->n_carries ? net->carries[0] : NULL;

	if (!first)
		return 0;
	return net->dev->be->copy(net->compute, train ? first->found : first->pass_found, train ? first->left : first->pass_left,
				  plane_bytes(net, train ? slots(net) : 1));
}

int dn_net_forget(struct dn_net *net, enum dn_phase phase)
{
	const bool train = phase != DN_INFER;
	const struct dn_carry *first = net->n_carries ? net->carries[0] : NULL;

	if (!first || (train && !net->opt.train))
		return 0;
	return net->dev->be->zero(net->compute, train ? first->found : first->pass_found,
				  plane_bytes(net, train ? slots(net) : 1));
}

/* --- for checkpoints --- */

void dn_carry_interval(const struct dn_net *net, const struct dn_carry *c, int64_t m, int64_t *at, int64_t *n)
{
	*n = c->rows * c->row;
	*at = (m * net->opt.world + net->opt.rank) * *n;
}

static int move(const struct dn_net *net, const struct dn_carry *c, int64_t m, void *to, const void *from)
{
	int err;

	if (m < 0 || m >= slots(net))
		return dn_fail(-EINVAL, "%s: microbatch %lld of %lld", c->name, (long long)m, (long long)slots(net));
	err = net->dev->be->copy(net->compute, to, from, sizeof(float) * (size_t)(c->rows * c->row));
	return err ? err : net->dev->be->stream_sync(net->compute);
}

int dn_carry_get(const struct dn_net *net, const struct dn_carry *c, int64_t m, float *out)
{
	return move(net, c, m, out, c->found + m * c->rows * c->row);
}

int dn_carry_set(const struct dn_net *net, const struct dn_carry *c, int64_t m, const float *in)
{
	return move(net, c, m, c->found + m * c->rows * c->row, in);
}
