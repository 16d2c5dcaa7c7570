/* "classifier predict": the best classes of one image, or of every image whose path comes in on standard input.
 *
 * All ranks go through the net together; which image it is only rank 0 knows, and the others pass zeros. While rank 0
 * waits for a line it says so several times a second, so that the others are never kept waiting for long.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/samples.h"

#define PATH_BYTES 16384
#define TICK_MS 200

enum turn { TURN_END, TURN_IMAGE, TURN_WAIT };

struct prompt { /* lines of standard input */
	char buf[PATH_BYTES];
	size_t n;    /* bytes in it */
	size_t used; /* of the line that was given last */
	bool eof, shown;
};

struct prediction {
	struct session s;
	struct dn_datafile *file;
	struct dn_lines names;
	const char *path; /* FILE, NULL: the prompt */
	int top;
	int64_t *best; /* [top] */
	float *x;      /* [inputs] */
	float *out;    /* [outputs] */
	float *scores; /* [outputs] */
	struct prompt prompt;
	int64_t n_failed; /* images of the prompt that could not be read, and those without a result */
};

/* --- lines of standard input, without standing still --- */

/* The next line; NULL: none yet, or p->eof. A line that does not fit is cut, and no file's path is that long. */
static char *next_line(struct prompt *p)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	char *end;
	ssize_t got;

	memmove(p->buf, p->buf + p->used, p->n - p->used);
	p->n -= p->used;
	p->used = 0;
	end = memchr(p->buf, '\n', p->n);
	if (!end && !p->eof && p->n < sizeof(p->buf) - 1) {
		if (poll(&in, 1, TICK_MS) == 0)
			return NULL;
		got = read(0, p->buf + p->n, sizeof(p->buf) - 1 - p->n);
		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			return NULL;
		p->eof = got <= 0;
		p->n += got > 0 ? (size_t)got : 0;
		end = memchr(p->buf, '\n', p->n);
	}
	if (!end && (p->n == 0 || (!p->eof && p->n < sizeof(p->buf) - 1)))
		return NULL;
	p->used = end ? (size_t)(end - p->buf) + 1 : p->n;
	if (!end)
		end = p->buf + p->n;
	if (end > p->buf && end[-1] == '\r')
		end--;
	*end = '\0';
	return p->buf;
}

/* --- one image --- */

static int read_image(struct prediction *p, const char *path)
{
	const struct dn_net *net = p->s.net;

	return dn_image_read_fit(path, DN_FIT_LETTERBOX, p->x, net->w, net->h, net->c);
}

/* Rank 0: what is next; *@path is then the image that p->x holds. */
static enum turn next_image(struct prediction *p, char **path)
{
	struct prompt *in = &p->prompt;
	FILE *f = p->s.c->out;

	for (;;) {
		if (!in->shown) {
			fprintf(f, "Enter Image Path: ");
			fflush(f);
			in->shown = true;
		}
		*path = next_line(in);
		if (!*path)
			return in->eof ? TURN_END : TURN_WAIT;
		in->shown = false;
		if (!(*path)[0])
			continue;
		if (!read_image(p, *path))
			return TURN_IMAGE;
		fprintf(stderr, "darknet: %s\n", dn_message());
		p->n_failed++;
	}
}

static void print_best(struct prediction *p, const char *path, double seconds)
{
	const struct dn_net *net = p->s.net;
	const struct dn_layer *l = &net->layers[net->output_layer];
	FILE *f = p->s.c->out;
	int64_t bad;

	bad = dn_nonfinite(p->out, l->outputs);
	if (bad) { /* the other ranks go on, so this one does too */
		fprintf(stderr, "darknet: \"%s\": %lld of %lld outputs are NaN or infinite\n", path, (long long)bad,
			(long long)l->outputs);
		p->n_failed++;
		return;
	}
	dn_class_scores(net, p->out, p->scores);
	dn_top_k(p->scores, l->outputs, p->top, p->best);
	fprintf(stderr, "%s: Predicted in %f seconds.\n", path, seconds);
	for (int i = 0; i < p->top; i++)
		fprintf(f, "%5.2f%%: %s\n", 100. * (double)p->scores[p->best[i]], p->names.line[p->best[i]]);
	fflush(f);
}

static int predict_once(struct prediction *p, const char *path)
{
	struct dn_net *net = p->s.net;
	int64_t start = dn_now_ns();
	int err;

	err = dn_net_forward(net, &(struct dn_pass){ .input = p->x });
	if (!err)
		err = dn_layer_read(&net->layers[net->output_layer], 0, 1, p->out);
	if (!err && path)
		print_best(p, path, (double)(dn_now_ns() - start) * 1e-9);
	return err;
}

static int predict_lines(struct prediction *p)
{
	const struct dn_group *g = &p->s.run.group;

	for (;;) {
		char *path = NULL;
		double turn = 0;
		int err;

		if (g->rank == 0)
			turn = next_image(p, &path);
		err = dn_group_sum(g, &turn, 1);
		if (!err && turn == TURN_IMAGE)
			err = predict_once(p, path);
		if (err || turn == TURN_END)
			return err;
	}
}

/* --- the verb --- */

static int check_net(const struct dn_net *net, const char *cfg_path)
{
	if (!net->w)
		return dn_fail(-EINVAL,
			       "%s: classifier predict is for a net with width, height and channels, this one takes %lld inputs",
			       cfg_path, (long long)net->inputs);
	if (net->c != 1 && net->c != 3)
		return dn_fail(-EINVAL, "%s: the net takes %lld channels; images are read as 1 (grey) or 3 (red, green, blue)",
			       cfg_path, (long long)net->c);
	return 0;
}

static int get_top(struct prediction *p)
{
	const struct dn_options *f = p->s.c->flags;
	const char *key = dn_options_given(f, "t") ? "t" : dn_options_given(f, "top") ? "top" : NULL;
	int64_t top = key ? dn_options_int(f, key) : p->file->top;
	char where[16];
	int err;

	snprintf(where, sizeof(where), "-%s", key ? key : "");
	err = samples_check_top(top, p->s.net, key ? where : p->file->file->path);
	p->top = (int)top;
	return err;
}

static int prepare(struct prediction *p, struct session_items *items)
{
	struct dn_net *net = p->s.net;
	const struct dn_backend *be = net->dev->be;
	int err;

	err = check_net(net, p->s.c->args[1]);
	if (!err)
		err = samples_check_classes(p->file, net);
	if (!err)
		err = get_top(p);
	if (!err)
		err = samples_names(&p->names, p->file, net);
	if (!err)
		err = session_item_weights(&p->s, items, p->s.c->args[2]);
	if (err)
		return err;
	p->best = dn_calloc((size_t)p->top, sizeof(*p->best));
	p->scores = dn_calloc((size_t)net->layers[net->output_layer].outputs, sizeof(*p->scores));
	if (!p->best || !p->scores)
		return -ENOMEM;
	err = be->alloc_host(net->dev, DN_MEM_HOST, (size_t)(net->local_batch * net->inputs) * sizeof(*p->x), (void **)&p->x);
	if (!err)
		err = be->alloc_host(net->dev, DN_MEM_HOST, (size_t)net->layers[net->output_layer].outputs * sizeof(*p->out),
				     (void **)&p->out);
	if (err)
		return err;
	memset(p->x, 0, (size_t)(net->local_batch * net->inputs) * sizeof(*p->x));
	return p->path && p->s.run.group.rank == 0 ? read_image(p, p->path) : 0;
}

static int predict(struct prediction *p, struct dn_command *c)
{
	struct dn_net_options opt = { .local_batch = 1 };
	struct session_items items = { 0 };
	struct dn_weights_info info;
	int err;

	err = session_start(&p->s, c, c->args[1], false);
	if (err)
		return err;
	err = session_agree(&p->s, dn_datafile_read(&p->file, c->args[0], dn_options_on(c->flags, "strict")), "data file");
	if (!err)
		err = session_net(&p->s, &opt);
	if (err)
		return err;
	err = session_agree(&p->s, prepare(p, &items), "input");
	if (!err)
		err = session_ready(&p->s, &items);
	session_items_fini(&items);
	if (!err)
		err = session_load(&p->s, c->args[2], false, &info);
	if (!err)
		err = p->path ? predict_once(p, p->s.run.group.rank == 0 ? p->path : NULL) : predict_lines(p);
	if (!err && p->n_failed)
		c->exit_status = 1;
	return err;
}

static int run_predict(struct dn_command *c)
{
	struct prediction p = { .path = c->n_args > 3 ? c->args[3] : NULL };
	int err = predict(&p, c);

	dn_free(p.best);
	dn_free(p.scores);
	dn_net_drain(p.s.net);
	if (p.s.run.dev) {
		p.s.run.dev->be->free_host(p.s.run.dev, p.x);
		p.s.run.dev->be->free_host(p.s.run.dev, p.out);
	}
	dn_lines_fini(&p.names);
	err = session_end(&p.s, err);
	dn_datafile_destroy(p.file);
	return err;
}

static const struct dn_option predict_flags[] = {
	{ .key = "t",
	  .type = DN_OPT_INT,
	  .min = 1,
	  .max = INT32_MAX,
	  .arg = "K",
	  .help = "classes to print (unset: the data file's top)" },
	{ .key = "top", .type = DN_OPT_INT, .min = 1, .max = INT32_MAX, .arg = "K", .help = "the same" },
	{ .key = NULL }
};
static const struct dn_option *const tables[] = { predict_flags, cli_net_flags, NULL };

const struct dn_verb verb_classifier_predict = {
	.name = "classifier predict",
	.args = "DATA CFG WEIGHTS [FILE]",
	.summary = "the best classes of an image, or of each whose path is read from standard input",
	.min_args = 3,
	.max_args = 4,
	.flags = tables,
	.run = run_predict,
};
