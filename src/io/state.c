/* Names of optimizers and of their states, as checkpoints bear them. */
#include "io/state.h"

#include <assert.h>

static const struct {
	const char *name;
	int n_states;
	const char *states[DN_PARTS - DN_STATE0];
} optimizers[] = {
	[DN_SGD] = { "sgd", 1, { "momentum" } },
	[DN_ADAM] = { "adam", 2, { "m", "v" } },
	[DN_ADAMW] = { "adamw", 2, { "m", "v" } },
};

const char *dn_state_optimizer(enum dn_optimizer o)
{
	return optimizers[o].name;
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
