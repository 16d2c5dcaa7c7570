/* Control operations: everybody's record comes to everybody, so that all compute the same result from the same records in the order
 * of the ranks.
 */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include "comm/control.h"

enum kind { AGREE = 0x66736470, SUM, COMPARE, GATHER };
enum note { DENSE, SPARSE, ELSEWHERE }; /* how a record is to be read */

#define INLINE_YIELDS 200 /* then naps */
#define ROLL_CALL_MS 5000 /* or a quarter of the timeout */
#define SHORT_TEXT 4096	  /* bytes; longer ones go straight to rank 0 */
#define FEW_NUMBERS 4	  /* that are not zero, of a usual sum */

static const char *kind_name(uint32_t k)
{
	return k == AGREE     ? "an agreement"
	       : k == SUM     ? "a sum"
	       : k == COMPARE ? "a comparison"
	       : k == GATHER  ? "a gathering of texts"
			      : "something unknown";
}

int fsdp_control_init(struct fsdp_control *c, struct fsdp_channel *ch, struct fsdp_channel *roll, int64_t timeout_ms)
{
	int err;

	memset(c, 0, sizeof(*c));
	c->ch = ch;
	c->timeout_ms = timeout_ms;
	err = fsdp_roll_init(&c->roll, roll);
	if (!err)
		err = fsdp_spread_init(&c->spread, ch, &c->roll);
	if (!err) {
		c->spread.label = c->label;
		c->spread.kind_name = kind_name;
		c->spread.roll_call_ms = timeout_ms < 4 * ROLL_CALL_MS ? (timeout_ms + 3) / 4 : ROLL_CALL_MS;
		c->spans = dn_calloc((size_t)ch->size, sizeof(*c->spans));
		err = c->spans ? 0 : -ENOMEM;
	}
	if (err)
		fsdp_control_fini(c);
	return err;
}

void fsdp_control_fini(struct fsdp_control *c)
{
	fsdp_control_detach(c);
	if (c->ch)
		c->ch->ops->destroy(c->ch);
	fsdp_roll_fini(&c->roll);
	fsdp_spread_fini(&c->spread);
	dn_free(c->spans);
	dn_free(c->text);
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

static int run(struct fsdp_control *c, const char *what, void *arg, int (*start)(void *), int (*poll)(void *, bool *),
	       void (*describe)(void *, char *, size_t))
{
	const struct dn_task t = { start, poll, describe, arg, c->label };
	int err;

	snprintf(c->label, sizeof(c->label), "%s", what);
	if (!c->dev)
		return run_inline(c, &t);
	err = c->dev->be->stream_submit(c->st, &t);
	return err ? err : c->dev->be->stream_sync(c->st);
}

/* --- everybody's record to everybody --- */

/* afterwards spread.records[q] is what rank q has said; @most: bytes of the longest record that is to be expected */
static int tell(struct fsdp_control *c, const char *what, enum kind kind, int32_t note, const void *mine, size_t bytes,
		size_t most)
{
	int err;

	c->agreed = 0;
	if (bytes > FSDP_MESSAGE_MAX)
		return dn_fail(-EFBIG, "%s: %zu bytes, at most %u", what, bytes, FSDP_MESSAGE_MAX);
	if (c->ch->echo)
		return fsdp_spread_echo(&c->spread, note, mine, bytes);
	err = fsdp_spread_say(&c->spread, (uint32_t)kind, note, mine, bytes, most);
	if (err)
		return err;
	return run(c, what, &c->spread, fsdp_spread_start, fsdp_spread_poll, fsdp_spread_describe);
}

/* --- agreement --- */

int fsdp_control_agree(struct fsdp_control *c, int err, const char *what)
{
	char text[2048];
	int e;

	snprintf(text, sizeof(text), "%s", err ? dn_message() : "");
	e = tell(c, what, AGREE, err, text, strlen(text), 0);
	if (e) /* the first cause is worth more than what followed from it */
		return err ? dn_fail(err, "%s", text) : e;
	for (int q = 0; q < c->ch->size; q++) {
		const struct fsdp_record *r = &c->spread.records[q];
		int named = -1, end = 0;

		if (!r->note)
			continue;
		c->agreed = r->note;
		snprintf(text, sizeof(text), "%.*s", (int)r->bytes, r->body);
		/* an error that was agreed on before says already whose it is */
		if (sscanf(text, "rank %d:%n", &named, &end) == 1 && end)
			return dn_fail(r->note, "%s", text);
		return dn_fail(r->note, "rank %d: %s", q, text);
	}
	return 0;
}

/* --- sums --- */

struct number {
	uint32_t index;
	double value;
} __attribute__((packed));

/* Most numbers of most sums are zero: a step sums one place a rank for faults. */
static int sum_say(struct fsdp_control *c, const char *what, const double *x, int n)
{
	size_t bytes = (size_t)n * sizeof(*x), few = FEW_NUMBERS * sizeof(struct number), at = sizeof(uint32_t);
	const uint32_t count = (uint32_t)n;
	int err = fsdp_spread_room(&c->text, &c->text_cap, at + bytes);

	if (err)
		return err;
	memcpy(c->text, &count, sizeof(count));
	for (int i = 0; i < n && at - sizeof(count) < bytes; i++) {
		const struct number v = { (uint32_t)i, x[i] };

		if (x[i] == 0 && !signbit(x[i]))
			continue;
		if (at - sizeof(count) + sizeof(v) < bytes)
			memcpy(c->text + at, &v, sizeof(v));
		at += sizeof(v);
	}
	if (at - sizeof(count) < bytes)
		return tell(c, what, SUM, SPARSE, c->text, at, sizeof(count) + (few < bytes ? few : bytes));
	if (bytes)
		memcpy(c->text + sizeof(count), x, bytes);
	return tell(c, what, SUM, DENSE, c->text, sizeof(count) + bytes, 0);
}

/* How many numbers a record sums; < 0: it is not one of a sum. */
static int64_t sum_count(const struct fsdp_record *r)
{
	uint32_t n;

	if (r->bytes < sizeof(n))
		return -1;
	memcpy(&n, r->body, sizeof(n));
	if (r->note == SPARSE)
		return (r->bytes - sizeof(n)) % sizeof(struct number) ? -1 : (int64_t)n;
	return r->bytes - sizeof(n) == n * sizeof(double) ? (int64_t)n : -1;
}

/* number @i of a record, which is read from front to back */
static double sum_number(const struct fsdp_record *r, int i, size_t *at)
{
	struct number v = { 0, 0 };
	double x;

	if (r->note == DENSE) {
		memcpy(&x, r->body + sizeof(uint32_t) + (size_t)i * sizeof(x), sizeof(x));
		return x;
	}
	if (*at + sizeof(v) > r->bytes)
		return 0;
	memcpy(&v, r->body + *at, sizeof(v));
	if (v.index != (uint32_t)i)
		return 0;
	*at += sizeof(v);
	return v.value;
}

int fsdp_control_sum(struct fsdp_control *c, const char *what, double *x, int n)
{
	int err = sum_say(c, what, x, n);

	for (int q = 0; q < c->ch->size && !err; q++)
		if (sum_count(&c->spread.records[q]) != n)
			err = dn_fail(-EPROTO, "%s: rank %d sums %d numbers, rank %d %lld", what, c->ch->rank, n, q,
				      (long long)sum_count(&c->spread.records[q]));
	for (int q = 0; q < c->ch->size && !err; q++) {
		size_t at = sizeof(uint32_t);

		for (int i = 0; i < n; i++) {
			double v = sum_number(&c->spread.records[q], i, &at);

			x[i] = q ? x[i] + v : v;
		}
	}
	return err;
}

/* --- comparison: rank 0's items to all, then an agreement --- */

/* the next "name\0value\0" of a text; false at its end or when it is cut off */
static bool next_item(const char *text, size_t bytes, size_t *at, struct dn_item *out)
{
	const char *s[2];

	for (int i = 0; i < 2; i++) {
		const char *end = *at < bytes ? memchr(text + *at, 0, bytes - *at) : NULL;

		if (!end)
			return false;
		s[i] = text + *at;
		*at = (size_t)(end - text) + 1;
	}
	*out = (struct dn_item){ s[0], s[1] };
	return true;
}

static const char *value_of(const struct dn_item *x)
{
	return x->value ? x->value : "";
}

static bool has_item(const struct dn_item *items, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(items[i].name, name))
			return true;
	return false;
}

static bool text_has_item(const char *text, size_t bytes, const char *name)
{
	struct dn_item x;
	size_t at = 0;

	while (next_item(text, bytes, &at, &x))
		if (!strcmp(x.name, name))
			return true;
	return false;
}

/* our items with those of rank 0 */
static int compare_items(const struct dn_item *items, int n, const char *text, size_t bytes)
{
	size_t at = 0;
	struct dn_item a;

	for (int i = 0;; i++) {
		bool more0 = next_item(text, bytes, &at, &a), more = i < n;

		if (!more0 && !more)
			return 0;
		if (more0 != more || strcmp(a.name, items[i].name))
			return more && !text_has_item(text, bytes, items[i].name)
				       ? dn_fail(-EINVAL, "%s is %s, rank 0 has none", items[i].name, value_of(&items[i]))
			       : more0 && !has_item(items, n, a.name)
				       ? dn_fail(-EINVAL, "has no %s, rank 0 has %s", a.name, a.value)
				       : dn_fail(-EPROTO, "compares %s, rank 0 %s", more ? items[i].name : "nothing more",
						 more0 ? a.name : "nothing more");
		if (strcmp(a.value, value_of(&items[i])))
			return dn_fail(-EINVAL, "%s is %s, rank 0 has %s", a.name, value_of(&items[i]), a.value);
	}
}

int fsdp_control_compare(struct fsdp_control *c, const char *what, const struct dn_item *items, int n)
{
	struct dn_buf b = { NULL, 0, 0 };
	int err = 0;

	for (int i = 0; i < n && !err && c->ch->rank == 0; i++) {
		err = dn_buf_add(&b, items[i].name, strlen(items[i].name) + 1);
		if (!err)
			err = dn_buf_add(&b, value_of(&items[i]), strlen(value_of(&items[i])) + 1);
	}
	if (!err)
		err = tell(c, what, COMPARE, 0, b.s, b.n, 0);
	dn_buf_fini(&b);
	if (err)
		return err;
	err = compare_items(items, n, c->spread.records[0].body, c->spread.records[0].bytes);
	return fsdp_control_agree(c, err, what);
}

/* --- gathering of texts --- */

/* Of long ones only the length is told; they go straight to rank 0, which takes them one after the other. */
static int gather_long(struct fsdp_control *c, const char *what, const void *mine, size_t bytes, char *all, const size_t *sizes)
{
	size_t at = 0;

	c->n_spans = 0;
	if (c->ch->rank) {
		if (bytes > SHORT_TEXT)
			c->spans[c->n_spans++] = (struct fsdp_span){ 0, (void *)mine, bytes };
		return fsdp_control_transfer(c, what, true);
	}
	for (int q = 0; q < c->ch->size; at += sizes[q++])
		if (q && sizes[q] > SHORT_TEXT)
			c->spans[c->n_spans++] = (struct fsdp_span){ q, all + at, sizes[q] };
	return fsdp_control_transfer(c, what, false);
}

/* the text of a record, or its length alone */
static int gather_size(const struct fsdp_control *c, int q, const char *what, size_t *size)
{
	const struct fsdp_record *r = &c->spread.records[q];
	uint64_t n = r->bytes;

	if (r->note == ELSEWHERE && r->bytes == sizeof(n))
		memcpy(&n, r->body, sizeof(n));
	else if (r->note == ELSEWHERE)
		return dn_fail(-EPROTO, "%s: rank %d does not tell how long its text is", what, q);
	*size = (size_t)n;
	return 0;
}

int fsdp_control_gather(struct fsdp_control *c, const char *what, const void *mine, size_t bytes, char **all, size_t *sizes)
{
	const uint64_t n = bytes;
	size_t total = 0;
	char *text;
	int err;

	if (bytes > SHORT_TEXT && !c->ch->echo)
		err = tell(c, what, GATHER, ELSEWHERE, &n, sizeof(n), 0);
	else
		err = tell(c, what, GATHER, DENSE, mine, bytes, 0);
	if (err)
		return err;
	if (c->ch->rank) {
		*all = NULL;
		return bytes > SHORT_TEXT ? gather_long(c, what, mine, bytes, NULL, NULL) : 0;
	}
	for (int q = 0; q < c->ch->size && !err; q++) {
		err = gather_size(c, q, what, &sizes[q]);
		total += sizes[q];
	}
	if (err)
		return err;
	text = dn_alloc(total + 1);
	if (!text)
		return -ENOMEM;
	total = 0;
	for (int q = 0; q < c->ch->size; q++) {
		if (q == 0 && bytes)
			memcpy(text, mine, bytes);
		else if (c->spread.records[q].note == DENSE && sizes[q])
			memcpy(text + total, c->spread.records[q].body, sizes[q]);
		total += sizes[q];
	}
	text[total] = '\0';
	err = c->ch->echo ? 0 : gather_long(c, what, mine, bytes, text, sizes);
	if (err) {
		dn_free(text);
		return err;
	}
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
	bool done_req;
	int err = c->span_req.active ? c->ch->ops->test(c->ch, &c->span_req, &done_req) : 0;

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
	for (int i = 0; i < c->n_spans && c->ch->echo && !send; i++) /* nobody has what the others' parts would be */
		memset(c->spans[i].p, 0, c->spans[i].bytes);
	if (c->ch->echo)
		return 0;
	c->span_send = send;
	return run(c, what, c, span_start, span_poll, span_describe);
}
