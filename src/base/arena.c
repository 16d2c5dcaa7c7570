/* First fit of buffers with lifetimes into one arena. */
#include "base/arena.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"

struct order {
	size_t bytes;
	int item;
};

static int by_size_then_position(const void *a, const void *b)
{
	const struct order *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x->item < y->item ? -1 : 1;
}

static int round_up(size_t bytes, size_t align, size_t *out)
{
	size_t x;

	if (__builtin_add_overflow(bytes, align - 1, &x))
		return dn_fail(-EOVERFLOW, "arena: a buffer of %zu bytes cannot be aligned to %zu", bytes, align);
	*out = x & ~(align - 1);
	return 0;
}

/* The lowest gap of @bytes between the items that are alive with @it; @placed is sorted by offset. */
static int first_gap(const struct dn_arena_item *items, const int *placed, int n_placed, const struct dn_arena_item *it,
		     size_t bytes, size_t align, size_t *out)
{
	size_t at = 0;
	size_t end = 0;

	for (int k = 0; k < n_placed; k++) {
		const struct dn_arena_item *o = &items[placed[k]];
		int err;

		if (o->last < it->first || o->first > it->last)
			continue;
		if (o->offset >= at && o->offset - at >= bytes)
			break;
		err = round_up(o->offset + o->bytes, align, &end);
		if (err)
			return err;
		if (end > at)
			at = end;
	}
	if (at > SIZE_MAX - bytes)
		return dn_fail(-EOVERFLOW, "arena: %zu bytes after %zu do not fit the address range", bytes, at);
	*out = at;
	return 0;
}

int dn_arena_place(struct dn_arena_item *items, int n, size_t align, size_t *total)
{
	struct order *order;
	int *placed;
	int n_placed = 0;
	size_t high = 0;
	int err = 0;

	assert(align && !(align & (align - 1)));
	order = dn_calloc((size_t)(n > 0 ? n : 0), sizeof(*order));
	placed = dn_calloc((size_t)(n > 0 ? n : 0), sizeof(*placed));
	if (!order || !placed) {
		err = -ENOMEM;
		goto out;
	}
	for (int i = 0; i < n; i++) {
		assert(items[i].first <= items[i].last);
		order[i] = (struct order){ items[i].bytes, i };
	}
	if (n > 1)
		qsort(order, (size_t)n, sizeof(*order), by_size_then_position);
	for (int i = 0; i < n; i++) {
		struct dn_arena_item *it = &items[order[i].item];
		size_t bytes = 0, offset = 0;
		int k;

		if (!it->bytes) {
			it->offset = 0;
			continue;
		}
		err = round_up(it->bytes, align, &bytes);
		if (!err)
			err = first_gap(items, placed, n_placed, it, bytes, align, &offset);
		if (err)
			goto out;
		it->offset = offset;
		for (k = n_placed++; k > 0 && items[placed[k - 1]].offset > offset; k--)
			placed[k] = placed[k - 1];
		placed[k] = order[i].item;
		if (offset + bytes > high)
			high = offset + bytes;
	}
	*total = high;
out:
	dn_free(placed);
	dn_free(order);
	return err;
}
