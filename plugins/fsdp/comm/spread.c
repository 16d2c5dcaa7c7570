/* Records in log4(world) rounds; see spread.h. */
#include <errno.h>
#include <string.h>
#include "comm/spread.h"

#define ROLL_CALL_AGAIN_NS 10000000 /* 10 ms */
#define ROLL_CALL_TAKES_NS 500000000

struct record_head {
	int32_t note;
	uint32_t bytes;
};

/* Passes are numbered through: round k has those of 1, 2 and 3 times 4^k, as far as there are ranks. Pass x brings the records of the
 * ranks step(x) behind us and further, as many as their sender had before the round: 4^k, the last one only what is missing. So our own
 * record and those of passes 0, 1, 2 ... lie in the order of ranks around the ring. */

static int round_of(int x)
{
	return x / 3;
}

static int step_of(int x)
{
	return (x % 3 + 1) << 2 * round_of(x);
}

static int records_of(const struct fsdp_spread *s, int x)
{
	int full = 1 << 2 * round_of(x), left = s->ch->size - step_of(x);

	return full < left ? full : left;
}

static int rank_behind(const struct fsdp_spread *s, int x)
{
	return (s->ch->rank + step_of(x)) % s->ch->size;
}

static int rank_before(const struct fsdp_spread *s, int x)
{
	return (s->ch->rank + s->ch->size - step_of(x)) % s->ch->size;
}

int fsdp_spread_init(struct fsdp_spread *s, struct fsdp_channel *ch, struct fsdp_roll *roll)
{
	memset(s, 0, sizeof(*s));
	s->ch = ch;
	s->roll = roll;
	while (step_of(s->n_passes) < ch->size)
		s->n_passes++;
	s->n_rounds = (s->n_passes + 2) / 3;
	s->passes = dn_calloc((size_t)s->n_passes + 1, sizeof(*s->passes));
	s->records = dn_calloc((size_t)ch->size, sizeof(*s->records));
	if (s->passes && s->records)
		return 0;
	fsdp_spread_fini(s);
	return -ENOMEM;
}

void fsdp_spread_fini(struct fsdp_spread *s)
{
	for (int x = 0; s->passes && x < s->n_passes; x++) {
		dn_free(s->passes[x].out_body);
		dn_free(s->passes[x].in_body);
	}
	dn_free(s->passes);
	dn_free(s->records);
	dn_free(s->own);
	memset(s, 0, sizeof(*s));
}

/* --- memory --- */

int fsdp_spread_room(char **p, size_t *cap, size_t bytes)
{
	char *more;

	if (bytes <= *cap)
		return 0;
	more = dn_realloc(*p, bytes);
	if (!more)
		return -ENOMEM;
	*p = more;
	*cap = bytes;
	return 0;
}

int fsdp_spread_say(struct fsdp_spread *s, uint32_t kind, int32_t note, const void *body, size_t bytes, size_t most)
{
	const struct record_head head = { note, (uint32_t)bytes };
	int err;

	if (most < bytes)
		most = bytes;
	err = fsdp_spread_room(&s->own, &s->own_cap, sizeof(head) + most);
	for (int x = 0; x < s->n_passes && !err; x++) {
		struct fsdp_spread_pass *p = &s->passes[x];
		size_t all = (size_t)records_of(s, x) * (sizeof(head) + most);

		if (all <= FSDP_SPREAD_INLINE)
			continue;
		err = fsdp_spread_room(&p->out_body, &p->out_cap, all);
		if (!err)
			err = fsdp_spread_room(&p->in_body, &p->in_cap, all);
	}
	if (err)
		return err;
	memcpy(s->own, &head, sizeof(head));
	if (bytes)
		memcpy(s->own + sizeof(head), body, bytes);
	s->own_bytes = sizeof(head) + bytes;
	s->kind = kind;
	s->number++;
	return 0;
}

int fsdp_spread_echo(struct fsdp_spread *s, int32_t note, const void *body, size_t bytes)
{
	int err = fsdp_spread_room(&s->own, &s->own_cap, bytes + 1);

	if (err)
		return err;
	if (bytes)
		memcpy(s->own, body, bytes);
	for (int q = 0; q < s->ch->size; q++)
		s->records[q] = (struct fsdp_record){ note, (uint32_t)bytes, s->own };
	return 0;
}

/* --- passes --- */

static const char *in_bytes(const struct fsdp_spread_pass *p)
{
	return p->in.bytes <= FSDP_SPREAD_INLINE ? p->in.body : p->in_body;
}

static size_t record_bytes(const char *p)
{
	struct record_head h;

	memcpy(&h, p, sizeof(h));
	return sizeof(h) + h.bytes;
}

/* the first @n records of what @p has brought: their bytes */
static size_t first_records(const struct fsdp_spread_pass *p, int n)
{
	size_t at = 0;

	for (int i = 0; i < n; i++)
		at += record_bytes(in_bytes(p) + at);
	return at;
}

/* the records that pass @x sends, to @out unless NULL; returns their bytes */
static size_t collect(const struct fsdp_spread *s, int x, char *out)
{
	int left = records_of(s, x) - 1; /* beside our own */
	size_t at = s->own_bytes;

	if (out)
		memcpy(out, s->own, s->own_bytes);
	for (int y = 0; left > 0; y++) {
		int n = records_of(s, y) < left ? records_of(s, y) : left;
		size_t bytes = first_records(&s->passes[y], n);

		if (out)
			memcpy(out + at, in_bytes(&s->passes[y]), bytes);
		at += bytes;
		left -= n;
	}
	return at;
}

static int pass_send(struct fsdp_spread *s, int x)
{
	struct fsdp_spread_pass *p = &s->passes[x];
	size_t bytes = collect(s, x, NULL);
	int to = rank_before(s, x), err = 0;

	if (bytes > FSDP_MESSAGE_MAX)
		return dn_fail(-EFBIG, "%s: %zu bytes in one message, at most %u", s->label, bytes, FSDP_MESSAGE_MAX);
	if (bytes > FSDP_SPREAD_INLINE)
		err = fsdp_spread_room(&p->out_body, &p->out_cap, bytes);
	if (err)
		return err;
	(void)collect(s, x, bytes > FSDP_SPREAD_INLINE ? p->out_body : p->out.body);
	p->out.kind = s->kind;
	p->out.number = (uint32_t)s->number;
	p->out.bytes = bytes;
	err = s->ch->ops->send(s->ch, to, &p->out, sizeof(p->out), &p->send_head);
	if (!err && bytes > FSDP_SPREAD_INLINE)
		err = s->ch->ops->send(s->ch, to, p->out_body, bytes, &p->send_body);
	return err;
}

static int round_send(struct fsdp_spread *s, int k)
{
	int err = 0;

	for (int x = 3 * k; x < s->n_passes && round_of(x) == k && !err; x++)
		err = pass_send(s, x);
	return err;
}

static int head_check(const struct fsdp_spread *s, int x)
{
	const struct fsdp_spread_head *h = &s->passes[x].in;
	int q = s->ch->members[rank_behind(s, x)], own = s->ch->members[s->ch->rank];

	if (h->kind != s->kind)
		return dn_fail(-EPROTO, "%s: rank %d is at %s, rank %d at %s", s->label, own, s->kind_name(s->kind), q,
			       s->kind_name(h->kind));
	if (h->number != (uint32_t)s->number)
		return dn_fail(-EPROTO, "%s: rank %d is at operation %u, rank %d at %u", s->label, own, (uint32_t)s->number, q,
			       h->number);
	if (h->bytes > FSDP_MESSAGE_MAX)
		return dn_fail(-EPROTO, "%s: rank %d announces %llu bytes, at most %u", s->label, q, (unsigned long long)h->bytes,
			       FSDP_MESSAGE_MAX);
	return 0;
}

/* What a pass has brought is as many whole records as it should be. */
static int body_check(const struct fsdp_spread *s, int x)
{
	const struct fsdp_spread_pass *p = &s->passes[x];
	size_t at = 0;

	for (int i = 0; i < records_of(s, x); i++) {
		if (p->in.bytes - at < sizeof(struct record_head) || p->in.bytes - at < record_bytes(in_bytes(p) + at))
			return dn_fail(-EPROTO, "%s: rank %d sends records that are cut off", s->label,
				       s->ch->members[rank_behind(s, x)]);
		at += record_bytes(in_bytes(p) + at);
	}
	return at == p->in.bytes ? 0
				 : dn_fail(-EPROTO, "%s: rank %d sends too much", s->label, s->ch->members[rank_behind(s, x)]);
}

static int request_test(struct fsdp_spread *s, struct fsdp_request *q)
{
	bool done;

	return q->active ? s->ch->ops->test(s->ch, q, &done) : 0;
}

static int pass_receive(struct fsdp_spread *s, int x)
{
	struct fsdp_spread_pass *p = &s->passes[x];
	int err = request_test(s, &p->recv_head);

	if (!err && !p->recv_head.active && !p->has_head) {
		p->has_head = true;
		err = head_check(s, x);
		if (!err && p->in.bytes > FSDP_SPREAD_INLINE) {
			err = fsdp_spread_room(&p->in_body, &p->in_cap, p->in.bytes);
			if (!err)
				err = s->ch->ops->recv(s->ch, rank_behind(s, x), p->in_body, p->in.bytes, &p->recv_body);
		}
	}
	if (!err)
		err = request_test(s, &p->recv_body);
	if (err || !p->has_head || p->recv_body.active)
		return err;
	p->done = true;
	return body_check(s, x);
}

static int round_receive(struct fsdp_spread *s, int k, bool *all)
{
	int err = 0;

	*all = true;
	for (int x = 3 * k; x < s->n_passes && round_of(x) == k && !err; x++) {
		if (!s->passes[x].done)
			err = pass_receive(s, x);
		*all = *all && s->passes[x].done;
	}
	return err;
}

static void point_records(struct fsdp_spread *s)
{
	int q = s->ch->rank;

	for (int x = -1; x < s->n_passes; x++) {
		const char *p = x < 0 ? s->own : in_bytes(&s->passes[x]);
		int n = x < 0 ? 1 : records_of(s, x);

		for (int i = 0; i < n; i++) {
			struct record_head h;

			memcpy(&h, p, sizeof(h));
			s->records[q] = (struct fsdp_record){ h.note, h.bytes, p + sizeof(h) };
			p += sizeof(h) + h.bytes;
			q = (q + 1) % s->ch->size;
		}
	}
}

/* --- the task --- */

int fsdp_spread_start(void *arg)
{
	struct fsdp_spread *s = arg;
	int err = fsdp_roll_hear(s->roll);

	s->next_call_ns = dn_now_ns() + s->roll_call_ms * 1000000;
	s->called_ns = 0;
	s->at = 0;
	for (int x = 0; x < s->n_passes && !err; x++) {
		struct fsdp_spread_pass *p = &s->passes[x];

		p->has_head = p->done = false;
		err = s->ch->ops->recv(s->ch, rank_behind(s, x), &p->in, sizeof(p->in), &p->recv_head);
	}
	return err ? err : round_send(s, 0);
}

static int roll_call(struct fsdp_spread *s)
{
	int64_t now = dn_now_ns();
	int err;

	if (!s->roll_call_ms || now < s->next_call_ns)
		return 0;
	s->next_call_ns = now + ROLL_CALL_AGAIN_NS;
	if (!s->called_ns)
		s->called_ns = now;
	err = fsdp_roll_say(s->roll, s->number);
	return err ? err : fsdp_roll_hear(s->roll);
}

int fsdp_spread_poll(void *arg, bool *done)
{
	struct fsdp_spread *s = arg;
	bool all = true;
	int err = 0;

	while (s->at < s->n_rounds && !err) {
		err = round_receive(s, s->at, &all);
		if (err || !all)
			break;
		s->at++;
		err = round_send(s, s->at);
	}
	*done = s->at == s->n_rounds;
	for (int x = 0; x < s->n_passes && !err; x++) {
		struct fsdp_spread_pass *p = &s->passes[x];

		err = request_test(s, &p->send_head);
		if (!err)
			err = request_test(s, &p->send_body);
		*done = *done && !p->send_head.active && !p->send_body.active;
	}
	if (!err && !*done)
		err = roll_call(s);
	if (!err && *done)
		point_records(s);
	return err;
}

/* --- who is late --- */

static bool has_record(const struct fsdp_spread *s, int peer)
{
	int behind = (peer - s->ch->rank + s->ch->size) % s->ch->size;

	for (int x = 0; x < s->n_passes; x++)
		if (behind >= step_of(x) && behind < step_of(x) + records_of(s, x))
			return s->passes[x].done;
	return true; /* ourselves */
}

/* nothing was received or heard of it */
static bool absent(const void *arg, int peer)
{
	const struct fsdp_spread *s = arg;

	return !has_record(s, peer) && !fsdp_roll_here(s->roll, peer, s->number);
}

/* a message from it or to it is under way */
static bool awaited(const void *arg, int peer)
{
	const struct fsdp_spread *s = arg;

	for (int x = 0; x < s->n_passes; x++) {
		const struct fsdp_spread_pass *p = &s->passes[x];

		if (round_of(x) == s->at && !p->done && rank_behind(s, x) == peer)
			return true;
		if (s->at == s->n_rounds && (p->send_head.active || p->send_body.active) && rank_before(s, x) == peer)
			return true;
	}
	return false;
}

static bool awaited_absent(const void *arg, int peer)
{
	return awaited(arg, peer) && absent(arg, peer);
}

static bool any_rank(const struct fsdp_spread *s, bool (*is)(const void *arg, int peer))
{
	for (int q = 0; q < s->ch->size; q++)
		if (q != s->ch->rank && is(s, q))
			return true;
	return false;
}

/* Whom we wait for is late when it has not come; when it has, it waits, too: for those that have neither come nor been heard of. */
void fsdp_spread_describe(void *arg, char *out, size_t cap)
{
	struct fsdp_spread *s = arg;

	/* who got no turn on its core for long has only now made its roll call */
	while (s->roll_call_ms && (!s->called_ns || dn_now_ns() - s->called_ns < ROLL_CALL_TAKES_NS)) {
		if (roll_call(s))
			break;
		dn_sleep_us(ROLL_CALL_AGAIN_NS / 1000);
	}
	(void)fsdp_roll_hear(s->roll);
	fsdp_missing(s->ch, any_rank(s, awaited_absent) ? awaited_absent : any_rank(s, absent) ? absent : awaited, s, out, cap);
}
