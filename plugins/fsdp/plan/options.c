/* The keys of [fsdp] (and -fsdp.KEY): the table, its checks, and the typed form. A value that a later
 * version will know gets a message of its own, so that nobody takes it for a typing error. */
#include <errno.h>
#include <string.h>

#include "plan/plan.h"

static int refuse(const char *value, const char *where, const char *why)
{
	if (where[0] == '-')
		return dn_fail(-EINVAL, "%.200s %.200s: %s", where, value, why);
	return dn_fail(-EINVAL, "%.1000s: \"%.200s\": %s", where, value, why);
}

/* @now and @later: names separated by '|'; a name that ends with ':' stands for all that start so */
static bool listed(const char *list, const char *value)
{
	for (const char *c = list; *c;) {
		size_t n = strcspn(c, "|");
		bool start = n && c[n - 1] == ':';

		if (!strncmp(c, value, n) && (start || strlen(value) == n))
			return true;
		c += n + (c[n] == '|');
	}
	return false;
}

static int check_now(const char *value, const char *where, const char *now, const char *later)
{
	char why[256];

	if (listed(now, value))
		return 0;
	snprintf(why, sizeof(why),
		 listed(later, value) ? "not in this version, which supports %s" : "unknown; this version supports %s", now);
	return refuse(value, where, why);
}

static int check_strategy(const char *value, const char *where)
{
	return check_now(value, where, "full", "grad_op|opt|replicate|hybrid_full|hybrid_grad_op|hybrid_full_opt");
}

static int check_layout(const char *value, const char *where)
{
	return check_now(value, where, "flat", "planned:|dim0");
}

static int check_accumulate(const char *value, const char *where)
{
	return check_now(value, where, "sharded", "no_sync|no_sync_keep|hybrid_last");
}

static int check_reduction(const char *value, const char *where)
{
	return check_now(value, where, "tree", "library");
}

static int check_nan(const char *value, const char *where)
{
	return check_now(value, where, "stop", "skip|continue");
}

static int check_batch_norm(const char *value, const char *where)
{
	return check_now(value, where, "local", "sync");
}

static int check_collectives(const char *value, const char *where)
{
	return check_now(value, where, "auto|mpi|local", "shm|nccl");
}

/* "auto", "each", "whole", "size:16M", "type:SECTION", "at:0,3,7"; what depends on the net is checked by
 * fsdp_blocks_apply() */
static int check_blocks(const char *value, const char *where)
{
	int64_t x;

	if (!strcmp(value, "auto") || !strcmp(value, "each") || !strcmp(value, "whole"))
		return 0;
	if (dn_starts(value, "size:")) {
		if (dn_parse_bytes(value + 5, &x) == DN_NUM_WHOLE && x > 0)
			return 0;
		return refuse(value, where, "size: wants a number of bytes above 0, with K, M or G if you like");
	}
	if (dn_starts(value, "type:")) {
		if (dn_cfg_is_layer(value + 5))
			return 0;
		return refuse(value, where, "type: wants the section name of a layer that this version has");
	}
	if (dn_starts(value, "at:")) {
		const char *s = value + 3;

		while (*s) {
			size_t n = strspn(s, "0123456789");

			if (!n || n > 9 || (s[n] && (s[n] != ',' || !s[n + 1])))
				break;
			s += n + (s[n] == ',');
		}
		if (!*s && s != value + 3)
			return 0;
		return refuse(value, where, "at: wants layer numbers separated by commas, as in at:0,3,7");
	}
	return refuse(value, where, "wanted auto, each, whole, size:BYTES, type:SECTION or at:I,J,...");
}

/* N updates, or Nm minutes */
static int check_save_every(const char *value, const char *where)
{
	char text[32];
	size_t n = strlen(value);
	int64_t x;

	if (!strcmp(value, "off"))
		return 0;
	if (n && n < sizeof(text)) {
		memcpy(text, value, n + 1);
		if (n > 1 && text[n - 1] == 'm')
			text[n - 1] = '\0';
		if (dn_parse_int(text, &x) == DN_NUM_WHOLE && x >= 0 && x <= (int64_t)1e9)
			return 0;
	}
	return refuse(value, where, "wanted a number of updates, minutes as in 10m, or off");
}

const struct dn_option fsdp_option_table[] = {
	{ .key = "blocks",
	  .type = DN_OPT_STRING,
	  .def = "auto",
	  .arg = "HOW",
	  .check = check_blocks,
	  .help = "auto (size:16M), each, whole, size:BYTES, type:SECTION or at:I,J,...; [block] markers win over the cfg's" },
	{ .key = "strategy",
	  .type = DN_OPT_STRING,
	  .def = "full",
	  .arg = "full",
	  .check = check_strategy,
	  .help = "full: values, gradients and optimizer state are sharded" },
	{ .key = "layout",
	  .type = DN_OPT_STRING,
	  .def = "flat",
	  .arg = "flat",
	  .check = check_layout,
	  .help = "flat: a block is one buffer, cut into equal shards" },
	{ .key = "limit",
	  .type = DN_OPT_INT,
	  .def = "2",
	  .min = 1,
	  .max = 1e6,
	  .arg = "K",
	  .help = "blocks gathered at a time, the one in use included; 1 = nothing overlaps" },
	{ .key = "grad_slots",
	  .type = DN_OPT_INT,
	  .def = "2",
	  .min = 1,
	  .max = 1e6,
	  .arg = "M",
	  .help = "blocks whose full gradients exist at a time" },
	{ .key = "prefetch",
	  .type = DN_OPT_CHOICE,
	  .def = "pre",
	  .choices = "pre|post|none",
	  .arg = "WHEN",
	  .help = "gather the next blocks before a block computes, after it, or when they are needed" },
	{ .key = "depth",
	  .type = DN_OPT_INT,
	  .min = 0,
	  .max = 1e6,
	  .arg = "D",
	  .help = "blocks that prefetch looks ahead, at most limit - 1 (unset: 1, with limit=1: 0)" },
	{ .key = "accumulate",
	  .type = DN_OPT_STRING,
	  .def = "sharded",
	  .arg = "sharded",
	  .check = check_accumulate,
	  .help = "sharded: every microbatch's gradient is reduced" },
	{ .key = "reduction",
	  .type = DN_OPT_STRING,
	  .def = "tree",
	  .arg = "tree",
	  .check = check_reduction,
	  .help = "tree: a fixed order of summation, the same bits for every run" },
	{ .key = "nan",
	  .type = DN_OPT_STRING,
	  .def = "stop",
	  .arg = "stop",
	  .check = check_nan,
	  .help = "stop: a loss that is not finite ends the run" },
	{ .key = "batch_norm",
	  .type = DN_OPT_STRING,
	  .def = "local",
	  .arg = "local",
	  .check = check_batch_norm,
	  .help = "local: a rank normalises with its own images; rolling statistics take the mean over ranks" },
	{ .key = "collectives",
	  .type = DN_OPT_STRING,
	  .def = "auto",
	  .arg = "auto|mpi|local",
	  .check = check_collectives,
	  .help = "fabric: mpi between processes, local within one; auto: mpi when there are several ranks" },
	{ .key = "load",
	  .type = DN_OPT_CHOICE,
	  .def = "each",
	  .choices = "each|rank0",
	  .arg = "WHO",
	  .help = "who reads weights files: every rank its own ranges, or rank 0, which sends them" },
	{ .key = "timeout",
	  .type = DN_OPT_FLOAT,
	  .def = "300",
	  .min = 0,
	  .max = 1e9,
	  .arg = "SECONDS",
	  .help = "longest that any wait may last, 0 = for ever" },
	{ .key = "save_every",
	  .type = DN_OPT_STRING,
	  .arg = "N|Nm",
	  .check = check_save_every,
	  .help = "write a checkpoint every N updates or minutes; as the flag -save_every, which wins" },
	{ .key = "keep",
	  .type = DN_OPT_INT,
	  .min = 0,
	  .max = 1e6,
	  .arg = "N",
	  .help = "newest checkpoints that stay; as the flag -keep, which wins" },
	{ .key = NULL }
};

int fsdp_options_resolve(const struct dn_options *o, struct fsdp_options *out)
{
	const char *prefetch = dn_options_text(o, "prefetch");
	const char *depth = dn_options_text(o, "depth");
	const char *where = dn_options_where(o, "blocks");
	double timeout_ms = dn_options_float(o, "timeout") * 1000;
	struct fsdp_options r = {
		.blocks = dn_options_text(o, "blocks"),
		.blocks_given = where && where[0] == '-',
		.limit = (int)dn_options_int(o, "limit"),
		.grad_slots = (int)dn_options_int(o, "grad_slots"),
		.prefetch = !strcmp(prefetch, "pre")	? FSDP_PRE
			    : !strcmp(prefetch, "post") ? FSDP_POST
							: FSDP_NONE,
		.timeout_ms = timeout_ms > 0 && timeout_ms < 1 ? 1 : (int64_t)timeout_ms, /* 0 is for ever */
	};

	r.depth = depth ? (int)dn_options_int(o, "depth") : r.limit > 1 ? 1 : 0;
	if (r.depth > r.limit - 1) {
		where = dn_options_where(o, "depth");
		return dn_fail(-EINVAL,
			       "%.500s: depth is %d, but limit is %d: at most limit - 1 = %d blocks can be gathered ahead of the "
			       "one in use",
			       where ? where : "fsdp", r.depth, r.limit, r.limit - 1);
	}
	*out = r;
	return 0;
}
