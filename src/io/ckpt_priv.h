/* What the files of checkpoints share. */
#ifndef DN_IO_CKPT_PRIV_H
#define DN_IO_CKPT_PRIV_H
#include "io/ckpt.h"

#define CKPT_PATH_MAX 4096
#define CKPT_ALIGN 64	     /* bytes: every interval starts on this boundary of its file */
#define CKPT_PIECE (1 << 20) /* bytes that pass through memory at a time */
#define CKPT_META_MAX (1ull << 30)
#define CKPT_RANKS_MAX 65536
#define CKPT_EMA "ema" /* as the name of a state */

struct dn_ckpt {
	char dir[CKPT_PATH_MAX];
	struct dn_ckpt_head head;
	char *cfg_text, *optimizer; /* what head points at, */
	struct dn_ckpt_file *files; /* and this */
	int n_tensors;
	struct dn_ckpt_tensor *tensors; /* by name, ascending */
	int n_files;			/* rank files seen in intervals */
	int64_t *file_bytes;		/* [n_files], -1 = not asked for */
	int fd, fd_file;		/* the rank file read last, -1 = none */
	char *piece;			/* [CKPT_PIECE] */
	bool fresh_states;		/* of the optimizer: they start at zero, whatever is there */
	int64_t n_nonfinite;		/* values read that are not finite */
};

/* ckpt_meta.c: fills @c (its dir is set) from @text */
int ckpt_meta_parse(struct dn_ckpt *c, const char *text, size_t n);
/* ckpt_dir.c */
int ckpt_path(char out[CKPT_PATH_MAX], const char *fmt, ...) DN_PRINTF(2, 3);
bool ckpt_is_published(const char *dir, const char *name);
/** ckpt_publish() - DIR/STEP.tmp becomes DIR/STEP, in place of an earlier one of @run; one of another run becomes STEP.RUN */
int ckpt_publish(const char *dir, int64_t step, uint64_t run);
/** ckpt_prune() - remove what crashed saves left, and all but the newest @keep steps of @run and @step */
int ckpt_prune(const char *dir, int64_t step, uint64_t run, int keep);
/* ckpt_meta.c */
/** ckpt_meta_run() - the id of the run that wrote a meta.json; 0: none, or it cannot be read */
uint64_t ckpt_meta_run(const char *path);
/* ckpt_differ.c */
/** ckpt_legacy_bn() - does the cfg's [net] ask for it? */
bool ckpt_legacy_bn(const struct dn_cfg *cfg);
#endif
