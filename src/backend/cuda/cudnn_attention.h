/* Attention through cuDNN's fused kernels: softmax(scale q k^T) v and its gradients, with or without a causal mask.
 *
 *     q, y, dy, dq (B,T,H,D)    k, v, dk, dv (B,S,KV,D) with H a multiple of KV    lse (B,H,T), contiguous
 *
 * bf16 with contiguous rows that start at multiples of 16 bytes; lse is f32, the natural logarithm of the sum of
 * exponentials of a query's scores. causal needs T = S. Gradients are overwritten.
 *
 * The backward kernel is the one whose sums have an order: it keeps the gradients of all scores, B H T S numbers of
 * bf16, in its workspace, so it is run on as many heads at a time as fit. What cuDNN's plan for a shape is, and whether
 * there is one, is found out when the shape is first seen, and looked up afterwards. */
#ifndef TN_BACKEND_CUDA_CUDNN_ATTENTION_H
#define TN_BACKEND_CUDA_CUDNN_ATTENTION_H

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_dnn_view {
    void *data;
    int64_t b, n, h; /* steps of sequence, token and head, in elements */
} tn_dnn_view;

typedef struct tn_dnn_size {
    int64_t B, T, S, H, KV, D;
} tn_dnn_size;

typedef struct tn_dnn_attention {
    tn_dnn_size size;
    bool causal;
    float scale;
    tn_dnn_view q, k, v, y;
    float *lse; /* forward: NULL where nobody reads it */
    bool backward;
    tn_dnn_view dy, dq, dk, dv;
    void *work; /* device memory, 256-byte aligned */
    size_t work_bytes;
} tn_dnn_attention;

void tn_cuda_dnn_free(tn_cuda_dnn *d);

/* Whether a cuDNN can be loaded, so that memory for it is worth planning. */
bool tn_dnn_present(void);
/* Bytes of work, `most` at most; 0: they are not enough for the backward pass of a single group of heads. */
size_t tn_dnn_attention_work(const tn_dnn_size *n, bool backward, size_t most);

/* *done: whether it was queued. Where cuDNN is absent, refuses, or is slower than `own` with the call c, the caller
 * computes it himself. Where $TENON_CUDNN asks for cuDNN by name, nothing is measured and what goes wrong is an error.
 * The first call with a shape may measure: never while recording. */
tn_status tn_dnn_attention_run(tn_cuda_queue *q, const tn_dnn_attention *a, const tn_call *c, tn_kernel *own, bool *done);

#ifdef __cplusplus
}
#endif
#endif
