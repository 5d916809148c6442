/* Building the graph of one step: what a model's `build` calls.
 *
 * A graph describes one step for one shape as a list of ops on named tensors. Building never checks errors line by
 * line: the graph keeps the first error, later calls do nothing, and tn_graph_status (or compiling) returns it with
 * the file, line and shapes of the call that caused it. Handles are small values; id 0 means "none", so that an
 * option left out of a call is an absent tensor. */
#ifndef TENON_GRAPH_H
#define TENON_GRAPH_H

#include <tenon/status.h>
#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_graph tn_graph;
typedef struct tn_ref {
    int32_t id;
} tn_ref;

#define TN_NONE ((tn_ref){ 0 })

/* --- life ------------------------------------------------------------------------------------------------------ */

typedef enum tn_device { TN_CPU = 0, TN_CUDA = 1, TN_DEVICES = 2 } tn_device;

typedef struct tn_graph_options {
    tn_dtype activation; /* type of activations: TN_F32 (default), TN_BF16 or TN_F16 */
    tn_dtype round;      /* matrix operands are rounded to this: TN_F32 (not at all), TN_BF16, TN_F16 (compute=) */
    bool bf16x3;         /* ... or split into three bf16 parts (compute=bf16x3), where that is faster than f32 */
    bool tf32;           /* ... or, on a GPU, f32 operands are rounded to 11 bits inside the product (compute=tf32) */
    bool training;       /* dropout acts */
    int threads;         /* the most a context running it may have; 0 = 1 */
    const char *const *off; /* names of switches that are off ("opt.scan"), NULL-terminated, or NULL */
    bool carried;           /* a piece of a sequence, to be differentiated through its ends: caches are inputs with a
                              * gradient, and what is assigned to one is put out as "next.NAME" */
    tn_device device; /* it will be compiled for: bodies of loops are compiled at once, and an op that has no kernel
                              * there becomes its plain twin */
    bool frozen;      /* all parameters are, as between tn_frozen_begin and tn_frozen_end */
    tn_dtype weights; /* type of frozen matrices (tn_matrix): TN_F32 (default), TN_BF16 or TN_F16 */
    bool instruments; /* a model may also put out what its instruments ask for, under names that begin with "look." */
    tn_dtype parts;   /* where `frozen` is set: type of matrices that are frozen in training too; TN_F32: as weights */
} tn_graph_options;

tn_status tn_graph_new(const tn_graph_options *o, tn_graph **out);
void tn_graph_free(tn_graph *g);
tn_status tn_graph_status(const tn_graph *g);
const tn_graph_options *tn_graph_get_options(const tn_graph *g);
bool tn_graph_switch(const tn_graph *g, const char *name); /* false when the switch is off */

/* --- tensors that live outside the graph ------------------------------------------------------------------------- */

typedef struct tn_init {
    enum { TN_INIT_CONSTANT, TN_INIT_NORMAL, TN_INIT_UNIFORM, TN_INIT_CALL } kind;
    float a, b; /* value; deviation; bounds */
    /* Fills x (n numbers, row-major) from draws of `uniform(ctx, i)` in [0,1), i = 0, 1, 2, ... */
    void (*fill)(float *x, tn_dims dims, float (*uniform)(const void *ctx, uint64_t i), const void *ctx,
                 const float *p);
    float p[4]; /* parameters for fill */
} tn_init;

#define tn_zeros ((tn_init){ .kind = TN_INIT_CONSTANT })
#define tn_ones ((tn_init){ .kind = TN_INIT_CONSTANT, .a = 1 })
#define tn_constant(v) ((tn_init){ .kind = TN_INIT_CONSTANT, .a = (v) })
#define tn_normal(std) ((tn_init){ .kind = TN_INIT_NORMAL, .a = (std) })
#define tn_uniform(lo, hi) ((tn_init){ .kind = TN_INIT_UNIFORM, .a = (lo), .b = (hi) })

typedef struct tn_param_options {
    int unused_;
    float lr;      /* factor on the learning rate; 0 = 1 */
    bool no_decay; /* no weight decay (vectors never have any) */
    bool decay;    /* weight decay although it is a vector */
} tn_param_options;

/* A trainable tensor. Its full name is the path of the open scopes and `name`; asking twice gives the same tensor
 * (tied weights), and then shapes must agree. */
#define tn_param(g, name, dims, init, ...)                                                                             \
    tn_param_((g), __FILE__, __LINE__, (name), (dims), (init), (tn_param_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_param_(tn_graph *g, const char *file, int line, const char *name, tn_dims dims, tn_init init,
                 tn_param_options o);
/* A matrix of weights for ops that read halves (linear, embed, linear_xent, linear_kl): a tn_param, but one that is frozen has the
 * type of the graph's option `weights`. */
#define tn_matrix(g, name, dims, init) tn_matrix_((g), __FILE__, __LINE__, (name), (dims), (init))
tn_ref tn_matrix_(tn_graph *g, const char *file, int line, const char *name, tn_dims dims, tn_init init);
/* The parameter with this full name, made earlier in this graph. */
#define tn_tied(g, full_name) tn_tied_((g), __FILE__, __LINE__, (full_name))
tn_ref tn_tied_(tn_graph *g, const char *file, int line, const char *full_name);
/* A tensor that is never trained; kept in its own type, without gradient or optimizer memory. */
#define tn_frozen(g, name, dims, dtype, init) tn_frozen_((g), __FILE__, __LINE__, (name), (dims), (dtype), (init))
tn_ref tn_frozen_(tn_graph *g, const char *file, int line, const char *name, tn_dims dims, tn_dtype dtype,
                  tn_init init);
/* Parameters made between these are not trained: same names, same first numbers, and they are in files of weights and checkpoints, but
 * they have no gradient and no optimizer memory. What flows through them to trained ones stays. Pairs may be nested. */
void tn_frozen_begin(tn_graph *g);
void tn_frozen_end(tn_graph *g);
/* A tensor that a step reads and (through tn_assign) leaves behind for the next one; zero at first. Saved. */
#define tn_state(g, name, dims, dtype) tn_state_((g), __FILE__, __LINE__, (name), (dims), (dtype), false)
/* The same, not saved: can be rebuilt (KV caches). */
#define tn_cache(g, name, dims, dtype) tn_state_((g), __FILE__, __LINE__, (name), (dims), (dtype), true)
tn_ref tn_state_(tn_graph *g, const char *file, int line, const char *name, tn_dims dims, tn_dtype dtype, bool cache);
/* What the caller supplies for every step. */
#define tn_input(g, name, dims, dtype) tn_input_((g), __FILE__, __LINE__, (name), (dims), (dtype))
tn_ref tn_input_(tn_graph *g, const char *file, int line, const char *name, tn_dims dims, tn_dtype dtype);
/* A run-time scalar (f32, shape (1)): a number in memory, never baked into a plan. */
#define tn_scalar(g, name, initial) tn_scalar_((g), __FILE__, __LINE__, (name), (initial))
tn_ref tn_scalar_(tn_graph *g, const char *file, int line, const char *name, float initial);

/* --- results ----------------------------------------------------------------------------------------------------- */

void tn_output(tn_graph *g, const char *name, tn_ref x); /* kept until the end of the step, found by name, contiguous */
void tn_assign(tn_graph *g, tn_ref state, tn_ref value); /* state := value once the step is over */

/* --- views and gradients ----------------------------------------------------------------------------------------- */

#define tn_reshape(g, x, dims) tn_reshape_((g), __FILE__, __LINE__, (x), (dims))
tn_ref tn_reshape_(tn_graph *g, const char *file, int line, tn_ref x, tn_dims dims);
/* Elements [start, start+length) of an axis (negative: from the end). No copy. */
#define tn_slice(g, x, axis, start, length) tn_slice_((g), __FILE__, __LINE__, (x), (axis), (start), (length))
tn_ref tn_slice_(tn_graph *g, const char *file, int line, tn_ref x, int axis, int64_t start, int64_t length);
/* Part i of n equal parts of the last axis. No copy. */
#define tn_part(g, x, i, n) tn_part_((g), __FILE__, __LINE__, (x), (i), (n))
tn_ref tn_part_(tn_graph *g, const char *file, int line, tn_ref x, int i, int n);
/* Axes in a new order: axis j of the result is axis order[j] of x. No copy. */
#define tn_transpose(g, x, ...)                                                                                        \
    tn_transpose_((g), __FILE__, __LINE__, (x), (const int[]){ __VA_ARGS__ },                                          \
                  (int)(sizeof((int[]){ __VA_ARGS__ }) / sizeof(int)))
tn_ref tn_transpose_(tn_graph *g, const char *file, int line, tn_ref x, const int *order, int n);

tn_ref tn_stop_gradient(tn_graph *g, tn_ref x);
tn_ref tn_want_gradient(tn_graph *g, tn_ref input); /* also differentiate by this input */
/* y with another gradient: when dL/dy is known, `build` makes the gradients of xs with ordinary ops
 * (dx[i].id = 0: none). The graph that made y is not differentiated. */
typedef void tn_grad_build(tn_graph *g, tn_ref dy, const tn_ref *xs, int n, tn_ref *dx, void *user);
tn_ref tn_custom_gradient(tn_graph *g, tn_ref y, const tn_ref *xs, int n, tn_grad_build *build, void *user);

/* --- live extents -------------------------------------------------------------------------------------------------- */

/* Only the first *count rows (axis 0) of x are alive; count is an i32 tensor of shape (1). Row-wise ops keep it. */
#define tn_live(g, x, count) tn_live_((g), __FILE__, __LINE__, (x), (count))
tn_ref tn_live_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref count);

/* --- names: scopes for parameters, regions for time -------------------------------------------------------------- */

typedef struct tn_region {
    int32_t previous;
    int32_t name_length;
    int32_t segment;
} tn_region;

/* Opens a scope: parameters get its name as a prefix, and time, FLOPs and bytes are accounted to it. */
tn_region tn_region_begin(tn_graph *g, const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
/* The same, and what it computes is a segment: plan.recompute=layer drops its activations, and computes them again for the gradient.
 * A segment inside another is a part of that one. */
tn_region tn_segment_begin(tn_graph *g, const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
void tn_region_end(tn_graph *g, tn_region r);
const char *tn_scope(
    const tn_graph *g); /* the path of those that are open, "" at the top; until the next is opened or closed */

/* --- looking -------------------------------------------------------------------------------------------------------- */

tn_dims tn_ref_dims(const tn_graph *g, tn_ref x);
tn_dtype tn_ref_dtype(const tn_graph *g, tn_ref x);
bool tn_ref_trainable(const tn_graph *g, tn_ref x);        /* a gradient flows into it */
int64_t tn_ref_dim(const tn_graph *g, tn_ref x, int axis); /* negative axes count from the end */

#ifdef __cplusplus
}
#endif
#endif
