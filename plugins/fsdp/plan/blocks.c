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
	bool seen; /* a start of the list was there already */
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

/* the next number of "0,3,7" and what is left of the list; false: that is not one */
static bool next_number(const char **list, int64_t *out)
{
	char text[16] = "";
	size_t n = strcspn(*list, ",");

	if (!n || n >= sizeof(text) || strspn(*list, "0123456789") != n || ((*list)[n] && !(*list)[n + 1]))
		return false;
	memcpy(text, *list, n);
	*list += n + ((*list)[n] == ',');
	return dn_parse_int(text, out) == DN_NUM_WHOLE;
}

static int cut_at(struct cut *c, const char *list)
{
	const char *s = list;
	int64_t x;

	start_at(c, 0);
	while (*s && next_number(&s, &x)) {
		if (x >= c->net->n_layers)
			return dn_fail(-EINVAL, "fsdp: blocks=at:%s: layer %lld: the net has layers 0 to %d", list, (long long)x,
				       c->net->n_layers - 1);
		if (c->seen && x <= c->first[c->n - 1])
			return dn_fail(-EINVAL, "fsdp: blocks=at:%s: %lld comes after %d; starts must ascend", list, (long long)x,
				       c->first[c->n - 1]);
		start_at(c, (int)x);
		c->seen = true;
	}
	return 0;
}

static const struct fsdp_name policies[] = {
	{ "auto", FSDP_BLOCKS_AUTO, false },
	{ "each", FSDP_BLOCKS_EACH, false },
	{ "whole", FSDP_BLOCKS_WHOLE, false },
	{ "size:", FSDP_BLOCKS_SIZE, false },
	{ "type:", FSDP_BLOCKS_TYPE, false },
	{ "at:", FSDP_BLOCKS_AT, false },
	{ NULL, 0, false },
};

static int check_argument(const char *value, const char *where, struct fsdp_policy *p)
{
	const char *s = p->list;
	int64_t x;

	switch (p->kind) {
	case FSDP_BLOCKS_SIZE:
		if (dn_parse_bytes(p->list, &p->bytes) == DN_NUM_WHOLE && p->bytes > 0)
			return 0;
		return fsdp_refuse("blocks", value, where, "size: wants a number of bytes above 0, with K, M or G if you like");
	case FSDP_BLOCKS_TYPE:
		if (dn_cfg_is_layer(p->list))
			return 0;
		return fsdp_refuse("blocks", value, where, "type: wants the section name of a layer that this version has");
	case FSDP_BLOCKS_AT:
		while (*s && next_number(&s, &x))
			;
		if (!*s && s != p->list)
			return 0;
		return fsdp_refuse("blocks", value, where, "at: wants layer numbers separated by commas, as in at:0,3,7");
	default:
		return 0;
	}
}

int fsdp_policy_parse(const char *value, const char *where, struct fsdp_policy *out)
{
	for (const struct fsdp_name *x = policies; x->name; x++) {
		struct fsdp_policy p = { .kind = (enum fsdp_policy_kind)x->value };
		size_t n = strlen(x->name);

		if (x->name[n - 1] == ':' ? strncmp(x->name, value, n) != 0 : strcmp(x->name, value) != 0)
			continue;
		p.text = value;
		p.list = value + n;
		*out = p;
		return check_argument(value, where, out);
	}
	return fsdp_refuse("blocks", value, where, "wanted auto, each, whole, size:BYTES, type:SECTION or at:I,J,...");
}

static int cut_net(struct cut *c, const struct fsdp_policy *p)
{
	switch (p->kind) {
	case FSDP_BLOCKS_AUTO:
		cut_by_size(c, AUTO_BYTES);
		return 0;
	case FSDP_BLOCKS_EACH:
		cut_by_size(c, 1);
		return 0;
	case FSDP_BLOCKS_WHOLE:
		dn_warn("fsdp: blocks=whole gathers all params at once: no less memory than without sharding them");
		start_at(c, 0);
		return 0;
	case FSDP_BLOCKS_SIZE:
		cut_by_size(c, p->bytes);
		return 0;
	case FSDP_BLOCKS_TYPE:
		return cut_by_type(c, p->list);
	case FSDP_BLOCKS_AT:
		return cut_at(c, p->list);
	}
	return dn_fail(-EINVAL, "fsdp: blocks: policy %d", (int)p->kind);
}

int fsdp_blocks_apply(struct dn_net *net, const struct fsdp_options *o)
{
	struct cut c = { .net = net };
	int err;

	if (dn_net_has_markers(net)) {
		if (!o->policy_given)
			return 0;
		dn_warn("-fsdp.blocks %s overrules the [block] markers of %s", o->policy.text, net->cfg->file->path);
	}
	c.first = dn_calloc((size_t)net->n_layers, sizeof(*c.first));
	if (!c.first)
		return -ENOMEM;
	err = cut_net(&c, &o->policy);
	if (!err)
		err = dn_net_set_blocks(net, c.n, c.first, NULL);
	dn_free(c.first);
	return err;
}
