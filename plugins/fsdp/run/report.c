/* What the last complete step sent and waited for, beside what the plan says. */
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
}
