/* What the last complete step sent and waited for, beside what the plan says. */
#include <stdio.h>
#include <string.h>
#include "run/shard_store.h"

void fsdp_report_begin(struct fsdp_store *s)
{
	s->waited_at = s->rt.be->waited_ns(s->net->dev);
}

void fsdp_report_end(struct fsdp_store *s)
{
	s->exposed_ms = (double)(s->rt.be->waited_ns(s->net->dev) - s->waited_at) * 1e-6;
}

/* Waits for the queues that count: the last step's operations may be on their way. A queue that has failed says so to those who
 * need it. */
void fsdp_report(void *self, struct dn_store_report *out)
{
	struct fsdp_store *s = self;
	struct fsdp_count sent;

	memset(out, 0, sizeof(*out));
	for (int q = FSDP_GATHERQ; q <= FSDP_REPLICAQ; q++)
		if (s->rt.queues[q])
			(void)s->rt.be->stream_sync(s->rt.queues[q]);
	sent = fsdp_runtime_sent(&s->rt, FSDP_SENT_VALUES);
	out->gather.counted_bytes = sent.bytes;
	out->gather.counted_calls = sent.calls;
	sent = fsdp_runtime_sent(&s->rt, FSDP_SENT_GRADS);
	out->reduce.counted_bytes = sent.bytes;
	out->reduce.counted_calls = sent.calls;
	out->exposed_ms = s->exposed_ms;
	memcpy(out->planned_bytes, s->plan->planned, sizeof(out->planned_bytes)); /* host memory */
	out->gather.planned_bytes = s->plan->gather_bytes;
	out->gather.planned_calls = s->plan->gather_calls;
	out->reduce.planned_bytes = s->plan->reduce_bytes;
	out->reduce.planned_calls = s->plan->reduce_calls;
	out->replicas = s->plan->grid.replicas;
	out->plan_hash = s->plan->hash;
	fsdp_timeline_report(&s->rt.timeline, out);
}

static void tell_block(const struct fsdp_block *b, const struct dn_store_block *x)
{
	char slot[24] = "none";

	if (x->slot >= 0)
		snprintf(slot, sizeof(slot), "%d", (int)x->slot);
	dn_log("fsdp", DN_LOG_INFO,
	       "block %s: %llu gathers, %llu bytes, %.1f ms; %llu reductions, %llu bytes, %.1f ms; exposed %.1f ms; slot %s, held "
	       "%.1f ms",
	       b->name, (unsigned long long)x->gather_calls, (unsigned long long)x->gather_bytes, x->gather_ms,
	       (unsigned long long)x->reduce_calls, (unsigned long long)x->reduce_bytes, x->reduce_ms, x->exposed_ms, slot,
	       x->held_ms);
}

void fsdp_report_tell(struct fsdp_store *s)
{
	struct dn_store_report r = { .n_blocks = 0 };
	struct dn_buf line = { 0 };
	int err = 0;

	if (s->rt.rank || !s->rt.timeline.step || !dn_log_on("fsdp", DN_LOG_INFO))
		return;
	fsdp_timeline_report(&s->rt.timeline, &r);
	for (int k = 0; k < DN_TIMES && !err; k++)
		err = dn_buf_printf(&line, "%s%s %.1f", k ? ", " : "", dn_time_name((enum dn_time)k), r.total_ms[k]);
	if (!err)
		dn_log("fsdp", DN_LOG_INFO, "ms of all steps: %s", line.s);
	dn_buf_fini(&line);
	for (int i = 0; i < r.n_blocks; i++)
		tell_block(&s->plan->blocks[i], &r.blocks[i]);
}
