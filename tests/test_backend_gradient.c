/* The device contract: gradients of ref against finite differences. */
#include "backend_help.h"

static double dot(const float *g, const float *y, int64_t n)
{
	double s = 0;

	for (int64_t i = 0; i < n; i++)
		s += (double)g[i] * (double)y[i];
	return s;
}

#define FD_STEP 1e-2f
/* outputs are rounded to float, 6e-8 over a step of 1e-2; second differences of bn and softmax are of 1e-4 */
#define FD_TOL 1e-3

/* -dL/dp for every p[i], by central differences; @loss recomputes L */
static void differences(float *p, int64_t n, double (*loss)(void *arg), void *arg, float *out)
{
	for (int64_t i = 0; i < n; i++) {
		float keep = p[i];
		double up, down;
		volatile float hi = keep + FD_STEP, lo = keep - FD_STEP;

		p[i] = hi;
		up = loss(arg);
		p[i] = lo;
		down = loss(arg);
		p[i] = keep;
		out[i] = (float)(-(up - down) / ((double)hi - (double)lo));
	}
}

struct conv_fd {
	struct rig *r;
	struct dn_conv *cv;
	float *x, *w, *b, *y, *g;
	int64_t ny;
};

static double conv_loss(void *arg)
{
	struct conv_fd *f = arg;

	CHECK_OK(f->r->be->conv_forward(f->r->st, f->cv, f->x, f->w, NULL, f->b, f->y, NULL));
	return dot(f->g, f->y, f->ny);
}

static void conv_gradients_of_ref_are_finite_differences(void)
{
	struct rig r = rig_open("ref", 1);
	static const struct conv_case shapes[] = { { 2, 3, 5, 4, 4, 3, 2, 1, 1, 1 }, { 1, 4, 6, 6, 6, 3, 1, 2, 2, 2 } };

	for (int s = 0; s < 2; s++) {
		struct dn_conv_desc d = conv_desc(&shapes[s], true, true, DN_ACT_LINEAR);
		int64_t nx = dn_tensor_count(&d.x), ny = dn_tensor_count(&d.y);
		int64_t nw = d.y.c * d.x.c / d.groups * d.size * d.size;
		struct conv_fd f = {
			&r, NULL, randoms(nx, 1), randoms(nw, 2), randoms(d.y.c, 3), floats(ny), randoms(ny, 4), ny
		};
		float *dy = floats(ny), *got = floats(nx + nw), *want = floats(nx + nw);

		CHECK_OK_FATAL(r.be->conv_create(r.dev, &d, &f.cv));
		for (int64_t i = 0; i < ny; i++)
			dy[i] = -f.g[i];
		CHECK_OK(r.be->conv_backward_data(r.st, f.cv, dy, f.w, got, false, NULL));
		differences(f.x, nx, conv_loss, &f, want);
		CHECK_CLOSE(got, want, nx, FD_TOL);
		CHECK_OK(r.be->conv_backward_weights(r.st, f.cv, f.x, dy, got, false, NULL));
		differences(f.w, nw, conv_loss, &f, want);
		CHECK_CLOSE(got, want, nw, FD_TOL);
		CHECK_OK(r.be->bias_backward(r.st, &d.y, dy, got, false));
		differences(f.b, d.y.c, conv_loss, &f, want);
		CHECK_CLOSE(got, want, d.y.c, FD_TOL);
		r.be->conv_destroy(f.cv);
		dn_free(f.x);
		dn_free(f.w);
		dn_free(f.b);
		dn_free(f.y);
		dn_free(f.g);
		dn_free(dy);
		dn_free(got);
		dn_free(want);
	}
	rig_close(&r);
}

struct bn_fd {
	struct rig *r;
	struct dn_bn_desc d;
	bool frozen;
	float *x, *scale, *bias, *mean, *var, *y, *g;
	int64_t n;
};

static double bn_loss(void *arg)
{
	struct bn_fd *f = arg;

	if (f->frozen)
		CHECK_OK(f->r->be->bn_forward(f->r->st, &f->d, f->x, f->scale, f->bias, f->mean, f->var, f->y));
	else
		CHECK_OK(f->r->be->bn_forward_train(f->r->st, &f->d, f->x, f->scale, f->bias, f->mean, f->var, f->y));
	return dot(f->g, f->y, f->n);
}

static void bn_gradients_of_ref_are_finite_differences(void)
{
	struct rig r = rig_open("ref", 1);

	for (int frozen = 0; frozen < 3; frozen++) { /* 2: legacy, which is exact with constant statistics only */
		int64_t c = 3, n = 4 * c * 6;
		struct bn_fd f = { &r,
				   { t4(4, c, 2, 3), frozen == 2, DN_ACT_LINEAR },
				   frozen > 0,
				   randoms(n, 1),
				   randoms(c, 2),
				   randoms(c, 3),
				   floats(c),
				   floats(c),
				   floats(n),
				   randoms(n, 4),
				   n };
		float *dy = floats(n), *dx = floats(n), *ds = floats(c), *db = floats(c), *want = floats(n);

		for (int64_t i = 0; i < n; i++)
			dy[i] = -f.g[i];
		for (int64_t i = 0; i < c; i++) {
			f.mean[i] = .1f * (float)i;
			f.var[i] = .3f + (float)i;
		}
		bn_loss(&f);
		CHECK_OK(r.be->bn_backward(r.st, &f.d, f.frozen, f.x, f.mean, f.var, f.scale, dy, dx, false, ds, db, false));
		differences(f.x, n, bn_loss, &f, want);
		CHECK_CLOSE(dx, want, n, FD_TOL);
		differences(f.scale, c, bn_loss, &f, want);
		CHECK_CLOSE(ds, want, c, FD_TOL);
		differences(f.bias, c, bn_loss, &f, want);
		CHECK_CLOSE(db, want, c, FD_TOL);
		float *all[] = { f.x, f.scale, f.bias, f.mean, f.var, f.y, f.g, dy, dx, ds, db, want };
		for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			dn_free(all[i]);
	}
	rig_close(&r);
}

struct pool_fd {
	struct rig *r;
	struct dn_pool_desc d;
	float *x, *y, *g;
	int32_t *index;
};

static double pool_loss(void *arg)
{
	struct pool_fd *f = arg;

	CHECK_OK(f->r->be->maxpool_forward(f->r->st, &f->d, f->x, f->y, f->index));
	return dot(f->g, f->y, dn_tensor_count(&f->d.y));
}

static void pool_gradients_of_ref_are_finite_differences(void)
{
	struct rig r = rig_open("ref", 1);
	struct pool_fd f = { &r, { t4(1, 2, 6, 7), t4(1, 2, 3, 4), 3, 2, 2 }, floats(84), floats(24), randoms(24, 2), NULL };
	float dy[24], dx[84], want[84];

	f.index = dn_alloc(24 * sizeof(int32_t));
	for (int i = 0; i < 84; i++) /* all apart by more than a step, so no winner changes */
		f.x[i] = (float)(i * 37 % 84) * .05f;
	for (int i = 0; i < 24; i++)
		dy[i] = -f.g[i];
	pool_loss(&f);
	CHECK_OK(r.be->maxpool_backward(r.st, &f.d, dy, f.index, dx, false));
	differences(f.x, 84, pool_loss, &f, want);
	CHECK_CLOSE(dx, want, 84, FD_TOL);
	dn_free(f.x);
	dn_free(f.y);
	dn_free(f.g);
	dn_free(f.index);
	rig_close(&r);
}

struct ce_fd {
	struct rig *r;
	float x[15], y[15], t[15], delta[15];
};

static double ce_loss(void *arg)
{
	const struct dn_tensor t = t4(3, 5, 1, 1);
	struct ce_fd *f = arg;
	double loss = -1;

	CHECK_OK(softmax_once(f->r, &(struct dn_softmax_desc){ t, 1, NULL, 1 }, f->x, f->y));
	CHECK_OK(f->r->be->cost(f->r->st, DN_COST_SOFTMAX_CE, &t, f->y, &t, f->t, f->delta, &loss));
	return loss;
}

static void softmax_ce_delta_is_minus_the_gradient(void)
{
	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 1);
		struct ce_fd f = { .r = &r };
		float want[15], got[15];

		for (int i = 0; i < 15; i++)
			f.x[i] = (float)sin(i * 1.7) * 2;
		f.t[2] = f.t[5] = f.t[14] = 1;
		differences(f.x, 15, ce_loss, &f, want);
		ce_loss(&f);
		memcpy(got, f.delta, sizeof(got));
		CHECK_CLOSE(got, want, 15, FD_TOL);
		rig_close(&r);
	}
}

static const struct check_case cases[] = {
	{ "conv_gradients_of_ref_are_finite_differences", conv_gradients_of_ref_are_finite_differences },
	{ "bn_gradients_of_ref_are_finite_differences", bn_gradients_of_ref_are_finite_differences },
	{ "pool_gradients_of_ref_are_finite_differences", pool_gradients_of_ref_are_finite_differences },
	{ "softmax_ce_delta_is_minus_the_gradient", softmax_ce_delta_is_minus_the_gradient },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend_gradient", cases);
}
