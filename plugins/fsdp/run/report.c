/* What the last complete step sent and waited for, beside what the plan says. */
#include <string.h>
#include "run/shard_store.h"

/* The queues' counters are read when their work of the step is over: every gather and reduction has been waited for. */
void fsdp_report_begin(struct fsdp_store *s)
{
	s->gather_at[0] = s->rt.gathered.bytes;
	s->gather_at[1] = s->rt.gathered.calls;
	s->reduce_at[0] = s->rt.reduced.bytes;
	s->reduce_at[1] = s->rt.reduced.calls;
	s->waited_at = s->rt.be->waited_ns(s->net->dev);
}

void fsdp_report_end(struct fsdp_store *s)
{
	struct dn_store_report *r = &s->report;

	r->gather.counted_bytes = s->rt.gathered.bytes - s->gather_at[0];
	r->gather.counted_calls = s->rt.gathered.calls - s->gather_at[1];
	r->reduce.counted_bytes = s->rt.reduced.bytes - s->reduce_at[0];
	r->reduce.counted_calls = s->rt.reduced.calls - s->reduce_at[1];
	r->exposed_ms = (double)(s->rt.be->waited_ns(s->net->dev) - s->waited_at) * 1e-6;
}

void fsdp_report(void *self, struct dn_store_report *out)
{
	struct fsdp_store *s = self;

	*out = s->report;
	memcpy(out->planned_bytes, s->plan->planned, sizeof(out->planned_bytes));
	out->gather.planned_bytes = s->plan->gather_bytes;
	out->gather.planned_calls = s->plan->gather_calls;
	out->reduce.planned_bytes = s->plan->reduce_bytes;
	out->reduce.planned_calls = s->plan->reduce_calls;
	out->plan_hash = s->plan->hash;
}
