/* Cores: those that are there, those of the affinity mask, and what cgroups leave of them. */
#define _GNU_SOURCE
#include "base/cores.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

#define LINE_BYTES 8192 /* longer lines are no cgroup's */

int dn_present_cores(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n > 0 ? (int)n : 1;
}

int dn_affinity_cores(void)
{
	cpu_set_t sets[16]; /* the kernel refuses a mask that is shorter than its own; one set is 1024 cores */
	int n;

	memset(sets, 0, sizeof(sets));
	if (sched_getaffinity(0, sizeof(sets), sets))
		return dn_present_cores();
	n = CPU_COUNT_S(sizeof(sets), sets);
	return n > 0 ? n : 1;
}

/* --- cgroups --- */

struct groups { /* where this process stands, by the kind of hierarchy */
	char v2[PATH_MAX], v1[PATH_MAX];
	bool has_v2, has_v1;
};

/* One line without its end; a line that does not fit is passed over. False at the end. */
static bool next_line(FILE *f, char line[LINE_BYTES])
{
	while (fgets(line, LINE_BYTES, f)) {
		size_t n = strlen(line);
		int c = 0;

		if (n && line[n - 1] == '\n') {
			line[n - 1] = '\0';
			return true;
		}
		while (n == LINE_BYTES - 1 && (c = fgetc(f)) != EOF && c != '\n')
			;
		if (n < LINE_BYTES - 1)
			return true;
	}
	return false;
}

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *s = list; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
		if (!strncmp(s, word, n) && (s[n] == ',' || !s[n]))
			return true;
	return false;
}

/* "4:cpu,cpuacct:/a/b" or "0::/a/b" */
static void read_groups(const char *root, struct groups *g)
{
	char path[PATH_MAX], line[LINE_BYTES];
	FILE *f;

	g->has_v1 = g->has_v2 = false;
	snprintf(path, sizeof(path), "%.2000s/proc/self/cgroup", root);
	f = fopen(path, "re");
	while (f && next_line(f, line)) {
		char *names = strchr(line, ':'), *at = names ? strchr(names + 1, ':') : NULL;

		if (!at)
			continue;
		names++;
		*at++ = '\0';
		if (!*names) {
			g->has_v2 = true;
			snprintf(g->v2, sizeof(g->v2), "%.4000s", at);
		} else if (has_word(names, "cpu")) {
			g->has_v1 = true;
			snprintf(g->v1, sizeof(g->v1), "%.4000s", at);
		}
	}
	if (f)
		fclose(f);
}

/* A number in a file, in @out[n]; the count of them that are there ("max" is none). */
static int read_numbers(const char *dir, const char *name, int64_t *out, int n)
{
	char path[PATH_MAX], line[LINE_BYTES], *s = line, *word;
	int have = 0;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return 0;
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (!next_line(f, line))
		line[0] = '\0';
	fclose(f);
	while (have < n && (word = strsep(&s, " \t")) && dn_parse_int(word, &out[have]) == DN_NUM_WHOLE)
		have++;
	return have;
}

/* The quota of one folder; 0 = none */
static double quota_of(const char *dir, bool v2)
{
	int64_t x[2] = { 0, 0 };
	int n;

	if (v2)
		n = read_numbers(dir, "cpu.max", x, 2);
	else
		n = read_numbers(dir, "cpu.cfs_quota_us", &x[0], 1) + read_numbers(dir, "cpu.cfs_period_us", &x[1], 1);
	return n == 2 && x[0] > 0 && x[1] > 0 ? (double)x[0] / (double)x[1] : 0;
}

/* The least from folder @dir up to the first @top letters of it, which are the mount's. */
static void least_quota(char *dir, size_t top, bool v2, double *least)
{
	for (;;) {
		double q = quota_of(dir, v2);
		char *slash;

		if (q > 0 && (*least <= 0 || q < *least))
			*least = q;
		slash = strrchr(dir, '/');
		if (strlen(dir) <= top || !slash || (size_t)(slash - dir) < top)
			return;
		*slash = '\0';
	}
}

/* "\040" is a blank in mountinfo */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* What follows @top in @path, "" when it is not below it: a container sees its own cgroup as the top, by whatever name */
static const char *below(const char *path, const char *top)
{
	size_t n = strlen(top);

	if (strstr(path, "/.."))
		return "";
	if (!strcmp(top, "/"))
		return strcmp(path, "/") ? path : "";
	return !strncmp(path, top, n) && (path[n] == '/' || !path[n]) ? path + n : "";
}

/* "31 23 0:28 ROOT POINT OPTIONS [MORE...] - TYPE SOURCE SUPER" */
static void read_mount(const char *root, char *line, const struct groups *g, double *least)
{
	char dir[2 * PATH_MAX];
	char *field[6], *s = line, *type, *super;
	const char *path;
	size_t top;
	bool v2;

	for (int i = 0; i < 6; i++)
		if (!(field[i] = strsep(&s, " ")))
			return;
	while ((type = strsep(&s, " ")) && strcmp(type, "-"))
		;
	type = strsep(&s, " ");
	super = type && strsep(&s, " ") ? strsep(&s, " ") : NULL;
	v2 = type && !strcmp(type, "cgroup2");
	if (!super || (!v2 && (strcmp(type, "cgroup") || !has_word(super, "cpu"))) || (v2 ? !g->has_v2 : !g->has_v1))
		return;
	unescape(field[3]);
	unescape(field[4]);
	path = below(v2 ? g->v2 : g->v1, field[3]);
	top = (size_t)snprintf(dir, sizeof(dir), "%.2000s%.4000s", root, field[4]);
	snprintf(dir + top, sizeof(dir) - top, "%.4000s", path);
	if (access(dir, F_OK))
		dir[top] = '\0';
	least_quota(dir, top, v2, least);
}

double dn_quota_cores(const char *root)
{
	char path[PATH_MAX], line[LINE_BYTES];
	struct groups g;
	double least = 0;
	FILE *f;

	read_groups(root, &g);
	snprintf(path, sizeof(path), "%.2000s/proc/self/mountinfo", root);
	f = fopen(path, "re");
	while (f && next_line(f, line))
		read_mount(root, line, &g, &least);
	if (f)
		fclose(f);
	return least;
}

/* 1.99999 is no 2: cut behind the digits that are shown, but for what a division loses. */
const char *dn_quota_text(double quota, char *out, size_t cap)
{
	double shown = floor(quota * 100 + 1e-6) / 100;
	bool whole = quota >= 1 && floor(quota) >= quota;

	snprintf(out, cap, "a CPU quota of %.2f%s", shown,
		 whole	     ? ""
		 : quota < 1 ? ", one core is the least"
			     : ", rounded down to whole cores");
	return out;
}

int dn_usable_cores(void)
{
	double quota = dn_quota_cores("");
	int n = dn_affinity_cores();

	if (quota > 0 && quota < n)
		n = (int)quota;
	return n > 0 ? n : 1;
}

/* --- threads --- */

int dn_env_threads(void)
{
	const char *s = getenv("OMP_NUM_THREADS");
	char word[24];
	int64_t n;

	if (!s)
		return 0;
	while (*s == ' ' || *s == '\t')
		s++;
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(s, ", \t"), s); /* a list is for regions inside of regions */
	return dn_parse_int(word, &n) == DN_NUM_WHOLE && n >= 1 && n <= 4096 ? (int)n : 0;
}

int dn_default_threads(int ranks_on_host)
{
	int n = dn_env_threads();

	if (!n)
		n = dn_usable_cores() / (ranks_on_host > 0 ? ranks_on_host : 1);
	return n > 0 ? n : 1;
}
