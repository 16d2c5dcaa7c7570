/* What steers an update beside its optimizer: clipping, loss scaling, what a loss or gradient that is not finite does, and the mean
 * of the values that is kept. */
#ifndef DN_TRAIN_GUARD_H
#define DN_TRAIN_GUARD_H
#include <stdbool.h>
#include <stdint.h>
#include "base/option.h"
#ifdef __cplusplus
extern "C" {
#endif

enum dn_nan {
	DN_NAN_LOSS,	 /* the loss ends the run; nobody looks at gradients for it */
	DN_NAN_STOP,	 /* loss and gradients do */
	DN_NAN_SKIP,	 /* the update is left out */
	DN_NAN_CONTINUE, /* it is made */
};

#define DN_CLIP_INF 0		    /* p of the largest element */
#define DN_LOSS_SCALE_FIRST 65536.0 /* dynamic: doubled after so many good steps, halved by a bad one, at least 1 */
#define DN_LOSS_SCALE_GOOD 2000

struct dn_guards {		      /* of the mean gradient of an update's images, which the optimizer takes too */
	double clip_norm, clip_value; /* 0 = off */
	int clip_p;		      /* 1, 2 or DN_CLIP_INF */
	enum dn_nan nan;
	double loss_scale; /* 0 = off; dynamic: the first */
	bool dynamic;
	double ema; /* 0 = off */
};

/** dn_guard_wanted() - what @key, one of those below, takes instead of @value; NULL: @value is fine */
DN_EXPORT const char *dn_guard_wanted(const char *key, const char *value);
/** dn_guards_read() - keys clip_norm, clip_p, clip_value, nan, loss_scale, ema of @o, which were checked when they were set */
DN_EXPORT void dn_guards_read(const struct dn_options *o, struct dn_guards *out);
/** dn_guards_look() - does a step look at its gradients before it updates? */
DN_EXPORT bool dn_guards_look(const struct dn_guards *g);

/* X(key, default, names of its values, help) of the flags of training and of plugins' keys */
/* clang-format off */
#define DN_GUARD_KEYS(X) \
	X(clip_norm, "off", "off|X", "norm that the mean gradient of all params is scaled down to, if it is above") \
	X(clip_p, "2", "1|2|inf", "of that norm: sum of |g|, root of the sum of squares, largest |g|") \
	X(clip_value, "off", "off|X", "what each element of the mean gradient is bounded by, before the norm is taken") \
	X(nan, "loss", "loss|stop|skip|continue", "loss: a loss that is not finite ends the run; stop: a gradient does too; " \
	  "skip: such a step updates nothing; continue: it does as any other") \
	X(loss_scale, "off", "off|X|dynamic", "factor on the loss, taken out again by the update; dynamic: 65536, doubled after " \
	  "2000 good steps, halved by one with gradients that are not finite, which updates nothing") \
	X(ema, "off", "off|X", "decay of an exponential mean of the values, kept beside them and saved as BASE_ema.weights")
/* clang-format on */

#ifdef __cplusplus
}
#endif
#endif
