/* The far back end finds what breaks the contract: each fault is planted in a process of its own, which must end with the
 * report, or tell that its result is wrong; without the fault the same work passes. */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../net_help.h"
#include "base/log.h"
#include "far.h"

#define NOT_FOUND 0 /* how a process that was told to err ends */
#define FOUND 7	    /* its result was wrong, and it saw that */

/* [net], in one block, that trains */
static const char cfg[] = "[net]\nbatch=4\nsubdivisions=2\ninputs=6\nlearning_rate=.05\nmax_batches=9\n[connected]\noutput=5\n"
			  "batch_normalize=1\nactivation=leaky\n[connected]\noutput=3\nactivation=linear\n[softmax]\n";
static const char conv[] = "[net]\nbatch=2\nwidth=5\nheight=5\nchannels=2\n[conv]\nfilters=3\nsize=3\npad=1\n[cost]\n";

static struct net_help open_far(const char *text)
{
	struct net_help t;

	if (net_help_build(&t, "far", text, NULL) || net_help_ready(&t, false)) {
		fprintf(stderr, "set-up: %s\n", dn_message());
		_exit(9);
	}
	return t;
}

static void must(int err)
{
	if (!err)
		return;
	fprintf(stderr, "set-up: %s\n", dn_message());
	_exit(9);
}

static int wrong(bool is_wrong)
{
	return is_wrong ? FOUND : NOT_FOUND;
}

/* --- lies that a table may tell --- */

static int lie_event_wait(struct dn_event *ev)
{
	return 0;
}

static int lie_stream_wait(struct dn_stream *st, struct dn_event *ev)
{
	return 0;
}

static int lie_sync(struct dn_stream *st)
{
	return 0;
}

static int lie_zero(struct dn_stream *st, void *dst, size_t bytes)
{
	return 0;
}

static void lie_abort(struct dn_stream *st)
{
}

/* --- a device and streams without a net --- */

struct bare {
	struct dn_device *dev;
	struct dn_stream *compute, *comm;
	struct dn_event *ev, *back;
	float *a, *b, *host; /* [1000]: device, device, host */
};

enum { N = 1000, BYTES = N * sizeof(float) };

static struct bare open_bare(void)
{
	struct bare x;

	must(far_table.open(DN_CPU(1), &x.dev));
	must(far_table.stream_create(x.dev, DN_STREAM_COMPUTE, "compute", 0, &x.compute));
	must(far_table.stream_create(x.dev, DN_STREAM_COMM, "comm", 64, &x.comm));
	must(far_table.event_create(x.dev, "ev", 8, &x.ev));
	must(far_table.event_create(x.dev, "back", 8, &x.back));
	must(far_table.alloc(x.dev, DN_MEM_PARAMS, BYTES, (void **)&x.a));
	must(far_table.alloc(x.dev, DN_MEM_GRADS, BYTES, (void **)&x.b));
	must(far_table.alloc_host(x.dev, DN_MEM_STAGING, BYTES, (void **)&x.host));
	return x;
}

/* b = value everywhere, on @st, in several ops */
static void fill(const struct bare *x, struct dn_stream *st, float value)
{
	for (int i = 0; i < N; i++)
		x->host[i] = value / 4;
	must(far_table.copy(st, x->a, x->host, BYTES));
	must(far_table.stream_sync(st));
	must(far_table.zero(st, x->b, BYTES));
	for (int k = 0; k < 4; k++)
		must(far_table.axpby(st, DN_F32, N, 1, x->a, 1, x->b));
}

static bool host_is(const struct bare *x, float value)
{
	for (int i = 0; i < N; i++)
		if (!(x->host[i] == value))
			return false;
	return true;
}

/* --- the faults --- */

static int a_host_that_reads_a_weight(bool plant)
{
	struct net_help t = open_far(cfg);
	volatile float v = plant ? *t.net->params[0]->value : *peek(t.net, t.net->params[0]->value, 1);

	return wrong(v > 0 && v < 0);
}

static int a_host_that_writes_an_output(bool plant)
{
	struct net_help t = open_far(cfg);

	if (plant)
		memset(t.net->layers[0].output, 0, 8);
	else
		poke(t.net, t.net->layers[0].output, 2, (float[]){ 0, 0 });
	return NOT_FOUND;
}

static int a_host_pointer_given_to_an_op(bool plant)
{
	struct bare x = open_bare();

	must(far_table.zero(x.compute, x.b, BYTES));
	must(far_table.axpby(x.compute, DN_F32, N, 1, x.b, 0, plant ? x.host : x.a));
	must(far_table.stream_sync(x.compute));
	return NOT_FOUND;
}

static int a_copy_into_memory_that_is_not_pinned(bool plant)
{
	struct bare x = open_bare();
	float own[N];

	must(far_table.zero(x.compute, x.b, BYTES));
	must(far_table.copy(x.compute, plant ? own : x.host, x.b, BYTES));
	must(far_table.stream_sync(x.compute));
	return NOT_FOUND;
}

static int an_op_past_the_end_of_its_memory(bool plant)
{
	struct bare x = open_bare();

	must(far_table.zero(x.compute, x.b + 1, plant ? BYTES : BYTES - sizeof(float)));
	must(far_table.stream_sync(x.compute));
	return NOT_FOUND;
}

static int an_input_overwritten_before_it_was_read(bool plant)
{
	struct net_help t = open_far(cfg);

	must(dn_net_forward(t.net, pass_of(t.net)));
	if (!plant)
		must(dn_net_input_wait(t.net));
	t.input[3] = 5;
	dn_net_drain(t.net);
	return NOT_FOUND;
}

static int numbers_overwritten_before_they_were_read(bool plant)
{
	struct net_help t = open_far(cfg);

	if (plant)
		far_table.event_wait = lie_event_wait;
	for (uint64_t i = 0; i < 3; i++) {
		pass_of(t.net)->first_image = i;
		must(dn_net_forward(t.net, pass_of(t.net)));
	}
	dn_net_drain(t.net);
	return NOT_FOUND;
}

static int a_cost_read_without_a_wait(bool plant)
{
	struct net_help t = open_far(cfg);
	double loss;

	if (plant)
		far_table.event_wait = lie_event_wait;
	must(dn_net_forward(t.net, pass_of(t.net)));
	must(dn_net_loss(t.net, pass_of(t.net), &loss));
	return wrong(!isfinite(loss));
}

static int an_output_read_without_a_wait(bool plant)
{
	struct net_help t = open_far(cfg);
	float *y = pinned(&t, t.net->local_batch * 3);
	double sum = 0;

	must(dn_net_forward(t.net, pass_of(t.net)));
	if (plant)
		far_table.stream_sync = lie_sync;
	must(dn_layer_read(&t.net->layers[2], 0, t.net->local_batch, y));
	for (int64_t i = 0; i < t.net->local_batch * 3; i++)
		sum += y[i];
	return wrong(!(fabs(sum - (double)t.net->local_batch) < 1e-5));
}

static int communication_that_does_not_wait_for_compute(bool plant)
{
	struct bare x = open_bare();
	bool bad = false;

	if (plant)
		far_table.stream_wait = lie_stream_wait;
	for (int round = 1; round <= 40 && !bad; round++) {
		fill(&x, x.compute, (float)round);
		must(far_table.event_record(x.ev, x.compute));
		must(far_table.stream_wait(x.comm, x.ev));
		must(far_table.copy(x.comm, x.host, x.b, BYTES));
		must(far_table.stream_sync(x.comm));
		bad = !host_is(&x, (float)round);
		must(far_table.stream_sync(x.compute));
	}
	return wrong(bad);
}

static int compute_that_does_not_wait_for_communication(bool plant)
{
	struct bare x = open_bare();
	bool bad = false;

	if (plant)
		far_table.stream_wait = lie_stream_wait;
	for (int round = 1; round <= 40 && !bad; round++) {
		fill(&x, x.comm, (float)round);
		must(far_table.event_record(x.ev, x.comm));
		must(far_table.stream_wait(x.compute, x.ev));
		must(far_table.copy(x.compute, x.host, x.b, BYTES));
		must(far_table.stream_sync(x.compute));
		bad = !host_is(&x, (float)round);
		must(far_table.stream_sync(x.comm));
	}
	return wrong(bad);
}

static int communication_that_writes_what_compute_still_reads(bool plant)
{
	struct bare x = open_bare();
	bool bad = false;

	for (int round = 1; round <= 40 && !bad; round++) {
		fill(&x, x.compute, (float)round);
		must(far_table.copy(x.compute, x.host, x.b, BYTES));
		must(far_table.event_record(x.back, x.compute));
		if (!plant)
			must(far_table.stream_wait(x.comm, x.back));
		must(far_table.zero(x.comm, x.a, BYTES)); /* the slot's next tenant */
		must(far_table.stream_sync(x.comm));
		must(far_table.stream_sync(x.compute));
		bad = !host_is(&x, (float)round);
	}
	return wrong(bad);
}

struct kept {
	const float *x;
	float first;
	bool copy;
};

static int keep_pointer(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	struct kept *k = arg;

	if (!k[p->index].x)
		k[p->index] = (struct kept){ x, x[0], k[p->index].copy };
	return 0;
}

static int a_pointer_kept_after_each(bool plant)
{
	struct net_help t = open_far(cfg);
	struct kept k[16] = { { NULL } };
	bool bad = false;

	for (int i = 0; i < t.net->n_params; i++)
		poke_one(t.net, t.net->params[i]->value, (float)(i + 1));
	for (int i = 0; i < t.net->n_params; i++)
		must(t.net->store.ops->each(t.net->store.self, t.net->params[i], DN_VALUE, DN_READ, keep_pointer, k));
	for (int i = 0; i < t.net->n_params; i++)
		bad |= (plant ? *k[i].x : k[i].first) != (float)(i + 1);
	return wrong(bad);
}

static int staging_reused_before_it_was_read(bool plant)
{
	struct bare x = open_bare();

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < N; i++)
			x.host[i] = (float)(i + round);
		must(far_table.copy(x.comm, round ? x.a : x.b, x.host, BYTES));
		if (!plant)
			must(far_table.stream_sync(x.comm));
	}
	must(far_table.stream_sync(x.comm));
	return NOT_FOUND;
}

static int a_copy_read_before_it_has_come(bool plant)
{
	struct bare x = open_bare();

	fill(&x, x.compute, 4);
	must(far_table.copy(x.compute, x.host, x.b, BYTES));
	if (!plant)
		must(far_table.stream_sync(x.compute));
	return wrong(!host_is(&x, 4));
}

static int memory_given_back_under_late_work(bool plant)
{
	struct bare x = open_bare();

	must(far_table.zero(x.compute, x.b, BYTES));
	if (!plant)
		must(far_table.stream_sync(x.compute));
	far_table.free(x.dev, x.b);
	return NOT_FOUND;
}

static int host_memory_given_back_under_a_copy(bool plant)
{
	struct bare x = open_bare();

	memset(x.host, 0, BYTES);
	must(far_table.copy(x.comm, x.b, x.host, BYTES));
	if (!plant)
		must(far_table.stream_sync(x.comm));
	far_table.free_host(x.dev, x.host);
	return NOT_FOUND;
}

static int memory_named_after_it_was_given_back(bool plant)
{
	struct bare x = open_bare();

	must(far_table.zero(x.compute, x.a, BYTES));
	must(far_table.stream_sync(x.compute));
	far_table.free(x.dev, x.b);
	must(far_table.axpby(x.compute, DN_F32, N, 1, x.a, 0, plant ? x.b : x.a));
	must(far_table.stream_sync(x.compute));
	return NOT_FOUND;
}

static int a_net_destroyed_under_its_pass(bool plant)
{
	struct net_help t = open_far(conv);

	must(dn_net_forward(t.net, pass_of(t.net)));
	if (plant)
		far_table.stream_abort = lie_abort;
	dn_net_destroy(t.net); /* conv first, then memory */
	return NOT_FOUND;
}

static int an_object_destroyed_under_its_work(bool plant)
{
	const struct dn_tensor image = { DN_F32, DN_NCHW, 1, 1, 10, 10, 400 };
	const struct dn_conv_desc d = {
		.x = image, .y = image, .weights = DN_F32, .groups = 1, .size = 1, .stride = 1, .dilation = 1
	};
	struct bare x = open_bare();
	struct dn_conv *cv;

	must(far_table.conv_create(x.dev, &d, &cv));
	must(far_table.zero(x.compute, x.a, BYTES));
	must(far_table.conv_forward(x.compute, cv, x.a, x.a + 900, NULL, NULL, x.b, NULL));
	if (!plant)
		must(far_table.stream_sync(x.compute));
	far_table.conv_destroy(cv);
	return NOT_FOUND;
}

static int state_that_nobody_set_to_zero(bool plant)
{
	struct net_help t;
	struct dn_update u = { .step = 1, .images = 4, .rate = .1, .momentum = .9, .beta1 = .9, .beta2 = .9 };
	float w;

	if (plant)
		far_table.zero = lie_zero;
	t = open_far(cfg);
	for (int i = 0; i < 2; i++) {
		pass_of(t.net)->micro = i;
		must(dn_net_forward(t.net, pass_of(t.net)));
		must(dn_net_backward(t.net, pass_of(t.net)));
	}
	must(dn_net_update(t.net, &u));
	peek_into(t.net, t.net->params[0]->value, 1, &w); /* + rate times momentum */
	return wrong(!isfinite(w));
}

struct summing { /* a task that computes on its own stream */
	const struct bare *x;
	bool hasty;
};

static int summing_start(void *arg)
{
	const struct summing *s = arg;
	int err = far_table.axpby(s->x->comm, DN_F32, N, 2, s->x->a, 0, s->x->b);

	return err ? err : far_table.event_record(s->x->ev, s->x->comm);
}

static int summing_poll(void *arg, bool *done)
{
	const struct summing *s = arg;

	*done = s->hasty || far_table.event_done(s->x->ev);
	return *done && !s->hasty ? far_table.event_wait(s->x->ev) : 0;
}

static int a_task_done_before_its_work(bool plant)
{
	struct bare x = open_bare();
	struct summing s = { &x, plant };
	const struct dn_task task = { summing_start, summing_poll, NULL, &s, "sum of pieces" };

	fill(&x, x.comm, 8); /* a is 2 */
	must(far_table.stream_submit(x.comm, &task));
	must(far_table.copy(x.comm, x.host, x.b, BYTES));
	must(far_table.stream_sync(x.comm));
	return wrong(!host_is(&x, 4));
}

/* One statistic for two streams: each op is right as long as no other runs in its middle. */
static int scratch_shared_by_two_streams(bool plant)
{
	enum { MANY = 1 << 16 };
	const int rounds = plant ? 5000 : 20;
	struct bare x = open_bare();
	struct dn_stream *const of[] = { x.compute, x.comm };
	struct dn_bn_desc d = { .act = DN_ACT_LINEAR };
	float *in, *out, *host;
	bool found = false;

	must(dn_tensor_init(&d.x, "x", DN_F32, 1, 1, 1, MANY));
	must(far_table.alloc(x.dev, DN_MEM_PARAMS, 2 * MANY * sizeof(float), (void **)&in));
	must(far_table.alloc(x.dev, DN_MEM_PARAMS, 2 * MANY * sizeof(float), (void **)&out));
	must(far_table.alloc_host(x.dev, DN_MEM_STAGING, 2 * MANY * sizeof(float), (void **)&host));
	for (int i = 0; i < 2 * MANY; i++)
		host[i] = i % 2 ? 1 : i < MANY ? -1 : 3; /* means 0 and 2 */
	must(far_table.copy(x.compute, in, host, 2 * MANY * sizeof(float)));
	must(far_table.stream_sync(x.compute));
	fill(&x, x.compute, 1); /* scale and bias */
	must(far_table.stream_sync(x.compute));
	for (int round = 0; round < rounds && !found; round++) {
		for (int k = 0; k < 2; k++)
			must(far_table.bn_forward_train(of[k], &d, in + k * MANY, x.b, x.b, x.a + (plant ? 0 : 2 * k),
							x.a + (plant ? 1 : 2 * k + 1), out + k * MANY));
		must(far_table.stream_sync(x.comm));
		must(far_table.stream_sync(x.compute));
		must(far_table.copy(x.compute, host, out, 2 * MANY * sizeof(float)));
		must(far_table.stream_sync(x.compute));
		for (int i = 0; i < 2 * MANY; i++) /* +1 and -1, and the bias */
			found |= fabsf(host[i] - ((i % 2 == 1) == (i < MANY) ? 2 : 0)) > 1e-3f;
	}
	return wrong(found);
}

/* --- running them --- */

static const struct fault {
	const char *name;
	int (*fn)(bool plant);
	const char *report; /* NULL: the process itself sees that its result is wrong */
} faults[] = {
#define FAULT(fn, report) \
	{ \
#fn, fn, report \
	}
	FAULT(a_host_that_reads_a_weight, "the host touched device memory: params, byte 0 of"),
	FAULT(a_host_that_writes_an_output, "the host touched device memory: activations"),
	FAULT(a_host_pointer_given_to_an_op, "axpby: y: 0x"),
	FAULT(a_copy_into_memory_that_is_not_pinned, "neither device memory nor host memory of alloc_host()"),
	FAULT(an_op_past_the_end_of_its_memory, "zero: dst: bytes 4 to 4004 of grads, which has 4000"),
	FAULT(an_input_overwritten_before_it_was_read, "changed while a copy from it was under way on stream compute"),
	FAULT(numbers_overwritten_before_they_were_read, "changed while a copy from it was under way on stream compute"),
	FAULT(a_cost_read_without_a_wait, NULL),
	FAULT(an_output_read_without_a_wait, NULL),
	FAULT(communication_that_does_not_wait_for_compute, NULL),
	FAULT(compute_that_does_not_wait_for_communication, NULL),
	FAULT(communication_that_writes_what_compute_still_reads, NULL),
	FAULT(a_pointer_kept_after_each, NULL),
	FAULT(staging_reused_before_it_was_read, "changed while a copy from it was under way on stream comm"),
	FAULT(a_copy_read_before_it_has_come, NULL),
	FAULT(memory_given_back_under_late_work,
	      "device memory is given back under work that has not run: grads, 4000 bytes, named by zero"),
	FAULT(host_memory_given_back_under_a_copy, "host memory is given back under work that has not run: staging"),
	FAULT(memory_named_after_it_was_given_back, "axpby: y: device memory that was given back: grads, byte 0 of 4000"),
	FAULT(a_net_destroyed_under_its_pass,
	      "under work that has not run: params, 320 bytes, named by conv_forward on stream compute"),
	FAULT(an_object_destroyed_under_its_work, "a convolution is destroyed under work that has not run: conv_forward"),
	FAULT(state_that_nobody_set_to_zero, NULL),
	FAULT(scratch_shared_by_two_streams, NULL),
	FAULT(a_task_done_before_its_work, "task \"sum of pieces\" is done before work that it queued has run: axpby"),
};

/* in a process of its own; what it wrote to stderr in @text */
static int run_apart(const struct fault *f, bool plant, int seed, char *text, size_t cap)
{
	char number[16];
	size_t n = 0;
	ssize_t got;
	int status, to[2];
	pid_t pid;

	CU_ASSERT_EQUAL_FATAL(pipe(to), 0);
	fflush(NULL);
	pid = fork();
	CU_ASSERT_FATAL(pid >= 0);
	if (!pid) {
		dup2(to[1], 2);
		snprintf(number, sizeof(number), "%d", seed);
		setenv("FAR_SEED", number, 1);
		setenv("FAR_PATIENCE_MS", "60000", 1); /* the processes wait for all that they want: be late on a slow host too */
		_exit(f->fn(plant));
	}
	close(to[1]);
	while (n + 1 < cap && (got = read(to[0], text + n, cap - n - 1)) > 0)
		n += (size_t)got;
	text[n] = 0;
	close(to[0]);
	CU_ASSERT_EQUAL_FATAL(waitpid(pid, &status, 0), pid);
	return status;
}

static void planted_faults_are_found(void)
{
	char text[1 << 14];

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		for (int seed = 1; seed <= 3; seed++) {
			const struct fault *f = &faults[i];
			int status = run_apart(f, true, seed, text, sizeof(text));
			bool found = f->report ? WIFSIGNALED(status) && strstr(text, "far: ") && strstr(text, f->report)
					       : WIFEXITED(status) && WEXITSTATUS(status) == FOUND;

			if (!found)
				fprintf(stderr, "%s, seed %d: was not found: status %x, wanted \"%s\", stderr:\n%s\n", f->name,
					seed, (unsigned)status, f->report ? f->report : "a wrong result", text);
			CU_ASSERT(found);
		}
}

static void without_the_fault_the_same_work_passes(void)
{
	char text[1 << 14];

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		for (int seed = 1; seed <= 3; seed++) {
			int status = run_apart(&faults[i], false, seed, text, sizeof(text));

			if (status)
				fprintf(stderr, "%s, seed %d: status %x, stderr:\n%s\n", faults[i].name, seed, (unsigned)status,
					text);
			CHECK_EQ(status, 0);
		}
}

/* An op that tests/far/ops.c forgets would run in the caller, over addresses that are no memory. */
static void every_op_of_ref_is_carried_to_the_device(void)
{
	static const size_t no_work[] = { offsetof(struct dn_backend, conv_create),
					  offsetof(struct dn_backend, conv_workspace_bytes),
					  offsetof(struct dn_backend, conv_packed_bytes),
					  offsetof(struct dn_backend, softmax_create) };
	const char *far = (const char *)&far_table, *ref = (const char *)far_ref;
	int n = 0;

	for (size_t at = offsetof(struct dn_backend, gemm); at < sizeof(struct dn_backend); at += sizeof(void *)) {
		bool same = !memcmp(far + at, ref + at, sizeof(void *)), meant = false;

		for (size_t i = 0; i < sizeof(no_work) / sizeof(no_work[0]); i++)
			meant |= no_work[i] == at;
		if (same != meant)
			fprintf(stderr, "member %zu behind gemm is %s\n",
				(at - offsetof(struct dn_backend, gemm)) / sizeof(void *), same ? "ref's own" : "not ref's");
		CHECK_EQ(same, meant);
		n++;
	}
	CU_ASSERT(n > 45);
}

static const struct check_case cases[] = {
	{ "every_op_of_ref_is_carried_to_the_device", every_op_of_ref_is_carried_to_the_device },
	{ "planted_faults_are_found", planted_faults_are_found },
	{ "without_the_fault_the_same_work_passes", without_the_fault_the_same_work_passes },
	{ NULL, NULL },
};

int main(void)
{
	unsetenv("DARKNET_TEST_BACKEND"); /* it is far in any case */
	if (dn_backend_choices[0] && !strstr(dn_backend_choices, "far") && dn_backend_add(&far_table))
		return 2;
	return check_run("far/faults", cases);
}
