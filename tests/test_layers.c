/* Layers: gradients against central finite differences on the ref backend, cpu against ref, and what Darknet defines. */
#include "net_help.h"

#define IMG "[net]\nbatch=2\nwidth=6\nheight=5\nchannels=4\n"
#define FLAT "[net]\nbatch=3\ninputs=7\n"
#define SSE "[cost]\ntype=sse\n"

/* --- gradients --- */

struct grad_case {
	const char *name, *text;
	double half; /* loss * half has the gradient that layers propagate: 1/2 for sse, whose delta is t - p */
};

/* Activations are smooth where possible: a kink inside the difference's step is no fault of the gradient. */
static const struct grad_case grads[] = {
	{ "connected", FLAT "[connected]\noutput=5\nactivation=tanh\n[connected]\noutput=3\nactivation=logistic\n" SSE, .5 },
	{ "connected_bn",
	  FLAT "[connected]\noutput=5\nactivation=linear\n[connected]\noutput=4\nbatch_normalize=1\n"
	       "activation=logistic\n[connected]\noutput=3\nactivation=linear\n" SSE,
	  .5 },
	{ "conv",
	  IMG "[convolutional]\nfilters=4\nsize=1\nactivation=linear\n[convolutional]\nfilters=3\nsize=3\npad=1\n"
	      "activation=tanh\n" SSE,
	  .5 },
	{ "conv_strided",
	  IMG "[convolutional]\nfilters=4\nsize=1\nactivation=linear\n[convolutional]\nfilters=3\nsize=3\npad=1\n"
	      "stride=2\nactivation=elu\n" SSE,
	  .5 },
	{ "conv_1x1_strided",
	  IMG "[convolutional]\nfilters=4\nsize=3\nactivation=linear\npad=1\n[convolutional]\nfilters=3\n"
	      "size=1\nstride=2\nactivation=loggy\n" SSE,
	  .5 },
	{ "conv_dilated",
	  IMG "[convolutional]\nfilters=4\nsize=1\nactivation=linear\n[convolutional]\nfilters=3\nsize=3\npad=1\n"
	      "dilation=2\nactivation=linear\n" SSE,
	  .5 },
	{ "conv_groups",
	  IMG "[convolutional]\nfilters=4\nsize=1\nactivation=linear\n[convolutional]\nfilters=6\nsize=2\n"
	      "groups=2\nactivation=tanh\n[convolutional]\nfilters=6\nsize=3\npadding=2\ngroups=6\nactivation=tanh\n" SSE,
	  .5 },
	{ "conv_bn",
	  IMG "[convolutional]\nfilters=4\nsize=1\nactivation=linear\n[convolutional]\nfilters=3\nsize=3\npad=1\n"
	      "batch_normalize=1\nactivation=tanh\n[convolutional]\nfilters=2\nsize=3\nactivation=linear\n" SSE,
	  .5 },
	{ "conv_bn_leaky", IMG "[convolutional]\nfilters=4\nsize=3\nbatch_normalize=1\nactivation=leaky\n[avgpool]\n[softmax]\n",
	  1 },
	{ "maxpool", IMG "[convolutional]\nfilters=3\nsize=3\npad=1\nactivation=linear\n[maxpool]\nsize=2\nstride=2\n" SSE, .5 },
	{ "maxpool_overlapping",
	  IMG "[convolutional]\nfilters=3\nsize=3\npad=1\nactivation=linear\n[maxpool]\nsize=3\nstride=1\n" SSE, .5 },
	{ "maxpool_padded",
	  IMG "[convolutional]\nfilters=3\nsize=3\npad=1\nactivation=linear\n[maxpool]\nsize=2\nstride=2\n"
	      "padding=3\n" SSE,
	  .5 },
	{ "avgpool", IMG "[convolutional]\nfilters=3\nsize=3\npad=1\nactivation=tanh\n[avgpool]\n" SSE, .5 },
	{ "batchnorm",
	  IMG "[convolutional]\nfilters=3\nsize=3\npad=1\nactivation=tanh\n[batchnorm]\n[connected]\noutput=3\n"
	      "activation=linear\n" SSE,
	  .5 },
	{ "batchnorm_first_with_biases", IMG "[batchnorm]\nbiases=1\n[convolutional]\nfilters=3\nsize=3\nactivation=tanh\n" SSE,
	  .5 },
	{ "dropout",
	  FLAT "[connected]\noutput=9\nactivation=tanh\n[dropout]\nprobability=.4\n[connected]\noutput=3\n"
	       "activation=linear\n" SSE,
	  .5 },
	{ "two_dropouts_and_a_route_before_them",
	  FLAT "[connected]\noutput=9\nactivation=tanh\n[dropout]\nprobability=.4\n"
	       "[dropout]\nprobability=.3\n[connected]\noutput=5\nactivation=tanh\n[route]\nlayers=0,-1\n[connected]\noutput=3\n"
	       "activation=linear\n" SSE,
	  .5 },
	{ "softmax", FLAT "[connected]\noutput=5\nactivation=tanh\n[connected]\noutput=6\nactivation=linear\n[softmax]\n", 1 },
	{ "softmax_noloss_mid", FLAT "[connected]\noutput=5\nactivation=tanh\n[connected]\noutput=4\nactivation=linear\n" SSE,
	  .5 },
	{ "shortcut",
	  IMG "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[convolutional]\nfilters=3\nsize=3\npad=1\n"
	      "activation=linear\n[shortcut]\nfrom=-2\nactivation=logistic\n" SSE,
	  .5 },
	{ "shortcut_alpha_beta",
	  IMG "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[convolutional]\nfilters=3\nsize=3\n"
	      "pad=1\nactivation=linear\n[shortcut]\nfrom=0\nalpha=.7\nbeta=-1.3\nactivation=linear\n" SSE,
	  .5 },
	{ "shortcut_more_channels",
	  IMG "[convolutional]\nfilters=2\nsize=1\nactivation=tanh\n[convolutional]\nfilters=5\nsize=3\n"
	      "pad=1\nactivation=linear\n[shortcut]\nfrom=0\nbeta=.5\nactivation=tanh\n" SSE,
	  .5 },
	{ "shortcut_subsampled",
	  "[net]\nbatch=2\nwidth=6\nheight=4\nchannels=2\n[convolutional]\nfilters=5\nsize=1\nactivation=tanh\n"
	  "[convolutional]\nfilters=3\nsize=2\nstride=2\nactivation=linear\n[shortcut]\nfrom=0\nactivation=tanh\n" SSE,
	  .5 },
	{ "shortcut_from_smaller",
	  "[net]\nbatch=2\nwidth=4\nheight=4\nchannels=2\n[convolutional]\nfilters=3\nsize=2\nstride=2\n"
	  "activation=tanh\n[convolutional]\nfilters=4\nsize=1\npadding=1\nactivation=tanh\n[shortcut]\nfrom=0\n"
	  "activation=linear\n" SSE,
	  .5 },
	{ "shortcut_of_itself",
	  IMG "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[shortcut]\nfrom=-1\nbeta=.5\n"
	      "activation=tanh\n" SSE,
	  .5 },
	{ "residual_two_consumers",
	  IMG
	  "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[convolutional]\nfilters=3\nsize=1\n"
	  "activation=tanh\n[shortcut]\nfrom=-2\nactivation=linear\n[convolutional]\nfilters=3\nsize=3\npad=1\nactivation=tanh\n"
	  "[shortcut]\nfrom=-2\nactivation=linear\n[shortcut]\nfrom=0\nactivation=linear\n" SSE,
	  .5 },
	{ "route",
	  IMG "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[convolutional]\nfilters=2\nsize=3\npad=1\n"
	      "activation=tanh\n[route]\nlayers=-1,0,-1\n[convolutional]\nfilters=2\nsize=1\nactivation=linear\n" SSE,
	  .5 },
	{ "route_groups",
	  IMG "[convolutional]\nfilters=4\nsize=1\nactivation=tanh\n[route]\nlayers=-1\ngroups=2\ngroup_id=1\n"
	      "[convolutional]\nfilters=4\nsize=3\npad=1\nactivation=tanh\n[route]\nlayers=-1,0\ngroups=4\ngroup_id=2\n" SSE,
	  .5 },
	{ "activation",
	  IMG "[convolutional]\nfilters=3\nsize=1\nactivation=linear\n[activation]\nactivation=tanh\n[activation]\n"
	      "activation=mish\n[route]\nlayers=-1,-2,0\n" SSE,
	  .5 },
	{ "conv_swish",
	  IMG "[convolutional]\nfilters=4\nsize=1\nactivation=gelu\n[convolutional]\nfilters=3\nsize=3\npad=1\n"
	      "activation=swish\n" SSE,
	  .5 },
	{ "conv_bn_mish",
	  IMG "[convolutional]\nfilters=4\nsize=3\nbatch_normalize=1\nactivation=mish\n[convolutional]\nfilters=3\n"
	      "size=1\nactivation=hard_mish\n" SSE,
	  .5 },
	{ "connected_gelu",
	  FLAT "[connected]\noutput=6\nbatch_normalize=1\nactivation=gelu\n[connected]\noutput=4\nactivation=mish\n" SSE, .5 },
	{ "relu6_and_revleaky", FLAT "[connected]\noutput=6\nactivation=revleaky\n[connected]\noutput=4\nactivation=relu6\n" SSE,
	  .5 },
	{ "shortcut_swish",
	  IMG "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[convolutional]\nfilters=3\nsize=3\npad=1\n"
	      "activation=linear\n[shortcut]\nfrom=-2\nactivation=swish\n" SSE,
	  .5 },
	{ "logistic", FLAT "[connected]\noutput=5\nactivation=tanh\n[connected]\noutput=6\nactivation=linear\n[logistic]\n", 1 },
	{ "cost_L1", FLAT "[connected]\noutput=5\nactivation=tanh\n[connected]\noutput=4\nactivation=linear\n[cost]\ntype=L1\n",
	  1 },
	{ "cost_smooth",
	  FLAT "[connected]\noutput=5\nactivation=tanh\n[connected]\noutput=9\nactivation=linear\n[cost]\ntype=smooth\n", .5 },
	{ "cost_masked", FLAT "[connected]\noutput=5\nactivation=tanh\n[cost]\ntype=masked\n", .5 },
	{ "cost_seg", FLAT "[connected]\noutput=5\nactivation=tanh\n[cost]\ntype=seg\n", .5 },
	{ "cost_wgan",
	  FLAT "[connected]\noutput=5\nactivation=tanh\n[connected]\noutput=4\nactivation=linear\n[cost]\ntype=wgan\n", 1 },
	{ "l2norm",
	  IMG "[convolutional]\nfilters=5\nsize=1\nactivation=linear\n[l2norm]\n[convolutional]\nfilters=3\nsize=3\n"
	      "activation=tanh\n" SSE,
	  .5 },
	{ "l2norm_flat", FLAT "[connected]\noutput=6\nactivation=linear\n[l2norm]\n[route]\nlayers=-1,0\n" SSE, .5 },
	{ "lrn",
	  IMG "[convolutional]\nfilters=7\nsize=1\nactivation=linear\n[normalization]\nsize=5\nalpha=.3\nbeta=.75\nkappa=1\n"
	      "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n" SSE,
	  .5 },
	{ "lrn_even_window",
	  IMG "[convolutional]\nfilters=5\nsize=1\nactivation=linear\n[lrn]\nsize=4\nalpha=.5\nbeta=1.5\nkappa=2\n"
	      "[route]\nlayers=-1,0\n" SSE,
	  .5 },
	{ "upsample",
	  IMG "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[upsample]\nstride=3\nscale=.7\n[convolutional]\n"
	      "filters=2\nsize=3\nactivation=linear\n" SSE,
	  .5 },
	{ "upsample_negative",
	  "[net]\nbatch=2\nwidth=6\nheight=4\nchannels=3\n[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n"
	  "[upsample]\nstride=-2\nscale=1.3\n[connected]\noutput=3\nactivation=linear\n" SSE,
	  .5 },
	{ "reorg",
	  "[net]\nbatch=2\nwidth=6\nheight=4\nchannels=3\n[convolutional]\nfilters=8\nsize=1\nactivation=tanh\n[reorg]\nstride=2\n"
	  "[convolutional]\nfilters=2\nsize=1\nactivation=linear\n" SSE,
	  .5 },
	{ "reorg_reverse",
	  "[net]\nbatch=2\nwidth=3\nheight=2\nchannels=3\n[convolutional]\nfilters=8\nsize=1\nactivation=tanh\n[reorg]\n"
	  "stride=2\nreverse=1\n[convolutional]\nfilters=2\nsize=3\nactivation=linear\n" SSE,
	  .5 },
	{ "reorg_flatten_and_extra",
	  IMG "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[reorg]\nflatten=1\n[reorg]\n"
	      "extra=4\n[connected]\noutput=3\nactivation=linear\n" SSE,
	  .5 },
	{ "reorg_flatten_reverse",
	  IMG "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[reorg]\nflatten=1\nreverse=1\n[connected]\n"
	      "output=3\nactivation=linear\n" SSE,
	  .5 },
	{ "reorg3d",
	  "[net]\nbatch=2\nwidth=6\nheight=4\nchannels=3\n[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[reorg3d]\n"
	  "stride=2\n[convolutional]\nfilters=2\nsize=1\nactivation=linear\n" SSE,
	  .5 },
	{ "crop",
	  IMG "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[crop]\ncrop_width=3\ncrop_height=4\nflip=1\n"
	      "[connected]\noutput=3\nactivation=linear\n" SSE,
	  .5 },
	{ "local", IMG "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[local]\nfilters=2\nsize=3\nactivation=tanh\n" SSE,
	  .5 },
	{ "local_padded_strided",
	  IMG "[convolutional]\nfilters=2\nsize=1\nactivation=tanh\n[local]\nfilters=2\nsize=3\nstride=2\npad=1\n"
	      "activation=swish\n[route]\nlayers=-1\n" SSE,
	  .5 },
	{ "deconv",
	  "[net]\nbatch=2\nwidth=3\nheight=2\nchannels=4\n[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[deconv]\n"
	  "filters=2\nsize=4\nstride=3\npadding=1\nactivation=tanh\n" SSE,
	  .5 },
	{ "deconv_bn",
	  "[net]\nbatch=2\nwidth=3\nheight=2\nchannels=4\n[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[deconv]\n"
	  "filters=2\nsize=3\nstride=2\npad=1\nbatch_normalize=1\nactivation=swish\n[convolutional]\nfilters=2\nsize=1\n"
	  "activation=linear\n" SSE,
	  .5 },
	{ "deconv_with_a_second_consumer",
	  "[net]\nbatch=2\nwidth=3\nheight=2\nchannels=4\n[convolutional]\nfilters=3\nsize=1\n"
	  "activation=tanh\n[deconv]\nfilters=2\nsize=3\nstride=1\npad=1\nactivation=tanh\n[route]\nlayers=-1,0\n" SSE,
	  .5 },
	{ "scale_channels",
	  IMG "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[avgpool]\n[connected]\noutput=3\n"
	      "activation=logistic\n[scale_channels]\nfrom=0\nactivation=swish\n[connected]\noutput=3\nactivation=linear\n" SSE,
	  .5 },
	{ "scale_pixels",
	  IMG "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[convolutional]\nfilters=1\nsize=3\npad=1\n"
	      "activation=logistic\n[scale_channels]\nfrom=-2\nscale_wh=1\n[connected]\noutput=3\nactivation=linear\n" SSE,
	  .5 },
	{ "sam",
	  IMG "[convolutional]\nfilters=3\nsize=1\nactivation=tanh\n[convolutional]\nfilters=3\nsize=3\npad=1\n"
	      "activation=logistic\n[sam]\nfrom=-2\nactivation=tanh\n[sam]\nfrom=-1\n" SSE,
	  .5 },
	{ "local_avgpool",
	  IMG "[convolutional]\nfilters=3\nsize=3\npad=1\nactivation=tanh\n[local_avgpool]\nsize=3\nstride=2\n"
	      "[local_avg]\nsize=2\nstride=1\n" SSE,
	  .5 },
	{ "shared_conv_bn",
	  IMG
	  "[convolutional]\nfilters=4\nsize=3\npad=1\nbatch_normalize=1\nactivation=tanh\n[convolutional]\n"
	  "filters=4\nsize=3\npad=1\nbatch_normalize=1\nactivation=tanh\nshare_index=-1\n[convolutional]\nfilters=4\nsize=3\npad=1\n"
	  "batch_normalize=1\nactivation=tanh\nshare_index=1\n[connected]\noutput=3\nactivation=linear\n" SSE,
	  .5 },
	{ "shared_connected",
	  FLAT "[connected]\noutput=7\nactivation=tanh\n[connected]\noutput=7\nactivation=tanh\nshare_index=0\n" SSE, .5 },
	{ "t20_frozen_conv_between",
	  IMG
	  "[convolutional]\nfilters=4\nsize=3\npad=1\nactivation=tanh\n[block]\nfrozen=1\n[convolutional]\nfilters=4\nsize=3\n"
	  "pad=1\nbatch_normalize=1\nactivation=swish\n[convolutional]\nfilters=4\nsize=1\nactivation=mish\n[shortcut]\nfrom=0\n"
	  "activation=swish\n[block]\n[connected]\noutput=3\nactivation=linear\n" SSE,
	  .5 },
	{ "t20_frozen_deconv_and_local_between",
	  IMG
	  "[convolutional]\nfilters=4\nsize=3\npad=1\nactivation=tanh\n[block]\nfrozen=1\n[deconv]\nfilters=3\n"
	  "size=2\nstride=1\nactivation=tanh\n[local]\nfilters=2\nsize=2\nstride=2\nactivation=elu\n[block]\n[connected]\noutput=3\nactivation=linear\n" SSE,
	  .5 },
	{ "t20_frozen_norms_between",
	  IMG
	  "[convolutional]\nfilters=4\nsize=3\npad=1\nactivation=tanh\n[block]\nfrozen=1\n[batchnorm]\n"
	  "[connected]\noutput=5\nbatch_normalize=1\nactivation=mish\n[connected]\noutput=4\nactivation=tanh\n[block]\n[connected]\noutput=3\nactivation=linear\n" SSE,
	  .5 },
	{ "t20_frozen_twice_and_first",
	  IMG
	  "[block]\nfrozen=1\n[convolutional]\nfilters=4\nsize=3\nbatch_normalize=1\nactivation=mish\n[block]\n[convolutional]\n"
	  "filters=4\nsize=1\nactivation=tanh\n[block]\nfrozen=1\n[batchnorm]\nbiases=1\n[block]\n[convolutional]\nfilters=3\n"
	  "size=3\npad=1\nbatch_normalize=1\nactivation=tanh\n[block]\nfrozen=1\n[connected]\noutput=3\nactivation=linear\n" SSE,
	  .5 },
	{ "unread_layer",
	  IMG "[convolutional]\nfilters=4\nsize=1\nactivation=tanh\n[convolutional]\nfilters=4\nsize=1\n"
	      "activation=tanh\n[route]\nlayers=0\n" SSE,
	  .5 },
};

static void spread_statistics(struct dn_net *net)
{
	for (int i = 0; i < net->n_params; i++)
		for (int64_t e = 0; e < net->params[i]->n && net->params[i]->role == DN_BUFFER; e++)
			poke_one(net, &net->params[i]->value[e],
				 (float)(.5 + dn_rng_uniform(3, net->params[i]->id, (uint64_t)e)));
	net->values_version++;
}

static double loss_of(struct dn_net *net)
{
	CHECK_OK(dn_net_forward(net, pass_of(net)));
	return net_loss(net);
}

static double slope(struct dn_net *net, float *x, float step)
{
	double up, down;
	volatile float hi, lo;
	float x0;

	peek_into(net, x, 1, &x0);
	hi = x0 + step;
	lo = x0 - step;
	poke_one(net, x, hi);
	up = loss_of(net);
	poke_one(net, x, lo);
	down = loss_of(net);
	poke_one(net, x, x0);
	return (up - down) / ((double)hi - (double)lo);
}

/*
 * float32 outputs of size 1 carry errors near 1e-7, so a step of 1/128 leaves about 1e-5 of noise in the slope and about
 * step^2 = 6e-5 of truncation; both relative to gradients of size 1. 4e-3 of the largest entry has room for both.
 * A kink (leaky, maxpool) inside the step spoils the difference, not the gradient: then a smaller step decides.
 */
static void check_gradient(const struct grad_case *g)
{
	struct net_help t;
	struct dn_net *net;

	CHECK_OK(net_help_build(&t, "ref", g->text, NULL));
	net = t.net;
	if (!net)
		return;
	CHECK_OK(net_help_ready(&t, g->half >= 1));
	if (!strncmp(g->name, "t20_", 4)) /* frozen layers normalise with them */
		spread_statistics(net);
	loss_of(net);
	CHECK_OK(dn_net_backward(net, pass_of(net)));
	for (int i = 0; i < net->n_params; i++) {
		struct dn_param *p = net->params[i];
		const float *grad;
		double most = 0;

		if (p->frozen)
			CU_ASSERT(!p->grad && !p->stat);
		if (p->role != DN_TRAINED || p->frozen)
			continue;
		grad = peek(net, p->grad, p->n);
		for (int64_t e = 0; e < p->n; e++)
			most = fmax(most, fabs(grad[e]));
		for (int64_t e = 0; e < p->n; e++) {
			const double tol = 4e-3 * fmax(most, .05);
			double want = -slope(net, &p->value[e], 1.f / 128) * g->half;

			if (fabs(want - grad[e]) > tol)
				want = -slope(net, &p->value[e], 1.f / 1024) * g->half;
			if (fabs(want - grad[e]) > tol)
				fprintf(stderr, "%s: %s[%d]: gradient %.6g, difference quotient %.6g (largest %.3g)\n", g->name,
					p->name, (int)e, grad[e], want, most);
			CU_ASSERT(fabs(want - grad[e]) <= tol);
		}
		/* all zero: only the layer that nobody reads, and biases in front of a batch-norm */
		if (!strcmp(g->name, "unread_layer") && p->layer->index == 1)
			CU_ASSERT(most == 0);
	}
	net_help_close(&t);
}

static void gradients_equal_central_differences(void)
{
	for (size_t i = 0; i < sizeof(grads) / sizeof(grads[0]); i++)
		check_gradient(&grads[i]);
}

/* --- cpu against ref --- */

static double largest(const float *x, int64_t n)
{
	double most = 0;

	for (int64_t i = 0; i < n; i++)
		most = fmax(most, fabs(x[i]));
	return most;
}

/* Sums of at most some thousand float32 products in another order: 2e-5 of the largest value, gradients through several
 * layers 2e-4. */
static void compare_backends(const char *text, bool one_hot)
{
	struct net_help a, b;

	CHECK_OK_FATAL(net_help_build(&a, "cpu", text, NULL));
	CHECK_OK_FATAL(net_help_build(&b, "ref", text, NULL));
	dn_log_sink(NULL, NULL);
	CHECK_OK(net_help_ready(&a, one_hot));
	CHECK_OK(net_help_ready(&b, one_hot));
	if (strstr(text, "frozen=1")) {
		spread_statistics(a.net);
		spread_statistics(b.net);
	}
	CHECK_OK(dn_net_forward(a.net, pass_of(a.net)));
	CHECK_OK(dn_net_forward(b.net, pass_of(b.net)));
	for (int i = 0; i < a.net->n_layers; i++) {
		struct dn_layer *l = &a.net->layers[i];

		CHECK_CLOSE(peek_output(a.net, i), peek_output(b.net, i), l->local_batch * l->outputs, 2e-5);
	}
	CU_ASSERT(fabs(net_loss(a.net) - net_loss(b.net)) <= 2e-5 * fabs(net_loss(b.net)));
	CHECK_OK(dn_net_backward(a.net, pass_of(a.net)));
	CHECK_OK(dn_net_backward(b.net, pass_of(b.net)));
	for (int i = 0; i < a.net->n_params; i++) {
		struct dn_param *p = a.net->params[i];
		struct dn_param *q = b.net->params[i];

		if (p->frozen)
			continue;
		if (p->role == DN_TRAINED && largest(peek(b.net, q->grad, p->n), p->n) < 1e-6) {
			CU_ASSERT(largest(peek(a.net, p->grad, p->n), p->n) <
				  1e-6); /* biases in front of a batch-norm: rounding only */
		} else if (p->role == DN_TRAINED) {
			CHECK_CLOSE(peek(a.net, p->grad, p->n), peek(b.net, q->grad, p->n), p->n, 2e-4);
		} else {
			CHECK_CLOSE(peek(a.net, p->stat, p->n), peek(b.net, q->stat, p->n), p->n, 2e-5);
		}
	}
	net_help_close(&a);
	net_help_close(&b);
}

static void cpu_equals_ref_on_the_gradient_nets(void)
{
	for (size_t i = 0; i < sizeof(grads) / sizeof(grads[0]); i++)
		compare_backends(grads[i].text, grads[i].half >= 1);
}

static void cpu_equals_ref_on_strided_1x1_of_1_to_17_channels(void)
{
	char text[1024];

	for (int c = 1; c <= 17; c++) {
		snprintf(text, sizeof(text),
			 "[net]\nbatch=2\nwidth=%d\nheight=%d\nchannels=3\n[conv]\nfilters=%d\nsize=3\npad=1\n"
			 "activation=tanh\n[conv]\nfilters=%d\nsize=1\nstride=2\nactivation=leaky\n[conv]\nfilters=3\nsize=1\n"
			 "stride=3\nactivation=linear\n" SSE,
			 9 - c % 3, 5 + c % 4, c, 18 - c);
		compare_backends(text, false);
	}
}

static void cpu_equals_ref_on_narrow_and_odd_images(void)
{
	static const int sizes[][2] = { { 1, 1 }, { 1, 9 },   { 9, 1 },	 { 2, 7 }, { 7, 2 },
					{ 3, 3 }, { 13, 11 }, { 33, 1 }, { 17, 5 } };
	char text[1024];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int k = 1; k <= 5; k++) {
			snprintf(
				text, sizeof(text),
				"[net]\nbatch=3\nwidth=%d\nheight=%d\nchannels=2\n[conv]\nfilters=5\nsize=%d\n"
				"pad=1\nactivation=leaky\n[maxpool]\nsize=%d\nstride=2\n[conv]\nfilters=3\nsize=3\npad=1\nstride=%d\n"
				"batch_normalize=1\nactivation=tanh\n[connected]\noutput=4\nactivation=linear\n[softmax]\n",
				sizes[i][0], sizes[i][1], k, 1 + k % 3, 1 + k % 2);
			compare_backends(text, true);
		}
}

static void cpu_equals_ref_on_depthwise_and_grouped(void)
{
	char text[1024];

	for (int g = 1; g <= 12; g += g < 4 ? 1 : g == 4 ? 2 : 6) {
		snprintf(
			text, sizeof(text),
			"[net]\nbatch=2\nwidth=7\nheight=9\nchannels=12\n[conv]\nfilters=24\nsize=3\npad=1\n"
			"groups=%d\nactivation=leaky\n[conv]\nfilters=12\nsize=3\npad=1\nstride=2\ngroups=%d\nbatch_normalize=1\n"
			"activation=leaky\n[conv]\nfilters=12\nsize=5\npad=1\ngroups=12\ndilation=2\nactivation=linear\n" SSE,
			g, g);
		compare_backends(text, false);
	}
}

/* --- inference --- */

static const char resnet[] =
	"[net]\nbatch=2\nwidth=11\nheight=8\nchannels=3\n[conv]\nfilters=16\nsize=3\npad=1\nbatch_normalize=1\n"
	"activation=leaky\n[conv]\nfilters=16\nsize=3\npad=1\nbatch_normalize=1\nactivation=linear\n[shortcut]\nfrom=-2\n"
	"activation=leaky\n[conv]\nfilters=32\nsize=3\nstride=2\npad=1\nbatch_normalize=1\nactivation=leaky\n[dropout]\n"
	"[conv]\nfilters=5\nsize=1\nactivation=linear\n[avgpool]\n[softmax]\n";

static void inference_equals_validation_inside_a_training_net(void)
{
	struct dn_net_options opt = { .world = 1, .seed = 7 };
	static const char *const backends[] = { "ref", "cpu" };

	for (int k = 0; k < 2; k++) {
		struct net_help a, b;

		CHECK_OK_FATAL(net_help_build(&a, backends[k], resnet, NULL));
		CHECK_OK_FATAL(net_help_build(&b, backends[k], resnet, &opt));
		dn_log_sink(NULL, NULL);
		CHECK_OK(net_help_ready(&a, true));
		CHECK_OK(net_help_ready(&b, true));
		spread_statistics(a.net);
		spread_statistics(b.net);
		pass_of(a.net)->phase = DN_INFER;
		CHECK_OK(dn_net_forward(a.net, pass_of(a.net)));
		CHECK_OK(dn_net_forward(b.net, pass_of(b.net)));
		/* packed weights may take another kernel: summation order only */
		CHECK_CLOSE(peek_output(b.net, b.net->output_layer), peek_output(a.net, a.net->output_layer),
			    a.net->local_batch * a.net->truths, 1e-5);
		CU_ASSERT(fabs(net_loss(a.net) - net_loss(b.net)) <= 1e-5 * net_loss(a.net));
		net_help_close(&a);
		net_help_close(&b);
	}
}

static void packed_weights_follow_the_values(void)
{
	struct dn_net_options opt = { .world = 1, .seed = 7 };
	struct net_help a, b;
	struct dn_param *p, *q;

	CHECK_OK_FATAL(net_help_build(&a, "cpu", resnet, &opt));
	CHECK_OK_FATAL(net_help_build(&b, "cpu", resnet, &opt));
	dn_log_sink(NULL, NULL);
	CHECK_OK(net_help_ready(&a, true));
	CHECK_OK(net_help_ready(&b, true));
	spread_statistics(a.net);
	spread_statistics(b.net);
	CHECK_OK(dn_net_forward(a.net, pass_of(a.net)));
	p = a.net->params[a.net->layers[1].first_param + 4];
	q = b.net->params[b.net->layers[1].first_param + 4];
	CHECK_STR(p->name, "1.weights");
	for (int64_t e = 0; e < p->n; e++) {
		poke_one(a.net, &p->value[e], .01f * (float)(e % 17 - 8));
		poke_one(b.net, &q->value[e], .01f * (float)(e % 17 - 8));
	}
	a.net->values_version++;
	CHECK_OK(dn_net_forward(a.net, pass_of(a.net)));
	CHECK_OK(dn_net_forward(b.net, pass_of(b.net)));
	CHECK_BITS(peek_output(a.net, 7), peek_output(b.net, 7), sizeof(float) * (size_t)(2 * 5));
	net_help_close(&a);
	net_help_close(&b);
}

/* --- what Darknet defines --- */

static void softmax_delta_ignores_the_temperature_and_cost_adds_to_it(void)
{
	struct net_help t;
	struct dn_net *net;
	float want[12];

	CHECK_OK_FATAL(net_help_build(&t, "ref",
				      "[net]\nbatch=2\ninputs=3\n[connected]\noutput=6\nactivation=linear\n[softmax]\n"
				      "groups=2\ntemperature=2\n[cost]\nscale=3\n",
				      NULL));
	CHECK_OK(net_help_ready(&t, true));
	net = t.net;
	CHECK_EQ(net->output_layer, 1);
	CHECK_OK(dn_net_forward(net, pass_of(net)));
	for (int i = 0; i < 12; i++) {
		const float *x = peek_output(net, 0) + i / 3 * 3;
		double sum = exp(x[0] / 2.) + exp(x[1] / 2.) + exp(x[2] / 2.);
		double p = exp(x[i % 3] / 2.) / sum;

		CU_ASSERT(fabs(peek_output(net, 1)[i] - p) < 1e-6);
		want[i] = (float)(4 * (t.truth[i] - p)); /* once from softmax, three times from cost */
	}
	CHECK_OK(dn_net_backward(net, pass_of(net)));
	CHECK_CLOSE(peek_delta(net, 0), want, 12, 1e-5); /* float32 rounding of two sums */
	net_help_close(&t);
}

static void loss_is_the_mean_over_the_layers_that_own_one(void)
{
	struct net_help t;
	struct dn_net *net;
	double ce = 0, sse = 0;

	CHECK_OK_FATAL(net_help_build(&t, "ref",
				      "[net]\nbatch=2\ninputs=3\n[connected]\noutput=4\nactivation=linear\n[softmax]\n"
				      "noloss=1\n[softmax]\n[cost]\n",
				      NULL));
	CHECK_OK(net_help_ready(&t, true));
	net = t.net;
	CHECK_OK(dn_net_forward(net, pass_of(net)));
	for (int i = 0; i < 8; i++) {
		double p = peek_output(net, 2)[i];

		ce -= t.truth[i] > 0 ? log(p) : 0;
		sse += (t.truth[i] - p) * (t.truth[i] - p);
	}
	CU_ASSERT(fabs(net_loss(net) - (0 + ce + sse) / 3) < 1e-6 * net_loss(net));
	pass_of(net)->truth = NULL;
	CHECK_OK(dn_net_forward(net, pass_of(net)));
	CU_ASSERT(net_loss(net) == 0);
	net_help_close(&t);
}

static void batch_norm_gives_the_unbiased_variance_to_the_rolling_statistics(void)
{
	struct net_help t;

	for (int legacy = 0; legacy < 2; legacy++) {
		struct dn_net_options opt = { .world = 1, .train = true, .seed = 7, .legacy_bn = legacy };
		const int64_t n = 2 * 30;

		CHECK_OK_FATAL(net_help_build(&t, "ref", IMG "[batchnorm]\n[avgpool]\n" SSE, &opt));
		CHECK_OK(net_help_ready(&t, false));
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		CHECK_STR(t.net->params[1]->name, "0.rolling_mean");
		for (int c = 0; c < 4; c++) {
			double m = 0, v = 0;

			for (int64_t i = 0; i < n; i++)
				m += t.input[(i / 30 * 4 + c) * 30 + i % 30];
			m /= (double)n;
			for (int64_t i = 0; i < n; i++)
				v += pow(t.input[(i / 30 * 4 + c) * 30 + i % 30] - m, 2);
			v /= (double)(n - 1);
			CU_ASSERT(fabs(*peek(t.net, &t.net->params[1]->stat[c], 1) - m) < 1e-6);
			CU_ASSERT(fabs(*peek(t.net, &t.net->params[2]->stat[c], 1) - v) < 1e-6);
			CU_ASSERT(*peek(t.net, &t.net->params[1]->value[c], 1) == 0); /* the store moves it, not the layer */
		}
		net_help_close(&t);
	}
}

static void frozen_batch_norm_uses_and_keeps_the_rolling_statistics(void)
{
	struct net_help t;
	struct dn_net *net;
	float first[3 * 12 * 2];

	CHECK_OK_FATAL(net_help_build(&t, "ref",
				      IMG "[conv]\nfilters=3\nsize=3\nbatch_normalize=1\nactivation=tanh\nstopbackward=1\n"
					  "[conv]\nfilters=2\nsize=1\nactivation=linear\n" SSE,
				      NULL));
	CHECK_OK(net_help_ready(&t, false));
	net = t.net;
	spread_statistics(net);
	CU_ASSERT(net->params[0]->frozen && net->params[4]->frozen && !net->params[5]->frozen);
	CU_ASSERT_PTR_NULL(net->layers[0].delta);
	pass_of(net)->phase = DN_INFER;
	CHECK_OK(dn_net_forward(net, pass_of(net)));
	memcpy(first, peek_output(net, 0), sizeof(first));
	pass_of(net)->phase = DN_TRAIN;
	CHECK_OK(dn_net_forward(net, pass_of(net)));
	CHECK_BITS(peek_output(net, 0), first, sizeof(first));
	CHECK_OK(dn_net_backward(net, pass_of(net)));
	net_help_close(&t);
}

static void dropout_follows_seed_layer_and_global_image(void)
{
	static const char text[] =
		"[net]\nbatch=4\ninputs=50\n[dropout]\nprobability=.3\n[connected]\noutput=2\nactivation=linear\n" SSE;
	struct net_help t;
	float *y = NULL;
	int zeros = 0;

	CHECK_OK_FATAL(net_help_build(&t, "cpu", text, NULL));
	CHECK_OK(net_help_ready(&t, false));
	for (int i = 0; i < 200; i++)
		t.input[i] = 1;
	pass_of(t.net)->first_image = 8;
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	y = dn_alloc(200 * sizeof(float));
	CU_ASSERT_PTR_NOT_NULL_FATAL(y);
	memcpy(y, peek_output(t.net, 0), 200 * sizeof(float));
	for (int i = 0; i < 200; i++) {
		zeros += y[i] == 0;
		CU_ASSERT(y[i] == 0 || fabs(y[i] - 1 / .7) < 1e-6);
	}
	CU_ASSERT(zeros > 30 && zeros < 90); /* 60 expected, 4.6 sigma */
	pass_of(t.net)->first_image = 10;    /* images 10 and 11 were the third and fourth before */
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	CHECK_BITS(peek_output(t.net, 0), y + 100, 100 * sizeof(float));
	pass_of(t.net)->phase = DN_INFER;
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	CHECK_BITS(peek_output(t.net, 0), t.input, 200 * sizeof(float));
	dn_free(y);
	net_help_close(&t);
}

static void route_to_a_layer_before_a_dropout_reads_the_dropout(void)
{
	struct net_help t;
	struct dn_net *net;

	CHECK_OK_FATAL(net_help_build(&t, "ref",
				      "[net]\nbatch=1\ninputs=8\n[connected]\noutput=8\nactivation=linear\n[dropout]\n"
				      "[connected]\noutput=4\nactivation=linear\n[route]\nlayers=0\n" SSE,
				      NULL));
	CHECK_OK(net_help_ready(&t, false));
	net = t.net;
	CHECK_EQ(net->layers[3].inputs_of[0].layer, 1);
	CHECK_OK(dn_net_forward(net, pass_of(net)));
	CHECK_BITS(peek_output(net, 3), peek_output(net, 1), 8 * sizeof(float));
	net_help_close(&t);
}

static void ones(struct dn_net *net)
{
	for (int i = 0; i < net->n_params; i++)
		for (int64_t e = 0; e < net->params[i]->n; e++)
			poke_one(net, &net->params[i]->value[e], strcmp(net->params[i]->part, "biases") ? 1 : 0);
	net->values_version++;
}

static void strided_1x1_reads_every_second_pixel(void)
{
	static const char *const backends[] = { "ref", "cpu" };
	static const float want[] = { 0, 2, 8, 10 };

	for (int k = 0; k < 2; k++) {
		struct net_help t;

		CHECK_OK_FATAL(net_help_build(&t, backends[k],
					      "[net]\nwidth=4\nheight=4\nchannels=1\n[conv]\nsize=1\nstride=2\n"
					      "activation=linear\n",
					      NULL));
		CHECK_OK(net_help_ready(&t, false));
		ones(t.net);
		for (int i = 0; i < 16; i++)
			t.input[i] = (float)i;
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		CHECK_BITS(peek_output(t.net, 0), want, sizeof(want));
		net_help_close(&t);
	}
}

static void maxpool_pads_right_and_bottom_at_stride_1(void)
{
	struct net_help t;
	static const float want[] = { 4, 5, 5, 7, 8, 8, 7, 8, 8 };

	CHECK_OK_FATAL(net_help_build(&t, "ref", "[net]\nwidth=3\nheight=3\nchannels=1\n[maxpool]\nsize=2\nstride=1\n", NULL));
	CHECK_OK(net_help_ready(&t, false));
	for (int i = 0; i < 9; i++)
		t.input[i] = (float)i;
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	CHECK_BITS(peek_output(t.net, 0), want, sizeof(want));
	net_help_close(&t);
}

static const struct check_case cases[] = {
	{ "gradients_equal_central_differences", gradients_equal_central_differences },
	{ "cpu_equals_ref_on_the_gradient_nets", cpu_equals_ref_on_the_gradient_nets },
	{ "cpu_equals_ref_on_strided_1x1_of_1_to_17_channels", cpu_equals_ref_on_strided_1x1_of_1_to_17_channels },
	{ "cpu_equals_ref_on_narrow_and_odd_images", cpu_equals_ref_on_narrow_and_odd_images },
	{ "cpu_equals_ref_on_depthwise_and_grouped", cpu_equals_ref_on_depthwise_and_grouped },
	{ "inference_equals_validation_inside_a_training_net", inference_equals_validation_inside_a_training_net },
	{ "packed_weights_follow_the_values", packed_weights_follow_the_values },
	{ "softmax_delta_ignores_the_temperature_and_cost_adds_to_it",
	  softmax_delta_ignores_the_temperature_and_cost_adds_to_it },
	{ "loss_is_the_mean_over_the_layers_that_own_one", loss_is_the_mean_over_the_layers_that_own_one },
	{ "batch_norm_gives_the_unbiased_variance_to_the_rolling_statistics",
	  batch_norm_gives_the_unbiased_variance_to_the_rolling_statistics },
	{ "frozen_batch_norm_uses_and_keeps_the_rolling_statistics", frozen_batch_norm_uses_and_keeps_the_rolling_statistics },
	{ "dropout_follows_seed_layer_and_global_image", dropout_follows_seed_layer_and_global_image },
	{ "route_to_a_layer_before_a_dropout_reads_the_dropout", route_to_a_layer_before_a_dropout_reads_the_dropout },
	{ "strided_1x1_reads_every_second_pixel", strided_1x1_reads_every_second_pixel },
	{ "maxpool_pads_right_and_bottom_at_stride_1", maxpool_pads_right_and_bottom_at_stride_1 },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("layers", cases);
}
