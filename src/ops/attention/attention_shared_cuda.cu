/* What the kernels of attention on the GPU share on the host: shared memory asked for, and the table of documents
 * that lets whole tiles be skipped. */
#include "ops/attention/attention_cuda.cuh"

using namespace tn_attention;

tn_status tn_attention_room_cuda(const void *kernel, int bytes)
{
    TN_RETURN_IF(tn_cuda_allow_shared(kernel, bytes));
    TN_CUDA_TRY(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
    return TN_OK;
}

__global__ void spread_documents(const __grid_constant__ problem p, int2 *to /* (B,spreads) */)
{
    const int n = p.B * p.spreads;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const int b = i / p.spreads, t0 = i % p.spreads * SPREAD;
        int lo = document_at(p, b, t0), hi = lo;
        for (int t = t0 + 1; t < min(t0 + SPREAD, p.T); t++) {
            const int d = document_at(p, b, t);
            lo = min(lo, d), hi = max(hi, d);
        }
        to[i] = make_int2(lo, hi);
    }
}

tn_status tn_attention_spread_cuda(const tn_call *c, problem *p, void *memory)
{
    if (!p->document) return TN_OK;
    p->spreads = (p->T + SPREAD - 1) / SPREAD;
    p->spread = (const int2 *)memory;
    spread_documents<<<tn_blocks(c, (int64_t)p->B * p->spreads, 128), 128, 0, tn_cuda_stream(c)>>>(*p, (int2 *)memory);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
