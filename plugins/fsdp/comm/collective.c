/* Every collective, written once over channels, as tasks for a communication stream: start posts, poll tests.
 *
 * All exchanges are pairwise and direct: each rank sends to every other what that one needs. Volume is that of a ring, nothing
 * is summed on the way, and a late rank is known by its missing messages.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "comm/collective.h"

#define MESSAGE_FLOATS ((int64_t)(FSDP_MESSAGE_MAX / sizeof(float)))

/* tests request @q unless it is done; clears *all when it stays open */
static int request_test(struct fsdp_channel *ch, struct fsdp_request *q, bool *all)
{
	bool done = true;
	int err = 0;

	if (q->active) {
		err = ch->ops->test(ch, q, &done);
		if (!done)
			*all = false;
	}
	return err;
}

static int requests_test(struct fsdp_channel *ch, struct fsdp_request *req, int n, bool *all)
{
	int err = 0, e;

	*all = true;
	for (int i = 0; i < n; i++) {
		e = request_test(ch, &req[i], all);
		if (e && !err)
			err = e;
	}
	return err;
}

static bool any_active(const struct fsdp_request *req, int n)
{
	for (int i = 0; i < n; i++)
		if (req[i].active)
			return true;
	return false;
}

/* --- gather: request layout [message][peer][send, recv], own place unused --- */

static int n_messages(int64_t len)
{
	return (int)((len + MESSAGE_FLOATS - 1) / MESSAGE_FLOATS);
}

int fsdp_gather_init(struct fsdp_gather *g, struct fsdp_channel *ch, int64_t max_len)
{
	memset(g, 0, sizeof(*g));
	if (max_len < 0 || max_len > INT64_MAX / 8)
		return dn_fail(-EINVAL, "gather: %lld elements a rank", (long long)max_len);
	g->ch = ch;
	g->n_req = n_messages(max_len) * ch->world * 2;
	g->req = dn_calloc((size_t)g->n_req, sizeof(*g->req));
	return g->req || !g->n_req ? 0 : -ENOMEM;
}

void fsdp_gather_fini(struct fsdp_gather *g)
{
	dn_free(g->req);
	g->req = NULL;
}

int fsdp_gather_start(void *arg)
{
	struct fsdp_gather *g = arg;
	struct fsdp_channel *ch = g->ch;
	int err;

	g->sent_bytes = 0;
	for (int m = 0; m < n_messages(g->len); m++) {
		int64_t at = m * MESSAGE_FLOATS, n = g->len - at < MESSAGE_FLOATS ? g->len - at : MESSAGE_FLOATS;

		for (int k = 1; k < ch->world; k++) { /* everybody begins with another peer */
			int to = (ch->rank + k) % ch->world, from = (ch->rank - k + ch->world) % ch->world;
			struct fsdp_request *q = &g->req[m * ch->world * 2];
			size_t bytes = (size_t)n * sizeof(float);

			err = ch->ops->recv(ch, from, g->slot + from * g->len + at, bytes, &q[from * 2 + 1]);
			if (!err)
				err = ch->ops->send(ch, to, g->shard + at, bytes, &q[to * 2]);
			if (err)
				return err;
			g->sent_bytes += bytes;
		}
	}
	if (g->len)
		memcpy(g->slot + ch->rank * g->len, g->shard, (size_t)g->len * sizeof(float));
	return 0;
}

int fsdp_gather_poll(void *arg, bool *done)
{
	struct fsdp_gather *g = arg;
	bool all;
	int err = requests_test(g->ch, g->req, g->n_req, &all);

	if (!err && all && g->count) {
		g->count->bytes += g->sent_bytes;
		g->count->calls++;
	}
	*done = all;
	return err;
}

static bool gather_late(const void *arg, int peer)
{
	const struct fsdp_gather *g = arg;

	for (int i = peer * 2; i < g->n_req; i += g->ch->world * 2)
		if (any_active(&g->req[i], 2))
			return true;
	return false;
}

void fsdp_gather_describe(void *arg, char *out, size_t cap)
{
	struct fsdp_gather *g = arg;

	fsdp_missing(g->ch, gather_late, g, out, cap);
}

/* --- reduce: pieces, two sets of them under way --- */

static int64_t piece_floats(const struct fsdp_reduce *r)
{
	return (int64_t)(r->piece_bytes / sizeof(float));
}

static int64_t n_pieces(const struct fsdp_reduce *r)
{
	return (r->len + piece_floats(r) - 1) / piece_floats(r);
}

static int64_t piece_len(const struct fsdp_reduce *r, int64_t piece)
{
	int64_t at = piece * piece_floats(r);

	return r->len - at < piece_floats(r) ? r->len - at : piece_floats(r);
}

static float *piece_staging(const struct fsdp_reduce *r, int64_t piece, int peer)
{
	int others = r->ch->world - 1, k = peer < r->ch->rank ? peer : peer - 1;

	return r->staging + ((piece % 2) * others + k) * piece_floats(r);
}

static struct fsdp_request *piece_requests(const struct fsdp_reduce *r, int64_t piece)
{
	return &r->req[(piece % 2) * r->ch->world * 2];
}

int fsdp_reduce_init(struct fsdp_reduce *r, struct fsdp_channel *ch, const struct dn_backend *be, struct dn_stream *st,
		     float *staging, size_t piece_bytes)
{
	memset(r, 0, sizeof(*r));
	if (piece_bytes < sizeof(float) || piece_bytes % sizeof(float) || piece_bytes > FSDP_MESSAGE_MAX)
		return dn_fail(-EINVAL, "reduce: pieces of %zu bytes, must be whole floats up to %u bytes", piece_bytes,
			       FSDP_MESSAGE_MAX);
	r->ch = ch;
	r->be = be;
	r->st = st;
	r->staging = staging;
	r->piece_bytes = piece_bytes;
	r->req = dn_calloc((size_t)ch->world * 4, sizeof(*r->req));
	return r->req ? 0 : -ENOMEM;
}

void fsdp_reduce_fini(struct fsdp_reduce *r)
{
	dn_free(r->req);
	r->req = NULL;
}

static int reduce_post(struct fsdp_reduce *r)
{
	struct fsdp_channel *ch = r->ch;
	struct fsdp_request *q = piece_requests(r, r->next);
	int64_t at = r->next * piece_floats(r);
	size_t bytes = (size_t)piece_len(r, r->next) * sizeof(float);
	int err;

	for (int k = 1; k < ch->world; k++) {
		int to = (ch->rank + k) % ch->world, from = (ch->rank - k + ch->world) % ch->world;

		err = ch->ops->recv(ch, from, piece_staging(r, r->next, from), bytes, &q[from * 2 + 1]);
		if (!err)
			err = ch->ops->send(ch, to, r->in + to * r->len + at, bytes, &q[to * 2]);
		if (err)
			return err;
		r->sent_bytes += bytes;
	}
	r->next++;
	return 0;
}

static int reduce_sum(struct fsdp_reduce *r)
{
	int64_t at = r->summed * piece_floats(r);
	const struct dn_parts parts = {
		.type = DN_F32,
		.n = r->ch->world,
		.own = r->ch->rank,
		.mine = r->in + r->ch->rank * r->len + at,
		.others = r->staging + (r->summed % 2) * (r->ch->world - 1) * piece_floats(r),
		.stride_bytes = r->piece_bytes,
	};
	int err = r->be->sum_tree(r->st, piece_len(r, r->summed), &parts, r->out + at, r->acc);

	if (!err)
		r->summed++;
	return err;
}

int fsdp_reduce_start(void *arg)
{
	struct fsdp_reduce *r = arg;
	int err = 0;

	r->sent_bytes = 0;
	r->next = 0;
	r->summed = 0;
	while (!err && r->next < n_pieces(r) && r->next < 2)
		err = reduce_post(r);
	return err;
}

/* One piece a call, so that the other queues of the progress thread get their turn. */
int fsdp_reduce_poll(void *arg, bool *done)
{
	struct fsdp_reduce *r = arg;
	bool all = true;
	int err = 0;

	*done = r->summed == n_pieces(r);
	if (!*done) {
		err = requests_test(r->ch, piece_requests(r, r->summed), r->ch->world * 2, &all);
		if (err || !all)
			return err;
		err = reduce_sum(r);
		if (!err && r->next < n_pieces(r))
			err = reduce_post(r);
		*done = !err && r->summed == n_pieces(r);
	}
	if (*done && r->count) {
		r->count->bytes += r->sent_bytes;
		r->count->calls++;
	}
	return err;
}

static bool reduce_late(const void *arg, int peer)
{
	const struct fsdp_reduce *r = arg;

	return any_active(piece_requests(r, r->summed) + peer * 2, 2);
}

void fsdp_reduce_describe(void *arg, char *out, size_t cap)
{
	struct fsdp_reduce *r = arg;

	fsdp_missing(r->ch, reduce_late, r, out, cap);
}

/* --- exchange --- */

int fsdp_exchange_init(struct fsdp_exchange *x, struct fsdp_channel *ch, const float *mine, float *in, int64_t n)
{
	memset(x, 0, sizeof(*x));
	if (n < 0 || n > MESSAGE_FLOATS)
		return dn_fail(-EINVAL, "exchange of %lld elements, at most %lld", (long long)n, (long long)MESSAGE_FLOATS);
	x->ch = ch;
	x->mine = mine;
	x->in = in;
	x->n = n;
	x->req = dn_calloc((size_t)ch->world * 2, sizeof(*x->req));
	return x->req ? 0 : -ENOMEM;
}

void fsdp_exchange_fini(struct fsdp_exchange *x)
{
	dn_free(x->req);
	x->req = NULL;
}

int fsdp_exchange_start(void *arg)
{
	struct fsdp_exchange *x = arg;
	struct fsdp_channel *ch = x->ch;
	size_t bytes = (size_t)x->n * sizeof(float);
	int err = 0;

	for (int q = 0; q < ch->world && !err; q++) {
		if (q == ch->rank)
			continue;
		err = ch->ops->recv(ch, q, x->in + (q < ch->rank ? q : q - 1) * x->n, bytes, &x->req[q * 2 + 1]);
		if (!err)
			err = ch->ops->send(ch, q, x->mine, bytes, &x->req[q * 2]);
	}
	return err;
}

int fsdp_exchange_poll(void *arg, bool *done)
{
	struct fsdp_exchange *x = arg;

	return requests_test(x->ch, x->req, x->ch->world * 2, done);
}

static bool exchange_late(const void *arg, int peer)
{
	const struct fsdp_exchange *x = arg;

	return any_active(&x->req[peer * 2], 2);
}

void fsdp_exchange_describe(void *arg, char *out, size_t cap)
{
	struct fsdp_exchange *x = arg;

	fsdp_missing(x->ch, exchange_late, x, out, cap);
}

/* --- memory --- */

static int stage(size_t *out, size_t parts, size_t bytes)
{
	return dn_mul_size(parts, dn_up(bytes, DN_ALIGN), out);
}

static size_t piece_of(int64_t n, enum fsdp_type t)
{
	size_t largest = FSDP_PIECE_BYTES / fsdp_type_bytes(t);

	return ((size_t)n < largest ? (size_t)n : largest) * fsdp_type_bytes(t);
}

/* Two sets of pieces: those that arrive now and those that arrive while they are summed, from every other rank. Where all passes
 * through the host it holds what goes out as well: to each other rank its own piece, in a gather and a sum the same to all. */
static int channels_memory(const struct fsdp_coll_needs *n, struct fsdp_coll_memory *out)
{
	size_t others = (size_t)n->grid.shards - 1, world = n->grid.world > 1 ? (size_t)n->grid.world : 0;
	size_t element = fsdp_type_bytes(n->wire.reduce);
	struct fsdp_coll_memory m = { .piece_bytes = piece_of(n->reduce, n->wire.reduce) };
	int err = stage(&m.device[FSDP_STAGE_REDUCE], 2 * others, m.piece_bytes);

	if (!err)
		err = stage(&m.device[FSDP_STAGE_STATS], world, (size_t)n->stats * element);
	if (!err)
		err = stage(&m.device[FSDP_STAGE_EXCHANGE], world, (size_t)n->exchange * element);
	if (!err && !n->host_access) {
		m.gather_piece_bytes = piece_of(n->gather, n->wire.gather);
		err = stage(&m.host[FSDP_STAGE_GATHER], others ? 2 * (others + 1) : 0, m.gather_piece_bytes);
		if (!err)
			err = stage(&m.host[FSDP_STAGE_REDUCE], 4 * others, m.piece_bytes);
		m.host[FSDP_STAGE_STATS] = m.device[FSDP_STAGE_STATS];
		m.host[FSDP_STAGE_EXCHANGE] = m.device[FSDP_STAGE_EXCHANGE];
	}
	if (!err)
		*out = m;
	return err;
}

int fsdp_coll_memory(const char *name, const struct fsdp_coll_needs *n, struct fsdp_coll_memory *out)
{
	return channels_memory(n, out);
}
