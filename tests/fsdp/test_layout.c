/* layout=planned:row and planned:tensor: no row, no tensor is cut where values or states of two ranks meet, every element has one
 * owner, and little is padding. Draws, and the best that trying everything finds. */
#include <errno.h>

#include "plan/plan_priv.h"
#include "plan_nets.h"

static unsigned draw(unsigned *state, unsigned n)
{
	*state = *state * 1103515245u + 12345u;
	return (*state >> 16) % n;
}

static int64_t up(int64_t x, int64_t a)
{
	return (x + a - 1) / a * a;
}

/* --- packing --- */

/* 0, or what is wrong of a packing */
static const char *wrong(const struct plan_item *items, int n, int64_t parts, int64_t unit, enum fsdp_layout layout, int64_t part)
{
	if (part <= 0 || part % unit)
		return "length of a part";
	for (int i = 0; i < n; i++) {
		const struct plan_item *x = &items[i];
		int64_t first = up(x->offset + 1, part);

		if (x->offset < 0 || x->offset % FSDP_ALIGN || x->offset + x->n > parts * part)
			return "place";
		for (int k = 0; k < i; k++)
			if (x->offset < items[k].offset + items[k].n && items[k].offset < x->offset + x->n)
				return "two in one place";
		for (int64_t cut = first; cut < x->offset + x->n; cut += part) /* inside of it */
			if (layout == FSDP_PLANNED_TENSOR || (cut - x->offset) % x->row)
				return "a cut";
	}
	return NULL;
}

static int draw_items(unsigned *s, struct plan_item *items, int most)
{
	int n = 1 + (int)draw(s, (unsigned)most);

	for (int i = 0; i < n; i++) {
		int64_t row = draw(s, 3) ? 1 + draw(s, 40) : 1, rows = 1 + draw(s, 60);

		items[i] = (struct plan_item){ .index = i, .n = row * rows, .row = row };
	}
	return n;
}

static void packings_cut_nothing_and_place_everything_once(void)
{
	unsigned s = 1;

	for (int round = 0; round < 20000; round++) {
		struct plan_item items[24];
		const int n = draw_items(&s, items, 24);
		const int64_t parts = 1 + draw(&s, 9), unit = FSDP_ALIGN * (1 + draw(&s, 3));
		int64_t part[2], sum = 0;

		for (int k = 0; k < 2; k++) {
			const enum fsdp_layout layout = k ? FSDP_PLANNED_TENSOR : FSDP_PLANNED_ROW;
			const char *fault;
			unsigned seen = 0;

			CHECK_OK_FATAL(plan_pack(items, n, parts, unit, layout, &part[k]));
			fault = wrong(items, n, parts, unit, layout, part[k]);
			if (fault) {
				fprintf(stderr, "round %d, %s: %s\n", round, k ? "tensors" : "rows", fault);
				CU_FAIL_FATAL("a packing that is none");
			}
			for (int i = 0; i < n; i++)
				seen |= 1u << items[i].index;
			CHECK_EQ(seen, (1u << n) - 1);
		}
		for (int i = 0; i < n; i++)
			sum += up(items[i].n, FSDP_ALIGN);
		CU_ASSERT(part[0] <= part[1]); /* whole tensors are whole rows */
		if (parts == 1)
			CHECK_EQ(part[0], up(sum, unit));
	}
}

/* the shortest part, of all orders and of all gaps in units of the alignment */
static int64_t best_row(const struct plan_item *items, int n, int64_t parts, int64_t part, int64_t at, unsigned left)
{
	if (!left)
		return 1;
	for (int i = 0; i < n; i++) {
		if (!(left & 1u << i))
			continue;
		for (int64_t o = at; o + items[i].n <= parts * part; o += FSDP_ALIGN) {
			int64_t cut = up(o + 1, part);

			while (cut < o + items[i].n && (cut - o) % items[i].row == 0)
				cut += part;
			if (cut >= o + items[i].n) {
				if (best_row(items, n, parts, part, up(o + items[i].n, FSDP_ALIGN), left & ~(1u << i)))
					return 1;
				break; /* further behind is no better for the others */
			}
		}
	}
	return 0;
}

static int64_t best_tensor(const struct plan_item *items, int n, int parts, int64_t *load, int i)
{
	int64_t best = INT64_MAX;

	if (i == n) {
		best = 0;
		for (int p = 0; p < parts; p++)
			best = load[p] > best ? load[p] : best;
		return best;
	}
	for (int p = 0; p < parts; p++) {
		int64_t x;

		load[p] += up(items[i].n, FSDP_ALIGN);
		x = best_tensor(items, n, parts, load, i + 1);
		load[p] -= up(items[i].n, FSDP_ALIGN);
		best = x < best ? x : best;
	}
	return best;
}

static void packings_are_near_the_best_of_all(void)
{
	unsigned s = 7;
	int equal[2] = { 0, 0 }, rounds = 400;

	for (int round = 0; round < rounds; round++) {
		struct plan_item items[5];
		const int n = draw_items(&s, items, 5);
		const int parts = 2 + (int)draw(&s, 2);
		int64_t load[3] = { 0 }, part[2], best, sum = 0;

		for (int i = 0; i < n; i++)
			sum += items[i].n;
		CHECK_OK_FATAL(plan_pack(items, n, parts, FSDP_ALIGN, FSDP_PLANNED_ROW, &part[0]));
		CHECK_OK_FATAL(plan_pack(items, n, parts, FSDP_ALIGN, FSDP_PLANNED_TENSOR, &part[1]));
		best = best_tensor(items, n, parts, load, 0);
		CU_ASSERT(part[1] >= best && 3 * part[1] <= 4 * best + 3 * FSDP_ALIGN);
		equal[1] += part[1] == best;
		best = up((sum + parts - 1) / parts, FSDP_ALIGN);
		while (!best_row(items, n, parts, best, 0, (1u << n) - 1))
			best += FSDP_ALIGN;
		CU_ASSERT(part[0] >= best && 3 * part[0] <= 4 * best + 3 * FSDP_ALIGN);
		equal[0] += part[0] == best;
	}
	CU_ASSERT(10 * equal[0] >= 8 * rounds && 10 * equal[1] >= 8 * rounds);
	printf("%d and %d of %d are the best there is ", equal[0], equal[1], rounds);
}

static void a_large_number_of_tensors_is_packed_in_time(void)
{
	static struct plan_item items[4000];
	unsigned s = 3;
	int64_t part, sum = 0;

	for (int i = 0; i < 4000; i++) {
		const int64_t row = 9 * (1 + draw(&s, 512)), rows = 1 + draw(&s, 512);

		items[i] = (struct plan_item){ .index = i, .n = row * rows, .row = row };
		sum += row * rows;
	}
	CHECK_OK_FATAL(plan_pack(items, 4000, 64, FSDP_ALIGN, FSDP_PLANNED_ROW, &part));
	CU_ASSERT(part * 64 < sum + sum / 20);
	CU_ASSERT_PTR_NULL(wrong(items, 4000, 64, FSDP_ALIGN, FSDP_PLANNED_ROW, part));
}

/* --- plans --- */

/* all learns; or some is frozen, in blocks that learn where they are cut elsewhere */
#define NET(frozen) \
	NET_HEAD("1") \
	"height=10\nwidth=10\nchannels=3\n" \
	"[convolutional]\nfilters=7\nsize=3\npad=1\nbatch_normalize=1\nactivation=leaky\n" \
	"[convolutional]\nfilters=13\nsize=3\npad=1\nbatch_normalize=1\nactivation=leaky\n" frozen \
	"[maxpool]\nsize=2\nstride=2\n" CONNECTED("37") CONNECTED_BN("11") CONNECTED("5") SOFTMAX
static const char *const texts[] = { NET(""), NET("stopbackward=1\n") };

static int64_t row_of(const struct planned *p, int t)
{
	const struct dn_param *prm = p->net->params[p->plan->tensors[t].param];

	return prm->n / prm->shape[0];
}

/* what the ranks own of tensor @t's @part: once each element, in whole rows or as a whole, one after the other in the block */
static void owned_in_pieces(const struct planned *p, int t, enum dn_part part, enum fsdp_layout layout)
{
	const struct fsdp_plan *plan = p->plan;
	const struct fsdp_tensor *x = &plan->tensors[t];
	unsigned char *seen = calloc((size_t)x->n, 1);
	const bool none = part != DN_VALUE && p->net->params[x->param]->frozen;
	int64_t wrong_ones = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(seen);
	CHECK_EQ(x->offset % FSDP_ALIGN, 0);
	for (int rank = 0; rank < plan->grid.world; rank++) {
		int64_t at, n, from;

		fsdp_plan_tensor(plan, t, part, rank, &at, &n, &from);
		if (!n || !fsdp_plan_first(plan, t, part, rank))
			continue;
		for (int64_t e = at; e < at + n; e++)
			seen[e]++;
		if (layout == FSDP_PLANNED_TENSOR)
			CU_ASSERT(at == 0 && n == x->n);
		if (layout == FSDP_PLANNED_ROW)
			CU_ASSERT(at % row_of(p, t) == 0 && (at + n) % row_of(p, t) == 0);
		CU_ASSERT((size_t)(from + n) * sizeof(float) <= fsdp_place_part(plan, x->block, part).bytes);
	}
	for (int64_t e = 0; e < x->n; e++)
		wrong_ones += seen[e] != !none;
	CHECK_EQ(wrong_ones, 0);
	free(seen);
}

/* tensors and gaps name every element of a block once */
static void blocks_are_full(const struct fsdp_plan *p)
{
	for (int i = 0; i < p->n_blocks; i++) {
		const struct fsdp_block *b = &p->blocks[i];
		unsigned char *seen = calloc((size_t)b->padded + 1, 1);
		int64_t wrong_ones = 0;

		CU_ASSERT_PTR_NOT_NULL_FATAL(seen);
		for (int t = b->first_tensor; t < b->first_tensor + b->n_tensors; t++)
			for (int64_t e = 0; e < p->tensors[t].n; e++)
				seen[p->tensors[t].offset + e]++;
		for (int g = b->first_gap; g < b->first_gap + b->n_gaps; g++)
			for (int64_t e = 0; e < p->gaps[g].n; e++)
				seen[p->gaps[g].offset + e]++;
		for (int64_t e = 0; e < b->padded; e++)
			wrong_ones += seen[e] != 1;
		CHECK_EQ(wrong_ones, 0);
		CHECK_EQ(b->padded % (p->grid.world * FSDP_ALIGN), 0);
		free(seen);
	}
}

static void no_rank_boundary_cuts_a_row_or_a_tensor(void)
{
	static const struct {
		int world, shards;
	} meshes[] = { { 1, 0 }, { 2, 0 }, { 3, 0 }, { 4, 0 }, { 8, 0 }, { 4, 2 }, { 6, 3 }, { 8, 2 }, { 4, 1 } };
	static const char *const blocks[] = { "each", "whole", "at:0,3,4" };

	for (int layout = FSDP_FLAT; layout <= FSDP_PLANNED_TENSOR; layout++)
		for (int strategy = FSDP_FULL; strategy <= FSDP_HYBRID_FULL_OPT; strategy++)
			for (size_t m = 0; m < sizeof(meshes) / sizeof(meshes[0]); m++)
				for (int cut = 0; cut < 6; cut++) {
					struct fsdp_options o = plan_defaults();
					struct planned p;

					if (fsdp_strategy_hybrid((enum fsdp_strategy)strategy) != (meshes[m].shards > 0))
						continue;
					o.layout = (enum fsdp_layout)layout;
					o.strategy = (enum fsdp_strategy)strategy;
					o.shards = meshes[m].shards;
					o.policy = policy_of(blocks[cut % 3]);
					CHECK_OK_FATAL(planned_make(&p, texts[cut / 3], meshes[m].world, true, &o));
					for (int t = 0; t < p.plan->n_tensors; t++)
						for (int part = DN_VALUE; part <= DN_STATE0; part++)
							owned_in_pieces(&p, t, (enum dn_part)part, o.layout);
					blocks_are_full(p.plan);
					CHECK_OK(fsdp_plan_check(p.plan, NULL, NULL));
					planned_fini(&p);
				}
}

/* where nothing is cut for good, tensors lie as ever; where something is, layouts differ in their hash */
static void layouts_differ_only_where_ranks_meet(void)
{
	static const enum fsdp_strategy strategies[] = { FSDP_FULL, FSDP_OPT, FSDP_REPLICATE };

	for (int k = 0; k < 3; k++) {
		struct fsdp_options o = plan_defaults();
		struct planned flat, row;
		bool moved = false;

		o.policy = policy_of("whole");
		o.strategy = strategies[k];
		CHECK_OK_FATAL(planned_make(&flat, texts[0], 3, true, &o));
		o.layout = FSDP_PLANNED_ROW;
		CHECK_OK_FATAL(planned_make(&row, texts[0], 3, true, &o));
		CU_ASSERT(flat.plan->hash != row.plan->hash);
		for (int t = 0; t < flat.plan->n_tensors; t++)
			moved |= flat.plan->tensors[t].offset != row.plan->tensors[t].offset;
		CHECK_EQ(moved, strategies[k] != FSDP_REPLICATE);
		planned_fini(&flat);
		planned_fini(&row);
	}
}

/* three weights of 2700, 450 and 45 elements and small biases, two ranks: by rows nearly nothing is lost, and as little as can be
 * of whole tensors: the largest has a part of its own */
static void the_padding_is_what_it_must_be(void)
{
	static const char net[] = NET_HEAD("1") "inputs=90\n" CONNECTED("30") CONNECTED("15") CONNECTED("3") SOFTMAX;
	struct fsdp_options o = plan_defaults();
	struct planned p;

	o.policy = policy_of("whole");
	o.layout = FSDP_PLANNED_TENSOR;
	CHECK_OK_FATAL(planned_make(&p, net, 2, true, &o));
	CHECK_EQ(p.plan->blocks[0].shard, up(2700, 16));
	planned_fini(&p);
	o.layout = FSDP_PLANNED_ROW;
	CHECK_OK_FATAL(planned_make(&p, net, 2, true, &o));
	/* 2700 + 450 + 45 and 30 + 15 + 3, each rounded up to 16: 3312; halves of 1656, and granules of 720 */
	CU_ASSERT(p.plan->blocks[0].padded >= 3312 && p.plan->blocks[0].padded <= 3456);
	planned_fini(&p);
}

static const struct check_case cases[] = {
	{ "packings_cut_nothing_and_place_everything_once", packings_cut_nothing_and_place_everything_once },
	{ "packings_are_near_the_best_of_all", packings_are_near_the_best_of_all },
	{ "a_large_number_of_tensors_is_packed_in_time", a_large_number_of_tensors_is_packed_in_time },
	{ "no_rank_boundary_cuts_a_row_or_a_tensor", no_rank_boundary_cuts_a_row_or_a_tensor },
	{ "layouts_differ_only_where_ranks_meet", layouts_differ_only_where_ranks_meet },
	{ "the_padding_is_what_it_must_be", the_padding_is_what_it_must_be },
	{ NULL, NULL }
};

int main(void)
{
	return check_run("fsdp/layout", cases);
}
