/* The keys of [net]: size of the input, batches and their split over ranks, training hyper-parameters. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "graph/graph_priv.h"

/* These would change the result and are not there: one value only. */
static const struct dn_key_fixed fixed[] = {
	{ "time_steps", 1 },
	{ "clip", 0 },
	{ "notruth", 0 },
	{ "label_smooth_eps", 0 },
	{ "mixup", 0 },
	{ "cutmix", 0 },
	{ "mosaic", 0 },
	{ "blur", 0 },
	{ "gaussian_noise", 0 },
	{ "dynamic_minibatch", 0 },
	{ "ema_alpha", 0 },
	{ "loss_scale", 1 },
	{ "track", 0 },
	{ "contrastive", 0 },
	{ "unsupervised", 0 },
	{ "adversarial_lr", 0 },
	{ "attention", 0 },
	{ "try_fix_nan", 0 },
	{ "weights_reject_freq", 0 },
};

/* Without effect on a net of this version, or read by whoever loads the images. */
static const char *const ignored[] = {
	"min_crop",
	"max_crop",
	"min_ratio",
	"max_ratio",
	"center",
	"angle",
	"aspect",
	"saturation",
	"exposure",
	"hue",
	"flip",
	"letter_box",
	"mosaic_bound",
	"resize_step",
	"seq_scales",
	"optimized_memory",
	"workspace_size_limit_MB",
	"use_cuda_graph",
	"augment_speed",
	"sequential_subdivisions",
	"contrastive_jit_flip",
	"contrastive_color",
	"max_chart_loss",
	"show_receptive_field",
	"equidistant_point",
	"seen",
	"badlabels_rejection_percentage",
	"num_sigmas_reject_badlabels",
};

static const struct {
	const char *name;
	enum dn_policy policy;
} policies[] = {
	{ "constant", DN_CONSTANT }, { "step", DN_STEP },	{ "steps", DN_STEPS },	 { "exp", DN_EXP },
	{ "poly", DN_POLY },	     { "sigmoid", DN_SIGMOID }, { "random", DN_RANDOM }, { "sgdr", DN_SGDR },
};

static int policy_read(struct dn_hyper *h, struct dn_section *s)
{
	const char *name = dn_section_text(s, "policy", "constant");
	int i;

	for (i = 0; i < DN_N(policies); i++)
		if (!strcmp(name, policies[i].name))
			break;
	if (i == DN_N(policies))
		return dn_section_fail(s, "policy", -EINVAL,
				       "policy=%s: unknown policy; known are constant, step, steps, "
				       "exp, poly, sigmoid, random, sgdr",
				       name);
	h->policy = policies[i].policy;
	return 0;
}

static int steps_read(struct dn_hyper *h, struct dn_section *s)
{
	int n_scales;
	int err = dn_section_ints(s, "steps", &h->steps, &h->n_steps);

	if (!err)
		err = dn_section_floats(s, "scales", &h->scales, &n_scales);
	if (err || h->policy != DN_STEPS)
		return err;
	if (!h->n_steps || !n_scales)
		return dn_section_fail(s, "policy", -EINVAL, "policy=steps needs the keys steps and scales");
	if (n_scales != h->n_steps)
		return dn_section_fail(s, "scales", -EINVAL, "scales has %d entries, steps has %d; the counts must be equal",
				       n_scales, h->n_steps);
	for (int i = 1; i < h->n_steps; i++)
		if (h->steps[i] < h->steps[i - 1])
			return dn_section_fail(s, "steps", -EINVAL, "steps must ascend, %lld follows %lld",
					       (long long)h->steps[i], (long long)h->steps[i - 1]);
	return 0;
}

static int sgdr_read(struct dn_hyper *h, struct dn_section *s)
{
	const int64_t far = (int64_t)1 << 53;
	int err = dn_section_float(s, "learning_rate_min", .00001, &h->rate_min);

	if (!err)
		err = dn_section_int(s, "sgdr_cycle", h->max_batches, 0, far, &h->cycle);
	if (!err)
		err = dn_section_int(s, "sgdr_mult", 2, 1, 1 << 9, &h->cycle_mult);
	if (err || h->policy != DN_SGDR)
		return err;
	if (h->cycle < 1)
		return dn_section_fail(s, "policy", -EINVAL, "policy=sgdr needs sgdr_cycle or max_batches of at least 1");
	return 0;
}

static int optimizer_read(struct dn_hyper *h, struct dn_section *s)
{
	static const char *const names[] = { [DN_SGD] = "sgd", [DN_ADAM] = "adam", [DN_ADAMW] = "adamw" };
	const char *name = dn_section_text(s, "optimizer", NULL);
	int64_t adam;
	int i;
	int err = dn_section_int(s, "adam", 0, 0, 1, &adam);

	if (!err)
		err = dn_section_float(s, "B1", .9, &h->beta1);
	if (!err)
		err = dn_section_float(s, "B2", .999, &h->beta2);
	if (!err)
		err = dn_section_float(s, "eps", 1e-7, &h->eps);
	if (err)
		return err;
	h->optimizer = adam ? DN_ADAM : DN_SGD;
	for (i = 0; name && i < DN_N(names); i++)
		if (!strcmp(name, names[i]))
			break;
	if (name && i == DN_N(names))
		return dn_section_fail(s, "optimizer", -EINVAL, "optimizer=%s: unknown optimizer; known are sgd, adam, adamw",
				       name);
	if (name && adam && i != DN_ADAM)
		return dn_section_fail(s, "optimizer", -EINVAL, "optimizer=%s, but adam=1", name);
	if (name)
		h->optimizer = (enum dn_optimizer)i;
	if (h->optimizer == DN_SGD)
		return 0;
	if (h->beta1 < 0 || h->beta1 >= 1 || h->beta2 < 0 || h->beta2 >= 1)
		return dn_section_fail(s, h->beta1 < 0 || h->beta1 >= 1 ? "B1" : "B2", -EINVAL,
				       "B1=%g B2=%g: both must be at least 0 "
				       "and less than 1",
				       h->beta1, h->beta2);
	if ((float)h->eps <= 0)
		return dn_section_fail(s, "eps", -EINVAL, "eps=%g: must be positive", h->eps);
	return 0;
}

int hyper_read(struct dn_hyper *h, struct dn_section *s)
{
	const int64_t far = (int64_t)1 << 53; /* batch numbers stay exact as doubles */
	int err = policy_read(h, s);

	if (!err)
		err = dn_section_float(s, "learning_rate", .001, &h->learning_rate);
	if (!err)
		err = dn_section_float(s, "momentum", .9, &h->momentum);
	if (!err)
		err = dn_section_float(s, "decay", .0001, &h->decay);
	if (!err)
		err = dn_section_int(s, "burn_in", 0, 0, far, &h->burn_in);
	if (!err)
		err = dn_section_int(s, "max_batches", 0, 0, far, &h->max_batches);
	if (!err)
		err = dn_section_int(s, "step", 1, h->policy == DN_STEP ? 1 : -far, far, &h->step);
	if (!err)
		err = dn_section_float(s, "power", 4, &h->power);
	if (!err)
		err = dn_section_float(s, "scale", 1, &h->scale);
	if (!err)
		err = dn_section_float(s, "gamma", 1, &h->gamma);
	if (!err)
		err = steps_read(h, s);
	if (!err)
		err = sgdr_read(h, s);
	if (!err)
		err = optimizer_read(h, s);
	if (!err && h->policy == DN_POLY && h->max_batches < 1)
		err = dn_section_fail(s, "policy", -EINVAL, "policy=poly needs max_batches of at least 1");
	return err;
}

static int input_read(struct dn_net *net, struct dn_section *s)
{
	const int64_t side = 1 << 24;
	int64_t n = 0;
	int err = dn_section_int(s, "width", 0, 0, side, &net->w);

	if (!err)
		err = dn_section_int(s, "height", 0, 0, side, &net->h);
	if (!err)
		err = dn_section_int(s, "channels", 0, 0, side, &net->c);
	if (!err)
		err = dn_section_int(s, "inputs", 0, 0, NET_MAX_COUNT, &n);
	if (err)
		return err;
	if (net->w || net->h || net->c) {
		if (!net->w || !net->h || !net->c)
			return dn_section_fail(s, NULL, -EINVAL,
					       "width=%lld height=%lld channels=%lld: all three are needed, "
					       "or inputs alone",
					       (long long)net->w, (long long)net->h, (long long)net->c);
		if (net->w * net->h > NET_MAX_COUNT / net->c)
			return dn_section_fail(s, "width", -EOVERFLOW,
					       "an input of %lld x %lld x %lld is larger than 2^40 elements", (long long)net->w,
					       (long long)net->h, (long long)net->c);
		net->inputs = net->w * net->h * net->c;
		if (n && n != net->inputs)
			return dn_section_fail(s, "inputs", -EINVAL, "inputs=%lld, but width * height * channels = %lld",
					       (long long)n, (long long)net->inputs);
		return 0;
	}
	if (!n)
		return dn_section_fail(s, NULL, -EINVAL, "no input size: width, height and channels, or inputs");
	net->c = net->inputs = n;
	return 0;
}

/* Inference runs at one size, whatever the cfg trained with. */
static int random_read(struct dn_net *net, struct dn_section *s)
{
	int64_t random;
	int err = dn_section_int(s, "random", 0, 0, 1, &random);

	if (!err && random && net->opt.train && !net->opt.multi_scale)
		return dn_section_fail(s, "random", -ENOTSUP, "random=1 is not supported in this version, only 0");
	net->hyper.random = !err && random;
	return err;
}

int net_keys_read(struct dn_net *net)
{
	struct dn_section *s = net->cfg->net;
	int64_t legacy;
	int err = input_read(net, s);

	if (!err)
		err = hyper_read(&net->hyper, s);
	if (!err)
		err = random_read(net, s);
	if (!err)
		err = dn_section_int(s, "legacy_bn", 0, 0, 1, &legacy);
	if (!err)
		err = dn_keys_fixed(s, fixed, DN_N(fixed));
	if (err)
		return err;
	net->opt.legacy_bn |= legacy != 0;
	dn_keys_ignore(s, ignored, DN_N(ignored));
	return 0;
}

/* The microbatch does not split: name the nearest batches that do, below and above. */
static int batches_fail(struct dn_net *net, int64_t batch)
{
	int64_t unit = net->subdivisions * net->opt.world;
	int64_t below = batch / unit * unit;
	int64_t above = below + unit;
	char near[96];

	if (below)
		snprintf(near, sizeof(near), "%lld or %lld", (long long)below, (long long)above);
	else
		snprintf(near, sizeof(near), "%lld", (long long)above);
	return dn_section_fail(net->cfg->net, dn_section_find(net->cfg->net, "batch") ? "batch" : NULL, -EINVAL,
			       "batch=%lld subdivisions=%lld: a microbatch of %lld images does not split over %d ranks; "
			       "nearest batch that does: %s",
			       (long long)batch, (long long)net->subdivisions, (long long)net->microbatch, net->opt.world, near);
}

int net_batches(struct dn_net *net)
{
	const int64_t most = 1 << 24;
	const struct dn_net_options *o = &net->opt;
	struct dn_section *s = net->cfg->net;
	int64_t batch;
	int err = dn_section_int(s, "batch", 1, 1, most, &batch);

	if (!err)
		err = dn_section_int(s, "subdivisions", 1, 1, most, &net->subdivisions);
	if (err)
		return err;
	if (o->world < 1 || o->rank < 0 || o->rank >= o->world)
		return dn_fail(-EINVAL, "net: rank %d of %d ranks", o->rank, o->world);
	if (o->batch < 0 || o->batch > most)
		return dn_fail(-EINVAL, "net: batch %lld must be within 1 and %lld", (long long)o->batch, (long long)most);
	if (o->subdivisions < 0 || o->subdivisions > most)
		return dn_fail(-EINVAL, "net: subdivisions %lld must be within 1 and %lld", (long long)o->subdivisions,
			       (long long)most);
	if (o->cfg_batch_optional) {
		net->local = o->batch ? o->batch : 1;
		net->subdivisions = 1;
		net->microbatch = net->batch = net->local * o->world;
		return 0;
	}
	if (o->batch)
		batch = o->batch;
	if (o->subdivisions)
		net->subdivisions = o->subdivisions;
	net->microbatch = batch / net->subdivisions;
	net->batch = net->microbatch * net->subdivisions;
	net->local = net->microbatch / o->world;
	if (!net->local || net->microbatch % o->world)
		return batches_fail(net, batch);
	if (net->batch != batch)
		dn_warn("batch=%lld is no multiple of subdivisions=%lld: an update takes %lld x %lld = %lld images",
			(long long)batch, (long long)net->subdivisions, (long long)net->subdivisions, (long long)net->microbatch,
			(long long)net->batch);
	return 0;
}
