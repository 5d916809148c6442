/* rollout on Hopper, shared by its kernels: a pipeline of stages in shared memory. A block has three warpgroups: the first fetches,
 * rows by copies of 16 bytes (they may lie anywhere) and packed weights by one bulk copy; the others compute, 64 rows each.
 * A block takes one tile of results after the other, and fetching runs ahead of computing over their ends. */
#ifndef TN_OPS_ROLLOUT_HOPPER_CUH
#define TN_OPS_ROLLOUT_HOPPER_CUH

#include "backend/cuda/hopper.cuh"
#include "ops/rollout/rollout_tiles.cuh"

namespace tn_rollout
{

enum { GROUPS = 2, BLOCK = (GROUPS + 1) * 128, TILE_ROWS = GROUPS * 64, STAGES = 4, BEHIND = 2 };
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

/* Barriers of a block; `full` waits for the four warps that fetch and the bulk copy, if there is one. */
struct barriers {
    uint64_t *full, *empty;
    __device__ __forceinline__ void open(bool bulk)
    {
        for (int i = 0; i < STAGES; i++)
            tn_barrier_open(full + i, bulk ? 5 : 4), tn_barrier_open(empty + i, 4 * GROUPS);
        tn_barriers_opened();
    }
};

/* What the fetching side does with a stage: waits for it, and BEHIND stages later says that its copies have come. */
struct feeder {
    barriers b;
    turn now, told;
    int under_way;
    __device__ __forceinline__ void begin() { tn_barrier_wait(b.empty + now.at, now.phase); }
    __device__ __forceinline__ void tell()
    {
        tn_fence_async();
        __syncwarp();
        if ((threadIdx.x & 31) == 0) tn_barrier_arrive(b.full + told.at);
        told.next();
        under_way--;
    }
    __device__ __forceinline__ void end()
    {
        tn_copies_commit();
        now.next();
        if (++under_way <= BEHIND) return;
        tn_copies_wait<BEHIND>();
        tell();
    }
    __device__ __forceinline__ void drain()
    {
        tn_copies_wait<0>();
        while (under_way) tell();
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
