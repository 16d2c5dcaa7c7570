/* Every collective, written once over channels, as tasks for a communication stream.
 *
 * All exchanges are pairwise and direct: each member sends to every other what that one needs. Volume is that of a ring, nothing
 * is summed on the way, and a late rank is known by its missing messages.
 *
 * An operation is a line of pieces. Each takes one of a few sets of requests, staging and event, and goes through
 *   out    copies to memory of the host, where the channel cannot read the device's; its event
 *   post   messages to and from all others
 *   in     what arrived: copies to the device, sums; its event
 * Pieces do each of these in order, so counters say where they stand. Copies and sums are work of a stream that may end later
 * than their call: staging and set are free again when the event of `in` has passed, and the operation is over then.
 */
#include "comm/collective.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct channels;
struct operation;

struct kind {					       /* what differs between collectives; each step is for one piece */
	int (*out)(struct channels *c, int64_t piece); /* NULL: the channel reads device memory */
	int (*post)(struct channels *c, int64_t piece);
	int (*in)(struct channels *c, int64_t piece);
};

struct operation { /* nothing in it changes once it is prepared */
	struct operation *next;
	struct channels *c;
	const struct kind *kind;
	const char *from;
	char *to;
	int64_t n;     /* elements of a part */
	int64_t piece; /* elements of a piece */
	enum dn_type type;
	size_t element; /* bytes of one */
	bool acc;
	int (*then)(void *arg, struct dn_stream *st);
	void *arg;
	struct fsdp_count *count;
};

struct channels {
	struct fsdp_coll coll; /* first */
	const struct dn_backend *be;
	struct operation *prepared;
	int n_sets;
	struct fsdp_request *req; /* [n_sets][size][send, recv]; a member's own places are unused */
	struct dn_event **events; /* [n_sets] */
	/* the operation that runs */
	const struct operation *now;
	int64_t n_pieces, n_out, n_posted, n_in, n_free; /* pieces that have begun each step; free: that are over */
	uint64_t sent_bytes;
};

/* --- pieces, members, staging --- */

static int64_t piece_at(const struct channels *c, int64_t piece)
{
	return piece * c->now->piece;
}

static int64_t piece_n(const struct channels *c, int64_t piece)
{
	int64_t left = c->now->n - piece_at(c, piece);

	return left < c->now->piece ? left : c->now->piece;
}

static size_t piece_bytes(const struct channels *c, int64_t piece)
{
	return (size_t)piece_n(c, piece) * c->now->element;
}

static int64_t set_of(const struct channels *c, int64_t piece)
{
	return piece % c->n_sets;
}

static struct fsdp_request *requests(const struct channels *c, int64_t piece)
{
	return &c->req[set_of(c, piece) * c->coll.s.ch->size * 2];
}

static int others(const struct channels *c)
{
	return c->coll.s.ch->size - 1;
}

/* the place of @member among the others */
static int other(const struct channels *c, int member)
{
	return member < c->coll.s.ch->rank ? member : member - 1;
}

static const char *part_of(const char *base, const struct channels *c, int64_t part, int64_t at)
{
	return base + (size_t)(part * c->now->n + at) * c->now->element;
}

static char *to_part(const struct channels *c, int64_t part, int64_t at)
{
	return c->now->to + (size_t)(part * c->now->n + at) * c->now->element;
}

/* place @k of @n in the piece's set of staging */
static char *staged(const struct channels *c, void *staging, int64_t piece, int n, int k)
{
	size_t bytes = dn_up((size_t)c->now->piece * c->now->element, DN_ALIGN);

	return (char *)staging + (size_t)(set_of(c, piece) * n + k) * bytes;
}

/* a member's own part of a sum, and those of the others in the piece's set of staging */
static struct dn_parts sum_parts(const struct channels *c, int64_t piece, const char *mine)
{
	return (struct dn_parts){
		.type = c->now->type,
		.n = c->coll.s.ch->size,
		.own = c->coll.s.ch->rank,
		.mine = mine,
		.others = staged(c, c->coll.s.device, piece, others(c), 0),
		.stride_bytes = dn_up((size_t)c->now->piece * c->now->element, DN_ALIGN),
	};
}

/* send(k) to, and recv(k) from, every other; everybody begins with another one */
static int post(struct channels *c, int64_t piece, const char *(*send)(const struct channels *c, int64_t piece, int to),
		char *(*recv)(const struct channels *c, int64_t piece, int from))
{
	struct fsdp_channel *ch = c->coll.s.ch;
	struct fsdp_request *q = requests(c, piece);
	size_t bytes = piece_bytes(c, piece);
	int err;

	for (int k = 1; k < ch->size; k++) {
		int to = (ch->rank + k) % ch->size, from = (ch->rank - k + ch->size) % ch->size;

		err = ch->ops->recv(ch, from, recv(c, piece, from), bytes, &q[from * 2 + 1]);
		if (!err)
			err = ch->ops->send(ch, to, send(c, piece, to), bytes, &q[to * 2]);
		if (err)
			return err;
		c->sent_bytes += bytes;
	}
	return 0;
}

static int copy(struct channels *c, void *to, const void *from, int64_t piece)
{
	return to == from ? 0 : c->be->copy(c->coll.s.st, to, from, piece_bytes(c, piece));
}

/* --- gather --- */

static const char *gather_send(const struct channels *c, int64_t piece, int to)
{
	return part_of(c->now->from, c, 0, piece_at(c, piece));
}

static char *gather_recv(const struct channels *c, int64_t piece, int from)
{
	return to_part(c, from, piece_at(c, piece));
}

static int gather_own(struct channels *c, int64_t piece)
{
	return copy(c, to_part(c, c->coll.s.ch->rank, piece_at(c, piece)), gather_send(c, piece, 0), piece);
}

static int gather_post(struct channels *c, int64_t piece)
{
	int err = post(c, piece, gather_send, gather_recv);

	return err ? err : gather_own(c, piece);
}

static int gather_in(struct channels *c, int64_t piece)
{
	return 0;
}

/* memory of the host: a set is what goes out, then what comes from each other */
static const char *gather_host_send(const struct channels *c, int64_t piece, int to)
{
	return staged(c, c->coll.s.host, piece, others(c) + 1, 0);
}

static char *gather_host_recv(const struct channels *c, int64_t piece, int from)
{
	return staged(c, c->coll.s.host, piece, others(c) + 1, 1 + other(c, from));
}

static int gather_host_out(struct channels *c, int64_t piece)
{
	return copy(c, staged(c, c->coll.s.host, piece, others(c) + 1, 0), gather_send(c, piece, 0), piece);
}

static int gather_host_post(struct channels *c, int64_t piece)
{
	int err = post(c, piece, gather_host_send, gather_host_recv);

	return err ? err : gather_own(c, piece);
}

static int gather_host_in(struct channels *c, int64_t piece)
{
	int err = 0;

	for (int q = 0; q < c->coll.s.ch->size && !err; q++)
		if (q != c->coll.s.ch->rank)
			err = copy(c, gather_recv(c, piece, q), gather_host_recv(c, piece, q), piece);
	return err;
}

static const struct kind gather = { NULL, gather_post, gather_in };
static const struct kind gather_host = { gather_host_out, gather_host_post, gather_host_in };

/* --- reduce --- */

static const char *reduce_send(const struct channels *c, int64_t piece, int to)
{
	return part_of(c->now->from, c, to, piece_at(c, piece));
}

static char *reduce_recv(const struct channels *c, int64_t piece, int from)
{
	return staged(c, c->coll.s.device, piece, others(c), other(c, from));
}

static int reduce_post(struct channels *c, int64_t piece)
{
	return post(c, piece, reduce_send, reduce_recv);
}

static int reduce_in(struct channels *c, int64_t piece)
{
	const struct fsdp_channel *ch = c->coll.s.ch;
	const struct dn_parts parts = sum_parts(c, piece, reduce_send(c, piece, ch->rank));

	return c->be->sum_tree(c->coll.s.st, piece_n(c, piece), &parts, (float *)(void *)c->now->to + piece_at(c, piece),
			       c->now->acc);
}

/* memory of the host: a set is what goes to each other, then what comes from each */
static const char *reduce_host_send(const struct channels *c, int64_t piece, int to)
{
	return staged(c, c->coll.s.host, piece, 2 * others(c), other(c, to));
}

static char *reduce_host_recv(const struct channels *c, int64_t piece, int from)
{
	return staged(c, c->coll.s.host, piece, 2 * others(c), others(c) + other(c, from));
}

static int reduce_host_out(struct channels *c, int64_t piece)
{
	int err = 0;

	for (int q = 0; q < c->coll.s.ch->size && !err; q++)
		if (q != c->coll.s.ch->rank)
			err = copy(c, (char *)(uintptr_t)reduce_host_send(c, piece, q), reduce_send(c, piece, q), piece);
	return err;
}

static int reduce_host_post(struct channels *c, int64_t piece)
{
	return post(c, piece, reduce_host_send, reduce_host_recv);
}

static int reduce_host_in(struct channels *c, int64_t piece)
{
	int err = 0;

	for (int q = 0; q < c->coll.s.ch->size && !err; q++)
		if (q != c->coll.s.ch->rank)
			err = copy(c, reduce_recv(c, piece, q), reduce_host_recv(c, piece, q), piece);
	return err ? err : reduce_in(c, piece);
}

static const struct kind reduce = { NULL, reduce_post, reduce_in };
static const struct kind reduce_host = { reduce_host_out, reduce_host_post, reduce_host_in };

/* --- exchange: one piece --- */

static char *exchange_recv(const struct channels *c, int64_t piece, int from)
{
	return staged(c, c->coll.s.device, piece, others(c), other(c, from));
}

static int exchange_post(struct channels *c, int64_t piece)
{
	return post(c, piece, gather_send, exchange_recv);
}

static int exchange_in(struct channels *c, int64_t piece)
{
	const struct fsdp_channel *ch = c->coll.s.ch;
	const struct operation *o = c->now;
	int err = 0;

	if (ch->size > 1) {
		const struct dn_parts parts = sum_parts(c, piece, o->from);

		err = c->be->sum_tree(c->coll.s.st, o->n, &parts, (float *)(void *)o->to, false);
	} else {
		err = copy(c, o->to, o->from, piece);
	}
	return err || !o->then ? err : o->then(o->arg, c->coll.s.st);
}

static int exchange_host_out(struct channels *c, int64_t piece)
{
	return copy(c, staged(c, c->coll.s.host, piece, others(c) + 1, 0), c->now->from, piece);
}

static int exchange_host_post(struct channels *c, int64_t piece)
{
	return post(c, piece, gather_host_send, gather_host_recv);
}

static int exchange_host_in(struct channels *c, int64_t piece)
{
	int err = 0;

	for (int q = 0; q < c->coll.s.ch->size && !err; q++)
		if (q != c->coll.s.ch->rank)
			err = copy(c, exchange_recv(c, piece, q), gather_host_recv(c, piece, q), piece);
	return err ? err : exchange_in(c, piece);
}

static const struct kind exchange = { NULL, exchange_post, exchange_in };
static const struct kind exchange_host = { exchange_host_out, exchange_host_post, exchange_host_in };

/* --- an operation runs --- */

/* has the device ended what was queued for the piece last? */
static int passed(const struct channels *c, int64_t piece, bool *yes)
{
	struct dn_event *ev = c->events[set_of(c, piece)];

	*yes = c->be->event_done(ev);
	return *yes ? c->be->event_wait(ev) : 0; /* an error counts as done */
}

static int mark(const struct channels *c, int64_t piece)
{
	return c->be->event_record(c->events[set_of(c, piece)], c->coll.s.st);
}

static int run_free(struct channels *c)
{
	bool yes = true;
	int err = 0;

	while (!err && yes && c->n_free < c->n_in) {
		err = passed(c, c->n_free, &yes);
		c->n_free += !err && yes;
	}
	return err;
}

static int run_out(struct channels *c)
{
	int err = 0;

	for (; !err && c->n_out < c->n_pieces && c->n_out < c->n_free + c->n_sets; c->n_out++) {
		if (!c->now->kind->out)
			continue;
		err = c->now->kind->out(c, c->n_out);
		if (!err)
			err = mark(c, c->n_out);
	}
	return err;
}

static int run_post(struct channels *c)
{
	bool yes = true;
	int err = 0;

	while (!err && c->n_posted < c->n_out) {
		if (c->now->kind->out)
			err = passed(c, c->n_posted, &yes);
		if (err || !yes)
			break;
		err = c->now->kind->post(c, c->n_posted++);
	}
	return err;
}

/* One piece a call, so that the other queues of the progress thread get their turn. */
static int run_in(struct channels *c)
{
	struct fsdp_channel *ch = c->coll.s.ch;
	bool all = true;
	int err;

	if (c->n_in == c->n_posted)
		return 0;
	err = ch->ops->test_many(ch, requests(c, c->n_in), ch->size * 2, &all);
	if (err || !all)
		return err;
	err = c->now->kind->in(c, c->n_in);
	if (!err)
		err = mark(c, c->n_in++);
	return err;
}

static int operation_start(void *arg)
{
	const struct operation *o = arg;
	struct channels *c = o->c;
	int err;

	c->now = o;
	c->n_pieces = o->piece ? (o->n + o->piece - 1) / o->piece : 0;
	c->n_out = c->n_posted = c->n_in = c->n_free = 0;
	c->sent_bytes = 0;
	err = run_out(c);
	return err ? err : run_post(c);
}

static int operation_poll(void *arg, bool *done)
{
	const struct operation *o = arg;
	struct channels *c = o->c;
	int err = run_in(c);

	if (!err)
		err = run_free(c);
	if (!err)
		err = run_out(c);
	if (!err)
		err = run_post(c);
	*done = !err && c->n_free == c->n_pieces;
	if (*done && o->count) {
		o->count->bytes += c->sent_bytes;
		o->count->calls++;
	}
	return err;
}

/* of the piece that is looked at: messages of later ones may have come unseen */
static bool late(const void *arg, int member)
{
	const struct channels *c = arg;
	const struct fsdp_request *q = requests(c, c->n_in) + member * 2;

	return q[0].active || q[1].active;
}

static void operation_describe(void *arg, char *out, size_t cap)
{
	const struct channels *c = ((const struct operation *)arg)->c;

	if (c->n_in < c->n_posted)
		fsdp_missing(c->coll.s.ch, late, c, out, cap);
	else
		snprintf(out, cap, "this rank's device has not ended its copies and sums");
}

/* --- set-up --- */

/* alone there is nothing to send */
static bool direct(const struct fsdp_coll *coll)
{
	return coll->s.host_access || coll->s.ch->size == 1;
}

static int operation_new(struct channels *c, const struct operation *o, const char *label, struct dn_task *out)
{
	struct operation *x;

	if (!o->element)
		return dn_fail(-EINVAL, "%s: no element type", label);
	if (o->n < 0 || o->n > c->coll.s.most)
		return dn_fail(-EINVAL, "%s: %lld elements, at most %lld", label, (long long)o->n, (long long)c->coll.s.most);
	x = dn_alloc(sizeof(*x));
	if (!x)
		return -ENOMEM;
	*x = *o;
	x->c = c;
	x->next = c->prepared;
	c->prepared = x;
	*out = (struct dn_task){ operation_start, operation_poll, operation_describe, x, label };
	return 0;
}

static int prepare_gather(struct fsdp_coll *coll, const struct fsdp_gather *a, struct dn_task *out)
{
	struct channels *c = (struct channels *)coll;
	size_t element = dn_type_bytes(a->type);
	const struct operation o = {
		.kind = direct(coll) ? &gather : &gather_host,
		.from = a->shard,
		.to = a->slot,
		.n = a->n,
		.piece = element ? (int64_t)((direct(coll) ? FSDP_MESSAGE_MAX : coll->s.gather_piece_bytes) / element) : 0,
		.type = a->type,
		.element = element,
		.count = a->count,
	};

	return operation_new(c, &o, a->label, out);
}

static int prepare_reduce(struct fsdp_coll *coll, const struct fsdp_reduce *a, struct dn_task *out)
{
	struct channels *c = (struct channels *)coll;
	size_t element = dn_type_bytes(a->type);
	const struct operation o = {
		.kind = direct(coll) ? &reduce : &reduce_host,
		.from = a->in,
		.to = a->out,
		.n = a->n,
		.piece = element ? (int64_t)(coll->s.piece_bytes / element) : 0,
		.type = a->type,
		.element = element,
		.acc = a->acc,
		.count = a->count,
	};

	if (element && (!coll->s.piece_bytes || coll->s.piece_bytes % element || coll->s.piece_bytes > FSDP_MESSAGE_MAX))
		return dn_fail(-EINVAL, "%s: pieces of %zu bytes, must be whole elements of %zu up to %u bytes", a->label,
			       coll->s.piece_bytes, element, FSDP_MESSAGE_MAX);
	return operation_new(c, &o, a->label, out);
}

static int prepare_exchange(struct fsdp_coll *coll, const struct fsdp_exchange *a, struct dn_task *out)
{
	struct channels *c = (struct channels *)coll;
	const struct operation o = {
		.kind = direct(coll) ? &exchange : &exchange_host,
		.from = a->mine,
		.to = a->sum,
		.n = a->n,
		.piece = a->n,
		.type = DN_F32,
		.element = sizeof(float),
		.then = a->then,
		.arg = a->arg,
		.count = a->count,
	};

	if (a->n > (int64_t)(FSDP_MESSAGE_MAX / sizeof(float)))
		return dn_fail(-EINVAL, "%s: %lld elements, at most %lld", a->label, (long long)a->n,
			       (long long)(FSDP_MESSAGE_MAX / sizeof(float)));
	return operation_new(c, &o, a->label, out);
}

static void channels_close(struct fsdp_coll *coll)
{
	struct channels *c = (struct channels *)coll;

	if (!c)
		return;
	for (struct operation *o = c->prepared, *next; o; o = next) {
		next = o->next;
		dn_free(o);
	}
	for (int i = 0; c->events && i < c->n_sets; i++)
		c->be->event_destroy(c->events[i]);
	dn_free(c->events);
	dn_free(c->req);
	dn_free(c);
}

/* A gather without staging sends all its messages at once; of floats there are most. */
static int sets(const struct fsdp_coll_setup *s)
{
	int64_t message = (int64_t)(FSDP_MESSAGE_MAX / sizeof(float));
	int64_t n = s->host_access ? (s->most + message - 1) / message : 0;

	return n > 2 ? (int)n : 2;
}

static int channels_open(struct fsdp_coll **out, const struct fsdp_coll_setup *s)
{
	struct channels *c;
	int err = 0;

	c = dn_zalloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->coll = (struct fsdp_coll){ &fsdp_coll_channels, *s };
	c->be = s->dev->be;
	c->n_sets = sets(s);
	c->req = dn_calloc((size_t)c->n_sets * (size_t)s->ch->size * 2, sizeof(*c->req));
	c->events = dn_calloc((size_t)c->n_sets, sizeof(*c->events));
	if (!c->req || !c->events)
		err = -ENOMEM;
	for (int i = 0; i < c->n_sets && !err; i++)
		err = c->be->event_create(s->dev, "piece", 2, &c->events[i]);
	if (err) {
		channels_close(&c->coll);
		return err;
	}
	*out = &c->coll;
	return 0;
}

/* --- memory --- */

static int stage(size_t *out, size_t parts, size_t bytes)
{
	return dn_mul_size(parts, dn_up(bytes, DN_ALIGN), out);
}

static size_t piece_of(size_t bytes)
{
	return bytes < FSDP_PIECE_BYTES ? bytes : FSDP_PIECE_BYTES;
}

/* Two sets of pieces: those that arrive now and those that arrive while they are summed, from every other rank. A sum has one,
 * and a place for itself. Where all passes through the host, that holds what goes out as well. Of several kinds of operations one
 * runs at a time, in the same memory. */
static int channels_memory(const struct fsdp_coll_needs *n, struct fsdp_coll_memory *out)
{
	size_t peers = (size_t)n->size - 1, all = peers ? (size_t)n->size : 0, sum, host;
	struct fsdp_coll_memory m = { .piece_bytes = piece_of(n->reduce_bytes) };
	int err = stage(&m.device, 2 * peers, m.piece_bytes);

	if (!err)
		err = stage(&sum, all, n->exchange_bytes);
	if (!err && !n->host_access) {
		m.gather_piece_bytes = piece_of(n->gather_bytes);
		err = stage(&m.host, peers ? 2 * (peers + 1) : 0, m.gather_piece_bytes);
		if (!err)
			err = stage(&host, 4 * peers, m.piece_bytes);
		if (!err && m.host < host)
			m.host = host;
		if (!err && m.host < sum)
			m.host = sum;
	}
	if (err)
		return err;
	if (m.device < sum)
		m.device = sum;
	*out = m;
	return 0;
}

/* --- the table --- */

const struct fsdp_coll_ops fsdp_coll_channels = {
	.name = "channels",
	.in_place = true,
	.memory = channels_memory,
	.open = channels_open,
	.close = channels_close,
	.gather = prepare_gather,
	.reduce = prepare_reduce,
	.exchange = prepare_exchange,
};

static const struct fsdp_coll_ops *const table[] = { &fsdp_coll_channels, &fsdp_coll_shm };

const struct fsdp_coll_ops *fsdp_coll_find(const char *name)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(table[i]->name, name))
			return table[i];
	dn_fail(-EINVAL, "collectives: there are none that are called %s", name);
	return NULL;
}

int fsdp_coll_memory(const char *name, const struct fsdp_coll_needs *n, struct fsdp_coll_memory *out)
{
	const struct fsdp_coll_ops *ops = fsdp_coll_find(name);

	return ops ? ops->memory(n, out) : -EINVAL;
}
