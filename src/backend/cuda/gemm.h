/* Matrix products on the GPU through cuBLASLt, which is loaded when the first queue is opened, so that a program built
 * with CUDA runs where it is not installed. For each shape the fastest of several algorithms is measured once per
 * machine and remembered on disk (algorithms.c).
 *
 *     c[b] (m,n) = epilogue(alpha a[b] (m,k) b[b] (k,n)) + beta add[b] (m,n)
 *
 * Row-major views: a and b have any leading dimension and may be transposed (one of their two steps is 1); c and add have
 * contiguous rows. a and b have one type, f32, bf16 or f16; c is of that type or f32; add is of c's type. f32
 * operands multiply in f32 (tf32 where asked for). Sums are f32. */
#ifndef TN_BACKEND_CUDA_GEMM_H
#define TN_BACKEND_CUDA_GEMM_H

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tn_cuda_epilogue {
    TN_CUDA_PLAIN = 0,
    TN_CUDA_BIAS = 1,      /* + bias (n), in the type of c */
    TN_CUDA_GELU = 2,      /* tanh form of (product + bias where given); aux (m,n) gets the value before, where given */
    TN_CUDA_GELU_BACK = 3, /* times the slope of gelu (tanh form) at aux (m,n), which is read */
} tn_cuda_epilogue;

typedef struct tn_cuda_gemm {
    int64_t m, n, k, batch; /* batch 0 counts as 1 */
    const void *a, *b;
    int64_t a_row, a_col, a_batch; /* elements */
    int64_t b_row, b_col, b_batch;
    tn_dtype type; /* of a and b */
    void *c;
    int64_t c_row, c_batch;
    tn_dtype c_type;
    const void *add; /* NULL: c itself where beta is not 0 */
    int64_t add_row, add_batch;
    float alpha, beta;
    tn_cuda_epilogue epilogue;
    const void *bias;
    void *aux;
    int64_t aux_row;
    bool tf32;
} tn_cuda_gemm;

tn_status tn_cuda_gemms_new(tn_cuda_gemms **out);
void tn_cuda_gemms_free(tn_cuda_gemms *g);
/* From now on algorithms are those that cuBLASLt thinks best: measuring them beside others would give one thing today and another
 * tomorrow, and with it other last digits. */
void tn_cuda_gemms_share(tn_cuda_gemms *g);
/* Whether cuBLASLt has an algorithm for this shape and epilogue; the answer is kept. */
bool tn_cuda_gemm_exists(tn_cuda_queue *q, const tn_cuda_gemm *g);
/* The first call with a shape may measure: never while recording (tn_bound's first run is not). */
tn_status tn_cuda_gemm_run(tn_cuda_queue *q, const tn_cuda_gemm *g);

/* c (m,n) = or += a b, all f32, c contiguous; a, b and sizes are given. Where operands may be rounded to a half they are rounded to
 * tf32, which has as many digits as f16 and the range of f32. */
static inline tn_status tn_cuda_gemm_f32(const tn_call *c, tn_cuda_gemm g, bool add)
{
    g.type = g.c_type = TN_F32;
    g.alpha = 1, g.beta = add ? 1.f : 0.f;
    g.c_row = g.n;
    g.tf32 = c->tf32 || c->round != TN_F32;
    return tn_cuda_gemm_run(tn_cuda_queue_of(c), &g);
}

#ifdef __cplusplus
}
#endif
#endif
