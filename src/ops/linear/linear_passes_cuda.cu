/* linear's passes over memory: activations that the product does not take in, the gradient before them, and the bias'
 * gradient, which adds rows in two stages of fixed order. Each has a form for rows of whole vectors, bound by memory, and
 * one for any rows. In the first a block is 32 vectors (256 columns) by 8 rows, and the blocks of a column go down the rows
 * together; the activation is a template argument, so that nothing is looked up for each number. */
#include "ops/linear/linear_passes.cuh"

#include "ops/act.cuh"

enum { X = TN_LINEAR_X, BIAS = TN_LINEAR_BIAS, RESIDUAL = TN_LINEAR_RESIDUAL };
enum { THREADS = 256, LANES = 32, GROUPS = 8 };
/* Parts of the rows, whose sums are added in the second stage; of a sum alone as many as fill the GPU once, with so many
 * blocks a multiprocessor, but no more than SUM_PARTS. */
enum {
    PARTS = 128,
    SUM_PARTS = 512,
    SUM_BLOCKS = 6,
    SUM_AHEAD = 4,
    MORE_PARTS = 512,
    NARROW = 512
}; /* up to NARROW columns make few blocks: activations cut their rows into MORE_PARTS */

size_t tn_linear_parts_bytes(int64_t n) { return tn_align256(SUM_PARTS * (size_t)n * sizeof(float)); }

/* Rows at even distances, of whole vectors; a tensor that is not there counts. */
static bool vectors(const tn_arg *a) { return tn_rows_of(a).fast; }

static int parts_of(int64_t rows) { return (int)(rows < PARTS * GROUPS ? (rows + GROUPS - 1) / GROUPS : PARTS); }

static dim3 vector_grid(int64_t rows, int64_t n)
{
    return dim3((unsigned)((n + LANES * 8 - 1) / (LANES * 8)), (unsigned)parts_of(rows));
}

static int act_parts(int64_t rows, int64_t n)
{
    const int64_t most = n <= NARROW ? MORE_PARTS : PARTS, want = (rows + GROUPS - 1) / GROUPS;
    return (int)(want < most ? want : most);
}

static dim3 act_grid(int64_t rows, int64_t n)
{
    return dim3((unsigned)((n + LANES * 8 - 1) / (LANES * 8)), (unsigned)act_parts(rows, n));
}

static dim3 vector_block() { return dim3(LANES, GROUPS); }

/* --- conversion --------------------------------------------------------------------------------------------------------- */

static __global__ void convert_rows(TN_GRID tn_arg to, TN_GRID tn_arg from, int64_t total, int64_t n)
{
    const int64_t alive = tn_d_rows(from) * n;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x)
        tn_store(to.data, to.dtype, i,
                 i < alive ? tn_load(from.data, from.dtype, tn_d_row_offset(from, i / n) + i % n) : 0.f);
}

tn_status tn_linear_convert(const tn_call *c, const tn_arg *to, const tn_arg *from)
{
    const int64_t total = tn_all_count(from);
    convert_rows<<<tn_blocks(c, total, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(*to, *from, total, tn_row_len(from));
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- forward ------------------------------------------------------------------------------------------------------------ */

static __global__ void finish_numbers(TN_GRID tn_arg y, TN_GRID tn_arg pre, TN_GRID tn_arg bias,
                                      TN_GRID tn_arg residual, int act, int64_t n)
{
    const int64_t total = tn_d_rows(y) * n;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t r = i / n, j = i % n, p = tn_d_row_offset(pre, r) + j;
        float x = tn_load(pre.data, pre.dtype, p);
        if (bias.data) {
            x += tn_load(bias.data, bias.dtype, j * bias.stride[0]);
            if (pre.data != y.data) tn_store(pre.data, pre.dtype, p, x);
        }
        x = tn_d_act((tn_act)act, x);
        if (residual.data) x += tn_load(residual.data, residual.dtype, tn_d_row_offset(residual, r) + j);
        tn_store(y.data, y.dtype, tn_d_row_offset(y, r) + j, x);
    }
}

/* 8 neighbours of a row as they lie in memory, or opened already. BF16 lets a thread ask for several rows at once: a type that
 * is looked up for each would make it wait for one after the other. */
template <bool BF16>
struct eight {
    tn_f8 x;
    __device__ __forceinline__ void ask(const tn_rowset &s, int64_t row, int j)
    {
        x = tn_load8(s.a.data, s.a.dtype, row * s.distance + j);
    }
    __device__ __forceinline__ tn_f8 open() const { return x; }
};
template <>
struct eight<true> {
    uint4 q;
    __device__ __forceinline__ void ask(const tn_rowset &s, int64_t row, int j)
    {
        q = *(const uint4 *)((const uint16_t *)s.a.data + row * s.distance + j);
    }
    __device__ __forceinline__ tn_f8 open() const { return tn_open8(q); }
};

template <bool BF16>
__device__ __forceinline__ void put(const tn_rowset &s, int64_t row, int j, const tn_f8 &x)
{
    tn_store8(s.a.data, BF16 ? TN_BF16 : s.a.dtype, row * s.distance + j, x);
}

static bool all_bf16(const tn_arg *a, const tn_arg *b, const tn_arg *c)
{
    return a->dtype == TN_BF16 && b->dtype == TN_BF16 && (!c->data || c->dtype == TN_BF16);
}

template <tn_act ACT, bool BF16>
static __global__ void __launch_bounds__(LANES *GROUPS)
    finish_vectors(const __grid_constant__ tn_rowset y, const __grid_constant__ tn_rowset pre,
                   const __grid_constant__ tn_rowset residual, int n)
{
    enum { U = BF16 ? 4 : 1 };
    const int64_t rows = tn_d_rows(y.a), step = gridDim.y * GROUPS;
    const int j = (blockIdx.x * LANES + threadIdx.x) * 8;
    if (j >= n) return;
    for (int64_t r = blockIdx.y * GROUPS + threadIdx.y; r < rows; r += step * U) {
        eight<BF16> p[U], q[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (r + u * step >= rows) continue;
            p[u].ask(pre, r + u * step, j);
            if (residual.a.data) q[u].ask(residual, r + u * step, j);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (r + u * step >= rows) continue;
            tn_f8 x = p[u].open();
            for (int k = 0; k < 8; k++) x.v[k] = tn_d_act(ACT, x.v[k]);
            if (residual.a.data) {
                const tn_f8 more = q[u].open();
                for (int k = 0; k < 8; k++) x.v[k] += more.v[k];
            }
            put<BF16>(y, r + u * step, j, x);
        }
    }
}

typedef void finish_kernel(tn_rowset y, tn_rowset pre, tn_rowset residual, int n);
#define EACH_TYPE(kernel, act)                                                                                         \
    {                                                                                                                  \
        kernel<act, false>, kernel<act, true>                                                                          \
    }
#define EACH_ACT(kernel)                                                                                               \
    EACH_TYPE(kernel, TN_ACT_NONE), EACH_TYPE(kernel, TN_ACT_GELU), EACH_TYPE(kernel, TN_ACT_GELU_ERF),                \
        EACH_TYPE(kernel, TN_ACT_SILU), EACH_TYPE(kernel, TN_ACT_TANH), EACH_TYPE(kernel, TN_ACT_SIGMOID),             \
        EACH_TYPE(kernel, TN_ACT_RELU)
static finish_kernel *const finish_with[TN_ACTS][2] = { EACH_ACT(finish_vectors) };

tn_status tn_linear_finish(const tn_call *c, const tn_arg *y, const tn_arg *pre, const tn_arg *bias,
                           const tn_arg *residual, tn_act act)
{
    const int64_t n = tn_row_len(y), rows = tn_all_rows(y);
    if (!bias->data && y->dims.rank > 1 && vectors(y) && vectors(pre) && vectors(residual))
        finish_with[act][all_bf16(y, pre, residual)]<<<act_grid(rows, n), vector_block(), 0, tn_cuda_stream(c)>>>(
            tn_rows_of(y), tn_rows_of(pre), tn_rows_of(residual), (int)n);
    else
        finish_numbers<<<tn_blocks(c, rows * n, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(*y, *pre, *bias, *residual,
                                                                                           act, n);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------------- */

/* d (rows,n) = dy act'(pre); dead rows 0. pre.data NULL: dy itself. */
static __global__ void before_act_numbers(TN_GRID tn_arg d, TN_GRID tn_arg dy, TN_GRID tn_arg pre, int act,
                                          int64_t total, int64_t n)
{
    const int64_t alive = tn_d_rows(dy) * n;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        float x = i < alive ? tn_load(dy.data, dy.dtype, tn_d_row_offset(dy, i / n) + i % n) : 0.f;
        if (i < alive && pre.data)
            x *= tn_d_act_grad((tn_act)act, tn_load(pre.data, pre.dtype, tn_d_row_offset(pre, i / n) + i % n));
        tn_store(d.data, d.dtype, i, x);
    }
}

/* part[p] (n) = sum of every PARTS-th row from p on. A thread has one column. */
static __global__ void sum_parts(float *part, TN_GRID tn_arg d, int64_t n)
{
    const int64_t j = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, count = tn_d_rows(d);
    if (j >= n) return;
    float sum = 0;
    for (int64_t r = blockIdx.y; r < count; r += gridDim.y) sum += tn_load(d.data, d.dtype, tn_d_row_offset(d, r) + j);
    part[blockIdx.y * n + j] = sum;
}

/* What a block's groups have summed, in their order: part[blockIdx.y]. All threads come here. */
__device__ __forceinline__ void put_part(float *part, const tn_f8 &sum, int64_t n)
{
    __shared__ float shared[GROUPS][LANES][9]; /* 9: no two lanes in one bank */
    const int lane = threadIdx.x, group = threadIdx.y, own = group * LANES + lane;
#pragma unroll
    for (int k = 0; k < 8; k++) shared[group][lane][k] = sum.v[k];
    __syncthreads();
    const int64_t column = blockIdx.x * (int64_t)(LANES * 8) + own;
    float x = 0;
    for (int g = 0; g < GROUPS; g++) x += shared[g][own / 8][own % 8];
    if (column < n) part[blockIdx.y * n + column] = x;
}

/* The rows of d, where it is made by before_act_vectors, or of dy; as many rows as are alive. The type is a template
 * argument, so that several loads are on their way at once. */
template <tn_dtype T>
static __global__ void __launch_bounds__(LANES *GROUPS, SUM_BLOCKS)
    sum_parts_vectors(float *part, const __grid_constant__ tn_rowset d, int64_t n)
{
    const int64_t j = (blockIdx.x * LANES + threadIdx.x) * 8, count = j < n ? tn_d_rows(d.a) : 0,
                  step = gridDim.y * GROUPS;
    int64_t r = blockIdx.y * GROUPS + threadIdx.y;
    tn_f8 sum = { { 0 } };
    for (; r + (SUM_AHEAD - 1) * step < count; r += SUM_AHEAD * step) {
        tn_f8 x[SUM_AHEAD];
#pragma unroll
        for (int a = 0; a < SUM_AHEAD; a++) x[a] = tn_load8(d.a.data, T, (r + a * step) * d.distance + j);
#pragma unroll
        for (int a = 0; a < SUM_AHEAD; a++)
            for (int k = 0; k < 8; k++) sum.v[k] += x[a].v[k];
    }
    for (; r < count; r += step) {
        const tn_f8 x = tn_load8(d.a.data, T, r * d.distance + j);
        for (int k = 0; k < 8; k++) sum.v[k] += x.v[k];
    }
    put_part(part, sum, n);
}

static int sum_parts_of(const tn_call *c, int64_t rows, int64_t n)
{
    const int64_t across = (n + LANES * 8 - 1) / (LANES * 8),
                  all = tn_cuda_queue_of(c)->multiprocessors * (int64_t)SUM_BLOCKS / across;
    const int64_t some = (rows + GROUPS - 1) / GROUPS, most = all < 1 ? 1 : all < SUM_PARTS ? all : SUM_PARTS;
    return (int)(some < most ? some : most);
}

static tn_status sum_vectors(const tn_call *c, const tn_arg *d, float *parts, int count)
{
    const int64_t n = tn_row_len(d);
    const dim3 grid((unsigned)((n + LANES * 8 - 1) / (LANES * 8)), (unsigned)count);
    const cudaStream_t stream = tn_cuda_stream(c);
    if (d->dtype == TN_BF16) sum_parts_vectors<TN_BF16><<<grid, vector_block(), 0, stream>>>(parts, tn_rows_of(d), n);
    else if (d->dtype == TN_F16)
        sum_parts_vectors<TN_F16><<<grid, vector_block(), 0, stream>>>(parts, tn_rows_of(d), n);
    else sum_parts_vectors<TN_F32><<<grid, vector_block(), 0, stream>>>(parts, tn_rows_of(d), n);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

template <tn_act ACT, bool BF16>
static __global__ void __launch_bounds__(LANES *GROUPS)
    before_act_vectors(const __grid_constant__ tn_rowset d, const __grid_constant__ tn_rowset dy,
                       const __grid_constant__ tn_rowset pre, float *part, int64_t rows, int n)
{
    enum { U = BF16 ? 2 : 1 };
    const int64_t alive = tn_d_rows(dy.a), step = gridDim.y * GROUPS;
    const int j = (blockIdx.x * LANES + threadIdx.x) * 8;
    tn_f8 sum = { { 0 } };
    for (int64_t r = blockIdx.y * GROUPS + threadIdx.y; j < n && r < rows; r += step * U) {
        eight<BF16> g[U], p[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (r + u * step >= alive) continue;
            g[u].ask(dy, r + u * step, j);
            p[u].ask(pre, r + u * step, j);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            tn_f8 x = { { 0 } };
            if (r + u * step >= rows) continue;
            if (r + u * step < alive) {
                const tn_f8 at = p[u].open();
                x = g[u].open();
                for (int k = 0; k < 8; k++) x.v[k] *= tn_d_act_grad(ACT, at.v[k]);
            }
            for (int k = 0; k < 8; k++) sum.v[k] += x.v[k];
            put<BF16>(d, r + u * step, j, x);
        }
    }
    if (part) put_part(part, sum, n);
}

typedef void before_act_kernel(tn_rowset d, tn_rowset dy, tn_rowset pre, float *part, int64_t rows, int n);
static before_act_kernel *const before_act_of[TN_ACTS][2] = { EACH_ACT(before_act_vectors) };

/* db (n) (+)= the sums of all parts. A block has LANES columns; its groups share the parts, and are added in their order. */
static __global__ void add_parts(TN_GRID tn_arg db, const float *part, int parts, int64_t n, bool add)
{
    __shared__ float shared[GROUPS][LANES];
    const int64_t j = blockIdx.x * LANES + threadIdx.x;
    float sum = 0;
#pragma unroll 16
    for (int p = threadIdx.y; p < parts; p += GROUPS) sum += j < n ? part[p * n + j] : 0.f;
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || j >= n) return;
    for (int g = 1; g < GROUPS; g++) sum += shared[g][threadIdx.x];
    tn_put(db.data, db.dtype, j * db.stride[0], sum, add);
}

static tn_status put_bias(const tn_call *c, const float *parts, int count)
{
    const int64_t n = tn_row_len(&c->dout[0]);
    add_parts<<<(unsigned)((n + LANES - 1) / LANES), vector_block(), 0, tn_cuda_stream(c)>>>(c->din[BIAS], parts, count,
                                                                                             n,
                                                                                             c->accumulate >> BIAS & 1);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status sum_rows(const tn_call *c, const tn_arg *d, float *parts)
{
    const int64_t n = tn_row_len(d), rows = tn_all_rows(d);
    const bool fast = d->dims.rank > 1 && vectors(d);
    const int count = fast ? sum_parts_of(c, rows, n) : (int)(rows < PARTS ? rows : PARTS);
    if (fast) TN_RETURN_IF(sum_vectors(c, d, parts, count));
    else sum_parts<<<dim3((unsigned)((n + 127) / 128), count), 128, 0, tn_cuda_stream(c)>>>(parts, *d, n);
    TN_CUDA_LAUNCHED();
    return put_bias(c, parts, count);
}

tn_status tn_linear_before_act(const tn_call *c, void *work, float *parts, tn_arg *d)
{
    const tn_act act = ((const tn_linear_attr *)c->attr)->act;
    const tn_arg *dy = &c->dout[0], none = {};
    const tn_arg *pre = act == TN_ACT_NONE || !c->out[1].data ? &none : &c->out[1];
    const bool live = dy->live || c->in[X].live;
    *d = *dy;
    if (!pre->data && !live) return parts ? sum_rows(c, d, parts) : TN_OK;
    tn_arg from = *dy;
    if (!from.live) from.live = c->in[X].live;
    const int64_t rows = tn_all_rows(dy), n = tn_row_len(dy);
    *d = tn_contiguous_at(dy, work, dy->dtype);
    if (pre->data && dy->dims.rank > 1 && vectors(dy) && vectors(pre) && vectors(d)) {
        before_act_of[act][all_bf16(dy, pre, d)]<<<act_grid(rows, n), vector_block(), 0, tn_cuda_stream(c)>>>(
            tn_rows_of(d), tn_rows_of(&from), tn_rows_of(pre), parts, rows, (int)n);
        TN_CUDA_LAUNCHED();
        return parts ? put_bias(c, parts, act_parts(rows, n)) : TN_OK;
    }
    before_act_numbers<<<tn_blocks(c, rows * n, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(*d, from, *pre, act,
                                                                                           rows * n, n);
    TN_CUDA_LAUNCHED();
    return parts ? sum_rows(c, d, parts) : TN_OK;
}

tn_status tn_linear_slope(const tn_call *c, const tn_arg *dx, const tn_arg *pre)
{
    const int64_t rows = tn_all_rows(dx), n = tn_row_len(dx);
    before_act_of[TN_ACT_GELU][all_bf16(dx, pre, dx)]<<<act_grid(rows, n), vector_block(), 0, tn_cuda_stream(c)>>>(
        tn_rows_of(dx), tn_rows_of(dx), tn_rows_of(pre), NULL, rows, (int)n);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- residual ------------------------------------------------------------------------------------------------------------ */

/* to (+)= from; rows that are dead in from become 0, or stay where they are added to. */
static __global__ void pass_rows(TN_GRID tn_arg to, TN_GRID tn_arg from, bool add, int64_t n)
{
    const int64_t total = tn_d_rows(to) * n, alive = tn_d_rows(from) * n;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        if (i >= alive && add) continue;
        const float x = i < alive ? tn_load(from.data, from.dtype, tn_d_row_offset(from, i / n) + i % n) : 0.f;
        tn_put(to.data, to.dtype, tn_d_row_offset(to, i / n) + i % n, x, add);
    }
}

static __global__ void __launch_bounds__(LANES *GROUPS)
    pass_vectors(const __grid_constant__ tn_rowset to, const __grid_constant__ tn_rowset from, bool add, int n)
{
    const int64_t rows = tn_d_rows(to.a);
    const int j = (blockIdx.x * LANES + threadIdx.x) * 8;
    if (j >= n) return;
    for (int64_t r = blockIdx.y * GROUPS + threadIdx.y; r < rows; r += gridDim.y * GROUPS)
        tn_put8(to.a.data, to.a.dtype, r * to.distance + j, tn_load8(from.a.data, from.a.dtype, r * from.distance + j),
                add);
}

tn_status tn_linear_pass_residual(const tn_call *c)
{
    const tn_arg *dy = &c->dout[0], *dr = &c->din[RESIDUAL];
    const int64_t n = tn_row_len(dr), rows = tn_all_rows(dr);
    const bool add = c->accumulate >> RESIDUAL & 1;
    if (!dy->live && !dr->live && dr->dims.rank > 1 && vectors(dr) && vectors(dy))
        pass_vectors<<<vector_grid(rows, n), vector_block(), 0, tn_cuda_stream(c)>>>(tn_rows_of(dr), tn_rows_of(dy),
                                                                                     add, (int)n);
    else pass_rows<<<tn_blocks(c, rows * n, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(*dr, *dy, add, n);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
