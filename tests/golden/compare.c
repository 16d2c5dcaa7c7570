/* Small arithmetic for the golden tests: files of float32 (raw, NumPy or .weights) made, converted and compared.
 *
 *   compare random SEED COUNT OUT            numbers in [0,1), the same everywhere (integer arithmetic)
 *   compare classes SEED COUNT K OUT         one-hot rows of K, classes at random
 *   compare npy IN OUT DIM...                a raw file as NumPy array
 *   compare max A B TOL                      largest |a-b| <= TOL * largest |b|
 *   compare change LAYOUT START A B TOL      weights files, each tensor: ||A-B|| <= TOL * ||B-START||; LAYOUT: lines "NAME COUNT"
 *   compare share LAYOUT START A B LEAST     the other way: some tensor's ||A-B|| >= LEAST * ||B-START||
 *   compare loss A B TOL                     lines of numbers, |a-b| <= TOL * |b|
 *   compare top A B ROW K                    rows of ROW numbers: the K largest are the same places in the same order
 *   compare count A B ROW                    prints how many rows have another largest place; always status 0
 *
 * One line says what was found. Status 0 holds, 1 does not hold, 2 usage or a file that cannot be used.
 */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what, const char *name)
{
	fprintf(stderr, "compare: %s: %s\n", name, what);
	exit(2);
}

static void *need(void *p)
{
	if (!p)
		die("out of memory", "malloc");
	return p;
}

static double number(const char *s)
{
	char *end;
	double v = strtod(s, &end);

	if (end == s || *end)
		die("is not a number", s);
	return v;
}

/* --- files --- */

/* What stands before the floats: a NumPy header, or nothing */
static long header_bytes(FILE *f, const char *name)
{
	unsigned char h[12];
	size_t n = fread(h, 1, sizeof(h), f);

	if (n < 10 || memcmp(h, "\x93NUMPY", 6))
		return 0;
	if (h[6] == 1)
		return 10 + h[8] + 256 * h[9];
	if (n < 12)
		die("ends in its header", name);
	return 12 + h[8] + 256L * h[9] + 65536L * h[10] + 16777216L * h[11];
}

static float *read_floats(const char *name, long skip, size_t *n)
{
	FILE *f = fopen(name, "rb");
	long bytes;
	float *x;

	if (!f)
		die(strerror(errno), name);
	if (skip < 0)
		skip = header_bytes(f, name);
	if (fseek(f, 0, SEEK_END) || (bytes = ftell(f)) < skip || (bytes - skip) % 4 || fseek(f, skip, SEEK_SET))
		die("has a length that does not fit", name);
	*n = (size_t)(bytes - skip) / 4;
	x = need(malloc(*n * 4 + 4));
	if (fread(x, 4, *n, f) != *n)
		die("short read", name);
	fclose(f);
	return x;
}

static float *read_array(const char *name, size_t *n)
{
	return read_floats(name, -1, n);
}

/* Versions with a 64-bit count of images, as both programs write them */
static float *read_weights(const char *name, size_t *n)
{
	return read_floats(name, 20, n);
}

static void write_file(const char *name, const void *head, size_t head_bytes, const float *x, size_t n)
{
	FILE *f = fopen(name, "wb");

	if (!f)
		die(strerror(errno), name);
	if (fwrite(head, 1, head_bytes, f) != head_bytes || fwrite(x, 4, n, f) != n || fclose(f))
		die("write error", name);
}

/* --- making --- */

static uint64_t rng_state;

static uint64_t bits(void)
{
	uint64_t z = (rng_state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static int make_random(char **a)
{
	size_t n = (size_t)number(a[1]);
	float *x = need(malloc(n * 4 + 4));

	rng_state = (uint64_t)number(a[0]);
	for (size_t i = 0; i < n; i++)
		x[i] = (float)(bits() >> 40) / 16777216.f;
	write_file(a[2], "", 0, x, n);
	return 0;
}

static int make_classes(char **a)
{
	size_t n = (size_t)number(a[1]), k = (size_t)number(a[2]);
	float *x = need(calloc(n * k + 1, 4));

	if (!k)
		die("needs a class", "classes");
	rng_state = (uint64_t)number(a[0]);
	for (size_t i = 0; i < n; i++)
		x[i * k + (bits() >> 33) % k] = 1;
	write_file(a[3], "", 0, x, n * k);
	return 0;
}

static int make_npy(int argc, char **a)
{
	char head[512] = "\x93NUMPY\x01";
	size_t n, want = 1, at = 10;
	float *x = read_array(a[0], &n);

	at += (size_t)snprintf(head + at, 200, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
	for (int i = 2; i < argc; i++) {
		want *= (size_t)number(a[i]);
		at += (size_t)snprintf(head + at, 24, "%zu,", (size_t)number(a[i]));
	}
	at += (size_t)snprintf(head + at, 20, "), }");
	while (at % 64 != 63)
		head[at++] = ' ';
	head[at++] = '\n';
	head[8] = (char)((at - 10) & 255);
	head[9] = (char)((at - 10) >> 8);
	if (n != want)
		die("does not have the numbers of this shape", a[0]);
	write_file(a[1], head, at, x, n);
	return 0;
}

/* --- comparing --- */

static int compare_max(char **a)
{
	size_t n, m, worst = 0;
	float *x = read_array(a[0], &n), *y = read_array(a[1], &m);
	double diff = 0, top = 0, tol = number(a[2]);

	if (n != m) {
		printf("%zu and %zu numbers\n", n, m);
		return 1;
	}
	for (size_t i = 0; i < n; i++) {
		double d = fabs((double)x[i] - y[i]);

		if (!(d <= diff)) { /* a NaN counts as worst */
			diff = d;
			worst = i;
			if (isnan(d))
				break;
		}
		top = fmax(top, fabs((double)y[i]));
	}
	printf("%.2e of the largest magnitude %.3g (number %zu of %zu: %.9g, wanted %.9g)\n", top > 0 ? diff / top : diff, top,
	       worst, n, n ? x[worst] : 0, n ? y[worst] : 0);
	return !(n && isfinite(top) && diff <= tol * top);
}

/* least: some tensor must differ by that share; else every tensor must be within tol */
static int compare_change(char **a, int least)
{
	size_t n, m, k, at = 0;
	float *s = read_weights(a[1], &n), *x = read_weights(a[2], &m), *y = read_weights(a[3], &k);
	double bound = number(a[4]), worst = -1;
	char name[256], worst_name[256] = "";
	long count;
	int bad = 0, tensors = 0;
	FILE *f = fopen(a[0], "r");

	if (!f)
		die(strerror(errno), a[0]);
	if (n != m || n != k) {
		printf("%zu, %zu and %zu numbers\n", n, m, k);
		return 1;
	}
	while (fscanf(f, "%255s %ld", name, &count) == 2) {
		double diff = 0, change = 0, share;

		if (count < 0 || at + (size_t)count > n)
			die("names more numbers than the files hold", a[0]);
		for (size_t i = at; i < at + (size_t)count; i++) {
			diff += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
			change += ((double)y[i] - s[i]) * ((double)y[i] - s[i]);
		}
		at += (size_t)count;
		tensors++;
		share = sqrt(diff) / sqrt(change);
		if (!(change > 0) || !isfinite(share) || (!least && share > bound)) {
			printf("tensor %s: the changes differ by %.2e of their norm %.2e\n", name, share, sqrt(change));
			bad = 1;
		}
		if (share > worst) {
			worst = share;
			snprintf(worst_name, sizeof(worst_name), "%s", name);
		}
	}
	fclose(f);
	if (at != n)
		die("names fewer numbers than the files hold", a[0]);
	printf("%.2e of the change in the worst of %d tensors, %s\n", worst, tensors, worst_name);
	return bad || (least && !(worst >= bound));
}

static int compare_loss(char **a)
{
	FILE *f = fopen(a[0], "r"), *g = fopen(a[1], "r");
	double x, y, tol = number(a[2]), worst = 0;
	int n = 0, i, j;

	if (!f || !g)
		die("cannot be read", f ? a[1] : a[0]);
	for (;;) {
		i = fscanf(f, "%lf", &x);
		j = fscanf(g, "%lf", &y);
		if (i != 1 || j != 1)
			break;
		n++;
		worst = fmax(worst, fabs(x - y) / fabs(y));
		if (!(fabs(x - y) <= tol * fabs(y))) {
			printf("loss %d: %.9g, wanted %.9g\n", n, x, y);
			return 1;
		}
	}
	fclose(f);
	fclose(g);
	if (i == 1 || j == 1 || !n) {
		printf("%d losses, and then one file ends\n", n);
		return 1;
	}
	printf("%d losses within %.2e\n", n, worst);
	return 0;
}

static size_t rows_of(size_t n, size_t m, const char *row)
{
	size_t r = (size_t)number(row);

	if (!r || n != m || n % r)
		die("is not the length of both files' rows", row);
	return r;
}

/* place of the next largest after those already taken */
static size_t next_largest(const float *x, size_t n, const size_t *taken, size_t k)
{
	size_t best = n;

	for (size_t i = 0; i < n; i++) {
		size_t j = 0;

		while (j < k && taken[j] != i)
			j++;
		if (j == k && (best == n || x[i] > x[best]))
			best = i;
	}
	return best;
}

static int compare_top(char **a)
{
	size_t n, m, k = (size_t)number(a[3]);
	float *x = read_array(a[0], &n), *y = read_array(a[1], &m);
	size_t row = rows_of(n, m, a[2]), *p = need(calloc(2 * k + 1, sizeof(*p))), *q = p + k;

	if (k > row)
		die("is more than a row", a[3]);
	for (size_t r = 0; r < n / row; r++)
		for (size_t j = 0; j < k; j++) {
			p[j] = next_largest(x + r * row, row, p, j);
			q[j] = next_largest(y + r * row, row, q, j);
			if (p[j] != q[j]) {
				printf("row %zu: place %zu is %zu, wanted %zu\n", r, j + 1, p[j], q[j]);
				return 1;
			}
		}
	printf("top %zu equal in %zu rows\n", k, n / row);
	return 0;
}

static int compare_count(char **a)
{
	size_t n, m, differ = 0;
	float *x = read_array(a[0], &n), *y = read_array(a[1], &m);
	size_t row = rows_of(n, m, a[2]);

	for (size_t r = 0; r < n / row; r++)
		differ += next_largest(x + r * row, row, NULL, 0) != next_largest(y + r * row, row, NULL, 0);
	printf("%zu of %zu rows differ\n", differ, n / row);
	return 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	argc -= 2;
	argv += 2;
	if (argc == 3 && !strcmp(verb, "random"))
		return make_random(argv);
	if (argc == 4 && !strcmp(verb, "classes"))
		return make_classes(argv);
	if (argc >= 3 && argc <= 10 && !strcmp(verb, "npy"))
		return make_npy(argc, argv);
	if (argc == 3 && !strcmp(verb, "max"))
		return compare_max(argv);
	if (argc == 5 && !strcmp(verb, "change"))
		return compare_change(argv, 0);
	if (argc == 5 && !strcmp(verb, "share"))
		return compare_change(argv, 1);
	if (argc == 3 && !strcmp(verb, "loss"))
		return compare_loss(argv);
	if (argc == 4 && !strcmp(verb, "top"))
		return compare_top(argv);
	if (argc == 3 && !strcmp(verb, "count"))
		return compare_count(argv);
	fprintf(stderr, "compare: random | classes | npy | max | change | share | loss | top | count, see compare.c\n");
	return 2;
}
