/* Room data: shapes of arrays against the net's, size by size, in every format that has shapes. */
#define _GNU_SOURCE
#include "data_help.h"

static struct dn_dataset_config net_of(int64_t c, int64_t h, int64_t w, int64_t truths)
{
	return (struct dn_dataset_config){ .inputs = w * h * c, .truths = truths, .w = w, .h = h, .c = c };
}

static struct dn_dataset_config flat(int64_t inputs)
{
	return (struct dn_dataset_config){ .inputs = inputs };
}

static int open_data(const struct dn_dataset_config *c, const char *lines)
{
	struct dn_datafile *d = NULL;
	struct dn_dataset *ds = NULL;
	char text[1000];
	int err;

	snprintf(text, sizeof(text), lines, folder, folder);
	CHECK_OK_FATAL(dn_datafile_read(&d, put_text("t.data", text), true));
	err = dn_dataset_open(&ds, d, c);
	dn_dataset_close(ds);
	dn_datafile_destroy(d);
	return err;
}

/* The same shape as x.npy and, of bytes, as x.idx; what both say. */
static int open_shape(const struct dn_dataset_config *c, int n_dims, const int64_t *shape)
{
	float x[3000] = { 0 };
	unsigned char bytes[3000] = { 0 }, file[4000];
	uint32_t dims[4];
	size_t n = 1;
	int err, same;

	for (int i = 0; i < n_dims; i++) {
		dims[i] = (uint32_t)shape[i];
		n *= dims[i];
	}
	CHECK_OK_FATAL(dn_npy_write(in_folder("x.npy"), n_dims, shape, x));
	put("x.idx", file, idx_bytes(file, 8, n_dims, dims, bytes, n));
	same = open_data(c, "format=idx\ntrain=%s/x.idx\n");
	err = open_data(c, "format=npy\ntrain=%s/x.npy\n");
	CHECK_EQ(err, same);
	return err;
}

#define SHAPE(...) \
	(int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]) \
	{ \
		__VA_ARGS__ \
	}

static void an_array_of_the_net_s_own_sizes_is_taken(void)
{
	struct dn_dataset_config colour = net_of(3, 4, 5, 0), grey = net_of(1, 4, 5, 0), values = flat(60);

	CHECK_OK(open_shape(&colour, SHAPE(6, 3, 4, 5)));
	CHECK_OK(open_shape(&colour, SHAPE(6, 60)));
	CHECK_OK(open_shape(&grey, SHAPE(6, 1, 4, 5)));
	CHECK_OK(open_shape(&grey, SHAPE(6, 4, 5)));
	CHECK_OK(open_shape(&grey, SHAPE(6, 20)));
	/* a flat net has no order to compare with */
	CHECK_OK(open_shape(&values, SHAPE(6, 60)));
	CHECK_OK(open_shape(&values, SHAPE(6, 12, 5)));
	CHECK_OK(open_shape(&values, SHAPE(6, 4, 5, 3)));
}

static void as_many_values_in_another_arrangement_are_refused_with_both_shapes(void)
{
	static const struct {
		int64_t net[3];
		int n_dims;
		int64_t shape[4];
		const char *found, *hint; /* hint NULL: no order fits, and none is named */
	} rows[] = {
		{ { 3, 4, 5 },
		  4,
		  { 6, 4, 5, 3 },
		  "[c,h,w] = [4,5,3] found (shape [6, 4, 5, 3]), the net takes [3,4,5]",
		  "channels last: numpy.transpose(x, (0, 3, 1, 2)) would fit" },
		{ { 3, 4, 4 }, 4, { 6, 4, 4, 3 }, "[4,4,3] found", "channels last: numpy.transpose(x, (0, 3, 1, 2)) would fit" },
		{ { 3, 4, 5 }, 4, { 6, 3, 5, 4 }, "[3,5,4] found", "height and width swapped: numpy.transpose(x, (0, 1, 3, 2))" },
		{ { 3, 4, 5 }, 4, { 6, 5, 4, 3 }, "[5,4,3] found", "another order: numpy.transpose(x, (0, 3, 2, 1)) would fit" },
		{ { 3, 4, 5 },
		  4,
		  { 4, 5, 3, 6 },
		  "[5,3,6] found",
		  "another axis than the first: numpy.transpose(x, (3, 2, 0, 1))" },
		{ { 3, 4, 5 }, 4, { 6, 3, 2, 10 }, "[3,2,10] found", NULL },
		{ { 3, 4, 5 }, 4, { 6, 60, 1, 1 }, "[60,1,1] found", NULL },
		{ { 3, 4, 5 }, 3, { 6, 12, 5 }, "[1,12,5] found (shape [6, 12, 5])", NULL },
		{ { 1, 6, 8 },
		  3,
		  { 6, 8, 6 },
		  "[1,8,6] found",
		  "height and width swapped: numpy.transpose(x, (0, 2, 1)) would fit" },
		{ { 1, 6, 8 },
		  3,
		  { 8, 6, 9 },
		  "[1,6,9] found",
		  "another axis than the first: numpy.transpose(x, (2, 1, 0)) would fit" },
		{ { 1, 6, 8 }, 3, { 6, 4, 12 }, "[1,4,12] found", NULL },
		{ { 1, 6, 8 }, 4, { 6, 6, 8, 1 }, "[6,8,1] found", "channels last: numpy.transpose(x, (0, 3, 1, 2)) would fit" },
		{ { 1, 6, 8 }, 4, { 6, 3, 4, 4 }, "[3,4,4] found", NULL },
		/* another number of values: both shapes as well */
		{ { 3, 4, 5 }, 4, { 6, 3, 4, 6 }, "[3,4,6] found (shape [6, 3, 4, 6]), the net takes [3,4,5]", NULL },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct dn_dataset_config c = net_of(rows[i].net[0], rows[i].net[1], rows[i].net[2], 0);

		CHECK_FAILS(open_shape(&c, rows[i].n_dims, rows[i].shape), -EINVAL, rows[i].found);
		if (rows[i].hint)
			CHECK_FAILS(open_shape(&c, rows[i].n_dims, rows[i].shape), -EINVAL, rows[i].hint);
		else
			CU_ASSERT_PTR_NULL(strstr(dn_message(), "transpose"));
	}
}

static void a_net_of_as_many_inputs_is_not_one_of_cifar_s(void)
{
	struct dn_dataset_config other = net_of(12, 16, 16, 10), swapped = net_of(3, 16, 64, 10), own = net_of(3, 32, 32, 10);
	unsigned char *batch = calloc(2, 3073);

	put("b", batch, 2 * 3073);
	free(batch);
	CHECK_OK(open_data(&own, "format=cifar\ntrain=%s/b\n"));
	CHECK_FAILS(open_data(&other, "format=cifar\ntrain=%s/b\n"), -EINVAL, "[3,32,32] found");
	CHECK_FAILS(open_data(&other, "format=cifar\ntrain=%s/b\n"), -EINVAL, "the net takes [12,16,16]");
	CHECK_FAILS(open_data(&swapped, "format=cifar\ntrain=%s/b\n"), -EINVAL, "the net takes [3,16,64]");
}

static void targets_are_counted_along_their_own_axis(void)
{
	struct dn_dataset_config c = net_of(1, 2, 3, 4);
	float x[60] = { 0 };

	CHECK_OK_FATAL(dn_npy_write(in_folder("x.npy"), 3, (const int64_t[]){ 6, 2, 3 }, x));
	CHECK_OK_FATAL(dn_npy_write(in_folder("y.npy"), 2, (const int64_t[]){ 6, 4 }, x));
	CHECK_OK(open_data(&c, "format=npy\ntrain=%s/x.npy\ntrain_truth=%s/y.npy\n"));
	CHECK_OK_FATAL(dn_npy_write(in_folder("y.npy"), 2, (const int64_t[]){ 4, 6 }, x));
	CHECK_FAILS(open_data(&c, "format=npy\ntrain=%s/x.npy\ntrain_truth=%s/y.npy\n"), -EINVAL,
		    "has truth for 4; transposed, as [n, k], it would fit");
	CHECK_OK_FATAL(dn_npy_write(in_folder("y.npy"), 3, (const int64_t[]){ 6, 2, 2 }, x));
	CHECK_FAILS(open_data(&c, "format=npy\ntrain=%s/x.npy\ntrain_truth=%s/y.npy\n"), -EINVAL, "truth of shape [6, 2, 2]");
}

int main(void)
{
	static const struct check_case cases[] = {
		CASE(an_array_of_the_net_s_own_sizes_is_taken),
		CASE(as_many_values_in_another_arrangement_are_refused_with_both_shapes),
		CASE(a_net_of_as_many_inputs_is_not_one_of_cifar_s),
		CASE(targets_are_counted_along_their_own_axis),
		{ NULL, NULL },
	};

	return run_in_folder("samples", cases);
}
