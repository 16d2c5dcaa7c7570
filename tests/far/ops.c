/* The far device's ops: each is kept with its arguments, descriptors and all, and done by ref when its stream gets there. */
#include <errno.h>
#include <string.h>
#include "base/text.h"
#include "far.h"

const struct dn_backend *far_ref;

/* --- what an argument is, by its type --- */

enum kind { VALUE, TENSOR, OBJECT, DESCRIPTOR };

/* clang-format off */
#define KIND(x) _Generic((x), \
	void *: TENSOR, const void *: TENSOR, float *: TENSOR, const float *: TENSOR, double *: TENSOR, int32_t *: TENSOR, \
	const int32_t *: TENSOR, int64_t *: TENSOR, struct dn_exact *: TENSOR, const struct dn_numbers *: TENSOR, \
	struct dn_conv *: OBJECT, const struct dn_softmax *: OBJECT, \
	const struct dn_adam *: DESCRIPTOR, const struct dn_bn_desc *: DESCRIPTOR, const struct dn_conv_desc *: DESCRIPTOR, \
	const struct dn_crop_desc *: DESCRIPTOR, const struct dn_dropout_key *: DESCRIPTOR, \
	const struct dn_gemm_desc *: DESCRIPTOR, const struct dn_lrn_desc *: DESCRIPTOR, \
	const struct dn_look_desc *: DESCRIPTOR, const struct dn_pool_desc *: DESCRIPTOR, const struct dn_reorg_desc *: DESCRIPTOR, \
	const struct dn_scale_desc *: DESCRIPTOR, const struct dn_sgd *: DESCRIPTOR, \
	const struct dn_shortcut_desc *: DESCRIPTOR, const struct dn_tensor *: DESCRIPTOR, \
	bool: VALUE, float: VALUE, int64_t: VALUE, enum dn_act: VALUE, enum dn_cost: VALUE, enum dn_type: VALUE)
#define SIZE(x) _Generic((x), \
	const struct dn_adam *: sizeof(struct dn_adam), const struct dn_bn_desc *: sizeof(struct dn_bn_desc), \
	const struct dn_conv_desc *: sizeof(struct dn_conv_desc), const struct dn_crop_desc *: sizeof(struct dn_crop_desc), \
	const struct dn_dropout_key *: sizeof(struct dn_dropout_key), \
	const struct dn_gemm_desc *: sizeof(struct dn_gemm_desc), const struct dn_lrn_desc *: sizeof(struct dn_lrn_desc), \
	const struct dn_look_desc *: sizeof(struct dn_look_desc), const struct dn_pool_desc *: sizeof(struct dn_pool_desc), \
	const struct dn_reorg_desc *: sizeof(struct dn_reorg_desc), \
	const struct dn_scale_desc *: sizeof(struct dn_scale_desc), const struct dn_sgd *: sizeof(struct dn_sgd), \
	const struct dn_shortcut_desc *: sizeof(struct dn_shortcut_desc), \
	const struct dn_tensor *: sizeof(struct dn_tensor), default: 0)
/* clang-format on */

static void *keep(struct far_entry *e, const void *p, size_t bytes)
{
	char *at = e->extra + e->used;

	e->used += dn_up(bytes, 16);
	if (e->used > sizeof(e->extra))
		far_broken("%s: no room for %zu bytes of arguments", e->name, e->used);
	return memcpy(at, p, bytes);
}

static void note(struct far_entry *e, const void *p)
{
	if (e->n_ptrs == FAR_PTRS)
		far_broken("%s: more than %d pointers", e->name, FAR_PTRS);
	e->ptrs[e->n_ptrs++] = p;
}

static void *tensor(struct far_entry *e, const void *p, const char *arg)
{
	if (p)
		note(e, p);
	return far_real(&e->st->dev->dev, p, 0, e->name, arg);
}

/* the argument at @field becomes what ref gets */
static void argument(struct far_entry *e, const char *arg, void *field, enum kind kind, size_t size)
{
	void *p;

	if (kind == VALUE)
		return;
	memcpy(&p, field, sizeof(p));
	if (kind == TENSOR)
		p = tensor(e, p, arg);
	else if (kind == OBJECT)
		note(e, p);
	else
		p = keep(e, p, size);
	memcpy(field, &p, sizeof(p));
}

/* --- one line an op --- */

#define MAP_1(m, p) m p
#define MAP_2(m, p, ...) m p MAP_1(m, __VA_ARGS__)
#define MAP_3(m, p, ...) m p MAP_2(m, __VA_ARGS__)
#define MAP_4(m, p, ...) m p MAP_3(m, __VA_ARGS__)
#define MAP_5(m, p, ...) m p MAP_4(m, __VA_ARGS__)
#define MAP_6(m, p, ...) m p MAP_5(m, __VA_ARGS__)
#define MAP_7(m, p, ...) m p MAP_6(m, __VA_ARGS__)
#define MAP_8(m, p, ...) m p MAP_7(m, __VA_ARGS__)
#define MAP_9(m, p, ...) m p MAP_8(m, __VA_ARGS__)
#define MAP_10(m, p, ...) m p MAP_9(m, __VA_ARGS__)
#define MAP_11(m, p, ...) m p MAP_10(m, __VA_ARGS__)
#define MAP_12(m, p, ...) m p MAP_11(m, __VA_ARGS__)
#define MAP_13(m, p, ...) m p MAP_12(m, __VA_ARGS__)
#define MAP_14(m, p, ...) m p MAP_13(m, __VA_ARGS__)
#define MAP_N(a, b, c, d, e, f, g, h, i, j, k, l, m, n, N, ...) N
#define MAP(m, ...) \
	MAP_N(__VA_ARGS__, MAP_14, MAP_13, MAP_12, MAP_11, MAP_10, MAP_9, MAP_8, MAP_7, MAP_6, MAP_5, MAP_4, MAP_3, MAP_2, \
	      MAP_1) \
	(m, __VA_ARGS__)

#define FIELD(T, x) T x;
#define PARAM(T, x) , T x
#define TAKE(T, x) \
	args_->x = x; \
	argument(e_, #x, &args_->x, KIND(x), SIZE(x));
#define GIVE(T, x) , args_->x

#define OP(name, ...) \
	struct name##_args { \
		MAP(FIELD, __VA_ARGS__) \
	}; \
	_Static_assert(sizeof(struct name##_args) <= FAR_ARGS, "arguments of " #name); \
	static int name##_run(void *entry) \
	{ \
		struct far_entry *e_ = entry; \
		const struct name##_args *args_ = (const struct name##_args *)(const void *)e_->args; \
\
		return far_ref->name(e_->st MAP(GIVE, __VA_ARGS__)); \
	} \
	static int far_##name(struct dn_stream *st_ MAP(PARAM, __VA_ARGS__)) \
	{ \
		struct far_entry *e_; \
		struct name##_args *args_; \
		int err_ = far_begin(st_, #name, &e_); \
\
		if (err_) \
			return err_; \
		args_ = (struct name##_args *)(void *)e_->args; \
		MAP(TAKE, __VA_ARGS__) \
		return far_end(e_, name##_run); \
	}

OP(gemm, (const struct dn_gemm_desc *, d), (const void *, a), (const void *, b), (void *, c))
OP(conv_pack, (struct dn_conv *, cv), (const void *, w), (void *, packed), (void *, ws))
OP(conv_forward, (struct dn_conv *, cv), (const void *, x), (const void *, w), (const void *, packed), (const float *, bias),
   (void *, y), (void *, ws))
OP(conv_backward_weights, (struct dn_conv *, cv), (const void *, x), (const void *, dy), (float *, dw), (bool, acc), (void *, ws))
OP(conv_backward_data, (struct dn_conv *, cv), (const void *, dy), (const void *, w), (void *, dx), (bool, acc), (void *, ws))
OP(bias_act, (const struct dn_tensor *, t), (void *, x), (const float *, bias), (enum dn_act, act))
OP(bias_backward, (const struct dn_tensor *, t), (const void *, dy), (float *, db), (bool, acc))
OP(act_backward, (const struct dn_tensor *, t), (enum dn_act, act), (const void *, y), (void *, dy))
OP(bn_forward_train, (const struct dn_bn_desc *, d), (const void *, x), (const float *, scale), (const float *, bias),
   (float *, mean), (float *, var), (void *, y))
OP(bn_forward, (const struct dn_bn_desc *, d), (const void *, x), (const float *, scale), (const float *, bias),
   (const float *, mean), (const float *, var), (void *, y))
OP(bn_backward, (const struct dn_bn_desc *, d), (bool, frozen), (const void *, x), (const float *, mean), (const float *, var),
   (const float *, scale), (const void *, dy), (void *, dx), (bool, acc), (float *, dscale), (float *, dbias), (bool, acc_params))
OP(bn_mean_part, (const struct dn_bn_desc *, d), (int64_t, count), (const void *, x), (float *, mean))
OP(bn_variance_part, (const struct dn_bn_desc *, d), (int64_t, count), (const void *, x), (const float *, mean), (float *, var))
OP(bn_backward_part, (const struct dn_bn_desc *, d), (const void *, x), (const float *, mean), (const float *, var),
   (const void *, dy), (float *, sums), (float *, dscale), (float *, dbias), (bool, acc_params))
OP(bn_backward_data, (const struct dn_bn_desc *, d), (int64_t, count), (const void *, x), (const float *, mean),
   (const float *, var), (const float *, scale), (const float *, sums), (const void *, dy), (void *, dx), (bool, acc))
OP(maxpool_forward, (const struct dn_pool_desc *, d), (const void *, x), (void *, y), (int32_t *, index))
OP(maxpool_backward, (const struct dn_pool_desc *, d), (const void *, dy), (const int32_t *, index), (void *, dx), (bool, acc))
OP(avgpool_forward, (const struct dn_tensor *, t), (const void *, x), (void *, y))
OP(avgpool_backward, (const struct dn_tensor *, t), (const void *, dy), (void *, dx), (bool, acc))
OP(local_avg_forward, (const struct dn_pool_desc *, d), (const void *, x), (void *, y))
OP(local_avg_backward, (const struct dn_pool_desc *, d), (const void *, dy), (void *, dx), (bool, acc))
OP(dropout_forward, (const struct dn_dropout_key *, k), (const struct dn_numbers *, num), (const struct dn_tensor *, t),
   (const void *, x), (void *, y))
OP(dropout_backward, (const struct dn_dropout_key *, k), (const struct dn_numbers *, num), (const struct dn_tensor *, t),
   (const void *, dy), (void *, dx), (bool, acc))
OP(softmax_forward, (const struct dn_softmax *, sm), (const void *, x), (void *, y))
OP(softmax_loss, (const struct dn_softmax *, sm), (const void *, x), (const struct dn_tensor *, t), (const void *, truth),
   (double *, loss))
OP(tree_truth, (const struct dn_softmax *, sm), (const void *, truth), (void *, out))
OP(cost, (enum dn_cost, kind), (const struct dn_tensor *, p), (const void *, x), (const struct dn_tensor *, t),
   (const void *, truth), (void *, delta), (double *, loss))
OP(axpby, (enum dn_type, type), (int64_t, n), (float, alpha), (const void *, x), (float, beta), (void *, y))
OP(copy_rows, (enum dn_type, type), (int64_t, rows), (int64_t, n), (const void *, src), (int64_t, src_stride), (void *, dst),
   (int64_t, dst_stride), (bool, acc))
OP(shortcut_forward, (const struct dn_shortcut_desc *, d), (const void *, direct), (const void *, src), (void *, y))
OP(shortcut_backward_src, (const struct dn_shortcut_desc *, d), (const void *, dy), (void *, dsrc), (bool, acc))
OP(upsample, (const struct dn_tensor *, narrow), (int64_t, stride), (float, scale), (const void *, x), (void *, y), (bool, acc))
OP(block_sum, (const struct dn_tensor *, narrow), (int64_t, stride), (float, scale), (const void *, x), (void *, y), (bool, acc))
OP(reorg, (const struct dn_reorg_desc *, d), (bool, narrow), (const void *, x), (void *, y), (bool, acc))
OP(transpose, (const struct dn_tensor *, t), (const void *, x), (void *, y), (bool, acc))
OP(crop_forward, (const struct dn_crop_desc *, d), (const struct dn_numbers *, num), (const void *, x), (void *, y))
OP(crop_backward, (const struct dn_crop_desc *, d), (const struct dn_numbers *, num), (const void *, dy), (void *, dx),
   (bool, acc))
OP(lrn_forward, (const struct dn_lrn_desc *, d), (const void *, x), (float *, norm), (void *, y))
OP(lrn_backward, (const struct dn_lrn_desc *, d), (const void *, x), (const float *, norm), (const void *, dy), (void *, dx),
   (bool, acc))
OP(l2norm_forward, (const struct dn_tensor *, t), (const void *, x), (float *, norm), (void *, y))
OP(l2norm_backward, (const struct dn_tensor *, t), (const void *, y), (const float *, norm), (const void *, dy), (void *, dx),
   (bool, acc))
OP(local_forward, (const struct dn_conv_desc *, d), (const void *, x), (const void *, w), (void *, y))
OP(local_backward_weights, (const struct dn_conv_desc *, d), (const void *, x), (const void *, dy), (float *, dw), (bool, acc))
OP(local_backward_data, (const struct dn_conv_desc *, d), (const void *, dy), (const void *, w), (void *, dx), (bool, acc))
OP(scale_forward, (const struct dn_scale_desc *, d), (const void *, a), (const void *, b), (void *, y), (bool, acc))
OP(scale_backward, (const struct dn_scale_desc *, d), (const void *, b), (const void *, dy), (void *, da), (bool, acc))
OP(binarize, (enum dn_type, type), (int64_t, rows), (int64_t, n), (bool, mean), (const void *, x), (void *, y))
OP(sgd, (enum dn_type, type), (int64_t, n), (const struct dn_sgd *, o), (const struct dn_numbers *, num), (float *, w),
   (float *, v), (const void *, g))
OP(adam, (enum dn_type, type), (int64_t, n), (const struct dn_adam *, o), (const struct dn_numbers *, num), (float *, w),
   (float *, m), (float *, v), (const void *, g))
OP(narrow, (enum dn_type, type), (int64_t, n), (const float *, x), (void *, y))
OP(widen, (enum dn_type, type), (int64_t, n), (const void *, x), (float *, y))
OP(count_nonfinite, (enum dn_type, type), (int64_t, n), (const void *, x), (int64_t *, count))
OP(look, (enum dn_type, type), (int64_t, n), (const struct dn_look_desc *, d), (void *, x), (struct dn_exact *, sum),
   (int64_t *, bad))

/* --- those whose arguments are more than that --- */

struct sum_tree_args {
	int64_t n;
	struct dn_parts parts;
	float *out;
	bool acc;
};

static int sum_tree_run(void *entry)
{
	struct far_entry *e = entry;
	const struct sum_tree_args *a = (const struct sum_tree_args *)(const void *)e->args;

	return far_ref->sum_tree(e->st, a->n, &a->parts, a->out, a->acc);
}

static int far_sum_tree(struct dn_stream *st, int64_t n, const struct dn_parts *parts, float *out, bool acc)
{
	struct far_entry *e;
	struct sum_tree_args *a;
	int err = far_begin(st, "sum_tree", &e);

	if (err)
		return err;
	a = (struct sum_tree_args *)(void *)e->args;
	*a = (struct sum_tree_args){ n, *parts, tensor(e, out, "out"), acc };
	a->parts.mine = tensor(e, parts->mine, "parts.mine");
	a->parts.others = tensor(e, parts->others, "parts.others");
	return far_end(e, sum_tree_run);
}

/* Objects have no device to ask: any device's work that names them is too much. */
static void check_object(const void *object, const char *what)
{
	const struct far_entry *e = object ? far_user_anywhere(object) : NULL;

	if (e)
		far_broken("a %s is destroyed under work that has not run: %s on stream %s", what, e->name, e->st->name);
}

static void far_conv_destroy(struct dn_conv *cv)
{
	check_object(cv, "convolution");
	far_ref->conv_destroy(cv);
}

static void far_softmax_destroy(struct dn_softmax *sm)
{
	check_object(sm, "softmax");
	far_ref->softmax_destroy(sm);
}

/* --- copies --- */

struct copy_args {
	void *dst;
	const void *src; /* NULL: zeros */
	size_t bytes;
};

static int copy_run(void *entry)
{
	struct far_entry *e = entry;
	const struct copy_args *a = (const struct copy_args *)(const void *)e->args;
	const struct far_copy *c = &e->copy;

	if (c->host && c->checked && dn_hash(c->host, c->bytes) != c->hash)
		far_broken("host memory of %zu bytes changed while a copy %s it was under way on stream %s", c->bytes,
			   c->to_host ? "to" : "from", e->st->name);
	if (a->src)
		memmove(a->dst, a->src, a->bytes);
	else
		memset(a->dst, 0, a->bytes);
	return 0;
}

/* What the host must leave alone until the copy has run: what it holds now, and where it is written the poison of what is
 * not there yet. Another copy under way in the same memory may change it rightly. */
static void guard(struct far_entry *e, void *host, size_t bytes, bool to_host)
{
	const bool alone = !far_pending(&e->st->dev->dev, host, bytes);

	if (to_host && alone)
		far_poison(host, bytes);
	e->copy = (struct far_copy){ host, bytes, to_host, dn_hash(host, bytes), alone };
}

static int far_copy(struct dn_stream *st, void *dst, const void *src, size_t bytes)
{
	bool host_dst, host_src;
	struct copy_args *a;
	struct far_entry *e;
	int err;

	if (!bytes)
		return 0;
	err = far_begin(st, "copy", &e);
	if (err)
		return err;
	note(e, dst);
	note(e, src);
	a = (struct copy_args *)(void *)e->args;
	a->dst = far_side(&e->st->dev->dev, dst, bytes, "to", &host_dst);
	a->src = far_side(&e->st->dev->dev, src, bytes, "from", &host_src);
	a->bytes = bytes;
	if (host_dst && host_src)
		far_broken("copy from host to host memory");
	if (host_dst)
		guard(e, a->dst, bytes, true);
	else if (host_src)
		guard(e, (void *)(uintptr_t)a->src, bytes, false);
	return far_end(e, copy_run);
}

static int far_zero(struct dn_stream *st, void *dst, size_t bytes)
{
	struct copy_args *a;
	struct far_entry *e;
	int err;

	if (!bytes)
		return 0;
	err = far_begin(st, "zero", &e);
	if (err)
		return err;
	note(e, dst);
	a = (struct copy_args *)(void *)e->args;
	*a = (struct copy_args){ far_real(&e->st->dev->dev, dst, bytes, "zero", "dst"), NULL, bytes };
	return far_end(e, copy_run);
}

void far_ops(struct dn_backend *be)
{
	be->copy = far_copy;
	be->zero = far_zero;
	be->gemm = far_gemm;
	be->conv_pack = far_conv_pack;
	be->conv_forward = far_conv_forward;
	be->conv_backward_weights = far_conv_backward_weights;
	be->conv_backward_data = far_conv_backward_data;
	be->bias_act = far_bias_act;
	be->bias_backward = far_bias_backward;
	be->act_backward = far_act_backward;
	be->bn_forward_train = far_bn_forward_train;
	be->bn_forward = far_bn_forward;
	be->bn_backward = far_bn_backward;
	be->bn_mean_part = far_bn_mean_part;
	be->bn_variance_part = far_bn_variance_part;
	be->bn_backward_part = far_bn_backward_part;
	be->bn_backward_data = far_bn_backward_data;
	be->maxpool_forward = far_maxpool_forward;
	be->maxpool_backward = far_maxpool_backward;
	be->avgpool_forward = far_avgpool_forward;
	be->avgpool_backward = far_avgpool_backward;
	be->local_avg_forward = far_local_avg_forward;
	be->local_avg_backward = far_local_avg_backward;
	be->dropout_forward = far_dropout_forward;
	be->dropout_backward = far_dropout_backward;
	be->softmax_forward = far_softmax_forward;
	be->softmax_loss = far_softmax_loss;
	be->tree_truth = far_tree_truth;
	be->cost = far_cost;
	be->axpby = far_axpby;
	be->copy_rows = far_copy_rows;
	be->shortcut_forward = far_shortcut_forward;
	be->shortcut_backward_src = far_shortcut_backward_src;
	be->upsample = far_upsample;
	be->block_sum = far_block_sum;
	be->reorg = far_reorg;
	be->transpose = far_transpose;
	be->crop_forward = far_crop_forward;
	be->crop_backward = far_crop_backward;
	be->lrn_forward = far_lrn_forward;
	be->lrn_backward = far_lrn_backward;
	be->l2norm_forward = far_l2norm_forward;
	be->l2norm_backward = far_l2norm_backward;
	be->local_forward = far_local_forward;
	be->local_backward_weights = far_local_backward_weights;
	be->local_backward_data = far_local_backward_data;
	be->scale_forward = far_scale_forward;
	be->scale_backward = far_scale_backward;
	be->binarize = far_binarize;
	be->sgd = far_sgd;
	be->adam = far_adam;
	be->sum_tree = far_sum_tree;
	be->narrow = far_narrow;
	be->widen = far_widen;
	be->count_nonfinite = far_count_nonfinite;
	be->look = far_look;
	be->conv_destroy = far_conv_destroy;
	be->softmax_destroy = far_softmax_destroy;
}
