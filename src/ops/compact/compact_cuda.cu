/* compact on the GPU: one block walks the flags 1024 at a time and counts what comes before each. The list is short
 * next to the rows it stands for. */
#include "backend/cuda/device.cuh"
#include "ops/compact/compact.h"

enum { THREADS = 1024, WARPS = THREADS / 32 };

/* How many of the block's flags are set before this thread's; *all gets how many are set. */
__device__ __forceinline__ int count_before(bool flag, int32_t *shared /* (WARPS) */, int *all)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const unsigned set = __ballot_sync(0xffffffffu, flag);
    if (lane == 0) shared[warp] = __popc(set);
    __syncthreads();
    int before = __popc(set & ((1u << lane) - 1));
    *all = 0;
    for (int w = 0; w < WARPS; w++) {
        before += w < warp ? shared[w] : 0;
        *all += shared[w];
    }
    __syncthreads(); /* shared may be written again */
    return before;
}

__global__ void __launch_bounds__(THREADS)
    compact_flags(const __grid_constant__ tn_arg keep, int32_t *index, int32_t *count)
{
    __shared__ int32_t shared[WARPS];
    const int64_t n = keep.dims.dim[0], live = tn_d_count(keep);
    int32_t kept = 0;
    for (int64_t base = 0; base < live; base += THREADS) {
        const int64_t i = base + threadIdx.x;
        const bool flag = i < live && ((const int32_t *)keep.data)[i] != 0;
        int all;
        const int before = count_before(flag, shared, &all);
        if (flag) index[kept + before] = (int32_t)i;
        kept += all;
    }
    for (int64_t i = kept + (int64_t)threadIdx.x; i < n; i += THREADS) index[i] = -1;
    if (threadIdx.x == 0) *count = kept;
}

extern "C" tn_status tn_compact_forward_cuda(const tn_call *c)
{
    compact_flags<<<1, THREADS, 0, tn_cuda_stream(c)>>>(c->in[0], (int32_t *)c->out[0].data, (int32_t *)c->out[1].data);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
