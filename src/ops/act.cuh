/* Activations and their derivatives on the GPU: what backend/cpu/vmath.h is to the CPU. Others (unary, gate, linear)
 * include this; nothing here touches memory. With a constant kind the switches disappear: pass it as a template
 * argument where a kernel is worth an instance for each.
 *
 * Invariant: NaN in gives NaN out (so no fmaxf, which drops it), and no argument overflows on the way to a finite
 * result. Errors are a few units in the last place of |result|; tails keep relative accuracy as on the CPU. */
#ifndef TN_OPS_ACT_CUH
#define TN_OPS_ACT_CUH

#include "ops/linear/linear.h"

#include <cfloat>

__device__ __forceinline__ float tn_d_at_least(float x, float lo) { return x < lo ? lo : x; }

__device__ __forceinline__ float tn_d_at_most(float x, float hi) { return x > hi ? hi : x; }

/* 1 / y for 1 <= y <= 2^100: one instruction and two of its last bits, where a quotient takes a dozen. */
__device__ __forceinline__ float tn_d_inverse(float y) { return __fdividef(1.f, y); }

/* sigmoid(|x|), and its complement. */
__device__ __forceinline__ float tn_d_sigmoid_parts(float x, float *complement)
{
    const float e = expf(-fabsf(x)), s = tn_d_inverse(1.f + e);
    *complement = e * s;
    return s;
}

/* act(x) with *slope = act'(x): what a gate's backward pass needs of both. */
__device__ __forceinline__ float tn_d_sigmoid_slope(float x, float *slope)
{
    float t;
    const float s = tn_d_sigmoid_parts(x, &t);
    *slope = s * t;
    return x < 0.f ? t : s;
}

__device__ __forceinline__ float tn_d_sigmoid(float x)
{
    float t;
    const float s = tn_d_sigmoid_parts(x, &t);
    return x < 0.f ? t : s;
}

__device__ __forceinline__ float tn_d_sigmoid_grad(float x)
{
    float slope;
    (void)tn_d_sigmoid_slope(x, &slope);
    return slope;
}

/* -infinity gives 0: FLT_MAX times 0. */
__device__ __forceinline__ float tn_d_silu(float x) { return tn_d_at_least(x, -FLT_MAX) * tn_d_sigmoid(x); }

__device__ __forceinline__ float tn_d_silu_slope(float x, float *slope)
{
    const float c = tn_d_at_most(tn_d_at_least(x, -FLT_MAX), FLT_MAX), s = tn_d_sigmoid_slope(c, slope);
    *slope = s + c * *slope;
    return c * s;
}

__device__ __forceinline__ float tn_d_silu_grad(float x)
{
    float slope;
    (void)tn_d_silu_slope(x, &slope);
    return slope;
}

/* x sigmoid(v), v = 2 sqrt(2/pi) (x + 0.044715 x^3): the tanh form without its cancellation in the left tail. Beyond
 * |x| = 12 the function and its slope are at their limits. */
__device__ __forceinline__ float tn_d_gelu(float x)
{
    const float c = tn_d_at_least(x, -12.f);
    return c * tn_d_sigmoid(c * (1.5957691f + 0.0713548163f * (c * c)));
}

__device__ __forceinline__ float tn_d_gelu_slope(float x, float *slope)
{
    const float c = tn_d_at_most(tn_d_at_least(x, -12.f), 12.f), w = c * c;
    const float s = tn_d_sigmoid_slope(c * (1.5957691f + 0.0713548163f * w), slope);
    *slope = s + c * *slope * (1.5957691f + 0.214064449f * w);
    return tn_d_at_least(x, -12.f) * s;
}

__device__ __forceinline__ float tn_d_gelu_grad(float x)
{
    float slope;
    (void)tn_d_gelu_slope(x, &slope);
    return slope;
}

/* x Phi(x). Below -15 it is 0 in f32. */
__device__ __forceinline__ float tn_d_gelu_erf(float x)
{
    const float c = tn_d_at_least(x, -15.f);
    return c * normcdff(c);
}

/* Phi(x) + x phi(x). */
__device__ __forceinline__ float tn_d_gelu_erf_grad(float x)
{
    const float c = tn_d_at_most(tn_d_at_least(x, -15.f), 15.f);
    return normcdff(c) + 0.398942280f * c * expf(-0.5f * c * c);
}

__device__ __forceinline__ float tn_d_tanh(float x) { return tanhf(x); }

/* 1 - tanh^2 without its cancellation. */
__device__ __forceinline__ float tn_d_tanh_grad(float x) { return 4.f * tn_d_sigmoid_grad(2.f * x); }

__device__ __forceinline__ float tn_d_relu(float x) { return tn_d_at_least(x, 0.f); }

/* 0 at 0. */
__device__ __forceinline__ float tn_d_relu_grad(float x) { return x > 0.f ? 1.f : x <= 0.f ? 0.f : x; }

__device__ __forceinline__ float tn_d_act(tn_act act, float x)
{
    switch (act) {
    case TN_ACT_GELU: return tn_d_gelu(x);
    case TN_ACT_GELU_ERF: return tn_d_gelu_erf(x);
    case TN_ACT_SILU: return tn_d_silu(x);
    case TN_ACT_TANH: return tn_d_tanh(x);
    case TN_ACT_SIGMOID: return tn_d_sigmoid(x);
    case TN_ACT_RELU: return tn_d_relu(x);
    default: return x;
    }
}

/* By the value before the activation. */
__device__ __forceinline__ float tn_d_act_grad(tn_act act, float x)
{
    switch (act) {
    case TN_ACT_GELU: return tn_d_gelu_grad(x);
    case TN_ACT_GELU_ERF: return tn_d_gelu_erf_grad(x);
    case TN_ACT_SILU: return tn_d_silu_grad(x);
    case TN_ACT_TANH: return tn_d_tanh_grad(x);
    case TN_ACT_SIGMOID: return tn_d_sigmoid_grad(x);
    case TN_ACT_RELU: return tn_d_relu_grad(x);
    default: return 1.f;
    }
}

#endif
