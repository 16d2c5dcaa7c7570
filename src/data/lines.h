/* Text files with an entry a line. */
#ifndef DN_DATA_LINES_H
#define DN_DATA_LINES_H
#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_lines { /* a text file with an entry a line */
	char *text;
	char **line;	 /* [n], in text: without CR, LF, byte order mark */
	int32_t *number; /* [n]: of the line in the file, from 1 */
	int64_t n;
};

/** dn_lines_read() - @what ("a list of names") is for messages; empty lines count with @keep_blank, but at the end */
DN_EXPORT int dn_lines_read(struct dn_lines *out, const char *path, const char *what, bool keep_blank);
/** dn_lines_read_paths() - the same of files: blanks at the end of a line go, unless there is a file of just that name */
DN_EXPORT int dn_lines_read_paths(struct dn_lines *out, const char *path, const char *what);
DN_EXPORT void dn_lines_fini(struct dn_lines *l); /* legal on a zeroed one */

#ifdef __cplusplus
}
#endif
#endif
