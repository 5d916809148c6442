/* Rows by number on the GPU (gather_rows, scatter_rows), as indexed.h on the CPU. An index outside its range is no
 * error here: memory stays safe, and the numbers that depend on it become NaN (integers -1).
 *
 * Sums of rows with the same number go in the order of the list, without atomics on floats: first every entry joins the
 * list of its row (integer atomics, any order), then a block to a row puts its few entries in order and adds them up.
 * A row named more than TN_D_FEW times reads the whole index instead. Only entries below both live extents count. */
#ifndef TN_OPS_INDEXED_CUH
#define TN_OPS_INDEXED_CUH

#include "ops/rows_block.cuh"

enum { TN_D_FEW = 16 };

struct tn_d_indexed {
    const int32_t *index;           /* (n) */
    const int32_t *live, *live_too; /* of the index, and of the rows that go with it; NULL: all */
    const void *from;
    void *to;
    tn_dtype from_type, to_type;
    int64_t n, rows, width;   /* rows: of the tensor the index points into */
    const int32_t *rows_live; /* gather: of that tensor, or NULL */
    bool add, eights;
    bool zero_rest; /* gather: entries of `to` alive in live_too alone become 0 */
    int32_t *head;  /* scatter: (rows), last entry that joined, or -1 */
    int32_t *next;  /* (n) */
};

/* Elements of one row of a (rows, ...) tensor. */
static inline int64_t tn_d_index_width(tn_dims d)
{
    int64_t n = 1;
    for (int i = 1; i < d.rank; i++) n *= d.dim[i];
    return n;
}

__device__ __forceinline__ int64_t tn_d_entries(const tn_d_indexed &j)
{
    const int64_t a = tn_d_alive(j.live, j.n), b = tn_d_alive(j.live_too, j.n);
    return a < b ? a : b;
}

/* --- to[i] = or += from[index[i]] --------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(TN_D_THREADS) tn_d_gather_rows(const __grid_constant__ tn_d_indexed j)
{
    const int64_t groups = (j.width + 7) / 8, entries = tn_d_entries(j), step = (int64_t)gridDim.x * TN_D_THREADS;
    const int64_t rows = tn_d_alive(j.rows_live, j.rows), end = j.zero_rest ? tn_d_alive(j.live_too, j.n) : entries;
    const bool wide = end * groups > INT32_MAX;
    for (int64_t k = (int64_t)blockIdx.x * TN_D_THREADS + threadIdx.x; k < end * groups; k += step) {
        const int64_t i = wide ? k / groups : (uint32_t)k / (uint32_t)groups, g = (k - i * groups) * 8;
        float x[8] = {};
        if (i < entries) {
            const int32_t r = j.index[i];
            const bool there = r >= 0 && r < rows;
            if (there) tn_d_group_get(j.from, j.from_type, r * j.width, g, j.width, j.eights, 0.f, x);
#pragma unroll
            for (int e = 0; e < 8; e++) x[e] = there ? x[e] : NAN;
        }
        tn_d_group_put(j.to, j.to_type, i * j.width, g, j.width, j.eights, x, j.add);
    }
}

static __global__ void __launch_bounds__(TN_D_THREADS) tn_d_gather_integers(const __grid_constant__ tn_d_indexed j)
{
    const int64_t n = tn_d_entries(j) * j.width, rows = tn_d_alive(j.rows_live, j.rows);
    const int64_t step = (int64_t)gridDim.x * TN_D_THREADS;
    for (int64_t k = (int64_t)blockIdx.x * TN_D_THREADS + threadIdx.x; k < n; k += step) {
        const int64_t i = k / j.width;
        const int32_t r = j.index[i];
        ((int32_t *)j.to)[k] = r >= 0 && r < rows ? ((const int32_t *)j.from)[r * j.width + k - i * j.width] : -1;
    }
}

static inline bool tn_d_index_eights(const tn_d_indexed &j)
{
    return tn_d_row_eights(j.from, j.from_type, j.width) && tn_d_row_eights(j.to, j.to_type, j.width);
}

static inline tn_status tn_d_gather(const tn_call *c, tn_d_indexed j)
{
    if (j.n == 0 || j.width == 0) return TN_OK;
    j.eights = tn_d_index_eights(j);
    if (j.to_type == TN_I32)
        tn_d_gather_integers<<<tn_blocks(c, j.n * j.width, TN_D_THREADS), TN_D_THREADS, 0, tn_cuda_stream(c)>>>(j);
    else
        tn_d_gather_rows<<<tn_blocks(c, j.n * ((j.width + 7) / 8), TN_D_THREADS), TN_D_THREADS, 0, tn_cuda_stream(c)>>>(
            j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- to[index[i]] += from[i] -------------------------------------------------------------------------------------- */

/* Where entry i goes; one outside the range goes to the nearest row, and makes it NaN. */
__device__ __forceinline__ int64_t tn_d_target(const tn_d_indexed &j, int64_t i)
{
    const int32_t r = j.index[i];
    return r < 0 ? 0 : r < j.rows ? r : j.rows - 1;
}

static __global__ void __launch_bounds__(TN_D_THREADS) tn_d_scatter_link(const __grid_constant__ tn_d_indexed j)
{
    const int64_t n = tn_d_entries(j), step = (int64_t)gridDim.x * TN_D_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * TN_D_THREADS + threadIdx.x; i < n; i += step)
        j.next[i] = atomicExch(&j.head[tn_d_target(j, i)], (int32_t)i);
}

/* The entries of row r in order, if they are few; returns how many, or more than TN_D_FEW. */
__device__ __forceinline__ int tn_d_scatter_list(const tn_d_indexed &j, int64_t r, int32_t *list)
{
    int n = 0;
    for (int32_t i = j.head[r]; i >= 0; i = j.next[i]) {
        if (n == TN_D_FEW) return n + 1;
        int k = n++;
        for (; k > 0 && list[k - 1] > i; k--) list[k] = list[k - 1];
        list[k] = i;
    }
    return n;
}

__device__ __forceinline__ void tn_d_scatter_add(const tn_d_indexed &j, int64_t r, int64_t i, int64_t g,
                                                 float (&sum)[8])
{
    float x[8];
    const bool there = j.index[i] == r;
    tn_d_group_get(j.from, j.from_type, i * j.width, g, j.width, j.eights, 0.f, x);
#pragma unroll
    for (int e = 0; e < 8; e++) sum[e] += there ? x[e] : NAN;
}

static __global__ void tn_d_scatter_rows(const __grid_constant__ tn_d_indexed j)
{
    __shared__ int32_t list[TN_D_FEW];
    __shared__ int count;
    for (int64_t r = blockIdx.x; r < j.rows; r += gridDim.x) {
        if (threadIdx.x == 0) count = j.n ? tn_d_scatter_list(j, r, list) : 0;
        __syncthreads();
        const int64_t n = count <= TN_D_FEW ? count : tn_d_entries(j);
        TN_D_GROUPS(g, j.width)
        {
            float sum[8] = {};
            if (j.add) tn_d_group_get(j.to, j.to_type, r * j.width, g, j.width, j.eights, 0.f, sum);
            for (int64_t k = 0; k < n; k++) {
                const int64_t i = count <= TN_D_FEW ? list[k] : k;
                if (count <= TN_D_FEW || tn_d_target(j, i) == r) tn_d_scatter_add(j, r, i, g, sum);
            }
            tn_d_group_put(j.to, j.to_type, r * j.width, g, j.width, j.eights, sum, false);
        }
        __syncthreads(); /* the list is used again */
    }
}

/* Bytes of workspace. */
static inline size_t tn_d_scatter_work(int64_t n, int64_t rows) { return sizeof(int32_t) * (size_t)(n + rows); }

/* Unless `add`, rows that no entry names become 0. work: tn_d_scatter_work bytes. */
static inline tn_status tn_d_scatter(const tn_call *c, tn_d_indexed j)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    if (j.rows == 0 || j.width == 0) return TN_OK;
    j.eights = tn_d_index_eights(j);
    j.head = (int32_t *)c->work;
    j.next = j.head + j.rows;
    if (j.n) {
        TN_CUDA_TRY(cudaMemsetAsync(j.head, 0xff, sizeof *j.head * (size_t)j.rows, stream));
        tn_d_scatter_link<<<tn_blocks(c, j.n, TN_D_THREADS), TN_D_THREADS, 0, stream>>>(j);
        TN_CUDA_LAUNCHED();
    }
    tn_d_scatter_rows<<<tn_d_row_blocks(j.rows), tn_d_row_threads(j.width), 0, stream>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

#endif
