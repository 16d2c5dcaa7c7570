/* base: messages and the log. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>

#include "base/text.h"
#include "base_help.h"

static void fail_records_and_returns(void)
{
	dn_message_clear();
	CHECK_STR(dn_message(), "");
	errno = 7;
	CHECK_EQ(dn_fail(-EINVAL, "a %d", 5), -EINVAL);
	CHECK_EQ(errno, 7);
	CHECK_STR(dn_message(), "a 5");
	dn_fail(-EIO, "rank 0: %s", dn_message());
	CHECK_STR(dn_message(), "rank 0: a 5");
}

static void message_is_cut_at_2000(void)
{
	dn_fail(-1, "%05000d", 1);
	CHECK_EQ(strlen(dn_message()), 2000);
}

static void *fail_elsewhere(void *arg)
{
	dn_fail(-EIO, "other thread");
	return NULL;
}

static void message_belongs_to_its_thread(void)
{
	pthread_t t;

	dn_fail(-EIO, "mine");
	CHECK_EQ(pthread_create(&t, NULL, fail_elsewhere, NULL), 0);
	pthread_join(t, NULL);
	CHECK_STR(dn_message(), "mine");
}

static void exit_status_follows_the_error(void)
{
	CHECK_EQ(dn_exit_status(0), 0);
	CHECK_EQ(dn_exit_status(-EINVAL), 1);
	CHECK_EQ(dn_exit_status(-ECONNABORTED), 3);
	CHECK_EQ(dn_exit_status(-ETIMEDOUT), 3);
}

static void log_level_is_chosen_per_room(void)
{
	struct heard h;

	setenv("DARKNET_LOG", "fsdp:debug,net:info", 1);
	CU_ASSERT(dn_log_on("fsdp", DN_LOG_DEBUG));
	CU_ASSERT(dn_log_on("net", DN_LOG_INFO));
	CU_ASSERT(!dn_log_on("net", DN_LOG_DEBUG));
	CU_ASSERT(!dn_log_on("ne", DN_LOG_INFO));
	CU_ASSERT(dn_log_on("data", DN_LOG_WARN));
	CU_ASSERT(!dn_log_on("data", DN_LOG_INFO));
	listen_start(&h);
	dn_log("net", DN_LOG_INFO, "%d layers", 3);
	dn_log("net", DN_LOG_DEBUG, "not this");
	listen_stop();
	CHECK_STR(h.all, "net: info: 3 layers\n");
	setenv("DARKNET_LOG", "*:error,net:debug", 1);
	CU_ASSERT(!dn_log_on("data", DN_LOG_WARN));
	CU_ASSERT(dn_log_on("net", DN_LOG_DEBUG));
	setenv("DARKNET_LOG", "info", 1);
	CU_ASSERT(dn_log_on("data", DN_LOG_INFO));
	setenv("DARKNET_LOG", "net:loud", 1);
	listen_start(&h);
	CU_ASSERT(!dn_log_on("net", DN_LOG_INFO));
	CU_ASSERT(!dn_log_on("net", DN_LOG_INFO));
	listen_stop();
	CHECK_EQ(h.n, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(h.all, "net:loud"));
	unsetenv("DARKNET_LOG");
}

static void warnings_can_be_quiet(void)
{
	struct heard h;

	listen_start(&h);
	dn_warn("one");
	dn_log_quiet(true);
	dn_warn("two");
	dn_log_quiet(false);
	dn_warn("%05000d", 3);
	listen_stop();
	CHECK_EQ(h.n, 2);
	CU_ASSERT(dn_starts(h.all, "warning: one\nwarning: 000"));
}

static const struct check_case cases[] = {
	{ "fail records and returns", fail_records_and_returns },
	{ "a message is cut at 2000 bytes", message_is_cut_at_2000 },
	{ "a message belongs to its thread", message_belongs_to_its_thread },
	{ "the exit status follows the error", exit_status_follows_the_error },
	{ "the log level is chosen per room", log_level_is_chosen_per_room },
	{ "warnings can be quiet", warnings_can_be_quiet },
	{ NULL, NULL },
};

int main(void)
{
	return base_help_run("base_status", cases);
}
