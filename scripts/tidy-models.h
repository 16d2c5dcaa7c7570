/* What clang-tidy cannot see across files: dn_fail() returns the error that it is given, and an agreement never forgets one.
 * Only `make tidy` includes this. */
#include "base/group.h"
#include "base/status.h"

static inline int tidy_agree(const struct dn_group *g, int err, const char *what)
{
	int all = (dn_group_agree)(g, err, what);

	return err ? err : all;
}

#define dn_group_agree(g, err, what) tidy_agree(g, err, what)
#define dn_fail(err, ...) ((void)(dn_fail)(err, __VA_ARGS__), (err))
