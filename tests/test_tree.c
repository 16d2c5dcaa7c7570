/* The tree of classes: one reader serves the net's softmax and the labels of a list of images. */
#include <unistd.h>
#include "base/file.h"
#include "base/tree.h"
#include "data/datafile.h"
#include "data/dataset.h"
#include "net_help.h"

static char dir[] = "/tmp/treeXXXXXX";

static const char *in_dir(const char *name)
{
	static char path[4][128];
	static int at;
	char *out = path[at++ % 4];

	snprintf(out, sizeof(path[0]), "%s/%s", dir, name);
	return out;
}

static void put(const char *name, const char *text, size_t n)
{
	FILE *f = fopen(in_dir(name), "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(fwrite(text, 1, n, f), n);
	CU_ASSERT_EQUAL(fclose(f), 0);
}

#define PUT(name, text) put((name), (text), sizeof(text) - 1)

static int open_in_net(void)
{
	struct net_help t;
	char cfg[256];
	int err;

	snprintf(cfg, sizeof(cfg), "[net]\nbatch=1\ninputs=4\n[softmax]\ntree=%s\n", in_dir("tree"));
	err = net_help_build(&t, "ref", cfg, NULL);
	if (!err)
		net_help_close(&t);
	return err;
}

static int open_in_list(void)
{
	const struct dn_dataset_config c = { .valid = true, .inputs = 12, .truths = 4, .w = 2, .h = 2, .c = 3 };
	struct dn_datafile *d = NULL;
	struct dn_dataset *ds = NULL;
	char text[512];
	int err;

	snprintf(text, sizeof(text), "classes=4\nvalid=%s\nlabels=%s\ntree=%s\n", in_dir("list"), in_dir("labels"),
		 in_dir("tree"));
	err = dn_datafile_parse(&d, text, "t.data");
	if (!err)
		err = dn_dataset_open(&ds, d, &c);
	dn_dataset_close(ds);
	dn_datafile_destroy(d);
	return err;
}

static void net_and_labels_take_the_same_files(void)
{
	PUT("list", "a/sports car.png\n");
	PUT("labels", "thing\nanimal\nsports car\ncat\n");
	PUT("tree", "\xef\xbb\xbfthing -1\r\nanimal -1\r\nsports car\t0 \r\n  cat 1\r\n\r\n \n");
	CHECK_OK(open_in_net());
	CHECK_OK(open_in_list());
	PUT("tree", "thing -1\nanimal -1\nsports car 0\ncat 1");
	CHECK_OK(open_in_net());
	CHECK_OK(open_in_list());
}

static void net_and_labels_refuse_the_same_files(void)
{
	static const struct {
		const char *text;
		size_t n;
		const char *want;
	} bad[] = {
#define BAD(text, want) { text, sizeof(text) - 1, want }
		BAD("thing -1\n\nanimal -1\ncar 0\ncat 4\n", "tree:5: cat: parent 4 must be -1 or the number of an earlier line"),
		BAD("thing -1\nanimal -1\ncar 0\ncat\n", "tree:4: a line of a tree is NAME PARENT, found \"cat\""),
		BAD("thing -1\nanimal -1\ncar 0\ncat x\n", "tree:4: a line of a tree is NAME PARENT, found \"cat x\""),
		BAD("thing -1\nanimal -1\ncar 0\ncat 3\n", "tree:4: cat: parent 3 must be -1 or the number of an earlier line"),
		BAD("thing -1\nanimal -1\ncar 0\ncat 1.5\n", "tree:4: cat: parent 1.5 must be"),
		BAD("thing -2\nanimal -1\ncar 0\ncat 1\n", "tree:1: thing: parent -2 must be"),
		BAD("thing -1\nani\0al -1\ncar 0\ncat 1\n", "tree:2: holds a NUL byte"),
#undef BAD
	};

	PUT("list", "a/car.png\n");
	PUT("labels", "thing\nanimal\ncar\ncat\n");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		put("tree", bad[i].text, bad[i].n);
		CHECK_FAILS(open_in_net(), -EINVAL, bad[i].want);
		CHECK_FAILS(open_in_list(), -EINVAL, bad[i].want);
	}
}

static void trees_hold_groups_and_leaves(void)
{
	struct dn_tree *t;
	float p[] = { .5f, .25f, .75f };

	PUT("tree", "top -1\nleft side 0\nright side 0\n");
	CHECK_OK_FATAL(dn_tree_read(&t, in_dir("tree")));
	CHECK_EQ(t->n, 3);
	CHECK_EQ(t->n_groups, 2);
	CHECK_EQ(t->group_at[1], 1);
	CHECK_EQ(t->group_at[2], 3);
	CHECK_STR(t->names[1], "left side");
	CU_ASSERT(!t->leaf[0] && t->leaf[1] && t->leaf[2]);
	dn_tree_absolute(t, p);
	CU_ASSERT(p[0] == .5f && p[1] == .125f && p[2] == .375f);
	dn_tree_destroy(t);
	PUT("tree", "");
	CHECK_FAILS(dn_tree_read(&t, in_dir("tree")), -EINVAL, "tree: is empty, a tree has lines NAME PARENT");
	PUT("tree", "a -1\n\n\nb 0\n");
	CHECK_OK_FATAL(dn_tree_read(&t, in_dir("tree")));
	CHECK_EQ(t->n, 2);
	CHECK_STR(t->names[1], "b");
	dn_tree_destroy(t);
}

static const struct check_case cases[] = {
	{ "net_and_labels_take_the_same_files", net_and_labels_take_the_same_files },
	{ "net_and_labels_refuse_the_same_files", net_and_labels_refuse_the_same_files },
	{ "trees_hold_groups_and_leaves", trees_hold_groups_and_leaves },
	{ NULL, NULL },
};

int main(void)
{
	int status;

	if (!mkdtemp(dir))
		return 1;
	status = check_run("tree", cases);
	(void)dn_remove_tree(dir);
	return status;
}
