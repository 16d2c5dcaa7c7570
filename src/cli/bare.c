/* A net without plugin, ranks or a store; see bare.h. */
#include "cli/bare.h"

#include <errno.h>

#include "train/whole_store.h"

const struct dn_option bare_flags[] = {
	{ .key = "threads",
	  .type = DN_OPT_INT,
	  .min = 1,
	  .max = 4096,
	  .arg = "N",
	  .help = "threads (unset: OMP_NUM_THREADS, or usable cores)" },
	{ .key = "backend",
	  .type = DN_OPT_CHOICE,
	  .def = dn_backend_default,
	  .choices = dn_backend_choices,
	  .arg = "NAME",
	  .help = "who would compute: plain loops, or the tuned library" },
	{ .key = "legacy-bn", .type = DN_OPT_SWITCH, .help = "batch normalisation by Darknet's CPU rule" },
	{ .key = "strict", .type = DN_OPT_SWITCH, .help = "warnings about the cfg are errors" },
	{ .key = NULL }
};

int bare_open(struct bare *b, struct dn_command *c, const char *cfg_path, const struct dn_net_options *opt)
{
	const struct dn_backend *be = dn_backend_find(dn_options_text(c->flags, "backend"));
	struct dn_net_options o = { 0 };
	int threads = dn_options_given(c->flags, "threads") ? (int)dn_options_int(c->flags, "threads") : dn_default_threads(1);
	int err;

	if (!be)
		return -EINVAL;
	if (opt)
		o = *opt;
	o.world = 1;
	o.needs = dn_net_task_needs;
	o.legacy_bn = dn_options_on(c->flags, "legacy-bn");
	err = dn_cfg_read(&b->cfg, cfg_path, dn_options_on(c->flags, "strict"));
	if (!err)
		err = session_claim(b->cfg, true);
	if (!err)
		err = be->open(DN_CPU(threads), &b->dev);
	if (!err)
		err = dn_net_build(&b->net, b->cfg, b->dev, &o);
	return err;
}

int bare_values(struct bare *b)
{
	int err = dn_whole_attach(b->net);

	if (!err)
		err = dn_net_alloc(b->net);
	if (!err)
		err = b->net->store.ops->alloc(b->net->store.self, b->net);
	return err ? err : dn_net_init_values(b->net);
}

void bare_close(struct bare *b)
{
	dn_net_destroy(b->net);
	if (b->dev)
		b->dev->be->close(b->dev);
	dn_cfg_destroy(b->cfg);
}
