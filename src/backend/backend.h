/* The device contract: one const table per device, in four groups (identity, memory, order, math).
 *
 * An op is one mathematical step; it takes a stream, returns 0 or -errno, and knows no layers, nets or
 * cfg. Results are ready when the stream reaches the call. On the CPU the compute stream runs inline in
 * the caller; communication streams are FIFOs served by the device's one progress thread.
 * Tensors are device memory, DN_ALIGN aligned, described by struct dn_tensor; one descriptor stands for a tensor and its
 * gradient. Biases, scales, statistics, norms and gradients of params are f32. An op that lacks a type or a layout says so with
 * -ENOTSUP and writes nothing. Sizes are elements unless "bytes" is said.
 * Work may end later than its call: an op owns its scalars, descriptors and arrays of pointers from the call on; the tensors
 * and objects that it names stay until the stream has passed, or was aborted.
 * Gradients have Darknet's sign: delta = -dL/dy (ascent), everywhere.
 */
#ifndef DN_BACKEND_BACKEND_H
#define DN_BACKEND_BACKEND_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "backend/tensor.h"
#include "base/mem.h"
#include "base/status.h"
#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
/* X(enum, name in a cfg, of_input). The gradient is a function of the output y (docs/layers.md, Activations), or with of_input of the
 * input x: those are not monotonic, so y does not tell. */
#define DN_ACT_TABLE(X) \
	X(DN_ACT_LINEAR, "linear", false) \
	X(DN_ACT_LOGISTIC, "logistic", false) \
	X(DN_ACT_RELU, "relu", false) \
	X(DN_ACT_LEAKY, "leaky", false) \
	X(DN_ACT_TANH, "tanh", false) \
	X(DN_ACT_LOGGY, "loggy", false) \
	X(DN_ACT_ELU, "elu", false) \
	X(DN_ACT_SELU, "selu", false) \
	X(DN_ACT_RELIE, "relie", false) \
	X(DN_ACT_RAMP, "ramp", false) \
	X(DN_ACT_PLSE, "plse", false) \
	X(DN_ACT_STAIR, "stair", false) \
	X(DN_ACT_HARDTAN, "hardtan", false) \
	X(DN_ACT_LHTAN, "lhtan", false) \
	X(DN_ACT_RELU6, "relu6", false) \
	X(DN_ACT_REVLEAKY, "revleaky", false) \
	X(DN_ACT_SWISH, "swish", true) \
	X(DN_ACT_MISH, "mish", true) \
	X(DN_ACT_HARD_MISH, "hard_mish", true) \
	X(DN_ACT_GELU, "gelu", true)
/* clang-format on */
#define DN_TABLE_ENUM_(row, ...) row,
enum dn_act { DN_ACT_TABLE(DN_TABLE_ENUM_) DN_ACTS };

/** dn_act_of_input() - act_backward() of such an activation takes x in place of y */
DN_EXPORT bool dn_act_of_input(enum dn_act a);
/** dn_act_find() - by cfg name; -EINVAL without a message when unknown (the caller knows the line) */
DN_EXPORT int dn_act_find(const char *name, enum dn_act *out);
/** dn_act_names() - "linear, logistic, relu, ..." for messages */
DN_EXPORT const char *dn_act_names(void);

struct dn_gemm_desc { /* row-major c[m, n] = alpha * op(a) * op(b) + beta * c; beta 0: c is not read */
	bool ta, tb;  /* op transposes */
	int64_t m, n, k;
	float alpha, beta;
	int64_t lda, ldb, ldc;
	enum dn_type a, b, c;
};

/* of matrices without gaps between their rows; alpha is 1 */
static inline struct dn_gemm_desc dn_gemm_dense(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float beta)
{
	struct dn_gemm_desc d = { ta, tb, m, n, k, 1, beta, ta ? m : k, tb ? k : n, n, DN_F32, DN_F32, DN_F32 };

	return d;
}

struct dn_conv_desc {
	struct dn_tensor x, y; /* [n, c, h, w] to [n, filters, oh, ow] */
	enum dn_type weights;  /* [filters, c / groups, size, size] */
	int64_t groups, size, stride, pad, dilation;
	bool bias;	 /* y = act(conv + bias) instead of act(conv) */
	enum dn_act act; /* applied in forward; backward ops get dy already times act' */
	bool train;	 /* backward ops will be called */
};

struct dn_pool_desc {
	struct dn_tensor x, y;	   /* [n, c, h, w] to [n, c, oh, ow] */
	int64_t size, stride, pad; /* pad = total padding; the window starts at x * stride - pad / 2 */
};

struct dn_bn_desc {
	struct dn_tensor x; /* and y */
	bool legacy;	    /* Darknet's CPU rule: variance / (N-1), (x-m)/(sqrt(v)+1e-6) forward,
					 * 1e-5 inside the root and /N backward; else biased variance, 1e-5 inside */
	enum dn_act act;    /* y = act(scale * xhat + bias) */
};

struct dn_shortcut_desc {
	struct dn_tensor src, y; /* y: and the direct input */
	float alpha, beta;	 /* on the overlap: alpha * direct + beta * src; elsewhere direct */
};

/* Numbers that change from pass to pass or from step to step. Ops take a pointer to one such struct in device memory and read
 * it when the stream gets there, never by value: a recorded step can run again with other numbers. */
struct dn_numbers {
	uint64_t seed;
	uint64_t first_image;	   /* global number of this rank's first image */
	double rate;		   /* of the policy; a param's own rate is rate * lr_scale */
	double images;		   /* E, images of the update over all ranks */
	double factor;		   /* on the gradient; 1 = none */
	double correct1, correct2; /* of adam: 1 / (1 - beta^t) */
};

/* NOTE(exact): a sum of powers without rounding: the same bits whatever the order, the threads and the parts in which it is made.
 * Word k counts 2^(32 k - 149 p); every op leaves words below 2^32, so those of several sums may be added. */
#define DN_EXACT_WORDS 20
struct dn_exact {
	uint64_t word[DN_EXACT_WORDS];
	uint64_t max; /* bits of the largest finite |x| as a float */
};

struct dn_look_desc {
	int p;	     /* 1, 2: of the sum; 0: none is made */
	float limit; /* elements beyond it become +-limit first; 0 = none */
};

struct dn_dropout_key { /* element j of image i draws from (seed, stream, first_image + i, j) */
	uint64_t stream;
	float probability;
};

#define DN_IGNORE (-1234.0f) /* a target that means: this element has no loss and no gradient */

/* loss of an element, delta = -dL/dp up to the factor that Darknet leaves out; d = t - p
 * SSE d^2, d.  MASKED: SSE but for targets DN_IGNORE.  L1 |d|, +1 if t > p else -1.  SMOOTH: d^2 and d where |d| < 1,
 * else 2|d| - 1 and the sign of d.  WGAN: -p and +1 if t > 0, else p and -1.
 * SOFTMAX_CE: -log p of every target that is neither 0 nor DN_IGNORE; d, 0 where ignored.
 * LOGISTIC_CE: -t log p - (1 - t) log(1 - p), d.  Logarithms take at least FLT_MIN. */
/* clang-format off */
/* X(enum, name): what a [cost] section may ask for, and what softmax and logistic layers have */
#define DN_COST_CHOICES(X) \
	X(DN_COST_SSE, "sse") \
	X(DN_COST_MASKED, "masked") \
	X(DN_COST_SMOOTH, "smooth") \
	X(DN_COST_L1, "L1") \
	X(DN_COST_WGAN, "wgan")
#define DN_COST_TABLE(X) \
	DN_COST_CHOICES(X) \
	X(DN_COST_SOFTMAX_CE, "softmax_ce") \
	X(DN_COST_LOGISTIC_CE, "logistic_ce")
/* second names */
#define DN_COST_ALIASES(X) \
	X(DN_COST_SSE, "seg")
/* clang-format on */
enum dn_cost { DN_COST_TABLE(DN_TABLE_ENUM_) DN_COSTS };

/** dn_cost_find() - one that a [cost] section may name; -EINVAL without a message when unknown */
DN_EXPORT int dn_cost_find(const char *name, enum dn_cost *out);
DN_EXPORT const char *dn_cost_names(void); /* "sse, masked, ..." of those */

struct dn_tree_desc {	       /* classes in a hierarchy; host memory */
	int64_t c;	       /* nodes; a parent stands before its children */
	const int32_t *parent; /* [c], -1 at the top */
	int n_groups;
	const int32_t *group_at; /* [n_groups + 1] first class of each group */
};

struct dn_softmax_desc {		 /* over groups of channels, at each point of each image */
	struct dn_tensor x;		 /* and y */
	int n_groups;			 /* of equal size */
	const struct dn_tree_desc *tree; /* its groups instead; read by softmax_create() only */
	float temperature;
};

struct dn_reorg_desc { /* point i, j, k of narrow, [c, h, w]; wide [c/s^2, h*s, w*s]; with c2 = c / s^2 and
					 * o = k / c2 the wide point is (i*s + o%s, j*s + o/s, k%c2) */
	struct dn_tensor narrow;
	int64_t stride;
};

struct dn_crop_desc { /* y[c, oh, ow] of x[c, h, w], then scale * v + shift */
	struct dn_tensor x, y;
	float scale, shift;
	bool random; /* offset and flip of image i from (seed, stream, first_image + i); else centred */
	bool flip;
	uint64_t stream;
};

struct dn_lrn_desc {	    /* N = kappa + alpha * sum of x^2 over channels k-(size-1)/2 .. k+size/2; y = x N^-beta */
	struct dn_tensor x; /* and y */
	int64_t size;
	float alpha, beta, kappa;
};

enum dn_scale { DN_SCALE_EACH, DN_SCALE_CHANNEL, DN_SCALE_POINT };

struct dn_scale_desc {	    /* y[n, c, hw] = a * b; a is [n, c, hw], one a channel [n, c], or one a point [n, hw] */
	struct dn_tensor y; /* and b; a has its type */
	enum dn_scale by;
};

/* What sum_tree() adds, part by part. By value: a launch can carry it to a device. */
struct dn_parts {
	enum dn_type type;
	int n, own; /* part own is mine, those before and behind it lie one after the other; own = n: none is mine */
	const void *mine;
	const void *others; /* part i at i (behind own: i - 1) strides */
	size_t stride_bytes;
};

struct dn_sgd { /* see sgd(); what does not change while a param is trained */
	double lr_scale;
	double momentum;
	double decay;
};

struct dn_adam { /* see adam() */
	double lr_scale;
	double beta1, beta2, eps;
	double decay;
	bool decoupled; /* decay shrinks w before the step (adamw); else it is part of the gradient */
};

struct dn_device;
struct dn_stream;
struct dn_event;
struct dn_conv;	   /* a prepared convolution: primitives of one shape */
struct dn_softmax; /* a prepared softmax: its groups, and the hierarchy that they may come from, in device memory */

enum dn_stream_kind { DN_STREAM_COMPUTE, DN_STREAM_COMM };

/* Host work on a communication stream. The progress thread calls start once, then poll until *done; both
 * return 0 or -errno. describe() says what a late task waits for ("rank 2 has not sent its piece 3").
 * A task may queue ops and copies on its own stream. They run in their order, ahead of all that is queued behind the task, and
 * may end after the call: the task records an event behind them, on the same stream, and is done no earlier than event_done()
 * says; event_wait() then returns at once, with their error. */
struct dn_task {
	int (*start)(void *arg);			    /* NULL = nothing */
	int (*poll)(void *arg, bool *done);		    /* NULL = done after start */
	void (*describe)(void *arg, char *out, size_t cap); /* NULL = nothing to add */
	void *arg;
	const char *label; /* "gather of block stage1"; borrowed until the task has ended */
};

struct dn_device_desc {	  /* which device, and what the host may use beside it */
	const char *kind; /* "cpu", "cuda" */
	int ordinal;	  /* of that kind on this host */
	int threads;	  /* of the math library, >= 1 */
};

#define DN_CPU(n) (&(const struct dn_device_desc){ "cpu", 0, n }) /* this host with @n threads */

struct dn_facts { /* what a plan may depend on: printed, agreed between ranks */
	const char *backend;
	int threads;
	size_t align_bytes;
	const char *library; /* "oneDNN 2.6.3" or "none" */
	const char *isa;     /* instruction set that its kernels are picked by: "avx2"; bits depend on it, plans do not; "none" */
	bool host_access;    /* the host, and so a channel of the host, may read and write device memory */
};

struct dn_backend {
	const char *name, *summary;

	/* --- identity --- */
	int (*open)(const struct dn_device_desc *d,
		    struct dn_device **out);  /* -EINVAL: a kind or ordinal that it does not serve */
	void (*close)(struct dn_device *dev); /* stops the progress thread; waits for nothing else */
	int (*memory)(struct dn_device *dev, size_t *free_bytes, size_t *total_bytes);
	void (*facts)(const struct dn_device *dev, struct dn_facts *out);

	/* --- memory ---
	 * Device memory of a region: what ops work on, and nobody else unless facts.host_access lets the host as well. Its contents
	 * are unspecified until written: who needs zeros calls zero(). Host memory of a region is the one legal host's side of a
	 * copy (pinned on a device), unspecified too. Both are given back only when every stream that uses them has passed that
	 * work, or was aborted: on error paths as well. NULL is legal to give back. */
	int (*alloc)(struct dn_device *dev, enum dn_region r, size_t bytes, void **out);
	void (*free)(struct dn_device *dev, void *p);
	int (*alloc_host)(struct dn_device *dev, enum dn_region r, size_t bytes, void **out);
	void (*free_host)(struct dn_device *dev, void *p);
	/* each side is device memory or host memory of alloc_host; the host's side is in use until the stream has passed: it is
	 * not written, where the copy writes it not read either */
	int (*copy)(struct dn_stream *st, void *dst, const void *src, size_t bytes);
	int (*zero)(struct dn_stream *st, void *dst, size_t bytes); /* device memory */

	/* --- order ---
	 * The first failure of a stream's work sticks to it: what is queued behind is skipped, and every later call that queues or
	 * waits on that stream returns it, as does every wait for an event that was recorded behind it. */
	/* @entries: tasks, copies, waits and records that a COMM stream may hold at a time; one more is -EAGAIN with a message.
	 * A compute stream needs no number: where it has a queue, a full one holds the caller. */
	int (*stream_create)(struct dn_device *dev, enum dn_stream_kind kind, const char *name, int entries,
			     struct dn_stream **out);
	/* What has not begun is dropped, an op that runs ends first, a task is never polled again: afterwards nothing of the stream
	 * touches memory. Events recorded behind complete with -ECANCELED (a failed stream: with its failure), and so ends every
	 * later call with it. Does not wait for tasks. */
	void (*stream_abort)(struct dn_stream *st);
	void (*stream_destroy)(struct dn_stream *st); /* aborts; NULL is legal. Owners destroy streams before they free memory */
	/* longest time that a task may take and a wait may last, 0 = for ever; applies to later tasks and waits */
	void (*set_timeout)(struct dn_device *dev, int64_t timeout_ms);
	/* @records: of this event that may be on their way at a time; one more is -EAGAIN with a message */
	int (*event_create)(struct dn_device *dev, const char *name, int records, struct dn_event **out);
	void (*event_destroy)(struct dn_event *ev); /* NULL is legal, and so are queued waits and records of it */
	int (*event_record)(struct dn_event *ev, struct dn_stream *st);
	/* later work on @st starts after the latest record of @ev made so far; never recorded = complete.
	 * A compute stream of the CPU blocks the caller here and returns the error of the stream that failed. */
	int (*stream_wait)(struct dn_stream *st, struct dn_event *ev);
	int (*event_wait)(struct dn_event *ev);					/* on the host */
	bool (*event_done)(struct dn_event *ev);				/* without waiting; errors count as done */
	int (*stream_submit)(struct dn_stream *st, const struct dn_task *task); /* COMM streams; copies *task; never allocates */
	int (*stream_sync)(struct dn_stream *st);	   /* host waits for all work so far; returns the stream's error */
	int64_t (*waited_ns)(const struct dn_device *dev); /* host or compute time spent waiting for events so far */

	/* --- math --- "acc": false overwrites the output, true adds to it. Values, weights and their copies are void: their type
	 * is the descriptor's. What an op returns to the host (losses, counts) is device memory like the rest. */
	int (*gemm)(struct dn_stream *st, const struct dn_gemm_desc *d, const void *a, const void *b, void *c);

	int (*conv_create)(struct dn_device *dev, const struct dn_conv_desc *d, struct dn_conv **out);
	void (*conv_destroy)(struct dn_conv *cv);
	/* of the hungriest op below; @acc: with conv_backward_weights() that adds */
	size_t (*conv_workspace_bytes)(const struct dn_conv *cv, bool acc);
	/* weights in the library's own layout, for values that do not change between calls; 0 = plain is used anyway */
	size_t (*conv_packed_bytes)(const struct dn_conv *cv);
	int (*conv_pack)(struct dn_stream *st, struct dn_conv *cv, const void *w, void *packed, void *ws);
	/* packed (may be NULL) replaces w; bias may be NULL when the desc has none */
	int (*conv_forward)(struct dn_stream *st, struct dn_conv *cv, const void *x, const void *w, const void *packed,
			    const float *bias, void *y, void *ws);
	/* NOTE(added gradients): where acc adds to a param's gradient, this call's own sum is rounded first and added then */
	int (*conv_backward_weights)(struct dn_stream *st, struct dn_conv *cv, const void *x, const void *dy, float *dw, bool acc,
				     void *ws);
	int (*conv_backward_data)(struct dn_stream *st, struct dn_conv *cv, const void *dy, const void *w, void *dx, bool acc,
				  void *ws);

	/* x -> act(x + bias[c]) in place; bias NULL = activation only */
	int (*bias_act)(struct dn_stream *st, const struct dn_tensor *t, void *x, const float *bias, enum dn_act act);
	int (*bias_backward)(struct dn_stream *st, const struct dn_tensor *t, const void *dy, float *db, bool acc);
	/* dy *= act', of the output y or, where dn_act_of_input(), of the input x */
	int (*act_backward)(struct dn_stream *st, const struct dn_tensor *t, enum dn_act act, const void *y, void *dy);

	/* batch statistics into mean[c], var[c] (var: biased, or / (N-1) with legacy), then y */
	int (*bn_forward_train)(struct dn_stream *st, const struct dn_bn_desc *d, const void *x, const float *scale,
				const float *bias, float *mean, float *var, void *y);
	/* y may be x itself. With the statistics that bn_forward_train() has written, y has its bits. */
	int (*bn_forward)(struct dn_stream *st, const struct dn_bn_desc *d, const void *x, const float *scale, const float *bias,
			  const float *mean, const float *var, void *y);
	/* dy is already times act'; dx may be dy itself (then acc = false); dx NULL = not wanted, dbias likewise. frozen: the
	 * statistics were constants (rolling), so their gradient is none; then dscale may be NULL where dbias is, and x is not read */
	int (*bn_backward)(struct dn_stream *st, const struct dn_bn_desc *d, bool frozen, const void *x, const float *mean,
			   const float *var, const float *scale, const void *dy, void *dx, bool acc, float *dscale, float *dbias,
			   bool acc_params);

	/* Batch normalisation over the images of several ranks, in parts: each rank adds up its own images, and what is asked for is
	 * the sum over ranks of what all wrote. @count: values of a channel over all ranks. Then bn_forward() with mean and var. */
	int (*bn_mean_part)(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *x, float *mean);
	/* mean is that over all ranks; var by the rule of @d */
	int (*bn_variance_part)(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *x, const float *mean,
				float *var);
	/* sums[c] of dy, then sums[c] of dy (x - mean); dscale and dbias (may be NULL) are those of this rank's images alone */
	int (*bn_backward_part)(struct dn_stream *st, const struct dn_bn_desc *d, const void *x, const float *mean,
				const float *var, const void *dy, float *sums, float *dscale, float *dbias, bool acc_params);
	/* sums are those over all ranks; dx may be dy itself, then acc = false */
	int (*bn_backward_data)(struct dn_stream *st, const struct dn_bn_desc *d, int64_t count, const void *x, const float *mean,
				const float *var, const float *scale, const float *sums, const void *dy, void *dx, bool acc);

	/* index: winner's position in the plane, -1 when the window is all padding (y is then 0). NaN inputs: a NaN wins. */
	int (*maxpool_forward)(struct dn_stream *st, const struct dn_pool_desc *d, const void *x, void *y, int32_t *index);
	int (*maxpool_backward)(struct dn_stream *st, const struct dn_pool_desc *d, const void *dy, const int32_t *index,
				void *dx, bool acc);
	/* @t: of x; y has one element a channel */
	int (*avgpool_forward)(struct dn_stream *st, const struct dn_tensor *t, const void *x, void *y);
	int (*avgpool_backward)(struct dn_stream *st, const struct dn_tensor *t, const void *dy, void *dx, bool acc);

	/* mean over the part of each window that lies in the image; a window without such a part gives 0 */
	int (*local_avg_forward)(struct dn_stream *st, const struct dn_pool_desc *d, const void *x, void *y);
	int (*local_avg_backward)(struct dn_stream *st, const struct dn_pool_desc *d, const void *dy, void *dx, bool acc);

	int (*dropout_forward)(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num,
			       const struct dn_tensor *t, const void *x, void *y);
	int (*dropout_backward)(struct dn_stream *st, const struct dn_dropout_key *k, const struct dn_numbers *num,
				const struct dn_tensor *t, const void *dy, void *dx, bool acc);

	int (*softmax_create)(struct dn_device *dev, const struct dn_softmax_desc *d, struct dn_softmax **out);
	void (*softmax_destroy)(struct dn_softmax *sm);
	/* y may not be x */
	int (*softmax_forward)(struct dn_stream *st, const struct dn_softmax *sm, const void *x, void *y);
	/* NOTE(targets): @t describes the target. Of the type of x: one number for every element of x. i32: the number of a class
	 * for each group of channels at each point, [n, groups, h, w], counted from 0 within its group; it stands for 1 at that
	 * class and 0 at the others, -1 for 0 everywhere. A number that is no class makes the loss NaN.
	 *
	 * *loss (f64) is overwritten with the sum of -log p over every target that is neither 0 nor DN_IGNORE, p the softmax of
	 * x / temperature; from x, since the float p of a confident row has lost all digits of 1 - p */
	int (*softmax_loss)(struct dn_stream *st, const struct dn_softmax *sm, const void *x, const struct dn_tensor *t,
			    const void *truth, double *loss);
	/* of a tree: out is truth with every ancestor of a positive class set to 1, and groups without a positive one to DN_IGNORE;
	 * both are described as x is */
	int (*tree_truth)(struct dn_stream *st, const struct dn_softmax *sm, const void *truth, void *out);
	/* *loss (f64) is overwritten with the sum over elements; delta is overwritten. @p describes p and delta; @t: NOTE(targets),
	 * groups of equal size */
	int (*cost)(struct dn_stream *st, enum dn_cost kind, const struct dn_tensor *p, const void *x, const struct dn_tensor *t,
		    const void *truth, void *delta, double *loss);

	/* y = alpha * x + beta * y (beta 0: y is not read) */
	int (*axpby)(struct dn_stream *st, enum dn_type type, int64_t n, float alpha, const void *x, float beta, void *y);
	/* rows of n elements with strides */
	int (*copy_rows)(struct dn_stream *st, enum dn_type type, int64_t rows, int64_t n, const void *src, int64_t src_stride,
			 void *dst, int64_t dst_stride, bool acc);
	/* alpha * direct + beta * src on the overlap, direct elsewhere */
	int (*shortcut_forward)(struct dn_stream *st, const struct dn_shortcut_desc *d, const void *direct, const void *src,
				void *y);
	/* dsrc += / = beta * dy on the overlap (acc false: zero elsewhere) */
	int (*shortcut_backward_src)(struct dn_stream *st, const struct dn_shortcut_desc *d, const void *dy, void *dsrc,
				     bool acc);

	/* y[n, c, h*s, w*s] (+)= scale * x of the block's point; @narrow: x */
	int (*upsample)(struct dn_stream *st, const struct dn_tensor *narrow, int64_t stride, float scale, const void *x, void *y,
			bool acc);
	/* the transposed step: y[n, c, h, w] (+)= scale * sum of the s x s block of x[n, c, h*s, w*s]; @narrow: y */
	int (*block_sum)(struct dn_stream *st, const struct dn_tensor *narrow, int64_t stride, float scale, const void *x,
			 void *y, bool acc);
	/* narrow: y[narrow] (+)= x[wide], else y[wide] (+)= x[narrow]; each is the gradient of the other */
	int (*reorg)(struct dn_stream *st, const struct dn_reorg_desc *d, bool narrow, const void *x, void *y, bool acc);
	/* y[n, h*w, c] (+)= x[n, c, h*w]; @t: x */
	int (*transpose)(struct dn_stream *st, const struct dn_tensor *t, const void *x, void *y, bool acc);
	int (*crop_forward)(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const void *x,
			    void *y);
	int (*crop_backward)(struct dn_stream *st, const struct dn_crop_desc *d, const struct dn_numbers *num, const void *dy,
			     void *dx, bool acc);
	/* norm: N of every element of x, for the gradient */
	int (*lrn_forward)(struct dn_stream *st, const struct dn_lrn_desc *d, const void *x, float *norm, void *y);
	int (*lrn_backward)(struct dn_stream *st, const struct dn_lrn_desc *d, const void *x, const float *norm, const void *dy,
			    void *dx, bool acc);
	/* norm[n, h, w] over the channels of a point; a point of zeros stays zero and has no gradient */
	int (*l2norm_forward)(struct dn_stream *st, const struct dn_tensor *t, const void *x, float *norm, void *y);
	int (*l2norm_backward)(struct dn_stream *st, const struct dn_tensor *t, const void *y, const float *norm, const void *dy,
			       void *dx, bool acc);
	/* a convolution with weights of its own at every output point: w[oh*ow, filters, c, size, size]; groups and dilation are 1,
	 * pad on the left and above, outside the input is 0 on every side; bias and act of the desc are not applied */
	int (*local_forward)(struct dn_stream *st, const struct dn_conv_desc *d, const void *x, const void *w, void *y);
	int (*local_backward_weights)(struct dn_stream *st, const struct dn_conv_desc *d, const void *x, const void *dy,
				      float *dw, bool acc);
	int (*local_backward_data)(struct dn_stream *st, const struct dn_conv_desc *d, const void *dy, const void *w, void *dx,
				   bool acc);
	int (*scale_forward)(struct dn_stream *st, const struct dn_scale_desc *d, const void *a, const void *b, void *y,
			     bool acc);
	/* da (+)= dy * b, summed over what shares an a */
	int (*scale_backward)(struct dn_stream *st, const struct dn_scale_desc *d, const void *b, const void *dy, void *da,
			      bool acc);
	/* y = +1 where x > 0, else -1, times the mean of |x| over the row when @mean */
	int (*binarize)(struct dn_stream *st, enum dn_type type, int64_t rows, int64_t n, bool mean, const void *x, void *y);

	/* w and the states are f32 whatever the gradients g of @type are. With rate = num->rate * lr_scale, E = num->images,
	 * f = num->factor, each factor computed in double and rounded once:
	 * v = momentum * v + f * g - decay * E * w;  w += rate / E * v */
	int (*sgd)(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_sgd *o, const struct dn_numbers *num,
		   float *w, float *v, const void *g);
	/* u = f / E * g - decay * w (decoupled: no decay);  m = b1 m + (1-b1) u;  v = b2 v + (1-b2) u^2;
	 * w = shrink * w + rate * (m correct1) / (sqrt(v correct2) + eps), shrink = decoupled ? 1 - rate * decay : 1 */
	int (*adam)(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_adam *o, const struct dn_numbers *num,
		    float *w, float *m, float *v, const void *g);
	/* out (= or +=, f32) the sum of parts of n elements by the fixed binary tree over the index, split at the largest
	 * power of two below the count; out may be one of the parts only at acc = false. Parts are f32, bf16 or f16, widened before
	 * they are added; those of 16 bits do not share bytes with out. */
	int (*sum_tree)(struct dn_stream *st, int64_t n, const struct dn_parts *parts, float *out, bool acc);
	/* NOTE(16 bits): @type is bf16 or f16. A float becomes the nearest number of that type, of two equally near ones the even
	 * one, and infinity where it is at least half a step beyond the largest. What is not a number stays so: sign and the
	 * upper bits of its fraction, with the first of them set (of f16 in both directions, as processors do it).
	 * Elements go in ascending order as far as memory is shared: y may be x in narrow(), or end no later than x in widen().
	 * The side of 16 bits, as parts of sum_tree(), begins at a multiple of DN_ALIGN / 2. */
	int (*narrow)(struct dn_stream *st, enum dn_type type, int64_t n, const float *x, void *y);
	int (*widen)(struct dn_stream *st, enum dn_type type, int64_t n, const void *x, float *y);
	/* *count is overwritten */
	int (*count_nonfinite)(struct dn_stream *st, enum dn_type type, int64_t n, const void *x, int64_t *count);
	/* *bad += elements that are not finite; then limit; *sum (may be NULL) += |x|^p of the finite ones, max is kept. x is
	 * written with a limit only. */
	int (*look)(struct dn_stream *st, enum dn_type type, int64_t n, const struct dn_look_desc *d, void *x,
		    struct dn_exact *sum, int64_t *bad);
};

/** dn_exact_value() - the sum of words (whole numbers, perhaps of several sums added up), rounded in one fixed way */
DN_EXPORT double dn_exact_value(const double word[DN_EXACT_WORDS], int p);

struct dn_device {
	const struct dn_backend *be;
	int threads;
	/* private to the backend: embedded as the first member of its own struct */
};

/** dn_backend_find() - by name; NULL with a message that lists the names */
DN_EXPORT const struct dn_backend *dn_backend_find(const char *name);
/* The next three are for programs that check back ends or bring one; a run asks for its own by name. */
DN_EXPORT const struct dn_backend *const *dn_backend_all(void); /* ends at NULL */
/** dn_backend_add() - one more, from outside this library; before any thread and any lookup
 * -EEXIST when the name is taken, -ENOSPC beyond a few. */
DN_EXPORT int dn_backend_add(const struct dn_backend *be);
/* for tables of options: "ref|cpu" and what was added, and the one that is taken when nobody asks for another */
DN_EXPORT extern char dn_backend_choices[], dn_backend_default[];
/** dn_backend_prefer() - make @name, which exists, the default */
DN_EXPORT int dn_backend_prefer(const char *name);

#ifdef __cplusplus
}
#endif
#endif
