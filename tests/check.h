/* Helpers over CUnit: a suite is a table of cases named as statements; failures print index, got,
 * wanted and the largest difference. main() of a suite: return check_run("room", cases).
 */
#ifndef DN_TESTS_CHECK_H
#define DN_TESTS_CHECK_H
#include <CUnit/Basic.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

/* the back end that a suite runs over: @name, unless DARKNET_TEST_BACKEND says another (make test-far) */
static inline const char *check_backend(const char *name)
{
	const char *other = getenv("DARKNET_TEST_BACKEND");

	return other && *other ? other : name;
}

struct check_case {
	const char *name;
	void (*fn)(void);
};

/* 0 or -errno expected; the message of the failing call is printed */
#define CHECK_OK(call) \
	do { \
		int err_ = (call); \
		if (err_) \
			fprintf(stderr, "%s:%d: %s: %d: %s\n", __FILE__, __LINE__, #call, err_, dn_message()); \
		CU_ASSERT_EQUAL(err_, 0); \
	} while (0)

/* as CHECK_OK, and ends the case */
#define CHECK_OK_FATAL(call) \
	do { \
		int err_ = (call); \
		if (err_) \
			fprintf(stderr, "%s:%d: %s: %d: %s\n", __FILE__, __LINE__, #call, err_, dn_message()); \
		CU_ASSERT_EQUAL_FATAL(err_, 0); \
	} while (0)

/* the call fails with @want and its message contains @text */
#define CHECK_FAILS(call, want, text) \
	do { \
		int err_ = (call); \
		if (err_ != (want) || !strstr(dn_message(), (text))) \
			fprintf(stderr, "%s:%d: %s: got %d \"%s\", wanted %d \"%s\"\n", __FILE__, __LINE__, #call, err_, \
				dn_message(), (int)(want), (text)); \
		CU_ASSERT_EQUAL(err_, (want)); \
		CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), (text))); \
	} while (0)

#define CHECK_EQ(got, want) \
	do { \
		long long g_ = (long long)(got), w_ = (long long)(want); \
		if (g_ != w_) \
			fprintf(stderr, "%s:%d: %s: got %lld, wanted %lld\n", __FILE__, __LINE__, #got, g_, w_); \
		CU_ASSERT_EQUAL(g_, w_); \
	} while (0)

#define CHECK_STR(got, want) \
	do { \
		const char *g_ = (got), *w_ = (want); \
		if (!g_ || strcmp(g_, w_)) \
			fprintf(stderr, "%s:%d: %s: got \"%s\", wanted \"%s\"\n", __FILE__, __LINE__, #got, g_ ? g_ : "(null)", \
				w_); \
		CU_ASSERT(g_ && !strcmp(g_, w_)); \
	} while (0)

/* largest |a-b| relative to the largest |b|; prints where when above @tol. NaN anywhere fails. */
static inline int check_close_(const float *a, const float *b, int64_t n, double tol, const char *what, const char *file,
			       int line)
{
	double scale = 0, worst = -1;
	int64_t at = 0;

	for (int64_t i = 0; i < n; i++)
		if (fabs((double)b[i]) > scale)
			scale = fabs((double)b[i]);
	for (int64_t i = 0; i < n; i++) {
		double d = fabs((double)a[i] - (double)b[i]);
		if (isnan(d))
			d = INFINITY;
		if (d > worst) {
			worst = d;
			at = i;
		}
	}
	if (worst > tol * (scale > 0 ? scale : 1)) {
		fprintf(stderr,
			"%s:%d: %s: index %" PRId64 ": got %.9g, wanted %.9g; difference %.3g, scale %.3g, tolerance %.3g\n",
			file, line, what, at, (double)a[at], (double)b[at], worst, scale, tol);
		return 0;
	}
	return 1;
}
#define CHECK_CLOSE(a, b, n, tol) CU_ASSERT(check_close_((a), (b), (n), (tol), #a, __FILE__, __LINE__))

static inline int check_bits_(const void *a, const void *b, size_t bytes, const char *what, const char *file, int line)
{
	const unsigned char *x = a, *y = b;

	for (size_t i = 0; i < bytes; i++)
		if (x[i] != y[i]) {
			fprintf(stderr, "%s:%d: %s: byte %zu of %zu (float %zu): got %02x, wanted %02x\n", file, line, what, i,
				bytes, i / 4, x[i], y[i]);
			return 0;
		}
	return 1;
}
#define CHECK_BITS(a, b, bytes) CU_ASSERT(check_bits_((a), (b), (bytes), #a, __FILE__, __LINE__))

static inline int check_run(const char *suite, const struct check_case *cases)
{
	CU_pSuite s;
	unsigned failed;
	const char *only = getenv("CASE");

	if (CU_initialize_registry() != CUE_SUCCESS)
		return 2;
	s = CU_add_suite(suite, NULL, NULL);
	for (; cases->name; cases++)
		if (!only || strstr(cases->name, only))
			CU_add_test(s, cases->name, cases->fn);
	CU_basic_set_mode(getenv("VERBOSE") ? CU_BRM_VERBOSE : CU_BRM_NORMAL);
	CU_basic_run_tests();
	failed = CU_get_number_of_failures() + CU_get_number_of_tests_failed();
	printf("%s: %u cases, %u asserts, %u failed\n", suite, CU_get_number_of_tests_run(), CU_get_number_of_asserts(),
	       CU_get_number_of_failures());
	if (!CU_get_number_of_tests_run())
		failed = 1;
	CU_cleanup_registry();
	return failed ? 1 : 0;
}
#endif
