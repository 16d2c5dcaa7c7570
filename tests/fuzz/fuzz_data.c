/* A .data file, alone. */
#include "fuzz.h"

#include "data/datafile.h"

static void make_seeds(const char *folder)
{
	static const char *const seeds[] = {
		"classes=10\r\ntrain  = a.list\r\nvalid=b.list\r\nlabels=l.names\r\nbackup=out/\r\nnames=n.names\r\ntop=5\r\n",
		"\xef\xbb\xbf"
		"format=idx\ntrain=x-idx3\ntrain_labels=y\nvalid=v\nvalid_labels=w\nshuffle=replace # c\n",
		"format=npy\ntrain=a.npy\ntrain_truth=b.npy\nclasses=2\nshuffle=0\n",
		"format = cifar\ntree=t\ntop=99999999999\nclasses=-1\n",
	};

	for (int i = 0; i < 4; i++)
		fuzz_seed(folder, (const char[]){ (char)('a' + i), 0 }, seeds[i], strlen(seeds[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct dn_datafile *d = NULL;
	char *text = malloc(n + 1);

	fuzz_put(fuzz_path("x.data"), p, n);
	for (int strict = 0; strict < 2; strict++)
		if (!dn_datafile_read(&d, fuzz_path("x.data"), strict))
			dn_datafile_destroy(d);
	if (!text)
		abort();
	memcpy(text, p, n);
	text[n] = 0;
	if (!dn_datafile_parse(&d, text, "text"))
		dn_datafile_destroy(d);
	free(text);
	return 0;
}
