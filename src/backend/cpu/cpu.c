/* The cpu table: oneDNN for convolutions and products, OpenMP loops for the rest, over the CPU's streams. */
#include <errno.h>
#include "backend/backend_priv.h"
#include "backend/cpu/cpu_priv.h"

static int cpu_open(const struct dn_device_desc *desc, struct dn_device **out);

const struct op_limits cpu_limits = { .backend = "cpu", .types = 1u << DN_F32, .layouts = 1u << DN_NCHW };

static void cpu_close(struct dn_device *dev)
{
	struct cpu_math_device *d = (struct cpu_math_device *)dev;

	if (!d)
		return;
	stream_device_fini(&d->cpu);
	dnn_close(d->dnn);
	dn_free(d);
}

static void cpu_facts(const struct dn_device *dev, struct dn_facts *out)
{
	out->backend = "cpu";
	out->threads = dev->threads;
	out->align_bytes = DN_ALIGN;
	out->host_access = true;
	out->library = dnn_version(((const struct cpu_math_device *)dev)->dnn);
	out->isa = dnn_isa();
}

const struct dn_backend dn_backend_cpu = {
	.name = "cpu",
	.summary = "oneDNN and OpenMP loops",
	.open = cpu_open,
	.close = cpu_close,
	.memory = stream_memory,
	.facts = cpu_facts,
	.alloc = stream_alloc,
	.free = stream_free,
	.alloc_host = stream_alloc,
	.free_host = stream_free,
	.copy = stream_copy,
	.zero = stream_zero,
	.stream_create = stream_create,
	.stream_abort = stream_abort,
	.stream_destroy = stream_destroy,
	.set_timeout = stream_set_timeout,
	.event_create = stream_event_create,
	.event_destroy = stream_event_destroy,
	.event_record = stream_event_record,
	.stream_wait = stream_wait,
	.event_wait = stream_event_wait,
	.event_done = stream_event_done,
	.stream_submit = stream_submit,
	.stream_sync = stream_sync,
	.waited_ns = stream_waited_ns,
	.gemm = cpu_gemm,
	.conv_create = cpu_conv_create,
	.conv_destroy = cpu_conv_destroy,
	.conv_workspace_bytes = cpu_conv_workspace_bytes,
	.conv_packed_bytes = cpu_conv_packed_bytes,
	.conv_pack = cpu_conv_pack,
	.conv_forward = cpu_conv_forward,
	.conv_backward_weights = cpu_conv_backward_weights,
	.conv_backward_data = cpu_conv_backward_data,
	.bias_act = cpu_bias_act,
	.bias_backward = cpu_bias_backward,
	.act_backward = cpu_act_backward,
	.bn_forward_train = cpu_bn_forward_train,
	.bn_forward = cpu_bn_forward,
	.bn_backward = cpu_bn_backward,
	.bn_mean_part = cpu_bn_mean_part,
	.bn_variance_part = cpu_bn_variance_part,
	.bn_backward_part = cpu_bn_backward_part,
	.bn_backward_data = cpu_bn_backward_data,
	.maxpool_forward = cpu_maxpool_forward,
	.maxpool_backward = cpu_maxpool_backward,
	.avgpool_forward = cpu_avgpool_forward,
	.avgpool_backward = cpu_avgpool_backward,
	.dropout_forward = cpu_dropout_forward,
	.dropout_backward = cpu_dropout_backward,
	.softmax_create = cpu_softmax_create,
	.softmax_destroy = softmax_destroy,
	.softmax_forward = cpu_softmax_forward,
	.softmax_loss = cpu_softmax_loss,
	.tree_truth = cpu_tree_truth,
	.cost = cpu_cost,
	.axpby = cpu_axpby,
	.copy_rows = cpu_copy_rows,
	.shortcut_forward = cpu_shortcut_forward,
	.shortcut_backward_src = cpu_shortcut_backward_src,
	.upsample = cpu_upsample,
	.block_sum = cpu_block_sum,
	.reorg = cpu_reorg,
	.transpose = cpu_transpose,
	.crop_forward = cpu_crop_forward,
	.crop_backward = cpu_crop_backward,
	.lrn_forward = cpu_lrn_forward,
	.lrn_backward = cpu_lrn_backward,
	.l2norm_forward = cpu_l2norm_forward,
	.l2norm_backward = cpu_l2norm_backward,
	.local_forward = cpu_local_forward,
	.local_backward_weights = cpu_local_backward_weights,
	.local_backward_data = cpu_local_backward_data,
	.local_avg_forward = cpu_local_avg_forward,
	.local_avg_backward = cpu_local_avg_backward,
	.scale_forward = cpu_scale_forward,
	.scale_backward = cpu_scale_backward,
	.binarize = cpu_binarize,
	.sgd = cpu_sgd,
	.adam = cpu_adam,
	.sum_tree = cpu_sum_tree,
	.narrow = cpu_narrow,
	.widen = cpu_widen,
	.count_nonfinite = cpu_count_nonfinite,
	.look = cpu_look,
};

static int cpu_open(const struct dn_device_desc *desc, struct dn_device **out)
{
	struct cpu_math_device *d = dn_zalloc(sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	err = stream_device_init(&d->cpu, &dn_backend_cpu, desc);
	if (err)
		goto err_free;
	err = dnn_open(&d->dnn);
	if (err)
		goto err_fini;
	*out = &d->cpu.dev;
	return 0;

err_fini:
	stream_device_fini(&d->cpu);
err_free:
	dn_free(d);
	return err;
}
