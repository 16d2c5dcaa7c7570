/* Control operations over a channel of their own: agreement, sums, comparison, gathering of texts, and the transfers of
 * a store's read and write. Each is a task: on the device's progress thread once fsdp_control_attach() was called, before
 * that by polling in the caller. Collective: all ranks call the same ones in the same order, from one thread.
 * Each takes a number of messages that grows with log(world) (spread.h), long texts and transfers apart.
 */
#ifndef FSDP_CONTROL_H
#define FSDP_CONTROL_H
#include "comm/spread.h"

struct fsdp_span {
	int peer;
	void *p;
	size_t bytes;
};

struct fsdp_control {
	struct fsdp_channel *ch; /* owned */
	int64_t timeout_ms;
	struct dn_device *dev; /* NULL before attach */
	struct dn_stream *st;
	char label[160];
	int agreed; /* error that the last operation gave on all ranks alike, 0 = none */
	struct fsdp_roll roll;
	struct fsdp_spread spread;
	char *text; /* what is said, while it is put together */
	size_t text_cap;
	struct fsdp_span *spans; /* [world] of a transfer */
	int n_spans, span;
	size_t span_at;
	bool span_send;
	struct fsdp_request span_req;
};

/** fsdp_control_init() - takes both channels, also when it fails; @roll is for roll calls */
int fsdp_control_init(struct fsdp_control *c, struct fsdp_channel *ch, struct fsdp_channel *roll, int64_t timeout_ms);
void fsdp_control_fini(struct fsdp_control *c);
/** fsdp_control_attach() - run on a stream of @dev from now on, until detach */
int fsdp_control_attach(struct fsdp_control *c, struct dn_device *dev);
void fsdp_control_detach(struct fsdp_control *c);

/* as in base/group.h; @what leads the message of a deadline */
int fsdp_control_agree(struct fsdp_control *c, int err, const char *what);
int fsdp_control_sum(struct fsdp_control *c, const char *what, double *x, int n);
int fsdp_control_compare(struct fsdp_control *c, const char *what, const struct dn_item *items, int n);
int fsdp_control_gather(struct fsdp_control *c, const char *what, const void *mine, size_t bytes, char **all, size_t *sizes);

/** fsdp_control_transfer() - c->spans[0..c->n_spans), in order: sent to or received from their peers */
int fsdp_control_transfer(struct fsdp_control *c, const char *what, bool send);
#endif
