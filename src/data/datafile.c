/* .data files: the keys of Darknet and ours, typed. */
#include "data/data.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define FORMATS "formats: list, idx, cifar, npy"

/* Keys that Darknet reads and we do not need, or not here: known, so never warned of. */
static const char *const other_keys[] = {
	"test", "results", "eval", "map", "leaves", "tag", "difficult", "saveweights", "savelast",
};

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
	const char *f = dn_section_text(s, "format", "list");

	if (!strcmp(f, "list"))
		*out = DN_FORMAT_LIST;
	else if (!strcmp(f, "idx"))
		*out = DN_FORMAT_IDX;
	else if (!strcmp(f, "cifar"))
		*out = DN_FORMAT_CIFAR;
	else if (!strcmp(f, "npy"))
		*out = DN_FORMAT_NPY;
	else
		return dn_section_fail(s, "format", -EINVAL, "format=%.80s: not a format; " FORMATS, f);
	return 0;
}

static int read_shuffle(struct dn_section *s, enum dn_shuffle *out)
{
	const char *text = dn_section_text(s, "shuffle", "1");
	const struct dn_key *k = dn_section_find(s, "shuffle");
	char where[600];

	snprintf(where, sizeof(where), "%.500s:%d", s->file->path, k ? k->line : 1);
	return dn_shuffle_parse(text, where, out);
}

static int read_keys(struct dn_datafile *d)
{
	struct dn_section *s = &d->file->sections[0];
	int err;

	d->train = dn_section_text(s, "train", NULL);
	d->train_truth = dn_section_text(s, "train_truth", NULL);
	d->valid = dn_section_text(s, "valid", NULL);
	d->valid_truth = dn_section_text(s, "valid_truth", NULL);
	d->backup = dn_section_text(s, "backup", "/backup/");
	d->labels = dn_section_text(s, "labels", NULL);
	d->names = dn_section_text(s, "names", NULL);
	d->tree = dn_section_text(s, "tree", NULL);
	for (size_t i = 0; i < sizeof(other_keys) / sizeof(other_keys[0]); i++)
		dn_section_text(s, other_keys[i], NULL);
	err = dn_section_int(s, "classes", -1, 1, INT32_MAX, &d->classes);
	if (!err)
		err = dn_section_int(s, "top", 1, 1, INT32_MAX, &d->top);
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

void dn_datafile_destroy(struct dn_datafile *d)
{
	if (!d)
		return;
	dn_keyfile_destroy(d->file);
	dn_free(d);
}
