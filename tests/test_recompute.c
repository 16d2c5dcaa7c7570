/* T22: blocks whose forward runs again in backward: the same bits, less memory, everything that counts counts once. */
#include "base/arena.h"
#include "graph/graph_priv.h"
#include "net_help.h"

#define BLOCKS_MAX 6

/* every kind of layer that has something to keep, and edges that leave their block */
static const char *const nets[] = {
	/* normalisation, activations of their input, dropout, pools, routes and shortcuts within blocks and across them */
	"[net]\nbatch=8\nsubdivisions=2\nwidth=12\nheight=12\nchannels=3\ndecay=.01\n"
	"[block]\n[crop]\ncrop_width=8\ncrop_height=8\nflip=1\n"
	"[convolutional]\nbatch_normalize=1\nfilters=6\nsize=3\npad=1\nactivation=mish\n"
	"[block]\n[convolutional]\nbatch_normalize=1\nfilters=6\nsize=3\npad=1\nactivation=leaky\n[dropout]\nprobability=.3\n"
	"[shortcut]\nfrom=-3\nactivation=leaky\n"
	"[block]\n[maxpool]\nsize=2\nstride=2\n[normalization]\nsize=3\n[convolutional]\nfilters=6\nsize=1\nactivation=gelu\n"
	"[route]\nlayers=-1,-3\n[batchnorm]\n"
	"[block]\n[route]\nlayers=-1,5\n[convolutional]\nfilters=4\nsize=3\npad=1\ngroups=2\nxnor=1\nbatch_normalize=1\nactivation=relu\n"
	"[block]\n[l2norm]\n[connected]\noutput=9\nbatch_normalize=1\nactivation=tanh\n[dropout]\n"
	"[connected]\noutput=5\nactivation=linear\n[softmax]\n",
	/* shared params, scaled channels, upsampling, local layers, another output map; a loss in the middle */
	"[net]\nbatch=6\nsubdivisions=1\nwidth=6\nheight=6\nchannels=4\n"
	"[block]\n[local]\nfilters=4\nsize=3\npad=1\nactivation=swish\n"
	"[block]\n[convolutional]\nfilters=4\nsize=3\npad=1\nbatch_normalize=1\nactivation=leaky\n"
	"[convolutional]\nfilters=4\nsize=3\npad=1\nbatch_normalize=1\nactivation=leaky\nshare_index=-1\n"
	"[avgpool]\n[connected]\noutput=4\nactivation=logistic\n[scale_channels]\nfrom=-3\n"
	"[block]\n[reorg]\nstride=2\n[upsample]\nstride=2\n[deconvolutional]\nfilters=3\nsize=2\nstride=1\nactivation=leaky\n"
	"[local_avgpool]\nsize=2\nstride=2\n[activation]\nactivation=elu\n"
	"[block]\n[connected]\noutput=7\nactivation=linear\n[softmax]\n[connected]\noutput=7\nactivation=relu\n[logistic]\n[cost]\ntype=smooth\n",
	/* what learns begins within a block */
	"[net]\nbatch=4\nsubdivisions=1\nwidth=6\nheight=6\nchannels=2\n"
	"[block]\n[convolutional]\nfilters=3\nsize=3\npad=1\nactivation=leaky\n"
	"[block]\n[convolutional]\nfilters=3\nsize=3\npad=1\nbatch_normalize=1\nactivation=mish\n"
	"[convolutional]\nfilters=3\nsize=3\npad=1\nactivation=mish\nstopbackward=1\n[dropout]\n"
	"[convolutional]\nfilters=5\nsize=3\npad=1\nbatch_normalize=1\nactivation=mish\n"
	"[block]\n[shortcut]\nfrom=-3\n[batchnorm]\n[connected]\noutput=4\nactivation=linear\n[softmax]\n",
};
#define N_NETS ((int)(sizeof(nets) / sizeof(nets[0])))

static int n_blocks(const char *text)
{
	int n = 0;

	for (const char *s = text; (s = strstr(s, "[block]\n")); s++)
		n++;
	return n;
}

/* recompute=1 for the blocks of @mask; a bit more is more of them */
static void marked(char *out, size_t cap, const char *text, unsigned mask)
{
	size_t n = 0;
	int block = 0;

	for (const char *s = text; *s && n + 32 < cap;) {
		if (strncmp(s, "[block]\n", 8) != 0) {
			out[n++] = *s++;
			continue;
		}
		n += (size_t)snprintf(out + n, cap - n, "[block]\n%s", mask >> block++ & 1 ? "recompute=1\n" : "");
		s += 8;
	}
	CU_ASSERT_FATAL(n + 32 < cap);
	out[n] = '\0';
}

struct result {
	double loss[8];
	int64_t n;
	float *values, *grads;
	size_t activations_bytes;
};

static int keep(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	float **to = arg;

	for (int64_t i = 0; i < n; i++)
		*(*to)++ = x[i];
	return 0;
}

static void train(struct net_help *t, int steps, struct result *out)
{
	struct dn_update u = { .optimizer = DN_SGD, .images = t->net->batch, .rate = .1, .momentum = .9, .decay = .01 };
	struct dn_net *net = t->net;
	const struct dn_store_ops *ops = net->store.ops;
	uint64_t allocs = 0;
	float *to;

	for (int s = 0; s < steps; s++) {
		struct dn_pass *p = pass_of(net);

		if (s == 1)
			allocs = dn_mem_n_allocs();
		out->loss[s] = 0;
		u.step = s + 1;
		CHECK_OK(ops->begin(net->store.self, net, u.step));
		for (int64_t m = 0; m < net->subdivisions; m++) {
			double repeat;

			p->micro = m;
			p->first_image = (uint64_t)(s * net->batch + m * net->microbatch);
			p->phase = DN_TRAIN;
			CHECK_OK_FATAL(dn_net_forward(net, p));
			out->loss[s] += net_loss(net);
			CHECK_OK(ops->stats(net->store.self, net));
			CHECK_OK_FATAL(dn_net_backward(net, p));
			if (s == 2) { /* other passes in between see nothing of it */
				p->phase = DN_REPEAT;
				CHECK_OK(dn_net_forward(net, p));
				repeat = net_loss(net);
				p->phase = DN_INFER;
				CHECK_OK(dn_net_forward(net, p));
				CU_ASSERT(isfinite(repeat) && isfinite(net_loss(net)));
			}
			p->phase = DN_TRAIN;
		}
		CHECK_OK(dn_net_update(net, &u));
	}
	if (steps > 1)
		CHECK_EQ(dn_mem_n_allocs(), allocs);
	out->n = net->n_trained + net->n_buffers;
	to = out->values = dn_calloc((size_t)out->n, sizeof(float));
	for (int i = 0; i < net->n_params; i++)
		CHECK_OK(ops->each(net->store.self, net->params[i], DN_VALUE, DN_READ, keep, &to));
	to = out->grads = dn_calloc((size_t)out->n, sizeof(float));
	for (int i = 0; i < net->n_params; i++)
		CHECK_OK(ops->each(net->store.self, net->params[i], DN_GRAD, DN_READ, keep, &to));
	out->activations_bytes = net->activations_bytes;
}

static void run(const char *backend, const char *text, unsigned mask, struct result *out)
{
	struct net_help t;
	char cfg[4096];

	marked(cfg, sizeof(cfg), text, mask);
	CHECK_OK_FATAL(net_help_build(&t, backend, cfg, NULL));
	CHECK_OK_FATAL(net_help_ready(&t, false));
	train(&t, 4, out);
	net_help_close(&t);
}

static void result_fini(struct result *r)
{
	dn_free(r->values);
	dn_free(r->grads);
}

static void same(const struct result *a, const struct result *b)
{
	CHECK_EQ(a->n, b->n);
	CHECK_BITS(a->loss, b->loss, 4 * sizeof(double));
	CHECK_BITS(a->values, b->values, (size_t)b->n * sizeof(float));
	CHECK_BITS(a->grads, b->grads, (size_t)b->n * sizeof(float));
	CU_ASSERT(isfinite(b->values[0]) && isfinite(b->loss[3]));
}

/* memory begins as NaN, so that what is read in a life that it does not have shows */
static void t22_recomputed_blocks_change_no_bit(void)
{
	for (int be = 0; be < 2; be++)
		for (int c = 0; c < N_NETS; c++) {
			const unsigned all = (1u << n_blocks(nets[c])) - 1;
			struct result none;

			run(be ? "cpu" : "ref", nets[c], 0, &none);
			for (unsigned mask = 1; mask <= all; mask++) {
				struct result r;

				run(be ? "cpu" : "ref", nets[c], mask, &r);
				same(&r, &none);
				result_fini(&r);
			}
			result_fini(&none);
		}
}

static bool overlap(const struct dn_arena_item *a, const struct dn_arena_item *b)
{
	return a->first <= b->last && b->first <= a->last && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static void no_two_live_buffers_of_recomputed_blocks_overlap(void)
{
	for (int c = 0; c < N_NETS; c++)
		for (unsigned mask = 0; mask < 1u << n_blocks(nets[c]); mask++) {
			const struct dn_arena_item *it;
			struct net_help t;
			char cfg[4096];
			int n;

			marked(cfg, sizeof(cfg), nets[c], mask);
			CHECK_OK_FATAL(net_help_build(&t, "ref", cfg, NULL));
			it = ((const struct net_priv *)t.net->priv)->memory.items;
			n = ((const struct net_priv *)t.net->priv)->memory.n_items;
			for (int i = 0; i < n; i++)
				for (int k = 0; k < i; k++)
					CU_ASSERT(!overlap(&it[i], &it[k]));
			net_help_close(&t);
		}
}

/* Eight blocks of three equal layers, whose inside is twice as large as what they hand on: all of them keep 24 tensors and more,
 * recomputed ones their 8 inputs and what one of them needs. */
static void recomputing_needs_the_inputs_and_one_block(void)
{
	char text[4096];
	size_t bytes[2], measured[2], tensor = 4 * 16 * 16 * 8 * sizeof(float);
	int n = snprintf(text, sizeof(text), "[net]\nbatch=4\nwidth=16\nheight=16\nchannels=8\n");

	for (int b = 0; b < 8; b++)
		n += snprintf(
			text + n, sizeof(text) - (size_t)n,
			"[block]\n[convolutional]\nfilters=16\nsize=1\nactivation=mish\n[convolutional]\nfilters=16\nsize=1\n"
			"activation=mish\n[convolutional]\nfilters=8\nsize=1\nactivation=leaky\n");
	snprintf(text + n, sizeof(text) - (size_t)n, "[avgpool]\n[softmax]\n");
	for (int k = 0; k < 2; k++) {
		struct dn_mem_stats s;
		struct net_help t;
		char cfg[4096];

		marked(cfg, sizeof(cfg), text, k ? 255 : 0);
		CHECK_OK_FATAL(net_help_build(&t, "cpu", cfg, NULL));
		CHECK_OK_FATAL(net_help_ready(&t, true));
		dn_mem_stats(DN_MEM_ACTIVATIONS, &s);
		bytes[k] = t.net->activations_bytes;
		measured[k] = s.now_bytes;
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		CHECK_OK(dn_net_backward(t.net, pass_of(t.net)));
		dn_net_drain(t.net);
		net_help_close(&t);
	}
	CHECK_EQ(measured[0], bytes[0]);
	CHECK_EQ(measured[1], bytes[1]);
	CU_ASSERT(bytes[0] > 8 * (2 * 4 + 1) * tensor);
	/* 8 inputs; a block's two layers twice, before and behind the activation; deltas of two layers; the next output */
	CU_ASSERT(bytes[1] < (8 + 8 + 4 + 2) * tensor);
}

/* Cost, rolling statistics and the sum of gradients are those of one forward: of a net whose numbers would show it. */
static void statistics_and_costs_count_once(void)
{
	static const char text[] = "[net]\nbatch=4\nsubdivisions=1\ninputs=6\n[block]\n[connected]\noutput=5\nbatch_normalize=1\n"
				   "activation=linear\n[softmax]\n";
	struct result a, b;
	struct net_help t;
	char cfg[4096];
	double before;

	run("ref", text, 0, &a);
	run("ref", text, 1, &b);
	same(&b, &a);
	marked(cfg, sizeof(cfg), text, 1);
	CHECK_OK_FATAL(net_help_build(&t, "ref", cfg, NULL));
	CHECK_OK_FATAL(net_help_ready(&t, false));
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	before = net_loss(t.net);
	CHECK_OK(dn_net_backward(t.net, pass_of(t.net)));
	CU_ASSERT(net_loss(t.net) == before && before > 0);
	net_help_close(&t);
	result_fini(&a);
	result_fini(&b);
}

/* outputs that the host reads after the pass, and the search for what is not finite */
static void outputs_after_forward_and_backward_are_those_of_forward(void)
{
	for (unsigned mask = 0; mask < 32; mask += 31) {
		struct net_help t;
		char cfg[4096];
		int at;

		marked(cfg, sizeof(cfg), nets[0], mask);
		CHECK_OK_FATAL(net_help_build(&t, "ref", cfg, NULL));
		CHECK_OK_FATAL(net_help_ready(&t, true));
		at = t.net->output_layer;
		for (int s = 0; s < 2; s++) {
			const void *place = t.net->layers[at].output, *inner = t.net->layers[3].output;

			CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
			CU_ASSERT(isfinite((double)peek_output(t.net, at)[0]));
			CU_ASSERT_PTR_NULL(dn_net_nonfinite_block(t.net));
			CHECK_OK(dn_net_backward(t.net, pass_of(t.net)));
			CU_ASSERT(t.net->layers[at].output == place && t.net->layers[3].output == inner);
		}
		t.input[6 * 12 + 6] = NAN; /* in every crop */
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		CU_ASSERT_PTR_NOT_NULL(dn_net_nonfinite_block(t.net));
		net_help_close(&t);
	}
}

/* --- chosen by a caller; other sizes --- */

static void blocks_can_be_chosen_until_memory_is_taken(void)
{
	bool some[BLOCKS_MAX] = { true, false, true, true, false };
	struct result none, r;
	struct net_help t, u;
	char cfg[4096];

	run("ref", nets[0], 0, &none);
	for (unsigned mask = 0; mask < 32; mask += 31) {
		marked(cfg, sizeof(cfg), nets[0], mask);
		CHECK_OK_FATAL(net_help_build(&t, "ref", cfg, NULL));
		CHECK_OK(dn_net_set_recompute(t.net, some));
		for (int i = 0; i < t.net->n_blocks; i++)
			CU_ASSERT(dn_block_recomputes(&t.net->blocks[i]) == some[i]);
		CHECK_OK_FATAL(net_help_ready(&t, false));
		CHECK_FAILS(dn_net_set_recompute(t.net, some), -EINVAL, "before its memory is allocated");
		train(&t, 4, &r);
		same(&r, &none);
		result_fini(&r);
		net_help_close(&t);
	}
	/* other blocks than the markers' ask for nothing */
	marked(cfg, sizeof(cfg), nets[0], 31);
	CHECK_OK_FATAL(net_help_build(&t, "ref", cfg, NULL));
	CHECK_OK(dn_net_set_blocks(t.net, 2, (int[]){ 0, 2 }, NULL));
	marked(cfg, sizeof(cfg), nets[0], 0);
	CHECK_OK_FATAL(net_help_build(&u, "ref", cfg, NULL));
	CHECK_EQ(t.net->activations_bytes, u.net->activations_bytes);
	net_help_close(&u);
	net_help_close(&t);
	result_fini(&none);
}

static void inference_keeps_nothing_to_recompute(void)
{
	const struct dn_net_options opt = { .world = 1 };
	size_t bytes[2];

	for (unsigned k = 0; k < 2; k++) {
		struct net_help t;
		char cfg[4096];

		marked(cfg, sizeof(cfg), nets[0], k ? 31 : 0);
		CHECK_OK_FATAL(net_help_build(&t, "ref", cfg, &opt));
		bytes[k] = t.net->activations_bytes;
		CU_ASSERT(!dn_block_recomputes(&t.net->blocks[0]));
		net_help_close(&t);
	}
	CHECK_EQ(bytes[0], bytes[1]);
}

static void every_failing_allocation_is_an_error_and_leaks_nothing(void)
{
	bool some[BLOCKS_MAX] = { true, true, false, true, true };
	struct dn_mem_stats before, after;
	int failed = 0;

	dn_mem_stats(DN_MEM_HOST, &before);
	for (uint64_t n = 1;; n++) {
		struct net_help t;
		char cfg[4096];
		int err;

		marked(cfg, sizeof(cfg), nets[0], 21);
		dn_mem_fail_at(n);
		err = net_help_build(&t, "ref", cfg, NULL);
		if (!err)
			err = dn_net_add_shapes(t.net, 1, (const int64_t[][2]){ { 10, 12 } });
		if (!err)
			err = dn_net_set_recompute(t.net, some);
		if (!err)
			err = dn_net_set_blocks(t.net, 2, (int[]){ 0, 2 }, NULL);
		dn_mem_fail_at(0);
		net_help_close(&t);
		if (!err)
			break;
		CHECK_EQ(err, -ENOMEM);
		failed++;
		dn_mem_stats(DN_MEM_HOST, &after);
		CHECK_EQ(after.now_bytes, before.now_bytes);
	}
	CU_ASSERT(failed > 60);
}

static const char scales[] =
	"[net]\nbatch=4\nwidth=8\nheight=8\nchannels=2\n"
	"[block]\n[convolutional]\nfilters=6\nsize=3\npad=1\nbatch_normalize=1\nactivation=mish\n"
	"[convolutional]\nfilters=6\nsize=3\npad=1\nbatch_normalize=1\nactivation=mish\n"
	"[block]\n[convolutional]\nfilters=6\nsize=3\npad=1\nbatch_normalize=1\nactivation=mish\n"
	"[convolutional]\nfilters=4\nsize=3\npad=1\nbatch_normalize=1\nactivation=leaky\n[avgpool]\n[softmax]\n";

static void t22_other_sizes_are_recomputed_too(void)
{
	static const int64_t sizes[][2] = { { 12, 6 }, { 4, 4 } };
	struct result r[2];
	size_t bytes[2];

	for (unsigned k = 0; k < 2; k++) {
		struct net_help t;
		float *input;
		char cfg[4096];

		marked(cfg, sizeof(cfg), scales, 0);
		CHECK_OK_FATAL(net_help_build(&t, "ref", cfg, NULL));
		CHECK_OK(dn_net_add_shapes(t.net, 2, sizes));
		if (k)
			CHECK_OK(dn_net_set_recompute(t.net, (bool[]){ true, true }));
		CHECK_OK_FATAL(net_help_ready(&t, true));
		bytes[k] = t.net->activations_bytes;
		input = pinned(&t, t.net->local_batch * t.net->max_inputs);
		for (int64_t i = 0; i < t.net->local_batch * t.net->max_inputs; i++)
			input[i] = (float)dn_rng_uniform(5, 1, (uint64_t)i);
		pass_of(t.net)->input = input;
		for (int s = 0; s < 3; s++) {
			struct result step;

			CHECK_OK(dn_net_resize(t.net, s ? sizes[s - 1][0] : 8, s ? sizes[s - 1][1] : 8));
			train(&t, 1, &step);
			if (s < 2)
				result_fini(&step);
			else
				r[k] = step;
		}
		net_help_close(&t);
	}
	CHECK_BITS(r[1].values, r[0].values, (size_t)r[0].n * sizeof(float));
	CHECK_BITS(r[1].loss, r[0].loss, sizeof(double));
	CU_ASSERT(bytes[1] < bytes[0]);
	result_fini(&r[0]);
	result_fini(&r[1]);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(t22_recomputed_blocks_change_no_bit),
	CASE(no_two_live_buffers_of_recomputed_blocks_overlap),
	CASE(recomputing_needs_the_inputs_and_one_block),
	CASE(statistics_and_costs_count_once),
	CASE(outputs_after_forward_and_backward_are_those_of_forward),
	CASE(blocks_can_be_chosen_until_memory_is_taken),
	CASE(inference_keeps_nothing_to_recompute),
	CASE(every_failing_allocation_is_an_error_and_leaks_nothing),
	CASE(t22_other_sizes_are_recomputed_too),
	{ NULL, NULL },
};

int main(void)
{
	return check_run("recompute", cases);
}
