/* train: evaluation. */
#include "train_help.h"

static void top_k_orders_ties_by_index_and_nan_last(void)
{
	const float x[6] = { 1, NAN, 3, 3, -INFINITY, 2 };
	int64_t k[8];

	dn_top_k(x, 6, 8, k);
	CHECK_EQ(k[0], 2);
	CHECK_EQ(k[1], 3);
	CHECK_EQ(k[2], 5);
	CHECK_EQ(k[3], 0);
	CHECK_EQ(k[4], 4);
	CHECK_EQ(k[5], 1);
	CHECK_EQ(k[6], -1);
	dn_top_k(x, 6, 1, k);
	CHECK_EQ(k[0], 2);
}

static void every_image_is_evaluated_once_in_lists_of_any_length(void)
{
	for (int64_t n = 1; n <= 21; n++) {
		struct seen s = { 0 };
		struct dn_result m;
		struct net_help t;
		struct made d;

		make_data(&d, n);
		open_net(&t, HEAD(16, 2, 1) BODY); /* 8 images a pass */
		CHECK_OK_FATAL(
			dn_evaluate(t.net, &d.ds, &(struct dn_eval_options){ .top = 2, .fn = see, .arg = &s }, &alone, &m));
		CHECK_EQ(m.images, n);
		CHECK_EQ(s.n, n);
		CHECK_EQ(s.wrong_order, 0);
		CU_ASSERT(dn_result_field(&m, "top1") == (double)s.top1 / (double)n);
		CU_ASSERT(dn_result_field(&m, "topk") == (double)s.top2 / (double)n);
		CU_ASSERT_PTR_NOT_NULL(strstr(m.text, ", top 2: "));
		CU_ASSERT_DOUBLE_EQUAL(m.loss, s.loss, 1e-6 * (double)n); /* float costs, summed in double */
		net_help_close(&t);
	}
}

static void evaluation_works_without_truth_and_leaves_the_net_as_it_was(void)
{
	struct seen s = { 0 };
	struct dn_result m;
	struct net_help t;
	struct made d;
	float before[64];
	int64_t n = 0;

	make_data(&d, 5);
	d.ds.has_truth = false;
	d.ds.classes = 0;
	open_net(&t, HEAD(8, 1, 1) NORM);
	for (int i = 0; i < t.net->n_params; i++)
		if (t.net->params[i]->role == DN_BUFFER) {
			peek_into(t.net, t.net->params[i]->value, t.net->params[i]->n, before + n);
			n += t.net->params[i]->n;
		}
	CHECK_OK_FATAL(dn_evaluate(t.net, &d.ds, &(struct dn_eval_options){ .top = 5, .fn = see, .arg = &s }, &alone, &m));
	CHECK_EQ(s.n, 5);
	CHECK_EQ(m.loss == 0, 1);
	CHECK_STR(m.text, "top 1: 0.000000, top 3: 0.000000");
	n = 0;
	for (int i = 0; i < t.net->n_params; i++)
		if (t.net->params[i]->role == DN_BUFFER) {
			CHECK_BITS(peek(t.net, t.net->params[i]->value, t.net->params[i]->n), before + n,
				   (size_t)t.net->params[i]->n * sizeof(float));
			n += t.net->params[i]->n;
		}
	net_help_close(&t);
}

static const struct check_case cases[] = {
	{ "top_k_orders_ties_by_index_and_nan_last", top_k_orders_ties_by_index_and_nan_last },
	{ "every_image_is_evaluated_once_in_lists_of_any_length", every_image_is_evaluated_once_in_lists_of_any_length },
	{ "evaluation_works_without_truth_and_leaves_the_net_as_it_was",
	  evaluation_works_without_truth_and_leaves_the_net_as_it_was },
	{ NULL, NULL },
};

int main(void)
{
	return train_help_run("train_metric", cases);
}
