/* Control operations over a channel of their own: agreement, sums, comparison, gathering of texts, and the transfers of
 * a store's read and write. Each is a task: on the device's progress thread once fsdp_control_attach() was called, before
 * that by polling in the caller. Collective: all ranks call the same ones in the same order, from one thread.
 */
#ifndef FSDP_CONTROL_H
#define FSDP_CONTROL_H
#include "comm/channel.h"

struct fsdp_control_header {
	uint32_t kind;
	int32_t err;
	uint64_t bytes;
};

struct fsdp_control_peer { /* what one rank has to say in an operation */
	struct fsdp_control_header head;
	char *body;
	size_t cap;
	bool has_head, done;
	struct fsdp_request send_head, send_body, recv_head, recv_body;
};

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
	int agreed;			  /* error that the last operation gave on all ranks alike, 0 = none */
	struct fsdp_control_peer *peers;  /* [world]; our own entry holds what we say */
	struct fsdp_control_header brief; /* without body, to those who do not want it */
	bool body_to_all;
	struct fsdp_span *spans; /* [world] of a transfer */
	int n_spans, span;
	size_t span_at;
	bool span_send;
	struct fsdp_request span_req;
};

int fsdp_control_init(struct fsdp_control *c, struct fsdp_channel *ch, int64_t timeout_ms);
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
