/* The thread's error message and the exit status that belongs to an error number. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 2000 };

static _Thread_local char message[MESSAGE_BYTES + 1];

int dn_fail(int err, const char *fmt, ...)
{
	char text[MESSAGE_BYTES + 1]; /* apart, because the arguments may quote the message that is replaced */
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		snprintf(text, sizeof(text), "error %d", -err);
	va_end(ap);
	memcpy(message, text, strlen(text) + 1);
	errno = saved;
	return err;
}

const char *dn_message(void)
{
	return message;
}

void dn_message_clear(void)
{
	message[0] = '\0';
}

int dn_exit_status(int err)
{
	if (!err)
		return 0;
	return err == DN_EPEER_LOST || err == DN_EPEER_LATE ? 3 : 1;
}
