/* The layout: where every trained param lies in its block's flat buffer, where every block's shard lies in
 * the regions, which slot a block uses, and where the statistics lie.
 *
 * Element counts stay below 2^63 without checks: a net has at most 2^40 elements a tensor and far fewer than
 * 2^20 tensors, and padding adds at most shards * FSDP_ALIGN a block. Bytes are checked where regions are
 * summed (plan.c).
 */
#include <errno.h>
#include <string.h>

#include "plan/plan_priv.h"

static int64_t up(int64_t x, int64_t a)
{
	return (x + a - 1) / a * a;
}

static bool has_stat(const struct dn_net *net, const struct dn_param *prm)
{
	return net->opt.train && prm->role == DN_BUFFER && !prm->frozen;
}

static void add_gap(struct fsdp_plan *p, struct fsdp_block *b, int64_t from, int64_t to)
{
	if (from == to)
		return;
	p->gaps[p->n_gaps++] = (struct fsdp_gap){ .offset = from, .n = to - from };
	b->n_gaps++;
}

/* Rolling statistics lie one after the other, and so do, in training, this microbatch's of those that are not frozen. */
static void lay_buffer(struct fsdp_plan *p, const struct dn_net *net, int block, int param)
{
	const struct dn_param *prm = net->params[param];
	struct fsdp_buffer *x = &p->buffers[p->n_buffers];

	*x = (struct fsdp_buffer){ .param = param, .block = block, .n = prm->n, .offset = p->n_rolling, .stat = -1 };
	p->n_rolling += up(prm->n, FSDP_ALIGN);
	if (has_stat(net, prm)) {
		x->stat = p->n_stats;
		p->n_stats += up(prm->n, FSDP_ALIGN);
		p->blocks[block].has_stats = true;
		p->stats_block = block;
	}
	p->tensor_of_param[param] = ~p->n_buffers++;
	p->blocks[block].n_buffers++;
}

/* Tensors in file order, each at a multiple of FSDP_ALIGN; the block ends where every rank's shard is
 * equally long. */
static void lay_block(struct fsdp_plan *p, const struct dn_net *net, int i)
{
	const struct dn_block *src = &net->blocks[i];
	struct fsdp_block *b = &p->blocks[i];
	int64_t end = 0;
	int first, n;

	memcpy(b->name, src->name, sizeof(b->name));
	b->first = src->first;
	b->last = src->last;
	b->first_tensor = p->n_tensors;
	b->first_gap = p->n_gaps;
	b->grad_offset = -1;
	b->slot = b->grad_slot = -1;
	b->first_buffer = p->n_buffers;
	n = dn_block_params(src, &first);
	for (int k = first; k < first + n; k++) {
		const struct dn_param *prm = net->params[k];
		int64_t at = up(end, FSDP_ALIGN);

		if (prm->role == DN_BUFFER) {
			lay_buffer(p, net, i, k);
			continue;
		}
		add_gap(p, b, end, at);
		p->tensor_of_param[k] = p->n_tensors;
		p->tensors[p->n_tensors++] = (struct fsdp_tensor){ .param = k, .block = i, .n = prm->n, .offset = at };
		b->n_tensors++;
		b->params += prm->n;
		b->learns = b->learns || (net->opt.train && !prm->frozen);
		end = at + prm->n;
	}
	b->padded = up(end, (int64_t)p->grid.shards * FSDP_ALIGN);
	b->shard = b->padded / p->grid.shards;
	b->gathered = b->n_tensors > 0;
	add_gap(p, b, end, b->padded);
}

/* Slots of consecutive owners differ, so that one block can be gathered beside another that is in use. */
static int make_slots(struct fsdp_slot **out, int *n_out, int n_owners, int limit)
{
	int n = n_owners < limit ? n_owners : limit;

	*out = dn_calloc((size_t)n, sizeof(**out));
	if (!*out)
		return -ENOMEM;
	*n_out = n;
	return 0;
}

static void widen(struct fsdp_slot *s, int64_t elements)
{
	if (s->elements < elements)
		s->elements = elements;
}

static void place_slots(struct fsdp_slot *s, int n)
{
	for (int i = 1; i < n; i++)
		s[i].offset = s[i - 1].offset + s[i - 1].elements;
}

static int assign_slots(struct fsdp_plan *p)
{
	int n_gathered = 0, n_learning = 0, j = 0;
	int err;

	for (int i = 0; i < p->n_blocks; i++) {
		n_gathered += p->blocks[i].gathered;
		n_learning += p->blocks[i].learns;
	}
	err = make_slots(&p->slots, &p->n_slots, n_gathered, p->opt.limit);
	if (!err)
		err = make_slots(&p->grad_slots, &p->n_grad_slots, n_learning, p->opt.grad_slots);
	if (err)
		return err;
	for (int i = 0; i < p->n_blocks; i++) {
		struct fsdp_block *b = &p->blocks[i];

		if (!b->gathered)
			continue;
		b->slot = j++ % p->n_slots;
		widen(&p->slots[b->slot], b->padded);
	}
	j = 0;
	for (int i = p->n_blocks - 1; i >= 0; i--) { /* the order in which gradients appear */
		struct fsdp_block *b = &p->blocks[i];

		if (!b->learns)
			continue;
		b->grad_slot = j++ % p->n_grad_slots; /* one at least: b learns. NOLINT(clang-analyzer-core.DivideZero) */
		widen(&p->grad_slots[b->grad_slot], b->padded);
	}
	place_slots(p->slots, p->n_slots);
	place_slots(p->grad_slots, p->n_grad_slots);
	return 0;
}

/* --- collectives --- */

static void add_sums(struct fsdp_plan *p, const struct dn_layer *l, int block, bool backward)
{
	for (int k = 0; k < l->n_exchanges[backward]; k++)
		p->sums[p->n_sums++] = (struct fsdp_sum){ l->index, block, backward, l->exchanges[backward][k], -1 };
}

/* What layers ask for, in the order of the calls: forward, and backward where it runs. */
static int list_sums(struct fsdp_plan *p, const struct dn_net *net)
{
	p->sums = dn_calloc(2 * (size_t)net->n_layers * DN_LAYER_MAX_EXCHANGES, sizeof(*p->sums));
	if (!p->sums)
		return -ENOMEM;
	for (int i = 0; i < p->n_blocks && net->opt.train && p->grid.world > 1; i++) {
		struct fsdp_block *b = &p->blocks[i];

		b->first_sum[0] = p->n_sums;
		for (int k = b->first; k <= b->last; k++)
			add_sums(p, &net->layers[k], i, false);
		b->first_sum[1] = p->n_sums;
		b->n_sums[0] = p->n_sums - b->first_sum[0];
		for (int k = b->last; k >= b->first && b->in_backward; k--)
			if (net->layers[k].wants_delta)
				add_sums(p, &net->layers[k], i, true);
		b->n_sums[1] = p->n_sums - b->first_sum[1];
	}
	return 0;
}

static int add_call(struct fsdp_plan *p, enum fsdp_op_kind kind, int block, bool acc, int64_t n)
{
	bool all = kind == FSDP_STATS || kind == FSDP_EXCHANGE;
	uint64_t peers = (uint64_t)(all ? p->grid.world : p->grid.shards) - 1;
	enum dn_type type = kind == FSDP_GATHER ? p->opt.wire.gather : p->opt.wire.reduce;

	p->calls[p->n_calls] = (struct fsdp_call){
		.kind = kind,
		.queue = kind == FSDP_GATHER	 ? FSDP_GATHERQ
			 : kind == FSDP_EXCHANGE ? FSDP_EXCHANGEQ
						 : FSDP_REDUCEQ,
		.group = all ? FSDP_WORLD : FSDP_SHARD_GROUP,
		.block = block,
		.acc = acc,
		.n = n,
		.sent_bytes = peers * (uint64_t)n * dn_type_bytes(type),
	};
	return p->n_calls++;
}

static int list_calls(struct fsdp_plan *p)
{
	p->calls = dn_calloc(3 * (size_t)p->n_blocks + 1 + (size_t)p->n_sums, sizeof(*p->calls));
	if (!p->calls)
		return -ENOMEM;
	for (int i = 0; i < p->n_blocks; i++) {
		struct fsdp_block *b = &p->blocks[i];

		b->gather_call = b->gathered ? add_call(p, FSDP_GATHER, i, false, b->shard) : -1;
		for (int k = 0; k < 2; k++)
			b->reduce_call[k] = b->learns && k < p->subdivisions ? add_call(p, FSDP_REDUCE, i, k, b->shard) : -1;
	}
	p->stats_call = p->n_stats ? add_call(p, FSDP_STATS, p->stats_block, false, p->n_stats) : -1;
	for (int i = 0; i < p->n_sums; i++)
		p->sums[i].call = add_call(p, FSDP_EXCHANGE, p->sums[i].block, false, p->sums[i].n);
	return 0;
}

/* What backward wants of each block, and which blocks are not released at the turn: the last owner of each
 * slot, when backward will read it. */
static void turn(struct fsdp_plan *p, const struct dn_net *net)
{
	int first = net->opt.train ? dn_net_backward_first_block(net) : net->n_blocks;
	int left = p->n_slots;

	for (int i = p->n_blocks - 1; i >= 0; i--) {
		struct fsdp_block *b = &p->blocks[i];
		bool reads = false, in_time;

		in_time = b->gathered && left-- > 0;
		b->in_backward = i >= first;
		b->recompute = dn_block_recomputes(&net->blocks[i]);
		reads = b->recompute; /* by its second forward; once gathered they serve backward too */
		for (int k = b->first; k <= b->last; k++)
			reads = reads || (net->layers[k].wants_delta && net->layers[k].backward_reads_params);
		reads = reads && b->in_backward && b->gathered;
		b->resident = reads && in_time;
		b->backward_gather = reads && !in_time;
	}
}

int plan_layout(struct fsdp_plan *p, const struct dn_net *net)
{
	int64_t shard_at = 0, grad_at = 0;
	int err;

	p->n_blocks = net->n_blocks;
	p->n_params = net->n_params;
	p->stats_block = -1;
	p->blocks = dn_calloc((size_t)net->n_blocks, sizeof(*p->blocks));
	p->tensors = dn_calloc((size_t)net->n_params, sizeof(*p->tensors));
	p->buffers = dn_calloc((size_t)net->n_params, sizeof(*p->buffers));
	p->tensor_of_param = dn_calloc((size_t)net->n_params, sizeof(*p->tensor_of_param));
	/* one before each tensor, one at the end of each block */
	p->gaps = dn_calloc((size_t)net->n_params + (size_t)net->n_blocks, sizeof(*p->gaps));
	if (!p->blocks || !p->tensors || !p->buffers || !p->tensor_of_param || !p->gaps)
		return -ENOMEM;
	for (int i = 0; i < p->n_blocks; i++) {
		struct fsdp_block *b = &p->blocks[i];

		lay_block(p, net, i);
		b->shard_offset = shard_at;
		shard_at += b->shard;
		if (!b->learns)
			continue;
		b->grad_offset = grad_at;
		grad_at += b->shard;
	}
	p->n_grads = grad_at;
	err = assign_slots(p);
	if (err)
		return err;
	turn(p, net);
	err = list_sums(p, net);
	return err ? err : list_calls(p);
}
