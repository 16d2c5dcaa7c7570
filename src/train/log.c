/* The JSON log of a training run: one object a line, flushed each line. Rank 0's, or a file a rank. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "io/json.h"
#include "train/log_priv.h"

#define START "{\"v\":1,\"event\":\"start\""
#define RUN ",\"run\":\""

/* Whose log is it? The id in the last start event of a regular file; 0: none there, or one of before there were ids. */
static uint64_t run_of_log(const char *path)
{
	char piece[256];
	bool at_start = true;
	uint64_t run = 0;
	struct stat st;
	FILE *f;

	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return 0;
	f = fopen(path, "re");
	while (f && fgets(piece, sizeof(piece), f)) {
		if (at_start && dn_starts(piece, START)) {
			const char *id = piece + strlen(START);

			run = dn_starts(id, RUN) ? strtoull(id + strlen(RUN), NULL, 16) : 0;
		}
		at_start = strchr(piece, '\n') != NULL;
	}
	if (f)
		(void)fclose(f);
	return run;
}

/* A run that was killed while it wrote leaves a line without its end, which is no object: the next must not be glued to it. */
static int cut_last_line(const char *path)
{
	struct stat st;
	char piece[4096];
	int64_t end;
	int fd, err = 0;

	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return 0; /* new, or a device or pipe, where nothing is to be read */
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return dn_fail(-errno, "-log %s: %s", path, strerror(errno));
	for (end = st.st_size; end > 0 && !err;) {
		int64_t at = end > (int64_t)sizeof(piece) ? end - (int64_t)sizeof(piece) : 0;
		ssize_t n = pread(fd, piece, (size_t)(end - at), at);

		if (n != end - at) {
			err = dn_fail(n < 0 ? -errno : -EIO, "-log %s: %s", path, strerror(n < 0 ? errno : EIO));
			break;
		}
		while (n > 0 && piece[n - 1] != '\n')
			n--;
		end = at + n;
		if (n > 0)
			break;
	}
	if (!err && end < st.st_size && ftruncate(fd, end))
		err = dn_fail(-errno, "-log %s: %s", path, strerror(errno));
	(void)close(fd);
	return err;
}

/* A file, which is ours as long as we have it open; devices and pipes may have several writers. Where there are no locks nobody is
 * asked. */
static int own_log(int fd, const char *path, bool append)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct stat st;

	if (fstat(fd, &st))
		return dn_fail(-errno, "-log %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return 0;
	if (fcntl(fd, F_OFD_SETLK, &whole) && (errno == EAGAIN || errno == EACCES))
		return dn_fail(-EBUSY, "-log %s: another run is writing this file; give this one another", path);
	if (!append && ftruncate(fd, 0))
		return dn_fail(-errno, "-log %s: %s", path, strerror(errno));
	return 0;
}

int log_open(struct log *l, const char *path, uint64_t resumed)
{
	uint64_t whose = resumed ? run_of_log(path) : 0;
	bool append = resumed && (!whose || whose == resumed);
	int fd, err = append ? cut_last_line(path) : 0;

	if (err)
		return err;
	if (resumed && !append)
		dn_warn("-log %s: is the log of another run (%016" PRIx64 "): begun anew", path, whose);
	/* not blocking: a pipe that nobody reads is an error, not a wait for ever */
	fd = open(path, O_WRONLY | O_CREAT | (append ? O_APPEND : 0) | O_NONBLOCK | O_CLOEXEC, 0666);
	l->path = path;
	if (fd < 0)
		return dn_fail(-errno, "-log %s: %s", path, errno == ENXIO ? "nobody reads this pipe" : strerror(errno));
	err = own_log(fd, path, append);
	if (err) {
		(void)close(fd);
		return err;
	}
	l->f = fcntl(fd, F_SETFL, append ? O_APPEND : 0) < 0 ? NULL : fdopen(fd, append ? "a" : "w");
	if (l->f)
		return 0;
	err = dn_fail(-errno, "-log %s: %s", path, strerror(errno));
	(void)close(fd);
	return err;
}

int log_close(struct log *l, int err)
{
	dn_buf_fini(&l->line);
	if (l->f && fclose(l->f) && !err)
		err = dn_fail(-errno, "-log %s: %s", l->path, strerror(errno));
	l->f = NULL;
	return err;
}

static void line_start(struct log *l)
{
	l->line.n = 0;
}

static int line_end(struct log *l, int err)
{
	if (!err)
		err = dn_buf_add(&l->line, "}\n", 2);
	if (err)
		return err;
	if (fwrite(l->line.s, 1, l->line.n, l->f) != l->line.n || fflush(l->f))
		return dn_fail(errno ? -errno : -EIO, "-log %s: %s", l->path, strerror(errno ? errno : EIO));
	return 0;
}

static int add_key(struct dn_buf *b, const char *key)
{
	return dn_buf_printf(b, ",\"%s\":", key);
}

static int add_number(struct dn_buf *b, const char *key, double x)
{
	int err = add_key(b, key);

	return err ? err : dn_json_number(b, x);
}

static int add_u64(struct dn_buf *b, const char *key, uint64_t x)
{
	int err = add_key(b, key);

	return err ? err : dn_json_u64(b, x);
}

static int add_text(struct dn_buf *b, const char *key, const char *s)
{
	int err = add_key(b, key);

	return err ? err : dn_json_text(b, s);
}

/* float32 with 9 digits, which tell every float from its neighbours */
static int add_loss(struct dn_buf *b, double loss)
{
	return isfinite((float)loss) ? dn_buf_printf(b, ",\"loss\":%.9g", (double)(float)loss)
				     : dn_buf_printf(b, ",\"loss\":null,\"nonfinite\":\"%s\"", isnan(loss) ? "nan" : "inf");
}

/* --- start --- */

struct option_list {
	struct dn_buf *b;
	const struct dn_options *all;
	const char *prefix; /* plugin's name or NULL */
	bool first;
};

static int add_option(void *arg, const struct dn_option *o, const char *value)
{
	struct option_list *l = arg;
	char name[160];
	int err;

	snprintf(name, sizeof(name), "%s%s%s", l->prefix ? l->prefix : "", l->prefix ? "." : "", o->key);
	err = dn_buf_add(l->b, ",", l->first ? 0 : 1);
	l->first = false;
	if (!err)
		err = dn_json_text(l->b, name);
	if (!err)
		err = dn_buf_add(l->b, ":", 1);
	if (err)
		return err;
	if (!*value && o->type != DN_OPT_STRING && o->type != DN_OPT_CHOICE)
		return dn_buf_add(l->b, "null", 4);
	switch (o->type) {
	case DN_OPT_SWITCH:
		return dn_buf_printf(l->b, "%d", dn_options_on(l->all, o->key));
	case DN_OPT_INT:
	case DN_OPT_BYTES:
		return dn_buf_printf(l->b, "%" PRId64, dn_options_int(l->all, o->key));
	case DN_OPT_FLOAT:
		return dn_json_number(l->b, dn_options_float(l->all, o->key));
	default:
		return dn_json_text(l->b, value);
	}
}

static int add_options(struct dn_buf *b, const struct dn_loop_config *c)
{
	struct option_list l = { b, c->options, NULL, true };
	int err;

	err = dn_buf_printf(b, ",\"options\":{");
	if (!err && c->options)
		err = dn_options_each(c->options, add_option, &l);
	if (!err && c->plugin_options) {
		l.all = c->plugin_options;
		l.prefix = c->plugin;
		err = dn_options_each(c->plugin_options, add_option, &l);
	}
	return err ? err : dn_buf_add(b, "}", 1);
}

int log_start(struct log *l, const struct dn_net *net, const struct dn_group *g, const struct dn_loop_config *c, uint64_t run,
	      int64_t batches)
{
	struct dn_buf *b = &l->line;
	struct dn_store_report report;
	struct dn_facts facts;
	int err;

	if (!l->f)
		return 0;
	net->dev->be->facts(net->dev, &facts);
	net->store.ops->report(net->store.self, &report);
	line_start(l);
	err = dn_buf_printf(b, START RUN "%016" PRIx64 "\",\"batches_done\":%" PRId64, run, batches);
	if (!err)
		err = add_text(b, "cfg", net->cfg->file->path);
	if (!err && c->resume)
		err = add_text(b, "resume", c->resume);
	if (!err)
		err = dn_buf_printf(b, ",\"params\":%" PRId64 ",\"world\":%d,\"rank\":%d", net->n_trained, g->world, g->rank);
	if (!err)
		err = add_u64(b, "seed", c->seed);
	if (!err)
		err = add_text(b, "backend", facts.backend);
	if (!err)
		err = add_text(b, "isa", facts.isa);
	if (!err)
		err = dn_buf_printf(b, ",\"threads\":%d", facts.threads);
	if (!err)
		err = add_options(b, c);
	if (!err)
		err = report.plan_hash ? dn_buf_printf(b, ",\"plan_hash\":\"%016" PRIx64 "\"", report.plan_hash)
				       : dn_buf_printf(b, ",\"plan_hash\":null");
	return line_end(l, err);
}

/* --- while it runs --- */

static int add_times(struct dn_buf *b, const double *ms)
{
	int err = dn_buf_printf(b, ",\"phases\":{");

	for (int k = 0; k < DN_TIMES && !err; k++) {
		err = dn_buf_printf(b, "%s\"%s_ms\":", k ? "," : "", dn_time_name((enum dn_time)k));
		if (!err)
			err = dn_json_number(b, ms[k]);
	}
	return err ? err : dn_buf_add(b, "}", 1);
}

int log_step(struct log *l, const struct dn_loop_step *s, const struct dn_store_report *report)
{
	struct dn_buf *b = &l->line;
	int err;

	if (!l->f)
		return 0;
	line_start(l);
	err = dn_buf_printf(b, "{\"v\":1,\"event\":\"step\",\"step\":%" PRId64, s->step);
	if (!err)
		err = add_u64(b, "images", s->seen);
	if (!err)
		err = add_loss(b, s->loss);
	if (!err)
		err = add_number(b, "rate", s->rate);
	if (!err)
		err = add_number(b, "seconds", s->seconds);
	if (!err)
		err = add_number(b, "load_seconds", s->load_seconds);
	if (!err && s->grad_norm >= 0)
		err = add_number(b, "grad_norm", s->grad_norm);
	if (!err && s->loss_scale > 0)
		err = add_number(b, "loss_scale", s->loss_scale);
	if (!err && s->skipped)
		err = dn_buf_printf(b, ",\"skipped\":true");
	if (!err && report) {
		err = add_u64(b, "sent_bytes", report->gather.counted_bytes + report->reduce.counted_bytes);
		if (!err)
			err = add_number(b, "exposed_ms", report->exposed_ms);
		if (!err)
			err = add_u64(b, "rss_bytes", dn_rss_bytes());
		if (!err && report->n_blocks)
			err = add_times(b, report->step_ms);
	}
	if (!err && s->seconds > 0)
		err = add_number(b, "flops_per_second", s->flops / s->seconds);
	return line_end(l, err);
}

int log_save(struct log *l, const char *path, int64_t bytes, double seconds)
{
	struct dn_buf *b = &l->line;
	int err;

	if (!l->f)
		return 0;
	line_start(l);
	err = dn_buf_printf(b, "{\"v\":1,\"event\":\"save\"");
	if (!err)
		err = add_text(b, "path", path);
	if (!err)
		err = dn_buf_printf(b, ",\"bytes\":%" PRId64, bytes);
	if (!err)
		err = add_number(b, "seconds", seconds);
	return line_end(l, err);
}

int log_valid(struct log *l, const struct dn_loop_step *s, const struct dn_result *r)
{
	struct dn_buf *b = &l->line;
	int err;

	if (!l->f)
		return 0;
	line_start(l);
	err = dn_buf_printf(b, "{\"v\":1,\"event\":\"valid\",\"step\":%" PRId64 ",\"images\":%" PRId64, s->step, r->images);
	for (int i = 0; i < r->n_fields && !err; i++)
		err = add_number(b, r->fields[i].name, r->fields[i].value);
	if (!err)
		err = add_loss(b, r->loss / (double)r->images);
	return line_end(l, err);
}

/* --- end --- */

static int add_traffic(struct dn_buf *b, const char *name, const struct dn_traffic *t)
{
	return dn_buf_printf(b,
			     ",\"%s\":{\"planned_bytes\":%" PRIu64 ",\"counted_bytes\":%" PRIu64 ",\"planned_calls\":%" PRIu64
			     ",\"counted_calls\":%" PRIu64 "}",
			     name, t->planned_bytes, t->counted_bytes, t->planned_calls, t->counted_calls);
}

static int add_block(struct dn_buf *b, const struct dn_block *of, const struct dn_store_block *x)
{
	int err = dn_buf_printf(b, "{\"name\":");

	if (!err)
		err = dn_json_text(b, of->name);
	if (!err)
		err = dn_buf_printf(b, ",\"slot\":%" PRId64, x->slot);
	if (!err)
		err = add_number(b, "held_ms", x->held_ms);
	if (!err)
		err = add_number(b, "exposed_ms", x->exposed_ms);
	if (!err)
		err = add_number(b, "gather_ms", x->gather_ms);
	if (!err)
		err = dn_buf_printf(b, ",\"gather_bytes\":%" PRIu64 ",\"gather_calls\":%" PRIu64, x->gather_bytes,
				    x->gather_calls);
	if (!err)
		err = add_number(b, "reduce_ms", x->reduce_ms);
	return err ? err
		   : dn_buf_printf(b, ",\"reduce_bytes\":%" PRIu64 ",\"reduce_calls\":%" PRIu64 "}", x->reduce_bytes,
				   x->reduce_calls);
}

static int add_blocks(struct dn_buf *b, const struct dn_net *net, const struct log_rank *r)
{
	const struct dn_store_block *blocks = (const struct dn_store_block *)(const void *)(r + 1);
	int err = dn_buf_printf(b, ",\"blocks\":[");

	for (int i = 0; i < (int)r->n_blocks && !err; i++) {
		err = dn_buf_add(b, ",", i > 0);
		if (!err)
			err = add_block(b, &net->blocks[i], &blocks[i]);
	}
	return err ? err : dn_buf_add(b, "]", 1);
}

static int add_rank(struct dn_buf *b, const struct dn_net *net, int rank, bool first, const struct log_rank *r)
{
	int err;

	err = dn_buf_printf(b, "%s{\"rank\":%d,\"regions\":[", first ? "" : ",", rank);
	for (int i = 0; i < DN_MEM_PLANNED && !err; i++)
		err = dn_buf_printf(b, "%s{\"name\":\"%s\",\"planned_bytes\":%" PRIu64 ",\"measured_bytes\":%" PRIu64 "}",
				    i ? "," : "", dn_region_name(i), r->planned_bytes[i], r->measured_bytes[i]);
	if (!err)
		err = dn_buf_add(b, "]", 1);
	if (!err)
		err = add_traffic(b, "gather", &r->gather);
	if (!err)
		err = add_traffic(b, "reduce", &r->reduce);
	if (!err)
		err = add_number(b, "exposed_ms", r->exposed_ms);
	if (!err)
		err = add_number(b, "load_seconds", r->load_seconds);
	if (!err && r->n_blocks)
		err = add_times(b, r->total_ms);
	if (!err && r->n_blocks)
		err = add_blocks(b, net, r);
	return err ? err : dn_buf_add(b, "}", 1);
}

int log_end(struct log *l, const struct dn_net *net, const struct log_end *e)
{
	struct dn_buf *b = &l->line;
	int err;

	if (!l->f)
		return 0;
	line_start(l);
	err = dn_buf_printf(b, "{\"v\":1,\"event\":\"end\",\"steps\":%" PRId64, e->steps);
	if (!err)
		err = add_number(b, "seconds", e->seconds);
	if (!err)
		err = add_u64(b, "allocs_after_first_step", e->allocs_after_first_step);
	if (!err)
		err = add_u64(b, "peak_rss_bytes", e->peak_rss_bytes);
	if (!err)
		err = add_number(b, "flops_per_second", e->busy_seconds > 0 ? e->flops / e->busy_seconds : 0);
	if (!err)
		err = dn_buf_printf(b, ",\"ranks\":[");
	for (int r = 0; r < e->n_ranks && !err; r++)
		err = add_rank(b, net, e->rank + r, r == 0,
			       (const struct log_rank *)(const void *)(e->ranks + (size_t)r * e->rank_bytes));
	if (!err)
		err = dn_buf_add(b, "]", 1);
	return line_end(l, err);
}
