/* The keys of [net]: size of the input, batches and their split over ranks, training hyper-parameters. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "graph/graph_priv.h"
#include "graph/optimizer.h"

#define FAR ((int64_t)1 << 53) /* batch numbers stay exact as doubles */

/* A resumed run may have other numbers that steer its updates, and other views of its images; batch and legacy_bn, which flags
 * may set, are compared as the runs have them, the optimizer by its state. */
const struct dn_key_rule dn_net_keys[] = {
	/* the input */
	{ "width", DN_KEY_INT, "0", 0, 1 << 24, .help = "of the input image" },
	{ "height", DN_KEY_INT, "0", 0, 1 << 24, .help = "of the input image" },
	{ "channels", DN_KEY_INT, "0", 0, 1 << 24, .help = "of the input image" },
	{ "inputs", DN_KEY_INT, "0", 0, NET_MAX_COUNT, .help = "numbers of a flat input, without width, height and channels",
	  .resume = DN_RESUME_IF_IMAGE },
	/* batches */
	{ "batch", DN_KEY_INT, "1", 1, 1 << 24, .help = "images of an update, over all ranks", .resume = DN_RESUME_ANY },
	{ "subdivisions", DN_KEY_INT, "1", 1, 1 << 24, .help = "microbatches of an update", .resume = DN_RESUME_ANY },
	{ "random", DN_KEY_INT, "0", 0, 1, .help = "1: training changes the size of the images every 40 updates, 128 to 448",
	  .resume = DN_RESUME_ANY },
	/* the rate */
	{ "learning_rate", DN_KEY_FLOAT, ".001", .help = "rate before the policy", .resume = DN_RESUME_ANY },
	{ "policy", DN_KEY_TEXT, "constant", .help = "how the rate changes", .names = dn_policy_names, .resume = DN_RESUME_ANY },
	{ "burn_in", DN_KEY_INT, "0", 0, FAR, .help = "updates during which the rate is rate * (update / burn_in)^power",
	  .resume = DN_RESUME_ANY },
	{ "max_batches", DN_KEY_INT, "0", 0, FAR, .help = "updates until training ends; 0: never", .resume = DN_RESUME_ANY },
	{ "power", DN_KEY_FLOAT, "4", .help = "exponent of burn_in, poly and random", .resume = DN_RESUME_ANY },
	{ "step", DN_KEY_INT, "1", -FAR, FAR, .help = "policy=step: updates between changes, at least 1; sigmoid: where it falls",
	  .resume = DN_RESUME_ANY },
	{ "scale", DN_KEY_FLOAT, "1", .help = "policy=step: factor at each change", .resume = DN_RESUME_ANY },
	{ "gamma", DN_KEY_FLOAT, "1", .help = "policy=exp: factor of each update; sigmoid: steepness", .resume = DN_RESUME_ANY },
	{ "steps", DN_KEY_INTS, NULL, .help = "policy=steps: updates at which the rate changes, ascending",
	  .resume = DN_RESUME_ANY },
	{ "scales", DN_KEY_FLOATS, NULL, .help = "policy=steps: a factor for each of steps", .resume = DN_RESUME_ANY },
	{ "learning_rate_min", DN_KEY_FLOAT, ".00001", .help = "policy=sgdr: the least rate", .resume = DN_RESUME_ANY },
	{ "sgdr_cycle", DN_KEY_INT, NULL, 0, FAR, .help = "policy=sgdr: updates of the first cycle", .from = "max_batches",
	  .resume = DN_RESUME_ANY },
	{ "sgdr_mult", DN_KEY_INT, "2", 1, 1 << 9, .help = "policy=sgdr: how much longer the next cycle is",
	  .resume = DN_RESUME_ANY },
	/* the update */
	{ "optimizer", DN_KEY_TEXT, .help = "rule of the update", .names = dn_optimizer_names,
	  .otherwise = "sgd, with adam=1 adam", .resume = DN_RESUME_ANY },
	{ "momentum", DN_KEY_FLOAT, ".9", .help = "of sgd", .resume = DN_RESUME_ANY },
	{ "decay", DN_KEY_FLOAT, ".0001", .help = "of weights, not of biases and scales", .resume = DN_RESUME_ANY },
	{ "adam", DN_KEY_INT, "0", 0, 1, .help = "1: optimizer=adam", .resume = DN_RESUME_ANY },
	{ "B1", DN_KEY_FLOAT, ".9", .help = "of adam and adamw, from 0 to less than 1", .resume = DN_RESUME_ANY },
	{ "B2", DN_KEY_FLOAT, ".999", .help = "of adam and adamw, from 0 to less than 1", .resume = DN_RESUME_ANY },
	{ "eps", DN_KEY_FLOAT, "1e-7", .help = "of adam and adamw, positive", .resume = DN_RESUME_ANY },
	{ "legacy_bn", DN_KEY_INT, "0", 0, 1, .help = "1: batch normalisation by the rule of Darknet's CPU code",
	  .resume = DN_RESUME_ANY },
	/* images of a list, while training; read by whoever loads them */
	{ "min_crop", DN_KEY_INT, "0", 0, 1 << 24, .help = "least side of the image after scaling; 0: min_ratio says it",
	  .resume = DN_RESUME_ANY },
	{ "max_crop", DN_KEY_INT, "0", 0, 1 << 24, .help = "largest side; 0: max_ratio says it", .resume = DN_RESUME_ANY },
	{ "min_ratio", DN_KEY_FLOAT, .help = "least side as a multiple of the net's width, above 0",
	  .otherwise = "min_crop / width, or 1", .resume = DN_RESUME_ANY },
	{ "max_ratio", DN_KEY_FLOAT, .help = "largest side as a multiple of the net's width",
	  .otherwise = "max_crop / width, or 2", .resume = DN_RESUME_ANY },
	{ "angle", DN_KEY_FLOAT, "0", .help = "largest turn either way, in degrees", .resume = DN_RESUME_ANY },
	{ "aspect", DN_KEY_FLOAT, "1", .help = "largest factor on the width, or its inverse; above 0", .resume = DN_RESUME_ANY },
	{ "saturation", DN_KEY_FLOAT, "1", .help = "largest factor on the saturation, or its inverse; above 0",
	  .resume = DN_RESUME_ANY },
	{ "exposure", DN_KEY_FLOAT, "1", .help = "largest factor on the brightness, or its inverse; above 0",
	  .resume = DN_RESUME_ANY },
	{ "hue", DN_KEY_FLOAT, "0", .help = "largest shift of the hue either way, from -1 to 1", .resume = DN_RESUME_ANY },
	{ "flip", DN_KEY_INT, "1", 0, 1, .help = "1: one image of two, drawn, is mirrored", .resume = DN_RESUME_ANY },
	{ "center", DN_KEY_INT, "0", 0, 1, .help = "1: the central square instead of a crop", .resume = DN_RESUME_ANY },
	/* would change the result, and are not there */
	{ "time_steps", DN_KEY_ONLY, .def = "1" },
	{ "clip", DN_KEY_ONLY, .def = "0" },
	{ "notruth", DN_KEY_ONLY, .def = "0" },
	{ "label_smooth_eps", DN_KEY_ONLY, .def = "0" },
	{ "mixup", DN_KEY_ONLY, .def = "0" },
	{ "cutmix", DN_KEY_ONLY, .def = "0" },
	{ "mosaic", DN_KEY_ONLY, .def = "0" },
	{ "blur", DN_KEY_ONLY, .def = "0" },
	{ "gaussian_noise", DN_KEY_ONLY, .def = "0" },
	{ "dynamic_minibatch", DN_KEY_ONLY, .def = "0" },
	{ "ema_alpha", DN_KEY_ONLY, .def = "0" },
	{ "loss_scale", DN_KEY_ONLY, .def = "1" },
	{ "track", DN_KEY_ONLY, .def = "0" },
	{ "contrastive", DN_KEY_ONLY, .def = "0" },
	{ "unsupervised", DN_KEY_ONLY, .def = "0" },
	{ "adversarial_lr", DN_KEY_ONLY, .def = "0" },
	{ "attention", DN_KEY_ONLY, .def = "0" },
	{ "try_fix_nan", DN_KEY_ONLY, .def = "0" },
	{ "weights_reject_freq", DN_KEY_ONLY, .def = "0" },
	/* without effect on a net of this version */
	{ "letter_box", .kind = DN_KEY_NOTHING },
	{ "mosaic_bound", .kind = DN_KEY_NOTHING },
	{ "resize_step", .kind = DN_KEY_NOTHING },
	{ "seq_scales", .kind = DN_KEY_NOTHING },
	{ "optimized_memory", .kind = DN_KEY_NOTHING },
	{ "workspace_size_limit_MB", .kind = DN_KEY_NOTHING },
	{ "use_cuda_graph", .kind = DN_KEY_NOTHING },
	{ "augment_speed", .kind = DN_KEY_NOTHING },
	{ "sequential_subdivisions", .kind = DN_KEY_NOTHING },
	{ "contrastive_jit_flip", .kind = DN_KEY_NOTHING },
	{ "contrastive_color", .kind = DN_KEY_NOTHING },
	{ "max_chart_loss", .kind = DN_KEY_NOTHING },
	{ "show_receptive_field", .kind = DN_KEY_NOTHING },
	{ "equidistant_point", .kind = DN_KEY_NOTHING },
	{ "seen", .kind = DN_KEY_NOTHING },
	{ "badlabels_rejection_percentage", .kind = DN_KEY_NOTHING },
	{ "num_sigmas_reject_badlabels", .kind = DN_KEY_NOTHING },
	{ .key = NULL },
};

static int policy_read(struct dn_hyper *h, struct dn_section *s)
{
	const char *name = dn_key_text(s, "policy");

	if (dn_policy_find(name, &h->policy))
		return dn_section_fail(s, "policy", -EINVAL, "policy=%s: unknown policy; known are %s", name, dn_policy_names());
	return 0;
}

static int steps_read(struct dn_hyper *h, struct dn_section *s)
{
	int n_scales;
	int err = dn_key_ints(s, "steps", &h->steps, &h->n_steps);

	if (!err)
		err = dn_key_floats(s, "scales", &h->scales, &n_scales);
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
	int err = dn_key_float(s, "learning_rate_min", &h->rate_min);

	if (!err)
		err = dn_key_int(s, "sgdr_cycle", &h->cycle);
	if (!err)
		err = dn_key_int(s, "sgdr_mult", &h->cycle_mult);
	if (err || h->policy != DN_SGDR)
		return err;
	if (h->cycle < 1)
		return dn_section_fail(s, "policy", -EINVAL, "policy=sgdr needs sgdr_cycle or max_batches of at least 1");
	return 0;
}

static int optimizer_read(struct dn_hyper *h, struct dn_section *s)
{
	const char *name = dn_key_text(s, "optimizer");
	enum dn_optimizer named = DN_SGD;
	int64_t adam;
	int err = dn_key_int(s, "adam", &adam);

	if (!err)
		err = dn_key_float(s, "B1", &h->beta1);
	if (!err)
		err = dn_key_float(s, "B2", &h->beta2);
	if (!err)
		err = dn_key_float(s, "eps", &h->eps);
	if (err)
		return err;
	h->optimizer = adam ? DN_ADAM : DN_SGD;
	if (name && dn_optimizer_find(name, &named))
		return dn_section_fail(s, "optimizer", -EINVAL, "optimizer=%s: unknown optimizer; known are %s", name,
				       dn_optimizer_names());
	if (name && adam && named != DN_ADAM)
		return dn_section_fail(s, "optimizer", -EINVAL, "optimizer=%s, but adam=1", name);
	if (name)
		h->optimizer = named;
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

static int hyper_read(struct dn_hyper *h, struct dn_section *s)
{
	int err = policy_read(h, s);

	if (!err)
		err = dn_key_float(s, "learning_rate", &h->learning_rate);
	if (!err)
		err = dn_key_float(s, "momentum", &h->momentum);
	if (!err)
		err = dn_key_float(s, "decay", &h->decay);
	if (!err)
		err = dn_key_int(s, "burn_in", &h->burn_in);
	if (!err)
		err = dn_key_int(s, "max_batches", &h->max_batches);
	if (!err)
		err = dn_key_int_in(s, "step", h->policy == DN_STEP ? 1 : -FAR, FAR, &h->step);
	if (!err)
		err = dn_key_float(s, "power", &h->power);
	if (!err)
		err = dn_key_float(s, "scale", &h->scale);
	if (!err)
		err = dn_key_float(s, "gamma", &h->gamma);
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
	int64_t n = 0;
	int err = dn_key_int(s, "width", &net->w);

	if (!err)
		err = dn_key_int(s, "height", &net->h);
	if (!err)
		err = dn_key_int(s, "channels", &net->c);
	if (!err)
		err = dn_key_int(s, "inputs", &n);
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
	int err = dn_key_int(s, "random", &random);

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
		err = dn_key_int(s, "legacy_bn", &legacy);
	if (!err)
		err = dn_keys_only(s);
	if (err)
		return err;
	net->opt.legacy_bn |= legacy != 0;
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
	int err = dn_key_int(s, "batch", &batch);

	if (!err)
		err = dn_key_int(s, "subdivisions", &net->subdivisions);
	if (err)
		return err;
	if (o->world < 1 || o->rank < 0 || o->rank >= o->world)
		return dn_fail(-EINVAL, "net: rank %d of %d ranks", o->rank, o->world);
	if (o->batch < 0 || o->batch > most)
		return dn_fail(-EINVAL, "net: batch %lld must be within 1 and %lld", (long long)o->batch, (long long)most);
	if (o->subdivisions < 0 || o->subdivisions > most)
		return dn_fail(-EINVAL, "net: subdivisions %lld must be within 1 and %lld", (long long)o->subdivisions,
			       (long long)most);
	if (o->local_batch < 0 || o->local_batch > most)
		return dn_fail(-EINVAL, "net: batch %lld must be within 1 and %lld", (long long)o->local_batch, (long long)most);
	if (o->local_batch) {
		net->local_batch = o->local_batch;
		net->subdivisions = 1;
		net->microbatch = net->batch = net->local_batch * o->world;
		return 0;
	}
	if (o->batch)
		batch = o->batch;
	if (o->subdivisions)
		net->subdivisions = o->subdivisions;
	net->microbatch = batch / net->subdivisions;
	net->batch = net->microbatch * net->subdivisions;
	net->local_batch = net->microbatch / o->world;
	if (!net->local_batch || net->microbatch % o->world)
		return batches_fail(net, batch);
	if (net->batch != batch)
		dn_warn("batch=%lld is no multiple of subdivisions=%lld: an update takes %lld x %lld = %lld images",
			(long long)batch, (long long)net->subdivisions, (long long)net->subdivisions, (long long)net->microbatch,
			(long long)net->batch);
	return 0;
}
