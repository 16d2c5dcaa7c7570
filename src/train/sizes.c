/* The sizes that a training net's input goes through, and what its ring of batches takes. */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "train/loop_priv.h"

bool dn_loop_sizes(const struct dn_net *net, uint64_t seed, struct dn_resize *out)
{
	memset(out, 0, sizeof(*out));
	if (!net->opt.train || !net->opt.multi_scale || !net->hyper.random)
		return false;
	*out = *dn_net_task_of(net)->sizes;
	out->seed = seed;
	return true;
}

int dn_loop_plan_sizes(struct dn_net *net)
{
	struct dn_resize r;
	int64_t(*sizes)[2];
	int err;

	if (!dn_loop_sizes(net, 0, &r))
		return 0;
	if (!net->w)
		return dn_section_fail(net->cfg->net, "random", -EINVAL,
				       "random=1 changes width and height, and this input has none");
	sizes = dn_calloc((size_t)r.n, sizeof(*sizes));
	if (!sizes)
		return -ENOMEM;
	for (int64_t i = 0; i < r.n; i++)
		sizes[i][0] = sizes[i][1] = r.step * (r.first + i);
	err = dn_net_add_shapes(net, (int)r.n, sizes);
	dn_free(sizes);
	return err;
}

int dn_loop_input_bytes(const struct dn_net *net, size_t *out)
{
	struct dn_resize r;
	int64_t inputs = net->inputs;

	if (dn_loop_sizes(net, 0, &r))
		inputs = net->c * dn_resize_max(&r) * dn_resize_max(&r);
	return dn_loader_bytes(net->local_batch, inputs, net->truths, out);
}

int loop_base_size(struct dn_loop *l)
{
	return l->resize.every ? dn_net_resize(l->net, l->w, l->h) : 0;
}

int loop_check_sizes(struct dn_loop *l)
{
	struct dn_net *net = l->net;
	int64_t truths = net->truths;
	int err = 0;

	if (!l->resize.every)
		return 0;
	if (!l->train->any_size)
		return dn_section_fail(net->cfg->net, "random", -EINVAL,
				       "random=1 is for lists of images: those of %s are all of "
				       "%lld x %lld",
				       l->train->path, (long long)l->train->w, (long long)l->train->h);
	for (int64_t i = 0; i < l->resize.n && !err; i++) {
		int64_t side = l->resize.step * (l->resize.first + i);

		err = dn_net_resize(net, side, side);
		if (!err && net->truths != truths)
			err = dn_section_fail(net->cfg->net, "random", -EINVAL,
					      "random=1: the net wants targets of %lld numbers at "
					      "%lld x %lld and of %lld at %lld x %lld",
					      (long long)truths, (long long)l->w, (long long)l->h, (long long)net->truths,
					      (long long)side, (long long)side);
	}
	return err ? err : loop_base_size(l);
}
