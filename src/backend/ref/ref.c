/* The ref table: plain loops for every op over the CPU's streams; slow on purpose, the oracle for tests. */
#include <errno.h>
#include "backend/backend_priv.h"
#include "backend/host/softmax.h"
#include "backend/host/stream.h"
#include "backend/ref/ref_priv.h"

static int ref_open(const struct dn_device_desc *desc, struct dn_device **out);

const struct op_limits ref_limits = { .backend = "ref", .types = 1u << DN_F32, .layouts = 1u << DN_NCHW };

static void ref_close(struct dn_device *dev)
{
	if (!dev)
		return;
	stream_device_fini((struct host_device *)dev);
	dn_free(dev);
}

static void ref_facts(const struct dn_device *dev, struct dn_facts *out)
{
	out->backend = "ref";
	out->threads = 1;
	out->align_bytes = DN_ALIGN;
	out->host_access = true;
	out->library = "none";
	out->isa = "none";
}

const struct dn_backend dn_backend_ref = {
	.name = "ref",
	.summary = "plain loops on one thread: slow, the yardstick of the tests",
	.open = ref_open,
	.close = ref_close,
	.memory = stream_memory,
	.facts = ref_facts,
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
	.gemm = ref_gemm,
	.conv_create = ref_conv_create,
	.conv_destroy = ref_conv_destroy,
	.conv_workspace_bytes = ref_conv_workspace_bytes,
	.conv_packed_bytes = ref_conv_packed_bytes,
	.conv_pack = ref_conv_pack,
	.conv_forward = ref_conv_forward,
	.conv_backward_weights = ref_conv_backward_weights,
	.conv_backward_data = ref_conv_backward_data,
	.bias_act = ref_bias_act,
	.bias_backward = ref_bias_backward,
	.act_backward = ref_act_backward,
	.bn_forward_train = ref_bn_forward_train,
	.bn_forward = ref_bn_forward,
	.bn_backward = ref_bn_backward,
	.bn_mean_part = ref_bn_mean_part,
	.bn_variance_part = ref_bn_variance_part,
	.bn_backward_part = ref_bn_backward_part,
	.bn_backward_data = ref_bn_backward_data,
	.maxpool_forward = ref_maxpool_forward,
	.maxpool_backward = ref_maxpool_backward,
	.avgpool_forward = ref_avgpool_forward,
	.avgpool_backward = ref_avgpool_backward,
	.dropout_forward = ref_dropout_forward,
	.dropout_backward = ref_dropout_backward,
	.softmax_create = ref_softmax_create,
	.softmax_destroy = softmax_destroy,
	.softmax_forward = ref_softmax_forward,
	.softmax_loss = ref_softmax_loss,
	.tree_truth = ref_tree_truth,
	.cost = ref_cost,
	.axpby = ref_axpby,
	.copy_rows = ref_copy_rows,
	.shortcut_forward = ref_shortcut_forward,
	.shortcut_backward_src = ref_shortcut_backward_src,
	.upsample = ref_upsample,
	.block_sum = ref_block_sum,
	.reorg = ref_reorg,
	.transpose = ref_transpose,
	.crop_forward = ref_crop_forward,
	.crop_backward = ref_crop_backward,
	.lrn_forward = ref_lrn_forward,
	.lrn_backward = ref_lrn_backward,
	.l2norm_forward = ref_l2norm_forward,
	.l2norm_backward = ref_l2norm_backward,
	.local_forward = ref_local_forward,
	.local_backward_weights = ref_local_backward_weights,
	.local_backward_data = ref_local_backward_data,
	.local_avg_forward = ref_local_avg_forward,
	.local_avg_backward = ref_local_avg_backward,
	.scale_forward = ref_scale_forward,
	.scale_backward = ref_scale_backward,
	.binarize = ref_binarize,
	.sgd = ref_sgd,
	.adam = ref_adam,
	.sum_tree = ref_sum_tree,
	.narrow = ref_narrow,
	.widen = ref_widen,
	.count_nonfinite = ref_count_nonfinite,
	.look = ref_look,
};

static int ref_open(const struct dn_device_desc *desc, struct dn_device **out)
{
	struct host_device *d = dn_zalloc(sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	err = stream_device_init(d, &dn_backend_ref, desc);
	if (err) {
		dn_free(d);
		return err;
	}
	*out = &d->dev;
	return 0;
}
