/* The table of optimizers. */
#include "graph/optimizer.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/names.h"

/* clang-format off */
/* X(enum, name, number of states, their names) */
#define OPTIMIZERS(X) \
	X(DN_SGD, "sgd", 1, { "momentum" }) \
	X(DN_ADAM, "adam", 2, { "m", "v" }) \
	X(DN_ADAMW, "adamw", 2, { "m", "v" })
/* clang-format on */
#define ROW(row, name, ...) [row] = { name, __VA_ARGS__ },

static const struct {
	const char *name;
	int n_states;
	const char *states[DN_STATES];
} optimizers[DN_OPTIMIZERS] = { OPTIMIZERS(ROW) };

const char *dn_optimizer_name(enum dn_optimizer o)
{
	return (unsigned)o < DN_OPTIMIZERS ? optimizers[o].name : "?";
}

const char *dn_optimizer_names(void)
{
	return DN_NAMES(OPTIMIZERS);
}

int dn_optimizer_find(const char *name, enum dn_optimizer *out)
{
	for (int i = 0; i < DN_OPTIMIZERS; i++)
		if (!strcmp(name, optimizers[i].name)) {
			*out = (enum dn_optimizer)i;
			return 0;
		}
	return -EINVAL;
}

int dn_state_count(enum dn_optimizer o)
{
	return optimizers[o].n_states;
}

const char *dn_state_name(enum dn_optimizer o, int state)
{
	assert(state >= 0 && state < optimizers[o].n_states);
	return optimizers[o].states[state];
}
