/* What layers remember beyond the pass is part of a sharded run's plan. */
#include "plan_nets.h"

static const char cfg[] = "[net]\nbatch=24\nsubdivisions=2\ninputs=5\n[connected]\noutput=7\nbatch_normalize=1\n"
			  "[connected]\noutput=3\n[softmax]\n";

static void the_plan_counts_it(void)
{
	for (int world = 1; world <= 4; world++) {
		const struct fsdp_options o = plan_defaults();
		struct planned with, without;
		struct dn_carry *c;

		CHECK_OK_FATAL(planned_make(&without, cfg, world, true, &o));
		CHECK_OK_FATAL(planned_net(&with, cfg, world, true, 1));
		CHECK_OK(dn_layer_carry(&with.net->layers[0], "h", 2, (int64_t[]){ with.net->local_batch, 7 }, &c));
		CHECK_OK(fsdp_blocks_apply(with.net, &o));
		CHECK_OK_FATAL(fsdp_plan_build(&with.plan, with.net, &o, world));
		CU_ASSERT(with.net->carries_bytes > 0);
		for (int r = 0; r < DN_MEM_PLANNED; r++)
			CHECK_EQ(with.plan->planned[r],
				 without.plan->planned[r] + (r == DN_MEM_BUFFERS ? with.net->carries_bytes : 0));
		CHECK_EQ(with.plan->total_bytes, without.plan->total_bytes + with.net->carries_bytes);
		CHECK_EQ(with.plan->replicated_bytes, without.plan->replicated_bytes + with.net->carries_bytes);
		planned_fini(&with);
		planned_fini(&without);
	}
}

static const struct check_case cases[] = { { "the_plan_counts_it", the_plan_counts_it }, { NULL, NULL } };

int main(void)
{
	return check_run("fsdp carry", cases);
}
