/* What conv_causal.c needs of its CPU kernels. */
#ifndef TN_OPS_CONV_CAUSAL_CPU_H
#define TN_OPS_CONV_CAUSAL_CPU_H

#include "ops/rows.h"

tn_kernel tn_conv_causal_forward_cpu, tn_conv_causal_backward_cpu;

enum { TN_CONV_SUM_TOKENS = 128 }; /* tokens of a tile of the backward pass */

static inline int64_t tn_conv_sum_parts(int64_t T) { return tn_tiles(T, TN_CONV_SUM_TOKENS); }

#endif
