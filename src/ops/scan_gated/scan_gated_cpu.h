/* What scan_gated.c calls of its CPU kernels. */
#ifndef TN_OPS_SCAN_GATED_CPU_H
#define TN_OPS_SCAN_GATED_CPU_H

#include <tenon/op.h>

tn_kernel tn_scan_gated_forward_cpu, tn_scan_gated_backward_cpu;
size_t tn_scan_gated_cpu_work(int64_t B, int64_t T, int64_t K, int64_t chunk);

#endif
