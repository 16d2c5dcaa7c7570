/* The store contract over shards: memory by the plan, local intervals (each), collective reads and writes, steps. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "run/shard_store.h"

/* --- memory --- */

/* the regions that are the store's; the net and its loader take the others */
static const enum dn_region own_regions[] = {
	DN_MEM_PARAMS, DN_MEM_GRADS, DN_MEM_OPTIMIZER, DN_MEM_PARAM_SLOTS, DN_MEM_GRAD_SLOTS, DN_MEM_STAGING, DN_MEM_BUFFERS,
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
		int64_t at, n, shard_at;

		fsdp_plan_tensor(s->plan, t, s->mesh->rank, &at, &n, &shard_at);
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

static int store_alloc(void *self, struct dn_net *net)
{
	struct fsdp_store *s = self;
	int err;

	s->written = dn_calloc((size_t)s->plan->n_tensors, sizeof(*s->written));
	if (!s->written)
		return -ENOMEM;
	for (size_t i = 0; i < sizeof(own_regions) / sizeof(own_regions[0]); i++) {
		enum dn_region r = own_regions[i];

		if (!s->plan->planned[r])
			continue;
		err = net->dev->be->alloc(net->dev, r, s->plan->planned[r], &s->mem.region[r]);
		if (err)
			return err;
	}
	err = fsdp_runtime_init(&s->rt, s->plan, net, s->mesh->gather, s->mesh->reduce, &s->mem);
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
	fsdp_runtime_fini(&s->rt);
	for (int r = 0; r < DN_MEM_PLANNED; r++)
		if (s->mem.region[r])
			s->net->dev->be->free(s->net->dev, s->mem.region[r]);
	dn_free(s->written);
	dn_free(s);
}

/* --- who owns what --- */

float *fsdp_store_part(const struct fsdp_store *s, int t, enum dn_part part)
{
	const struct fsdp_tensor *x = &s->plan->tensors[t];

	if (part != DN_VALUE && s->net->params[x->param]->frozen)
		return NULL;
	return fsdp_runtime_at(&s->rt, fsdp_place_part(s->plan, x->block, part));
}

static int store_each(void *self, struct dn_param *p, enum dn_part part, dn_interval_fn fn, void *arg)
{
	struct fsdp_store *s = self;
	int t = s->plan->tensor_of_param[p->index], err;
	int64_t at, n, shard_at;
	float *x;

	fsdp_mesh_at(s->mesh, "values", p->block->name);
	err = fsdp_runtime_idle(&s->rt);
	if (err)
		return err;
	if (p->role == DN_BUFFER)
		return part == DN_VALUE ? fn(arg, p, 0, p->n, p->value) : 0;
	x = fsdp_store_part(s, t, part);
	if (!x)
		return 0;
	fsdp_plan_tensor(s->plan, t, s->mesh->rank, &at, &n, &shard_at);
	err = n ? fn(arg, p, at, n, x + shard_at) : 0;
	if (!err && part == DN_VALUE)
		s->written[t] = n;
	return err;
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

/* [*at, *at + *n): what @rank owns of elements [from, from + len) of tensor @t; *shard_at moves along */
static void owned(const struct fsdp_store *s, int t, int rank, int64_t from, int64_t len, int64_t *at, int64_t *n,
		  int64_t *shard_at)
{
	int64_t start, count, end;

	fsdp_plan_tensor(s->plan, t, rank, &start, &count, shard_at);
	*at = start > from ? start : from;
	end = start + count < from + len ? start + count : from + len;
	*n = end > *at && count ? end - *at : 0;
	*shard_at += *at - start;
}

/* Elements [at, at+n) between rank 0's @whole and the shards, without scratch. */
static int move(struct fsdp_store *s, const struct dn_param *p, enum dn_part part, int64_t at, int64_t n, float *whole, bool read)
{
	struct fsdp_control *c = &s->mesh->control;
	int t = s->plan->tensor_of_param[p->index], rank = s->mesh->rank;
	char what[160];
	int64_t from, len, shard_at;
	float *x = fsdp_store_part(s, t, part);

	c->n_spans = 0;
	/* of the copies of a shard rank 0 reads the first, and writes all */
	for (int q = 0; q < (read ? s->plan->grid.shards : s->plan->grid.world); q++) {
		float *mine;

		owned(s, t, q, at, n, &from, &len, &shard_at);
		if (!len || (rank && q != rank))
			continue;
		mine = rank == q ? x + shard_at : NULL;
		if (rank == 0 && q == 0)
			memmove(read ? whole + (from - at) : mine, read ? mine : whole + (from - at),
				(size_t)len * sizeof(float));
		else if (q)
			c->spans[c->n_spans++] = (struct fsdp_span){ rank ? 0 : q, rank ? mine : whole + (from - at),
								     (size_t)len * sizeof(float) };
	}
	if (s->plan->grid.world == 1 || !c->n_spans)
		return 0;
	snprintf(what, sizeof(what), "%s of %s of block %s", read ? "read" : "write", p->name, p->block->name);
	return fsdp_control_transfer(c, what, read == (rank != 0));
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
	if (out)
		memcpy(out, p->value + at, (size_t)n * sizeof(float));
	return 0;
}

/* A buffer is whole on every rank: rank 0 sends it to all. */
static int write_buffer(struct fsdp_store *s, struct dn_param *p, int64_t at, int64_t n, const float *in)
{
	struct fsdp_control *c = &s->mesh->control;
	char what[160];

	if (in)
		memcpy(p->value + at, in, (size_t)n * sizeof(float));
	c->n_spans = 0;
	for (int q = 1; q < s->plan->grid.world && n; q++)
		if (s->mesh->rank == 0 || s->mesh->rank == q)
			c->spans[c->n_spans++] =
				(struct fsdp_span){ s->mesh->rank ? 0 : q, p->value + at, (size_t)n * sizeof(float) };
	if (!c->n_spans)
		return 0;
	snprintf(what, sizeof(what), "write of %s of block %s", p->name, p->block->name);
	return fsdp_control_transfer(c, what, s->mesh->rank == 0);
}

static void store_touched(void *self)
{
	((struct fsdp_store *)self)->net->values_version++;
}

static int store_write(void *self, struct dn_param *p, enum dn_part part, int64_t at, int64_t n, const float *in)
{
	struct fsdp_store *s = self;
	int t = s->plan->tensor_of_param[p->index];
	int64_t from, len, shard_at;
	int err;

	fsdp_mesh_at(s->mesh, "write", p->block->name);
	err = fsdp_runtime_idle(&s->rt);
	if (!err)
		err = check_range(s, p, part, at, n);
	if (err)
		return err;
	if (p->role == DN_BUFFER)
		err = write_buffer(s, p, at, n, in);
	else
		err = move(s, p, part, at, n, (float *)in, false);
	if (!err && p->role == DN_TRAINED && part == DN_VALUE) {
		owned(s, t, s->mesh->rank, at, n, &from, &len, &shard_at);
		s->written[t] += len;
	}
	store_touched(s);
	return err;
}

/* --- a step --- */

static int store_begin(void *self, struct dn_net *net, int64_t step)
{
	struct fsdp_store *s = self;
	int err = fsdp_runtime_begin(&s->rt);

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

static int store_step(void *self, struct dn_net *net, const struct dn_update *u)
{
	struct fsdp_store *s = self;
	int err;

	s->update = u;
	err = fsdp_runtime_update(&s->rt, update_block, s);
	s->update = NULL;
	store_touched(s);
	if (!err)
		err = s->rt.be->stream_sync(net->compute);
	if (!err)
		err = fsdp_runtime_idle(&s->rt); /* statistics of a net in which nothing learns */
	if (!err)
		fsdp_report_end(s);
	return err;
}

static const struct dn_store_ops store_ops = {
	.alloc = store_alloc,
	.each = store_each,
	.read = store_read,
	.write = store_write,
	.stats = store_stats,
	.begin = store_begin,
	.step = store_step,
	.touched = store_touched,
	.report = fsdp_report,
	.destroy = store_destroy,
};

/* --- hooks --- */

static int before_forward(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return fsdp_runtime_before_forward(&((struct fsdp_store *)self)->rt, b->index, pass->phase == DN_TRAIN);
}

static int after_forward(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return fsdp_runtime_after_forward(&((struct fsdp_store *)self)->rt, b->index);
}

static int before_backward(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return fsdp_runtime_before_backward(&((struct fsdp_store *)self)->rt, b->index);
}

static int after_backward(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	return fsdp_runtime_after_backward(&((struct fsdp_store *)self)->rt, b->index);
}

static const struct dn_hooks store_hooks = {
	.before_forward = before_forward,
	.after_forward = after_forward,
	.before_backward = before_backward,
	.after_backward = after_backward,
};

int fsdp_store_attach(struct dn_net *net, struct fsdp_mesh *mesh, const struct fsdp_plan *plan)
{
	struct fsdp_store *s;
	int err;

	if (net->store.ops)
		return dn_fail(-EEXIST, "the net has a store already");
	s = dn_zalloc(sizeof(*s));
	if (!s)
		return -ENOMEM;
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
