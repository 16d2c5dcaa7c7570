/* Lookup of backends and activations by name, and checks of descriptions that every table needs. */
#include "backend/backend_priv.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include "base/rng.h"

static const struct dn_backend *const backends[] = { &dn_backend_cpu, &dn_backend_ref, NULL };

static const char *const act_names[DN_ACTS] = {
	[DN_ACT_LINEAR] = "linear",
	[DN_ACT_LOGISTIC] = "logistic",
	[DN_ACT_RELU] = "relu",
	[DN_ACT_LEAKY] = "leaky",
	[DN_ACT_TANH] = "tanh",
	[DN_ACT_LOGGY] = "loggy",
	[DN_ACT_ELU] = "elu",
	[DN_ACT_SELU] = "selu",
	[DN_ACT_RELIE] = "relie",
	[DN_ACT_RAMP] = "ramp",
	[DN_ACT_PLSE] = "plse",
	[DN_ACT_STAIR] = "stair",
	[DN_ACT_HARDTAN] = "hardtan",
	[DN_ACT_LHTAN] = "lhtan",
	[DN_ACT_RELU6] = "relu6",
	[DN_ACT_REVLEAKY] = "revleaky",
	[DN_ACT_SWISH] = "swish",
	[DN_ACT_MISH] = "mish",
	[DN_ACT_HARD_MISH] = "hard_mish",
	[DN_ACT_GELU] = "gelu",
};

const char *dn_act_name(enum dn_act a)
{
	return (unsigned)a < DN_ACTS ? act_names[a] : "?";
}

int dn_act_find(const char *name, enum dn_act *out)
{
	for (int a = 0; a < DN_ACTS; a++)
		if (!strcmp(name, act_names[a])) {
			*out = (enum dn_act)a;
			return 0;
		}
	return -EINVAL;
}

const char *dn_act_names(void)
{
	return "linear, logistic, relu, leaky, tanh, loggy, elu, selu, relie, ramp, plse, stair, hardtan, lhtan, "
	       "relu6, revleaky, swish, mish, hard_mish, gelu";
}

const struct dn_backend *const *dn_backend_all(void)
{
	return backends;
}

const struct dn_backend *dn_backend_find(const char *name)
{
	char names[128] = "";

	for (const struct dn_backend *const *b = backends; *b; b++) {
		if (!strcmp(name, (*b)->name))
			return *b;
		if (*names)
			strncat(names, ", ", sizeof(names) - strlen(names) - 1);
		strncat(names, (*b)->name, sizeof(names) - strlen(names) - 1);
	}
	dn_fail(-EINVAL, "backend \"%s\" is unknown; there are: %s", name, names);
	return NULL;
}

int conv_desc_check(const struct dn_conv_desc *d)
{
	int64_t span, oh, ow;
	size_t size;
	int err;

	if (d->n < 1 || d->c < 1 || d->h < 1 || d->w < 1 || d->k < 1 || d->groups < 1 || d->size < 1 || d->stride < 1 ||
	    d->dilation < 1 || d->pad < 0)
		return dn_fail(-EINVAL,
			       "convolution: sizes must be positive: n %" PRId64 " c %" PRId64 " h %" PRId64 " w %" PRId64
			       " k %" PRId64 " groups %" PRId64 " size %" PRId64 " stride %" PRId64 " dilation %" PRId64
			       " pad %" PRId64,
			       d->n, d->c, d->h, d->w, d->k, d->groups, d->size, d->stride, d->dilation, d->pad);
	if (d->c % d->groups || d->k % d->groups)
		return dn_fail(-EINVAL,
			       "convolution: %" PRId64 " groups must divide %" PRId64 " channels and %" PRId64 " filters",
			       d->groups, d->c, d->k);
	if (d->size > INT32_MAX || d->dilation > INT32_MAX || d->pad > INT32_MAX || d->h > INT32_MAX || d->w > INT32_MAX)
		return dn_fail(-EINVAL, "convolution: size, dilation, pad, height or width above %d", INT32_MAX);
	span = (d->size - 1) * d->dilation + 1;
	oh = d->h + 2 * d->pad < span ? 0 : (d->h + 2 * d->pad - span) / d->stride + 1;
	ow = d->w + 2 * d->pad < span ? 0 : (d->w + 2 * d->pad - span) / d->stride + 1;
	if (oh < 1 || ow < 1)
		return dn_fail(-EINVAL,
			       "convolution: a kernel of %" PRId64 " does not fit into %" PRId64 "x%" PRId64
			       " with padding %" PRId64,
			       span, d->w, d->h, d->pad);
	if (oh != d->oh || ow != d->ow)
		return dn_fail(-EINVAL, "convolution: output is %" PRId64 "x%" PRId64 ", must be %" PRId64 "x%" PRId64, d->ow,
			       d->oh, ow, oh);
	err = dn_mul_size((size_t)d->n, (size_t)d->c, &size);
	if (!err)
		err = dn_mul_size(size, (size_t)(d->h * d->w), &size);
	if (!err)
		err = dn_mul_size(size, sizeof(float), &size);
	if (!err)
		err = dn_mul_size((size_t)d->n, (size_t)d->k, &size);
	if (!err)
		err = dn_mul_size(size, (size_t)(oh * ow), &size);
	if (!err)
		err = dn_mul_size(size, sizeof(float), &size);
	if (err)
		return err;
	if ((unsigned)d->act >= DN_ACTS)
		return dn_fail(-EINVAL, "convolution: activation %d is unknown", (int)d->act);
	return 0;
}

int shortcut_desc_check(const struct dn_shortcut_desc *d)
{
	if (d->n < 0 || d->w1 < 1 || d->h1 < 1 || d->c1 < 1 || d->w2 < 1 || d->h2 < 1 || d->c2 < 1)
		return dn_fail(-EINVAL, "shortcut: sizes must be positive");
	if (d->w1 / d->w2 != d->h1 / d->h2 || d->w2 / d->w1 != d->h2 / d->h1)
		return dn_fail(-EINVAL,
			       "shortcut: %" PRId64 "x%" PRId64 " onto %" PRId64 "x%" PRId64 ": width and height differ in ratio",
			       d->w1, d->h1, d->w2, d->h2);
	return 0;
}

int dropout_key_check(const struct dn_dropout_key *k)
{
	if (!(k->probability >= 0 && k->probability <= 1))
		return dn_fail(-EINVAL, "dropout: probability %g, must be 0 to 1", (double)k->probability);
	return 0;
}

int softmax_desc_check(const struct dn_softmax_desc *d)
{
	if (d->n < 0 || d->c < 1 || d->hw < 1 || d->n_groups < 1 || d->n_groups > d->c)
		return dn_fail(-EINVAL, "softmax: %d groups of %" PRId64 " channels at %" PRId64 " points", d->n_groups, d->c,
			       d->hw);
	if (!(d->temperature > 0))
		return dn_fail(-EINVAL, "softmax: temperature %g, must be positive", (double)d->temperature);
	if (!d->group_at && d->c % d->n_groups)
		return dn_fail(-EINVAL, "softmax: %d groups do not divide %" PRId64 " channels", d->n_groups, d->c);
	for (int g = 0; d->group_at && g < d->n_groups; g++)
		if (d->group_at[0] != 0 || d->group_at[g] >= d->group_at[g + 1] || d->group_at[d->n_groups] != d->c)
			return dn_fail(-EINVAL, "softmax: group %d does not continue the one before", g);
	return 0;
}

int reorg_desc_check(const struct dn_reorg_desc *d)
{
	if (d->n < 0 || d->c < 1 || d->h < 1 || d->w < 1 || d->stride < 1 || d->stride > 1 << 15 ||
	    d->c % (d->stride * d->stride))
		return dn_fail(-EINVAL, "reorg: stride %" PRId64 " of %" PRId64 "x%" PRId64 "x%" PRId64, d->stride, d->w, d->h,
			       d->c);
	return 0;
}

int crop_desc_check(const struct dn_crop_desc *d)
{
	if (d->n < 0 || d->c < 1 || d->oh < 1 || d->ow < 1 || d->oh > d->h || d->ow > d->w)
		return dn_fail(-EINVAL, "crop: %" PRId64 "x%" PRId64 " of %" PRId64 "x%" PRId64, d->ow, d->oh, d->w, d->h);
	return 0;
}

/* NOTE(crop draw): numbers 3g, 3g + 1 and 3g + 2 of the stream are the row, the column and the flip of global image g. */
void crop_place(const struct dn_crop_desc *d, const struct dn_numbers *num, int64_t i, int64_t *top, int64_t *left, bool *flip)
{
	uint64_t at = 3 * (num->first_image + (uint64_t)i);

	*top = (d->h - d->oh) / 2;
	*left = (d->w - d->ow) / 2;
	*flip = false;
	if (!d->random)
		return;
	*top = (int64_t)dn_rng_below(num->seed, d->stream, at, (uint64_t)(d->h - d->oh + 1));
	*left = (int64_t)dn_rng_below(num->seed, d->stream, at + 1, (uint64_t)(d->w - d->ow + 1));
	*flip = d->flip && dn_rng_below(num->seed, d->stream, at + 2, 2);
}

int lrn_desc_check(const struct dn_lrn_desc *d)
{
	if (d->n < 0 || d->c < 1 || d->hw < 1 || d->size < 1)
		return dn_fail(-EINVAL, "lrn: sizes must be positive");
	return 0;
}

int local_desc_check(const struct dn_conv_desc *d)
{
	if (d->n < 0 || d->c < 1 || d->h < 1 || d->w < 1 || d->k < 1 || d->oh < 1 || d->ow < 1 || d->size < 1 || d->stride < 1 ||
	    d->pad < 0 || d->groups != 1 || d->dilation != 1)
		return dn_fail(-EINVAL, "local: sizes must be positive, groups and dilation 1");
	return 0;
}

struct sgd_factors sgd_factors(const struct dn_sgd *o, const struct dn_numbers *num)
{
	return (struct sgd_factors){
		.rate = (float)(num->rate * o->lr_scale / num->images),
		.momentum = (float)o->momentum,
		.decay = (float)(o->decay * num->images),
		.factor = (float)num->factor,
	};
}

struct adam_factors adam_factors(const struct dn_adam *o, const struct dn_numbers *num)
{
	double rate = num->rate * o->lr_scale;

	return (struct adam_factors){
		.scale = (float)(num->factor / num->images),
		.rate = (float)rate,
		.beta1 = (float)o->beta1,
		.one_minus_beta1 = (float)(1 - o->beta1),
		.beta2 = (float)o->beta2,
		.one_minus_beta2 = (float)(1 - o->beta2),
		.correct1 = (float)num->correct1,
		.correct2 = (float)num->correct2,
		.eps = (float)o->eps,
		.decay = o->decoupled ? 0 : (float)o->decay,
		.shrink = o->decoupled ? (float)(1 - rate * o->decay) : 1,
	};
}
