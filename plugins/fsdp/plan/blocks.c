/* Policies that cut a net into blocks. Under auto, each, whole and size a layer without params belongs to
 * the block before it, and leading ones to the first block; type and at name the starts themselves. */
#include <errno.h>
#include <string.h>

#include "plan/plan.h"

#define AUTO_BYTES (16ll << 20)

struct cut {
	const struct dn_net *net;
	int *first; /* [n_layers] */
	int n;
};

static void start_at(struct cut *c, int layer)
{
	if (!c->n || c->first[c->n - 1] != layer)
		c->first[c->n++] = layer;
}

static int64_t trained_bytes(const struct dn_net *net, const struct dn_layer *l)
{
	int64_t n = 0;

	for (int i = l->first_param; i < l->first_param + l->n_params; i++)
		if (net->params[i]->role == DN_TRAINED)
			n += net->params[i]->n;
	return n * (int64_t)sizeof(float);
}

/* A block is complete when its values reach @target bytes; 1 gives every layer with params its own. */
static void cut_by_size(struct cut *c, int64_t target)
{
	int64_t bytes = 0;

	start_at(c, 0);
	for (int i = 0; i < c->net->n_layers; i++) {
		const int64_t own = trained_bytes(c->net, &c->net->layers[i]);

		if (own && bytes >= target && dn_net_may_start_block(c->net, i)) {
			start_at(c, i);
			bytes = 0;
		}
		bytes += own;
	}
}

static int cut_by_type(struct cut *c, const char *type)
{
	bool any = false;

	start_at(c, 0);
	for (int i = 0; i < c->net->n_layers; i++) {
		const struct dn_layer_ops *ops = c->net->layers[i].ops;

		if (strcmp(ops->name, type) && (!ops->alias || strcmp(ops->alias, type)))
			continue;
		any = true;
		start_at(c, i);
	}
	if (!any)
		return dn_fail(-EINVAL, "fsdp: blocks=type:%s: the net has no [%s] layer", type, type);
	return 0;
}

static int cut_at(struct cut *c, const char *list)
{
	start_at(c, 0);
	for (const char *s = list; *s;) {
		char text[16] = "";
		size_t n = strcspn(s, ",");
		int64_t x;

		if (n < sizeof(text))
			memcpy(text, s, n);
		if (dn_parse_int(text, &x) != DN_NUM_WHOLE || x < 0 || x >= c->net->n_layers)
			return dn_fail(-EINVAL, "fsdp: blocks=at:%s: layer %.*s: the net has layers 0 to %d", list, (int)n, s,
				       c->net->n_layers - 1);
		if (s != list && x <= c->first[c->n - 1])
			return dn_fail(-EINVAL, "fsdp: blocks=at:%s: %lld comes after %d; starts must ascend", list, (long long)x,
				       c->first[c->n - 1]);
		start_at(c, (int)x);
		s += n + (s[n] == ',');
	}
	return 0;
}

static int cut_net(struct cut *c, const char *policy)
{
	int64_t bytes;

	if (!strcmp(policy, "auto")) {
		cut_by_size(c, AUTO_BYTES);
	} else if (!strcmp(policy, "each")) {
		cut_by_size(c, 1);
	} else if (!strcmp(policy, "whole")) {
		dn_warn("fsdp: blocks=whole gathers all params at once: no less memory than without sharding them");
		start_at(c, 0);
	} else if (dn_starts(policy, "type:")) {
		return cut_by_type(c, policy + 5);
	} else if (dn_starts(policy, "at:")) {
		return cut_at(c, policy + 3);
	} else if (dn_starts(policy, "size:") && dn_parse_bytes(policy + 5, &bytes) == DN_NUM_WHOLE && bytes > 0) {
		cut_by_size(c, bytes);
	} else {
		return dn_fail(-EINVAL, "fsdp: blocks=%s: wanted auto, each, whole, size:BYTES, type:SECTION or at:I,J,...",
			       policy);
	}
	return 0;
}

int fsdp_blocks_apply(struct dn_net *net, const struct fsdp_options *o)
{
	struct cut c = { .net = net };
	int err;

	if (dn_net_has_markers(net)) {
		if (!o->blocks_given)
			return 0;
		dn_warn("-fsdp.blocks %s overrules the [block] markers of %s", o->blocks, net->cfg->file->path);
	}
	c.first = dn_calloc((size_t)net->n_layers, sizeof(*c.first));
	if (!c.first)
		return -ENOMEM;
	err = cut_net(&c, o->blocks);
	if (!err)
		err = dn_net_set_blocks(net, c.n, c.first, NULL);
	dn_free(c.first);
	return err;
}
