/* Reading checkpoints: from any number of ranks to any number of ranks, interval by interval. */
#define XXH_STATIC_LINKING_ONLY /* the state of a running checksum on the stack */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "io/ckpt_priv.h"
#include "io/weights_priv.h"
#include "graph/optimizer.h"

/* --- open --- */

void dn_ckpt_close(struct dn_ckpt *c)
{
	if (!c)
		return;
	for (int i = 0; i < c->n_tensors; i++) {
		dn_free(c->tensors[i].name);
		dn_free(c->tensors[i].intervals);
	}
	dn_free(c->tensors);
	dn_free(c->file_bytes);
	dn_free(c->cfg_text);
	dn_free(c->optimizer);
	dn_free(c->files);
	dn_free(c->piece);
	if (c->fd >= 0)
		close(c->fd);
	dn_free(c);
}

/* STEP's folder, or the newest one below @path */
static int find_dir(char out[CKPT_PATH_MAX], const char *path)
{
	struct stat st;
	int64_t step;

	if (ckpt_is_published(path, "."))
		return ckpt_path(out, "%s", path);
	if (stat(path, &st))
		return dn_fail(-errno, "%s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return dn_fail(-ENOTDIR, "%s: is not a folder; wanted a checkpoint's folder or its parent", path);
	step = dn_ckpt_newest(path);
	if (step < 0)
		return dn_fail(-ENOENT, "%s: no checkpoint there (no meta.json, and no STEP/meta.json)", path);
	return ckpt_path(out, "%s/%" PRId64, path, step);
}

static int read_meta(struct dn_ckpt *c)
{
	char path[CKPT_PATH_MAX];
	char *text;
	size_t n;
	int err;

	err = ckpt_path(path, "%s/meta.json", c->dir);
	if (!err)
		err = dn_file_read(path, CKPT_META_MAX, &text, &n);
	if (err)
		return err;
	err = ckpt_meta_parse(c, text, n);
	dn_free(text);
	return err;
}

int dn_ckpt_open(struct dn_ckpt **out, const char *path)
{
	struct dn_ckpt *c;
	int err;

	c = dn_zalloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->fd = c->fd_file = -1;
	err = find_dir(c->dir, path);
	if (!err)
		err = read_meta(c);
	if (!err) {
		c->piece = dn_alloc(CKPT_PIECE);
		err = c->piece ? 0 : -ENOMEM;
	}
	if (err) {
		dn_ckpt_close(c);
		return err;
	}
	*out = c;
	return 0;
}

const struct dn_ckpt_state *dn_ckpt_state_of(const struct dn_ckpt *c)
{
	return &c->head.state;
}

const char *dn_ckpt_cfg_text(const struct dn_ckpt *c)
{
	return c->cfg_text;
}

const char *dn_ckpt_dir(const struct dn_ckpt *c)
{
	return c->dir;
}

const char *dn_ckpt_optimizer(const struct dn_ckpt *c)
{
	return c->optimizer;
}

int dn_ckpt_world(const struct dn_ckpt *c)
{
	return c->head.world;
}

int dn_ckpt_n_tensors(const struct dn_ckpt *c)
{
	return c->n_tensors;
}

const struct dn_ckpt_tensor *dn_ckpt_tensor_at(const struct dn_ckpt *c, int i)
{
	return &c->tensors[i];
}

static int name_order(const void *key, const void *t)
{
	return strcmp(key, ((const struct dn_ckpt_tensor *)t)->name);
}

static struct dn_ckpt_tensor *find(const struct dn_ckpt *c, const char *name)
{
	return c->n_tensors ? bsearch(name, c->tensors, (size_t)c->n_tensors, sizeof(*c->tensors), name_order) : NULL;
}

const struct dn_ckpt_tensor *dn_ckpt_find(const struct dn_ckpt *c, const char *name)
{
	return find(c, name);
}

/* --- reading elements --- */

static int missing(const struct dn_ckpt *c, const struct dn_ckpt_tensor *t, int64_t at, int64_t end)
{
	return dn_fail(-EINVAL, "%s: tensor %s: elements %" PRId64 " to %" PRId64 " are missing", c->dir, t->name, at, end);
}

int dn_ckpt_cover(const struct dn_ckpt *c, const struct dn_ckpt_tensor *t)
{
	int64_t at = 0;

	for (int i = 0; i < t->n_intervals; i++) { /* NOLINT(clang-analyzer-core.NullDereference) */
		if (t->intervals[i].start > at)
			return missing(c, t, at, t->intervals[i].start);
		at = t->intervals[i].start + t->intervals[i].length;
	}
	return at < t->n ? missing(c, t, at, t->n) : 0;
}

static int open_file(struct dn_ckpt *c, int file)
{
	char path[CKPT_PATH_MAX];
	int err;

	if (c->fd_file == file)
		return 0;
	if (c->fd >= 0)
		close(c->fd);
	c->fd = c->fd_file = -1;
	err = ckpt_path(path, "%s/rank-%d.bin", c->dir, file);
	if (err)
		return err;
	c->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (c->fd < 0)
		return dn_fail(-errno, "%s: %s", path, strerror(errno));
	c->fd_file = file;
	return 0;
}

static int read_at(const struct dn_ckpt *c, void *out, size_t n, int64_t at)
{
	char *to = out;

	while (n) {
		ssize_t got = pread(c->fd, to, n, at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return dn_fail(-errno, "%s/rank-%d.bin: reading at byte %" PRId64 ": %s", c->dir, c->fd_file, at,
				       strerror(errno));
		if (got == 0)
			return dn_fail(-EIO, "%s/rank-%d.bin: ends at byte %" PRId64, c->dir, c->fd_file, at);
		to += got;
		at += got;
		n -= (size_t)got;
	}
	return 0;
}

/* Elements [from, from+n) of the interval, once its checksum is known to hold: to @out. */
static int copy_checked(struct dn_ckpt *c, const struct dn_ckpt_interval *v, int64_t from, int64_t n, float *out)
{
	return read_at(c, out, (size_t)n * sizeof(float), v->offset + from * (int64_t)sizeof(float));
}

/* The first read of an interval goes over all of it for the checksum and picks what is wanted on the way. */
static int copy_checking(struct dn_ckpt *c, const struct dn_ckpt_tensor *t, struct dn_ckpt_interval *v, int64_t from, int64_t n,
			 float *out)
{
	int64_t bytes = v->length * (int64_t)sizeof(float);
	int64_t lo = from * (int64_t)sizeof(float), hi = lo + n * (int64_t)sizeof(float);
	XXH64_state_t sum;

	XXH64_reset(&sum, 0);
	for (int64_t at = 0; at < bytes; at += CKPT_PIECE) {
		int64_t m = bytes - at < CKPT_PIECE ? bytes - at : CKPT_PIECE;
		int64_t a = at > lo ? at : lo, b = at + m < hi ? at + m : hi;
		int err = read_at(c, c->piece, (size_t)m, v->offset + at);

		if (err)
			return err;
		XXH64_update(&sum, c->piece, (size_t)m);
		if (a < b)
			memcpy((char *)out + (a - lo), c->piece + (a - at), (size_t)(b - a));
	}
	if (XXH64_digest(&sum) != v->xxh64)
		return dn_fail(-EINVAL,
			       "%s/rank-%d.bin: tensor %s, elements %" PRId64 " to %" PRId64 ": checksum is %016" PRIx64
			       ", wanted %016" PRIx64 ": damaged",
			       c->dir, v->file, t->name, v->start, v->start + v->length, (uint64_t)XXH64_digest(&sum), v->xxh64);
	v->checked = true;
	return 0;
}

static int read_range(struct dn_ckpt *c, const struct dn_ckpt_tensor *t, int64_t at, int64_t n, float *out)
{
	int64_t end = at + n;
	int lo = 0, hi = t->n_intervals;

	while (lo < hi) { /* first interval that ends after @at */
		int mid = lo + (hi - lo) / 2;

		if (t->intervals[mid].start + t->intervals[mid].length > at)
			hi = mid;
		else
			lo = mid + 1;
	}
	for (; at < end; lo++) {
		struct dn_ckpt_interval *v = &t->intervals[lo];
		int64_t m;
		int err;

		if (lo == t->n_intervals || v->start > at)
			return missing(c, t, at, lo < t->n_intervals && v->start < end ? v->start : end);
		m = v->start + v->length < end ? v->start + v->length - at : end - at;
		err = open_file(c, v->file);
		if (!err)
			err = v->checked ? copy_checked(c, v, at - v->start, m, out)
					 : copy_checking(c, t, v, at - v->start, m, out);
		if (err)
			return err;
		at += m;
		out += m;
	}
	return 0;
}

int dn_ckpt_read(struct dn_ckpt *c, const char *name, int64_t at, int64_t n, float *out)
{
	const struct dn_ckpt_tensor *t = find(c, name);
	int err;

	if (!t)
		return dn_fail(-ENOENT, "%s: there is no tensor %s", c->dir, name);
	if (at < 0 || n < 0 || n > t->n || at > t->n - n)
		return dn_fail(-EINVAL, "%s: tensor %s: elements %" PRId64 " to %" PRId64 " wanted, it has %" PRId64, c->dir,
			       name, at, at + n, t->n);
	err = read_range(c, t, at, n, out);
	if (!err)
		c->n_nonfinite += weights_nonfinite(out, n);
	return err;
}

int64_t dn_ckpt_nonfinite(const struct dn_ckpt *c)
{
	return c->n_nonfinite;
}

void dn_ckpt_tell(const struct dn_ckpt *c, int64_t n)
{
	if (n)
		dn_warn("%s: %" PRId64 " values are not finite", c->dir, n);
}

/* --- into a net --- */

static void shape_text(char *out, size_t cap, int n_dims, const int64_t *shape)
{
	size_t used = 0;

	out[0] = 0;
	for (int i = 0; i < n_dims && used < cap; i++)
		used += (size_t)snprintf(out + used, cap - used, "%s%" PRId64, i ? "x" : "", shape[i]);
}

static int check_param(const struct dn_ckpt *c, const struct dn_param *p, const char *name, enum dn_ckpt_kind kind,
		       struct dn_ckpt_tensor **out)
{
	struct dn_ckpt_tensor *t = find(c, name);
	char there[200], here[100];

	if (!t)
		return dn_fail(-EINVAL, "%s: another net: it has no tensor %s", c->dir, name);
	if (t->kind != kind)
		return dn_fail(-EINVAL, "%s: tensor %s is a %s, wanted a %s", c->dir, name, dn_ckpt_kind_name(t->kind),
			       dn_ckpt_kind_name(kind));
	if (t->n_dims != p->n_dims || memcmp(t->shape, p->shape, (size_t)p->n_dims * sizeof(p->shape[0]))) {
		shape_text(there, sizeof(there), t->n_dims, t->shape);
		shape_text(here, sizeof(here), p->n_dims, p->shape);
		return dn_fail(-EINVAL, "%s: another net: tensor %s is %s there, %s in this net", c->dir, name, there, here);
	}
	*out = t;
	return 0;
}

static enum dn_ckpt_kind kind_of(const struct dn_param *p)
{
	return p->role == DN_BUFFER ? DN_CKPT_BUFFER : DN_CKPT_PARAM;
}

static bool is_value(const struct dn_ckpt_tensor *t)
{
	return t->kind == DN_CKPT_PARAM || t->kind == DN_CKPT_BUFFER || t->kind == DN_CKPT_CARRY;
}

static bool is_in_net(const struct dn_net *net, const struct dn_ckpt_tensor *t)
{
	for (int i = 0; i < net->n_params && t->kind != DN_CKPT_CARRY; i++)
		if (!strcmp(net->params[i]->name, t->name))
			return true;
	for (int i = 0; i < net->n_carries && t->kind == DN_CKPT_CARRY; i++)
		if (!strcmp(net->carries[i]->name, t->name))
			return true;
	return false;
}

/* The number of rows follows from the batch, which a forced run may change. */
static int check_carry(const struct dn_ckpt *c, const struct dn_carry *s)
{
	const struct dn_ckpt_tensor *t = find(c, s->name);
	char there[200], here[100];

	if (!t || t->kind != DN_CKPT_CARRY)
		return dn_fail(-EINVAL, "%s: another net: it has no carry %s", c->dir, s->name);
	if (t->n_dims == s->n_dims && !memcmp(t->shape + 1, s->shape + 1, (size_t)(s->n_dims - 1) * sizeof(s->shape[0])))
		return 0;
	shape_text(there, sizeof(there), t->n_dims, t->shape);
	shape_text(here, sizeof(here), s->n_dims, s->shape);
	return dn_fail(-EINVAL, "%s: another net: carry %s is %s there, %s in this net", c->dir, s->name, there, here);
}

/* The same params, buffers and carries on both sides? */
static int check_net(const struct dn_ckpt *c, const struct dn_net *net)
{
	struct dn_ckpt_tensor *t;
	int n = 0;

	for (int i = 0; i < net->n_params; i++) {
		int err = check_param(c, net->params[i], net->params[i]->name, kind_of(net->params[i]), &t);

		if (err)
			return err;
	}
	for (int i = 0; i < net->n_carries; i++) {
		int err = check_carry(c, net->carries[i]);

		if (err)
			return err;
	}
	for (int i = 0; i < c->n_tensors; i++)
		n += is_value(&c->tensors[i]);
	/* names are unique on both sides: only when the numbers differ is a search of every name worth its time */
	for (t = c->tensors; n > net->n_params + net->n_carries && t < c->tensors + c->n_tensors; t++)
		if (is_value(t) && !is_in_net(net, t))
			return dn_fail(-EINVAL, "%s: another net: it has a tensor %s, this net has none of that name", c->dir,
				       t->name);
	return 0;
}

struct fill {
	struct dn_ckpt *c;
	struct dn_ckpt_tensor *t; /* NULL: zeros */
};

static int fill(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	struct fill *f = arg;
	int err;

	if (!f->t) {
		memset(x, 0, (size_t)n * sizeof(*x));
		return 0;
	}
	err = read_range(f->c, f->t, at, n, x);
	if (!err && weights_counts(p))
		f->c->n_nonfinite += weights_nonfinite(x, n);
	return err;
}

/* A param that was frozen when the checkpoint was written has no state there; it starts at zero, as in a new run. */
static int load_states(struct dn_ckpt *c, struct dn_net *net, struct dn_param *p)
{
	const struct dn_ckpt_tensor *value = find(c, p->name);
	enum dn_optimizer o = net->hyper.optimizer;

	if (p->role != DN_TRAINED || p->frozen)
		return 0;
	for (int k = 0; k < dn_state_count(o); k++) {
		struct fill f = { c, NULL };
		char name[128];
		int err;

		snprintf(name, sizeof(name), "%s:%s", p->name, dn_state_name(o, k));
		if (!find(c, name) && !value->frozen && !c->fresh_states)
			return dn_fail(-EINVAL, "%s: has no optimizer state %s", c->dir, name);
		err = c->fresh_states || !find(c, name) ? 0 : check_param(c, p, name, DN_CKPT_STATE, &f.t);
		if (!err && f.t)
			err = dn_ckpt_cover(c, f.t);
		if (!err)
			err = net->store.ops->each(net->store.self, p, DN_STATE0 + k, DN_WRITE, fill, &f);
		if (err)
			return err;
	}
	return 0;
}

static struct dn_ckpt_tensor *find_ema(const struct dn_ckpt *c, const char *param)
{
	char name[128];

	snprintf(name, sizeof(name), "%s:%s", param, CKPT_EMA);
	return find(c, name);
}

static int load_ema(struct dn_ckpt *c, struct dn_net *net, struct dn_param *p)
{
	struct fill f = { c, find_ema(c, p->name) };
	char name[128];
	int err = 0;

	if (p->role != DN_TRAINED || p->frozen)
		return 0;
	snprintf(name, sizeof(name), "%s:%s", p->name, CKPT_EMA);
	if (f.t)
		err = check_param(c, p, name, DN_CKPT_EMA, &f.t);
	else
		f.t = find(c, p->name);
	if (!err)
		err = dn_ckpt_cover(c, f.t);
	return err ? err : net->store.ops->each(net->store.self, p, DN_EMA, DN_WRITE, fill, &f);
}

bool dn_ckpt_has_ema(const struct dn_ckpt *c)
{
	for (int i = 0; i < c->n_tensors; i++)
		if (c->tensors[i].kind == DN_CKPT_EMA)
			return true;
	return false;
}

int dn_ckpt_read_ema(struct dn_ckpt *c, const char *name, int64_t at, int64_t n, float *out)
{
	const struct dn_ckpt_tensor *t = find_ema(c, name);

	return dn_ckpt_read(c, t && t->kind == DN_CKPT_EMA ? t->name : name, at, n, out);
}

/* The rows of this rank's images, wherever they were saved. */
static int load_carry(struct dn_ckpt *c, struct dn_net *net, const struct dn_carry *s)
{
	const struct dn_ckpt_tensor *t = find(c, s->name); /* check_net() has found it */
	float *x;
	int err;

	if (t->shape[0] != s->shape[0]) {
		dn_warn("%s: carry %s is of %" PRId64 " rows, this run has %" PRId64 ": all start at zero", c->dir, s->name,
			t->shape[0], s->shape[0]);
		return 0;
	}
	err = dn_ckpt_cover(c, t);
	if (err)
		return err;
	err = net->dev->be->alloc_host(net->dev, DN_MEM_HOST, sizeof(*x) * (size_t)(s->rows * s->row), (void **)&x);
	if (err)
		return err;
	for (int64_t m = 0; m < net->subdivisions && !err; m++) {
		int64_t at, n;

		dn_carry_interval(net, s, m, &at, &n);
		err = read_range(c, t, at, n, x);
		if (!err)
			err = dn_carry_set(net, s, m, x);
	}
	dn_net_drain(net);
	net->dev->be->free_host(net->dev, x);
	return err;
}

static int load_carries(struct dn_ckpt *c, struct dn_net *net)
{
	int err = dn_net_forget(net, DN_TRAIN);

	for (int i = 0; i < net->n_carries && !err; i++)
		err = load_carry(c, net, net->carries[i]);
	return err;
}

/* What was frozen when this was saved learns now, without a past. */
static void say_freed(struct dn_ckpt *c, const struct dn_net *net)
{
	const struct dn_param *first = NULL;
	int n = 0;

	for (int i = 0; i < net->n_params; i++) {
		const struct dn_param *p = net->params[i];

		if (p->role != DN_TRAINED || p->frozen || !find(c, p->name)->frozen)
			continue;
		first = first ? first : p;
		n++;
	}
	if (n > 1)
		dn_warn("%s: %s and %d more were frozen and learn now: their optimizer state begins at zero", c->dir, first->name,
			n - 1);
	else if (n)
		dn_warn("%s: %s was frozen and learns now: its optimizer state begins at zero", c->dir, first->name);
}

void dn_ckpt_fresh_states(struct dn_ckpt *c)
{
	c->fresh_states = true;
}

int dn_ckpt_load(struct dn_ckpt *c, struct dn_net *net)
{
	const char *optimizer = dn_optimizer_name(net->hyper.optimizer);
	int err;

	err = check_net(c, net);
	if (err)
		return err;
	if (net->opt.train && !c->fresh_states && strcmp(c->optimizer, optimizer))
		return dn_fail(-EINVAL, "%s: has the state of optimizer %s, this run uses %s", c->dir, c->optimizer, optimizer);
	for (int i = 0; i < net->n_params && !err; i++) {
		struct dn_param *p = net->params[i];
		struct fill f = { c, find(c, p->name) };

		err = dn_ckpt_cover(c, f.t); /* check_net() has found every tensor */
		if (!err)
			err = net->store.ops->each(net->store.self, p, DN_VALUE, DN_WRITE, fill, &f);
		if (!err && net->opt.train)
			err = load_states(c, net, p);
		if (!err && net->opt.train && net->opt.ema)
			err = load_ema(c, net, p);
	}
	if (!err && net->opt.train)
		err = load_carries(c, net);
	if (!err && net->opt.train)
		say_freed(c, net);
	dn_net_touched(net);
	return err;
}

int dn_ckpt_refuse(const char *dir, const struct dn_net *net)
{
	struct dn_ckpt *c;
	int err;

	if (dn_ckpt_newest(dir) < 0)
		return 0;
	err = dn_ckpt_open(&c, dir);
	if (err)
		return err;
	err = check_net(c, net);
	dn_ckpt_close(c);
	return err;
}
