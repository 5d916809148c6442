/* Walking several strided tensors of one shape on the GPU: the loop under every elementwise op, as elem.h is on the
 * CPU.
 *
 * A space is a shape with up to TN_D_ARGS tensors broadcast to it (axes aligned at the end, size 1 repeats). Axes that
 * lie behind one another in every tensor are merged, so that contiguous tensors become one long row. A thread takes 8
 * neighbours at 16 bytes where all tensors allow it, else one number; both give the same bits, as the arithmetic of an
 * element never depends on where it lies. All that a thread takes is asked for before any of it is looked at: types are
 * known at run time only, and a branch that waits for one tensor would keep the next from being asked for. Live counts
 * are read on the device. Sums over axes are in elem_sum.cuh. */
#ifndef TN_OPS_ELEM_CUH
#define TN_OPS_ELEM_CUH

#include "backend/cuda/device.cuh"

enum { TN_D_ARGS = 5, TN_D_THREADS = 256 };

/* Axes with the steps of each argument along them. */
struct tn_d_axes {
    int rank;
    bool wide; /* positions need more than 31 bits */
    int64_t dim[TN_MAX_RANK];
    uint32_t inverse[TN_MAX_RANK]; /* of dim, where not wide: see tn_d_finish */
    uint8_t shift[TN_MAX_RANK];
    int64_t stride[TN_D_ARGS][TN_MAX_RANK]; /* elements; 0 along broadcast axes */
};

/* Adds the offsets of position i, row-major among the axes, of the first N arguments. */
template <int N>
__device__ __forceinline__ void tn_d_locate(const tn_d_axes &x, int64_t i, int64_t (&at)[N])
{
    if (x.wide) {
        for (int a = x.rank - 1; a > 0; a--) {
            const int64_t q = i / x.dim[a], j = i - q * x.dim[a];
#pragma unroll
            for (int k = 0; k < N; k++) at[k] += j * x.stride[k][a];
            i = q;
        }
    } else {
        uint32_t r = (uint32_t)i;
        for (int a = x.rank - 1; a > 0; a--) {
            const uint32_t q = __umulhi(r, x.inverse[a]) >> x.shift[a], j = r - q * (uint32_t)x.dim[a];
#pragma unroll
            for (int k = 0; k < N; k++) at[k] += (int64_t)j * x.stride[k][a];
            r = q;
        }
        i = r;
    }
    if (x.rank == 0) return;
#pragma unroll
    for (int k = 0; k < N; k++) at[k] += i * x.stride[k][0];
}

/* Axis 0 of a shape as it is alive. */
__device__ __forceinline__ int64_t tn_d_alive(const int32_t *live, int64_t n)
{
    return live && *live < n ? (*live < 0 ? 0 : *live) : n;
}

/* --- on the host: axes -------------------------------------------------------------------------------------------- */

/* Stride of argument a along axis i of a shape of `rank` axes. */
static inline int64_t tn_d_stride(const tn_arg *a, int rank, int i)
{
    const int own = i - (rank - a->dims.rank);
    return !a->data || own < 0 || a->dims.dim[own] == 1 ? 0 : a->stride[own];
}

/* Appends an axis, or merges it with the last one where it follows it in every argument's memory. */
static inline void tn_d_push(tn_d_axes *x, int n, int64_t dim, const int64_t *stride)
{
    bool follows = x->rank > 0;
    for (int k = 0; follows && k < n; k++) follows = x->stride[k][x->rank - 1] == dim * stride[k];
    if (follows) x->dim[x->rank - 1] *= dim;
    else x->dim[x->rank++] = dim;
    for (int k = 0; k < n; k++) x->stride[k][x->rank - 1] = stride[k];
}

/* After the last push. A quotient by d of a number below 2^31 is a product with m = floor(2^(31 + b) / d) + 1, 2^b the
 * power of two at or above d: m d exceeds 2^(31 + b) by at most 2^b, so the product by less than 1 / d. m < 2^32. */
static inline void tn_d_finish(tn_d_axes *x)
{
    int64_t n = 1;
    for (int i = 0; i < x->rank; i++) n *= x->dim[i];
    x->wide = n > INT32_MAX;
    for (int i = 0; i < x->rank && !x->wide; i++) {
        int b = 1;
        if (x->dim[i] < 2 || x->dim[i] > INT32_MAX) continue; /* nothing to divide; an empty space */
        while ((int64_t)1 << b < x->dim[i]) b++;
        x->inverse[i] = (uint32_t)(((uint64_t)1 << (31 + b)) / (uint64_t)x->dim[i] + 1);
        x->shift[i] = (uint8_t)(b - 1);
    }
}

static inline int64_t tn_d_bytes(tn_dtype t) { return t == TN_F32 ? 4 : t == TN_F64 ? 8 : 2; }

/* Argument k can be read 8 at a time along axis `inner`: one number for all, or neighbours at multiples of 16 bytes. */
static inline bool tn_d_eights(const tn_d_axes *x, int k, int inner, const void *data, tn_dtype t)
{
    if (!data) return true;
    if (inner >= 0 && x->stride[k][inner] == 0) return true;
    if (inner < 0 || x->stride[k][inner] != 1 || t == TN_F64 || (uintptr_t)data % 16) return false;
    for (int i = 0; i < x->rank; i++)
        if (i != inner && x->stride[k][i] * tn_d_bytes(t) % 16) return false;
    return true;
}

/* --- spaces ------------------------------------------------------------------------------------------------------- */

struct tn_d_space {
    tn_d_axes axes; /* rank >= 1 */
    void *data[TN_D_ARGS];
    tn_dtype dtype[TN_D_ARGS];
    const int32_t *live;
    int64_t first, rest; /* size of axis 0; elements to each of its positions */
    bool eights;
    bool bf16;      /* eights, none of them short, of bf16 but for the arguments in `small` */
    unsigned small; /* bit k: argument k is f32, and repeated along some axis but not along a row */
    unsigned ones;  /* bit k: argument k is bf16, one number for a row */
};

/* dims is the shape to walk, its axis 0 cut to *live (NULL: all). Arguments without data are never touched. */
static inline tn_d_space tn_d_space_make(tn_dims dims, const int32_t *live, int n, const tn_arg *const *args)
{
    tn_d_space s = {};
    s.live = dims.rank ? live : NULL;
    s.first = dims.rank ? dims.dim[0] : 1;
    s.rest = 1;
    for (int i = 1; i < dims.rank; i++) s.rest *= dims.dim[i];
    for (int i = 0; i < dims.rank; i++) {
        int64_t stride[TN_D_ARGS];
        if (dims.dim[i] == 1) continue;
        for (int k = 0; k < n; k++) stride[k] = tn_d_stride(args[k], dims.rank, i);
        tn_d_push(&s.axes, n, dims.dim[i], stride);
    }
    if (s.axes.rank == 0) { /* one element */
        s.axes.rank = 1;
        s.axes.dim[0] = 1;
    }
    const int inner = s.axes.rank - 1;
    tn_d_finish(&s.axes);
    s.eights = inner == 0 || s.axes.dim[inner] % 8 == 0; /* only a space of one row has a short last vector */
    s.bf16 = s.rest % 8 == 0 || (!s.live && s.first * s.rest % 8 == 0);
    for (int k = 0; k < n; k++) {
        s.data[k] = args[k]->data;
        s.dtype[k] = args[k]->dtype;
        s.eights = s.eights && tn_d_eights(&s.axes, k, inner, s.data[k], s.dtype[k]);
        bool repeated = false;
        for (int i = 0; i < s.axes.rank; i++) repeated = repeated || s.axes.stride[k][i] == 0;
        if (!s.data[k]) continue;
        if (s.dtype[k] == TN_BF16 && s.axes.stride[k][inner] == 0) {
            s.ones |= 1u << k;
            continue;
        }
        if (s.dtype[k] == TN_F32 && repeated) s.small |= 1u << k;
        s.bf16 = s.bf16 && s.axes.stride[k][inner] == 1 && (s.dtype[k] == TN_BF16 || s.small >> k & 1);
    }
    s.bf16 = s.bf16 && s.eights;
    return s;
}

static inline bool tn_d_space_empty(const tn_d_space &s) { return s.first * s.rest == 0; }

/* 8 neighbours as they lie in memory; hi is f32's second half. */
struct tn_d_raw {
    uint4 lo, hi;
};

/* What tn_load8 would read, without waiting for it. */
__device__ __forceinline__ void tn_d_ask8(const void *data, tn_dtype t, int64_t at, tn_d_raw &r)
{
    const bool f32 = t == TN_F32;
    const uint4 *p = (const uint4 *)((const char *)data + (at << (f32 ? 2 : 1)));
    r.lo = p[0];
    if (f32) r.hi = p[1];
}

__device__ __forceinline__ void tn_d_unpack8(tn_dtype t, const tn_d_raw &r, float (&x)[8])
{
    const uint32_t lo[4] = { r.lo.x, r.lo.y, r.lo.z, r.lo.w }, hi[4] = { r.hi.x, r.hi.y, r.hi.z, r.hi.w };
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (t == TN_F32) {
            x[k] = __uint_as_float(lo[k]);
            x[4 + k] = __uint_as_float(hi[k]);
        } else if (t == TN_BF16) {
            x[2 * k] = __uint_as_float(lo[k] << 16);
            x[2 * k + 1] = __uint_as_float(lo[k] & 0xffff0000u);
        } else {
            const float2 f = __half22float2(*(const __half2 *)&lo[k]);
            x[2 * k] = f.x, x[2 * k + 1] = f.y;
        }
    }
}

/* 8 of which `left` exist. r: they were asked for, unless they are one number repeated or a short last vector. */
__device__ __forceinline__ void tn_d_take8(const void *data, tn_dtype t, int64_t at, bool repeated, int64_t left,
                                           const tn_d_raw &r, float (&x)[8])
{
    if (!data || repeated) {
        const float one = data ? tn_load(data, t, at) : 0.f;
#pragma unroll
        for (int e = 0; e < 8; e++) x[e] = one;
    } else if (left >= 8) {
        tn_d_unpack8(t, r, x);
    } else {
#pragma unroll
        for (int e = 0; e < 8; e++) x[e] = e < left ? tn_load(data, t, at + e) : 0.f;
    }
}

/* Both at once. */
__device__ __forceinline__ void tn_d_get8(const void *data, tn_dtype t, int64_t at, bool repeated, int64_t left,
                                          float (&x)[8])
{
    tn_d_raw r;
    if (data && !repeated && left >= 8) tn_d_ask8(data, t, at, r);
    tn_d_take8(data, t, at, repeated, left, r, x);
}

__device__ __forceinline__ void tn_d_put8(void *data, tn_dtype t, int64_t at, int64_t left, const float (&y)[8],
                                          bool add)
{
    if (left >= 8) {
        tn_f8 r;
#pragma unroll
        for (int e = 0; e < 8; e++) r.v[e] = y[e];
        tn_put8(data, t, at, r, add);
    } else {
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (e < left) tn_put(data, t, at + e, y[e], add);
    }
}

/* Arguments 0 .. IN-1 are read, the next OUT written (or added to: bit k of add for output k), those without data
 * neither. f(index, x, y) computes N neighbours of every output: x[IN][N], y[OUT][N]; index: row-major, of the first.
 * Outputs may be inputs: a thread has read its numbers before it writes them. */
template <int IN, int OUT, class F>
__global__ void __launch_bounds__(TN_D_THREADS) tn_d_map_eights(const __grid_constant__ tn_d_space s, unsigned add, F f)
{
    const int64_t n = tn_d_alive(s.live, s.first) * s.rest, step = (int64_t)gridDim.x * TN_D_THREADS * 8;
    const int inner = s.axes.rank - 1;
    for (int64_t i = ((int64_t)blockIdx.x * TN_D_THREADS + threadIdx.x) * 8; i < n; i += step) {
        int64_t at[IN + OUT] = {};
        tn_d_raw raw[IN];
        float x[IN][8], y[OUT][8];
        tn_d_locate(s.axes, i, at);
#pragma unroll
        for (int k = 0; k < IN; k++)
            if (s.data[k] && s.axes.stride[k][inner] && n - i >= 8) tn_d_ask8(s.data[k], s.dtype[k], at[k], raw[k]);
#pragma unroll
        for (int k = 0; k < IN; k++)
            tn_d_take8(s.data[k], s.dtype[k], at[k], s.axes.stride[k][inner] == 0, n - i, raw[k], x[k]);
        f(i, x, y);
#pragma unroll
        for (int k = 0; k < OUT; k++)
            if (s.data[IN + k]) tn_d_put8(s.data[IN + k], s.dtype[IN + k], at[IN + k], n - i, y[k], add >> k & 1);
    }
}

/* Vectors a thread asks for at once: enough bytes on their way for the memory's full speed. */
template <int IN>
struct tn_d_unroll {
    enum { N = IN > 2 ? 1 : 2 };
};

/* The same with types known when compiled, which takes fewer registers: bf16, but f32 for the arguments in SMALL; one
 * number for those in ONES. */
template <int IN, int OUT, unsigned SMALL, unsigned ONES, class F>
__global__ void __launch_bounds__(TN_D_THREADS, 4)
    tn_d_map_bf16(const __grid_constant__ tn_d_space s, unsigned add, F f)
{
    constexpr int U = tn_d_unroll<IN>::N, next = TN_D_THREADS * 8; /* next: from a thread's vector to its next one */
    const int64_t n = tn_d_alive(s.live, s.first) * s.rest, step = (int64_t)gridDim.x * (next * U);
    for (int64_t i = (int64_t)blockIdx.x * (next * U) + threadIdx.x * 8; i < n; i += step) {
        int64_t at[U][IN + OUT] = {};
        tn_d_raw raw[U][IN] = {};
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (i + u * next >= n) continue;
            tn_d_locate(s.axes, i + u * next, at[u]);
#pragma unroll
            for (int k = 0; k < IN; k++) {
                if (!s.data[k]) continue;
                if (ONES >> k & 1) raw[u][k].lo.x = ((const uint16_t *)s.data[k])[at[u][k]];
                else tn_d_ask8(s.data[k], SMALL >> k & 1 ? TN_F32 : TN_BF16, at[u][k], raw[u][k]);
            }
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            float x[IN][8], y[OUT][8];
            if (i + u * next >= n) continue;
#pragma unroll
            for (int k = 0; k < IN; k++) {
                if (ONES >> k & 1) {
#pragma unroll
                    for (int e = 0; e < 8; e++) x[k][e] = __uint_as_float(raw[u][k].lo.x << 16);
                } else {
                    tn_d_unpack8(SMALL >> k & 1 ? TN_F32 : TN_BF16, raw[u][k], x[k]);
                }
            }
            f(i + u * next, x, y);
#pragma unroll
            for (int k = 0; k < OUT; k++)
                if (s.data[IN + k]) tn_d_put8(s.data[IN + k], TN_BF16, at[u][IN + k], 8, y[k], add >> k & 1);
        }
    }
}

template <int IN, int OUT, class F>
__global__ void __launch_bounds__(TN_D_THREADS) tn_d_map_ones(const __grid_constant__ tn_d_space s, unsigned add, F f)
{
    const int64_t n = tn_d_alive(s.live, s.first) * s.rest, step = (int64_t)gridDim.x * TN_D_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * TN_D_THREADS + threadIdx.x; i < n; i += step) {
        int64_t at[IN + OUT] = {};
        float x[IN][1], y[OUT][1];
        tn_d_locate(s.axes, i, at);
#pragma unroll
        for (int k = 0; k < IN; k++) x[k][0] = s.data[k] ? tn_load(s.data[k], s.dtype[k], at[k]) : 0.f;
        f(i, x, y);
#pragma unroll
        for (int k = 0; k < OUT; k++)
            if (s.data[IN + k]) tn_put(s.data[IN + k], s.dtype[IN + k], at[IN + k], y[k][0], add >> k & 1);
    }
}

/* The launches, for ops that have a kernel of their own for each; tn_d_map chooses. The space is not empty. */
template <int IN, int OUT, class F>
static tn_status tn_d_run_any_eights(const tn_call *c, const tn_d_space &s, unsigned add, F f)
{
    const unsigned blocks = tn_blocks(c, (s.first * s.rest + 7) / 8, TN_D_THREADS);
    tn_d_map_eights<IN, OUT, F><<<blocks, TN_D_THREADS, 0, tn_cuda_stream(c)>>>(s, add, f);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* SMALL: arguments of bf16 spaces that are often f32 vectors, worth a kernel; ONES: that are often a number for a row. */
template <int IN, int OUT, unsigned SMALL = 0, unsigned ONES = 0, class F>
static tn_status tn_d_run_eights(const tn_call *c, const tn_d_space &s, unsigned add, F f)
{
    const unsigned fewer = tn_blocks(c, (s.first * s.rest + 7) / 8, TN_D_THREADS * tn_d_unroll<IN>::N);
    const cudaStream_t stream = tn_cuda_stream(c);
    if (s.bf16 && s.small == 0 && s.ones == 0)
        tn_d_map_bf16<IN, OUT, 0, 0, F><<<fewer, TN_D_THREADS, 0, stream>>>(s, add, f);
    else if (SMALL && s.bf16 && s.small == SMALL && s.ones == 0)
        tn_d_map_bf16<IN, OUT, SMALL, 0, F><<<fewer, TN_D_THREADS, 0, stream>>>(s, add, f);
    else if (ONES && s.bf16 && s.small == 0 && s.ones == ONES)
        tn_d_map_bf16<IN, OUT, 0, ONES, F><<<fewer, TN_D_THREADS, 0, stream>>>(s, add, f);
    else return tn_d_run_any_eights<IN, OUT>(c, s, add, f);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

template <int IN, int OUT, class F>
static tn_status tn_d_run_ones(const tn_call *c, const tn_d_space &s, unsigned add, F f)
{
    const unsigned blocks = tn_blocks(c, s.first * s.rest, TN_D_THREADS);
    tn_d_map_ones<IN, OUT, F><<<blocks, TN_D_THREADS, 0, tn_cuda_stream(c)>>>(s, add, f);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

template <int IN, int OUT, class F>
static tn_status tn_d_map(const tn_call *c, const tn_d_space &s, unsigned add, F f)
{
    if (tn_d_space_empty(s)) return TN_OK;
    return s.eights ? tn_d_run_eights<IN, OUT>(c, s, add, f) : tn_d_run_ones<IN, OUT>(c, s, add, f);
}

#endif
