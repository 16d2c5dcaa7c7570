/* Writing JSON: texts and numbers in the forms that our outputs use. */
#ifndef DN_IO_JSON_H
#define DN_IO_JSON_H
#include <stdint.h>
#include "base/text.h"
#ifdef __cplusplus
extern "C" {
#endif

/** dn_json_text() - append @s in quotes; bytes that are not UTF-8 become U+FFFD */
DN_EXPORT int dn_json_text(struct dn_buf *b, const char *s);
/** dn_json_u64() - a number, or from 2^53 on (where readers that know doubles only lose digits) a decimal text */
DN_EXPORT int dn_json_u64(struct dn_buf *b, uint64_t x);
/** dn_json_number() - the shortest of 9 and 17 digits that is @x again; null when it is not finite */
DN_EXPORT int dn_json_number(struct dn_buf *b, double x);

#ifdef __cplusplus
}
#endif
#endif
