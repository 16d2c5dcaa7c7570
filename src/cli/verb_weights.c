/* Verbs about weights files: "weights info" and "weights diff". */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/session.h"

struct net_of {
	struct dn_cfg *cfg;
	struct dn_device *dev;
	struct dn_net *net;
};

static int open_net(struct net_of *o, struct dn_command *c, const char *path)
{
	const struct dn_backend *be = dn_backend_find("ref"); /* nothing is computed */
	struct dn_net_options opt = { .world = 1 };
	int err;

	if (!be)
		return -EINVAL;
	err = dn_cfg_read(&o->cfg, path, dn_options_on(c->flags, "strict"));
	if (!err)
		err = session_claim(o->cfg, true);
	if (!err)
		err = be->open(DN_CPU(1), &o->dev);
	if (!err)
		err = dn_net_build(&o->net, o->cfg, o->dev, &opt);
	return err;
}

static void close_net(struct net_of *o)
{
	dn_net_destroy(o->net);
	if (o->dev)
		o->dev->be->close(o->dev);
	dn_cfg_destroy(o->cfg);
}

static int run_info(struct dn_command *c)
{
	struct net_of o = { NULL };
	struct dn_weights_info info;
	int err;

	if (c->n_args > 1) {
		err = open_net(&o, c, c->args[1]);
		if (!err)
			err = dn_weights_check(o.net, c->args[0], true, &info);
	} else {
		err = dn_weights_info_read(c->args[0], &info);
	}
	if (!err)
		err = dn_weights_scan(c->args[0], &info);
	if (!err) {
		int bits = info.header.header_bytes == 20 ? 64 : 32;

		dn_weights_tell(c->args[0], &info);
		fprintf(c->out, "version %d.%d.%d\nseen %llu images", info.header.major, info.header.minor, info.header.revision,
			(unsigned long long)info.header.seen);
		if (!dn_weights_own_width(&info.header))
			fprintf(c->out, " (%d-bit)", bits);
		fprintf(c->out, "\nheader %d bytes\nfile %lld bytes\n%lld values\n", info.header.header_bytes,
			(long long)info.file_bytes, (long long)info.floats);
		if (info.header.transpose)
			fprintf(c->out, "connected weights are transposed\n");
		if (c->n_args > 1)
			fprintf(c->out, "%s wants %lld values\nholds %d of %d layers%s\n", c->args[1],
				(long long)info.wanted_floats, info.n_layers_loaded, info.n_layers,
				info.partial ? " (partial)" : "");
	}
	close_net(&o);
	return err;
}

static const struct dn_option strict_flags[] = {
	{ .key = "strict", .type = DN_OPT_SWITCH, .help = "warnings about the cfg are errors" }, { .key = NULL }
};
static const struct dn_option *const strict_tables[] = { strict_flags, NULL };

const struct dn_verb verb_weights_info = {
	.name = "weights info",
	.args = "FILE [CFG]",
	.summary = "header and size of a weights file, against a cfg if one is given",
	.min_args = 1,
	.max_args = 2,
	.flags = strict_tables,
	.run = run_info,
};

/* --- diff --- */

struct difference {
	float *a;	 /* all values of the first file, params one after the other */
	int64_t at;	 /* next element of a */
	double abs, rel; /* of the layer so far */
	int64_t n;	 /* elements that differ */
};

static int keep(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	struct difference *d = arg;

	memcpy(d->a + d->at, x, (size_t)n * sizeof(*x));
	d->at += n;
	return 0;
}

static int compare(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	struct difference *d = arg;

	for (int64_t i = 0; i < n; i++) {
		double u = d->a[d->at + i], v = x[i];
		double big = fmax(fabs(u), fabs(v));
		double diff = fabs(u - v);

		if (u == v || (isnan(u) && isnan(v)))
			continue;
		d->n++;
		if (isnan(diff))
			diff = INFINITY;
		if (diff > d->abs)
			d->abs = diff;
		if (diff / big > d->rel || isinf(diff))
			d->rel = isinf(diff) ? INFINITY : diff / big;
	}
	d->at += n;
	return 0;
}

static int load(struct dn_net *net, const char *path)
{
	struct dn_weights_info info;
	int err = dn_weights_load(net, path, -1, false, &info);

	if (!err)
		dn_weights_tell(path, &info);
	return err;
}

static int walk(struct dn_net *net, int first, int n, dn_interval_fn fn, struct difference *d)
{
	int err = 0;

	for (int i = first; !err && i < first + n; i++)
		err = net->store.ops->each(net->store.self, net->params[i], DN_VALUE, DN_READ, fn, d);
	return err;
}

static int diff(struct net_of *o, struct difference *d, struct dn_command *c)
{
	struct dn_net *net;
	double worst_abs = 0, worst_rel = 0;
	int64_t n = 0;
	int err;

	err = open_net(o, c, c->args[2]);
	if (err)
		return err;
	net = o->net;
	d->a = dn_calloc((size_t)(net->n_trained + net->n_buffers), sizeof(*d->a));
	if (!d->a)
		return -ENOMEM;
	err = dn_whole_attach(net);
	if (!err)
		err = net->store.ops->alloc(net->store.self, net);
	if (!err)
		err = load(net, c->args[0]);
	if (!err)
		err = walk(net, 0, net->n_params, keep, d);
	if (!err)
		err = load(net, c->args[1]);
	if (err)
		return err;
	d->at = 0;
	fprintf(c->out, "layer type             largest difference   relative   elements that differ\n");
	for (int i = 0; i < net->n_layers; i++) {
		const struct dn_layer *l = &net->layers[i];

		if (!l->n_params)
			continue;
		d->abs = d->rel = 0;
		d->n = 0;
		err = walk(net, l->first_param, l->n_params, compare, d);
		if (err)
			return err;
		fprintf(c->out, "%5d %-16s %18.9g %10.3g %lld\n", i, l->ops->name, d->abs, d->rel, (long long)d->n);
		worst_abs = fmax(worst_abs, d->abs);
		worst_rel = fmax(worst_rel, d->rel);
		n += d->n;
	}
	fprintf(c->out, "%s: %lld elements differ, by %.9g at most, relative %.3g\n", n ? "different" : "equal", (long long)n,
		worst_abs, worst_rel);
	c->exit_status = n ? 1 : 0;
	return 0;
}

static int run_diff(struct dn_command *c)
{
	struct net_of o = { NULL };
	struct difference d = { NULL };
	int err = diff(&o, &d, c);

	dn_free(d.a);
	close_net(&o);
	return err;
}

const struct dn_verb verb_weights_diff = {
	.name = "weights diff",
	.args = "A B CFG",
	.summary = "largest difference of each layer; status 0 equal, 1 different",
	.min_args = 3,
	.max_args = 3,
	.flags = strict_tables,
	.run = run_diff,
};
