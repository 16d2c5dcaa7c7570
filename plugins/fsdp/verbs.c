/* The offline verbs: plan, and conversion and inspection of checkpoints. None of them calls MPI or runs a
 * net. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "plan/plan.h"

#define PIECE (1 << 18) /* elements of 1 MiB */

/* The plugin as far as its keys go; fsdp.c holds the whole. */
static const struct dn_plugin keys_of = { .name = "fsdp", .options = fsdp_option_table };

/* --- a net without a run --- */

struct offline {
	struct dn_cfg *cfg;
	struct dn_device *dev;
	struct dn_net *net;
};

static void offline_fini(struct offline *o)
{
	dn_net_destroy(o->net);
	if (o->dev)
		o->dev->be->close(o->dev);
	dn_cfg_destroy(o->cfg);
}

static int offline_build(struct offline *o, const char *backend, int threads, const struct dn_net_options *opt)
{
	const struct dn_backend *be = dn_backend_find(backend);
	struct dn_net_options with = *opt;
	int err;

	if (!be)
		return -EINVAL;
	with.needs = dn_net_task_needs;
	err = dn_cfg_claim(o->cfg, keys_of.name);
	if (!err)
		err = be->open(DN_CPU(threads), &o->dev);
	return err ? err : dn_net_build(&o->net, o->cfg, o->dev, &with);
}

/* --- plan --- */

static const struct dn_option plan_flags[] = {
	{ .key = "world", .type = DN_OPT_INT, .def = "1", .min = 1, .max = 65536, .arg = "N", .help = "ranks to plan for" },
	{ .key = "json", .type = DN_OPT_SWITCH, .help = "print one JSON object" },
	{ .key = "threads",
	  .type = DN_OPT_INT,
	  .min = 1,
	  .max = 4096,
	  .arg = "N",
	  .help = "threads of each rank (unset: usable cores); workspace may depend on it" },
	{ .key = "batch",
	  .type = DN_OPT_INT,
	  .min = 1,
	  .max = 1e9,
	  .arg = "N",
	  .help = "images of one update over all ranks (unset: the cfg's)" },
	{ .key = "subdivisions",
	  .type = DN_OPT_INT,
	  .min = 1,
	  .max = 1e9,
	  .arg = "N",
	  .help = "microbatches of one update (unset: the cfg's)" },
	{ .key = "backend",
	  .type = DN_OPT_CHOICE,
	  .def = dn_backend_default,
	  .choices = dn_backend_choices,
	  .arg = "NAME",
	  .help = "whose workspace is planned" },
	{ .key = "legacy-bn", .type = DN_OPT_SWITCH, .help = "batch normalisation by Darknet's CPU rule" },
	{ .key = "strict", .type = DN_OPT_SWITCH, .help = "warnings about the cfg are errors" },
	{ .key = NULL }
};

static const struct dn_option *const plan_tables[] = { plan_flags, NULL };

static const struct dn_option consolidate_flags[] = {
	{ .key = "ema", .type = DN_OPT_SWITCH, .help = "the mean of the values that -ema kept, in place of the values" },
	{ .key = NULL },
};

static const struct dn_option *const consolidate_tables[] = { consolidate_flags, NULL };

/* what a run of as many ranks on this host does */
static void one_host(const struct dn_net *net, struct fsdp_options *o)
{
	struct dn_facts facts;

	net->dev->be->facts(net->dev, &facts);
	if (o->transport == FSDP_AUTO && net->opt.world > 1 && facts.host_access)
		o->transport = FSDP_SHM;
}

static int plan_build(struct fsdp_plan **out, struct offline *o, const struct dn_command *c, const struct dn_options *keys)
{
	const struct dn_options *f = c->flags;
	int threads = dn_options_given(f, "threads") ? (int)dn_options_int(f, "threads") : dn_default_threads(1);
	struct dn_net_options opt = {
		.batch = dn_options_int(f, "batch"),
		.subdivisions = dn_options_int(f, "subdivisions"),
		.world = (int)dn_options_int(f, "world"),
		.train = true,
		.legacy_bn = dn_options_on(f, "legacy-bn"),
		.multi_scale = true,
	};
	struct fsdp_options options;
	int err = fsdp_options_resolve(keys, &options);

	opt.grads_add = !err && options.accumulate >= FSDP_NO_SYNC;
	opt.looks = !err && options.looks;
	opt.update_early = !opt.looks;
	opt.ema = !err && options.ema;
	opt.sync_bn = !err && options.sync_bn;
	if (!err)
		err = offline_build(o, dn_options_text(f, "backend"), threads, &opt);
	if (!err)
		err = dn_loop_plan_sizes(o->net);
	if (!err)
		err = fsdp_blocks_apply(o->net, &options);
	if (!err)
		err = dn_net_check_keys(o->net);
	if (!err)
		one_host(o->net, &options);
	if (!err)
		err = fsdp_plan_build(out, o->net, &options, opt.world);
	if (!err) {
		err = fsdp_plan_fit(*out, o->net, stderr);
		if (!err)
			err = fsdp_plan_check(*out, NULL, NULL);
		if (err)
			fsdp_plan_destroy(*out);
	}
	return err;
}

static int verb_plan(struct dn_command *c)
{
	struct offline o = { 0 };
	struct dn_options *keys = NULL;
	struct dn_section *section;
	struct fsdp_plan *p;
	int err;

	err = dn_cfg_read(&o.cfg, c->args[0], dn_options_on(c->flags, "strict"));
	if (err)
		return err;
	section = dn_cfg_section(o.cfg, keys_of.name, &err);
	if (!err)
		err = dn_plugin_options(&keys, &keys_of, section, c->n_plugin_flags, c->plugin_flags);
	if (!err)
		err = plan_build(&p, &o, c, keys);
	if (!err) {
		err = dn_options_on(c->flags, "json") ? fsdp_plan_json(p, o.net, c->args[0], c->out)
						      : fsdp_plan_print(p, o.net, c->out);
		fsdp_plan_destroy(p);
	}
	offline_fini(&o);
	dn_options_destroy(keys);
	return err;
}

/* --- checkpoints --- */

/* The net that a checkpoint holds: shapes only, so one image and the plain back end will do. */
static int checkpoint_net(struct offline *o, const struct dn_ckpt *ck)
{
	const struct dn_net_options opt = { .local_batch = 1, .world = 1 };
	const char *text = dn_ckpt_cfg_text(ck);
	char path[4200];
	int err;

	snprintf(path, sizeof(path), "%.4000s/meta.json: cfg", dn_ckpt_dir(ck));
	err = dn_cfg_parse(&o->cfg, text, strlen(text), path, false);
	return err ? err : offline_build(o, "ref", 1, &opt);
}

static int check_tensor(const struct dn_ckpt *ck, const struct dn_param *p)
{
	const struct dn_ckpt_tensor *t = dn_ckpt_find(ck, p->name);

	if (!t)
		return dn_fail(-EINVAL, "%s: no tensor %s, which the checkpoint's own cfg has", dn_ckpt_dir(ck), p->name);
	if (t->n_dims != p->n_dims || memcmp(t->shape, p->shape, (size_t)p->n_dims * sizeof(p->shape[0])))
		return dn_fail(-EINVAL, "%s: tensor %s has another shape than the checkpoint's own cfg gives it", dn_ckpt_dir(ck),
			       p->name);
	return 0;
}

struct writing {
	struct dn_ckpt *ck;
	struct dn_out out;
	float *piece;
	int64_t tensors;
	bool ema;
};

static int write_param(void *arg, struct dn_param *p, int64_t offset)
{
	struct writing *w = arg;
	int err = check_tensor(w->ck, p);

	if (!err && w->out.bytes != offset)
		return dn_fail(-EINVAL, "%s: tensor %s belongs at byte %lld, but %lld are written", w->out.path, p->name,
			       (long long)offset, (long long)w->out.bytes);
	for (int64_t at = 0; at < p->n && !err; at += PIECE) {
		int64_t n = p->n - at < PIECE ? p->n - at : PIECE;

		err = w->ema ? dn_ckpt_read_ema(w->ck, p->name, at, n, w->piece) : dn_ckpt_read(w->ck, p->name, at, n, w->piece);
		if (!err)
			err = dn_out_write(&w->out, w->piece, (size_t)n * sizeof(float));
	}
	w->tensors++;
	return err;
}

static int write_weights(struct writing *w, const struct dn_net *net, const char *path)
{
	int err;

	w->piece = dn_alloc(PIECE * sizeof(float));
	err = w->piece ? dn_out_open(&w->out, path) : -ENOMEM;
	if (!err)
		err = dn_weights_write_header(&w->out, dn_ckpt_state_of(w->ck)->seen);
	if (!err)
		err = dn_weights_each(net, write_param, w);
	if (!err)
		err = dn_out_commit(&w->out);
	dn_out_abort(&w->out);
	dn_free(w->piece);
	return err;
}

/* Each region at its own highest: at least what was held at any one time. */
static size_t peak_bytes(void)
{
	size_t sum = 0;

	for (int r = 0; r < DN_MEM_REGIONS; r++) {
		struct dn_mem_stats s;

		dn_mem_stats(r, &s);
		sum += s.peak_bytes;
	}
	return sum;
}

static int verb_consolidate(struct dn_command *c)
{
	struct writing w = { .ck = NULL };
	struct offline o = { 0 };
	int err;

	if (!dn_ends(c->args[1], ".weights"))
		return dn_fail(-EINVAL, "%s: fsdp consolidate writes files whose name ends in .weights", c->args[1]);
	err = dn_ckpt_open(&w.ck, c->args[0]);
	if (err)
		return err;
	w.ema = dn_options_on(c->flags, "ema");
	err = checkpoint_net(&o, w.ck);
	if (!err && w.ema && !dn_ckpt_has_ema(w.ck))
		err = dn_fail(-EINVAL, "%s: has no mean of the values: its run was without -ema", dn_ckpt_dir(w.ck));
	if (!err)
		err = write_weights(&w, o.net, c->args[1]);
	if (!err) {
		const struct dn_ckpt_state *s = dn_ckpt_state_of(w.ck);

		dn_ckpt_tell(w.ck, dn_ckpt_nonfinite(w.ck));
		fprintf(c->out, "%s: %" PRId64 " bytes, %" PRId64 " tensors, step %" PRId64 ", seen %" PRIu64 "\n", c->args[1],
			dn_weights_bytes(o.net, -1), w.tensors, s->step, s->seen);
		fprintf(c->out, "peak %zu bytes\n", peak_bytes());
	}
	offline_fini(&o);
	dn_ckpt_close(w.ck);
	return err;
}

static void print_tensor(FILE *out, const struct dn_ckpt_tensor *t)
{
	char shape[256] = "";
	size_t n = 0;
	int files = 0;

	for (int i = 0; i < t->n_dims; i++)
		n += (size_t)snprintf(shape + n, sizeof(shape) - n, "%s%" PRId64, i ? "x" : "", t->shape[i]);
	for (int i = 0; i < t->n_intervals; i++)
		files += !i || t->intervals[i].file != t->intervals[i - 1].file;
	fprintf(out, "%-32s  %-6s  %-20s  %14" PRId64 "  %9d  %5d\n", t->name, dn_ckpt_kind_name(t->kind), shape, t->n,
		t->n_intervals, files);
}

static int verb_inspect(struct dn_command *c)
{
	struct dn_ckpt *ck;
	int64_t elements = 0;
	int err = dn_ckpt_open(&ck, c->args[0]);

	if (err)
		return err;
	fprintf(c->out, "%s: step %" PRId64 ", seen %" PRIu64 ", world %d, optimizer %s, seed %" PRIu64, dn_ckpt_dir(ck),
		dn_ckpt_state_of(ck)->step, dn_ckpt_state_of(ck)->seen, dn_ckpt_world(ck), dn_ckpt_optimizer(ck),
		dn_ckpt_state_of(ck)->seed);
	if (dn_ckpt_state_of(ck)->run)
		fprintf(c->out, ", run %016" PRIx64, dn_ckpt_state_of(ck)->run);
	fputc('\n', c->out);
	fprintf(c->out, "%-32s  %-6s  %-20s  %14s  %9s  %5s\n", "tensor", "kind", "shape", "elements", "intervals", "files");
	for (int i = 0; i < dn_ckpt_n_tensors(ck); i++) {
		print_tensor(c->out, dn_ckpt_tensor_at(ck, i));
		elements += dn_ckpt_tensor_at(ck, i)->n;
	}
	fprintf(c->out, "%d tensors, %" PRId64 " elements, %" PRId64 " bytes\n", dn_ckpt_n_tensors(ck), elements, elements * 4);
	dn_ckpt_close(ck);
	return 0;
}

static int verify_tensor(struct dn_ckpt *ck, const struct dn_ckpt_tensor *t, float *piece)
{
	int err = dn_ckpt_cover(ck, t);

	for (int64_t at = 0; at < t->n && !err; at += PIECE)
		err = dn_ckpt_read(ck, t->name, at, t->n - at < PIECE ? t->n - at : PIECE, piece);
	return err;
}

/* All faults are printed, not only the first. */
static int verify_all(struct dn_ckpt *ck, const struct dn_net *net, FILE *out)
{
	float *piece = dn_alloc(PIECE * sizeof(float));
	int64_t elements = 0;
	int n_bad = 0;

	if (!piece)
		return -ENOMEM;
	for (int i = 0; i < net->n_params; i++)
		if (check_tensor(ck, net->params[i])) {
			fprintf(out, "%s\n", dn_message());
			n_bad++;
		}
	for (int i = 0; i < dn_ckpt_n_tensors(ck); i++) {
		const struct dn_ckpt_tensor *t = dn_ckpt_tensor_at(ck, i);

		if (verify_tensor(ck, t, piece)) {
			fprintf(out, "%s\n", dn_message());
			n_bad++;
		}
		elements += t->n;
	}
	dn_free(piece);
	dn_ckpt_tell(ck, dn_ckpt_nonfinite(ck));
	if (n_bad)
		return dn_fail(-EIO, "%s: %d faults in %d tensors", dn_ckpt_dir(ck), n_bad, dn_ckpt_n_tensors(ck));
	fprintf(out, "%s: %d tensors, %" PRId64 " elements: complete, all checksums hold\n", dn_ckpt_dir(ck),
		dn_ckpt_n_tensors(ck), elements);
	return 0;
}

static int verb_verify(struct dn_command *c)
{
	struct offline o = { 0 };
	struct dn_ckpt *ck;
	int err = dn_ckpt_open(&ck, c->args[0]);

	if (err)
		return err;
	err = checkpoint_net(&o, ck);
	if (!err)
		err = verify_all(ck, o.net, c->out);
	offline_fini(&o);
	dn_ckpt_close(ck);
	return err;
}

const struct dn_verb fsdp_verbs[] = { { .name = "plan",
					.args = "CFG",
					.summary = "memory, traffic and schedule of a run on N ranks, without running it",
					.min_args = 1,
					.max_args = 1,
					.flags = plan_tables,
					.run = verb_plan },
				      { .name = "consolidate",
					.args = "DIR OUT.weights",
					.summary = "a checkpoint's values as one Darknet weights file",
					.min_args = 2,
					.max_args = 2,
					.flags = consolidate_tables,
					.run = verb_consolidate },
				      { .name = "inspect",
					.args = "DIR",
					.summary = "what a checkpoint holds",
					.min_args = 1,
					.max_args = 1,
					.run = verb_inspect },
				      { .name = "verify",
					.args = "DIR",
					.summary = "is a checkpoint complete and undamaged?",
					.min_args = 1,
					.max_args = 1,
					.run = verb_verify },
				      { .name = NULL } };
