/* layout=planned:row and planned:tensor: the order of tensors in a flat buffer that is cut into equal parts, so that no row or no
 * tensor is cut, with little padding.
 *
 * Each tensor lies in one piece, at a multiple of FSDP_ALIGN, as do the cuts. A cut inside a tensor stands on a boundary of its
 * rows only if it stands on a multiple of its granule: the least common multiple of row and FSDP_ALIGN. What is free is the order,
 * gaps, and the length of a part. The shortest possible is an NP-hard question; here lengths are tried upwards from the sum of the
 * tensors, among them those on which granules fit, each with greedy walks. What never fails is whole tensors, largest first, each to
 * the part that has the least.
 */
#include <errno.h>
#include <stdlib.h>

#include "plan/plan_priv.h"

#define MAX_TRIES 256
#define WORK (1 << 25) /* of all walks together: steps over a tensor */

struct pack {
	struct plan_item *items; /* largest first */
	int n;
	int64_t parts, unit;
	bool tensors;	     /* now none may be cut */
	bool *placed;	     /* [n] */
	int64_t *best, *lie; /* [n] offsets: of the best part so far, and of this walk */
	int64_t part;	     /* the best one */
	int64_t tries[MAX_TRIES];
	int n_tries;
};

static int64_t up(int64_t x, int64_t a)
{
	return (x + a - 1) / a * a;
}

static int64_t gcd(int64_t a, int64_t b)
{
	return b ? gcd(b, a % b) : a;
}

/* 0: more than @most */
static int64_t lcm(int64_t a, int64_t b, int64_t most)
{
	int64_t q = a / gcd(a, b); /* both are above 0. NOLINT(clang-analyzer-core.DivideZero) */

	return q > most / b ? 0 : q * b;
}

static int by_size(const void *a, const void *b)
{
	const struct plan_item *x = a, *y = b;

	return x->n != y->n ? (x->n < y->n ? 1 : -1) : x->index - y->index;
}

/* Elements to leave before @x where @room are left of a part of @part, -1 = it cannot lie in this part or begin the next one. */
static int64_t gap_before(const struct pack *k, const struct plan_item *x, int64_t room, int64_t part)
{
	int64_t gap;

	if (x->n <= room)
		return 0;
	if (k->tensors || x->granule > part)
		return x->n <= part ? room : -1;
	gap = room % x->granule;
	/* where it ends behind a second cut, or a first one is a whole part away, those stand right if parts are of whole granules */
	return x->n - (room - gap) <= part || part % x->granule == 0 ? gap : -1;
}

/* What is next at a place with @room left of a part, and the gap before it; -1 = nothing may be. Either what needs the smallest
 * gap and of those the largest, so that small tensors fill what larger ones leave; or, @eager, the largest of all, or what fits
 * into the gap before that. */
static int next_item(const struct pack *k, int64_t room, int64_t part, bool eager, int64_t *gap)
{
	int next = -1;

	for (int i = 0; i < k->n; i++) {
		const int64_t g = k->placed[i] ? -1 : gap_before(k, &k->items[i], room, part);

		if (g < 0)
			continue;
		if (next < 0 || (eager ? up(k->items[i].n, FSDP_ALIGN) <= *gap : g < *gap)) {
			*gap = g;
			next = i;
		}
		if (*gap == 0)
			break;
	}
	return next;
}

static bool walk(struct pack *k, int64_t part, bool eager)
{
	int64_t at = 0;

	for (int i = 0; i < k->n; i++)
		k->placed[i] = false;
	for (int done = 0; done < k->n; done++) {
		int64_t gap = 0;
		int next = next_item(k, part - at % part, part, eager, &gap);

		if (next < 0 || k->items[next].n > k->parts * part - at - gap)
			return false;
		k->placed[next] = true;
		k->lie[next] = at + gap;
		at = up(at + gap + k->items[next].n, FSDP_ALIGN);
	}
	return true;
}

static void keep(struct pack *k, int64_t part)
{
	k->part = part;
	for (int i = 0; i < k->n; i++)
		k->best[i] = k->lie[i];
}

/* Whole tensors, each to the part that has the least so far. */
static int spread(struct pack *k)
{
	int64_t *load = dn_calloc((size_t)k->parts, sizeof(*load)), most = 0;
	int *of = dn_calloc((size_t)k->n, sizeof(*of)), err = load && of ? 0 : -ENOMEM;

	for (int i = 0; i < k->n && !err; i++) {
		int64_t least = 0;

		for (int64_t p = 1; p < k->parts; p++)
			if (load[p] < load[least])
				least = p;
		of[i] = (int)least;
		k->lie[i] = load[least];
		load[least] += up(k->items[i].n, FSDP_ALIGN);
		most = most < load[least] ? load[least] : most;
	}
	most = up(most, k->unit);
	for (int i = 0; i < k->n && !err; i++)
		k->lie[i] += of[i] * most;
	if (!err)
		keep(k, most);
	dn_free(load);
	dn_free(of);
	return err;
}

/* a length to try: a multiple of the unit below the best one */
static void propose(struct pack *k, int64_t part)
{
	if (part > 0 && part % k->unit == 0 && part < k->part && k->n_tries < MAX_TRIES)
		k->tries[k->n_tries++] = part;
}

/* multiples of @step from @least on */
static void propose_steps(struct pack *k, int64_t least, int64_t step, int n)
{
	for (int i = 0; i < n && step; i++)
		propose(k, up(least, step) + i * step);
}

static void propose_granules(struct pack *k, int64_t least)
{
	int64_t all = k->unit, last = 0;

	/* of those that may reach over a whole part, alone and together */
	for (int i = 0; i < k->n && k->items[i].n > least / 2 && k->n_tries < MAX_TRIES / 2; i++) {
		const int64_t g = k->items[i].granule;

		if (g == last)
			continue;
		last = g;
		propose_steps(k, least, lcm(k->unit, g, k->part), 3);
		if (all)
			all = lcm(all, g, k->part);
		propose_steps(k, least, all, 3);
	}
}

static int ascending(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void try_all(struct pack *k)
{
	int64_t budget = 1 + WORK / ((int64_t)k->n * k->n) / 2;

	qsort(k->tries, (size_t)k->n_tries, sizeof(*k->tries), ascending);
	for (int i = 0; i < k->n_tries && budget > 0; i++) {
		if (i && k->tries[i] == k->tries[i - 1])
			continue;
		budget--;
		if (walk(k, k->tries[i], true) || (!k->tensors && walk(k, k->tries[i], false))) {
			keep(k, k->tries[i]);
			return;
		}
	}
}

/* from the shortest that could do up to what is known to do */
static void shorten(struct pack *k, bool tensors)
{
	int64_t sum = 0, least;

	k->tensors = tensors;
	k->n_tries = 0;
	for (int i = 0; i < k->n; i++)
		sum += up(k->items[i].n, FSDP_ALIGN);
	least = up((sum + k->parts - 1) / k->parts, k->unit);
	if (k->tensors && least < up(k->items[0].n, k->unit))
		least = up(k->items[0].n, k->unit);
	if (!k->tensors)
		propose_granules(k, least);
	for (int i = 0; i < 64; i++) {
		propose(k, least + i * k->unit);
		propose(k, up(least + (k->part - least) / 64 * i, k->unit));
	}
	try_all(k);
}

int plan_pack(struct plan_item *items, int n, int64_t parts, int64_t unit, enum fsdp_layout layout, int64_t *part)
{
	struct pack k = { .items = items, .n = n, .parts = parts, .unit = unit };
	int err;

	*part = 0;
	if (!n)
		return 0;
	qsort(items, (size_t)n, sizeof(*items), by_size);
	for (int i = 0; i < n; i++)
		items[i].granule = lcm(items[i].row, FSDP_ALIGN, INT64_MAX);
	k.placed = dn_calloc((size_t)n, sizeof(*k.placed));
	k.best = dn_calloc((size_t)n, sizeof(*k.best));
	k.lie = dn_calloc((size_t)n, sizeof(*k.lie));
	err = k.placed && k.best && k.lie ? spread(&k) : -ENOMEM;
	if (!err)
		shorten(&k, true);
	if (!err && layout == FSDP_PLANNED_ROW) /* whole tensors are whole rows */
		shorten(&k, false);
	for (int i = 0; i < n && !err; i++)
		items[i].offset = k.best[i];
	*part = k.part;
	dn_free(k.placed);
	dn_free(k.best);
	dn_free(k.lie);
	return err;
}
