/* Memory with a header in front of every block: counted by region, and able to fail on purpose. */
#define _GNU_SOURCE
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Blocks from MAP_BYTES on are mappings of their own, so freeing one returns it to the system whatever
 * lies around it. The address sanitizer sees overruns of heap blocks only, hence no mappings under it.
 */
#define PAGE ((size_t)4096)
#ifdef __SANITIZE_ADDRESS__
#define MAP_BYTES SIZE_MAX
#else
#define MAP_BYTES ((size_t)1 << 20)
#endif
#define BIG_BYTES ((size_t)1 << 20) /* region blocks from here on start on a page */

#define ASK_BYTES ((size_t)64 << 20) /* smaller blocks do not ask how much is free */

enum block_kind { BLOCK_HEAP = 0x48656170, BLOCK_MAP = 0x4d617020, BLOCK_FREED = 0x46726565 };

struct block {	      /* ends where the caller's bytes start */
	size_t bytes; /* asked for */
	size_t lead;  /* from the start of the allocation to the caller's bytes */
	uint32_t kind;
	uint32_t region;
	uint64_t unused; /* keeps the size a multiple of 16, and with it malloc's alignment */
};
_Static_assert(sizeof(struct block) % 16 == 0, "the caller's bytes lose malloc's alignment");
_Static_assert(sizeof(struct block) <= DN_ALIGN, "the header does not fit in front of aligned bytes");

struct counter {
	_Atomic size_t now;
	_Atomic size_t peak;
	_Atomic uint64_t n_allocs;
};

static struct counter counters[DN_MEM_REGIONS];
static _Atomic uint64_t fail_in; /* allocations until the one that fails, 0 = never */

static const char *const region_names[DN_MEM_REGIONS] = {
	[DN_MEM_PARAMS] = "params",	    [DN_MEM_GRADS] = "grads",
	[DN_MEM_OPTIMIZER] = "optimizer",   [DN_MEM_PARAM_SLOTS] = "param_slots",
	[DN_MEM_GRAD_SLOTS] = "grad_slots", [DN_MEM_ACTIVATIONS] = "activations",
	[DN_MEM_WORKSPACE] = "workspace",   [DN_MEM_STAGING] = "staging",
	[DN_MEM_BUFFERS] = "buffers",	    [DN_MEM_EMA] = "ema",
	[DN_MEM_SNAPSHOT] = "snapshot",	    [DN_MEM_HOST] = "host",
};

const char *dn_region_name(enum dn_region r)
{
	return (unsigned)r < DN_MEM_REGIONS ? region_names[r] : "unknown";
}

static struct block *block_of(void *p)
{
	struct block *b = (struct block *)p - 1;

	assert(b->kind == BLOCK_HEAP || b->kind == BLOCK_MAP); /* ours, and not freed before */
	return b;
}

static void count_add(enum dn_region r, size_t bytes)
{
	struct counter *c = &counters[r];
	size_t now = atomic_fetch_add(&c->now, bytes) + bytes;
	size_t peak = atomic_load(&c->peak);

	while (now > peak && !atomic_compare_exchange_weak(&c->peak, &peak, now))
		;
}

static void count_sub(enum dn_region r, size_t bytes)
{
	atomic_fetch_sub(&counters[r].now, bytes);
}

/* True when this allocation is the one that dn_mem_fail_at() chose. */
static bool must_fail(void)
{
	uint64_t n = atomic_load(&fail_in);

	while (n)
		if (atomic_compare_exchange_weak(&fail_in, &n, n - 1))
			return n == 1;
	return false;
}

static void *out_of_memory(enum dn_region r, size_t bytes)
{
	dn_fail(-ENOMEM, "out of memory: %s: %zu bytes", dn_region_name(r), bytes);
	return NULL;
}

/* The system grants more than it has and kills who touches it: what is large is compared first. Takes no memory itself. */
static int check_room(enum dn_region r, size_t bytes)
{
	char text[4096];
	unsigned long long kb;
	const char *at;
	ssize_t n;
	int fd;

	if (bytes < ASK_BYTES)
		return 0;
	fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0; /* not told: the system decides */
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, "MemAvailable:");
	if (!at || sscanf(at, "MemAvailable: %llu kB", &kb) != 1 || bytes >> 10 <= kb)
		return 0;
	return dn_fail(-ENOMEM, "out of memory: %s: %zu MiB are needed, %llu MiB are free", dn_region_name(r), bytes >> 20,
		       kb >> 10);
}

static size_t map_size(size_t bytes)
{
	return PAGE + dn_up(bytes, PAGE);
}

/* @align: 16, DN_ALIGN or PAGE. Mappings read as zero, heap blocks hold anything. */
static void *block_get(enum dn_region r, size_t bytes, size_t align)
{
	size_t lead = align > sizeof(struct block) ? align : sizeof(struct block);
	enum block_kind kind = BLOCK_HEAP;
	struct block *b;
	void *base = NULL;

	if (must_fail() || bytes > PTRDIFF_MAX - 2 * PAGE)
		return out_of_memory(r, bytes);
	if (check_room(r, bytes))
		return NULL;
	if (bytes >= MAP_BYTES) {
		kind = BLOCK_MAP;
		lead = PAGE;
		base = mmap(NULL, map_size(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (base == MAP_FAILED)
			base = NULL;
	} else if (align > 16) {
		if (posix_memalign(&base, align, lead + bytes))
			base = NULL;
	} else {
		base = malloc(lead + bytes);
	}
	if (!base)
		return out_of_memory(r, bytes);
	b = (struct block *)((char *)base + lead) - 1;
	*b = (struct block){ .bytes = bytes, .lead = lead, .kind = kind, .region = r };
	atomic_fetch_add(&counters[r].n_allocs, 1);
	count_add(r, bytes);
	return b + 1;
}

void *dn_alloc(size_t bytes)
{
	return block_get(DN_MEM_HOST, bytes, 16);
}

void *dn_zalloc(size_t bytes)
{
	void *p = dn_alloc(bytes);

	if (p && block_of(p)->kind == BLOCK_HEAP)
		memset(p, 0, bytes);
	return p;
}

void *dn_calloc(size_t n, size_t size)
{
	size_t bytes = 0;

	if (dn_mul_size(n, size, &bytes))
		return NULL;
	return dn_zalloc(bytes);
}

/* Within one kind the system may extend the block in place; between kinds the bytes are copied. */
void *dn_realloc(void *p, size_t bytes)
{
	struct block *b;
	enum dn_region r;
	size_t old;
	void *base;

	if (!p)
		return dn_alloc(bytes);
	b = block_of(p);
	r = b->region;
	old = b->bytes;
	if (r != DN_MEM_HOST || (b->kind == BLOCK_MAP) != (bytes >= MAP_BYTES)) {
		void *q = block_get(r, bytes, r == DN_MEM_HOST ? 16 : bytes >= BIG_BYTES ? PAGE : DN_ALIGN);

		if (!q)
			return NULL;
		memcpy(q, p, old < bytes ? old : bytes);
		dn_free(p);
		return q;
	}
	if (must_fail() || bytes > PTRDIFF_MAX - 2 * PAGE)
		return out_of_memory(r, bytes);
	if (bytes > old && check_room(r, bytes - old))
		return NULL;
	base = (char *)p - b->lead;
	if (b->kind == BLOCK_MAP) {
		base = mremap(base, map_size(old), map_size(bytes), MREMAP_MAYMOVE);
		if (base == MAP_FAILED)
			base = NULL;
	} else {
		base = realloc(base, b->lead + bytes);
	}
	if (!base)
		return out_of_memory(r, bytes);
	b = (struct block *)((char *)base + (bytes >= MAP_BYTES ? PAGE : sizeof(*b))) - 1;
	b->bytes = bytes;
	atomic_fetch_add(&counters[r].n_allocs, 1);
	if (bytes >= old)
		count_add(r, bytes - old);
	else
		count_sub(r, old - bytes);
	return b + 1;
}

void *dn_grow(void *p, int64_t n, size_t size)
{
	const int64_t least = 8; /* elements; a power of two */
	size_t bytes;

	if (p && (n < least || n & (n - 1)))
		return p;
	if (dn_mul_size((size_t)(n < least ? least : 2 * n), size, &bytes))
		return NULL;
	return dn_realloc(p, bytes);
}

char *dn_strndup(const char *s, size_t n)
{
	char *p;

	n = strnlen(s, n);
	p = dn_alloc(n + 1);
	if (!p)
		return NULL;
	memcpy(p, s, n);
	p[n] = '\0';
	return p;
}

char *dn_strdup(const char *s)
{
	return dn_strndup(s, PTRDIFF_MAX);
}

void *dn_alloc_region(enum dn_region r, size_t bytes)
{
	void *p;

	assert((unsigned)r < DN_MEM_REGIONS);
	p = block_get(r, bytes, bytes >= BIG_BYTES ? PAGE : DN_ALIGN);
	if (p)
		memset(p, 0, bytes); /* mappings too: a page that is not touched is not resident */
	return p;
}

void dn_free(void *p)
{
	struct block *b;
	void *base;

	if (!p)
		return;
	b = block_of(p);
	base = (char *)p - b->lead;
	count_sub(b->region, b->bytes);
	if (b->kind == BLOCK_MAP) {
		munmap(base, map_size(b->bytes));
		return;
	}
	b->kind = BLOCK_FREED;
	free(base);
}

int dn_mem_take(enum dn_region r, size_t bytes)
{
	int err;

	if (must_fail()) {
		out_of_memory(r, bytes);
		return -ENOMEM;
	}
	err = check_room(r, bytes);
	if (err)
		return err;
	atomic_fetch_add(&counters[r].n_allocs, 1);
	count_add(r, bytes);
	return 0;
}

void dn_mem_give(enum dn_region r, size_t bytes)
{
	count_sub(r, bytes);
}

void dn_mem_stats(enum dn_region r, struct dn_mem_stats *out)
{
	assert((unsigned)r < DN_MEM_REGIONS);
	*out = (struct dn_mem_stats){
		.now_bytes = atomic_load(&counters[r].now),
		.peak_bytes = atomic_load(&counters[r].peak),
		.n_allocs = atomic_load(&counters[r].n_allocs),
	};
}

uint64_t dn_mem_n_allocs(void)
{
	uint64_t n = 0;

	for (int r = 0; r < DN_MEM_REGIONS; r++)
		n += atomic_load(&counters[r].n_allocs);
	return n;
}

void dn_mem_fail_at(uint64_t n)
{
	atomic_store(&fail_in, n);
}

int dn_mul_size(size_t a, size_t b, size_t *out)
{
	size_t x;

	if (__builtin_mul_overflow(a, b, &x))
		return dn_fail(-EOVERFLOW, "size overflows: %zu times %zu bytes", a, b);
	*out = x;
	return 0;
}

/* A line "NAME:   123 kB" of /proc/self/status, in bytes */
static size_t proc_status_bytes(const char *name)
{
	char text[8192];
	size_t n = 0;
	ssize_t got;
	int saved = errno;
	int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	const char *at;
	size_t kib = 0;

	if (fd < 0) {
		errno = saved;
		return 0;
	}
	while (n < sizeof(text) - 1) {
		got = read(fd, text + n, sizeof(text) - 1 - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	close(fd);
	errno = saved;
	text[n] = '\0';
	at = strstr(text, name);
	if (!at)
		return 0;
	for (at += strlen(name); *at == ' ' || *at == '\t'; at++)
		;
	for (; *at >= '0' && *at <= '9'; at++)
		kib = kib * 10 + (size_t)(*at - '0');
	return kib * 1024;
}

size_t dn_rss_bytes(void)
{
	return proc_status_bytes("\nVmRSS:");
}

size_t dn_peak_rss_bytes(void)
{
	return proc_status_bytes("\nVmHWM:");
}
