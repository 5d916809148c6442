/* For the CUDA kernels of recurrences whose state is a matrix for each head (outer, delta): tensors as they see them. */
#ifndef TN_OPS_MATRIX_STATE_CUH
#define TN_OPS_MATRIX_STATE_CUH

#include "backend/cuda/device.cuh"

/* (B,T,H,n), (B,T,H) or (B,H,N,P): four axes, of which the middle two are told apart by name only. */
typedef struct tn_head_tensor {
    void *at; /* NULL: absent, not wanted or zero */
    tn_dtype type;
    int64_t b, t, h, n; /* steps of the axes; a state's: b, h, rows t, columns n */
    bool add;
    bool vectors; /* 8 neighbours may be read at once */
} tn_head_tensor;

static inline tn_head_tensor tn_head_of(const tn_arg *a, bool add)
{
    tn_head_tensor p = { a->data, a->dtype, 0, 0, 0, 1, add, a->data && a->dims.rank == 4 && tn_vector_rows(a) };
    if (a->dims.rank >= 3) p.b = a->stride[0], p.t = a->stride[1], p.h = a->stride[2];
    if (a->dims.rank == 4) p.n = a->stride[3];
    return p;
}

static inline tn_head_tensor tn_head_state_of(const tn_arg *a, bool add)
{
    tn_head_tensor p = tn_head_of(a, add);
    const int64_t h = p.t;
    p.t = p.h, p.h = h;
    return p;
}

/* Number (row, column) of head h of sequence b. */
__device__ __forceinline__ int64_t tn_head_place(const tn_head_tensor &p, int64_t b, int64_t h, int64_t row,
                                                 int64_t column)
{
    return b * p.b + h * p.h + row * p.t + column * p.n;
}

#endif
