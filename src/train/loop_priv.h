/* What loop.c (one update), resume.c (where a checkpoint stopped) and run.c (many updates, with files) share. */
#ifndef DN_TRAIN_LOOP_PRIV_H
#define DN_TRAIN_LOOP_PRIV_H
#include "io/ckpt.h"
#include "train/lock_priv.h"
#include "train/log_priv.h"
#include "train/loop.h"

#define LOOP_PATH_MAX 4096

struct dn_loop {
	struct dn_net *net;
	struct dn_dataset *train, *valid; /* borrowed */
	struct dn_group g;
	struct dn_loop_config c; /* its texts are ours */
	char *backup, *base, *data_path, *log_path, *resume, *plugin;
	char *ckpt_dir;
	struct run_lock lock;	  /* rank 0's */
	uint64_t run;		  /* id in checkpoints and log; a resumed run goes on with its own */
	struct dn_loader *loader; /* made by the first step */
	struct dn_resize resize;  /* of the images; every 0: never */
	int64_t w, h, inputs;	  /* the cfg's size, which evaluations have */
	struct log log;
	uint64_t seen;
	double avg;
	int64_t n_steps;			  /* updates made by this loop */
	double flops, busy_seconds, load_seconds; /* of all of them */
	uint64_t allocs;			  /* inside updates after the first */
	double *sums; /* loss, time to save, rank r's first bad microbatch; with guards more (loop.c) */
	double scale; /* of the loss, 0 = none */
	int64_t good; /* steps since it changed */
	double norm;  /* of the step under way; likewise: */
	bool skipped;
	bool has_ema;		 /* the mean of values is one */
	struct loop_fault {	 /* a gradient that is not finite */
		int rank, block; /* rank -1 = none */
		bool before;	 /* this rank's own, before reduction */
	} fault;
	float *rolling; /* nan=skip: rolling statistics as they were before the step */
	int64_t last_save_ns;
	int64_t saved_step; /* of the last checkpoint of this run, 0 = none */
	bool save_due;	    /* by time; agreed with the step's sum */
	double best;	    /* score of evaluations */
	bool has_best;
};

/** loop_rests - what follows BASE in the names of a run's weights files, beside those of epochs; ends at NULL */
extern const char *const loop_rests[];
/** loop_update() - one update; a loss that is not finite is no error here: *bad_rank >= 0, and nothing was changed but
 * rolling statistics */
int loop_update(struct dn_loop *l, struct dn_loop_step *out, int *bad_rank);
/** loop_bad() - collective: the error of a step whose loss is not finite, with rank and block */
int loop_bad(struct dn_loop *l, const struct dn_loop_step *s, int bad_rank);
/** loop_check_sizes() - every size is tried before the first step: the target's length must not depend on it */
int loop_check_sizes(struct dn_loop *l);
/** loop_base_size() - the net at the cfg's size until the next update */
int loop_base_size(struct dn_loop *l);
bool loop_saves(const struct dn_loop *l);
/** loop_sweep() - removes what killed runs of this BASE were writing; what cannot be removed is warned of */
void loop_sweep(const struct dn_loop *l);
#endif
