/* Many updates: the schedule of weights files, checkpoints and evaluations, the log, and the final files. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/thread.h"
#include "data/datafile.h"
#include "io/weights.h"
#include "train/loop_priv.h"
#include "train/task.h"

#define BACKUP_EVERY 1000 /* updates between BASE.backup, as Darknet's classifier */
#define LAST_EVERY 100	  /* updates between BASE_last.weights */

static double since(int64_t start_ns)
{
	return (double)(dn_now_ns() - start_ns) * 1e-9;
}

static int tell_saved(struct dn_loop *l, const char *path, int64_t bytes, double seconds)
{
	const struct dn_loop_events *e = &l->c.events;
	int err = log_save(&l->log, path, bytes, seconds);

	return !err && e->saved ? e->saved(e->arg, path, bytes, seconds) : err;
}

const char *const loop_rests[] = {
	".weights", "_final.weights", "_last.weights", "_best.weights", "_ema.weights", ".backup", NULL
};

/* BACKUP/BASE followed by @rest */
static int save_weights(struct dn_loop *l, const char *rest)
{
	char path[LOOP_PATH_MAX];
	int64_t start = dn_now_ns(), bytes = 0;
	int err;

	if (l->c.unsaved)
		return 0;
	snprintf(path, sizeof(path), "%s/%s%s", l->backup, l->base, rest); /* fits: check_config() has looked */
	err = dn_weights_save(l->net, path, l->seen, -1, &l->g, &bytes);
	return err ? err : tell_saved(l, path, bytes, since(start));
}

static int save_ema(struct dn_loop *l)
{
	char path[LOOP_PATH_MAX];
	int64_t start = dn_now_ns(), bytes = 0;
	int err;

	if (!l->net->opt.ema || !l->has_ema || l->c.unsaved)
		return 0;
	snprintf(path, sizeof(path), "%s/%s_ema.weights", l->backup, l->base);
	err = dn_weights_save_ema(l->net, path, l->seen, &l->g, &bytes);
	return err ? err : tell_saved(l, path, bytes, since(start));
}

static int save_ckpt(struct dn_loop *l)
{
	struct dn_ckpt_state s = {
		.step = dn_loop_batch_number(l),
		.seen = l->seen,
		.seed = l->c.seed,
		.run = l->run,
		.batch = l->net->batch,
		.subdivisions = l->net->subdivisions,
		.data_length = l->train->n,
		.data_hash = l->train->hash,
		.loss_scale = l->c.guards.dynamic ? l->scale : 0,
		.good_steps = l->c.guards.dynamic ? l->good : 0,
	};
	char path[LOOP_PATH_MAX];
	int64_t start = dn_now_ns(), bytes = 0;
	int err;

	snprintf(s.data_list, sizeof(s.data_list), "%s", l->train->path);
	if (l->c.shuffle != DN_SHUFFLE_EPOCH)
		snprintf(s.shuffle, sizeof(s.shuffle), "%s", dn_shuffle_name(l->c.shuffle));
	snprintf(path, sizeof(path), "%s/%" PRId64, l->ckpt_dir, s.step);
	err = dn_ckpt_save(l->net, l->ckpt_dir, &s, l->c.keep, &l->g, &bytes);
	l->last_save_ns = dn_now_ns();
	l->saved_step = s.step;
	return err ? err : tell_saved(l, path, bytes, since(start));
}

/* The best is what the task scores highest; of equals the earlier one stays. */
static int keep_best(struct dn_loop *l, const struct dn_result *r)
{
	if (isnan(r->score) || (l->has_best && r->score <= l->best))
		return 0;
	l->best = r->score;
	l->has_best = true;
	return save_weights(l, "_best.weights");
}

static int validate(struct dn_loop *l, const struct dn_loop_step *s)
{
	const struct dn_loop_events *e = &l->c.events;
	const struct dn_eval_options o = { .top = l->c.top, .threads = l->c.loader_threads };
	struct dn_result r;
	int err;

	err = loop_base_size(l);
	if (err)
		return err;
	err = dn_evaluate(l->net, l->valid, &o, &l->g, &r);
	if (!err && r.nonfinite)
		dn_warn("validation: %lld of %lld images have a NaN or infinite output", (long long)r.nonfinite,
			(long long)r.images);
	if (!err)
		err = log_valid(&l->log, s, &r);
	if (!err && e->valid)
		err = e->valid(e->arg, s, &r);
	return err ? err : keep_best(l, &r);
}

static int after_step(struct dn_loop *l, const struct dn_loop_step *s, uint64_t seen_before)
{
	uint64_t n = (uint64_t)l->train->n, epoch = s->seen / n;
	char rest[64];
	int err = 0;

	if (epoch > seen_before / n) {
		snprintf(rest, sizeof(rest), "_%" PRIu64 ".weights", epoch);
		err = save_weights(l, rest);
	}
	if (!err && s->step % BACKUP_EVERY == 0)
		err = save_weights(l, ".backup");
	if (!err && s->step % LAST_EVERY == 0)
		err = save_weights(l, "_last.weights");
	if (!err && s->step % LAST_EVERY == 0)
		err = save_ema(l);
	if (!err && (l->save_due || (l->c.save_every > 0 && s->step % l->c.save_every == 0)))
		err = save_ckpt(l);
	if (!err && l->c.valid_every > 0 && s->step % l->c.valid_every == 0)
		err = validate(l, s);
	return err;
}

static int run_step(struct dn_loop *l)
{
	const struct dn_loop_events *e = &l->c.events;
	struct dn_store_report report;
	struct dn_loop_step s;
	uint64_t seen_before = l->seen;
	int bad_rank, err;

	err = loop_update(l, &s, &bad_rank);
	if (err)
		return err;
	l->net->store.ops->report(l->net->store.self, &report);
	err = log_step(&l->log, &s, l->plugin ? &report : NULL);
	if (!err && e->step)
		err = e->step(e->arg, &s);
	if (err)
		return err;
	return bad_rank >= 0 ? loop_bad(l, &s, bad_rank) : after_step(l, &s, seen_before);
}

/* --- the end --- */

static int final_files(struct dn_loop *l)
{
	static const char *const rests[] = { ".weights", "_final.weights", "_last.weights" };
	int err = 0;

	for (size_t i = 0; i < sizeof(rests) / sizeof(rests[0]) && !err; i++)
		err = save_weights(l, rests[i]);
	if (!err)
		err = save_ema(l);
	/* a run that keeps checkpoints can be continued from its very end */
	if (!err && loop_saves(l) && l->n_steps > 0 && l->saved_step != dn_loop_batch_number(l))
		err = save_ckpt(l);
	return err;
}

/* @blocks: [n_blocks] behind it */
static void account(const struct dn_loop *l, const struct dn_store_report *of, struct log_rank *r, struct dn_store_block *blocks)
{
	const struct dn_store_report report = *of;

	memset(r, 0, sizeof(*r));
	for (int i = 0; i < DN_MEM_PLANNED; i++) {
		struct dn_mem_stats m;

		dn_mem_stats(i, &m);
		r->planned_bytes[i] = report.planned_bytes[i];
		r->measured_bytes[i] = m.peak_bytes;
	}
	r->gather = report.gather;
	r->reduce = report.reduce;
	r->exposed_ms = report.exposed_ms;
	r->load_seconds = l->load_seconds;
	r->n_blocks = report.n_blocks;
	for (int i = 0; i < DN_TIMES; i++)
		r->total_ms[i] = report.total_ms[i];
	for (int i = 0; i < report.n_blocks; i++)
		blocks[i] = report.blocks[i];
}

/* Collective. */
static int end_log(struct dn_loop *l, double seconds)
{
	struct log_end e = {
		.steps = l->n_steps,
		.seconds = seconds,
		.peak_rss_bytes = dn_peak_rss_bytes(),
		.n_ranks = l->g.world,
		.flops = l->flops,
		.busy_seconds = l->busy_seconds,
	};
	double allocs = (double)l->allocs;
	struct dn_store_report report;
	size_t *sizes, bytes;
	char *all = NULL, *mine;
	int err;

	l->net->store.ops->report(l->net->store.self, &report);
	bytes = sizeof(struct log_rank) + (size_t)report.n_blocks * sizeof(struct dn_store_block);
	sizes = dn_calloc((size_t)l->g.world, sizeof(*sizes));
	mine = dn_zalloc(bytes);
	err = dn_group_agree(&l->g, sizes && mine ? 0 : -ENOMEM, "log");
	if (!err)
		err = dn_group_sum(&l->g, &allocs, 1);
	if (!err) {
		account(l, &report, (struct log_rank *)(void *)mine,
			(struct dn_store_block *)(void *)(mine + sizeof(struct log_rank)));
		err = dn_group_gather(&l->g, mine, bytes, &all, sizes);
	}
	if (!err) {
		e.allocs_after_first_step = (uint64_t)allocs;
		e.ranks = all ? all : mine;
		e.rank_bytes = bytes;
		if (!all) {
			e.rank = l->g.rank;
			e.n_ranks = 1;
		}
		err = log_end(&l->log, l->net, &e);
		err = log_close(&l->log, err);
	}
	dn_free(mine);
	dn_free(all);
	dn_free(sizes);
	return dn_group_agree(&l->g, err, "log");
}

/* --- what is known before the first step --- */

/* Files that the run will write, against the space that is there: an estimate, since some may replace older ones. */
static int tell_space(struct dn_loop *l, int64_t ckpt_bytes)
{
	int64_t max = l->net->hyper.max_batches, done = dn_loop_batch_number(l);
	int64_t weights = dn_weights_bytes(l->net, -1), left = max > done ? max - done : 0;
	double n = (double)l->train->n;
	double n_weights = 3 + l->net->opt.ema + (l->c.valid_every > 0) + (!max || max >= BACKUP_EVERY);
	double n_ckpts = 0, need;
	uint64_t space;
	int err = dn_free_space(l->backup, &space);

	if (l->c.unsaved)
		return err;
	n_weights += floor((double)(done + left) * (double)l->net->batch / n) - floor((double)done * (double)l->net->batch / n);
	if (l->c.save_every > 0)
		n_ckpts = (double)(left / l->c.save_every) + 1;
	if (loop_saves(l) && l->c.keep > 0 && (!max || l->c.save_every == 0 || n_ckpts > l->c.keep + 1))
		n_ckpts = l->c.keep + 1; /* an old one goes when the new one is there */
	need = n_weights * (double)weights + n_ckpts * (double)ckpt_bytes;
	if (!err && need > (double)space)
		dn_warn("%s: has %" PRIu64 " bytes free, this run's %.0f weights files of %" PRId64
			" bytes and %.0f checkpoints of %" PRId64 " take %.0f: the disk may fill up on the way",
			l->backup, space, n_weights, weights, n_ckpts, ckpt_bytes, need);
	return err;
}

/* Collective. */
static int tell_course(struct dn_loop *l)
{
	struct dn_section *s = l->net->cfg->net;
	const struct dn_key *k = dn_section_find(s, "max_batches");
	int64_t max = l->net->hyper.max_batches, done = dn_loop_batch_number(l), mine = 0, ckpt = 0;
	int err = loop_saves(l) ? dn_ckpt_bytes(l->net, &l->g, &mine, &ckpt) : 0;

	if (err)
		return err;
	if (!max)
		dn_warn("%s:%d: [net] %s: trains until it is stopped, and never writes %s_final.weights", s->file->path,
			k ? k->line : s->line, k ? "max_batches=0" : "has no max_batches", l->base);
	else if (done >= max)
		dn_warn("nothing to train: %" PRId64 " batches are done, max_batches=%" PRId64, done, max);
	else if (l->c.valid_every > 0 && done / l->c.valid_every == max / l->c.valid_every)
		dn_warn("-valid %" PRId64 ": no evaluation comes before the end, at max_batches=%" PRId64, l->c.valid_every, max);
	return dn_group_agree(&l->g, l->g.rank == 0 ? tell_space(l, ckpt) : 0, "backup folder");
}

int dn_loop_run(struct dn_loop *l)
{
	int64_t start = dn_now_ns(), max = l->net->hyper.max_batches;
	int err = tell_course(l);

	l->last_save_ns = start;
	while (!err && (max == 0 || dn_loop_batch_number(l) < max))
		err = run_step(l);
	if (!err)
		err = final_files(l);
	return err ? err : end_log(l, since(start));
}
