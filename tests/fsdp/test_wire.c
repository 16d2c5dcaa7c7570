/* Values and gradients that travel as 16 bits: T16 (cast points), T37 (training), by ranks in one process. */
#include "plan_nets.h"
#include "train_ranks.h"

/* uneven blocks; tensors of fewer elements than there are ranks */
#define BODY(normed) \
	"[block]\nname=head\n[convolutional]\nfilters=5\nsize=3\npad=1\nactivation=leaky\n" \
	"[block]\nname=pool\n[maxpool]\nsize=2\nstride=2\n" \
	"[block]\nname=mid\n[convolutional]\nbatch_normalize=" normed "\nfilters=7\nsize=3\npad=1\nactivation=leaky\n" \
	"[connected]\noutput=3\nactivation=tanh\n" \
	"[block]\nname=wide\n[connected]\noutput=61\nactivation=leaky\n" \
	"[block]\nname=tail\n[connected]\noutput=6\nactivation=linear\n[softmax]\n"
#define NET(sub, normed) "[net]\nbatch=24\nsubdivisions=" sub "\nwidth=8\nheight=8\nchannels=2\n" BODY(normed)

static const enum dn_type halves[] = { DN_BF16, DN_F16 };

static float rounded(enum dn_type type, float x)
{
	const struct dn_backend *ref = dn_backend_find("ref");
	uint16_t h;

	CHECK_OK(ref->narrow(NULL, type, 1, &x, &h));
	CHECK_OK(ref->widen(NULL, type, 1, &h, &x));
	return x;
}

static int64_t n_rounded(enum dn_type type, const float *x, int64_t n)
{
	int64_t same = 0;

	for (int64_t i = 0; i < n; i++)
		same += rounded(type, x[i]) == x[i];
	return same;
}

static struct train_job job_of(const char *cfg, int world, enum dn_type wire, enum dn_type reduce)
{
	struct train_job j = train_job_of(cfg, world);

	j.opt.wire = (struct fsdp_wire){ wire, reduce };
	return j;
}

static void as_planned(const struct train_job *j)
{
	CHECK_EQ(j->report.gather.counted_bytes, j->report.gather.planned_bytes);
	CHECK_EQ(j->report.gather.counted_calls, j->report.gather.planned_calls);
	CHECK_EQ(j->report.reduce.counted_bytes, j->report.reduce.planned_bytes);
	CHECK_EQ(j->report.reduce.counted_calls, j->report.reduce.planned_calls);
}

/* --- T16: where the casts are --- */

static int round_values(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	(void)p;
	(void)at;
	for (int64_t i = 0; i < n; i++)
		x[i] = rounded(*(enum dn_type *)arg, x[i]);
	return 0;
}

static void start_rounded(struct train_job *j, int rank, struct dn_net *net)
{
	(void)rank;
	for (int i = 0; i < net->n_params; i++)
		if (net->params[i]->role == DN_TRAINED)
			CHECK_OK(net->store.ops->each(net->store.self, net->params[i], DN_VALUE, DN_READ | DN_WRITE, round_values,
						      &j->opt.wire.gather));
}

/* A rank computes with what a plain run computes with whose values were rounded before, and updates what was not. */
static void T16_layers_see_rounded_values_and_updates_do_not(void)
{
	for (int t = 0; t < 2; t++) {
		struct train_job plain = job_of(NET("2", "0"), 1, halves[t], DN_F32), start = plain;
		struct train_job grads = job_of(NET("1", "0"), 2, halves[t], DN_F32), step = grads;
		int64_t off = 0, wrong = 0;

		plain.plain = start.plain = true;
		plain.steps = start.steps = grads.steps = 0;
		step.steps = 1;
		plain.start = start_rounded;
		train_run(&plain);
		train_run(&start); /* values as they are at first */
		train_run(&grads);
		train_run(&step);
		CHECK_EQ(grads.n_trained, plain.n_trained);
		CHECK_BITS(grads.grads, plain.grads, (size_t)plain.n_trained * sizeof(float));
		CU_ASSERT(n_rounded(halves[t], start.values, start.n_trained) < start.n_trained / 2);
		for (int64_t i = 0; i < plain.n_trained; i++) {
			/* of a first step: v = g - decay E w, w += rate / E v; the decay of biases is none */
			const float w = start.values[i], g = plain.grads[i];
			const float v = 1.0f * g - (float)(.01 * TRAIN_BATCH) * w, of_bias = 1.0f * g;

			off += step.values[i] == w;
			wrong += step.values[i] != w + (float)(.1 / TRAIN_BATCH) * v &&
				 step.values[i] != w + (float)(.1 / TRAIN_BATCH) * of_bias;
		}
		CHECK_EQ(wrong, 0);
		CU_ASSERT(off < plain.n_trained / 4);
		train_fini(&plain);
		train_fini(&start);
		train_fini(&grads);
		train_fini(&step);
	}
}

/* Gradients of two ranks, or of two microbatches of one: each is rounded once, and the sum is not. */
static void T16_each_gradient_is_rounded_once_and_sums_are_not(void)
{
	for (int t = 0; t < 2; t++)
		for (int w = 0; w < 2; w++) {
			const enum dn_type wire = w ? DN_BF16 : DN_F32;
			struct train_job one = job_of(NET("2", "0"), 1, wire, halves[t]);
			struct train_job two = job_of(NET("1", "0"), 2, wire, halves[t]);
			struct train_job full = job_of(NET("1", "0"), 2, wire, DN_F32);

			one.steps = two.steps = full.steps = 0;
			train_run(&one);
			train_run(&two);
			train_run(&full);
			CHECK_BITS(two.grads, one.grads, (size_t)one.n_trained * sizeof(float));
			CU_ASSERT(memcmp(two.grads, full.grads, (size_t)one.n_trained * sizeof(float)) != 0);
			CU_ASSERT(train_distance(two.grads, full.grads, one.n_trained) < (t ? 0x1p-11 : 0x1p-8));
			/* sums of two numbers of few digits have more of them */
			CU_ASSERT(n_rounded(halves[t], two.grads, two.n_trained) < two.n_trained * 9 / 10);
			train_fini(&one);
			train_fini(&two);
			train_fini(&full);
		}
}

static void T16_two_ranks_train_as_one_with_two_microbatches(void)
{
	for (int k = 0; k < 4; k++) {
		struct train_job one = job_of(NET("2", "0"), 1, halves[k % 2], halves[k / 2]);
		struct train_job two = job_of(NET("1", "0"), 2, halves[k % 2], halves[k / 2]);

		one.backend = two.backend = k & 1 ? "cpu" : "ref";
		train_run(&one);
		train_run(&two);
		CHECK_EQ(one.n_values, two.n_values);
		CHECK_BITS(two.values, one.values, (size_t)one.n_values * sizeof(float));
		CHECK_EQ(one.n_allocs, 0);
		CU_ASSERT(n_rounded(halves[k % 2], two.values, two.n_values) < two.n_values / 2); /* masters keep their digits */
		train_fini(&one);
		train_fini(&two);
	}
}

/* --- T37 in training --- */

static void T37_slots_prefetch_release_and_other_passes_change_no_bit(void)
{
	for (int world = 1; world <= 4; world++)
		for (int t = 0; t < 2; t++) {
			struct train_job first = job_of(NET("2", "1"), world, halves[t], halves[!t]);

			train_run(&first);
			CU_ASSERT(isfinite(first.loss[2]));
			as_planned(&first);
			for (int k = 0; k < 5; k++) {
				struct train_job j = job_of(NET("2", "1"), world, halves[t], halves[!t]);

				j.opt.limit = 1 + k % 3;
				j.opt.depth = j.opt.limit - 1;
				j.opt.grad_slots = 1 + k % 2;
				j.opt.prefetch = (enum fsdp_prefetch)(k % 3);
				j.opt.stay = k == 2 ? 1 : k == 3 && world == 4 ? 2 : 0;
				j.opt.recompute = k == 4 ? "all" : NULL;
				j.other_passes = k & 1;
				j.early = k & 2;
				train_run(&j);
				train_same_bits(&j, &first);
				as_planned(&j);
				train_fini(&j);
			}
			train_fini(&first);
		}
}

struct way {
	enum fsdp_strategy strategy;
	int shards;
};

/* values travel under all of these: by gathers, or behind updates */
static const struct way ways[] = { { FSDP_FULL, 0 },	    { FSDP_GRAD_OP, 0 },	{ FSDP_OPT, 0 },
				   { FSDP_HYBRID_FULL, 2 }, { FSDP_HYBRID_GRAD_OP, 2 }, { FSDP_HYBRID_FULL_OPT, 2 } };
#define N_WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

static bool hybrid(const struct way *w)
{
	return w->shards > 0;
}

static void T37_strategies_have_the_same_bits(void)
{
	static const enum fsdp_accumulate sums[] = { FSDP_SHARDED_SUM, FSDP_NO_SYNC, FSDP_NO_SYNC_KEEP, FSDP_HYBRID_LAST };

	for (int world = 2; world <= 4; world++)
		for (int a = 0; a < 4; a++)
			for (int r = 0; r < 2; r++) {
				struct train_job first[2];
				bool has[2] = { false, false };

				for (int k = 0; k < N_WAYS; k++) {
					/* copies round what is left of a sum once more */
					const int class = (r || sums[a] == FSDP_HYBRID_LAST) && hybrid(&ways[k]);
					struct train_job j = job_of(NET("2", "1"), world, DN_BF16, r ? DN_BF16 : DN_F32);

					if (hybrid(&ways[k]) && world != 4)
						continue;
					j.opt.strategy = ways[k].strategy;
					j.opt.shards = ways[k].shards;
					j.opt.accumulate = sums[a];
					j.opt.grad_slots = sums[a] >= FSDP_NO_SYNC ? 0 : 2;
					j.other_passes = k & 1;
					j.early = k & 2;
					train_run(&j);
					as_planned(&j);
					if (has[class])
						train_same_bits(&j, &first[class]);
					else
						first[class] = j;
					if (has[class])
						train_fini(&j);
					has[class] = true;
				}
				for (int class = 0; class < 2; class ++)
					if (has[class])
						train_fini(&first[class]);
			}
}

/* where nothing but gradients travels, values are not rounded: the bits of the others with wire=fp32, whatever is asked for */
static void T37_what_does_not_travel_is_not_rounded(void)
{
	for (int world = 2; world <= 4; world++) {
		struct train_job full = job_of(NET("2", "1"), world, DN_F32, DN_F16);
		struct train_job same = job_of(NET("2", "1"), world, DN_BF16, DN_F16);

		same.opt.strategy = FSDP_REPLICATE;
		train_run(&full);
		train_run(&same);
		train_same_bits(&same, &full);
		CHECK_EQ(same.report.gather.counted_bytes, 0);
		train_fini(&full);
		train_fini(&same);
	}
}

/* --- values that are written outside a step --- */

static float outputs[2][RANKS_MAX][TRAIN_CLASSES];
static int which;

static void write_and_pass(struct train_job *j, int rank, struct dn_net *net)
{
	const size_t bytes = (size_t)(net->local_batch * net->inputs) * sizeof(float);
	struct dn_layer *last = &net->layers[net->output_layer];
	struct dn_pass pass = { .phase = DN_INFER };
	float *x = NULL, *y = NULL, *in = calloc(65536, sizeof(float));

	(void)j;
	for (int i = 0; i < net->n_params; i++) {
		const struct dn_param *p = net->params[i];

		CU_ASSERT_FATAL(p->n <= 65536);
		for (int64_t e = 0; e < p->n; e++)
			in[e] = .1f * noise((uint64_t)i, (uint64_t)e) + (p->role == DN_BUFFER);
		CHECK_OK(net->store.ops->write(net->store.self, net->params[i], DN_VALUE, 0, p->n, rank ? NULL : in));
	}
	CHECK_OK_FATAL(net->dev->be->alloc_host(net->dev, DN_MEM_HOST, bytes, (void **)&x));
	CHECK_OK_FATAL(net->dev->be->alloc_host(net->dev, DN_MEM_HOST, sizeof(outputs[0][0]), (void **)&y));
	for (size_t i = 0; i < bytes / sizeof(float); i++)
		x[i] = noise(77, i);
	pass.input = x;
	CHECK_OK(dn_net_forward(net, &pass));
	CHECK_OK(net->dev->be->copy(net->compute, y, last->output, sizeof(outputs[0][0])));
	CHECK_OK(net->dev->be->stream_sync(net->compute));
	memcpy(outputs[which][rank], y, sizeof(outputs[0][0]));
	net->dev->be->free_host(net->dev, x);
	net->dev->be->free_host(net->dev, y);
	free(in);
}

static void written_values_are_heard_of_before_the_next_pass(void)
{
	for (int world = 2; world <= 4; world++)
		for (int k = 0; k < N_WAYS; k++) {
			struct train_job full = job_of(NET("1", "1"), world, DN_BF16, DN_F32);
			struct train_job j = job_of(NET("1", "1"), world, DN_BF16, DN_F32);

			if (hybrid(&ways[k]) && world != 4)
				continue;
			full.look = j.look = write_and_pass;
			j.opt.strategy = ways[k].strategy;
			j.opt.shards = ways[k].shards;
			which = 0;
			train_run(&full);
			which = 1;
			train_run(&j);
			for (int r = 0; r < world; r++) {
				CHECK_BITS(outputs[0][r], outputs[0][0], sizeof(outputs[0][0]));
				CHECK_BITS(outputs[1][r], outputs[0][0], sizeof(outputs[0][0]));
			}
			train_same_bits(&j, &full);
			train_fini(&full);
			train_fini(&j);
		}
}

/* --- bytes --- */

/* gathers and reductions send half, sums that replicas share do not; memory: masters are added, staging is halved */
static void half_the_bytes_and_no_slot_grows(void)
{
	static const struct way all[] = { { FSDP_FULL, 0 },	      { FSDP_GRAD_OP, 0 },     { FSDP_OPT, 0 },
					  { FSDP_REPLICATE, 0 },      { FSDP_HYBRID_FULL, 2 }, { FSDP_HYBRID_GRAD_OP, 2 },
					  { FSDP_HYBRID_FULL_OPT, 2 } };

	for (int k = 0; k < 7; k++) {
		struct fsdp_options o = plan_defaults();
		struct planned wide, narrow;
		uint64_t shared = 0, parts = 0;

		o.policy_given = false;
		o.strategy = all[k].strategy;
		o.shards = all[k].shards;
		CHECK_OK_FATAL(planned_make(&wide, NET("2", "1"), 4, true, &o));
		o.wire = (struct fsdp_wire){ DN_BF16, DN_F16 };
		CHECK_OK_FATAL(planned_make(&narrow, NET("2", "1"), 4, true, &o));
		for (int i = 0; i < wide.plan->n_calls; i++)
			shared += wide.plan->calls[i].sums ? wide.plan->calls[i].sent_bytes : 0;
		for (int i = 0; i < narrow.plan->n_blocks; i++)
			parts += narrow.plan->blocks[i].cut_states ? (uint64_t)narrow.plan->blocks[i].part * sizeof(float) : 0;
		CHECK_EQ(2 * narrow.plan->gather_bytes, wide.plan->gather_bytes);
		CHECK_EQ(2 * (narrow.plan->reduce_bytes - shared), wide.plan->reduce_bytes - shared);
		CHECK_EQ(narrow.plan->gather_calls, wide.plan->gather_calls);
		CHECK_EQ(narrow.plan->reduce_calls, wide.plan->reduce_calls);
		CU_ASSERT(narrow.plan->hash != wide.plan->hash);
		CHECK_EQ(narrow.plan->planned[DN_MEM_PARAMS], wide.plan->planned[DN_MEM_PARAMS] + parts);
		CU_ASSERT((parts > 0) == (all[k].strategy == FSDP_OPT || all[k].strategy == FSDP_HYBRID_FULL_OPT));
		for (int r = 0; r < DN_MEM_PLANNED; r++)
			if (r != DN_MEM_PARAMS && r != DN_MEM_STAGING)
				CHECK_EQ(narrow.plan->planned[r], wide.plan->planned[r]);
		CU_ASSERT(narrow.plan->planned[DN_MEM_STAGING] < wide.plan->planned[DN_MEM_STAGING]);
		CHECK_OK(fsdp_plan_check(narrow.plan, NULL, NULL));
		planned_fini(&wide);
		planned_fini(&narrow);
	}
}

/* one of two blocks of a net whose others travel as floats */
static void a_block_says_its_own_wire(void)
{
	static const char text[] =
		NET_HEAD("1") "inputs=5\n[block]\nname=a\nwire=bf16\n" CONNECTED("7") "[block]\nname=b\n" CONNECTED("9") SOFTMAX;
	struct fsdp_options o = plan_defaults();
	struct planned p;

	o.policy = policy_of("auto");
	CHECK_OK_FATAL(planned_net(&p, text, 2, true, 1));
	fsdp_block_rules(p.net);
	CHECK_OK_FATAL(fsdp_plan_build(&p.plan, p.net, &o, 2));
	CHECK_EQ(p.plan->n_blocks, 2);
	CHECK_EQ(p.plan->calls[p.plan->blocks[0].gather_call[0]].type, DN_BF16);
	CHECK_EQ(p.plan->calls[p.plan->blocks[1].gather_call[0]].type, DN_F32);
	CHECK_EQ(p.plan->calls[p.plan->blocks[0].reduce_call[0]].type, DN_F32);
	CHECK_EQ(p.plan->calls[p.plan->blocks[0].gather_call[0]].sent_bytes, 2 * p.plan->blocks[0].shard);
	CHECK_EQ(p.plan->calls[p.plan->blocks[1].gather_call[0]].sent_bytes, 4 * p.plan->blocks[1].shard);
	planned_fini(&p);
	{
		char other[sizeof(text)];

		memcpy(other, text, sizeof(text));
		memcpy(strstr(other, "bf16"), "bf32", 4);
		CHECK_OK_FATAL(planned_net(&p, other, 2, true, 1));
		fsdp_block_rules(p.net);
		CHECK_FAILS(fsdp_plan_build(&p.plan, p.net, &o, 2), -EINVAL,
			    "test.cfg:7: wire=bf32: unknown; this version supports fp32, bf16, fp16");
		planned_fini(&p);
	}
}

/* A slot that another block takes before what stands in it was combined, and windows that lack what others read. */
static void what_narrow_gradients_take_is_seen_by_the_check(void)
{
	struct fsdp_options o = plan_defaults();
	struct planned p;
	int n = 0;

	o.strategy = FSDP_HYBRID_FULL;
	o.shards = 2;
	o.accumulate = FSDP_HYBRID_LAST;
	o.grad_slots = 1;
	o.wire.reduce = DN_BF16;
	CHECK_OK_FATAL(planned_make(&p, NET("2", "1"), 4, true, &o));
	CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
	for (int i = 0; i < p.plan->step.n_ops; i++) {
		struct fsdp_op *op = &p.plan->step.ops[i];

		for (int k = 0; k < op->n_waits; k++)
			if (op->kind == FSDP_BACKWARD && op->waits[k] / p.plan->n_blocks == FSDP_COMBINE) {
				op->waits[k] -= (FSDP_COMBINE - FSDP_REDUCE) * p.plan->n_blocks;
				n++;
			}
	}
	CU_ASSERT(n > 0);
	CHECK_FAILS(fsdp_plan_check(p.plan, NULL, NULL), -EINVAL, "grad_slots");
	planned_fini(&p);

	o = plan_defaults();
	o.transport = FSDP_SHM;
	CHECK_OK_FATAL(planned_make(&p, NET("2", "1"), 4, true, &o));
	CU_ASSERT(fsdp_place_shared(p.plan, DN_MEM_PARAMS) && !fsdp_place_shared(p.plan, DN_MEM_PARAM_SLOTS));
	planned_fini(&p);
	o.wire.gather = DN_BF16;
	CHECK_OK_FATAL(planned_make(&p, NET("2", "1"), 4, true, &o));
	CU_ASSERT(!fsdp_place_shared(p.plan, DN_MEM_PARAMS) && fsdp_place_shared(p.plan, DN_MEM_PARAM_SLOTS));
	planned_fini(&p);
}

#define CASE(f) \
	{ \
#f, f \
	}
static const struct check_case cases[] = {
	CASE(T16_layers_see_rounded_values_and_updates_do_not),
	CASE(T16_each_gradient_is_rounded_once_and_sums_are_not),
	CASE(T16_two_ranks_train_as_one_with_two_microbatches),
	CASE(T37_slots_prefetch_release_and_other_passes_change_no_bit),
	CASE(T37_strategies_have_the_same_bits),
	CASE(T37_what_does_not_travel_is_not_rounded),
	CASE(written_values_are_heard_of_before_the_next_pass),
	CASE(half_the_bytes_and_no_slot_grows),
	CASE(a_block_says_its_own_wire),
	CASE(what_narrow_gradients_take_is_seen_by_the_check),
	{ NULL, NULL },
};

int main(void)
{
	return check_run("fsdp wire", cases);
}
