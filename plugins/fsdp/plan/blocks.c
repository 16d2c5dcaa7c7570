/* Policies that cut a net into blocks. Under auto, each, whole and size a layer without params belongs to
 * the block before it, and leading ones to the first block; type and at name the starts themselves. */
#include <errno.h>
#include <stdio.h>
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
		if (!dn_layer_is(&c->net->layers[i], type))
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

/* --- the policies --- */

static int cut_auto(struct cut *c, const struct fsdp_policy *p)
{
	cut_by_size(c, AUTO_BYTES);
	return 0;
}

static int cut_each(struct cut *c, const struct fsdp_policy *p)
{
	cut_by_size(c, 1);
	return 0;
}

static int cut_whole(struct cut *c, const struct fsdp_policy *p)
{
	dn_warn("fsdp: blocks=whole gathers all params at once: no less memory than without sharding them");
	start_at(c, 0);
	return 0;
}

static int check_size(const char *value, const char *where, struct fsdp_policy *p)
{
	if (dn_parse_bytes(p->list, &p->bytes) == DN_NUM_WHOLE && p->bytes > 0)
		return 0;
	return fsdp_refuse("blocks", value, where, "size: wants a number of bytes above 0, with K, M or G if you like");
}

static int cut_size(struct cut *c, const struct fsdp_policy *p)
{
	cut_by_size(c, p->bytes);
	return 0;
}

static int check_type(const char *value, const char *where, struct fsdp_policy *p)
{
	if (dn_cfg_is_layer(p->list))
		return 0;
	return fsdp_refuse("blocks", value, where, "type: wants the section name of a layer that this version has");
}

static int cut_type(struct cut *c, const struct fsdp_policy *p)
{
	return cut_by_type(c, p->list);
}

static int check_list(const char *value, const char *where, struct fsdp_policy *p)
{
	const char *s = p->list;
	int64_t x;

	while (*s && next_number(&s, &x))
		;
	if (!*s && s != p->list)
		return 0;
	return fsdp_refuse("blocks", value, where, "at: wants layer numbers separated by commas, as in at:0,3,7");
}

static int cut_list(struct cut *c, const struct fsdp_policy *p)
{
	return cut_at(c, p->list);
}

#define NAME(row, name, what) [row] = name,
static const char *const names[] = { FSDP_BLOCKS_TABLE(NAME) };

static const struct {
	int (*check)(const char *value, const char *where,
		     struct fsdp_policy *p); /* of what follows the name; NULL: nothing may */
	int (*cut)(struct cut *c, const struct fsdp_policy *p);
} policies[FSDP_BLOCKS_KINDS] = {
	[FSDP_BLOCKS_AUTO] = { NULL, cut_auto },       [FSDP_BLOCKS_EACH] = { NULL, cut_each },
	[FSDP_BLOCKS_WHOLE] = { NULL, cut_whole },     [FSDP_BLOCKS_SIZE] = { check_size, cut_size },
	[FSDP_BLOCKS_TYPE] = { check_type, cut_type }, [FSDP_BLOCKS_AT] = { check_list, cut_list },
};

int fsdp_policy_parse(const char *value, const char *where, struct fsdp_policy *out)
{
	char wanted[sizeof(FSDP_BLOCKS_NAMES) + 8];

	for (int k = 0; k < FSDP_BLOCKS_KINDS; k++) {
		const size_t n = strlen(names[k]);

		if (policies[k].check ? strncmp(names[k], value, n) != 0 : strcmp(names[k], value) != 0)
			continue;
		*out = (struct fsdp_policy){ .kind = (enum fsdp_policy_kind)k, .text = value, .list = value + n };
		return policies[k].check ? policies[k].check(value, where, out) : 0;
	}
	snprintf(wanted, sizeof(wanted), "wanted %.*s", (int)sizeof(FSDP_BLOCKS_NAMES) - 3, FSDP_BLOCKS_NAMES);
	return fsdp_refuse("blocks", value, where, wanted);
}

static int no_such_block(const struct dn_net *net, const struct fsdp_options *o, const char *name, int n)
{
	char why[512];
	size_t at = (size_t)snprintf(why, sizeof(why), "there is no block %.*s; the net has", n, name);

	for (int i = 0; i < net->n_blocks && at < sizeof(why); i++)
		at += (size_t)snprintf(why + at, sizeof(why) - at, "%s %s", i ? "," : "", net->blocks[i].name);
	return fsdp_refuse("recompute", o->recompute, o->recompute_where ? o->recompute_where : "fsdp", why);
}

/* In place of what [block] sections say. */
static int apply_recompute(struct dn_net *net, const struct fsdp_options *o)
{
	const bool all = !strcmp(o->recompute, "all"), none = !strcmp(o->recompute, "none");
	bool *again = dn_calloc((size_t)net->n_blocks, sizeof(*again));
	int err = again ? 0 : -ENOMEM;

	for (int i = 0; i < net->n_blocks && !err; i++)
		again[i] = all;
	for (const char *s = o->recompute; *s && !all && !none && !err;) {
		const int n = (int)strcspn(s, ",");
		int i = 0;

		while (i < net->n_blocks && (strncmp(net->blocks[i].name, s, (size_t)n) != 0 || net->blocks[i].name[n]))
			i++;
		if (i == net->n_blocks)
			err = no_such_block(net, o, s, n);
		else
			again[i] = true;
		s += n + (s[n] == ',');
	}
	if (!err)
		err = dn_net_set_recompute(net, again);
	dn_free(again);
	return err;
}

int fsdp_blocks_cut(struct dn_net *net, const struct fsdp_policy *policy)
{
	struct cut c = { .net = net };
	int err;

	c.first = dn_calloc((size_t)net->n_layers, sizeof(*c.first));
	if (!c.first)
		return -ENOMEM;
	err = policies[policy->kind].cut(&c, policy);
	if (!err)
		err = dn_net_set_blocks(net, c.n, c.first, NULL);
	dn_free(c.first);
	return err;
}

static int apply_policy(struct dn_net *net, const struct fsdp_options *o)
{
	fsdp_block_rules(net);
	if (dn_net_has_markers(net)) {
		if (!o->policy_given)
			return 0;
		dn_warn("-fsdp.blocks %s overrules the [block] markers of %s", o->policy.text, net->cfg->file->path);
	}
	return fsdp_blocks_cut(net, &o->policy);
}

int fsdp_blocks_apply(struct dn_net *net, const struct fsdp_options *o)
{
	int err = apply_policy(net, o);

	return err || !o->recompute ? err : apply_recompute(net, o);
}
