/* Reading Darknet .weights files into any store.
 *
 * A file is a header of 16 or 20 bytes and floats, layer after layer, with no tags: which float belongs where follows
 * from the net alone, so the sizes are compared before a value is read.
 */
#include "io/weights.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "io/weights_priv.h"

#define VERSION_BYTES 12 /* major, minor, revision */
#define VERSION_MAX 100000
#define SEEN_LIMIT (1ull << 62)
#define SEEN_LIKELY (1ull << 50) /* a number above 0 behind a count of 32 bits makes one above this of 64 */

struct reader {
	const char *path;
	int fd;
	unsigned char head[64]; /* the file's first bytes */
	int head_bytes;
	struct dn_weights_info info;
	int64_t offset; /* of the param that is being read, bytes */
	int64_t wanted; /* its floats in the file */
	float *piece;	/* [WEIGHTS_PIECE], for transposed params */
};

/* --- which floats a file holds --- */

static int64_t loadable(const struct dn_param *p)
{
	const struct dn_layer *l = p->layer;

	if (l->dontload || (l->dontloadscales && p->norm))
		return 0;
	if (l->numload > 0 && l->numload < p->shape[0])
		return l->numload * (p->n / p->shape[0]);
	return p->n;
}

static bool is_transposed(const struct dn_param *p, const struct dn_weights_header *h)
{
	return p->file_rows && (p->file_flipped || h->transpose);
}

enum fit { FIT_WHOLE, FIT_BOUNDARY, FIT_INSIDE, FIT_SURPLUS };

/* How @floats lie on the layers before @limit: *n_layers are wholly inside, *wanted is what all of them take. */
static enum fit fit_layers(const struct dn_net *net, int64_t floats, int limit, int *n_layers, int64_t *wanted)
{
	int64_t sum = 0, inside = 0;
	int whole = 0, i = 0;

	for (int l = 0; l < limit; l++) {
		for (; i < net->n_params && net->params[i]->layer->index == l; i++)
			sum += loadable(net->params[i]);
		if (sum <= floats) {
			whole = l + 1;
			inside = sum;
		}
	}
	*n_layers = whole;
	*wanted = sum;
	if (floats == sum)
		return FIT_WHOLE;
	if (floats > sum)
		return FIT_SURPLUS;
	return inside == floats ? FIT_BOUNDARY : FIT_INSIDE;
}

static int check_numload(const struct dn_net *net, const char *path)
{
	for (int i = 0; i < net->n_params; i++) {
		const struct dn_param *p = net->params[i];
		const struct dn_layer *l = p->layer;

		if (l->numload <= 0)
			continue;
		if (l->numload > p->shape[0])
			return dn_fail(-EINVAL, "%s: layer %d (%s): numload=%lld, but %s has %lld filters", path, l->index,
				       l->ops->name, (long long)l->numload, p->name, (long long)p->shape[0]);
		if (l->numload < p->shape[0] && p->file_flipped)
			return dn_fail(-ENOTSUP, "%s: layer %d (%s): numload together with flipped=1 is not supported", path,
				       l->index, l->ops->name);
	}
	return 0;
}

/* --- the file --- */

static int read_at(const struct reader *r, void *out, size_t n, int64_t at)
{
	char *to = out;

	while (n) {
		ssize_t got = pread(r->fd, to, n, at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return dn_fail(-errno, "%s: reading at byte %lld: %s", r->path, (long long)at, strerror(errno));
		if (got == 0)
			return dn_fail(-EIO, "%s: ends at byte %lld while it is read, it had %lld", r->path, (long long)at,
				       (long long)r->info.file_bytes);
		to += got;
		at += got;
		n -= (size_t)got;
	}
	return 0;
}

static void reader_fini(struct reader *r)
{
	if (r->fd >= 0)
		close(r->fd);
	dn_free(r->piece);
}

/* Text where weights are due is a mistake with a name: say which. */
static int refuse_text(const struct reader *r)
{
	const char *s = (const char *)r->head;
	int i = 0, n = r->head_bytes;

	while (i < n && (isprint(r->head[i]) || isspace(r->head[i])))
		i++;
	if (n == 0 || i < n)
		return 0;
	if (n >= 24 && !strncmp(s, "version https://git-lfs", 23))
		return dn_fail(-EINVAL,
			       "%s: is a git-lfs pointer (%lld bytes of text), not weights: fetch the file itself "
			       "(git lfs pull)",
			       r->path, (long long)r->info.file_bytes);
	for (i = 0; i < n && isspace((unsigned char)s[i]); i++)
		;
	if (i < n && s[i] == '<')
		return dn_fail(-EINVAL, "%s: is an HTML page, not weights: the download went wrong", r->path);
	return dn_fail(-EINVAL, "%s: is text, not weights", r->path);
}

/* Opens @path and checks its version; the width of seen is the version's until sizes say otherwise. */
static int reader_init(struct reader *r, const char *path)
{
	struct dn_weights_header *h = &r->info.header;
	int32_t v[3];
	int err;

	memset(r, 0, sizeof(*r));
	r->path = path;
	r->fd = -1;
	err = dn_file_size(path, &r->info.file_bytes);
	if (err)
		return err;
	r->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (r->fd < 0)
		return dn_fail(-errno, "%s: %s", path, strerror(errno));
	r->head_bytes = r->info.file_bytes < (int64_t)sizeof(r->head) ? (int)r->info.file_bytes : (int)sizeof(r->head);
	err = read_at(r, r->head, (size_t)r->head_bytes, 0);
	if (!err)
		err = refuse_text(r);
	if (err)
		return err;
	if (r->head_bytes < VERSION_BYTES + 4)
		return dn_fail(-EINVAL, "%s: has %d bytes, the header of a weights file has at least %d", path, r->head_bytes,
			       VERSION_BYTES + 4);
	memcpy(v, r->head, sizeof(v));
	for (int i = 0; i < 3; i++)
		if (v[i] < 0 || v[i] > VERSION_MAX)
			return dn_fail(-EINVAL,
				       "%s: the header says version %d.%d.%d, each part must be 0 to %d: not a weights "
				       "file, or damaged",
				       path, v[0], v[1], v[2], VERSION_MAX);
	h->major = v[0];
	h->minor = v[1];
	h->revision = v[2];
	h->transpose = h->major > 1000 || h->minor > 1000;
	return 0;
}

static int seen_bytes_of(const struct dn_weights_header *h)
{
	return 10 * h->major + h->minor >= 2 && h->major < 1000 && h->minor < 1000 ? 8 : 4;
}

static uint64_t seen_of(const struct reader *r, int width)
{
	uint32_t narrow;
	uint64_t wide;

	memcpy(&narrow, r->head + VERSION_BYTES, sizeof(narrow));
	if (width == 4)
		return narrow;
	memcpy(&wide, r->head + VERSION_BYTES, sizeof(wide)); /* behind a short file's end: zeros */
	return wide;
}

/* Does the file, with a count of @width bytes, end behind a layer of @net? */
static bool fits(const struct reader *r, const struct dn_net *net, int width, int64_t *floats, int64_t *wanted)
{
	int64_t rest = r->info.file_bytes - VERSION_BYTES - width;
	int n_layers;
	enum fit f;

	*floats = rest / (int64_t)sizeof(float);
	f = fit_layers(net, *floats, net->n_layers, &n_layers, wanted);
	return rest >= 0 && rest % (int64_t)sizeof(float) == 0 && (f == FIT_WHOLE || f == FIT_BOUNDARY);
}

static float first_value(const struct reader *r)
{
	float x;

	memcpy(&x, r->head + VERSION_BYTES + 4, sizeof(x));
	return x;
}

/* The other width fits, but nothing says that it is that rather than a file that was cut. */
static int refuse_cut(const struct reader *r, int64_t floats, int64_t wanted)
{
	const struct dn_weights_header *h = &r->info.header;

	return dn_fail(
		-EINVAL,
		"%s: has two readings. As version %d.%d means it, %llu images counted in 64 bits, it holds %lld values and the "
		"net's layers take %lld: it was cut. Counted in 32 bits, %llu images, the sizes meet, and the first value is "
		"%g: of a program that wrote so the version is 0.1, byte 4 is 1 then",
		r->path, h->major, h->minor, (unsigned long long)seen_of(r, 8), (long long)floats, (long long)wanted,
		(unsigned long long)seen_of(r, 4), (double)first_value(r));
}

static int refuse_count(const struct reader *r, int64_t floats, int64_t wanted)
{
	const struct dn_weights_header *h = &r->info.header;

	return dn_fail(
		-EINVAL,
		"%s: has two readings. As version %d.%d means it, counted in 64 bits, the sizes meet, but the header says %llu "
		"images seen, and no run sees that many. Counted in 32 bits, %llu images, it holds %lld values, and the net's "
		"layers take %lld: damaged",
		r->path, h->major, h->minor, (unsigned long long)seen_of(r, 8), (unsigned long long)seen_of(r, 4),
		(long long)floats, (long long)wanted);
}

static int refuse_without_net(const struct reader *r)
{
	const struct dn_weights_header *h = &r->info.header;

	return dn_fail(
		-EINVAL,
		"%s: has two readings. As version %d.%d means it, %llu images are counted in 32 bits and the first value is "
		"%g; counted in 64 bits, as some programs wrote, they are %llu: a cfg tells by the sizes which it is",
		r->path, h->major, h->minor, (unsigned long long)seen_of(r, 4), (double)first_value(r),
		(unsigned long long)seen_of(r, 8));
}

/*
 * 32-bit builds wrote 4 bytes under versions that mean 8, some tools the other way round. What is possible follows from the header
 * alone: a number above 0 behind a count of 32 bits makes one of 64 that no run sees. Of what is possible the version's width is
 * taken, the other one where only with that the sizes meet. But a whole file of 64 bits that lost its last 4 bytes has the size of
 * one of 32: where the count may be one of 64 and the version says so, that is no reason. Without a net (NULL) the version decides,
 * if nothing else is possible or nothing else could come of any net.
 */
static int choose_width(const struct reader *r, const struct dn_net *net, int *out)
{
	const int version = seen_bytes_of(&r->info.header);
	const bool can8 = r->info.file_bytes >= VERSION_BYTES + 8 && seen_of(r, 8) < SEEN_LIKELY;
	int64_t floats[2] = { 0 }, wanted = 0;
	bool fits4, fits8;

	*out = version == 8 && can8 ? 8 : 4;
	if (!net)
		return version == 4 && can8 ? refuse_without_net(r) : 0;
	fits4 = fits(r, net, 4, &floats[0], &wanted);
	fits8 = fits(r, net, 8, &floats[1], &wanted);
	if (version == 8 && can8 && !fits8 && fits4)
		return refuse_cut(r, floats[1], wanted);
	if (version == 8 && !can8 && fits8 && !fits4 && seen_of(r, 8) < SEEN_LIMIT)
		return refuse_count(r, floats[0], wanted);
	if (fits8 && !fits4 && (version == 8 || can8))
		*out = 8; /* a count past all limits is told by header_seen() */
	return 0;
}

static int refuse_size(const struct reader *r, const struct dn_net *net, enum fit f)
{
	const struct dn_weights_info *in = &r->info;
	int64_t want = in->header.header_bytes + in->wanted_floats * (int64_t)sizeof(float);
	const char *type;

	if (f == FIT_SURPLUS)
		return dn_fail(-EINVAL, "%s: has %lld bytes, the net's %d layers take %lld: %lld too many", r->path,
			       (long long)in->file_bytes, net->n_layers, (long long)want, (long long)(in->file_bytes - want));
	if (f == FIT_BOUNDARY)
		return dn_fail(-EINVAL,
			       "%s: has %lld bytes, which are the first %d of %d layers; the whole net takes %lld "
			       "(only train loads partial files)",
			       r->path, (long long)in->file_bytes, in->n_layers_loaded, net->n_layers, (long long)want);
	type = in->n_layers_loaded < net->n_layers ? net->layers[in->n_layers_loaded].ops->name : "last";
	return dn_fail(-EINVAL, "%s: has %lld bytes and ends inside layer %d (%s); the net's %d layers take %lld", r->path,
		       (long long)in->file_bytes, in->n_layers_loaded, type, net->n_layers, (long long)want);
}

static int header_seen(struct reader *r, int seen_bytes)
{
	uint64_t seen = seen_of(r, seen_bytes);

	if (seen >= SEEN_LIMIT)
		return dn_fail(-EINVAL,
			       "%s: the header says %llu images seen, at most 2^62 - 1 is possible: not a weights file, "
			       "or damaged",
			       r->path, (unsigned long long)seen);
	r->info.header.seen = seen;
	r->info.header.header_bytes = VERSION_BYTES + seen_bytes;
	r->info.floats = (r->info.file_bytes - r->info.header.header_bytes) / (int64_t)sizeof(float);
	return 0;
}

/* Sizes of the file against those of the net's layers before @cutoff. */
static int match(struct reader *r, const struct dn_net *net, int cutoff, bool allow_partial)
{
	struct dn_weights_info *in = &r->info;
	int limit = cutoff < 0 || cutoff > net->n_layers ? net->n_layers : cutoff;
	enum fit f;
	int width = 0, err;

	err = check_numload(net, r->path);
	if (!err)
		err = choose_width(r, net, &width);
	if (!err)
		err = header_seen(r, width);
	if (err)
		return err;
	in->n_layers = net->n_layers;
	f = fit_layers(net, in->floats, limit, &in->n_layers_loaded, &in->wanted_floats);
	if ((in->file_bytes - in->header.header_bytes) % (int64_t)sizeof(float))
		f = f == FIT_WHOLE || f == FIT_SURPLUS ? FIT_SURPLUS : FIT_INSIDE;
	if (f == FIT_SURPLUS && cutoff >= 0)
		f = FIT_WHOLE; /* what follows the cutoff is of no concern */
	in->partial = f == FIT_BOUNDARY;
	if (f == FIT_WHOLE || (in->partial && allow_partial))
		return 0;
	return refuse_size(r, net, f);
}

/* --- values --- */

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int fill_plain(struct reader *r, int64_t at, int64_t n, float *x)
{
	for (int64_t i = 0; i < n; i += WEIGHTS_PIECE) {
		int64_t m = least(n - i, WEIGHTS_PIECE);
		int err = read_at(r, x + i, (size_t)m * sizeof(float), r->offset + (at + i) * (int64_t)sizeof(float));

		if (err)
			return err;
	}
	return 0;
}

/* Memory [rows, cols] from a file of [cols, rows]: whole file rows ("columns" of memory) as many as a piece holds, or,
 * when one is longer than a piece, the part of it that is wanted. */
static int fill_transposed(struct reader *r, int64_t rows, int64_t cols, int64_t at, int64_t n, float *x)
{
	int64_t first = at / cols, last = (at + n - 1) / cols;
	int64_t lo = rows <= WEIGHTS_PIECE ? 0 : first, hi = rows <= WEIGHTS_PIECE ? rows : last + 1;
	int64_t step = rows <= WEIGHTS_PIECE ? WEIGHTS_PIECE / rows : 1;

	for (int64_t c = 0; c < cols; c += step)
		for (int64_t top = lo; top < hi; top += WEIGHTS_PIECE) {
			int64_t nc = least(step, cols - c), nr = least(hi - top, WEIGHTS_PIECE);
			int err = read_at(r, r->piece, (size_t)(nc * nr) * sizeof(float),
					  r->offset + (c * rows + top) * (int64_t)sizeof(float));

			if (err)
				return err;
			for (int64_t row = first > top ? first : top; row <= last && row < top + nr; row++)
				for (int64_t j = 0; j < nc; j++) {
					int64_t e = row * cols + c + j;

					if (e >= at && e < at + n)
						x[e - at] = r->piece[j * nr + row - top];
				}
		}
	return 0;
}

/* Elements [at, at+n) of @p, as far as the file has them; the others stay. */
static int fill(void *arg, struct dn_param *p, int64_t at, int64_t n, float *x)
{
	struct reader *r = arg;
	int err;

	n = least(n, r->wanted - at);
	if (n <= 0)
		return 0;
	if (is_transposed(p, &r->info.header))
		err = fill_transposed(r, p->file_rows, p->file_cols, at, n, x);
	else
		err = fill_plain(r, at, n, x);
	if (!err && weights_counts(p))
		r->info.n_nonfinite += weights_nonfinite(x, n);
	return err;
}

/* fn for every param that the file holds, with r->offset and r->wanted set */
static int walk(struct reader *r, struct dn_net *net,
		int (*fn)(struct reader *r, struct dn_net *net, struct dn_param *p, void *arg), void *arg)
{
	int err = 0;

	r->offset = r->info.header.header_bytes;
	for (int i = 0; i < net->n_params && !err; i++) {
		struct dn_param *p = net->params[i];

		if (p->layer->index >= r->info.n_layers_loaded)
			break;
		r->wanted = loadable(p);
		if (!r->wanted)
			continue;
		err = fn(r, net, p, arg);
		r->offset += r->wanted * (int64_t)sizeof(float);
	}
	return err;
}

static int load_param(struct reader *r, struct dn_net *net, struct dn_param *p, void *arg)
{
	const unsigned access = r->wanted < p->n ? DN_READ | DN_WRITE : DN_WRITE; /* the others stay */

	return net->store.ops->each(net->store.self, p, DN_VALUE, access, fill, r);
}

static int alloc_piece(struct reader *r)
{
	r->piece = dn_alloc(WEIGHTS_PIECE * sizeof(float));
	return r->piece ? 0 : -ENOMEM;
}

int dn_weights_load(struct dn_net *net, const char *path, int cutoff, bool allow_partial, struct dn_weights_info *info)
{
	struct reader r;
	int err;

	err = reader_init(&r, path);
	if (!err)
		err = match(&r, net, cutoff, allow_partial);
	if (!err)
		err = alloc_piece(&r);
	if (!err)
		err = walk(&r, net, load_param, NULL);
	if (!err) {
		dn_net_touched(net);
		if (info)
			*info = r.info;
	}
	reader_fini(&r);
	return err;
}

/* --- rank 0 reads for all --- */

struct sent { /* what the other ranks must know, as doubles for the sum */
	double major, minor, revision, seen_high, seen_low, header_bytes, file_bytes, floats, wanted, loaded, partial;
};

static int share_info(struct reader *r, const struct dn_net *net, const struct dn_group *g)
{
	struct dn_weights_info *in = &r->info;
	struct sent s;
	int err;

	memset(&s, 0, sizeof(s));
	if (g->rank == 0)
		s = (struct sent){
			in->header.major,
			in->header.minor,
			in->header.revision,
			(double)(in->header.seen >> 32),
			(double)(in->header.seen & 0xffffffffu),
			in->header.header_bytes,
			(double)in->file_bytes,
			(double)in->floats,
			(double)in->wanted_floats,
			in->n_layers_loaded,
			in->partial,
		};
	err = dn_group_sum(g, (double *)&s, sizeof(s) / sizeof(double));
	if (err)
		return err;
	in->header.major = (int32_t)s.major;
	in->header.minor = (int32_t)s.minor;
	in->header.revision = (int32_t)s.revision;
	in->header.seen = ((uint64_t)s.seen_high << 32) | (uint64_t)s.seen_low;
	in->header.header_bytes = (int)s.header_bytes;
	in->header.transpose = in->header.major > 1000 || in->header.minor > 1000;
	in->file_bytes = (int64_t)s.file_bytes;
	in->floats = (int64_t)s.floats;
	in->wanted_floats = (int64_t)s.wanted;
	in->n_layers_loaded = (int)s.loaded;
	in->n_layers = net->n_layers;
	in->partial = s.partial != 0;
	return 0;
}

struct send {
	float *piece; /* [WEIGHTS_PIECE] on rank 0, NULL elsewhere */
	int err;      /* of reading: the calls go on, the others wait in them */
};

static int send_param(struct reader *r, struct dn_net *net, struct dn_param *p, void *arg)
{
	struct send *s = arg;

	for (int64_t at = 0; at < r->wanted; at += WEIGHTS_PIECE) {
		int64_t n = least(r->wanted - at, WEIGHTS_PIECE);
		int err;

		if (s->piece && !s->err)
			s->err = fill(r, p, at, n, s->piece);
		err = net->store.ops->write(net->store.self, p, DN_VALUE, at, n, s->piece);
		if (err)
			return err;
	}
	return 0;
}

int dn_weights_load_rank0(struct dn_net *net, const char *path, bool allow_partial, const struct dn_group *g,
			  struct dn_weights_info *info)
{
	struct send s = { NULL, 0 };
	struct reader r;
	int err = 0;

	memset(&r, 0, sizeof(r));
	r.fd = -1;
	if (g->rank == 0) {
		err = reader_init(&r, path);
		if (!err)
			err = match(&r, net, -1, allow_partial);
		if (!err)
			err = alloc_piece(&r);
		if (!err) {
			s.piece = dn_alloc(WEIGHTS_PIECE * sizeof(float));
			err = s.piece ? 0 : -ENOMEM;
		}
	}
	err = dn_group_agree(g, err, "loading weights");
	if (!err)
		err = share_info(&r, net, g);
	if (!err) {
		err = walk(&r, net, send_param, &s);
		err = dn_group_agree(g, err ? err : s.err, "loading weights");
	}
	if (!err) {
		dn_net_touched(net);
		if (info)
			*info = r.info;
	}
	dn_free(s.piece);
	reader_fini(&r);
	return err;
}

/* --- without values --- */

int dn_weights_check(const struct dn_net *net, const char *path, bool allow_partial, struct dn_weights_info *info)
{
	struct reader r;
	int err;

	err = reader_init(&r, path);
	if (!err)
		err = match(&r, net, -1, allow_partial);
	if (!err && info)
		*info = r.info;
	reader_fini(&r);
	return err;
}

int dn_weights_info_read(const char *path, struct dn_weights_info *info)
{
	struct reader r;
	int width = 0, err;

	err = reader_init(&r, path);
	if (!err)
		err = choose_width(&r, NULL, &width);
	if (!err)
		err = header_seen(&r, width);
	if (!err)
		*info = r.info;
	reader_fini(&r);
	return err;
}

int dn_weights_scan(const char *path, struct dn_weights_info *info)
{
	struct reader r;
	int64_t at = info->header.header_bytes;
	int err;

	err = reader_init(&r, path);
	if (!err)
		err = alloc_piece(&r);
	for (int64_t left = info->floats; !err && left > 0; left -= WEIGHTS_PIECE) {
		int64_t n = least(left, WEIGHTS_PIECE);

		err = read_at(&r, r.piece, (size_t)n * sizeof(float), at);
		if (!err)
			info->n_nonfinite += weights_nonfinite(r.piece, n);
		at += n * (int64_t)sizeof(float);
	}
	reader_fini(&r);
	return err;
}

void dn_weights_tell(const char *path, const struct dn_weights_info *info)
{
	const struct dn_weights_header *h = &info->header;
	const int meant = seen_bytes_of(h);
	const char *why = info->n_layers			     ? "the sizes are those of another"
			  : info->file_bytes < VERSION_BYTES + meant ? "the file is too short for it"
								     : "no run sees that many";

	if (!dn_weights_own_width(h))
		dn_warn("%s: version %d.%d means that images are counted in %d bits, but %s: %d bits are read, %llu images seen",
			path, h->major, h->minor, 8 * meant, why, 8 * (h->header_bytes - VERSION_BYTES),
			(unsigned long long)h->seen);
	if (info->n_nonfinite)
		dn_warn("%s: %lld values are not finite", path, (long long)info->n_nonfinite);
}

bool dn_weights_own_width(const struct dn_weights_header *h)
{
	return h->header_bytes == VERSION_BYTES + seen_bytes_of(h);
}
