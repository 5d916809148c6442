/* Between scan.c and its CUDA kernels, and between the two files of those. For C and CUDA. */
#ifndef TN_OPS_SCAN_CUDA_H
#define TN_OPS_SCAN_CUDA_H

#include <tenon/op.h>

#ifdef __cplusplus
extern "C" {
#endif

tn_kernel tn_scan_forward_cuda, tn_scan_backward_cuda;
size_t tn_scan_work_cuda(const tn_sig *s, bool backward);

/* Token by token: the plain twin, and coefficients per token. */
tn_kernel tn_scan_step_forward_cuda, tn_scan_step_backward_cuda;
size_t tn_scan_step_work_cuda(int64_t B, int64_t K);

#ifdef __cplusplus
}
#endif
#endif
