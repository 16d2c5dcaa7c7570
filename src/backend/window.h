/* The host's view of device memory: the memory itself where the host may touch it, else a buffer of host memory through which
 * it passes piece by piece. For what stands between steps (loading, saving, checksums); passes use copy() of their own. */
#ifndef DN_BACKEND_WINDOW_H
#define DN_BACKEND_WINDOW_H
#include "backend/backend.h"
#ifdef __cplusplus
extern "C" {
#endif

/* What a callback does with the host memory that it is given. A write is of the whole piece: with DN_WRITE alone it holds
 * anything before. 0: nothing, the callback gets NULL and learns only what there is. */
enum dn_access { DN_READ = 1, DN_WRITE = 2 };

struct dn_window {
	struct dn_device *dev; /* borrowed */
	float *host;	       /* [floats], NULL: no need of one */
	int64_t floats;
};

/* elements [at, at+n) are at x until the call ends */
typedef int (*dn_window_fn)(void *arg, int64_t at, int64_t n, float *x);

/** dn_window_init() - for tensors of up to @n elements; legal to fini when it has failed or was never made (zeroed) */
DN_EXPORT int dn_window_init(struct dn_window *w, struct dn_device *dev, int64_t n);
DN_EXPORT void dn_window_fini(struct dn_window *w);
/**
 * dn_window_each() - @fn over elements [0, n) of device memory @x, in order, in one piece or several
 * Waits for @st first, whose work must be all that touches @x, and for its copies: afterwards @x is as fn left it.
 * @access: DN_READ, DN_WRITE or both; 0: one call for all, with NULL.
 */
DN_EXPORT int dn_window_each(struct dn_window *w, struct dn_stream *st, float *x, int64_t n, unsigned access, dn_window_fn fn,
			     void *arg);
/**
 * dn_window_begin() - the host's side of elements [0, n) of @x, up to dn_window_end() with the same arguments
 * @n: what the window holds at most. Waits as dn_window_each() does; only one is open at a time.
 */
DN_EXPORT int dn_window_begin(struct dn_window *w, struct dn_stream *st, float *x, int64_t n, unsigned access, float **out);
DN_EXPORT int dn_window_end(struct dn_window *w, struct dn_stream *st, float *x, int64_t n, unsigned access);
/** dn_window_read(), dn_window_write() - device memory @x to, and from, any memory of the host */
DN_EXPORT int dn_window_read(struct dn_window *w, struct dn_stream *st, const float *x, int64_t n, float *out);
DN_EXPORT int dn_window_write(struct dn_window *w, struct dn_stream *st, float *x, int64_t n, const float *in);

#ifdef __cplusplus
}
#endif
#endif
