/* Darknet .weights files over any store: every rank reads its own intervals, rank 0 writes a stream.
 * Rules: docs/formats.md.
 */
#ifndef DN_IO_WEIGHTS_H
#define DN_IO_WEIGHTS_H
#include <stdbool.h>
#include <stdint.h>
#include "base/file.h"
#include "base/group.h"
#include "graph/net.h"
#ifdef __cplusplus
extern "C" {
#endif

struct dn_weights_header {
	int32_t major, minor, revision;
	uint64_t seen;
	int header_bytes; /* 16 or 20 */
	bool transpose;	  /* connected weights are stored as [inputs, outputs] */
};

struct dn_weights_info {
	struct dn_weights_header header;
	int64_t file_bytes;
	int64_t floats;	       /* in the file after the header */
	int64_t wanted_floats; /* by the net, all loadable layers */
	int n_layers_loaded;   /* layers wholly inside the file (from the front); = n_layers when complete */
	int n_layers;	       /* 0 = read without a net */
	bool partial;	       /* ends on a layer boundary before the last layer with params */
	int64_t n_nonfinite;   /* values loaded that are not finite; over ranks they add up */
};

/**
 * dn_weights_load() - fill the net's params from @path
 * @cutoff: only layers before it, -1 = all. @allow_partial: a file that ends on a layer boundary is accepted.
 * Not collective: every rank reads what its store owns. An end inside a layer, surplus bytes, versions outside 0..100000
 * and seen >= 2^62 are errors that name file, layer, found and wanted.
 */
DN_EXPORT int dn_weights_load(struct dn_net *net, const char *path, int cutoff, bool allow_partial, struct dn_weights_info *info);
/** dn_weights_load_rank0() - collective: rank 0 reads and sends (store->write) */
DN_EXPORT int dn_weights_load_rank0(struct dn_net *net, const char *path, bool allow_partial, const struct dn_group *g,
				    struct dn_weights_info *info);
/** dn_weights_check() - header and sizes of @path against the net's shapes; reads no values */
DN_EXPORT int dn_weights_check(const struct dn_net *net, const char *path, bool allow_partial, struct dn_weights_info *info);
/** dn_weights_info_read() - header only, no net: wanted_floats is 0 */
DN_EXPORT int dn_weights_info_read(const char *path, struct dn_weights_info *info);
/** dn_weights_scan() - after one of the two: reads all values and counts those that are not finite into @info */
DN_EXPORT int dn_weights_scan(const char *path, struct dn_weights_info *info);
/** dn_weights_own_width() - the count of images has the width that the version means */
DN_EXPORT bool dn_weights_own_width(const struct dn_weights_header *h);
/** dn_weights_tell() - warnings of what a file that was read has and should not have: another width of its count, values that
 * are not finite (of several ranks: their sum) */
DN_EXPORT void dn_weights_tell(const char *path, const struct dn_weights_info *info);

/**
 * dn_weights_save() - collective: rank 0 writes @path (whole or not at all), header 0 2 0
 * Streams in pieces through store->read; no rank holds more than 1 MiB of it. Ends in an agreement, so that a
 * full disk on rank 0 fails on all. *bytes (may be NULL): size of the file.
 */
DN_EXPORT int dn_weights_save(struct dn_net *net, const char *path, uint64_t seen, int cutoff, const struct dn_group *g,
			      int64_t *bytes);
/** dn_weights_save_ema() - likewise the means of the values in their place, where there are some: options.ema of the net */
DN_EXPORT int dn_weights_save_ema(struct dn_net *net, const char *path, uint64_t seen, const struct dn_group *g, int64_t *bytes);
/** dn_weights_write_header() - the 20 bytes before the values */
DN_EXPORT int dn_weights_write_header(struct dn_out *o, uint64_t seen);
/** dn_weights_bytes() - size of a full file */
DN_EXPORT int64_t dn_weights_bytes(const struct dn_net *net, int cutoff);

/** dn_weights_each() - offset of every saved param in a full file, in file order: fn(arg, p, first float's byte offset) */
DN_EXPORT int dn_weights_each(const struct dn_net *net, int (*fn)(void *arg, struct dn_param *p, int64_t offset), void *arg);

#ifdef __cplusplus
}
#endif
#endif
