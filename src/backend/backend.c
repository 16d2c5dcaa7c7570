/* Lookup of backends and activations by name, and checks of descriptions that every table needs. */
#include "backend/backend_priv.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/names.h"
#include "base/rng.h"

#define MAX_ADDED 4
static const struct dn_backend *backends[3 + MAX_ADDED] = { &dn_backend_cpu, &dn_backend_ref };
char dn_backend_choices[128] = "ref|cpu", dn_backend_default[32] = "cpu";

#define ACT_ROW(row, name, of_input) [row] = { name, of_input },
static const struct {
	const char *name;
	bool of_input;
} acts[DN_ACTS] = { DN_ACT_TABLE(ACT_ROW) };

bool dn_act_of_input(enum dn_act a)
{
	return (unsigned)a < DN_ACTS && acts[a].of_input;
}

int dn_act_find(const char *name, enum dn_act *out)
{
	for (int a = 0; a < DN_ACTS; a++)
		if (!strcmp(name, acts[a].name)) {
			*out = (enum dn_act)a;
			return 0;
		}
	return -EINVAL;
}

const char *dn_act_names(void)
{
	return DN_NAMES(DN_ACT_TABLE);
}

#define COST_CHOICE(row, name) { row, name },
#define COST_CFG(X) DN_COST_CHOICES(X) DN_COST_ALIASES(X)

int dn_cost_find(const char *name, enum dn_cost *out)
{
	static const struct {
		enum dn_cost kind;
		const char *name;
	} all[] = { COST_CFG(COST_CHOICE) };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(name, all[i].name)) {
			*out = all[i].kind;
			return 0;
		}
	return -EINVAL;
}

const char *dn_cost_names(void)
{
	return DN_NAMES(COST_CFG);
}

const struct dn_backend *const *dn_backend_all(void)
{
	return backends;
}

static const struct dn_backend *find(const char *name)
{
	for (const struct dn_backend *const *b = backends; *b; b++)
		if (!strcmp(name, (*b)->name))
			return *b;
	return NULL;
}

const struct dn_backend *dn_backend_find(const char *name)
{
	const struct dn_backend *be = find(name);
	char names[128] = "";

	if (be)
		return be;
	for (const struct dn_backend *const *b = backends; *b; b++) {
		if (*names)
			strncat(names, ", ", sizeof(names) - strlen(names) - 1);
		strncat(names, (*b)->name, sizeof(names) - strlen(names) - 1);
	}
	dn_fail(-EINVAL, "backend \"%s\" is unknown; there are: %s", name, names);
	return NULL;
}

int dn_backend_add(const struct dn_backend *be)
{
	size_t used = strlen(dn_backend_choices);
	int n = 0;

	if (find(be->name))
		return dn_fail(-EEXIST, "backend \"%s\" is there already", be->name);
	while (backends[n])
		n++;
	if (n + 1 == (int)(sizeof(backends) / sizeof(backends[0])) || used + 1 + strlen(be->name) >= sizeof(dn_backend_choices) ||
	    strlen(be->name) >= sizeof(dn_backend_default))
		return dn_fail(-ENOSPC, "backend \"%s\": there is no room for another", be->name);
	backends[n] = be;
	snprintf(dn_backend_choices + used, sizeof(dn_backend_choices) - used, "|%s", be->name);
	return 0;
}

int dn_backend_prefer(const char *name)
{
	if (!dn_backend_find(name))
		return -EINVAL;
	snprintf(dn_backend_default, sizeof(dn_backend_default), "%s", name);
	return 0;
}

/* both sides of a step: types and layouts that the table takes, as many images, and channels where @channels */
static int sides_check(const struct op_limits *by, const char *op, const struct dn_tensor *x, const struct dn_tensor *y,
		       bool channels)
{
	int err = tensor_check(by, op, x);

	if (!err)
		err = tensor_check(by, op, y);
	if (err)
		return err;
	if (x->n != y->n || (channels && x->c != y->c))
		return dn_fail(-EINVAL,
			       "%s: %" PRId64 " images of %" PRId64 " channels on one side, %" PRId64 " of %" PRId64
			       " on the other",
			       op, x->n, x->c, y->n, y->c);
	return 0;
}

int conv_desc_check(const struct op_limits *by, const struct dn_conv_desc *d)
{
	const struct dn_tensor *x = &d->x, *y = &d->y;
	int64_t span, oh, ow;
	struct dn_tensor whole;
	int err;

	if (x->n < 1 || x->c < 1 || x->h < 1 || x->w < 1 || y->c < 1 || d->groups < 1 || d->size < 1 || d->stride < 1 ||
	    d->dilation < 1 || d->pad < 0)
		return dn_fail(-EINVAL,
			       "convolution: sizes must be positive: n %" PRId64 " c %" PRId64 " h %" PRId64 " w %" PRId64
			       " filters %" PRId64 " groups %" PRId64 " size %" PRId64 " stride %" PRId64 " dilation %" PRId64
			       " pad %" PRId64,
			       x->n, x->c, x->h, x->w, y->c, d->groups, d->size, d->stride, d->dilation, d->pad);
	err = sides_check(by, "convolution", x, y, false);
	if (!err)
		err = type_check(by, "convolution", d->weights);
	if (err)
		return err;
	if (x->c % d->groups || y->c % d->groups)
		return dn_fail(-EINVAL,
			       "convolution: %" PRId64 " groups must divide %" PRId64 " channels and %" PRId64 " filters",
			       d->groups, x->c, y->c);
	if (d->size > INT32_MAX || d->dilation > INT32_MAX || d->pad > INT32_MAX || x->h > INT32_MAX || x->w > INT32_MAX)
		return dn_fail(-EINVAL, "convolution: size, dilation, pad, height or width above %d", INT32_MAX);
	span = (d->size - 1) * d->dilation + 1;
	oh = x->h + 2 * d->pad < span ? 0 : (x->h + 2 * d->pad - span) / d->stride + 1;
	ow = x->w + 2 * d->pad < span ? 0 : (x->w + 2 * d->pad - span) / d->stride + 1;
	if (oh < 1 || ow < 1)
		return dn_fail(-EINVAL,
			       "convolution: a kernel of %" PRId64 " does not fit into %" PRId64 "x%" PRId64
			       " with padding %" PRId64,
			       span, x->w, x->h, d->pad);
	if (oh != y->h || ow != y->w)
		return dn_fail(-EINVAL, "convolution: output is %" PRId64 "x%" PRId64 ", must be %" PRId64 "x%" PRId64, y->w,
			       y->h, ow, oh);
	err = dn_tensor_init(&whole, "convolution: input", x->type, x->n, x->c, x->h, x->w);
	if (!err)
		err = dn_tensor_init(&whole, "convolution: output", y->type, y->n, y->c, y->h, y->w);
	if (!err)
		err = dn_tensor_init(&whole, "convolution: weights", d->weights, y->c, x->c / d->groups, d->size, d->size);
	if (err)
		return err;
	if ((unsigned)d->act >= DN_ACTS)
		return dn_fail(-EINVAL, "convolution: activation %d is unknown", (int)d->act);
	return 0;
}

int gemm_desc_check(const struct op_limits *by, const struct dn_gemm_desc *d)
{
	int err = type_check(by, "gemm", d->a);

	if (!err)
		err = type_check(by, "gemm", d->b);
	if (!err)
		err = type_check(by, "gemm", d->c);
	if (!err && (d->m < 0 || d->n < 0 || d->k < 0))
		err = dn_fail(-EINVAL, "gemm: a negative size: m %" PRId64 " n %" PRId64 " k %" PRId64, d->m, d->n, d->k);
	return err;
}

int pool_desc_check(const struct op_limits *by, const char *op, const struct dn_pool_desc *d)
{
	if (d->size < 1 || d->stride < 1 || d->pad < 0)
		return dn_fail(-EINVAL, "%s: size %" PRId64 " stride %" PRId64 " pad %" PRId64, op, d->size, d->stride, d->pad);
	return sides_check(by, op, &d->x, &d->y, true);
}

int shortcut_desc_check(const struct op_limits *by, const char *op, const struct dn_shortcut_desc *d)
{
	const struct dn_tensor *a = &d->src, *b = &d->y;

	if (b->n < 0 || a->w < 1 || a->h < 1 || a->c < 1 || b->w < 1 || b->h < 1 || b->c < 1)
		return dn_fail(-EINVAL, "%s: sizes must be positive", op);
	if (a->w / b->w != a->h / b->h || b->w / a->w != b->h / a->h)
		return dn_fail(-EINVAL,
			       "%s: %" PRId64 "x%" PRId64 " onto %" PRId64 "x%" PRId64 ": width and height differ in ratio", op,
			       a->w, a->h, b->w, b->h);
	return sides_check(by, op, a, b, false);
}

int dropout_check(const struct op_limits *by, const char *op, const struct dn_dropout_key *k, const struct dn_tensor *t)
{
	if (!(k->probability >= 0 && k->probability <= 1))
		return dn_fail(-EINVAL, "%s: probability %g, must be 0 to 1", op, (double)k->probability);
	return tensor_check(by, op, t);
}

int reorg_desc_check(const struct op_limits *by, const char *op, const struct dn_reorg_desc *d)
{
	const struct dn_tensor *t = &d->narrow;

	if (t->n < 0 || t->c < 1 || t->h < 1 || t->w < 1 || d->stride < 1 || d->stride > 1 << 15 ||
	    t->c % (d->stride * d->stride))
		return dn_fail(-EINVAL, "%s: stride %" PRId64 " of %" PRId64 "x%" PRId64 "x%" PRId64, op, d->stride, t->w, t->h,
			       t->c);
	return tensor_check(by, op, t);
}

int crop_desc_check(const struct op_limits *by, const char *op, const struct dn_crop_desc *d)
{
	const struct dn_tensor *x = &d->x, *y = &d->y;

	if (x->n < 0 || x->c < 1 || y->h < 1 || y->w < 1 || y->h > x->h || y->w > x->w)
		return dn_fail(-EINVAL, "%s: %" PRId64 "x%" PRId64 " of %" PRId64 "x%" PRId64, op, y->w, y->h, x->w, x->h);
	return sides_check(by, op, x, y, true);
}

/* NOTE(crop draw): numbers 3g, 3g + 1 and 3g + 2 of the stream are the row, the column and the flip of global image g. */
void crop_place(const struct dn_crop_desc *d, const struct dn_numbers *num, int64_t i, int64_t *top, int64_t *left, bool *flip)
{
	uint64_t at = 3 * (num->first_image + (uint64_t)i);

	*top = (d->x.h - d->y.h) / 2;
	*left = (d->x.w - d->y.w) / 2;
	*flip = false;
	if (!d->random)
		return;
	*top = (int64_t)dn_rng_below(num->seed, d->stream, at, (uint64_t)(d->x.h - d->y.h + 1));
	*left = (int64_t)dn_rng_below(num->seed, d->stream, at + 1, (uint64_t)(d->x.w - d->y.w + 1));
	*flip = d->flip && dn_rng_below(num->seed, d->stream, at + 2, 2);
}

int lrn_desc_check(const struct op_limits *by, const char *op, const struct dn_lrn_desc *d)
{
	if (d->x.n < 0 || d->x.c < 1 || dn_tensor_plane(&d->x) < 1 || d->size < 1)
		return dn_fail(-EINVAL, "%s: sizes must be positive", op);
	return tensor_check(by, op, &d->x);
}

int local_desc_check(const struct op_limits *by, const char *op, const struct dn_conv_desc *d)
{
	const struct dn_tensor *x = &d->x, *y = &d->y;
	int err;

	if (x->n < 0 || x->c < 1 || x->h < 1 || x->w < 1 || y->c < 1 || y->h < 1 || y->w < 1 || d->size < 1 || d->stride < 1 ||
	    d->pad < 0 || d->groups != 1 || d->dilation != 1)
		return dn_fail(-EINVAL, "%s: sizes must be positive, groups and dilation 1", op);
	err = sides_check(by, op, x, y, false);
	return err ? err : type_check(by, op, d->weights);
}

int parts_check(const struct op_limits *by, const struct dn_parts *p)
{
	if (p->n < 1 || p->n > 1 << 20 || p->own < 0 || p->own > p->n)
		return dn_fail(-EINVAL, "sum_tree: %d parts, own part %d: must be 1 to %d parts", p->n, p->own, 1 << 20);
	return half_type(p->type) ? 0 : type_check(by, "sum_tree", p->type);
}

int half_check(const struct op_limits *by, const char *op, enum dn_type type)
{
	const struct op_limits halves = { by->backend, 1u << DN_BF16 | 1u << DN_F16, 0 };

	return type_check(&halves, op, type);
}

int truth_check(const struct op_limits *by, const char *op, const struct dn_tensor *x, const struct dn_tensor *t)
{
	int err = tensor_check(by, op, x);

	if (err || t->type == x->type)
		return err ? err : sides_check(by, op, x, t, true);
	if (t->type != DN_I32)
		return dn_fail(-ENOTSUP, "%s: backend %s has it for targets of %s or i32, not for %s", op, by->backend,
			       dn_type_name(x->type), dn_type_name(t->type));
	err = layout_check(by, op, t->layout);
	if (err)
		return err;
	if (x->n != t->n || dn_tensor_plane(x) != dn_tensor_plane(t) || t->c < 1 || t->c > x->c || x->c % t->c)
		return dn_fail(-EINVAL,
			       "%s: classes of %" PRId64 " groups at %" PRId64 " points of %" PRId64 " images for %" PRId64
			       " channels at %" PRId64 " points of %" PRId64,
			       op, t->c, dn_tensor_plane(t), t->n, x->c, dn_tensor_plane(x), x->n);
	return 0;
}

/* numbers below 2^596 times 2^(-149 p): the last word takes the rest */
void exact_carry(struct dn_exact *sum)
{
	for (int k = 0; k + 1 < DN_EXACT_WORDS; k++) {
		sum->word[k + 1] += sum->word[k] >> 32;
		sum->word[k] &= UINT32_MAX;
	}
}

double dn_exact_value(const double word[DN_EXACT_WORDS], int p)
{
	struct dn_exact sum = { .max = 0 };
	double x = 0;

	for (int k = 0; k < DN_EXACT_WORDS; k++)
		sum.word[k] = (uint64_t)word[k];
	exact_carry(&sum);
	for (int k = DN_EXACT_WORDS - 1; k >= 0; k--)
		x += ldexp((double)sum.word[k], 32 * k - 149 * p);
	return x;
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
