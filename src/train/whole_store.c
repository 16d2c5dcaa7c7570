/* The default store: values, gradients and optimizer state whole in this process.
 *
 * One allocation a region, every tensor at a DN_ALIGN boundary, in file order. With subdivisions > 1 the layers
 * write a microbatch's gradient into one slot that all blocks share, and only the complete gradient of a block goes
 * into the accumulator: acc = g0; acc += g1; ... element by element, which is what a sharded run computes as well.
 * With one microbatch an update the accumulator itself is what the layers write.
 */
#include "train/whole_store.h"

#include <errno.h>
#include <string.h>

#include "graph/optimizer.h"
#include "train/loop.h"
#include "train/optim.h"

struct whole_param { /* NULL where there is nothing */
	float *value;
	float *acc; /* accumulated gradient */
	float *state[DN_STATES];
	float *ema;
};

struct whole {
	struct dn_net *net;
	const struct dn_backend *be;
	bool slots; /* gradients pass through the slot */
	int n_states;
	void *region[DN_MEM_PLANNED];
	struct whole_param *params; /* [n_params] */
	bool *complete;		    /* [n_blocks] a microbatch of this update has been added already */
	struct dn_window window;
};

static bool has_grad(const struct dn_param *p)
{
	return p->role == DN_TRAINED && !p->frozen;
}

static int add_tensor(size_t *bytes, int64_t n)
{
	size_t b;
	int err;

	err = dn_mul_size((size_t)n, sizeof(float), &b);
	if (err)
		return err;
	if (b > SIZE_MAX - DN_ALIGN || dn_up(b, DN_ALIGN) > SIZE_MAX - *bytes)
		return dn_fail(-EOVERFLOW, "the tensors of one region are larger than the address space");
	*bytes += dn_up(b, DN_ALIGN);
	return 0;
}

/* The gradients of one block at a time; before them, those that layers of several blocks add to. */
static int slot_bytes(const struct dn_net *net, size_t *out)
{
	size_t most = 0, spanning = 0;

	for (int i = 0; i < net->n_blocks; i++) {
		size_t bytes = 0;
		int first, n, err;

		n = dn_block_params(&net->blocks[i], &first);
		for (int k = first; k < first + n; k++) {
			if (!has_grad(net->params[k]))
				continue;
			err = add_tensor(dn_param_spans_blocks(net->params[k]) ? &spanning : &bytes, net->params[k]->n);
			if (err)
				return err;
		}
		if (bytes > most)
			most = bytes;
	}
	if (most > SIZE_MAX - spanning)
		return dn_fail(-EOVERFLOW, "the tensors of one region are larger than the address space");
	*out = spanning + most;
	return 0;
}

/* What the store itself allocates: the regions of the net and of the loader stay 0. */
static int own_bytes(const struct dn_net *net, size_t *out)
{
	bool train = net->opt.train;
	int err = 0;

	memset(out, 0, DN_MEM_PLANNED * sizeof(*out)); /* host memory */
	for (int i = 0; i < net->n_params && !err; i++) {
		const struct dn_param *p = net->params[i];

		if (p->role == DN_BUFFER) {
			err = add_tensor(&out[DN_MEM_BUFFERS], p->n);
			if (!err && train && !p->frozen)
				err = add_tensor(&out[DN_MEM_BUFFERS], p->n);
			continue;
		}
		err = add_tensor(&out[DN_MEM_PARAMS], p->n);
		if (err || !train || p->frozen)
			continue;
		err = add_tensor(&out[DN_MEM_GRADS], p->n);
		for (int s = 0; s < dn_state_count(net->hyper.optimizer) && !err; s++)
			err = add_tensor(&out[DN_MEM_OPTIMIZER], p->n);
		if (!err && net->opt.ema)
			err = add_tensor(&out[DN_MEM_EMA], p->n);
	}
	if (!err && train && net->subdivisions > 1)
		err = slot_bytes(net, &out[DN_MEM_GRAD_SLOTS]);
	return err;
}

int dn_whole_bytes(const struct dn_net *net, size_t planned[DN_MEM_PLANNED])
{
	size_t bytes[DN_MEM_PLANNED], ring = 0;
	int err;

	err = own_bytes(net, bytes);
	if (!err && net->carries_bytes > SIZE_MAX - bytes[DN_MEM_BUFFERS])
		return dn_fail(-EOVERFLOW, "the tensors of one region are larger than the address space");
	bytes[DN_MEM_BUFFERS] += net->carries_bytes;
	if (!err && net->opt.train)
		err = dn_loop_input_bytes(net, &ring);
	if (err)
		return err;
	if (ring > SIZE_MAX - net->activations_bytes)
		return dn_fail(-EOVERFLOW, "activations and input batches are larger than the address space");
	bytes[DN_MEM_ACTIVATIONS] = net->activations_bytes + ring;
	bytes[DN_MEM_WORKSPACE] = net->workspace_bytes;
	memcpy(planned, bytes, sizeof(bytes)); /* host memory */
	return 0;
}

/* --- set-up --- */

static float *take(char **at, int64_t n)
{
	float *x = (float *)*at;

	*at += dn_up((size_t)n * sizeof(float), DN_ALIGN);
	return x;
}

static void place(struct whole *s)
{
	struct dn_net *net = s->net;
	char *at[DN_MEM_PLANNED], *all;

	for (int r = 0; r < DN_MEM_PLANNED; r++)
		at[r] = s->region[r];
	for (int i = 0; i < net->n_params; i++) {
		struct dn_param *p = net->params[i];
		struct whole_param *wp = &s->params[i];

		if (p->role == DN_BUFFER) {
			wp->value = p->value = take(&at[DN_MEM_BUFFERS], p->n);
			if (net->opt.train && !p->frozen)
				p->stat = take(&at[DN_MEM_BUFFERS], p->n);
			continue;
		}
		wp->value = p->value = take(&at[DN_MEM_PARAMS], p->n);
		if (!net->opt.train || p->frozen)
			continue;
		wp->acc = take(&at[DN_MEM_GRADS], p->n);
		for (int k = 0; k < s->n_states; k++)
			wp->state[k] = take(&at[DN_MEM_OPTIMIZER], p->n);
		if (net->opt.ema)
			wp->ema = take(&at[DN_MEM_EMA], p->n);
		if (!s->slots)
			p->grad = wp->acc;
	}
	if (!s->slots)
		return;
	all = s->region[DN_MEM_GRAD_SLOTS];
	for (int i = 0; i < net->n_params; i++)
		if (has_grad(net->params[i]) && dn_param_spans_blocks(net->params[i]))
			net->params[i]->grad = take(&all, net->params[i]->n);
	for (int i = 0; i < net->n_blocks; i++) {
		char *slot = all;
		int first, n;

		n = dn_block_params(&net->blocks[i], &first);
		for (int k = first; k < first + n; k++)
			if (has_grad(net->params[k]) && !net->params[k]->grad)
				net->params[k]->grad = take(&slot, net->params[k]->n);
	}
}

static int64_t most_elements(const struct dn_net *net)
{
	int64_t most = 0;

	for (int i = 0; i < net->n_params; i++)
		most = net->params[i]->n > most ? net->params[i]->n : most;
	return most;
}

static int whole_alloc(void *self, struct dn_net *net)
{
	struct whole *s = self;
	size_t bytes[DN_MEM_PLANNED];
	int err;

	err = own_bytes(net, bytes);
	if (err)
		return err;
	s->n_states = dn_state_count(net->hyper.optimizer);
	s->slots = net->opt.train && net->subdivisions > 1;
	s->params = dn_calloc((size_t)net->n_params, sizeof(*s->params));
	s->complete = dn_calloc((size_t)net->n_blocks, sizeof(*s->complete));
	if (!s->params || !s->complete)
		return -ENOMEM;
	for (int r = 0; r < DN_MEM_PLANNED; r++) {
		if (!bytes[r])
			continue;
		err = s->be->alloc(net->dev, r, bytes[r], &s->region[r]);
		if (!err)
			err = s->be->zero(net->compute, s->region[r], bytes[r]);
		if (err)
			return err;
	}
	place(s);
	return dn_window_init(&s->window, net->dev, most_elements(net));
}

static void whole_destroy(void *self)
{
	struct whole *s = self;

	for (int r = 0; r < DN_MEM_PLANNED; r++)
		if (s->region[r])
			s->be->free(s->net->dev, s->region[r]);
	dn_window_fini(&s->window);
	dn_free(s->params);
	dn_free(s->complete);
	dn_free(s);
}

/* --- access --- */

static float *part_of(const struct whole *s, const struct dn_param *p, enum dn_part part)
{
	const struct whole_param *wp = &s->params[p->index];

	switch (part) {
	case DN_VALUE:
		return wp->value;
	case DN_GRAD:
		return wp->acc;
	case DN_EMA:
		return wp->ema;
	default:
		return part < DN_EMA ? wp->state[part - DN_STATE0] : NULL;
	}
}

struct each { /* pieces of a window as those of a param */
	struct dn_param *p;
	dn_interval_fn fn;
	void *arg;
};

static int each_piece(void *arg, int64_t at, int64_t n, float *x)
{
	const struct each *e = arg;

	return e->fn(e->arg, e->p, at, n, x);
}

static int whole_each(void *self, struct dn_param *p, enum dn_part part, unsigned access, dn_interval_fn fn, void *arg)
{
	struct whole *s = self;
	struct each e = { p, fn, arg };
	float *x = part_of(s, p, part);

	return x ? dn_window_each(&s->window, s->net->compute, x, p->n, access, each_piece, &e) : 0;
}

/* where several ranks train with a store like this one, all own the same */
static bool whole_writes(void *self, const struct dn_param *p, enum dn_part part)
{
	return ((const struct whole *)self)->net->opt.rank == 0;
}

static int range_of(const struct whole *s, const struct dn_param *p, enum dn_part part, int64_t at, int64_t n, float **out)
{
	float *x = part_of(s, p, part);

	if (!x)
		return dn_fail(-EINVAL, "%s: has no part %d", p->name, (int)part);
	if (at < 0 || n < 0 || n > p->n || at > p->n - n)
		return dn_fail(-EINVAL, "%s: elements %lld to %lld wanted, it has %lld", p->name, (long long)at,
			       (long long)(at + n), (long long)p->n);
	*out = x + at;
	return 0;
}

static int whole_read(void *self, const struct dn_param *p, enum dn_part part, int64_t at, int64_t n, float *out)
{
	struct whole *s = self;
	float *x;
	int err;

	err = range_of(s, p, part, at, n, &x);
	return err || !out ? err : dn_window_read(&s->window, s->net->compute, x, n, out);
}

static void whole_touched(void *self)
{
	((struct whole *)self)->net->values_version++;
}

static int whole_write(void *self, struct dn_param *p, enum dn_part part, int64_t at, int64_t n, const float *in)
{
	struct whole *s = self;
	float *x;
	int err;

	if (!in)
		return dn_fail(-EINVAL, "%s: values for this rank are elsewhere, and the whole store has no way to them",
			       p->name);
	err = range_of(s, p, part, at, n, &x);
	if (!err)
		err = dn_window_write(&s->window, s->net->compute, x, n, in);
	whole_touched(s);
	return err;
}

/* --- a step --- */

static int whole_begin(void *self, struct dn_net *net, int64_t step)
{
	struct whole *s = self;

	memset(s->complete, 0, (size_t)net->n_blocks * sizeof(*s->complete)); /* host memory */
	return 0;
}

static int whole_after_backward(void *self, struct dn_block *b, const struct dn_pass *pass)
{
	struct whole *s = self;
	struct dn_net *net = s->net;
	int first, n, err;

	n = dn_block_params(b, &first);
	for (int k = first; k < first + n && net->opt.looks; k++) {
		err = net->params[k]->grad ? dn_net_look(net, &(struct dn_look_desc){ 0 }, b->index, false, false,
							 net->params[k]->n, net->params[k]->grad)
					   : 0;
		if (err)
			return err;
	}
	if (!s->slots)
		return 0;
	for (int k = first; k < first + n; k++) {
		const struct dn_param *p = net->params[k];
		float *acc = s->params[k].acc;

		if (!acc)
			continue;
		if (s->complete[b->index])
			err = s->be->axpby(net->compute, DN_F32, p->n, 1.0f, p->grad, 1.0f, acc);
		else
			err = s->be->copy(net->compute, acc, p->grad, (size_t)p->n * sizeof(float));
		if (err)
			return err;
	}
	s->complete[b->index] = true;
	return 0;
}

static int whole_stats(void *self, struct dn_net *net)
{
	struct whole *s = self;

	for (int i = 0; i < net->n_params; i++) {
		struct dn_param *p = net->params[i];
		int err;

		if (!p->stat)
			continue;
		err = s->be->axpby(net->compute, DN_F32, p->n, DN_ROLLING_NEW, p->stat, DN_ROLLING_KEEP, p->value);
		if (err)
			return err;
	}
	return 0;
}

static int whole_step(void *self, struct dn_net *net, const struct dn_update *u)
{
	struct whole *s = self;
	int err = 0;

	for (int i = 0; i < net->n_params && !err; i++) {
		struct whole_param *wp = &s->params[i];

		if (wp->acc)
			err = dn_optim_range(net->compute, net->params[i], u, net->params[i]->n, wp->value, wp->acc, wp->state);
		if (!err && wp->ema)
			err = dn_optim_ema(net->compute, net->params[i], u, net->params[i]->n, wp->value, wp->ema);
	}
	whole_touched(s);
	return err ? err : s->be->stream_sync(net->compute);
}

static int whole_look(void *self, struct dn_net *net, const struct dn_look_desc *d)
{
	struct whole *s = self;
	int err = 0;

	for (int i = 0; i < net->n_params && !err; i++) {
		const struct dn_param *p = net->params[i];

		if (s->params[i].acc)
			err = dn_net_look(net, d, p->block->index, true, whole_writes(self, p, DN_GRAD), p->n, s->params[i].acc);
	}
	return err;
}

static int whole_skip(void *self, struct dn_net *net)
{
	return 0;
}

static void whole_report(void *self, struct dn_store_report *out)
{
	struct whole *s = self;

	memset(out, 0, sizeof(*out));
	out->replicas = s->net->opt.world;
	/* the sums have been checked by alloc: an overflow would have ended the run there */
	if (dn_whole_bytes(s->net, out->planned_bytes))
		memset(out->planned_bytes, 0, sizeof(out->planned_bytes));
}

static const struct dn_store_ops whole_ops = {
	.alloc = whole_alloc,
	.each = whole_each,
	.writes = whole_writes,
	.read = whole_read,
	.write = whole_write,
	.stats = whole_stats,
	.begin = whole_begin,
	.step = whole_step,
	.touched = whole_touched,
	.report = whole_report,
	.look = whole_look,
	.skip = whole_skip,
	.destroy = whole_destroy,
};

static const struct dn_hooks whole_hooks = {
	.after_backward = whole_after_backward,
};

int dn_whole_attach(struct dn_net *net)
{
	struct whole *s;

	if (net->store.ops)
		return dn_fail(-EEXIST, "the net has a store already");
	s = dn_zalloc(sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->net = net;
	s->be = net->dev->be;
	net->store = (struct dn_store){ .ops = &whole_ops, .hooks = &whole_hooks, .self = s, .constant = true };
	return 0;
}
