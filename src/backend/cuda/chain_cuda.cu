/* What happens between two runs that follow one another without the host (tn_chain_update). */
#include "backend/cuda/cuda.h"

namespace
{

enum { THREADS = 256 };

__global__ void run_update(const __grid_constant__ tn_chain_update t)
{
    const int64_t updates = t.log[0];
    for (int64_t i = threadIdx.x; i < t.n; i += THREADS) t.to[i] = t.log[1 + updates * t.n + i] = t.from[i];
    for (int k = 0; k < TN_CHAIN_COUNTERS; k++)
        for (int64_t i = threadIdx.x; t.counter[k].at && i < t.counter[k].n; i += THREADS) t.counter[k].at[i] += t.step;
    __syncthreads();
    if (threadIdx.x == 0) t.log[0] = (int32_t)updates + 1;
}

} // namespace

extern "C" tn_status tn_cuda_chain_update(void *queue, const tn_chain_update *t)
{
    run_update<<<1, THREADS, 0, ((tn_cuda_queue *)queue)->stream>>>(*t);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
