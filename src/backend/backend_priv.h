/* Shared by backend.c and the tables: the tables themselves, and checks of descriptions. */
#ifndef DN_BACKEND_BACKEND_PRIV_H
#define DN_BACKEND_BACKEND_PRIV_H
#include "backend/backend.h"

extern const struct dn_backend dn_backend_cpu, dn_backend_ref;

/** conv_desc_check() - shapes of one convolution; -EINVAL with a message */
int conv_desc_check(const struct dn_conv_desc *d);
int shortcut_desc_check(const struct dn_shortcut_desc *d);
int dropout_key_check(const struct dn_dropout_key *k);
int softmax_desc_check(const struct dn_softmax_desc *d);
int reorg_desc_check(const struct dn_reorg_desc *d);
int crop_desc_check(const struct dn_crop_desc *d);
/** crop_place() - where the window of image @i of the batch stands, and whether it is mirrored */
void crop_place(const struct dn_crop_desc *d, const struct dn_numbers *num, int64_t i, int64_t *top, int64_t *left, bool *flip);
int lrn_desc_check(const struct dn_lrn_desc *d);
int local_desc_check(const struct dn_conv_desc *d);

/* The factors of an update, computed in double and rounded to float once: the same for every element of a param, whoever owns
 * it, and for every table. */
struct sgd_factors {
	float rate, momentum, decay, factor;
};
struct sgd_factors sgd_factors(const struct dn_sgd *o, const struct dn_numbers *num);
struct adam_factors {
	float scale, rate, beta1, one_minus_beta1, beta2, one_minus_beta2, correct1, correct2, eps, decay, shrink;
};
struct adam_factors adam_factors(const struct dn_adam *o, const struct dn_numbers *num);

#endif
