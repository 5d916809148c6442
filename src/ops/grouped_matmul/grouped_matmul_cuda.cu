/* grouped_matmul on the GPU, in tiles of 32 x 32 of f32 arithmetic: how many rows a group has is known to the device
 * alone. A block of the first kernel finds its group by counting tiles; one that is left over does nothing. Offsets that
 * fall or leave x are cut to what is safe. */
#include "backend/cuda/device.cuh"
#include "ops/grouped_matmul/grouped_matmul.h"

enum { X, W, OFFSETS, TILE = 32, THREADS = 256 };

struct group {
    int64_t index, first, end; /* rows; index -1: no group */
};

__device__ __forceinline__ int64_t cut(int64_t r, int64_t alive) { return r < 0 ? 0 : r > alive ? alive : r; }

__device__ __forceinline__ int64_t rows_alive(const tn_arg &x)
{
    return x.live && *x.live < x.dims.dim[0] ? (*x.live < 0 ? 0 : *x.live) : x.dims.dim[0];
}

/* The tile-th tile of rows, counted over all groups; *row is its first row. */
__device__ group find_group(const int32_t *offset, int64_t groups, int64_t alive, int64_t tile, int64_t *row)
{
    for (int64_t i = 0; i < groups; i++) {
        const int64_t first = cut(offset[i], alive), end = cut(offset[i + 1], alive),
                      tiles = end > first ? (end - first + TILE - 1) / TILE : 0;
        if (tile < tiles) {
            *row = first + tile * TILE;
            return { i, first, end };
        }
        tile -= tiles;
    }
    return { -1, 0, 0 };
}

/* y rows (+)= x rows times the group's matrix m(k,n), whose steps are mk and mn. 8 rows of 32 threads. */
static __global__ void rows_kernel(TN_GRID tn_arg y, TN_GRID tn_arg x, TN_GRID tn_arg w, const int32_t *offset, int mk,
                                   int mn, bool add)
{
    __shared__ float a[TILE][TILE + 1], b[TILE][TILE + 1];
    const int64_t k = x.dims.dim[1], n = y.dims.dim[1];
    int64_t row;
    const group g = find_group(offset, w.dims.dim[0], rows_alive(x), blockIdx.x, &row);
    if (g.index < 0) return;
    const int64_t column = blockIdx.y * TILE + threadIdx.x;
    float sum[TILE / 8] = { 0 };
    for (int64_t k0 = 0; k0 < k; k0 += TILE) {
        for (int i = threadIdx.y; i < TILE; i += 8) {
            const int64_t r = row + i, p = k0 + threadIdx.x, q = k0 + i;
            a[i][threadIdx.x] = r < g.end && p < k ? tn_load(x.data, x.dtype, r * x.stride[0] + p * x.stride[1]) : 0.f;
            b[i][threadIdx.x] =
                q < k && column < n
                    ? tn_load(w.data, w.dtype, g.index * w.stride[0] + q * w.stride[mk] + column * w.stride[mn])
                    : 0.f;
        }
        __syncthreads();
        for (int p = 0; p < TILE; p++)
            for (int i = 0; i < TILE / 8; i++) sum[i] += a[threadIdx.y + 8 * i][p] * b[p][threadIdx.x];
        __syncthreads();
    }
    for (int i = 0; i < TILE / 8; i++) {
        const int64_t r = row + threadIdx.y + 8 * i;
        if (r < g.end && column < n) tn_put(y.data, y.dtype, r * y.stride[0] + column * y.stride[1], sum[i], add);
    }
}

/* Rows of y that no group has become 0. */
static __global__ void clear_rest(TN_GRID tn_arg y, const int32_t *offset, int64_t groups)
{
    const int64_t alive = rows_alive(y), n = y.dims.dim[1], total = alive * n;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t r = i / n;
        if (r < offset[0] || r >= offset[groups]) tn_store(y.data, y.dtype, r * y.stride[0] + i % n * y.stride[1], 0.f);
    }
}

/* dw[g] (n,k) (+)= dy^T x over the group's rows, in order. */
static __global__ void weight_kernel(TN_GRID tn_arg dw, TN_GRID tn_arg dy, TN_GRID tn_arg x, const int32_t *offset,
                                     bool add)
{
    __shared__ float a[TILE][TILE + 1], b[TILE][TILE + 1];
    const int64_t alive = rows_alive(dy), first = cut(offset[blockIdx.z], alive),
                  end = cut(offset[blockIdx.z + 1], alive);
    const int64_t n = dw.dims.dim[1], k = dw.dims.dim[2], i0 = blockIdx.x * TILE,
                  column = blockIdx.y * TILE + threadIdx.x;
    float sum[TILE / 8] = { 0 };
    for (int64_t r0 = first; r0 < end; r0 += TILE) {
        for (int i = threadIdx.y; i < TILE; i += 8) {
            const int64_t r = r0 + i, p = i0 + threadIdx.x;
            a[i][threadIdx.x] =
                r < end && p < n ? tn_load(dy.data, dy.dtype, r * dy.stride[0] + p * dy.stride[1]) : 0.f;
            b[i][threadIdx.x] =
                r < end && column < k ? tn_load(x.data, x.dtype, r * x.stride[0] + column * x.stride[1]) : 0.f;
        }
        __syncthreads();
        for (int p = 0; p < TILE; p++)
            for (int i = 0; i < TILE / 8; i++) sum[i] += a[p][threadIdx.y + 8 * i] * b[p][threadIdx.x];
        __syncthreads();
    }
    for (int i = 0; i < TILE / 8; i++) {
        const int64_t p = i0 + threadIdx.y + 8 * i;
        if (p < n && column < k)
            tn_put(dw.data, dw.dtype, blockIdx.z * dw.stride[0] + p * dw.stride[1] + column * dw.stride[2], sum[i],
                   add);
    }
}

static unsigned tiles(int64_t n) { return (unsigned)((n + TILE - 1) / TILE); }

static tn_status multiply_rows(const tn_call *c, const tn_arg *x, const tn_arg *y, bool transposed, bool add)
{
    const tn_arg *w = &c->in[W];
    const int32_t *offset = (const int32_t *)c->in[OFFSETS].data;
    const int64_t G = w->dims.dim[0];
    const cudaStream_t stream = tn_cuda_stream(c);
    if (tn_all_count(y) == 0) return TN_OK;
    if (!add) {
        clear_rest<<<tn_blocks(c, tn_all_count(y), THREADS), THREADS, 0, stream>>>(*y, offset, G);
        TN_CUDA_LAUNCHED();
    }
    if (G == 0) return TN_OK;
    rows_kernel<<<dim3((unsigned)(tiles(x->dims.dim[0]) + G), tiles(y->dims.dim[1])), dim3(TILE, 8), 0, stream>>>(
        *y, *x, *w, offset, transposed ? 2 : 1, transposed ? 1 : 2, add);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_grouped_matmul_forward_cuda(const tn_call *c)
{
    return multiply_rows(c, &c->in[X], &c->out[0], true, false);
}

extern "C" tn_status tn_grouped_matmul_backward_cuda(const tn_call *c)
{
    const tn_arg *dw = &c->din[W];
    if (c->din[X].data) TN_RETURN_IF(multiply_rows(c, &c->dout[0], &c->din[X], false, c->accumulate >> X & 1));
    if (!dw->data || tn_all_count(dw) == 0) return TN_OK;
    weight_kernel<<<dim3(tiles(dw->dims.dim[1]), tiles(dw->dims.dim[2]), (unsigned)dw->dims.dim[0]), dim3(TILE, 8), 0,
                    tn_cuda_stream(c)>>>(*dw, c->dout[0], c->in[X], (const int32_t *)c->in[OFFSETS].data,
                                         c->accumulate >> W & 1);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
