/* For the kernels of reduce, on any device: the result seen along the axis that it has lost. */
#ifndef TN_OPS_REDUCE_AXIS_H
#define TN_OPS_REDUCE_AXIS_H

#include "ops/reduce/reduce.h"

static inline int tn_reduce_axis(const tn_reduce_attr *a, int rank) { return a->axis < 0 ? a->axis + rank : a->axis; }

/* The result as a tensor of x's rank, with size 1 along the axis. */
static inline tn_arg tn_reduce_with_axis(const tn_arg *y, const tn_reduce_attr *a, const tn_arg *x)
{
    tn_arg r = *y;
    if (a->all) return r;
    const int axis = tn_reduce_axis(a, x->dims.rank);
    r.dims = x->dims;
    r.dims.dim[axis] = 1;
    for (int i = 0, k = 0; i < x->dims.rank; i++) r.stride[i] = i == axis ? 0 : y->stride[k++];
    return r;
}

#endif
