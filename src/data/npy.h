/* NumPy arrays in memory-mapped files: format 1.0 to 3.0, little-endian, C order, float32/uint8/int32/int64. */
#ifndef DN_DATA_NPY_H
#define DN_DATA_NPY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_npy {
	char dtype; /* 'f' float32, 'u' uint8, 'i' int32, 'l' int64 */
	int n_dims;
	int64_t shape[8];
	int64_t n; /* elements */
	size_t item_bytes;
	const void *data; /* inside the mapping; files from elsewhere may leave it at any alignment */
	void *map;
	size_t map_bytes;
};
DN_EXPORT int dn_npy_open(struct dn_npy *a, const char *path);
DN_EXPORT void dn_npy_close(struct dn_npy *a); /* legal on a zeroed one */
/** dn_npy_float() - element i as float; uint8 divided by 255 when @scale */
DN_EXPORT float dn_npy_float(const struct dn_npy *a, int64_t i, bool scale);
/** dn_npy_write() - float32, C order, format 1.0; appears whole or not at all */
DN_EXPORT int dn_npy_write(const char *path, int n_dims, const int64_t *shape, const float *x);

#ifdef __cplusplus
}
#endif
#endif
