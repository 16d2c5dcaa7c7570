/* Ranks that were started otherwise: which item, and of the files that they read which line, with both values. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "cli/session.h"

/* Items that a file says, where a line of it tells more than the item. */
static const struct source {
	const char *item;
	bool data;	      /* of the .data file, else of the cfg */
	const char *keys[10]; /* that decide the item; none: all */
} sources[] = {
	{ "cfg", false, { NULL } },
	{ "data", true, { "format", "train", "train_truth", "valid", "valid_truth", "classes", "labels", "tree" } },
	{ "-shuffle", true, { "shuffle" } },
	{ "-backup", true, { "backup" } },
};

/* Of "rank 1: cfg is ..., rank 0 has ...": which source, and the rank; NULL for other items. */
static const struct source *source_of(const char *message, int *rank)
{
	int at = 0;

	if (sscanf(message, "rank %d: %n", rank, &at) != 1 || !at)
		return NULL;
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		size_t n = strlen(sources[i].item);

		if (!strncmp(message + at, sources[i].item, n) && !strncmp(message + at + n, " is ", 4))
			return &sources[i];
	}
	return NULL;
}

/* Texts that the parser takes for the same are not the same text: the first line that is not. */
static int first_line(const char *a, size_t n_a, const char *b, size_t n_b)
{
	int line = 1;

	for (size_t i = 0; i < n_a && i < n_b && a[i] == b[i]; i++)
		line += a[i] == '\n';
	return line;
}

static bool describe(const struct source *src, const struct dn_keyfile *theirs, const struct dn_keyfile *mine, char *out,
		     size_t cap)
{
	if (dn_keyfile_difference(theirs, mine, "rank 0", src->keys[0] ? src->keys : NULL, out, cap))
		return true;
	if (src->keys[0])
		return false;
	snprintf(out, cap,
		 "%.300s:%d: not as rank 0 has it (%.300s), though sections and keys are the same: all ranks read one and the "
		 "same text",
		 theirs->path, first_line(theirs->text, theirs->text_bytes, mine->text, mine->text_bytes), mine->path);
	return true;
}

/* @rank's file out of "PATH\0TEXT", one after the other in @all */
static int parse_theirs(struct dn_keyfile **out, const char *all, const size_t *sizes, int rank, bool sections)
{
	size_t at = 0, n;

	for (int r = 0; r < rank; r++)
		at += sizes[r];
	n = strlen(all + at) + 1;
	return dn_keyfile_parse_quiet(out, all + at + n, sizes[rank] - n, all + at, sections);
}

/* Collective. Rank 0, which prints for all, finds the line. */
static int find_line(struct session *s, const struct source *src, const struct dn_keyfile *mine, int rank, char *out, size_t cap)
{
	const struct dn_group *g = &s->run.group;
	size_t *sizes = dn_calloc((size_t)g->world, sizeof(*sizes));
	struct dn_keyfile *theirs = NULL;
	struct dn_buf blob = { 0 };
	char *all = NULL;
	int err = sizes ? 0 : -ENOMEM;

	if (!err)
		err = dn_buf_add(&blob, mine->path, strlen(mine->path) + 1);
	if (!err)
		err = dn_buf_add(&blob, mine->text, mine->text_bytes);
	err = dn_group_agree(g, err, "comparison of files");
	if (!err)
		err = dn_group_gather(g, blob.s, blob.n, &all, sizes);
	if (!err && all)
		err = parse_theirs(&theirs, all, sizes, rank, !src->data);
	if (!err && theirs && !describe(src, theirs, mine, out, cap))
		out[0] = '\0';
	dn_keyfile_destroy(theirs);
	dn_buf_fini(&blob);
	dn_free(all);
	dn_free(sizes);
	return err;
}

int session_items_compare(struct session *s, const struct session_items *items)
{
	int rank, failed, err = dn_group_compare(&s->run.group, items->item, items->n);
	const struct source *src = err == -EINVAL ? source_of(dn_message(), &rank) : NULL;
	const struct dn_keyfile *mine = !src ? NULL : src->data ? items->data : s->cfg->file;
	char said[1200], line[900] = "";

	if (!mine || rank < 0 || rank >= s->run.group.world)
		return err;
	snprintf(said, sizeof(said), "%s", dn_message());
	failed = find_line(s, src, mine, rank, line, sizeof(line));
	if (failed)
		return failed;
	return line[0] ? dn_fail(err, "rank %d: %s", rank, line) : dn_fail(err, "%s", said);
}
