/* The store contract over shards: memory by the plan, local intervals (each), collective reads and writes, steps. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "run/shard_store.h"

/* --- memory --- */

#define MOVE_FLOATS ((int64_t)1 << 18) /* that a read or a write moves at a time; the same on all ranks */

/* the regions that are the store's; the net and its loader take the others */
static const enum dn_region own_regions[] = {
	DN_MEM_PARAMS,	   DN_MEM_GRADS,   DN_MEM_OPTIMIZER, DN_MEM_PARAM_SLOTS,
	DN_MEM_GRAD_SLOTS, DN_MEM_STAGING, DN_MEM_BUFFERS,   DN_MEM_EMA,
};

static void place_buffers(struct fsdp_store *s)
{
	for (int k = 0; k < s->plan->n_buffers; k++) {
		struct dn_param *p = s->net->params[s->plan->buffers[k].param];

		p->value = fsdp_runtime_at(&s->rt, fsdp_place_rolling(s->plan, k));
		p->stat = fsdp_runtime_at(&s->rt, fsdp_place_stat(s->plan, k));
	}
}

static int check_ready(void *arg, int block)
{
	struct fsdp_store *s = arg;
	const struct fsdp_block *b = &s->plan->blocks[block];

	for (int t = b->first_tensor; t < b->first_tensor + b->n_tensors; t++) {
		int64_t at, n, from;

		fsdp_plan_tensor(s->plan, t, DN_VALUE, s->mesh->rank, &at, &n, &from);
		if (s->written[t] < n)
			return dn_fail(-EINVAL,
				       "block %s: gathered before it has values: %lld of elements %lld to %lld of %s were "
				       "never written",
				       b->name, (long long)(n - s->written[t]), (long long)at, (long long)(at + n),
				       s->net->params[s->plan->tensors[t].param]->name);
	}
	return 0;
}

static void stand(void *arg, const char *op, const char *block)
{
	fsdp_mesh_at(((struct fsdp_store *)arg)->mesh, op, block);
}

static int take_region(struct fsdp_store *s, enum dn_region r)
{
	const struct dn_backend *be = s->net->dev->be;
	size_t bytes = fsdp_place_all(s->plan, r, false).bytes, pinned = fsdp_place_all(s->plan, r, true).bytes;
	bool shared = fsdp_place_shared(s->plan, r);
	int err = bytes && !shared ? be->alloc(s->net->dev, r, bytes, &s->mem.region[r]) : 0;

	if (shared) {
		s->mem.region[r] = fsdp_windows_region(s->mesh->windows, r, bytes);
		err = s->mem.region[r] ? 0 : -EINVAL;
	}

	/* slots and staging are written before they are read */
	if (!err && bytes && r != DN_MEM_PARAM_SLOTS && r != DN_MEM_GRAD_SLOTS && r != DN_MEM_STAGING)
		err = be->zero(s->net->compute, s->mem.region[r], bytes);
	if (!err && pinned)
		err = be->alloc_host(s->net->dev, r, pinned, &s->mem.host_staging);
	return err;
}

#define LARGEST 4 /* regions that are told of */

/* The plan fitted, but the system has not got it: of what it wants, the largest, and what was taken by then. */
static int without_memory(const struct fsdp_store *s, int err)
{
	char why[512], list[256];
	bool told[DN_MEM_PLANNED] = { false };
	size_t at = 0, taken = 0;

	if (err != -ENOMEM)
		return err;
	snprintf(why, sizeof(why), "%s", dn_message());
	for (int r = 0; r < DN_MEM_PLANNED; r++) {
		struct dn_mem_stats m;

		dn_mem_stats((enum dn_region)r, &m);
		taken += m.now_bytes;
	}
	for (int k = 0; k < LARGEST; k++) {
		int best = -1;

		for (int r = 0; r < DN_MEM_PLANNED; r++)
			if (!told[r] && (best < 0 || s->plan->planned[r] > s->plan->planned[best]))
				best = r;
		told[best] = true;
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s %zu", k ? ", " : "",
				       dn_region_name((enum dn_region)best), s->plan->planned[best]);
	}
	return dn_fail(
		err, "%s; the plan takes %zu bytes on each rank, the most %s; %zu were taken (memory=BYTES lists what would fit)",
		why, s->plan->total_bytes, list, taken);
}

static int store_alloc(void *self, struct dn_net *net)
{
	struct fsdp_store *s = self;
	int err;

	s->written = dn_calloc((size_t)s->plan->n_tensors, sizeof(*s->written));
	if (!s->written)
		return -ENOMEM;
	for (size_t i = 0; i < sizeof(own_regions) / sizeof(own_regions[0]); i++) {
		err = take_region(s, own_regions[i]);
		if (err)
			return without_memory(s, err);
	}
	err = dn_window_init(&s->window, net->dev, MOVE_FLOATS);
	if (!err)
		err = net->dev->be->stream_sync(net->compute); /* other streams use them as well */
	if (!err)
		err = fsdp_runtime_init(&s->rt, s->plan, net, s->mesh, &s->mem);
	if (err)
		return err;
	place_buffers(s);
	s->rt.check_ready = check_ready;
	s->rt.check_arg = s;
	s->rt.stand = stand;
	s->rt.stand_arg = s;
	return 0;
}

static void store_destroy(void *self)
{
	struct fsdp_store *s = self;

	s->mesh->last_block = NULL;
	fsdp_control_detach(&s->mesh->control);
	fsdp_runtime_stop(&s->rt);
	fsdp_report_tell(s);
	fsdp_runtime_fini(&s->rt);
	for (int r = 0; r < DN_MEM_PLANNED; r++)
		if (s->mem.region[r] && !fsdp_place_shared(s->plan, (enum dn_region)r))
			s->net->dev->be->free(s->net->dev, s->mem.region[r]);
	if (s->mem.host_staging)
		s->net->dev->be->free_host(s->net->dev, s->mem.host_staging);
	dn_window_fini(&s->window);
	dn_free(s->written);
	dn_free(s->checks);
	dn_free(s->own);
	dn_free(s);
}

/* --- who owns what --- */

float *fsdp_store_part(const struct fsdp_store *s, int t, enum dn_part part)
{
	const struct fsdp_tensor *x = &s->plan->tensors[t];

	if (part != DN_VALUE && s->net->params[x->param]->frozen)
		return NULL;
	if (part == DN_VALUE && x->offset >= s->plan->blocks[x->block].learning) /* beside a master, perhaps */
		return fsdp_runtime_at(&s->rt, fsdp_place_shard(s->plan, x->block));
	return fsdp_runtime_at(&s->rt, fsdp_place_part(s->plan, x->block, part));
}

struct each { /* pieces of a window as those of a param, whose interval begins at @from */
	struct dn_param *p;
	int64_t from;
	dn_interval_fn fn;
	void *arg;
};

static int each_piece(void *arg, int64_t at, int64_t n, float *x)
{
	const struct each *e = arg;

	return e->fn(e->arg, e->p, e->from + at, n, x);
}

static int store_each(void *self, struct dn_param *p, enum dn_part part, unsigned access, dn_interval_fn fn, void *arg)
{
	struct fsdp_store *s = self;
	int t = s->plan->tensor_of_param[p->index], err;
	struct each e = { p, 0, fn, arg };
	int64_t n, place;
	float *x;

	fsdp_mesh_at(s->mesh, "values", p->block->name);
	err = fsdp_runtime_idle(&s->rt);
	if (err)
		return err;
	if (part == DN_VALUE && access & DN_WRITE)
		fsdp_runtime_written(&s->rt);
	if (p->role == DN_BUFFER)
		return part == DN_VALUE ? dn_window_each(&s->window, s->net->compute, p->value, p->n, access, each_piece, &e) : 0;
	x = fsdp_store_part(s, t, part);
	if (!x)
		return 0;
	fsdp_plan_tensor(s->plan, t, part, s->mesh->rank, &e.from, &n, &place);
	err = n ? dn_window_each(&s->window, s->net->compute, x + place, n, access, each_piece, &e) : 0;
	if (!err && part == DN_VALUE && access & DN_WRITE)
		s->written[t] = n;
	return err;
}

static bool store_writes(void *self, const struct dn_param *p, enum dn_part part)
{
	const struct fsdp_store *s = self;

	return fsdp_plan_writes(s->plan, p, part, s->mesh->rank);
}

static int check_range(const struct fsdp_store *s, const struct dn_param *p, enum dn_part part, int64_t at, int64_t n)
{
	int t = s->plan->tensor_of_param[p->index];

	if (at < 0 || n < 0 || n > p->n || at > p->n - n)
		return dn_fail(-EINVAL, "%s: elements %lld to %lld wanted, it has %lld", p->name, (long long)at,
			       (long long)(at + n), (long long)p->n);
	if (p->role == DN_BUFFER ? part != DN_VALUE : !fsdp_store_part(s, t, part))
		return dn_fail(-EINVAL, "%s: has no part %d", p->name, (int)part);
	return 0;
}

/* [*at, *at + *n): what @rank owns of elements [from, from + len) of tensor @t's @part, *place elements behind the part's begin */
static void owned(const struct fsdp_store *s, int t, enum dn_part part, int rank, int64_t from, int64_t len, int64_t *at,
		  int64_t *n, int64_t *place)
{
	int64_t start, count, end;

	fsdp_plan_tensor(s->plan, t, part, rank, &start, &count, place);
	*at = start > from ? start : from;
	end = start + count < from + len ? start + count : from + len;
	*n = end > *at && count ? end - *at : 0;
	*place += *at - start;
}

/* The pieces that the ranks own of what moves, between rank 0's host memory and theirs: c->spans. */
static int transfer(struct fsdp_store *s, const struct dn_param *p, const char *verb, bool from_others)
{
	struct fsdp_control *c = &s->mesh->control;
	char what[160];

	if (!c->n_spans)
		return 0;
	snprintf(what, sizeof(what), "%s of %s of block %s", verb, p->name, p->block->name);
	return fsdp_control_transfer(c, what, from_others == (s->mesh->rank != 0));
}

static void span(struct fsdp_store *s, int peer, float *p, int64_t n)
{
	struct fsdp_control *c = &s->mesh->control;

	c->spans[c->n_spans++] = (struct fsdp_span){ peer, p, (size_t)n * sizeof(*p) };
}

/* Rank 0's side: its own part goes by its window, the others' by the channel. */
static int move_whole(struct fsdp_store *s, const struct dn_param *p, enum dn_part part, int64_t at, int64_t n, float *whole,
		      bool read)
{
	int t = s->plan->tensor_of_param[p->index], err = 0;
	float *x = fsdp_store_part(s, t, part);

	/* of those that own the same, rank 0 reads the first, and writes all */
	for (int q = 0; q < s->plan->grid.world && !err; q++) {
		int64_t from, len, place;

		if (read && !fsdp_plan_first(s->plan, t, part, q))
			continue;
		owned(s, t, part, q, at, n, &from, &len, &place);
		if (len && q)
			span(s, q, whole + (from - at), len);
		else if (len && read)
			err = dn_window_read(&s->window, s->net->compute, x + place, len, whole + (from - at));
		else if (len)
			err = dn_window_write(&s->window, s->net->compute, x + place, len, whole + (from - at));
	}
	return err ? err : transfer(s, p, read ? "read" : "write", read);
}

/* the side of a rank that owns a part */
static int move_part(struct fsdp_store *s, const struct dn_param *p, enum dn_part part, int64_t at, int64_t n, bool read)
{
	int t = s->plan->tensor_of_param[p->index], err;
	const unsigned access = read ? DN_READ : DN_WRITE;
	int64_t from, len, place;
	float *x, *host;

	owned(s, t, part, s->mesh->rank, at, n, &from, &len, &place);
	if (!len || (read && !fsdp_plan_first(s->plan, t, part, s->mesh->rank)))
		return 0;
	x = fsdp_store_part(s, t, part) + place;
	err = dn_window_begin(&s->window, s->net->compute, x, len, access, &host);
	if (err)
		return err;
	span(s, 0, host, len);
	err = transfer(s, p, read ? "read" : "write", read);
	return err ? err : dn_window_end(&s->window, s->net->compute, x, len, access);
}

/* Elements [at, at+n) between rank 0's @whole and the shards. */
static int move(struct fsdp_store *s, const struct dn_param *p, enum dn_part part, int64_t at, int64_t n, float *whole, bool read)
{
	int err = 0;

	for (int64_t k = 0, m; k < n && !err; k += m) {
		m = n - k < MOVE_FLOATS ? n - k : MOVE_FLOATS;
		s->mesh->control.n_spans = 0;
		err = s->mesh->rank ? move_part(s, p, part, at + k, m, read) : move_whole(s, p, part, at + k, m, whole + k, read);
	}
	return err;
}

static int store_read(void *self, const struct dn_param *p, enum dn_part part, int64_t at, int64_t n, float *out)
{
	struct fsdp_store *s = self;
	int err;

	fsdp_mesh_at(s->mesh, "read", p->block->name);
	err = fsdp_runtime_idle(&s->rt);
	if (!err)
		err = check_range(s, p, part, at, n);
	if (err)
		return err;
	if (p->role == DN_TRAINED)
		return move(s, p, part, at, n, out, true);
	return out ? dn_window_read(&s->window, s->net->compute, p->value + at, n, out) : 0;
}

/* A buffer is whole on every rank: rank 0 sends it to all. */
static int write_buffer(struct fsdp_store *s, const struct dn_param *p, int64_t at, int64_t n, const float *in)
{
	float *x = p->value + at, *host;
	int err;

	s->mesh->control.n_spans = 0;
	if (s->mesh->rank == 0) {
		err = dn_window_write(&s->window, s->net->compute, x, n, in);
		for (int q = 1; q < s->plan->grid.world; q++)
			span(s, q, (float *)(uintptr_t)in, n);
		return err ? err : transfer(s, p, "write", false);
	}
	err = dn_window_begin(&s->window, s->net->compute, x, n, DN_WRITE, &host);
	if (err)
		return err;
	span(s, 0, host, n);
	err = transfer(s, p, "write", false);
	return err ? err : dn_window_end(&s->window, s->net->compute, x, n, DN_WRITE);
}

static void store_touched(void *self)
{
	((struct fsdp_store *)self)->net->values_version++;
}

static int store_write(void *self, struct dn_param *p, enum dn_part part, int64_t at, int64_t n, const float *in)
{
	struct fsdp_store *s = self;
	int t = s->plan->tensor_of_param[p->index];
	int64_t from, len, place;
	int err;

	fsdp_mesh_at(s->mesh, "write", p->block->name);
	err = fsdp_runtime_idle(&s->rt);
	if (!err)
		err = check_range(s, p, part, at, n);
	if (err)
		return err;
	if (part == DN_VALUE)
		fsdp_runtime_written(&s->rt);
	for (int64_t k = 0; p->role == DN_BUFFER && k < n && !err; k += MOVE_FLOATS)
		err = write_buffer(s, p, at + k, n - k < MOVE_FLOATS ? n - k : MOVE_FLOATS, in ? in + k : NULL);
	if (p->role == DN_TRAINED)
		err = move(s, p, part, at, n, (float *)in, false);
	if (!err && p->role == DN_TRAINED && part == DN_VALUE) {
		owned(s, t, DN_VALUE, s->mesh->rank, at, n, &from, &len, &place);
		s->written[t] += len;
	}
	store_touched(s);
	return err;
}

/* --- a step --- */

static int store_begin(void *self, struct dn_net *net, int64_t step)
{
	struct fsdp_store *s = self;
	int err = fsdp_verify(s, step);

	if (!err)
		err = fsdp_runtime_begin(&s->rt, step);

	fsdp_mesh_at(s->mesh, "images before forward", s->plan->blocks[0].name);
	if (!err)
		fsdp_report_begin(s);
	return err;
}

static int store_stats(void *self, struct dn_net *net)
{
	return fsdp_runtime_stats(&((struct fsdp_store *)self)->rt);
}

static int update_block(void *arg, int block)
{
	struct fsdp_store *s = arg;

	return fsdp_optim_block(s, block);
}

static int look_block(void *arg, int block)
{
	return fsdp_look_block(arg, block);
}

static int store_look(void *self, struct dn_net *net, const struct dn_look_desc *d)
{
	struct fsdp_store *s = self;
	int err;

	s->look = d;
	err = fsdp_runtime_look(&s->rt, look_block, s);
	s->look = NULL;
	return err;
}

static int nothing_to_update(void *arg, int block)
{
	return 0;
}

static int store_ready(void *self, struct dn_net *net, const struct dn_update *u)
{
	struct fsdp_store *s = self;

	s->update = u;
	fsdp_runtime_ready(&s->rt, u ? update_block : nothing_to_update, s);
	return 0;
}

static int store_skip(void *self, struct dn_net *net)
{
	struct fsdp_store *s = self;
	int err = fsdp_runtime_skip(&s->rt);

	if (!err)
		fsdp_report_end(s);
	return err;
}

static int store_step(void *self, struct dn_net *net, const struct dn_update *u)
{
	struct fsdp_store *s = self;
	int err;

	s->update = u;
	err = fsdp_runtime_update(&s->rt, update_block, s);
	s->update = NULL;
	store_touched(s);
	if (!err)
		fsdp_report_end(s);
	return err;
}

static const struct dn_store_ops store_ops = {
	.alloc = store_alloc,
	.each = store_each,
	.writes = store_writes,
	.read = store_read,
	.write = store_write,
	.stats = store_stats,
	.begin = store_begin,
	.step = store_step,
	.touched = store_touched,
	.report = fsdp_report,
	.look = store_look,
	.ready = store_ready,
	.skip = store_skip,
	.destroy = store_destroy,
};

/* --- hooks --- */

static int before_forward(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return fsdp_runtime_before_forward(&((struct fsdp_store *)self)->rt, b->index, pass->phase);
}

static int after_forward(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return fsdp_runtime_after_forward(&((struct fsdp_store *)self)->rt, b->index);
}

static int before_backward(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return fsdp_runtime_before_backward(&((struct fsdp_store *)self)->rt, b->index);
}

static int after_gradients(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return fsdp_runtime_after_gradients(&((struct fsdp_store *)self)->rt, b->index);
}

static int after_backward(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return fsdp_runtime_after_backward(&((struct fsdp_store *)self)->rt, b->index);
}

static int exchange(void *self, struct dn_layer *l, bool backward, enum dn_type type, void *x, int64_t n)
{
	return fsdp_runtime_exchange(&((struct fsdp_store *)self)->rt, l->index, backward, type, x, n);
}

static const struct dn_hooks store_hooks = {
	.before_forward = before_forward,
	.after_forward = after_forward,
	.before_backward = before_backward,
	.after_gradients = after_gradients,
	.after_backward = after_backward,
	.exchange = exchange,
};

int fsdp_store_attach(struct dn_net *net, struct fsdp_mesh *mesh, const struct fsdp_plan *plan)
{
	struct fsdp_group *groups;
	struct fsdp_store *s;
	int err;

	if (net->store.ops)
		return dn_fail(-EEXIST, "the net has a store already");
	s = dn_zalloc(sizeof(*s));
	if (!s)
		return -ENOMEM;
	groups = dn_calloc((size_t)plan->n_lanes, sizeof(*groups));
	err = groups ? 0 : -ENOMEM;
	for (int i = 0; i < plan->n_lanes && !err; i++)
		groups[i] = plan->lanes[i].group;
	if (!err)
		err = fsdp_groups_open(mesh, plan->n_lanes, groups);
	dn_free(groups);
	if (!err)
		err = fsdp_control_attach(&mesh->control, net->dev);
	if (err) {
		dn_free(s);
		return err;
	}
	s->net = net;
	s->mesh = mesh;
	s->plan = plan;
	net->store = (struct dn_store){ .ops = &store_ops, .hooks = &store_hooks, .self = s, .constant = false };
	return 0;
}
