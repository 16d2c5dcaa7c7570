/* Room data: lists of images with their classes, trees, CIFAR-10, and both through the loader. */
#define _GNU_SOURCE
#include "image_help.h"

#include "base/rng.h"

/* ---- helpers ---- */

static void warn_into(void)
{
	n_warnings = 0;
	last_warning[0] = '\0';
	dn_log_sink(keep_warning, NULL);
}

static struct dn_dataset_config net(int64_t w, int64_t h, int64_t c, int64_t truths)
{
	return (struct dn_dataset_config){
		.inputs = w * h * c, .truths = truths, .w = w, .h = h, .c = c, .fit = DN_FIT_CENTER_CROP
	};
}

/* A data set of t.data with @lines; %s in it is the folder. Warnings go to last_warning. */
static int open_as(struct dn_dataset **ds, const char *lines, const struct dn_dataset_config *c)
{
	struct dn_datafile *d = NULL;
	char text[4000];
	int err;

	snprintf(text, sizeof(text), lines, folder, folder, folder, folder, folder);
	err = dn_datafile_read(&d, put_text("t.data", text), true);
	if (err)
		return err;
	warn_into();
	err = dn_dataset_open(ds, d, c);
	dn_log_sink(NULL, NULL);
	dn_datafile_destroy(d);
	return err;
}

/* "list" with a line for each of @n images img-I-NAME.jpg, NAME = cat, dog, cow by turns, of growing size; "labels". */
static void put_list(int n)
{
	static const char *const names[] = { "cat", "dog", "cow" };
	char *text = calloc((size_t)n + 1, 200);
	size_t at = 0;

	for (int i = 0; i < n; i++) {
		char name[100];

		snprintf(name, sizeof(name), "img-%d-%s.jpg", i, names[i % 3]);
		put_jpeg(name, 24 + i % 7, 20 + i % 5, 3, i, 90);
		at += (size_t)sprintf(text + at, "%s/%s\n", folder, name);
	}
	put_text("list", text);
	put_text("labels", "cat\ndog\ncow\n");
	free(text);
}

/* ---- lists ---- */

static void lines_come_without_line_ends_marks_and_blank_ends(void)
{
	struct dn_lines l = { 0 };

	CHECK_OK_FATAL(dn_lines_read(&l,
				     put_text("l", "\xef\xbb\xbf"
						   "a b.jpg\r\n\r\n \xc3\xa4.png \nlast\r\n\n \n\n"),
				     "a list", false));
	CHECK_EQ(l.n, 3);
	CHECK_STR(l.line[0], "a b.jpg");
	CHECK_STR(l.line[1], " \xc3\xa4.png ");
	CHECK_STR(l.line[2], "last");
	dn_lines_fini(&l);
	CHECK_OK_FATAL(dn_lines_read(&l, put_text("l", "a\n\nb"), "a list", true));
	CHECK_EQ(l.n, 3);
	CHECK_STR(l.line[1], "");
	CHECK_STR(l.line[2], "b");
	dn_lines_fini(&l);
	CHECK_FAILS(dn_lines_read(&l, put_text("l", "\n\r\n"), "a list of images", false), -EINVAL,
		    "a list of images without a line");
	CHECK_FAILS(dn_lines_read(&l, put_text("l", ""), "a list of images", false), -EINVAL, "is empty, not a list of images");
	CHECK_FAILS(dn_lines_read(&l, put("l", "a\nb\0c\n", 6), "a list of images", false), -EINVAL, "not a list of images");
	CHECK_FAILS(dn_lines_read(&l, put_text("l", "version https://git-lfs.github.com/spec/v1\n"), "a list of images", false),
		    -EINVAL, "a git-lfs pointer");
	CHECK_FAILS(dn_lines_read(&l, put_text("l", "<html>"), "a list of images", false), -EINVAL, "an HTML page");
	CHECK_FAILS(dn_lines_read(&l, put("l", "\x89PNG\r\n\x1a\n\0\0", 10), "a list of images", false), -EINVAL, "a PNG image");
	CHECK_FAILS(dn_lines_read(&l, in_folder("no"), "a list of images", false), -ENOENT, "no: cannot read");
	CU_ASSERT_PTR_NULL(l.text);
}

static void paths_in_lists_are_files_whatever_their_names(void)
{
	static const char *const names[] = { "a b.jpg", "\xc3\xa4\xc3\xb6.jpg", "c-cat.jpg", "#1.jpg" };
	struct dn_dataset_config c = net(8, 8, 3, 0);
	struct dn_dataset *ds = NULL;
	char text[1000];
	float x[192];
	int64_t cls = 5;

	for (int i = 0; i < 4; i++)
		put_jpeg(names[i], 20, 20, 3, i, 90);
	snprintf(text, sizeof(text), "\xef\xbb\xbf%s/%s\r\n%s/%s\n\n%s/%s\r\n%s/%s", folder, names[0], folder, names[1], folder,
		 names[2], folder, names[3]);
	put_text("list", text);
	CHECK_OK_FATAL(open_as(&ds, "train=%s/list\n", &c));
	CHECK_EQ(ds->n, 4);
	CHECK_EQ(ds->inputs, 192);
	CU_ASSERT(!ds->has_truth);
	CHECK_EQ(n_warnings, 0);
	for (int i = 0; i < 4; i++) {
		float want[192];

		CHECK_STR(ds->name(ds, i), in_folder(names[i]));
		CHECK_OK(ds->get(ds, i, NULL, x, NULL, 0, &cls));
		CHECK_EQ(cls, -1);
		CHECK_OK(dn_image_read_fit(in_folder(names[i]), DN_FIT_CENTER_CROP, want, 8, 8, 3));
		CHECK_BITS(x, want, sizeof(x));
	}
	CHECK_FAILS(ds->get(ds, 4, NULL, x, NULL, 0, &cls), -EINVAL, "no sample 4");
	dn_dataset_close(ds);
}

static void paths_are_relative_to_the_working_directory(void)
{
	struct dn_dataset_config c = net(8, 8, 1, 0);
	struct dn_dataset *ds = NULL;
	char old[4096];
	float x[64];

	CU_ASSERT_PTR_NOT_NULL_FATAL(getcwd(old, sizeof(old)));
	put_jpeg("here.jpg", 20, 20, 3, 0, 90);
	put_text("list", "here.jpg\n");
	CHECK_OK_FATAL(open_as(&ds, "train=%s/list\n", &c));
	CU_ASSERT_EQUAL_FATAL(chdir(folder), 0);
	CHECK_OK(ds->get(ds, 0, NULL, x, NULL, 0, NULL));
	CU_ASSERT_EQUAL_FATAL(chdir(old), 0);
	CHECK_FAILS(ds->get(ds, 0, NULL, x, NULL, 0, NULL), -ENOENT, "list:1: \"here.jpg\": cannot read the image: No such file");
	dn_dataset_close(ds);
}

static void classes_are_labels_inside_the_path(void)
{
	static const struct {
		const char *path;
		int n, cls[4];
	} want[] = { { "x/cat/1.jpg", 1, { 0 } }, { "cat-dog-cat.jpg", 2, { 0, 1 } }, { "dogcatalog.jpg", 3, { 0, 1, 3 } },
		     { "none.jpg", 0, { 0 } },	  { "cow.jpg", 2, { 2, 4 } },	      { "ca/t.jpg", 0, { 0 } } };
	struct dn_dataset_config c = net(8, 8, 3, 5);
	char text[1000] = "";
	struct dn_dataset *ds = NULL;

	/* the images do not exist: truth is a matter of paths alone; label 4 is label 2 again */
	for (int i = 0; i < 6; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s\n", want[i].path);
	put_text("list", text);
	put_text("labels", "cat\r\ndog\r\ncow\r\ncatalog\r\ncow");
	CHECK_OK_FATAL(open_as(&ds, "train=%s/list\nlabels=%s/labels\nclasses=5\n", &c));
	CHECK_EQ(ds->classes, 5);
	CU_ASSERT(ds->has_truth);
	CHECK_EQ(n_warnings, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_warning, "list: of 6 images 2 have no label of"));
	CU_ASSERT_PTR_NOT_NULL(
		strstr(last_warning,
		       "(the first: line 4, \"none.jpg\"), 3 have several (the first: line 2, \"cat-dog-cat.jpg\": cat, dog)"));
	dn_dataset_close(ds);
	/* the same paths as links to an image, in one folder */
	put_jpeg("l0.jpg", 10, 10, 3, 0, 90);
	for (int i = 0; i < 5; i++) {
		char name[200];

		snprintf(name, sizeof(name), "%s/d%d-%s", folder, i, i ? want[i].path : "x-cat-1.jpg");
		CU_ASSERT_EQUAL(symlink("l0.jpg", name), 0);
		put_text("list", name);
		for (int valid = 0; valid < 2; valid++) {
			float x[192], t[5];
			int64_t cls;

			ds = NULL;
			c.valid = valid;
			CHECK_OK_FATAL(open_as(&ds, "train=%s/list\nvalid=%s/list\nlabels=%s/labels\nclasses=5\n", &c));
			CHECK_OK(ds->get(ds, 0, NULL, x, t, 5, &cls));
			CHECK_EQ(cls, want[i].n ? want[i].cls[0] : -1);
			for (int k = 0; k < 5; k++) {
				bool on = false;

				for (int j = 0; j < (valid && want[i].n ? 1 : want[i].n); j++)
					on |= want[i].cls[j] == k;
				CU_ASSERT_EQUAL(t[k], on);
			}
			dn_dataset_close(ds);
		}
	}
}

static void numbers_of_classes_that_differ_are_errors_with_both(void)
{
	struct dn_dataset_config c = net(8, 8, 3, 3);
	struct dn_dataset *ds = NULL;
	char many[30000] = "";

	put_text("list", "cat\ndog\n");
	put_text("labels", "cat\ndog\ncow\n");
	put_text("names", "Cat\nDog\n");
	put_text("empty", "cat\n\ncow\n");
	CHECK_FAILS(open_as(&ds, "train=%s/list\nlabels=%s/labels\nclasses=4\n", &c), -EINVAL, "t.data:3: classes=4, but");
	CHECK_FAILS(open_as(&ds, "train=%s/list\nlabels=%s/labels\nclasses=4\n", &c), -EINVAL, "labels has 3 labels");
	CHECK_FAILS(open_as(&ds, "train=%s/list\nlabels=%s/labels\nclasses=2\n", &c), -EINVAL,
		    "classes=2, but the net has 3 outputs");
	c.truths = 7;
	CHECK_FAILS(open_as(&ds, "train=%s/list\nlabels=%s/labels\n", &c), -EINVAL,
		    "labels: 3 labels, but the net has 7 outputs");
	c.truths = 3;
	CHECK_FAILS(open_as(&ds, "train=%s/list\nlabels=%s/labels\nnames=%s/names\n", &c), -EINVAL,
		    "names: 2 names, but there are 3 classes");
	CHECK_FAILS(open_as(&ds, "train=%s/list\nlabels=%s/empty\n", &c), -EINVAL, "empty:2: a label of 0 letters");
	CHECK_FAILS(open_as(&ds, "train=%s/list\n", &c), -ENOENT, "there is no labels= line");
	CHECK_FAILS(open_as(&ds, "labels=%s/labels\n", &c), -ENOENT, "there is no train= line");
	CU_ASSERT_PTR_NULL(ds);
	/* more labels than classes: the first ones count, as in Darknet's imagenet1k.data */
	for (int i = 0; i < 2000; i++)
		sprintf(many + strlen(many), "n%05d\n", i);
	put_text("labels", many);
	put_text("list", "a/n00001/x.jpg\na/n00999/x.jpg\na/n01000/x.jpg\n");
	c.truths = 1000;
	CHECK_OK_FATAL(open_as(&ds, "train=%s/list\nlabels=%s/labels\nclasses=1000\nnames=%s/none\n", &c));
	CHECK_EQ(ds->classes, 1000);
	CHECK_EQ(n_warnings, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_warning, "of 3 images 1 have no label"));
	dn_dataset_close(ds);
}

static void lists_are_for_nets_that_take_images(void)
{
	struct dn_dataset_config c = net(0, 0, 0, 0);
	struct dn_dataset *ds = NULL;
	struct dn_datafile *d = NULL;

	put_list(1);
	c.inputs = 64;
	CHECK_FAILS(open_as(&ds, "train=%s/list\n", &c), -EINVAL,
		    "a net with width, height and channels, this one takes 64 inputs");
	c = net(8, 8, 4, 0);
	CHECK_FAILS(open_as(&ds, "train=%s/list\n", &c), -ENOTSUP, "the net takes 4 channels; images are read as 1 (grey) or 3");
	c = net(70000, 8, 3, 0);
	CHECK_FAILS(open_as(&ds, "train=%s/list\n", &c), -EINVAL, "70000 x 8");
	CHECK_OK_FATAL(dn_datafile_read(&d, in_folder("t.data"), true));
	CHECK_FAILS(dn_dataset_open(&ds, d, &(struct dn_dataset_config){ .inputs = 64 }), -EINVAL, "a net with width");
	dn_datafile_destroy(d);
	CU_ASSERT_PTR_NULL(ds);
}

static void a_tree_sets_ancestors_and_ignores_other_groups(void)
{
	/* 0 animal, 1 thing; below 0: 2 cat, 3 dog; below 1: 4 car, 5 van; below 3: 6 pug, 7 pom */
	static const float want[3][8] = { { 1, 0, 0, 1, -1234, -1234, 1, 0 },
					  { 0, 1, -1234, -1234, 0, 1, -1234, -1234 },
					  { -1234, -1234, -1234, -1234, -1234, -1234, -1234, -1234 } };
	struct dn_dataset_config c = net(8, 8, 3, 8);
	struct dn_dataset *ds = NULL;
	char text[500];

	put_jpeg("pug.jpg", 9, 9, 3, 0, 90);
	put_jpeg("van.jpg", 9, 9, 3, 0, 90);
	put_jpeg("nil.jpg", 9, 9, 3, 0, 90);
	snprintf(text, sizeof(text), "%s/pug.jpg\n%s/van.jpg\n%s/nil.jpg\n", folder, folder, folder);
	put_text("list", text);
	put_text("labels", "animal\nthing\ncat\ndog\ncar\nvan\npug\npom\n");
	put_text("tree", "animal -1\nthing -1\ncat 0\ndog 0\r\nsports car 1\nvan\t1 \npug 3\npom 3\n");
	CHECK_OK_FATAL(open_as(&ds, "train=%s/list\nlabels=%s/labels\ntree=%s/tree\n", &c));
	for (int i = 0; i < 3; i++) {
		float x[192], t[8];
		int64_t cls;

		CHECK_OK(ds->get(ds, i, NULL, x, t, 8, &cls));
		CHECK_EQ(cls, i == 0 ? 6 : i == 1 ? 5 : -1);
		for (int k = 0; k < 8; k++)
			CU_ASSERT_EQUAL(t[k], want[i][k]);
	}
	dn_dataset_close(ds);
	ds = NULL;
	put_text("tree", "animal -1\nthing -1\n");
	CHECK_FAILS(open_as(&ds, "train=%s/list\nlabels=%s/labels\ntree=%s/tree\n", &c), -EINVAL,
		    "tree: 2 nodes, but there are 8 classes");
	put_text("tree", "animal -1\nthing 1\n");
	CHECK_FAILS(open_as(&ds, "train=%s/list\nlabels=%s/labels\ntree=%s/tree\n", &c), -EINVAL,
		    "tree:2: thing: parent 1 must be -1 or the number of an earlier line");
	put_text("tree", "animal\n");
	CHECK_FAILS(open_as(&ds, "train=%s/list\nlabels=%s/labels\ntree=%s/tree\n", &c), -EINVAL,
		    "tree:1: a line of a tree is NAME PARENT, found \"animal\"");
	CU_ASSERT_PTR_NULL(ds);
}

static void the_hash_is_of_paths_and_classes(void)
{
	struct dn_dataset_config c = net(8, 8, 3, 2);
	uint64_t h[5];
	static const char *const lists[] = { "cat1\ndog2\n",
					     "\xef\xbb\xbf"
					     "cat1\r\n\r\ndog2",
					     "dog2\ncat1\n", "cat1\ndog3\n", "cat1\ndog2\n" };

	for (int i = 0; i < 5; i++) {
		struct dn_dataset *ds = NULL;

		put_text("list", lists[i]);
		put_text("labels", i == 4 ? "dog\ncat\n" : "cat\ndog\n");
		CHECK_OK_FATAL(open_as(&ds, "train=%s/list\nlabels=%s/labels\n", &c));
		h[i] = ds->hash;
		dn_dataset_close(ds);
	}
	CU_ASSERT_EQUAL(h[0], h[1]);
	for (int i = 2; i < 5; i++)
		CU_ASSERT_NOT_EQUAL(h[0], h[i]);
}

/* ---- inputs ---- */

static void evaluation_fits_and_training_draws_by_key(void)
{
	struct dn_augment a = { .min_ratio = .7,
				.max_ratio = 1.2,
				.angle = 15,
				.aspect = 1.3,
				.hue = .1,
				.saturation = 1.5,
				.exposure = 1.5,
				.flip = true };
	struct dn_dataset_config c = net(12, 10, 3, 3);
	struct dn_sample_key key = { .update = 4, .place = 9 };
	struct dn_dataset *ds = NULL;
	float x[16 * 16 * 3], want[16 * 16 * 3];
	struct dn_augment_draw d;
	struct dn_image im = { 0 };
	struct dn_view v;

	put_list(6);
	for (int fit = 0; fit < 2; fit++) {
		c.fit = fit ? DN_FIT_LETTERBOX : DN_FIT_CENTER_CROP;
		CHECK_OK_FATAL(open_as(&ds, "train=%s/list\nlabels=%s/labels\n", &c));
		CHECK_OK(ds->get(ds, 4, &key, x, NULL, 0, NULL));
		CHECK_OK(dn_image_read_fit(ds->name(ds, 4), c.fit, want, 12, 10, 3));
		CHECK_BITS(x, want, 360 * sizeof(*x));
		dn_dataset_close(ds);
		ds = NULL;
	}
	c.augment = &a;
	c.seed = 99;
	CHECK_OK_FATAL(open_as(&ds, "train=%s/list\nlabels=%s/labels\n", &c));
	CHECK_OK_FATAL(dn_image_read(&im, ds->name(ds, 4), 3));
	v = dn_view_floats(im.x, im.w, im.h, 3);
	for (int k = 0; k < 2; k++) { /* the net's size, and another one */
		int w = k ? 16 : 12, h = k ? 16 : 10;

		key.w = k ? 16 : 0;
		key.h = k ? 16 : 0;
		CHECK_OK(ds->get(ds, 4, &key, x, NULL, 0, NULL));
		dn_augment_draw(&d, &a, 99, 4, 9, im.w, im.h, w, h);
		dn_augment_apply(&a, &d, &v, want, w, h);
		CHECK_BITS(x, want, (size_t)(3 * w * h) * sizeof(*x));
	}
	dn_image_fini(&im);
	dn_dataset_close(ds);
}

/* ---- CIFAR-10 ---- */

static const char *put_batch(const char *name, int n, int first)
{
	unsigned char *p = malloc((size_t)n * 3073);
	const char *path;

	for (int i = 0; i < n; i++) {
		p[i * 3073] = (unsigned char)((first + i) % 10);
		for (int k = 0; k < 3072; k++)
			p[i * 3073 + 1 + k] = (unsigned char)(k * 7 + (first + i) * 31);
	}
	path = put(name, p, (size_t)n * 3073);
	free(p);
	return path;
}

static void check_cifar(const char *lines, int n)
{
	struct dn_dataset_config c = net(32, 32, 3, 10);
	struct dn_dataset *ds = NULL;
	float x[3072], t[10];
	int64_t cls;

	CHECK_OK_FATAL(open_as(&ds, lines, &c));
	CHECK_EQ(ds->n, n);
	CHECK_EQ(ds->inputs, 3072);
	CHECK_EQ(ds->classes, 10);
	CU_ASSERT(ds->c == 3 && ds->h == 32 && ds->w == 32);
	for (int i = 0; i < n; i++) {
		CHECK_OK(ds->get(ds, i, NULL, x, t, 10, &cls));
		CHECK_EQ(cls, i % 10);
		for (int k = 0; k < 10; k++)
			CU_ASSERT_EQUAL(t[k], k == i % 10);
		for (int k = 0; k < 3072; k++)
			CU_ASSERT_EQUAL_FATAL(x[k], (float)((k * 7 + i * 31) & 255) / 255.0f);
	}
	CHECK_FAILS(ds->get(ds, n, NULL, x, t, 10, &cls), -EINVAL, "there is no sample");
	dn_dataset_close(ds);
}

static void cifar_batches_come_alone_in_a_row_and_in_a_list(void)
{
	char text[300];

	put_batch("b1", 13, 0);
	put_batch("b2", 1, 13);
	put_batch("b3", 5, 14);
	check_cifar("format=cifar\ntrain=%s/b1\n", 13);
	check_cifar("format=cifar\ntrain=%s/b1,%s/b2,%s/b3\n", 19);
	snprintf(text, sizeof(text), "%s/b1\r\n%s/b2\r\n%s/b3", folder, folder, folder);
	put_text("list", text);
	check_cifar("format=cifar\ntrain=%s/list\nclasses=10\n", 19);
}

static void damaged_cifar_files_are_refused_with_the_reason(void)
{
	struct dn_dataset_config c = net(32, 32, 3, 10);
	struct dn_dataset *ds = NULL;
	unsigned char p[6148] = { 0 };
	static const char one[] = "format=cifar\ntrain=%s/b\n";

	put("b", p, 6147);
	CHECK_FAILS(open_as(&ds, one, &c), -EINVAL, "6147 bytes are no whole number of CIFAR-10's records of 3073");
	put("b", p, 6148);
	CHECK_FAILS(open_as(&ds, one, &c), -EINVAL, "but of CIFAR-100's, which is not read");
	p[3073] = 10;
	put("b", p, 6146);
	CHECK_FAILS(open_as(&ds, one, &c), -EINVAL, "b: record 1 has class 10");
	p[0] = 0x1f;
	p[1] = 0x8b;
	put("b", p, 6146);
	CHECK_FAILS(open_as(&ds, one, &c), -EINVAL, "a gzip file");
	put_text("b", "version https://git-lfs.github.com/spec/v1\n");
	CHECK_FAILS(open_as(&ds, one, &c), -EINVAL, "a git-lfs pointer");
	put_text("b", "nowhere\n");
	CHECK_FAILS(open_as(&ds, one, &c), -ENOENT, "nowhere");
	CHECK_FAILS(open_as(&ds, "format=cifar\ntrain=,,\n", &c), -EINVAL, "a list without files");
	CHECK_FAILS(open_as(&ds, "format=cifar\n", &c), -EINVAL, "there is no train= line");
	put_batch("b", 12, 0);
	c.inputs = 784;
	CHECK_FAILS(open_as(&ds, one, &c), -EINVAL, "has 3072 values (3 x 32 x 32), the net takes 784");
	c = net(32, 32, 3, 5);
	CHECK_FAILS(open_as(&ds, one, &c), -EINVAL, "sample 5 has class 5, the net's 5 outputs");
	c = net(32, 32, 3, 10);
	CHECK_FAILS(open_as(&ds, "format=cifar\ntrain=%s/b\nclasses=3\n", &c), -EINVAL, "sample 3 has class 3, classes=3");
	CU_ASSERT_PTR_NULL(ds);
}

/* ---- the loader over images ---- */

static const struct dn_augment full = {
	.min_ratio = .7, .max_ratio = 1.2, .angle = 15, .aspect = 1.3, .hue = .1, .saturation = 1.5, .exposure = 1.5, .flip = true
};

static struct dn_loader_config loading(struct dn_dataset *ds, int64_t batch, int64_t subdivisions, int rank, int world,
				       int threads)
{
	return (struct dn_loader_config){
		.data = ds,
		.order = { .n = ds->n, .shuffle = DN_SHUFFLE_EPOCH, .seed = 11 },
		.batch = batch,
		.subdivisions = subdivisions,
		.rank = rank,
		.world = world,
		.inputs = ds->inputs,
		.truths = 3,
		.threads = threads,
		.first_update = 1,
	};
}

/* All of 6 updates in the order of their slots: [6 * batch, inputs at most]. */
static void collect(struct dn_dataset *ds, struct dn_loader_config c, float *out, int64_t stride)
{
	int64_t local = c.batch / c.subdivisions / c.world;
	struct dn_loader *l = NULL;

	CHECK_OK_FATAL(dn_loader_create(&l, &c));
	for (int64_t k = 0; k < 6 * c.subdivisions; k++) {
		int64_t first = k * (c.batch / c.subdivisions) + c.rank * local, w, h;
		const float *x;

		CHECK_OK_FATAL(dn_loader_next(l, &x, NULL, NULL, NULL));
		dn_loader_size(l, &w, &h);
		for (int64_t i = 0; i < local; i++)
			memcpy(out + (first + i) * stride, x + i * w * h * ds->c, (size_t)(w * h * ds->c) * sizeof(*x));
	}
	dn_loader_destroy(l);
}

static void augmented_batches_are_the_same_for_all_ranks_subdivisions_and_threads(void)
{
	struct dn_dataset_config c = net(8, 6, 3, 3);
	struct dn_dataset *ds = NULL;
	float *one = calloc(6 * 12 * 432, sizeof(*one)), *more = calloc(6 * 12 * 432, sizeof(*more));

	put_list(17);
	c.augment = &full;
	c.seed = 5;
	CHECK_OK_FATAL(open_as(&ds, "train=%s/list\nlabels=%s/labels\n", &c));
	for (int resize = 0; resize < 2; resize++) {
		struct dn_loader_config lc = loading(ds, 12, 1, 0, 1, 1);

		if (resize)
			lc.resize = (struct dn_resize){ .every = 2, .step = 2, .first = 2, .n = 5, .seed = 8 };
		memset(one, 0, 6 * 12 * 432 * sizeof(*one));
		collect(ds, lc, one, 432);
		for (int world = 1; world <= 3; world++)
			for (int sub = 1; sub <= 4; sub *= 2)
				for (int threads = 1; threads <= 3; threads += 2) {
					memset(more, 0, 6 * 12 * 432 * sizeof(*more));
					for (int rank = 0; rank < world && 12 / sub % world == 0; rank++) {
						struct dn_loader_config m = loading(ds, 12, sub, rank, world, threads);

						m.resize = lc.resize;
						collect(ds, m, more, 432);
					}
					if (12 / sub % world == 0)
						CHECK_BITS(more, one, 6 * 12 * 432 * sizeof(*one));
				}
	}
	dn_dataset_close(ds);
	free(one);
	free(more);
}

static void sizes_change_with_the_update_alone_and_fill_the_range(void)
{
	struct dn_resize r = { .every = 40, .step = 32, .first = 4, .n = 11, .seed = 3 };
	struct dn_dataset_config c = net(8, 8, 1, 3);
	struct dn_loader_config lc;
	struct dn_dataset *ds = NULL;
	struct dn_loader *l = NULL;
	struct dn_mem_stats before, after;
	int count[20] = { 0 };
	size_t bytes = 0;
	int64_t w, h;

	CHECK_EQ(dn_resize_max(&r), 448);
	for (int64_t u = 1; u <= 40 * 2000; u++) {
		int64_t side = dn_resize_side(&r, u);

		CU_ASSERT_FATAL(side >= 128 && side <= 448 && side % 32 == 0);
		CU_ASSERT_EQUAL_FATAL(side, dn_resize_side(&r, (u - 1) / 40 * 40 + 1));
		count[side / 32] += u % 40 == 1;
	}
	for (int k = 4; k <= 14; k++)
		CU_ASSERT(count[k] > 120 && count[k] < 250); /* 182 each, deviation 13 */
	put_list(5);
	CHECK_OK_FATAL(open_as(&ds, "train=%s/list\nlabels=%s/labels\n", &c));
	lc = loading(ds, 4, 2, 0, 1, 2);
	lc.first_update = 3;
	lc.resize = (struct dn_resize){ .every = 1, .step = 3, .first = 1, .n = 6, .seed = 1 };
	CHECK_OK(dn_loader_bytes(2, 18 * 18, 3, &bytes));
	lc.region_activations = true;
	dn_mem_stats(DN_MEM_ACTIVATIONS, &before);
	CHECK_OK_FATAL(dn_loader_create(&l, &lc));
	dn_mem_stats(DN_MEM_ACTIVATIONS, &after);
	CHECK_EQ(after.now_bytes - before.now_bytes, bytes);
	for (int k = 0; k < 20; k++) {
		CHECK_OK_FATAL(dn_loader_next(l, NULL, NULL, NULL, NULL));
		dn_loader_size(l, &w, &h);
		CHECK_EQ(w, dn_resize_side(&lc.resize, 3 + k / 2));
		CHECK_EQ(h, w);
	}
	dn_loader_destroy(l);
	l = NULL;
	lc.resize.n = 0;
	CHECK_FAILS(dn_loader_create(&l, &lc), -EINVAL, "sizes of 3 * (1 + 0 to -1)");
	lc.resize = (struct dn_resize){ .every = 1, .step = 32, .first = 4, .n = 3000 };
	CHECK_FAILS(dn_loader_create(&l, &lc), -EINVAL, "sides are from 1 to 65535");
	dn_dataset_close(ds);
	ds = NULL;
	put_batch("b", 5, 0);
	c = net(32, 32, 3, 10);
	CHECK_OK_FATAL(open_as(&ds, "format=cifar\ntrain=%s/b\n", &c));
	lc = loading(ds, 4, 2, 0, 1, 2);
	lc.resize = r;
	CHECK_FAILS(dn_loader_create(&l, &lc), -EINVAL, "samples of a fixed size, 32 x 32");
	CU_ASSERT_PTR_NULL(l);
	dn_dataset_close(ds);
}

static void after_the_start_no_batch_allocates(void)
{
	struct dn_dataset_config c = net(16, 16, 3, 3);
	struct dn_dataset *ds = NULL;
	struct dn_loader *l = NULL;
	struct dn_loader_config lc;
	uint64_t n;

	put_list(20);
	c.augment = &full;
	CHECK_OK_FATAL(open_as(&ds, "train=%s/list\nlabels=%s/labels\n", &c));
	lc = loading(ds, 10, 1, 0, 1, 3);
	CHECK_OK_FATAL(dn_loader_create(&l, &lc));
	n = dn_mem_n_allocs();
	for (int i = 0; i < 40; i++)
		CHECK_OK(dn_loader_next(l, NULL, NULL, NULL, NULL));
	CHECK_EQ(dn_mem_n_allocs(), n);
	dn_loader_destroy(l);
	dn_dataset_close(ds);
}

static void an_image_larger_than_any_before_takes_memory_once(void)
{
	struct dn_dataset_config c = net(16, 16, 3, 0);
	struct dn_dataset *ds = NULL;
	struct dn_mem_stats before, after;
	float x[768];
	char text[200];
	uint64_t n;

	put_jpeg("large.jpg", 3000, 2200, 3, 1, 95);
	snprintf(text, sizeof(text), "%s/large.jpg\n", folder);
	put_text("list", text);
	dn_mem_stats(DN_MEM_HOST, &before);
	CHECK_OK_FATAL(open_as(&ds, "train=%s/list\n", &c));
	for (int i = 0; i < 2; i++)
		CHECK_OK(ds->get(ds, 0, NULL, x, NULL, 0, NULL));
	n = dn_mem_n_allocs();
	for (int i = 0; i < 3; i++)
		CHECK_OK(ds->get(ds, 0, NULL, x, NULL, 0, NULL));
	CHECK_EQ(dn_mem_n_allocs(), n);
	dn_dataset_close(ds);
	dn_mem_stats(DN_MEM_HOST, &after);
	CHECK_EQ(after.now_bytes, before.now_bytes);
}

static void an_image_that_cannot_be_read_stops_with_its_name(void)
{
	struct dn_dataset_config c = net(8, 8, 3, 3);

	put_list(30);
	put_text("img-17-cow.jpg", "version https://git-lfs.github.com/spec/v1\n");
	for (int threads = 1; threads <= 3; threads++) {
		struct dn_dataset *ds = NULL;
		struct dn_loader *l = NULL;
		struct dn_loader_config lc;

		CHECK_OK_FATAL(open_as(&ds, "train=%s/list\nlabels=%s/labels\n", &c));
		lc = loading(ds, 6, 1, 0, 1, threads);
		lc.order.shuffle = DN_SHUFFLE_OFF;
		CHECK_OK_FATAL(dn_loader_create(&l, &lc));
		for (int i = 0; i < 2; i++)
			CHECK_OK(dn_loader_next(l, NULL, NULL, NULL, NULL));
		CHECK_FAILS(dn_loader_next(l, NULL, NULL, NULL, NULL), -EINVAL, "img-17-cow.jpg\": not an image");
		CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), "/list:18: \"/"));
		CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), "git-lfs"));
		dn_loader_destroy(l);
		dn_dataset_close(ds);
	}
}

static void running_out_of_memory_anywhere_leaves_nothing_behind(void)
{
	struct dn_dataset_config c = net(8, 8, 3, 8);
	struct dn_mem_stats before, after;
	int err = -1;
	uint64_t n;

	put_list(4);
	put_text("labels", "animal\nthing\ncat\ndog\ncar\nvan\ncow\npom\n");
	put_text("tree", "animal -1\nthing -1\ncat 0\ndog 0\ncar 1\nvan 1\ncow 0\npom 3\n");
	dn_mem_stats(DN_MEM_HOST, &before);
	for (n = 1; err && n < 200; n++) {
		struct dn_dataset *ds = NULL;
		struct dn_loader *l = NULL;

		dn_mem_fail_at(n);
		err = open_as(&ds, "train=%s/list\nlabels=%s/labels\ntree=%s/tree\n", &c);
		if (!err) {
			struct dn_loader_config lc = loading(ds, 4, 2, 0, 1, 2);

			lc.truths = 8;
			err = dn_loader_create(&l, &lc);
		}
		if (!err)
			err = dn_loader_next(l, NULL, NULL, NULL, NULL);
		dn_mem_fail_at(0);
		if (err)
			CHECK_EQ(err, -ENOMEM);
		dn_loader_destroy(l);
		dn_dataset_close(ds);
		dn_mem_stats(DN_MEM_HOST, &after);
		CHECK_EQ(after.now_bytes, before.now_bytes);
	}
	CHECK_EQ(err, 0);
	CU_ASSERT(n > 15);
	err = -1;
	put_batch("b", 3, 0);
	c = net(32, 32, 3, 10);
	for (n = 1; err && n < 100; n++) {
		struct dn_dataset *ds = NULL;

		dn_mem_fail_at(n);
		err = open_as(&ds, "format=cifar\ntrain=%s/b,%s/b\n", &c);
		dn_mem_fail_at(0);
		if (err)
			CHECK_EQ(err, -ENOMEM);
		dn_dataset_close(ds);
		dn_mem_stats(DN_MEM_HOST, &after);
		CHECK_EQ(after.now_bytes, before.now_bytes);
	}
	CHECK_EQ(err, 0);
}

static const struct check_case cases[] = {
	CASE(lines_come_without_line_ends_marks_and_blank_ends),
	CASE(paths_in_lists_are_files_whatever_their_names),
	CASE(paths_are_relative_to_the_working_directory),
	CASE(classes_are_labels_inside_the_path),
	CASE(numbers_of_classes_that_differ_are_errors_with_both),
	CASE(lists_are_for_nets_that_take_images),
	CASE(a_tree_sets_ancestors_and_ignores_other_groups),
	CASE(the_hash_is_of_paths_and_classes),
	CASE(evaluation_fits_and_training_draws_by_key),
	CASE(cifar_batches_come_alone_in_a_row_and_in_a_list),
	CASE(damaged_cifar_files_are_refused_with_the_reason),
	CASE(augmented_batches_are_the_same_for_all_ranks_subdivisions_and_threads),
	CASE(sizes_change_with_the_update_alone_and_fill_the_range),
	CASE(after_the_start_no_batch_allocates),
	CASE(an_image_larger_than_any_before_takes_memory_once),
	CASE(an_image_that_cannot_be_read_stops_with_its_name),
	CASE(running_out_of_memory_anywhere_leaves_nothing_behind),
	{ NULL, NULL },
};

int main(void)
{
	return run_in_folder("list", cases);
}
