/* Dense targets: whatever the net computes, the loss alone says how far it is. */
#include <stdio.h>

#include "train/loop.h"
#include "train/task_priv.h"

static bool takes(const struct dn_dataset *data)
{
	return !data->has_truth || data->truths > 0;
}

static int image(struct dn_eval *e, const struct dn_eval_image *im)
{
	return 0; /* images and losses are counted for every task */
}

static void report(const struct dn_eval *e, char *out, size_t cap)
{
	snprintf(out, cap, "%s", "");
}

static double score(const struct dn_eval *e)
{
	return -e->loss;
}

/* The first version of the log gave these for every evaluation, and who reads it may count on them. */
static int fields(const struct dn_eval *e, struct dn_field *out)
{
	out[0] = (struct dn_field){ "top1", 0 };
	out[1] = (struct dn_field){ "topk", 0 };
	return 2;
}

static void line(const struct dn_loop_step *s, char *out, size_t cap)
{
	snprintf(out, cap, "%lld: %f, %f avg, %f rate, %f seconds, %llu images", (long long)s->step, s->loss, s->avg, s->rate,
		 s->seconds, (unsigned long long)s->seen);
}

const struct dn_net_task task_dense = {
	.name = "dense",
	.takes = takes,
	.sizes = &task_darknet_sizes,
	.image = image,
	.report = report,
	.score = score,
	.fields = fields,
	.line = line,
};
