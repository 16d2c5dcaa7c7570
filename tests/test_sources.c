/* Room graph: where layers read from. Two heads with two costs; sections behind a cost; keys of [crop] without effect. */
#include "net_help.h"

#define TRUNK \
	"[net]\nbatch=4\nwidth=6\nheight=6\nchannels=2\n" \
	"[convolutional]\nfilters=4\nsize=3\npad=1\nactivation=leaky\n"
#define HEAD(type) "[connected]\noutput=3\nactivation=linear\n[cost]\ntype=" type "\n"
#define OTHER(from, type) "[route]\nlayers=" from "\n[connected]\noutput=3\nactivation=logistic\n[cost]\ntype=" type "\n"

static void open_ready(struct net_help *t, const char *cfg)
{
	CHECK_OK_FATAL(net_help_build(t, "ref", cfg, NULL));
	CHECK_OK_FATAL(net_help_ready(t, false));
}

static struct dn_param *param(struct dn_net *net, const char *name)
{
	for (int i = 0; i < net->n_params; i++)
		if (!strcmp(net->params[i]->name, name))
			return net->params[i];
	CU_FAIL_FATAL("no such param");
	return NULL;
}

static const float *gradient(struct dn_net *net, const char *name)
{
	return peek(net, param(net, name)->grad, param(net, name)->n);
}

static void copy_values(struct dn_net *to, const char *name, struct dn_net *from, const char *other)
{
	struct dn_param *p = param(to, name), *q = param(from, other);

	CU_ASSERT_EQUAL_FATAL(p->n, q->n);
	poke(to, p->value, p->n, peek(from, q->value, q->n));
}

static void pass(struct dn_net *net)
{
	CHECK_OK_FATAL(net->store.ops->begin(net->store.self, net, 1));
	CHECK_OK_FATAL(dn_net_forward(net, pass_of(net)));
	CHECK_OK_FATAL(dn_net_backward(net, pass_of(net)));
}

/* The loss is the mean of both; a gradient is the sum, as each head learns at its own full rate. */
static void two_heads_learn_both_and_their_losses_are_averaged(void)
{
	static const char *const types[][2] = { { "sse", "L1" }, { "smooth", "sse" }, { "sse", "sse" } };

	for (size_t k = 0; k < 3; k++) {
		struct net_help both, a, b;
		char text[3][600];

		snprintf(text[0], sizeof(text[0]), TRUNK HEAD("%s") OTHER("0", "%s"), types[k][0], types[k][1]);
		snprintf(text[1], sizeof(text[1]), TRUNK HEAD("%s"), types[k][0]);
		snprintf(text[2], sizeof(text[2]), TRUNK OTHER("-1", "%s"), types[k][1]);
		open_ready(&both, text[0]);
		dn_log_sink(NULL, NULL);
		open_ready(&a, text[1]);
		dn_log_sink(NULL, NULL);
		open_ready(&b, text[2]);
		copy_values(b.net, "2.weights", both.net, "4.weights");
		pass(both.net);
		pass(a.net);
		pass(b.net);
		CU_ASSERT_DOUBLE_EQUAL(net_loss(both.net), (net_loss(a.net) + net_loss(b.net)) / 2, 1e-9);
		CU_ASSERT(net_loss(a.net) > 0 && net_loss(b.net) > 0);
		CHECK_EQ(both.net->output_layer, 4);
		for (int i = 0; i < 2; i++) { /* the trunk's */
			const char *name = i ? "0.weights" : "0.biases";
			const struct dn_param *p = param(both.net, name), *pa = param(a.net, name), *pb = param(b.net, name);

			const float *g = peek(both.net, p->grad, p->n), *ga = peek(a.net, pa->grad, p->n);
			const float *gb = peek(b.net, pb->grad, p->n);

			for (int64_t e = 0; e < p->n; e++)
				CU_ASSERT_DOUBLE_EQUAL(g[e], ga[e] + gb[e], 1e-5);
		}
		CHECK_CLOSE(gradient(both.net, "1.weights"), gradient(a.net, "1.weights"), 432, 1e-6);
		CHECK_CLOSE(gradient(both.net, "4.weights"), gradient(b.net, "2.weights"), 432, 1e-6);
		net_help_close(&both);
		net_help_close(&a);
		net_help_close(&b);
	}
}

static void refused(const char *cfg, const char *text)
{
	struct net_help t;

	CHECK_FAILS(net_help_build(&t, "ref", cfg, NULL), -EINVAL, text);
}

/* What reads a cost after all is refused, whichever key says so. */
static void a_cost_has_no_output_for_anybody(void)
{
	refused(TRUNK HEAD("sse") "[connected]\noutput=3\n[cost]\n", "t.cfg:16: [connected] layer 3 reads layer 2, a [cost]");
	refused(TRUNK HEAD("sse") "[dropout]\n[cost]\n", "layer 3 reads layer 2, a [cost]");
	refused(TRUNK HEAD("sse") "[route]\nlayers=-1\n[cost]\n", "layer 3 reads layer 2, a [cost]");
	refused(TRUNK HEAD("sse") "[route]\nlayers=0,2\n[cost]\n", "layer 3 reads layer 2, a [cost]");
	refused(TRUNK HEAD("sse") "[shortcut]\nfrom=0\n[cost]\n", "layer 3 reads layer 2, a [cost]");
	refused(TRUNK HEAD("sse") "[shortcut]\nfrom=-1\n[cost]\n", "layer 3 reads layer 2, a [cost]");
	refused(TRUNK HEAD("sse") "[scale_channels]\nfrom=0\n[cost]\n", "layer 3 reads layer 2, a [cost]");
	refused(TRUNK HEAD("sse") "[sam]\nfrom=0\n[cost]\n", "layer 3 reads layer 2, a [cost]");
}

/* As many values are not the same shape: 2 x 2 x 4 values of one image do not scale 16 channels. */
static void channels_are_scaled_by_one_value_each(void)
{
#define NET16 "[net]\nwidth=2\nheight=2\nchannels=4\n[conv]\nfilters=16\n"
	struct net_help t;

	CHECK_FAILS(net_help_build(&t, "ref", NET16 "[conv]\nfilters=4\n[scale_channels]\nfrom=-2\n[cost]\n", NULL), -EINVAL,
		    "2 x 2 x 4 cannot scale the 2 x 2 x 16 of layer 0");
	CHECK_OK_FATAL(net_help_build(&t, "ref", NET16 "[avgpool]\n[scale_channels]\nfrom=-2\n[cost]\n", NULL));
	net_help_close(&t);
}

/* Darknet draws them on a GPU alone; said once, though a net of changing size is set up many times. */
static void colours_of_a_crop_are_said_to_have_no_effect(void)
{
	static const char cfg[] = "[net]\nwidth=9\nheight=9\nchannels=3\n[crop]\ncrop_width=8\ncrop_height=8\nflip=1\nangle=7\n"
				  "saturation=1.5\nexposure=1.25\nshift=.1\n[conv]\nfilters=2\n[avgpool]\n[softmax]\n";
	static const int64_t sizes[][2] = { { 12, 12 }, { 16, 16 } };
	struct dn_net_options o = { .world = 1, .train = true, .seed = 7 };
	struct net_help t;

	CHECK_OK_FATAL(net_help_build(&t, "ref", cfg, &o));
	CHECK_OK(dn_net_add_shapes(t.net, 2, sizes));
	CHECK_STR(t.warnings, "warning: t.cfg:12: [crop] shift=0.1 has no effect\n"
			      "warning: t.cfg:9: [crop] angle=7 has no effect\n"
			      "warning: t.cfg:10: [crop] saturation=1.5 has no effect\n"
			      "warning: t.cfg:11: [crop] exposure=1.25 has no effect\n");
	net_help_close(&t);
	o.train = false; /* nothing is drawn then, on a GPU either */
	CHECK_OK_FATAL(net_help_build(&t, "ref", cfg, &o));
	CHECK_STR(t.warnings, "");
	net_help_close(&t);
	refused("[net]\nwidth=9\nheight=9\nchannels=3\n[crop]\nsaturation=x\n[softmax]\n", "saturation=x");
}

int main(void)
{
	static const struct check_case cases[] = {
		{ "two_heads_learn_both_and_their_losses_are_averaged", two_heads_learn_both_and_their_losses_are_averaged },
		{ "a_cost_has_no_output_for_anybody", a_cost_has_no_output_for_anybody },
		{ "channels_are_scaled_by_one_value_each", channels_are_scaled_by_one_value_each },
		{ "colours_of_a_crop_are_said_to_have_no_effect", colours_of_a_crop_are_said_to_have_no_effect },
		{ NULL, NULL },
	};

	return check_run("sources", cases);
}
