/* What killed runs left in the backup folder: files and folders that were being written. Rank 0, while it holds the lock of BASE. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "train/loop_priv.h"

#define TRIAL_SECONDS 600

/* The rest of a name of ours behind BASE, of @n letters: no other file is touched. */
static bool is_ours(const char *rest, size_t n)
{
	size_t digits = n > 1 && rest[0] == '_' ? strspn(rest + 1, "0123456789") : 0;

	for (int i = 0; loop_rests[i]; i++)
		if (n == strlen(loop_rests[i]) && !strncmp(rest, loop_rests[i], n))
			return true;
	return digits && n == 1 + digits + strlen(".weights") && !strncmp(rest + 1 + digits, ".weights", strlen(".weights"));
}

/* What tried whether the folder can be written to lives for an instant, and bears no process: an old one has none. */
static int sweep_trial(const char *path, int *n_gone)
{
	struct stat st;

	if (lstat(path, &st) || !S_ISREG(st.st_mode) || st.st_size || time(NULL) - st.st_mtime < TRIAL_SECONDS)
		return 0;
	if (unlink(path) && errno != ENOENT)
		return dn_fail(-errno, "%s: cannot remove: %s", path, strerror(errno));
	++*n_gone;
	return 0;
}

static int sweep_file(const struct dn_loop *l, const char *name, int *n_gone)
{
	char path[LOOP_PATH_MAX + 256];
	size_t n = strlen(l->base);
	const char *end = dn_out_tmp_end(name);
	bool gone = false;
	int err;

	snprintf(path, sizeof(path), "%s/%s", l->backup, name);
	if (dn_is_write_test(name))
		return sweep_trial(path, n_gone);
	if (!end || strncmp(name, l->base, n) || end < name + n || !is_ours(name + n, (size_t)(end - name) - n))
		return 0;
	err = dn_out_sweep(path, &gone);
	*n_gone += gone;
	return err;
}

void loop_sweep(const struct dn_loop *l)
{
	DIR *d = opendir(l->backup);
	struct dirent *e;
	int n = 0;
	int err = d ? 0 : dn_fail(-errno, "%s: cannot read the folder: %s", l->backup, strerror(errno));

	while (d && !err && (e = readdir(d)))
		err = sweep_file(l, e->d_name, &n);
	if (d)
		closedir(d);
	if (!err)
		err = dn_ckpt_sweep(l->ckpt_dir, &n);
	if (err) /* the run does without */
		dn_warn("what a killed run left cannot be removed: %s", dn_message());
	if (n)
		dn_log("train", DN_LOG_INFO, "%s: removed %d unfinished file%s or folder%s of killed runs", l->backup, n,
		       n > 1 ? "s" : "", n > 1 ? "s" : "");
}
