/* The keys of [fsdp] (and -fsdp.KEY): the table, its checks, and the typed form. A value that a later
 * version will know gets a message of its own, so that nobody takes it for a typing error. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

static const struct fsdp_name strategies[] = {
	{ "full", FSDP_FULL, false },
	{ "grad_op", FSDP_GRAD_OP, false },
	{ "opt", FSDP_OPT, false },
	{ "replicate", FSDP_REPLICATE, false },
	{ "hybrid_full", FSDP_HYBRID_FULL, false },
	{ "hybrid_grad_op", FSDP_HYBRID_GRAD_OP, false },
	{ "hybrid_full_opt", FSDP_HYBRID_FULL_OPT, false },
	{ NULL, 0, false },
};

static const struct fsdp_name layouts[] = {
	{ "flat", FSDP_FLAT, false },
	{ "planned:row", FSDP_PLANNED_ROW, false },
	{ "planned:tensor", FSDP_PLANNED_TENSOR, false },
	{ "dim0", -1, true },
	{ NULL, 0, false },
};

static const struct fsdp_name prefetches[] = {
	{ "pre", FSDP_PRE, false },
	{ "post", FSDP_POST, false },
	{ "none", FSDP_NONE, false },
	{ NULL, 0, false },
};

static const struct fsdp_name accumulates[] = {
	{ "sharded", FSDP_SHARDED_SUM, false },
	{ "no_sync", FSDP_NO_SYNC, false },
	{ "no_sync_keep", FSDP_NO_SYNC_KEEP, false },
	{ "hybrid_last", FSDP_HYBRID_LAST, false },
	{ NULL, 0, false },
};

static const struct fsdp_name reductions[] = { { "tree", FSDP_TREE, false }, { "library", -1, true }, { NULL, 0, false } };
static const struct fsdp_name norms[] = { { "local", false, false }, { "sync", true, false }, { NULL, 0, false } };
static const struct fsdp_name loads[] = { { "each", false, false }, { "rank0", true, false }, { NULL, 0, false } };

const struct fsdp_names fsdp_strategies = { "strategy", strategies };
const struct fsdp_names fsdp_layouts = { "layout", layouts };
const struct fsdp_names fsdp_prefetches = { "prefetch", prefetches };
const struct fsdp_names fsdp_accumulates = { "accumulate", accumulates };
const struct fsdp_names fsdp_reductions = { "reduction", reductions };
static const struct fsdp_names norm_names = { "batch_norm", norms };
static const struct fsdp_names load_names = { "load", loads };

/* the check of a key whose values have names: dn_option's has no argument of its own */
#define CHECK_NAME(fn, names) \
	static int fn(const char *value, const char *where) \
	{ \
		int x; \
\
		return fsdp_name_find(&(names), value, where, &x); \
	}

CHECK_NAME(check_strategy, fsdp_strategies)
CHECK_NAME(check_layout, fsdp_layouts)
CHECK_NAME(check_prefetch, fsdp_prefetches)
CHECK_NAME(check_accumulate, fsdp_accumulates)
CHECK_NAME(check_reduction, fsdp_reductions)
CHECK_NAME(check_batch_norm, norm_names)
CHECK_NAME(check_collectives, fsdp_transports)
CHECK_NAME(check_load, load_names)
CHECK_NAME(check_wire, fsdp_wire_types)
CHECK_NAME(check_reduce, fsdp_reduce_types)

static int check_blocks(const char *value, const char *where)
{
	struct fsdp_policy p;

	return fsdp_policy_parse(value, where, &p);
}

static int check_release(const char *value, const char *where)
{
	int stay;

	return fsdp_release_parse(value, where, &stay);
}

/* whose blocks the names are is seen when there is a net */
static int check_recompute(const char *value, const char *where)
{
	const size_t n = strlen(value);

	if (n && value[0] != ',' && value[n - 1] != ',' && !strstr(value, ",,"))
		return 0;
	return fsdp_refuse("recompute", value, where, "wanted none, all, or names of blocks separated by commas");
}

#define CHECK_GUARD(key_, def_, arg_, help_) \
	static int check_##key_(const char *value, const char *where) \
	{ \
		const char *wanted = dn_guard_wanted(#key_, value); \
\
		return wanted ? fsdp_refuse(#key_, value, where, wanted) : 0; \
	}
DN_GUARD_KEYS(CHECK_GUARD)

/* clang-format off */
#define GUARD_KEY(key_, def_, arg_, help_) \
	{ .key = #key_, .type = DN_OPT_STRING, .def = (def_), .arg = (arg_), .check = check_##key_, \
	  .help = help_ "; as the flag -" #key_ ", which wins" },
/* clang-format on */

static int check_memory(const char *value, const char *where)
{
	int64_t bytes;

	if (dn_parse_bytes(value, &bytes) == DN_NUM_WHOLE && bytes > 0)
		return 0;
	return fsdp_refuse("memory", value, where, "wanted a number of bytes above 0, with K, M or G if you like");
}

#define DELAY_MAX_MS 10000

/* one of "QUEUE:MS:SEED" in @text[0..n) */
static bool parse_delay(const char *text, size_t n, struct fsdp_debug *out)
{
	char word[96], *ms, *seed;
	struct fsdp_delay d;
	int64_t x;

	if (n >= sizeof(word))
		return false;
	snprintf(word, sizeof(word), "%.*s", (int)n, text);
	ms = strchr(word, ':');
	seed = ms ? strchr(ms + 1, ':') : NULL;
	if (!seed)
		return false;
	*ms++ = *seed++ = '\0';
	if (dn_parse_float(ms, &d.ms) != DN_NUM_WHOLE || !(d.ms > 0 && d.ms <= DELAY_MAX_MS) ||
	    dn_parse_int(seed, &x) != DN_NUM_WHOLE || x < 0)
		return false;
	d.seed = (uint64_t)x;
	for (int q = 0; q < FSDP_QUEUES; q++)
		if (!strcmp(word, fsdp_queue_name((enum fsdp_queue)q))) {
			out->delay[q] = d;
			return true;
		}
	return false;
}

static int parse_delays(const char *value, const char *where, struct fsdp_debug *out)
{
	for (const char *at = value;; at++) {
		const size_t n = strcspn(at, ",");

		if (!parse_delay(at, n, out))
			return fsdp_refuse(
				"delay", value, where,
				"wanted QUEUE:MS:SEED, ... with a queue of compute, gather, reduce, replica, exchange, "
				"above 0 and at most 10000 milliseconds, and a whole number");
		at += n;
		if (!*at)
			return 0;
	}
}

static int check_delay(const char *value, const char *where)
{
	struct fsdp_debug d;

	return parse_delays(value, where, &d);
}

static bool parse_verify(const char *value, int64_t *out)
{
	*out = !strcmp(value, "off") ? -1 : 0;
	if (*out < 0 || !strcmp(value, "startup"))
		return true;
	return !strncmp(value, "replicas:", 9) && dn_parse_int(value + 9, out) == DN_NUM_WHOLE && *out >= 1 &&
	       *out <= (int64_t)1e9;
}

static int check_verify(const char *value, const char *where)
{
	int64_t every;

	return parse_verify(value, &every) ? 0 : fsdp_refuse("verify", value, where, "wanted off, startup or replicas:STEPS");
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
	return fsdp_refuse("save_every", value, where, "wanted a number of updates, minutes as in 10m, or off");
}

const struct dn_option fsdp_option_table[] = {
	{ .key = "blocks",
	  .type = DN_OPT_STRING,
	  .def = "auto",
	  .arg = "HOW",
	  .check = check_blocks,
	  .help = FSDP_BLOCKS_NAMES "where auto is size:16M; [block] markers win over the cfg's" },
	{ .key = "strategy",
	  .type = DN_OPT_STRING,
	  .def = "full",
	  .arg = "NAME",
	  .check = check_strategy,
	  .help = "full: values, gradients and optimizer state are cut over all ranks; grad_op: the same, values stay gathered "
		  "from forward to backward; opt: only gradients and state are cut; replicate: nothing is; hybrid_full, "
		  "hybrid_grad_op, hybrid_full_opt: cut over shard ranks, with copies (the last: state over all). [block] may "
		  "say its own" },
	{ .key = "shard",
	  .type = DN_OPT_INT,
	  .min = 1,
	  .max = 65536,
	  .arg = "S",
	  .help = "ranks that share a copy under hybrid strategies, a divisor of all below that (unset: the ranks of a host)" },
	{ .key = "layout",
	  .type = DN_OPT_STRING,
	  .def = "flat",
	  .arg = "NAME",
	  .check = check_layout,
	  .help = "flat: a block is one buffer, cut into equal shards; planned:row, planned:tensor: in an order in which no row, no "
		  "tensor, is cut" },
	{ .key = "persistent",
	  .type = DN_OPT_INT,
	  .def = "0",
	  .min = 0,
	  .max = 1e12,
	  .arg = "N",
	  .help = "trained params of fewer elements stay whole on every rank, and their gradients are reduced together; [block] may say "
		  "its own" },
	{ .key = "limit",
	  .type = DN_OPT_INT,
	  .def = "2",
	  .min = 1,
	  .max = 1e6,
	  .arg = "K",
	  .help = "blocks gathered at a time, the one in use included; 1 = nothing overlaps" },
	{ .key = "grad_slots",
	  .type = DN_OPT_INT,
	  .min = 1,
	  .max = 1e6,
	  .arg = "M",
	  .help = "blocks whose full gradients exist at a time (unset: 2; with accumulate=no_sync and no_sync_keep: all)" },
	{ .key = "release",
	  .type = DN_OPT_STRING,
	  .def = "1",
	  .arg = "1|0|S'",
	  .check = check_release,
	  .help = "after forward a gathered block is released (1), stays (0), or a part of one in S', a divisor of its shards, "
		  "stays and is gathered from fewer ranks for backward; the last ones stay in any case; [block] may say its own" },
	{ .key = "prefetch",
	  .type = DN_OPT_STRING,
	  .def = "pre",
	  .arg = "WHEN",
	  .check = check_prefetch,
	  .help = "pre, post, none: gather the next blocks before a block computes, after it, or when they are needed" },
	{ .key = "depth",
	  .type = DN_OPT_INT,
	  .min = 0,
	  .max = 1e6,
	  .arg = "D",
	  .help = "blocks that prefetch looks ahead, at most limit - 1 (unset: 1, with limit=1: 0)" },
	{ .key = "accumulate",
	  .type = DN_OPT_STRING,
	  .def = "sharded",
	  .arg = "HOW",
	  .check = check_accumulate,
	  .help = "sharded: every microbatch's gradient is reduced over all ranks; hybrid_last: over the shards, and the step's "
		  "sum over the copies; no_sync: the step's sum is, whole until then; no_sync_keep: and values stay gathered" },
	{ .key = "wire",
	  .type = DN_OPT_STRING,
	  .def = "fp32",
	  .arg = "fp32|bf16|fp16",
	  .check = check_wire,
	  .help = "element type of values on their way: of bf16 and fp16 half the bytes, and all ranks compute with the rounded "
		  "values; those that are updated stay fp32. [block] may say its own" },
	{ .key = "reduce",
	  .type = DN_OPT_STRING,
	  .def = "fp32",
	  .arg = "fp32|bf16|fp16",
	  .check = check_reduce,
	  .help = "element type of gradients on their way: each is rounded once, and sums are made in fp32" },
	{ .key = "reduction",
	  .type = DN_OPT_STRING,
	  .def = "tree",
	  .arg = "tree",
	  .check = check_reduction,
	  .help = "tree: a fixed order of summation, the same bits for every run" },
	/* clang-format off */
	DN_GUARD_KEYS(GUARD_KEY)
	/* clang-format on */
	{ .key = "batch_norm",
	  .type = DN_OPT_STRING,
	  .def = "local",
	  .arg = "local|sync",
	  .check = check_batch_norm,
	  .help = "local: a rank normalises with its own images; rolling statistics take the mean over ranks; sync: over the images "
		  "of all ranks" },
	{ .key = "recompute",
	  .type = DN_OPT_STRING,
	  .arg = "none|all|NAME,...",
	  .check = check_recompute,
	  .help = "blocks of which training keeps the input alone and backward runs the forward again (unset: those with "
		  "recompute=1 in their [block])" },
	{ .key = "collectives",
	  .type = DN_OPT_STRING,
	  .def = "auto",
	  .arg = "auto|mpi|shm|local",
	  .check = check_collectives,
	  .help = "fabric: shm between ranks of one host, mpi between any, local within one process; auto: shm where all ranks share "
		  "a host, else mpi" },
	{ .key = "memory",
	  .type = DN_OPT_STRING,
	  .arg = "BYTES",
	  .check = check_memory,
	  .help = "bytes that a rank may use, as in 2G: a plan that wants more is refused, with what would fit (unset: any)" },
	{ .key = "load",
	  .type = DN_OPT_STRING,
	  .def = "each",
	  .arg = "each|rank0",
	  .check = check_load,
	  .help = "who reads weights files: every rank its own ranges, or rank 0, which sends them" },
	{ .key = "timeout",
	  .type = DN_OPT_FLOAT,
	  .def = "300",
	  .min = 0,
	  .max = 1e9,
	  .arg = "SECONDS",
	  .help = "longest that any wait may last, 0 = for ever" },
	{ .key = "trace",
	  .type = DN_OPT_STRING,
	  .arg = "FILE",
	  .help = "at the end, the last steps' operations on all queues as a Chrome trace, for Perfetto; with %r in its name a file "
		  "a rank, else rank 0's" },
	{ .key = "trace_steps",
	  .type = DN_OPT_INT,
	  .def = "20",
	  .min = 1,
	  .max = 1e5,
	  .arg = "N",
	  .help = "steps that the trace keeps, the last ones" },
	{ .key = "delay",
	  .type = DN_OPT_STRING,
	  .arg = "QUEUE:MS:SEED,...",
	  .check = check_delay,
	  .help = "debugging: before each operation of a queue (compute, gather, reduce, replica, exchange) wait up to MS "
		  "milliseconds, drawn by SEED" },
	{ .key = "poison",
	  .type = DN_OPT_INT,
	  .def = "0",
	  .min = 0,
	  .max = 1,
	  .arg = "0|1",
	  .help = "debugging: slots hold NaN between their uses" },
	{ .key = "fake_comm",
	  .type = DN_OPT_INT,
	  .def = "0",
	  .min = 0,
	  .max = 4096,
	  .arg = "N",
	  .help = "debugging: one process trains as rank 0 of N, of which there is no other: its plan, memory and time, with its own "
		  "data in place of the others'; what is learnt is nothing, and nothing is saved" },
	{ .key = "no_comm",
	  .type = DN_OPT_INT,
	  .def = "0",
	  .min = 0,
	  .max = 1,
	  .arg = "0|1",
	  .help = "debugging: collectives are not carried out, for the time of the rest; what is learnt is nothing" },
	{ .key = "no_compute",
	  .type = DN_OPT_INT,
	  .def = "0",
	  .min = 0,
	  .max = 1,
	  .arg = "0|1",
	  .help = "debugging: layers are not computed, for the time of the rest; what is learnt is nothing" },
	{ .key = "verify",
	  .type = DN_OPT_STRING,
	  .def = "startup",
	  .arg = "off|startup|replicas:N",
	  .check = check_verify,
	  .help = "compare what ranks hold of the same values and rolling statistics: before the first step, or every N steps; a "
		  "difference ends the run" },
	{ .key = "save_every",
	  .type = DN_OPT_STRING,
	  .arg = "N|Nm",
	  .check = check_save_every,
	  .help = "write a checkpoint every N updates or minutes, off = never; as the flag -save_every, which wins (unset: the flag's, 0)" },
	{ .key = "keep",
	  .type = DN_OPT_INT,
	  .min = 0,
	  .max = 1e6,
	  .arg = "N",
	  .help = "newest checkpoints of this run that stay, 0 = all; as the flag -keep, which wins (unset: the flag's, 3)" },
	{ .key = NULL }
};

/* the text of @names' key as its value; it was checked when it was set */
static int name_of_key(const struct dn_options *o, const struct fsdp_names *names)
{
	int x = 0;

	(void)fsdp_name_find(names, dn_options_text(o, names->key), "", &x);
	return x;
}

int fsdp_options_resolve(const struct dn_options *o, struct fsdp_options *out)
{
	const char *depth = dn_options_text(o, "depth");
	const char *where = dn_options_where(o, "blocks");
	double timeout_ms = dn_options_float(o, "timeout") * 1000;
	struct dn_guards guards;
	struct fsdp_options r;
	int err;

	dn_guards_read(o, &guards);
	r = (struct fsdp_options){
		.policy_given = where && where[0] == '-',
		.strategy = name_of_key(o, &fsdp_strategies),
		.layout = name_of_key(o, &fsdp_layouts),
		.shards = dn_options_text(o, "shard") ? (int)dn_options_int(o, "shard") : 0,
		.persistent = dn_options_int(o, "persistent"),
		.limit = (int)dn_options_int(o, "limit"),
		.grad_slots = dn_options_text(o, "grad_slots") ? (int)dn_options_int(o, "grad_slots") : 0,
		.accumulate = name_of_key(o, &fsdp_accumulates),
		.prefetch = name_of_key(o, &fsdp_prefetches),
		.wire = { name_of_key(o, &fsdp_wire_types), name_of_key(o, &fsdp_reduce_types) },
		.reduction = name_of_key(o, &fsdp_reductions),
		.transport = name_of_key(o, &fsdp_transports),
		.recompute = dn_options_text(o, "recompute"),
		.recompute_where = dn_options_where(o, "recompute"),
		.looks = dn_guards_look(&guards),
		.ema = guards.ema > 0,
		.sync_bn = name_of_key(o, &norm_names),
		.load_rank0 = name_of_key(o, &load_names),
		.timeout_ms = timeout_ms > 0 && timeout_ms < 1 ? 1 : (int64_t)timeout_ms, /* 0 is for ever */
	};
	err = fsdp_policy_parse(dn_options_text(o, "blocks"), where ? where : "fsdp", &r.policy);
	if (!err)
		err = fsdp_release_parse(dn_options_text(o, "release"), "fsdp", &r.stay);
	if (err)
		return err;
	if (dn_options_text(o, "memory"))
		(void)dn_parse_bytes(dn_options_text(o, "memory"), &r.memory); /* it was checked when it was set */
	(void)parse_verify(dn_options_text(o, "verify"), &r.verify);	       /* likewise */
	r.trace = dn_options_text(o, "trace");
	r.trace_steps = (int)dn_options_int(o, "trace_steps");
	r.debug.poison = dn_options_int(o, "poison") > 0;
	r.debug.no_comm = dn_options_int(o, "no_comm") > 0;
	r.debug.fake_comm = (int)dn_options_int(o, "fake_comm");
	r.debug.no_compute = dn_options_int(o, "no_compute") > 0;
	if (dn_options_text(o, "delay"))
		(void)parse_delays(dn_options_text(o, "delay"), "fsdp", &r.debug);
	if (r.debug.no_compute && r.sync_bn)
		return dn_fail(-EINVAL, "%.500s: no_compute=1 leaves out what layers exchange with batch_norm=sync: one of both",
			       dn_options_where(o, "no_compute"));
	if (r.debug.fake_comm && (r.transport == FSDP_MPI || r.transport == FSDP_SHM))
		return dn_fail(-EINVAL, "%.500s: fake_comm=%d has no peers, but collectives=%s is for some: auto or local",
			       dn_options_where(o, "fake_comm"), r.debug.fake_comm,
			       fsdp_name_of(&fsdp_transports, (int)r.transport));
	snprintf(r.memory_where, sizeof(r.memory_where), "%s", r.memory ? dn_options_where(o, "memory") : "");
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
