/* The larger of two numbers with its place on the GPU: larger, or equal and earlier; a NaN before all. The result does not depend on who saw what. */
#ifndef TN_OPS_ARGMAX_BEST_CUH
#define TN_OPS_ARGMAX_BEST_CUH

#include "backend/cuda/device.cuh"

struct tn_d_best {
    float x;
    int at; /* -1: there was a NaN */
};

__device__ __forceinline__ tn_d_best tn_d_better(tn_d_best a, tn_d_best b)
{
    if (a.at < 0 || b.at < 0) return a.at < 0 ? a : b;
    return b.x > a.x || (b.x == a.x && b.at < a.at) ? b : a;
}

__device__ __forceinline__ tn_d_best tn_d_best_of_warp(tn_d_best a)
{
#pragma unroll
    for (int d = 16; d; d >>= 1) {
        const tn_d_best b = { __shfl_xor_sync(0xffffffffu, a.x, d), __shfl_xor_sync(0xffffffffu, a.at, d) };
        a = tn_d_better(a, b);
    }
    return a;
}

#endif
