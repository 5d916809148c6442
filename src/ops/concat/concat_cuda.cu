/* concat on the GPU: each input is copied to (or its gradient from) a part of the result, seen as a strided tensor; one
 * launch for each. Along axis 0 the rows of an input that are not alive become zeros, in the same pass. */
#include "ops/concat/concat.h"
#include "ops/elem.cuh"

struct pass_map {
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[1][N], float (&y)[1][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++) y[0][e] = x[0][e];
    }
};

/* What comes after the first *live rows is 0, whatever lies there. */
struct living_map {
    const int32_t *live;
    int64_t rows, width;
    template <int N>
    __device__ __forceinline__ void operator()(int64_t index, const float (&x)[1][N], float (&y)[1][N]) const
    {
        const int64_t end = tn_d_alive(live, rows) * width;
#pragma unroll
        for (int e = 0; e < N; e++) y[0][e] = index + e < end ? x[0][e] : 0.f;
    }
};

/* The part of `whole` that belongs to a tensor shaped like x, `start` elements along the axis. */
static tn_arg part_of(const tn_arg *whole, const tn_arg *x, int axis, int64_t start)
{
    tn_arg p = *whole;
    p.dims = x->dims;
    p.data = (char *)whole->data + start * whole->stride[axis] * tn_d_bytes(whole->dtype);
    return p;
}

static int axis_of(const tn_call *c)
{
    const int axis = ((const tn_concat_attr *)c->attr)->axis;
    return axis < 0 ? axis + c->in[0].dims.rank : axis;
}

extern "C" tn_status tn_concat_forward_cuda(const tn_call *c)
{
    const int axis = axis_of(c);
    int64_t start = 0;
    for (int i = 0; i < c->n_in; i++) {
        const tn_arg *x = &c->in[i], part = part_of(&c->out[0], x, axis, start), *args[] = { x, &part };
        const tn_d_space s = tn_d_space_make(x->dims, axis ? c->out[0].live : NULL, 2, args);
        const tn_status done = axis || !x->live ? tn_d_map<1, 1>(c, s, 0, pass_map{})
                                                : tn_d_map<1, 1>(c, s, 0, living_map{ x->live, s.first, s.rest });
        if (done != TN_OK) return done;
        start += x->dims.dim[axis];
    }
    return TN_OK;
}

extern "C" tn_status tn_concat_backward_cuda(const tn_call *c)
{
    const int axis = axis_of(c);
    int64_t start = 0;
    for (int i = 0; i < c->n_in; i++) {
        const tn_arg *dx = &c->din[i];
        if (dx->data) {
            const tn_arg part = part_of(&c->dout[0], dx, axis, start), *args[] = { &part, dx };
            const tn_d_space s = tn_d_space_make(dx->dims, axis ? c->dout[0].live : dx->live, 2, args);
            const tn_status done = tn_d_map<1, 1>(c, s, c->accumulate >> i & 1, pass_map{});
            if (done != TN_OK) return done;
        }
        start += c->in[i].dims.dim[axis];
    }
    return TN_OK;
}
