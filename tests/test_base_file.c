/* base: files and folders. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "base_help.h"

static void files_are_read_whole(void)
{
	const char *path = tmp_path("r.txt");
	char *text = NULL;
	int64_t size = 0;
	size_t n = 0;

	put_file(path, "ab\0cd", 5);
	CHECK_OK(dn_file_read(path, 5, &text, &n));
	CHECK_EQ(n, 5);
	CHECK_BITS(text, "ab\0cd", 6);
	dn_free(text);
	text = NULL;
	CHECK_FAILS(dn_file_read(path, 4, &text, &n), -EFBIG, "has 5 bytes, at most 4");
	CHECK_OK(dn_file_size(path, &size));
	CHECK_EQ(size, 5);
	put_file(path, "", 0);
	CHECK_OK(dn_file_read(path, 4, &text, &n));
	CHECK_EQ(n, 0);
	CHECK_STR(text, "");
	dn_free(text);
}

static void only_regular_files_are_read(void)
{
	const char *fifo = tmp_path("fifo");
	char *text = NULL;
	int64_t size = 0;
	size_t n = 0;

	CHECK_EQ(mkfifo(fifo, 0600), 0);
	CHECK_FAILS(dn_file_read(fifo, 100, &text, &n), -EINVAL, "fifo: is a pipe, wanted a file");
	CHECK_FAILS(dn_file_read("/dev/zero", 100, &text, &n), -EINVAL, "/dev/zero: is a device");
	CHECK_FAILS(dn_file_read(tmp_dir, 100, &text, &n), -EISDIR, "is a folder");
	CHECK_FAILS(dn_file_size(tmp_dir, &size), -EISDIR, "is a folder");
	CHECK_FAILS(dn_file_size(tmp_path("nope"), &size), -ENOENT, "nope: cannot read: No such file or directory");
	CU_ASSERT_PTR_NULL(text);
}

static int n_entries(const char *name)
{
	char cmd[400];
	int n = -1;
	FILE *f;

	snprintf(cmd, sizeof(cmd), "ls -A '%s' | wc -l", tmp_path(name));
	f = popen(cmd, "r");
	if (f) {
		if (fscanf(f, "%d", &n) != 1)
			n = -1;
		pclose(f);
	}
	return n;
}

static void folders_are_made_and_removed(void)
{
	const char *deep = tmp_path("d/e//f/");
	uint64_t space = 0;

	CHECK_OK(dn_make_dirs(deep));
	CHECK_OK(dn_make_dirs(deep));
	CHECK_EQ(n_entries("d/e/f"), 0); /* the trial file is gone */
	put_file(tmp_path("d/x"), "1", 1);
	CHECK_FAILS(dn_make_dirs(tmp_path("d/x/y")), -ENOTDIR, "d/x: cannot make the folder: Not a directory");
	CHECK_FAILS(dn_make_dirs(tmp_path("d/x")), -ENOTDIR, "Not a directory");
	CHECK_FAILS(dn_make_dirs(""), -EINVAL, "empty");
	CHECK_FAILS(dn_make_dirs("/proc/self/fdinfo"), -ENOENT, "/proc/self/fdinfo: cannot write in the folder");
	CHECK_OK(dn_free_space(tmp_path("d/not/yet"), &space));
	CU_ASSERT(space > 0);
	space = 0;
	CHECK_OK(dn_free_space("not-here/yet", &space));
	CU_ASSERT(space > 0);
	put_file(tmp_path("keep"), "1", 1);
	CHECK_EQ(symlink("../keep", tmp_path("d/link")), 0);
	CHECK_EQ(symlink("..", tmp_path("d/e/up")), 0);
	CHECK_OK(dn_remove_tree(tmp_path("d")));
	CHECK_EQ(access(tmp_path("d"), F_OK), -1);
	CHECK_EQ(access(tmp_path("keep"), F_OK), 0);
	CHECK_OK(dn_remove_tree(tmp_path("d")));
	CHECK_OK(dn_remove_tree(tmp_path("keep")));
	CHECK_EQ(access(tmp_path("keep"), F_OK), -1);
}

static void outputs_appear_whole_or_not_at_all(void)
{
	const char *path = tmp_path("o/out.bin");
	struct dn_out o = { 0 };
	char *text = NULL;
	size_t n = 0;
	size_t before = host_now();

	CHECK_OK(dn_make_dirs(tmp_path("o")));
	dn_out_abort(&o);
	CHECK_OK_FATAL(dn_out_open(&o, path));
	CHECK_OK(dn_out_write(&o, "abc", 3));
	CHECK_OK(dn_out_write(&o, NULL, 0));
	CHECK_EQ(o.bytes, 3);
	CHECK_EQ(access(path, F_OK), -1);
	CHECK_OK(dn_out_commit(&o));
	CHECK_EQ(n_entries("o"), 1);
	CHECK_OK_FATAL(dn_out_open(&o, path));
	CHECK_OK(dn_out_write(&o, "longer text", 11));
	dn_out_abort(&o);
	dn_out_abort(&o);
	CHECK_EQ(n_entries("o"), 1);
	CHECK_OK(dn_file_read(path, 100, &text, &n));
	CHECK_STR(text, "abc");
	dn_free(text);
	CHECK_FAILS(dn_out_open(&o, tmp_path("o")), -EISDIR, "is a folder");
	CHECK_FAILS(dn_out_open(&o, "/dev/null"), -EINVAL, "is a device");
	CHECK_FAILS(dn_out_open(&o, tmp_path("none/x")), -ENOENT, "none/x: cannot write: No such file");
	dn_out_abort(&o);
	/* a rename that cannot be: the place has become a folder */
	CHECK_OK_FATAL(dn_out_open(&o, tmp_path("o/later")));
	CHECK_OK(dn_make_dirs(tmp_path("o/later/full")));
	CHECK_FAILS(dn_out_commit(&o), -EISDIR, "o/later: cannot rename");
	CHECK_EQ(n_entries("o"), 2);
	CHECK_EQ(host_now(), before);
}

/* /dev/full takes no byte; the stream is pointed at it behind the back of the output. */
static void write_errors_are_kept_until_commit(void)
{
	static char big[1 << 16];
	struct dn_out o = { 0 };
	const char *path = tmp_path("full.bin");

	for (int in_write = 0; in_write < 2; in_write++) {
		CHECK_OK_FATAL(dn_out_open(&o, path));
		CU_ASSERT_PTR_NOT_NULL_FATAL(freopen("/dev/full", "wb", o.f));
		if (in_write) {
			CHECK_FAILS(dn_out_write(&o, big, sizeof(big)), -ENOSPC, "full.bin: cannot write: No space left");
			CHECK_EQ(dn_out_write(&o, "x", 1), -ENOSPC);
			dn_fail(-EIO, "something else");
		} else {
			CHECK_OK(dn_out_write(&o, "x", 1)); /* still in the stream's buffer */
		}
		CHECK_FAILS(dn_out_commit(&o), -ENOSPC, "full.bin: cannot write: No space left");
		CHECK_EQ(access(path, F_OK), -1);
		CU_ASSERT_PTR_NULL(o.f);
	}
}

static const struct check_case cases[] = {
	{ "files are read whole", files_are_read_whole },
	{ "only regular files are read", only_regular_files_are_read },
	{ "folders are made and removed", folders_are_made_and_removed },
	{ "outputs appear whole or not at all", outputs_appear_whole_or_not_at_all },
	{ "write errors are kept until commit", write_errors_are_kept_until_commit },
	{ NULL, NULL },
};

int main(void)
{
	return base_help_run("base_file", cases);
}
