/* IDX files, plain and packed, as inputs and as truth. */
#include "fuzz.h"

#include "data/datafile.h"
#include "data/dataset.h"

static void make_seeds(const char *folder)
{
	fuzz_seed(folder, "x", "\0\0\10\3\0\0\0\2\0\0\0\2\0\0\0\2abcdefgh", 24);
	fuzz_seed(folder, "y", "\0\0\10\1\0\0\0\2\0\1", 10);
	fuzz_seed(folder, "f", "\0\0\15\2\0\0\0\1\0\0\0\1abcd", 16);
	fuzz_seed(folder, "gz", "\x1f\x8b\10\0\0\0\0\0\0\3c`\xe0``@\0\0\0\0\0\0\0\0\0", 26);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char path[200], text[1000];

	snprintf(path, sizeof(path), "%s", fuzz_path("x"));
	fuzz_put(path, p, n);
	for (int truth = 0; truth < 2; truth++) {
		struct dn_datafile *d = NULL;
		struct dn_dataset *ds = NULL;

		snprintf(text, sizeof(text), "format=idx\ntrain=%s\n%s%s\n", path, truth ? "train_truth=" : "#", path);
		if (dn_datafile_parse(&d, text, "t.data"))
			abort();
		if (!dn_dataset_open(&ds, d, &(struct dn_dataset_config){ .inputs = 0 })) {
			float *x = malloc((size_t)ds->inputs * sizeof(*x));

			if (ds->get(ds, 0, NULL, x, NULL, 0, NULL) || ds->get(ds, ds->n - 1, NULL, x, NULL, 0, NULL))
				abort();
			free(x);
		}
		dn_dataset_close(ds);
		dn_datafile_destroy(d);
	}
	return 0;
}
