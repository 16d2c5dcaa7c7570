/* Room base: cores that CPU quotas leave, read of made-up proc and sys folders, and the default number of threads. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <sched.h>
#include <sys/stat.h>

#include "base/cores.h"
#include "base/file.h"

static char dir[64], root[100];
static int n_roots;

/* @text in @path below a fresh root's folder, with the folders on the way */
static void put(const char *path, const char *text)
{
	char full[400];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *s = full + 1; *s; s++)
		if (*s == '/') {
			*s = '\0';
			CU_ASSERT_FATAL(!mkdir(full, 0700) || errno == EEXIST);
			*s = '/';
		}
	if (!text)
		return;
	f = fopen(full, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputs(text, f);
	fclose(f);
}

static void fresh(const char *cgroup, const char *mountinfo)
{
	snprintf(root, sizeof(root), "%s/%d", dir, n_roots++);
	put("/proc/self/cgroup", cgroup);
	put("/proc/self/mountinfo", mountinfo);
}

#define OTHERS \
	"23 1 8:1 / / rw - ext4 /dev/sda1 rw\n24 23 0:5 / /proc rw shared:12 - proc proc rw\n" \
	"30 23 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755\n"
#define V2 "31 30 0:27 / /sys/fs/cgroup rw,nosuid shared:10 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"

static void check_quota(double want)
{
	CU_ASSERT_DOUBLE_EQUAL(dn_quota_cores(root), want, 1e-12);
}

static void a_quota_is_told_as_it_is_and_never_rounded_up(void)
{
	char text[80];

	CHECK_STR(dn_quota_text(1.99999, text, sizeof(text)), "a CPU quota of 1.99, rounded down to whole cores");
	CHECK_STR(dn_quota_text(1.9, text, sizeof(text)), "a CPU quota of 1.90, rounded down to whole cores");
	CHECK_STR(dn_quota_text(2, text, sizeof(text)), "a CPU quota of 2.00");
	CHECK_STR(dn_quota_text(2.000001, text, sizeof(text)), "a CPU quota of 2.00, rounded down to whole cores");
	CHECK_STR(dn_quota_text(.29, text, sizeof(text)), "a CPU quota of 0.29, one core is the least");
}

static void a_quota_of_version_2_counts_wherever_it_stands(void)
{
	fresh("0::/user.slice/a/b\n", OTHERS V2);
	check_quota(0);
	put("/sys/fs/cgroup/user.slice/a/b/cpu.max", "max 100000\n");
	check_quota(0);
	put("/sys/fs/cgroup/user.slice/a/b/cpu.max", "250000 100000\n");
	check_quota(2.5);
	put("/sys/fs/cgroup/user.slice/a/cpu.max", "150000 50000\n"); /* larger: the inner one holds */
	check_quota(2.5);
	put("/sys/fs/cgroup/user.slice/cpu.max", "50000 100000\n");
	check_quota(.5);
	put("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
	put("/sys/fs/cgroup/cpu.max", "100000 100000\n"); /* the top itself */
	check_quota(1);
	put("/sys/fs/cgroup/user.slice/a/c/cpu.max", "1000 100000\n"); /* somebody else's */
	check_quota(1);
}

static void a_quota_of_version_1_counts_wherever_it_stands(void)
{
	static const char *const lists[] = { "cpu", "cpu,cpuacct", "cpuacct,cpu" };

	for (int i = 0; i < 3; i++) {
		char groups[200], mounts[600];

		snprintf(groups, sizeof(groups), "9:name=systemd:/x\n5:cpuset,%s2:/no\n4:%s:/docker/abc\n2:memory:/no\n0::/\n",
			 lists[i], lists[i]);
		snprintf(mounts, sizeof(mounts),
			 OTHERS "32 30 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
				"33 30 0:31 / /sys/fs/cgroup/%s rw shared:11 - cgroup cgroup rw,%s\n"
				"34 30 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			 lists[i], lists[i]);
		fresh(groups, mounts);
		snprintf(mounts, sizeof(mounts), "/sys/fs/cgroup/%s/docker/abc/cpu.cfs_quota_us", lists[i]);
		put(mounts, "-1\n");
		check_quota(0);
		put(mounts, "300000\n");
		check_quota(0); /* of what? */
		snprintf(mounts, sizeof(mounts), "/sys/fs/cgroup/%s/docker/abc/cpu.cfs_period_us", lists[i]);
		put(mounts, "100000\n");
		check_quota(3);
		snprintf(mounts, sizeof(mounts), "/sys/fs/cgroup/%s/docker/cpu.cfs_period_us", lists[i]);
		put(mounts, "100000\n");
		snprintf(mounts, sizeof(mounts), "/sys/fs/cgroup/%s/docker/cpu.cfs_quota_us", lists[i]);
		put(mounts, "130000\n");
		check_quota(1.3);
	}
}

/* With a namespace of its own a container's group is the top, and its path may be any. */
static void a_container_s_own_group_is_its_top(void)
{
	static const char *const paths[] = { "/", "/../../other", "/docker/abc", "/not/in/here" };

	for (int i = 0; i < 4; i++) {
		char text[100];

		snprintf(text, sizeof(text), "0::%s\n", paths[i]);
		fresh(text, OTHERS V2);
		put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
		check_quota(2);
		/* the same with the mount's top named as outside, and version 1 */
		snprintf(text, sizeof(text), "4:cpu:%s\n", paths[i]);
		fresh(text, OTHERS "33 30 0:31 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
		put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
		put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
		put("/sys/fs/cgroup/cpu/child/cpu.cfs_quota_us", "100\n");
		check_quota(2);
	}
	fresh("4:cpu:/docker/abc/child\n", OTHERS "33 30 0:31 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
	put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
	put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	put("/sys/fs/cgroup/cpu/child/cpu.cfs_quota_us", "100000\n");
	put("/sys/fs/cgroup/cpu/child/cpu.cfs_period_us", "100000\n");
	check_quota(1);
	/* a name that only starts like the mount's */
	fresh("4:cpu:/docker/abcd\n", OTHERS "33 30 0:31 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
	put("/sys/fs/cgroup/cpu/d/cpu.cfs_quota_us", "100000\n");
	put("/sys/fs/cgroup/cpu/d/cpu.cfs_period_us", "100000\n");
	check_quota(0);
}

static void odd_files_are_no_quota(void)
{
	static const char *const texts[] = { "", "\n", "max\n", "100000\n", "0 100000\n", "x y\n", "100000 0\n", "-1 100000\n" };
	char line[20000];

	snprintf(root, sizeof(root), "%s/nothing", dir);
	check_quota(0);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		fresh("0::/\n", OTHERS V2);
		put("/sys/fs/cgroup/cpu.max", texts[i]);
		check_quota(0);
	}
	fresh("junk\n:\n0::/\n", "short\n1 2 3 4 5\n31 30 0:27 / /x rw - cgroup2\n31 30 0:27 / /x rw - cgroup2 c\n");
	put("/x/cpu.max", "100000 100000\n");
	check_quota(0);
	/* a blank in the mount's place, and a line before it that is longer than any buffer */
	memset(line, 'a', sizeof(line));
	snprintf(line + 16000, 2000, "\n31 30 0:27 / /sys/my\\040groups rw - cgroup2 cgroup2 rw");
	fresh("0::/g\n", line);
	put("/sys/my groups/g/cpu.max", "100000 100000");
	check_quota(1);
}

static void usable_cores_are_whole_and_at_least_one(void)
{
	cpu_set_t all, one;
	double quota = dn_quota_cores("");

	CU_ASSERT(dn_usable_cores() >= 1 && dn_usable_cores() <= dn_affinity_cores());
	CU_ASSERT(quota > 0 ? dn_usable_cores() == 1 || dn_usable_cores() <= quota : dn_usable_cores() == dn_affinity_cores());
	CU_ASSERT_FATAL(!sched_getaffinity(0, sizeof(all), &all));
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	CU_ASSERT_FATAL(!sched_setaffinity(0, sizeof(one), &one));
	CHECK_EQ(dn_affinity_cores(), 1);
	CHECK_EQ(dn_usable_cores(), 1);
	CU_ASSERT_FATAL(!sched_setaffinity(0, sizeof(all), &all));
}

static void a_number_that_the_user_set_is_the_default(void)
{
	static const struct {
		const char *text;
		int want;
	} t[] = { { "3", 3 },  { "5,2", 5 }, { " 7 ", 7 }, { "", 0 },	  { "0", 0 },
		  { "-2", 0 }, { "x", 0 },   { "4x", 0 },  { "5000", 0 }, { "99999999999999999999999", 0 } };

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		setenv("OMP_NUM_THREADS", t[i].text, 1);
		CHECK_EQ(dn_env_threads(), t[i].want);
		if (t[i].want)
			CHECK_EQ(dn_default_threads(2), t[i].want); /* it is each process's */
	}
	unsetenv("OMP_NUM_THREADS");
	CHECK_EQ(dn_env_threads(), 0);
	CHECK_EQ(dn_default_threads(1), dn_usable_cores());
	CHECK_EQ(dn_default_threads(0), dn_usable_cores());
	CHECK_EQ(dn_default_threads(100000), 1);
}

int main(void)
{
	static const struct check_case cases[] = {
		{ "a_quota_is_told_as_it_is_and_never_rounded_up", a_quota_is_told_as_it_is_and_never_rounded_up },
		{ "a_quota_of_version_2_counts_wherever_it_stands", a_quota_of_version_2_counts_wherever_it_stands },
		{ "a_quota_of_version_1_counts_wherever_it_stands", a_quota_of_version_1_counts_wherever_it_stands },
		{ "a_container_s_own_group_is_its_top", a_container_s_own_group_is_its_top },
		{ "odd_files_are_no_quota", odd_files_are_no_quota },
		{ "usable_cores_are_whole_and_at_least_one", usable_cores_are_whole_and_at_least_one },
		{ "a_number_that_the_user_set_is_the_default", a_number_that_the_user_set_is_the_default },
		{ NULL, NULL },
	};
	int status;

	snprintf(dir, sizeof(dir), "/tmp/test_cores.XXXXXX");
	if (!mkdtemp(dir)) {
		perror(dir);
		return 2;
	}
	status = check_run("cores", cases);
	if (dn_remove_tree(dir))
		fprintf(stderr, "%s\n", dn_message());
	return status;
}
