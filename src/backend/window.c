/* Device memory as the host sees it. */
#include "backend/window.h"
#include <errno.h>
#include <string.h>

#define WINDOW_FLOATS ((int64_t)1 << 18) /* 1 MiB at a time */

int dn_window_init(struct dn_window *w, struct dn_device *dev, int64_t n)
{
	struct dn_facts f;
	int err;

	*w = (struct dn_window){ .dev = dev };
	dev->be->facts(dev, &f);
	if (f.host_access || n < 1)
		return 0;
	w->floats = n < WINDOW_FLOATS ? n : WINDOW_FLOATS;
	err = dev->be->alloc_host(dev, DN_MEM_HOST, (size_t)w->floats * sizeof(float), (void **)&w->host);
	if (err)
		memset(w, 0, sizeof(*w));
	return err;
}

/* every use of it has been waited for */
void dn_window_fini(struct dn_window *w)
{
	if (w->host)
		w->dev->be->free_host(w->dev, w->host);
	memset(w, 0, sizeof(*w));
}

static int move(struct dn_window *w, struct dn_stream *st, float *x, int64_t n, bool to_host)
{
	const struct dn_backend *be = w->dev->be;
	const size_t bytes = (size_t)n * sizeof(float);
	int err = be->copy(st, to_host ? w->host : x, to_host ? x : w->host, bytes);
	int e = be->stream_sync(st);

	if (!e)
		return err;
	be->stream_abort(st); /* or the copy might come later, into memory that is somebody else's then */
	return e;
}

int dn_window_begin(struct dn_window *w, struct dn_stream *st, float *x, int64_t n, unsigned access, float **out)
{
	*out = w->host ? w->host : x;
	if (!w->host)
		return w->dev->be->stream_sync(st);
	return access & DN_READ ? move(w, st, x, n, true) : 0;
}

int dn_window_end(struct dn_window *w, struct dn_stream *st, float *x, int64_t n, unsigned access)
{
	return w->host && access & DN_WRITE ? move(w, st, x, n, false) : 0;
}

static int64_t window_most(const struct dn_window *w)
{
	return w->host ? w->floats : INT64_MAX;
}

int dn_window_each(struct dn_window *w, struct dn_stream *st, float *x, int64_t n, unsigned access, dn_window_fn fn, void *arg)
{
	const int64_t most = window_most(w);
	float *host;
	int err = 0;

	if (!access)
		return fn(arg, 0, n, NULL);
	for (int64_t at = 0, m; at < n && !err; at += m) {
		m = n - at < most ? n - at : most;
		err = dn_window_begin(w, st, x + at, m, access, &host);
		if (!err)
			err = fn(arg, at, m, host);
		if (!err)
			err = dn_window_end(w, st, x + at, m, access);
	}
	return err;
}

static int take(void *arg, int64_t at, int64_t n, float *x)
{
	memcpy((float *)arg + at, x, (size_t)n * sizeof(*x));
	return 0;
}

static int give(void *arg, int64_t at, int64_t n, float *x)
{
	memcpy(x, (const float *)arg + at, (size_t)n * sizeof(*x));
	return 0;
}

int dn_window_read(struct dn_window *w, struct dn_stream *st, const float *x, int64_t n, float *out)
{
	return dn_window_each(w, st, (float *)(uintptr_t)x, n, DN_READ, take, out);
}

int dn_window_write(struct dn_window *w, struct dn_stream *st, float *x, int64_t n, const float *in)
{
	return dn_window_each(w, st, x, n, DN_WRITE, give, (float *)(uintptr_t)in);
}
