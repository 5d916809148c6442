/* What scan.c calls of the CPU kernels, and what scan_gated shares with it: the blocked scan, the plain one, and the
 * check of what both ops have in common. Not the recurrence itself: scan_core.h. */
#ifndef TN_OPS_SCAN_CPU_H
#define TN_OPS_SCAN_CPU_H

#include <tenon/op.h>

/* x, state and reset of either op: input 0 is x (B,T,2K). */
tn_status tn_scan_check_frame(const tn_sig *s, int state, int reset);

tn_kernel tn_scan_blocked_forward_cpu, tn_scan_blocked_backward_cpu;
tn_kernel tn_scan_step_forward_cpu, tn_scan_step_backward_cpu;
size_t tn_scan_cpu_work(int64_t B, int64_t T, int64_t K, int64_t chunk, bool backward);
size_t tn_scan_step_work(int64_t B, int64_t K);

#endif
