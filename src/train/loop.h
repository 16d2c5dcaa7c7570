/* The training loop: steps, schedule of saves and evaluations, the log. Prints nothing itself: events go to a
 * callback (cli) and to the JSON log.
 */
#ifndef DN_TRAIN_LOOP_H
#define DN_TRAIN_LOOP_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "base/group.h"
#include "base/option.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "graph/net.h"
#include "train/guard.h"
#include "train/task.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_loop_step { /* one update, same on all ranks */
	int64_t step; /* batch number b, from 1 */
	uint64_t seen;
	double loss; /* per image; may be not finite (the loop then ends with an error) */
	double avg;  /* .9 avg + .1 loss */
	double rate;
	double seconds;	     /* without load_seconds, as Darknet counts it */
	double epoch;	     /* seen / N */
	double load_seconds; /* waiting for data */
	double grad_norm;    /* of the mean gradient, before clip_norm; negative: not taken */
	double loss_scale;   /* of this step, 0 = none */
	bool skipped;	     /* updated nothing */
	double flops;	     /* three times those of the forward pass */
};

struct dn_loop_events { /* called on every rank; NULL = not interested */
	int (*step)(void *arg, const struct dn_loop_step *s);
	int (*saved)(void *arg, const char *path, int64_t bytes, double seconds);
	int (*valid)(void *arg, const struct dn_loop_step *s, const struct dn_result *r);
	void *arg;
};

struct dn_loop_config {
	const char *backup;	   /* folder of weights files and BASE.ckpt */
	const char *base;	   /* BASE */
	const char *data_path;	   /* .data file, for messages */
	const char *log_path;	   /* -log, NULL = none */
	const char *resume;	   /* a checkpoint, or a folder of them: go on from there, also in the log; NULL = a new run */
	int64_t save_every;	   /* updates between checkpoints, 0 = off */
	double save_every_seconds; /* or minutes, given as 10m; 0 = off */
	int keep;		   /* checkpoints, default 3 */
	int64_t valid_every;	   /* -valid N, 0 = off */
	int top;		   /* for dn_evaluate() */
	uint64_t seed;
	enum dn_shuffle shuffle;
	int loader_threads;
	struct dn_guards guards;		 /* net->opt.looks must be dn_guards_look() of them */
	bool unsaved;				 /* no weights, no checkpoints */
	bool force;				 /* -force: resume over a difference */
	const struct dn_options *options;	 /* printed in the log's start event; may be NULL */
	const struct dn_options *plugin_options; /* as PLUGIN.KEY; may be NULL */
	const char *plugin;			 /* name or NULL */
	struct dn_loop_events events;
};

struct dn_loop;

/**
 * dn_loop_sizes() - the sizes of images that a training net goes through; false: it keeps the cfg's
 * With [net] random=1 and options.multi_scale those of the task; of classifiers Darknet's: every 40 updates a square of 128,
 * 160, ... 448.
 */
DN_EXPORT bool dn_loop_sizes(const struct dn_net *net, uint64_t seed, struct dn_resize *out);
/** dn_loop_plan_sizes() - make the net ready for them; between dn_net_build() and dn_net_alloc() */
DN_EXPORT int dn_loop_plan_sizes(struct dn_net *net);
/** dn_loop_input_bytes() - ring of input batches of a training net, part of the activations region */
DN_EXPORT int dn_loop_input_bytes(const struct dn_net *net, size_t *out);

/**
 * dn_loop_create() - collective: everything before step 1 that can fail
 * The backup folder is made or refused, also while another run has it; another net's checkpoints in BASE.ckpt are refused,
 * another run's warned of; config.resume is loaded; free space is compared with the first checkpoint and weights file, the log
 * opened. @train, @valid (may be NULL) are borrowed.
 */
DN_EXPORT int dn_loop_create(struct dn_loop **out, struct dn_net *net, struct dn_dataset *train, struct dn_dataset *valid,
			     const struct dn_group *g, const struct dn_loop_config *c);
DN_EXPORT void dn_loop_destroy(struct dn_loop *l);
/** dn_loop_seen() - set the images seen so far (of a weights file); batch number = seen / E */
DN_EXPORT void dn_loop_set_seen(struct dn_loop *l, uint64_t seen);
/** dn_loop_resume() - continue from a checkpoint: values, state, counters, the run's id; refuses another net (also one of the
 * same shape that computes something else), data, batch or seed unless force */
DN_EXPORT int dn_loop_resume(struct dn_loop *l, const char *path);
DN_EXPORT int64_t dn_loop_batch_number(const struct dn_loop *l);
/** dn_loop_step() - one update */
DN_EXPORT int dn_loop_step(struct dn_loop *l, struct dn_loop_step *out);
/** dn_loop_run() - until max_batches (0 = for ever), with saves and evaluations, then the final files */
DN_EXPORT int dn_loop_run(struct dn_loop *l);

#ifdef __cplusplus
}
#endif
#endif
