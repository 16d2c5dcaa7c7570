/* Keys of the guards: their values, and what they mean. */
#include "train/guard.h"

#include <math.h>
#include <string.h>

#include "base/text.h"

static const char *const nans[] = { "loss", "stop", "skip", "continue" };

static bool is_nan_name(const char *value, enum dn_nan *out)
{
	for (int i = 0; i < (int)(sizeof(nans) / sizeof(nans[0])); i++)
		if (!strcmp(value, nans[i])) {
			*out = (enum dn_nan)i;
			return true;
		}
	return false;
}

/* a number above 0, or off, which is 0 */
static bool is_bound(const char *value, double *out)
{
	*out = 0;
	return !strcmp(value, "off") || (dn_parse_float(value, out) == DN_NUM_WHOLE && *out >= 1e-38 && *out <= 1e38);
}

static bool is_decay(const char *value, double *out)
{
	*out = 0;
	return !strcmp(value, "off") || (dn_parse_float(value, out) == DN_NUM_WHOLE && *out > 0 && (float)*out < 1);
}

const char *dn_guard_wanted(const char *key, const char *value)
{
	enum dn_nan nan;
	double x;

	if (!strcmp(key, "nan"))
		return is_nan_name(value, &nan) ? NULL : "wanted loss, stop, skip or continue";
	if (!strcmp(key, "clip_p"))
		return !strcmp(value, "1") || !strcmp(value, "2") || !strcmp(value, "inf") ? NULL : "wanted 1, 2 or inf";
	if (!strcmp(key, "loss_scale"))
		return !strcmp(value, "dynamic") || is_bound(value, &x) ? NULL
									: "wanted off, dynamic or a number from 1e-38 to 1e38";
	if (!strcmp(key, "ema"))
		return is_decay(value, &x) ? NULL : "wanted off or a number above 0 and below 1";
	return is_bound(value, &x) ? NULL : "wanted off or a number from 1e-38 to 1e38";
}

void dn_guards_read(const struct dn_options *o, struct dn_guards *out)
{
	const char *p = dn_options_text(o, "clip_p");

	*out = (struct dn_guards){ .clip_p = !strcmp(p, "1") ? 1 : !strcmp(p, "2") ? 2 : DN_CLIP_INF };
	(void)is_bound(dn_options_text(o, "clip_norm"), &out->clip_norm);
	(void)is_bound(dn_options_text(o, "clip_value"), &out->clip_value);
	(void)is_nan_name(dn_options_text(o, "nan"), &out->nan);
	out->dynamic = !strcmp(dn_options_text(o, "loss_scale"), "dynamic");
	(void)is_decay(dn_options_text(o, "ema"), &out->ema);
	out->loss_scale = DN_LOSS_SCALE_FIRST;
	if (!out->dynamic)
		(void)is_bound(dn_options_text(o, "loss_scale"), &out->loss_scale);
}

bool dn_guards_look(const struct dn_guards *g)
{
	return g->clip_norm > 0 || g->clip_value > 0 || g->nan != DN_NAN_LOSS || g->dynamic;
}
