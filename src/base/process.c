/* Reading /proc; see process.h. */
#include "base/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *open_proc(int pid, const char *file)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	return fopen(path, "re");
}

char dn_process_state(int pid, int *ppid)
{
	char text[512], *at;
	size_t n;
	FILE *f = open_proc(pid, "stat");

	if (!f)
		return errno == ENOENT ? 0 : '?';
	n = fread(text, 1, sizeof(text) - 1, f);
	if (ferror(f)) /* ended between open and read */
		n = 0;
	text[n] = '\0';
	if (fclose(f))
		return '?';
	at = strrchr(text, ')'); /* the name before it may contain anything */
	if (!at || at[1] != ' ' || !at[2])
		return '?';
	if (ppid)
		*ppid = at[3] ? atoi(at + 4) : 0;
	return at[2];
}

const char *dn_process_trouble(int pid)
{
	char s = dn_process_state(pid, NULL);

	return !s || s == 'Z' || s == 'X' ? "gone" : s == 'T' || s == 't' ? "stopped" : NULL;
}

bool dn_process_has_env(int pid, const char *variable)
{
	char text[4096];
	size_t n, keep = 0, len = strlen(variable);
	bool found = false;
	FILE *f = open_proc(pid, "environ");

	if (!f)
		return false;
	while (!found && (n = fread(text + keep, 1, sizeof(text) - keep, f)) > 0) {
		n += keep;
		for (size_t i = keep ? 1 : 0; !found && i + len + 1 < n; i++) /* the kept part's first place was looked at */
			found = (i == 0 || !text[i - 1]) && !memcmp(text + i, variable, len) && text[i + len] == '=';
		keep = n < 128 ? n : 128;
		memmove(text, text + n - keep, keep);
	}
	(void)fclose(f); /* read only */
	return found;
}

bool dn_process_named(int pid, const char *const *names)
{
	char text[32] = "";
	FILE *f = open_proc(pid, "comm");

	if (!f)
		return false;
	if (!fgets(text, sizeof(text), f))
		*text = '\0';
	(void)fclose(f); /* read only */
	for (; *names; names++)
		if (!strncmp(text, *names, strlen(*names)))
			return true;
	return false;
}
