/* Verbs that count or time one image: "ops" and "speed", with Darknet's lines. */
#include <errno.h>

#include "base/rng.h"
#include "cli/bare.h"
#include "cli/cli.h"
#include "cli/launch.h"

static int run_ops(struct dn_command *c)
{
	struct bare b = { NULL };
	int err = bare_open(&b, c, c->args[0], NULL);

	if (!err)
		fprintf(c->out, "Floating Point Operations: %lld\nFloating Point Operations: %.2f Bn\n", (long long)b.net->flops,
			(double)b.net->flops / 1e9);
	bare_close(&b);
	return err;
}

static int one_pass(struct dn_net *net, const float *x)
{
	const struct dn_pass pass = { .input = x };
	int err = dn_net_forward(net, &pass);

	return err ? err : net->dev->be->stream_sync(net->compute);
}

/* One pass that is not counted (packed weights, first touch of memory), then @n. */
static int time_passes(struct dn_net *net, const float *x, int64_t n, double *seconds)
{
	int64_t start;
	int err = one_pass(net, x);

	start = dn_now_ns();
	for (int64_t i = 0; i < n && !err; i++)
		err = one_pass(net, x);
	*seconds = (double)(dn_now_ns() - start) * 1e-9;
	return err;
}

static int speed(struct bare *b, struct dn_command *c, int64_t n)
{
	struct dn_net_options opt = { .local_batch = 1 };
	double seconds, flops;
	float *x;
	int err;

	launch_short_waits(dn_options_given(c->flags, "threads") ? (int)dn_options_int(c->flags, "threads") : 0);
	err = bare_open(b, c, c->args[0], &opt);
	if (!err)
		err = bare_values(b);
	if (err)
		return err;
	err = b->dev->be->alloc_host(b->dev, DN_MEM_HOST, (size_t)b->net->inputs * sizeof(*x), (void **)&x);
	if (err)
		return err;
	for (int64_t i = 0; i < b->net->inputs; i++)
		x[i] = (float)dn_rng_uniform(0, 0, (uint64_t)i);
	err = time_passes(b->net, x, n, &seconds);
	dn_net_drain(b->net);
	b->dev->be->free_host(b->dev, x);
	if (err)
		return err;
	flops = (double)b->net->flops / 1e9;
	seconds = seconds > 1e-9 ? seconds : 1e-9;
	fprintf(c->out, "\n%lld evals, %f Seconds\n", (long long)n, seconds);
	fprintf(c->out, "Floating Point Operations: %.2f Bn\nFLOPS: %.2f Bn\n", flops, flops / seconds * (double)n);
	fprintf(c->out, "Speed: %f sec/eval\nSpeed: %f Hz\n", seconds / (double)n, (double)n / seconds);
	return 0;
}

static int run_speed(struct dn_command *c)
{
	struct bare b = { NULL };
	int64_t n = 1000;
	int err = 0;

	if (c->n_args > 1 && (dn_parse_int(c->args[1], &n) != DN_NUM_WHOLE || n < 1 || n > (int64_t)1e12))
		err = dn_fail(-EINVAL, "speed: n is %.100s: must be a whole number of at least 1", c->args[1]);
	if (!err)
		err = speed(&b, c, n);
	bare_close(&b);
	return err;
}

static const struct dn_option *const tables[] = { bare_flags, NULL };

const struct dn_verb verb_ops = {
	.name = "ops",
	.args = "CFG",
	.summary = "floating point operations of one image",
	.min_args = 1,
	.max_args = 1,
	.flags = tables,
	.run = run_ops,
};

const struct dn_verb verb_speed = {
	.name = "speed",
	.args = "CFG [N]",
	.summary = "time of N = 1000 forward passes of one image with random weights",
	.min_args = 1,
	.max_args = 2,
	.flags = tables,
	.run = run_speed,
};
