/* The frequency of a pair, in radians a position: one formula for the CPU and the GPU. */
#ifndef TN_OPS_ROPE_FREQUENCY_H
#define TN_OPS_ROPE_FREQUENCY_H

#include "ops/rope/rope.h"

#include <math.h>

#ifdef __CUDACC__
#define TN_ROPE_BOTH __host__ __device__ __forceinline__
#else
#define TN_ROPE_BOTH static inline
#endif

TN_ROPE_BOTH double tn_rope_frequency(const tn_rope_attr *a, int64_t j, int64_t pairs)
{
    const double two_pi = 6.283185307179586476925;
    const double f = pow(a->base, -(double)j / (double)pairs);
    double keep = 0; /* how much of it stays as it is */
    if (a->stretch <= 1) return f;
    if (a->scaling == TN_ROPE_LINEAR) return f / a->stretch;
    if (a->scaling == TN_ROPE_YARN) {
        keep = 1 - ((double)j - a->low) / (a->high - a->low);
        keep = keep < 0 ? 0 : keep > 1 ? 1 : keep;
    } else {
        const double ratio = a->stretch_context * f / two_pi; /* wavelengths in the context */
        keep = ratio >= 4 ? 1 : ratio <= 1 ? 0 : (ratio - 1) / 3;
    }
    return f * (keep + (1 - keep) / a->stretch);
}

#endif
