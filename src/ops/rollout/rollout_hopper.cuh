/* rollout on Hopper, shared by its kernels: a pipeline of stages in shared memory. A block has three warpgroups: the first fetches,
 * rows by copies of 16 bytes (they may lie anywhere) and packed weights by one bulk copy; the others compute, 64 rows each. Boxes of
 * the tensor engine were no faster where rows are looked up, and much slower where flows have left; rollout_outer_hopper_cuda.cu, whose
 * rows are in order, takes them.
 * A block takes one tile of results after the other, and fetching runs ahead of computing over their ends. */
#ifndef TN_OPS_ROLLOUT_HOPPER_CUH
#define TN_OPS_ROLLOUT_HOPPER_CUH

#include "backend/cuda/hopper.cuh"
#include "ops/rollout/rollout_tiles.cuh"

namespace tn_rollout
{

enum { GROUPS = 2, BLOCK = (GROUPS + 1) * 128, TILE_ROWS = GROUPS * 64, STAGES = 4 };
/* Registers of a thread that fetches and of one that computes. The former need many too: a copy holds on to its address until it is
 * on its way, and with few registers the next one would wait for that. Together they are what the block was started with: more, and
 * it would wait for ever. */
enum { FETCHES = 88, COMPUTES = 208, STARTED_WITH = 168 };
static_assert(128 * FETCHES + 128 * GROUPS * COMPUTES <= STARTED_WITH * BLOCK, "a block's registers");
enum { ROWS_BYTES = TILE_ROWS * TILE_ROW, TILE64 = 64 * TILE_ROW }; /* of a stage's rows; of a tile of 64 rows */

#if TN_HOPPER

/* Stages are taken in turn by both sides. */
struct turn {
    int at;
    uint32_t phase;
    __device__ __forceinline__ void next()
    {
        if (++at == STAGES) at = 0, phase ^= 1;
    }
};

/* Barriers of a block. A stage is full after so many arrivals: of the threads that copy pieces, and of the one that asks for more. */
struct barriers {
    uint64_t *full, *empty;
    __device__ __forceinline__ void open(int arrivals)
    {
        for (int i = 0; i < STAGES; i++) tn_barrier_open(full + i, arrivals), tn_barrier_open(empty + i, 4 * GROUPS);
        tn_barriers_opened();
    }
    /* Copies of single pieces are plain stores to the products, so they need a fence. It is on this side: on the other it would
     * wait for all the copies that are under way. */
    __device__ __forceinline__ void wait_full(const turn &t)
    {
        tn_barrier_wait(full + t.at, t.phase);
        tn_fence_async();
    }
};

/* What the fetching side does with a stage: waits until it is free; the copies themselves say when they have come. */
struct feeder {
    barriers b;
    turn now;
    __device__ __forceinline__ void begin() { tn_barrier_wait(b.empty + now.at, now.phase); }
    __device__ __forceinline__ void end()
    {
        tn_copies_arrive(b.full + now.at);
        now.next();
    }
};

__device__ __forceinline__ float low_of(uint32_t w) { return __uint_as_float(w << 16); }
__device__ __forceinline__ float high_of(uint32_t w) { return __uint_as_float(w & 0xffff0000u); }

template <int n>
__device__ __forceinline__ void clear(float (&x)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++) x[i] = 0.f;
}

#endif /* TN_HOPPER */

} // namespace tn_rollout

#endif
