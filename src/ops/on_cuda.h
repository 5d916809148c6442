/* In the table of an op's kernels: TN_ON_CUDA(forward, backward, work, layout), nothing in a build without CUDA. The functions are
 * in NAME_cuda.cu, extern "C"; declare them as for the CPU. */
#ifndef TN_OPS_ON_CUDA_H
#define TN_OPS_ON_CUDA_H

#ifdef TN_HAVE_CUDA
#define TN_ON_CUDA(...) , [TN_CUDA] = { __VA_ARGS__ }
#else
#define TN_ON_CUDA(...)
#endif

#endif
