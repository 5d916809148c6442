/* What the kernels of linear_xent know of the tokens, and the pass that turns rows of logits into losses and gradients. */
#ifndef TN_OPS_LINEAR_XENT_ROWS_CUH
#define TN_OPS_LINEAR_XENT_ROWS_CUH

#include "backend/cuda/device.cuh"

struct tn_xent_tokens {
    const int32_t *label; /* (n) */
    const void *weight;   /* (n) or NULL */
    tn_dtype weight_type;
    const int32_t *live; /* rows of axis 0, each of per_live tokens, or NULL */
    int64_t per_live, n, classes;
    int32_t ignore;
};

__device__ __forceinline__ int64_t tn_xent_alive(const tn_xent_tokens &t)
{
    const int64_t n = t.live ? (*t.live < 0 ? 0 : *t.live) * t.per_live : t.n;
    return n < t.n ? n : t.n;
}

__device__ __forceinline__ bool tn_xent_counts(const tn_xent_tokens &t, int64_t i)
{
    return i < tn_xent_alive(t) && t.label[i] != t.ignore;
}

__device__ __forceinline__ float tn_xent_weight(const tn_xent_tokens &t, int64_t i)
{
    return t.weight ? tn_load(t.weight, t.weight_type, i) : 1.f;
}

/* What a row's pass reads and leaves. */
struct tn_xent_rows {
    void *logits; /* (rows,row): becomes their gradient; columns from V on are 0 there. 256-byte aligned */
    tn_dtype type;
    int64_t rows, row, first; /* row: a multiple of 64; first: the token of row 0 */
    tn_xent_tokens t;
    tn_arg bias; /* (V), data NULL: none */
    float z;
    double *term;     /* (n) or NULL: weight (nll + z lse^2) */
    float *nll, *lse; /* (n) or NULL */
    const double *scale;
    const float *dy; /* of the loss */
    bool gradient;   /* false: the logits stay */
};

tn_status tn_xent_rows_run(const tn_call *c, const tn_xent_rows *j);

#endif
