/* The far device's memory: addresses that nobody may touch, and what lies behind them. */
#define _GNU_SOURCE
#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "far.h"

#define SPACE ((size_t)64 << 30) /* of addresses; none is given out twice */
#define PAGE ((size_t)4096)

struct block {
	char *at; /* the address that was given out; host memory: where it is */
	size_t bytes;
	char *real;
	const struct dn_device *dev;
	enum dn_region region;
	bool live;
};

struct blocks {
	int n, cap;
	struct block *b;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *space;
static size_t space_used = PAGE;
static struct blocks device, host; /* device: ascending, freed ones included; host: live ones */
static struct sigaction before;

_Noreturn void far_broken(const char *fmt, ...)
{
	void *frames[32];
	va_list ap;

	fprintf(stderr, "far: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	fflush(stderr);
	backtrace_symbols_fd(frames, backtrace(frames, 32), 2);
	abort();
}

static struct block *add(struct blocks *s, struct block b)
{
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 256;
		s->b = realloc(s->b, (size_t)s->cap * sizeof(*s->b)); /* of the tests, not counted */
		if (!s->b)
			far_broken("no memory for the tables");
	}
	s->b[s->n] = b;
	return &s->b[s->n++];
}

/* the block whose address it is, its end included: an op of no elements may point there */
static struct block *find(struct blocks *s, const void *p)
{
	for (int i = s->n - 1; i >= 0; i--)
		if ((const char *)p >= s->b[i].at && (const char *)p <= s->b[i].at + s->b[i].bytes)
			return &s->b[i];
	return NULL;
}

static bool in_space(const void *p)
{
	return space && (const char *)p >= space && (const char *)p < space + SPACE;
}

/* --- who touches it --- */

static void on_fault(int sig, siginfo_t *info, void *context)
{
	const struct block *b = in_space(info->si_addr) ? find(&device, info->si_addr) : NULL;
	void *frames[32];
	char text[256];
	int n;

	if (in_space(info->si_addr)) {
		if (b)
			n = snprintf(text, sizeof(text), "far: the host touched device memory: %s, byte %zu of %zu%s\n",
				     dn_region_name(b->region), (size_t)((char *)info->si_addr - b->at), b->bytes,
				     b->live ? "" : ", which was given back");
		else
			n = snprintf(text, sizeof(text), "far: the host touched an address of the device where nothing is\n");
		if (write(2, text, (size_t)n) != n)
			_exit(1);
		backtrace_symbols_fd(frames, backtrace(frames, 32), 2);
		signal(sig, SIG_DFL); /* and dies of it */
		return;
	}
	if (before.sa_flags & SA_SIGINFO)
		before.sa_sigaction(sig, info, context);
	else
		signal(sig, SIG_DFL);
}

void far_watch(void)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };
	void *frame;

	pthread_mutex_lock(&lock);
	if (!space) {
		space = mmap(NULL, SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (space == MAP_FAILED)
			far_broken("no room for the device's addresses: %s", strerror(errno));
		backtrace(&frame, 1); /* loads what it needs: not in a handler */
		sigaction(SIGSEGV, &sa, &before);
	}
	pthread_mutex_unlock(&lock);
}

/* --- giving out and taking back --- */

void far_poison(void *p, size_t bytes)
{
	static const uint32_t poison = FAR_POISON;

	for (size_t i = 0; i < bytes; i += sizeof(poison))
		memcpy((char *)p + i, &poison, bytes - i < sizeof(poison) ? bytes - i : sizeof(poison));
}

int far_alloc(struct dn_device *dev, enum dn_region r, size_t bytes, void **out)
{
	struct block b = { .bytes = bytes, .dev = dev, .region = r, .live = true, .real = dn_alloc_region(r, bytes) };

	if (!b.real)
		return -ENOMEM;
	far_poison(b.real, bytes);
	pthread_mutex_lock(&lock);
	b.at = space + space_used;
	space_used += dn_up(bytes, PAGE) + PAGE;
	if (space_used > SPACE)
		far_broken("all addresses of the device were given out");
	add(&device, b);
	pthread_mutex_unlock(&lock);
	*out = b.at;
	return 0;
}

static void check_unused(const struct block *b, const char *what)
{
	const struct far_entry *e = far_user(b->dev, b->at, b->bytes ? b->bytes : 1);

	if (e)
		far_broken("%s memory is given back under work that has not run: %s, %zu bytes, named by %s on stream %s", what,
			   dn_region_name(b->region), b->bytes, e->name, e->st->name);
}

void far_free(struct dn_device *dev, void *p)
{
	struct block *b;
	char *real;

	if (!p)
		return;
	pthread_mutex_lock(&lock);
	b = find(&device, p);
	if (!b || b->at != p)
		far_broken("free of what the device has not given out: %p", p);
	if (!b->live)
		far_broken("%s memory of %zu bytes is given back twice", dn_region_name(b->region), b->bytes);
	check_unused(b, "device");
	b->live = false;
	real = b->real;
	far_poison(real, b->bytes);
	pthread_mutex_unlock(&lock);
	dn_free(real);
}

int far_alloc_host(struct dn_device *dev, enum dn_region r, size_t bytes, void **out)
{
	struct block b = { .bytes = bytes, .dev = dev, .region = r, .live = true, .real = dn_alloc_region(r, bytes) };

	if (!b.real)
		return -ENOMEM;
	b.at = b.real;
	far_poison(b.real, bytes);
	pthread_mutex_lock(&lock);
	add(&host, b);
	pthread_mutex_unlock(&lock);
	*out = b.at;
	return 0;
}

void far_free_host(struct dn_device *dev, void *p)
{
	struct block *b;

	if (!p)
		return;
	pthread_mutex_lock(&lock);
	b = find(&host, p);
	if (!b || b->at != p)
		far_broken("free_host of what the device has not given out: %p", p);
	check_unused(b, "host");
	far_poison(b->real, b->bytes);
	*b = host.b[--host.n];
	pthread_mutex_unlock(&lock);
	dn_free(p);
}

/* --- from addresses to memory --- */

static void *real_of(const struct dn_device *dev, const struct block *b, const void *p, size_t bytes, const char *op,
		     const char *arg)
{
	const size_t at = (size_t)((const char *)p - b->at);

	if (!b->live)
		far_broken("%s: %s: device memory that was given back: %s, byte %zu of %zu", op, arg, dn_region_name(b->region),
			   at, b->bytes);
	if (b->dev != dev)
		far_broken("%s: %s: memory of another device: %s", op, arg, dn_region_name(b->region));
	if (bytes > b->bytes - at)
		far_broken("%s: %s: bytes %zu to %zu of %s, which has %zu", op, arg, at, at + bytes, dn_region_name(b->region),
			   b->bytes);
	return b->real + at;
}

void *far_real(const struct dn_device *dev, const void *p, size_t bytes, const char *op, const char *arg)
{
	const struct block *b;
	void *real;

	if (!p)
		return NULL;
	pthread_mutex_lock(&lock);
	b = in_space(p) ? find(&device, p) : NULL;
	if (!b)
		far_broken("%s: %s: %p is no device memory%s", op, arg, p, find(&host, p) ? ", but host memory" : "");
	real = real_of(dev, b, p, bytes, op, arg);
	pthread_mutex_unlock(&lock);
	return real;
}

void *far_side(const struct dn_device *dev, const void *p, size_t bytes, const char *arg, bool *is_host)
{
	const struct block *b;
	void *real;

	pthread_mutex_lock(&lock);
	*is_host = !in_space(p);
	b = find(*is_host ? &host : &device, p);
	if (!b)
		far_broken("copy: %s: %p is neither device memory nor host memory of alloc_host()", arg, p);
	real = real_of(dev, b, p, bytes, "copy", arg);
	pthread_mutex_unlock(&lock);
	return real;
}
