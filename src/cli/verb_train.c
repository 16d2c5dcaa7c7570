/* Training verbs: "classifier train", "cifar train" and "train", which choose their lines by the net's last layer. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/samples.h"
#include "graph/optimizer.h"

/* --- progress: one line that is rewritten on a terminal, a line every ten seconds elsewhere --- */

struct progress {
	bool terminal;
	bool shown; /* a status line stands on the terminal */
	int64_t start_ns, last_ns;
	int64_t first; /* batch number before the first step of this run */
};

static void progress_clear(struct progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = false;
}

static void progress_show(struct progress *p, const struct dn_loop_step *st, int64_t max_batches, int64_t batch)
{
	int64_t now = dn_now_ns();
	double seconds = (double)(now - p->start_ns) / 1e9;
	double rate = seconds > 0 ? (double)(st->step - p->first) / seconds : 0;
	char left[64] = "";

	if (!p->terminal && now - p->last_ns < (int64_t)10e9)
		return;
	p->last_ns = now;
	if (max_batches > 0 && rate > 0) {
		int64_t s = (int64_t)((double)(max_batches - st->step) / rate + .5);

		s = s > 0 ? s : 0;
		snprintf(left, sizeof(left), ", %lld:%02d:%02d left", (long long)(s / 3600), (int)(s / 60 % 60), (int)(s % 60));
	}
	if (max_batches > 0)
		fprintf(stderr, "progress: step %lld of %lld (%.0f%%), avg loss %.4f, %.1f images/s%s", (long long)st->step,
			(long long)max_batches, 100. * (double)st->step / (double)max_batches, st->avg, rate * (double)batch,
			left);
	else
		fprintf(stderr, "progress: step %lld, avg loss %.4f, %.1f images/s", (long long)st->step, st->avg,
			rate * (double)batch);
	if (!p->terminal)
		fputc('\n', stderr);
	p->shown = p->terminal;
	fflush(stderr);
}

/* --- one training --- */

struct training {
	struct session s;
	const char *data_path, *cfg_path, *weights_path; /* data_path NULL: Darknet's places of CIFAR-10 */
	struct dn_datafile *file;
	struct dn_dataset *data, *valid;
	struct dn_loop *loop;
	struct progress progress;
	const struct dn_net_task *task; /* the net's */
	struct dn_guards guards;
	enum dn_shuffle shuffle;
	const char *backup;
	char base[256];
	uint64_t seen;
};

static bool first_rank(const struct training *t)
{
	return t->s.run.group.rank == 0;
}

static int on_step(void *arg, const struct dn_loop_step *st)
{
	struct training *t = arg;
	FILE *f = t->s.c->out;
	char line[512];

	if (!first_rank(t))
		return 0;
	progress_clear(&t->progress);
	t->task->line(st, line, sizeof(line));
	fprintf(f, "Loaded: %f seconds\n%s\n", st->load_seconds, line);
	fflush(f);
	progress_show(&t->progress, st, t->s.net->hyper.max_batches, t->s.net->batch);
	return 0;
}

static int on_saved(void *arg, const char *path, int64_t bytes, double seconds)
{
	struct training *t = arg;

	if (!first_rank(t))
		return 0;
	progress_clear(&t->progress);
	if (dn_ends(path, ".weights") || dn_ends(path, ".backup"))
		fprintf(stderr, "Saving weights to %s\n", path);
	else
		fprintf(stderr, "Saving checkpoint to %s (%lld bytes, %.2f seconds)\n", path, (long long)bytes, seconds);
	return 0;
}

static int on_valid(void *arg, const struct dn_loop_step *st, const struct dn_result *r)
{
	struct training *t = arg;

	if (!first_rank(t))
		return 0;
	progress_clear(&t->progress);
	fprintf(t->s.c->out, "Validation after %lld: %lld images%s%s, loss %f\n", (long long)st->step, (long long)r->images,
		*r->text ? ", " : "", r->text, r->loss / (double)r->images);
	fflush(t->s.c->out);
	return 0;
}

static bool is_classifier(const struct dn_net_task *task)
{
	return task == dn_net_task_find("classifier");
}

static int read_data_file(struct training *t)
{
	const struct dn_options *f = t->s.c->flags;
	const char *shuffle = dn_options_text(f, "shuffle");
	int err;

	err = t->data_path ? dn_datafile_read(&t->file, t->data_path, dn_options_on(f, "strict")) : samples_cifar(&t->file);
	if (err)
		return err;
	t->shuffle = t->file->shuffle;
	if (shuffle)
		err = dn_shuffle_parse(shuffle, "-shuffle", &t->shuffle);
	t->backup = dn_options_text(f, "backup") ? dn_options_text(f, "backup") : t->file->backup;
	return err;
}

/* A plugin's key that bears the name of a flag is the same setting: the flag wins over it, it wins over the flag's default; then
 * both say what holds. */
static int settle_one(void *arg, const struct dn_option *opt, const char *value)
{
	struct training *t = arg;
	struct dn_options *own = t->s.c->flags;
	int err = 0;

	if (!dn_options_find(own, opt->key))
		return 0;
	if (!dn_options_given(own, opt->key) && dn_options_given(t->s.plugin_options, opt->key))
		err = dn_options_set(own, opt->key, value, "resolved");
	return err ? err : dn_options_set(t->s.plugin_options, opt->key, dn_options_text(own, opt->key), "resolved");
}

static int open_data(struct training *t, struct session_items *items)
{
	const bool wanted = dn_options_int(t->s.c->flags, "valid") > 0;
	struct dn_net *net = t->s.net;
	char text[32];
	int err;

	err = samples_open(&t->data, t->file, net, false, t->s.run.seed);
	if (!err)
		err = samples_try_valid(wanted ? &t->valid : NULL, t->file, net, t->s.run.seed);
	if (!err && wanted && is_classifier(t->task))
		err = samples_check_top(t->file->top, net, t->file->file->path);
	if (!err)
		err = samples_item(items, t->data, t->file);
	if (!err && t->weights_path)
		err = session_item_weights(&t->s, items, t->weights_path);
	/* what the flags left open is settled now: printed, compared and logged as resolved */
	for (int i = 0; !err && i < 4; i++) {
		const char *key = i == 0 ? "batch" : i == 1 ? "subdivisions" : i == 2 ? "shuffle" : "backup";
		const char *value = text;

		if (dn_options_given(t->s.c->flags, key))
			continue;
		snprintf(text, sizeof(text), "%lld", (long long)(i == 0 ? net->batch : net->subdivisions));
		if (i == 2)
			value = dn_shuffle_name(t->shuffle);
		else if (i == 3)
			value = t->backup;
		err = dn_options_set(t->s.c->flags, key, value, "resolved");
	}
	return err;
}

static int fill_config(struct training *t, struct dn_loop_config *c)
{
	const struct dn_options *f = t->s.c->flags;
	const char *every = dn_options_text(f, "save_every");
	int64_t n = 0;

	*c = (struct dn_loop_config){
		.backup = t->backup,
		.base = t->base,
		.data_path = t->file->file->path,
		.log_path = dn_options_text(f, "log"),
		.resume = dn_options_text(f, "resume"),
		.valid_every = dn_options_int(f, "valid"),
		.top = (int)t->file->top,
		.seed = t->s.run.seed,
		.shuffle = t->shuffle,
		.loader_threads = samples_threads(t->file, t->s.run.threads),
		.unsaved = t->s.run.unsaved,
		.force = dn_options_on(f, "force"),
		.guards = t->guards,
		.options = f,
		.plugin_options = t->s.plugin_options,
		.plugin = t->s.plugin.p ? t->s.plugin.p->name : NULL,
		.events = { .step = on_step, .saved = on_saved, .valid = on_valid, .arg = t },
	};
	if (every) {
		if (dn_parse_int(every, &n) == DN_NUM_WHOLE)
			c->save_every = n;
		else if (dn_parse_int(every, &n) == DN_NUM_PREFIX && dn_ends(every, "m"))
			c->save_every_seconds = 60. * (double)n;
		else
			return dn_fail(-EINVAL, "save_every=%.100s: wanted a number of updates, or minutes as in 10m", every);
	}
	c->keep = (int)dn_options_int(f, "keep");
	return 0;
}

static void print_head(const struct training *t)
{
	const struct dn_hyper *h = &t->s.net->hyper;
	struct dn_augment a;
	FILE *f = t->s.c->out;

	fprintf(f, "%s\n1\n", t->base);
	fprintf(f, "Learning Rate: %g, Momentum: %g, Decay: %g\n", h->learning_rate, h->momentum, h->decay);
	fprintf(f, "%lld\n", (long long)t->data->n);
	if (t->file->format == DN_FORMAT_LIST && !dn_augment_read(&a, t->s.net->cfg->net, t->s.net->w))
		fprintf(f, "%g %g\n", a.min_ratio * (double)t->s.net->w, a.max_ratio * (double)t->s.net->w);
	fprintf(f, "Seed: %llu\n", (unsigned long long)t->s.run.seed);
	fflush(f);
}

/* A weights file ends where a checkpoint goes on. */
static void tell_fresh_state(const struct dn_hyper *h)
{
	enum dn_optimizer o = h->optimizer;

	if (o == DN_SGD && !(h->momentum > 0) && !(h->momentum < 0))
		return;
	fprintf(stderr, "notice: a weights file holds no optimizer state: ");
	for (int k = 0; k < dn_state_count(o); k++)
		fprintf(stderr, "%s%s", k ? " and " : "", dn_state_name(o, k));
	fprintf(stderr, " of %s start%s at zero (checkpoints hold it: -save_every, -resume)\n", dn_optimizer_name(o),
		dn_state_count(o) > 1 ? "" : "s");
}

static int load_weights(struct training *t)
{
	const struct dn_options *f = t->s.c->flags;
	struct dn_weights_info info;
	int err;

	if (dn_options_text(f, "resume") && dn_options_on(f, "clear") && first_rank(t))
		fprintf(stderr, "notice: -clear is for weights files: -resume goes on with the checkpoint's count of images\n");
	if (!t->weights_path)
		return 0;
	if (dn_options_text(f, "resume") && first_rank(t))
		fprintf(stderr, "notice: -resume replaces the values of %s\n", t->weights_path);
	err = session_load(&t->s, t->weights_path, true, &info);
	if (!err && !dn_options_on(f, "clear"))
		t->seen = info.header.seen;
	if (!err && !dn_options_text(f, "resume") && first_rank(t))
		tell_fresh_state(&t->s.net->hyper);
	return err;
}

static int train_loop(struct training *t)
{
	const char *resume = dn_options_text(t->s.c->flags, "resume");
	struct dn_loop_config config;
	int err;

	err = fill_config(t, &config);
	err = session_agree(&t->s, err, "settings");
	if (err)
		return err;
	/* what refuses a new run comes before its log begins; a resumed one has its values from the checkpoint */
	if (!resume)
		err = session_check_stats(&t->s, config.force);
	if (err)
		return err;
	err = dn_loop_create(&t->loop, t->s.net, t->data, t->valid, &t->s.run.group, &config);
	if (err)
		return err;
	if (!resume)
		dn_loop_set_seen(t->loop, t->seen);
	if (resume)
		err = session_check_stats(&t->s, config.force);
	if (err)
		return err;
	if (first_rank(t)) {
		print_head(t);
		if (resume)
			fprintf(stderr, "Resumed after batch %lld\n", (long long)dn_loop_batch_number(t->loop));
	}
	t->progress.terminal = isatty(2);
	t->progress.start_ns = t->progress.last_ns = dn_now_ns();
	t->progress.first = dn_loop_batch_number(t->loop);
	err = dn_loop_run(t->loop);
	progress_clear(&t->progress);
	return err;
}

static int train(struct training *t, struct dn_command *c, bool classifier)
{
	const struct dn_options *f = c->flags;
	struct dn_net_options opt = { .multi_scale = true };
	struct session_items items = { 0 };
	int err;

	err = session_start(&t->s, c, t->cfg_path, true);
	if (err)
		return err;
	err = session_agree(&t->s, read_data_file(t), "data file");
	if (err)
		return err;
	dn_base_name(t->cfg_path, t->base, sizeof(t->base));
	opt.batch = dn_options_given(f, "batch") ? dn_options_int(f, "batch") : 0;
	if (t->s.plugin_options)
		err = dn_options_each(t->s.plugin_options, settle_one, t);
	err = session_agree(&t->s, err, "settings");
	if (err)
		return err;
	dn_guards_read(f, &t->guards);
	opt.looks = dn_guards_look(&t->guards);
	opt.update_early = !opt.looks;
	opt.ema = t->guards.ema > 0;
	opt.subdivisions = dn_options_given(f, "subdivisions") ? dn_options_int(f, "subdivisions") : 0;
	err = session_net(&t->s, &opt);
	if (err)
		return err;
	err = session_agree(&t->s, dn_loop_plan_sizes(t->s.net), "sizes of the net");
	if (err)
		return err;
	t->task = dn_net_task_of(t->s.net);
	if (classifier && !is_classifier(t->task))
		err = dn_fail(-EINVAL,
			      "%s: classifier train wants a net that ends in [softmax], the last layer here is [%s]; "
			      "darknet train takes other nets",
			      t->cfg_path, t->s.net->layers[t->s.net->output_layer].ops->name);
	if (!err)
		err = open_data(t, &items);
	err = session_agree(&t->s, err, "data");
	if (!err)
		err = session_ready(&t->s, &items);
	session_items_fini(&items);
	if (!err)
		err = load_weights(t);
	if (!err)
		err = train_loop(t);
	return err;
}

static int run_training(struct dn_command *c, struct training *t, bool classifier)
{
	int err = train(t, c, classifier);

	dn_loop_destroy(t->loop);
	dn_dataset_close(t->data);
	dn_dataset_close(t->valid);
	err = session_end(&t->s, err);
	dn_datafile_destroy(t->file);
	return err;
}

/* DATA CFG [WEIGHTS] */
static int run_with_data(struct dn_command *c, bool classifier)
{
	struct training t = {
		.data_path = c->args[0],
		.cfg_path = c->args[1],
		.weights_path = c->n_args > 2 ? c->args[2] : NULL,
	};

	return run_training(c, &t, classifier);
}

static int run_classifier_train(struct dn_command *c)
{
	return run_with_data(c, true);
}

static int run_train(struct dn_command *c)
{
	return run_with_data(c, false);
}

static int run_cifar_train(struct dn_command *c)
{
	struct training t = { .data_path = NULL };
	int at = samples_data_arg(c, &t.data_path);

	if (at >= c->n_args || c->n_args - at > 2)
		return samples_usage(c);
	t.cfg_path = c->args[at];
	t.weights_path = c->n_args > at + 1 ? c->args[at + 1] : NULL;
	return run_training(c, &t, true);
}

static const struct dn_option *const train_tables[] = { cli_train_flags, cli_batch_flags, cli_seed_flags, cli_net_flags, NULL };

const struct dn_verb verb_classifier_train = {
	.name = "classifier train",
	.args = "DATA CFG [WEIGHTS]",
	.summary = "train a net that ends in softmax",
	.min_args = 2,
	.max_args = 3,
	.flags = train_tables,
	.run = run_classifier_train,
};

const struct dn_verb verb_cifar_train = {
	.name = "cifar train",
	.args = "[X.data] CFG [WEIGHTS]",
	.summary = "the same for CIFAR-10 in data/cifar/, or a data file",
	.min_args = 1,
	.max_args = 3,
	.flags = train_tables,
	.run = run_cifar_train,
};

const struct dn_verb verb_train = {
	.name = "train",
	.args = "DATA CFG [WEIGHTS]",
	.summary = "train any net; the task follows from its last layer",
	.min_args = 2,
	.max_args = 3,
	.flags = train_tables,
	.run = run_train,
};
