/* The functions of unary on the GPU; NaN passes as in act.cuh. */
#ifndef TN_OPS_UNARY_VALUE_CUH
#define TN_OPS_UNARY_VALUE_CUH

#include "ops/act.cuh"
#include "ops/unary/unary.h"

/* log(1 + e) for 0 <= e <= 1 is log1pf. */
__device__ __forceinline__ float tn_d_softplus(float x) { return tn_d_at_least(x, 0.f) + log1pf(expf(-fabsf(x))); }

/* Near 0 the terms of a + log1p(e^-2a) - ln 2 cancel: there the Taylor polynomial of degree 10. */
__device__ __forceinline__ float tn_d_logcosh(float x)
{
    const float a = fabsf(x), w = x * x;
    float p = 31.f / 14175;
    p = p * w - 17.f / 2520;
    p = p * w + 1.f / 45;
    p = p * w - 1.f / 12;
    p = p * w + 0.5f;
    return a < 0.4f ? p * w : a + (log1pf(expf(-2.f * a)) - 0.693147181f);
}

__device__ __forceinline__ float tn_d_unary(int kind, float x, float a, float b)
{
    switch (kind) {
    case TN_UNARY_GELU: return tn_d_gelu(x);
    case TN_UNARY_GELU_ERF: return tn_d_gelu_erf(x);
    case TN_UNARY_SILU: return tn_d_silu(x);
    case TN_UNARY_TANH: return tn_d_tanh(x);
    case TN_UNARY_SIGMOID: return tn_d_sigmoid(x);
    case TN_UNARY_RELU: return tn_d_relu(x);
    case TN_UNARY_EXP: return expf(x);
    case TN_UNARY_EXPM1: return expm1f(x);
    case TN_UNARY_LOG: return logf(x);
    case TN_UNARY_SQRT: return sqrtf(x);
    case TN_UNARY_SQUARE: return x * x;
    case TN_UNARY_ABS: return fabsf(x);
    case TN_UNARY_SOFTPLUS: return tn_d_softplus(x);
    case TN_UNARY_LOGCOSH: return tn_d_logcosh(x);
    case TN_UNARY_SIN: return sinf(x);
    case TN_UNARY_COS: return cosf(x);
    case TN_UNARY_RECIPROCAL: return 1.f / x;
    case TN_UNARY_CLAMP_MIN: return tn_d_at_least(x, a);
    case TN_UNARY_SCALE: return a * x;
    default: return a * x + b;
    }
}

#endif
