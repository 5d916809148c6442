/* rollout on the GPU: gelu and its slope, cheaper where numbers are bf16. */
#ifndef TN_OPS_ROLLOUT_GELU_CUH
#define TN_OPS_ROLLOUT_GELU_CUH

#include "ops/act.cuh"
#include "ops/rollout/rollout_cuda.cuh"

namespace tn_rollout
{

/* Phi(x) with the density at x, both from one exponential (Abramowitz and Stegun 7.1.26), |x| at most 15 or x above: off by 1e-7, in
 * 15 instructions where normcdff takes 60. gelu and its slope are off by 2e-7, which is below a tenth of what rounding x to bf16
 * does to them; so it serves numbers that are kept so. NaN stays NaN. */
__device__ __forceinline__ float share_below(float x, float *density)
{
    float t, e;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(fmaf(0.231641888f, fabsf(x), 1.f)));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-0.721347520f * x * x));
    float p = fmaf(0.5307027145f, t, -0.7265760135f);
    p = fmaf(p, t, 0.7107068705f);
    p = fmaf(p, t, -0.142248368f);
    p = fmaf(p, t, 0.127414796f);
    const float tail = p * t * e;
    *density = 0.398942280f * e;
    return x < 0.f ? tail : 1.f - tail;
}

/* As tn_d_gelu_erf and tn_d_gelu_erf_grad. */
template <int KIND>
__device__ __forceinline__ float gelu(float x)
{
    if constexpr (KIND != TN_BF16) return tn_d_gelu_erf(x);
    float density;
    const float c = tn_d_at_least(x, -15.f);
    return c * share_below(c, &density);
}

template <int KIND>
__device__ __forceinline__ float gelu_slope(float x)
{
    if constexpr (KIND != TN_BF16) return tn_d_gelu_erf_grad(x);
    float density;
    const float c = tn_d_at_most(tn_d_at_least(x, -15.f), 15.f), share = share_below(c, &density);
    return fmaf(c, density, share);
}

} // namespace tn_rollout

#endif
