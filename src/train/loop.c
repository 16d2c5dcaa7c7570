/* The training loop: set-up, and one update. */
#include "train/loop.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "io/weights.h"
#include "train/loop_priv.h"
#include "train/ring_priv.h"

/* Places in the step's one sum; from SUM_BAD on one for every rank. Where gradients are looked at, behind them the words of the
 * sum of powers, and for every rank its largest element, its first bad block + 1 in a microbatch, and in the sum. All of it adds up
 * without rounding. */
enum { SUM_LOSS, SUM_SAVE, SUM_BAD };

static double *sum_words(const struct dn_loop *l)
{
	return l->sums + SUM_BAD + l->g.world;
}

static int n_sums(const struct dn_loop *l)
{
	return SUM_BAD + l->g.world + (l->net->opt.looks ? DN_EXACT_WORDS + 3 * l->g.world : 0);
}

bool loop_saves(const struct dn_loop *l)
{
	return l->c.save_every > 0 || l->c.save_every_seconds > 0;
}

/* --- set-up --- */

/* The ring goes when no pass reads from it any more. */
static void stop_loader(struct dn_loop *l)
{
	if (l->loader)
		dn_net_drain(l->net);
	dn_loader_destroy(l->loader);
	l->loader = NULL;
}

void dn_loop_destroy(struct dn_loop *l)
{
	if (!l)
		return;
	stop_loader(l);
	(void)log_close(&l->log, 0); /* a run that came to its end has closed it and looked at the result */
	lock_drop(&l->lock);
	dn_free(l->sums);
	dn_free(l->rolling);
	dn_free(l->backup);
	dn_free(l->base);
	dn_free(l->data_path);
	dn_free(l->log_path);
	dn_free(l->resume);
	dn_free(l->plugin);
	dn_free(l->ckpt_dir);
	dn_free(l);
}

static int own_text(char **to, const char *from)
{
	if (!from)
		return 0;
	*to = dn_strdup(from);
	return *to ? 0 : -ENOMEM;
}

static int own_texts(struct dn_loop *l, const struct dn_loop_config *c)
{
	struct dn_buf dir = { 0 };
	int err;

	err = own_text(&l->backup, c->backup);
	if (!err)
		err = own_text(&l->base, c->base);
	if (!err)
		err = own_text(&l->data_path, c->data_path);
	if (!err && c->log_path) {
		bool mine;

		l->log_path = dn_rank_path(c->log_path, l->g.rank, &mine);
		err = l->log_path ? 0 : -ENOMEM;
		if (!err && !mine) {
			dn_free(l->log_path);
			l->log_path = NULL;
		}
	}
	if (!err)
		err = own_text(&l->resume, c->resume);
	if (!err)
		err = own_text(&l->plugin, c->plugin);
	if (!err)
		err = dn_buf_printf(&dir, "%s/%s.ckpt", c->backup, c->base);
	if (err) {
		dn_buf_fini(&dir);
		return err;
	}
	l->ckpt_dir = dir.s;
	l->c.backup = l->backup;
	l->c.base = l->base;
	l->c.data_path = l->data_path;
	l->c.log_path = l->log_path;
	l->c.resume = l->resume;
	l->c.plugin = l->plugin;
	return 0;
}

static int check_config(const struct dn_loop *l)
{
	const struct dn_net *net = l->net;

	if (!net->opt.train)
		return dn_fail(-EINVAL, "training: the net was built for inference");
	if (l->train->n < 1)
		return dn_fail(-EINVAL, "%s: has no samples to train on", l->train->path);
	if (strlen(l->backup) + strlen(l->base) + 64 > LOOP_PATH_MAX)
		return dn_fail(-ENAMETOOLONG, "%s: the backup folder's path is too long", l->backup);
	if (l->c.valid_every > 0 && !l->valid)
		return dn_fail(-EINVAL, "-valid: %s has no valid= data", l->data_path ? l->data_path : "the data file");
	if (l->c.valid_every > 0 && !l->valid->has_truth)
		return dn_fail(-EINVAL, "-valid: %s has no truth to compare with", l->valid->path);
	return 0;
}

/* A run that cannot write its first files should not compute until then. What a rank needs is compared with its own
 * file system; rank 0 counts everybody's, as the folder is usually one for all. */
static int check_space(struct dn_loop *l)
{
	int64_t mine = 0, all = 0, need, weights = dn_weights_bytes(l->net, -1);
	uint64_t space;
	int err;

	if (loop_saves(l)) {
		err = dn_ckpt_bytes(l->net, &l->g, &mine, &all);
		if (err)
			return err;
		/* meta.json: about 200 bytes a tensor and its cfg */
		all += 400 * (int64_t)l->net->n_params * l->g.world + 2 * (int64_t)l->net->cfg->file->text_bytes;
	}
	need = l->c.unsaved ? 0 : l->g.rank == 0 ? all + weights : mine;
	if (need == 0)
		return 0;
	err = dn_free_space(l->backup, &space);
	if (err)
		return err;
	if ((uint64_t)need > space)
		return dn_fail(-ENOSPC, "%s: has %" PRIu64 " bytes free, the first %sweights file take%s %" PRId64, l->backup,
			       space, loop_saves(l) ? "checkpoint and " : "", loop_saves(l) ? "" : "s", need);
	return 0;
}

/* The longest name that this run gives a file, with the ending that it has while it is written. */
static int check_names(const struct dn_loop *l)
{
	long most = pathconf(l->backup, _PC_NAME_MAX);
	int64_t max = l->net->hyper.max_batches;
	double epochs = max ? (double)max * (double)l->net->batch / (double)l->train->n : 1e19;
	char path[LOOP_PATH_MAX], rest[64], end[32];
	struct stat st;
	int n;

	n = snprintf(rest, sizeof(rest), "_%.0f.weights", floor(epochs));
	if (n < (int)strlen("_final.weights"))
		n = snprintf(rest, sizeof(rest), "_final.weights");
	n += snprintf(end, sizeof(end), ".tmp.%ld", (long)getpid()) + (int)strlen(l->base);
	if (most > 0 && n > most)
		return dn_fail(-ENAMETOOLONG,
			       "%s/%s%s: while it is written (%s) its name has %d bytes, the file system takes %ld: a cfg's name "
			       "before the first dot must be shorter",
			       l->backup, l->base, rest, end, n, most);
	for (int i = 0; loop_rests[i]; i++) {
		snprintf(path, sizeof(path), "%s/%s%s", l->backup, l->base, loop_rests[i]);
		if (!stat(path, &st) && !S_ISREG(st.st_mode))
			return dn_fail(-EEXIST, "%s: is no file, and this run would write one there", path);
	}
	if (!loop_saves(l) || (stat(l->ckpt_dir, &st) && errno == ENOENT))
		return 0;
	return dn_make_dirs(l->ckpt_dir); /* there already: can it be written to? */
}

/* Rank 0 draws, all get it: as two halves, which doubles hold exactly. */
static int draw_run(struct dn_loop *l)
{
	uint64_t id = l->g.rank == 0 ? dn_ckpt_new_run(l->ckpt_dir) : 0;
	double half[2] = { (double)(id >> 32), (double)(id & 0xffffffffu) };
	int err = dn_group_sum(&l->g, half, 2);

	l->run = (uint64_t)half[0] << 32 | (uint64_t)half[1];
	return err;
}

static const char *whose(const struct dn_loop *l, const struct dn_ckpt_folder *f)
{
	if (f->n_unnamed == f->n_others)
		return l->resume ? "from before runs had ids, maybe its own" : "from before runs had ids";
	return f->several || f->n_unnamed ? "of other runs" : "of another run";
}

/* Checkpoints that this run has not made, and will not touch. Rank 0. */
static void tell_folder(const struct dn_loop *l)
{
	struct dn_ckpt_folder f;
	char steps[64], more[LOOP_PATH_MAX + 100] = "";

	dn_ckpt_look(l->ckpt_dir, l->run, &f);
	snprintf(steps, sizeof(steps), f.n_others > 1 ? "steps %" PRId64 " to %" PRId64 : "step %" PRId64, f.others_first,
		 f.others_last);
	if (!l->resume) /* the step: the folder alone stands for the run that begins now, once that has saved */
		snprintf(more, sizeof(more), "; -resume %s/%" PRId64 " would go on from the last of the newest run", l->ckpt_dir,
			 f.newest);
	if (f.n_others)
		dn_warn("%s: holds %d finished checkpoint%s %s (%s); this run %s never removes them, and renames one to "
			"STEP.RUN when it saves the same step%s",
			l->ckpt_dir, f.n_others, f.n_others > 1 ? "s" : "", whose(l, &f), steps,
			l->resume ? "goes on beside them," : "starts anew beside them,", more);
	if (f.last > dn_loop_batch_number(l))
		dn_warn("%s: holds later checkpoints of this run (up to step %" PRId64
			"): until this run is past them, -resume %s "
			"takes the last of them",
			l->ckpt_dir, f.last, l->ckpt_dir);
}

/* Nothing tells two nets' checkpoints in one folder apart but this: whoever starts anew chooses other files. */
static int refuse_another_net(const struct dn_loop *l)
{
	int err = dn_ckpt_refuse(l->ckpt_dir, l->net);

	if (!err || err == -ENOMEM)
		return err;
	return dn_fail(err,
		       "%s; a new run beside them needs files of its own: give it another -backup than %s, rename its cfg, "
		       "whose name is that of the files, or move %s away (neither -clear nor -force starts over it)",
		       dn_message(), l->backup, l->ckpt_dir);
}

static int prepare_files(struct dn_loop *l)
{
	bool first = l->g.rank == 0, writes = first || loop_saves(l);
	int err;

	err = dn_group_agree(&l->g, writes ? dn_make_dirs(l->backup) : 0, "backup folder");
	if (err)
		return err;
	err = first ? check_names(l) : 0;
	if (!err && first)
		err = lock_take(&l->lock, l->backup, l->base, LOCK_BY_KERNEL);
	if (!err && first && !l->resume) /* a resumed run is compared with the checkpoint that it asks for */
		err = refuse_another_net(l);
	err = dn_group_agree(&l->g, err, "backup folder");
	if (!err)
		err = draw_run(l);
	if (!err && l->resume)
		err = dn_loop_resume(l, l->resume);
	if (err)
		return err;
	if (first) {
		loop_sweep(l);
		tell_folder(l);
	}
	err = dn_group_agree(&l->g, check_space(l), "backup folder");
	if (err)
		return err;
	if (l->log_path) {
		err = log_open(&l->log, l->log_path, l->resume ? l->run : 0);
		if (!err)
			err = log_start(&l->log, l->net, &l->g, &l->c, l->run, dn_loop_batch_number(l));
	}
	return dn_group_agree(&l->g, err, "log");
}

static int make_guards(struct dn_loop *l)
{
	const struct dn_net *net = l->net;

	if (net->opt.looks != dn_guards_look(&l->c.guards))
		return dn_fail(-EINVAL, "training: the net was built %s a look at gradients, the guards are others",
			       net->opt.looks ? "with" : "without");
	if (net->opt.ema != (l->c.guards.ema > 0))
		return dn_fail(-EINVAL, "training: the net was built %s a mean of its values, the guards are others",
			       net->opt.ema ? "with" : "without");
	if (net->opt.looks && net->opt.update_early)
		return dn_fail(-EINVAL, "training: the net was built to update before all gradients are seen");
	l->scale = l->c.guards.loss_scale;
	l->fault.rank = -1;
	if (l->c.guards.nan != DN_NAN_SKIP)
		return 0;
	if (net->n_carries)
		return dn_fail(-ENOTSUP, "nan=skip: %s has layers that remember earlier images, which cannot forget a bad step",
			       net->cfg->file->path);
	l->rolling = dn_calloc((size_t)net->n_buffers, sizeof(*l->rolling));
	return l->rolling ? 0 : -ENOMEM;
}

/* Collective. A sum of few numbers takes less room than one of many: the room for most is taken before the first step. */
static int widest_sum(struct dn_loop *l)
{
	for (int i = 0; i < n_sums(l); i++)
		l->sums[i] = 1;
	return l->net->opt.looks ? dn_group_sum(&l->g, l->sums, n_sums(l)) : 0;
}

int dn_loop_create(struct dn_loop **out, struct dn_net *net, struct dn_dataset *train, struct dn_dataset *valid,
		   const struct dn_group *g, const struct dn_loop_config *c)
{
	struct dn_loop *l = dn_zalloc(sizeof(*l));
	int err;

	err = dn_group_agree(g, l ? 0 : -ENOMEM, "training");
	if (err) {
		dn_free(l);
		return err;
	}
	l->net = net;
	l->train = train;
	l->valid = valid;
	l->g = *g;
	l->c = *c;
	if (c->unsaved) {
		l->c.save_every = 0;
		l->c.save_every_seconds = 0;
	}
	l->w = net->w;
	l->h = net->h;
	l->inputs = net->inputs;
	(void)dn_loop_sizes(net, c->seed, &l->resize);
	l->last_save_ns = dn_now_ns();
	err = own_texts(l, c);
	if (!err)
		err = check_config(l);
	if (!err)
		err = loop_check_sizes(l);
	if (!err) {
		l->sums = dn_calloc((size_t)n_sums(l), sizeof(*l->sums));
		err = l->sums ? make_guards(l) : -ENOMEM;
	}
	err = dn_group_agree(g, err, "training");
	if (!err)
		err = widest_sum(l);
	if (!err)
		err = prepare_files(l);
	if (err) {
		dn_loop_destroy(l);
		return err;
	}
	*out = l;
	return 0;
}

void dn_loop_set_seen(struct dn_loop *l, uint64_t seen)
{
	stop_loader(l);
	l->seen = seen;
}

int64_t dn_loop_batch_number(const struct dn_loop *l)
{
	return (int64_t)(l->seen / (uint64_t)l->net->batch);
}

/* --- one update --- */

static int start_loader(struct dn_loop *l, int64_t update)
{
	const struct dn_net *net = l->net;
	struct dn_loader_config c = {
		.data = l->train,
		.order = { l->train->n, l->c.shuffle, l->c.seed },
		.batch = net->batch,
		.subdivisions = net->subdivisions,
		.rank = l->g.rank,
		.world = l->g.world,
		.inputs = l->inputs,
		.truths = net->truths,
		.resize = l->resize,
		.threads = l->c.loader_threads > 0 ? l->c.loader_threads : 1,
		.first_update = update,
		.region_activations = true,
		.memory = train_ring_memory(net->dev),
	};

	return dn_loader_create(&l->loader, &c);
}

static struct dn_pass pass_of(const struct dn_loop *l, int64_t update, int64_t m, const float *x, const float *t)
{
	const struct dn_net *net = l->net;

	return (struct dn_pass){
		.phase = DN_TRAIN,
		.input = x,
		.truth = t,
		.first_image = (uint64_t)((update - 1) * net->batch + m * net->microbatch + l->g.rank * net->local_batch),
		.micro = m,
	};
}

static int forward_microbatch(struct dn_loop *l, int64_t update, int64_t m, int64_t *waited_ns, struct dn_pass *pass)
{
	struct dn_net *net = l->net;
	const float *x, *t;
	const int64_t *cls;
	int err;

	err = dn_net_input_wait(net); /* the loader fills the last one anew */
	if (!err)
		err = dn_loader_next(l->loader, &x, &t, &cls, waited_ns);
	if (!err && l->resize.every) {
		int64_t w, h;

		dn_loader_size(l->loader, &w, &h);
		err = dn_net_resize(net, w, h);
	}
	if (err)
		return err;
	*pass = pass_of(l, update, m, x, t);
	err = dn_net_forward(net, pass);
	return err ? err : net->store.ops->stats(net->store.self, net);
}

/* Losses are read once an update, when all of it is queued. A loss that is not finite: 2 * (m + 1) for nan, + 1 for inf, of the
 * first such microbatch. */
static int read_losses(struct dn_loop *l)
{
	double *bad = &l->sums[SUM_BAD + l->g.rank];

	for (int64_t m = 0; m < l->net->subdivisions; m++) {
		const struct dn_pass pass = { .micro = m };
		double loss;
		int err = dn_net_loss(l->net, &pass, &loss);

		if (err)
			return err;
		l->sums[SUM_LOSS] += loss;
		if (*bad == 0 && !isfinite(loss))
			*bad = 2.0 * (double)(m + 1) + (isnan(loss) ? 0 : 1);
	}
	return 0;
}

static bool time_to_save(const struct dn_loop *l)
{
	return l->c.save_every_seconds > 0 && (double)(dn_now_ns() - l->last_save_ns) * 1e-9 >= l->c.save_every_seconds;
}

/* Loss and faults of all ranks; a loss that is not finite travels as its code, so that the sum tells who had it. */
static int sum_step(struct dn_loop *l, double *loss, int *bad_rank)
{
	int err;

	if (l->sums[SUM_BAD + l->g.rank] != 0)
		l->sums[SUM_LOSS] = 0;
	l->sums[SUM_SAVE] = l->g.rank == 0 && time_to_save(l);
	err = dn_group_sum(&l->g, l->sums, n_sums(l));
	if (err)
		return err;
	l->save_due = l->sums[SUM_SAVE] > 0;
	*loss = l->sums[SUM_LOSS] / (double)l->net->batch;
	*bad_rank = -1;
	for (int r = l->g.world - 1; r >= 0; r--)
		if (l->sums[SUM_BAD + r] != 0)
			*bad_rank = r;
	if (*bad_rank >= 0)
		*loss = fmod(l->sums[SUM_BAD + *bad_rank], 2) == 0 ? NAN : INFINITY;
	return 0;
}

/* --- guards --- */

struct rolling {
	float *at;
	bool restore;
};

static int move_rolling(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	struct rolling *r = arg;

	if (r->restore)
		memcpy(x, r->at, (size_t)n * sizeof(*x)); /* host memory */
	else
		memcpy(r->at, x, (size_t)n * sizeof(*x)); /* host memory */
	r->at += n;
	return 0;
}

/* What a forward that is not finite has taught is taken back with the step. */
static int keep_rolling(struct dn_loop *l, bool restore)
{
	struct rolling r = { l->rolling, restore };
	struct dn_net *net = l->net;
	int err = 0;

	for (int i = 0; i < net->n_params && l->rolling && !err; i++)
		if (net->params[i]->role == DN_BUFFER && !net->params[i]->frozen)
			err = net->store.ops->each(net->store.self, net->params[i], DN_VALUE, restore ? DN_WRITE : DN_READ,
						   move_rolling, &r);
	return err;
}

static int begin_guards(struct dn_loop *l)
{
	int err = keep_rolling(l, false);

	l->net->loss_scale = (float)l->scale;
	l->norm = -1;
	l->skipped = false;
	l->fault.rank = -1;
	return err || !l->net->opt.looks ? err : dn_net_look_begin(l->net);
}

/* The sum of gradients is that of E images, times the scale. */
static double grad_images(const struct dn_loop *l)
{
	return (double)l->net->batch * (l->scale > 0 ? l->scale : 1);
}

/* this rank's part of the sum */
static int look(struct dn_loop *l)
{
	const struct dn_guards *c = &l->c.guards;
	const double limit = c->clip_value * grad_images(l); /* no float is beyond the largest */
	const struct dn_look_desc d = {
		.p = c->clip_norm > 0 ? c->clip_p : 0,
		.limit = limit < (double)FLT_MAX ? (float)limit : 0,
	};
	struct dn_net *net = l->net;
	struct dn_looked seen;
	double *words = sum_words(l), *of_rank = words + DN_EXACT_WORDS + l->g.rank;
	int err = net->store.ops->look(net->store.self, net, &d);

	if (!err)
		err = dn_net_looked(net, &seen);
	if (err)
		return err;
	memcpy(words, seen.word, sizeof(seen.word)); /* host memory */
	of_rank[0] = seen.max;
	of_rank[l->g.world] = seen.before + 1;
	of_rank[2 * l->g.world] = seen.after + 1;
	return 0;
}

/* The first block in backward, of the lowest rank, where some rank had it before reduction; else in the sum. */
static void find_fault(struct dn_loop *l)
{
	const double *codes = sum_words(l) + DN_EXACT_WORDS + l->g.world;
	int most = 0;

	for (int k = 0; k < 2 && !most; k++, codes += l->g.world)
		for (int r = 0; r < l->g.world; r++)
			if ((int)codes[r] > most) {
				most = (int)codes[r];
				l->fault = (struct loop_fault){ .rank = r, .block = most - 1, .before = !k };
			}
}

/* of the mean gradient, the same bits on all ranks, and for any number of them where gradients have the same */
static double norm_of(const struct dn_loop *l)
{
	const double *words = sum_words(l), *max = words + DN_EXACT_WORDS;
	double x = 0;

	if (l->c.guards.clip_p == DN_CLIP_INF)
		for (int r = 0; r < l->g.world; r++)
			x = max[r] > x ? max[r] : x;
	else
		x = dn_exact_value(words, l->c.guards.clip_p);
	return (l->c.guards.clip_p == 2 ? sqrt(x) : x) / grad_images(l);
}

/* What the update multiplies gradients by. */
static double grad_factor(struct dn_loop *l)
{
	double factor = l->scale > 0 ? 1 / l->scale : 1, clip = l->c.guards.clip_norm;

	if (!(clip > 0))
		return factor;
	l->norm = norm_of(l);
	return clip / (l->norm + 1e-6) < 1 ? factor * (clip / (l->norm + 1e-6)) : factor;
}

static const char *fault_text(const struct dn_loop *l, int64_t step, char *out, size_t cap)
{
	const struct loop_fault *f = &l->fault;
	int n = l->g.world > 1 ? snprintf(out, cap, "rank %d: ", f->rank) : 0;

	n += snprintf(out + n, cap - (size_t)n, "step %" PRId64 ": ", step);
	snprintf(out + n, cap - (size_t)n, "block %s: a gradient is not finite %s", l->net->blocks[f->block].name,
		 f->before ? "before reduction" : "after reduction");
	return out;
}

static void next_scale(struct dn_loop *l, bool bad)
{
	double was = l->scale;

	if (!l->c.guards.dynamic)
		return;
	l->good = bad ? 0 : l->good + 1;
	if (bad && was > 1)
		l->scale = was / 2;
	else if (l->good == DN_LOSS_SCALE_GOOD) {
		l->scale = was * 2 <= 0x1p100 ? was * 2 : was;
		l->good = 0;
	}
	if (l->g.rank == 0 && (l->scale < was || l->scale > was))
		dn_log("train", DN_LOG_INFO, "loss scale %g, was %g", l->scale, was);
}

/* a gradient that is too large for the scale is the scale's fault, at 1 the net's */
static bool skips(const struct dn_loop *l, bool bad_loss)
{
	return l->c.guards.nan == DN_NAN_SKIP || (!bad_loss && l->c.guards.dynamic && l->scale > 1);
}

static int skip_update(struct dn_loop *l, int64_t step, int bad_rank)
{
	char text[DN_BLOCK_NAME_MAX + 128];
	int err = dn_net_skip(l->net);

	if (!err)
		err = keep_rolling(l, true);
	l->skipped = true;
	if (l->g.rank == 0 && bad_rank >= 0)
		dn_warn("rank %d: step %" PRId64 ": its loss is not finite", bad_rank, step);
	if (l->g.rank == 0 && l->fault.rank >= 0)
		dn_warn("%s", fault_text(l, step, text, sizeof(text)));
	if (l->g.rank == 0)
		dn_warn("step %" PRId64 ": updates nothing", step);
	return err;
}

/* All ranks know the same of the step. *bad_rank >= 0 afterwards: it ends the run. */
static int end_step(struct dn_loop *l, struct dn_update *u, int *bad_rank)
{
	const bool bad_loss = *bad_rank >= 0;
	bool bad = bad_loss, stops;
	char text[DN_BLOCK_NAME_MAX + 128];
	int err = 0;

	if (l->net->opt.looks) {
		find_fault(l);
		bad |= l->fault.rank >= 0;
	}
	stops = bad && !skips(l, bad_loss) && l->c.guards.nan != DN_NAN_CONTINUE;
	if (stops) {
		*bad_rank = bad_loss ? *bad_rank : l->fault.rank;
		return 0;
	}
	u->factor = grad_factor(l);
	if (bad && skips(l, bad_loss)) {
		l->norm = -1;
		err = skip_update(l, u->step, *bad_rank);
	} else {
		if (bad && l->fault.rank >= 0 && l->g.rank == 0)
			dn_warn("%s", fault_text(l, u->step, text, sizeof(text)));
		err = dn_net_update(l->net, u);
	}
	*bad_rank = -1;
	next_scale(l, bad);
	return err;
}

/* Before the last backward pass, which updates each block once its gradients are there. */
static int tell_update(struct dn_loop *l, struct dn_update *u, double *loss, int *bad_rank)
{
	int err = read_losses(l);

	if (!err)
		err = sum_step(l, loss, bad_rank);
	u->factor = grad_factor(l);
	return err ? err : dn_net_update_ready(l->net, *bad_rank < 0 ? u : NULL);
}

static int update_values(struct dn_loop *l, struct dn_update *u, int64_t *waited_ns, double *loss, int *bad_rank)
{
	struct dn_net *net = l->net;
	const bool early = net->opt.update_early;
	struct dn_pass pass;
	int err = 0;

	*bad_rank = -1;
	memset(l->sums, 0, (size_t)n_sums(l) * sizeof(*l->sums)); /* host memory */
	err = begin_guards(l);
	if (!err)
		err = net->store.ops->begin(net->store.self, net, u->step);
	for (int64_t m = 0; m < net->subdivisions && !err; m++) {
		err = forward_microbatch(l, u->step, m, waited_ns, &pass);
		if (!err && early && m == net->subdivisions - 1)
			err = tell_update(l, u, loss, bad_rank);
		if (!err)
			err = dn_net_backward(net, &pass);
	}
	if (early)
		return err || *bad_rank >= 0 ? err : dn_net_update(net, u);
	if (!err)
		err = read_losses(l);
	if (!err && net->opt.looks)
		err = look(l);
	if (!err)
		err = sum_step(l, loss, bad_rank);
	return err ? err : end_step(l, u, bad_rank);
}

int loop_update(struct dn_loop *l, struct dn_loop_step *out, int *bad_rank)
{
	struct dn_net *net = l->net;
	uint64_t seen = l->seen + (uint64_t)net->batch;
	int64_t update = (int64_t)(seen / (uint64_t)net->batch);
	struct dn_update u = {
		.optimizer = net->hyper.optimizer,
		.step = update,
		.images = net->batch,
		.rate = dn_net_rate(&net->hyper, update, l->c.seed),
		.momentum = net->hyper.momentum,
		.decay = net->hyper.decay,
		.beta1 = net->hyper.beta1,
		.beta2 = net->hyper.beta2,
		.eps = net->hyper.eps,
		.ema = l->has_ema ? l->c.guards.ema : 0, /* the first one is the values */
	};
	int64_t start = dn_now_ns(), waited = 0;
	uint64_t allocs = dn_mem_n_allocs();
	double loss = 0, scale = l->scale;
	int err = 0;

	if (!l->loader)
		err = start_loader(l, update);
	if (!err)
		err = update_values(l, &u, &waited, &loss, bad_rank);
	if (err)
		return err;
	if (l->n_steps > 0)
		l->allocs += dn_mem_n_allocs() - allocs;
	l->has_ema |= !l->skipped;
	if (!l->skipped || isfinite(loss))
		l->avg = l->n_steps > 0 ? .9 * l->avg + .1 * loss : loss;
	l->n_steps++;
	l->seen = seen;
	*out = (struct dn_loop_step){
		.step = update,
		.seen = seen,
		.loss = loss,
		.avg = l->avg,
		.rate = u.rate,
		.seconds = (double)(dn_now_ns() - start - waited) * 1e-9,
		.epoch = (double)seen / (double)l->train->n,
		.load_seconds = (double)waited * 1e-9,
		.grad_norm = l->norm,
		.loss_scale = scale,
		.skipped = l->skipped,
		.flops = 3.0 * (double)net->flops * (double)net->batch,
	};
	l->flops += out->flops;
	l->busy_seconds += out->seconds;
	l->load_seconds += out->load_seconds;
	return 0;
}

/* Collective: the microbatch whose loss is not finite runs again, as it ran, for the sake of its outputs. */
static int bad_block(struct dn_loop *l, int64_t update, int64_t m, int bad_rank, int *block)
{
	struct dn_net *net = l->net;
	const struct dn_backend *be = net->dev->be;
	const size_t x_bytes = sizeof(float) * (size_t)(net->local_batch * net->inputs);
	const size_t t_bytes = sizeof(float) * (size_t)(net->local_batch * net->truths);
	struct dn_pass pass;
	float *x = NULL, *t = NULL;
	double found = 0, loss;
	int err;

	err = be->alloc_host(net->dev, DN_MEM_HOST, x_bytes, (void **)&x);
	if (!err && net->truths)
		err = be->alloc_host(net->dev, DN_MEM_HOST, t_bytes, (void **)&t);
	if (!err)
		err = dn_loader_again(l->loader, update, m, x, t);
	if (!err)
		err = be->stream_sync(net->compute);
	err = dn_group_agree(&l->g, err, "search for what is not finite");
	if (!err) {
		pass = pass_of(l, update, m, x, t);
		pass.phase = DN_REPEAT;
		err = dn_net_forward(net, &pass);
	}
	if (!err)
		err = dn_net_loss(net, &pass, &loss);
	if (!err && l->g.rank == bad_rank) {
		const struct dn_block *b =
			dn_net_nonfinite_block(net); /* NULL: outputs are finite, the sum of their costs is not */

		found = b ? b->index : net->n_blocks - 1;
	}
	if (!err)
		err = dn_group_sum(&l->g, &found, 1);
	*block = (int)found;
	dn_net_drain(net);
	be->free_host(net->dev, x);
	be->free_host(net->dev, t);
	return err;
}

int loop_bad(struct dn_loop *l, const struct dn_loop_step *s, int bad_rank)
{
	const char *kind = isnan(s->loss) ? "nan" : "inf";
	const char *name;
	char text[DN_BLOCK_NAME_MAX + 128];
	int block = 0, err;

	if (l->sums[SUM_BAD + bad_rank] == 0)
		return dn_fail(-EDOM, "%s", fault_text(l, s->step, text, sizeof(text)));
	err = bad_block(l, s->step, (int64_t)(l->sums[SUM_BAD + bad_rank] / 2) - 1, bad_rank, &block);

	if (err)
		return err;
	name = l->net->blocks[block].name;
	if (l->g.world > 1)
		return dn_fail(-EDOM, "rank %d: step %" PRId64 ": block %s: loss is %s", bad_rank, s->step, name, kind);
	return dn_fail(-EDOM, "step %" PRId64 ": block %s: loss is %s", s->step, name, kind);
}

int dn_loop_step(struct dn_loop *l, struct dn_loop_step *out)
{
	struct dn_loop_step s;
	int bad_rank, err;

	err = loop_update(l, &s, &bad_rank);
	if (err)
		return err;
	if (bad_rank >= 0)
		return loop_bad(l, &s, bad_rank);
	*out = s;
	return 0;
}
