/* An independent peer for the golden tests: drives the library of Debian's package "darknet" through its public header.
 *
 *   oracle init CFG SEED OUT.weights                       seeded random values; rolling statistics near those of one batch
 *   oracle layers CFG                                      a line a layer: index, type number, outputs of one image
 *   oracle layout CFG                                      a line a tensor of the weights file: name, elements
 *   oracle forward CFG WEIGHTS IN OUT [LAYER]              the net's output, or a layer's, for all images of IN
 *   oracle each CFG WEIGHTS IN PREFIX                      the same for every layer but [cost]: PREFIX.0, PREFIX.1, ...
 *   oracle train CFG WEIGHTS IN TRUTH STEPS OUT.weights    prints the loss of each update
 *
 * IN, TRUTH and OUT are float32 without a header. The library prints on stderr and stdout as it likes; lines of ours begin
 * with "oracle: ".
 */
#include <errno.h>
#include <math.h>
#include <stdint.h>

#include "darknet.h"

static void die(const char *what, const char *name)
{
	fprintf(stderr, "oracle: %s: %s\n", name, what);
	exit(1);
}

static void *need(void *p)
{
	if (!p)
		die("out of memory", "malloc");
	return p;
}

/* --- numbers that are the same wherever this is built --- */

static uint64_t rng_state;

static double uniform01(void)
{
	uint64_t z = (rng_state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	z ^= z >> 31;
	return (double)(z >> 11) / 9007199254740992.0;
}

static void fill_uniform(float *x, size_t n, double low, double high)
{
	for (size_t i = 0; x && i < n; i++)
		x[i] = (float)(low + (high - low) * uniform01());
}

/* --- files --- */

static float *read_floats(const char *name, size_t *n)
{
	FILE *f = fopen(name, "rb");
	long bytes;
	float *x;

	if (!f || fseek(f, 0, SEEK_END) || (bytes = ftell(f)) < 0 || fseek(f, 0, SEEK_SET))
		die(strerror(errno), name);
	*n = (size_t)bytes / sizeof(float);
	x = need(malloc(*n * sizeof(float) + 1));
	if (fread(x, sizeof(float), *n, f) != *n)
		die("short read", name);
	fclose(f);
	return x;
}

static FILE *create(const char *name)
{
	FILE *f = fopen(name, "wb");

	if (!f)
		die(strerror(errno), name);
	return f;
}

static void put(FILE *f, const char *name, const float *x, size_t n)
{
	if (fwrite(x, sizeof(float), n, f) != n)
		die("write error", name);
}

static void finish(FILE *f, const char *name)
{
	if (fclose(f))
		die(strerror(errno), name);
}

/* --- the net --- */

/* A [batchnorm] section lacks buffers there and crashes; with them it computes as it should. */
static void complete(network *net)
{
	for (int i = 0; i < net->n; i++) {
		layer *l = &net->layers[i];
		size_t all = (size_t)l->batch * l->outputs, c = l->c;

		if (l->type != BATCHNORM)
			continue;
		l->biases = l->biases ? l->biases : need(calloc(c, sizeof(float)));
		l->bias_updates = l->bias_updates ? l->bias_updates : need(calloc(c, sizeof(float)));
		l->scale_updates = l->scale_updates ? l->scale_updates : need(calloc(c, sizeof(float)));
		l->mean_delta = l->mean_delta ? l->mean_delta : need(calloc(c, sizeof(float)));
		l->variance_delta = l->variance_delta ? l->variance_delta : need(calloc(c, sizeof(float)));
		l->x = l->x ? l->x : need(calloc(all, sizeof(float)));
		l->x_norm = l->x_norm ? l->x_norm : need(calloc(all, sizeof(float)));
	}
}

static network *load(char *cfg, char *weights)
{
	network *net = parse_network_cfg(cfg);

	complete(net);
	if (weights)
		load_weights(net, weights);
	*net->seen = 0;
	return net;
}

/* outputs before a last [cost], which only copies them on its way to the loss */
static int last_layer(const network *net)
{
	int i = net->n - 1;

	while (i > 0 && net->layers[i].type == COST)
		i--;
	return i;
}

/* Channels of a layer's batch-norm; 0 without */
static int norm_channels(const layer *l)
{
	if (l->type == BATCHNORM)
		return l->c;
	if (!l->batch_normalize)
		return 0;
	if (l->type == CONVOLUTIONAL)
		return l->n;
	return l->type == CONNECTED ? l->outputs : 0;
}

static size_t local_weights(const layer *l)
{
	return (size_t)l->size * l->size * l->c * l->n * l->out_w * l->out_h;
}

static void init(char *cfg, uint64_t seed, char *out)
{
	network *net = load(cfg, NULL);
	size_t inputs = (size_t)net->inputs * net->batch;

	rng_state = seed;
	for (int i = 0; i < net->n; i++) {
		layer *l = &net->layers[i];
		int fan = l->type == CONVOLUTIONAL ? l->size * l->size * l->c / (l->groups ? l->groups : 1) : l->inputs;
		int nb = l->type == CONVOLUTIONAL ? l->n : l->outputs;
		size_t nw = (size_t)fan * nb;
		double range = sqrt(6.0 / fan); /* variance 2 / fan-in */

		if (l->type == CONVOLUTIONAL || l->type == CONNECTED) {
			fill_uniform(l->biases, nb, -.2, .2);
			fill_uniform(l->weights, nw, -range, range);
		}
		if (l->type == LOCAL) { /* its own constructor fills the first place only */
			range = sqrt(6.0 / (l->size * l->size * l->c));
			fill_uniform(l->biases, l->outputs, -.2, .2);
			fill_uniform(l->weights, local_weights(l), -range, range);
		}
		fill_uniform(l->scales, norm_channels(l), .5, 1.5);
	}
	fill_uniform(net->input, inputs, 0, 1);
	net->train = 1;
	forward_network(net);
	for (int i = 0; i < net->n; i++) {
		layer *l = &net->layers[i];

		for (int j = 0; j < norm_channels(l); j++) {
			double v = l->variance[j] + .05;

			l->rolling_mean[j] = (float)(l->mean[j] + sqrt(v) * (.6 * uniform01() - .3));
			l->rolling_variance[j] = (float)(v * (.75 + .55 * uniform01()));
		}
	}
	*net->seen = 0;
	save_weights(net, out);
}

static void layers(char *cfg)
{
	network *net = load(cfg, NULL);

	for (int i = 0; i < net->n; i++)
		printf("oracle: layer %d %d %d\n", i, net->layers[i].type, net->layers[i].outputs);
	printf("oracle: inputs %d batch %d\n", net->inputs, net->batch);
}

static void layout(char *cfg)
{
	network *net = load(cfg, NULL);

	for (int i = 0; i < net->n; i++) {
		layer *l = &net->layers[i];
		int norm = norm_channels(l);
		long weights = l->type == CONVOLUTIONAL ? (long)l->size * l->size * l->c / (l->groups ? l->groups : 1) * l->n
							: (long)l->inputs * l->outputs;

		if (l->type == LOCAL)
			printf("oracle: %d.biases %d\noracle: %d.weights %zu\n", i, l->outputs, i, local_weights(l));
		if (l->type == CONVOLUTIONAL || l->type == CONNECTED)
			printf("oracle: %d.biases %d\n", i, l->type == CONVOLUTIONAL ? l->n : l->outputs);
		if (l->type == CONNECTED)
			printf("oracle: %d.weights %ld\n", i, weights);
		if (norm)
			printf("oracle: %d.scales %d\noracle: %d.rolling_mean %d\noracle: %d.rolling_variance %d\n", i, norm, i,
			       norm, i, norm);
		if (l->type == CONVOLUTIONAL)
			printf("oracle: %d.weights %ld\n", i, weights);
	}
}

/* layer -1: the net's output; -2: every layer, out is a prefix. A [cost] computes nothing without a target. */
static void forward(char *cfg, char *weights, const char *in, const char *out, int which)
{
	network *net = load(cfg, weights);
	size_t n, per = net->inputs, batch = net->batch;
	float *x = read_floats(in, &n), *part = need(calloc(per * batch, sizeof(float)));
	int first = which == -2 ? 0 : which == -1 ? last_layer(net) : which, last = which == -2 ? net->n - 1 : first;
	FILE **f = need(calloc(net->n, sizeof(*f)));
	char name[4096];

	if (!n || n % per)
		die("is not a whole number of images", in);
	if (first < 0 || last >= net->n)
		die("has no such layer", cfg);
	for (int i = first; i <= last; i++) {
		if (net->layers[i].type == COST)
			continue;
		snprintf(name, sizeof(name), which == -2 ? "%s.%d" : "%s", out, i);
		f[i] = create(name);
	}
	for (size_t i = 0; i < n / per; i += batch) {
		size_t have = n / per - i < batch ? n / per - i : batch;

		memcpy(part, x + i * per, have * per * sizeof(float));
		network_predict(net, part);
		for (int k = first; k <= last; k++)
			if (f[k])
				put(f[k], out, net->layers[k].output, have * net->layers[k].outputs);
	}
	for (int i = first; i <= last; i++)
		if (f[i])
			finish(f[i], out);
}

static void train(char *cfg, char *weights, const char *in, const char *truth, long steps, char *out)
{
	network *net = load(cfg, weights);
	size_t n, nt, per = net->inputs, batch = net->batch, at = 0;
	float *x = read_floats(in, &n), *t = read_floats(truth, &nt);

	if (!n || n % per || nt != n / per * net->truths)
		die("images and targets do not fit the net", in);
	n /= per;
	for (long s = 0; s < steps; s++) {
		double sum = 0;

		for (int k = 0; k < net->subdivisions; k++) {
			for (size_t b = 0; b < batch; b++, at = (at + 1) % n) {
				memcpy(net->input + b * per, x + at * per, per * sizeof(float));
				memcpy(net->truth + b * net->truths, t + at * net->truths, net->truths * sizeof(float));
			}
			sum += train_network_datum(net);
		}
		printf("oracle: loss %ld %.9g\n", s + 1, sum / ((double)batch * net->subdivisions));
	}
	save_weights(net, out);
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	if (argc == 5 && !strcmp(verb, "init"))
		init(argv[2], strtoull(argv[3], NULL, 10), argv[4]);
	else if (argc == 3 && !strcmp(verb, "layers"))
		layers(argv[2]);
	else if (argc == 3 && !strcmp(verb, "layout"))
		layout(argv[2]);
	else if ((argc == 6 || argc == 7) && !strcmp(verb, "forward"))
		forward(argv[2], argv[3], argv[4], argv[5], argc == 7 ? atoi(argv[6]) : -1);
	else if (argc == 6 && !strcmp(verb, "each"))
		forward(argv[2], argv[3], argv[4], argv[5], -2);
	else if (argc == 8 && !strcmp(verb, "train"))
		train(argv[2], argv[3], argv[4], argv[5], strtol(argv[6], NULL, 10), argv[7]);
	else {
		fprintf(stderr,
			"oracle: usage: init CFG SEED OUT | layers CFG | layout CFG | forward CFG WEIGHTS IN OUT [LAYER] |\n"
			"    each CFG WEIGHTS IN PREFIX | train CFG WEIGHTS IN TRUTH STEPS OUT\n");
		return 2;
	}
	if (fflush(stdout))
		return 1;
	return 0;
}
