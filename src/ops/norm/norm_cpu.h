/* Between norm.c and its CPU kernels: the order of inputs and outputs, and the kernels. */
#ifndef TN_OPS_NORM_CPU_H
#define TN_OPS_NORM_CPU_H

#include "ops/rows.h"

/* The planner alone fills the last one, and only its gradient, backward on CUDA: (d), it gets the sum of the rows of x's
 * gradient. */
enum { TN_NORM_X, TN_NORM_RESIDUAL, TN_NORM_W, TN_NORM_B, TN_NORM_COLUMNS, TN_NORM_INPUTS };
/* Outputs: y; s where there is a residual; then, last, the rows' numbers: (..., 1) the scale for rms, (..., 3) for
 * layer: scale, and the mean as the sum of two floats. */
enum { TN_NORM_Y, TN_NORM_SUM };

tn_kernel tn_norm_forward_cpu, tn_norm_backward_cpu;

static inline int64_t tn_norm_rows(tn_dims d)
{
    int64_t n = 1;
    for (int i = 0; i + 1 < d.rank; i++) n *= d.dim[i];
    return n;
}

enum { TN_NORM_PARTS = 128 }; /* the most partial sums of weight gradients */

/* Rows per tile: cache-sized, but no more tiles than that where weight gradients need a sum for each. */
static inline int64_t tn_norm_tile(int64_t rows, int64_t d, bool backward)
{
    const int64_t few = (rows + TN_NORM_PARTS - 1) / TN_NORM_PARTS, fit = tn_tile_rows(d);
    return backward && few > fit ? few : fit;
}

#endif
