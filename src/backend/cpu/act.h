/* Activation functions and their derivatives, one number at a time, in their exact libm forms.
 *
 * NAME(x) is the value, NAME_grad(x) the derivative at the same x, the pre-activation: the backward pass needs nothing
 * else saved. No vector code: kernels loop over these. relu has derivative 0 at 0, and passes NaN through. */
#ifndef TN_BACKEND_CPU_ACT_H
#define TN_BACKEND_CPU_ACT_H

#include <math.h>

static inline float tn_act_relu(float x)
{
    return x < 0.0f ? 0.0f : x;
}

static inline float tn_act_relu_grad(float x)
{
    return x > 0.0f ? 1.0f : x <= 0.0f ? 0.0f : x;
}

/* For large negative x expf overflows to infinity and the quotient is 0, the right limit. */
static inline float tn_act_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* s(x) s(-x) rather than s (1 - s): no cancellation for large x. */
static inline float tn_act_sigmoid_grad(float x)
{
    return tn_act_sigmoid(x) * tn_act_sigmoid(-x);
}

static inline float tn_act_tanh(float x)
{
    return tanhf(x);
}

static inline float tn_act_tanh_grad(float x)
{
    const float t = tanhf(x);
    return (1.0f - t) * (1.0f + t);
}

/* x s(x), as a quotient: x / inf is the limit 0 where x * 0 would do too, but -inf / inf would not. */
static inline float tn_act_silu(float x)
{
    return x == -INFINITY ? 0.0f : x / (1.0f + expf(-x));
}

static inline float tn_act_silu_grad(float x)
{
    if (isinf(x)) return x > 0.0f ? 1.0f : 0.0f;
    return tn_act_sigmoid(x) * (1.0f + x * tn_act_sigmoid(-x));
}

/* x Phi(x); erfc keeps the left tail accurate, where 1 + erf would cancel (Hendrycks and Gimpel 2016, eq. 1). */
static inline float tn_act_gelu_erf(float x)
{
    return x == -INFINITY ? 0.0f : 0.5f * x * erfcf(-0.70710678f * x);
}

/* Phi(x) + x phi(x). */
static inline float tn_act_gelu_erf_grad(float x)
{
    if (isinf(x)) return x > 0.0f ? 1.0f : 0.0f;
    return 0.5f * erfcf(-0.70710678f * x) + 0.39894228f * x * expf(-0.5f * x * x);
}

/* 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3), written as x s(2u): the same function, and the left tail
 * does not cancel. */
static inline float tn_act_gelu_tanh(float x)
{
    if (x == -INFINITY) return 0.0f;
    return x * tn_act_sigmoid(1.5957691f * (x + 0.044715f * x * x * x));
}

/* s(2u) + x s'(2u) (2u)'. */
static inline float tn_act_gelu_tanh_grad(float x)
{
    if (fabsf(x) > 12.0f) return x > 0.0f ? 1.0f : 0.0f; /* the limits, before x^3 can overflow */
    const float v = 1.5957691f * (x + 0.044715f * x * x * x);
    return tn_act_sigmoid(v) + x * tn_act_sigmoid_grad(v) * 1.5957691f * (1.0f + 0.134145f * x * x);
}

#endif
