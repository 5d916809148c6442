/* For CUDA kernels: numbers of any float type, rows of strided tensors, sums across a warp or a block.
 *
 * Kernels take tn_arg by value. A tensor's type is looked at once per 8 numbers (the branch is the same for all threads),
 * so one kernel serves f32 and bf16; arithmetic is f32. Vectors of 8 need 16-byte alignment of every row: ask
 * tn_vector_rows. Sums: the same order in every run. */
#ifndef TN_BACKEND_CUDA_DEVICE_CUH
#define TN_BACKEND_CUDA_DEVICE_CUH

#include "backend/cuda/cuda.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* Before a tn_arg parameter of a kernel: it stays where the launch put it. Without it, loops over its axes make the
 * compiler copy it into every thread's local memory. */
#define TN_GRID const __grid_constant__

/* Shared memory that a block may have on every GPU that kernels are made for (sm_80 and later); static and dynamic together. */
enum { TN_SHARED_BYTES = 99 * 1024 };

/* --- numbers ---------------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float tn_load(const void *p, tn_dtype t, int64_t i)
{
    if (t == TN_F32) return ((const float *)p)[i];
    if (t == TN_BF16) return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
    if (t == TN_F16) return __half2float(((const __half *)p)[i]);
    return (float)((const double *)p)[i];
}

__device__ __forceinline__ void tn_store(void *p, tn_dtype t, int64_t i, float x)
{
    if (t == TN_F32) ((float *)p)[i] = x;
    else if (t == TN_BF16) ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn(x);
    else if (t == TN_F16) ((__half *)p)[i] = __float2half_rn(x);
    else ((double *)p)[i] = x;
}

/* add: x is added to what is there. */
__device__ __forceinline__ void tn_put(void *p, tn_dtype t, int64_t i, float x, bool add)
{
    tn_store(p, t, i, add ? tn_load(p, t, i) + x : x);
}

struct tn_f8 {
    float v[8];
};

/* 8 neighbours from element i on; the address is a multiple of 16 bytes. f32, bf16, f16. */
__device__ __forceinline__ tn_f8 tn_load8(const void *p, tn_dtype t, int64_t i)
{
    tn_f8 r;
    if (t == TN_F32) {
        const float4 a = ((const float4 *)((const float *)p + i))[0], b = ((const float4 *)((const float *)p + i))[1];
        r.v[0] = a.x, r.v[1] = a.y, r.v[2] = a.z, r.v[3] = a.w;
        r.v[4] = b.x, r.v[5] = b.y, r.v[6] = b.z, r.v[7] = b.w;
        return r;
    }
    const uint4 q = *(const uint4 *)((const uint16_t *)p + i);
    const uint32_t w[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (t == TN_BF16) {
            r.v[2 * k] = __uint_as_float(w[k] << 16);
            r.v[2 * k + 1] = __uint_as_float(w[k] & 0xffff0000u);
        } else {
            const float2 f = __half22float2(*(const __half2 *)&w[k]);
            r.v[2 * k] = f.x, r.v[2 * k + 1] = f.y;
        }
    }
    return r;
}

__device__ __forceinline__ void tn_store8(void *p, tn_dtype t, int64_t i, const tn_f8 &r)
{
    if (t == TN_F32) {
        float4 *q = (float4 *)((float *)p + i);
        q[0] = make_float4(r.v[0], r.v[1], r.v[2], r.v[3]);
        q[1] = make_float4(r.v[4], r.v[5], r.v[6], r.v[7]);
        return;
    }
    uint32_t w[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (t == TN_BF16) {
            const __nv_bfloat162 h = __floats2bfloat162_rn(r.v[2 * k], r.v[2 * k + 1]);
            w[k] = *(const uint32_t *)&h;
        } else {
            const __half2 h = __floats2half2_rn(r.v[2 * k], r.v[2 * k + 1]);
            w[k] = *(const uint32_t *)&h;
        }
    }
    *(uint4 *)((uint16_t *)p + i) = make_uint4(w[0], w[1], w[2], w[3]);
}

/* add: to what is there. */
__device__ __forceinline__ void tn_put8(void *p, tn_dtype t, int64_t i, tn_f8 r, bool add)
{
    if (add) {
        const tn_f8 old = tn_load8(p, t, i);
#pragma unroll
        for (int k = 0; k < 8; k++) r.v[k] += old.v[k];
    }
    tn_store8(p, t, i, r);
}

/* --- rows: all axes but the last ---------------------------------------------------------------------------------------- */

/* On the device, where live counts are. As tn_live_rows and tn_row_offset in ops/rows.h. */
__device__ __forceinline__ int64_t tn_d_rows(const tn_arg &a)
{
    if (a.dims.rank < 2) return 1;
    int64_t n = a.dims.dim[0];
    if (a.live && *a.live < n) n = *a.live < 0 ? 0 : *a.live;
    for (int i = 1; i < a.dims.rank - 1; i++) n *= a.dims.dim[i];
    return n;
}

/* Elements alive, axis 0 cut. */
__device__ __forceinline__ int64_t tn_d_count(const tn_arg &a)
{
    int64_t n = a.dims.rank > 0 ? a.dims.dim[0] : 1;
    if (a.live && *a.live < n) n = *a.live < 0 ? 0 : *a.live;
    for (int i = 1; i < a.dims.rank; i++) n *= a.dims.dim[i];
    return n;
}

__host__ __device__ __forceinline__ int64_t tn_d_row_offset(const tn_arg &a, int64_t r)
{
    int64_t off = 0;
    for (int i = a.dims.rank - 2; i >= 0; i--) {
        const int64_t d = a.dims.dim[i];
        off += (r % d) * a.stride[i];
        r /= d;
    }
    return off;
}

/* Offset of element i, counted in row-major order, of a tensor of any strides. */
__host__ __device__ __forceinline__ int64_t tn_d_offset(const tn_arg &a, int64_t i)
{
    int64_t off = 0;
    for (int k = a.dims.rank - 1; k >= 0; k--) {
        const int64_t d = a.dims.dim[k];
        off += (i % d) * a.stride[k];
        i /= d;
    }
    return off;
}

/* --- on the host: sizes --------------------------------------------------------------------------------------------------- */

/* All rows, dead ones too: what a launch must cover. */
static inline int64_t tn_all_rows(const tn_arg *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->dims.rank - 1; i++) n *= a->dims.dim[i];
    return n;
}

static inline int64_t tn_all_count(const tn_arg *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->dims.rank; i++) n *= a->dims.dim[i];
    return n;
}

static inline int64_t tn_row_len(const tn_arg *a) { return a->dims.rank ? a->dims.dim[a->dims.rank - 1] : 1; }

/* Every row begins at a multiple of 16 bytes, is contiguous and a multiple of 8 long. */
static inline bool tn_vector_rows(const tn_arg *a)
{
    const int last = a->dims.rank - 1;
    const int64_t bytes = a->dtype == TN_F32 ? 4 : a->dtype == TN_F64 ? 8 : 2;
    if (last < 0 || a->dtype == TN_F64 || a->dims.dim[last] % 8 || (a->dims.dim[last] > 1 && a->stride[last] != 1))
        return false;
    if ((uintptr_t)a->data % 16) return false;
    for (int i = 0; i < last; i++)
        if (a->dims.dim[i] > 1 && a->stride[i] * bytes % 16) return false;
    return true;
}

/* Blocks for n pieces of work, `each` a block, in a loop over a grid of bounded size (a few blocks a multiprocessor). */
static inline unsigned tn_blocks(const tn_call *c, int64_t n, int64_t each)
{
    const int64_t want = (n + each - 1) / each, most = (int64_t)tn_cuda_queue_of(c)->multiprocessors * 16;
    return (unsigned)(want < 1 ? 1 : want < most ? want : most);
}

/* Workspaces are cut into pieces that begin at multiples of 256 bytes. */
static inline size_t tn_align256(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* The next part of a workspace; base NULL only measures. */
static inline void *tn_d_carve(void *base, size_t *used, size_t bytes)
{
    void *p = base ? (char *)base + *used : NULL;
    *used += tn_align256(bytes);
    return p;
}

/* a, of another type, contiguous at `data`; all of its rows. */
static inline tn_arg tn_contiguous_at(const tn_arg *a, void *data, tn_dtype type)
{
    tn_arg r = *a;
    int64_t step = 1;
    r.data = data;
    r.dtype = type;
    r.live = NULL;
    for (int i = a->dims.rank - 1; i >= 0; i--) {
        r.stride[i] = step;
        step *= a->dims.dim[i];
    }
    return r;
}

static __global__ void tn_clear_numbers(TN_GRID tn_arg a, int64_t n)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        tn_store(a.data, a.dtype, tn_d_offset(a, i), 0.f);
}

/* The gradient of a sum over nothing: 0, or what it is where it is added to. */
static inline tn_status tn_clear_gradient(const tn_call *c, const tn_arg *d, bool add)
{
    const int64_t n = tn_all_count(d);
    if (!d->data || add || n == 0) return TN_OK;
    tn_clear_numbers<<<tn_blocks(c, n, 256), 256, 0, tn_cuda_stream(c)>>>(*d, n);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- sums ------------------------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ float tn_warp_sum(float x)
{
#pragma unroll
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__device__ __forceinline__ float tn_warp_max(float x)
{
#pragma unroll
    for (int d = 16; d; d >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

/* Over a block of at most 1024 threads, a multiple of 32; every thread gets the sum. `shared` (33 floats) may be used
 * again after the next barrier. */
__device__ __forceinline__ float tn_block_sum(float x, float *shared)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    x = tn_warp_sum(x);
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    if (warp == 0) {
        const float y = tn_warp_sum(lane < warps ? shared[lane] : 0.f);
        if (lane == 0) shared[32] = y;
    }
    __syncthreads();
    return shared[32];
}

#endif
