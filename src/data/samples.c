/* Whether the shape of an array of samples is that of a net's input. Sizes are compared one by one: their product says nothing
 * about their order. */
#include <errno.h>
#include <stdio.h>

#include "data/array_priv.h"
#include "data/dataset.h"

#define MOST_DIMS 4

/* Which axis of @shape each of @want's sizes from @k on could be, every one used once: channels are sought from the last axis on,
 * where most programs have them. */
static bool find_order(int n_dims, const int64_t *shape, const int64_t *want, int k, unsigned used, int *axis)
{
	if (k == n_dims)
		return true;
	for (int i = 0; i < n_dims; i++) {
		axis[k] = k == 1 ? n_dims - 1 - i : i;
		if (!(used & 1u << axis[k]) && shape[axis[k]] == want[k] &&
		    find_order(n_dims, shape, want, k + 1, used | 1u << axis[k], axis))
			return true;
	}
	return false;
}

/* "; channels last: ...", or nothing when no order fits */
static void order_hint(char *out, size_t cap, int n_dims, const int64_t *shape, const struct dn_dataset_config *c)
{
	const int64_t image[] = { 0, c->c, c->h, c->w }, grey[] = { 0, c->h, c->w };
	int axis[MOST_DIMS] = { 0 };
	const char *what = "another order";
	size_t n;

	out[0] = '\0';
	if (n_dims == 3 && c->c != 1)
		return;
	/* the first axis is the samples' where that fits; else theirs is the one that is left */
	if (!find_order(n_dims, shape, n_dims == 4 ? image : grey, 1, 1, axis) &&
	    !find_order(n_dims, shape, n_dims == 4 ? image : grey, 1, 0, axis))
		return;
	axis[0] = n_dims * (n_dims - 1) / 2;
	for (int k = 1; k < n_dims; k++)
		axis[0] -= axis[k];
	if (axis[n_dims - 2] == n_dims - 1 && axis[n_dims - 1] == n_dims - 2)
		what = "height and width swapped";
	else if (n_dims == 4 && axis[1] == 3 && axis[2] == 1 && axis[3] == 2)
		what = "channels last";
	else if (axis[0])
		what = "the samples along another axis than the first";
	n = (size_t)snprintf(out, cap, "; %s: numpy.transpose(x, (%d", what, axis[0]);
	for (int k = 1; k < n_dims; k++)
		n += (size_t)snprintf(out + n, cap - n, ", %d", axis[k]);
	snprintf(out + n, cap - n, ")) would fit");
}

int dn_samples_fit(const char *path, int n_dims, const int64_t *shape, const struct dn_dataset_config *c)
{
	int64_t values = 1, ic = n_dims == 4 ? shape[1] : 1;
	char text[220], hint[160];

	for (int i = 1; i < n_dims; i++)
		values *= shape[i];
	if (c->w > 0 && c->h > 0 && (n_dims == 3 || n_dims == 4)) {
		int64_t h = shape[n_dims - 2], w = shape[n_dims - 1];

		if (ic == c->c && h == c->h && w == c->w)
			return 0;
		order_hint(hint, sizeof(hint), n_dims, shape, c);
		return dn_fail(-EINVAL,
			       DATA_PATH ": images of [c,h,w] = [%lld,%lld,%lld] found (shape %s), the net takes "
					 "[%lld,%lld,%lld]%s",
			       path, (long long)ic, (long long)h, (long long)w,
			       data_shape_text(n_dims, shape, text, sizeof(text)), (long long)c->c, (long long)c->h,
			       (long long)c->w, hint);
	}
	if (c->inputs && values != c->inputs)
		return dn_fail(-EINVAL, DATA_PATH ": a sample has %lld values (shape %s), the net takes %lld", path,
			       (long long)values, data_shape_text(n_dims, shape, text, sizeof(text)), (long long)c->inputs);
	return 0;
}
