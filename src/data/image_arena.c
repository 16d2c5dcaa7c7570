/* Memory of a decoder: taken from the front of one block, given back all at once. */
#include "data/image_priv.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"

#if defined(__SANITIZE_ADDRESS__)
#define POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISON 1
#endif
#endif
#ifdef POISON
#include <sanitizer/asan_interface.h> /* overruns inside the block are seen too */
#define CLOSE(p, n) __asan_poison_memory_region(p, n)
#define OPEN(p, n) __asan_unpoison_memory_region(p, n)
#define UNCHECKED __attribute__((no_sanitize_address, noinline))
#else
#define CLOSE(p, n) ((void)0)
#define OPEN(p, n) ((void)0)
#define UNCHECKED
#endif

#define HEAD ((size_t)16)	      /* bytes in front of a block: its size */
#define LIMIT_BYTES ((size_t)2 << 30) /* of one decoding */

struct image_chunk {
	struct image_chunk *next;
	size_t bytes; /* of the block behind */
};
_Static_assert(sizeof(struct image_chunk) == HEAD, "a chunk's size stands where a block's does");

UNCHECKED static size_t size_of(const void *p)
{
	return ((const size_t *)p)[-1];
}

UNCHECKED static void set_size(void *p, size_t bytes)
{
	((size_t *)p)[-1] = bytes;
}

static void open_all(struct image_arena *a)
{
	if (a->base)
		OPEN(a->base, a->cap);
}

int image_arena_init(struct image_arena *a, size_t bytes)
{
	*a = (struct image_arena){ 0 };
	a->base = dn_alloc(bytes);
	if (!a->base)
		return -ENOMEM;
	a->cap = bytes;
	CLOSE(a->base, a->cap);
	return 0;
}

static void free_chunks(struct image_arena *a)
{
	while (a->chunks) {
		struct image_chunk *next = a->chunks->next;

		dn_free(a->chunks);
		a->chunks = next;
	}
	a->chunk_bytes = 0;
}

void image_arena_fini(struct image_arena *a)
{
	free_chunks(a);
	open_all(a);
	dn_free(a->base);
	*a = (struct image_arena){ 0 };
}

int image_arena_reset(struct image_arena *a)
{
	size_t want = a->used + a->chunk_bytes, used = a->used;

	a->used = a->last = 0;
	if (a->chunks) {
		free_chunks(a);
		open_all(a);
		dn_free(a->base);
		want += want / 4; /* the next one may be a little larger */
		a->base = dn_alloc(want);
		a->cap = used = a->base ? want : 0;
	}
	if (!a->base)
		return -ENOMEM;
	CLOSE(a->base, used); /* what lies behind has not been opened */
	return 0;
}

static void *get_chunk(struct image_arena *a, size_t bytes)
{
	struct image_chunk *c = dn_zalloc(sizeof(*c) + bytes);

	if (!c)
		return NULL;
	*c = (struct image_chunk){ a->chunks, bytes };
	a->chunks = c;
	a->chunk_bytes += sizeof(*c) + dn_up(bytes, HEAD);
	return c + 1;
}

void *image_arena_get(struct image_arena *a, size_t bytes)
{
	char *p;

	if (bytes > LIMIT_BYTES || a->used + a->chunk_bytes > LIMIT_BYTES - bytes)
		return NULL;
	if (a->cap - a->used < HEAD || dn_up(bytes, HEAD) > a->cap - a->used - HEAD)
		return get_chunk(a, bytes);
	p = a->base + a->used + HEAD;
	a->last = a->used;
	a->used += HEAD + dn_up(bytes, HEAD);
	set_size(p, bytes);
	OPEN(p, bytes);
	memset(p, 0, bytes); /* a damaged file may leave parts unwritten: they are always the same */
	return p;
}

static bool is_last(const struct image_arena *a, const void *p)
{
	return a->used && p == a->base + a->last + HEAD;
}

void *image_arena_resize(struct image_arena *a, void *p, size_t bytes)
{
	size_t old = p ? size_of(p) : 0;
	void *to;

	if (p && is_last(a, p) && bytes >= old && bytes <= LIMIT_BYTES && dn_up(bytes, HEAD) <= a->cap - a->last - HEAD) {
		a->used = a->last + HEAD + dn_up(bytes, HEAD);
		set_size(p, bytes);
		OPEN(p, bytes);
		return p;
	}
	to = image_arena_get(a, bytes);
	if (to && p)
		memcpy(to, p, old < bytes ? old : bytes);
	return to; /* the old one is given back with all others */
}

void image_arena_put(struct image_arena *a, void *p)
{
	if (!p)
		return;
	if (p > (void *)a->base && p < (void *)(a->base + a->cap))
		CLOSE(p, size_of(p));
	if (is_last(a, p)) {
		a->used = a->last;
		a->last = a->cap; /* what lies before it is not known: nobody is last */
	}
}
