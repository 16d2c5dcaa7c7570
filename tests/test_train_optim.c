/* train: the update rule. */
#include "graph/optimizer.h"
#include "train_help.h"
#include "train/optim.h"

static float *device_floats(const struct net_help *t, int n, const float *x)
{
	float *p;

	CHECK_OK_FATAL(t->dev->be->alloc(t->dev, DN_MEM_HOST, (size_t)n * sizeof(*p), (void **)&p));
	poke(t->net, p, n, x);
	return p;
}

/* dn_optim_range() over copies of the arrays on the device */
static void update(const struct net_help *t, int param, const struct dn_update *u, int n, float *w, const float *g, float *m,
		   float *v)
{
	float *dw = device_floats(t, n, w), *dg = device_floats(t, n, g), *dm = device_floats(t, n, m);
	float *dv = device_floats(t, n, v ? v : m);

	CHECK_OK(dn_net_numbers(t->net, u));
	CHECK_OK(dn_optim_range(t->net->compute, t->net->params[param], u, n, dw, dg, (float *[]){ dm, dv }));
	peek_into(t->net, dw, n, w);
	peek_into(t->net, dm, n, m);
	if (v)
		peek_into(t->net, dv, n, v);
	t->dev->be->free(t->dev, dw);
	t->dev->be->free(t->dev, dg);
	t->dev->be->free(t->dev, dm);
	t->dev->be->free(t->dev, dv);
}

static void sgd_follows_its_formula_in_double(void)
{
	struct net_help t;
	struct dn_param *p;
	struct dn_update u = { .optimizer = DN_SGD, .step = 1, .images = 24, .rate = .03, .momentum = .9, .decay = .005 };
	float w[7], v[7], g[7], want_w[7], want_v[7];

	open_net(&t, HEAD(2, 1, 1) BODY);
	for (int round = 0; round < 2; round++) {
		p = t.net->params[round]; /* biases, then weights: only these decay */
		p->lr_scale = 2;
		CHECK_EQ(p->decay, round);
		for (int i = 0; i < 7; i++) {
			double vv;

			w[i] = (float)(dn_rng_uniform(1, 0, (uint64_t)i) - .5);
			v[i] = (float)(10 * dn_rng_uniform(1, 1, (uint64_t)i) - 5);
			g[i] = (float)(10 * dn_rng_uniform(1, 2, (uint64_t)i) - 5);
			vv = .9 * v[i] + g[i] - (round ? .005 * 24 * w[i] : 0);
			want_v[i] = (float)vv;
			want_w[i] = (float)(w[i] + .03 * 2 / 24 * vv);
		}
		update(&t, round, &u, 7, w, g, v, NULL);
		CHECK_CLOSE(v, want_v, 7, 4e-7); /* a handful of float roundings of 6e-8 */
		CHECK_CLOSE(w, want_w, 7, 4e-7);
	}
	CHECK_EQ(dn_state_count(DN_SGD), 1);
	CHECK_STR(dn_optimizer_name(DN_SGD), "sgd");
	CHECK_STR(dn_state_name(DN_SGD, 0), "momentum");
	net_help_close(&t);
}

/* Three steps from zero moments, against the textbook in double; gradients point uphill here. */
static void adam_and_adamw_follow_their_formulas_in_double(void)
{
	static const enum dn_optimizer kinds[] = { DN_ADAM, DN_ADAMW };

	for (int k = 0; k < 2; k++) {
		struct net_help t;
		struct dn_update u = {
			.optimizer = kinds[k], .images = 24, .rate = .03, .decay = .05, .beta1 = .8, .beta2 = .99, .eps = 1e-3
		};

		open_net(&t, HEAD(2, 1, 1) BODY);
		for (int part = 0; part < 2; part++) { /* biases, then weights: only these decay */
			struct dn_param *p = t.net->params[part];
			double want[5], wm[5] = { 0 }, wv[5] = { 0 }, decay = part ? .05 : 0;
			float w[5], m[5] = { 0 }, v[5] = { 0 }, g[5];

			p->lr_scale = 2;
			for (int i = 0; i < 5; i++)
				want[i] = w[i] = (float)(dn_rng_uniform(1, 0, (uint64_t)i) - .5);
			for (int step = 1; step <= 3; step++) {
				u.step = step;
				for (int i = 0; i < 5; i++) {
					double grad;

					g[i] = (float)(10 * dn_rng_uniform(1, (uint64_t)step, (uint64_t)i) - 5);
					grad = -(double)g[i] / 24 + (k ? 0 : decay * want[i]);
					if (k)
						want[i] -= .06 * decay * want[i];
					wm[i] = .8 * wm[i] + .2 * grad;
					wv[i] = .99 * wv[i] + .01 * grad * grad;
					want[i] -=
						.06 * (wm[i] / (1 - pow(.8, step))) / (sqrt(wv[i] / (1 - pow(.99, step))) + 1e-3);
				}
				update(&t, part, &u, 5, w, g, m, v);
			}
			for (int i = 0; i < 5; i++)
				CU_ASSERT(fabs(w[i] - want[i]) < 1e-6); /* float roundings of three steps of .06 */
		}
		net_help_close(&t);
	}
	CHECK_EQ(dn_state_count(DN_ADAM), 2);
	CHECK_EQ(dn_state_count(DN_ADAMW), 2);
	CHECK_STR(dn_optimizer_name(DN_ADAMW), "adamw");
	CHECK_STR(dn_state_name(DN_ADAM, 0), "m");
	CHECK_STR(dn_state_name(DN_ADAM, 1), "v");
}

static void elements_get_the_same_bits_in_any_cut(void)
{
	struct net_help t;
	struct dn_update u = { .optimizer = DN_SGD, .step = 1, .images = 8, .rate = .1, .momentum = .9, .decay = .01 };
	float w[2][37], v[2][37], g[37];

	open_net(&t, HEAD(2, 1, 1) BODY);
	for (int i = 0; i < 37; i++) {
		w[0][i] = w[1][i] = (float)dn_rng_normal(2, 0, (uint64_t)i);
		v[0][i] = v[1][i] = (float)dn_rng_normal(2, 1, (uint64_t)i);
		g[i] = (float)dn_rng_normal(2, 2, (uint64_t)i);
	}
	update(&t, 1, &u, 37, w[0], g, v[0], NULL);
	for (int at = 0, n = 1; at<37; at += n, n = at + 2 * n> 37 ? 37 - at : 2 * n)
		update(&t, 1, &u, n, w[1] + at, g + at, v[1] + at, NULL);
	CHECK_BITS(w[1], w[0], sizeof(w[0]));
	CHECK_BITS(v[1], v[0], sizeof(v[0]));
	net_help_close(&t);
}

static const struct check_case cases[] = {
	{ "sgd_follows_its_formula_in_double", sgd_follows_its_formula_in_double },
	{ "adam_and_adamw_follow_their_formulas_in_double", adam_and_adamw_follow_their_formulas_in_double },
	{ "elements_get_the_same_bits_in_any_cut", elements_get_the_same_bits_in_any_cut },
	{ NULL, NULL },
};

int main(void)
{
	return train_help_run("train_optim", cases);
}
