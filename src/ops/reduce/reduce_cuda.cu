/* reduce on the GPU. Sums and means are elem_sum.cuh over a space in which the result is repeated along the axis; their
 * gradient is the same space the other way (elem.cuh). Maxima: a warp looks along the axis for each result where the
 * axis is the last one, else a thread does; the first maximum wins, and the first NaN before all others. */
#include "ops/elem_sum.cuh"
#include "ops/reduce/reduce_axis.h"

extern "C" size_t tn_reduce_work_cuda(const tn_sig *s, bool backward)
{
    const tn_reduce_attr *a = (const tn_reduce_attr *)s->attr;
    const tn_dims x = s->in[0].dims;
    tn_dims y = {};
    if (backward || a->kind == TN_REDUCE_MAX) return 0;
    if (!a->all) {
        y = x;
        y.dim[tn_reduce_axis(a, x.rank)] = 1;
    }
    return tn_d_sum_work(x, y);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

struct pass_map {
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[1][N], float (&y)[1][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++) y[0][e] = x[0][e];
    }
};

/* dy over how many numbers a mean is of. */
struct spread_map {
    bool mean;
    const int32_t *live; /* of the axis, where that is axis 0 */
    int64_t n, rest;     /* along axis 0, and in each of its positions */
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[1][N], float (&y)[1][N]) const
    {
        const int64_t count = tn_d_alive(live, n) * rest;
        const float factor = !mean ? 1.f : count ? (float)(1 / (double)count) : 0.f;
#pragma unroll
        for (int e = 0; e < N; e++) y[0][e] = __fmul_rn(x[0][e], factor);
    }
};

static tn_status sum_backward(const tn_call *c, const tn_reduce_attr *a)
{
    const tn_arg *dx = &c->din[0], dy = tn_reduce_with_axis(&c->dout[0], a, dx), *args[] = { &dy, dx };
    const tn_d_space s = tn_d_space_make(dx->dims, dx->live, 2, args);
    const int axis = a->all ? 0 : tn_reduce_axis(a, dx->dims.rank);
    spread_map f = { a->kind == TN_REDUCE_MEAN, s.live, s.first, a->all ? s.rest : 1 };
    if (axis != 0) f.live = NULL, f.n = dx->dims.dim[axis];
    return tn_d_map<1, 1>(c, s, c->accumulate & 1, f);
}

/* --- maxima ------------------------------------------------------------------------------------------------------- */

struct largest {
    float x;
    int64_t at;
};

__device__ __forceinline__ largest better(largest p, largest q)
{
    const bool np = p.x != p.x, nq = q.x != q.x;
    if (np != nq) return np ? p : q;
    if (!np && p.x != q.x) return p.x > q.x ? p : q;
    return p.at < q.at ? p : q;
}

enum { X, Y, DX, ARGS }; /* Y: the result, or its gradient */

struct max_job {
    tn_d_axes axes; /* of the results */
    void *data[ARGS];
    tn_dtype dtype[ARGS];
    int64_t results, n;    /* n: along the axis */
    int64_t step, dx_step; /* from one to the next there */
    const int32_t *live;   /* of axis 0 */
    int64_t first;         /* its size */
    bool along_first, add; /* along_first: the axis is axis 0 */
};

/* LANES threads of a warp to a result: 1 or 32. */
template <int LANES>
__global__ void __launch_bounds__(TN_D_THREADS) max_walk(const __grid_constant__ max_job j, bool backward)
{
    const int lane = threadIdx.x % LANES;
    const int64_t alive = tn_d_alive(j.live, j.first), step = (int64_t)gridDim.x * (TN_D_THREADS / LANES);
    const int64_t results = j.along_first || !j.first ? j.results : j.results / j.first * alive;
    const int64_t n = j.along_first ? alive : j.n;
    int64_t i = (int64_t)blockIdx.x * (TN_D_THREADS / LANES) + threadIdx.x / LANES;
    for (; i < results; i += step) {
        int64_t at[ARGS] = {};
        largest best = { -INFINITY, 0 };
        tn_d_locate(j.axes, i, at);
        for (int64_t k = lane; k < n; k += LANES)
            best = better(best, largest{ tn_load(j.data[X], j.dtype[X], at[X] + k * j.step), k });
#pragma unroll
        for (int d = LANES / 2; d; d >>= 1) {
            const largest other = { __shfl_xor_sync(0xffffffffu, best.x, d), __shfl_xor_sync(0xffffffffu, best.at, d) };
            best = better(best, other);
        }
        if (!backward) {
            if (lane == 0) tn_store(j.data[Y], j.dtype[Y], at[Y], best.x);
            continue;
        }
        const float dy = tn_load(j.data[Y], j.dtype[Y], at[Y]);
        for (int64_t k = lane; k < n; k += LANES)
            tn_put(j.data[DX], j.dtype[DX], at[DX] + k * j.dx_step, k == best.at ? dy : 0.f, j.add);
    }
}

static tn_status max_run(const tn_call *c, const tn_reduce_attr *a, const tn_arg *x, const tn_arg *y, const tn_arg *dx)
{
    const int axis = tn_reduce_axis(a, x->dims.rank);
    const tn_arg result = tn_reduce_with_axis(y, a, x), *args[ARGS] = { x, &result, dx ? dx : x };
    max_job j = {};
    j.results = 1;
    j.n = x->dims.dim[axis], j.first = x->dims.dim[0], j.live = x->live, j.along_first = axis == 0;
    j.step = x->stride[axis], j.dx_step = args[DX]->stride[axis], j.add = dx && (c->accumulate & 1);
    for (int k = 0; k < ARGS; k++) j.data[k] = args[k]->data, j.dtype[k] = args[k]->dtype;
    for (int i = 0; i < x->dims.rank; i++) {
        int64_t stride[ARGS];
        if (i == axis) continue;
        j.results *= x->dims.dim[i];
        for (int k = 0; k < ARGS; k++) stride[k] = tn_d_stride(args[k], x->dims.rank, i);
        if (x->dims.dim[i] != 1) tn_d_push(&j.axes, ARGS, x->dims.dim[i], stride);
    }
    tn_d_finish(&j.axes);
    if (j.results == 0) return TN_OK;
    if (axis == x->dims.rank - 1)
        max_walk<32><<<tn_blocks(c, j.results, TN_D_WARPS), TN_D_THREADS, 0, tn_cuda_stream(c)>>>(j, dx != NULL);
    else max_walk<1><<<tn_blocks(c, j.results, TN_D_THREADS), TN_D_THREADS, 0, tn_cuda_stream(c)>>>(j, dx != NULL);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_reduce_forward_cuda(const tn_call *c)
{
    const tn_reduce_attr *a = (const tn_reduce_attr *)c->attr;
    const tn_arg *x = &c->in[0];
    if (a->kind == TN_REDUCE_MAX) return max_run(c, a, x, &c->out[0], NULL);
    const tn_arg y = tn_reduce_with_axis(&c->out[0], a, x), *args[] = { x, &y };
    const tn_d_sum m = tn_d_sum_make(x->dims, x->live, 1, args, false, a->kind == TN_REDUCE_MEAN, c->work);
    return tn_d_sum_run<1>(c, m, pass_map{});
}

extern "C" tn_status tn_reduce_backward_cuda(const tn_call *c)
{
    const tn_reduce_attr *a = (const tn_reduce_attr *)c->attr;
    return a->kind == TN_REDUCE_MAX ? max_run(c, a, &c->in[0], &c->dout[0], &c->din[0]) : sum_backward(c, a);
}
