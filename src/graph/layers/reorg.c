/* [reorg] and [reorg3d]: pixels of a block become channels, or the reverse.
 *
 * The default order of [reorg] is Darknet's, which published weights depend on: it reads the input's memory as an image
 * of s times the width and height and c / s^2 channels. [reorg3d] and reverse=1 move the pixels that one expects.
 */
#include <errno.h>

#include "base/mem.h"
#include "graph/layers/layers_priv.h"

enum kind { NARROW, WIDE, FLATTEN, UNFLATTEN, EXTRA };

struct reorg {
	enum kind kind;
	struct dn_reorg_desc desc;
	int64_t extra;
};

static int reorg_shape(struct dn_layer *l, struct dn_section *s, int64_t stride, bool reverse, bool true_order)
{
	struct reorg *re = l->priv;
	const int64_t square = stride * stride;
	const bool flat = re->kind == FLATTEN || re->kind == UNFLATTEN;
	int err;

	re->desc = (struct dn_reorg_desc){ l->in, stride };
	if (!reverse && (l->w % stride || l->h % stride))
		return dn_section_fail(s, "stride", -EINVAL, "layer %d: stride=%lld does not divide the input of %lld x %lld",
				       l->index, (long long)stride, (long long)l->w, (long long)l->h);
	if (!flat && (reverse || !true_order) && l->c % square)
		return dn_section_fail(s, "stride", -EINVAL, "layer %d: stride^2=%lld does not divide the %lld input channels",
				       l->index, (long long)square, (long long)l->c);
	if (flat && reverse && l->c % square)
		return dn_section_fail(s, "stride", -EINVAL, "layer %d: stride^2=%lld does not divide the %lld input channels",
				       l->index, (long long)square, (long long)l->c);
	if (reverse)
		return dn_layer_set_out(l, l->w * stride, l->h * stride, l->c / square);
	err = dn_layer_set_out(l, l->w / stride, l->h / stride, l->c * square);
	if (true_order) /* the narrow image is the output */
		re->desc.narrow = l->out;
	return err;
}

static const struct dn_key_rule keys[] = {
	{ "stride", DN_KEY_INT, "1", 1, 1 << 15, .help = "side of the blocks that move into channels" },
	{ "reverse", DN_KEY_INT, "0", 0, 1, .help = "1: channels move into blocks" },
	{ "flatten", DN_KEY_INT, "0", 0, 1,
	  .help = "1: pixel by pixel instead of channel by channel (with reverse=1 the other way)" },
	{ "extra", DN_KEY_INT, "0", 0, (int64_t)1 << 32, .help = "zeros appended to each image, which becomes a flat vector" },
	{ .key = NULL },
};

static const struct dn_key_rule keys3d[] = {
	{ "stride", DN_KEY_INT, "1", 1, 1 << 15, .help = "side of the blocks that move into channels" },
	{ "reverse", DN_KEY_INT, "0", 0, 1, .help = "1: channels move into blocks" },
	{ .key = NULL },
};

static int reorg_keys(struct dn_layer *l, struct dn_section *s, bool true_order)
{
	struct reorg *re = layer_priv(l, sizeof(*re));
	int64_t stride, reverse, flatten = 0;
	int err = re ? dn_key_int(s, "stride", &stride) : -ENOMEM;

	if (!err)
		err = dn_key_int(s, "reverse", &reverse);
	if (!err && !true_order)
		err = dn_key_int(s, "flatten", &flatten);
	if (!err && !true_order)
		err = dn_key_int(s, "extra", &re->extra);
	if (!err)
		err = layer_needs_image(l);
	if (!err)
		err = dn_layer_need(l, reorg);
	if (!err)
		err = dn_layer_need(l, transpose);
	if (err)
		return err;
	if (re->extra) {
		re->kind = EXTRA;
		return dn_layer_set_out(l, 1, 1, l->inputs + re->extra);
	}
	if (flatten)
		re->kind = reverse ? UNFLATTEN : FLATTEN;
	else
		re->kind = reverse ? WIDE : NARROW;
	return reorg_shape(l, s, stride, reverse, true_order);
}

static int reorg_setup(struct dn_layer *l, struct dn_section *s)
{
	return reorg_keys(l, s, false);
}

static int reorg3d_setup(struct dn_layer *l, struct dn_section *s)
{
	return reorg_keys(l, s, true);
}

static int reorg_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct reorg *re = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	const struct dn_tensor rows = dn_tensor_view(&l->in, l->w * l->h, l->c, 1); /* of pixels */
	const void *x = dn_layer_x(l, pass, 0);
	int err;

	switch (re->kind) {
	case NARROW:
	case WIDE:
		return be->reorg(st, &re->desc, re->kind == NARROW, x, l->output, false);
	case FLATTEN:
		return be->transpose(st, &l->in, x, l->output, false);
	case UNFLATTEN:
		return be->transpose(st, &rows, x, l->output, false);
	case EXTRA:
		break;
	}
	err = be->zero(st, l->output, l->out.bytes);
	return err ? err : be->copy_rows(st, l->in.type, l->local_batch, l->inputs, x, l->inputs, l->output, l->outputs, false);
}

static int reorg_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct reorg *re = l->priv;
	const struct dn_backend *be = l->net->dev->be;
	struct dn_stream *st = l->net->compute;
	const struct dn_tensor rows = dn_tensor_view(&l->in, l->w * l->h, l->c, 1); /* of pixels */
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);

	if (!dx)
		return 0;
	switch (re->kind) {
	case NARROW:
	case WIDE:
		return be->reorg(st, &re->desc, re->kind != NARROW, l->delta, dx, acc);
	case FLATTEN:
		return be->transpose(st, &rows, l->delta, dx, acc);
	case UNFLATTEN:
		return be->transpose(st, &l->in, l->delta, dx, acc);
	case EXTRA:
		break;
	}
	return be->copy_rows(st, l->in.type, l->local_batch, l->inputs, l->delta, l->outputs, dx, l->inputs, acc);
}

const struct dn_layer_ops reorg_layer = {
	.name = "reorg",
	.summary = "blocks of pixels become channels, in the order of Darknet's YOLOv2",
	.keys = keys,
	.setup = reorg_setup,
	.forward = reorg_forward,
	.backward = reorg_backward,
	.destroy = layer_free_priv,
};

const struct dn_layer_ops reorg3d_layer = {
	.name = "reorg3d",
	.summary = "blocks of pixels become channels, block position first",
	.keys = keys3d,
	.setup = reorg3d_setup,
	.forward = reorg_forward,
	.backward = reorg_backward,
	.destroy = layer_free_priv,
};
