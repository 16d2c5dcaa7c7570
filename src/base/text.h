/* Texts: strict numbers, a growing buffer, a list of strings. */
#ifndef DN_BASE_TEXT_H
#define DN_BASE_TEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

enum dn_number {
	DN_NUM_WHOLE,  /* the whole text is the number */
	DN_NUM_PREFIX, /* a number, followed by other text */
	DN_NUM_NONE,   /* no digits where a number is due */
	DN_NUM_RANGE,  /* does not fit int64, or is not finite */
};

/* Decimal only, leading and trailing blanks ignored, optional sign. "1e3" is a whole float and, as an
 * integer, the prefix 1; "inf" and "nan" are DN_NUM_RANGE; "0x10" is the prefix 0. */
DN_EXPORT enum dn_number dn_parse_int(const char *s, int64_t *out);
DN_EXPORT enum dn_number dn_parse_float(const char *s, double *out);
/** dn_parse_bytes() - "16M", "64K", "2G", "123" (powers of 1024); DN_NUM_WHOLE or an error kind */
DN_EXPORT enum dn_number dn_parse_bytes(const char *s, int64_t *out);

struct dn_buf { /* zero-initialise; text is always terminated once non-NULL */
	char *s;
	size_t n; /* length without the terminator */
	size_t cap;
};

DN_EXPORT int dn_buf_add(struct dn_buf *b, const char *s, size_t n);
DN_EXPORT int dn_buf_printf(struct dn_buf *b, const char *fmt, ...) DN_PRINTF(2, 3);
DN_EXPORT void dn_buf_fini(struct dn_buf *b);

/** dn_rank_path() - @path with @rank in place of each %r, NULL = no memory; *@mine: does this rank write it? Without %r, rank 0 */
DN_EXPORT char *dn_rank_path(const char *path, int rank, bool *mine);

DN_EXPORT bool dn_starts(const char *s, const char *prefix);
DN_EXPORT bool dn_ends(const char *s, const char *suffix);
/** dn_word_index() - which of the words of @list, "sgd, adam, adamw", is @word; -1: none */
DN_EXPORT int dn_word_index(const char *list, const char *word);
/** dn_base_name() - after the last '/', cut at the first '.'; "" never: falls back to "net". Into @out. */
DN_EXPORT void dn_base_name(const char *path, char *out, size_t cap);
/** dn_hash() - xxh64, seed 0 */
DN_EXPORT uint64_t dn_hash(const void *p, size_t n);
/** dn_human_bytes() - "1.23 MiB" into @out */
DN_EXPORT void dn_human_bytes(double bytes, char *out, size_t cap);

#ifdef __cplusplus
}
#endif
#endif
