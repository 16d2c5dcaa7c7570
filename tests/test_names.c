/* Tables of choices: every row is found by its name, and the lists that messages and help print hold every name once. */
#include "backend/backend.h"
#include "check.h"
#include "graph/net.h"
#include "graph/optimizer.h"

/* @list holds @n names, "a, b, c", and @known finds each of them and nothing else */
static void list_is_whole(const char *list, int n, int (*known)(const char *name))
{
	char text[512];
	int found = 0;

	CU_ASSERT_FATAL(strlen(list) < sizeof(text));
	strcpy(text, list);
	for (char *name = text, *next; name; name = next) {
		next = strstr(name, ", ");
		if (next) {
			*next = '\0';
			next += 2;
		}
		if (known(name))
			fprintf(stderr, "\"%s\" of \"%s\" is not known\n", name, list);
		CHECK_OK(known(name));
		found++;
	}
	CHECK_EQ(found, n);
	CU_ASSERT(known("") != 0 && known("no such") != 0 && known(list) != 0);
}

static int known_act(const char *name)
{
	enum dn_act a;

	return dn_act_find(name, &a);
}

static int known_policy(const char *name)
{
	enum dn_policy p;

	return dn_policy_find(name, &p);
}

static int known_optimizer(const char *name)
{
	enum dn_optimizer o;
	int err = dn_optimizer_find(name, &o);

	return err || strcmp(dn_optimizer_name(o), name) || dn_state_count(o) < 1 ? -1 : 0;
}

static int known_cost(const char *name)
{
	enum dn_cost k;

	return dn_cost_find(name, &k);
}

static void lists_hold_every_row(void)
{
	list_is_whole(dn_act_names(), DN_ACTS, known_act);
	list_is_whole(dn_policy_names(), DN_POLICIES, known_policy);
	list_is_whole(dn_optimizer_names(), DN_OPTIMIZERS, known_optimizer);
	list_is_whole(dn_cost_names(), DN_COSTS - 2 + 1, known_cost); /* without those of softmax and logistic, with seg */
	CHECK_STR(dn_optimizer_name(DN_OPTIMIZERS), "?");
	CU_ASSERT(!dn_act_of_input(DN_ACT_REVLEAKY) && dn_act_of_input(DN_ACT_SWISH) && dn_act_of_input(DN_ACT_GELU));
	CU_ASSERT(!dn_act_of_input(DN_ACTS));
}

/* a policy's rate at update @b, written out once more */
static void every_policy_has_its_rate(void)
{
	int64_t steps[] = { 10, 20 };
	double scales[] = { .5, .1 };
	const struct dn_hyper h = {
		.learning_rate = 2,
		.power = 2,
		.max_batches = 100,
		.step = 5,
		.scale = .5,
		.gamma = .9,
		.n_steps = 2,
		.steps = steps,
		.scales = scales,
		.rate_min = .25,
		.cycle = 10,
		.cycle_mult = 2,
	};

	for (int p = 0; p < DN_POLICIES; p++) {
		struct dn_hyper of = h;
		double got;

		of.policy = (enum dn_policy)p;
		got = dn_net_rate(&of, 20, 7);
		switch (of.policy) {
		case DN_CONSTANT:
			CU_ASSERT(got == 2);
			break;
		case DN_STEP:
			CU_ASSERT_DOUBLE_EQUAL(got, 2 * .0625, 1e-15);
			break;
		case DN_STEPS:
			CU_ASSERT_DOUBLE_EQUAL(got, 2 * .5 * .1, 1e-15);
			break;
		case DN_EXP:
			CU_ASSERT_DOUBLE_EQUAL(got, 2 * pow(.9, 20), 1e-15);
			break;
		case DN_POLY:
			CU_ASSERT_DOUBLE_EQUAL(got, 2 * .64, 1e-15);
			break;
		case DN_SIGMOID:
			CU_ASSERT_DOUBLE_EQUAL(got, 2 / (1 + exp(.9 * 15)), 1e-15);
			break;
		case DN_RANDOM:
			CU_ASSERT(got >= 0 && got < 2);
			break;
		case DN_SGDR: /* 10 into the second cycle, of 20 */
			CU_ASSERT_DOUBLE_EQUAL(got, .25 + .5 * 1.75, 1e-12);
			break;
		default:
			CU_FAIL("a policy without a case here");
		}
		of.burn_in = 40; /* under way: the policy waits */
		CU_ASSERT_DOUBLE_EQUAL(dn_net_rate(&of, 20, 7), 2 * .25, 1e-15);
	}
}

static const struct check_case cases[] = {
	{ "lists_hold_every_row", lists_hold_every_row },
	{ "every_policy_has_its_rate", every_policy_has_its_rate },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("names", cases);
}
