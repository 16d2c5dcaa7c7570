/* A cfg: parsed, built for training and for inference; nets small enough run one pass. */
#include "fuzz_net.h"

#define PASS_BYTES ((size_t)8 << 20)
#define PASS_FLOPS 2e6

static const char *const seeds[] = {
	"[net]\nbatch=4\nsubdivisions=2\nwidth=8\nheight=8\nchannels=3\nlearning_rate=.1\npolicy=steps\nsteps=1,2\nscales=.1,.1\n"
	"[convolutional]\nbatch_normalize=1\nfilters=4\nsize=3\nstride=2\npad=1\ngroups=1\nactivation=leaky\n"
	"[maxpool]\nsize=2\nstride=1\n[avgpool]\n[connected]\noutput=3\nactivation=linear\n[softmax]\ngroups=1\n[cost]\ntype=sse\n",
	"[net]\nbatch=1\nwidth=4\nheight=4\nchannels=4\nadam=1\nB1=.9\npolicy=sgdr\nsgdr_cycle=3\n[reorg]\nstride=2\n[upsample]\nstride=2\n"
	"[route]\nlayers=-1,0\ngroups=2\ngroup_id=1\n[shortcut]\nfrom=-2\nactivation=mish\n[l2norm]\n[dropout]\nprobability=.5\n"
	"[activation]\nactivation=gelu\n[normalization]\nsize=3\n[logistic]\n",
	"[network]\r\nbatch=2\r\nheight=6\r\nwidth=6\r\nchannels=2\r\nrandom=0\r\nburn_in=5\r\n[crop]\r\ncrop_height=4\r\ncrop_width=4\r\nflip=1\r\n"
	"[deconvolutional]\r\nfilters=2\r\nsize=2\r\nstride=2\r\nactivation=relu\r\n[local]\r\nfilters=2\r\nsize=3\r\nstride=1\r\npad=1\r\n"
	"activation=tanh\r\n[block]\r\nname=x\r\n[batchnorm]\r\n[scale_channels]\r\nfrom=-2\r\n[sam]\r\nfrom=-2\r\n[local_avgpool]\r\nsize=2\r\nstride=1\r\n",
	"\xef\xbb\xbf# c\n[net]\nbatch = 8 ; x\nsubdivisions=8\ninputs=10\nmax_batches=20\npolicy=poly\npower=4\n"
	"[connected]\noutput=6\nbatch_normalize=1\n[softmax]\ntemperature=2\n",
};

static void make_seeds(const char *folder)
{
	for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++)
		fuzz_seed(folder, (const char[]){ (char)('a' + i), 0 }, seeds[i], strlen(seeds[i]));
}

static void pass(struct dn_net *net)
{
	size_t n = (size_t)(net->local_batch * net->inputs), m = (size_t)(net->local_batch * net->truths);
	float *x = calloc(n ? n : 1, sizeof(*x)), *t = calloc(m ? m : 1, sizeof(*t));

	for (size_t i = 0; x && i < n; i++)
		x[i] = (float)(i % 7) - 3;
	const struct dn_pass pass = { net->opt.train ? DN_TRAIN : DN_INFER, x, t, 0, 0 };

	if (x && t && !fuzz_net_ready(net) && !dn_net_forward(net, &pass) && net->opt.train)
		(void)dn_net_backward(net, &pass);
	free(x);
	free(t);
}

/* of a pass by plain loops, which visit every output point even where strides leave most of a window out */
static double work(const struct dn_net *net)
{
	double sum = 0;

	for (int i = 0; i < net->n_layers; i++) {
		const struct dn_layer *l = &net->layers[i];
		double in = (double)l->w * (double)l->h, out = (double)l->out_w * (double)l->out_h;

		sum += (double)l->flops * (out > in ? out / in : in > out ? in / out : 1);
	}
	return sum * (double)net->local_batch;
}

static bool is_plugin(const char *section)
{
	return !strcmp(section, "fsdp");
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	for (int train = 0; train < 2; train++) {
		const struct dn_net_options opt = {
			.world = 1, .train = train, .seed = 7, .multi_scale = train, .local_batch = !train
		};
		struct dn_cfg *cfg = NULL;
		struct dn_net *net = NULL;
		char *plain;
		size_t size;

		if (dn_cfg_parse(&cfg, (const char *)p, n, "x.cfg", false))
			continue;
		if (!dn_cfg_plain(cfg, is_plugin, &plain, &size))
			dn_free(plain);
		if (!dn_cfg_claim(cfg, "fsdp") && !dn_net_build(&net, cfg, fuzz_device(), &opt)) {
			size_t bytes[DN_MEM_PLANNED] = { 0 }, all = net->workspace_bytes;

			for (int64_t b = 0; b < 40; b++)
				(void)dn_net_rate(&net->hyper, b * b * b, 7);
			(void)dn_net_check_keys(net);
			if (!dn_whole_bytes(net, bytes)) {
				for (int r = 0; r < DN_MEM_PLANNED; r++)
					all = bytes[r] > PASS_BYTES ? PASS_BYTES : all + bytes[r];
				if (all < PASS_BYTES && work(net) < PASS_FLOPS)
					pass(net);
			}
		}
		dn_net_destroy(net);
		dn_cfg_destroy(cfg);
	}
	return 0;
}
