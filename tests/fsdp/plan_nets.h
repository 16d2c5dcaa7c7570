/* Small nets from cfg texts, and plans of them; nothing is allocated for tensors. */
#ifndef FSDP_TESTS_PLAN_NETS_H
#define FSDP_TESTS_PLAN_NETS_H
#include "../check.h"
#include "plan/plan.h"

struct planned {
	struct dn_cfg *cfg;
	struct dn_device *dev;
	struct dn_net *net;
	struct fsdp_plan *plan;
};

static inline struct fsdp_policy policy_of(const char *blocks)
{
	struct fsdp_policy p = { 0 };

	CHECK_OK(fsdp_policy_parse(blocks, "test", &p));
	return p;
}

static inline struct fsdp_options plan_defaults(void)
{
	return (struct fsdp_options){ .policy = policy_of("each"),
				      .wire = { DN_F32, DN_F32 },
				      .limit = 2,
				      .grad_slots = 2,
				      .prefetch = FSDP_PRE,
				      .depth = 1,
				      .timeout_ms = 300000 };
}

static inline void planned_fini(struct planned *p)
{
	fsdp_plan_destroy(p->plan);
	dn_net_destroy(p->net);
	if (p->dev)
		p->dev->be->close(p->dev);
	dn_cfg_destroy(p->cfg);
	memset(p, 0, sizeof(*p));
}

/* the net only; 0 or the error */
static inline int planned_net_of(struct planned *p, const char *text, const struct dn_net_options *opt, int threads)
{
	const struct dn_backend *be = dn_backend_find("ref");
	int err;

	memset(p, 0, sizeof(*p));
	err = dn_cfg_parse(&p->cfg, text, strlen(text), "test.cfg", false);
	if (!err)
		err = dn_cfg_claim(p->cfg, "fsdp");
	if (!err)
		err = be->open(DN_CPU(threads), &p->dev);
	if (!err)
		err = dn_net_build(&p->net, p->cfg, p->dev, opt);
	return err;
}

static inline int planned_net(struct planned *p, const char *text, int world, bool train, int threads)
{
	return planned_net_of(p, text, &(const struct dn_net_options){ .world = world, .train = train }, threads);
}

/* @early: updates stand within the last backward, as whoever trains wants it */
static inline int planned_make_as(struct planned *p, const char *text, int world, bool train, bool early,
				  const struct fsdp_options *o)
{
	const struct dn_net_options opt = { .world = world, .train = train, .sync_bn = o->sync_bn };
	int err = planned_net_of(p, text, &opt, 1);

	if (!err) {
		p->net->opt.looks = o->looks; /* whose bytes in the net no plan here is asked for */
		p->net->opt.update_early = early && !o->looks;
	}
	if (!err)
		err = fsdp_blocks_apply(p->net, o);
	if (!err)
		err = fsdp_plan_build(&p->plan, p->net, o, world);
	return err;
}

static inline int planned_make(struct planned *p, const char *text, int world, bool train, const struct fsdp_options *o)
{
	return planned_make_as(p, text, world, train, false, o);
}

/* batch divides by 1 to 8 ranks at up to 4 subdivisions */
#define NET_HEAD(subdivisions) "[net]\nbatch=10080\nsubdivisions=" subdivisions "\n"
#define CONNECTED(n) "[connected]\noutput=" n "\nactivation=leaky\n"
#define CONNECTED_BN(n) "[connected]\noutput=" n "\nbatch_normalize=1\nactivation=leaky\n"
#define SOFTMAX "[softmax]\n"

#endif
