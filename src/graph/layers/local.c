/* [local]: a convolution whose weights and biases differ at every output point.
 *
 * pad counts pixels of zeros on the left and above; with any pad the output has ceil(side / stride) points a side, and what
 * lies right of or below the input is zero too. All points get random first values (Darknet fills the first point
 * only and leaves the others at zero).
 */
#include <errno.h>
#include <math.h>

#include "graph/graph_priv.h"
#include "graph/layers/layers_priv.h"

struct local {
	struct layer_linear linear;
	struct dn_conv_desc desc;
};

static const struct dn_key_rule keys[] = {
	{ "filters", DN_KEY_INT, "1", 1, 1 << 24, .help = "output channels" },
	{ "size", DN_KEY_INT, "1", 1, 1 << 15, .help = "side of the window" },
	{ "stride", DN_KEY_INT, "1", 1, 1 << 24, .help = "step of the window" },
	{ "pad", DN_KEY_INT, "0", 0, 1 << 15, .help = "zeros on the left and above" },
	LAYER_KEY_ACTIVATION("logistic"),
	{ .key = NULL },
};

static int local_shape(struct dn_layer *l, struct dn_section *s)
{
	struct dn_conv_desc *d = &((struct local *)l->priv)->desc;
	int err = layer_needs_image(l);

	if (err)
		return err;
	if (d->pad > d->size)
		return dn_section_fail(s, "pad", -EINVAL, "pad=%lld is more than size=%lld", (long long)d->pad,
				       (long long)d->size);
	if (!d->pad && (d->size > l->w || d->size > l->h))
		return dn_section_fail(s, "size", -EINVAL, "layer %d: a window of %lld is larger than the input of %lld x %lld",
				       l->index, (long long)d->size, (long long)l->w, (long long)l->h);
	d->groups = 1;
	d->dilation = 1;
	d->weights = DN_F32;
	err = dn_layer_set_out(l, (d->pad ? l->w - 1 : l->w - d->size) / d->stride + 1,
			       (d->pad ? l->h - 1 : l->h - d->size) / d->stride + 1, d->y.c);
	d->x = l->in;
	d->y = l->out;
	return err;
}

static int local_params(struct dn_layer *l, struct dn_section *s)
{
	struct local *lo = l->priv;
	const struct dn_conv_desc *d = &lo->desc;
	const int64_t square = d->size * d->size;
	struct linear_weights w = { .n_dims = 3, .bias_a_point = true };
	int err;

	if (l->c > NET_MAX_COUNT / square)
		return dn_section_fail(s, "size", -EOVERFLOW,
				       "layer %d: filters of %lld x %lld x %lld are more than 2^40 elements", l->index,
				       (long long)d->size, (long long)d->size, (long long)l->c);
	w.shape[0] = d->y.h * d->y.w;
	w.shape[1] = d->y.c;
	w.shape[2] = l->c * square;
	w.init = (struct dn_init){ DN_INIT_UNIFORM, sqrt(2. / (double)w.shape[2]) };
	err = linear_declare(&lo->linear, l, &w);
	if (!err)
		l->flops = 2 * lo->linear.weights->n;
	return err;
}

static int local_setup(struct dn_layer *l, struct dn_section *s)
{
	struct local *lo = layer_priv(l, sizeof(*lo));
	struct dn_conv_desc *d = lo ? &lo->desc : NULL;
	int err = lo ? dn_key_int(s, "filters", &d->y.c) : -ENOMEM;

	if (!err)
		err = dn_key_int(s, "size", &d->size);
	if (!err)
		err = dn_key_int(s, "stride", &d->stride);
	if (!err)
		err = dn_key_int(s, "pad", &d->pad);
	if (!err)
		err = dn_layer_activation(l, s);
	if (!err)
		err = local_shape(l, s);
	if (!err)
		err = local_params(l, s);
	if (!err)
		err = dn_layer_need(l, local_forward);
	return err ? err : linear_setup(&lo->linear, l);
}

static int local_forward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct local *lo = l->priv;
	int err = l->net->dev->be->local_forward(l->net->compute, &lo->desc, dn_layer_x(l, pass, 0), lo->linear.weights->value,
						 linear_z(&lo->linear, l));

	return err ? err : linear_forward(&lo->linear, l, pass);
}

static int local_backward(struct dn_layer *l, const struct dn_pass *pass)
{
	struct local *lo = l->priv;
	int err = linear_backward(&lo->linear, l);

	if (!err && !l->frozen)
		err = l->net->dev->be->local_backward_weights(l->net->compute, &lo->desc, dn_layer_x(l, pass, 0), l->delta,
							      lo->linear.weights->grad, dn_layer_adds(l));
	return err;
}

static int local_backward_input(struct dn_layer *l, const struct dn_pass *pass)
{
	struct local *lo = l->priv;
	bool acc;
	void *dx = dn_layer_dx(l, 0, &acc);

	return dx ? l->net->dev->be->local_backward_data(l->net->compute, &lo->desc, l->delta, lo->linear.weights->value, dx, acc)
		  : 0;
}

const struct dn_layer_ops local_layer = {
	.name = "local",
	.summary = "a convolution whose weights differ at every place",
	.keys = keys,
	.setup = local_setup,
	.forward = local_forward,
	.backward = local_backward,
	.backward_input = local_backward_input,
	.destroy = layer_free_priv,
};
