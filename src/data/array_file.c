/* Elements read from the file when they are wanted, so that a run's resident memory does not depend on the size of its data:
 * pages of a mapping would count as the process's own, and the kernel maps up to megabytes around each one that is read. */
#include "data/array_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/text.h"

#define READ_BYTES 16384 /* on the stack of a loader thread; a multiple of every type's size */
#define HASH_PIECE ((size_t)1 << 20)

int data_array_unmap(struct data_array *a, const char *path)
{
	struct stat st;
	int fd, err = 0;

	if (!a->map)
		return 0; /* unpacked from a gzip file: in memory */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return dn_fail(-errno, DATA_PATH ": cannot read: %s", path, strerror(errno));
	if (fstat(fd, &st))
		err = dn_fail(-errno, DATA_PATH ": cannot read: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode) || (size_t)st.st_size != a->map_bytes)
		err = dn_fail(-EINVAL, DATA_PATH ": was replaced while it was opened", path);
	if (err) {
		close(fd);
		return err;
	}
	a->file = fd + 1;
	a->file_at = a->data - (const unsigned char *)a->map;
	data_unmap(a->map, a->map_bytes);
	a->map = NULL;
	a->data = NULL;
	return 0;
}

static int read_bytes(const struct data_array *a, const char *path, size_t at, size_t n, unsigned char *out)
{
	for (size_t done = 0; done < n;) {
		ssize_t got = pread(a->file - 1, out + done, n - done, (off_t)((size_t)a->file_at + at + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return dn_fail(-errno, DATA_PATH ": cannot read: %s", path, strerror(errno));
		if (!got)
			return dn_fail(-EIO, DATA_PATH ": truncated: it has become shorter since it was opened", path);
		done += (size_t)got;
	}
	return 0;
}

int data_read_floats(const struct data_array *a, const char *path, int64_t at, int64_t n, bool scale, float *out)
{
	unsigned char piece[READ_BYTES];
	struct data_array v = { .type = a->type, .big_endian = a->big_endian, .data = piece };
	const size_t one = data_type_bytes(a->type);
	const int64_t most = (int64_t)(sizeof(piece) / one);

	if (!a->file) {
		data_floats(a, at, n, scale, out);
		return 0;
	}
	for (int64_t i = 0; i < n; i += most) {
		int64_t k = n - i < most ? n - i : most;
		int err = read_bytes(a, path, (size_t)(at + i) * one, (size_t)k * one, piece);

		if (err)
			return err;
		data_floats(&v, 0, k, scale, out + i);
	}
	return 0;
}

/* Of up to a piece the hash of the bytes; of more, one that goes on from piece to piece. */
int data_array_hash(const struct data_array *a, const char *path, uint64_t *out)
{
	size_t most = a->bytes < HASH_PIECE ? a->bytes : HASH_PIECE;
	unsigned char *piece = a->file ? dn_alloc(most) : NULL;
	uint64_t h[2] = { 0 };
	int err = a->file && !piece ? -ENOMEM : 0;

	for (size_t at = 0; at < a->bytes && !err; at += most) {
		size_t n = a->bytes - at < most ? a->bytes - at : most;

		if (a->file)
			err = read_bytes(a, path, at, n, piece);
		if (err)
			break;
		h[1] = dn_hash(a->file ? piece : a->data + at, n);
		h[0] = a->bytes <= HASH_PIECE ? h[1] : dn_hash(h, sizeof(h));
	}
	dn_free(piece);
	if (!err)
		*out = h[0];
	return err;
}
