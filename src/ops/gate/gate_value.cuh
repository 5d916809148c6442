/* The activations of gates on the GPU. */
#ifndef TN_OPS_GATE_VALUE_CUH
#define TN_OPS_GATE_VALUE_CUH

#include "ops/act.cuh"
#include "ops/gate/gate.h"

__device__ __forceinline__ float tn_d_gate(int kind, float z)
{
    return kind == TN_GATE_SILU ? tn_d_silu(z) : kind == TN_GATE_SIGMOID ? tn_d_sigmoid(z) : tn_d_gelu(z);
}

/* ... with *slope = act'(z). */
__device__ __forceinline__ float tn_d_gate_slope(int kind, float z, float *slope)
{
    return kind == TN_GATE_SILU      ? tn_d_silu_slope(z, slope)
           : kind == TN_GATE_SIGMOID ? tn_d_sigmoid_slope(z, slope)
                                     : tn_d_gelu_slope(z, slope);
}

#endif
