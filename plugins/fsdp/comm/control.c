/* Control operations: everybody tells everybody, so that each rank knows by itself who is late and all compute the same
 * result from the same texts in rank order.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include "comm/control.h"

enum kind { AGREE = 0x66736470, SUM, COMPARE, GATHER };

#define INLINE_YIELDS 200 /* then naps */

static const char *kind_name(uint32_t k)
{
	return k == AGREE     ? "an agreement"
	       : k == SUM     ? "a sum"
	       : k == COMPARE ? "a comparison"
	       : k == GATHER  ? "a gathering of texts"
			      : "something unknown";
}

int fsdp_control_init(struct fsdp_control *c, struct fsdp_channel *ch, int64_t timeout_ms)
{
	memset(c, 0, sizeof(*c));
	c->ch = ch;
	c->timeout_ms = timeout_ms;
	c->peers = dn_calloc((size_t)ch->world, sizeof(*c->peers));
	c->spans = dn_calloc((size_t)ch->world, sizeof(*c->spans));
	if (!c->peers || !c->spans) {
		c->ch = NULL;
		fsdp_control_fini(c);
		return -ENOMEM;
	}
	return 0;
}

void fsdp_control_fini(struct fsdp_control *c)
{
	fsdp_control_detach(c);
	for (int q = 0; c->peers && c->ch && q < c->ch->world; q++)
		dn_free(c->peers[q].body);
	dn_free(c->peers);
	dn_free(c->spans);
	if (c->ch)
		c->ch->ops->destroy(c->ch);
	memset(c, 0, sizeof(*c));
}

int fsdp_control_attach(struct fsdp_control *c, struct dn_device *dev)
{
	int err = dev->be->stream_create(dev, DN_STREAM_COMM, "control", 1, &c->st);

	if (!err)
		c->dev = dev;
	return err;
}

void fsdp_control_detach(struct fsdp_control *c)
{
	if (c->dev)
		c->dev->be->stream_destroy(c->st);
	c->dev = NULL;
	c->st = NULL;
}

/* --- running a task --- */

static int run_inline(struct fsdp_control *c, const struct dn_task *t)
{
	int64_t start = dn_now_ns(), waited;
	char who[256] = "";
	bool done = false;
	int err = t->start(t->arg);

	for (int64_t i = 0; !err && !done; i++) {
		err = t->poll(t->arg, &done);
		if (err || done)
			break;
		waited = dn_now_ns() - start;
		if (c->timeout_ms && waited > c->timeout_ms * 1000000) {
			t->describe(t->arg, who, sizeof(who));
			return dn_fail(DN_EPEER_LATE, "%s: waited %.1f s: %s", t->label, (double)waited * 1e-9, who);
		}
		if (i < INLINE_YIELDS)
			sched_yield();
		else
			dn_sleep_us(50);
	}
	return err;
}

static int run(struct fsdp_control *c, const char *what, int (*start)(void *), int (*poll)(void *, bool *),
	       void (*describe)(void *, char *, size_t))
{
	const struct dn_task t = { start, poll, describe, c, c->label };
	int err;

	snprintf(c->label, sizeof(c->label), "%s", what);
	if (!c->dev)
		return run_inline(c, &t);
	err = c->dev->be->stream_submit(c->st, &t);
	return err ? err : c->dev->be->stream_sync(c->st);
}

/* --- everybody tells everybody --- */

static int tell_start(void *arg)
{
	struct fsdp_control *c = arg;
	struct fsdp_control_peer *own = &c->peers[c->ch->rank];
	int err = 0;

	for (int q = 0; q < c->ch->world && !err; q++) {
		struct fsdp_control_peer *p = &c->peers[q];
		bool body = (c->body_to_all || q == 0) && own->head.bytes;

		if (p == own)
			continue;
		p->has_head = false;
		p->done = false;
		err = c->ch->ops->recv(c->ch, q, &p->head, sizeof(p->head), &p->recv_head);
		if (!err)
			err = c->ch->ops->send(c->ch, q, body ? &own->head : &c->brief, sizeof(p->head), &p->send_head);
		if (!err && body)
			err = c->ch->ops->send(c->ch, q, own->body, own->head.bytes, &p->send_body);
	}
	return err;
}

static int body_room(struct fsdp_control_peer *p, size_t bytes)
{
	char *body;

	if (bytes <= p->cap)
		return 0;
	body = dn_realloc(p->body, bytes);
	if (!body)
		return -ENOMEM;
	p->body = body;
	p->cap = bytes;
	return 0;
}

static int head_check(const struct fsdp_control *c, int q)
{
	const struct fsdp_control_header *h = &c->peers[q].head;

	if (h->kind != c->brief.kind)
		return dn_fail(-EPROTO, "%s: rank %d is at %s, rank %d at %s", c->label, c->ch->rank, kind_name(c->brief.kind), q,
			       kind_name(h->kind));
	if (h->bytes > FSDP_MESSAGE_MAX)
		return dn_fail(-EPROTO, "%s: rank %d announces %llu bytes, at most %u", c->label, q, (unsigned long long)h->bytes,
			       FSDP_MESSAGE_MAX);
	return 0;
}

static int test(struct fsdp_control *c, struct fsdp_request *r)
{
	bool done;

	return r->active ? c->ch->ops->test(c->ch, r, &done) : 0;
}

static int tell_poll_peer(struct fsdp_control *c, int q)
{
	struct fsdp_control_peer *p = &c->peers[q];
	int err = test(c, &p->recv_head);

	if (!err && !p->recv_head.active && !p->has_head) {
		err = head_check(c, q);
		if (!err && p->head.bytes) {
			err = body_room(p, p->head.bytes);
			if (!err)
				err = c->ch->ops->recv(c->ch, q, p->body, p->head.bytes, &p->recv_body);
		}
		p->has_head = true;
	}
	if (!err)
		err = test(c, &p->recv_body);
	if (!err)
		err = test(c, &p->send_head);
	if (!err)
		err = test(c, &p->send_body);
	p->done = p->has_head && !p->recv_body.active && !p->send_head.active && !p->send_body.active;
	return err;
}

static int tell_poll(void *arg, bool *done)
{
	struct fsdp_control *c = arg;
	int err = 0;

	*done = true;
	for (int q = 0; q < c->ch->world && !err; q++)
		if (q != c->ch->rank && !c->peers[q].done) {
			err = tell_poll_peer(c, q);
			*done = *done && c->peers[q].done;
		}
	return err;
}

static bool tell_late(const void *arg, int peer)
{
	const struct fsdp_control *c = arg;

	return !c->peers[peer].done;
}

static void tell_describe(void *arg, char *out, size_t cap)
{
	struct fsdp_control *c = arg;

	fsdp_missing(c->ch, tell_late, c, out, cap);
}

/* afterwards peers[q].head and .body are what rank q said */
static int tell(struct fsdp_control *c, const char *what, enum kind kind, int err, const void *mine, size_t bytes, bool to_all)
{
	struct fsdp_control_peer *own = &c->peers[c->ch->rank];
	int e;

	c->agreed = 0;
	if (bytes > FSDP_MESSAGE_MAX)
		return dn_fail(-EFBIG, "%s: %zu bytes, at most %u", what, bytes, FSDP_MESSAGE_MAX);
	e = body_room(own, bytes);
	if (e)
		return e;
	if (bytes)
		memcpy(own->body, mine, bytes);
	own->head = (struct fsdp_control_header){ (uint32_t)kind, err, bytes };
	c->brief = (struct fsdp_control_header){ (uint32_t)kind, err, 0 };
	c->body_to_all = to_all;
	return run(c, what, tell_start, tell_poll, tell_describe);
}

/* --- the operations --- */

int fsdp_control_agree(struct fsdp_control *c, int err, const char *what)
{
	char text[2048];
	int e;

	snprintf(text, sizeof(text), "%s", err ? dn_message() : "");
	e = tell(c, what, AGREE, err, text, strlen(text), true);
	if (e) /* the first cause is worth more than what followed from it */
		return err ? dn_fail(err, "%s", text) : e;
	for (int q = 0; q < c->ch->world; q++) {
		const struct fsdp_control_peer *p = &c->peers[q];
		int named = -1, end = 0;

		if (!p->head.err)
			continue;
		c->agreed = p->head.err;
		snprintf(text, sizeof(text), "%.*s", (int)p->head.bytes, p->head.bytes ? p->body : "");
		/* an error that was agreed on before says already whose it is */
		if (sscanf(text, "rank %d:%n", &named, &end) == 1 && end)
			return dn_fail(p->head.err, "%s", text);
		return dn_fail(p->head.err, "rank %d: %s", q, text);
	}
	return 0;
}

int fsdp_control_sum(struct fsdp_control *c, const char *what, double *x, int n)
{
	size_t bytes = (size_t)n * sizeof(*x);
	int err = tell(c, what, SUM, 0, x, bytes, true);

	for (int q = 0; q < c->ch->world && !err; q++)
		if (c->peers[q].head.bytes != bytes)
			err = dn_fail(-EPROTO, "%s: rank %d sums %d numbers, rank %d %llu", what, c->ch->rank, n, q,
				      (unsigned long long)(c->peers[q].head.bytes / sizeof(*x)));
	for (int i = 0; i < n && !err; i++) {
		double s = 0, v;

		for (int q = 0; q < c->ch->world; q++) {
			memcpy(&v, c->peers[q].body + (size_t)i * sizeof(v), sizeof(v));
			s = q ? s + v : v;
		}
		x[i] = s;
	}
	return err;
}

/* the next "name\0value\0" of a body; false at its end or when it is cut off */
static bool next_item(const struct fsdp_control_peer *p, size_t *at, struct dn_item *out)
{
	const char *s[2];

	for (int i = 0; i < 2; i++) {
		const char *end = *at < p->head.bytes ? memchr(p->body + *at, 0, p->head.bytes - *at) : NULL;

		if (!end)
			return false;
		s[i] = p->body + *at;
		*at = (size_t)(end - p->body) + 1;
	}
	*out = (struct dn_item){ s[0], s[1] };
	return true;
}

static bool has_item(const struct fsdp_control_peer *p, const char *name)
{
	struct dn_item x;
	size_t at = 0;

	while (next_item(p, &at, &x))
		if (!strcmp(x.name, name))
			return true;
	return false;
}

static int compare_with_first(struct fsdp_control *c, int q)
{
	size_t at0 = 0, atq = 0;
	struct dn_item a, b;
	bool more0, moreq;

	for (;;) {
		more0 = next_item(&c->peers[0], &at0, &a);
		moreq = next_item(&c->peers[q], &atq, &b);
		if (!more0 && !moreq)
			return 0;
		if (more0 != moreq || strcmp(a.name, b.name))
			return moreq && !has_item(&c->peers[0], b.name)
				       ? dn_fail(-EINVAL, "rank %d: %s is %s, rank 0 has none", q, b.name, b.value)
			       : more0 && !has_item(&c->peers[q], a.name)
				       ? dn_fail(-EINVAL, "rank %d: has no %s, rank 0 has %s", q, a.name, a.value)
				       : dn_fail(-EPROTO, "rank %d: compares %s, rank 0 %s", q, moreq ? b.name : "nothing more",
						 more0 ? a.name : "nothing more");
		if (strcmp(a.value, b.value))
			return dn_fail(-EINVAL, "rank %d: %s is %s, rank 0 has %s", q, b.name, b.value, a.value);
	}
}

int fsdp_control_compare(struct fsdp_control *c, const char *what, const struct dn_item *items, int n)
{
	struct dn_buf b = { NULL, 0, 0 };
	int err = 0;

	for (int i = 0; i < n && !err; i++) {
		const char *value = items[i].value ? items[i].value : "";

		err = dn_buf_add(&b, items[i].name, strlen(items[i].name) + 1);
		if (!err)
			err = dn_buf_add(&b, value, strlen(value) + 1);
	}
	if (!err)
		err = tell(c, what, COMPARE, 0, b.s, b.n, true);
	for (int q = 1; q < c->ch->world && !err; q++)
		c->agreed = err = compare_with_first(c, q);
	dn_buf_fini(&b);
	return err;
}

int fsdp_control_gather(struct fsdp_control *c, const char *what, const void *mine, size_t bytes, char **all, size_t *sizes)
{
	size_t total = 0;
	char *text;
	int err = tell(c, what, GATHER, 0, mine, bytes, false);

	if (err)
		return err;
	if (c->ch->rank) {
		*all = NULL;
		return 0;
	}
	for (int q = 0; q < c->ch->world; q++)
		total += c->peers[q].head.bytes; /* world times 64 MiB at most */
	text = dn_alloc(total + 1);
	if (!text)
		return -ENOMEM;
	total = 0;
	for (int q = 0; q < c->ch->world; q++) {
		sizes[q] = c->peers[q].head.bytes;
		if (sizes[q])
			memcpy(text + total, c->peers[q].body, sizes[q]);
		total += sizes[q];
	}
	text[total] = '\0';
	*all = text;
	return 0;
}

/* --- transfers: one message at a time --- */

static int span_post(struct fsdp_control *c)
{
	const struct fsdp_span *s = &c->spans[c->span];
	size_t bytes = s->bytes - c->span_at < FSDP_MESSAGE_MAX ? s->bytes - c->span_at : FSDP_MESSAGE_MAX;
	char *p = (char *)s->p + c->span_at;

	c->span_at += bytes;
	return c->span_send ? c->ch->ops->send(c->ch, s->peer, p, bytes, &c->span_req)
			    : c->ch->ops->recv(c->ch, s->peer, p, bytes, &c->span_req);
}

static int span_start(void *arg)
{
	struct fsdp_control *c = arg;

	c->span = 0;
	c->span_at = 0;
	return c->n_spans ? span_post(c) : 0;
}

static int span_poll(void *arg, bool *done)
{
	struct fsdp_control *c = arg;
	int err = test(c, &c->span_req);

	if (!err && !c->span_req.active && c->span < c->n_spans && c->span_at == c->spans[c->span].bytes) {
		c->span++;
		c->span_at = 0;
	}
	*done = !c->span_req.active && c->span >= c->n_spans;
	if (!err && !*done && !c->span_req.active)
		err = span_post(c);
	return err;
}

static bool span_late(const void *arg, int peer)
{
	const struct fsdp_control *c = arg;

	return c->span < c->n_spans && c->spans[c->span].peer == peer;
}

static void span_describe(void *arg, char *out, size_t cap)
{
	struct fsdp_control *c = arg;

	fsdp_missing(c->ch, span_late, c, out, cap);
}

int fsdp_control_transfer(struct fsdp_control *c, const char *what, bool send)
{
	c->agreed = 0;
	c->span_send = send;
	return run(c, what, span_start, span_poll, span_describe);
}
