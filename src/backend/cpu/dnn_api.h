/* oneDNN 2 and 3 in one shape, for dnn.c alone: version 3 made tensor descriptions opaque, gave every primitive a call that
 * creates its description, and dropped a scale and a stream argument. Names start with api_; the shape is version 3's.
 */
#ifndef DN_BACKEND_CPU_DNN_API_H
#define DN_BACKEND_CPU_DNN_API_H
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include "base/mem.h"

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t api_md; /* owned: api_md_destroy() */
typedef const_dnnl_memory_desc_t api_md_ref;
#else
typedef dnnl_memory_desc_t *api_md;
typedef const dnnl_memory_desc_t *api_md_ref;
#endif

struct api_conv {		  /* what the three convolution passes share */
	api_md_ref x, w, bias, y; /* bias: forward only, may be NULL */
	dnnl_dims_t strides, dilates, pad_l, pad_r;
};

static inline dnnl_status_t api_md_create(api_md *out, int n_dims, const dnnl_dims_t dims, dnnl_format_tag_t tag)
{
#if DNNL_VERSION_MAJOR >= 3
	return dnnl_memory_desc_create_with_tag(out, n_dims, dims, dnnl_f32, tag);
#else
	*out = dn_zalloc(sizeof(**out));
	return *out ? dnnl_memory_desc_init_by_tag(*out, n_dims, dims, dnnl_f32, tag) : dnnl_out_of_memory;
#endif
}

static inline void api_md_destroy(api_md md)
{
	if (!md)
		return;
#if DNNL_VERSION_MAJOR >= 3
	dnnl_memory_desc_destroy(md);
#else
	dn_free(md);
#endif
}

static inline dnnl_status_t api_append_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t alg, float alpha)
{
#if DNNL_VERSION_MAJOR >= 3
	return dnnl_post_ops_append_eltwise(ops, alg, alpha, 0);
#else
	return dnnl_post_ops_append_eltwise(ops, 1, alg, alpha, 0);
#endif
}

static inline dnnl_status_t api_set_handle(dnnl_memory_t m, void *p, dnnl_stream_t stream)
{
#if DNNL_VERSION_MAJOR >= 3
	return dnnl_memory_set_data_handle(m, p);
#else
	return dnnl_memory_set_data_handle_v2(m, p, stream);
#endif
}

static inline dnnl_status_t api_conv_forward(dnnl_primitive_desc_t *out, dnnl_engine_t engine, dnnl_prop_kind_t prop,
					     const struct api_conv *c, const_dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR >= 3
	return dnnl_convolution_forward_primitive_desc_create(out, engine, prop, dnnl_convolution_direct, c->x, c->w, c->bias,
							      c->y, c->strides, c->dilates, c->pad_l, c->pad_r, attr);
#else
	dnnl_convolution_desc_t d;
	dnnl_status_t s = dnnl_dilated_convolution_forward_desc_init(&d, prop, dnnl_convolution_direct, c->x, c->w, c->bias, c->y,
								     c->strides, c->dilates, c->pad_l, c->pad_r);

	return s == dnnl_success ? dnnl_primitive_desc_create(out, &d, attr, engine, NULL) : s;
#endif
}

static inline dnnl_status_t api_conv_backward_weights(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const struct api_conv *c,
						      const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR >= 3
	return dnnl_convolution_backward_weights_primitive_desc_create(out, engine, dnnl_convolution_direct, c->x, c->w, NULL,
								       c->y, c->strides, c->dilates, c->pad_l, c->pad_r, hint,
								       attr);
#else
	dnnl_convolution_desc_t d;
	dnnl_status_t s = dnnl_dilated_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, c->x, c->w, NULL, c->y,
									      c->strides, c->dilates, c->pad_l, c->pad_r);

	return s == dnnl_success ? dnnl_primitive_desc_create(out, &d, attr, engine, hint) : s;
#endif
}

static inline dnnl_status_t api_conv_backward_data(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const struct api_conv *c,
						   const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR >= 3
	return dnnl_convolution_backward_data_primitive_desc_create(out, engine, dnnl_convolution_direct, c->x, c->w, c->y,
								    c->strides, c->dilates, c->pad_l, c->pad_r, hint, attr);
#else
	dnnl_convolution_desc_t d;
	dnnl_status_t s = dnnl_dilated_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, c->x, c->w, c->y,
									   c->strides, c->dilates, c->pad_l, c->pad_r);

	return s == dnnl_success ? dnnl_primitive_desc_create(out, &d, attr, engine, hint) : s;
#endif
}
#endif
