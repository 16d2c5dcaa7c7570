/* Room io: the header of a .weights file is read by one rule, whoever asks and with a net or without. */
#define _GNU_SOURCE
#include "net_help.h"

#include <unistd.h>

#include "base/file.h"
#include "io/weights.h"

#define FLOATS 10 /* of the net below */

static char dir[64];
static float first_value = -1;
static const char cfg[] = "[net]\ninputs=4\n[connected]\noutput=2\nactivation=linear\n[cost]\n";

/* Values -1, -2, ..., whose bits make a count of 64 bits impossible where it is one of 32. */
static const char *write_file(int major, int minor, int width, uint64_t seen, int floats)
{
	static char path[100];
	int32_t v[3] = { major, minor, 0 };
	FILE *f;

	snprintf(path, sizeof(path), "%s/w", dir);
	f = fopen(path, "wb");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fwrite(v, sizeof(v), 1, f);
	fwrite(&seen, (size_t)width, 1, f);
	for (int i = 1; i <= floats; i++) {
		float x = i > 1 ? (float)-i : first_value;

		fwrite(&x, sizeof(x), 1, f);
	}
	CU_ASSERT_EQUAL_FATAL(fclose(f), 0);
	return path;
}

static void open_net(struct net_help *t)
{
	CHECK_OK_FATAL(net_help_build(t, "ref", cfg, NULL));
	CHECK_OK_FATAL(net_help_ready(t, false));
}

static void check_told(struct net_help *t, const struct dn_weights_info *in, bool own, const char *text)
{
	t->warnings[0] = '\0';
	dn_weights_tell("w", in);
	CHECK_EQ(dn_weights_own_width(&in->header), own);
	if (own) {
		CHECK_STR(t->warnings, "");
		return;
	}
	CU_ASSERT_PTR_NOT_NULL(strstr(t->warnings, text));
	CU_ASSERT_PTR_EQUAL(strchr(t->warnings, '\n'), t->warnings + strlen(t->warnings) - 1); /* once */
}

static void every_reader_finds_the_same_width(void)
{
	static const struct {
		int major, minor, width;
		bool own;
	} rows[] = {
		{ 0, 1, 4, true },  { 0, 1, 8, false }, { 0, 2, 8, true },    { 0, 2, 4, false },
		{ 1, 0, 4, false }, { 1, 0, 8, true },	{ 0, 1000, 4, true }, { 1001, 0, 8, false },
	};
	static const struct dn_group alone = DN_GROUP_ALONE;
	struct net_help t;

	open_net(&t);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (int part = 0; part <= 1; part++) { /* one that ends with a layer that has no params is whole */
			struct dn_weights_info in[4] = { 0 };
			const char *path = write_file(rows[i].major, rows[i].minor, rows[i].width, 640, FLOATS);
			const char *text = rows[i].width == 4
						   ? "counted in 64 bits, but the sizes are those of another: 32 bits are "
						     "read, 640 images seen\n"
						   : "counted in 32 bits, but the sizes are those of another: 64 bits are "
						     "read, 640 images seen\n";

			CHECK_OK(dn_weights_check(t.net, path, part, &in[0]));
			CHECK_OK(dn_weights_load(t.net, path, -1, part, &in[1]));
			CHECK_OK(dn_weights_load(t.net, path, 1, part, &in[2]));
			CHECK_OK(dn_weights_load_rank0(t.net, path, part, &alone, &in[3]));
			for (int k = 0; k < 4; k++) {
				CHECK_EQ(in[k].header.header_bytes, 12 + rows[i].width);
				CHECK_EQ(in[k].header.seen, 640);
				CHECK_EQ(in[k].floats, FLOATS);
				check_told(&t, &in[k], rows[i].own, text);
			}
			CHECK_EQ(*peek(t.net, t.net->params[0]->value, 1), -1);
		}
	net_help_close(&t);
}

static void without_a_net_the_version_decides_unless_that_is_impossible(void)
{
	struct net_help t;
	struct dn_weights_info in;

	open_net(&t);
	CHECK_OK(dn_weights_info_read(write_file(0, 2, 8, 640, FLOATS), &in));
	CHECK_EQ(in.header.seen, 640);
	CHECK_EQ(in.header.header_bytes, 20);
	check_told(&t, &in, true, NULL);
	CHECK_OK(dn_weights_info_read(write_file(0, 2, 4, 640, FLOATS), &in));
	CHECK_EQ(in.header.seen, 640);
	CHECK_EQ(in.header.header_bytes, 16);
	CHECK_EQ(in.floats, FLOATS);
	check_told(&t, &in, false, "but no run sees that many: 32 bits are read, 640 images seen\n");
	first_value = 1e-30f;
	CHECK_OK(dn_weights_info_read(write_file(0, 2, 4, 640, FLOATS), &in));
	CHECK_EQ(in.header.seen, 640);
	first_value = -1;
	CHECK_OK(dn_weights_info_read(write_file(0, 2, 8, 1000000000000, FLOATS), &in));
	CHECK_EQ(in.header.seen, 1000000000000);
	CHECK_OK(dn_weights_info_read(write_file(0, 2, 4, 640, 0), &in));
	CHECK_EQ(in.header.seen, 640);
	check_told(&t, &in, false, "but the file is too short for it: 32 bits are read");
	CHECK_FAILS(
		dn_weights_info_read(write_file(0, 1, 8, 640, FLOATS), &in), -EINVAL,
		"has two readings. As version 0.1 means it, 640 images are counted in 32 bits and the first value is 0; counted "
		"in 64 bits, as some programs wrote, they are 640");
	CHECK_OK(dn_weights_info_read(write_file(0, 1, 4, 640, FLOATS), &in));
	CHECK_EQ(in.header.header_bytes, 16);
	net_help_close(&t);
}

/* Cut by 4 bytes a file of 64 bits has the size of one of 32. */
static void a_cut_file_is_not_taken_for_one_of_another_width(void)
{
	static const struct dn_group alone = DN_GROUP_ALONE;
	static const int versions[][2] = { { 0, 2 }, { 0, 3 }, { 1, 0 } };
	static const char want[] = "has two readings. As version ";
	struct dn_weights_info in;
	struct net_help t;

	open_net(&t);
	for (int i = 0; i < 3; i++)
		for (uint64_t seen = 640; seen < UINT64_C(1) << 45; seen <<= 18) {
			const char *path = write_file(versions[i][0], versions[i][1], 8, seen, FLOATS - 1);
			char text[100];

			for (int part = 0; part <= 1; part++) {
				CHECK_FAILS(dn_weights_check(t.net, path, part, NULL), -EINVAL, want);
				CHECK_FAILS(dn_weights_load(t.net, path, -1, part, NULL), -EINVAL, want);
				CHECK_FAILS(dn_weights_load_rank0(t.net, path, part, &alone, NULL), -EINVAL, want);
			}
			snprintf(text, sizeof(text),
				 "%llu images counted in 64 bits, it holds 9 values and the net's layers take 10",
				 (unsigned long long)seen);
			CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), text));
			CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), "Counted in 32 bits, "));
			CHECK_OK(dn_weights_info_read(path, &in)); /* without sizes nothing is known to be missing */
			CHECK_EQ(in.header.seen, seen);
		}
	/* what the message says to do with one of 32 bits whose first value is 0 */
	first_value = 0;
	CHECK_FAILS(dn_weights_check(t.net, write_file(0, 2, 4, 640, FLOATS), false, NULL), -EINVAL,
		    "the first value is 0: of a");
	CHECK_OK(dn_weights_check(t.net, write_file(0, 1, 4, 640, FLOATS), false, &in));
	CHECK_EQ(in.header.header_bytes, 16);
	first_value = -1;
	net_help_close(&t);
}

/* With a net and without one the same width, or a refusal. */
static void a_net_changes_no_reading_of_a_header(void)
{
	static const int versions[][2] = { { 0, 1 }, { 0, 2 }, { 1, 0 }, { 0, 1000 }, { 1001, 0 } };
	static const float first[] = { -1, 0, .5f, 1e-30f, 1e-42f, 3 };
	static const uint64_t seen[] = { 0, 640, 0xffffffff, 1ull << 40, 1ull << 51 };
	struct dn_weights_info a, b;
	struct net_help t;
	int both = 0;

	open_net(&t);
	for (int i = 0; i < 5 * 6 * 5 * 2 * 3; i++) {
		const int *v = versions[i % 5];
		const char *path;

		first_value = first[i / 5 % 6];
		path = write_file(v[0], v[1], i / 150 % 2 ? 8 : 4, seen[i / 30 % 5], FLOATS - 1 + i / 300);
		if (dn_weights_check(t.net, path, true, &a) || dn_weights_info_read(path, &b))
			continue;
		CHECK_EQ(a.header.header_bytes, b.header.header_bytes);
		CHECK_EQ(a.header.seen, b.header.seen);
		both++;
	}
	CU_ASSERT_TRUE(both > 60);
	first_value = -1;
	net_help_close(&t);
}

static void another_net_s_file_is_told_by_its_size(void)
{
	struct net_help t;

	open_net(&t);
	CHECK_FAILS(dn_weights_check(t.net, write_file(0, 2, 4, 640, FLOATS + 5), false, NULL), -EINVAL,
		    "has 76 bytes, the net's 2 layers take 56: 20 too many");
	CHECK_FAILS(dn_weights_check(t.net, write_file(0, 2, 8, 1ull << 62, FLOATS), false, NULL), -EINVAL,
		    "the header says 4611686018427387904 images seen");
	net_help_close(&t);
}

int main(void)
{
	static const struct check_case cases[] = {
		{ "every_reader_finds_the_same_width", every_reader_finds_the_same_width },
		{ "without_a_net_the_version_decides_unless_that_is_impossible",
		  without_a_net_the_version_decides_unless_that_is_impossible },
		{ "a_cut_file_is_not_taken_for_one_of_another_width", a_cut_file_is_not_taken_for_one_of_another_width },
		{ "a_net_changes_no_reading_of_a_header", a_net_changes_no_reading_of_a_header },
		{ "another_net_s_file_is_told_by_its_size", another_net_s_file_is_told_by_its_size },
		{ NULL, NULL },
	};
	int status;

	snprintf(dir, sizeof(dir), "/tmp/test_weights_header.XXXXXX");
	if (!mkdtemp(dir)) {
		perror(dir);
		return 2;
	}
	status = check_run("weights_header", cases);
	if (dn_remove_tree(dir))
		fprintf(stderr, "%s\n", dn_message());
	return status;
}
