/* Clocks around operations; see timeline.h. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "run/timeline.h"

#define SHORT_WAIT_NS 1000 /* what is shorter was none: the event had passed */

/* --- set-up --- */

static int make_ring(struct fsdp_timeline *tl, enum fsdp_queue q, const struct fsdp_schedule *s, struct fsdp_ring *r)
{
	const struct fsdp_plan *p = tl->plan;
	int64_t n = 0;

	for (int i = 0; i < s->n_ops; i++)
		if (s->ops[i].queue == q)
			n += 1 + (q == FSDP_COMPUTE ? s->ops[i].n_waits : 0);
	/* those in flight are written to */
	r->cap = n * p->opt.trace_steps + p->queue_entries[q] + 1;
	r->stamps = dn_calloc((size_t)r->cap, sizeof(*r->stamps));
	return r->stamps ? 0 : -ENOMEM;
}

static int make_record(struct fsdp_timeline *tl, enum fsdp_queue q)
{
	struct fsdp_times *rec = &tl->records[q];
	int err = make_ring(tl, q, &tl->plan->step, &rec->rings[FSDP_OF_STEPS]);

	if (!err)
		err = make_ring(tl, q, &tl->plan->eval, &rec->rings[FSDP_OF_OTHERS]);
	rec->cap = tl->plan->queue_entries[q] + 1;
	rec->order = err ? NULL : dn_calloc((size_t)rec->cap, sizeof(*rec->order));
	return rec->order ? 0 : -ENOMEM;
}

static int open_trace(struct fsdp_timeline *tl)
{
	bool mine;
	int err = 0;

	tl->path = dn_rank_path(tl->plan->opt.trace, tl->rank, &mine);
	if (!tl->path)
		return -ENOMEM;
	if (!mine)
		return 0;
	tl->file = fopen(tl->path, "we");
	if (!tl->file)
		return dn_fail(-errno, "-fsdp.trace %s: %s", tl->path, strerror(errno));
	for (int q = 0; q < FSDP_QUEUES && !err; q++)
		err = make_record(tl, (enum fsdp_queue)q);
	return err;
}

int fsdp_timeline_init(struct fsdp_timeline *tl, const struct fsdp_plan *plan, int rank)
{
	const size_t n = (size_t)plan->n_blocks;

	memset(tl, 0, sizeof(*tl)); /* host memory */
	tl->plan = plan;
	tl->rank = rank;
	tl->timed = dn_calloc((size_t)plan->n_calls, sizeof(*tl->timed));
	tl->waited_ns = dn_calloc(n, sizeof(*tl->waited_ns));
	tl->held_ns = dn_calloc(n, sizeof(*tl->held_ns));
	tl->since_ns = dn_calloc(n, sizeof(*tl->since_ns));
	tl->blocks = dn_calloc(n, sizeof(*tl->blocks));
	if (!tl->timed || !tl->waited_ns || !tl->held_ns || !tl->since_ns || !tl->blocks)
		return -ENOMEM;
	return plan->opt.trace ? open_trace(tl) : 0;
}

/* --- tasks --- */

/* The k-th of a queue waits as long in every run of the same seed. */
static int64_t delay_ns(struct fsdp_timeline *tl, enum fsdp_queue q)
{
	const struct fsdp_delay *d = &tl->plan->opt.debug.delay[q];
	const uint64_t stream = DN_RNG_STREAM(0xfffe, (uint64_t)tl->rank << 8 | (uint64_t)q);

	return d->ms > 0 ? (int64_t)(dn_rng_uniform(d->seed, stream, tl->n_delays[q]++) * d->ms * 1e6) : 0;
}

static struct fsdp_stamp *stamp_at(struct fsdp_ring *r, int64_t k)
{
	return &r->stamps[k % r->cap];
}

/* of the operation that is at @q's head; NULL = nobody wants to know */
static struct fsdp_stamp *head_stamp(struct fsdp_timeline *tl, enum fsdp_queue q)
{
	struct fsdp_times *rec = &tl->records[q];
	struct fsdp_ring *r = rec->order ? &rec->rings[rec->order[rec->ended % rec->cap]] : NULL;

	return r ? stamp_at(r, r->ended) : NULL;
}

static void head_passed(struct fsdp_timeline *tl, enum fsdp_queue q)
{
	struct fsdp_times *rec = &tl->records[q];

	rec->rings[rec->order[rec->ended++ % rec->cap]].ended++;
}

static int timed_inner(struct fsdp_timed *t)
{
	t->running = true;
	return t->inner.start && !t->tl->plan->opt.debug.no_comm ? t->inner.start(t->inner.arg) : 0;
}

static int timed_start(void *arg)
{
	struct fsdp_timed *t = arg;
	struct fsdp_stamp *x = head_stamp(t->tl, t->queue);
	const int64_t wait = delay_ns(t->tl, t->queue);

	t->begin_ns = dn_now_ns();
	t->from_ns = t->begin_ns + wait;
	t->running = false;
	if (x)
		x->begin_ns = t->begin_ns;
	return wait ? 0 : timed_inner(t);
}

static int timed_poll(void *arg, bool *done)
{
	struct fsdp_timed *t = arg;
	struct fsdp_stamp *x;
	int64_t now;
	int err = 0;

	*done = false;
	if (!t->running) {
		if (dn_now_ns() < t->from_ns)
			return 0;
		err = timed_inner(t);
	}
	if (!err && t->inner.poll && !t->tl->plan->opt.debug.no_comm)
		err = t->inner.poll(t->inner.arg, done);
	else if (!err)
		*done = true;
	if (err || !*done)
		return err;
	now = dn_now_ns();
	t->sum_ns += now - t->begin_ns;
	t->n++;
	x = head_stamp(t->tl, t->queue);
	if (!x)
		return 0;
	x->end_ns = now;
	head_passed(t->tl, t->queue);
	return 0;
}

static void timed_describe(void *arg, char *out, size_t cap)
{
	const struct fsdp_timed *t = arg;

	if (t->inner.describe && t->running)
		t->inner.describe(t->inner.arg, out, cap);
}

void fsdp_timeline_wrap(struct fsdp_timeline *tl, int i, struct dn_task *task)
{
	struct fsdp_timed *t = &tl->timed[i];

	t->inner = *task;
	t->tl = tl;
	t->call = &tl->plan->calls[i];
	t->queue = tl->plan->lanes[t->call->lane].queue;
	*task = (struct dn_task){ timed_start, timed_poll, timed_describe, t, t->inner.label };
}

static struct fsdp_stamp *new_span(struct fsdp_timeline *tl, enum fsdp_queue q, bool pass)
{
	struct fsdp_times *rec = &tl->records[q];
	struct fsdp_ring *r = &rec->rings[pass ? FSDP_OF_OTHERS : FSDP_OF_STEPS];
	struct fsdp_stamp *x = rec->order ? stamp_at(r, r->queued++) : NULL;

	if (x && q != FSDP_COMPUTE) /* which has ended when it is noted */
		rec->order[rec->queued++ % rec->cap] = pass ? FSDP_OF_OTHERS : FSDP_OF_STEPS;
	if (x)
		*x = (struct fsdp_stamp){ .step = tl->step, .call = -1, .pass = pass };
	return x;
}

void fsdp_timeline_queued(struct fsdp_timeline *tl, const struct fsdp_op *op, bool pass)
{
	struct fsdp_stamp *x = new_span(tl, op->queue, pass);

	if (!x)
		return;
	x->kind = (uint8_t)op->kind;
	x->block = op->block;
	x->micro = op->micro;
	x->call = op->call;
}

/* --- compute --- */

void fsdp_timeline_begin_step(struct fsdp_timeline *tl, int64_t step)
{
	tl->step = step;
	for (int k = 0; k < DN_TIMES; k++) {
		tl->all_ns[k] += tl->now_ns[k];
		tl->now_ns[k] = 0;
	}
}

static enum dn_time time_of_wait(const struct fsdp_op *op, enum fsdp_op_kind awaited)
{
	if (awaited == FSDP_EXCHANGE || awaited == FSDP_STATS)
		return DN_TIME_EXCHANGE_WAIT;
	if (awaited == FSDP_GATHER || (awaited == FSDP_SHARE && op->kind != FSDP_UPDATE))
		return DN_TIME_GATHER_WAIT;
	return DN_TIME_REDUCE_WAIT;
}

void fsdp_timeline_waited(struct fsdp_timeline *tl, const struct fsdp_op *op, int event, int64_t from_ns, bool pass)
{
	const int64_t now = dn_now_ns();
	const enum fsdp_op_kind kind = (enum fsdp_op_kind)(event / tl->plan->n_blocks);
	const int block = kind == FSDP_STATS ? op->block : event % tl->plan->n_blocks;
	struct fsdp_stamp *x;

	if (now - from_ns < SHORT_WAIT_NS)
		return;
	if (!pass) {
		tl->now_ns[time_of_wait(op, kind)] += now - from_ns;
		tl->waited_ns[block] += now - from_ns;
	}
	x = new_span(tl, FSDP_COMPUTE, pass);
	if (!x)
		return;
	x->kind = (uint8_t)kind;
	x->block = block;
	x->micro = op->micro;
	x->wait = true;
	x->begin_ns = from_ns;
	x->end_ns = now;
}

void fsdp_timeline_begin(struct fsdp_timeline *tl)
{
	const int64_t wait = delay_ns(tl, FSDP_COMPUTE);

	tl->mark_ns = dn_now_ns();
	if (wait)
		dn_sleep_us(wait / 1000);
}

void fsdp_timeline_end(struct fsdp_timeline *tl, const struct fsdp_op *op, bool pass)
{
	const int64_t now = dn_now_ns();
	struct fsdp_stamp *x = new_span(tl, FSDP_COMPUTE, pass);

	if (!pass && op->kind == FSDP_FORWARD)
		tl->now_ns[DN_TIME_FORWARD] += now - tl->mark_ns;
	else if (!pass && (op->kind == FSDP_BACKWARD || op->kind == FSDP_INPUT))
		tl->now_ns[DN_TIME_BACKWARD] += now - tl->mark_ns;
	else if (!pass && (op->kind == FSDP_UPDATE || op->kind == FSDP_LOOK))
		tl->now_ns[DN_TIME_OPTIMIZER] += now - tl->mark_ns;
	if (!x)
		return;
	x->kind = (uint8_t)op->kind;
	x->block = op->block;
	x->micro = op->micro;
	x->begin_ns = tl->mark_ns;
	x->end_ns = now;
}

void fsdp_timeline_hold(struct fsdp_timeline *tl, int block, bool holds)
{
	const int64_t now = dn_now_ns();

	if (holds)
		tl->since_ns[block] = now;
	else
		tl->held_ns[block] += now - tl->since_ns[block];
}

/* --- what came of it --- */

static void add_call(struct dn_store_block *b, const struct fsdp_timed *t)
{
	const bool gathers = fsdp_call_gathers(t->call);
	const double ms = (double)t->sum_ns * 1e-6;

	if (!gathers && !fsdp_call_reduces(t->call))
		return;
	*(gathers ? &b->gather_ms : &b->reduce_ms) += ms;
	*(gathers ? &b->gather_calls : &b->reduce_calls) += t->n;
	*(gathers ? &b->gather_bytes : &b->reduce_bytes) += t->n * t->call->sent_bytes;
}

/* the block behind which what is common is reduced, to which it counts */
static int first_common(const struct fsdp_plan *p)
{
	int i = 0;

	while (!p->blocks[i].n_common || (p->blocks[p->common].learns && !p->blocks[i].common_learns))
		i++;
	return i;
}

void fsdp_timeline_report(struct fsdp_timeline *tl, struct dn_store_report *out)
{
	const struct fsdp_plan *p = tl->plan;
	const int n = fsdp_plan_net_blocks(p), rest = p->common < 0 ? -1 : first_common(p);

	for (int k = 0; k < DN_TIMES; k++) {
		out->step_ms[k] = (double)tl->now_ns[k] * 1e-6;
		out->total_ms[k] = (double)(tl->all_ns[k] + tl->now_ns[k]) * 1e-6;
	}
	for (int i = 0; i < n; i++)
		tl->blocks[i] = (struct dn_store_block){
			.slot = p->blocks[i].slot,
			.exposed_ms = (double)(tl->waited_ns[i] + (i == rest ? tl->waited_ns[p->common] : 0)) * 1e-6,
			.held_ms = (double)tl->held_ns[i] * 1e-6
		};
	for (int i = 0; i < p->n_calls; i++)
		if (tl->timed[i].call)
			add_call(&tl->blocks[p->calls[i].block == p->common ? rest : p->calls[i].block], &tl->timed[i]);
	out->n_blocks = n;
	out->blocks = tl->blocks;
}

/* --- the trace --- */

static int add_name(struct dn_buf *b, const struct fsdp_timeline *tl, const struct fsdp_stamp *x)
{
	char name[DN_BLOCK_NAME_MAX + 64];

	snprintf(name, sizeof(name), "%s%s %s", x->wait ? "wait for " : "", fsdp_op_name((enum fsdp_op_kind)x->kind),
		 tl->plan->blocks[x->block].name);
	return dn_json_text(b, name);
}

/* one that has not ended, since the run has: up to now */
static int add_span(struct dn_buf *b, const struct fsdp_timeline *tl, const struct fsdp_stamp *x, int q, int64_t now_ns)
{
	const int64_t end = x->end_ns ? x->end_ns : now_ns;
	int err = dn_buf_printf(b, ",\n{\"ph\":\"X\",\"name\":");

	if (!err)
		err = add_name(b, tl, x);
	if (!err)
		err = dn_buf_printf(b, ",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"block\":",
				    x->wait ? "wait" : fsdp_op_name((enum fsdp_op_kind)x->kind), tl->rank, q,
				    (double)x->begin_ns * 1e-3, (double)(end - x->begin_ns) * 1e-3);
	if (!err)
		err = dn_json_text(b, tl->plan->blocks[x->block].name);
	if (!err)
		err = dn_buf_printf(b, ",\"micro\":%d,\"step\":%lld%s%s", x->micro, (long long)x->step,
				    x->pass ? ",\"evaluation\":1" : "", x->end_ns ? "" : ",\"unfinished\":1");
	if (!err && x->call >= 0)
		err = dn_buf_printf(b, ",\"bytes\":%llu", (unsigned long long)tl->plan->calls[x->call].sent_bytes);
	return err ? err : dn_buf_printf(b, "}}");
}

static int flush(struct fsdp_timeline *tl, struct dn_buf *b)
{
	size_t n = b->n;

	b->n = 0;
	return n && fwrite(b->s, 1, n, tl->file) != n ? -EIO : 0;
}

static int write_ring(struct fsdp_timeline *tl, struct dn_buf *b, const struct fsdp_ring *r, int q, int64_t now_ns)
{
	int err = 0;

	for (int64_t k = r->queued > r->cap ? r->queued - r->cap : 0; k < r->queued && !err; k++) {
		const struct fsdp_stamp *x = &r->stamps[k % r->cap];

		if (!x->begin_ns || x->step + tl->plan->opt.trace_steps <= tl->step)
			continue;
		err = add_span(b, tl, x, q, now_ns);
		if (!err)
			err = flush(tl, b);
	}
	return err;
}

static int write_queue(struct fsdp_timeline *tl, struct dn_buf *b, int q, int64_t now_ns)
{
	int err = dn_buf_printf(b, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
				tl->rank, q, fsdp_queue_name((enum fsdp_queue)q));

	if (!err)
		err = flush(tl, b);
	for (int k = 0; k < FSDP_PASSES && !err; k++)
		err = write_ring(tl, b, &tl->records[q].rings[k], q, now_ns);
	return err;
}

static int write_trace(struct fsdp_timeline *tl)
{
	const int64_t now = dn_now_ns();
	struct dn_buf b = { 0 };
	int err = 0;

	if (fprintf(tl->file,
		    "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"rank\":%d,\"world\":%d,\"steps_kept\":%d,\"last_step\":%lld},\n"
		    "\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
		    tl->rank, tl->plan->grid.world, tl->plan->opt.trace_steps, (long long)tl->step, tl->rank, tl->rank) < 0)
		err = -EIO;
	for (int q = 0; q < FSDP_QUEUES && !err; q++)
		err = write_queue(tl, &b, q, now);
	dn_buf_fini(&b);
	if (!err && fputs("\n]}\n", tl->file) < 0)
		err = -EIO;
	return err;
}

/* Half a trace is none that a viewer opens: it goes. */
static void end_trace(struct fsdp_timeline *tl)
{
	int err = tl->records[FSDP_QUEUES - 1].order ? write_trace(tl) : -ENOMEM;

	if (fclose(tl->file) && !err)
		err = -errno;
	tl->file = NULL;
	if (!err)
		return;
	dn_warn_own("-fsdp.trace %s: not written: %s", tl->path, strerror(-err));
	(void)unlink(tl->path);
}

void fsdp_timeline_fini(struct fsdp_timeline *tl)
{
	if (tl->file)
		end_trace(tl);
	for (int q = 0; q < FSDP_QUEUES; q++) {
		for (int k = 0; k < FSDP_PASSES; k++)
			dn_free(tl->records[q].rings[k].stamps);
		dn_free(tl->records[q].order);
	}
	dn_free(tl->path);
	dn_free(tl->blocks);
	dn_free(tl->since_ns);
	dn_free(tl->held_ns);
	dn_free(tl->waited_ns);
	dn_free(tl->timed);
	memset(tl, 0, sizeof(*tl)); /* host memory */
}
