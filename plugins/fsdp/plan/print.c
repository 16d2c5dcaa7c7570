/* The plan for people and for programs: tables in human units, and JSON ("v": 1, docs/outputs.md and this plugin's README.md). */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "plan/plan.h"

#define FIRST_OPS 24 /* of the schedule, in the text form */

static int flush(FILE *out)
{
	if (fflush(out) || ferror(out))
		return dn_fail(-EIO, "plan: writing the output failed");
	return 0;
}

/* --- JSON: into one buffer, written at the end --- */

struct json {
	struct dn_buf b;
	int err;
};

static void put(struct json *j, const char *fmt, ...) DN_PRINTF(2, 3);
static void put(struct json *j, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!j->err)
		j->err = dn_buf_add(&j->b, text, strlen(text));
}

static void put_text(struct json *j, const char *lead, const char *s)
{
	put(j, "%s", lead);
	if (!j->err)
		j->err = dn_json_text(&j->b, s);
}

static void put_u64(struct json *j, const char *lead, uint64_t x)
{
	put(j, "%s", lead);
	if (!j->err)
		j->err = dn_json_u64(&j->b, x);
}

static void json_backend(struct json *j, const struct fsdp_plan *p, const struct dn_net *net)
{
	put_text(j, ",\"backend\":{\"name\":", p->facts.backend);
	put_text(j, ",\"library\":", p->facts.library);
	put(j, ",\"threads\":%d,\"alignment\":%zu,\"workspace_bytes\":[", p->facts.threads, p->facts.align_bytes);
	for (int i = 0; i < net->n_layers; i++)
		put_u64(j, i ? "," : "", net->layers[i].workspace_bytes);
	put(j, "]}");
}

static uint64_t padding_bytes(const struct fsdp_plan *p, int block)
{
	struct fsdp_place all = fsdp_place_values(p, block);

	return all.bytes ? all.bytes - fsdp_place_in_block(all, 0, p->blocks[block].params).bytes : 0;
}

/* of what is gathered; @block < 0: of all blocks */
static double padding_ratio(const struct fsdp_plan *p, int block)
{
	uint64_t padding = 0, all = 0;

	for (int i = block < 0 ? 0 : block; i < (block < 0 ? p->n_blocks : block + 1); i++) {
		padding += padding_bytes(p, i);
		all += fsdp_place_values(p, i).bytes;
	}
	return all ? (double)padding / (double)all : 0;
}

static void json_blocks(struct json *j, const struct fsdp_plan *p)
{
	put(j, ",\"blocks\":[");
	for (int i = 0; i < p->n_blocks; i++) {
		const struct fsdp_block *b = &p->blocks[i];

		put_text(j, i ? ",{\"name\":" : "{\"name\":", b->name);
		put(j, ",\"first\":%d,\"last\":%d,\"params\":%" PRId64, b->first, b->last, b->params);
		put_u64(j, ",\"shard_bytes\":", fsdp_place_shard(p, i).bytes);
		put_u64(j, ",\"gathered_bytes\":", fsdp_place_values(p, i).bytes);
		put(j, ",\"common_tensors\":%d", b->n_common);
		put_u64(j, ",\"learning_bytes\":", (uint64_t)b->learning * sizeof(float));
		put_u64(j, ",\"padding_bytes\":", padding_bytes(p, i));
		put(j, ",\"padding_ratio\":%.6f", padding_ratio(p, i));
		put(j, ",\"strategy\":\"%s\",\"mesh\":{\"replicas\":%d,\"shards\":%d}",
		    fsdp_name_of(&fsdp_strategies, (int)b->strategy), b->replicas.size, b->shards.size);
		put_u64(j, ",\"sum_bytes\":", fsdp_place_part(p, i, DN_GRAD).bytes);
		put_u64(j, ",\"state_bytes\":", fsdp_place_part(p, i, DN_STATE0).bytes);
		put_u64(j, ",\"master_bytes\":", b->master_offset < 0 ? 0 : fsdp_place_part(p, i, DN_VALUE).bytes);
		put(j, ",\"wire\":\"%s\"", fsdp_name_of(&fsdp_wire_types, (int)b->wire));
		put_u64(j, ",\"kept_bytes\":", fsdp_place_kept(p, i).bytes);
		put(j, ",\"slot\":%d,\"grad_slot\":%d", b->slot, b->grad_slot);
		put(j, ",\"recompute\":%s", b->recompute ? "true" : "false");
		put(j, ",\"learns\":%s,\"resident\":%s,\"backward_gather\":%s}", b->learns ? "true" : "false",
		    b->resident ? "true" : "false", b->backward_gather ? "true" : "false");
	}
	put(j, "]");
}

static void json_tensors(struct json *j, const struct fsdp_plan *p, const struct dn_net *net)
{
	put(j, ",\"tensors\":[");
	for (int t = 0; t < p->n_tensors; t++) {
		const struct fsdp_tensor *x = &p->tensors[t];

		put_text(j, t ? ",{\"name\":" : "{\"name\":", net->params[x->param]->name);
		put_text(j, ",\"block\":", p->blocks[x->block].name);
		put(j, ",\"elements\":%" PRId64 ",\"offset\":%" PRId64 "}", x->n, x->offset);
	}
	put(j, "]");
}

static void json_regions(struct json *j, const struct fsdp_plan *p)
{
	put(j, ",\"regions\":[");
	for (int r = 0; r < DN_MEM_PLANNED; r++) {
		put_text(j, r ? ",{\"name\":" : "{\"name\":", dn_region_name(r));
		put_u64(j, ",\"planned_bytes\":", p->planned[r]);
		put_u64(j, ",\"replicated_bytes\":", p->replicated[r]);
		put(j, "}");
	}
	put(j, "]");
	put_u64(j, ",\"total_bytes\":", p->total_bytes);
	put_u64(j, ",\"replicated_bytes\":", p->replicated_bytes);
}

static void json_traffic(struct json *j, const char *name, uint64_t bytes, uint64_t calls)
{
	put(j, ",\"%s\":{\"planned_bytes\":", name);
	put_u64(j, "", bytes);
	put_u64(j, ",\"planned_calls\":", calls);
	put(j, "}");
}

static size_t largest_piece(const struct fsdp_plan *p)
{
	size_t bytes = 0;

	for (int i = 0; i < p->n_lanes; i++)
		if (bytes < p->lanes[i].memory.piece_bytes)
			bytes = p->lanes[i].memory.piece_bytes;
	return bytes;
}

static void json_collectives(struct json *j, const struct fsdp_plan *p)
{
	put(j, ",\"collectives\":{\"name\":\"%s\",\"wire\":\"%s\",\"reduce\":\"%s\",\"calls\":[", p->collectives,
	    fsdp_name_of(&fsdp_wire_types, p->opt.wire.gather), fsdp_name_of(&fsdp_reduce_types, p->opt.wire.reduce));
	for (int i = 0; i < p->n_calls; i++) {
		const struct fsdp_call *c = &p->calls[i];
		const struct fsdp_group *g = &p->lanes[c->lane].group;

		put(j, "%s{\"op\":\"%s\"", i ? "," : "", fsdp_op_name(c->kind));
		put_text(j, ",\"block\":", p->blocks[c->block].name);
		put(j, ",\"of\":\"%s\",\"queue\":\"%s\"",
		    fsdp_call_gathers(c)    ? "values"
		    : fsdp_call_reduces(c)  ? "gradients"
		    : c->kind == FSDP_STATS ? "statistics"
					    : "layers",
		    fsdp_queue_name(p->lanes[c->lane].queue));
		put(j, ",\"group\":\"%s\",\"ranks\":%d,\"stride\":%d,\"adds\":%s,\"type\":\"%s\",\"elements\":%" PRId64,
		    g->size == p->grid.world ? "world"
		    : g->stride == 1	     ? "shards"
					     : "replicas",
		    g->size, g->stride, c->acc ? "true" : "false", fsdp_name_of(&fsdp_wire_types, (int)c->type), c->n);
		put_u64(j, ",\"sent_bytes\":", c->sent_bytes);
		put(j, "}");
	}
	put(j, "]}");
}

static void json_queues(struct json *j, const struct fsdp_plan *p)
{
	put(j, ",\"queues\":[");
	for (int q = 0; q < FSDP_QUEUES; q++)
		put(j, "%s{\"name\":\"%s\",\"entries\":%d}", q ? "," : "", fsdp_queue_name((enum fsdp_queue)q),
		    p->queue_entries[q]);
	put(j, "]");
}

static void json_schedule(struct json *j, const struct fsdp_plan *p)
{
	char name[DN_BLOCK_NAME_MAX + 16];

	put(j, ",\"schedule\":[");
	for (int i = 0; i < p->step.n_ops; i++) {
		const struct fsdp_op *op = &p->step.ops[i];

		put(j, "%s{\"op\":\"%s\"", i ? "," : "", fsdp_op_name(op->kind));
		put_text(j, ",\"block\":", p->blocks[op->block].name);
		put(j, ",\"queue\":\"%s\",\"micro\":%d,\"waits\":[", fsdp_queue_name(op->queue), op->micro);
		for (int k = 0; k < op->n_waits; k++) {
			fsdp_plan_event_name(p, op->waits[k], name, sizeof(name));
			put_text(j, k ? "," : "", name);
		}
		fsdp_plan_event_name(p, op->records, name, sizeof(name));
		put_text(j, "],\"records\":", name);
		if (op->part || op->gives >= 0)
			put(j, ",\"part\":%d", op->part);
		if (op->kind == FSDP_EXCHANGE)
			put(j, ",\"layer\":%d,\"backward\":%s", p->sums[op->gives].layer, op->backward ? "true" : "false");
		if (op->kind == FSDP_REDUCE || op->kind == FSDP_COMBINE)
			put(j, ",\"adds\":%s", op->acc ? "true" : "false");
		put(j, "}");
	}
	put(j, "]");
}

int fsdp_plan_json(const struct fsdp_plan *p, const struct dn_net *net, const char *cfg_path, FILE *out)
{
	struct json j = { .err = 0 };

	put(&j, "{\"v\":1");
	put_text(&j, ",\"cfg\":", cfg_path);
	put(&j, ",\"hash\":\"%016" PRIx64 "\"", p->hash);
	json_backend(&j, p, net);
	put(&j, ",\"world\":%d,\"mesh\":{\"replicas\":%d,\"shards\":%d},\"strategy\":\"%s\",\"layout\":\"%s\"", p->grid.world,
	    p->grid.replicas, p->grid.shards, fsdp_name_of(&fsdp_strategies, p->opt.strategy),
	    fsdp_name_of(&fsdp_layouts, p->opt.layout));
	put(&j, ",\"padding_ratio\":%.6f", padding_ratio(p, -1));
	put(&j, ",\"accumulate\":\"%s\",\"release\":%d", fsdp_name_of(&fsdp_accumulates, (int)p->opt.accumulate),
	    p->opt.stay > 1 ? p->opt.stay : !p->opt.stay);
	put(&j, ",\"limit\":%d,\"grad_slots\":%d,\"prefetch\":\"%s\",\"depth\":%d", p->opt.limit, p->opt.grad_slots,
	    fsdp_name_of(&fsdp_prefetches, p->opt.prefetch), p->opt.depth);
	put(&j, ",\"batch\":%" PRId64 ",\"subdivisions\":%" PRId64 ",\"align_elements\":%d", net->batch, p->subdivisions,
	    FSDP_ALIGN);
	json_blocks(&j, p);
	json_tensors(&j, p, net);
	json_regions(&j, p);
	json_traffic(&j, "gather", p->gather_bytes, p->gather_calls);
	json_traffic(&j, "reduce", p->reduce_bytes, p->reduce_calls);
	put_u64(&j, ",\"piece_bytes\":", largest_piece(p));
	json_collectives(&j, p);
	json_queues(&j, p);
	json_schedule(&j, p);
	put(&j, "}\n");
	if (!j.err && fwrite(j.b.s, 1, j.b.n, out) != j.b.n)
		j.err = dn_fail(-EIO, "plan: writing the output failed");
	if (!j.err)
		j.err = flush(out);
	dn_buf_fini(&j.b);
	return j.err;
}

/* --- text --- */

struct human {
	char s[32];
};

static struct human human(uint64_t bytes)
{
	struct human h = { "" };

	dn_human_bytes((double)bytes, h.s, sizeof(h.s));
	return h;
}

static void print_blocks(const struct fsdp_plan *p, FILE *out)
{
	int width = 5, n = 0;

	for (int i = 0; i < p->n_blocks; i++)
		if ((int)strlen(p->blocks[i].name) > width)
			width = (int)strlen(p->blocks[i].name);
	fprintf(out, "\n%-*s  %9s  %12s  %12s  %12s  %10s  %6s  %4s  %4s  %s\n", width, "block", "layers", "params", "gathered",
		"shard", "padding", "ratio", "slot", "grad", "backward");
	for (int i = 0; i < p->n_blocks; i++) {
		const struct fsdp_block *b = &p->blocks[i];
		char layers[32], slot[16] = "-", grad[16] = "-";

		snprintf(layers, sizeof(layers), i == p->common ? "-" : "%d-%d", b->first, b->last);
		if (b->slot >= 0)
			snprintf(slot, sizeof(slot), "%d", b->slot);
		if (b->grad_slot >= 0)
			snprintf(grad, sizeof(grad), "%d", b->grad_slot);
		fprintf(out, "%-*s  %9s  %12" PRId64 "  %12s  %12s  %10s  %6.2f  %4s  %4s  %s\n", width, b->name, layers,
			b->params, human(fsdp_place_values(p, i).bytes).s, human(fsdp_place_shard(p, i).bytes).s,
			human(padding_bytes(p, i)).s, padding_ratio(p, i), slot, grad,
			i == p->common			 ? "whole, of all blocks"
			: !b->in_backward		 ? "none"
			: b->whole && b->backward_values ? "whole"
			: b->kept_offset >= 0		 ? "gathered again from a part"
			: b->resident			 ? "stays gathered"
			: b->backward_gather		 ? "gathered again"
							 : "not read");
	}
	fprintf(out, "padding in all: %.4f of what is gathered\n", padding_ratio(p, -1));
	for (int i = 0; i < p->n_blocks; i++)
		if (p->blocks[i].recompute)
			fprintf(out, "%s %s", n++ ? "," : "recomputed in backward:", p->blocks[i].name);
	if (n)
		fputc('\n', out);
}

/* what travels in 16 bits, and what that costs */
static void print_wire(const struct fsdp_plan *p, FILE *out)
{
	const enum dn_type values = fsdp_plan_wire(p), sums = p->opt.wire.reduce;
	bool twice = false;

	for (int i = 0; i < p->n_blocks; i++)
		twice |= p->blocks[i].combine_call[0] >= 0;
	if (values == DN_BF16)
		fprintf(out, "values travel as bf16: error of each at most 2^-8 of it\n");
	else if (values == DN_F16)
		fprintf(out, "values travel as fp16: error of each at most 2^-11 of it + 2^-25\n");
	else if (p->opt.wire.gather != DN_F32)
		fprintf(out, "wire=%s has no effect: no values travel\n",
			fsdp_name_of(&fsdp_wire_types, (int)p->opt.wire.gather));
	if (sums != DN_F32)
		fprintf(out, "gradients travel as %s: error of a sum at most %s%s of the sum of |g| over ranks%s\n",
			fsdp_name_of(&fsdp_reduce_types, (int)sums), twice ? "2 * " : "", sums == DN_BF16 ? "2^-8" : "2^-11",
			sums == DN_BF16 ? "" : " + 2^-25 for each");
}

static void print_row(FILE *out, const char *name, uint64_t planned, uint64_t replicated)
{
	fprintf(out, "%-12s  %16" PRIu64 "  %12s  %12s", name, planned, human(planned).s, human(replicated).s);
	if (replicated)
		fprintf(out, "  %6.2f", (double)planned / (double)replicated);
	fprintf(out, "\n");
}

void fsdp_plan_print_regions(const struct fsdp_plan *p, FILE *out)
{
	fprintf(out, "\n%-12s  %16s  %12s  %12s  %6s\n", "region", "bytes a rank", "planned", "replicated", "ratio");
	for (int r = 0; r < DN_MEM_PLANNED; r++)
		if (p->planned[r] || p->replicated[r])
			print_row(out, dn_region_name(r), p->planned[r], p->replicated[r]);
	print_row(out, "total", p->total_bytes, p->replicated_bytes);
}

static void print_schedule(const struct fsdp_plan *p, FILE *out)
{
	int n = p->step.n_ops < FIRST_OPS ? p->step.n_ops : FIRST_OPS;
	char name[DN_BLOCK_NAME_MAX + 16];

	fprintf(out, "\n%-8s  %-9s  %-16s  %s\n", "queue", "op", "block", "waits for");
	for (int i = 0; i < n; i++) {
		const struct fsdp_op *op = &p->step.ops[i];

		fprintf(out, "%-8s  %-9s  %-*s", fsdp_queue_name(op->queue), fsdp_op_name(op->kind), op->n_waits ? 16 : 0,
			p->blocks[op->block].name);
		for (int k = 0; k < op->n_waits; k++) {
			fsdp_plan_event_name(p, op->waits[k], name, sizeof(name));
			fprintf(out, "%s%s", k ? ", " : "  ", name);
		}
		fprintf(out, "\n");
	}
	if (n < p->step.n_ops)
		fprintf(out, "... and %d more of %d operations a step\n", p->step.n_ops - n, p->step.n_ops);
}

int fsdp_plan_print(const struct fsdp_plan *p, const struct dn_net *net, FILE *out)
{
	fprintf(out,
		"plan %016" PRIx64
		": %d ranks, %d shards, %d replicas, strategy %s, layout %s, limit %d, grad_slots %d, prefetch %s, depth %d\n",
		p->hash, p->grid.world, p->grid.shards, p->grid.replicas, fsdp_name_of(&fsdp_strategies, p->opt.strategy),
		fsdp_name_of(&fsdp_layouts, p->opt.layout), p->opt.limit, p->opt.grad_slots,
		fsdp_name_of(&fsdp_prefetches, p->opt.prefetch), p->opt.depth);
	fprintf(out, "batch %" PRId64 " in %" PRId64 " microbatches, %" PRId64 " images of each on a rank\n", net->batch,
		net->subdivisions, net->local_batch);
	fprintf(out, "backend %s, library %s, %d threads, alignment %zu bytes\n", p->facts.backend, p->facts.library,
		p->facts.threads, p->facts.align_bytes);
	print_wire(p, out);
	print_blocks(p, out);
	fsdp_plan_print_regions(p, out);
	fprintf(out, "\n%-12s  %16s  %12s  %6s\n", "traffic", "bytes a step", "", "calls");
	fprintf(out, "%-12s  %16" PRIu64 "  %12s  %6" PRIu64 "\n", "gather", p->gather_bytes, human(p->gather_bytes).s,
		p->gather_calls);
	fprintf(out, "%-12s  %16" PRIu64 "  %12s  %6" PRIu64 "\n", "reduce", p->reduce_bytes, human(p->reduce_bytes).s,
		p->reduce_calls);
	print_schedule(p, out);
	return flush(out);
}
