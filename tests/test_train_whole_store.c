/* train: the whole store. */
#include <errno.h>

#include "train_help.h"

static void planned_bytes_are_what_is_allocated(void)
{
	static const char *const cfgs[] = {
		HEAD(8, 1, 1) BODY,
		HEAD(8, 2, 1) BODY,
		HEAD(8, 4, 1) BLOCKS,
		HEAD(8, 1, 1) NORM,
		HEAD(8, 2, 1) "[connected]\noutput=5\nstopbackward=1\n[connected]\noutput=3\n[softmax]\n",
	};
	for (size_t i = 0; i < sizeof(cfgs) / sizeof(cfgs[0]); i++) {
		size_t before[DN_MEM_PLANNED], planned[DN_MEM_PLANNED], ring;
		struct dn_store_report r;
		struct dn_mem_stats m;
		struct net_help t;

		for (int k = 0; k < DN_MEM_PLANNED; k++) {
			dn_mem_stats(k, &m);
			before[k] = m.now_bytes;
		}
		open_net(&t, cfgs[i]);
		CHECK_OK(dn_whole_bytes(t.net, planned));
		CHECK_OK(dn_loop_input_bytes(t.net, &ring));
		t.net->store.ops->report(t.net->store.self, &r);
		for (int k = 0; k < DN_MEM_PLANNED; k++) {
			dn_mem_stats(k, &m);
			CHECK_EQ(r.planned_bytes[k], planned[k]);
			CHECK_EQ(m.now_bytes - before[k], planned[k] - (k == DN_MEM_ACTIVATIONS ? ring : 0));
		}
		net_help_close(&t);
		for (int k = 0; k < DN_MEM_PLANNED; k++) {
			dn_mem_stats(k, &m);
			CHECK_EQ(m.now_bytes, before[k]);
		}
	}
}

static void tensors_lie_on_boundaries_and_frozen_ones_have_no_gradient(void)
{
	struct net_help t;

	open_net(&t, HEAD(8, 2, 1) "[connected]\noutput=5\nstopbackward=1\n[connected]\noutput=3\n[softmax]\n");
	for (int i = 0; i < t.net->n_params; i++) {
		const struct dn_param *p = t.net->params[i];

		CHECK_EQ((uintptr_t)p->value % DN_ALIGN, 0);
		CHECK_EQ((uintptr_t)p->grad % DN_ALIGN, 0);
		CHECK_EQ(p->grad != NULL, !p->frozen);
	}
	CU_ASSERT_TRUE(t.net->params[0]->frozen);
	net_help_close(&t);
}

/* one update over the 8 images of @m, in microbatches; values out */
static void update_once(const char *cfg, float *values)
{
	struct net_help t;
	struct made m;
	struct dn_update u = { .optimizer = DN_SGD, .step = 1, .images = 8, .rate = .05, .momentum = .9, .decay = .001 };
	float *at = values;

	make_data(&m, 8);
	open_net(&t, cfg);
	CHECK_OK(t.net->store.ops->begin(t.net->store.self, t.net, 1));
	for (int64_t k = 0; k < t.net->subdivisions; k++) {
		CHECK_OK(dn_net_input_wait(t.net));
		for (int64_t i = 0; i < t.net->local_batch; i++)
			CHECK_OK(made_get(&m.ds, k * t.net->local_batch + i, NULL, t.input + 6 * i, t.truth + 3 * i, 3, NULL));
		CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
		CHECK_OK(dn_net_backward(t.net, pass_of(t.net)));
	}
	CHECK_OK(dn_net_update(t.net, &u));
	for (int i = 0; i < t.net->n_params; i++) {
		peek_into(t.net, t.net->params[i]->value, t.net->params[i]->n, at);
		at += t.net->params[i]->n;
	}
	net_help_close(&t);
}

static void subdivisions_give_the_same_update(void)
{
	float one[64], two[64], four[64], blocks[64];

	update_once(HEAD(8, 1, 1) BODY, one);
	update_once(HEAD(8, 2, 1) BODY, two);
	update_once(HEAD(8, 4, 1) BODY, four);
	update_once(HEAD(8, 4, 1) BLOCKS, blocks);
	/* only the order of at most 8 float additions differs: rounding of a gradient times rate / 8 */
	CHECK_CLOSE(two, one, 53, 2e-7);
	CHECK_CLOSE(four, one, 53, 2e-7);
	CHECK_BITS(blocks, four, 53 * sizeof(float)); /* blocks share the slot and change nothing */
}

static void rolling_statistics_move_by_a_hundredth(void)
{
	struct net_help t;
	struct dn_param *p = NULL;
	float value[5], want[5];

	open_net(&t, HEAD(8, 1, 1) NORM);
	CHECK_OK(dn_net_forward(t.net, pass_of(t.net)));
	for (int i = 0; i < t.net->n_params; i++)
		if (!strcmp(t.net->params[i]->name, "0.rolling_mean"))
			p = t.net->params[i];
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	for (int i = 0; i < 5; i++) {
		value[i] = (float)(i + 1);
		want[i] = (float)(.99 * (i + 1) + .01 * *peek(t.net, &p->stat[i], 1));
	}
	poke(t.net, p->value, 5, value);
	CHECK_OK(t.net->store.ops->stats(t.net->store.self, t.net));
	CHECK_CLOSE(peek(t.net, p->value, 5), want, 5, 2e-7); /* .99f and two roundings */
	net_help_close(&t);
}

static void ranges_are_read_and_written_with_bounds(void)
{
	struct net_help t;
	const struct dn_store_ops *s;
	float x[4] = { 1, 2, 3, 4 }, y[4];
	struct dn_param *p;

	open_net(&t, HEAD(8, 1, 1) BODY);
	s = t.net->store.ops;
	p = t.net->params[1];
	CHECK_OK(s->write(t.net->store.self, p, DN_STATE0, 26, 4, x));
	CHECK_OK(s->read(t.net->store.self, p, DN_STATE0, 26, 4, y));
	CHECK_BITS(y, x, sizeof(x));
	CHECK_FAILS(s->read(t.net->store.self, p, DN_VALUE, 27, 4, y), -EINVAL, p->name);
	CHECK_FAILS(s->read(t.net->store.self, p, DN_VALUE, -1, 1, y), -EINVAL, p->name);
	CHECK_FAILS(s->write(t.net->store.self, p, DN_STATE1, 0, 1, x), -EINVAL, "no part");
	CHECK_FAILS(dn_whole_attach(t.net), -EEXIST, "store");
	net_help_close(&t);
}

static const struct check_case cases[] = {
	{ "planned_bytes_are_what_is_allocated", planned_bytes_are_what_is_allocated },
	{ "tensors_lie_on_boundaries_and_frozen_ones_have_no_gradient",
	  tensors_lie_on_boundaries_and_frozen_ones_have_no_gradient },
	{ "subdivisions_give_the_same_update", subdivisions_give_the_same_update },
	{ "rolling_statistics_move_by_a_hundredth", rolling_statistics_move_by_a_hundredth },
	{ "ranges_are_read_and_written_with_bounds", ranges_are_read_and_written_with_bounds },
	{ NULL, NULL },
};

int main(void)
{
	return train_help_run("train_whole_store", cases);
}
