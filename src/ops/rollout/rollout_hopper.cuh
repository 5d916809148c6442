/* rollout on Hopper, shared by its kernels: a pipeline of stages in shared memory. A block has three warpgroups: one warp of the first
 * fetches, packed weights by one bulk copy and rows by boxes of the tensor engine; the others compute, 64 rows each. A block takes
 * one tile of results after the other, and fetching runs ahead of computing over their ends.
 *
 * Copies of 16 bytes by threads were the bound of these kernels: a warp's instruction took some 45 cycles, however it was arranged.
 * A box needs neighbouring rows. Where rows are looked up (states, through FROM) those of a stage are mostly neighbours: flows keep
 * their order, and gaps are where one has left. So a stage's rows are one box, else boxes of eight or of one. */
#ifndef TN_OPS_ROLLOUT_HOPPER_CUH
#define TN_OPS_ROLLOUT_HOPPER_CUH

#include "backend/cuda/hopper.cuh"
#include "ops/rollout/rollout_tiles.cuh"

namespace tn_rollout
{

enum { GROUPS = 2, BLOCK = (GROUPS + 1) * 128, TILE_ROWS = GROUPS * 64, STAGES = 4 };
/* Registers of a thread that fetches and of one that computes. Together they are what the block was started with: more, and it would
 * wait for ever. */
enum { FETCHES = 40, COMPUTES = 232, STARTED_WITH = 168 };
static_assert(128 * FETCHES + 128 * GROUPS * COMPUTES <= STARTED_WITH * BLOCK, "a block's registers");
enum { ROWS_BYTES = TILE_ROWS * TILE_ROW, TILE64 = 64 * TILE_ROW }; /* of a stage's rows; of a tile of 64 rows */

/* --- rows as boxes ------------------------------------------------------------------------------------------------------- */

/* Boxes of `box` rows and 64 columns out of (rows,columns) bf16, rows `stride` elements apart; zeros outside. */
static inline tn_status map_boxes(CUtensorMap *map, const void *data, int64_t rows, int64_t columns, int64_t stride,
                                  int box)
{
    const int64_t dim[4] = { 1, rows, 1, columns }, step[4] = { rows * stride, stride, columns, 1 };
    if (!tn_tensor_map(map, (void *)data, dim, step, box))
        return tn_error(TN_INTERNAL, "rollout: rows of %lld numbers, %lld apart, cannot be copied as boxes",
                        (long long)columns, (long long)stride);
    return TN_OK;
}

/* Rows that are looked up: boxes of a stage's rows, of eight and of one. */
struct gathered {
    CUtensorMap all, eight, one;
    const int32_t *from; /* where rows are; NULL: each at its own number */
    int32_t none;        /* the number of a row that does not exist */
};

static inline tn_status gather_boxes(gathered *g, const void *data, int64_t rows, int64_t columns, int64_t stride,
                                     int box, const int32_t *from)
{
    g->from = from, g->none = (int32_t)rows;
    TN_RETURN_IF(map_boxes(&g->all, data, rows, columns, stride, box));
    TN_RETURN_IF(map_boxes(&g->eight, data, rows, columns, stride, 8));
    return map_boxes(&g->one, data, rows, columns, stride, 1);
}

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

/* Barriers of a block. A stage is full when the bytes have come that the fetching warp announced. */
struct barriers {
    uint64_t *full, *empty;
    __device__ __forceinline__ void open()
    {
        for (int i = 0; i < STAGES; i++) tn_barrier_open(full + i, 1), tn_barrier_open(empty + i, 4 * GROUPS);
        tn_barriers_opened();
    }
    __device__ __forceinline__ void wait_full(const turn &t) { tn_barrier_wait(full + t.at, t.phase); }
};

/* What the fetching warp does with a stage: waits until it is free, and announces the bytes that will come. */
struct feeder {
    barriers b;
    turn now;
    __device__ __forceinline__ void begin(int bytes)
    {
        tn_barrier_wait(b.empty + now.at, now.phase);
        if (threadIdx.x == 0) tn_barrier_expect(full(), bytes);
    }
    __device__ __forceinline__ uint64_t *full() { return b.full + now.at; }
    __device__ __forceinline__ void end() { now.next(); }
};

/* The rows of a stage, ROWS from row0 on, for a warp: as one box where they are neighbours, else lane i % (ROWS/8) has eight of them,
 * as one box or one by one. */
template <int ROWS>
struct stage_rows {
    enum { EIGHTS = ROWS / 8 };
    int32_t first, at[8];
    bool all, eight;
    /* Rows from n on do not exist. blank: they must come as zeros; else whatever lies behind the others may come. */
    __device__ __forceinline__ void look_up(const gathered &g, int32_t row0, int32_t n, bool blank)
    {
        const int lane = threadIdx.x & 31;
        bool neighbours = true;
        first = g.from ? g.from[row0] : row0; /* the same in all lanes */
#pragma unroll
        for (int i = 0; i < ROWS / 32; i++) {
            const int32_t own = lane + 32 * i, row = row0 + own;
            if (row >= n) neighbours &= !blank;
            else if (g.from) neighbours &= g.from[row] == first + own;
        }
        all = __all_sync(0xffffffffu, neighbours);
        if (all) return;
        eight = true;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int32_t row = row0 + lane % EIGHTS * 8 + i;
            at[i] = row >= n ? g.none : g.from ? g.from[row] : row;
            eight &= at[i] == at[0] + i;
        }
    }
    /* 64 columns from `column` on to the tile `to`; lanes from `lane0` on do it. */
    __device__ __forceinline__ void fetch(const gathered &g, char *to, uint64_t *full, int column, int lane0) const
    {
        const int lane = (int)(threadIdx.x & 31) - lane0;
        if (all) {
            if (lane == 0) tn_tensor_copy(to, &g.all, full, column, 0, first, 0);
            return;
        }
        if (lane < 0 || lane >= EIGHTS) return;
        to += lane * 8 * TILE_ROW;
        if (eight) tn_tensor_copy(to, &g.eight, full, column, 0, at[0], 0);
        else
#pragma unroll
            for (int i = 0; i < 8; i++) tn_tensor_copy(to + i * TILE_ROW, &g.one, full, column, 0, at[i], 0);
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
