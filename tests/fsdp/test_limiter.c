/* The limiter: slots, owners, and whose event the next owner waits for. */
#include <errno.h>

#include "../check.h"
#include "plan/plan.h"

static void gives_free_slots_without_a_wait(void)
{
	struct fsdp_limiter l;
	int wait = 7;

	CHECK_OK_FATAL(fsdp_limiter_init(&l, 2));
	CHECK_OK(fsdp_limiter_admit(&l, 0, 10, &wait));
	CHECK_EQ(wait, -1);
	CU_ASSERT(fsdp_limiter_holds(&l, 0, 10));
	CU_ASSERT(!fsdp_limiter_holds(&l, 1, 10));
	CU_ASSERT(!fsdp_limiter_holds(&l, 0, 11));
	fsdp_limiter_fini(&l);
}

static void refuses_a_third_block_while_two_slots_are_held(void)
{
	struct fsdp_limiter l;
	int wait = 7;

	CHECK_OK_FATAL(fsdp_limiter_init(&l, 2));
	CHECK_OK(fsdp_limiter_admit(&l, 0, 0, &wait));
	CHECK_OK(fsdp_limiter_admit(&l, 1, 1, &wait));
	wait = 7;
	CHECK_EQ(fsdp_limiter_admit(&l, 0, 2, &wait), -EAGAIN);
	CHECK_EQ(wait, 7);
	CU_ASSERT(fsdp_limiter_holds(&l, 0, 0));
	fsdp_limiter_fini(&l);
}

static void gives_the_event_that_freed_the_slot(void)
{
	struct fsdp_limiter l;
	int wait = 7;

	CHECK_OK_FATAL(fsdp_limiter_init(&l, 1));
	CHECK_OK(fsdp_limiter_admit(&l, 0, 0, &wait));
	fsdp_limiter_release(&l, 0, 0, 42);
	CU_ASSERT(!fsdp_limiter_holds(&l, 0, 0));
	CHECK_OK(fsdp_limiter_admit(&l, 0, 1, &wait));
	CHECK_EQ(wait, 42);
	fsdp_limiter_release(&l, 0, 1, 43);
	CHECK_OK(fsdp_limiter_admit(&l, 0, 1, &wait));
	CHECK_EQ(wait, 43);
	fsdp_limiter_fini(&l);
}

static void ignores_a_release_by_a_block_that_does_not_hold(void)
{
	struct fsdp_limiter l;
	int wait = 7;

	CHECK_OK_FATAL(fsdp_limiter_init(&l, 1));
	CHECK_OK(fsdp_limiter_admit(&l, 0, 0, &wait));
	fsdp_limiter_release(&l, 0, 5, 42);
	CU_ASSERT(fsdp_limiter_holds(&l, 0, 0));
	CHECK_EQ(fsdp_limiter_admit(&l, 0, 5, &wait), -EAGAIN);
	fsdp_limiter_fini(&l);
}

static void refuses_slots_that_do_not_exist_and_double_owners(void)
{
	struct fsdp_limiter l;
	int wait = 7;

	CHECK_FAILS(fsdp_limiter_init(&l, -1), -EINVAL, "-1 slots");
	CHECK_OK_FATAL(fsdp_limiter_init(&l, 1));
	CHECK_FAILS(fsdp_limiter_admit(&l, 1, 0, &wait), -EINVAL, "slot 1 of 1");
	CHECK_FAILS(fsdp_limiter_admit(&l, -1, 0, &wait), -EINVAL, "slot -1");
	CHECK_OK(fsdp_limiter_admit(&l, 0, 3, &wait));
	CHECK_FAILS(fsdp_limiter_admit(&l, 0, 3, &wait), -EINVAL, "holds slot 0 already");
	fsdp_limiter_fini(&l);
}

static void without_slots_holds_nothing(void)
{
	struct fsdp_limiter l;

	CHECK_OK_FATAL(fsdp_limiter_init(&l, 0));
	CU_ASSERT(!fsdp_limiter_holds(&l, 0, 0));
	CU_ASSERT(!fsdp_limiter_holds(&l, -1, -1));
	fsdp_limiter_release(&l, 0, 0, 1);
	fsdp_limiter_fini(&l);
}

static const struct check_case cases[] = {
	{ "gives_free_slots_without_a_wait", gives_free_slots_without_a_wait },
	{ "refuses_a_third_block_while_two_slots_are_held", refuses_a_third_block_while_two_slots_are_held },
	{ "gives_the_event_that_freed_the_slot", gives_the_event_that_freed_the_slot },
	{ "ignores_a_release_by_a_block_that_does_not_hold", ignores_a_release_by_a_block_that_does_not_hold },
	{ "refuses_slots_that_do_not_exist_and_double_owners", refuses_slots_that_do_not_exist_and_double_owners },
	{ "without_slots_holds_nothing", without_slots_holds_nothing },
	{ NULL, NULL }
};

int main(void)
{
	return check_run("fsdp/limiter", cases);
}
