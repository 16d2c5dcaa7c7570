/* .data files: the keys of Darknet and ours, typed. */
#include "data/datafile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

static const char formats[] = "list, idx, cifar, npy"; /* in the order of enum dn_format */

static const char *format_names(void)
{
	return formats;
}

const struct dn_key_rule dn_datafile_keys[] = {
	{ "format", DN_KEY_TEXT, "list", .help = "of the files that the keys below name", .names = format_names },
	{ "train", DN_KEY_TEXT, .help = "images to train on: a list, or the file of the format" },
	{ "train_truth", DN_KEY_TEXT, .help = "their classes or targets, for idx and npy" },
	{ "valid", DN_KEY_TEXT, .help = "images to evaluate on" },
	{ "valid_truth", DN_KEY_TEXT, .help = "their classes or targets, for idx and npy" },
	{ "classes", DN_KEY_INT, NULL, 1, INT32_MAX, .help = "number of classes", .otherwise = "what labels or data have" },
	{ "labels", DN_KEY_TEXT, .help = "file of labels: the classes of an image are those that are part of its path" },
	{ "names", DN_KEY_TEXT, .help = "file of names to print, one a class", .otherwise = "those of labels" },
	{ "tree", DN_KEY_TEXT, .help = "file of the classes' hierarchy" },
	{ "top", DN_KEY_INT, "1", 1, INT32_MAX, .help = "classes that count in top-k" },
	{ "backup", DN_KEY_TEXT, "/backup/", .help = "folder for weights and checkpoints" },
	{ "shuffle", DN_KEY_TEXT, "1",
	  .help = "1: another order every epoch; replace: drawn anew for every place; 0: the file's" },
	/* Darknet reads them; here, or for now, nobody needs them */
	{ "test", .kind = DN_KEY_NOTHING },
	{ "results", .kind = DN_KEY_NOTHING },
	{ "eval", .kind = DN_KEY_NOTHING },
	{ "map", .kind = DN_KEY_NOTHING },
	{ "leaves", .kind = DN_KEY_NOTHING },
	{ "tag", .kind = DN_KEY_NOTHING },
	{ "difficult", .kind = DN_KEY_NOTHING },
	{ "saveweights", .kind = DN_KEY_NOTHING },
	{ "savelast", .kind = DN_KEY_NOTHING },
	{ .key = NULL },
};

const char *dn_shuffle_name(enum dn_shuffle s)
{
	return s == DN_SHUFFLE_OFF ? "0" : s == DN_SHUFFLE_EPOCH ? "1" : "replace";
}

int dn_shuffle_parse(const char *text, const char *where, enum dn_shuffle *out)
{
	if (!strcmp(text, "1"))
		*out = DN_SHUFFLE_EPOCH;
	else if (!strcmp(text, "replace"))
		*out = DN_SHUFFLE_REPLACE;
	else if (!strcmp(text, "0"))
		*out = DN_SHUFFLE_OFF;
	else
		return dn_fail(-EINVAL,
			       "%.600s: shuffle is %.80s, must be 1 (another order every epoch), replace (drawn anew for "
			       "every place) or 0 (the order of the file)",
			       where, text);
	return 0;
}

static int read_format(struct dn_section *s, enum dn_format *out)
{
	const char *f = dn_key_text(s, "format");
	int i = dn_word_index(formats, f);

	if (i < 0)
		return dn_section_fail(s, "format", -EINVAL, "format=%.80s: not a format; formats: %s", f, formats);
	*out = (enum dn_format)i;
	return 0;
}

static int read_shuffle(struct dn_section *s, enum dn_shuffle *out)
{
	const char *text = dn_key_text(s, "shuffle");
	const struct dn_key *k = dn_section_find(s, "shuffle");
	char where[600];

	snprintf(where, sizeof(where), "%.500s:%d", s->file->path, k ? k->line : 1);
	return dn_shuffle_parse(text, where, out);
}

static int read_keys(struct dn_datafile *d)
{
	struct dn_section *s = &d->file->sections[0];
	int err;

	dn_section_rules(s, dn_datafile_keys);
	d->train = dn_key_text(s, "train");
	d->train_truth = dn_key_text(s, "train_truth");
	d->valid = dn_key_text(s, "valid");
	d->valid_truth = dn_key_text(s, "valid_truth");
	d->backup = dn_key_text(s, "backup");
	d->labels = dn_key_text(s, "labels");
	d->names = dn_key_text(s, "names");
	d->tree = dn_key_text(s, "tree");
	err = dn_key_int_or(s, "classes", -1, &d->classes);
	if (!err)
		err = dn_key_int(s, "top", &d->top);
	if (!err)
		err = read_format(s, &d->format);
	if (!err)
		err = read_shuffle(s, &d->shuffle);
	return err ? err : dn_keyfile_unused(d->file);
}

/* @text NULL: the file's own. */
static int make(struct dn_datafile **out, const char *path, const char *text, bool strict)
{
	struct dn_datafile *d = dn_zalloc(sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	d->made = text != NULL;
	err = text ? dn_keyfile_parse(&d->file, text, strlen(text), path, false, strict)
		   : dn_keyfile_read(&d->file, path, false, strict);
	if (!err)
		err = read_keys(d);
	if (err)
		dn_datafile_destroy(d);
	else
		*out = d;
	return err;
}

int dn_datafile_read(struct dn_datafile **out, const char *path, bool strict)
{
	return make(out, path, NULL, strict);
}

int dn_datafile_parse(struct dn_datafile **out, const char *text, const char *path)
{
	return make(out, path, text, true);
}

int dn_datafile_fail(const struct dn_datafile *d, const char *key, int err)
{
	const struct dn_key *k = dn_section_find(&d->file->sections[0], key);
	const size_t n = strlen(d->file->path);

	if (!err || err == -ENOMEM || !k || d->made)
		return err;
	if (!strncmp(dn_message(), d->file->path, n) && dn_message()[n] == ':')
		return err;
	return dn_fail(err, "%.500s:%d: %s", d->file->path, k->line, dn_message());
}

void dn_datafile_destroy(struct dn_datafile *d)
{
	if (!d)
		return;
	dn_keyfile_destroy(d->file);
	dn_free(d);
}
