/* rollout on the GPU: the field. A block orders one sample's rows by the corner where their place begins: warps take turns, so that
 * a corner's list is in the order of slots. Then a thread a corner and channel adds up the lists of the corners from which it
 * is reached (one where the deposit is nearest, eight else). No float atomics. The same serves the gradient of a read. */
#include "ops/rollout/rollout_grad.cuh"
#include "ops/rollout/rollout_move.cuh"
#include "ops/sum_before.cuh"

using namespace tn_rollout;

enum { ORDER = 1024, WARPS = ORDER / 32, THREADS = 256 };

/* --- lists --------------------------------------------------------------------------------------------------------------- */

/* Rows of step t by the corner where place (C,P) begins. */
static __global__ void __launch_bounds__(ORDER) order_rows(TN_GRID net m, int t, const float *place, bool nearest)
{
    __shared__ int32_t shared[WARPS];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int32_t b = (int32_t)blockIdx.x, lo = live_of(m, t)[b], hi = live_of(m, t)[b + 1];
    int32_t *start = m.start + (int64_t)b * (m.voxels + 1);
    if (rows_at(m, t) == 0) return;
    for (int32_t i = threadIdx.x; i <= m.voxels; i += ORDER) start[i] = 0;
    __syncthreads();
    for (int32_t base = lo; base < hi; base += ORDER) {
        const int32_t i = base + (int32_t)threadIdx.x;
        const bool here = i < hi && !(bits_of(m, t)[i] & TN_ROLLOUT_OFF);
        const int32_t key = here ? corners_of(m, place + (int64_t)i * m.P, nearest).first : -1;
        const unsigned same = __match_any_sync(0xffffffffu, key), before = same & ((1u << lane) - 1);
        if (i < hi) m.key[i] = key;
        for (int w = 0; w < WARPS && base + w * 32 < hi; w++) {
            if (w == warp && key >= 0) m.rank[i] = start[key] + __popc(before);
            if (w == warp) __syncwarp();
            if (w == warp && key >= 0 && !before) start[key] += __popc(same);
            __syncthreads();
        }
    }
    tn_sum_before<ORDER>(start, m.voxels, shared);
    for (int32_t i = lo + (int32_t)threadIdx.x; i < hi; i += ORDER)
        if (m.key[i] >= 0) m.list[lo + start[m.key[i]] + m.rank[i]] = i;
}

/* to (B,voxels,F) = sums of weight times x (C,F). */
static __global__ void __launch_bounds__(THREADS)
    add_corners(TN_GRID net m, int t, const float *place, bool nearest, const float *x, float *to)
{
    const int64_t total = (int64_t)m.B * m.voxels * m.F;
    if (rows_at(m, t) == 0) return;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < total; i += (int64_t)gridDim.x * THREADS) {
        const int f = (int)(i % m.F);
        const int32_t voxel = (int32_t)(i / m.F % m.voxels), b = (int32_t)(i / m.F / m.voxels), lo = live_of(m, t)[b];
        const int32_t *start = m.start + (int64_t)b * (m.voxels + 1);
        const int32_t cx = voxel % m.a.grid[0], cy = voxel / m.a.grid[0] % m.a.grid[1],
                      cz = voxel / m.a.grid[0] / m.a.grid[1];
        float sum = 0;
        for (int k = 0; k < (nearest ? 1 : 8); k++) {
            if (cx < (k & 1) || cy < (k >> 1 & 1) || cz < (k >> 2 & 1)) continue;
            const int32_t from = voxel - corner_offset(m, k);
            for (int32_t n = start[from]; n < start[from + 1]; n++) {
                const int32_t row = m.list[lo + n];
                const float w = nearest ? 1.f : corner_weight(corners_of(m, place + (int64_t)row * m.P, false), k);
                sum = fmaf(w, x[(int64_t)row * m.F + f], sum);
            }
        }
        to[i] = sum;
    }
}

tn_status tn_rollout::add_to_field(const tn_call *c, const net &m, int t, const float *place, bool nearest,
                                   const float *x, float *to)
{
    order_rows<<<(unsigned)m.B, ORDER, 0, tn_cuda_stream(c)>>>(m, t, place, nearest);
    add_corners<<<tn_blocks(c, (int64_t)m.B * m.voxels * m.F, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(m, t, place,
                                                                                                         nearest, x,
                                                                                                         to);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

tn_status tn_rollout::deposit_field(const tn_call *c, const net &m, int t)
{
    return add_to_field(c, m, t, m.after, !m.a.smooth, m.phi, grid_of(m, t));
}
