/* cpu: convolutions and matrix products through oneDNN, version 2 or 3 (C API; dnn_api.h). Nothing else here knows
 * oneDNN.
 *
 * A convolution is up to three passes (forward, weight gradient, data gradient). A pass is one primitive
 * over three tensors, each in its plain layout or in the library's own; the latter are converted on every
 * use, through the workspace. Everything is made in conv_create: a pass later sets addresses and runs.
 * The library uses as many threads as OpenMP gives the calling thread, so that is set around every call.
 */
#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include "backend/backend_priv.h"
#include "backend/cpu/cpu_priv.h"
#include "backend/cpu/dnn_api.h"

struct dnn {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	char version[32];
};

enum layout {
	LAYOUT_PLAIN, /* NCHW and [k][c/groups][s][s], as we store them */
	LAYOUT_OWN,   /* each tensor as the library likes */
	LAYOUT_BATCH, /* no primitive: gemm_conv.c */
};

enum pass_kind { PASS_FORWARD, PASS_WEIGHTS, PASS_DATA, PASSES };

struct reorder {
	dnnl_primitive_t prim; /* NULL = layouts are equal */
	dnnl_memory_t scratch; /* NULL = needs none */
};

struct tensor {			  /* of a pass */
	dnnl_memory_t plain, own; /* own is NULL when the primitive takes plain */
	struct reorder reorder;	  /* plain to own; from own for the output */
	int arg;
	size_t own_at, own_bytes; /* in the workspace */
};

struct pass {
	dnnl_primitive_t prim;	    /* NULL = this convolution has no such pass */
	struct tensor in, in2, out; /* x w y | x dy dw | dy w dx */
	dnnl_memory_t bias, scratch;
	size_t scratch_bytes; /* of the primitive and its reorders; at the start of the workspace */
	size_t ws_bytes;
};

struct dn_conv {
	struct cpu_math_device *dev;
	struct dn_conv_desc d;
	struct pass pass[PASSES];
	bool batch[PASSES]; /* gemm_conv.c does this pass */
	enum dn_act rest;   /* activation that the primitive does not do */
	/* workspace offsets where the data and the weight gradient go when they are to be added: the library overwrites */
	size_t dx_at, dw_at;
	size_t ws_bytes, ws_acc_bytes; /* without and with weight gradients that add */
};

static int dnn_status(dnnl_status_t s, const char *what)
{
	static const char *const names[] = { "success",	      "out of memory", "invalid arguments", "not supported",
					     "iterator ends", "runtime error", "not required" };

	if (s == dnnl_success)
		return 0;
	return dn_fail(s == dnnl_out_of_memory ? -ENOMEM : -EIO, "oneDNN: %s: %s", what,
		       (unsigned)s < sizeof(names) / sizeof(names[0]) ? names[s] : "unknown status");
}

int dnn_open(struct dnn **out)
{
	const dnnl_version_t *v = dnnl_version();
	struct dnn *dnn = dn_zalloc(sizeof(*dnn));
	int err;

	if (!dnn)
		return -ENOMEM;
	snprintf(dnn->version, sizeof(dnn->version), "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
	err = dnn_status(dnnl_engine_create(&dnn->engine, dnnl_cpu, 0), "engine");
	if (!err)
		err = dnn_status(dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_default_flags), "stream");
	if (err) {
		dnn_close(dnn);
		return err;
	}
	*out = dnn;
	return 0;
}

void dnn_close(struct dnn *dnn)
{
	if (!dnn)
		return;
	if (dnn->stream)
		dnnl_stream_destroy(dnn->stream);
	if (dnn->engine)
		dnnl_engine_destroy(dnn->engine);
	dn_free(dnn);
}

const char *dnn_version(const struct dnn *dnn)
{
	return dnn->version;
}

const char *dnn_isa(void)
{
	static const char prefix[] = "cpu_isa_";
	const char *name = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());

	return strncmp(name, prefix, sizeof(prefix) - 1) ? name : name + sizeof(prefix) - 1;
}

/* returns what to restore */
static int threads_enter(int threads)
{
	int before = omp_get_max_threads();

	if (before != threads)
		omp_set_num_threads(threads);
	return before;
}

static void threads_leave(int before)
{
	if (before != omp_get_max_threads())
		omp_set_num_threads(before);
}

int cpu_sgemm(struct dn_stream *st, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
	      const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
	dnnl_status_t s;
	int before;

	if (!m || !n)
		return 0;
	if (!k) { /* the library leaves c alone then */
		for (int64_t i = 0; i < m; i++)
			for (int64_t j = 0; j < n; j++)
				c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
		return 0;
	}
	before = threads_enter(stream_threads(st));
	s = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
	threads_leave(before);
	return dnn_status(s, "sgemm");
}

int cpu_gemm(struct dn_stream *st, const struct dn_gemm_desc *d, const void *a, const void *b, void *c)
{
	int err = gemm_desc_check(&cpu_limits, d);

	return err ? err : cpu_sgemm(st, d->ta, d->tb, d->m, d->n, d->k, d->alpha, a, d->lda, b, d->ldb, d->beta, c, d->ldc);
}

/* --- building --- */

/* The library's relu and logistic turn a NaN into 0, which would hide broken weights from every check, so
 * those two run as loops of ours, as do the activations that it lacks. */
static dnnl_alg_kind_t fused_act(enum dn_act act, float *alpha)
{
	*alpha = 0;
	switch (act) {
	case DN_ACT_LEAKY:
		*alpha = .1f;
		return dnnl_eltwise_relu;
	case DN_ACT_TANH:
		return dnnl_eltwise_tanh;
	default:
		return dnnl_alg_kind_undef;
	}
}

static int attr_create(enum dn_act act, dnnl_primitive_attr_t *out)
{
	dnnl_post_ops_t ops = NULL;
	dnnl_primitive_attr_t attr;
	dnnl_alg_kind_t alg;
	float alpha;
	int err = dnn_status(dnnl_primitive_attr_create(&attr), "attributes");

	if (err)
		return err;
	err = dnn_status(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "scratchpad mode");
	alg = fused_act(act, &alpha);
	if (!err && alg != dnnl_alg_kind_undef) {
		err = dnn_status(dnnl_post_ops_create(&ops), "post ops");
		if (!err)
			err = dnn_status(api_append_eltwise(ops, alg, alpha), "post op");
		if (!err)
			err = dnn_status(dnnl_primitive_attr_set_post_ops(attr, ops), "post ops");
		if (ops)
			dnnl_post_ops_destroy(ops);
	}
	if (err) {
		dnnl_primitive_attr_destroy(attr);
		return err;
	}
	*out = attr;
	return 0;
}

struct shapes { /* in plain layout, and as "choose yourself" where the layout says so */
	api_md x, w, y, bias, any_x, any_w, any_y;
	struct api_conv conv; /* over the any_ ones */
};

static void shapes_fini(struct shapes *s)
{
	api_md all[] = { s->x, s->w, s->y, s->bias, s->any_x, s->any_w, s->any_y };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		api_md_destroy(all[i]);
}

/* @s is zeroed; to be finished by shapes_fini() after a failure as well */
static int shapes_init(struct shapes *s, const struct dn_conv_desc *d, enum layout layout)
{
	dnnl_dims_t x = { d->x.n, d->x.c, d->x.h, d->x.w }, y = { d->x.n, d->y.c, d->y.h, d->y.w }, b = { d->y.c };
	dnnl_dims_t w = { d->y.c, d->x.c, d->size, d->size };
	dnnl_dims_t gw = { d->groups, d->y.c / d->groups, d->x.c / d->groups, d->size, d->size };
	bool grouped = d->groups > 1;
	dnnl_format_tag_t any_data = layout == LAYOUT_OWN ? dnnl_format_tag_any : dnnl_nchw;
	dnnl_format_tag_t plain_w = grouped ? dnnl_goihw : dnnl_oihw;
	dnnl_format_tag_t any_w = layout == LAYOUT_OWN ? dnnl_format_tag_any : plain_w;
	struct {
		api_md *md;
		int ndims;
		const dnnl_dim_t *dims;
		dnnl_format_tag_t tag;
	} all[] = {
		{ &s->x, 4, x, dnnl_nchw },
		{ &s->y, 4, y, dnnl_nchw },
		{ &s->bias, 1, b, dnnl_x },
		{ &s->w, grouped ? 5 : 4, grouped ? gw : w, plain_w },
		{ &s->any_x, 4, x, any_data },
		{ &s->any_y, 4, y, any_data },
		{ &s->any_w, grouped ? 5 : 4, grouped ? gw : w, any_w },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		int err = dnn_status(api_md_create(all[i].md, all[i].ndims, all[i].dims, all[i].tag), "tensor description");

		if (err)
			return err;
	}
	s->conv.x = s->any_x;
	s->conv.w = s->any_w;
	s->conv.y = s->any_y;
	for (int i = 0; i < 2; i++) {
		int64_t in = i ? d->x.w : d->x.h, out = i ? d->y.w : d->y.h;

		s->conv.strides[i] = d->stride;
		s->conv.dilates[i] = d->dilation - 1;
		s->conv.pad_l[i] = d->pad;
		/* what the last window needs: negative when the stride leaves columns over */
		s->conv.pad_r[i] = (out - 1) * d->stride + (d->size - 1) * d->dilation + 1 - in - d->pad;
	}
	return 0;
}

static int memory_create(struct dnn *dnn, api_md_ref md, dnnl_memory_t *out)
{
	return dnn_status(dnnl_memory_create(out, md, dnn->engine, DNNL_MEMORY_NONE), "memory object");
}

static int scratch_create(struct dnn *dnn, const_dnnl_primitive_desc_t pd, dnnl_memory_t *out, size_t *bytes)
{
	api_md_ref md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
	size_t size = md ? dnnl_memory_desc_get_size(md) : 0;

	if (!size)
		return 0;
	if (size > *bytes)
		*bytes = size;
	return memory_create(dnn, md, out);
}

/* @md: what the primitive wants of the tensor whose plain layout is @plain */
static int tensor_init(struct dnn *dnn, struct pass *p, struct tensor *t, int arg, api_md_ref plain, api_md_ref md)
{
	bool out = t == &p->out;
	dnnl_primitive_attr_t attr;
	dnnl_primitive_desc_t pd = NULL;
	int err;

	t->arg = arg;
	err = memory_create(dnn, plain, &t->plain);
	if (err || dnnl_memory_desc_equal(plain, md))
		return err;
	err = memory_create(dnn, md, &t->own);
	if (err)
		return err;
	t->own_bytes = dnnl_memory_desc_get_size(md);
	err = attr_create(DN_ACT_LINEAR, &attr);
	if (err)
		return err;
	err = dnn_status(
		dnnl_reorder_primitive_desc_create(&pd, out ? md : plain, dnn->engine, out ? plain : md, dnn->engine, attr),
		"reorder");
	dnnl_primitive_attr_destroy(attr);
	if (err)
		return err;
	err = dnn_status(dnnl_primitive_create(&t->reorder.prim, pd), "reorder");
	if (!err)
		err = scratch_create(dnn, pd, &t->reorder.scratch, &p->scratch_bytes);
	dnnl_primitive_desc_destroy(pd);
	return err;
}

static void pass_place(struct pass *p)
{
	struct tensor *all[] = { &p->in, &p->in2, &p->out };
	size_t at = dn_up(p->scratch_bytes, DN_ALIGN);

	for (int i = 0; i < 3; i++) {
		if (!all[i]->own)
			continue;
		all[i]->own_at = at;
		at += dn_up(all[i]->own_bytes, DN_ALIGN);
	}
	p->ws_bytes = at;
}

/* Backward descriptions want a forward one as a hint. */
static dnnl_status_t pass_describe(dnnl_engine_t engine, enum pass_kind kind, const struct dn_conv_desc *d,
				   const struct shapes *s, dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
	struct api_conv c = s->conv;
	dnnl_primitive_desc_t hint;
	dnnl_status_t status;

	if (kind == PASS_FORWARD) {
		c.bias = d->bias ? s->bias : NULL;
		return api_conv_forward(out, engine, d->train ? dnnl_forward_training : dnnl_forward_inference, &c, attr);
	}
	status = api_conv_forward(&hint, engine, dnnl_forward_training, &c, NULL);
	if (status != dnnl_success)
		return status;
	status = kind == PASS_WEIGHTS ? api_conv_backward_weights(out, engine, &c, hint, attr)
				      : api_conv_backward_data(out, engine, &c, hint, attr);
	dnnl_primitive_desc_destroy(hint);
	return status;
}

static int pass_tensors(struct dnn *dnn, struct pass *p, enum pass_kind kind, const struct shapes *s,
			const_dnnl_primitive_desc_t pd)
{
	/* tensors of each pass: argument, query of the chosen layout, and which of x, w, y it is */
	static const struct {
		int arg;
		dnnl_query_t query;
		int which;
	} of[PASSES][3] = {
		[PASS_FORWARD] = { { DNNL_ARG_SRC, dnnl_query_src_md, 0 },
				   { DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 1 },
				   { DNNL_ARG_DST, dnnl_query_dst_md, 2 } },
		[PASS_WEIGHTS] = { { DNNL_ARG_SRC, dnnl_query_src_md, 0 },
				   { DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 2 },
				   { DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 1 } },
		[PASS_DATA] = { { DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 2 },
				{ DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 1 },
				{ DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0 } },
	};
	api_md_ref plain[] = { s->x, s->w, s->y };
	struct tensor *t[] = { &p->in, &p->in2, &p->out };

	for (int i = 0; i < 3; i++) {
		api_md_ref md = dnnl_primitive_desc_query_md(pd, of[kind][i].query, 0);
		int err;

		if (!md)
			return dn_fail(-EIO, "oneDNN: convolution: no layout for tensor %d", i);
		err = tensor_init(dnn, p, t[i], of[kind][i].arg, plain[of[kind][i].which], md);
		if (err)
			return err;
	}
	return 0;
}

static int pass_init(struct dnn *dnn, struct pass *p, enum pass_kind kind, const struct dn_conv_desc *d, enum layout layout)
{
	dnnl_primitive_desc_t pd = NULL;
	dnnl_primitive_attr_t attr = NULL;
	struct shapes s = { 0 };
	int err;

	err = shapes_init(&s, d, layout);
	if (!err)
		err = attr_create(kind == PASS_FORWARD ? d->act : DN_ACT_LINEAR, &attr);
	if (!err)
		err = dnn_status(pass_describe(dnn->engine, kind, d, &s, attr, &pd), "convolution");
	if (!err)
		err = dnn_status(dnnl_primitive_create(&p->prim, pd), "convolution");
	if (!err)
		err = pass_tensors(dnn, p, kind, &s, pd);
	if (!err)
		err = scratch_create(dnn, pd, &p->scratch, &p->scratch_bytes);
	if (!err && kind == PASS_FORWARD && d->bias)
		err = memory_create(dnn, s.bias, &p->bias);
	if (!err)
		pass_place(p);
	if (pd)
		dnnl_primitive_desc_destroy(pd);
	if (attr)
		dnnl_primitive_attr_destroy(attr);
	shapes_fini(&s);
	return err;
}

static void pass_fini(struct pass *p)
{
	struct tensor *all[] = { &p->in, &p->in2, &p->out };

	for (int i = 0; i < 3; i++) {
		if (all[i]->plain)
			dnnl_memory_destroy(all[i]->plain);
		if (all[i]->own)
			dnnl_memory_destroy(all[i]->own);
		if (all[i]->reorder.prim)
			dnnl_primitive_destroy(all[i]->reorder.prim);
		if (all[i]->reorder.scratch)
			dnnl_memory_destroy(all[i]->reorder.scratch);
	}
	if (p->bias)
		dnnl_memory_destroy(p->bias);
	if (p->scratch)
		dnnl_memory_destroy(p->scratch);
	if (p->prim)
		dnnl_primitive_destroy(p->prim);
}

/* NOTE(layout rule): fixed over the shape, so every rank and run computes alike; nothing is tuned at run time.
 * Plain layouts go through the library's im2col and product, its own through direct kernels plus conversions.
 * Measured with oneDNN 2.6.3 on an AVX-512 EPYC, microseconds plain / own, conversions included:
 *                                    forward          weight gradient   data gradient
 *   1 thread   n32 c3   32  k32  3x3   2000 /  750      2672 /  660       1271 /  2859
 *              n32 c8   28  k16  3x3   1880 /  542      2608 /  653       1812 /  1121
 *              n32 c32  16  k64  3x3   4881 / 2619      5355 / 2869       4455 /  2614
 *              n8  c128 28  k128 3x3  24631 / 16282    22509 / 17121     21605 / 16374
 *              n8  c512 8   k512 3x3  24901 / 19815    25635 / 29827     25440 / 19275
 *              n1  c512 13  k1024 3x3 16014 / 15915    16699 / 19709     16430 / 15730
 *              n8  c64  56  k64  1x1   3090 / 2704      3022 / 2791       1840 /  2635
 *              n8  c256 14  k128 1x1   1300 /  987       964 /  963        982 /   971
 *              n1  c1024 13 k255 1x1    842 /  958       837 /  948        879 /   833
 *              n8  c128 28  depthwise  4916 /  406      5907 /  303       6006 /   394
 *   2 threads  n32 c3   32  k32  3x3    978 /  427      2223 /  352        634 /  1425
 *              n8  c128 28  k128 3x3  12385 / 8102     12290 / 8417      10743 /  8073
 *              n8  c512 8   k512 3x3  13069 / 9685     13943 / 12008     12549 /  9511
 *              n1  c512 13  k1024 3x3  8003 / 8050      8169 /  9758      7989 /  7738
 *              n8  c64  56  k64  1x1   1559 / 1265      1384 /  1284       922 /  1295
 *              n1  c1024 13 k255 1x1    425 /  561       418 /   488       442 /   439
 * So: own, but where it pads few input channels to a full vector, or converts more than it saves. Where weights outweigh
 * the data, one product over the batch (gemm_conv.c); milliseconds plain / own / batch, 1 thread, by weights / data:
 *    48   n4  c512  4 k1024 3x3     8.6 /  8.2 /  7.2    13.9 / 17.4 /  7.2     10.5 /  9.0 /  7.1
 *    18   n8  c512  4 k512  3x3     8.7 /  6.3 /  6.0    14.2 / 15.0 /  6.3     11.4 /  6.8 /  5.8
 *    18   n1  c256  8 k256  3x3     0.8 /  0.7 /  0.9     1.0 /  1.1 /  1.0      0.9 /  0.7 /  0.9
 *    12   n8  c256  4 k512  3x3     4.4 /  2.3 /  3.0     4.3 /  4.8 /  3.1      4.5 /  2.6 /  2.9
 *     9   n16 c512  4 k512  3x3    15.9 /  9.3 / 13.1    17.4 / 21.7 / 12.7     16.9 /  9.8 / 13.1
 *     8   n4  c1024 4 k1000 1x1     1.7 /  2.4 /  1.4     2.2 /  2.4 /  1.4      2.1 /  2.5 /  1.6
 *     5   n4  c1024 4 k512  1x1     0.9 /  0.8 /  0.8     1.1 /  2.3 /  0.8      1.0 /  1.0 /  0.9
 * For inference weights are converted once (n1 c1024 13 k255: 805), so own always.
 */
static enum layout layout_rule(const struct dn_conv_desc *d, enum pass_kind kind)
{
	double weights = (double)d->y.c * (double)(d->x.c / d->groups) * (double)(d->size * d->size);
	double data = (double)d->x.n * ((double)(d->x.c * d->x.h * d->x.w) + (double)(d->y.c * d->y.h * d->y.w));
	bool plain = false;

	if (!d->train || d->groups > 1)
		return LAYOUT_OWN;
	if (d->size == 1	   ? weights > 4 * data
	    : kind == PASS_WEIGHTS ? weights > 8 * data
				   : weights > 16 * data && weights > 1 << 20)
		return LAYOUT_BATCH;
	switch (kind) {
	case PASS_FORWARD:
	case PASS_WEIGHTS:
		plain = d->size == 1 && weights > data;
		break;
	default:
		plain = d->x.c < 8 || (d->size == 1 && d->x.c <= 256);
	}
	return plain ? LAYOUT_PLAIN : LAYOUT_OWN;
}

static size_t n_weights(const struct dn_conv_desc *d)
{
	return (size_t)(d->y.c * (d->x.c / d->groups) * d->size * d->size);
}

static int conv_create_with(struct cpu_math_device *dev, const struct dn_conv_desc *d, const enum layout layout[PASSES],
			    struct dn_conv **out)
{
	int before, err = 0, n = d->train ? PASSES : 1;
	struct dn_conv *cv = dn_zalloc(sizeof(*cv));
	float alpha;

	if (!cv)
		return -ENOMEM;
	cv->dev = dev;
	cv->d = *d;
	cv->rest = fused_act(d->act, &alpha) == dnnl_alg_kind_undef ? d->act : DN_ACT_LINEAR;
	before = threads_enter(dev->cpu.dev.threads);
	for (int i = 0; i < n && !err; i++) {
		cv->batch[i] = layout[i] == LAYOUT_BATCH;
		if (cv->batch[i])
			cv->pass[i].ws_bytes = gemm_conv_bytes(d);
		else
			err = pass_init(dev->dnn, &cv->pass[i], (enum pass_kind)i, d, layout[i]);
	}
	threads_leave(before);
	if (err) {
		cpu_conv_destroy(cv);
		return err;
	}
	for (int i = 0; i < n; i++)
		if (cv->pass[i].ws_bytes > cv->ws_bytes)
			cv->ws_bytes = cv->pass[i].ws_bytes;
	if (d->train) {
		cv->dx_at = cv->pass[PASS_DATA].ws_bytes;
		if (cv->dx_at + d->x.bytes > cv->ws_bytes)
			cv->ws_bytes = cv->dx_at + d->x.bytes;
		cv->dw_at = cv->pass[PASS_WEIGHTS].ws_bytes;
	}
	cv->ws_acc_bytes = cv->ws_bytes;
	if (d->train && cv->dw_at + n_weights(d) * sizeof(float) > cv->ws_bytes)
		cv->ws_acc_bytes = cv->dw_at + n_weights(d) * sizeof(float);
	*out = cv;
	return 0;
}

int cpu_conv_create(struct dn_device *dev, const struct dn_conv_desc *d, struct dn_conv **out)
{
	enum layout layout[PASSES];
	int err = conv_desc_check(&cpu_limits, d);

	if (err)
		return err;
	for (int i = 0; i < PASSES; i++)
		layout[i] = layout_rule(d, (enum pass_kind)i);
	return conv_create_with((struct cpu_math_device *)dev, d, layout, out);
}

void cpu_conv_destroy(struct dn_conv *cv)
{
	if (!cv)
		return;
	for (int i = 0; i < PASSES; i++)
		pass_fini(&cv->pass[i]);
	dn_free(cv);
}

size_t cpu_conv_workspace_bytes(const struct dn_conv *cv, bool acc)
{
	return acc ? cv->ws_acc_bytes : cv->ws_bytes;
}

size_t cpu_conv_packed_bytes(const struct dn_conv *cv)
{
	return cv->pass[PASS_FORWARD].in2.own_bytes;
}

/* --- running --- */

static int set_handle(struct dnn *dnn, dnnl_memory_t m, const void *p)
{
	return dnn_status(api_set_handle(m, (void *)p, dnn->stream), "address");
}

static int reorder_run(struct dnn *dnn, const struct reorder *r, dnnl_memory_t from, dnnl_memory_t to, char *ws)
{
	dnnl_exec_arg_t args[] = { { DNNL_ARG_FROM, from }, { DNNL_ARG_TO, to }, { DNNL_ARG_SCRATCHPAD, r->scratch } };
	int err = 0;

	if (r->scratch)
		err = set_handle(dnn, r->scratch, ws);
	if (!err)
		err = dnn_status(dnnl_primitive_execute(r->prim, dnn->stream, r->scratch ? 3 : 2, args), "reorder");
	return err;
}

/* @own: the tensor's values in the library's layout already, or NULL. Sets the argument for the primitive. */
static int input_run(struct dnn *dnn, const struct tensor *t, const float *plain, const void *own, char *ws, dnnl_exec_arg_t *arg)
{
	int err;

	arg->arg = t->arg;
	arg->memory = t->own ? t->own : t->plain;
	if (!t->own)
		return set_handle(dnn, t->plain, plain);
	err = set_handle(dnn, t->own, own ? own : ws + t->own_at);
	if (err || own)
		return err;
	err = set_handle(dnn, t->plain, plain);
	return err ? err : reorder_run(dnn, &t->reorder, t->plain, t->own, ws);
}

static int pass_run(struct dnn *dnn, const struct pass *p, const float *in, const float *in2, const void *in2_own,
		    const float *bias, float *out, char *ws)
{
	dnnl_exec_arg_t args[5];
	int n = 3, err;

	err = input_run(dnn, &p->in, in, NULL, ws, &args[0]);
	if (!err)
		err = input_run(dnn, &p->in2, in2, in2_own, ws, &args[1]);
	if (!err)
		err = set_handle(dnn, p->out.plain, out);
	if (!err && p->out.own)
		err = set_handle(dnn, p->out.own, ws + p->out.own_at);
	args[2].arg = p->out.arg;
	args[2].memory = p->out.own ? p->out.own : p->out.plain;
	if (!err && p->bias) {
		err = set_handle(dnn, p->bias, bias);
		args[n].arg = DNNL_ARG_BIAS;
		args[n++].memory = p->bias;
	}
	if (!err && p->scratch) {
		err = set_handle(dnn, p->scratch, ws);
		args[n].arg = DNNL_ARG_SCRATCHPAD;
		args[n++].memory = p->scratch;
	}
	if (!err)
		err = dnn_status(dnnl_primitive_execute(p->prim, dnn->stream, n, args), "convolution");
	if (!err && p->out.own)
		err = reorder_run(dnn, &p->out.reorder, p->out.own, p->out.plain, ws);
	if (!err)
		err = dnn_status(dnnl_stream_wait(dnn->stream), "stream");
	return err;
}

/* on the threads that the primitives were made for */
static int pass_call(struct dn_conv *cv, enum pass_kind kind, const float *in, const float *in2, const void *in2_own,
		     const float *bias, float *out, void *ws)
{
	int before, err;

	if (!cv->pass[kind].prim)
		return dn_fail(-EINVAL, "convolution: made for inference, has no backward");
	before = threads_enter(cv->dev->cpu.dev.threads);
	err = pass_run(cv->dev->dnn, &cv->pass[kind], in, in2, in2_own, bias, out, ws);
	threads_leave(before);
	return err;
}

int cpu_conv_pack(struct dn_stream *st, struct dn_conv *cv, const void *w, void *packed, void *ws)
{
	struct tensor *t = &cv->pass[PASS_FORWARD].in2;
	struct dnn *dnn = cv->dev->dnn;
	int before, err;

	if (!t->own)
		return dn_fail(-EINVAL, "convolution: this one has no packed weights");
	before = threads_enter(cv->dev->cpu.dev.threads);
	err = set_handle(dnn, t->plain, w);
	if (!err)
		err = set_handle(dnn, t->own, packed);
	if (!err)
		err = reorder_run(dnn, &t->reorder, t->plain, t->own, ws);
	if (!err)
		err = dnn_status(dnnl_stream_wait(dnn->stream), "stream");
	threads_leave(before);
	return err;
}

int cpu_conv_forward(struct dn_stream *st, struct dn_conv *cv, const void *px, const void *pw, const void *packed,
		     const float *bias, void *py, void *ws)
{
	const float *x = px, *w = pw;
	float *y = py;
	const struct dn_conv_desc *d = &cv->d;
	int err;

	if (cv->batch[PASS_FORWARD])
		return gemm_conv_forward(st, d, x, w, bias, y, ws);
	err = pass_call(cv, PASS_FORWARD, x, w, packed, bias, y, ws);

	if (!err && cv->rest != DN_ACT_LINEAR)
		err = cpu_bias_act(st, &d->y, y, NULL, cv->rest);
	return err;
}

int cpu_conv_backward_weights(struct dn_stream *st, struct dn_conv *cv, const void *px, const void *pdy, float *dw, bool acc,
			      void *ws)
{
	const float *x = px, *dy = pdy;
	float *to = acc ? (float *)(void *)((char *)ws + cv->dw_at) : dw;
	int err;

	if (cv->batch[PASS_WEIGHTS])
		err = gemm_conv_backward_weights(st, &cv->d, x, dy, to, ws);
	else
		err = pass_call(cv, PASS_WEIGHTS, x, dy, NULL, NULL, to, ws);
	return err || !acc ? err : cpu_axpby(st, DN_F32, (int64_t)n_weights(&cv->d), 1, to, 1, dw);
}

int cpu_conv_backward_data(struct dn_stream *st, struct dn_conv *cv, const void *pdy, const void *pw, void *pdx, bool acc,
			   void *ws)
{
	const float *dy = pdy, *w = pw;
	float *dx = pdx;
	const struct dn_conv_desc *d = &cv->d;
	float *to = acc ? (float *)((char *)ws + cv->dx_at) : dx;
	int err = cv->batch[PASS_DATA] ? gemm_conv_backward_data(st, d, dy, w, to, ws)
				       : pass_call(cv, PASS_DATA, dy, w, NULL, NULL, to, ws);

	if (!err && acc)
		err = cpu_axpby(st, d->x.type, dn_tensor_count(&d->x), 1, to, 1, dx);
	return err;
}
