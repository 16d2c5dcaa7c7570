/* Windows: memory of each rank that the other ranks of its host read where it lies.
 *
 * Every rank has one file without a name in /dev/shm, with its lanes and the regions that are shared. All of them are mapped side
 * by side, equally far apart, so that a place of one rank's memory is found in another's by adding; a rank can write its own only.
 * Room is looked for and taken before anything is mapped: a page that is missing later would end us with SIGBUS. Nothing is left
 * behind whenever a rank ends.
 */
#ifndef FSDP_WINDOW_H
#define FSDP_WINDOW_H
#include <stdatomic.h>
#include "plugin/plugin.h"

struct fsdp_control;

#define FSDP_WINDOW_DIR "/dev/shm"
#define FSDP_LANES 64 /* kinds of collectives, each with an order of its own */

/* Where a rank stands in the collectives of one kind. */
struct fsdp_window_lane {
	_Alignas(128) _Atomic uint64_t begun; /* operations that it has begun; what it has in the last one stands below, */
	_Atomic uint64_t read;		      /* and those in which it has read what it wants of the others */
	/* written before begun, and valid until all members have read */
	_Atomic uint64_t kind;
	_Atomic uint64_t from;	/* byte of its memory */
	_Atomic uint64_t bytes; /* of a part */
};

struct fsdp_windows_ask {
	const char *dir;	       /* a file system in memory; NULL: FSDP_WINDOW_DIR */
	int ranks_on_host;	       /* must be all */
	size_t region[DN_MEM_PLANNED]; /* bytes that are shared, equal on all ranks; 0 = the region is not */
};

struct fsdp_windows {
	int world, rank;
	size_t bytes; /* of one rank: rank r's begin at base + r * bytes */
	char *base;
	size_t at[DN_MEM_PLANNED], region[DN_MEM_PLANNED];
};

/** fsdp_windows_open() - collective over @c's ranks; @rank's own regions are zeros. Fails on all ranks alike, and then nothing is
 * left: DN_EPEER_LATE or DN_EPEER_LOST, or c->agreed, the reason why there can be none */
int fsdp_windows_open(struct fsdp_windows **out, struct fsdp_control *c, const struct fsdp_windows_ask *ask);
void fsdp_windows_close(struct fsdp_windows *w); /* NULL is legal; waits for nobody */

/** fsdp_windows_region() - this rank's own, or NULL with a message when @bytes of it are not shared; @w may be NULL */
void *fsdp_windows_region(const struct fsdp_windows *w, enum dn_region r, size_t bytes);
struct fsdp_window_lane *fsdp_windows_lane(const struct fsdp_windows *w, int rank, int lane);
/** fsdp_windows_holds() - do @bytes at @p lie in this rank's memory? */
bool fsdp_windows_holds(const struct fsdp_windows *w, const void *p, size_t bytes);
#endif
