/* Files: whole reads with a bound, folders, free space, and writes that appear whole or not at all. */
#ifndef DN_BASE_FILE_H
#define DN_BASE_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

/** dn_file_read() - a regular file of at most @max_bytes into a dn_alloc()ed, terminated text */
DN_EXPORT int dn_file_read(const char *path, size_t max_bytes, char **out, size_t *n);
/** dn_file_size() - of a regular file; a folder, a missing or unreadable file is an error with a message */
DN_EXPORT int dn_file_size(const char *path, int64_t *out);
DN_EXPORT int dn_make_dirs(const char *path); /* mkdir -p; also tries to write there */
/** dn_is_write_test() - a file name as that trial gives it, which a killed process may have left */
DN_EXPORT bool dn_is_write_test(const char *name);
DN_EXPORT int dn_free_space(const char *path, uint64_t *out); /* bytes for us in the file system of path */
DN_EXPORT int dn_remove_tree(const char *path);		      /* missing is fine */

/* A file under a temporary name (PATH.tmp.PID) until commit: flushed to storage, then renamed. */
struct dn_out {
	FILE *f;
	char *path, *tmp;
	int64_t bytes; /* written so far */
	int err;       /* first write error; later writes are skipped */
};
DN_EXPORT int dn_out_open(struct dn_out *o, const char *path);
DN_EXPORT int dn_out_write(struct dn_out *o, const void *p, size_t n);
DN_EXPORT int dn_out_commit(struct dn_out *o); /* error: the file is removed, o is closed */
/** dn_out_tmp_end() - where the ending .tmp.PID of a temporary name begins, NULL when it has none */
DN_EXPORT const char *dn_out_tmp_end(const char *name);
/** dn_out_sweep() - removes a temporary file whose process has ended; *gone: it was one. Who writes holds a lock on it, so that
 * other hosts' are seen where the file system's locks are; a process of this host is looked for besides */
DN_EXPORT int dn_out_sweep(const char *tmp, bool *gone);
DN_EXPORT void dn_out_abort(struct dn_out *o); /* legal on a closed or zeroed o */

#ifdef __cplusplus
}
#endif
#endif
