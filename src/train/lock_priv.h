/* One run at a time writes BACKUP/BASE.*; see lock.c. */
#ifndef DN_TRAIN_LOCK_PRIV_H
#define DN_TRAIN_LOCK_PRIV_H
#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

struct run_lock { /* zeroed: not held */
	char *path;
	int fd;
};

enum lock_way {
	LOCK_BY_KERNEL,	  /* fcntl; where the file system has no locks, as below */
	LOCK_BY_CONTENTS, /* for tests of what happens there */
};

/** lock_take() - BACKUP/BASE.lock, or -EBUSY with the holder's pid, host and start; the folder is there */
int lock_take(struct run_lock *l, const char *backup, const char *base, enum lock_way way);
/** lock_drop() - give it back and remove it; legal when it is not held */
void lock_drop(struct run_lock *l);
#endif
