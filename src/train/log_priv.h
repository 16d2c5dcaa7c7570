/* The JSON log of a training run: one object a line, flushed each line. Rank 0's, or a file a rank. */
#ifndef DN_TRAIN_LOG_PRIV_H
#define DN_TRAIN_LOG_PRIV_H
#include "base/text.h"
#include "train/loop.h"

struct log {
	FILE *f;	    /* NULL = no log on this rank: the other ones have one where its name has %r */
	const char *path;   /* borrowed */
	struct dn_buf line; /* reused: steps after the first allocate nothing */
};

struct log_rank { /* one rank's account of a run, as it is sent to rank 0 */
	uint64_t planned_bytes[DN_MEM_PLANNED];
	uint64_t measured_bytes[DN_MEM_PLANNED];
	struct dn_traffic gather, reduce;
	double exposed_ms;
	double total_ms[DN_TIMES], load_seconds;
	int64_t n_blocks; /* of the dn_store_block behind it */
};

struct log_end {
	int64_t steps;
	double seconds;
	uint64_t allocs_after_first_step;
	uint64_t peak_rss_bytes;
	double flops, busy_seconds; /* of all steps */
	int rank, n_ranks;	    /* those there are: all of rank 0's, its own of another rank's */
	const char *ranks;	    /* [n_ranks] log_rank, and its blocks, of */
	size_t rank_bytes;	    /* each */
};

/** log_open() - @resumed, 0 = a new run: go on behind what a regular file holds of this run; a last line that was cut short goes.
 * Another run's log is begun anew, as by a new run. */
int log_open(struct log *l, const char *path, uint64_t resumed);
/** log_close() - the first error of closing, when @err is 0; legal on a closed one */
int log_close(struct log *l, int err);
/** log_start() - @batches: done before this start */
int log_start(struct log *l, const struct dn_net *net, const struct dn_group *g, const struct dn_loop_config *c, uint64_t run,
	      int64_t batches);
/** log_step() - @report NULL: no plugin, no traffic */
int log_step(struct log *l, const struct dn_loop_step *s, const struct dn_store_report *report);
int log_save(struct log *l, const char *path, int64_t bytes, double seconds);
int log_valid(struct log *l, const struct dn_loop_step *s, const struct dn_result *r);
int log_end(struct log *l, const struct dn_net *net, const struct log_end *e);
#endif
