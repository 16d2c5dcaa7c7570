/* Does a checkpoint belong to the net that goes on from it? Tensors aside (ckpt_load.c): by the cfg that was saved. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/ckpt_priv.h"

bool ckpt_legacy_bn(const struct dn_cfg *cfg)
{
	const struct dn_key *k = dn_section_find(cfg->net, "legacy_bn");
	int64_t x = 0;

	return k && dn_parse_int(k->value, &x) <= DN_NUM_PREFIX && x;
}

/* The rule of batch normalisation is the cfg's or a flag's. */
static int compare_legacy_bn(const struct dn_ckpt *c, const struct dn_cfg *saved, const struct dn_net *net,
			     int (*fn)(void *arg, const char *text), void *arg)
{
	const struct dn_key *k = dn_section_find(net->cfg->net, "legacy_bn");
	bool then = c->head.legacy_bn || ckpt_legacy_bn(saved);
	char text[700];

	if (net->opt.legacy_bn == then)
		return 0;
	snprintf(text, sizeof(text), "%.500s:%d: [net] legacy_bn=%d%s; was saved with %d%s", net->cfg->file->path,
		 k ? k->line : net->cfg->net->line, net->opt.legacy_bn,
		 net->opt.legacy_bn && !ckpt_legacy_bn(net->cfg) ? " by -legacy-bn" : "", then,
		 c->head.legacy_bn ? " by -legacy-bn" : "");
	return fn(arg, text);
}

int dn_ckpt_differences(const struct dn_ckpt *c, const struct dn_net *net, int (*fn)(void *arg, const char *text), void *arg)
{
	struct dn_cfg *saved;
	char path[CKPT_PATH_MAX + 32];
	int err;

	snprintf(path, sizeof(path), "%s/meta.json: cfg", c->dir);
	err = dn_cfg_parse_quiet(&saved, c->cfg_text, strlen(c->cfg_text), path);
	if (err == -ENOMEM)
		return err;
	if (err) {
		char text[1000]; /* what cannot be compared is not known to be the same */

		snprintf(text, sizeof(text), "%s", dn_message());
		return fn(arg, text);
	}
	err = dn_cfg_differences(net->cfg, saved, fn, arg);
	if (!err)
		err = compare_legacy_bn(c, saved, net, fn, arg);
	dn_cfg_destroy(saved);
	return err;
}
