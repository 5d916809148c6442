/* The kernel that runs a token's program, and the choice of what goes into one.
 *
 * A block of 512 threads on every multiprocessor. A product's weights are cut by rows: a block has neighbouring ones (tn_token_rows), as many of
 * them as fit come through shared memory, two products ahead of their use, so that memory is read while blocks wait for each other; the rest is
 * read when it is needed. A warp makes two rows at a time. Sums have a fixed order.
 * Most of a step's time is not work: its code comes from far away unless all of it is short, and a number from memory takes as long as a thousand
 * instructions. So code is shared where it can be, and what a step will read is asked for before it waits for anything.
 * Blocks meet at a counter in memory; the last one to leave sets it back for the next program and counts the launch, whose number tells
 * mail of this launch from what lies there of others. All blocks are there at once (a cooperative launch), so that one may wait for another. */
#include "ops/token/token_seen.cuh"
#include "ops/token/token_steps.cuh"

#include "ops/linear/linear.h"

#ifdef TN_TOKEN_TRACE
#include <cstdio>
#endif

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

/* Of a product: rows, or pairs of rows that lie half of them apart. */
struct part {
    int first, end;  /* of this block */
    int staged;      /* so many of them come through shared memory: rows, then the others of their pairs */
};

__device__ __forceinline__ part part_of(const tn_token_step &s, int stage_bytes)
{
    const bool paired = s.flags & TN_TOKEN_PAIRED;
    const tn_token_rows rows(paired ? s.n / 2 : s.n);
    const int bytes = paired ? 2 * row_bytes(s) : row_bytes(s);
    part p = { rows.first, rows.end, 0 };
    p.staged = p.end - p.first;
    if (p.staged > stage_bytes / bytes) p.staged = stage_bytes / bytes;
    return p;
}

/* Begins to fetch weights of staged product j, and says which rows are this block's. */
__device__ __forceinline__ part stage(const tn_token_program &p, const tn_token_step *step, int j, char *to)
{
    part mine = { 0, 0, 0 };
    if (j < p.staged_n) {
        const tn_token_step &s = step[p.staged[j]];
        mine = part_of(s, p.stage_bytes);
        const char *from = (const char *)s.in[1] + (int64_t)mine.first * row_bytes(s);
        const int bytes = mine.staged * row_bytes(s), all = s.flags & TN_TOKEN_PAIRED ? 2 * bytes : bytes;
        const int64_t apart = (int64_t)(s.n / 2) * row_bytes(s) - bytes; /* of the second piece from where the first ends */
#pragma unroll 1
        for (int i = threadIdx.x * 16; i < all; i += TN_TOKEN_THREADS * 16) stage_16(to + i, from + i + (i < bytes ? 0 : apart));
    }
    stage_commit();
    return mine;
}

/* Sums of w x over k, for two rows, over a warp. */
template <int TYPE>
__device__ __forceinline__ float2 two_rows(const char *w0, const char *w1, const float *x, int k)
{
    float a = 0, b = 0;
#pragma unroll 2
    for (int i = (threadIdx.x & 31) * 8; i < k; i += 256) {
        const tn_f8 u = tn_load8(w0, (tn_dtype)TYPE, i), v = tn_load8(w1, (tn_dtype)TYPE, i);
        const float4 y = *(const float4 *)(x + i), z = *(const float4 *)(x + i + 4);
        const float c[8] = { y.x, y.y, y.z, y.w, z.x, z.y, z.z, z.w };
#pragma unroll
        for (int e = 0; e < 8; e++) a = fmaf(u.v[e], c[e], a), b = fmaf(v.v[e], c[e], b);
    }
    return make_float2(tn_warp_sum(a), tn_warp_sum(b));
}

/* A warp makes two rows at a time, lane 0 finishes the first and lane 1 the second, or lane 0 both of a pair. What is joined is done by the
 * same lane, and what it reads is on its way before the products are summed. */
__device__ __forceinline__ void linear(const tn_token_step &s, const tn_token_room &r, const part &mine)
{
    const bool fetches = s.flags & TN_TOKEN_FETCHES, paired = s.flags & TN_TOKEN_PAIRED, conv = (s.flags & TN_TOKEN_JOINED) && !paired;
    const tn_token_step &then = *(&s + 1);
    const int lane = threadIdx.x & 31, row = row_bytes(s), apart = paired ? s.n / 2 : 1, step = paired ? 1 : 2, end = mine.end;
    const tn_token_in bias(s, r, 2);
    float *x = r.slots + (fetches ? s.out_slot[1] : s.in_slot[0]);
    if (fetches) {
        const tn_token_in from(s, r, 0);
#pragma unroll 1
        for (int i = threadIdx.x; i < s.k; i += TN_TOKEN_THREADS) x[i] = from.get(i);
        __syncthreads();
    }
#pragma unroll 1
    for (int first = mine.first + step * (threadIdx.x >> 5); first < end; first += step * TN_TOKEN_WARPS) {
        const bool both = paired || first + 1 < end, finishes = lane < 2 && (lane == 0 || both);
        const int second = both ? first + apart : first, at = lane & 1 ? second : first, near = first - mine.first;
        const char *far = (const char *)s.in[1], *w0 = far + (int64_t)first * row, *w1 = far + (int64_t)second * row;
        if (near < mine.staged) w0 = r.stage + near * row;
        if (near + !paired < mine.staged) w1 = r.stage + (near + (paired ? mine.staged : 1)) * row;
        const unsigned b = bias.at && finishes ? bias.ask(at) : 0;
        const float more = s.in[3] && finishes ? tn_token_in(s, r, 3).get(at) : 0.f;
        const int channel = conv && finishes && at >= then.j && at < then.j + then.n ? at - then.j : -1;
        int reset = 0;
        tn_token_taps taps;
        if (channel >= 0) {
            reset = tn_token_reset(then, 3);
            taps = tn_token_taps(then, r, channel);
        }
        const float2 sums = s.in_type[1] == TN_F32 ? two_rows<TN_F32>(w0, w1, x, s.k) : two_rows<TN_BF16>(w0, w1, x, s.k);
        float y = (lane & 1 ? sums.y : sums.x) + (bias.at && finishes ? bias.value(b, at) : 0.f);
        if (s.kind) y = tn_d_act((tn_act)s.kind, y);
        y = tn_token_rounded(s.out_type[0], y + more);
        const float other = paired ? __shfl_xor_sync(0xffffffffu, y, 1) : 0.f;
        if (!finishes) continue;
        tn_token_out(s, r, 0).put(at, y);
        if (paired) {
            if (lane) continue;
            y = tn_token_rounded(then.out_type[0], then.j ? other * tn_d_gate(then.kind, y) : y * tn_d_gate(then.kind, other));
            tn_token_store(then.out[0], then.out_type[0], first, y);
        } else if (channel >= 0) {
            y = tn_token_rounded(then.out_type[0], taps.make(then, channel, y, reset, true));
            tn_token_store(then.out[0], then.out_type[0], channel, y);
        }
        tn_token_mail(s, r, at, y);
    }
}

/* Blocks meet for the n-th time: whatever one wrote before, all see afterwards. */
__device__ __forceinline__ void meet(uint32_t *counter, uint32_t n)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t seen;
        int looks = 0;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;\n" ::"l"(counter) : "memory");
        do {
            if (++looks == TN_TOKEN_PATIENCE) __trap();
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(seen) : "l"(counter) : "memory");
        } while (seen < n * gridDim.x);
    }
    __syncthreads();
}

/* How many numbers of input k a step reads that are not vectors of this token: parameters and states, and small weights. */
__device__ __forceinline__ int64_t kept_numbers(const tn_token_step &s, int k)
{
    switch (s.op) {
    case TN_TOKEN_NORM: return k >= 2 ? s.n : 0;
    case TN_TOKEN_CONV: return k == 1 ? (int64_t)s.n * s.k : k == 2 ? s.n : k == 3 ? (int64_t)s.n * (s.k - 1) : 0;
    case TN_TOKEN_SCAN: return k == 2 || k == 3 ? s.n : k == 4 ? 2 * s.n : 0;
    case TN_TOKEN_READOUT: return k >= 3 ? s.n : 0;
    case TN_TOKEN_OUTER: return k == 4 ? (int64_t)s.n * s.k * s.m : 0;
    case TN_TOKEN_LINEAR: return k == 1 && !(s.flags & TN_TOKEN_SHARED) ? (int64_t)s.n * s.k : k == 2 ? s.n : 0;
    default: return 0;
    }
}

/* Asks the L2 cache for them: one block, for all. Weights of shared products have their own way. */
__device__ __forceinline__ void ask_ahead(const tn_token_step &s)
{
    for (int k = 0; k < TN_TOKEN_IN; k++) {
        if (!s.in[k] || s.in_slot[k] >= 0) continue;
        const int64_t bytes = kept_numbers(s, k) * (s.in_type[k] == TN_F32 ? 4 : 2);
        for (int64_t i = threadIdx.x * 128; i < bytes; i += TN_TOKEN_THREADS * 128)
            asm volatile("prefetch.global.L2 [%0];\n" ::"l"((const char *)s.in[k] + i));
    }
}

enum { AHEAD = 8 }; /* steps */

/* With -DTN_TOKEN_TRACE=1 two blocks print what each step took, in cycles: waiting for a meeting or weights, then working (a fetch waits for mail
 * there); with 2 one prints when the kernel began and ended, in ns. */
#if TN_TOKEN_TRACE == 2
enum { TRACE_BYTES = 0 };
#define TRACE_ROOM() uint64_t t0; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t0))
#define TRACE_TIME(t)
#define TRACE_STEP(i)
#define TRACE_PRINT() uint64_t t1; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t1)); \
    if (threadIdx.x == 0 && blockIdx.x == 0) printf("token %llu to %llu\n", (unsigned long long)t0, (unsigned long long)t1)
#elif defined TN_TOKEN_TRACE
enum { TRACE_BYTES = TN_TOKEN_STEPS * 8 };
#define TRACE_ROOM() __shared__ uint2 trace[TN_TOKEN_STEPS]; long long t0 = 0, t1 = 0; if (threadIdx.x < TN_TOKEN_STEPS) trace[threadIdx.x] = make_uint2(0, 0)
#define TRACE_TIME(t) t = clock64()
#define TRACE_STEP(i) if (threadIdx.x == 0) trace[i] = make_uint2((uint32_t)(t1 - t0), (uint32_t)(clock64() - t1))
#define TRACE_PRINT() for (int i = 0; threadIdx.x == 0 && blockIdx.x % (gridDim.x / 2) == 0 && i < p.n; i++) \
    printf("block %d step %d op %d n %d: %u waited %u worked\n", blockIdx.x, i, step[i].op, step[i].n, trace[i].x, trace[i].y)
#else
enum { TRACE_BYTES = 0 };
#define TRACE_ROOM()
#define TRACE_TIME(t)
#define TRACE_STEP(i)
#define TRACE_PRINT()
#endif

/* SEES: caches that it can look at; the less code, the more of it stays near. */
enum { NOTHING, CACHES_BF16, CACHES };

template <int SEES>
__global__ void __launch_bounds__(TN_TOKEN_THREADS, 1) run_token(const __grid_constant__ tn_token_program p)
{
    extern __shared__ float4 memory[];
    __shared__ float sums[TN_TOKEN_SUMS];
    float *slots = (float *)memory;
    char *stages = (char *)(slots + p.slot_floats);
    tn_token_step *step = (tn_token_step *)(stages + 2 * p.stage_bytes); /* arguments are far when they are looked at for the first time */
    const uint32_t epoch = __ldcg(p.meeting + 2) + 1;
    const uint64_t *steps = (const uint64_t *)p.step; /* by ordinary loads: constant memory gives one number at a time */
    asm volatile("" : "+l"(steps));
    uint32_t meetings = 0;
    int product = 0, turn = 0, turn_ahead = AHEAD % gridDim.x; /* of the blocks: one writes what all make, one asks for what comes later */
    TRACE_ROOM();
    for (int i = threadIdx.x; i < p.n * (int)(sizeof *step / 8); i += TN_TOKEN_THREADS) ((uint64_t *)step)[i] = steps[i];
    __syncthreads();
    part mine = stage(p, step, 0, stages), next = stage(p, step, 1, stages + p.stage_bytes);
    for (int i = 0; i < p.n; i++) {
        const tn_token_step *fetch = nullptr;
        const int records = step[i].flags & TN_TOKEN_JOINED ? 2 : 1;
        for (int k = 0; k < records; k++) {
            if (turn_ahead == blockIdx.x && i + AHEAD + k < p.n) ask_ahead(step[i + AHEAD + k]);
            if (++turn_ahead == gridDim.x) turn_ahead = 0;
        }
        if (records == 2 && step[i].op == TN_TOKEN_FETCH) fetch = &step[i++];
        const tn_token_step &s = step[i];
        const tn_token_room r = { slots, sums, stages + (product & 1) * p.stage_bytes,
                                  (s.flags & TN_TOKEN_SHARED) || s.op == TN_TOKEN_PUT || turn == blockIdx.x, epoch, fetch };
        if (++turn == gridDim.x) turn = 0;
        float *scratch = p.scratch + s.kind * TN_TOKEN_HALF; /* of steps that have parts */
        TRACE_TIME(t0);
        if (s.flags & TN_TOKEN_MEETS) meet(p.meeting, ++meetings);
        if (s.flags & TN_TOKEN_STAGED) {
            stage_wait();
            __syncthreads();
        }
        TRACE_TIME(t1);
        switch (s.op) {
        case TN_TOKEN_EMBED: tn_token_embed(s, r); break;
        case TN_TOKEN_FETCH: tn_token_fetch(s, r); break;
        case TN_TOKEN_NORM: tn_token_norm(s, r); break;
        case TN_TOKEN_READOUT: tn_token_readout(s, r); break;
        case TN_TOKEN_LINEAR: {
            const part all = { 0, s.n, 0 };
            linear(s, r, s.flags & TN_TOKEN_STAGED ? mine : all);
            break;
        }
        case TN_TOKEN_CONV: tn_token_conv(s, r); break;
        case TN_TOKEN_SCAN: tn_token_scan(s, r); break;
        case TN_TOKEN_OUTER: tn_token_outer(s, r); break;
        case TN_TOKEN_COPY: {
            int n = 1;
            while (i + n < p.n && step[i + n].flags & TN_TOKEN_BESIDE) n++;
            tn_token_copy(&s, r, n);
            i += n - 1;
            break;
        }
        case TN_TOKEN_ROPE: tn_token_rope(s, r); break;
        case TN_TOKEN_PUT: tn_token_place(s, r); break;
        case TN_TOKEN_SEEN:
            if (SEES == CACHES && s.in_type[1] == TN_F32) tn_token_seen<TN_F32>(s, r, scratch);
            else if (SEES) tn_token_seen<TN_BF16>(s, r, scratch);
            break;
        case TN_TOKEN_SEEN_ALL:
            if (SEES) tn_token_seen_all(s, r, scratch);
            break;
        case TN_TOKEN_BEST_PARTS: tn_token_best_parts(s, r, scratch); break;
        case TN_TOKEN_BEST: tn_token_best_whole(s, r, scratch); break;
        default: tn_token_elementwise(s, r);
        }
        __syncthreads();
        TRACE_STEP(i);
        if (s.flags & TN_TOKEN_STAGED) {
            mine = next;
            next = stage(p, step, product + 2, stages + (product & 1) * p.stage_bytes);
            product++;
        }
        if (s.flags & TN_TOKEN_JOINED) i++; /* of a product */
    }
    TRACE_PRINT();
    if (threadIdx.x) return;
    __threadfence();
    if (atomicAdd(p.meeting + 1, 1u) != gridDim.x - 1) return;
    p.meeting[0] = p.meeting[1] = 0;
    p.meeting[2] = epoch;
}

static_assert(sizeof(tn_token_program) <= 32764 && sizeof(tn_token_step) % 8 == 0, "a kernel's argument");
static_assert(2 * (int)TN_TOKEN_HALF <= (int)TN_CUDA_MEETING_FLOATS, "two halves of scratch");
static_assert((int)TN_TOKEN_HEADS <= 2 * (int)TN_TOKEN_THREADS, "parts of attention that a thread joins");

} // namespace

enum { SLOT_FLOATS = 12 << 10, FEWEST = 4 /* calls that are worth a program */ };

static const void *kernel_for(const tn_token_program *p)
{
    int sees = NOTHING;
    for (int i = 0; i < p->n; i++)
        if (p->step[i].op == TN_TOKEN_SEEN && sees != CACHES) sees = p->step[i].in_type[1] == TN_BF16 ? CACHES_BF16 : CACHES;
    return sees == NOTHING ? (const void *)run_token<NOTHING> : sees == CACHES ? (const void *)run_token<CACHES> : (const void *)run_token<CACHES_BF16>;
}

extern "C" tn_status tn_token_run_cuda(const tn_op *const *op, const tn_call *call, size_t n, size_t *took)
{
    tn_cuda_queue *q = tn_cuda_queue_of(call);
    tn_token_program program;
    tn_token_builder builder;
    const int fixed = (int)(sizeof(float) * (SLOT_FLOATS + TN_TOKEN_SUMS) + sizeof program.step) + TRACE_BYTES + 1024;
    const int stage_bytes = (q->shared_bytes - fixed) / 2 / 128 * 128;
    *took = 0;
    if (stage_bytes < 4096 || !q->meeting || !q->mail || q->multiprocessors > TN_TOKEN_HEADS) return TN_OK;
    const tn_token_space space = { SLOT_FLOATS, stage_bytes, TN_CUDA_MAIL_WORDS, (uint64_t *)q->mail };
    tn_token_begin(&builder, &program, &space);
    size_t i = 0;
    while (i < n && tn_token_add(&builder, op[i], &call[i], n - i)) i++;
    if (i < FEWEST) return TN_OK;
    program.meeting = (uint32_t *)q->meeting;
    program.scratch = (float *)q->meeting + 64;
    const size_t shared = sizeof(float) * SLOT_FLOATS + 2 * (size_t)stage_bytes + sizeof program.step[0] * (size_t)(program.n + 1);
    const void *kernel = kernel_for(&program);
    TN_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    void *args[] = { &program };
    TN_CUDA_TRY(cudaLaunchCooperativeKernel(kernel, dim3((unsigned)q->multiprocessors), dim3(TN_TOKEN_THREADS), args, shared, q->stream));
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
