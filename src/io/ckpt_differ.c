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

static const struct dn_key *file_key(const struct dn_section *s)
{
	for (size_t i = 0; i < sizeof(s->rules) / sizeof(s->rules[0]); i++)
		for (const struct dn_key_rule *r = s->rules[i]; r && r->key; r++)
			if (r->resume == DN_RESUME_FILE && dn_section_find((struct dn_section *)s, r->key))
				return dn_section_find((struct dn_section *)s, r->key);
	return NULL;
}

static const struct dn_ckpt_file *saved_file(const struct dn_ckpt *c, int layer)
{
	for (int i = 0; i < c->head.n_files; i++)
		if (c->head.files[i].layer == layer)
			return &c->head.files[i];
	return NULL;
}

/* Files that layers name: by what they hold, or where an older version has not noted that, by their names. */
static int compare_files(const struct dn_ckpt *c, const struct dn_cfg *saved, const struct dn_net *net,
			 int (*fn)(void *arg, const char *text), void *arg)
{
	int err = 0;

	for (int i = 0; i < net->n_layers && !err; i++) {
		const struct dn_ckpt_file *f = saved_file(c, i);
		const struct dn_section *here = net->layers[i].section, *there = dn_cfg_layer(saved, i);
		const struct dn_key *x = net->layers[i].file_hash ? file_key(here) : NULL,
				    *y = there && x ? file_key(there) : NULL;
		char text[1200];

		if (!there || dn_layer_find(here->name) != dn_layer_find(there->name))
			break; /* told by the cfgs */
		if (!x || !y || (f ? f->hash == net->layers[i].file_hash : !strcmp(x->value, y->value)))
			continue;
		if (f)
			snprintf(
				text, sizeof(text),
				"%.400s:%d: [%.60s] %s=%.250s: the file holds something else than that of the net that was saved, "
				"%s=%.250s (hash %016llx, was %016llx)",
				net->cfg->file->path, x->line, here->name, x->key, x->value, y->key, y->value,
				(unsigned long long)net->layers[i].file_hash, (unsigned long long)f->hash);
		else
			snprintf(text, sizeof(text), "%.400s:%d: [%.60s] %s=%.250s; was saved with %.250s", net->cfg->file->path,
				 x->line, here->name, x->key, x->value, y->value);
		err = fn(arg, text);
	}
	return err;
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
		err = compare_files(c, saved, net, fn, arg);
	if (!err)
		err = compare_legacy_bn(c, saved, net, fn, arg);
	dn_cfg_destroy(saved);
	return err;
}
