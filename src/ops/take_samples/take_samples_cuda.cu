/* take_samples on the GPU: a thread to one number, or to four neighbours where all rows allow it. Which sample a row is, and how
 * many rows are valid, are read where they lie. Bytes: the rows that are taken once, y once. */
#include "backend/cuda/device.cuh"
#include "ops/take_samples/take_samples.h"

enum { THREADS = 256 };

struct taking {
    const int32_t *number, *valid; /* (n), (1) */
    const void *set;               /* (samples, width) */
    void *y;                       /* (n, width) */
    int64_t n, samples, width;
    float scale;
    double pad;
};

template <class T, int V>
struct alignas(sizeof(T) * V) numbers {
    T v[V];
};

__device__ __forceinline__ float converted(uint8_t x, float scale) { return __fmul_rn((float)x, scale); }
/* Bits: f32 may be NaN. */
__device__ __forceinline__ uint32_t converted(uint32_t x, float) { return x; }
__device__ __forceinline__ void put_pad(float *y, double pad, bool) { *y = (float)pad; }
__device__ __forceinline__ void put_pad(uint32_t *y, double pad, bool whole)
{
    *y = whole ? (uint32_t)(int32_t)pad : __float_as_uint((float)pad);
}

template <class FROM, class TO, int V>
static __global__ void __launch_bounds__(THREADS) take(TN_GRID taking t, bool whole)
{
    const int64_t each = t.width / V, all = t.n * each, step = (int64_t)gridDim.x * THREADS;
    const int32_t valid = *t.valid;
    const bool wide = all > INT32_MAX;
    for (int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x; k < all; k += step) {
        const int64_t i = wide ? k / each : (uint32_t)k / (uint32_t)each, at = (k - i * each) * V;
        const int32_t r = t.number[i];
        numbers<TO, V> y;
        if (i < valid && r >= 0 && r < t.samples) {
            const numbers<FROM, V> x = *(const numbers<FROM, V> *)((const FROM *)t.set + r * t.width + at);
#pragma unroll
            for (int e = 0; e < V; e++) y.v[e] = converted(x.v[e], t.scale);
        } else {
#pragma unroll
            for (int e = 0; e < V; e++) put_pad(&y.v[e], t.pad, whole);
        }
        *(numbers<TO, V> *)((TO *)t.y + i * t.width + at) = y;
    }
}

template <class FROM, class TO>
static void launch(const tn_call *c, const taking &t, bool whole)
{
    const bool fours = t.width % 4 == 0 && (uintptr_t)t.set % (4 * sizeof(FROM)) == 0 && (uintptr_t)t.y % 16 == 0;
    const unsigned blocks = tn_blocks(c, t.n * t.width / (fours ? 4 : 1), THREADS);
    if (fours) take<FROM, TO, 4><<<blocks, THREADS, 0, tn_cuda_stream(c)>>>(t, whole);
    else take<FROM, TO, 1><<<blocks, THREADS, 0, tn_cuda_stream(c)>>>(t, whole);
}

extern "C" tn_status tn_take_samples_forward_cuda(const tn_call *c)
{
    const tn_take_samples_attr *a = (const tn_take_samples_attr *)c->attr;
    const tn_arg *number = &c->in[0], *set = &c->in[2], *y = &c->out[0];
    taking t = { (const int32_t *)number->data, (const int32_t *)c->in[1].data, set->data, y->data };
    t.n = number->dims.dim[0], t.samples = set->dims.dim[0], t.width = 1;
    for (int i = 1; i < set->dims.rank; i++) t.width *= set->dims.dim[i];
    t.scale = a->scale, t.pad = a->pad;
    if (t.n == 0 || t.width == 0) return TN_OK;
    if (set->dtype == TN_U8) launch<uint8_t, float>(c, t, false);
    else launch<uint32_t, uint32_t>(c, t, set->dtype == TN_I32);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
