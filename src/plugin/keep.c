/* In builds for the address sanitizer nothing is unloaded: a leak is then reported with the name of the library that made it,
 * which tests/lsan.supp needs to tell those of MPI's components from ours. Other builds are empty here. */
#include "base/status.h"

#ifdef __SANITIZE_ADDRESS__
extern const int plugin_keep_loaded;
const int plugin_keep_loaded = 1; /* test programs ask the linker for it, and so get the function below */

DN_EXPORT int dlclose(void *handle);

int dlclose(void *handle)
{
	return handle ? 0 : -1;
}
#else
typedef int plugin_keep_is_empty; /* ISO C wants something in a file */
#endif
