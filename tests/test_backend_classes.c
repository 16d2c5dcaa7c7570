/* NOTE(targets): a class index gives the bits of the numbers that it stands for. */
#include <errno.h>
#include "backend_help.h"

struct shape {
	int64_t n, groups, each, h, w;
};

/* one class, one image; one group; groups; points; enough for two threads and all partial sums */
static const struct shape shapes[] = {
	{ 1, 1, 1, 1, 1 }, { 5, 1, 10, 1, 1 }, { 3, 4, 3, 1, 1 }, { 2, 3, 5, 4, 7 }, { 40, 1, 600, 1, 1 }, { 6, 2, 20, 9, 11 },
};

/* every class in turn, -1 among them */
static int32_t class_at(const struct shape *s, int64_t row)
{
	return (int32_t)(row * 7 % (s->each + 1)) - 1;
}

struct both { /* the same targets as classes and as numbers */
	struct dn_tensor x, of_class;
	int32_t *class;
	float *number;
	int64_t n, rows;
};

static struct both both_of(const struct shape *s)
{
	struct both b = { .x = t4(s->n, s->groups * s->each, s->h, s->w) };
	int64_t hw = s->h * s->w;

	CHECK_OK_FATAL(dn_tensor_init(&b.of_class, "classes", DN_I32, s->n, s->groups, s->h, s->w));
	b.n = dn_tensor_count(&b.x);
	b.rows = dn_tensor_count(&b.of_class);
	b.class = dn_alloc_region(DN_MEM_HOST, b.of_class.bytes);
	b.number = floats(b.n);
	CU_ASSERT_PTR_NOT_NULL_FATAL(b.class);
	memset(b.number, 0, b.x.bytes);
	for (int64_t r = 0; r < b.rows; r++) {
		b.class[r] = class_at(s, r);
		if (b.class[r] >= 0)
			b.number[(r / hw * s->each + b.class[r]) * hw + r % hw] = 1;
	}
	return b;
}

static void both_free(struct both *b)
{
	dn_free(b->class);
	dn_free(b->number);
}

static void costs_of_classes_are_those_of_their_numbers(void)
{
	for (const struct dn_backend *const *be = dn_backend_all(); *be; be++)
		for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
			struct rig r = rig_open((*be)->name, 2);
			struct both b = both_of(&shapes[i]);
			float *p = randoms(b.n, 1), *delta[2] = { floats(b.n), floats(b.n) };

			for (int64_t k = 0; k < b.n; k++)
				p[k] = (p[k] + 1) / 2;
			for (int kind = 0; kind < DN_COSTS; kind++) {
				double loss[2] = { -1, -2 };

				CHECK_OK(r.be->cost(r.st, (enum dn_cost)kind, &b.x, p, &b.x, b.number, delta[0], &loss[0]));
				CHECK_OK(r.be->cost(r.st, (enum dn_cost)kind, &b.x, p, &b.of_class, b.class, delta[1], &loss[1]));
				CHECK_BITS(&loss[1], &loss[0], sizeof(loss[0]));
				CHECK_BITS(delta[1], delta[0], b.x.bytes);
			}
			dn_free(p);
			dn_free(delta[0]);
			dn_free(delta[1]);
			both_free(&b);
			rig_close(&r);
		}
}

static void softmax_losses_of_classes_are_those_of_their_numbers(void)
{
	for (const struct dn_backend *const *be = dn_backend_all(); *be; be++)
		for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
			struct rig r = rig_open((*be)->name, 2);
			struct both b = both_of(&shapes[i]);
			const struct dn_softmax_desc d = { b.x, (int)shapes[i].groups, NULL, 2 };
			struct dn_softmax *sm = NULL;
			float *x = randoms(b.n, 1);
			double loss[2] = { -1, -2 };

			CHECK_OK_FATAL(r.be->softmax_create(r.dev, &d, &sm));
			CHECK_OK(r.be->softmax_loss(r.st, sm, x, &b.x, b.number, &loss[0]));
			CHECK_OK(r.be->softmax_loss(r.st, sm, x, &b.of_class, b.class, &loss[1]));
			CHECK_BITS(&loss[1], &loss[0], sizeof(loss[0]));
			CU_ASSERT(loss[0] >= 0 && isfinite(loss[0]));
			r.be->softmax_destroy(sm);
			dn_free(x);
			both_free(&b);
			rig_close(&r);
		}
}

/* cpu and ref agree where groups lie at points too, and two threads give one thread's bits */
static void softmax_losses_of_cpu_equal_ref(void)
{
	struct rig ref = rig_open("ref", 1), one = rig_open("cpu", 1), two = rig_open("cpu", 2);
	struct rig *all[] = { &ref, &one, &two };

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		struct both b = both_of(&shapes[i]);
		const struct dn_softmax_desc d = { b.x, (int)shapes[i].groups, NULL, .5f };
		float *x = randoms(b.n, 1);
		double loss[3];

		for (int k = 0; k < 3; k++) {
			struct dn_softmax *sm = NULL;

			CHECK_OK_FATAL(all[k]->be->softmax_create(all[k]->dev, &d, &sm));
			CHECK_OK(all[k]->be->softmax_loss(all[k]->st, sm, x, &b.of_class, b.class, &loss[k]));
			all[k]->be->softmax_destroy(sm);
		}
		CU_ASSERT(fabs(loss[1] - loss[0]) <= 1e-11 * loss[0]); /* orders of 24,000 doubles */
		CHECK_BITS(&loss[2], &loss[1], sizeof(loss[1]));
		dn_free(x);
		both_free(&b);
	}
	rig_close(&ref);
	rig_close(&one);
	rig_close(&two);
}

static void a_number_that_is_no_class_shows_in_the_loss(void)
{
	static const int32_t wrong[] = { 4, -2, INT32_MAX, INT32_MIN };
	const struct dn_tensor x = t4(3, 8, 1, 1);
	const float in[24] = { 0 };
	float delta[24];
	struct dn_tensor t;

	CHECK_OK_FATAL(dn_tensor_init(&t, "classes", DN_I32, 3, 2, 1, 1));
	for (const struct dn_backend *const *be = dn_backend_all(); *be; be++)
		for (int i = 0; i < 4; i++) {
			struct rig r = rig_open((*be)->name, 1);
			const struct dn_softmax_desc d = { x, 2, NULL, 1 };
			const int32_t class[] = { 0, 3, -1, wrong[i], 2, 1 };
			struct dn_softmax *sm = NULL;
			double loss = 0;

			CHECK_OK(r.be->cost(r.st, DN_COST_SSE, &x, in, &t, class, delta, &loss));
			CU_ASSERT(isnan(loss));
			CHECK_OK_FATAL(r.be->softmax_create(r.dev, &d, &sm));
			loss = 0;
			CHECK_OK(r.be->softmax_loss(r.st, sm, in, &t, class, &loss));
			CU_ASSERT(isnan(loss));
			r.be->softmax_destroy(sm);
			rig_close(&r);
		}
}

static void classes_of_other_shapes_are_refused(void)
{
	static const int32_t parent[] = { -1, -1, 0, 0 }, at[] = { 0, 2, 4 };
	const struct dn_tree_desc tree = { 4, parent, 2, at };
	const struct dn_tensor x = t4(2, 4, 1, 1);
	const float in[8] = { 0 };
	const int32_t class[8] = { 0 };
	float delta[8];
	double loss;

	for (const struct dn_backend *const *be = dn_backend_all(); *be; be++) {
		struct rig r = rig_open((*be)->name, 1);
		struct dn_softmax *sm = NULL, *of_tree = NULL;
		struct dn_tensor t, other = t4(2, 3, 1, 1), more = t4(3, 4, 1, 1);

		CHECK_OK_FATAL(dn_tensor_init(&t, "classes", DN_I32, 2, 3, 1, 1));
		CHECK_FAILS(r.be->cost(r.st, DN_COST_SSE, &x, in, &t, class, delta, &loss), -EINVAL, "classes of 3 groups");
		t.c = 1;
		t.n = 3;
		CHECK_FAILS(r.be->cost(r.st, DN_COST_SSE, &x, in, &t, class, delta, &loss), -EINVAL, "1 points of 3 images");
		t.n = 2;
		t.w = 2;
		CHECK_FAILS(r.be->cost(r.st, DN_COST_SSE, &x, in, &t, class, delta, &loss), -EINVAL, "at 2 points");
		CHECK_FAILS(r.be->cost(r.st, DN_COST_SSE, &x, in, &other, in, delta, &loss), -EINVAL, "2 of 3");
		CHECK_FAILS(r.be->cost(r.st, DN_COST_SSE, &x, in, &more, in, delta, &loss), -EINVAL, "3 of 4");
		t.w = 1;
		CHECK_OK_FATAL(r.be->softmax_create(r.dev, &(struct dn_softmax_desc){ x, 2, NULL, 1 }, &sm));
		CHECK_OK_FATAL(r.be->softmax_create(r.dev, &(struct dn_softmax_desc){ x, 1, &tree, 1 }, &of_tree));
		CHECK_FAILS(r.be->softmax_loss(r.st, sm, in, &t, class, &loss), -EINVAL, "classes of 1 groups for 2 groups");
		t.c = 2;
		CHECK_OK(r.be->softmax_loss(r.st, sm, in, &t, class, &loss));
		CHECK_FAILS(r.be->softmax_loss(r.st, of_tree, in, &t, class, &loss), -ENOTSUP, "groups of a tree");
		CHECK_FAILS(r.be->tree_truth(r.st, sm, in, delta), -EINVAL, "without a tree");
		r.be->softmax_destroy(sm);
		r.be->softmax_destroy(of_tree);
		r.be->softmax_destroy(NULL);
		rig_close(&r);
	}
}

/* What the object was made of may change or go: it has its own. */
static void a_tree_is_read_once(void)
{
	for (const struct dn_backend *const *be = dn_backend_all(); *be; be++) {
		struct rig r = rig_open((*be)->name, 1);
		int32_t parent[] = { -1, -1, 0, 0 }, at[] = { 0, 2, 4 };
		const struct dn_tree_desc tree = { 4, parent, 2, at };
		const float x[] = { 0, 0, 5, 5 }, half[] = { .5f, .5f, .5f, .5f }, t[] = { 0, 0, 0, 1 }, want[] = { 1, 0, 0, 1 };
		struct dn_softmax *sm = NULL;
		float y[4];

		CHECK_OK_FATAL(r.be->softmax_create(r.dev, &(struct dn_softmax_desc){ t4(1, 4, 1, 1), 1, &tree, 1 }, &sm));
		parent[2] = parent[3] = 1;
		at[1] = 1;
		CHECK_OK(r.be->softmax_forward(r.st, sm, x, y));
		CHECK_CLOSE(y, half, 4, 1e-7);
		CHECK_OK(r.be->tree_truth(r.st, sm, t, y));
		CHECK_BITS(y, want, sizeof(want));
		r.be->softmax_destroy(sm);
		rig_close(&r);
	}
}

static const struct check_case cases[] = {
	{ "costs_of_classes_are_those_of_their_numbers", costs_of_classes_are_those_of_their_numbers },
	{ "softmax_losses_of_classes_are_those_of_their_numbers", softmax_losses_of_classes_are_those_of_their_numbers },
	{ "softmax_losses_of_cpu_equal_ref", softmax_losses_of_cpu_equal_ref },
	{ "a_number_that_is_no_class_shows_in_the_loss", a_number_that_is_no_class_shows_in_the_loss },
	{ "classes_of_other_shapes_are_refused", classes_of_other_shapes_are_refused },
	{ "a_tree_is_read_once", a_tree_is_read_once },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend_classes", cases);
}
