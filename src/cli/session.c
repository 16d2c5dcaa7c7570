/* The shared path of verbs that run a net; see session.h. */
#include "cli/session.h"

#include <errno.h>
#include <string.h>

#include "base/keyrule.h"
#include "base/launch.h"
#include "cli/cli.h"
#include "cli/launch.h"

/* --- start --- */

static int check_launch(const struct session *s)
{
	struct dn_launch l;

	dn_launch_read(&l);
	if (l.size <= 1 || s->run.group.world > 1)
		return 0;
	return dn_fail(
		-EINVAL,
		"%d processes were launched (%s), but %s: each would be rank 0 of 1, and they would overwrite one another's "
		"files; use [fsdp] in the cfg or -plugin fsdp, or launch one process",
		l.size, l.by, s->plugin.p ? "the plugin joined none of them" : "no plugin joins them");
}

static int open_device(struct session *s)
{
	const struct dn_backend *be = dn_backend_find(dn_options_text(s->c->flags, "backend"));
	char text[24];

	if (!be)
		return -EINVAL;
	s->env_threads = s->run.threads < 1 && dn_env_threads();
	s->own_threads = s->run.threads < 1 && !s->env_threads;
	if (s->run.threads < 1)
		s->run.threads = dn_default_threads(s->run.group.ranks_on_host);
	snprintf(text, sizeof(text), "%d", s->run.threads);
	if (!dn_options_given(s->c->flags, "threads")) {
		int err = dn_options_set(s->c->flags, "threads", text, "resolved");

		if (err)
			return err;
	}
	return be->open(DN_CPU(s->run.threads), &s->run.dev);
}

/* of a launch by hand, whose ranks get in one another's way, or leave cores idle: what scripts/run-mpi.sh would have set */
static void print_advice(const struct session *s, int usable, int present, bool quota)
{
	const int ranks = s->run.group.ranks_on_host, part = present / ranks > 1 ? present / ranks : 1;

	if (ranks < 2 || quota)
		return;
	if (s->run.threads > 1 && s->run.threads * ranks > present)
		fprintf(stderr,
			"notice: %d ranks of %d threads on %d cores wait for one another: set -threads %d or OMP_NUM_THREADS=%d\n",
			ranks, s->run.threads, present, part, part);
	else if (s->run.threads > usable)
		fprintf(stderr,
			"notice: %d threads on the %d of %d cores that this rank is bound to wait for one another: start with "
			"scripts/run-mpi.sh, or mpirun --map-by slot:PE=%d --bind-to core\n",
			s->run.threads, usable, present, s->run.threads);
	else if (usable < part && s->own_threads)
		fprintf(stderr,
			"notice: this rank is bound to %d of %d cores, its part would be %d: start with scripts/run-mpi.sh, or mpirun "
			"--map-by slot:PE=%d --bind-to core -x OMP_NUM_THREADS=%d\n",
			usable, present, part, part, part);
}

static void print_notices(const struct session *s)
{
	const struct dn_options *f = s->c->flags;
	int usable = dn_usable_cores(), affinity = dn_affinity_cores(), present = dn_present_cores();
	char bound[120] = "", quota[80];

	if (usable < affinity)
		snprintf(bound, sizeof(bound), " by this rank (%s)", dn_quota_text(dn_quota_cores(""), quota, sizeof(quota)));
	else if (usable < present)
		snprintf(bound, sizeof(bound), " by this rank (bound by the launcher or an affinity mask)");

	if (dn_options_given(f, "gpus") || dn_options_on(f, "nogpu") || dn_options_given(f, "i") ||
	    strcmp(dn_options_text(f, "device"), "cpu"))
		fprintf(stderr, "notice: this build has no GPU support: the CPU is used\n");
	fprintf(stderr, "threads: %d a rank%s, %d rank%s (%d on this host), %d of %d cores usable%s\n", s->run.threads,
		s->env_threads ? " (OMP_NUM_THREADS)" : "", s->run.group.world, s->run.group.world == 1 ? "" : "s",
		s->run.group.ranks_on_host, usable, present, bound);
	print_advice(s, usable, present, usable < affinity);
}

int session_start(struct session *s, struct dn_command *c, const char *cfg_path, bool train)
{
	int err;

	*s = (struct session){ .c = c, .start_ns = dn_now_ns() };
	launch_short_waits(dn_options_given(c->flags, "threads") ? (int)dn_options_int(c->flags, "threads") : 0);
	s->run.verb = c->verb->name;
	s->run.group = (struct dn_group)DN_GROUP_ALONE;
	s->run.train = train;
	if (dn_options_given(c->flags, "threads"))
		s->run.threads = (int)dn_options_int(c->flags, "threads");
	if (dn_options_find(c->flags, "seed"))
		s->run.seed = (uint64_t)dn_options_int(c->flags, "seed");
	err = dn_cfg_read(&s->cfg, cfg_path, dn_options_on(c->flags, "strict"));
	if (err)
		return err;
	s->run.cfg = s->cfg;
	err = session_plugin_open(s);
	if (err)
		return err;
	s->run.options = s->plugin_options;
	if (s->plugin.p) {
		err = s->plugin.p->init(&s->run, &s->self);
		if (err)
			return err;
		s->started = true;
		dn_log_quiet(s->run.group.rank != 0);
	}
	err = check_launch(s);
	if (err)
		return err;
	err = open_device(s);
	err = session_agree(s, err, "start");
	if (!err && s->run.group.rank == 0)
		print_notices(s);
	return err;
}

int session_agree(struct session *s, int err, const char *what)
{
	int all = dn_group_agree(&s->run.group, err, what);

	/* an agreement that itself failed (a lost rank) is not one */
	s->agreed = all && s->run.group.world > 1 && dn_exit_status(all) != 3;
	return all;
}

int session_pass_batch(struct session *s, struct dn_net_options *opt)
{
	int64_t batch, subdivisions;
	int world = s->run.group.world;
	int err;

	err = dn_key_int(s->cfg->net, "batch", &batch);
	if (!err)
		err = dn_key_int(s->cfg->net, "subdivisions", &subdivisions);
	if (err)
		return err;
	batch /= subdivisions;
	if (dn_options_given(s->c->flags, "batch"))
		batch = dn_options_int(s->c->flags, "batch");
	if (batch < 1)
		batch = 1;
	opt->local_batch = (batch + world - 1) / world;
	return 0;
}

int session_net(struct session *s, struct dn_net_options *opt)
{
	int err;

	opt->rank = s->run.group.rank;
	opt->world = s->run.group.world;
	opt->train = s->run.train;
	opt->seed = s->run.seed;
	opt->legacy_bn = dn_options_on(s->c->flags, "legacy-bn");
	opt->grads_add = s->run.grads_add;
	opt->sync_bn = s->run.sync_bn;
	opt->needs = dn_net_task_needs;
	err = dn_net_build(&s->net, s->cfg, s->run.dev, opt);
	err = session_agree(s, err, "build of the net");
	if (err)
		return err;
	s->run.net = s->net;
	return 0;
}

static int print_flag(void *arg, const struct dn_option *opt, const char *value)
{
	if (value[0])
		fprintf(arg, " %s=%s", opt->key, value);
	return 0;
}

static int print_plugin_key(void *arg, const struct dn_option *opt, const char *value)
{
	struct session *s = arg;

	if (value[0])
		fprintf(stderr, " %s.%s=%s", s->plugin.p->name, opt->key, value);
	return 0;
}

static void print_options(struct session *s)
{
	fprintf(stderr, "options:");
	(void)dn_options_each(s->c->flags, print_flag, stderr);
	if (s->plugin.p)
		(void)dn_options_each(s->plugin_options, print_plugin_key, s);
	fputc('\n', stderr);
}

int session_ready(struct session *s, struct session_items *items)
{
	int err;

	err = session_items_collect(s, items);
	err = session_agree(s, err, "start");
	if (err)
		return err;
	err = session_items_compare(s, items);
	if (err) {
		s->agreed = s->run.group.world > 1 && dn_exit_status(err) != 3;
		return err;
	}
	err = session_compare_isa(s);
	if (err)
		return err;
	if (s->run.group.rank == 0) {
		session_print_layers(stderr, s->net);
		print_options(s);
	}
	if (s->plugin.p)
		err = s->plugin.p->net_ready(s->self, &s->run);
	err = session_agree(s, err, "plan");
	if (err)
		return err;
	if (!s->net->store.ops)
		err = dn_whole_attach(s->net);
	if (!err)
		err = dn_net_alloc(s->net);
	if (!err)
		err = s->net->store.ops->alloc(s->net->store.self, s->net);
	err = session_agree(s, err, "allocation of memory");
	if (err)
		return err;
	return session_agree(s, dn_net_init_values(s->net), "initial values");
}

/* "t.cfg:12: [convolutional] layer 3" */
static void layer_place(char *out, size_t cap, const struct dn_layer *l)
{
	snprintf(out, cap, "%.500s:%d: [%.60s] layer %d", l->section->file->path, l->section->line, l->section->name, l->index);
}

static const char *others_text(char *out, size_t cap, int n)
{
	out[0] = '\0';
	if (n > 1)
		snprintf(out, cap, " (and %d more)", n - 1);
	return out;
}

int session_check_stats(struct session *s, bool force)
{
	const struct dn_layer *l;
	char place[620], others[40];
	int n;
	int err = dn_net_empty_stats(s->net, true, &l, &n);

	if (!err && n) {
		layer_place(place, sizeof(place), l);
		others_text(others, sizeof(others), n);
		if (force)
			dn_warn("%s%s: frozen, but its rolling statistics are empty: without weights its output means nothing",
				place, others);
		else
			err = dn_fail(
				-EINVAL,
				"%s%s: frozen, but its rolling statistics are empty: load weights (-force trains all the same)",
				place, others);
	}
	return session_agree(s, err, "rolling statistics");
}

/* No error: weights of nets that have not learnt yet are compared with one another, too. */
static int warn_stats(struct session *s, const char *path)
{
	const struct dn_layer *l;
	char place[620], others[40];
	int n;
	int err = dn_net_empty_stats(s->net, false, &l, &n);

	if (!err && n) {
		layer_place(place, sizeof(place), l);
		dn_warn("%s%s: its rolling statistics are empty, also in %s: the net's outputs mean nothing", place,
			others_text(others, sizeof(others), n), path);
	}
	return err;
}

int session_load(struct session *s, const char *path, bool allow_partial, struct dn_weights_info *info)
{
	bool first = s->run.group.rank == 0;
	double bad;
	int err;

	memset(info, 0, sizeof(*info));
	if (first)
		fprintf(stderr, "Loading weights from %s...", path);
	if (s->run.load_rank0 && s->run.group.world > 1)
		err = dn_weights_load_rank0(s->net, path, allow_partial, &s->run.group, info);
	else
		err = dn_weights_load(s->net, path, -1, allow_partial, info);
	err = session_agree(s, err, "load of weights");
	if (first)
		fprintf(stderr, err ? "\n" : "Done!\n");
	if (err)
		return err;
	bad = (double)info->n_nonfinite;
	err = dn_group_sum(&s->run.group, &bad, 1);
	if (err)
		return err;
	info->n_nonfinite = (int64_t)bad;
	dn_weights_tell(path, info);
	if (first && info->partial)
		fprintf(stderr, "%s is partial: %d of %d layers loaded, the others keep their initial values\n", path,
			info->n_layers_loaded, info->n_layers);
	return s->run.train ? 0 : warn_stats(s, path);
}

/* --- end --- */

/* "rank 3: ..." -> 3, else -1 */
static int rank_in_message(const char *text)
{
	int rank, n = 0;

	if (sscanf(text, "rank %d:%n", &rank, &n) == 1 && n)
		return rank;
	return -1;
}

/* Once for errors that all ranks are known to have, by the rank that they name; else by those that have them. False: left to
 * another rank. */
static bool print_error(const struct session *s, int err)
{
	const char *text = dn_message();
	int named = rank_in_message(text);
	bool joined = s->started && s->run.group.world > 1;
	struct dn_launch l;
	int rank, world;
	char number[64];

	dn_launch_read(&l);
	rank = joined ? s->run.group.rank : l.rank;
	world = joined ? s->run.group.world : l.size;
	if (joined && (s->agreed ? rank != 0 : named >= 0 && named != rank))
		return false;
	if (!joined)
		launch_let_first_speak();
	if (!text[0]) {
		snprintf(number, sizeof(number), "error %d (%s)", -err, strerror(-err));
		text = number;
	}
	if (world > 1 && named < 0)
		fprintf(stderr, "darknet: rank %d: %s\n", rank, text);
	else
		fprintf(stderr, "darknet: %s\n", text);
	return true;
}

int session_end(struct session *s, int err)
{
	/* launchers kill all ranks when the first one fails: the rank that prints must not be killed before it has */
	if (err && !print_error(s, err))
		dn_sleep_us(300000);
	s->c->exit_status = err ? dn_exit_status(err) : s->c->exit_status;
	fflush(s->c->out);
	fflush(stderr);
	dn_net_destroy(s->net);
	if (s->started)
		s->plugin.p->exit(s->self, err);
	if (s->run.dev)
		s->run.dev->be->close(s->run.dev);
	dn_options_destroy(s->plugin_options);
	dn_cfg_destroy(s->cfg);
	if (!s->started)
		dn_plugin_close(&s->plugin); /* one that ran stays: its libraries may still have threads and exit handlers */
	return 0;
}
