/* Attention through cuDNN's fused kernel: y = softmax(scale q k^T) v, with or without a causal mask.
 *
 *     q, y (B,T,H,D)    k, v (B,S,KV,D) with H a multiple of KV    lse (B,H,T), contiguous
 *
 * bf16 with contiguous rows that start at multiples of 16 bytes; lse is f32, the natural logarithm of the sum of
 * exponentials of a query's scores. causal needs T = S. What cuDNN's plan for a shape is, and whether there is one, is
 * found out when the shape is first seen, and looked up afterwards.
 *
 * There is no backward pass: cuDNN's kernel whose sums have an order keeps the gradients of all B H T S scores in memory,
 * and takes as long as ours when it has that much. */
#ifndef TN_BACKEND_CUDA_CUDNN_ATTENTION_H
#define TN_BACKEND_CUDA_CUDNN_ATTENTION_H

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TN_DNN_WORK = 64 << 10 }; /* bytes of work; plans that want more are not taken */

typedef struct tn_dnn_view {
    void *data;
    int64_t b, n, h; /* steps of sequence, token and head, in elements */
} tn_dnn_view;

typedef struct tn_dnn_attention {
    int64_t B, T, S, H, KV, D;
    bool causal;
    float scale;
    tn_dnn_view q, k, v, y;
    float *lse; /* NULL where nobody reads it */
    void *work; /* device memory, TN_DNN_WORK bytes, 256-byte aligned */
} tn_dnn_attention;

void tn_cuda_dnn_free(tn_cuda_dnn *d);

/* Whether a cuDNN can be loaded, so that memory for it is worth planning. */
bool tn_dnn_present(void);

/* *done: whether it was queued. Where cuDNN is absent, refuses, or is slower than `own` with the call c, the caller
 * computes it himself, as in a queue that is shared. Where $TENON_CUDNN asks for cuDNN by name, nothing is measured and what goes wrong is an error.
 * The first call with a shape may measure: never while recording. */
tn_status tn_dnn_attention_run(tn_cuda_queue *q, const tn_dnn_attention *a, const tn_call *c, tn_kernel *own,
                               bool *done);

#ifdef __cplusplus
}
#endif
#endif
