/* Room data: lines of lists that nobody sees to be wrong, and messages that lead to the line. */
#define _GNU_SOURCE
#include "image_help.h"

static struct dn_dataset_config net(void)
{
	return (struct dn_dataset_config){ .inputs = 192, .w = 8, .h = 8, .c = 3, .fit = DN_FIT_CENTER_CROP };
}

static int open_list(struct dn_dataset **ds, const char *format)
{
	struct dn_dataset_config c = net();
	struct dn_datafile *d = NULL;
	char text[1000];
	int err;

	if (!strcmp(format, "cifar"))
		c = (struct dn_dataset_config){ .inputs = 3072, .w = 32, .h = 32, .c = 3 };
	snprintf(text, sizeof(text), "format=%s\ntrain=%s/list\n", format, folder);
	CHECK_OK_FATAL(dn_datafile_read(&d, put_text("t.data", text), true));
	err = dn_dataset_open(ds, d, &c);
	dn_datafile_destroy(d);
	return err;
}

static int get(const struct dn_dataset *ds, int64_t i)
{
	float x[192];
	int err;

	n_warnings = 0;
	dn_log_sink(keep_warning, NULL);
	err = ds->get(ds, i, NULL, x, NULL, 0, NULL);
	dn_log_sink(NULL, NULL);
	return err;
}

static void put_lines(const char *format)
{
	char text[4000];

	snprintf(text, sizeof(text), format, folder, folder, folder, folder, folder, folder);
	put_text("list", text);
}

static void blanks_at_the_end_of_a_path_go_unless_it_is_the_file_s_name(void)
{
	static const char batch[3073];
	struct dn_dataset *ds = NULL;

	put_jpeg("a.jpg", 9, 9, 3, 1, 90);
	put_jpeg("b.jpg  ", 9, 9, 3, 2, 90);
	put_jpeg("c d.jpg", 9, 9, 3, 2, 90);
	put_lines("%s/a.jpg \n%s/a.jpg\t \t\r\n%s/b.jpg  \n%s/c d.jpg  \n%s/b.jpg \n%s/a.jpg ");
	CHECK_OK_FATAL(open_list(&ds, "list"));
	CHECK_EQ(ds->n, 6);
	CHECK_STR(ds->name(ds, 0), in_folder("a.jpg"));
	CHECK_STR(ds->name(ds, 1), in_folder("a.jpg"));
	CHECK_STR(ds->name(ds, 2), in_folder("b.jpg  "));
	CHECK_STR(ds->name(ds, 3), in_folder("c d.jpg"));
	CHECK_STR(ds->name(ds, 5), in_folder("a.jpg"));
	for (int i = 0; i < 6; i++)
		if (i != 4)
			CHECK_OK(get(ds, i));
	CHECK_FAILS(get(ds, 4), -ENOENT, "/b.jpg\": cannot read the image");
	dn_dataset_close(ds);
	/* a list of CIFAR-10's batches */
	put("batch", batch, sizeof(batch));
	put_lines("%s/batch \n%s/batch\t\n");
	CHECK_OK_FATAL(open_list(&ds, "cifar"));
	CHECK_EQ(ds->n, 2);
	dn_dataset_close(ds);
}

static void a_message_names_list_line_and_path(void)
{
	static const int64_t line[] = { 2, 5, 6 };
	struct dn_dataset *ds = NULL;
	char want[700];

	put_lines("\n%s/no 1.jpg\n \t\n\r\n%s/no 2.jpg\r\n%s/no 3.jpg");
	CHECK_OK_FATAL(open_list(&ds, "list"));
	for (int i = 0; i < 3; i++) {
		snprintf(want, sizeof(want), "%s/list:%lld: \"%s/no %d.jpg\": cannot read the image: No such file", folder,
			 (long long)line[i], folder, i + 1);
		CHECK_FAILS(get(ds, i), -ENOENT, want);
	}
	dn_dataset_close(ds);
	/* what is found inside of the file is told the same way */
	put_text("no 2.jpg", "<html>");
	CHECK_OK_FATAL(open_list(&ds, "list"));
	CHECK_FAILS(get(ds, 1), -EINVAL, "/list:5: \"");
	CHECK_FAILS(get(ds, 1), -EINVAL, "/no 2.jpg\": not an image (");
	dn_dataset_close(ds);
	unlink(in_folder("no 2.jpg"));
}

static void a_tree_s_lines_are_those_of_its_file(void)
{
	struct dn_dataset_config c = net();
	struct dn_datafile *d = NULL;
	struct dn_dataset *ds = NULL;
	char text[1000];

	put_text("labels", "a\nb\n");
	put_text("tree", "a -1\n\n\nb 5\n");
	put_lines("%s/a\n");
	snprintf(text, sizeof(text), "train=%s/list\nlabels=%s/labels\ntree=%s/tree\n", folder, folder, folder);
	CHECK_OK_FATAL(dn_datafile_read(&d, put_text("t.data", text), true));
	c.truths = 2;
	CHECK_FAILS(dn_dataset_open(&ds, d, &c), -EINVAL, "/tree:4: b: parent 5 must be");
	put_text("tree", "\na -1\r\n\r\nb\r\n");
	CHECK_FAILS(dn_dataset_open(&ds, d, &c), -EINVAL, "/tree:4: a line of a tree is NAME PARENT, found \"b\"");
	dn_datafile_destroy(d);
}

/* Once a file, whatever the number of epochs; also on ranks that leave warnings which all would give to the first. */
static void a_jpeg_without_its_end_is_told_once_with_its_line(void)
{
	struct dn_dataset *ds = NULL;
	char *text = NULL;
	char list[4000], want[700];
	size_t n = 0, at = 0;

	CHECK_OK_FATAL(dn_file_read(put_jpeg("whole.jpg", 16, 16, 3, 1, 90), 1 << 20, &text, &n));
	CU_ASSERT_FATAL(n > 2 && !memcmp(text + n - 2, "\xff\xd9", 2));
	for (int i = 0; i < 25; i++) {
		char name[20];

		snprintf(name, sizeof(name), "%d.jpg", i);
		put(name, text, n - (i == 3 ? 0 : 2));
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s/%d.jpg\n", folder, i);
	}
	dn_free(text);
	put_text("list", list);
	CHECK_OK_FATAL(open_list(&ds, "list"));
	dn_log_quiet(true);
	for (int epoch = 0; epoch < 2; epoch++)
		for (int i = 0; i < 25; i++) {
			CHECK_OK(get(ds, i));
			CHECK_EQ(n_warnings, !epoch && i != 3 && i <= 21);
			if (!n_warnings)
				continue;
			snprintf(want, sizeof(want), "warning: %s/list:%d: \"%s/%d.jpg\": the JPEG has no end marker", folder,
				 i + 1, folder, i);
			CU_ASSERT(!strncmp(last_warning, want, strlen(want)));
			CHECK_EQ(strstr(last_warning, "more such samples are not named") != NULL, i == 21);
		}
	dn_log_quiet(false);
	dn_dataset_close(ds);
}

int main(void)
{
	static const struct check_case cases[] = {
		CASE(blanks_at_the_end_of_a_path_go_unless_it_is_the_file_s_name),
		CASE(a_message_names_list_line_and_path),
		CASE(a_tree_s_lines_are_those_of_its_file),
		CASE(a_jpeg_without_its_end_is_told_once_with_its_line),
		{ NULL, NULL },
	};

	return run_in_folder("list_paths", cases);
}
