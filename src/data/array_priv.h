/* An array in a file, whatever its format: where its elements lie and how to read one. Private to the room. */
#ifndef DN_DATA_ARRAY_PRIV_H
#define DN_DATA_ARRAY_PRIV_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DATA_MAX_DIMS 8
#define DATA_PATH "%.500s" /* cut of a path in a message, so that its end is not lost */

enum data_type { DATA_U8, DATA_I8, DATA_I16, DATA_I32, DATA_I64, DATA_F32, DATA_F64 };

struct data_array {
	enum data_type type;
	bool big_endian;
	int n_dims;
	int64_t shape[DATA_MAX_DIMS];
	int64_t n;		   /* elements */
	size_t bytes;		   /* of all elements */
	const unsigned char *data; /* inside the mapping or the owned bytes; any alignment */
	void *map;
	size_t map_bytes;
	void *owned;	 /* what a gzip file holds, unpacked */
	int file;	 /* descriptor + 1 after data_array_unmap(), which leaves no data */
	int64_t file_at; /* of the first element */
};

/* Whole file, read-only; an empty one is an error. */
int data_map(const char *path, void **map, size_t *bytes);
void data_unmap(void *map, size_t bytes);
/* data_fail_kind() - the error for a file that is no @wanted ("an IDX file"): says what it looks like instead */
int data_fail_kind(const char *path, const char *wanted, const unsigned char *p, size_t n);
/* data_check_text() - an error unless it is text, and not the text of something else */
int data_check_text(const char *path, const char *wanted, const unsigned char *p, size_t n);
bool data_text_only(const unsigned char *p, size_t n); /* its first 256 bytes are text */
/* data_shape_text() - "[3, 8, 8]" */
const char *data_shape_text(int n_dims, const int64_t *shape, char *out, size_t cap);

size_t data_type_bytes(enum data_type t);
const char *data_type_name(enum data_type t);
bool data_type_whole(enum data_type t); /* an integer type */

int idx_open(struct data_array *a, const char *path);
int npy_array_open(struct data_array *a, const char *path);
void data_array_close(struct data_array *a); /* legal on a zeroed one */

/* Elements [at, at + n) as floats; 8-bit types divided by 255 when @scale. */
void data_floats(const struct data_array *a, int64_t at, int64_t n, bool scale, float *out);
/* data_array_unmap() - from here on elements are read from the file when they are wanted: data_read_floats() only */
int data_array_unmap(struct data_array *a, const char *path);
/* As data_floats(), of any array; by any number of threads at a time. */
int data_read_floats(const struct data_array *a, const char *path, int64_t at, int64_t n, bool scale, float *out);
int data_array_hash(const struct data_array *a, const char *path, uint64_t *out);
int64_t data_whole(const struct data_array *a, int64_t i); /* of an integer type */

#endif
