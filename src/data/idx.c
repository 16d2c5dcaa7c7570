/* IDX files (the format of MNIST), plain in a mapping or gzip unpacked in memory. Big-endian.
 *
 * Bytes 0 0 type n_dims, then n_dims sizes of 32 bits, then the elements. Neither form allocates or reads
 * more than its header announces, and the header is believed only as far as the file's size bears it out.
 */
#include "data/array_priv.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#include "base/mem.h"
#include "base/status.h"

#define MAX_UNPACKED ((uint64_t)16 << 30)
#define MAX_RATIO 1100u /* deflate makes at most 1032 bytes of one */
#define MAX_IDX_DIMS 4
#define MAX_HEADER (4 + 4 * MAX_IDX_DIMS)

static const char *const wanted = "an IDX file";

static int type_of(unsigned code, enum data_type *out)
{
	switch (code) {
	case 0x08:
		*out = DATA_U8;
		return 0;
	case 0x09:
		*out = DATA_I8;
		return 0;
	case 0x0b:
		*out = DATA_I16;
		return 0;
	case 0x0c:
		*out = DATA_I32;
		return 0;
	case 0x0d:
		*out = DATA_F32;
		return 0;
	case 0x0e:
		*out = DATA_F64;
		return 0;
	}
	return -EINVAL;
}

static uint32_t big32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Type, shape and size from the first @n bytes; *total = header and elements. */
static int parse_header(struct data_array *a, const char *path, const unsigned char *p, size_t n, uint64_t *total)
{
	uint64_t elements = 1;
	char shape[120];
	int dims;

	if (n < 4 && n > 0 && !p[0])
		return dn_fail(-EINVAL, DATA_PATH ": truncated: %zu bytes are no IDX header", path, n);
	if (n < 4 || p[0] || p[1])
		return data_fail_kind(path, wanted, p, n);
	if (type_of(p[2], &a->type))
		return dn_fail(-EINVAL,
			       DATA_PATH ": not an IDX file: its type is 0x%02x, types are 08 (uint8), 09 (int8), "
					 "0b (int16), 0c (int32), 0d (float32) and 0e (float64)",
			       path, p[2]);
	dims = p[3];
	if (dims < 1 || dims > MAX_IDX_DIMS)
		return dn_fail(-EINVAL, DATA_PATH ": an IDX file of %d dimensions, wanted 1 to %d", path, dims, MAX_IDX_DIMS);
	if (n < 4 + 4 * (size_t)dims)
		return dn_fail(-EINVAL, DATA_PATH ": truncated: %zu bytes, the IDX header of %d dimensions takes %d", path, n,
			       dims, 4 + 4 * dims);
	a->n_dims = dims;
	for (int i = 0; i < dims; i++)
		a->shape[i] = big32(p + 4 + 4 * i);
	data_shape_text(dims, a->shape, shape, sizeof(shape));
	for (int i = 0; i < dims; i++) {
		if (!a->shape[i])
			return dn_fail(-EINVAL, DATA_PATH ": its shape %s has no elements", path, shape);
		if (__builtin_mul_overflow(elements, (uint64_t)a->shape[i], &elements))
			return dn_fail(-EOVERFLOW, DATA_PATH ": its shape %s does not fit 64 bits", path, shape);
	}
	if (elements > (uint64_t)INT64_MAX / 16)
		return dn_fail(-EOVERFLOW, DATA_PATH ": its shape %s does not fit 64 bits", path, shape);
	a->big_endian = true;
	a->n = (int64_t)elements;
	a->bytes = (size_t)elements * data_type_bytes(a->type);
	*total = a->bytes + 4 + 4 * (uint64_t)dims;
	return 0;
}

/* @has: bytes that there are, at least */
static int size_fail(const struct data_array *a, const char *path, uint64_t has, uint64_t total)
{
	char shape[120];

	return dn_fail(-EINVAL, DATA_PATH ": %s: %llu bytes, its header (%s of %s) says %llu", path,
		       has < total ? "truncated" : "surplus bytes", (unsigned long long)has,
		       data_shape_text(a->n_dims, a->shape, shape, sizeof(shape)), data_type_name(a->type),
		       (unsigned long long)total);
}

static void *z_alloc(void *opaque, unsigned n, unsigned size)
{
	return dn_calloc(n, size);
}

static void z_free(void *opaque, void *p)
{
	dn_free(p);
}

struct unpack {
	z_stream z;
	const char *path;
	const unsigned char *at; /* packed bytes not given to zlib yet */
	size_t left;
	bool end; /* the last member is through */
};

/* The end of a member: another one, or padding with zeros, may follow. */
static int unpack_member_end(struct unpack *u)
{
	const unsigned char *p = u->at - u->z.avail_in;
	size_t n = u->left + u->z.avail_in;

	if (n >= 2 && p[0] == 0x1f && p[1] == 0x8b) {
		if (inflateReset(&u->z) != Z_OK)
			return dn_fail(-EIO, DATA_PATH ": zlib failed between two members", u->path);
		return 0;
	}
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return dn_fail(-EINVAL, DATA_PATH ": surplus bytes: %zu after the end of the gzip data", u->path, n);
	u->end = true;
	return 0;
}

/* Up to @n bytes; *got below @n only at the end of the data. */
static int unpack_read(struct unpack *u, unsigned char *out, size_t n, size_t *got)
{
	size_t done = 0;

	while (done < n && !u->end) {
		size_t room = n - done < (1u << 30) ? n - done : 1u << 30;
		int z;

		if (!u->z.avail_in && u->left) {
			u->z.avail_in = u->left < (1u << 30) ? (unsigned)u->left : 1u << 30;
			u->z.next_in = (unsigned char *)u->at; /* zlib reads only */
			u->at += u->z.avail_in;
			u->left -= u->z.avail_in;
		}
		u->z.next_out = out + done;
		u->z.avail_out = (unsigned)room;
		z = inflate(&u->z, Z_NO_FLUSH);
		done += room - u->z.avail_out;
		if (z == Z_STREAM_END) {
			int err = unpack_member_end(u);

			if (err)
				return err;
		} else if (z == Z_MEM_ERROR) {
			return -ENOMEM; /* z_alloc has recorded the size */
		} else if (z == Z_BUF_ERROR && !u->z.avail_in && !u->left) {
			return dn_fail(-EINVAL, DATA_PATH ": truncated: the gzip data end too early", u->path);
		} else if (z != Z_OK) {
			return dn_fail(-EINVAL, DATA_PATH ": the gzip data are damaged: %s", u->path,
				       u->z.msg ? u->z.msg : "unknown fault");
		}
	}
	*got = done;
	return 0;
}

static int unpack_array(struct data_array *a, struct unpack *u, size_t packed)
{
	unsigned char head[MAX_HEADER];
	unsigned char more;
	size_t got = 0, head_bytes, k = 0;
	uint64_t total = 0;
	int err = unpack_read(u, head, sizeof(head), &got);

	if (!err)
		err = parse_header(a, u->path, head, got, &total);
	if (err)
		return err;
	if (total > MAX_UNPACKED)
		return dn_fail(-EFBIG,
			       DATA_PATH ": its header says %llu unpacked bytes, at most %llu are read from a gzip file; "
					 "unpack it",
			       u->path, (unsigned long long)total, (unsigned long long)MAX_UNPACKED);
	if (total / MAX_RATIO > packed)
		return dn_fail(-EINVAL,
			       DATA_PATH ": truncated: its header says %llu unpacked bytes, which %zu packed bytes cannot "
					 "hold",
			       u->path, (unsigned long long)total, packed);
	if (total < got)
		return size_fail(a, u->path, got, total);
	a->owned = dn_alloc((size_t)total);
	if (!a->owned)
		return -ENOMEM;
	memcpy(a->owned, head, got);
	err = unpack_read(u, (unsigned char *)a->owned + got, (size_t)total - got, &k);
	if (err)
		return err;
	if (got + k < total)
		return size_fail(a, u->path, got + k, total);
	/* one byte more tells whether there is more; reaching the end also checks the sum over the data */
	err = unpack_read(u, &more, 1, &k);
	if (err)
		return err;
	if (k)
		return size_fail(a, u->path, total + 1, total);
	head_bytes = (size_t)total - a->bytes;
	a->data = (unsigned char *)a->owned + head_bytes;
	return 0;
}

static int open_gzip(struct data_array *a, const char *path, const unsigned char *p, size_t n)
{
	struct unpack u = { .path = path, .at = p, .left = n };
	int err;
	int z;

	u.z.zalloc = z_alloc;
	u.z.zfree = z_free;
	z = inflateInit2(&u.z, 16 + MAX_WBITS);
	if (z == Z_MEM_ERROR)
		return -ENOMEM; /* z_alloc has recorded the size */
	if (z != Z_OK)
		return dn_fail(-EIO, DATA_PATH ": cannot start zlib: error %d", path, z);
	err = unpack_array(a, &u, n);
	inflateEnd(&u.z);
	return err;
}

int idx_open(struct data_array *out, const char *path)
{
	struct data_array a = { 0 };
	const unsigned char *p;
	uint64_t total = 0;
	int err = data_map(path, &a.map, &a.map_bytes);

	if (err)
		return err;
	p = a.map;
	if (a.map_bytes >= 2 && p[0] == 0x1f && p[1] == 0x8b) {
		err = open_gzip(&a, path, p, a.map_bytes);
		data_unmap(a.map, a.map_bytes);
		a.map = NULL;
	} else {
		err = parse_header(&a, path, p, a.map_bytes, &total);
		if (!err && total != a.map_bytes)
			err = size_fail(&a, path, a.map_bytes, total);
		if (!err)
			a.data = p + (total - a.bytes);
	}
	if (err) {
		data_array_close(&a);
		return err;
	}
	*out = a;
	return 0;
}
