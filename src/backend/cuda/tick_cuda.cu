/* What happens between two runs that follow one another without the host (tn_tick). */
#include "backend/cuda/cuda.h"

namespace
{

enum { THREADS = 256 };

__global__ void run_tick(const __grid_constant__ tn_tick t)
{
    const int64_t ticks = t.log[0];
    for (int64_t i = threadIdx.x; i < t.n; i += THREADS) t.to[i] = t.log[1 + ticks * t.n + i] = t.from[i];
    for (int k = 0; k < TN_TICK_COUNTERS; k++)
        for (int64_t i = threadIdx.x; t.counter[k].at && i < t.counter[k].n; i += THREADS) t.counter[k].at[i] += t.step;
    __syncthreads();
    if (threadIdx.x == 0) t.log[0] = (int32_t)ticks + 1;
}

} // namespace

extern "C" tn_status tn_cuda_tick(void *queue, const tn_tick *t)
{
    run_tick<<<1, THREADS, 0, ((tn_cuda_queue *)queue)->stream>>>(*t);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
