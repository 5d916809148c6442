/* In the table of an op's kernels: TN_ON_CUDA(forward, backward, work, layout). The functions are in NAME_cuda.cu, extern "C", and
 * in cuda.def. */
#ifndef TN_OPS_ON_CUDA_H
#define TN_OPS_ON_CUDA_H

#include "ops/cuda_kernels.h"

#define TN_ON_CUDA(...) , [TN_CUDA] = { __VA_ARGS__ }

#endif
