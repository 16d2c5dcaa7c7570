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

	memset(out, 0, sizeof(*out));
	(void)s->rt.be->stream_sync(s->rt.queues[FSDP_GATHERQ]);
	(void)s->rt.be->stream_sync(s->rt.queues[FSDP_REDUCEQ]);
	out->gather.counted_bytes = s->rt.gathered.last.bytes;
	out->gather.counted_calls = s->rt.gathered.last.calls;
	out->reduce.counted_bytes = s->rt.reduced.last.bytes;
	out->reduce.counted_calls = s->rt.reduced.last.calls;
	out->exposed_ms = s->exposed_ms;
	memcpy(out->planned_bytes, s->plan->planned, sizeof(out->planned_bytes)); /* host memory */
	out->gather.planned_bytes = s->plan->gather_bytes;
	out->gather.planned_calls = s->plan->gather_calls;
	out->reduce.planned_bytes = s->plan->reduce_bytes;
	out->reduce.planned_calls = s->plan->reduce_calls;
	out->replicas = s->plan->grid.replicas;
	out->plan_hash = s->plan->hash;
}
