/* Between readout.c and its kernels: the order of inputs, and the shares of a sum over rows. */
#ifndef TN_OPS_READOUT_ARGS_H
#define TN_OPS_READOUT_ARGS_H

#include <tenon/op.h>

enum { TN_READOUT_C, TN_READOUT_Z, TN_READOUT_X, TN_READOUT_SKIP, TN_READOUT_GAIN, TN_READOUT_INPUTS };

enum { TN_READOUT_PARTS = 128 }; /* CPU: the most partial sums of the gradients of skip and gain */

/* CPU: rows to each of them. */
static inline int64_t tn_readout_tile(int64_t rows, int64_t width)
{
    const int64_t few = (rows + TN_READOUT_PARTS - 1) / TN_READOUT_PARTS,
                  fit = width > 0 && width < 16384 ? 16384 / width : 1;
    return few > fit ? few : fit;
}

static inline int64_t tn_readout_rows(tn_dims d)
{
    int64_t n = 1;
    for (int i = 0; i + 1 < d.rank; i++) n *= d.dim[i];
    return n;
}

#endif
