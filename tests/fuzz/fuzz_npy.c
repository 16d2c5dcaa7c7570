/* NumPy files. */
#include "fuzz.h"

#include "data/npy.h"

static void make_seeds(const char *folder)
{
	static const char *const types[] = { "<f4", "|u1", "<i4", "<i8" };

	for (int i = 0; i < 4; i++) {
		char p[200];
		int n = snprintf(p, sizeof(p), "\x93NUMPY%c%c%c%c{'descr': '%s', 'fortran_order': False, 'shape': (2, 3), }\n", 1,
				 1, 60, 1, types[i]);

		p[7] = 0;
		p[8] = (char)(n - 10);
		p[9] = 0;
		memset(p + n, 'a', 48);
		fuzz_seed(folder, types[i] + 1, p, (size_t)n + 48);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	const char *path = fuzz_path("x.npy");
	struct dn_npy a = { 0 };
	double sum = 0;

	fuzz_put(path, p, n);
	if (!dn_npy_open(&a, path)) {
		for (int64_t i = 0; i < a.n; i++)
			sum += dn_npy_float(&a, i, i & 1);
		dn_npy_close(&a);
	}
	return sum == 1.25e-300 ? -1 : 0; /* never; keeps the reads */
}
