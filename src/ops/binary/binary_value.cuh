/* The functions of binary on the GPU. */
#ifndef TN_OPS_BINARY_VALUE_CUH
#define TN_OPS_BINARY_VALUE_CUH

#include "ops/binary/binary.h"

__device__ __forceinline__ float tn_d_binary(int kind, float a, float b)
{
    switch (kind) {
    case TN_BINARY_ADD: return a + b;
    case TN_BINARY_SUB: return a - b;
    case TN_BINARY_MUL: return a * b;
    case TN_BINARY_DIV: return a / b;
    case TN_BINARY_MAXIMUM: return a > b || a != a ? a : b; /* NaN on either side passes */
    case TN_BINARY_MINIMUM: return a < b || a != a ? a : b;
    case TN_BINARY_RSUB: return b - a;
    default: return b / a; /* RDIV */
    }
}

#endif
