/* Writing Darknet .weights files: a stream through rank 0, in pieces, whatever the store. */
#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "io/weights.h"
#include "io/weights_priv.h"

#define HEADER_BYTES 20

int dn_weights_each(const struct dn_net *net, int (*fn)(void *arg, struct dn_param *p, int64_t offset), void *arg)
{
	int64_t offset = HEADER_BYTES;

	for (int i = 0; i < net->n_params; i++) {
		int64_t n = weights_saved(net->params[i]);
		int err;

		if (!n)
			continue;
		err = fn(arg, net->params[i], offset);
		if (err)
			return err;
		offset += n * (int64_t)sizeof(float);
	}
	return 0;
}

int64_t dn_weights_bytes(const struct dn_net *net, int cutoff)
{
	int64_t bytes = HEADER_BYTES;

	for (int i = 0; i < net->n_params; i++)
		if (cutoff < 0 || net->params[i]->layer->index < cutoff)
			bytes += weights_saved(net->params[i]) * (int64_t)sizeof(float);
	return bytes;
}

int dn_weights_write_header(struct dn_out *o, uint64_t seen)
{
	static const int32_t version[3] = { 0, 2, 0 };
	int err;

	err = dn_out_write(o, version, sizeof(version));
	return err ? err : dn_out_write(o, &seen, sizeof(seen));
}

/* Every rank makes the same reads even after a write has failed on rank 0: the others wait in them. */
static int save_param(struct dn_net *net, const struct dn_param *p, enum dn_part part, struct dn_out *o, float *piece,
		      int *write_err)
{
	for (int64_t at = 0; at < p->n; at += WEIGHTS_PIECE) {
		int64_t n = p->n - at < WEIGHTS_PIECE ? p->n - at : WEIGHTS_PIECE;
		int err;

		err = net->store.ops->read(net->store.self, p, part, at, n, piece);
		if (err)
			return err;
		if (piece && !*write_err)
			*write_err = dn_out_write(o, piece, (size_t)n * sizeof(float));
	}
	return 0;
}

static int save(struct dn_net *net, const char *path, uint64_t seen, int cutoff, bool ema, const struct dn_group *g,
		int64_t *bytes)
{
	bool writer = g->rank == 0;
	struct dn_out o;
	float *piece = NULL;
	int write_err = 0;
	int err = 0;

	memset(&o, 0, sizeof(o));
	if (writer) {
		piece = dn_alloc(WEIGHTS_PIECE * sizeof(float));
		err = piece ? dn_out_open(&o, path) : -ENOMEM;
		if (!err)
			err = dn_weights_write_header(&o, seen);
	}
	err = dn_group_agree(g, err, "saving weights");
	if (err)
		goto out;
	for (int i = 0; i < net->n_params && !err; i++) {
		const struct dn_param *p = net->params[i];
		const bool mean = ema && p->role == DN_TRAINED && !p->frozen;

		if (weights_saved(p) && (cutoff < 0 || p->layer->index < cutoff))
			err = save_param(net, p, mean ? DN_EMA : DN_VALUE, &o, piece, &write_err);
	}
	if (!err)
		err = write_err;
	if (!err && writer)
		err = dn_out_commit(&o);
	err = dn_group_agree(g, err, "saving weights");
	if (!err && bytes)
		*bytes = dn_weights_bytes(net, cutoff);
out:
	dn_out_abort(&o);
	dn_free(piece);
	return err;
}

int dn_weights_save(struct dn_net *net, const char *path, uint64_t seen, int cutoff, const struct dn_group *g, int64_t *bytes)
{
	return save(net, path, seen, cutoff, false, g, bytes);
}

int dn_weights_save_ema(struct dn_net *net, const char *path, uint64_t seen, const struct dn_group *g, int64_t *bytes)
{
	return save(net, path, seen, -1, true, g, bytes);
}
