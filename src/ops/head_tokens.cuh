/* Which tokens of a loss count on the GPU, and how much (linear_xent, linear_kl). */
#ifndef TN_OPS_HEAD_TOKENS_CUH
#define TN_OPS_HEAD_TOKENS_CUH

#include "backend/cuda/device.cuh"

struct tn_head_tokens {
    const int32_t *label; /* (n) or NULL: all count */
    const void *weight;   /* (n) or NULL */
    tn_dtype weight_type;
    const int32_t *live[3]; /* rows of axis 0, each of per_live tokens, or NULL */
    int64_t per_live, n, classes;
    int32_t ignore;
};

__device__ __forceinline__ int64_t tn_head_alive(const tn_head_tokens &t)
{
    int64_t n = t.n;
#pragma unroll
    for (int k = 0; k < 3; k++) {
        const int64_t m = t.live[k] ? (*t.live[k] < 0 ? 0 : *t.live[k]) * t.per_live : n;
        n = m < n ? m : n;
    }
    return n;
}

__device__ __forceinline__ bool tn_head_counts(const tn_head_tokens &t, int64_t i)
{
    return i < tn_head_alive(t) && (!t.label || t.label[i] != t.ignore);
}

__device__ __forceinline__ float tn_head_weight(const tn_head_tokens &t, int64_t i)
{
    return t.weight ? tn_load(t.weight, t.weight_type, i) : 1.f;
}

#endif
