/* Log lines and warnings: which are on, how they look, where they go. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LINE_BYTES = 2400 };

static const char *const level_names[] = { "error", "warn", "info", "debug" };

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*line_sink)(void *arg, const char *line); /* sink_lock */
static void *line_sink_arg;			       /* sink_lock */
static atomic_bool quiet_warnings;
static atomic_bool told_bad_setting;

/* One write for a whole line, so that lines of several processes on one terminal stay whole. */
static void emit(char *line, size_t n)
{
	pthread_mutex_lock(&sink_lock);
	if (line_sink) {
		line_sink(line_sink_arg, line);
	} else {
		line[n] = '\n';
		fwrite(line, 1, n + 1, stderr);
	}
	pthread_mutex_unlock(&sink_lock);
}

static void emit_args(const char *head, const char *fmt, va_list ap)
{
	char line[LINE_BYTES + 2];
	int saved = errno;
	size_t n;
	int k;

	k = snprintf(line, LINE_BYTES, "%s", head);
	n = k < 0 ? 0 : (size_t)k < LINE_BYTES ? (size_t)k : LINE_BYTES - 1;
	k = vsnprintf(line + n, LINE_BYTES - n, fmt, ap);
	if (k > 0)
		n += (size_t)k < LINE_BYTES - n ? (size_t)k : LINE_BYTES - n - 1;
	line[n] = '\0';
	emit(line, n);
	errno = saved;
}

static int level_of(const char *s, size_t n)
{
	for (int i = 0; i <= DN_LOG_DEBUG; i++)
		if (strlen(level_names[i]) == n && !strncasecmp(s, level_names[i], n))
			return i;
	return -1;
}

/* The level of @room in "room:level,room:level"; a level without a room, or with "*", is for all rooms. */
static int setting_level(const char *setting, const char *room)
{
	int all = DN_LOG_WARN;
	int own = -1;

	while (*setting) {
		size_t n = strcspn(setting, ",");
		const char *colon = memchr(setting, ':', n);
		const char *word = colon ? colon + 1 : setting;
		size_t room_n = colon ? (size_t)(colon - setting) : 0;
		int level = level_of(word, (size_t)(setting + n - word));

		if (level < 0) {
			if (n && !atomic_exchange(&told_bad_setting, true))
				dn_warn("DARKNET_LOG: \"%.*s\": wanted ROOM:LEVEL with a level of error, warn, info, debug",
					(int)(n < 80 ? n : 80), setting);
		} else if (!colon || (room_n == 1 && *setting == '*')) {
			all = level;
		} else if (room_n == strlen(room) && !strncmp(setting, room, room_n)) {
			own = level;
		}
		setting += n;
		if (*setting == ',')
			setting++;
	}
	return own >= 0 ? own : all;
}

bool dn_log_on(const char *room, enum dn_level level)
{
	const char *setting = getenv("DARKNET_LOG");

	return (int)level <= (setting ? setting_level(setting, room) : DN_LOG_WARN);
}

void dn_log(const char *room, enum dn_level level, const char *fmt, ...)
{
	char head[80];
	va_list ap;

	if (!dn_log_on(room, level))
		return;
	snprintf(head, sizeof(head), "%.60s: %s: ", room, level_names[level]);
	va_start(ap, fmt);
	emit_args(head, fmt, ap);
	va_end(ap);
}

void dn_warn(const char *fmt, ...)
{
	va_list ap;

	if (atomic_load(&quiet_warnings))
		return;
	va_start(ap, fmt);
	emit_args("warning: ", fmt, ap);
	va_end(ap);
}

void dn_warn_own(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	emit_args("warning: ", fmt, ap);
	va_end(ap);
}

void dn_log_quiet(bool quiet)
{
	atomic_store(&quiet_warnings, quiet);
}

void dn_log_sink(void (*sink)(void *arg, const char *line), void *arg)
{
	pthread_mutex_lock(&sink_lock);
	line_sink = sink;
	line_sink_arg = arg;
	pthread_mutex_unlock(&sink_lock);
}
