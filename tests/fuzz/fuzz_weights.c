/* A .weights file: header alone, checked against nets and loaded into them. */
#include "fuzz_net.h"
#include "io/weights.h"

#define HEAD "[net]\nbatch=1\nwidth=2\nheight=2\nchannels=2\n"

static const char *const cfgs[] = {
	HEAD
	"[convolutional]\nfilters=3\nsize=1\nbatch_normalize=1\nactivation=linear\n[connected]\noutput=4\nactivation=linear\n",
	HEAD "[convolutional]\nfilters=2\nsize=1\nflipped=1\nactivation=linear\n[connected]\noutput=3\nbatch_normalize=1\n"
	     "dontloadscales=1\nactivation=linear\n[connected]\noutput=2\nactivation=linear\ndontload=1\n",
};

static void make_seeds(const char *folder)
{
	char p[20 + 400] = { 0 };

	p[4] = 2;
	for (int i = 0; i < 100; i++)
		memcpy(p + 20 + 4 * i, &(float){ (float)i }, 4);
	fuzz_seed(folder, "new", p, 20 + 4 * 70);
	fuzz_seed(folder, "flipped", p, 20 + 4 * 42);
	fuzz_seed(folder, "part", p, 20 + 4 * 18);
	p[4] = 1;
	fuzz_seed(folder, "old", p, 16 + 4 * 70);
	p[0] = 5;
	p[1] = 4;
	fuzz_seed(folder, "transposed", p, 20 + 4 * 70);
	fuzz_seed(folder, "pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", 63);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct dn_net *nets[2];
	const char *path = fuzz_path("x.weights");
	struct dn_weights_info info;

	fuzz_put(path, p, n);
	(void)dn_weights_info_read(path, &info);
	for (int i = 0; i < 2; i++) {
		if (!nets[i])
			nets[i] = fuzz_net(cfgs[i], i);
		for (int partial = 0; partial < 2; partial++) {
			int check = dn_weights_check(nets[i], path, partial, &info);
			int load = dn_weights_load(nets[i], path, -1, partial, &info);

			if (check && !load) /* what passes no check may not be loaded */
				abort();
		}
		(void)dn_weights_load(nets[i], path, 1, true, &info);
	}
	return 0;
}
