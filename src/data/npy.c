/* NumPy arrays in .npy files: read through a mapping, written whole or not at all. */
#include "data/array_priv.h"
#include "data/npy.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

static const char *const wanted = "a NumPy file";

static const struct {
	const char *descr;
	char dtype;
	enum data_type type;
} dtypes[] = {
	{ "<f4", 'f', DATA_F32 },
	{ "|u1", 'u', DATA_U8 },
	{ "<i4", 'i', DATA_I32 },
	{ "<i8", 'l', DATA_I64 },
};
#define N_DTYPES ((int)(sizeof(dtypes) / sizeof(dtypes[0])))

/* The header is the text of a Python dictionary; its three keys may come in any order, once each. */
struct header {
	const char *path;
	const char *at, *end;
	char descr[16];
	bool fortran;
	bool have_descr, have_order, have_shape;
	int n_dims;
	int64_t shape[DATA_MAX_DIMS];
};

static int bad(const struct header *h, const char *what)
{
	int n = (int)(h->end - h->at < 20 ? h->end - h->at : 20);
	char near[24];

	for (int i = 0; i < n; i++)
		near[i] = h->at[i] >= 32 && h->at[i] < 127 ? h->at[i] : '?';
	near[n] = '\0';
	return dn_fail(-EINVAL, DATA_PATH ": damaged NumPy header: %s at \"%s\"", h->path, what, near);
}

static void blanks(struct header *h)
{
	while (h->at < h->end && (*h->at == ' ' || *h->at == '\t' || *h->at == '\n' || *h->at == '\r'))
		h->at++;
}

/* Takes @c, blanks before it skipped. */
static bool take(struct header *h, char c)
{
	blanks(h);
	if (h->at == h->end || *h->at != c)
		return false;
	h->at++;
	return true;
}

static bool take_word(struct header *h, const char *word)
{
	size_t n = strlen(word);

	blanks(h);
	if ((size_t)(h->end - h->at) < n || memcmp(h->at, word, n))
		return false;
	h->at += n;
	return true;
}

/* 'text' or "text", without escapes; cut at @cap, which no text that we know reaches. */
static int take_string(struct header *h, char *out, size_t cap)
{
	const char *close;
	size_t n;
	char quote;

	blanks(h);
	if (h->at == h->end || (*h->at != '\'' && *h->at != '"'))
		return bad(h, "a text in quotes is due");
	quote = *h->at;
	close = memchr(h->at + 1, quote, (size_t)(h->end - h->at - 1));
	if (!close)
		return bad(h, "a quote is not closed");
	n = (size_t)(close - h->at - 1);
	if (n > cap - 1)
		n = cap - 1;
	memcpy(out, h->at + 1, n);
	out[n] = '\0';
	h->at = close + 1;
	return 0;
}

static int take_dim(struct header *h, int64_t *out)
{
	int64_t x = 0;

	blanks(h);
	if (h->at == h->end || *h->at < '0' || *h->at > '9')
		return bad(h, "a size is due");
	for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++)
		if (__builtin_mul_overflow(x, 10, &x) || __builtin_add_overflow(x, *h->at - '0', &x))
			return bad(h, "a size that does not fit 64 bits, before");
	*out = x;
	return 0;
}

/* (), (3,), (3, 4), (3, 4,); "(3)" is no tuple */
static int take_shape(struct header *h)
{
	bool comma = true;
	int n = 0;
	int err;

	if (!take(h, '('))
		return bad(h, "a shape such as (3, 4) is due");
	while (!take(h, ')')) {
		if (!comma)
			return bad(h, "a comma is due");
		if (n == DATA_MAX_DIMS)
			return dn_fail(-EINVAL, DATA_PATH ": more than %d dimensions", h->path, DATA_MAX_DIMS);
		err = take_dim(h, &h->shape[n]);
		if (err)
			return err;
		n++;
		comma = take(h, ',');
	}
	if (n == 1 && !comma)
		return bad(h, "the comma of a one-element shape is missing, before");
	h->n_dims = n;
	return 0;
}

static int take_entry(struct header *h)
{
	char key[16];
	bool *have;
	int err = take_string(h, key, sizeof(key));

	if (err)
		return err;
	if (!take(h, ':'))
		return bad(h, "a colon is due");
	if (!strcmp(key, "descr"))
		have = &h->have_descr;
	else if (!strcmp(key, "fortran_order"))
		have = &h->have_order;
	else if (!strcmp(key, "shape"))
		have = &h->have_shape;
	else
		return bad(h, "a key that is not descr, fortran_order or shape, before");
	if (*have)
		return bad(h, "a key that was there before, before");
	*have = true;
	if (have == &h->have_shape)
		return take_shape(h);
	if (have == &h->have_order) {
		h->fortran = take_word(h, "True");
		return h->fortran || take_word(h, "False") ? 0 : bad(h, "True or False is due");
	}
	blanks(h);
	if (h->at < h->end && *h->at == '[')
		return dn_fail(-EINVAL, DATA_PATH ": a structured array; wanted a plain one of float32, uint8, int32 or int64",
			       h->path);
	return take_string(h, h->descr, sizeof(h->descr));
}

static int parse_dict(struct header *h)
{
	bool comma = true;
	int err;

	if (!take(h, '{'))
		return bad(h, "a { is due");
	while (!take(h, '}')) {
		if (!comma)
			return bad(h, "a comma is due");
		err = take_entry(h);
		if (err)
			return err;
		comma = take(h, ',');
	}
	blanks(h);
	if (h->at < h->end)
		return bad(h, "text after the }");
	if (!h->have_descr || !h->have_order || !h->have_shape)
		return dn_fail(-EINVAL, DATA_PATH ": damaged NumPy header: %s is missing", h->path,
			       !h->have_descr	? "descr"
			       : !h->have_order ? "fortran_order"
						: "shape");
	return 0;
}

/* What the header says, and that the file has just these bytes. */
static int check_array(struct dn_npy *a, const struct header *h, size_t data_at)
{
	size_t bytes = 1;
	size_t has = a->map_bytes - data_at;
	char shape[220];
	int k = 0;

	while (k < N_DTYPES && strcmp(h->descr, dtypes[k].descr))
		k++;
	if (k == N_DTYPES)
		return dn_fail(-EINVAL,
			       DATA_PATH ": elements of type '%s'; read are '<f4' (float32), '|u1' (uint8), "
					 "'<i4' (int32) and '<i8' (int64)",
			       h->path, h->descr);
	data_shape_text(h->n_dims, h->shape, shape, sizeof(shape));
	if (h->fortran)
		return dn_fail(-EINVAL, DATA_PATH ": in Fortran order, wanted C order (numpy.ascontiguousarray makes it)",
			       h->path);
	for (int i = 0; i < h->n_dims; i++)
		if (__builtin_mul_overflow(bytes, (size_t)h->shape[i], &bytes) || bytes > INT64_MAX / 8)
			return dn_fail(-EOVERFLOW, DATA_PATH ": its shape %s does not fit 64 bits", h->path, shape);
	a->n = (int64_t)bytes;
	a->dtype = dtypes[k].dtype;
	a->item_bytes = data_type_bytes(dtypes[k].type);
	bytes *= a->item_bytes;
	if (bytes != has)
		return dn_fail(-EINVAL, DATA_PATH ": %s: %zu bytes of elements, its header (%s of %s) says %zu", h->path,
			       has < bytes ? "truncated" : "surplus bytes", has, shape, data_type_name(dtypes[k].type), bytes);
	a->n_dims = h->n_dims;
	memcpy(a->shape, h->shape, sizeof(a->shape));
	a->data = (const char *)a->map + data_at;
	return 0;
}

static int parse_file(struct dn_npy *a, const char *path)
{
	const unsigned char *p = a->map;
	struct header h = { .path = path };
	size_t head = 10, text;
	int err;

	if (a->map_bytes < 6 || memcmp(p, "\x93NUMPY", 6))
		return data_fail_kind(path, wanted, p, a->map_bytes);
	if (a->map_bytes < 10)
		return dn_fail(-EINVAL, DATA_PATH ": truncated: %zu bytes are no NumPy header", path, a->map_bytes);
	if (p[6] < 1 || p[6] > 3 || p[7])
		return dn_fail(-EINVAL, DATA_PATH ": NumPy format %d.%d, read are 1.0, 2.0 and 3.0", path, p[6], p[7]);
	text = p[8] | (size_t)p[9] << 8;
	if (p[6] > 1) {
		head = 12;
		if (a->map_bytes < head)
			return dn_fail(-EINVAL, DATA_PATH ": truncated: %zu bytes are no NumPy header", path, a->map_bytes);
		text |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
	}
	if (text > a->map_bytes - head)
		return dn_fail(-EINVAL, DATA_PATH ": truncated: a header of %zu bytes in a file of %zu", path, text,
			       a->map_bytes);
	h.at = (const char *)p + head;
	h.end = h.at + text;
	err = parse_dict(&h);
	if (err)
		return err;
	return check_array(a, &h, head + text);
}

int dn_npy_open(struct dn_npy *out, const char *path)
{
	struct dn_npy a = { 0 };
	int err = data_map(path, &a.map, &a.map_bytes);

	if (err)
		return err;
	err = parse_file(&a, path);
	if (err) {
		dn_npy_close(&a);
		return err;
	}
	*out = a;
	return 0;
}

void dn_npy_close(struct dn_npy *a)
{
	data_unmap(a->map, a->map_bytes);
	*a = (struct dn_npy){ 0 };
}

/* The view that the other files of this room read through; borrows the mapping. */
static struct data_array view(const struct dn_npy *a)
{
	struct data_array v = { .n_dims = a->n_dims, .n = a->n, .bytes = (size_t)a->n * a->item_bytes, .data = a->data };
	int k = 0;

	while (k < N_DTYPES - 1 && dtypes[k].dtype != a->dtype)
		k++;
	v.type = dtypes[k].type;
	memcpy(v.shape, a->shape, sizeof(v.shape));
	return v;
}

float dn_npy_float(const struct dn_npy *a, int64_t i, bool scale)
{
	struct data_array v = view(a);
	float x;

	assert(i >= 0 && i < a->n);
	data_floats(&v, i, 1, scale, &x);
	return x;
}

int npy_array_open(struct data_array *out, const char *path)
{
	struct dn_npy a = { 0 };
	int err = dn_npy_open(&a, path);

	if (err)
		return err;
	*out = view(&a);
	out->map = a.map;
	out->map_bytes = a.map_bytes;
	return 0;
}

int dn_npy_write(const char *path, int n_dims, const int64_t *shape, const float *x)
{
	static const char zeros[2] = { 0, 0 };
	struct dn_buf b = { 0 };
	struct dn_out o = { 0 };
	size_t bytes = sizeof(float);
	size_t text;
	char len[2];
	int err = 0;

	if (n_dims < 0 || n_dims > DATA_MAX_DIMS)
		return dn_fail(-EINVAL, DATA_PATH ": cannot write %d dimensions, at most %d", path, n_dims, DATA_MAX_DIMS);
	for (int i = 0; i < n_dims && !err; i++)
		err = shape[i] < 0 ? dn_fail(-EINVAL, DATA_PATH ": cannot write a size of %lld", path, (long long)shape[i])
				   : dn_mul_size(bytes, (size_t)shape[i], &bytes);
	if (!err)
		err = dn_buf_add(&b, "\x93NUMPY\x01", 7);
	if (!err)
		err = dn_buf_add(&b, zeros, 1); /* minor version */
	if (!err)
		err = dn_buf_add(&b, "  ", 2); /* length of the text, put below */
	if (!err)
		err = dn_buf_printf(&b, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
	for (int i = 0; i < n_dims && !err; i++)
		err = dn_buf_printf(&b, n_dims == 1 ? "%lld," : i ? ", %lld" : "%lld", (long long)shape[i]);
	if (!err)
		err = dn_buf_printf(&b, "), }");
	/* elements start on 64 bytes, as NumPy writes it: a mapping is then aligned */
	while (!err && b.n % 64 != 63)
		err = dn_buf_add(&b, " ", 1);
	if (!err)
		err = dn_buf_add(&b, "\n", 1);
	if (err)
		goto out;
	text = b.n - 10;
	len[0] = (char)(text & 0xff);
	len[1] = (char)(text >> 8);
	memcpy(b.s + 8, len, 2);
	err = dn_out_open(&o, path);
	if (!err)
		err = dn_out_write(&o, b.s, b.n);
	if (!err)
		err = dn_out_write(&o, x, bytes);
	if (!err)
		err = dn_out_commit(&o);
	else
		dn_out_abort(&o);
out:
	dn_buf_fini(&b);
	return err;
}
