/* The tables of the command line: verbs, and the flags that several of them share. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "train/guard.h"

#define COUNT_MAX 1e15

/* N updates, or Nm minutes */
static int check_save_every(const char *value, const char *where)
{
	char text[32];
	size_t n = strlen(value);
	int64_t x;

	if (n && n < sizeof(text)) {
		memcpy(text, value, n + 1);
		if (n > 1 && text[n - 1] == 'm')
			text[n - 1] = '\0';
		if (dn_parse_int(text, &x) == DN_NUM_WHOLE && x >= 0 && x <= (int64_t)1e9)
			return 0;
	}
	return dn_fail(-EINVAL, "%.500s %.100s: wanted a number of updates, or minutes as in 10m", where, value);
}

#define CHECK_GUARD(key_, def_, arg_, help_) \
	static int check_##key_(const char *value, const char *where) \
	{ \
		const char *wanted = dn_guard_wanted(#key_, value); \
\
		return wanted ? dn_fail(-EINVAL, "%.500s %.100s: %s", where, value, wanted) : 0; \
	}
DN_GUARD_KEYS(CHECK_GUARD)

/* clang-format off */
#define GUARD_FLAG(key_, def_, arg_, help_) \
	{ .key = #key_, .type = DN_OPT_STRING, .def = (def_), .arg = (arg_), .check = check_##key_, .help = (help_) },
/* clang-format on */

static int check_device(const char *value, const char *where)
{
	int64_t x;

	if (!strcmp(value, "cpu") || (dn_starts(value, "cuda:") && dn_parse_int(value + 5, &x) == DN_NUM_WHOLE && x >= 0))
		return 0;
	return dn_fail(-EINVAL, "%.500s %.100s: must be cpu or cuda:N", where, value);
}

static int check_gpus(const char *value, const char *where)
{
	const char *s = value;

	while (*s) {
		size_t n = strspn(s, "0123456789");

		if (n == 0 || n > 6 || (s[n] && s[n] != ','))
			break;
		s += n;
		if (*s == ',' && s[1])
			s++;
	}
	if (*s || !*value)
		return dn_fail(-EINVAL, "%.500s %.100s: wanted numbers separated by commas, as in 0,1", where, value);
	return 0;
}

static int check_async(const char *value, const char *where)
{
	if (strcmp(value, "0"))
		return dn_fail(-EINVAL, "%.500s %.100s: this version writes checkpoints between steps; only 0 is supported",
			       where, value);
	return 0;
}

const struct dn_option cli_net_flags[] = {
	{ .key = "plugin",
	  .type = DN_OPT_STRING,
	  .arg = "NAME",
	  .help = "plugin to load, by name or path; none ignores the cfg's plugin sections" },
	{ .key = "threads",
	  .type = DN_OPT_INT,
	  .min = 1,
	  .max = 4096,
	  .arg = "N",
	  .help = "threads of each rank (unset: OMP_NUM_THREADS, or usable cores divided by the ranks of this host); as many again, "
		  "at most 16, decode lists of images" },
	{ .key = "backend",
	  .type = DN_OPT_CHOICE,
	  .def = dn_backend_default,
	  .choices = dn_backend_choices,
	  .arg = "NAME",
	  .help = "who computes: plain loops, or the tuned library" },
	{ .key = "legacy-bn", .type = DN_OPT_SWITCH, .help = "batch normalisation by Darknet's CPU rule" },
	{ .key = "strict",
	  .type = DN_OPT_SWITCH,
	  .help = "warnings about cfg and data files, and about ranks whose instruction sets differ, are errors" },
	{ .key = "device",
	  .type = DN_OPT_STRING,
	  .def = "cpu",
	  .arg = "cpu|cuda:N",
	  .check = check_device,
	  .help = "where to run; this build has the CPU only" },
	{ .key = "i",
	  .type = DN_OPT_INT,
	  .def = "0",
	  .min = 0,
	  .max = 1e6,
	  .arg = "N",
	  .help = "Darknet's number of a GPU; the CPU is used" },
	{ .key = "gpus",
	  .type = DN_OPT_STRING,
	  .arg = "LIST",
	  .check = check_gpus,
	  .help = "Darknet's list of GPUs; the CPU is used" },
	{ .key = "nogpu", .type = DN_OPT_SWITCH, .help = "use the CPU, as this build always does" },
	{ .key = NULL }
};

const struct dn_option cli_seed_flags[] = { { .key = "seed",
					      .type = DN_OPT_INT,
					      .def = "0",
					      .min = 0,
					      .max = 0x1p62,
					      .arg = "N",
					      .help = "seed of initial values, data order and dropout" },
					    { .key = NULL } };

const struct dn_option cli_batch_flags[] = {
	{ .key = "batch",
	  .type = DN_OPT_INT,
	  .min = 1,
	  .max = 1e9,
	  .arg = "N",
	  .help = "images of one update (training) or of one pass, over all ranks (unset: the cfg's)" },
	{ .key = NULL }
};

const struct dn_option cli_train_flags[] = {
	{ .key = "subdivisions",
	  .type = DN_OPT_INT,
	  .min = 1,
	  .max = 1e9,
	  .arg = "N",
	  .help = "microbatches of one update (unset: the cfg's)" },
	{ .key = "shuffle",
	  .type = DN_OPT_CHOICE,
	  .choices = "1|replace|0",
	  .arg = "HOW",
	  .help = "1 a permutation per epoch, replace sampling with replacement, 0 file order (unset: the data file's)" },
	{ .key = "backup",
	  .type = DN_OPT_STRING,
	  .arg = "DIR",
	  .help = "folder of weights files and checkpoints (unset: the data file's backup)" },
	{ .key = "log",
	  .type = DN_OPT_STRING,
	  .arg = "FILE",
	  .help = "one JSON object a line: start, step, save, valid, end; -resume appends; with %r in its name a file a rank" },
	{ .key = "valid",
	  .type = DN_OPT_INT,
	  .def = "0",
	  .min = 0,
	  .max = COUNT_MAX,
	  .arg = "N",
	  .help = "evaluate every N updates, 0 = never" },
	{ .key = "save_every",
	  .type = DN_OPT_STRING,
	  .def = "0",
	  .arg = "N|Nm",
	  .check = check_save_every,
	  .help = "write a checkpoint every N updates or minutes, 0 = never" },
	{ .key = "keep",
	  .type = DN_OPT_INT,
	  .def = "3",
	  .min = 0,
	  .max = 1e6,
	  .arg = "N",
	  .help = "newest checkpoints of this run that stay, 0 = all" },
	{ .key = "async",
	  .type = DN_OPT_STRING,
	  .def = "0",
	  .arg = "0",
	  .check = check_async,
	  .help = "write checkpoints beside the training: 0 only in this version" },
	/* clang-format off */
	DN_GUARD_KEYS(GUARD_FLAG)
	/* clang-format on */
	{ .key = "resume",
	  .type = DN_OPT_STRING,
	  .arg = "DIR",
	  .help = "continue from a checkpoint, or the newest one in DIR of the run that began last" },
	{ .key = "force",
	  .type = DN_OPT_SWITCH,
	  .help = "resume although net, optimizer, data, batch or seed differ from those saved; train frozen layers without statistics" },
	{ .key = "clear",
	  .type = DN_OPT_SWITCH,
	  .help = "count images from 0 whatever the weights file says; without effect on -resume" },
	{ .key = NULL }
};

const struct dn_verb *const cli_verbs[] = { &verb_classifier_train,
					    &verb_classifier_valid,
					    &verb_classifier_predict,
					    &verb_cifar_train,
					    &verb_cifar_test,
					    &verb_train,
					    &verb_net,
					    &verb_ops,
					    &verb_speed,
					    &verb_look,
					    &verb_imtest,
					    &verb_forward,
					    &verb_partial,
					    &verb_weights_info,
					    &verb_weights_diff,
					    &verb_options,
					    &verb_plugins,
					    &verb_help,
					    NULL };

bool cli_takes_plugin_flags(const struct dn_verb *v)
{
	for (int i = 0; v->flags && v->flags[i]; i++)
		if (v->flags[i] == cli_net_flags)
			return true;
	return false;
}
