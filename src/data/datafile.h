/* .data files: where the data are, and what is in them. */
#ifndef DN_DATA_DATAFILE_H
#define DN_DATA_DATAFILE_H
#include <stdbool.h>
#include <stdint.h>
#include "base/keyrule.h"
#include "base/status.h"
#include "data/order.h"
#ifdef __cplusplus
extern "C" {
#endif

enum dn_format { DN_FORMAT_LIST, DN_FORMAT_IDX, DN_FORMAT_CIFAR, DN_FORMAT_NPY };

struct dn_datafile { /* a .data file */
	struct dn_keyfile *file;
	enum dn_format format;
	int64_t classes; /* -1 = not given (Darknet's default of 2 is asked of the data instead) */
	const char *train, *train_truth, *valid, *valid_truth; /* NULL when not given */
	const char *backup;				       /* "/backup/" by default */
	const char *labels, *names, *tree;		       /* NULL when not given */
	int64_t top;
	enum dn_shuffle shuffle;
	bool made; /* by dn_datafile_parse(): there is no file to look into */
};

extern const struct dn_key_rule dn_datafile_keys[];
DN_EXPORT int dn_datafile_read(struct dn_datafile **out, const char *path, bool strict);
/** dn_datafile_parse() - the same of a text; @path only names it in messages */
DN_EXPORT int dn_datafile_parse(struct dn_datafile **out, const char *text, const char *path);
DN_EXPORT void dn_datafile_destroy(struct dn_datafile *d);
/** dn_datafile_fail() - @err, its message led by file and line of @key, which names what is at fault; where the key does not
 * stand, or the message is of the .data file already, as it was. Returns @err, 0 too */
DN_EXPORT int dn_datafile_fail(const struct dn_datafile *d, const char *key, int err);
/** dn_shuffle_name() - as it is written: "1", "replace", "0" */
DN_EXPORT const char *dn_shuffle_name(enum dn_shuffle s);
/** dn_shuffle_parse() - "1", "replace", "0"; @where leads the message */
DN_EXPORT int dn_shuffle_parse(const char *text, const char *where, enum dn_shuffle *out);

#ifdef __cplusplus
}
#endif
#endif
