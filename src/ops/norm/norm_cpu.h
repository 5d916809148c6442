/* Between norm.c and its CPU kernels: the order of inputs and outputs, and the kernels. */
#ifndef TN_OPS_NORM_CPU_H
#define TN_OPS_NORM_CPU_H

#include <tenon/op.h>

enum { TN_NORM_X, TN_NORM_RESIDUAL, TN_NORM_W, TN_NORM_B, TN_NORM_INPUTS };
/* Outputs: y; s where there is a residual; then, last, the rows' numbers: (..., 1) the scale for rms, (..., 3) for
 * layer: scale, and the mean as the sum of two floats. */
enum { TN_NORM_Y, TN_NORM_SUM };

tn_kernel tn_norm_forward_cpu, tn_norm_backward_cpu;
size_t tn_norm_work_cpu(const tn_sig *s, bool backward);

#endif
