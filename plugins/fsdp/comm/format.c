/* Rounding before a collective, widening behind it; see format.h. */
#include <errno.h>
#include <stdio.h>
#include "comm/format.h"

#define SLICE ((int64_t)4 << 20) /* elements that a call of poll converts (some ms), so that other queues get their turn */

enum phase { BEFORE, BEFORE_ENDS, INNER, BEHIND, BEHIND_ENDS };

struct operation { /* nothing in it changes once it is prepared */
	struct operation *next;
	struct fsdp_format *f;
	enum dn_type type;
	const float *floats; /* of this rank, n_before */
	char *packed;
	char *come; /* what comes from all, n_behind */
	float *slot;
	int64_t n_before, n_behind;
	struct dn_task inner;
};

struct fsdp_format {
	struct fsdp_coll *coll;
	const struct dn_backend *be;
	struct dn_event *ended;
	struct operation *prepared;
	/* the operation that runs */
	enum phase phase;
	int64_t at; /* elements that are converted */
};

/* --- an operation runs --- */

static int64_t slice(int64_t n, int64_t at)
{
	return n - at < SLICE ? n - at : SLICE;
}

static int convert(struct fsdp_format *f, const struct operation *o)
{
	struct dn_stream *st = f->coll->s.st;
	const bool before = f->phase == BEFORE;
	const int64_t all = before ? o->n_before : o->n_behind, n = slice(all, f->at);
	int err = 0;

	if (n && before)
		err = f->be->narrow(st, o->type, n, o->floats + f->at, o->packed + 2 * f->at);
	else if (n)
		err = f->be->widen(st, o->type, n, o->come + 2 * f->at, o->slot + f->at);
	f->at += n;
	if (err || f->at < all)
		return err;
	f->phase++;
	return f->be->event_record(f->ended, st);
}

static int operation_start(void *arg)
{
	const struct operation *o = arg;

	o->f->phase = BEFORE;
	o->f->at = 0;
	return convert(o->f, o);
}

/* has the device ended the conversion? then what comes next begins */
static int ended(struct fsdp_format *f, const struct operation *o, bool *done)
{
	int err;

	if (!f->be->event_done(f->ended))
		return 0;
	err = f->be->event_wait(f->ended); /* an error counts as done */
	if (err)
		return err;
	*done = f->phase == BEHIND_ENDS;
	if (*done)
		return 0;
	f->phase = INNER;
	return o->inner.start(o->inner.arg);
}

static int operation_poll(void *arg, bool *done)
{
	const struct operation *o = arg;
	struct fsdp_format *f = o->f;
	int err = 0;

	*done = false;
	if (f->phase == BEFORE || f->phase == BEHIND)
		err = convert(f, o);
	if (!err && (f->phase == BEFORE_ENDS || f->phase == BEHIND_ENDS))
		err = ended(f, o, done);
	if (err || f->phase != INNER)
		return err;
	err = o->inner.poll(o->inner.arg, done);
	if (err || !*done || !o->n_behind)
		return err;
	*done = false;
	f->phase = BEHIND;
	f->at = 0;
	return 0;
}

static void operation_describe(void *arg, char *out, size_t cap)
{
	const struct operation *o = arg;

	if (o->f->phase == INNER)
		o->inner.describe(o->inner.arg, out, cap);
	else
		snprintf(out, cap, "this rank's device has not ended its conversions");
}

/* --- set-up --- */

static int operation_new(struct fsdp_format *f, const struct operation *o, struct dn_task *out)
{
	struct operation *x = dn_alloc(sizeof(*x));

	if (!x)
		return -ENOMEM;
	*x = *o;
	x->f = f;
	x->inner = *out;
	x->next = f->prepared;
	f->prepared = x;
	*out = (struct dn_task){ operation_start, operation_poll, operation_describe, x, out->label };
	return 0;
}

int fsdp_format_gather(struct fsdp_format *f, enum dn_type type, const struct fsdp_gather *a, struct dn_task *out)
{
	const struct fsdp_channel *ch = f->coll->s.ch;
	const int64_t all = ch->size * a->n;
	struct fsdp_gather inner = *a;
	struct operation o = { .type = type, .n_before = a->n, .n_behind = all };
	int err;

	inner.type = type;
	if (type == DN_F32)
		return f->coll->ops->gather(f->coll, &inner, out);
	o.floats = a->shard;
	o.slot = a->slot;
	o.come = (char *)a->slot + 2 * all;
	o.packed = o.come + 2 * ch->rank * a->n;
	inner.shard = o.packed;
	inner.slot = o.come;
	err = f->coll->ops->gather(f->coll, &inner, out);
	return err ? err : operation_new(f, &o, out);
}

int fsdp_format_reduce(struct fsdp_format *f, enum dn_type type, const struct fsdp_reduce *a, void *packed, struct dn_task *out)
{
	struct fsdp_reduce inner = *a;
	const struct operation o = { .type = type, .floats = a->in, .packed = packed, .n_before = f->coll->s.ch->size * a->n };
	int err;

	inner.type = type;
	if (type == DN_F32)
		return f->coll->ops->reduce(f->coll, &inner, out);
	inner.in = packed;
	err = f->coll->ops->reduce(f->coll, &inner, out);
	return err ? err : operation_new(f, &o, out);
}

void fsdp_format_close(struct fsdp_format *f)
{
	if (!f)
		return;
	for (struct operation *o = f->prepared, *next; o; o = next) {
		next = o->next;
		dn_free(o);
	}
	if (f->ended)
		f->be->event_destroy(f->ended);
	dn_free(f);
}

int fsdp_format_open(struct fsdp_format **out, struct fsdp_coll *c)
{
	struct fsdp_format *f = dn_zalloc(sizeof(*f));
	int err;

	if (!f)
		return -ENOMEM;
	f->coll = c;
	f->be = c->s.dev->be;
	err = f->be->event_create(c->s.dev, "conversion", 2, &f->ended);
	if (err) {
		fsdp_format_close(f);
		return err;
	}
	*out = f;
	return 0;
}
