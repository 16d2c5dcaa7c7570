/* Layers against plain double loops over what Darknet defines, their first values and files' order, and bad keys. */
#include <float.h>
#include <unistd.h>
#include "base/file.h"
#include "base/group.h"
#include "base/tree.h"
#include "io/weights.h"
#include "net_help.h"

#define RAMP(n, h, w, c) "[net]\nbatch=" #n "\nwidth=" #w "\nheight=" #h "\nchannels=" #c "\n"
#define REFUSES(text, want, part) \
	do { \
		struct net_help t_; \
		CHECK_FAILS(net_help_build(&t_, "ref", (text), NULL), (want), (part)); \
	} while (0)

static const char *const backends[] = { "ref", "cpu" };

/* input 0, 1, 2, ... */
static int open_ramp(struct net_help *t, const char *backend, const char *text)
{
	int err = net_help_build(t, backend, text, NULL);

	if (!err)
		err = net_help_ready(t, false);
	for (int64_t i = 0; !err && i < t->net->local_batch * t->net->inputs; i++)
		t->input[i] = (float)i;
	return err;
}

static void check_first(const char *text, const float *want, int64_t n)
{
	for (int k = 0; k < 2; k++) {
		struct net_help t;

		CHECK_OK_FATAL(open_ramp(&t, backends[k], text));
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		CHECK_BITS(peek_output(t.net, 0), want, sizeof(float) * (size_t)n);
		net_help_close(&t);
	}
}

/* --- moving pixels --- */

static void reorg_keeps_the_order_that_weights_depend_on(void)
{
	static const float want[] = { 0, 2, 4, 6, 16, 18, 20, 22 }, want3d[] = { 0, 2, 8, 10, 16, 18, 24, 26 };

	check_first(RAMP(1, 4, 4, 4) "[reorg]\nstride=2\n", want, 8);
	check_first(RAMP(1, 4, 4, 4) "[reorg3d]\nstride=2\n", want3d, 8);
}

static void reorg3d_moves_block_pixels_to_channels_and_reverse_undoes_it(void)
{
	struct net_help t;
	struct dn_net *net;

	CHECK_OK_FATAL(open_ramp(&t, "cpu", RAMP(2, 4, 6, 3) "[reorg3d]\nstride=2\n[reorg]\nstride=2\nreverse=1\n"));
	net = t.net;
	CHECK_EQ(net->layers[0].out_w, 3);
	CHECK_EQ(net->layers[0].out_h, 2);
	CHECK_EQ(net->layers[0].out_c, 12);
	CHECK_OK(dn_net_forward(net, pass_of(net)));
	for (int64_t n = 0; n < 2; n++)
		for (int64_t k = 0; k < 12; k++)
			for (int64_t y = 0; y < 2; y++)
				for (int64_t x = 0; x < 3; x++) {
					float want = t.input[((n * 3 + k % 3) * 4 + 2 * y + k / 3 / 2) * 6 + 2 * x + k / 3 % 2];

					CU_ASSERT(peek_output(net, 0)[((n * 12 + k) * 2 + y) * 3 + x] == want);
				}
	CHECK_BITS(peek_output(net, 1), t.input, sizeof(float) * 144);
	net_help_close(&t);
}

static void reorg_flattens_and_appends_zeros(void)
{
	static const float want[] = { 0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11 };
	static const float back[] = { 0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11 };
	static const float more[] = { 0, 1, 2, 3, 0, 0, 4, 5, 6, 7, 0, 0 };
	struct net_help t;

	check_first(RAMP(1, 2, 3, 2) "[reorg]\nflatten=1\n", want, 12);
	check_first(RAMP(1, 2, 3, 2) "[reorg]\nflatten=1\nreverse=1\n", back, 12);
	check_first(RAMP(2, 2, 2, 1) "[reorg]\nextra=2\n", more, 12);
	CHECK_OK_FATAL(open_ramp(&t, "ref", RAMP(2, 2, 2, 1) "[reorg]\nextra=2\n"));
	CHECK_EQ(t.net->layers[0].outputs, 6);
	net_help_close(&t);
	REFUSES(RAMP(1, 5, 4, 4) "[reorg]\nstride=2\n", -EINVAL,
		"t.cfg:7: [reorg] layer 0: stride=2 does not divide the input of 4 x 5");
	REFUSES(RAMP(1, 4, 4, 3) "[reorg]\nstride=2\n", -EINVAL, "stride^2=4 does not divide the 3 input channels");
	REFUSES(RAMP(1, 4, 4, 3) "[reorg]\nreverse=1\nstride=2\n", -EINVAL, "stride^2=4 does not divide the 3 input channels");
	REFUSES("[net]\ninputs=4\n[reorg]\n", -EINVAL, "needs an image");
}

static void upsample_repeats_and_a_negative_stride_sums(void)
{
	static const float up[] = { 0, 0, .5f, .5f, 0, 0, .5f, .5f, 1, 1, 1.5f, 1.5f, 1, 1, 1.5f, 1.5f };
	static const float down[] = { 0 + 1 + 4 + 5, 2 + 3 + 6 + 7, 8 + 9 + 12 + 13, 10 + 11 + 14 + 15 };

	check_first(RAMP(1, 2, 2, 1) "[upsample]\nscale=.5\n", up, 16);
	check_first(RAMP(1, 4, 4, 1) "[upsample]\nstride=-2\n", down, 4);
	REFUSES(RAMP(1, 4, 5, 1) "[upsample]\nstride=-2\n", -EINVAL, "t.cfg:7: [upsample] layer 0: blocks of 2 do not divide");
	REFUSES(RAMP(1, 4, 5, 1) "[upsample]\nstride=0\n", -EINVAL, "t.cfg:7: [upsample] stride=0");
}

static void local_average_counts_pixels_inside_only(void)
{
	static const float want[] = { (0 + 1 + 3 + 4) / 4.f, (1 + 2 + 4 + 5) / 4.f, (2 + 5) / 2.f,
				      (3 + 4 + 6 + 7) / 4.f, (4 + 5 + 7 + 8) / 4.f, (5 + 8) / 2.f,
				      (6 + 7) / 2.f,	     (7 + 8) / 2.f,	    8 };

	check_first(RAMP(1, 3, 3, 1) "[local_avgpool]\nsize=2\nstride=1\n", want, 9);
}

static void scaling_needs_fitting_shapes(void)
{
	REFUSES(RAMP(1, 3, 3, 1) "[conv]\nfilters=3\n[conv]\nfilters=2\n[sam]\nfrom=0\n", -EINVAL,
		"t.cfg:11: [sam] layer 2: 3 x 3 x 2 cannot scale the 3 x 3 x 3 of layer 0");
	REFUSES(RAMP(1, 3, 3, 1) "[conv]\nfilters=3\n[scale_channels]\nfrom=0\n", -EINVAL, "3 x 3 x 3 cannot scale");
	REFUSES(RAMP(1, 3, 3, 1) "[conv]\nfilters=3\n[sam]\n", -EINVAL, "t.cfg:8: [sam] layer 1 needs the key from");
}

static void crop_centres_in_tests_and_adjusts(void)
{
	struct net_help t;
	static const float plain[] = { 6, 7, 11, 12 };

	CHECK_OK_FATAL(open_ramp(&t, "cpu", RAMP(1, 4, 5, 1) "[crop]\ncrop_width=2\ncrop_height=2\nflip=1\n"));
	pass_of(t.net)->phase = DN_INFER;
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	for (int i = 0; i < 4; i++)
		CU_ASSERT(peek_output(t.net, 0)[i] == 2 * plain[i] - 1);
	net_help_close(&t);
	CHECK_OK_FATAL(open_ramp(&t, "ref", RAMP(1, 4, 5, 1) "[crop]\ncrop_width=2\ncrop_height=2\nnoadjust=1\n"));
	pass_of(t.net)->phase = DN_INFER;
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	CHECK_BITS(peek_output(t.net, 0), plain, sizeof(plain));
	net_help_close(&t);
	REFUSES(RAMP(1, 4, 5, 1) "[crop]\ncrop_width=6\n", -EINVAL, "t.cfg:7: [crop] layer 0: a window of 6 x 1 is larger than");
}

/* A window of 3 x 2 in 5 x 4 has 3 x 3 places and two directions: 600 images reach all 18, and the corner tells which. */
static void crop_draws_place_and_flip_per_global_image(void)
{
	static const char text[] = RAMP(6, 4, 5, 1) "[crop]\ncrop_width=3\ncrop_height=2\nflip=1\nnoadjust=1\n";
	struct net_help t, u;
	int seen[18] = { 0 };
	float first[36];

	CHECK_OK_FATAL(open_ramp(&t, "cpu", text));
	for (int round = 0; round < 100; round++) {
		pass_of(t.net)->first_image = (uint64_t)round * 6;
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		for (int i = 0; i < 6; i++) {
			const float *y = peek_output(t.net, 0) + i * 6;
			int flip = y[1] < y[0], corner = (int)(flip ? y[2] : y[0]) - i * 20;

			CU_ASSERT_FATAL(corner >= 0 && corner % 5 <= 2 && corner / 5 <= 2);
			for (int j = 0; j < 6; j++)
				CU_ASSERT(y[j] == (float)(i * 20 + corner + j / 3 * 5 + (flip ? 2 - j % 3 : j % 3)));
			seen[(corner / 5 * 3 + corner % 5) * 2 + flip]++;
		}
	}
	for (int k = 0; k < 18; k++)
		CU_ASSERT(seen[k] > 10 && seen[k] < 65); /* 33 expected, 5.6 sigma */
	/* the third image of a batch is drawn as the first of a batch that starts there, on either backend */
	pass_of(t.net)->first_image = 100;
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	memcpy(first, peek_output(t.net, 0), sizeof(first));
	CHECK_OK_FATAL(open_ramp(&u, "ref", text));
	pass_of(u.net)->first_image = 102;
	CHECK_OK(dn_net_forward(u.net, pass_of(u.net)));
	for (int i = 0; i < 24; i++)
		CU_ASSERT(peek_output(u.net, 0)[i] == first[i + 12] - 40);
	net_help_close(&u);
	net_help_close(&t);
}

/* --- normalisation --- */

static void lrn_sums_a_centred_window(void)
{
	for (int size = 1; size <= 6; size++) {
		struct net_help t;
		char text[256];

		snprintf(text, sizeof(text),
			 "[net]\nbatch=2\nwidth=3\nheight=2\nchannels=5\n[lrn]\nsize=%d\nalpha=.4\nbeta=.6\n"
			 "kappa=1.5\n",
			 size);
		for (int k = 0; k < 2; k++) {
			CHECK_OK_FATAL(net_help_build(&t, backends[k], text, NULL));
			CHECK_OK(net_help_ready(&t, false));
			CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
			for (int e = 0; e < 60; e++) {
				int c = e / 6 % 5;
				double sum = 0, want;

				for (int q = c - (size - 1) / 2; q <= c + size / 2; q++)
					sum += q < 0 || q > 4 ? 0 : pow(t.input[e + (q - c) * 6], 2);
				want = t.input[e] * pow(1.5 + .4 * sum, -.6);
				CU_ASSERT(fabs(peek_output(t.net, 0)[e] - want) < 1e-6); /* float powers */
			}
			net_help_close(&t);
		}
	}
}

static void l2norm_divides_by_the_length_and_keeps_zeros(void)
{
	for (int k = 0; k < 2; k++) {
		struct net_help t;

		CHECK_OK_FATAL(
			net_help_build(&t, backends[k], "[net]\nbatch=2\nwidth=3\nheight=2\nchannels=4\n[l2norm]\n", NULL));
		CHECK_OK(net_help_ready(&t, false));
		for (int c = 0; c < 4; c++)
			t.input[c * 6 + 2] = 0;
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		for (int e = 0; e < 48; e++) {
			double sum = 0;

			for (int c = 0; c < 4; c++)
				sum += pow(t.input[e / 24 * 24 + c * 6 + e % 6], 2);
			CU_ASSERT(fabs(peek_output(t.net, 0)[e] - (sum > 0 ? t.input[e] / sqrt(sum) : 0)) < 1e-6);
		}
		net_help_close(&t);
	}
}

/* --- weights --- */

static void local_has_weights_of_its_own_at_every_point(void)
{
	struct net_help t;
	const struct dn_param *b, *w;
	const float *wv, *out;
	float bv[12];
	int zeros = 0;

	CHECK_OK_FATAL(net_help_build(&t, "cpu",
				      RAMP(2, 5, 4, 3) "[local]\nfilters=2\nsize=3\nstride=2\npad=1\nactivation=linear\n", NULL));
	CHECK_OK(net_help_ready(&t, false));
	b = t.net->params[0];
	w = t.net->params[1];
	CHECK_STR(b->name, "0.biases");
	CHECK_STR(w->name, "0.weights");
	CHECK_EQ(t.net->layers[0].out_w, 2); /* (4 - 1) / 2 + 1 */
	CHECK_EQ(t.net->layers[0].out_h, 3);
	CHECK_EQ(b->n, 12);
	CHECK_EQ(w->n, 6 * 2 * 27);
	CU_ASSERT(w->decay && !b->decay);
	wv = peek(t.net, w->value, w->n);
	for (int e = 0; e < w->n; e++) {
		zeros += wv[e] == 0;
		CU_ASSERT(fabs(wv[e]) <= sqrt(2. / 27));
	}
	CHECK_EQ(zeros, 0);
	for (int e = 0; e < 12; e++)
		bv[e] = (float)e;
	poke(t.net, b->value, 12, bv);
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	out = peek_output(t.net, 0);
	for (int n = 0; n < 2; n++)
		for (int k = 0; k < 2; k++)
			for (int p = 0; p < 6; p++) {
				double sum = bv[k * 6 + p];

				for (int c = 0; c < 3; c++)
					for (int i = 0; i < 9; i++) {
						int y = p / 2 * 2 - 1 + i / 3, x = p % 2 * 2 - 1 + i % 3;

						if (y >= 0 && y < 5 && x >= 0 && x < 4)
							sum += (double)t.input[((n * 3 + c) * 5 + y) * 4 + x] *
							       wv[((p * 2 + k) * 3 + c) * 9 + i];
					}
				CU_ASSERT(fabs(out[(n * 2 + k) * 6 + p] - sum) < 1e-5);
			}
	net_help_close(&t);
	REFUSES(RAMP(1, 4, 4, 1) "[local]\nsize=5\n", -EINVAL,
		"t.cfg:7: [local] layer 0: a window of 5 is larger than the input");
	REFUSES(RAMP(1, 4, 4, 1) "[local]\nsize=2\npad=3\n", -EINVAL, "t.cfg:8: [local] pad=3 is more than size=2");
	REFUSES(RAMP(1, 4, 4, 1) "[local]\nnumload=1\n", -ENOTSUP, "numload is for");
	REFUSES(RAMP(2, 4, 4, 1) "[batchnorm]\nnumload=1\n", -ENOTSUP, "t.cfg:7: [batchnorm] numload is for");
	REFUSES(RAMP(1, 4, 4, 1) "[deconvolutional]\nfilters=2\nsize=2\nnumload=1\n", -ENOTSUP, "numload is for");
}

static void deconvolution_scatters_each_input_pixel(void)
{
	for (int k = 0; k < 2; k++) {
		struct net_help t;
		struct dn_param *b, *w;
		const float *wv, *out;
		double want[2 * 2 * 6 * 8] = { 0 };
		struct dn_net_options infer = { .world = 1, .seed = 7 };

		CHECK_OK_FATAL(net_help_build(&t, backends[k],
					      RAMP(2, 3, 4, 3) "[deconv]\nfilters=2\nsize=4\nstride=2\npadding=1\n"
							       "activation=linear\n",
					      &infer));
		CHECK_OK(net_help_ready(&t, false));
		b = t.net->params[0];
		w = t.net->params[1];
		CHECK_EQ(t.net->layers[0].out_w, 8); /* 3 * 2 + 4 - 2 */
		CHECK_EQ(t.net->layers[0].out_h, 6);
		CHECK_EQ(w->n, 3 * 2 * 16);
		poke_one(t.net, &b->value[1], .25f);
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		wv = peek(t.net, w->value, w->n);
		out = peek_output(t.net, 0);
		for (int n = 0; n < 2; n++)
			for (int c = 0; c < 3; c++)
				for (int p = 0; p < 12; p++)
					for (int f = 0; f < 2; f++)
						for (int i = 0; i < 16; i++) {
							int y = p / 4 * 2 + i / 4 - 1, x = p % 4 * 2 + i % 4 - 1;

							if (y >= 0 && y < 6 && x >= 0 && x < 8)
								want[((n * 2 + f) * 6 + y) * 8 + x] +=
									(double)t.input[(n * 3 + c) * 12 + p] *
									wv[(c * 2 + f) * 16 + i];
						}
		for (int e = 0; e < 192; e++)
			CU_ASSERT(fabs(out[e] - want[e] - (e / 48 % 2 ? .25 : 0)) < 1e-6);
		net_help_close(&t);
	}
	REFUSES(RAMP(1, 2, 2, 1) "[deconv]\nsize=1\npadding=1\n", -EINVAL, "t.cfg:6: [deconv] layer 0: output of");
}

static void deconvolution_orders_its_params_as_files_do(void)
{
	static const char *const names[] = { "0.biases", "0.scales", "0.rolling_mean", "0.rolling_variance", "0.weights" };
	struct net_help t;

	CHECK_OK_FATAL(
		net_help_build(&t, "ref", RAMP(1, 2, 2, 3) "[deconvolutional]\nbatch_normalize=1\nfilters=2\nsize=2\n", NULL));
	CHECK_EQ(t.net->n_params, 5);
	for (int i = 0; i < 5; i++)
		CHECK_STR(t.net->params[i]->name, names[i]);
	/* sigma = .02 * output pixels / input pixels */
	CU_ASSERT(fabs(t.net->params[4]->init.a - .02 * 9 / 4) < 1e-12);
	net_help_close(&t);
}

/* The order of a file: bias and statistics before a deconvolution's weights, behind a connected layer's; a shared layer
 * has nothing. All values come back. */
static void files_hold_the_new_layers_in_darknets_order(void)
{
	static const char text[] =
		RAMP(1, 4, 4, 2) "[deconv]\nfilters=3\nsize=2\nbatch_normalize=1\n[local]\nfilters=2\nsize=3\n"
				 "[connected]\noutput=4\n[connected]\noutput=4\n[connected]\noutput=4\nshare_index=-1\n";
	/* floats of each part in file order */
	static const int64_t parts[] = { 3, 3, 3, 3, 2 * 3 * 4, 18, 9 * 2 * 27, 4, 4 * 18, 4, 16 };
	const struct dn_group alone = { .world = 1 };
	struct dn_weights_info info;
	struct net_help t, u;
	char path[64], *file;
	float value[9 * 2 * 27];
	const float *at;
	int64_t bytes, total = 0;
	size_t n;

	snprintf(path, sizeof(path), "/tmp/layer_rules_%d.weights", (int)getpid());
	CHECK_OK_FATAL(net_help_build(&t, "cpu", text, NULL));
	CHECK_OK(net_help_ready(&t, false));
	CHECK_EQ(t.net->n_params, 11);
	for (int i = 0; i < 11; i++) {
		CHECK_EQ(t.net->params[i]->n, parts[i]);
		total += parts[i];
		for (int64_t e = 0; e < parts[i]; e++)
			value[e] = (float)(i * 1000 + e);
		poke(t.net, t.net->params[i]->value, parts[i], value);
	}
	CHECK_OK_FATAL(dn_weights_save(t.net, path, 7, -1, &alone, &bytes));
	CHECK_EQ(bytes, 20 + 4 * total);
	CHECK_OK_FATAL(dn_file_read(path, 1 << 20, &file, &n));
	at = (const float *)(const void *)(file + 20);
	for (int i = 0; i < 11; i++)
		for (int64_t e = 0; e < parts[i]; e++)
			CU_ASSERT(*at++ == (float)(i * 1000 + e));
	dn_free(file);
	CHECK_OK_FATAL(net_help_build(&u, "ref", text, NULL));
	CHECK_OK(net_help_ready(&u, false));
	CHECK_OK(dn_weights_load(u.net, path, -1, false, &info));
	for (int i = 0; i < 11; i++)
		CHECK_BITS(peek(u.net, u.net->params[i]->value, parts[i]), peek(t.net, t.net->params[i]->value, parts[i]),
			   sizeof(float) * (size_t)parts[i]);
	net_help_close(&u);
	net_help_close(&t);
	unlink(path);
}

static double sign_of(double v)
{
	return v > 0 ? 1 : -1;
}

static void binary_convolution_uses_signs_forward_and_real_numbers_backward(void)
{
	for (int k = 0; k < 2; k++)
		for (int xnor = 0; xnor < 2; xnor++) {
			struct net_help t;
			struct dn_net *net;
			struct dn_param *w;
			const float *wv, *out, *delta;
			float want[2 * 8] = { 0 };
			char text[256];

			snprintf(text, sizeof(text),
				 "[net]\nbatch=2\nwidth=3\nheight=3\nchannels=2\n[conv]\nfilters=2\nsize=2\n%s=1\n"
				 "activation=linear\n[cost]\n",
				 xnor ? "xnor" : "binary");
			CHECK_OK_FATAL(net_help_build(&t, backends[k], text, NULL));
			CHECK_OK(net_help_ready(&t, false));
			net = t.net;
			w = net->params[1];
			poke_one(net, &w->value[3], 0); /* counts as negative */
			CHECK_OK(dn_net_forward(net, pass_of(net)));
			wv = peek(net, w->value, w->n);
			out = peek_output(net, 0);
			for (int n = 0; n < 2; n++)
				for (int f = 0; f < 2; f++)
					for (int p = 0; p < 4; p++) {
						double sum = 0, size = 0;

						for (int i = 0; i < 8; i++)
							size += fabs(wv[f * 8 + i]) / 8;
						for (int i = 0; i < 8; i++) {
							double x = t.input[(n * 2 + i / 4) * 9 + (p / 2 + i % 4 / 2) * 3 + p % 2 +
									   i % 2];

							sum += size * sign_of(wv[f * 8 + i]) * (xnor ? sign_of(x) : x);
						}
						CU_ASSERT(fabs(out[(n * 2 + f) * 4 + p] - sum) < 1e-5);
					}
			CHECK_OK(dn_net_backward(net, pass_of(net)));
			delta = peek_delta(net, 0);
			for (int n = 0; n < 2; n++)
				for (int f = 0; f < 2; f++)
					for (int p = 0; p < 4; p++)
						for (int i = 0; i < 8; i++)
							want[f * 8 + i] += delta[(n * 2 + f) * 4 + p] *
									   t.input[(n * 2 + i / 4) * 9 + (p / 2 + i % 4 / 2) * 3 +
										   p % 2 + i % 2];
			CHECK_CLOSE(peek(net, w->grad, 16), want, 16, 1e-5);
			net_help_close(&t);
		}
}

/* --- losses --- */

static void costs_follow_their_formulas(void)
{
	static const char *const types[] = { "sse", "seg", "L1", "smooth", "masked", "wgan" };

	for (size_t k = 0; k < 2 * sizeof(types) / sizeof(types[0]); k++) {
		const char *type = types[k / 2];
		struct net_help t;
		char text[128];
		double loss = 0;

		snprintf(text, sizeof(text),
			 "[net]\nbatch=2\ninputs=3\n[connected]\noutput=5\nactivation=linear\n[cost]\ntype=%s\nscale=2\n", type);
		CHECK_OK_FATAL(net_help_build(&t, backends[k % 2], text, NULL));
		CHECK_OK(net_help_ready(&t, false));
		for (int i = 0; i < 10; i++)
			t.truth[i] = (float)(i % 5 - 2);
		t.truth[3] = -1234;
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		CHECK_OK(dn_net_backward(t.net, pass_of(t.net)));
		for (int i = 0; i < 10; i++) {
			double p = peek_output(t.net, 0)[i], d = t.truth[i] - p, cost = d * d, delta = d;

			if (!strcmp(type, "L1")) {
				cost = fabs(d);
				delta = sign_of(d);
			} else if (!strcmp(type, "smooth") && fabs(d) >= 1) {
				cost = 2 * fabs(d) - 1;
				delta = sign_of(d);
			} else if (!strcmp(type, "masked") && i == 3) {
				cost = delta = 0;
			} else if (!strcmp(type, "wgan")) {
				cost = t.truth[i] > 0 ? -p : p;
				delta = t.truth[i] > 0 ? 1 : -1;
			}
			loss += cost;
			CU_ASSERT(fabs(*peek(t.net, (const float *)t.net->layers[0].delta + i, 1) - 2 * delta) <=
				  1e-6 * fmax(1, fabs(delta)));
		}
		CU_ASSERT(fabs(net_loss(t.net) - loss) <= 1e-6 * fabs(loss));
		net_help_close(&t);
	}
}

static void keys_of_cost_without_effect_are_told(void)
{
	struct net_help t;

	CHECK_OK_FATAL(net_help_build(&t, "ref", "[net]\ninputs=2\n[conn]\n[cost]\nratio=.1\nnoobj=1\nthresh=0\n", NULL));
	CU_ASSERT_PTR_NOT_NULL(strstr(t.warnings, "t.cfg:5: [cost] ratio=0.1 has no effect"));
	CU_ASSERT_PTR_NULL(strstr(t.warnings, "noobj"));
	net_help_close(&t);
}

static void logistic_loss_follows_its_formula(void)
{
	for (int k = 0; k < 2; k++) {
		struct net_help t;
		double loss = 0;

		CHECK_OK_FATAL(net_help_build(&t, backends[k],
					      "[net]\nbatch=2\ninputs=4\n[connected]\noutput=4\nactivation=linear\n"
					      "[logistic]\n",
					      NULL));
		CHECK_OK(net_help_ready(&t, false));
		t.truth[0] = 0;
		t.truth[1] = 1;
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		CHECK_OK(dn_net_backward(t.net, pass_of(t.net)));
		for (int i = 0; i < 8; i++) {
			double p = 1 / (1 + exp(-(double)peek_output(t.net, 0)[i]));

			CU_ASSERT(fabs(peek_output(t.net, 1)[i] - p) < 1e-6);
			loss -= t.truth[i] * log(p) + (1 - t.truth[i]) * log(1 - p);
			CU_ASSERT(fabs(*peek(t.net, (const float *)t.net->layers[0].delta + i, 1) - (t.truth[i] - p)) < 1e-6);
		}
		CU_ASSERT(fabs(net_loss(t.net) - loss) < 1e-5 * loss);
		net_help_close(&t);
	}
}

static void spatial_softmax_works_at_each_pixel(void)
{
	for (int k = 0; k < 2; k++) {
		struct net_help t;
		double loss = 0;

		CHECK_OK_FATAL(net_help_build(&t, backends[k],
					      RAMP(2, 2, 3, 4) "[conv]\nfilters=6\nactivation=linear\n[softmax]\n"
							       "spatial=1\ngroups=2\ntemperature=1.5\n",
					      NULL));
		CHECK_OK(net_help_ready(&t, false));
		for (int i = 0; i < 72; i++)
			t.truth[i] = i / 6 % 3 == i % 3;
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		for (int i = 0; i < 72; i++) {
			const float *x = peek_output(t.net, 0) + i / 36 * 36 + i % 6;
			double sum = 0, p;

			for (int c = 0; c < 3; c++)
				sum += exp(x[(i / 18 % 2 * 3 + c) * 6] / 1.5);
			p = exp(x[i / 6 % 6 * 6] / 1.5) / sum;
			CU_ASSERT(fabs(peek_output(t.net, 1)[i] - p) < 1e-6);
			loss -= t.truth[i] > 0 ? log(p) : 0;
		}
		CU_ASSERT(fabs(net_loss(t.net) - loss) < 1e-5 * loss);
		net_help_close(&t);
	}
	REFUSES("[net]\ninputs=4\n[softmax]\nspatial=1\n", -EINVAL, "needs an image");
}

/* --- trees --- */

static char tree_path[64];

static void write_tree(const char *text)
{
	FILE *f;

	snprintf(tree_path, sizeof(tree_path), "/tmp/layer_rules_%d.tree", (int)getpid());
	f = fopen(tree_path, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT(fputs(text, f) >= 0);
	CU_ASSERT_EQUAL(fclose(f), 0);
}

/* groups: animal thing | cat dog | tabby siamese | car */
static const char tree_text[] = "animal -1\nthing -1\ncat 0\ndog 0\ntabby 2\n siamese\t2\r\ncar 1\n\n";

static void tree_files_give_groups_parents_and_leaves(void)
{
	static const int32_t parent[] = { -1, -1, 0, 0, 2, 2, 1 }, group[] = { 0, 2, 4, 6, 7 };
	static const bool leaf[] = { false, false, false, true, true, true, true };
	float p[] = { .5f, .5f, .25f, .75f, .125f, .875f, 1 };
	static const float absolute[] = { .5f, .5f, .125f, .375f, .015625f, .109375f, .5f };
	static const struct {
		const char *text, *want;
	} bad[] = {
		{ "", "is empty, a tree has lines NAME PARENT" },
		{ "a -1\n\nb 2\n", ":3: b: parent 2" }, /* lines of the file, entries without the empty ones */
		{ "a -1 x\n", ":1: a line" },
		{ "a\n", ":1: a line" },
		{ "a 0\n", ":1: a: parent 0 must be -1 or the number" },
		{ "a -1\nb 2\n", ":2: b: parent 2" },
		{ "a -1\nb -2\n", ":2: b: parent -2" },
		{ "a -1\nb 0x\n", ":2: b: parent 0x" },
		{ "a -1\nb 99999999999999999999\n", ":2: b: parent 99" },
	};
	struct dn_tree *t;

	write_tree(tree_text);
	CHECK_OK_FATAL(dn_tree_read(&t, tree_path));
	CHECK_EQ(t->n, 7);
	CHECK_EQ(t->n_groups, 4);
	CHECK_BITS(t->parent, parent, sizeof(parent));
	CHECK_BITS(t->group_at, group, sizeof(group));
	CHECK_BITS(t->leaf, leaf, sizeof(leaf));
	CHECK_STR(t->names[0], "animal");
	CHECK_STR(t->names[5], "siamese");
	dn_tree_absolute(t, p);
	CHECK_BITS(p, absolute, sizeof(p));
	dn_tree_destroy(t);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_tree(bad[i].text);
		CHECK_FAILS(dn_tree_read(&t, tree_path), -EINVAL, bad[i].want);
	}
	unlink(tree_path);
	CHECK_FAILS(dn_tree_read(&t, tree_path), -ENOENT, tree_path);
}

static void tree_softmax_learns_the_path_to_the_class(void)
{
	static const int group_of[] = { 0, 0, 1, 1, 2, 2, 3 };
	/* class siamese: itself, cat and animal; car's group says nothing. Then car: itself and thing. */
	static const float targets[2][7] = { { 1, 0, 1, 0, 0, 1, -1234 }, { 0, 1, -1234, -1234, -1234, -1234, 1 } };

	write_tree(tree_text);
	for (int k = 0; k < 4; k++) {
		struct net_help t;
		struct dn_net *net;
		char text[256];
		double loss = 0;

		snprintf(text, sizeof(text),
			 "[net]\nbatch=2\ninputs=4\n[connected]\noutput=7\nactivation=linear\n[softmax]\ntree=%s\n", tree_path);
		CHECK_OK_FATAL(net_help_build(&t, backends[k % 2], text, NULL));
		CHECK_OK(net_help_ready(&t, false));
		net = t.net;
		CU_ASSERT_PTR_NOT_NULL(net->tree);
		memset(t.truth, 0, sizeof(float) * 14);
		t.truth[5] = t.truth[7 + 6] = 1;
		if (k > 1) /* a target that is complete already stays as it is */
			memcpy(t.truth, targets, sizeof(targets));
		CHECK_OK(dn_net_forward(net, pass_of(net)));
		CHECK_OK(dn_net_backward(net, pass_of(net)));
		for (int i = 0; i < 14; i++) {
			const float *x = peek_output(net, 0) + i / 7 * 7;
			float want = targets[i / 7][i % 7];
			double sum = 0, p;

			for (int j = 0; j < 7; j++)
				sum += group_of[j] == group_of[i % 7] ? exp(x[j]) : 0;
			p = exp(x[i % 7]) / sum;
			CU_ASSERT(fabs(peek_output(net, 1)[i] - p) < 1e-6);
			loss -= want > 0 ? log(p) : 0;
			CU_ASSERT(fabs(*peek(net, (const float *)net->layers[0].delta + i, 1) - (want >= 0 ? want - p : 0)) <
				  1e-6);
		}
		CU_ASSERT(fabs(net_loss(net) - loss) < 1e-5 * loss);
		net_help_close(&t);
	}
	{
		char text[256];

		snprintf(text, sizeof(text), "[net]\ninputs=6\n[softmax]\ntree=%s\n", tree_path);
		REFUSES(text, -EINVAL, "has 7 classes, but layer 0 gets 6 numbers");
		snprintf(text, sizeof(text), "[net]\ninputs=8\n[softmax]\ngroups=2\ntree=%s\n", tree_path);
		REFUSES(text, -EINVAL, "groups=2 and a tree");
	}
	unlink(tree_path);
	REFUSES("[net]\ninputs=6\n[softmax]\ntree=no-such.tree\n", -ENOENT, "no-such.tree");
}

/* --- activations that need their input --- */

static void such_activations_give_the_same_output_in_inference(void)
{
	struct dn_net_options infer = { .world = 1, .seed = 7 };
	static const char *const acts[] = { "swish", "mish", "hard_mish", "gelu" };

	for (size_t k = 0; k < 8; k++) {
		struct net_help a, b;
		char text[512];

		snprintf(
			text, sizeof(text),
			RAMP(2, 4, 4,
			     3) "[conv]\nfilters=3\nsize=3\npad=1\nactivation=%s\n[shortcut]\nfrom=-1\n"
				"activation=%s\n[local]\nfilters=2\nsize=2\nactivation=%s\n[deconv]\nfilters=2\nsize=2\nactivation=%s\n[conn]\n"
				"output=4\nactivation=%s\n[activation]\nactivation=%s\n",
			acts[k / 2], acts[k / 2], acts[k / 2], acts[k / 2], acts[k / 2], acts[k / 2]);
		CHECK_OK_FATAL(net_help_build(&a, backends[k % 2], text, NULL));
		CHECK_OK_FATAL(net_help_build(&b, backends[k % 2], text, &infer));
		dn_log_sink(NULL, NULL);
		CHECK_OK(net_help_ready(&a, false));
		CHECK_OK(net_help_ready(&b, false));
		CHECK_OK(dn_net_forward(a.net, pass_of(a.net)));
		CHECK_OK(dn_net_forward(b.net, pass_of(b.net)));
		/* the library may choose another kernel for inference: order of sums */
		CHECK_CLOSE(peek_output(b.net, 5), peek_output(a.net, 5), 8, 2e-6);
		net_help_close(&a);
		net_help_close(&b);
	}
}

/* --- shared params --- */

static void shared_params_exist_once(void)
{
	static const int between[] = { 0, 2 }, whole[] = { 0, 3 };
	struct net_help t;

	CHECK_OK_FATAL(net_help_build(&t, "ref",
				      "[net]\nbatch=2\ninputs=4\n[conn]\noutput=4\n[conn]\noutput=4\n[conn]\noutput=4\n"
				      "share_index=1\n[conn]\noutput=2\n[cost]\n",
				      NULL));
	CHECK_EQ(t.net->n_params, 6);
	CHECK_EQ(t.net->layers[2].n_params, 0);
	CHECK_EQ(t.net->layers[2].owner, 1);
	CHECK_OK(dn_net_set_blocks(t.net, 2, between, NULL));
	for (int i = 0; i < 6; i++)
		CHECK_EQ(dn_param_spans_blocks(t.net->params[i]), i == 2 || i == 3);
	CU_ASSERT(dn_net_may_start_block(t.net, 1) && !dn_net_may_start_block(t.net, 2) && dn_net_may_start_block(t.net, 3));
	CHECK_OK(dn_net_set_blocks(t.net, 2, whole, NULL));
	for (int i = 0; i < 6; i++)
		CU_ASSERT_FALSE(dn_param_spans_blocks(t.net->params[i]));
	CHECK_OK(net_help_ready(&t, false));
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	CHECK_OK(dn_net_backward(t.net, pass_of(t.net)));
	net_help_close(&t);
	REFUSES("[net]\ninputs=4\n[conn]\noutput=4\n[block]\nfrozen=1\n[conn]\noutput=4\nshare_index=0\n[block]\n[conn]\n[cost]\n",
		-EINVAL, "t.cfg:9: [conn] layer 1 is frozen, and layer 0, whose params it would share, is not");
	REFUSES("[net]\ninputs=4\n[conn]\noutput=3\n[conn]\noutput=3\nshare_index=0\n", -EINVAL,
		"t.cfg:7: [conn] layer 0 has no weights of the shape that layer 1 needs");
	REFUSES("[net]\ninputs=4\n[conn]\noutput=4\n[softmax]\nshare_index=0\n", -EINVAL,
		"t.cfg:6: [softmax] layer 0 is a [connected], which cannot share params with a [softmax]");
	REFUSES("[net]\ninputs=4\n[conn]\noutput=4\nbatch_normalize=1\n[conn]\noutput=4\nshare_index=0\n", -EINVAL,
		"layer 0 has 5 params, layer 1 needs 2");
	REFUSES("[net]\ninputs=4\n[dropout]\n[dropout]\nshare_index=0\n", -EINVAL, "layer 0 has 0 params, layer 1 needs 0");
	REFUSES("[net]\ninputs=4\n[conn]\noutput=4\nshare_index=0\n", -EINVAL, "layer 0 has no earlier layer to read");
	REFUSES("[net]\ninputs=4\n[conn]\noutput=4\nstopbackward=1\n[conn]\noutput=4\nshare_index=0\n[cost]\n", -EINVAL,
		"the params of layer 0 are frozen, so layer 1");
}

static void shared_rolling_statistics_are_the_mean_of_all_uses(void)
{
	struct net_help t;
	double mean[2] = { 0 };

	CHECK_OK_FATAL(net_help_build(&t, "ref",
				      "[net]\nbatch=2\nwidth=3\nheight=2\nchannels=2\n[batchnorm]\n[activation]\n"
				      "activation=relu\n[batchnorm]\nshare_index=0\n[cost]\n",
				      NULL));
	CHECK_OK(net_help_ready(&t, false));
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	for (int i = 0; i < 24; i++)
		mean[i / 6 % 2] += (double)(t.input[i] + peek_output(t.net, 1)[i]) / 24;
	for (int c = 0; c < 2; c++)
		CU_ASSERT(fabs(*peek(t.net, &t.net->params[1]->stat[c], 1) - mean[c]) < 1e-6);
	net_help_close(&t);
}

/* --- several input sizes --- */

#define SIZED(w, h) \
	"[net]\nbatch=2\nsubdivisions=1\nwidth=" #w "\nheight=" #h "\nchannels=3\n[conv]\nfilters=4\nsize=3\npad=1\n" \
	"batch_normalize=1\nactivation=mish\n[maxpool]\nsize=2\n[conv]\nfilters=5\nsize=1\nactivation=linear\n[avgpool]\n[softmax]\n"

static const int64_t sizes[][2] = { { 6, 8 }, { 12, 10 }, { 8, 8 } };

/* One step at a size, as loss, outputs and gradients. */
static void step_at(struct net_help *t, int64_t w, int64_t h, const float *input, float *x, double *loss, float *out, float *grad)
{
	struct dn_net *net = t->net;

	CHECK_OK(dn_net_resize(net, w, h));
	CHECK_EQ(net->w, w);
	CHECK_EQ(net->h, h);
	CHECK_EQ(net->inputs, 3 * w * h);
	memcpy(x, input, sizeof(float) * (size_t)(net->local_batch * net->inputs));
	pass_of(net)->input = x;
	poison(net, net->arena, net->activations_bytes);
	CHECK_OK(dn_net_forward(net, pass_of(net)));
	CHECK_OK(dn_net_backward(net, pass_of(net)));
	*loss = net_loss(net);
	peek_into(net, net->layers[net->output_layer].output, 10, out);
	peek_into(net, net->params[4]->grad, net->params[4]->n, grad);
}

static void resized_nets_compute_what_nets_of_that_size_do(void)
{
	static const char *const texts[] = { SIZED(8, 8), SIZED(6, 8), SIZED(12, 10) };
	float *input = dn_alloc(sizeof(float) * 2 * 3 * 120);

	CU_ASSERT_PTR_NOT_NULL_FATAL(input);
	for (int i = 0; i < 720; i++)
		input[i] = (float)dn_rng_normal(4, 4, (uint64_t)i);
	for (int k = 0; k < 2; k++) {
		struct net_help t;
		uint64_t allocs = 0;
		float *x;

		CHECK_OK_FATAL(net_help_build(&t, backends[k], texts[0], NULL));
		CHECK_OK_FATAL(dn_net_add_shapes(t.net, 3, sizes));
		dn_log_sink(NULL, NULL);
		CHECK_EQ(t.net->w, 8);
		CHECK_EQ(t.net->max_inputs, 360);
		CHECK_EQ(t.net->n_params, 7);
		CHECK_OK_FATAL(net_help_ready(&t, true));
		x = pinned(&t, 720);
		for (int round = 0; round < 9; round++) {
			static const int64_t at[][2] = { { 8, 8 }, { 6, 8 }, { 12, 10 } };
			struct net_help one;
			double loss, want_loss;
			float out[10], want[10], grad[108], want_grad[108];

			if (round == 3) /* each size has run once */
				allocs = dn_mem_n_allocs();
			step_at(&t, at[round % 3][0], at[round % 3][1], input, x, &loss, out, grad);
			if (round >= 3)
				CHECK_EQ(dn_mem_n_allocs() - allocs, 0);
			CHECK_OK_FATAL(net_help_build(&one, backends[k], texts[round % 3], NULL));
			CHECK_OK_FATAL(net_help_ready(&one, true));
			CU_ASSERT(t.net->activations_bytes >= one.net->activations_bytes);
			CU_ASSERT(t.net->workspace_bytes >= one.net->workspace_bytes);
			CHECK_EQ(t.net->flops, one.net->flops);
			memcpy(one.truth, t.truth, sizeof(float) * 10);
			step_at(&one, one.net->w, one.net->h, input, pinned(&one, 720), &want_loss, want, want_grad);
			CU_ASSERT(loss == want_loss);
			CHECK_BITS(out, want, sizeof(out));
			CHECK_BITS(grad, want_grad, sizeof(grad));
			net_help_close(&one);
			allocs = dn_mem_n_allocs();
		}
		CU_ASSERT_PTR_EQUAL(t.net->layers[0].block, &t.net->blocks[0]);
		CU_ASSERT_PTR_EQUAL(t.net->params[0]->layer, &t.net->layers[0]);
		CU_ASSERT_PTR_NULL(dn_net_nonfinite_block(t.net));
		CHECK_FAILS(dn_net_resize(t.net, 9, 9), -EINVAL, "9 x 9 was not planned");
		net_help_close(&t);
	}
	dn_free(input);
}

static void sizes_that_change_params_are_refused(void)
{
	static const int64_t size[][2] = { { 6, 6 } }, none[][2] = { { 0, 6 } };
	struct net_help t;

	CHECK_OK_FATAL(net_help_build(&t, "ref", RAMP(1, 4, 4, 3) "[conv]\n[connected]\noutput=2\n", NULL));
	CHECK_FAILS(dn_net_add_shapes(t.net, 1, size), -EINVAL,
		    "t.cfg:7: [connected] layer 1: the number of its weights depends on the "
		    "size of the input, which can therefore not change to 6 x 6");
	CHECK_EQ(t.net->w, 4);
	CHECK_EQ(t.net->layers[1].inputs, 16);
	net_help_close(&t);
	CHECK_OK_FATAL(net_help_build(&t, "ref", RAMP(1, 4, 4, 3) "[conv]\n", NULL));
	CHECK_FAILS(dn_net_add_shapes(t.net, 1, none), -EINVAL, "0 x 6");
	CHECK_FAILS(dn_net_resize(t.net, 6, 6), -EINVAL, "before dn_net_alloc()");
	CHECK_OK(net_help_ready(&t, false));
	CHECK_FAILS(dn_net_add_shapes(t.net, 1, size), -EINVAL, "before its memory is allocated");
	CHECK_FAILS(dn_net_resize(t.net, 6, 6), -EINVAL, "not planned");
	CHECK_OK(dn_net_resize(t.net, 4, 4));
	net_help_close(&t);
	CHECK_OK_FATAL(net_help_build(&t, "ref", "[net]\ninputs=4\n[conn]\n", NULL));
	CHECK_FAILS(dn_net_add_shapes(t.net, 1, size), -EINVAL, "its input is flat");
	net_help_close(&t);
}

static void failed_allocations_while_adding_sizes_leak_nothing(void)
{
	for (uint64_t n = 1; n < 2000; n++) {
		struct net_help t;
		int err;

		CHECK_OK_FATAL(net_help_build(&t, "cpu", SIZED(8, 8), NULL));
		dn_mem_fail_at(n);
		err = dn_net_add_shapes(t.net, 3, sizes);
		dn_mem_fail_at(0);
		net_help_close(&t);
		if (!err)
			return;
		CHECK_EQ(err, -ENOMEM);
	}
	CU_FAIL("never got through");
}

static void failed_allocations_in_a_build_leak_nothing(void)
{
	char text[1024];

	write_tree(tree_text);
	snprintf(
		text, sizeof(text),
		RAMP(2, 8, 8,
		     3) "[crop]\ncrop_width=6\ncrop_height=6\n[conv]\nfilters=4\nactivation=swish\nxnor=1\n"
			"[lrn]\n[l2norm]\n[reorg]\nstride=2\n[reorg3d]\n[upsample]\n[local]\nfilters=2\nsize=2\n[deconv]\nfilters=2\n"
			"batch_normalize=1\nactivation=mish\n[sam]\nfrom=-1\n[local_avg]\nsize=2\n[activation]\n[conn]\noutput=7\n"
			"[conn]\noutput=7\n[conn]\noutput=7\nshare_index=-1\n[softmax]\ntree=%s\n[cost]\ntype=masked\n",
		tree_path);
	for (uint64_t n = 1; n < 2000; n++) {
		struct net_help t;
		int err;

		dn_mem_fail_at(n);
		err = net_help_build(&t, "cpu", text, NULL);
		dn_mem_fail_at(0);
		if (!err) {
			net_help_close(&t);
			unlink(tree_path);
			return;
		}
		CHECK_EQ(err, -ENOMEM);
	}
	CU_FAIL("never got through");
}

static const struct check_case cases[] = {
	{ "reorg_keeps_the_order_that_weights_depend_on", reorg_keeps_the_order_that_weights_depend_on },
	{ "reorg3d_moves_block_pixels_to_channels_and_reverse_undoes_it",
	  reorg3d_moves_block_pixels_to_channels_and_reverse_undoes_it },
	{ "reorg_flattens_and_appends_zeros", reorg_flattens_and_appends_zeros },
	{ "upsample_repeats_and_a_negative_stride_sums", upsample_repeats_and_a_negative_stride_sums },
	{ "local_average_counts_pixels_inside_only", local_average_counts_pixels_inside_only },
	{ "scaling_needs_fitting_shapes", scaling_needs_fitting_shapes },
	{ "crop_centres_in_tests_and_adjusts", crop_centres_in_tests_and_adjusts },
	{ "crop_draws_place_and_flip_per_global_image", crop_draws_place_and_flip_per_global_image },
	{ "lrn_sums_a_centred_window", lrn_sums_a_centred_window },
	{ "l2norm_divides_by_the_length_and_keeps_zeros", l2norm_divides_by_the_length_and_keeps_zeros },
	{ "local_has_weights_of_its_own_at_every_point", local_has_weights_of_its_own_at_every_point },
	{ "deconvolution_scatters_each_input_pixel", deconvolution_scatters_each_input_pixel },
	{ "deconvolution_orders_its_params_as_files_do", deconvolution_orders_its_params_as_files_do },
	{ "files_hold_the_new_layers_in_darknets_order", files_hold_the_new_layers_in_darknets_order },
	{ "binary_convolution_uses_signs_forward_and_real_numbers_backward",
	  binary_convolution_uses_signs_forward_and_real_numbers_backward },
	{ "costs_follow_their_formulas", costs_follow_their_formulas },
	{ "keys_of_cost_without_effect_are_told", keys_of_cost_without_effect_are_told },
	{ "logistic_loss_follows_its_formula", logistic_loss_follows_its_formula },
	{ "spatial_softmax_works_at_each_pixel", spatial_softmax_works_at_each_pixel },
	{ "tree_files_give_groups_parents_and_leaves", tree_files_give_groups_parents_and_leaves },
	{ "tree_softmax_learns_the_path_to_the_class", tree_softmax_learns_the_path_to_the_class },
	{ "such_activations_give_the_same_output_in_inference", such_activations_give_the_same_output_in_inference },
	{ "shared_params_exist_once", shared_params_exist_once },
	{ "shared_rolling_statistics_are_the_mean_of_all_uses", shared_rolling_statistics_are_the_mean_of_all_uses },
	{ "resized_nets_compute_what_nets_of_that_size_do", resized_nets_compute_what_nets_of_that_size_do },
	{ "sizes_that_change_params_are_refused", sizes_that_change_params_are_refused },
	{ "failed_allocations_while_adding_sizes_leak_nothing", failed_allocations_while_adding_sizes_leak_nothing },
	{ "failed_allocations_in_a_build_leak_nothing", failed_allocations_in_a_build_leak_nothing },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("layer_rules", cases);
}
