/* Checkpoints of interval lists, whole or sharded: one format.
 *
 * BACKUP/BASE.ckpt/STEP/rank-R.bin and meta.json, renamed into place last: docs/formats.md. Nothing in loading depends on
 * the saver's world but through its interval lists.
 */
#ifndef DN_IO_CKPT_H
#define DN_IO_CKPT_H
#include <stdbool.h>
#include <stdint.h>
#include "base/group.h"
#include "base/text.h"
#include "graph/net.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_ckpt_state { /* what a run needs besides tensors */
	int64_t step;  /* updates done */
	uint64_t seen; /* images */
	uint64_t seed;
	uint64_t run; /* who wrote it, kept by a resumed run; later ones have larger ids; 0 = none, an older version */
	int64_t batch, subdivisions;
	char data_list[512]; /* path of the training data */
	int64_t data_length;
	uint64_t data_hash;
	double loss_scale;  /* a dynamic one's; 0 = none, and: */
	int64_t good_steps; /* since it changed */
	char shuffle[16];   /* how the data are ordered, where it is not by epoch; "": it is, or an older version did not say */
};

/** dn_ckpt_bytes() - what this rank would write, and (rank-independent) the whole job */
DN_EXPORT int dn_ckpt_bytes(struct dn_net *net, const struct dn_group *g, int64_t *mine, int64_t *all);

/**
 * dn_ckpt_save() - collective: @dir/STEP appears whole or not at all
 * Every rank writes its carries and, of params, buffers and optimizer state, what the store says; it flushes; all agree; then
 * rank 0 renames meta.json into place and drops all but the newest @keep published steps of @s's run (0 = keep all; the one
 * just written stays). Checkpoints of other runs stay: one of the same step gets out of the way as STEP.RUN. A failure on any
 * rank fails on all and leaves earlier checkpoints as they were. Who writes nothing leaves no file. @bytes (may be NULL): of
 * all ranks.
 */
DN_EXPORT int dn_ckpt_save(struct dn_net *net, const char *dir, const struct dn_ckpt_state *s, int keep, const struct dn_group *g,
			   int64_t *bytes);

struct dn_ckpt; /* an opened checkpoint: parsed and checked meta.json */

struct dn_ckpt_file { /* what a layer uses of the file that its cfg names */
	int layer;
	uint64_t hash;
};

/* what meta.json says beside tensors */
struct dn_ckpt_head {
	struct dn_ckpt_state state;
	const char *cfg_text;
	const char *optimizer;
	int world, replicas, shards;
	bool legacy_bn; /* by a flag: not in the cfg's text */
	int n_files;	/* 0 also: an older version */
	const struct dn_ckpt_file *files;
};

/** dn_ckpt_open() - @path is STEP's directory or its parent (then the newest published step, as dn_ckpt_newest()) */
DN_EXPORT int dn_ckpt_open(struct dn_ckpt **out, const char *path);
DN_EXPORT void dn_ckpt_close(struct dn_ckpt *c);
DN_EXPORT const struct dn_ckpt_state *dn_ckpt_state_of(const struct dn_ckpt *c);
DN_EXPORT const char *dn_ckpt_cfg_text(const struct dn_ckpt *c);
DN_EXPORT const char *dn_ckpt_dir(const struct dn_ckpt *c); /* STEP's directory */
DN_EXPORT const char *dn_ckpt_optimizer(const struct dn_ckpt *c);
DN_EXPORT int dn_ckpt_world(const struct dn_ckpt *c);

enum dn_ckpt_kind { DN_CKPT_PARAM, DN_CKPT_BUFFER, DN_CKPT_STATE, DN_CKPT_EMA, DN_CKPT_CARRY, DN_CKPT_KINDS };
DN_EXPORT const char *dn_ckpt_kind_name(enum dn_ckpt_kind k); /* "param", ... as in meta.json */

struct dn_ckpt_interval {
	int64_t start, length; /* elements of the tensor */
	int file;	       /* rank-FILE.bin */
	int64_t offset;	       /* bytes */
	uint64_t xxh64;
	bool checked; /* the checksum has held once: later reads take only what they want */
};

struct dn_ckpt_tensor {
	char *name;
	enum dn_ckpt_kind kind;
	bool frozen; /* a param without optimizer state */
	int n_dims;
	int64_t shape[8];
	int64_t n; /* elements */
	int n_intervals;
	struct dn_ckpt_interval *intervals; /* ascending, without overlap */
};

DN_EXPORT int dn_ckpt_n_tensors(const struct dn_ckpt *c);
DN_EXPORT const struct dn_ckpt_tensor *dn_ckpt_tensor_at(const struct dn_ckpt *c, int i);	/* by name, ascending */
DN_EXPORT const struct dn_ckpt_tensor *dn_ckpt_find(const struct dn_ckpt *c, const char *name); /* NULL when missing */
/** dn_ckpt_cover() - is every element of @t stored? else an error with tensor and range */
DN_EXPORT int dn_ckpt_cover(const struct dn_ckpt *c, const struct dn_ckpt_tensor *t);
/**
 * dn_ckpt_load() - fill values, buffers, optimizer state, means and carries of what this rank's store owns; not collective
 * A mean that is not there begins as the values.
 * Every wanted element must be found exactly once, checksums of the intervals read must hold, shapes must be the net's: else
 * an error naming tensor and range. Works from any world to any world.
 */
DN_EXPORT int dn_ckpt_load(struct dn_ckpt *c, struct dn_net *net);
/** dn_ckpt_fresh_states() - before dn_ckpt_load(): the optimizer's states start at zero, that of another one is no error then */
DN_EXPORT void dn_ckpt_fresh_states(struct dn_ckpt *c);
/** dn_ckpt_has_ema() - is there a mean of the values that were trained? */
DN_EXPORT bool dn_ckpt_has_ema(const struct dn_ckpt *c);
/** dn_ckpt_read_ema() - as dn_ckpt_read() of a param's mean; of what has none (buffers, what was frozen) of itself */
DN_EXPORT int dn_ckpt_read_ema(struct dn_ckpt *c, const char *name, int64_t at, int64_t n, float *out);
/** dn_ckpt_read() - elements [at, at+n) of tensor @name into @out; checks coverage and the touched intervals' checksums */
DN_EXPORT int dn_ckpt_read(struct dn_ckpt *c, const char *name, int64_t at, int64_t n, float *out);
/** dn_ckpt_nonfinite() - of what dn_ckpt_load() and dn_ckpt_read() have read so far, how many are NaN or infinite; over ranks they
 * add up. dn_ckpt_tell(): a warning of @n such values, if there are any */
DN_EXPORT int64_t dn_ckpt_nonfinite(const struct dn_ckpt *c);
DN_EXPORT void dn_ckpt_tell(const struct dn_ckpt *c, int64_t n);
/** dn_ckpt_refuse() - is a folder of checkpoints there that belongs to another net? 0, or an error naming the tensor */
DN_EXPORT int dn_ckpt_refuse(const char *dir, const struct dn_net *net);
/** dn_ckpt_newest() - newest published step of the run of @dir that began last, -1 when there is none */
DN_EXPORT int64_t dn_ckpt_newest(const char *dir);

struct dn_ckpt_folder {	 /* the published steps of a folder, as one run sees them */
	int n, n_others; /* of the run, of other runs */
	int64_t last;	 /* the run's newest step, -1 = none */
	int64_t others_first, others_last;
	int n_unnamed;	     /* of n_others, from before there were ids: of any run, maybe of this one */
	bool several;	     /* the others with an id are of more than one run */
	int64_t newest;	     /* as dn_ckpt_newest(): what the folder stands for */
	uint64_t newest_run; /* the largest id, 0 = none has one */
};
/** dn_ckpt_look() - a folder that is not there holds nothing */
DN_EXPORT void dn_ckpt_look(const char *dir, uint64_t run, struct dn_ckpt_folder *out);
/** dn_ckpt_sweep() - removes STEP.tmp that a killed save left, unless that is all there is of a step; *n grows by their number.
 * Only for whoever holds the folder's run. A folder that is not there is fine */
DN_EXPORT int dn_ckpt_sweep(const char *dir, int *n);
/** dn_ckpt_new_run() - an id for a run that begins: time and chance, larger than all ids in @dir */
DN_EXPORT uint64_t dn_ckpt_new_run(const char *dir);

/**
 * dn_ckpt_differences() - in what @net computes or learns something else than the net that was saved
 * The cfgs are compared as dn_cfg_differences() does it, and what flags change of them. fn as there.
 */
DN_EXPORT int dn_ckpt_differences(const struct dn_ckpt *c, const struct dn_net *net, int (*fn)(void *arg, const char *text),
				  void *arg);

/** dn_ckpt_meta() - append the text of a meta.json; @tensors of any order, intervals ascending */
DN_EXPORT int dn_ckpt_meta(struct dn_buf *out, const struct dn_ckpt_head *h, int n, const struct dn_ckpt_tensor *tensors);

#ifdef __cplusplus
}
#endif
#endif
