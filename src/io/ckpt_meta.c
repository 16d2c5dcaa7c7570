/* meta.json of a checkpoint: writing it, and reading one that may be damaged or hostile. */
#include <cjson/cJSON.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/ckpt_priv.h"
#include "io/json.h"

#define RUN_KEY ",\"run\":\""
#define EXACT 9007199254740992.0 /* 2^53: JSON numbers are doubles */

static const char *const kind_names[] = { "param", "buffer", "state", "ema", "carry" };

const char *dn_ckpt_kind_name(enum dn_ckpt_kind k)
{
	return kind_names[k];
}

static int by_start(const void *a, const void *b)
{
	const struct dn_ckpt_interval *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static void sort_intervals(struct dn_ckpt_interval *iv, int n)
{
	if (n > 1)
		qsort(iv, (size_t)n, sizeof(*iv), by_start);
}

/* --- writing --- */

/* What the checksum "check" is over: everything that no checksum of an interval covers and that a run continues from. */
static int add_head(struct dn_buf *b, const struct dn_ckpt_head *h)
{
	const struct dn_ckpt_state *s = &h->state;
	int err;

	err = dn_buf_printf(b, "\"step\":%" PRId64 ",\"seen\":", s->step);
	if (!err)
		err = dn_json_u64(b, s->seen);
	if (!err)
		err = dn_buf_printf(b, ",\"seed\":");
	if (!err)
		err = dn_json_u64(b, s->seed);
	if (!err)
		err = dn_buf_printf(b, ",\"batch\":%" PRId64 ",\"subdivisions\":%" PRId64 ",\"optimizer\":", s->batch,
				    s->subdivisions);
	if (!err)
		err = dn_json_text(b, h->optimizer);
	if (!err)
		err = dn_buf_printf(b, ",\"data\":{\"list\":");
	if (!err)
		err = dn_json_text(b, s->data_list);
	if (!err)
		err = dn_buf_printf(b, ",\"length\":%" PRId64 ",\"hash\":\"%016" PRIx64 "\"},\"cfg\":", s->data_length,
				    s->data_hash);
	return err ? err : dn_json_text(b, h->cfg_text);
}

static int add_tensor(struct dn_buf *b, const struct dn_ckpt_tensor *t)
{
	int err;

	err = dn_buf_printf(b, "{\"name\":");
	if (!err)
		err = dn_json_text(b, t->name);
	if (!err)
		err = dn_buf_printf(b, ",\"shape\":[");
	for (int i = 0; i < t->n_dims && !err; i++)
		err = dn_buf_printf(b, "%s%" PRId64, i ? "," : "", t->shape[i]);
	if (!err)
		err = dn_buf_printf(b, "],\"dtype\":\"float32\",\"kind\":\"%s\"%s,\"intervals\":[", kind_names[t->kind],
				    t->frozen ? ",\"frozen\":true" : "");
	for (int i = 0; i < t->n_intervals && !err; i++) {
		const struct dn_ckpt_interval *v = &t->intervals[i];

		err = dn_buf_printf(b,
				    "%s{\"start\":%" PRId64 ",\"length\":%" PRId64 ",\"file\":\"rank-%d.bin\",\"offset\":%" PRId64
				    ",\"xxh64\":\"%016" PRIx64 "\"}",
				    i ? "," : "", v->start, v->length, v->file, v->offset, v->xxh64);
	}
	return err ? err : dn_buf_printf(b, "]}");
}

int dn_ckpt_meta(struct dn_buf *out, const struct dn_ckpt_head *h, int n, const struct dn_ckpt_tensor *tensors)
{
	struct dn_buf head = { 0 };
	int err;

	err = add_head(&head, h);
	if (!err)
		err = dn_buf_printf(out, "{\"v\":1");
	if (!err && h->state.run)
		err = dn_buf_printf(out, RUN_KEY "%016" PRIx64 "\"", h->state.run);
	if (!err && h->legacy_bn)
		err = dn_buf_printf(out, ",\"legacy_bn\":true");
	for (int i = 0; i < h->n_files && !err; i++)
		err = dn_buf_printf(out, "%s{\"layer\":%d,\"xxh64\":\"%016" PRIx64 "\"}%s", i ? "," : ",\"files\":[",
				    h->files[i].layer, h->files[i].hash, i + 1 == h->n_files ? "]" : "");
	if (!err && *h->state.shuffle) {
		err = dn_buf_printf(out, ",\"shuffle\":");
		if (!err)
			err = dn_json_text(out, h->state.shuffle);
	}
	if (!err && h->state.loss_scale > 0)
		err = dn_buf_printf(out, ",\"loss_scale\":%.17g,\"good_steps\":%" PRId64, h->state.loss_scale,
				    h->state.good_steps);
	if (!err)
		err = dn_buf_printf(out,
				    ",\"world\":%d,\"mesh\":{\"replicas\":%d,\"shards\":%d},%s,\"check\":\"%016" PRIx64
				    "\",\n\"tensors\":[",
				    h->world, h->replicas, h->shards, head.s, dn_hash(head.s, head.n));
	for (int i = 0; i < n && !err; i++) {
		err = dn_buf_printf(out, "%s\n", i ? "," : "");
		if (!err)
			err = add_tensor(out, &tensors[i]);
	}
	if (!err)
		err = dn_buf_printf(out, "\n]}\n");
	dn_buf_fini(&head);
	return err;
}

/* --- reading --- */

static int bad(const struct dn_ckpt *c, const char *tensor, const char *what)
{
	return tensor ? dn_fail(-EINVAL, "%s/meta.json: tensor %s: %s", c->dir, tensor, what)
		      : dn_fail(-EINVAL, "%s/meta.json: %s", c->dir, what);
}

static int bad_field(const struct dn_ckpt *c, const char *tensor, const char *key, const char *want)
{
	char text[160];

	snprintf(text, sizeof(text), "\"%s\" is missing or is not %s", key, want);
	return bad(c, tensor, text);
}

static bool whole(const cJSON *j, double min, double max, int64_t *out)
{
	if (!cJSON_IsNumber(j) || !(j->valuedouble >= min) || !(j->valuedouble <= max) || floor(j->valuedouble) != j->valuedouble)
		return false;
	*out = (int64_t)j->valuedouble;
	return true;
}

static int get_int(const struct dn_ckpt *c, const char *tensor, const cJSON *o, const char *key, double min, double max,
		   int64_t *out)
{
	if (whole(cJSON_GetObjectItemCaseSensitive(o, key), min, max, out))
		return 0;
	return bad_field(c, tensor, key, "a whole number in its range");
}

static int get_u64(const struct dn_ckpt *c, const cJSON *o, const char *key, uint64_t *out)
{
	const cJSON *j = cJSON_GetObjectItemCaseSensitive(o, key);
	int64_t small;
	char *end;

	if (whole(j, 0, EXACT, &small)) {
		*out = (uint64_t)small;
		return 0;
	}
	if (cJSON_IsString(j) && isdigit((unsigned char)j->valuestring[0]) && strlen(j->valuestring) <= 20) {
		unsigned long long x;

		errno = 0;
		x = strtoull(j->valuestring, &end, 10);
		if (!errno && !*end) {
			*out = x;
			return 0;
		}
	}
	return bad_field(c, NULL, key, "a whole number or its digits as text");
}

static int get_hash(const struct dn_ckpt *c, const char *tensor, const cJSON *o, const char *key, uint64_t *out)
{
	const cJSON *j = cJSON_GetObjectItemCaseSensitive(o, key);

	if (!cJSON_IsString(j) || strlen(j->valuestring) != 16 || strspn(j->valuestring, "0123456789abcdefABCDEF") != 16)
		return bad_field(c, tensor, key, "16 hexadecimal digits");
	*out = strtoull(j->valuestring, NULL, 16);
	return 0;
}

static int get_text(const struct dn_ckpt *c, const char *tensor, const cJSON *o, const char *key, const char **out)
{
	const cJSON *j = cJSON_GetObjectItemCaseSensitive(o, key);

	if (!cJSON_IsString(j))
		return bad_field(c, tensor, key, "a text");
	*out = j->valuestring;
	return 0;
}

/* The checksum is ours to add: a meta.json without it, written by another tool, is fine. */
static int check_head(const struct dn_ckpt *c, const cJSON *root)
{
	struct dn_buf head = { 0 };
	uint64_t want;
	int err;

	if (!cJSON_GetObjectItemCaseSensitive(root, "check"))
		return 0;
	err = get_hash(c, NULL, root, "check", &want);
	if (!err)
		err = add_head(&head, &c->head);
	if (!err && dn_hash(head.s, head.n) != want)
		err = bad(c, NULL,
			  "step, seen, seed, batch, data, optimizer or cfg do not have the checksum in \"check\": damaged");
	dn_buf_fini(&head);
	return err;
}

static int parse_mesh(struct dn_ckpt *c, const cJSON *root)
{
	const cJSON *mesh = cJSON_GetObjectItemCaseSensitive(root, "mesh");
	int64_t world, replicas, shards;
	int err;

	err = get_int(c, NULL, root, "world", 1, CKPT_RANKS_MAX, &world);
	if (err)
		return err;
	if (!cJSON_IsObject(mesh))
		return bad_field(c, NULL, "mesh", "an object");
	err = get_int(c, NULL, mesh, "replicas", 1, CKPT_RANKS_MAX, &replicas);
	if (!err)
		err = get_int(c, NULL, mesh, "shards", 1, CKPT_RANKS_MAX, &shards);
	if (err)
		return err;
	c->head.world = (int)world;
	c->head.replicas = (int)replicas;
	c->head.shards = (int)shards;
	return 0;
}

static int parse_files(struct dn_ckpt *c, const cJSON *root)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "files");
	const cJSON *e;

	if (!list)
		return 0;
	if (!cJSON_IsArray(list))
		return bad_field(c, NULL, "files", "a list");
	c->files = dn_calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof(*c->files));
	if (!c->files)
		return -ENOMEM;
	c->head.files = c->files;
	cJSON_ArrayForEach(e, list)
	{
		struct dn_ckpt_file *f = &c->files[c->head.n_files];
		int64_t layer;
		int err = cJSON_IsObject(e) ? get_int(c, NULL, e, "layer", 0, INT32_MAX, &layer)
					    : bad(c, NULL, "an entry of \"files\" is not an object");

		if (!err)
			err = get_hash(c, NULL, e, "xxh64", &f->hash);
		if (err)
			return err;
		f->layer = (int)layer;
		c->head.n_files++;
	}
	return 0;
}

static int parse_head(struct dn_ckpt *c, const cJSON *root)
{
	struct dn_ckpt_state *s = &c->head.state;
	const cJSON *data = cJSON_GetObjectItemCaseSensitive(root, "data");
	const cJSON *scale = cJSON_GetObjectItemCaseSensitive(root, "loss_scale");
	const char *cfg = "", *optimizer = "", *list = "", *shuffle = "";
	int64_t v;
	int err;

	err = get_int(c, NULL, root, "v", 0, EXACT, &v);
	if (err)
		return err;
	if (v != 1)
		return dn_fail(-EINVAL, "%s/meta.json: format version %" PRId64 ", this program reads version 1", c->dir, v);
	if (!cJSON_IsObject(data))
		return bad_field(c, NULL, "data", "an object");
	err = parse_mesh(c, root);
	if (!err)
		err = get_int(c, NULL, root, "step", 0, EXACT, &s->step);
	if (!err)
		err = get_u64(c, root, "seen", &s->seen);
	if (!err)
		err = get_u64(c, root, "seed", &s->seed);
	if (!err)
		err = get_int(c, NULL, root, "batch", 1, EXACT, &s->batch);
	if (!err)
		err = get_int(c, NULL, root, "subdivisions", 1, EXACT, &s->subdivisions);
	if (!err)
		err = get_int(c, NULL, data, "length", 0, EXACT, &s->data_length);
	if (!err)
		err = get_hash(c, NULL, data, "hash", &s->data_hash);
	if (!err && cJSON_GetObjectItemCaseSensitive(root, "run")) /* older ones have none */
		err = get_hash(c, NULL, root, "run", &s->run);
	c->head.legacy_bn = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "legacy_bn"));
	if (!err)
		err = parse_files(c, root);
	if (!err && scale) {
		s->loss_scale = cJSON_IsNumber(scale) ? scale->valuedouble : 0;
		if (!(s->loss_scale >= 1) || !(s->loss_scale <= 0x1p100))
			return bad_field(c, NULL, "loss_scale", "a number from 1 to 2^100");
		err = get_int(c, NULL, root, "good_steps", 0, EXACT, &s->good_steps);
	}
	if (!err && cJSON_GetObjectItemCaseSensitive(root, "shuffle"))
		err = get_text(c, NULL, root, "shuffle", &shuffle);
	if (!err)
		err = get_text(c, NULL, data, "list", &list);
	if (!err)
		err = get_text(c, NULL, root, "optimizer", &optimizer);
	if (!err)
		err = get_text(c, NULL, root, "cfg", &cfg);
	if (err)
		return err;
	if (strlen(list) >= sizeof(s->data_list))
		return bad(c, NULL, "\"list\" is too long");
	strcpy(s->data_list, list);
	if (strlen(shuffle) >= sizeof(s->shuffle))
		return bad(c, NULL, "\"shuffle\" is too long");
	strcpy(s->shuffle, shuffle);
	c->cfg_text = dn_strdup(cfg);
	c->optimizer = dn_strdup(optimizer);
	if (!c->cfg_text || !c->optimizer)
		return -ENOMEM;
	c->head.cfg_text = c->cfg_text;
	c->head.optimizer = c->optimizer;
	return 0;
}

/* "rank-N.bin" and nothing else: no folder, no other spelling of N */
static int file_number(const char *name)
{
	char again[32];
	long n;

	if (strncmp(name, "rank-", 5) || !isdigit((unsigned char)name[5]) || strlen(name) > 16)
		return -1;
	n = strtol(name + 5, NULL, 10);
	if (n < 0 || n >= CKPT_RANKS_MAX)
		return -1;
	snprintf(again, sizeof(again), "rank-%ld.bin", n);
	return strcmp(again, name) ? -1 : (int)n;
}

static int file_size(struct dn_ckpt *c, int file, int64_t *out)
{
	char path[CKPT_PATH_MAX];
	int err;

	if (file >= c->n_files) {
		int64_t *more = dn_realloc(c->file_bytes, (size_t)(file + 1) * sizeof(*more));

		if (!more)
			return -ENOMEM;
		for (int i = c->n_files; i <= file; i++)
			more[i] = -1;
		c->file_bytes = more;
		c->n_files = file + 1;
	}
	if (c->file_bytes[file] < 0) {
		err = ckpt_path(path, "%s/rank-%d.bin", c->dir, file);
		if (!err)
			err = dn_file_size(path, &c->file_bytes[file]);
		if (err)
			return err;
	}
	*out = c->file_bytes[file];
	return 0;
}

static int parse_interval(struct dn_ckpt *c, const struct dn_ckpt_tensor *t, const cJSON *o, struct dn_ckpt_interval *v)
{
	const char *file = "";
	int64_t bytes;
	int err;

	if (!cJSON_IsObject(o))
		return bad(c, t->name, "an interval is not an object");
	err = get_int(c, t->name, o, "start", 0, EXACT, &v->start);
	if (!err)
		err = get_int(c, t->name, o, "length", 1, EXACT, &v->length);
	if (!err)
		err = get_int(c, t->name, o, "offset", 0, EXACT, &v->offset);
	if (!err)
		err = get_hash(c, t->name, o, "xxh64", &v->xxh64);
	if (!err)
		err = get_text(c, t->name, o, "file", &file);
	if (err)
		return err;
	v->file = file_number(file);
	if (v->file < 0)
		return bad(c, t->name, "\"file\" is not of the form rank-N.bin");
	if (v->length > t->n || v->start > t->n - v->length)
		return dn_fail(-EINVAL,
			       "%s/meta.json: tensor %s: elements %" PRId64 " to %" PRId64 " are stored, it has %" PRId64, c->dir,
			       t->name, v->start, v->start + v->length, t->n);
	if (v->offset % CKPT_ALIGN)
		return dn_fail(-EINVAL, "%s/meta.json: tensor %s: offset %" PRId64 " is not a multiple of %d", c->dir, t->name,
			       v->offset, CKPT_ALIGN);
	err = file_size(c, v->file, &bytes);
	if (err)
		return err;
	if (v->length > bytes / 4 || v->offset > bytes - 4 * v->length)
		return dn_fail(-EINVAL,
			       "%s/rank-%d.bin: has %" PRId64 " bytes; tensor %s, elements %" PRId64 " to %" PRId64
			       " should lie at %" PRId64 " to %" PRId64,
			       c->dir, v->file, bytes, t->name, v->start, v->start + v->length, v->offset,
			       v->offset + 4 * v->length);
	return 0;
}

static int parse_intervals(struct dn_ckpt *c, struct dn_ckpt_tensor *t, const cJSON *o)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "intervals");
	const cJSON *e;
	int n, err;

	if (!cJSON_IsArray(list))
		return bad_field(c, t->name, "intervals", "a list");
	n = cJSON_GetArraySize(list);
	t->intervals = dn_calloc((size_t)n, sizeof(*t->intervals));
	if (!t->intervals)
		return -ENOMEM;
	cJSON_ArrayForEach(e, list)
	{
		err = parse_interval(c, t, e, &t->intervals[t->n_intervals]);
		if (err)
			return err;
		t->n_intervals++;
	}
	sort_intervals(t->intervals, n);
	for (int i = 1; i < n; i++) {
		const struct dn_ckpt_interval *a = &t->intervals[i - 1], *b = &t->intervals[i];
		int64_t end = a->start + a->length;

		if (b->start < end)
			return dn_fail(-EINVAL, "%s/meta.json: tensor %s: elements %" PRId64 " to %" PRId64 " are stored twice",
				       c->dir, t->name, b->start, end < b->start + b->length ? end : b->start + b->length);
	}
	return 0;
}

static int parse_shape(struct dn_ckpt *c, struct dn_ckpt_tensor *t, const cJSON *o)
{
	const cJSON *shape = cJSON_GetObjectItemCaseSensitive(o, "shape");
	const cJSON *e;

	if (!cJSON_IsArray(shape))
		return bad_field(c, t->name, "shape", "a list");
	t->n = 1;
	cJSON_ArrayForEach(e, shape)
	{
		int64_t dim;

		if (t->n_dims == (int)(sizeof(t->shape) / sizeof(t->shape[0])))
			return bad(c, t->name, "\"shape\" has more than 8 sizes");
		if (!whole(e, 1, EXACT, &dim) || dim > (int64_t)EXACT / t->n)
			return bad(c, t->name, "\"shape\" has a size that is not a whole number in its range");
		t->shape[t->n_dims++] = dim;
		t->n *= dim;
	}
	return t->n_dims ? 0 : bad(c, t->name, "\"shape\" is empty");
}

static int parse_tensor(struct dn_ckpt *c, const cJSON *o, struct dn_ckpt_tensor *t)
{
	const char *name = "", *dtype = "", *kind = "";
	int k = 0, err;

	if (!cJSON_IsObject(o))
		return bad(c, NULL, "an entry of \"tensors\" is not an object");
	err = get_text(c, NULL, o, "name", &name);
	if (err)
		return err;
	t->name = dn_strdup(name);
	if (!t->name)
		return -ENOMEM;
	err = get_text(c, name, o, "dtype", &dtype);
	if (!err)
		err = get_text(c, name, o, "kind", &kind);
	if (err)
		return err;
	if (strcmp(dtype, "float32"))
		return dn_fail(-EINVAL, "%s/meta.json: tensor %s: dtype %s, this version knows float32", c->dir, name, dtype);
	while (k < DN_CKPT_KINDS && strcmp(kind, kind_names[k]))
		k++;
	if (k == DN_CKPT_KINDS)
		return dn_fail(-EINVAL, "%s/meta.json: tensor %s: kind %s, wanted param, buffer, state, ema or carry", c->dir,
			       name, kind);
	t->kind = (enum dn_ckpt_kind)k;
	t->frozen = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "frozen"));
	err = parse_shape(c, t, o);
	return err ? err : parse_intervals(c, t, o);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct dn_ckpt_tensor *)a)->name, ((const struct dn_ckpt_tensor *)b)->name);
}

static int parse_tensors(struct dn_ckpt *c, const cJSON *root)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "tensors");
	const cJSON *e;
	int n, i = 0, err;

	if (!cJSON_IsArray(list))
		return bad_field(c, NULL, "tensors", "a list");
	n = cJSON_GetArraySize(list);
	c->tensors = dn_calloc((size_t)n, sizeof(*c->tensors));
	if (!c->tensors)
		return -ENOMEM;
	c->n_tensors = n; /* entries are zero until parsed: destroying them is legal */
	cJSON_ArrayForEach(e, list)
	{
		err = parse_tensor(c, e, &c->tensors[i++]);
		if (err)
			return err;
	}
	if (n > 1)
		qsort(c->tensors, (size_t)n, sizeof(*c->tensors), by_name);
	for (i = 1; i < n; i++)
		if (!by_name(&c->tensors[i - 1], &c->tensors[i]))
			return bad(c, c->tensors[i].name, "stands there twice");
	return 0;
}

/* Ours have the id in front, and before there were ids "world" stood there: neither needs more than the first bytes. */
uint64_t ckpt_meta_run(const char *path)
{
	static const char ours[] = "{\"v\":1" RUN_KEY, older[] = "{\"v\":1,\"world\":";
	char head[sizeof(ours) + 17] = "";
	const cJSON *run;
	uint64_t id = 0;
	char *text;
	cJSON *root;
	size_t n;
	FILE *f = fopen(path, "re");

	if (!f)
		return 0;
	n = fread(head, 1, sizeof(head) - 1, f);
	(void)fclose(f); /* nothing was written */
	head[n] = '\0';
	if (!strncmp(head, older, sizeof(older) - 1))
		return 0;
	if (!strncmp(head, ours, sizeof(ours) - 1) && strspn(head + sizeof(ours) - 1, "0123456789abcdef") == 16)
		return strtoull(head + sizeof(ours) - 1, NULL, 16);
	if (dn_file_read(path, CKPT_META_MAX, &text, &n))
		return 0;
	root = cJSON_Parse(text);
	run = cJSON_GetObjectItemCaseSensitive(root, "run");
	if (cJSON_IsString(run) && strlen(run->valuestring) == 16 && strspn(run->valuestring, "0123456789abcdefABCDEF") == 16)
		id = strtoull(run->valuestring, NULL, 16);
	cJSON_Delete(root);
	dn_free(text);
	return id;
}

int ckpt_meta_parse(struct dn_ckpt *c, const char *text, size_t n)
{
	const char *end = NULL;
	cJSON *root;
	int err;

	if (strlen(text) != n)
		return bad(c, NULL, "has a zero byte: damaged");
	root = cJSON_ParseWithOpts(text, &end, 1);
	if (!root)
		return dn_fail(-EINVAL, "%s/meta.json: is not JSON from byte %td on", c->dir, end ? end - text : (ptrdiff_t)0);
	if (!cJSON_IsObject(root))
		err = bad(c, NULL, "is not an object");
	else
		err = parse_head(c, root);
	if (!err)
		err = parse_tensors(c, root);
	if (!err)
		err = check_head(c, root);
	cJSON_Delete(root);
	return err;
}
