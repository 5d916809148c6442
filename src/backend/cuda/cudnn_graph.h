/* Graphs of cuDNN operations, and the plan that runs one. Calls that build do not report one by one: the first error is
 * kept and tn_dnn_plan_make returns it.
 *
 * Tensors have four axes. A virtual one is a step inside the graph and has no memory; a scalar's value is given when the
 * plan runs, from host memory; all others are device memory. */
#ifndef TN_BACKEND_CUDA_CUDNN_GRAPH_H
#define TN_BACKEND_CUDA_CUDNN_GRAPH_H

#include "backend/cuda/cudnn.h"

enum { TN_DNN_MOST_OPS = 40, TN_DNN_MOST_MADE = 160 };

typedef struct tn_dnn_axes {
    int64_t dim[4], stride[4]; /* in elements */
} tn_dnn_axes;

typedef struct tn_dnn_tensor {
    tn_dnn_desc desc;
    int64_t id;
    tn_dnn_axes axes;
} tn_dnn_tensor;

typedef struct tn_dnn_graph {
    const tn_cudnn *lib;
    tn_dnn_handle handle;
    tn_status status;
    tn_dnn_desc op[TN_DNN_MOST_OPS], made[TN_DNN_MOST_MADE]; /* made: all of them, in order */
    int n_ops, n_made;
    int64_t next_id;
} tn_dnn_graph;

/* Contiguous axes. */
tn_dnn_axes tn_dnn_dense(int64_t a, int64_t b, int64_t c, int64_t d);
tn_dnn_axes tn_dnn_swapped(tn_dnn_axes x); /* the last two exchanged */

tn_dnn_tensor tn_dnn_memory(tn_dnn_graph *g, tn_dnn_type type, tn_dnn_axes x); /* 16-byte aligned */
tn_dnn_tensor tn_dnn_step(tn_dnn_graph *g, tn_dnn_type type, tn_dnn_axes x);   /* virtual */
tn_dnn_tensor tn_dnn_scalar(tn_dnn_graph *g, tn_dnn_type type);

void tn_dnn_add_matmul(tn_dnn_graph *g, tn_dnn_tensor a, tn_dnn_tensor b, tn_dnn_tensor c);
void tn_dnn_add_reduction(tn_dnn_graph *g, tn_dnn_reduction how, tn_dnn_tensor x, tn_dnn_tensor y);
/* y = x op b, of t where the operation has it: NULL where not. */
void tn_dnn_add_pointwise(tn_dnn_graph *g, tn_dnn_pointwise how, tn_dnn_type in, tn_dnn_tensor x,
                          const tn_dnn_tensor *b, const tn_dnn_tensor *t, tn_dnn_tensor y);
void tn_dnn_add_index(tn_dnn_graph *g, int64_t axis, tn_dnn_tensor x, tn_dnn_tensor y);
/* The same into a new f32 step with x's axes. */
tn_dnn_tensor tn_dnn_pointwise_step(tn_dnn_graph *g, tn_dnn_pointwise how, tn_dnn_tensor x, const tn_dnn_tensor *b);

/* The first of cuDNN's proposals that works. The plan outlives the graph. workspace: bytes of device memory it takes. */
tn_status tn_dnn_plan_make(tn_dnn_graph *g, tn_dnn_desc *plan, int64_t *workspace);
/* Frees what was built, not plans. */
void tn_dnn_graph_clear(tn_dnn_graph *g);

/* Queues the plan on the handle's stream. n memories and scalars: ids and pointers. */
tn_status tn_dnn_run(const tn_cudnn *lib, tn_dnn_handle handle, tn_dnn_desc plan, int n, const int64_t *ids,
                     void *const *pointers, void *workspace);

#endif
