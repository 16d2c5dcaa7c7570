/* Verbs about a net alone: what a cfg builds ("net"), one pass over an array ("forward"), a cut file ("partial"). */
#include <errno.h>
#include <string.h>

#include "cli/bare.h"
#include "cli/cli.h"
#include "io/json.h"

/* --- net --- */

/* elements of layers [first, last] that are trained, or that are buffers */
static int64_t count(const struct dn_net *net, int first, int last, enum dn_role role)
{
	int64_t n = 0;

	for (int i = 0; i < net->n_params; i++)
		if (net->params[i]->layer->index >= first && net->params[i]->layer->index <= last && net->params[i]->role == role)
			n += net->params[i]->n;
	return n;
}

static void json_text(FILE *f, const char *s)
{
	struct dn_buf b = { 0 };

	fputs(dn_json_text(&b, s) ? "null" : b.s, f);
	dn_buf_fini(&b);
}

static void json_shape(FILE *f, const char *name, int64_t w, int64_t h, int64_t c, int64_t flat)
{
	if (c <= 0 || w <= 0 || h <= 0)
		w = h = 1, c = flat;
	fprintf(f, "\"%s\":[%lld,%lld,%lld]", name, (long long)w, (long long)h, (long long)c);
}

static void print_json(FILE *f, const struct dn_net *net, const char *path)
{
	fprintf(f, "{\"v\":1,\"cfg\":");
	json_text(f, path);
	fputc(',', f);
	json_shape(f, "input", net->w, net->h, net->c, net->inputs);
	fprintf(f, ",\"batch\":%lld,\"layers\":[", (long long)net->batch);
	for (int i = 0; i < net->n_layers; i++) {
		const struct dn_layer *l = &net->layers[i];

		fprintf(f, "%s\n{\"index\":%d,\"type\":\"%s\",", i ? "," : "", i, l->ops->name);
		json_shape(f, "in", l->w, l->h, l->c, l->inputs);
		fputc(',', f);
		json_shape(f, "out", l->out_w, l->out_h, l->out_c, l->outputs);
		fprintf(f, ",\"params\":%lld,\"buffers\":%lld,\"flops\":%lld,\"block\":", (long long)count(net, i, i, DN_TRAINED),
			(long long)count(net, i, i, DN_BUFFER), (long long)l->flops);
		json_text(f, l->block->name);
		fputc('}', f);
	}
	fprintf(f, "],\n\"blocks\":[");
	for (int b = 0; b < net->n_blocks; b++) {
		int first = net->blocks[b].first, last = net->blocks[b].last;

		fprintf(f, "%s\n{\"name\":", b ? "," : "");
		json_text(f, net->blocks[b].name);
		fprintf(f, ",\"first\":%d,\"last\":%d,\"params\":%lld,\"buffers\":%lld}", first, last,
			(long long)count(net, first, last, DN_TRAINED), (long long)count(net, first, last, DN_BUFFER));
	}
	fprintf(f, "],\n\"params\":%lld,\"buffers\":%lld,\"flops\":%lld,\"weights_bytes\":%lld}\n", (long long)net->n_trained,
		(long long)net->n_buffers, (long long)net->flops, (long long)dn_weights_bytes(net, -1));
}

static void print_table(FILE *f, const struct dn_net *net)
{
	char size[32], act[32];

	session_print_layers(f, net);
	fprintf(f, "\nblock                  layers      params\n");
	for (int b = 0; b < net->n_blocks; b++) {
		int64_t n = count(net, net->blocks[b].first, net->blocks[b].last, DN_TRAINED);
		char range[32];

		snprintf(range, sizeof(range), "%d-%d", net->blocks[b].first, net->blocks[b].last);
		fprintf(f, "%-20s %8s %11lld\n", net->blocks[b].name, range, (long long)n);
	}
	dn_human_bytes((double)dn_weights_bytes(net, -1), size, sizeof(size));
	dn_human_bytes((double)net->activations_bytes, act, sizeof(act));
	fprintf(f,
		"\n%lld trained parameters, %lld of rolling statistics, weights file %s\n"
		"batch %lld, subdivisions %lld; activations of a forward pass %s\n"
		"Floating Point Operations: %.2f Bn an image\n",
		(long long)net->n_trained, (long long)net->n_buffers, size, (long long)net->batch, (long long)net->subdivisions,
		act, (double)net->flops / 1e9);
}

static bool plugin_section(const char *section)
{
	return !dn_cfg_is_layer(section) && dn_plugin_exists(section);
}

static int write_plain(const struct dn_cfg *cfg, const char *path)
{
	struct dn_out o = { 0 };
	char *text;
	size_t n;
	int err;

	err = dn_cfg_plain(cfg, plugin_section, &text, &n);
	if (err)
		return err;
	err = dn_out_open(&o, path);
	if (!err) {
		err = dn_out_write(&o, text, n);
		if (err)
			dn_out_abort(&o);
		else
			err = dn_out_commit(&o);
	}
	dn_free(text);
	return err;
}

static int run_net(struct dn_command *c)
{
	const char *plain = dn_options_text(c->flags, "plain");
	struct bare b = { NULL };
	int err;

	err = bare_open(&b, c, c->args[0], &(struct dn_net_options){ .describe = true });
	if (!err && plain)
		err = write_plain(b.cfg, plain);
	if (!err && dn_options_on(c->flags, "json"))
		print_json(c->out, b.net, c->args[0]);
	else if (!err && !plain)
		print_table(c->out, b.net);
	bare_close(&b);
	return err;
}

static const struct dn_option net_flags[] = {
	{ .key = "json", .type = DN_OPT_SWITCH, .help = "layers, blocks and sizes as one JSON object" },
	{ .key = "plain",
	  .type = DN_OPT_STRING,
	  .arg = "OUT",
	  .help = "write the cfg without [block] and plugin sections to OUT" },
	{ .key = NULL }
};
static const struct dn_option *const net_tables[] = { net_flags, bare_flags, NULL };

const struct dn_verb verb_net = {
	.name = "net",
	.args = "CFG",
	.summary = "layers, blocks, parameters and sizes of a cfg",
	.min_args = 1,
	.max_args = 1,
	.flags = net_tables,
	.run = run_net,
};

/* --- forward --- */

struct pass {
	struct session s;
	struct dn_npy in;
	bool opened;
	float *image; /* [inputs], when IN is an image */
	int64_t n;    /* images */
	int layer;
	float *x;      /* [local_batch, inputs] */
	float *out;    /* [local_batch, outputs] */
	float *y;      /* rank 0: [n, outputs] */
	size_t *sizes; /* [world] */
};

/* Anything but a .npy file is an image, which becomes the input as "classifier predict" makes it. */
static bool is_image(const char *path)
{
	return !dn_ends(path, ".npy");
}

static int open_image(struct pass *p, const char *path)
{
	const struct dn_net *net = p->s.net;

	if (!net->w)
		return dn_fail(-EINVAL, "%s: an image, but the net takes %lld inputs without width and height", path,
			       (long long)net->inputs);
	if (net->c != 1 && net->c != 3)
		return dn_fail(-EINVAL, "%s: the net takes %lld channels; images are read as 1 (grey) or 3 (red, green, blue)",
			       path, (long long)net->c);
	p->image = dn_alloc((size_t)net->inputs * sizeof(*p->image));
	if (!p->image)
		return -ENOMEM;
	p->n = 1;
	return dn_image_read_fit(path, DN_FIT_LETTERBOX, p->image, net->w, net->h, net->c);
}

static int open_input(struct pass *p, const char *path)
{
	const struct dn_net *net = p->s.net;
	struct dn_dataset_config want = { .inputs = net->inputs, .w = net->w, .h = net->h, .c = net->c };
	int err;

	if (is_image(path))
		return open_image(p, path);
	err = dn_npy_open(&p->in, path);
	if (err)
		return err;
	p->opened = true;
	if (p->in.n_dims < 2 || p->in.n_dims > 4)
		return dn_fail(-EINVAL, "%s: an array of %d dimensions found, [n,c,h,w], [n,h,w] or [n,inputs] wanted", path,
			       p->in.n_dims);
	if (p->in.shape[0] < 1)
		return dn_fail(-EINVAL, "%s: no images", path);
	err = dn_samples_fit(path, p->in.n_dims, p->in.shape, &want);
	if (err)
		return err;
	p->n = p->in.shape[0];
	return 0;
}

static int alloc_pass(struct pass *p)
{
	const struct dn_net *net = p->s.net;
	int64_t outputs = net->layers[p->layer].outputs;
	size_t bytes;
	int err;

	err = dn_mul_size((size_t)net->local_batch * sizeof(float), (size_t)net->inputs, &bytes);
	if (err)
		return err;
	err = net->dev->be->alloc_host(net->dev, DN_MEM_HOST, bytes, (void **)&p->x);
	if (!err)
		err = dn_mul_size((size_t)net->local_batch * sizeof(float), (size_t)outputs, &bytes);
	if (!err)
		err = net->dev->be->alloc_host(net->dev, DN_MEM_HOST, bytes, (void **)&p->out);
	if (err)
		return err;
	p->sizes = dn_calloc((size_t)p->s.run.group.world, sizeof(*p->sizes));
	if (!p->sizes)
		return -ENOMEM;
	if (p->s.run.group.rank)
		return 0;
	err = dn_mul_size((size_t)p->n * sizeof(float), (size_t)outputs, &bytes);
	if (err)
		return err;
	p->y = dn_alloc(bytes);
	return p->y ? 0 : -ENOMEM;
}

/* One pass over images [at, at + world * local); places past the end repeat the last image and are dropped. */
static int pass_once(struct pass *p, int64_t at)
{
	struct dn_net *net = p->s.net;
	const struct dn_group *g = &p->s.run.group;
	int64_t outputs = net->layers[p->layer].outputs;
	size_t bytes = (size_t)(net->local_batch * outputs) * sizeof(float);
	char *all = NULL;
	int64_t left;
	int err;

	for (int64_t i = 0; i < net->local_batch; i++) {
		int64_t image = at + g->rank * net->local_batch + i;

		if (image >= p->n)
			image = p->n - 1;
		for (int64_t k = 0; k < net->inputs; k++)
			p->x[i * net->inputs + k] = p->image ? p->image[k] : dn_npy_float(&p->in, image * net->inputs + k, true);
	}
	err = dn_net_forward(net, &(struct dn_pass){ .input = p->x });
	if (!err)
		err = dn_layer_read(&net->layers[p->layer], 0, net->local_batch, p->out);
	if (err)
		return err;
	err = dn_group_gather(g, p->out, bytes, &all, p->sizes);
	if (err || g->rank)
		return err;
	left = p->n - at;
	if (left > net->local_batch * g->world)
		left = net->local_batch * g->world;
	memcpy(p->y + at * outputs, all, (size_t)(left * outputs) * sizeof(float));
	dn_free(all);
	return 0;
}

static int write_output(struct pass *p, const char *path)
{
	const struct dn_layer *l = &p->s.net->layers[p->layer];
	int64_t shape[4] = { p->n, l->out_c, l->out_h, l->out_w };

	if (l->out_c <= 0 || l->out_h <= 0 || l->out_w <= 0) {
		shape[1] = l->outputs;
		shape[2] = shape[3] = 1;
	}
	return dn_npy_write(path, 4, shape, p->y);
}

static int forward(struct pass *p, struct dn_command *c)
{
	struct dn_net_options opt = { 0 };
	struct session_items items = { 0 };
	struct dn_weights_info info;
	int layer = 0, err;

	if (dn_options_given(c->flags, "layer")) {
		layer = (int)dn_options_int(c->flags, "layer");
		opt.keep = &layer;
		opt.n_keep = layer >= 0;
	}
	err = session_start(&p->s, c, c->args[0], false);
	if (err)
		return err;
	err = session_agree(&p->s, session_pass_batch(&p->s, &opt), "batch");
	if (!err)
		err = session_net(&p->s, &opt);
	if (err)
		return err;
	p->layer = opt.n_keep ? layer : p->s.net->output_layer;
	if (p->layer >= p->s.net->n_layers)
		err = dn_fail(-EINVAL, "-layer %d: the net has layers 0 to %d", p->layer, p->s.net->n_layers - 1);
	if (!err)
		err = open_input(p, c->args[2]);
	if (!err)
		err = alloc_pass(p);
	if (!err)
		err = session_item(&items, "images", "%lld", (long long)p->n);
	if (!err)
		err = session_item_weights(&p->s, &items, c->args[1]);
	err = session_agree(&p->s, err, "input");
	if (!err)
		err = session_ready(&p->s, &items);
	session_items_fini(&items);
	if (!err)
		err = session_load(&p->s, c->args[1], false, &info);
	for (int64_t at = 0; !err && at < p->n; at += p->s.net->local_batch * p->s.run.group.world)
		err = pass_once(p, at);
	if (err)
		return err;
	if (p->s.run.group.rank == 0) {
		int64_t bad = dn_nonfinite(p->y, p->n * p->s.net->layers[p->layer].outputs);

		if (bad)
			dn_warn("%s: %lld of its %lld values are NaN or infinite", c->args[3], (long long)bad,
				(long long)(p->n * p->s.net->layers[p->layer].outputs));
		err = write_output(p, c->args[3]);
	}
	return session_agree(&p->s, err, "output");
}

static int run_forward(struct dn_command *c)
{
	struct pass p = { .n = 0 };
	int err = forward(&p, c);

	if (p.opened)
		dn_npy_close(&p.in);
	dn_free(p.image);
	dn_net_drain(p.s.net);
	if (p.s.run.dev) {
		p.s.run.dev->be->free_host(p.s.run.dev, p.x);
		p.s.run.dev->be->free_host(p.s.run.dev, p.out);
	}
	dn_free(p.y);
	dn_free(p.sizes);
	return session_end(&p.s, err);
}

static const struct dn_option forward_flags[] = { { .key = "layer",
						    .type = DN_OPT_INT,
						    .min = 0,
						    .max = 1e6,
						    .arg = "N",
						    .help = "the output of layer N instead of the last" },
						  { .key = NULL } };
static const struct dn_option *const forward_tables[] = { forward_flags, cli_batch_flags, cli_net_flags, NULL };

const struct dn_verb verb_forward = {
	.name = "forward",
	.args = "CFG WEIGHTS IN OUT.npy",
	.summary = "outputs for an image, or for those of an array IN.npy, float32 [n,c,h,w]",
	.min_args = 4,
	.max_args = 4,
	.flags = forward_tables,
	.run = run_forward,
};

/* --- partial --- */

static int partial(struct bare *b, struct dn_command *c)
{
	static const struct dn_group alone = DN_GROUP_ALONE;
	struct dn_weights_info info;
	int64_t layers;
	int err;

	if (dn_parse_int(c->args[3], &layers) != DN_NUM_WHOLE)
		return dn_fail(-EINVAL, "partial: N is %s: not a whole number", c->args[3]);
	err = bare_open(b, c, c->args[0], NULL);
	if (err)
		return err;
	if (layers < 0 || layers > b->net->n_layers)
		return dn_fail(-EINVAL, "partial: N is %lld: must be from 0 to the %d layers of %s", (long long)layers,
			       b->net->n_layers, c->args[0]);
	err = dn_whole_attach(b->net);
	if (!err)
		err = b->net->store.ops->alloc(b->net->store.self, b->net);
	if (!err)
		err = dn_net_init_values(b->net);
	if (err)
		return err;
	fprintf(stderr, "Loading weights from %s...", c->args[1]);
	err = dn_weights_load(b->net, c->args[1], -1, false, &info);
	fprintf(stderr, err ? "\n" : "Done!\n");
	if (err)
		return err;
	dn_weights_tell(c->args[1], &info);
	fprintf(stderr, "Saving weights to %s\n", c->args[2]);
	return dn_weights_save(b->net, c->args[2], 0, (int)layers, &alone, NULL);
}

static int run_partial(struct dn_command *c)
{
	struct bare b = { NULL };
	int err = partial(&b, c);

	bare_close(&b);
	return err;
}

static const struct dn_option *const partial_tables[] = { bare_flags, NULL };

const struct dn_verb verb_partial = {
	.name = "partial",
	.args = "CFG IN OUT N",
	.summary = "write the first N layers of a weights file, images seen 0",
	.min_args = 4,
	.max_args = 4,
	.flags = partial_tables,
	.run = run_partial,
};
