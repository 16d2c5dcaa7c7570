/* Collectives over windows: every member reads what it wants where the others have it; see window.h.
 *
 * An operation is the same number of its kind on all members. A member says that it has begun, and where its part lies; reads the
 * others as they come; says that it has read; and is done when all have. So nobody writes where another one still reads: what the
 * operation behind it finds free in the plan's order is free for all. Counters only grow, and what a member says of an operation
 * stands until the last one has read it, so nothing is reset.
 *
 * Waiting is polling, as for messages: the progress thread gives its core away, and a late member is known by its counters.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "comm/collective.h"

#define SLICE_BYTES ((size_t)64 << 20) /* that a call of poll copies or sums (some ms), so that other queues get their turn */

enum kind { GATHER = 1, REDUCE };

struct shm;

struct operation { /* nothing in it changes once it is prepared */
	struct operation *next;
	struct shm *c;
	enum kind kind;
	const char *from; /* in this rank's window */
	char *to;
	enum dn_type type;
	size_t bytes; /* of a part */
	bool acc;
	struct fsdp_count *count;
};

struct shm {
	struct fsdp_coll coll; /* first */
	const struct dn_backend *be;
	struct fsdp_coll *short_ones; /* exchanges, over channels; NULL = none is prepared */
	struct operation *prepared;
	struct dn_event *ended;
	int me, size;
	ptrdiff_t apart; /* bytes between the memory of one member and the next */
	/* the operation that runs */
	const struct operation *now;
	uint64_t number;
	const char **part; /* [size] what each has said; NULL = it has not begun, or not been looked at */
	bool *copied;	   /* [size] gather: whose shard is in the slot */
	int turn;	   /* gather: member that is copied, -1 = none */
	size_t at;	   /* bytes of the part that are done */
	bool queued, read; /* all work is on the stream; it has passed, and the others know */
};

static struct fsdp_window_lane *lane_of(const struct shm *c, int member)
{
	const struct fsdp_coll_setup *s = &c->coll.s;

	return fsdp_windows_lane(s->windows, s->ch->members[member], s->lane);
}

static const char *name_of(uint64_t kind)
{
	return kind == GATHER ? "a gather" : kind == REDUCE ? "a reduction" : "something unknown";
}

/* --- what the others say --- */

/* Has @member begun this operation? Then its part is known. */
static int look_at(struct shm *c, int member)
{
	const struct fsdp_window_lane *l = lane_of(c, member);
	const struct fsdp_windows *w = c->coll.s.windows;
	const int *ranks = c->coll.s.ch->members;
	uint64_t kind, bytes, from;

	if (c->part[member] || atomic_load_explicit(&l->begun, memory_order_acquire) < c->number)
		return 0;
	kind = atomic_load_explicit(&l->kind, memory_order_relaxed);
	bytes = atomic_load_explicit(&l->bytes, memory_order_relaxed);
	from = atomic_load_explicit(&l->from, memory_order_relaxed);
	if (kind != c->now->kind || bytes != c->now->bytes)
		return dn_fail(-EPROTO, "rank %d is in %s of %llu bytes, rank %d in %s of %zu", ranks[member], name_of(kind),
			       (unsigned long long)bytes, ranks[c->me], name_of(c->now->kind), c->now->bytes);
	c->part[member] = w->base + (size_t)ranks[member] * w->bytes + from;
	return 0;
}

static int look_at_all(struct shm *c, bool *all)
{
	int err = 0;

	*all = true;
	for (int q = 0; q < c->size && !err; q++) {
		err = look_at(c, q);
		*all &= c->part[q] != NULL;
	}
	return err;
}

static bool all_have_read(const struct shm *c)
{
	for (int q = 0; q < c->size; q++)
		if (atomic_load_explicit(&lane_of(c, q)->read, memory_order_acquire) < c->number)
			return false;
	return true;
}

static bool late(const void *arg, int member)
{
	const struct shm *c = arg;
	const struct fsdp_window_lane *l = lane_of(c, member);

	return (c->read ? atomic_load(&l->read) : atomic_load(&l->begun)) < c->number;
}

/* --- work on the stream --- */

/* the next member that has come and is not copied; behind oneself first, so that not all read the same one */
static int next_turn(struct shm *c)
{
	int err = 0;

	for (int k = 1; k <= c->size && c->turn < 0 && !err; k++) {
		int q = (c->me + k) % c->size;

		err = look_at(c, q);
		if (!err && c->part[q] && !c->copied[q]) {
			c->turn = q;
			c->at = 0;
		}
	}
	return err;
}

static int run_gather(struct shm *c)
{
	const struct operation *o = c->now;
	size_t left = SLICE_BYTES;
	int err = 0;

	c->queued = false;
	for (;;) {
		const char *from;
		char *to;
		size_t n;

		if (c->turn < 0)
			err = next_turn(c);
		if (err || c->turn < 0)
			break;
		n = o->bytes - c->at < left ? o->bytes - c->at : left;
		to = o->to + (size_t)c->turn * o->bytes + c->at;
		from = c->part[c->turn] + c->at;
		err = n && to != from ? c->be->copy(c->coll.s.st, to, from, n) : 0;
		if (err)
			return err;
		c->at += n;
		left -= n;
		if (c->at < o->bytes)
			return 0;
		c->copied[c->turn] = true;
		c->turn = -1;
	}
	c->queued = true;
	for (int q = 0; q < c->size; q++)
		c->queued &= c->copied[q];
	return err;
}

/* all parts lie equally far apart: they are at the same place of each one's memory */
static int check_apart(const struct shm *c)
{
	const int *ranks = c->coll.s.ch->members;

	for (int q = 0; q < c->size; q++)
		if (c->part[q] - c->part[0] != q * c->apart)
			return dn_fail(-EPROTO, "gradients of rank %d lie elsewhere in its memory than those of rank %d",
				       ranks[q], ranks[0]);
	return 0;
}

static int run_reduce(struct shm *c)
{
	const struct operation *o = c->now;
	size_t element = dn_type_bytes(o->type), n = o->bytes - c->at;
	struct dn_parts parts;
	bool all;
	int err = look_at_all(c, &all);

	if (!err && all && !c->at)
		err = check_apart(c);
	if (err || !all)
		return err;
	n = n < SLICE_BYTES / (size_t)c->size / element * element ? n : SLICE_BYTES / (size_t)c->size / element * element;
	parts = (struct dn_parts){
		.type = o->type,
		.n = c->size,
		.own = c->size,
		.others = c->part[0] + (size_t)c->me * o->bytes + c->at,
		.stride_bytes = (size_t)c->apart,
	};
	if (n)
		err = c->be->sum_tree(c->coll.s.st, (int64_t)(n / element), &parts,
				      (float *)(void *)(o->to + c->at / element * sizeof(float)), o->acc);
	c->at += n;
	c->queued = !err && c->at == o->bytes;
	return err;
}

/* --- an operation runs --- */

static int operation_start(void *arg)
{
	const struct operation *o = arg;
	struct shm *c = o->c;
	const struct fsdp_windows *w = c->coll.s.windows;
	const char *own = w->base + (size_t)w->rank * w->bytes;
	struct fsdp_window_lane *l = lane_of(c, c->me);

	c->now = o;
	c->number++;
	memset(c->part, 0, (size_t)c->size * sizeof(*c->part));
	memset(c->copied, 0, (size_t)c->size * sizeof(*c->copied));
	c->turn = -1;
	c->at = 0;
	c->queued = c->read = false;
	atomic_store_explicit(&l->kind, o->kind, memory_order_relaxed);
	atomic_store_explicit(&l->from, (uint64_t)(o->from - own), memory_order_relaxed);
	atomic_store_explicit(&l->bytes, o->bytes, memory_order_relaxed);
	atomic_store_explicit(&l->begun, c->number, memory_order_release);
	return 0;
}

static int operation_poll(void *arg, bool *done)
{
	const struct operation *o = arg;
	struct shm *c = o->c;
	int err = 0;

	if (!c->queued) {
		err = o->kind == GATHER ? run_gather(c) : run_reduce(c);
		if (!err && c->queued)
			err = c->be->event_record(c->ended, c->coll.s.st);
	}
	if (!err && c->queued && !c->read && c->be->event_done(c->ended)) {
		err = c->be->event_wait(c->ended); /* an error counts as done */
		c->read = !err;
		if (!err)
			atomic_store_explicit(&lane_of(c, c->me)->read, c->number, memory_order_release);
	}
	*done = !err && c->read && all_have_read(c);
	if (*done && o->count) {
		o->count->bytes += (uint64_t)(c->size - 1) * o->bytes;
		o->count->calls++;
	}
	return err;
}

static void operation_describe(void *arg, char *out, size_t cap)
{
	const struct shm *c = ((const struct operation *)arg)->c;
	bool anybody = false;

	for (int q = 0; q < c->size; q++)
		anybody |= late(c, q);
	if (anybody)
		fsdp_missing(c->coll.s.ch, late, c, out, cap);
	else
		snprintf(out, cap, "this rank's device has not ended its copies and sums");
}

/* --- set-up --- */

static int operation_new(struct shm *c, const struct operation *o, int64_t n, int64_t n_parts, const char *label,
			 struct dn_task *out)
{
	struct operation *x;
	size_t all;
	int err;

	if (!dn_type_bytes(o->type))
		return dn_fail(-EINVAL, "%s: no element type", label);
	if (n < 0 || n > c->coll.s.most)
		return dn_fail(-EINVAL, "%s: %lld elements, at most %lld", label, (long long)n, (long long)c->coll.s.most);
	err = dn_mul_size(o->bytes, (size_t)n_parts, &all);
	if (err)
		return err;
	if (!fsdp_windows_holds(c->coll.s.windows, o->from, all))
		return dn_fail(-EINVAL, "%s: %zu bytes that do not lie in the window of rank %d", label, all,
			       c->coll.s.windows->rank);
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
	const struct operation o = {
		.kind = GATHER,
		.from = a->shard,
		.to = a->slot,
		.type = a->type,
		.bytes = (size_t)a->n * dn_type_bytes(a->type),
		.count = a->count,
	};

	return operation_new((struct shm *)coll, &o, a->n, 1, a->label, out);
}

static int prepare_reduce(struct fsdp_coll *coll, const struct fsdp_reduce *a, struct dn_task *out)
{
	const struct operation o = {
		.kind = REDUCE,
		.from = a->in,
		.to = a->out,
		.type = a->type,
		.bytes = (size_t)a->n * dn_type_bytes(a->type),
		.acc = a->acc,
		.count = a->count,
	};

	return operation_new((struct shm *)coll, &o, a->n, coll->s.ch->size, a->label, out);
}

static int prepare_exchange(struct fsdp_coll *coll, const struct fsdp_exchange *a, struct dn_task *out)
{
	struct shm *c = (struct shm *)coll;
	int err = c->short_ones ? 0 : fsdp_coll_channels.open(&c->short_ones, &coll->s);

	return err ? err : fsdp_coll_channels.exchange(c->short_ones, a, out);
}

static void shm_close(struct fsdp_coll *coll)
{
	struct shm *c = (struct shm *)coll;

	if (!c)
		return;
	fsdp_coll_channels.close(c->short_ones);
	for (struct operation *o = c->prepared, *next; o; o = next) {
		next = o->next;
		dn_free(o);
	}
	if (c->ended)
		c->be->event_destroy(c->ended);
	dn_free(c->part);
	dn_free(c->copied);
	dn_free(c);
}

static int check_setup(const struct fsdp_coll_setup *s, ptrdiff_t *apart)
{
	const int *ranks = s->ch->members;

	if (!s->host_access)
		return dn_fail(-ENOTSUP, "collectives=shm: other ranks cannot reach this device's memory");
	if (!s->windows || s->windows->world != s->ch->world)
		return dn_fail(-EINVAL, "collectives=shm: the ranks have no windows");
	if (s->lane < 0 || s->lane >= FSDP_LANES)
		return dn_fail(-EINVAL, "collectives=shm: lane %d, must be 0 to %d", s->lane, FSDP_LANES - 1);
	for (int q = 2; q < s->ch->size; q++)
		if (ranks[q] - ranks[q - 1] != ranks[1] - ranks[0])
			return dn_fail(-ENOTSUP, "collectives=shm: ranks %d, %d and %d of a group are not equally far apart",
				       ranks[0], ranks[1], ranks[q]);
	*apart = s->ch->size > 1 ? (ptrdiff_t)((size_t)(ranks[1] - ranks[0]) * s->windows->bytes) : 0;
	return 0;
}

static int shm_open_coll(struct fsdp_coll **out, const struct fsdp_coll_setup *s)
{
	ptrdiff_t apart = 0;
	struct shm *c;
	int err = check_setup(s, &apart);

	if (err)
		return err;
	c = dn_zalloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->coll = (struct fsdp_coll){ &fsdp_coll_shm, *s };
	c->be = s->dev->be;
	c->me = s->ch->rank;
	c->size = s->ch->size;
	c->apart = apart;
	c->part = dn_calloc((size_t)c->size, sizeof(*c->part));
	c->copied = dn_calloc((size_t)c->size, sizeof(*c->copied));
	err = c->part && c->copied ? c->be->event_create(s->dev, "operation", 2, &c->ended) : -ENOMEM;
	/* an earlier collective of this lane, of this run, has counted as far */
	c->number = atomic_load(&lane_of(c, c->me)->begun);
	if (err) {
		shm_close(&c->coll);
		return err;
	}
	*out = &c->coll;
	return 0;
}

/* Nothing is staged but exchanges: those of channels. */
static int shm_memory(const struct fsdp_coll_needs *n, struct fsdp_coll_memory *out)
{
	struct fsdp_coll_needs exchanges = *n;
	int err;

	if (!n->host_access)
		return dn_fail(-ENOTSUP, "collectives=shm: other ranks cannot reach this device's memory");
	exchanges.gather_bytes = exchanges.reduce_bytes = 0;
	err = fsdp_coll_channels.memory(&exchanges, out);
	if (!err)
		out->windows = true;
	return err;
}

const struct fsdp_coll_ops fsdp_coll_shm = {
	.name = "shm",
	.in_place = true,
	.memory = shm_memory,
	.open = shm_open_coll,
	.close = shm_close,
	.gather = prepare_gather,
	.reduce = prepare_reduce,
	.exchange = prepare_exchange,
};
