/* A run that goes on where a checkpoint stopped: what must be the same, what may be another, and what is said of it. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "data/datafile.h"
#include "graph/optimizer.h"
#include "train/loop_priv.h"

static int differ(const struct dn_loop *l, const char *path, const char *what, const char *there, const char *here)
{
	if (!strcmp(there, here))
		return 0;
	if (!l->c.force)
		return dn_fail(-EINVAL, "%s: was saved with %s %s, this run has %s (-force resumes all the same)", path, what,
			       there, here);
	dn_warn("%s: was saved with %s %s, this run has %s", path, what, there, here);
	return 0;
}

static int differ_number(const struct dn_loop *l, const char *path, const char *what, uint64_t there, uint64_t here)
{
	char a[24], b[24];

	snprintf(a, sizeof(a), "%" PRIu64, there);
	snprintf(b, sizeof(b), "%" PRIu64, here);
	return differ(l, path, what, a, b);
}

static int differ_hash(const struct dn_loop *l, const char *path, uint64_t there, uint64_t here)
{
	char a[24], b[24];

	snprintf(a, sizeof(a), "%016" PRIx64, there);
	snprintf(b, sizeof(b), "%016" PRIx64, here);
	return differ(l, path, "a data set of hash", a, b);
}

static int compare_state(const struct dn_loop *l, const char *path, const struct dn_ckpt_state *s)
{
	int err;

	err = differ_number(l, path, "batch", (uint64_t)s->batch, (uint64_t)l->net->batch);
	if (!err)
		err = differ_number(l, path, "seed", s->seed, l->c.seed);
	if (!err)
		err = differ(l, path, "the data list", s->data_list, l->train->path);
	if (!err)
		err = differ_number(l, path, "a number of samples of", (uint64_t)s->data_length, (uint64_t)l->train->n);
	if (!err)
		err = differ_hash(l, path, s->data_hash, l->train->hash);
	return err;
}

/* What a resume may change and what changes the results all the same: statistics of batch normalisation are of a microbatch,
 * and each order has its own samples. Rank 0. */
static void tell_changes(const struct dn_loop *l, const char *path, const struct dn_ckpt_state *s)
{
	const char *there = *s->shuffle ? s->shuffle : dn_shuffle_name(DN_SHUFFLE_EPOCH);
	const char *here = dn_shuffle_name(l->c.shuffle);
	bool split = s->subdivisions != l->net->subdivisions, order = strcmp(there, here) != 0;
	char text[2][160] = { "", "" };

	if (split)
		snprintf(text[0], sizeof(text[0]), "subdivisions %" PRId64 " (saved with %" PRId64 ")", l->net->subdivisions,
			 s->subdivisions);
	if (order)
		snprintf(text[1], sizeof(text[1]), "%sshuffle %s (saved with %s%s)", split ? " and " : "", here, there,
			 *s->shuffle ? "" : ", or by a version that did not say");
	if (split || order)
		dn_warn("%s: this run has %s%s: it will not give the results of a run that was never stopped", path, text[0],
			text[1]);
}

struct net_difference {
	const struct dn_loop *l;
	int n;
	char first[1000];
};

static int see_difference(void *arg, const char *text)
{
	struct net_difference *d = arg;

	if (d->l->c.force)
		dn_warn("another net was saved: %s", text);
	else if (!d->n)
		snprintf(d->first, sizeof(d->first), "%s", text);
	d->n++;
	return 0;
}

/* The same tensors are not the same net. */
static int compare_net(const struct dn_loop *l, const struct dn_ckpt *c)
{
	struct net_difference d = { .l = l };
	char more[64] = "";
	int err = dn_ckpt_differences(c, l->net, see_difference, &d);

	if (err || !d.n || l->c.force)
		return err;
	if (d.n > 1)
		snprintf(more, sizeof(more), ", and %d more difference%s", d.n - 1, d.n > 2 ? "s" : "");
	return dn_fail(-EINVAL, "%s: another net: %s%s (-force resumes all the same)", dn_ckpt_dir(c), d.first, more);
}

static int compare_optimizer(const struct dn_loop *l, struct dn_ckpt *c)
{
	const char *here = dn_optimizer_name(l->net->hyper.optimizer), *there = dn_ckpt_optimizer(c);

	if (!strcmp(here, there))
		return 0;
	if (!l->c.force)
		return dn_fail(
			-EINVAL,
			"%s: has the state of optimizer %s, this run uses %s (-force resumes all the same, with a state of "
			"zeros)",
			dn_ckpt_dir(c), there, here);
	dn_warn("%s: has the state of optimizer %s, this run uses %s, whose state starts at zero", dn_ckpt_dir(c), there, here);
	dn_ckpt_fresh_states(c);
	return 0;
}

/* A parent of steps stands for one run's newest: said when there are others. */
static void tell_choice(const char *path, const struct dn_ckpt *c)
{
	const struct dn_ckpt_state *s = dn_ckpt_state_of(c);
	struct dn_ckpt_folder f;

	if (!strcmp(path, dn_ckpt_dir(c)))
		return;
	dn_ckpt_look(path, s->run, &f);
	if (f.n_others)
		dn_warn("%s: holds checkpoints of several runs: resumed is step %" PRId64
			", the newest of the run that began last; "
			"-resume %s/STEP takes any other (of steps %" PRId64 " to %" PRId64 ")",
			path, s->step, path, f.others_first, f.others_last);
}

static bool net_ema_lacks(const struct dn_loop *l, const struct dn_ckpt *c)
{
	return l->g.rank == 0 && l->net->opt.ema && !dn_ckpt_has_ema(c);
}

static int tell_nonfinite(const struct dn_loop *l, const struct dn_ckpt *c)
{
	double n = (double)dn_ckpt_nonfinite(c);
	int err = dn_group_sum(&l->g, &n, 1);

	if (!err && l->g.rank == 0)
		dn_ckpt_tell(c, (int64_t)n);
	return err;
}

int dn_loop_resume(struct dn_loop *l, const char *path)
{
	struct dn_ckpt *c = NULL;
	int err;

	err = dn_ckpt_open(&c, path);
	if (!err && l->g.rank == 0)
		tell_choice(path, c);
	if (!err)
		err = compare_net(l, c);
	if (!err)
		err = compare_state(l, dn_ckpt_dir(c), dn_ckpt_state_of(c));
	if (!err)
		err = compare_optimizer(l, c);
	if (!err)
		err = dn_ckpt_load(c, l->net);
	if (!err && l->g.rank == 0)
		tell_changes(l, dn_ckpt_dir(c), dn_ckpt_state_of(c));
	err = dn_group_agree(&l->g, err, "resuming");
	if (!err)
		err = tell_nonfinite(l, c);
	if (!err) {
		dn_loop_set_seen(l, dn_ckpt_state_of(c)->seen);
		if (l->c.guards.dynamic && dn_ckpt_state_of(c)->loss_scale > 0) {
			l->scale = dn_ckpt_state_of(c)->loss_scale;
			l->good = dn_ckpt_state_of(c)->good_steps;
		}
		l->has_ema = true;
		if (net_ema_lacks(l, c))
			dn_warn("%s: has no mean of the values: -ema begins with the values", dn_ckpt_dir(c));
		if (dn_ckpt_state_of(c)->run)
			l->run = dn_ckpt_state_of(c)->run;
	}
	dn_ckpt_close(c);
	return err;
}
