/* An independent double-precision model of training, in naive loops: it shares no code with the program.
 *
 *   ref64 init CFG WEIGHTS SEED                         random weights of its own, header 0 2 0
 *   ref64 train CFG WEIGHTS IMAGES LABELS STEPS [OUT]   losses of STEPS updates, one a line, %.12g
 *
 * Data: 8-bit IDX, in file order, wrapping around; image p of update u is (u - 1) * batch + p. Layers:
 * convolutional, connected, maxpool, avgpool, shortcut, route, softmax, cost, batch-norm by the rule of the README
 * (subdivisions=1 only: statistics are those of the whole batch). OUT: the final weights.
 */
#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LAYERS 64

struct tensor {
	long n;
	double *w, *g, *v;
	int decay;
};

struct layer {
	char type[32], act[16];
	int n, size, stride, pad, groups, dilation, bn, from[16], n_from, flat;
	double alpha, beta, lr;
	int w, h, c, ow, oh, oc;
	long in, out;
	double *x, *y, *raw, *d, *mean, *var;
	long *idx;
	struct tensor bias, scale, rmean, rvar, weight;
};

static struct layer L[MAX_LAYERS];
static int n_layers, net_w, net_h, net_c, batch = 1, subdiv = 1;
static long net_in;
static double rate0 = .001, momentum = .9, decay = .0001;

static void die(const char *s)
{
	fprintf(stderr, "ref64: %s\n", s);
	exit(1);
}

static void *zalloc(size_t n)
{
	void *p = calloc(1, n ? n : 1);

	if (!p)
		die("out of memory");
	return p;
}

static void tensor_make(struct tensor *t, long n, int dec)
{
	t->n = n;
	t->w = zalloc(n * sizeof(double));
	t->g = zalloc(n * sizeof(double));
	t->v = zalloc(n * sizeof(double));
	t->decay = dec;
}

static void set_key(struct layer *l, const char *k, const char *v)
{
	if (!l) {
		if (!strcmp(k, "width"))
			net_w = atoi(v);
		else if (!strcmp(k, "height"))
			net_h = atoi(v);
		else if (!strcmp(k, "channels"))
			net_c = atoi(v);
		else if (!strcmp(k, "inputs"))
			net_in = atol(v);
		else if (!strcmp(k, "batch"))
			batch = atoi(v);
		else if (!strcmp(k, "subdivisions"))
			subdiv = atoi(v);
		else if (!strcmp(k, "learning_rate"))
			rate0 = atof(v);
		else if (!strcmp(k, "momentum"))
			momentum = atof(v);
		else if (!strcmp(k, "decay"))
			decay = atof(v);
		else if (!strcmp(k, "policy") && strcmp(v, "constant"))
			die("policy: constant only");
		return;
	}
	if (!strcmp(k, "filters") || !strcmp(k, "output"))
		l->n = atoi(v);
	else if (!strcmp(k, "size"))
		l->size = atoi(v);
	else if (!strcmp(k, "stride"))
		l->stride = atoi(v);
	else if (!strcmp(k, "pad"))
		l->pad = atoi(v) ? -1 : l->pad;
	else if (!strcmp(k, "padding"))
		l->pad = l->pad == -1 ? -1 : atoi(v);
	else if (!strcmp(k, "groups"))
		l->groups = atoi(v);
	else if (!strcmp(k, "dilation"))
		l->dilation = atoi(v);
	else if (!strcmp(k, "batch_normalize"))
		l->bn = atoi(v);
	else if (!strcmp(k, "activation"))
		snprintf(l->act, sizeof l->act, "%.15s", v);
	else if (!strcmp(k, "alpha"))
		l->alpha = atof(v);
	else if (!strcmp(k, "beta"))
		l->beta = atof(v);
	else if (!strcmp(k, "learning_rate"))
		l->lr = atof(v);
	else if (!strcmp(k, "from") || !strcmp(k, "layers")) {
		char *e;
		for (const char *p = v; *p; p = *e ? e + 1 : e) {
			int f = (int)strtol(p, &e, 10);
			l->from[l->n_from++] = f < 0 ? (int)(l - L) + f : f;
		}
	}
}

static void read_cfg(const char *path)
{
	char line[4096];
	FILE *f = fopen(path, "r");
	struct layer *l = NULL;
	int skip = 0;

	if (!f)
		die("cannot open the cfg");
	while (fgets(line, sizeof line, f)) {
		char s[4096], *eq;
		int n = 0;
		for (char *p = line; *p && *p != '#' && *p != ';'; p++)
			if (!isspace((unsigned char)*p))
				s[n++] = *p;
		s[n] = 0;
		if (!n)
			continue;
		if (s[0] == '[') {
			s[n - 1] = 0;
			skip = !strcmp(s + 1, "block") || !strcmp(s + 1, "fsdp");
			if (skip || !strcmp(s + 1, "net") || !strcmp(s + 1, "network")) {
				l = skip ? l : NULL;
				continue;
			}
			l = &L[n_layers++];
			snprintf(l->type, sizeof l->type, "%.31s", s + 1);
			strcpy(l->act, !strcmp(s + 1, "shortcut") ? "linear" : "logistic");
			l->n = l->size = l->stride = l->groups = l->dilation = 1;
			if (!strcmp(s + 1, "maxpool"))
				l->size = 0;
			l->alpha = l->beta = l->lr = 1;
			continue;
		}
		eq = strchr(s, '=');
		if (skip || !eq)
			continue;
		*eq = 0;
		set_key(l, s, eq + 1);
	}
	fclose(f);
}

static void shape_net(void)
{
	int w = net_w, h = net_h, c = net_c;
	long in = net_in ? net_in : (long)w * h * c;

	net_in = in;
	for (int i = 0; i < n_layers; i++) {
		struct layer *l = &L[i];
		long B = batch;
		l->w = w, l->h = h, l->c = c, l->in = in;
		if (!strcmp(l->type, "convolutional")) {
			int p = l->pad == -1 ? l->dilation * (l->size / 2) : l->pad;
			l->pad = p;
			l->ow = (w + 2 * p - l->dilation * (l->size - 1) - 1) / l->stride + 1;
			l->oh = (h + 2 * p - l->dilation * (l->size - 1) - 1) / l->stride + 1;
			l->oc = l->n;
			tensor_make(&l->weight, (long)l->n * (c / l->groups) * l->size * l->size, 1);
		} else if (!strcmp(l->type, "connected")) {
			l->ow = l->oh = 1;
			l->oc = l->n;
			tensor_make(&l->weight, (long)l->n * in, 1);
		} else if (!strcmp(l->type, "maxpool")) {
			if (!l->size)
				l->size = l->stride;
			l->pad = l->size - 1;
			l->ow = (w + l->pad - l->size) / l->stride + 1;
			l->oh = (h + l->pad - l->size) / l->stride + 1;
			l->oc = c;
		} else if (!strcmp(l->type, "avgpool")) {
			l->ow = l->oh = 1;
			l->oc = c;
		} else if (!strcmp(l->type, "route")) {
			l->ow = L[l->from[0]].ow, l->oh = L[l->from[0]].oh, l->oc = 0;
			for (int k = 0; k < l->n_from; k++)
				l->oc += L[l->from[k]].oc;
		} else if (!strcmp(l->type, "shortcut") || !strcmp(l->type, "softmax") || !strcmp(l->type, "cost")) {
			l->ow = w, l->oh = h, l->oc = c;
			if (!strcmp(l->type, "shortcut") && (L[l->from[0]].ow != w || L[l->from[0]].oc != c))
				die("shortcut: equal shapes only");
		} else {
			die(l->type);
		}
		l->out = (long)l->ow * l->oh * l->oc;
		if (l->weight.n) {
			tensor_make(&l->bias, l->n, 0);
			if (l->bn) {
				tensor_make(&l->scale, l->n, 0);
				tensor_make(&l->rmean, l->n, 0);
				tensor_make(&l->rvar, l->n, 0);
				l->mean = zalloc(l->n * sizeof(double));
				l->var = zalloc(l->n * sizeof(double));
			}
		}
		l->y = zalloc(B * l->out * sizeof(double));
		l->raw = zalloc(B * l->out * sizeof(double));
		l->d = zalloc(B * l->out * sizeof(double));
		l->idx = zalloc(B * l->out * sizeof(long));
		w = l->ow, h = l->oh, c = l->oc, in = l->out;
	}
}

static void each_tensor(void (*fn)(struct tensor *t, void *a), void *a)
{
	for (int i = 0; i < n_layers; i++) {
		struct layer *l = &L[i];
		if (!l->weight.n)
			continue;
		fn(&l->bias, a);
		if (!strcmp(l->type, "connected"))
			fn(&l->weight, a);
		if (l->bn) {
			fn(&l->scale, a);
			fn(&l->rmean, a);
			fn(&l->rvar, a);
		}
		if (strcmp(l->type, "connected"))
			fn(&l->weight, a);
	}
}

static void get_tensor(struct tensor *t, void *f)
{
	for (long i = 0; i < t->n; i++) {
		float x;
		if (fread(&x, 4, 1, f) != 1)
			die("the weights file is too short");
		t->w[i] = x;
	}
}

static void put_tensor(struct tensor *t, void *f)
{
	for (long i = 0; i < t->n; i++) {
		float x = (float)t->w[i];
		if (fwrite(&x, 4, 1, f) != 1)
			die("cannot write");
	}
}

static void save(const char *path, uint64_t seen)
{
	int32_t v[3] = { 0, 2, 0 };
	FILE *f = fopen(path, "wb");

	if (!f || fwrite(v, 4, 3, f) != 3 || fwrite(&seen, 8, 1, f) != 1)
		die("cannot write the weights");
	each_tensor(put_tensor, f);
	if (fclose(f))
		die("cannot write the weights");
}

static double act(const char *a, double x)
{
	if (!strcmp(a, "linear"))
		return x;
	if (!strcmp(a, "logistic"))
		return 1 / (1 + exp(-x));
	if (!strcmp(a, "relu"))
		return x > 0 ? x : 0;
	if (!strcmp(a, "leaky"))
		return x > 0 ? x : .1 * x;
	if (!strcmp(a, "tanh"))
		return tanh(x);
	die("activation");
	return 0;
}

static double slope(const char *a, double y)
{
	if (!strcmp(a, "logistic"))
		return y * (1 - y);
	if (!strcmp(a, "relu"))
		return y > 0;
	if (!strcmp(a, "leaky"))
		return y > 0 ? 1 : .1;
	if (!strcmp(a, "tanh"))
		return 1 - y * y;
	return 1;
}

/* y += or, backward, dx += and g += : one loop nest for the three uses of a convolution */
static void conv(struct layer *l, const double *x, double *y, const double *dy, double *dx)
{
	int cg = l->c / l->groups, kg = l->n / l->groups, s = l->size;

	for (long b = 0; b < batch; b++)
		for (int k = 0; k < l->n; k++)
			for (int oy = 0; oy < l->oh; oy++)
				for (int ox = 0; ox < l->ow; ox++) {
					long o = ((b * l->n + k) * l->oh + oy) * l->ow + ox;
					double sum = 0;
					for (int c = 0; c < cg; c++)
						for (int u = 0; u < s; u++)
							for (int v = 0; v < s; v++) {
								int iy = oy * l->stride - l->pad + u * l->dilation,
								    ix = ox * l->stride - l->pad + v * l->dilation;
								long i, j = (((long)k * cg + c) * s + u) * s + v;
								if (iy < 0 || ix < 0 || iy >= l->h || ix >= l->w)
									continue;
								i = ((b * l->c + k / kg * cg + c) * l->h + iy) * l->w + ix;
								if (y)
									sum += l->weight.w[j] * x[i];
								else {
									l->weight.g[j] += dy[o] * x[i];
									if (dx)
										dx[i] += dy[o] * l->weight.w[j];
								}
							}
					if (y)
						y[o] = sum;
				}
}

static void dense(struct layer *l, const double *x, double *y, const double *dy, double *dx)
{
	for (long b = 0; b < batch; b++)
		for (int k = 0; k < l->n; k++) {
			double sum = 0;
			for (long i = 0; i < l->in; i++) {
				if (y)
					sum += l->weight.w[k * l->in + i] * x[b * l->in + i];
				else {
					l->weight.g[k * l->in + i] += dy[b * l->n + k] * x[b * l->in + i];
					if (dx)
						dx[b * l->in + i] += dy[b * l->n + k] * l->weight.w[k * l->in + i];
				}
			}
			if (y)
				y[b * l->n + k] = sum;
		}
}

static void normalise(struct layer *l)
{
	long hw = (long)l->ow * l->oh, N = hw * batch;

	for (int k = 0; k < l->n; k++) {
		double m = 0, v = 0;
		for (long b = 0; b < batch; b++)
			for (long p = 0; p < hw; p++)
				m += l->raw[(b * l->n + k) * hw + p];
		m /= N;
		for (long b = 0; b < batch; b++)
			for (long p = 0; p < hw; p++)
				v += pow(l->raw[(b * l->n + k) * hw + p] - m, 2);
		l->mean[k] = m;
		l->var[k] = v / N;
		l->rmean.w[k] = .99 * l->rmean.w[k] + .01 * m;
		l->rvar.w[k] = .99 * l->rvar.w[k] + .01 * v / (N > 1 ? N - 1 : 1);
		for (long b = 0; b < batch; b++)
			for (long p = 0; p < hw; p++) {
				long i = (b * l->n + k) * hw + p;
				l->y[i] = l->scale.w[k] * (l->raw[i] - m) / sqrt(l->var[k] + 1e-5);
			}
	}
}

static void normalise_back(struct layer *l)
{
	long hw = (long)l->ow * l->oh, N = hw * batch;

	for (int k = 0; k < l->n; k++) {
		double s1 = 0, s2 = 0, inv = 1 / sqrt(l->var[k] + 1e-5);
		for (long b = 0; b < batch; b++)
			for (long p = 0; p < hw; p++) {
				long i = (b * l->n + k) * hw + p;
				s1 += l->d[i];
				s2 += l->d[i] * (l->raw[i] - l->mean[k]) * inv;
			}
		l->scale.g[k] += s2;
		for (long b = 0; b < batch; b++)
			for (long p = 0; p < hw; p++) {
				long i = (b * l->n + k) * hw + p;
				double xh = (l->raw[i] - l->mean[k]) * inv;
				l->d[i] = l->scale.w[k] * inv * (l->d[i] - s1 / N - xh * s2 / N);
			}
	}
}

static double forward(const double *x, const double *t)
{
	double cost = 0;
	int n_costs = 0;

	for (int i = 0; i < n_layers; i++) {
		struct layer *l = &L[i];
		const double *in = i ? L[i - 1].y : x;
		long hw = (long)l->ow * l->oh, n = batch * l->out;
		memset(l->d, 0, n * sizeof(double));
		if (l->weight.n) {
			(strcmp(l->type, "connected") ? conv : dense)(l, in, l->raw, NULL, NULL);
			if (l->bn)
				normalise(l);
			else
				memcpy(l->y, l->raw, n * sizeof(double));
			for (long j = 0; j < n; j++)
				l->y[j] = act(l->act, l->y[j] + l->bias.w[j / hw % l->n]);
		} else if (!strcmp(l->type, "maxpool")) {
			for (long j = 0; j < n; j++) {
				long plane = j / hw, best = -1;
				int oy = (int)(j % hw / l->ow), ox = (int)(j % l->ow);
				for (int u = 0; u < l->size; u++)
					for (int v = 0; v < l->size; v++) {
						int iy = oy * l->stride - l->pad / 2 + u, ix = ox * l->stride - l->pad / 2 + v;
						long q = (plane * l->h + iy) * l->w + ix;
						if (iy >= 0 && ix >= 0 && iy < l->h && ix < l->w &&
						    (best < 0 || in[q] > in[best]))
							best = q;
					}
				l->idx[j] = best;
				l->y[j] = in[best];
			}
		} else if (!strcmp(l->type, "avgpool")) {
			long ihw = (long)l->w * l->h;
			for (long j = 0; j < n; j++) {
				l->y[j] = 0;
				for (long p = 0; p < ihw; p++)
					l->y[j] += in[j * ihw + p] / ihw;
			}
		} else if (!strcmp(l->type, "route")) {
			for (long b = 0, o = 0; b < batch; b++)
				for (int k = 0; k < l->n_from; k++) {
					struct layer *s = &L[l->from[k]];
					memcpy(l->y + o, s->y + b * s->out, s->out * sizeof(double));
					o += s->out;
				}
		} else if (!strcmp(l->type, "shortcut")) {
			for (long j = 0; j < n; j++)
				l->y[j] = act(l->act, l->alpha * in[j] + l->beta * L[l->from[0]].y[j]);
		} else if (!strcmp(l->type, "softmax")) {
			for (long b = 0; b < batch; b++) {
				double m = -INFINITY, s = 0;
				for (long j = 0; j < l->out; j++)
					m = fmax(m, in[b * l->out + j]);
				for (long j = 0; j < l->out; j++)
					s += exp(in[b * l->out + j] - m);
				for (long j = 0; j < l->out; j++)
					l->y[b * l->out + j] = exp(in[b * l->out + j] - m) / s;
			}
			for (long j = 0; j < n; j++) {
				if (t[j] != 0)
					cost -= log(l->y[j]);
				l->d[j] = t[j] - l->y[j];
			}
			n_costs++;
		} else {
			for (long j = 0; j < n; j++) {
				l->y[j] = in[j];
				l->d[j] = t[j] - in[j];
				cost += l->d[j] * l->d[j];
			}
			n_costs++;
		}
	}
	return n_costs ? cost / n_costs : 0;
}

static void backward(const double *x)
{
	for (int i = n_layers - 1; i >= 0; i--) {
		struct layer *l = &L[i];
		const double *in = i ? L[i - 1].y : x;
		double *dx = i ? L[i - 1].d : NULL;
		long hw = (long)l->ow * l->oh, n = batch * l->out;
		if (l->weight.n) {
			for (long j = 0; j < n; j++) {
				l->d[j] *= slope(l->act, l->y[j]);
				l->bias.g[j / hw % l->n] += l->d[j];
			}
			if (l->bn)
				normalise_back(l);
			(strcmp(l->type, "connected") ? conv : dense)(l, in, NULL, l->d, dx);
		} else if (!strcmp(l->type, "maxpool")) {
			for (long j = 0; dx && j < n; j++)
				dx[l->idx[j]] += l->d[j];
		} else if (!strcmp(l->type, "avgpool")) {
			long ihw = (long)l->w * l->h;
			for (long j = 0; dx && j < n * ihw; j++)
				dx[j] += l->d[j / ihw] / ihw;
		} else if (!strcmp(l->type, "route")) {
			for (long b = 0, o = 0; b < batch; b++)
				for (int k = 0; k < l->n_from; k++) {
					struct layer *s = &L[l->from[k]];
					for (long j = 0; j < s->out; j++)
						s->d[b * s->out + j] += l->d[o + j];
					o += s->out;
				}
		} else if (!strcmp(l->type, "shortcut")) {
			for (long j = 0; j < n; j++) {
				double g = l->d[j] * slope(l->act, l->y[j]);
				dx[j] += l->alpha * g;
				L[l->from[0]].d[j] += l->beta * g;
			}
		} else {
			for (long j = 0; dx && j < n; j++)
				dx[j] += l->d[j];
		}
	}
}

static void update(struct tensor *t, double lr)
{
	long E = (long)batch * subdiv;

	for (long i = 0; i < t->n; i++) {
		t->v[i] = momentum * t->v[i] + t->g[i] - (t->decay ? decay * E * t->w[i] : 0);
		t->w[i] += lr / E * t->v[i];
		t->g[i] = 0;
	}
}

static uint64_t state;
static double uniform(void)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(state >> 11) / 9007199254740992.0;
}

static void init_weights(void)
{
	for (int i = 0; i < n_layers; i++) {
		struct layer *l = &L[i];
		double fan = !strcmp(l->type, "connected") ? (double)l->in : (double)l->size * l->size * l->c / l->groups;
		for (long j = 0; j < l->weight.n; j++)
			l->weight.w[j] = (2 * uniform() - 1) * sqrt(3 / fan);
		for (long j = 0; j < l->bias.n; j++)
			l->bias.w[j] = .1 * (2 * uniform() - 1);
		for (long j = 0; j < l->scale.n; j++) {
			l->scale.w[j] = .8 + .4 * uniform();
			l->rvar.w[j] = 1;
		}
	}
}

static unsigned char *read_idx(const char *path, int head, long *n)
{
	FILE *f = fopen(path, "rb");
	unsigned char *p;
	long size;

	if (!f || fseek(f, 0, SEEK_END) || (size = ftell(f)) < head || fseek(f, 0, SEEK_SET))
		die("cannot open the data");
	p = zalloc(size);
	if (fread(p, 1, size, f) != (size_t)size)
		die("cannot read the data");
	fclose(f);
	*n = (long)p[4] << 24 | p[5] << 16 | p[6] << 8 | p[7];
	return p + head;
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "init")) {
		read_cfg(argv[2]);
		shape_net();
		state = strtoull(argv[4], NULL, 10) * 2654435761u + 1;
		init_weights();
		save(argv[3], 0);
		return 0;
	}
	if (argc < 7 || strcmp(argv[1], "train"))
		die("usage: ref64 init CFG WEIGHTS SEED | ref64 train CFG WEIGHTS IMAGES LABELS STEPS [OUT]");
	read_cfg(argv[2]);
	batch /= subdiv; /* a microbatch from here on */
	shape_net();
	FILE *f = fopen(argv[3], "rb");
	if (!f || fseek(f, 20, SEEK_SET))
		die("cannot open the weights");
	each_tensor(get_tensor, f);
	fclose(f);
	long n, n_labels, k = L[n_layers - 1].out;
	unsigned char *img = read_idx(argv[4], 16, &n), *lab = read_idx(argv[5], 8, &n_labels);
	double *x = zalloc(batch * net_in * sizeof(double)), *t = zalloc(batch * k * sizeof(double));
	for (long u = 0; u < atol(argv[6]); u++) {
		double loss = 0;
		for (long m = 0; m < subdiv; m++) {
			memset(t, 0, batch * k * sizeof(double));
			for (long b = 0; b < batch; b++) {
				long p = ((u * subdiv + m) * batch + b) % n;
				for (long j = 0; j < net_in; j++)
					x[b * net_in + j] = img[p * net_in + j] / 255.0;
				t[b * k + lab[p]] = 1;
			}
			loss += forward(x, t);
			backward(x);
		}
		printf("%.12g\n", loss / ((double)batch * subdiv));
		for (int i = 0; i < n_layers; i++) {
			struct layer *l = &L[i];
			if (!l->weight.n)
				continue;
			update(&l->bias, rate0 * l->lr);
			update(&l->weight, rate0 * l->lr);
			if (l->bn)
				update(&l->scale, rate0 * l->lr);
		}
	}
	if (argc > 7)
		save(argv[7], (uint64_t)atol(argv[6]) * batch * subdiv);
	return 0;
}
