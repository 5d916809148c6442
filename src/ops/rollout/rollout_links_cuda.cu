/* rollout on the GPU, backward: FROM turned round. A flow has one row in the next step, children have neighbouring rows. */
#include "ops/rollout/rollout_grad.cuh"

using namespace tn_rollout;

enum { THREADS = 256, ORDER = 1024, WARPS = ORDER / 32 };

/* Rows of all steps but the first, each seen from its own side. */
static __global__ void __launch_bounds__(THREADS) link_next(TN_GRID net m, TN_GRID grads g)
{
    const int t = (int)blockIdx.y;
    const int32_t n = rows_at(m, t + 1), *from = from_of(m, t + 1), *slot = slots_of(m, t + 1), *old = slots_of(m, t);
    for (int32_t j = (int32_t)blockIdx.x * THREADS + (int32_t)threadIdx.x; j < n; j += (int32_t)gridDim.x * THREADS) {
        const int64_t to = (int64_t)t * m.C + from[j];
        if (slot[j] == old[from[j]]) g.next[to] = j;
        else if (j == 0 || from[j - 1] != from[j] || slot[j - 1] == old[from[j]]) g.kid[to] = j;
    }
}

/* Slots of first children, step by step as they were given. A block a sample. */
static __global__ void __launch_bounds__(ORDER) link_kids(TN_GRID net m, TN_GRID grads g)
{
    __shared__ int32_t shared[WARPS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int32_t b = (int32_t)blockIdx.x;
    int32_t used = b * m.N + m.S;
    for (int t = 0; t < m.T; t++) {
        const int32_t lo = live_of(m, t)[b], hi = live_of(m, t)[b + 1];
        for (int32_t base = lo; base < hi; base += ORDER) {
            const int32_t i = base + (int32_t)threadIdx.x, bits = i < hi ? bits_of(m, t)[i] : TN_ROLLOUT_OFF;
            const int32_t n = bits & TN_ROLLOUT_OFF ? 0 : bits >> TN_ROLLOUT_CHILDREN;
            int32_t to_here = n, before = 0, all = 0;
            for (int k = 1; k < 32; k *= 2) {
                const int32_t other = __shfl_up_sync(0xffffffffu, to_here, k);
                if (lane >= k) to_here += other;
            }
            __syncthreads();
            if (lane == 31) shared[warp] = to_here;
            __syncthreads();
            for (int w = 0; w < WARPS; w++) {
                if (w < warp) before += shared[w];
                all += shared[w];
            }
            if (n) g.kid_slot[(int64_t)t * m.C + i] = used + before + to_here - n;
            used += all;
        }
        __syncthreads();
    }
}

tn_status tn_rollout::link_rows(const tn_call *c, const net &m, const grads &g)
{
    const dim3 grid(tn_blocks(c, m.C, THREADS), (unsigned)(m.T - 1));
    if (m.T > 1) link_next<<<grid, THREADS, 0, tn_cuda_stream(c)>>>(m, g);
    if (m.a.spawn) link_kids<<<(unsigned)m.B, ORDER, 0, tn_cuda_stream(c)>>>(m, g);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
