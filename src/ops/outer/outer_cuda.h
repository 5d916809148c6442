/* Between outer.c and its CUDA kernels, and between the files of those. For C and CUDA. */
#ifndef TN_OPS_OUTER_CUDA_H
#define TN_OPS_OUTER_CUDA_H

#include <tenon/op.h>

#ifdef __cplusplus
extern "C" {
#endif

tn_kernel tn_outer_forward_cuda, tn_outer_backward_cuda;
size_t tn_outer_work_cuda(const tn_sig *s, bool backward);

/* Token by token: the plain twin, single tokens, and states larger than a tile. */
tn_kernel tn_outer_step_forward_cuda, tn_outer_step_backward_cuda;
size_t tn_outer_step_work_cuda(tn_dims q, tn_dims v, bool backward);

/* On tensor cores, where `fits` says so; `work` is enough for it and for what takes its place. */
bool tn_outer_mma_fits(const tn_call *c);
tn_kernel tn_outer_mma_forward_cuda, tn_outer_mma_backward_cuda;
size_t tn_outer_mma_work_cuda(tn_dims q, tn_dims v, bool backward);

#ifdef __cplusplus
}
#endif
#endif
