/* The kernel that runs a token's program, and the choice of what goes into one.
 *
 * A block of 512 threads on every multiprocessor. A product's weights are cut by rows: a block owns the rows n b / blocks up to
 * n (b + 1) / blocks, as many of them as fit come through shared memory, two products ahead of their use, so that memory is read while blocks
 * wait for each other; the rest is read when it is needed. A warp makes two rows at a time. Sums have a fixed order.
 * Blocks meet at a counter in memory; the last one to leave sets it back for the next program. */
#include "ops/token/token_seen.cuh"
#include "ops/token/token_steps.cuh"

#include "ops/linear/linear.h"

#if CUDART_VERSION >= 12010 /* a program is more than the 4 KiB that a kernel took as its argument before */

namespace
{

__device__ __forceinline__ void stage_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

__device__ __forceinline__ void stage_wait() { asm volatile("cp.async.wait_group 1;\n" ::: "memory"); } /* all but the last */

__device__ __forceinline__ void stage_16(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

/* Bytes of a row of weights. */
__device__ __forceinline__ int row_bytes(const tn_token_step &s) { return s.k * (s.in_type[1] == TN_F32 ? 4 : 2); }

struct part {
    int first, end;  /* rows of this block */
    int staged;      /* so many of them come through shared memory */
};

__device__ __forceinline__ part part_of(const tn_token_step &s, int stage_bytes)
{
    part p;
    p.first = (int)((int64_t)s.n * blockIdx.x / gridDim.x);
    p.end = (int)((int64_t)s.n * (blockIdx.x + 1) / gridDim.x);
    p.staged = min(p.end - p.first, stage_bytes / row_bytes(s));
    return p;
}

/* Begins to fetch weights of staged product j. */
__device__ __forceinline__ void stage(const tn_token_program &p, int j, char *to)
{
    if (j < p.staged_n) {
        const tn_token_step &s = p.step[p.staged[j]];
        const part mine = part_of(s, p.stage_bytes);
        const char *from = (const char *)s.in[1] + (int64_t)mine.first * row_bytes(s);
        const int bytes = mine.staged * row_bytes(s);
        for (int i = threadIdx.x * 16; i < bytes; i += TN_TOKEN_THREADS * 16) stage_16(to + i, from + i);
    }
    stage_commit();
}

/* Sums of w x over k, for two rows, over a warp. */
template <int TYPE, bool NEAR>
__device__ __forceinline__ float2 two_rows(const char *w0, const char *w1, const float *x, int k)
{
    float a = 0, b = 0;
#pragma unroll 2
    for (int i = (threadIdx.x & 31) * 8; i < k; i += 256) {
        tn_f8 u, v;
        if (NEAR || TYPE == TN_F32) u = tn_load8(w0, (tn_dtype)TYPE, i), v = tn_load8(w1, (tn_dtype)TYPE, i);
        else {
            const uint4 p = __ldcs((const uint4 *)(w0 + 2 * i)), q = __ldcs((const uint4 *)(w1 + 2 * i));
            u = tn_load8(&p, (tn_dtype)TYPE, 0), v = tn_load8(&q, (tn_dtype)TYPE, 0);
        }
        const float4 y = *(const float4 *)(x + i), z = *(const float4 *)(x + i + 4);
        const float c[8] = { y.x, y.y, y.z, y.w, z.x, z.y, z.z, z.w };
#pragma unroll
        for (int e = 0; e < 8; e++) a = fmaf(u.v[e], c[e], a), b = fmaf(v.v[e], c[e], b);
    }
    return make_float2(tn_warp_sum(a), tn_warp_sum(b));
}

/* Rows first .. end - 1, whose weights begin at `w`. */
template <int TYPE, bool NEAR>
__device__ __forceinline__ void some_rows(const tn_token_step &s, const tn_token_room &r, const float *x, const char *w, int first, int end)
{
    const int lane = threadIdx.x & 31, row = row_bytes(s);
    for (int n = first + 2 * (threadIdx.x >> 5); n < end; n += 2 * TN_TOKEN_WARPS) {
        const bool both = n + 1 < end;
        const int mine = n + (lane & 1); /* lanes 0 and 1 finish a row each */
        const bool finishes = lane < 2 && mine < end;
        const float bias = finishes ? tn_token_or(s, r, 2, mine, 0.f) : 0.f, more = finishes ? tn_token_or(s, r, 3, mine, 0.f) : 0.f;
        const char *at = w + (int64_t)(n - first) * row;
        const float2 y = two_rows<TYPE, NEAR>(at, both ? at + row : at, x, s.k);
        if (finishes) tn_token_put(s, r, 0, mine, tn_d_act((tn_act)s.kind, (lane & 1 ? y.y : y.x) + bias) + more);
    }
}

template <int TYPE>
__device__ __forceinline__ void linear(const tn_token_step &s, const tn_token_room &r)
{
    const bool fetches = s.flags & TN_TOKEN_FETCHES;
    float *x = r.slots + (fetches ? s.out_slot[1] : s.in_slot[0]);
    const char *w = (const char *)s.in[1];
    if (fetches) {
        for (int i = threadIdx.x; i < s.k; i += TN_TOKEN_THREADS) x[i] = tn_token_far(s.in[0], s.in_type[0], i);
        __syncthreads();
    }
    if (!(s.flags & TN_TOKEN_SHARED)) {
        some_rows<TYPE, false>(s, r, x, w, 0, s.n);
        return;
    }
    const part mine = part_of(s, r.stage_bytes);
    some_rows<TYPE, true>(s, r, x, r.stage, mine.first, mine.first + mine.staged);
    some_rows<TYPE, false>(s, r, x, w + (int64_t)(mine.first + mine.staged) * row_bytes(s), mine.first + mine.staged, mine.end);
}

/* Blocks meet for the n-th time: whatever one wrote before, all see afterwards. */
__device__ __forceinline__ void meet(uint32_t *counter, uint32_t n)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(counter, 1u);
        uint32_t seen;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(seen) : "l"(counter) : "memory");
        while (seen < n * gridDim.x);
        __threadfence();
    }
    __syncthreads();
}

__global__ void __launch_bounds__(TN_TOKEN_THREADS, 1) run_token(const __grid_constant__ tn_token_program p)
{
    extern __shared__ float4 memory[];
    __shared__ float sums[TN_TOKEN_SUMS];
    float *slots = (float *)memory;
    char *stages = (char *)(slots + p.slot_floats);
    uint32_t meetings = 0;
    int product = 0;
    stage(p, 0, stages);
    stage(p, 1, stages + p.stage_bytes);
    for (int i = 0; i < p.n; i++) {
        const tn_token_step &s = p.step[i];
        const tn_token_room r = { slots, sums, stages + (product & 1) * p.stage_bytes, p.stage_bytes,
                                  (s.flags & TN_TOKEN_SHARED) || i % gridDim.x == blockIdx.x };
        if (s.flags & TN_TOKEN_MEETS) meet(p.meeting, ++meetings);
        if (s.flags & TN_TOKEN_STAGED) {
            stage_wait();
            __syncthreads();
        }
        switch (s.op) {
        case TN_TOKEN_EMBED: tn_token_embed(s, r); break;
        case TN_TOKEN_NORM: tn_token_norm(s, r); break;
        case TN_TOKEN_LINEAR: s.in_type[1] == TN_F32 ? linear<TN_F32>(s, r) : linear<TN_BF16>(s, r); break;
        case TN_TOKEN_CONV: tn_token_conv(s, r); break;
        case TN_TOKEN_SCAN: tn_token_scan(s, r); break;
        case TN_TOKEN_READOUT: tn_token_readout(s, r); break;
        case TN_TOKEN_OUTER: tn_token_outer(s, r); break;
        case TN_TOKEN_COPY: tn_token_copy(s, r); break;
        case TN_TOKEN_ROPE: tn_token_rope(s, r); break;
        case TN_TOKEN_PUT: tn_token_place(s, r); break;
        case TN_TOKEN_SEEN:
            if (s.in_type[1] == TN_F32) tn_token_seen<TN_F32>(s, r, p.scratch);
            else if (s.in_type[1] == TN_BF16) tn_token_seen<TN_BF16>(s, r, p.scratch);
            else tn_token_seen<TN_F16>(s, r, p.scratch);
            break;
        case TN_TOKEN_SEEN_ALL: tn_token_seen_all(s, r, p.scratch); break;
        case TN_TOKEN_BEST_PARTS: tn_token_best_parts(s, r, p.scratch); break;
        case TN_TOKEN_BEST: tn_token_best_whole(s, r, p.scratch); break;
        default: tn_token_elementwise(s, r);
        }
        __syncthreads();
        if (s.flags & TN_TOKEN_STAGED) {
            stage(p, product + 2, stages + (product & 1) * p.stage_bytes);
            product++;
        }
    }
    if (threadIdx.x) return;
    __threadfence();
    if (atomicAdd(p.meeting + 1, 1u) == gridDim.x - 1) p.meeting[0] = p.meeting[1] = 0;
}

} // namespace

enum { SLOT_FLOATS = 12 << 10, FEWEST = 4 /* calls that are worth a program */ };

extern "C" tn_status tn_token_run_cuda(const tn_op *const *op, const tn_call *call, size_t n, size_t *took)
{
    tn_cuda_queue *q = tn_cuda_queue_of(call);
    tn_token_program program;
    tn_token_builder builder;
    const int stage_bytes = (q->shared_bytes - (int)sizeof(float) * (SLOT_FLOATS + TN_TOKEN_SUMS) - 1024) / 2 / 128 * 128;
    *took = 0;
    if (stage_bytes < 4096 || !q->meeting || q->multiprocessors > TN_CUDA_MEETING_BLOCKS) return TN_OK;
    tn_token_begin(&builder, &program, SLOT_FLOATS, stage_bytes);
    size_t i = 0;
    while (i < n && tn_token_add(&builder, op[i], &call[i])) i++;
    if (i < FEWEST) return TN_OK;
    program.meeting = (uint32_t *)q->meeting;
    program.scratch = (float *)q->meeting + 64;
    const size_t shared = sizeof(float) * SLOT_FLOATS + 2 * (size_t)stage_bytes;
    TN_CUDA_TRY(cudaFuncSetAttribute(run_token, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    void *args[] = { &program };
    TN_CUDA_TRY(cudaLaunchCooperativeKernel((const void *)run_token, dim3((unsigned)q->multiprocessors), dim3(TN_TOKEN_THREADS), args, shared, q->stream));
    TN_CUDA_LAUNCHED();
    *took = i;
    return TN_OK;
}

#else

extern "C" tn_status tn_token_run_cuda(const tn_op *const *op, const tn_call *call, size_t n, size_t *took)
{
    (void)op, (void)call, (void)n;
    *took = 0;
    return TN_OK;
}

#endif
