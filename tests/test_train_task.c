/* train: the table of tasks, and evaluations by a task that reads two outputs and tells records of any length. */
#include "crew.h"
#include "train_help.h"

static void layer_types_name_tasks_that_are_there(void)
{
	int n = 0;

	for (int i = 0; dn_layer_table[i]; i++) {
		if (!dn_layer_table[i]->task)
			continue;
		CU_ASSERT_PTR_NOT_NULL_FATAL(dn_net_task_find(dn_layer_table[i]->task));
		CHECK_STR(dn_net_task_find(dn_layer_table[i]->task)->name, dn_layer_table[i]->task);
		n++;
	}
	CU_ASSERT(n > 0);
	CU_ASSERT_PTR_NULL(dn_net_task_find("no such task"));
}

static void the_task_follows_from_net_and_truth(void)
{
	static const struct {
		const char *last, *net_task, *with_classes, *with_dense, *without;
	} t[] = {
		{ "[softmax]\n", "classifier", "classifier", "dense", "classifier" },
		{ "[softmax]\n[cost]\n", "classifier", "classifier", "dense", "classifier" },
		{ "[logistic]\n", "dense", "classifier", "dense", "dense" },
		{ "[cost]\n", "dense", "classifier", "dense", "dense" },
		{ "[softmax]\n[connected]\noutput=3\n[cost]\n", "dense", "classifier", "dense", "dense" },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct net_help h;
		struct made d;
		char text[256];

		snprintf(text, sizeof(text), "[net]\nbatch=1\ninputs=6\n[connected]\noutput=3\n%s", t[i].last);
		CHECK_OK_FATAL(net_help_build(&h, "ref", text, NULL));
		CHECK_STR(dn_net_task_of(h.net)->name, t[i].net_task);
		make_data(&d, 5);
		CHECK_STR(dn_net_task_for(h.net, &d.ds)->name, t[i].with_classes);
		d.ds.classes = 0;
		d.ds.truths = 3;
		CHECK_STR(dn_net_task_for(h.net, &d.ds)->name, t[i].with_dense);
		d.ds.has_truth = false;
		d.ds.truths = 0;
		CHECK_STR(dn_net_task_for(h.net, &d.ds)->name, t[i].without);
		net_help_close(&h);
	}
}

static void dense_targets_are_scored_by_their_loss(void)
{
	const struct dn_eval_options quiet = { 0 }, listens = { .fn = see };
	struct dn_result r;
	struct net_help t;
	struct made d;

	make_data(&d, 7);
	d.ds.classes = 0;
	d.ds.truths = 3;
	open_net(&t, HEAD(4, 1, 1) BODY);
	CHECK_OK_FATAL(dn_evaluate(t.net, &d.ds, &quiet, &alone, &r));
	CHECK_STR(r.task->name, "dense");
	CHECK_EQ(r.images, 7);
	CHECK_STR(r.text, "");
	CU_ASSERT(isfinite(r.score) && r.score == -r.loss);
	CU_ASSERT(dn_result_field(&r, "top1") == 0 && dn_result_field(&r, "topk") == 0);
	CU_ASSERT(isnan(dn_result_field(&r, "top2")));
	CHECK_FAILS(dn_evaluate(t.net, &d.ds, &listens, &alone, &r), -EINVAL, "made-7: the task dense tells nothing of single");
	net_help_close(&t);
}

/* --- a task of the test: it reads the last output and another one; of image i it tells i % 4 numbers of it --- */

struct two {
	double a, b; /* sums of both outputs */
	int64_t images;
};

static int begins, ends, bad_index = -1;

static int two_begin(struct dn_eval *e)
{
	__atomic_add_fetch(&begins, 1, __ATOMIC_RELAXED);
	return 0;
}

static int two_image(struct dn_eval *e, const struct dn_eval_image *im)
{
	struct two *own = e->own;

	if (im->index == bad_index)
		return dn_fail(-EILSEQ, "image %d is bad", bad_index);
	CHECK_EQ(e->net->n_outputs, 2);
	CHECK_EQ(im->cls, im->index % 3);
	CU_ASSERT(im->truth[im->cls] == 1);
	for (int64_t i = 0; i < e->net->layers[e->net->outputs[0]].outputs; i++)
		own->a += (double)im->y[0][i];
	for (int64_t i = 0; i < e->net->layers[e->net->outputs[1]].outputs; i++)
		own->b += fabs((double)im->y[1][i]);
	own->images++;
	return 0;
}

static int two_record(struct dn_eval *e, const struct dn_eval_image *im, struct dn_buf *out)
{
	return dn_buf_add(out, (const char *)im->y[1], (size_t)(im->index % 4) * sizeof(float));
}

static int two_sum(struct dn_eval *e)
{
	struct two *own = e->own;
	double x[2] = { own->a, own->b };
	int err = dn_group_sum(e->group, x, 2);

	own->a = x[0];
	own->b = x[1];
	return err;
}

static void two_report(const struct dn_eval *e, char *out, size_t cap)
{
	snprintf(out, cap, "%lld of %s", (long long)e->images, "both");
}

static double two_score(const struct dn_eval *e)
{
	return ((const struct two *)e->own)->b;
}

static int two_fields(const struct dn_eval *e, struct dn_field *out)
{
	out[0] = (struct dn_field){ "a", ((const struct two *)e->own)->a };
	return 1;
}

static void two_end(struct dn_eval *e)
{
	__atomic_add_fetch(&ends, 1, __ATOMIC_RELAXED);
}

static const struct dn_net_task two = {
	.name = "two",
	.own_bytes = sizeof(struct two),
	.begin = two_begin,
	.image = two_image,
	.record = two_record,
	.sum = two_sum,
	.report = two_report,
	.score = two_score,
	.fields = two_fields,
	.end = two_end,
};

static bool first_layer(const struct dn_layer *l)
{
	return l->index == 0;
}

struct heard {
	int64_t n;
	size_t floats;
	float x[64];
};

static int hear(void *arg, int64_t index, const void *record, size_t bytes)
{
	struct heard *h = arg;

	CHECK_EQ(index, h->n++);
	CHECK_EQ(bytes, (size_t)(index % 4) * sizeof(float));
	CHECK_EQ((uintptr_t)record % 8, 0);
	if (h->floats + 4 <= sizeof(h->x) / sizeof(h->x[0]))
		memcpy(h->x + h->floats, record, bytes);
	h->floats += bytes / sizeof(float);
	return 0;
}

struct judge {
	struct crew_member me;
	bool train, deaf; /* nobody listens */
	int threads;
	int64_t n, unreadable; /* samples, 0: 13; the one that cannot be read, 0: none */
	uint64_t n_allocs;
	struct heard heard;
	struct dn_result r;
	int err;
	char message[512];
};

static int unreadable_get(const struct dn_dataset *ds, int64_t i, const struct dn_sample_key *key, float *x, float *t,
			  int64_t n_truths, int64_t *cls)
{
	const struct judge *j = ds->priv;
	struct made d;
	struct dn_dataset same = *ds;

	if (j->unreadable && i >= j->unreadable)
		return dn_fail(-EIO, "sample %lld cannot be read", (long long)i);
	memset(&d, 0, sizeof(d));
	same.priv = &d;
	return made_get(&same, i, key, x, t, n_truths, cls);
}

static void *judge_main(void *arg)
{
	struct judge *j = arg;
	const struct dn_group g = crew_group(&j->me);
	const struct dn_net_options o = { .rank = g.rank, .world = g.world, .train = j->train, .seed = 7, .needs = first_layer };
	const struct dn_eval_options e = {
		.task = &two, .fn = g.rank || j->deaf ? NULL : hear, .arg = &j->heard, .threads = j->threads
	};
	struct net_help t;
	struct made d;

	make_data(&d, j->n ? j->n : 13);
	d.ds.get = unreadable_get;
	d.ds.priv = j;
	j->err = net_help_build(&t, "ref", HEAD(12, 1, 1) BODY, &o);
	if (!j->err)
		j->err = net_help_ready(&t, true);
	j->n_allocs = dn_mem_n_allocs();
	if (!j->err)
		j->err = dn_evaluate(t.net, &d.ds, &e, &g, &j->r);
	j->n_allocs = dn_mem_n_allocs() - j->n_allocs;
	snprintf(j->message, sizeof(j->message), "%s", dn_message());
	net_help_close(&t);
	return NULL;
}

static void a_task_reads_several_outputs_on_all_ranks(void)
{
	struct judge first, j[CREW_MAX];

	for (int world = 1; world <= 4; world++)
		for (int train = 0; train < 2; train++) {
			if (world == 3 && train)
				continue;
			begins = ends = 0;
			memset(j, 0, sizeof(j));
			for (int r = 0; r < world; r++)
				j[r].train = train;
			crew_run(world, judge_main, j, sizeof(j[0]));
			for (int r = 0; r < world; r++) {
				if (j[r].err)
					fprintf(stderr, "rank %d of %d: %s\n", r, world, j[r].message);
				CHECK_EQ(j[r].err, 0);
				CHECK_EQ(j[r].r.images, 13);
				CHECK_STR(j[r].r.text, "13 of both");
				CU_ASSERT_DOUBLE_EQUAL(dn_result_field(&j[r].r, "a"), 13, 1e-5); /* softmax */
				CU_ASSERT(j[r].r.score > 0);
				CHECK_EQ(j[r].heard.n, r ? 0 : 13);
			}
			CHECK_EQ(begins, world);
			CHECK_EQ(ends, world);
			if (world == 1 && !train)
				first = j[0];
			CHECK_EQ(j[0].heard.floats, 3 * 6 + 0);
			CHECK_BITS(j[0].heard.x, first.heard.x, sizeof(first.heard.x));
			CU_ASSERT_DOUBLE_EQUAL(j[0].r.score, first.r.score, 1e-6 * first.r.score);
		}
}

static void an_image_that_fails_on_one_rank_fails_on_all(void)
{
	struct judge j[CREW_MAX];

	for (int deaf = 0; deaf < 2; deaf++)
		for (bad_index = 0; bad_index < 13; bad_index += 4) {
			memset(j, 0, sizeof(j));
			j[0].deaf = j[1].deaf = deaf;
			begins = ends = 0;
			crew_run(2, judge_main, j, sizeof(j[0]));
			for (int r = 0; r < 2; r++) {
				CHECK_EQ(j[r].err, -EILSEQ);
				CU_ASSERT_PTR_NOT_NULL(strstr(j[r].message, "is bad"));
			}
			CHECK_EQ(ends, 2);
		}
	bad_index = -1;
}

static void threads_that_decode_change_no_bit(void)
{
	struct judge one[CREW_MAX], j[CREW_MAX];

	for (int world = 1; world <= 4; world++)
		for (int threads = 1; threads <= 4; threads++) {
			memset(j, 0, sizeof(j));
			for (int r = 0; r < world; r++)
				j[r].threads = threads;
			crew_run(world, judge_main, j, sizeof(j[0]));
			if (threads == 1)
				memcpy(one, j, sizeof(j));
			for (int r = 0; r < world; r++) {
				CHECK_EQ(j[r].err, 0);
				CHECK_BITS(&j[r].r.loss, &one[r].r.loss, sizeof(double));
				CHECK_BITS(&j[r].r.score, &one[r].r.score, sizeof(double));
				CHECK_BITS(&j[r].heard, &one[r].heard, sizeof(j[r].heard));
			}
		}
}

/* the lowest of those that cannot be, whoever has it, after all before it were told */
static void a_sample_that_cannot_be_read_ends_the_evaluation_on_all_ranks(void)
{
	struct judge j[CREW_MAX];

	for (int world = 1; world <= 3; world++)
		for (int threads = 1; threads <= 3; threads++) {
			memset(j, 0, sizeof(j));
			for (int r = 0; r < world; r++) {
				j[r].threads = threads;
				j[r].n = 60;
				j[r].unreadable = 29;
			}
			crew_run(world, judge_main, j, sizeof(j[0]));
			for (int r = 0; r < world; r++) {
				CHECK_EQ(j[r].err, -EIO);
				CU_ASSERT_PTR_NOT_NULL(strstr(j[r].message, "sample 29 cannot be read"));
			}
			CHECK_EQ(j[0].heard.n, 24);
		}
}

static void batches_after_the_first_allocate_nothing(void)
{
	for (int deaf = 0; deaf < 2; deaf++) {
		struct judge few[CREW_MAX], many[CREW_MAX];

		memset(few, 0, sizeof(few));
		memset(many, 0, sizeof(many));
		few[0].deaf = many[0].deaf = deaf;
		few[0].threads = many[0].threads = 2;
		few[0].n = 24;
		many[0].n = 2400;
		crew_run(1, judge_main, few, sizeof(few[0]));
		crew_run(1, judge_main, many, sizeof(many[0]));
		CHECK_EQ(few[0].err, 0);
		CHECK_EQ(many[0].err, 0);
		CHECK_EQ(many[0].n_allocs, few[0].n_allocs);
	}
}

static const struct check_case cases[] = {
	{ "threads_that_decode_change_no_bit", threads_that_decode_change_no_bit },
	{ "a_sample_that_cannot_be_read_ends_the_evaluation_on_all_ranks",
	  a_sample_that_cannot_be_read_ends_the_evaluation_on_all_ranks },
	{ "batches_after_the_first_allocate_nothing", batches_after_the_first_allocate_nothing },
	{ "layer_types_name_tasks_that_are_there", layer_types_name_tasks_that_are_there },
	{ "the_task_follows_from_net_and_truth", the_task_follows_from_net_and_truth },
	{ "dense_targets_are_scored_by_their_loss", dense_targets_are_scored_by_their_loss },
	{ "a_task_reads_several_outputs_on_all_ranks", a_task_reads_several_outputs_on_all_ranks },
	{ "an_image_that_fails_on_one_rank_fails_on_all", an_image_that_fails_on_one_rank_fails_on_all },
	{ NULL, NULL },
};

int main(void)
{
	return train_help_run("train_task", cases);
}
