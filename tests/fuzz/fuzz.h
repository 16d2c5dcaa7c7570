/* What the fuzzers share: a file with the bytes under test, and making the first corpus: `fuzz_X -seeds FOLDER`. */
#ifndef DN_TESTS_FUZZ_H
#define DN_TESTS_FUZZ_H
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static void make_seeds(const char *folder); /* each fuzzer's own */

static void fuzz_silent(void *arg, const char *line)
{
}

static inline void fuzz_put(const char *path, const void *p, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, p, n) != (ssize_t)n || close(fd))
		abort();
}

static inline void fuzz_seed(const char *folder, const char *name, const void *p, size_t n)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fuzz_put(path, p, n);
}

/* A name for the file under test, below $FUZZ_TMP, which scripts/fuzz.sh lets lie in memory. */
static inline const char *fuzz_path(const char *name)
{
	static char folder[64], path[128];

	if (!folder[0]) {
		const char *tmp = getenv("FUZZ_TMP");

		snprintf(folder, sizeof(folder), "%.40s/fuzz.XXXXXX", tmp ? tmp : "/dev/shm");
		if (!mkdtemp(folder)) {
			perror(folder);
			abort();
		}
	}
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	dn_log_sink(fuzz_silent, NULL);
	if (*argc == 3 && !strcmp((*argv)[1], "-seeds")) {
		make_seeds((*argv)[2]);
		exit(0);
	}
	return 0;
}

#endif
