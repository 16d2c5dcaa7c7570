/* Keys of what steers an update: their values. */
#include "check.h"
#include "train/guard.h"

static void keys_take_what_they_say(void)
{
	static const struct {
		const char *key, *good[4], *bad[5];
	} c[] = {
		{ "clip_norm", { "off", "1", "1e-3" }, { "0", "-1", "nan", "on", "inf" } },
		{ "clip_value", { "off", "5" }, { "0", "", "1x" } },
		{ "clip_p", { "1", "2", "inf" }, { "3", "0", "off" } },
		{ "nan", { "loss", "stop", "skip", "continue" }, { "off", "" } },
		{ "loss_scale", { "off", "dynamic", "128" }, { "0", "-2", "on" } },
		{ "ema", { "off", ".5", "1e-9" }, { "0", "1", "-1", ".99999999999", "on" } },
	};

	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		for (int k = 0; k < 4 && c[i].good[k]; k++)
			CU_ASSERT(!dn_guard_wanted(c[i].key, c[i].good[k]));
		for (int k = 0; k < 5 && c[i].bad[k]; k++)
			CU_ASSERT(dn_guard_wanted(c[i].key, c[i].bad[k]) != NULL);
	}
}

static const struct check_case cases[] = { { "keys_take_what_they_say", keys_take_what_they_say }, { NULL, NULL } };

int main(void)
{
	return check_run("guard", cases);
}
