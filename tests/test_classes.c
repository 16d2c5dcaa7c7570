/* A pass whose target is a class an image: the losses, gradients and refusals of the numbers that it stands for. */
#include <errno.h>
#include "net_help.h"

#define CONV "[net]\nbatch=6\nsubdivisions=2\nwidth=6\nheight=6\nchannels=2\n[conv]\nfilters=4\nsize=3\npad=1\n"

/* -1 for image 1 */
static void targets(const struct dn_net *net, int32_t *class, float *truth)
{
	memset(truth, 0, sizeof(float) * (size_t)(net->local_batch * net->truths));
	for (int64_t i = 0; i < net->local_batch; i++) {
		class[i] = i == 1 ? -1 : (int32_t)(i * 5 % net->truths);
		if (class[i] >= 0)
			truth[i * net->truths + class[i]] = 1;
	}
}

static void same_of_both(const char *text)
{
	struct net_help a, b;

	CHECK_OK_FATAL(net_help_build(&a, "cpu", text, NULL));
	CHECK_OK_FATAL(net_help_build(&b, "cpu", text, NULL));
	CHECK_OK_FATAL(net_help_ready(&a, true));
	CHECK_OK_FATAL(net_help_ready(&b, true));
	{
		int32_t *class = (int32_t *)(void *)pinned(&b, a.net->local_batch);
		double loss[2] = { -1, -2 };

		targets(a.net, class, a.truth);
		pass_of(b.net)->truth = NULL;
		pass_of(b.net)->classes = class;
		CHECK_OK(dn_net_forward(a.net, pass_of(a.net)));
		CHECK_OK(dn_net_forward(b.net, pass_of(b.net)));
		loss[0] = net_loss(a.net);
		loss[1] = net_loss(b.net);
		CHECK_BITS(&loss[1], &loss[0], sizeof(loss[0]));
		CU_ASSERT(loss[0] > 0);
		CHECK_OK(dn_net_backward(a.net, pass_of(a.net)));
		CHECK_OK(dn_net_backward(b.net, pass_of(b.net)));
		for (int i = 0; i < a.net->n_params; i++)
			if (a.net->params[i]->grad)
				CHECK_BITS(peek(b.net, b.net->params[i]->grad, b.net->params[i]->n),
					   peek(a.net, a.net->params[i]->grad, a.net->params[i]->n),
					   sizeof(float) * (size_t)a.net->params[i]->n);
		pass_of(b.net)->truth = b.truth;
		CHECK_FAILS(dn_net_forward(b.net, pass_of(b.net)), -EINVAL, "both classes and numbers");
		pass_of(b.net)->truth = NULL;
		CHECK_OK(dn_net_input_wait(b.net));
		class[0] = (int32_t)a.net->truths;
		CHECK_OK(dn_net_forward(b.net, pass_of(b.net)));
		CU_ASSERT(isnan(net_loss(b.net)));
	}
	net_help_close(&a);
	net_help_close(&b);
}

static void classes_train_as_their_numbers_do(void)
{
	same_of_both(CONV "[avgpool]\n[softmax]\n");
	same_of_both(CONV "[connected]\noutput=7\nactivation=linear\n[softmax]\ntemperature=2\n[cost]\n");
	same_of_both(CONV "[connected]\noutput=5\nactivation=leaky\n[cost]\ntype=smooth\n");
	same_of_both(CONV "[connected]\noutput=5\nactivation=linear\n[logistic]\n");
	same_of_both(CONV "activation=logistic\n[cost]\n"); /* a class among all elements of an image */
}

static void other_targets_are_refused(void)
{
	static const char *const nets[] = {
		CONV "[softmax]\nspatial=1\n",
		CONV "[softmax]\ngroups=2\n",
	};

	for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++) {
		struct net_help t;
		int32_t *class;

		CHECK_OK_FATAL(net_help_build(&t, "ref", nets[i], NULL));
		CHECK_OK_FATAL(net_help_ready(&t, true));
		class = memset(pinned(&t, t.net->local_batch), 0, sizeof(*class) * (size_t)t.net->local_batch);
		pass_of(t.net)->truth = NULL;
		pass_of(t.net)->classes = class;
		CHECK_FAILS(dn_net_forward(t.net, pass_of(t.net)), -ENOTSUP, "layer 1: one class an image");
		net_help_close(&t);
	}
}

static const struct check_case cases[] = {
	{ "classes_train_as_their_numbers_do", classes_train_as_their_numbers_do },
	{ "other_targets_are_refused", other_targets_are_refused },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("classes", cases);
}
