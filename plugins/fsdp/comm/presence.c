/* Presence files; see presence.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "comm/presence.h"

#define NAMED_RANKS 8

static void clean(char *s)
{
	for (; *s; s++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", *s))
			*s = '_';
}

static void job_name(char *out, size_t cap)
{
	const char *ns = getenv("PMIX_NAMESPACE"), *id = getenv("OMPI_MCA_ess_base_jobid");
	const char *slurm = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");

	if (!ns)
		ns = id;
	if (ns)
		snprintf(out, cap, "%d-%s", (int)getuid(), ns);
	else if (slurm)
		snprintf(out, cap, "%d-slurm-%s-%s", (int)getuid(), slurm, step ? step : "0");
	else
		snprintf(out, cap, "%d-%d", (int)getuid(), (int)getppid());
	clean(out);
}

/* Only a help for messages: a rank without a presence file (a full /tmp) is no reason to refuse the run. */
void fsdp_presence_leave(struct fsdp_presence *p, const struct dn_launch *l)
{
	const char *tmp = getenv("TMPDIR");
	struct stat st;
	char job[200];
	int fd;

	p->rank = l->rank;
	p->size = l->size;
	p->one_host = l->n_on_host == l->size;
	job_name(job, sizeof(job));
	snprintf(p->dir, sizeof(p->dir), "%.280s/darknet-fsdp-%s", tmp && *tmp ? tmp : "/tmp", job);
	if ((mkdir(p->dir, 0700) && errno != EEXIST) || lstat(p->dir, &st) || !S_ISDIR(st.st_mode) || st.st_uid != getuid()) {
		*p->dir = '\0';
		return;
	}
	snprintf(p->file, sizeof(p->file), "%s/rank-%d", p->dir, p->rank);
	(void)unlink(p->file);
	fd = open(p->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0)
		*p->file = '\0';
	if (fd >= 0 && close(fd))
		*p->file = '\0';
}

void fsdp_presence_remove(struct fsdp_presence *p)
{
	if (*p->file)
		(void)unlink(p->file);
	if (*p->dir)
		(void)rmdir(p->dir); /* the last one succeeds */
	*p->file = *p->dir = '\0';
}

void fsdp_presence_remove_all(struct fsdp_presence *p)
{
	char path[600];

	for (int q = 0; q < p->size && *p->dir; q++) {
		snprintf(path, sizeof(path), "%s/rank-%d", p->dir, q);
		(void)unlink(path);
	}
}

bool fsdp_presence_is_here(const struct fsdp_presence *p)
{
	return *p->file && !access(p->file, F_OK);
}

void fsdp_presence_missing(const struct fsdp_presence *p, char *out, size_t cap)
{
	size_t at = 0;
	int n = 0;

	*out = '\0';
	for (int q = 0; q < p->size && *p->dir && at < cap; q++) {
		char path[600], text[32] = "";
		const char *why = NULL;
		FILE *f;

		if (q == p->rank)
			continue;
		snprintf(path, sizeof(path), "%s/rank-%d", p->dir, q);
		f = fopen(path, "re");
		if (f) {
			if (fgets(text, sizeof(text), f) && atoi(text) > 0)
				why = dn_process_trouble(atoi(text));
			(void)fclose(f);
		} else if (p->one_host) { /* else it may be on another */
			why = "not here";
		}
		if (!why)
			continue;
		if (n++ == NAMED_RANKS) {
			snprintf(out + at, cap - at, " and others");
			return;
		}
		at += (size_t)snprintf(out + at, cap - at, "%s%d (%s)", n == 1 ? "rank " : ", ", q, why);
	}
}
