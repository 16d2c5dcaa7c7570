/* Do copies agree? Sums of what every rank holds of them, compared among those that hold the same.
 *
 * One sum over all ranks carries two halves of a checksum for each (block, shard) and for the rolling statistics, which all hold:
 * where copies are alike it is a multiple of a rank's own. The sums of the halves are whole numbers below 2^53, so exact.
 */
#define XXH_STATIC_LINKING_ONLY /* the state of a running checksum on the stack */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "run/shard_store.h"

static int add_piece(void *arg, int64_t at, int64_t n, float *x)
{
	XXH64_update(arg, x, (size_t)n * sizeof(*x));
	return 0;
}

static int checksum(struct fsdp_store *s, struct fsdp_place x, uint64_t *out)
{
	XXH64_state_t sum;
	int err = 0;

	XXH64_reset(&sum, 0);
	err = dn_window_each(&s->window, s->net->compute, fsdp_runtime_at(&s->rt, x), (int64_t)(x.bytes / sizeof(float)), DN_READ,
			     add_piece, &sum);
	*out = XXH64_digest(&sum);
	return err;
}

/* where the halves of a block's shard are; the last two are the rolling statistics' */
static double *halves(const struct fsdp_store *s, int block)
{
	const struct fsdp_plan *p = s->plan;

	return s->checks + 2 * (block < p->n_blocks
					? block * p->grid.world + fsdp_group_rank(&p->blocks[block].shards, s->mesh->rank)
					: p->n_blocks * p->grid.world);
}

static int n_checks(const struct fsdp_plan *p)
{
	return 2 * (p->n_blocks * p->grid.world + 1);
}

static int copies_of(const struct fsdp_plan *p, int block)
{
	return block < p->n_blocks ? p->blocks[block].replicas.size : p->grid.world;
}

static struct fsdp_place place_of(const struct fsdp_plan *p, int block)
{
	/* not the part, which may be a master that others do not have */
	return block < p->n_blocks ? fsdp_place_shard(p, block) : fsdp_place_all_rolling(p);
}

static int apart(const struct fsdp_store *s, int block, int64_t step)
{
	const struct fsdp_plan *p = s->plan;
	char ranks[256] = "";
	size_t at = 0;

	if (block == p->n_blocks)
		return dn_fail(-EIO, "before step %" PRId64 ": the rolling statistics of this rank are not those of the others",
			       step);
	for (int k = 0; k < p->blocks[block].replicas.size && at < sizeof(ranks); k++)
		at += (size_t)snprintf(ranks + at, sizeof(ranks) - at, "%s%d", k ? ", " : "",
				       fsdp_group_member(&p->blocks[block].replicas, s->mesh->rank, k));
	return dn_fail(-EIO,
		       "before step %" PRId64 ": block %s: ranks %s hold copies of the same values, but not the same values",
		       step, p->blocks[block].name, ranks);
}

/* Collective. */
static int compare(struct fsdp_store *s, int64_t step)
{
	const struct fsdp_plan *p = s->plan;
	int err = fsdp_runtime_idle(&s->rt); /* what replicas share behind an update */

	memset(s->checks, 0, (size_t)n_checks(p) * sizeof(*s->checks)); /* host memory */
	memset(s->own, 0, ((size_t)p->n_blocks + 1) * sizeof(*s->own)); /* host memory */
	for (int i = 0; i <= p->n_blocks && !err; i++)
		if (copies_of(p, i) > 1 && place_of(p, i).bytes) {
			err = checksum(s, place_of(p, i), &s->own[i]);
			halves(s, i)[0] = (double)(s->own[i] >> 32);
			halves(s, i)[1] = (double)(s->own[i] & 0xffffffffu);
		}
	err = fsdp_control_agree(&s->mesh->control, err, "checksums of copies");
	if (!err)
		err = fsdp_control_sum(&s->mesh->control, "checksums of copies", s->checks, n_checks(p));
	if (err)
		return err;
	for (int i = 0; i <= p->n_blocks && !err; i++) {
		const double n = (double)copies_of(p, i), *sum = halves(s, i);

		if (n > 1 && (sum[0] != n * (double)(s->own[i] >> 32) || sum[1] != n * (double)(s->own[i] & 0xffffffffu)))
			err = apart(s, i, step);
	}
	return fsdp_control_agree(&s->mesh->control, err, "checksums of copies");
}

static bool has_copies(const struct fsdp_plan *p)
{
	for (int i = 0; i <= p->n_blocks; i++)
		if (copies_of(p, i) > 1 && place_of(p, i).bytes)
			return true;
	return false;
}

int fsdp_verify(struct fsdp_store *s, int64_t step)
{
	const int64_t every = s->plan->opt.verify;
	bool first = !s->checks;

	if (s->mesh->control.ch->echo) /* there are no others */
		return 0;
	if (every < 0 || !has_copies(s->plan) || (!first && (!every || (step - 1) % every)))
		return 0;
	if (first) {
		s->checks = dn_calloc((size_t)n_checks(s->plan), sizeof(*s->checks));
		s->own = dn_calloc((size_t)s->plan->n_blocks + 1, sizeof(*s->own));
		if (!s->checks || !s->own)
			return -ENOMEM;
	}
	return compare(s, step);
}
