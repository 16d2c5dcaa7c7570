/* What the suites of base share: the log heard, a folder of the process, host memory counted. */
#ifndef DN_TESTS_BASE_HELP_H
#define DN_TESTS_BASE_HELP_H
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "check.h"

/* Lines that went to the log while a case listened. */
struct heard {
	int n;
	char all[8192];
};

__attribute__((unused)) static void hear(void *arg, const char *line)
{
	struct heard *h = arg;
	size_t n = strlen(h->all);

	h->n++;
	snprintf(h->all + n, sizeof(h->all) - n, "%s\n", line);
}

__attribute__((unused)) static void listen_start(struct heard *h)
{
	memset(h, 0, sizeof(*h));
	dn_log_sink(hear, h);
}

__attribute__((unused)) static void listen_stop(void)
{
	dn_log_sink(NULL, NULL);
}

static char tmp_dir[64];

__attribute__((unused)) static const char *tmp_path(const char *name)
{
	static char path[4][256];
	static int i;
	char *p = path[i++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", tmp_dir, name);
	return p;
}

__attribute__((unused)) static void put_file(const char *path, const void *bytes, size_t n)
{
	FILE *f = fopen(path, "wb");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(fwrite(bytes, 1, n, f), n);
	CU_ASSERT_EQUAL(fclose(f), 0);
}

__attribute__((unused)) static size_t host_now(void)
{
	struct dn_mem_stats st;

	dn_mem_stats(DN_MEM_HOST, &st);
	return st.now_bytes;
}

static int base_help_run(const char *suite, const struct check_case *cases)
{
	int status;

	unsetenv("DARKNET_LOG");
	strcpy(tmp_dir, "/tmp/test_base.XXXXXX");
	if (!mkdtemp(tmp_dir)) {
		perror(tmp_dir);
		return 2;
	}
	status = check_run(suite, cases);
	if (dn_remove_tree(tmp_dir)) {
		fprintf(stderr, "%s\n", dn_message());
		status = 1;
	}
	return status;
}
#endif
