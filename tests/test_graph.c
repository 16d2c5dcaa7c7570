/* Graph: cfg rules, shapes and sizes of stock cfgs, blocks and hooks, policies, initial values, the memory plan. */
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "graph/graph_priv.h"
#include "net_help.h"

#define NET "[net]\nbatch=4\nwidth=8\nheight=8\nchannels=3\n"
#define CONV "[convolutional]\nfilters=4\nsize=3\npad=1\nactivation=leaky\n"

#define STOCK "/usr/share/darknet/cfg/"

static void builds(const char *text)
{
	struct net_help t;

	CHECK_OK(net_help_build(&t, "ref", text, NULL));
	net_help_close(&t);
}

#define REFUSES(text, code, message) \
	do { \
		struct net_help t_; \
		CHECK_FAILS(net_help_build(&t_, "ref", (text), NULL), (code), (message)); \
		net_help_close(&t_); \
	} while (0)

/* --- cfg --- */

static void first_section_is_net_and_stands_once(void)
{
	struct dn_cfg *c = NULL;

	CHECK_FAILS(dn_cfg_parse(&c, "[conv]\n[net]\n", 13, "a.cfg", false), -EINVAL, "a.cfg:1: [conv]");
	CHECK_FAILS(dn_cfg_parse(&c, "[net]\n[conv]\n[network]\n", 23, "a.cfg", false), -EINVAL, "a.cfg:3: [network]");
	CHECK_FAILS(dn_cfg_parse(&c, "", 0, "a.cfg", false), -EINVAL, "a.cfg");
	CU_ASSERT_PTR_NULL(c);
	builds("[network]\ninputs=3\n[conn]\n");
}

static void sections_that_are_no_layer_are_errors_with_their_line(void)
{
	REFUSES(NET CONV "[yolo]\nmask=1\n", -ENOTSUP,
		"t.cfg:11: [yolo] is not supported in this version; layers are convolutional (conv), "
		"connected (conn), maxpool (max)");
	REFUSES(NET "[yolo]\n" CONV, -ENOTSUP, "t.cfg:6: [yolo]");
	REFUSES(NET "[convolutionall]\n", -ENOTSUP, "t.cfg:6: [convolutionall]");
	REFUSES(NET, -EINVAL, "t.cfg:1: [net] no layers");
}

static int build_claimed(struct net_help *t, const char *text, const char *claim)
{
	const struct dn_net_options opt = { .world = 1 };

	memset(t, 0, sizeof(*t));
	CHECK_OK(dn_backend_find("ref")->open(DN_CPU(1), &t->dev));
	CHECK_OK(dn_cfg_parse(&t->cfg, text, strlen(text), "t.cfg", false));
	dn_log_sink(net_help_sink, t);
	if (claim)
		CHECK_OK(dn_cfg_claim(t->cfg, claim));
	return dn_net_build(&t->net, t->cfg, t->dev, &opt);
}

static void claimed_and_read_sections_are_skipped_without_warning(void)
{
	static const char text[] = NET "[fsdp]\nlimit=2\n" CONV;
	struct net_help t;
	int err;

	CHECK_OK(build_claimed(&t, text, "fsdp"));
	CHECK_EQ(t.net->n_layers, 1);
	CHECK_STR(t.warnings, "");
	net_help_close(&t);
	CHECK_FAILS(build_claimed(&t, text, "other"), -ENOTSUP, "t.cfg:6: [fsdp]");
	CHECK_FAILS(dn_cfg_claim(t.cfg, "conv"), -EEXIST, "[conv]");
	CHECK_EQ(dn_section_int(dn_cfg_section(t.cfg, "fsdp", &err), "limit", 1, 1, 9, &(int64_t){ 0 }), 0);
	CHECK_OK(dn_net_build(&t.net, t.cfg, t.dev, &(struct dn_net_options){ .world = 1 }));
	net_help_close(&t);
}

static bool is_fsdp(const char *s)
{
	return !strcmp(s, "fsdp");
}

static void plain_text_drops_markers_and_plugin_sections_only(void)
{
	static const char text[] =
		"# top\n[net]\ninputs=3\n\n[fsdp]\nlimit=2  # two\n# inside\ndepth=1\n\n# the layer\n[conn]\noutput=2\n"
		"[block]\nname=a\n[conn]\r\noutput=1\n; end";
	static const char want[] = "# top\n[net]\ninputs=3\n\n\n# the layer\n[conn]\noutput=2\n[conn]\r\noutput=1\n; end";
	struct dn_cfg *c;
	char *out;
	size_t n;

	CHECK_OK_FATAL(dn_cfg_parse(&c, text, sizeof(text) - 1, "a.cfg", false));
	CHECK_OK_FATAL(dn_cfg_plain(c, is_fsdp, &out, &n));
	CHECK_STR(out, want);
	CHECK_EQ(n, sizeof(want) - 1);
	dn_free(out);
	dn_cfg_destroy(c);
}

static void unsupported_keys_are_errors_and_harmless_ones_silent(void)
{
	struct net_help t;

	REFUSES("[net]\ninputs=3\ntime_steps=2\n[conn]\n", -ENOTSUP, "t.cfg:3: [net] time_steps=2");
	REFUSES("[net]\ninputs=3\nrandom=1\n[conn]\n", -ENOTSUP, "t.cfg:3: [net] random=1");
	REFUSES("[net]\ninputs=3\nlabel_smooth_eps=.1\n[conn]\n", -ENOTSUP, "label_smooth_eps=0.1");
	REFUSES(NET "[conv]\nantialiasing=1\n", -ENOTSUP, "antialiasing=1");
	REFUSES(NET "[conv]\nactivation=mush\n", -EINVAL,
		"t.cfg:7: [conv] activation=mush: unknown activation; known are linear");
	REFUSES(NET "[conv]\nactivation=normalize_channels\n", -ENOTSUP, "t.cfg:7: [conv] activation=normalize_channels is not");
	REFUSES(NET "[softmax]\ngroups=5\n", -EINVAL, "groups=5");
	REFUSES(NET CONV "[cost]\ntype=hinge\n", -EINVAL,
		"[cost] type=hinge: unknown cost; known are sse, masked, smooth, L1, wgan, seg");
	REFUSES("[net]\ninputs=3\noptimizer=lion\n[conn]\n", -EINVAL, "t.cfg:3: [net] optimizer=lion: unknown optimizer");
	REFUSES("[net]\ninputs=3\noptimizer=sgd\nadam=1\n[conn]\n", -EINVAL, "t.cfg:3: [net] optimizer=sgd, but adam=1");
	REFUSES("[net]\ninputs=3\nadam=1\nB1=1\n[conn]\n", -EINVAL, "t.cfg:4: [net] B1=1");
	REFUSES("[net]\ninputs=3\nadam=1\nB2=-.1\n[conn]\n", -EINVAL, "t.cfg:4: [net] B1=0.9 B2=-0.1");
	REFUSES("[net]\ninputs=3\nadam=1\neps=0\n[conn]\n", -EINVAL, "t.cfg:4: [net] eps=0: must be positive");
	REFUSES("[net]\ninputs=3\npolicy=sgdr\n[conn]\n", -EINVAL, "policy=sgdr needs sgdr_cycle or max_batches");
	REFUSES(NET "[conv]\nstride_x=2\n", -ENOTSUP, "stride_x=2");
	REFUSES(NET "[dropout]\nprobability=1\n", -EINVAL, "probability=1");
	CHECK_OK(net_help_build(&t, "ref",
				NET "adam=0\nB1=.9\neps=1\nangle=7\nhue=.1\nsaturation=.75\nexposure=.75\naspect=.75\n"
				    "min_crop=8\nmax_crop=9\ntime_steps=1\n" CONV "dontsave=0\nlearning_rate=.5\nxnor=0\n",
				NULL));
	CHECK_STR(t.warnings, "");
	CU_ASSERT(t.net->params[1]->lr_scale == .5f);
	net_help_close(&t);
	CHECK_OK(net_help_build(&t, "ref", NET "colour=1\n" CONV "bias=1\n", NULL));
	CU_ASSERT_PTR_NOT_NULL(strstr(t.warnings, "t.cfg:6: [net] colour=1: unknown key"));
	CU_ASSERT_PTR_NOT_NULL(strstr(t.warnings, "t.cfg:12: [convolutional] bias=1: unknown key"));
	net_help_close(&t);
}

/* --- shapes --- */

static void convolution_output_follows_the_formula(void)
{
	struct net_help t;
	char text[256];

	for (int w = 1; w <= 12; w++)
		for (int k = 1; k <= 4; k++)
			for (int s = 1; s <= 3; s++)
				for (int d = 1; d <= 3; d++)
					for (int pad = 0; pad <= 1; pad++) {
						const int p = pad ? d * (k / 2) : 0, room = w + 2 * p - d * (k - 1) - 1;

						snprintf(text, sizeof(text),
							 "[net]\nwidth=%d\nheight=12\nchannels=1\n[conv]\nsize=%d\n"
							 "stride=%d\ndilation=%d\npad=%d\n",
							 w, k, s, d, pad);
						if (room < 0) {
							REFUSES(text, -EINVAL, "larger than the padded input");
							continue;
						}
						CHECK_OK_FATAL(net_help_build(&t, "ref", text, NULL));
						CHECK_EQ(t.net->layers[0].out_w, room / s + 1);
						CHECK_EQ(t.net->layers[0].out_h, (12 + 2 * p - d * (k - 1) - 1) / s + 1);
						net_help_close(&t);
					}
}

static void maxpool_padding_defaults_to_size_less_one(void)
{
	struct net_help t;

	CHECK_OK_FATAL(net_help_build(&t, "ref",
				      "[net]\nwidth=13\nheight=13\nchannels=1\n[maxpool]\nsize=2\nstride=2\n[maxpool]\nsize=2\n"
				      "stride=1\n[maxpool]\nsize=3\nstride=2\npadding=0\n[max]\nstride=3\n",
				      NULL));
	CHECK_EQ(t.net->layers[0].out_w, 7);
	CHECK_EQ(t.net->layers[1].out_w, 7);
	CHECK_EQ(t.net->layers[2].out_w, 3);
	CHECK_EQ(t.net->layers[3].out_w, 1); /* (3 + 2 - 3) / 3 + 1 */
	net_help_close(&t);
}

#define HUGE_CONV "[conv]\nfilters=1048576\nsize=1\n" /* 2^61 operations */

static void impossible_shapes_are_errors_with_numbers(void)
{
	REFUSES(NET "[route]\nlayers=0\n", -EINVAL, "t.cfg:7: [route] layers: layer 0 has no earlier layer");
	REFUSES(NET CONV "[route]\nlayers=1\n", -EINVAL, "1 means layer 1, but layer 1 can read layers 0 to 0 only");
	REFUSES(NET CONV "[route]\nlayers=-2\n", -EINVAL, "layer -1");
	REFUSES(NET CONV "[route]\nlayers=0,7\n", -EINVAL, "layer 7");
	REFUSES(NET CONV "[route]\n", -EINVAL, "needs the key layers");
	REFUSES(NET CONV "[maxpool]\nsize=2\nstride=2\n[route]\nlayers=-1,-2\n", -EINVAL,
		"layer 0 is 8 x 8, but layer 1 is 4 x 4");
	REFUSES(NET CONV "[shortcut]\nfrom=1\n", -EINVAL, "from: 1 means layer 1");
	REFUSES(NET CONV "[shortcut]\nfrom=0,-1\n", -ENOTSUP, "only one");
	REFUSES(NET CONV "[shortcut]\n", -EINVAL, "needs the key from");
	REFUSES(NET CONV "[conv]\nsize=3\n[conv]\nsize=9\n", -EINVAL, "[conv] layer 2: a kernel of 9");
	REFUSES("[net]\nwidth=8\nheight=4\nchannels=1\n[conv]\nsize=1\n[conv]\nsize=3\n[shortcut]\nfrom=0\n", -EINVAL,
		"the 8 x 4 x 1 of layer 0 and the 6 x 2 x 1");
	REFUSES(NET "[conv]\nfilters=4\ngroups=2\n", -EINVAL, "groups=2 does not divide both the 3 input channels");
	REFUSES(NET "[conv]\nfilters=4\ngroups=3\n", -EINVAL, "filters=4");
	REFUSES("[net]\ninputs=9\n[conv]\n", -EINVAL, "needs an image");
	REFUSES("[net]\ninputs=9\n[maxpool]\n", -EINVAL, "needs an image");
	REFUSES("[net]\nwidth=3\n[conv]\n", -EINVAL, "all three");
	REFUSES("[net]\nbatch=1\n[conv]\n", -EINVAL, "no input size");
	REFUSES("[net]\ninputs=4\n[cost]\n", -EINVAL, "no other layers");
	REFUSES("[net]\ninputs=4\n[conn]\noutput=4\n[cost]\n[conn]\n", -EINVAL, "it has no output to read");
	REFUSES("[net]\ninputs=4000000000\n[conn]\noutput=4000000000\n", -EOVERFLOW, "2^40");
	REFUSES("[net]\nwidth=16000000\nheight=16000000\nchannels=3\n[conv]\n", -EOVERFLOW, "2^40");
	REFUSES("[net]\nwidth=30000\nheight=30000\nchannels=1\nbatch=16000000\n[conv]\n", -EOVERFLOW, "2^40");
	REFUSES("[net]\nwidth=1000\nheight=1000\nchannels=1\nbatch=1000\n[conv]\nfilters=16000000\n", -EOVERFLOW, "2^40");
	REFUSES("[net]\ninputs=1099511627776\n[conn]\noutput=4294967296\n", -EOVERFLOW, "layer 0: weights are more than 2^40");
	REFUSES("[net]\nwidth=1024\nheight=1024\nchannels=1048576\n" HUGE_CONV HUGE_CONV HUGE_CONV, -EOVERFLOW,
		"t.cfg:11: [conv] layer 2: more than 2^62 operations for one image up to here");
	REFUSES(NET "[conv]\nfilters=-1\n", -EINVAL, "t.cfg:7: [conv] filters=-1");
	REFUSES(NET "[conv]\nsize=0\n", -EINVAL, "size=0");
	REFUSES(NET "[conv]\nfilters=abc\n", -EINVAL, "t.cfg:7: [conv] filters=abc");
}

static void net_too_deep_is_refused(void)
{
	struct dn_buf b = { 0 };
	struct net_help t;

	CHECK_OK(dn_buf_printf(&b, "[net]\ninputs=1\n"));
	for (int i = 0; i < 8193; i++)
		CHECK_OK(dn_buf_printf(&b, "[dropout]\n"));
	CHECK_FAILS(net_help_build(&t, "ref", b.s, NULL), -EINVAL, "more than 8192 layers");
	dn_buf_fini(&b);
}

/* Sizes of full .weights files that other programs write: 20 bytes and every float of the listed params. */
static const struct {
	const char *cfg;
	int layers;
	int64_t bytes;
} stock[] = {
	{ "darknet19.cfg", 26, 83427124 },    { "resnet50.cfg", 69, 91303604 },	 { "extraction.cfg", 27, 93821620 },
	{ "densenet201.cfg", 305, 68825780 }, { "resnext50.cfg", 69, 89251508 }, { "tiny.cfg", 22, 4185972 },
	{ "cifar.cfg", 17, 30748220 },	      { "alexnet.cfg", 14, 249513396 },
};

static void weights_of_stock_cfgs_have_the_known_sizes(void)
{
	const struct dn_net_options opt = { .world = 1, .batch = 1, .subdivisions = 1, .train = true };

	for (size_t i = 0; i < sizeof(stock) / sizeof(stock[0]); i++) {
		char path[256], *text;
		struct net_help t;
		size_t n;

		snprintf(path, sizeof(path), STOCK "%s", stock[i].cfg);
		if (access(path, R_OK)) {
			printf("SKIP %s: not installed (Debian package darknet)\n", path);
			continue;
		}
		CHECK_OK_FATAL(dn_file_read(path, 1 << 20, &text, &n));
		CHECK_OK_FATAL(net_help_build(&t, "ref", text, &opt));
		CHECK_EQ(t.net->n_layers, stock[i].layers);
		CHECK_EQ(20 + 4 * (t.net->n_trained + t.net->n_buffers), stock[i].bytes);
		CU_ASSERT_PTR_NULL(strstr(t.warnings, "unknown key"));
		CHECK_EQ(t.net->batch, 1);
		net_help_close(&t);
		dn_free(text);
	}
}

static void vgg16_has_the_published_number_of_parameters(void)
{
	static const int widths[] = { 64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0 };
	struct dn_buf b = { 0 };
	struct net_help t;

	CHECK_OK(dn_buf_printf(&b, "[net]\nwidth=224\nheight=224\nchannels=3\n"));
	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
		CHECK_OK(widths[i] ? dn_buf_printf(&b, "[conv]\nfilters=%d\nsize=3\npad=1\nactivation=relu\n", widths[i])
				   : dn_buf_printf(&b, "[maxpool]\nsize=2\nstride=2\n"));
	CHECK_OK(dn_buf_printf(
		&b, "[conn]\noutput=4096\n[dropout]\n[conn]\noutput=4096\n[dropout]\n[conn]\noutput=1000\n[softmax]\n"));
	CHECK_OK_FATAL(net_help_build(&t, "ref", b.s, &(struct dn_net_options){ .world = 1 }));
	CHECK_EQ(t.net->n_trained, 138357544); /* Simonyan and Zisserman: 138 million */
	CHECK_EQ(t.net->n_buffers, 0);
	CHECK_EQ(t.net->flops / 2, 15470264320); /* multiply-adds: 15346630656 in convolutions, 123633664 in the rest */
	net_help_close(&t);
	dn_buf_fini(&b);
}

static void params_stand_in_file_order_with_their_marks(void)
{
	struct net_help t;
	static const char *const names[] = { "0.biases",	  "0.scales",  "0.rolling_mean", "0.rolling_variance",
					     "0.weights",	  "1.scales",  "1.rolling_mean", "1.rolling_variance",
					     "2.biases",	  "2.weights", "2.scales",	 "2.rolling_mean",
					     "2.rolling_variance" };

	CHECK_OK_FATAL(net_help_build(&t, "ref",
				      NET
				      "[conv]\nfilters=6\nsize=3\ngroups=3\nbatch_normalize=1\nflipped=1\n[batchnorm]\n[conn]\n"
				      "output=5\nbatch_normalize=1\n",
				      NULL));
	CHECK_EQ(t.net->n_params, sizeof(names) / sizeof(names[0]));
	for (int i = 0; i < t.net->n_params; i++) {
		const struct dn_param *p = t.net->params[i];
		const bool w = !strcmp(p->part, "weights");

		CHECK_STR(p->name, names[i]);
		CHECK_EQ(p->id, dn_hash(names[i], strlen(names[i])));
		CHECK_EQ(p->decay, w);
		CHECK_EQ(p->role == DN_BUFFER, !strncmp(p->part, "rolling", 7));
		CHECK_EQ(p->file_rows * p->file_cols, w ? p->n : 0);
	}
	CHECK_EQ(t.net->params[4]->shape[1], 1);
	CHECK_EQ(t.net->params[4]->file_rows, 6);
	CHECK_EQ(t.net->params[9]->file_cols, 6 * 6 * 6);
	net_help_close(&t);
}

/* --- batches --- */

static void batch_is_split_over_subdivisions_and_ranks(void)
{
	static const char text[] = "[net]\nbatch=8\nsubdivisions=3\ninputs=2\n[conn]\n";
	struct dn_net_options opt = { .world = 1, .train = true };
	struct net_help t;

	CHECK_OK_FATAL(net_help_build(&t, "ref", text, &opt));
	CHECK_EQ(t.net->microbatch, 2);
	CHECK_EQ(t.net->batch, 6);
	CHECK_EQ(t.net->local_batch, 2);
	CU_ASSERT_PTR_NOT_NULL(strstr(t.warnings, "batch=8 is no multiple of subdivisions=3"));
	net_help_close(&t);
	opt.batch = 24;
	opt.subdivisions = 2;
	opt.world = 4;
	CHECK_OK_FATAL(net_help_build(&t, "ref", text, &opt));
	CHECK_EQ(t.net->batch, 24);
	CHECK_EQ(t.net->microbatch, 12);
	CHECK_EQ(t.net->local_batch, 3);
	CHECK_EQ(t.net->layers[0].local_batch, 3);
	CHECK_STR(t.warnings, "");
	net_help_close(&t);
	opt.batch = 20;
	CHECK_FAILS(net_help_build(&t, "ref", text, &opt), -EINVAL,
		    "a microbatch of 10 images does not split over 4 ranks; nearest batch "
		    "that does: 16 or 24");
	opt.batch = 1;
	CHECK_FAILS(net_help_build(&t, "ref", text, &opt), -EINVAL, "that does: 8");
	REFUSES("[net]\nbatch=0\ninputs=2\n[conn]\n", -EINVAL, "batch=0");
	opt = (struct dn_net_options){ .world = 2, .local_batch = 5 };
	CHECK_OK_FATAL(net_help_build(&t, "ref", text, &opt));
	CHECK_EQ(t.net->local_batch, 5);
	CHECK_EQ(t.net->microbatch, 10);
	CHECK_EQ(t.net->subdivisions, 1);
	net_help_close(&t);
	opt.local_batch = -1;
	CHECK_FAILS(net_help_build(&t, "ref", text, &opt), -EINVAL, "net: batch -1 must be within 1");
}

/* --- policies --- */

static void near_(double got, double want, const char *what)
{
	if (fabs(got - want) > 1e-12 * fabs(want))
		fprintf(stderr, "%s: got %.17g, wanted %.17g\n", what, got, want);
	CU_ASSERT(fabs(got - want) <= 1e-12 * fabs(want)); /* double rounding of a few operations */
}

static struct dn_hyper hyper_of(const char *keys, struct net_help *t)
{
	char text[512];

	snprintf(text, sizeof(text), "[net]\ninputs=2\n%s[conn]\n", keys);
	CHECK_OK_FATAL(net_help_build(t, "ref", text, NULL));
	return t->net->hyper;
}

static void rates_follow_the_formulas(void)
{
	struct net_help t;
	struct dn_hyper h = hyper_of("learning_rate=.2\nburn_in=10\npower=3\n", &t);

	for (int b = 0; b < 30; b++)
		near_(dn_net_rate(&h, b, 0), b < 10 ? .2 * pow(b / 10., 3) : .2, "constant with burn-in");
	net_help_close(&t);
	h = hyper_of("learning_rate=.2\npolicy=step\nstep=7\nscale=.3\n", &t);
	for (int b = 0; b < 30; b++)
		near_(dn_net_rate(&h, b, 0), .2 * pow(.3, b / 7), "step");
	net_help_close(&t);
	h = hyper_of("learning_rate=.2\npolicy=steps\nsteps=-1,5,10\nscales=.1,10,.5\n", &t);
	for (int b = 0; b < 30; b++)
		near_(dn_net_rate(&h, b, 0), .2 * .1 * (b >= 5 ? 10 : 1) * (b >= 10 ? .5 : 1), "steps");
	net_help_close(&t);
	h = hyper_of("learning_rate=.2\npolicy=exp\ngamma=.9\n", &t);
	near_(dn_net_rate(&h, 13, 0), .2 * pow(.9, 13), "exp");
	net_help_close(&t);
	h = hyper_of("learning_rate=.2\npolicy=poly\nmax_batches=100\n", &t);
	near_(dn_net_rate(&h, 30, 0), .2 * pow(.7, 4), "poly");
	CU_ASSERT(dn_net_rate(&h, 120, 0) == 0);
	net_help_close(&t);
	h = hyper_of("learning_rate=.2\npolicy=sigmoid\ngamma=-.5\nstep=20\n", &t);
	near_(dn_net_rate(&h, 17, 0), .2 / (1 + exp(1.5)), "sigmoid");
	net_help_close(&t);
	h = hyper_of("learning_rate=.2\npolicy=sgdr\nsgdr_cycle=10\nsgdr_mult=2\nlearning_rate_min=.01\n", &t);
	/* cycles end at 10, 30, 70; a batch number on an end belongs to the cycle before */
	CU_ASSERT(fabs(dn_net_rate(&h, 5, 0) - (.01 + .5 * .19)) < 1e-15);
	CU_ASSERT(fabs(dn_net_rate(&h, 10, 0) - .01) < 1e-15);
	CU_ASSERT(fabs(dn_net_rate(&h, 15, 0) - (.01 + .095 * (1 + cos(acos(-1.) * 5 / 20)))) < 1e-15);
	CU_ASSERT(fabs(dn_net_rate(&h, 60, 0) - (.01 + .095 * (1 + cos(acos(-1.) * 30 / 40)))) < 1e-15);
	net_help_close(&t);
	h = hyper_of("learning_rate=.2\npolicy=sgdr\nsgdr_cycle=7\nsgdr_mult=1\nlearning_rate_min=0\n", &t);
	CU_ASSERT(fabs(dn_net_rate(&h, 7000000003, 0) - .1 * (1 + cos(acos(-1.) * 3 / 7))) < 1e-15);
	CU_ASSERT(fabs(dn_net_rate(&h, 14, 0)) < 1e-15);
	net_help_close(&t);
	h = hyper_of("learning_rate=.2\npolicy=random\npower=2\n", &t);
	CU_ASSERT(dn_net_rate(&h, 3, 1) >= 0 && dn_net_rate(&h, 3, 1) < .2);
	CU_ASSERT(dn_net_rate(&h, 3, 1) != dn_net_rate(&h, 4, 1) && dn_net_rate(&h, 3, 1) != dn_net_rate(&h, 3, 2));
	net_help_close(&t);
}

static void bad_policies_are_errors(void)
{
	REFUSES("[net]\ninputs=2\npolicy=sig\n[conn]\n", -EINVAL,
		"t.cfg:3: [net] policy=sig: unknown policy; known are constant, step, steps, exp, poly, sigmoid, random, sgdr");
	REFUSES("[net]\ninputs=2\npolicy=steps\n[conn]\n", -EINVAL, "needs the keys steps and scales");
	REFUSES("[net]\ninputs=2\npolicy=steps\nsteps=1,2,3\nscales=1,2\n[conn]\n", -EINVAL, "scales has 2 entries, steps has 3");
	REFUSES("[net]\ninputs=2\npolicy=steps\nsteps=1\nscales=1,2\n[conn]\n", -EINVAL, "scales has 2 entries, steps has 1");
	REFUSES("[net]\ninputs=2\npolicy=step\nstep=0\n[conn]\n", -EINVAL, "step=0");
	REFUSES("[net]\ninputs=2\npolicy=poly\n[conn]\n", -EINVAL, "max_batches");
}

/* --- blocks --- */

static void markers_make_blocks(void)
{
	struct net_help t;
	int first;

	CHECK_OK_FATAL(net_help_build(&t, "ref",
				      NET CONV "[block]\nname=mid\n" CONV
					       "[shortcut]\nfrom=0\n[block]\n[avgpool]\n[block]\nname=end\n"
					       "[conn]\n",
				      NULL));
	CHECK_EQ(t.net->n_blocks, 4);
	CHECK_EQ(t.net->n_layers, 5);
	CHECK_STR(t.net->blocks[0].name, "head");
	CHECK_STR(t.net->blocks[1].name, "mid");
	CHECK_STR(t.net->blocks[2].name, "block2");
	CHECK_STR(t.net->blocks[3].name, "end");
	CHECK_EQ(t.net->blocks[1].first, 1);
	CHECK_EQ(t.net->blocks[1].last, 2);
	CHECK_EQ(t.net->blocks[3].last, 4);
	CHECK_EQ(dn_block_params(&t.net->blocks[2], &first), 0);
	CHECK_EQ(dn_block_params(&t.net->blocks[3], &first), 2);
	CHECK_STR(t.net->params[first]->name, "4.biases");
	CU_ASSERT_PTR_EQUAL(t.net->params[first]->block, &t.net->blocks[3]);
	CU_ASSERT(dn_net_has_markers(t.net));
	net_help_close(&t);
	CHECK_OK_FATAL(net_help_build(&t, "ref", NET CONV CONV, NULL));
	CHECK_EQ(t.net->n_blocks, 1);
	CHECK_STR(t.net->blocks[0].name, "net");
	CU_ASSERT_FALSE(dn_net_has_markers(t.net));
	net_help_close(&t);
}

static void faulty_markers_are_errors_with_their_line(void)
{
	REFUSES(NET "[block]\n[block]\n" CONV, -EINVAL, "t.cfg:6: [block] no layer follows before the next [block]");
	REFUSES(NET CONV "[block]\n", -EINVAL, "t.cfg:11: [block] no layer follows before the end");
	REFUSES(NET "[block]\nname=a\n" CONV "[block]\nname=a\n" CONV, -EINVAL, "t.cfg:14: [block] name=a: another block");
	REFUSES(NET CONV "[block]\nname=head\n" CONV, -EINVAL, "name=head: another block");
	REFUSES(NET "[block]\nname=block1\n" CONV "[block]\n" CONV, -EINVAL, "name=block1: another block");
	REFUSES(NET "[block]\nname=a/b\n" CONV, -EINVAL, "must not contain");
	REFUSES(NET "[block]\nname=a.b\n" CONV, -EINVAL, "must not contain");
	REFUSES(NET "[block]\nname=a,b\n" CONV, -EINVAL, "must not contain");
	REFUSES(NET "[block]\nname=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n" CONV, -EINVAL,
		"longer than 63");
}

static void keys_of_blocks_are_warned_of_when_a_plugin_has_said_its_own(void)
{
	static const struct dn_key_rule own[] = { { .key = "wrap", .kind = DN_KEY_INT, .def = "0" }, { .key = NULL } };
	struct net_help t;
	int64_t wrap = 0;

	CHECK_OK_FATAL(net_help_build(&t, "ref", NET "[block]\nname=a\nwrap=1\nother=2\n" CONV, NULL));
	CHECK_STR(t.warnings, "");
	CHECK_OK(dn_net_check_keys(t.net));
	CHECK_STR(t.warnings, ""); /* they may be those of a plugin that does not run */
	dn_section_rules(t.net->blocks[0].section, own);
	CHECK_OK(dn_key_int(t.net->blocks[0].section, "wrap", &wrap));
	CHECK_EQ(wrap, 1);
	CHECK_OK(dn_net_check_keys(t.net));
	CHECK_STR(t.warnings, "warning: t.cfg:9: [block] other=2: unknown key, ignored\n");
	net_help_close(&t);
}

static void a_policy_replaces_the_blocks(void)
{
	struct net_help t;
	static const int first[] = { 0, 2 }, bad0[] = { 1, 2 }, bad1[] = { 0, 3 }, bad2[] = { 0, 0 };
	static const char *const names[] = { "x", "y" }, *const same[] = { "x", "x" };

	CHECK_OK_FATAL(net_help_build(&t, "ref", NET CONV CONV CONV, NULL));
	CHECK_OK(dn_net_set_blocks(t.net, 2, first, names));
	CHECK_EQ(t.net->n_blocks, 2);
	CHECK_STR(t.net->blocks[1].name, "y");
	CHECK_EQ(t.net->blocks[0].last, 1);
	CU_ASSERT_PTR_EQUAL(t.net->layers[2].block, &t.net->blocks[1]);
	CU_ASSERT_PTR_EQUAL(t.net->params[5]->block, &t.net->blocks[1]);
	CHECK_FAILS(dn_net_set_blocks(t.net, 2, first, same), -EINVAL, "another block");
	CHECK_FAILS(dn_net_set_blocks(t.net, 2, bad0, NULL), -EINVAL, "cannot start at layer 1");
	CHECK_FAILS(dn_net_set_blocks(t.net, 2, bad1, NULL), -EINVAL, "cannot start at layer 3");
	CHECK_FAILS(dn_net_set_blocks(t.net, 2, bad2, NULL), -EINVAL, "cannot start at layer 0");
	CHECK_FAILS(dn_net_set_blocks(t.net, 0, bad2, NULL), -EINVAL, "0 blocks");
	CHECK_STR(t.net->blocks[1].name, "y");
	CHECK_OK(dn_net_set_blocks(t.net, 2, first, NULL));
	CHECK_STR(t.net->blocks[1].name, "block1");
	net_help_close(&t);
}

static char calls[512];

static int note(const char *what, const struct dn_block *b)
{
	snprintf(calls + strlen(calls), sizeof(calls) - strlen(calls), "%s%s ", what, b->name);
	return 0;
}

static int note_bf(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return note("+f:", b);
}

static int note_af(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return note("-f:", b);
}

static int note_bb(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return note("+b:", b);
}

static int note_ag(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return note("g:", b);
}

static int note_ab(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return note("-b:", b);
}

static int fail_at_b(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return b->index == 1 ? dn_fail(-EIO, "hook of %s", b->name) : 0;
}

static void hooks_surround_each_block_and_stop_at_the_frozen_prefix(void)
{
	static const struct dn_hooks hooks = { note_bf, note_af, note_bb, note_ag, note_ab, NULL },
				     failing = { .before_backward = fail_at_b };
	struct net_help t;

	CHECK_OK_FATAL(net_help_build(&t, "ref",
				      NET "[block]\nname=a\n" CONV "[block]\nname=b\n" CONV "stopbackward=1\n" CONV
					  "[block]\nname=c\n[maxpool]\n[block]\nname=d\n[conn]\noutput=3\n[cost]\n",
				      NULL));
	CHECK_OK(net_help_ready(&t, false));
	CHECK_EQ(dn_net_backward_first_block(t.net), 1);
	CU_ASSERT(t.net->layers[1].frozen && !t.net->layers[2].frozen);
	CU_ASSERT(!t.net->layers[2].backward_reads_params); /* nothing before it learns: no data gradient */
	CU_ASSERT(t.net->layers[4].backward_reads_params);
	t.net->store.hooks = &hooks;
	calls[0] = '\0';
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	CHECK_STR(calls, "+f:a -f:a +f:b -f:b +f:c -f:c +f:d -f:d ");
	calls[0] = '\0';
	CHECK_OK(dn_net_backward(t.net, pass_of(t.net)));
	CHECK_STR(calls, "+b:d g:d -b:d +b:c -b:c +b:b -b:b ");
	t.net->store.hooks = &failing;
	CHECK_FAILS(dn_net_backward(t.net, pass_of(t.net)), -EIO, "hook of b");
	pass_of(t.net)->phase = DN_INFER;
	CHECK_FAILS(dn_net_backward(t.net, pass_of(t.net)), -EINVAL, "not training");
	t.net->store.hooks = NULL;
	net_help_close(&t);
	CHECK_OK_FATAL(net_help_build(&t, "ref", NET CONV "stopbackward=1\n[maxpool]\n[cost]\n", NULL));
	CHECK_EQ(dn_net_backward_first_block(t.net), 1);
	net_help_close(&t);
}

/* --- values --- */

static void initial_values_have_the_documented_distribution(void)
{
	struct net_help t;
	static const struct {
		int param;
		double bound, sigma;
	} want[] = { { 4, 0, .11785113 }, { 6, .03535534, .03535534 / 1.7320508 } }; /* sqrt(2/144); sqrt(2/1600), / sqrt(3) */

	CHECK_OK_FATAL(
		net_help_build(&t, "ref",
			       "[net]\nwidth=5\nheight=5\nchannels=16\n[conv]\nfilters=64\nsize=3\npad=1\nbatch_normalize=1\n"
			       "[conn]\noutput=50\n",
			       NULL));
	CHECK_OK(net_help_ready(&t, false));
	for (int i = 0; i < 2; i++) {
		const struct dn_param *p = t.net->params[want[i].param];
		const float *value = peek(t.net, p->value, p->n);
		double sum = 0, square = 0, most = 0;

		CHECK_STR(p->part, "weights");
		for (int64_t e = 0; e < p->n; e++) {
			sum += value[e];
			square += (double)value[e] * value[e];
			most = fmax(most, fabs(value[e]));
		}
		/* 9216 and 80000 draws: 5 standard errors of mean (sigma / sqrt n) and of sigma (below sigma / sqrt 2n) */
		CU_ASSERT(fabs(sum / (double)p->n) < 5 * want[i].sigma / sqrt((double)p->n));
		CU_ASSERT(fabs(sqrt(square / (double)p->n) - want[i].sigma) < 5 * want[i].sigma / sqrt(2. * (double)p->n));
		CU_ASSERT(!(want[i].bound > 0) || most <= want[i].bound);
	}
	for (int i = 0; i < 4; i++)
		CU_ASSERT(i == 2 || *peek(t.net, &t.net->params[i]->value[3], 1) == (i == 1));
	CU_ASSERT(t.net->values_version > 0);
	net_help_close(&t);
}

static void nonfinite_outputs_name_their_block(void)
{
	struct net_help t;

	CHECK_OK_FATAL(net_help_build(
		&t, "ref", NET "[block]\nname=a\n" CONV "[block]\nname=b\n" CONV "[block]\nname=c\n" CONV "[cost]\n", NULL));
	CHECK_OK(net_help_ready(&t, false));
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	CU_ASSERT_PTR_NULL(dn_net_nonfinite_block(t.net));
	poke_one(t.net, t.net->params[3]->value, NAN);
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	CU_ASSERT_PTR_EQUAL(dn_net_nonfinite_block(t.net), &t.net->blocks[1]);
	net_help_close(&t);
}

/* A target is due in training; outputs without it need none, whatever the losses between would want. */
static void losses_of_other_lengths_only_compute_in_inference(void)
{
	static const char text[] =
		"[net]\ninputs=4\n[conn]\noutput=4\n[softmax]\n[conn]\noutput=6\n[logistic]\n[conn]\noutput=5\n[softmax]\n";
	struct net_help t;
	double sum = 0, loss, cost;

	REFUSES(text, -EINVAL, "wants a target of 4 numbers, the last layer's has 5");
	CHECK_OK_FATAL(
		net_help_build(&t, "ref", text, &(struct dn_net_options){ .world = 1, .keep = (int[]){ 1 }, .n_keep = 1 }));
	CHECK_OK(net_help_ready(&t, true));
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	for (int i = 0; i < 4; i++)
		sum += peek_output(t.net, 1)[i];
	CU_ASSERT_DOUBLE_EQUAL(sum, 1, 1e-6); /* four floats that were divided by their sum */
	loss = net_loss(t.net);
	peek_into(t.net, (const float *)(const void *)t.net->layers[5].cost, 2, (float *)(void *)&cost);
	CU_ASSERT_DOUBLE_EQUAL(loss, cost, 0); /* of the last alone: the others have no target */
	CU_ASSERT(loss > 0);
	net_help_close(&t);
}

static void passes_before_set_up_are_refused(void)
{
	struct net_help t;

	CHECK_OK_FATAL(net_help_build(&t, "ref", NET CONV, NULL));
	CHECK_FAILS(dn_net_forward(t.net, pass_of(t.net)), -EINVAL, "before dn_net_alloc");
	CHECK_FAILS(dn_net_init_values(t.net), -EINVAL, "no store");
	CHECK_OK(dn_net_alloc(t.net));
	CHECK_FAILS(dn_net_forward(t.net, pass_of(t.net)), -EINVAL, "without a store");
	CHECK_FAILS(dn_net_alloc(t.net), -EINVAL, "twice");
	net_help_close(&t);
	CHECK_OK_FATAL(net_help_build(&t, "ref", NET CONV, &(struct dn_net_options){ .world = 1 }));
	CHECK_OK(net_help_ready(&t, false));
	pass_of(t.net)->phase = DN_TRAIN;
	CHECK_FAILS(dn_net_forward(t.net, pass_of(t.net)), -EINVAL, "built for inference");
	net_help_close(&t);
	CHECK_FAILS(
		net_help_build(&t, "ref", NET CONV, &(struct dn_net_options){ .world = 1, .keep = (int[]){ 1 }, .n_keep = 1 }),
		-EINVAL, "layers 0 to 0");
}

/* --- memory --- */

static const char residual[] = NET CONV CONV "[shortcut]\nfrom=-2\n" CONV "batch_normalize=1\n[dropout]\n[route]\nlayers=-1,0,2\n"
					     "[maxpool]\nsize=2\nstride=2\n" CONV
					     "[shortcut]\nfrom=-2\nactivation=leaky\n[avgpool]\n[conn]\noutput=5\n[softmax]\n";

static void no_two_live_buffers_overlap(void)
{
	for (int train = 0; train < 2; train++) {
		const struct dn_net_options opt = { .world = 1, .train = train, .keep = (int[]){ 3 }, .n_keep = 1 };
		const struct net_memory *m;
		const struct dn_arena_item *it;
		struct net_help t;
		struct dn_facts f;
		size_t end = 0, all = 0, tail = 5 * DN_ALIGN;
		int n;

		CHECK_OK_FATAL(net_help_build(&t, "ref", residual, &opt));
		m = &((const struct net_priv *)t.net->priv)->memory; /* steps 0..n-1: forward, n..2n-1: layers n-1..0 backward */
		it = m->items;
		n = m->n_items;
		CU_ASSERT(n >= (train ? 2 : 1) * (t.net->n_layers - 1));
		for (int i = 0; i < n; i++) {
			all += it[i].bytes;
			end = end > it[i].offset + it[i].bytes ? end : it[i].offset + it[i].bytes;
			CHECK_EQ(it[i].offset % DN_ALIGN, 0);
			CU_ASSERT(it[i].first >= 0 && it[i].first <= it[i].last && it[i].last < (1 + train) * t.net->n_layers);
			for (int k = 0; k < i; k++)
				CU_ASSERT(it[i].first > it[k].last || it[k].first > it[i].last ||
					  it[i].offset >= it[k].offset + it[k].bytes ||
					  it[k].offset >= it[i].offset + it[i].bytes);
		}
		t.dev->be->facts(t.dev, &f);
		if (!f.host_access) /* behind it input and truth as well */
			tail += sizeof(float) * (size_t)(t.net->local_batch * (t.net->inputs + t.net->truths)) + 2 * DN_ALIGN;
		CU_ASSERT(end <= t.net->activations_bytes && t.net->activations_bytes < end + tail);
		CU_ASSERT(t.net->activations_bytes < all); /* something is reused */
		net_help_close(&t);
	}
}

/* The lifetimes themselves: a net whose outputs and deltas all lie apart gives the same gradients. */
static void reuse_changes_no_bit(void)
{
	struct net_help t;
	struct dn_net *net;
	float *apart[64];
	float *first[64];
	int n = 0;

	CHECK_OK_FATAL(net_help_build(&t, "ref", residual, NULL));
	CHECK_OK(net_help_ready(&t, true));
	net = t.net;
	CHECK_OK(dn_net_forward(net, pass_of(net)));
	CHECK_OK(dn_net_backward(net, pass_of(net)));
	for (int i = 0; i < net->n_params; i++) {
		first[i] = NULL;
		if (!net->params[i]->grad)
			continue;
		first[i] = dn_alloc(sizeof(float) * (size_t)net->params[i]->n);
		CU_ASSERT_PTR_NOT_NULL_FATAL(first[i]);
		peek_into(net, net->params[i]->grad, net->params[i]->n, first[i]);
	}
	for (int i = 0; i < net->n_layers; i++) {
		struct dn_layer *l = &net->layers[i];
		const size_t bytes = sizeof(float) * (size_t)(l->local_batch * l->outputs);

		CHECK_OK_FATAL(t.dev->be->alloc(t.dev, DN_MEM_HOST, bytes, (void **)&l->output));
		apart[n++] = l->output;
		poison(net, l->output, bytes);
		if (!l->delta)
			continue;
		CHECK_OK_FATAL(t.dev->be->alloc(t.dev, DN_MEM_HOST, bytes, (void **)&l->delta));
		apart[n++] = l->delta;
		poison(net, l->delta, bytes);
	}
	CHECK_OK(dn_net_forward(net, pass_of(net)));
	CHECK_OK(dn_net_backward(net, pass_of(net)));
	for (int i = 0; i < net->n_params; i++)
		if (first[i])
			CHECK_BITS(peek(net, net->params[i]->grad, net->params[i]->n), first[i],
				   sizeof(float) * (size_t)net->params[i]->n);
	for (int i = 0; i < net->n_params; i++)
		dn_free(first[i]);
	dn_net_drain(net);
	for (int i = 0; i < n; i++)
		t.dev->be->free(t.dev, apart[i]);
	net_help_close(&t);
}

static void planned_bytes_are_what_is_allocated(void)
{
	static const char *const backends[] = { "ref", "cpu" };

	for (int k = 0; k < 4; k++) {
		const struct dn_net_options opt = { .world = 1, .train = k < 2 };
		struct dn_mem_stats a0, w0, a1, w1;
		struct net_help t;
		uint64_t n;

		CHECK_OK_FATAL(net_help_build(&t, backends[k % 2], residual, &opt));
		dn_mem_stats(DN_MEM_ACTIVATIONS, &a0);
		dn_mem_stats(DN_MEM_WORKSPACE, &w0);
		CHECK_OK(net_help_ready(&t, true));
		dn_mem_stats(DN_MEM_ACTIVATIONS, &a1);
		dn_mem_stats(DN_MEM_WORKSPACE, &w1);
		CHECK_EQ(a1.now_bytes - a0.now_bytes, t.net->activations_bytes);
		CHECK_EQ(w1.now_bytes - w0.now_bytes, t.net->workspace_bytes);
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		n = dn_mem_n_allocs();
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		if (opt.train)
			CHECK_OK(dn_net_backward(t.net, pass_of(t.net)));
		CHECK_EQ(dn_mem_n_allocs(), n); /* a pass allocates nothing */
		net_help_close(&t);
		dn_mem_stats(DN_MEM_ACTIVATIONS, &a1);
		dn_mem_stats(DN_MEM_WORKSPACE, &w1);
		CHECK_EQ(a1.now_bytes, a0.now_bytes);
		CHECK_EQ(w1.now_bytes, w0.now_bytes);
	}
}

static void inference_needs_less_and_keeps_the_layer_asked_for(void)
{
	struct net_help a, b;

	CHECK_OK_FATAL(net_help_build(&a, "ref", residual, NULL));
	CHECK_OK(net_help_ready(&a, true));
	pass_of(a.net)->phase = DN_INFER;
	CHECK_OK(dn_net_forward(a.net, pass_of(a.net)));
	for (int i = 0; i < a.net->n_layers; i++) {
		const struct dn_net_options opt = { .world = 1, .seed = 7, .keep = &i, .n_keep = 1 };

		CHECK_OK_FATAL(net_help_build(&b, "ref", residual, &opt));
		CHECK_OK(net_help_ready(&b, true));
		CU_ASSERT(b.net->activations_bytes < a.net->activations_bytes / 2);
		CHECK_OK(dn_net_forward(b.net, pass_of(b.net)));
		CHECK_BITS(peek_output(b.net, i), peek_output(a.net, i),
			   sizeof(float) * (size_t)(b.net->local_batch * b.net->layers[i].outputs));
		net_help_close(&b);
	}
	net_help_close(&a);
}

static void every_failing_allocation_is_an_error_and_leaks_nothing(void)
{
	struct dn_mem_stats before, after;
	struct net_help t;
	int failed = 0;

	dn_mem_stats(DN_MEM_HOST, &before);
	for (uint64_t n = 1;; n++) {
		int err;

		dn_mem_fail_at(n);
		err = net_help_build(&t, "ref", residual, NULL);
		if (!err)
			err = net_help_ready(&t, true);
		dn_mem_fail_at(0);
		net_help_close(&t);
		if (!err)
			break;
		failed++;
		CHECK_EQ(err, -ENOMEM);
	}
	dn_mem_stats(DN_MEM_HOST, &after);
	CU_ASSERT(failed > 50);
	CHECK_EQ(after.now_bytes, before.now_bytes);
}

static const struct check_case cases[] = {
	{ "first_section_is_net_and_stands_once", first_section_is_net_and_stands_once },
	{ "sections_that_are_no_layer_are_errors_with_their_line", sections_that_are_no_layer_are_errors_with_their_line },
	{ "claimed_and_read_sections_are_skipped_without_warning", claimed_and_read_sections_are_skipped_without_warning },
	{ "plain_text_drops_markers_and_plugin_sections_only", plain_text_drops_markers_and_plugin_sections_only },
	{ "unsupported_keys_are_errors_and_harmless_ones_silent", unsupported_keys_are_errors_and_harmless_ones_silent },
	{ "convolution_output_follows_the_formula", convolution_output_follows_the_formula },
	{ "maxpool_padding_defaults_to_size_less_one", maxpool_padding_defaults_to_size_less_one },
	{ "impossible_shapes_are_errors_with_numbers", impossible_shapes_are_errors_with_numbers },
	{ "net_too_deep_is_refused", net_too_deep_is_refused },
	{ "weights_of_stock_cfgs_have_the_known_sizes", weights_of_stock_cfgs_have_the_known_sizes },
	{ "vgg16_has_the_published_number_of_parameters", vgg16_has_the_published_number_of_parameters },
	{ "params_stand_in_file_order_with_their_marks", params_stand_in_file_order_with_their_marks },
	{ "batch_is_split_over_subdivisions_and_ranks", batch_is_split_over_subdivisions_and_ranks },
	{ "rates_follow_the_formulas", rates_follow_the_formulas },
	{ "bad_policies_are_errors", bad_policies_are_errors },
	{ "markers_make_blocks", markers_make_blocks },
	{ "faulty_markers_are_errors_with_their_line", faulty_markers_are_errors_with_their_line },
	{ "keys_of_blocks_are_warned_of_when_a_plugin_has_said_its_own",
	  keys_of_blocks_are_warned_of_when_a_plugin_has_said_its_own },
	{ "a_policy_replaces_the_blocks", a_policy_replaces_the_blocks },
	{ "hooks_surround_each_block_and_stop_at_the_frozen_prefix", hooks_surround_each_block_and_stop_at_the_frozen_prefix },
	{ "initial_values_have_the_documented_distribution", initial_values_have_the_documented_distribution },
	{ "nonfinite_outputs_name_their_block", nonfinite_outputs_name_their_block },
	{ "losses_of_other_lengths_only_compute_in_inference", losses_of_other_lengths_only_compute_in_inference },
	{ "passes_before_set_up_are_refused", passes_before_set_up_are_refused },
	{ "no_two_live_buffers_overlap", no_two_live_buffers_overlap },
	{ "reuse_changes_no_bit", reuse_changes_no_bit },
	{ "planned_bytes_are_what_is_allocated", planned_bytes_are_what_is_allocated },
	{ "inference_needs_less_and_keeps_the_layer_asked_for", inference_needs_less_and_keeps_the_layer_asked_for },
	{ "every_failing_allocation_is_an_error_and_leaks_nothing", every_failing_allocation_is_an_error_and_leaks_nothing },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("graph", cases);
}
