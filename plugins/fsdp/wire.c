/* The shared words; see wire.h. */
#include "wire.h"

#include <errno.h>
#include <string.h>

int fsdp_grid_init(struct fsdp_grid *g, int world, int shards)
{
	if (world < 1)
		return dn_fail(-EINVAL, "plan: world is %d, must be at least 1", world);
	if (shards < 0 || (shards && world % shards))
		return dn_fail(-EINVAL, "plan: %d shards do not divide a world of %d ranks", shards, world);
	g->world = world;
	g->shards = shards ? shards : world;
	g->replicas = world / g->shards;
	return 0;
}

/* --- names --- */

const char *fsdp_name_of(const struct fsdp_names *n, int value)
{
	for (const struct fsdp_name *x = n->table; x->name; x++)
		if (x->value == value)
			return x->name;
	return "?";
}

int fsdp_refuse(const char *key, const char *value, const char *where, const char *why)
{
	if (where[0] == '-')
		return dn_fail(-EINVAL, "%.200s %.200s: %s", where, value, why);
	return dn_fail(-EINVAL, "%.1000s: %s=%.200s: %s", where, key, value, why);
}

int fsdp_name_find(const struct fsdp_names *n, const char *value, const char *where, int *out)
{
	char why[256] = "";
	bool later = false;
	size_t at = 0;

	for (const struct fsdp_name *x = n->table; x->name; x++) {
		if (!strcmp(x->name, value) && !x->later) {
			*out = x->value;
			return 0;
		}
		later = later || !strcmp(x->name, value);
		if (!x->later && at < sizeof(why))
			at += (size_t)snprintf(why + at, sizeof(why) - at, "%s%s", at ? ", " : "", x->name);
	}
	{
		char text[320];

		snprintf(text, sizeof(text),
			 later ? "not in this version, which supports %s" : "unknown; this version supports %s", why);
		return fsdp_refuse(n->key, value, where, text);
	}
}

static const struct fsdp_name transports[] = {
	{ "auto", FSDP_AUTO, false }, { "mpi", FSDP_MPI, false }, { "local", FSDP_LOCAL, false },
	{ "shm", FSDP_SHM, false },   { "nccl", -1, true },	  { NULL, 0, false },
};

static const struct fsdp_name types[] = {
	{ "fp32", DN_F32, false }, { "bf16", DN_BF16, false }, { "fp16", DN_F16, false },
	{ "fp8", -1, true },	   { "int8", -1, true },       { NULL, 0, false },
};

const struct fsdp_names fsdp_transports = { "collectives", transports };
const struct fsdp_names fsdp_wire_types = { "wire", types };
const struct fsdp_names fsdp_reduce_types = { "reduce", types };
