/* rollout on the GPU: sums over a row's numbers, which the heads' last products and phi are, for 32 neighbouring rows by a warp.
 *
 * Eight lanes have a row, so that a row of few columns still keeps all lanes at work; four rows are side by side, and a few fours
 * are taken at once, so that their loads are in flight together and a weight that was fetched serves them all. The eight lanes
 * add up eight sums by handing half of what they hold to each other three times: seven shuffles for four rows. A row's sums do
 * not depend on where in the warp it is. All lanes of a warp call these functions. */
#ifndef TN_OPS_ROLLOUT_HEADS_CUH
#define TN_OPS_ROLLOUT_HEADS_CUH

#include "ops/rollout/rollout_gelu.cuh"

namespace tn_rollout
{

enum { LANES = 8, ABREAST = 32 / LANES }; /* lanes of a row; rows side by side */
static_assert((int)TN_ROLLOUT_ENERGY == (int)LANES, "a lane an energy");

/* --- weights in shared memory -------------------------------------------------------------------------------------------- */

/* E2, D2 and F as f32. A matrix's rows are filled up to whole 64s; of each 64 the lanes' first fours come first, then their second
 * ones: eight lanes that read a float4 each meet 32 banks. */
struct table {
    const float *e2, *d2, *f;
};

enum { TABLE_BYTES = 38 * 1024 }; /* at most; with a block's other shared memory below 48 KiB */

__host__ __device__ __forceinline__ int table_row(int k) { return (k + 63) / 64 * 64; }

__host__ __device__ __forceinline__ int table_floats(const net &m)
{
    return m.E * table_row(m.H / 2) + 3 * HIDDEN + m.F * table_row(m.H);
}

/* Rows of numbers can be read as eights, and the weights have room. Else they are read one by one where they are. */
__host__ __device__ __forceinline__ bool takes_eights(const net &m)
{
    return m.H % 16 == 0 && table_floats(m) * 4 <= TABLE_BYTES;
}

static inline size_t table_bytes(const net &m) { return takes_eights(m) ? (size_t)table_floats(m) * 4 : 0; }

template <int KIND>
__device__ __forceinline__ void fill_matrix(float *to, const weight &w, int rows, int k)
{
    const int row = table_row(k);
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < rows * row; i += (int)blockDim.x) {
        const int n = i / row, at = i - n * row;
        const int column = at / 64 * 64 + at % 32 / 4 * 8 + at % 64 / 32 * 4 + at % 4;
        to[i] = column < k ? get<KIND>(w, (int64_t)n * k + column) : 0.f;
    }
}

/* All threads of a block; `to` holds table_floats. */
template <int KIND>
__device__ __forceinline__ table fill_table(const net &m, float *to)
{
    float *d2 = to + m.E * table_row(m.H / 2), *f = d2 + 3 * HIDDEN;
    fill_matrix<KIND>(to, m.p[TN_ROLLOUT_E2], m.E, m.H / 2);
    fill_matrix<KIND>(d2, m.p[TN_ROLLOUT_D2], 3, HIDDEN);
    if (m.F) fill_matrix<KIND>(f, m.p[TN_ROLLOUT_F], m.F, m.H);
    __syncthreads();
    return { to, d2, f };
}

/* Of a matrix with k columns: V neighbours of row n from column i on. */
template <int KIND, int V>
__device__ __forceinline__ numbers<V> weights_at(const weight &w, const float *in_table, int n, int k, int i)
{
    numbers<V> r;
    if constexpr (V == 8) {
        const float4 *p = (const float4 *)(in_table + n * table_row(k) + i / 64 * 64) + i % 64 / 8;
        const float4 a = p[0], b = p[8];
        r.v[0] = a.x, r.v[1] = a.y, r.v[2] = a.z, r.v[3] = a.w;
        r.v[4] = b.x, r.v[5] = b.y, r.v[6] = b.z, r.v[7] = b.w;
    } else r.v[0] = get<KIND>(w, (int64_t)n * k + i);
    return r;
}

/* --- sums over rows' numbers --------------------------------------------------------------------------------------------- */

/* Lanes that differ in `bit` share 2N sums: those without it keep the first N, those with it the others. */
template <int N>
__device__ __forceinline__ void hand_over(const float *x, int bit, float *to)
{
    const bool upper = threadIdx.x & bit;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float keeps = upper ? x[N + k] : x[k], gives = upper ? x[k] : x[N + k];
        to[k] = keeps + __shfl_xor_sync(0xffffffffu, gives, bit);
    }
}

/* Over a row's lanes: lane k of them gets the sum of x[k]. */
__device__ __forceinline__ float spread(const float (&x)[LANES])
{
    float four[4], two[2], one;
    hand_over<4>(x, 4, four);
    hand_over<2>(four, 2, two);
    hand_over<1>(two, 1, &one);
    return one;
}

/* A matrix (count,k), count at most LANES, whose rows are multiplied with a part of the numbers of rows: x (C,stride), k columns from `begin` on. */
struct factor {
    weight w;
    const float *in_table;
    int row0, count, k; /* rows of the matrix from row0 on */
    const void *x;
    int64_t stride, begin;
};

static __device__ __forceinline__ factor energy_factor(const net &m, const table &w, const void *heads)
{
    return { m.p[TN_ROLLOUT_E2], w.e2, 0, m.E, m.H / 2, heads, m.W1, 0 };
}

static __device__ __forceinline__ factor delta_factor(const net &m, const table &w, const void *heads)
{
    return { m.p[TN_ROLLOUT_D2], w.d2, 0, 3, HIDDEN, heads, m.W1, m.H / 2 };
}

/* Eight channels from f0 on. */
static __device__ __forceinline__ factor field_factor(const net &m, const table &w, const void *top, int f0)
{
    return { m.p[TN_ROLLOUT_F], w.f, f0, min(m.F - f0, (int)LANES), m.H, top, m.H, 0 };
}

/* Rows that a warp takes at once: 32, or fewer where there would not be eight warps for each multiprocessor of a full Hopper chip. */
__host__ __device__ __forceinline__ int warp_rows(const net &m)
{
    enum { LEAST = 8 };
    int n = 32;
    while (n > LEAST && m.C / n < 8 * 132) n /= 2;
    return n;
}

/* Rows [first, first + count) of a step belong to a warp; bit r of wanted: the r-th matters. */
struct rows32 {
    int32_t first;
    int count; /* 1 .. 32 */
    unsigned wanted;
};

/* The warp's row that this lane shares in set s of those from r0 on; one behind the last is read as the last. */
__device__ __forceinline__ int warp_row(int r0, int s) { return r0 + s * ABREAST + (int)(threadIdx.x & 31) / LANES; }
__device__ __forceinline__ int64_t step_row(const rows32 &r, int i) { return r.first + min(i, r.count - 1); }

/* put(r, x): lane k of a row's has the sum over the columns of w[k] x or w[k] gelu(x) for the r-th row; r may be one that nobody
 * wants. SETS fours of rows at once; all of them are left out where none is wanted. */
template <int KIND, int V, int SETS, bool GELU, class PUT>
__device__ __forceinline__ void make_sums(const net &m, const factor &f, const rows32 &rows, PUT put)
{
    enum { TAKEN = ABREAST * SETS };
    const int lane = threadIdx.x % LANES;
    for (int r0 = 0; r0 < rows.count; r0 += TAKEN) {
        if (!(rows.wanted >> r0 & (unsigned)((1ull << TAKEN) - 1))) continue;
        float sum[SETS][LANES] = {};
        int64_t at[SETS];
#pragma unroll
        for (int s = 0; s < SETS; s++) at[s] = step_row(rows, warp_row(r0, s)) * f.stride + f.begin;
#pragma unroll 1
        for (int i = lane * V; i < f.k; i += LANES * V) {
            numbers<V> x[SETS];
#pragma unroll
            for (int s = 0; s < SETS; s++) x[s] = load<KIND, V>(m, f.x, at[s] + i);
#pragma unroll
            for (int s = 0; s < SETS; s++)
#pragma unroll
                for (int j = 0; GELU && j < V; j++) x[s].v[j] = gelu<KIND>(x[s].v[j]);
#pragma unroll
            for (int n = 0; n < LANES; n++) {
                if (n >= f.count) continue;
                const numbers<V> w = weights_at<KIND, V>(f.w, f.in_table, f.row0 + n, f.k, i);
#pragma unroll
                for (int s = 0; s < SETS; s++)
#pragma unroll
                    for (int j = 0; j < V; j++) sum[s][n] = fmaf(w.v[j], x[s].v[j], sum[s][n]);
            }
        }
#pragma unroll
        for (int s = 0; s < SETS; s++) put(warp_row(r0, s), spread(sum[s]));
    }
}

/* Every lane has left its numbers of a row in shared memory, P after P: to (count) of them, as neighbours. */
__device__ __forceinline__ void put_rows(float *to, const float *rows, int count)
{
    __syncwarp();
    for (int i = threadIdx.x & 31; i < count; i += 32) to[i] = rows[i];
    __syncwarp();
}

/* work(first, end, eights, table, warp) for the rows of a step, so many at once by a warp. weights: table_bytes of shared memory. */
template <int KIND, int WARPS, class WORK>
__device__ __forceinline__ void over_rows(const net &m, int t, float4 *weights, WORK work)
{
    const int32_t n = rows_at(m, t), each = warp_rows(m), step = (int32_t)gridDim.x * WARPS * each;
    const int warp = threadIdx.x >> 5;
    const bool eights = takes_eights(m);
    table w = {};
    if ((int32_t)blockIdx.x * WARPS * each >= n) return;
    if (eights) w = fill_table<KIND>(m, (float *)weights);
    for (int32_t first = ((int32_t)blockIdx.x * WARPS + warp) * each; first < n; first += step)
        work(first, min(n, first + each), eights, w, warp);
}

} // namespace tn_rollout

#endif
