/* A .data file, a list of images, labels and a tree, split at the bytes 1 of one input. */
#include "fuzz.h"

#include "data/datafile.h"
#include "data/dataset.h"

#define SEED(name, text) fuzz_seed(folder, name, text, sizeof(text) - 1)

static void make_seeds(const char *folder)
{
	SEED("one", "a/cat.jpg\r\nb/dog.jpg\n\1cat\ndog\n\1cat -1\ndog 0\n\1classes=2\n");
	SEED("bom", "\xef\xbb\xbf"
		    "cat\n\n\1cat\ncat\n\1"
		    "a -1\nb -1");
	SEED("cifar", "x,y\1\1\1"
		      "format=cifar");
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static const char *const names[] = { "list", "labels", "tree", "data" };
	char keys[4][160], text[1000] = "";
	struct dn_datafile *d = NULL;
	float *x;

	for (int i = 0; i < 4; i++) {
		const uint8_t *end = n ? memchr(p, 1, n) : NULL;
		size_t k = end && i < 3 ? (size_t)(end - p) : n;

		fuzz_put(fuzz_path(names[i]), n ? p : (const uint8_t *)"", k);
		snprintf(keys[i], sizeof(keys[i]), "%s", fuzz_path(names[i]));
		p += k + (end && i < 3);
		n -= k + (end && i < 3);
	}
	if (!dn_datafile_read(&d, keys[3], false)) /* whatever its keys name is not opened */
		dn_datafile_destroy(d);
	x = malloc(8 * 8 * 3 * sizeof(*x));
	for (int k = 0; k < 4; k++) {
		struct dn_dataset_config c = { .valid = k == 1, .inputs = 192, .w = 8, .h = 8, .c = 3 };
		struct dn_dataset *ds = NULL;
		float *t;

		if (k == 3)
			c = (struct dn_dataset_config){ .inputs = 3072 };
		snprintf(text, sizeof(text), "train=%s\nvalid=%s\n%s%s\n%s%s\n%s\n", keys[0], keys[0], k < 3 ? "labels=" : "#",
			 keys[1], k == 2 ? "tree=" : "#", keys[2], k == 3 ? "format=cifar" : "");
		d = NULL;
		if (dn_datafile_parse(&d, text, "t.data"))
			abort();
		if (!dn_dataset_open(&ds, d, &c) && k < 3) {
			t = malloc((size_t)ds->classes * sizeof(*t) + 1);
			for (int64_t i = 0; i < ds->n && i < 4; i++)
				if (ds->name(ds, i)[0] != '/' && !strstr(ds->name(ds, i), ".."))
					(void)ds->get(ds, i, NULL, x, t, ds->classes, NULL);
			free(t);
		}
		dn_dataset_close(ds);
		dn_datafile_destroy(d);
	}
	free(x);
	return 0;
}
