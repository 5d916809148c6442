/* The kernel that runs a token's program, and the choice of what goes into one.
 *
 * A block on every multiprocessor, of warps that fetch vectors and others that make products of them (decode_linear.cuh).
 * Most of a step's time is not work: its code comes from far away unless all of it is short, a number from memory takes as long as a thousand
 * instructions, and each instruction waits for the one before it. So code is shared where it can be, a step's record is read once, and what a step
 * will read is asked for before it waits for anything.
 * The grid barrier is a counter in memory; the last one to leave sets it back for the next program and counts the launch, whose number tells
 * message of this launch from what lies there of others. All blocks are there at once (a cooperative launch), so that one may wait for another. */
#include "plan/decode/decode_caches.cuh"
#include "plan/decode/decode_linear.cuh"
#include "plan/decode/decode_near.cuh"
#include "plan/decode/decode_seen.cuh"

#ifdef TN_DECODE_TRACE
#include <cstdio>
#endif

#if CUDART_VERSION >= 12010 /* a program is more than the 4 KiB that a kernel took as its argument before */

namespace
{

/* The n-th grid barrier: what any block wrote before it, all blocks see after it. */
__device__ __forceinline__ void barrier(uint32_t *counter, uint32_t n)
{
    tn_decode_sync();
    if (threadIdx.x == 0) {
        uint32_t seen;
        int looks = 0;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;\n" ::"l"(counter) : "memory");
        do {
            if (++looks == TN_DECODE_PATIENCE) __trap();
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(seen) : "l"(counter) : "memory");
        } while (seen < n * gridDim.x);
    }
    tn_decode_sync();
}

/* With -DTN_TOKEN_TRACE=1 two blocks print what each step took, in cycles: waiting for a barrier, then working (a fetch waits for message there, a product's
 * front for the product); with 2 one prints when the kernel began and ended, in ns. */
#if TN_DECODE_TRACE == 2
enum { TRACE_BYTES = 0 };
#define TRACE_ROOM()                                                                                                   \
    uint64_t t0;                                                                                                       \
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t0))
#define TRACE_TIME(t)
#define TRACE_STEP(i)
#define TRACE_PRINT()                                                                                                  \
    uint64_t t1;                                                                                                       \
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t1));                                                              \
    if (threadIdx.x == 0 && blockIdx.x == 0)                                                                           \
    printf("token %llu to %llu\n", (unsigned long long)t0, (unsigned long long)t1)
#elif defined TN_DECODE_TRACE
enum { TRACE_BYTES = TN_DECODE_STEPS * 8 };
#define TRACE_ROOM()                                                                                                   \
    __shared__ uint2 trace[TN_DECODE_STEPS];                                                                           \
    long long t0 = 0, t1 = 0;                                                                                          \
    if (threadIdx.x < TN_DECODE_STEPS) trace[threadIdx.x] = make_uint2(0, 0)
#define TRACE_TIME(t) t = clock64()
#define TRACE_STEP(i)                                                                                                  \
    if (threadIdx.x == 0) trace[i] = make_uint2((uint32_t)(t1 - t0), (uint32_t)(clock64() - t1))
#define TRACE_PRINT()                                                                                                  \
    for (int i = 0; threadIdx.x == 0 && blockIdx.x % (gridDim.x / 2) == 0 && i < p.n; i++)                             \
    printf("block %d step %d op %d n %d: %u waited %u worked\n", blockIdx.x, i, step[i].op, step[i].n, trace[i].x,     \
           trace[i].y)
#else
enum { TRACE_BYTES = 0 };
#define TRACE_ROOM()
#define TRACE_TIME(t)
#define TRACE_STEP(i)
#define TRACE_PRINT()
#endif

/* SEES: caches that it can look at; PAIRS: of a PLAIN program, of numbers that a thread of the front has of the longest vector, 0: it is not PLAIN. The less
 * code, the more of it stays near. */
enum { NOTHING, CACHES_BF16, CACHES };

/* Steps that have much to read. Products and outer are those of the other warps, the rest is the front's. */
__device__ __forceinline__ bool is_done_by_all(int op)
{
    return (1u << TN_DECODE_COPY | 1u << TN_DECODE_SEEN | 1u << TN_DECODE_SEEN_ALL | 1u << TN_DECODE_BEST_PARTS |
            1u << TN_DECODE_BEST) >>
               op &
           1;
}

/* A product by the warps that make them; product: of the staged ones. */
template <int PAIRS>
__device__ __forceinline__ void make_product(const tn_decode_step &s, const tn_decode_step &then, bool joined,
                                             const tn_decode_room &r, const tn_decode_part *part, int &product,
                                             tn_decode_stream &stream, tn_decode_chain chain)
{
    if (!PAIRS) {
        tn_decode_part mine = { nullptr, 0, 0, s.n, 1, 0, 0 };
        if (s.flags & TN_DECODE_STAGED) mine = part[product++];
        tn_decode_linear(s, then, r, mine, stream);
        return;
    }
    enum { SETS = PAIRS == 1 ? 2 : 1 };
    enum { CUT = PAIRS == TN_DECODE_PAIRS };
    const tn_decode_part &mine = part[product++];
    if (!joined && mine.each <= 2) tn_decode_rows_near<TN_DECODE_ROWS_ALONE, 1, CUT>(s, then, r, mine, stream, chain);
    else if (!joined) tn_decode_rows_near<TN_DECODE_ROWS_ALONE, SETS, CUT>(s, then, r, mine, stream, chain);
    else if (!mine.paired) tn_decode_rows_near<TN_DECODE_ROWS_CONV, 1, CUT>(s, then, r, mine, stream, chain);
    else if (mine.each == 1) tn_decode_rows_near<TN_DECODE_ROWS_PAIRED, 1, CUT>(s, then, r, mine, stream, chain);
    else tn_decode_rows_near<TN_DECODE_ROWS_PAIRED, SETS, CUT>(s, then, r, mine, stream, chain);
}

template <int SEES, int PAIRS>
__device__ __forceinline__ void do_in_front(int op, const tn_decode_step &s, const tn_decode_room &r)
{
    enum { PLAIN = PAIRS > 0 };
    switch (op) {
    case TN_DECODE_EMBED: tn_decode_embed(s, r); break;
    case TN_DECODE_FETCH:
        tn_decode_fetch<PAIRS == TN_DECODE_PAIRS ? 2 * TN_DECODE_PAIRS : TN_DECODE_PAIRS>(s, r);
        break;
    case TN_DECODE_NORM:
        if (PLAIN) tn_decode_norm_near<PLAIN ? PAIRS : 1>(s, r);
        else tn_decode_norm(s, r);
        break;
    case TN_DECODE_READOUT:
        if (PLAIN) tn_decode_readout_near<PLAIN ? PAIRS : 1>(s, r);
        else tn_decode_readout(s, r);
        break;
    case TN_DECODE_SCAN: tn_decode_scan(s, r); break;
    case TN_DECODE_CONV:
        if (!PLAIN) tn_decode_conv(s, r);
        break;
    case TN_DECODE_ROPE:
        if (SEES) tn_decode_rope(s, r);
        break;
    case TN_DECODE_PUT:
        if (SEES) tn_decode_place(s, r);
        break;
    default:
        if (!PLAIN) tn_decode_elementwise(s, r);
    }
}

template <int SEES, int PAIRS>
__global__ void __launch_bounds__(TN_DECODE_THREADS, 1) run_token(const __grid_constant__ tn_decode_program p)
{
    enum { PLAIN = PAIRS > 0, CUT = PAIRS == TN_DECODE_PAIRS };
    extern __shared__ float4 memory[];
    __shared__ float sums[TN_DECODE_SUMS];
    __shared__ tn_decode_known known;
    float *slots = (float *)memory;
    char *weights = (char *)(slots + p.slot_floats);
    tn_decode_step *step =
        (tn_decode_step *)(weights + p.stage_bytes); /* arguments are far when they are looked at for the first time */
    tn_decode_part *part = (tn_decode_part *)(step + p.n + 1); /* of the staged products */
    const uint32_t epoch = __ldcg(p.barrier + 2) + 1;
    const uint64_t *steps =
        (const uint64_t *)p.step; /* by ordinary loads: constant memory gives one number at a time */
    asm volatile("" : "+l"(steps));
    TRACE_ROOM();
    for (int i = threadIdx.x; i < p.n * (int)(sizeof *step / 8); i += TN_DECODE_THREADS)
        ((uint64_t *)step)[i] = steps[i];
    __syncthreads();
    tn_decode_share_out(part, p, step);
    __syncthreads();
    tn_decode_stream stream(p, part, weights);
    const bool front = threadIdx.x < TN_DECODE_FRONT;
    uint32_t barriers = 0;
    int product = 0, turn = 0; /* of the blocks: one writes what all make */
    tn_decode_chain chain = { false, false };
    tn_decode_ahead ahead;
    if (!front) {
        for (int i = 0; i < p.places; i++) stream.ask();
        tn_decode_ask_ahead(p, step);
        if (CUT && stream.warp() == 0) ahead.ask(part, p.staged_n, -1);
    }
#pragma unroll 1
    for (int i = 0; i < p.n; i++) {
        const tn_decode_step *fetch = nullptr;
        if (step[i].op == TN_DECODE_FETCH && step[i].flags & TN_DECODE_JOINED) fetch = &step[i++];
        const bool writes = turn == blockIdx.x;
        if (++turn == gridDim.x) turn = 0;
        TRACE_TIME(t0);
        if (step[i].flags & TN_DECODE_BARRIER) barrier(p.barrier, ++barriers);
        TRACE_TIME(t1);
        const int op = step[i].op;
        if (op == TN_DECODE_LINEAR) {
            const tn_decode_step &s = step[i];
            const bool joined = s.flags & TN_DECODE_JOINED;
            const tn_decode_room r = { slots, sums, (s.flags & TN_DECODE_SHARED) || writes, epoch, nullptr, &known };
            const tn_decode_step &then = step[joined ? i + 1 : i];
            const int behind = i + 1 + joined;
            chain.follows = chain.goes_on;
            chain.goes_on = PLAIN && behind < p.n && step[behind].op == TN_DECODE_LINEAR &&
                            !(step[behind].flags & (TN_DECODE_BARRIER | TN_DECODE_FETCHES));
            if (SEES && !front && !chain.follows && stream.warp() == TN_DECODE_BACK - 1)
                tn_decode_seen_ahead(step, i, p.n);
            if (front) tn_decode_linear_front(s, r, chain);
            else make_product<PAIRS>(s, then, joined, r, part, product, stream, chain);
            if (CUT && !front && stream.warp() == 0) ahead.ask(part, p.staged_n, product - 1);
            i += joined;
        } else if (op == TN_DECODE_OUTER) {
            const tn_decode_room r = { slots, sums, true, epoch, nullptr, &known };
            if (!front) tn_decode_outer(step[i], r);
            else tn_decode_sync(), tn_decode_sync();
        } else if (is_done_by_all(op)) {
            const tn_decode_step &s = step[i];
            const tn_decode_room r = { slots, sums, (s.flags & TN_DECODE_SHARED) || writes, epoch, nullptr, &known };
            float *scratch = p.scratch + s.kind * TN_DECODE_HALF; /* of steps that have parts */
            tn_decode_sync();
            switch (op) {
            case TN_DECODE_COPY: {
                int n = 1;
                while (i + n < p.n && step[i + n].flags & TN_DECODE_BESIDE) n++;
                tn_decode_copy(step + i, r, n);
                i += n - 1;
                break;
            }
            case TN_DECODE_SEEN:
                if (SEES == CACHES && s.in_type[1] == TN_F32) tn_decode_seen<TN_F32>(s, r, scratch);
                else if (SEES) tn_decode_seen<TN_BF16>(s, r, scratch);
                break;
            case TN_DECODE_SEEN_ALL:
                if (SEES) tn_decode_seen_all(s, r, scratch);
                break;
            case TN_DECODE_BEST_PARTS: tn_decode_best_parts(s, r, scratch); break;
            default: tn_decode_best_whole(s, r, scratch);
            }
            tn_decode_sync();
        } else if (front) {
            const tn_decode_step &s = step[i];
            const tn_decode_room r = { slots, sums, s.op == TN_DECODE_PUT || writes, epoch, fetch, &known };
            do_in_front<SEES, PAIRS>(op, s, r);
            tn_decode_front_sync();
        }
        TRACE_STEP(i);
    }
    TRACE_PRINT();
    if (threadIdx.x) return;
    __threadfence();
    if (atomicAdd(p.barrier + 1, 1u) != gridDim.x - 1) return;
    p.barrier[0] = p.barrier[1] = 0;
    p.barrier[2] = epoch;
}

static_assert(sizeof(tn_decode_program) <= 32764 && sizeof(tn_decode_step) % 8 == 0, "a kernel's argument");
static_assert(2 * (int)TN_DECODE_HALF <= (int)TN_CUDA_BARRIER_FLOATS, "two halves of scratch");
static_assert((int)TN_DECODE_HEADS <= 2 * (int)TN_DECODE_THREADS, "parts of attention that a thread joins");

} // namespace

enum { SLOT_FLOATS = 16 << 10, FEWEST = 4 /* calls that are worth a program */, LEAST_STAGE = 32768 };

/* What a block's shared memory has besides weights: of the program, and what the kernel declares. */
static int fixed_bytes(int steps, int staged)
{
    return (int)(sizeof(float) * (SLOT_FLOATS + TN_DECODE_SUMS) + sizeof(tn_decode_step) * (size_t)(steps + 1) +
                 sizeof(tn_decode_part) * (size_t)staged + sizeof(tn_decode_known)) +
           TRACE_BYTES + 1024;
}

static const void *kernel_for(const tn_decode_program *p)
{
    static const void *const plain[2][TN_DECODE_PAIRS / 2 + 1] = {
        { (const void *)run_token<NOTHING, 1>, (const void *)run_token<NOTHING, 2>,
          (const void *)run_token<NOTHING, TN_DECODE_PAIRS> },
        { (const void *)run_token<CACHES_BF16, 1>, (const void *)run_token<CACHES_BF16, 2>,
          (const void *)run_token<CACHES_BF16, TN_DECODE_PAIRS> }
    };
    return p->pairs ? plain[p->sees][p->pairs / 2] : (const void *)run_token<CACHES, 0>;
}

extern "C" tn_status tn_decode_run_cuda(const tn_op *const *op, const tn_call *call, size_t n, size_t *took)
{
    tn_cuda_queue *q = tn_cuda_queue_of(call);
    tn_decode_program program;
    tn_decode_builder builder;
    *took = 0;
    if (q->shared_bytes - fixed_bytes(TN_DECODE_STEPS, TN_DECODE_STEPS) < LEAST_STAGE || !q->barrier || !q->message ||
        q->multiprocessors > TN_DECODE_HEADS)
        return TN_OK;
    const tn_decode_space space = { SLOT_FLOATS, LEAST_STAGE, TN_CUDA_MESSAGE_WORDS, (uint64_t *)q->message };
    tn_decode_begin(&builder, &program, &space);
    size_t i = 0;
    while (i < n && tn_decode_add(&builder, op[i], &call[i], n - i)) i++;
    if (i < FEWEST) return TN_OK;
    program.stage_bytes = (q->shared_bytes - fixed_bytes(program.n, program.staged_n)) / 128 * 128;
    tn_decode_finish(&program);
    program.barrier = (uint32_t *)q->barrier;
    program.scratch = (float *)q->barrier + 64;
    const size_t shared = sizeof(float) * SLOT_FLOATS + (size_t)program.stage_bytes +
                          sizeof program.step[0] * (size_t)(program.n + 1) +
                          sizeof(tn_decode_part) * (size_t)program.staged_n;
    const void *kernel = kernel_for(&program);
    TN_RETURN_IF(tn_cuda_allow_shared(kernel, (int)shared));
    void *args[] = { &program };
    TN_CUDA_TRY(cudaLaunchCooperativeKernel(kernel, dim3((unsigned)q->multiprocessors), dim3(TN_DECODE_THREADS), args,
                                            shared, q->stream));
    TN_CUDA_LAUNCHED();
    *took = i;
    return TN_OK;
}

#else

extern "C" tn_status tn_decode_run_cuda(const tn_op *const *op, const tn_call *call, size_t n, size_t *took)
{
    (void)op, (void)call, (void)n;
    *took = 0;
    return TN_OK;
}

#endif
