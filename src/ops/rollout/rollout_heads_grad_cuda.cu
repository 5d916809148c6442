/* rollout on the GPU, backward: through the move and the heads' last products (rollout_move_grad_cuda.cu), then the sums over rows
 * for the parameters of these and the biases of the heads, a block a chunk of rows. */
#include "ops/rollout/rollout_grad.cuh"
#include "ops/rollout/rollout_gelu.cuh"

using namespace tn_rollout;

enum { THREADS = 256, COLUMNS = 64 };

/* A chunk's rows are cut into PARTS, each with threads of its own; their sums are added up in order. */
enum { PARTS = THREADS / COLUMNS, PART = CHUNK / PARTS, MOST_SUMS = 1 + TN_ROLLOUT_FIELD };

/* What a thread's part of the rows gives, summed over the parts: the first part's threads have the result. */
template <int N>
__device__ __forceinline__ void add_parts(float (&sum)[N], int count, float *shared /* (MOST_SUMS,THREADS) */)
{
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++)
        if (k < count) shared[k * THREADS + threadIdx.x] = sum[k];
    __syncthreads();
    if (threadIdx.x >= COLUMNS) return;
#pragma unroll
    for (int k = 0; k < N; k++)
        for (int p = 1; k < count && p < PARTS; p++) sum[k] += shared[k * THREADS + p * COLUMNS + threadIdx.x];
}

/* Column j of what gelu takes: its bias, and the weights that its gelu is multiplied with. */
template <int KIND>
__device__ __forceinline__ void add_column(const net &m, const grads &g, const head_sums &at_, float *part,
                                           const float *small, int32_t row0, int n, int j, const void *heads,
                                           float *shared)
{
    const int half = m.H / 2, first = j < half ? 0 : m.E, count = j < half ? m.E : 3;
    const int from = (int)threadIdx.x / COLUMNS * PART, to = j < m.W1 ? min(from + PART, n) : from;
    float sum[1 + TN_ROLLOUT_ENERGY] = {};
#pragma unroll 8
    for (int i = from; i < to; i++) {
        const int64_t at = (int64_t)(row0 + i) * m.W1 + j;
        const float a = gelu<KIND>(get<KIND>(m, heads, at));
        sum[0] += get<KIND>(m, g.dpre, at);
#pragma unroll
        for (int k = 0; k < TN_ROLLOUT_ENERGY; k++)
            if (k < count) sum[1 + k] = fmaf(small[i * m.P + first + k], a, sum[1 + k]);
    }
    add_parts(sum, 1 + max(m.E, 3), shared);
    if (threadIdx.x >= COLUMNS || j >= m.W1) return;
    part[at_.b1 + j] += sum[0];
#pragma unroll
    for (int k = 0; k < TN_ROLLOUT_ENERGY; k++)
        if (k < count) part[j < half ? at_.e2 + k * half + j : at_.d2 + k * HIDDEN + j - half] += sum[1 + k];
}

/* Column j of F. */
template <int KIND>
__device__ __forceinline__ void add_field_column(const net &m, const head_sums &at_, float *part, const float *dphi,
                                                 int32_t row0, int n, int j, const void *top, float *shared)
{
    const int from = (int)threadIdx.x / COLUMNS * PART, to = j < m.H ? min(from + PART, n) : from;
    float sum[TN_ROLLOUT_FIELD] = {};
#pragma unroll 8
    for (int i = from; i < to; i++) {
        const float o = get<KIND>(m, top, (int64_t)(row0 + i) * m.H + j);
#pragma unroll
        for (int k = 0; k < TN_ROLLOUT_FIELD; k++)
            if (k < m.F) sum[k] = fmaf(dphi[i * m.F + k], o, sum[k]);
    }
    add_parts(sum, m.F, shared);
    if (threadIdx.x >= COLUMNS || j >= m.H) return;
#pragma unroll
    for (int k = 0; k < TN_ROLLOUT_FIELD; k++)
        if (k < m.F) part[at_.f + k * m.H + j] += sum[k];
}

/* Columns are shared by the blocks along y. */
template <int KIND>
static __global__ void __launch_bounds__(THREADS)
    add_heads(TN_GRID net m, TN_GRID grads g, int t, TN_GRID head_sums at_, const void *heads, const void *top)
{
    __shared__ float small[CHUNK * (3 + TN_ROLLOUT_ENERGY)], dphi[CHUNK * TN_ROLLOUT_FIELD], sums[MOST_SUMS * THREADS];
    const int32_t rows = rows_at(m, t), row0 = (int32_t)blockIdx.x * CHUNK;
    const int n = rows - row0 < CHUNK ? rows - row0 : CHUNK;
    const int column = (int)threadIdx.x % COLUMNS, step = (int)gridDim.y * COLUMNS;
    if (n <= 0) return;
    float *part = g.head_part + (int64_t)blockIdx.x * at_.all;
    for (int i = threadIdx.x; i < n * m.P; i += THREADS) small[i] = g.small[(int64_t)row0 * m.P + i];
    for (int i = threadIdx.x; i < n * m.F; i += THREADS) dphi[i] = g.dphi[(int64_t)row0 * m.F + i];
    __syncthreads();
    for (int j0 = (int)blockIdx.y * COLUMNS; j0 < m.W1; j0 += step)
        add_column<KIND>(m, g, at_, part, small, row0, n, j0 + column, heads, sums);
    for (int j = (int)threadIdx.x; blockIdx.y == 0 && j < m.P; j += THREADS) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += small[i * m.P + j];
        part[at_.e2b + j] += sum;
    }
    for (int j0 = (int)blockIdx.y * COLUMNS; m.F && j0 < m.H; j0 += step)
        add_field_column<KIND>(m, at_, part, dphi, row0, n, j0 + column, top, sums);
}

tn_status tn_rollout::heads_back(const tn_call *c, const net &m, const grads &g, const cell &s)
{
    const void *top = item(s.h.after, m.type, (int64_t)(m.L - 1) * m.C * m.H);
    const dim3 chunks((unsigned)g.chunks, (unsigned)((m.W1 + COLUMNS - 1) / COLUMNS));
    TN_RETURN_IF(moves_back(c, m, g, s));
    TN_ROLLOUT_LAUNCH(add_heads, kind_of(m),
                      <<<chunks, THREADS, 0, tn_cuda_stream(c)>>>(m, g, s.t, head_sums_of(m), s.heads, top));
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
