/* What conv_causal.c calls of its CPU kernels. */
#ifndef TN_OPS_CONV_CAUSAL_CPU_H
#define TN_OPS_CONV_CAUSAL_CPU_H

#include <tenon/op.h>

tn_kernel tn_conv_causal_forward_cpu, tn_conv_causal_backward_cpu;
size_t tn_conv_causal_cpu_work(int64_t B, int64_t T, int64_t C, int64_t W); /* of the backward kernel */

#endif
