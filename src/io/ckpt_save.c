/* Writing checkpoints: every interval by one of the ranks that own it, which the store names; carries by each rank its own;
 * meta.json by rank 0.
 *
 * Order: rank 0 makes STEP.tmp; all ranks write and flush; all agree; rank 0 collects the lists of intervals, checks
 * that they cover every tensor, writes meta.json and renames the folder. Whatever fails on any rank fails on all, and
 * STEP.tmp goes.
 */
#define XXH_STATIC_LINKING_ONLY /* the state of a running checksum on the stack */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "io/ckpt_priv.h"
#include "graph/optimizer.h"

struct record {		/* one interval, as the ranks send it to rank 0 */
	int32_t tensor; /* param index * n_parts, + 1 + k for state k, then the mean; carries follow */
	int32_t file;
	int64_t start, length, offset;
	uint64_t xxh64;
};

struct list { /* what this rank writes */
	struct dn_net *net;
	int n_states, n_parts; /* a param's: value, states, and its mean where there is one */
	int32_t tensor;	       /* being collected */
	int n;
	struct record *records;
	int64_t bytes; /* of this rank's file */
};

static void list_fini(struct list *l)
{
	dn_free(l->records);
}

static int collect(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	struct list *l = arg;
	struct record *records;

	if (n == 0)
		return 0;
	records = dn_grow(l->records, l->n, sizeof(*records));
	if (!records)
		return -ENOMEM;
	l->records = records;
	l->bytes = (l->bytes + CKPT_ALIGN - 1) / CKPT_ALIGN * CKPT_ALIGN;
	l->records[l->n++] = (struct record){ l->tensor, 0, at, n, l->bytes, 0 };
	l->bytes += n * (int64_t)sizeof(float);
	return 0;
}

static int walk_part(struct dn_net *net, struct dn_param *p, enum dn_part part, unsigned access, dn_interval_fn fn, void *arg)
{
	const struct dn_store *st = &net->store;

	return st->ops->writes(st->self, p, part) ? st->ops->each(st->self, p, part, access, fn, arg) : 0;
}

/* fn over all that this rank writes of params of @role, always in the same order; *tensor tells whose the interval is */
static int walk_role(const struct list *l, enum dn_role role, int32_t *tensor, unsigned access, dn_interval_fn fn, void *arg)
{
	struct dn_net *net = l->net;
	int err = 0;

	for (int i = 0; i < net->n_params && !err; i++) {
		struct dn_param *p = net->params[i];

		if (p->role != role)
			continue;
		*tensor = i * l->n_parts;
		err = walk_part(net, p, DN_VALUE, access, fn, arg);
		for (int k = 1; k < l->n_parts && !err && role == DN_TRAINED; k++) {
			++*tensor;
			err = walk_part(net, p, k > l->n_states ? DN_EMA : (enum dn_part)(DN_STATE0 + k - 1), access, fn, arg);
		}
	}
	return err;
}

static int collect_role(struct list *l, enum dn_role role)
{
	return walk_role(l, role, &l->tensor, 0, collect, l);
}

static int32_t carries_at(const struct list *l)
{
	return l->net->n_params * l->n_parts;
}

/* The rows of this rank's images: no other rank has them, replica or not. */
static int collect_carries(struct list *l)
{
	const struct dn_net *net = l->net;
	int err = 0;

	for (int i = 0; i < net->n_carries && net->opt.train; i++)
		for (int64_t m = 0; m < net->subdivisions && !err; m++) {
			int64_t at, n;

			l->tensor = carries_at(l) + i;
			dn_carry_interval(net, net->carries[i], m, &at, &n);
			err = collect(l, NULL, at, n, NULL);
		}
	return err;
}

/* Collective. */
static int list_init(struct list *l, struct dn_net *net, const struct dn_group *g)
{
	int err;

	memset(l, 0, sizeof(*l));
	l->net = net;
	l->n_states = dn_state_count(net->hyper.optimizer);
	l->n_parts = 1 + l->n_states + (net->opt.train && net->opt.ema);
	err = collect_role(l, DN_TRAINED);
	if (!err)
		err = collect_role(l, DN_BUFFER);
	if (!err)
		err = collect_carries(l);
	for (int i = 0; i < l->n; i++)
		l->records[i].file = g->rank;
	return dn_group_agree(g, err, "checkpoint");
}

int dn_ckpt_bytes(struct dn_net *net, const struct dn_group *g, int64_t *mine, int64_t *all)
{
	struct list l;
	double sum;
	int err;

	err = list_init(&l, net, g);
	if (!err) {
		sum = (double)l.bytes;
		err = dn_group_sum(g, &sum, 1);
	}
	if (!err) {
		*mine = l.bytes;
		*all = (int64_t)sum;
	}
	list_fini(&l);
	return err;
}

struct writing { /* the records of a list once more, now with what they hold */
	struct list *l;
	struct dn_out *o;
	int32_t tensor;
	int at;	      /* the record that is being written */
	int64_t done; /* elements of it */
	XXH64_state_t sum;
};

static int write_bytes(struct dn_out *o, const void *from, int64_t bytes)
{
	int err = 0;

	for (int64_t at = 0; at < bytes && !err; at += CKPT_PIECE)
		err = dn_out_write(o, (const char *)from + at, (size_t)(bytes - at < CKPT_PIECE ? bytes - at : CKPT_PIECE));
	return err;
}

static int write_piece(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	static const char zeros[CKPT_ALIGN];
	struct writing *w = arg;
	struct record *r;
	int err = 0;

	if (n == 0)
		return 0;
	r = w->l->records + (w->at < w->l->n ? w->at : 0);
	if (w->at == w->l->n || r->tensor != w->tensor || r->start + w->done != at || r->length - w->done < n)
		return dn_fail(-EPROTO, "checkpoint: %s: elements %" PRId64 " to %" PRId64 " come out of turn",
			       p ? p->name : "a carry", at, at + n);
	if (!w->done) {
		XXH64_reset(&w->sum, 0);
		err = dn_out_write(w->o, zeros, (size_t)(r->offset - w->o->bytes));
	}
	if (!err)
		err = write_bytes(w->o, x, n * (int64_t)sizeof(*x));
	XXH64_update(&w->sum, x, (size_t)n * sizeof(*x));
	w->done += n;
	if (w->done == r->length) {
		r->xxh64 = XXH64_digest(&w->sum);
		w->at++;
		w->done = 0;
	}
	return err;
}

/* the next record, of a carry */
static int write_carry(struct writing *w)
{
	struct dn_net *net = w->l->net;
	const struct record *r = &w->l->records[w->at];
	float *x;
	int err = net->dev->be->alloc_host(net->dev, DN_MEM_HOST, sizeof(float) * (size_t)r->length, (void **)&x);

	if (err)
		return err;
	w->tensor = r->tensor;
	err = dn_carry_get(net, net->carries[r->tensor - carries_at(w->l)], r->start / (r->length * net->opt.world), x);
	if (!err)
		err = write_piece(w, NULL, r->start, r->length, x);
	dn_net_drain(net);
	net->dev->be->free_host(net->dev, x);
	return err;
}

static int write_file(struct list *l, const char *tmp, int rank)
{
	char path[CKPT_PATH_MAX];
	struct dn_out o;
	struct writing w = { .l = l, .o = &o };
	int err;

	if (!l->n)
		return 0;
	err = ckpt_path(path, "%s/rank-%d.bin", tmp, rank);
	if (!err)
		err = dn_out_open(&o, path);
	if (err)
		return err;
	err = walk_role(l, DN_TRAINED, &w.tensor, DN_READ, write_piece, &w);
	if (!err)
		err = walk_role(l, DN_BUFFER, &w.tensor, DN_READ, write_piece, &w);
	while (!err && w.at < l->n && l->records[w.at].tensor >= carries_at(l))
		err = write_carry(&w);
	if (!err && w.at < l->n)
		err = dn_fail(-EPROTO, "checkpoint: %d of %d intervals came", w.at, l->n);
	if (!err)
		return dn_out_commit(&o);
	dn_out_abort(&o);
	return err;
}

/* --- rank 0 --- */

static int by_tensor(const void *a, const void *b)
{
	const struct record *x = a, *y = b;

	if (x->tensor != y->tensor)
		return x->tensor < y->tensor ? -1 : 1;
	return x->start < y->start ? -1 : x->start > y->start;
}

static int describe_param(const struct list *l, int32_t tensor, struct dn_ckpt_tensor *t)
{
	const struct dn_param *p = l->net->params[tensor / l->n_parts];
	int state = tensor % l->n_parts - 1;
	bool ema = state == l->n_states;
	char name[128];

	snprintf(name, sizeof(name), "%s%s%s", p->name, state < 0 ? "" : ":",
		 state < 0 ? ""
		 : ema	   ? CKPT_EMA
			   : dn_state_name(l->net->hyper.optimizer, state));
	t->name = dn_strdup(name);
	t->kind = ema ? DN_CKPT_EMA : state >= 0 ? DN_CKPT_STATE : p->role == DN_BUFFER ? DN_CKPT_BUFFER : DN_CKPT_PARAM;
	t->n_dims = p->n_dims;
	memcpy(t->shape, p->shape, (size_t)p->n_dims * sizeof(p->shape[0]));
	t->n = p->n;
	t->frozen = t->kind == DN_CKPT_PARAM && p->frozen;
	return t->name ? 0 : -ENOMEM;
}

static int describe_carry(const struct dn_carry *c, struct dn_ckpt_tensor *t)
{
	t->name = dn_strdup(c->name);
	t->kind = DN_CKPT_CARRY;
	t->n_dims = c->n_dims;
	memcpy(t->shape, c->shape, (size_t)c->n_dims * sizeof(c->shape[0]));
	t->n = c->n;
	return t->name ? 0 : -ENOMEM;
}

/* @t from the @n records of one tensor; they must cover it, once */
static int make_tensor(const struct list *l, const struct record *r, int n, struct dn_ckpt_tensor *t)
{
	const int32_t carries = carries_at(l);
	int64_t at = 0;
	int err = r->tensor < carries ? describe_param(l, r->tensor, t) : describe_carry(l->net->carries[r->tensor - carries], t);

	if (err)
		return err;
	t->intervals = dn_calloc((size_t)n, sizeof(*t->intervals));
	if (!t->intervals)
		return -ENOMEM;
	t->n_intervals = n;
	for (int i = 0; i < n; i++) {
		t->intervals[i] = (struct dn_ckpt_interval){ r[i].start, r[i].length, r[i].file, r[i].offset, r[i].xxh64, false };
		if (r[i].start != at)
			return dn_fail(-EINVAL, "checkpoint: tensor %s: elements %" PRId64 " to %" PRId64 " are owned by %s",
				       t->name, at < r[i].start ? at : r[i].start, at < r[i].start ? r[i].start : at,
				       at < r[i].start ? "no rank" : "two ranks");
		at += r[i].length;
	}
	if (at != t->n)
		return dn_fail(-EINVAL, "checkpoint: tensor %s: elements %" PRId64 " to %" PRId64 " are owned by no rank",
			       t->name, at, t->n);
	return 0;
}

static int make_tensors(const struct list *l, struct record *r, int n, struct dn_ckpt_tensor *tensors, int *n_tensors)
{
	const int wanted = l->net->n_params + (l->net->opt.train ? l->net->n_carries : 0);
	int n_values = 0, err = 0;

	if (n > 1)
		qsort(r, (size_t)n, sizeof(*r), by_tensor);
	for (int i = 0; i < n && !err;) {
		int k = i + 1;

		while (k < n && r[k].tensor == r[i].tensor)
			k++;
		n_values += r[i].tensor >= carries_at(l) || r[i].tensor % l->n_parts == 0;
		err = make_tensor(l, r + i, k - i, &tensors[(*n_tensors)++]);
		i = k;
	}
	if (!err && n_values != wanted)
		return dn_fail(-EINVAL, "checkpoint: %d of %d tensors are owned by no rank", wanted - n_values, wanted);
	return err;
}

static int write_meta(const struct list *l, const char *tmp, const struct dn_ckpt_state *s, const struct dn_group *g,
		      struct record *r, int n, int64_t *bytes)
{
	const struct dn_net *net = l->net;
	struct dn_store_report report;
	struct dn_ckpt_head head = {
		.state = *s,
		.cfg_text = net->cfg->file->text,
		.optimizer = dn_optimizer_name(net->hyper.optimizer),
		.world = g->world,
		.legacy_bn = net->opt.legacy_bn && !ckpt_legacy_bn(net->cfg),
	};
	struct dn_ckpt_tensor *tensors;
	struct dn_buf text = { 0 };
	struct dn_ckpt_file *files;
	char path[CKPT_PATH_MAX];
	struct dn_out o;
	int n_tensors = 0, err;

	files = dn_calloc((size_t)net->n_layers, sizeof(*files));
	if (!files)
		return -ENOMEM;
	for (int i = 0; i < net->n_layers; i++)
		if (net->layers[i].file_hash)
			files[head.n_files++] = (struct dn_ckpt_file){ i, net->layers[i].file_hash };
	head.files = files;
	tensors = dn_calloc((size_t)carries_at(l) + (size_t)net->n_carries, sizeof(*tensors));
	if (!tensors) {
		dn_free(files);
		return -ENOMEM;
	}
	net->store.ops->report(net->store.self, &report);
	head.replicas = report.replicas;
	head.shards = g->world / report.replicas;
	err = make_tensors(l, r, n, tensors, &n_tensors);
	if (!err)
		err = dn_ckpt_meta(&text, &head, n_tensors, tensors);
	if (!err)
		err = ckpt_path(path, "%s/meta.json", tmp);
	if (!err)
		err = dn_out_open(&o, path);
	if (!err) {
		err = dn_out_write(&o, text.s, text.n);
		if (!err)
			err = dn_out_commit(&o);
		else
			dn_out_abort(&o);
		*bytes = (int64_t)text.n;
	}
	for (int i = 0; i < n_tensors; i++) {
		dn_free(tensors[i].name);
		dn_free(tensors[i].intervals);
	}
	dn_free(tensors);
	dn_free(files);
	dn_buf_fini(&text);
	return err;
}

/* Everything is written and agreed on: the lists come together, and the step appears. Collective. */
static int publish(struct list *l, const char *dir, const char *tmp, const struct dn_ckpt_state *s, const struct dn_group *g,
		   int64_t *meta_bytes)
{
	char *all = NULL;
	size_t *sizes = NULL, total = 0;
	int err = 0;

	if (g->rank == 0) {
		sizes = dn_calloc((size_t)g->world, sizeof(*sizes));
		err = sizes ? 0 : -ENOMEM;
	}
	err = dn_group_agree(g, err, "checkpoint");
	if (!err)
		err = dn_group_gather(g, l->records, (size_t)l->n * sizeof(*l->records), &all, sizes);
	if (!err && g->rank == 0) {
		for (int r = 0; r < g->world; r++)
			total += sizes[r];
		err = write_meta(l, tmp, s, g, (struct record *)all, (int)(total / sizeof(struct record)), meta_bytes);
		if (!err)
			err = ckpt_publish(dir, s->step, s->run);
	}
	dn_free(all);
	dn_free(sizes);
	return err;
}

/* What crashed saves left goes first, so that its space counts as free. */
static int prepare(const char *dir, const char *tmp)
{
	int err;

	err = dn_make_dirs(dir);
	if (!err)
		err = dn_remove_tree(tmp);
	return err ? err : dn_make_dirs(tmp);
}

int dn_ckpt_save(struct dn_net *net, const char *dir, const struct dn_ckpt_state *s, int keep, const struct dn_group *g,
		 int64_t *bytes)
{
	char tmp[CKPT_PATH_MAX];
	struct list l;
	int64_t meta_bytes = 0;
	double sum;
	int err;

	err = list_init(&l, net, g);
	if (err)
		goto out;
	err = ckpt_path(tmp, "%s/%" PRId64 ".tmp", dir, s->step);
	if (!err && g->rank == 0)
		err = prepare(dir, tmp);
	err = dn_group_agree(g, err, "checkpoint");
	if (err)
		goto out;
	err = dn_group_agree(g, write_file(&l, tmp, g->rank), "writing a checkpoint");
	if (!err)
		err = dn_group_agree(g, publish(&l, dir, tmp, s, g, &meta_bytes), "publishing a checkpoint");
	if (err) {
		if (g->rank == 0) {
			char kept[512]; /* the message that matters is not the one of cleaning up */

			snprintf(kept, sizeof(kept), "%s", dn_message());
			if (dn_remove_tree(tmp))
				dn_warn("%s", dn_message());
			dn_fail(err, "%s", kept);
		}
		goto out;
	}
	if (g->rank == 0 && ckpt_prune(dir, s->step, s->run, keep))
		dn_warn("removing old checkpoints: %s", dn_message());
	sum = (double)(l.bytes + meta_bytes);
	err = dn_group_sum(g, &sum, 1);
	if (!err && bytes)
		*bytes = (int64_t)sum;
out:
	list_fini(&l);
	return err;
}
