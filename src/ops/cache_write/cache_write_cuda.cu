/* cache_write on the GPU: x into rows position .. position+T-1 of the cache, in its own type and strides. The position
 * is read on the device. Rows that do not fit are no error here: the nearest rows that do fit become NaN, so that
 * whatever reads them shows it. */
#include "ops/cache_write/cache_write.h"
#include "ops/elem.cuh"

enum { CACHE, X, POSITION };

/* Arguments of the space: x, and the rows at position 0. step: from one position to the next; most: the last that fits; each: numbers of
 * a sequence that has a position of its own (all of them where they share one). */
__global__ void __launch_bounds__(TN_D_THREADS)
    write_rows(const __grid_constant__ tn_d_space s, const int32_t *position, int64_t step, int64_t most, int64_t each,
               bool eights)
{
    const int64_t n = s.first * s.rest;
    const int width = eights ? 8 : 1, inner = s.axes.rank - 1;
    for (int64_t i = ((int64_t)blockIdx.x * TN_D_THREADS + threadIdx.x) * width; i < n;
         i += (int64_t)gridDim.x * TN_D_THREADS * width) {
        const int64_t given = position[i / each], fits = given < 0 ? 0 : given < most ? given : most;
        int64_t at[2] = { 0, fits * step };
        tn_d_locate(s.axes, i, at);
        if (!eights) {
            tn_store(s.data[1], s.dtype[1], at[1], fits == given ? tn_load(s.data[0], s.dtype[0], at[0]) : NAN);
            continue;
        }
        float x[8];
        tn_d_get8(s.data[0], s.dtype[0], at[0], s.axes.stride[0][inner] == 0, n - i, x);
#pragma unroll
        for (int e = 0; e < 8; e++) x[e] = fits == given ? x[e] : NAN;
        tn_d_put8(s.data[1], s.dtype[1], at[1], n - i, x, false);
    }
}

extern "C" tn_status tn_cache_write_forward_cuda(const tn_call *c)
{
    const tn_arg *x = &c->in[X], *cache = &c->out[0];
    tn_arg to = *cache;
    to.dims = x->dims;
    const tn_arg *args[] = { x, &to };
    const tn_d_space s = tn_d_space_make(x->dims, NULL, 2, args);
    const int64_t step = cache->stride[1], n = s.first * s.rest;
    const int64_t each = c->in[POSITION].dims.dim[0] > 1 ? n / x->dims.dim[0] : n;
    const bool eights = s.eights && step * tn_d_bytes(cache->dtype) % 16 == 0 && each % 8 == 0;
    if (n == 0) return TN_OK;
    write_rows<<<tn_blocks(c, eights ? (n + 7) / 8 : n, TN_D_THREADS), TN_D_THREADS, 0, tn_cuda_stream(c)>>>(
        s, (const int32_t *)c->in[POSITION].data, step, cache->dims.dim[1] - x->dims.dim[1], each, eights);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
