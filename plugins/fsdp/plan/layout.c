/* The layout: where every trained param lies in its block's flat buffer, where every block's shard lies in
 * the regions, which slot a block uses, and where the statistics lie.
 *
 * Element counts stay below 2^63 without checks: a net has at most 2^40 elements a tensor and far fewer than
 * 2^20 tensors, and padding adds at most shards * FSDP_ALIGN a block. Bytes are checked where regions are
 * summed (plan.c).
 */
#include <errno.h>
#include <stdlib.h>
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

static int last_block(const struct dn_net *net, const struct dn_param *prm)
{
	int i = net->n_layers - 1;

	while (net->layers[i].owner != prm->layer->index)
		i--;
	return net->layers[i].block->index;
}

/* Rolling statistics lie one after the other, and so do, in training, this microbatch's of those that are not frozen. */
static void lay_buffer(struct fsdp_plan *p, const struct dn_net *net, int block, int param)
{
	const struct dn_param *prm = net->params[param];
	struct fsdp_buffer *x = &p->buffers[p->n_buffers];

	*x = (struct fsdp_buffer){ .param = param,
				   .block = block,
				   .last_block = last_block(net, prm),
				   .n = prm->n,
				   .offset = p->n_rolling,
				   .stat = -1 };
	p->n_rolling += up(prm->n, FSDP_ALIGN);
	if (has_stat(net, prm)) {
		x->stat = p->n_stats;
		p->n_stats += up(prm->n, FSDP_ALIGN);
	}
	p->tensor_of_param[param] = ~p->n_buffers++;
	p->blocks[block].n_buffers++;
}

/* The parts that a block is cut into for good: where values or states of different ranks meet. Parts in which sums are only on
 * their way do not count. */
static int64_t owners(const struct fsdp_block *b)
{
	return (int64_t)b->shards.size * (b->learns && b->cut_states ? b->replicas.size : 1);
}

/* tensors of a block, in file order, that are cut alike */
struct group {
	struct fsdp_tensor **t;
	int n;
	int64_t parts; /* see owners() */
};

/* in file order; returns their elements with padding */
static int64_t place_flat(const struct group *g, int64_t world)
{
	int64_t end = 0;

	for (int i = 0; i < g->n; i++) {
		g->t[i]->offset = up(end, FSDP_ALIGN);
		end = g->t[i]->offset + g->t[i]->n;
	}
	return up(end, world * FSDP_ALIGN);
}

static int place_planned(const struct fsdp_plan *p, const struct dn_net *net, const struct group *g, int64_t *padded)
{
	struct plan_item *items = dn_calloc((size_t)g->n, sizeof(*items));
	int64_t part;
	int err = items ? 0 : -ENOMEM;

	for (int i = 0; i < g->n && !err; i++)
		items[i] = (struct plan_item){ .index = i,
					       .n = g->t[i]->n,
					       .row = g->t[i]->n / net->params[g->t[i]->param]->shape[0] };
	if (!err)
		err = plan_pack(items, g->n, g->parts, p->grid.world / g->parts * FSDP_ALIGN, p->opt.layout, &part);
	for (int i = 0; i < g->n && !err; i++)
		g->t[items[i].index]->offset = items[i].offset;
	if (!err)
		*padded = g->parts * part;
	dn_free(items);
	return err;
}

static int by_offset(const void *a, const void *b)
{
	const struct fsdp_tensor *const *x = a, *const *y = b;

	return (*x)->offset < (*y)->offset ? -1 : 1;
}

/* The group behind @from elements of its block; *to: where it ends, for every rank at the same length. */
static int place_group(struct fsdp_plan *p, const struct dn_net *net, struct fsdp_block *b, struct group *g, int64_t from,
		       int64_t *to)
{
	int64_t end = from, padded = 0;
	int err = 0;

	if (p->opt.layout == FSDP_FLAT || g->parts == 1)
		padded = place_flat(g, p->grid.world);
	else
		err = place_planned(p, net, g, &padded);
	if (err)
		return err;
	qsort(g->t, (size_t)g->n, sizeof(struct fsdp_tensor *), by_offset);
	for (int i = 0; i < g->n; i++) { /* gaps: between them, wherever they lie, and behind the last */
		g->t[i]->offset += from;
		add_gap(p, b, end, g->t[i]->offset);
		end = g->t[i]->offset + g->t[i]->n;
	}
	*to = from + padded;
	add_gap(p, b, end, *to);
	return 0;
}

/* What is frozen in a block that learns lies behind what learns, and is cut for itself: gradients, sums and states are those of the
 * front. */
static int place_tensors(struct fsdp_plan *p, const struct dn_net *net, struct fsdp_block *b)
{
	struct fsdp_tensor **t = dn_calloc((size_t)b->n_tensors, sizeof(struct fsdp_tensor *));
	int err = t ? 0 : -ENOMEM;

	for (int frozen = 0; frozen < 2 && !err; frozen++) {
		struct group g = { .t = t, .parts = frozen ? b->shards.size : owners(b) };

		for (int k = b->first_tensor; k < b->first_tensor + b->n_tensors; k++)
			if ((b->learns && net->params[p->tensors[k].param]->frozen) == frozen)
				t[g.n++] = &p->tensors[k];
		err = place_group(p, net, b, &g, b->padded, &b->padded);
		if (!frozen && b->learns)
			b->learning = b->padded;
	}
	dn_free(t);
	return err;
}

/* The block ends where every rank's shard is equally long. */
static int lay_tensors(struct fsdp_plan *p, const struct dn_net *net, struct fsdp_block *b)
{
	int err = place_tensors(p, net, b);

	if (err)
		return err;
	b->gathered = b->n_tensors > 0 && !b->whole;
	b->shard = b->padded / b->shards.size;
	b->shard_learning = b->learning / b->shards.size;
	b->part = b->cut_states ? b->shard_learning / b->replicas.size : b->shard_learning;
	/* What the copies tell each other of new values is rounded, on all of them: the values as they are stand by themselves. */
	if (b->cut_states && b->learns && b->wire != DN_F32) {
		b->master_offset = p->n_masters;
		p->n_masters += b->part;
	}
	/* the sum over the copies is made in place, of parts of a shard, when they all want it or it is made once a step */
	b->sum = b->cut_states && !plan_combines_last(p, b) ? b->part : b->shard_learning;
	return 0;
}

static void begin_block(struct fsdp_plan *p, struct fsdp_block *b)
{
	b->first_tensor = p->n_tensors;
	b->first_gap = p->n_gaps;
	b->grad_offset = -1;
	b->slot = b->grad_slot = -1;
	b->kept_offset = b->master_offset = -1;
	b->first_buffer = p->n_buffers;
}

static void add_tensor(struct fsdp_plan *p, const struct dn_net *net, int block, int param)
{
	const struct dn_param *prm = net->params[param];
	struct fsdp_block *b = &p->blocks[block];

	p->tensor_of_param[param] = p->n_tensors;
	p->tensors[p->n_tensors++] = (struct fsdp_tensor){ .param = param, .block = block, .n = prm->n };
	b->n_tensors++;
	b->params += prm->n;
	b->learns = b->learns || (net->opt.train && !prm->frozen);
}

/* does it stay whole where its block is cut, or is it real in several? */
static bool is_common(const struct fsdp_plan *p, int block, const struct dn_param *prm)
{
	const struct fsdp_block *b = &p->blocks[block];

	return prm->role == DN_TRAINED && ((!b->whole && prm->n < b->persistent) || dn_param_spans_blocks(prm));
}

static int lay_block(struct fsdp_plan *p, const struct dn_net *net, int i)
{
	const struct dn_block *src = &net->blocks[i];
	struct fsdp_block *b = &p->blocks[i];
	int first, n;

	memcpy(b->name, src->name, sizeof(b->name));
	b->first = src->first;
	b->last = src->last;
	begin_block(p, b);
	n = dn_block_params(src, &first);
	for (int k = first; k < first + n; k++)
		if (net->params[k]->role == DN_BUFFER)
			lay_buffer(p, net, i, k);
		else if (!is_common(p, i, net->params[k]))
			add_tensor(p, net, i, k);
	return lay_tensors(p, net, b);
}

/* Values are whole and never rounded, gradients and states are cut over all ranks, and all of them are reduced at once. */
static int lay_common(struct fsdp_plan *p, const struct dn_net *net)
{
	const int common = p->n_blocks;
	struct fsdp_block *b = &p->blocks[common];

	*b = (struct fsdp_block){ .name = "/common", .last = -1, .strategy = FSDP_OPT, .wire = DN_F32 };
	fsdp_strategy_cut(&p->grid, b);
	begin_block(p, b);
	for (int i = 0; i < p->n_blocks; i++) {
		int first, n = dn_block_params(&net->blocks[i], &first);

		for (int k = first; k < first + n; k++)
			if (is_common(p, i, net->params[k]))
				add_tensor(p, net, common, k);
	}
	if (!b->n_tensors)
		return 0;
	p->common = p->n_blocks++;
	return lay_tensors(p, net, b);
}

/* Each once, whether the block's own layers declare it or share it. */
static void use_common(struct fsdp_plan *p, const struct dn_net *net, struct fsdp_block *b, int tensor)
{
	for (int k = b->first_common; k < b->first_common + b->n_common; k++)
		if (p->commons[k] == tensor)
			return;
	p->commons[b->first_common + b->n_common++] = tensor;
	b->common_learns |= net->opt.train && !net->params[p->tensors[tensor].param]->frozen;
}

static int list_commons(struct fsdp_plan *p, const struct dn_net *net)
{
	int n = 0;

	for (int i = 0; i < net->n_layers; i++)
		n += net->layers[net->layers[i].owner].n_params;
	p->commons = p->common < 0 ? NULL : dn_calloc((size_t)n, sizeof(*p->commons));
	if (p->common < 0)
		return 0;
	if (!p->commons)
		return -ENOMEM;
	n = 0;
	for (int i = 0; i < p->common; i++) {
		struct fsdp_block *b = &p->blocks[i];

		b->first_common = n;
		for (int l = b->first; l <= b->last; l++) {
			const struct dn_layer *o = &net->layers[net->layers[l].owner];

			for (int k = o->first_param; k < o->first_param + o->n_params; k++)
				if (fsdp_plan_block(p, net->params[k]) == p->common)
					use_common(p, net, b, p->tensor_of_param[k]);
		}
		n += b->n_common;
	}
	return 0;
}

/* The last block whose layers give statistics, of their own or of those that they share. */
static void find_stats(struct fsdp_plan *p, const struct dn_net *net)
{
	for (int i = 0; i < net->n_blocks; i++)
		for (int l = p->blocks[i].first; l <= p->blocks[i].last; l++) {
			const struct dn_layer *o = &net->layers[net->layers[l].owner];

			for (int k = o->first_param; k < o->first_param + o->n_params; k++) {
				if (!has_stat(net, net->params[k]))
					continue;
				p->blocks[i].has_stats = true;
				p->stats_block = i;
			}
		}
}

/* In memory one after the other: shards of values, sums and parts of what learns. */
static void lay_shards(struct fsdp_plan *p)
{
	for (int i = 0; i < p->n_blocks; i++) {
		struct fsdp_block *b = &p->blocks[i];

		b->shard_offset = p->n_shards;
		p->n_shards += b->shard;
		if (!b->learns)
			continue;
		b->grad_offset = p->n_grads;
		p->n_grads += b->sum;
		b->state_offset = p->n_parts;
		p->n_parts += b->part;
	}
}

static void widen(struct fsdp_slot *s, int64_t elements)
{
	if (s->elements < elements)
		s->elements = elements;
}

static int64_t place_slots(struct fsdp_slot *s, int n)
{
	int64_t at = 0;

	for (int i = 0; i < n; i++) {
		s[i].offset = at;
		at += s[i].elements;
	}
	return at;
}

/* A ring, so that slots of consecutive owners differ and one block can be gathered beside another that is in use; blocks that stay
 * have slots of their own behind it. */
static int assign_slots(struct fsdp_plan *p)
{
	int n_ring = 0, n_alone = 0, ring, j = 0, alone = 0;

	for (int i = 0; i < p->n_blocks; i++) {
		n_ring += p->blocks[i].gathered && !p->blocks[i].stays;
		n_alone += p->blocks[i].gathered && p->blocks[i].stays;
	}
	ring = n_ring < p->opt.limit ? n_ring : p->opt.limit;
	p->n_slots = ring + n_alone;
	p->slots = dn_calloc((size_t)p->n_slots, sizeof(*p->slots));
	if (!p->slots)
		return -ENOMEM;
	for (int i = 0; i < p->n_blocks; i++) {
		struct fsdp_block *b = &p->blocks[i];

		if (!b->gathered)
			continue;
		b->slot = b->stays ? ring + alone++ : j++ % ring; /* one at least. NOLINT(clang-analyzer-core.DivideZero) */
		widen(&p->slots[b->slot], b->padded);
	}
	p->n_slots_end = place_slots(p->slots, p->n_slots);
	return 0;
}

/* In the order in which gradients appear. */
static int assign_grad_slots(struct fsdp_plan *p)
{
	int n = 0, j = 0, given = p->opt.grad_slots;
	const bool common = p->common >= 0 && p->blocks[p->common].learns;

	for (int i = 0; i < fsdp_plan_net_blocks(p); i++)
		n += p->blocks[i].learns;
	p->opt.grad_slots = given ? given : FSDP_GRAD_SLOTS;
	p->n_grad_slots = n < p->opt.grad_slots ? n : p->opt.grad_slots;
	if (plan_sums_whole(p)) { /* every block's gradient stays in its slot from one microbatch to the next */
		if (given && given < n)
			return dn_fail(-EINVAL,
				       "plan: grad_slots=%d, but accumulate=%s wants one for each of the %d blocks that learn",
				       given, fsdp_name_of(&fsdp_accumulates, p->opt.accumulate), n);
		p->opt.grad_slots = p->n_grad_slots = n;
	}
	n = p->n_grad_slots; /* the ring; what is common has one behind it, as it is written throughout backward */
	p->n_grad_slots += common;
	p->grad_slots = dn_calloc((size_t)p->n_grad_slots, sizeof(*p->grad_slots));
	if (!p->grad_slots)
		return -ENOMEM;
	for (int i = p->n_blocks - 1; i >= 0; i--) {
		struct fsdp_block *b = &p->blocks[i];

		if (!b->learns)
			continue;
		b->grad_slot = i == p->common ? n : j++ % n; /* one at least: b learns. NOLINT(clang-analyzer-core.DivideZero) */
		widen(&p->grad_slots[b->grad_slot], b->learning);
	}
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

/* where @group works on @queue: one lane, however many operations; their longest */
static int lane_of(struct fsdp_plan *p, enum fsdp_queue queue, const struct fsdp_group *group)
{
	struct fsdp_group g = group->size == 1 ? (struct fsdp_group){ 1, 1 } : *group;
	int i = 0;

	while (i < p->n_lanes &&
	       (p->lanes[i].queue != queue || p->lanes[i].group.size != g.size || p->lanes[i].group.stride != g.stride))
		i++;
	if (i == p->n_lanes)
		p->lanes[p->n_lanes++] = (struct fsdp_lane){
			.queue = queue,
			.group = g,
			.needs = { .size = g.size, .host_access = p->facts.host_access },
		};
	return i;
}

static int add_call(struct fsdp_plan *p, struct fsdp_call c, enum fsdp_queue queue, const struct fsdp_group *group)
{
	const bool gather = c.kind == FSDP_GATHER || c.kind == FSDP_SHARE,
		   reduce = c.kind == FSDP_REDUCE || c.kind == FSDP_COMBINE;
	struct fsdp_coll_needs *needs;
	size_t *longest, bytes;

	c.lane = lane_of(p, queue, group);
	c.type = gather && !c.sums ? p->blocks[c.block].wire : reduce ? p->opt.wire.reduce : DN_F32;
	bytes = (size_t)c.n * dn_type_bytes(c.type);
	needs = &p->lanes[c.lane].needs;
	c.sent_bytes = (uint64_t)(needs->size - 1) * bytes;
	longest = gather ? &needs->gather_bytes : reduce ? &needs->reduce_bytes : &needs->exchange_bytes;
	if (*longest < bytes)
		*longest = bytes;
	p->calls[p->n_calls] = c;
	return p->n_calls++;
}

/* Where every rank has whole values, one reduction over all of them does. */
static void reduce_calls(struct fsdp_plan *p, int i)
{
	struct fsdp_block *b = &p->blocks[i];
	const struct fsdp_group all = { p->grid.world, 1 };
	bool several = p->subdivisions > 1, last = plan_combines_last(p, b), two = b->shards.size > 1 && b->replicas.size > 1;
	bool in_place = two && !last;

	for (int k = 0; k < (several && !in_place && !plan_sums_whole(p) ? 2 : 1); k++)
		b->reduce_call[k] = add_call(p,
					     (struct fsdp_call){ .kind = FSDP_REDUCE,
								 .block = i,
								 .acc = k,
								 .in_place = in_place,
								 .n = two ? b->shard_learning : b->learning / p->grid.world },
					     FSDP_REDUCEQ, two ? &b->shards : &all);
	for (int k = 0; two && k < (several && !last ? 2 : 1); k++)
		b->combine_call[k] = add_call(p,
					      (struct fsdp_call){ .kind = FSDP_COMBINE,
								  .block = i,
								  .acc = k,
								  .in_place = last,
								  .n = b->shard_learning / b->replicas.size },
					      FSDP_REPLICAQ, &b->replicas);
	if (b->replicas.size > 1)
		b->share_call = add_call(p,
					 (struct fsdp_call){ .kind = FSDP_SHARE,
							     .block = i,
							     .sums = !b->cut_states,
							     .n = b->shard_learning / b->replicas.size },
					 FSDP_REPLICAQ, &b->replicas);
}

/* One, or two where what is frozen is cut for itself. */
static void gather_calls(struct fsdp_plan *p, int i, bool kept, int call[2], const struct fsdp_group *group)
{
	const struct fsdp_block *b = &p->blocks[i];
	const int64_t first = b->learning ? b->learning : b->padded;
	struct fsdp_call c = { .kind = FSDP_GATHER, .block = i, .kept = kept, .n = first / group->size };

	call[0] = add_call(p, c, FSDP_GATHERQ, group);
	if (first == b->padded)
		return;
	c.from = c.n;
	c.to = first;
	c.n = (b->padded - first) / group->size;
	call[1] = add_call(p, c, FSDP_GATHERQ, group);
}

static int list_calls(struct fsdp_plan *p)
{
	const struct fsdp_group all = { p->grid.world, 1 };
	const size_t most = 9 * (size_t)p->n_blocks + 1 + (size_t)p->n_sums;

	p->calls = dn_calloc(most, sizeof(*p->calls));
	p->lanes = dn_calloc(most, sizeof(*p->lanes));
	if (!p->calls || !p->lanes)
		return -ENOMEM;
	for (int i = 0; i < p->n_blocks; i++) {
		struct fsdp_block *b = &p->blocks[i];

		b->share_call = -1;
		for (int k = 0; k < 2; k++)
			b->gather_call[k] = b->regather_call[k] = b->reduce_call[k] = b->combine_call[k] = -1;
		if (b->gathered)
			gather_calls(p, i, false, b->gather_call, &b->shards);
		if (b->kept_offset >= 0)
			gather_calls(p, i, true, b->regather_call, &(const struct fsdp_group){ b->keeps, 1 });
		if (b->learns)
			reduce_calls(p, i);
	}
	p->stats_call = p->stats_lane = p->sums_lane = -1;
	if (p->n_stats) {
		p->stats_call = add_call(p, (struct fsdp_call){ .kind = FSDP_STATS, .block = p->stats_block, .n = p->n_stats },
					 FSDP_REDUCEQ, &all);
		p->stats_lane = p->calls[p->stats_call].lane;
	}
	for (int i = 0; i < p->n_sums; i++) {
		p->sums[i].call =
			add_call(p, (struct fsdp_call){ .kind = FSDP_EXCHANGE, .block = p->sums[i].block, .n = p->sums[i].n },
				 FSDP_EXCHANGEQ, &all);
		p->sums_lane = p->calls[p->sums[i].call].lane;
	}
	return 0;
}

/* What backward wants of each block, and which blocks are not released at the turn: those that stay, and the last owner of each
 * slot, when backward will read it. Of the others a part may stay. */
static int turn(struct fsdp_plan *p, const struct dn_net *net)
{
	int first = net->opt.train ? dn_net_backward_first_block(net) : net->n_blocks;
	bool *seen = dn_zalloc((size_t)p->n_slots + 1);

	if (!seen)
		return -ENOMEM;
	for (int i = fsdp_plan_net_blocks(p) - 1; i >= 0; i--) {
		struct fsdp_block *b = &p->blocks[i];
		bool reads = false, in_time = b->gathered && !seen[b->slot];

		if (b->gathered)
			seen[b->slot] = true;
		b->in_backward = i >= first;
		b->recompute = dn_block_recomputes(&net->blocks[i]);
		/* a prefetch behind backward comes before the reduction, and may need the slot that backward reads to its end */
		b->goes_on = b->learns && p->opt.prefetch != FSDP_POST && dn_block_gradients_end(&net->blocks[i]) >= 0;
		reads = b->recompute; /* by its second forward; once gathered they serve backward too */
		for (int k = b->first; k <= b->last; k++)
			reads = reads || (net->layers[k].wants_delta && net->layers[k].backward_reads_params);
		b->backward_values = reads && b->in_backward && b->n_tensors > 0;
		reads = b->backward_values && b->gathered;
		b->resident = reads && in_time;
		b->backward_gather = reads && !in_time;
		if (b->backward_gather && b->keeps > 1) {
			b->kept_offset = p->n_kept;
			p->n_kept += b->padded / b->keeps;
		}
	}
	dn_free(seen);
	return 0;
}

int plan_layout(struct fsdp_plan *p, const struct dn_net *net)
{
	int err = 0;

	p->n_blocks = net->n_blocks;
	p->n_params = net->n_params;
	p->stats_block = -1;
	p->common = -1;
	p->blocks = dn_calloc((size_t)net->n_blocks + 1, sizeof(*p->blocks));
	p->tensors = dn_calloc((size_t)net->n_params, sizeof(*p->tensors));
	p->buffers = dn_calloc((size_t)net->n_params, sizeof(*p->buffers));
	p->tensor_of_param = dn_calloc((size_t)net->n_params, sizeof(*p->tensor_of_param));
	/* one before each tensor, two at ends in each block */
	p->gaps = dn_calloc((size_t)net->n_params + 2 * ((size_t)net->n_blocks + 1), sizeof(*p->gaps));
	if (!p->blocks || !p->tensors || !p->buffers || !p->tensor_of_param || !p->gaps)
		return -ENOMEM;
	err = plan_strategies(p, net);
	for (int i = 0; i < p->n_blocks && !err; i++)
		err = lay_block(p, net, i);
	if (!err)
		err = lay_common(p, net);
	if (!err)
		err = list_commons(p, net);
	if (err)
		return err;
	find_stats(p, net);
	lay_shards(p);
	err = assign_slots(p);
	if (!err)
		err = assign_grad_slots(p);
	if (!err)
		err = turn(p, net);
	if (!err)
		err = list_sums(p, net);
	return err ? err : list_calls(p);
}
