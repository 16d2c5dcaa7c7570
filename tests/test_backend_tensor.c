/* Descriptors of tensors, and that every op of every table refuses the types and layouts that it lacks. */
#include <errno.h>
#include "backend_help.h"

static void descriptors_know_their_bytes(void)
{
	static const struct {
		enum dn_type type;
		const char *name;
		size_t bytes;
	} types[] = {
		{ DN_F32, "f32", 4 }, { DN_F64, "f64", 8 }, { DN_BF16, "bf16", 2 }, { DN_F16, "f16", 2 }, { DN_I32, "i32", 4 }
	};
	struct dn_tensor t, flat, seen;

	CHECK_EQ(sizeof(types) / sizeof(types[0]), DN_TYPES - 1);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		CHECK_OK(dn_tensor_init(&t, "x", types[i].type, 2, 3, 4, 5));
		CHECK_EQ(t.bytes, 120 * types[i].bytes);
		CHECK_EQ(dn_type_bytes(t.type), types[i].bytes);
		CHECK_STR(dn_type_name(t.type), types[i].name);
	}
	CHECK_EQ(t.layout, DN_NCHW);
	CHECK_STR(dn_layout_name(t.layout), "NCHW");
	CHECK_EQ(dn_tensor_count(&t), 120);
	CHECK_EQ(dn_tensor_plane(&t), 20);
	flat = dn_tensor_flat(&t);
	CU_ASSERT(flat.n == 2 && flat.c == 60 && flat.h == 1 && flat.w == 1 && flat.bytes == t.bytes && flat.type == DN_I32);
	seen = dn_tensor_view(&flat, 6, 2, 5);
	CU_ASSERT(seen.n == 2 && seen.c == 6 && seen.h == 2 && seen.w == 5 && seen.bytes == t.bytes);
	CHECK_OK(dn_tensor_init(&t, "x", DN_F32, 0, 3, 4, 5));
	CHECK_EQ(t.bytes, 0);
	CHECK_EQ(dn_type_bytes((enum dn_type)0), 0);
	CHECK_EQ(dn_type_bytes(DN_TYPES), 0);
	CHECK_STR(dn_type_name(DN_TYPES), "?");
	CHECK_STR(dn_layout_name(DN_LAYOUTS), "?");
}

static void descriptors_name_what_is_too_large(void)
{
	const int64_t far = (int64_t)1 << 31, most = INT64_MAX;
	struct dn_tensor t = { 0 };

	CHECK_FAILS(dn_tensor_init(&t, "layer 3: output", DN_F32, far, far, 1, 2), -EOVERFLOW,
		    "layer 3: output: a tensor of 2147483648 x 2147483648 x 1 x 2 f32");
	CHECK_FAILS(dn_tensor_init(&t, "a", DN_F32, most, 2, 1, 1), -EOVERFLOW, "a: a tensor of 9223372036854775807 x 2");
	CHECK_FAILS(dn_tensor_init(&t, "a", DN_F32, 2, 1, most, 1), -EOVERFLOW, "larger than memory");
	CHECK_FAILS(dn_tensor_init(&t, "a", DN_F32, 2, 1, 1, most), -EOVERFLOW, "larger than memory");
	CHECK_FAILS(dn_tensor_init(&t, "a", DN_F64, most, 1, 1, 1), -EOVERFLOW, "f64");
	CHECK_OK(dn_tensor_init(&t, "a", DN_F16, most, 1, 1, 1));
	CHECK_FAILS(dn_tensor_init(&t, "a", DN_F32, 1, -1, 1, 1), -EINVAL, "a: a tensor of 1 x -1 x 1 x 1 f32");
	CHECK_FAILS(dn_tensor_init(&t, "a", DN_TYPES, 1, 1, 1, 1), -EINVAL, "?");
	CHECK_EQ(t.type, DN_F16); /* a refused one leaves what was there */
}

/* --- refusals --- */

struct call { /* one small problem in a type and a layout; out must stay as it is */
	const struct rig *r;
	struct dn_tensor t, half; /* 1 x 4 x 2 x 2 and 1 x 4 x 1 x 1 */
	float *in, *out;
	struct dn_numbers num;
};

typedef int (*call_fn)(const struct call *c);

static int call_gemm_a(const struct call *c)
{
	struct dn_gemm_desc d = dn_gemm_dense(false, false, 2, 2, 2, 0);

	d.a = c->t.type;
	return c->r->be->gemm(c->r->st, &d, c->in, c->in, c->out);
}

static int call_gemm_b(const struct call *c)
{
	struct dn_gemm_desc d = dn_gemm_dense(false, false, 2, 2, 2, 0);

	d.b = c->t.type;
	return c->r->be->gemm(c->r->st, &d, c->in, c->in, c->out);
}

static int call_gemm_c(const struct call *c)
{
	struct dn_gemm_desc d = dn_gemm_dense(false, false, 2, 2, 2, 0);

	d.c = c->t.type;
	return c->r->be->gemm(c->r->st, &d, c->in, c->in, c->out);
}

static struct dn_conv_desc one_by_one(struct dn_tensor x, struct dn_tensor y, enum dn_type weights)
{
	return (struct dn_conv_desc){ .x = x, .y = y, .weights = weights, .groups = 1, .size = 1, .stride = 1, .dilation = 1 };
}

static int convolution(const struct call *c, const struct dn_conv_desc *d)
{
	struct dn_conv *cv = NULL;
	int err = c->r->be->conv_create(c->r->dev, d, &cv);

	c->r->be->conv_destroy(cv);
	return err;
}

static int call_conv_x(const struct call *c)
{
	const struct dn_conv_desc d = one_by_one(c->t, t4(1, 4, 2, 2), DN_F32);

	return convolution(c, &d);
}

static int call_conv_y(const struct call *c)
{
	const struct dn_conv_desc d = one_by_one(t4(1, 4, 2, 2), c->t, DN_F32);

	return convolution(c, &d);
}

static int call_conv_weights(const struct call *c)
{
	const struct dn_conv_desc d = one_by_one(t4(1, 4, 2, 2), t4(1, 4, 2, 2), c->t.type);

	return convolution(c, &d);
}

static int call_local_x(const struct call *c)
{
	const struct dn_conv_desc d = one_by_one(c->t, t4(1, 4, 2, 2), DN_F32);

	return c->r->be->local_forward(c->r->st, &d, c->in, c->in, c->out);
}

static int call_local_y(const struct call *c)
{
	const struct dn_conv_desc d = one_by_one(t4(1, 4, 2, 2), c->t, DN_F32);

	return c->r->be->local_backward_weights(c->r->st, &d, c->in, c->in, c->out, false);
}

static int call_local_weights(const struct call *c)
{
	const struct dn_conv_desc d = one_by_one(t4(1, 4, 2, 2), t4(1, 4, 2, 2), c->t.type);

	return c->r->be->local_backward_data(c->r->st, &d, c->in, c->in, c->out, false);
}

static int call_bias_act(const struct call *c)
{
	return c->r->be->bias_act(c->r->st, &c->t, c->out, c->in, DN_ACT_RELU);
}

static int call_bias_backward(const struct call *c)
{
	return c->r->be->bias_backward(c->r->st, &c->t, c->in, c->out, true);
}

static int call_act_backward(const struct call *c)
{
	return c->r->be->act_backward(c->r->st, &c->t, DN_ACT_RELU, c->in, c->out);
}

static int call_bn_forward_train(const struct call *c)
{
	const struct dn_bn_desc d = { .x = c->t };

	return c->r->be->bn_forward_train(c->r->st, &d, c->in, c->in, c->in, c->out, c->out, c->out);
}

static int call_bn_forward(const struct call *c)
{
	const struct dn_bn_desc d = { .x = c->t };

	return c->r->be->bn_forward(c->r->st, &d, c->in, c->in, c->in, c->in, c->in, c->out);
}

static int call_bn_backward(const struct call *c)
{
	const struct dn_bn_desc d = { .x = c->t };

	return c->r->be->bn_backward(c->r->st, &d, false, c->in, c->in, c->in, c->in, c->in, c->out, false, c->out, c->out,
				     false);
}

static int call_bn_mean_part(const struct call *c)
{
	const struct dn_bn_desc d = { .x = c->t };

	return c->r->be->bn_mean_part(c->r->st, &d, 4, c->in, c->out);
}

static int call_bn_variance_part(const struct call *c)
{
	const struct dn_bn_desc d = { .x = c->t };

	return c->r->be->bn_variance_part(c->r->st, &d, 4, c->in, c->in, c->out);
}

static int call_bn_backward_part(const struct call *c)
{
	const struct dn_bn_desc d = { .x = c->t };

	return c->r->be->bn_backward_part(c->r->st, &d, c->in, c->in, c->in, c->in, c->out, c->out, c->out, false);
}

static int call_bn_backward_data(const struct call *c)
{
	const struct dn_bn_desc d = { .x = c->t };

	return c->r->be->bn_backward_data(c->r->st, &d, 4, c->in, c->in, c->in, c->in, c->in, c->in, c->out, false);
}

static int call_maxpool_forward(const struct call *c)
{
	const struct dn_pool_desc d = { c->t, c->half, 2, 2, 0 };

	return c->r->be->maxpool_forward(c->r->st, &d, c->in, c->out, (int32_t *)(void *)c->out);
}

static int call_maxpool_backward(const struct call *c)
{
	const struct dn_pool_desc d = { c->t, t4(1, 4, 1, 1), 2, 2, 0 };

	return c->r->be->maxpool_backward(c->r->st, &d, c->in, (const int32_t *)(const void *)c->in, c->out, false);
}

static int call_avgpool_forward(const struct call *c)
{
	return c->r->be->avgpool_forward(c->r->st, &c->t, c->in, c->out);
}

static int call_avgpool_backward(const struct call *c)
{
	return c->r->be->avgpool_backward(c->r->st, &c->t, c->in, c->out, false);
}

static int call_local_avg_forward(const struct call *c)
{
	const struct dn_pool_desc d = { t4(1, 4, 2, 2), c->half, 2, 2, 0 };

	return c->r->be->local_avg_forward(c->r->st, &d, c->in, c->out);
}

static int call_local_avg_backward(const struct call *c)
{
	const struct dn_pool_desc d = { c->t, c->half, 2, 2, 0 };

	return c->r->be->local_avg_backward(c->r->st, &d, c->in, c->out, false);
}

static int call_dropout_forward(const struct call *c)
{
	return c->r->be->dropout_forward(c->r->st, &(struct dn_dropout_key){ 1, .5f }, &c->num, &c->t, c->in, c->out);
}

static int call_dropout_backward(const struct call *c)
{
	return c->r->be->dropout_backward(c->r->st, &(struct dn_dropout_key){ 1, .5f }, &c->num, &c->t, c->in, c->out, false);
}

static int call_softmax(const struct call *c)
{
	return softmax_once(c->r, &(struct dn_softmax_desc){ c->t, 1, NULL, 1 }, c->in, c->out);
}

static int call_cost(const struct call *c)
{
	return c->r->be->cost(c->r->st, DN_COST_SSE, &c->t, c->in, &c->t, c->in, c->out, (double *)(void *)c->out);
}

static int call_cost_truth(const struct call *c)
{
	const struct dn_tensor p = t4(1, 4, 2, 2);

	return c->r->be->cost(c->r->st, DN_COST_SSE, &p, c->in, &c->t, c->in, c->out, (double *)(void *)c->out);
}

static int call_axpby(const struct call *c)
{
	return c->r->be->axpby(c->r->st, c->t.type, 16, 1, c->in, 0, c->out);
}

static int call_copy_rows(const struct call *c)
{
	return c->r->be->copy_rows(c->r->st, c->t.type, 2, 4, c->in, 4, c->out, 4, false);
}

static int call_shortcut_forward(const struct call *c)
{
	const struct dn_shortcut_desc d = { c->t, t4(1, 4, 2, 2), 1, 1 };

	return c->r->be->shortcut_forward(c->r->st, &d, c->in, c->in, c->out);
}

static int call_shortcut_backward(const struct call *c)
{
	const struct dn_shortcut_desc d = { t4(1, 4, 2, 2), c->t, 1, 1 };

	return c->r->be->shortcut_backward_src(c->r->st, &d, c->in, c->out, false);
}

static int call_upsample(const struct call *c)
{
	return c->r->be->upsample(c->r->st, &c->half, 2, 1, c->in, c->out, false);
}

static int call_block_sum(const struct call *c)
{
	return c->r->be->block_sum(c->r->st, &c->half, 2, 1, c->in, c->out, false);
}

static int call_reorg(const struct call *c)
{
	return c->r->be->reorg(c->r->st, &(struct dn_reorg_desc){ c->t, 2 }, true, c->in, c->out, false);
}

static int call_transpose(const struct call *c)
{
	return c->r->be->transpose(c->r->st, &c->t, c->in, c->out, false);
}

static int call_crop_forward(const struct call *c)
{
	const struct dn_crop_desc d = { .x = c->t, .y = t4(1, 4, 1, 1), .scale = 1 };

	return c->r->be->crop_forward(c->r->st, &d, &c->num, c->in, c->out);
}

static int call_crop_backward(const struct call *c)
{
	const struct dn_crop_desc d = { .x = t4(1, 4, 2, 2), .y = c->half, .scale = 1 };

	return c->r->be->crop_backward(c->r->st, &d, &c->num, c->in, c->out, false);
}

static int call_lrn_forward(const struct call *c)
{
	return c->r->be->lrn_forward(c->r->st, &(struct dn_lrn_desc){ c->t, 3, 1, 1, 1 }, c->in, c->out, c->out);
}

static int call_lrn_backward(const struct call *c)
{
	return c->r->be->lrn_backward(c->r->st, &(struct dn_lrn_desc){ c->t, 3, 1, 1, 1 }, c->in, c->in, c->in, c->out, false);
}

static int call_l2norm_forward(const struct call *c)
{
	return c->r->be->l2norm_forward(c->r->st, &c->t, c->in, c->out, c->out);
}

static int call_l2norm_backward(const struct call *c)
{
	return c->r->be->l2norm_backward(c->r->st, &c->t, c->in, c->in, c->in, c->out, false);
}

static int call_scale_forward(const struct call *c)
{
	return c->r->be->scale_forward(c->r->st, &(struct dn_scale_desc){ c->t, DN_SCALE_EACH }, c->in, c->in, c->out, false);
}

static int call_scale_backward(const struct call *c)
{
	return c->r->be->scale_backward(c->r->st, &(struct dn_scale_desc){ c->t, DN_SCALE_CHANNEL }, c->in, c->in, c->out, false);
}

static int call_binarize(const struct call *c)
{
	return c->r->be->binarize(c->r->st, c->t.type, 2, 4, true, c->in, c->out);
}

static int call_sgd(const struct call *c)
{
	return c->r->be->sgd(c->r->st, c->t.type, 8, &(struct dn_sgd){ .lr_scale = 1 }, &c->num, c->out, c->out + 8, c->in);
}

static int call_adam(const struct call *c)
{
	return c->r->be->adam(c->r->st, c->t.type, 8, &(struct dn_adam){ .lr_scale = 1, .eps = 1 }, &c->num, c->out, c->out + 8,
			      c->out + 8, c->in);
}

static int call_sum_tree(const struct call *c)
{
	const struct dn_parts parts = { c->t.type, 2, 0, c->in, c->in, 32 };

	return c->r->be->sum_tree(c->r->st, 8, &parts, c->out, false);
}

static int call_count_nonfinite(const struct call *c)
{
	return c->r->be->count_nonfinite(c->r->st, c->t.type, 8, c->in, (int64_t *)(void *)c->out);
}

static int call_look(const struct call *c)
{
	return c->r->be->look(c->r->st, c->t.type, 8, &(struct dn_look_desc){ .p = 2, .limit = .5f }, c->in, NULL,
			      (int64_t *)(void *)c->out);
}

static const struct {
	const char *op; /* as its message begins */
	call_fn fn;
	bool flat; /* a type and a count: no layout */
} calls[] = {
	{ "gemm", call_gemm_a, true },
	{ "gemm", call_gemm_b, true },
	{ "gemm", call_gemm_c, true },
	{ "convolution", call_conv_x, false },
	{ "convolution", call_conv_y, false },
	{ "convolution", call_conv_weights, true },
	{ "local_forward", call_local_x, false },
	{ "local_backward_weights", call_local_y, false },
	{ "local_backward_data", call_local_weights, true },
	{ "bias_act", call_bias_act, false },
	{ "bias_backward", call_bias_backward, false },
	{ "act_backward", call_act_backward, false },
	{ "bn_forward_train", call_bn_forward_train, false },
	{ "bn_forward", call_bn_forward, false },
	{ "bn_backward", call_bn_backward, false },
	{ "bn_mean_part", call_bn_mean_part, false },
	{ "bn_variance_part", call_bn_variance_part, false },
	{ "bn_backward_part", call_bn_backward_part, false },
	{ "bn_backward_data", call_bn_backward_data, false },
	{ "maxpool_forward", call_maxpool_forward, false },
	{ "maxpool_backward", call_maxpool_backward, false },
	{ "avgpool_forward", call_avgpool_forward, false },
	{ "avgpool_backward", call_avgpool_backward, false },
	{ "local_avg_forward", call_local_avg_forward, false },
	{ "local_avg_backward", call_local_avg_backward, false },
	{ "dropout_forward", call_dropout_forward, false },
	{ "dropout_backward", call_dropout_backward, false },
	{ "softmax", call_softmax, false },
	{ "cost", call_cost, false },
	{ "cost", call_cost_truth, false },
	{ "axpby", call_axpby, true },
	{ "copy_rows", call_copy_rows, true },
	{ "shortcut_forward", call_shortcut_forward, false },
	{ "shortcut_backward_src", call_shortcut_backward, false },
	{ "upsample", call_upsample, false },
	{ "block_sum", call_block_sum, false },
	{ "reorg", call_reorg, false },
	{ "transpose", call_transpose, false },
	{ "crop_forward", call_crop_forward, false },
	{ "crop_backward", call_crop_backward, false },
	{ "lrn_forward", call_lrn_forward, false },
	{ "lrn_backward", call_lrn_backward, false },
	{ "l2norm_forward", call_l2norm_forward, false },
	{ "l2norm_backward", call_l2norm_backward, false },
	{ "scale_forward", call_scale_forward, false },
	{ "scale_backward", call_scale_backward, false },
	{ "binarize", call_binarize, true },
	{ "sgd", call_sgd, true },
	{ "adam", call_adam, true },
	{ "sum_tree", call_sum_tree, true },
	{ "count_nonfinite", call_count_nonfinite, true },
	{ "look", call_look, true },
};

/* what call @i says of a tensor of @type and @layout */
static void refuses(const struct call *c, size_t i, enum dn_type type, enum dn_layout layout)
{
	struct call other = *c;
	char want[128];
	const bool by_layout = layout != DN_NCHW;
	int err;

	/* sums take parts of 16 bits: tests/test_backend_half.c */
	if ((by_layout && calls[i].flat) || (calls[i].fn == call_sum_tree && (type == DN_BF16 || type == DN_F16)))
		return;
	other.t.type = other.half.type = type;
	other.t.layout = other.half.layout = layout;
	memset(c->out, 0x5a, 64 * sizeof(float));
	dn_message_clear();
	err = calls[i].fn(&other);
	snprintf(want, sizeof(want), "%s: backend %s has it for ", calls[i].op, c->r->be->name);
	CHECK_EQ(err, -ENOTSUP);
	if (strncmp(dn_message(), want, strlen(want)) || !strstr(dn_message(), by_layout ? "NCHW" : "f32") ||
	    !strstr(dn_message(), by_layout ? dn_layout_name(layout) : dn_type_name(type)))
		fprintf(stderr, "call %zu says: %s\n", i, dn_message());
	CU_ASSERT(!strncmp(dn_message(), want, strlen(want)));
	CU_ASSERT(strstr(dn_message(), by_layout ? "not for ?" : dn_type_name(type)) != NULL);
	CU_ASSERT(strstr(dn_message(), by_layout ? "NCHW" : "f32") != NULL);
	for (size_t b = 0; b < 64 * sizeof(float); b++)
		if (((unsigned char *)c->out)[b] != 0x5a) {
			fprintf(stderr, "call %zu, %s, wrote before it refused\n", i, calls[i].op);
			CU_FAIL("written");
			return;
		}
}

static void every_op_refuses_what_it_lacks(void)
{
	static const enum dn_type lacking[] = { (enum dn_type)0, DN_F64, DN_BF16, DN_F16 };

	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 1);
		struct call c = { &r, t4(1, 4, 2, 2), t4(1, 4, 1, 1), floats(64), floats(64), { .images = 1, .factor = 1 } };

		memset(c.in, 0, 64 * sizeof(float));
		for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
			CHECK_OK(calls[i].fn(&c)); /* the same call in float32 works */
			for (size_t k = 0; k < sizeof(lacking) / sizeof(lacking[0]); k++)
				refuses(&c, i, lacking[k], DN_NCHW);
			refuses(&c, i, DN_F32, DN_LAYOUTS);
		}
		dn_free(c.in);
		dn_free(c.out);
		rig_close(&r);
	}
}

static const struct check_case cases[] = {
	{ "descriptors_know_their_bytes", descriptors_know_their_bytes },
	{ "descriptors_name_what_is_too_large", descriptors_name_what_is_too_large },
	{ "every_op_refuses_what_it_lacks", every_op_refuses_what_it_lacks },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend_tensor", cases);
}
